//! The group and its record: what is written, what happens once it is, what is read back.
//!
//! Pure. The part of [`Group`] that meets the log. Always: no share of a new generation is told before the record that has it is
//! durable. Source: GroupMetadataValue; KAFKA-10284 (a static member's new id is written before it is told).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{Group, JOIN_KNOWS_SKIP_ASSIGNMENT, State, StaticReturn, Turn, Writing, duration};
use crate::coordinator::command::{GroupAnswer, GroupError, Joined, MemberId, Protocol};
use crate::coordinator::records::{GroupValue, MemberValue};
use crate::coordinator::roster::Member;

impl Group {
    /// The record asked for is durable, or was not written.
    pub fn on_written(&mut self, result: Result<(), GroupError>, turn: &mut Turn<'_>) {
        let writing = self.writing.take().expect("a write was asked for");
        // A generation without members is harmless to lose: after a restart those of the one before expire once more.
        self.log_is_behind = result.is_err() && matches!(writing, Writing::Emptied(_));
        match (writing, result) {
            (Writing::Assignment(assignments), Ok(())) => {
                for member in self.roster.iter_mut() {
                    member.assignment = assignments.get(&member.id).cloned().unwrap_or_default();
                }
                self.answer_syncs(Ok(()), turn);
                self.enter(State::Stable, turn.now);
            }
            (Writing::Assignment(_), Err(error)) => {
                self.answer_syncs(Err(error), turn);
                self.prepare_rebalance(turn);
            }
            (Writing::Return(coming), Ok(())) => {
                let StaticReturn { old_id, member, ticket, version } = *coming;
                let leader_before = self.roster.leader().cloned().unwrap_or_default();
                let new_id = self.replace(&old_id, member, turn);
                let joined = self.joined(&new_id);
                if version >= JOIN_KNOWS_SKIP_ASSIGNMENT {
                    let skip_assignment = joined.leader == new_id;
                    turn.join(ticket, Joined { skip_assignment, ..joined });
                } else {
                    // Told the leader's old id, a returning leader acts as a follower and leaves the assignment alone.
                    turn.join(ticket, Joined { leader: leader_before, members: Vec::new(), ..joined });
                }
            }
            (Writing::Return(coming), Err(error)) => turn.refuse_join(coming.ticket, error, MemberId::default()),
            (Writing::Emptied(Some((ticket, left))), result) => {
                turn.replies.push((ticket, GroupAnswer::Leave(result.map(|()| left))));
            }
            (Writing::Emptied(None), _) => {}
        }
    }

    /// Everyone who waits is told that this coordinator is no longer theirs.
    pub fn on_unload(&mut self, turn: &mut Turn<'_>) {
        let error = GroupError::NotCoordinator;
        match self.writing.take() {
            Some(Writing::Return(coming)) => turn.refuse_join(coming.ticket, error, MemberId::default()),
            Some(Writing::Emptied(Some((ticket, _)))) => turn.replies.push((ticket, GroupAnswer::Leave(Err(error)))),
            Some(Writing::Assignment(_) | Writing::Emptied(None)) | None => {}
        }
        for member_id in self.roster.ids() {
            turn.dismiss(self.roster.remove(&member_id), error);
        }
    }

    /// The group as a record of the log has it.
    pub fn from_value(value: GroupValue) -> Self {
        let mut group = Self::new(0);
        group.state_since = value.state_since;
        group.generation = value.generation;
        group.protocol_type = Some(value.protocol_type).filter(|name| !name.is_empty());
        if !value.members.is_empty() {
            group.state = State::Stable;
            group.protocol = Some(value.protocol.unwrap_or_default());
        }
        let protocol = group.protocol.clone().unwrap_or_default();
        for member in value.members {
            if group.roster.get(&member.member_id).is_none() {
                let protocol = Protocol { name: protocol.clone(), metadata: member.subscription };
                group.roster.insert(Member {
                    instance_id: member.instance_id,
                    client_id: member.client_id,
                    client_host: member.client_host,
                    rebalance_timeout: duration(member.rebalance_timeout_ms),
                    assignment: member.assignment,
                    ..Member::new(member.member_id, vec![protocol], duration(member.session_timeout_ms))
                });
            }
        }
        if let Some(leader) = value.leader {
            group.roster.set_leader(&leader);
        }
        group.subscribed = group.read_subscriptions();
        group
    }

    /// The log was read to its end: sessions begin, and a group larger than a lowered limit rebalances.
    pub fn on_loaded(&mut self, turn: &mut Turn<'_>) {
        for member_id in self.roster.ids() {
            self.extend_session(turn.now, &member_id);
        }
        if self.roster.len() > turn.settings.max_size {
            self.prepare_rebalance(turn);
        }
    }

    /// The group as the log has it, if it is in a state that the log knows and nothing is on its way there.
    pub fn persisted(&self) -> Option<GroupValue> {
        let at_rest = matches!(self.state, State::Empty | State::Stable) && !self.is_writing();
        (at_rest && !self.log_is_behind).then(|| self.value(None, None))
    }

    /// The group as it is to be written: with `instead` in the place of the member of that id, and with `assignments` if
    /// they are new.
    pub(super) fn value(
        &self,
        instead: Option<(&MemberId, &Member)>,
        assignments: Option<&BTreeMap<MemberId, Bytes>>,
    ) -> GroupValue {
        let protocol = self.protocol.clone().unwrap_or_default();
        let share = |member: &Member| match assignments {
            Some(all) => all.get(&member.id).cloned().unwrap_or_default(),
            None => member.assignment.clone(),
        };
        let entry = |member: &Member| MemberValue {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: milliseconds(member.rebalance_timeout),
            session_timeout_ms: milliseconds(member.session_timeout),
            subscription: member.metadata(&protocol),
            assignment: share(member),
        };
        let leader = match (self.roster.leader(), instead) {
            (Some(leader), Some((old_id, member))) if leader == old_id => Some(&member.id),
            (leader, _) => leader,
        };
        GroupValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: leader.cloned(),
            state_since: self.state_since,
            members: self.roster.iter_with(instead).map(entry).collect(),
        }
    }
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
