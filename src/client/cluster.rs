//! What the brokers said of the cluster: who they are, which topics there are, who leads which partition since when.
//!
//! Pure. Owns the newest known state and the rules by which an answer changes it. Does not own when to ask (`network`).
//! Always: what is known of a partition's leader never goes back to an older epoch of the same topic; a topic made again
//! under its name (another id) begins anew. Source: KIP-320 and KIP-516 (epochs, ids), KIP-951 (leaders in answers).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::ErrorCode;
use crate::protocol::admin::{MetadataPartition, MetadataResponse, MetadataTopic};
use crate::types::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName};

/// One broker, as clients shall reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub id: BrokerId,
    /// The advertised host, without brackets.
    pub host: Arc<str>,
    /// The advertised port.
    pub port: u16,
    /// Where it stands.
    pub rack: Option<Arc<str>>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub index: PartitionIndex,
    /// `None` while there is none.
    pub leader: Option<BrokerId>,
    /// `None` from brokers that do not tell.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Who holds it, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Which of them are in sync.
    pub in_sync: Vec<BrokerId>,
    /// Which of them are away.
    pub offline: Vec<BrokerId>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: TopicName,
    /// `None` from brokers before topic ids.
    pub id: Option<TopicId>,
    /// One of the cluster's own.
    pub internal: bool,
    /// In the order of their numbers, which are 0 and up.
    pub partitions: Vec<Partition>,
    /// Why the broker knows nothing of it. Then `partitions` is empty.
    pub error: Option<ErrorCode>,
    /// Something was found to be untrue since: another answer is on its way or due.
    pub stale: bool,
}

impl Topic {
    /// By number.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index.value()).ok()?)
    }
}

/// Which topics an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All there are: others are gone.
    All,
    /// Some: of others nothing is said.
    Some,
}

/// What is known now. Empty before the first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    version: u64,
    cluster_id: Option<Arc<str>>,
    controller: Option<BrokerId>,
    brokers: BTreeMap<BrokerId, Broker>,
    topics: BTreeMap<TopicName, Topic>,
}

impl Cluster {
    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether nothing was answered yet.
    pub fn is_empty(&self) -> bool {
        self.brokers.is_empty()
    }

    /// The cluster's id; `None` from very old brokers.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// Where to send what changes the cluster. With a metadata quorum any broker may be named here: it forwards.
    pub fn controller(&self) -> Option<BrokerId> {
        self.controller
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &Broker> {
        self.brokers.values()
    }

    /// One broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    /// All topics anything was said of, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Topic> {
        self.topics.values()
    }

    /// One topic, also when all that is known of it is an error.
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    /// The name of a topic, by its id.
    pub fn topic_name(&self, id: TopicId) -> Option<&TopicName> {
        self.topics.values().find(|topic| topic.id == Some(id)).map(|topic| &topic.name)
    }

    /// How many partitions a topic has; `None` when it is not known to exist.
    pub fn partition_count(&self, topic: &str) -> Option<usize> {
        self.topic(topic).filter(|topic| topic.error.is_none()).map(|topic| topic.partitions.len())
    }

    /// Who leads a partition, and since which epoch.
    pub fn leader(&self, topic: &str, partition: PartitionIndex) -> Option<(BrokerId, Option<LeaderEpoch>)> {
        let partition = self.topic(topic)?.partition(partition)?;
        Some((partition.leader?, partition.leader_epoch))
    }

    /// Whether a topic was asked about and nothing has contradicted the answer since.
    pub fn is_fresh(&self, topic: &str) -> bool {
        self.topic(topic).is_some_and(|topic| !topic.stale)
    }

    /// Takes a broker's answer.
    pub fn apply(&mut self, answer: &MetadataResponse<'_>, asked: Asked) {
        self.version += 1;
        if let Some(id) = &answer.cluster_id {
            self.cluster_id = Some(id.to_shared());
        }
        self.controller = BrokerId::new(answer.controller_id);
        // An empty list says nothing, least of all that there are no brokers: one of them wrote it.
        if !answer.brokers.is_empty() {
            let broker = |id: i32, host: &str, port: i32, rack: Option<&str>| {
                let (id, port) = (BrokerId::new(id)?, u16::try_from(port).ok()?);
                Some((id, Broker { id, host: host.into(), port, rack: rack.map(Into::into) }))
            };
            let brokers = answer.brokers.iter();
            self.brokers =
                brokers.filter_map(|one| broker(one.node_id, &one.host, one.port, one.rack.as_deref())).collect();
        }
        let mut before = std::mem::take(&mut self.topics);
        if asked == Asked::Some {
            self.topics = std::mem::take(&mut before);
        }
        for topic in &answer.topics {
            let Some(name) = &topic.name else { continue };
            let known = self.topics.get(&**name).or_else(|| before.get(&**name));
            let topic = merged(known, topic, name);
            self.topics.insert(Arc::clone(&topic.name), topic);
        }
    }

    /// After an answer about all: a topic that was not in it is not there.
    pub fn miss(&mut self, name: &TopicName) {
        self.topics.entry(Arc::clone(name)).or_insert_with_key(|name| Topic {
            name: Arc::clone(name),
            id: None,
            internal: false,
            partitions: Vec::new(),
            error: Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            stale: false,
        });
    }

    /// Adds a broker another answer named (a coordinator, a leader), if it is not known yet. True if it was not.
    pub fn learn_broker(&mut self, id: i32, host: &str, port: i32) -> Option<BrokerId> {
        let (id, port) = (BrokerId::new(id)?, u16::try_from(port).ok()?);
        let known = self.brokers.get(&id).is_some_and(|broker| *broker.host == *host && broker.port == port);
        if !known && !host.is_empty() {
            self.version += 1;
            self.brokers.insert(id, Broker { id, host: host.into(), port, rack: None });
        }
        Some(id)
    }

    /// Takes a leader that an answer of Produce or Fetch named. False when that is not newer than what is known.
    pub fn learn_leader(&mut self, topic: &str, index: PartitionIndex, leader: BrokerId, epoch: LeaderEpoch) -> bool {
        let known = self.brokers.contains_key(&leader);
        let topic = self.topics.get_mut(topic);
        let at = usize::try_from(index.value()).unwrap_or(usize::MAX);
        let Some(partition) = topic.and_then(|topic| topic.partitions.get_mut(at)) else { return false };
        if !known || partition.leader_epoch.is_some_and(|known| known >= epoch) {
            return false;
        }
        (partition.leader, partition.leader_epoch) = (Some(leader), Some(epoch));
        self.version += 1;
        true
    }

    /// Marks what is known of a topic as untrue. False when it was marked already or nothing is known.
    pub fn invalidate(&mut self, topic: &str) -> bool {
        match self.topics.get_mut(topic) {
            Some(topic) if !topic.stale => {
                topic.stale = true;
                true
            }
            _ => false,
        }
    }

    /// Forgets who the brokers are, so that the bootstrap servers are asked again; topics stay.
    pub fn forget_brokers(&mut self) {
        self.brokers.clear();
        self.controller = None;
        self.version += 1;
    }
}

fn merged(known: Option<&Topic>, told: &MetadataTopic<'_>, name: &str) -> Topic {
    let id = (told.topic_id != TopicId::ZERO).then_some(told.topic_id);
    let known = known.filter(|known| known.id == id && known.error.is_none());
    let name = known.map_or_else(|| Arc::from(name), |known| Arc::clone(&known.name));
    // LEADER_NOT_AVAILABLE on a topic comes with its partitions: they are being made.
    let error = told.error_code.is_error().then_some(told.error_code);
    let mut partitions: Vec<_> = told.partitions.iter().filter_map(|told| partition(told, known)).collect();
    partitions.sort_by_key(|partition| partition.index);
    partitions.dedup_by_key(|partition| partition.index);
    // Numbers have no gaps in any honest answer; what lies behind one could not be addressed.
    let dense =
        partitions.iter().enumerate().take_while(|(at, one)| *at as i64 == i64::from(one.index.value())).count();
    partitions.truncate(if error.is_some() { 0 } else { dense });
    Topic { name, id, internal: told.is_internal, partitions, error, stale: false }
}

fn partition(told: &MetadataPartition, known: Option<&Topic>) -> Option<Partition> {
    let ids = |numbers: &[i32]| numbers.iter().filter_map(|id| BrokerId::new(*id)).collect();
    let index = PartitionIndex::new(told.partition_index)?;
    let told = Partition {
        index,
        leader: BrokerId::new(told.leader_id),
        leader_epoch: LeaderEpoch::new(told.leader_epoch),
        replicas: ids(&told.replica_nodes),
        in_sync: ids(&told.isr_nodes),
        offline: ids(&told.offline_replicas),
    };
    let known = known.and_then(|topic| topic.partition(index));
    Some(match known {
        // A broker that is behind the others must not send us back to a leader that is none any more.
        Some(known) if told.leader_epoch.is_some() && known.leader_epoch > told.leader_epoch => known.clone(),
        _ => told,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::admin::MetadataBroker;

    fn broker(id: i32) -> MetadataBroker<'static> {
        MetadataBroker { node_id: id, host: "h".into(), port: 9092, rack: None }
    }

    fn topic(name: &str, id: u8, leaders: &[(i32, i32)]) -> MetadataTopic<'static> {
        let partition = |(index, (leader_id, leader_epoch)): (usize, &(i32, i32))| MetadataPartition {
            partition_index: i32::try_from(index).unwrap(),
            leader_id: *leader_id,
            leader_epoch: *leader_epoch,
            replica_nodes: vec![*leader_id],
            isr_nodes: vec![*leader_id],
            ..Default::default()
        };
        MetadataTopic {
            name: Some(name.to_owned().into()),
            topic_id: TopicId::from_bytes([id; 16]),
            partitions: leaders.iter().enumerate().map(partition).collect(),
            ..Default::default()
        }
    }

    fn answer(topics: Vec<MetadataTopic<'static>>) -> MetadataResponse<'static> {
        MetadataResponse { brokers: vec![broker(1), broker(2)], controller_id: 1, topics, ..Default::default() }
    }

    fn leader(cluster: &Cluster, topic: &str, index: i32) -> Option<(i32, Option<i32>)> {
        let (leader, epoch) = cluster.leader(topic, PartitionIndex::new(index).unwrap())?;
        Some((leader.value(), epoch.map(LeaderEpoch::value)))
    }

    #[test]
    fn an_older_epoch_of_the_same_topic_changes_nothing() {
        let mut cluster = Cluster::default();
        cluster.apply(&answer(vec![topic("a", 1, &[(1, 5)])]), Asked::Some);
        cluster.apply(&answer(vec![topic("a", 1, &[(2, 4)])]), Asked::Some);
        assert_eq!(leader(&cluster, "a", 0), Some((1, Some(5))));
        cluster.apply(&answer(vec![topic("a", 1, &[(2, 6)])]), Asked::Some);
        assert_eq!(leader(&cluster, "a", 0), Some((2, Some(6))));
    }

    #[test]
    fn a_topic_made_again_begins_anew() {
        let mut cluster = Cluster::default();
        cluster.apply(&answer(vec![topic("a", 1, &[(1, 5), (1, 5)])]), Asked::Some);
        cluster.apply(&answer(vec![topic("a", 2, &[(2, 0)])]), Asked::Some);
        assert_eq!(leader(&cluster, "a", 0), Some((2, Some(0))));
        assert_eq!(cluster.partition_count("a"), Some(1));
        assert_eq!(cluster.topic_name(TopicId::from_bytes([1; 16])), None);
    }

    #[test]
    fn only_an_answer_about_all_removes_topics() {
        let mut cluster = Cluster::default();
        cluster.apply(&answer(vec![topic("a", 1, &[(1, 0)]), topic("b", 2, &[(1, 0)])]), Asked::All);
        cluster.apply(&answer(vec![topic("b", 2, &[(2, 1)])]), Asked::Some);
        assert_eq!(cluster.topics().len(), 2);
        cluster.apply(&answer(vec![topic("b", 2, &[(1, 0)])]), Asked::All);
        assert_eq!(cluster.topic("a"), None);
        assert_eq!(leader(&cluster, "b", 0), Some((2, Some(1))), "epochs are kept across an answer about all");
    }

    #[test]
    fn a_hostile_answer_leaves_only_what_can_be_addressed() {
        let mut cluster = Cluster::default();
        let mut gaps = topic("a", 1, &[(1, 0), (1, 0), (1, 0)]);
        gaps.partitions[1].partition_index = 0;
        gaps.partitions[2].partition_index = -7;
        let mut bad = answer(vec![gaps, MetadataTopic::default()]);
        bad.brokers.push(MetadataBroker { port: 70_000, ..broker(3) });
        bad.brokers.push(broker(-4));
        cluster.apply(&bad, Asked::All);
        assert_eq!(cluster.partition_count("a"), Some(1));
        assert_eq!(cluster.brokers().len(), 2);
        cluster.apply(&MetadataResponse::default(), Asked::Some);
        assert_eq!(cluster.brokers().len(), 2, "an empty list of brokers is not believed");
    }

    #[test]
    fn answers_of_produce_and_fetch_teach_newer_leaders_only() {
        let mut cluster = Cluster::default();
        cluster.apply(&answer(vec![topic("a", 1, &[(1, 5)])]), Asked::Some);
        let mut learn = |leader, epoch| {
            let (leader, epoch) = (BrokerId::new(leader).unwrap(), LeaderEpoch::new(epoch).unwrap());
            cluster.learn_leader("a", PartitionIndex::ZERO, leader, epoch)
        };
        assert_eq!((learn(2, 5), learn(9, 6), learn(2, 6)), (false, false, true));
        assert_eq!(leader(&cluster, "a", 0), Some((2, Some(6))));
    }

    #[test]
    fn errors_are_kept_until_the_topic_is_there() {
        let mut cluster = Cluster::default();
        let missing = MetadataTopic { error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ..topic("a", 0, &[]) };
        cluster.apply(&answer(vec![missing]), Asked::Some);
        assert_eq!(cluster.topic("a").unwrap().error, Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        assert!(cluster.is_fresh("a") && cluster.invalidate("a") && !cluster.invalidate("a"));
        cluster.apply(&answer(vec![topic("a", 1, &[(1, 0)])]), Asked::Some);
        assert_eq!((cluster.topic("a").unwrap().error, cluster.is_fresh("a")), (None, true));
    }
}
