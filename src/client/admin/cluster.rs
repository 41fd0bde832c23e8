//! Who is there, what each broker serves, what lies on its disks.
//!
//! Shell. Owns these calls and their values. Source: KIP-700 (DescribeCluster), KIP-113 and KIP-827 (log directories).

use serde::Serialize;

use super::{ItemError, Session};
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::ApiKey;
use crate::protocol::admin::DescribeClusterRequest;
use crate::protocol::operator::{DescribableLogDirTopic, DescribeLogDirsRequest};
use crate::types::BrokerId;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterDescription {
    /// Its id; empty from very old brokers.
    pub cluster_id: String,
    /// Who changes it; `None` while nobody does.
    pub controller: Option<i32>,
    /// By id.
    pub brokers: Vec<BrokerDescription>,
}

/// One broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerDescription {
    /// Its id.
    pub id: i32,
    /// Where clients shall reach it.
    pub host: String,
    /// Where clients shall reach it.
    pub port: i32,
    /// Where it stands.
    pub rack: Option<String>,
    /// Registered, but not let in.
    pub fenced: bool,
}

/// What one broker serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerApis {
    /// Which broker.
    pub broker: i32,
    /// Its address, `host:port`.
    pub address: String,
    /// By rising key; empty with an error.
    pub apis: Vec<ApiRange>,
    /// Why nothing is known.
    pub error: Option<ItemError>,
}

/// One API of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApiRange {
    /// Kafka's number.
    pub key: i16,
    /// Kafka's name; `None` where this client does not know the API.
    pub name: Option<&'static str>,
    /// The lowest version.
    pub min: i16,
    /// The highest version.
    pub max: i16,
    /// The one this client would use; `None` where there is none in common.
    pub usable: Option<i16>,
}

/// The disks of one broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerLogDirs {
    /// Which broker.
    pub broker: i32,
    /// Its log directories.
    pub log_dirs: Vec<LogDir>,
    /// Why nothing is known.
    pub error: Option<ItemError>,
}

/// One log directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogDir {
    /// Its path on the broker.
    pub path: String,
    /// Of the volume; `None` where the broker does not tell.
    pub total_bytes: Option<i64>,
    /// Of the volume.
    pub usable_bytes: Option<i64>,
    /// What lies in it.
    pub partitions: Vec<LogDirPartition>,
    /// Why it cannot be used.
    pub error: Option<ItemError>,
}

/// One partition in a log directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogDirPartition {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// Bytes of its segments.
    pub size: i64,
    /// How far its log end is behind the high watermark.
    pub offset_lag: i64,
    /// On its way here from another directory.
    pub is_future: bool,
}

pub(super) async fn reach(session: Session) -> Result<(), ClientError> {
    session.network.versions(Target::Any, session.left()).await?;
    Ok(())
}

pub(super) async fn describe_cluster(session: Session) -> Result<ClusterDescription, ClientError> {
    let what = "describing the cluster";
    let request = DescribeClusterRequest { endpoint_type: 1, include_fenced_brokers: true, ..Default::default() };
    session
        .retrying(what, async || {
            let reply = session.ask(Target::Any, &request).await?;
            let answer = reply.read::<DescribeClusterRequest>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, answer.error_message.as_deref()));
            }
            let mut brokers: Vec<_> = answer
                .brokers
                .iter()
                .map(|one| BrokerDescription {
                    id: one.broker_id,
                    host: one.host.to_string(),
                    port: one.port,
                    rack: super::owned(&one.rack),
                    fenced: one.is_fenced,
                })
                .collect();
            brokers.sort_by_key(|broker| broker.id);
            let controller = (answer.controller_id >= 0).then_some(answer.controller_id);
            Ok(ClusterDescription { cluster_id: answer.cluster_id.to_string(), controller, brokers })
        })
        .await
}

/// The named brokers, or all.
async fn chosen(session: &Session, brokers: Vec<i32>) -> Result<Vec<BrokerId>, ClientError> {
    let all = session.retrying("asking for the brokers", async || session.broker_ids().await).await?;
    if brokers.is_empty() {
        return Ok(all);
    }
    let known = |id: i32| all.iter().copied().find(|one| one.value() == id);
    let unknown = |id: i32| {
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        ClientError::Misuse(
            format!("there is no broker {id} in the cluster: its brokers are {}", names.join(", ")).into(),
        )
    };
    brokers.into_iter().map(|id| known(id).ok_or_else(|| unknown(id))).collect()
}

pub(super) async fn api_versions(session: Session, brokers: Vec<i32>) -> Result<Vec<BrokerApis>, ClientError> {
    let mut described = Vec::new();
    for id in chosen(&session, brokers).await? {
        let address = session.network.cluster().broker(id).map(|one| format!("{}:{}", one.host, one.port));
        let asked = session
            .retrying("asking for versions", async || {
                Ok(session.network.versions(Target::Broker(id), session.left()).await?)
            })
            .await;
        let (apis, error) = match &asked {
            Ok(versions) => {
                let range = |(key, range): &(i16, std::ops::RangeInclusive<i16>)| {
                    let api = ApiKey::from_number(*key);
                    ApiRange {
                        key: *key,
                        name: api.map(ApiKey::name),
                        min: *range.start(),
                        max: *range.end(),
                        usable: api.and_then(|api| versions.pick(api)),
                    }
                };
                (versions.served().iter().map(range).collect(), None)
            }
            Err(error) => (Vec::new(), Some(error.into())),
        };
        described.push(BrokerApis { broker: id.value(), address: address.unwrap_or_default(), apis, error });
    }
    Ok(described)
}

pub(super) async fn describe_log_dirs(
    session: Session,
    brokers: Vec<i32>,
    topics: Option<Vec<String>>,
) -> Result<Vec<BrokerLogDirs>, ClientError> {
    // The request names partitions, too: those of a topic are known from its metadata.
    let mut asked = None;
    if let Some(names) = &topics {
        let described = super::topics::describe_topics(session.clone(), names.clone()).await?;
        if let Some((topic, error)) = described.iter().find_map(|one| Some((&one.name, one.error.as_ref()?))) {
            return Err(ClientError::broker(format_args!("topic {topic}"), error.code(), Some(&error.message)));
        }
        let partitions = |one: super::TopicDescription| {
            (one.name, one.partitions.iter().map(|partition| partition.partition).collect::<Vec<_>>())
        };
        asked = Some(described.into_iter().map(partitions).collect::<Vec<_>>());
    }
    let topic = |(name, partitions): &(String, Vec<i32>)| DescribableLogDirTopic {
        topic: name.clone().into(),
        partitions: partitions.clone(),
    };
    let request = DescribeLogDirsRequest { topics: asked.as_ref().map(|topics| topics.iter().map(topic).collect()) };
    let mut described = Vec::new();
    for id in chosen(&session, brokers).await? {
        let what = format!("asking broker {id} for its log directories");
        let answered = session
            .retrying(&what, async || {
                let reply = session.ask(Target::Broker(id), &request).await?;
                let answer = reply.read::<DescribeLogDirsRequest<'_>>()?;
                if answer.error_code.is_error() {
                    return Err(session.refused(&what, answer.error_code, None));
                }
                let dirs = answer.results.iter().map(|dir| LogDir {
                    path: dir.log_dir.to_string(),
                    total_bytes: (dir.total_bytes >= 0).then_some(dir.total_bytes),
                    usable_bytes: (dir.usable_bytes >= 0).then_some(dir.usable_bytes),
                    partitions: dir
                        .topics
                        .iter()
                        .flat_map(|topic| {
                            topic.partitions.iter().map(|one| LogDirPartition {
                                topic: topic.name.to_string(),
                                partition: one.partition_index,
                                size: one.partition_size,
                                offset_lag: one.offset_lag,
                                is_future: one.is_future_key,
                            })
                        })
                        .collect(),
                    error: ItemError::of(dir.error_code, None),
                });
                Ok(dirs.collect())
            })
            .await;
        let (log_dirs, error) = match answered {
            Ok(dirs) => (dirs, None),
            Err(error) => (Vec::new(), Some((&error).into())),
        };
        described.push(BrokerLogDirs { broker: id.value(), log_dirs, error });
    }
    Ok(described)
}
