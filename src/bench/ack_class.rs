//! What an acknowledgement means at this broker, asked rather than assumed.
//!
//! Pure. Owns the words. Takes the settings a broker described; `target` asks for them. Always true: a class is named only
//! when a setting says so; where the broker does not tell, the class is `unknown` and the words say why.
//! Source: this project's three classes; Kafka's `flush.messages` (every append that reaches it syncs in the request path) and
//! its documentation of the page cache.

use std::collections::BTreeMap;

use super::report::AckFacts;

/// Settings by name, as DescribeConfigs gave them.
pub type Described = BTreeMap<String, String>;

/// Kafka's "never": 2^63 − 1.
const NEVER: &str = "9223372036854775807";

/// Which software answers, by the settings it has.
pub fn software(broker: &Described) -> &'static str {
    match () {
        () if broker.keys().any(|name| name.starts_with("engine.")) => "ringlog",
        () if broker.contains_key("log.flush.interval.messages") && broker.contains_key("num.io.threads") => "kafka",
        () => "unknown",
    }
}

/// The class and what it means. `min_insync` and `replicas` are told in the words where more than one replica takes part.
pub fn ack_class(acks: &str, broker: &Described, topic: &Described, replicas: Option<u32>) -> (String, AckFacts) {
    let facts =
        |words: String, source: &str| AckFacts { acks: acks.to_owned(), words, source: source.to_owned(), replicas };
    if acks == "0" {
        return (
            "none".to_owned(),
            facts(
                "Nothing is acknowledged: a record counts once it is with the kernel of this host.".to_owned(),
                "acks=0.",
            ),
        );
    }
    let copies = match (acks, replicas) {
        ("1", Some(count)) if count > 1 => " by the leader alone",
        ("1", None) => " by the leader alone",
        (_, Some(count)) if count > 1 => " by every in-sync replica",
        _ => "",
    };
    if software(broker) == "ringlog" {
        let named = topic.get("ringlog.ack.durability").or_else(|| broker.get("engine.ack.durability"));
        let class = named.map_or("unknown", String::as_str);
        let words = match class {
            "memory" => format!("In memory{copies}. Lost by a killed broker process."),
            "written" => format!(
                "Written to the device by direct I/O{copies}. Survives a killed broker; lost by power loss within the last flush interval."
            ),
            "flushed" => format!("Written and covered by fdatasync{copies}. Nothing on that device is lost."),
            _ => "The broker did not say.".to_owned(),
        };
        return (class.to_owned(), facts(words, "From the broker's ringlog.ack.durability (DescribeConfigs)."));
    }
    let flush = topic.get("flush.messages").or_else(|| broker.get("log.flush.interval.messages")).map(String::as_str);
    let (class, words, source) = match flush {
        Some("1") => (
            "flush-each".to_owned(),
            format!(
                "Every append is synced to the device before its acknowledgement{copies}. Nothing on that device is lost."
            ),
            "From flush.messages=1 (DescribeConfigs).".to_owned(),
        ),
        Some(NEVER) => (
            "page-cache".to_owned(),
            format!(
                "In the kernel's page cache{copies}. Survives a killed broker; lost by power loss or a kernel crash until the kernel has written it back."
            ),
            "From flush.messages, which is never (DescribeConfigs).".to_owned(),
        ),
        Some(count) => (
            format!("flush-every-{count}"),
            format!(
                "In the kernel's page cache{copies}, synced after every {count} records of a partition. Power loss takes what came since."
            ),
            format!("From flush.messages={count} (DescribeConfigs)."),
        ),
        None => {
            ("unknown".to_owned(), "The broker did not say.".to_owned(), "It describes no flush.messages.".to_owned())
        }
    };
    (class, facts(words, &source))
}

/// Settings of a broker and a topic that bear on the numbers, for the report.
pub fn telling(broker: &Described, topic: &Described) -> BTreeMap<String, String> {
    const BROKER: &[&str] = &[
        "engine.ack.durability",
        "engine.shards",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.segment.bytes",
        "min.insync.replicas",
        "num.io.threads",
        "num.network.threads",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ];
    const TOPIC: &[&str] = &[
        "cleanup.policy",
        "compression.type",
        "flush.messages",
        "flush.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "ringlog.ack.durability",
        "segment.bytes",
    ];
    let pick = |names: &'static [&'static str], from: &Described, prefix: &'static str| {
        let from = from.clone();
        names
            .iter()
            .filter_map(move |name| Some((format!("{prefix}{name}"), from.get(*name)?.clone())))
            .collect::<Vec<_>>()
    };
    pick(BROKER, broker, "").into_iter().chain(pick(TOPIC, topic, "topic ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(pairs: &[(&str, &str)]) -> Described {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn our_class_is_the_topics_then_the_brokers() {
        let broker = described(&[("engine.ack.durability", "written"), ("engine.shards", "2")]);
        let class = |topic: &[(&str, &str)]| ack_class("all", &broker, &described(topic), Some(1)).0;
        assert_eq!(class(&[("ringlog.ack.durability", "flushed")]), "flushed");
        assert_eq!(class(&[]), "written");
        assert_eq!(software(&broker), "ringlog");
    }

    #[test]
    fn kafkas_class_is_said_by_flush_messages() {
        let broker = described(&[("log.flush.interval.messages", NEVER), ("num.io.threads", "8")]);
        let class = |topic: &[(&str, &str)]| ack_class("all", &broker, &described(topic), Some(1)).0;
        assert_eq!(class(&[]), "page-cache");
        assert_eq!(class(&[("flush.messages", "1")]), "flush-each");
        assert_eq!(class(&[("flush.messages", "500")]), "flush-every-500");
        assert_eq!(software(&broker), "kafka");
    }

    #[test]
    fn acks_0_promises_nothing_and_silence_is_called_unknown() {
        assert_eq!(ack_class("0", &Described::new(), &Described::new(), None).0, "none");
        let (class, facts) = ack_class("1", &Described::new(), &Described::new(), Some(3));
        assert_eq!((class.as_str(), facts.words.as_str()), ("unknown", "The broker did not say."));
    }

    #[test]
    fn more_than_one_replica_is_named() {
        let broker = described(&[("log.flush.interval.messages", "1"), ("num.io.threads", "8")]);
        assert!(ack_class("all", &broker, &Described::new(), Some(3)).1.words.contains("every in-sync replica"));
        assert!(ack_class("1", &broker, &Described::new(), Some(3)).1.words.contains("leader alone"));
    }
}
