//! Fetch (key 1): batches on their way out.
//!
//! Pure. Owns the two messages. The response announces each partition's records and leaves a cut for them
//! ([`super::wire::Encoded`]): the nth partition written gets the nth cut, and its bytes go from log to socket
//! untouched. Version 18 (a follower's high watermark) is not served. Source: KIP-74 (limits), KIP-98 (isolation),
//! KIP-227 (sessions), KIP-392 (racks), KIP-516 (topic ids from version 13 on), KIP-595 (epochs), KIP-903 (replica
//! state), KIP-951 (leader hints).

use smallvec::SmallVec;

use super::error::ErrorCode;
use super::notation::message;
use super::produce::{LeaderIdAndEpoch, NodeEndpoint};
use super::values::{Records, Str};
use crate::types::TopicId;

message! {
    /// Where to read on.
    pub struct FetchRequest<'a> flexible 12 {
        /// −1: a consumer. From version 15 on see `replica_state`.
        replica_id: i32 [0..=14] = -1,
        max_wait_ms: i32,
        min_bytes: i32,
        max_bytes: i32 = i32::MAX,
        /// 0: up to the high watermark, 1: up to the last stable offset.
        isolation_level: i8,
        session_id: i32 [7..],
        /// −1: no session, 0: a new one, else the next number of `session_id`.
        session_epoch: i32 [7..] = -1,
        /// In a session: what changed.
        topics: SmallVec<[FetchTopic<'a>; 1]>,
        /// Leaves the session.
        forgotten_topics_data: Vec<ForgottenTopic<'a>> [7..],
        rack_id: Str<'a> [11..],
    } tagged {
        0 cluster_id: Option<Str<'a>> [12..],
        1 replica_state: ReplicaState [15..],
    }

    /// Who fetches.
    pub struct ReplicaState {
        replica_id: i32 = -1,
        replica_epoch: i64 = -1,
    }

    /// One topic of a [`FetchRequest`].
    pub struct FetchTopic<'a> {
        topic: Str<'a> [0..=12],
        topic_id: TopicId [13..],
        partitions: SmallVec<[FetchPartition; 2]>,
    }

    /// One partition of a [`FetchTopic`].
    pub struct FetchPartition {
        partition: i32,
        /// −1: not to be checked.
        current_leader_epoch: i32 [9..] = -1,
        fetch_offset: i64,
        /// −1: not to be checked.
        last_fetched_epoch: i32 [12..] = -1,
        /// A follower's; −1 from consumers.
        log_start_offset: i64 [5..] = -1,
        partition_max_bytes: i32,
    } tagged {
        0 replica_directory_id: TopicId [17..],
    }

    /// Partitions that leave the session.
    pub struct ForgottenTopic<'a> {
        topic: Str<'a> [0..=12],
        topic_id: TopicId [13..],
        partitions: Vec<i32>,
    }

    /// What there was.
    pub struct FetchResponse<'a> flexible 12 {
        throttle_time_ms: i32,
        error_code: ErrorCode [7..],
        /// 0: no session.
        session_id: i32 [7..],
        responses: SmallVec<[FetchTopicResponse<'a>; 1]>,
    } tagged {
        /// The leaders named in `current_leader`.
        0 node_endpoints: Vec<NodeEndpoint<'a>> [16..],
    }

    /// One topic of a [`FetchResponse`].
    pub struct FetchTopicResponse<'a> {
        topic: Str<'a> [0..=12],
        topic_id: TopicId [13..],
        partitions: SmallVec<[FetchPartitionResponse; 1]>,
    }

    /// One partition of a [`FetchTopicResponse`].
    pub struct FetchPartitionResponse {
        partition_index: i32,
        error_code: ErrorCode,
        /// −1 with an error.
        high_watermark: i64 = -1,
        last_stable_offset: i64 = -1,
        log_start_offset: i64 [5..] = -1,
        /// Null unless the fetch is read_committed.
        aborted_transactions: Option<Vec<AbortedTransaction>> [0.., null 0..],
        /// −1: stay here.
        preferred_read_replica: i32 [11..] = -1,
        /// Empty rather than null: librdkafka refuses null.
        records: Option<Records> [0.., null 0..] = Some(Records::EMPTY),
    } tagged {
        0 diverging_epoch: EpochAndOffset [12..],
        1 current_leader: LeaderIdAndEpoch [12..],
        2 snapshot_id: OffsetAndEpoch [12..],
    }

    /// A transaction whose records within the answer are to be skipped.
    pub struct AbortedTransaction {
        producer_id: i64,
        first_offset: i64,
    }

    /// The largest epoch both sides know, and where it ends.
    pub struct EpochAndOffset {
        epoch: i32 = -1,
        end_offset: i64 = -1,
    }

    /// Names a snapshot.
    pub struct OffsetAndEpoch {
        end_offset: i64 = -1,
        epoch: i32 = -1,
    }
}
