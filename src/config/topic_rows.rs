//! The table of topic settings.
//!
//! Pure. Owns one row a key, in Kafka's order of definition: that is the order in which a request with several bad values is
//! judged. Does not own how they become [`super::TopicSettings`]. Always: a broker key named here stands in
//! [`super::broker_rows`]. Source: Kafka 4.4's `LogConfig`, asked of a running broker; KIP-1030 (segment.bytes ≥ 1 MiB).

use super::rows::Range::{Any, AtLeast, Between, BetweenOrMinusOne, OneOf, ThrottledReplicas};
use super::rows::{Row, boolean, double, int, list, long, text};

pub(super) const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
pub(super) const POLICIES: &[&str] = &["compact", "delete"];
pub(super) const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];
pub(super) const ACK_CLASSES: &[&str] = &["memory", "written", "flushed"];

const NO_TIERS: &str = "there is no remote tier here";
const NO_CLEANER: &str = "compacted topics are kept whole: the cleaner is not built yet";
const ONE_NODE: &str = "it matters once there is more than one broker";

/// Every key a topic may set.
#[rustfmt::skip]
pub const TOPIC_ROWS: &[Row] = &[
    int("segment.bytes", "1073741824", AtLeast(1 << 20), "A segment file is closed and a new one begun when it would grow past this size.").broker("log.segment.bytes"),
    long("segment.ms", "604800000", AtLeast(1), "A segment is closed after this time even when it is not full, so that retention can act on it.").broker("log.roll.ms"),
    long("segment.jitter.ms", "0", AtLeast(0), "At most this much is taken off segment.ms at random, so that segments do not all roll at once.").broker("log.roll.jitter.ms"),
    int("segment.index.bytes", "10485760", AtLeast(4), "The largest size of a segment's offset index; a full index rolls the segment.").broker("log.index.size.max.bytes"),
    long("flush.messages", "9223372036854775807", AtLeast(1), "1 means that an acknowledgement waits for fdatasync (class flushed); other numbers leave flushing to the interval.").broker("log.flush.interval.messages"),
    long("flush.ms", "9223372036854775807", AtLeast(0), "Written data is flushed at least this often; engine.flush.interval.ms applies when it is shorter.").broker("log.flush.interval.ms"),
    long("retention.bytes", "-1", Any, "Old segments are deleted while a partition is larger than this; -1 keeps all.").broker("log.retention.bytes"),
    long("retention.ms", "604800000", AtLeast(-1), "Segments whose newest record is older than this are deleted; -1 keeps all.").broker("log.retention.ms"),
    int("max.message.bytes", "1048588", AtLeast(0), "The largest record batch that is accepted, after compression.").broker("message.max.bytes"),
    int("max.decompressed.message.bytes", "2147483639", Between(1, 2_147_483_639), "The largest size a compressed batch may grow to when it is opened.").broker("max.decompressed.message.bytes"),
    int("index.interval.bytes", "4096", AtLeast(0), "An index entry is added after so many bytes of log.").broker("log.index.interval.bytes"),
    long("delete.retention.ms", "86400000", AtLeast(0), "How long compaction keeps the markers of deleted keys.").broker("log.cleaner.delete.retention.ms").noted(NO_CLEANER),
    long("min.compaction.lag.ms", "0", AtLeast(0), "A record stays uncompacted at least this long.").broker("log.cleaner.min.compaction.lag.ms").noted(NO_CLEANER),
    long("max.compaction.lag.ms", "9223372036854775807", AtLeast(1), "A record is compacted at the latest after this time.").broker("log.cleaner.max.compaction.lag.ms").noted(NO_CLEANER),
    long("file.delete.delay.ms", "60000", AtLeast(0), "Files of deleted segments and topics are removed after this time.").broker("log.segment.delete.delay.ms"),
    double("min.cleanable.dirty.ratio", "0.5", Between(0, 1), "Compaction starts when this share of the log is uncompacted.").broker("log.cleaner.min.cleanable.ratio").noted(NO_CLEANER),
    list("cleanup.policy", "delete", OneOf(POLICIES), "What happens to old data: delete by retention, compact by key, or both. Compaction is not built yet: a topic with compact alone keeps all of its records.").broker("log.cleanup.policy"),
    boolean("unclean.leader.election.enable", "false", "Whether a replica that is not in sync may become leader and lose records.").broker("unclean.leader.election.enable").noted(ONE_NODE),
    int("min.insync.replicas", "1", AtLeast(1), "A write with acks=all is refused when fewer replicas than this are in sync; as in Kafka it counts for no more than the replicas there are, so on one node every value acts as 1.").broker("min.insync.replicas"),
    text("compression.type", "producer", OneOf(CODECS), "The codec batches are stored with; producer keeps each as it was sent.").broker("compression.type"),
    int("compression.gzip.level", "-1", BetweenOrMinusOne(1, 9), "The level when compression.type is gzip.").broker("compression.gzip.level"),
    int("compression.lz4.level", "9", Between(1, 17), "The level when compression.type is lz4.").broker("compression.lz4.level"),
    int("compression.zstd.level", "3", Between(-131_072, 22), "The level when compression.type is zstd.").broker("compression.zstd.level"),
    boolean("preallocate", "false", "Segments are always preallocated a little ahead; see engine.preallocate.bytes.").broker("log.preallocate").mapped("segments are always preallocated engine.preallocate.bytes ahead"),
    text("message.timestamp.type", "CreateTime", OneOf(TIMESTAMP_TYPES), "Whether a record carries its producer's time or the time it was appended.").broker("log.message.timestamp.type"),
    long("message.timestamp.before.max.ms", "9223372036854775807", AtLeast(0), "How far a record's timestamp may lie behind the broker's clock.").broker("log.message.timestamp.before.max.ms"),
    long("message.timestamp.after.max.ms", "3600000", AtLeast(0), "How far a record's timestamp may lie ahead of the broker's clock.").broker("log.message.timestamp.after.max.ms"),
    list("leader.replication.throttled.replicas", "", ThrottledReplicas, "Replicas whose replication is throttled on the leader's side.").noted(ONE_NODE),
    list("follower.replication.throttled.replicas", "", ThrottledReplicas, "Replicas whose replication is throttled on the follower's side.").noted(ONE_NODE),
    boolean("remote.storage.enable", "false", "Whether old segments move to a remote tier; only false is accepted.").noted(NO_TIERS),
    boolean("remote.log.copy.disable", "false", "Whether a tiered topic stops copying to its remote tier.").noted(NO_TIERS),
    boolean("remote.log.delete.on.disable", "false", "Whether remote data goes when tiering is switched off.").noted(NO_TIERS),
    long("remote.copy.lag.ms", "0", AtLeast(-1), "How long a closed segment waits before it is copied to the remote tier.").broker("log.remote.copy.lag.ms").noted(NO_TIERS),
    long("remote.copy.lag.bytes", "-1", AtLeast(-1), "How many bytes stay behind the copy to the remote tier.").broker("log.remote.copy.lag.bytes").noted(NO_TIERS),
    long("local.retention.ms", "-2", AtLeast(-2), "How long a tiered topic keeps its local copy.").broker("log.local.retention.ms").noted(NO_TIERS),
    long("local.retention.bytes", "-2", AtLeast(-2), "How many bytes a tiered topic keeps locally.").broker("log.local.retention.bytes").noted(NO_TIERS),
    boolean("errors.deadletterqueue.group.enable", "false", "Whether a share group may use this topic as its dead letter queue.").noted("share groups are not served"),
    text("ringlog.ack.durability", "written", OneOf(ACK_CLASSES), "What an acknowledgement means: memory, written (on the device) or flushed (fdatasync); stronger than flush.messages.").broker("engine.ack.durability"),
];

/// The row of a topic key.
pub fn topic_row(name: &str) -> Option<&'static Row> {
    TOPIC_ROWS.iter().find(|row| row.name == name)
}
