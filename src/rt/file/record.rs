//! Shell. A recording of what a shard did to its files, for tests that cut the power at every point of it.
//!
//! Owns the thread's recording. Off, it costs one look at a `Cell` per operation. Always: events stand in the order in which
//! the shard caused and learned of them; an operation that `Started` and never `Finished` may have happened wholly, in part
//! or not at all. What does not go through `DirectFile` (renames, small files, directory syncs) is noted by its caller.
//!
//! ```text
//! record::start();
//! ... run the log ...
//! let events = record::stop();   // replay any prefix: finished ops, any part of the unfinished, minus what no sync covers
//! ```

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// Names one opening of one file within a recording.
pub type FileId = u32;

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A file was opened under this id; `created` if it did not exist before.
    Open {
        /// its id in the operations that follow
        file: FileId,
        /// where it was then
        path: PathBuf,
        /// by this very open
        created: bool,
    },
    /// Bytes were written.
    Write {
        /// which file
        file: FileId,
        /// byte position
        position: u64,
        /// what
        bytes: Bytes,
    },
    /// fdatasync: covers every write to the file, under any id, that finished before this started.
    Sync {
        /// which file
        file: FileId,
    },
    /// The length was set.
    Truncate {
        /// which file
        file: FileId,
        /// bytes
        len: u64,
    },
    /// Blocks were allocated; the file is at least this long.
    Preallocate {
        /// which file
        file: FileId,
        /// bytes
        len: u64,
    },
    /// A whole small file was written, synced if `synced`. Noted by its writer.
    WriteWhole {
        /// where
        path: PathBuf,
        /// its contents
        bytes: Bytes,
        /// fsync followed before the note
        synced: bool,
    },
    /// A file or directory got another name. Noted.
    Rename {
        /// old
        from: PathBuf,
        /// new
        to: PathBuf,
    },
    /// A file or directory was removed. Noted.
    Remove {
        /// what
        path: PathBuf,
    },
    /// A directory was made. Noted.
    CreateDir {
        /// what
        path: PathBuf,
    },
    /// A directory was synced: the names in it are durable. Noted.
    SyncDir {
        /// which
        path: PathBuf,
    },
}

/// One line of a recording. Operations are numbered from 0 in the order in which they started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The kernel may do it from now on.
    Started(u32, Op),
    /// The shard learned that it was done, without error.
    Finished(u32),
}

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static STARTED: Cell<u32> = const { Cell::new(0) };
    static NEXT_FILE: Cell<FileId> = const { Cell::new(0) };
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// Begins a recording on this thread; an earlier one is thrown away. Files opened before have ids no `Open` explains, so
/// begin before opening.
pub fn start() {
    EVENTS.with_borrow_mut(Vec::clear);
    STARTED.set(0);
    ON.set(true);
}

/// Ends the recording and returns it.
pub fn stop() -> Vec<Event> {
    ON.set(false);
    EVENTS.take()
}

/// The recording so far: where a test takes a cut while the shard runs on.
pub fn len() -> usize {
    EVENTS.with_borrow(Vec::len)
}

/// Notes an operation that was done outside `DirectFile`, as started; call `finished` on the result when it is done.
pub fn note(op: impl FnOnce() -> Op) -> Recording {
    if !ON.get() {
        return Recording(None);
    }
    let number = STARTED.get();
    STARTED.set(number + 1);
    let started = Event::Started(number, op());
    EVENTS.with_borrow_mut(|events| events.push(started));
    Recording(Some(number))
}

/// One operation under way; dropped, it stays unfinished in the recording.
#[must_use = "an operation that is done must be marked so"]
pub struct Recording(Option<u32>);

impl Recording {
    /// It is done.
    pub fn finished(self) {
        if let Some(number) = self.0.filter(|_| ON.get()) {
            EVENTS.with_borrow_mut(|events| events.push(Event::Finished(number)));
        }
    }
}

pub(super) fn opened(path: &Path, created: bool) -> FileId {
    let file = NEXT_FILE.get();
    NEXT_FILE.set(file.wrapping_add(1));
    note(|| Op::Open { file, path: path.to_owned(), created }).finished();
    file
}

pub(super) fn write(file: FileId, position: u64, bytes: &[u8]) -> Recording {
    note(|| Op::Write { file, position, bytes: Bytes::copy_from_slice(bytes) })
}

pub(super) fn sync(file: FileId) -> Recording {
    note(|| Op::Sync { file })
}

pub(super) fn truncate(file: FileId, len: u64) -> Recording {
    note(|| Op::Truncate { file, len })
}

pub(super) fn preallocate(file: FileId, len: u64) -> Recording {
    note(|| Op::Preallocate { file, len })
}
