//! `kafka-verifiable-producer`.
//!
//! Shell: runs a producer. Owns the tool's flags, rules and events, each a line of JSON. Always: an event for every record, when it is
//! acknowledged or has failed; `shutdown_complete` and `tool_data` at the end, also after SIGTERM. Source: Kafka 4.4's
//! VerifiableProducer, asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use serde::Serialize;

use super::options::{Flag, Manner, Words, switch, value};
use super::perf::pace;
use super::producer_perf::converted;
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, config_exception};
use crate::cli::unix_now_ms;
use crate::client::{Io, Producer, ProducerRecord, ProducerSettings, SendError};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-verifiable-producer",
    about: "Sends rising numbers and tells of each, in JSON, whether it was acknowledged.",
    flags: FLAGS,
    manner: Manner::Usage,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value("acks", "acks", "0, 1 or -1 (the default)."),
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the producer."),
    switch("help", "Show this page.").or('h'),
    value("max-messages", "n", "So many records, then end; -1 (the default): until it is stopped."),
    value("message-create-time", "ms", "The first record's timestamp; the next ones follow by the time between them."),
    value("producer.config", "file", "As --command-config, which replaces it."),
    value("repeating-keys", "n", "Keys are 0 to n - 1, in turn."),
    value("throughput", "n", "At most so many records a second; -1 (the default): no limit."),
    value("topic", "topic", "REQUIRED: where to."),
    value("value-prefix", "n", "Stands before each value, with a dot."),
];

#[derive(Serialize)]
struct Named {
    timestamp: i64,
    name: &'static str,
}

#[derive(Serialize)]
struct Sent<'e> {
    timestamp: i64,
    name: &'static str,
    key: Option<&'e str>,
    value: &'e str,
    offset: i64,
    topic: &'e str,
    partition: i32,
}

#[derive(Serialize)]
struct Failed<'e> {
    timestamp: i64,
    name: &'static str,
    exception: &'static str,
    message: String,
    key: Option<&'e str>,
    value: &'e str,
    topic: &'e str,
}

#[derive(Serialize)]
struct ToolData {
    timestamp: i64,
    name: &'static str,
    sent: u64,
    acked: u64,
    target_throughput: i64,
    avg_throughput: f64,
}

/// Writes one event as a line.
pub(super) fn tell(event: &impl Serialize) {
    let line = serde_json::to_string(event).expect("strings and numbers are always JSON");
    println!("{line}");
}

/// Writes an event that is only a name.
pub(super) fn tell_name(name: &'static str) {
    tell(&Named { timestamp: unix_now_ms(), name });
}

/// Set by SIGTERM and Ctrl-C.
pub(super) fn stop_flag(io: &Io) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    io.spawn(move || async move {
        let terminate = async {
            match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
                Ok(mut signal) => _ = signal.recv().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminate => {}
        }
        set.store(true, Ordering::Relaxed);
    });
    flag
}

struct Call {
    topic: Arc<str>,
    records: Option<u64>,
    throughput: i64,
    create_time: Option<i64>,
    prefix: Option<i32>,
    repeating: Option<u64>,
    settings: ProducerSettings,
}

fn run(words: &Words, _: &mut Desk<'_>) -> Result<(), Stop> {
    let call = check(words)?;
    let io = client_thread()?;
    let stopped = stop_flag(&io);
    let producer = Producer::on(&io, call.settings.clone()).map_err(|error| Stop::Said(error.to_string()))?;
    tell_name("startup_complete");
    let acked = Arc::new(AtomicU64::new(0));
    let (begun, begun_at) = (Instant::now(), unix_now_ms());
    let mut sent = 0;
    while call.records.is_none_or(|records| sent < records) && !stopped.load(Ordering::Relaxed) {
        if let Some(wait) = pace(sent, call.throughput as f64, begun.elapsed()) {
            // In short waits, so that a signal is heard.
            crate::cli::pause(wait.min(Duration::from_millis(100)));
            continue;
        }
        let value = call.prefix.map_or_else(|| sent.to_string(), |prefix| format!("{prefix}.{sent}"));
        let key = call.repeating.map(|keys| (sent % keys).to_string());
        let mut record = ProducerRecord::to(Arc::clone(&call.topic)).value(value.as_str()).key(key.as_deref());
        if let Some(first) = call.create_time {
            record = record.timestamp(first + (unix_now_ms() - begun_at));
        }
        if let Err(error) = send(&producer, &record, &call.topic, key, value, &acked) {
            match error {
                SendError::Closed | SendError::Fatal { .. } => return Err(Stop::Said(error.to_string())),
                _ => {}
            }
        }
        sent += 1;
    }
    producer.flush_sync();
    producer.close_sync(Duration::from_secs(30));
    let acked = acked.load(Ordering::Relaxed);
    let elapsed_ms = (unix_now_ms() - begun_at).max(1);
    tell_name("shutdown_complete");
    tell(&ToolData {
        timestamp: unix_now_ms(),
        name: "tool_data",
        sent,
        acked,
        target_throughput: call.throughput,
        avg_throughput: 1000.0 * acked as f64 / elapsed_ms as f64,
    });
    Ok(())
}

/// Hands a record over, waiting where there is no room; its event comes when it is told of. Errors are told here too.
fn send(
    producer: &Producer,
    record: &ProducerRecord,
    topic: &Arc<str>,
    key: Option<String>,
    value: String,
    acked: &Arc<AtomicU64>,
) -> Result<(), SendError> {
    let failed = |key: Option<&str>, value: &str, message: String| {
        tell(&Failed {
            timestamp: unix_now_ms(),
            name: "producer_send_error",
            exception: "class org.apache.kafka.common.KafkaException",
            message,
            key,
            value,
            topic,
        });
    };
    loop {
        let (of_driver, topic, told_key, told_value) =
            (Arc::clone(acked), Arc::clone(topic), key.clone(), value.clone());
        let taken = producer.try_send(record, move |outcome| match outcome {
            Ok(place) => {
                of_driver.fetch_add(1, Ordering::Relaxed);
                tell(&Sent {
                    timestamp: unix_now_ms(),
                    name: "producer_send_success",
                    key: told_key.as_deref(),
                    value: &told_value,
                    offset: place.offset.map_or(-1, |offset| offset.value()),
                    topic: &topic,
                    partition: place.partition.value(),
                });
            }
            Err(error) => tell(&Failed {
                timestamp: unix_now_ms(),
                name: "producer_send_error",
                exception: "class org.apache.kafka.common.KafkaException",
                message: error.to_string(),
                key: told_key.as_deref(),
                value: &told_value,
                topic: &topic,
            }),
        });
        match taken {
            Ok(()) => return Ok(()),
            Err(SendError::WouldBlock) => crate::cli::pause(Duration::from_millis(1)),
            Err(SendError::NoMetadata { .. }) => {
                if let Err(error) = block_on(producer.partition_count(&record.topic)) {
                    failed(key.as_deref(), &value, error.to_string());
                    return Err(error);
                }
            }
            Err(error) => {
                failed(key.as_deref(), &value, error.to_string());
                return Err(error);
            }
        }
    }
}

fn check(words: &Words) -> Result<Call, Stop> {
    let usage = Stop::Usage;
    if !words.has("topic") {
        return Err(Stop::Usage("argument --topic is required".to_owned()));
    }
    let Some(bootstrap) = words.value("bootstrap-server").map_err(usage)? else {
        return Err(Stop::Usage("one of the arguments --bootstrap-server is required".to_owned()));
    };
    let acks = words.value("acks").map_err(usage)?.unwrap_or("-1");
    if !["0", "1", "-1"].contains(&acks) {
        return Err(Stop::Usage(format!("argument --acks: invalid choice: '{acks}' (choose from {{0,1,-1}})")));
    }
    let records: i64 = converted(words, "max-messages", "Integer")?.unwrap_or(-1);
    let repeating: Option<u64> = converted(words, "repeating-keys", "Integer")?;
    if repeating == Some(0) {
        return Err(Stop::Usage("argument --repeating-keys: there is no key below 0".to_owned()));
    }
    let file = words.value("command-config").map_err(usage)?.or(words.value("producer.config").map_err(usage)?);
    if words.has("producer.config") {
        println!(
            "Option --producer.config has been deprecated and will be removed in a future version. Use --command-config instead."
        );
    }
    let mut access = Access::new(bootstrap, file);
    access.properties = vec![("acks".to_owned(), acks.to_owned())];
    // Records are told of once and in order.
    let settings = access
        .settings(&[("retries", "0".to_owned())])
        .map_err(|error| Stop::Said(format!("Exception in thread \"main\" {}", config_exception(&error))))?;
    Ok(Call {
        topic: words.value("topic").map_err(usage)?.unwrap_or_default().into(),
        records: u64::try_from(records).ok(),
        throughput: converted(words, "throughput", "Integer")?.unwrap_or(-1),
        create_time: converted(words, "message-create-time", "Long")?.filter(|time: &i64| *time >= 0),
        prefix: converted(words, "value-prefix", "Integer")?,
        repeating,
        settings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::options::parse;

    fn refused(line: &str) -> String {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = parse(FLAGS, Manner::Usage, &args).unwrap();
        match check(&words) {
            Err(Stop::Usage(why) | Stop::Said(why)) => why,
            _ => panic!("taken: {line}"),
        }
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        assert_eq!(refused("--topic t"), "one of the arguments --bootstrap-server is required");
        assert_eq!(refused("--bootstrap-server h:1"), "argument --topic is required");
        assert_eq!(
            refused("--bootstrap-server h:1 --topic t --acks 7"),
            "argument --acks: invalid choice: '7' (choose from {0,1,-1})"
        );
    }

    #[test]
    fn events_have_their_fields_in_order() {
        let sent = Sent {
            timestamp: 1,
            name: "producer_send_success",
            key: None,
            value: "0",
            offset: 2047,
            topic: "s1",
            partition: 0,
        };
        assert_eq!(
            serde_json::to_string(&sent).unwrap(),
            r#"{"timestamp":1,"name":"producer_send_success","key":null,"value":"0","offset":2047,"topic":"s1","partition":0}"#
        );
    }
}
