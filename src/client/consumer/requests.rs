//! The consumer's requests in Kafka's messages, and the answers in its own words.
//!
//! Shell. Owns the exchanges of a consumer: group, commits, offsets, epochs, fetch. Always true: each is one attempt; an
//! answer that lacks what was asked for is no answer to that part of it; both forms of messages that changed their shape
//! (topic ids in Fetch, several groups in OffsetFetch, several members in LeaveGroup) are filled in and read.
//! Source: Kafka's protocol guide.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use super::driver::{Driver, refused};
use super::listener::{OffsetAndMetadata, OffsetAndTimestamp, Offsets};
use crate::client::consumer_error::ConsumerError;
use crate::client::error::{CallError, ClientError};
use crate::client::fetcher::{Digest, FetchTarget, Lookup, Position, Target};
use crate::client::membership::{Identity, Join, Joined, Refused, Sync};
use crate::client::network::{Reply, Target as To};
use crate::client::settings::ConsumerSettings;
use crate::protocol::admin::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use crate::protocol::fetch::{FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic};
use crate::protocol::groups::{
    HeartbeatRequest, JoinGroupProtocol, JoinGroupRequest, LeaveGroupRequest, LeavingMember, OffsetCommitPartition,
    OffsetCommitRequest, OffsetCommitTopic, OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic,
    SyncGroupAssignment, SyncGroupRequest,
};
use crate::protocol::operator::{OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic};
use crate::protocol::{ErrorCode, Request};
use crate::types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition};

/// Of consumers, in JoinGroup.
const PROTOCOL_TYPE: &str = "consumer";

/// From this version on, topics stand in Fetch by their ids.
const FETCH_BY_ID: i16 = 13;

/// From this version on, OffsetFetch names several groups.
const OFFSET_FETCH_OF_GROUPS: i16 = 8;

impl Driver {
    /// One request that the group's coordinator answers at once. It is looked for again after one that it did not answer: it may
    /// be another broker by now, and nobody else would find out for a consumer that is no member.
    async fn ask_coordinator<'a, R>(&self, request: &R, time: Duration) -> Result<Reply, ClientError>
    where
        R: Request<'a> + Clone,
        R::Owned: Request<'static>,
    {
        let coordinator = self.network.coordinator(self.group(), time).await?;
        let reply = self.network.call(self.coordinator_lane(coordinator), request, time).await;
        Ok(reply.inspect_err(|_| self.network.forget_coordinator(self.group()))?)
    }

    pub(super) async fn join(&self, join: &Join) -> Result<Joined, Refused> {
        let protocol = |(assignor, metadata): &(crate::client::assignor::Assignor, Bytes)| JoinGroupProtocol {
            name: assignor.name().into(),
            metadata: metadata.to_vec().into(),
        };
        let request = JoinGroupRequest {
            group_id: self.group().into(),
            session_timeout_ms: millis(self.settings.session_timeout),
            rebalance_timeout_ms: millis(self.settings.max_poll_interval),
            member_id: Arc::clone(&join.member_id).into(),
            group_instance_id: self.settings.group_instance_id.as_deref().map(Into::into),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: join.protocols.iter().map(protocol).collect(),
            reason: Some(join.reason.into()),
        };
        let asked = async {
            let coordinator = self.network.coordinator(self.group(), self.settings.client.request_timeout).await?;
            let reply = self.network.call(To::Coordinator(coordinator), &request, join.timeout).await?;
            let answer = reply.read::<JoinGroupRequest<'_>>()?;
            if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED {
                return Ok(Err(Refused::TakeId(answer.member_id.to_shared())));
            }
            if answer.error_code.is_error() {
                return Ok(Err(Refused::Code(answer.error_code)));
            }
            Ok::<_, ClientError>(Ok(Joined {
                generation: answer.generation_id,
                protocol: answer.protocol_name.as_deref().unwrap_or_default().into(),
                leader: answer.leader.to_shared(),
                member_id: answer.member_id.to_shared(),
                skip_assignment: answer.skip_assignment,
                members: answer
                    .members
                    .iter()
                    .map(|member| {
                        let instance = member.group_instance_id.as_ref().map(|instance| instance.to_shared());
                        (member.member_id.to_shared(), instance, Bytes::copy_from_slice(&member.metadata))
                    })
                    .collect(),
            }))
        };
        asked.await.unwrap_or_else(|error| Err(refused(&error)))
    }

    pub(super) async fn sync(&self, sync: &Sync) -> Result<Bytes, Refused> {
        let share = |(member, share): &(Arc<str>, Bytes)| SyncGroupAssignment {
            member_id: Arc::clone(member).into(),
            assignment: share.to_vec().into(),
        };
        let request = SyncGroupRequest {
            group_id: self.group().into(),
            generation_id: sync.identity.generation,
            member_id: Arc::clone(&sync.identity.member_id).into(),
            group_instance_id: self.settings.group_instance_id.as_deref().map(Into::into),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(sync.assignor.name().into()),
            assignments: sync.assignments.iter().map(share).collect(),
        };
        let asked = async {
            let coordinator = self.network.coordinator(self.group(), self.settings.client.request_timeout).await?;
            // It waits for the leader, who has as long as a join for it.
            let time = self.settings.client.request_timeout.max(self.settings.max_poll_interval);
            let reply = self.network.call(To::Coordinator(coordinator), &request, time).await?;
            let answer = reply.read::<SyncGroupRequest<'_>>()?;
            if answer.error_code.is_error() {
                return Ok(Err(Refused::Code(answer.error_code)));
            }
            Ok::<_, ClientError>(Ok(Bytes::copy_from_slice(&answer.assignment)))
        };
        asked.await.unwrap_or_else(|error| Err(refused(&error)))
    }

    pub(super) async fn heartbeat(&self, identity: &Identity) -> Result<(), Refused> {
        let request = HeartbeatRequest {
            group_id: self.group().into(),
            generation_id: identity.generation,
            member_id: Arc::clone(&identity.member_id).into(),
            group_instance_id: self.settings.group_instance_id.as_deref().map(Into::into),
        };
        let asked = async {
            // One that is not answered within a session is worth nothing.
            let time = self.settings.client.request_timeout.min(self.settings.session_timeout);
            let reply = self.ask_coordinator(&request, time).await?;
            let code = reply.read::<HeartbeatRequest<'_>>()?.error_code;
            Ok::<_, ClientError>(if code.is_error() { Err(Refused::Code(code)) } else { Ok(()) })
        };
        asked.await.unwrap_or_else(|error| Err(refused(&error)))
    }

    pub(super) async fn leave(
        &self,
        member_id: &Arc<str>,
        reason: &'static str,
        time: Duration,
    ) -> Result<(), ClientError> {
        let instance = || self.settings.group_instance_id.as_deref().map(Into::into);
        let member = LeavingMember {
            member_id: Arc::clone(member_id).into(),
            group_instance_id: instance(),
            reason: Some(reason.into()),
        };
        let request = LeaveGroupRequest {
            group_id: self.group().into(),
            member_id: Arc::clone(member_id).into(),
            members: vec![member],
        };
        self.ask_coordinator(&request, time).await?;
        Ok(())
    }

    /// One attempt. Errors: the worst code of any partition.
    pub(super) async fn commit_once(
        &self,
        offsets: &Offsets,
        identity: Option<&Identity>,
        time: Duration,
    ) -> Result<(), ClientError> {
        let mut topics: Vec<OffsetCommitTopic<'_>> = Vec::new();
        for (partition, offset) in offsets {
            if topics.last().is_none_or(|topic| *topic.name != *partition.topic) {
                topics.push(OffsetCommitTopic { name: (&*partition.topic).into(), partitions: Vec::new() });
            }
            let topic = topics.last_mut().expect("one was just added");
            topic.partitions.push(OffsetCommitPartition {
                partition_index: partition.partition.value(),
                committed_offset: offset.offset.value(),
                committed_leader_epoch: offset.leader_epoch.map_or(-1, LeaderEpoch::value),
                committed_metadata: Some(offset.metadata.as_str().into()),
            });
        }
        let request = OffsetCommitRequest {
            group_id: self.group().into(),
            generation_id_or_member_epoch: identity.map_or(-1, |identity| identity.generation),
            member_id: identity.map_or("".into(), |identity| Arc::clone(&identity.member_id)).into(),
            group_instance_id: identity.and_then(|_| self.settings.group_instance_id.as_deref()).map(Into::into),
            topics,
            ..Default::default()
        };
        let reply = self.ask_coordinator(&request, time).await?;
        let answer = reply.read::<OffsetCommitRequest<'_>>()?;
        let mut worst: Option<ClientError> = None;
        for topic in &answer.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.error_code.is_error()) {
                // A final refusal of one outweighs a passing one of another.
                if worst.as_ref().is_none_or(|worst| worst.retriable() && !partition.error_code.retriable()) {
                    let what = format_args!(
                        "committing {}-{} for group {}",
                        topic.name,
                        partition.partition_index,
                        self.group()
                    );
                    worst = Some(ClientError::broker(what, partition.error_code, None));
                }
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// One attempt; partitions without a committed offset are missing in the answer.
    pub(super) async fn committed_once(
        &self,
        partitions: &[TopicPartition],
        time: Duration,
    ) -> Result<Offsets, ConsumerError> {
        if self.settings.group_id.is_none() {
            return Err(ConsumerError::Misuse("committed offsets need a group.id"));
        }
        let mut by_topic: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
        for partition in partitions {
            by_topic.entry(&partition.topic).or_default().push(partition.partition.value());
        }
        let topics: Vec<OffsetFetchTopic<'_>> = by_topic
            .into_iter()
            .map(|(topic, partition_indexes)| OffsetFetchTopic { name: (&**topic).into(), partition_indexes })
            .collect();
        let group =
            OffsetFetchGroup { group_id: self.group().into(), topics: Some(topics.clone()), ..Default::default() };
        let request = OffsetFetchRequest {
            group_id: self.group().into(),
            topics: Some(topics),
            groups: vec![group],
            require_stable: true,
        };
        let reply = self.ask_coordinator(&request, time).await?;
        let answer = reply.read::<OffsetFetchRequest<'_>>()?;
        let (code, topics) = if reply.version >= OFFSET_FETCH_OF_GROUPS {
            let group = answer.groups.iter().find(|group| *group.group_id == *self.group());
            group.map_or((ErrorCode::UNKNOWN_SERVER_ERROR, &answer.topics), |group| (group.error_code, &group.topics))
        } else {
            (answer.error_code, &answer.topics)
        };
        self.check_group(code)?;
        let mut found = Offsets::new();
        for topic in topics {
            let name = topic.name.to_shared();
            for partition in &topic.partitions {
                self.check_group(partition.error_code)?;
                let index = PartitionIndex::new(partition.partition_index);
                if let (Some(index), Some(offset)) = (index, Offset::new(partition.committed_offset)) {
                    let committed = OffsetAndMetadata {
                        offset,
                        leader_epoch: LeaderEpoch::new(partition.committed_leader_epoch),
                        metadata: partition.metadata.as_deref().unwrap_or_default().to_owned(),
                    };
                    found.insert(TopicPartition { topic: Arc::clone(&name), partition: index }, committed);
                }
            }
        }
        Ok(found)
    }

    fn check_group(&self, code: ErrorCode) -> Result<(), ClientError> {
        if !code.is_error() {
            return Ok(());
        }
        self.network.coordinator_failed(self.group(), code);
        Err(ClientError::broker(format_args!("committed offsets of group {}", self.group()), code, None))
    }

    /// One attempt, of one leader; `None`: no record is so young.
    pub(super) async fn list_offsets(
        &self,
        broker: BrokerId,
        wanted: &[(TopicPartition, Option<LeaderEpoch>, Lookup)],
        time: Duration,
    ) -> Result<BTreeMap<TopicPartition, Result<Option<OffsetAndTimestamp>, ErrorCode>>, ClientError> {
        let mut topics: BTreeMap<&TopicName, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (partition, epoch, lookup) in wanted {
            topics.entry(&partition.topic).or_default().push(ListOffsetsPartition {
                partition_index: partition.partition.value(),
                current_leader_epoch: epoch.map_or(-1, LeaderEpoch::value),
                timestamp: lookup.wire(),
            });
        }
        let topic =
            |(name, partitions): (&TopicName, _)| ListOffsetsTopic { name: Arc::clone(name).into(), partitions };
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: self.settings.isolation_level.wire(),
            topics: topics.into_iter().map(topic).collect(),
            timeout_ms: millis(time),
        };
        let reply = self.network.call(To::Broker(broker), &request, time).await?;
        let answer = reply.read::<ListOffsetsRequest<'_>>()?;
        let mut found = BTreeMap::new();
        for topic in &answer.topics {
            let name = topic.name.to_shared();
            for partition in &topic.partitions {
                let Some(index) = PartitionIndex::new(partition.partition_index) else { continue };
                let offset = Offset::new(partition.offset).map(|offset| OffsetAndTimestamp {
                    offset,
                    timestamp: Some(partition.timestamp).filter(|timestamp| *timestamp >= 0),
                    leader_epoch: LeaderEpoch::new(partition.leader_epoch),
                });
                let code = partition.error_code;
                let answer = if code.is_error() { Err(code) } else { Ok(offset) };
                found.insert(TopicPartition { topic: Arc::clone(&name), partition: index }, answer);
            }
        }
        Ok(found)
    }

    /// Where epochs end, by leader; `None`: the broker does not serve the question.
    pub(super) async fn epoch_ends(
        &self,
        broker: BrokerId,
        targets: &[(Target, LeaderEpoch)],
    ) -> Result<Option<BTreeMap<TopicPartition, Result<Option<Position>, ErrorCode>>>, ClientError> {
        let mut topics: BTreeMap<&TopicName, Vec<OffsetForLeaderPartition>> = BTreeMap::new();
        for (target, epoch) in targets {
            topics.entry(&target.partition.topic).or_default().push(OffsetForLeaderPartition {
                partition: target.partition.partition.value(),
                current_leader_epoch: target.leader.epoch.map_or(-1, LeaderEpoch::value),
                leader_epoch: epoch.value(),
            });
        }
        let topic =
            |(name, partitions): (&TopicName, _)| OffsetForLeaderTopic { topic: Arc::clone(name).into(), partitions };
        let request = OffsetForLeaderEpochRequest {
            // A consumer's, as Java's client sends it; followers give their own id.
            replica_id: -1,
            topics: topics.into_iter().map(topic).collect(),
        };
        let time = self.settings.client.request_timeout;
        let reply = match self.network.call(To::Broker(broker), &request, time).await {
            Ok(reply) => reply,
            Err(CallError::UnsupportedVersion { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let answer = reply.read::<OffsetForLeaderEpochRequest<'_>>()?;
        let mut found = BTreeMap::new();
        for topic in &answer.topics {
            let name = topic.topic.to_shared();
            for partition in &topic.partitions {
                let Some(index) = PartitionIndex::new(partition.partition) else { continue };
                let end = match (Offset::new(partition.end_offset), LeaderEpoch::new(partition.leader_epoch)) {
                    (Some(offset), Some(epoch)) => Some(Position { offset, leader_epoch: Some(epoch) }),
                    _ => None,
                };
                let code = partition.error_code;
                let answer = if code.is_error() { Err(code) } else { Ok(end) };
                found.insert(TopicPartition { topic: Arc::clone(&name), partition: index }, answer);
            }
        }
        Ok(Some(found))
    }
}

/// A fetch of these, in their order as far as partitions of one topic stand together.
pub(super) fn fetch<'a>(targets: &'a [FetchTarget], settings: &'a ConsumerSettings) -> FetchRequest<'a> {
    let mut topics: SmallVec<[FetchTopic<'a>; 1]> = SmallVec::new();
    for (topic, of_topic) in by_topic(targets) {
        let leader = targets[of_topic[0]].target.leader;
        let partition = |&index: &usize| {
            let FetchTarget { target, from, bytes_max } = &targets[index];
            FetchPartition {
                partition: target.partition.partition.value(),
                current_leader_epoch: target.leader.epoch.map_or(-1, LeaderEpoch::value),
                fetch_offset: from.offset.value(),
                partition_max_bytes: *bytes_max,
                ..Default::default()
            }
        };
        topics.push(FetchTopic {
            topic: (&**topic).into(),
            topic_id: leader.topic_id.unwrap_or_default(),
            partitions: of_topic.iter().map(partition).collect(),
        });
    }
    FetchRequest {
        max_wait_ms: millis(settings.fetch_max_wait),
        min_bytes: settings.fetch_min_bytes,
        max_bytes: settings.fetch_max_bytes,
        isolation_level: settings.isolation_level.wire(),
        topics,
        rack_id: settings.client.client_rack.as_deref().unwrap_or_default().into(),
        ..Default::default()
    }
}

/// The targets' topics as they first appear, each with the places of its partitions.
fn by_topic(targets: &[FetchTarget]) -> Vec<(&TopicName, Vec<usize>)> {
    let mut topics: Vec<(&TopicName, Vec<usize>)> = Vec::new();
    let mut place: BTreeMap<&TopicName, usize> = BTreeMap::new();
    for (index, target) in targets.iter().enumerate() {
        let topic = &target.target.partition.topic;
        let at = *place.entry(topic).or_insert_with(|| {
            topics.push((topic, Vec::new()));
            topics.len() - 1
        });
        topics[at].1.push(index);
    }
    topics
}

/// What a fetch brought.
pub(super) struct FetchAnswer {
    /// With the place of each in the request.
    pub(super) partitions: Vec<(usize, FetchPartitionResponse, Digest)>,
    /// Newer leaders, by the brokers' own word.
    pub(super) leaders: Vec<(TopicPartition, BrokerId, LeaderEpoch)>,
    /// Where these are: id, host, port.
    pub(super) brokers: Vec<(i32, String, i32)>,
}

/// Reads an answer and goes through its records. Errors: it cannot be read, or the whole fetch was refused.
pub(super) fn read_fetch(
    reply: &Reply,
    targets: &[FetchTarget],
    settings: &ConsumerSettings,
) -> Result<FetchAnswer, ClientError> {
    let answer = reply.read::<FetchRequest<'_>>()?;
    if answer.error_code.is_error() {
        return Err(ClientError::broker("fetching records", answer.error_code, None));
    }
    let asked = by_topic(targets);
    let mut fetched = FetchAnswer { partitions: Vec::new(), leaders: Vec::new(), brokers: Vec::new() };
    for (place, topic) in answer.responses.into_iter().enumerate() {
        let is_it = |(name, of_topic): &(&TopicName, Vec<usize>)| match reply.version >= FETCH_BY_ID {
            true => targets[of_topic[0]].target.leader.topic_id == Some(topic.topic_id),
            false => ***name == *topic.topic,
        };
        // Brokers answer in the order of the question, or leave some out.
        let here = asked.get(place).filter(|topic| is_it(topic)).or_else(|| asked.iter().find(|topic| is_it(topic)));
        let Some((_, of_topic)) = here else { continue };
        for (place, partition) in topic.partitions.into_iter().enumerate() {
            let is_it =
                |index: &&usize| targets[**index].target.partition.partition.value() == partition.partition_index;
            let index = of_topic.get(place).filter(is_it).or_else(|| of_topic.iter().find(is_it));
            let Some(&index) = index else { continue };
            let target = &targets[index];
            let leader = &partition.current_leader;
            if let (Some(id), Some(epoch)) = (BrokerId::new(leader.leader_id), LeaderEpoch::new(leader.leader_epoch)) {
                fetched.leaders.push((target.target.partition.clone(), id, epoch));
            }
            let records = partition.records.map(|records| reply.records(records)).unwrap_or_default();
            let aborted = partition.aborted_transactions.as_deref().unwrap_or_default();
            let digest = Digest::of(&records, target.from, settings.isolation_level, aborted, settings.check_crcs);
            fetched.partitions.push((index, partition, digest));
        }
    }
    let brokers = answer.node_endpoints.iter();
    fetched.brokers = brokers.map(|broker| (broker.node_id, broker.host.to_string(), broker.port)).collect();
    Ok(fetched)
}

/// As the wire counts time.
fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}
