//! `kafka-e2e-latency`.
//!
//! Shell: runs a producer and a consumer, reads the clock. Owns the tool's flags (and its older manner, by position), rules and lines.
//! Always: one record at a time, sent and acknowledged before it is waited for; what comes is compared with what was sent. Source:
//! Kafka 4.4's EndToEndLatency, asked.

use std::time::{Duration, Instant};

use super::exceptions::spelled_call;
use super::options::{Flag, Manner, Words, maybe, switch, value};
use super::perf::percentile;
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, config_exception};
use crate::client::admin::{BlockingAdmin, NewTopic};
use crate::client::{
    ClientError, Consumer, ConsumerError, ConsumerSettings, Producer, ProducerRecord, ProducerSettings,
};
use crate::types::{PartitionIndex, TopicPartition};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-e2e-latency",
    about: "Measures the time from a send to the arrival at a consumer, one record at a time.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    maybe("command-config", "file", "A properties file with settings of all clients."),
    switch("help", "Show this page."),
    maybe("num-headers", "n", "Headers of each record (default: 0)."),
    value("num-records", "n", "REQUIRED: how many records."),
    value("producer-acks", "acks", "REQUIRED: 1 or all."),
    maybe("record-header-key-size", "bytes", "The size of each header's name (default: 0)."),
    maybe("record-header-size", "bytes", "The size of each header's value; -1: null (default: 0)."),
    maybe("record-key-size", "bytes", "The size of each key; 0: none (default: 0)."),
    value("record-size", "bytes", "REQUIRED: the size of each value."),
    value("topic", "topic", "REQUIRED: which topic; it is created if it is not there."),
    switch("version", "Show whose output is spoken."),
];

/// How long a record may be on its way.
const POLL_TIMEOUT: Duration = Duration::from_secs(60);

struct Call {
    bootstrap: String,
    topic: String,
    records: u64,
    acks: String,
    value_bytes: usize,
    key_bytes: usize,
    headers: usize,
    header_key_bytes: usize,
    header_value_bytes: Option<usize>,
    file: Option<String>,
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let by_name = words.free.is_empty() || words.has("bootstrap-server");
    let call = if by_name { named(words)? } else { positioned(desk.args)? };
    if !by_name {
        writeln!(
            desk.out,
            "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named arguments \
             instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config"
        )?;
    }
    if call.acks != "1" && call.acks != "all" {
        let why = "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' or 'all'.";
        return Err(Stop::Usage(why.to_owned()));
    }
    let io = client_thread()?;
    let mut access = Access::new(&call.bootstrap, call.file.as_deref());
    let admin = access.admin(&io).map_err(Stop::Said)?;
    require_topic(&admin, &call.topic, desk)?;
    let wrong = |error: ClientError| Stop::Said(config_exception(&error));
    access.properties = vec![("acks".to_owned(), call.acks.clone())];
    let settings: ProducerSettings = access
        .settings(&[("linger.ms", "0".to_owned()), ("max.block.ms", "9223372036854775807".to_owned())])
        .map_err(wrong)?;
    let producer = Producer::on(&io, settings).map_err(|error| Stop::Said(error.to_string()))?;
    access.properties = vec![
        ("auto.offset.reset".to_owned(), "latest".to_owned()),
        ("enable.auto.commit".to_owned(), "false".to_owned()),
        ("fetch.max.wait.ms".to_owned(), "0".to_owned()),
    ];
    let settings: ConsumerSettings = access.settings(&[]).map_err(wrong)?;
    let mut consumer = Consumer::on(&io, settings);
    assign_from_the_end(&mut consumer, &admin, &call.topic)?;
    let mut latencies = Vec::new();
    let mut sum_ns: u128 = 0;
    for index in 0..call.records {
        let record = made_up(&call);
        let sent = Instant::now();
        producer.send_sync(record.clone()).map_err(|error| Stop::Said(error.to_string()))?;
        let came = arrival(&mut consumer, &call.topic)?;
        let elapsed = sent.elapsed();
        compare(&record, &came)?;
        if index % 1000 == 0 {
            writeln!(desk.out, "{index}\t{}", elapsed.as_nanos() as f64 / 1000.0 / 1000.0)?;
            desk.out.flush()?;
        }
        sum_ns += elapsed.as_nanos();
        latencies.push(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
    }
    write!(desk.out, "{}", summary(&mut latencies, sum_ns))?;
    producer.close_sync(Duration::from_secs(10));
    consumer.close_sync(Duration::from_secs(10));
    Ok(())
}

/// Creates the topic if it is not there.
fn require_topic(admin: &BlockingAdmin, topic: &str, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let told = |error: ClientError| Stop::Said(spelled_call(&error));
    let described = admin.describe_topics(vec![topic.to_owned()]).map_err(told)?;
    if described.iter().all(|topic| topic.error.is_none()) {
        return Ok(());
    }
    writeln!(
        desk.out,
        "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1"
    )?;
    let new = NewTopic::new(topic).partitions(1).replication_factor(1);
    for created in admin.create_topics(vec![new], false).map_err(told)? {
        if let Some(error) = created.error {
            return Err(Stop::Said(format!("Creation of topic {topic} failed: {error}")));
        }
    }
    Ok(())
}

/// Gives the consumer every partition, each from where it ends now.
fn assign_from_the_end(consumer: &mut Consumer, admin: &BlockingAdmin, topic: &str) -> Result<(), Stop> {
    let failed = |error: ConsumerError| Stop::Said(error.to_string());
    let described = admin.describe_topics(vec![topic.to_owned()]).map_err(|error| Stop::Said(spelled_call(&error)))?;
    let places: Vec<TopicPartition> = described
        .iter()
        .flat_map(|topic| &topic.partitions)
        .filter_map(|one| PartitionIndex::new(one.partition))
        .map(|partition| TopicPartition { topic: topic.into(), partition })
        .collect();
    consumer.assign(places.clone()).map_err(failed)?;
    consumer.seek_to_end(&places).map_err(failed)?;
    // The end of that moment, not of the first poll, which comes after the first record.
    for place in &places {
        consumer.position_sync(place, POLL_TIMEOUT).map_err(failed)?;
    }
    Ok(())
}

fn summary(latencies: &mut [u64], sum_ns: u128) -> String {
    latencies.sort_unstable();
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| percentile(latencies, share));
    let mean = sum_ns as f64 / latencies.len().max(1) as f64 / 1000.0 / 1000.0;
    format!("Avg latency: {mean:.4} ms\nPercentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}\n")
}

fn made_up(call: &Call) -> ProducerRecord {
    let letters = |bytes: usize| -> Vec<u8> { (0..bytes).map(|_| fastrand::u8(b'A'..=b'Z')).collect() };
    let mut record = ProducerRecord::to(call.topic.as_str()).value(letters(call.value_bytes));
    if call.key_bytes > 0 {
        record = record.key(letters(call.key_bytes));
    }
    for _ in 0..call.headers {
        let name = String::from_utf8(letters(call.header_key_bytes)).unwrap_or_default();
        record.headers.push(name, call.header_value_bytes.map(|bytes| letters(bytes).into()));
    }
    record
}

/// The next record.
fn arrival(consumer: &mut Consumer, topic: &str) -> Result<crate::client::Record, Stop> {
    let begun = Instant::now();
    while begun.elapsed() < POLL_TIMEOUT {
        match consumer.poll_sync(POLL_TIMEOUT.saturating_sub(begun.elapsed())) {
            Ok(mut records) => match records.len() {
                0 => {}
                1 => return Ok(records.swap_remove(0)),
                count => {
                    return Err(Stop::Said(format!(
                        "Only one result was expected during this test. We found [{count}]: does somebody else write to {topic}?"
                    )));
                }
            },
            Err(error) if error.retriable() => {}
            Err(error) => return Err(Stop::Said(error.to_string())),
        }
    }
    Err(Stop::Said(format!("poll() timed out before finding a result (timeout:[{}ms])", POLL_TIMEOUT.as_millis())))
}

fn compare(sent: &ProducerRecord, came: &crate::client::Record) -> Result<(), Stop> {
    let what = if sent.value != came.value {
        "value"
    } else if sent.key != came.key {
        "key"
    } else if sent.headers != came.headers {
        "headers"
    } else {
        return Ok(());
    };
    Err(Stop::Said(format!("The message {what} read did not match what was sent at offset {}", came.offset)))
}

fn named(words: &Words) -> Result<Call, Stop> {
    words
        .require(&["bootstrap-server", "topic", "num-records", "producer-acks", "record-size"])
        .map_err(Stop::Usage)?;
    let text = |name: &str| words.value(name).map(|value| value.unwrap_or_default().to_owned()).map_err(Stop::Said);
    let size = |name: &str, default: i64| -> Result<i64, Stop> {
        Ok(words.number::<i64>(name).map_err(Stop::Said)?.unwrap_or(default))
    };
    let bytes = |name: &str| -> Result<usize, Stop> {
        usize::try_from(size(name, 0)?)
            .map_err(|_| Stop::Usage(format!("Value for --{name} must be a non-negative integer.")))
    };
    let records = size("num-records", 0)?;
    if records <= 0 {
        return Err(Stop::Usage("Value for --num-records must be a positive integer.".to_owned()));
    }
    Ok(Call {
        bootstrap: text("bootstrap-server")?,
        topic: text("topic")?,
        records: records.unsigned_abs(),
        acks: text("producer-acks")?,
        value_bytes: bytes("record-size")?,
        key_bytes: bytes("record-key-size")?,
        headers: bytes("num-headers")?,
        header_key_bytes: bytes("record-header-key-size")?,
        header_value_bytes: usize::try_from(size("record-header-size", 0)?).ok(),
        file: Some(text("command-config")?).filter(|file| !file.is_empty()),
    })
}

/// `bootstrap-server topic num-records producer-acks record-size [command-config]`
fn positioned(args: &[String]) -> Result<Call, Stop> {
    let (bootstrap, topic, records, acks, size, file) = match args {
        [bootstrap, topic, records, acks, size] => (bootstrap, topic, records, acks, size, None),
        [bootstrap, topic, records, acks, size, file] => (bootstrap, topic, records, acks, size, Some(file.clone())),
        _ => {
            return Err(Stop::Said(format!(
                "Invalid number of arguments. Expected 5 or 6 positional arguments, but got {}. Usage: bootstrap-server topic \
                 num-records producer-acks record-size [optional] command-config",
                args.len()
            )));
        }
    };
    let number = |text: &str| text.parse().map_err(|_| Stop::Said(format!("For input string: \"{text}\"")));
    Ok(Call {
        bootstrap: bootstrap.clone(),
        topic: topic.clone(),
        records: number(records)?,
        acks: acks.clone(),
        value_bytes: usize::try_from(number(size)?).unwrap_or(0),
        key_bytes: 0,
        headers: 0,
        header_key_bytes: 0,
        header_value_bytes: None,
        file,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_that_scripts_read() {
        let mut latencies = vec![3, 1, 2, 1];
        assert_eq!(
            summary(&mut latencies, 7_250_000),
            "Avg latency: 1.8125 ms\nPercentiles: 50th = 2, 99th = 3, 99.9th = 3\n"
        );
    }

    #[test]
    fn arguments_may_stand_by_position() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let call = positioned(&words("h:1 t 20 1 100")).unwrap_or_else(|stop| panic!("{stop:?}"));
        assert_eq!((call.records, call.value_bytes, call.acks.as_str()), (20, 100, "1"));
        let Err(Stop::Said(why)) = positioned(&words("a b")) else { panic!("taken") };
        assert!(
            why.starts_with("Invalid number of arguments. Expected 5 or 6 positional arguments, but got 2."),
            "{why}"
        );
    }
}
