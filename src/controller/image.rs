//! The image (CONTRACT STUB).
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use crate::types::*;
/// Frozen state of the cluster's metadata.
#[derive(Clone, Debug)]
pub struct Image {
    /// 22 letters
    pub cluster_id: String,
    /// Rises with every committed record.
    pub version: u64,
    /// This broker (single node on this floor).
    pub brokers: Vec<BrokerImage>,
    /// By name.
    pub topics: BTreeMap<TopicName, Arc<TopicImage>>,
    /// By id.
    pub topic_ids: HashMap<TopicId, TopicName>,
}
/// A broker.
#[derive(Clone, Debug)]
pub struct BrokerImage { /** id */ pub id: BrokerId, /** advertised */ pub host: String, /** advertised */ pub port: u16, /** rack */ pub rack: Option<String> }
/// A topic.
#[derive(Clone, Debug)]
pub struct TopicImage { /** id */ pub id: TopicId, /** name */ pub name: TopicName, /** by index */ pub partitions: Vec<PartitionImage>, /** overrides */ pub configs: BTreeMap<String, String>, /** __consumer_offsets, __transaction_state */ pub internal: bool }
/// A partition.
#[derive(Clone, Debug)]
pub struct PartitionImage { /** leader */ pub leader: BrokerId, /** rises at every start and leader change */ pub leader_epoch: LeaderEpoch, /** rises with every change */ pub partition_epoch: i32, /** replicas */ pub replicas: Vec<BrokerId>, /** in sync */ pub isr: Vec<BrokerId>, /** index into log.dirs */ pub log_dir: usize }
