//! `kafka-get-offsets`.
//!
//! Shell: asks the cluster. Owns the tool's flags, rules and text, and the patterns of `--topic-partitions`. Source: Kafka 4.4's
//! GetOffsetShell, asked.

use regex::Regex;

use super::exceptions::{message, spelled_call};
use super::options::{Flag, Manner, Words, switch, value};
use super::topics::topic_pattern;
use super::{Access, Desk, Stop, Tool, Wrong, client_thread};
use crate::cli::connect::check_brokers;
use crate::client::admin::OffsetSpec;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-get-offsets",
    about: "Shows the offsets of partitions.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::After("Error occurred: "),
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the client."),
    switch("exclude-internal-topics", "Not the cluster's own topics."),
    switch("help", "Show this page."),
    value("partitions", "0,1,…", "Only these partitions of --topic."),
    value(
        "time",
        "when",
        "-1 or latest (the default), -2 or earliest, -3 or max-timestamp, -4 or earliest-local, -5 or \
                           latest-tiered, -6 or earliest-pending-upload, or milliseconds since 1970: the first offset at or after that.",
    ),
    value("topic", "pattern", "Only topics whose whole name matches this regular expression."),
    value(
        "topic-partitions",
        "t1:1,t2:0-3,…",
        "Partitions by pattern: a name or regular expression, then one partition, a range \
                                                without its end, N- or -N.",
    ),
    switch("version", "Show whose output is spoken."),
];

/// One pattern of `--topic-partitions`.
#[derive(Debug)]
struct Rule {
    topic: Option<Regex>,
    /// From, to (exclusive).
    partitions: (i32, i32),
}

impl Rule {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("org.apache.kafka.tools.TerseException: Invalid rule specification: {text}");
        let (topic, partitions) = match text.split_once(':') {
            Some((topic, partitions)) => (topic, Some(partitions)),
            None => (text, None),
        };
        let number = |word: &str| word.parse::<i32>().ok().filter(|number| *number >= 0).ok_or_else(wrong);
        let partitions = match partitions {
            None | Some("") => (0, i32::MAX),
            Some(one) => match one.split_once('-') {
                None => {
                    let one = number(one)?;
                    (one, one.saturating_add(1))
                }
                Some((from, to)) => (
                    if from.is_empty() { 0 } else { number(from)? },
                    if to.is_empty() { i32::MAX } else { number(to)? },
                ),
            },
        };
        let topic = if topic.is_empty() { None } else { Some(topic_pattern(topic)?) };
        Ok(Self { topic, partitions })
    }

    fn matches(&self, topic: &str, partition: i32) -> bool {
        self.topic.as_ref().is_none_or(|pattern| pattern.is_match(topic))
            && (self.partitions.0..self.partitions.1).contains(&partition)
    }
}

/// `None`: nothing is tiered here, so no offset is.
fn time(text: &str) -> Result<Option<OffsetSpec>, String> {
    Ok(Some(match text {
        "-1" | "latest" => OffsetSpec::Latest,
        "-2" | "earliest" => OffsetSpec::Earliest,
        "-3" | "max-timestamp" => OffsetSpec::MaxTimestamp,
        "-4" | "earliest-local" => OffsetSpec::EarliestLocal,
        "-5" | "latest-tiered" => OffsetSpec::LatestTiered,
        "-6" | "earliest-pending-upload" => return Ok(None),
        other => OffsetSpec::Timestamp(other.parse().map_err(|_| {
            format!(
                "Malformed time argument {other}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or \
                 earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
            )
        })?),
    }))
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let occurred = |why: String| Stop::Said(format!("Error occurred: {why}"));
    words.require(&["bootstrap-server"]).map_err(Stop::Usage)?;
    let bootstrap = words.value("bootstrap-server").map_err(occurred)?.unwrap_or_default();
    if check_brokers(bootstrap).is_err() {
        return Err(Stop::Usage("Please provide valid host:port like host1:9091,host2:9092\n ".to_owned()));
    }
    if words.has("topic-partitions") && (words.has("topic") || words.has("partitions")) {
        return Err(occurred("--topic-partitions cannot be used with --topic or --partitions".to_owned()));
    }
    let spec = time(words.value("time").map_err(occurred)?.unwrap_or("latest")).map_err(occurred)?;
    let only: Option<Vec<i32>> = match words.value("partitions").map_err(occurred)? {
        None => None,
        Some(text) => {
            let numbers = text.trim_end_matches(',').split(',').map(str::parse).collect::<Result<_, _>>();
            Some(numbers.map_err(|_| {
                occurred(format!(
                    "--partitions expects a comma separated list of numeric partition ids, but received: {text}"
                ))
            })?)
        }
    };
    let rules = match words.value("topic-partitions").map_err(occurred)? {
        // A comma at the end begins no rule: an empty one would be every partition.
        Some(text) => {
            let rules = text.trim_end_matches(',').split(',').map(Rule::parse).collect::<Result<Vec<_>, _>>();
            rules.map_err(occurred)?
        }
        None => Vec::new(),
    };
    let pattern = words.value("topic").map_err(occurred)?.map(topic_pattern).transpose().map_err(occurred)?;
    let io = client_thread()?;
    let access = Access::new(bootstrap, words.value("command-config").map_err(occurred)?);
    let admin = access.admin(&io).map_err(occurred)?;
    let told = |error| occurred(spelled_call(&error));
    let topics = admin.describe_topics(Vec::new()).map_err(told)?;
    let mut wanted = Vec::new();
    for topic in topics.iter().filter(|topic| !(topic.internal && words.has("exclude-internal-topics"))) {
        for one in &topic.partitions {
            let fits = match rules.is_empty() {
                true => {
                    pattern.as_ref().is_none_or(|pattern| pattern.is_match(&topic.name))
                        && only.as_ref().is_none_or(|only| only.contains(&one.partition))
                }
                false => rules.iter().any(|rule| rule.matches(&topic.name, one.partition)),
            };
            if fits {
                wanted.push((topic.name.clone(), one.partition));
            }
        }
    }
    if wanted.is_empty() {
        return Err(occurred("Could not match any topic-partitions with the specified filters".to_owned()));
    }
    let Some(spec) = spec else { return Ok(()) };
    let asked = wanted.into_iter().map(|(topic, partition)| (topic, partition, spec)).collect();
    let mut offsets = admin.list_offsets(asked, false).map_err(told)?;
    // Kafka's order, that of the names: t-10 stands before t-2.
    offsets.sort_by_cached_key(|one| format!("{}-{}", one.topic, one.partition));
    for one in offsets {
        match (&one.error, one.offset) {
            (Some(error), _) => eprintln!(
                "Skip getting offsets for topic-partition {}-{} due to error: {}",
                one.topic,
                one.partition,
                message(error)
            ),
            (None, Some(offset)) => writeln!(desk.out, "{}:{}:{offset}", one.topic, one.partition)?,
            (None, None) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_choose_partitions() {
        let matches = |rule: &str, topic: &str| {
            let rule = Rule::parse(rule).unwrap();
            (0..6).filter(|partition| rule.matches(topic, *partition)).collect::<Vec<_>>()
        };
        assert_eq!(matches("t1:0-2", "t1"), [0, 1]);
        assert_eq!(matches("t1:4-", "t1"), [4, 5]);
        assert_eq!(matches("t1:-1", "t1"), [0]);
        assert_eq!(matches(":3", "anything"), [3]);
        assert_eq!(matches("t.*", "t9"), [0, 1, 2, 3, 4, 5]);
        assert!(matches("t1", "t11").is_empty());
        assert_eq!(
            Rule::parse("t1:a").unwrap_err(),
            "org.apache.kafka.tools.TerseException: Invalid rule specification: t1:a"
        );
    }

    #[test]
    fn times_have_names_and_numbers() {
        assert_eq!(time("-2"), Ok(Some(OffsetSpec::Earliest)));
        assert_eq!(time("max-timestamp"), Ok(Some(OffsetSpec::MaxTimestamp)));
        assert_eq!(time("12345"), Ok(Some(OffsetSpec::Timestamp(12345))));
        assert!(time("foo").unwrap_err().starts_with("Malformed time argument foo. Please use -1 or latest / "));
    }
}
