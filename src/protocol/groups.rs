//! Messages of consumer groups and their offsets.
//!
//! Pure. Owns FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), OffsetCommit (8),
//! OffsetFetch (9), DescribeGroups (15), ListGroups (16), DeleteGroups (42), OffsetDelete (47). A member's metadata and
//! assignment are the client's own bytes ([`Blob`]). Source: KIP-62, KIP-345 (static members), KIP-394 (two-step join),
//! KIP-699 and KIP-709 (several groups in one request), KIP-800 (reasons), KIP-814 (skipped assignment).

use super::error::ErrorCode;
use super::notation::{NEVER, message};
use super::values::{Blob, Str};

message! {
    /// Asks which broker coordinates a group or a transaction.
    pub struct FindCoordinatorRequest<'a> flexible 3 {
        /// Before version 4.
        key: Str<'a> [0..=3],
        /// 0: group, 1: transaction.
        key_type: i8 [1..],
        /// From version 4 on.
        coordinator_keys: Vec<Str<'a>> [4..],
    }

    /// Which broker: the plain fields before version 4, `coordinators` from there on.
    pub struct FindCoordinatorResponse<'a> flexible 3 {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..=3],
        error_message: Option<Str<'a>> [1..=3, null 1..=3],
        node_id: i32 [0..=3],
        host: Str<'a> [0..=3],
        port: i32 [0..=3],
        coordinators: Vec<Coordinator<'a>> [4..],
    }

    /// The answer for one key.
    pub struct Coordinator<'a> {
        key: Str<'a>,
        node_id: i32,
        host: Str<'a>,
        port: i32,
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [0.., null 0..],
    }

    /// A member enters, or comes back to a rebalance.
    pub struct JoinGroupRequest<'a> flexible 6 {
        group_id: Str<'a>,
        session_timeout_ms: i32,
        /// −1 in version 0: as the session timeout.
        rebalance_timeout_ms: i32 [1..] = -1,
        /// Empty the first time.
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [5.., null 5..],
        protocol_type: Str<'a>,
        /// The best liked first.
        protocols: Vec<JoinGroupProtocol<'a>>,
        reason: Option<Str<'a>> [8.., null 8..],
    }

    /// A way to assign partitions that a member knows.
    pub struct JoinGroupProtocol<'a> {
        name: Str<'a>,
        metadata: Blob<'a>,
    }

    /// The new generation.
    pub struct JoinGroupResponse<'a> flexible 6 {
        throttle_time_ms: i32 [2..],
        error_code: ErrorCode,
        generation_id: i32 = -1,
        protocol_type: Option<Str<'a>> [7.., null 7..],
        protocol_name: Option<Str<'a>> [0.., null 7..],
        leader: Str<'a>,
        skip_assignment: bool [9..],
        member_id: Str<'a>,
        /// For the leader only.
        members: Vec<JoinGroupMember<'a>>,
    }

    /// One member of a [`JoinGroupResponse`].
    pub struct JoinGroupMember<'a> {
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [5.., null 5..],
        metadata: Blob<'a>,
    }

    /// A member asks for its assignment; the leader brings everybody's.
    pub struct SyncGroupRequest<'a> flexible 4 {
        group_id: Str<'a>,
        generation_id: i32,
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [3.., null 3..],
        protocol_type: Option<Str<'a>> [5.., null 5..],
        protocol_name: Option<Str<'a>> [5.., null 5..],
        assignments: Vec<SyncGroupAssignment<'a>>,
    }

    /// One member's assignment.
    pub struct SyncGroupAssignment<'a> {
        member_id: Str<'a>,
        assignment: Blob<'a>,
    }

    /// The assignment.
    pub struct SyncGroupResponse<'a> flexible 4 {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode,
        protocol_type: Option<Str<'a>> [5.., null 5..],
        protocol_name: Option<Str<'a>> [5.., null 5..],
        assignment: Blob<'a>,
    }

    /// A member is alive.
    pub struct HeartbeatRequest<'a> flexible 4 {
        group_id: Str<'a>,
        generation_id: i32,
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [3.., null 3..],
    }

    /// Whether it has to rejoin.
    pub struct HeartbeatResponse flexible 4 {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode,
    }

    /// Members go.
    pub struct LeaveGroupRequest<'a> flexible 4 {
        group_id: Str<'a>,
        /// Before version 3.
        member_id: Str<'a> [0..=2],
        /// From version 3 on.
        members: Vec<LeavingMember<'a>> [3..],
    }

    /// One member of a [`LeaveGroupRequest`].
    pub struct LeavingMember<'a> {
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [0.., null 0..],
        reason: Option<Str<'a>> [5.., null 5..],
    }

    /// Who went.
    pub struct LeaveGroupResponse<'a> flexible 4 {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode,
        members: Vec<LeftMember<'a>> [3..],
    }

    /// One member of a [`LeaveGroupResponse`].
    pub struct LeftMember<'a> {
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [0.., null 0..],
        error_code: ErrorCode,
    }

    /// Offsets to remember.
    pub struct OffsetCommitRequest<'a> flexible 8 {
        group_id: Str<'a>,
        /// −1: from outside the group.
        generation_id_or_member_epoch: i32 = -1,
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [7.., null 7..],
        /// −1: the broker's `offsets.retention.minutes`.
        retention_time_ms: i64 [2..=4] = -1,
        topics: Vec<OffsetCommitTopic<'a>>,
    }

    /// One topic of an [`OffsetCommitRequest`].
    pub struct OffsetCommitTopic<'a> {
        name: Str<'a>,
        partitions: Vec<OffsetCommitPartition<'a>>,
    }

    /// One partition of an [`OffsetCommitTopic`].
    pub struct OffsetCommitPartition<'a> {
        partition_index: i32,
        committed_offset: i64,
        committed_leader_epoch: i32 [6..] = -1,
        committed_metadata: Option<Str<'a>> [0.., null 0..],
    }

    /// What was remembered.
    pub struct OffsetCommitResponse<'a> flexible 8 {
        throttle_time_ms: i32 [3..],
        topics: Vec<OffsetCommitTopicResponse<'a>>,
    }

    /// One topic of an [`OffsetCommitResponse`].
    pub struct OffsetCommitTopicResponse<'a> {
        name: Str<'a>,
        partitions: Vec<PartitionError>,
    }

    /// One partition and what became of it.
    pub struct PartitionError {
        partition_index: i32,
        error_code: ErrorCode,
    }

    /// Asks for committed offsets: one group before version 8, several from there on.
    pub struct OffsetFetchRequest<'a> flexible 6 {
        group_id: Str<'a> [0..=7],
        /// Null: all of the group's.
        topics: Option<Vec<OffsetFetchTopic<'a>>> [0..=7, null 2..=7],
        groups: Vec<OffsetFetchGroup<'a>> [8..],
        /// Refuse offsets of an open transaction.
        require_stable: bool [7..],
    }

    /// Partitions of one topic.
    pub struct OffsetFetchTopic<'a> {
        name: Str<'a>,
        partition_indexes: Vec<i32>,
    }

    /// One group of an [`OffsetFetchRequest`].
    pub struct OffsetFetchGroup<'a> {
        group_id: Str<'a>,
        member_id: Option<Str<'a>> [9.., null 9..],
        member_epoch: i32 [9..] = -1,
        /// Null: all of the group's.
        topics: Option<Vec<OffsetFetchTopic<'a>>> [0.., null 0..],
    }

    /// Committed offsets, in the shape of the request.
    pub struct OffsetFetchResponse<'a> flexible 6 {
        throttle_time_ms: i32 [3..],
        topics: Vec<OffsetFetchTopicResponse<'a>> [0..=7],
        error_code: ErrorCode [2..=7],
        groups: Vec<OffsetFetchGroupResponse<'a>> [8..],
    }

    /// One topic of an answer.
    pub struct OffsetFetchTopicResponse<'a> {
        name: Str<'a>,
        partitions: Vec<OffsetFetchPartitionResponse<'a>>,
    }

    /// One committed offset.
    pub struct OffsetFetchPartitionResponse<'a> {
        partition_index: i32,
        /// −1: none, which is no error.
        committed_offset: i64,
        committed_leader_epoch: i32 [5..] = -1,
        metadata: Option<Str<'a>> [0.., null 0..],
        error_code: ErrorCode,
    }

    /// One group of an [`OffsetFetchResponse`].
    pub struct OffsetFetchGroupResponse<'a> {
        group_id: Str<'a>,
        topics: Vec<OffsetFetchTopicResponse<'a>>,
        error_code: ErrorCode,
    }

    /// Asks what groups are made of.
    pub struct DescribeGroupsRequest<'a> flexible 5 {
        groups: Vec<Str<'a>>,
        include_authorized_operations: bool [3..],
    }

    /// What groups are made of.
    pub struct DescribeGroupsResponse<'a> flexible 5 {
        throttle_time_ms: i32 [1..],
        groups: Vec<DescribedGroup<'a>>,
    }

    /// One group of a [`DescribeGroupsResponse`].
    pub struct DescribedGroup<'a> {
        error_code: ErrorCode,
        error_message: Option<Str<'a>> [6.., null 6..],
        group_id: Str<'a>,
        group_state: Str<'a>,
        protocol_type: Str<'a>,
        /// The name of the protocol in force.
        protocol_data: Str<'a>,
        members: Vec<DescribedGroupMember<'a>>,
        /// `i32::MIN`: not asked for.
        authorized_operations: i32 [3..] = i32::MIN,
    }

    /// One member of a [`DescribedGroup`].
    pub struct DescribedGroupMember<'a> {
        member_id: Str<'a>,
        group_instance_id: Option<Str<'a>> [4.., null 4..],
        client_id: Str<'a>,
        client_host: Str<'a>,
        member_metadata: Blob<'a>,
        member_assignment: Blob<'a>,
    }

    /// Asks which groups there are; an empty filter lets all pass.
    pub struct ListGroupsRequest<'a> flexible 3 {
        states_filter: Vec<Str<'a>> [4..],
        types_filter: Vec<Str<'a>> [5..],
    }

    /// The groups this broker coordinates.
    pub struct ListGroupsResponse<'a> flexible 3 {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode,
        groups: Vec<ListedGroup<'a>>,
    }

    /// One group of a [`ListGroupsResponse`].
    pub struct ListedGroup<'a> {
        group_id: Str<'a>,
        protocol_type: Str<'a>,
        group_state: Str<'a> [4..],
        group_type: Str<'a> [5..],
    }

    /// Groups to delete.
    pub struct DeleteGroupsRequest<'a> flexible 2 {
        groups_names: Vec<Str<'a>>,
    }

    /// What was deleted.
    pub struct DeleteGroupsResponse<'a> flexible 2 {
        throttle_time_ms: i32,
        results: Vec<DeletableGroupResult<'a>>,
    }

    /// One group of a [`DeleteGroupsResponse`].
    pub struct DeletableGroupResult<'a> {
        group_id: Str<'a>,
        error_code: ErrorCode,
    }

    /// Committed offsets to forget.
    pub struct OffsetDeleteRequest<'a> flexible NEVER {
        group_id: Str<'a>,
        topics: Vec<OffsetDeleteTopic<'a>>,
    }

    /// One topic of an [`OffsetDeleteRequest`].
    pub struct OffsetDeleteTopic<'a> {
        name: Str<'a>,
        partitions: Vec<i32>,
    }

    /// What was forgotten.
    pub struct OffsetDeleteResponse<'a> flexible NEVER {
        error_code: ErrorCode,
        throttle_time_ms: i32,
        topics: Vec<OffsetDeleteTopicResponse<'a>>,
    }

    /// One topic of an [`OffsetDeleteResponse`].
    pub struct OffsetDeleteTopicResponse<'a> {
        name: Str<'a>,
        partitions: Vec<PartitionError>,
    }
}
