//! Groups and their lag, for `/api/groups` and the lag series of `/metrics`.
//!
//! Shell, on the control thread. Owns nothing: asks every shard for its groups, then the coordinator of each group, as a
//! client would. Always: a group that is still loading or gone meanwhile is left out, never guessed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::mesh::{ShardPort, ask_all};
use crate::controller::image::Image;
use crate::coordinator::command::{FetchRequest, FetchWhich, GroupAnswer, GroupCommand, ListFilter, Stability};
use crate::coordinator::partition_for;
use crate::shard::calls::{PartitionFacts, ShardAnswer, ShardCall};
use crate::shard::groups::OFFSETS_TOPIC;
use crate::shard::router;
use crate::types::{PartitionId, PartitionIndex};

/// One group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupFacts {
    /// Its id.
    pub group: String,
    /// Kafka's word for its state.
    pub state: &'static str,
    /// `consumer`, `connect`, …; empty for a group that only commits offsets.
    pub protocol_type: String,
    /// The chosen assignor.
    pub protocol: String,
    /// Who belongs to it.
    pub members: Vec<MemberFacts>,
    /// What it has committed.
    pub offsets: Vec<OffsetFacts>,
}

/// One member.
#[derive(Clone, Debug, Serialize)]
pub struct MemberFacts {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// From where.
    pub host: String,
}

/// One committed offset.
#[derive(Clone, Debug, Serialize)]
pub struct OffsetFacts {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Next offset to be read.
    pub committed: i64,
    /// Records below the high watermark that are not read yet; `None` when the partition is gone.
    pub lag: Option<i64>,
}

/// Every group of this broker, by name.
pub async fn gather(
    shards: &ShardPort,
    image: &Image,
    partitions: &[PartitionFacts],
    patience: Duration,
) -> Vec<GroupFacts> {
    let Some(topic) = image.topics.get(OFFSETS_TOPIC) else { return Vec::new() };
    let ends: HashMap<_, _> =
        partitions.iter().map(|facts| ((facts.topic.as_str(), facts.partition), facts.high_watermark)).collect();
    let filter = ListFilter { states: Vec::new(), types: Vec::new() };
    let mut names = Vec::new();
    for answer in ask_all(shards, patience, || ShardCall::ListGroups(filter.clone())).await.into_iter().flatten() {
        if let ShardAnswer::Groups(listed) = answer {
            names.extend(listed.groups.into_iter().map(|group| group.group_id));
        }
    }
    names.sort_unstable();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let index = partition_for(&name, topic.partitions.len() as u32);
        let Some(partition) = i32::try_from(index).ok().and_then(PartitionIndex::new) else { continue };
        let id = PartitionId { topic_id: topic.id, partition };
        let ask = |command| async move {
            let answer = shards.port.call(router::owner(id, shards.count), ShardCall::Group(id, Box::new(command)));
            match tokio::time::timeout(patience, answer).await {
                Ok(Ok(ShardAnswer::Group(answer))) => Some(*answer),
                _ => None,
            }
        };
        let request =
            FetchRequest { group_id: Arc::clone(&name), partitions: FetchWhich::All, stability: Stability::Durable };
        let Some(GroupAnswer::Describe(Ok(described))) = ask(GroupCommand::Describe(Arc::clone(&name))).await else {
            continue;
        };
        let Some(GroupAnswer::OffsetFetch(Ok(offsets))) = ask(GroupCommand::OffsetFetch(request)).await else {
            continue;
        };
        let offsets = offsets.into_iter().filter_map(|fetched| {
            let committed = fetched.committed?.offset;
            let partition = fetched.partition.value();
            let end = ends.get(&(&*fetched.topic, partition));
            let lag = end.map(|end| (end - committed).max(0));
            Some(OffsetFacts { topic: fetched.topic.to_string(), partition, committed, lag })
        });
        let members = described.members.into_iter().map(|member| MemberFacts {
            member_id: member.member_id.to_string(),
            instance_id: member.instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
        });
        found.push(GroupFacts {
            group: name.to_string(),
            state: described.state,
            protocol_type: described.protocol_type.to_string(),
            protocol: described.protocol.to_string(),
            members: members.collect(),
            offsets: offsets.collect(),
        });
    }
    found
}
