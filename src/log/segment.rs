//! One segment of a log: a data file, its two indexes, the snapshot of producers at its end.
//!
//! Shell. Owns the handles of the file, how much of it is appended, written and synced, and its indexes while they are in
//! memory. Does not own the decision to roll, nor the writing (`appender`). Always: `synced <= written <= bytes <= allocated`
//! while the segment is written; a sealed segment never changes, and its indexes may be dropped and read again (or built
//! again from the data, when the files are missing or do not grow).

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::batch;
use crate::rt::file::{Access, BLOCK_BYTES, DirectFile};
use crate::rt::{self, Event};
use crate::types::{Offset, TimestampMs};

use super::files::{self, Durable};
use super::index::{IndexedBatch, OffsetIndex, SegmentIndex, TimeIndex};
use super::recovery::{Gaps, Scanner};

/// Suffix of the data.
pub(crate) const DATA_SUFFIX: &str = ".log";
/// Suffix of the offset index.
pub(crate) const INDEX_SUFFIX: &str = ".index";
/// Suffix of the time index.
pub(crate) const TIME_INDEX_SUFFIX: &str = ".timeindex";
/// Suffix of the snapshot of producers.
pub(crate) const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Suffix of a file that waits for its removal.
pub(crate) const DELETED_SUFFIX: &str = ".deleted";

/// Kafka's default of `index.interval.bytes`, for indexes that are built again.
const REBUILD_INTERVAL_BYTES: u32 = 4096;
/// First bytes that a scan reads: most logs of an idle partition are shorter, and behind them lie allocated zeroes.
const SCAN_FIRST_BYTES: usize = 64 << 10;
/// Largest read of a scan.
const SCAN_READ_BYTES_MAX: usize = 1 << 20;

/// How far a segment is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Takes appends.
    Active,
    /// Rolled; its last bytes may still be on their way, its file is longer than its data.
    Rolled,
    /// Written, cut to its data and synced. Never changes again.
    Sealed,
}

/// What is known of the indexes of a segment found on disk.
pub(crate) enum Indexes {
    /// Nothing yet; read when needed.
    OnDisk,
    /// As the files say.
    Read(SegmentIndex),
    /// Built from the data, which also said the largest timestamp of the first batch; the files are to be written.
    Built(SegmentIndex, Option<TimestampMs>),
}

/// Producers at an offset, and the bytes of the file for them.
pub(crate) type Snapshot = (Offset, Vec<u8>);

/// Files beside the data that are not written yet.
pub(crate) struct SideFiles {
    index: Vec<u8>,
    times: Vec<u8>,
    snapshot: Option<Snapshot>,
}

/// See the head of this file.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) base: Offset,
    pub(crate) phase: Cell<Phase>,
    /// Whether the data file exists (a new segment's is made by the writer).
    pub(crate) exists: Cell<bool>,
    /// Bytes of whole batches appended.
    pub(crate) bytes: Cell<u64>,
    /// Bytes of whole batches on the device.
    pub(crate) written: Cell<u64>,
    /// Bytes of whole batches synced.
    pub(crate) synced: Cell<u64>,
    /// Bytes of the file that have blocks.
    pub(crate) allocated: Cell<u64>,
    /// Largest timestamp of the first batch, for the roll by time.
    pub(crate) first_timestamp: Cell<Option<TimestampMs>>,
    /// The broker's clock when it began, or the file's time at the start.
    pub(crate) created: TimestampMs,
    /// The same at the last append.
    pub(crate) modified: Cell<TimestampMs>,
    /// What this segment's age limit is shortened by.
    pub(crate) jitter_ms: i64,
    /// The log start when the segment was deleted.
    pub(crate) deleted: Cell<Option<Offset>>,
    index: RefCell<Option<SegmentIndex>>,
    /// Largest timestamp; known once the time index was in memory. `Some(None)`: no records.
    max_timestamp: Cell<Option<Option<TimestampMs>>>,
    /// The index files are those of the data.
    side_files_written: Cell<bool>,
    writer: RefCell<Option<DirectFile>>,
    reader: RefCell<Option<DirectFile>>,
    opens: Opens,
}

/// Opens of a data file by its name. Its name stays while one is under way: see [`DirectFile::open`].
#[derive(Default)]
struct Opens {
    under_way: Cell<u32>,
    /// No more of them: the segment is deleted, or its log ends.
    ended: Cell<bool>,
    changed: Event,
}

struct OpenUnderWay<'a>(&'a Opens);

impl Opens {
    fn begin(&self) -> io::Result<OpenUnderWay<'_>> {
        if self.ended.get() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it is deleted or closed"));
        }
        self.under_way.set(self.under_way.get() + 1);
        Ok(OpenUnderWay(self))
    }
}

impl Drop for OpenUnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.changed.notify_all();
    }
}

impl Segment {
    /// A segment that begins now.
    pub(crate) fn new(id: u64, base: Offset, jitter_ms: i64, now: TimestampMs) -> Self {
        Self {
            id,
            base,
            phase: Cell::new(Phase::Active),
            exists: Cell::new(false),
            bytes: Cell::new(0),
            written: Cell::new(0),
            synced: Cell::new(0),
            allocated: Cell::new(0),
            first_timestamp: Cell::new(None),
            created: now,
            modified: Cell::new(now),
            jitter_ms,
            deleted: Cell::new(None),
            index: RefCell::new(Some(SegmentIndex::new(base))),
            max_timestamp: Cell::new(None),
            side_files_written: Cell::new(false),
            writer: RefCell::default(),
            reader: RefCell::default(),
            opens: Opens::default(),
        }
    }

    /// A segment found on disk, its data cut to its length and synced.
    pub(crate) fn found(id: u64, base: Offset, bytes: u64, modified: TimestampMs, indexes: Indexes) -> Self {
        let (index, first_timestamp, side_files_written) = match indexes {
            Indexes::OnDisk => (None, None, true),
            Indexes::Read(index) => {
                let first_timestamp = index.times.first_timestamp();
                (Some(index), first_timestamp, true)
            }
            Indexes::Built(index, first_timestamp) => (Some(index), first_timestamp, false),
        };
        Self {
            phase: Cell::new(Phase::Sealed),
            exists: Cell::new(true),
            bytes: Cell::new(bytes),
            written: Cell::new(bytes),
            synced: Cell::new(bytes),
            allocated: Cell::new(bytes),
            first_timestamp: Cell::new(first_timestamp),
            side_files_written: Cell::new(side_files_written),
            index: RefCell::new(index),
            ..Self::new(id, base, 0, modified)
        }
    }

    /// The file of this segment with `suffix`.
    pub(crate) fn path(&self, dir: &Path, suffix: &str) -> PathBuf {
        file_path(dir, self.base, suffix)
    }

    /// Notes one appended batch. The index is in memory: only active segments are appended to.
    pub(crate) fn on_append(&self, batch: IndexedBatch, interval_bytes: u32, now: TimestampMs) {
        self.bytes.set(self.bytes.get() + u64::from(batch.bytes));
        self.modified.set(now);
        self.side_files_written.set(false);
        if self.first_timestamp.get().is_none() {
            self.first_timestamp.set(Some(batch.max_timestamp));
        }
        let mut index = self.index.borrow_mut();
        index.as_mut().expect("an active segment's index is in memory").on_batch(batch, interval_bytes);
    }

    /// Whether an index has no room for another entry.
    pub(crate) fn is_index_full(&self, bytes_max: u32) -> bool {
        self.index.borrow().as_ref().is_some_and(|index| index.is_full(bytes_max))
    }

    /// Begins the end of an active segment: no appends any more.
    pub(crate) fn roll(&self) {
        self.phase.set(Phase::Rolled);
        if let Some(index) = self.index.borrow_mut().as_mut() {
            index.finish();
        }
    }

    /// The handle for writing, opened (or the file made) on first use.
    pub(crate) async fn writer(&self, dir: &Path) -> io::Result<DirectFile> {
        if let Some(file) = self.writer.borrow().clone() {
            return Ok(file);
        }
        let _opening = self.opens.begin()?;
        let file = if self.exists.get() {
            // Its index files are about to be those of a part of it. Should they not be written again, none are better: an
            // old largest timestamp would let retention take the segment.
            files::remove_all([INDEX_SUFFIX, TIME_INDEX_SUFFIX].map(|suffix| self.path(dir, suffix)).into()).await?;
            let file = DirectFile::open(&self.path(dir, DATA_SUFFIX), Access::ReadWrite).await?;
            self.read_first_timestamp(&file).await;
            file
        } else {
            DirectFile::open(&self.path(dir, DATA_SUFFIX), Access::CreateNew).await?
        };
        self.exists.set(true);
        *self.writer.borrow_mut() = Some(file.clone());
        Ok(file)
    }

    /// The first batch says it; the time index knew only of a later one. What cannot be read leaves that.
    async fn read_first_timestamp(&self, file: &DirectFile) {
        if let Ok(block) = file.read(0, BLOCK_BYTES).await
            && let Ok(first) = batch::parse_header(block.as_slice())
        {
            self.first_timestamp.set(Some(first.max_timestamp));
        }
    }

    /// The handle for writing, if something was written.
    pub(crate) fn open_writer(&self) -> Option<DirectFile> {
        self.writer.borrow().clone()
    }

    /// A handle for reading.
    pub(crate) async fn reader(&self, dir: &Path) -> io::Result<DirectFile> {
        let open = self.writer.borrow().clone().or_else(|| self.reader.borrow().clone());
        if let Some(file) = open {
            return Ok(file);
        }
        let _opening = self.opens.begin()?;
        let file = DirectFile::open(&self.path(dir, DATA_SUFFIX), Access::Read).await?;
        // Another reader may have been faster: one handle stays.
        let spare = self.reader.borrow_mut().replace(file.clone());
        if let Some(spare) = spare {
            spare.close().await?;
        }
        Ok(file)
    }

    /// The data is written, cut to its length and synced: the handle becomes one for readers.
    pub(crate) fn seal(&self) {
        self.phase.set(Phase::Sealed);
        let writer = self.writer.borrow_mut().take();
        if let Some(file) = writer {
            *self.reader.borrow_mut() = Some(file);
        }
    }

    /// Gives back what a segment that nobody reads needs not: handle and indexes.
    pub(crate) async fn rest(&self) {
        if self.phase.get() == Phase::Sealed && self.side_files_written.get() {
            let index = self.index.borrow_mut().take();
            self.max_timestamp.set(index.map(|index| index.max_timestamp()).or(self.max_timestamp.get()));
        }
        let reader = self.reader.borrow_mut().take();
        if let Some(file) = reader
            && let Err(error) = file.close().await
        {
            tracing::debug!(base = %self.base, %error, "a file of a segment did not close");
        }
    }

    /// No open by name is under way any more, and none begins: the name may change. Handles stay.
    pub(crate) async fn end_opens(&self) {
        self.opens.ended.set(true);
        while self.opens.under_way.get() > 0 {
            self.opens.changed.wait().await;
        }
    }

    /// Closes every handle.
    pub(crate) async fn close(&self) -> io::Result<()> {
        self.end_opens().await;
        let (writer, reader) = (self.writer.borrow_mut().take(), self.reader.borrow_mut().take());
        for file in [writer, reader].into_iter().flatten() {
            file.close().await?;
        }
        Ok(())
    }

    /// Asks the indexes, reading or building them first if they are not in memory.
    pub(crate) async fn with_index<T>(&self, dir: &Path, ask: impl FnOnce(&SegmentIndex) -> T) -> io::Result<T> {
        if self.index.borrow().is_none() {
            let index = self.load_index(dir).await?;
            *self.index.borrow_mut() = Some(index);
        }
        let index = self.index.borrow();
        Ok(ask(index.as_ref().expect("it was loaded above, without an await since")))
    }

    /// The largest timestamp of its records, or the time of its last append when they carry none; `None` while the time index
    /// was never in memory.
    pub(crate) fn known_newest(&self) -> Option<TimestampMs> {
        let largest = self.index.borrow().as_ref().map(SegmentIndex::max_timestamp).or(self.max_timestamp.get())?;
        Some(largest.unwrap_or(self.modified.get()))
    }

    /// The same, read if need be.
    pub(crate) async fn newest(&self, dir: &Path) -> io::Result<TimestampMs> {
        if let Some(newest) = self.known_newest() {
            return Ok(newest);
        }
        let largest = self.with_index(dir, SegmentIndex::max_timestamp).await?;
        Ok(largest.unwrap_or(self.modified.get()))
    }

    /// The files beside the data, unless they are written already. `snapshot`: of the producers at its end.
    pub(crate) fn side_files(&self, snapshot: Option<Snapshot>) -> Option<SideFiles> {
        if self.side_files_written.get() && snapshot.is_none() {
            return None;
        }
        let mut index = self.index.borrow_mut();
        let index = index.as_mut()?;
        index.finish();
        Some(SideFiles { index: index.offsets.to_bytes(), times: index.times.to_bytes(), snapshot })
    }

    /// Writes them. What fails is only slower at the next start: they are rebuilt from the data.
    pub(crate) async fn write_side_files(&self, dir: &Path, side: SideFiles, durable: Durable) -> io::Result<()> {
        let indexes = [(self.path(dir, INDEX_SUFFIX), side.index), (self.path(dir, TIME_INDEX_SUFFIX), side.times)];
        let snapshot = side.snapshot.map(|(offset, bytes)| (file_path(dir, offset, SNAPSHOT_SUFFIX), bytes));
        files::write(indexes.into_iter().chain(snapshot).collect(), durable).await?;
        self.side_files_written.set(true);
        Ok(())
    }

    async fn load_index(&self, dir: &Path) -> io::Result<SegmentIndex> {
        let (owned_dir, base, bytes) = (dir.to_owned(), self.base, self.bytes.get());
        if let Some(index) = rt::blocking(move || read_index(&owned_dir, base, bytes)).await {
            return Ok(index);
        }
        tracing::info!(dir = %dir.display(), %base, "indexes are missing or damaged: built again from the data");
        let file = self.reader(dir).await?;
        let mut scanner = Scanner::new(base, bytes, Gaps::Allowed);
        let mut index = SegmentIndex::new(base);
        scan(&file, bytes, |piece| {
            scanner.feed(piece, |found| index.on_batch(found.indexed(), REBUILD_INTERVAL_BYTES));
            !scanner.is_stopped()
        })
        .await?;
        index.finish();
        Ok(index)
    }
}

/// Name of a segment's file: its base offset in 20 digits.
pub(crate) fn file_path(dir: &Path, base: Offset, suffix: &str) -> PathBuf {
    dir.join(format!("{:020}{suffix}", base.value()))
}

/// Reads the index files of a segment of `bytes`; `None` when they are missing or not sound. Blocks.
pub(crate) fn read_index(dir: &Path, base: Offset, bytes: u64) -> Option<SegmentIndex> {
    let offsets = std::fs::read(file_path(dir, base, INDEX_SUFFIX)).ok()?;
    let times = std::fs::read(file_path(dir, base, TIME_INDEX_SUFFIX)).ok()?;
    let offsets = OffsetIndex::parse(base, &offsets, bytes).ok()?;
    Some(SegmentIndex::from_parts(offsets, TimeIndex::parse(base, &times).ok()?))
}

/// Reads the first `bytes` of `file` and feeds them in pieces, until `feed` has enough. Returns the bytes read.
pub(crate) async fn scan(file: &DirectFile, bytes: u64, mut feed: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let (mut position, mut piece_bytes) = (0_u64, SCAN_FIRST_BYTES);
    while position < bytes {
        let slice = file.read(position, piece_bytes).await?;
        let piece = slice.as_slice();
        let wanted = usize::try_from(bytes - position).unwrap_or(usize::MAX).min(piece.len());
        let piece = piece.get(..wanted).unwrap_or_default();
        position += piece.len() as u64;
        if piece.is_empty() || !feed(piece) {
            break;
        }
        piece_bytes = (piece_bytes * 4).min(SCAN_READ_BYTES_MAX);
        rt::yield_if_needed().await;
    }
    Ok(position)
}
