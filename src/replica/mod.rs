//! One partition in the cluster's eyes: who leads it, what is acknowledged, what may be read, who waits.
//!
//! Shell. Owns the role, the leader epoch, the high watermark and the waiters of one partition; not the bytes (`log`), not
//! requests or their codes (`server`). Always: `log_start <= last_stable <= high_watermark <= log_end`; limits are read
//! once per request into one value; whoever waits is woken when the log ends. Source: KIP-101, KIP-207; Kafka's `Partition`.

pub mod isr;
mod vocabulary;
pub mod waiters;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;

use crate::config::TopicSettings;
use crate::log::{AppendError, Appended, Log, OpenError, ReadBounds, ReadError, ReadPlan};
use crate::protocol::batch::{self, BatchInfo};
use crate::replica::isr::Progress;
use crate::replica::waiters::{AckKey, DueList, Told, Waiters, Watch, WatchKey};
use crate::types::{LeaderEpoch, Offset, PartitionId, TimestampMs, TopicPartition};

pub use vocabulary::{FetchError, Isolation, LeadershipError, Limits, ProduceError, ReadRequest, Traffic};

/// One partition this shard owns and this broker leads.
pub struct Partition {
    id: PartitionId,
    name: TopicPartition,
    log: Rc<Log>,
    leader_epoch: Cell<LeaderEpoch>,
    ended: Cell<bool>,
    settings: RefCell<Rc<TopicSettings>>,
    progress: RefCell<Progress>,
    waiters: RefCell<Waiters>,
    traffic: Cell<Traffic>,
}

impl Partition {
    /// Takes over an opened log as its leader from `leader_epoch` on.
    pub async fn lead(
        id: PartitionId,
        name: TopicPartition,
        log: Rc<Log>,
        leader_epoch: LeaderEpoch,
        settings: Rc<TopicSettings>,
    ) -> Result<Rc<Self>, OpenError> {
        log.begin_epoch(leader_epoch).await?;
        let partition = Rc::new(Self {
            id,
            name,
            leader_epoch: Cell::new(leader_epoch),
            ended: Cell::new(false),
            settings: RefCell::new(settings),
            // What recovery kept is on the device; with one replica it is all acknowledged.
            progress: RefCell::new(Progress::new(log.acked_offset())),
            waiters: RefCell::default(),
            traffic: Cell::default(),
            log: log.clone(),
        });
        let observer = Rc::downgrade(&partition);
        log.on_change(move || {
            if let Some(partition) = observer.upgrade() {
                partition.on_log_change();
            }
        });
        Ok(partition)
    }

    /// Its id.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// Its log.
    pub fn log(&self) -> &Rc<Log> {
        &self.log
    }

    /// The epoch this broker leads in.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch.get()
    }

    /// The settings of its topic.
    pub fn settings(&self) -> Rc<TopicSettings> {
        self.settings.borrow().clone()
    }

    /// Bytes and records since start.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// How many wait: acks and watches.
    pub fn waiting(&self) -> (usize, usize) {
        self.waiters.borrow().counts()
    }

    /// The bounds now.
    pub fn limits(&self) -> Limits {
        let log = self.log.limits();
        let progress = self.progress.borrow();
        let high_watermark = progress.high_watermark();
        // DeleteRecords and retention stop at the high watermark, so the start cannot pass it.
        debug_assert!(log.log_start <= high_watermark && high_watermark <= log.log_end, "{log:?} {high_watermark}");
        Limits {
            log_start: log.log_start,
            last_stable: self.log.first_unstable().map_or(high_watermark, |unstable| unstable.min(high_watermark)),
            high_watermark,
            log_end: log.log_end,
            leader_epoch: self.leader_epoch.get(),
            visible_bytes: progress.visible_bytes(),
        }
    }

    /// Judges the epoch a request carries; `None` asks for no check.
    pub fn check_epoch(&self, given: Option<LeaderEpoch>) -> Result<(), LeadershipError> {
        let current = self.leader_epoch.get();
        match given {
            Some(given) if given < current => Err(LeadershipError::Fenced { given, current }),
            Some(given) if given > current => Err(LeadershipError::Unknown { given, current }),
            _ if self.ended.get() => Err(LeadershipError::NotLeader),
            _ => Ok(()),
        }
    }

    /// Appends one checked batch. No await: order is the order of calls. Not acknowledged yet: see [`Partition::acked`].
    pub fn append_as_leader(
        &self,
        mut batch: BytesMut,
        mut info: BatchInfo,
        now: TimestampMs,
    ) -> Result<Appended, ProduceError> {
        self.check_epoch(None)?;
        if self.settings.borrow().log_append_time {
            batch::set_log_append_time(&mut batch, now);
            info = batch::parse_header(&batch).expect("a checked batch stays one when its timestamps are set");
        }
        let appended = self.log.append(batch, &info, self.leader_epoch.get(), now)?;
        if !appended.duplicate {
            self.progress.borrow_mut().on_append(appended.last_offset.next(), info.bytes);
            let mut traffic = self.traffic.get();
            traffic.records_in += u64::from(info.records);
            traffic.bytes_in += u64::from(info.bytes);
            self.traffic.set(traffic);
            // Class `memory`: acknowledged as soon as it is appended, and nothing else would say so.
            self.on_log_change();
        }
        Ok(appended)
    }

    /// Resolves when everything below `offset` is acknowledged, with an error when the log or the leadership ended first.
    pub fn acked(self: &Rc<Self>, offset: Offset) -> Acked {
        Acked { partition: self.clone(), offset, leader_epoch: self.leader_epoch.get(), key: None }
    }

    /// The outcome of what was appended below `offset`, when it is known already. Otherwise `told` will be told it: when it is
    /// acknowledged, when the log or the leadership ends first, or when [`Partition::expire_acks`] finds `deadline` passed.
    pub fn acked_or_tell(
        &self,
        offset: Offset,
        deadline: Instant,
        told: Rc<dyn Told>,
        place: usize,
    ) -> Option<Result<(), ProduceError>> {
        let outcome = self.outcome(offset, self.leader_epoch.get());
        if outcome.is_none() {
            self.waiters.borrow_mut().tell_at(offset, deadline, told, place);
        }
        outcome
    }

    /// Whoever waits for an ack longer than to its deadline is told so.
    pub fn expire_acks(&self, now: Instant) {
        let mut due = DueList::new();
        self.waiters.borrow_mut().expire(now, &mut due);
        due.into_iter().for_each(|due| due.settle(Err(ProduceError::TimedOut)));
    }

    /// What became of what was appended below `offset` under `leader_epoch`, if that is known.
    fn outcome(&self, offset: Offset, leader_epoch: LeaderEpoch) -> Option<Result<(), ProduceError>> {
        if let Some(reason) = self.log.offline() {
            return Some(Err(AppendError::Offline(reason).into()));
        }
        if self.ended.get() || self.leader_epoch.get() != leader_epoch {
            return Some(Err(LeadershipError::NotLeader.into()));
        }
        (self.progress.borrow().high_watermark() >= offset).then_some(Ok(()))
    }

    /// Plans a read; no plan when there is nothing below the bound. Above the bound and up to the log end is no error.
    pub fn plan_read(&self, wanted: ReadRequest) -> Result<(Limits, Option<ReadPlan>), FetchError> {
        self.check_epoch(None)?;
        if let Some(reason) = self.log.offline() {
            return Err(ReadError::Offline(reason).into());
        }
        let limits = self.limits();
        if wanted.from < limits.log_start || wanted.from > limits.log_end {
            let (start, end) = (limits.log_start, limits.log_end);
            return Err(ReadError::OutOfRange { wanted: wanted.from, start, end }.into());
        }
        let below = limits.bound(wanted.isolation);
        if wanted.from >= below || (wanted.bytes_max == 0 && !wanted.at_least_one) {
            return Ok((limits, None));
        }
        let bounds = ReadBounds { below, bytes_max: wanted.bytes_max, at_least_one: wanted.at_least_one };
        Ok((limits, Some(self.log.plan_read(wanted.from, bounds)?)))
    }

    /// Where a client's history that ends at `from`, with a last record of `last_fetched`, leaves ours: the last epoch both
    /// share and its end. `None` when it does not. Source: KIP-320, KIP-595.
    pub fn diverging(
        &self,
        last_fetched: LeaderEpoch,
        from: Offset,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
        let limits = self.limits();
        let out_of_range = ReadError::OutOfRange { wanted: from, start: limits.log_start, end: limits.log_end };
        if from < limits.log_start {
            // Before divergence: a reader below the log start must reset, not truncate (KAFKA-12996).
            return Err(out_of_range);
        }
        let (epoch, end) = self.epoch_end(last_fetched).ok_or(out_of_range)?;
        Ok((epoch < last_fetched || end < from).then_some((epoch, end)))
    }

    /// The largest known epoch up to `epoch`, and where it ends (excl.). An epoch older than all that are known ended before
    /// the first of them began; without an answer a client would take its position for lost and reset it. `None` above the
    /// current one: nobody here knows where the future ends. Source: Kafka's `LeaderEpochFileCache.endOffsetFor`.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        if epoch > self.leader_epoch.get() {
            return None;
        }
        self.log.epoch_end(epoch).or_else(|| Some((epoch, self.log.first_epoch_start()?)))
    }

    /// The epoch that `offset` was or will be written under; `None` before the first one known.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        // Ends rise with epochs, so the first epoch that ends above the offset holds it.
        let (mut low, mut high) = (0, self.leader_epoch.get().value());
        while low < high {
            let middle = low + (high - low) / 2;
            let ends_above = LeaderEpoch::new(middle)
                .and_then(|epoch| self.log.epoch_end(epoch))
                .is_some_and(|(_, end)| end > offset);
            if ends_above { high = middle } else { low = middle + 1 }
        }
        LeaderEpoch::new(low).and_then(|epoch| self.log.epoch_end(epoch)).map(|(epoch, _)| epoch)
    }

    /// A planned read is done: the world may have moved meanwhile. Counts the bytes.
    pub fn finish_read(&self, limits: &Limits, bytes: usize) -> Result<(), LeadershipError> {
        if self.ended.get() || self.leader_epoch.get() != limits.leader_epoch {
            return Err(LeadershipError::NotLeader);
        }
        let mut traffic = self.traffic.get();
        traffic.bytes_out += bytes as u64;
        self.traffic.set(traffic);
        Ok(())
    }

    /// Counts `watch` down with every byte that becomes visible from `seen` (of [`Limits::visible_bytes`]) on. The place
    /// is left when the value is dropped.
    pub fn watch(self: &Rc<Self>, watch: &Rc<Watch>, seen: u64) -> Watched {
        let key = self.waiters.borrow_mut().watch(watch.clone());
        let missed = self.progress.borrow().visible_bytes().saturating_sub(seen);
        let woken =
            if self.ended.get() || self.log.offline().is_some() { watch.fire() } else { watch.count_down(missed) };
        if let Some(waker) = woken {
            waker.wake();
        }
        Watched { partition: self.clone(), key }
    }

    /// A new leadership of this broker begins.
    pub async fn begin_epoch(&self, epoch: LeaderEpoch) -> Result<(), OpenError> {
        self.log.begin_epoch(epoch).await?;
        self.leader_epoch.set(epoch);
        self.end_waiting(&LeadershipError::NotLeader.into());
        Ok(())
    }

    /// The topic's settings changed.
    pub fn set_settings(&self, settings: Rc<TopicSettings>) {
        self.log.set_settings(settings.log.clone());
        *self.settings.borrow_mut() = settings;
        self.on_log_change();
    }

    /// The partition is deleted or the shard stops: no further request is served, and everybody who waits is told.
    pub fn end(&self) {
        self.ended.set(true);
        self.end_waiting(&LeadershipError::NotLeader.into());
    }

    fn on_log_change(&self) {
        if let Some(reason) = self.log.offline() {
            return self.end_waiting(&AppendError::Offline(reason).into());
        }
        let acked = self.log.acked_offset();
        let Some(bytes) = self.progress.borrow_mut().on_acked([acked]) else { return };
        let mut due = DueList::new();
        self.waiters.borrow_mut().on_high_watermark(acked, bytes, &mut due);
        due.into_iter().for_each(|due| due.settle(Ok(())));
    }

    fn end_waiting(&self, reason: &ProduceError) {
        let mut due = DueList::new();
        self.waiters.borrow_mut().on_end(&mut due);
        due.into_iter().for_each(|due| due.settle(Err(reason.clone())));
    }
}

/// Waits for an acknowledgement; see [`Partition::acked`].
pub struct Acked {
    partition: Rc<Partition>,
    offset: Offset,
    leader_epoch: LeaderEpoch,
    key: Option<AckKey>,
}

impl Future for Acked {
    type Output = Result<(), ProduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.partition.outcome(self.offset, self.leader_epoch) {
            return Poll::Ready(outcome);
        }
        let mut waiters = self.partition.waiters.borrow_mut();
        let kept = self.key.is_some_and(|key| waiters.rewake(key, context.waker()));
        if !kept {
            let key = waiters.wait_for(self.offset, context.waker().clone());
            drop(waiters);
            self.key = Some(key);
        }
        Poll::Pending
    }
}

impl Drop for Acked {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.partition.waiters.borrow_mut().forget_ack(key);
        }
    }
}

/// A place among the watches of one partition; dropping it leaves it.
pub struct Watched {
    partition: Rc<Partition>,
    key: WatchKey,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.partition.waiters.borrow_mut().forget_watch(self.key);
    }
}
