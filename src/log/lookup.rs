//! Offsets for times.
//!
//! Shell. Owns the search for a record by its timestamp: segment by its largest timestamp, place by the time index, batch by
//! its header, record by its own. Does not own the bound: the caller says below which offset an answer counts. Always: the
//! answer is what a scan of all records from the log start would find, also when that moves meanwhile. Source: KIP-79, KIP-734.

use std::rc::Rc;

use crate::protocol::batch::{self, BatchError, BatchInfo, Records};
use crate::rt;
use crate::rt::net::Payload;
use crate::types::{LeaderEpoch, Offset, TimestampMs};

use super::segment::Segment;
use super::{Log, ReadBounds, ReadData, ReadError};

/// How much one step of the search reads.
const STEP_BYTES: usize = 256 << 10;
/// A batch that grows beyond this when decompressed is not looked into.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;

/// A record that was searched for: its offset, its timestamp, the leader epoch of its batch.
type FoundRecord = (Offset, TimestampMs, LeaderEpoch);

impl Log {
    /// The first record below `below` with a timestamp of at least `at`.
    pub async fn find_timestamp(
        self: &Rc<Self>,
        at: TimestampMs,
        below: Offset,
    ) -> Result<Option<FoundRecord>, ReadError> {
        loop {
            let log_start = self.limits().log_start;
            let outcome = self.first_from(log_start, at, below).await;
            if !self.is_overtaken(&outcome, log_start) {
                return outcome;
            }
        }
    }

    /// The first record that holds the largest timestamp; `None` when that record is not below `below`, or none has one.
    pub async fn find_max_timestamp(self: &Rc<Self>, below: Offset) -> Result<Option<FoundRecord>, ReadError> {
        loop {
            let log_start = self.limits().log_start;
            let outcome = self.latest_from(log_start, below).await;
            if !self.is_overtaken(&outcome, log_start) {
                return outcome;
            }
        }
    }

    /// Whether the outcome of a search from `log_start` on says nothing: what it looked into may have been deleted meanwhile.
    fn is_overtaken(&self, outcome: &Result<Option<FoundRecord>, ReadError>, log_start: Offset) -> bool {
        let found_none = matches!(outcome, Ok(None) | Err(ReadError::Disk(_) | ReadError::OutOfRange { .. }));
        found_none && self.limits().log_start != log_start
    }

    async fn first_from(
        self: &Rc<Self>,
        log_start: Offset,
        at: TimestampMs,
        below: Offset,
    ) -> Result<Option<FoundRecord>, ReadError> {
        for segment in self.segments_from(log_start) {
            if self.newest(&segment).await? < at {
                continue;
            }
            let indexed = segment.with_index(&self.place.dir, |index| index.times.offset_before(at)).await;
            let from = indexed.map_err(|error| self.unreadable(&segment, &error))?.unwrap_or(segment.base);
            return self.scan_for(at, from.max(log_start), below).await;
        }
        Ok(None)
    }

    async fn latest_from(self: &Rc<Self>, log_start: Offset, below: Offset) -> Result<Option<FoundRecord>, ReadError> {
        let mut largest = None;
        for segment in self.segments_from(log_start) {
            let timestamp = segment.with_index(&self.place.dir, |index| index.max_timestamp()).await;
            largest = largest.max(timestamp.map_err(|error| self.unreadable(&segment, &error))?);
        }
        match largest {
            Some(timestamp) => self.first_from(log_start, timestamp, below).await,
            None => Ok(None),
        }
    }

    fn segments_from(&self, from: Offset) -> Vec<Rc<Segment>> {
        let state = self.state.borrow();
        let holding = state.segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
        state.segments.range(holding..).cloned().collect()
    }

    async fn newest(&self, segment: &Segment) -> Result<TimestampMs, ReadError> {
        segment.newest(&self.place.dir).await.map_err(|error| self.unreadable(segment, &error))
    }

    /// Walks the batches from `from` on.
    async fn scan_for(
        self: &Rc<Self>,
        at: TimestampMs,
        mut from: Offset,
        below: Offset,
    ) -> Result<Option<FoundRecord>, ReadError> {
        let bounds = ReadBounds { below, bytes_max: STEP_BYTES, at_least_one: true };
        while from < below.min(self.limits().log_end) {
            let data = self.plan_read(from, bounds)?.run().await?;
            if data.bytes == 0 {
                return Ok(None);
            }
            let bytes = joined(&data);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let info = batch::parse_header(rest).map_err(|error| self.bad_batch(from, &error))?;
                let Some((batch, after)) = rest.split_at_checked(info.bytes as usize) else {
                    return Err(self.bad_batch(from, &"it is cut short"));
                };
                if info.max_timestamp >= at
                    && let Some(found) = self.first_in(batch, &info, at)?
                {
                    return Ok(Some(found));
                }
                let last_offset = info.base_offset.saturating_add(i64::from(info.last_offset_delta));
                from = Offset::new(last_offset).ok_or_else(|| self.bad_batch(from, &"negative offset"))?.next();
                rest = after;
            }
            rt::yield_if_needed().await;
        }
        Ok(None)
    }

    fn first_in(&self, batch: &[u8], info: &BatchInfo, at: TimestampMs) -> Result<Option<FoundRecord>, ReadError> {
        let base = Offset::new(info.base_offset).unwrap_or_default();
        let log_start = self.limits().log_start;
        // What a producer was allowed to store unreadable holds no record for anybody; only damage done here is an error.
        let unreadable = |error: BatchError| match batch::check_stored(batch) {
            Ok(_) => Ok(None),
            Err(_) => Err(self.bad_batch(base, &error)),
        };
        let records = match Records::open(batch, DECOMPRESSED_BYTES_MAX) {
            Ok(records) => records,
            Err(error) => return unreadable(error),
        };
        for record in records.iter() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return unreadable(error),
            };
            let offset = base.plus(record.offset_delta);
            // Records below the log start are gone for readers, though their batch is still there.
            if record.timestamp >= at && offset >= log_start {
                return Ok(Some((offset, record.timestamp, LeaderEpoch::new(info.leader_epoch).unwrap_or_default())));
            }
        }
        Ok(None)
    }

    fn unreadable(&self, segment: &Segment, error: &std::io::Error) -> ReadError {
        if self.is_ended() {
            return ReadError::Closed;
        }
        ReadError::Disk(format!("{}: {error}", self.file_name(segment)))
    }

    fn bad_batch(&self, offset: Offset, reason: &dyn std::fmt::Display) -> ReadError {
        ReadError::Disk(format!("{}: batch at offset {offset}: {reason}", self.place.dir.display()))
    }
}

fn joined(data: &ReadData) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.bytes);
    for part in &data.parts {
        match part {
            Payload::Mem(part) => bytes.extend_from_slice(part),
            Payload::Disk(part) => bytes.extend_from_slice(part.as_slice()),
        }
    }
    bytes
}
