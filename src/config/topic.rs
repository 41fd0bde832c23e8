//! One topic's settings: checks of its overrides, the effective value of each key, the typed whole.
//!
//! Pure. Owns the precedence between a topic's overrides, the broker's keys and the defaults. Always: overrides given to
//! [`BrokerSettings::topic_settings`] passed [`BrokerSettings::check_topic_configs`]; anything else is a bug of ours and
//! panics. Source: Kafka 4.4's `LogConfig`; see the head of the room for the ack class.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rows::{Row, parse_boolean, split_list};
use super::topic_rows::{TOPIC_ROWS, topic_row};
use super::{BrokerSettings, TopicSettings};
use crate::log::LogSettings;
use crate::protocol::batch::Codec;
use crate::types::AckClass;

const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;

/// Checks one override by itself. The error is what a Kafka broker would answer.
pub fn check_topic_config(name: &str, value: &str) -> Result<(), String> {
    let row = topic_row(name).ok_or_else(|| unknown_topic_config(name))?;
    row.check(value)?;
    if name == "remote.storage.enable" && parse_boolean(value.trim()) == Some(true) {
        return Err("Tiered Storage functionality is disabled in the broker. \
                    Topic cannot be configured with remote log storage."
            .to_owned());
    }
    Ok(())
}

fn unknown_topic_config(name: &str) -> String {
    format!("Unknown topic config name: {name}")
}

/// A checked integer. Kafka trims before it parses, and so did the check.
fn integer(text: &str) -> i64 {
    text.trim().parse().expect("the row's check let only integers pass")
}

impl BrokerSettings {
    /// Checks all overrides of a topic, one by one and with what else holds for it: the first refusal in Kafka's order.
    pub fn check_topic_configs(&self, overrides: &BTreeMap<String, String>) -> Result<(), String> {
        if let Some(unknown) = overrides.keys().find(|name| topic_row(name).is_none()) {
            return Err(unknown_topic_config(unknown));
        }
        for row in TOPIC_ROWS {
            if let Some(value) = overrides.get(row.name) {
                check_topic_config(row.name, value)?;
            }
        }
        let lag = |name: &str| {
            let row = topic_row(name).expect("both lags are rows of the topic table");
            integer(&self.effective(row, overrides).expect("both lags have a default"))
        };
        let (min, max) = (lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms"));
        if min > max {
            return Err(format!(
                "conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})"
            ));
        }
        Ok(())
    }

    /// What holds for `row` in a topic with these overrides; `None` is null.
    pub(super) fn effective(&self, row: &Row, overrides: &BTreeMap<String, String>) -> Option<String> {
        if row.name == "ringlog.ack.durability" {
            return Some(self.ack_class(overrides).name().to_owned());
        }
        if let Some(value) = overrides.get(row.name) {
            return Some(row.canonical(value));
        }
        let scaled = |key: &str, factor: i64| self.given.get(key).map(|value| integer(value).saturating_mul(factor));
        let derived = match row.name {
            "segment.ms" => scaled("log.roll.ms", 1).or_else(|| scaled("log.roll.hours", HOUR_MS)),
            "segment.jitter.ms" => scaled("log.roll.jitter.ms", 1).or_else(|| scaled("log.roll.jitter.hours", HOUR_MS)),
            "retention.ms" => scaled("log.retention.ms", 1)
                .or_else(|| scaled("log.retention.minutes", MINUTE_MS))
                .or_else(|| scaled("log.retention.hours", HOUR_MS))
                .map(|time| time.max(-1)),
            "flush.ms" => scaled("log.flush.interval.ms", 1).or_else(|| scaled("log.flush.scheduler.interval.ms", 1)),
            _ => None,
        };
        if let Some(derived) = derived {
            return Some(derived.to_string());
        }
        let from_broker = row.broker_name.and_then(|name| self.given.get(name).cloned());
        from_broker.or_else(|| row.default.map(str::to_owned))
    }

    fn ack_class(&self, overrides: &BTreeMap<String, String>) -> AckClass {
        let class = |text: &String| AckClass::parse(text.trim()).expect("the row's check let only classes pass");
        let is_one = |text: &String| integer(text) == 1;
        if let Some(text) = overrides.get("ringlog.ack.durability") {
            return class(text);
        }
        let given = self.given.get("engine.ack.durability").map(class);
        match (overrides.get("flush.messages").map(is_one), given) {
            (Some(true), _) => AckClass::Flushed,
            (_, Some(class)) => class,
            (None, None) if self.given.get("log.flush.interval.messages").is_some_and(is_one) => AckClass::Flushed,
            _ => AckClass::default(),
        }
    }

    /// The effective settings of a topic with these overrides, which [`Self::check_topic_configs`] let pass.
    pub fn topic_settings(&self, topic: &str, overrides: &BTreeMap<String, String>) -> TopicSettings {
        let value = |name: &str| {
            let row = topic_row(name).expect("the name is in the topic table");
            self.effective(row, overrides).expect("topic settings are never null")
        };
        let number = |name: &str| integer(&value(name));
        let small = |name: &str| u32::try_from(number(name)).expect("the row's range lies within 32 bits without sign");
        let time =
            |name: &str| Duration::from_millis(u64::try_from(number(name)).expect("the row's range begins at 0"));
        let policies = value("cleanup.policy");
        let policies = split_list(&policies);
        let level = |codec: &str| Some(number(&format!("compression.{codec}.level")) as i32);
        let compression = match value("compression.type").trim() {
            "uncompressed" => Some((Codec::None, None)),
            "gzip" => Some((Codec::Gzip, level("gzip").filter(|level| *level != -1))),
            "snappy" => Some((Codec::Snappy, None)),
            "lz4" => Some((Codec::Lz4, level("lz4"))),
            "zstd" => Some((Codec::Zstd, level("zstd"))),
            _ => None,
        };
        let mut ack_class = self.ack_class(overrides);
        if is_internal_topic(topic) {
            ack_class = ack_class.max(AckClass::Written);
        }
        TopicSettings {
            log: LogSettings {
                ack_class,
                segment_bytes: small("segment.bytes"),
                segment_ms: time("segment.ms"),
                segment_jitter_ms: time("segment.jitter.ms"),
                index_bytes_max: small("segment.index.bytes"),
                index_interval_bytes: small("index.interval.bytes"),
                retention_ms: u64::try_from(number("retention.ms")).ok().map(Duration::from_millis),
                retention_bytes: u64::try_from(number("retention.bytes")).ok(),
                delete_policy: policies.contains(&"delete"),
                file_delete_delay: time("file.delete.delay.ms"),
                producer_expiry: self.producer_id_expiration,
                // 0 asks for a flush at every turn of a timer: a millisecond is that, without a busy core.
                flush_interval: self.engine_flush_interval.min(time("flush.ms")).max(Duration::from_millis(1)),
                preallocate_bytes: self.engine_preallocate_bytes,
                prewrite_bytes_max: self.engine_prewrite_max_bytes,
            },
            max_message_bytes: small("max.message.bytes"),
            max_decompressed_message_bytes: small("max.decompressed.message.bytes"),
            compression,
            log_append_time: value("message.timestamp.type").trim() == "LogAppendTime",
            timestamp_before_max_ms: number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            compact: policies.contains(&"compact"),
        }
    }

    /// Whether anything the user wrote decides the broker's default for `row`.
    pub(super) fn broker_default_given(&self, row: &Row) -> bool {
        row.broker_name.is_some_and(|name| {
            self.given.contains_key(name)
                || (name == "engine.ack.durability" && self.given.contains_key("log.flush.interval.messages"))
        })
    }
}

/// Topics that brokers keep state in, which clients do not write to.
pub fn is_internal_topic(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

const _: () = assert!(HOUR_MS == 60 * MINUTE_MS);

#[cfg(test)]
mod tests {
    use super::super::broker_row;
    use super::super::load::tests::settings;
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_defaults_of_topics_are_kafkas() {
        let topic = settings(&[]).topic_settings("t", &BTreeMap::new());
        assert_eq!(
            topic,
            TopicSettings {
                log: LogSettings {
                    ack_class: AckClass::Written,
                    segment_bytes: 1 << 30,
                    segment_ms: Duration::from_secs(7 * 86_400),
                    segment_jitter_ms: Duration::ZERO,
                    index_bytes_max: 10 << 20,
                    index_interval_bytes: 4096,
                    retention_ms: Some(Duration::from_secs(7 * 86_400)),
                    retention_bytes: None,
                    delete_policy: true,
                    file_delete_delay: Duration::from_secs(60),
                    producer_expiry: Duration::from_secs(86_400),
                    flush_interval: Duration::from_secs(1),
                    preallocate_bytes: 32 << 20,
                    prewrite_bytes_max: 32 << 10,
                },
                max_message_bytes: 1_048_588,
                max_decompressed_message_bytes: 2_147_483_639,
                compression: None,
                log_append_time: false,
                timestamp_before_max_ms: i64::MAX,
                timestamp_after_max_ms: 3_600_000,
                compact: false,
            }
        );
    }

    #[test]
    fn every_broker_synonym_and_every_default_is_a_good_value() {
        for row in TOPIC_ROWS {
            assert_eq!(row.default.map(|value| row.check(value)), Some(Ok(())), "{}", row.name);
            if let Some(name) = row.broker_name {
                let broker = broker_row(name).unwrap_or_else(|| panic!("{name} has no row"));
                assert_eq!(broker.kind, row.kind, "{name}");
                assert!(broker.default.is_none() || broker.default == row.default, "{name}");
            }
        }
    }

    #[test]
    fn ack_classes_follow_the_written_precedence() {
        use AckClass::{Flushed, Memory, Written};
        for (broker, topic, class) in [
            (&[][..], &[][..], Written),
            (&[("log.flush.interval.messages", "1")], &[], Flushed),
            (&[("log.flush.interval.messages", "5")], &[], Written),
            (&[("log.flush.interval.messages", "1"), ("engine.ack.durability", "written")], &[], Written),
            (&[("log.flush.interval.messages", "1")], &[("flush.messages", "10")], Written),
            (&[("engine.ack.durability", "memory")], &[], Memory),
            (&[("engine.ack.durability", "memory")], &[("flush.messages", "1")], Flushed),
            (&[("engine.ack.durability", "flushed")], &[("flush.messages", "10")], Flushed),
            (&[], &[("flush.messages", "1"), ("ringlog.ack.durability", "memory")], Memory),
        ] {
            assert_eq!(settings(broker).ack_class(&overrides(topic)), class, "{broker:?} {topic:?}");
        }
    }

    #[test]
    fn committed_offsets_are_never_only_in_memory() {
        let settings = settings(&[("engine.ack.durability", "memory")]);
        assert_eq!(settings.topic_settings("t", &BTreeMap::new()).ack_class(), AckClass::Memory);
        assert_eq!(settings.topic_settings("__consumer_offsets", &BTreeMap::new()).ack_class(), AckClass::Written);
    }

    #[test]
    fn older_units_of_the_broker_give_way_to_milliseconds() {
        let retention = |given: &[(&str, &str)]| settings(given).topic_settings("t", &BTreeMap::new()).log.retention_ms;
        assert_eq!(retention(&[("log.retention.hours", "24")]), Some(Duration::from_secs(86_400)));
        assert_eq!(
            retention(&[("log.retention.hours", "24"), ("log.retention.minutes", "99")]),
            Some(Duration::from_secs(5940))
        );
        assert_eq!(retention(&[("log.retention.hours", "24"), ("log.retention.ms", "-1")]), None);
        assert_eq!(retention(&[("log.retention.hours", "-1")]), None);
    }

    #[test]
    fn overrides_are_judged_together_in_kafkas_order() {
        for (pairs, answer) in [
            (&[("segment.bytes", "10"), ("zzz", "-5")][..], "Unknown topic config name: zzz"),
            (
                &[("segment.bytes", "10"), ("retention.ms", "-5")],
                "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576",
            ),
            (
                &[("min.compaction.lag.ms", "100"), ("max.compaction.lag.ms", "10")],
                "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)",
            ),
            (
                &[("remote.storage.enable", "true")],
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
            ),
            (&[("message.format.version", "3.0")], "Unknown topic config name: message.format.version"),
        ] {
            assert_eq!(settings(&[]).check_topic_configs(&overrides(pairs)), Err(answer.to_owned()));
        }
        let legal = overrides(&[("cleanup.policy", ""), ("flush.ms", "0")]);
        assert_eq!(settings(&[]).check_topic_configs(&legal), Ok(()));
        let broker = settings(&[("log.cleaner.min.compaction.lag.ms", "100")]);
        let shorter = broker.check_topic_configs(&overrides(&[("max.compaction.lag.ms", "10")]));
        assert!(shorter.is_err(), "the broker's value counts where the topic has none");
    }

    #[test]
    fn overrides_become_typed_settings() {
        let given = overrides(&[
            ("cleanup.policy", "compact, delete"),
            ("compression.type", "zstd"),
            ("compression.zstd.level", "7"),
            ("message.timestamp.type", "LogAppendTime"),
            ("retention.bytes", "5000"),
            ("flush.ms", "0"),
        ]);
        let topic = settings(&[]).topic_settings("t", &given);
        assert!(topic.compact && topic.log.delete_policy && topic.log_append_time);
        assert_eq!(topic.compression, Some((Codec::Zstd, Some(7))));
        assert_eq!(topic.log.retention_bytes, Some(5000));
        assert_eq!(topic.log.flush_interval, Duration::from_millis(1));
    }
}
