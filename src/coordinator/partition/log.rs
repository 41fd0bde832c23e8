//! The log's side of the groups: writes and their completion, deletion, replay, and writing the log anew.
//!
//! Pure. The part of [`Partition`] that meets `__consumer_offsets`. Always: the state after replaying the log equals the
//! state before ([`Partition::snapshot`]); a group's exclusive records are written while it stands still, a bounded batch at
//! a time, and each batch counts when it is durable. **Writing anew** bounds the log without a compacting cleaner: when
//! most of its records are of no use, the end of the log is marked and each group in turn, standing still and after its
//! pending commits, writes once more what holds of it; when all have, nothing before the mark is needed. A crash or a
//! failed write in between costs nothing: the old records are still there.

use std::collections::{BTreeMap, VecDeque};

use super::{Effects, Entry, Partition, Work, WriteId};
use crate::coordinator::command::{Committed, GroupAnswer, GroupError, GroupId, Now, Ticket};
use crate::coordinator::group::{Group, Turn};
use crate::coordinator::offsets::{CommitPlan, Place};
use crate::coordinator::records::{GroupValue, Record};
use crate::types::{PartitionIndex, TopicName};

/// How large a batch of exclusive records may become: well below the megabyte that `max.message.bytes` allows by default.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// How many records there may be for each that still holds before the log is written anew.
const GARBAGE_RATIO: u64 = 4;

/// What happens when a write completes.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) group_id: GroupId,
    pub(super) kind: PendingKind,
    records: u64,
}

#[derive(Debug)]
pub(super) enum PendingKind {
    /// The group knows; this is what the log then has of it.
    Group(GroupValue),
    Commit(Ticket, CommitPlan),
    Exclusive(Exclusive),
}

/// Records written while their group stands still.
#[derive(Debug)]
pub(super) struct Exclusive {
    /// On their way.
    chunk: Vec<Record>,
    /// To follow.
    rest: VecDeque<Record>,
    purpose: Purpose,
}

#[derive(Debug)]
enum Purpose {
    /// With whom to answer when all tombstones are durable.
    Deletion(Option<(Ticket, GroupAnswer)>),
    Rewrite,
}

/// The log being written anew.
#[derive(Debug)]
pub(super) struct Round {
    /// Groups to come.
    left: VecDeque<GroupId>,
    /// Records that became durable since the mark.
    written: u64,
}

/// A group as its records have it.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupSnapshot {
    /// `None` while a rebalance is under way: the log still has the generation before it.
    pub value: Option<GroupValue>,
    /// Its durable offsets, in order.
    pub offsets: Vec<(TopicName, PartitionIndex, Committed)>,
}

impl Exclusive {
    /// Whoever waits for it is told that it did not come to pass.
    pub(super) fn failed(self, error: GroupError) -> Option<(Ticket, GroupAnswer)> {
        let Purpose::Deletion(answer) = self.purpose else { return None };
        answer.map(|(ticket, done)| match done {
            GroupAnswer::OffsetDelete(_) => (ticket, GroupAnswer::OffsetDelete(Err(error))),
            _ => (ticket, GroupAnswer::DeleteGroup(Err(error))),
        })
    }
}

impl Entry {
    fn snapshot(&self) -> GroupSnapshot {
        // Since when a group is stable is not in its record, which is written before. Nor is the age of one that nobody
        // joined, whose offsets age by themselves.
        let kept = |value: &GroupValue| value.members.is_empty() && !self.group.is_simple();
        let value = self.group.persisted();
        GroupSnapshot {
            value: value.map(|value| GroupValue { state_since: value.state_since.filter(|_| kept(&value)), ..value }),
            offsets: self.offsets.iter().map(|(topic, at, committed)| (topic.clone(), at, committed.clone())).collect(),
        }
    }

    /// Everything the log must hold of it.
    fn records(&self, group_id: &GroupId) -> Vec<Record> {
        let offset = |(topic, partition, committed): (&TopicName, PartitionIndex, &Committed)| Record::Offset {
            group_id: group_id.clone(),
            topic: topic.clone(),
            partition,
            value: Some(committed.clone()),
        };
        let mut records: Vec<Record> = self.offsets.iter().map(offset).collect();
        if let Some(value) = self.kept_value() {
            records.push(Record::Group { group_id: group_id.clone(), value: Some(value) });
        }
        records
    }

    fn kept_value(&self) -> Option<GroupValue> {
        // One that lost its last offset is still listed until it expires.
        let nameless = || self.group.persisted().filter(|_| self.logged && self.offsets.is_empty());
        self.value.clone().or_else(nameless)
    }

    /// Whether the log must hold nothing of it, now and whatever its writes come to.
    fn leaves_no_records(&self) -> bool {
        !self.must_wait(&Work::Rewrite) && self.offsets.is_empty() && self.kept_value().is_none()
    }
}

impl Partition {
    /// The oldest write is durable, or failed: then `result` is what its waiters are told. Panics on any other write: the
    /// log completes in order, and so must the shell.
    pub fn on_written(&mut self, now: Now, id: WriteId, result: Result<(), GroupError>, fx: &mut Effects) {
        let (expected, Pending { group_id, kind, records }) = self.writes.pop_front().expect("a write is pending");
        assert_eq!(id, expected, "writes complete in order");
        let entry = self.groups.get_mut(&group_id).expect("a group with a write stays");
        if result.is_ok() {
            entry.logged = true;
            self.log_records += records;
            self.round.iter_mut().for_each(|round| round.written += records);
        }
        match kind {
            PendingKind::Group(value) => {
                if result.is_ok() {
                    entry.value = Some(value);
                }
                let mut turn = Turn::new(now, &self.settings);
                entry.group.on_written(result, &mut turn);
                let (replies, write) = (turn.replies, turn.write);
                self.take_turn(&group_id, replies, write, fx);
            }
            PendingKind::Commit(ticket, plan) => {
                entry.commits_pending -= 1;
                if result.is_ok() {
                    plan.offsets.into_iter().for_each(|(place, committed)| entry.offsets.set(place, committed));
                }
                fx.replies.push((ticket, GroupAnswer::OffsetCommit(result.map(|()| plan.results))));
            }
            PendingKind::Exclusive(exclusive) => {
                entry.busy = false;
                self.on_exclusive(now, &group_id, exclusive, result, fx);
            }
        }
        self.settle(now, &group_id, fx);
        self.maybe_begin_round(now, fx);
    }

    fn on_exclusive(
        &mut self,
        now: Now,
        group_id: &GroupId,
        exclusive: Exclusive,
        result: Result<(), GroupError>,
        fx: &mut Effects,
    ) {
        if let Err(error) = result {
            if matches!(exclusive.purpose, Purpose::Rewrite) {
                // The old records are all still there; the next attempt comes when the log has grown again.
                self.round = None;
                self.rewrite_check_at = self.log_records.saturating_add(self.rewrite_min);
            }
            return fx.replies.extend(exclusive.failed(error));
        }
        let Exclusive { chunk, rest, purpose } = exclusive;
        let mut waiting = VecDeque::new();
        for record in chunk.into_iter().filter(|_| matches!(purpose, Purpose::Deletion(_))) {
            match record {
                Record::Offset { topic, partition, .. } => {
                    let entry = self.groups.get_mut(group_id).expect("its own tombstone comes last");
                    entry.offsets.remove(&(topic, partition));
                }
                Record::Group { .. } => waiting = self.forget(group_id),
            }
        }
        if !rest.is_empty() {
            return self.write_exclusively(group_id, rest, purpose, fx);
        }
        match purpose {
            Purpose::Deletion(answer) => fx.replies.extend(answer),
            Purpose::Rewrite => self.continue_round(now, fx),
        }
        // Who waited for the deletion begins with a group that is not there.
        waiting.into_iter().for_each(|work| self.submit(now, group_id, work, fx));
    }

    /// Applies one record of the log while loading.
    pub fn replay(&mut self, record: Record) {
        self.log_records += 1;
        match record {
            Record::Offset { group_id, topic, partition, value: Some(committed) } => {
                let entry =
                    self.groups.entry(group_id).or_insert_with(|| Entry::new(Group::new(committed.committed_at)));
                entry.logged = true;
                entry.offsets.set((topic, partition), committed);
            }
            Record::Offset { group_id, topic, partition, value: None } => {
                if let Some(entry) = self.groups.get_mut(&group_id) {
                    entry.offsets.remove(&(topic, partition));
                }
            }
            Record::Group { group_id, value: Some(value) } => {
                let group = Group::from_value(value.clone());
                let offsets = self.groups.remove(&group_id).map(|entry| entry.offsets).unwrap_or_default();
                self.groups.insert(group_id, Entry { offsets, logged: true, value: Some(value), ..Entry::new(group) });
            }
            Record::Group { group_id, value: None } => {
                if let Some(entry) = self.groups.remove(&group_id).filter(|entry| !entry.offsets.is_empty()) {
                    // Its offsets have tombstones of their own; what has none was committed after the deletion.
                    let group = Group::new(entry.group.state_since().unwrap_or(0));
                    self.groups.insert(group_id, Entry { group, value: None, ..entry });
                }
            }
        }
    }

    /// Writes tombstones for these offsets; answers at once if there are none.
    pub(super) fn delete(
        &mut self,
        group_id: &GroupId,
        places: &[Place],
        answer: Option<(Ticket, GroupAnswer)>,
        fx: &mut Effects,
    ) {
        if places.is_empty() {
            return fx.replies.extend(answer);
        }
        self.write_exclusively(group_id, tombstones(group_id, places), Purpose::Deletion(answer), fx);
    }

    /// Writes tombstones for all its offsets and for the group.
    pub(super) fn delete_whole(&mut self, group_id: &GroupId, answer: Option<(Ticket, GroupAnswer)>, fx: &mut Effects) {
        let places = self.groups.get(group_id).map(|entry| entry.offsets.places()).unwrap_or_default();
        let mut records = tombstones(group_id, &places);
        records.push_back(Record::Group { group_id: group_id.clone(), value: None });
        self.write_exclusively(group_id, records, Purpose::Deletion(answer), fx);
    }

    /// Forgets what expired; the whole group if nothing else is left of it.
    pub(super) fn sweep(&mut self, now: Now, group_id: &GroupId, fx: &mut Effects) {
        let Some(entry) = self.groups.get(group_id) else { return };
        let expired = entry.offsets.expired(&entry.group, now.wall, self.settings.offsets_retention);
        if entry.group.is_deserted() && expired.len() == entry.offsets.iter().count() {
            self.delete_whole(group_id, None, fx);
        } else {
            self.delete(group_id, &expired, None, fx);
        }
    }

    /// Begins to write the log anew if most of it is of no use; not in the event that ends a round, since the shell would
    /// discard what is before the new mark.
    fn maybe_begin_round(&mut self, now: Now, fx: &mut Effects) {
        if self.round.is_some() || fx.discard || self.log_records < self.rewrite_check_at {
            return;
        }
        let live: u64 = self.groups.values().map(|entry| 1 + entry.offsets.iter().count() as u64).sum();
        self.rewrite_check_at = live.saturating_mul(GARBAGE_RATIO).saturating_add(self.rewrite_min);
        if self.log_records >= self.rewrite_check_at {
            fx.mark = true;
            self.round = Some(Round { left: self.groups.keys().cloned().collect(), written: 0 });
            self.continue_round(now, fx);
        }
    }

    /// Lets the next group write its records anew; after the last one the mark holds. Groups without records, of which a
    /// peer can make very many, are passed over here: each of them would be one more call on the stack.
    fn continue_round(&mut self, now: Now, fx: &mut Effects) {
        while let Some(round) = &mut self.round {
            match round.left.pop_front() {
                Some(group_id) => {
                    if self.groups.get(&group_id).is_some_and(|entry| !entry.leaves_no_records()) {
                        return self.submit(now, &group_id, Work::Rewrite, fx);
                    }
                }
                None => {
                    fx.discard = true;
                    self.log_records = round.written;
                    self.rewrite_check_at = self.rewrite_min;
                    self.round = None;
                }
            }
        }
    }

    pub(super) fn rewrite(&mut self, now: Now, group_id: &GroupId, fx: &mut Effects) {
        let records = self.groups.get(group_id).map(|entry| entry.records(group_id)).unwrap_or_default();
        if records.is_empty() {
            self.continue_round(now, fx);
        } else {
            self.write_exclusively(group_id, records.into(), Purpose::Rewrite, fx);
        }
    }

    fn write_exclusively(
        &mut self,
        group_id: &GroupId,
        mut rest: VecDeque<Record>,
        purpose: Purpose,
        fx: &mut Effects,
    ) {
        self.groups.get_mut(group_id).expect("whose records are written is here").busy = true;
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while let Some(record) = rest.pop_front() {
            bytes += record.size_hint();
            if bytes > CHUNK_BYTES_MAX && !chunk.is_empty() {
                rest.push_front(record);
                break;
            }
            chunk.push(record);
        }
        self.write(group_id, chunk.clone(), PendingKind::Exclusive(Exclusive { chunk, rest, purpose }), fx);
    }

    pub(super) fn take_turn(
        &mut self,
        group_id: &GroupId,
        replies: Vec<(Ticket, GroupAnswer)>,
        write: Option<GroupValue>,
        fx: &mut Effects,
    ) {
        fx.replies.extend(replies);
        if let Some(value) = write {
            let record = Record::Group { group_id: group_id.clone(), value: Some(value.clone()) };
            self.write(group_id, vec![record], PendingKind::Group(value), fx);
        }
    }

    pub(super) fn write(&mut self, group_id: &GroupId, records: Vec<Record>, kind: PendingKind, fx: &mut Effects) {
        self.last_write += 1;
        let id = WriteId(self.last_write);
        self.writes.push_back((id, Pending { group_id: group_id.clone(), kind, records: records.len() as u64 }));
        fx.writes.push((id, records));
    }

    /// What a replay of the log must lead to.
    pub fn snapshot(&self) -> BTreeMap<GroupId, GroupSnapshot> {
        let kept = self.groups.iter().filter(|(_, entry)| entry.logged);
        kept.map(|(group_id, entry)| (group_id.clone(), entry.snapshot())).collect()
    }
}

fn tombstones(group_id: &GroupId, places: &[Place]) -> VecDeque<Record> {
    let tombstone = |(topic, partition): &Place| Record::Offset {
        group_id: group_id.clone(),
        topic: topic.clone(),
        partition: *partition,
        value: None,
    };
    places.iter().map(tombstone).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::coordinator::command::*;
    use crate::types::TopicId;

    const NOW: Now = Now { monotonic: Duration::ZERO, wall: 1 };

    fn settings() -> GroupSettings {
        GroupSettings {
            initial_rebalance_delay: Duration::ZERO,
            min_session_timeout: Duration::ZERO,
            max_session_timeout: Duration::from_secs(60),
            max_size: 10,
            offset_metadata_max: 10,
            offsets_retention: Duration::from_secs(60),
            retention_check_interval: Duration::from_secs(60),
        }
    }

    fn commit(partitions: std::ops::Range<i32>) -> GroupCommand {
        commit_of("g", partitions)
    }

    fn commit_of(group: &str, partitions: std::ops::Range<i32>) -> GroupCommand {
        let partition = |number| CommitPartition {
            topic: "a-topic-with-a-name-of-some-length".into(),
            topic_id: TopicId::ZERO,
            partition: PartitionIndex::new(number).unwrap(),
            offset: 1,
            leader_epoch: None,
            metadata: "".into(),
        };
        let member = MemberRequest { group_id: group.into(), generation: -1, member_id: "".into(), instance_id: None };
        let partitions = partitions.map(partition).collect();
        GroupCommand::OffsetCommit(CommitRequest { member, retention: None, version: 9, partitions })
    }

    /// Completes writes as `fate` says of each, and keeps the log of those that became durable.
    fn drive(partition: &mut Partition, log: &mut Vec<Record>, fx: Effects, fate: impl Fn(usize) -> bool) -> usize {
        let mut waiting: VecDeque<_> = fx.writes.into();
        let mut count = 0;
        while let Some((id, records)) = waiting.pop_front() {
            let durable = fate(count);
            count += 1;
            if durable {
                log.extend(records);
            }
            let mut fx = Effects::default();
            let result = if durable { Ok(()) } else { Err(GroupError::NotCoordinator) };
            partition.on_written(NOW, id, result, &mut fx);
            partition.check();
            waiting.extend(fx.writes);
        }
        count
    }

    fn replayed(log: &[Record]) -> BTreeMap<GroupId, GroupSnapshot> {
        let mut partition = Partition::new(settings());
        log.iter().for_each(|record| partition.replay(record.clone()));
        partition.snapshot()
    }

    #[test]
    fn a_large_group_is_deleted_in_several_writes_and_a_failure_between_them_leaves_what_the_log_has() {
        let mut partition = Partition::new(settings());
        let (mut log, mut fx) = (Vec::new(), Effects::default());
        partition.on_command(NOW, Ticket(1), commit(0..8000), 0, &mut fx);
        drive(&mut partition, &mut log, fx, |_| true);

        let mut fx = Effects::default();
        partition.on_command(NOW, Ticket(2), GroupCommand::DeleteGroup("g".into()), 0, &mut fx);
        assert_eq!(drive(&mut partition, &mut log, fx, |write| write != 1), 2);
        let left = partition.snapshot()["g"].offsets.len();
        assert!(0 < left && left < 8000, "{left}");
        assert_eq!(partition.snapshot(), replayed(&log));

        let mut fx = Effects::default();
        partition.on_command(NOW, Ticket(3), GroupCommand::DeleteGroup("g".into()), 0, &mut fx);
        assert!(drive(&mut partition, &mut log, fx, |_| true) > 1);
        assert_eq!(partition.snapshot(), BTreeMap::new());
        assert_eq!(replayed(&log), BTreeMap::new());
    }

    #[test]
    fn a_log_of_old_records_is_written_anew_and_can_begin_at_the_mark() {
        let mut partition = Partition::new(settings()).rewriting_after(100);
        let mut log: Vec<Record> = Vec::new();
        let mut longest = 0;
        for round in 0..500 {
            let mut fx = Effects::default();
            partition.on_command(NOW, Ticket(round), commit(0..3), 0, &mut fx);
            let mut mark = 0;
            let mut waiting: VecDeque<_> = fx.writes.into();
            while let Some((id, records)) = waiting.pop_front() {
                log.extend(records);
                let mut fx = Effects::default();
                partition.on_written(NOW, id, Ok(()), &mut fx);
                if fx.mark {
                    mark = log.len();
                }
                waiting.extend(fx.writes);
                if fx.discard {
                    log.drain(..mark);
                }
            }
            longest = longest.max(log.len());
            assert_eq!(partition.snapshot(), replayed(&log));
        }
        assert!(longest < 150, "{longest} records");
    }

    #[test]
    fn a_round_does_not_begin_in_the_event_that_ends_another() {
        let mut partition = Partition::new(settings()).rewriting_after(10);
        let (mut log, mut mark, mut discards) = (Vec::new(), 0, 0);
        let mut waiting = VecDeque::new();
        let ask = |partition: &mut Partition, waiting: &mut VecDeque<_>, group| {
            let mut fx = Effects::default();
            partition.on_command(NOW, Ticket(1), commit_of(group, 0..3), 0, &mut fx);
            waiting.extend(fx.writes);
        };
        ask(&mut partition, &mut waiting, "b");
        ask(&mut partition, &mut waiting, "a");
        while let Some((id, records)) = waiting.pop_front() {
            log.extend(records);
            let mut fx = Effects::default();
            partition.on_written(NOW, id, Ok(()), &mut fx);
            partition.check();
            assert!(!(fx.mark && fx.discard), "the new mark would be taken for the old one");
            if fx.mark {
                mark = log.len();
            }
            waiting.extend(fx.writes);
            if fx.mark && discards == 0 {
                // While the first group is written anew the log grows, so that the next round is due when this one ends.
                (0..20).for_each(|_| ask(&mut partition, &mut waiting, "b"));
            } else if fx.discard {
                log.drain(..mark);
                discards += 1;
            } else if discards == 0 && mark == 0 {
                ask(&mut partition, &mut waiting, "a");
            }
            if waiting.is_empty() || fx.discard {
                assert_eq!(partition.snapshot(), replayed(&log), "the log has everything that is served");
            }
        }
        assert_eq!(partition.snapshot().len(), 2);
        assert!(discards > 0);
    }

    #[test]
    fn a_round_passes_over_any_number_of_groups_without_records() {
        let mut partition = Partition::new(settings()).rewriting_after(10);
        for number in 0..20_000 {
            let join = GroupCommand::Join(JoinRequest {
                group_id: format!("g{number}").into(),
                member_id: "".into(),
                instance_id: None,
                client_id: "c".into(),
                client_host: "/127.0.0.1".into(),
                session_timeout_ms: 60_000,
                rebalance_timeout_ms: 60_000,
                protocol_type: "consumer".into(),
                protocols: vec![Protocol { name: "range".into(), metadata: Bytes::new() }],
                version: 4,
            });
            partition.on_command(NOW, Ticket(number), join, u128::from(number), &mut Effects::default());
        }
        let mut rounds = 0;
        let mut waiting = VecDeque::new();
        for round in 0..90 {
            let mut fx = Effects::default();
            partition.on_command(NOW, Ticket(20_000 + round), commit_of("z", 0..1000), 0, &mut fx);
            waiting.extend(fx.writes);
            while let Some((id, _)) = waiting.pop_front() {
                let mut fx = Effects::default();
                partition.on_written(NOW, id, Ok(()), &mut fx);
                rounds += u32::from(fx.discard);
                waiting.extend(fx.writes);
            }
        }
        assert_eq!(rounds, 1);
        partition.check();
    }

    /// A partition with its log, of which one round of writing anew may fail at one of its writes.
    struct Faulty {
        partition: Partition,
        log: Vec<Record>,
        mark: usize,
        /// Writes of the round so far; `None` outside of one.
        in_round: Option<usize>,
        rounds_begun: usize,
        rounds_done: usize,
    }

    impl Faulty {
        /// One commit of `group`, and everything that follows from it. Write `fails` of the first round does.
        fn commit(&mut self, group: &str, partitions: i32, fails: usize) {
            let mut fx = Effects::default();
            self.partition.on_command(NOW, Ticket(1), commit_of(group, 0..partitions), 0, &mut fx);
            let mut waiting: VecDeque<_> = fx.writes.into();
            while let Some((id, records)) = waiting.pop_front() {
                let fault = self.rounds_begun == 1 && self.in_round == Some(fails);
                self.in_round = self.in_round.map(|writes| writes + 1);
                let mut fx = Effects::default();
                if fault {
                    self.in_round = None;
                    self.partition.on_written(NOW, id, Err(GroupError::NotCoordinator), &mut fx);
                } else {
                    self.log.extend(records);
                    self.partition.on_written(NOW, id, Ok(()), &mut fx);
                }
                self.partition.check();
                assert!(!(fault && fx.discard), "a round that failed discards nothing");
                if fx.mark {
                    (self.mark, self.in_round) = (self.log.len(), Some(0));
                    self.rounds_begun += 1;
                }
                if fx.discard {
                    self.log.drain(..self.mark);
                    self.in_round = None;
                    self.rounds_done += 1;
                }
                waiting.extend(fx.writes);
                if fault || self.in_round.is_some() || fx.discard {
                    assert_eq!(self.partition.snapshot(), replayed(&self.log), "the log has everything at every step");
                }
            }
        }
    }

    #[test]
    fn a_round_of_writing_anew_that_fails_anywhere_loses_nothing_and_is_tried_again() {
        let mut failed_at = 0;
        loop {
            let partition = Partition::new(settings()).rewriting_after(100);
            let (log, mark) = (Vec::new(), 0);
            let mut faulty = Faulty { partition, log, mark, in_round: None, rounds_begun: 0, rounds_done: 0 };
            ["a", "b", "c"].iter().for_each(|group| faulty.commit(group, 2, failed_at));
            // The large one takes several writes.
            (0..5).for_each(|_| faulty.commit("large", 6_000, failed_at));
            assert_eq!(faulty.rounds_begun, 1);
            if faulty.rounds_done == 1 {
                // A round has no more writes.
                assert_eq!(failed_at, 6);
                return;
            }
            let before = faulty.partition.snapshot();
            assert_eq!((before.len(), before["large"].offsets.len()), (4, 6_000), "what was there is served");
            let length = faulty.log.len();
            (0..51).for_each(|_| faulty.commit("a", 2, failed_at));
            assert_eq!((faulty.rounds_begun, faulty.rounds_done), (2, 1), "once, when the log has grown");
            assert!(faulty.log.len() < length);
            assert_eq!(faulty.partition.snapshot(), before);
            failed_at += 1;
        }
    }
}
