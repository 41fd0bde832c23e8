//! Executors (stub).
use std::future::Future;
use crate::types::ShardIndex;
/// How the executors are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// CPUs, one shard each, in order; from the affinity mask (`core_affinity`).
    pub cpus: Vec<usize>,
    /// Bytes of each shard's pinned pool for direct I/O.
    pub io_memory_bytes: usize,
    /// Directories on whose devices files will be opened (IOPOLL guard).
    pub data_dirs: Vec<std::path::PathBuf>,
}
/// Running executors.
pub struct Shards {}
/// Starts one executor per CPU; `main(index)` builds the future each runs to its end. Serialises starts, applies the guards, starts the watchdog.
pub fn start<F, Fut>(setup: Setup, main: F) -> Result<Shards, StartError>
where F: Fn(ShardIndex) -> Fut + Send + Clone + 'static, Fut: Future<Output = ()> + 'static { let _ = (setup, main); todo!() }
impl Shards {
    /// Waits for every executor to return.
    pub fn join(self) -> Result<(), StartError> { todo!() }
}
/// Why the executors did not start: one clear line each (what, where, what to do).
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// io_uring is missing or forbidden.
    #[error("{0}")]
    IoUring(String),
    /// memlock too small.
    #[error("{0}")]
    MemLock(String),
    /// anything else.
    #[error("{0}")]
    Other(String),
}
/// Checks host facts before anything starts (kernel, io_uring permitted, memlock, nofile raised): the first fatal finding is the error; the rest are warnings.
pub fn probe_host() -> Result<Vec<String>, StartError> { todo!() }
