//! A member of a consumer group under the classic protocol: when to join, sync, beat, give up, leave.
//!
//! Pure. Owns the member's id, generation, state and timers, what it owns, and what its user must be told before it may
//! go on. Does not own sockets, positions or the user: events come in (`on_*`, with `now` since some fixed start), what to
//! do goes out ([`Membership::next_action`], [`Membership::next_step`]). Always true: at most one of join, deal, sync is
//! under way; an answer to an abandoned request changes nothing; nothing joins while the user has a step to hear of, so
//! that what is given up is given up before others get it. Source: Kafka's group protocol as Java's ConsumerCoordinator
//! speaks it; KIP-62 (`max.poll.interval.ms`), KIP-345 (static members), KIP-394 (two-step join), KIP-429 (cooperative),
//! KIP-800 (reasons), KIP-814 (a static leader that came back).
//!
//! ```text
//!          FindCoordinator     Join            Deal (leader)        Sync            steps, then beats
//! Out ────────────────────► Joining ───► Dealing ───────────► Syncing ───► Stable ──► …
//!  ▲  lost, refused, retry     │                                 │            │ rejoin
//!  └───────────────────────────┴─────────────────────────────────┴────────────┘
//! ```

#[cfg(test)]
mod tests;
mod vocabulary;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::assignor::{Assignor, Member, RebalanceProtocol, Subscription, Topics, wire};
use super::error::ClientError;
use crate::protocol::ErrorCode;
use crate::types::{TopicName, TopicPartition};
pub use vocabulary::{Action, Ask, Farewell, Identity, Join, Joined, MembershipSettings, Refused, Step, Sync};

/// How much longer than the rebalance timeout a join is waited for: the coordinator answers at that timeout.
const JOIN_GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// In no generation that counts.
    Out,
    Joining(Ask),
    Dealing(Ask, Joined),
    Syncing(Ask),
    Stable,
}

/// What a leader dealt out, and for what.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Lead {
    /// Partitions of each topic that any member reads; topics that were not there have none.
    counts: BTreeMap<TopicName, usize>,
}

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Membership {
    settings: MembershipSettings,
    protocol: RebalanceProtocol,
    random: fastrand::Rng,
    asks: Ask,

    /// What it reads; `None`: nothing, and it is no member.
    topics: Option<BTreeSet<TopicName>>,
    state: State,
    member_id: Arc<str>,
    generation: Option<i32>,
    /// Why to join again, once nothing stands before it.
    rejoin: Option<&'static str>,
    lead: Option<Lead>,

    /// What the user reads now.
    owned: BTreeSet<TopicPartition>,
    /// The last assignment and its generation: what sticky assignors are told.
    had: (BTreeSet<TopicPartition>, Option<i32>),
    /// The generation that `owned` came from is over for us: others may have it. Then there is a step to hear of, and it stays
    /// so until the user has heard of the loss.
    lost: bool,
    /// A deal or a sync that was decided on and not sent yet.
    outbox: Option<Action>,
    steps: VecDeque<Step>,
    /// The first step was handed to the user.
    step_runs: bool,

    coordinator: Coordinator,
    /// Not before.
    retry_at: Duration,
    failures: u32,
    /// The user has not heard of an error yet; nothing is tried until it polls again.
    error: Option<ClientError>,
    halted: bool,
    /// Sent before anything else, unless there is nobody to leave.
    leaving: Option<(Identity, &'static str)>,

    heartbeat_ask: Option<Ask>,
    heartbeat_at: Duration,
    /// When the coordinator last said that all is well.
    heard_at: Duration,

    polls: Polls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coordinator {
    Unknown,
    Sought,
    Known,
}

/// What is known of the user's polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polls {
    /// Nothing joins before the first one.
    None,
    /// The user waits in one.
    Inside,
    /// The last one ended at that time.
    Since(Duration),
    /// Too long ago: the member left, until the next one.
    Overdue,
}

impl Membership {
    /// Of no group yet. `settings.assignors` must not be empty.
    pub fn new(settings: MembershipSettings) -> Self {
        assert!(!settings.assignors.is_empty(), "a member offers at least one assignor");
        Self {
            protocol: Assignor::common_protocol(&settings.assignors),
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            asks: 0,
            topics: None,
            state: State::Out,
            member_id: "".into(),
            generation: None,
            rejoin: None,
            lead: None,
            owned: BTreeSet::new(),
            had: (BTreeSet::new(), None),
            lost: false,
            outbox: None,
            steps: VecDeque::new(),
            step_runs: false,
            coordinator: Coordinator::Unknown,
            retry_at: Duration::ZERO,
            failures: 0,
            error: None,
            halted: false,
            leaving: None,
            heartbeat_ask: None,
            heartbeat_at: Duration::ZERO,
            heard_at: Duration::ZERO,
            polls: Polls::None,
        }
    }

    /// What the user reads now.
    pub fn owned(&self) -> &BTreeSet<TopicPartition> {
        &self.owned
    }

    /// As whom to commit; `None` outside a generation.
    pub fn identity(&self) -> Option<Identity> {
        let generation = self.generation?;
        Some(Identity { generation, member_id: Arc::clone(&self.member_id) })
    }

    /// Its `group.instance.id`.
    pub fn instance_id(&self) -> Option<&Arc<str>> {
        self.settings.instance_id.as_ref()
    }

    /// Whether it is in a generation, its steps are done and no rebalance is due.
    pub fn is_settled(&self) -> bool {
        self.state == State::Stable && self.rejoin.is_none() && self.steps.is_empty()
    }

    /// Whether it has yet to say good-bye.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Whom the group has yet to hear of as gone, and why, when all of this ends: who was about to leave, and who left nothing but the
    /// program. Static members are expected back.
    pub fn into_farewell(self) -> Option<(Identity, &'static str)> {
        let dropped = self.is_in_group() && self.settings.instance_id.is_none();
        let identity = Identity { generation: self.generation.unwrap_or(-1), member_id: self.member_id };
        self.leaving.or(dropped.then_some((identity, "the consumer was dropped")))
    }

    /// The topics of the whole group, while this member leads it: changes to these are its to see.
    pub fn watched(&self) -> impl Iterator<Item = &TopicName> {
        self.lead.iter().flat_map(|lead| lead.counts.keys())
    }

    /// What to send now; call it until there is nothing.
    pub fn next_action(&mut self, now: Duration) -> Option<Action> {
        if let Some(leave) = self.leave_if_overdue(now) {
            return Some(leave);
        }
        if let Some((identity, reason)) = self.leaving.take_if(|_| self.steps.is_empty()) {
            // From here on it is a stranger, also when it subscribes again before the answer.
            self.generation = None;
            self.member_id = "".into();
            return Some(Action::Leave { identity, reason });
        }
        if self.topics.is_none() || self.halted || matches!(self.polls, Polls::None | Polls::Overdue) {
            return None;
        }
        self.give_up_silent_coordinator(now);
        match self.coordinator {
            Coordinator::Known => {}
            Coordinator::Unknown if now >= self.retry_at => {
                self.coordinator = Coordinator::Sought;
                return Some(Action::FindCoordinator);
            }
            Coordinator::Unknown | Coordinator::Sought => return None,
        }
        if let Some(action) = self.outbox.take() {
            return Some(action);
        }
        match self.state {
            State::Out | State::Stable if self.rejoin.is_some() && self.steps.is_empty() && now >= self.retry_at => {
                self.give_up_before_joining();
                if self.steps.is_empty() {
                    return Some(self.join());
                }
            }
            State::Out | State::Joining(_) | State::Dealing(..) | State::Syncing(_) | State::Stable => {}
        }
        self.beat(now)
    }

    /// When to call [`Membership::next_action`] although nothing happened.
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle = match self.polls {
            Polls::Since(at) if self.is_in_group() => Some(at + self.settings.max_poll_interval),
            _ => None,
        };
        if self.topics.is_none() || self.halted || matches!(self.polls, Polls::None | Polls::Overdue) {
            return idle;
        }
        let seeks = self.coordinator == Coordinator::Unknown;
        let joins = matches!(self.state, State::Out | State::Stable) && self.rejoin.is_some() && self.steps.is_empty();
        let retry = (seeks || joins && self.coordinator == Coordinator::Known).then_some(self.retry_at);
        let stable = self.state == State::Stable && self.coordinator == Coordinator::Known;
        let beat = (stable && self.heartbeat_ask.is_none()).then_some(self.heartbeat_at);
        let silence = stable.then_some(self.heard_at + self.settings.session_timeout);
        [idle, retry, beat, silence].into_iter().flatten().min()
    }

    /// What the user is to hear of next. It counts as told: [`Membership::on_step_done`] must follow, or
    /// [`Membership::on_step_undone`].
    pub fn next_step(&mut self) -> Option<Step> {
        if self.step_runs {
            return None;
        }
        let step = self.steps.front().cloned();
        self.step_runs = step.is_some();
        step
    }

    /// Whether [`Membership::next_step`] has something.
    pub fn has_step(&self) -> bool {
        !self.steps.is_empty() && !self.step_runs
    }

    /// The user was told, and the partitions of the step are read or no longer read.
    pub fn on_step_done(&mut self) {
        self.step_runs = false;
        match self.steps.pop_front() {
            Some(Step::Revoke(gone) | Step::Lose(gone)) => self.owned.retain(|partition| !gone.contains(partition)),
            Some(Step::Assign(new)) => self.owned.extend(new),
            None => {}
        }
        self.tell_of_loss();
        if self.topics.is_none() && self.steps.is_empty() && self.leaving.is_none() {
            self.forget_generation();
        }
    }

    /// The user went away while it was told: it will be told again, if it still holds then. Gives what it had begun to hear.
    pub fn on_step_undone(&mut self) -> Option<Step> {
        let ran = std::mem::take(&mut self.step_runs);
        self.steps.front().filter(|_| ran).cloned()
    }

    /// What stopped the member and its user has not heard of. It tries again at the next poll.
    pub fn take_error(&mut self) -> Option<ClientError> {
        self.error.take()
    }

    /// The user wants to read these topics. More, fewer or others than before make the group deal again.
    pub fn on_subscription(&mut self, topics: BTreeSet<TopicName>) {
        if self.topics.as_ref() != Some(&topics) {
            let first = self.topics.is_none();
            self.topics = Some(topics);
            self.rejoin.get_or_insert(if first { "the member subscribed" } else { "the subscription changed" });
        }
    }

    /// The user wants to read nothing: what it owns is given up, then the group is left. Static members do not say good-bye:
    /// they are expected back, unless `farewell` says otherwise.
    pub fn on_unsubscribed(&mut self, reason: &'static str, farewell: Farewell) {
        if self.topics.take().is_none() {
            return;
        }
        let identity = Identity { generation: self.generation.unwrap_or(-1), member_id: Arc::clone(&self.member_id) };
        let leaves = match farewell {
            Farewell::ByKind => self.settings.instance_id.is_none(),
            Farewell::Always => true,
            Farewell::Never => false,
        };
        self.drop_steps();
        if !self.owned.is_empty() {
            let owned = self.owned.clone();
            self.steps.push_back(if self.lost { Step::Lose(owned) } else { Step::Revoke(owned) });
        }
        // The identity is kept until the steps are done: they commit with it.
        self.leaving = (leaves && !identity.member_id.is_empty()).then_some((identity, reason));
        self.rejoin = None;
        self.lead = None;
        self.withdraw();
        self.lost = false;
        if self.leaving.is_none() && self.steps.is_empty() {
            self.forget_generation();
        }
    }

    /// The user entered a poll.
    pub fn on_poll(&mut self) {
        if self.polls == Polls::Overdue {
            self.rejoin.get_or_insert("polls came too slowly, and now come again");
        }
        self.polls = Polls::Inside;
        if self.error.is_none() {
            self.halted = false;
        }
    }

    /// The user came out of a poll.
    pub fn on_poll_end(&mut self, now: Duration) {
        if self.polls == Polls::Inside {
            self.polls = Polls::Since(now);
        }
    }

    /// What became of [`Action::FindCoordinator`].
    pub fn on_coordinator(&mut self, found: Result<(), ClientError>, now: Duration) {
        match found {
            Ok(()) => {
                self.coordinator = Coordinator::Known;
                // It may be another one, to whom our silence was not addressed.
                self.heard_at = self.heard_at.max(now);
            }
            Err(error) => {
                self.coordinator = Coordinator::Unknown;
                self.back_off(now);
                if !error.retriable() {
                    self.fail(error);
                }
            }
        }
    }

    /// What became of [`Action::Join`].
    pub fn on_join(&mut self, ask: Ask, answer: Result<Joined, Refused>, now: Duration) {
        if self.state != State::Joining(ask) {
            return;
        }
        self.state = State::Out;
        match answer {
            Ok(joined) => {
                self.failures = 0;
                self.retry_at = now;
                self.member_id = Arc::clone(&joined.member_id);
                self.generation = Some(joined.generation);
                self.lead = None;
                self.deal(joined);
            }
            Err(Refused::TakeId(member_id)) => {
                self.member_id = member_id;
                self.rejoin.get_or_insert("the coordinator gave the member its id");
            }
            Err(Refused::Code(ErrorCode::REBALANCE_IN_PROGRESS)) => {
                self.rejoin.get_or_insert("the join was refused");
                self.back_off(now);
            }
            Err(refused) => self.refused(refused, "the join was refused", now),
        }
    }

    /// Joined: a leader needs metadata before it can deal out, others ask for their share at once.
    fn deal(&mut self, joined: Joined) {
        let Some(assignor) = self.assignor_of(&joined.protocol) else {
            self.rejoin.get_or_insert("the coordinator chose a protocol that was not offered");
            let told = format!("the coordinator chose protocol `{}`, which was not offered", joined.protocol);
            self.fail(self.refusal(ErrorCode::INCONSISTENT_GROUP_PROTOCOL, Some(&told)));
            return;
        };
        if *joined.leader != *joined.member_id {
            return self.sync(assignor, Vec::new());
        }
        let topics = |(_, _, bytes): &(Arc<str>, Option<Arc<str>>, Bytes)| subscription_of(bytes).topics;
        let topics: BTreeSet<TopicName> = joined.members.iter().flat_map(topics).collect();
        let ask = self.next_ask();
        self.lead = Some(Lead { counts: topics.iter().map(|topic| (Arc::clone(topic), 0)).collect() });
        self.state = State::Dealing(ask, joined);
        self.outbox = Some(Action::Deal { ask, topics });
    }

    /// The metadata a leader asked for; topics that do not exist are missing. Deals out.
    pub fn on_topics(&mut self, ask: Ask, topics: &Topics) {
        let State::Dealing(asked, joined) = &self.state else { return };
        let Some(assignor) = self.assignor_of(&joined.protocol).filter(|_| *asked == ask) else { return };
        for (topic, count) in self.lead.iter_mut().flat_map(|lead| &mut lead.counts) {
            *count = topics.get(topic).map_or(0, Vec::len);
        }
        let mut assignments = Vec::new();
        if !joined.skip_assignment {
            let member = |(id, instance, bytes): &(Arc<str>, Option<Arc<str>>, Bytes)| Member {
                id: Arc::clone(id),
                instance: instance.clone(),
                subscription: subscription_of(bytes),
            };
            let members: Vec<Member> = joined.members.iter().map(member).collect();
            let dealt = assignor.assign(topics, &members);
            let share = |(member, partitions): (Member, Vec<TopicPartition>)| {
                (member.id, wire::encode_assignment(&partitions.into_iter().collect()))
            };
            assignments = members.into_iter().zip(dealt).map(share).collect();
        }
        self.sync(assignor, assignments);
    }

    fn sync(&mut self, assignor: Assignor, assignments: Vec<(Arc<str>, Bytes)>) {
        let ask = self.next_ask();
        let identity = self.identity().expect("it has just joined");
        self.state = State::Syncing(ask);
        self.outbox = Some(Action::Sync(Sync { ask, identity, assignor, assignments }));
    }

    /// What became of [`Action::Sync`]: the share of this member.
    pub fn on_sync(&mut self, ask: Ask, answer: Result<Bytes, Refused>, now: Duration) {
        if self.state != State::Syncing(ask) {
            return;
        }
        self.state = State::Out;
        let share = match answer {
            Ok(share) => share,
            Err(refused) => return self.refused(refused, "the share was refused", now),
        };
        let Ok(mut share) = wire::decode_assignment(&share) else {
            self.rejoin.get_or_insert("the share could not be read");
            let told = "the leader sent a share that cannot be read";
            return self.fail(self.refusal(ErrorCode::INCONSISTENT_GROUP_PROTOCOL, Some(told)));
        };
        self.failures = 0;
        self.state = State::Stable;
        (self.heard_at, self.heartbeat_at) = (now, now + self.settings.heartbeat_interval);
        // The subscription may have changed on the way; then another join is due already.
        share.retain(|partition| self.topics.as_ref().is_some_and(|topics| topics.contains(&partition.topic)));
        self.had = (share.clone(), self.generation);
        match self.protocol {
            RebalanceProtocol::Eager => self.steps.push_back(Step::Assign(share)),
            RebalanceProtocol::Cooperative => {
                let gone: BTreeSet<TopicPartition> = self.owned.difference(&share).cloned().collect();
                let new = share.difference(&self.owned).cloned().collect();
                if !gone.is_empty() {
                    self.steps.push_back(Step::Revoke(gone));
                    self.rejoin.get_or_insert("the member gave up partitions, which can be dealt out now");
                }
                self.steps.push_back(Step::Assign(new));
            }
        }
    }

    /// What became of [`Action::Heartbeat`].
    pub fn on_heartbeat(&mut self, ask: Ask, answer: Result<(), Refused>, now: Duration) {
        if self.heartbeat_ask != Some(ask) {
            return;
        }
        self.heartbeat_ask = None;
        self.heartbeat_at = now + self.settings.heartbeat_interval;
        match answer {
            Ok(()) => self.heard_at = now,
            Err(Refused::Code(ErrorCode::REBALANCE_IN_PROGRESS)) => {
                self.heard_at = now;
                self.rejoin.get_or_insert("the group is rebalancing");
            }
            // The group is there, its coordinator is not quite: it stays what it is.
            Err(Refused::Code(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)) => {
                self.heartbeat_at = now + self.settings.retry_backoff.min(self.settings.heartbeat_interval);
            }
            Err(Refused::Unanswered) => self.coordinator_lost(now),
            Err(Refused::Code(code))
                if code == ErrorCode::NOT_COORDINATOR || code == ErrorCode::COORDINATOR_NOT_AVAILABLE =>
            {
                self.coordinator_lost(now);
            }
            Err(refused) => self.refused(refused, "the coordinator no longer knows the member", now),
        }
    }

    /// A commit as `identity` was refused with this code.
    pub fn on_commit_refused(&mut self, identity: &Identity, code: ErrorCode, now: Duration) {
        match code {
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => self.coordinator_lost(now),
            _ if self.identity().as_ref() != Some(identity) || self.topics.is_none() => {}
            ErrorCode::REBALANCE_IN_PROGRESS if self.state == State::Stable => {
                self.rejoin.get_or_insert("a commit met a rebalance");
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION | ErrorCode::FENCED_INSTANCE_ID => {
                self.refused(Refused::Code(code), "a commit was refused", now);
            }
            _ => {}
        }
    }

    /// The cluster's topics changed, or may have. The leader of a group whose topics have other partitions than it dealt
    /// out joins again; others need not.
    pub fn on_metadata(&mut self, partition_count: impl Fn(&str) -> Option<usize>) {
        if !matches!(self.state, State::Syncing(_) | State::Stable) {
            return; // not dealt out yet
        }
        let changed = |(topic, count): (&TopicName, &usize)| partition_count(topic).unwrap_or(0) != *count;
        if self.lead.as_ref().is_some_and(|lead| lead.counts.iter().any(changed)) {
            self.rejoin.get_or_insert("topics of the group changed");
        }
    }

    fn refused(&mut self, refused: Refused, why: &'static str, now: Duration) {
        self.withdraw();
        self.rejoin.get_or_insert(why);
        let code = match refused {
            Refused::Unanswered | Refused::TakeId(_) => return self.coordinator_lost(now),
            Refused::Code(code) => code,
        };
        match code {
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.failures = 0;
                self.retry_at = now;
            }
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => self.coordinator_lost(now),
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => self.back_off(now),
            // The id is still good, what came with the generation is not.
            ErrorCode::ILLEGAL_GENERATION => self.lose_generation(),
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.lose_generation();
                self.member_id = "".into();
            }
            ErrorCode::FENCED_INSTANCE_ID => {
                self.lose_generation();
                let told = "another member uses this group.instance.id; give each its own";
                self.fail(self.refusal(code, Some(told)));
            }
            code => {
                self.back_off(now);
                self.fail(self.refusal(code, None));
            }
        }
    }

    fn refusal(&self, code: ErrorCode, told: Option<&str>) -> ClientError {
        ClientError::broker(format_args!("group {}", self.settings.group_id), code, told)
    }

    /// For the user to hear, at its next poll or in the one it is in; then it is tried again.
    fn fail(&mut self, error: ClientError) {
        self.error = Some(error);
        self.halted = true;
    }

    fn coordinator_lost(&mut self, now: Duration) {
        if self.coordinator == Coordinator::Known {
            self.coordinator = Coordinator::Unknown;
            self.back_off(now);
        }
        // Whatever was asked of it will not be answered, or too late.
        self.heartbeat_ask = None;
    }

    fn back_off(&mut self, now: Duration) {
        let backoff = self.settings.retry_backoff.saturating_mul(1 << self.failures.min(20));
        let backoff = backoff.min(self.settings.retry_backoff_max.max(self.settings.retry_backoff));
        self.failures = self.failures.saturating_add(1);
        // A fifth up or down, as in Java: members that failed together do not come back together.
        self.retry_at = now + backoff.mul_f64(0.8 + 0.4 * self.random.f64());
    }

    /// Nothing is under way any more.
    fn withdraw(&mut self) {
        self.state = State::Out;
        self.outbox = None;
        self.heartbeat_ask = None;
    }

    fn lose_generation(&mut self) {
        self.generation = None;
        self.lead = None;
        self.lost = true;
        self.drop_steps();
        self.tell_of_loss();
    }

    /// At once, not when it joins again: until the user has heard of it, it would be given records that are others' by now.
    /// A step that runs comes first, as it changes what is owned.
    fn tell_of_loss(&mut self) {
        if self.lost && self.steps.is_empty() {
            self.lost = !self.owned.is_empty();
            self.steps.extend(self.lost.then(|| Step::Lose(self.owned.clone())));
        }
    }

    /// Steps the user has not begun to hear of. What was to be given up is still owned, what was to come never was.
    fn drop_steps(&mut self) {
        self.steps.truncate(usize::from(self.step_runs));
    }

    fn forget_generation(&mut self) {
        self.generation = None;
        self.member_id = "".into();
        self.lost = false;
        self.failures = 0;
    }

    /// Under the eager protocol everything, under the cooperative one what is no longer subscribed.
    fn give_up_before_joining(&mut self) {
        debug_assert!(!self.lost, "a loss is a step until it was heard of");
        let topics = self.topics.as_ref();
        let gone: BTreeSet<TopicPartition> = match self.protocol {
            RebalanceProtocol::Eager => self.owned.clone(),
            RebalanceProtocol::Cooperative => {
                let kept = |partition: &&TopicPartition| topics.is_some_and(|topics| topics.contains(&partition.topic));
                self.owned.iter().filter(|partition| !kept(partition)).cloned().collect()
            }
        };
        if !gone.is_empty() {
            self.steps.push_back(Step::Revoke(gone));
        }
    }

    fn join(&mut self) -> Action {
        let ask = self.next_ask();
        let reason = self.rejoin.take().expect("there is a reason to join");
        self.state = State::Joining(ask);
        self.heartbeat_ask = None;
        let (had, generation) = &self.had;
        let subscription = |assignor: &Assignor| Subscription {
            topics: self.topics.clone().unwrap_or_default(),
            user_data: assignor.user_data(had, *generation),
            owned: self.owned.clone(),
            generation: generation.filter(|_| self.generation.is_some()),
            rack: self.settings.rack.clone(),
        };
        let protocols = self.settings.assignors.iter();
        Action::Join(Join {
            ask,
            member_id: Arc::clone(&self.member_id),
            protocols: protocols
                .map(|assignor| (*assignor, wire::encode_subscription(&subscription(assignor))))
                .collect(),
            reason,
            timeout: self.settings.request_timeout.max(self.settings.max_poll_interval + JOIN_GRACE),
        })
    }

    fn beat(&mut self, now: Duration) -> Option<Action> {
        if self.state != State::Stable || self.heartbeat_ask.is_some() || now < self.heartbeat_at {
            return None;
        }
        let (ask, identity) = (self.next_ask(), self.identity()?);
        self.heartbeat_ask = Some(ask);
        Some(Action::Heartbeat { ask, identity })
    }

    /// A coordinator that said nothing for a session has given us up, or is not there: another may have taken over.
    fn give_up_silent_coordinator(&mut self, now: Duration) {
        if self.state == State::Stable && now >= self.heard_at + self.settings.session_timeout {
            self.heard_at = now;
            self.coordinator_lost(now);
        }
    }

    /// The good-bye of a dynamic member does not wait for its user, who hears of the loss when it polls again.
    fn leave_if_overdue(&mut self, now: Duration) -> Option<Action> {
        let Polls::Since(at) = self.polls else { return None };
        if !self.is_in_group() || now < at + self.settings.max_poll_interval {
            return None;
        }
        self.polls = Polls::Overdue;
        let generation = self.generation.unwrap_or(-1);
        let identity = Identity { generation, member_id: std::mem::replace(&mut self.member_id, "".into()) };
        self.withdraw();
        self.lose_generation();
        self.rejoin.get_or_insert("polls came too slowly");
        let leave = Action::Leave { identity, reason: "max.poll.interval.ms passed without a poll" };
        self.settings.instance_id.is_none().then_some(leave)
    }

    fn is_in_group(&self) -> bool {
        self.topics.is_some() && !self.member_id.is_empty()
    }

    fn assignor_of(&self, protocol: &str) -> Option<Assignor> {
        self.settings.assignors.iter().copied().find(|assignor| assignor.name() == protocol)
    }

    fn next_ask(&mut self) -> Ask {
        self.asks += 1;
        self.asks
    }
}

/// What a member said. One whose bytes cannot be read wants nothing that could be given to it; the others get theirs.
fn subscription_of(bytes: &Bytes) -> Subscription {
    wire::decode_subscription(bytes).unwrap_or_default()
}
