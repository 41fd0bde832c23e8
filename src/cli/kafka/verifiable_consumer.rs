//! `kafka-verifiable-consumer`.
//!
//! Shell: runs a consumer. Owns the tool's flags, rules and events, each a line of JSON. Always: what is told as consumed is committed
//! next, and told too. Source: Kafka 4.4's VerifiableConsumer, asked.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::options::{Flag, Manner, Words, switch, value};
use super::producer_perf::converted;
use super::verifiable_producer::{stop_flag, tell, tell_name};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, config_exception};
use crate::cli::consume::Unwritten;
use crate::cli::unix_now_ms;
use crate::client::consumer::{ConsumerHandle, Heard, OffsetAndMetadata, RebalanceListener};
use crate::client::{Consumer, ConsumerError, ConsumerSettings, Record};
use crate::types::{Offset, TopicPartition};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-verifiable-consumer",
    about: "Reads a topic as a member of a group and tells, in JSON, what happens.",
    flags: FLAGS,
    manner: Manner::Usage,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value(
        "assignment-strategy",
        "class",
        "How partitions are dealt out, as RoundRobinAssignor (default: RangeAssignor).",
    ),
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("close-timeout", "ms", "How long the farewell may take (default: 30000)."),
    value("command-config", "file", "A properties file with settings of the consumer."),
    value("consumer.config", "file", "As --command-config, which replaces it."),
    switch("enable-autocommit", "Commit from time to time instead of after each poll."),
    value("group-id", "id", "REQUIRED: the group."),
    value("group-instance-id", "id", "A static member by that name."),
    value("group-protocol", "protocol", "classic (the default); the newer one is not spoken."),
    value("group-remote-assignor", "name", "Of the newer protocol: not spoken."),
    switch("help", "Show this page.").or('h'),
    value("max-messages", "n", "So many records, then end; -1 (the default): until it is stopped."),
    value("reset-policy", "policy", "earliest (the default), latest or none."),
    value("session-timeout", "ms", "session.timeout.ms."),
    value("topic", "topic", "REQUIRED: which topic."),
    switch("verbose", "Tell of every record."),
];

#[derive(Serialize)]
struct Place<'e> {
    topic: &'e str,
    partition: i32,
}

#[derive(Serialize)]
struct Places<'e> {
    timestamp: i64,
    name: &'static str,
    partitions: Vec<Place<'e>>,
}

#[derive(Serialize)]
struct RecordData<'e> {
    timestamp: i64,
    name: &'static str,
    key: Option<String>,
    value: Option<String>,
    topic: &'e str,
    partition: i32,
    offset: i64,
}

#[derive(Serialize)]
struct Consumed<'e> {
    timestamp: i64,
    name: &'static str,
    count: usize,
    partitions: Vec<Summary<'e>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'e> {
    topic: &'e str,
    partition: i32,
    count: u64,
    min_offset: i64,
    max_offset: i64,
}

#[derive(Serialize)]
struct Committed<'e> {
    timestamp: i64,
    name: &'static str,
    offsets: Vec<CommittedAt<'e>>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct CommittedAt<'e> {
    topic: &'e str,
    partition: i32,
    offset: i64,
}

/// Tells which partitions come and go.
struct Told;

fn places(name: &'static str, partitions: &[TopicPartition]) {
    let place = |one: &'_ TopicPartition| (one.topic.to_string(), one.partition.value());
    let owned: Vec<(String, i32)> = partitions.iter().map(place).collect();
    let partitions = owned.iter().map(|(topic, partition)| Place { topic, partition: *partition }).collect();
    tell(&Places { timestamp: unix_now_ms(), name, partitions });
}

impl RebalanceListener<ConsumerHandle> for Told {
    fn on_assigned<'a>(&'a mut self, _: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        places("partitions_assigned", partitions);
        Box::pin(std::future::ready(()))
    }

    fn on_revoked<'a>(&'a mut self, _: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        places("partitions_revoked", partitions);
        Box::pin(std::future::ready(()))
    }
}

struct Call {
    topic: String,
    records: u64,
    verbose: bool,
    auto_commit: bool,
    close: Duration,
    settings: ConsumerSettings,
}

fn run(words: &Words, _: &mut Desk<'_>) -> Result<(), Stop> {
    let call = check(words)?;
    let io = client_thread()?;
    let stopped = stop_flag(&io);
    let mut consumer = Consumer::on(&io, call.settings.clone());
    consumer.set_listener(Told);
    let failed = |error: ConsumerError| Stop::Said(error.to_string());
    tell_name("startup_complete");
    consumer.subscribe([&call.topic]).map_err(failed)?;
    let mut consumed = 0;
    while consumed < call.records && !stopped.load(Ordering::Relaxed) {
        let records = match consumer.poll_sync(Duration::from_millis(500)) {
            Ok(records) => records,
            Err(error) if error.retriable() => {
                eprintln!("WARN {error}");
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        if records.is_empty() {
            continue;
        }
        let left = call.records - consumed;
        let next = received(&records, left, call.verbose);
        consumed += next.values().map(|(count, _)| count).sum::<u64>();
        if call.auto_commit {
            // What is over the number asked for was not consumed.
            let mut over = Unwritten::default();
            for record in records.iter().skip(usize::try_from(left).unwrap_or(usize::MAX)) {
                over.from(&place(record), record.offset);
            }
            over.give_back(&consumer);
        } else {
            commit(&consumer, &next);
        }
    }
    // As in Kafka, a hook of the process says that its end is wanted: after all else when the tool ends by itself.
    let asked = stopped.load(Ordering::Relaxed);
    if asked {
        tell_name("shutdown_requested");
    }
    consumer.close_sync(call.close);
    tell_name("shutdown_complete");
    if !asked {
        tell_name("shutdown_requested");
    }
    Ok(())
}

fn place(record: &Record) -> TopicPartition {
    TopicPartition { topic: record.topic.clone(), partition: record.partition }
}

/// Tells of a poll; of each partition how many records were taken, at most `left` in all, and the offset behind the last.
fn received(records: &[Record], left: u64, verbose: bool) -> BTreeMap<TopicPartition, (u64, i64)> {
    let mut taken: BTreeMap<TopicPartition, (u64, i64)> = BTreeMap::new();
    let mut summaries: Vec<(TopicPartition, u64, i64, i64)> = Vec::new();
    for record in records.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        let place = place(record);
        let offset = record.offset.value();
        if verbose {
            let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            tell(&RecordData {
                timestamp: unix_now_ms(),
                name: "record_data",
                key: text(record.key.as_deref()),
                value: text(record.value.as_deref()),
                topic: &record.topic,
                partition: record.partition.value(),
                offset,
            });
        }
        match summaries.iter_mut().find(|(known, ..)| *known == place) {
            Some((_, count, _, last)) => {
                *count += 1;
                *last = offset;
            }
            None => summaries.push((place.clone(), 1, offset, offset)),
        }
        let (count, next) = taken.entry(place).or_default();
        *count += 1;
        *next = offset + 1;
    }
    let partitions = summaries
        .iter()
        .map(|(place, count, first, last)| Summary {
            topic: &place.topic,
            partition: place.partition.value(),
            count: *count,
            min_offset: *first,
            max_offset: *last,
        })
        .collect();
    tell(&Consumed { timestamp: unix_now_ms(), name: "records_consumed", count: records.len(), partitions });
    taken
}

fn commit(consumer: &Consumer, next: &BTreeMap<TopicPartition, (u64, i64)>) {
    let offsets = next
        .iter()
        .filter_map(|(place, (_, offset))| Some((place.clone(), OffsetAndMetadata::from(Offset::new(*offset)?))))
        .collect();
    let error = consumer.commit_offsets_sync(offsets).err().map(|error| error.to_string());
    let offsets = next
        .iter()
        .map(|(place, (_, offset))| CommittedAt {
            topic: &place.topic,
            partition: place.partition.value(),
            offset: *offset,
        })
        .collect();
    tell(&Committed { timestamp: unix_now_ms(), name: "offsets_committed", offsets, success: error.is_none(), error });
}

fn check(words: &Words) -> Result<Call, Stop> {
    let usage = Stop::Usage;
    for required in ["topic", "group-id"] {
        if !words.has(required) {
            return Err(Stop::Usage(format!("argument --{required} is required")));
        }
    }
    let Some(bootstrap) = words.value("bootstrap-server").map_err(usage)? else {
        return Err(Stop::Usage("one of the arguments --bootstrap-server is required".to_owned()));
    };
    let records: i64 = converted(words, "max-messages", "Integer")?.unwrap_or(-1);
    let close: u64 = converted(words, "close-timeout", "Integer")?.unwrap_or(30_000);
    let file = words.value("command-config").map_err(usage)?.or(words.value("consumer.config").map_err(usage)?);
    if words.has("consumer.config") {
        println!(
            "Option --consumer.config has been deprecated and will be removed in a future version. Use --command-config instead."
        );
    }
    let mut access = Access::new(bootstrap, file);
    let strategy = words.value("assignment-strategy").map_err(usage)?;
    let mut set = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            access.properties.push((key.to_owned(), value.to_owned()));
        }
    };
    set("group.id", words.value("group-id").map_err(usage)?);
    set("group.instance.id", words.value("group-instance-id").map_err(usage)?);
    let protocol = words.value("group-protocol").map_err(usage)?.map(str::to_ascii_lowercase);
    set("group.protocol", protocol.as_deref());
    set("session.timeout.ms", words.value("session-timeout").map_err(usage)?);
    set("auto.offset.reset", Some(words.value("reset-policy").map_err(usage)?.unwrap_or("earliest")));
    set("enable.auto.commit", Some(if words.has("enable-autocommit") { "true" } else { "false" }));
    set("partition.assignment.strategy", Some(strategy.unwrap_or("org.apache.kafka.clients.consumer.RangeAssignor")));
    let settings = access
        .settings(&[])
        .map_err(|error| Stop::Said(format!("Exception in thread \"main\" {}", config_exception(&error))))?;
    Ok(Call {
        topic: words.value("topic").map_err(usage)?.unwrap_or_default().to_owned(),
        records: u64::try_from(records).unwrap_or(u64::MAX),
        verbose: words.has("verbose"),
        auto_commit: words.has("enable-autocommit"),
        close: Duration::from_millis(close),
        settings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::options::parse;

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        let refused = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let words = parse(FLAGS, Manner::Usage, &args).unwrap();
            match check(&words) {
                Err(Stop::Usage(why) | Stop::Said(why)) => why,
                _ => panic!("taken: {line}"),
            }
        };
        assert_eq!(refused("--bootstrap-server h:1 --topic t"), "argument --group-id is required");
        assert_eq!(refused("--topic t --group-id g"), "one of the arguments --bootstrap-server is required");
        assert!(
            refused("--bootstrap-server h:1 --topic t --group-id g --reset-policy foo").contains("auto.offset.reset")
        );
    }

    #[test]
    fn events_have_their_fields_in_order() {
        let event = Consumed {
            timestamp: 1,
            name: "records_consumed",
            count: 500,
            partitions: vec![Summary { topic: "s1", partition: 0, count: 8, min_offset: 0, max_offset: 7 }],
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"timestamp":1,"name":"records_consumed","count":500,"partitions":[{"topic":"s1","partition":0,"count":8,"minOffset":0,"maxOffset":7}]}"#
        );
        let event = Committed {
            timestamp: 1,
            name: "offsets_committed",
            offsets: vec![CommittedAt { topic: "s1", partition: 0, offset: 8 }],
            success: true,
            error: None,
        };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"timestamp":1,"name":"offsets_committed","offsets":[{"topic":"s1","partition":0,"offset":8}],"success":true}"#
        );
    }
}
