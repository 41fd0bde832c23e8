//! What the bytes of a log say after an unclean end: where the log ends, who produced, which epochs, the indexes.
//!
//! Pure. Owns the scanner over the bytes of segments and the rules of what is kept. Does not own files: `open` feeds it what
//! it reads, `tests/crash.rs` feeds it images of disks that lost power. Always: what is kept is a prefix of what was
//! appended that holds everything below the recovery point; offsets are without gap; or it is refused with the place.
//!
//! Why cutting at the first bad batch is right: bytes at or above the recovery point were never synced, so any sector of
//! them may be old, and a batch beyond the first bad one may well be whole; nothing above a hole can be kept (offsets would
//! be missing). Below the recovery point everything was synced, so a bad batch there is damage, never a crash, and cutting
//! would destroy acknowledged records.
//!
//! Non-obvious: base offset and leader epoch lie outside the checksum, so a batch is only believed if it begins at the very
//! offset that comes next. A batch whose header straddles a sector can be whole but for a base offset of zero.

use crate::protocol::batch::{self, BatchError, BatchInfo, HEADER_BYTES};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

use super::epochs::Epochs;
use super::index::{IndexedBatch, SegmentIndex, relative};
use super::producers::Producers;

/// First byte of a batch that its checksum covers: the attributes.
const CHECKED_FROM: usize = 21;

/// Why a scan ended before the file did.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// Zeroes: the file was allocated ahead, or padded to a block. The usual end.
    #[error("only zeroes")]
    Padding,
    /// No header of a batch.
    #[error("{0}")]
    Header(BatchError),
    /// A header whose batch goes on past the end of the file, or of what a segment can hold.
    #[error("a batch of {bytes} bytes does not fit the file")]
    Overlong {
        /// as the header claims
        bytes: u32,
    },
    /// A whole batch with other bytes than were written.
    #[error("checksum mismatch")]
    Checksum,
    /// A sound batch that does not belong here.
    #[error("a batch of offset {found} where {expected} comes next")]
    Offset {
        /// as its header says
        found: i64,
        /// the offset after the batch before it
        expected: Offset,
    },
}

/// Which base offsets a scan believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// Each batch begins where the one before it ended: a log that was never compacted.
    Refused,
    /// Offsets may be missing (compaction took them) but never go back.
    Allowed,
}

/// A whole batch in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// its header
    pub info: BatchInfo,
    /// its first offset
    pub base_offset: Offset,
    /// its last offset
    pub last_offset: Offset,
    /// where it lies in the segment's file
    pub position: u32,
}

impl Found {
    /// What the indexes note of it.
    pub const fn indexed(&self) -> IndexedBatch {
        IndexedBatch {
            position: self.position,
            bytes: self.info.bytes,
            last_offset: self.last_offset,
            max_timestamp: self.info.max_timestamp,
        }
    }
}

/// The batch whose body is being fed.
#[derive(Debug)]
struct Body {
    info: BatchInfo,
    checksum: u32,
    missing_bytes: usize,
}

/// Walks the batches of one segment, fed in pieces of any size, and believes none that is not whole and in its place.
#[derive(Debug)]
pub struct Scanner {
    base: Offset,
    gaps: Gaps,
    file_bytes: u64,
    position: u64,
    next_offset: Offset,
    head: [u8; HEADER_BYTES],
    head_bytes: usize,
    body: Option<Body>,
    fault: Option<Fault>,
}

impl Scanner {
    /// For the segment at `base`, whose file has `file_bytes`.
    pub const fn new(base: Offset, file_bytes: u64, gaps: Gaps) -> Self {
        Self {
            base,
            gaps,
            file_bytes,
            position: 0,
            next_offset: base,
            head: [0; HEADER_BYTES],
            head_bytes: 0,
            body: None,
            fault: None,
        }
    }

    /// Takes the next bytes of the file and tells `on_batch` of every batch that became whole. Once it met a fault it ignores the rest: see [`Scanner::fault`].
    pub fn feed(&mut self, mut bytes: &[u8], mut on_batch: impl FnMut(Found)) {
        while self.fault.is_none() && !bytes.is_empty() {
            match &mut self.body {
                None => {
                    let taken = bytes.len().min(HEADER_BYTES - self.head_bytes);
                    let (piece, rest) = bytes.split_at(taken);
                    let room = self.head.get_mut(self.head_bytes..self.head_bytes + taken);
                    room.expect("taken fits the header").copy_from_slice(piece);
                    self.head_bytes += taken;
                    bytes = rest;
                    if self.head_bytes == HEADER_BYTES {
                        self.begin_body();
                    }
                }
                Some(body) => {
                    let (piece, rest) = bytes.split_at(bytes.len().min(body.missing_bytes));
                    body.checksum = crc32c::crc32c_append(body.checksum, piece);
                    body.missing_bytes -= piece.len();
                    bytes = rest;
                }
            }
            // A batch may end with its header (none of ours does, but the header is not ours to trust).
            if self.body.as_ref().is_some_and(|body| body.missing_bytes == 0) {
                self.end_body(&mut on_batch);
            }
        }
    }

    /// End of the last whole batch.
    pub const fn valid_bytes(&self) -> u64 {
        self.position
    }

    /// The offset after the last whole batch.
    pub const fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// What was met at [`Scanner::valid_bytes`]; asked when the file is fed up or a fault was met. `None`: the file ends
    /// there.
    pub fn fault(&self) -> Option<Fault> {
        let head = self.head.get(..self.head_bytes).unwrap_or_default();
        match (&self.fault, &self.body) {
            (Some(fault), _) => Some(fault.clone()),
            (None, Some(body)) => Some(Fault::Overlong { bytes: body.info.bytes }),
            (None, None) if head.is_empty() => None,
            (None, None) if head.iter().all(|&byte| byte == 0) => Some(Fault::Padding),
            (None, None) => {
                Some(Fault::Header(BatchError::Truncated { need: HEADER_BYTES as u64, have: head.len() as u64 }))
            }
        }
    }

    /// Whether feeding on is of no use.
    pub const fn is_stopped(&self) -> bool {
        self.fault.is_some()
    }

    fn begin_body(&mut self) {
        let fault = match batch::parse_header(&self.head) {
            _ if self.head.iter().all(|&byte| byte == 0) => Fault::Padding,
            Err(error) => Fault::Header(error),
            Ok(info) if u64::from(info.bytes) > self.room() => Fault::Overlong { bytes: info.bytes },
            Ok(info) => {
                let checked = self.head.get(CHECKED_FROM..).unwrap_or_default();
                let missing_bytes = (info.bytes as usize).saturating_sub(HEADER_BYTES);
                self.body = Some(Body { info, checksum: crc32c::crc32c(checked), missing_bytes });
                return;
            }
        };
        self.fault = Some(fault);
    }

    /// Bytes that a batch beginning at the current position may have: to the end of the file, and positions stay below 2^31.
    fn room(&self) -> u64 {
        self.file_bytes.min(i32::MAX as u64).saturating_sub(self.position)
    }

    fn end_body(&mut self, on_batch: &mut impl FnMut(Found)) {
        let Some(Body { info, checksum, .. }) = self.body.take() else { return };
        self.head_bytes = 0;
        let base_offset = Offset::new(info.base_offset).filter(|&found| match self.gaps {
            Gaps::Refused => found == self.next_offset,
            Gaps::Allowed => found >= self.next_offset,
        });
        let last_offset = base_offset
            .and_then(|base| base.value().checked_add(i64::from(info.last_offset_delta)))
            .and_then(Offset::new)
            .filter(|&last| relative(self.base, last).is_some());
        match (base_offset, last_offset, u32::try_from(self.position)) {
            _ if checksum != info.crc => self.fault = Some(Fault::Checksum),
            (Some(base_offset), Some(last_offset), Ok(position)) => {
                self.position += u64::from(info.bytes);
                self.next_offset = last_offset.next();
                on_batch(Found { info, base_offset, last_offset, position });
            }
            _ => self.fault = Some(Fault::Offset { found: info.base_offset, expected: self.next_offset }),
        }
    }
}

/// Damage below the recovery point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corrupt {
    /// base offset of the segment
    pub segment: Offset,
    /// byte in its file
    pub position: u64,
    /// what is there
    pub reason: String,
}

/// What was known before the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// everything below was synced
    pub recovery_point: Offset,
    /// the broker's clock, for producers
    pub now: TimestampMs,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
}

/// What becomes of the next segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Feed it.
    Scan,
    /// It lies above the end of the log: remove it.
    Remove,
}

/// One segment after its scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// where its file is cut
    pub valid_bytes: u64,
    /// how many bytes of batches that is less than was found, as far as was looked
    pub lost_bytes: u64,
    /// its indexes
    pub index: SegmentIndex,
    /// largest timestamp of its first batch
    pub first_timestamp: Option<TimestampMs>,
}

/// The first segment to scan, and the producers at its beginning: the segment of the last offset below the recovery point, or
/// an older one whose snapshot can be read. `bases` and `snapshots` rise.
///
/// Not the segment that begins at the recovery point: the one before it may have been synced to its last batch and rolled
/// after that, and then its file is not yet cut to its data.
pub fn scan_start(
    bases: &[Offset],
    snapshots: &[Offset],
    recovery_point: Offset,
    mut read_snapshot: impl FnMut(Offset) -> Option<Producers>,
) -> (usize, Producers) {
    let holding = bases.partition_point(|&base| base < recovery_point).saturating_sub(1);
    for (number, &base) in bases.iter().enumerate().take(holding + 1).skip(1).rev() {
        if snapshots.contains(&base)
            && let Some(producers) = read_snapshot(base)
        {
            return (number, producers);
        }
    }
    // The oldest segment there is: a producer's last word may lie in a segment that was deleted.
    let first = bases.first().copied().unwrap_or(Offset::MAX);
    let older = snapshots.iter().rev().copied().filter(|&snapshot| snapshot <= first);
    (0, older.into_iter().find_map(read_snapshot).unwrap_or_default())
}

/// Recovers the last segments of a log: `begin`, `feed` … `end` for each in order, then `finish`.
#[derive(Debug)]
pub struct Recovery {
    known: Known,
    producers: Producers,
    epochs: Epochs,
    segment: Option<(Scanner, SegmentIndex, Option<TimestampMs>)>,
    /// The end of the log so far, and where that is.
    end: Option<(Offset, Place)>,
}

/// A byte of a segment's file.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: Offset,
    position: u64,
}

impl Place {
    fn corrupt(self, reason: impl ToString) -> Corrupt {
        Corrupt { segment: self.segment, position: self.position, reason: reason.to_string() }
    }
}

impl Recovery {
    /// `producers` is their state at the beginning of the first segment to come; `epochs` what the checkpoint says, of which
    /// only what lies below that beginning is believed.
    pub const fn new(known: Known, producers: Producers, epochs: Epochs) -> Self {
        Self { known, producers, epochs, segment: None, end: None }
    }

    /// The next segment begins at `base`, its file has `file_bytes`.
    pub fn begin(&mut self, base: Offset, file_bytes: u64) -> Next {
        match self.end {
            None => self.epochs.truncate_end(base),
            Some((end, _)) if end == base => {}
            // The hole lies above the recovery point: what comes after it was never promised to anyone.
            Some(_) => return Next::Remove,
        }
        let scanner = Scanner::new(base, file_bytes, Gaps::Refused);
        self.segment = Some((scanner, SegmentIndex::new(base), None));
        Next::Scan
    }

    /// The next bytes of the segment. `false`: more would not be looked at.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        let Self { known, producers, epochs, segment, .. } = self;
        let Some((scanner, index, first_timestamp)) = segment else { return false };
        scanner.feed(bytes, |found| {
            index.on_batch(found.indexed(), known.index_interval_bytes);
            first_timestamp.get_or_insert(found.info.max_timestamp);
            producers.replay(&found.info, found.base_offset, known.now);
            if let Some(epoch) = LeaderEpoch::new(found.info.leader_epoch) {
                epochs.assign(epoch, found.base_offset);
            }
        });
        !scanner.is_stopped()
    }

    /// The segment is fed up, or `feed` said enough; the one after it begins at `next`, if there is one. Below the recovery
    /// point a segment must reach the next one, or the recovery point: zeroes or a missing end are damage there, and no file
    /// may be cut at damage.
    pub fn end(&mut self, next: Option<Offset>) -> Result<Recovered, Corrupt> {
        let (scanner, index, first_timestamp) = self.segment.take().expect("end follows begin");
        let place = Place { segment: scanner.base, position: scanner.valid_bytes() };
        let end = scanner.next_offset();
        self.end = Some((end, place));
        let is_known = end < self.known.recovery_point;
        let lost_bytes = match scanner.fault() {
            None | Some(Fault::Padding) if !is_known || next == Some(end) => 0,
            None => return Err(place.corrupt(format!("its records end at offset {end}"))),
            Some(fault) if is_known => return Err(place.corrupt(fault)),
            Some(fault) => {
                let claimed =
                    if let Fault::Overlong { bytes } = fault { u64::from(bytes) } else { HEADER_BYTES as u64 };
                claimed.min(scanner.file_bytes - scanner.valid_bytes())
            }
        };
        Ok(Recovered { valid_bytes: scanner.valid_bytes(), lost_bytes, index, first_timestamp })
    }

    /// The offset after the last whole batch of the segments that ended.
    pub fn end_offset(&self) -> Offset {
        self.end.map_or(Offset::ZERO, |(end, _)| end)
    }

    /// The producers after the batches fed so far.
    pub const fn producers(&self) -> &Producers {
        &self.producers
    }

    /// All segments were fed: the log's end, its producers and its epochs. A log without segments ends at `log_start`.
    pub fn finish(mut self, log_start: Offset) -> Result<(Offset, Producers, Epochs), Corrupt> {
        let nowhere = Place { segment: log_start, position: 0 };
        let (end, place) = self.end.unwrap_or((log_start, nowhere));
        if end < self.known.recovery_point {
            return Err(place.corrupt(format!("the log ends at {end}")));
        }
        self.epochs.truncate_end(end);
        Ok((end, self.producers, self.epochs))
    }
}
