//! Shell. One shard's sockets: accepted connections, whole frames in, ordered answers out.
//!
//! Owns the epoll, every socket adopted by the shard and the bytes queued for them. Knows nothing of Kafka beyond the 4-byte
//! length before each frame. Always: one task per connection reads; answers leave in the order of their places in line,
//! corked until the end of the turn and sent by one `sendmsg`; no waker is called and no user code runs inside a borrow.
//!
//! Layout: `turn` is the net task, `connection` one socket's state and its reading side, `send` its answering side,
//! `listener` accepts. glommio's own sockets are not used: a tiny request costs them 48 µs of CPU on one connection and 8 on
//! 64; this way takes 27 and 6. Source: `ARCHITECTURE.md`, the chapter on sockets.

mod connection;
mod listener;
mod send;
mod turn;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;

pub use connection::{FrameReader, NetError};
pub use listener::{Listener, listen};
pub use send::{Payload, Replies, Reply, Slot};

use super::event::Event;
use super::pulse::Pulse;
use super::task::{self, Current};
use connection::Connection;
use listener::Listening;
pub(super) use turn::full_turn;

/// Events of one turn; more wait for the next. Few, so that a turn of tiny requests takes 200 µs and a file operation queued in
/// it is submitted soon; a wait of the epoll costs each of them little.
const EVENTS_PER_TURN: usize = 32;
/// Coarsest and finest step of the idle and write timeouts.
const SWEEP_EVERY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Timeouts are kept within this part of themselves.
const SWEEPS_PER_TIMEOUT: u32 = 8;

/// One shard's sockets. `Rc` inside.
#[derive(Clone)]
pub struct Net(Rc<Inner>);

/// Its settings.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// How long to poll in our own epoll before glommio may park.
    pub linger: Duration,
    /// Memory of queued answers above which a connection's reading pauses.
    pub out_bytes_max: usize,
    /// How long a peer may take nothing while answers are queued before it is cut.
    pub write_timeout: Duration,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            // Measured: parking costs 25 µs of CPU, waiting here none; past half a millisecond the shard counts as idle.
            linger: Duration::from_micros(500),
            out_bytes_max: 256 << 10,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Counters of one shard's net loop.
#[derive(Clone, Copy, Default, Debug)]
pub struct NetStats {
    /// open
    pub connections: u64,
    /// memory of answers in queues
    pub queued_bytes: u64,
    /// loop turns
    pub turns: u64,
    /// full glommio turns
    pub full_turns: u64,
    /// lingers
    pub lingers: u64,
    /// parks
    pub parks: u64,
    /// reads paused for queued answers
    pub paused: u64,
    /// times the watchdog kicked this shard
    pub kicks: u64,
}

/// What the net task looks at every turn besides sockets: an inbox of messages from other threads.
pub(super) trait Inbox {
    /// Takes what has come, a bounded number of messages. Runs outside any borrow of the net.
    fn look(&self) -> Looked;
    /// Whether the net task may sleep.
    fn is_empty(&self) -> bool;
    /// The shard ends.
    fn close(&self);
}

/// What a look at an inbox found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Looked {
    /// Nothing to do.
    Idle,
    /// Something was done.
    Busy,
    /// There is more, or something waits for room elsewhere: look again soon.
    More,
}

/// What an epoll event is about.
enum Entry {
    Connection(Rc<Connection>),
    Listening(Rc<Listening>),
}

struct Inner {
    config: NetConfig,
    current: Rc<Current>,
    epoll: Arc<OwnedFd>,
    entries: RefCell<Slab<(u32, Entry)>>,
    /// Rises with each entry, so that an event for a closed one is not taken for its successor's.
    generation: Cell<u32>,
    /// Connections with answers to send at the end of the turn.
    dirty: RefCell<Vec<Rc<Connection>>>,
    /// Tasks that used up their share of this turn.
    next_turn: RefCell<Vec<Waker>>,
    inboxes: RefCell<Vec<Rc<dyn Inbox>>>,
    /// Read buffers of connections that wait for their next frame.
    spare_buffers: RefCell<Vec<BytesMut>>,
    /// The net task while it is parked: what a task of this shard wakes when it leaves work for it.
    parked: RefCell<Option<Waker>>,
    /// Time of the current turn.
    now: Cell<Instant>,
    turn: Cell<u64>,
    connections: Cell<u64>,
    queued_bytes: Cell<u64>,
    full_turns: Cell<u64>,
    lingers: Cell<u64>,
    parks: Cell<u64>,
    paused: Cell<u64>,
    sweep_every: Cell<Duration>,
    /// Notified when a first connection comes.
    adopted: Event,
}

impl Net {
    /// Starts the net task. In the shard's main future, once.
    pub fn start(config: NetConfig) -> io::Result<Net> {
        let current = Current::get();
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        if !current.pulse.set_epoll(epoll.clone()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this shard already serves sockets"));
        }
        let sweep_every = sweep_for(config.write_timeout);
        let inner = Rc::new(Inner {
            config,
            current,
            epoll,
            entries: RefCell::default(),
            generation: Cell::new(0),
            dirty: RefCell::default(),
            next_turn: RefCell::default(),
            inboxes: RefCell::default(),
            spare_buffers: RefCell::default(),
            parked: RefCell::default(),
            now: Cell::new(Instant::now()),
            turn: Cell::new(0),
            connections: Cell::new(0),
            queued_bytes: Cell::new(0),
            full_turns: Cell::new(0),
            lingers: Cell::new(0),
            parks: Cell::new(0),
            paused: Cell::new(0),
            sweep_every: Cell::new(sweep_every),
            adopted: Event::default(),
        });
        task::spawn_unseen(turn::run(inner.clone())?);
        task::spawn(turn::sweep(inner.clone()));
        Ok(Net(inner))
    }

    /// Accepts from a listening socket made by [`listen`].
    pub fn listener(&self, socket: OwnedFd) -> io::Result<Listener> {
        Listener::new(&self.0, socket)
    }

    /// Takes over a connected socket (accepted here, or dealt or given away by another shard, which had `received` of it already).
    pub fn adopt(&self, socket: OwnedFd, peer: SocketAddr, received: BytesMut) -> io::Result<(FrameReader, Replies)> {
        connection::adopt(&self.0, socket, peer, received)
    }

    /// Gives way if this task has used up its millisecond: to be called between two pieces of work that may take as long.
    /// Whoever waits meanwhile is read, served and answered before it goes on.
    pub async fn give_way(&self) {
        if glommio::executor().need_preempt() {
            // In the first turn requests are read and served; it ends in their answers, but after this task has run.
            self.0.next_turn().await;
            self.0.next_turn().await;
        }
    }

    /// Open connections, queued bytes, turns, lingers, parks, kicks.
    pub fn stats(&self) -> NetStats {
        let inner = &self.0;
        NetStats {
            connections: inner.connections.get(),
            queued_bytes: inner.queued_bytes.get(),
            turns: inner.turn.get(),
            full_turns: inner.full_turns.get(),
            lingers: inner.lingers.get(),
            parks: inner.parks.get(),
            paused: inner.paused.get(),
            kicks: inner.current.pulse.kicks(),
        }
    }

    /// Looks at `inbox` every turn from now on.
    pub(super) fn add_inbox(&self, inbox: Rc<dyn Inbox>) {
        self.0.inboxes.borrow_mut().push(inbox);
        self.0.nudge();
    }

    /// Ends the net task's park, if it is parked: a task of this shard left work for it.
    pub(super) fn nudge(&self) {
        self.0.nudge();
    }

    /// What other threads ring to make this shard look at its inboxes.
    pub(super) fn pulse(&self) -> Arc<Pulse> {
        self.0.current.pulse.clone()
    }
}

fn sweep_for(timeout: Duration) -> Duration {
    (timeout / SWEEPS_PER_TIMEOUT).clamp(SWEEP_EVERY.0, SWEEP_EVERY.1)
}

impl Inner {
    /// Registers an entry, edge triggered; `make` gets the token that its events carry.
    fn insert(&self, socket: &OwnedFd, interest: EventFlags, entry: Entry) -> io::Result<u64> {
        let mut entries = self.entries.borrow_mut();
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let vacant = entries.vacant_entry();
        let token = token(vacant.key(), generation);
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest | EventFlags::ET)?;
        vacant.insert((generation, entry));
        Ok(token)
    }

    /// Like [`Inner::remove`], of a connection whose socket lives on elsewhere.
    fn forget(&self, token: u64, socket: &OwnedFd) {
        // It is in the epoll, and nowhere else is it taken out.
        if let Err(errno) = epoll::delete(&self.epoll, socket) {
            tracing::error!(%errno, "epoll does not let a socket go");
        }
        self.connections.set(self.connections.get() - 1);
        self.remove(token);
    }

    /// The caller closes the descriptor, which takes it out of the epoll.
    fn remove(&self, token: u64) {
        let (key, generation) = key_of(token);
        let mut entries = self.entries.borrow_mut();
        if entries.get(key).is_some_and(|(of, _)| *of == generation) {
            let removed = entries.remove(key);
            drop(entries);
            drop(removed);
        }
    }

    fn nudge(&self) {
        let parked = self.parked.borrow_mut().take();
        if let Some(waker) = parked {
            waker.wake();
        }
    }

    fn mark_dirty(&self, connection: &Rc<Connection>) {
        if connection.is_open() && !connection.dirty.replace(true) {
            self.dirty.borrow_mut().push(connection.clone());
            self.nudge();
        }
    }

    /// Resolves in the next turn: for a task that used up its share of this one.
    async fn next_turn(&self) {
        let turn = self.turn.get();
        std::future::poll_fn(|context| {
            if self.turn.get() != turn {
                return std::task::Poll::Ready(());
            }
            self.next_turn.borrow_mut().push(context.waker().clone());
            self.nudge();
            std::task::Poll::Pending
        })
        .await;
    }

    fn change_queued(&self, added: usize, removed: usize) {
        self.queued_bytes.set(self.queued_bytes.get() + added as u64 - removed as u64);
    }

    fn set_timeout_step(&self, timeout: Duration) {
        self.sweep_every.set(self.sweep_every.get().min(sweep_for(timeout)));
    }
}

fn token(key: usize, generation: u32) -> u64 {
    let key = u32::try_from(key).expect("descriptors are fewer than 2^32");
    u64::from(generation) << 32 | u64::from(key)
}

fn key_of(token: u64) -> (usize, u32) {
    ((token & 0xffff_ffff) as usize, (token >> 32) as u32)
}
