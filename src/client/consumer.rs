//! The consumer: reads topics as a member of a group, or partitions by itself.
//!
//! Shell. Owns the faces ([`Consumer`], [`ConsumerHandle`]), async and blocking, and the order in which a program hears of
//! records, rebalances and errors. What to read and when is decided in `fetcher` and `membership`; the client's thread
//! (`driver`) sends and receives, and goes on doing so between polls. Always true: partitions are given up only inside
//! `poll`, `unsubscribe` or `close`, when the program is done with what it got before; what was given out is committed by
//! auto commit only after the next `poll` was entered; a `poll` whose future is dropped loses nothing.
//! Source: Java's KafkaConsumer, whose behaviour and settings it follows.
//!
//! Futures may be awaited on any runtime, also on the client's own thread. The `…_sync` twins block the calling thread
//! and must not be called on the client's own.

mod driver;
mod handle;
mod listener;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_lite::future::block_on;
use regex::Regex;
use tokio::sync::mpsc;

use self::driver::{Driver, Job};
pub use self::listener::{
    ConsumerInterceptor, ConsumerMetrics, Heard, OffsetAndMetadata, OffsetAndTimestamp, Offsets, RebalanceListener,
};
use self::state::{Next, Shared, Wanted, wall};
use super::consumer_error::ConsumerError;
use super::error::ClientError;
use super::fetcher::{Fetcher, FetcherSettings, Portion};
pub use super::fetcher::{Lookup, Position, RecordBatch, RecordView};
use super::io::Io;
pub use super::membership::Farewell;
use super::membership::{Membership, MembershipSettings, Step};
use super::record::Record;
use super::settings::ConsumerSettings;
use crate::types::{TopicName, TopicPartition};

/// Reads records. One task polls it; everything else is done through its [`ConsumerHandle`], to which it derefs.
///
/// Dropping it without [`Consumer::close`] leaves the group without a last commit.
pub struct Consumer {
    handle: ConsumerHandle,
    listener: Option<Box<dyn RebalanceListener<ConsumerHandle>>>,
}

/// All of a consumer but its polls. Clones act on the same consumer, from any thread.
#[derive(Clone)]
pub struct ConsumerHandle {
    shared: Arc<Shared>,
    jobs: mpsc::UnboundedSender<Job>,
    io: Io,
    settings: Arc<ConsumerSettings>,
    interceptors: Interceptors,
}

type Interceptors = Arc<[Box<dyn ConsumerInterceptor>]>;

/// The program is inside a poll, until this is dropped.
struct Polling(Arc<Shared>);

impl Drop for Polling {
    fn drop(&mut self) {
        let now = self.0.now();
        let mut state = self.0.lock();
        state.user_deadline = None;
        let undone = state.membership.as_mut().and_then(|membership| {
            membership.on_poll_end(now);
            membership.on_step_undone()
        });
        // Others may have these before the program hears of them again, and then it will not hear that they are gone.
        if let Some(Step::Assign(new)) = undone {
            new.iter().for_each(|partition| state.unassign(partition));
        }
    }
}

impl Consumer {
    /// On a thread of its own. Errors: the system gives no thread.
    pub fn new(settings: ConsumerSettings) -> Result<Self, ClientError> {
        let io = Io::start("consumer")
            .map_err(|error| ClientError::Misuse(format!("no thread for the consumer: {error}").into()))?;
        Ok(Self::on(&io, settings))
    }

    /// On a thread shared with other clients.
    pub fn on(io: &Io, settings: ConsumerSettings) -> Self {
        Self::intercepted(io, settings, Vec::new())
    }

    /// As [`Consumer::on`], with interceptors, the first of which sees records first.
    pub fn intercepted(io: &Io, settings: ConsumerSettings, interceptors: Vec<Box<dyn ConsumerInterceptor>>) -> Self {
        let mut settings = settings.bounded();
        if settings.client.client_id.is_empty() {
            settings.client.client_id = client_id(&settings);
        }
        let fetcher = Fetcher::new(FetcherSettings {
            reset: settings.auto_offset_reset,
            isolation: settings.isolation_level,
            check_crcs: settings.check_crcs,
            bytes_max: usize::try_from(settings.fetch_max_bytes).unwrap_or(0),
            partition_bytes_max: settings.max_partition_fetch_bytes,
            retry_backoff: settings.client.retry_backoff,
        });
        let membership = settings.group_id.as_deref().map(|group_id| {
            Membership::new(MembershipSettings {
                group_id: group_id.into(),
                instance_id: settings.group_instance_id.as_deref().map(Into::into),
                assignors: settings.assignors.clone(),
                session_timeout: settings.session_timeout,
                heartbeat_interval: settings.heartbeat_interval,
                max_poll_interval: settings.max_poll_interval,
                request_timeout: settings.client.request_timeout,
                retry_backoff: settings.client.retry_backoff,
                retry_backoff_max: settings.client.retry_backoff_max,
                rack: settings.client.client_rack.as_deref().filter(|rack| !rack.is_empty()).map(Into::into),
                seed: fastrand::u64(..),
            })
        });
        let auto_commits = settings.enable_auto_commit && membership.is_some();
        let shared = Arc::new(Shared::new(fetcher, membership, auto_commits.then_some(settings.auto_commit_interval)));
        let (jobs, inbox) = mpsc::unbounded_channel();
        let handle = ConsumerHandle {
            shared: Arc::clone(&shared),
            jobs,
            io: io.clone(),
            settings: Arc::new(settings),
            interceptors: interceptors.into(),
        };
        let (settings, interceptors) = (Arc::clone(&handle.settings), Arc::clone(&handle.interceptors));
        io.spawn(move || Driver::run(shared, settings, interceptors, inbox));
        Self { handle, listener: None }
    }

    /// What others may hold of it.
    pub fn handle(&self) -> ConsumerHandle {
        self.handle.clone()
    }

    /// Who hears of rebalances from now on.
    pub fn set_listener(&mut self, listener: impl RebalanceListener<ConsumerHandle> + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// Reads these topics as a member of the group, instead of what was subscribed before. Errors: no group, or partitions
    /// were assigned by hand.
    pub fn subscribe<T: AsRef<str>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<(), ConsumerError> {
        let topics: BTreeSet<TopicName> = topics.into_iter().map(|topic| topic.as_ref().into()).collect();
        self.may_subscribe()?;
        let mut state = self.shared.lock();
        if let Some(membership) = &mut state.membership {
            membership.on_subscription(topics.clone());
        }
        state.wanted = Wanted::Topics(topics.clone());
        drop(state);
        self.send(move |driver| async move { driver.keep_fresh(&topics).await });
        Ok(())
    }

    /// Reads, as a member of the group, every topic whose whole name matches, also those to come. Errors: as
    /// [`Consumer::subscribe`], or the text is no regular expression.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), ConsumerError> {
        let whole = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|error| ClientError::Misuse(format!("no regular expression: {error}").into()))?;
        self.may_subscribe()?;
        self.shared.lock().wanted = Wanted::Pattern(whole);
        self.send(|driver| async move { driver.keep_all_fresh().await });
        Ok(())
    }

    fn may_subscribe(&self) -> Result<(), ConsumerError> {
        let state = self.shared.lock();
        match (&state.membership, &state.wanted) {
            (None, _) => Err(ConsumerError::Misuse("subscribing needs a group.id; or assign partitions")),
            (_, Wanted::Partitions) => Err(ConsumerError::Misuse("partitions are assigned by hand: unsubscribe first")),
            _ => Ok(()),
        }
    }

    /// Reads these partitions and no others, without anybody dealing them out. They begin at what the group has committed, if
    /// there is one. Errors: topics are subscribed.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) -> Result<(), ConsumerError> {
        let partitions: BTreeSet<TopicPartition> = partitions.into_iter().collect();
        let topics: BTreeSet<TopicName> = partitions.iter().map(|partition| partition.topic.clone()).collect();
        let mut state = self.shared.lock();
        if matches!(state.wanted, Wanted::Topics(_) | Wanted::Pattern(_)) {
            return Err(ConsumerError::Misuse("topics are subscribed: unsubscribe first"));
        }
        state.wanted = Wanted::Partitions;
        let gone: Vec<TopicPartition> =
            state.fetcher.assigned().filter(|partition| !partitions.contains(partition)).cloned().collect();
        for partition in &gone {
            state.unassign(partition);
        }
        let from_group = state.membership.is_some();
        for partition in partitions {
            state.fetcher.assign(partition, from_group, wall());
        }
        drop(state);
        self.send(move |driver| async move { driver.keep_fresh(&topics).await });
        Ok(())
    }

    /// Ends what [`Consumer::subscribe`] or [`Consumer::assign`] began: gives up what it has (with a last auto commit) and
    /// leaves the group.
    pub async fn unsubscribe(&mut self) -> Result<(), ConsumerError> {
        let deadline = self.shared.now() + self.settings.default_api_timeout;
        self.give_up("the consumer unsubscribed", Farewell::ByKind, deadline).await;
        Ok(())
    }

    /// Blocking twin of [`Consumer::unsubscribe`].
    pub fn unsubscribe_sync(&mut self) -> Result<(), ConsumerError> {
        self.assert_elsewhere();
        block_on(self.unsubscribe())
    }

    /// The next records, at most `max.poll.records`, those of one partition after each other. Waits up to `timeout` for the
    /// first; none when it is over. Rebalances happen in here, and their listener is called. Errors: one thing that went wrong;
    /// the next poll goes on.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<Record>, ConsumerError> {
        let _polling = self.enter();
        let deadline = self.shared.deadline(timeout);
        let count_max = self.settings.max_poll_records;
        let mut records = Vec::new();
        while records.is_empty() && self.wait_for_records(deadline).await? {
            self.drain(|portion, _| {
                portion.read_into(count_max - records.len(), &mut records)?;
                Ok(count_max - records.len())
            })
            .or_else(|error| if records.is_empty() { Err(error) } else { Ok(()) })?;
        }
        if !records.is_empty() {
            self.shared.lock().metrics.records += records.len() as u64;
            for interceptor in self.interceptors.iter() {
                records = interceptor.on_consume(records);
            }
        }
        Ok(records)
    }

    /// Blocking twin of [`Consumer::poll`].
    pub fn poll_sync(&mut self, timeout: Duration) -> Result<Vec<Record>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.poll(timeout))
    }

    /// As [`Consumer::poll`], for programs that read very many records: whole batches, whose records are borrowed from them
    /// without an allocation each. At least one batch, then more while they hold fewer than `max.poll.records`. Interceptors
    /// do not see them.
    pub async fn poll_batches(&mut self, timeout: Duration) -> Result<Vec<RecordBatch>, ConsumerError> {
        let _polling = self.enter();
        let deadline = self.shared.deadline(timeout);
        let mut batches = Vec::new();
        while batches.is_empty() && self.wait_for_records(deadline).await? {
            self.drain(|portion, left| {
                let before = batches.len();
                portion.open_into(&mut batches)?;
                let count: usize =
                    batches[before..].iter().map(|batch: &RecordBatch| batch.info().records as usize).sum();
                Ok(left.saturating_sub(count))
            })
            .or_else(|error| if batches.is_empty() { Err(error) } else { Ok(()) })?;
        }
        let count: u64 = batches.iter().map(|batch| u64::from(batch.info().records)).sum();
        self.shared.lock().metrics.records += count;
        Ok(batches)
    }

    /// Blocking twin of [`Consumer::poll_batches`].
    pub fn poll_batches_sync(&mut self, timeout: Duration) -> Result<Vec<RecordBatch>, ConsumerError> {
        self.assert_elsewhere();
        block_on(self.poll_batches(timeout))
    }

    /// Commits (with auto commit), gives up its partitions, leaves the group (a static member stays in it) and ends. Takes no
    /// longer than `timeout`; what was not done by then is not done.
    pub async fn close(self, timeout: Duration) {
        self.close_with(timeout, Farewell::ByKind).await;
    }

    /// As [`Consumer::close`], and says whether the group is told (KIP-1092).
    pub async fn close_with(mut self, timeout: Duration, farewell: Farewell) {
        let deadline = self.shared.deadline(timeout);
        self.give_up("the consumer is closed", farewell, deadline).await;
    }

    /// Blocking twin of [`Consumer::close`].
    pub fn close_sync(self, timeout: Duration) {
        self.assert_elsewhere();
        block_on(self.close(timeout));
    }

    /// From here until it is dropped the program counts as present. What it got before is done with: auto commit may have it.
    fn enter(&self) -> Polling {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        if let Some(membership) = &mut state.membership {
            membership.on_poll();
        }
        let mut due = None;
        if state.auto_commit_at.is_some_and(|at| now >= at) {
            state.auto_commit_at = Some(now + self.settings.auto_commit_interval);
            due = Some(state.uncommitted(|_| true)).filter(|offsets| !offsets.is_empty());
        }
        // Whoever has not joined yet begins now.
        let idle = state.membership.as_ref().is_some_and(|membership| !membership.is_settled());
        drop(state);
        if let Some(offsets) = due {
            let deadline = now + self.settings.default_api_timeout;
            self.send(move |driver| async move { driver.auto_commit(offsets, deadline).await });
        }
        if idle {
            self.shared.to_driver.notify_one();
        }
        Polling(Arc::clone(&self.shared))
    }

    /// True when records are there; false when `deadline` passed. Hears what comes before them.
    async fn wait_for_records(&mut self, deadline: Duration) -> Result<bool, ConsumerError> {
        loop {
            let (next, oversleeps) = {
                let mut state = self.shared.lock();
                (state.next(self.shared.now(), deadline)?, state.driver_oversleeps())
            };
            match next {
                Next::Records => return Ok(true),
                Next::TimedOut => return Ok(false),
                Next::Step(step) => {
                    self.hear(step, deadline.max(self.shared.now() + self.settings.client.request_timeout)).await
                }
                Next::Wait => {
                    if oversleeps {
                        self.shared.to_driver.notify_one();
                    }
                    self.shared.to_user.notified().await;
                }
            }
        }
    }

    /// Gives portions to `read` until it wants no more (it says how many records are still welcome) or there are none.
    fn drain(
        &self,
        mut read: impl FnMut(&mut Portion, usize) -> Result<usize, ConsumerError>,
    ) -> Result<(), ConsumerError> {
        let mut left = self.settings.max_poll_records;
        let mut room = false;
        let mut outcome = Ok(());
        while left > 0 {
            let Some(mut portion) = self.shared.lock().fetcher.take(left) else { break };
            match read(&mut portion, left) {
                Ok(still) => {
                    left = still;
                    room |= self.shared.lock().fetcher.settle(portion);
                }
                Err(error) => {
                    let position = portion.position();
                    self.shared.lock().fetcher.on_unreadable(portion.partition(), position);
                    (room, outcome) = (true, Err(error));
                    break;
                }
            }
        }
        if room {
            self.shared.to_driver.notify_one();
        }
        outcome
    }

    /// Does what a rebalance asks for, and lets the listener hear of it.
    async fn hear(&mut self, step: Step, deadline: Duration) {
        let Self { handle, listener } = self;
        match &step {
            Step::Revoke(gone) => {
                if handle.settings.enable_auto_commit {
                    let offsets = handle.shared.lock().uncommitted(|partition| gone.contains(partition));
                    if !offsets.is_empty() {
                        // Refused or late: others read these records again, which at-least-once allows.
                        _ = handle.commit_by(offsets, deadline).await;
                    }
                }
                if let Some(listener) = listener {
                    let gone: Vec<TopicPartition> = gone.iter().cloned().collect();
                    listener.on_revoked(handle, &gone).await;
                }
                handle.commits_done(deadline).await;
            }
            Step::Lose(gone) => {
                if let Some(listener) = listener {
                    let gone: Vec<TopicPartition> = gone.iter().cloned().collect();
                    listener.on_lost(handle, &gone).await;
                }
            }
            Step::Assign(new) => {
                {
                    let mut state = handle.shared.lock();
                    state.metrics.rebalances += 1;
                    for partition in new {
                        state.fetcher.assign(partition.clone(), true, wall());
                    }
                }
                if let Some(listener) = listener {
                    let new: Vec<TopicPartition> = new.iter().cloned().collect();
                    listener.on_assigned(handle, &new).await;
                }
            }
        }
        let mut state = handle.shared.lock();
        if let Step::Revoke(gone) | Step::Lose(gone) = &step {
            for partition in gone {
                state.unassign(partition);
            }
        }
        if let Some(membership) = &mut state.membership {
            membership.on_step_done();
        }
        drop(state);
        handle.shared.to_driver.notify_one();
    }

    /// The way out of a subscription, by `deadline`.
    async fn give_up(&mut self, reason: &'static str, farewell: Farewell, deadline: Duration) {
        let _polling = Polling(Arc::clone(&self.shared));
        self.commits_done(deadline).await;
        let by_hand = {
            let mut state = self.shared.lock();
            if let Some(membership) = &mut state.membership {
                membership.on_unsubscribed(reason, farewell);
            }
            std::mem::replace(&mut state.wanted, Wanted::Nothing)
        };
        if matches!(by_hand, Wanted::Partitions) {
            if self.settings.enable_auto_commit {
                let offsets = self.shared.lock().uncommitted(|_| true);
                if !offsets.is_empty() {
                    _ = self.commit_by(offsets, deadline).await;
                }
            }
            let mut state = self.shared.lock();
            let all: Vec<TopicPartition> = state.fetcher.assigned().cloned().collect();
            for partition in &all {
                state.unassign(partition);
            }
        }
        self.shared.to_driver.notify_one();
        loop {
            let next = {
                let mut state = self.shared.lock();
                let step = state.membership.as_mut().and_then(Membership::next_step);
                let leaves = state.membership.as_ref().is_some_and(Membership::is_leaving) || state.leaving > 0;
                match step {
                    Some(step) => Next::Step(step),
                    None if !leaves || self.shared.now() >= deadline => break,
                    None => {
                        state.user_deadline = Some(deadline);
                        Next::Wait
                    }
                }
            };
            match next {
                Next::Step(step) => self.hear(step, deadline).await,
                Next::Wait | Next::Records | Next::TimedOut => {
                    self.shared.to_driver.notify_one();
                    self.shared.to_user.notified().await;
                }
            }
        }
    }
}

/// As Java's consumers name themselves, so that members of a group can be told apart.
fn client_id(settings: &ConsumerSettings) -> String {
    static CONSUMERS: AtomicU64 = AtomicU64::new(0);
    let number = CONSUMERS.fetch_add(1, Ordering::Relaxed) + 1;
    match (&settings.group_id, &settings.group_instance_id) {
        (Some(group), Some(instance)) => format!("consumer-{group}-{instance}"),
        (Some(group), None) => format!("consumer-{group}-{number}"),
        (None, _) => format!("consumer-{number}"),
    }
}

impl Deref for Consumer {
    type Target = ConsumerHandle;

    fn deref(&self) -> &ConsumerHandle {
        &self.handle
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.to_driver.notify_one();
        self.shared.to_all.notify_waiters();
    }
}
