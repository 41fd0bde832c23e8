//! ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46), for a cluster of one broker.
//!
//! Shell. Owns what can be answered while every partition has one replica: its leader always leads, and a move is either to
//! where the partition is already, and done, or illegal. Source: KIP-183, KIP-455, KIP-460; Kafka's
//! `ReplicationControlManager`.

use std::collections::HashSet;

use crate::controller::image::Image;
use crate::protocol::ErrorCode;
use crate::protocol::placement::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersPartitionResult,
    ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopicResult, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, ReassignablePartitionResult, ReassignableTopicResult,
};
use crate::server::connection::Context;
use crate::server::topics;
use crate::types::TopicName;

/// Kinds of elections: the preferred replica, or any.
const ELECTION_TYPES: [i8; 2] = [0, 1];

type Refusal = (ErrorCode, Option<String>);

/// Answers ElectLeaders. No partition needs one; asked for all, Kafka names every topic and in it those alone that do.
pub(super) async fn elect_leaders<'a>(cx: &Context<'_>, request: ElectLeadersRequest<'a>) -> ElectLeadersResponse<'a> {
    let image = cx.server.shard().image();
    let known_type = ELECTION_TYPES.contains(&request.election_type);
    let Some(asked) = request.topic_partitions else {
        let named =
            |name: &TopicName| ElectLeadersTopicResult { topic: name.clone().into(), partition_result: Vec::new() };
        let results = image.topics.keys().filter(|_| known_type).map(named).collect();
        return ElectLeadersResponse {
            error_code: code_of_type(known_type),
            replica_election_results: results,
            ..Default::default()
        };
    };
    let elected = |topic: &str, partition_id| {
        let (error_code, message) = match topics::find(&image, topic, partition_id) {
            _ if !known_type => (ErrorCode::INVALID_REQUEST, Some("there is no such kind of election".to_owned())),
            Some(_) => (ErrorCode::ELECTION_NOT_NEEDED, None),
            None => unknown(topic, partition_id),
        };
        ElectLeadersPartitionResult { partition_id, error_code, error_message: message.map(Into::into) }
    };
    let results = asked.into_iter().map(|topic| ElectLeadersTopicResult {
        partition_result: topic.partitions.iter().map(|index| elected(&topic.topic, *index)).collect(),
        topic: topic.topic,
    });
    ElectLeadersResponse {
        error_code: code_of_type(known_type),
        replica_election_results: results.collect(),
        ..Default::default()
    }
}

fn code_of_type(known: bool) -> ErrorCode {
    if known { ErrorCode::NONE } else { ErrorCode::INVALID_REQUEST }
}

/// Answers AlterPartitionReassignments.
pub(super) async fn alter_partition_reassignments<'a>(
    cx: &Context<'_>,
    request: AlterPartitionReassignmentsRequest<'a>,
) -> AlterPartitionReassignmentsResponse<'a> {
    let image = cx.server.shard().image();
    let moved = |topic: &str, partition_index, replicas: Option<&[i32]>| {
        let refusal = move_refused(&image, topic, partition_index, replicas, request.allow_replication_factor_change);
        let (error_code, message) = refusal.unwrap_or((ErrorCode::NONE, None));
        ReassignablePartitionResult { partition_index, error_code, error_message: message.map(Into::into) }
    };
    let responses = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter();
        ReassignableTopicResult {
            partitions: partitions
                .map(|asked| moved(&topic.name, asked.partition_index, asked.replicas.as_deref()))
                .collect(),
            name: topic.name,
        }
    });
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        responses: responses.collect(),
        ..Default::default()
    }
}

/// Answers ListPartitionReassignments: a move is done at once, so none is under way.
pub(super) async fn list_partition_reassignments(
    _: &Context<'_>,
    _: ListPartitionReassignmentsRequest<'_>,
) -> ListPartitionReassignmentsResponse<'static> {
    ListPartitionReassignmentsResponse::default()
}

fn unknown(topic: &str, partition: i32) -> Refusal {
    (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(format!("there is no partition {topic}-{partition}")))
}

/// Why a partition cannot be held by `replicas` (or, without any, why its move cannot be called off).
fn move_refused(
    image: &Image,
    topic: &str,
    index: i32,
    replicas: Option<&[i32]>,
    any_replication_factor: bool,
) -> Option<Refusal> {
    let Some((_, _, partition)) = topics::find(image, topic, index) else {
        return Some(unknown(topic, index));
    };
    let Some(replicas) = replicas else {
        return Some((ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, None));
    };
    let illegal = |message| Some((ErrorCode::INVALID_REPLICA_ASSIGNMENT, Some(message)));
    if replicas.is_empty() {
        return illegal("the list of replicas is empty".to_owned());
    }
    let mut seen = HashSet::new();
    for replica in replicas {
        if image.brokers.iter().all(|broker| broker.id.value() != *replica) {
            return illegal(format!("there is no broker {replica}"));
        }
        if !seen.insert(replica) {
            return illegal(format!("broker {replica} is given twice"));
        }
    }
    if !any_replication_factor && replicas.len() != partition.replicas.len() {
        let message = format!("the partition has {} replicas", partition.replicas.len());
        return Some((ErrorCode::INVALID_REPLICATION_FACTOR, Some(message)));
    }
    None
}
