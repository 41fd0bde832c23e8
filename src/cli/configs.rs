//! `ringlog configs`: settings of topics, brokers and groups, as the cluster keeps them.
//!
//! Shell: asks the cluster. Owns the subcommands and what they show. Always: what a broker keeps secret is shown as stars; a
//! key that is near a known one and not known is refused before the broker is asked. Source: Kafka's `kafka-configs`; rpk's
//! `cluster config`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand, ValueEnum};

use super::Failure;
use super::connect::ConnectArgs;
use super::outcome::{Tally, with_hint};
use super::serve_args::key_value;
use super::show::{Output, OutputArgs, Table, nearest, write_json};
use crate::client::admin::{BlockingAdmin, ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType};
use crate::config::client_rows::client_properties;
use crate::config::{BROKER_ROWS, Row, TOPIC_ROWS, broker_row, topic_row};

const EXAMPLES: &str = "\
Examples:
  ringlog configs describe topic orders
  ringlog configs describe broker 1 --all
  ringlog configs set topic orders retention.ms=7d max.message.bytes=2MiB
  ringlog configs unset topic orders retention.ms";

/// Shows and changes settings of topics, brokers and groups.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConfigsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: ConfigsCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ConfigsCommand {
    Describe(DescribeArgs),
    Set(SetArgs),
    Unset(UnsetArgs),
}

/// Whose settings.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A topic.
    Topic,
    /// A broker, by id.
    Broker,
    /// All brokers that have none of their own.
    BrokerDefault,
    /// A group.
    Group,
}

/// Shows the settings that differ from the defaults, or all.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog configs describe topic orders --all -o wide")]
struct DescribeArgs {
    /// Whose
    #[arg(value_enum)]
    kind: Kind,
    /// Names of topics or groups, ids of brokers [default: all]
    names: Vec<String>,
    /// Those at their defaults too
    #[arg(short, long)]
    all: bool,
}

/// Sets settings.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  ringlog configs set topic orders retention.ms=7d\n  ringlog configs set broker-default log.cleaner.threads=2"
)]
struct SetArgs {
    /// Whose
    #[arg(value_enum)]
    kind: Kind,
    /// The name, then settings; broker-default has no name
    #[arg(required = true, value_name = "NAME|KEY=VALUE")]
    words: Vec<String>,
    /// A properties file with settings
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
}

/// Takes settings back to their defaults.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog configs unset topic orders retention.ms")]
struct UnsetArgs {
    /// Whose
    #[arg(value_enum)]
    kind: Kind,
    /// The name, then keys; broker-default has no name
    #[arg(required = true, value_name = "NAME|KEY")]
    words: Vec<String>,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
}

/// Runs a subcommand.
pub(super) fn run(args: &ConfigsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let ConfigsArgs { connect, output: OutputArgs { output }, command } = args;
    match command {
        ConfigsCommand::Describe(args) => describe(&connect.admin()?, args, *output, out),
        ConfigsCommand::Set(args) => {
            let (resource, words) = resource(args.kind, &args.words)?;
            let mut pairs = Vec::new();
            if let Some(file) = &args.from_file {
                let text = std::fs::read(file).with_context(|| format!("--from-file {}", file.display()))?;
                let entries = client_properties(&text).map_err(|(line, why)| {
                    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
                    anyhow!("{}{line}: {why}", file.display())
                })?;
                pairs.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
            }
            for word in words {
                pairs.push(key_value(word).map_err(|why| anyhow!("{word}: {why}"))?);
            }
            if pairs.is_empty() {
                return Err(anyhow!("nothing to set: write KEY=VALUE after the name").into());
            }
            let change = |(key, value): &(String, String)| {
                check_key(args.kind, key)?;
                let value = row(args.kind, key).map_or_else(|| value.clone(), |row| row.plain(value));
                Ok(ConfigChange::set(key, value))
            };
            let changes = pairs.iter().map(change).collect::<anyhow::Result<Vec<_>>>()?;
            change_one(connect, resource, changes, args.dry_run, *output, out)
        }
        ConfigsCommand::Unset(args) => {
            let (resource, words) = resource(args.kind, &args.words)?;
            if words.is_empty() {
                return Err(anyhow!("nothing to unset: write keys after the name").into());
            }
            words.iter().try_for_each(|key| check_key(args.kind, key))?;
            let changes = words.iter().map(ConfigChange::delete).collect();
            change_one(connect, resource, changes, args.dry_run, *output, out)
        }
    }
}

/// The first word is the name, where there is one.
fn resource(kind: Kind, words: &[String]) -> anyhow::Result<(ConfigResource, &[String])> {
    if kind == Kind::BrokerDefault {
        return Ok((ConfigResource::all_brokers(), words));
    }
    let (name, rest) = words.split_first().ok_or_else(|| anyhow!("a name is missing"))?;
    if name.contains('=') {
        return Err(anyhow!("{name:?} stands where the name belongs"));
    }
    Ok((named(kind, name)?, rest))
}

fn named(kind: Kind, name: &str) -> anyhow::Result<ConfigResource> {
    Ok(match kind {
        Kind::Topic => ConfigResource::topic(name),
        Kind::Group => ConfigResource::group(name),
        Kind::BrokerDefault => ConfigResource::all_brokers(),
        Kind::Broker => {
            ConfigResource::broker(name.parse().map_err(|_| anyhow!("{name:?} is no broker id: it is a number"))?)
        }
    })
}

fn row(kind: Kind, key: &str) -> Option<&'static Row> {
    match kind {
        Kind::Topic => topic_row(key),
        Kind::Broker | Kind::BrokerDefault => broker_row(key),
        Kind::Group => None,
    }
}

fn check_key(kind: Kind, key: &str) -> anyhow::Result<()> {
    let rows = match kind {
        Kind::Topic => TOPIC_ROWS,
        Kind::Broker | Kind::BrokerDefault => BROKER_ROWS,
        Kind::Group => return Ok(()),
    };
    match nearest(key, rows.iter().map(|row| row.name)) {
        Some(near) if near != key => Err(anyhow!("there is no setting {key}; did you mean {near}?")),
        _ => Ok(()),
    }
}

fn change_one(
    connect: &ConnectArgs,
    resource: ConfigResource,
    changes: Vec<ConfigChange>,
    dry_run: bool,
    output: Output,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let admin = connect.admin()?;
    let outcomes = admin.alter_configs(vec![(resource, changes)], dry_run)?;
    let mut tally = Tally::default();
    for one in &outcomes {
        let name = shown(&one.resource);
        match &one.error {
            None => {
                tally.done();
                if output != Output::Json {
                    connect.say(format_args!("{name}: {}", if dry_run { "would change" } else { "changed" }));
                }
            }
            Some(error) => tally.failed(&name, with_hint(&admin, &one.resource.name, error)),
        }
    }
    if output == Output::Json {
        write_json(out, &outcomes)?;
    }
    tally.end()
}

fn shown(resource: &ConfigResource) -> String {
    match (resource.kind, resource.name.as_str()) {
        (ResourceType::Broker, "") => "brokers by default".to_owned(),
        (kind, name) => format!("{} {name}", kind.name()),
    }
}

fn describe(admin: &BlockingAdmin, args: &DescribeArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let resources = match (args.kind, args.names.as_slice()) {
        (Kind::BrokerDefault, _) => vec![ConfigResource::all_brokers()],
        (Kind::Topic, []) => {
            admin.list_topics(false)?.into_iter().map(|topic| ConfigResource::topic(topic.name)).collect()
        }
        (Kind::Broker, []) => {
            admin.describe_cluster()?.brokers.into_iter().map(|broker| ConfigResource::broker(broker.id)).collect()
        }
        (Kind::Group, []) => {
            let groups = admin.list_groups(Vec::new(), Vec::new())?;
            groups.into_iter().map(|group| ConfigResource::group(group.group)).collect()
        }
        (kind, names) => names.iter().map(|name| named(kind, name)).collect::<anyhow::Result<Vec<_>>>()?,
    };
    if resources.is_empty() {
        return Ok(());
    }
    let mut described = admin.describe_configs(resources, None)?;
    for resource in &mut described {
        let kind = resource.resource.kind;
        let default = resource.resource.name.is_empty();
        resource.configs.retain(|entry| args.all || changed(kind, default, entry));
        resource.configs.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let mut tally = Tally::default();
    for resource in &described {
        match &resource.error {
            None => tally.done(),
            Some(error) => tally.failed(&shown(&resource.resource), with_hint(admin, &resource.resource.name, error)),
        }
    }
    if output == Output::Json {
        write_json(out, &described)?;
        return tally.end();
    }
    for resource in described.iter().filter(|resource| resource.error.is_none()) {
        writeln!(out, "{}", shown(&resource.resource))?;
        let head: &[&str] = &["SETTING", "VALUE", "FROM", "READ-ONLY", "TYPE"];
        let mut table = Table::new(&head[..if output == Output::Wide { 5 } else { 3 }]);
        for entry in &resource.configs {
            let value = if entry.sensitive {
                "*****".to_owned()
            } else {
                entry.value.clone().unwrap_or_else(|| "null".to_owned())
            };
            let mut cells = vec![entry.name.clone(), value, entry.source.name().to_owned()];
            if output == Output::Wide {
                cells.push(if entry.read_only { "yes" } else { "no" }.to_owned());
                cells.push(entry.kind.unwrap_or("-").to_owned());
            }
            table.row(cells);
        }
        match table.is_empty() {
            true => writeln!(out, "(all at their defaults; --all shows them)")?,
            false => out.write_all(table.render().as_bytes())?,
        }
        writeln!(out)?;
    }
    tally.end()
}

/// Whether somebody set it for this resource.
fn changed(kind: ResourceType, default: bool, entry: &ConfigEntry) -> bool {
    match (kind, default) {
        (ResourceType::Topic, _) => entry.source == ConfigSource::DynamicTopic,
        (ResourceType::Broker, true) => entry.source == ConfigSource::DynamicDefaultBroker,
        (ResourceType::Broker, false) => entry.source != ConfigSource::Default,
        _ => entry.source != ConfigSource::Default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_settings_are_told_apart() {
        let words = |text: &[&str]| text.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let given = words(&["orders", "a=b"]);
        let (resource_of, rest) = resource(Kind::Topic, &given).unwrap();
        assert_eq!((shown(&resource_of).as_str(), rest), ("topic orders", &given[1..]));
        let given = words(&["a=b"]);
        assert_eq!(shown(&resource(Kind::BrokerDefault, &given).unwrap().0), "brokers by default");
        assert!(resource(Kind::Topic, &given).is_err());
        assert!(resource(Kind::Broker, &words(&["x", "a=b"])).is_err());
    }

    #[test]
    fn slips_in_keys_are_seen_before_the_broker_is_asked() {
        let why = check_key(Kind::Topic, "retention.mss").unwrap_err().to_string();
        assert_eq!(why, "there is no setting retention.mss; did you mean retention.ms?");
        assert!(check_key(Kind::Topic, "retention.ms").is_ok());
        assert!(check_key(Kind::Group, "anything").is_ok());
    }
}
