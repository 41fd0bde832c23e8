//! What admin commands ask for and what they are answered.
//!
//! Pure. Owns plain values only. Does not own the rules ([`super::plan`]) nor Kafka's numbers for the refusals: `server/errors` does.
//! Source: Kafka's CreateTopics and its neighbours; the sentences are what clients show.

use std::collections::BTreeMap;

use crate::types::TopicId;

/// One topic to create.
#[derive(Clone, Debug, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// −1 is the default.
    pub partitions: i32,
    /// −1 is the default.
    pub replication_factor: i16,
    /// By hand: partition and its brokers. Counts must be −1 then.
    pub assignment: Vec<(i32, Vec<i32>)>,
    /// Overrides; null is an error.
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic by name or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// What becomes of the overrides of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigEdits {
    /// They become these, and no others stay.
    Exactly(BTreeMap<String, String>),
    /// These change, each named once; the others stay.
    Each(Vec<(String, ConfigEdit)>),
}

/// What becomes of one override. Lists are edited here and not where the request came in: of two edits at once both stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigEdit {
    /// It gets this value.
    Set(String),
    /// It goes.
    Remove,
    /// These words, with commas between them, are added to the list.
    Append(String),
    /// They are taken from it.
    Subtract(String),
}

/// Why one item of a command was refused. Each variant is one of Kafka's codes, which only `server/errors` knows; the number here
/// is for the reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// 17
    #[error("{0}")]
    InvalidTopic(String),
    /// 36
    #[error("Topic '{0}' already exists.")]
    TopicExists(String),
    /// 37
    #[error("{0}")]
    InvalidPartitions(String),
    /// 38
    #[error("{0}")]
    InvalidReplicationFactor(String),
    /// 39
    #[error("{0}")]
    InvalidReplicaAssignment(String),
    /// 40
    #[error("{0}")]
    InvalidConfig(String),
    /// 42
    #[error("{0}")]
    InvalidRequest(String),
    /// 44
    #[error("{0}")]
    PolicyViolation(String),
    /// 3
    #[error("{0}")]
    UnknownTopic(String),
    /// 100
    #[error("{0}")]
    UnknownTopicId(String),
    /// 73
    #[error("Topic deletion is disabled.")]
    DeletionDisabled,
    /// 56: the metadata log failed.
    #[error("{0}")]
    Storage(String),
    /// The broker is shutting down.
    #[error("the controller is shutting down")]
    Gone,
}

/// A created (or only validated) topic, as answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id; zero when it was only validated.
    pub id: TopicId,
    /// How many.
    pub partitions: i32,
    /// How many.
    pub replication_factor: i16,
    /// Its overrides.
    pub configs: BTreeMap<String, String>,
}
