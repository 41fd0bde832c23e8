//! Reads: from the tail cache without a copy, else from disk in aligned pieces with read-ahead.
//!
//! Shell. Owns the plan of a read and its way through a segment's file. Does not own what may be read: the caller bounds it.
//! Always: an answer is whole batches, as they lie on disk, in the order of their offsets, nothing at or above the bound;
//! bytes that are not known to be written are never shown. A plan holds its segments: what is rolled, deleted or closed
//! while it runs still answers with the right bytes, or with an error.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::protocol::batch::{self, BatchInfo, HEADER_BYTES};
use crate::rt;
use crate::rt::file::{BLOCK_BYTES, IO_BYTES_MAX};
use crate::rt::net::Payload;
use crate::types::Offset;

use super::runtime::{Chunk, ReadGuard};
use super::segment::Segment;
use super::{Log, ReadError};

/// Least bytes of a cold read.
const CHUNK_BYTES: usize = 128 << 10;
/// Least bytes that are read ahead for a sequential reader: as much as it took is read, since it will take that again.
const AHEAD_BYTES_MIN: usize = 256 << 10;
/// A read looks on in the next segment when the first has nothing for it (compaction leaves gaps), but not for ever.
const SEGMENTS_MAX: usize = 4;
/// Readers of one log that are recognised as sequential.
const READERS_MAX: usize = 8;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bounds of one read.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds {
    /// Nothing at or above it: high watermark or last stable offset, read once by the caller.
    pub below: Offset,
    /// Budget.
    pub bytes_max: usize,
    /// The first batch may exceed the budget, so that a reader always gets on (KIP-74).
    pub at_least_one: bool,
}

/// What a read brought: whole batches, as they lie on disk. A batch may be spread over two parts.
#[derive(Default)]
pub struct ReadData {
    /// In order.
    pub parts: SmallVec<[Payload; 4]>,
    /// Their sum.
    pub bytes: usize,
    /// There is more below the bound, which the budget kept out.
    pub limited: bool,
}

/// What a log remembers of its readers: where the last reads ended, newest last.
#[derive(Default)]
pub(super) struct Reads {
    ends: RefCell<SmallVec<[Offset; READERS_MAX]>>,
}

impl Reads {
    /// Whether a read at `from` goes on where an earlier one ended; forgets that one.
    fn continues(&self, from: Offset) -> bool {
        let mut ends = self.ends.borrow_mut();
        let at = ends.iter().position(|&end| end == from);
        at.map(|at| ends.remove(at)).is_some()
    }

    fn ended(&self, at: Offset) {
        let mut ends = self.ends.borrow_mut();
        if ends.len() == READERS_MAX {
            ends.remove(0);
        }
        ends.push(at);
    }
}

/// A planned read: owns all it needs.
pub struct ReadPlan(Plan);

#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the usual one: a box would cost each fetch an allocation"
)]
enum Plan {
    /// All of it was in memory, or there is nothing.
    Ready(ReadData),
    Disk(Box<DiskPlan>),
}

struct DiskPlan {
    log: Rc<Log>,
    segments: SmallVec<[Rc<Segment>; SEGMENTS_MAX]>,
    from: Offset,
    bounds: ReadBounds,
}

impl Log {
    /// Plans a read of the batches from the one that holds `from`. Costs no await; the plan borrows nothing.
    pub fn plan_read(self: &Rc<Self>, from: Offset, bounds: ReadBounds) -> Result<ReadPlan, ReadError> {
        let limits = self.limits();
        if from < limits.log_start || from > limits.log_end {
            return Err(ReadError::OutOfRange { wanted: from, start: limits.log_start, end: limits.log_end });
        }
        if let Some(reason) = self.offline() {
            return Err(ReadError::Offline(reason));
        }
        if self.is_ended() {
            return Err(ReadError::Closed);
        }
        let bounds = ReadBounds { below: bounds.below.min(limits.log_end), ..bounds };
        if from >= bounds.below {
            return Ok(ReadPlan(Plan::Ready(ReadData::default())));
        }
        if let Some(data) = self.tail.read(from, bounds) {
            self.shared().count(|stats| stats.cache_read_bytes += data.bytes as u64);
            return Ok(ReadPlan(Plan::Ready(data)));
        }
        let state = self.state.borrow();
        let holding = state.segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
        let segments = state.segments.range(holding..).take(SEGMENTS_MAX).cloned().collect();
        drop(state);
        Ok(ReadPlan(Plan::Disk(Box::new(DiskPlan { log: Rc::clone(self), segments, from, bounds }))))
    }
}

impl ReadPlan {
    /// The data, when all of it is in memory (the usual case of a caught-up consumer); else the plan back.
    #[allow(clippy::result_large_err, reason = "the error is no error: the plan goes on to `run`")]
    pub fn try_now(self) -> Result<ReadData, ReadPlan> {
        match self.0 {
            Plan::Ready(data) => Ok(data),
            Plan::Disk(_) => Err(self),
        }
    }

    /// The data, from memory or disk.
    pub async fn run(self) -> Result<ReadData, ReadError> {
        match self.0 {
            Plan::Ready(data) => Ok(data),
            Plan::Disk(plan) => plan.run().await,
        }
    }
}

impl DiskPlan {
    async fn run(mut self) -> Result<ReadData, ReadError> {
        let log = Rc::clone(&self.log);
        // What is not in memory is on the device; what is on the device only as far as the cache begins need be read there.
        let cached_from = log.tail.start().unwrap_or(Offset::MAX);
        let disk_bounds = ReadBounds { below: self.bounds.below.min(cached_from), ..self.bounds };
        let is_sequential = log.reads.continues(self.from);
        for segment in std::mem::take(&mut self.segments) {
            let walk = Walk::begin(&log, &segment, self.from).await;
            let mut walk = walk.map_err(|error| self.failed(&segment, error))?;
            let found = walk.run(self.from, disk_bounds).await;
            let (mut data, next) = found.map_err(|error| self.failed(&segment, error))?;
            let Some(next) = next else { continue };
            if is_sequential {
                walk.read_ahead(data.bytes);
            }
            log.reads.ended(next);
            self.add_cached(&mut data, next);
            return Ok(data);
        }
        Ok(ReadData::default())
    }

    /// Goes on in the tail cache where the disk's part ended, as far as the budget goes.
    fn add_cached(&self, data: &mut ReadData, next: Offset) {
        data.limited = next < self.bounds.below;
        let Some(bytes_max) = self.bounds.bytes_max.checked_sub(data.bytes).filter(|_| next < self.bounds.below) else {
            return;
        };
        let bounds = ReadBounds { bytes_max, at_least_one: false, ..self.bounds };
        if let Some(more) = self.log.tail.read(next, bounds) {
            self.log.shared().count(|stats| stats.cache_read_bytes += more.bytes as u64);
            data.bytes += more.bytes;
            data.parts.extend(more.parts);
            data.limited = more.limited;
        }
    }

    /// A segment that was deleted meanwhile is no fault of the disk, nor is a log that was.
    fn failed(&self, segment: &Segment, error: io::Error) -> ReadError {
        match segment.deleted.get() {
            Some(start) => ReadError::OutOfRange { wanted: self.from, start, end: self.log.limits().log_end },
            None if self.log.is_ended() => ReadError::Closed,
            None => {
                let file = self.log.file_name(segment);
                tracing::error!(%file, %error, "a read failed");
                ReadError::Disk(format!("{file}: {error}"))
            }
        }
    }
}

/// One way through the file of a segment, from batch header to batch header.
struct Walk<'a> {
    log: &'a Rc<Log>,
    segment: &'a Rc<Segment>,
    /// Bytes of whole batches on the device when it began.
    written: u64,
    position: u64,
    /// Pieces of the file, adjacent, in order.
    chunks: SmallVec<[Chunk; 4]>,
}

impl<'a> Walk<'a> {
    async fn begin(log: &'a Rc<Log>, segment: &'a Rc<Segment>, from: Offset) -> io::Result<Self> {
        let written = segment.written.get();
        let position = segment.with_index(&log.place.dir, |index| index.offsets.position_of(from)).await?;
        if segment.phase.get() == super::Phase::Sealed {
            log.shared().touch(segment);
        }
        Ok(Self { log, segment, written, position: u64::from(position), chunks: SmallVec::new() })
    }

    /// The batches from the one that holds `from`, within `bounds`, and the offset after them; `None` when the segment has
    /// none.
    async fn run(&mut self, from: Offset, bounds: ReadBounds) -> io::Result<(ReadData, Option<Offset>)> {
        let mut start = None;
        let mut next = None;
        let mut expected = self.segment.base;
        while self.position < self.written {
            // The index leads close to the batch; the rest of the answer is likely to follow it.
            let likely = if start.is_some() { bounds.bytes_max } else { CHUNK_BYTES.max(bounds.bytes_max) };
            let (info, last_offset) = self.header(likely, expected).await?;
            expected = last_offset.next();
            let end = self.position + u64::from(info.bytes);
            if last_offset >= from {
                let taken = self.position - start.unwrap_or(self.position);
                let fits = taken + u64::from(info.bytes) <= bounds.bytes_max as u64;
                let first = start.is_none() && bounds.at_least_one;
                if last_offset >= bounds.below || !(fits || first) {
                    break;
                }
                start.get_or_insert(self.position);
                next = Some(expected);
            }
            self.position = end;
        }
        let Some(start) = start else {
            // Either the segment ends below `from`, or its first batch does not fit the bounds: then there is no more.
            let is_beyond = self.position < self.written;
            return Ok((ReadData::default(), is_beyond.then_some(from)));
        };
        Ok((self.cut(start).await?, next))
    }

    /// The header at the current position and its batch's last offset, checked against what must stand there.
    async fn header(&mut self, likely_bytes: usize, expected: Offset) -> io::Result<(BatchInfo, Offset)> {
        let mut bytes = [0; HEADER_BYTES];
        let mut have = 0;
        while let Some(room) = bytes.get_mut(have..).filter(|room| !room.is_empty()) {
            let position = self.position + have as u64;
            let chunk = self.chunk(position, likely_bytes).await?;
            let skipped = usize::try_from(position - chunk.position).unwrap_or(usize::MAX);
            let piece = chunk.slice.as_slice().get(skipped..).unwrap_or_default();
            let piece_bytes = piece.len().min(room.len());
            for (to, from) in room.iter_mut().zip(piece) {
                *to = *from;
            }
            have += piece_bytes;
        }
        let damaged = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let info =
            batch::parse_header(&bytes).map_err(|error| damaged(format!("{error} at byte {}", self.position)))?;
        let base_offset = Offset::new(info.base_offset).filter(|&base| base >= expected);
        let base_offset = base_offset.ok_or_else(|| {
            damaged(format!("offset {} after {expected} at byte {}", info.base_offset, self.position))
        })?;
        if self.position + u64::from(info.bytes) > self.written {
            return Err(damaged(format!("a batch of {} bytes at byte {} does not end", info.bytes, self.position)));
        }
        Ok((info, base_offset.plus(info.last_offset_delta)))
    }

    /// The piece of the file that holds the byte at `position`: one of this walk, one kept from an earlier read, or a new
    /// read of at least `likely_bytes`.
    async fn chunk(&mut self, position: u64, likely_bytes: usize) -> io::Result<Chunk> {
        if let Some(chunk) = self.chunks.iter().rev().find(|chunk| (chunk.position..chunk.end()).contains(&position)) {
            return Ok(chunk.clone());
        }
        let kept = &self.log.shared().chunks;
        let mut chunk = kept.find(self.segment.id, position);
        if chunk.is_none()
            && let Some(read) = kept.under_way(self.segment.id, position)
        {
            read.await;
            chunk = kept.find(self.segment.id, position);
        }
        let chunk = match chunk {
            Some(chunk) => chunk,
            None => {
                Piece::begin(self.log, self.segment, position, likely_bytes).read(self.log, self.segment, false).await?
            }
        };
        self.chunks.push(chunk.clone());
        Ok(chunk)
    }

    /// The bytes from `start` to the current position, in slices of the pieces read.
    async fn cut(&mut self, start: u64) -> io::Result<ReadData> {
        let end = self.position;
        let mut data = ReadData::default();
        let mut at = start;
        while at < end {
            let missing = usize::try_from(end - at).unwrap_or(usize::MAX);
            let chunk = self.chunk(at, missing).await?;
            let from = usize::try_from(at - chunk.position).unwrap_or(usize::MAX);
            let to = usize::try_from(end.min(chunk.end()) - chunk.position).unwrap_or(usize::MAX);
            data.parts.push(Payload::Disk(chunk.slice.slice(from..to)));
            data.bytes += to - from;
            at = chunk.position + to as u64;
        }
        Ok(data)
    }

    /// Brings the piece after the last one into memory while the answer, of `taken` bytes, is on its way.
    fn read_ahead(&self, taken: usize) {
        let Some(position) = self.chunks.last().map(Chunk::end).filter(|&end| end < self.written) else { return };
        let bytes = taken.clamp(AHEAD_BYTES_MIN, IO_BYTES_MAX);
        if !self.log.shared().chunks.wants_ahead(self.segment.id, position, bytes) {
            return;
        }
        let (log, segment) = (Rc::clone(self.log), Rc::clone(self.segment));
        let piece = Piece::begin(self.log, self.segment, position, bytes);
        rt::spawn(async move {
            if let Err(error) = piece.read(&log, &segment, true).await {
                tracing::debug!(file = %log.file_name(&segment), %error, "reading ahead failed");
            }
        });
    }
}

/// Whole blocks around one byte of a segment's file, on their way. Others know of them from the beginning, not only when the
/// read has its turn.
struct Piece {
    /// The byte it is read for.
    position: u64,
    start: u64,
    /// Only written bytes are read: what lies behind them is still changing.
    bytes: usize,
    _under_way: ReadGuard,
}

impl Piece {
    fn begin(log: &Log, segment: &Segment, position: u64, likely_bytes: usize) -> Self {
        let start = position - position % BLOCK;
        let left = usize::try_from(segment.written.get().saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes = likely_bytes.saturating_add(BLOCK_BYTES).clamp(CHUNK_BYTES, IO_BYTES_MAX).min(left);
        let under_way = log.shared().chunks.begin(segment.id, start..start + bytes as u64);
        Self { position, start, bytes, _under_way: under_way }
    }

    /// Reads it and keeps it for the next reader.
    async fn read(self, log: &Log, segment: &Segment, is_ahead: bool) -> io::Result<Chunk> {
        let file = segment.reader(&log.place.dir).await?;
        let slice = file.read(self.start, self.bytes.next_multiple_of(BLOCK_BYTES)).await?;
        log.shared().count(|stats| stats.disk_read_bytes += slice.as_slice().len() as u64);
        let whole = slice.as_slice().len().min(self.bytes);
        if self.start + whole as u64 <= self.position {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("no bytes at {}, {} were written", self.position, self.start + self.bytes as u64),
            ));
        }
        let chunk = Chunk { segment: segment.id, position: self.start, slice: slice.slice(0..whole) };
        if segment.deleted.get().is_none() {
            log.shared().chunks.keep(chunk.clone(), is_ahead);
        }
        Ok(chunk)
    }
}
