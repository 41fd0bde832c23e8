//! Shell. One value from one thread to another.
//!
//! Owns the value on its way. Knows no executor: the waker is whatever the receiver's runtime gave. Always: the value arrives
//! or the receiver learns that it never will; no lock, so a shard never waits for a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::ArrayQueue;

use super::hop::Gone;
use super::net::Net;
use super::pulse::Pulse;

struct Shared<T> {
    value: ArrayQueue<T>,
    waker: ArrayQueue<Waker>,
    /// The sender is gone, with or without having sent.
    done: AtomicBool,
    /// The receiver's shard, if it is one: its net task wakes the receiver, since glommio's own way may take until the next
    /// preemption.
    pulse: Option<Arc<Pulse>>,
}

/// `Send`; dropped unsent, the receiver gets `Gone`.
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// Awaited once, anywhere.
pub(super) struct Receiver<T>(Arc<Shared<T>>);

pub(super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    channel_to(None)
}

fn channel_to<T>(pulse: Option<Arc<Pulse>>) -> (Sender<T>, Receiver<T>) {
    let done = AtomicBool::new(false);
    let shared = Arc::new(Shared { value: ArrayQueue::new(1), waker: ArrayQueue::new(1), done, pulse });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    pub(super) fn send(self, value: T) {
        // There is room: this is the only value, because `self` ends here. Dropping it wakes the receiver.
        let _ = self.0.value.push(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::SeqCst);
        if let Some(waker) = self.0.waker.pop() {
            match &self.0.pulse {
                Some(pulse) => pulse.wake_there(waker),
                None => waker.wake(),
            }
        }
    }
}

impl<T> Receiver<T> {
    pub(super) async fn recv(self) -> Result<T, Gone> {
        self.await
    }

    fn look(&self) -> Option<Result<T, Gone>> {
        // In this order: the value is there before the sender is done.
        let done = self.0.done.load(Ordering::SeqCst);
        match self.0.value.pop() {
            Some(value) => Some(Ok(value)),
            None if done => Some(Err(Gone)),
            None => None,
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Gone>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.look() {
            return Poll::Ready(result);
        }
        let replaced = self.0.waker.force_push(context.waker().clone());
        drop(replaced);
        // The sender may have been done before it could see the waker.
        self.look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// An answer that comes from another thread to a task of this shard; the wake goes through the shard's epoll.
pub fn remote<T: Send + 'static>(net: &Net) -> (RemoteSender<T>, RemoteReceiver<T>) {
    let (sender, receiver) = channel_to(Some(net.pulse()));
    (RemoteSender(sender), RemoteReceiver(receiver))
}

/// `Send`; dropping it answers `Gone`.
pub struct RemoteSender<T>(Sender<T>);

impl<T: Send + 'static> RemoteSender<T> {
    /// Sends.
    pub fn send(self, value: T) {
        self.0.send(value);
    }
}

/// Awaited on the shard.
pub struct RemoteReceiver<T>(Receiver<T>);

impl<T: Send + 'static> RemoteReceiver<T> {
    /// Waits.
    pub async fn recv(self) -> Result<T, Gone> {
        self.0.recv().await
    }
}
