//! What a partition knows of its idempotent and transactional producers.
//!
//! Pure. Owns, per producer id: epoch, the window of the last five batches, the first offset of its open transaction; and
//! Kafka's `.snapshot` bytes. Does not own files or the clock. Always: the state is a function of the log's batches, so a
//! snapshot with the batches after it replayed equals a replay of everything (only expiry, which counts by the broker's
//! clock, takes entries away). Source: KIP-98, Kafka's `ProducerStateManager` and `ProducerAppendInfo`.
//!
//! Non-obvious: Kafka's snapshot holds only the last batch of each producer, so a producer with five batches in flight across
//! a restart meets an unknown sequence. We write one entry for each batch of the window, oldest first: Kafka, which keeps the
//! last entry of an id it reads, sees what it always saw, and we get the whole window back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;

use crate::protocol::batch::{BatchInfo, ProducerStamp};
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Batches remembered for each producer: as many as one may have in flight (KIP-98; the Java client's bound).
pub const WINDOW_BATCHES: usize = 5;

const SNAPSHOT_VERSION: i16 = 1;
const SNAPSHOT_HEADER_BYTES: usize = 2 + 4 + 4;
const SNAPSHOT_ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;
/// "No coordinator wrote a marker yet", as the snapshot spells it.
const NO_COORDINATOR_EPOCH: i32 = -1;

/// Why a batch of a producer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SequenceError {
    /// A newer instance of the producer took over.
    #[error("producer epoch {given} is older than {current}")]
    Fenced {
        /// of the batch
        given: ProducerEpoch,
        /// known here
        current: ProducerEpoch,
    },
    /// The batch does not follow the last one.
    #[error("sequence {given} does not follow {expected}")]
    OutOfOrder {
        /// of the batch
        given: Sequence,
        /// would have been right
        expected: Sequence,
    },
    /// A batch outside the producer's open transaction.
    #[error("a transaction of this producer is open")]
    TransactionOpen,
}

/// What to do with a batch that breaks no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Append it.
    New,
    /// It is in the log already.
    Duplicate(RememberedBatch),
}

/// One batch of a producer's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RememberedBatch {
    /// sequence of its last record
    pub last_sequence: Sequence,
    /// offset of its last record
    pub last_offset: Offset,
    /// last offset minus base offset
    pub offset_delta: u32,
    /// its largest timestamp
    pub timestamp: TimestampMs,
}

impl RememberedBatch {
    /// Offset of its first record.
    pub fn base_offset(&self) -> Offset {
        let base = self.last_offset.value() - i64::from(self.offset_delta);
        Offset::new(base).expect("checked when it was remembered")
    }

    fn base_sequence(&self) -> Sequence {
        let last = u32::try_from(self.last_sequence.value()).expect("a sequence is not negative");
        let base = last.wrapping_sub(self.offset_delta) & 0x7fff_ffff;
        i32::try_from(base).ok().and_then(Sequence::new).expect("masked to 31 bits")
    }
}

/// State of one producer id.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Producer {
    epoch: ProducerEpoch,
    /// Oldest first, all of `epoch`.
    window: SmallVec<[RememberedBatch; WINDOW_BATCHES]>,
    last_timestamp: TimestampMs,
    /// By the broker's clock; after a recovery, the time of the recovery.
    last_seen: TimestampMs,
    coordinator_epoch: i32,
    transaction_first: Option<Offset>,
}

/// What a partition tells of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveProducer {
    /// its id
    pub id: ProducerId,
    /// its newest epoch here
    pub epoch: ProducerEpoch,
    /// sequence of its last record; `None` after a marker alone
    pub last_sequence: Option<Sequence>,
    /// largest timestamp of its last batch
    pub last_timestamp: TimestampMs,
    /// of the coordinator that wrote its last marker; −1 without one
    pub coordinator_epoch: i32,
    /// first offset of its open transaction
    pub transaction_first: Option<Offset>,
}

/// The producers of one partition.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Producers {
    by_id: BTreeMap<ProducerId, Producer>,
    open_transactions: BTreeSet<Offset>,
}

impl Producers {
    /// Every producer, by rising id.
    pub fn active(&self) -> impl Iterator<Item = ActiveProducer> {
        self.by_id.iter().map(|(id, producer)| ActiveProducer {
            id: *id,
            epoch: producer.epoch,
            last_sequence: producer.window.last().map(|batch| batch.last_sequence),
            last_timestamp: producer.last_timestamp,
            coordinator_epoch: producer.coordinator_epoch,
            transaction_first: producer.transaction_first,
        })
    }

    /// Judges a batch of a client or a transaction marker before it is appended. Changes nothing.
    pub fn check(&self, info: &BatchInfo) -> Result<Verdict, SequenceError> {
        let Some(stamp) = info.producer else { return Ok(Verdict::New) };
        let Some(known) = self.by_id.get(&stamp.id) else { return Ok(Verdict::New) };
        let first = match stamp.base_sequence {
            Some(first) if !info.control => first,
            // Markers carry no sequence; they only may not come from an older epoch.
            _ if stamp.epoch < known.epoch => {
                return Err(SequenceError::Fenced { given: stamp.epoch, current: known.epoch });
            }
            _ => return Ok(Verdict::New),
        };
        let last = first.plus(info.last_offset_delta);
        if stamp.epoch == known.epoch
            && let Some(batch) =
                known.window.iter().find(|batch| batch.base_sequence() == first && batch.last_sequence == last)
        {
            return Ok(Verdict::Duplicate(*batch));
        }
        if stamp.epoch < known.epoch {
            return Err(SequenceError::Fenced { given: stamp.epoch, current: known.epoch });
        }
        // A new epoch begins at 0. An epoch known only by its marker has no window: any sequence may come first.
        let expected = if stamp.epoch > known.epoch {
            Some(Sequence::ZERO)
        } else {
            known.window.last().map(|newest| newest.last_sequence.plus(1))
        };
        if let Some(expected) = expected
            && first != expected
        {
            return Err(SequenceError::OutOfOrder { given: first, expected });
        }
        if known.transaction_first.is_some() && !info.transactional {
            return Err(SequenceError::TransactionOpen);
        }
        Ok(Verdict::New)
    }

    /// Notes a batch that is in the log with its first record at `base_offset`. `now` is the broker's clock.
    pub fn replay(&mut self, info: &BatchInfo, base_offset: Offset, now: TimestampMs) {
        let Some(ProducerStamp { id, epoch, base_sequence }) = info.producer else { return };
        let producer = self.by_id.entry(id).or_insert_with(|| Producer {
            epoch,
            window: SmallVec::new(),
            last_timestamp: info.max_timestamp,
            last_seen: now,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            transaction_first: None,
        });
        producer.last_seen = now;
        producer.last_timestamp = info.max_timestamp;
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.window.clear();
        }
        if info.control {
            if let Some(first) = producer.transaction_first.take() {
                self.open_transactions.remove(&first);
            }
            return;
        }
        if let Some(first) = base_sequence {
            if producer.window.len() == WINDOW_BATCHES {
                producer.window.remove(0);
            }
            producer.window.push(RememberedBatch {
                last_sequence: first.plus(info.last_offset_delta),
                last_offset: base_offset.plus(info.last_offset_delta),
                offset_delta: info.last_offset_delta,
                timestamp: info.max_timestamp,
            });
        }
        if info.transactional && producer.transaction_first.is_none() {
            producer.transaction_first = Some(base_offset);
            self.open_transactions.insert(base_offset);
        }
    }

    /// Forgets producers not seen for longer than `expiry`, except those with an open transaction.
    pub fn expire(&mut self, now: TimestampMs, expiry: Duration) {
        let expiry = i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX);
        self.by_id.retain(|_, producer| {
            producer.transaction_first.is_some() || now.saturating_sub(producer.last_seen) <= expiry
        });
    }

    /// First offset of the oldest open transaction.
    pub fn first_unstable(&self) -> Option<Offset> {
        self.open_transactions.first().copied()
    }

    /// Known producer ids.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// None known.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The bytes of a `.snapshot` file.
    pub fn to_snapshot(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut count = 0_u32;
        for (&id, producer) in &self.by_id {
            let mut entry = |batch: Option<&RememberedBatch>| {
                body.extend_from_slice(&id.value().to_be_bytes());
                body.extend_from_slice(&producer.epoch.value().to_be_bytes());
                body.extend_from_slice(&batch.map_or(-1, |batch| batch.last_sequence.value()).to_be_bytes());
                body.extend_from_slice(&batch.map_or(-1, |batch| batch.last_offset.value()).to_be_bytes());
                body.extend_from_slice(&batch.map_or(0, |batch| batch.offset_delta).to_be_bytes());
                body.extend_from_slice(&batch.map_or(producer.last_timestamp, |b| b.timestamp).to_be_bytes());
                body.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
                body.extend_from_slice(&producer.transaction_first.map_or(-1, Offset::value).to_be_bytes());
                count += 1;
            };
            if producer.window.is_empty() {
                entry(None);
            }
            producer.window.iter().for_each(|batch| entry(Some(batch)));
        }
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&count.to_be_bytes()), &body);
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEADER_BYTES + body.len());
        bytes.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads a `.snapshot` file; every producer counts as seen `now`. `None` when the bytes are no sound snapshot.
    pub fn from_snapshot(bytes: &[u8], now: TimestampMs) -> Option<Self> {
        let mut producers = Self::default();
        snapshot_entries(bytes)?.iter().try_for_each(|entry| producers.load_entry(entry, now))?;
        Some(producers)
    }

    fn load_entry(&mut self, entry: &SnapshotEntry, now: TimestampMs) -> Option<()> {
        let epoch = ProducerEpoch::new(entry.producer_epoch)?;
        let producer = self.by_id.entry(ProducerId::new(entry.producer_id)?).or_insert_with(|| Producer {
            epoch,
            window: SmallVec::new(),
            last_timestamp: entry.timestamp,
            last_seen: now,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            transaction_first: None,
        });
        producer.epoch = epoch;
        producer.last_timestamp = entry.timestamp;
        producer.coordinator_epoch = entry.coordinator_epoch;
        producer.transaction_first = Offset::new(entry.transaction_first);
        self.open_transactions.extend(producer.transaction_first);
        let last = (Sequence::new(entry.last_sequence), Offset::new(entry.last_offset));
        if let (Some(last_sequence), Some(last_offset)) = last {
            let SnapshotEntry { offset_delta, timestamp, .. } = *entry;
            let fits = i64::from(offset_delta) <= last_offset.value() && producer.window.len() < WINDOW_BATCHES;
            fits.then(|| {
                producer.window.push(RememberedBatch { last_sequence, last_offset, offset_delta, timestamp })
            })?;
        }
        Some(())
    }
}

/// One entry of a `.snapshot` file, as it stands there: −1 is "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotEntry {
    /// Whose.
    pub producer_id: i64,
    /// Its instance.
    pub producer_epoch: i16,
    /// Last sequence of the batch remembered.
    pub last_sequence: i32,
    /// Its last offset.
    pub last_offset: i64,
    /// Last offset minus base offset.
    pub offset_delta: u32,
    /// Its largest timestamp.
    pub timestamp: TimestampMs,
    /// The transaction coordinator whose marker came last.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub transaction_first: i64,
}

/// The entries of a `.snapshot` file, in its order. `None` when version, checksum or size are wrong.
pub fn snapshot_entries(bytes: &[u8]) -> Option<Vec<SnapshotEntry>> {
    let (version, rest) = bytes.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    if i16::from_be_bytes(*version) != SNAPSHOT_VERSION || crc32c::crc32c(rest) != u32::from_be_bytes(*checksum) {
        return None;
    }
    let (count, body) = rest.split_first_chunk()?;
    let (entries, []) = body.as_chunks::<SNAPSHOT_ENTRY_BYTES>() else { return None };
    if usize::try_from(u32::from_be_bytes(*count)).ok()? != entries.len() {
        return None;
    }
    entries.iter().map(|entry| parse_entry(entry)).collect()
}

fn parse_entry(entry: &[u8]) -> Option<SnapshotEntry> {
    let (producer_id, rest) = entry.split_first_chunk()?;
    let (producer_epoch, rest) = rest.split_first_chunk()?;
    let (last_sequence, rest) = rest.split_first_chunk()?;
    let (last_offset, rest) = rest.split_first_chunk()?;
    let (offset_delta, rest) = rest.split_first_chunk()?;
    let (timestamp, rest) = rest.split_first_chunk()?;
    let (coordinator_epoch, rest) = rest.split_first_chunk()?;
    Some(SnapshotEntry {
        producer_id: i64::from_be_bytes(*producer_id),
        producer_epoch: i16::from_be_bytes(*producer_epoch),
        last_sequence: i32::from_be_bytes(*last_sequence),
        last_offset: i64::from_be_bytes(*last_offset),
        offset_delta: u32::from_be_bytes(*offset_delta),
        timestamp: i64::from_be_bytes(*timestamp),
        coordinator_epoch: i32::from_be_bytes(*coordinator_epoch),
        transaction_first: i64::from_be_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests;
