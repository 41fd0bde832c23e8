//! `kafka-configs`.
//!
//! Shell: asks the cluster. Owns the tool's flags, rules and text for topics, brokers, their loggers, groups and client metrics. Quotas
//! and SCRAM credentials (users, clients, ips) are not spoken: the tool says so. Source: Kafka 4.4's ConfigCommand, asked.

use super::exceptions::{spelled, spelled_call};
use super::options::{Flag, Manner, Words, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, unread};
use crate::client::ClientError;
use crate::client::admin::{
    BlockingAdmin, ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceConfigs, ResourceType,
};
use crate::config::client_rows::client_properties;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-configs",
    about: "Shows and changes settings of topics, brokers, groups and client metrics.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::Bare,
    run,
};

const FLAGS: &[Flag] = &[
    value("add-config", "k=v,k=[a,b],…", "Settings to set; brackets hold values with commas."),
    value("add-config-file", "file", "A properties file with settings to set."),
    switch("all", "With --describe: settings at their defaults too."),
    switch("alter", "Change settings."),
    value("bootstrap-controller", "host:port,…", "Controllers to connect to: not spoken here."),
    value("bootstrap-server", "host:port,…", "Brokers to connect to."),
    value("broker", "id", "A broker."),
    switch("broker-defaults", "All brokers that have no setting of their own."),
    value("broker-logger", "id", "The log levels of a broker."),
    value("client", "id", "The quotas of a client: not spoken here."),
    switch("client-defaults", "The quotas of all clients: not spoken here."),
    value("client-metrics", "name", "A subscription to metrics of clients."),
    value("command-config", "file", "A properties file with settings of the client."),
    value("delete-config", "k,k,…", "Settings to take back to their defaults."),
    switch("describe", "Show settings."),
    switch("entity-default", "What holds for all that have no setting of their own."),
    value("entity-name", "name", "Whose settings, after --entity-type."),
    value("entity-type", "type", "topics, brokers, broker-loggers, groups or client-metrics."),
    value("group", "id", "A group."),
    switch("help", "Show this page."),
    value("ip", "address", "The quota of an address: not spoken here."),
    switch("ip-defaults", "The quota of all addresses: not spoken here."),
    value("topic", "name", "A topic."),
    value("user", "name", "The quotas and credentials of a user: not spoken here."),
    switch("user-defaults", "The quotas of all users: not spoken here."),
    switch("version", "Show whose output is spoken."),
];

/// Option, entity type.
const SHORTCUTS: &[(&str, &str)] = &[
    ("topic", "topics"),
    ("client", "clients"),
    ("user", "users"),
    ("broker", "brokers"),
    ("broker-logger", "broker-loggers"),
    ("ip", "ips"),
    ("client-metrics", "client-metrics"),
    ("group", "groups"),
];
const DEFAULTS: &[(&str, &str)] = &[
    ("client-defaults", "clients"),
    ("user-defaults", "users"),
    ("broker-defaults", "brokers"),
    ("ip-defaults", "ips"),
];
/// In the order the tool names them.
const TYPES: &[&str] = &["broker-loggers", "topics", "clients", "users", "brokers", "ips", "client-metrics", "groups"];

/// Whose settings.
#[derive(Debug, PartialEq, Eq)]
struct Entity {
    kind: &'static str,
    /// `Some("")`: what holds for all; `None`: each of them.
    name: Option<String>,
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let entity = check(words)?;
    let said = |why: String| Stop::Said(why);
    let bootstrap = words.value("bootstrap-server").map_err(said)?.unwrap_or_default();
    let executing = format!("Error while executing config command with args '{}'", desk.args.join(" "));
    let failed = |why: String| Stop::Said(format!("{executing}\n{why}"));
    if ["users", "clients", "ips"].contains(&entity.kind) {
        return Err(failed(format!(
            "org.apache.kafka.common.errors.UnsupportedVersionException: quotas and credentials of {} are not spoken by this client; \
             Kafka's own kafka-configs can be used with this broker",
            entity.kind
        )));
    }
    let access = Access::new(bootstrap, words.value("command-config").map_err(said)?);
    let changes = if words.has("alter") { changes(words, &executing)? } else { Vec::new() };
    let io = client_thread()?;
    let admin = access.admin(&io).map_err(failed)?;
    if words.has("alter") {
        return alter(&admin, &entity, changes, &executing, desk);
    }
    describe(&admin, &entity, words.has("all"), desk).map_err(|stop| match stop {
        Stop::Said(why) => Stop::Said(format!("{executing}\n{why}")),
        other => other,
    })
}

fn check(words: &Words) -> Result<Entity, Stop> {
    if words.has("alter") == words.has("describe") {
        return Err(Stop::Usage("Command must include exactly one action: --describe, --alter".to_owned()));
    }
    let said = |why: &str| Err(Stop::Said(why.to_owned()));
    let mut entities = Vec::new();
    let names: Vec<&str> = words.values("entity-name").collect();
    for (index, kind) in words.values("entity-type").enumerate() {
        let Some(kind) = TYPES.iter().copied().find(|known| *known == kind) else {
            return Err(Stop::Said(format!(
                "Invalid entity type {kind}, the entity type must be one of {} with a --bootstrap-server or --bootstrap-controller \
                 argument",
                TYPES.join(", ")
            )));
        };
        let name = match words.has("entity-default") {
            true => Some(String::new()),
            false => names.get(index).map(|name| (*name).to_owned()),
        };
        entities.push(Entity { kind, name });
    }
    for (option, kind) in SHORTCUTS {
        entities.extend(words.values(option).map(|name| Entity { kind, name: Some(name.to_owned()) }));
    }
    entities.extend(
        DEFAULTS
            .iter()
            .filter(|(option, _)| words.has(option))
            .map(|(_, kind)| Entity { kind, name: Some(String::new()) }),
    );
    if entities.is_empty() {
        return said("At least one entity type must be specified");
    }
    let mut twice = entities.iter().filter(|one| entities.iter().filter(|other| other.kind == one.kind).count() > 1);
    if let Some(twice) = twice.next() {
        return Err(Stop::Said(format!("Duplicate entity type(s) specified: {}", twice.kind)));
    }
    let entity = entities.swap_remove(0);
    if !words.has("bootstrap-server") {
        return match words.has("bootstrap-controller") {
            true => said("--bootstrap-controller is not spoken here: give --bootstrap-server"),
            false => said("Either --bootstrap-server or --bootstrap-controller must be specified."),
        };
    }
    if let (Some(name), "brokers" | "broker-loggers") = (&entity.name, entity.kind)
        && !name.is_empty()
        && name.parse::<i32>().is_err()
    {
        return Err(Stop::Said(format!(
            "The entity name for {} must be a valid integer broker id, but it is: {name}",
            entity.kind
        )));
    }
    if words.has("alter") {
        if entity.name.is_none() {
            return Err(Stop::Said(format!("An entity name must be specified with --alter of {}", entity.kind)));
        }
        if !["add-config", "add-config-file", "delete-config"].iter().any(|name| words.has(name)) {
            return said(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
            );
        }
    }
    Ok(entity)
}

/// `k=v,k=[a,b]`
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let wrong = || {
        "Invalid entity config: all configs to be added must be in the format \"key=val\" or  \"key=[val1,val2]\" to group values which \
         contain commas."
            .to_owned()
    };
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        match (letter, depth) {
            (',', depth) if depth <= 0 => parts.push(String::new()),
            (letter, _) => parts.last_mut().expect("there is always a part").push(letter),
        }
    }
    let mut pairs = Vec::new();
    for part in parts.iter().filter(|part| !part.trim().is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        pairs.push((key.trim().to_owned(), value.trim().replace(['[', ']'], "")));
    }
    Ok(pairs)
}

fn changes(words: &Words, executing: &str) -> Result<Vec<ConfigChange>, Stop> {
    let mut changes = Vec::new();
    if let Some(file) = words.value("add-config-file").map_err(Stop::Said)? {
        let text = std::fs::read(file).map_err(|error| {
            let why = unread(file, &error);
            Stop::Said(format!("{executing}\n{}", why.lines().last().unwrap_or_default()))
        })?;
        let entries = client_properties(&text)
            .map_err(|(line, why)| Stop::Said(format!("{executing}\n{file}:{}: {why}", line.unwrap_or(1))))?;
        changes.extend(entries.into_iter().map(|entry| ConfigChange::set(entry.key, entry.value)));
    }
    if let Some(text) = words.value("add-config").map_err(Stop::Said)? {
        changes.extend(pairs(text).map_err(Stop::Said)?.into_iter().map(|(key, value)| ConfigChange::set(key, value)));
    }
    let illegal = |key: &str| !key.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter));
    if let Some(change) = changes.iter().find(|change| illegal(&change.name)) {
        return Err(Stop::Said(format!("Invalid character found for config key: {}", change.name)));
    }
    for text in words.values("delete-config") {
        changes.extend(text.split(',').map(str::trim).filter(|key| !key.is_empty()).map(ConfigChange::delete));
    }
    Ok(changes)
}

fn resource(kind: &str, name: &str) -> ConfigResource {
    let kind = match kind {
        "topics" => ResourceType::Topic,
        "brokers" => ResourceType::Broker,
        "broker-loggers" => ResourceType::BrokerLogger,
        "client-metrics" => ResourceType::ClientMetrics,
        _ => ResourceType::Group,
    };
    ConfigResource { kind, name: name.to_owned() }
}

/// `topics` as one: `topic`.
fn singular(kind: &str) -> &str {
    kind.strip_suffix('s').unwrap_or(kind)
}

fn alter(
    admin: &BlockingAdmin,
    entity: &Entity,
    changes: Vec<ConfigChange>,
    executing: &str,
    desk: &mut Desk<'_>,
) -> Result<(), Stop> {
    let name = entity.name.as_deref().unwrap_or_default();
    let executed = |why: String| Stop::Said(format!("{executing}\njava.util.concurrent.ExecutionException: {why}"));
    let outcomes = admin
        .alter_configs(vec![(resource(entity.kind, name), changes)], false)
        .map_err(|error| executed(spelled_call(&error)))?;
    if let Some(error) = outcomes.iter().find_map(|one| one.error.as_ref()) {
        return Err(executed(spelled(error)));
    }
    match name {
        "" => writeln!(desk.out, "Completed updating default config for {} in the cluster.", entity.kind)?,
        name => writeln!(desk.out, "Completed updating config for {} {name}.", singular(entity.kind))?,
    }
    Ok(())
}

fn describe(admin: &BlockingAdmin, entity: &Entity, all: bool, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let told = |error: ClientError| Stop::Said(spelled_call(&error));
    let kind = entity.kind;
    let known: Vec<String> = match kind {
        "topics" => admin.list_topics(true).map_err(told)?.into_iter().map(|topic| topic.name).collect(),
        "brokers" | "broker-loggers" => {
            admin.describe_cluster().map_err(told)?.brokers.iter().map(|broker| broker.id.to_string()).collect()
        }
        "groups" => {
            let listed = admin.list_groups(Vec::new(), Vec::new()).map_err(told)?;
            let mut names: Vec<String> = listed.into_iter().map(|group| group.group).collect();
            // Older brokers do not list what has settings.
            let set = admin.list_config_resources(vec![ResourceType::Group]).unwrap_or_default();
            names.extend(set.into_iter().map(|resource| resource.name));
            names.sort();
            names.dedup();
            names
        }
        _ => {
            let set = admin.list_config_resources(vec![ResourceType::ClientMetrics]).unwrap_or_default();
            set.into_iter().map(|resource| resource.name).collect()
        }
    };
    let names: Vec<String> = match &entity.name {
        Some(name) if !name.is_empty() && !known.contains(name) => {
            writeln!(desk.out, "The {} '{name}' doesn't exist and doesn't have dynamic config.", singular(kind))?;
            return Ok(());
        }
        Some(name) => vec![name.clone()],
        None if kind == "brokers" => known.into_iter().chain([String::new()]).collect(),
        None => known,
    };
    if names.is_empty() {
        return Ok(());
    }
    let resources = names.iter().map(|name| resource(kind, name)).collect();
    let described = admin.describe_configs(resources, None).map_err(told)?;
    for name in &names {
        let Some(found) = described.iter().find(|one| one.resource.name == *name) else { continue };
        if let Some(error) = &found.error {
            return Err(Stop::Said(format!("java.util.concurrent.ExecutionException: {}", spelled(error))));
        }
        write!(desk.out, "{}", shown(kind, name, all, found))?;
    }
    Ok(())
}

fn shown(kind: &str, name: &str, all: bool, found: &ResourceConfigs) -> String {
    let mut text = match (name, all) {
        ("", _) => format!("Default configs for {kind} in the cluster are:\n"),
        (name, true) => format!("All configs for {} {name} are:\n", singular(kind)),
        (name, false) => format!("Dynamic configs for {} {name} are:\n", singular(kind)),
    };
    let own = match (found.resource.kind, name) {
        (ResourceType::Topic, _) => ConfigSource::DynamicTopic,
        (ResourceType::Broker, "") => ConfigSource::DynamicDefaultBroker,
        (ResourceType::Broker, _) => ConfigSource::DynamicBroker,
        (ResourceType::BrokerLogger, _) => ConfigSource::DynamicBrokerLogger,
        (ResourceType::ClientMetrics, _) => ConfigSource::DynamicClientMetrics,
        (ResourceType::Group, _) => ConfigSource::DynamicGroup,
    };
    let mut entries: Vec<&ConfigEntry> =
        found.configs.iter().filter(|entry| (all && !name.is_empty()) || entry.source == own).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let null = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    for entry in entries {
        let synonyms: Vec<String> = entry
            .synonyms
            .iter()
            .map(|one| format!("{}:{}={}", one.source.name(), one.name, null(&one.value)))
            .collect();
        text.push_str(&format!(
            "  {}={} sensitive={} synonyms={{{}}}\n",
            entry.name,
            null(&entry.value),
            entry.sensitive,
            synonyms.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::tests;
    use crate::client::admin::ConfigSynonym;

    fn checked(line: &str) -> Result<Entity, String> {
        tests::checked(&TOOL, line, |words, _| check(words))
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        for (line, wanted) in [
            ("--bootstrap-server h:1", "Command must include exactly one action: --describe, --alter"),
            ("--bootstrap-server h:1 --describe", "At least one entity type must be specified"),
            (
                "--bootstrap-server h:1 --describe --topic t --entity-type topics",
                "Duplicate entity type(s) specified: topics",
            ),
            ("--describe --topic t", "Either --bootstrap-server or --bootstrap-controller must be specified."),
            (
                "--bootstrap-server h:1 --describe --broker abc",
                "The entity name for brokers must be a valid integer broker id, but it is: abc",
            ),
            (
                "--bootstrap-server h:1 --alter --topic t",
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
            ),
            (
                "--bootstrap-server h:1 --alter --entity-type topics --add-config a=b",
                "An entity name must be specified with --alter of topics",
            ),
            (
                "--bootstrap-server h:1 --describe --entity-type foo --entity-name x",
                "Invalid entity type foo, the entity type must be one of broker-loggers, topics, clients, users, brokers, ips, \
                 client-metrics, groups with a --bootstrap-server or --bootstrap-controller argument",
            ),
        ] {
            assert_eq!(checked(line).unwrap_err(), wanted, "{line}");
        }
        let entity = checked("--bootstrap-server h:1 --describe --entity-type brokers --entity-default").unwrap();
        assert_eq!(entity, Entity { kind: "brokers", name: Some(String::new()) });
    }

    #[test]
    fn brackets_hold_values_with_commas() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs("a=1,b=[x,y],c="), Ok(vec![pair("a", "1"), pair("b", "x,y"), pair("c", "")]));
        assert!(pairs("a").unwrap_err().starts_with("Invalid entity config: all configs"));
    }

    #[test]
    fn entries_are_shown_with_their_synonyms() {
        let synonym = |name: &str, value: &str, source| ConfigSynonym {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            source,
        };
        let entry = ConfigEntry {
            name: "max.message.bytes".to_owned(),
            value: Some("2000000".to_owned()),
            read_only: false,
            sensitive: false,
            source: ConfigSource::DynamicTopic,
            kind: None,
            synonyms: vec![
                synonym("max.message.bytes", "2000000", ConfigSource::DynamicTopic),
                synonym("message.max.bytes", "1048588", ConfigSource::Default),
            ],
            documentation: None,
        };
        let found = ResourceConfigs { resource: ConfigResource::topic("t"), configs: vec![entry], error: None };
        assert_eq!(
            shown("topics", "t", false, &found),
            "Dynamic configs for topic t are:\n  max.message.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:\
             max.message.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588}\n"
        );
    }
}
