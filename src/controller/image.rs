//! The metadata of the cluster: its records, and the image they add up to.
//!
//! Pure. Owns what a record changes, and the records that rebuild an image. Does not own which records may be written
//! ([`super::plan`]) nor where they lie ([`super::log`]). Always: replaying the same records gives the same image; a frozen image
//! passes [`Image::check`]. A partition's place is written as the directory's id and only shown as its index, so that `log.dirs`
//! may be reordered. Source: Kafka's KRaft records, whose names these follow; KIP-858 (directory ids).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName};

/// Frozen state of the cluster's metadata.
#[derive(Clone, Debug)]
pub struct Image {
    /// The cluster's id, 22 letters when Kafka or we made it up.
    pub cluster_id: String,
    /// Rises with every committed record.
    pub version: u64,
    /// Every broker; on this floor this one.
    pub brokers: Vec<BrokerImage>,
    /// By name.
    pub topics: BTreeMap<TopicName, Arc<TopicImage>>,
    /// By id.
    pub topic_ids: HashMap<TopicId, TopicName>,
    /// The first producer id that was never handed out.
    pub next_producer_id: i64,
    /// The ids of this broker's `log.dirs`, in that order.
    directories: Vec<DirectoryId>,
}

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its `node.id`.
    pub id: BrokerId,
    /// Where clients find it.
    pub host: String,
    /// Where clients find it.
    pub port: u16,
    /// `broker.rack`
    pub rack: Option<String>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// By index; never empty.
    pub partitions: Vec<PartitionImage>,
    /// Its overrides.
    pub configs: BTreeMap<String, String>,
    /// Whether the broker keeps state of its own in it.
    pub internal: bool,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Who leads it.
    pub leader: BrokerId,
    /// Rises at every start and every change of leader.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change.
    pub partition_epoch: i32,
    /// Who holds it.
    pub replicas: Vec<BrokerId>,
    /// Who has all of it.
    pub isr: Vec<BrokerId>,
    /// Where it lies: an index into `log.dirs`.
    pub log_dir: usize,
}

/// The id of a data directory: `directory.id` of its `meta.properties`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectoryId(pub String);

/// One change of the metadata. The names in serde's form are the format of the metadata log: they may be added to, never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// A broker told where it is; it replaces what it told before.
    Broker {
        /// `node.id`
        id: i32,
        /// Where clients find it.
        host: String,
        /// Where clients find it.
        port: u16,
        /// `broker.rack`
        rack: Option<String>,
    },
    /// The node started: every leader epoch rises by one.
    Started,
    /// A topic was made.
    Topic {
        /// Its id, as its 22 letters.
        id: String,
        /// Its name.
        name: String,
        /// By index.
        partitions: Vec<PartitionRecord>,
        /// Its overrides.
        configs: BTreeMap<String, String>,
        /// See [`TopicImage::internal`].
        internal: bool,
    },
    /// A topic got more partitions.
    Partitions {
        /// Its id.
        topic: String,
        /// Those that follow the ones it has.
        added: Vec<PartitionRecord>,
    },
    /// A topic's overrides are these from now on.
    Configs {
        /// Its id.
        topic: String,
        /// All of them.
        configs: BTreeMap<String, String>,
    },
    /// A topic is gone.
    TopicGone {
        /// Its id.
        topic: String,
    },
    /// Producer ids below this one are handed out.
    ProducerIds {
        /// The first that is not.
        next: i64,
    },
}

impl Record {
    /// The topic this record ends.
    pub fn gone_topic(&self) -> Option<TopicId> {
        match self {
            Self::TopicGone { topic } => TopicId::parse(topic),
            _ => None,
        }
    }

    /// The topic this record makes, changes or ends.
    pub fn topic(&self) -> Option<TopicId> {
        match self {
            Self::Topic { id: topic, .. }
            | Self::Partitions { topic, .. }
            | Self::Configs { topic, .. }
            | Self::TopicGone { topic } => TopicId::parse(topic),
            Self::Broker { .. } | Self::Started | Self::ProducerIds { .. } => None,
        }
    }
}

/// A partition within a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionRecord {
    /// Who leads it.
    pub leader: i32,
    /// See [`PartitionImage::leader_epoch`].
    pub leader_epoch: i32,
    /// See [`PartitionImage::partition_epoch`].
    pub partition_epoch: i32,
    /// Who holds it.
    pub replicas: Vec<i32>,
    /// Who has all of it.
    pub isr: Vec<i32>,
    /// Where it lies.
    pub directory: DirectoryId,
}

/// Why a record does not fit the image it should change. Records are outside bytes: this is an error, never an assertion.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The record and the image contradict each other.
    #[error("the metadata log contradicts itself: {0}")]
    Contradiction(String),
    /// A partition lies in a directory that was not given.
    #[error(
        "partition {partition} of topic {topic} lies in the directory with directory.id={directory}, which is not among log.dirs: \
             give that directory again"
    )]
    DirectoryMissing {
        /// The topic.
        topic: String,
        /// The partition.
        partition: usize,
        /// The id of its directory.
        directory: String,
    },
}

fn contradiction<T>(what: impl Into<String>) -> Result<T, ReplayError> {
    Err(ReplayError::Contradiction(what.into()))
}

impl Image {
    /// Nothing yet, for a broker whose `log.dirs` have these ids.
    pub fn empty(cluster_id: String, directories: Vec<DirectoryId>) -> Self {
        Self {
            cluster_id,
            version: 0,
            brokers: Vec::new(),
            topics: BTreeMap::new(),
            topic_ids: HashMap::new(),
            next_producer_id: 0,
            directories,
        }
    }

    /// The ids of `log.dirs`.
    pub fn directories(&self) -> &[DirectoryId] {
        &self.directories
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.topic_ids.get(&id)?)
    }

    /// The image after these records; this one stays as it is.
    pub fn replay(&self, records: &[Record]) -> Result<Self, ReplayError> {
        let mut image = self.clone();
        for record in records {
            image.apply(record)?;
        }
        image.check();
        Ok(image)
    }

    fn apply(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record {
            Record::Broker { id, host, port, rack } => {
                let id = broker_id(*id)?;
                self.brokers.retain(|broker| broker.id != id);
                self.brokers.push(BrokerImage { id, host: host.clone(), port: *port, rack: rack.clone() });
                self.brokers.sort_by_key(|broker| broker.id);
            }
            Record::Started => {
                for topic in self.topics.values_mut() {
                    for partition in &mut Arc::make_mut(topic).partitions {
                        partition.leader_epoch = successor(partition.leader_epoch)?;
                        partition.partition_epoch += 1;
                    }
                }
            }
            Record::Topic { id, name, partitions, configs, internal } => {
                let (id, name) = (topic_id(id)?, TopicName::from(name.as_str()));
                if self.topics.contains_key(&name) || self.topic_ids.contains_key(&id) {
                    return contradiction(format!("topic {name} with id {id} is made twice"));
                }
                if partitions.is_empty() {
                    return contradiction(format!("topic {name} has no partitions"));
                }
                let mut topic = TopicImage {
                    id,
                    name: name.clone(),
                    partitions: Vec::new(),
                    configs: configs.clone(),
                    internal: *internal,
                };
                self.add_partitions(&mut topic, partitions)?;
                self.topic_ids.insert(id, name.clone());
                self.topics.insert(name, Arc::new(topic));
            }
            Record::Partitions { topic, added } => {
                let mut topic = TopicImage::clone(self.known(topic)?);
                self.add_partitions(&mut topic, added)?;
                self.topics.insert(topic.name.clone(), Arc::new(topic));
            }
            Record::Configs { topic, configs } => {
                let name = self.known(topic)?.name.clone();
                let topic = self.topics.get_mut(&name).expect("a known topic is in both maps");
                Arc::make_mut(topic).configs.clone_from(configs);
            }
            Record::TopicGone { topic } => {
                let (id, name) = (self.known(topic)?.id, self.known(topic)?.name.clone());
                self.topic_ids.remove(&id);
                self.topics.remove(&name);
            }
            Record::ProducerIds { next } => {
                if *next < self.next_producer_id {
                    return contradiction(format!("producer ids go back from {} to {next}", self.next_producer_id));
                }
                self.next_producer_id = *next;
            }
        }
        self.version += 1;
        Ok(())
    }

    fn known(&self, id: &str) -> Result<&Arc<TopicImage>, ReplayError> {
        match self.topic_by_id(topic_id(id)?) {
            Some(topic) => Ok(topic),
            None => contradiction(format!("there is no topic with id {id}")),
        }
    }

    fn add_partitions(&self, topic: &mut TopicImage, added: &[PartitionRecord]) -> Result<(), ReplayError> {
        for partition in added {
            let PartitionRecord { leader, leader_epoch, partition_epoch, replicas, isr, directory } = partition;
            let brokers = |ids: &[i32]| ids.iter().map(|id| broker_id(*id)).collect::<Result<Vec<_>, _>>();
            let Some(leader_epoch) = LeaderEpoch::new(*leader_epoch) else {
                return contradiction(format!("leader epoch {leader_epoch} of topic {}", topic.name));
            };
            let Some(log_dir) = self.directories.iter().position(|known| known == directory) else {
                return Err(ReplayError::DirectoryMissing {
                    topic: topic.name.to_string(),
                    partition: topic.partitions.len(),
                    directory: directory.0.clone(),
                });
            };
            let partition = PartitionImage {
                leader: broker_id(*leader)?,
                leader_epoch,
                partition_epoch: *partition_epoch,
                replicas: brokers(replicas)?,
                isr: brokers(isr)?,
                log_dir,
            };
            if !partition.replicas.contains(&partition.leader)
                || !partition.isr.iter().all(|id| partition.replicas.contains(id))
            {
                return contradiction(format!(
                    "a partition of topic {} has a leader or an ISR outside its replicas",
                    topic.name
                ));
            }
            topic.partitions.push(partition);
        }
        Ok(())
    }

    /// The records that make this image out of an empty one.
    pub fn to_records(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.brokers.len() + self.topics.len() + 1);
        for BrokerImage { id, host, port, rack } in &self.brokers {
            records.push(Record::Broker { id: id.value(), host: host.clone(), port: *port, rack: rack.clone() });
        }
        for topic in self.topics.values() {
            let partition = |partition: &PartitionImage| PartitionRecord {
                leader: partition.leader.value(),
                leader_epoch: partition.leader_epoch.value(),
                partition_epoch: partition.partition_epoch,
                replicas: partition.replicas.iter().map(|id| id.value()).collect(),
                isr: partition.isr.iter().map(|id| id.value()).collect(),
                directory: self.directories[partition.log_dir].clone(),
            };
            records.push(Record::Topic {
                id: topic.id.to_string(),
                name: topic.name.to_string(),
                partitions: topic.partitions.iter().map(partition).collect(),
                configs: topic.configs.clone(),
                internal: topic.internal,
            });
        }
        records.push(Record::ProducerIds { next: self.next_producer_id });
        records
    }

    /// Asserts what must be true between the parts. A walk: debug builds only.
    pub fn check(&self) {
        if cfg!(debug_assertions) {
            assert_eq!(self.topics.len(), self.topic_ids.len(), "topics by name and by id");
            for (name, topic) in &self.topics {
                assert_eq!(self.topic_ids.get(&topic.id), Some(name), "{name} by id");
                assert_eq!(*name, topic.name, "{name} by name");
                assert!(!topic.partitions.is_empty(), "{name} has partitions");
                assert!(
                    topic.partitions.iter().all(|partition| partition.log_dir < self.directories.len()),
                    "{name} has places"
                );
                assert!(
                    PartitionIndex::new(topic.partitions.len() as i32).is_some(),
                    "{name} can number its partitions"
                );
            }
        }
    }
}

fn broker_id(id: i32) -> Result<BrokerId, ReplayError> {
    BrokerId::new(id).map_or_else(|| contradiction(format!("broker id {id}")), Ok)
}

fn topic_id(text: &str) -> Result<TopicId, ReplayError> {
    TopicId::parse(text).map_or_else(|| contradiction(format!("topic id {text:?}")), Ok)
}

/// The next epoch. 2^31 starts would wear it out: refused rather than wrapped.
fn successor(epoch: LeaderEpoch) -> Result<LeaderEpoch, ReplayError> {
    let next = epoch.value().checked_add(1).and_then(LeaderEpoch::new);
    next.map_or_else(|| contradiction("a leader epoch passed 2^31 - 1"), Ok)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn empty() -> Image {
        Image::empty("5L6g3nShT-eMCtK--X86sw".to_owned(), vec![DirectoryId("A".into()), DirectoryId("B".into())])
    }

    pub(in super::super) fn broker() -> Record {
        Record::Broker { id: 1, host: "h".into(), port: 9092, rack: None }
    }

    fn partition(directory: &str) -> PartitionRecord {
        PartitionRecord {
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            replicas: vec![1],
            isr: vec![1],
            directory: DirectoryId(directory.into()),
        }
    }

    fn id(number: u8) -> String {
        TopicId::from_bytes([number; 16]).to_string()
    }

    fn topic(number: u8, name: &str, directories: &[&str]) -> Record {
        Record::Topic {
            id: id(number),
            name: name.into(),
            partitions: directories.iter().copied().map(partition).collect(),
            configs: BTreeMap::new(),
            internal: false,
        }
    }

    fn same(left: &Image, right: &Image) -> bool {
        (&left.cluster_id, &left.brokers, &left.topics, &left.topic_ids, left.next_producer_id)
            == (&right.cluster_id, &right.brokers, &right.topics, &right.topic_ids, right.next_producer_id)
    }

    #[test]
    fn an_image_is_rebuilt_by_its_own_records() {
        let configs = BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]);
        let image = empty()
            .replay(&[
                broker(),
                topic(1, "a", &["A"]),
                topic(2, "b", &["B", "A"]),
                Record::Started,
                Record::Partitions { topic: id(1), added: vec![partition("B")] },
                Record::Configs { topic: id(2), configs },
                Record::ProducerIds { next: 1000 },
                topic(3, "c", &["A"]),
                Record::TopicGone { topic: id(3) },
            ])
            .unwrap();
        assert_eq!(image.version, 9);
        let epochs = |name: &str| -> Vec<i32> {
            image.topics[name].partitions.iter().map(|partition| partition.leader_epoch.value()).collect()
        };
        assert_eq!((epochs("a"), epochs("b")), (vec![1, 0], vec![1, 1]));
        let rebuilt = empty().replay(&image.to_records()).unwrap();
        assert!(same(&image, &rebuilt), "{image:#?}\n{rebuilt:#?}");
    }

    #[test]
    fn places_follow_directories_when_log_dirs_are_reordered() {
        let records = [topic(1, "a", &["A", "B"])];
        let reordered = Image::empty("c".into(), vec![DirectoryId("B".into()), DirectoryId("A".into())]);
        let places = |image: Image| -> Vec<usize> {
            image.topics["a"].partitions.iter().map(|partition| partition.log_dir).collect()
        };
        assert_eq!(places(empty().replay(&records).unwrap()), [0, 1]);
        assert_eq!(places(reordered.replay(&records).unwrap()), [1, 0]);
    }

    #[test]
    fn records_that_do_not_fit_are_refused() {
        let start = empty().replay(&[topic(1, "a", &["A"]), Record::ProducerIds { next: 2000 }]).unwrap();
        for (record, part) in [
            (topic(1, "other", &["A"]), "made twice"),
            (topic(2, "a", &["A"]), "made twice"),
            (topic(2, "b", &[]), "no partitions"),
            (topic(2, "b", &["C"]), "directory.id=C"),
            (Record::TopicGone { topic: id(9) }, "no topic with id"),
            (Record::TopicGone { topic: "x".into() }, "topic id \"x\""),
            (Record::ProducerIds { next: 1000 }, "go back"),
            (Record::Broker { id: -1, host: "h".into(), port: 1, rack: None }, "broker id -1"),
        ] {
            let error = start.replay(&[record]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// The format of the metadata log. A change here breaks the files of everyone.
    #[test]
    fn records_keep_their_written_form() {
        for (record, text) in [
            (broker(), r#"{"type":"broker","id":1,"host":"h","port":9092,"rack":null}"#.to_owned()),
            (Record::Started, r#"{"type":"started"}"#.to_owned()),
            (
                topic(1, "a", &["A"]),
                format!(
                    r#"{{"type":"topic","id":"{}","name":"a","partitions":[{{"leader":1,"leader_epoch":0,"partition_epoch":0,"replicas":[1],"isr":[1],"directory":"A"}}],"configs":{{}},"internal":false}}"#,
                    id(1)
                ),
            ),
            (Record::ProducerIds { next: 5 }, r#"{"type":"producer_ids","next":5}"#.to_owned()),
            (Record::TopicGone { topic: "t".into() }, r#"{"type":"topic_gone","topic":"t"}"#.to_owned()),
        ] {
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        }
    }
}
