//! Shell. One connected socket: its state, its reading side, its end.
//!
//! Owns the descriptor and the read buffer. Knows nothing of what frames mean. Always: a length on the wire takes no memory by
//! itself: up to [`RESERVED_AT_ONCE`] is reserved, untouched, and more only as bytes arrive; a connection that waits for a
//! frame for a second holds no buffer. Events are edge triggered: a flag stays set until the kernel said "no more".
//!
//! How a frame reaches its owner without a copy: each buffer is as large as the last frame was, so that the next one, header
//! and body, usually fits and is split off whole. What does not fit moves its beginning into a buffer of the right size. Small
//! frames share 4 KiB buffers, split off one after another; whoever keeps such a frame keeps its neighbours of the same
//! connection, and nobody else's.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use tracing::debug;

use super::send::{Outgoing, Replies};
use super::{Entry, Inner};
use crate::rt::event::Event;
use crate::rt::raw;

/// Received from one connection in one turn; the others wait no longer than that takes.
const RECEIVED_PER_TURN: usize = 128 << 10;
/// Frames given out of one buffer in one turn.
const FRAMES_PER_TURN: u32 = 64;
/// Buffer of a connection whose frames are small.
const BUFFER_BYTES_MIN: usize = 4096;
/// Buffer of small frames that come many at a time, and of none larger.
const BUFFER_BYTES_SHARED_MAX: usize = 16 << 10;
/// Frames from here on get a buffer of their own size.
const OWN_BUFFER_FROM: usize = 2048;
/// A buffer is not sized after a longer frame than this: its sender must announce it again.
const PREDICTED_MAX: usize = 256 << 10;
/// Reserved for a frame before its bytes are there: a request of Kafka's default `max.request.size` with room for its header.
const RESERVED_AT_ONCE: usize = (1 << 20) + (64 << 10);
/// Less room than this is not worth a system call.
const ROOM_MIN: usize = 256;
/// Buffers that wait for a connection.
const SPARE_BUFFERS_MAX: usize = 64;
/// A connection that waits this long gives its buffer back.
const BUFFER_IDLE: Duration = Duration::from_secs(1);
/// With more of a frame missing than this, its reader is woken when it is there, not by each of the pieces it comes in.
const AWAITED_MIN: usize = 8 << 10;
/// But it never waits for more at a time. So `idle_timeout` takes a peer for silent that sends less in that time.
const AWAITED_MAX: usize = RECEIVED_PER_TURN;
/// The length before each frame.
const LENGTH_BYTES: usize = 4;

/// Why a connection's reading ended.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The idle time passed without a byte.
    #[error("idle for too long")]
    Idle,
    /// The socket failed or the peer reset it, or the write side was cut.
    #[error("connection lost: {0}")]
    Lost(#[source] io::Error),
    /// The peer closed in the middle of a frame.
    #[error("the peer closed inside a frame")]
    Truncated,
}

/// One socket, shared by its reader, its answers and the net task.
pub(super) struct Connection {
    pub(super) net: Rc<Inner>,
    /// `None` once closed.
    pub(super) socket: RefCell<Option<OwnedFd>>,
    token: Cell<u64>,
    peer: SocketAddr,
    /// There may be bytes, or the end, to receive.
    readable: Cell<bool>,
    /// Bytes that must have come before the kernel says so: SO_RCVLOWAT.
    awaited: Cell<usize>,
    /// The kernel may take bytes.
    pub(super) writable: Cell<bool>,
    /// The peer will send nothing more.
    peer_ended: Cell<bool>,
    /// In the net task's list of connections with something to send.
    pub(super) dirty: Cell<bool>,
    pub(super) reader_is_gone: Cell<bool>,
    expired: Cell<bool>,
    /// Why it was cut, until the reader has been told.
    lost: RefCell<Option<io::Error>>,
    reader: RefCell<Option<Waker>>,
    buffer: RefCell<BytesMut>,
    idle_timeout: Cell<Option<Duration>>,
    pub(super) last_activity: Cell<Instant>,
    /// Since when the kernel takes nothing.
    pub(super) blocked_since: Cell<Option<Instant>>,
    pub(super) out: RefCell<Outgoing>,
    /// Room in the queue, everything sent, peer gone, closed: waiters look which.
    pub(super) changed: Event,
}

pub(super) fn adopt(
    net: &Rc<Inner>,
    socket: OwnedFd,
    peer: SocketAddr,
    received: BytesMut,
) -> io::Result<(FrameReader, Replies)> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    let connection = Rc::new(Connection {
        net: net.clone(),
        socket: RefCell::default(),
        token: Cell::new(0),
        peer,
        readable: Cell::new(true),
        awaited: Cell::new(1),
        writable: Cell::new(true),
        peer_ended: Cell::new(false),
        dirty: Cell::new(false),
        reader_is_gone: Cell::new(false),
        expired: Cell::new(false),
        lost: RefCell::default(),
        reader: RefCell::default(),
        buffer: RefCell::new(received),
        idle_timeout: Cell::new(None),
        last_activity: Cell::new(Instant::now()),
        blocked_since: Cell::new(None),
        out: RefCell::default(),
        changed: Event::default(),
    });
    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
    connection.token.set(net.insert(&socket, interest, Entry::Connection(connection.clone()))?);
    *connection.socket.borrow_mut() = Some(socket);
    net.connections.set(net.connections.get() + 1);
    net.adopted.notify_all();
    let expected = Expected { frame: 0, shared: BUFFER_BYTES_MIN };
    let (connection_read, mut memory) = (connection.clone(), Memory::default());
    memory.follow(&connection.buffer.borrow());
    let reader = FrameReader { connection: connection_read, received: 0, frames: 0, turn: 0, expected, memory };
    Ok((reader, Replies::new(connection)))
}

impl Connection {
    pub(super) fn is_open(&self) -> bool {
        self.socket.borrow().is_some()
    }

    pub(super) fn on_event(self: &Rc<Self>, flags: EventFlags) {
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.peer_ended.set(true);
            self.readable.set(true);
            self.changed.notify_all();
        }
        if flags.contains(EventFlags::IN) {
            self.readable.set(true);
        }
        if self.readable.get() {
            self.wake_reader();
        }
        // After an error the next send says which.
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) && !self.writable.replace(true) {
            self.net.mark_dirty(self);
        }
    }

    fn wake_reader(&self) {
        let reader = self.reader.borrow_mut().take();
        if let Some(waker) = reader {
            waker.wake();
        }
    }

    /// Lets the next event wait until the `missing` bytes of a frame are there. What is there by then is an event at once.
    fn await_bytes(&self, missing: usize) {
        let awaited = if missing < AWAITED_MIN { 1 } else { missing.min(AWAITED_MAX) };
        if self.awaited.replace(awaited) == awaited {
            return;
        }
        if let Some(socket) = &*self.socket.borrow()
            && let Err(error) = raw::set_receive_low_water(socket, awaited)
        {
            // Without it there are more events, no fewer.
            debug!(%error, "the kernel takes no SO_RCVLOWAT");
        }
    }

    /// Closes the socket at once and forgets what is queued.
    pub(super) fn cut(&self, cause: io::Error) {
        let Some(socket) = self.socket.borrow_mut().take() else { return };
        drop(socket);
        self.net.connections.set(self.net.connections.get() - 1);
        let forgotten = {
            let mut out = self.out.borrow_mut();
            self.net.change_queued(0, out.queued_bytes());
            out.forget()
        };
        drop(forgotten);
        *self.lost.borrow_mut() = Some(cause);
        self.wake_reader();
        self.changed.notify_all();
        self.net.remove(self.token.get());
    }

    /// Whether the sweep has something to do here.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        let blocked = self.blocked_since.get().is_some_and(|then| since(then) >= self.net.config.write_timeout);
        let waiting = self.reader.borrow().is_some();
        let quiet = since(self.last_activity.get());
        let expired =
            waiting && self.idle_timeout.get().is_some_and(|limit| quiet >= limit) && self.out.borrow().is_idle();
        let holds_buffer = waiting && quiet >= BUFFER_IDLE && self.buffer.borrow().capacity() > 0;
        blocked || expired || (holds_buffer && self.buffer.borrow().is_empty())
    }

    pub(super) fn on_sweep(self: &Rc<Self>, now: Instant) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.blocked_since.get().is_some_and(|then| since(then) >= self.net.config.write_timeout) {
            self.cut(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no answers"));
            return;
        }
        let quiet = since(self.last_activity.get());
        if self.idle_timeout.get().is_some_and(|limit| quiet >= limit) && self.out.borrow().is_idle() {
            self.expired.set(true);
            self.wake_reader();
        }
        if quiet >= BUFFER_IDLE && self.buffer.borrow().is_empty() {
            let buffer = self.buffer.take();
            drop(buffer);
            self.out.borrow_mut().shrink();
        }
    }
}

/// Reads length-prefixed frames; one owner, the connection task. Dropped, it lets the connection close as soon as every place
/// in line that was taken is filled and sent.
pub struct FrameReader {
    connection: Rc<Connection>,
    /// Received in the current turn.
    received: usize,
    /// Given out in the current turn.
    frames: u32,
    turn: u64,
    expected: Expected,
    memory: Memory,
}

impl FrameReader {
    /// The 4-byte length of the next frame as it stands on the wire (may be negative: the caller judges it before anything is
    /// read or allocated). `None`: the peer closed between frames. Waits while too much is queued for the peer. May be dropped
    /// at any await and called again.
    pub async fn next_length(&mut self) -> Result<Option<i32>, NetError> {
        self.wait_for_room().await?;
        self.start_turn();
        if self.frames >= FRAMES_PER_TURN {
            self.connection.net.next_turn().await;
            self.start_turn();
        }
        self.frames += 1;
        loop {
            {
                let mut buffer = self.connection.buffer.borrow_mut();
                if buffer.len() >= LENGTH_BYTES {
                    return Ok(Some(buffer.get_i32()));
                }
            }
            if !self.receive(LENGTH_BYTES).await? {
                return if self.connection.buffer.borrow().is_empty() { Ok(None) } else { Err(NetError::Truncated) };
            }
        }
    }

    /// The body of the frame whose length was just returned. Small frames are split off the connection's read buffer, large
    /// ones received into one buffer of their own: no user-space copy of the body beyond a partial frame's move. May be
    /// dropped at any await and called again.
    pub async fn read_body(&mut self, length: usize) -> Result<BytesMut, NetError> {
        while self.connection.buffer.borrow().len() < length {
            if !self.receive(length).await? {
                return Err(NetError::Truncated);
            }
        }
        self.expected.frame = LENGTH_BYTES + length;
        Ok(self.connection.buffer.borrow_mut().split_to(length))
    }

    /// How much memory whoever keeps a part of the frame just read keeps alive.
    pub fn memory_bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Idle limit between bytes; coarse (an eighth of it, between 10 ms and 1 s). Does not run while an answer is awaited or
    /// queued.
    pub fn set_idle_timeout(&mut self, idle: Option<Duration>) {
        self.connection.idle_timeout.set(idle);
        if let Some(idle) = idle {
            self.connection.net.set_timeout_step(idle);
        }
    }

    /// Gives the socket away, for another shard to [`super::Net::adopt`], and what was received of it and not read. `None`: it is closed,
    /// or answers are awaited or queued.
    pub fn detach(self) -> Option<(OwnedFd, BytesMut)> {
        let connection = &self.connection;
        if !connection.out.borrow().is_idle() || connection.out.borrow().is_closing() {
            return None;
        }
        connection.await_bytes(0);
        let socket = connection.socket.borrow_mut().take()?;
        connection.net.forget(connection.token.get(), &socket);
        // Copied, mostly nothing: the memory around it belongs to frames that live on here.
        Some((socket, BytesMut::from(&connection.buffer.take()[..])))
    }

    /// Resolves when the peer is gone (closed, even only its sending half, or reset) or the connection was closed here; to
    /// cancel long polls while no read is outstanding.
    pub fn closed(&self) -> impl Future<Output = ()> + 'static {
        let connection = self.connection.clone();
        async move {
            while connection.is_open() && !connection.peer_ended.get() {
                connection.changed.wait().await;
            }
        }
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer
    }

    fn start_turn(&mut self) {
        let turn = self.connection.net.turn.get();
        if self.turn != turn {
            self.turn = turn;
            self.received = 0;
            self.frames = 0;
        }
    }

    async fn wait_for_room(&self) -> Result<(), NetError> {
        let connection = &self.connection;
        let limit = connection.net.config.out_bytes_max;
        if !connection.out.borrow().is_full(limit) {
            return Ok(());
        }
        connection.net.paused.set(connection.net.paused.get() + 1);
        while connection.is_open() && connection.out.borrow().is_full(limit) {
            connection.changed.wait().await;
        }
        self.check()
    }

    /// Why reading is over, if it is.
    fn check(&self) -> Result<(), NetError> {
        if !self.connection.is_open() {
            let lost = self.connection.lost.borrow_mut().take();
            return Err(NetError::Lost(lost.unwrap_or_else(|| io::ErrorKind::NotConnected.into())));
        }
        if self.connection.expired.get() { Err(NetError::Idle) } else { Ok(()) }
    }

    /// Receives once, so that in the end `wanted` bytes stand together in the buffer. `false`: the peer sends no more.
    async fn receive(&mut self, wanted: usize) -> Result<bool, NetError> {
        loop {
            self.check()?;
            self.start_turn();
            if self.received >= RECEIVED_PER_TURN {
                self.connection.net.next_turn().await;
                continue;
            }
            if !self.connection.readable.get() {
                self.connection.await_bytes(wanted - self.connection.buffer.borrow().len());
                self.wait_until_readable().await;
                continue;
            }
            match self.receive_now(wanted) {
                Ok(received) => return Ok(received > 0),
                Err(Errno::AGAIN) => self.connection.readable.set(false),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let error = io::Error::from(errno);
                    self.connection.cut(error.kind().into());
                    return Err(NetError::Lost(error));
                }
            }
        }
    }

    fn receive_now(&mut self, wanted: usize) -> rustix::io::Result<usize> {
        let connection = &self.connection;
        let socket = connection.socket.borrow();
        let socket = socket.as_ref().ok_or(Errno::NOTCONN)?;
        let mut buffer = connection.buffer.borrow_mut();
        if buffer.capacity() == 0 {
            self.expected.shared = BUFFER_BYTES_MIN;
            if self.expected.frame < OWN_BUFFER_FROM {
                *buffer = connection.net.spare_buffers.borrow_mut().pop().unwrap_or_default();
            }
            self.memory = Memory { start: buffer.as_ptr().addr(), bytes: BUFFER_BYTES_SHARED_MAX };
        }
        make_room(&mut buffer, wanted, self.expected);
        self.memory.follow(&buffer);
        let limit = (buffer.capacity() - buffer.len()).min(RECEIVED_PER_TURN);
        let received = raw::receive(socket, &mut buffer, limit)?;
        self.received += received;
        connection.last_activity.set(connection.net.now.get());
        if received < limit && received > 0 && !connection.peer_ended.get() {
            // Edge triggered: what comes from now on is another event.
            connection.readable.set(false);
        }
        self.expected.learn(received == limit);
        Ok(received)
    }

    async fn wait_until_readable(&self) {
        let connection = &self.connection;
        self.lend_buffer();
        std::future::poll_fn(|context| {
            if connection.readable.get() || !connection.is_open() || connection.expired.get() {
                return Poll::Ready(());
            }
            let mut reader = connection.reader.borrow_mut();
            match &mut *reader {
                Some(waker) => waker.clone_from(context.waker()),
                None => *reader = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }
}

impl FrameReader {
    /// Gives the buffer to whoever receives next, unless it holds bytes or a frame that lives on.
    fn lend_buffer(&self) {
        let mut buffer = self.connection.buffer.borrow_mut();
        let small = self.expected.frame < OWN_BUFFER_FROM && self.memory.bytes <= BUFFER_BYTES_SHARED_MAX;
        if !small || !buffer.is_empty() || buffer.capacity() == 0 || !buffer.try_reclaim(self.expected.shared) {
            return;
        }
        let lent = std::mem::take(&mut *buffer);
        let mut spare = self.connection.net.spare_buffers.borrow_mut();
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(lent);
        }
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        let connection = &self.connection;
        connection.reader_is_gone.set(true);
        let waker = connection.reader.borrow_mut().take();
        drop(waker);
        let buffer = connection.buffer.take();
        drop(buffer);
        if connection.is_open() && connection.out.borrow().is_idle() {
            connection.cut(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

/// Makes room behind what `buffer` holds, so that `wanted` bytes, more than it holds, can come to stand together.
fn make_room(buffer: &mut BytesMut, wanted: usize, expected: Expected) {
    let held = buffer.len();
    let room = buffer.capacity() - held;
    let fresh = if wanted == LENGTH_BYTES {
        if room >= expected.room_enough() {
            return;
        }
        expected.buffer_bytes()
    } else {
        let at_once = wanted.min(RESERVED_AT_ONCE);
        if room > 0 && buffer.capacity() >= at_once {
            return;
        }
        // Bytes that are there vouch for as many again.
        at_once.max(wanted.min(2 * held)).max(BUFFER_BYTES_MIN)
    };
    // If no frame split off it lives on, the same memory serves again.
    if held == 0 && buffer.try_reclaim(fresh) && buffer.capacity() <= 2 * fresh {
        return;
    }
    let mut larger = BytesMut::with_capacity(fresh);
    larger.extend_from_slice(buffer);
    *buffer = larger;
}

/// The memory a read buffer lies in, as far as was seen: `BytesMut` shows only what lies behind the frames split off.
#[derive(Clone, Copy, Default)]
struct Memory {
    start: usize,
    bytes: usize,
}

impl Memory {
    /// The buffer got room, in the same memory or in other.
    fn follow(&mut self, buffer: &BytesMut) {
        let (place, capacity) = (buffer.as_ptr().addr(), buffer.capacity());
        if (self.start..self.start + self.bytes).contains(&place) {
            self.bytes = self.bytes.max(place - self.start + capacity);
        } else {
            *self = Self { start: place, bytes: capacity };
        }
    }
}

/// What the next frame of a connection is expected to be like.
#[derive(Clone, Copy)]
struct Expected {
    /// Size of the last frame with its length.
    frame: usize,
    /// Size of a buffer of small frames.
    shared: usize,
}

impl Expected {
    fn buffer_bytes(self) -> usize {
        if self.frame < OWN_BUFFER_FROM {
            return self.shared;
        }
        // Frames of one client differ a little; what is received beyond this one belongs to the next and has to move.
        let frame = self.frame.min(PREDICTED_MAX);
        frame + frame / 16 + ROOM_MIN
    }

    /// With less room a new buffer is cheaper than moving the beginning of a frame there later.
    fn room_enough(self) -> usize {
        if self.frame < OWN_BUFFER_FROM { ROOM_MIN } else { self.frame.min(PREDICTED_MAX) }
    }

    /// A receive filled `room`, or did not.
    fn learn(&mut self, filled: bool) {
        if filled && self.frame < OWN_BUFFER_FROM {
            self.shared = (2 * self.shared).min(BUFFER_BYTES_SHARED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { frame: 0, shared: BUFFER_BYTES_MIN };

    /// Receives `total` bytes of one frame, `step` at a time; returns how many bytes moved from buffer to buffer.
    fn moved_while_receiving(total: usize, step: usize) -> usize {
        let mut buffer = BytesMut::new();
        let mut moved = 0;
        while buffer.len() < total {
            let (held, place) = (buffer.len(), buffer.as_ptr());
            make_room(&mut buffer, total, EXPECTED);
            assert!(buffer.capacity() > held);
            assert!(buffer.capacity() <= RESERVED_AT_ONCE.max(2 * held), "{} reserved for {held}", buffer.capacity());
            if buffer.as_ptr() != place {
                moved += held;
            }
            let received = step.min(buffer.capacity() - held).min(total - held);
            buffer.resize(held + received, 1);
        }
        moved
    }

    #[test]
    fn a_frame_of_usual_size_is_received_in_place() {
        assert_eq!(moved_while_receiving(1 << 20, 100_000), 0);
        assert_eq!(moved_while_receiving(300, 7), 0);
    }

    #[test]
    fn a_huge_frame_grows_with_its_bytes_and_moves_each_about_once() {
        let total = 64 << 20;
        assert!(moved_while_receiving(total, 128 << 10) <= total + total / 8);
    }

    #[test]
    fn the_next_frame_of_the_same_size_fits_whole() {
        for frame in [OWN_BUFFER_FROM, 16 << 10, 64 << 10, PREDICTED_MAX] {
            let mut buffer = BytesMut::new();
            make_room(&mut buffer, LENGTH_BYTES, Expected { frame, ..EXPECTED });
            assert!(buffer.capacity() >= frame + frame / 20, "{frame}");
        }
        let mut buffer = BytesMut::new();
        make_room(&mut buffer, LENGTH_BYTES, Expected { frame: 100 << 20, ..EXPECTED });
        assert!(buffer.capacity() < 2 * PREDICTED_MAX, "one huge frame is no reason to reserve for another");
    }

    #[test]
    fn the_memory_of_a_frame_is_known_behind_others_that_were_split_off() {
        let mut memory = Memory::default();
        let mut buffer = BytesMut::new();
        make_room(&mut buffer, LENGTH_BYTES, Expected { frame: 100 << 10, ..EXPECTED });
        memory.follow(&buffer);
        let whole = memory.bytes;
        assert_eq!(whole, buffer.capacity());
        buffer.resize(100 << 10, 1);
        let large = buffer.split_to(100 << 10);
        make_room(&mut buffer, LENGTH_BYTES, EXPECTED);
        memory.follow(&buffer);
        assert_eq!((memory.bytes, buffer.capacity()), (whole, whole - (100 << 10)), "the same memory");
        drop(large);
        buffer.resize(buffer.capacity(), 1);
        buffer.clear();
        let kept = buffer.split_to(0);
        make_room(&mut buffer, 10 << 10, EXPECTED);
        memory.follow(&buffer);
        assert!(memory.bytes >= buffer.capacity());
        drop(kept);
        buffer = BytesMut::with_capacity(5_000);
        memory.follow(&buffer);
        assert_eq!(memory.bytes, 5_000);
    }

    #[test]
    fn small_frames_share_a_buffer_until_it_is_used_up() {
        let mut buffer = BytesMut::new();
        let mut buffers = 0;
        let mut kept = Vec::new();
        for _ in 0..100 {
            let place = buffer.as_ptr();
            make_room(&mut buffer, LENGTH_BYTES, EXPECTED);
            buffers += u32::from(buffer.as_ptr() != place);
            buffer.resize(200, 1);
            kept.push(buffer.split_to(200));
        }
        assert!(buffers <= 100 * 200 / (BUFFER_BYTES_MIN as u32 - 456) + 1, "{buffers} buffers");
    }
}
