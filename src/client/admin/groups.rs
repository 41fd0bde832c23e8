//! Groups: listed, described with their members, deleted; their committed offsets read, set and forgotten.
//!
//! Shell. Owns these calls and their values, and the reading of members' assignments, as far as they are in the consumers' format.
//! Always: a group's request goes to its coordinator, which is looked up again when it has moved. Source: KIP-222, KIP-396
//! (offsets), KIP-496 (forgetting them), KIP-345 (removing members), KIP-709, KIP-848 (types).

use serde::Serialize;

use super::{ItemError, Session, by_topic, owned};
use crate::client::error::ClientError;
use crate::client::network::Target;
use crate::protocol::groups::{
    DeleteGroupsRequest, DescribeGroupsRequest, DescribedGroupMember, LeaveGroupRequest, LeavingMember,
    ListGroupsRequest, OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetDeleteRequest,
    OffsetDeleteTopic, OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic, OffsetFetchTopicResponse,
};
use crate::protocol::notation::message;
use crate::protocol::wire::{Form, Reader};
use crate::protocol::{ErrorCode, Request, Str, Wire};
use crate::types::BrokerId;

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// `consumer`, `connect`, …; empty for a group that only keeps offsets.
    pub protocol_type: String,
    /// `Stable`, `Empty`, …; empty from old brokers.
    pub state: String,
    /// `classic`, `consumer`, …; empty from old brokers.
    pub kind: String,
    /// The broker that coordinates it.
    pub coordinator: i32,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// `Stable`, `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Dead`.
    pub state: String,
    /// `consumer`, `connect`, …
    pub protocol_type: String,
    /// How partitions are shared: `range`, …
    pub assignor: String,
    /// The broker that coordinates it.
    pub coordinator: Option<i32>,
    /// By id.
    pub members: Vec<GroupMember>,
    /// Why it is not described.
    pub error: Option<ItemError>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupMember {
    /// The id the coordinator gave it.
    pub member_id: String,
    /// The name that survives restarts.
    pub group_instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it connects from, as the broker writes it.
    pub client_host: String,
    /// Topic and partition, in order; empty when it has none, or is no consumer.
    pub assignment: Vec<(String, i32)>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommittedOffset {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// The next record to read; `None` when nothing is committed.
    pub offset: Option<i64>,
    /// Of the record before it.
    pub leader_epoch: Option<i32>,
    /// What the consumer wrote beside it.
    pub metadata: String,
    /// Why it is not known.
    pub error: Option<ItemError>,
}

/// An offset to commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewCommittedOffset {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// The next record to read.
    pub offset: i64,
    /// Of the record before it.
    pub leader_epoch: Option<i32>,
    /// Kept beside it.
    pub metadata: String,
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupOutcome {
    /// Its id.
    pub group: String,
    /// Why nothing was done.
    pub error: Option<ItemError>,
}

/// What became of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionOutcome {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// Why nothing was done.
    pub error: Option<ItemError>,
}

/// What became of a member to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaverOutcome {
    /// Its member id, or its instance id.
    pub member: String,
    /// Why it is still there.
    pub error: Option<ItemError>,
}

message! {
    /// One topic of a consumer's assignment.
    #[expect(unreachable_pub, reason = "the notation makes what it defines public")]
    pub struct AssignedTopic<'a> {
        topic: Str<'a>,
        partitions: Vec<i32>,
    }
}

/// Reads an assignment in the consumers' format: a version, topics, bytes of the assignor's own. All versions begin alike.
fn assignment(bytes: &[u8]) -> Vec<(String, i32)> {
    let mut reader = Reader::new(bytes);
    if reader.fixed::<2>().is_err() {
        return Vec::new();
    }
    // Members of groups that are none of consumers write what they like.
    let topics = Vec::<AssignedTopic<'_>>::decode(&mut reader, Form::new(0, i16::MAX)).unwrap_or_default();
    let places =
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic.to_string(), *partition)));
    let mut places: Vec<_> = places.collect();
    places.sort();
    places
}

impl Session {
    /// One attempt at the group's coordinator.
    async fn ask_coordinator<'a, R>(&self, group: &str, request: &R) -> Result<(BrokerId, super::Reply), ClientError>
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        let coordinator = self.network.coordinator(group, self.left()).await?;
        match self.ask(Target::Broker(coordinator), request).await {
            Ok(reply) => Ok((coordinator, reply)),
            Err(error) => {
                // It may be gone: another one will be found.
                self.network.forget_coordinator(group);
                Err(error)
            }
        }
    }

    /// As an error to be retried, when the code says that the coordinator has moved or is loading.
    fn coordinator_answered(&self, group: &str, code: ErrorCode) -> Result<(), ClientError> {
        if self.network.coordinator_failed(group, code) || code == ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            return Err(ClientError::broker(format_args!("group {group}"), code, None));
        }
        Ok(())
    }
}

pub(super) async fn list_groups(
    session: Session,
    states: Vec<String>,
    types: Vec<String>,
) -> Result<Vec<GroupListing>, ClientError> {
    let what = "listing groups";
    let brokers = session.retrying(what, async || session.broker_ids().await).await?;
    let request = ListGroupsRequest {
        states_filter: states.iter().map(|state| state.as_str().into()).collect(),
        types_filter: types.iter().map(|kind| kind.as_str().into()).collect(),
    };
    let mut groups: Vec<GroupListing> = Vec::new();
    for broker in brokers {
        let listed: Vec<GroupListing> = session
            .retrying(what, async || {
                let reply = session.ask(Target::Broker(broker), &request).await?;
                let answer = reply.read::<ListGroupsRequest<'_>>()?;
                if answer.error_code.is_error() {
                    return Err(session.refused(what, answer.error_code, None));
                }
                let listing = answer.groups.iter().map(|group| GroupListing {
                    group: group.group_id.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    state: group.group_state.to_string(),
                    kind: group.group_type.to_string(),
                    coordinator: broker.value(),
                });
                Ok(listing.collect())
            })
            .await?;
        groups.extend(listed);
    }
    // Brokers that know no filters tell of all.
    let fits = |word: &str, allowed: &[String]| {
        word.is_empty() || allowed.is_empty() || allowed.iter().any(|one| one.eq_ignore_ascii_case(word))
    };
    groups.retain(|group| fits(&group.state, &states) && fits(&group.kind, &types));
    groups.sort_by(|a, b| a.group.cmp(&b.group));
    groups.dedup_by(|a, b| a.group == b.group);
    Ok(groups)
}

pub(super) async fn find_coordinator(session: Session, group: String) -> Result<i32, ClientError> {
    Ok(session.network.coordinator(&group, session.left()).await?.value())
}

fn member(member: &DescribedGroupMember<'_>) -> GroupMember {
    GroupMember {
        member_id: member.member_id.to_string(),
        group_instance_id: owned(&member.group_instance_id),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        assignment: assignment(&member.member_assignment),
    }
}

pub(super) async fn describe_groups(
    session: Session,
    groups: Vec<String>,
) -> Result<Vec<GroupDescription>, ClientError> {
    let mut described = Vec::new();
    for group in groups {
        let what = format!("describing group {group}");
        let request =
            DescribeGroupsRequest { groups: vec![group.as_str().into()], include_authorized_operations: false };
        let answered = session
            .retrying(&what, async || {
                let (coordinator, reply) = session.ask_coordinator(&group, &request).await?;
                let answer = reply.read::<DescribeGroupsRequest<'_>>()?;
                let Some(told) = answer.groups.first() else {
                    return Err(ClientError::broker(
                        &what,
                        ErrorCode::UNKNOWN_SERVER_ERROR,
                        Some("the answer is empty"),
                    ));
                };
                session.coordinator_answered(&group, told.error_code)?;
                let consumers = told.protocol_type.is_empty() || *told.protocol_type == *"consumer";
                let mut members: Vec<_> = told.members.iter().map(member).collect();
                for member in members.iter_mut().filter(|_| !consumers) {
                    member.assignment.clear();
                }
                members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
                Ok(GroupDescription {
                    group: group.clone(),
                    state: told.group_state.to_string(),
                    protocol_type: told.protocol_type.to_string(),
                    assignor: told.protocol_data.to_string(),
                    coordinator: Some(coordinator.value()),
                    members,
                    error: ItemError::of(told.error_code, told.error_message.as_deref()),
                })
            })
            .await;
        described.push(match answered {
            Ok(described) => described,
            // Where no broker answers, it is not about the group.
            Err(error) if error.code().is_none() => return Err(error),
            Err(error) => GroupDescription {
                group,
                state: String::new(),
                protocol_type: String::new(),
                assignor: String::new(),
                coordinator: None,
                members: Vec::new(),
                error: Some((&error).into()),
            },
        });
    }
    Ok(described)
}

pub(super) async fn delete_groups(session: Session, groups: Vec<String>) -> Result<Vec<GroupOutcome>, ClientError> {
    let mut outcomes = Vec::new();
    for group in groups {
        let what = format!("deleting group {group}");
        let request = DeleteGroupsRequest { groups_names: vec![group.as_str().into()] };
        let code = session
            .retrying(&what, async || {
                let (_, reply) = session.ask_coordinator(&group, &request).await?;
                let answer = reply.read::<DeleteGroupsRequest<'_>>()?;
                let code = answer.results.first().map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |one| one.error_code);
                session.coordinator_answered(&group, code)?;
                Ok(code)
            })
            .await;
        let error = match code {
            Ok(code) => ItemError::of(code, None),
            Err(error) if error.code().is_none() => return Err(error),
            Err(error) => Some((&error).into()),
        };
        outcomes.push(GroupOutcome { group, error });
    }
    Ok(outcomes)
}

pub(super) async fn list_group_offsets(
    session: Session,
    group: String,
    partitions: Option<Vec<(String, i32)>>,
) -> Result<Vec<CommittedOffset>, ClientError> {
    let what = format!("reading offsets of group {group}");
    let topics = partitions.map(by_topic);
    let asked = || {
        let topic = |(name, partitions): &(String, Vec<i32>)| OffsetFetchTopic {
            name: name.clone().into(),
            partition_indexes: partitions.clone(),
        };
        topics.as_ref().map(|topics| topics.iter().map(topic).collect::<Vec<_>>())
    };
    session
        .retrying(&what, async || {
            let request = OffsetFetchRequest {
                group_id: group.as_str().into(),
                topics: asked(),
                groups: vec![OffsetFetchGroup {
                    group_id: group.as_str().into(),
                    topics: asked(),
                    ..Default::default()
                }],
                require_stable: false,
            };
            let (_, reply) = session.ask_coordinator(&group, &request).await?;
            let answer = reply.read::<OffsetFetchRequest<'_>>()?;
            let (code, topics) = match answer.groups.first() {
                Some(told) => (told.error_code, &told.topics),
                None => (answer.error_code, &answer.topics),
            };
            session.coordinator_answered(&group, code)?;
            if code.is_error() {
                return Err(ClientError::broker(format_args!("group {group}"), code, None));
            }
            Ok(committed(topics))
        })
        .await
}

fn committed(topics: &[OffsetFetchTopicResponse<'_>]) -> Vec<CommittedOffset> {
    let offsets = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|one| CommittedOffset {
            topic: topic.name.to_string(),
            partition: one.partition_index,
            offset: (one.committed_offset >= 0).then_some(one.committed_offset),
            leader_epoch: (one.committed_leader_epoch >= 0).then_some(one.committed_leader_epoch),
            metadata: owned(&one.metadata).unwrap_or_default(),
            error: ItemError::of(one.error_code, None),
        })
    });
    let mut offsets: Vec<_> = offsets.collect();
    offsets.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    offsets
}

pub(super) async fn alter_group_offsets(
    session: Session,
    group: String,
    offsets: Vec<NewCommittedOffset>,
) -> Result<Vec<PartitionOutcome>, ClientError> {
    let what = format!("setting offsets of group {group}");
    let topics = by_topic(offsets.into_iter().map(|offset| (offset.topic.clone(), offset)));
    session
        .retrying(&what, async || {
            let request = OffsetCommitRequest {
                group_id: group.as_str().into(),
                topics: topics
                    .iter()
                    .map(|(name, offsets)| OffsetCommitTopic {
                        name: name.as_str().into(),
                        partitions: offsets
                            .iter()
                            .map(|offset| OffsetCommitPartition {
                                partition_index: offset.partition,
                                committed_offset: offset.offset,
                                committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
                                committed_metadata: Some(offset.metadata.as_str().into()),
                            })
                            .collect(),
                    })
                    .collect(),
                ..Default::default()
            };
            let (_, reply) = session.ask_coordinator(&group, &request).await?;
            let answer = reply.read::<OffsetCommitRequest<'_>>()?;
            let places =
                answer.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |one| (&topic.name, one)));
            let mut outcomes = Vec::new();
            for (topic, one) in places {
                session.coordinator_answered(&group, one.error_code)?;
                let error = ItemError::of(one.error_code, None);
                outcomes.push(PartitionOutcome { topic: topic.to_string(), partition: one.partition_index, error });
            }
            Ok(outcomes)
        })
        .await
}

pub(super) async fn delete_group_offsets(
    session: Session,
    group: String,
    partitions: Vec<(String, i32)>,
) -> Result<Vec<PartitionOutcome>, ClientError> {
    let what = format!("forgetting offsets of group {group}");
    let topics = by_topic(partitions);
    session
        .retrying(&what, async || {
            let request = OffsetDeleteRequest {
                group_id: group.as_str().into(),
                topics: topics
                    .iter()
                    .map(|(name, partitions)| OffsetDeleteTopic {
                        name: name.as_str().into(),
                        partitions: partitions.clone(),
                    })
                    .collect(),
            };
            let (_, reply) = session.ask_coordinator(&group, &request).await?;
            let answer = reply.read::<OffsetDeleteRequest<'_>>()?;
            session.coordinator_answered(&group, answer.error_code)?;
            if answer.error_code.is_error() {
                return Err(ClientError::broker(format_args!("group {group}"), answer.error_code, None));
            }
            let outcomes = answer.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|one| PartitionOutcome {
                    topic: topic.name.to_string(),
                    partition: one.partition_index,
                    error: ItemError::of(one.error_code, None),
                })
            });
            Ok(outcomes.collect())
        })
        .await
}

pub(super) async fn remove_members(
    session: Session,
    group: String,
    members: Vec<(String, bool)>,
) -> Result<Vec<LeaverOutcome>, ClientError> {
    let what = format!("removing members of group {group}");
    session
        .retrying(&what, async || {
            let request = LeaveGroupRequest {
                group_id: group.as_str().into(),
                members: members
                    .iter()
                    .map(|(name, by_instance)| LeavingMember {
                        member_id: if *by_instance { "".into() } else { name.as_str().into() },
                        group_instance_id: by_instance.then(|| name.as_str().into()),
                        reason: Some("removed by an admin client".into()),
                    })
                    .collect(),
                ..Default::default()
            };
            let (_, reply) = session.ask_coordinator(&group, &request).await?;
            let answer = reply.read::<LeaveGroupRequest<'_>>()?;
            session.coordinator_answered(&group, answer.error_code)?;
            if answer.error_code.is_error() {
                return Err(ClientError::broker(format_args!("group {group}"), answer.error_code, None));
            }
            // The answer has the order of the request.
            let outcomes = members.iter().enumerate().map(|(at, (name, _))| LeaverOutcome {
                member: name.clone(),
                error: match answer.members.get(at) {
                    Some(one) => ItemError::of(one.error_code, None),
                    None => {
                        Some(ItemError::new(ErrorCode::UNKNOWN_SERVER_ERROR, Some("the broker's answer leaves it out")))
                    }
                },
            });
            Ok(outcomes.collect())
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_of_consumers_are_read_and_others_left_alone() {
        let bytes = b"\0\x03\0\0\0\x02\0\x01b\0\0\0\x02\0\0\0\x01\0\0\0\0\0\x01a\0\0\0\x01\0\0\0\x07\xff\xff\xff\xff";
        let place = |topic: &str, partition| (topic.to_owned(), partition);
        assert_eq!(assignment(bytes), [place("a", 7), place("b", 0), place("b", 1)]);
        for other in [&b""[..], b"\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"{\"connector\": 1}"] {
            assert_eq!(assignment(other), [], "{other:?}");
        }
    }
}
