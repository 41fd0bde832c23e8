//! The words of a partition: what bounds it, what is asked of it, why it refuses.
//!
//! Pure: plain values that cross cores. Owns no behaviour beyond naming one bound among others.

use crate::log::{AppendError, ReadError};
use crate::types::{LeaderEpoch, Offset};

/// What a reader may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Everything below the high watermark.
    ReadUncommitted,
    /// Everything below the last stable offset.
    ReadCommitted,
    /// Everything in the log: replicas and the debugging consumer.
    LogEnd,
}

/// The bounds of a partition, read once per request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Incl.
    pub log_start: Offset,
    /// Excl.
    pub last_stable: Offset,
    /// Excl.
    pub high_watermark: Offset,
    /// Excl.
    pub log_end: Offset,
    /// The leadership these belong to.
    pub leader_epoch: LeaderEpoch,
    /// Position of the clock of waiting fetches; see [`Partition::watch`].
    pub visible_bytes: u64,
}

impl Limits {
    /// Where a read under `isolation` ends, excl.
    pub fn bound(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable,
            Isolation::LogEnd => self.log_end,
        }
    }
}

/// The peer's idea of who leads does not fit ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadershipError {
    /// This broker does not lead the partition, or no longer does.
    #[error("not the leader")]
    NotLeader,
    /// The request is older than the current leadership (KIP-320).
    #[error("leader epoch {given} is older than {current}")]
    Fenced {
        /// The request's.
        given: LeaderEpoch,
        /// Ours.
        current: LeaderEpoch,
    },
    /// The request knows a leadership we have not heard of (KIP-320).
    #[error("leader epoch {given} is newer than {current}")]
    Unknown {
        /// The request's.
        given: LeaderEpoch,
        /// Ours.
        current: LeaderEpoch,
    },
}

/// Why a batch was not appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProduceError {
    /// Role or epoch.
    #[error(transparent)]
    Leadership(#[from] LeadershipError),
    /// The log refused it.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Appended, but not acknowledged before the deadline; it may still become so.
    #[error("not acknowledged in time")]
    TimedOut,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Role or epoch.
    #[error(transparent)]
    Leadership(#[from] LeadershipError),
    /// The log refused it.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What is read of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// First offset wanted.
    pub from: Offset,
    /// Budget.
    pub bytes_max: usize,
    /// The first batch may exceed the budget (KIP-74).
    pub at_least_one: bool,
    /// How far.
    pub isolation: Isolation,
}

/// Counters of one partition since start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Records appended.
    pub records_in: u64,
    /// Bytes appended.
    pub bytes_in: u64,
    /// Bytes fetched.
    pub bytes_out: u64,
}
