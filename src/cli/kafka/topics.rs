//! `kafka-topics`.
//!
//! Shell: asks the cluster. Owns the tool's flags, rules and text. Source: Kafka 4.4's TopicCommand, asked.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;

use super::exceptions::{message, refusal};
use super::options::{Flag, Manner, Words, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread};
use crate::cli::show::joined;
use crate::client::admin::{
    BlockingAdmin, ConfigEntry, ConfigResource, ConfigSource, ItemError, NewPartitions, NewTopic, PartitionDescription,
    Reassignment, ResourceConfigs, TopicDescription,
};
use crate::client::network::{Network, Target};
use crate::client::{AdminSettings, ClientError, Io};
use crate::protocol::ErrorCode;
use crate::protocol::operator::{Cursor, DescribeTopicPartitionsRequest, TopicRequest};
use crate::types::TopicId;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-topics",
    about: "Creates, deletes, describes or changes topics.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::Bare,
    run,
};

const FLAGS: &[Flag] = &[
    switch("alter", "Give topics more partitions."),
    switch(
        "at-min-isr-partitions",
        "With --describe: only partitions with just as many in-sync replicas as are wanted.",
    ),
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the client."),
    value("config", "name=value", "With --create: a setting of the topic; may be given again."),
    switch("create", "Create a topic."),
    switch("delete", "Delete topics."),
    value("delete-config", "name", "Without effect since Kafka 4.0."),
    switch("describe", "Show topics with their partitions."),
    switch("exclude-internal", "With --list and --describe: not the cluster's own topics."),
    switch("help", "Show this page."),
    switch("if-exists", "With --alter, --delete and --describe: a topic that is not there is no failure."),
    switch("if-not-exists", "With --create: a topic that is there is no failure."),
    switch("list", "List topics."),
    value(
        "partition-size-limit-per-response",
        "n",
        "With --describe: at most so many partitions in one answer of a broker.",
    ),
    value("partitions", "n", "How many partitions the topic has (--create) or shall have (--alter)."),
    value("replica-assignment", "1:2,2:3,…", "The brokers of each partition, the preferred leader first."),
    value("replication-factor", "n", "How many brokers hold each partition."),
    value("topic", "name", "The topic; with all but --create a regular expression."),
    value("topic-id", "id", "With --describe: the topic by its id."),
    switch("topics-with-overrides", "With --describe: only topics that have settings of their own."),
    switch("unavailable-partitions", "With --describe: only partitions without a leader that is there."),
    switch("under-min-isr-partitions", "With --describe: only partitions with fewer in-sync replicas than are wanted."),
    switch("under-replicated-partitions", "With --describe: only partitions with replicas that are behind."),
    switch("version", "Show whose output is spoken."),
];

const ACTIONS: &[&str] = &["create", "list", "alter", "describe", "delete"];
const REPORTS: &[&str] = &[
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
    "topics-with-overrides",
];

/// What the tool says in front of a failure.
fn failed(desk: &mut Desk<'_>, message: &str) -> Stop {
    match writeln!(desk.out, "Error while executing topic command : {message}") {
        Ok(()) => Stop::Exit(1),
        Err(error) => Stop::Io(error),
    }
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    check(words)?;
    let told = |desk: &mut Desk<'_>, why: String| failed(desk, &why);
    if words.has("delete-config") {
        eprintln!(
            "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully removed in \
             future releases."
        );
    }
    let bootstrap = words.value("bootstrap-server").map_err(|why| told(desk, why))?.unwrap_or_default();
    let access = Access::new(bootstrap, words.value("command-config").map_err(|why| told(desk, why))?);
    let io = client_thread()?;
    let admin = access.admin(&io).map_err(Stop::Said)?;
    let done = if words.has("create") {
        create(words, &admin, desk)
    } else if words.has("alter") {
        alter(words, &admin)
    } else if words.has("delete") {
        delete(words, &admin)
    } else if words.has("list") {
        list(words, &admin, desk)
    } else {
        describe(words, &admin, &access, &io, desk)
    };
    match done {
        Ok(()) => Ok(()),
        Err(Failed::Said(why)) => Err(failed(desk, &why)),
        Err(Failed::Stop(stop)) => Err(stop),
    }
}

/// Why an action ends.
enum Failed {
    Said(String),
    Stop(Stop),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Said(why)
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        match error.code() {
            Some(_) => Self::Said(message(&refusal(&error))),
            None => Self::Said(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Stop(Stop::Io(error))
    }
}

fn refuse(error: Option<&ItemError>) -> Result<(), Failed> {
    error.map_or(Ok(()), |error| Err(Failed::Said(message(error))))
}

fn check(words: &Words) -> Result<(), Stop> {
    if !words.has("bootstrap-server") {
        return Err(Stop::Said("--bootstrap-server must be specified".to_owned()));
    }
    let action = match ACTIONS.iter().filter(|name| words.has(name)).collect::<Vec<_>>()[..] {
        [action] => *action,
        _ => {
            let wanted = "Command must include exactly one action: --list, --describe, --create, --alter or --delete";
            return Err(Stop::Usage(wanted.to_owned()));
        }
    };
    let usage = Stop::Usage;
    match action {
        "alter" => {
            words.require(&["topic"]).map_err(usage)?;
            if words.has("config") {
                let what = "Option combination \"[[bootstrap-server], [config]]\" can't be used with option \"[alter]\" (To alter \
                            topic configurations, the kafka-configs tool can be used.)";
                return Err(Stop::Usage(what.to_owned()));
            }
            words.require(&["partitions"]).map_err(usage)?;
        }
        "create" | "delete" => words.require(&["topic"]).map_err(usage)?,
        _ => {}
    }
    let only = |used: &str, allowed: &[&str]| {
        let others: Vec<&str> = ACTIONS.iter().copied().filter(|name| !allowed.contains(name)).collect();
        words.refuse_beside(used, &others).map_err(usage)
    };
    only("config", &["create"])?;
    only("partitions", &["alter", "create"])?;
    only("replication-factor", &["create"])?;
    only("replica-assignment", &["alter", "create"])?;
    if words.has("create") {
        words.refuse_beside("replica-assignment", &["partitions", "replication-factor"]).map_err(usage)?;
    }
    for report in REPORTS {
        only(report, &["describe"])?;
        let others: Vec<&str> = REPORTS.iter().copied().filter(|other| other != report).collect();
        words.refuse_beside(report, &others).map_err(usage)?;
    }
    only("if-exists", &["alter", "delete", "describe"])?;
    only("if-not-exists", &["create"])?;
    only("exclude-internal", &["list", "describe"])?;
    only("topic-id", &["describe"])?;
    Ok(())
}

/// `1:2,2:3`: the brokers of partition 0, 1, …
fn replica_assignment(text: &str) -> Result<Vec<Vec<i32>>, String> {
    let mut partitions: Vec<Vec<i32>> = Vec::new();
    for part in text.split(',') {
        let broker =
            |word: &str| word.trim().parse::<i32>().map_err(|_| format!("For input string: \"{}\"", word.trim()));
        let brokers = part.split(':').map(broker).collect::<Result<Vec<_>, _>>()?;
        let mut twice: Vec<i32> =
            brokers.iter().copied().filter(|one| brokers.iter().filter(|other| *other == one).count() > 1).collect();
        twice.sort_unstable();
        twice.dedup();
        if !twice.is_empty() {
            return Err(format!("Partition replica lists may not contain duplicate entries: {}", joined(twice)));
        }
        if partitions.first().is_some_and(|first| first.len() != brokers.len()) {
            let index = partitions.len();
            return Err(format!("Partition {index} has different replication factor: {brokers:?}"));
        }
        partitions.push(brokers);
    }
    Ok(partitions)
}

fn create(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let name = words.value("topic")?.unwrap_or_default();
    let partitions: Option<i32> = words.number("partitions")?;
    let replicas: Option<i32> = words.number("replication-factor")?;
    let mut configs = Vec::new();
    for config in words.values("config") {
        // As Java splits: an empty value is none.
        let whole = config.trim_end_matches(|letter: char| letter == '=' || letter.is_whitespace());
        let parts: Vec<&str> = whole.split('=').map(str::trim).collect();
        let [key, value] = parts[..] else {
            let why =
                "requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".";
            return Err(why.to_owned().into());
        };
        configs.push((key.to_owned(), value.to_owned()));
    }
    if partitions.is_some_and(|count| count < 1) {
        return Err("The partitions must be greater than 0".to_owned().into());
    }
    let replicas = match replicas.map(i16::try_from) {
        Some(Ok(count)) if count >= 1 => Some(count),
        None => None,
        Some(_) => return Err("The replication factor must be between 1 and 32767 inclusive".to_owned().into()),
    };
    let assignments = match words.value("replica-assignment")? {
        None => BTreeMap::new(),
        Some(text) => (0..).zip(replica_assignment(text)?).collect(),
    };
    if name.contains(['.', '_']) {
        writeln!(
            desk.out,
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues \
             it is best to use either, but not both."
        )?;
    }
    let topic = NewTopic { name: name.to_owned(), partitions, replication_factor: replicas, assignments, configs };
    for created in admin.create_topics(vec![topic], false)? {
        match &created.error {
            None => writeln!(desk.out, "Created topic {name}.")?,
            Some(error) if words.has("if-not-exists") && error.code == ErrorCode::TOPIC_ALREADY_EXISTS.0 => {}
            Some(error) => return Err(message(error).into()),
        }
    }
    Ok(())
}

/// The topics `--topic` means, of all there are. Errors: it means none, and that is not allowed.
fn matching(words: &Words, admin: &BlockingAdmin, required: bool) -> Result<Vec<String>, Failed> {
    let mut topics = admin.list_topics(true)?;
    topics.retain(|topic| !(words.has("exclude-internal") && topic.internal));
    let names = topics.into_iter().map(|topic| topic.name);
    let Some(text) = words.value("topic")? else { return Ok(names.collect()) };
    let pattern = topic_pattern(text)?;
    let found: Vec<String> = names.filter(|name| pattern.is_match(name)).collect();
    if found.is_empty() && required && !words.has("if-exists") {
        return Err(format!("Topic '{text}' does not exist as expected").into());
    }
    Ok(found)
}

/// As Kafka's tools take regular expressions: the whole name, a comma is an alternative.
pub(super) fn topic_pattern(text: &str) -> Result<Regex, String> {
    let plain = text.trim().replace(',', "|").replace(' ', "").trim_matches(['"', '\'']).to_owned();
    Regex::new(&format!("^(?:{plain})$")).map_err(|_| format!("{text} is an invalid regex."))
}

fn list(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    writeln!(desk.out, "{}", matching(words, admin, false)?.join("\n"))?;
    Ok(())
}

fn delete(words: &Words, admin: &BlockingAdmin) -> Result<(), Failed> {
    let names = matching(words, admin, true)?;
    if names.is_empty() {
        return Ok(());
    }
    admin.delete_topics(names)?.iter().try_for_each(|one| refuse(one.error.as_ref()))
}

fn alter(words: &Words, admin: &BlockingAdmin) -> Result<(), Failed> {
    let names = matching(words, admin, true)?;
    if names.is_empty() {
        return Ok(());
    }
    let total: i32 = words.number("partitions")?.unwrap_or(0);
    let given = words.value("replica-assignment")?.map(replica_assignment).transpose()?;
    let mut wanted = Vec::new();
    for topic in admin.describe_topics(names)? {
        refuse(topic.error.as_ref())?;
        let assignments = given.as_ref().map(|all| all.iter().skip(topic.partitions.len()).cloned().collect());
        wanted.push(NewPartitions { topic: topic.name, total, assignments });
    }
    admin.create_partitions(wanted, false)?.iter().try_for_each(|one| refuse(one.error.as_ref()))
}

/// Eligible leaders, and the last ones known; `None` where the cluster does not keep them.
type Replicas = (Option<Vec<i32>>, Option<Vec<i32>>);

/// What a topic's description shows beside Metadata: replicas that may lead although they are not in sync (KIP-966).
#[derive(Default)]
struct Eligible {
    /// By partition.
    partitions: BTreeMap<i32, Replicas>,
}

fn describe(
    words: &Words,
    admin: &BlockingAdmin,
    access: &Access<'_>,
    io: &Io,
    desk: &mut Desk<'_>,
) -> Result<(), Failed> {
    let limit: Option<i32> = words.number("partition-size-limit-per-response")?;
    let topics = described(words, admin)?;
    if topics.is_empty() {
        return Ok(());
    }
    let surroundings = Surroundings::ask(words, admin, &topics)?;
    for topic in &topics {
        refuse(topic.error.as_ref())?;
        surroundings.write_topic(topic, desk)?;
        if surroundings.report == Some("topics-with-overrides") {
            continue;
        }
        let eligible = eligible(access, io, topic, limit).unwrap_or_default();
        surroundings.write_partitions(topic, &eligible, desk)?;
    }
    Ok(())
}

/// The topics `--topic-id` or `--topic` means. Errors: it means none, and that is not allowed.
fn described(words: &Words, admin: &BlockingAdmin) -> Result<Vec<TopicDescription>, Failed> {
    let Some(id) = words.value("topic-id")? else {
        let names = matching(words, admin, true)?;
        return if names.is_empty() { Ok(Vec::new()) } else { Ok(admin.describe_topics(names)?) };
    };
    if TopicId::parse(id).is_none() {
        return Err(not_an_id(id).into());
    }
    let mut topics = admin.describe_topics(Vec::new())?;
    topics.retain(|topic| topic.id.as_deref() == Some(id));
    if topics.is_empty() && !words.has("if-exists") {
        return Err(format!("TopicId '{id}' does not exist as expected").into());
    }
    Ok(topics)
}

/// What is wanted of the topics, and what the cluster says beside their descriptions.
struct Surroundings {
    /// The one report that is wanted, instead of everything.
    report: Option<&'static str>,
    configs: Vec<ResourceConfigs>,
    /// The brokers that are there; asked for only where the report needs them.
    live: Vec<i32>,
    moves: Vec<Reassignment>,
}

impl Surroundings {
    fn ask(words: &Words, admin: &BlockingAdmin, topics: &[TopicDescription]) -> Result<Self, Failed> {
        let resources = topics.iter().map(|topic| ConfigResource::topic(topic.name.as_str())).collect();
        let configs = admin.describe_configs(resources, None)?;
        let live: Vec<i32> = match words.has("unavailable-partitions") {
            true => admin.describe_cluster()?.brokers.into_iter().map(|broker| broker.id).collect(),
            false => Vec::new(),
        };
        // Brokers that do not know the request show no moves.
        let moves = admin.list_reassignments(None).unwrap_or_default();
        Ok(Self { report: REPORTS.iter().copied().find(|name| words.has(name)), configs, live, moves })
    }

    fn configs_of<'s>(&'s self, topic: &'s TopicDescription) -> impl Iterator<Item = &'s ConfigEntry> {
        let own = self.configs.iter().filter(move |resource| resource.resource.name == topic.name);
        own.flat_map(|resource| &resource.configs)
    }

    /// The line of the topic itself, unless the report is about partitions or leaves it out.
    fn write_topic(&self, topic: &TopicDescription, desk: &mut Desk<'_>) -> Result<(), Failed> {
        let overrides: Vec<String> = self
            .configs_of(topic)
            .filter(|entry| entry.source != ConfigSource::Default)
            .map(|entry| format!("{}={}", entry.name, entry.value.as_deref().unwrap_or("null")))
            .collect();
        if self.report.is_none() || (self.report == Some("topics-with-overrides") && !overrides.is_empty()) {
            writeln!(
                desk.out,
                "Topic: {}\tTopicId: {}\tPartitionCount: {}\tReplicationFactor: {}\tConfigs: {}",
                topic.name,
                topic.id.as_deref().unwrap_or_default(),
                topic.partitions.len(),
                topic.partitions.first().map_or(0, |one| one.replicas.len()),
                overrides.join(","),
            )?;
        }
        Ok(())
    }

    fn write_partitions(
        &self,
        topic: &TopicDescription,
        eligible: &Eligible,
        desk: &mut Desk<'_>,
    ) -> Result<(), Failed> {
        let min_in_sync: Option<usize> = self
            .configs_of(topic)
            .find(|entry| entry.name == "min.insync.replicas")
            .and_then(|entry| entry.value.as_deref()?.parse().ok());
        for one in &topic.partitions {
            let moving =
                self.moves.iter().find(|moving| moving.topic == topic.name && moving.partition == one.partition);
            if !self.shows(one, moving, min_in_sync) {
                continue;
            }
            write!(
                desk.out,
                "\tTopic: {}\tPartition: {}\tLeader: {}\tReplicas: {}\tIsr: {}",
                topic.name,
                one.partition,
                one.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string()),
                joined(&one.replicas),
                joined(&one.in_sync),
            )?;
            if let Some(moving) = moving {
                write!(
                    desk.out,
                    "\tAdding Replicas: {}\tRemoving Replicas: {}",
                    joined(&moving.adding),
                    joined(&moving.removing)
                )?;
            }
            let (elr, last) = eligible.partitions.get(&one.partition).cloned().unwrap_or_default();
            let list = |ids: Option<Vec<i32>>| ids.map_or_else(|| "N/A".to_owned(), joined);
            writeln!(desk.out, "\tElr: {}\tLastKnownElr: {}", list(elr), list(last))?;
        }
        Ok(())
    }

    /// Whether the report is about that partition.
    fn shows(&self, one: &PartitionDescription, moving: Option<&Reassignment>, min_in_sync: Option<usize>) -> bool {
        let target = one.replicas.len() - moving.map_or(0, |moving| moving.adding.len()).min(one.replicas.len());
        match self.report {
            Some("under-replicated-partitions") => one.in_sync.len() < target,
            Some("unavailable-partitions") => one.leader.is_none_or(|leader| !self.live.contains(&leader)),
            Some("at-min-isr-partitions") => Some(one.in_sync.len()) == min_in_sync,
            Some("under-min-isr-partitions") => min_in_sync.is_some_and(|wanted| one.in_sync.len() < wanted),
            _ => true,
        }
    }
}

fn not_an_id(id: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let bytes = URL_SAFE_NO_PAD.decode(id).map_or_else(|_| id.len() * 6 / 8, |bytes| bytes.len());
    // Letters, not bytes: what is no id may be written in any of them.
    match id.char_indices().nth(24) {
        Some((end, _)) => {
            format!("Input string with prefix `{}` is too long to be decoded as a base64 UUID", &id[..end])
        }
        None => format!(
            "Input string `{id}` decoded as {bytes} bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID"
        ),
    }
}

/// Asks page by page. `None` where the broker does not know the request.
fn eligible(access: &Access<'_>, io: &Io, topic: &TopicDescription, limit: Option<i32>) -> Option<Eligible> {
    let settings: AdminSettings = access.settings(&[]).ok()?;
    let (name, limit) = (topic.name.clone(), limit.unwrap_or(2000));
    io.block_on(move || async move {
        let network = Network::new(settings.client);
        let mut told = Eligible::default();
        let mut from = Some(0);
        while let Some(first) = from.take() {
            let request = DescribeTopicPartitionsRequest {
                topics: vec![TopicRequest { name: name.as_str().into() }],
                response_partition_limit: limit,
                cursor: (first > 0).then(|| Cursor { topic_name: name.as_str().into(), partition_index: first }),
            };
            let reply = network.call(Target::Any, &request, Duration::from_secs(30)).await.ok()?;
            let answer = reply.read::<DescribeTopicPartitionsRequest<'_>>().ok()?;
            for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                let replicas = (one.eligible_leader_replicas.clone(), one.last_known_elr.clone());
                told.partitions.insert(one.partition_index, replicas);
            }
            // A page that does not move on would be asked for for ever.
            from = answer.next_cursor.as_ref().map(|cursor| cursor.partition_index).filter(|next| *next > first);
        }
        Some(told)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::tests;

    fn checked(line: &str) -> Result<(), String> {
        tests::checked(&TOOL, line, |words, _| check(words))
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        for (line, wanted) in [
            ("--list", "--bootstrap-server must be specified"),
            (
                "--bootstrap-server h:1 --create --list",
                "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
            ),
            ("--bootstrap-server h:1 --create", "Missing required argument \"[topic]\""),
            ("--bootstrap-server h:1 --alter --topic t", "Missing required argument \"[partitions]\""),
            (
                "--bootstrap-server h:1 --list --partitions 3",
                "Option \"[partitions]\" can't be used with option \"[list]\"",
            ),
            (
                "--bootstrap-server h:1 --describe --topic t --if-not-exists",
                "Option \"[if-not-exists]\" can't be used with option \"[describe]\"",
            ),
            (
                "--bootstrap-server h:1 --create --topic t --replica-assignment 1 --partitions 2",
                "Option \"[replica-assignment]\" can't be used with option \"[partitions]\"",
            ),
            (
                "--bootstrap-server h:1 --create --topic t --under-replicated-partitions",
                "Option \"[under-replicated-partitions]\" can't be used with option \"[create]\"",
            ),
        ] {
            assert_eq!(checked(line).unwrap_err(), wanted, "{line}");
        }
        assert_eq!(checked("--bootstrap-server h:1 --describe --topic t"), Ok(()));
    }

    #[test]
    fn assignments_are_read_and_checked() {
        assert_eq!(replica_assignment("1:2,2:3"), Ok(vec![vec![1, 2], vec![2, 3]]));
        assert_eq!(
            replica_assignment("1:1,1").unwrap_err(),
            "Partition replica lists may not contain duplicate entries: 1"
        );
        assert!(replica_assignment("2:1:2:1").unwrap_err().ends_with("duplicate entries: 1,2"));
        assert_eq!(replica_assignment("1,2:3").unwrap_err(), "Partition 1 has different replication factor: [2, 3]");
    }

    #[test]
    fn ids_that_are_none_are_measured() {
        assert_eq!(
            not_an_id("abc"),
            "Input string `abc` decoded as 2 bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID"
        );
        assert_eq!(
            not_an_id(&"é".repeat(25)),
            format!("Input string with prefix `{}` is too long to be decoded as a base64 UUID", "é".repeat(24))
        );
    }

    #[test]
    fn names_match_whole() {
        let pattern = topic_pattern("a.*,b").unwrap();
        assert!(pattern.is_match("abc") && pattern.is_match("b") && !pattern.is_match("ba"));
        assert!(topic_pattern("a(").is_err());
    }
}
