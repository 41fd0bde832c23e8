//! FindCoordinator (10) and the classic group protocol: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13), and
//! for tools DescribeGroups (15), ListGroups (16), DeleteGroups (42).
//!
//! Shell. Owns the spelling of versions, nulls and defaults; the coordinator of the group's partition decides. Always: a
//! command goes to the shard that owns the partition the group hashes to; a request about many groups asks for some at a time and
//! answers each once; a join whose client went is left to its session timeout, as in Kafka; no answer but that to a join or
//! a sync waits longer than `offsets.commit.timeout.ms`, since a connection's heartbeats come after it. Source: KIP-62,
//! KIP-345, KIP-394, KIP-559, KIP-699, KIP-800, KIP-814, KIP-1043.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::controller::CommandError;
use crate::controller::image::Image;
use crate::coordinator::command::{
    GroupAnswer, GroupCommand, GroupError, JoinRequest, Joined, LeaveRequest, Leaving, ListFilter, MemberRequest,
    Protocol, SyncRequest,
};
use crate::coordinator::group::State;
use crate::coordinator::partition_for;
use crate::protocol::groups::{
    Coordinator, DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, JoinGroupMember, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, LeftMember, ListGroupsRequest, ListGroupsResponse, ListedGroup, SyncGroupRequest,
    SyncGroupResponse,
};
use crate::protocol::{Blob, ErrorCode, Str};
use crate::rt;
use crate::rt::hop::Gone;
use crate::server::connection::{Abandoned, Context};
use crate::server::{Server, errors};
use crate::shard::calls::{ShardAnswer, ShardCall};
use crate::shard::groups::OFFSETS_TOPIC;
use crate::types::{PartitionId, PartitionIndex};

/// Kinds of keys FindCoordinator knows.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// From this version on FindCoordinator asks for many keys.
const MANY_KEYS_FROM: i16 = 4;

/// From this version on LeaveGroup lists members.
const MANY_LEAVE_FROM: i16 = 3;

/// From this version on SyncGroup must name what was agreed on (KIP-559).
const PROTOCOL_NAMED_FROM: i16 = 5;

/// From this version on DescribeGroups has a code for a group that is not there; before, it was called dead.
const UNKNOWN_GROUP_FROM: i16 = 6;

/// Groups that one request asks for at a time: each is a message to the shard of its coordinator.
pub(super) const GROUPS_AT_ONCE: usize = 256;

/// Without an authorizer everybody may do everything: the bits of every operation a group knows (KIP-430).
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// The type of the groups that live here (KIP-848 brings others).
const GROUP_TYPE: &str = "classic";

/// Answers FindCoordinator. This broker coordinates every group; the offsets topic is created when it is first needed.
pub(super) async fn find_coordinator<'a>(
    cx: &Context<'_>,
    request: FindCoordinatorRequest<'a>,
) -> FindCoordinatorResponse<'a> {
    let (error_code, message) = match request.key_type {
        GROUP_KEY => match ensure_offsets_topic(cx.server).await {
            Ok(()) => (ErrorCode::NONE, None),
            Err(error) => (ErrorCode::COORDINATOR_NOT_AVAILABLE, Some(error.to_string())),
        },
        // The one code that every client takes for final: librdkafka tries again after all others.
        TRANSACTION_KEY => {
            (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Some("transactions are not served".to_owned()))
        }
        other => (ErrorCode::INVALID_REQUEST, Some(format!("no coordinator has keys of type {other}"))),
    };
    let image = cx.server.shard().image();
    let me = image.brokers.iter().find(|broker| broker.id == cx.server.shard().settings().node_id);
    let (node_id, host, port) = match me {
        Some(broker) if error_code == ErrorCode::NONE => {
            (broker.id.value(), broker.host.clone(), i32::from(broker.port))
        }
        _ => (-1, String::new(), -1),
    };
    let host = Str::from(host);
    if cx.version < MANY_KEYS_FROM {
        // Kafka says "NONE" where there is no error.
        let message = message.unwrap_or_else(|| error_code.name().to_owned());
        let error_message = Some(message.into());
        return FindCoordinatorResponse { error_code, error_message, node_id, host, port, ..Default::default() };
    }
    let coordinator = |key: Str<'a>| Coordinator {
        key,
        node_id,
        host: host.clone(),
        port,
        error_code,
        error_message: Some(message.clone().unwrap_or_default().into()),
    };
    let coordinators = request.coordinator_keys.into_iter().map(coordinator).collect();
    FindCoordinatorResponse { coordinators, ..Default::default() }
}

async fn ensure_offsets_topic(server: &Server) -> Result<(), CommandError> {
    let shard = server.shard();
    if shard.image().topics.contains_key(OFFSETS_TOPIC) {
        return Ok(());
    }
    shard.controller().ensure_internal_topic(OFFSETS_TOPIC).await
}

/// The partition of the offsets topic that keeps this group; `None` while there is no such topic.
fn partition_of(image: &Image, group_id: &str) -> Option<PartitionId> {
    let topic = image.topics.get(OFFSETS_TOPIC)?;
    let count = u32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    let partition = PartitionIndex::new(i32::try_from(partition_for(group_id, count)).ok()?)?;
    Some(PartitionId { topic_id: topic.id, partition })
}

/// Sends a command about one group to its coordinator; it is on its way when this returns.
pub(super) fn ask_coordinator(server: &Server, command: GroupCommand) -> impl Future<Output = GroupAnswer> + 'static {
    let shard = server.shard();
    let refused = command.refused(GroupError::NotCoordinator);
    let late = too_late(&command);
    let deadline = Instant::now() + shard.settings().offsets_commit_timeout;
    let group_id = command.group_id().expect("commands about all groups go another way");
    let asked = partition_of(&shard.image(), group_id)
        .map(|partition| shard.ask(shard.owner(partition), ShardCall::Group(partition, Box::new(command))));
    async move {
        let Some(answer) = asked else { return refused };
        let answer = match late {
            None => answer.await,
            Some(late) => match rt::timeout_at(deadline, answer).await {
                Some(answer) => answer,
                None => return late,
            },
        };
        match answer {
            Ok(ShardAnswer::Group(answer)) => *answer,
            Ok(_) => unreachable!("a group command is answered by its coordinator"),
            Err(Gone) => refused,
        }
    }
}

/// What a command is told that waits for a record longer than `offsets.commit.timeout.ms`: as in Kafka, which leaves the
/// record on its way too. `None`: it waits for other members.
fn too_late(command: &GroupCommand) -> Option<GroupAnswer> {
    match command {
        GroupCommand::Join(_) | GroupCommand::Sync(_) => None,
        GroupCommand::OffsetFetch(_) => Some(command.refused(GroupError::NotCoordinator)),
        _ => Some(command.refused(GroupError::CoordinatorNotAvailable)),
    }
}

/// Asks the coordinators of many groups, each group once, some at a time; between those others have their turn. Group and
/// answer go to `take` in the order of the request.
async fn ask_coordinators<'a>(
    server: &Server,
    groups: Vec<Str<'a>>,
    command: impl Fn(Arc<str>) -> GroupCommand,
    mut take: impl FnMut(Str<'a>, GroupAnswer),
) {
    let (mut groups, mut seen) = (groups.into_iter().peekable(), HashSet::new());
    while groups.peek().is_some() {
        let some = groups.by_ref().take(GROUPS_AT_ONCE).map(|group| (group.to_shared(), group));
        let asked: Vec<_> = some
            .filter(|(shared, _)| seen.insert(shared.clone()))
            .map(|(shared, group)| (group, ask_coordinator(server, command(shared))))
            .collect();
        for (group, answer) in asked {
            take(group, answer.await);
        }
        server.shard().net().give_way().await;
    }
}

/// Takes the answer of the expected kind out of a [`GroupAnswer`].
macro_rules! expect_answer {
    ($kind:ident, $answer:expr) => {
        match $answer {
            $crate::coordinator::command::GroupAnswer::$kind(answer) => answer,
            other => unreachable!(concat!("a ", stringify!($kind), " was answered with {:?}"), other),
        }
    };
}
pub(super) use expect_answer;

/// Answers JoinGroup.
pub(super) async fn join_group(
    cx: &Context<'_>,
    request: JoinGroupRequest<'_>,
) -> Result<JoinGroupResponse<'static>, Abandoned> {
    let protocol = |protocol: &crate::protocol::groups::JoinGroupProtocol<'_>| Protocol {
        name: protocol.name.to_shared(),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    };
    let command = GroupCommand::Join(JoinRequest {
        group_id: request.group_id.to_shared(),
        member_id: request.member_id.to_shared(),
        instance_id: shared(&request.group_instance_id),
        client_id: cx.client_id.into(),
        client_host: format!("/{}", cx.peer().ip()).into(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if cx.version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms },
        protocol_type: request.protocol_type.to_shared(),
        protocols: request.protocols.iter().map(protocol).collect(),
        version: cx.version,
    });
    let answer = cx.unless_gone_or_draining(ask_coordinator(cx.server, command)).await?;
    Ok(match expect_answer!(Join, answer) {
        Ok(joined) => join_response(joined),
        Err(refused) => JoinGroupResponse {
            error_code: errors::group(&refused.error),
            member_id: refused.member_id.into(),
            ..Default::default()
        },
    })
}

fn join_response(joined: Joined) -> JoinGroupResponse<'static> {
    let member = |member: crate::coordinator::command::JoinedMember| JoinGroupMember {
        member_id: member.member_id.into(),
        group_instance_id: member.instance_id.map(Into::into),
        metadata: blob(&member.metadata),
    };
    JoinGroupResponse {
        generation_id: joined.generation,
        protocol_type: joined.protocol_type.map(Into::into),
        protocol_name: joined.protocol.map(Into::into),
        leader: joined.leader.into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id.into(),
        members: joined.members.into_iter().map(member).collect(),
        ..Default::default()
    }
}

/// Answers SyncGroup.
pub(super) async fn sync_group(
    cx: &Context<'_>,
    request: SyncGroupRequest<'_>,
) -> Result<SyncGroupResponse<'static>, Abandoned> {
    if cx.version >= PROTOCOL_NAMED_FROM && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        let error_code = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
        return Ok(SyncGroupResponse { error_code, ..Default::default() });
    }
    let assignments = request.assignments.iter();
    let assignments = assignments.map(|one| (one.member_id.to_shared(), Bytes::copy_from_slice(&one.assignment)));
    let command = GroupCommand::Sync(SyncRequest {
        member: MemberRequest {
            group_id: request.group_id.to_shared(),
            generation: request.generation_id,
            member_id: request.member_id.to_shared(),
            instance_id: shared(&request.group_instance_id),
        },
        protocol_type: shared(&request.protocol_type),
        protocol: shared(&request.protocol_name),
        assignments: assignments.collect(),
    });
    let answer = cx.unless_gone_or_draining(ask_coordinator(cx.server, command)).await?;
    Ok(match expect_answer!(Sync, answer) {
        Ok(synced) => SyncGroupResponse {
            protocol_type: synced.protocol_type.map(Into::into),
            protocol_name: synced.protocol.map(Into::into),
            assignment: blob(&synced.assignment),
            ..Default::default()
        },
        Err(error) => SyncGroupResponse { error_code: errors::group(&error), ..Default::default() },
    })
}

/// Answers Heartbeat.
pub(super) async fn heartbeat(cx: &Context<'_>, request: HeartbeatRequest<'_>) -> HeartbeatResponse {
    let command = GroupCommand::Heartbeat(MemberRequest {
        group_id: request.group_id.to_shared(),
        generation: request.generation_id,
        member_id: request.member_id.to_shared(),
        instance_id: shared(&request.group_instance_id),
    });
    let answer = expect_answer!(Heartbeat, ask_coordinator(cx.server, command).await);
    HeartbeatResponse { error_code: code_of(answer.err()), ..Default::default() }
}

/// Answers LeaveGroup.
pub(super) async fn leave_group(cx: &Context<'_>, request: LeaveGroupRequest<'_>) -> LeaveGroupResponse<'static> {
    let alone = || Leaving { member_id: request.member_id.to_shared(), instance_id: None, reason: None };
    let listed = |member: &crate::protocol::groups::LeavingMember<'_>| Leaving {
        member_id: member.member_id.to_shared(),
        instance_id: shared(&member.group_instance_id),
        reason: shared(&member.reason),
    };
    let many = cx.version >= MANY_LEAVE_FROM;
    let members = if many { request.members.iter().map(listed).collect() } else { vec![alone()] };
    let command = GroupCommand::Leave(LeaveRequest { group_id: request.group_id.to_shared(), members });
    let left = match expect_answer!(Leave, ask_coordinator(cx.server, command).await) {
        Ok(left) => left,
        Err(error) => return LeaveGroupResponse { error_code: errors::group(&error), ..Default::default() },
    };
    if !many {
        let error = left.first().and_then(|member| member.error);
        return LeaveGroupResponse { error_code: code_of(error), ..Default::default() };
    }
    let member = |member: crate::coordinator::command::Left| LeftMember {
        member_id: member.member_id.into(),
        group_instance_id: member.instance_id.map(Into::into),
        error_code: code_of(member.error),
    };
    LeaveGroupResponse { members: left.into_iter().map(member).collect(), ..Default::default() }
}

/// Answers DescribeGroups.
pub(super) async fn describe_groups<'a>(
    cx: &Context<'_>,
    request: DescribeGroupsRequest<'a>,
) -> DescribeGroupsResponse<'a> {
    let mut groups = Vec::new();
    let take = |group_id: Str<'a>, answer| {
        let mut described = match expect_answer!(Describe, answer) {
            Ok(group) => described_group(group),
            Err(GroupError::GroupIdNotFound) if cx.version < UNKNOWN_GROUP_FROM => {
                DescribedGroup { group_state: "Dead".into(), ..Default::default() }
            }
            Err(error) => DescribedGroup {
                error_code: errors::group(&error),
                error_message: Some(format!("Group {group_id}: {error}.").into()),
                group_state: if error == GroupError::GroupIdNotFound { "Dead".into() } else { "".into() },
                ..Default::default()
            },
        };
        described.group_id = group_id;
        if request.include_authorized_operations && described.error_code == ErrorCode::NONE {
            described.authorized_operations = GROUP_OPERATIONS;
        }
        groups.push(described);
    };
    ask_coordinators(cx.server, request.groups, GroupCommand::Describe, take).await;
    DescribeGroupsResponse { groups, ..Default::default() }
}

fn described_group(group: crate::coordinator::command::DescribedGroup) -> DescribedGroup<'static> {
    let member = |member: crate::coordinator::command::DescribedMember| DescribedGroupMember {
        member_id: member.member_id.into(),
        group_instance_id: member.instance_id.map(Into::into),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        member_metadata: blob(&member.metadata),
        member_assignment: blob(&member.assignment),
    };
    DescribedGroup {
        group_state: group.state.into(),
        protocol_type: group.protocol_type.into(),
        protocol_data: group.protocol.into(),
        members: group.members.into_iter().map(member).collect(),
        ..Default::default()
    }
}

/// Answers ListGroups: every coordinator of every shard tells its own.
pub(super) async fn list_groups(cx: &Context<'_>, request: ListGroupsRequest<'_>) -> ListGroupsResponse<'static> {
    let states = request.states_filter.iter().map(|word| word.trim());
    let types = request.types_filter.iter().map(|word| &**word);
    let filter = ListFilter {
        states: filter_words(states, &State::ALL.map(State::name)),
        types: filter_words(types, &[GROUP_TYPE]),
    };
    let shard = cx.server.shard();
    let asked: Vec<_> =
        (0..shard.shards()).map(|index| shard.ask(index, ShardCall::ListGroups(filter.clone()))).collect();
    let mut response = ListGroupsResponse::default();
    for answer in asked {
        match answer.await {
            Ok(ShardAnswer::Groups(listed)) => {
                response.groups.extend(listed.groups.into_iter().map(|group| ListedGroup {
                    group_id: group.group_id.into(),
                    protocol_type: group.protocol_type.into(),
                    group_state: group.state.into(),
                    group_type: GROUP_TYPE.into(),
                }));
                if let Some(error) = listed.error {
                    response.error_code = errors::group(&error);
                }
            }
            Ok(_) => unreachable!("a list of groups is answered with groups"),
            Err(Gone) => response.error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE,
        }
    }
    response
}

/// What a filter's words come to: each of the `names` that groups can have once, and for all other words one that none has. A
/// request may bring half a million words, and every group is compared with each that is kept.
fn filter_words<'w>(words: impl Iterator<Item = &'w str>, names: &[&'static str]) -> Vec<String> {
    let mut kept = BTreeSet::new();
    for word in words {
        let name = names.iter().copied().find(|name| name.eq_ignore_ascii_case(word));
        kept.insert(name.unwrap_or_default());
    }
    kept.into_iter().map(str::to_owned).collect()
}

/// Answers DeleteGroups.
pub(super) async fn delete_groups<'a>(cx: &Context<'_>, request: DeleteGroupsRequest<'a>) -> DeleteGroupsResponse<'a> {
    let mut results = Vec::new();
    let take = |group_id, answer| {
        let error = expect_answer!(DeleteGroup, answer).err();
        results.push(DeletableGroupResult { group_id, error_code: code_of(error) });
    };
    ask_coordinators(cx.server, request.groups_names, GroupCommand::DeleteGroup, take).await;
    DeleteGroupsResponse { results, ..Default::default() }
}

/// The code of an error, or of none.
pub(super) fn code_of(error: Option<GroupError>) -> ErrorCode {
    error.map_or(ErrorCode::NONE, |error| errors::group(&error))
}

/// Text that outlives the request.
pub(super) fn shared(text: &Option<Str<'_>>) -> Option<Arc<str>> {
    text.as_ref().map(Str::to_shared)
}

fn blob(bytes: &Bytes) -> Blob<'static> {
    bytes.to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_words_of_a_filter_those_are_kept_that_a_group_can_have() {
        let kept = |words: &[&str]| filter_words(words.iter().copied(), &["Empty", "Stable"]);
        assert_eq!(kept(&[]), [""; 0], "an empty filter stays one");
        assert_eq!(kept(&["stable", "EMPTY", "Stable"]), ["Empty", "Stable"]);
        assert_eq!(kept(&["x", "dead", "stable", ""]), ["", "Stable"]);
    }
}
