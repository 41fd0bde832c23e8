//! What DescribeConfigs shows of the tables.
//!
//! Pure. Owns sources and synonyms in Kafka's order. Does not own who may see them, nor the wire. Always: a sensitive value is
//! null. Source: KIP-226 (synonyms), KIP-569 (types, documentation); the order and the values were compared with Kafka 4.4.

use std::collections::BTreeMap;

use super::rows::Row;
use super::{BROKER_ROWS, BrokerSettings, TOPIC_ROWS, broker_row};

/// The number of a topic's own override on the wire.
const SOURCE_TOPIC: i8 = 1;
/// From the file, the environment or the command line.
const SOURCE_STATIC: i8 = 4;
/// Nobody said anything.
const SOURCE_DEFAULT: i8 = 5;

/// One entry of DescribeConfigs and CreateTopics answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The key.
    pub name: String,
    /// What holds; `None` is null.
    pub value: Option<String>,
    /// Where it comes from, in Kafka's numbers: 1 topic, 4 static broker, 5 default.
    pub source: i8,
    /// Cannot be changed while the broker runs.
    pub read_only: bool,
    /// Never shown.
    pub sensitive: bool,
    /// The strongest first: name, value, source.
    pub synonyms: Vec<(String, Option<String>, i8)>,
    /// Kafka's number of the type.
    pub kind: i8,
    /// One sentence.
    pub documentation: String,
}

impl BrokerSettings {
    /// All entries of a topic with these overrides, in the order of the table.
    pub fn describe_topic(&self, overrides: &BTreeMap<String, String>) -> Vec<Described> {
        TOPIC_ROWS
            .iter()
            .map(|row| {
                let mut synonyms = Vec::new();
                if let Some(value) = overrides.get(row.name) {
                    synonyms.push((row.name.to_owned(), Some(row.canonical(value)), SOURCE_TOPIC));
                }
                if let Some(broker) = row.broker_name.and_then(broker_row) {
                    self.push_broker_synonyms(broker, &mut synonyms);
                }
                let source = if overrides.contains_key(row.name) {
                    SOURCE_TOPIC
                } else if self.broker_default_given(row) {
                    SOURCE_STATIC
                } else {
                    SOURCE_DEFAULT
                };
                Described { read_only: false, ..describe(row, self.effective(row, overrides), source, synonyms) }
            })
            .collect()
    }

    /// All entries of this broker, in the order of the table.
    pub fn describe_broker(&self) -> Vec<Described> {
        BROKER_ROWS
            .iter()
            .map(|row| {
                let mut synonyms = Vec::new();
                self.push_broker_synonyms(row, &mut synonyms);
                if row.name == "log.retention.minutes" && !synonyms.is_empty() {
                    let hours = broker_row("log.retention.hours").expect("hours stand in the broker table");
                    self.push_broker_synonyms(hours, &mut synonyms);
                }
                let given = self.given.get(row.name).cloned();
                let source = if given.is_some() { SOURCE_STATIC } else { SOURCE_DEFAULT };
                let value = given.or_else(|| row.default.map(str::to_owned));
                describe(row, value, source, synonyms)
            })
            .collect()
    }

    fn push_broker_synonyms(&self, row: &Row, synonyms: &mut Vec<(String, Option<String>, i8)>) {
        let shown = |value: &str| (!row.sensitive()).then(|| value.to_owned());
        if let Some(given) = self.given.get(row.name) {
            synonyms.push((row.name.to_owned(), shown(given), SOURCE_STATIC));
        }
        if let Some(default) = row.default {
            synonyms.push((row.name.to_owned(), shown(default), SOURCE_DEFAULT));
        }
    }
}

fn describe(row: &Row, value: Option<String>, source: i8, synonyms: Vec<(String, Option<String>, i8)>) -> Described {
    Described {
        name: row.name.to_owned(),
        value: value.filter(|_| !row.sensitive()),
        source,
        read_only: true,
        sensitive: row.sensitive(),
        synonyms,
        kind: row.kind as i8,
        documentation: row.doc.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::settings;
    use super::*;

    fn entry(entries: Vec<Described>, name: &str) -> (Option<String>, i8, Vec<(String, String, i8)>) {
        let entry = entries.into_iter().find(|entry| entry.name == name).unwrap();
        let synonyms = entry.synonyms.into_iter().map(|(name, value, source)| (name, value.unwrap(), source)).collect();
        (entry.value, entry.source, synonyms)
    }

    fn synonyms(list: &[(&str, &str, i8)]) -> Vec<(String, String, i8)> {
        list.iter().map(|(name, value, source)| ((*name).to_owned(), (*value).to_owned(), *source)).collect()
    }

    /// Each line was seen on Apache Kafka 4.4 with the same keys given and the same override.
    #[test]
    fn topics_are_described_as_kafka_describes_them() {
        let settings = settings(&[
            ("log.retention.hours", "24"),
            ("log.retention.minutes", "99"),
            ("log.roll.hours", "5"),
            ("log.roll.jitter.hours", "1"),
            ("log.flush.interval.messages", "7"),
            ("log.flush.scheduler.interval.ms", "777"),
            ("log.cleanup.policy", "compact,delete"),
            ("log.segment.bytes", "2000000"),
        ]);
        let overrides = BTreeMap::from([("flush.messages".to_owned(), "1".to_owned())]);
        let max = "9223372036854775807";
        for (name, value, source, expected) in [
            ("segment.ms", "18000000", 5, &[][..]),
            ("segment.jitter.ms", "3600000", 5, &[]),
            ("retention.ms", "5940000", 5, &[]),
            ("flush.ms", "777", 5, &[]),
            (
                "flush.messages",
                "1",
                1,
                &[
                    ("flush.messages", "1", 1),
                    ("log.flush.interval.messages", "7", 4),
                    ("log.flush.interval.messages", max, 5),
                ],
            ),
            (
                "cleanup.policy",
                "compact,delete",
                4,
                &[("log.cleanup.policy", "compact,delete", 4), ("log.cleanup.policy", "delete", 5)],
            ),
            (
                "segment.bytes",
                "2000000",
                4,
                &[("log.segment.bytes", "2000000", 4), ("log.segment.bytes", "1073741824", 5)],
            ),
            ("segment.index.bytes", "10485760", 5, &[("log.index.size.max.bytes", "10485760", 5)]),
            ("leader.replication.throttled.replicas", "", 5, &[]),
            ("compression.type", "producer", 5, &[("compression.type", "producer", 5)]),
        ] {
            let seen = entry(settings.describe_topic(&overrides), name);
            assert_eq!(seen, (Some(value.to_owned()), source, synonyms(expected)), "{name}");
        }
    }

    #[test]
    fn brokers_are_described_as_kafka_describes_them() {
        let settings = settings(&[("log.retention.minutes", "99"), ("num.partitions", "4")]);
        for (name, value, source, expected) in [
            (
                "log.retention.minutes",
                Some("99"),
                4,
                &[("log.retention.minutes", "99", 4), ("log.retention.hours", "168", 5)][..],
            ),
            ("log.retention.hours", Some("168"), 5, &[("log.retention.hours", "168", 5)]),
            ("log.retention.ms", None, 5, &[]),
            ("num.partitions", Some("4"), 4, &[("num.partitions", "4", 4), ("num.partitions", "1", 5)]),
            ("broker.rack", None, 5, &[]),
        ] {
            let seen = entry(settings.describe_broker(), name);
            assert_eq!(seen, (value.map(str::to_owned), source, synonyms(expected)), "{name}");
        }
    }

    #[test]
    fn the_ack_class_in_force_is_shown() {
        let shown = |given: &[(&str, &str)], overrides: &BTreeMap<String, String>| {
            let (value, source, _) = entry(settings(given).describe_topic(overrides), "ringlog.ack.durability");
            (value.unwrap(), source)
        };
        let flush = BTreeMap::from([("flush.messages".to_owned(), "1".to_owned())]);
        assert_eq!(shown(&[], &BTreeMap::new()), ("written".to_owned(), 5));
        assert_eq!(shown(&[], &flush), ("flushed".to_owned(), 5));
        assert_eq!(shown(&[("log.flush.interval.messages", "1")], &BTreeMap::new()), ("flushed".to_owned(), 4));
    }

    #[test]
    fn types_and_documentation_come_from_the_row() {
        let entries = settings(&[]).describe_topic(&BTreeMap::new());
        let ratio = entries.iter().find(|entry| entry.name == "min.cleanable.dirty.ratio").unwrap();
        assert_eq!((ratio.kind, ratio.read_only, ratio.value.as_deref()), (6, false, Some("0.5")));
        assert!(entries.iter().all(|entry| entry.documentation.ends_with('.')));
    }
}
