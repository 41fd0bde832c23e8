//! The records inside a batch, borrowed one by one, and the rules a broker may have to hold them to.
//!
//! Pure. Owns the record format (zig-zag varints) and the walk over it. Always true: a length or count is compared with the
//! bytes that are left before it is used, and a batch yields exactly the records its header counted or an error.
//! Source: Kafka's "Record" format; `DefaultRecord` and `LogValidator` for what is refused.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::{BatchError, BatchInfo, Codec, HEADER_BYTES, codecs, header_of, info_of, whole};
use crate::types::TimestampMs;

/// One record, borrowed from its batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Record<'a> {
    /// Offset minus the batch's base offset.
    pub offset_delta: u32,
    /// Absolute; in LogAppendTime batches the append's time for every record.
    pub timestamp: TimestampMs,
    /// `None` is null, not empty.
    pub key: Option<&'a [u8]>,
    /// `None` is null: a tombstone in compacted topics.
    pub value: Option<&'a [u8]>,
    /// In the order of the bytes; names may repeat.
    pub headers: Vec<RecordHeader<'a>>,
}

/// One header of a record: its name, and a value that may be null. A name that is not UTF-8, which C clients can send, reads
/// as U+FFFD.
pub type RecordHeader<'a> = (&'a str, Option<&'a [u8]>);

/// The records of a whole checked batch: borrowed where they lie uncompressed, else decompressed into memory of their own.
pub struct Records<'a> {
    info: BatchInfo,
    body: Cow<'a, [u8]>,
}

impl<'a> Records<'a> {
    /// Opens the batch at the start of `batch`; its records may take `bytes_max` bytes once decompressed. The CRC is not
    /// checked here. Errors: those of the header, `Unreadable` for an unknown codec or a broken stream, `TooLarge`.
    pub fn open(batch: &'a [u8], bytes_max: usize) -> Result<Self, BatchError> {
        let header = header_of(batch)?;
        let info = info_of(header)?;
        let stored = whole(batch, header)?.get(HEADER_BYTES..).expect("a batch is longer than its header");
        let codec = info.codec.ok_or(BatchError::Unreadable("unknown codec"))?;
        let body = match codec {
            Codec::None if stored.len() > bytes_max => return Err(BatchError::TooLarge { bytes_max }),
            Codec::None => Cow::Borrowed(stored),
            codec => Cow::Owned(codecs::decompress(codec, stored, bytes_max)?),
        };
        Ok(Self { info, body })
    }

    /// The batch's header.
    pub fn info(&self) -> &BatchInfo {
        &self.info
    }

    /// The records' bytes without compression.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The records' bytes without compression, kept: with [`RecordIter::resume`] for a reader that takes them in portions.
    pub fn into_body(self) -> Cow<'a, [u8]> {
        self.body
    }

    /// One by one; ends after an error. Offset deltas rise, stay within the batch, and come out exactly as many as counted.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::resume(&self.info, &self.body, RecordsMark::start(&self.info))
    }
}

/// Where a walk over a batch's records stands between two portions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordsMark {
    bytes_read: usize,
    left: u32,
    offset_delta_min: u32,
}

impl RecordsMark {
    /// Before the first record.
    pub fn start(info: &BatchInfo) -> Self {
        Self { bytes_read: 0, left: info.records, offset_delta_min: 0 }
    }

    /// Records that are still to come, as the header counts them.
    pub fn left(&self) -> u32 {
        self.left
    }
}

/// See [`Records::iter`].
pub struct RecordIter<'a> {
    info: &'a BatchInfo,
    rest: Cursor<'a>,
    left: u32,
    offset_delta_min: u32,
    ended: bool,
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = match (self.left, self.rest.0.is_empty()) {
            (0, true) => None,
            (0, false) => Some(Err(BatchError::Invalid("bytes after the last record"))),
            (_, true) => Some(Err(BatchError::Invalid("fewer records than the header counts"))),
            _ => Some(self.read_record()),
        };
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl<'a> RecordIter<'a> {
    /// Goes on at `mark` over the `body` of the batch of which `info` is the header. A mark of another batch gives other
    /// records or an error, as damaged bytes would.
    pub fn resume(info: &'a BatchInfo, body: &'a [u8], mark: RecordsMark) -> Self {
        RecordIter {
            info,
            rest: Cursor(body.get(mark.bytes_read..).unwrap_or_default()),
            left: mark.left,
            offset_delta_min: mark.offset_delta_min,
            ended: false,
        }
    }

    /// Where it stands; `body` is the one it was begun with.
    pub fn mark(&self, body: &[u8]) -> RecordsMark {
        RecordsMark {
            bytes_read: body.len().saturating_sub(self.rest.0.len()),
            left: self.left,
            offset_delta_min: self.offset_delta_min,
        }
    }

    fn read_record(&mut self) -> Result<Record<'a>, BatchError> {
        let record_bytes = self.rest.length()?;
        let mut fields = Cursor(self.rest.take(record_bytes)?);
        let _attributes = fields.take(1)?; // no bit of it has a meaning yet
        let timestamp_delta = fields.varlong()?;
        let offset_delta = fields.varint()?;
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        let headers = read_headers(&mut fields)?;
        if !fields.0.is_empty() {
            return Err(BatchError::Invalid("a record is longer than its fields"));
        }
        let offset_delta = u32::try_from(offset_delta)
            .ok()
            .filter(|delta| (self.offset_delta_min..=self.info.last_offset_delta).contains(delta))
            .ok_or(BatchError::Invalid("record offsets do not rise within the batch"))?;
        self.offset_delta_min = offset_delta + 1;
        self.left -= 1;
        let timestamp = if self.info.log_append_time {
            self.info.max_timestamp
        } else {
            // Java wraps here too: an absurd delta is the client's data, not a broken record.
            self.info.base_timestamp.wrapping_add(timestamp_delta)
        };
        Ok(Record { offset_delta, timestamp, key, value, headers })
    }
}

fn read_headers<'a>(fields: &mut Cursor<'a>) -> Result<Vec<RecordHeader<'a>>, BatchError> {
    const HEADER_BYTES_MIN: usize = 2; // the lengths of an empty name and of a null value
    let count = fields.length()?;
    if count > fields.0.len() / HEADER_BYTES_MIN {
        return Err(BatchError::Invalid("more headers than bytes for them"));
    }
    let mut headers = Vec::new();
    for _ in 0..count {
        let name_bytes = fields.length()?;
        let name = std::str::from_utf8(fields.take(name_bytes)?).unwrap_or("\u{fffd}");
        headers.push((name, fields.nullable()?));
    }
    Ok(headers)
}

/// The bytes of a record that are still to be read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BatchError> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(BatchError::Invalid("a field ends past its record"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A length or count, which may not be negative.
    fn length(&mut self) -> Result<usize, BatchError> {
        usize::try_from(self.varint()?).map_err(|_| BatchError::Invalid("a negative length"))
    }

    /// Bytes behind their length, −1 being null.
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, BatchError> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| BatchError::Invalid("a negative length"))?;
                self.take(length).map(Some)
            }
        }
    }

    fn varint(&mut self) -> Result<i32, BatchError> {
        let number = self.unsigned(5)?;
        let zigzag = u32::try_from(number).map_err(|_| BatchError::Invalid("a varint of more than 32 bits"))?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    fn varlong(&mut self) -> Result<i64, BatchError> {
        let zigzag = self.unsigned(10)?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Seven bits a byte, lowest first, the top bit meaning "more".
    fn unsigned(&mut self, bytes_max: usize) -> Result<u64, BatchError> {
        let mut number = 0;
        for (position, &byte) in self.0.iter().enumerate().take(bytes_max) {
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * position);
            if shifted >> (7 * position) != bits {
                return Err(BatchError::Invalid("a varint of more than 64 bits"));
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                self.0 = self.0.get(position + 1..).expect("the byte at this position was read");
                return Ok(number);
            }
        }
        Err(BatchError::Invalid("a varint without an end"))
    }
}

/// What a topic asks of each record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRules {
    /// The topic is compacted: a record without a key could never be replaced.
    pub keys_required: bool,
    /// Which timestamps are taken; −1 ("none") always is. Unbounded for LogAppendTime topics.
    pub timestamps: RangeInclusive<TimestampMs>,
}

/// What a walk over good records found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFacts {
    /// The truth about the header's maximum timestamp.
    pub max_timestamp: TimestampMs,
    /// Bytes of the records without compression.
    pub bytes: usize,
}

/// One record that a topic's rules refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFault {
    /// Its place in the batch, from 0.
    pub index: u32,
    /// The rule it breaks.
    pub kind: RecordFaultKind,
}

/// Which rule a record breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFaultKind {
    /// No key in a compacted topic.
    KeyMissing,
    /// A timestamp outside the topic's bounds.
    Timestamp(TimestampMs),
}

/// Why a batch's records are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// The batch is broken.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Single records break the topic's rules, and the whole batch is refused for them: INVALID_TIMESTAMP if any fault is
    /// one of time, else INVALID_RECORD. The list is in order and ends after [`REPORTED_FAULTS_MAX`].
    #[error("{} records refused, the first at index {}", .0.len(), .0.first().map_or(0, |fault| fault.index))]
    Refused(Vec<RecordFault>),
}

/// How many refused records an answer names. Kafka names all, which lets a batch of empty records fetch an answer many
/// times its size; past the first hundred nobody learns anything new.
pub const REPORTED_FAULTS_MAX: usize = 100;

/// Walks every record of a checked batch: for compacted topics, for timestamp bounds and for `engine.validate.records`. The
/// records may take `bytes_max` bytes once decompressed.
pub fn validate_records(batch: &[u8], rules: &RecordRules, bytes_max: usize) -> Result<RecordFacts, RecordsError> {
    let records = Records::open(batch, bytes_max)?;
    let mut faults = Vec::new();
    let mut max_timestamp = TimestampMs::MIN;
    for (record, index) in records.iter().zip(0..) {
        let record = record?;
        max_timestamp = max_timestamp.max(record.timestamp);
        let fault = if rules.keys_required && record.key.is_none() {
            RecordFaultKind::KeyMissing
        } else if record.timestamp != -1 && !rules.timestamps.contains(&record.timestamp) {
            RecordFaultKind::Timestamp(record.timestamp)
        } else {
            continue;
        };
        if faults.len() < REPORTED_FAULTS_MAX {
            faults.push(RecordFault { index, kind: fault });
        }
    }
    if faults.is_empty() {
        Ok(RecordFacts { max_timestamp, bytes: records.body().len() })
    } else {
        Err(RecordsError::Refused(faults))
    }
}
