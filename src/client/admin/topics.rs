//! Topics: listed, described, created, deleted, given more partitions.
//!
//! Shell. Owns these calls and their values. Source: KIP-4, KIP-195 (more partitions), KIP-516 (ids), KIP-599.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ConfigEntry, ConfigSource, ItemError, Session, owned};
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::ErrorCode;
use crate::protocol::admin::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopic,
    DeleteTopicsRequest, MetadataRequest, MetadataRequestTopic, MetadataTopic,
};
use crate::protocol::operator::{CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic};
use crate::types::TopicId;

/// A topic in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicListing {
    /// Its name.
    pub name: String,
    /// As Kafka prints it; `None` from old brokers.
    pub id: Option<String>,
    /// One of the cluster's own.
    pub internal: bool,
    /// How many.
    pub partitions: usize,
    /// Of its first partition.
    pub replication_factor: usize,
}

/// A topic with its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// As Kafka prints it; `None` from old brokers.
    pub id: Option<String>,
    /// One of the cluster's own.
    pub internal: bool,
    /// By number; empty with an error.
    pub partitions: Vec<PartitionDescription>,
    /// Why it is not described.
    pub error: Option<ItemError>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionDescription {
    /// Its number.
    pub partition: i32,
    /// `None` while there is none.
    pub leader: Option<i32>,
    /// `None` from old brokers.
    pub leader_epoch: Option<i32>,
    /// Who holds it, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Which of them are in sync.
    pub in_sync: Vec<i32>,
    /// Which of them are away.
    pub offline: Vec<i32>,
}

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// `None`: the broker's `num.partitions`, or as `assignments` say.
    pub partitions: Option<i32>,
    /// `None`: the broker's `default.replication.factor`, or as `assignments` say.
    pub replication_factor: Option<i16>,
    /// Brokers of each partition, the preferred leader first; empty: the broker places them.
    pub assignments: BTreeMap<i32, Vec<i32>>,
    /// Overrides.
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    /// With the broker's defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// With so many partitions.
    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = Some(count);
        self
    }

    /// With so many replicas of each.
    #[must_use]
    pub fn replication_factor(mut self, count: i16) -> Self {
        self.replication_factor = Some(count);
        self
    }

    /// With that override.
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((key.into(), value.into()));
        self
    }
}

/// What became of a topic to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CreatedTopic {
    /// Its name.
    pub name: String,
    /// As Kafka prints it; `None` with an error, when it was only checked, or from old brokers.
    pub id: Option<String>,
    /// `None` where the broker does not tell.
    pub partitions: Option<i32>,
    /// `None` where the broker does not tell.
    pub replication_factor: Option<i16>,
    /// The settings in force; empty where the broker does not tell.
    pub configs: Vec<ConfigEntry>,
    /// Why it was not created.
    pub error: Option<ItemError>,
}

/// What became of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicOutcome {
    /// Its name.
    pub name: String,
    /// Why nothing was done.
    pub error: Option<ItemError>,
}

/// More partitions for a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// How many there shall be, old ones included.
    pub total: i32,
    /// Brokers of each new partition, in order; `None`: the broker places them.
    pub assignments: Option<Vec<Vec<i32>>>,
}

fn printed(id: TopicId) -> Option<String> {
    (id != TopicId::ZERO).then(|| id.to_string())
}

async fn ask_metadata(
    session: &Session,
    what: &str,
    names: Option<&[String]>,
) -> Result<Vec<TopicDescription>, ClientError> {
    let named = |names: &[String]| {
        let topic = |name: &String| MetadataRequestTopic { name: Some(name.clone().into()), ..Default::default() };
        names.iter().map(topic).collect()
    };
    let request = MetadataRequest { topics: names.map(named), allow_auto_topic_creation: false, ..Default::default() };
    session
        .retrying(what, async || {
            let reply = session.ask(Target::Any, &request).await?;
            let answer = reply.read::<MetadataRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, None));
            }
            Ok(answer.topics.iter().map(description).collect())
        })
        .await
}

fn description(topic: &MetadataTopic<'_>) -> TopicDescription {
    let some = |number: i32| (number >= 0).then_some(number);
    let partitions = topic.partitions.iter().map(|one| PartitionDescription {
        partition: one.partition_index,
        leader: some(one.leader_id),
        leader_epoch: some(one.leader_epoch),
        replicas: one.replica_nodes.clone(),
        in_sync: one.isr_nodes.clone(),
        offline: one.offline_replicas.clone(),
    });
    let mut partitions: Vec<_> = partitions.collect();
    partitions.sort_by_key(|one| one.partition);
    TopicDescription {
        name: owned(&topic.name).unwrap_or_default(),
        id: printed(topic.topic_id),
        internal: topic.is_internal,
        partitions,
        error: ItemError::of(topic.error_code, None),
    }
}

pub(super) async fn list_topics(session: Session, internal: bool) -> Result<Vec<TopicListing>, ClientError> {
    let mut described = ask_metadata(&session, "listing topics", None).await?;
    described.retain(|topic| internal || !topic.internal);
    described.sort_by(|a, b| a.name.cmp(&b.name));
    let listing = |topic: TopicDescription| TopicListing {
        partitions: topic.partitions.len(),
        replication_factor: topic.partitions.first().map_or(0, |one| one.replicas.len()),
        name: topic.name,
        id: topic.id,
        internal: topic.internal,
    };
    Ok(described.into_iter().map(listing).collect())
}

pub(super) async fn describe_topics(
    session: Session,
    names: Vec<String>,
) -> Result<Vec<TopicDescription>, ClientError> {
    if names.is_empty() {
        let mut described = ask_metadata(&session, "describing topics", None).await?;
        described.sort_by(|a, b| a.name.cmp(&b.name));
        return Ok(described);
    }
    let mut described = ask_metadata(&session, "describing topics", Some(&names)).await?;
    let place = |name: &str| names.iter().position(|asked| asked == name).unwrap_or(usize::MAX);
    described.sort_by_key(|topic| place(&topic.name));
    Ok(described)
}

pub(super) async fn create_topics(
    session: Session,
    topics: Vec<NewTopic>,
    validate_only: bool,
) -> Result<Vec<CreatedTopic>, ClientError> {
    let what = if validate_only { "checking topics to create" } else { "creating topics" };
    let topic = |topic: &NewTopic| {
        let placed = !topic.assignments.is_empty();
        CreatableTopic {
            name: topic.name.clone().into(),
            num_partitions: topic.partitions.filter(|_| !placed).unwrap_or(-1),
            replication_factor: topic.replication_factor.filter(|_| !placed).unwrap_or(-1),
            assignments: topic
                .assignments
                .iter()
                .map(|(partition_index, broker_ids)| CreatableReplicaAssignment {
                    partition_index: *partition_index,
                    broker_ids: broker_ids.clone(),
                })
                .collect(),
            configs: topic
                .configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: name.clone().into(),
                    value: Some(value.clone().into()),
                })
                .collect(),
        }
    };
    session
        .retrying(what, async || {
            let request = CreateTopicsRequest {
                topics: topics.iter().map(topic).collect(),
                timeout_ms: session.left_ms(),
                validate_only,
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<CreateTopicsRequest<'_>>()?;
            not_controller(&session, what, answer.topics.iter().map(|one| one.error_code))?;
            let created = answer.topics.iter().map(|one| CreatedTopic {
                name: one.name.to_string(),
                id: printed(one.topic_id),
                partitions: (one.num_partitions >= 0).then_some(one.num_partitions),
                replication_factor: (one.replication_factor >= 0).then_some(one.replication_factor),
                configs: one
                    .configs
                    .iter()
                    .flatten()
                    .map(|config| ConfigEntry {
                        name: config.name.to_string(),
                        value: owned(&config.value),
                        read_only: config.read_only,
                        sensitive: config.is_sensitive,
                        source: ConfigSource::from_number(config.config_source),
                        kind: None,
                        synonyms: Vec::new(),
                        documentation: None,
                    })
                    .collect(),
                error: ItemError::of(one.error_code, one.error_message.as_deref()),
            });
            Ok(created.collect())
        })
        .await
}

/// One NOT_CONTROLLER means all of them: the controller has moved.
pub(super) fn not_controller(
    session: &Session,
    what: &str,
    mut codes: impl Iterator<Item = ErrorCode>,
) -> Result<(), ClientError> {
    match codes.find(|code| *code == ErrorCode::NOT_CONTROLLER) {
        Some(code) => Err(session.refused(what, code, None)),
        None => Ok(()),
    }
}

pub(super) async fn delete_topics(session: Session, names: Vec<String>) -> Result<Vec<TopicOutcome>, ClientError> {
    let what = "deleting topics";
    session
        .retrying(what, async || {
            let request = DeleteTopicsRequest {
                topics: names
                    .iter()
                    .map(|name| DeleteTopic { name: Some(name.as_str().into()), ..Default::default() })
                    .collect(),
                topic_names: names.iter().map(|name| name.as_str().into()).collect(),
                timeout_ms: session.left_ms(),
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<DeleteTopicsRequest<'_>>()?;
            not_controller(&session, what, answer.responses.iter().map(|one| one.error_code))?;
            let deleted = answer.responses.iter().map(|one| TopicOutcome {
                name: owned(&one.name).unwrap_or_default(),
                error: ItemError::of(one.error_code, one.error_message.as_deref()),
            });
            Ok(deleted.collect())
        })
        .await
}

pub(super) async fn create_partitions(
    session: Session,
    topics: Vec<NewPartitions>,
    validate_only: bool,
) -> Result<Vec<TopicOutcome>, ClientError> {
    let what = if validate_only { "checking partitions to add" } else { "adding partitions" };
    let assignment = |broker_ids: &Vec<i32>| CreatePartitionsAssignment { broker_ids: broker_ids.clone() };
    session
        .retrying(what, async || {
            let request = CreatePartitionsRequest {
                topics: topics
                    .iter()
                    .map(|topic| CreatePartitionsTopic {
                        name: topic.topic.as_str().into(),
                        count: topic.total,
                        assignments: topic.assignments.as_ref().map(|all| all.iter().map(assignment).collect()),
                    })
                    .collect(),
                timeout_ms: session.left_ms(),
                validate_only,
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<CreatePartitionsRequest<'_>>()?;
            not_controller(&session, what, answer.results.iter().map(|one| one.error_code))?;
            let added = answer.results.iter().map(|one| TopicOutcome {
                name: one.name.to_string(),
                error: ItemError::of(one.error_code, one.error_message.as_deref()),
            });
            Ok(added.collect())
        })
        .await
}
