//! The table of settings (CONTRACT STUB): `BrokerSettings` is typed; rows carry name, type, default, range, scope, doc, synonyms.
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use crate::log::LogSettings;
use crate::types::*;
/// Typed broker settings, checked. Field names = Kafka's keys with underscores.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// node.id (default 1; rdkafka's own tests set 0)
    pub node_id: BrokerId,
    /// listeners (PLAINTEXT only on this floor): host as written (may be empty = all), port
    pub listener: Listener,
    /// advertised.listeners
    pub advertised_host: String,
    /// advertised.listeners; 0 = the bound port
    pub advertised_port: u16,
    /// log.dirs
    pub log_dirs: Vec<PathBuf>,
    /// admin.listener, `None` = off
    pub admin_listener: Option<SocketAddr>,
    /// auto.create.topics.enable
    pub auto_create_topics_enable: bool,
    /// delete.topic.enable
    pub delete_topic_enable: bool,
    /// num.partitions
    pub num_partitions: u32,
    /// default.replication.factor
    pub default_replication_factor: i16,
    /// message.max.bytes
    pub message_max_bytes: u32,
    /// fetch.max.bytes
    pub fetch_max_bytes: u32,
    /// socket.request.max.bytes
    pub socket_request_max_bytes: u32,
    /// socket.listen.backlog.size
    pub socket_listen_backlog_size: u32,
    /// socket.send.buffer.bytes (−1 = OS)
    pub socket_send_buffer_bytes: Option<u32>,
    /// socket.receive.buffer.bytes
    pub socket_receive_buffer_bytes: Option<u32>,
    /// connections.max.idle.ms
    pub connections_max_idle: Duration,
    /// max.connections
    pub max_connections: u32,
    /// max.connections.per.ip
    pub max_connections_per_ip: u32,
    /// offsets.topic.num.partitions
    pub offsets_topic_num_partitions: u32,
    /// offsets.topic.segment.bytes
    pub offsets_topic_segment_bytes: u32,
    /// offsets.retention.minutes
    pub offsets_retention: Duration,
    /// offsets.retention.check.interval.ms
    pub offsets_retention_check_interval: Duration,
    /// offset.metadata.max.bytes
    pub offset_metadata_max_bytes: u32,
    /// group.initial.rebalance.delay.ms
    pub group_initial_rebalance_delay: Duration,
    /// group.min.session.timeout.ms
    pub group_min_session_timeout: Duration,
    /// group.max.session.timeout.ms
    pub group_max_session_timeout: Duration,
    /// group.max.size
    pub group_max_size: u32,
    /// log.retention.check.interval.ms
    pub log_retention_check_interval: Duration,
    /// engine.shards: `None` = auto
    pub engine_shards: Option<u32>,
    /// engine.cpu.set: `None` = affinity mask
    pub engine_cpu_set: Option<Vec<usize>>,
    /// engine.memory.max.bytes, whole process
    pub engine_memory_max_bytes: u64,
    /// engine.io.memory.bytes per shard
    pub engine_io_memory_bytes: u32,
    /// engine.validate.records: none | compacted | all
    pub engine_validate_records: ValidateRecords,
    /// Raw text of every key given by the user (for DescribeConfigs sources).
    pub given: BTreeMap<String, String>,
}
/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener { /** name, e.g. PLAINTEXT */ pub name: String, /** host as written */ pub host: String, /** port; 0 = any free */ pub port: u16 }
/// How deep produced batches are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidateRecords { /** header and CRC */ None, /** records of compacted topics */ Compacted, /** records of every batch */ All }
/// Typed settings of one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// for the log
    pub log: LogSettings,
    /// max.message.bytes
    pub max_message_bytes: u32,
    /// compression.type: `None` = producer
    pub compression: Option<(crate::protocol::batch::Codec, Option<i32>)>,
    /// message.timestamp.type = LogAppendTime
    pub log_append_time: bool,
    /// message.timestamp.before.max.ms
    pub timestamp_before_max_ms: i64,
    /// message.timestamp.after.max.ms
    pub timestamp_after_max_ms: i64,
    /// cleanup.policy contains compact
    pub compact: bool,
    /// min.insync.replicas
    pub min_insync_replicas: u32,
}
/// Where settings came from, in order of strength: defaults < file < KAFKA_* env < overrides.
#[derive(Clone, Debug, Default)]
pub struct Sources { /** -c FILE */ pub file: Option<PathBuf>, /** environment (KAFKA_*) */ pub env: Vec<(String, String)>, /** --override k=v */ pub overrides: Vec<(String, String)> }
/// One problem, for people: what, where (file:line, env name, flag), what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem { /** e.g. `server.properties:12` */ pub place: String, /** what */ pub message: String, /** did you mean … */ pub help: Option<String> }
/// All problems at once; warnings beside settings.
pub fn load(sources: &Sources) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> { let _ = sources; todo!() }
impl BrokerSettings {
    /// The effective settings of a topic with these overrides (already checked by `check_topic_config`).
    pub fn topic_settings(&self, topic: &str, overrides: &BTreeMap<String, String>) -> TopicSettings { let _ = (topic, overrides); todo!() }
}
/// Checks one topic override: unknown name, type, range (Kafka's words where a client sees them).
pub fn check_topic_config(name: &str, value: &str) -> Result<(), String> { let _ = (name, value); todo!() }
/// One entry of DescribeConfigs / CreateTopics answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described { /** key */ pub name: String, /** effective; None = null */ pub value: Option<String>, /** 1 topic, 4 static broker, 5 default */ pub source: i8, /** read only */ pub read_only: bool, /** sensitive */ pub sensitive: bool, /** strongest first: (name, value, source) */ pub synonyms: Vec<(String, Option<String>, i8)>, /** Kafka's ConfigType number */ pub kind: i8, /** a sentence */ pub documentation: String }
impl BrokerSettings {
    /// All topic entries.
    pub fn describe_topic(&self, overrides: &BTreeMap<String, String>) -> Vec<Described> { let _ = overrides; todo!() }
    /// All broker entries.
    pub fn describe_broker(&self) -> Vec<Described> { todo!() }
}
