//! Who waits on a partition: acks for an offset, and long polls for bytes.
//!
//! Pure: futures and wakers of the standard library only. Owns the lists; not the clock. Always: an ack leaves the list at most
//! once, a watch fires at most once, and a task is in the lists only while somebody still polls it. Who waits for an ack is a
//! task, or a value that is told: a produce request needs no task of its own, which costs half of all that it costs here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use slab::Slab;
use smallvec::SmallVec;

use super::vocabulary::ProduceError;
use crate::types::Offset;

/// The lists of one partition.
#[derive(Default)]
pub struct Waiters {
    /// Ascending by offset; equal offsets in order of arrival. Appends come in offset order, so this is a queue in practice.
    acks: VecDeque<Ack>,
    watches: Slab<Rc<Watch>>,
    next_ticket: u64,
}

struct Ack {
    offset: Offset,
    ticket: u64,
    /// When it is told although the offset is not reached; a task minds its own deadline.
    deadline: Option<Instant>,
    due: Due,
}

/// Is told what became of a batch.
pub trait Told {
    /// `place` is what the batch was registered with. Called at most once for each.
    fn told(self: Rc<Self>, place: usize, outcome: Result<(), ProduceError>);
}

/// What is to be done for one who waited, after the borrow of the lists has ended.
pub enum Due {
    /// A task looks for itself.
    Wake(Waker),
    /// A value is told the outcome, with its place.
    Tell(Rc<dyn Told>, usize),
}

/// Many; what one write of a few batches completes takes no heap.
pub type DueList = SmallVec<[Due; 4]>;

impl Due {
    /// Does it.
    pub fn settle(self, outcome: Result<(), ProduceError>) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Tell(told, place) => told.told(place, outcome),
        }
    }
}

/// One place in the list of acks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckKey {
    offset: Offset,
    ticket: u64,
}

/// One place in the list of watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchKey(usize);

impl Waiters {
    /// Wakes `waker` when the high watermark reaches `offset`.
    pub fn wait_for(&mut self, offset: Offset, waker: Waker) -> AckKey {
        self.insert(offset, None, Due::Wake(waker))
    }

    /// Tells `told` when the high watermark reaches `offset`, or when [`Waiters::expire`] finds the deadline passed.
    pub fn tell_at(&mut self, offset: Offset, deadline: Instant, told: Rc<dyn Told>, place: usize) {
        self.insert(offset, Some(deadline), Due::Tell(told, place));
    }

    fn insert(&mut self, offset: Offset, deadline: Option<Instant>, due: Due) -> AckKey {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let place = self.acks.partition_point(|ack| ack.offset <= offset);
        self.acks.insert(place, Ack { offset, ticket, deadline, due });
        AckKey { offset, ticket }
    }

    /// The waiting task is now polled by `waker`. Whether the place still exists.
    pub fn rewake(&mut self, key: AckKey, waker: &Waker) -> bool {
        let Some(place) = self.place_of(key) else { return false };
        self.acks[place].due = Due::Wake(waker.clone());
        true
    }

    /// The wait was given up or served; a place already left is no error.
    pub fn forget_ack(&mut self, key: AckKey) {
        if let Some(place) = self.place_of(key) {
            self.acks.remove(place);
        }
    }

    fn place_of(&self, key: AckKey) -> Option<usize> {
        self.acks.binary_search_by_key(&(key.offset, key.ticket), |ack| (ack.offset, ack.ticket)).ok()
    }

    /// Counts `watch` down with every byte that becomes visible here.
    pub fn watch(&mut self, watch: Rc<Watch>) -> WatchKey {
        WatchKey(self.watches.insert(watch))
    }

    /// The watch has fired or was given up.
    pub fn forget_watch(&mut self, key: WatchKey) {
        self.watches.remove(key.0);
    }

    /// Takes all acks at or below `high_watermark`, and counts the watches down by the `bytes` that became visible.
    pub fn on_high_watermark(&mut self, high_watermark: Offset, bytes: u64, due: &mut DueList) {
        while let Some(ack) = self.acks.pop_front_if(|ack| ack.offset <= high_watermark) {
            due.push(ack.due);
        }
        for (_, watch) in &self.watches {
            due.extend(watch.count_down(bytes).map(Due::Wake));
        }
    }

    /// The partition ended, failed or changed its leader: takes everybody.
    pub fn on_end(&mut self, due: &mut DueList) {
        due.extend(self.acks.drain(..).map(|ack| ack.due));
        for (_, watch) in &self.watches {
            due.extend(watch.fire().map(Due::Wake));
        }
    }

    /// Takes the acks whose deadline has passed.
    pub fn expire(&mut self, now: Instant, due: &mut DueList) {
        let late = |ack: &Ack| ack.deadline.is_some_and(|deadline| deadline <= now);
        let mut at = 0;
        while at < self.acks.len() {
            if late(&self.acks[at]) {
                due.extend(self.acks.remove(at).map(|ack| ack.due));
            } else {
                at += 1;
            }
        }
    }

    /// How many wait, for the gauges: acks and watches.
    pub fn counts(&self) -> (usize, usize) {
        (self.acks.len(), self.watches.len())
    }
}

/// One long poll over any number of partitions of one shard.
pub struct Watch {
    /// Bytes that must still become visible; 0 has fired.
    missing: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Watch {
    /// Fires after `bytes` (at least 1) became visible over all its partitions.
    pub fn new(bytes: u64) -> Rc<Self> {
        Rc::new(Self { missing: Cell::new(bytes.max(1)), waker: RefCell::new(None) })
    }

    /// Whether it fired.
    pub fn fired(&self) -> bool {
        self.missing.get() == 0
    }

    /// Who is woken when it fires.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    /// `bytes` became visible. The waker, if that fired it.
    pub fn count_down(&self, bytes: u64) -> Option<Waker> {
        if self.fired() {
            return None;
        }
        self.missing.set(self.missing.get().saturating_sub(bytes));
        if self.fired() { self.waker.borrow_mut().take() } else { None }
    }

    /// Fires whatever is missing. The waker, unless it had fired.
    pub fn fire(&self) -> Option<Waker> {
        self.count_down(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn woken_by(waiters: &mut Waiters, high_watermark: i64, bytes: u64) -> usize {
        let mut woken = DueList::new();
        waiters.on_high_watermark(at(high_watermark), bytes, &mut woken);
        woken.len()
    }

    #[test]
    fn an_ack_is_woken_once_when_the_high_watermark_reaches_it() {
        let mut waiters = Waiters::default();
        for offset in [5, 3, 9, 5] {
            waiters.wait_for(at(offset), Waker::noop().clone());
        }
        assert_eq!(woken_by(&mut waiters, 2, 0), 0);
        assert_eq!(woken_by(&mut waiters, 5, 0), 3);
        assert_eq!(woken_by(&mut waiters, 5, 0), 0);
        assert_eq!(woken_by(&mut waiters, 9, 0), 1);
    }

    #[test]
    fn who_is_told_is_told_once_in_time_or_when_it_is_too_late() {
        #[derive(Default)]
        struct Notes(RefCell<Vec<(usize, bool)>>);
        impl Told for Notes {
            fn told(self: Rc<Self>, place: usize, outcome: Result<(), ProduceError>) {
                self.0.borrow_mut().push((place, outcome.is_ok()));
            }
        }
        let (mut waiters, notes, now) = (Waiters::default(), Rc::new(Notes::default()), Instant::now());
        for (place, (offset, seconds)) in [(3, 30), (4, 1), (5, 2), (6, 30)].into_iter().enumerate() {
            waiters.tell_at(at(offset), now + std::time::Duration::from_secs(seconds), notes.clone(), place);
        }
        waiters.wait_for(at(6), Waker::noop().clone());
        let mut due = DueList::new();
        waiters.on_high_watermark(at(3), 0, &mut due);
        due.drain(..).for_each(|due| due.settle(Ok(())));
        waiters.expire(now + std::time::Duration::from_secs(2), &mut due);
        due.drain(..).for_each(|due| due.settle(Err(ProduceError::TimedOut)));
        assert_eq!(*notes.0.borrow(), [(0, true), (1, false), (2, false)]);
        assert_eq!(waiters.counts().0, 2, "the one with time left and the task");
    }

    #[test]
    fn a_forgotten_ack_is_not_woken_and_the_others_are() {
        let mut waiters = Waiters::default();
        let first = waiters.wait_for(at(5), Waker::noop().clone());
        let second = waiters.wait_for(at(5), Waker::noop().clone());
        waiters.forget_ack(first);
        waiters.forget_ack(first);
        assert!(!waiters.rewake(first, Waker::noop()));
        assert!(waiters.rewake(second, Waker::noop()));
        assert_eq!(woken_by(&mut waiters, 5, 0), 1);
    }

    #[test]
    fn a_watch_fires_once_when_its_bytes_are_visible() {
        let (mut here, mut there) = (Waiters::default(), Waiters::default());
        let watch = Watch::new(100);
        watch.set_waker(Waker::noop());
        let key = here.watch(watch.clone());
        there.watch(watch.clone());
        assert_eq!(woken_by(&mut here, 1, 60), 0);
        assert_eq!(woken_by(&mut there, 1, 60), 1);
        assert!(watch.fired());
        assert_eq!(woken_by(&mut here, 2, 60), 0);
        here.forget_watch(key);
        assert_eq!(here.counts(), (0, 0));
    }

    #[test]
    fn the_end_wakes_everybody() {
        let mut waiters = Waiters::default();
        waiters.wait_for(at(5), Waker::noop().clone());
        let watch = Watch::new(100);
        watch.set_waker(Waker::noop());
        waiters.watch(watch.clone());
        let mut woken = DueList::new();
        waiters.on_end(&mut woken);
        assert_eq!(woken.len(), 2);
        assert!(watch.fired());
    }
}
