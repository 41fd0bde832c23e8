//! Keeping what is known of the cluster fresh: asked for when topics are new, when something was found untrue, when a topic that is
//! wanted is not there, and when it is old.
//!
//! Shell. Owns the loop that asks, which topics it asks about, and those who wait for an answer. Always: one request for metadata
//! is in flight at most; after a failure the next one waits; new topics wait for nobody. Source: Java's `Metadata`; KIP-526
//! (topics nobody uses are let go), KIP-1102 (rebootstrap on request).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Inner, Network, Target};
use crate::client::cluster::{Asked, Cluster};
use crate::client::error::{CallError, ClientError, metadata_is_stale};
use crate::client::settings::ClientSettings;
use crate::protocol::ErrorCode;
use crate::protocol::admin::{MetadataRequest, MetadataRequestTopic};
use crate::types::TopicName;

/// What is asked about.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// With when each was asked for last.
    topics: BTreeMap<TopicName, Instant>,
    all: bool,
}

/// The loop's bell, shared with it.
#[derive(Clone, Default)]
pub(super) struct Loop(Rc<Bell>);

#[derive(Default)]
struct Bell {
    rung: Notify,
    ended: Cell<bool>,
    /// Ask now: somebody needs what was never asked for.
    new: Cell<bool>,
    /// Ask when the wait since the last time is over: something was found untrue.
    again: Cell<bool>,
    /// How many attempts have ended, and how the last one did.
    attempts: Attempts,
    last_error: RefCell<Option<CallError>>,
}

/// What an answer was worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    All,
    /// Some topic is not there, or not yet: who wants it waits for it to be created.
    Lacking,
}

struct Attempts(watch::Sender<u64>);

impl Default for Attempts {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

impl Loop {
    fn ask_now(&self) {
        self.0.new.set(true);
        self.0.rung.notify_one();
    }

    pub(super) fn ask_again(&self) {
        if !self.0.again.replace(true) {
            self.0.rung.notify_one();
        }
    }

    pub(super) fn end(&self) {
        self.0.ended.set(true);
        self.0.rung.notify_one();
    }
}

impl Network {
    /// Until the brokers have answered about each of the topics, be it with an error (see `Topic::error`). Topics asked for here
    /// are kept fresh from now on, until nobody asked for `metadata.max.idle.ms`; see [`Network::touch`]. With no topics: until
    /// the brokers are known. Errors: nobody answered in time.
    pub(crate) async fn metadata_for(&self, topics: &[&str], deadline: Duration) -> Result<(), ClientError> {
        self.touch(topics);
        // An error is asked about anew by whoever comes next: the topic may have been created since.
        let failed = |topic: &str| self.cluster().topic(topic).is_some_and(|topic| topic.error.is_some());
        for topic in topics.iter().filter(|topic| failed(topic)) {
            self.cluster_mut(|cluster| cluster.invalidate(topic));
        }
        let known = |network: &Self| {
            let cluster = network.cluster();
            !cluster.is_empty() && topics.iter().all(|topic| cluster.is_fresh(topic))
        };
        self.until(known, deadline, || match topics {
            [] => "asking for the brokers of the cluster".to_owned(),
            topics => format!("asking for metadata of {}", topics.join(", ")),
        })
        .await
    }

    /// As [`Network::metadata_for`], for every topic there is; they are all kept fresh from now on, until
    /// [`Network::forget_others`].
    pub(crate) async fn metadata_for_all(&self, deadline: Duration) -> Result<(), ClientError> {
        let first = !std::mem::replace(&mut self.0.wanted.borrow_mut().all, true);
        let attempts = self.0.metadata.0.attempts.0.borrow().to_owned();
        let known = move |network: &Self| {
            let metadata = &network.0.metadata.0;
            !first || (*metadata.attempts.0.borrow() > attempts && metadata.last_error.borrow().is_none())
        };
        self.until(known, deadline, || "asking for metadata of all topics".to_owned()).await
    }

    /// Only topics asked for by name are kept fresh from now on.
    pub(crate) fn forget_others(&self) {
        self.0.wanted.borrow_mut().all = false;
    }

    /// Asks for everything that is wanted once more and waits for the answer.
    pub(crate) async fn refresh(&self, deadline: Duration) -> Result<(), ClientError> {
        let attempts = self.0.metadata.0.attempts.0.borrow().to_owned();
        let known = move |network: &Self| {
            let metadata = &network.0.metadata.0;
            *metadata.attempts.0.borrow() > attempts && metadata.last_error.borrow().is_none()
        };
        self.until(known, deadline, || "asking for metadata".to_owned()).await
    }

    /// Until the topic exists and each partition has a leader. Errors: the broker's last word, where it is final or time is up.
    pub(crate) async fn topic_ready(&self, topic: &str, deadline: Duration) -> Result<(), ClientError> {
        let (end, mut failures, mut said) = (Instant::now() + deadline, 0, None);
        let refused = |code| ClientError::broker(format_args!("topic {topic}"), code, None);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Err(error) = self.metadata_for(&[topic], left).await {
                return Err(said.map_or(error, refused));
            }
            let verdict = {
                let cluster = self.cluster();
                match cluster.topic(topic) {
                    Some(known) if known.error.is_none() => {
                        let led = known.partitions.iter().all(|partition| partition.leader.is_some());
                        if led && !known.partitions.is_empty() { Ok(()) } else { Err(ErrorCode::LEADER_NOT_AVAILABLE) }
                    }
                    Some(known) => Err(known.error.unwrap_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)),
                    None => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                }
            };
            let Err(code) = verdict else { return Ok(()) };
            failures += 1;
            let wait = self.retry_backoff(failures);
            if !code.retriable() || Instant::now() + wait >= end {
                return Err(refused(code));
            }
            said = Some(code);
            tokio::time::sleep(wait).await;
            self.invalidate(topic);
        }
    }

    /// Says that the topics are still in use: what nobody touches for `metadata.max.idle.ms` is no longer asked about. To be called
    /// now and then by whoever uses topics without [`Network::metadata_for`].
    pub(crate) fn touch(&self, topics: &[&str]) {
        let now = Instant::now();
        let mut wanted = self.0.wanted.borrow_mut();
        for topic in topics {
            match wanted.topics.get_mut(*topic) {
                Some(last) => *last = now,
                None => _ = wanted.topics.insert((*topic).into(), now),
            }
        }
    }

    /// A leader was wrong, or something else that is known of the topic: it is asked about again soon.
    pub(crate) fn invalidate(&self, topic: &str) {
        self.touch(&[topic]);
        self.0.cluster.borrow_mut().invalidate(topic);
        self.0.metadata.ask_again();
    }

    /// Changes what is known without asking.
    pub(crate) fn cluster_mut<T>(&self, change: impl FnOnce(&mut Cluster) -> T) -> T {
        change(&mut self.0.cluster.borrow_mut())
    }

    /// What is known of the brokers may be untrue: they are asked about again soon.
    pub(crate) fn invalidate_brokers(&self) {
        self.0.metadata.ask_again();
    }

    /// Takes the leaders that an answer of Produce or Fetch named, first its brokers (id, host, port).
    pub(crate) fn learn<'h>(
        &self,
        brokers: impl IntoIterator<Item = (i32, &'h str, i32)>,
        learn: impl FnOnce(&mut Cluster),
    ) {
        {
            let mut cluster = self.0.cluster.borrow_mut();
            for (id, host, port) in brokers {
                cluster.learn_broker(id, host, port);
            }
            learn(&mut cluster);
        }
        self.0.cluster_changed();
    }

    /// For [`Network::lane_for`](super::Network): makes sure the brokers are known.
    pub(super) async fn refresh_brokers(&self, end: Instant) -> Result<(), CallError> {
        let left = end.saturating_duration_since(Instant::now());
        match self.metadata_for(&[], left).await {
            Ok(()) => Ok(()),
            Err(ClientError::Call(error)) => Err(error),
            Err(ClientError::TimedOut { last: Some(last), .. }) if matches!(*last, ClientError::Call(_)) => match *last
            {
                ClientError::Call(error) => Err(error),
                _ => unreachable!("just looked at"),
            },
            Err(other) => {
                Err(CallError::Connect { to: "the cluster".into(), why: other.to_string().into(), advice: "".into() })
            }
        }
    }

    async fn until(
        &self,
        known: impl Fn(&Self) -> bool,
        deadline: Duration,
        what: impl Fn() -> String,
    ) -> Result<(), ClientError> {
        let end = Instant::now() + deadline;
        let mut attempts = self.0.metadata.0.attempts.0.subscribe();
        loop {
            attempts.mark_unchanged();
            if known(self) {
                return Ok(());
            }
            self.0.metadata.ask_now();
            let ended = timeout_at(end, attempts.changed()).await;
            let last = self.0.metadata.0.last_error.borrow().clone();
            if let Some(error) = last.as_ref().filter(|error| !error.retriable()) {
                return Err(error.clone().into());
            }
            if ended.is_err() {
                if known(self) {
                    return Ok(());
                }
                let last = last.map(|error| Box::new(ClientError::from(error)));
                return Err(ClientError::TimedOut { what: what().into(), after: deadline, last });
            }
        }
    }
}

/// The loop. Ends with the network.
pub(super) async fn keep_fresh(network: Weak<Inner>, bell: Loop) {
    let Some(settings) = network.upgrade().map(|inner| Rc::clone(&inner.settings)) else { return };
    let mut keeper = Keeper {
        network,
        bell: bell.0,
        settings,
        failures: 0,
        last_attempt: None,
        last_success: Instant::now(),
        absences: 0,
        missing_at: None,
    };
    while keeper.is_due().await {
        keeper.bell.new.set(false);
        keeper.bell.again.set(false);
        let Some(inner) = keeper.network.upgrade() else { return };
        let outcome = ask(&Network(inner)).await;
        keeper.last_attempt = Some(Instant::now());
        match outcome {
            Ok(told) => keeper.on_answer(told),
            Err(error) => keeper.on_failure(error),
        }
        keeper.bell.attempts.0.send_modify(|attempts| *attempts += 1);
    }
}

/// What the loop remembers of its attempts.
struct Keeper {
    network: Weak<Inner>,
    bell: Rc<Bell>,
    settings: Rc<ClientSettings>,
    /// In a row.
    failures: u32,
    last_attempt: Option<Instant>,
    last_success: Instant,
    /// Answers in a row that lacked a topic, and when it is asked for once more.
    absences: u32,
    missing_at: Option<Instant>,
}

/// When the brokers are asked next.
enum Due {
    At(Instant),
    /// When somebody wants something.
    WhenRung,
    /// The network has ended.
    Never,
}

impl Keeper {
    /// Until the brokers are to be asked. False: never again.
    async fn is_due(&self) -> bool {
        loop {
            let now = Instant::now();
            match self.due(now) {
                Due::At(due) if due <= now => return true,
                Due::At(due) => tokio::select! {
                    () = sleep_until(due) => {
                        if !self.bell.ended.get() { return true }
                    }
                    () = self.bell.rung.notified() => {}
                },
                Due::WhenRung => self.bell.rung.notified().await,
                Due::Never => return false,
            }
        }
    }

    fn due(&self, now: Instant) -> Due {
        if self.bell.ended.get() {
            return Due::Never;
        }
        let (first, most) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let rest = self.last_attempt.map(|at| at + first);
        let due = match (self.bell.new.get(), self.bell.again.get() && self.last_attempt.is_some()) {
            (true, _) if self.failures == 0 => Some(now),
            // What failed waits longer each time.
            (true, _) | (_, true) => match self.network.upgrade() {
                Some(inner) if self.failures > 0 => {
                    let wait = inner.backoff(first, most, self.failures);
                    self.last_attempt.map(|at| at + wait).or(rest)
                }
                Some(_) => rest,
                None => return Due::Never,
            },
            // Nothing is asked before somebody wants something; from then on age counts.
            (false, false) => {
                let old_at = self.last_attempt.map(|at| at + self.settings.metadata_max_age);
                [old_at, self.missing_at].into_iter().flatten().min()
            }
        };
        due.map_or(Due::WhenRung, Due::At)
    }

    fn on_answer(&mut self, told: Told) {
        (self.failures, self.last_success) = (0, Instant::now());
        self.bell.last_error.replace(None);
        self.absences = if told == Told::Lacking { self.absences + 1 } else { 0 };
        let (first, most) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let lacking = self.network.upgrade().filter(|_| self.absences > 0);
        let wait = lacking.map(|inner| inner.backoff(first, most, self.absences));
        self.missing_at = wait.map(|wait| Instant::now() + wait);
    }

    fn on_failure(&mut self, error: CallError) {
        self.failures += 1;
        self.bell.last_error.replace(Some(error));
        if let Some(inner) = self.network.upgrade() {
            if self.settings.rebootstrap && self.last_success.elapsed() > self.settings.rebootstrap_trigger {
                inner.cluster.borrow_mut().forget_brokers();
                inner.cluster_changed();
            }
            // Nobody may be waiting, but what is wanted is wanted still.
            self.bell.again.set(true);
        }
    }
}

async fn ask(network: &Network) -> Result<Told, CallError> {
    let inner = &network.0;
    let (names, asked) = {
        let (mut wanted, now) = (inner.wanted.borrow_mut(), Instant::now());
        let idle_max = inner.settings.metadata_max_idle;
        wanted.topics.retain(|_, last| now.duration_since(*last) < idle_max);
        let names: Vec<TopicName> = wanted.topics.keys().cloned().collect();
        (names, if wanted.all { Asked::All } else { Asked::Some })
    };
    let named =
        |name: &TopicName| MetadataRequestTopic { name: Some(TopicName::clone(name).into()), ..Default::default() };
    let request = MetadataRequest {
        topics: (asked == Asked::Some).then(|| names.iter().map(named).collect()),
        allow_auto_topic_creation: inner.settings.allow_auto_create_topics,
        ..Default::default()
    };
    let reply = network.call(Target::Any, &request, inner.settings.request_timeout).await?;
    let answer = match reply.read::<MetadataRequest<'_>>() {
        Ok(answer) => answer,
        Err(ClientError::Call(error)) => return Err(error),
        Err(other) => return Err(malformed(reply.broker(), other.to_string())),
    };
    if answer.error_code == ErrorCode::REBOOTSTRAP_REQUIRED {
        inner.cluster.borrow_mut().forget_brokers();
        inner.cluster_changed();
        return Err(CallError::Connect {
            to: "the cluster".into(),
            why: "the broker asks to begin again at bootstrap.servers".into(),
            advice: "".into(),
        });
    }
    if answer.error_code.is_error() {
        return Err(malformed(reply.broker(), format!("it refuses: {}", answer.error_code)));
    }
    {
        let mut cluster = inner.cluster.borrow_mut();
        cluster.apply(&answer, asked);
        // Whoever asks for one by name would ask without end for what an answer about all cannot hold.
        names.iter().filter(|_| asked == Asked::All).for_each(|name| cluster.miss(name));
    }
    inner.cluster_changed();
    // Java's InvalidMetadataException.
    let lacking = answer.topics.iter().any(|topic| metadata_is_stale(topic.error_code));
    Ok(if lacking { Told::Lacking } else { Told::All })
}

fn malformed(broker: &str, why: String) -> CallError {
    CallError::Malformed { broker: broker.into(), api: "Metadata", why: why.into() }
}
