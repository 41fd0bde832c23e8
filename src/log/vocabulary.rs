//! The words of this room: what a log is told, what it answers, why it refuses.
//!
//! Pure. Owns plain values only. Always: one small error for each operation, and every disk error names its file.

use std::path::PathBuf;
use std::time::Duration;

use crate::types::{AckClass, Offset, ProducerEpoch, Sequence, TimestampMs, TopicId, TopicPartition};

use super::producers::SequenceError;

/// What a log needs to know of its topic's settings. Live: see [`Log::set_settings`](super::Log::set_settings).
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// What an acknowledgement of this topic means: `ringlog.ack.durability`.
    pub ack_class: AckClass,
    /// `segment.bytes`
    pub segment_bytes: u32,
    /// `segment.ms`
    pub segment_ms: Duration,
    /// `segment.jitter.ms`: each segment's age limit is shortened by a random part of it.
    pub segment_jitter_ms: Duration,
    /// `segment.index.bytes`
    pub index_bytes_max: u32,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `retention.ms`; `None` for −1.
    pub retention_ms: Option<Duration>,
    /// `retention.bytes`; `None` for −1.
    pub retention_bytes: Option<u64>,
    /// Whether `cleanup.policy` contains `delete`.
    pub delete_policy: bool,
    /// `file.delete.delay.ms`: how long renamed files stay before they are removed.
    pub file_delete_delay: Duration,
    /// `producer.id.expiration.ms`
    pub producer_expiry: Duration,
    /// Written data is synced at most this much later (1 s; topic `flush.ms` if smaller).
    pub flush_interval: Duration,
    /// How far ahead of the log's end its file is allocated once the log has grown: the steps double up to this.
    pub preallocate_bytes: u32,
    /// While its writes are on average at most so long, its next blocks are written with zeroes beforehand; 0: never.
    pub prewrite_bytes_max: u32,
}

/// The bounds of a log, read once per request. Always `flushed <= written <= log_end` and `log_start <= log_end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// First offset a client may read (incl.).
    pub log_start: Offset,
    /// Everything below is synced (excl.).
    pub flushed: Offset,
    /// Everything below is on the device (excl.).
    pub written: Offset,
    /// The next offset to be given (excl.).
    pub log_end: Offset,
}

/// Where and what a log is.
#[derive(Clone, Debug)]
pub struct LogPlace {
    /// An entry of `log.dirs` and `topic-partition` below it.
    pub dir: PathBuf,
    /// Its name.
    pub tp: TopicPartition,
    /// Its topic's id, which must be that of the directory.
    pub topic_id: TopicId,
}

/// How the last run ended, from the files of the log directory.
#[derive(Clone, Copy, Debug)]
pub struct StartFacts {
    /// The clean-shutdown marker was there: every log was closed without an error.
    pub clean: bool,
    /// From `recovery-point-offset-checkpoint`.
    pub recovery_point: Option<Offset>,
    /// From `log-start-offset-checkpoint`.
    pub log_start: Option<Offset>,
    /// The wall clock now.
    pub now: TimestampMs,
}

/// What opening found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RecoveryReport {
    /// Segments kept.
    pub segments: u32,
    /// Bytes of data read; 0 after a clean end.
    pub bytes_scanned: u64,
    /// Bytes of batches cut from the tail, as far as was looked (padding and zeroes are not counted).
    pub bytes_truncated: u64,
}

/// Counters and gauges over the logs of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStats {
    /// Gauge: memory charged to the tail cache.
    pub tail_cache_bytes: u64,
    /// Bytes of batches appended.
    pub appended_bytes: u64,
    /// User-space copies on the append path: one a byte, and the head of each partly filled block once more.
    pub append_copied_bytes: u64,
    /// Direct writes.
    pub writes: u64,
    /// Bytes of those, padding included.
    pub written_bytes: u64,
    /// Bytes of zeroes written ahead of small writes.
    pub prewritten_bytes: u64,
    /// `fdatasync`s of segments.
    pub flushes: u64,
    /// Bytes answered from the tail cache.
    pub cache_read_bytes: u64,
    /// Bytes read from disk to answer, read ahead or not.
    pub disk_read_bytes: u64,
    /// Gauge: bytes appended and not yet given to the device.
    pub pending_bytes: u64,
    /// Gauge: memory of cold reads kept for the next reader.
    pub read_cache_bytes: u64,
}

/// What an append did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// First offset of the batch; of the original one, if this is a duplicate.
    pub base_offset: Offset,
    /// Last offset of it.
    pub last_offset: Offset,
    /// The time the broker stamped on the batch, if it did. Of a duplicate always its original's largest timestamp: the
    /// client's own times may not be what is in the log.
    pub log_append_time: Option<TimestampMs>,
    /// Nothing was appended: the batch is in the log already.
    pub duplicate: bool,
    /// The log start now.
    pub log_start: Offset,
}

/// Why nothing was appended, or not made durable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// The log ended: a write or flush failed earlier, or it is closed.
    #[error("the log is offline: {0}")]
    Offline(String),
    /// The device is full; appends are refused until space returns.
    #[error("no space left on the log's device")]
    NoSpace,
    /// Larger than a segment.
    #[error("batch of {bytes} bytes is larger than a segment")]
    TooLarge {
        /// of the batch
        bytes: u32,
    },
    /// A newer instance of the producer took over (KIP-98).
    #[error("producer epoch {given} is older than {current}")]
    ProducerFenced {
        /// of the batch
        given: ProducerEpoch,
        /// known here
        current: ProducerEpoch,
    },
    /// A gap or an old duplicate (KIP-98).
    #[error("sequence {given} does not follow {expected}")]
    OutOfOrderSequence {
        /// of the batch
        given: Sequence,
        /// would have been right
        expected: Sequence,
    },
    /// Against the rules of transactions.
    #[error("invalid transaction state: {0}")]
    InvalidTxnState(&'static str),
}

impl From<SequenceError> for AppendError {
    fn from(error: SequenceError) -> Self {
        match error {
            SequenceError::Fenced { given, current } => Self::ProducerFenced { given, current },
            SequenceError::OutOfOrder { given, expected } => Self::OutOfOrderSequence { given, expected },
            SequenceError::TransactionOpen => Self::InvalidTxnState("a transaction of this producer is open"),
        }
    }
}

/// Why nothing was read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// Below the log start or above the log end.
    #[error("offset {wanted} is outside {start}..={end}")]
    OutOfRange {
        /// asked for
        wanted: Offset,
        /// log start (incl.)
        start: Offset,
        /// log end (incl.: reading there is a wait, not an error)
        end: Offset,
    },
    /// The disk failed: see [`AppendError::Offline`].
    #[error("the log is offline: {0}")]
    Offline(String),
    /// It was closed or deleted, perhaps while it was read.
    #[error("the log is closed")]
    Closed,
    /// A read failed, or brought bytes that are no batch. Names the file.
    #[error("read failed: {0}")]
    Disk(String),
}

/// Why a log did not open. Names file and position.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Bad bytes below what was known to be synced. Never cut: the partition stays offline until a person decides.
    #[error("{file} is corrupt at byte {position}, below the flushed offset {flushed}: {reason}")]
    Corrupt {
        /// the segment
        file: PathBuf,
        /// byte in it
        position: u64,
        /// the recovery point
        flushed: Offset,
        /// what is there
        reason: String,
    },
    /// The file system failed.
    #[error("{path}: {source}")]
    Disk {
        /// the file or directory
        path: PathBuf,
        /// the cause
        #[source]
        source: std::io::Error,
    },
    /// `partition.metadata` names another topic: the directory is left over from a topic that was made again.
    #[error("{dir} belongs to topic id {found}, not {expected}")]
    WrongTopic {
        /// the partition's directory
        dir: PathBuf,
        /// in the file
        found: TopicId,
        /// as the image says
        expected: TopicId,
    },
}
