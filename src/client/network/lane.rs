//! The way to one broker: a connection, or the wait for one with those who wait.
//!
//! Shell. Owns the attempts to connect, their back-off, and the requests handed over meanwhile. Always: those who wait are
//! served in their order, or all told why not; one attempt is under way at most.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Inner;
use crate::client::connection::{Connection, Dial, Ended, dial};
use crate::client::error::CallError;
use crate::client::settings::{ClientSettings, HostPort};
use crate::protocol::ApiKey;
use crate::types::BrokerId;

/// Whom a lane leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// An entry of `bootstrap.servers`.
    Bootstrap(usize),
    /// A broker.
    Broker(BrokerId),
    /// The same broker in its role as coordinator, over a connection of its own.
    Coordinator(BrokerId),
}

/// Called once, when the lane is connected or the attempt has failed.
type Waiter = Box<dyn FnOnce(Result<&Connection, &CallError>)>;

pub(super) struct Lane {
    pub(super) key: Key,
    state: RefCell<State>,
    /// Where the last attempt went.
    address: RefCell<Option<HostPort>>,
    waiting: RefCell<Vec<Waiter>>,
    failures: Cell<u32>,
    not_before: Cell<Option<Instant>>,
    last_error: RefCell<Option<CallError>>,
}

enum State {
    Idle,
    Connecting,
    Connected(Connection),
    Retired(Box<str>),
}

impl Lane {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            state: RefCell::new(State::Idle),
            address: RefCell::default(),
            waiting: RefCell::default(),
            failures: Cell::new(0),
            not_before: Cell::new(None),
            last_error: RefCell::default(),
        }
    }

    /// With a connection that was another lane's.
    pub(super) fn adopted(key: Key, connection: Connection, address: HostPort) -> Rc<Self> {
        let lane = Self::new(key);
        lane.state.replace(State::Connected(connection));
        lane.address.replace(Some(address));
        Rc::new(lane)
    }

    /// Takes the connection out, for [`Lane::adopted`].
    pub(super) fn give_away(&self) -> Option<Connection> {
        let connection = self.connection()?;
        self.state.replace(State::Idle);
        Some(connection)
    }

    /// If there is one and it has not ended.
    pub(super) fn connection(&self) -> Option<Connection> {
        match &*self.state.borrow() {
            State::Connected(connection) if !connection.is_closed() => Some(connection.clone()),
            _ => None,
        }
    }

    pub(super) fn led_to(&self) -> Option<HostPort> {
        self.address.borrow().clone()
    }

    pub(super) fn when_connected(&self, waiter: Waiter) {
        let retired = match &*self.state.borrow() {
            State::Retired(why) => Some(self.failed(why)),
            _ => None,
        };
        match retired {
            Some(error) => waiter(Err(&error)),
            None => self.waiting.borrow_mut().push(waiter),
        }
    }

    /// Whether an attempt is to be begun now; marks it as begun.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let begin = match &*state {
            State::Idle => true,
            State::Connected(connection) => connection.is_closed(),
            State::Connecting | State::Retired(_) => false,
        };
        if begin {
            *state = State::Connecting;
        }
        begin
    }

    /// For good: closes the connection, tells those who wait.
    pub(super) fn retire(&self, why: &str) {
        if let State::Connected(connection) = self.state.replace(State::Retired(why.into())) {
            connection.close(why);
        }
        self.tell_all(Err(&self.failed(why)));
    }

    /// What a call that ran out of time while waiting is told.
    pub(super) fn late(&self, api: ApiKey, after: Duration) -> CallError {
        match self.connection() {
            Some(connection) => CallError::TimedOut { broker: connection.broker().into(), api: api.name(), after },
            None => self.not_connected(),
        }
    }

    pub(super) fn not_connected(&self) -> CallError {
        self.last_error.borrow().clone().unwrap_or_else(|| self.failed("no answer in time"))
    }

    fn failed(&self, why: &str) -> CallError {
        CallError::Connect { to: self.name().into(), why: why.into(), advice: "".into() }
    }

    fn name(&self) -> String {
        let who = self.who();
        self.address.borrow().as_ref().map_or(who.clone(), |address| format!("{who} at {address}"))
    }

    fn who(&self) -> String {
        match self.key {
            Key::Bootstrap(_) => "the bootstrap server".to_owned(),
            Key::Broker(id) | Key::Coordinator(id) => format!("broker {id}"),
        }
    }

    fn tell_all(&self, outcome: Result<&Connection, &CallError>) {
        // Waiters may hand over more: those meet the new state.
        for waiter in self.waiting.take() {
            waiter(outcome);
        }
    }

    fn is_retired(&self) -> bool {
        matches!(*self.state.borrow(), State::Retired(_))
    }
}

/// One attempt, after the wait that is due, and then the life of the connection.
pub(super) async fn connect(lane: Rc<Lane>, network: Weak<Inner>, settings: Rc<ClientSettings>) {
    if let Some(not_before) = lane.not_before.get() {
        sleep_until(not_before).await;
    }
    let address = network.upgrade().and_then(|network| network.address(lane.key));
    lane.address.replace(address.clone());
    let attempt = match &address {
        Some(address) => {
            let most = settings.connection_setup_timeout_max.max(settings.connection_setup_timeout);
            let timeout = settings.connection_setup_timeout.saturating_mul(1 << lane.failures.get().min(16)).min(most);
            let who = lane.who();
            dial(&Dial { settings: &settings, who: &who, address, timeout }).await
        }
        None => Err(lane.failed("no broker of that id is known in the cluster")),
    };
    if lane.is_retired() {
        return;
    }
    let Some(inner) = network.upgrade() else { return };
    let driver = match attempt {
        Ok(driver) => driver,
        Err(error) => {
            let error = match (&address, lane.key) {
                (Some(address), Key::Broker(_) | Key::Coordinator(_))
                    if error.retriable() && !settings.bootstrap_servers.contains(address) =>
                {
                    error.advised("it is the address the cluster advertises (advertised.listeners): it must be reachable from here")
                }
                _ => error,
            };
            let failures = lane.failures.get().saturating_add(1);
            lane.failures.set(failures);
            let wait = inner.backoff(settings.reconnect_backoff, settings.reconnect_backoff_max, failures);
            lane.not_before.set(Some(Instant::now() + wait));
            lane.last_error.replace(Some(error.clone()));
            lane.state.replace(State::Idle);
            if !matches!(lane.key, Key::Bootstrap(_)) {
                inner.metadata.ask_again();
            }
            lane.tell_all(Err(&error));
            return;
        }
    };
    drop(inner);
    lane.failures.set(0);
    lane.not_before.set(None);
    lane.last_error.replace(None);
    let connection = driver.connection();
    lane.state.replace(State::Connected(connection.clone()));
    lane.tell_all(Ok(&connection));
    drop(connection);
    // A lane that gave its connection away leads elsewhere by the time this one ends: then only the new lane, which sees that it
    // is closed, cares.
    if driver.run().await == Ended::There
        && let Some(inner) = network.upgrade()
    {
        let wait = inner.backoff(settings.reconnect_backoff, settings.reconnect_backoff_max, 1);
        lane.not_before.set(Some(Instant::now() + wait));
        // Whoever led there may not any more.
        inner.metadata.ask_again();
    }
}
