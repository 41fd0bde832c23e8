//! What the logs of one shard share: the tail cache's budget, files opened for reading, cold reads kept for the next reader,
//! limits of operations in flight, counters.
//!
//! Shell. Owns the shard-wide limits, each with its reason. Does not own any log. Always: memory and file handles that grow
//! with the number of partitions have their bound here, so that idle partitions cost neither.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::rt::file::DiskSlice;
use crate::rt::{self, Event};

use super::segment::Segment;
use super::tail::TailBudget;
use super::vocabulary::LogStats;

/// Direct writes in flight on one shard. Four of 256 KiB saturated the disks measured. More small ones would be faster each,
/// but a log that waits for its turn gathers batches meanwhile, and one write for two requests costs half the CPU.
const WRITES_IN_FLIGHT_MAX: usize = 4;
/// `fdatasync`s in flight on one shard: sixteen files gave four times the commits of one, sixty-four only queued.
const SYNCS_IN_FLIGHT_MAX: usize = 16;
/// Sealed segments kept open for reading, with their indexes in memory (at most 2 MiB each for a segment of 1 GiB).
const SEGMENTS_OPEN_MAX: usize = 64;
/// Shared by the logs of one shard. Clones share it.
#[derive(Clone)]
pub struct LogRuntime(pub(crate) Rc<Shared>);

pub(crate) struct Shared {
    pub(crate) tail: TailBudget,
    pub(crate) writes: Permits,
    /// One log at a time writes zeroes ahead.
    pub(crate) prewrites: Permits,
    pub(crate) syncs: Permits,
    pub(crate) chunks: ReadCache,
    open: RefCell<VecDeque<Rc<Segment>>>,
    next_segment_id: Cell<u64>,
    counters: Cell<LogStats>,
}

impl LogRuntime {
    /// One per shard. Budgets over all logs of the shard: `tail_cache_bytes` of the newest batches, `read_cache_bytes` of cold
    /// reads that are kept for whoever reads on.
    pub fn new(tail_cache_bytes: usize, read_cache_bytes: usize) -> Self {
        Self(Rc::new(Shared {
            tail: TailBudget::new(tail_cache_bytes),
            writes: Permits::new(WRITES_IN_FLIGHT_MAX),
            prewrites: Permits::new(1),
            syncs: Permits::new(SYNCS_IN_FLIGHT_MAX),
            chunks: ReadCache::new(read_cache_bytes),
            open: RefCell::default(),
            next_segment_id: Cell::new(0),
            counters: Cell::default(),
        }))
    }

    /// Bytes appended and not yet given to the device.
    pub fn pending_bytes(&self) -> u64 {
        self.0.counters.get().pending_bytes
    }

    /// Gauges and counters.
    pub fn stats(&self) -> LogStats {
        LogStats {
            tail_cache_bytes: self.0.tail.bytes() as u64,
            read_cache_bytes: self.0.chunks.bytes.get() as u64,
            ..self.0.counters.get()
        }
    }
}

impl Shared {
    pub(crate) fn count(&self, change: impl FnOnce(&mut LogStats)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// A name for a segment that is never given twice on this shard.
    pub(crate) fn new_segment_id(&self) -> u64 {
        let id = self.next_segment_id.get();
        self.next_segment_id.set(id + 1);
        id
    }

    /// Notes that a sealed segment is in use; the one unused for longest closes when too many are open.
    pub(crate) fn touch(&self, segment: &Rc<Segment>) {
        let mut open = self.open.borrow_mut();
        if open.back().is_some_and(|newest| Rc::ptr_eq(newest, segment)) {
            return;
        }
        open.retain(|other| !Rc::ptr_eq(other, segment));
        open.push_back(Rc::clone(segment));
        let closing = if open.len() > SEGMENTS_OPEN_MAX { open.pop_front() } else { None };
        drop(open);
        if let Some(segment) = closing {
            rt::spawn(async move { segment.rest().await });
        }
    }

    /// Forgets a segment that is deleted or whose log closes.
    pub(crate) fn forget(&self, segment: &Rc<Segment>) {
        self.open.borrow_mut().retain(|other| !Rc::ptr_eq(other, segment));
        self.chunks.forget(segment.id);
    }
}

/// A number of things that may run at once; first come, first served. Clones share it.
#[derive(Clone)]
pub(crate) struct Permits(Rc<PermitsInner>);

struct PermitsInner {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Rc<Event>>>,
}

impl Permits {
    fn new(count: usize) -> Self {
        Self(Rc::new(PermitsInner { free: Cell::new(count), waiting: RefCell::default() }))
    }

    /// Whether [`Permits::acquire`] would not wait.
    pub(crate) fn is_free(&self) -> bool {
        self.0.free.get() > 0
    }

    /// Takes a turn that is free.
    pub(crate) fn try_acquire(&self) -> Option<Permit> {
        let left = self.0.free.get().checked_sub(1)?;
        self.0.free.set(left);
        Some(Permit(self.clone()))
    }

    /// Waits for its turn. Whoever waits must wait to the end: a permit is handed to it by name.
    pub(crate) async fn acquire(&self) -> Permit {
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        let turn = Rc::new(Event::default());
        let come = turn.wait();
        self.0.waiting.borrow_mut().push_back(turn);
        come.await;
        Permit(self.clone())
    }
}

pub(crate) struct Permit(Permits);

impl Drop for Permit {
    fn drop(&mut self) {
        let next = self.0.0.waiting.borrow_mut().pop_front();
        match next {
            Some(turn) => turn.notify_all(),
            None => self.0.0.free.set(self.0.0.free.get() + 1),
        }
    }
}

/// Bytes read from disk, kept for who reads on; the ones unused for longest go first. Knows also what is being read, so that
/// a reader that comes before its read-ahead has ended does not read the same again.
pub(crate) struct ReadCache {
    bytes_max: usize,
    chunks: RefCell<VecDeque<Kept>>,
    bytes: Cell<usize>,
    reading: Rc<RefCell<Vec<Reading>>>,
}

struct Kept {
    chunk: Chunk,
    /// Read ahead, and nobody has come for it yet.
    is_ahead: bool,
}

/// A run of bytes on its way from the disk.
struct Reading {
    segment: u64,
    bytes: Range<u64>,
    done: Rc<Event>,
}

/// Tells at its end, however it comes, those who wait for the read.
pub(crate) struct ReadGuard {
    reading: Rc<RefCell<Vec<Reading>>>,
    done: Rc<Event>,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.reading.borrow_mut().retain(|reading| !Rc::ptr_eq(&reading.done, &self.done));
        self.done.notify_all();
    }
}

/// A run of bytes of one segment's file.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) segment: u64,
    pub(crate) position: u64,
    pub(crate) slice: DiskSlice,
}

impl Chunk {
    pub(crate) fn end(&self) -> u64 {
        self.position + self.len() as u64
    }

    fn len(&self) -> usize {
        self.slice.as_slice().len()
    }

    fn holds(&self, segment: u64, position: u64) -> bool {
        self.segment == segment && (self.position..self.end()).contains(&position)
    }
}

impl ReadCache {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, chunks: RefCell::default(), bytes: Cell::new(0), reading: Rc::default() }
    }

    /// The end of a read that is under way and brings the byte at `position`. It may fail, or what it brought be gone again:
    /// whoever waited looks once more.
    pub(crate) fn under_way(&self, segment: u64, position: u64) -> Option<impl Future<Output = ()> + use<>> {
        let reading = self.reading.borrow();
        let found = reading.iter().find(|other| other.segment == segment && other.bytes.contains(&position))?;
        Some(found.done.wait())
    }

    /// Says that these bytes are being read, until the guard is dropped.
    pub(crate) fn begin(&self, segment: u64, bytes: Range<u64>) -> ReadGuard {
        let done = Rc::<Event>::default();
        self.reading.borrow_mut().push(Reading { segment, bytes, done: Rc::clone(&done) });
        ReadGuard { reading: Rc::clone(&self.reading), done }
    }

    /// Whether `bytes` may be read ahead at `position`: they are not here or under way, and what is read ahead for others
    /// leaves room, so that many readers do not drive each other's pieces out unread.
    pub(crate) fn wants_ahead(&self, segment: u64, position: u64, bytes: usize) -> bool {
        let chunks = self.chunks.borrow();
        let reading = self.reading.borrow();
        let is_here = chunks.iter().any(|kept| kept.chunk.holds(segment, position))
            || reading.iter().any(|other| other.segment == segment && other.bytes.contains(&position));
        let unread: usize = chunks.iter().filter(|kept| kept.is_ahead).map(|kept| kept.chunk.len()).sum();
        let under_way: u64 = reading.iter().map(|other| other.bytes.end - other.bytes.start).sum();
        !is_here && (unread + bytes) as u64 + under_way <= self.bytes_max as u64 / 2
    }

    /// The chunk that holds the byte at `position`.
    pub(crate) fn find(&self, segment: u64, position: u64) -> Option<Chunk> {
        let mut chunks = self.chunks.borrow_mut();
        let at = chunks.iter().position(|kept| kept.chunk.holds(segment, position))?;
        let chunk = chunks.remove(at)?.chunk;
        chunks.push_back(Kept { chunk: chunk.clone(), is_ahead: false });
        Some(chunk)
    }

    /// Keeps a chunk, in place of shorter ones that begin where it does.
    pub(crate) fn keep(&self, chunk: Chunk, is_ahead: bool) {
        let mut chunks = self.chunks.borrow_mut();
        chunks.retain(|kept| (kept.chunk.segment, kept.chunk.position) != (chunk.segment, chunk.position));
        chunks.push_back(Kept { chunk, is_ahead });
        let mut bytes: usize = chunks.iter().map(|kept| kept.chunk.len()).sum();
        while bytes > self.bytes_max {
            let Some(oldest) = chunks.pop_front() else { break };
            bytes -= oldest.chunk.len();
        }
        self.bytes.set(bytes);
    }

    fn forget(&self, segment: u64) {
        let mut chunks = self.chunks.borrow_mut();
        chunks.retain(|kept| kept.chunk.segment != segment);
        self.bytes.set(chunks.iter().map(|kept| kept.chunk.len()).sum());
    }
}
