//! What a program hears from its consumer: rebalances, records on their way, commits.
//!
//! Pure. Owns the traits and plain values. Always true: a listener is called inside `poll`, `unsubscribe` or `close`, on the
//! thread that waits for these, and nothing is read meanwhile. Source: Java's ConsumerRebalanceListener and
//! ConsumerInterceptor (KIP-42), OffsetAndMetadata.

use std::collections::BTreeMap;
use std::pin::Pin;

use crate::client::record::Record;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicPartition};

/// What a listener does; `Box::pin(async move { … })`.
pub type Heard<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Hears which partitions come and go. `H` is the consumer's handle: commit, seek, pause and all else but poll.
pub trait RebalanceListener<H: Sync>: Send {
    /// These are read from now on; seek here to begin elsewhere. May be empty: a rebalance is over.
    fn on_assigned<'a>(&'a mut self, consumer: &'a H, partitions: &'a [TopicPartition]) -> Heard<'a> {
        let _ = (consumer, partitions);
        Box::pin(std::future::ready(()))
    }

    /// These go to others as soon as this returns: commit what was done with them. With auto commit that happened already.
    fn on_revoked<'a>(&'a mut self, consumer: &'a H, partitions: &'a [TopicPartition]) -> Heard<'a> {
        let _ = (consumer, partitions);
        Box::pin(std::future::ready(()))
    }

    /// These may be others' already, and commits are refused. As [`RebalanceListener::on_revoked`] unless it says otherwise.
    fn on_lost<'a>(&'a mut self, consumer: &'a H, partitions: &'a [TopicPartition]) -> Heard<'a> {
        self.on_revoked(consumer, partitions)
    }
}

/// Looks at records before the program gets them, and at commits after they are stored.
pub trait ConsumerInterceptor: Send + Sync {
    /// Called in `poll`; what is given back is what the program gets.
    fn on_consume(&self, records: Vec<Record>) -> Vec<Record> {
        records
    }

    /// Called on the client's thread, so it must be quick.
    fn on_commit(&self, offsets: &Offsets) {
        let _ = offsets;
    }
}

/// Offsets to commit, or committed.
pub type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// Where a group goes on, and a note beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetAndMetadata {
    /// The next offset to read: one more than the last that was done with.
    pub offset: Offset,
    /// Of the record before it; with it a truncation is noticed.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The program's own note; brokers take 4096 letters.
    pub metadata: String,
}

impl From<Offset> for OffsetAndMetadata {
    fn from(offset: Offset) -> Self {
        Self { offset, leader_epoch: None, metadata: String::new() }
    }
}

impl OffsetAndMetadata {
    /// To go on behind `record`.
    pub fn after(record: &Record) -> Self {
        Self { offset: record.offset.next(), leader_epoch: record.leader_epoch, metadata: String::new() }
    }
}

/// What was found for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetAndTimestamp {
    /// Of the first record at or after it.
    pub offset: Offset,
    /// Of that record; `None` where the broker did not say.
    pub timestamp: Option<TimestampMs>,
    /// Of that record's batch.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What a consumer did since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerMetrics {
    /// Answers to Fetch.
    pub fetches: u64,
    /// Bytes of record batches in them, compressed as they came.
    pub fetched_bytes: u64,
    /// Records given out by `poll`; with `poll_batches`, those the batches count.
    pub records: u64,
    /// Rebalances that ended with an assignment.
    pub rebalances: u64,
    /// Commits that were stored.
    pub commits: u64,
}
