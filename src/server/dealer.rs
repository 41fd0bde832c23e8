//! Who may connect, and which shard serves them.
//!
//! Shell. Owns, on the shard that listens, the count of open connections by shard and by address; not the connections.
//! Always: what was dealt is counted until its shard reports it closed. Like Kafka, a full broker stops accepting (the kernel
//! keeps the queue), while one address with too many connections is turned away. Source: KIP-612, `max.connections`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::BytesMut;
use socket2::SockRef;

use crate::config::BrokerSettings;
use crate::rt;
use crate::rt::net::Listener;
use crate::server::Server;
use crate::shard::calls::{Adopted, ShardCall};
use crate::types::ShardIndex;

/// Moves may bring a shard this part more connections than the one they come from.
const UNEVEN: usize = 8;

/// The counts.
pub(super) struct Dealer {
    open: RefCell<Open>,
    closed: rt::Event,
    connections_max: usize,
    per_address_max: usize,
}

struct Open {
    by_shard: Vec<usize>,
    by_address: HashMap<IpAddr, usize>,
}

impl Dealer {
    pub(super) fn new(shards: usize, settings: &BrokerSettings) -> Self {
        Self {
            open: RefCell::new(Open { by_shard: vec![0; shards], by_address: HashMap::new() }),
            closed: rt::Event::default(),
            connections_max: settings.max_connections as usize,
            per_address_max: settings.max_connections_per_ip as usize,
        }
    }

    /// Accepts and deals until a drain begins.
    pub(super) async fn accept_all(&self, server: &Rc<Server>, mut listener: Listener) {
        while !server.draining() {
            let next = async {
                self.room().await;
                Some(listener.accept().await)
            };
            let stop = async {
                server.drain_begins().await;
                None
            };
            match futures_lite::future::or(next, stop).await {
                Some(Ok((socket, peer))) => self.deal(server, socket, peer),
                Some(Err(error)) => {
                    return tracing::error!(%error, "the listener failed; no more connections are taken");
                }
                None => return,
            }
        }
    }

    async fn room(&self) {
        while self.open.borrow().by_shard.iter().sum::<usize>() >= self.connections_max {
            self.closed.wait().await;
        }
    }

    fn deal(&self, server: &Rc<Server>, socket: OwnedFd, peer: SocketAddr) {
        let Some(to) = self.open.borrow_mut().take(peer.ip(), self.per_address_max) else {
            server.shard().metrics().connections_refused.increment();
            return;
        };
        if let Err(error) = set_options(&socket, server.shard().settings()) {
            tracing::debug!(%peer, %error, "socket options were not set");
        }
        let (shard, dealer) = (server.shard(), server.shard().index());
        let adopted = Adopted { socket, peer, dealer, received: BytesMut::new(), moves: 0 };
        if to == dealer {
            server.adopt(adopted);
        } else {
            shard.tell(to, ShardCall::Adopt(adopted));
        }
    }

    /// Whether a connection may move from one shard to another; if so it is counted there from now on. It may not where the other
    /// would have clearly more connections than this one: serving them is work as well, and one partition's clients are not
    /// to crowd on one core.
    pub(super) fn on_move(&self, from: ShardIndex, to: ShardIndex) -> bool {
        self.open.borrow_mut().shift(from, to)
    }

    /// A connection that was dealt to `shard` ended.
    pub(super) fn on_closed(&self, shard: ShardIndex, peer: IpAddr) {
        self.open.borrow_mut().give_back(shard, peer);
        self.closed.notify_all();
    }
}

impl Open {
    /// The shard with the fewest connections, which has one more now; `None` if the address has enough.
    fn take(&mut self, peer: IpAddr, per_address_max: usize) -> Option<ShardIndex> {
        let of_address = self.by_address.entry(peer).or_default();
        if *of_address >= per_address_max {
            return None;
        }
        *of_address += 1;
        let (to, count) =
            self.by_shard.iter_mut().enumerate().min_by_key(|(_, count)| **count).expect("there is a shard");
        *count += 1;
        Some(to)
    }

    fn shift(&mut self, from: ShardIndex, to: ShardIndex) -> bool {
        let (here, there) = (self.by_shard[from], self.by_shard[to]);
        // None here: its end, which this shard was too busy to hear, came first.
        if here == 0 || there > here + here / UNEVEN {
            return false;
        }
        self.by_shard[from] -= 1;
        self.by_shard[to] += 1;
        true
    }

    fn give_back(&mut self, shard: ShardIndex, peer: IpAddr) {
        // A connection that was dropped while it asked to move may have been counted away already.
        self.by_shard[shard] = self.by_shard[shard].saturating_sub(1);
        let of_address = self.by_address.get_mut(&peer).expect("what is closed was dealt");
        *of_address -= 1;
        if *of_address == 0 {
            self.by_address.remove(&peer);
        }
    }
}

fn set_options(socket: &OwnedFd, settings: &BrokerSettings) -> std::io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    if let Some(bytes) = settings.socket_send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = settings.socket_receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);

    #[test]
    fn the_shard_with_the_fewest_connections_is_next() {
        let mut open = Open { by_shard: vec![0; 3], by_address: HashMap::new() };
        let dealt: Vec<_> = (0..6).map(|_| open.take(HERE, 10).unwrap()).collect();
        assert_eq!(dealt, [0, 1, 2, 0, 1, 2]);
        open.give_back(1, HERE);
        assert_eq!(open.take(HERE, 10), Some(1));
    }

    #[test]
    fn connections_move_while_the_shards_stay_about_even() {
        let mut open = Open { by_shard: vec![1, 0], by_address: HashMap::new() };
        assert!(open.shift(0, 1), "a lonely one may go where it likes");
        assert_eq!(open.by_shard, [0, 1]);
        open.by_shard = vec![32, 32];
        let moved = (0..32).filter(|_| open.shift(0, 1)).count();
        assert_eq!((moved, open.by_shard), (2, vec![30, 34]));
    }

    #[test]
    fn one_address_cannot_take_the_place_of_others() {
        let mut open = Open { by_shard: vec![0; 2], by_address: HashMap::new() };
        assert!(open.take(HERE, 1).is_some());
        assert_eq!(open.take(HERE, 1), None);
        assert!(open.take(THERE, 1).is_some());
        open.give_back(0, HERE);
        assert!(open.take(HERE, 1).is_some());
        assert_eq!(open.by_shard.iter().sum::<usize>(), 2);
    }
}
