//! What can become of a record that a program wants to send: refused at the door, or failed later.
//!
//! Pure. Owns [`SendError`] (the producer did not take the record) and [`ProduceError`] (it did, and could not deliver it).
//! Always true: each says whether the record may lie in the log all the same. Source: Kafka's `Producer` documentation.

use std::time::Duration;

use crate::protocol::ErrorCode;
use crate::types::{PartitionIndex, TopicName};

use super::record::SerdeError;

/// The producer did not take a record: it was not and will not be sent.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SendError {
    /// `buffer.memory` is full; `try_send` never waits.
    #[error("the producer's buffer.memory is full: the brokers take records more slowly than they are sent")]
    WouldBlock,
    /// Nothing is known of the topic yet; it was asked for, and `try_send` never waits.
    #[error("nothing is known of topic {topic} yet; it was asked for")]
    NoMetadata {
        /// Which topic.
        topic: TopicName,
    },
    /// `max.block.ms` ended before there was room in `buffer.memory`.
    #[error(
        "no room in buffer.memory within {after:?} (max.block.ms): the brokers take records more slowly than they are sent"
    )]
    NoRoom {
        /// How long was waited.
        after: Duration,
    },
    /// `max.block.ms` ended before a broker told of the topic.
    #[error("topic {topic} was not found within {after:?} (max.block.ms): {why}")]
    NoTopic {
        /// Which topic.
        topic: TopicName,
        /// How long was waited.
        after: Duration,
        /// The last thing that was in the way.
        why: Box<str>,
    },
    /// The topic may not be used.
    #[error("topic {topic} cannot be used: {}", code.sentence())]
    Topic {
        /// Which topic.
        topic: TopicName,
        /// The broker's word.
        code: ErrorCode,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}, only 0 to {}", count.saturating_sub(1))]
    NoPartition {
        /// Which topic.
        topic: TopicName,
        /// Asked for.
        partition: PartitionIndex,
        /// How many it has.
        count: u32,
    },
    /// Larger than may be sent.
    #[error("the record takes {bytes} bytes, more than the {bytes_max} of {setting}")]
    RecordTooLarge {
        /// What it takes.
        bytes: usize,
        /// What it may take.
        bytes_max: usize,
        /// Which setting says so.
        setting: &'static str,
    },
    /// A serializer refused.
    #[error("the record could not be serialized: {0}")]
    Serialize(#[from] SerdeError),
    /// The producer cannot go on; see [`ProduceError::Fatal`].
    #[error("the producer cannot go on: {}", code.sentence())]
    Fatal {
        /// Why.
        code: ErrorCode,
    },
    /// The producer was closed.
    #[error("the producer is closed")]
    Closed,
}

/// A record was taken and could not be delivered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProduceError {
    /// The broker refused it for good.
    #[error("the broker refused the record: {} [{code}]", message.as_deref().unwrap_or(code.sentence()))]
    Refused {
        /// Why.
        code: ErrorCode,
        /// The broker's own words.
        message: Option<Box<str>>,
        /// Whether an earlier attempt, which had no clear answer, may have put it into the log all the same.
        maybe_written: bool,
    },
    /// `delivery.timeout.ms` ended, or `retries` were used up.
    #[error("not delivered within {after:?}, {attempts} attempts: {last}")]
    TimedOut {
        /// Time since the record's batch was begun.
        after: Duration,
        /// How often it was sent.
        attempts: u32,
        /// Whether it may lie in the log all the same.
        maybe_written: bool,
        /// The last thing that was in the way.
        last: Box<str>,
    },
    /// The producer as a whole cannot go on: no right to be idempotent, or a broker too old.
    #[error("the producer cannot go on: {} [{code}]", code.sentence())]
    Fatal {
        /// Why.
        code: ErrorCode,
    },
    /// It was not even taken: what interceptors are told of records that were refused.
    #[error(transparent)]
    NotSent(Box<SendError>),
    /// The producer was closed before the record was delivered.
    #[error("the producer was closed before the record was delivered")]
    Closed {
        /// Whether it may lie in the log all the same.
        maybe_written: bool,
    },
}

impl ProduceError {
    /// Whether the record may lie in the log although it failed.
    pub fn maybe_written(&self) -> bool {
        match self {
            Self::Refused { maybe_written, .. }
            | Self::TimedOut { maybe_written, .. }
            | Self::Closed { maybe_written } => *maybe_written,
            Self::Fatal { .. } | Self::NotSent(_) => false,
        }
    }

    /// Kafka's code, where a broker gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } | Self::Fatal { code } => Some(*code),
            Self::TimedOut { .. } | Self::Closed { .. } | Self::NotSent(_) => None,
        }
    }
}

/// What a send that waits for its end can meet.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The record was not taken.
    #[error(transparent)]
    NotSent(#[from] SendError),
    /// It was, and was not delivered.
    #[error(transparent)]
    NotDelivered(#[from] ProduceError),
}
