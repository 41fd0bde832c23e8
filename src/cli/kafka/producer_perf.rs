//! `kafka-producer-perf-test`.
//!
//! Shell: runs a producer, reads the clock. Owns the tool's flags and rules and the records it makes up; the lines are in `perf`. Always:
//! latency is from the moment a record is handed over to its acknowledgement; a closed loop, as Kafka's: `ringlog bench` measures
//! from the intended moment. Source: Kafka 4.4's ProducerPerformance, asked.

use std::path::Path;
#[expect(clippy::disallowed_types, reason = "two threads count: the one that sends and the client's own")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use tokio::sync::Notify;

use super::options::{Flag, Manner, Words, many, switch, value};
use super::perf::{Stats, pace};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, config_exception};
use crate::client::{Producer, ProducerOptions, ProducerSettings, RecordRef, SendError};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-producer-perf-test",
    about: "Measures how fast records are sent.",
    flags: FLAGS,
    manner: Manner::Usage,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value(
        "bootstrap-server",
        "host:port,…",
        "Brokers to connect to; stronger than bootstrap.servers among the properties.",
    ),
    value("command-config", "file", "A properties file with settings of the producer."),
    many("command-property", "k=v", "Settings of the producer, as linger.ms=10 batch.size=32768."),
    switch("help", "Show this page.").or('h'),
    value("key-distribution", "kind", "none (the default), range (0, 1, 2, … in turn) or random."),
    value("num-records", "n", "REQUIRED: how many records."),
    value("payload-delimiter", "text", "What stands between records in --payload-file (default: \\n)."),
    value("payload-file", "file", "A file with records; each sent record is one of them, at random."),
    switch("payload-monotonic", "Records are 0, 1, 2, …"),
    switch("print-metrics", "Show the producer's counters at the end."),
    many("producer-props", "k=v", "As --command-property, which replaces it."),
    value("producer.config", "file", "As --command-config, which replaces it."),
    value("random-seed", "n", "Other records and keys than with the default, 0."),
    value("record-key-range", "n", "Keys are 0 to n - 1."),
    value("record-size", "bytes", "Records of that size, of random letters."),
    value("reporting-interval", "ms", "How often a line is written (default: 5000)."),
    value("throughput", "n", "REQUIRED: at most so many records a second; -1: no limit."),
    value("topic", "topic", "REQUIRED: where to."),
    value("transaction-duration-ms", "ms", "Transactions are not spoken."),
    value("transactional-id", "id", "Transactions are not spoken."),
    value("warmup-records", "n", "So many records at the beginning stand in no steady-state line (default: 0)."),
];

/// What is sent.
enum Payload {
    Random { bytes: usize },
    Lines(Vec<Vec<u8>>),
    Counter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    Range(u32),
    Random(u32),
}

struct Call {
    topic: String,
    records: u64,
    payload: Payload,
    keys: Keys,
    throughput: f64,
    warmup: u64,
    interval_ms: u64,
    seed: u64,
    print_metrics: bool,
    settings: ProducerSettings,
}

/// What both threads count.
struct Counted {
    all: Stats,
    steady: Option<Stats>,
    failed: u64,
    /// Records told of, well or not.
    told: u64,
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let call = check(words, desk)?;
    let io = client_thread()?;
    let begun = Instant::now();
    let now_ms = move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let counted =
        Counted { all: Stats::new(call.records, call.interval_ms, false, 0), steady: None, failed: 0, told: 0 };
    #[expect(clippy::disallowed_types, reason = "see the import")]
    let counted = Arc::new(Mutex::new(counted));
    let room = Arc::new(Notify::new());
    let (of_driver, told) = (Arc::clone(&counted), Arc::clone(&room));
    let (warmup, records, interval_ms) = (call.warmup, call.records, call.interval_ms);
    let sizes = call.payload.mean_bytes();
    let options = ProducerOptions::default().on_delivery(move |batch| {
        let mut counted = of_driver.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now_ms();
        for (_, tag) in batch.tags() {
            counted.told += 1;
            if let Err(error) = &batch.result {
                counted.failed += 1;
                if counted.failed <= 10 {
                    eprintln!("{error}");
                }
                continue;
            }
            let (sent_ms, index_is_steady) = (tag >> 1, tag & 1 == 1);
            let latency = now.saturating_sub(sent_ms);
            let mut line = counted.all.record(latency, sizes, now);
            if index_is_steady && warmup > 0 {
                // From here on its windows are shown instead.
                let steady = counted.steady.get_or_insert_with(|| Stats::new(records - warmup, interval_ms, true, now));
                line = steady.record(latency, sizes, now);
            }
            if let Some(line) = line {
                println!("{line}");
            }
        }
        drop(counted);
        told.notify_one();
    });
    let failed = |error: &dyn std::fmt::Display| Stop::Said(format!("Exception in thread \"main\" {error}"));
    let producer = Producer::on_with(&io, call.settings.clone(), options).map_err(|error| failed(&error))?;
    if warmup > 0 {
        writeln!(
            desk.out,
            "Warmup first {warmup} records. Steady state results will print after the complete test summary."
        )?;
    }
    desk.out.flush()?;
    block_on(producer.partition_count(&call.topic)).map_err(|error| failed(&error))?;
    send_all(&producer, &call, begun, &room).map_err(|error| failed(&error))?;
    producer.flush_sync();
    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{}", counted.all.total(now_ms()));
    if let Some(steady) = &mut counted.steady {
        println!("{}", steady.total(now_ms()));
    }
    let refused = counted.failed;
    drop(counted);
    if call.print_metrics {
        print_metrics(&producer, desk)?;
    }
    producer.close_sync(Duration::from_secs(30));
    if refused > 0 {
        Err(Stop::Said(format!("{refused} of {} records were not delivered", call.records)))
    } else {
        Ok(())
    }
}

/// Hands every record over, in time; waits where there is no room.
fn send_all(producer: &Producer, call: &Call, begun: Instant, room: &Notify) -> Result<(), SendError> {
    let mut random = fastrand::Rng::with_seed(call.seed);
    let mut payload = Vec::new();
    let started = Instant::now();
    for index in 0..call.records {
        if let Some(wait) = pace(index, call.throughput, started.elapsed()) {
            crate::cli::pause(wait);
        }
        call.payload.next(index, &mut random, &mut payload);
        let key = match call.keys {
            Keys::None => None,
            Keys::Range(range) => Some(index % u64::from(range)),
            Keys::Random(range) => Some(u64::from(random.u32(..range))),
        };
        let key = key.map(|key| key.to_string());
        let mut record = RecordRef::new(&call.topic, &payload);
        if let Some(key) = &key {
            record = record.key(key.as_bytes());
        }
        loop {
            let sent_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(0);
            let tag = sent_ms << 1 | u64::from(index >= call.warmup);
            match producer.try_send_tagged(record, tag) {
                Ok(()) => break,
                Err(SendError::WouldBlock) => block_on(room.notified()),
                Err(SendError::NoMetadata { .. }) => _ = block_on(producer.partition_count(&call.topic))?,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Payload {
    fn next(&self, index: u64, random: &mut fastrand::Rng, into: &mut Vec<u8>) {
        match self {
            Self::Random { bytes } => {
                into.resize(*bytes, 0);
                // Five bits of randomness a letter; the remainder favours the first six by little.
                for chunk in into.chunks_mut(8) {
                    let mut bits = random.u64(..);
                    for byte in chunk {
                        *byte = b'A' + (bits & 0xff) as u8 % 26;
                        bits >>= 8;
                    }
                }
            }
            Self::Lines(lines) => {
                into.clear();
                into.extend_from_slice(&lines[random.usize(..lines.len())]);
            }
            Self::Counter => {
                into.clear();
                into.extend_from_slice(index.to_string().as_bytes());
            }
        }
    }

    /// For the rates; of lines and counters the mean.
    fn mean_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Random { bytes } => *bytes,
            Self::Lines(lines) => lines.iter().map(Vec::len).sum::<usize>() / lines.len().max(1),
            Self::Counter => 4,
        };
        u64::try_from(bytes).unwrap_or(0)
    }
}

fn print_metrics(producer: &Producer, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let serde_json::Value::Object(metrics) = serde_json::json!(producer.metrics()) else { return Ok(()) };
    let names: Vec<(String, f64)> = metrics
        .iter()
        .filter_map(|(name, value)| {
            let name = format!("producer-metrics:{}:{{client-id=perf-producer-client}}", name.replace('_', "-"));
            Some((name, value.as_f64()?))
        })
        .collect();
    let width = names.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("Metric Name".len());
    writeln!(desk.out, "\n{:<width$}   Value", "Metric Name")?;
    for (name, value) in names {
        writeln!(desk.out, "{name:<width$} : {value:.3}")?;
    }
    Ok(())
}

fn check(words: &Words, desk: &mut Desk<'_>) -> Result<Call, Stop> {
    let usage = |why: String| Stop::Usage(why);
    for required in ["topic", "num-records", "throughput"] {
        if !words.has(required) {
            return Err(Stop::Usage(format!("argument --{required} is required")));
        }
    }
    let payloads: Vec<&str> =
        ["record-size", "payload-file", "payload-monotonic"].into_iter().filter(|name| words.has(name)).collect();
    match payloads[..] {
        [] => {
            let wanted = "one of the arguments --record-size --payload-file --payload-monotonic is required";
            return Err(Stop::Usage(wanted.to_owned()));
        }
        [first, second, ..] => {
            return Err(Stop::Usage(format!("argument --{second}: not allowed with argument --{first}")));
        }
        [_] => {}
    }
    let records: i64 = converted(words, "num-records", "Long")?.unwrap_or(0);
    let warmup: i64 = converted(words, "warmup-records", "Long")?.unwrap_or(0);
    let interval: i64 = converted(words, "reporting-interval", "Long")?.unwrap_or(5000);
    let size: Option<i32> = converted(words, "record-size", "Integer")?;
    let range: Option<u32> = converted(words, "record-key-range", "Integer")?;
    let throughput: f64 = converted(words, "throughput", "Double")?.unwrap_or(-1.0);
    let seed: i64 = converted(words, "random-seed", "Long")?.unwrap_or(0);
    let positive = |name: &str, value: i64| {
        if value > 0 { Ok(()) } else { Err(Stop::Usage(format!("--{name} should be greater than zero."))) }
    };
    positive("num-records", records)?;
    positive("reporting-interval", interval)?;
    if let Some(size) = size {
        positive("record-size", i64::from(size))?;
    }
    if warmup >= records {
        let why = "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records.";
        return Err(Stop::Usage(why.to_owned()));
    }
    let distribution = words.value("key-distribution").map_err(usage)?.unwrap_or("none");
    let needs =
        || Stop::Usage("--record-key-range is required when --key-distribution is 'range' or 'random'.".to_owned());
    let keys = match distribution {
        "none" => Keys::None,
        "range" => Keys::Range(range.filter(|range| *range > 0).ok_or_else(needs)?),
        "random" => Keys::Random(range.filter(|range| *range > 0).ok_or_else(needs)?),
        other => {
            return Err(Stop::Usage(format!(
                "argument --key-distribution: invalid choice: '{other}' (choose from {{none,range,random}})"
            )));
        }
    };
    if words.has("transactional-id") || words.has("transaction-duration-ms") {
        return Err(Stop::Said(
            "transactions are not spoken by this client; leave --transactional-id and --transaction-duration-ms out"
                .to_owned(),
        ));
    }
    let settings = settings(words, desk)?;
    let payload = payload(words, size, desk)?;
    Ok(Call {
        topic: words.value("topic").map_err(usage)?.unwrap_or_default().to_owned(),
        records: records.unsigned_abs(),
        payload,
        keys,
        throughput,
        warmup: u64::try_from(warmup).unwrap_or(0),
        interval_ms: interval.unsigned_abs(),
        seed: seed.cast_unsigned(),
        print_metrics: words.has("print-metrics"),
        settings,
    })
}

/// A number of a Java type.
pub(super) fn converted<T: std::str::FromStr>(words: &Words, name: &str, kind: &str) -> Result<Option<T>, Stop> {
    let Some(text) = words.value(name).map_err(Stop::Usage)? else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(Stop::Usage(format!(
            "argument --{name}: could not convert '{text}' to {kind} (For input string: \"{text}\")"
        ))),
    }
}

fn payload(words: &Words, size: Option<i32>, desk: &mut Desk<'_>) -> Result<Payload, Stop> {
    if let Some(size) = size {
        return Ok(Payload::Random { bytes: usize::try_from(size).unwrap_or(0) });
    }
    let Some(file) = words.value("payload-file").map_err(Stop::Usage)? else { return Ok(Payload::Counter) };
    let path = std::path::absolute(Path::new(file)).unwrap_or_else(|_| file.into());
    writeln!(desk.out, "Reading payloads from: {}", path.display())?;
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    if text.is_empty() {
        let why = "Exception in thread \"main\" java.lang.IllegalArgumentException: File does not exist or empty file provided.";
        return Err(Stop::Said(why.to_owned()));
    }
    let delimiter = words.value("payload-delimiter").map_err(Stop::Usage)?.unwrap_or("\\n").replace("\\n", "\n");
    let text = text.strip_suffix(&delimiter).unwrap_or(&text);
    let lines: Vec<Vec<u8>> = text.split(&delimiter).map(|line| line.as_bytes().to_vec()).collect();
    writeln!(desk.out, "Number of records read: {}", lines.len())?;
    Ok(Payload::Lines(lines))
}

fn settings(words: &Words, desk: &mut Desk<'_>) -> Result<ProducerSettings, Stop> {
    for (old, new) in [("producer-props", "command-property"), ("producer.config", "command-config")] {
        if words.has(old) && words.has(new) {
            return Err(Stop::Usage(format!("--{new} and --{old} cannot be specified together.")));
        }
        if words.has(old) {
            writeln!(
                desk.out,
                "Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead."
            )?;
        }
    }
    let any = ["bootstrap-server", "command-property", "producer-props", "producer.config", "command-config"];
    if !any.iter().any(|name| words.has(name)) {
        let why = "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or --command-config must be \
                   specified.";
        return Err(Stop::Usage(why.to_owned()));
    }
    let file = words.value("command-config").map_err(Stop::Usage)?;
    let file = file.or(words.value("producer.config").map_err(Stop::Usage)?);
    let mut access = Access::new(words.value("bootstrap-server").map_err(Stop::Usage)?.unwrap_or_default(), file);
    for pair in words.values("producer-props").chain(words.values("command-property")) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Stop::Said(format!(
                "Exception in thread \"main\" java.lang.IllegalArgumentException: Invalid property: {pair}"
            )));
        };
        access.properties.push((key.to_owned(), value.to_owned()));
    }
    access
        .settings(&[("client.id", "perf-producer-client".to_owned())])
        .map_err(|error| Stop::Said(format!("Exception in thread \"main\" {}", config_exception(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::tests;

    fn checked(line: &str) -> Result<Call, String> {
        tests::checked(&TOOL, line, check)
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        let base = "--bootstrap-server h:1 --topic t --throughput -1";
        for (more, wanted) in [
            ("--num-records 0 --record-size 1", "--num-records should be greater than zero."),
            ("--num-records 1 --record-size 0", "--record-size should be greater than zero."),
            ("--num-records 1", "one of the arguments --record-size --payload-file --payload-monotonic is required"),
            (
                "--num-records 1 --record-size 5 --payload-file /x",
                "argument --payload-file: not allowed with argument --record-size",
            ),
            (
                "--num-records abc --record-size 5",
                "argument --num-records: could not convert 'abc' to Long (For input string: \"abc\")",
            ),
            (
                "--num-records 10 --record-size 5 --warmup-records 10",
                "The value for --warmup-records must be strictly fewer than the number of records in the test, --num-records.",
            ),
            (
                "--num-records 10 --record-size 5 --key-distribution range",
                "--record-key-range is required when --key-distribution is 'range' or 'random'.",
            ),
            (
                "--num-records 10 --record-size 5 --command-property a=b --producer-props c=d",
                "--command-property and --producer-props cannot be specified together.",
            ),
            (
                "--num-records 10 --record-size 5 --command-property ab",
                "Exception in thread \"main\" java.lang.IllegalArgumentException: Invalid property: ab",
            ),
            ("--record-size 5", "argument --num-records is required"),
        ] {
            assert_eq!(checked(&format!("{base} {more}")).err().as_deref(), Some(wanted), "{more}");
        }
        assert!(
            checked("--topic t --throughput -1 --num-records 1 --record-size 1")
                .is_err_and(|why| why.starts_with("At least one of"))
        );
    }

    #[test]
    fn payloads_are_letters_lines_or_numbers() {
        let mut random = fastrand::Rng::with_seed(0);
        let mut into = Vec::new();
        Payload::Random { bytes: 100 }.next(0, &mut random, &mut into);
        assert!(into.len() == 100 && into.iter().all(u8::is_ascii_uppercase));
        Payload::Counter.next(41, &mut random, &mut into);
        assert_eq!(into, b"41");
    }
}
