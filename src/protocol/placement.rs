//! Messages about who leads a partition and who holds it.
//!
//! Pure. Owns ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46). Source: KIP-183 and
//! KIP-460, KIP-455, KIP-860.

use super::error::ErrorCode;
use super::notation::message;
use super::values::Str;

message! {
    /// Partitions whose leader shall be elected.
    pub struct ElectLeadersRequest<'a> flexible 2 {
        /// 0: the preferred replica, 1: any, in sync or not.
        election_type: i8 [1..],
        /// Null: all.
        topic_partitions: Option<Vec<ElectLeadersTopic<'a>>> [0.., null 0..],
        timeout_ms: i32 = 60_000,
    }

    /// One topic of an [`ElectLeadersRequest`].
    pub struct ElectLeadersTopic<'a> {
        topic: Str<'a>,
        partitions: Vec<i32>,
    }

    /// How the elections went.
    pub struct ElectLeadersResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        error_code: ErrorCode [1..],
        replica_election_results: Vec<ElectLeadersTopicResult<'a>>,
    }

    /// One topic of an [`ElectLeadersResponse`].
    pub struct ElectLeadersTopicResult<'a> {
        topic: Str<'a>,
        partition_result: Vec<ElectLeadersPartitionResult<'a>>,
    }

    /// One partition of an [`ElectLeadersTopicResult`].
    pub struct ElectLeadersPartitionResult<'a> {
        partition_id: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
    }

    /// Partitions to move to other brokers.
    pub struct AlterPartitionReassignmentsRequest<'a> flexible 0 {
        timeout_ms: i32 = 60_000,
        allow_replication_factor_change: bool [1..] = true,
        topics: Vec<ReassignableTopic<'a>>,
    }

    /// One topic of an [`AlterPartitionReassignmentsRequest`].
    pub struct ReassignableTopic<'a> {
        name: Str<'a>,
        partitions: Vec<ReassignablePartition>,
    }

    /// One partition of a [`ReassignableTopic`].
    pub struct ReassignablePartition {
        partition_index: i32,
        /// Null: the move that is under way is called off.
        replicas: Option<Vec<i32>> [0.., null 0..],
    }

    /// Which moves began.
    pub struct AlterPartitionReassignmentsResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        allow_replication_factor_change: bool [1..] = true,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        responses: Vec<ReassignableTopicResult<'a>>,
    }

    /// One topic of an [`AlterPartitionReassignmentsResponse`].
    pub struct ReassignableTopicResult<'a> {
        name: Str<'a>,
        partitions: Vec<ReassignablePartitionResult<'a>>,
    }

    /// One partition of a [`ReassignableTopicResult`].
    pub struct ReassignablePartitionResult<'a> {
        partition_index: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
    }

    /// Asks which moves are under way.
    pub struct ListPartitionReassignmentsRequest<'a> flexible 0 {
        timeout_ms: i32 = 60_000,
        /// Null: all.
        topics: Option<Vec<ListReassignmentsTopic<'a>>> [0.., null 0..],
    }

    /// One topic of a [`ListPartitionReassignmentsRequest`].
    pub struct ListReassignmentsTopic<'a> {
        name: Str<'a>,
        partition_indexes: Vec<i32>,
    }

    /// Which moves are under way.
    pub struct ListPartitionReassignmentsResponse<'a> flexible 0 {
        throttle_time_ms: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
        topics: Vec<OngoingTopicReassignment<'a>>,
    }

    /// One topic of a [`ListPartitionReassignmentsResponse`].
    pub struct OngoingTopicReassignment<'a> {
        name: Str<'a>,
        partitions: Vec<OngoingPartitionReassignment>,
    }

    /// One partition of an [`OngoingTopicReassignment`].
    pub struct OngoingPartitionReassignment {
        partition_index: i32,
        replicas: Vec<i32>,
        adding_replicas: Vec<i32>,
        removing_replicas: Vec<i32>,
    }
}
