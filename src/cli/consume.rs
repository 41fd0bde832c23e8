//! `ringlog consume`: records of topics to standard output.
//!
//! Shell: runs a consumer, writes records. Owns the command's flags, where reading begins and ends, and the commit of what was written.
//! How a record looks is in `record_format`. Always: what is written is what is committed, never more; with `-e`, `-n` or a range
//! the command ends by itself. Source: kcat's `-C`, rpk's `topic consume`.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use jiff::tz::TimeZone;
use regex::Regex;

use super::connect::ConnectArgs;
use super::interrupt::end_polls;
use super::offset_range::{Begin, OffsetRange, Until, parse};
use super::outcome::{listed, with_hint};
use super::record_format::{Format, Shown, TOKENS, envelope, unescape};
use super::{EXIT_INTERRUPTED, Failure, unix_now_ms};
use crate::client::admin::{BlockingAdmin, OffsetSpec};
use crate::client::consumer::RecordBatch;
use crate::client::settings::IsolationLevel;
use crate::client::{Admin, AdminSettings, Consumer, ConsumerError, ConsumerSettings, Io};
use crate::types::{Offset, PartitionIndex, TopicPartition};

const EXAMPLES: &str = "\
Examples:
  ringlog consume orders                          everything, then whatever comes
  ringlog consume orders -o -10 -e                the last ten of each partition
  ringlog consume orders -o @-1h:end -J           the last hour, as JSON
  ringlog consume orders -p 0 -o 100:200          offsets 100 to 199
  ringlog consume orders -g billing               as a member of a group; what was written is committed
  ringlog consume orders -f '%p %o %d %k=%v\\n' -n 5";

/// How long a poll waits.
const POLL: Duration = Duration::from_millis(500);
/// How long a farewell may take.
const CLOSE: Duration = Duration::from_secs(10);

/// Writes the records of topics to standard output.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{TOKENS}"))]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Which topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// The names are regular expressions
    #[arg(short, long)]
    regex: bool,
    /// As a member of that group
    #[arg(short, long, conflicts_with = "partitions")]
    group: Option<String>,
    /// Only these partitions
    #[arg(short, long, value_name = "N,…", value_delimiter = ',')]
    partitions: Vec<i32>,
    /// From where to where: start, end, 42, -42 (before the end), +42 (after the start), 10:20, @-1h, @MOMENT:MOMENT
    /// [default: start, with -g stored, and where nothing is, what auto.offset.reset says, else start]
    #[arg(short, long, value_name = "RANGE", allow_hyphen_values = true)]
    offset: Option<String>,
    /// So many records, then end
    #[arg(short = 'n', long, visible_short_alias = 'c', value_name = "N")]
    num: Option<u64>,
    /// End when everything that was there is written
    #[arg(short, long)]
    exit: bool,
    /// How a record looks [default: %v\n]
    #[arg(short, long, value_name = "FORMAT", conflicts_with_all = ["json", "key_delimiter", "delimiter"])]
    format: Option<String>,
    /// One JSON object a line
    #[arg(short = 'J', long)]
    json: bool,
    /// Write the key and this before the value
    #[arg(short = 'K', long, value_name = "TEXT", conflicts_with = "json")]
    key_delimiter: Option<String>,
    /// What stands behind each record [default: \n]
    #[arg(short = 'D', long, value_name = "TEXT", conflicts_with = "json")]
    delimiter: Option<String>,
    /// read-committed leaves out records of aborted and open transactions [default: isolation.level, else read-uncommitted]
    #[arg(long, value_name = "LEVEL",
          value_parser = ["read-committed", "read-uncommitted", "read_committed", "read_uncommitted"])]
    isolation: Option<String>,
}

/// How records are written.
enum Look {
    Format(Format),
    Json,
    /// Key and delimiter (if any), value, delimiter.
    Plain(Option<Vec<u8>>, Vec<u8>),
}

impl Look {
    fn of(args: &ConsumeArgs) -> Result<Self, String> {
        if args.json {
            return Ok(Self::Json);
        }
        if let Some(format) = &args.format {
            let format = Format::parse(format, TimeZone::system()).map_err(|why| format!("--format {why}"))?;
            return Ok(Self::Format(format));
        }
        let key_end = args.key_delimiter.as_deref().map(unescape).transpose().map_err(|why| format!("-K: {why}"))?;
        let end = unescape(args.delimiter.as_deref().unwrap_or("\\n")).map_err(|why| format!("-D: {why}"))?;
        Ok(Self::Plain(key_end, end))
    }

    fn render(&self, record: &Shown<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Format(format) => format.render(record, out),
            Self::Json => {
                out.extend_from_slice(envelope(record).as_bytes());
                out.push(b'\n');
            }
            Self::Plain(key_end, end) => {
                if let Some(key_end) = key_end {
                    out.extend_from_slice(record.key.unwrap_or_default());
                    out.extend_from_slice(key_end);
                }
                out.extend_from_slice(record.value.unwrap_or_default());
                out.extend_from_slice(end);
            }
        }
    }
}

/// Reads and writes until the end, the count, or Ctrl-C.
pub(super) fn run(args: &ConsumeArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let look = Look::of(args).map_err(|why| anyhow!(why))?;
    let range = range(args)?;
    let settings = settings(args, range)?;
    args.connect.tell_notes(&settings.client.notes);
    let io = Io::start("client")?;
    let admin: AdminSettings = args.connect.settings(&[("client.id", "ringlog")], &[])?;
    let admin = Admin::on(&io, admin).within(args.connect.patience()).blocking();
    admin.reach()?;
    let committed = settings.isolation_level == IsolationLevel::ReadCommitted;
    let wanted = Wanted { args, topics: topics(&admin, args)?, admin, committed };
    let mut consumer = Consumer::on(&io, settings);
    let ends = if args.group.is_some() {
        wanted.join_group(&mut consumer)?
    } else {
        let bounds = wanted.bounds(range.unwrap_or(OffsetRange { from: Begin::Start, to: Until::Open }))?;
        let ends = assign(&mut consumer, &bounds)?;
        if !ends.is_empty() && bounds.iter().all(|one| one.to.is_some_and(|to| one.from >= to)) {
            return Ok(());
        }
        ends
    };
    let interrupted = end_polls(&io, consumer.handle())?;
    let reading =
        Reading { out: BufWriter::with_capacity(64 << 10, out), look: &look, left: args.num.unwrap_or(u64::MAX), ends };
    let ended = reading.run(&mut consumer, args, &interrupted);
    consumer.close_sync(CLOSE);
    match ended {
        Ok(()) if interrupted.load(Ordering::Relaxed) => Err(Failure::Told(EXIT_INTERRUPTED)),
        other => other,
    }
}

fn range(args: &ConsumeArgs) -> anyhow::Result<Option<OffsetRange>> {
    let Some(text) = args.offset.as_deref() else { return Ok(None) };
    let range = parse(text, unix_now_ms(), &TimeZone::system());
    range.map(Some).map_err(|why| anyhow!("--offset: {why}"))
}

/// The consumer's settings. Errors: also where a group is told to begin elsewhere than where it stopped.
fn settings(args: &ConsumeArgs, range: Option<OffsetRange>) -> Result<ConsumerSettings, Failure> {
    let reset = match (&args.group, range) {
        (None, _) => "none",
        (Some(_), None | Some(OffsetRange { from: Begin::Stored | Begin::Start, to: Until::Open })) => "earliest",
        (Some(_), Some(OffsetRange { from: Begin::End, to: Until::Open })) => "latest",
        (Some(group), _) => {
            return Err(anyhow!(
                "--offset: a group begins where it stopped; -o start and -o end say where it begins the first time. To move it: \
                 ringlog groups reset {group} --all-topics --to … --execute"
            )
            .into());
        }
    };
    let mut flags = Vec::new();
    if let Some(level) = &args.isolation {
        flags.push(("isolation.level", level.replace('-', "_")));
    }
    if let Some(group) = &args.group {
        flags.push(("group.id", group.clone()));
        // What -o says of a group's first time is stronger than settings; without it they are.
        if matches!(range, Some(OffsetRange { from: Begin::Start | Begin::End, .. })) {
            flags.push(("auto.offset.reset", reset.to_owned()));
        }
    }
    let defaults = [("client.id", "ringlog"), ("auto.offset.reset", reset)];
    let mut settings: ConsumerSettings = args.connect.settings(&defaults, &flags)?;
    settings.client.allow_auto_create_topics = false;
    if args.group.is_none() {
        settings.group_id = None;
    }
    Ok(settings)
}

/// A consumer's failure, with the exit code of what is behind it.
pub(super) fn failed(error: ConsumerError) -> Failure {
    match error {
        ConsumerError::Client(error) => Failure::from(error),
        other => Failure::from(anyhow!(other)),
    }
}

fn place(topic: &str, partition: i32) -> TopicPartition {
    let partition = PartitionIndex::new(partition).unwrap_or(PartitionIndex::ZERO);
    TopicPartition { topic: topic.into(), partition }
}

/// The topics that are meant, with their partitions.
fn topics(admin: &BlockingAdmin, args: &ConsumeArgs) -> Result<Vec<(String, Vec<i32>)>, Failure> {
    let names = if args.regex {
        let pattern = |name: &String| {
            Regex::new(&format!("^(?:{name})$")).map_err(|error| anyhow!("{name:?} is no regular expression: {error}"))
        };
        let patterns = args.topics.iter().map(pattern).collect::<anyhow::Result<Vec<_>>>()?;
        let all = admin.list_topics(false)?.into_iter().map(|topic| topic.name);
        let matching: Vec<String> = all.filter(|name| patterns.iter().any(|one| one.is_match(name))).collect();
        if matching.is_empty() && args.group.is_none() {
            return Err(anyhow!("no topic matches {}", args.topics.join(" or ")).into());
        }
        matching
    } else {
        args.topics.clone()
    };
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for topic in admin.describe_topics(names)? {
        if let Some(error) = &topic.error {
            return Err(anyhow!("topic {}: {}", topic.name, with_hint(admin, &topic.name, error)).into());
        }
        let all: Vec<i32> = topic.partitions.iter().map(|one| one.partition).collect();
        if let Some(unknown) = args.partitions.iter().find(|one| !all.contains(one)) {
            return Err(anyhow!("topic {} has no partition {unknown}: it has {}", topic.name, all.len()).into());
        }
        let chosen = if args.partitions.is_empty() { all } else { args.partitions.clone() };
        found.push((topic.name, chosen));
    }
    Ok(found)
}

/// Where one partition is read.
struct Bounds {
    place: TopicPartition,
    from: i64,
    /// Exclusive; `None`: without end.
    to: Option<i64>,
}

/// Gives the consumer its partitions, each from where it begins. Where they end, exclusive.
fn assign(consumer: &mut Consumer, bounds: &[Bounds]) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    consumer.assign(bounds.iter().map(|one| one.place.clone())).map_err(failed)?;
    let mut ends = BTreeMap::new();
    for one in bounds {
        let from = Offset::new(one.from).ok_or_else(|| anyhow!("{}: offset {} is below 0", one.place, one.from))?;
        consumer.seek(&one.place, from).map_err(failed)?;
        ends.extend(one.to.map(|to| (one.place.clone(), to)));
    }
    Ok(ends)
}

/// What is to be read.
struct Wanted<'w> {
    args: &'w ConsumeArgs,
    admin: BlockingAdmin,
    topics: Vec<(String, Vec<i32>)>,
    /// Whether a partition ends before the first open transaction.
    committed: bool,
}

impl Wanted<'_> {
    /// Joins the group. Where each partition ends, exclusive, when reading is to end there.
    fn join_group(&self, consumer: &mut Consumer) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
        match self.args.regex {
            true => consumer.subscribe_pattern(&self.args.topics.join("|")).map_err(failed)?,
            false => consumer.subscribe(self.topics.iter().map(|(name, _)| name.as_str())).map_err(failed)?,
        }
        let mut ends = BTreeMap::new();
        if self.args.exit {
            // An end that is not told is an error: without it a partition would be read for ever.
            for ((topic, partition), end) in self.offsets(OffsetSpec::Latest)? {
                ends.extend(end.map(|end| (place(&topic, partition), end)));
            }
        }
        Ok(ends)
    }

    fn places(&self) -> impl Iterator<Item = (String, i32)> {
        self.topics.iter().flat_map(|(name, partitions)| partitions.iter().map(move |one| (name.clone(), *one)))
    }

    /// What the leader of each partition answers. Errors: the first that it does not tell.
    fn offsets(&self, spec: OffsetSpec) -> Result<BTreeMap<(String, i32), Option<i64>>, Failure> {
        let asked = self.places().map(|(topic, partition)| (topic, partition, spec)).collect();
        let mut offsets = BTreeMap::new();
        for one in self.admin.list_offsets(asked, self.committed)? {
            let offset = listed(&one)?;
            offsets.insert((one.topic, one.partition), offset);
        }
        Ok(offsets)
    }

    /// The offsets of a range in each partition.
    fn bounds(&self, range: OffsetRange) -> Result<Vec<Bounds>, Failure> {
        let starts = self.offsets(OffsetSpec::Earliest)?;
        let ends = self.offsets(OffsetSpec::Latest)?;
        let from_time = match range.from {
            Begin::Time(moment) => self.offsets(OffsetSpec::Timestamp(moment))?,
            _ => BTreeMap::new(),
        };
        let to_time = match range.to {
            Until::Time(moment) => self.offsets(OffsetSpec::Timestamp(moment))?,
            _ => BTreeMap::new(),
        };
        let mut found = Vec::new();
        for at in self.places() {
            let of = |offsets: &BTreeMap<(String, i32), Option<i64>>| offsets.get(&at).copied().flatten();
            let start = of(&starts).unwrap_or(0);
            let end = of(&ends).unwrap_or(start);
            let from = match range.from {
                Begin::Start => start,
                Begin::End => end,
                Begin::Stored => return Err(anyhow!("--offset stored: that is a group's; say which with -g").into()),
                Begin::At(offset) => offset,
                Begin::AfterStart(count) => start.saturating_add(count),
                Begin::BeforeEnd(count) => end.saturating_sub(count).max(start),
                Begin::Time(_) => of(&from_time).unwrap_or(end),
            };
            let to = match range.to {
                Until::Open if self.args.exit => Some(end),
                Until::Open => None,
                Until::End => Some(end),
                Until::Before(offset) => Some(if self.args.exit { offset.min(end) } else { offset }),
                // No record as late: everything there is comes before.
                Until::Time(_) => Some(of(&to_time).unwrap_or(end)),
            };
            if (from < start || from > end) && matches!(range.from, Begin::At(_) | Begin::AfterStart(_)) {
                return Err(anyhow!("{}-{}: offset {from} is not there: it has {start} to {end}", at.0, at.1).into());
            }
            found.push(Bounds { place: place(&at.0, at.1), from, to });
        }
        Ok(found)
    }
}

/// Records on their way out.
struct Reading<'r, W: Write> {
    out: BufWriter<W>,
    look: &'r Look,
    /// Records that may still be written.
    left: u64,
    /// Where each partition ends, exclusive.
    ends: BTreeMap<TopicPartition, i64>,
}

/// Where partitions are to be read again, because a poll gave what was not written. A poll moves the positions of all that it
/// gives, also of partitions none of whose records came to be written, and positions are what is committed.
#[derive(Debug, Default)]
pub(super) struct Unwritten(BTreeMap<TopicPartition, Offset>);

impl Unwritten {
    /// All of a poll: how much of it arrived is not known, and rather all of it twice than a record never.
    pub(super) fn all(batches: &[RecordBatch]) -> Self {
        let begin = |batch: &RecordBatch| match batch.iter().next()? {
            Ok(view) => Some(view.offset),
            Err(_) => Offset::new(batch.info().base_offset),
        };
        // The first batch of a partition comes last, and its offset stays.
        Self(batches.iter().rev().filter_map(|batch| Some((batch.partition().clone(), begin(batch)?))).collect())
    }

    /// That record, and what comes after it.
    pub(super) fn from(&mut self, at: &TopicPartition, offset: Offset) {
        if !self.0.contains_key(at) {
            self.0.insert(at.clone(), offset);
        }
    }

    /// Moves the positions back.
    pub(super) fn give_back(self, consumer: &Consumer) {
        for (at, offset) in &self.0 {
            if consumer.known_position(at).is_some_and(|position| position > *offset) {
                // A partition that went to another member is that one's matter.
                _ = consumer.seek(at, *offset);
            }
        }
    }
}

impl<W: Write> Reading<'_, W> {
    fn run(mut self, consumer: &mut Consumer, args: &ConsumeArgs, interrupted: &AtomicBool) -> Result<(), Failure> {
        let bounded = args.exit || !self.ends.is_empty();
        while self.left > 0 && !interrupted.load(Ordering::Relaxed) {
            match consumer.poll_batches_sync(POLL) {
                Ok(batches) => {
                    let mut unwritten = Unwritten::default();
                    let written = batches.iter().try_for_each(|batch| self.write(batch, &mut unwritten));
                    let written = written.and_then(|()| Ok(self.out.flush()?));
                    let unwritten = if written.is_ok() { unwritten } else { Unwritten::all(&batches) };
                    // Before the next poll, which may commit positions.
                    unwritten.give_back(consumer);
                    written?;
                }
                Err(ConsumerError::Woken) => break,
                Err(error) if error.retriable() => args.connect.say(format_args!("{error}; trying again")),
                Err(error) => return Err(failed(error)),
            }
            if bounded && self.all_ended(consumer, args.group.is_some()) {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, unwritten: &mut Unwritten) -> Result<(), Failure> {
        let at = batch.partition();
        let end = self.ends.get(at).copied().unwrap_or(i64::MAX);
        let mut text = Vec::new();
        for view in batch.iter() {
            let view = view.map_err(|why| anyhow!("{at}: a damaged batch: {why}"))?;
            if self.left == 0 || view.offset.value() >= end {
                unwritten.from(at, view.offset);
                break;
            }
            self.left -= 1;
            text.clear();
            let shown = Shown {
                topic: &at.topic,
                partition: at.partition.value(),
                offset: view.offset.value(),
                leader_epoch: batch.leader_epoch().map(|epoch| epoch.value()),
                timestamp: view.timestamp,
                log_append_time: batch.info().log_append_time,
                key: view.key,
                value: view.value,
                headers: &view.headers,
            };
            self.look.render(&shown, &mut text);
            self.out.write_all(&text)?;
        }
        Ok(())
    }

    /// Whether every partition that is read has come to its end; those that have are not read on.
    fn all_ended(&self, consumer: &Consumer, group: bool) -> bool {
        let assigned = consumer.assignment();
        // A member that has nothing yet waits for its share.
        if assigned.is_empty() && group {
            return false;
        }
        let mut all = true;
        for at in &assigned {
            let Some(end) = self.ends.get(at) else { return false };
            let position = consumer.known_position(at).map(|offset| offset.value());
            if position.is_some_and(|position| position >= *end) {
                // It is only not asked for any more: nothing is lost if that fails.
                _ = consumer.pause([at]);
            } else {
                all = false;
            }
        }
        all
    }
}
