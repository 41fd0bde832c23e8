//! The words between shards, and between shards and the control plane: shares of requests, their outcomes, facts.
//!
//! Pure: plain, owned, `Send` values; no behaviour but sums. Items of a request keep their order, and each gets its own
//! answer.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use smallvec::SmallVec;

use crate::log::{AppendError, Appended, LogStats, ReadError};
use crate::metrics::ApiLatencies;
use crate::protocol::batch::BatchInfo;
use crate::replica::{Isolation, LeadershipError, Limits, ProduceError};
use crate::types::{LeaderEpoch, Offset, PartitionId, ShardIndex, TimestampMs, TopicPartition};

/// The batches of one produce request that one shard owns.
pub struct ProduceShare {
    /// Checked batches, in request order.
    pub items: ProduceItems,
    /// When to answer although the ack class is not reached.
    pub deadline: Instant,
    /// The wall clock when the request was read.
    pub now: TimestampMs,
}

/// The batches of a [`ProduceShare`]; the one batch of a small request takes no heap.
pub type ProduceItems = SmallVec<[ProduceItem; 1]>;

/// One checked batch.
pub struct ProduceItem {
    /// Where it goes.
    pub partition: PartitionId,
    /// Its bytes, as the client sent them unless the topic asks for another codec.
    pub batch: BytesMut,
    /// Its header.
    pub info: BatchInfo,
}

/// What became of the batches of a [`ProduceShare`], in its order.
pub type Outcomes = SmallVec<[Result<Appended, ProduceError>; 1]>;

/// The partitions of one fetch request that one shard owns.
#[derive(Clone, Debug)]
pub struct FetchShare {
    /// In request order.
    pub items: Vec<FetchItem>,
    /// Budget over all of them.
    pub bytes_max: usize,
    /// Until something was read, a first batch may exceed the budgets (KIP-74).
    pub at_least_one: bool,
    /// How far.
    pub isolation: Isolation,
}

/// One partition to read.
#[derive(Clone, Copy, Debug)]
pub struct FetchItem {
    /// Which.
    pub partition: PartitionId,
    /// From where; `None` is a negative offset, which is out of range like any other that is not in the log.
    pub from: Option<Offset>,
    /// Budget.
    pub bytes_max: usize,
    /// The leadership the client knows; `None` asks for no check.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record the client has, to find where its history leaves ours (KIP-320).
    pub last_fetched_epoch: Option<LeaderEpoch>,
}

/// What was read of one partition, for a connection of another shard.
pub struct HopRead {
    /// The bounds, read once.
    pub limits: Limits,
    /// Whole batches.
    pub parts: Vec<Bytes>,
    /// What counts for `min.bytes`: the bytes read, or the limit of the read if that kept out what would have come next.
    pub counted_bytes: usize,
    /// The end of the last epoch the client and we agree on, when its history leaves ours; there is no data then.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

/// A waiting fetch's interest in one shard.
pub struct WatchShare {
    /// Its name, for [`ShardCall::Unwatch`].
    pub id: WatchId,
    /// Partitions, and the bytes that were visible when they were read ([`Limits::visible_bytes`]).
    pub partitions: Vec<(PartitionId, u64)>,
    /// Answer after this many more bytes.
    pub bytes: u64,
}

/// Names one watch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchId {
    /// The shard of the waiting connection.
    pub from: ShardIndex,
    /// Unique there.
    pub number: u64,
}

/// What ListOffsets asks of one partition.
#[derive(Clone, Copy, Debug)]
pub struct OffsetQuestion {
    /// Which.
    pub partition: PartitionId,
    /// The leadership the client knows.
    pub leader_epoch: Option<LeaderEpoch>,
    /// How far it may see.
    pub isolation: Isolation,
    /// What it looks for.
    pub wanted: WantedOffset,
}

/// The positions ListOffsets can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WantedOffset {
    /// −1: the end as far as the isolation sees.
    Latest,
    /// −2, and −4 while no data is tiered: the log start.
    Earliest,
    /// −3: the first record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// −5 and −6: what only tiered storage has.
    Tiered,
    /// The first record at or after this time.
    At(TimestampMs),
}

/// What ListOffsets found; all absent when there is no such record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FoundOffset {
    /// Where.
    pub offset: Option<Offset>,
    /// The record's timestamp, for lookups by time.
    pub timestamp: Option<TimestampMs>,
    /// The record's leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What OffsetForLeaderEpoch asks of one partition.
#[derive(Clone, Copy, Debug)]
pub struct EpochQuestion {
    /// Which.
    pub partition: PartitionId,
    /// The leadership the client knows.
    pub current: Option<LeaderEpoch>,
    /// The epoch whose end it wants; `None` lies below every epoch.
    pub wanted: Option<LeaderEpoch>,
}

/// Why a log start did not move.
#[derive(Debug, thiserror::Error)]
pub enum DeleteRecordsError {
    /// Role.
    #[error(transparent)]
    Leadership(#[from] LeadershipError),
    /// Above the high watermark.
    #[error("offset {wanted} is above the high watermark {high_watermark}")]
    OutOfRange {
        /// Asked for.
        wanted: Offset,
        /// Ours.
        high_watermark: Offset,
    },
    /// The log is offline.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log failed.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// What applying an image did on one shard.
#[derive(Clone, Debug, Default)]
pub struct ApplyReport {
    /// Logs opened or created.
    pub opened: u32,
    /// Logs deleted.
    pub deleted: u32,
    /// Segments of the opened logs.
    pub segments: u32,
    /// Bytes read by recovery.
    pub bytes_scanned: u64,
    /// Bytes cut from tails by recovery.
    pub bytes_truncated: u64,
    /// Partitions that did not open and are offline: (name, reason with file and position).
    pub failed: Vec<(String, String)>,
}

impl ApplyReport {
    /// The sum over shards.
    pub fn add(&mut self, other: Self) {
        self.opened += other.opened;
        self.deleted += other.deleted;
        self.segments += other.segments;
        self.bytes_scanned += other.bytes_scanned;
        self.bytes_truncated += other.bytes_truncated;
        self.failed.extend(other.failed);
    }
}

/// What one shard closed in one log directory.
#[derive(Clone, Debug, Default)]
pub struct DirCheckpoint {
    /// Whether every log closed cleanly: only then may the clean-shutdown marker be written.
    pub clean: bool,
    /// For `recovery-point-offset-checkpoint`.
    pub recovery_points: Vec<(TopicPartition, Offset)>,
    /// For `log-start-offset-checkpoint`.
    pub log_starts: Vec<(TopicPartition, Offset)>,
}

/// What one shard holds, for people and tools.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShardFacts {
    /// Its index.
    pub shard: usize,
    /// Open connections.
    pub connections: u64,
    /// Sorted by name.
    pub partitions: Vec<PartitionFacts>,
}

/// One partition.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PartitionFacts {
    /// Name.
    pub topic: String,
    /// 22 letters.
    pub topic_id: String,
    /// Index.
    pub partition: i32,
    /// Its place in `log.dirs`.
    pub log_dir: usize,
    /// The ack class of its topic.
    pub ack_class: &'static str,
    /// Why it is not served, if so; the numbers are zero when it never opened.
    pub offline: Option<String>,
    /// The epoch this broker leads in.
    pub leader_epoch: i32,
    /// Incl.
    pub log_start_offset: i64,
    /// Excl.
    pub last_stable_offset: i64,
    /// Excl.
    pub high_watermark: i64,
    /// Excl.
    pub log_end_offset: i64,
    /// Excl.
    pub written_offset: i64,
    /// Excl.
    pub flushed_offset: i64,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Records appended since start.
    pub records_in: u64,
    /// Bytes appended since start.
    pub bytes_in: u64,
    /// Bytes fetched since start.
    pub bytes_out: u64,
    /// Produce requests waiting for an ack.
    pub waiting_acks: usize,
    /// Fetches waiting for data.
    pub waiting_fetches: usize,
}

/// Gauges and histograms of one shard; counters are read from [`crate::metrics::ShardMetrics`] directly.
#[derive(Clone, Debug)]
pub struct MetricsReport {
    /// Of answered requests, by API key.
    pub latencies: Vec<(i16, ApiLatencies)>,
    /// The logs' counters.
    pub log: LogStats,
    /// The net loop's counters.
    pub net: NetFacts,
    /// Parts of the memory budget, in bytes: admitted requests, tail cache, bytes waiting to be written, queued answers.
    pub memory: MemoryReport,
    /// Partitions led.
    pub partitions: usize,
    /// Partitions that are offline.
    pub partitions_offline: usize,
    /// Bytes of all logs.
    pub log_bytes: u64,
}

/// What one shard's net loop does.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetFacts {
    /// Open connections.
    pub connections: u64,
    /// Memory of answers in queues.
    pub queued_bytes: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Turns that went through the executor's own reactor.
    pub full_turns: u64,
    /// Waits in the loop's own epoll.
    pub lingers: u64,
    /// Times the executor went to sleep.
    pub parks: u64,
    /// Times reading was paused because too many answers were queued.
    pub paused: u64,
    /// Times the watchdog woke the standing shard.
    pub kicks: u64,
}

/// The parts of one shard's memory budget, in bytes, and who waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryReport {
    /// The shard's share of `engine.memory.max.bytes`.
    pub limit: u64,
    /// What requests may hold.
    pub requests_limit: u64,
    /// What requests hold.
    pub requests: u64,
    /// Frames waiting to be read for want of memory.
    pub requests_waiting: u64,
    /// Cached batches.
    pub tail_cache: u64,
    /// Appended, not yet written.
    pub pending_writes: u64,
    /// What answers to fetches may hold, beside the least that each of them is given.
    pub answers_limit: u64,
    /// Memory of answers not yet taken by their peers.
    pub queued_answers: u64,
    /// Answers to fetches that are being read.
    pub read_answers: u64,
    /// The pinned pool of direct I/O.
    pub pinned: u64,
}
