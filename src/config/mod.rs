//! The settings: what they are, what they mean, and what was given.
//!
//! Pure but for [`load`], which reads files and asks the host. Owns the tables of settings (broker, topic and client), the typed
//! settings the rooms receive, and the data of DescribeConfigs. Does not own what a setting does: that is its room's. Broker
//! settings are fixed at start-up; topic settings are live. Always: a [`BrokerSettings`] passed every check of every row.
//! Source: Kafka 4.4's keys and defaults; `engine.*`, `admin.*` and `ringlog.*` are ours.
//!
//! Which class an acknowledgement has, strongest word first: the topic's `ringlog.ack.durability`; the topic's `flush.messages`
//! (1 means flushed); the broker's `engine.ack.durability` where it was given; the broker's `log.flush.interval.messages`
//! (1 means flushed); else written. Internal topics are never weaker than written: a committed offset survives a kill.

mod broker_rows;
pub mod client_rows;
mod describe;
mod load;
mod properties;
mod rows;
mod settle;
mod topic;
mod topic_rows;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::log::LogSettings;
use crate::protocol::batch::Codec;
use crate::types::{AckClass, BrokerId};

pub use broker_rows::{BROKER_ROWS, FAMILIES, broker_row};
pub use describe::Described;
pub use load::load;
pub use rows::{Handling, Kind, Range, Row, Unit};
pub use topic::{check_topic_config, is_internal_topic};
pub use topic_rows::{TOPIC_ROWS, topic_row};

/// Typed broker settings, checked. Field names are Kafka's keys with underscores.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// `node.id`
    pub node_id: BrokerId,
    /// `broker.rack`
    pub broker_rack: Option<String>,
    /// `CLUSTER_ID` of the environment: the id a new cluster shall have.
    pub cluster_id: Option<String>,
    /// The one client listener of `listeners`.
    pub listener: Listener,
    /// The host clients are told: of `advertised.listeners`, else of the listener, else this machine's name.
    pub advertised_host: String,
    /// The port clients are told; 0 stands for the bound port.
    pub advertised_port: u16,
    /// `log.dirs`, else `log.dir`; never empty.
    pub log_dirs: Vec<PathBuf>,
    /// `admin.listener`; `None` is off.
    pub admin_listener: Option<SocketAddr>,
    /// `max.request.partition.size.limit`
    pub max_request_partition_size_limit: u32,
    /// `auto.create.topics.enable`
    pub auto_create_topics_enable: bool,
    /// `delete.topic.enable`
    pub delete_topic_enable: bool,
    /// `num.partitions`
    pub num_partitions: u32,
    /// `default.replication.factor`
    pub default_replication_factor: i16,
    /// `fetch.max.bytes`
    pub fetch_max_bytes: u32,
    /// `socket.request.max.bytes`
    pub socket_request_max_bytes: u32,
    /// `socket.listen.backlog.size`
    pub socket_listen_backlog_size: u32,
    /// `socket.send.buffer.bytes`; `None` leaves it to the kernel (−1).
    pub socket_send_buffer_bytes: Option<u32>,
    /// `socket.receive.buffer.bytes`; `None` leaves it to the kernel (−1).
    pub socket_receive_buffer_bytes: Option<u32>,
    /// `connections.max.idle.ms`; −1 became a hundred years.
    pub connections_max_idle: Duration,
    /// `max.connections`
    pub max_connections: u32,
    /// `max.connections.per.ip`
    pub max_connections_per_ip: u32,
    /// `offsets.topic.num.partitions`
    pub offsets_topic_num_partitions: u32,
    /// `offsets.topic.segment.bytes`
    pub offsets_topic_segment_bytes: u32,
    /// `offsets.retention.minutes`
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval: Duration,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_max_bytes: u32,
    /// `offsets.commit.timeout.ms`
    pub offsets_commit_timeout: Duration,
    /// `group.initial.rebalance.delay.ms`
    pub group_initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`
    pub group_min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`
    pub group_max_session_timeout: Duration,
    /// `group.max.size`
    pub group_max_size: u32,
    /// `log.retention.check.interval.ms`
    pub log_retention_check_interval: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub log_flush_offset_checkpoint_interval: Duration,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration: Duration,
    /// `engine.flush.interval.ms`
    pub engine_flush_interval: Duration,
    /// `engine.preallocate.bytes`
    pub engine_preallocate_bytes: u32,
    /// `engine.prewrite.max.bytes`
    pub engine_prewrite_max_bytes: u32,
    /// `engine.shards`; `None` leaves it to the placement.
    pub engine_shards: Option<u32>,
    /// `engine.cpu.set`; `None` is the affinity mask.
    pub engine_cpu_set: Option<Vec<usize>>,
    /// `engine.memory.max.bytes`, of the whole process.
    pub engine_memory_max_bytes: u64,
    /// `engine.io.memory.bytes`, of each shard.
    pub engine_io_memory_bytes: u32,
    /// `engine.tail.cache.bytes`, of each shard; `None` leaves it to the shard.
    pub engine_tail_cache_bytes: Option<u64>,
    /// `engine.validate.records`
    pub engine_validate_records: ValidateRecords,
    /// The plain value of every key with a row that was given.
    pub given: BTreeMap<String, String>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, such as PLAINTEXT.
    pub name: String,
    /// The host as written, without brackets; empty is every interface.
    pub host: String,
    /// The port; 0 is any free one.
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

/// How deep produced batches are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidateRecords {
    /// Header and checksum.
    None,
    /// And the records of compacted topics.
    Compacted,
    /// And the records of every batch.
    All,
}

/// Typed settings of one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// For its logs.
    pub log: LogSettings,
    /// `max.message.bytes`
    pub max_message_bytes: u32,
    /// `max.decompressed.message.bytes`
    pub max_decompressed_message_bytes: u32,
    /// `compression.type` and the level of that codec; `None` is `producer`: batches stay as they were sent.
    pub compression: Option<(Codec, Option<i32>)>,
    /// `message.timestamp.type` is LogAppendTime.
    pub log_append_time: bool,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` holds compact.
    pub compact: bool,
}

impl TopicSettings {
    /// What an acknowledgement of this topic means.
    pub fn ack_class(&self) -> AckClass {
        self.log.ack_class
    }
}

/// Where settings come from, the weakest first: defaults, then these three in order.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `-c FILE`: Kafka's `server.properties`.
    pub file: Option<PathBuf>,
    /// The whole environment. Settings are `KAFKA_…` with `.` as `_`, `_` as `__`, `-` as `___`; `${env:NAME}` finds any other.
    pub env: Vec<(String, String)>,
    /// `--override key=value`
    pub overrides: Vec<(String, String)>,
}

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Accepted, without effect here.
    Note,
    /// Accepted, but probably not what was meant.
    Warning,
    /// The broker will not start with it.
    Error,
}

/// One problem, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How much it matters.
    pub severity: Severity,
    /// Where: `server.properties:12`, the name of an environment variable, `--override`.
    pub place: String,
    /// What.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}
