//! Settings of topics, brokers and groups: described with where they come from, changed one by one.
//!
//! Shell. Owns these calls and their values. Does not own what settings mean: that is the broker's. Source: KIP-133, KIP-226
//! (sources and synonyms), KIP-339 (single changes), KIP-569 (types, documentation), KIP-1142 (what has settings).

use serde::Serialize;

use super::{ItemError, Session, owned};
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::admin::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribedConfig, ListConfigResourcesRequest,
};
use crate::protocol::operator::{self, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResource};
use crate::types::BrokerId;

/// What kind of thing has settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceType {
    /// A topic, by name.
    Topic,
    /// A broker, by id; the empty name is the default of all brokers.
    Broker,
    /// The log levels of a broker, by id.
    BrokerLogger,
    /// A subscription to clients' metrics.
    ClientMetrics,
    /// A group, by id.
    Group,
}

impl ResourceType {
    const ALL: [Self; 5] = [Self::Topic, Self::Broker, Self::BrokerLogger, Self::ClientMetrics, Self::Group];

    const fn wire(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::BrokerLogger => 8,
            Self::ClientMetrics => 16,
            Self::Group => 32,
        }
    }

    fn from_wire(number: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.wire() == number)
    }

    /// As Kafka's tools write it in the plural's singular: `topic`, `broker`, `broker-logger`, `client-metrics`, `group`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Broker => "broker",
            Self::BrokerLogger => "broker-logger",
            Self::ClientMetrics => "client-metrics",
            Self::Group => "group",
        }
    }
}

/// One thing that has settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ConfigResource {
    /// What it is.
    pub kind: ResourceType,
    /// Which.
    pub name: String,
}

impl ConfigResource {
    /// A topic.
    pub fn topic(name: impl Into<String>) -> Self {
        Self { kind: ResourceType::Topic, name: name.into() }
    }

    /// A broker.
    pub fn broker(id: i32) -> Self {
        Self { kind: ResourceType::Broker, name: id.to_string() }
    }

    /// The default of all brokers.
    pub fn all_brokers() -> Self {
        Self { kind: ResourceType::Broker, name: String::new() }
    }

    /// A group.
    pub fn group(id: impl Into<String>) -> Self {
        Self { kind: ResourceType::Group, name: id.into() }
    }

    /// Settings of one broker are asked from it; all others from anybody.
    fn target(&self) -> Target {
        match self.kind {
            ResourceType::Broker | ResourceType::BrokerLogger => {
                self.name.parse().ok().and_then(BrokerId::new).map_or(Target::Any, Target::Broker)
            }
            _ => Target::Any,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSource {
    /// The broker does not say.
    Unknown,
    /// The topic's own override.
    DynamicTopic,
    /// Changed on this broker while it ran.
    DynamicBroker,
    /// Changed for all brokers while they ran.
    DynamicDefaultBroker,
    /// The broker's settings file.
    StaticBroker,
    /// Built in.
    Default,
    /// A log level changed on this broker.
    DynamicBrokerLogger,
    /// A subscription's own.
    DynamicClientMetrics,
    /// The group's own.
    DynamicGroup,
}

impl ConfigSource {
    /// From the wire.
    pub(super) fn from_number(number: i8) -> Self {
        match number {
            1 => Self::DynamicTopic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicDefaultBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::DynamicBrokerLogger,
            7 => Self::DynamicClientMetrics,
            8 => Self::DynamicGroup,
            _ => Self::Unknown,
        }
    }

    /// As Kafka's tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
            Self::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Self::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Self::StaticBroker => "STATIC_BROKER_CONFIG",
            Self::Default => "DEFAULT_CONFIG",
            Self::DynamicBrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            Self::DynamicClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            Self::DynamicGroup => "DYNAMIC_GROUP_CONFIG",
        }
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// `None` when unset, or never shown.
    pub value: Option<String>,
    /// Whether it can only be changed in the settings file.
    pub read_only: bool,
    /// Whether its value is never shown.
    pub sensitive: bool,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Kafka's word for its type; `None` where the broker does not tell.
    pub kind: Option<&'static str>,
    /// Where else a value could come from, the strongest first.
    pub synonyms: Vec<ConfigSynonym>,
    /// What it does, in the broker's words.
    pub documentation: Option<String>,
}

/// Where else a value could come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigSynonym {
    /// The key there.
    pub name: String,
    /// Its value there.
    pub value: Option<String>,
    /// Where that is.
    pub source: ConfigSource,
}

/// The settings of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceConfigs {
    /// Whose.
    pub resource: ConfigResource,
    /// By name.
    pub configs: Vec<ConfigEntry>,
    /// Why they are not known.
    pub error: Option<ItemError>,
}

/// What to do with one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Gives it that value.
    Set,
    /// Gives it back its default.
    Delete,
    /// Adds to a list.
    Append,
    /// Takes from a list.
    Subtract,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Which setting.
    pub name: String,
    /// What to do.
    pub operation: ConfigOperation,
    /// With what; not for [`ConfigOperation::Delete`].
    pub value: Option<String>,
}

impl ConfigChange {
    /// Gives it that value.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), operation: ConfigOperation::Set, value: Some(value.into()) }
    }

    /// Gives it back its default.
    pub fn delete(name: impl Into<String>) -> Self {
        Self { name: name.into(), operation: ConfigOperation::Delete, value: None }
    }
}

/// What became of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceOutcome {
    /// Which.
    pub resource: ConfigResource,
    /// Why nothing was changed.
    pub error: Option<ItemError>,
}

const KINDS: [&str; 10] =
    ["unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password"];

fn entry(config: &DescribedConfig<'_>) -> ConfigEntry {
    ConfigEntry {
        name: config.name.to_string(),
        value: owned(&config.value),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
        source: ConfigSource::from_number(config.config_source),
        kind: usize::try_from(config.config_type)
            .ok()
            .filter(|kind| *kind > 0)
            .and_then(|kind| KINDS.get(kind).copied()),
        synonyms: config
            .synonyms
            .iter()
            .map(|one| ConfigSynonym {
                name: one.name.to_string(),
                value: owned(&one.value),
                source: ConfigSource::from_number(one.source),
            })
            .collect(),
        documentation: owned(&config.documentation),
    }
}

/// Which of the resources go together in one request: all that anybody answers, and each broker's own.
fn split<T>(items: Vec<T>, target: impl Fn(&T) -> Target) -> Vec<(Target, Vec<(usize, T)>)> {
    let mut requests: Vec<(Target, Vec<(usize, T)>)> = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let target = target(&item);
        match requests.iter_mut().find(|(known, _)| *known == target) {
            Some((_, items)) => items.push((at, item)),
            None => requests.push((target, vec![(at, item)])),
        }
    }
    requests
}

/// Makes sure that brokers named by the caller exist before their address is asked for.
async fn brokers_known(session: &Session, target: Target) -> Result<(), ClientError> {
    if let Target::Broker(id) = target {
        session.network.metadata_for(&[], session.left()).await?;
        if session.network.cluster().broker(id).is_none() {
            return Err(ClientError::Misuse(format!("there is no broker {id} in the cluster").into()));
        }
    }
    Ok(())
}

pub(super) async fn describe_configs(
    session: Session,
    resources: Vec<ConfigResource>,
    keys: Option<Vec<String>>,
) -> Result<Vec<ResourceConfigs>, ClientError> {
    let what = "describing settings";
    let mut described: Vec<(usize, ResourceConfigs)> = Vec::new();
    for (target, asked) in split(resources, ConfigResource::target) {
        let keys = || keys.as_ref().map(|keys| keys.iter().map(|key| key.as_str().into()).collect());
        let request = DescribeConfigsRequest {
            resources: asked
                .iter()
                .map(|(_, resource)| DescribeConfigsResource {
                    resource_type: resource.kind.wire(),
                    resource_name: resource.name.as_str().into(),
                    configuration_keys: keys(),
                })
                .collect(),
            include_synonyms: true,
            include_documentation: true,
        };
        let answered = session
            .retrying(what, async || {
                brokers_known(&session, target).await?;
                let reply = session.ask(target, &request).await?;
                let answer = reply.read::<DescribeConfigsRequest<'_>>()?;
                let one = |(at, resource): &(usize, ConfigResource)| {
                    let found = answer.results.iter().find(|result| {
                        result.resource_type == resource.kind.wire() && *result.resource_name == *resource.name
                    });
                    let (configs, error) = match found {
                        Some(found) => (
                            found.configs.iter().map(entry).collect(),
                            ItemError::of(found.error_code, found.error_message.as_deref()),
                        ),
                        None => (Vec::new(), Some(missing())),
                    };
                    let mut configs: Vec<ConfigEntry> = configs;
                    configs.sort_by(|a, b| a.name.cmp(&b.name));
                    (*at, ResourceConfigs { resource: resource.clone(), configs, error })
                };
                Ok(asked.iter().map(one).collect::<Vec<_>>())
            })
            .await?;
        described.extend(answered);
    }
    described.sort_by_key(|(at, _)| *at);
    Ok(described.into_iter().map(|(_, one)| one).collect())
}

fn missing() -> ItemError {
    ItemError::new(crate::protocol::ErrorCode::UNKNOWN_SERVER_ERROR, Some("the broker's answer leaves it out"))
}

pub(super) async fn alter_configs(
    session: Session,
    changes: Vec<(ConfigResource, Vec<ConfigChange>)>,
    validate_only: bool,
) -> Result<Vec<ResourceOutcome>, ClientError> {
    let what = "changing settings";
    let mut changed: Vec<(usize, ResourceOutcome)> = Vec::new();
    for (target, asked) in split(changes, |(resource, _)| resource.target()) {
        let change = |change: &ConfigChange| operator::ConfigChange {
            name: change.name.clone().into(),
            config_operation: match change.operation {
                ConfigOperation::Set => 0,
                ConfigOperation::Delete => 1,
                ConfigOperation::Append => 2,
                ConfigOperation::Subtract => 3,
            },
            value: change.value.clone().map(Into::into),
        };
        let request = IncrementalAlterConfigsRequest {
            resources: asked
                .iter()
                .map(|(_, (resource, changes))| IncrementalAlterConfigsResource {
                    resource_type: resource.kind.wire(),
                    resource_name: resource.name.as_str().into(),
                    configs: changes.iter().map(change).collect(),
                })
                .collect(),
            validate_only,
        };
        let answered = session
            .retrying(what, async || {
                brokers_known(&session, target).await?;
                let reply = session.ask(target, &request).await?;
                let answer = reply.read::<IncrementalAlterConfigsRequest<'_>>()?;
                super::topics::not_controller(&session, what, answer.responses.iter().map(|one| one.error_code))?;
                let one = |(at, (resource, _)): &(usize, (ConfigResource, Vec<ConfigChange>))| {
                    let found = answer.responses.iter().find(|result| {
                        result.resource_type == resource.kind.wire() && *result.resource_name == *resource.name
                    });
                    let error = match found {
                        Some(found) => ItemError::of(found.error_code, found.error_message.as_deref()),
                        None => Some(missing()),
                    };
                    (*at, ResourceOutcome { resource: resource.clone(), error })
                };
                Ok(asked.iter().map(one).collect::<Vec<_>>())
            })
            .await?;
        changed.extend(answered);
    }
    changed.sort_by_key(|(at, _)| *at);
    Ok(changed.into_iter().map(|(_, one)| one).collect())
}

pub(super) async fn list_config_resources(
    session: Session,
    types: Vec<ResourceType>,
) -> Result<Vec<ConfigResource>, ClientError> {
    let what = "listing what has settings";
    let request = ListConfigResourcesRequest { resource_types: types.iter().map(|kind| kind.wire()).collect() };
    session
        .retrying(what, async || {
            let reply = session.ask(Target::Any, &request).await?;
            let answer = reply.read::<ListConfigResourcesRequest>()?;
            if answer.error_code.is_error() {
                return Err(session.refused(what, answer.error_code, None));
            }
            let known = answer.config_resources.iter().filter_map(|one| {
                let kind = ResourceType::from_wire(one.resource_type)?;
                Some(ConfigResource { kind, name: one.resource_name.to_string() })
            });
            let mut resources: Vec<_> = known.collect();
            resources.sort();
            Ok(resources)
        })
        .await
}
