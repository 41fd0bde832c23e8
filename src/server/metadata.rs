//! Metadata (3), ApiVersions (18), DescribeCluster (60): what a client asks first.
//!
//! Shell. Owns the creation of topics on first use; the rest is read from the image. Always: one answer comes from one image
//! (reliability C4); a topic created on first use is in the answer, since its logs are open on every shard by then (Kafka
//! answers code 3 and lets the client ask again). Source: KIP-4, KIP-35, KIP-430, KIP-511, KIP-516, KIP-584, KIP-700.

use std::collections::{BTreeSet, HashSet};

use crate::config::is_internal_topic;
use crate::controller::image::{Image, TopicImage};
use crate::controller::{CommandError, NewTopic};
use crate::protocol::admin::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
    FinalizedFeature, MetadataBroker, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic, SupportedFeature,
};
use crate::protocol::{ErrorCode, Str, advertised_apis};
use crate::server::Server;
use crate::server::connection::Context;
use crate::server::topics::is_legal_name;
use crate::shard::groups::OFFSETS_TOPIC;
use crate::types::TopicId;

/// Without an authorizer everybody may do everything: the bits of every operation a topic knows (KIP-430).
pub(super) const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;

/// Likewise of the cluster.
const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// The level of Kafka 4.4-IV2, and the lowest a Kafka 4 broker can run at (3.3-IV3).
const METADATA_VERSION: i16 = 33;
const METADATA_VERSION_MIN: i16 = 7;

/// Before this version clients cannot read a supported feature whose minimum is 0 (KAFKA-17492).
const ZERO_MINIMUM_FROM: i16 = 4;

/// From this version on clients name themselves (KIP-511).
const SOFTWARE_NAME_FROM: i16 = 3;

/// From this version on topics may be asked for by id alone; in the two before it, the fields are there but refused.
const BY_ID_FROM: i16 = 12;
const ID_FIELDS_FROM: i16 = 10;

/// Endpoints of brokers, in DescribeCluster.
const BROKER_ENDPOINTS: i8 = 1;
const CONTROLLER_ENDPOINTS: i8 = 2;

/// Answers Metadata.
pub(super) async fn metadata<'a>(cx: &Context<'_>, request: MetadataRequest<'a>) -> MetadataResponse<'a> {
    let all = request.topics.is_none() || (cx.version == 0 && request.topics.as_ref().is_some_and(Vec::is_empty));
    let mut asked = if all { Vec::new() } else { request.topics.unwrap_or_default() };
    if (ID_FIELDS_FROM..BY_ID_FROM).contains(&cx.version)
        && asked.iter().any(|topic| topic.name.is_none() || topic.topic_id != TopicId::ZERO)
    {
        return by_id_refused(asked);
    }
    if asked.iter().any(|topic| topic.topic_id != TopicId::ZERO) {
        // As in Kafka: a request that names one id asks by ids alone.
        asked.retain(|topic| topic.topic_id != TopicId::ZERO);
    }
    if request.allow_auto_topic_creation && cx.server.shard().settings().auto_create_topics_enable {
        create_missing(cx.server, &asked).await;
    }
    let image = cx.server.shard().image();
    let operations = request.include_topic_authorized_operations;
    let mut topics: Vec<MetadataTopic<'a>> = if all {
        image.topics.values().map(|topic| topic_answer(topic)).collect()
    } else {
        asked_topics(&image, asked)
    };
    for topic in topics.iter_mut().filter(|topic| operations && topic.name.is_some()) {
        topic.topic_authorized_operations = TOPIC_OPERATIONS;
    }
    MetadataResponse {
        brokers: brokers(&image),
        cluster_id: Some(image.cluster_id.clone().into()),
        controller_id: cx.server.shard().settings().node_id.value(),
        topics,
        cluster_authorized_operations: operations_of(request.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
        ..Default::default()
    }
}

fn operations_of(asked: bool, operations: i32) -> i32 {
    if asked { operations } else { i32::MIN }
}

fn brokers(image: &Image) -> Vec<MetadataBroker<'static>> {
    let broker = |broker: &crate::controller::image::BrokerImage| MetadataBroker {
        node_id: broker.id.value(),
        host: broker.host.clone().into(),
        port: i32::from(broker.port),
        rack: broker.rack.clone().map(Into::into),
    };
    image.brokers.iter().map(broker).collect()
}

/// In two versions the id is there but may not be used: the whole request is refused.
fn by_id_refused(asked: Vec<MetadataRequestTopic<'_>>) -> MetadataResponse<'_> {
    let refused = |topic| unknown_topic(ErrorCode::INVALID_REQUEST, topic);
    MetadataResponse { topics: asked.into_iter().map(refused).collect(), ..Default::default() }
}

fn unknown_topic(error_code: ErrorCode, topic: MetadataRequestTopic<'_>) -> MetadataTopic<'_> {
    MetadataTopic { error_code, name: topic.name, topic_id: topic.topic_id, ..Default::default() }
}

/// Each topic once, in the order of the request.
fn asked_topics<'a>(image: &Image, asked: Vec<MetadataRequestTopic<'a>>) -> Vec<MetadataTopic<'a>> {
    // An id that is given counts for more than a name beside it, and is asked for once whatever names stand there: a topic may
    // have a thousand partitions.
    let by_id_or_name = |topic: MetadataRequestTopic<'a>| MetadataRequestTopic {
        name: topic.name.filter(|_| topic.topic_id == TopicId::ZERO),
        topic_id: topic.topic_id,
    };
    let mut seen = HashSet::new();
    let first_time =
        |topic: &MetadataRequestTopic<'a>| seen.insert((topic.name.as_ref().map(Str::to_shared), topic.topic_id));
    let answer = |topic: MetadataRequestTopic<'a>| {
        let (known, code) = match &topic.name {
            Some(name) if !is_legal_name(name) => (None, ErrorCode::INVALID_TOPIC_EXCEPTION),
            Some(name) => (image.topics.get(&**name), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            None => (image.topic_by_id(topic.topic_id), ErrorCode::UNKNOWN_TOPIC_ID),
        };
        let is_internal = topic.name.as_deref().is_some_and(is_internal_topic);
        known.map_or_else(|| MetadataTopic { is_internal, ..unknown_topic(code, topic) }, |known| topic_answer(known))
    };
    asked.into_iter().map(by_id_or_name).filter(first_time).map(answer).collect()
}

fn topic_answer<'a>(topic: &TopicImage) -> MetadataTopic<'a> {
    let partition = |(index, partition): (i32, &crate::controller::image::PartitionImage)| MetadataPartition {
        error_code: ErrorCode::NONE,
        partition_index: index,
        leader_id: partition.leader.value(),
        leader_epoch: partition.leader_epoch.value(),
        replica_nodes: partition.replicas.iter().map(|broker| broker.value()).collect(),
        isr_nodes: partition.isr.iter().map(|broker| broker.value()).collect(),
        offline_replicas: Vec::new(),
    };
    MetadataTopic {
        name: Some(topic.name.clone().into()),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: (0..).zip(&topic.partitions).map(partition).collect(),
        ..Default::default()
    }
}

/// Creates the topics among `asked` that can be created and are not there.
async fn create_missing(server: &Server, asked: &[MetadataRequestTopic<'_>]) {
    let image = server.shard().image();
    let named = asked.iter().filter(|topic| topic.topic_id == TopicId::ZERO);
    let names: BTreeSet<_> = named.filter_map(|topic| topic.name.as_deref()).collect();
    let missing = names.into_iter().filter(|name| is_legal_name(name) && !image.topics.contains_key(*name));
    let (internal, ours): (Vec<_>, Vec<_>) = missing.partition(|name| is_internal_topic(name));
    let controller = server.shard().controller();
    // Nobody here keeps state in the others, and as plain topics they would be in the way of who does one day.
    if internal.contains(&OFFSETS_TOPIC) {
        tell_first_use(OFFSETS_TOPIC, controller.ensure_internal_topic(OFFSETS_TOPIC).await);
    }
    if !ours.is_empty() {
        let outcomes = controller.create_topics(ours.iter().map(|name| by_default(name)).collect(), false).await;
        for (name, outcome) in ours.into_iter().zip(outcomes) {
            tell_first_use(name, outcome.map(drop));
        }
    }
}

fn by_default(name: &str) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions: -1, replication_factor: -1, ..Default::default() }
}

fn tell_first_use(topic: &str, outcome: Result<(), CommandError>) {
    match outcome {
        Ok(()) => tracing::info!(topic, "created on first use"),
        // Another client was first, or the name collides with one that is there, or one request names too many or what may
        // not be: the answer says so. One line for each of half a million names would be the peer's to write.
        Err(
            CommandError::TopicExists(_)
            | CommandError::InvalidTopic(_)
            | CommandError::InvalidRequest(_)
            | CommandError::PolicyViolation(_),
        ) => {}
        Err(error) => tracing::warn!(topic, %error, "a topic was not created on first use"),
    }
}

/// Answers ApiVersions.
pub(super) async fn api_versions(cx: &Context<'_>, request: ApiVersionsRequest<'_>) -> ApiVersionsResponse<'static> {
    let named = is_software_name(&request.client_software_name) && is_software_name(&request.client_software_version);
    if cx.version >= SOFTWARE_NAME_FROM && !named {
        return ApiVersionsResponse { error_code: ErrorCode::INVALID_REQUEST, ..Default::default() };
    }
    let supported = [
        ("metadata.version", METADATA_VERSION_MIN, METADATA_VERSION),
        // Known, so that tools which set it to 0 find it; this broker has no groups of KIP-848 and no transactions yet.
        ("group.version", 0, 0),
        ("transaction.version", 0, 0),
    ];
    ApiVersionsResponse {
        api_keys: advertised_apis(),
        supported_features: supported
            .into_iter()
            .filter(|(_, min_version, _)| *min_version > 0 || cx.version >= ZERO_MINIMUM_FROM)
            .map(|(name, min_version, max_version)| SupportedFeature { name: name.into(), min_version, max_version })
            .collect(),
        finalized_features_epoch: i64::try_from(cx.server.shard().image().version).unwrap_or(i64::MAX),
        finalized_features: vec![FinalizedFeature {
            name: "metadata.version".into(),
            max_version_level: METADATA_VERSION,
            min_version_level: METADATA_VERSION,
        }],
        ..Default::default()
    }
}

/// Letters and digits, with `-` and `.` inside (KIP-511).
fn is_software_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().copied().all(inner)
}

/// Answers DescribeCluster.
pub(super) async fn describe_cluster(
    cx: &Context<'_>,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse<'static> {
    let refused = |error_code, message: String| DescribeClusterResponse {
        error_code,
        error_message: Some(Str::from(message)),
        ..Default::default()
    };
    match request.endpoint_type {
        BROKER_ENDPOINTS => {}
        CONTROLLER_ENDPOINTS => {
            let message =
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
            return refused(ErrorCode::MISMATCHED_ENDPOINT_TYPE, message.to_owned());
        }
        other => return refused(ErrorCode::UNSUPPORTED_ENDPOINT_TYPE, format!("Unsupported endpoint type {other}")),
    }
    let image = cx.server.shard().image();
    let broker = |broker: MetadataBroker<'static>| DescribeClusterBroker {
        broker_id: broker.node_id,
        host: broker.host,
        port: broker.port,
        rack: broker.rack,
        is_fenced: false,
    };
    DescribeClusterResponse {
        endpoint_type: BROKER_ENDPOINTS,
        cluster_id: image.cluster_id.clone().into(),
        controller_id: cx.server.shard().settings().node_id.value(),
        brokers: brokers(&image).into_iter().map(broker).collect(),
        cluster_authorized_operations: operations_of(request.include_cluster_authorized_operations, CLUSTER_OPERATIONS),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_judged_as_kip_511_says() {
        for good in ["librdkafka", "apache-kafka-java", "4.4.0", "a"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", ".1", "ü"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn the_operation_bits_are_those_kafka_answers_without_an_authorizer() {
        assert_eq!((TOPIC_OPERATIONS, CLUSTER_OPERATIONS), (3576, 8096));
    }
}
