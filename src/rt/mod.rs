//! The only door to glommio (CONTRACT STUB: the owner of `rt` replaces every body and may add, but keeps these signatures).
pub mod executor;
pub mod file;
pub mod hop;
pub mod net;

use std::future::Future;
use std::time::{Duration, Instant};

/// A spawned task; dropping it detaches it.
pub struct Task<T>(std::marker::PhantomData<T>);
impl<T> Task<T> {
    /// Waits for the task's result; `None` if it panicked or was cancelled.
    pub async fn join(self) -> Option<T> { todo!() }
}
/// Spawns on this shard. A panic inside is caught, logged and counted; it never unwinds into the executor.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> { let _ = future; todo!() }
/// Like [`spawn`], in the background task queue (retention, recovery, compaction): fewer shares, no latency promise.
pub fn spawn_background<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> { let _ = future; todo!() }
/// Sleeps on this shard's timer.
pub async fn sleep(duration: Duration) { let _ = duration; todo!() }
/// Sleeps until `deadline`.
pub async fn sleep_until(deadline: Instant) { let _ = deadline; todo!() }
/// `None` when the deadline came first.
pub async fn timeout_at<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> { let _ = (deadline, future); todo!() }
/// Gives way if this task has run long enough (to be called at least every 100 µs of CPU work).
pub async fn yield_if_needed() { todo!() }
/// Runs blocking calls (directory fsync, rename, unlink, read_dir) on the shard's helper thread. The closure must not panic.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T { let _ = work; todo!() }
/// Wakes tasks in order of arrival when something changed; single-thread. `notify_all` wakes every waiter registered before it.
#[derive(Default)]
pub struct Event {}
impl Event {
    /// Wakes all who wait now.
    pub fn notify_all(&self) { todo!() }
    /// Waits for the next `notify_all` (registered at the call, not at the first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + 'static { std::future::pending() }
}
