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
        Self::with_buffer(options, BytesMut::new())
    }

    /// Empty, in the memory of `buffer`, whose content is thrown away.
    pub fn with_buffer(options: BuilderOptions, mut buffer: BytesMut) -> Self {
        buffer.clear();
        buffer.resize(HEADER_BYTES, 0);
        Self { options, buffer, count: 0, base_timestamp: -1, max_timestamp: -1 }
    }

    /// Adds one record.
    pub fn push(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader<'_>],
    ) {
        self.push_within(usize::MAX, timestamp, key, value, headers.iter().copied());
    }

    /// Adds one record if it takes at most `room` bytes, length field included; false if it takes more.
    pub fn push_within<'h>(
        &mut self,
        room: usize,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = RecordHeader<'h>> + Clone,
    ) -> bool {
        let first = self.count == 0;
        let (timestamp_delta, offset_delta) = self.deltas(timestamp);
        let record_bytes = self.record_bytes(timestamp, key, value, headers.clone());
        if record_bytes + varint_bytes(length(record_bytes)) > room {
            return false;
        }
        if first {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;

        // The small fields are put together first: one append to the buffer instead of six.
        let mut small = Small::new();
        small.varint(length(record_bytes));
        small.byte(0); // attributes
        small.varint(timestamp_delta);
        small.varint(offset_delta);
        let out = &mut self.buffer;
        match key {
            None => small.varint(-1),
            Some(key) => {
                small.varint(length(key.len()));
                out.extend_from_slice(small.take());
                out.extend_from_slice(key);
            }
        }
        small.varint(value.map_or(-1, |value| length(value.len())));
        out.extend_from_slice(small.take());
        if let Some(value) = value {
            out.extend_from_slice(value);
        }
        if headers.len() == 0 {
            out.put_u8(0);
            return true;
        }
        put_varint(out, length(headers.len()));
        for (name, value) in headers {
            put_nullable(out, Some(name.as_bytes()));
            put_nullable(out, value);
        }
        true
    }

    /// Bytes a record would take if it were the next, length field included.
    pub fn next_bytes<'h>(
        &self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = RecordHeader<'h>>,
    ) -> usize {
        let record_bytes = self.record_bytes(timestamp, key, value, headers);
        record_bytes + varint_bytes(length(record_bytes))
    }

    /// Of the next record: timestamp and offset, counted from the batch's.
    fn deltas(&self, timestamp: TimestampMs) -> (i64, i64) {
        let timestamp_delta = if self.count == 0 { 0 } else { timestamp.wrapping_sub(self.base_timestamp) };
        (timestamp_delta, i64::from(self.count))
    }

    /// Of the next record, without its length field.
    fn record_bytes<'h>(
        &self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = RecordHeader<'h>>,
    ) -> usize {
        let (timestamp_delta, offset_delta) = self.deltas(timestamp);
        let count = headers.len();
        let headers_bytes: usize =
            headers.map(|(name, value)| nullable_bytes(Some(name.as_bytes())) + nullable_bytes(value)).sum();
        1 + varint_bytes(timestamp_delta)
            + varint_bytes(offset_delta)
            + nullable_bytes(key)
            + nullable_bytes(value)
            + varint_bytes(length(count))
            + headers_bytes
    }

    /// Records so far.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the batch so far, before compression.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that fit before the buffer has to grow.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Says whose batch it is: known only when it is about to be sent.
    pub fn set_producer(&mut self, producer: Option<ProducerStamp>) {
        self.options.producer = producer;
    }

    /// The finished batch with base offset 0 and leader epoch −1. Panics when it holds no record: no such batch may exist.
    pub fn finish(self) -> BytesMut {
        self.finish_keeping().0
    }

    /// [`Builder::finish`], and the buffer the records were gathered in, when they were compressed out of it into another.
    pub fn finish_keeping(self) -> (BytesMut, Option<BytesMut>) {
        assert!(self.count > 0, "a batch was finished without records");
        let Self { options, buffer, .. } = self;
        let (mut batch, kept) = match options.codec {
            Codec::None => (buffer, None),
            codec => {
                let body = buffer.get(HEADER_BYTES..).expect("room for the header was made");
                (compressed(body, codec, options.level), Some(buffer))
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
            producer_id: (-1).into(),
            producer_epoch: (-1).into(),
            base_sequence: (-1).into(),
            records: count.into(),
        };
        put_producer(header_mut(&mut batch), options.producer);
        seal(&mut batch);
        (batch, kept)
    }
}

/// Most bytes that a record can take in a batch, length field included, whatever its timestamp and its place. Java's
/// `DefaultRecord.recordSizeUpperBound`.
pub fn record_bytes_max<'h>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = RecordHeader<'h>>,
) -> usize {
    const LENGTH_ATTRIBUTES_AND_DELTAS: usize = 5 + 1 + 10 + 5;
    // Asked of what may be too large for any batch, so without `length`.
    let number = |count: usize| varint_bytes(i64::try_from(count).unwrap_or(i64::MAX));
    let field = |bytes: Option<&[u8]>| bytes.map_or(1, |bytes| number(bytes.len()) + bytes.len());
    let count = number(headers.len());
    let headers: usize = headers.map(|(name, value)| field(Some(name.as_bytes())) + field(value)).sum();
    LENGTH_ATTRIBUTES_AND_DELTAS + field(key) + field(value) + count + headers
}

/// Makes a finished batch another producer's, or gives it another sequence, and mends the CRC. `bytes` is exactly one checked
/// batch.
pub fn set_producer(bytes: &mut [u8], producer: Option<ProducerStamp>) {
    rewrite(bytes, |header| put_producer(header, producer));
}

fn put_producer(header: &mut Header, producer: Option<ProducerStamp>) {
    header.producer_id.set(producer.map_or(-1, |producer| producer.id.value()));
    header.producer_epoch.set(producer.map_or(-1, |producer| producer.epoch.value()));
    let sequence = producer.and_then(|producer| producer.base_sequence);
    header.base_sequence.set(sequence.map_or(-1, |sequence| sequence.value()));
}

/// The small fields of a record on their way into the buffer: at most four varints and a byte at a time.
struct Small {
    bytes: [u8; 40],
    length: usize,
}

#[expect(clippy::indexing_slicing, reason = "five fields of at most 10 bytes between two calls of take, 31 in fact")]
impl Small {
    fn new() -> Self {
        Self { bytes: [0; 40], length: 0 }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    fn varint(&mut self, number: i64) {
        let mut rest = zigzag(number);
        while rest >= 0x80 {
            self.byte((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.byte((rest & 0x7f) as u8);
    }

    /// What was put since the last time.
    #[inline]
    fn take(&mut self) -> &[u8] {
        &self.bytes[..std::mem::replace(&mut self.length, 0)]
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
