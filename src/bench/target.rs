//! The cluster under test: its topic made ready, its settings and offsets asked for.
//!
//! Shell; lives on a client thread. Owns the few administrative calls a run needs. Does not own what is measured. Always
//! true: an error names the broker or topic and what to do; a topic of the user's is never deleted, one made for a run is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ack_class::Described;
use super::plan::{Plan, TopicPlan};
use crate::client::network::{Network, Target};
use crate::client::{AdminSettings, ClientError, ClientSettings, Settings as _};
use crate::config::client_rows::ClientRole;
use crate::protocol::ErrorCode;
use crate::protocol::admin::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, DeleteTopic, DeleteTopicsRequest,
    DescribeConfigsRequest, DescribeConfigsResource, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use crate::types::{BrokerId, PartitionIndex};

/// How long one administrative call may take: creating a thousand partitions takes Kafka seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the first answer may take: long enough for a broker that is just starting, short enough for a mistyped address.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long is waited before a leader that was not ready is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a new topic may take to have leaders everywhere.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The plan contradicts itself, or a setting is wrong.
    #[error("{0}")]
    Plan(String),
    /// Ctrl-C came before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// The cluster could not be reached, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The topic cannot be used.
    #[error("topic {topic}: {why}")]
    Topic {
        /// Which.
        topic: String,
        /// Why, and what to do.
        why: String,
    },
    /// A broker refused a fetch.
    #[error("topic {topic}: {}{}", partition.map(|partition| format!("partition {partition}: ")).unwrap_or_default(), code.sentence())]
    Refused {
        /// Which.
        topic: String,
        /// Its partition; `None` for the fetch as a whole.
        partition: Option<i32>,
        /// Kafka's code.
        code: ErrorCode,
    },
    /// What lies in the topic is no batch, and nothing tells where the next one begins.
    #[error("topic {topic}: partition {partition} cannot be read from offset {offset} on: {why}")]
    Unreadable {
        /// Which.
        topic: String,
        /// Its partition.
        partition: u32,
        /// The first offset that was not read.
        offset: i64,
        /// What was found instead.
        why: String,
    },
    /// This host refused something.
    #[error("{what}: {source}")]
    Host {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A generator thread came to an end it should not.
    #[error("a generator thread failed; run again with one producer to see why")]
    Generator,
}

impl BenchError {
    /// Whether the same may succeed later, at whoever leads then.
    pub(crate) fn retriable(&self) -> bool {
        match self {
            Self::Client(error) => error.retriable(),
            Self::Refused { code, .. } => code.retriable(),
            _ => false,
        }
    }
}

impl From<crate::client::CallError> for BenchError {
    fn from(error: crate::client::CallError) -> Self {
        Self::Client(error.into())
    }
}

/// The topic, ready for use.
#[derive(Clone, Debug)]
pub struct ReadyTopic {
    /// Its name.
    pub name: String,
    /// Made for this run: to be deleted.
    pub own: bool,
    /// Who leads each partition.
    pub leaders: Vec<BrokerId>,
    /// Replicas of a partition.
    pub replicas: u32,
}

/// Settings for the connections of the tool itself.
pub(crate) fn client_settings(plan: &Plan) -> Result<ClientSettings, BenchError> {
    let mut builder = AdminSettings::builder();
    for (name, value) in plan.client_words(ClientRole::Admin) {
        builder = builder.set_at(&name, value, "command line");
    }
    Ok(builder.build()?.client)
}

/// A network to the plan's cluster, with what it says of itself.
pub(crate) struct Cluster {
    pub(crate) network: Network,
}

impl Cluster {
    /// Connects. Must be called on a client thread.
    pub(crate) async fn connect(settings: ClientSettings) -> Result<Self, BenchError> {
        let network = Network::new(settings);
        network.refresh(REACH_TIMEOUT).await?;
        Ok(Self { network })
    }

    /// How many brokers there are, and a fingerprint of what they speak.
    pub(crate) async fn identity(&self) -> Result<(u32, String), BenchError> {
        let versions = self.network.versions(Target::Any, CALL_TIMEOUT).await?;
        let mut sum = 0;
        for (key, range) in versions.served() {
            for number in [*key, *range.start(), *range.end()] {
                sum = crc32c::crc32c_append(sum, &number.to_be_bytes());
            }
        }
        let brokers = u32::try_from(self.network.cluster().brokers().len()).unwrap_or(u32::MAX);
        Ok((brokers, format!("{:08x}/{}", sum, versions.served().len())))
    }

    /// The topic of the plan, made where it is not there.
    pub(crate) async fn ready_topic(&self, plan: &Plan, own_name: &str) -> Result<ReadyTopic, BenchError> {
        let (name, own) = match &plan.topic {
            TopicPlan::Named(name) => (name.as_str(), false),
            TopicPlan::Own => (own_name, true),
        };
        // One answer tells whether it is there; to wait for a topic that nobody has made yet would take all of the time-out.
        self.network.metadata_for(&[name], CALL_TIMEOUT).await?;
        let known = !self.is_unknown(name);
        if known {
            self.network.topic_ready(name, CALL_TIMEOUT).await?;
        }
        if !known {
            if !plan.kind.produces() && !own {
                let why = "there is no such topic, and there is nothing to read in a new one; run `ringlog bench produce` on it first".to_owned();
                return Err(BenchError::Topic { topic: name.to_owned(), why });
            }
            self.create(name, plan).await?;
        }
        let end = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let ready = known || self.network.topic_ready(name, CALL_TIMEOUT).await.is_ok();
            if let Some(topic) = self.leaders(name).filter(|_| ready) {
                return Ok(ReadyTopic { own, ..topic });
            }
            if tokio::time::Instant::now() > end {
                let why = format!(
                    "has partitions without a leader after {} s; look at the brokers' logs",
                    READY_TIMEOUT.as_secs()
                );
                return Err(BenchError::Topic { topic: name.to_owned(), why });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.network.invalidate(name);
        }
    }

    fn is_unknown(&self, name: &str) -> bool {
        let cluster = self.network.cluster();
        cluster.topic(name).is_none_or(|topic| topic.error == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION))
    }

    fn leaders(&self, name: &str) -> Option<ReadyTopic> {
        let cluster = self.network.cluster();
        let topic = cluster.topic(name).filter(|topic| topic.error.is_none() && !topic.partitions.is_empty())?;
        let leaders: Option<Vec<BrokerId>> = topic.partitions.iter().map(|partition| partition.leader).collect();
        let replicas = topic.partitions.first().map_or(1, |partition| partition.replicas.len());
        Some(ReadyTopic {
            name: name.to_owned(),
            own: false,
            leaders: leaders?,
            replicas: u32::try_from(replicas).unwrap_or(1),
        })
    }

    async fn create(&self, name: &str, plan: &Plan) -> Result<(), BenchError> {
        let configs = plan.topic_settings.iter().map(|(name, value)| CreatableTopicConfig {
            name: name.as_str().into(),
            value: Some(value.as_str().into()),
        });
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: i32::try_from(plan.partitions).unwrap_or(i32::MAX),
            replication_factor: plan.replication,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: timeout_ms(), validate_only: false };
        let reply = self.network.call(Target::Controller, &request, CALL_TIMEOUT).await?;
        let response = reply.read::<CreateTopicsRequest<'_>>()?;
        for result in &response.topics {
            if result.error_code != ErrorCode::NONE && result.error_code != ErrorCode::TOPIC_ALREADY_EXISTS {
                let said = result
                    .error_message
                    .as_ref()
                    .map_or_else(|| result.error_code.sentence().to_owned(), ToString::to_string);
                return Err(BenchError::Topic { topic: name.to_owned(), why: format!("could not be made: {said}") });
            }
        }
        self.network.invalidate(name);
        Ok(())
    }

    /// Deletes a topic that was made for the run.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), BenchError> {
        let version =
            self.network.versions(Target::Any, CALL_TIMEOUT).await?.pick(crate::protocol::ApiKey::DeleteTopics);
        let by_state = version.is_some_and(|version| version >= 6);
        let request = DeleteTopicsRequest {
            topics: if by_state {
                vec![DeleteTopic { name: Some(name.into()), ..Default::default() }]
            } else {
                Vec::new()
            },
            topic_names: if by_state { Vec::new() } else { vec![name.into()] },
            timeout_ms: timeout_ms(),
        };
        let reply = self.network.call(Target::Controller, &request, CALL_TIMEOUT).await?;
        reply.read::<DeleteTopicsRequest<'_>>()?;
        Ok(())
    }

    /// Settings of a broker (by id) and of a topic; empty where the broker does not tell.
    pub(crate) async fn settings(&self, topic: Option<&str>) -> (Described, Described) {
        const TOPIC: i8 = 2;
        const BROKER: i8 = 4;
        let broker = self.network.cluster().brokers().next().map(|broker| broker.id);
        let of_broker = match broker {
            Some(id) => self.described(Target::Broker(id), BROKER, &id.to_string()).await,
            None => Described::new(),
        };
        let of_topic = match topic {
            Some(topic) => self.described(Target::Any, TOPIC, topic).await,
            None => Described::new(),
        };
        (of_broker, of_topic)
    }

    async fn described(&self, whom: Target, kind: i8, name: &str) -> Described {
        let resource =
            DescribeConfigsResource { resource_type: kind, resource_name: name.into(), configuration_keys: None };
        let request =
            DescribeConfigsRequest { resources: vec![resource], include_synonyms: false, include_documentation: false };
        // A broker that refuses to tell is measured all the same; its class is then called unknown.
        let Ok(reply) = self.network.call(whom, &request, CALL_TIMEOUT).await else { return Described::new() };
        let Ok(response) = reply.read::<DescribeConfigsRequest<'_>>() else { return Described::new() };
        let configs = response.results.iter().flat_map(|result| &result.configs);
        configs.filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string()))).collect()
    }

    /// The offset of each partition at `timestamp` (−1: the end, −2: the start). A leader that is named in the metadata may not
    /// know of it yet: Kafka answers so for some hundred milliseconds after a topic was made, and is asked again.
    pub(crate) async fn offsets(&self, topic: &ReadyTopic, timestamp: i64) -> Result<Vec<i64>, BenchError> {
        let end = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            match self.offsets_now(topic, timestamp).await? {
                Ok(offsets) => return Ok(offsets),
                Err((partition, code)) if !code.retriable() || tokio::time::Instant::now() > end => {
                    let why = format!("partition {partition}: {}", code.sentence());
                    return Err(BenchError::Topic { topic: topic.name.clone(), why });
                }
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }

    /// The same without trying again: the offsets, or the first partition that has none and why.
    async fn offsets_now(
        &self,
        topic: &ReadyTopic,
        timestamp: i64,
    ) -> Result<Result<Vec<i64>, (i32, ErrorCode)>, BenchError> {
        let mut by_leader: BTreeMap<BrokerId, Vec<i32>> = BTreeMap::new();
        for (leader, partition) in topic.leaders.iter().zip(0..) {
            by_leader.entry(*leader).or_default().push(partition);
        }
        let mut offsets = vec![0; topic.leaders.len()];
        for (leader, partitions) in by_leader {
            let partitions = partitions.into_iter().map(|partition_index| ListOffsetsPartition {
                partition_index,
                timestamp,
                ..Default::default()
            });
            let asked = ListOffsetsTopic { name: topic.name.as_str().into(), partitions: partitions.collect() };
            let request = ListOffsetsRequest {
                replica_id: -1,
                topics: vec![asked],
                timeout_ms: timeout_ms(),
                ..Default::default()
            };
            let reply = self.network.call(Target::Broker(leader), &request, CALL_TIMEOUT).await?;
            let response = reply.read::<ListOffsetsRequest<'_>>()?;
            for answer in response.topics.iter().flat_map(|topic| &topic.partitions) {
                if answer.error_code != ErrorCode::NONE {
                    return Ok(Err((answer.partition_index, answer.error_code)));
                }
                if let Some(place) =
                    usize::try_from(answer.partition_index).ok().and_then(|index| offsets.get_mut(index))
                {
                    *place = answer.offset.max(0);
                }
            }
        }
        Ok(Ok(offsets))
    }
}

fn timeout_ms() -> i32 {
    i32::try_from(CALL_TIMEOUT.as_millis()).unwrap_or(i32::MAX)
}

/// The number of a partition that came as a plain index.
pub(crate) fn partition_index(index: usize) -> PartitionIndex {
    i32::try_from(index).ok().and_then(PartitionIndex::new).expect("topics have far fewer than 2^31 partitions")
}
