//! Sockets (stub). See reference/network.md §6-7 for what to build.
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
/// One shard's sockets. `Rc` inside.
#[derive(Clone)]
pub struct Net { _p: std::rc::Rc<()> }
/// Its settings.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// How long to poll in our own epoll before glommio may park.
    pub linger: Duration,
    /// Queued answer bytes above which a connection's reading pauses.
    pub out_bytes_max: usize,
    /// How long a peer may take nothing while answers are queued before it is cut.
    pub write_timeout: Duration,
}
impl Default for NetConfig { fn default() -> Self { Self { linger: Duration::from_micros(500), out_bytes_max: 256 << 10, write_timeout: Duration::from_secs(30) } } }
impl Net {
    /// In the executor, before any task: finds glommio's ring descriptors, spawns the net task.
    pub fn start(config: NetConfig) -> io::Result<Net> { let _ = config; todo!() }
    /// Accepts from a listening socket made by [`listen`].
    pub fn listener(&self, socket: OwnedFd) -> io::Result<Listener> { let _ = socket; todo!() }
    /// Takes over a connected socket (accepted here or dealt by another shard).
    pub fn adopt(&self, socket: OwnedFd, peer: SocketAddr) -> io::Result<(FrameReader, Replies)> { let _ = (socket, peer); todo!() }
    /// Open connections, queued bytes, turns, lingers, parks, kicks.
    pub fn stats(&self) -> NetStats { todo!() }
}
/// Counters of one shard's net loop.
#[derive(Clone, Copy, Default, Debug)]
pub struct NetStats { /** open */ pub connections: u64, /** bytes in answer queues */ pub queued_bytes: u64, /** loop turns */ pub turns: u64, /** full glommio turns */ pub full_turns: u64, /** lingers */ pub lingers: u64, /** parks */ pub parks: u64, /** reads paused for queued answers */ pub paused: u64 }
/// Binds with socket2: SO_REUSEADDR, no SO_REUSEPORT.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> { let _ = (address, backlog); todo!() }
/// Accepted sockets, one by one.
pub struct Listener {}
impl Listener {
    /// Waits for the next one. Errors like EMFILE are waited out inside, logged once, never a busy loop.
    pub async fn accept(&mut self) -> io::Result<(OwnedFd, SocketAddr)> { todo!() }
}
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
/// Reads length-prefixed frames; one owner, the connection task.
pub struct FrameReader {}
impl FrameReader {
    /// The 4-byte length of the next frame as it stands on the wire (may be negative: the caller judges it before anything is read or allocated). `None`: the peer closed between frames.
    pub async fn next_length(&mut self) -> Result<Option<i32>, NetError> { todo!() }
    /// The body of the frame whose length was just returned. Small frames are split off the connection's read buffer, large ones received into one buffer of their own: no user-space copy of the body beyond a partial frame's move.
    pub async fn read_body(&mut self, length: usize) -> Result<BytesMut, NetError> { let _ = length; todo!() }
    /// Idle limit between bytes; coarse wheel in the net task.
    pub fn set_idle_timeout(&mut self, idle: Option<Duration>) { let _ = idle; todo!() }
    /// Resolves when the peer is gone (closed, reset) or `Replies::close` was called; to cancel long polls while no read is outstanding. Requires watching the socket for EOF (EPOLLRDHUP).
    pub fn closed(&self) -> impl std::future::Future<Output = ()> + 'static { std::future::pending() }
    /// The peer's address.
    pub fn peer(&self) -> SocketAddr { todo!() }
}
/// One answer's bytes, or part of them.
pub enum Payload { /** memory, may have crossed cores */ Mem(Bytes), /** read from disk by this shard */ Disk(super::file::DiskSlice) }
impl Payload {
    /// Bytes.
    pub fn len(&self) -> usize { match self { Payload::Mem(b) => b.len(), Payload::Disk(d) => d.as_slice().len() } }
    /// None.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
}
/// An answer: its slices in order, the 4-byte length included by the caller.
#[derive(Default)]
pub struct Reply { /** slices, sent in order by one `sendmsg` */ pub parts: SmallVec<[PayloadBox; 4]> }
/// (alias so that SmallVec needs no Default)
pub type PayloadBox = Payload;
/// The answer side. Clones share it. `!Send`.
#[derive(Clone)]
pub struct Replies { _p: std::rc::Rc<()> }
impl Replies {
    /// Takes the next place in line (Kafka order: answers leave in the order of reservation).
    pub fn reserve(&self) -> Slot { todo!() }
    /// Bytes waiting to be sent.
    pub fn queued_bytes(&self) -> usize { todo!() }
    /// Waits until the queue has room again.
    pub async fn room(&self) { todo!() }
    /// Sends what is filled, then closes.
    pub fn close(&self) { todo!() }
    /// Waits until everything filled so far has left (or the connection is lost).
    pub async fn flushed(&self) { todo!() }
}
/// One place in line. Dropped unfilled: the connection is closed.
pub struct Slot {}
impl Slot {
    /// Fills it; sent at the end of the turn when all before it are filled.
    pub fn fill(self, reply: Reply) { let _ = reply; todo!() }
    /// Fills it with nothing (acks=0).
    pub fn skip(self) { todo!() }
}
