//! Proof while measuring: was anything lost, duplicated, reordered or altered?
//!
//! Pure. Owns the stamp in the first [`STAMP_BYTES`] of every record's value and the ledger of what was acknowledged and what
//! was read. Does not own the verdict on anything odd: that is [`crate::history`]'s, the checker of the kill
//! tests. Always true: a record is never called read that was not stamped by this run; the checksum covers every byte.
//! Source: Jepsen's Kafka workload, by way of `history`.
//!
//! Acknowledgements and reads come in runs (a batch is one): number and offset rise together. The ledger keeps runs, some
//! bytes a batch rather than forty a record, so that verifying does not disturb what is measured. Where runs of both
//! sides are the same and rise, nothing can be wrong; what differs is told to the history, record by record and with the
//! records around it, and judged there. A test feeds random histories to both and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::history::{Anomaly, Event, History, Value};
use crate::types::Offset;

/// First bytes of a value that carry the stamp: the smallest value that can be verified.
pub const STAMP_BYTES: usize = 28;
/// Differing records of one partition the history is fed; it takes about 60 bytes each. What lies beyond is lost where nobody read
/// it; else it is not judged, and the verdict says so.
const JUDGED_RECORDS_MAX: u64 = 20_000_000;
/// Lines of evidence in a report.
const EVIDENCE_MAX: usize = 20;

/// What a record says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Which run wrote it: records of other runs are not ours to judge.
    pub run: u32,
    /// Producer and number.
    pub value: Value,
    /// When it was meant to be sent: nanoseconds of the host's monotonic clock.
    pub intended_ns: u64,
}

// Value 8 · intended 8 · run 4 · length 4 · checksum 4, all big-endian. The checksum covers the rest, then the payload.
const CHECKSUM_AT: usize = 24;
const _: () = assert!(CHECKSUM_AT + 4 == STAMP_BYTES);

impl Stamp {
    /// Writes the stamp over the first bytes of `record`. Panics when it is shorter than [`STAMP_BYTES`].
    pub fn write(&self, record: &mut [u8]) {
        let length = u32::try_from(record.len()).expect("a record is far below 4 GiB");
        let (head, rest) = record.split_at_mut(STAMP_BYTES);
        head[0..8].copy_from_slice(&self.value.to_bytes());
        head[8..16].copy_from_slice(&self.intended_ns.to_be_bytes());
        head[16..20].copy_from_slice(&self.run.to_be_bytes());
        head[20..24].copy_from_slice(&length.to_be_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[..CHECKSUM_AT]), rest);
        head[CHECKSUM_AT..].copy_from_slice(&checksum.to_be_bytes());
    }

    /// When a record of any run was meant to be sent, nanoseconds of the host's clock; `None` without a stamp. The checksum is
    /// not looked at: whoever measures latency has no time for it, and verification does.
    pub fn time_of(record: &[u8]) -> Option<u64> {
        let head = record.first_chunk::<STAMP_BYTES>()?;
        let [.., a, b, c, d, _, _, _, _] = *head;
        Value::from_bytes(head)?;
        if u32::from_be_bytes([a, b, c, d]) as usize != record.len() {
            return None;
        }
        let mut intended = [0; 8];
        intended.copy_from_slice(&head[8..16]);
        Some(u64::from_be_bytes(intended))
    }

    /// Reads a stamp of `run`.
    pub fn read(record: &[u8], run: u32) -> Read {
        let Some((head, rest)) = record.split_at_checked(STAMP_BYTES) else { return Read::Foreign };
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[..CHECKSUM_AT]), rest);
        let mut intended = [0; 8];
        intended.copy_from_slice(&head[8..16]);
        let stamp = Value::from_bytes(head).map(|value| Stamp {
            run: word(16),
            value,
            intended_ns: u64::from_be_bytes(intended),
        });
        let whole = checksum == word(CHECKSUM_AT) && word(20) as usize == record.len();
        match stamp {
            Some(stamp) if whole && stamp.run == run => Read::Ours(stamp),
            Some(_) if whole => Read::Foreign,
            // Damaged, and it still says it is ours: in its run, or in the value if the run is what was damaged.
            _ if word(16) == run => Read::Corrupt,
            _ => Read::Unknown,
        }
    }
}

/// What a record read turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// Written by this run, whole.
    Ours(Stamp),
    /// Of another run, or of no run: shorter than a stamp, or stamped whole by somebody else.
    Foreign,
    /// Carries this run's mark and a checksum that does not fit.
    Corrupt,
    /// No stamp can be read from it. Foreign, unless it lies where this run wrote.
    Unknown,
}

/// Consecutive numbers at consecutive offsets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Run {
    number: u64,
    offset: i64,
    count: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.number + self.count
    }

    fn offsets(&self) -> Range<i64> {
        self.offset..self.offset + self.count as i64
    }

    /// How far its offsets lie from its numbers.
    fn shift(&self) -> i64 {
        self.offset - self.number as i64
    }

    /// Offset and number of each record.
    fn records(self) -> impl Iterator<Item = (i64, u64)> {
        self.offsets().zip(self.number..)
    }

    /// The parts of it whose numbers lie in `ranges`, which rise.
    fn within(self, ranges: &[Range<u64>]) -> Vec<Run> {
        let first = ranges.partition_point(|range| range.end <= self.number);
        let parts = ranges[first..].iter().take_while(|range| range.start < self.end()).map(|range| {
            let (from, to) = (range.start.max(self.number), range.end.min(self.end()));
            Run { number: from, offset: from as i64 + self.shift(), count: to.saturating_sub(from) }
        });
        parts.filter(|part| part.count > 0).collect()
    }
}

/// Runs of one producer in one partition, in the order they were told.
#[derive(Clone, Default, Debug)]
struct Runs(Vec<Run>);

impl Runs {
    fn push(&mut self, number: u64, offset: i64, count: u64) {
        match self.0.last_mut() {
            Some(last) if last.end() == number && last.offset + last.count as i64 == offset => last.count += count,
            _ => self.0.push(Run { number, offset, count }),
        }
    }

    fn records(&self) -> u64 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// Takes out what lies in these offsets.
    fn cut(&mut self, offsets: &Range<i64>) {
        let parts = self.0.iter().flat_map(|run| {
            let part = |from: i64, to: i64| {
                let skipped = (from - run.offset).max(0) as u64;
                (from < to).then(|| Run { number: run.number + skipped, offset: from, count: (to - from) as u64 })
            };
            let end = run.offset + run.count as i64;
            [part(run.offset, end.min(offsets.start)), part(run.offset.max(offsets.end), end)]
        });
        self.0 = parts.flatten().collect();
    }
}

/// What the run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// Whether records were stamped and read back.
    pub enabled: bool,
    /// Why not, or what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Acknowledged records whose reading was checked.
    pub checked: u64,
    /// Acknowledged records that retention removed before they could be read: nothing is known of them.
    pub deleted: u64,
    /// Acknowledged, never read.
    pub lost: u64,
    /// One record at two offsets.
    pub duplicated: u64,
    /// A producer's later record before its earlier one.
    pub reordered: u64,
    /// Not the bytes that were sent.
    pub corrupt: u64,
    /// Other impossible things: one offset with two values, a phantom, an offset that went back.
    pub other: u64,
    /// Batches were sent again by a producer without idempotence: it accepts duplicates and reorders for that, and no broker is to blame.
    pub at_least_once: bool,
    /// Of the records read, those that carried no stamp of this run.
    pub foreign: u64,
    /// The first anomalies in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

impl Verification {
    /// Whether a part of what was acknowledged could not be judged.
    pub fn is_partial(&self) -> bool {
        self.enabled && self.deleted > 0
    }

    /// Why nothing was verified.
    pub fn skipped(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }

    /// Nothing to accuse (or nothing looked at).
    pub fn is_clean(&self) -> bool {
        let repeated = if self.at_least_once { 0 } else { self.repeated() };
        self.lost + repeated + self.corrupt + self.other == 0
    }

    fn repeated(&self) -> u64 {
        self.duplicated + self.reordered
    }

    /// What sending again without idempotence did, in words; `None` when it did nothing.
    pub fn accepted(&self) -> Option<String> {
        let number = super::units::grouped;
        (self.at_least_once && self.repeated() > 0).then(|| {
            let (duplicated, reordered) = (number(self.duplicated), number(self.reordered));
            format!("{duplicated} duplicated and {reordered} reordered as batches were sent again without idempotence")
        })
    }

    /// One line for people.
    pub fn sentence(&self) -> String {
        let number = super::units::grouped;
        if !self.enabled {
            return format!("not verified: {}", self.note.as_deref().unwrap_or("switched off"));
        }
        let verdict = if self.is_clean() {
            let what = self.accepted().map_or_else(
                || "none lost, duplicated, reordered or altered".to_owned(),
                |accepted| format!("none lost or altered; {accepted}"),
            );
            format!("{} acknowledged records read back: {what}", number(self.checked))
        } else {
            let count = |count: u64, word: &str| (count > 0).then(|| format!("{} {word}", number(count)));
            let found = [
                count(self.lost, "LOST"),
                count(self.duplicated, "DUPLICATED"),
                count(self.reordered, "REORDERED"),
                count(self.corrupt, "CORRUPT"),
                count(self.other, "otherwise impossible"),
            ];
            let found: Vec<String> = found.into_iter().flatten().collect();
            format!("of {} acknowledged records: {}", number(self.checked), found.join(", "))
        };
        let deleted =
            self.is_partial().then(|| format!("{} more were deleted by retention before that", number(self.deleted)));
        match deleted.into_iter().chain(self.note.clone()).reduce(|first, second| format!("{first}; {second}")) {
            Some(notes) => format!("{verdict} ({notes})"),
            None => verdict,
        }
    }
}

#[derive(Default)]
struct PartitionLedger {
    acked: BTreeMap<u16, Runs>,
    /// Told without an offset (a broker that lost its answer's base offset): known to lie somewhere.
    acked_somewhere: BTreeMap<u16, Vec<(u64, u64)>>,
    read: BTreeMap<u16, Runs>,
    /// Offsets of damaged records.
    corrupt: BTreeSet<i64>,
    /// Offsets that were deleted before anybody could read them.
    deleted: Vec<Range<i64>>,
    went_back: u64,
    last_read: Option<i64>,
}

/// Everything one generator thread acknowledged or read, by partition.
#[derive(Default)]
pub struct Ledger {
    partitions: BTreeMap<u32, PartitionLedger>,
    foreign: u64,
    unknown: BTreeMap<u32, Vec<i64>>,
}

impl Ledger {
    /// Records from `first` on, `count` of them, were acknowledged; the first lies at `offset`, the others behind it.
    pub fn on_acked(&mut self, partition: u32, first: Value, count: u64, offset: Option<i64>) {
        let ledger = self.partitions.entry(partition).or_default();
        match offset {
            Some(offset) => ledger.acked.entry(first.producer()).or_default().push(first.number(), offset, count),
            None => ledger.acked_somewhere.entry(first.producer()).or_default().push((first.number(), count)),
        }
    }

    /// A record was read.
    pub fn on_read(&mut self, partition: u32, offset: i64, read: Read) {
        let stamp = match read {
            Read::Ours(stamp) => stamp,
            Read::Foreign => return self.foreign += 1,
            Read::Unknown => return self.unknown.entry(partition).or_default().push(offset),
            Read::Corrupt => {
                self.partitions.entry(partition).or_default().corrupt.insert(offset);
                return;
            }
        };
        let ledger = self.partitions.entry(partition).or_default();
        if ledger.last_read.is_some_and(|last| offset <= last) {
            ledger.went_back += 1;
        }
        ledger.last_read = Some(offset);
        let (producer, number) = (stamp.value.producer(), stamp.value.number());
        ledger.read.entry(producer).or_default().push(number, offset, 1);
    }

    /// Retention removed these offsets before they were read: what was acknowledged there is not judged.
    pub fn on_deleted(&mut self, partition: u32, offsets: Range<i64>) {
        self.partitions.entry(partition).or_default().deleted.push(offsets);
    }

    /// Takes in another thread's ledger.
    pub fn merge(&mut self, other: Self) {
        self.foreign += other.foreign;
        for (partition, offsets) in other.unknown {
            self.unknown.entry(partition).or_default().extend(offsets);
        }
        for (partition, theirs) in other.partitions {
            let mine = self.partitions.entry(partition).or_default();
            for (producer, runs) in theirs.acked {
                mine.acked.entry(producer).or_default().0.extend(runs.0);
            }
            for (producer, runs) in theirs.acked_somewhere {
                mine.acked_somewhere.entry(producer).or_default().extend(runs);
            }
            for (producer, runs) in theirs.read {
                mine.read.entry(producer).or_default().0.extend(runs.0);
            }
            mine.corrupt.extend(theirs.corrupt);
            mine.deleted.extend(theirs.deleted);
            mine.went_back += theirs.went_back;
        }
    }

    /// Acknowledged records so far.
    pub fn acked(&self) -> u64 {
        self.partitions.values().map(PartitionLedger::acked_records).sum()
    }

    /// The verdict, after every partition was read to its end once.
    pub fn finish(self) -> Verification {
        self.finish_within(JUDGED_RECORDS_MAX)
    }

    fn finish_within(mut self, judged_max: u64) -> Verification {
        let mut verdict = Verification { enabled: true, foreign: self.foreign, ..Verification::default() };
        let mut left_out = 0;
        for (partition, ledger) in &mut self.partitions {
            // A record that cannot be read at an offset this run was told is its own: it was altered beyond its mark.
            for offset in self.unknown.remove(partition).unwrap_or_default() {
                if ledger.acked_at(offset) { _ = ledger.corrupt.insert(offset) } else { verdict.foreign += 1 }
            }
            verdict.deleted += ledger.forget_deleted();
            verdict.checked += ledger.acked_records();
            verdict.corrupt += ledger.corrupt.len() as u64;
            for offset in ledger.corrupt.iter().take(EVIDENCE_MAX) {
                verdict.evidence.push(format!(
                    "corrupt: offset {offset} of partition {partition} does not hold the bytes that were sent"
                ));
            }
            verdict.other += ledger.went_back;
            left_out += ledger.judge(*partition, judged_max, &mut verdict);
        }
        verdict.foreign += self.unknown.values().map(|offsets| offsets.len() as u64).sum::<u64>();
        verdict.evidence.truncate(EVIDENCE_MAX);
        if left_out > 0 {
            verdict.note = Some(format!("{left_out} more records differ and were left unjudged"));
        }
        verdict
    }
}

impl PartitionLedger {
    fn acked_records(&self) -> u64 {
        let somewhere: u64 = self.acked_somewhere.values().flatten().map(|(_, count)| count).sum();
        self.acked.values().map(Runs::records).sum::<u64>() + somewhere
    }

    /// Takes out what was acknowledged where something was deleted; how many records that were.
    fn forget_deleted(&mut self) -> u64 {
        if self.deleted.is_empty() {
            return 0;
        }
        let before = self.acked_records();
        for runs in self.acked.values_mut() {
            self.deleted.iter().for_each(|offsets| runs.cut(offsets));
        }
        self.acked.retain(|_, runs| !runs.0.is_empty());
        // Nobody knows whether it lay there.
        self.acked_somewhere.clear();
        before - self.acked_records()
    }

    fn acked_at(&self, offset: i64) -> bool {
        self.acked
            .values()
            .flat_map(|runs| &runs.0)
            .any(|run| (run.offset..run.offset + run.count as i64).contains(&offset))
    }

    /// What was told of a producer's records: runs that are as they should be, rising in number and offset, and what is not.
    fn compare(&self, producer: u16) -> (Vec<Run>, Vec<Differing>) {
        let mut edges = Vec::new();
        let mut add = |run: &Run, side: Side| edges.extend([(run.number, true, side), (run.end(), false, side)]);
        runs_of(&self.acked, producer).for_each(|run| add(run, Side::Acked(run.shift())));
        self.somewhere_of(producer).for_each(|run| add(&run, Side::Somewhere));
        runs_of(&self.read, producer).for_each(|run| add(run, Side::Read(run.shift())));
        edges.sort_unstable_by_key(|(number, ..)| *number);
        let (mut right, mut differing) = (Runs::default(), Vec::new());
        let (mut open, mut from): (Vec<Side>, u64) = (Vec::new(), 0);
        for (at, begins, side) in edges {
            if at > from && !open.is_empty() {
                match plain_offset(&open) {
                    Some(shift) => right.push(from, from as i64 + shift, at - from),
                    None => {
                        let lost = !open.iter().any(|side| matches!(side, Side::Read(_)));
                        differing.push(Differing { numbers: from..at, lost });
                    }
                }
            }
            from = at;
            if begins {
                open.push(side);
            } else if let Some(place) = open.iter().position(|one| *one == side) {
                open.swap_remove(place);
            }
        }
        let right = rising(right.0, &mut differing);
        differing.sort_unstable_by_key(|one| one.numbers.start);
        (right, differing)
    }

    fn somewhere_of(&self, producer: u16) -> impl Iterator<Item = Run> + '_ {
        let told = self.acked_somewhere.get(&producer).into_iter().flatten();
        told.map(|(number, count)| Run { number: *number, offset: 0, count: *count })
    }

    /// What the history is fed of a producer: what differs, where it was read the right records next to it, and the last right one,
    /// so that an order can be broken and a tail be told from a hole. Rising, none twice.
    fn fed(&self, producer: u16, right: &[Run], differing: &[Differing]) -> Vec<Range<u64>> {
        let mut fed: Vec<Range<u64>> = differing.iter().map(|one| one.numbers.clone()).collect();
        let mut beside = Vec::new();
        for run in runs_of(&self.read, producer) {
            for part in run.within(&fed) {
                let behind = right.partition_point(|one| one.offset < part.offset);
                if let Some(before) = behind.checked_sub(1).map(|at| right[at]) {
                    beside.push(before.end().min(before.number + (part.offset - before.offset) as u64) - 1);
                }
                beside.extend(right.get(behind).map(|after| after.number));
            }
        }
        beside.extend(right.last().map(|last| last.end() - 1));
        fed.extend(beside.into_iter().map(|number| number..number + 1));
        fed.sort_unstable_by_key(|numbers| numbers.start);
        fed.dedup();
        fed
    }

    /// Tells the history what differs in this partition, no more than `judged_max` records; how many more there were.
    fn judge(&self, partition: u32, judged_max: u64, verdict: &mut Verification) -> u64 {
        let mut history = History::new();
        let (mut left, mut unjudged, mut lost, mut lost_beyond) = (judged_max, 0, 0, 0);
        let mut reads: Vec<(i64, Value)> = Vec::new();
        let producers: BTreeSet<u16> =
            self.acked.keys().chain(self.acked_somewhere.keys()).chain(self.read.keys()).copied().collect();
        for producer in producers {
            let (right, mut differing) = self.compare(producer);
            for Differing { numbers, lost: is_lost } in &mut differing {
                let judged = (numbers.end - numbers.start).min(left);
                let beyond = numbers.end - numbers.start - judged;
                left -= judged;
                numbers.end -= beyond;
                if *is_lost {
                    lost += judged;
                    lost_beyond += beyond;
                } else {
                    unjudged += beyond;
                }
            }
            if differing.is_empty() {
                continue;
            }
            let fed = self.fed(producer, &right, &differing);
            self.tell_sends(partition, producer, &fed, &mut history);
            let read = runs_of(&self.read, producer).flat_map(|run| run.within(&fed));
            reads.extend(
                read.flat_map(|run| run.records()).map(|(offset, number)| (offset, Value::new(producer, number))),
            );
            // A damaged record was read, as what it should have been: it is counted as corrupt, not as lost.
            let acked = || runs_of(&self.acked, producer).flat_map(|run| run.within(&fed));
            for offset in &self.corrupt {
                if let Some(run) = acked().find(|run| run.offsets().contains(offset)) {
                    reads.push((*offset, Value::new(producer, run.number + (offset - run.offset) as u64)));
                    lost = lost.saturating_sub(1);
                }
            }
        }
        let found = heard(partition, reads, history, lost, verdict);
        verdict.lost += found.lost + lost_beyond;
        verdict.duplicated += found.duplicated;
        verdict.reordered += found.reordered;
        verdict.other += found.other;
        unjudged
    }

    /// Every number of `fed` that is known of: acknowledged, or read (then it was sent, though no answer came).
    fn tell_sends(&self, partition: u32, producer: u16, fed: &[Range<u64>], history: &mut History) {
        let mut told: BTreeMap<u64, Option<i64>> = BTreeMap::new();
        let somewhere = self.somewhere_of(producer).flat_map(|run| run.within(fed));
        told.extend(somewhere.flat_map(|run| run.records()).map(|(_, number)| (number, None)));
        let acked = runs_of(&self.acked, producer).flat_map(|run| run.within(fed));
        told.extend(acked.flat_map(|run| run.records()).map(|(offset, number)| (number, Some(offset))));
        for number in fed.iter().cloned().flatten() {
            let value = Value::new(producer, number);
            history.on_event(Event::SendInvoked { partition, value });
            if let Some(offset) = told.get(&number) {
                history.on_event(Event::SendAcked { partition, value, offset: offset.and_then(Offset::new) });
            }
        }
    }
}

/// Numbers of a producer that were not told as they should be.
struct Differing {
    numbers: Range<u64>,
    /// Acknowledged, and read by nobody.
    lost: bool,
}

/// Who told of a record, and at which distance from its number it lies.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Acked(i64),
    Somewhere,
    Read(i64),
}

/// How far offsets lie from numbers where all is well: read once, acknowledged at most once, and at the same place.
fn plain_offset(sides: &[Side]) -> Option<i64> {
    let mut reads = sides.iter().filter_map(|side| if let Side::Read(shift) = side { Some(*shift) } else { None });
    let shift = reads.next()?;
    let fits = |side: &Side| {
        matches!(side, Side::Somewhere) || matches!(side, Side::Acked(other) | Side::Read(other) if *other == shift)
    };
    (reads.next().is_none() && sides.len() <= 2 && sides.iter().all(fits)).then_some(shift)
}

fn runs_of(side: &BTreeMap<u16, Runs>, producer: u16) -> impl Iterator<Item = &Run> {
    side.get(&producer).into_iter().flat_map(|runs| &runs.0)
}

/// Those of `runs`, which rise by number, whose offsets rise as well; of two that do not the shorter one differs.
fn rising(runs: Vec<Run>, differing: &mut Vec<Differing>) -> Vec<Run> {
    let mut right: Vec<Run> = Vec::new();
    for run in runs {
        let mut fits = true;
        while let Some(last) = right.last().copied().filter(|last| fits && last.offsets().end > run.offset) {
            fits = last.count <= run.count;
            let wrong = if fits { right.pop().unwrap_or(last) } else { run };
            differing.push(Differing { numbers: wrong.number..wrong.end(), lost: false });
        }
        if fits {
            right.push(run);
        }
    }
    right
}

/// What the history says once it has heard what was read. Of its anomalies it keeps the first of each kind; `lost` of them, at most,
/// are losses, and the rest are of the kinds it kept most of.
fn heard(
    partition: u32,
    mut reads: Vec<(i64, Value)>,
    mut history: History,
    lost: u64,
    verdict: &mut Verification,
) -> Verification {
    reads.sort_unstable_by_key(|(offset, _)| *offset);
    let mut consumer = 0;
    let mut last = None;
    for (offset, value) in reads {
        // Others lie between: each stretch is a consumer of its own, so that a gap accuses nobody.
        if last.is_some_and(|last| offset != last + 1) {
            consumer += 1;
        }
        last = Some(offset);
        if let Some(offset) = Offset::new(offset) {
            history.on_event(Event::Polled { consumer, partition, offset, value: Some(value) });
        }
    }
    let report = history.finish();
    let mut found = Verification::default();
    for anomaly in &report.anomalies {
        *match anomaly {
            Anomaly::Lost { .. } | Anomaly::Unseen { .. } => &mut found.lost,
            Anomaly::Duplicate { .. } => &mut found.duplicated,
            Anomaly::Reordered { .. } => &mut found.reordered,
            _ => &mut found.other,
        } += 1;
        verdict.evidence.push(anomaly.to_string());
    }
    let beyond = report.anomaly_count - report.anomalies.len() as u64;
    let more_lost = lost.saturating_sub(found.lost).min(beyond);
    found.lost += more_lost;
    *if found.duplicated >= found.reordered && found.duplicated > 0 {
        &mut found.duplicated
    } else if found.reordered > 0 {
        &mut found.reordered
    } else {
        &mut found.other
    } += beyond - more_lost;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: u64) -> Value {
        Value::new(3, number)
    }

    fn ours(number: u64) -> Read {
        Read::Ours(Stamp { run: 9, value: value(number), intended_ns: 0 })
    }

    /// Ten records acknowledged at offsets 100 to 109, and `read` in that order.
    fn verdict(read: &[(i64, u64)]) -> Verification {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 4, Some(100));
        ledger.on_acked(0, value(4), 6, Some(104));
        read.iter().for_each(|(offset, number)| ledger.on_read(0, *offset, ours(*number)));
        ledger.finish()
    }

    fn in_order() -> Vec<(i64, u64)> {
        (0..10).map(|number| (100 + number as i64, number)).collect()
    }

    #[test]
    fn a_stamp_reads_back_and_knows_its_run() {
        let mut record = vec![7u8; 100];
        let stamp = Stamp { run: 9, value: value(5), intended_ns: 123 };
        stamp.write(&mut record);
        assert_eq!(Stamp::read(&record, 9), Read::Ours(stamp));
        assert_eq!(Stamp::read(&record, 8), Read::Foreign);
        assert_eq!(
            (Stamp::time_of(&record), Stamp::time_of(&record[..99]), Stamp::time_of(&[1; 100])),
            (Some(123), None, None)
        );
        assert_eq!(Stamp::read(b"short", 9), Read::Foreign);
        assert_eq!(Stamp::read(&[0; 100], 9), Read::Unknown);
        let mut smallest = [0; STAMP_BYTES];
        stamp.write(&mut smallest);
        assert_eq!(Stamp::read(&smallest, 9), Read::Ours(stamp));
    }

    #[test]
    fn every_altered_byte_and_every_cut_is_seen() {
        let mut record = vec![7u8; 60];
        Stamp { run: 9, value: value(5), intended_ns: 123 }.write(&mut record);
        for at in 0..record.len() {
            let mut altered = record.clone();
            altered[at] ^= 1;
            let read = Stamp::read(&altered, 9);
            assert!(matches!(read, Read::Corrupt | Read::Unknown), "byte {at}: {read:?}");
        }
        for length in STAMP_BYTES..record.len() {
            assert_eq!(Stamp::read(&record[..length], 9), Read::Corrupt);
        }
    }

    #[test]
    fn what_was_acknowledged_and_read_once_in_order_is_clean() {
        let verdict = verdict(&in_order());
        assert!(verdict.is_clean());
        assert_eq!(verdict.checked, 10);
        assert!(verdict.sentence().contains("none lost"));
    }

    #[test]
    fn a_dropped_record_is_lost() {
        let mut read = in_order();
        read.remove(4);
        let verdict = verdict(&read);
        assert_eq!((verdict.lost, verdict.duplicated, verdict.reordered), (1, 0, 0));
        assert!(verdict.sentence().contains("1 LOST"), "{}", verdict.sentence());
    }

    #[test]
    fn a_dropped_tail_is_lost_too() {
        assert_eq!(verdict(&in_order()[..7]).lost, 3);
    }

    #[test]
    fn a_record_at_two_offsets_is_duplicated() {
        let mut read = in_order();
        read.push((110, 9));
        assert_eq!(verdict(&read).duplicated, 1);
    }

    #[test]
    fn swapped_records_are_reordered() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 1, None);
        ledger.on_acked(0, value(1), 1, None);
        ledger.on_read(0, 100, ours(1));
        ledger.on_read(0, 101, ours(0));
        let verdict = ledger.finish();
        assert_eq!((verdict.reordered, verdict.lost), (1, 0));
    }

    #[test]
    fn a_damaged_record_is_corrupt_and_not_called_lost() {
        for damage in [Read::Corrupt, Read::Unknown] {
            let mut ledger = Ledger::default();
            ledger.on_acked(0, value(0), 3, Some(100));
            ledger.on_read(0, 100, ours(0));
            ledger.on_read(0, 101, damage);
            ledger.on_read(0, 102, ours(2));
            let verdict = ledger.finish();
            assert_eq!((verdict.corrupt, verdict.lost, verdict.other), (1, 0, 0), "{verdict:?}");
        }
    }

    #[test]
    fn what_is_sent_again_without_idempotence_is_told_and_blames_nobody() {
        let repeated =
            Verification { enabled: true, checked: 9, duplicated: 2, reordered: 1, ..Verification::default() };
        let accepted = Verification { at_least_once: true, ..repeated.clone() };
        assert!(!repeated.is_clean() && accepted.is_clean());
        assert!(accepted.sentence().contains("none lost or altered; 2 duplicated and 1 reordered"));
        assert!(!Verification { lost: 1, ..accepted }.is_clean());
    }

    #[test]
    fn what_retention_removed_is_not_judged_and_said() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 10, Some(100));
        ledger.on_deleted(0, 100..104);
        (4..10).filter(|number| *number != 7).for_each(|number| ledger.on_read(0, 100 + number as i64, ours(number)));
        let verdict = ledger.finish();
        assert_eq!((verdict.checked, verdict.deleted, verdict.lost), (6, 4, 1), "{verdict:?}");
        assert!(verdict.sentence().contains("4 more were deleted by retention"), "{}", verdict.sentence());
    }

    #[test]
    fn records_of_others_are_counted_and_not_judged() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 1, Some(100));
        ledger.on_read(0, 99, Read::Foreign);
        ledger.on_read(0, 100, ours(0));
        ledger.on_read(0, 101, Read::Unknown);
        ledger.on_read(1, 7, Read::Unknown);
        let verdict = ledger.finish();
        assert!(verdict.is_clean());
        assert_eq!(verdict.foreign, 3);
    }

    #[test]
    fn a_record_whose_answer_never_came_may_be_read() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 2, Some(100));
        (0..3).for_each(|number| ledger.on_read(0, 100 + number as i64, ours(number)));
        assert!(ledger.finish().is_clean());
    }

    /// So many records, acknowledged and read in batches of a hundred.
    fn batches(records: u64) -> Ledger {
        let mut ledger = Ledger::default();
        for number in (0..records).step_by(100) {
            ledger.on_acked(0, value(number), 100, Some(number as i64));
        }
        (0..records).for_each(|number| ledger.on_read(0, number as i64, ours(number)));
        ledger
    }

    #[test]
    fn one_duplicate_in_a_large_partition_is_one_duplicate() {
        let mut ledger = batches(10_000);
        // The batch was refused as one the broker has already: nobody said where it lies.
        ledger.on_acked(0, value(10_000), 1, None);
        ledger.on_read(0, 10_000, ours(10_000));
        ledger.on_read(0, 10_001, ours(77));
        let verdict = ledger.finish_within(100);
        let counts = (verdict.lost, verdict.duplicated, verdict.reordered, verdict.other);
        assert_eq!((counts, verdict.note), ((0, 1, 0, 0), None), "{:?}", verdict.evidence);
    }

    #[test]
    fn a_batch_without_an_offset_leaves_a_large_partition_clean() {
        let mut ledger = batches(10_000);
        ledger.on_acked(0, value(10_000), 100, None);
        (10_000..10_100).for_each(|number| ledger.on_read(0, number as i64, ours(number)));
        let verdict = ledger.finish_within(50);
        assert!(verdict.is_clean() && verdict.checked == 10_100 && verdict.note.is_none(), "{verdict:?}");
    }

    #[test]
    fn what_differs_beyond_the_bound_is_said_and_accuses_nobody() {
        let mut ledger = batches(1000);
        (0..300).for_each(|number| ledger.on_read(0, 1000 + number as i64, ours(number)));
        let verdict = ledger.finish_within(100);
        assert_eq!((verdict.duplicated, verdict.lost, verdict.other), (100, 0, 0), "{verdict:?}");
        assert!(verdict.note.as_ref().is_some_and(|note| note.starts_with("200 more records")), "{verdict:?}");
    }

    #[test]
    fn many_losses_are_all_counted() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 1000, Some(0));
        ledger.on_acked(1, value(0), 1000, Some(0));
        (500..1000).for_each(|number| ledger.on_read(0, number as i64, ours(number)));
        assert_eq!(ledger.finish_within(100).lost, 1500);
    }

    #[test]
    fn the_ledger_is_clean_exactly_when_the_history_is() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ledger, mut history) = (Ledger::default(), History::new());
            let mut log: Vec<(u16, u64)> = Vec::new();
            let mut next = [0u64; 2];
            for _ in 0..random.usize(1..12) {
                let producer = random.u16(..2);
                for _ in 0..random.u64(1..4) {
                    log.push((producer, next[usize::from(producer)]));
                    next[usize::from(producer)] += 1;
                }
            }
            let acked: Vec<(usize, (u16, u64))> = log.iter().copied().enumerate().collect();
            // Now and then the log is tampered with after the acknowledgements.
            match random.u8(..6) {
                0 => _ = log.remove(random.usize(..log.len())),
                1 => log.push(log[random.usize(..log.len())]),
                2 if log.len() > 1 => log.swap(0, 1),
                _ => {}
            }
            for (offset, (producer, number)) in &acked {
                let (value, offset) = (Value::new(*producer, *number), *offset as i64);
                history.on_event(Event::SendInvoked { partition: 0, value });
                history.on_event(Event::SendAcked { partition: 0, value, offset: Offset::new(offset) });
                ledger.on_acked(0, value, 1, Some(offset));
            }
            for (offset, (producer, number)) in log.iter().enumerate() {
                let value = Value::new(*producer, *number);
                let polled = Event::Polled {
                    consumer: 0,
                    partition: 0,
                    offset: Offset::new(offset as i64).unwrap(),
                    value: Some(value),
                };
                history.on_event(polled);
                ledger.on_read(0, offset as i64, Read::Ours(Stamp { run: 1, value, intended_ns: 0 }));
            }
            assert_eq!(ledger.finish().is_clean(), history.finish().is_clean(), "seed {seed}");
        }
    }
}
