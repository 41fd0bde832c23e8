//! What the logs of one shard share: the tail cache's budget, files opened for reading, cold reads kept for the next reader,
//! limits of operations in flight, counters.
//!
//! Shell. Owns the shard-wide limits, each with its reason. Does not own any log. Always: memory and file handles that grow
//! with the number of partitions have their bound here, so that idle partitions cost neither.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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
/// Memory of cold reads kept: the rest of the last read and the one ahead for some thirty sequential readers.
const READ_CACHE_BYTES_MAX: usize = 8 << 20;

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
    /// One per shard. `tail_cache_bytes`: budget of cached batches over all logs of the shard.
    pub fn new(tail_cache_bytes: usize) -> Self {
        Self(Rc::new(Shared {
            tail: TailBudget::new(tail_cache_bytes),
            writes: Permits::new(WRITES_IN_FLIGHT_MAX),
            prewrites: Permits::new(1),
            syncs: Permits::new(SYNCS_IN_FLIGHT_MAX),
            chunks: ReadCache::default(),
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

/// Bytes read from disk, kept for who reads on; the ones unused for longest go first.
#[derive(Default)]
pub(crate) struct ReadCache {
    chunks: RefCell<VecDeque<Chunk>>,
    bytes: Cell<usize>,
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
        self.position + self.slice.as_slice().len() as u64
    }

    fn holds(&self, segment: u64, position: u64) -> bool {
        self.segment == segment && (self.position..self.end()).contains(&position)
    }
}

impl ReadCache {
    /// The chunk that holds the byte at `position`.
    pub(crate) fn find(&self, segment: u64, position: u64) -> Option<Chunk> {
        let mut chunks = self.chunks.borrow_mut();
        let at = chunks.iter().position(|chunk| chunk.holds(segment, position))?;
        let chunk = chunks.remove(at)?;
        chunks.push_back(chunk.clone());
        Some(chunk)
    }

    /// Keeps a chunk, in place of shorter ones that begin where it does.
    pub(crate) fn keep(&self, chunk: Chunk) {
        let mut chunks = self.chunks.borrow_mut();
        chunks.retain(|other| (other.segment, other.position) != (chunk.segment, chunk.position));
        chunks.push_back(chunk);
        let mut bytes: usize = chunks.iter().map(|chunk| chunk.slice.as_slice().len()).sum();
        while bytes > READ_CACHE_BYTES_MAX {
            let Some(oldest) = chunks.pop_front() else { break };
            bytes -= oldest.slice.as_slice().len();
        }
        self.bytes.set(bytes);
    }

    fn forget(&self, segment: u64) {
        let mut chunks = self.chunks.borrow_mut();
        chunks.retain(|chunk| chunk.segment != segment);
        self.bytes.set(chunks.iter().map(|chunk| chunk.slice.as_slice().len()).sum());
    }
}
