//! The end: what a signal asks for, within a bound.
//!
//! Shell, on the control thread. Always: after a clean stop every acknowledged record is synced, files have their logical
//! length and the clean marker stands; a second signal ends the process at once, as a kill would.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::checkpoints;
use super::mesh::{ShardPort, ask_all};
use crate::shard::calls::{DirCheckpoint, ShardAnswer, ShardCall};

/// How long accepted requests may take to finish before their connections are cut.
pub(super) const DRAIN: Duration = Duration::from_secs(10);
/// How long flushing and closing every log may take after that.
pub(super) const CLOSE: Duration = Duration::from_secs(20);
/// How long a shard's thread may take to end then.
pub(super) const JOIN: Duration = Duration::from_secs(5);

/// Exit code of a process that a second signal ended: not clean, recovery will scan.
const ENDED_AT_ONCE: i32 = 130;

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches both from now on. Must be called inside the runtime.
    pub(super) fn catch() -> Result<Self, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure(format!("signals cannot be caught: {error}")));
        Ok(Self { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    /// Waits for the next one; its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Ends the process at the next signal.
    pub(super) async fn end_at_next(mut self) {
        let name = self.next().await;
        tracing::warn!("second signal ({name}): ending at once; the next start will scan the logs");
        std::process::exit(ENDED_AT_ONCE);
    }
}

/// Drains, flushes and closes every shard. One checkpoint a log directory; not `clean` where a shard did not answer.
pub(super) async fn stop_shards(shards: &ShardPort, dirs: usize) -> Vec<DirCheckpoint> {
    let deadline = Instant::now() + DRAIN;
    // A shard cuts what is unfinished at the deadline by itself; the second beyond it is for the answer's way back.
    let drained = ask_all(shards, DRAIN + Duration::from_secs(1), || ShardCall::Drain(deadline)).await;
    for (shard, answer) in drained.iter().enumerate() {
        if answer.is_none() {
            tracing::warn!(shard, "a shard did not drain in time");
        }
    }
    let answers = ask_all(shards, CLOSE, || ShardCall::Stop).await;
    let reports = answers.into_iter().enumerate().map(|(shard, answer)| match answer {
        Some(ShardAnswer::Stopped(report)) => report,
        _ => {
            tracing::error!(shard, "a shard did not close its logs in time; the next start will scan them");
            (0..dirs).map(|_| DirCheckpoint::default()).collect()
        }
    });
    checkpoints::merge(dirs, reports)
}
