//! What the program's side and the client's thread of one consumer share.
//!
//! Shell. Owns the lock and the two bells; the pure rooms `fetcher` and `membership` lie behind it. Always true: the lock is
//! held for no await and no I/O, so that neither side waits for more than a plan or a look; bytes are unpacked outside it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a client's two sides meet here for microseconds; no shard is near")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use regex::Regex;
use tokio::sync::Notify;

use super::listener::{ConsumerMetrics, OffsetAndMetadata, Offsets};
use crate::client::cluster::Cluster;
use crate::client::consumer_error::ConsumerError;
use crate::client::error::ClientError;
use crate::client::fetcher::Fetcher;
use crate::client::membership::{Identity, Membership, Step};
use crate::client::settings::LONGEST;
use crate::protocol::ErrorCode;
use crate::types::{TimestampMs, TopicName, TopicPartition};

pub(super) struct Shared {
    #[expect(clippy::disallowed_types, reason = "see above")]
    state: Mutex<State>,
    /// Something came for the program: records, a step, an error, its deadline.
    pub(super) to_user: Notify,
    /// Everybody who waits for something to become true.
    pub(super) to_all: Notify,
    /// There is something to send, or a nearer deadline.
    pub(super) to_driver: Notify,
    started: Instant,
}

/// What the program wants to read.
#[derive(Debug)]
pub(super) enum Wanted {
    Nothing,
    Topics(BTreeSet<TopicName>),
    Pattern(Regex),
    /// It chose the partitions itself.
    Partitions,
}

pub(super) struct State {
    pub(super) fetcher: Fetcher,
    /// With a group id.
    pub(super) membership: Option<Membership>,
    pub(super) wanted: Wanted,
    /// Of `auto.commit.interval.ms`: when it is due next.
    pub(super) auto_commit_at: Option<Duration>,
    /// What the group is known to have, so that nothing is committed twice.
    pub(super) committed: Offsets,
    pub(super) errors: VecDeque<ConsumerError>,
    /// Topics whose refusal was told.
    pub(super) refused: BTreeSet<TopicName>,
    pub(super) woken: bool,
    /// Until when the program waits.
    pub(super) user_deadline: Option<Duration>,
    /// When the client's thread looks again by itself.
    pub(super) driver_wakes: Option<Duration>,
    /// LeaveGroup requests that are not answered.
    pub(super) leaving: usize,
    /// Commits under way whose end nobody awaits.
    pub(super) commits: usize,
    pub(super) closed: bool,
    pub(super) metrics: ConsumerMetrics,
}

/// A commit nobody awaits, under way until this is dropped: whoever gives partitions up waits for it.
pub(super) struct Committing(Arc<Shared>);

impl Committing {
    pub(super) fn begin(shared: &Arc<Shared>) -> Self {
        shared.lock().commits += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.lock().commits -= 1;
        self.0.ring();
    }
}

impl Shared {
    #[expect(clippy::disallowed_types, reason = "see above")]
    pub(super) fn new(fetcher: Fetcher, membership: Option<Membership>, auto_commit_at: Option<Duration>) -> Self {
        let state = State {
            fetcher,
            membership,
            wanted: Wanted::Nothing,
            auto_commit_at,
            committed: BTreeMap::new(),
            errors: VecDeque::new(),
            refused: BTreeSet::new(),
            woken: false,
            user_deadline: None,
            driver_wakes: None,
            leaving: 0,
            commits: 0,
            closed: false,
            metrics: ConsumerMetrics::default(),
        };
        Self {
            state: Mutex::new(state),
            to_user: Notify::new(),
            to_all: Notify::new(),
            to_driver: Notify::new(),
            started: Instant::now(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere while it was held left whole values: each event is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since the consumer was made.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The end of a time that a program named, which may be [`Duration::MAX`].
    pub(super) fn deadline(&self, time: Duration) -> Duration {
        self.now() + time.min(LONGEST)
    }

    /// As the runtime of the client's thread counts it.
    pub(super) fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.started + at).into()
    }

    /// Something changed for whoever waits.
    pub(super) fn ring(&self) {
        self.to_user.notify_one();
        self.to_all.notify_waiters();
    }
}

/// The clock of record timestamps.
pub(super) fn wall() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::try_from(since.as_millis()).unwrap_or(TimestampMs::MAX)
}

/// What a poll does next.
pub(super) enum Next {
    Records,
    Step(Step),
    Wait,
    TimedOut,
}

impl State {
    /// What the program is to get first. `deadline` counts like [`Shared::now`].
    pub(super) fn next(&mut self, now: Duration, deadline: Duration) -> Result<Next, ConsumerError> {
        if std::mem::take(&mut self.woken) {
            return Err(ConsumerError::Woken);
        }
        if self.closed {
            return Err(ClientError::Closed.into());
        }
        let told = self.membership.as_mut().and_then(|membership| membership.take_error().map(Into::into));
        if let Some(error) = told.or_else(|| self.errors.pop_front()).or_else(|| self.fetcher.take_error()) {
            return Err(error);
        }
        if let Some(step) = self.membership.as_mut().and_then(Membership::next_step) {
            return Ok(Next::Step(step));
        }
        if self.fetcher.has_ready() {
            return Ok(Next::Records);
        }
        if matches!(self.wanted, Wanted::Nothing) {
            return Err(ConsumerError::Misuse("subscribe or assign before you poll"));
        }
        if now >= deadline {
            return Ok(Next::TimedOut);
        }
        self.user_deadline = Some(deadline);
        Ok(Next::Wait)
    }

    /// Whether the driver sleeps past what the program waits for.
    pub(super) fn driver_oversleeps(&self) -> bool {
        match (self.user_deadline, self.driver_wakes) {
            (Some(deadline), Some(wakes)) => deadline < wakes,
            (deadline, None) => deadline.is_some(),
            (None, _) => false,
        }
    }

    /// Where the program stands in partitions, as far as the group does not know that already.
    pub(super) fn uncommitted(&self, of: impl Fn(&TopicPartition) -> bool) -> Offsets {
        let positions = self.fetcher.positions().filter(|(partition, _)| of(partition));
        let fresh = positions.filter_map(|(partition, position)| {
            let known = self.committed.get(partition).map(|known| known.offset);
            let now = OffsetAndMetadata {
                offset: position.offset,
                leader_epoch: position.leader_epoch,
                metadata: String::new(),
            };
            (known != Some(position.offset)).then(|| (partition.clone(), now))
        });
        fresh.collect()
    }

    /// As whom to commit: `Ok(None)` from outside the group's generations. Errors: it should be a member and is none.
    pub(super) fn committer(&self) -> Result<Option<Identity>, ConsumerError> {
        match (&self.wanted, &self.membership) {
            (_, None) => Err(ConsumerError::Misuse("commits need a group.id")),
            (Wanted::Partitions, Some(_)) => Ok(None),
            // After unsubscribe: its last steps are under way, or it is nobody.
            (_, Some(membership)) => match membership.identity() {
                Some(identity) => Ok(Some(identity)),
                None if matches!(self.wanted, Wanted::Nothing) => Ok(None),
                None => Err(ConsumerError::CommitFailed),
            },
        }
    }

    pub(super) fn unassign(&mut self, partition: &TopicPartition) {
        self.fetcher.unassign(partition);
        self.committed.remove(partition);
    }

    /// The cluster is known to be otherwise than before.
    pub(super) fn on_metadata(&mut self, cluster: &Cluster, exclude_internal: bool) {
        let mut subscribed = None;
        match &self.wanted {
            Wanted::Nothing | Wanted::Partitions => {}
            Wanted::Topics(topics) => {
                for topic in topics.iter().filter_map(|name| cluster.topic(name)) {
                    let refusals = [ErrorCode::TOPIC_AUTHORIZATION_FAILED, ErrorCode::INVALID_TOPIC_EXCEPTION];
                    let Some(code) = topic.error.filter(|code| refusals.contains(code)) else {
                        self.refused.remove(&topic.name);
                        continue;
                    };
                    if self.refused.insert(topic.name.clone()) {
                        let error = ClientError::broker(format_args!("topic {}", topic.name), code, None);
                        self.errors.push_back(error.into());
                    }
                }
            }
            Wanted::Pattern(pattern) => {
                let there = cluster.topics().filter(|topic| topic.error.is_none());
                let named =
                    there.filter(|topic| !(exclude_internal && topic.internal) && pattern.is_match(&topic.name));
                subscribed = Some(named.map(|topic| topic.name.clone()).collect());
            }
        }
        if let Some(membership) = &mut self.membership {
            if let Some(topics) = subscribed.filter(|_| !cluster.is_empty()) {
                membership.on_subscription(topics);
            }
            membership.on_metadata(|topic| cluster.partition_count(topic));
        }
    }
}
