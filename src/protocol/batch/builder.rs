//! Building batches: our own records (offsets of groups, markers), the client's, and a producer's under another codec.
//!
//! Pure. Owns the encoding of records. Always true: what is built here passes [`super::check`].
//! Source: Kafka's "Record Batch" format; `LogValidator` for what re-encoding keeps.

use bytes::{BufMut, BytesMut};

use super::{
    BatchError, CODEC_MASK, CONTROL, Codec, HEADER_BYTES, Header, ProducerStamp, TRANSACTIONAL, UNCOUNTED_BYTES,
};
use super::{RecordHeader, Records, codecs, header_mut, rewrite};
use crate::types::TimestampMs;

/// What a builder is told of its batch.
#[derive(Clone, Copy, Debug)]
pub struct BuilderOptions {
    /// How the records are compressed.
    pub codec: Codec,
    /// As the codec counts it; `None` is Kafka's default.
    pub level: Option<i32>,
    /// Of an idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// Part of a transaction.
    pub transactional: bool,
    /// A marker of a transaction, not data.
    pub control: bool,
}

/// Builds one batch, record by record.
pub struct Builder {
    options: BuilderOptions,
    /// Room for the header, then the records without compression.
    buffer: BytesMut,
    count: u32,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
}

impl Builder {
    /// Empty.
    pub fn new(options: BuilderOptions) -> Self {
        Self { options, buffer: BytesMut::zeroed(HEADER_BYTES), count: 0, base_timestamp: -1, max_timestamp: -1 }
    }

    /// Adds one record.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let offset_delta = i64::from(self.count);

        let headers_bytes: usize =
            headers.iter().map(|(name, value)| nullable_bytes(Some(name.as_bytes())) + nullable_bytes(*value)).sum();
        let record_bytes = 1
            + varint_bytes(timestamp_delta)
            + varint_bytes(offset_delta)
            + nullable_bytes(key)
            + nullable_bytes(value)
            + varint_bytes(length(headers.len()))
            + headers_bytes;

        let out = &mut self.buffer;
        put_varint(out, length(record_bytes));
        out.put_u8(0); // attributes
        put_varint(out, timestamp_delta);
        put_varint(out, offset_delta);
        put_nullable(out, key);
        put_nullable(out, value);
        put_varint(out, length(headers.len()));
        for (name, value) in headers {
            put_nullable(out, Some(name.as_bytes()));
            put_nullable(out, *value);
        }
        self.count += 1;
    }

    /// Records so far.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the batch so far, before compression.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The finished batch with base offset 0 and leader epoch −1. Panics when it holds no record: no such batch may exist.
    pub fn finish(self) -> BytesMut {
        assert!(self.count > 0, "a batch was finished without records");
        let Self { options, buffer, .. } = self;
        let mut batch = match options.codec {
            Codec::None => buffer,
            codec => {
                compressed(buffer.get(HEADER_BYTES..).expect("room for the header was made"), codec, options.level)
            }
        };
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let count = i32::try_from(self.count).expect("a batch never holds 2^31 records");
        *header_mut(&mut batch) = Header {
            base_offset: 0.into(),
            length: 0.into(),
            leader_epoch: (-1).into(),
            magic: 2,
            crc: 0.into(),
            attributes: (options.codec.bits()
                | flag(options.transactional, TRANSACTIONAL)
                | flag(options.control, CONTROL))
            .into(),
            last_offset_delta: (count - 1).into(),
            base_timestamp: self.base_timestamp.into(),
            max_timestamp: self.max_timestamp.into(),
            producer_id: options.producer.map_or(-1, |producer| producer.id.value()).into(),
            producer_epoch: options.producer.map_or(-1, |producer| producer.epoch.value()).into(),
            base_sequence: options
                .producer
                .and_then(|producer| producer.base_sequence)
                .map_or(-1, |sequence| sequence.value())
                .into(),
            records: count.into(),
        };
        seal(&mut batch);
        batch
    }
}

/// The same records under another codec, each of them read on the way: re-encoding never hides a broken record. Everything
/// else in the header stays, but for a maximum timestamp that was not the truth. The records may take `bytes_max` bytes
/// once decompressed.
pub fn recompress(batch: &[u8], codec: Codec, level: Option<i32>, bytes_max: usize) -> Result<BytesMut, BatchError> {
    let records = Records::open(batch, bytes_max)?;
    let mut max_timestamp = TimestampMs::MIN;
    for record in records.iter() {
        max_timestamp = max_timestamp.max(record?.timestamp);
    }
    let mut out = compressed(records.body(), codec, level);
    let (room, _) = out.split_at_mut(HEADER_BYTES);
    room.copy_from_slice(batch.get(..HEADER_BYTES).expect("the batch was opened"));
    let header = header_mut(&mut out);
    header.attributes.set(header.attributes.get() & !CODEC_MASK | codec.bits());
    if records.info().records > 0 {
        header.max_timestamp.set(max_timestamp);
    }
    seal(&mut out);
    Ok(out)
}

/// Room for a header, then `body` under `codec`.
fn compressed(body: &[u8], codec: Codec, level: Option<i32>) -> BytesMut {
    let mut out = BytesMut::zeroed(HEADER_BYTES);
    codecs::compress(codec, level, body, &mut out);
    out
}

/// Writes length and checksum: the two fields that depend on all the others.
fn seal(batch: &mut [u8]) {
    let length = i32::try_from(batch.len() - UNCOUNTED_BYTES as usize).expect("a batch stays below 2 GiB");
    rewrite(batch, |header| header.length.set(length));
}

fn length(count: usize) -> i64 {
    i64::from(i32::try_from(count).expect("lengths in a batch stay below 2 GiB"))
}

fn nullable_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint_bytes(length(bytes.len())) + bytes.len())
}

fn put_nullable(out: &mut BytesMut, field: Option<&[u8]>) {
    match field {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

/// Zig-zag: small numbers of either sign take few bytes.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn varint_bytes(number: i64) -> usize {
    let bits = (u64::BITS - zigzag(number).leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

fn put_varint(out: &mut BytesMut, number: i64) {
    let mut rest = zigzag(number);
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8((rest & 0x7f) as u8);
}
