//! What only the leader of a partition knows: its offsets by time, its producers; and deleting records from its front.
//!
//! Shell. Owns these calls, their values, and how partitions are dealt to their leaders and tried again when those have moved.
//! Always: unless nobody answers at all, every item gets a verdict of its own, in the order of the items.
//! Source: KIP-79 (offsets by time), KIP-734 (largest timestamp), KIP-107 (deleting records), KIP-664 (producers).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{ItemError, Session, by_topic, owned};
use crate::client::error::{ClientError, metadata_is_stale};
use crate::client::network::Target;
use crate::protocol::ErrorCode;
use crate::protocol::admin::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use crate::protocol::operator::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic, DescribeProducersRequest, DescribeProducersTopic,
};
use crate::types::{BrokerId, PartitionIndex, TimestampMs};

/// Which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The log start.
    Earliest,
    /// The high watermark, or the last stable offset: the offset after the last readable record.
    Latest,
    /// That of the record with the largest timestamp.
    MaxTimestamp,
    /// The first on the broker's own disk, where older ones are in a remote tier.
    EarliestLocal,
    /// The last in a remote tier.
    LatestTiered,
    /// The first record that is not older.
    Timestamp(TimestampMs),
}

impl OffsetSpec {
    fn wire(self) -> i64 {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::MaxTimestamp => -3,
            Self::EarliestLocal => -4,
            Self::LatestTiered => -5,
            Self::Timestamp(at) => at.max(0),
        }
    }
}

/// An offset that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedOffset {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// `None` when there is no such record.
    pub offset: Option<i64>,
    /// Of the record found by time, in milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// Of the record found.
    pub leader_epoch: Option<i32>,
    /// Why it is not known.
    pub error: Option<ItemError>,
}

/// Up to where records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsBefore {
    /// Those before that offset.
    Offset(i64),
    /// All that can be read now.
    HighWatermark,
}

/// What became of records to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeletedRecords {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// Where the partition begins now.
    pub low_watermark: Option<i64>,
    /// Why nothing was deleted.
    pub error: Option<ItemError>,
}

/// The producers of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionProducers {
    /// The topic.
    pub topic: String,
    /// The partition within it.
    pub partition: i32,
    /// By id.
    pub producers: Vec<ActiveProducer>,
    /// Why they are not known.
    pub error: Option<ItemError>,
}

/// One producer a partition knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveProducer {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i32,
    /// Of the last record; `None` when not known.
    pub last_sequence: Option<i32>,
    /// Of the last record, milliseconds since 1970.
    pub last_timestamp: Option<i64>,
    /// Of the coordinator of its last transaction.
    pub coordinator_epoch: Option<i32>,
    /// Where its open transaction begins; `None` when none is open.
    pub transaction_start_offset: Option<i64>,
}

/// With the default back-off a third of a second, longer than any broker needs to learn of a new topic.
const UNKNOWN_TOPIC_RETRIES: u32 = 2;

/// Topic and partition.
type Place = (String, i32);
/// What a leader said of one partition, or why nothing.
type Verdict<O> = Result<O, ItemError>;

impl Session {
    /// Deals the items to the leaders of their partitions and collects the answers, in the order of the items. What failed in a
    /// way that may pass is tried again until time is up; then it is told as it failed last.
    async fn by_leader<I: Clone, O>(
        &self,
        what: &str,
        items: Vec<(Place, I)>,
        ask: impl AsyncFn(BrokerId, Vec<(Place, I)>) -> Result<BTreeMap<Place, Verdict<O>>, ClientError>,
    ) -> Result<Vec<(Place, Verdict<O>)>, ClientError> {
        let mut done: Vec<Option<Verdict<O>>> = items.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..items.len()).collect();
        let mut failures = 0;
        // What was known before the call may have been changed by another client, or by a call before.
        for ((topic, _), _) in &items {
            self.network.cluster_mut(|cluster| cluster.invalidate(topic));
        }
        while !open.is_empty() {
            let topics: BTreeSet<&str> =
                open.iter().filter_map(|at| items.get(*at)).map(|((topic, _), _)| topic.as_str()).collect();
            let topics: Vec<&str> = topics.into_iter().collect();
            let known = self.network.metadata_for(&topics, self.left()).await;
            if let (Err(error), 0) = (&known, failures) {
                return Err(error.clone());
            }
            let verdicts = self.deal(&items, &open, &ask).await;
            open.clear();
            let mut last = None;
            for (at, verdict) in verdicts {
                if let Err(error) = &verdict
                    && worth_another_try(error, failures)
                {
                    if let Some(((topic, _), _)) = items.get(at).filter(|_| stale(error.code())) {
                        self.network.invalidate(topic);
                    }
                    open.push(at);
                    last = Some(error.clone());
                }
                if let Some(place) = done.get_mut(at) {
                    *place = Some(verdict);
                }
            }
            let Some(last) = last else { break };
            failures += 1;
            let last = ClientError::broker(what, last.code(), Some(&last.message));
            // No time left: the verdicts stand as they are.
            if failures > self.retries || self.pause(what, failures, last).await.is_err() {
                break;
            }
        }
        let told = |((place, _), verdict): ((Place, I), Option<Verdict<O>>)| {
            let unheard = || Err(ItemError::new(ErrorCode::REQUEST_TIMED_OUT, None));
            (place, verdict.unwrap_or_else(unheard))
        };
        Ok(items.into_iter().zip(done).map(told).collect())
    }

    /// Asks the leaders once, each for all of its items that are open. What they say of each.
    async fn deal<I: Clone, O>(
        &self,
        items: &[(Place, I)],
        open: &[usize],
        ask: &impl AsyncFn(BrokerId, Vec<(Place, I)>) -> Result<BTreeMap<Place, Verdict<O>>, ClientError>,
    ) -> Vec<(usize, Verdict<O>)> {
        let mut by_leader: BTreeMap<BrokerId, Vec<usize>> = BTreeMap::new();
        let mut verdicts: Vec<(usize, Verdict<O>)> = Vec::new();
        for at in open {
            match items.get(*at).map(|((topic, partition), _)| self.leader(topic, *partition)) {
                Some(Ok(leader)) => by_leader.entry(leader).or_default().push(*at),
                Some(Err(error)) => verdicts.push((*at, Err(error))),
                None => {}
            }
        }
        for (leader, places) in by_leader {
            let asked: Vec<_> = places.iter().filter_map(|at| items.get(*at).cloned()).collect();
            match ask(leader, asked).await {
                Ok(mut answers) => verdicts.extend(places.into_iter().filter_map(|at| {
                    let answer = answers.remove(&items.get(at)?.0);
                    let missing = || {
                        Err(ItemError::new(ErrorCode::UNKNOWN_SERVER_ERROR, Some("the broker's answer leaves it out")))
                    };
                    Some((at, answer.unwrap_or_else(missing)))
                })),
                Err(error) => verdicts.extend(places.into_iter().map(|at| (at, Err((&error).into())))),
            }
        }
        verdicts
    }

    fn leader(&self, topic: &str, partition: i32) -> Result<BrokerId, ItemError> {
        let cluster = self.network.cluster();
        let unknown = || ItemError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, None);
        let known = cluster.topic(topic).ok_or_else(unknown)?;
        if let Some(code) = known.error {
            return Err(ItemError::new(code, None));
        }
        let index = PartitionIndex::new(partition);
        let partition = index.and_then(|index| known.partition(index));
        let partition = partition.ok_or_else(unknown)?;
        partition.leader.ok_or_else(|| ItemError::new(ErrorCode::LEADER_NOT_AVAILABLE, None))
    }
}

/// Also when the leader could not be reached at all: another one may lead by now.
fn stale(code: ErrorCode) -> bool {
    metadata_is_stale(code) || code == ErrorCode::NETWORK_EXCEPTION
}

/// A topic created a moment ago may be unknown to the broker that is asked; one that is unknown for longer is not there, and whoever
/// mistyped its name wants to know soon.
fn worth_another_try(error: &ItemError, failures: u32) -> bool {
    error.retriable && (error.code() != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION || failures < UNKNOWN_TOPIC_RETRIES)
}

fn placed<I>(items: Vec<(String, i32, I)>) -> Vec<(Place, I)> {
    items.into_iter().map(|(topic, partition, item)| ((topic, partition), item)).collect()
}

fn grouped<I>(items: Vec<(Place, I)>) -> Vec<(String, Vec<(i32, I)>)> {
    by_topic(items.into_iter().map(|((topic, partition), item)| (topic, (partition, item))))
}

pub(super) async fn list_offsets(
    session: Session,
    partitions: Vec<(String, i32, OffsetSpec)>,
    read_committed: bool,
) -> Result<Vec<ListedOffset>, ClientError> {
    let ask = async |leader: BrokerId, items: Vec<(Place, OffsetSpec)>| {
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(read_committed),
            topics: grouped(items)
                .into_iter()
                .map(|(name, partitions)| ListOffsetsTopic {
                    name: name.into(),
                    partitions: partitions
                        .into_iter()
                        .map(|(partition_index, spec)| ListOffsetsPartition {
                            partition_index,
                            timestamp: spec.wire(),
                            ..Default::default()
                        })
                        .collect(),
                })
                .collect(),
            timeout_ms: session.left_ms(),
        };
        let reply = session.ask(Target::Broker(leader), &request).await?;
        let answer = reply.read::<ListOffsetsRequest<'_>>()?;
        let mut verdicts = BTreeMap::new();
        for topic in &answer.topics {
            for one in &topic.partitions {
                let verdict = match ItemError::of(one.error_code, None) {
                    Some(error) => Err(error),
                    None => Ok((one.offset, one.timestamp, one.leader_epoch)),
                };
                verdicts.insert((topic.name.to_string(), one.partition_index), verdict);
            }
        }
        Ok(verdicts)
    };
    let answered = session.by_leader("listing offsets", placed(partitions), ask).await?;
    let listed = |((topic, partition), verdict): (Place, Verdict<(i64, i64, i32)>)| {
        let (found, error) = match verdict {
            Ok(found) => (found, None),
            Err(error) => ((-1, -1, -1), Some(error)),
        };
        ListedOffset {
            topic,
            partition,
            offset: (found.0 >= 0).then_some(found.0),
            timestamp: (found.1 >= 0).then_some(found.1),
            leader_epoch: (found.2 >= 0).then_some(found.2),
            error,
        }
    };
    Ok(answered.into_iter().map(listed).collect())
}

pub(super) async fn delete_records(
    session: Session,
    partitions: Vec<(String, i32, RecordsBefore)>,
) -> Result<Vec<DeletedRecords>, ClientError> {
    let ask = async |leader: BrokerId, items: Vec<(Place, RecordsBefore)>| {
        let request = DeleteRecordsRequest {
            topics: grouped(items)
                .into_iter()
                .map(|(name, partitions)| DeleteRecordsTopic {
                    name: name.into(),
                    partitions: partitions
                        .into_iter()
                        .map(|(partition_index, before)| DeleteRecordsPartition {
                            partition_index,
                            offset: match before {
                                RecordsBefore::Offset(offset) => offset,
                                RecordsBefore::HighWatermark => -1,
                            },
                        })
                        .collect(),
                })
                .collect(),
            timeout_ms: session.left_ms(),
        };
        let reply = session.ask(Target::Broker(leader), &request).await?;
        let answer = reply.read::<DeleteRecordsRequest<'_>>()?;
        let mut verdicts = BTreeMap::new();
        for topic in &answer.topics {
            for one in &topic.partitions {
                let verdict = match ItemError::of(one.error_code, None) {
                    Some(error) => Err(error),
                    None => Ok(one.low_watermark),
                };
                verdicts.insert((topic.name.to_string(), one.partition_index), verdict);
            }
        }
        Ok(verdicts)
    };
    let answered = session.by_leader("deleting records", placed(partitions), ask).await?;
    let deleted = |((topic, partition), verdict): (Place, Verdict<i64>)| {
        let (low_watermark, error) = match verdict {
            Ok(low_watermark) => (Some(low_watermark), None),
            Err(error) => (None, Some(error)),
        };
        DeletedRecords { topic, partition, low_watermark, error }
    };
    Ok(answered.into_iter().map(deleted).collect())
}

pub(super) async fn describe_producers(
    session: Session,
    partitions: Vec<(String, i32)>,
) -> Result<Vec<PartitionProducers>, ClientError> {
    let ask = async |leader: BrokerId, items: Vec<(Place, ())>| {
        let request = DescribeProducersRequest {
            topics: grouped(items)
                .into_iter()
                .map(|(name, partitions)| DescribeProducersTopic {
                    name: name.into(),
                    partition_indexes: partitions.into_iter().map(|(partition, ())| partition).collect(),
                })
                .collect(),
        };
        let reply = session.ask(Target::Broker(leader), &request).await?;
        let answer = reply.read::<DescribeProducersRequest<'_>>()?;
        let mut verdicts = BTreeMap::new();
        for topic in &answer.topics {
            for one in &topic.partitions {
                let some = |number: i32| (number >= 0).then_some(number);
                let long = |number: i64| (number >= 0).then_some(number);
                let verdict = match ItemError::of(one.error_code, owned(&one.error_message).as_deref()) {
                    Some(error) => Err(error),
                    None => {
                        let mut producers: Vec<_> = one
                            .active_producers
                            .iter()
                            .map(|producer| ActiveProducer {
                                producer_id: producer.producer_id,
                                producer_epoch: producer.producer_epoch,
                                last_sequence: some(producer.last_sequence),
                                last_timestamp: long(producer.last_timestamp),
                                coordinator_epoch: some(producer.coordinator_epoch),
                                transaction_start_offset: long(producer.current_txn_start_offset),
                            })
                            .collect();
                        producers.sort_by_key(|producer| producer.producer_id);
                        Ok(producers)
                    }
                };
                verdicts.insert((topic.name.to_string(), one.partition_index), verdict);
            }
        }
        Ok(verdicts)
    };
    let places = partitions.into_iter().map(|place| (place, ())).collect();
    let answered = session.by_leader("describing producers", places, ask).await?;
    let described = |((topic, partition), verdict): (Place, Verdict<Vec<ActiveProducer>>)| {
        let (producers, error) = match verdict {
            Ok(producers) => (producers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        PartitionProducers { topic, partition, producers, error }
    };
    Ok(answered.into_iter().map(described).collect())
}
