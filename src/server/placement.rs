//! ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46), for a cluster of one broker.
//!
//! Shell. Owns what can be answered while every partition has one replica: its leader always leads, and a move is either to
//! where the partition is already, and done, or illegal. Source: KIP-183, KIP-455, KIP-460; Kafka's
//! `ReplicationControlManager`.

use std::collections::HashSet;

use crate::controller::image::Image;
use crate::protocol::placement::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ElectLeadersPartitionResult,
    ElectLeadersRequest, ElectLeadersResponse, ElectLeadersTopicResult, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, ReassignablePartition, ReassignablePartitionResult, ReassignableTopicResult,
};
use crate::protocol::{ErrorCode, Str};
use crate::server::connection::Context;
use crate::server::named::answer_each;
use crate::server::topics;
use crate::types::TopicName;

/// Kinds of elections: the preferred replica, or any.
const ELECTION_TYPES: [i8; 2] = [0, 1];

type Refusal = (ErrorCode, Option<Str<'static>>);

/// Without its name: that may have 32 KiB, and would stand in the answer of each of its partitions.
const UNKNOWN: Refusal = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(Str::Borrowed("there is no such partition")));

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
            _ if !known_type => (ErrorCode::INVALID_REQUEST, Some("there is no such kind of election".into())),
            Some(_) => (ErrorCode::ELECTION_NOT_NEEDED, None),
            None => UNKNOWN,
        };
        ElectLeadersPartitionResult { partition_id, error_code, error_message: message }
    };
    let mut replica_election_results = Vec::with_capacity(asked.len());
    for topic in asked {
        let results = answer_each(cx.server, &topic.partitions, |index| elected(&topic.topic, *index)).await;
        replica_election_results.push(ElectLeadersTopicResult { topic: topic.topic, partition_result: results });
    }
    ElectLeadersResponse { error_code: code_of_type(known_type), replica_election_results, ..Default::default() }
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
    let any_replication_factor = request.allow_replication_factor_change;
    let moved = |topic: &str, ReassignablePartition { partition_index, replicas, .. }: &ReassignablePartition| {
        let refusal = move_refused(&image, topic, *partition_index, replicas.as_deref(), any_replication_factor);
        let (error_code, error_message) = refusal.unwrap_or((ErrorCode::NONE, None));
        ReassignablePartitionResult { partition_index: *partition_index, error_code, error_message }
    };
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let partitions = answer_each(cx.server, &topic.partitions, |asked| moved(&topic.name, asked)).await;
        responses.push(ReassignableTopicResult { name: topic.name, partitions });
    }
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: any_replication_factor,
        responses,
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

/// Why a partition cannot be held by `replicas` (or, without any, why its move cannot be called off).
fn move_refused(
    image: &Image,
    topic: &str,
    index: i32,
    replicas: Option<&[i32]>,
    any_replication_factor: bool,
) -> Option<Refusal> {
    let Some((_, _, partition)) = topics::find(image, topic, index) else {
        return Some(UNKNOWN);
    };
    let Some(replicas) = replicas else {
        return Some((ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, None));
    };
    let illegal = |message: String| Some((ErrorCode::INVALID_REPLICA_ASSIGNMENT, Some(message.into())));
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
        return Some((ErrorCode::INVALID_REPLICATION_FACTOR, Some(message.into())));
    }
    None
}
