//! Why a consumer could not go on, in words that say what to do.
//!
//! Pure. Owns [`ConsumerError`]: what a consumer adds to [`ClientError`]. Always: a partition that stopped is named, with the
//! offset at which it stands, so that the caller can seek. Source: Java's InvalidOffsetException and its kin,
//! LogTruncationException (KIP-320), CommitFailedException.

use super::error::ClientError;
use crate::protocol::batch::BatchError;
use crate::types::{Offset, TopicPartition};

/// What stopped a consumer, or one partition of it. After each of them the consumer lives on and may be polled again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The cluster could not be reached, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No offset is committed, and `auto.offset.reset` is none: seek, then poll again.
    #[error("{partition}: no offset is committed, and auto.offset.reset is none; seek to where reading shall begin")]
    NoOffset {
        /// Which one.
        partition: TopicPartition,
    },
    /// The offset is not in the log any more, or not yet, and `auto.offset.reset` is none.
    #[error(
        "{partition}: offset {offset} is outside the log, and auto.offset.reset is none; seek to an offset that is there"
    )]
    OutOfRange {
        /// Which one.
        partition: TopicPartition,
        /// What was asked for.
        offset: Offset,
    },
    /// Records that were read, or committed as read, are gone from the log: another leader never had them.
    #[error("{partition}: the log was truncated below offset {offset}{}", diverged(*.end))]
    Truncated {
        /// Which one.
        partition: TopicPartition,
        /// Where the consumer stood.
        offset: Offset,
        /// Up to where both agree, exclusive; `None` if the leader cannot tell.
        end: Option<Offset>,
    },
    /// A batch is damaged. It is fetched anew at the next poll; seek past it if it stays so.
    #[error("{partition}: the batch at offset {offset} cannot be read ({why}); seek past it to go on without it")]
    Corrupt {
        /// Which one.
        partition: TopicPartition,
        /// Where the batch, or the rest of it, begins.
        offset: Offset,
        /// What is wrong.
        why: BatchError,
    },
    /// The group was dealt out anew before the commit: others may have read the same records, or will.
    #[error(
        "the commit came after the group was dealt out anew: its partitions may be others' now. Poll more often, or raise \
         max.poll.interval.ms, or lower max.poll.records"
    )]
    CommitFailed,
    /// The group is being dealt out anew: poll, then commit again.
    #[error("the group is rebalancing; poll, then commit again")]
    Rebalancing,
    /// [`super::consumer::ConsumerHandle::wake`] was called.
    #[error("the wait was ended by wake()")]
    Woken,
    /// The call does not fit how the consumer is used; the text says how.
    #[error("{0}")]
    Misuse(&'static str),
}

fn diverged(end: Option<Offset>) -> String {
    match end {
        Some(end) => format!("; both agree up to offset {end}: seek there to go on"),
        None => String::from("; seek to an offset that is there"),
    }
}

impl ConsumerError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn retriable(&self) -> bool {
        match self {
            Self::Client(error) => error.retriable(),
            Self::Corrupt { .. } | Self::Rebalancing | Self::Woken => true,
            Self::NoOffset { .. } | Self::OutOfRange { .. } | Self::Truncated { .. } => false,
            Self::CommitFailed | Self::Misuse(_) => false,
        }
    }
}
