//! Groups and their committed offsets: the runtime of one partition of `__consumer_offsets`.
//!
//! Shell. Owns the way of a command: pure decision ([`partition`]), records appended through a [`Journal`], answer when
//! they are durable; the waiting answers and the one timer. Does not own the log, nor which broker coordinates what
//! ([`partition_for`] only names the partition). Always: a [`Coordinator`] lives for one leadership of its partition; what
//! completes after [`Coordinator::unload`] is dropped (KAFKA-20634); no task runs while no deadline and no write is open.
//! Source: Kafka's CoordinatorRuntime.

/// What is asked and answered.
pub mod command;
/// One group's state machine.
pub mod group;
mod offsets;
/// All groups of one partition.
pub mod partition;
/// The records of `__consumer_offsets`.
pub mod records;
mod roster;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use tracing::warn;

use self::command::{GroupAnswer, GroupCommand, GroupError, GroupSettings, Now, Ticket};
use self::partition::{Effects, Partition, WriteId};
use self::records::{Record, RecordError, TooLong};
use crate::protocol::batch::{self, BatchError, Builder, BuilderOptions, Codec, Records};
use crate::rt;
use crate::types::{Offset, TimestampMs, TopicName};

/// How large a batch of the offsets topic may unpack to while loading.
const LOADED_BATCH_BYTES_MAX: usize = 128 << 20;

/// From how many records on the log is written anew when most of them are of no use: some ten megabytes, which load in a
/// fraction of a second.
const REWRITE_RECORDS_MIN: u64 = 100_000;

/// Which of `partition_count` partitions of `__consumer_offsets` keeps this group: Kafka's choice, which its clients and
/// tools compute too (Java's `String.hashCode`, made positive).
pub fn partition_for(group_id: &str, partition_count: u32) -> u32 {
    let hash = group_id.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // The one number without a positive twin counts as zero.
    hash.checked_abs().unwrap_or(0) as u32 % partition_count
}

/// Where a coordinator writes: one partition of `__consumer_offsets`, led by this broker.
pub trait Journal {
    /// Appends one batch, with base offset 0 and leader epoch −1 still to be stamped. The order of calls is the order of
    /// the log. The future resolves when the batch has reached the topic's ack class.
    fn append(&self, batch: BytesMut) -> Result<Durable, JournalError>;

    /// Where the next batch will begin. `None`: this log cannot be trimmed, and only grows.
    fn log_end(&self) -> Option<Offset> {
        None
    }

    /// Everything before `offset` has been written again behind it and is durable in the topic's ack class. It may go, but
    /// not before what is behind it is flushed: the file that is unlinked does not come back after a power loss.
    fn discard_before(&self, offset: Offset) {
        let _ = offset;
    }
}

/// Resolves when an appended batch is durable, or never will be.
pub type Durable = Pin<Box<dyn Future<Output = Result<(), JournalError>>>>;

/// Why a batch is not in the log. Each kind is answered as Kafka answers it.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Too few replicas, or no answer in time (3, 7, 19): clients look again for the coordinator, 15.
    #[error("the offsets partition is not available: {0}")]
    Unavailable(String),
    /// Not the leader (any more), or the log failed (6, 56): clients look elsewhere, 16.
    #[error("the offsets partition cannot be written here: {0}")]
    NotHere(String),
    /// The batch is larger than the topic allows (10, 18): −1.
    #[error("the records do not fit a batch: {0}")]
    TooLarge(String),
}

impl From<&JournalError> for GroupError {
    fn from(error: &JournalError) -> Self {
        match error {
            JournalError::Unavailable(_) => Self::CoordinatorNotAvailable,
            JournalError::NotHere(_) => Self::NotCoordinator,
            JournalError::TooLarge(_) => Self::Unexpected,
        }
    }
}

impl From<TooLong> for JournalError {
    fn from(error: TooLong) -> Self {
        Self::TooLarge(error.to_string())
    }
}

/// Why a partition's groups could not be loaded: its coordinator answers 16 until it is loaded anew.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A batch is damaged.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A record is damaged or of the future.
    #[error("at offset {offset}: {source}")]
    Record {
        /// Where.
        offset: i64,
        /// What.
        #[source]
        source: RecordError,
    },
}

/// What loading found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoadReport {
    /// Records applied.
    pub records: u64,
    /// Records of kinds that are not ours, and of transactions, passed over.
    pub skipped: u64,
    /// Groups there now.
    pub groups: usize,
}

/// Takes an answer home. Called once, on this shard, with nothing borrowed.
pub type Respond = Box<dyn FnOnce(GroupAnswer)>;

/// The coordinator of the groups of one partition. Clones share it. `!Send`.
#[derive(Clone)]
pub struct Coordinator {
    inner: Rc<Inner>,
}

enum Phase {
    /// The log is being read; topics deleted meanwhile are kept for its end.
    Loading {
        partition: Partition,
        report: LoadReport,
        deleted: Vec<TopicName>,
    },
    Active(Partition),
    /// Loading failed, or the leadership is over.
    Ended,
}

struct Inner {
    journal: Box<dyn Journal>,
    /// Zero of the monotonic clock.
    started: Instant,
    phase: RefCell<Phase>,
    last_ticket: Cell<u64>,
    waiting: RefCell<BTreeMap<Ticket, Respond>>,
    /// In the order of the log; whoever is at the front is awaited by the one writer task.
    writes: RefCell<VecDeque<(WriteId, Result<Durable, JournalError>)>>,
    writer_runs: Cell<bool>,
    /// Before it nothing will be needed once the log has been written anew.
    mark: Cell<Option<Offset>>,
    /// What the one timer task sleeps to; `None`: it does not run.
    timer_at: Cell<Option<Duration>>,
    timer_moved: rt::Event,
}

impl Coordinator {
    /// A coordinator that is to be loaded: feed the whole partition to [`Coordinator::load_batch`], then call
    /// [`Coordinator::finish_loading`]. Until then commands are answered 14, heartbeats 0.
    pub fn new(settings: GroupSettings, journal: Box<dyn Journal>) -> Self {
        let partition = match journal.log_end() {
            Some(_) => Partition::new(settings).rewriting_after(REWRITE_RECORDS_MIN),
            None => Partition::new(settings),
        };
        let phase = Phase::Loading { partition, report: LoadReport::default(), deleted: Vec::new() };
        Self {
            inner: Rc::new(Inner {
                journal,
                started: Instant::now(),
                phase: RefCell::new(phase),
                last_ticket: Cell::new(0),
                waiting: RefCell::default(),
                writes: RefCell::default(),
                writer_runs: Cell::new(false),
                mark: Cell::new(None),
                timer_at: Cell::new(None),
                timer_moved: rt::Event::default(),
            }),
        }
    }

    /// Applies one whole batch of the log, in order. After an error the coordinator has ended.
    pub fn load_batch(&self, bytes: &[u8]) -> Result<(), LoadError> {
        let mut phase = self.inner.phase.borrow_mut();
        if let Phase::Loading { partition, report, .. } = &mut *phase
            && let Err(error) = load(partition, report, bytes)
        {
            *phase = Phase::Ended;
            return Err(error);
        }
        Ok(())
    }

    /// The log is read: sessions begin, commands are served.
    pub fn finish_loading(&self) -> LoadReport {
        let (partition, report, deleted) = match self.inner.phase.replace(Phase::Ended) {
            Phase::Loading { partition, report, deleted } => (partition, report, deleted),
            other => {
                self.inner.phase.replace(other);
                return LoadReport::default();
            }
        };
        let report = LoadReport { groups: partition.group_count(), ..report };
        // Written anew the log would hold only what was understood.
        let partition = if report.skipped > 0 { partition.never_rewriting() } else { partition };
        self.inner.phase.replace(Phase::Active(partition));
        self.inner.step(|partition, now, fx| partition.on_loaded(now, fx));
        if !deleted.is_empty() {
            self.submit(GroupCommand::TopicsDeleted(deleted), Box::new(|_| {}));
        }
        report
    }

    /// Takes a command; `respond` is called with its answer, at once or when its time has come.
    pub fn submit(&self, command: GroupCommand, respond: Respond) {
        let refusal = match &mut *self.inner.phase.borrow_mut() {
            Phase::Active(_) => None,
            Phase::Loading { deleted, .. } => Some(match &command {
                // The group is there, only not read yet: a member that hears an error would leave it.
                GroupCommand::Heartbeat(_) => GroupAnswer::Heartbeat(Ok(())),
                GroupCommand::TopicsDeleted(topics) => {
                    deleted.extend(topics.iter().cloned());
                    GroupAnswer::TopicsDeleted
                }
                command => command.refused(GroupError::LoadInProgress),
            }),
            Phase::Ended => Some(command.refused(GroupError::NotCoordinator)),
        };
        if let Some(answer) = refusal {
            return respond(answer);
        }
        let ticket = Ticket(self.inner.last_ticket.get() + 1);
        self.inner.last_ticket.set(ticket.0);
        self.inner.waiting.borrow_mut().insert(ticket, respond);
        self.inner.step(|partition, now, fx| partition.on_command(now, ticket, command, fastrand::u128(..), fx));
    }

    /// The leadership is over, or the broker stops: everyone who waits is answered 16, as is all that comes later. Writes
    /// on their way change nothing any more.
    pub fn unload(&self) {
        let phase = self.inner.phase.replace(Phase::Ended);
        self.inner.writes.borrow_mut().clear();
        self.inner.timer_moved.notify_all();
        if let Phase::Active(mut partition) = phase {
            let now = self.inner.now();
            self.inner.answer(partition.on_unload(now));
        }
    }
}

impl Inner {
    fn now(&self) -> Now {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { monotonic: self.started.elapsed(), wall: milliseconds(since_1970) }
    }

    /// Brings one event to the groups and does what it asks for. Does nothing once the leadership is over.
    fn step(self: &Rc<Self>, event: impl FnOnce(&mut Partition, Now, &mut Effects)) {
        let now = self.now();
        let mut fx = Effects::default();
        match &mut *self.phase.borrow_mut() {
            Phase::Active(partition) => {
                event(partition, now, &mut fx);
                #[cfg(debug_assertions)]
                partition.check();
            }
            Phase::Loading { .. } | Phase::Ended => return,
        }
        if fx.mark {
            self.mark.set(self.journal.log_end());
        }
        for (id, records) in fx.writes {
            let appended = encode(&records, now.wall).map_err(JournalError::from);
            let appended = appended.and_then(|batch| self.journal.append(batch));
            self.writes.borrow_mut().push_back((id, appended));
        }
        if fx.discard
            && let Some(mark) = self.mark.take()
        {
            self.journal.discard_before(mark);
        }
        self.answer(fx.replies);
        self.run_writer();
        self.run_timer();
    }

    fn answer(&self, replies: Vec<(Ticket, GroupAnswer)>) {
        for (ticket, answer) in replies {
            let respond = self.waiting.borrow_mut().remove(&ticket);
            respond.expect("each ticket is answered once")(answer);
        }
    }

    /// Starts the task that awaits the writes one after the other, unless it runs or there is none.
    fn run_writer(self: &Rc<Self>) {
        if self.writes.borrow().is_empty() || self.writer_runs.replace(true) {
            return;
        }
        let inner = self.clone();
        rt::spawn(async move {
            while let Some((id, appended)) = inner.next_write() {
                let result = match appended {
                    Ok(durable) => durable.await,
                    Err(error) => Err(error),
                };
                let result = result.map_err(|error| {
                    warn!(%error, "a group's records were not written");
                    GroupError::from(&error)
                });
                inner.step(|partition, now, fx| partition.on_written(now, id, result, fx));
            }
            inner.writer_runs.set(false);
        });
    }

    fn next_write(&self) -> Option<(WriteId, Result<Durable, JournalError>)> {
        self.writes.borrow_mut().pop_front()
    }

    /// Starts the task that sleeps to the next deadline, or wakes it if it sleeps too long.
    fn run_timer(self: &Rc<Self>) {
        match (self.next_deadline(), self.timer_at.get()) {
            (None, _) => {}
            (Some(at), Some(sleeps_to)) if at >= sleeps_to => {}
            (Some(_), Some(_)) => self.timer_moved.notify_all(),
            (Some(at), None) => {
                self.timer_at.set(Some(at));
                let inner = self.clone();
                rt::spawn(async move { inner.keep_time().await });
            }
        }
    }

    async fn keep_time(self: Rc<Self>) {
        while let Some(at) = self.next_deadline() {
            self.timer_at.set(Some(at));
            let moved = self.timer_moved.wait();
            futures_lite::future::or(rt::sleep_until(self.started + at), moved).await;
            if self.started.elapsed() >= at {
                self.step(|partition, now, fx| partition.on_tick(now, fx));
            }
        }
        self.timer_at.set(None);
    }

    fn next_deadline(&self) -> Option<Duration> {
        match &*self.phase.borrow() {
            Phase::Active(partition) => partition.next_deadline(),
            Phase::Loading { .. } | Phase::Ended => None,
        }
    }
}

fn load(partition: &mut Partition, report: &mut LoadReport, bytes: &[u8]) -> Result<(), LoadError> {
    let info = batch::check_stored(bytes)?;
    if info.control || info.transactional {
        // Offsets of transactions need their coordinator; until that room exists none are written here.
        report.skipped += u64::from(info.records);
        return Ok(());
    }
    let records = Records::open(bytes, LOADED_BATCH_BYTES_MAX)?;
    for record in records.iter() {
        let record = record?;
        let parsed = Record::parse(record.key.unwrap_or_default(), record.value);
        let offset = info.base_offset + i64::from(record.offset_delta);
        match parsed.map_err(|source| LoadError::Record { offset, source })? {
            Some(known) => {
                partition.replay(known);
                report.records += 1;
            }
            None => report.skipped += 1,
        }
    }
    Ok(())
}

fn encode(records: &[Record], timestamp: TimestampMs) -> Result<BytesMut, TooLong> {
    let options =
        BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
    let mut builder = Builder::new(options);
    for record in records {
        let (key, value) = record.encode()?;
        builder.push(timestamp, Some(&key), value.as_deref(), &[]);
    }
    Ok(builder.finish())
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_live_where_kafka_puts_them() {
        // Measured on Kafka 4.4 with four partitions: g0..g3 with this suffix lay on 1, 2, 3, 0.
        for (group_id, partition) in [("g0-zn962", 1), ("g1-zn962", 2), ("g2-zn962", 3), ("g3-zn962", 0)] {
            assert_eq!(partition_for(group_id, 4), partition, "{group_id}");
        }
        assert_eq!(partition_for("", 50), 0);
        assert_eq!(partition_for("polygenelubricants", 50), 0, "hashes to the smallest integer");
        assert_eq!(partition_for("группа-𝄞", 1), 0);
    }
}
