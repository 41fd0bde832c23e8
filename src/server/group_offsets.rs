//! OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).
//!
//! Shell. Owns the check that a committed partition exists, and the order of answers; the coordinator of the group keeps
//! the offsets. Always: a request for very many offsets asks for some at a time, and none is asked for or deleted twice.
//! Source: KIP-211, KIP-320, KIP-447, KIP-496, KIP-709.

use std::collections::HashSet;
use std::time::Duration;

use crate::coordinator::command::{
    CommitPartition, CommitRequest, FetchRequest, FetchWhich, FetchedOffset, GroupCommand, GroupError, MemberRequest,
    OffsetDeleteRequest as DeleteCommand, Stability,
};
use crate::protocol::groups::{
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitTopicResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetDeleteTopicResponse, OffsetFetchGroup, OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchTopic, OffsetFetchTopicResponse,
    PartitionError,
};
use crate::protocol::{ErrorCode, Str};
use crate::server::connection::Context;
use crate::server::groups::{GROUPS_AT_ONCE, ask_coordinator, code_of, expect_answer, shared};
use crate::server::named::{Named, answer_each, keep_new};
use crate::server::{Server, errors, topics};
use crate::types::{LeaderEpoch, PartitionIndex};

/// From this version on one request asks for many groups.
const MANY_GROUPS_FROM: i16 = 8;

/// Offsets that one command asks for.
const OFFSETS_AT_ONCE: usize = 4096;

/// From this version on an error of the group has a place of its own.
const GROUP_ERROR_FROM: i16 = 2;

/// Answers OffsetCommit.
pub(super) async fn offset_commit<'a>(cx: &Context<'_>, request: OffsetCommitRequest<'a>) -> OffsetCommitResponse<'a> {
    let image = cx.server.shard().image();
    let commit = |topic: &str, partition: &OffsetCommitPartition<'_>| {
        let (id, topic, _) = topics::find(&image, topic, partition.partition_index)?;
        Some(CommitPartition {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partition: id.partition,
            offset: partition.committed_offset,
            leader_epoch: LeaderEpoch::new(partition.committed_leader_epoch),
            metadata: shared(&partition.committed_metadata).unwrap_or_default(),
        })
    };
    let mut partitions = Vec::new();
    let mut known = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let found = commit(&topic.name, partition);
            known.push(found.is_some());
            partitions.extend(found);
        }
    }
    let count = partitions.len();
    let command = GroupCommand::OffsetCommit(CommitRequest {
        member: MemberRequest {
            group_id: request.group_id.to_shared(),
            generation: request.generation_id_or_member_epoch,
            member_id: request.member_id.to_shared(),
            instance_id: shared(&request.group_instance_id),
        },
        retention: u64::try_from(request.retention_time_ms).ok().map(Duration::from_millis),
        version: cx.version,
        partitions,
    });
    let mut outcomes = if count == 0 {
        Vec::new()
    } else {
        match expect_answer!(OffsetCommit, ask_coordinator(cx.server, command).await) {
            Ok(results) => results.into_iter().map(|result| result.error).collect(),
            Err(error) => vec![Some(error); count],
        }
    }
    .into_iter();
    let mut known = known.into_iter();
    let mut code = || match known.next() {
        Some(true) => code_of(outcomes.next().expect("one outcome a partition")),
        _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    };
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let answer = |partition: OffsetCommitPartition<'_>| PartitionError {
            partition_index: partition.partition_index,
            error_code: code(),
        };
        let partitions: Vec<_> = topic.partitions.into_iter().map(answer).collect();
        if !partitions.is_empty() {
            topics.push(OffsetCommitTopicResponse { name: topic.name, partitions });
        }
    }
    OffsetCommitResponse { topics, ..Default::default() }
}

/// Answers OffsetFetch.
pub(super) async fn offset_fetch<'a>(cx: &Context<'_>, request: OffsetFetchRequest<'a>) -> OffsetFetchResponse<'a> {
    let stability = if request.require_stable { Stability::AfterPendingCommits } else { Stability::Durable };
    if cx.version >= MANY_GROUPS_FROM {
        let groups = fetch_groups(cx.server, request.groups, stability).await;
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let mut request = request;
    drop_repeated(cx.server, request.topics.as_mut()).await;
    match fetch_group(cx.server, &request.group_id, request.topics.as_deref(), stability).await {
        Ok(offsets) => OffsetFetchResponse { topics: fetched_topics(request.topics, offsets), ..Default::default() },
        Err(error) if cx.version < GROUP_ERROR_FROM => OffsetFetchResponse {
            topics: refused_topics(request.topics.unwrap_or_default(), error),
            ..Default::default()
        },
        Err(error) => OffsetFetchResponse { error_code: errors::group(&error), ..Default::default() },
    }
}

/// The offsets of many groups, some groups at a time; between those others have their turn. A group that is named again is
/// refused then: its offsets may be many, for the few bytes that ask for all of them.
async fn fetch_groups<'a>(
    server: &Server,
    groups: Vec<OffsetFetchGroup<'a>>,
    stability: Stability,
) -> Vec<OffsetFetchGroupResponse<'a>> {
    let (mut groups, mut seen, mut responses) = (groups.into_iter().peekable(), HashSet::new(), Vec::new());
    while groups.peek().is_some() {
        let mut some: Vec<_> = groups.by_ref().take(GROUPS_AT_ONCE).collect();
        for group in &mut some {
            drop_repeated(server, group.topics.as_mut()).await;
        }
        let mut asked = Vec::with_capacity(some.len());
        for group in &some {
            let is_new = seen.insert(group.group_id.to_shared());
            asked.push(is_new.then(|| fetch_group(server, &group.group_id, group.topics.as_deref(), stability)));
        }
        let mut outcomes = Vec::with_capacity(asked.len());
        for asked in asked {
            outcomes.push(match asked {
                Some(answer) => answer.await.map_err(|error| errors::group(&error)),
                None => Err(ErrorCode::INVALID_REQUEST),
            });
        }
        responses.extend(some.into_iter().zip(outcomes).map(|(group, outcome)| {
            let (topics, error_code) = match outcome {
                Ok(offsets) => (fetched_topics(group.topics, offsets), ErrorCode::NONE),
                Err(code) => (Vec::new(), code),
            };
            OffsetFetchGroupResponse { group_id: group.group_id, topics, error_code }
        }));
        server.shard().net().give_way().await;
    }
    responses
}

/// Keeps each partition once.
async fn drop_repeated(server: &Server, topics: Option<&mut Vec<OffsetFetchTopic<'_>>>) {
    let Some(topics) = topics else { return };
    let mut seen = Named::default();
    for OffsetFetchTopic { name, partition_indexes, .. } in topics {
        keep_new(server, seen.of(name), partition_indexes, |index| *index, |_| {}).await;
    }
}

/// The offsets of one group, some at a time; the first question is on its way when this returns.
fn fetch_group(
    server: &Server,
    group_id: &Str<'_>,
    topics: Option<&[OffsetFetchTopic<'_>]>,
    stability: Stability,
) -> impl Future<Output = Result<Vec<FetchedOffset>, GroupError>> {
    let places = topics.unwrap_or_default().iter().flat_map(|topic| {
        let name = topic.name.to_shared();
        let partitions = topic.partition_indexes.iter().copied().filter_map(PartitionIndex::new);
        partitions.map(move |partition| (name.clone(), None, partition))
    });
    let mut places = places.peekable();
    let group_id = group_id.to_shared();
    let ask = move |partitions| {
        let request = FetchRequest { group_id: group_id.clone(), partitions, stability };
        ask_coordinator(server, GroupCommand::OffsetFetch(request))
    };
    let answer = ask(match topics {
        None => FetchWhich::All,
        Some(_) => FetchWhich::These(places.by_ref().take(OFFSETS_AT_ONCE).collect()),
    });
    async move {
        let mut offsets = expect_answer!(OffsetFetch, answer.await)?;
        while places.peek().is_some() {
            server.shard().net().give_way().await;
            let some = places.by_ref().take(OFFSETS_AT_ONCE).collect();
            offsets.extend(expect_answer!(OffsetFetch, ask(FetchWhich::These(some)).await)?);
        }
        Ok(offsets)
    }
}

/// Puts the offsets where the request asked for them; one that asks for no topic by name gets all there are.
fn fetched_topics<'a>(
    asked: Option<Vec<OffsetFetchTopic<'a>>>,
    offsets: Vec<FetchedOffset>,
) -> Vec<OffsetFetchTopicResponse<'a>> {
    let Some(asked) = asked else { return by_topic(offsets) };
    let mut offsets = offsets.into_iter();
    let mut answer = |index: i32| match PartitionIndex::new(index) {
        Some(_) => fetched_partition(offsets.next().expect("one offset a partition")),
        None => no_offset(index),
    };
    let topic = |topic: OffsetFetchTopic<'a>| OffsetFetchTopicResponse {
        name: topic.name,
        partitions: topic.partition_indexes.into_iter().map(&mut answer).collect(),
    };
    asked.into_iter().map(topic).collect()
}

fn fetched_partition(fetched: FetchedOffset) -> OffsetFetchPartitionResponse<'static> {
    let mut answer = no_offset(fetched.partition.value());
    if let Some(committed) = fetched.committed {
        answer.committed_offset = committed.offset;
        answer.committed_leader_epoch = committed.leader_epoch.map_or(-1, |epoch| epoch.value());
        answer.metadata = Some(committed.metadata.into());
    }
    answer
}

/// Groups answers that follow each other by their topic.
fn by_topic(offsets: Vec<FetchedOffset>) -> Vec<OffsetFetchTopicResponse<'static>> {
    let mut topics: Vec<OffsetFetchTopicResponse<'static>> = Vec::new();
    for fetched in offsets {
        let name = fetched.topic.clone();
        let answer = fetched_partition(fetched);
        match topics.last_mut() {
            Some(topic) if *topic.name == *name => topic.partitions.push(answer),
            _ => topics.push(OffsetFetchTopicResponse { name: name.into(), partitions: vec![answer] }),
        }
    }
    topics
}

fn refused_topics<'a>(topics: Vec<OffsetFetchTopic<'a>>, error: GroupError) -> Vec<OffsetFetchTopicResponse<'a>> {
    let refused =
        |partition| OffsetFetchPartitionResponse { error_code: errors::group(&error), ..no_offset(partition) };
    let topic = |topic: OffsetFetchTopic<'a>| OffsetFetchTopicResponse {
        name: topic.name,
        partitions: topic.partition_indexes.into_iter().map(refused).collect(),
    };
    topics.into_iter().map(topic).collect()
}

/// No offset is no error.
fn no_offset(partition_index: i32) -> OffsetFetchPartitionResponse<'static> {
    OffsetFetchPartitionResponse {
        partition_index,
        committed_offset: -1,
        metadata: Some("".into()),
        ..Default::default()
    }
}

/// Answers OffsetDelete.
pub(super) async fn offset_delete<'a>(
    cx: &Context<'_>,
    mut request: OffsetDeleteRequest<'a>,
) -> OffsetDeleteResponse<'a> {
    let image = cx.server.shard().image();
    // Each once: every other time would be one more tombstone in the log.
    let mut seen = Named::default();
    for topic in &mut request.topics {
        keep_new(cx.server, seen.of(&topic.name), &mut topic.partitions, |index| *index, |_| {}).await;
    }
    let mut partitions = Vec::new();
    let mut known = Vec::new();
    for topic in &request.topics {
        let find = |index: &i32| topics::find(&image, &topic.name, *index);
        for found in answer_each(cx.server, &topic.partitions, find).await {
            known.push(found.is_some());
            partitions.extend(found.map(|(id, topic, _)| (topic.name.clone(), id.partition)));
        }
    }
    let command = GroupCommand::OffsetDelete(DeleteCommand { group_id: request.group_id.to_shared(), partitions });
    let results = match expect_answer!(OffsetDelete, ask_coordinator(cx.server, command).await) {
        Ok(results) => results,
        Err(error) => return OffsetDeleteResponse { error_code: errors::group(&error), ..Default::default() },
    };
    let (mut known, mut results) = (known.into_iter(), results.into_iter());
    let mut code = || match known.next() {
        Some(true) => code_of(results.next().expect("one result a partition").error),
        _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    };
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let answer = |partition: &i32| PartitionError { partition_index: *partition, error_code: code() };
        let partitions: Vec<_> = topic.partitions.iter().map(answer).collect();
        if !partitions.is_empty() {
            topics.push(OffsetDeleteTopicResponse { name: topic.name, partitions });
        }
    }
    OffsetDeleteResponse { topics, ..Default::default() }
}
