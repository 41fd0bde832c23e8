//! One classic group: which generation it is in, what it waits for, who may do what.
//!
//! Pure. Owns the states, generations and deadlines; not the book-keeping of members (`roster`), not offsets, not the log,
//! not other groups. An event changes the group and fills the [`Turn`]: answers, and at most one record to write. While
//! that record is on its way ([`Group::is_writing`]) the caller brings no event but [`Group::on_written`]: so what must be
//! durable first changes nothing until it is, and a failed write leaves nothing to undo. Always: what [`Group::check`]
//! walks. An absent group is Kafka's "Dead". Source: KIP-62, KIP-134 (initial delay), KIP-345, KIP-394, KIP-559, KIP-814;
//! behaviour compared with Kafka 4.4.

mod durable;
mod rebalance;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::command::*;
use super::records::GroupValue;
use super::roster::{Dismissed, Member, Roster};
use crate::types::{TimestampMs, TopicName};

/// How long a first join may be parked: its member has no id yet, so nothing else can end it. Kafka's figure.
const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The longest part of a client id that goes into a member id, so that the id always fits a record's string.
const MEMBER_ID_PREFIX_MAX: usize = 1024;
/// From this version of JoinGroup a member without an id is given one to join with (KIP-394).
const JOIN_NEEDS_MEMBER_ID: i16 = 4;
/// From this version of JoinGroup a returning static leader can be told that the assignment stands (KIP-814).
const JOIN_KNOWS_SKIP_ASSIGNMENT: i16 = 9;
/// The protocol type whose metadata is a subscription to topics.
const CONSUMER_PROTOCOL: &str = "consumer";

/// Kafka's states; "Dead" is a group that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No members; offsets may remain.
    Empty,
    /// Members are joining; ends when all did or the rebalance timeout passed.
    PreparingRebalance,
    /// Joined; the leader's assignment is awaited.
    CompletingRebalance,
    /// Every member has its share.
    Stable,
}

impl State {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Empty, Self::PreparingRebalance, Self::CompletingRebalance, Self::Stable];

    /// Kafka's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// One event's surroundings, and what it asks of the outside.
#[derive(Debug)]
pub struct Turn<'a> {
    /// When it happens.
    pub now: Now,
    /// The rules in force.
    pub settings: &'a GroupSettings,
    /// Answers to send now.
    pub replies: Vec<(Ticket, GroupAnswer)>,
    /// The group as it shall be written; [`Group::on_written`] must follow.
    pub write: Option<GroupValue>,
}

impl<'a> Turn<'a> {
    /// Before the event.
    pub fn new(now: Now, settings: &'a GroupSettings) -> Self {
        Self { now, settings, replies: Vec::new(), write: None }
    }

    fn join(&mut self, ticket: Ticket, joined: Joined) {
        self.replies.push((ticket, GroupAnswer::Join(Ok(joined))));
    }

    fn refuse_join(&mut self, ticket: Ticket, error: GroupError, member_id: MemberId) {
        self.replies.push((ticket, GroupAnswer::Join(Err(JoinRefused { error, member_id }))));
    }

    fn sync(&mut self, ticket: Ticket, answer: Result<Synced, GroupError>) {
        self.replies.push((ticket, GroupAnswer::Sync(answer)));
    }

    /// Answers a member that was taken out, in case it still listens.
    fn dismiss(&mut self, dismissed: Option<Dismissed>, error: GroupError) {
        let Some(Dismissed { id, join, sync }) = dismissed else { return };
        if let Some(ticket) = join {
            let told = if error == GroupError::UnknownMember { MemberId::default() } else { id };
            self.refuse_join(ticket, error, told);
        }
        if let Some(ticket) = sync {
            self.sync(ticket, Err(error));
        }
    }
}

/// How the join phase ends when not everybody comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JoinTimer {
    /// The first rebalance of an empty group waits `delay` for more members and, while they keep coming, again, as long as
    /// `remaining` lasts (KIP-134).
    Initial { at: Duration, delay: Duration, remaining: Duration },
    /// Who has not rejoined by then is left behind.
    Rebalance { at: Duration },
}

impl JoinTimer {
    fn at(self) -> Duration {
        match self {
            Self::Initial { at, .. } | Self::Rebalance { at } => at,
        }
    }
}

/// What happens when the record on its way is durable, or has failed.
#[derive(Clone, Debug)]
enum Writing {
    /// The leader's assignment: everyone who synced is answered and the group is Stable.
    Assignment(BTreeMap<MemberId, Bytes>),
    /// A static member came back while Stable (KAFKA-10284: its new id is durable before it is told).
    Return(Box<StaticReturn>),
    /// The last member went; whoever asked for that is answered.
    Emptied(Option<(Ticket, Vec<Left>)>),
}

/// A static member that joins without its id: a restart.
#[derive(Clone, Debug)]
struct StaticReturn {
    old_id: MemberId,
    member: Member,
    ticket: Ticket,
    version: i16,
}

/// A classic group.
#[derive(Clone, Debug)]
pub struct Group {
    state: State,
    /// Since when, on the wall's clock: an Empty group's offsets age from here. `None` only after loading an old record.
    state_since: Option<TimestampMs>,
    /// 0 before the first.
    generation: i32,
    /// `None` until a first member joins: then the group only holds offsets.
    protocol_type: Option<Arc<str>>,
    /// Chosen for this generation; `None` when Empty.
    protocol: Option<Arc<str>>,
    roster: Roster,
    /// Ids given out but not yet joined with (KIP-394), and until when they hold.
    pending_joins: BTreeMap<MemberId, Duration>,
    /// Members that joined this generation and have not synced.
    pending_syncs: BTreeSet<MemberId>,
    /// What the consumers of this generation read; `None` if the broker cannot know.
    subscribed: Option<BTreeSet<TopicName>>,
    join_timer: Option<JoinTimer>,
    sync_ends: Option<Duration>,
    /// Someone new came during the initial delay: it is extended.
    joined_during_delay: bool,
    writing: Option<Writing>,
    /// The group became Empty, but its record failed.
    log_is_behind: bool,
    /// No deadline is earlier. Heartbeats move deadlines back without touching it, so it may be early, never late.
    wake_at: Option<Duration>,
}

// What may be asked of it.
impl Group {
    /// An empty group that nobody joined yet.
    pub fn new(wall: TimestampMs) -> Self {
        Self {
            state: State::Empty,
            state_since: Some(wall),
            generation: 0,
            protocol_type: None,
            protocol: None,
            roster: Roster::default(),
            pending_joins: BTreeMap::new(),
            pending_syncs: BTreeSet::new(),
            subscribed: None,
            join_timer: None,
            sync_ends: None,
            joined_during_delay: false,
            writing: None,
            log_is_behind: false,
            wake_at: None,
        }
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a record is on its way and only [`Group::on_written`] may come next.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// When to call [`Group::on_tick`] at the latest; calls without need are harmless.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Whether it has neither members nor ids given out: it can go without anybody noticing.
    pub fn is_deserted(&self) -> bool {
        self.state == State::Empty && self.pending_joins.is_empty()
    }

    /// Whether nobody ever joined: it exists for its offsets alone.
    pub fn is_simple(&self) -> bool {
        self.protocol_type.is_none()
    }

    /// Whether its members are consumers, whose subscriptions are readable.
    pub fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL)
    }

    /// Since when the group is in its state; `None` if loaded from a record older than the field.
    pub fn state_since(&self) -> Option<TimestampMs> {
        self.state_since
    }

    /// The topics its consumers read, where the broker knows.
    pub fn subscribed(&self) -> Option<&BTreeSet<TopicName>> {
        self.subscribed.as_ref()
    }

    /// Whether its consumers read `topic`. Consumers whose subscriptions are unreadable may read anything.
    pub fn is_subscribed(&self, topic: &TopicName) -> bool {
        self.subscribed.as_ref().map_or(self.is_consumer(), |topics| topics.contains(topic))
    }

    /// What ListGroups shows.
    pub fn list(&self, group_id: GroupId) -> ListedGroup {
        let protocol_type = self.protocol_type.clone().unwrap_or_default();
        ListedGroup { group_id, protocol_type, state: self.state.name() }
    }

    /// What DescribeGroups shows.
    pub fn describe(&self, group_id: GroupId) -> DescribedGroup {
        let protocol = self.protocol.clone().filter(|_| self.state == State::Stable);
        let members = self.roster.iter().map(|member| DescribedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: protocol.as_ref().map(|protocol| member.metadata(protocol)).unwrap_or_default(),
            assignment: member.assignment.clone(),
        });
        DescribedGroup {
            group_id,
            state: self.state.name(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            members: members.collect(),
            protocol: protocol.unwrap_or_default(),
        }
    }

    /// Whether offsets may be committed now: members of this generation may, unless a rebalance completes; strangers only
    /// while nobody is in the group.
    pub fn check_commit(&self, request: &MemberRequest) -> Result<(), GroupError> {
        if request.generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if request.generation < 0 && request.member_id.is_empty() && request.instance_id.is_none() {
            return Err(GroupError::UnknownMember);
        }
        self.check_generation(request)?;
        if self.state == State::CompletingRebalance {
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    fn check_member(&self, member_id: &MemberId, instance_id: Option<&Arc<str>>) -> Result<(), GroupError> {
        if let Some(instance_id) = instance_id {
            let holder = self.roster.holder(instance_id).ok_or(GroupError::UnknownMember)?;
            if holder != member_id {
                return Err(GroupError::FencedInstanceId);
            }
        }
        self.roster.get(member_id).map(|_| ()).ok_or(GroupError::UnknownMember)
    }

    fn check_generation(&self, request: &MemberRequest) -> Result<(), GroupError> {
        self.check_member(&request.member_id, request.instance_id.as_ref())?;
        if request.generation == self.generation { Ok(()) } else { Err(GroupError::IllegalGeneration) }
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), GroupError> {
        self.check_generation(&request.member)?;
        let differs = |ours: &Option<Arc<str>>, theirs: &Option<Arc<str>>| {
            ours.as_ref().zip(theirs.as_ref()).is_some_and(|(ours, theirs)| ours != theirs)
        };
        if differs(&self.protocol_type, &request.protocol_type) || differs(&self.protocol, &request.protocol) {
            return Err(GroupError::InconsistentProtocol);
        }
        Ok(())
    }

    /// Whether a member that supports `protocols` could be in this group.
    fn supports(&self, protocol_type: &Arc<str>, protocols: &[Protocol]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_ref() == Some(protocol_type)
            && protocols.iter().any(|protocol| self.roster.all_support(&protocol.name))
    }

    /// Whether `group.max.size` leaves room. In a rebalance those already waiting are counted, so that the last to rejoin
    /// are turned away when the limit was lowered (KAFKA-9844).
    fn has_room_for(&self, member_id: &MemberId, max_size: usize) -> bool {
        let member = self.roster.get(member_id);
        match self.state {
            State::Empty => true,
            State::PreparingRebalance => {
                member.is_some_and(Member::awaits_join) || self.roster.awaiting_join() < max_size
            }
            State::CompletingRebalance | State::Stable => member.is_some() || self.roster.len() < max_size,
        }
    }

    fn has_all_joined(&self) -> bool {
        self.roster.awaiting_join() == self.roster.len() && self.pending_joins.is_empty()
    }

    fn joined(&self, member_id: &MemberId) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let entry = |member: &Member| JoinedMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(&protocol),
        };
        let roll = self.roster.leads(member_id).then(|| self.roster.iter().map(entry).collect());
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.roster.leader().cloned().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.clone(),
            members: roll.unwrap_or_default(),
        }
    }

    fn synced(&self, assignment: Bytes) -> Synced {
        Synced { protocol_type: self.protocol_type.clone(), protocol: self.protocol.clone(), assignment }
    }
}

// Requests.
impl Group {
    /// A member joins, or joins again. `random` makes the id of one that has none.
    pub fn on_join(&mut self, request: JoinRequest, ticket: Ticket, random: u128, turn: &mut Turn<'_>) {
        if !self.has_room_for(&request.member_id, turn.settings.max_size) {
            self.remove(&request.member_id, turn);
            turn.refuse_join(ticket, GroupError::GroupMaxSizeReached, MemberId::default());
            return self.maybe_complete_join(turn);
        }
        if !self.supports(&request.protocol_type, &request.protocols) {
            return turn.refuse_join(ticket, GroupError::InconsistentProtocol, request.member_id);
        }
        if request.member_id.is_empty() {
            let prefix = request.instance_id.as_ref().unwrap_or(&request.client_id);
            let member_id = new_member_id(prefix, random);
            self.on_first_join(request, member_id, ticket, turn);
        } else if request.instance_id.is_none() && self.pending_joins.contains_key(&request.member_id) {
            let member_id = request.member_id.clone();
            self.add(request, member_id, ticket, turn);
        } else {
            self.on_rejoin(request, ticket, turn);
        }
    }

    fn on_first_join(&mut self, request: JoinRequest, member_id: MemberId, ticket: Ticket, turn: &mut Turn<'_>) {
        let held_by = request.instance_id.as_ref().and_then(|instance_id| self.roster.holder(instance_id)).cloned();
        if let Some(old_id) = held_by {
            let version = request.version;
            let member = member_of(request, member_id);
            self.on_static_return(StaticReturn { old_id, member, ticket, version }, turn);
        } else if request.instance_id.is_none() && request.version >= JOIN_NEEDS_MEMBER_ID {
            let ends = turn.now.monotonic + duration(request.session_timeout_ms);
            self.pending_joins.insert(member_id.clone(), ends);
            self.wake_by(ends);
            turn.refuse_join(ticket, GroupError::MemberIdRequired, member_id);
        } else {
            self.add(request, member_id, ticket, turn);
        }
    }

    /// The old id's place and share go to the new one.
    fn on_static_return(&mut self, mut coming: StaticReturn, turn: &mut Turn<'_>) {
        let old = self.roster.get(&coming.old_id).expect("who holds an instance id is a member");
        coming.member.assignment = old.assignment.clone();
        let instead = Some((&coming.old_id, &coming.member));
        if self.state == State::Stable && self.roster.vote(instead) == self.protocol {
            // The assignment stands and nobody else need know: only the record must, before the new id is told.
            turn.write = Some(self.value(instead, None));
            self.writing = Some(Writing::Return(Box::new(coming)));
            return;
        }
        let StaticReturn { old_id, member, ticket, .. } = coming;
        let new_id = self.replace(&old_id, member, turn);
        self.await_join(&new_id, ticket, turn);
        // While completing, the leader may already assign to the old id and the new one would get nothing: start again.
        self.maybe_prepare_rebalance(turn);
    }

    fn on_rejoin(&mut self, request: JoinRequest, ticket: Ticket, turn: &mut Turn<'_>) {
        if let Err(error) = self.check_member(&request.member_id, request.instance_id.as_ref()) {
            return turn.refuse_join(ticket, error, request.member_id);
        }
        let JoinRequest { member_id, protocols, session_timeout_ms, rebalance_timeout_ms, .. } = request;
        let member = self.roster.get_mut(&member_id).expect("just checked");
        let unchanged = member.protocols == protocols;
        let answer_now = match self.state {
            State::Empty | State::PreparingRebalance => false,
            // It missed our answer.
            State::CompletingRebalance => unchanged,
            // A leader that joins again wants a rebalance, for reasons the broker cannot see.
            State::Stable => unchanged && !self.roster.leads(&member_id),
        };
        if answer_now {
            return turn.join(ticket, self.joined(&member_id));
        }
        let member = self.roster.get_mut(&member_id).expect("just checked");
        member.session_timeout = duration(session_timeout_ms);
        member.rebalance_timeout = duration(rebalance_timeout_ms);
        self.roster.set_protocols(&member_id, protocols);
        self.await_join(&member_id, ticket, turn);
        self.maybe_prepare_rebalance(turn);
    }

    /// A member asks for its share; the leader brings everybody's.
    pub fn on_sync(&mut self, request: SyncRequest, ticket: Ticket, turn: &mut Turn<'_>) {
        if let Err(error) = self.check_sync(&request) {
            return turn.sync(ticket, Err(error));
        }
        let member_id = &request.member.member_id;
        if matches!(self.state, State::CompletingRebalance | State::Stable) {
            self.pending_syncs.remove(member_id);
            if self.pending_syncs.is_empty() {
                self.sync_ends = None;
            }
        }
        let member = self.roster.get_mut(member_id).expect("just checked");
        match self.state {
            State::Empty | State::PreparingRebalance => turn.sync(ticket, Err(GroupError::RebalanceInProgress)),
            State::CompletingRebalance => {
                if let Some(older) = member.awaiting_sync.replace(ticket) {
                    turn.sync(older, Err(GroupError::RebalanceInProgress));
                }
                if self.roster.leads(member_id) {
                    let assignments: BTreeMap<_, _> = request.assignments.into_iter().collect();
                    turn.write = Some(self.value(None, Some(&assignments)));
                    self.writing = Some(Writing::Assignment(assignments));
                }
            }
            State::Stable => {
                let share = member.assignment.clone();
                turn.sync(ticket, Ok(self.synced(share)));
                self.extend_session(turn.now, member_id);
            }
        }
    }

    /// A member is alive.
    pub fn on_heartbeat(&mut self, request: &MemberRequest, turn: &Turn<'_>) -> Result<(), GroupError> {
        self.check_generation(request)?;
        self.extend_session(turn.now, &request.member_id);
        if self.state == State::PreparingRebalance { Err(GroupError::RebalanceInProgress) } else { Ok(()) }
    }

    /// A command waits in line. Its member is alive, and will not be heard again before it is answered. One in its first
    /// join has longer than a session anyway.
    pub fn on_waiting(&mut self, command: &GroupCommand, turn: &Turn<'_>) {
        let (member_id, allowed) = match command {
            GroupCommand::Join(request) if self.pending_joins.contains_key(&request.member_id) => {
                let ends = turn.now.monotonic + duration(request.session_timeout_ms);
                self.pending_joins.insert(request.member_id.clone(), ends);
                return self.wake_by(ends);
            }
            GroupCommand::Join(request) => {
                let allowed = self.check_member(&request.member_id, request.instance_id.as_ref());
                (&request.member_id, allowed)
            }
            GroupCommand::Sync(request) => (&request.member.member_id, self.check_sync(request)),
            GroupCommand::OffsetCommit(request) => (&request.member.member_id, self.check_generation(&request.member)),
            _ => return,
        };
        if allowed.is_ok() && self.roster.get(member_id).is_some_and(|member| !member.is_new) {
            self.extend_session(turn.now, member_id);
        }
    }

    /// A commit that [`Group::check_commit`] let pass shows its member alive.
    pub fn on_commit(&mut self, member_id: &MemberId, turn: &Turn<'_>) {
        if matches!(self.state, State::Stable | State::PreparingRebalance) {
            self.extend_session(turn.now, member_id);
        }
    }

    /// Members leave, one answer for all. An id given out but not joined with is just dropped.
    pub fn on_leave(&mut self, request: LeaveRequest, ticket: Ticket, turn: &mut Turn<'_>) {
        let members_before = self.roster.len();
        let results: Vec<Left> = request.members.into_iter().map(|leaving| self.leave_one(leaving, turn)).collect();
        if self.roster.len() < members_before {
            self.maybe_prepare_rebalance(turn);
        } else {
            self.maybe_complete_join(turn);
        }
        match &mut self.writing {
            Some(Writing::Emptied(waiting)) => *waiting = Some((ticket, results)),
            _ => turn.replies.push((ticket, GroupAnswer::Leave(Ok(results)))),
        }
    }

    fn leave_one(&mut self, leaving: Leaving, turn: &mut Turn<'_>) -> Left {
        let Leaving { member_id, instance_id, .. } = leaving;
        let found = if member_id.is_empty() {
            let holder = instance_id.as_ref().and_then(|instance_id| self.roster.holder(instance_id));
            holder.cloned().ok_or(GroupError::UnknownMember)
        } else if self.pending_joins.contains_key(&member_id) {
            Ok(member_id.clone())
        } else {
            self.check_member(&member_id, instance_id.as_ref()).map(|()| member_id.clone())
        };
        let error = found.map(|gone| self.remove(&gone, turn)).err();
        Left { member_id, instance_id, error }
    }
}

// Members and deadlines.
impl Group {
    fn add(&mut self, request: JoinRequest, member_id: MemberId, ticket: Ticket, turn: &mut Turn<'_>) {
        if matches!(self.join_timer, Some(JoinTimer::Initial { .. })) {
            self.joined_during_delay = true;
        }
        if self.roster.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        self.pending_joins.remove(&member_id);
        let ends = turn.now.monotonic + NEW_MEMBER_JOIN_TIMEOUT;
        self.wake_by(ends);
        self.roster.insert(Member { is_new: true, session_ends: Some(ends), ..member_of(request, member_id.clone()) });
        self.await_join(&member_id, ticket, turn);
        self.maybe_prepare_rebalance(turn);
    }

    /// Takes out a member or an id given out; whatever it waits for is answered, in case it still listens.
    fn remove(&mut self, member_id: &MemberId, turn: &mut Turn<'_>) {
        self.pending_joins.remove(member_id);
        self.pending_syncs.remove(member_id);
        turn.dismiss(self.roster.remove(member_id), GroupError::UnknownMember);
    }

    /// Puts `member` in the place of `old_id`, who is fenced. Returns the new id.
    fn replace(&mut self, old_id: &MemberId, member: Member, turn: &mut Turn<'_>) -> MemberId {
        let new_id = member.id.clone();
        turn.dismiss(self.roster.replace(old_id, member), GroupError::FencedInstanceId);
        if self.pending_syncs.remove(old_id) {
            self.pending_syncs.insert(new_id.clone());
        }
        if self.state == State::Stable {
            self.subscribed = self.read_subscriptions();
        }
        self.extend_session(turn.now, &new_id);
        new_id
    }

    /// The member waits for the generation to begin. A join of its own that waits already is sent to join again.
    fn await_join(&mut self, member_id: &MemberId, ticket: Ticket, turn: &mut Turn<'_>) {
        if let Some(older) = self.roster.await_join(member_id, ticket) {
            turn.refuse_join(older, GroupError::RebalanceInProgress, member_id.clone());
        }
    }

    fn extend_session(&mut self, now: Now, member_id: &MemberId) {
        let member = self.roster.get_mut(member_id).expect("only members have sessions");
        let ends = now.monotonic + member.session_timeout;
        member.session_ends = Some(ends);
        self.wake_by(ends);
    }

    fn enter(&mut self, state: State, now: Now) {
        self.state = state;
        self.state_since = Some(now.wall);
    }

    fn set_join_timer(&mut self, timer: JoinTimer) {
        self.join_timer = Some(timer);
        self.wake_by(timer.at());
    }

    fn wake_by(&mut self, at: Duration) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn earliest_deadline(&self) -> Option<Duration> {
        let sessions = self.roster.iter().filter_map(|member| member.session_ends);
        let phases = self.join_timer.map(JoinTimer::at).into_iter().chain(self.sync_ends);
        sessions.chain(phases).chain(self.pending_joins.values().copied()).min()
    }

    /// Walks every invariant; panics with the one that does not hold.
    pub fn check(&self) {
        self.roster.check();
        for member in self.roster.iter() {
            let id = &member.id;
            assert!(!self.pending_joins.contains_key(id), "{id} is both member and pending");
            assert!(member.session_ends.is_some() || member.is_excused(), "{id} neither waits nor expires");
            let waits = member.awaits_join() || member.awaiting_sync.is_some();
            assert!(!waits || self.state != State::Stable, "{id} waits in a stable group");
            assert!(member.awaiting_sync.is_none() || self.state == State::CompletingRebalance, "{id} syncs too late");
        }
        assert!(self.pending_syncs.iter().all(|id| self.roster.get(id).is_some()), "sync awaited from no member");
        assert_eq!(self.pending_syncs.is_empty(), self.sync_ends.is_none(), "late syncs are waited for");
        assert_eq!(self.join_timer.is_some(), self.state == State::PreparingRebalance, "{:?}", self.join_timer);
        let has_generation = matches!(self.state, State::CompletingRebalance | State::Stable);
        assert!(has_generation || self.pending_syncs.is_empty(), "syncs awaited while {:?}", self.state);
        assert!(!has_generation || !self.roster.is_empty() && self.protocol.is_some(), "nobody is {:?}", self.state);
        assert!(self.state != State::Empty || self.roster.is_empty() && self.protocol.is_none(), "not Empty");
        let missed = self.earliest_deadline().is_some_and(|at| self.wake_at.is_none_or(|wake_at| wake_at > at));
        assert!(!missed, "a deadline would be missed");
    }
}

fn member_of(request: JoinRequest, id: MemberId) -> Member {
    Member {
        instance_id: request.instance_id,
        client_id: request.client_id,
        client_host: request.client_host,
        rebalance_timeout: duration(request.rebalance_timeout_ms),
        ..Member::new(id, request.protocols, duration(request.session_timeout_ms))
    }
}

/// `<prefix>-<uuid>`, as Kafka's own.
fn new_member_id(prefix: &str, random: u128) -> MemberId {
    let mut end = prefix.len().min(MEMBER_ID_PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    // RFC 4122: version 4, variant 1.
    let uuid = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let group = |shift: u32, digits: u32| (uuid >> shift) & ((1 << (digits * 4)) - 1);
    let (a, b, c, d, e) = (group(96, 8), group(80, 4), group(64, 4), group(48, 4), group(0, 12));
    format!("{}-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}", &prefix[..end]).into()
}

fn duration(milliseconds: i32) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}
