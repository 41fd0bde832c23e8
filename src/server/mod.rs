//! Kafka's face: what a shard runs, the connections it serves, and who may connect.
//!
//! Shell. Owns the connections of this shard and, on the shard that listens, the count of all (`dealer`); not partitions
//! (`shard`), not sockets (`rt::net`). Always: every accepted socket is counted until its connection ends; after a drain no
//! connection is left. The way of a request: `connection` reads it, `dispatch` knows its handler, the handlers decide, ask
//! the owners of the partitions, and answer.

mod admin;
mod batch_rules;
mod connection;
mod dealer;
mod dispatch;
mod errors;
mod fetch;
mod group_offsets;
mod groups;
mod leaning;
mod metadata;
mod named;
mod offsets;
mod operator;
mod owners;
mod placement;
mod produce;
mod producer_ids;
mod topics;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use slab::Slab;

use crate::rt;
use crate::rt::hop::Responder;
use crate::rt::net::{Net, NetConfig, Replies};
use crate::server::dealer::Dealer;
use crate::server::leaning::Leaning;
use crate::server::produce::SmallBatches;
use crate::server::producer_ids::ProducerIds;
use crate::shard::calls::{Adopted, ShardAnswer, ShardCall};
use crate::shard::{Shard, ShardBoot};
use crate::types::ShardIndex;

/// After the deadline of a drain, how long cut connections may take to end before they are left behind.
const CUT_PATIENCE: Duration = Duration::from_millis(500);

/// Runs one shard to its end: returns after [`ShardCall::Stop`] was answered. Takes no connections before
/// [`ShardCall::Listen`] was asked of the listening shard, and no partition is there before [`ShardCall::Apply`].
pub async fn run_shard(boot: ShardBoot) {
    let index = boot.index;
    let net = match Net::start(NetConfig::default()) {
        Ok(net) => net,
        // The seed is dropped: whoever asks this shard hears that it is gone.
        Err(error) => return tracing::error!(shard = index, %error, "the net loop did not start"),
    };
    let (shard, seed) = Shard::new(boot, net);
    let server = Rc::new(Server::new(shard.clone()));
    let on_call = server.clone();
    shard.join_mesh(seed, move |call, responder| on_call.on_call(call, responder));
    let maintenance = rt::spawn(shard.clone().maintain());
    let expiry = rt::spawn(shard.clone().expire_acks());
    server.stopped.wait().await;
    maintenance.join().await;
    expiry.join().await;
    tracing::debug!(shard = index, "the shard ended");
}

/// The connections of one shard. `Rc`.
pub(crate) struct Server {
    shard: Rc<Shard>,
    producer_ids: ProducerIds,
    small_batches: SmallBatches,
    /// What answers are written into, empty between two; see [`Server::encode`].
    answer_buffer: RefCell<BytesMut>,
    connections: RefCell<Slab<Rc<Handle>>>,
    connection_ended: rt::Event,
    draining: Cell<bool>,
    drain_begins: rt::Event,
    stopped: rt::Event,
    /// On the shard that listens.
    dealer: RefCell<Option<Rc<Dealer>>>,
    next_number: Cell<u64>,
}

/// What the server holds of a connection: enough to end it.
struct Handle {
    replies: Replies,
    /// A request is between its last byte and its first stage's end.
    serving: Cell<bool>,
    /// Requests between their first stage and their answer.
    in_flight: Cell<usize>,
    finished: rt::Event,
}

impl Handle {
    fn new(replies: Replies) -> Rc<Self> {
        Rc::new(Self { replies, serving: Cell::new(false), in_flight: Cell::new(0), finished: rt::Event::default() })
    }

    /// Whether requests are under way: they may finish before a drain closes the connection.
    fn busy(&self) -> bool {
        self.serving.get() || self.in_flight.get() > 0
    }

    /// Waits until fewer than `count` are in flight.
    async fn below(&self, count: usize) {
        while self.in_flight.get() >= count {
            self.finished.wait().await;
        }
    }
}

impl Server {
    fn new(shard: Rc<Shard>) -> Self {
        Self {
            producer_ids: ProducerIds::new(shard.controller().clone()),
            small_batches: SmallBatches::default(),
            answer_buffer: RefCell::default(),
            shard,
            connections: RefCell::default(),
            connection_ended: rt::Event::default(),
            draining: Cell::new(false),
            drain_begins: rt::Event::default(),
            stopped: rt::Event::default(),
            dealer: RefCell::default(),
            next_number: Cell::new(0),
        }
    }

    /// The shard.
    fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// A number not given before on this shard.
    fn next_number(&self) -> u64 {
        self.next_number.replace(self.next_number.get() + 1)
    }

    /// Whether no new requests are taken.
    fn draining(&self) -> bool {
        self.draining.get()
    }

    /// Resolves when a drain begins.
    fn drain_begins(&self) -> impl Future<Output = ()> + 'static {
        self.drain_begins.wait()
    }

    fn on_call(self: &Rc<Self>, call: ShardCall, responder: Responder<ShardAnswer>) {
        let Some((call, responder)) = self.shard.on_call(call, responder) else { return };
        let server = self.clone();
        match call {
            ShardCall::Listen(socket) => {
                self.listen(socket);
                responder.answer(ShardAnswer::Done);
            }
            ShardCall::Adopt(adopted) => self.adopt(adopted),
            ShardCall::Move { from, to } => {
                let may = self.dealer.borrow().as_ref().is_some_and(|dealer| dealer.on_move(from, to));
                responder.answer(ShardAnswer::May(may));
            }
            ShardCall::Closed { shard, peer } => {
                if let Some(dealer) = &*self.dealer.borrow() {
                    dealer.on_closed(shard, peer);
                }
            }
            ShardCall::Drain(deadline) => {
                rt::spawn(async move {
                    server.drain(deadline).await;
                    responder.answer(ShardAnswer::Done);
                });
            }
            ShardCall::Stop => {
                rt::spawn(async move {
                    responder.answer(ShardAnswer::Stopped(server.shard.stop().await));
                    server.stopped.notify_all();
                });
            }
            _ => unreachable!("the shard keeps the calls that are its own"),
        }
    }

    fn listen(self: &Rc<Self>, socket: OwnedFd) {
        let listener = match self.shard.net().listener(socket) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "cannot listen"),
        };
        let dealer = Rc::new(Dealer::new(self.shard.shards(), self.shard.settings()));
        *self.dealer.borrow_mut() = Some(dealer.clone());
        let server = self.clone();
        rt::spawn(async move { dealer.accept_all(&server, listener).await });
    }

    /// Serves a dealt socket, to its end or until it goes to the shard that its requests concern.
    fn adopt(self: &Rc<Self>, adopted: Adopted) {
        let server = self.clone();
        rt::spawn(async move {
            let Adopted { socket, peer, dealer, received, moves } = adopted;
            let counted = Counted::new(&server, peer, dealer);
            let leaning = Leaning::new(server.shard.index(), moves);
            match server.shard.net().adopt(socket, peer, received) {
                Ok((reader, replies)) => connection::serve(&server, reader, replies, leaning, &counted).await,
                Err(error) => tracing::debug!(%peer, %error, "a dealt socket was not taken over"),
            }
        });
    }

    /// Ends every connection: idle ones now, busy ones when their requests are answered, all at the deadline.
    async fn drain(&self, deadline: Instant) {
        self.draining.set(true);
        self.drain_begins.notify_all();
        self.close_where(|handle| !handle.busy());
        if rt::timeout_at(deadline, self.no_connections()).await.is_none() {
            let cut = self.connections.borrow().len();
            tracing::warn!(
                shard = self.shard.index(),
                connections = cut,
                "connections were cut: the drain took too long"
            );
            self.close_where(|_| true);
            rt::timeout_at(Instant::now() + CUT_PATIENCE, self.no_connections()).await;
        }
    }

    fn close_where(&self, wanted: impl Fn(&Handle) -> bool) {
        let closing: Vec<_> = self.connections.borrow().iter().map(|(_, handle)| handle.clone()).collect();
        closing.iter().filter(|handle| wanted(handle)).for_each(|handle| handle.replies.close());
    }

    async fn no_connections(&self) {
        while !self.connections.borrow().is_empty() {
            self.connection_ended.wait().await;
        }
    }
}

/// Counts a connection from adoption to its end, however it ends.
struct Counted<'a> {
    server: &'a Rc<Server>,
    peer: SocketAddr,
    dealer: ShardIndex,
    /// Where the dealer counts it.
    at: Cell<ShardIndex>,
    /// Another shard counts it down.
    is_given_away: Cell<bool>,
}

impl<'a> Counted<'a> {
    fn new(server: &'a Rc<Server>, peer: SocketAddr, dealer: ShardIndex) -> Self {
        server.shard.metrics().connections_opened.increment();
        Self { server, peer, dealer, at: Cell::new(server.shard.index()), is_given_away: Cell::new(false) }
    }

    /// Asks the dealer whether the connection may move `to` there.
    async fn may_move(&self, to: ShardIndex) -> bool {
        let shard = &self.server.shard;
        let question = ShardCall::Move { from: self.at.get(), to };
        let may = shard.reaches(to) && matches!(shard.ask(self.dealer, question).await, Ok(ShardAnswer::May(true)));
        if may {
            self.at.set(to);
        }
        may
    }

    /// Hands the connection to the shard that it may move to.
    fn give_away(&self, socket: OwnedFd, received: BytesMut, moves: u32) {
        self.is_given_away.set(true);
        self.server.shard.metrics().connections_moved.increment();
        let adopted = Adopted { socket, peer: self.peer, dealer: self.dealer, received, moves };
        self.server.shard.tell(self.at.get(), ShardCall::Adopt(adopted));
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let shard = &self.server.shard;
        shard.metrics().connections_closed.increment();
        if !self.is_given_away.get() {
            shard.tell(self.dealer, ShardCall::Closed { shard: self.at.get(), peer: self.peer.ip() });
        }
    }
}
