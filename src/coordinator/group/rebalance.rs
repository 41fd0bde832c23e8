//! How a group comes to its next generation, and what the passing of time does to it.
//!
//! Pure. The part of [`Group`] that owns the phases: who is waited for, until when, and who is left behind. Always: a generation
//! that begins answers every member that waits to join, and one that ends before its shares are dealt out tells so everyone who
//! waits for them. Source: KIP-62, KIP-134, KIP-345.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::{Group, JoinTimer, State, Turn, Writing};
use crate::coordinator::command::{GroupError, MemberId};
use crate::coordinator::roster::Member;
use crate::types::TopicName;

/// How soon a rebalance that no static member came to is looked at again, whatever their timeouts say.
const REBALANCE_RETRY_MIN: Duration = Duration::from_secs(1);

impl Group {
    /// Acts on every deadline that has passed. One that asks for a write leaves the rest for the next tick.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        while !self.is_writing() && self.wake_at.is_some_and(|at| at <= now) {
            if self.join_timer.is_some_and(|timer| timer.at() <= now) {
                self.expire_join_phase(turn);
            } else if self.sync_ends.is_some_and(|at| at <= now) {
                self.expire_sync_phase(turn);
            } else {
                self.expire_sessions(turn);
            }
            self.wake_at = self.earliest_deadline();
        }
    }

    fn expire_join_phase(&mut self, turn: &mut Turn<'_>) {
        match self.join_timer {
            Some(JoinTimer::Initial { delay, remaining, .. }) if self.joined_during_delay && !remaining.is_zero() => {
                self.joined_during_delay = false;
                let next = turn.settings.initial_rebalance_delay.min(remaining);
                let remaining = remaining.saturating_sub(delay);
                self.set_join_timer(JoinTimer::Initial { at: turn.now.monotonic + next, delay: next, remaining });
            }
            _ => self.complete_join(turn),
        }
    }

    fn expire_sync_phase(&mut self, turn: &mut Turn<'_>) {
        for member_id in std::mem::take(&mut self.pending_syncs) {
            self.remove(&member_id, turn);
        }
        self.prepare_rebalance(turn);
    }

    fn expire_sessions(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let pending_before = self.pending_joins.len();
        self.pending_joins.retain(|_, ends| *ends > now);
        let mut silent = Vec::new();
        for member in self.roster.iter_mut().filter(|member| member.session_ends.is_some_and(|ends| ends <= now)) {
            member.session_ends = None;
            if !member.is_excused() {
                silent.push(member.id.clone());
            }
        }
        for member_id in &silent {
            self.remove(member_id, turn);
        }
        match self.state {
            // As in Kafka, this ends even the initial delay: one who was waited for does not come.
            State::PreparingRebalance if silent.is_empty() && self.pending_joins.len() == pending_before => {}
            State::PreparingRebalance if self.has_all_joined() => self.complete_join(turn),
            State::CompletingRebalance | State::Stable if !silent.is_empty() => self.prepare_rebalance(turn),
            State::Empty | State::PreparingRebalance | State::CompletingRebalance | State::Stable => {}
        }
    }

    pub(super) fn maybe_prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            self.maybe_complete_join(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::CompletingRebalance {
            self.answer_syncs(Err(GroupError::RebalanceInProgress), turn);
        }
        self.pending_syncs.clear();
        self.sync_ends = None;
        let (now, timeout) = (turn.now.monotonic, self.roster.rebalance_timeout());
        if self.state == State::Empty {
            let delay = turn.settings.initial_rebalance_delay;
            self.joined_during_delay = false;
            let remaining = timeout.saturating_sub(delay);
            self.set_join_timer(JoinTimer::Initial { at: now + delay, delay, remaining });
        } else {
            self.set_join_timer(JoinTimer::Rebalance { at: now + timeout });
        }
        self.enter(State::PreparingRebalance, turn.now);
        self.maybe_complete_join(turn);
    }

    /// Ends the join phase once everyone is here; the initial one lasts its delay.
    pub(super) fn maybe_complete_join(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.join_timer, Some(JoinTimer::Rebalance { .. })) && self.has_all_joined() {
            self.complete_join(turn);
        }
    }

    fn complete_join(&mut self, turn: &mut Turn<'_>) {
        self.join_timer = None;
        let late = |member: &&Member| !member.awaits_join() && member.instance_id.is_none();
        let left_behind: Vec<MemberId> = self.roster.iter().filter(late).map(|member| member.id.clone()).collect();
        for member_id in &left_behind {
            self.remove(member_id, turn);
        }
        if self.roster.is_empty() {
            self.generation = next_generation(self.generation);
            self.protocol = None;
            self.subscribed = self.read_subscriptions();
            self.enter(State::Empty, turn.now);
            turn.write = Some(self.value(None, None));
            self.writing = Some(Writing::Emptied(None));
        } else if self.roster.awaiting_join() == 0 {
            // Only static members are left and none came: they keep their places until their sessions end.
            let wait = self.roster.rebalance_timeout().max(REBALANCE_RETRY_MIN);
            self.set_join_timer(JoinTimer::Rebalance { at: turn.now.monotonic + wait });
        } else {
            self.begin_generation(turn);
        }
    }

    fn begin_generation(&mut self, turn: &mut Turn<'_>) {
        self.generation = next_generation(self.generation);
        self.roster.elect_joined_leader();
        self.protocol = self.roster.vote(None);
        self.subscribed = self.read_subscriptions();
        self.enter(State::CompletingRebalance, turn.now);
        for member_id in self.roster.ids() {
            if let Some(ticket) = self.roster.take_join(&member_id) {
                turn.join(ticket, self.joined(&member_id));
            }
            self.roster.get_mut(&member_id).expect("on the roster").is_new = false;
            self.extend_session(turn.now, &member_id);
            self.pending_syncs.insert(member_id);
        }
        let ends = turn.now.monotonic + self.roster.rebalance_timeout();
        self.sync_ends = Some(ends);
        self.wake_by(ends);
    }

    /// Answers everyone who syncs, with their share or with an error that takes all shares back. Their sessions begin anew:
    /// one that ended while they waited was passed over.
    pub(super) fn answer_syncs(&mut self, result: Result<(), GroupError>, turn: &mut Turn<'_>) {
        for member_id in self.roster.ids() {
            let member = self.roster.get_mut(&member_id).expect("on the roster");
            if result.is_err() {
                member.assignment = Bytes::new();
            }
            if let Some(ticket) = member.awaiting_sync.take() {
                let share = member.assignment.clone();
                turn.sync(ticket, result.map(|()| self.synced(share)));
                self.extend_session(turn.now, &member_id);
            }
        }
    }

    pub(super) fn read_subscriptions(&self) -> Option<BTreeSet<TopicName>> {
        if !self.is_consumer() {
            return None;
        }
        self.roster.subscriptions(self.protocol.as_deref().unwrap_or_default())
    }
}

fn next_generation(generation: i32) -> i32 {
    generation.checked_add(1).unwrap_or(1)
}
