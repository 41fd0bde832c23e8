//! CreateTopics (19), DeleteTopics (20), DescribeConfigs (32), ListConfigResources (74).
//!
//! Shell. Owns the checks on the shape of a request (what is given twice, what is missing); the controller decides the rest
//! and answers when every shard has applied it. Source: KIP-4, KIP-133, KIP-525, KIP-569, KIP-599, KIP-1142; Kafka's `ControllerApis`,
//! `ConfigHelper`.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::Described;
use crate::controller::image::Image;
use crate::controller::{CommandError, CreatedTopic, NewTopic, TopicRef};
use crate::protocol::admin::{
    ConfigResource, ConfigSynonym, CreatableTopic, CreatableTopicResult, CreatableTopicResultConfig,
    CreateTopicsRequest, CreateTopicsResponse, DeletableTopicResult, DeleteTopic, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
    DescribeConfigsResult, DescribedConfig, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::server::connection::Context;
use crate::server::{errors, topics};
use crate::types::{TopicId, TopicName};

/// Kinds of resources that have settings.
pub(super) const TOPIC_RESOURCE: i8 = 2;
pub(super) const BROKER_RESOURCE: i8 = 4;

/// These are known, but have none here; so have groups.
const BROKER_LOGGER_RESOURCE: i8 = 8;
const CLIENT_METRICS_RESOURCE: i8 = 16;
const RESOURCE_KINDS: [i8; 5] = [TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, 32];

/// Before this version ListConfigResources lists client metrics alone.
const CONFIG_RESOURCE_TYPES_FROM: i16 = 1;

/// Before this version, clients do not know `TOPIC_DELETION_DISABLED`.
const DELETION_DISABLED_FROM: i16 = 3;

/// Up to this version topics to delete are listed by name.
const DELETE_NAMES_UP_TO: i16 = 5;

/// Answers CreateTopics.
pub(super) async fn create_topics<'a>(cx: &Context<'_>, request: CreateTopicsRequest<'a>) -> CreateTopicsResponse<'a> {
    let twice: HashSet<String> =
        topics::duplicates(request.topics.iter().map(|topic| &*topic.name)).into_iter().map(str::to_owned).collect();
    let (refused, wanted): (Vec<_>, Vec<_>) =
        request.topics.into_iter().partition(|topic| twice.contains(&*topic.name));
    let mut names_told = HashSet::new();
    let mut results: Vec<_> = refused
        .into_iter()
        .filter(|topic| names_told.insert(topic.name.to_string()))
        .map(|topic| create_refused(topic.name, ErrorCode::INVALID_REQUEST, "Duplicate topic name.".into()))
        .collect();
    let commands = wanted.iter().map(new_topic).collect();
    let outcomes = cx.server.shard().controller().create_topics(commands, request.validate_only).await;
    results.extend(wanted.into_iter().zip(outcomes).map(|(topic, outcome)| match outcome {
        Ok(created) => create_done(cx, topic.name, &created),
        Err(error) => create_refused(topic.name, errors::command(&error), error.to_string()),
    }));
    CreateTopicsResponse { topics: results, ..Default::default() }
}

fn new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    let assignment = topic.assignments.iter().map(|one| (one.partition_index, one.broker_ids.clone()));
    let config = |one: &crate::protocol::admin::CreatableTopicConfig<'_>| {
        (one.name.to_string(), one.value.as_ref().map(ToString::to_string))
    };
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignment: assignment.collect(),
        configs: topic.configs.iter().map(config).collect(),
    }
}

fn create_refused(name: Str<'_>, error_code: ErrorCode, message: String) -> CreatableTopicResult<'_> {
    let (error_message, configs) = (Some(message.into()), Some(Vec::new()));
    CreatableTopicResult { name, error_code, error_message, configs, ..Default::default() }
}

fn create_done<'a>(cx: &Context<'_>, name: Str<'a>, created: &CreatedTopic) -> CreatableTopicResult<'a> {
    let config = |config: Described| CreatableTopicResultConfig {
        name: config.name.into(),
        value: config.value.map(Into::into),
        read_only: config.read_only,
        config_source: config.source,
        is_sensitive: config.sensitive,
    };
    let configs = cx.server.shard().settings().describe_topic(&created.configs);
    CreatableTopicResult {
        name,
        topic_id: created.id,
        num_partitions: created.partitions,
        replication_factor: created.replication_factor,
        configs: Some(configs.into_iter().map(config).collect()),
        ..Default::default()
    }
}

/// Answers DeleteTopics.
pub(super) async fn delete_topics<'a>(cx: &Context<'_>, request: DeleteTopicsRequest<'a>) -> DeleteTopicsResponse<'a> {
    let wanted: Vec<DeleteTopic<'a>> = if cx.version <= DELETE_NAMES_UP_TO {
        let named = |name| DeleteTopic { name: Some(name), topic_id: TopicId::ZERO };
        request.topic_names.into_iter().map(named).collect()
    } else {
        request.topics
    };
    let (legal, mut responses) = legal_deletes(&cx.server.shard().image(), wanted);
    let reference = |topic: &DeleteTopic<'_>| match &topic.name {
        Some(name) => TopicRef::Name(name.to_string()),
        None => TopicRef::Id(topic.topic_id),
    };
    let outcomes = cx.server.shard().controller().delete_topics(legal.iter().map(reference).collect()).await;
    responses.extend(legal.into_iter().zip(outcomes).map(|(topic, outcome)| match outcome {
        Ok((name, id)) => deleted(Some(name.into()), id, ErrorCode::NONE, None),
        Err(error) => {
            let code = match error {
                CommandError::DeletionDisabled if cx.version < DELETION_DISABLED_FROM => ErrorCode::INVALID_REQUEST,
                _ => errors::command(&error),
            };
            deleted(topic.name, topic.topic_id, code, Some(error.to_string()))
        }
    }));
    DeleteTopicsResponse { responses, ..Default::default() }
}

/// Tells the topics that may be deleted from those that are named in a way that makes no sense, each of which is answered
/// once.
fn legal_deletes<'a>(
    image: &Image,
    wanted: Vec<DeleteTopic<'a>>,
) -> (Vec<DeleteTopic<'a>>, Vec<DeletableTopicResult<'a>>) {
    let names =
        || wanted.iter().filter(|topic| topic.topic_id == TopicId::ZERO).filter_map(|topic| topic.name.as_deref());
    let names_twice: HashSet<String> = topics::duplicates(names()).into_iter().map(str::to_owned).collect();
    let id_of = |name: &str| image.topics.get(name).filter(|_| !names_twice.contains(name)).map(|topic| topic.id);
    let named: HashSet<TopicId> = names().filter_map(id_of).collect();
    let (mut ids, mut ids_twice) = (HashSet::new(), HashSet::new());
    for topic in wanted.iter().filter(|topic| topic.name.is_none()) {
        if !ids.insert(topic.topic_id) {
            ids_twice.insert(topic.topic_id);
        }
    }
    let (mut legal, mut refused) = (Vec::new(), Vec::new());
    let (mut names_told, mut ids_told) = (HashSet::new(), HashSet::new());
    for DeleteTopic { name, topic_id } in wanted {
        let mut refuse = |name, topic_id, message: &str| {
            refused.push(deleted(name, topic_id, ErrorCode::INVALID_REQUEST, Some(message.to_owned())));
        };
        match (name, topic_id) {
            (None, TopicId::ZERO) => refuse(None, topic_id, "Neither topic name nor id were specified."),
            (None, _) if ids_twice.contains(&topic_id) => {
                if ids_told.insert(topic_id) {
                    refuse(None, topic_id, "Duplicate topic id.");
                }
            }
            // Answered where it is named.
            (None, _) if named.contains(&topic_id) => {}
            (Some(name), TopicId::ZERO) if names_twice.contains(&*name) => {
                if names_told.insert(name.to_string()) {
                    refuse(Some(name), topic_id, "Duplicate topic name.");
                }
            }
            (Some(name), TopicId::ZERO) => match id_of(&name).filter(|id| ids.contains(id)) {
                Some(id) => refuse(Some(name), id, "The provided topic name maps to an ID that was already supplied."),
                None => legal.push(DeleteTopic { name: Some(name), topic_id }),
            },
            (Some(name), _) => refuse(Some(name), topic_id, "You may not specify both topic name and topic id."),
            (None, _) => legal.push(DeleteTopic { name: None, topic_id }),
        }
    }
    (legal, refused)
}

fn deleted(
    name: Option<Str<'_>>,
    topic_id: TopicId,
    error_code: ErrorCode,
    message: Option<String>,
) -> DeletableTopicResult<'_> {
    DeletableTopicResult { name, topic_id, error_code, error_message: message.map(Into::into) }
}

/// Answers DescribeConfigs.
pub(super) async fn describe_configs<'a>(
    cx: &Context<'_>,
    request: DescribeConfigsRequest<'a>,
) -> DescribeConfigsResponse<'a> {
    let (synonyms, documentation) = (request.include_synonyms, request.include_documentation);
    // One kind that does not exist spoils the whole request, as in Kafka.
    let unknown_kind =
        request.resources.iter().map(|one| one.resource_type).find(|kind| !RESOURCE_KINDS.contains(kind));
    let describe = |resource: DescribeConfigsResource<'a>| {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            error_message: Some("".into()),
            ..Default::default()
        };
        let outcome = match unknown_kind {
            Some(kind) => Err((ErrorCode::INVALID_REQUEST, format!("there are no resources of type {kind}"))),
            None => describe_resource(cx, &resource),
        };
        match outcome {
            Ok(described) => {
                let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
                let keys = keys.map(|keys| keys.iter().map(|key| &**key).collect::<HashSet<&str>>());
                let asked = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(name));
                let described = described.into_iter().filter(|one| asked(&one.name));
                result.configs = described.map(|one| described_config(one, synonyms, documentation)).collect();
            }
            Err((code, message)) => {
                result.error_code = code;
                result.error_message = Some(message.into());
            }
        }
        result
    };
    // Each once: the settings of a topic are a thousand times as long as its name.
    let (mut seen, mut results) = (HashSet::new(), Vec::new());
    for resource in request.resources {
        if seen.insert((resource.resource_type, one_spelling(&resource))) {
            results.push(describe(resource));
        }
        cx.server.shard().net().give_way().await;
    }
    DescribeConfigsResponse { results, ..Default::default() }
}

/// The name of a resource: that of a broker is a number, of which 1, 01 and +1 are the same.
fn one_spelling(resource: &DescribeConfigsResource<'_>) -> Arc<str> {
    match resource.resource_name.parse::<i32>() {
        Ok(id) if resource.resource_type == BROKER_RESOURCE => id.to_string().into(),
        _ => resource.resource_name.to_shared(),
    }
}

fn describe_resource(
    cx: &Context<'_>,
    resource: &DescribeConfigsResource<'_>,
) -> Result<Vec<Described>, (ErrorCode, String)> {
    let settings = cx.server.shard().settings();
    let name = &*resource.resource_name;
    match resource.resource_type {
        TOPIC_RESOURCE if !topics::is_legal_name(name) => {
            Err((ErrorCode::INVALID_TOPIC_EXCEPTION, format!("'{name}' is no legal topic name")))
        }
        TOPIC_RESOURCE => match cx.server.shard().image().topics.get(name) {
            Some(topic) => Ok(settings.describe_topic(&topic.configs)),
            None => Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("there is no topic '{name}'"))),
        },
        // The cluster-wide defaults of dynamic broker settings: there are none.
        BROKER_RESOURCE if name.is_empty() => Ok(Vec::new()),
        BROKER_RESOURCE => match name.parse::<i32>() {
            Ok(id) if id == settings.node_id.value() => Ok(settings.describe_broker()),
            Ok(id) => {
                let expected = settings.node_id;
                let message = format!("Unexpected broker id, expected {expected} or empty string, but received {id}");
                Err((ErrorCode::INVALID_REQUEST, message))
            }
            Err(_) => {
                let message = format!("Broker id must be an integer, but it is: {name}");
                Err((ErrorCode::INVALID_REQUEST, message))
            }
        },
        other => Err((ErrorCode::INVALID_REQUEST, format!("resources of type {other} have no settings here"))),
    }
}

fn described_config<'a>(described: Described, synonyms: bool, documentation: bool) -> DescribedConfig<'a> {
    let synonym = |(name, value, source): (String, Option<String>, i8)| ConfigSynonym {
        name: name.into(),
        value: value.map(Into::into),
        source,
    };
    DescribedConfig {
        name: described.name.into(),
        value: described.value.map(Into::into),
        read_only: described.read_only,
        config_source: described.source,
        is_sensitive: described.sensitive,
        synonyms: if synonyms { described.synonyms.into_iter().map(synonym).collect() } else { Vec::new() },
        config_type: described.kind,
        documentation: documentation.then(|| described.documentation.into()),
    }
}

/// Answers ListConfigResources: topics and this broker have settings, and its loggers in name.
pub(super) async fn list_config_resources(
    cx: &Context<'_>,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse<'static> {
    let asked = match request.resource_types {
        _ if cx.version < CONFIG_RESOURCE_TYPES_FROM => vec![CLIENT_METRICS_RESOURCE],
        types if types.is_empty() => RESOURCE_KINDS.to_vec(),
        types => types,
    };
    if asked.iter().any(|kind| !RESOURCE_KINDS.contains(kind)) {
        return ListConfigResourcesResponse { error_code: ErrorCode::UNSUPPORTED_VERSION, ..Default::default() };
    }
    let image = cx.server.shard().image();
    let broker = cx.server.shard().settings().node_id.value();
    let mut config_resources = Vec::new();
    for kind in [BROKER_LOGGER_RESOURCE, BROKER_RESOURCE] {
        let named = ConfigResource { resource_name: broker.to_string().into(), resource_type: kind };
        config_resources.extend(asked.contains(&kind).then_some(named));
    }
    if asked.contains(&TOPIC_RESOURCE) {
        let named =
            |name: &TopicName| ConfigResource { resource_name: name.clone().into(), resource_type: TOPIC_RESOURCE };
        config_resources.extend(image.topics.keys().map(named));
    }
    ListConfigResourcesResponse { config_resources, ..Default::default() }
}
