//! What operators' tools ask: CreatePartitions (37), AlterConfigs (33), IncrementalAlterConfigs (44), DeleteRecords (21),
//! DescribeLogDirs (35), DescribeProducers (61), DescribeTopicPartitions (75), DescribeAcls (29).
//!
//! Shell. Owns the shape of requests; the controller decides on topics and edits their settings, the owners on logs. Source:
//! KIP-107, KIP-113, KIP-133, KIP-140, KIP-195, KIP-339, KIP-664, KIP-827, KIP-966; Kafka's `ConfigAdminManager`, `KafkaApis`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use rustix::fs::statvfs;

use crate::config::is_internal_topic;
use crate::controller::image::Image;
use crate::controller::{ConfigEdit, ConfigEdits};
use crate::log::producers::ActiveProducer;
use crate::protocol::operator::{
    AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResult, AlterableConfig, ConfigChange,
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsResult, CreatePartitionsTopic, Cursor,
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
    DescribeAclsRequest, DescribeAclsResponse, DescribeLogDirsPartition, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic, DescribeProducersPartition,
    DescribeProducersRequest, DescribeProducersResponse, DescribeProducersTopicResponse,
    DescribeTopicPartitionsPartition, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ProducerState,
    TopicRequest,
};
use crate::protocol::{ErrorCode, Str};
use crate::server::admin::{BROKER_RESOURCE, TOPIC_RESOURCE};
use crate::server::connection::Context;
use crate::server::metadata::TOPIC_OPERATIONS;
use crate::server::owners::ask_owners;
use crate::server::{errors, topics};
use crate::shard::calls::{PartitionFacts, ShardAnswer, ShardCall};
use crate::types::Offset;

/// Answers CreatePartitions.
pub(super) async fn create_partitions<'a>(
    cx: &Context<'_>,
    request: CreatePartitionsRequest<'a>,
) -> CreatePartitionsResponse<'a> {
    let twice: HashSet<String> =
        topics::duplicates(request.topics.iter().map(|topic| &*topic.name)).into_iter().map(str::to_owned).collect();
    let image = cx.server.shard().image();
    let mut results: Vec<CreatePartitionsResult<'a>> = Vec::new();
    let mut wanted = Vec::new();
    let mut commands = Vec::new();
    for topic in request.topics {
        let refusal = if twice.contains(&*topic.name) {
            Some((ErrorCode::INVALID_REQUEST, "Duplicate topic in request.".to_owned()))
        } else {
            check_assignments(&image, &topic)
        };
        match refusal {
            Some((code, message)) if results.iter().all(|told| told.name != topic.name) => {
                results.push(CreatePartitionsResult {
                    name: topic.name,
                    error_code: code,
                    error_message: Some(message.into()),
                });
            }
            Some(_) => {}
            None => {
                commands.push((topic.name.to_string(), topic.count));
                wanted.push(topic.name);
            }
        }
    }
    let outcomes = cx.server.shard().controller().create_partitions(commands, request.validate_only).await;
    results.extend(wanted.into_iter().zip(outcomes).map(|(name, outcome)| CreatePartitionsResult {
        name,
        error_code: outcome.as_ref().err().map_or(ErrorCode::NONE, errors::command),
        error_message: outcome.err().map(|error| error.to_string().into()),
    }));
    CreatePartitionsResponse { results, ..Default::default() }
}

/// An assignment by hand must be one for each new partition, to brokers that are there.
fn check_assignments(image: &Image, topic: &CreatePartitionsTopic<'_>) -> Option<Refusal> {
    let (assignments, known) = (topic.assignments.as_ref()?, image.topics.get(&*topic.name)?);
    let added = usize::try_from(topic.count).unwrap_or(0).saturating_sub(known.partitions.len());
    if added == 0 {
        // The controller refuses the count, which Kafka looks at first.
        return None;
    }
    let illegal = |message| Some((ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    if assignments.len() != added {
        return illegal(format!("{added} partitions are to be added, but {} are assigned", assignments.len()));
    }
    let is_broker = |id: &i32| image.brokers.iter().any(|broker| broker.id.value() == *id);
    let brokers = assignments.iter().flat_map(|assignment| &assignment.broker_ids);
    if let Some(unknown) = brokers.copied().find(|id| !is_broker(id)) {
        return illegal(format!("there is no broker {unknown}"));
    }
    let replicas = known.partitions.first().map_or(1, |partition| partition.replicas.len());
    if assignments.iter().any(|assignment| assignment.broker_ids.len() != replicas) {
        return illegal(format!("every partition of this topic has {replicas} replicas"));
    }
    None
}

type Refusal = (ErrorCode, String);

/// Answers AlterConfigs: what is not given goes back to its default.
pub(super) async fn alter_configs<'a>(cx: &Context<'_>, request: AlterConfigsRequest<'a>) -> AlterConfigsResponse<'a> {
    let (resources, mut responses) = once_each(request.resources, |one| (one.resource_type, &one.resource_name));
    for resource in resources {
        let edits = replacement(&resource.configs)
            .and_then(|edits| check_resource(resource.resource_type, &resource.resource_name).map(|()| edits));
        let outcome = alter(cx, &resource.resource_name, edits, request.validate_only).await;
        responses.push(alter_result(resource.resource_type, resource.resource_name, outcome));
    }
    AlterConfigsResponse { responses, ..Default::default() }
}

/// Answers IncrementalAlterConfigs.
pub(super) async fn incremental_alter_configs<'a>(
    cx: &Context<'_>,
    request: IncrementalAlterConfigsRequest<'a>,
) -> IncrementalAlterConfigsResponse<'a> {
    let (resources, mut responses) = once_each(request.resources, |one| (one.resource_type, &one.resource_name));
    for resource in resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let edits = single_edits(&resource.configs).and_then(|edits| check_resource(kind, &name).map(|()| edits));
        let outcome = alter(cx, &name, edits, request.validate_only).await;
        responses.push(alter_result(kind, name, outcome));
    }
    IncrementalAlterConfigsResponse { responses, ..Default::default() }
}

/// Parts the resources that are given once from the others, all of which are refused.
fn once_each<'a, R>(resources: Vec<R>, name: impl Fn(&R) -> (i8, &Str<'a>)) -> (Vec<R>, Vec<AlterConfigsResult<'a>>) {
    let key = |resource: &R| (name(resource).0, name(resource).1.to_string());
    let mut seen = HashSet::new();
    let twice: HashSet<_> = resources.iter().map(key).filter(|key| !seen.insert(key.clone())).collect();
    let (refused, single): (Vec<_>, _) = resources.into_iter().partition(|resource| twice.contains(&key(resource)));
    let refuse = |resource: &R| {
        let refusal = (ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.".to_owned());
        alter_result(name(resource).0, name(resource).1.clone(), Err(refusal))
    };
    (single, refused.iter().map(refuse).collect())
}

/// The overrides of a topic become exactly those given.
fn replacement(given: &[AlterableConfig<'_>]) -> Result<ConfigEdits, Refusal> {
    let mut configs = BTreeMap::new();
    for one in given {
        let null = || (ErrorCode::INVALID_REQUEST, format!("the value of '{}' is null", one.name));
        let value = one.value.as_ref().ok_or_else(null)?;
        if configs.insert(one.name.to_string(), value.to_string()).is_some() {
            return Err((ErrorCode::INVALID_REQUEST, format!("'{}' is given twice", one.name)));
        }
    }
    Ok(ConfigEdits::Exactly(configs))
}

async fn alter(
    cx: &Context<'_>,
    topic: &str,
    edits: Result<ConfigEdits, Refusal>,
    validate_only: bool,
) -> Result<(), Refusal> {
    let controller = cx.server.shard().controller();
    let outcome = controller.alter_topic_configs(topic.to_owned(), edits?, validate_only).await;
    outcome.map_err(|error| (errors::command(&error), error.to_string()))
}

fn alter_result<'a>(resource_type: i8, resource_name: Str<'a>, outcome: Result<(), Refusal>) -> AlterConfigsResult<'a> {
    let (error_code, error_message) = match outcome {
        Ok(()) => (ErrorCode::NONE, None),
        Err((code, message)) => (code, Some(message.into())),
    };
    AlterConfigsResult { error_code, error_message, resource_type, resource_name }
}

/// A resource must be a topic: others have no settings that can be altered. Whether it is there the controller says, after it
/// has judged the values, as in Kafka.
fn check_resource(kind: i8, name: &str) -> Result<(), Refusal> {
    match kind {
        TOPIC_RESOURCE if name.is_empty() => {
            Err((ErrorCode::INVALID_REQUEST, "Default topic resources are not allowed.".to_owned()))
        }
        TOPIC_RESOURCE if !topics::is_legal_name(name) => {
            Err((ErrorCode::INVALID_TOPIC_EXCEPTION, format!("'{name}' is no legal topic name")))
        }
        TOPIC_RESOURCE => Ok(()),
        BROKER_RESOURCE => {
            Err((ErrorCode::INVALID_REQUEST, "settings of a broker are fixed when it starts".to_owned()))
        }
        other => Err((ErrorCode::INVALID_REQUEST, format!("resources of type {other} have no settings here"))),
    }
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// The operations on single settings (KIP-339).
fn single_edits(operations: &[ConfigChange<'_>]) -> Result<ConfigEdits, Refusal> {
    let invalid = |message: String| (ErrorCode::INVALID_REQUEST, message);
    let mut edits = BTreeMap::new();
    for one in operations {
        let name = one.name.to_string();
        let given = || {
            let value = one.value.as_ref().ok_or_else(|| invalid(format!("the value of '{name}' is null")))?;
            Ok::<_, Refusal>(value.to_string())
        };
        let edit = match one.config_operation {
            SET => ConfigEdit::Set(given()?),
            DELETE => ConfigEdit::Remove,
            APPEND => ConfigEdit::Append(given()?),
            SUBTRACT => ConfigEdit::Subtract(given()?),
            other => return Err(invalid(format!("unknown operation {other} on '{name}'"))),
        };
        if edits.insert(name.clone(), edit).is_some() {
            return Err(invalid(format!("'{name}' is given twice")));
        }
    }
    Ok(ConfigEdits::Each(edits.into_iter().collect()))
}

/// Answers DeleteRecords.
pub(super) async fn delete_records<'a>(
    cx: &Context<'_>,
    request: DeleteRecordsRequest<'a>,
) -> DeleteRecordsResponse<'a> {
    let image = cx.server.shard().image();
    let question = |name: &str, partition: i32, offset: i64| {
        let found = topics::find(&image, name, partition);
        let (id, topic, _) = found.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if topic.internal {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        let settings = cx.server.shard().topic_settings(topic.id).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if settings.compact && !settings.log.delete_policy {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let to = Offset::new(offset);
        if to.is_none() && offset != -1 {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        Ok((id, to))
    };
    let question = &question;
    let questions = request.topics.iter().flat_map(|topic| {
        let asked = topic.partitions.iter();
        asked.map(move |asked| question(&topic.name, asked.partition_index, asked.offset))
    });
    let mut answers = ask_owners(
        cx.server,
        questions,
        |(id, _)| *id,
        ShardCall::DeleteRecords,
        |answer| match answer {
            ShardAnswer::Deleted(starts) => {
                starts.into_iter().map(|start| start.map_err(|error| errors::delete_records(&error))).collect()
            }
            _ => unreachable!("DeleteRecords is answered with log starts"),
        },
    )
    .await
    .into_iter();
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let partitions = topic.partitions.iter().map(|asked| {
            let (low_watermark, error_code) = match answers.next().expect("one answer a partition") {
                Ok(start) => (start.value(), ErrorCode::NONE),
                Err(code) => (-1, code),
            };
            DeleteRecordsPartitionResult { partition_index: asked.partition_index, low_watermark, error_code }
        });
        results.push(DeleteRecordsTopicResult { partitions: partitions.collect(), name: topic.name });
    }
    DeleteRecordsResponse { topics: results, ..Default::default() }
}

/// Answers DescribeLogDirs.
pub(super) async fn describe_log_dirs(
    cx: &Context<'_>,
    request: DescribeLogDirsRequest<'_>,
) -> DescribeLogDirsResponse<'static> {
    let shard = cx.server.shard();
    let asked: Vec<_> = (0..shard.shards()).map(|index| shard.ask(index, ShardCall::Describe)).collect();
    let mut partitions = Vec::new();
    for answer in asked {
        match answer.await {
            Ok(ShardAnswer::Facts(facts)) => partitions.extend(facts.partitions),
            Ok(_) => unreachable!("Describe is answered with facts"),
            // The shard went away with its partitions.
            Err(_) => {}
        }
    }
    // The other logs of such a directory are served and shown all the same.
    let failed_dirs: HashSet<usize> =
        partitions.iter().filter(|facts| facts.offline.is_some()).map(|facts| facts.log_dir).collect();
    if let Some(topics) = &request.topics {
        let mut named = topics::Named::default();
        for topic in topics {
            topic.partitions.iter().for_each(|partition| _ = named.insert(&topic.topic, *partition));
            shard.net().give_way().await;
        }
        partitions.retain(|facts| named.contains(&facts.topic, facts.partition));
    }
    partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    let dirs = shard.settings().log_dirs.iter().enumerate();
    let results = dirs.map(|(index, dir)| {
        let (total_bytes, usable_bytes) = statvfs(dir.as_path()).map_or((-1, -1), |stat| {
            let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
            (bytes(stat.f_blocks), bytes(stat.f_bavail))
        });
        DescribeLogDirsResult {
            error_code: if failed_dirs.contains(&index) { ErrorCode::KAFKA_STORAGE_ERROR } else { ErrorCode::NONE },
            log_dir: absolute(dir).display().to_string().into(),
            topics: log_dir_topics(partitions.iter().filter(|facts| facts.log_dir == index)),
            total_bytes,
            usable_bytes,
        }
    });
    DescribeLogDirsResponse { results: results.collect(), ..Default::default() }
}

/// As Kafka tells it: tools compare directories of several brokers, which know nothing of where each was started.
fn absolute(dir: &Path) -> Cow<'_, Path> {
    std::path::absolute(dir).map_or(Cow::Borrowed(dir), Cow::Owned)
}

fn log_dir_topics<'f>(partitions: impl Iterator<Item = &'f PartitionFacts>) -> Vec<DescribeLogDirsTopic<'static>> {
    let mut topics: Vec<DescribeLogDirsTopic<'static>> = Vec::new();
    for facts in partitions {
        let partition = DescribeLogDirsPartition {
            partition_index: facts.partition,
            partition_size: i64::try_from(facts.size_bytes).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        };
        match topics.last_mut() {
            Some(topic) if *topic.name == *facts.topic => topic.partitions.push(partition),
            _ => topics.push(DescribeLogDirsTopic { name: facts.topic.clone().into(), partitions: vec![partition] }),
        }
    }
    topics
}

/// Answers DescribeProducers.
pub(super) async fn describe_producers<'a>(
    cx: &Context<'_>,
    mut request: DescribeProducersRequest<'a>,
) -> DescribeProducersResponse<'a> {
    let image = cx.server.shard().image();
    let mut seen = topics::Named::default();
    for topic in &mut request.topics {
        let (name, indexes) = (&*topic.name, &mut topic.partition_indexes);
        indexes.retain(|index| seen.insert(name, *index));
        cx.server.shard().net().give_way().await;
    }
    let image = &image;
    let questions = request.topics.iter().flat_map(|topic| {
        let legal = topics::is_legal_name(&topic.name);
        let found = move |index: &i32| {
            if !legal {
                return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
            }
            topics::find(image, &topic.name, *index).map(|(id, ..)| id).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        };
        topic.partition_indexes.iter().map(found)
    });
    let mut answers = ask_owners(
        cx.server,
        questions,
        |id| *id,
        ShardCall::DescribeProducers,
        |answer| match answer {
            ShardAnswer::Producers(producers) => {
                producers.into_iter().map(|known| known.map_err(|error| errors::fetch(&error))).collect()
            }
            _ => unreachable!("DescribeProducers is answered with producers"),
        },
    )
    .await
    .into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let (error_code, producers) = match answers.next().expect("one answer a partition") {
                Ok(producers) => (ErrorCode::NONE, producers),
                Err(code) => (code, Vec::new()),
            };
            let active_producers = producers.iter().map(producer_state).collect();
            DescribeProducersPartition { partition_index: *index, error_code, active_producers, ..Default::default() }
        });
        DescribeProducersTopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    DescribeProducersResponse { topics: topics.collect(), ..Default::default() }
}

fn producer_state(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.id.value(),
        producer_epoch: i32::from(producer.epoch.value()),
        last_sequence: producer.last_sequence.map_or(-1, |sequence| sequence.value()),
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_first.map_or(-1, |offset| offset.value()),
    }
}

/// Answers DescribeTopicPartitions: topics in the order of their names, from the cursor on, a page at a time.
pub(super) async fn describe_topic_partitions(
    cx: &Context<'_>,
    request: DescribeTopicPartitionsRequest<'_>,
) -> DescribeTopicPartitionsResponse<'static> {
    let image = cx.server.shard().image();
    let mut names: Vec<String> = request.topics.iter().map(|topic| topic.name.to_string()).collect();
    if names.is_empty() {
        names.extend(image.topics.keys().map(|name| name.to_string()));
    }
    names.sort();
    names.dedup();
    let cursor = request.cursor.as_ref().map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
    if let Some((topic, partition)) = &cursor {
        let listed = request.topics.is_empty() || names.contains(topic);
        names.retain(|name| name >= topic);
        if !listed || *partition < 0 {
            return cursor_refused(&request);
        }
    }
    let partitions_max = cx.server.shard().settings().max_request_partition_size_limit as usize;
    let mut left = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, partitions_max);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        if left == 0 {
            response.next_cursor = Some(Cursor { topic_name: name.into(), partition_index: 0 });
            break;
        }
        let Some(topic) = image.topics.get(&*name) else {
            let legal = topics::is_legal_name(&name);
            response.topics.push(DescribeTopicPartitionsTopic {
                error_code: if legal {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else {
                    ErrorCode::INVALID_TOPIC_EXCEPTION
                },
                is_internal: is_internal_topic(&name),
                name: Some(name.into()),
                topic_authorized_operations: TOPIC_OPERATIONS,
                ..Default::default()
            });
            continue;
        };
        let first = match &cursor {
            Some((at, partition)) if *at == name => usize::try_from(*partition).unwrap_or(0),
            _ => 0,
        };
        let described: Vec<_> = (0..).zip(&topic.partitions).skip(first).take(left).map(described_partition).collect();
        left -= described.len();
        let next = first + described.len();
        response.topics.push(DescribeTopicPartitionsTopic {
            error_code: ErrorCode::NONE,
            name: Some(topic.name.clone().into()),
            topic_id: topic.id,
            is_internal: topic.internal,
            partitions: described,
            topic_authorized_operations: TOPIC_OPERATIONS,
        });
        if next < topic.partitions.len() {
            response.next_cursor = Some(Cursor { topic_name: name.into(), partition_index: next as i32 });
            break;
        }
    }
    response
}

/// The cursor stands before the first partition, or at a topic that is not asked for: nothing is answered.
fn cursor_refused(request: &DescribeTopicPartitionsRequest<'_>) -> DescribeTopicPartitionsResponse<'static> {
    let refused = |topic: &TopicRequest<'_>| DescribeTopicPartitionsTopic {
        error_code: ErrorCode::INVALID_REQUEST,
        name: Some(topic.name.to_string().into()),
        ..Default::default()
    };
    DescribeTopicPartitionsResponse { topics: request.topics.iter().map(refused).collect(), ..Default::default() }
}

fn described_partition(
    (partition_index, partition): (i32, &crate::controller::image::PartitionImage),
) -> DescribeTopicPartitionsPartition {
    DescribeTopicPartitionsPartition {
        error_code: ErrorCode::NONE,
        partition_index,
        leader_id: partition.leader.value(),
        leader_epoch: partition.leader_epoch.value(),
        replica_nodes: partition.replicas.iter().map(|broker| broker.value()).collect(),
        isr_nodes: partition.isr.iter().map(|broker| broker.value()).collect(),
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        offline_replicas: Vec::new(),
    }
}

/// Answers DescribeAcls as Kafka does without an authorizer.
pub(super) async fn describe_acls(_: &Context<'_>, _: DescribeAclsRequest<'_>) -> DescribeAclsResponse<'static> {
    DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..Default::default()
    }
}
