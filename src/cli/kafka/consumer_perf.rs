//! `kafka-consumer-perf-test`.
//!
//! Shell: runs a consumer, reads the clock. Owns the tool's flags, rules and rows. Always: it ends with the poll that completes the
//! number asked for, or when nothing came for `--timeout`. Source: Kafka 4.4's ConsumerPerformance, asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::options::{Flag, Manner, Words, maybe, switch, value};
use super::perf::DateFormat;
use super::topics::topic_pattern;
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, config_exception, key_values};
use crate::cli::unix_now_ms;
use crate::client::consumer::{ConsumerHandle, Heard, RebalanceListener, RecordBatch};
use crate::client::{Consumer, ConsumerError, ConsumerSettings};
use crate::types::TopicPartition;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-consumer-perf-test",
    about: "Measures how fast records are read.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the consumer."),
    value("command-property", "k=v", "A setting of the consumer; may be given again."),
    value("consumer.config", "file", "As --command-config, which replaces it."),
    value("date-format", "pattern", "How moments look, as SimpleDateFormat has it (default: yyyy-MM-dd HH:mm:ss:SSS)."),
    value("fetch-size", "bytes", "max.partition.fetch.bytes (default: 1048576)."),
    switch("from-latest", "Begin at the end where nothing is committed."),
    value("group", "id", "The group (default: one of its own)."),
    switch("help", "Show this page."),
    switch("hide-header", "Not the names of the columns."),
    value("include", "regex", "Topics by regular expression."),
    value("messages", "n", "As --num-records, which replaces it."),
    value("num-records", "n", "REQUIRED: how many records."),
    switch("print-metrics", "Show the consumer's counters at the end."),
    value("reporting-interval", "ms", "With --show-detailed-stats: how often a row is written (default: 5000)."),
    switch("show-detailed-stats", "A row for each interval."),
    value("socket-buffer-size", "bytes", "receive.buffer.bytes (default: 2097152)."),
    maybe("timeout", "ms", "End when no record came for so long (default: 10000)."),
    value("topic", "topic", "The topic."),
    switch("version", "Show whose output is spoken."),
];

const MIB: f64 = 1024.0 * 1024.0;
/// The names of the columns behind the moments.
const COLUMNS: &str = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
                       fetch.MB.sec, fetch.nMsg.sec";

struct Call {
    topic: Option<String>,
    include: Option<String>,
    records: u64,
    timeout: Duration,
    detailed: Option<Duration>,
    dates: DateFormat,
    header: bool,
    print_metrics: bool,
    settings: ConsumerSettings,
}

/// When the first share was dealt out, milliseconds since the start; `u64::MAX` until then.
struct FirstShare(Arc<AtomicU64>, Instant);

impl RebalanceListener<ConsumerHandle> for FirstShare {
    fn on_assigned<'a>(&'a mut self, _: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        if !partitions.is_empty() {
            let ms = u64::try_from(self.1.elapsed().as_millis()).unwrap_or(u64::MAX);
            // Later shares change nothing.
            _ = self.0.compare_exchange(u64::MAX, ms, Ordering::Relaxed, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Copy, Default)]
struct Read {
    records: u64,
    bytes: u64,
}

/// `a, b, …`: the columns behind the moments.
fn columns(read: Read, whole: Read, elapsed_ms: f64, fetch_ms: f64, rebalance_ms: u64) -> String {
    let rate = |count: f64, ms: f64| if ms > 0.0 { count * 1000.0 / ms } else { 0.0 };
    let mb = read.bytes as f64 / MIB;
    format!(
        "{:.4}, {:.4}, {}, {:.4}, {rebalance_ms}, {}, {:.4}, {:.4}",
        whole.bytes as f64 / MIB,
        rate(mb, elapsed_ms),
        whole.records,
        rate(read.records as f64, elapsed_ms),
        fetch_ms as i64,
        rate(mb, fetch_ms),
        rate(read.records as f64, fetch_ms),
    )
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let call = check(words, desk)?;
    if call.header {
        let times = if call.detailed.is_some() { "time, threadId" } else { "start.time, end.time" };
        writeln!(desk.out, "{times}, {COLUMNS}")?;
        desk.out.flush()?;
    }
    let io = client_thread()?;
    let failed = |error: ConsumerError| Stop::Said(error.to_string());
    let mut consumer = Consumer::on(&io, call.settings.clone());
    let mut measured = Measured::begin(&call);
    consumer.set_listener(FirstShare(Arc::clone(&measured.share), measured.begun));
    match (&call.topic, &call.include) {
        (Some(topic), _) => consumer.subscribe([topic]).map_err(failed)?,
        (None, Some(pattern)) => consumer.subscribe_pattern(pattern).map_err(failed)?,
        (None, None) => {}
    }
    let mut last_record = measured.begun;
    while measured.read.records < call.records && last_record.elapsed() <= call.timeout {
        let batches = match consumer.poll_batches_sync(Duration::from_millis(100)) {
            Ok(batches) => batches,
            Err(error) if error.retriable() => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        measured.count(&batches)?;
        if !batches.is_empty() {
            last_record = Instant::now();
        }
        if let Some(interval) = call.detailed
            && measured.last_row.elapsed() >= interval
        {
            measured.write_interval(desk)?;
        }
    }
    if call.detailed.is_none() {
        measured.write_whole(desk)?;
    }
    if call.print_metrics {
        write_metrics(&consumer, desk)?;
    }
    consumer.close_sync(Duration::from_secs(10));
    Ok(())
}

/// What was read so far, and when.
struct Measured<'c> {
    dates: &'c DateFormat,
    zone: TimeZone,
    begun: Instant,
    begun_at: i64,
    /// See [`FirstShare`].
    share: Arc<AtomicU64>,
    read: Read,
    /// When an interval's row was written last, and what had been read by then.
    last_row: Instant,
    read_at_row: Read,
}

impl<'c> Measured<'c> {
    fn begin(call: &'c Call) -> Self {
        let (begun, begun_at) = (Instant::now(), unix_now_ms());
        Self {
            dates: &call.dates,
            zone: TimeZone::system(),
            begun,
            begun_at,
            share: Arc::new(AtomicU64::new(u64::MAX)),
            read: Read::default(),
            last_row: begun,
            read_at_row: Read::default(),
        }
    }

    fn count(&mut self, batches: &[RecordBatch]) -> Result<(), Stop> {
        for batch in batches {
            for view in batch.iter() {
                let view = view.map_err(|why| Stop::Said(format!("a damaged batch: {why}")))?;
                self.read.records += 1;
                self.read.bytes += (view.key.map_or(0, <[u8]>::len) + view.value.map_or(0, <[u8]>::len)) as u64;
            }
        }
        Ok(())
    }

    fn rebalance_ms(&self) -> Option<u64> {
        Some(self.share.load(Ordering::Relaxed)).filter(|ms| *ms != u64::MAX)
    }

    /// The row of the interval that ends now.
    fn write_interval(&mut self, desk: &mut Desk<'_>) -> Result<(), Stop> {
        let (read, before) = (self.read, self.read_at_row);
        let elapsed = self.last_row.elapsed().as_secs_f64() * 1000.0;
        let part = Read { records: read.records - before.records, bytes: read.bytes - before.bytes };
        let rebalance_ms = if before.records == 0 { self.rebalance_ms().unwrap_or(0) } else { 0 };
        let row = columns(part, read, elapsed, elapsed - rebalance_ms as f64, rebalance_ms);
        writeln!(desk.out, "{}, 0, {row}", self.dates.format(unix_now_ms(), &self.zone))?;
        desk.out.flush()?;
        (self.last_row, self.read_at_row) = (Instant::now(), read);
        Ok(())
    }

    /// The one row without intervals.
    fn write_whole(&self, desk: &mut Desk<'_>) -> Result<(), Stop> {
        let elapsed_ms = self.begun.elapsed().as_millis() as u64;
        let ended_at = self.begun_at.saturating_add(i64::try_from(elapsed_ms).unwrap_or(0));
        // Nothing was dealt out: all of the time went there.
        let rebalance_ms = self.rebalance_ms().unwrap_or(elapsed_ms);
        let fetch_ms = elapsed_ms.saturating_sub(rebalance_ms);
        let row = columns(self.read, self.read, elapsed_ms as f64, fetch_ms as f64, rebalance_ms);
        let moment = |at: i64| self.dates.format(at, &self.zone);
        writeln!(desk.out, "{}, {}, {row}", moment(self.begun_at), moment(ended_at))?;
        Ok(())
    }
}

fn write_metrics(consumer: &Consumer, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let metrics = consumer.metrics();
    let rows = [
        ("fetch-total", metrics.fetches),
        ("bytes-consumed-total", metrics.fetched_bytes),
        ("records-consumed-total", metrics.records),
        ("rebalance-total", metrics.rebalances),
        ("commit-total", metrics.commits),
    ]
    .map(|(name, count)| (format!("consumer-metrics:{name}:{{client-id=perf-consumer-client}}"), count));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    writeln!(desk.out, "\n{:<width$}   Value", "Metric Name")?;
    for (name, count) in rows {
        writeln!(desk.out, "{name:<width$} : {count}.000")?;
    }
    Ok(())
}

fn check(words: &Words, desk: &mut Desk<'_>) -> Result<Call, Stop> {
    let said = |why: String| Stop::Said(why);
    let usage = |why: String| Stop::Usage(why);
    words.exactly_one(&["messages", "num-records"]).map_err(usage)?;
    words.exactly_one(&["topic", "include"]).map_err(usage)?;
    words.require(&["bootstrap-server"]).map_err(usage)?;
    if words.has("consumer.config") && words.has("command-config") {
        return Err(Stop::Usage(
            "Option \"[consumer.config]\" can't be used with option \"[command-config]\"".to_owned(),
        ));
    }
    for (old, new) in [("messages", "num-records"), ("consumer.config", "command-config")] {
        if words.has(old) {
            writeln!(desk.out, "Warning: --{old} is deprecated. Use --{new} instead.")?;
        }
    }
    let records: Option<i64> = words.number("num-records").map_err(said)?;
    let records = match records {
        Some(records) => records,
        None => words.number("messages").map_err(said)?.unwrap_or(0),
    };
    let timeout: i64 = words.number("timeout").map_err(said)?.unwrap_or(10_000);
    let interval: i64 = words.number("reporting-interval").map_err(said)?.unwrap_or(5000);
    if interval <= 0 {
        return Err(Stop::Usage("Reporting interval must be greater than 0.".to_owned()));
    }
    let dates = dates(words, desk)?;
    let settings = settings(words)?;
    let include = words.value("include").map_err(said)?;
    if let Some(text) = include {
        topic_pattern(text).map_err(Stop::Said)?;
    }
    Ok(Call {
        topic: words.value("topic").map_err(said)?.map(str::to_owned),
        include: include.map(|text| text.replace(',', "|")),
        records: u64::try_from(records).unwrap_or(0),
        timeout: Duration::from_millis(u64::try_from(timeout).unwrap_or(0)),
        detailed: words.has("show-detailed-stats").then(|| Duration::from_millis(interval.unsigned_abs())),
        dates,
        header: !words.has("hide-header"),
        print_metrics: words.has("print-metrics"),
        settings,
    })
}

fn dates(words: &Words, desk: &mut Desk<'_>) -> Result<DateFormat, Stop> {
    let pattern = words.value("date-format").map_err(Stop::Said)?.unwrap_or("yyyy-MM-dd HH:mm:ss:SSS");
    match DateFormat::parse(pattern) {
        Ok(dates) => Ok(dates),
        Err(why) => {
            // Java finds out when it has written the header.
            if !words.has("hide-header") {
                writeln!(desk.out, "start.time, end.time, {COLUMNS}")?;
            }
            Err(Stop::Said(why))
        }
    }
}

/// The consumer's settings, of the file, of the command line, and those the options stand for.
fn settings(words: &Words) -> Result<ConsumerSettings, Stop> {
    let value = |name: &str| words.value(name).map_err(Stop::Said);
    let file = value("command-config")?.or(value("consumer.config")?);
    let mut access = Access::new(value("bootstrap-server")?.unwrap_or_default(), file);
    access.properties = key_values(words.values("command-property"));
    let option = |name: &str, default: &str| value(name).map(|value| value.unwrap_or(default).to_owned());
    let group = option("group", &format!("perf-consumer-{}", fastrand::u32(1..100_000)))?;
    for (key, value) in [
        ("group.id", group),
        ("receive.buffer.bytes", option("socket-buffer-size", "2097152")?),
        ("max.partition.fetch.bytes", option("fetch-size", "1048576")?),
        ("auto.offset.reset", if words.has("from-latest") { "latest" } else { "earliest" }.to_owned()),
        ("check.crcs", "false".to_owned()),
    ] {
        access.properties.push((key.to_owned(), value));
    }
    access
        .settings(&[("client.id", "perf-consumer-client".to_owned())])
        .map_err(|error| Stop::Said(config_exception(&error)))
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
        for (line, wanted) in [
            (
                "--bootstrap-server h:1 --num-records 9",
                "Exactly one of the following arguments is required: [topic], [include]",
            ),
            (
                "--bootstrap-server h:1 --topic t",
                "Exactly one of the following arguments is required: [messages], [num-records]",
            ),
            (
                "--bootstrap-server h:1 --topic t --num-records 1 --messages 1",
                "Exactly one of the following arguments is required: [messages], [num-records]",
            ),
            ("--bootstrap-server h:1 --topic t --num-records 1 --date-format foo", "Illegal pattern character 'f'"),
        ] {
            assert_eq!(checked(line).err().as_deref(), Some(wanted), "{line}");
        }
    }

    #[test]
    fn rows_look_as_kafka_prints_them() {
        let read = Read { records: 2000, bytes: 200_000 };
        assert_eq!(
            columns(read, read, 102.0, 41.0, 61),
            "0.1907, 1.8699, 2000, 19607.8431, 61, 41, 4.6521, 48780.4878"
        );
        assert_eq!(
            columns(Read::default(), Read::default(), 10.0, 0.0, 10),
            "0.0000, 0.0000, 0, 0.0000, 10, 0, 0.0000, 0.0000"
        );
    }
}
