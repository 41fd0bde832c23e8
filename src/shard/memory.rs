//! The memory of one shard's requests: permits taken before a body is read; and of its answers to fetches.
//!
//! Pure: no clock, no tasks; wakers of the standard library only. Owns the count of admitted bytes; not the buffers. Always:
//! admitted bytes stay within the limit, except that one frame larger than its share is admitted when nothing else of its
//! size is. Large frames have a share of their own, so that a hundred peers which announce 100 MiB each and send nothing
//! leave the small requests of others their memory; and while somebody waits, unfinished frames that stand still are cut.
//! A fetch never waits for memory: the more answers wait for their peers, the less it reads, down to [`READ_BYTES_MIN`], and to
//! the one batch without which its consumer would stand still (KIP-74) when answers hold twice their limit. Queued answers count
//! with the whole pieces of the disk that they are slices of. So they are at most twice the limit, and of each connection what it
//! may queue before its reading pauses, and the pieces of one batch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Frames above this are large: a default produce batch (1 MiB and 12 bytes) with its request around it is still small.
pub const LARGE_FRAME_BYTES: usize = 2 << 20;

/// A fetch may read so much, while answers hold less than twice their limit: by single batches a consumer would not keep up, because
/// others take nothing. As much as the least read of the disk brings.
pub const READ_BYTES_MIN: usize = 128 << 10;

/// No fetch may read more than this part of the limit: what it may read is reserved, be there ever so little to read.
const FETCH_SHARE: usize = 8;

/// The budget of one shard. Clones share it.
#[derive(Clone)]
pub struct MemoryBudget {
    small: Rc<Pool>,
    large: Rc<Pool>,
}

struct Pool {
    limit: usize,
    used: Cell<usize>,
    waiting: RefCell<VecDeque<Waiting>>,
    next_ticket: Cell<u64>,
}

struct Waiting {
    ticket: u64,
    bytes: usize,
    waker: Waker,
}

impl MemoryBudget {
    /// A budget of `limit` bytes; half of it may go to large frames.
    pub fn new(limit: usize) -> Self {
        let pool =
            |limit| Rc::new(Pool { limit, used: Cell::new(0), waiting: RefCell::default(), next_ticket: Cell::new(0) });
        Self { small: pool(limit - limit / 2), large: pool(limit / 2) }
    }

    fn pool(&self, bytes: usize) -> &Rc<Pool> {
        if bytes > LARGE_FRAME_BYTES { &self.large } else { &self.small }
    }

    /// Waits until `bytes` fit, first come first served among frames of its class.
    pub fn admit(&self, bytes: usize) -> Admission {
        Admission { pool: self.pool(bytes).clone(), bytes, ticket: None }
    }

    /// Whether somebody waits for memory that frames of this size hold.
    pub fn pressed(&self, bytes: usize) -> bool {
        let pool = self.pool(bytes);
        pool.waiting.borrow().front().is_some_and(|first| !pool.fits(first.bytes))
    }

    /// Bytes admitted now.
    pub fn used(&self) -> usize {
        self.small.used.get() + self.large.used.get()
    }

    /// Frames that wait for memory now.
    pub fn waiting(&self) -> usize {
        self.small.waiting.borrow().len() + self.large.waiting.borrow().len()
    }

    /// Bytes that may be admitted.
    pub fn limit(&self) -> usize {
        self.small.limit + self.large.limit
    }
}

impl Pool {
    /// A frame larger than the whole pool is admitted alone.
    fn fits(&self, bytes: usize) -> bool {
        self.used.get() == 0 || self.used.get() + bytes <= self.limit
    }

    fn wake_first(&self) {
        let waiting = self.waiting.borrow();
        if let Some(first) = waiting.front()
            && self.fits(first.bytes)
        {
            first.waker.wake_by_ref();
        }
    }
}

/// Waits for memory; dropping it gives up the place in line.
pub struct Admission {
    pool: Rc<Pool>,
    bytes: usize,
    ticket: Option<u64>,
}

impl Future for Admission {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let pool = &this.pool;
        let mut waiting = pool.waiting.borrow_mut();
        let first = waiting.front().is_none_or(|first| Some(first.ticket) == this.ticket);
        if first && pool.fits(this.bytes) {
            if this.ticket.take().is_some() {
                waiting.pop_front();
            }
            pool.used.set(pool.used.get() + this.bytes);
            drop(waiting);
            pool.wake_first();
            return Poll::Ready(Permit { pool: pool.clone(), bytes: this.bytes });
        }
        match waiting.iter_mut().find(|entry| Some(entry.ticket) == this.ticket) {
            Some(entry) => entry.waker.clone_from(context.waker()),
            None => {
                let ticket = pool.next_ticket.replace(pool.next_ticket.get() + 1);
                waiting.push_back(Waiting { ticket, bytes: this.bytes, waker: context.waker().clone() });
                this.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.pool.waiting.borrow_mut().retain(|entry| entry.ticket != ticket);
            self.pool.wake_first();
        }
    }
}

/// Admitted bytes; dropping it returns them.
pub struct Permit {
    pool: Rc<Pool>,
    bytes: usize,
}

impl Permit {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let used = self.pool.used.get();
        assert!(used >= self.bytes, "{} bytes return to a pool that gave out {used}", self.bytes);
        self.pool.used.set(used - self.bytes);
        self.pool.wake_first();
    }
}

/// What answers to fetches may hold, from before their batches are read until the peer has taken them.
pub struct AnswerBudget(Rc<Answers>);

struct Answers {
    limit: usize,
    /// Of answers that are being read.
    reserved: Cell<usize>,
}

impl AnswerBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Rc::new(Answers { limit, reserved: Cell::new(0) }))
    }

    /// How much of `wanted` may be read now that answers of `queued` bytes wait for their peers: never more than half of what
    /// is left, so that however many read at once, each finds something; but [`READ_BYTES_MIN`] also beyond the limit, up to
    /// twice as much.
    pub fn reserve(&self, wanted: usize, queued: usize) -> Reserved {
        let budget = &self.0;
        let held = queued.saturating_add(budget.reserved.get());
        let least = if held < 2 * budget.limit { READ_BYTES_MIN } else { 0 };
        let most = (budget.limit.saturating_sub(held) / 2).min(budget.limit / FETCH_SHARE);
        let bytes = wanted.min(most.max(least));
        budget.reserved.set(budget.reserved.get() + bytes);
        Reserved { budget: budget.clone(), bytes }
    }

    /// Bytes of answers that are being read.
    pub fn reserved(&self) -> usize {
        self.0.reserved.get()
    }

    /// Bytes that answers may hold.
    pub fn limit(&self) -> usize {
        self.0.limit
    }
}

/// Memory for one answer; to be held until the answer is queued, which counts it from then on.
pub struct Reserved {
    budget: Rc<Answers>,
    bytes: usize,
}

impl Reserved {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.reserved.set(self.budget.reserved.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 1 << 20;
    const LARGE: usize = 100 << 20;

    fn poll(admission: &mut Admission) -> Option<Permit> {
        match Pin::new(admission).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn announced_giants_leave_small_requests_their_memory() {
        let budget = MemoryBudget::new(256 << 20);
        let mut giants: Vec<_> = (0..100).map(|_| budget.admit(LARGE)).collect();
        let held: Vec<_> = giants.iter_mut().filter_map(poll).collect();
        assert_eq!(held.len(), 1);
        assert!(budget.pressed(LARGE) && !budget.pressed(SMALL));
        assert!(poll(&mut budget.admit(SMALL)).is_some());
        assert!(budget.used() <= budget.limit());
    }

    #[test]
    fn permits_come_back_and_the_line_is_kept() {
        let budget = MemoryBudget::new(4 * SMALL);
        let first = poll(&mut budget.admit(2 * SMALL)).unwrap();
        let (mut second, mut third) = (budget.admit(2 * SMALL), budget.admit(1));
        assert!(poll(&mut second).is_none());
        assert!(poll(&mut third).is_none(), "nobody overtakes within a class");
        drop(first);
        assert!(poll(&mut third).is_none());
        let second = poll(&mut second).unwrap();
        assert_eq!(second.bytes(), 2 * SMALL);
        assert!(poll(&mut third).is_none());
        drop(second);
        assert!(poll(&mut third).is_some());
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
    }

    #[test]
    fn giving_up_frees_the_place_in_line() {
        let budget = MemoryBudget::new(4 * SMALL);
        let _held = poll(&mut budget.admit(SMALL)).unwrap();
        let (mut second, mut third) = (budget.admit(2 * SMALL), budget.admit(SMALL));
        assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
        drop(second);
        assert!(poll(&mut third).is_some());
    }

    #[test]
    fn a_frame_larger_than_the_pool_is_admitted_alone() {
        let budget = MemoryBudget::new(64 << 20);
        let giant = poll(&mut budget.admit(LARGE)).unwrap();
        let mut other = budget.admit(LARGE_FRAME_BYTES + 1);
        assert!(poll(&mut other).is_none());
        drop(giant);
        assert!(poll(&mut other).is_some());
    }

    #[test]
    fn answers_that_nobody_takes_leave_less_and_less_to_read_but_not_nothing_at_once() {
        const LIMIT: usize = 8 << 20;
        let budget = AnswerBudget::new(LIMIT);
        let (mut queued, mut read_before) = (0, LIMIT);
        while queued < 2 * LIMIT {
            let read = budget.reserve(LARGE, queued).bytes();
            assert!(
                (READ_BYTES_MIN..=LIMIT / FETCH_SHARE).contains(&read) && read <= read_before,
                "{read} at {queued}"
            );
            read_before = read;
            queued += read;
        }
        assert!(queued < 2 * LIMIT + READ_BYTES_MIN && read_before == READ_BYTES_MIN, "{queued}");
        assert_eq!(budget.reserve(SMALL, queued).bytes(), 0, "more is queued than may be: first batches");
        assert_eq!(budget.reserve(SMALL, 0).bytes(), SMALL, "taken: there is room again");
    }

    #[test]
    fn what_is_being_read_is_counted_as_what_is_queued() {
        let budget = AnswerBudget::new(8 * SMALL);
        let first = budget.reserve(LARGE, 0);
        let second = budget.reserve(LARGE, 6 * SMALL);
        let small = budget.reserve(10, SMALL);
        assert_eq!([&first, &second, &small].map(Reserved::bytes), [SMALL, SMALL / 2, 10]);
        assert_eq!(budget.reserved(), SMALL + SMALL / 2 + 10);
        drop((first, second, small));
        assert_eq!((budget.reserved(), budget.reserve(LARGE, 7 * SMALL).bytes()), (0, SMALL / 2));
    }

    #[test]
    fn many_that_wish_for_much_at_once_each_find_enough() {
        let budget = AnswerBudget::new(300 << 20);
        let reading: Vec<_> = (0..100).map(|_| budget.reserve(55 << 20, 0)).collect();
        assert!(reading.iter().all(|reserved| reserved.bytes() >= READ_BYTES_MIN));
    }
}
