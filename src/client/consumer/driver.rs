//! The client's thread of one consumer: sends what the pure rooms plan, brings them the answers, keeps time.
//!
//! Shell. Owns the connections and one task per request under way. Always true: one turn of the loop takes the lock once,
//! lets both rooms say all they want, and begins it; an answer is handed in under the lock and rings who waits. Goes on
//! between polls: beats, prefetches, joins. Ends when the consumer is dropped or closed.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::listener::{OffsetAndTimestamp, Offsets};
use super::requests;
use super::state::{Shared, State, Wanted, wall};
use super::{Interceptors, Lookup};
use crate::client::assignor::Topics;
use crate::client::consumer_error::ConsumerError;
use crate::client::error::{ClientError, coordinator_is_stale};
use crate::client::fetcher::{FetchTarget, Leader, Plan, Position, Target};
use crate::client::membership::{Action, Identity, Membership, Refused};
use crate::client::network::{Network, Target as To};
use crate::client::settings::ConsumerSettings;
use crate::protocol::ErrorCode;
use crate::types::{BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition};

/// Something to do on this thread.
pub(super) type Job = Box<dyn FnOnce(Rc<Driver>) + Send>;

/// How long the loop sleeps when nothing is due: a bound on whatever was overlooked.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// How often topics are said to be in use; far below `metadata.max.idle.ms`.
const TOUCH_INTERVAL: Duration = Duration::from_secs(30);
/// For a good-bye nobody waits for.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
/// How much longer than a fetch may wait at the broker its answer may take, if `request.timeout.ms` is shorter.
const FETCH_GRACE: Duration = Duration::from_secs(5);

/// How often a commit is tried, and as whom.
pub(super) enum Attempts {
    /// Until it is stored, as the member this is by then.
    Many,
    /// Once, as the member this was when the commit was asked for.
    One(Option<Identity>),
}

pub(super) struct Driver {
    pub(super) network: Network,
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<ConsumerSettings>,
    interceptors: Interceptors,
    /// Joins wait at the coordinator for others, and hold up what comes behind them.
    joins: Cell<usize>,
    touched: Cell<Option<Instant>>,
}

/// However the driver ends, by a panic too: the program is told instead of waiting for ever.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.ring();
    }
}

impl Driver {
    pub(super) async fn run(
        shared: Arc<Shared>,
        settings: Arc<ConsumerSettings>,
        interceptors: Interceptors,
        mut jobs: mpsc::UnboundedReceiver<Job>,
    ) {
        let _ending = Ending(Arc::clone(&shared));
        let network = Network::new(settings.client.clone());
        let mut metadata = network.on_metadata_change();
        let driver =
            Rc::new(Self { network, shared, settings, interceptors, joins: Cell::new(0), touched: Cell::new(None) });
        while let Some(wake) = driver.turn() {
            tokio::select! {
                biased;
                job = jobs.recv() => match job {
                    Some(job) => job(Rc::clone(&driver)),
                    None => break,
                },
                () = driver.shared.to_driver.notified() => {}
                Ok(()) = metadata.changed() => {
                    let cluster = driver.network.cluster();
                    driver.shared.lock().on_metadata(&cluster, driver.settings.exclude_internal_topics);
                    drop(cluster);
                    driver.shared.ring();
                }
                () = sleep_until(wake) => {}
            }
        }
        driver.say_good_bye().await;
    }

    /// Begins all there is to do and says when to look again; `None` when the consumer is gone.
    fn turn(self: &Rc<Self>) -> Option<Instant> {
        let now = self.shared.now();
        let (mut actions, plans, stale, wake) = {
            let cluster = self.network.cluster();
            let mut state = self.shared.lock();
            if state.closed {
                return None;
            }
            let state = &mut *state;
            let mut actions = Vec::new();
            while let Some(action) = state.membership.as_mut().and_then(|membership| membership.next_action(now)) {
                state.leaving += usize::from(matches!(action, Action::Leave { .. }));
                actions.push(action);
            }
            let plans = state.fetcher.plan(now, |partition| {
                let topic = cluster.topic(&partition.topic)?;
                let (broker, epoch) = cluster.leader(&partition.topic, partition.partition)?;
                Some(Leader { broker, epoch, topic_id: topic.id })
            });
            let beats = state.membership.as_ref().and_then(|membership| membership.next_deadline());
            let due = [beats, state.fetcher.next_deadline(), state.user_deadline];
            if state.user_deadline.is_some_and(|deadline| now >= deadline) {
                state.user_deadline = None;
                self.shared.to_user.notify_one();
            }
            // What is due already was begun, or waits for something else.
            let wake = due.into_iter().flatten().filter(|at| *at > now).min().unwrap_or(now + SLEEP_MAX);
            let wake = wake.min(now + SLEEP_MAX);
            state.driver_wakes = Some(wake);
            (actions, plans, state.fetcher.take_stale(), wake)
        };
        for topic in stale {
            self.network.invalidate(&topic);
        }
        self.touch();
        for action in actions.drain(..) {
            let driver = Rc::clone(self);
            spawn_local(async move { driver.act(action).await });
        }
        for plan in plans {
            let driver = Rc::clone(self);
            spawn_local(async move { driver.carry_out(plan).await });
        }
        Some(self.shared.instant(wake))
    }

    /// Lets `change` bring news in, then rings everybody.
    fn tell<T>(&self, change: impl FnOnce(&mut State, Duration) -> T) -> T {
        let now = self.shared.now();
        let told = change(&mut self.shared.lock(), now);
        self.shared.to_driver.notify_one();
        self.shared.ring();
        told
    }

    /// Topics in use are kept known.
    fn touch(&self) {
        let now = Instant::now();
        if self.touched.get().is_some_and(|at| now < at + TOUCH_INTERVAL) {
            return;
        }
        self.touched.set(Some(now));
        let mut topics: BTreeSet<TopicName> = BTreeSet::new();
        {
            let state = self.shared.lock();
            if let Wanted::Topics(names) = &state.wanted {
                topics.clone_from(names);
            }
            if !matches!(state.wanted, Wanted::Pattern(_)) {
                self.network.forget_others();
            }
            topics.extend(state.fetcher.assigned().map(|partition| partition.topic.clone()));
            topics.extend(state.membership.iter().flat_map(|membership| membership.watched()).cloned());
        }
        self.network.touch(&topics.iter().map(|topic| &**topic).collect::<Vec<_>>());
    }

    /// The program wants to read these topics from now on: what is wanted is touched anew, and these are asked for at once.
    pub(super) async fn keep_fresh(&self, topics: &BTreeSet<TopicName>) {
        self.touched.set(None);
        let names: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
        // Nobody waits for it: what fails is asked again, and polls tell of it.
        let known = self.network.metadata_for(&names, self.settings.client.request_timeout).await;
        self.heard_of_cluster(known);
    }

    pub(super) async fn keep_all_fresh(&self) {
        let known = self.network.metadata_for_all(self.settings.client.request_timeout).await;
        self.heard_of_cluster(known);
    }

    fn heard_of_cluster(&self, known: Result<(), ClientError>) {
        let cluster = self.network.cluster();
        self.tell(|state, _| {
            state.on_metadata(&cluster, self.settings.exclude_internal_topics);
            // A wrong address or a broker too old: the program should hear of it. What may pass is asked again.
            if let Err(error) = known.as_ref().map_err(Clone::clone)
                && !error.retriable()
            {
                state.errors.push_back(error.into());
            }
        });
    }

    async fn act(self: Rc<Self>, action: Action) {
        let group = self.group().to_owned();
        match action {
            Action::FindCoordinator => {
                // Whoever it was, it did not answer as one.
                self.network.forget_coordinator(&group);
                let found = self.network.coordinator(&group, self.settings.client.request_timeout).await;
                self.tell(|state, now| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_coordinator(found.map(drop), now);
                    }
                });
            }
            Action::Join(join) => {
                self.joins.set(self.joins.get() + 1);
                let answer = self.join(&join).await;
                self.joins.set(self.joins.get() - 1);
                self.tell(|state, now| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_join(join.ask, answer, now);
                    }
                });
            }
            Action::Deal { ask, topics } => {
                let names: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
                // What cannot be found out counts as missing, and the group is dealt out anew when it is known.
                _ = self.network.metadata_for(&names, self.settings.client.request_timeout).await;
                self.touched.set(None);
                let there = self.topics_of(&topics);
                self.tell(|state, _| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_topics(ask, &there);
                    }
                });
            }
            Action::Sync(sync) => {
                let answer = self.sync(&sync).await;
                self.tell(|state, now| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_sync(sync.ask, answer, now);
                    }
                });
            }
            Action::Heartbeat { ask, identity } => {
                let answer = self.heartbeat(&identity).await;
                self.tell(|state, now| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_heartbeat(ask, answer, now);
                    }
                });
            }
            Action::Leave { identity, reason } => {
                let time = self.settings.client.request_timeout;
                _ = timeout(time, self.leave(&identity.member_id, reason, time)).await;
                self.tell(|state, _| state.leaving -= 1);
            }
        }
    }

    /// Partitions of these topics, with the racks of their replicas.
    fn topics_of(&self, topics: &BTreeSet<TopicName>) -> Topics {
        let cluster = self.network.cluster();
        let rack = |id: &BrokerId| cluster.broker(*id).and_then(|broker| broker.rack.clone());
        let there = topics.iter().filter_map(|name| {
            let topic = cluster.topic(name).filter(|topic| topic.error.is_none())?;
            let racks = topic.partitions.iter().map(|partition| partition.replicas.iter().filter_map(rack).collect());
            Some((name.clone(), racks.collect()))
        });
        there.collect()
    }

    async fn carry_out(self: Rc<Self>, plan: Plan) {
        match plan {
            Plan::Committed(partitions) => self.fetch_committed(&partitions).await,
            Plan::LookUp(broker, targets) => self.look_up_positions(broker, &targets).await,
            Plan::Validate(broker, targets) => self.validate(broker, &targets).await,
            Plan::Fetch(broker, targets) => self.fetch(broker, &targets).await,
        }
    }

    async fn fetch_committed(&self, partitions: &[(TopicPartition, u64)]) {
        let names: Vec<TopicPartition> = partitions.iter().map(|(partition, _)| partition.clone()).collect();
        let found = self.committed_once(&names, self.settings.client.request_timeout).await;
        self.tell(|state, now| {
            let asked = partitions.iter().map(|(partition, version)| (partition, *version));
            match &found {
                Ok(found) => {
                    for (partition, version) in asked {
                        let known = found.get(partition);
                        if let Some(known) = known {
                            state.committed.insert(partition.clone(), known.clone());
                        }
                        let position =
                            known.map(|known| Position { offset: known.offset, leader_epoch: known.leader_epoch });
                        state.fetcher.on_committed(partition, version, position, wall());
                    }
                }
                Err(ConsumerError::Client(error)) if !error.retriable() => state.fetcher.on_refused(asked, error, now),
                Err(_) => state.fetcher.on_failed(asked, now),
            }
        });
    }

    async fn look_up_positions(&self, broker: BrokerId, targets: &[(Target, Lookup)]) {
        let wanted: Vec<(TopicPartition, Option<LeaderEpoch>, Lookup)> =
            targets.iter().map(|(target, lookup)| (target.partition.clone(), target.leader.epoch, *lookup)).collect();
        let found = self.list_offsets(broker, &wanted, self.settings.client.request_timeout).await;
        self.tell(|state, now| match &found {
            Ok(found) => {
                for (target, lookup) in targets {
                    let answer = found.get(&target.partition).cloned();
                    let answer = answer.unwrap_or(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
                    let position = answer.map(|found| {
                        found.map(|found| Position { offset: found.offset, leader_epoch: found.leader_epoch })
                    });
                    state.fetcher.on_looked_up(target, *lookup, position, now);
                }
            }
            Err(error) => not_answered(state, targets.iter().map(|(target, _)| target), error, now),
        });
    }

    async fn validate(&self, broker: BrokerId, targets: &[(Target, LeaderEpoch)]) {
        let ends = self.epoch_ends(broker, targets).await;
        self.tell(|state, now| match ends {
            Ok(Some(ends)) => {
                for (target, _) in targets {
                    let end = ends.get(&target.partition).copied();
                    let end = end.unwrap_or(Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
                    state.fetcher.on_validated(target, end, now, wall());
                }
            }
            Ok(None) => targets.iter().for_each(|(target, _)| state.fetcher.on_validation_unsupported(target)),
            Err(error) => not_answered(state, targets.iter().map(|(target, _)| target), &error, now),
        });
    }

    async fn fetch(&self, broker: BrokerId, targets: &[FetchTarget]) {
        let request = requests::fetch(targets, &self.settings);
        let time = self.settings.client.request_timeout.max(self.settings.fetch_max_wait + FETCH_GRACE);
        let reply = self.network.call(To::Broker(broker), &request, time).await;
        let answer = reply.map_err(ClientError::from).and_then(|reply| {
            let answer = requests::read_fetch(&reply, targets, &self.settings)?;
            Ok((answer, reply.len()))
        });
        if let Ok((answer, _)) = &answer {
            self.learn_leaders(answer);
        }
        let (now, wall) = (self.shared.now(), wall());
        let mut state = self.shared.lock();
        match answer {
            Ok((answer, bytes)) => {
                state.metrics.fetches += 1;
                state.metrics.fetched_bytes += bytes as u64;
                for (index, partition, digest) in answer.partitions {
                    state.fetcher.on_fetched(&targets[index], &partition, digest, now, wall);
                }
            }
            Err(error) => not_answered(&mut state, targets.iter().map(|target| &target.target), &error, now),
        }
        state.fetcher.on_answered(broker, targets);
        drop(state);
        self.shared.to_driver.notify_one();
        self.shared.ring();
    }

    /// Leaders that brokers name in a refusal (KIP-951) spare the question.
    fn learn_leaders(&self, answer: &requests::FetchAnswer) {
        if answer.leaders.is_empty() {
            return;
        }
        let brokers = answer.brokers.iter().map(|(id, host, port)| (*id, host.as_str(), *port));
        self.network.learn(brokers, |cluster| {
            for (partition, leader, epoch) in &answer.leaders {
                cluster.learn_leader(&partition.topic, partition.partition, *leader, *epoch);
            }
        });
    }

    /// A consumer that is gone has no time: one request, if there is anybody to leave, or the answer to the one under way. Without it
    /// the others of the group would wait for `session.timeout.ms`.
    async fn say_good_bye(&self) {
        let farewell = self.shared.lock().membership.take().and_then(Membership::into_farewell);
        let left = async {
            if let Some((identity, reason)) = farewell {
                _ = self.leave(&identity.member_id, reason, LEAVE_TIME_MAX).await;
            }
            loop {
                let mut changed = std::pin::pin!(self.shared.to_all.notified());
                changed.as_mut().enable();
                if self.shared.lock().leaving == 0 {
                    return;
                }
                changed.await;
            }
        };
        _ = timeout(LEAVE_TIME_MAX, left).await;
    }

    pub(super) fn group(&self) -> &str {
        self.settings.group_id.as_deref().unwrap_or_default()
    }

    /// For requests of the group that the coordinator answers at once: not behind a join, which it answers when all are there.
    pub(super) fn coordinator_lane(&self, coordinator: BrokerId) -> To {
        if self.joins.get() > 0 { To::Broker(coordinator) } else { To::Coordinator(coordinator) }
    }

    pub(super) async fn position(&self, partition: &TopicPartition, time: Duration) -> Result<Offset, ConsumerError> {
        let known = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.to_all.notified());
                changed.as_mut().enable();
                {
                    let state = self.shared.lock();
                    if state.closed {
                        return Err(ClientError::Closed.into());
                    }
                    if !state.fetcher.is_assigned(partition) {
                        return Err(ConsumerError::Misuse("the partition was taken away meanwhile"));
                    }
                    if let Some(position) = state.fetcher.position(partition) {
                        return Ok(position.offset);
                    }
                }
                changed.await;
            }
        };
        match timeout(time, known).await {
            Ok(known) => known,
            Err(_) => {
                let what = format!("finding the position in {partition}").into();
                Err(ClientError::TimedOut { what, after: time, last: None }.into())
            }
        }
    }

    pub(super) async fn partitions_for(
        &self,
        topic: &TopicName,
        time: Duration,
    ) -> Result<Vec<TopicPartition>, ConsumerError> {
        self.network.topic_ready(topic, time).await?;
        let cluster = self.network.cluster();
        let partitions = cluster.topic(topic).map(|topic| &topic.partitions[..]).unwrap_or_default();
        let named = partitions.iter().map(|one| TopicPartition { topic: topic.clone(), partition: one.index });
        Ok(named.collect())
    }

    /// By leader, again and again until all are answered or the time is up.
    pub(super) async fn look_up(
        &self,
        mut lookups: BTreeMap<TopicPartition, Lookup>,
        deadline: Duration,
    ) -> Result<BTreeMap<TopicPartition, Option<OffsetAndTimestamp>>, ConsumerError> {
        let mut found = BTreeMap::new();
        let mut failures = 0;
        let mut last = None;
        let began = self.shared.now();
        while !lookups.is_empty() {
            let left = deadline.saturating_sub(self.shared.now());
            let topics: BTreeSet<&str> = lookups.keys().map(|partition| &*partition.topic).collect();
            self.network.metadata_for(&topics.iter().copied().collect::<Vec<_>>(), left).await?;
            let mut by_leader: BTreeMap<BrokerId, Vec<(TopicPartition, Option<LeaderEpoch>, Lookup)>> = BTreeMap::new();
            {
                let cluster = self.network.cluster();
                for (partition, lookup) in &lookups {
                    match cluster.leader(&partition.topic, partition.partition) {
                        Some((broker, epoch)) => {
                            by_leader.entry(broker).or_default().push((partition.clone(), epoch, *lookup));
                        }
                        None => {
                            let topic = cluster.topic(&partition.topic);
                            let code = topic.and_then(|topic| topic.error);
                            let code =
                                code.unwrap_or(match topic.and_then(|topic| topic.partition(partition.partition)) {
                                    Some(_) => ErrorCode::LEADER_NOT_AVAILABLE,
                                    None => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                                });
                            last = Some(ClientError::broker(format_args!("partition {partition}"), code, None));
                        }
                    }
                }
            }
            for (broker, wanted) in by_leader {
                let left = deadline.saturating_sub(self.shared.now()).min(self.settings.client.request_timeout);
                match self.list_offsets(broker, &wanted, left).await {
                    Ok(answers) => {
                        for (partition, answer) in answers {
                            match answer {
                                Ok(offset) => {
                                    lookups.remove(&partition);
                                    found.insert(partition, offset);
                                }
                                Err(code) => {
                                    let what = format_args!("partition {partition}");
                                    last = Some(ClientError::broker(what, code, None));
                                    self.network.invalidate(&partition.topic);
                                }
                            }
                        }
                    }
                    Err(error) => {
                        wanted.iter().for_each(|(partition, ..)| self.network.invalidate(&partition.topic));
                        last = Some(error);
                    }
                }
            }
            if lookups.is_empty() {
                break;
            }
            if let Some(error) = last.take_if(|error| !error.retriable()) {
                return Err(error.into());
            }
            failures += 1;
            self.pause_before_retry(failures, began, deadline, "looking offsets up", &mut last).await?;
            lookups.keys().for_each(|partition| self.network.invalidate(&partition.topic));
        }
        Ok(found)
    }

    /// Sleeps the back-off. Errors: there is no time for it; `last` is why it would have been needed.
    async fn pause_before_retry(
        &self,
        failures: u32,
        began: Duration,
        deadline: Duration,
        what: &str,
        last: &mut Option<ClientError>,
    ) -> Result<(), ConsumerError> {
        let wait = self.network.retry_backoff(failures);
        if self.shared.now() + wait >= deadline {
            let after = deadline.saturating_sub(began);
            return Err(ClientError::TimedOut { what: what.into(), after, last: last.take().map(Box::new) }.into());
        }
        sleep(wait).await;
        Ok(())
    }

    pub(super) async fn committed(
        &self,
        partitions: &[TopicPartition],
        deadline: Duration,
    ) -> Result<Offsets, ConsumerError> {
        let began = self.shared.now();
        let mut failures = 0;
        loop {
            let left = deadline.saturating_sub(self.shared.now()).min(self.settings.client.request_timeout);
            match self.committed_once(partitions, left).await {
                Ok(found) => return Ok(found),
                Err(ConsumerError::Client(error)) if error.retriable() => {
                    failures += 1;
                    let what = "reading committed offsets";
                    self.pause_before_retry(failures, began, deadline, what, &mut Some(error)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn auto_commit(&self, offsets: Offsets, deadline: Duration) {
        let identity = self.shared.lock().committer();
        let committed = match identity {
            Ok(identity) => self.commit(offsets, deadline, Attempts::One(identity)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = committed
            && error.retriable()
        {
            // Not to wait for the next interval: it is tried again at the next poll after the back-off.
            let soon = self.shared.now() + self.settings.client.retry_backoff;
            self.shared.lock().auto_commit_at = Some(soon);
        }
    }

    pub(super) async fn commit(
        &self,
        offsets: Offsets,
        deadline: Duration,
        attempts: Attempts,
    ) -> Result<(), ConsumerError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let began = self.shared.now();
        let mut failures = 0;
        loop {
            let left = deadline.saturating_sub(self.shared.now()).min(self.settings.client.request_timeout);
            let identity = match &attempts {
                Attempts::Many => self.shared.lock().committer()?,
                Attempts::One(identity) => identity.clone(),
            };
            let error = match self.commit_once(&offsets, identity.as_ref(), left).await {
                Ok(()) => {
                    {
                        let mut state = self.shared.lock();
                        state.metrics.commits += 1;
                        for (partition, offset) in &offsets {
                            if state.fetcher.is_assigned(partition) {
                                state.committed.insert(partition.clone(), offset.clone());
                            }
                        }
                    }
                    self.interceptors.iter().for_each(|interceptor| interceptor.on_commit(&offsets));
                    return Ok(());
                }
                Err(error) => error,
            };
            let code = error.code();
            if let (Some(code), Some(identity)) = (code, &identity) {
                self.tell(|state, now| {
                    if let Some(membership) = &mut state.membership {
                        membership.on_commit_refused(identity, code, now);
                    }
                });
            }
            match code {
                Some(ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION) => {
                    return Err(ConsumerError::CommitFailed);
                }
                Some(ErrorCode::REBALANCE_IN_PROGRESS) => return Err(ConsumerError::Rebalancing),
                Some(code) if coordinator_is_stale(code) => self.network.forget_coordinator(self.group()),
                _ => {}
            }
            if matches!(attempts, Attempts::One(_)) || !error.retriable() {
                return Err(error.into());
            }
            failures += 1;
            self.pause_before_retry(failures, began, deadline, "committing offsets", &mut Some(error)).await?;
        }
    }
}

/// Nothing came of a request: it is sent again, and told if that will not help.
fn not_answered<'a>(state: &mut State, targets: impl Iterator<Item = &'a Target>, error: &ClientError, now: Duration) {
    let asked = targets.map(|target| (&target.partition, target.version));
    if error.retriable() {
        state.fetcher.on_failed(asked, now);
    } else {
        state.fetcher.on_refused(asked, error, now);
    }
}

/// A request of the group that came to nothing.
pub(super) fn refused(error: &ClientError) -> Refused {
    error.code().map_or(Refused::Unanswered, Refused::Code)
}
