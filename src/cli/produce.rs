//! `ringlog produce`: records from standard input or files to a topic.
//!
//! Shell: reads input, runs a producer. Owns the command's flags and the count of what was delivered. How input becomes records is in
//! `record_input`. Always: a topic that is not there is an error, not a new topic, unless `--create` says so; what was read is
//! delivered, also when a signal ends the command; nothing but `-v` and failures is said. Source: kcat's `-P`, rpk's `topic produce`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use futures_lite::future::block_on;

use super::connect::ConnectArgs;
use super::interrupt::Intake;
use super::outcome::{Tally, with_hint};
use super::record_format::unescape;
use super::record_input::{Cutter, Given, Input, Place, parse_fields, parse_header};
use super::{EXIT_INTERRUPTED, EXIT_UNREACHABLE, Failure};
use crate::client::{
    Admin, AdminSettings, Delivery, Io, ProduceError, Producer, ProducerRecord, ProducerSettings, SendError,
};
use crate::types::{PartitionIndex, TopicName};

const EXAMPLES: &str = "\
Examples:
  seq 100 | ringlog produce orders
  printf 'k1:v1\\nk2:v2\\n' | ringlog produce orders -K : -z zstd
  ringlog produce orders -k alert -H source=cron message.txt -D ''
  ringlog consume orders -o start -e -J | ringlog produce copy -J
  ringlog consume orders pay -e -J | ringlog produce orders -J --own-place -b other:9092
  printf '1 key value\\n' | ringlog produce orders -f '%p %k %v\\n'

A format (-f) is made of %k key, %v value, %p partition, %T timestamp, %t topic, %h headers (name=value,…), each ended by the text
behind it or sized (%v{16}), and of \\n \\t \\xNN.";

/// Reads of input.
const CHUNK_BYTES: usize = 64 << 10;
/// Records whose end is awaited; behind them reading waits.
const UNTOLD_MAX: usize = 20_000;
/// Failures that are shown one by one.
const SHOWN_MAX: usize = 10;

/// Sends records from standard input, or files, to a topic.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Where to; with --own-place or %t records may name their own
    topic: String,
    /// What to send instead of standard input
    files: Vec<PathBuf>,
    /// The key of every record
    #[arg(short, long, conflicts_with_all = ["key_delimiter", "format", "json"])]
    key: Option<String>,
    /// What stands between key and value; without it in a record, the key is null
    #[arg(short = 'K', long, value_name = "TEXT", conflicts_with_all = ["format", "json"])]
    key_delimiter: Option<String>,
    /// What stands between records; '' makes each file one record [default: \n]
    #[arg(short = 'D', long, value_name = "TEXT", conflicts_with_all = ["format", "json"])]
    delimiter: Option<String>,
    /// A header of every record; without = its value is null; may be given again
    #[arg(short = 'H', long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// To that partition [default: by key, else any]
    #[arg(short, long, value_name = "N")]
    partition: Option<i32>,
    /// How records are compressed: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long, value_name = "CODEC")]
    compression: Option<String>,
    /// Who must have a record: all, 1 (the leader), 0 (nobody)
    #[arg(long, value_name = "ACKS")]
    acks: Option<String>,
    /// Empty keys and values are null
    #[arg(short = 'Z', long)]
    null: bool,
    /// How the input is made up
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<String>,
    /// One JSON object a line, as consume -J writes them
    #[arg(short = 'J', long)]
    json: bool,
    /// With -J: each record goes to the topic and partition it names, instead of to TOPIC by its key
    #[arg(long, requires = "json")]
    own_place: bool,
    /// At most so many records a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// A topic that is not there is created, where the broker allows that
    #[arg(long)]
    create: bool,
}

/// Sends everything and waits for the last acknowledgement.
pub(super) fn run(args: &ProduceArgs) -> Result<(), Failure> {
    let input = input(args).map_err(|why| anyhow!(why))?;
    let mut flags = Vec::new();
    if let Some(codec) = &args.compression {
        flags.push(("compression.type", codec.clone()));
    }
    if let Some(acks) = &args.acks {
        flags.push(("acks", acks.clone()));
    }
    let partition = args
        .partition
        .map(|index| PartitionIndex::new(index).ok_or_else(|| anyhow!("--partition {index}: partitions begin at 0")));
    let partition = partition.transpose()?;
    let mut settings: ProducerSettings = args.connect.settings(&[("client.id", "ringlog")], &flags)?;
    settings.client.allow_auto_create_topics = args.create;
    args.connect.tell_notes(&settings.client.notes);
    let io = Io::start("client")?;
    if !args.create {
        let admin: AdminSettings = args.connect.settings(&[("client.id", "ringlog")], &[])?;
        let admin = Admin::on(&io, admin).within(args.connect.patience()).blocking();
        admin.reach()?;
        for topic in admin.describe_topics(vec![args.topic.clone()])? {
            if let Some(error) = &topic.error {
                let hint = with_hint(&admin, &topic.name, error);
                return Err(
                    anyhow!("topic {}: {hint}; --create makes it, where the broker allows that", topic.name).into()
                );
            }
        }
    }
    let producer = Producer::on(&io, settings)?;
    let mut sending = Sending {
        intake: Arc::new(Intake::of(&io, &producer)?),
        producer,
        topic: args.topic.as_str().into(),
        partition,
        key: args.key.clone().map(String::into_bytes),
        headers: args.header.iter().map(|text| parse_header(text)).collect(),
        untold: VecDeque::new(),
        tally: Tally::default(),
        delivered: 0,
        failed: 0,
        late: false,
        verbose: args.connect.verbose,
        pace: args.rate.map(|rate| (rate, Instant::now(), 0)),
    };
    let read = sending.send_inputs(&args.files, &input);
    // Whatever ended the reading, what was read before it is delivered.
    let (ended, interrupted) = sending.end();
    let delivered = match read {
        // Closed by the signal: what failed of it is told.
        _ if interrupted => return Err(Failure::Told(EXIT_INTERRUPTED)),
        // Of records that failed it was told already, and their exit code says more.
        Ok(()) | Err(Failure::Told(_)) => ended?,
        Err(failure) => return Err(failure),
    };
    if args.connect.verbose {
        args.connect.say(format_args!("{delivered} records sent to {}", args.topic));
    }
    Ok(())
}

fn input(args: &ProduceArgs) -> Result<Input, String> {
    if args.json {
        return Ok(Input::Json(if args.own_place { Place::Goes } else { Place::Was }));
    }
    if let Some(format) = &args.format {
        return Ok(Input::Fields(parse_fields(format).map_err(|why| format!("--format: {why}"))?));
    }
    let bytes = |flag: &str, text: &str| unescape(text).map_err(|why| format!("{flag}: {why}"));
    let key_end = args.key_delimiter.as_deref().map(|text| bytes("-K", text)).transpose()?;
    if key_end.as_ref().is_some_and(Vec::is_empty) {
        return Err("-K: the delimiter is empty".to_owned());
    }
    let record_end = bytes("-D", args.delimiter.as_deref().unwrap_or("\\n"))?;
    Ok(Input::Lines { record_end, key_end, empty_is_null: args.null })
}

/// A producer with what it has not told of yet.
struct Sending {
    intake: Arc<Intake>,
    producer: Producer,
    topic: TopicName,
    partition: Option<PartitionIndex>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    untold: VecDeque<Delivery>,
    tally: Tally,
    delivered: u64,
    failed: usize,
    /// A failure was a time-out.
    late: bool,
    verbose: bool,
    /// Records a second, since when, how many.
    pace: Option<(u64, Instant, u64)>,
}

impl Sending {
    fn send_inputs(&mut self, files: &[PathBuf], input: &Input) -> Result<(), Failure> {
        if files.is_empty() {
            return self.send_all(&mut io::stdin().lock(), input.clone());
        }
        for file in files {
            let mut opened = File::open(file).with_context(|| file.display().to_string())?;
            self.send_all(&mut opened, input.clone()).map_err(|failure| match failure {
                Failure::Operation(error) => Failure::Operation(error.context(file.display().to_string())),
                other => other,
            })?;
        }
        Ok(())
    }

    fn send_all(&mut self, from: &mut (impl Read + AsFd), input: Input) -> Result<(), Failure> {
        let mut cutter = Cutter::new(input);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let intake = Arc::clone(&self.intake);
            let _busy = intake.next(&*from)?;
            let count = match from.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            cutter.feed(&chunk[..count]).map_err(|why| anyhow!(why))?;
            while let Some(given) = cutter.cut(count == 0).map_err(|why| anyhow!(why))? {
                self.send(given)?;
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    fn send(&mut self, given: Given) -> Result<(), Failure> {
        self.keep_pace();
        let partition = match given.partition {
            None => self.partition,
            Some(index) => {
                Some(PartitionIndex::new(index).ok_or_else(|| anyhow!("partition {index}: partitions begin at 0"))?)
            }
        };
        let mut record = ProducerRecord {
            topic: given.topic.map_or_else(|| self.topic.clone(), TopicName::from),
            partition,
            key: given.key.or_else(|| self.key.clone()).map(Into::into),
            value: given.value.map(Into::into),
            timestamp: given.timestamp,
            headers: Default::default(),
        };
        for (name, value) in self.headers.iter().cloned().chain(given.headers) {
            record.headers.push(name, value.map(Into::into));
        }
        match block_on(self.producer.send(record)) {
            Ok(delivery) => self.untold.push_back(delivery),
            // The patience of a signal was over before all that was read was sent.
            Err(SendError::Closed) if self.intake.interrupted() => return Err(Failure::Told(EXIT_INTERRUPTED)),
            Err(error @ (SendError::NoTopic { .. } | SendError::Fatal { .. } | SendError::Closed)) => {
                self.late |= matches!(error, SendError::NoTopic { .. });
                self.tell(&error);
                return Err(Failure::Told(super::EXIT_FAILED));
            }
            Err(error) => self.tell(&error),
        }
        self.settle(UNTOLD_MAX);
        Ok(())
    }

    fn keep_pace(&mut self) {
        let Some((rate, since, count)) = &mut self.pace else { return };
        let due = *since + Duration::from_secs_f64(*count as f64 / *rate as f64);
        *count += 1;
        // Whoever ends the command does not wait for its pace.
        if self.intake.interrupted() {
            return;
        }
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            super::pause(wait);
        }
    }

    /// Hears of the oldest until no more than `left` are open.
    fn settle(&mut self, left: usize) {
        while self.untold.len() > left {
            let Some(delivery) = self.untold.pop_front() else { return };
            match delivery.wait() {
                Ok(place) => {
                    self.delivered += 1;
                    self.tally.done();
                    if self.verbose {
                        eprintln!("{place}");
                    }
                }
                Err(error) => {
                    self.late |= matches!(error, ProduceError::TimedOut { .. });
                    self.tell(&error);
                }
            }
        }
    }

    fn tell(&mut self, why: &dyn std::fmt::Display) {
        self.failed += 1;
        if self.failed <= SHOWN_MAX {
            self.tally.failed(&format!("topic {}", self.topic), why);
        }
    }

    fn failure(&mut self) -> Failure {
        if self.failed > SHOWN_MAX {
            self.tally
                .failed(&format!("topic {}", self.topic), format!("{} records in all were not sent", self.failed));
        }
        if self.delivered == 0 && self.late {
            return Failure::Told(EXIT_UNREACHABLE);
        }
        match std::mem::take(&mut self.tally).end() {
            Err(failure) => failure,
            Ok(()) => Failure::Told(super::EXIT_FAILED),
        }
    }

    /// How many were delivered, and whether a signal came. Errors: some were not.
    fn end(mut self) -> (Result<u64, Failure>, bool) {
        // Open batches go now instead of after their linger.
        self.producer.flush_sync();
        self.settle(0);
        let delivered = if self.failed > 0 { Err(self.failure()) } else { Ok(self.delivered) };
        (delivered, self.intake.interrupted())
    }
}
