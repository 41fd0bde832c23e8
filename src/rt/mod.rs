//! Shell. The only door to glommio: executors, tasks, timers, sockets, direct files, messages between cores.
//!
//! Owns every line that names glommio; rooms above see futures, `io::Result` and plain values. Knows nothing of Kafka.
//! Always: one thread per shard, pinned; nothing here blocks a shard except the net task's own wait, which every waker can
//! end. Sources: `ARCHITECTURE.md` (the measured facts behind each rule), glommio 0.9.0 as read and measured.

mod event;
pub mod executor;
pub mod file;
pub mod hop;
mod host;
pub mod net;
mod once;
mod pulse;
mod raw;
mod ring;
mod task;

use std::future::Future;
use std::time::{Duration, Instant};

pub use event::Event;
pub use task::{Task, Work, blocking, contained, panics, spawn, spawn_background, work};

/// The longest sleep: past it a deadline means "never", and `Instant` arithmetic stays in range.
const SLEEP_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Sleeps on this shard's timer. While the shard serves sockets it may wake up to 1 ms late.
pub async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration.min(SLEEP_MAX)).await;
}

/// Sleeps until `deadline`.
pub async fn sleep_until(deadline: Instant) {
    let duration = deadline.saturating_duration_since(Instant::now());
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

/// `None` when the deadline came first. The future is polled once even if the deadline has passed.
pub async fn timeout_at<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    let wanted = async { Some(future.await) };
    let too_late = async {
        sleep_until(deadline).await;
        None
    };
    futures_lite::future::or(wanted, too_late).await
}

/// Gives way if this task has run long enough (to be called at least every 100 µs of CPU work). In the background it gives
/// way every time, because glommio would let it run for a millisecond while requests wait.
pub async fn yield_if_needed() {
    if task::in_background() {
        task::queued_io();
        net::full_turn().await;
    } else {
        glommio::yield_if_needed().await;
    }
}
