//! Record batch v2: the only record format that is stored, produced and fetched.
//!
//! Pure. Owns the 61-byte header, its checksum and the two fields a leader may write; the siblings own the codecs, the
//! records inside and the building of new batches. Does not own what a log or a producer makes of a batch. Always true:
//! nothing here panics on bytes of a peer, and no memory is taken from a number that a peer wrote.
//! Source: Kafka's "Record Batch" format; KIP-98 (producer fields), KIP-534 (delete horizon).
//!
//! ```text
//! byte  0 base offset i64      17 crc u32                  35 max timestamp i64      57 records i32
//!       8 length i32 (from 12) 21 attributes u16           43 producer id i64        61 records …
//!      12 leader epoch i32     23 last offset delta i32    51 producer epoch i16
//!      16 magic i8 = 2         27 base timestamp i64       53 base sequence i32
//! ```
//! Attributes: bits 0–2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon. The checksum covers byte 21 to
//! the end, so that a leader stamps offset and epoch without touching it.

#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod builder;
mod codecs;
mod records;
#[cfg(test)]
mod tests;

use zerocopy::byteorder::network_endian::{I16, I32, I64, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

pub use builder::{Builder, BuilderOptions, recompress, record_bytes_max, set_producer};
pub use codecs::Codec;
pub use records::{
    REPORTED_FAULTS_MAX, RecordFacts, RecordFault, RecordFaultKind, RecordRules, RecordsError, validate_records,
};
pub use records::{Record, RecordHeader, RecordIter, Records, RecordsMark};

/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;
/// What the length field does not count: the base offset and itself.
const UNCOUNTED_BYTES: u32 = 12;
/// Where the checksummed part begins: at the attributes.
const CHECKED_FROM: usize = 21;
/// Below this length Kafka calls the bytes corrupt before it looks at their format: the smallest record of format 0.
const LENGTH_MIN_ANY_FORMAT: i32 = 14;
/// The smallest length of format 2: a header without records.
const LENGTH_MIN: i32 = 49;
const _: () = assert!(LENGTH_MIN as usize + UNCOUNTED_BYTES as usize == HEADER_BYTES);

const CODEC_MASK: u16 = 0b111;
const LOG_APPEND_TIME: u16 = 1 << 3;
const TRANSACTIONAL: u16 = 1 << 4;
const CONTROL: u16 = 1 << 5;
const DELETE_HORIZON: u16 = 1 << 6;

/// The header as it lies in memory; any address will do.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    base_offset: I64,
    length: I32,
    leader_epoch: I32,
    magic: i8,
    crc: U32,
    attributes: U16,
    last_offset_delta: I32,
    base_timestamp: I64,
    max_timestamp: I64,
    producer_id: I64,
    producer_epoch: I16,
    base_sequence: I32,
    records: I32,
}
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// Of the whole batch. [`header_of`] has seen that the length is positive.
    fn batch_bytes(&self) -> u32 {
        self.length.get().cast_unsigned() + UNCOUNTED_BYTES
    }
}

const _: () = assert!(std::mem::offset_of!(Header, attributes) == CHECKED_FROM);

/// Who produced a batch idempotently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerStamp {
    /// The producer.
    pub id: ProducerId,
    /// Which instance of it.
    pub epoch: ProducerEpoch,
    /// Sequence of the first record; `None` in control batches, which take no part in deduplication.
    pub base_sequence: Option<Sequence>,
}

/// The facts of one batch's header, copied out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchInfo {
    /// As it stands in the bytes (clients send 0).
    pub base_offset: i64,
    /// The whole batch, header included.
    pub bytes: u32,
    /// As it stands in the bytes (clients send −1).
    pub leader_epoch: i32,
    /// Last offset minus base offset.
    pub last_offset_delta: u32,
    /// `None` for the codec numbers 5–7, which nobody has defined.
    pub codec: Option<Codec>,
    /// The maximum timestamp is the broker's clock at the append and holds for every record.
    pub log_append_time: bool,
    /// Part of a transaction.
    pub transactional: bool,
    /// Written by a broker: a transaction marker or a leader's note, not data.
    pub control: bool,
    /// The base timestamp is the time from which compaction may drop this batch's tombstones (KIP-534).
    pub delete_horizon: bool,
    /// What the records' timestamp deltas count from: the first record's timestamp, unless compaction rewrote the batch.
    pub base_timestamp: TimestampMs,
    /// The largest timestamp, as the producer claims it.
    pub max_timestamp: TimestampMs,
    /// Set when the producer is idempotent.
    pub producer: Option<ProducerStamp>,
    /// How many records the header announces. May be fewer than offsets after compaction, even none.
    pub records: u32,
    /// The checksum in the header.
    pub crc: u32,
}

/// Why bytes are no good batch. The Kafka code that each means is named with it (measured on 4.4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The batch goes on past the bytes that are there: INVALID_RECORD.
    #[error("cut short: {have} of {need} bytes")]
    Truncated {
        /// Bytes the batch says it has.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// The length field is smaller than any batch: CORRUPT_MESSAGE.
    #[error("impossible batch length {0}")]
    Length(i32),
    /// Formats 0 and 1 ended with Kafka 4: INVALID_RECORD. Any other number is no format: CORRUPT_MESSAGE.
    #[error("message format {0}; only 2 is served")]
    Magic(i8),
    /// The bytes changed since they were written: CORRUPT_MESSAGE.
    #[error("checksum mismatch")]
    Crc,
    /// Fields, counts or records contradict each other or the rules for producers: INVALID_RECORD.
    #[error("{0}")]
    Invalid(&'static str),
    /// The records cannot be decompressed, or the codec is unknown: UNKNOWN_SERVER_ERROR, as Kafka answers.
    #[error("{0}")]
    Unreadable(&'static str),
    /// The records outgrow what the caller allows them to take once decompressed: MESSAGE_TOO_LARGE.
    #[error("records take more than {bytes_max} bytes when decompressed")]
    TooLarge {
        /// The caller's bound.
        bytes_max: usize,
    },
}

/// Reads the header of the first batch in `bytes` without checking the CRC. Needs only the header, not the whole batch.
pub fn parse_header(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    info_of(header_of(bytes)?)
}

/// How long the batch at the start of `bytes` says it is, and its codec if that is a known one; only length and format are
/// looked at. For what Kafka judges before the checksum: a client splits a batch that is too large, and sends a damaged one
/// again.
pub fn announced(bytes: &[u8]) -> Result<(u32, Option<Codec>), BatchError> {
    let header = header_of(bytes)?;
    Ok((header.batch_bytes(), Codec::from_bits(header.attributes.get() & CODEC_MASK)))
}

/// That one whole batch begins `bytes`, and no second one follows it.
pub fn check_alone(bytes: &[u8]) -> Result<(), BatchError> {
    let rest = bytes.get(whole(bytes, header_of(bytes)?)?.len()..).expect("the whole batch is there");
    match header_of(rest) {
        Ok(second) if whole(rest, second).is_ok() => Err(BatchError::Invalid("more than one batch for a partition")),
        Err(error @ (BatchError::Length(_) | BatchError::Magic(_))) => Err(error),
        _ => Ok(()),
    }
}

/// Structure, checksum and counts of the one batch at the start of `bytes`, as a producer writes it: as many offsets as
/// records, and at least one. What follows the batch is not looked at.
pub fn check(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    let info = check_stored(bytes)?;
    if info.records == 0 {
        return Err(BatchError::Invalid("a batch without records"));
    }
    if info.records - 1 != info.last_offset_delta {
        return Err(BatchError::Invalid("the record count does not match the last offset delta"));
    }
    Ok(info)
}

/// [`check`] for batches that lie in a log, where compaction may have removed records, even all of them, but never offsets.
pub fn check_stored(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    let header = header_of(bytes)?;
    // Before the fields are judged: a flipped bit in one of them is damage, which producers mend by sending again.
    if checksum(whole(bytes, header)?) != header.crc.get() {
        return Err(BatchError::Crc);
    }
    info_of(header)
}

/// [`check`] and what Kafka asks of a produce request besides: exactly one batch, base offset 0, no control batch, and a
/// sequence beside each producer id. What follows the batch is ignored as in Kafka, unless its first bytes already show that
/// it can be no batch, or it is a whole one: the caller keeps the first [`BatchInfo::bytes`].
pub fn check_produced(bytes: &[u8]) -> Result<BatchInfo, BatchError> {
    check_alone(bytes)?;
    let header = header_of(bytes)?;
    if header.base_offset.get() != 0 {
        return Err(BatchError::Invalid("a producer's base offset must be 0"));
    }
    let info = check(bytes)?;
    if info.control {
        return Err(BatchError::Invalid("clients may not write control batches"));
    }
    if info.producer.is_some_and(|producer| producer.base_sequence.is_none()) {
        return Err(BatchError::Invalid("a producer id without a sequence"));
    }
    Ok(info)
}

/// The header at the start of `bytes`, once length and format say that it is one. Both are judged before the rest of it is
/// there: a short message of an old format is refused as such.
fn header_of(bytes: &[u8]) -> Result<&Header, BatchError> {
    if let Some((_, after_offset)) = bytes.split_first_chunk::<8>()
        && let Some((&length, after_length)) = after_offset.split_first_chunk::<4>()
    {
        let length = i32::from_be_bytes(length);
        match after_length.get(4).map(|&byte| byte.cast_signed()) {
            _ if length < LENGTH_MIN_ANY_FORMAT => return Err(BatchError::Length(length)),
            Some(magic) if magic != 2 => return Err(BatchError::Magic(magic)),
            Some(_) if length < LENGTH_MIN => return Err(BatchError::Length(length)),
            _ => {}
        }
    }
    let truncated = BatchError::Truncated { need: HEADER_BYTES as u64, have: bytes.len() as u64 };
    Header::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| truncated)
}

/// The batch that `header` begins, when all of it is there.
fn whole<'a>(bytes: &'a [u8], header: &Header) -> Result<&'a [u8], BatchError> {
    let need = header.batch_bytes();
    bytes.get(..need as usize).ok_or(BatchError::Truncated { need: need.into(), have: bytes.len() as u64 })
}

fn info_of(header: &Header) -> Result<BatchInfo, BatchError> {
    let attributes = header.attributes.get();
    let last_offset_delta =
        u32::try_from(header.last_offset_delta.get()).map_err(|_| BatchError::Invalid("negative last offset delta"))?;
    let records = u32::try_from(header.records.get()).map_err(|_| BatchError::Invalid("negative record count"))?;
    if u64::from(records) > u64::from(last_offset_delta) + 1 {
        return Err(BatchError::Invalid("more records than offsets"));
    }
    Ok(BatchInfo {
        base_offset: header.base_offset.get(),
        bytes: header.batch_bytes(),
        leader_epoch: header.leader_epoch.get(),
        last_offset_delta,
        codec: Codec::from_bits(attributes & CODEC_MASK),
        log_append_time: attributes & LOG_APPEND_TIME != 0,
        transactional: attributes & TRANSACTIONAL != 0,
        control: attributes & CONTROL != 0,
        delete_horizon: attributes & DELETE_HORIZON != 0,
        base_timestamp: header.base_timestamp.get(),
        max_timestamp: header.max_timestamp.get(),
        producer: producer_stamp(header)?,
        records,
        crc: header.crc.get(),
    })
}

fn producer_stamp(header: &Header) -> Result<Option<ProducerStamp>, BatchError> {
    let Some(id) = ProducerId::new(header.producer_id.get()) else { return Ok(None) };
    let epoch = ProducerEpoch::new(header.producer_epoch.get());
    let epoch = epoch.ok_or(BatchError::Invalid("a producer id without an epoch"))?;
    Ok(Some(ProducerStamp { id, epoch, base_sequence: Sequence::new(header.base_sequence.get()) }))
}

/// Writes base offset and leader epoch, both outside the CRC. Panics when `bytes` is shorter than a header: it was checked.
pub fn stamp(bytes: &mut [u8], base_offset: Offset, epoch: LeaderEpoch) {
    let header = header_mut(bytes);
    header.base_offset.set(base_offset.value());
    header.leader_epoch.set(epoch.value());
}

/// Marks the batch LogAppendTime with `now` and mends the CRC. `bytes` is exactly one checked batch.
pub fn set_log_append_time(bytes: &mut [u8], now: TimestampMs) {
    rewrite(bytes, |header| {
        header.attributes.set(header.attributes.get() | LOG_APPEND_TIME);
        header.max_timestamp.set(now);
    });
}

/// Takes the mark of [`set_log_append_time`] off, which a client may not set, and mends the CRC. The largest timestamp
/// stays. `bytes` is exactly one checked batch.
pub fn set_create_time(bytes: &mut [u8]) {
    rewrite(bytes, |header| header.attributes.set(header.attributes.get() & !LOG_APPEND_TIME));
}

/// Replaces a largest timestamp that was not the truth and mends the CRC. `bytes` is exactly one checked batch.
pub fn set_max_timestamp(bytes: &mut [u8], max_timestamp: TimestampMs) {
    rewrite(bytes, |header| header.max_timestamp.set(max_timestamp));
}

/// Changes checksummed header fields and computes the checksum anew. The caller has checked the batch: damage would be signed.
/// The checksum of a combination (`crc32c_combine`) would spare reading the records, but costs 8–17 µs, more than summing
/// up to 150 KiB again at 14 GB/s (2-core VM).
fn rewrite(bytes: &mut [u8], change: impl FnOnce(&mut Header)) {
    change(header_mut(bytes));
    let crc = checksum(bytes);
    header_mut(bytes).crc.set(crc);
}

/// Of a whole batch.
fn checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(CHECKED_FROM..).expect("a batch is longer than its header"))
}

fn header_mut(bytes: &mut [u8]) -> &mut Header {
    Header::mut_from_prefix(bytes).expect("a checked batch holds a header").0
}
