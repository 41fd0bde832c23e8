//! Messages about the cluster, topics and settings that every client sends.
//!
//! Pure. Owns ApiVersions (18), Metadata (3), ListOffsets (2), InitProducerId (22), CreateTopics (19), DeleteTopics
//! (20), DescribeConfigs (32), DescribeCluster (60), ListConfigResources (74). The rarer ones of operators' tools are in
//! `operator` and `placement`. Source: KIP-35 (ApiVersions), KIP-4 (topics), KIP-516 (topic ids), KIP-584 (features),
//! KIP-700 (DescribeCluster), KIP-1142 (ListConfigResources).

use super::error::ErrorCode;
use super::notation::message;
use super::values::Str;
use crate::types::TopicId;

message! {
    /// Asks what is served. Answered in every version, see [`super::api_versions_downgrade`].
    pub struct ApiVersionsRequest<'a> flexible 3 {
        client_software_name: Str<'a> [3..],
        client_software_version: Str<'a> [3..],
    }

    /// What is served.
    pub struct ApiVersionsResponse<'a> flexible 3 {
        error_code: ErrorCode,
        api_keys: Vec<ApiVersion>,
        throttle_time_ms: i32 [1..],
    } tagged {
        /// Before version 4 without those of minimum 0: old clients fail on them.
        0 supported_features: Vec<SupportedFeature<'a>> [3..],
        /// −1: unknown, and clients ignore `finalized_features`.
        1 finalized_features_epoch: i64 [3..] = -1,
        2 finalized_features: Vec<FinalizedFeature<'a>> [3..],
        3 zk_migration_ready: bool [3..],
    }

    /// One API, both bounds inclusive.
    pub struct ApiVersion {
        api_key: i16,
        min_version: i16,
        max_version: i16,
    }

    /// A feature this broker could serve.
    pub struct SupportedFeature<'a> {
        name: Str<'a>,
        min_version: i16,
        max_version: i16,
    }

    /// A feature the cluster uses.
    pub struct FinalizedFeature<'a> {
        name: Str<'a>,
        max_version_level: i16,
        min_version_level: i16,
    }

    /// Asks for topics and the brokers that lead them.
    pub struct MetadataRequest<'a> flexible 9 {
        /// Null: all topics. In version 0 empty means all, too.
        topics: Option<Vec<MetadataRequestTopic<'a>>> [0.., null 1..],
        allow_auto_topic_creation: bool [4..] = true,
        include_cluster_authorized_operations: bool [8..=10],
        include_topic_authorized_operations: bool [8..],
    }

    /// A topic by name, or by id where the name is null.
    pub struct MetadataRequestTopic<'a> {
        topic_id: TopicId [10..],
        name: Option<Str<'a>> [0.., null 10..],
    }

    /// Brokers and topics.
    pub struct MetadataResponse<'a> flexible 9 {
        throttle_time_ms: i32 [3..],
        brokers: Vec<MetadataBroker<'a>>,
        cluster_id: Option<Str<'a>> [2.., null 2..],
        /// One of `brokers`, or some clients' admin calls fail.
        controller_id: i32 [1..] = -1,
        topics: Vec<MetadataTopic<'a>>,
        /// `i32::MIN`: not asked for.
        cluster_authorized_operations: i32 [8..=10] = i32::MIN,
        error_code: ErrorCode [13..],
    }

    /// One broker of a [`MetadataResponse`].
    pub struct MetadataBroker<'a> {
        node_id: i32,
        host: Str<'a>,
        port: i32,
        rack: Option<Str<'a>> [1.., null 1..],
    }

    /// One topic of a [`MetadataResponse`].
    pub struct MetadataTopic<'a> {
        error_code: ErrorCode,
        /// Null when asked by an id nobody knows.
        name: Option<Str<'a>> [0.., null 12..],
        topic_id: TopicId [10..],
        is_internal: bool [1..],
        partitions: Vec<MetadataPartition>,
        /// `i32::MIN`: not asked for.
        topic_authorized_operations: i32 [8..] = i32::MIN,
    }

    /// One partition of a [`MetadataTopic`].
    pub struct MetadataPartition {
        error_code: ErrorCode,
        partition_index: i32,
        /// −1: none.
        leader_id: i32,
        leader_epoch: i32 [7..] = -1,
        replica_nodes: Vec<i32>,
        isr_nodes: Vec<i32>,
        offline_replicas: Vec<i32> [5..],
    }

    /// Asks for offsets by time.
    pub struct ListOffsetsRequest<'a> flexible 6 {
        /// −1: a consumer, −2: a debugging one.
        replica_id: i32,
        /// 0: the high watermark bounds the answer, 1: the last stable offset.
        isolation_level: i8 [2..],
        topics: Vec<ListOffsetsTopic<'a>>,
        timeout_ms: i32 [10..],
    }

    /// One topic of a [`ListOffsetsRequest`].
    pub struct ListOffsetsTopic<'a> {
        name: Str<'a>,
        partitions: Vec<ListOffsetsPartition>,
    }

    /// One partition of a [`ListOffsetsTopic`].
    pub struct ListOffsetsPartition {
        partition_index: i32,
        /// −1: not to be checked.
        current_leader_epoch: i32 [4..] = -1,
        /// −1: latest, −2: earliest, −3: that of the largest timestamp, −4: earliest on this disk, −5: latest tiered.
        timestamp: i64,
    }

    /// Offsets found.
    pub struct ListOffsetsResponse<'a> flexible 6 {
        throttle_time_ms: i32 [2..],
        topics: Vec<ListOffsetsTopicResponse<'a>>,
    }

    /// One topic of a [`ListOffsetsResponse`].
    pub struct ListOffsetsTopicResponse<'a> {
        name: Str<'a>,
        partitions: Vec<ListOffsetsPartitionResponse>,
    }

    /// One partition of a [`ListOffsetsTopicResponse`].
    pub struct ListOffsetsPartitionResponse {
        partition_index: i32,
        error_code: ErrorCode,
        timestamp: i64 = -1,
        /// −1: none found.
        offset: i64 = -1,
        leader_epoch: i32 [4..] = -1,
    }

    /// Asks for a producer id.
    pub struct InitProducerIdRequest<'a> flexible 2 {
        /// Null: idempotence without transactions.
        transactional_id: Option<Str<'a>> [0.., null 0..],
        transaction_timeout_ms: i32,
        /// The id held so far, to raise its epoch; −1: none.
        producer_id: i64 [3..] = -1,
        producer_epoch: i16 [3..] = -1,
    }

    /// A producer id.
    pub struct InitProducerIdResponse flexible 2 {
        throttle_time_ms: i32,
        error_code: ErrorCode,
        producer_id: i64 = -1,
        producer_epoch: i16,
    }

    /// Topics to create.
    pub struct CreateTopicsRequest<'a> flexible 5 {
        topics: Vec<CreatableTopic<'a>>,
        timeout_ms: i32 = 60_000,
        /// Check everything, write nothing.
        validate_only: bool,
    }

    /// One topic of a [`CreateTopicsRequest`].
    pub struct CreatableTopic<'a> {
        name: Str<'a>,
        /// −1: the broker's default, or `assignments` says it.
        num_partitions: i32,
        /// −1: likewise.
        replication_factor: i16,
        assignments: Vec<CreatableReplicaAssignment>,
        configs: Vec<CreatableTopicConfig<'a>>,
    }

    /// Brokers for one partition, the preferred leader first.
    pub struct CreatableReplicaAssignment {
        partition_index: i32,
        broker_ids: Vec<i32>,
    }

    /// One override of a topic to create.
    pub struct CreatableTopicConfig<'a> {
        name: Str<'a>,
        value: Option<Str<'a>> [0.., null 0..],
    }

    /// What was created.
    pub struct CreateTopicsResponse<'a> flexible 5 {
        throttle_time_ms: i32,
        topics: Vec<CreatableTopicResult<'a>>,
    }

    /// One topic of a [`CreateTopicsResponse`].
    pub struct CreatableTopicResult<'a> {
        name: Str<'a>,
        topic_id: TopicId [7..],
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        num_partitions: i32 [5..] = -1,
        replication_factor: i16 [5..] = -1,
        /// Null when the topic was not created.
        configs: Option<Vec<CreatableTopicResultConfig<'a>>> [5.., null 5..],
    } tagged {
        /// Why `configs` is missing.
        0 topic_config_error_code: ErrorCode [5..],
    }

    /// One setting in force for a created topic.
    pub struct CreatableTopicResultConfig<'a> {
        name: Str<'a>,
        value: Option<Str<'a>> [0.., null 0..],
        read_only: bool,
        /// As in [`DescribedConfig`].
        config_source: i8 = -1,
        is_sensitive: bool,
    }

    /// Topics to delete.
    pub struct DeleteTopicsRequest<'a> flexible 4 {
        /// From version 6 on.
        topics: Vec<DeleteTopic<'a>> [6..],
        /// Before version 6.
        topic_names: Vec<Str<'a>> [0..=5],
        timeout_ms: i32,
    }

    /// A topic by name, or by id where the name is null.
    pub struct DeleteTopic<'a> {
        name: Option<Str<'a>> [0.., null 0..],
        topic_id: TopicId,
    }

    /// What was deleted.
    pub struct DeleteTopicsResponse<'a> flexible 4 {
        throttle_time_ms: i32,
        responses: Vec<DeletableTopicResult<'a>>,
    }

    /// One topic of a [`DeleteTopicsResponse`].
    pub struct DeletableTopicResult<'a> {
        /// Null when asked by an id nobody knows.
        name: Option<Str<'a>> [0.., null 6..],
        topic_id: TopicId [6..],
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [5.., null 5..],
    }

    /// Asks for settings.
    pub struct DescribeConfigsRequest<'a> flexible 4 {
        resources: Vec<DescribeConfigsResource<'a>>,
        include_synonyms: bool,
        include_documentation: bool [3..],
    }

    /// One resource of a [`DescribeConfigsRequest`].
    pub struct DescribeConfigsResource<'a> {
        /// 2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group.
        resource_type: i8,
        resource_name: Str<'a>,
        /// Null: all.
        configuration_keys: Option<Vec<Str<'a>>> [0.., null 0..],
    }

    /// Settings.
    pub struct DescribeConfigsResponse<'a> flexible 4 {
        throttle_time_ms: i32,
        results: Vec<DescribeConfigsResult<'a>>,
    }

    /// One resource of a [`DescribeConfigsResponse`].
    pub struct DescribeConfigsResult<'a> {
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        resource_type: i8,
        resource_name: Str<'a>,
        configs: Vec<DescribedConfig<'a>>,
    }

    /// One setting.
    pub struct DescribedConfig<'a> {
        name: Str<'a>,
        /// Null if unset or sensitive.
        value: Option<Str<'a>> [0.., null 0..],
        read_only: bool,
        /// 1: topic, 2: broker, 3: all brokers, 4: the broker's file, 5: default, 6: logger, 7: client metrics, 8:
        /// group.
        config_source: i8 = -1,
        is_sensitive: bool,
        synonyms: Vec<ConfigSynonym<'a>>,
        /// 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class, 9: password.
        config_type: i8 [3..],
        documentation: Option<Str<'a>> [3.., null 3..],
    }

    /// Where else a setting's value could come from.
    pub struct ConfigSynonym<'a> {
        name: Str<'a>,
        value: Option<Str<'a>> [0.., null 0..],
        /// As in [`DescribedConfig`].
        source: i8,
    }

    /// Asks what has settings.
    pub struct ListConfigResourcesRequest flexible 0 {
        /// As in [`DescribeConfigsResource`]; empty: all.
        resource_types: Vec<i8> [1..],
    }

    /// What has settings.
    pub struct ListConfigResourcesResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        error_code: ErrorCode,
        config_resources: Vec<ConfigResource<'a>>,
    }

    /// One resource of a [`ListConfigResourcesResponse`].
    pub struct ConfigResource<'a> {
        resource_name: Str<'a>,
        resource_type: i8 [1..] = 16,
    }

    /// Asks who is there.
    pub struct DescribeClusterRequest flexible 0 {
        include_cluster_authorized_operations: bool,
        /// 1: brokers, 2: controllers.
        endpoint_type: i8 [1..] = 1,
        include_fenced_brokers: bool [2..],
    }

    /// Who is there.
    pub struct DescribeClusterResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        endpoint_type: i8 [1..] = 1,
        cluster_id: Str<'a>,
        controller_id: i32 = -1,
        brokers: Vec<DescribeClusterBroker<'a>>,
        /// `i32::MIN`: not asked for.
        cluster_authorized_operations: i32 = i32::MIN,
    }

    /// One broker of a [`DescribeClusterResponse`].
    pub struct DescribeClusterBroker<'a> {
        broker_id: i32,
        host: Str<'a>,
        port: i32,
        rack: Option<Str<'a>> [0.., null 0..],
        is_fenced: bool [2..],
    }
}
