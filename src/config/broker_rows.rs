//! The table of broker settings, and the families of keys that are accepted or refused by their prefix.
//!
//! Pure. Owns one row for each key a `server.properties` of Kafka's own may hold on a node without TLS, SASL or tiers, and all
//! keys of ours. Does not own how they become [`super::BrokerSettings`]. Always: names are unique; defaults pass their own
//! check. Defaults are Kafka's but for three: `listeners` (only this host), `log.dir` (below the current directory) and
//! `node.id` (Kafka has none). Source: Kafka 4.4's `KafkaConfig`, asked of a running broker.

use super::rows::Kind::{Class, Int, List, Long, Text};
use super::rows::Range::{Any, AtLeast, Between, BetweenOrMinusOne, OneOf};
use super::rows::{Handling, Row, boolean, double, int, list, long, short, text, unset};
use super::topic_rows::{ACK_CLASSES, CODECS, POLICIES, TIMESTAMP_TYPES};

const THREADS: &str = "one executor per core does this work: see engine.shards";
const ONE_NODE: &str = "it matters once there is more than one broker";
const ONE_REPLICA: &str = "one broker holds one replica";
const QUORUM: &str = "one node keeps its own metadata log, without a quorum";
const METADATA_LOG: &str = "the metadata log is one small file per node, rewritten as a snapshot when it grows";
const NO_CLEANER: &str = "compacted topics are kept whole: the cleaner is not built yet";
const NO_TIERS: &str = "there is no remote tier here";
const NO_TRANSACTIONS: &str = "transactions are not served yet";
const NO_QUOTAS: &str = "quotas are not enforced yet";
const NO_SESSIONS: &str = "every fetch is answered in full: no fetch sessions are kept";
const NEW_GROUPS: &str = "groups use the classic protocol so far";
const PLUGIN: &str = "it names Java code, which cannot run here: remove the key";
const METRICS: &str = "metrics are served as Prometheus text on admin.listener";
const NO_AUTH: &str = "clients are not authenticated yet";

/// Every key the broker knows by name.
#[rustfmt::skip]
pub const BROKER_ROWS: &[Row] = &[
    // Who we are and where we listen.
    list("process.roles", "broker,controller", OneOf(&["broker", "controller"]), "What this process is; one node is both, and its own metadata log stands for the controller."),
    int("node.id", "1", AtLeast(0), "The id of this node in its cluster."),
    int("broker.id", "-1", AtLeast(-1), "The old name of node.id.").mapped("it is taken as node.id"),
    unset("broker.rack", Text, Any, "Where this broker stands, as clients are told it."),
    list("listeners", "PLAINTEXT://127.0.0.1:9092", Any, "Where clients connect, as NAME://host:port; an empty host is every interface, port 0 is any free port."),
    unset("advertised.listeners", List, Any, "The address clients are told to use, when it is not that of listeners."),
    text("listener.security.protocol.map", "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", Any, "Which protocol each listener's name means; only PLAINTEXT is served so far."),
    unset("controller.listener.names", List, Any, "Which listeners are for controllers; no port is opened for them."),
    unset("inter.broker.listener.name", Text, Any, "The listener other brokers would use.").noted(ONE_NODE),
    text("security.inter.broker.protocol", "PLAINTEXT", OneOf(&["PLAINTEXT"]), "How brokers talk to each other.").noted(ONE_NODE),
    unset("log.dirs", List, Any, "The directories that hold the data; each partition lives in one of them."),
    list("log.dir", "data", Any, "The data directory when log.dirs is not set."),
    // Sockets and limits.
    int("socket.request.max.bytes", "104857600", AtLeast(1), "The largest request that is read."),
    int("socket.listen.backlog.size", "50", AtLeast(1), "How many connections may wait to be accepted."),
    int("socket.send.buffer.bytes", "102400", AtLeast(-1), "SO_SNDBUF of client sockets; -1 leaves it to the kernel."),
    int("socket.receive.buffer.bytes", "102400", AtLeast(-1), "SO_RCVBUF of client sockets; -1 leaves it to the kernel."),
    int("max.connections", "2147483647", AtLeast(0), "How many connections may be open at once."),
    int("max.connections.per.ip", "2147483647", AtLeast(0), "How many connections one address may hold."),
    text("max.connections.per.ip.overrides", "", Any, "Other limits for single addresses.").noted("one limit holds for every address: max.connections.per.ip"),
    int("max.connection.creation.rate", "2147483647", AtLeast(0), "How many connections may be opened in a second.").noted("connections are limited by count, not by rate"),
    long("connections.max.idle.ms", "600000", AtLeast(-1), "A connection silent for so long is closed."),
    int("queued.max.requests", "500", AtLeast(1), "How many requests may be under way at once.").mapped("the memory budget bounds the requests under way: engine.memory.max.bytes"),
    long("queued.max.request.bytes", "-1", Any, "How many bytes of requests may be under way.").mapped("the memory budget bounds the requests under way: engine.memory.max.bytes"),
    int("fetch.max.bytes", "57671680", AtLeast(1024), "The largest answer to a fetch, whatever the client asks for."),
    int("max.incremental.fetch.session.cache.slots", "1000", AtLeast(0), "How many fetch sessions are kept.").noted(NO_SESSIONS),
    int("max.request.partition.size.limit", "2000", AtLeast(1), "How many partitions one answer to DescribeTopicPartitions holds at most."),
    int("request.timeout.ms", "30000", AtLeast(0), "How long this broker waits for another.").noted(ONE_NODE),
    long("socket.connection.setup.timeout.ms", "10000", AtLeast(0), "How long this broker waits for a connection to another.").noted(ONE_NODE),
    long("socket.connection.setup.timeout.max.ms", "30000", AtLeast(0), "The longest such wait.").noted(ONE_NODE),
    int("num.network.threads", "3", AtLeast(1), "Network threads.").noted(THREADS),
    int("num.io.threads", "8", AtLeast(1), "Request threads.").noted(THREADS),
    int("background.threads", "10", AtLeast(1), "Background threads.").noted(THREADS),
    int("num.recovery.threads.per.data.dir", "2", AtLeast(1), "Recovery threads.").noted(THREADS),
    // Topics and their defaults.
    boolean("auto.create.topics.enable", "true", "Whether a topic is made when a client first asks for it."),
    boolean("delete.topic.enable", "true", "Whether clients may delete topics."),
    int("num.partitions", "1", AtLeast(1), "How many partitions a topic gets when its creator does not say."),
    int("default.replication.factor", "1", Between(1, 32_767), "How many replicas a topic gets when its creator does not say."),
    int("min.insync.replicas", "1", AtLeast(1), "Default of the topic setting of that name."),
    int("message.max.bytes", "1048588", AtLeast(0), "Default of max.message.bytes: the largest record batch that is accepted."),
    int("max.decompressed.message.bytes", "2147483639", Between(1, 2_147_483_639), "Default of the topic setting of that name."),
    text("compression.type", "producer", OneOf(CODECS), "Default of the topic setting of that name."),
    int("compression.gzip.level", "-1", BetweenOrMinusOne(1, 9), "Default of the topic setting of that name."),
    int("compression.lz4.level", "9", Between(1, 17), "Default of the topic setting of that name."),
    int("compression.zstd.level", "3", Between(-131_072, 22), "Default of the topic setting of that name."),
    boolean("unclean.leader.election.enable", "false", "Default of the topic setting of that name.").noted(ONE_NODE),
    list("log.cleanup.policy", "delete", OneOf(POLICIES), "Default of cleanup.policy."),
    int("log.segment.bytes", "1073741824", AtLeast(1 << 20), "Default of segment.bytes."),
    unset("log.roll.ms", Long, AtLeast(1), "Default of segment.ms; stronger than log.roll.hours."),
    int("log.roll.hours", "168", AtLeast(1), "Default of segment.ms, in hours."),
    unset("log.roll.jitter.ms", Long, AtLeast(0), "Default of segment.jitter.ms; stronger than log.roll.jitter.hours."),
    int("log.roll.jitter.hours", "0", AtLeast(0), "Default of segment.jitter.ms, in hours."),
    unset("log.retention.ms", Long, AtLeast(-1), "Default of retention.ms; stronger than minutes and hours; -1 keeps all."),
    unset("log.retention.minutes", Int, AtLeast(-1), "Default of retention.ms, in minutes; stronger than hours."),
    int("log.retention.hours", "168", AtLeast(-1), "Default of retention.ms, in hours."),
    long("log.retention.bytes", "-1", Any, "Default of retention.bytes."),
    long("log.retention.check.interval.ms", "300000", AtLeast(1), "How often retention looks for old segments."),
    long("log.segment.delete.delay.ms", "60000", AtLeast(0), "Default of file.delete.delay.ms."),
    int("log.index.size.max.bytes", "10485760", AtLeast(4), "Default of segment.index.bytes."),
    int("log.index.interval.bytes", "4096", AtLeast(0), "Default of index.interval.bytes."),
    long("log.flush.interval.messages", "9223372036854775807", AtLeast(1), "Default of flush.messages: 1 makes flushed the ack class of every topic."),
    unset("log.flush.interval.ms", Long, AtLeast(0), "Default of flush.ms; engine.flush.interval.ms applies when it is shorter."),
    long("log.flush.scheduler.interval.ms", "9223372036854775807", AtLeast(0), "Default of flush.ms when log.flush.interval.ms is not set."),
    int("log.flush.offset.checkpoint.interval.ms", "60000", AtLeast(1), "How often recovery points are written to the checkpoint file."),
    int("log.flush.start.offset.checkpoint.interval.ms", "60000", AtLeast(1), "How often log start offsets are written to the checkpoint file.").mapped("log start offsets are written together with the recovery points: log.flush.offset.checkpoint.interval.ms"),
    boolean("log.preallocate", "false", "Default of preallocate.").mapped("segments are always preallocated engine.preallocate.bytes ahead"),
    text("log.message.timestamp.type", "CreateTime", OneOf(TIMESTAMP_TYPES), "Default of message.timestamp.type."),
    long("log.message.timestamp.before.max.ms", "9223372036854775807", AtLeast(0), "Default of message.timestamp.before.max.ms."),
    long("log.message.timestamp.after.max.ms", "3600000", AtLeast(0), "Default of message.timestamp.after.max.ms."),
    long("log.dir.failure.timeout.ms", "30000", AtLeast(1), "How long a failed directory may stay unreported.").noted(ONE_NODE),
    long("log.initial.task.delay.ms", "30000", AtLeast(0), "How long background work waits after start.").noted("background work begins at once"),
    int("num.replica.fetchers", "1", AtLeast(1), "Fetchers per other broker.").noted(ONE_NODE),
    // Groups and their offsets.
    int("offsets.topic.num.partitions", "50", AtLeast(1), "Partitions of __consumer_offsets; fixed once the topic exists."),
    short("offsets.topic.replication.factor", "3", AtLeast(1), "Replicas of __consumer_offsets.").mapped(ONE_REPLICA),
    int("offsets.topic.segment.bytes", "104857600", AtLeast(1 << 20), "Segment size of __consumer_offsets."),
    int("offsets.topic.compression.codec", "0", Between(0, 4), "Codec of __consumer_offsets.").noted("offset records are small and stay uncompressed"),
    int("offsets.retention.minutes", "10080", AtLeast(1), "Offsets of a group without members are dropped after this time."),
    long("offsets.retention.check.interval.ms", "600000", AtLeast(1), "How often expired offsets are looked for."),
    int("offset.metadata.max.bytes", "4096", AtLeast(0), "The longest text a client may leave beside an offset."),
    int("offsets.commit.timeout.ms", "5000", AtLeast(1), "How long the answer to a commit, or to what else changes a group, may wait for its record."),
    int("offsets.load.buffer.size", "5242880", AtLeast(1), "Read buffer when offsets are loaded.").noted("reads are sized by the log"),
    int("group.initial.rebalance.delay.ms", "3000", AtLeast(0), "How long a new group waits for more members."),
    int("group.min.session.timeout.ms", "6000", AtLeast(0), "The shortest session timeout a member may ask for."),
    int("group.max.session.timeout.ms", "1800000", AtLeast(0), "The longest session timeout a member may ask for."),
    int("group.max.size", "2147483647", AtLeast(1), "How many members a group may have."),
    list("group.coordinator.rebalance.protocols", "classic", OneOf(&["consumer", "classic", "share", "streams"]), "Which group protocols are on.").noted(NEW_GROUPS),
    int("group.coordinator.threads", "4", AtLeast(1), "Threads of the coordinator.").noted(THREADS),
    // Producers and transactions.
    int("producer.id.expiration.ms", "86400000", AtLeast(1), "State of a producer silent for so long, by the broker's clock, is dropped."),
    int("producer.id.expiration.check.interval.ms", "600000", AtLeast(1), "How often expired producers are looked for.").noted("each log looks when retention does"),
    int("transactional.id.expiration.ms", "604800000", AtLeast(1), "When an unused transactional id is forgotten.").noted(NO_TRANSACTIONS),
    // Replication and the quorum.
    long("replica.lag.time.max.ms", "30000", AtLeast(0), "When a follower falls out of sync.").noted(ONE_NODE),
    int("replica.fetch.max.bytes", "1048576", AtLeast(0), "Bytes of one partition in a follower's fetch.").noted(ONE_NODE),
    int("replica.fetch.min.bytes", "1", AtLeast(0), "Least bytes of a follower's fetch.").noted(ONE_NODE),
    int("replica.fetch.wait.max.ms", "500", AtLeast(0), "Longest wait of a follower's fetch.").noted(ONE_NODE),
    int("replica.fetch.response.max.bytes", "10485760", AtLeast(0), "Bytes of a whole follower's fetch.").noted(ONE_NODE),
    int("replica.fetch.backoff.ms", "1000", AtLeast(0), "Pause after a failed fetch of a follower.").noted(ONE_NODE),
    int("replica.socket.timeout.ms", "30000", AtLeast(0), "Socket timeout of followers.").noted(ONE_NODE),
    int("replica.socket.receive.buffer.bytes", "65536", AtLeast(-1), "SO_RCVBUF of followers.").noted(ONE_NODE),
    long("replica.high.watermark.checkpoint.interval.ms", "5000", AtLeast(1), "How often high watermarks are written to the checkpoint file.").noted("on one node the high watermark is the acknowledged end of the log"),
    unset("replica.selector.class", Text, Any, "Which replica a consumer reads.").noted(ONE_NODE),
    boolean("auto.leader.rebalance.enable", "true", "Whether leadership goes back to preferred replicas.").noted(ONE_NODE),
    long("leader.imbalance.check.interval.seconds", "300", AtLeast(1), "How often leadership is balanced.").noted(ONE_NODE),
    boolean("controlled.shutdown.enable", "true", "Whether leadership moves away before a stop.").noted(ONE_NODE),
    int("broker.heartbeat.interval.ms", "2000", AtLeast(1), "Heartbeats to the controller.").noted(ONE_NODE),
    int("broker.session.timeout.ms", "9000", AtLeast(1), "When a silent broker is fenced.").noted(ONE_NODE),
    int("initial.broker.registration.timeout.ms", "60000", AtLeast(1), "How long a broker tries to register.").noted(ONE_NODE),
    long("server.max.startup.time.ms", "9223372036854775807", AtLeast(0), "The longest start.").noted("a start ends or says why not"),
    list("controller.quorum.voters", "", Any, "The controllers of the quorum, as id@host:port; here at most this node."),
    list("controller.quorum.bootstrap.servers", "", Any, "Where the quorum is found; here at most this node."),
    boolean("controller.quorum.auto.join.enable", "false", "Whether a new controller joins by itself.").noted(QUORUM),
    int("controller.socket.timeout.ms", "30000", AtLeast(0), "Socket timeout towards the controller.").noted(QUORUM),
    unset("metadata.log.dir", Text, Any, "Where the metadata log lives.").noted("it lives in the first of log.dirs"),
    int("metadata.max.idle.interval.ms", "500", AtLeast(0), "Empty records in the metadata log.").noted(QUORUM),
    // Compaction.
    boolean("log.cleaner.enable", "true", "Whether compaction runs.").noted(NO_CLEANER),
    int("log.cleaner.threads", "1", AtLeast(0), "Threads of compaction.").noted(THREADS),
    long("log.cleaner.dedupe.buffer.size", "134217728", AtLeast(1), "Memory of compaction's key table.").noted(NO_CLEANER),
    int("log.cleaner.io.buffer.size", "524288", AtLeast(0), "Read and write buffers of compaction.").noted(NO_CLEANER),
    double("log.cleaner.io.buffer.load.factor", "0.9", Between(0, 1), "How full compaction's key table may get.").noted(NO_CLEANER),
    double("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", AtLeast(0), "Bytes a second compaction may read and write.").noted(NO_CLEANER),
    long("log.cleaner.backoff.ms", "15000", AtLeast(0), "How long compaction sleeps without work.").noted(NO_CLEANER),
    double("log.cleaner.min.cleanable.ratio", "0.5", Between(0, 1), "Default of min.cleanable.dirty.ratio.").noted(NO_CLEANER),
    long("log.cleaner.delete.retention.ms", "86400000", AtLeast(0), "Default of delete.retention.ms.").noted(NO_CLEANER),
    long("log.cleaner.min.compaction.lag.ms", "0", AtLeast(0), "Default of min.compaction.lag.ms.").noted(NO_CLEANER),
    long("log.cleaner.max.compaction.lag.ms", "9223372036854775807", AtLeast(1), "Default of max.compaction.lag.ms.").noted(NO_CLEANER),
    // Security and Java's plug-ins.
    text("authorizer.class.name", "", Any, "Who decides what a client may do; nobody does so far.").refused("access control is not built yet, and a broker that ignored it would be open: remove the key to run without"),
    unset("super.users", Text, Any, "Principals that may do everything.").noted(NO_AUTH),
    boolean("allow.everyone.if.no.acl.found", "true", "Whether what no rule names is allowed.").noted(NO_AUTH),
    unset("principal.builder.class", Class, Any, "How a principal is made of a connection.").noted(NO_AUTH),
    int("connection.failed.authentication.delay.ms", "100", AtLeast(0), "Pause before a failed login is answered.").noted(NO_AUTH),
    long("connections.max.reauth.ms", "0", AtLeast(0), "How long a login lasts.").noted(NO_AUTH),
    unset("create.topic.policy.class.name", Class, Any, "Java code that judges new topics.").refused(PLUGIN),
    unset("alter.config.policy.class.name", Class, Any, "Java code that judges changed settings.").refused(PLUGIN),
    unset("client.quota.callback.class", Class, Any, "Java code that sets quotas.").refused(PLUGIN),
    list("metric.reporters", "", Any, "Java classes that report metrics.").noted(METRICS),
    int("metrics.num.samples", "2", AtLeast(1), "Samples of Kafka's metrics.").noted(METRICS),
    long("metrics.sample.window.ms", "30000", AtLeast(1), "Window of Kafka's metrics.").noted(METRICS),
    text("metrics.recording.level", "INFO", Any, "Level of Kafka's metrics.").noted(METRICS),
    boolean("auto.include.jmx.reporter", "true", "Java's metrics bridge.").noted(METRICS),
    int("quota.window.num", "11", AtLeast(1), "Windows of quotas.").noted(NO_QUOTAS),
    int("quota.window.size.seconds", "1", AtLeast(1), "Length of a quota's window.").noted(NO_QUOTAS),
    boolean("remote.log.storage.system.enable", "false", "Whether old segments move to a remote tier.").refused("there is no remote tier here: remove the key"),
    // Tiered storage's topic defaults, which DescribeConfigs names as synonyms.
    long("log.remote.copy.lag.ms", "0", AtLeast(-1), "Default of remote.copy.lag.ms.").noted(NO_TIERS),
    long("log.remote.copy.lag.bytes", "-1", AtLeast(-1), "Default of remote.copy.lag.bytes.").noted(NO_TIERS),
    long("log.local.retention.ms", "-2", AtLeast(-2), "Default of local.retention.ms.").noted(NO_TIERS),
    long("log.local.retention.bytes", "-2", AtLeast(-2), "Default of local.retention.bytes.").noted(NO_TIERS),
    // Ours.
    text("admin.listener", "127.0.0.1:9644", Any, "Where metrics, health and the JSON API are served over HTTP, as address:port; off for nowhere."),
    text("engine.ack.durability", "written", OneOf(ACK_CLASSES), "Default of ringlog.ack.durability: what an acknowledgement means; when set, stronger than log.flush.interval.messages."),
    long("engine.flush.interval.ms", "1000", AtLeast(1), "Data that was written but not flushed is flushed at least this often: what the class written may lose with the power."),
    int("engine.preallocate.bytes", "33554432", Between(0, 1 << 30), "How far ahead of its end a segment's blocks are taken from the file system."),
    int("engine.prewrite.max.bytes", "32768", Between(0, 1 << 20), "While a log's writes are on average at most this long, its next blocks are filled with zeroes beforehand, so that each write only overwrites (cheaper, and quicker to flush); 0: never."),
    unset("engine.shards", Int, Between(1, 1024), "How many executors run, each on a core of its own; unset: every core of the affinity mask."),
    unset("engine.cpu.set", Text, Any, "The cores the executors run on, such as 2-7,9; unset: the affinity mask."),
    unset("engine.memory.max.bytes", Long, AtLeast(64 << 20), "The memory of the whole process, split among the shards; unset: 60 % of what the host or its cgroup allows."),
    int("engine.io.memory.bytes", "4194304", Between(1 << 20, 1 << 30), "Pinned memory of each shard for direct I/O, all of it resident; when memlock is too small for it, it is used unpinned."),
    unset("engine.tail.cache.bytes", Long, Between(1 << 20, 1 << 40), "The newest batches each shard keeps in memory, for consumers that have caught up or are not far behind; at most a quarter of the shard's memory. Unset: a sixteenth of it."),
    text("engine.validate.records", "compacted", OneOf(&["none", "compacted", "all"]), "Whose records are opened and checked on produce: of no topic, of compacted topics, of all; headers and checksums always are."),
];

/// Keys known by their first letters only, and what becomes of them.
#[rustfmt::skip]
pub const FAMILIES: &[(&str, Handling)] = &[
    ("ssl.", Handling::Noted("there is no TLS listener yet")),
    ("sasl.", Handling::Noted(NO_AUTH)),
    ("listener.name.", Handling::Noted("settings of single listeners concern TLS and SASL, which are not served yet")),
    ("security.", Handling::Noted(NO_AUTH)),
    ("delegation.token.", Handling::Noted(NO_AUTH)),
    ("config.providers", Handling::Noted("${env:NAME} and ${file:/path:key} work without being declared")),
    ("controller.quorum.", Handling::Noted(QUORUM)),
    ("controller.quota.", Handling::Noted(NO_QUOTAS)),
    ("controller.performance.", Handling::Noted(METRICS)),
    ("metadata.", Handling::Noted(METADATA_LOG)),
    ("group.consumer.", Handling::Noted(NEW_GROUPS)),
    ("group.share.", Handling::Noted("share groups are not served")),
    ("group.streams.", Handling::Noted("streams groups are not served")),
    ("group.coordinator.", Handling::Noted(THREADS)),
    ("share.", Handling::Noted("share groups are not served")),
    ("errors.deadletterqueue.", Handling::Noted("share groups are not served")),
    ("transaction.", Handling::Noted(NO_TRANSACTIONS)),
    ("add.partitions.to.txn.", Handling::Noted(NO_TRANSACTIONS)),
    ("remote.", Handling::Noted(NO_TIERS)),
    ("rlmm.", Handling::Noted(NO_TIERS)),
    ("rsm.", Handling::Noted(NO_TIERS)),
    ("replication.quota.", Handling::Noted(NO_QUOTAS)),
    ("alter.log.dirs.replication.quota.", Handling::Noted(NO_QUOTAS)),
    ("telemetry.", Handling::Noted(METRICS)),
    ("kafka.metrics.", Handling::Noted(METRICS)),
    ("internal.", Handling::Noted("it is a switch of Kafka's own tests")),
    ("confluent.", Handling::Noted("it belongs to another product")),
    ("unstable.", Handling::Noted("no unstable version is served")),
    ("zookeeper.", Handling::Refused("metadata lives in the broker itself, as with KRaft: remove the key")),
];

/// The row of a broker key.
pub fn broker_row(name: &str) -> Option<&'static Row> {
    BROKER_ROWS.iter().find(|row| row.name == name)
}

/// What becomes of a key that has no row of its own; `None` when nobody knows it.
pub(super) fn family(name: &str) -> Option<Handling> {
    FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, handling)| *handling)
}

/// Kafka keys without a family that say how Java's broker does something inside.
pub(super) const INNER: &[&str] = &[
    "delete.records.purgatory.purge.interval.requests",
    "fetch.purgatory.purge.interval.requests",
    "producer.purgatory.purge.interval.requests",
    "follower.fetch.last.tiered.offset.enable",
    "num.replica.alter.log.dirs.threads",
    "early.start.listeners",
    "cordoned.log.dirs",
    "unclean.leader.election.interval.ms",
    // Gone since Kafka 4.0, but still in many files.
    "inter.broker.protocol.version",
    "log.message.format.version",
    "log.message.downconversion.enable",
    "control.plane.listener.name",
    "offsets.commit.required.acks",
    "reserved.broker.max.id",
    "broker.id.generation.enable",
    "leader.imbalance.per.broker.percentage",
];
