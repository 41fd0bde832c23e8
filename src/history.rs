//! The history checker: from what clients saw, what a broker did wrong.
//!
//! Pure. Owns the memory of one run (about 60 bytes a record) and the list of anomalies; the kill tests, the clients'
//! tests and the verification of `ringlog bench` feed it. Does not own clients, clocks or the final read. Always true: it accuses only what no
//! legal order of events explains, given that events of one client arrive in that client's order, and acknowledgements no
//! earlier than they came. Source: Jepsen's Kafka workload, for which anomalies there are and which of them Kafka permits.
//!
//! How it is fed: each record carries a [`Value`], sent once, with numbers that rise per producer and partition. When the
//! run is over, somebody reads every partition to its end, and [`History::finish`] gives the verdict. Transactions are not
//! known here yet; an aborted send is fed as [`Event::SendFailed`], so that reading it is found.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::discriminant;
use std::num::NonZeroU64;
use std::ops::Range;

use crate::types::Offset;

#[cfg(test)]
mod tests;

/// A partition, numbered by whoever feeds the history.
pub type Partition = u32;

/// What one record carries: unique in its partition. The top two bits are a mark, so that it fits an `Option` for nothing
/// and foreign bytes are rarely taken for one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(NonZeroU64);

impl Value {
    const NUMBER_BITS: u32 = 46;
    const MARK: u64 = 0b10 << 62;
    /// Exclusive bound of numbers: 70 trillion records of one producer.
    pub const NUMBER_END: u64 = 1 << Self::NUMBER_BITS;

    /// The record `number` of `producer`. Panics at [`Value::NUMBER_END`].
    pub const fn new(producer: u16, number: u64) -> Self {
        assert!(number < Self::NUMBER_END, "a producer ran out of numbers");
        let bits = Self::MARK | (producer as u64) << Self::NUMBER_BITS | number;
        Self(NonZeroU64::new(bits).expect("the mark is set"))
    }

    /// Who sends it.
    pub const fn producer(self) -> u16 {
        (self.0.get() >> Self::NUMBER_BITS) as u16
    }

    /// Its place in the producer's sequence.
    pub const fn number(self) -> u64 {
        self.0.get() % Self::NUMBER_END
    }

    /// To be put at the start of a record.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }

    /// Reads what [`Value::to_bytes`] wrote at the start of a record; `None` when it cannot have been that.
    pub fn from_bytes(record: &[u8]) -> Option<Self> {
        let bits = u64::from_be_bytes(*record.first_chunk()?);
        NonZeroU64::new(bits).filter(|bits| bits.get() >> 62 == Self::MARK >> 62).map(Self)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.producer(), self.number())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({self})")
    }
}

/// One thing a client did or saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A producer is about to send. A send that gets no other event stays unknown: it may lie in the log or not.
    SendInvoked {
        /// Where to.
        partition: Partition,
        /// What.
        value: Value,
    },
    /// The broker acknowledged a send as the run's ack class demands: from here on it must never be lost.
    SendAcked {
        /// Where to.
        partition: Partition,
        /// What.
        value: Value,
        /// Where it lies; `None` when the client learned only that it lies somewhere.
        offset: Option<Offset>,
    },
    /// A send that surely has not been and will not be written, or was aborted: nobody may ever read it.
    SendFailed {
        /// Where to.
        partition: Partition,
        /// What.
        value: Value,
    },
    /// A consumer got a partition, or sought in it: its next poll may begin anywhere.
    Assigned {
        /// Who.
        consumer: u32,
        /// Which.
        partition: Partition,
    },
    /// A consumer read a record.
    Polled {
        /// Who.
        consumer: u32,
        /// From where.
        partition: Partition,
        /// At which offset.
        offset: Offset,
        /// What; `None` when the record carries no value of this run.
        value: Option<Value>,
    },
    /// A group's commit was acknowledged. Groups fed to the checker commit forwards only.
    CommitAcked {
        /// Which group.
        group: u32,
        /// Where.
        partition: Partition,
        /// The next record to read.
        offset: Offset,
    },
    /// A reader is about to ask for a group's offset.
    FetchInvoked {
        /// Tells readers that ask at the same time apart.
        reader: u32,
        /// Which group.
        group: u32,
        /// Where.
        partition: Partition,
    },
    /// That reader got its answer.
    OffsetFetched {
        /// The reader that asked.
        reader: u32,
        /// Which group.
        group: u32,
        /// Where.
        partition: Partition,
        /// The committed offset; `None` when the broker knows of none.
        offset: Option<Offset>,
    },
}

/// One thing that a correct broker never lets happen, with its evidence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Anomaly {
    /// Acknowledged, and never read by anyone although later records of the partition were.
    #[error(
        "lost: {value} of partition {partition} was acknowledged at {offset:?}; read up to {read_up_to}, it never appeared"
    )]
    Lost {
        /// Where.
        partition: Partition,
        /// What.
        value: Value,
        /// As acknowledged.
        offset: Option<Offset>,
        /// The largest offset that was read there.
        read_up_to: Offset,
    },
    /// Acknowledged, and beyond everything that was read: a truncated tail, or a final read that stopped early.
    #[error("unseen: {value} of partition {partition} was acknowledged at {offset:?}, after everything that was read")]
    Unseen {
        /// Where.
        partition: Partition,
        /// What.
        value: Value,
        /// As acknowledged.
        offset: Option<Offset>,
    },
    /// One value at two offsets.
    #[error("duplicate: {value} of partition {partition} lies at {first} and at {second}")]
    Duplicate {
        /// Where.
        partition: Partition,
        /// What.
        value: Value,
        /// Where it was known to lie.
        first: Offset,
        /// Where it was met again.
        second: Offset,
    },
    /// One offset with two values.
    #[error("inconsistent: offset {offset} of partition {partition} held {first} and then {second}")]
    InconsistentOffset {
        /// Where.
        partition: Partition,
        /// At which offset.
        offset: Offset,
        /// What it was known to hold.
        first: Value,
        /// What it held later.
        second: Value,
    },
    /// A producer's later record before its earlier one.
    #[error(
        "reordered: in partition {partition}, {later} lies at {later_offset}, before {earlier} at {earlier_offset}"
    )]
    Reordered {
        /// Where.
        partition: Partition,
        /// Sent first.
        earlier: Value,
        /// Where that lies.
        earlier_offset: Offset,
        /// Sent after it.
        later: Value,
        /// Where that lies.
        later_offset: Offset,
    },
    /// A record was read whose send had failed or was aborted.
    #[error("aborted read: {value} at {offset} of partition {partition} was read although its send had failed")]
    AbortedRead {
        /// Where.
        partition: Partition,
        /// What.
        value: Value,
        /// At which offset.
        offset: Offset,
    },
    /// A record was read that nobody sent.
    #[error("phantom: offset {offset} of partition {partition} holds {value:?}, which nobody sent")]
    Phantom {
        /// Where.
        partition: Partition,
        /// At which offset.
        offset: Offset,
        /// What it claims to be.
        value: Option<Value>,
    },
    /// A consumer read an offset at or below the one before, without a new assignment.
    #[error("poll went back: consumer {consumer} read {offset} of partition {partition} after {after}")]
    PollWentBack {
        /// Who.
        consumer: u32,
        /// Where.
        partition: Partition,
        /// Read first.
        after: Offset,
        /// Read next.
        offset: Offset,
    },
    /// A consumer passed over a record, without a new assignment.
    #[error(
        "poll skipped: consumer {consumer} went from {after} to {next} of partition {partition} past {value} at {offset}"
    )]
    PollSkipped {
        /// Who.
        consumer: u32,
        /// Where.
        partition: Partition,
        /// Read first.
        after: Offset,
        /// Read next.
        next: Offset,
        /// The first record between them.
        value: Value,
        /// Where it lies.
        offset: Offset,
    },
    /// A group's offset was lower than an acknowledged commit, or gone.
    #[error(
        "offset went back: group {group} had committed {committed} of partition {partition}, then {seen:?} was seen"
    )]
    OffsetWentBack {
        /// Which group.
        group: u32,
        /// Where.
        partition: Partition,
        /// Acknowledged before.
        committed: Offset,
        /// Fetched, or acknowledged as a later commit.
        seen: Option<Offset>,
    },
}

/// How many anomalies of one kind a report keeps as evidence. The first ones tell the story; all are counted.
const EVIDENCE_OF_A_KIND_MAX: usize = 20;

/// The verdict.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The first twenty anomalies of each kind.
    pub anomalies: Vec<Anomaly>,
    /// How many there were.
    pub anomaly_count: u64,
    /// Sends invoked.
    pub sent: u64,
    /// Of these, acknowledged.
    pub acked: u64,
    /// Of these, surely not written.
    pub failed: u64,
    /// Records read, repetitions included.
    pub polled: u64,
    /// Commits acknowledged.
    pub commits: u64,
    /// Group offsets fetched.
    pub offsets_fetched: u64,
}

impl Report {
    /// Nothing to accuse.
    pub fn is_clean(&self) -> bool {
        self.anomaly_count == 0
    }

    fn add(&mut self, anomaly: Anomaly) {
        self.anomaly_count += 1;
        let of_this_kind = |known: &&Anomaly| discriminant(*known) == discriminant(&anomaly);
        if self.anomalies.iter().filter(of_this_kind).count() < EVIDENCE_OF_A_KIND_MAX {
            self.anomalies.push(anomaly);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sent, {} acknowledged, {} failed, {} read, {} commits, {} offsets fetched: {} anomalies",
            self.sent, self.acked, self.failed, self.polled, self.commits, self.offsets_fetched, self.anomaly_count
        )?;
        self.anomalies.iter().try_for_each(|anomaly| write!(f, "\n  {anomaly}"))
    }
}

/// What was seen so far.
#[derive(Default)]
pub struct History {
    partitions: BTreeMap<Partition, PartitionHistory>,
    /// Last offset that a consumer read since its last assignment.
    positions: BTreeMap<(u32, Partition), Offset>,
    /// Steps of more than one offset, judged at the end: what lies between them may become known later.
    gaps: Vec<Gap>,
    /// Largest acknowledged commit of (group, partition).
    committed: BTreeMap<(u32, Partition), Offset>,
    /// What was committed when (reader, group, partition) asked.
    fetching: BTreeMap<(u32, u32, Partition), Option<Offset>>,
    report: Report,
}

struct Gap {
    consumer: u32,
    partition: Partition,
    after: Offset,
    next: Offset,
}

impl History {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one event. Panics when the feeder breaks its own rules (a value sent twice, numbers that fall, an answer to
    /// a send that was not invoked): then the test is wrong, not the broker.
    pub fn on_event(&mut self, event: Event) {
        match event {
            Event::SendInvoked { partition, value } => {
                self.report.sent += 1;
                self.partitions.entry(partition).or_default().on_invoked(value);
            }
            Event::SendAcked { partition, value, offset } => {
                self.report.acked += 1;
                let history = self.partitions.entry(partition).or_default();
                history.resolve(value, Outcome::Acked);
                if let Some(offset) = offset {
                    history.on_met(partition, offset, value, &mut self.report);
                }
            }
            Event::SendFailed { partition, value } => {
                self.report.failed += 1;
                self.partitions.entry(partition).or_default().resolve(value, Outcome::Failed);
            }
            Event::Assigned { consumer, partition } => {
                self.positions.remove(&(consumer, partition));
            }
            Event::Polled { consumer, partition, offset, value } => self.on_polled(consumer, partition, offset, value),
            Event::CommitAcked { group, partition, offset } => {
                self.report.commits += 1;
                let committed = self.committed.entry((group, partition)).or_insert(offset);
                if offset < *committed {
                    let seen = Some(offset);
                    self.report.add(Anomaly::OffsetWentBack { group, partition, committed: *committed, seen });
                }
                // Also when it went back: one fault is told once, not with every offset after it.
                *committed = offset;
            }
            Event::FetchInvoked { reader, group, partition } => {
                let committed = self.committed.get(&(group, partition)).copied();
                self.fetching.insert((reader, group, partition), committed);
            }
            Event::OffsetFetched { reader, group, partition, offset } => {
                self.report.offsets_fetched += 1;
                let committed =
                    self.fetching.remove(&(reader, group, partition)).expect("an offset was fetched unasked");
                if let Some(committed) = committed.filter(|committed| offset.is_none_or(|offset| offset < *committed)) {
                    self.report.add(Anomaly::OffsetWentBack { group, partition, committed, seen: offset });
                }
            }
        }
    }

    fn on_polled(&mut self, consumer: u32, partition: Partition, offset: Offset, value: Option<Value>) {
        self.report.polled += 1;
        if let Some(after) = self.positions.insert((consumer, partition), offset) {
            if offset <= after {
                self.report.add(Anomaly::PollWentBack { consumer, partition, after, offset });
            } else if offset > after.next() {
                self.gaps.push(Gap { consumer, partition, after, next: offset });
            }
        }
        let history = self.partitions.entry(partition).or_default();
        history.read_up_to = history.read_up_to.max(Some(offset));
        match value.and_then(|value| Some((value, history.send_of(value)?))) {
            Some((value, send)) => {
                send.polled = true;
                history.on_met(partition, offset, value, &mut self.report);
            }
            None => self.report.add(Anomaly::Phantom { partition, offset, value }),
        }
    }

    /// The verdict, after every partition was read to its end.
    pub fn finish(mut self) -> Report {
        for gap in &self.gaps {
            let between = gap.after.next()..gap.next;
            let history = &self.partitions[&gap.partition];
            if let Some((offset, value)) = history.first_between(between) {
                let Gap { consumer, partition, after, next } = *gap;
                self.report.add(Anomaly::PollSkipped { consumer, partition, after, next, value, offset });
            }
        }
        for (partition, history) in &self.partitions {
            history.judge(*partition, &mut self.report);
        }
        self.report
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Unknown,
    Acked,
    Failed,
}

/// One send. Kept small: there are millions.
struct Send {
    number: u64,
    /// Where it was first met, by acknowledgement or by reading.
    offset: Option<Offset>,
    outcome: Outcome,
    polled: bool,
}
const _: () = assert!(size_of::<Send>() <= 32);

#[derive(Default)]
struct PartitionHistory {
    /// By producer; each list rises by number.
    sends: BTreeMap<u16, Vec<Send>>,
    /// What was met at each offset, in pages: dense where the log is, and a stray offset costs one page.
    pages: BTreeMap<i64, Box<Page>>,
    read_up_to: Option<Offset>,
}

const PAGE_OFFSETS: i64 = 512;
type Page = [Option<Value>; PAGE_OFFSETS as usize];
const _: () = assert!(size_of::<Option<Value>>() == 8);

impl PartitionHistory {
    fn on_invoked(&mut self, value: Value) {
        let sends = self.sends.entry(value.producer()).or_default();
        let rises = sends.last().is_none_or(|last| last.number < value.number());
        assert!(rises, "the numbers of producer {} do not rise", value.producer());
        sends.push(Send { number: value.number(), offset: None, outcome: Outcome::Unknown, polled: false });
    }

    fn send_of(&mut self, value: Value) -> Option<&mut Send> {
        let sends = self.sends.get_mut(&value.producer())?;
        let place = sends.binary_search_by_key(&value.number(), |send| send.number).ok()?;
        Some(&mut sends[place])
    }

    fn resolve(&mut self, value: Value, outcome: Outcome) {
        let send = self.send_of(value).expect("a send was resolved that was not invoked");
        assert!(send.outcome == Outcome::Unknown, "the send of {value} was resolved twice");
        send.outcome = outcome;
    }

    /// `value`, which was sent, was acknowledged or read at `offset`.
    fn on_met(&mut self, partition: Partition, offset: Offset, value: Value, report: &mut Report) {
        let send = self.send_of(value).expect("the caller looked for it");
        let first = *send.offset.get_or_insert(offset);
        let (page, place) = page_of(offset);
        let page = self.pages.entry(page).or_insert_with(|| Box::new([None; PAGE_OFFSETS as usize]));
        match page[place].replace(value) {
            Some(held) if held != value => {
                report.add(Anomaly::InconsistentOffset { partition, offset, first: held, second: value });
            }
            // Told when the second place is first met, not by each consumer that reads it.
            None if first != offset => report.add(Anomaly::Duplicate { partition, value, first, second: offset }),
            _ => {}
        }
    }

    /// The first record known to lie in `offsets`, unless nobody may see it.
    fn first_between(&self, offsets: Range<Offset>) -> Option<(Offset, Value)> {
        let pages = page_of(offsets.start).0..=page_of(offsets.end).0;
        self.pages
            .range(pages)
            .flat_map(|(&number, page)| page.iter().zip(number * PAGE_OFFSETS..))
            .filter_map(|(value, offset)| Some((Offset::new(offset)?, (*value)?)))
            .find(|(offset, value)| offsets.contains(offset) && !self.failed(*value))
    }

    fn failed(&self, value: Value) -> bool {
        self.sends.get(&value.producer()).is_some_and(|sends| {
            let place = sends.binary_search_by_key(&value.number(), |send| send.number);
            place.is_ok_and(|place| sends[place].outcome == Outcome::Failed)
        })
    }

    fn judge(&self, partition: Partition, report: &mut Report) {
        for (&producer, sends) in &self.sends {
            let mut last: Option<(Value, Offset)> = None;
            for send in sends {
                let value = Value::new(producer, send.number);
                if send.outcome == Outcome::Acked && !send.polled {
                    report.add(self.missing(partition, value, send.offset));
                }
                let Some(offset) = send.offset else { continue };
                if send.outcome == Outcome::Failed {
                    report.add(Anomaly::AbortedRead { partition, value, offset });
                }
                match last {
                    Some((earlier, earlier_offset)) if offset < earlier_offset => report.add(Anomaly::Reordered {
                        partition,
                        earlier,
                        earlier_offset,
                        later: value,
                        later_offset: offset,
                    }),
                    _ => last = Some((value, offset)),
                }
            }
        }
    }

    /// An acknowledged record that nobody read. Without a known offset it is called lost once anything was read.
    fn missing(&self, partition: Partition, value: Value, offset: Option<Offset>) -> Anomaly {
        match self.read_up_to.filter(|read_up_to| offset.is_none_or(|offset| offset <= *read_up_to)) {
            Some(read_up_to) => Anomaly::Lost { partition, value, offset, read_up_to },
            None => Anomaly::Unseen { partition, value, offset },
        }
    }
}

fn page_of(offset: Offset) -> (i64, usize) {
    (offset.value() / PAGE_OFFSETS, (offset.value() % PAGE_OFFSETS) as usize)
}
