//! The owner's side of produce, fetch and offset questions.
//!
//! Shell. Owns no state: takes shares of requests to the partitions of this shard. Always: items are taken in request
//! order; stage one of a produce is done when [`Shard::produce`] returns, without an await, and stage two is a countdown: no task
//! waits for an acknowledgement; a fetch reads each partition's limits once.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::log::producers::ActiveProducer;
use crate::log::{Appended, ReadError};
use crate::replica::waiters::{Told, Watch};
use crate::replica::{FetchError, Isolation, LeadershipError, Limits, Partition, ProduceError, ReadRequest, Watched};
use crate::rt;
use crate::rt::hop::Gone;
use crate::rt::net::Payload;
use crate::shard::calls::{
    DeleteRecordsError, EpochQuestion, FetchItem, FetchShare, FoundOffset, HopRead, OffsetQuestion, Outcomes,
    ProduceItem, ProduceShare, ShardAnswer, ShardCall, WantedOffset, WatchId, WatchShare,
};
use crate::shard::{Absent, Shard, UNWRITTEN_SHARE};
use crate::types::{AckClass, LeaderEpoch, Offset, PartitionId, ShardIndex, TimestampMs};

/// What was read of one partition.
pub struct Read {
    /// The bounds, read once.
    pub limits: Limits,
    /// Whole batches, as they lie in the cache and on disk.
    pub parts: SmallVec<[Payload; 4]>,
    /// See [`HopRead::counted_bytes`].
    pub counted_bytes: usize,
    /// See [`HopRead::diverging`].
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

impl From<HopRead> for Read {
    fn from(read: HopRead) -> Self {
        let parts = read.parts.into_iter().map(Payload::Mem).collect();
        Self { limits: read.limits, parts, counted_bytes: read.counted_bytes, diverging: read.diverging }
    }
}

impl Read {
    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Payload::len).sum()
    }

    /// Nothing was read.
    fn empty(limits: Limits) -> Self {
        Self { limits, parts: SmallVec::new(), counted_bytes: 0, diverging: None }
    }
}

/// How often a share looks whether the device has caught up.
const CATCH_UP_LOOK: Duration = Duration::from_millis(1);
/// How often acks are looked through for those whose deadline has passed.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// A produce share between its append and its last acknowledgement.
struct PendingShare<F> {
    shard: Rc<Shard>,
    outcomes: RefCell<Outcomes>,
    /// Batches not yet told about, and one until all are registered.
    missing: Cell<usize>,
    /// Some were acknowledged before the device had them (class `memory`).
    runs_ahead: bool,
    deadline: Instant,
    done: Cell<Option<F>>,
}

impl<F: FnOnce(Outcomes) + 'static> PendingShare<F> {
    fn count_down(&self) {
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0
            && let Some(done) = self.done.take()
        {
            let outcomes = self.outcomes.take();
            rt::contained(|| match self.runs_ahead {
                true => self.shard.clone().finish_ahead(outcomes, self.deadline, done),
                false => done(outcomes),
            });
        }
    }
}

impl<F: FnOnce(Outcomes) + 'static> Told for PendingShare<F> {
    fn told(self: Rc<Self>, place: usize, outcome: Result<(), ProduceError>) {
        if let Err(error) = outcome {
            self.outcomes.borrow_mut()[place] = Err(error);
        }
        self.count_down();
    }
}

impl<F> Drop for PendingShare<F> {
    fn drop(&mut self) {
        self.shard.shares_pending.set(self.shard.shares_pending.get() - 1);
    }
}

impl Shard {
    /// Appends the share of a produce request that shard `owner` owns, in order, without an await. `done` is run with what became
    /// of each batch once all have reached their topic's ack class, or the deadline has passed (up to a second later): by whatever
    /// task learns it last, perhaps at once. It must not take long, and is dropped unrun when this shard ends first.
    pub fn produce(self: &Rc<Self>, owner: ShardIndex, share: ProduceShare, done: impl FnOnce(Outcomes) + 'static) {
        if owner == self.index {
            return self.append(share, done);
        }
        let count = share.items.len();
        self.metrics.hop_calls.increment();
        self.hops().call_then(owner, ShardCall::Produce(share), move |answer| {
            done(match answer {
                Ok(ShardAnswer::Produced(outcomes)) => outcomes,
                Ok(_) => unreachable!("a produce share is answered with its outcomes"),
                // Nobody leads the partitions until the broker starts again.
                Err(Gone) => (0..count).map(|_| Err(LeadershipError::NotLeader.into())).collect(),
            });
        });
    }

    /// [`Shard::produce`] for what this shard owns.
    pub(super) fn append<F: FnOnce(Outcomes) + 'static>(self: &Rc<Self>, share: ProduceShare, done: F) {
        let (mut outcomes, mut waits) = (Outcomes::new(), SmallVec::<[_; 1]>::new());
        for (place, item) in share.items.into_iter().enumerate() {
            outcomes.push(self.append_one(item, share.now).map(|(partition, appended)| {
                waits.push((place, partition, appended.last_offset.next()));
                appended
            }));
        }
        self.shares_pending.set(self.shares_pending.get() + 1);
        let pending = Rc::new(PendingShare {
            shard: self.clone(),
            outcomes: RefCell::new(outcomes),
            missing: Cell::new(1 + waits.len()),
            runs_ahead: waits.iter().any(|(_, partition, _)| partition.settings().log.ack_class == AckClass::Memory),
            deadline: share.deadline,
            done: Cell::new(Some(done)),
        });
        for (place, partition, end) in waits {
            if let Some(outcome) = partition.acked_or_tell(end, share.deadline, pending.clone(), place) {
                pending.clone().told(place, outcome);
            }
        }
        pending.count_down();
    }

    /// Where acks run ahead of the device, waits until what is not yet written fits the shard's memory: `done` holds the permit
    /// of the request until then.
    fn finish_ahead(self: Rc<Self>, outcomes: Outcomes, deadline: Instant, done: impl FnOnce(Outcomes) + 'static) {
        let bytes_max = self.memory_bytes() / UNWRITTEN_SHARE;
        if self.log_runtime.pending_bytes() <= bytes_max {
            return done(outcomes);
        }
        rt::spawn(async move {
            while self.log_runtime.pending_bytes() > bytes_max && Instant::now() < deadline {
                rt::sleep(CATCH_UP_LOOK).await;
            }
            done(outcomes);
        });
    }

    /// Tells whoever waits for an ack beyond its deadline. Ends with the shard.
    pub async fn expire_acks(self: Rc<Self>) {
        while !self.stopped.get() {
            futures_lite::future::or(rt::sleep(EXPIRE_EVERY), self.stopping.wait()).await;
            if self.shares_pending.get() == 0 {
                continue;
            }
            let now = Instant::now();
            for partition in self.partitions_now() {
                partition.expire_acks(now);
                rt::yield_if_needed().await;
            }
        }
    }

    fn append_one(&self, item: ProduceItem, now: TimestampMs) -> Result<(Rc<Partition>, Appended), ProduceError> {
        let partition = self.partition(item.partition)?;
        let (bytes, records) = (u64::from(item.info.bytes), u64::from(item.info.records));
        let appended = partition.append_as_leader(item.batch, item.info, now)?;
        if !appended.duplicate {
            self.metrics.produce_batches.increment();
            self.metrics.produce_bytes.add(bytes);
            self.metrics.produce_records.add(records);
        }
        Ok((partition, appended))
    }

    /// Reads the partitions of a share, in order, while its budget lasts.
    pub async fn fetch(&self, share: &FetchShare) -> Vec<Result<Read, FetchError>> {
        let mut outcomes = Vec::with_capacity(share.items.len());
        let (mut left, mut at_least_one) = (share.bytes_max, share.at_least_one);
        for item in &share.items {
            if !outcomes.is_empty() {
                // What lies in memory is read without an await.
                rt::yield_if_needed().await;
            }
            let outcome = self.fetch_one(item, left.min(item.bytes_max), at_least_one, share.isolation).await;
            if let Ok(read) = &outcome {
                let bytes = read.bytes();
                left = left.saturating_sub(bytes);
                at_least_one &= bytes == 0;
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    async fn fetch_one(
        &self,
        item: &FetchItem,
        bytes_max: usize,
        at_least_one: bool,
        isolation: Isolation,
    ) -> Result<Read, FetchError> {
        let partition = self.partition(item.partition)?;
        partition.check_epoch(item.leader_epoch)?;
        let Some(from) = item.from else {
            let limits = partition.limits();
            let (start, end) = (limits.log_start, limits.log_end);
            return Err(ReadError::OutOfRange { wanted: Offset::ZERO, start, end }.into());
        };
        if let Some(last_fetched) = item.last_fetched_epoch
            && let Some(diverging) = partition.diverging(last_fetched, from)?
        {
            return Ok(Read { diverging: Some(diverging), ..Read::empty(partition.limits()) });
        }
        let (limits, plan) = partition.plan_read(ReadRequest { from, bytes_max, at_least_one, isolation })?;
        let Some(plan) = plan else { return Ok(Read::empty(limits)) };
        let data = match plan.try_now() {
            Ok(data) => data,
            Err(plan) => plan.run().await?,
        };
        partition.finish_read(&limits, data.bytes)?;
        self.metrics.fetch_bytes.add(data.bytes as u64);
        // Kafka fills the limits with a part of the next batch, and counts it.
        let counted_bytes = if data.limited { data.bytes.max(bytes_max) } else { data.bytes };
        Ok(Read { parts: data.parts, counted_bytes, ..Read::empty(limits) })
    }

    /// [`Shard::fetch`] for a connection of another shard: what came from disk is copied once, because direct-read memory
    /// belongs to this core.
    pub(super) async fn fetch_for_hop(&self, share: &FetchShare) -> Vec<Result<HopRead, FetchError>> {
        let outcomes = self.fetch(share).await;
        outcomes
            .into_iter()
            .map(|outcome| {
                let Read { limits, parts, counted_bytes, diverging } = outcome?;
                let parts = parts.into_iter().map(|part| self.sendable(part)).collect();
                Ok(HopRead { limits, parts, counted_bytes, diverging })
            })
            .collect()
    }

    fn sendable(&self, part: Payload) -> Bytes {
        match part {
            Payload::Mem(bytes) => bytes,
            Payload::Disk(slice) => {
                self.metrics.fetch_copied_bytes.add(slice.as_slice().len() as u64);
                Bytes::copy_from_slice(slice.as_slice())
            }
        }
    }

    /// Resolves after `bytes` more became visible over `partitions`, or one of them ended. What became visible since it was
    /// read counts; a partition that is gone resolves at once. Every append counts down each place of its partition: who names
    /// more than there are, some again and again, gets one each.
    pub fn watch(&self, partitions: &[(PartitionId, u64)], bytes: u64) -> Watching {
        let watch = Watch::new(bytes);
        let mut partitions = Cow::from(partitions);
        if partitions.len() > self.partitions.borrow().len() {
            let partitions = partitions.to_mut();
            partitions.sort_unstable();
            partitions.dedup_by_key(|(id, _)| *id);
        }
        let mut places = Vec::with_capacity(partitions.len());
        for (id, seen) in partitions.iter() {
            match self.partition(*id) {
                Ok(partition) => places.push(partition.watch(&watch, *seen)),
                Err(Absent::NotLeader | Absent::Offline(_)) => drop(watch.fire()),
            }
        }
        Watching { watch, _places: places }
    }

    /// [`Shard::watch`] for a connection of another shard, which may give it up from now on, before the future is polled.
    pub(super) fn watch_for_hop(self: &Rc<Self>, share: WatchShare) -> impl Future<Output = ()> + 'static {
        let given_up = rt::Event::default();
        let (watching, until_given_up) = (self.watch(&share.partitions, share.bytes), given_up.wait());
        self.watches.borrow_mut().insert(share.id, given_up);
        let shard = self.clone();
        async move {
            futures_lite::future::or(watching, until_given_up).await;
            shard.watches.borrow_mut().remove(&share.id);
        }
    }

    pub(super) fn unwatch(&self, id: WatchId) {
        let watch = self.watches.borrow_mut().remove(&id);
        if let Some(given_up) = watch {
            given_up.notify_all();
        }
    }

    /// Answers ListOffsets questions.
    pub async fn list_offsets(&self, questions: &[OffsetQuestion]) -> Vec<Result<FoundOffset, FetchError>> {
        let mut outcomes = Vec::with_capacity(questions.len());
        for question in questions {
            outcomes.push(self.list_offset(question).await);
            rt::yield_if_needed().await;
        }
        outcomes
    }

    async fn list_offset(&self, question: &OffsetQuestion) -> Result<FoundOffset, FetchError> {
        let partition = self.partition(question.partition)?;
        partition.check_epoch(question.leader_epoch)?;
        if let Some(reason) = partition.log().offline() {
            return Err(ReadError::Offline(reason).into());
        }
        let limits = partition.limits();
        let below = limits.bound(question.isolation);
        let position =
            |offset| FoundOffset { offset: Some(offset), timestamp: None, leader_epoch: Some(limits.leader_epoch) };
        let record = match question.wanted {
            WantedOffset::Latest => return Ok(position(below)),
            WantedOffset::Earliest => {
                return Ok(FoundOffset {
                    leader_epoch: partition.epoch_at(limits.log_start),
                    ..position(limits.log_start)
                });
            }
            WantedOffset::Tiered => None,
            WantedOffset::MaxTimestamp => partition.log().find_max_timestamp(below).await?,
            WantedOffset::At(time) => partition.log().find_timestamp(time, below).await?,
        };
        Ok(record.map_or(FoundOffset::default(), |(offset, timestamp, epoch)| FoundOffset {
            offset: Some(offset),
            timestamp: Some(timestamp),
            leader_epoch: Some(epoch),
        }))
    }

    /// A partition of this shard whose log opened and has not failed since.
    fn online(&self, id: PartitionId) -> Result<Rc<Partition>, FetchError> {
        let partition = self.partition(id)?;
        match partition.log().offline() {
            Some(reason) => Err(ReadError::Offline(reason).into()),
            None => Ok(partition),
        }
    }

    /// Answers OffsetForLeaderEpoch questions.
    pub fn epoch_ends(&self, questions: &[EpochQuestion]) -> Vec<Result<Option<(LeaderEpoch, Offset)>, FetchError>> {
        let answer = |question: &EpochQuestion| {
            let partition = self.online(question.partition)?;
            partition.check_epoch(question.current)?;
            Ok(question.wanted.and_then(|epoch| partition.epoch_end(epoch)))
        };
        questions.iter().map(answer).collect()
    }

    /// Answers DescribeProducers.
    pub async fn active_producers(&self, partitions: &[PartitionId]) -> Vec<Result<Vec<ActiveProducer>, FetchError>> {
        let mut answers = Vec::with_capacity(partitions.len());
        for id in partitions {
            answers.push(self.online(*id).map(|partition| partition.log().active_producers()));
            rt::yield_if_needed().await;
        }
        answers
    }

    /// Moves log starts.
    pub async fn delete_records(
        &self,
        items: &[(PartitionId, Option<Offset>)],
    ) -> Vec<Result<Offset, DeleteRecordsError>> {
        let mut outcomes = Vec::with_capacity(items.len());
        for (id, to) in items {
            outcomes.push(self.delete_records_of(*id, *to).await);
            rt::yield_if_needed().await;
        }
        outcomes
    }

    async fn delete_records_of(&self, id: PartitionId, to: Option<Offset>) -> Result<Offset, DeleteRecordsError> {
        let partition = self.partition(id).map_err(|absent| match absent {
            Absent::NotLeader => DeleteRecordsError::Leadership(LeadershipError::NotLeader),
            Absent::Offline(reason) => DeleteRecordsError::Read(ReadError::Offline(reason)),
        })?;
        let high_watermark = partition.limits().high_watermark;
        let to = to.unwrap_or(high_watermark);
        if to > high_watermark {
            return Err(DeleteRecordsError::OutOfRange { wanted: to, high_watermark });
        }
        let moved = partition.log().delete_records(to).await;
        // Of a topic that was deleted meanwhile the log is closed, which is no fault of the disk.
        partition.check_epoch(None)?;
        Ok(moved?)
    }
}

/// A waiting fetch's interest in the partitions of one shard; see [`Shard::watch`]. Dropping it gives it up.
pub struct Watching {
    watch: Rc<Watch>,
    _places: Vec<Watched>,
}

impl Future for Watching {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.watch.fired() {
            return Poll::Ready(());
        }
        self.watch.set_waker(context.waker());
        Poll::Pending
    }
}
