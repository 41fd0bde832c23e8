//! The sparse indexes of one segment: last offset of a batch -> its position, and timestamp -> offset.
//!
//! Pure. Owns the entries and Kafka's byte formats of `.index` and `.timeindex`. Does not own files, nor the decision when a
//! segment is full. Always: entries grow strictly in both columns (timestamps strictly, their offsets at least equal), so a
//! lookup is a binary search, and a file whose entries do not grow is refused and rebuilt from the data. An index only says
//! where to begin scanning: the batches themselves decide what is found.
//! Source: Kafka's `OffsetIndex` (8 bytes an entry: i32 relative offset, i32 position) and `TimeIndex` (12 bytes: i64
//! timestamp, i32 relative offset), big-endian.

use crate::types::{Offset, TimestampMs};

/// Bytes of one `.index` entry.
pub const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of one `.timeindex` entry.
pub const TIME_ENTRY_BYTES: usize = 12;

/// Why bytes are no index of this segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexError {
    /// Not a whole number of entries.
    #[error("{bytes} bytes are not a whole number of entries of {entry_bytes}")]
    Length {
        /// bytes of the file
        bytes: usize,
        /// bytes of one entry
        entry_bytes: usize,
    },
    /// An entry that does not follow the one before it, or points outside the segment.
    #[error("entry {entry} is out of order or outside the segment")]
    Order {
        /// number of the entry, from 0
        entry: usize,
    },
}

/// One entry of [`OffsetIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OffsetEntry {
    relative_offset: u32,
    position: u32,
}

/// Last offset of a batch -> position of that batch in the segment's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<OffsetEntry>,
}

impl OffsetIndex {
    /// Empty, for the segment that begins at `base`.
    pub const fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Adds the batch at `position` whose last offset is `last_offset`. Panics if it does not lie after the entry before it,
    /// or if its offset does not fit: the segment rolls before that.
    pub fn push(&mut self, last_offset: Offset, position: u32) {
        let relative_offset =
            relative(self.base, last_offset).expect("a segment rolls before its relative offsets end");
        if let Some(last) = self.entries.last() {
            assert!(
                relative_offset > last.relative_offset && position > last.position,
                "index entry ({relative_offset}, {position}) after ({}, {})",
                last.relative_offset,
                last.position
            );
        }
        self.entries.push(OffsetEntry { relative_offset, position });
    }

    /// Where to begin scanning for `offset`: every batch before the answer ends below `offset`.
    pub fn position_of(&self, offset: Offset) -> u32 {
        if offset < self.base {
            return 0;
        }
        let wanted = self.base.distance_to(offset);
        let after = self.entries.partition_point(|entry| u64::from(entry.relative_offset) <= wanted);
        after.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(0, |entry| entry.position)
    }

    /// Bytes of the file this would be written to.
    pub fn bytes_len(&self) -> usize {
        self.entries.len() * OFFSET_ENTRY_BYTES
    }

    /// The bytes of `.index`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes_len());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// Reads `.index` of the segment at `base` whose data file has `segment_bytes`.
    pub fn parse(base: Offset, bytes: &[u8], segment_bytes: u64) -> Result<Self, IndexError> {
        let (chunks, []) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>() else {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: OFFSET_ENTRY_BYTES });
        };
        let mut entries: Vec<OffsetEntry> = Vec::with_capacity(chunks.len());
        for (number, &[o0, o1, o2, o3, p0, p1, p2, p3]) in chunks.iter().enumerate() {
            let relative_offset = u32::from_be_bytes([o0, o1, o2, o3]);
            let position = u32::from_be_bytes([p0, p1, p2, p3]);
            let follows =
                entries.last().is_none_or(|last| relative_offset > last.relative_offset && position > last.position);
            if !follows || u64::from(position) >= segment_bytes || relative_offset > i32::MAX as u32 {
                return Err(IndexError::Order { entry: number });
            }
            entries.push(OffsetEntry { relative_offset, position });
        }
        Ok(Self { base, entries })
    }
}

/// One entry of [`TimeIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimeEntry {
    timestamp: TimestampMs,
    relative_offset: u32,
}

/// Largest timestamp so far -> last offset of the batch that first reached it: no record up to that offset is younger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<TimeEntry>,
}

impl TimeIndex {
    /// Empty, for the segment that begins at `base`.
    pub const fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Adds an entry, unless `timestamp` is no larger than the last entry's (records need not come in the order of their
    /// timestamps). Panics if `offset` is before the last entry's or does not fit.
    pub fn push(&mut self, timestamp: TimestampMs, offset: Offset) {
        let relative_offset = relative(self.base, offset).expect("a segment rolls before its relative offsets end");
        if let Some(last) = self.entries.last() {
            if timestamp <= last.timestamp {
                return;
            }
            assert!(relative_offset >= last.relative_offset, "time index goes back to {offset}");
        }
        self.entries.push(TimeEntry { timestamp, relative_offset });
    }

    /// Where to begin scanning for the first record with a timestamp of at least `timestamp`: no record before the batch that
    /// holds the answer has one. `None`: at the segment's beginning.
    pub fn offset_before(&self, timestamp: TimestampMs) -> Option<Offset> {
        let after = self.entries.partition_point(|entry| entry.timestamp <= timestamp);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        Some(self.base.plus(entry.relative_offset))
    }

    /// The first timestamp noted.
    pub fn first_timestamp(&self) -> Option<TimestampMs> {
        self.entries.first().map(|entry| entry.timestamp)
    }

    /// The largest timestamp noted, and the last offset of the batch that brought it.
    pub fn last(&self) -> Option<(TimestampMs, Offset)> {
        self.entries.last().map(|entry| (entry.timestamp, self.base.plus(entry.relative_offset)))
    }

    /// Bytes of the file this would be written to.
    pub fn bytes_len(&self) -> usize {
        self.entries.len() * TIME_ENTRY_BYTES
    }

    /// The bytes of `.timeindex`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes_len());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.timestamp.to_be_bytes());
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
        }
        bytes
    }

    /// Reads `.timeindex` of the segment at `base`.
    pub fn parse(base: Offset, bytes: &[u8]) -> Result<Self, IndexError> {
        let (chunks, []) = bytes.as_chunks::<TIME_ENTRY_BYTES>() else {
            return Err(IndexError::Length { bytes: bytes.len(), entry_bytes: TIME_ENTRY_BYTES });
        };
        let mut entries: Vec<TimeEntry> = Vec::with_capacity(chunks.len());
        for (number, &[t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3]) in chunks.iter().enumerate() {
            let timestamp = i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
            let relative_offset = u32::from_be_bytes([o0, o1, o2, o3]);
            let follows =
                entries.last().is_none_or(|last| timestamp > last.timestamp && relative_offset >= last.relative_offset);
            if !follows || relative_offset > i32::MAX as u32 {
                return Err(IndexError::Order { entry: number });
            }
            entries.push(TimeEntry { timestamp, relative_offset });
        }
        Ok(Self { base, entries })
    }
}

/// Both indexes of one segment and what decides when they get an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentIndex {
    /// By offset.
    pub offsets: OffsetIndex,
    /// By time.
    pub times: TimeIndex,
    bytes_since_entry: u64,
    /// Largest timestamp so far and the last offset of the batch that brought it.
    largest: Option<(TimestampMs, Offset)>,
}

impl SegmentIndex {
    /// Empty, for the segment that begins at `base`.
    pub const fn new(base: Offset) -> Self {
        Self { offsets: OffsetIndex::new(base), times: TimeIndex::new(base), bytes_since_entry: 0, largest: None }
    }

    /// What the two files of a segment said.
    pub fn from_parts(offsets: OffsetIndex, times: TimeIndex) -> Self {
        let largest = times.last();
        Self { offsets, times, bytes_since_entry: 0, largest }
    }

    /// Notes one more batch, which lies at `position`: an entry once more than `interval_bytes` lie between it and the last
    /// one. Kafka's rule, so the same log gives the same files.
    pub fn on_batch(&mut self, batch: IndexedBatch, interval_bytes: u32) {
        // Kafka begins at -1: records without a timestamp leave no trace in the time index.
        if batch.max_timestamp > self.largest.map_or(-1, |(timestamp, _)| timestamp) {
            self.largest = Some((batch.max_timestamp, batch.last_offset));
        }
        if self.bytes_since_entry > u64::from(interval_bytes) {
            self.offsets.push(batch.last_offset, batch.position);
            self.note_largest();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += u64::from(batch.bytes);
    }

    /// Whether either index would pass `bytes_max` with two more entries (one for a batch, one for the end of the segment).
    pub fn is_full(&self, bytes_max: u32) -> bool {
        let bytes_max = bytes_max as usize;
        self.offsets.bytes_len() + OFFSET_ENTRY_BYTES > bytes_max
            || self.times.bytes_len() + 2 * TIME_ENTRY_BYTES > bytes_max
    }

    /// The segment takes no more batches: its largest timestamp becomes the last entry of the time index.
    pub fn finish(&mut self) {
        self.note_largest();
    }

    /// The largest timestamp of any batch so far; `None` when no record had one.
    pub fn max_timestamp(&self) -> Option<TimestampMs> {
        self.largest.map(|(timestamp, _)| timestamp)
    }

    fn note_largest(&mut self) {
        if let Some((timestamp, offset)) = self.largest {
            self.times.push(timestamp, offset);
        }
    }
}

/// What an index needs to know of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedBatch {
    /// Where it lies in the segment's file.
    pub position: u32,
    /// Its length.
    pub bytes: u32,
    /// Its last offset.
    pub last_offset: Offset,
    /// The largest timestamp of its records.
    pub max_timestamp: TimestampMs,
}

/// `offset` as an index entry of the segment at `base`; `None` when it does not fit Kafka's 31 bits.
pub fn relative(base: Offset, offset: Offset) -> Option<u32> {
    let distance = offset.value().checked_sub(base.value())?;
    i32::try_from(distance).ok().and_then(|distance| u32::try_from(distance).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offset(value: i64) -> Offset {
        Offset::new(value).unwrap()
    }

    #[test]
    fn bytes_are_kafkas() {
        let mut index = OffsetIndex::new(offset(100));
        index.push(offset(105), 4200);
        index.push(offset(0x0100_0064 + 1), 0x0001_0000);
        assert_eq!(index.to_bytes(), [0, 0, 0, 5, 0, 0, 0x10, 0x68, 1, 0, 0, 1, 0, 1, 0, 0]);
        assert_eq!(OffsetIndex::parse(offset(100), &index.to_bytes(), 1 << 20), Ok(index));

        let mut times = TimeIndex::new(offset(100));
        times.push(0x0102, offset(105));
        assert_eq!(times.to_bytes(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 5]);
        assert_eq!(TimeIndex::parse(offset(100), &times.to_bytes()), Ok(times));
    }

    #[test]
    fn files_that_do_not_grow_are_refused() {
        assert_eq!(
            OffsetIndex::parse(offset(0), &[0; 9], 100),
            Err(IndexError::Length { bytes: 9, entry_bytes: OFFSET_ENTRY_BYTES })
        );
        assert_eq!(OffsetIndex::parse(offset(0), &[0; 16], 100), Err(IndexError::Order { entry: 1 }));
        let past_the_end = [0, 0, 0, 1, 0, 0, 0, 100];
        assert_eq!(OffsetIndex::parse(offset(0), &past_the_end, 100), Err(IndexError::Order { entry: 0 }));
        assert_eq!(TimeIndex::parse(offset(0), &[0; 24]), Err(IndexError::Order { entry: 1 }));
    }

    #[test]
    fn an_older_timestamp_adds_no_entry() {
        let mut times = TimeIndex::new(offset(0));
        times.push(50, offset(3));
        times.push(40, offset(9));
        assert_eq!(times.bytes_len(), TIME_ENTRY_BYTES);
        assert_eq!((times.offset_before(49), times.offset_before(50)), (None, Some(offset(3))));
    }

    #[test]
    fn offsets_beyond_31_bits_do_not_fit() {
        assert_eq!(relative(offset(10), offset(10 + i64::from(i32::MAX))), Some(i32::MAX as u32));
        assert_eq!(relative(offset(10), offset(11 + i64::from(i32::MAX))), None);
        assert_eq!(relative(offset(10), offset(9)), None);
    }

    proptest! {
        #[test]
        fn lookups_equal_a_linear_scan(
            batches in prop::collection::vec((1_i64..50, 61_u32..3000, 0_i64..1000), 1..200),
            interval in 0_u32..8000,
            probes in prop::collection::vec((0_i64..12_000, 0_i64..1100), 20),
        ) {
            let base = offset(7);
            let mut index = SegmentIndex::new(base);
            let mut laid: Vec<(i64, IndexedBatch)> = Vec::new();
            let (mut next, mut position) = (7_i64, 0_u32);
            for (records, bytes, max_timestamp) in batches {
                let batch = IndexedBatch { position, bytes, last_offset: offset(next + records - 1), max_timestamp };
                index.on_batch(batch, interval);
                laid.push((next, batch));
                next += records;
                position += bytes;
            }
            index.finish();
            prop_assert_eq!(index.max_timestamp(), laid.iter().map(|(_, batch)| batch.max_timestamp).max());
            prop_assert_eq!(index.times.last().map(|(timestamp, _)| timestamp), index.max_timestamp());
            let reread = OffsetIndex::parse(base, &index.offsets.to_bytes(), u64::from(position)).unwrap();
            prop_assert_eq!(&reread, &index.offsets);
            prop_assert_eq!(&TimeIndex::parse(base, &index.times.to_bytes()).unwrap(), &index.times);

            for (wanted, timestamp) in probes {
                // By offset: scanning from the answer finds what scanning from the beginning finds.
                let wanted = offset(wanted);
                let from = index.offsets.position_of(wanted);
                let holds = |batch: &&(i64, IndexedBatch)| batch.1.last_offset >= wanted;
                let scanned = laid.iter().find(holds);
                let found = laid.iter().filter(|(_, batch)| batch.position >= from).find(holds);
                prop_assert_eq!(found, scanned);
                // By time: the same, beginning at the batch that holds the offset answered.
                let from = index.times.offset_before(timestamp).unwrap_or(base);
                let young = |batch: &&(i64, IndexedBatch)| batch.1.max_timestamp >= timestamp;
                let scanned = laid.iter().find(young);
                let found = laid.iter().filter(|(_, batch)| batch.last_offset >= from).find(young);
                prop_assert_eq!(found, scanned);
            }
        }
    }
}
