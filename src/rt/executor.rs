//! Shell. Starting and ending the executors: one pinned thread per shard, with the guards that glommio 0.9 needs.
//!
//! Owns the threads, the watchdog and the probe files. Knows nothing of what the shards run. Always: executors start one
//! after another, so that each can tell its own rings by what appeared in `/proc/self/fd`; the first direct file each thread
//! opens on a data device is not empty (an empty one makes glommio believe that the device can poll, which burns a core and
//! turns a flush into 4 ms); the first timer, which is late by tens of milliseconds, is over before a shard's own code runs.

use std::fs;
use std::future::Future;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use glommio::{ExecutorJoinHandle, GlommioError, LocalExecutorBuilder, Placement, ReactorErrorKind};

pub use super::host::probe_host;
use super::host::{LockedMemory, memlock_bytes};
use super::pulse::{Pulse, Watchdog};
use super::raw;
use super::ring::Ring;
use super::task::{Current, PREEMPT_EVERY, spawn, spawn_unseen};
use crate::types::ShardIndex;

/// Each shard's pool of direct-I/O memory. glommio registers it with its rings, which makes all of it resident.
const IO_MEMORY_BYTES_DEFAULT: usize = 4 << 20;
/// The kernel gives back the locked memory of a process that just ended when it gets to it; a broker that is started again
/// at once may have to wait for that of its predecessor.
const LOCK_ATTEMPTS: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Two, staggered: one alone may itself be among the tasks that glommio forgot.
const HEARTBEATS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(13)];
/// How long an executor may be silent while it starts before it is woken from outside.
const START_KICK_EVERY: Duration = Duration::from_millis(20);
/// The kernel keeps so much of a thread's name.
const COMM_BYTES_MAX: usize = 15;
/// Content of the probe files: one block, so that a direct read of it succeeds on every device.
const PROBE: [u8; 4096] = [b'.'; 4096];

/// How the executors are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// CPUs, one shard each, in order; from the affinity mask (`core_affinity`).
    pub cpus: Vec<usize>,
    /// Bytes of each shard's pinned pool for direct I/O. Beyond it buffers come from the allocator, which costs page faults.
    pub io_memory_bytes: usize,
    /// Directories on whose devices files will be opened (IOPOLL guard). They must exist and be writable.
    pub data_dirs: Vec<PathBuf>,
}

impl Setup {
    /// One shard per CPU this process may use, and the default pool.
    pub fn on_all_cpus(data_dirs: Vec<PathBuf>) -> Self {
        let cpus = core_affinity::get_core_ids().map(|cores| cores.into_iter().map(|core| core.id).collect());
        Self { cpus: cpus.unwrap_or_else(|| vec![0]), io_memory_bytes: IO_MEMORY_BYTES_DEFAULT, data_dirs }
    }
}

/// Running executors.
pub struct Shards {
    handles: Vec<ExecutorJoinHandle<Result<(), StartError>>>,
    pulses: Vec<Arc<Pulse>>,
    watchdog: Watchdog,
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

/// Starts one executor per CPU; `main(index)` builds the future each runs to its end. Serialises starts, applies the guards,
/// starts the watchdog. When one fails, none has run its main, and those already started have ended before the error returns.
pub fn start<F, Fut>(setup: Setup, main: F) -> Result<Shards, StartError>
where
    F: Fn(ShardIndex) -> Fut + Send + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    if setup.cpus.is_empty() {
        return Err(StartError::Other("no CPU to run on: the CPU set is empty".into()));
    }
    let memory = LockedMemory::plan(setup.cpus.len(), setup.io_memory_bytes, memlock_bytes())?;
    let probes = Probes::write(&setup.data_dirs)?;
    let mut shards = Vec::with_capacity(setup.cpus.len());
    for (index, cpu) in setup.cpus.iter().enumerate() {
        match StartedShard::start_patiently(index, *cpu, memory, &probes.paths, &main) {
            Ok(shard) => shards.push(shard),
            Err(error) => {
                shards.into_iter().for_each(StartedShard::give_up);
                return Err(error);
            }
        }
    }
    let pulses: Vec<Arc<Pulse>> = shards.iter().map(|shard| shard.pulse.clone()).collect();
    let watchdog = Watchdog::start(pulses.clone())
        .map_err(|error| StartError::Other(format!("the watchdog thread did not start: {error}")))?;
    Ok(Shards { handles: shards.into_iter().map(StartedShard::go).collect(), pulses, watchdog })
}

/// Runs one future on a shard of its own, on the first CPU of `setup`, and returns what it returns. For tools and tests.
pub fn run_one<T, F, Fut>(setup: Setup, main: F) -> Result<T, StartError>
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let cpus = setup.cpus.first().copied().into_iter().collect();
    let once = Arc::new(crossbeam_queue::ArrayQueue::new(1));
    // The queue has room for one.
    let _ = once.push((main, sender));
    let shards = start(Setup { cpus, ..setup }, move |_| {
        let once = once.clone();
        async move {
            if let Some((main, sender)) = once.pop() {
                // The receiver waits below.
                let _ = sender.send(main().await);
            }
        }
    })?;
    shards.join()?;
    receiver.recv().map_err(|_| StartError::Other("the shard ended without a result".into()))
}

impl Shards {
    /// Waits for every executor to return. The first that ended badly is the error.
    pub fn join(self) -> Result<(), StartError> {
        let mut first_error = None;
        for (index, handle) in self.handles.into_iter().enumerate() {
            let result = handle.join().map_err(|error| explain(index, &error)).and_then(|result| result);
            first_error = first_error.or(result.err());
        }
        self.watchdog.end();
        first_error.map_or(Ok(()), Err)
    }

    /// How often the watchdog kicked each shard because it stood still with work to do.
    pub fn kicks(&self) -> Vec<u64> {
        self.pulses.iter().map(|pulse| pulse.kicks()).collect()
    }
}

/// One executor that is ready and waits for the others.
struct StartedShard {
    handle: ExecutorJoinHandle<Result<(), StartError>>,
    pulse: Arc<Pulse>,
    /// Dropped unsent: end without running anything.
    go: mpsc::Sender<()>,
}

impl StartedShard {
    /// Tries again while no memory can be locked.
    fn start_patiently<F, Fut>(
        index: ShardIndex,
        cpu: usize,
        memory: LockedMemory,
        probes: &[PathBuf],
        main: &F,
    ) -> Result<Self, StartError>
    where
        F: Fn(ShardIndex) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        for _ in 0..LOCK_ATTEMPTS {
            match Self::start(index, cpu, memory, probes.to_vec(), main.clone()) {
                Err(StartError::MemLock(_)) => std::thread::park_timeout(LOCK_PAUSE),
                result => return result,
            }
        }
        Self::start(index, cpu, memory, probes.to_vec(), main.clone())
    }

    fn start<F, Fut>(
        index: ShardIndex,
        cpu: usize,
        memory: LockedMemory,
        probes: Vec<PathBuf>,
        main: F,
    ) -> Result<Self, StartError>
    where
        F: Fn(ShardIndex) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let other =
            |what: &str, error: &dyn std::fmt::Display| StartError::Other(format!("shard {index}: {what}: {error}"));
        let pulse = Pulse::new().map_err(|error| other("no descriptor for its bell", &error))?;
        let (progress, started) = mpsc::channel();
        let (go, go_receiver) = mpsc::channel();
        let starting = serialise();
        let rings_before = rings().map_err(|error| other("/proc/self/fd", &error))?;
        let shared = pulse.clone();
        let handle = LocalExecutorBuilder::new(Placement::Fixed(cpu))
            .name(&format!("shard-{index}"))
            .io_memory(memory.pool_bytes)
            .ring_depth(memory.ring_depth)
            .preempt_timer(preempt_every())
            .spawn(move || async move {
                let own = guard(index, &probes, &rings_before, progress.clone()).await;
                let rings = match own {
                    Ok(rings) => rings,
                    Err(error) => {
                        shared.finish();
                        return Err(error);
                    }
                };
                // Made while no other shard looks for its own.
                let ring =
                    Ring::new().map_err(|error| tracing::warn!(shard = index, %error, "no second ring: slower")).ok();
                let current = Current::install(index, shared.clone(), rings, ring);
                // Nobody waits for it when the start was given up.
                let _ = progress.send(Progress::Ready);
                if go_receiver.recv().is_err() {
                    shared.finish();
                    return Ok(());
                }
                let result = run(main(index), &current).await;
                shared.finish();
                result
            })
            .map_err(|error| explain(index, &error))?;
        if await_ready(&started, handle.thread().name()) {
            drop(starting);
            return Ok(Self { handle, pulse, go });
        }
        match handle.join() {
            Err(error) => Err(explain(index, &error)),
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Err(StartError::Other(format!("shard {index} ended before it was ready"))),
        }
    }

    fn go(self) -> ExecutorJoinHandle<Result<(), StartError>> {
        // It waits for this and for nothing else.
        let _ = self.go.send(());
        self.handle
    }

    fn give_up(self) {
        drop(self.go);
        // The error that made us give up is the one to report.
        let _ = self.handle.join();
    }
}

/// Waits until an executor is ready; false when it ended before. `name` is its thread's.
///
/// The watchdog does not look yet, and glommio can park with the start among its forgotten tasks. Before the first of them has
/// run there is nobody to wake.
fn await_ready(started: &mpsc::Receiver<Progress>, name: Option<&str>) -> bool {
    let mut listener: Option<Waker> = None;
    loop {
        match started.recv_timeout(START_KICK_EVERY) {
            Ok(Progress::Listening(waker)) => listener = Some(waker),
            Ok(Progress::Ready) => return true,
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            Err(mpsc::RecvTimeoutError::Timeout) => match &listener {
                Some(waker) => waker.wake_by_ref(),
                None => asleep_in_io_uring(name).into_iter().for_each(raw::interrupt),
            },
        }
    }
}

/// The first that runs on an executor, so that it can be kicked from the start: the guards, and which rings are its own.
async fn guard(
    index: ShardIndex,
    probes: &[PathBuf],
    rings_before: &[RawFd],
    progress: mpsc::Sender<Progress>,
) -> Result<Vec<RawFd>, StartError> {
    let listener = glommio::spawn_local(listen_for_kicks(progress));
    let own = rings().map(|all| all.into_iter().filter(|ring| !rings_before.contains(ring)).collect());
    let prepared = match own {
        Ok(own) => prepare(probes).await.map(|()| own),
        Err(error) => Err(StartError::Other(format!("shard {index}: /proc/self/fd: {error}"))),
    };
    listener.cancel().await;
    prepared
}

/// Runs a shard's main future with heartbeats, and ends its tasks after it.
async fn run(main: impl Future<Output = ()> + 'static, current: &std::rc::Rc<Current>) -> Result<(), StartError> {
    for period in HEARTBEATS {
        spawn_unseen(current.clone().heartbeat(period));
    }
    spawn_unseen(current.clone().answer_kicks());
    let done = spawn(main).join().await;
    current.end_tasks().await;
    done.ok_or_else(|| StartError::Other(format!("shard {}: its main task panicked (see the log)", current.index)))
}

/// The guards that must come before anything else on an executor's thread.
async fn prepare(probes: &[PathBuf]) -> Result<(), StartError> {
    for probe in probes {
        let refused = |error: &dyn std::fmt::Display| {
            StartError::Other(format!(
                "{}: cannot open files with direct I/O (O_DIRECT) here: {error}; use a directory on ext4, xfs or another \
                 file system that supports it",
                probe.parent().unwrap_or(probe).display()
            ))
        };
        let file = glommio::io::DmaFile::open(probe).await.map_err(|error| refused(&error))?;
        file.close().await.map_err(|error| refused(&error))?;
    }
    glommio::timer::sleep(PREEMPT_EVERY).await;
    Ok(())
}

#[cfg(not(test))]
fn preempt_every() -> Duration {
    PREEMPT_EVERY
}

#[cfg(test)]
use tests::preempt_every;

/// Held while one executor starts, over all starts of this process.
#[allow(clippy::disallowed_types, reason = "taken by plain threads at start only, never on a shard")]
fn serialise() -> std::sync::MutexGuard<'static, ()> {
    static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Every io_uring descriptor of this process.
fn rings() -> std::io::Result<Vec<RawFd>> {
    let mut rings = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // One may close while we read.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target.as_os_str() == "anon_inode:[io_uring]" {
            rings.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
    }
    Ok(rings)
}

/// The threads of this name that sleep in io_uring. An executor that took longer than its preempt timer to come from arming it to
/// its queues goes to sleep with everything still to do. Nobody else is to be interrupted: other calls of a start, such as the
/// registration of memory on older kernels, may fail then, and threads that an executor makes inherit its name. None where `/proc`
/// cannot be read.
fn asleep_in_io_uring(name: Option<&str>) -> Vec<i32> {
    let Some(name) = name else { return Vec::new() };
    let known_as = name.get(..COMM_BYTES_MAX).unwrap_or(name);
    let of = |id: &i32, what: &str| fs::read_to_string(format!("/proc/self/task/{id}/{what}")).unwrap_or_default();
    let ids = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let enter = libc::SYS_io_uring_enter.to_string();
    ids.filter(|id| of(id, "comm").trim_end() == known_as && of(id, "syscall").split(' ').next() == Some(&enter))
        .collect()
}

/// What an executor that starts tells its starter.
enum Progress {
    /// It can be woken by this.
    Listening(Waker),
    Ready,
}

/// A task that is always waiting: waking it ends the executor's sleep. Waking a task that glommio forgot would not, since
/// that one is runnable already, and ringing glommio's eventfd itself loses later wakes.
fn listen_for_kicks(progress: mpsc::Sender<Progress>) -> impl Future<Output = ()> {
    std::future::poll_fn(move |context| {
        // Nobody listens once the start was given up.
        let _ = progress.send(Progress::Listening(context.waker().clone()));
        Poll::Pending
    })
}

/// A non-empty file in each data directory, gone again when dropped.
struct Probes {
    paths: Vec<PathBuf>,
}

impl Probes {
    fn write(data_dirs: &[PathBuf]) -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut probes = Self { paths: Vec::new() };
        for dir in data_dirs {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!(".direct-io-probe-{}-{count}", std::process::id()));
            write_probe(&path).map_err(|error| {
                StartError::Other(format!(
                    "{}: cannot write here: {error}; choose a directory this user may write",
                    dir.display()
                ))
            })?;
            probes.paths.push(path);
        }
        Ok(probes)
    }
}

fn write_probe(path: &Path) -> std::io::Result<()> {
    fs::write(path, PROBE)
}

impl Drop for Probes {
    fn drop(&mut self) {
        for path in &self.paths {
            // Left behind it does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// One line for what glommio reports.
fn explain(shard: ShardIndex, error: &GlommioError<()>) -> StartError {
    match error {
        GlommioError::ReactorError(ReactorErrorKind::MemLockLimit(is, wanted)) => StartError::MemLock(format!(
            "memlock limit is {is} bytes, the rings need {wanted}: raise it with `ulimit -l 8192` or LimitMEMLOCK=8M"
        )),
        GlommioError::IoError(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
            StartError::MemLock(format!(
                "shard {shard}: no memory may be locked for its rings; raise the limit with `ulimit -l 8192` or LimitMEMLOCK=8M, \
             or end other programs of this user that use io_uring"
            ))
        }
        GlommioError::BuilderError(glommio::BuilderErrorKind::ThreadPanic(_)) => {
            StartError::Other(format!("shard {shard}: its thread panicked (see the log)"))
        }
        error => StartError::Other(format!("shard {shard} did not start: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    thread_local! {
        /// Of the executors that this thread starts.
        static PREEMPT: Cell<Duration> = const { Cell::new(PREEMPT_EVERY) };
    }

    pub(super) fn preempt_every() -> Duration {
        PREEMPT.get()
    }

    #[test]
    fn a_start_that_sleeps_before_its_first_task_is_woken() {
        const PATIENCE: Duration = Duration::from_secs(60);
        const STARTS: usize = 5;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // Over before glommio has looked at its queues, nearly always: each try but a lucky one ends in a sleep.
            PREEMPT.set(Duration::from_micros(20));
            let mut setup = Setup::on_all_cpus(Vec::new());
            setup.cpus.truncate(1);
            for _ in 0..STARTS {
                run_one(setup.clone(), || async {}).unwrap();
                // Nobody listens once the patience is over.
                let _ = sender.send(());
            }
        });
        for start in 0..STARTS {
            receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("start {start} of {STARTS} hangs"));
        }
    }

    #[test]
    fn a_shard_goes_on_whatever_glommio_forgets() {
        const LOAD: Duration = Duration::from_secs(3);
        const PATIENCE: Duration = Duration::from_secs(60);
        const HOGS: usize = 2;
        let mut setup = Setup::on_all_cpus(Vec::new());
        setup.cpus.truncate(1);
        let cpu = core_affinity::CoreId { id: setup.cpus[0] };
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                core_affinity::set_for_current(cpu);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let hogs: Vec<_> = (0..HOGS).map(hog).collect();
        // Tasks that can always run, no sockets, and nothing that counts as work.
        let main = || async {
            let (mut longest, began) = (Duration::ZERO, Instant::now());
            while began.elapsed() < LOAD {
                let since = Instant::now();
                while since.elapsed() < Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
                spawn(async { spawn(async {}).join().await }).join().await;
                longest = longest.max(since.elapsed());
            }
            longest
        };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // Short enough to be over, now and then, before glommio has looked at its queues: then it parks whatever stands there.
            PREEMPT.set(Duration::from_micros(50));
            // Nobody listens once the patience is over.
            let _ = sender.send(run_one(setup, main));
        });
        let longest = receiver.recv_timeout(PATIENCE);
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        let longest = longest.expect("it stood still for ever").unwrap();
        println!("the longest step took {longest:?}");
    }
}
