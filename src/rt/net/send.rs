//! Shell. Answers: places in line, the queue of slices, one `sendmsg` per turn, and one call for all short answers of a turn.
//!
//! Owns what is queued for one peer, and counts the memory that it holds: of a slice from disk, the whole read. Knows nothing of
//! requests. Always: bytes leave in the order of the places; nothing behind an unfilled place leaves; a place dropped unfilled ends
//! the connection after what stands before it; slices are dropped outside any borrow, because their owners may do anything
//! then. Many slices in one `sendmsg` take a third of the CPU of one write per slice (measured, 16 KiB slices).

use std::cell::{Ref, RefMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use smallvec::{SmallVec, smallvec};

use super::connection::Connection;
use crate::rt::file::DiskSlice;
use crate::rt::ring::{Ring, SENDS_AT_ONCE, SendResult};

/// Slices of one `sendmsg`; more cost more to gather than a second call.
const SLICES_PER_SEND: usize = 64;
/// Sent to one connection in one turn before the others get theirs.
const SENT_PER_TURN: usize = 512 << 10;
/// Places in line; a peer that asks more without taking answers is not read from until some are taken.
const PLACES_MAX: usize = 1024;

/// One answer's bytes, or part of them.
pub enum Payload {
    /// memory, may have crossed cores
    Mem(Bytes),
    /// read from disk by this shard
    Disk(DiskSlice),
}

impl Payload {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Payload::Mem(bytes) => bytes,
            Payload::Disk(slice) => slice.as_slice(),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that stay in memory as long as it does.
    fn memory_bytes(&self) -> usize {
        match self {
            Payload::Mem(bytes) => bytes.len(),
            Payload::Disk(slice) => slice.memory_bytes(),
        }
    }
}

/// An answer: its slices in order, the 4-byte length included by the caller.
#[derive(Default)]
pub struct Reply {
    /// slices, sent in order
    pub parts: SmallVec<[Payload; 4]>,
}

/// One place of the line.
#[allow(clippy::large_enum_variant, reason = "a place is filled soon, and moves once")]
enum Place {
    Reserved,
    Filled(Reply),
    Broken,
}

/// What is queued for one peer.
#[derive(Default)]
pub(super) struct Outgoing {
    line: VecDeque<Place>,
    /// Number of the place at the front of the line.
    front: u64,
    /// Slices whose turn has come.
    ready: VecDeque<Payload>,
    /// Bytes of the first slice that have left.
    left: usize,
    /// Memory of all slices filled and not wholly sent.
    queued_bytes: usize,
    /// Close when `ready` is empty.
    closing: bool,
}

impl Outgoing {
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Too much to read another request.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.queued_bytes >= bytes_max || self.line.len() >= PLACES_MAX
    }

    /// Nothing awaited, nothing to send.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty() && self.ready.is_empty()
    }

    /// It ends when what is ready has been sent.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Gives memory back that a burst needed.
    pub(super) fn shrink(&mut self) {
        if self.is_idle() {
            self.line = VecDeque::new();
            self.ready = VecDeque::new();
        }
    }

    /// Empties it; the result is to be dropped outside the borrow.
    pub(super) fn forget(&mut self) -> impl Sized + use<> {
        self.closing = true;
        self.queued_bytes = 0;
        (std::mem::take(&mut self.line), std::mem::take(&mut self.ready))
    }

    /// Moves what is filled at the front of the line to the slices to send.
    fn advance_line(&mut self) {
        while !self.closing {
            match self.line.front() {
                None | Some(Place::Reserved) => return,
                Some(Place::Broken) => self.closing = true,
                Some(Place::Filled(_)) => {
                    if let Some(Place::Filled(reply)) = self.line.pop_front() {
                        self.front += 1;
                        self.ready.extend(reply.parts.into_iter().filter(|part| !part.is_empty()));
                    }
                }
            }
        }
    }

    /// Takes `sent` bytes off the front; returns the slices that are done with, and their memory.
    fn advance_sent(&mut self, sent: usize) -> (SmallVec<[Payload; 4]>, usize) {
        let (mut done, mut freed) = (SmallVec::new(), 0);
        self.left += sent;
        while let Some(first) = self.ready.front() {
            if self.left < first.len() {
                break;
            }
            self.left -= first.len();
            freed += first.memory_bytes();
            done.extend(self.ready.pop_front());
        }
        self.queued_bytes -= freed;
        (done, freed)
    }
}

/// The answer side. Clones share it. `!Send`.
#[derive(Clone)]
pub struct Replies {
    connection: Rc<Connection>,
}

impl Replies {
    pub(super) fn new(connection: Rc<Connection>) -> Self {
        Self { connection }
    }

    /// Takes the next place in line (Kafka order: answers leave in the order of reservation).
    pub fn reserve(&self) -> Slot {
        let mut out = self.connection.out.borrow_mut();
        let number = out.front + out.line.len() as u64;
        out.line.push_back(Place::Reserved);
        Slot { connection: self.connection.clone(), number, settled: false }
    }

    /// Memory of what waits to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.connection.out.borrow().queued_bytes
    }

    /// Waits until the queue has room again.
    pub async fn room(&self) {
        let connection = &self.connection;
        while connection.is_open() && connection.out.borrow().is_full(connection.net.config.out_bytes_max) {
            connection.changed.wait().await;
        }
    }

    /// Sends what is filled, as far as the line allows, then closes.
    pub fn close(&self) {
        self.connection.out.borrow_mut().closing = true;
        self.connection.net.mark_dirty(&self.connection);
    }

    /// Waits until nothing that was filled is left to send (or the connection is lost).
    pub async fn flushed(&self) {
        while self.connection.is_open() && self.queued_bytes() > 0 {
            self.connection.changed.wait().await;
        }
    }
}

/// One place in line. Dropped unfilled: the connection is closed after the answers before it.
pub struct Slot {
    connection: Rc<Connection>,
    number: u64,
    settled: bool,
}

impl Slot {
    /// Fills it; sent at the end of the turn when all before it are filled.
    pub fn fill(mut self, reply: Reply) {
        self.settle(Place::Filled(reply));
    }

    /// Fills it with nothing (acks=0).
    pub fn skip(mut self) {
        self.settle(Place::Filled(Reply::default()));
    }

    fn settle(&mut self, place: Place) {
        self.settled = true;
        let connection = &self.connection;
        let bytes = match &place {
            // Those without bytes are dropped when their turn comes.
            Place::Filled(reply) => reply.parts.iter().filter(|part| !part.is_empty()).map(Payload::memory_bytes).sum(),
            _ => 0,
        };
        let mut out = connection.out.borrow_mut();
        if out.closing {
            drop(out);
            // An answer nobody will get; its slices are dropped here, outside the borrow.
            return;
        }
        let was_long = out.line.len() >= PLACES_MAX;
        let at = usize::try_from(self.number - out.front).expect("the line fits into memory");
        out.line[at] = place;
        out.queued_bytes += bytes;
        out.advance_line();
        let something = !out.ready.is_empty() || out.closing;
        let over = connection.reader_is_gone.get() && out.is_idle();
        let shortened = was_long && out.line.len() < PLACES_MAX;
        drop(out);
        if shortened {
            connection.changed.notify_all();
        }
        connection.net.change_queued(bytes, 0);
        if something || over {
            connection.net.mark_dirty(connection);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.settled {
            self.settle(Place::Broken);
        }
    }
}

/// What one `sendmsg` did.
enum Sent {
    /// Nothing is left.
    All,
    Some(usize),
    /// The kernel takes no more.
    Blocked,
    Failed(Errno),
}

impl Connection {
    /// Sends what is ready, as much as the kernel and this turn take. `first` is what [`send_together`] did already. Called by
    /// the net task.
    pub(super) fn flush(self: &Rc<Self>, mut first: SendResult) {
        let mut sent_now = 0;
        while self.is_open() && self.writable.get() {
            let sent = match first.take() {
                Some(result) => self.account(self.out.borrow_mut(), result),
                None => self.send_once(),
            };
            match sent {
                Sent::All => break,
                Sent::Some(sent) => sent_now += sent,
                Sent::Blocked => {
                    self.writable.set(false);
                    self.blocked_since.set(self.blocked_since.get().or(Some(self.net.now.get())));
                }
                Sent::Failed(errno) => {
                    self.cut(errno.into());
                    return;
                }
            }
            if sent_now >= SENT_PER_TURN {
                self.net.mark_dirty(self);
                break;
            }
        }
        if sent_now > 0 {
            self.last_activity.set(self.net.now.get());
            self.changed.notify_all();
        }
        let out = self.out.borrow();
        let over = out.ready.is_empty() && (out.closing || (self.reader_is_gone.get() && out.is_idle()));
        drop(out);
        if over {
            self.cut(io::ErrorKind::ConnectionAborted.into());
        }
    }

    /// The slice to send, when it is the only one.
    fn only_slice(&self) -> Option<(Ref<'_, OwnedFd>, Ref<'_, [u8]>)> {
        let out = self.out.borrow();
        if out.ready.len() != 1 || !self.writable.get() {
            return None;
        }
        let socket = Ref::filter_map(self.socket.borrow(), Option::as_ref).ok()?;
        Some((socket, Ref::map(out, |out| &out.ready[0].as_slice()[out.left..])))
    }

    fn send_once(&self) -> Sent {
        let out = self.out.borrow();
        if out.ready.is_empty() {
            return Sent::All;
        }
        let socket = self.socket.borrow();
        let Some(socket) = socket.as_ref() else { return Sent::Failed(Errno::NOTCONN) };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let result = {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES_PER_SEND]> =
                out.ready.iter().take(SLICES_PER_SEND).map(|part| IoSlice::new(part.as_slice())).collect();
            slices[0].advance(out.left);
            match &slices[..] {
                [one] => rustix::net::send(socket, one, flags),
                many => rustix::net::sendmsg(socket, many, &mut SendAncillaryBuffer::default(), flags),
            }
        };
        drop(out);
        self.account(self.out.borrow_mut(), result)
    }

    /// Takes off the queue what the kernel took.
    fn account(&self, mut out: RefMut<'_, Outgoing>, result: rustix::io::Result<usize>) -> Sent {
        match result {
            Ok(sent) => {
                let (done, freed) = out.advance_sent(sent);
                drop(out);
                drop(done);
                self.blocked_since.set(None);
                self.net.change_queued(0, freed);
                Sent::Some(sent)
            }
            Err(Errno::AGAIN) => Sent::Blocked,
            Err(Errno::INTR) => Sent::Some(0),
            Err(errno) => Sent::Failed(errno),
        }
    }
}

/// For each connection of one turn.
type Together<T> = SmallVec<[T; SENDS_AT_ONCE]>;

/// Sends the answer of each connection that has a single slice to send, all in one system call; what became of each. For the
/// peers' sake as much as for the calls': on a machine they share with us, each call that wakes one gives it our core.
pub(super) fn send_together(ring: Option<&Ring>, connections: &[Rc<Connection>]) -> Together<SendResult> {
    let mut results: Together<SendResult> = smallvec![None; connections.len()];
    let Some(ring) = ring.filter(|_| connections.len() > 1) else { return results };
    let slices: Together<_> = connections.iter().map(|connection| connection.only_slice()).collect();
    let sends: Together<(BorrowedFd<'_>, &[u8])> =
        slices.iter().flatten().map(|(socket, bytes)| (socket.as_fd(), &**bytes)).collect();
    let mut sent: Together<SendResult> = smallvec![None; sends.len()];
    ring.send(&sends, &mut sent);
    let asked = results.iter_mut().zip(&slices).filter(|(_, slice)| slice.is_some());
    for ((result, _), sent) in asked.zip(sent) {
        *result = sent;
    }
    results
}
