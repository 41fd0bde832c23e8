//! What members of a consumer group tell each other: subscriptions, assignments, the sticky assignors' own data.
//!
//! Pure. Owns the encoding inside the opaque bytes of JoinGroup and SyncGroup. Always true: what a member of any version
//! writes is read, later versions as the newest known; absurd bytes are an error and take no memory. Source: Kafka's
//! ConsumerProtocolSubscription and ConsumerProtocolAssignment (versions 0–3), StickyAssignor's user data (versions 0–1),
//! CooperativeStickyAssignor's (version 0).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Subscription;
use crate::protocol::notation::{NEVER, message};
use crate::protocol::values::Blob;
use crate::protocol::wire::{Form, Result};
use crate::protocol::{Reader, Str, Wire, WireError, Writer};
use crate::types::{PartitionIndex, TopicName, TopicPartition};

/// The newest version of both messages, which we write.
const VERSION: i16 = 3;

message! {
    /// A subscription without the version before it.
    pub struct SubscriptionData<'a> {
        topics: Vec<Str<'a>>,
        user_data: Option<Blob<'a>> [0.., null 0..],
        owned_partitions: Vec<TopicPartitions<'a>> [1..],
        generation_id: i32 [2..] = -1,
        rack_id: Option<Str<'a>> [3.., null 3..],
    }

    /// An assignment without the version before it.
    pub struct AssignmentData<'a> {
        assigned_partitions: Vec<TopicPartitions<'a>>,
        user_data: Option<Blob<'a>> [0.., null 0..],
    }

    /// Partitions of one topic.
    pub struct TopicPartitions<'a> {
        topic: Str<'a>,
        partitions: Vec<i32>,
    }

    /// What a sticky member had.
    pub struct StickyData<'a> {
        previous_assignment: Vec<TopicPartitions<'a>>,
        generation: i32 [1..] = -1,
    }
}

/// For the metadata of a JoinGroup protocol.
pub fn encode_subscription(subscription: &Subscription) -> Bytes {
    let data = SubscriptionData {
        topics: subscription.topics.iter().map(|topic| Arc::clone(topic).into()).collect(),
        user_data: subscription.user_data.as_deref().map(Into::into),
        owned_partitions: by_topic(&subscription.owned),
        generation_id: subscription.generation.unwrap_or(-1),
        rack_id: subscription.rack.clone().map(Into::into),
    };
    encode_versioned(&data)
}

/// The other way. Errors: too short, a negative version, partition or count.
pub fn decode_subscription(bytes: &[u8]) -> Result<Subscription> {
    let data: SubscriptionData<'_> = decode_versioned(bytes)?;
    Ok(Subscription {
        topics: data.topics.iter().map(Str::to_shared).collect(),
        user_data: data.user_data.map(|data| Bytes::copy_from_slice(&data)),
        owned: from_topics(&data.owned_partitions)?,
        generation: Some(data.generation_id).filter(|generation| *generation >= 0),
        rack: data.rack_id.map(|rack| rack.to_shared()),
    })
}

/// For an assignment of SyncGroup.
pub fn encode_assignment(partitions: &BTreeSet<TopicPartition>) -> Bytes {
    encode_versioned(&AssignmentData { assigned_partitions: by_topic(partitions), user_data: None })
}

/// The other way. No bytes at all, which a leader that forgot a member leaves it with, are no partitions. Errors: as
/// [`decode_subscription`].
pub fn decode_assignment(bytes: &[u8]) -> Result<BTreeSet<TopicPartition>> {
    if bytes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let data: AssignmentData<'_> = decode_versioned(bytes)?;
    from_topics(&data.assigned_partitions)
}

/// User data of the sticky assignor.
pub(super) fn encode_sticky_data(had: &BTreeSet<TopicPartition>, generation: Option<i32>) -> Bytes {
    let data = StickyData { previous_assignment: by_topic(had), generation: generation.unwrap_or(-1) };
    let mut writer = Writer::new(BytesMut::new());
    data.encode(&mut writer, Form::new(1, NEVER));
    writer.finish().into_bytes().freeze()
}

/// It carries no version: the newer layout is tried first, and the older one is what remains.
pub(super) fn decode_sticky_data(bytes: &[u8]) -> Result<(BTreeSet<TopicPartition>, Option<i32>)> {
    let decode = |version| StickyData::decode(&mut Reader::new(bytes), Form::new(version, NEVER));
    let data = decode(1).or_else(|_| decode(0))?;
    Ok((from_topics(&data.previous_assignment)?, Some(data.generation).filter(|generation| *generation >= 0)))
}

/// User data of the cooperative sticky assignor: a generation, for leaders older than version 2 of the subscription.
pub(super) fn encode_cooperative_data(generation: Option<i32>) -> Bytes {
    Bytes::copy_from_slice(&generation.unwrap_or(-1).to_be_bytes())
}

pub(super) fn decode_cooperative_data(bytes: &[u8]) -> Result<Option<i32>> {
    let generation = i32::from_be_bytes(Reader::new(bytes).fixed()?);
    Ok(Some(generation).filter(|generation| *generation >= 0))
}

fn encode_versioned<'a>(data: &impl Wire<'a>) -> Bytes {
    let mut writer = Writer::new(BytesMut::new());
    writer.put(&VERSION.to_be_bytes());
    data.encode(&mut writer, Form::new(VERSION, NEVER));
    writer.finish().into_bytes().freeze()
}

/// What newer versions add stands at the end and is not looked at.
fn decode_versioned<'a, T: Wire<'a>>(bytes: &'a [u8]) -> Result<T> {
    let mut reader = Reader::new(bytes);
    let version = i16::from_be_bytes(reader.fixed()?);
    if version < 0 {
        return Err(WireError::Length);
    }
    T::decode(&mut reader, Form::new(version.min(VERSION), NEVER))
}

fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<TopicPartitions<'_>> {
    let mut topics: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.value());
    }
    let topics = topics.into_iter();
    topics.map(|(topic, partitions)| TopicPartitions { topic: (&**topic).into(), partitions }).collect()
}

fn from_topics(topics: &[TopicPartitions<'_>]) -> Result<BTreeSet<TopicPartition>> {
    let mut partitions = BTreeSet::new();
    for topic in topics {
        let name = topic.topic.to_shared();
        for &index in &topic.partitions {
            let partition = PartitionIndex::new(index).ok_or(WireError::Length)?;
            partitions.insert(TopicPartition { topic: Arc::clone(&name), partition });
        }
    }
    Ok(partitions)
}
