//! Shell. The shard's own io_uring, beside glommio's: writes and flushes of files, and the answers of a turn.
//!
//! Owns what the kernel was given and has not given back. Decides nothing, and knows nothing of positions or answers. Always:
//! memory and descriptor of an operation live until the kernel is done with it, whatever becomes of the future; the ring ends
//! only after its operations.
//!
//! Why: glommio submits and reaps in full turns, each two or three rounds of its loop with two system calls a round. Here all
//! that one turn of the net task queued leaves in one call, and completions are read from memory. A shard without a net task
//! has nobody to serve the ring ([`Served::No`]): its files are written through glommio, as all else is.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;
use rustix::net::SendFlags;
use slab::Slab;
use tracing::error;

/// Sends that leave in one system call.
pub(super) const SENDS_AT_ONCE: usize = 32;
/// Entries of the submission queue; operations in flight may be more.
const ENTRIES: u32 = 256;
/// Marks a completion that is a send's, whose number in its call is the rest.
const SEND: u64 = 1 << 63;

/// Between two tries of a call that the kernel refuses for no reason known to us.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// What became of one send; `None`: the kernel was not asked.
pub(super) type SendResult = Option<rustix::io::Result<usize>>;

/// Who submits and reaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// Nobody: there is no net task.
    No,
    /// The net task, at the end of its turn.
    EachTurn,
    /// The net task is parked, so whoever queues submits; a completion ends the park.
    AtOnce,
}

/// One io_uring and the file operations in it.
pub(super) struct Ring {
    uring: RefCell<IoUring>,
    operations: RefCell<Slab<Operation>>,
    served: Cell<Served>,
}

/// A file operation that the kernel has, or has given back and nobody has fetched.
struct Operation {
    result: Option<rustix::io::Result<usize>>,
    waker: Option<Waker>,
    /// Nobody waits any more: forgotten with its completion.
    is_orphan: bool,
    #[allow(dead_code, reason = "held, not read")]
    keeps: Keeps,
}

/// Owners of what the kernel uses meanwhile: an operation's descriptor, and its memory if it has any.
#[allow(dead_code, reason = "held, not read")]
pub(super) struct Keeps(pub(super) Rc<dyn Any>, pub(super) Option<Rc<dyn Any>>);

impl Ring {
    /// An idle ring. Errors: no descriptor, no memory; then everything goes the slower way.
    pub(super) fn new() -> io::Result<Rc<Self>> {
        // Completions need not interrupt us: every turn makes a system call. Kernels before 5.19 do not know that yet.
        let uring = IoUring::builder().setup_coop_taskrun().build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))?;
        let (operations, served) = (RefCell::default(), Cell::new(Served::No));
        Ok(Rc::new(Self { uring: RefCell::new(uring), operations, served }))
    }

    /// What becomes readable with a completion.
    pub(super) fn descriptor(&self) -> RawFd {
        self.uring.borrow().as_raw_fd()
    }

    pub(super) fn set_served(&self, served: Served) {
        self.served.set(served);
        if served != Served::EachTurn {
            self.submit();
        }
    }

    /// Queues a write of all of `bytes`, which `keeps` owns. `None`: nobody serves the ring, or it is full.
    pub(super) fn write(
        self: &Rc<Self>,
        file: BorrowedFd<'_>,
        bytes: &[u8],
        position: u64,
        keeps: Keeps,
    ) -> Option<InFlight> {
        let length = u32::try_from(bytes.len()).ok()?;
        let write = opcode::Write::new(Fd(file.as_raw_fd()), bytes.as_ptr(), length).offset(position);
        self.begin(write.build(), keeps)
    }

    /// Queues an fdatasync. `None` as above.
    pub(super) fn sync_data(self: &Rc<Self>, file: BorrowedFd<'_>, keeps: Keeps) -> Option<InFlight> {
        self.begin(opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build(), keeps)
    }

    fn begin(self: &Rc<Self>, entry: squeue::Entry, keeps: Keeps) -> Option<InFlight> {
        if self.served.get() == Served::No {
            return None;
        }
        let operation = Operation { result: None, waker: None, is_orphan: false, keeps };
        let key = self.operations.borrow_mut().insert(operation);
        let entry = entry.user_data(key as u64);
        // SAFETY: `keeps` owns the memory and the descriptor that the entry names, and stays in `operations` until the
        // completion is read; `Drop` waits for all of them.
        let mut pushed = unsafe { self.uring.borrow_mut().submission().push(&entry) };
        if pushed.is_err() {
            self.submit();
            // SAFETY: as above.
            pushed = unsafe { self.uring.borrow_mut().submission().push(&entry) };
        }
        if pushed.is_err() {
            self.operations.borrow_mut().remove(key);
            return None;
        }
        if self.served.get() == Served::AtOnce {
            self.submit();
        }
        Some(InFlight { ring: self.clone(), key })
    }

    /// Whether something is queued that the kernel does not have yet.
    pub(super) fn has_queued(&self) -> bool {
        !self.uring.borrow_mut().submission().is_empty()
    }

    /// Whether a completion waits to be reaped.
    pub(super) fn has_completions(&self) -> bool {
        !self.uring.borrow_mut().completion().is_empty()
    }

    /// Gives the kernel what is queued. What it does not take now stays queued.
    pub(super) fn submit(&self) {
        if self.has_queued() {
            self.enter(0);
        }
    }

    /// Submits, and waits for `completions`. An error that does not pass leaves everything as it is: the caller comes again,
    /// since what is queued points into memory that it must not let go. A shard that cannot go on is the watchdog's matter.
    #[allow(clippy::disallowed_methods, reason = "the shard cannot go on, and must not burn its core meanwhile")]
    fn enter(&self, completions: usize) {
        let passes =
            |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY));
        if let Err(error) = self.uring.borrow().submit_and_wait(completions)
            && !passes(&error)
        {
            error!(%error, "io_uring takes nothing");
            std::thread::sleep(REFUSED_PAUSE);
        }
    }

    /// Takes what the kernel has finished, and wakes who waits for it. Returns whether there was any.
    pub(super) fn reap(&self) -> bool {
        let mut found = false;
        while let Some((key, result)) = self.next_completion() {
            found = true;
            self.complete(key, result);
        }
        found
    }

    fn next_completion(&self) -> Option<(u64, rustix::io::Result<usize>)> {
        let done = self.uring.borrow_mut().completion().next()?;
        let result = usize::try_from(done.result()).map_err(|_| Errno::from_raw_os_error(-done.result()));
        Some((done.user_data(), result))
    }

    fn complete(&self, key: u64, result: rustix::io::Result<usize>) {
        let key = usize::try_from(key).expect("a key of the slab");
        let mut operations = self.operations.borrow_mut();
        let operation = &mut operations[key];
        operation.result = Some(result);
        let waker = operation.waker.take();
        let forgotten = operation.is_orphan.then(|| operations.remove(key));
        drop(operations);
        drop(forgotten);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sends each slice to its socket, as much as the kernel takes without waiting, and submits what else is queued.
    /// `results` are in the order of `sends`; a send that was not tried leaves its own as it is.
    pub(super) fn send(&self, sends: &[(BorrowedFd<'_>, &[u8])], results: &mut [SendResult]) {
        let flags = (SendFlags::DONTWAIT | SendFlags::NOSIGNAL).bits().cast_signed();
        let mut waiting = 0;
        for (number, (socket, bytes)) in (0..).zip(sends) {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), length).flags(flags);
            // SAFETY: the socket and the bytes are borrowed for as long as this function runs, and it returns only when the
            // completion of each send has been read.
            if unsafe { self.uring.borrow_mut().submission().push(&send.build().user_data(SEND | number)) }.is_err() {
                break;
            }
            waiting += 1;
        }
        // A send with DONTWAIT is finished, one way or the other, by the call that submits it.
        while waiting > 0 {
            self.enter(1);
            while let Some((key, result)) = self.next_completion() {
                if key & SEND == 0 {
                    self.complete(key, result);
                    continue;
                }
                waiting -= 1;
                let number = usize::try_from(key & !SEND).expect("the number of a slice");
                results[number] = Some(result);
            }
        }
    }

    /// Waits, with the thread, until the kernel has nothing of ours.
    pub(super) fn drain(&self) {
        while self.operations.borrow().iter().any(|(_, operation)| operation.result.is_none()) {
            self.enter(1);
            self.reap();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

/// A file operation; resolves to the bytes it moved. Dropped before, the operation may or may not happen.
pub(super) struct InFlight {
    ring: Rc<Ring>,
    key: usize,
}

impl Future for InFlight {
    type Output = rustix::io::Result<usize>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut operations = self.ring.operations.borrow_mut();
        let operation = &mut operations[self.key];
        match operation.result {
            Some(result) => Poll::Ready(result),
            None => {
                operation.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut operations = self.ring.operations.borrow_mut();
        let operation = &mut operations[self.key];
        if operation.result.is_none() {
            operation.is_orphan = true;
            operation.waker = None;
            return;
        }
        let finished = operations.remove(self.key);
        drop(operations);
        drop(finished);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::net::Shutdown;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    #[test]
    fn sends_leave_together_and_each_tells_what_became_of_it() {
        let ring = Ring::new().unwrap();
        let (well, mut reader) = UnixStream::pair().unwrap();
        let (full, _keeps_it_open) = UnixStream::pair().unwrap();
        let (ended, _other) = UnixStream::pair().unwrap();
        ended.shutdown(Shutdown::Write).unwrap();
        while rustix::net::send(&full, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}

        let sends: [(BorrowedFd<'_>, &[u8]); 4] =
            [(well.as_fd(), b"one "), (full.as_fd(), b"x"), (ended.as_fd(), b"y"), (well.as_fd(), b"two")];
        let mut results = [None; 4];
        ring.send(&sends, &mut results);
        assert_eq!(results, [Some(Ok(4)), Some(Err(Errno::AGAIN)), Some(Err(Errno::PIPE)), Some(Ok(3))]);
        let mut arrived = [0; 7];
        reader.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"one two");
    }

    /// A file, an operation that writes `bytes` to it, and what owns both.
    fn write(ring: &Rc<Ring>, bytes: &'static [u8]) -> (Rc<File>, Option<InFlight>) {
        let file = Rc::new(tempfile::tempfile().unwrap());
        let write = ring.write(file.as_fd(), bytes, 3, Keeps(file.clone(), None));
        (file, write)
    }

    #[test]
    fn operations_and_sends_share_the_ring_and_each_gets_its_own_result() {
        let ring = Ring::new().unwrap();
        ring.set_served(Served::EachTurn);
        let (socket, mut reader) = UnixStream::pair().unwrap();
        let (file, operation) = write(&ring, b"written");
        let mut operation = operation.unwrap();
        assert!(block_on(poll_once(&mut operation)).is_none() && ring.has_queued());
        let mut results = [None; 2];
        ring.send(&[(socket.as_fd(), b"a"), (socket.as_fd(), b"bc")], &mut results);
        assert_eq!((results, ring.has_queued()), ([Some(Ok(1)), Some(Ok(2))], false));
        ring.drain();
        assert_eq!(block_on(operation), Ok(7));
        let synced = ring.sync_data(file.as_fd(), Keeps(file.clone(), None)).unwrap();
        ring.drain();
        assert_eq!(block_on(synced), Ok(0));
        reader.read_exact(&mut [0; 3]).unwrap();
        let mut text = String::new();
        io::Seek::rewind(&mut &*file).unwrap();
        (&*file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "\0\0\0written");
        assert!(ring.operations.borrow().is_empty());
    }

    #[test]
    fn what_an_operation_uses_is_kept_until_the_kernel_is_done_with_it() {
        let ring = Ring::new().unwrap();
        assert!(write(&ring, b"nobody serves the ring").1.is_none());
        ring.set_served(Served::AtOnce);
        let (file, operation) = write(&ring, b"nobody waits for this");
        assert!(!ring.has_queued());
        drop(operation);
        assert_eq!(Rc::strong_count(&file), 2);
        ring.drain();
        assert_eq!(Rc::strong_count(&file), 1);
        assert_eq!(file.metadata().unwrap().len(), 3 + 21);

        let (unwritten, operation) = write(&ring, b"the ring goes first");
        drop((operation, ring));
        assert_eq!((Rc::strong_count(&unwritten), unwritten.metadata().unwrap().len()), (1, 3 + 19));
    }

    #[test]
    fn more_operations_than_entries_are_all_done() {
        let ring = Ring::new().unwrap();
        ring.set_served(Served::EachTurn);
        let all: Vec<_> = (0..3 * ENTRIES).map(|_| write(&ring, b"x").1.unwrap()).collect();
        ring.submit();
        ring.drain();
        for operation in all {
            assert_eq!(block_on(operation), Ok(1));
        }
    }
}
