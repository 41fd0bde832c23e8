//! Who leads partitions and who holds them: elections and moves.
//!
//! Shell. Owns these calls and their values. Source: KIP-183 and KIP-460 (elections), KIP-455 (moves).

use serde::Serialize;

use super::{ItemError, PartitionOutcome, Session, by_topic};
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::ErrorCode;
use crate::protocol::placement::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, ElectLeadersTopic, ListPartitionReassignmentsRequest,
    ListReassignmentsTopic, ReassignablePartition, ReassignableTopic,
};

/// Who may win.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// The first of the replicas, where it is in sync.
    Preferred,
    /// Any replica, in sync or not: records may be lost.
    Unclean,
}

/// A move to begin or to call off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReassignmentPlan {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// Who shall hold it, the preferred leader first; `None` calls off the move that is under way.
    pub replicas: Option<Vec<i32>>,
}

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reassignment {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// Who holds it now.
    pub replicas: Vec<i32>,
    /// Who will.
    pub adding: Vec<i32>,
    /// Who will not any more.
    pub removing: Vec<i32>,
}

pub(super) async fn elect_leaders(
    session: Session,
    election: Election,
    partitions: Option<Vec<(String, i32)>>,
) -> Result<Vec<PartitionOutcome>, ClientError> {
    let what = "electing leaders";
    let topics = partitions.map(by_topic);
    let topic = |(topic, partitions): &(String, Vec<i32>)| ElectLeadersTopic {
        topic: topic.clone().into(),
        partitions: partitions.clone(),
    };
    session
        .retrying(what, async || {
            let request = ElectLeadersRequest {
                election_type: i8::from(election == Election::Unclean),
                topic_partitions: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
                timeout_ms: session.left_ms(),
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<ElectLeadersRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, None));
            }
            let outcomes = answer.replica_election_results.iter().flat_map(|topic| {
                topic.partition_result.iter().map(|one| PartitionOutcome {
                    topic: topic.topic.to_string(),
                    partition: one.partition_id,
                    error: ItemError::of(one.error_code, one.error_message.as_deref()).map(|error| ItemError {
                        // It would be no more needed the next time.
                        retriable: error.retriable && one.error_code != ErrorCode::ELECTION_NOT_NEEDED,
                        ..error
                    }),
                })
            });
            Ok(outcomes.collect())
        })
        .await
}

pub(super) async fn alter_reassignments(
    session: Session,
    plans: Vec<ReassignmentPlan>,
) -> Result<Vec<PartitionOutcome>, ClientError> {
    let what = "moving partitions";
    let topics = by_topic(plans.into_iter().map(|plan| (plan.topic, (plan.partition, plan.replicas))));
    session
        .retrying(what, async || {
            let request = AlterPartitionReassignmentsRequest {
                timeout_ms: session.left_ms(),
                topics: topics
                    .iter()
                    .map(|(name, partitions)| ReassignableTopic {
                        name: name.as_str().into(),
                        partitions: partitions
                            .iter()
                            .map(|(partition_index, replicas)| ReassignablePartition {
                                partition_index: *partition_index,
                                replicas: replicas.clone(),
                            })
                            .collect(),
                    })
                    .collect(),
                ..Default::default()
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<AlterPartitionReassignmentsRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, answer.error_message.as_deref()));
            }
            let outcomes = answer.responses.iter().flat_map(|topic| {
                topic.partitions.iter().map(|one| PartitionOutcome {
                    topic: topic.name.to_string(),
                    partition: one.partition_index,
                    error: ItemError::of(one.error_code, one.error_message.as_deref()),
                })
            });
            Ok(outcomes.collect())
        })
        .await
}

pub(super) async fn list_reassignments(
    session: Session,
    partitions: Option<Vec<(String, i32)>>,
) -> Result<Vec<Reassignment>, ClientError> {
    let what = "listing moves of partitions";
    let topics = partitions.map(by_topic);
    let topic = |(name, partitions): &(String, Vec<i32>)| ListReassignmentsTopic {
        name: name.clone().into(),
        partition_indexes: partitions.clone(),
    };
    session
        .retrying(what, async || {
            let request = ListPartitionReassignmentsRequest {
                timeout_ms: session.left_ms(),
                topics: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
            };
            let reply = session.ask(Target::Controller, &request).await?;
            let answer = reply.read::<ListPartitionReassignmentsRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, answer.error_message.as_deref()));
            }
            let moves = answer.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|one| Reassignment {
                    topic: topic.name.to_string(),
                    partition: one.partition_index,
                    replicas: one.replicas.clone(),
                    adding: one.adding_replicas.clone(),
                    removing: one.removing_replicas.clone(),
                })
            });
            let mut moves: Vec<_> = moves.collect();
            moves.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
            Ok(moves)
        })
        .await
}
