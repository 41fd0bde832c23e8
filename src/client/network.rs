//! Connections to one cluster: whom to ask, how to reach them, and what they said of the cluster.
//!
//! Shell, and `Rc` inside: it lives on the thread of an `Io` and is made there. Owns one lane per broker (a connection, or the
//! wait for the next attempt), the newest metadata and when to ask for it, and who coordinates which group. Does not own retries
//! of what clients ask for. Always: requests handed over for one broker are written in that order, also when the connection has
//! yet to be made; a broker that fails is tried again with exponential, jittered waits. Source: Java's `NetworkClient`;
//! KIP-144 (back-off), KIP-601 (set-up time-out), KIP-899 (rebootstrap).

mod coordinators;
mod lane;
mod metadata;

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::connection::Order;
pub(crate) use super::connection::{Answer, PendingReply, Reply, Versions};
use super::error::CallError;
use super::settings::{ClientSettings, HostPort};
use crate::protocol::{ApiKey, Request};
use crate::types::BrokerId;
use lane::{Key, Lane};
use metadata::Wanted;

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Any broker: the connected one with the least in flight, else whoever can be reached.
    Any,
    /// The one that changes the cluster.
    Controller,
    /// That one.
    Broker(BrokerId),
    /// That one too, over a connection of its own: what waits long there (joining a group) holds up nothing else.
    Coordinator(BrokerId),
}

/// Connections to one cluster; clones share them. They close when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Network(Rc<Inner>);

struct Inner {
    settings: Rc<ClientSettings>,
    cluster: RefCell<Cluster>,
    lanes: RefCell<BTreeMap<Key, Rc<Lane>>>,
    wanted: RefCell<Wanted>,
    metadata: metadata::Loop,
    /// Which broker coordinates a group.
    coordinators: RefCell<BTreeMap<String, BrokerId>>,
    changes: watch::Sender<u64>,
    /// The bootstrap server that is tried first.
    first_server: Cell<usize>,
    random: RefCell<fastrand::Rng>,
}

impl Network {
    /// Connects to nobody yet. Must be called on the thread of an `Io`.
    pub(crate) fn new(settings: ClientSettings) -> Self {
        let mut random = fastrand::Rng::new();
        let first_server = random.usize(..settings.bootstrap_servers.len().max(1));
        let inner = Rc::new(Inner {
            settings: Rc::new(settings.bounded()),
            cluster: RefCell::default(),
            lanes: RefCell::default(),
            wanted: RefCell::default(),
            metadata: metadata::Loop::default(),
            coordinators: RefCell::default(),
            changes: watch::channel(0).0,
            first_server: Cell::new(first_server),
            random: RefCell::new(random),
        });
        tokio::task::spawn_local(metadata::keep_fresh(Rc::downgrade(&inner), inner.metadata.clone()));
        Self(inner)
    }

    /// The settings it was made with.
    pub(crate) fn settings(&self) -> &ClientSettings {
        &self.0.settings
    }

    /// What is known now. Hold it across no await.
    pub(crate) fn cluster(&self) -> Ref<'_, Cluster> {
        self.0.cluster.borrow()
    }

    /// Tells the version of [`Network::cluster`] after each change.
    pub(crate) fn on_metadata_change(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Sends a request and waits for its answer. One attempt: connecting included, retrying not. Never takes longer than
    /// `deadline`.
    pub(crate) async fn call<'a, R>(&self, to: Target, request: &R, deadline: Duration) -> Answer
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        let end = Instant::now() + deadline;
        let lane = self.lane_for(to, end).await?;
        let pending = self.hand_over(&lane, request, Vec::new(), deadline, true);
        match tokio::time::timeout_at(end, pending).await {
            Ok(answer) => answer,
            Err(_) => Err(lane.late(R::API, deadline)),
        }
    }

    /// Sends a request with record batches, one for each cut of the message. Its place in the broker's order is taken here and
    /// now; the answer, or why there is none, comes out of the future. A connection that has yet to be made takes up to
    /// `socket.connection.setup.timeout.ms` for each address, whatever the deadline.
    pub(crate) fn send<'a, R>(&self, to: BrokerId, request: &R, records: Vec<Bytes>, deadline: Duration) -> PendingReply
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        self.hand_over(&self.lane(Key::Broker(to)), request, records, deadline, true)
    }

    /// As [`Network::send`], for Produce with acks=0: there is no answer, the empty reply comes when the bytes are with the kernel.
    pub(crate) fn send_unanswered<'a, R>(
        &self,
        to: BrokerId,
        request: &R,
        records: Vec<Bytes>,
        deadline: Duration,
    ) -> PendingReply
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        self.hand_over(&self.lane(Key::Broker(to)), request, records, deadline, false)
    }

    fn hand_over<'a, R>(
        &self,
        lane: &Rc<Lane>,
        request: &R,
        records: Vec<Bytes>,
        deadline: Duration,
        answered: bool,
    ) -> PendingReply
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        let (sender, pending) = PendingReply::new();
        let order = Order { records, deadline: Instant::now() + deadline, after: deadline, answered, sender };
        if let Some(connection) = lane.connection() {
            connection.submit(request, order);
        } else {
            let request = request.clone().into_owned();
            lane.when_connected(Box::new(move |connection| match connection {
                Ok(connection) => connection.submit(&request, order),
                // Nobody waits any more: then nobody needs to know.
                Err(error) => _ = order.sender.send(Err(error.clone())),
            }));
            self.connect(lane);
        }
        pending
    }

    /// Whether requests to that broker are written at once.
    #[cfg(test)]
    pub(crate) fn is_connected(&self, to: BrokerId) -> bool {
        self.0.lanes.borrow().get(&Key::Broker(to)).is_some_and(|lane| lane.connection().is_some())
    }

    /// What a broker speaks, of all APIs; connects when needed.
    pub(crate) async fn versions(&self, of: Target, deadline: Duration) -> Result<Versions, CallError> {
        let end = Instant::now() + deadline;
        let lane = self.lane_for(of, end).await?;
        self.ready(&lane, end).await?;
        let connection = lane.connection().ok_or_else(|| lane.late(ApiKey::ApiVersions, deadline))?;
        Ok(connection.versions().clone())
    }

    /// Closes every connection to that broker: the next request connects anew.
    #[cfg(test)]
    pub(crate) fn disconnect(&self, from: BrokerId, why: &str) {
        for key in [Key::Broker(from), Key::Coordinator(from)] {
            if let Some(connection) = self.0.lanes.borrow().get(&key).and_then(|lane| lane.connection()) {
                connection.close(why);
            }
        }
    }

    async fn lane_for(&self, to: Target, end: Instant) -> Result<Rc<Lane>, CallError> {
        match to {
            Target::Broker(id) => Ok(self.lane(Key::Broker(id))),
            Target::Coordinator(id) => Ok(self.lane(Key::Coordinator(id))),
            Target::Any => self.any(end).await,
            Target::Controller => {
                if self.cluster().controller().is_none() {
                    self.refresh_brokers(end).await?;
                }
                let controller = self.cluster().controller();
                match controller {
                    Some(id) => Ok(self.lane(Key::Broker(id))),
                    // With a quorum of controllers every broker forwards what is theirs.
                    None => self.any(end).await,
                }
            }
        }
    }

    /// A connected lane: of a known broker, else of a bootstrap server.
    async fn any(&self, end: Instant) -> Result<Rc<Lane>, CallError> {
        let connected = {
            let lanes = self.0.lanes.borrow();
            let open = lanes.values().filter(|lane| !matches!(lane.key, Key::Coordinator(_)));
            let busy = open.filter_map(|lane| Some((lane.connection()?.in_flight(), lane)));
            busy.min_by_key(|(in_flight, _)| *in_flight).map(|(_, lane)| Rc::clone(lane))
        };
        if let Some(lane) = connected {
            return Ok(lane);
        }
        let mut brokers: Vec<_> = self.cluster().brokers().map(|broker| broker.id).collect();
        self.0.random.borrow_mut().shuffle(&mut brokers);
        let servers = self.0.settings.bootstrap_servers.len();
        let turn = |at: usize| Key::Bootstrap((self.0.first_server.get() + at) % servers.max(1));
        let rebootstrap = brokers.is_empty() || self.0.settings.rebootstrap;
        let servers = (0..servers).filter(|_| rebootstrap).map(turn);
        let mut failures: Vec<CallError> = Vec::new();
        for key in brokers.into_iter().map(Key::Broker).chain(servers) {
            let lane = self.lane(key);
            match self.ready(&lane, end).await {
                Ok(()) => {
                    if let Key::Bootstrap(at) = key {
                        self.0.first_server.set(at);
                    }
                    return Ok(lane);
                }
                Err(error) => failures.push(error),
            }
            if Instant::now() >= end {
                break;
            }
        }
        Err(all_failed(failures))
    }

    /// Waits until the lane is connected, or its next attempt has failed.
    async fn ready(&self, lane: &Rc<Lane>, end: Instant) -> Result<(), CallError> {
        if lane.connection().is_some() {
            return Ok(());
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        lane.when_connected(Box::new(move |connection| {
            // Nobody waits any more: then nobody needs to know.
            _ = sender.send(connection.map(drop).map_err(CallError::clone));
        }));
        self.connect(lane);
        match tokio::time::timeout_at(end, receiver).await {
            Ok(Ok(outcome)) => outcome,
            _ => Err(lane.not_connected()),
        }
    }

    fn lane(&self, key: Key) -> Rc<Lane> {
        let mut lanes = self.0.lanes.borrow_mut();
        Rc::clone(lanes.entry(key).or_insert_with(|| Rc::new(Lane::new(key))))
    }

    fn connect(&self, lane: &Rc<Lane>) {
        if lane.begin() {
            tokio::task::spawn_local(lane::connect(
                Rc::clone(lane),
                Rc::downgrade(&self.0),
                Rc::clone(&self.0.settings),
            ));
        }
    }
}

impl Inner {
    /// Where a lane leads to; `None` for a broker nobody told of.
    fn address(&self, key: Key) -> Option<HostPort> {
        match key {
            Key::Bootstrap(at) => self.settings.bootstrap_servers.get(at).cloned(),
            Key::Broker(id) | Key::Coordinator(id) => {
                let cluster = self.cluster.borrow();
                cluster.broker(id).map(|broker| HostPort { host: broker.host.to_string(), port: broker.port })
            }
        }
    }

    /// After the cluster changed: lanes follow their brokers to new addresses, a bootstrap connection becomes that of the broker it
    /// leads to, and whoever watches is told.
    fn cluster_changed(&self) {
        let version = self.cluster.borrow().version();
        let mut lanes = self.lanes.borrow_mut();
        let gone = |lane: &Rc<Lane>| match lane.key {
            Key::Bootstrap(_) => false,
            key => lane.led_to().is_some_and(|address| self.address(key).is_none_or(|now| now != address)),
        };
        lanes.retain(|_, lane| {
            let gone = gone(lane);
            if gone {
                lane.retire("the broker has moved to another address, or left the cluster");
            }
            !gone
        });
        let bootstrap: Vec<_> = lanes.keys().copied().filter(|key| matches!(key, Key::Bootstrap(_))).collect();
        for key in bootstrap {
            let Some(address) = self.address(key) else { continue };
            let cluster = self.cluster.borrow();
            let same = cluster.brokers().find(|broker| *broker.host == *address.host && broker.port == address.port);
            let Some(id) = same.map(|broker| broker.id) else { continue };
            let connected = lanes.get(&key).is_some_and(|lane| lane.connection().is_some());
            if connected
                && !lanes.contains_key(&Key::Broker(id))
                && let Some(connection) = lanes.get(&key).and_then(|lane| lane.give_away())
            {
                lanes.remove(&key);
                lanes.insert(Key::Broker(id), Lane::adopted(Key::Broker(id), connection, address));
            }
        }
        drop(lanes);
        self.changes.send_replace(version);
    }

    /// The wait after so many failures: doubled each time, bounded, a fifth more or less.
    fn backoff(&self, first: Duration, most: Duration, failures: u32) -> Duration {
        let wait = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most);
        wait.mul_f64(0.8 + 0.4 * self.random.borrow_mut().f64())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.metadata.end();
        for lane in self.lanes.borrow().values() {
            lane.retire("this client was closed");
        }
    }
}

impl Network {
    /// The wait before the next attempt of something, by `retry.backoff.ms`; `failures` counts from 1.
    pub(crate) fn retry_backoff(&self, failures: u32) -> Duration {
        self.0.backoff(self.0.settings.retry_backoff, self.0.settings.retry_backoff_max, failures)
    }
}

/// Several failures as one that says all of it.
fn all_failed(mut failures: Vec<CallError>) -> CallError {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    if let Some(at) = failures.iter().position(|failure| !failure.retriable()) {
        return failures.remove(at);
    }
    let (mut names, mut whys) = (Vec::new(), Vec::new());
    for failure in &failures {
        match failure {
            CallError::Connect { to, why, .. } => {
                names.push(to.to_string());
                whys.push(format!("{to}: {why}"));
            }
            other => whys.push(other.to_string()),
        }
    }
    CallError::Connect {
        to: if names.is_empty() { "any broker".into() } else { format!("any of {}", names.join(", ")).into() },
        why: if whys.is_empty() { "there was no time left to try".into() } else { whys.join("; ").into() },
        advice: ": is a broker running there? Look at bootstrap.servers".into(),
    }
}

#[cfg(test)]
mod tests;
