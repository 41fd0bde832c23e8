//! The tail cache: the last batches of each log in memory, so that caught-up consumers cost no read and no copy.
//!
//! Shell (it is shared state of a shard, though it does no I/O). Owns the cached batches and the shard's budget for them.
//! Does not own what may be read: the caller bounds every read. Always: a log's cached batches end at its log end without a
//! gap, and a batch that is not written yet is never evicted, so what is not cached is on the device. A batch is charged with
//! its bytes; that it does not hold much more (it is a part of the memory its request came in) is seen to where it is taken
//! out of that request, in `server/produce.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use crate::rt::net::Payload;
use crate::types::Offset;

use super::reader::{ReadBounds, ReadData};

/// What an entry costs beside its bytes; charged, so that tiny batches cannot outgrow the budget.
const ENTRY_BYTES: usize = size_of::<CachedBatch>() + size_of::<Rc<Tail>>();

/// How many unwritten batches one eviction looks past: each push stays cheap while a device is slow.
const UNWRITTEN_LOOKS_MAX: usize = 16;

/// Slices one read answers with: more would cost the socket more than another request does.
const PARTS_MAX: usize = 1024;

/// One batch in memory.
pub(crate) struct CachedBatch {
    pub(crate) base: Offset,
    pub(crate) last: Offset,
    pub(crate) bytes: Bytes,
}

/// The cached batches of one log, oldest first.
pub(crate) struct Tail {
    batches: RefCell<VecDeque<CachedBatch>>,
    written: Cell<Offset>,
}

impl Tail {
    pub(crate) fn new(log_end: Offset) -> Rc<Self> {
        Rc::new(Self { batches: RefCell::default(), written: Cell::new(log_end) })
    }

    /// Everything below `written` may be evicted from now on.
    pub(crate) fn on_written(&self, written: Offset) {
        self.written.set(written);
    }

    /// Where the cache begins; `None` when nothing is cached.
    pub(crate) fn start(&self) -> Option<Offset> {
        self.batches.borrow().front().map(|batch| batch.base)
    }

    /// Whole batches from the one that holds `from`, within `bounds`; `None` when that one is not cached.
    pub(crate) fn read(&self, from: Offset, bounds: ReadBounds) -> Option<ReadData> {
        let batches = self.batches.borrow();
        batches.front().filter(|first| first.base <= from)?;
        let at = batches.partition_point(|batch| batch.last < from);
        let mut data = ReadData::default();
        for batch in batches.range(at..).take_while(|batch| batch.last < bounds.below) {
            let first = data.parts.is_empty() && bounds.at_least_one;
            let fits = data.bytes + batch.bytes.len() <= bounds.bytes_max || first;
            if !fits || data.parts.len() == PARTS_MAX {
                data.limited = true;
                break;
            }
            data.bytes += batch.bytes.len();
            data.parts.push(Payload::Mem(batch.bytes.clone()));
        }
        Some(data)
    }
}

/// The budget that the tails of one shard share: the oldest written batch of all goes first.
pub(crate) struct TailBudget {
    bytes_max: usize,
    bytes: Cell<usize>,
    /// One entry for each cached batch, in the order of appends: whose oldest batch goes next.
    order: RefCell<VecDeque<Rc<Tail>>>,
}

impl TailBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: Cell::new(0), order: RefCell::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Caches the batch just appended to the log of `tail`.
    pub(crate) fn push(&self, tail: &Rc<Tail>, batch: CachedBatch) {
        self.bytes.set(self.bytes.get() + batch.bytes.len() + ENTRY_BYTES);
        let mut batches = tail.batches.borrow_mut();
        if let Some(newest) = batches.back() {
            assert_eq!(newest.last.next(), batch.base, "the tail cache has no gap");
        }
        batches.push_back(batch);
        drop(batches);
        self.order.borrow_mut().push_back(Rc::clone(tail));
        self.evict();
    }

    /// Makes room, as far as written batches allow. Called again when something was written.
    pub(crate) fn evict(&self) {
        let mut order = self.order.borrow_mut();
        let mut looked = 0;
        while self.bytes.get() > self.bytes_max && looked < UNWRITTEN_LOOKS_MAX {
            let Some(tail) = order.pop_front() else { return };
            let oldest = tail.batches.borrow_mut().pop_front_if(|batch| batch.last < tail.written.get());
            if let Some(batch) = oldest {
                self.bytes.set(self.bytes.get() - batch.bytes.len() - ENTRY_BYTES);
            } else {
                order.push_back(tail);
                looked += 1;
            }
        }
    }

    /// Forgets a log that closes.
    pub(crate) fn clear(&self, tail: &Rc<Tail>) {
        let gone: usize = tail.batches.borrow_mut().drain(..).map(|batch| batch.bytes.len() + ENTRY_BYTES).sum();
        self.bytes.set(self.bytes.get() - gone);
        self.order.borrow_mut().retain(|other| !Rc::ptr_eq(other, tail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(value: i64) -> Offset {
        Offset::new(value).unwrap()
    }

    fn batch(base: i64) -> CachedBatch {
        CachedBatch { base: offset(base), last: offset(base + 9), bytes: Bytes::from(vec![7; 100]) }
    }

    fn bounds(below: i64, bytes_max: usize) -> ReadBounds {
        ReadBounds { below: offset(below), bytes_max, at_least_one: true }
    }

    const CHARGE: usize = 100 + ENTRY_BYTES;

    #[test]
    fn reads_bring_whole_batches_below_the_bound() {
        let budget = TailBudget::new(usize::MAX);
        let tail = Tail::new(offset(0));
        (0..5).for_each(|n| budget.push(&tail, batch(n * 10)));
        let bytes = |from, bounds| tail.read(offset(from), bounds).map(|data| (data.parts.len(), data.bytes));
        assert_eq!(bytes(0, bounds(50, 1000)), Some((5, 500)));
        assert_eq!(bytes(19, bounds(50, 1000)), Some((4, 400)), "from inside a batch: that batch");
        assert_eq!(bytes(0, bounds(29, 1000)), Some((2, 200)), "a batch that reaches the bound stays out");
        assert_eq!(bytes(0, bounds(50, 250)), Some((2, 200)));
        assert_eq!(bytes(0, bounds(50, 1)), Some((1, 100)), "the first batch exceeds the budget");
        assert_eq!(bytes(0, ReadBounds { at_least_one: false, ..bounds(50, 99) }), Some((0, 0)));
        let limited = |from, bounds| tail.read(offset(from), bounds).is_some_and(|data| data.limited);
        assert!(limited(0, bounds(50, 499)) && limited(0, bounds(50, 1)));
        assert!(!limited(0, bounds(50, 500)) && !limited(0, bounds(29, 200)), "the bound is no limit");
    }

    #[test]
    fn the_oldest_written_batch_of_all_logs_goes_first() {
        let budget = TailBudget::new(3 * CHARGE);
        let (a, b) = (Tail::new(offset(0)), Tail::new(offset(0)));
        budget.push(&a, batch(0));
        budget.push(&b, batch(0));
        budget.push(&a, batch(10));
        a.on_written(offset(20));
        b.on_written(offset(10));
        budget.push(&b, batch(10));
        assert_eq!((a.start(), b.start()), (Some(offset(10)), Some(offset(0))));
        budget.push(&b, batch(20));
        assert_eq!((a.start(), b.start()), (Some(offset(10)), Some(offset(10))));
        assert_eq!(budget.bytes(), 3 * CHARGE);
        assert!(a.read(offset(0), bounds(20, 1000)).is_none(), "evicted: on the device");
    }

    #[test]
    fn unwritten_batches_stay_whatever_the_budget() {
        let budget = TailBudget::new(CHARGE);
        let tail = Tail::new(offset(0));
        (0..4).for_each(|n| budget.push(&tail, batch(n * 10)));
        assert_eq!(tail.start(), Some(offset(0)));
        tail.on_written(offset(20));
        budget.evict();
        assert_eq!((tail.start(), budget.bytes()), (Some(offset(20)), 2 * CHARGE));
    }

    #[test]
    fn a_closed_log_gives_its_memory_back() {
        let budget = TailBudget::new(usize::MAX);
        let (a, b) = (Tail::new(offset(0)), Tail::new(offset(0)));
        budget.push(&a, batch(0));
        budget.push(&b, batch(0));
        budget.clear(&a);
        assert_eq!((budget.bytes(), a.start(), b.start()), (CHARGE, None, Some(offset(0))));
    }
}
