//! `ringlog topics`: topics and their partitions.
//!
//! Shell: asks the cluster. Owns the subcommands and what they show. Does not own settings of topics beyond what create and alter take
//! (`configs` does). Always: one line for each topic that could not be done, exit code 5 when only some could. Source: rpk's
//! `topic`.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use regex::Regex;
use serde_json::json;

use super::connect::ConnectArgs;
use super::moments::parse_moment;
use super::outcome::{Destroyed, Tally, confirm, listed, tell_destroyed, with_hint};
use super::serve_args::key_value;
use super::show::{Output, OutputArgs, Table, joined, nearest, or_dash, write_json};
use super::{Failure, unix_now_ms};
use crate::client::admin::{
    BlockingAdmin, ConfigChange, ConfigResource, ConfigSource, ItemError, NewPartitions, NewTopic, OffsetSpec,
    RecordsBefore, TopicDescription,
};
use crate::config::{TOPIC_ROWS, topic_row};

const EXAMPLES: &str = "\
Examples:
  ringlog topics list
  ringlog topics create orders -p 12 -r 3 -c retention.ms=7d
  ringlog topics describe orders
  ringlog topics delete -r 'test-.*' --dry-run";

/// Lists, creates, changes and deletes topics.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopicsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: TopicsCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum TopicsCommand {
    List(ListArgs),
    Create(CreateArgs),
    Describe(DescribeArgs),
    Alter(AlterArgs),
    Delete(DeleteArgs),
    AddPartitions(AddPartitionsArgs),
    Trim(TrimArgs),
}

/// Lists topics.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog topics list -r 'orders.*' -o json")]
struct ListArgs {
    /// Only topics of these names
    names: Vec<String>,
    /// The names are regular expressions
    #[arg(short, long)]
    regex: bool,
    /// The cluster's own topics too
    #[arg(short, long)]
    internal: bool,
}

/// Creates topics.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  ringlog topics create orders payments -p 12 -c cleanup.policy=compact --if-not-exists"
)]
struct CreateArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Partitions of each [default: the broker's num.partitions]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Replicas of each partition [default: the broker's default.replication.factor]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    replicas: Option<i16>,
    /// A setting, as in retention.ms=7d; may be given again
    #[arg(short, long = "config", value_name = "KEY=VALUE", value_parser = key_value)]
    config: Vec<(String, String)>,
    /// A topic that exists is no failure
    #[arg(long)]
    if_not_exists: bool,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
}

/// Shows topics with their partitions, offsets and changed settings.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog topics describe orders -o wide")]
struct DescribeArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The names are regular expressions
    #[arg(short, long)]
    regex: bool,
}

/// Changes settings of topics.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog topics alter orders -c retention.ms=1d --unset cleanup.policy")]
struct AlterArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// A setting, as in retention.ms=7d; may be given again
    #[arg(short, long = "config", value_name = "KEY=VALUE", value_parser = key_value, required_unless_present = "unset")]
    config: Vec<(String, String)>,
    /// A setting to take back to its default; may be given again
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
}

/// Deletes topics with all their records.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog topics delete orders --yes")]
struct DeleteArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The names are regular expressions
    #[arg(short, long)]
    regex: bool,
    /// A topic that is not there is no failure
    #[arg(long)]
    if_exists: bool,
    /// Only say which ones
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Gives a topic more partitions; records with keys then go to other partitions than before.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog topics add-partitions orders -n 6")]
struct AddPartitionsArgs {
    /// Their names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// How many more
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "total", required_unless_present = "total",
          value_parser = clap::value_parser!(i32).range(1..))]
    more: Option<i32>,
    /// How many there shall be
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    total: Option<i32>,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
}

/// Deletes the records of a topic before an offset or a moment.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  ringlog topics trim orders --before @2026-01-01\n  ringlog topics trim orders -p 0 --before 1000"
)]
struct TrimArgs {
    /// The topic
    name: String,
    /// Everything before: an offset, `end`, or @MOMENT (@-7d, @2026-01-01T10:00, @1767225600000)
    #[arg(long, value_name = "WHERE")]
    before: String,
    /// Only these partitions
    #[arg(short, long, value_name = "N,…", value_delimiter = ',')]
    partitions: Vec<i32>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Runs a subcommand.
pub(super) fn run(args: &TopicsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let TopicsArgs { connect, output: OutputArgs { output }, command } = args;
    if let TopicsCommand::Create(CreateArgs { config, .. }) | TopicsCommand::Alter(AlterArgs { config, .. }) = command {
        check_keys(config.iter().map(|(key, _)| key.as_str()))?;
    }
    if let TopicsCommand::Alter(AlterArgs { unset, .. }) = command {
        check_keys(unset.iter().map(String::as_str))?;
    }
    let admin = connect.admin()?;
    match command {
        TopicsCommand::List(args) => list(&admin, args, *output, out),
        TopicsCommand::Create(args) => create(&admin, args, *output, connect, out),
        TopicsCommand::Describe(args) => describe(&admin, args, *output, out),
        TopicsCommand::Alter(args) => alter(&admin, args, *output, connect, out),
        TopicsCommand::Delete(args) => delete(&admin, args, *output, connect, out),
        TopicsCommand::AddPartitions(args) => add_partitions(&admin, args, *output, connect, out),
        TopicsCommand::Trim(args) => trim(&admin, args, *output, out),
    }
}

/// A key nobody knows is a slip in most cases; brokers newer than this table are asked all the same.
fn check_keys<'k>(keys: impl Iterator<Item = &'k str>) -> Result<(), Failure> {
    for key in keys.filter(|key| topic_row(key).is_none()) {
        if let Some(near) = nearest(key, TOPIC_ROWS.iter().map(|row| row.name)) {
            return Err(anyhow!("topics have no setting {key}; did you mean {near}?").into());
        }
    }
    Ok(())
}

/// `7d` and `1GiB` as the numbers Kafka takes.
fn plain(key: &str, value: &str) -> String {
    topic_row(key).map_or_else(|| value.to_owned(), |row| row.plain(value))
}

fn patterns(names: &[String]) -> Result<Vec<Regex>, Failure> {
    let whole = |name: &String| {
        Regex::new(&format!("^(?:{name})$")).map_err(|error| anyhow!("{name:?} is no regular expression: {error}"))
    };
    Ok(names.iter().map(whole).collect::<anyhow::Result<_>>()?)
}

/// The names that are meant: as they are, or those that match, of which none is internal: what a pattern takes is what `list -r` shows.
fn chosen(admin: &BlockingAdmin, names: &[String], regex: bool) -> Result<Vec<String>, Failure> {
    if !regex {
        return Ok(names.to_vec());
    }
    let patterns = patterns(names)?;
    let all = admin.list_topics(false)?.into_iter().map(|topic| topic.name);
    let matching: Vec<String> = all.filter(|name| patterns.iter().any(|pattern| pattern.is_match(name))).collect();
    if matching.is_empty() {
        return Err(anyhow!("no topic matches {}", names.join(" or ")).into());
    }
    Ok(matching)
}

fn list(admin: &BlockingAdmin, args: &ListArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let patterns = if args.regex { patterns(&args.names)? } else { Vec::new() };
    let mut topics = admin.list_topics(true)?;
    topics.retain(|topic| match (args.names.is_empty(), args.regex) {
        (true, _) => args.internal || !topic.internal,
        (false, false) => args.names.contains(&topic.name),
        (false, true) => {
            (args.internal || !topic.internal) && patterns.iter().any(|pattern| pattern.is_match(&topic.name))
        }
    });
    let mut tally = Tally::default();
    topics.iter().for_each(|_| tally.done());
    if output == Output::Json {
        write_json(out, &topics)?;
    } else {
        let wide = output == Output::Wide;
        let head: &[&str] = &["NAME", "#PARTITIONS", "#REPLICAS", "INTERNAL", "ID"];
        let mut table = Table::new(&head[..if wide { 5 } else { 3 }]);
        for topic in &topics {
            let mut cells =
                vec![topic.name.clone(), topic.partitions.to_string(), topic.replication_factor.to_string()];
            if wide {
                cells.extend([if topic.internal { "yes" } else { "no" }.to_owned(), or_dash(topic.id.as_ref())]);
            }
            table.row(cells);
        }
        out.write_all(table.render().as_bytes())?;
    }
    if !args.regex {
        let missing = args.names.iter().filter(|name| !topics.iter().any(|topic| topic.name == **name));
        for name in missing {
            let all = admin.list_topics(true)?;
            let near = nearest(name, all.iter().map(|topic| topic.name.as_str()));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            tally.failed(&format!("topic {name}"), format!("there is no such topic{hint}"));
        }
    }
    tally.end()
}

fn create(
    admin: &BlockingAdmin,
    args: &CreateArgs,
    output: Output,
    connect: &ConnectArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let topic = |name: &String| NewTopic {
        name: name.clone(),
        partitions: args.partitions,
        replication_factor: args.replicas,
        configs: args.config.iter().map(|(key, value)| (key.clone(), plain(key, value))).collect(),
        ..NewTopic::default()
    };
    let mut created = admin.create_topics(args.names.iter().map(topic).collect(), args.dry_run)?;
    let mut tally = Tally::default();
    if args.if_not_exists {
        created.retain(|topic| {
            let exists = topic.error.as_ref().is_some_and(|error| error.name == "TOPIC_ALREADY_EXISTS");
            if exists {
                tally.done();
                connect.say(format_args!("topic {} exists", topic.name));
            }
            !exists
        });
    }
    for topic in &created {
        match &topic.error {
            None => tally.done(),
            Some(error) => tally.failed(&format!("topic {}", topic.name), error),
        }
    }
    if output == Output::Json {
        write_json(out, &created)?;
    } else {
        let mut table = Table::new(&["NAME", "#PARTITIONS", "#REPLICAS", "ID"]);
        for topic in created.iter().filter(|topic| topic.error.is_none()) {
            table.row([
                topic.name.clone(),
                or_dash(topic.partitions),
                or_dash(topic.replication_factor),
                or_dash(topic.id.as_ref()),
            ]);
        }
        if !table.is_empty() {
            out.write_all(table.render().as_bytes())?;
        }
        if args.dry_run {
            connect.say("only checked: nothing was created");
        }
    }
    tally.end()
}

fn describe(admin: &BlockingAdmin, args: &DescribeArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let names = chosen(admin, &args.names, args.regex)?;
    let topics = admin.describe_topics(names)?;
    let (there, missing): (Vec<_>, Vec<_>) = topics.into_iter().partition(|topic| topic.error.is_none());
    let mut tally = Tally::default();
    for topic in &missing {
        if let Some(error) = &topic.error {
            tally.failed(&format!("topic {}", topic.name), with_hint(admin, &topic.name, error));
        }
    }
    there.iter().for_each(|_| tally.done());
    let documents = there.iter().map(|topic| described(admin, topic)).collect::<Result<Vec<_>, Failure>>()?;
    for (topic, (partition, error)) in
        documents.iter().flat_map(|one| one.unknown.iter().map(|unknown| (one.topic, unknown)))
    {
        tally.failed(&format!("{}-{partition}", topic.name), error);
    }
    if output == Output::Json {
        let documents: Vec<_> = documents.iter().map(Described::document).collect();
        write_json(out, &documents)?;
        return tally.end();
    }
    for (index, topic) in documents.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        topic.write(output == Output::Wide, out)?;
    }
    tally.end()
}

/// A topic with what is known beside its partitions.
struct Described<'t> {
    topic: &'t TopicDescription,
    /// Log start and high watermark of each partition.
    offsets: Vec<(Option<i64>, Option<i64>)>,
    /// Partitions of which these could not be had, and why.
    unknown: BTreeMap<i32, ItemError>,
    /// Key, value, where from.
    configs: Vec<(String, String, &'static str)>,
}

fn described<'t>(admin: &BlockingAdmin, topic: &'t TopicDescription) -> Result<Described<'t>, Failure> {
    let ask = |spec| {
        let partitions = topic.partitions.iter().map(|one| (topic.name.clone(), one.partition, spec)).collect();
        admin.list_offsets(partitions, false)
    };
    let (starts, ends) = (ask(OffsetSpec::Earliest)?, ask(OffsetSpec::Latest)?);
    let find = |offsets: &[crate::client::admin::ListedOffset], partition| {
        offsets.iter().find(|one| one.partition == partition).and_then(|one| one.offset)
    };
    let offsets =
        topic.partitions.iter().map(|one| (find(&starts, one.partition), find(&ends, one.partition))).collect();
    let failed = starts.iter().chain(&ends).filter_map(|one| Some((one.partition, one.error.clone()?)));
    let unknown = failed.collect();
    let configs = admin.describe_configs(vec![ConfigResource::topic(topic.name.as_str())], None)?;
    let configs = configs.into_iter().flat_map(|resource| resource.configs).filter(|entry| {
        matches!(
            entry.source,
            ConfigSource::DynamicTopic | ConfigSource::DynamicDefaultBroker | ConfigSource::StaticBroker
        )
    });
    let configs = configs.map(|entry| (entry.name, entry.value.unwrap_or_default(), entry.source.name())).collect();
    Ok(Described { topic, offsets, unknown, configs })
}

impl Described<'_> {
    fn document(&self) -> serde_json::Value {
        let partitions = self.topic.partitions.iter().zip(&self.offsets).map(|(one, (start, end))| {
            json!({
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "in_sync": one.in_sync,
                "offline": one.offline,
                "log_start_offset": start,
                "high_watermark": end,
            })
        });
        let configs =
            self.configs.iter().map(|(name, value, source)| json!({"name": name, "value": value, "source": source}));
        json!({
            "name": self.topic.name,
            "id": self.topic.id,
            "internal": self.topic.internal,
            "partitions": partitions.collect::<Vec<_>>(),
            "configs": configs.collect::<Vec<_>>(),
        })
    }

    fn write(&self, wide: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let topic = self.topic;
        writeln!(out, "NAME        {}", topic.name)?;
        writeln!(out, "ID          {}", or_dash(topic.id.as_ref()))?;
        writeln!(out, "PARTITIONS  {}", topic.partitions.len())?;
        writeln!(out, "REPLICAS    {}", topic.partitions.first().map_or(0, |one| one.replicas.len()))?;
        if topic.internal {
            writeln!(out, "INTERNAL    yes")?;
        }
        let head: &[&str] = &[
            "#PARTITION",
            "LEADER",
            "EPOCH",
            "REPLICAS",
            "IN-SYNC",
            "#LOG-START",
            "#HIGH-WATERMARK",
            "#RECORDS",
            "OFFLINE",
        ];
        let mut table = Table::new(&head[..if wide { 9 } else { 7 }]);
        for (one, (start, end)) in topic.partitions.iter().zip(&self.offsets) {
            let mut cells = vec![
                one.partition.to_string(),
                or_dash(one.leader),
                or_dash(one.leader_epoch),
                joined(&one.replicas),
                joined(&one.in_sync),
                or_dash(*start),
                or_dash(*end),
            ];
            if wide {
                cells.extend([or_dash(start.zip(*end).map(|(start, end)| end - start)), joined(&one.offline)]);
            }
            table.row(cells);
        }
        write!(out, "\n{}", table.render())?;
        let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
        for (name, value, source) in &self.configs {
            table.row([name.clone(), value.clone(), (*source).to_owned()]);
        }
        if !table.is_empty() {
            write!(out, "\n{}", table.render())?;
        }
        Ok(())
    }
}

fn alter(
    admin: &BlockingAdmin,
    args: &AlterArgs,
    output: Output,
    connect: &ConnectArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let changes: Vec<ConfigChange> = args
        .config
        .iter()
        .map(|(key, value)| ConfigChange::set(key, plain(key, value)))
        .chain(args.unset.iter().map(ConfigChange::delete))
        .collect();
    let changes = args.names.iter().map(|name| (ConfigResource::topic(name), changes.clone())).collect();
    let outcomes = admin.alter_configs(changes, args.dry_run)?;
    let mut tally = Tally::default();
    for one in &outcomes {
        match &one.error {
            None => {
                tally.done();
                if output != Output::Json {
                    let done = if args.dry_run { "would change" } else { "changed" };
                    connect.say(format_args!("topic {}: {done}", one.resource.name));
                }
            }
            Some(error) => {
                tally.failed(&format!("topic {}", one.resource.name), with_hint(admin, &one.resource.name, error))
            }
        }
    }
    if output == Output::Json {
        write_json(out, &outcomes)?;
    }
    tally.end()
}

fn delete(
    admin: &BlockingAdmin,
    args: &DeleteArgs,
    output: Output,
    connect: &ConnectArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let names = chosen(admin, &args.names, args.regex)?;
    if args.dry_run {
        for name in &names {
            writeln!(out, "{name}")?;
        }
        connect.say("only looked: nothing was deleted");
        return Ok(());
    }
    confirm(args.yes, &format!("Delete {} with all records?", names.join(", ")))?;
    let mut outcomes = admin.delete_topics(names)?;
    if args.if_exists {
        for one in &mut outcomes {
            one.error = one.error.take().filter(|error| error.name != "UNKNOWN_TOPIC_OR_PARTITION");
        }
    }
    tell_destroyed(
        admin,
        &outcomes,
        |one| Destroyed {
            name: one.name.clone(),
            what: format!("topic {}", one.name),
            within: &one.name,
            error: one.error.as_ref(),
        },
        output,
        out,
    )
}

fn add_partitions(
    admin: &BlockingAdmin,
    args: &AddPartitionsArgs,
    output: Output,
    connect: &ConnectArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut tally = Tally::default();
    let mut wanted = Vec::new();
    for topic in admin.describe_topics(args.names.clone())? {
        if let Some(error) = &topic.error {
            tally.failed(&format!("topic {}", topic.name), with_hint(admin, &topic.name, error));
            continue;
        }
        let now = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let total = args.total.unwrap_or_else(|| now.saturating_add(args.more.unwrap_or(0)));
        wanted.push(NewPartitions { topic: topic.name, total, assignments: None });
    }
    let totals: Vec<(String, i32)> = wanted.iter().map(|one| (one.topic.clone(), one.total)).collect();
    let outcomes = if wanted.is_empty() { Vec::new() } else { admin.create_partitions(wanted, args.dry_run)? };
    for one in &outcomes {
        match &one.error {
            None => {
                tally.done();
                if output != Output::Json {
                    let total = totals.iter().find(|(name, _)| *name == one.name).map_or(0, |(_, total)| *total);
                    let verb = if args.dry_run { "would have" } else { "has" };
                    connect.say(format_args!("topic {} {verb} {total} partitions", one.name));
                }
            }
            Some(error) => tally.failed(&format!("topic {}", one.name), with_hint(admin, &one.name, error)),
        }
    }
    if output == Output::Json {
        write_json(out, &outcomes)?;
    }
    tally.end()
}

fn trim(admin: &BlockingAdmin, args: &TrimArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let topic = admin.describe_topics(vec![args.name.clone()])?.into_iter().next();
    let topic = topic.ok_or_else(|| anyhow!("topic {}: the broker says nothing of it", args.name))?;
    if let Some(error) = &topic.error {
        return Err(anyhow!("topic {}: {}", args.name, with_hint(admin, &args.name, error)).into());
    }
    let known: Vec<i32> = topic.partitions.iter().map(|one| one.partition).collect();
    if let Some(unknown) = args.partitions.iter().find(|partition| !known.contains(partition)) {
        return Err(anyhow!("topic {} has no partition {unknown}: it has {}", args.name, known.len()).into());
    }
    let partitions = if args.partitions.is_empty() { known } else { args.partitions.clone() };
    let before = places(admin, &args.name, &partitions, &args.before)?;
    if args.dry_run {
        let mut table = Table::new(&["#PARTITION", "BEFORE"]);
        for (_, partition, before) in &before {
            let place = match before {
                RecordsBefore::Offset(offset) => offset.to_string(),
                RecordsBefore::HighWatermark => "end".to_owned(),
            };
            table.row([partition.to_string(), place]);
        }
        out.write_all(table.render().as_bytes())?;
        return Ok(());
    }
    confirm(args.yes, &format!("Delete the records of {} before {}?", args.name, args.before))?;
    let deleted = admin.delete_records(before)?;
    let mut tally = Tally::default();
    let mut table = Table::new(&["#PARTITION", "#LOG-START"]);
    for one in &deleted {
        match &one.error {
            None => {
                tally.done();
                table.row([one.partition.to_string(), or_dash(one.low_watermark)]);
            }
            Some(error) => tally.failed(&format!("{}-{}", one.topic, one.partition), error),
        }
    }
    if output == Output::Json {
        write_json(out, &deleted)?;
    } else if !table.is_empty() {
        out.write_all(table.render().as_bytes())?;
    }
    tally.end()
}

/// Where each partition shall begin.
fn places(
    admin: &BlockingAdmin,
    topic: &str,
    partitions: &[i32],
    before: &str,
) -> Result<Vec<(String, i32, RecordsBefore)>, Failure> {
    let place = |before: RecordsBefore| partitions.iter().map(|one| (topic.to_owned(), *one, before)).collect();
    if before == "end" {
        return Ok(place(RecordsBefore::HighWatermark));
    }
    let Some(moment) = before.strip_prefix('@') else {
        let offset: i64 = before.parse().ok().filter(|offset| *offset >= 0).ok_or_else(|| {
            anyhow!("--before {before}: write an offset, end, or @MOMENT such as @-7d or @2026-01-01")
        })?;
        return Ok(place(RecordsBefore::Offset(offset)));
    };
    let moment = parse_moment(moment, unix_now_ms(), &TimeZone::system()).map_err(|why| anyhow!(why))?;
    let asked = partitions.iter().map(|one| (topic.to_owned(), *one, OffsetSpec::Timestamp(moment))).collect();
    let mut places = Vec::new();
    for one in admin.list_offsets(asked, false)? {
        // No record as late: all are older, so all go.
        let before = listed(&one)?.map_or(RecordsBefore::HighWatermark, RecordsBefore::Offset);
        places.push((one.topic, one.partition, before));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::outcome::tests::deaf_to_times;

    #[test]
    fn a_moment_that_could_not_be_looked_up_trims_nothing() {
        deaf_to_times(|admin| {
            let args = TrimArgs {
                name: "t".to_owned(),
                before: "@-1h".to_owned(),
                partitions: Vec::new(),
                dry_run: false,
                yes: true,
            };
            let mut out = Vec::new();
            let Err(Failure::Operation(error)) = trim(admin, &args, Output::Table, &mut out) else { panic!("trimmed") };
            assert!(error.to_string().starts_with("t-1: "), "{error}");
            assert!(out.is_empty());
        });
    }
}
