//! Which handler serves which API.
//!
//! Shell. Owns the table, nothing else. Always: an API that [`ApiKey::served`] lets in has a handler here; the compiler sees
//! to it that every key of the table has a row. Produce is not here: its batches leave the frame before it is answered.

use crate::protocol::wire::{Form, Result as WireResult};
use crate::protocol::{ApiKey, Message, Reader};
use crate::rt::net::Reply;
use crate::server::connection::{Context, Unserved};
use crate::server::{admin, fetch, group_offsets, groups, metadata, offsets, operator, placement, producer_ids};

/// What the arrays of a request may decode to: half a million names or indexes of partitions. An answer takes some times as
/// much.
const REQUEST_DECODED_BYTES_MAX: usize = 16 << 20;

/// What an element of an array counts for at least: an index of four bytes is answered with as much as a name is. Not more,
/// so that a request may place a hundred thousand partitions on three brokers each.
const REQUEST_ELEMENT_BYTES_MIN: usize = 32;

/// Reads a body and lets be what follows it, as Kafka does: librdkafka 2.12 asks for the metadata of all topics with three
/// bytes too many.
pub(super) fn decode<'a, M: Message<'a>>(body: Reader<'a>, version: i16) -> WireResult<M> {
    let mut body = body.within(REQUEST_DECODED_BYTES_MAX, REQUEST_ELEMENT_BYTES_MIN);
    M::decode(&mut body, Form::new(version, M::FLEXIBLE_FROM))
}

/// Decodes the body of a request and answers it.
pub(super) async fn dispatch(cx: &Context<'_>, api: ApiKey, body: Reader<'_>) -> Result<Reply, Unserved> {
    /// Decodes the body, hands it to the handler and encodes what that gives back.
    macro_rules! answer {
        ($handler:path) => {{
            let request = decode(body, cx.version)?;
            cx.reply(&$handler(cx, request).await)
        }};
    }
    /// The same for handlers that may wait for minutes.
    macro_rules! answer_unless_gone {
        ($handler:path) => {{
            let request = decode(body, cx.version)?;
            cx.reply(&$handler(cx, request).await?)
        }};
    }
    Ok(match api {
        ApiKey::Fetch => fetch::fetch(cx, decode(body, cx.version)?).await?,
        ApiKey::ListOffsets => answer!(offsets::list_offsets),
        ApiKey::OffsetForLeaderEpoch => answer!(offsets::offset_for_leader_epoch),
        ApiKey::Metadata => answer!(metadata::metadata),
        ApiKey::ApiVersions => answer!(metadata::api_versions),
        ApiKey::DescribeCluster => answer!(metadata::describe_cluster),
        ApiKey::FindCoordinator => answer!(groups::find_coordinator),
        ApiKey::JoinGroup => answer_unless_gone!(groups::join_group),
        ApiKey::SyncGroup => answer_unless_gone!(groups::sync_group),
        ApiKey::Heartbeat => answer!(groups::heartbeat),
        ApiKey::LeaveGroup => answer!(groups::leave_group),
        ApiKey::DescribeGroups => answer!(groups::describe_groups),
        ApiKey::ListGroups => answer!(groups::list_groups),
        ApiKey::DeleteGroups => answer!(groups::delete_groups),
        ApiKey::OffsetCommit => answer!(group_offsets::offset_commit),
        ApiKey::OffsetFetch => answer!(group_offsets::offset_fetch),
        ApiKey::OffsetDelete => answer!(group_offsets::offset_delete),
        ApiKey::InitProducerId => answer!(producer_ids::init_producer_id),
        ApiKey::CreateTopics => answer!(admin::create_topics),
        ApiKey::DeleteTopics => answer!(admin::delete_topics),
        ApiKey::DescribeConfigs => answer!(admin::describe_configs),
        ApiKey::ListConfigResources => answer!(admin::list_config_resources),
        ApiKey::ElectLeaders => answer!(placement::elect_leaders),
        ApiKey::AlterPartitionReassignments => answer!(placement::alter_partition_reassignments),
        ApiKey::ListPartitionReassignments => answer!(placement::list_partition_reassignments),
        ApiKey::CreatePartitions => answer!(operator::create_partitions),
        ApiKey::AlterConfigs => answer!(operator::alter_configs),
        ApiKey::IncrementalAlterConfigs => answer!(operator::incremental_alter_configs),
        ApiKey::DeleteRecords => answer!(operator::delete_records),
        ApiKey::DescribeLogDirs => answer!(operator::describe_log_dirs),
        ApiKey::DescribeTopicPartitions => answer!(operator::describe_topic_partitions),
        ApiKey::DescribeProducers => answer!(operator::describe_producers),
        ApiKey::DescribeAcls => answer!(operator::describe_acls),
        ApiKey::Produce => unreachable!("its batches leave the frame before it comes here"),
    })
}
