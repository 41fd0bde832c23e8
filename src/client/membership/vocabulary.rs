//! What a [`Membership`] is told, what it asks for, and what its user hears.
//!
//! Pure. Owns the plain values. Always true: every request carries a number, and its answer carries it back.
//! Source: JoinGroup, SyncGroup, Heartbeat, LeaveGroup of Kafka's protocol guide; KIP-1092 (whether to leave on close).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

#[cfg(doc)]
use super::Membership;
use crate::client::assignor::{Assignor, Rack};
use crate::protocol::ErrorCode;
use crate::types::{TopicName, TopicPartition};

/// What a member is told of itself.
#[derive(Clone, Debug)]
pub struct MembershipSettings {
    /// `group.id`.
    pub group_id: Arc<str>,
    /// `group.instance.id`: a static member, which keeps its place over restarts.
    pub instance_id: Option<Arc<str>>,
    /// `partition.assignment.strategy`, the best liked first; not empty.
    pub assignors: Vec<Assignor>,
    /// `session.timeout.ms`: without a beat for so long, the coordinator gives the member up.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`: without a poll for so long, the member leaves by itself; also how long the coordinator waits
    /// for it in a rebalance.
    pub max_poll_interval: Duration,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `retry.backoff.ms`: doubled with each failure in a row.
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`.
    pub retry_backoff_max: Duration,
    /// `client.rack`.
    pub rack: Option<Rack>,
    /// Spreads retries of many members.
    pub seed: u64,
}

/// Names one request; answers carry it back.
pub type Ask = u64;

/// What the shell is to send or look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find the group's coordinator: [`Membership::on_coordinator`].
    FindCoordinator,
    /// JoinGroup: [`Membership::on_join`].
    Join(Join),
    /// The member leads: fetch the metadata of these topics, all of which may not exist: [`Membership::on_topics`].
    Deal {
        /// Of the answer.
        ask: Ask,
        /// What the group's members read.
        topics: BTreeSet<TopicName>,
    },
    /// SyncGroup: [`Membership::on_sync`].
    Sync(Sync),
    /// Heartbeat: [`Membership::on_heartbeat`].
    Heartbeat {
        /// Of the answer.
        ask: Ask,
        /// As whom.
        identity: Identity,
    },
    /// LeaveGroup; nothing depends on the answer.
    Leave {
        /// As whom.
        identity: Identity,
        /// For the coordinator's log (KIP-800).
        reason: &'static str,
    },
}

/// A JoinGroup request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Of the answer.
    pub ask: Ask,
    /// Empty the first time.
    pub member_id: Arc<str>,
    /// What each assignor offered is told.
    pub protocols: Vec<(Assignor, Bytes)>,
    /// For the coordinator's log (KIP-800).
    pub reason: &'static str,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

/// A SyncGroup request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Of the answer.
    pub ask: Ask,
    /// As whom.
    pub identity: Identity,
    /// The protocol in force.
    pub assignor: Assignor,
    /// Everybody's shares, from the leader; empty from others.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// As whom a member speaks: for requests of the group and for commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The generation it is in.
    pub generation: i32,
    /// Its id.
    pub member_id: Arc<str>,
}

/// A good answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The new generation.
    pub generation: i32,
    /// The protocol chosen.
    pub protocol: Arc<str>,
    /// Who leads.
    pub leader: Arc<str>,
    /// The member's own id.
    pub member_id: Arc<str>,
    /// The assignment stands; a leader only takes over watching for changes (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: id, instance id and subscription of each.
    pub members: Vec<(Arc<str>, Option<Arc<str>>, Bytes)>,
}

/// A request that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No answer: the connection failed, or the time was up. The coordinator is looked for again.
    Unanswered,
    /// This code.
    Code(ErrorCode),
    /// A join's MEMBER_ID_REQUIRED, with the id to come back with.
    TakeId(Arc<str>),
}

/// What the user must hear of, inside a poll, before anything else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These partitions will go to others: commit, then stop reading them.
    Revoke(BTreeSet<TopicPartition>),
    /// These are somebody else's already, or may be: stop reading them; commits would be refused.
    Lose(BTreeSet<TopicPartition>),
    /// These are new. May be empty: a rebalance is over.
    Assign(BTreeSet<TopicPartition>),
}

/// Whether a member that goes tells the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Farewell {
    /// Dynamic members do; static ones are expected back within their session.
    #[default]
    ByKind,
    /// Static ones too: their partitions move at once.
    Always,
    /// Nobody: the session runs out.
    Never,
}
