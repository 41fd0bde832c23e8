//! All of a consumer but its polls: positions, pauses, commits, questions about offsets.
//!
//! Shell. Owns the methods of [`ConsumerHandle`]. Always true: what needs no broker answers at once from what is known;
//! what needs one is done on the client's thread and ends within its time. Source: Java's Consumer interface.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures_lite::future::block_on;
use tokio::sync::oneshot;

use super::driver::{Attempts, Driver};
use super::state::Committing;
use super::{ConsumerHandle, ConsumerMetrics, Lookup, OffsetAndMetadata, OffsetAndTimestamp, Offsets, Position};
use crate::client::consumer_error::ConsumerError;
use crate::client::error::ClientError;
use crate::types::{Offset, TimestampMs, TopicName, TopicPartition};
use std::rc::Rc;

const NOT_ASSIGNED: ConsumerError = ConsumerError::Misuse("the partition is not assigned to this consumer");

impl ConsumerHandle {
    /// What is read now, by the group's last deal or by hand.
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.shared.lock().fetcher.assigned().cloned().collect()
    }

    /// Ends the wait of a poll with [`ConsumerError::Woken`]: the one under way, or else the next.
    pub fn wake(&self) {
        self.shared.lock().woken = true;
        self.shared.to_user.notify_one();
    }

    /// What it did so far.
    pub fn metrics(&self) -> ConsumerMetrics {
        self.shared.lock().metrics
    }

    /// Gives out nothing of these and asks for nothing, until they are resumed; what was fetched ahead is kept. A rebalance that
    /// takes a partition away ends its pause. Errors: one is not assigned.
    pub fn pause<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) -> Result<(), ConsumerError> {
        self.set_paused(partitions, true)
    }

    /// Ends [`ConsumerHandle::pause`].
    pub fn resume<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) -> Result<(), ConsumerError> {
        self.set_paused(partitions, false)
    }

    fn set_paused<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        paused: bool,
    ) -> Result<(), ConsumerError> {
        self.for_each(partitions, |state, partition| state.fetcher.pause(partition, paused))
    }

    /// What is paused.
    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        self.shared.lock().fetcher.paused().cloned().collect()
    }

    /// The next poll goes on at that offset. Errors: not assigned.
    pub fn seek(&self, partition: &TopicPartition, offset: Offset) -> Result<(), ConsumerError> {
        self.seek_to_position(partition, Position { offset, leader_epoch: None })
    }

    /// As [`ConsumerHandle::seek`], with the epoch of the record before, so that a truncation since then is noticed.
    pub fn seek_to_position(&self, partition: &TopicPartition, position: Position) -> Result<(), ConsumerError> {
        self.for_each([partition], |state, partition| state.fetcher.seek(partition, position))
    }

    /// Goes on at the log start, the end, or a time, which are looked up. Errors: one is not assigned.
    pub fn seek_to<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        place: Lookup,
    ) -> Result<(), ConsumerError> {
        self.for_each(partitions, |state, partition| state.fetcher.seek_to(partition, place))
    }

    /// [`ConsumerHandle::seek_to`] the log start.
    pub fn seek_to_beginning<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<(), ConsumerError> {
        self.seek_to(partitions, Lookup::Earliest)
    }

    /// [`ConsumerHandle::seek_to`] the end.
    pub fn seek_to_end<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> Result<(), ConsumerError> {
        self.seek_to(partitions, Lookup::Latest)
    }

    fn for_each<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        act: impl Fn(&mut super::state::State, &TopicPartition) -> bool,
    ) -> Result<(), ConsumerError> {
        let mut state = self.shared.lock();
        let mut all = true;
        for partition in partitions {
            all &= act(&mut state, partition);
        }
        drop(state);
        self.shared.to_driver.notify_one();
        // Records of a resumed partition may lie ready.
        self.shared.to_user.notify_one();
        if all { Ok(()) } else { Err(NOT_ASSIGNED) }
    }

    /// The offset of the next record a poll gives; `None` while that is being found out, or if the partition is not assigned.
    pub fn known_position(&self, partition: &TopicPartition) -> Option<Offset> {
        self.shared.lock().fetcher.position(partition).map(|position| position.offset)
    }

    /// As [`ConsumerHandle::known_position`], and waits until it is found out. Errors: not assigned, or not known in time.
    pub async fn position(&self, partition: &TopicPartition, timeout: Duration) -> Result<Offset, ConsumerError> {
        if !self.shared.lock().fetcher.is_assigned(partition) {
            return Err(NOT_ASSIGNED);
        }
        if let Some(offset) = self.known_position(partition) {
            return Ok(offset);
        }
        let partition = partition.clone();
        self.ask(move |driver| async move { driver.position(&partition, timeout).await }).await?
    }

    /// Blocking twin of [`ConsumerHandle::position`].
    pub fn position_sync(&self, partition: &TopicPartition, timeout: Duration) -> Result<Offset, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.position(partition, timeout))
    }

    /// How many offsets lie between the position and the end, by the newest answer to a fetch; under read_committed the end is
    /// the last stable offset. `None` before the first.
    pub fn lag(&self, partition: &TopicPartition) -> Option<u64> {
        self.shared.lock().fetcher.lag(partition)
    }

    /// Log start and high watermark, by the newest answer to a fetch.
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<(Offset, Offset)> {
        self.shared.lock().fetcher.watermarks(partition)
    }

    /// Commits where it stands in every partition: everything polls have given out. Tries again until it is stored or
    /// `default.api.timeout.ms` is over. Errors: [`ConsumerError::CommitFailed`] when the partitions may be others' now.
    pub async fn commit(&self) -> Result<(), ConsumerError> {
        let offsets = self.positions();
        self.commit_offsets(offsets).await
    }

    /// Blocking twin of [`ConsumerHandle::commit`].
    pub fn commit_sync(&self) -> Result<(), ConsumerError> {
        self.assert_elsewhere();
        block_on(self.commit())
    }

    /// Commits these.
    pub async fn commit_offsets(&self, offsets: Offsets) -> Result<(), ConsumerError> {
        let deadline = self.shared.now() + self.settings.default_api_timeout;
        self.commit_by(offsets, deadline).await
    }

    /// Blocking twin of [`ConsumerHandle::commit_offsets`].
    pub fn commit_offsets_sync(&self, offsets: Offsets) -> Result<(), ConsumerError> {
        self.assert_elsewhere();
        block_on(self.commit_offsets(offsets))
    }

    /// Commits where it stands and does not wait. One attempt: a later commit would be overtaken by a retry of an older one.
    /// `done` is called on the client's thread, so it must be quick. Whatever gives partitions up or ends the consumer, but a drop, waits
    /// for it as long as it has time.
    pub fn commit_async(&self, done: impl FnOnce(Result<(), ConsumerError>) + Send + 'static) {
        self.commit_offsets_async(self.positions(), done);
    }

    /// As [`ConsumerHandle::commit_async`], these.
    pub fn commit_offsets_async(
        &self,
        offsets: Offsets,
        done: impl FnOnce(Result<(), ConsumerError>) + Send + 'static,
    ) {
        let deadline = self.shared.now() + self.settings.default_api_timeout;
        // As who this is now: by the time it is sent it may have unsubscribed.
        let (committing, identity) = (Committing::begin(&self.shared), self.shared.lock().committer());
        self.send(move |driver| async move {
            let _committing = committing;
            done(match identity {
                Ok(identity) => driver.commit(offsets, deadline, Attempts::One(identity)).await,
                Err(error) => Err(error),
            });
        });
    }

    pub(super) async fn commit_by(&self, offsets: Offsets, deadline: Duration) -> Result<(), ConsumerError> {
        if self.shared.lock().closed {
            return Err(ClientError::Closed.into());
        }
        if offsets.is_empty() {
            return Ok(());
        }
        self.ask(move |driver| async move { driver.commit(offsets, deadline, Attempts::Many).await }).await?
    }

    /// Waits, until `deadline`, for commits nobody awaits: once partitions are given up, they would be refused.
    pub(super) async fn commits_done(&self, deadline: Duration) {
        loop {
            {
                let mut state = self.shared.lock();
                if state.commits == 0 || self.shared.now() >= deadline {
                    return;
                }
                state.user_deadline = Some(deadline);
            }
            self.shared.to_driver.notify_one();
            self.shared.to_user.notified().await;
        }
    }

    /// Where it stands in every partition where that is known: what [`ConsumerHandle::commit`] commits.
    pub fn positions(&self) -> Offsets {
        let state = self.shared.lock();
        let positions = state.fetcher.positions();
        let offset = |(partition, position): (&TopicPartition, Position)| {
            let Position { offset, leader_epoch } = position;
            (partition.clone(), OffsetAndMetadata { offset, leader_epoch, metadata: String::new() })
        };
        positions.map(offset).collect()
    }

    /// What the group has committed for these; partitions without are missing in the answer.
    pub async fn committed(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<Offsets, ConsumerError> {
        let partitions: Vec<TopicPartition> = partitions.into_iter().collect();
        let deadline = self.shared.now() + self.settings.default_api_timeout;
        self.ask(move |driver| async move { driver.committed(&partitions, deadline).await }).await?
    }

    /// Blocking twin of [`ConsumerHandle::committed`].
    pub fn committed_sync(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<Offsets, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.committed(partitions))
    }

    /// Where the logs begin.
    pub async fn beginning_offsets(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Offset>, ConsumerError> {
        self.edges(partitions, Lookup::Earliest).await
    }

    /// Where the logs end: the high watermark, under read_committed the last stable offset.
    pub async fn end_offsets(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Offset>, ConsumerError> {
        self.edges(partitions, Lookup::Latest).await
    }

    /// Blocking twin of [`ConsumerHandle::beginning_offsets`].
    pub fn beginning_offsets_sync(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Offset>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.beginning_offsets(partitions))
    }

    /// Blocking twin of [`ConsumerHandle::end_offsets`].
    pub fn end_offsets_sync(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Offset>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.end_offsets(partitions))
    }

    async fn edges(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
        edge: Lookup,
    ) -> Result<BTreeMap<TopicPartition, Offset>, ConsumerError> {
        let found = self.look_up(partitions.into_iter().map(|partition| (partition, edge)).collect()).await?;
        Ok(found.into_iter().filter_map(|(partition, found)| Some((partition, found?.offset))).collect())
    }

    /// The first record at or after each time; `None`: no record is so young.
    pub async fn offsets_for_times(
        &self,
        times: impl IntoIterator<Item = (TopicPartition, TimestampMs)>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ConsumerError> {
        let times: Vec<(TopicPartition, TimestampMs)> = times.into_iter().collect();
        if times.iter().any(|(_, time)| *time < 0) {
            return Err(ConsumerError::Misuse("a time before 1970 cannot be looked up"));
        }
        self.look_up(times.into_iter().map(|(partition, time)| (partition, Lookup::Time(time))).collect()).await
    }

    /// Blocking twin of [`ConsumerHandle::offsets_for_times`].
    pub fn offsets_for_times_sync(
        &self,
        times: impl IntoIterator<Item = (TopicPartition, TimestampMs)>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.offsets_for_times(times))
    }

    async fn look_up(
        &self,
        lookups: BTreeMap<TopicPartition, Lookup>,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ConsumerError> {
        let deadline = self.shared.now() + self.settings.default_api_timeout;
        self.ask(move |driver| async move { driver.look_up(lookups, deadline).await }).await?
    }

    /// The partitions a topic has; waits until the cluster has answered. Errors: there is no such topic.
    pub async fn partitions_for(&self, topic: &str) -> Result<Vec<TopicPartition>, ConsumerError> {
        let topic: TopicName = topic.into();
        let timeout = self.settings.default_api_timeout;
        self.ask(move |driver| async move { driver.partitions_for(&topic, timeout).await }).await?
    }

    /// Blocking twin of [`ConsumerHandle::partitions_for`].
    pub fn partitions_for_sync(&self, topic: &str) -> Result<Vec<TopicPartition>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.partitions_for(topic))
    }

    /// Begins a task on the client's thread; nothing happens when the consumer is closed.
    pub(super) fn send<F, Fut>(&self, make: F)
    where
        F: FnOnce(Rc<Driver>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let begin = |driver| _ = tokio::task::spawn_local(make(driver));
        _ = self.jobs.send(Box::new(begin));
    }

    /// Does something on the client's thread and waits for what comes out.
    pub(super) async fn ask<T, F, Fut>(&self, make: F) -> Result<T, ConsumerError>
    where
        F: FnOnce(Rc<Driver>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.send(move |driver| async move {
            // Nobody waits any more: the value is of no use.
            _ = sender.send(make(driver).await);
        });
        receiver.await.map_err(|_| ClientError::Closed.into())
    }

    /// A thread that waited for itself would wait for ever.
    pub(super) fn assert_elsewhere(&self) {
        assert!(!self.io.is_here(), "a blocking call on the client's own thread; use its async twin");
    }
}
