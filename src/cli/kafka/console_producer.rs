//! `kafka-console-producer`.
//!
//! Shell: reads standard input, runs a producer. Owns the tool's flags and rules; how lines become records is in `line_reader`. Always:
//! records before a line that cannot be read, or before a signal, are delivered; a record that is refused is told on standard error and the exit code stays
//! 0, as in Kafka. Source: Kafka 4.4's ConsoleProducer, asked.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read};

use futures_lite::future::block_on;

use super::line_reader::{LineReader, strip_line_end};
use super::options::{Flag, Manner, Words, maybe, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, deprecated, key_values};
use crate::cli::EXIT_INTERRUPTED;
use crate::cli::connect::check_brokers;
use crate::cli::interrupt::Intake;
use crate::client::{Delivery, Producer, ProducerRecord, ProducerSettings};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-console-producer",
    about: "Sends lines from standard input to a topic.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value("batch-size", "bytes", "batch.size (default: 16384)."),
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the producer."),
    value("command-property", "k=v", "A setting of the producer; may be given again."),
    maybe("compression-codec", "codec", "none, gzip, snappy, lz4 or zstd; gzip when no name follows."),
    switch("help", "Show this page."),
    value("line-reader", "class", "How lines are read: only Kafka's LineMessageReader."),
    value("max-block-ms", "ms", "max.block.ms (default: 60000)."),
    value("max-memory-bytes", "bytes", "buffer.memory (default: 33554432)."),
    value("max-partition-memory-bytes", "bytes", "As --batch-size, which replaces it."),
    value("message-send-max-retries", "n", "retries (default: 3)."),
    value("metadata-expiry-ms", "ms", "metadata.max.age.ms (default: 300000)."),
    value("producer-property", "k=v", "As --command-property, which replaces it."),
    value("producer.config", "file", "As --command-config, which replaces it."),
    value("property", "k=v", "As --reader-property, which replaces it."),
    value("reader-config", "file", "A properties file with settings of the reader."),
    value(
        "reader-property",
        "k=v",
        "A setting of the reader: parse.key, parse.headers, ignore.error (false), key.separator and \
                                     headers.delimiter (tab), headers.separator (,), headers.key.separator (:), null.marker.",
    ),
    value("request-required-acks", "acks", "acks (default: -1)."),
    value("request-timeout-ms", "ms", "request.timeout.ms (default: 1500)."),
    value("retry-backoff-ms", "ms", "retry.backoff.ms (default: 100)."),
    value("socket-buffer-size", "bytes", "send.buffer.bytes (default: 102400)."),
    switch("sync", "Wait for each record before the next line is read."),
    value("timeout", "ms", "linger.ms (default: 1000)."),
    value("topic", "topic", "REQUIRED: where to."),
    switch("version", "Show whose output is spoken."),
];

/// Option, setting, the tool's default.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("request-required-acks", "acks", "-1"),
    ("timeout", "linger.ms", "1000"),
    ("message-send-max-retries", "retries", "3"),
    ("retry-backoff-ms", "retry.backoff.ms", "100"),
    ("socket-buffer-size", "send.buffer.bytes", "102400"),
    ("request-timeout-ms", "request.timeout.ms", "1500"),
    ("metadata-expiry-ms", "metadata.max.age.ms", "300000"),
    ("max-block-ms", "max.block.ms", "60000"),
    ("max-memory-bytes", "buffer.memory", "33554432"),
    ("batch-size", "batch.size", "16384"),
];
/// Reads of input.
const CHUNK_BYTES: usize = 64 << 10;
/// Records whose end is awaited; behind them reading waits.
const UNTOLD_MAX: usize = 20_000;

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    words.require(&["topic"]).map_err(Stop::Usage)?;
    let bootstrap = words.value("bootstrap-server").map_err(Stop::Said)?;
    let Some(bootstrap) = bootstrap else {
        return Err(Stop::Usage("Error while validating the bootstrap address\n".to_owned()));
    };
    for (old, new) in [
        ("producer-property", "command-property"),
        ("producer.config", "command-config"),
        ("property", "reader-property"),
    ] {
        deprecated(words, old, new, &format!("Warning: --{old} is"), desk)?;
    }
    if words.has("max-partition-memory-bytes") {
        writeln!(
            desk.out,
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache Kafka 5.0. Use --batch-size instead."
        )?;
    }
    if check_brokers(bootstrap).is_err() {
        return Err(Stop::Usage("Please provide valid host:port like host1:9091,host2:9092\n".to_owned()));
    }
    if let Some(reader) = words.value("line-reader").map_err(Stop::Said)?
        && reader != "org.apache.kafka.tools.LineMessageReader"
    {
        return Err(Stop::Said(format!("java.lang.ClassNotFoundException: {reader}")));
    }
    let topic = words.value("topic").map_err(Stop::Said)?.unwrap_or_default();
    let settings = settings(words, bootstrap)?;
    let mut properties = Vec::new();
    if let Some(file) = words.value("reader-config").map_err(Stop::Said)? {
        properties.extend(super::properties(file).map_err(Stop::Said)?);
    }
    properties.extend(key_values(words.values("property").chain(words.values("reader-property"))));
    let mut reader = LineReader::new(&properties).map_err(exception)?;
    desk.out.flush()?;
    let io = client_thread()?;
    let producer = Producer::on(&io, settings).map_err(|error| Stop::Said(error.to_string()))?;
    let intake = Intake::of(&io, &producer)?;
    let mut sending = Sending { producer, topic, sync: words.has("sync"), untold: VecDeque::new() };
    let read = sending.send_lines(&intake, &mut reader, desk);
    // Whatever ended the reading: open batches go now instead of after their linger.
    sending.producer.flush_sync();
    sending.settle(0);
    if intake.interrupted() { Err(Stop::Exit(EXIT_INTERRUPTED)) } else { read }
}

fn exception(why: String) -> Stop {
    Stop::Said(format!("org.apache.kafka.common.KafkaException: {why}"))
}

fn settings(words: &Words, bootstrap: &str) -> Result<ProducerSettings, Stop> {
    let file = words.value("command-config").map_err(Stop::Said)?;
    let file = file.or(words.value("producer.config").map_err(Stop::Said)?);
    let mut access = Access::new(bootstrap, file);
    access.properties = key_values(words.values("producer-property").chain(words.values("command-property")));
    let mut defaults = vec![("client.id", "console-producer".to_owned())];
    for (option, setting, default) in SETTINGS {
        match words.value(option).map_err(Stop::Said)? {
            Some(value) => access.properties.push(((*setting).to_owned(), value.to_owned())),
            None => defaults.push((setting, (*default).to_owned())),
        }
    }
    if let Some(bytes) = words.value("max-partition-memory-bytes").map_err(Stop::Said)? {
        access.properties.push(("batch.size".to_owned(), bytes.to_owned()));
    }
    if words.has("compression-codec") {
        let codec = words.value("compression-codec").map_err(Stop::Said)?.unwrap_or("gzip");
        access.properties.push(("compression.type".to_owned(), codec.to_owned()));
    }
    // delivery.timeout.ms is at least linger.ms + request.timeout.ms; its default is above what the tool's defaults need.
    access.settings(&defaults).map_err(|error| Stop::Said(super::config_exception(&error)))
}

/// Behind the last line that is whole.
fn line_end(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

struct Sending<'s> {
    producer: Producer,
    topic: &'s str,
    sync: bool,
    untold: VecDeque<(Option<usize>, Option<usize>, Delivery)>,
}

impl Sending<'_> {
    fn send_lines(&mut self, intake: &Intake, reader: &mut LineReader, desk: &mut Desk<'_>) -> Result<(), Stop> {
        let prompt = io::stdin().is_terminal() && io::stdout().is_terminal();
        let mut input = io::stdin().lock();
        let (mut chunk, mut unsent) = (vec![0; CHUNK_BYTES], Vec::new());
        loop {
            if prompt {
                write!(desk.out, ">")?;
                desk.out.flush()?;
            }
            let _busy = intake.next(&input)?;
            let count = match input.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            unsent.extend_from_slice(&chunk[..count]);
            let whole = if count == 0 { unsent.len() } else { line_end(&unsent) };
            for line in unsent[..whole].split_inclusive(|byte| *byte == b'\n') {
                self.send(reader.read(strip_line_end(line)).map_err(exception)?);
            }
            unsent.drain(..whole);
            if count == 0 {
                return Ok(());
            }
        }
    }

    fn send(&mut self, mut record: ProducerRecord) {
        record.topic = self.topic.into();
        let sizes = (record.key.as_ref().map(|key| key.len()), record.value.as_ref().map(|value| value.len()));
        match block_on(self.producer.send(record)) {
            Ok(delivery) => self.untold.push_back((sizes.0, sizes.1, delivery)),
            Err(error) => self.tell(sizes, &error),
        }
        self.settle(if self.sync { 0 } else { UNTOLD_MAX });
    }

    fn settle(&mut self, left: usize) {
        while self.untold.len() > left {
            let Some((key, value, delivery)) = self.untold.pop_front() else { return };
            if let Err(error) = delivery.wait() {
                self.tell((key, value), &error);
            }
        }
    }

    fn tell(&self, (key, value): (Option<usize>, Option<usize>), why: &dyn std::fmt::Display) {
        let size = |size: Option<usize>| size.map_or_else(|| "null".to_owned(), |size| format!("{size} bytes"));
        eprintln!(
            "ERROR Error when sending message to topic {} with key: {}, value: {} with error:\n{why}",
            self.topic,
            size(key),
            size(value)
        );
    }
}
