//! Messages that operators' tools and frameworks send, and ordinary producers and consumers do not.
//!
//! Pure. Owns CreatePartitions (37), AlterConfigs (33), IncrementalAlterConfigs (44), DeleteRecords (21),
//! OffsetForLeaderEpoch (23), DescribeLogDirs (35), DescribeTopicPartitions (75), DescribeAcls (29), DescribeProducers
//! (61). Source: KIP-195, KIP-133, KIP-339, KIP-107, KIP-320, KIP-113 and KIP-827, KIP-966, KIP-140, KIP-664.

use super::error::ErrorCode;
use super::notation::message;
use super::values::{Nullable, Str, Wire};
use super::wire::{Form, Reader, Result, Writer};
use crate::types::TopicId;

message! {
    /// Topics to give more partitions.
    pub struct CreatePartitionsRequest<'a> flexible 2 {
        topics: Vec<CreatePartitionsTopic<'a>>,
        timeout_ms: i32,
        validate_only: bool,
    }

    /// One topic of a [`CreatePartitionsRequest`].
    pub struct CreatePartitionsTopic<'a> {
        name: Str<'a>,
        /// How many there shall be, old ones included.
        count: i32,
        /// Null: the controller places them.
        assignments: Option<Vec<CreatePartitionsAssignment>> [0.., null 0..],
    }

    /// Brokers for one new partition, the preferred leader first.
    pub struct CreatePartitionsAssignment {
        broker_ids: Vec<i32>,
    }

    /// What was done.
    pub struct CreatePartitionsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        results: Vec<CreatePartitionsResult<'a>>,
    }

    /// One topic of a [`CreatePartitionsResponse`].
    pub struct CreatePartitionsResult<'a> {
        name: Str<'a>,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
    }

    /// Overrides that replace all those a resource has.
    pub struct AlterConfigsRequest<'a> flexible 2 {
        resources: Vec<AlterConfigsResource<'a>>,
        validate_only: bool,
    }

    /// One resource of an [`AlterConfigsRequest`].
    pub struct AlterConfigsResource<'a> {
        /// As in [`super::admin::DescribeConfigsResource`].
        resource_type: i8,
        resource_name: Str<'a>,
        configs: Vec<AlterableConfig<'a>>,
    }

    /// One override.
    pub struct AlterableConfig<'a> {
        name: Str<'a>,
        value: Option<Str<'a>> [0.., null 0..],
    }

    /// What was done.
    pub struct AlterConfigsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        responses: Vec<AlterConfigsResult<'a>>,
    }

    /// One resource of an [`AlterConfigsResponse`] or an [`IncrementalAlterConfigsResponse`].
    pub struct AlterConfigsResult<'a> {
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        resource_type: i8,
        resource_name: Str<'a>,
    }

    /// Changes to overrides, all or nothing for each resource.
    pub struct IncrementalAlterConfigsRequest<'a> flexible 1 {
        resources: Vec<IncrementalAlterConfigsResource<'a>>,
        validate_only: bool,
    }

    /// One resource of an [`IncrementalAlterConfigsRequest`].
    pub struct IncrementalAlterConfigsResource<'a> {
        resource_type: i8,
        resource_name: Str<'a>,
        configs: Vec<ConfigChange<'a>>,
    }

    /// One change.
    pub struct ConfigChange<'a> {
        name: Str<'a>,
        /// 0: set, 1: delete, 2: append to a list, 3: subtract from a list.
        config_operation: i8,
        value: Option<Str<'a>> [0.., null 0..],
    }

    /// What was done.
    pub struct IncrementalAlterConfigsResponse<'a> flexible 1 {
        throttle_time_ms: i32,
        responses: Vec<AlterConfigsResult<'a>>,
    }

    /// Records to delete from the front.
    pub struct DeleteRecordsRequest<'a> flexible 2 {
        topics: Vec<DeleteRecordsTopic<'a>>,
        timeout_ms: i32,
    }

    /// One topic of a [`DeleteRecordsRequest`].
    pub struct DeleteRecordsTopic<'a> {
        name: Str<'a>,
        partitions: Vec<DeleteRecordsPartition>,
    }

    /// One partition of a [`DeleteRecordsTopic`].
    pub struct DeleteRecordsPartition {
        partition_index: i32,
        /// Everything below goes; −1: everything below the high watermark.
        offset: i64,
    }

    /// Where partitions begin now.
    pub struct DeleteRecordsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        topics: Vec<DeleteRecordsTopicResult<'a>>,
    }

    /// One topic of a [`DeleteRecordsResponse`].
    pub struct DeleteRecordsTopicResult<'a> {
        name: Str<'a>,
        partitions: Vec<DeleteRecordsPartitionResult>,
    }

    /// One partition of a [`DeleteRecordsTopicResult`].
    pub struct DeleteRecordsPartitionResult {
        partition_index: i32,
        /// The smallest log start offset among live replicas; −1 with an error.
        low_watermark: i64,
        error_code: ErrorCode,
    }

    /// Asks where leader epochs end.
    pub struct OffsetForLeaderEpochRequest<'a> flexible 4 {
        /// −2: a consumer.
        replica_id: i32 [3..] = -2,
        topics: Vec<OffsetForLeaderTopic<'a>>,
    }

    /// One topic of an [`OffsetForLeaderEpochRequest`].
    pub struct OffsetForLeaderTopic<'a> {
        topic: Str<'a>,
        partitions: Vec<OffsetForLeaderPartition>,
    }

    /// One partition of an [`OffsetForLeaderTopic`].
    pub struct OffsetForLeaderPartition {
        partition: i32,
        /// −1: not to be checked.
        current_leader_epoch: i32 = -1,
        /// The epoch asked about.
        leader_epoch: i32,
    }

    /// Where leader epochs end.
    pub struct OffsetForLeaderEpochResponse<'a> flexible 4 {
        throttle_time_ms: i32,
        topics: Vec<OffsetForLeaderTopicResult<'a>>,
    }

    /// One topic of an [`OffsetForLeaderEpochResponse`].
    pub struct OffsetForLeaderTopicResult<'a> {
        topic: Str<'a>,
        partitions: Vec<EpochEndOffset>,
    }

    /// The largest epoch known that is not above the one asked about, and its end, exclusive.
    pub struct EpochEndOffset {
        error_code: ErrorCode,
        partition: i32,
        leader_epoch: i32 = -1,
        end_offset: i64 = -1,
    }

    /// Asks what lies on the broker's disks.
    pub struct DescribeLogDirsRequest<'a> flexible 2 {
        /// Null: all topics.
        topics: Option<Vec<DescribableLogDirTopic<'a>>> [0.., null 0..],
    }

    /// One topic of a [`DescribeLogDirsRequest`].
    pub struct DescribableLogDirTopic<'a> {
        topic: Str<'a>,
        partitions: Vec<i32>,
    }

    /// What lies on the broker's disks.
    pub struct DescribeLogDirsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        error_code: ErrorCode [3..],
        results: Vec<DescribeLogDirsResult<'a>>,
    }

    /// One log directory.
    pub struct DescribeLogDirsResult<'a> {
        error_code: ErrorCode,
        log_dir: Str<'a>,
        topics: Vec<DescribeLogDirsTopic<'a>>,
        /// Of the volume; −1: unknown.
        total_bytes: i64 [4..] = -1,
        usable_bytes: i64 [4..] = -1,
    }

    /// One topic in a log directory.
    pub struct DescribeLogDirsTopic<'a> {
        name: Str<'a>,
        partitions: Vec<DescribeLogDirsPartition>,
    }

    /// One partition in a log directory.
    pub struct DescribeLogDirsPartition {
        partition_index: i32,
        /// Bytes of its segments.
        partition_size: i64,
        /// How far the log end is behind the high watermark.
        offset_lag: i64,
        /// A copy on its way from another directory.
        is_future_key: bool,
    }

    /// Asks for topics page by page.
    pub struct DescribeTopicPartitionsRequest<'a> flexible 0 {
        topics: Vec<TopicRequest<'a>>,
        response_partition_limit: i32 = 2000,
        /// Where to begin; null: at the first.
        cursor: Option<Cursor<'a>> [0.., null 0..],
    }

    /// One topic of a [`DescribeTopicPartitionsRequest`].
    pub struct TopicRequest<'a> {
        name: Str<'a>,
    }

    /// The first partition of the next page.
    pub struct Cursor<'a> {
        topic_name: Str<'a>,
        partition_index: i32,
    }

    /// A page of topics.
    pub struct DescribeTopicPartitionsResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        topics: Vec<DescribeTopicPartitionsTopic<'a>>,
        /// Null: this was the last page.
        next_cursor: Option<Cursor<'a>> [0.., null 0..],
    }

    /// One topic of a [`DescribeTopicPartitionsResponse`].
    pub struct DescribeTopicPartitionsTopic<'a> {
        error_code: ErrorCode,
        name: Option<Str<'a>> [0.., null 0..],
        topic_id: TopicId,
        is_internal: bool,
        partitions: Vec<DescribeTopicPartitionsPartition>,
        /// `i32::MIN`: not known.
        topic_authorized_operations: i32 = i32::MIN,
    }

    /// One partition of a [`DescribeTopicPartitionsTopic`].
    pub struct DescribeTopicPartitionsPartition {
        error_code: ErrorCode,
        partition_index: i32,
        /// −1: none.
        leader_id: i32,
        leader_epoch: i32 = -1,
        replica_nodes: Vec<i32>,
        isr_nodes: Vec<i32>,
        eligible_leader_replicas: Option<Vec<i32>> [0.., null 0..],
        last_known_elr: Option<Vec<i32>> [0.., null 0..],
        offline_replicas: Vec<i32>,
    }

    /// Asks for access rules.
    pub struct DescribeAclsRequest<'a> flexible 2 {
        resource_type_filter: i8,
        resource_name_filter: Option<Str<'a>> [0.., null 0..],
        pattern_type_filter: i8 = 3,
        principal_filter: Option<Str<'a>> [0.., null 0..],
        host_filter: Option<Str<'a>> [0.., null 0..],
        operation: i8,
        permission_type: i8,
    }

    /// Access rules.
    pub struct DescribeAclsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        resources: Vec<DescribeAclsResource<'a>>,
    }

    /// The rules of one resource pattern.
    pub struct DescribeAclsResource<'a> {
        resource_type: i8,
        resource_name: Str<'a>,
        pattern_type: i8 = 3,
        acls: Vec<AclDescription<'a>>,
    }

    /// One rule.
    pub struct AclDescription<'a> {
        principal: Str<'a>,
        host: Str<'a>,
        operation: i8,
        permission_type: i8,
    }

    /// Asks which producers a partition knows.
    pub struct DescribeProducersRequest<'a> flexible 0 {
        topics: Vec<DescribeProducersTopic<'a>>,
    }

    /// One topic of a [`DescribeProducersRequest`].
    pub struct DescribeProducersTopic<'a> {
        name: Str<'a>,
        partition_indexes: Vec<i32>,
    }

    /// Which producers a partition knows.
    pub struct DescribeProducersResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        topics: Vec<DescribeProducersTopicResponse<'a>>,
    }

    /// One topic of a [`DescribeProducersResponse`].
    pub struct DescribeProducersTopicResponse<'a> {
        name: Str<'a>,
        partitions: Vec<DescribeProducersPartition<'a>>,
    }

    /// One partition of a [`DescribeProducersTopicResponse`].
    pub struct DescribeProducersPartition<'a> {
        partition_index: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        active_producers: Vec<ProducerState>,
    }

    /// One producer.
    pub struct ProducerState {
        producer_id: i64,
        producer_epoch: i32,
        last_sequence: i32 = -1,
        last_timestamp: i64 = -1,
        coordinator_epoch: i32,
        /// −1: no transaction is open.
        current_txn_start_offset: i64 = -1,
    }
}

/// Structures that may be null are preceded by a byte: −1 or 1.
impl<'a> Nullable<'a> for Cursor<'a> {
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
        if i8::decode(reader, form)? < 0 { Ok(None) } else { Self::decode(reader, form).map(Some) }
    }

    fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        match value {
            None => (-1i8).encode(writer, form),
            Some(cursor) => {
                1i8.encode(writer, form);
                cursor.encode(writer, form);
            }
        }
    }
}
