//! Proof while measuring: was anything lost, duplicated, reordered or altered?
//!
//! Pure. Owns the stamp in the first [`STAMP_BYTES`] of every record's value and the ledger of what was acknowledged and what
//! was read. Does not own the verdict on anything odd: that is [`crate::history`]'s, the checker of the kill
//! tests. Always true: a record is never called read that was not stamped by this run; the checksum covers every byte.
//! Source: Jepsen's Kafka workload, by way of `history`.
//!
//! Acknowledgements and reads come in runs (a batch is one): number and offset rise together. The ledger keeps runs, some
//! bytes a batch rather than forty a record, so that verifying does not disturb what is measured. Where runs of both
//! sides are the same and rise, nothing can be wrong; every partition where they are not is told to the history, record by
//! record, and judged there. A test feeds random histories to both and compares.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::history::{Anomaly, Event, History, Value};
use crate::types::Offset;

/// First bytes of a value that carry the stamp: the smallest value that can be verified.
pub const STAMP_BYTES: usize = 28;
/// Records of one partition the history is fed when runs differ; it takes about 60 bytes each. What lies beyond is not
/// judged, and the verdict says so.
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

    /// Sorted by number and joined where they touch; `None` when a number comes twice or offsets do not rise with them.
    fn canonical(&self) -> Option<Vec<Run>> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let mut joined = Runs::default();
        for run in sorted {
            if let Some(last) = joined.0.last()
                && (run.number < last.end() || run.offset < last.offset + last.count as i64)
            {
                return None;
            }
            joined.push(run.number, run.offset, run.count);
        }
        Some(joined.0)
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
    /// Of the records read, those that carried no stamp of this run.
    pub foreign: u64,
    /// The first anomalies in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

impl Verification {
    /// Why nothing was verified.
    pub fn skipped(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }

    /// Nothing to accuse (or nothing looked at).
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.reordered + self.corrupt + self.other == 0
    }

    /// One line for people.
    pub fn sentence(&self) -> String {
        let number = super::units::grouped;
        if !self.enabled {
            return format!("not verified: {}", self.note.as_deref().unwrap_or("switched off"));
        }
        let verdict = if self.is_clean() {
            format!(
                "{} acknowledged records read back: none lost, duplicated, reordered or altered",
                number(self.checked)
            )
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
        match &self.note {
            Some(note) => format!("{verdict} ({note})"),
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
    /// Which producer each stretch of offsets belonged to, so that the history can be told in the order of reading.
    order: Vec<(u16, Run)>,
    /// Offsets of damaged records.
    corrupt: BTreeSet<i64>,
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
        match ledger.order.last_mut() {
            Some((last, run))
                if *last == producer && run.end() == number && run.offset + run.count as i64 == offset =>
            {
                run.count += 1;
            }
            _ => ledger.order.push((producer, Run { number, offset, count: 1 })),
        }
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
            mine.order.extend(theirs.order);
            mine.corrupt.extend(theirs.corrupt);
            mine.went_back += theirs.went_back;
        }
    }

    /// Acknowledged records so far.
    pub fn acked(&self) -> u64 {
        self.partitions.values().map(PartitionLedger::acked_records).sum()
    }

    /// The verdict, after every partition was read to its end once.
    pub fn finish(mut self) -> Verification {
        let mut verdict = Verification { enabled: true, foreign: self.foreign, ..Verification::default() };
        let mut left_out = 0;
        for (partition, ledger) in &mut self.partitions {
            // A record that cannot be read at an offset this run was told is its own: it was altered beyond its mark.
            for offset in self.unknown.remove(partition).unwrap_or_default() {
                if ledger.acked_at(offset) { _ = ledger.corrupt.insert(offset) } else { verdict.foreign += 1 }
            }
            verdict.checked += ledger.acked_records();
            verdict.corrupt += ledger.corrupt.len() as u64;
            for offset in ledger.corrupt.iter().take(EVIDENCE_MAX) {
                verdict.evidence.push(format!(
                    "corrupt: offset {offset} of partition {partition} does not hold the bytes that were sent"
                ));
            }
            verdict.other += ledger.went_back;
            if !ledger.plainly_right() {
                left_out += ledger.judge(*partition, &mut verdict);
            }
        }
        verdict.foreign += self.unknown.values().map(|offsets| offsets.len() as u64).sum::<u64>();
        verdict.evidence.truncate(EVIDENCE_MAX);
        if left_out > 0 {
            verdict.note = Some(format!("{left_out} more records differ and were left unjudged"));
            verdict.other += left_out;
        }
        verdict
    }
}

impl PartitionLedger {
    fn acked_records(&self) -> u64 {
        let somewhere: u64 = self.acked_somewhere.values().flatten().map(|(_, count)| count).sum();
        self.acked.values().map(Runs::records).sum::<u64>() + somewhere
    }

    fn acked_at(&self, offset: i64) -> bool {
        self.acked
            .values()
            .flat_map(|runs| &runs.0)
            .any(|run| (run.offset..run.offset + run.count as i64).contains(&offset))
    }

    /// Both sides tell the same runs, each number once, offsets rising with them: no accusation is possible.
    fn plainly_right(&self) -> bool {
        let same = |(producer, acked): (&u16, &Runs)| {
            let read = self.read.get(producer).and_then(Runs::canonical);
            read.is_some() && acked.canonical() == read
        };
        self.acked_somewhere.is_empty()
            && self.corrupt.is_empty()
            && self.acked.len() == self.read.len()
            && self.acked.iter().all(same)
    }

    /// Tells the history everything about this partition, record by record; how many records did not fit.
    fn judge(&self, partition: u32, verdict: &mut Verification) -> u64 {
        let mut history = History::new();
        let mut left_out = 0;
        let mut fed: BTreeSet<u16> = self.acked.keys().chain(self.acked_somewhere.keys()).copied().collect();
        fed.extend(self.read.keys());
        let mut judged_end = BTreeMap::new();
        let share = JUDGED_RECORDS_MAX / fed.len().max(1) as u64;
        for producer in fed {
            // Every number known of: acknowledged, or read (then it was sent, though no answer came).
            let mut numbers: BTreeMap<u64, Option<Option<i64>>> = BTreeMap::new();
            let mut add = |run: Run, acked: Option<bool>| {
                for step in 0..run.count {
                    if numbers.len() as u64 >= share {
                        left_out += run.count - step;
                        break;
                    }
                    let told = numbers.entry(run.number + step).or_default();
                    match acked {
                        Some(true) => *told = Some(Some(run.offset + step as i64)),
                        Some(false) => *told = Some(None),
                        None => {}
                    }
                }
            };
            let acked = self.acked.get(&producer).into_iter().flat_map(|runs| &runs.0);
            acked.for_each(|run| add(*run, Some(true)));
            let somewhere = self.acked_somewhere.get(&producer).into_iter().flatten();
            somewhere.for_each(|(number, count)| add(Run { number: *number, offset: 0, count: *count }, Some(false)));
            let read = self.read.get(&producer).into_iter().flat_map(|runs| &runs.0);
            read.for_each(|run| add(*run, None));
            for (&number, told) in &numbers {
                let value = Value::new(producer, number);
                history.on_event(Event::SendInvoked { partition, value });
                if let Some(offset) = told {
                    history.on_event(Event::SendAcked { partition, value, offset: offset.and_then(Offset::new) });
                }
            }
            let last = numbers.keys().next_back().map_or(0, |number| number + 1);
            judged_end.insert(producer, if numbers.len() as u64 >= share { last } else { u64::MAX });
        }
        let mut order = self.order.clone();
        order.sort_by_key(|(_, run)| run.offset);
        // A damaged record was read, as what it should have been: it is counted as corrupt, not as lost.
        let holding: BTreeMap<i64, Value> = self
            .corrupt
            .iter()
            .filter_map(|offset| {
                let (producer, run) = self.acked.iter().find_map(|(producer, runs)| {
                    let holds = |run: &&Run| (run.offset..run.offset + run.count as i64).contains(offset);
                    Some((producer, runs.0.iter().find(holds)?))
                })?;
                Some((*offset, Value::new(*producer, run.number + (offset - run.offset) as u64)))
            })
            .collect();
        let reads = order.iter().flat_map(|(producer, run)| {
            (0..run.count).map(move |step| (run.offset + step as i64, Value::new(*producer, run.number + step)))
        });
        let mut reads: Vec<(i64, Value)> = reads.chain(holding).collect();
        reads.sort_unstable_by_key(|(offset, _)| *offset);
        let mut consumer = 0;
        let mut last = None;
        for (offset, value) in reads {
            if judged_end.get(&value.producer()).is_some_and(|end| value.number() >= *end) {
                continue;
            }
            // Records of others may lie between: each stretch is a consumer of its own, so that a gap accuses nobody.
            if last.is_some_and(|last| offset != last + 1) {
                consumer += 1;
            }
            last = Some(offset);
            if let Some(offset) = Offset::new(offset) {
                history.on_event(Event::Polled { consumer, partition, offset, value: Some(value) });
            }
        }
        let report = history.finish();
        let kept = report.anomalies.len() as u64;
        for anomaly in &report.anomalies {
            *match anomaly {
                Anomaly::Lost { .. } | Anomaly::Unseen { .. } => &mut verdict.lost,
                Anomaly::Duplicate { .. } => &mut verdict.duplicated,
                Anomaly::Reordered { .. } => &mut verdict.reordered,
                _ => &mut verdict.other,
            } += 1;
            verdict.evidence.push(anomaly.to_string());
        }
        // The history counts all and keeps the first of each kind; the rest are of the kinds it kept most of.
        self.count_beyond(report.anomaly_count - kept, verdict);
        left_out
    }

    /// Counts anomalies past those the history keeps as evidence, from the runs themselves.
    fn count_beyond(&self, beyond: u64, verdict: &mut Verification) {
        if beyond == 0 {
            return;
        }
        let mut lost = 0;
        for (producer, acked) in &self.acked {
            let read: BTreeMap<u64, u64> = self
                .read
                .get(producer)
                .into_iter()
                .flat_map(|runs| &runs.0)
                .map(|run| (run.number, run.end()))
                .collect();
            for run in &acked.0 {
                let seen: u64 = (run.number..run.end())
                    .filter(|number| read.range(..=number).next_back().is_some_and(|(_, end)| end > number))
                    .count() as u64;
                lost += run.count - seen;
            }
        }
        let more_lost = lost.saturating_sub(verdict.lost).min(beyond);
        verdict.lost += more_lost;
        let rest = beyond - more_lost;
        if verdict.duplicated >= verdict.reordered && verdict.duplicated > 0 {
            verdict.duplicated += rest;
        } else if verdict.reordered > 0 {
            verdict.reordered += rest;
        } else {
            verdict.other += rest;
        }
    }
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

    #[test]
    fn many_losses_are_all_counted() {
        let mut ledger = Ledger::default();
        ledger.on_acked(0, value(0), 1000, Some(0));
        (500..1000).for_each(|number| ledger.on_read(0, number as i64, ours(number)));
        assert_eq!(ledger.finish().lost, 500);
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
