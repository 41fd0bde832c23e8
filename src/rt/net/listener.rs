//! Shell. Accepting connections.
//!
//! Owns the listening socket. Decides nothing about who may connect. Always: no `SO_REUSEPORT` (with it a second broker would
//! bind the same port and steal half of the clients); a shortage of descriptors is waited out, never spun on.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, Socket, Type};
use tracing::{info, warn};

use super::{Entry, Inner};

/// Accepted in one go before others get their turn.
const ACCEPTS_PER_TURN: u32 = 16;
/// How long to wait when no descriptor or memory is left; the kernel keeps the connections in the backlog.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Binds with socket2: SO_REUSEADDR, no SO_REUSEPORT. An IPv6 wildcard takes IPv4 too, as in Java.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// What the net task knows of a listening socket.
pub(super) struct Listening {
    ready: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Listening {
    pub(super) fn on_event(&self) {
        self.ready.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Accepted sockets, one by one.
pub struct Listener {
    net: Rc<Inner>,
    socket: OwnedFd,
    token: u64,
    listening: Rc<Listening>,
    accepted_at_once: u32,
    in_shortage: bool,
}

impl Listener {
    pub(super) fn new(net: &Rc<Inner>, socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let listening = Rc::new(Listening { ready: Cell::new(true), waker: RefCell::default() });
        let token = net.insert(&socket, EventFlags::IN, Entry::Listening(listening.clone()))?;
        Ok(Self { net: net.clone(), socket, token, listening, accepted_at_once: 0, in_shortage: false })
    }

    /// Waits for the next one. Errors like EMFILE are waited out inside, logged once, never a busy loop.
    pub async fn accept(&mut self) -> io::Result<(OwnedFd, SocketAddr)> {
        loop {
            if self.accepted_at_once == ACCEPTS_PER_TURN {
                self.accepted_at_once = 0;
                self.net.next_turn().await;
            }
            match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, peer)) => {
                    // A peer that was gone before we came has no address.
                    let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
                    self.accepted_at_once += 1;
                    if std::mem::take(&mut self.in_shortage) {
                        info!("accepting connections again");
                    }
                    return Ok((socket, peer));
                }
                Err(Errno::AGAIN) => {
                    self.accepted_at_once = 0;
                    self.listening.ready.set(false);
                    self.wait_until_ready().await;
                }
                Err(error) => match Refusal::of(error) {
                    Refusal::OfOne => self.accepted_at_once += 1,
                    Refusal::ForNow => {
                        if !std::mem::replace(&mut self.in_shortage, true) {
                            warn!(%error, "cannot accept connections for now: raise the limit of open files or close some");
                        }
                        crate::rt::sleep(SHORTAGE_PAUSE).await;
                    }
                    Refusal::ForGood => return Err(error.into()),
                },
            }
        }
    }

    async fn wait_until_ready(&self) {
        std::future::poll_fn(|context| {
            if self.listening.ready.get() {
                return Poll::Ready(());
            }
            *self.listening.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// What an error of accept(2) says, beyond "there is nobody".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// The connection that failed is gone; the next may do better.
    OfOne,
    /// Something is short, or a security module said no before the connection left the queue: the next call gets the same.
    ForNow,
    /// It will never be better.
    ForGood,
}

impl Refusal {
    /// Source: accept(2), "Error handling": errors of the network are those of the connection that waits.
    fn of(error: Errno) -> Self {
        match error {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::PERM => Self::ForNow,
            Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET => Self::OfOne,
            _ => Self::ForGood,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.net.remove(self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_one_connection_ends_no_listener_and_one_that_stays_is_not_asked_again_at_once() {
        for error in [Errno::CONNABORTED, Errno::NETUNREACH, Errno::HOSTDOWN, Errno::NONET, Errno::OPNOTSUPP] {
            assert_eq!(Refusal::of(error), Refusal::OfOne);
        }
        for error in [Errno::MFILE, Errno::NOMEM, Errno::PERM] {
            assert_eq!(Refusal::of(error), Refusal::ForNow);
        }
        assert_eq!(Refusal::of(Errno::BADF), Refusal::ForGood);
    }
}
