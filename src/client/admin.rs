//! The admin client: what operators ask of a cluster and change in it.
//!
//! Shell. Owns the faces ([`Admin`], awaited from any runtime, and [`BlockingAdmin`]), the time a call may take, and its retries. What
//! is asked and how answers become plain values is in the siblings. Always: a call ends within its time; what fails for one item
//! of several is told with that item (an [`ItemError`]), what fails for all is the call's error. Source: Kafka's `Admin`
//! interface, whose names the calls have.

mod acls;
mod cluster;
mod configs;
mod groups;
mod partitions;
mod placement;
mod topics;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::error::{CallError, ClientError, metadata_is_stale};
use super::io::Io;
use super::network::{Network, Reply, Target};
use super::settings::{AdminSettings, LONGEST};
use crate::protocol::{ErrorCode, Request};

pub use acls::AclBinding;
pub use cluster::{
    ApiRange, BrokerApis, BrokerDescription, BrokerLogDirs, ClusterDescription, LogDir, LogDirPartition,
};
pub use configs::{
    ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource, ConfigSynonym, ResourceConfigs,
    ResourceOutcome, ResourceType,
};
pub use groups::{
    CommittedOffset, GroupDescription, GroupListing, GroupMember, GroupOutcome, LeaverOutcome, NewCommittedOffset,
    PartitionOutcome,
};
pub use partitions::{ActiveProducer, DeletedRecords, ListedOffset, OffsetSpec, PartitionProducers, RecordsBefore};
pub use placement::{Election, Reassignment, ReassignmentPlan};
pub use topics::{
    CreatedTopic, NewPartitions, NewTopic, PartitionDescription, TopicDescription, TopicListing, TopicOutcome,
};

/// Why one item of a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message} [{name} ({code})]")]
pub struct ItemError {
    /// Kafka's number. 13 (NETWORK_EXCEPTION) when the broker could not be reached at all.
    pub code: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// The broker's words, or ours.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retriable: bool,
}

impl ItemError {
    fn new(code: ErrorCode, message: Option<&str>) -> Self {
        let message = message.filter(|message| !message.is_empty()).unwrap_or(code.sentence());
        Self {
            code: code.0,
            name: code.name(),
            message: message.trim_end_matches('.').to_owned(),
            retriable: code.retriable(),
        }
    }

    /// `None` for [`ErrorCode::NONE`].
    fn of(code: ErrorCode, message: Option<&str>) -> Option<Self> {
        code.is_error().then(|| Self::new(code, message))
    }

    fn code(&self) -> ErrorCode {
        ErrorCode(self.code)
    }
}

impl From<&ClientError> for ItemError {
    fn from(error: &ClientError) -> Self {
        let code = match error {
            ClientError::Call(CallError::UnsupportedVersion { .. }) => ErrorCode::UNSUPPORTED_VERSION,
            ClientError::Call(call) if call.retriable() => ErrorCode::NETWORK_EXCEPTION,
            _ => error.code().unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        Self { code: code.0, name: code.name(), message: error.to_string(), retriable: error.retriable() }
    }
}

/// One call at work on the client's thread.
type Job = Box<dyn FnOnce(Network) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Asks and changes a cluster; futures can be awaited on any runtime. Clones share connections, which close with the last of them.
#[derive(Clone, Debug)]
pub struct Admin {
    calls: mpsc::UnboundedSender<Job>,
    timeout: Duration,
    retries: u32,
    /// The thread lives as long as its clients.
    io: Io,
}

impl Admin {
    /// With a thread of its own. Errors: the system has none left.
    pub fn new(settings: AdminSettings) -> Result<Self, ClientError> {
        let io = Io::start("admin").map_err(|error| {
            ClientError::Misuse(format!("the client's thread could not be started: {error}").into())
        })?;
        Ok(Self::on(&io, settings))
    }

    /// On a thread shared with other clients. Connects to nobody before the first call.
    pub fn on(io: &Io, settings: AdminSettings) -> Self {
        // Each entry is a call somebody waits for: callers bound it.
        let (calls, mut inbox) = mpsc::unbounded_channel::<Job>();
        let AdminSettings { client, default_api_timeout: timeout, retries } = settings;
        io.spawn(move || async move {
            let network = Network::new(client);
            while let Some(call) = inbox.recv().await {
                spawn_local(call(network.clone()));
            }
        });
        Self { calls, timeout: timeout.min(LONGEST), retries, io: io.clone() }
    }

    /// The same client, whose calls may take that long instead of `default.api.timeout.ms`.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout: timeout.min(LONGEST), ..self.clone() }
    }

    /// The same client for callers without a runtime.
    pub fn blocking(&self) -> BlockingAdmin {
        BlockingAdmin(self.clone())
    }

    /// The thread it lives on.
    pub fn io(&self) -> &Io {
        &self.io
    }

    fn begin<F, Fut, T>(&self, call: F) -> oneshot::Receiver<Result<T, ClientError>>
    where
        F: FnOnce(Session) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, ClientError>> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let (timeout, retries) = (self.timeout, self.retries);
        // When the thread has ended the sender is dropped with the job, and the caller sees `Closed`.
        _ = self.calls.send(Box::new(move |network| {
            let session = Session { network, begun: Instant::now(), timeout, retries };
            Box::pin(async move {
                // Nobody waits any more: the value is of no use.
                _ = sender.send(call(session).await);
            })
        }));
        receiver
    }
}

/// [`Admin`] for callers without a runtime: each call waits on its thread. Must not be called from a task of a runtime: it panics.
#[derive(Clone, Debug)]
pub struct BlockingAdmin(Admin);

impl BlockingAdmin {
    /// The same client, whose calls may take that long instead of `default.api.timeout.ms`.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self(self.0.within(timeout))
    }
}

/// Defines each call with both faces.
macro_rules! calls {
    ($($(#[$about:meta])* $call:path as $name:ident($($argument:ident: $type:ty),*) -> $value:ty;)*) => {
        impl Admin {
            $(
                $(#[$about])*
                pub async fn $name(&self $(, $argument: $type)*) -> Result<$value, ClientError> {
                    let answer = self.begin(move |session| $call(session $(, $argument)*));
                    answer.await.unwrap_or(Err(ClientError::Closed))
                }
            )*
        }

        impl BlockingAdmin {
            $(
                $(#[$about])*
                pub fn $name(&self $(, $argument: $type)*) -> Result<$value, ClientError> {
                    let answer = self.0.begin(move |session| $call(session $(, $argument)*));
                    answer.blocking_recv().unwrap_or(Err(ClientError::Closed))
                }
            )*
        }
    };
}

calls! {
    /// Connects to any broker, without trying twice: whether somebody is there, and if not why.
    cluster::reach as reach() -> ();
    /// The brokers, the controller and the cluster's id.
    cluster::describe_cluster as describe_cluster() -> ClusterDescription;
    /// Which APIs in which versions each broker serves; of all brokers when none is named.
    cluster::api_versions as api_versions(brokers: Vec<i32>) -> Vec<BrokerApis>;
    /// What lies on the disks of those brokers (all when none is named), of those topics (all when `None`).
    cluster::describe_log_dirs as describe_log_dirs(brokers: Vec<i32>, topics: Option<Vec<String>>) -> Vec<BrokerLogDirs>;

    /// Every access rule. Where the broker has none to give, it refuses with SECURITY_DISABLED.
    acls::describe_acls as describe_acls() -> Vec<AclBinding>;

    /// Every topic, by name; the cluster's own only if `internal`.
    topics::list_topics as list_topics(internal: bool) -> Vec<TopicListing>;
    /// Those topics with their partitions, in the order given; of all when none is named.
    topics::describe_topics as describe_topics(names: Vec<String>) -> Vec<TopicDescription>;
    /// Creates topics, or only checks whether that would work.
    topics::create_topics as create_topics(topics: Vec<NewTopic>, validate_only: bool) -> Vec<CreatedTopic>;
    /// Deletes topics with everything in them.
    topics::delete_topics as delete_topics(names: Vec<String>) -> Vec<TopicOutcome>;
    /// Adds partitions, or only checks whether that would work. Keys then go to other partitions than before.
    topics::create_partitions as create_partitions(topics: Vec<NewPartitions>, validate_only: bool) -> Vec<TopicOutcome>;

    /// Settings with where they come from; of each resource those keys, or all when `None`.
    configs::describe_configs as describe_configs(resources: Vec<ConfigResource>, keys: Option<Vec<String>>) -> Vec<ResourceConfigs>;
    /// Changes single settings; all or nothing for each resource. Or only checks whether that would work.
    configs::alter_configs as alter_configs(changes: Vec<(ConfigResource, Vec<ConfigChange>)>, validate_only: bool) -> Vec<ResourceOutcome>;
    /// What has settings; of all types when none is named.
    configs::list_config_resources as list_config_resources(types: Vec<ResourceType>) -> Vec<ConfigResource>;

    /// Offsets by time, or the ends of partitions; `read_committed` bounds them by the last stable offset.
    partitions::list_offsets as list_offsets(partitions: Vec<(String, i32, OffsetSpec)>, read_committed: bool) -> Vec<ListedOffset>;
    /// Deletes records from the front of partitions.
    partitions::delete_records as delete_records(partitions: Vec<(String, i32, RecordsBefore)>) -> Vec<DeletedRecords>;
    /// The producers each partition knows.
    partitions::describe_producers as describe_producers(partitions: Vec<(String, i32)>) -> Vec<PartitionProducers>;

    /// Elects leaders; of all partitions when `None`.
    placement::elect_leaders as elect_leaders(election: Election, partitions: Option<Vec<(String, i32)>>) -> Vec<PartitionOutcome>;
    /// Moves partitions to other brokers, or calls a move off.
    placement::alter_reassignments as alter_reassignments(plans: Vec<ReassignmentPlan>) -> Vec<PartitionOutcome>;
    /// The moves that are under way; of all partitions when `None`.
    placement::list_reassignments as list_reassignments(partitions: Option<Vec<(String, i32)>>) -> Vec<Reassignment>;

    /// All groups, by name; only those in one of the states and of one of the types, where any are named.
    groups::list_groups as list_groups(states: Vec<String>, types: Vec<String>) -> Vec<GroupListing>;
    /// The broker that coordinates a group, whether the group exists or not.
    groups::find_coordinator as find_coordinator(group: String) -> i32;
    /// Groups with their members, in the order given.
    groups::describe_groups as describe_groups(groups: Vec<String>) -> Vec<GroupDescription>;
    /// Deletes groups that have no members, and their offsets.
    groups::delete_groups as delete_groups(groups: Vec<String>) -> Vec<GroupOutcome>;
    /// What a group has committed; of all partitions it ever did when `None`.
    groups::list_group_offsets as list_group_offsets(group: String, partitions: Option<Vec<(String, i32)>>) -> Vec<CommittedOffset>;
    /// Sets committed offsets of a group without members.
    groups::alter_group_offsets as alter_group_offsets(group: String, offsets: Vec<NewCommittedOffset>) -> Vec<PartitionOutcome>;
    /// Forgets committed offsets of topics no member is subscribed to.
    groups::delete_group_offsets as delete_group_offsets(group: String, partitions: Vec<(String, i32)>) -> Vec<PartitionOutcome>;
    /// Removes members from a group: by instance id (true) or by member id.
    groups::remove_members as remove_members(group: String, members: Vec<(String, bool)>) -> Vec<LeaverOutcome>;
}

/// One call: its clock, its retries.
#[derive(Clone)]
struct Session {
    network: Network,
    begun: Instant,
    timeout: Duration,
    retries: u32,
}

impl Session {
    fn end(&self) -> Instant {
        self.begun + self.timeout
    }

    fn left(&self) -> Duration {
        self.end().saturating_duration_since(Instant::now())
    }

    /// Time for one request, for its own field: the broker gives up before we do.
    fn left_ms(&self) -> i32 {
        i32::try_from(self.left().min(self.network.settings().request_timeout).as_millis()).unwrap_or(i32::MAX)
    }

    /// One attempt.
    async fn ask<'a, R>(&self, to: Target, request: &R) -> Result<Reply, ClientError>
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        Ok(self.network.call(to, request, self.left().min(self.network.settings().request_timeout)).await?)
    }

    /// Until an attempt succeeds, fails for good, or time or retries are used up.
    async fn retrying<T>(
        &self,
        what: &str,
        attempt: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut failures = 0;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failures += 1;
            if !error.retriable() || failures > self.retries {
                return Err(error);
            }
            self.pause(what, failures, error).await?;
        }
    }

    /// The wait before the next attempt. Errors: there is no time for one.
    async fn pause(&self, what: &str, failures: u32, last: ClientError) -> Result<(), ClientError> {
        let wait = self.network.retry_backoff(failures);
        if Instant::now() + wait >= self.end() {
            let last = match last {
                // It says the same, less clearly.
                ClientError::TimedOut { last: Some(inner), .. } => inner,
                other => Box::new(other),
            };
            return Err(ClientError::TimedOut { what: what.into(), after: self.timeout, last: Some(last) });
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// What a broker refused, as the call's error; what it knows of the cluster is asked for again where the code says so.
    fn refused(&self, what: &str, code: ErrorCode, message: Option<&str>) -> ClientError {
        if metadata_is_stale(code) {
            self.network.invalidate_brokers();
        }
        ClientError::broker(what, code, message)
    }

    /// The ids of all brokers.
    async fn broker_ids(&self) -> Result<Vec<crate::types::BrokerId>, ClientError> {
        self.network.refresh(self.left()).await?;
        Ok(self.network.cluster().brokers().map(|broker| broker.id).collect())
    }
}

/// Groups items by topic, in order of first appearance.
fn by_topic<T>(items: impl IntoIterator<Item = (String, T)>) -> Vec<(String, Vec<T>)> {
    let mut topics: Vec<(String, Vec<T>)> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for (topic, item) in items {
        let at = *places.entry(topic.clone()).or_insert_with(|| {
            topics.push((topic, Vec::new()));
            topics.len() - 1
        });
        if let Some((_, items)) = topics.get_mut(at) {
            items.push(item);
        }
    }
    topics
}

fn owned(text: &Option<crate::protocol::Str<'_>>) -> Option<String> {
    text.as_deref().map(str::to_owned)
}
