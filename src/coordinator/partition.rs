//! All groups of one partition of `__consumer_offsets`, and what they have on its way to the log.
//!
//! Pure. Owns the order of things: which command waits, what becomes visible when. Always: offsets and assignments are
//! seen by others only when their records are durable, and a failed write changes nothing; records of one partition
//! complete in the order they were written; a group with a record of its own (or a deletion) on its way stands still, and
//! its commands wait in line, but for heartbeats; a command that waits shows its member alive, as one that is done does; a
//! deletion waits for the commits before it, so that its tombstones come after them; after a write the line goes before the
//! deadlines, so that nobody is taken for silent who waited in it. What is written and how it is read back is in `log`. What
//! the groups promise altogether is spelled out in `tests/sim/groups.rs`. Source: Kafka's GroupCoordinatorShard.

mod log;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::command::*;
use super::group::{Group, State, Turn};
use super::offsets::{Offsets, Place, plan_commit};
use super::records::{GroupValue, Record};
use crate::types::TopicName;

pub use self::log::GroupSnapshot;
use self::log::{Pending, PendingKind, Round};

/// How many commands may wait in line for one group's write. Above it they are told to come again: the write takes
/// milliseconds, so only a peer that floods one group gets there.
const PARKED_MAX: usize = 10_000;

/// A batch of records on its way to the log. Rises with every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(pub u64);

/// What an event asks of the shell.
#[derive(Debug, Default)]
pub struct Effects {
    /// Answers to send now.
    pub replies: Vec<(Ticket, GroupAnswer)>,
    /// Remember the end of the log, before these writes: what is there now will soon be written again.
    pub mark: bool,
    /// Batches to append, in this order; each must be followed by [`Partition::on_written`].
    pub writes: Vec<(WriteId, Vec<Record>)>,
    /// Everything before the mark has been written again behind it, durably.
    pub discard: bool,
}

/// The groups of one partition.
#[derive(Debug)]
pub struct Partition {
    settings: GroupSettings,
    groups: BTreeMap<GroupId, Entry>,
    /// When each group that moves wants to be looked at.
    due: BTreeSet<(Duration, GroupId)>,
    /// When offsets are next checked for expiry; `None` while there are no groups.
    sweep_at: Option<Duration>,
    last_write: u64,
    /// In the order of the log.
    writes: VecDeque<(WriteId, Pending)>,
    /// How many records the log holds.
    log_records: u64,
    /// At how many it is asked whether most of them are of no use any more.
    rewrite_check_at: u64,
    /// A log of fewer records is never written anew.
    rewrite_min: u64,
    /// Everything is being written anew.
    round: Option<Round>,
}

/// One group with its offsets.
#[derive(Debug)]
struct Entry {
    group: Group,
    offsets: Offsets,
    /// A record of it is in the log: it is remembered until a tombstone follows.
    logged: bool,
    /// Its last record as a group.
    value: Option<GroupValue>,
    /// Its place in [`Partition::due`].
    due: Option<Duration>,
    commits_pending: usize,
    /// A deletion, or all its records anew, are on the way.
    busy: bool,
    parked: VecDeque<Work>,
}

/// Something to do with one group, now or after what is before it.
#[derive(Debug)]
enum Work {
    Command(Ticket, GroupCommand, u128),
    /// Look for expired offsets.
    Sweep,
    /// Forget the offsets of topics that are gone.
    Drop(Arc<[TopicName]>),
    /// Write everything the log must keep of it once more.
    Rewrite,
}

impl Entry {
    fn new(group: Group) -> Self {
        Self {
            group,
            offsets: Offsets::default(),
            logged: false,
            value: None,
            due: None,
            commits_pending: 0,
            busy: false,
            parked: VecDeque::new(),
        }
    }

    fn stands_still(&self) -> bool {
        self.group.is_writing() || self.busy
    }

    fn must_wait(&self, work: &Work) -> bool {
        self.stands_still() || self.commits_pending > 0 && work.waits_for_commits()
    }

    /// Who still waits in line is not silent.
    fn keep_waiting(&mut self, turn: &Turn<'_>) {
        for work in &self.parked {
            if let Work::Command(_, command, _) = work {
                self.group.on_waiting(command, turn);
            }
        }
    }

    /// Whether anybody could know of it. One that does not exist was asked for and came to nothing.
    fn exists(&self) -> bool {
        self.logged || !self.offsets.is_empty() || !self.group.is_simple() || !self.group.is_deserted()
    }
}

impl Work {
    /// It waits for no write, as in Kafka: the disk may stand still for longer than a session lasts.
    fn is_heartbeat(&self) -> bool {
        matches!(self, Self::Command(_, GroupCommand::Heartbeat(_), _))
    }

    fn waits_for_commits(&self) -> bool {
        match self {
            Self::Sweep | Self::Drop(_) | Self::Rewrite => true,
            Self::Command(_, command, _) => match command {
                GroupCommand::DeleteGroup(_) | GroupCommand::OffsetDelete(_) => true,
                GroupCommand::OffsetFetch(request) => request.stability == Stability::AfterPendingCommits,
                _ => false,
            },
        }
    }
}

impl Partition {
    /// Without groups.
    pub fn new(settings: GroupSettings) -> Self {
        Self {
            settings,
            groups: BTreeMap::new(),
            due: BTreeSet::new(),
            sweep_at: None,
            last_write: 0,
            writes: VecDeque::new(),
            log_records: 0,
            rewrite_check_at: u64::MAX,
            rewrite_min: u64::MAX,
            round: None,
        }
    }

    /// Without this the log only grows: with it, once it holds `records` and mostly old ones, what still holds is written
    /// again at its end and the shell told to discard the rest.
    pub fn rewriting_after(self, records: u64) -> Self {
        Self { rewrite_min: records, rewrite_check_at: records, ..self }
    }

    /// The log holds more than this partition could write again: it only grows.
    pub fn never_rewriting(self) -> Self {
        self.rewriting_after(u64::MAX)
    }

    /// Takes one command. `random` becomes part of a member id if it asks for one.
    pub fn on_command(&mut self, now: Now, ticket: Ticket, command: GroupCommand, random: u128, fx: &mut Effects) {
        match command {
            GroupCommand::List(filter) => fx.replies.push((ticket, GroupAnswer::List(Ok(self.list(&filter))))),
            GroupCommand::TopicsDeleted(topics) => {
                fx.replies.push((ticket, GroupAnswer::TopicsDeleted));
                let topics: Arc<[TopicName]> = topics.into();
                for group_id in self.groups.keys().cloned().collect::<Vec<_>>() {
                    self.submit(now, &group_id, Work::Drop(topics.clone()), fx);
                }
            }
            GroupCommand::Describe(group_id) => {
                let found = self.groups.get(&group_id).filter(|entry| entry.exists());
                let answer = found.map(|entry| entry.group.describe(group_id)).ok_or(GroupError::GroupIdNotFound);
                fx.replies.push((ticket, GroupAnswer::Describe(answer)));
            }
            GroupCommand::OffsetFetch(request) if request.stability == Stability::Durable => {
                fx.replies.push((ticket, self.fetch(&request)));
            }
            command => {
                if let Err(error) = check_command(&command, &self.settings) {
                    return fx.replies.push((ticket, command.refused(error)));
                }
                let group_id = command.group_id().expect("the commands without one are above").clone();
                self.submit(now, &group_id, Work::Command(ticket, command, random), fx);
            }
        }
    }

    /// Acts on every deadline that has passed.
    pub fn on_tick(&mut self, now: Now, fx: &mut Effects) {
        while let Some((at, group_id)) = self.due.first().cloned()
            && at <= now.monotonic
        {
            self.due.remove(&(at, group_id.clone()));
            self.groups.get_mut(&group_id).expect("what is due is here").due = None;
            self.settle(now, &group_id, fx);
        }
        if self.sweep_at.is_some_and(|at| at <= now.monotonic) {
            self.sweep_at = None;
            for group_id in self.groups.keys().cloned().collect::<Vec<_>>() {
                self.submit(now, &group_id, Work::Sweep, fx);
            }
            self.schedule_sweep(now);
        }
    }

    /// When [`Partition::on_tick`] is next needed; `None` while nothing waits for time.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at).into_iter().chain(self.sweep_at).min()
    }

    /// Everyone who waits for anything is told that this coordinator is no longer theirs; nothing is left.
    pub fn on_unload(&mut self, now: Now) -> Vec<(Ticket, GroupAnswer)> {
        let mut turn = Turn::new(now, &self.settings);
        let mut fx = Effects::default();
        let error = GroupError::NotCoordinator;
        for (_, pending) in self.writes.drain(..) {
            match pending.kind {
                PendingKind::Commit(ticket, _) => fx.replies.push((ticket, GroupAnswer::OffsetCommit(Err(error)))),
                PendingKind::Exclusive(exclusive) => fx.replies.extend(exclusive.failed(error)),
                PendingKind::Group(_) => {}
            }
        }
        for (_, mut entry) in std::mem::take(&mut self.groups) {
            entry.group.on_unload(&mut turn);
            for work in entry.parked {
                if let Work::Command(ticket, command, _) = work {
                    fx.replies.push((ticket, command.refused(error)));
                }
            }
        }
        fx.replies.append(&mut turn.replies);
        self.due.clear();
        self.sweep_at = None;
        self.round = None;
        fx.replies
    }

    /// The log was read to its end.
    pub fn on_loaded(&mut self, now: Now, fx: &mut Effects) {
        for group_id in self.groups.keys().cloned().collect::<Vec<_>>() {
            let mut turn = Turn::new(now, &self.settings);
            self.groups.get_mut(&group_id).expect("listed").group.on_loaded(&mut turn);
            let (replies, write) = (turn.replies, turn.write);
            self.take_turn(&group_id, replies, write, fx);
            self.settle(now, &group_id, fx);
        }
        self.schedule_sweep(now);
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.values().filter(|entry| entry.exists()).count()
    }

    fn fetch(&self, request: &FetchRequest) -> GroupAnswer {
        let nothing = Offsets::default();
        let offsets = self.groups.get(&request.group_id).map_or(&nothing, |entry| &entry.offsets);
        GroupAnswer::OffsetFetch(Ok(offsets.fetch(&request.partitions)))
    }

    fn list(&self, filter: &ListFilter) -> Vec<ListedGroup> {
        let wants_type = |word: &String| word.eq_ignore_ascii_case("classic");
        if !filter.types.is_empty() && !filter.types.iter().any(wants_type) {
            return Vec::new();
        }
        let wants = |state: State| {
            filter.states.is_empty() || filter.states.iter().any(|word| word.trim().eq_ignore_ascii_case(state.name()))
        };
        self.groups
            .iter()
            .filter(|(_, entry)| entry.exists() && wants(entry.group.state()))
            .map(|(group_id, entry)| entry.group.list(group_id.clone()))
            .collect()
    }

    /// Does `work`, or lets it wait in line.
    fn submit(&mut self, now: Now, group_id: &GroupId, work: Work, fx: &mut Effects) {
        if let Some(entry) = self.groups.get_mut(group_id)
            && !work.is_heartbeat()
            && (entry.must_wait(&work) || !entry.parked.is_empty())
        {
            match work {
                Work::Command(ticket, command, _) if entry.parked.len() >= PARKED_MAX => {
                    fx.replies.push((ticket, command.refused(GroupError::LoadInProgress)));
                }
                work => {
                    if let Work::Command(_, command, _) = &work {
                        entry.group.on_waiting(command, &Turn::new(now, &self.settings));
                    }
                    entry.parked.push_back(work);
                }
            }
            // A deadline may have moved.
            return self.settle(now, group_id, fx);
        }
        self.run(now, group_id, work, fx);
        self.settle(now, group_id, fx);
    }

    /// After any change of a group: lets the next in line go, acts on its deadlines, and sees to it that the group is
    /// looked at in time, or forgotten.
    fn settle(&mut self, now: Now, group_id: &GroupId, fx: &mut Effects) {
        loop {
            let Some(entry) = self.groups.get_mut(group_id) else { return };
            if entry.parked.front().is_some_and(|work| !entry.must_wait(work)) {
                let work = entry.parked.pop_front().expect("just seen");
                self.run(now, group_id, work, fx);
            } else if !entry.stands_still() && entry.group.wake_at().is_some_and(|at| at <= now.monotonic) {
                let mut turn = Turn::new(now, &self.settings);
                entry.keep_waiting(&turn);
                entry.group.on_tick(&mut turn);
                let (replies, write) = (turn.replies, turn.write);
                self.take_turn(group_id, replies, write, fx);
            } else {
                break;
            }
        }
        let entry = self.groups.get_mut(group_id).expect("nothing above forgets it");
        if !entry.exists() && !entry.stands_still() && entry.commits_pending == 0 && entry.parked.is_empty() {
            self.forget(group_id);
            return;
        }
        let due = entry.group.wake_at().filter(|_| !entry.stands_still());
        if entry.due != due {
            if let Some(earlier) = std::mem::replace(&mut entry.due, due) {
                self.due.remove(&(earlier, group_id.clone()));
            }
            if let Some(at) = due {
                self.due.insert((at, group_id.clone()));
            }
        }
        self.schedule_sweep(now);
    }

    /// Returns what waited for it.
    fn forget(&mut self, group_id: &GroupId) -> VecDeque<Work> {
        let entry = self.groups.remove(group_id).expect("only groups that are here are forgotten");
        if let Some(at) = entry.due {
            self.due.remove(&(at, group_id.clone()));
        }
        if self.groups.is_empty() {
            self.sweep_at = None;
        }
        entry.parked
    }

    fn schedule_sweep(&mut self, now: Now) {
        if self.sweep_at.is_none() && !self.groups.is_empty() {
            self.sweep_at = Some(now.monotonic + self.settings.retention_check_interval);
        }
    }

    fn run(&mut self, now: Now, group_id: &GroupId, work: Work, fx: &mut Effects) {
        match work {
            Work::Sweep => self.sweep(now, group_id, fx),
            Work::Drop(topics) => {
                let places = self.groups.get(group_id).map(|entry| entry.offsets.places_of(&topics));
                self.delete(group_id, &places.unwrap_or_default(), None, fx);
            }
            Work::Rewrite => self.rewrite(now, group_id, fx),
            Work::Command(ticket, command, random) => self.run_command(now, group_id, ticket, command, random, fx),
        }
    }

    fn run_command(
        &mut self,
        now: Now,
        group_id: &GroupId,
        ticket: Ticket,
        command: GroupCommand,
        random: u128,
        fx: &mut Effects,
    ) {
        let opens = matches!(&command, GroupCommand::Join(request) if request.member_id.is_empty());
        if opens && !self.groups.contains_key(group_id) {
            self.groups.insert(group_id.clone(), Entry::new(Group::new(now.wall)));
        }
        let mut turn = Turn::new(now, &self.settings);
        match (command, self.groups.get_mut(group_id)) {
            (GroupCommand::Join(request), Some(entry)) => entry.group.on_join(request, ticket, random, &mut turn),
            (GroupCommand::Sync(request), Some(entry)) => entry.group.on_sync(request, ticket, &mut turn),
            (GroupCommand::Heartbeat(request), Some(entry)) => {
                let answer = entry.group.on_heartbeat(&request, &turn);
                turn.replies.push((ticket, GroupAnswer::Heartbeat(answer)));
            }
            (GroupCommand::Leave(request), Some(entry)) => entry.group.on_leave(request, ticket, &mut turn),
            (GroupCommand::Leave(request), None) => {
                let unknown = |leaving: Leaving| Left {
                    member_id: leaving.member_id,
                    instance_id: leaving.instance_id,
                    error: Some(GroupError::UnknownMember),
                };
                let left = request.members.into_iter().map(unknown).collect();
                turn.replies.push((ticket, GroupAnswer::Leave(Ok(left))));
            }
            (command @ (GroupCommand::Join(_) | GroupCommand::Sync(_) | GroupCommand::Heartbeat(_)), None) => {
                turn.replies.push((ticket, command.refused(GroupError::UnknownMember)));
            }
            (GroupCommand::OffsetFetch(request), _) => return fx.replies.push((ticket, self.fetch(&request))),
            (GroupCommand::OffsetCommit(request), _) => return self.commit(now, group_id, ticket, request, fx),
            (GroupCommand::DeleteGroup(_), _) => return self.delete_group(group_id, ticket, fx),
            (GroupCommand::OffsetDelete(request), _) => return self.delete_offsets(group_id, ticket, request, fx),
            (GroupCommand::Describe(_) | GroupCommand::List(_) | GroupCommand::TopicsDeleted(_), _) => {
                unreachable!("answered without waiting in line")
            }
        }
        let (replies, write) = (turn.replies, turn.write);
        self.take_turn(group_id, replies, write, fx);
    }

    fn commit(&mut self, now: Now, group_id: &GroupId, ticket: Ticket, request: CommitRequest, fx: &mut Effects) {
        let turn = Turn::new(now, &self.settings);
        let allowed = match self.groups.get_mut(group_id) {
            Some(entry) => {
                let allowed = entry.group.check_commit(&request.member);
                if allowed.is_ok() {
                    entry.group.on_commit(&request.member.member_id, &turn);
                }
                allowed
            }
            None if request.member.generation < 0 => Ok(()),
            None if request.version >= 9 => Err(GroupError::GroupIdNotFound),
            None => Err(GroupError::IllegalGeneration),
        };
        if let Err(error) = allowed {
            return fx.replies.push((ticket, GroupAnswer::OffsetCommit(Err(error))));
        }
        let plan = plan_commit(request, now.wall, &self.settings);
        if plan.offsets.is_empty() {
            return fx.replies.push((ticket, GroupAnswer::OffsetCommit(Ok(plan.results))));
        }
        let entry = self.groups.entry(group_id.clone()).or_insert_with(|| Entry::new(Group::new(now.wall)));
        entry.commits_pending += 1;
        let record = |((topic, partition), committed): &(Place, Committed)| Record::Offset {
            group_id: group_id.clone(),
            topic: topic.clone(),
            partition: *partition,
            value: Some(committed.clone()),
        };
        let records = plan.offsets.iter().map(record).collect();
        self.write(group_id, records, PendingKind::Commit(ticket, plan), fx);
    }

    fn delete_group(&mut self, group_id: &GroupId, ticket: Ticket, fx: &mut Effects) {
        let found = self.groups.get(group_id).filter(|entry| entry.exists());
        let allowed = match found.map(|entry| entry.group.state()) {
            None => Err(GroupError::GroupIdNotFound),
            Some(State::Empty) => Ok(()),
            Some(_) => Err(GroupError::NonEmptyGroup),
        };
        match allowed {
            Ok(()) => self.delete_whole(group_id, Some((ticket, GroupAnswer::DeleteGroup(Ok(())))), fx),
            Err(error) => fx.replies.push((ticket, GroupAnswer::DeleteGroup(Err(error)))),
        }
    }

    fn delete_offsets(&mut self, group_id: &GroupId, ticket: Ticket, request: OffsetDeleteRequest, fx: &mut Effects) {
        let found = self.groups.get(group_id).filter(|entry| entry.exists());
        let entry = match found.ok_or(GroupError::GroupIdNotFound) {
            Ok(entry) if entry.group.state() != State::Empty && !entry.group.is_consumer() => {
                return fx.replies.push((ticket, GroupAnswer::OffsetDelete(Err(GroupError::NonEmptyGroup))));
            }
            Ok(entry) => entry,
            Err(error) => return fx.replies.push((ticket, GroupAnswer::OffsetDelete(Err(error)))),
        };
        let result = |(topic, partition): &Place| PartitionResult {
            topic: topic.clone(),
            partition: *partition,
            error: entry.group.is_subscribed(topic).then_some(GroupError::SubscribedToTopic),
        };
        let results: Vec<_> = request.partitions.iter().map(result).collect();
        let goes = |place: &&Place| !entry.group.is_subscribed(&place.0) && entry.offsets.contains(place);
        let places: Vec<Place> = request.partitions.iter().filter(goes).cloned().collect();
        self.delete(group_id, &places, Some((ticket, GroupAnswer::OffsetDelete(Ok(results)))), fx);
    }

    /// Walks every invariant; panics with the one that does not hold.
    pub fn check(&self) {
        let mut due = BTreeSet::new();
        for (group_id, entry) in &self.groups {
            entry.group.check();
            due.extend(entry.due.map(|at| (at, group_id.clone())));
            let wanted = entry.group.wake_at().filter(|_| !entry.stands_still());
            assert_eq!(entry.due, wanted, "{group_id} would not be looked at in time");
            let mut commits = 0;
            for (_, pending) in self.writes.iter().filter(|(_, pending)| pending.group_id == *group_id) {
                match pending.kind {
                    PendingKind::Group(_) => assert!(entry.group.is_writing(), "{group_id} waits for no write"),
                    PendingKind::Commit(..) => commits += 1,
                    PendingKind::Exclusive(_) => assert!(entry.busy, "{group_id} is written while it moves"),
                }
            }
            assert_eq!(entry.commits_pending, commits, "{group_id}: commits pending");
            let ready = entry.parked.front().is_some_and(|work| !entry.must_wait(work));
            assert!(!ready, "{group_id}: somebody waits for nothing");
        }
        assert_eq!(due, self.due, "deadlines");
        assert_eq!(self.sweep_at.is_some(), !self.groups.is_empty(), "offsets expire exactly where there are groups");
        assert!(
            self.writes.iter().all(|(_, pending)| self.groups.contains_key(&pending.group_id)),
            "write of no group"
        );
    }
}

/// What is refused whatever the group's state.
fn check_command(command: &GroupCommand, settings: &GroupSettings) -> Result<(), GroupError> {
    let needs_name = matches!(
        command,
        GroupCommand::Join(_)
            | GroupCommand::Sync(_)
            | GroupCommand::Heartbeat(_)
            | GroupCommand::Leave(_)
            | GroupCommand::OffsetDelete(_)
    );
    if needs_name && command.group_id().is_some_and(|group_id| group_id.is_empty()) {
        return Err(GroupError::InvalidGroupId);
    }
    if let GroupCommand::Join(request) = command {
        let bounds = settings.min_session_timeout.as_millis()..=settings.max_session_timeout.as_millis();
        if !u128::try_from(request.session_timeout_ms).is_ok_and(|timeout| bounds.contains(&timeout)) {
            return Err(GroupError::InvalidSessionTimeout);
        }
    }
    Ok(())
}
