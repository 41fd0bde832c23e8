//! One partition on one disk (CONTRACT STUB).
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use bytes::BytesMut;
use smallvec::SmallVec;
use crate::protocol::batch::BatchInfo;
use crate::rt::net::Payload;
use crate::types::*;

/// What a log needs to know of its topic's settings. Live: `Log::set_settings`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// What an ack of this topic means.
    pub ack_class: AckClass,
    /// `segment.bytes`
    pub segment_bytes: u32,
    /// `segment.ms`
    pub segment_ms: Duration,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: Duration,
    /// `segment.index.bytes`
    pub index_bytes_max: u32,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `retention.ms`, `None` = −1
    pub retention_ms: Option<Duration>,
    /// `retention.bytes`, `None` = −1
    pub retention_bytes: Option<u64>,
    /// whether `cleanup.policy` contains `delete`
    pub delete_policy: bool,
    /// `file.delete.delay.ms`
    pub file_delete_delay: Duration,
    /// `producer.id.expiration.ms`
    pub producer_expiry: Duration,
    /// interval flush of written data (default 1 s; topic `flush.ms` if smaller)
    pub flush_interval: Duration,
    /// bytes preallocated ahead
    pub preallocate_bytes: u32,
}
/// The bounds of a log, read once per request. `log_start <= flushed?`, `flushed <= written <= log_end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits { /** incl. */ pub log_start: Offset, /** excl. */ pub flushed: Offset, /** excl. */ pub written: Offset, /** excl. */ pub log_end: Offset }
/// Where and what a log is.
#[derive(Clone, Debug)]
pub struct LogPlace { /** `log.dirs` entry + `topic-partition` */ pub dir: PathBuf, /** name */ pub tp: TopicPartition, /** id */ pub topic_id: TopicId }
/// How the last run ended, from the control plane.
#[derive(Clone, Copy, Debug)]
pub struct StartFacts { /** clean-shutdown marker was there */ pub clean: bool, /** from recovery-point-offset-checkpoint */ pub recovery_point: Option<Offset>, /** from log-start-offset-checkpoint */ pub log_start: Option<Offset>, /** wall clock now */ pub now: TimestampMs }
/// What opening found.
#[derive(Clone, Copy, Default, Debug)]
pub struct RecoveryReport { /** segments */ pub segments: u32, /** read during the scan */ pub bytes_scanned: u64, /** cut from the tail */ pub bytes_truncated: u64 }
/// Shared by the logs of one shard: tail-cache budget, in-flight limits, counters. `Rc`.
#[derive(Clone)]
pub struct LogRuntime { _p: Rc<()> }
impl LogRuntime {
    /// One per shard. `tail_cache_bytes`: budget of cached batches over all logs of the shard.
    pub fn new(tail_cache_bytes: usize) -> Self { let _ = tail_cache_bytes; todo!() }
    /// Gauges and counters.
    pub fn stats(&self) -> LogStats { todo!() }
}
/// Counters over the logs of one shard.
#[derive(Clone, Copy, Default, Debug)]
pub struct LogStats { /** gauge */ pub tail_cache_bytes: u64, /** appended */ pub appended_bytes: u64, /** user-space copies on the append path */ pub append_copied_bytes: u64, /** direct writes */ pub writes: u64, /** bytes written to files */ pub written_bytes: u64, /** fdatasyncs */ pub flushes: u64, /** read from the tail cache */ pub cache_read_bytes: u64, /** read from disk */ pub disk_read_bytes: u64, /** queued for writing, gauge */ pub pending_bytes: u64 }
/// What an append did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended { /** first offset of the batch (of the original, if a duplicate) */ pub base_offset: Offset, /** last */ pub last_offset: Offset, /** LogAppendTime of the (original) batch, if the topic stamps */ pub log_append_time: Option<TimestampMs>, /** nothing was appended: the batch was already here */ pub duplicate: bool, /** log start now */ pub log_start: Offset }
/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The log ended: a write or flush failed earlier, or it is closed.
    #[error("the log is offline: {0}")] Offline(String),
    /// ENOSPC was hit; appends are refused until space returns.
    #[error("no space left on the log's device")] NoSpace,
    /// Larger than a segment.
    #[error("batch of {bytes} bytes is larger than a segment")] TooLarge { /** bytes */ bytes: u32 },
    /// KIP-98 fencing.
    #[error("producer epoch {given} is older than {current}")] ProducerFenced { /** given */ given: ProducerEpoch, /** ours */ current: ProducerEpoch },
    /// KIP-98 gap.
    #[error("sequence {given} does not follow {expected}")] OutOfOrderSequence { /** given */ given: Sequence, /** next */ expected: Sequence },
    /// Transaction rules.
    #[error("invalid transaction state: {0}")] InvalidTxnState(&'static str),
}
/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Below the log start or above the log end.
    #[error("offset {wanted} is outside {start}..={end}")] OutOfRange { /** wanted */ wanted: Offset, /** start */ start: Offset, /** end */ end: Offset },
    /// The log ended.
    #[error("the log is offline: {0}")] Offline(String),
    /// A read failed.
    #[error("read failed: {0}")] Disk(String),
}
/// Why a log did not open. Everything but `Disk` names file and position.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Bad bytes below what was known flushed.
    #[error("{file} is corrupt at byte {position}, below the flushed offset {flushed}: {reason}")] Corrupt { /** file */ file: PathBuf, /** byte */ position: u64, /** offset */ flushed: Offset, /** why */ reason: String },
    /// I/O.
    #[error("{path}: {source}")] Disk { /** path */ path: PathBuf, /** cause */ #[source] source: std::io::Error },
    /// partition.metadata names another topic id.
    #[error("{dir} belongs to topic id {found}, not {expected}")] WrongTopic { /** dir */ dir: PathBuf, /** found */ found: TopicId, /** expected */ expected: TopicId },
}
/// Bounds of one read.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds { /** nothing at or above it (HW or LSO, read once by the caller) */ pub below: Offset, /** budget */ pub bytes_max: usize, /** KIP-74: the first batch may exceed the budget */ pub at_least_one: bool }
/// What a read brought: whole batches, as they lie on disk.
#[derive(Default)]
pub struct ReadData { /** slices */ pub parts: SmallVec<[Payload; 4]>, /** sum */ pub bytes: usize }
/// One partition's log on this shard.
pub struct Log {}
impl Log {
    /// Opens or creates `place.dir` (creating writes `partition.metadata`, fsyncs file and directories).
    pub async fn open(place: LogPlace, settings: LogSettings, facts: StartFacts, runtime: &LogRuntime) -> Result<(Rc<Log>, RecoveryReport), OpenError> { let _ = (place, settings, facts, runtime); todo!() }
    /// Appends one checked batch: producer checks, roll if needed, stamps base offset and leader epoch in place, tail cache, starts the writer. No await: order is the order of calls. Not durable yet.
    pub fn append(self: &Rc<Self>, batch: BytesMut, info: &BatchInfo, leader_epoch: LeaderEpoch, now: TimestampMs) -> Result<Appended, AppendError> { let _ = (batch, info, leader_epoch, now); todo!() }
    /// The bounds now.
    pub fn limits(&self) -> Limits { todo!() }
    /// Whose everything below reached the topic's ack class (memory: log end; written; flushed).
    pub fn acked_offset(&self) -> Offset { todo!() }
    /// Registers the one observer (the Partition): called after `limits` moved or the log went offline, outside any borrow.
    pub fn on_change(&self, observer: impl Fn() + 'static) { let _ = observer; todo!() }
    /// Set once a write or flush failed: the reason.
    pub fn offline(&self) -> Option<String> { todo!() }
    /// First offset of an open transaction below which everything is decided; log end when none is open.
    pub fn first_unstable(&self) -> Option<Offset> { todo!() }
    /// Plans a read: owns handles and cached slices; no await, no borrow left behind.
    pub fn plan_read(&self, from: Offset, bounds: ReadBounds) -> Result<ReadPlan, ReadError> { let _ = (from, bounds); todo!() }
    /// KIP-79/734 lookups below `below`: first record with timestamp >= `at`, as (offset, its timestamp, its leader epoch).
    pub async fn find_timestamp(self: &Rc<Self>, at: TimestampMs, below: Offset) -> Result<Option<(Offset, TimestampMs, LeaderEpoch)>, ReadError> { let _ = (at, below); todo!() }
    /// First record holding the largest timestamp below `below`.
    pub async fn find_max_timestamp(self: &Rc<Self>, below: Offset) -> Result<Option<(Offset, TimestampMs, LeaderEpoch)>, ReadError> { let _ = below; todo!() }
    /// Largest epoch <= `epoch` and its exclusive end (KIP-101/279); `None` below the first.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> { let _ = epoch; todo!() }
    /// Records that this broker leads in `epoch` from the log end on (leader-epoch-checkpoint).
    pub async fn begin_epoch(&self, epoch: LeaderEpoch) -> Result<(), OpenError> { let _ = epoch; todo!() }
    /// Writes and fdatasyncs everything appended so far; the flushed offset after. Concurrent callers share rounds.
    pub async fn flush(self: &Rc<Self>) -> Result<Offset, AppendError> { todo!() }
    /// Retention (time, size), roll by time, producer expiry. A plan, then deletion. Returns segments deleted.
    pub async fn maintain(self: &Rc<Self>, now: TimestampMs, high_watermark: Offset) -> Result<u32, AppendError> { let _ = (now, high_watermark); todo!() }
    /// DeleteRecords: moves the log start up to `to` (<= high watermark).
    pub async fn delete_records(self: &Rc<Self>, to: Offset) -> Result<Offset, AppendError> { let _ = to; todo!() }
    /// New settings (class, retention, sizes).
    pub fn set_settings(&self, settings: LogSettings) { let _ = settings; todo!() }
    /// Bytes of all segments (logical).
    pub fn size_bytes(&self) -> u64 { todo!() }
    /// Count.
    pub fn segment_count(&self) -> usize { todo!() }
    /// Clean end: write, flush, producer snapshot, truncate files to their logical length, close. The recovery point to checkpoint.
    pub async fn close(self: Rc<Self>) -> Result<Offset, AppendError> { todo!() }
    /// Deletes crash-safely: renames the directory to `….<unique>-delete`, fsyncs the parent, then unlinks after the delay (background).
    pub async fn delete(self: Rc<Self>) -> Result<(), AppendError> { todo!() }
}
/// A planned read.
pub struct ReadPlan {}
impl ReadPlan {
    /// The data, when all of it is in the tail cache (the usual case of a caught-up consumer); else the plan back.
    pub fn try_now(self) -> Result<ReadData, ReadPlan> { todo!() }
    /// The data, from cache and disk.
    pub async fn run(self) -> Result<ReadData, ReadError> { todo!() }
}
/// Removes what an earlier run left behind (`*-delete` directories, `.deleted`, `.tmp`) in one log dir. Blocking; control thread.
pub fn sweep_leftovers(log_dir: &std::path::Path) -> std::io::Result<u32> { let _ = log_dir; todo!() }
