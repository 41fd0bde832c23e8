//! Shell. Faults of a disk that a test asks for: a write or a flush that fails with EIO, a write that does not end, flushes
//! that take long, a device that has no blocks left.
//!
//! Owns the faults asked for in this process, on whatever shard their files are. Off, it costs one load of an atomic per
//! operation. Always: a failed write or flush strikes once, the first time its operation meets a file below its directory; whatever
//! comes to files there afterwards is let through, as a kernel lets it, and counted. So who tries again on a file that failed is told
//! that all is well, which is how data is lost with real disks, and the count tells on it. Source: the kernel reports a
//! failed flush once, and forgets what it could not write.
//!
//! ```text
//! let fault = fault::ask(Fault::Sync, dir);
//! ... run the log: its next fdatasync fails ...
//! assert_eq!((fault.struck(), fault.later()), (true, 0));
//! ```

#![allow(clippy::disallowed_types, reason = "taken only while a test asks for faults, never otherwise")]

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::rt;

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A write, of which nothing reaches the device.
    Write,
    /// A write, all of which reaches the device all the same.
    WriteThatArrives,
    /// A write that takes until the fault is taken back, and then goes well.
    WriteThatHangs,
    /// An fdatasync.
    Sync,
    /// No failure: every fdatasync takes [`SLOW_SYNC`] longer.
    SlowSync,
    /// Every allocation ends with ENOSPC until the fault is taken back.
    Full,
}

/// Hundreds of small writes.
pub const SLOW_SYNC: Duration = Duration::from_millis(20);

impl Fault {
    fn strikes(self, operation: Operation) -> bool {
        match self {
            Self::Write | Self::WriteThatArrives | Self::WriteThatHangs => operation == Operation::Write,
            Self::Sync | Self::SlowSync => operation == Operation::Sync,
            Self::Full => operation == Operation::Allocate,
        }
    }

    /// Whether it strikes again and again.
    fn lasts(self) -> bool {
        matches!(self, Self::SlowSync | Self::Full)
    }
}

/// What a file is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Write,
    Sync,
    Allocate,
}

/// How often a write that hangs looks whether it may end.
const TAKEN_BACK_LOOK: Duration = Duration::from_millis(10);

static COUNT: AtomicUsize = AtomicUsize::new(0);
static ALL: Mutex<Vec<Arc<Asked>>> = Mutex::new(Vec::new());

struct Asked {
    fault: Fault,
    below: PathBuf,
    struck: AtomicBool,
    later: AtomicU32,
    taken_back: AtomicBool,
}

/// A fault that was asked for; dropped, it is taken back.
#[must_use = "dropped, the fault is taken back"]
pub struct Pending(Arc<Asked>);

/// The next such operation on a file below `directory` fails.
pub fn ask(fault: Fault, directory: &Path) -> Pending {
    let below = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let (struck, later, taken_back) = Default::default();
    let asked = Arc::new(Asked { fault, below, struck, later, taken_back });
    all().push(asked.clone());
    COUNT.fetch_add(1, Ordering::Relaxed);
    Pending(asked)
}

impl Pending {
    /// Whether it struck.
    pub fn struck(&self) -> bool {
        self.0.struck.load(Ordering::Acquire)
    }

    /// Writes and flushes of files below its directory that began after it struck.
    pub fn later(&self) -> u32 {
        self.0.later.load(Ordering::Acquire)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.taken_back.store(true, Ordering::Release);
        all().retain(|other| !Arc::ptr_eq(other, &self.0));
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

fn all() -> std::sync::MutexGuard<'static, Vec<Arc<Asked>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fault that strikes an operation.
pub(super) struct Striking(Arc<Asked>);

impl Striking {
    pub(super) fn fault(&self) -> Fault {
        self.0.fault
    }

    pub(super) async fn until_taken_back(self) {
        while !self.0.taken_back.load(Ordering::Acquire) {
            rt::sleep(TAKEN_BACK_LOOK).await;
        }
    }
}

/// The fault that strikes this operation, if one does.
pub(super) fn strike(operation: Operation, file: RawFd) -> Option<Striking> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    // A file does not keep its path: it would cost every open file, and a rename changes it.
    let path = std::fs::read_link(format!("/proc/self/fd/{file}")).ok()?;
    let mut striking = None;
    for asked in all().iter().filter(|asked| path.starts_with(&asked.below)) {
        if asked.fault.lasts() {
            striking = striking.or_else(|| asked.fault.strikes(operation).then(|| Striking(asked.clone())));
        } else if operation == Operation::Allocate {
            // It takes no data to the device: no second try of what failed.
            continue;
        } else if asked.struck.load(Ordering::Acquire) {
            asked.later.fetch_add(1, Ordering::AcqRel);
        } else if striking.is_none() && asked.fault.strikes(operation) {
            asked.struck.store(true, Ordering::Release);
            striking = Some(Striking(asked.clone()));
        }
    }
    striking
}

/// How it looks.
pub(super) fn error() -> io::Error {
    Errno::IO.into()
}

/// How [`Fault::Full`] looks.
pub(super) fn no_space() -> io::Error {
    Errno::NOSPC.into()
}
