//! `kafka-console-consumer`.
//!
//! Shell: runs a consumer, writes records. Owns the tool's flags and rules; how a record looks is in `message_formatter`. Always: what
//! was written is what a group has read: the rest of a batch is given back before the farewell. Source: Kafka 4.4's ConsoleConsumer,
//! asked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::message_formatter::Formatter;
use super::options::{Flag, Manner, Words, switch, value};
use super::topics::topic_pattern;
use super::{Access, Desk, Stop, Tool, Wrong, client_thread, deprecated, key_values};
use crate::cli::connect::check_brokers;
use crate::cli::consume::Unwritten;
use crate::cli::interrupt::end_polls;
use crate::client::consumer::RecordBatch;
use crate::client::{Consumer, ConsumerError, ConsumerSettings};
use crate::types::{Offset, PartitionIndex, TopicPartition};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-console-consumer",
    about: "Writes records of topics to standard output.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::WithHelp,
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("command-config", "file", "A properties file with settings of the consumer."),
    value("command-property", "k=v", "A setting of the consumer; may be given again."),
    value("consumer-property", "k=v", "As --command-property, which replaces it."),
    value("consumer.config", "file", "As --command-config, which replaces it."),
    switch("enable-systest-events", "Say when the consumer has ended."),
    value(
        "formatter",
        "class",
        "How records look: Kafka's DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter or \
                                 OffsetsMessageFormatter.",
    ),
    value("formatter-config", "file", "A properties file with settings of the formatter."),
    value(
        "formatter-property",
        "k=v",
        "A setting of the formatter: print.timestamp, print.key, print.offset, print.epoch, \
                                        print.partition, print.headers, print.delivery (false), print.value (true), key.separator \
                                        (tab), line.separator, headers.separator, null.literal, key.deserializer, \
                                        value.deserializer, headers.deserializer.",
    ),
    switch("from-beginning", "Begin at the log start where nothing is committed."),
    value("group", "id", "The group (default: one of its own)."),
    switch("help", "Show this page."),
    value("include", "regex", "Topics by regular expression."),
    value("isolation-level", "level", "read_committed or read_uncommitted (the default)."),
    value("key-deserializer", "class", "What keys are, as StringDeserializer."),
    value("max-messages", "n", "So many records, then end."),
    value("offset", "offset", "With --partition: earliest, latest (the default) or an offset."),
    value("partition", "n", "Only this partition."),
    value("property", "k=v", "As --formatter-property, which replaces it."),
    switch("skip-message-on-error", "Go on behind a record that cannot be shown."),
    value("timeout-ms", "ms", "End when no record came for so long."),
    value("topic", "topic", "The topic."),
    value("value-deserializer", "class", "What values are, as LongDeserializer."),
    switch("version", "Show whose output is spoken."),
];

/// Where one partition is read, when one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Earliest,
    Latest,
    At(i64),
}

/// The options of one call, checked.
struct Call {
    settings: ConsumerSettings,
    formatter: Formatter,
    topic: Option<String>,
    include: Option<String>,
    partition: Option<(i32, Start)>,
    records_max: u64,
    timeout: Option<Duration>,
    skip: bool,
    events: bool,
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    for (old, new) in [
        ("consumer-property", "command-property"),
        ("consumer.config", "command-config"),
        ("property", "formatter-property"),
    ] {
        deprecated(words, old, new, &format!("Option --{old} is"), desk)?;
    }
    let call = check(words)?;
    let io = client_thread()?;
    let mut consumer = Consumer::on(&io, call.settings.clone());
    let failed = |error: ConsumerError| unknown_error(&error.to_string());
    match (&call.topic, call.partition, &call.include) {
        (Some(topic), Some((partition, start)), _) => {
            let partition = PartitionIndex::new(partition).ok_or_else(|| unknown_error("Invalid partition"))?;
            let place = TopicPartition { topic: topic.as_str().into(), partition };
            consumer.assign([place.clone()]).map_err(failed)?;
            match start {
                Start::Earliest => consumer.seek_to_beginning([&place]),
                Start::Latest => consumer.seek_to_end([&place]),
                Start::At(offset) => consumer.seek(&place, Offset::new(offset).unwrap_or(Offset::ZERO)),
            }
            .map_err(failed)?;
        }
        (Some(topic), None, _) => consumer.subscribe([topic]).map_err(failed)?,
        (None, _, Some(pattern)) => consumer.subscribe_pattern(pattern).map_err(failed)?,
        (None, _, None) => {}
    }
    let interrupted = end_polls(&io, consumer.handle())?;
    let mut reading = Reading { written: 0, last: Instant::now() };
    let ended = loop {
        if reading.written >= call.records_max || interrupted.load(Ordering::Relaxed) {
            break Ok(());
        }
        match reading.poll(&mut consumer, &call, desk) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(stop) => break Err(stop),
        }
    };
    consumer.close_sync(Duration::from_secs(10));
    let flushed = desk.out.flush();
    eprintln!("Processed a total of {} messages", reading.written);
    if call.events {
        writeln!(desk.out, "shutdown_complete")?;
    }
    ended.and(flushed.map_err(Stop::from))
}

fn unknown_error(why: &str) -> Stop {
    Stop::Said(format!("ERROR Unknown error when running consumer: \n{why}"))
}

struct Reading {
    written: u64,
    /// When the last record came.
    last: Instant,
}

impl Reading {
    /// False: the time is over.
    fn poll(&mut self, consumer: &mut Consumer, call: &Call, desk: &mut Desk<'_>) -> Result<bool, Stop> {
        let left = call.timeout.map(|timeout| timeout.saturating_sub(self.last.elapsed()));
        let batches = match consumer
            .poll_batches_sync(left.unwrap_or(Duration::from_millis(500)).min(Duration::from_millis(500)))
        {
            Ok(batches) => batches,
            Err(ConsumerError::Woken) => return Ok(true),
            Err(error) if error.retriable() => {
                eprintln!("WARN {error}");
                Vec::new()
            }
            Err(error) => return Err(unknown_error(&error.to_string())),
        };
        let mut unwritten = Unwritten::default();
        let written = self.write(&batches, call, desk, &mut unwritten);
        let arrived = desk.out.flush().map_err(Stop::from);
        let lost = arrived.is_err() || matches!(written, Err(Stop::Io(_)));
        let unwritten = if lost { Unwritten::all(&batches) } else { unwritten };
        // Before the next poll, which may commit positions.
        unwritten.give_back(consumer);
        written.and(arrived)?;
        if !batches.is_empty() {
            self.last = Instant::now();
        } else if call.timeout.is_some_and(|timeout| self.last.elapsed() >= timeout) {
            eprintln!(
                "ERROR Error processing message, terminating consumer process: \norg.apache.kafka.common.errors.TimeoutException"
            );
            return Ok(false);
        }
        Ok(true)
    }

    /// As in Kafka, a record that cannot be shown ends the tool and counts as read.
    fn write(
        &mut self,
        batches: &[RecordBatch],
        call: &Call,
        desk: &mut Desk<'_>,
        unwritten: &mut Unwritten,
    ) -> Result<(), Stop> {
        let mut text = Vec::new();
        let mut failed = Ok(());
        for batch in batches {
            let kind = batch.timestamp_kind();
            for view in batch.iter() {
                let view = view.map_err(|why| {
                    *unwritten = Unwritten::all(batches);
                    unknown_error(&format!("a damaged batch: {why}"))
                })?;
                if self.written >= call.records_max || failed.is_err() {
                    unwritten.from(batch.partition(), view.offset);
                    break;
                }
                text.clear();
                self.written += 1;
                match call.formatter.write(batch.partition(), kind, &view, &mut text) {
                    Ok(()) => desk.out.write_all(&text)?,
                    Err(why) if call.skip => {
                        eprintln!("ERROR Error processing message, skipping this message: \n{why}")
                    }
                    Err(why) => failed = Err(unknown_error(&why)),
                }
            }
        }
        failed
    }
}

fn check(words: &Words) -> Result<Call, Stop> {
    let said = |why: String| Stop::Said(why);
    let number_error = |why: String| {
        Stop::Said(format!("Exception in thread \"main\" joptsimple.OptionArgumentConversionException: {why}"))
    };
    words.require(&["bootstrap-server"]).map_err(Stop::Usage)?;
    let bootstrap = words.value("bootstrap-server").map_err(said)?.unwrap_or_default();
    words.exactly_one(&["topic", "include"]).map_err(Stop::Usage)?;
    let partition: Option<i32> = words.number("partition").map_err(number_error)?;
    let offset = words.value("offset").map_err(said)?;
    let usage = |why: &str| Err(Stop::Usage(why.to_owned()));
    if partition.is_some() && !words.has("topic") {
        return usage("The topic is required when partition is specified.");
    }
    if offset.is_some() && partition.is_none() {
        return usage("The partition is required when offset is specified.");
    }
    if offset.is_some() && words.has("from-beginning") {
        return usage("Options from-beginning and offset cannot be specified together.");
    }
    if words.has("group") && partition.is_some() {
        return usage("Options group and partition cannot be specified together.");
    }
    let start = match offset {
        None if words.has("from-beginning") => Start::Earliest,
        None => Start::Latest,
        Some(text) if text.eq_ignore_ascii_case("earliest") => Start::Earliest,
        Some(text) if text.eq_ignore_ascii_case("latest") => Start::Latest,
        Some(text) => match text.parse().ok().filter(|offset| *offset >= 0) {
            Some(offset) => Start::At(offset),
            None => {
                return Err(Stop::Usage(format!(
                    "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
                )));
            }
        },
    };
    let mut properties = Vec::new();
    if let Some(file) = words.value("formatter-config").map_err(said)? {
        properties.extend(super::properties(file).map_err(said)?);
    }
    for (option, property) in [("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")] {
        if let Some(class) = words.value(option).map_err(said)? {
            properties.push((property.to_owned(), class.to_owned()));
        }
    }
    properties.extend(key_values(words.values("property").chain(words.values("formatter-property"))));
    let formatter = Formatter::new(words.value("formatter").map_err(said)?, &properties).map_err(Stop::Usage)?;
    let settings = settings(words, bootstrap, partition.is_some())?;
    Ok(Call {
        settings,
        formatter,
        topic: words.value("topic").map_err(said)?.map(str::to_owned),
        include: match words.value("include").map_err(said)? {
            Some(text) => {
                topic_pattern(text).map_err(said)?;
                Some(text.replace(',', "|"))
            }
            None => None,
        },
        partition: partition.map(|partition| (partition, start)),
        records_max: match words.number::<i64>("max-messages").map_err(number_error)? {
            Some(count) => u64::try_from(count).unwrap_or(u64::MAX),
            None => u64::MAX,
        },
        timeout: match words.number::<i64>("timeout-ms").map_err(number_error)? {
            Some(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
            None => None,
        },
        skip: words.has("skip-message-on-error"),
        events: words.has("enable-systest-events"),
    })
}

fn settings(words: &Words, bootstrap: &str, alone: bool) -> Result<ConsumerSettings, Stop> {
    let said = |why: String| Stop::Said(why);
    let file = words.value("command-config").map_err(said)?;
    let file = file.or(words.value("consumer.config").map_err(said)?);
    let mut access = Access::new(bootstrap, file);
    access.properties = key_values(words.values("consumer-property").chain(words.values("command-property")));
    let last = |properties: &[(String, String)], key: &str| {
        properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let in_file = match file {
        Some(file) => super::properties(file).map_err(said)?,
        None => Vec::new(),
    };
    let mut groups: Vec<String> = Vec::new();
    let given = words.value("group").map_err(said)?.map(str::to_owned);
    groups.extend(given.into_iter().chain(last(&access.properties, "group.id")).chain(last(&in_file, "group.id")));
    groups.dedup();
    if groups.len() > 1 {
        let quoted: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
        return Err(Stop::Usage(format!(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') \
             do not match. Detected group ids: {}",
            quoted.join(", ")
        )));
    }
    if alone && !groups.is_empty() {
        return Err(Stop::Usage("Options group and partition cannot be specified together.".to_owned()));
    }
    let reset = last(&access.properties, "auto.offset.reset").or_else(|| last(&in_file, "auto.offset.reset"));
    match reset {
        Some(reset) if words.has("from-beginning") && reset != "earliest" => {
            return Err(Stop::Said(format!(
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
            )));
        }
        Some(_) => {}
        None => {
            let reset = if words.has("from-beginning") { "earliest" } else { "latest" };
            access.properties.push(("auto.offset.reset".to_owned(), reset.to_owned()));
        }
    }
    let mut defaults = vec![("client.id", "console-consumer".to_owned())];
    match (groups.pop(), alone) {
        (Some(group), _) => access.properties.push(("group.id".to_owned(), group)),
        (None, true) => {}
        (None, false) => {
            access.properties.push(("group.id".to_owned(), format!("console-consumer-{}", fastrand::u32(1..100_000))));
            // Nobody will come back to this group.
            defaults.push(("enable.auto.commit", "false".to_owned()));
        }
    }
    if let Some(level) = words.value("isolation-level").map_err(said)? {
        access.properties.push(("isolation.level".to_owned(), level.to_owned()));
    }
    if let Err(wrong) = check_brokers(bootstrap) {
        return Err(unknown_error(&format!(
            "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer\n\
             Caused by: org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: {wrong}"
        )));
    }
    access.settings(&defaults).map_err(|error| unknown_error(&super::config_exception(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::tests;

    fn checked(line: &str) -> Result<Call, String> {
        tests::checked(&TOOL, line, |words, _| check(words))
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        for (line, wanted) in [
            ("--topic t", "Missing required argument \"[bootstrap-server]\""),
            ("--bootstrap-server h:1", "Exactly one of the following arguments is required: [topic], [include]"),
            ("--bootstrap-server h:1 --topic t --offset 3", "The partition is required when offset is specified."),
            (
                "--bootstrap-server h:1 --topic t --partition 0 --group g",
                "Options group and partition cannot be specified together.",
            ),
            (
                "--bootstrap-server h:1 --topic t --partition 0 --command-property group.id=g",
                "Options group and partition cannot be specified together.",
            ),
            (
                "--bootstrap-server h:1 --topic t --partition 0 --from-beginning --offset 4",
                "Options from-beginning and offset cannot be specified together.",
            ),
            (
                "--bootstrap-server h:1 --topic t --partition 0 --offset -5",
                "The provided offset value '-5' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long.",
            ),
            (
                "--bootstrap-server h:1 --topic t --group g1 --command-property group.id=g2",
                "The group ids provided in different places (directly using '--group', via '--consumer-property', or via \
                 '--consumer.config') do not match. Detected group ids: 'g1', 'g2'",
            ),
            (
                "--bootstrap-server h:1 --topic t --from-beginning --command-property auto.offset.reset=latest",
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
            ),
            ("--bootstrap-server h:1 --topic t --formatter foo.Bar", "foo.Bar"),
        ] {
            assert_eq!(checked(line).err().as_deref(), Some(wanted), "{line}");
        }
    }

    #[test]
    fn without_a_group_it_makes_up_one_and_commits_nothing() {
        let call = checked("--bootstrap-server h:1 --topic t").unwrap();
        assert!(call.settings.group_id.unwrap().starts_with("console-consumer-"));
        assert!(!call.settings.enable_auto_commit);
        let call = checked("--bootstrap-server h:1 --topic t --partition 0 --offset 2").unwrap();
        assert_eq!((call.settings.group_id, call.partition), (None, Some((0, Start::At(2)))));
        let call = checked("--bootstrap-server h:1 --topic t --partition 0 --offset EARLIEST").unwrap();
        assert_eq!(call.partition, Some((0, Start::Earliest)));
        assert!(checked("--bootstrap-server h:1 --topic t --group g").unwrap().settings.enable_auto_commit);
    }
}
