//! The committed offsets of one group: what to remember, what to tell, what to forget.
//!
//! Pure. Owns the offsets that are durable; not those on their way to the log (`partition`), nor whether the sender may
//! commit (`group`). Always: an offset is kept as its record has it, so that a restart changes nothing; while a group rebalances
//! none of its offsets expires. Source: Kafka's OffsetCommit, OffsetFetch, OffsetDelete; KIP-211 (when offsets of living and empty
//! groups expire), KIP-186, KIP-320 (leader epochs).

use std::collections::BTreeMap;
use std::time::Duration;

use super::command::{CommitRequest, Committed, FetchWhich, FetchedOffset, GroupError, GroupSettings, PartitionResult};
use super::group::{Group, State};
use crate::types::{PartitionIndex, TimestampMs, TopicId, TopicName};

/// A partition's name as an owned key.
pub(super) type Place = (TopicName, PartitionIndex);

/// What a commit amounts to: the answer once it is durable, and the offsets to write.
#[derive(Debug)]
pub(super) struct CommitPlan {
    pub(super) results: Vec<PartitionResult>,
    pub(super) offsets: Vec<(Place, Committed)>,
}

/// Plans a commit that the group allows: all partitions but those whose note is too long.
pub(super) fn plan_commit(request: CommitRequest, wall: TimestampMs, settings: &GroupSettings) -> CommitPlan {
    let expires_at = request.retention.map(|retention| wall.saturating_add(milliseconds(retention)));
    let mut plan = CommitPlan { results: Vec::with_capacity(request.partitions.len()), offsets: Vec::new() };
    for wanted in request.partitions {
        let too_long = is_longer(&wanted.metadata, settings.offset_metadata_max);
        plan.results.push(PartitionResult {
            topic: wanted.topic.clone(),
            partition: wanted.partition,
            error: too_long.then_some(GroupError::OffsetMetadataTooLarge),
        });
        if !too_long {
            let committed = Committed {
                offset: wanted.offset,
                leader_epoch: wanted.leader_epoch,
                metadata: wanted.metadata,
                committed_at: wall,
                expires_at,
                topic_id: wanted.topic_id,
            };
            plan.offsets.push(((wanted.topic, wanted.partition), written_form(committed)));
        }
    }
    plan
}

/// What of an offset survives its record: one with its own expiry is written in a version without epoch and topic id. Kept
/// the same in memory, so that a restart changes nothing.
fn written_form(committed: Committed) -> Committed {
    match committed.expires_at {
        Some(_) => Committed { leader_epoch: None, topic_id: TopicId::ZERO, ..committed },
        None => committed,
    }
}

/// Whether `text` has more UTF-16 units than `max`, as Java counts.
fn is_longer(text: &str, max: usize) -> bool {
    text.len() > max && text.encode_utf16().count() > max
}

/// The durable offsets of one group.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Offsets {
    by_topic: BTreeMap<TopicName, BTreeMap<PartitionIndex, Committed>>,
}

impl Offsets {
    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub(super) fn contains(&self, (topic, partition): &Place) -> bool {
        self.by_topic.get(topic).is_some_and(|partitions| partitions.contains_key(partition))
    }

    pub(super) fn set(&mut self, (topic, partition): Place, committed: Committed) {
        self.by_topic.entry(topic).or_default().insert(partition, committed);
    }

    pub(super) fn remove(&mut self, (topic, partition): &Place) {
        if let Some(partitions) = self.by_topic.get_mut(topic) {
            partitions.remove(partition);
            if partitions.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    /// Every partition with an offset, in order.
    pub(super) fn places(&self) -> Vec<Place> {
        self.iter().map(|(topic, partition, _)| (topic.clone(), partition)).collect()
    }

    /// Those of these topics.
    pub(super) fn places_of(&self, topics: &[TopicName]) -> Vec<Place> {
        self.iter()
            .filter(|(topic, ..)| topics.contains(topic))
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicName, PartitionIndex, &Committed)> {
        let partitions =
            |(topic, all)| BTreeMap::iter(all).map(move |(&partition, committed)| (topic, partition, committed));
        self.by_topic.iter().flat_map(partitions)
    }

    /// What an OffsetFetch is told.
    pub(super) fn fetch(&self, which: &FetchWhich) -> Vec<FetchedOffset> {
        match which {
            FetchWhich::All => self
                .iter()
                .map(|(topic, partition, committed)| FetchedOffset {
                    topic: topic.clone(),
                    partition,
                    committed: Some(committed.clone()),
                })
                .collect(),
            FetchWhich::These(places) => places
                .iter()
                .map(|(topic, topic_id, partition)| FetchedOffset {
                    topic: topic.clone(),
                    partition: *partition,
                    committed: self.get(topic, *partition).filter(|known| is_of(known, *topic_id)).cloned(),
                })
                .collect(),
        }
    }

    fn get(&self, topic: &TopicName, partition: PartitionIndex) -> Option<&Committed> {
        self.by_topic.get(topic)?.get(&partition)
    }

    /// The offsets nobody needs any more at `wall`. An offset that named its own retention keeps to it; the others live
    /// for `retention` from when the group became empty, from their commit if nobody ever joined the group, and from their
    /// commit if the group's consumers are at work on other topics. While a group rebalances nothing expires.
    pub(super) fn expired(&self, group: &Group, wall: TimestampMs, retention: Duration) -> Vec<Place> {
        let counts_from = |committed: &Committed| match group.state() {
            State::Empty if group.is_simple() => Some(committed.committed_at),
            State::Empty => Some(group.state_since().unwrap_or(committed.committed_at)),
            State::Stable => group.subscribed().map(|_| committed.committed_at),
            State::PreparingRebalance | State::CompletingRebalance => None,
        };
        let is_expired = |topic: &TopicName, committed: &Committed| {
            let Some(from) = counts_from(committed) else { return false };
            let ends = committed.expires_at.unwrap_or_else(|| from.saturating_add(milliseconds(retention)));
            wall >= ends && !group.is_subscribed(topic)
        };
        self.iter()
            .filter(|(topic, _, committed)| is_expired(topic, committed))
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect()
    }
}

/// Whether an offset was committed for the topic of this id. Neither side need know the id.
fn is_of(committed: &Committed, topic_id: Option<TopicId>) -> bool {
    committed.topic_id == TopicId::ZERO || topic_id.is_none_or(|wanted| wanted == committed.topic_id)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
