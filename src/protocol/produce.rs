//! Produce (key 0): batches on their way in.
//!
//! Pure. Owns the two messages. The request gives each partition's records as a place in the frame ([`Records`]): drop or
//! consume the request, then split the frame into batches without copying. One topic of two partitions takes no heap.
//! Versions 12 (implicit transactions) and 13 (topic ids) are not served. Source: KIP-98, KIP-467 (record errors),
//! KIP-951 (leader hints).

use smallvec::SmallVec;

use super::error::ErrorCode;
use super::notation::message;
use super::values::{Records, Str};

message! {
    /// Batches to append.
    pub struct ProduceRequest<'a> flexible 9 {
        transactional_id: Option<Str<'a>> [3.., null 3..],
        /// −1: all in-sync replicas, 1: the leader, 0: no answer.
        acks: i16,
        timeout_ms: i32,
        topic_data: SmallVec<[ProduceTopic<'a>; 1]>,
    }

    /// One topic of a [`ProduceRequest`].
    pub struct ProduceTopic<'a> {
        name: Str<'a>,
        partition_data: SmallVec<[ProducePartition; 2]>,
    }

    /// One partition of a [`ProduceTopic`].
    pub struct ProducePartition {
        index: i32,
        /// `None` is null, which Kafka never answers; we refuse it.
        records: Option<Records> [0.., null 0..],
    }

    /// What became of the batches. Not sent with acks=0.
    pub struct ProduceResponse<'a> flexible 9 {
        responses: SmallVec<[ProduceTopicResponse<'a>; 1]>,
        throttle_time_ms: i32,
    } tagged {
        /// The leaders named in `current_leader`.
        0 node_endpoints: Vec<NodeEndpoint<'a>> [10..],
    }

    /// One topic of a [`ProduceResponse`].
    pub struct ProduceTopicResponse<'a> {
        name: Str<'a>,
        partition_responses: SmallVec<[ProducePartitionResponse<'a>; 1]>,
    }

    /// One partition of a [`ProduceTopicResponse`].
    pub struct ProducePartitionResponse<'a> {
        index: i32,
        error_code: ErrorCode,
        /// Offset given to the first record; −1 with an error.
        base_offset: i64 = -1,
        /// −1 unless the topic stamps records itself.
        log_append_time_ms: i64 = -1,
        log_start_offset: i64 [5..] = -1,
        /// The records that made the broker refuse the batch.
        record_errors: Vec<RecordError<'a>> [8..],
        error_message: Option<Str<'a>> [8.., null 8..],
    } tagged {
        /// With `NOT_LEADER_OR_FOLLOWER`: where to go instead.
        0 current_leader: LeaderIdAndEpoch [10..],
    }

    /// One refused record.
    pub struct RecordError<'a> {
        /// Position within the batch, from 0.
        batch_index: i32,
        batch_index_error_message: Option<Str<'a>> [8.., null 8..],
    }

    /// Who leads a partition, and since which epoch.
    pub struct LeaderIdAndEpoch {
        leader_id: i32 = -1,
        leader_epoch: i32 = -1,
    }

    /// Where a broker listens.
    pub struct NodeEndpoint<'a> {
        node_id: i32,
        host: Str<'a>,
        port: i32,
        rack: Option<Str<'a>> [0.., null 0..],
    }
}
