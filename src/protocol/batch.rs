//! Record batch v2 (stub: owner replaces).
use bytes::BytesMut;
use crate::types::*;
/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;
/// Codec of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec { /** none */ None, /** gzip */ Gzip, /** snappy */ Snappy, /** lz4 */ Lz4, /** zstd */ Zstd }
/// Who produced a batch idempotently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerStamp { /** id */ pub id: ProducerId, /** epoch */ pub epoch: ProducerEpoch, /** first sequence */ pub base_sequence: Option<Sequence> }
/// The facts of one batch's header, copied out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchInfo {
    /// As it stands in the bytes (clients send 0).
    pub base_offset: i64,
    /// Whole batch, header included.
    pub bytes: u32,
    /// As it stands in the bytes.
    pub leader_epoch: i32,
    /// Last offset minus base offset.
    pub last_offset_delta: u32,
    /// Codec; `None` from the parser when unknown (5–7).
    pub codec: Option<Codec>,
    /// LogAppendTime bit.
    pub log_append_time: bool,
    /// Part of a transaction.
    pub transactional: bool,
    /// Control batch.
    pub control: bool,
    /// First record's timestamp.
    pub base_timestamp: TimestampMs,
    /// Largest.
    pub max_timestamp: TimestampMs,
    /// Idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// Count in the header.
    pub records: u32,
    /// CRC in the header.
    pub crc: u32,
}
/// Why bytes are no good batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError { /** too short */ #[error("cut short: {have} of {need} bytes")] Truncated { /** need */ need: u64, /** have */ have: u64 }, /** bad length field */ #[error("impossible batch length {0}")] Length(i32), /** not v2 */ #[error("message format {0}; only 2 is served")] Magic(i8), /** crc */ #[error("checksum mismatch")] Crc, /** counts */ #[error("{0}")] Invalid(&'static str) }
/// Reads the header of the first batch in `bytes` without checking the CRC. Needs only the header, not the whole batch.
pub fn parse_header(bytes: &[u8]) -> Result<BatchInfo, BatchError> { let _ = bytes; todo!() }
/// Structure, counts and CRC of exactly one whole batch at the start of `bytes`.
pub fn check(bytes: &[u8]) -> Result<BatchInfo, BatchError> { let _ = bytes; todo!() }
/// Writes base offset and leader epoch, both outside the CRC.
pub fn stamp(bytes: &mut [u8], base_offset: Offset, epoch: LeaderEpoch) { let _ = (bytes, base_offset, epoch); todo!() }
/// Marks the batch LogAppendTime with `now` and mends the CRC.
pub fn set_log_append_time(bytes: &mut [u8], now: TimestampMs) { let _ = (bytes, now); todo!() }
/// One record, borrowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<'a> { /** offset minus base */ pub offset_delta: u32, /** absolute */ pub timestamp: TimestampMs, /** key */ pub key: Option<&'a [u8]>, /** value */ pub value: Option<&'a [u8]>, /** headers in order */ pub headers: Vec<(&'a str, Option<&'a [u8]>)> }
/// The records of a whole checked batch, decompressed if need be (never more than `bytes_max`).
pub struct Records {}
impl Records {
    /// Opens.
    pub fn open(batch: &[u8], bytes_max: usize) -> Result<Self, BatchError> { let _ = (batch, bytes_max); todo!() }
    /// One by one; ends after an error.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'_>, BatchError>> { std::iter::empty() }
}
/// Builds one batch (our own records: coordinator, tests, client).
pub struct Builder {}
/// What a builder is told.
#[derive(Clone, Copy, Debug)]
pub struct BuilderOptions { /** codec */ pub codec: Codec, /** level */ pub level: Option<i32>, /** producer */ pub producer: Option<ProducerStamp>, /** transactional bit */ pub transactional: bool, /** control bit */ pub control: bool }
impl Builder {
    /// Empty.
    pub fn new(options: BuilderOptions) -> Self { let _ = options; todo!() }
    /// Adds one record.
    pub fn push(&mut self, timestamp: TimestampMs, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)]) { let _ = (timestamp, key, value, headers); todo!() }
    /// Records so far.
    pub fn count(&self) -> usize { todo!() }
    /// The finished batch with base offset 0 and leader epoch −1.
    pub fn finish(self) -> BytesMut { todo!() }
}
/// The same records under another codec, checked record by record.
pub fn recompress(batch: &[u8], codec: Codec, level: Option<i32>, bytes_max: usize) -> Result<BytesMut, BatchError> { let _ = (batch, codec, level, bytes_max); todo!() }
