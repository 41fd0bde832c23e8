//! Shell. A wake-up for everyone who waits on one shard.
//!
//! Owns the wakers of those who wait. Carries no value: who wakes looks at the state it waited for. Always: a waiter sees
//! every `notify_all` after its `wait` call, polled or not; wakers are woken in order of arrival and outside any borrow.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes tasks in order of arrival when something changed; single-thread. `notify_all` wakes every waiter registered before it.
#[derive(Default, Clone)]
pub struct Event(Rc<RefCell<Waiters>>);

#[derive(Default)]
struct Waiters {
    /// How often `notify_all` was called.
    notified: u64,
    arrivals: u64,
    /// Sorted by arrival.
    wakers: Vec<(u64, Waker)>,
}

impl Event {
    /// Wakes all who wait now.
    pub fn notify_all(&self) {
        let mut woken = {
            let mut waiters = self.0.borrow_mut();
            waiters.notified += 1;
            std::mem::take(&mut waiters.wakers)
        };
        for (_, waker) in woken.drain(..) {
            waker.wake();
        }
        // The next waiters find the same memory.
        let mut waiters = self.0.borrow_mut();
        if waiters.wakers.is_empty() {
            waiters.wakers = woken;
        }
    }

    /// Waits for the next `notify_all` (registered at the call, not at the first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + use<> {
        let mut waiters = self.0.borrow_mut();
        waiters.arrivals += 1;
        Wait { event: self.clone(), notified: waiters.notified, arrival: waiters.arrivals }
    }

    /// Whether anybody waits and has been polled.
    pub(super) fn has_waiters(&self) -> bool {
        !self.0.borrow().wakers.is_empty()
    }
}

struct Wait {
    event: Event,
    notified: u64,
    arrival: u64,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiters = self.event.0.borrow_mut();
        if waiters.notified != self.notified {
            return Poll::Ready(());
        }
        match waiters.wakers.binary_search_by_key(&self.arrival, |(arrival, _)| *arrival) {
            Ok(at) => waiters.wakers[at].1.clone_from(context.waker()),
            Err(at) => waiters.wakers.insert(at, (self.arrival, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waiters = self.event.0.borrow_mut();
        if let Ok(at) = waiters.wakers.binary_search_by_key(&self.arrival, |(arrival, _)| *arrival) {
            waiters.wakers.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_notification_between_the_call_and_the_first_poll_is_seen() {
        let event = Event::default();
        let mut wait = Box::pin(event.wait());
        event.notify_all();
        assert_eq!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
    }

    #[test]
    fn every_waiter_is_woken_once_and_dropped_ones_leave_nothing_behind() {
        let event = Event::default();
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(event.wait())).collect();
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        waits.pop();
        event.notify_all();
        event.notify_all();
        assert_eq!(counter.0.load(Ordering::Relaxed), 2);
        drop(waits);
        assert!(!event.has_waiters());
    }
}
