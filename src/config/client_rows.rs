//! The table of client settings: producer, consumer and admin, in Kafka's names, with librdkafka's beside them.
//!
//! Pure. Owns one row for each key a client's properties file may hold, who uses it, and what other names mean the same. Does
//! not own how they become typed settings (the client's `settings`). Always: names are unique; defaults pass their own check.
//! Defaults are Kafka's but for two: `send.buffer.bytes` and `receive.buffer.bytes` are left to the kernel (-1), as Java's
//! numbers switch its tuning off and cost a busy connection throughput. Source: the `ProducerConfig`, `ConsumerConfig` and
//! `AdminClientConfig` of Kafka 4.4, printed by their own `main`; librdkafka 2.12's CONFIGURATION.md.

use std::borrow::Cow;

use super::properties;
use super::rows::Kind::{Class, Password, Text};
use super::rows::Range::{Any, AtLeast, Between, BetweenOrMinusOne, OneOf};
use super::rows::{Handling, Kind, Range, Row, boolean, int, list, long, text, unset};

/// Who reads a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientRole {
    /// Sends records.
    Producer,
    /// Reads records.
    Consumer,
    /// Asks and changes the cluster.
    Admin,
}

impl ClientRole {
    /// As in `a producer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
            Self::Admin => "admin client",
        }
    }
}

/// One setting of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientRow {
    /// Name, type, default, range, sentence.
    pub row: Row,
    /// Who reads it.
    pub roles: &'static [ClientRole],
    /// What librdkafka calls it, where that differs.
    pub librdkafka: &'static [&'static str],
}

const ALL: &[ClientRole] = &[ClientRole::Producer, ClientRole::Consumer, ClientRole::Admin];
const PRODUCER: &[ClientRole] = &[ClientRole::Producer];
const CONSUMER: &[ClientRole] = &[ClientRole::Consumer];
const ADMIN: &[ClientRole] = &[ClientRole::Admin];
const PRODUCER_ADMIN: &[ClientRole] = &[ClientRole::Producer, ClientRole::Admin];
const CONSUMER_ADMIN: &[ClientRole] = &[ClientRole::Consumer, ClientRole::Admin];
const PRODUCER_CONSUMER: &[ClientRole] = &[ClientRole::Producer, ClientRole::Consumer];

const CODE: &str = "it names Java code, which cannot run here: in Rust it is given as a value";
const METRICS: &str = "this client's counters are read by calling metrics()";
const PLAINTEXT: &str = "connections are plain text so far, and nobody is asked who they are";
const SHARE: &str = "share groups are not spoken";
const CALLBACKS: &str = "it is a handle of the C library: in Rust it is given as a value";

const DNS: &[&str] = &["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"];
const LAST_INT: i64 = i32::MAX as i64;

const fn of(roles: &'static [ClientRole], row: Row) -> ClientRow {
    ClientRow { row, roles, librdkafka: &[] }
}

impl ClientRow {
    const fn also(mut self, librdkafka: &'static [&'static str]) -> Self {
        self.librdkafka = librdkafka;
        self
    }
}

const fn class(name: &'static str, doc: &'static str) -> Row {
    unset(name, Class, Any, doc)
}

/// Every key clients know by name.
#[rustfmt::skip]
pub const CLIENT_ROWS: &[ClientRow] = &[
    // The way to the cluster.
    of(ALL, list("bootstrap.servers", "", Any, "Where to ask first for the brokers of the cluster, as host:port,host:port; the port may be left out and is 9092 then.")).also(&["metadata.broker.list"]),
    of(ALL, text("client.id", "", Any, "What the client calls itself, in the broker's log and quotas.")),
    of(PRODUCER_CONSUMER, text("client.rack", "", Any, "Where the client stands, as in broker.rack; a consumer may then read from a near replica.")),
    of(ALL, text("client.dns.lookup", "use_all_dns_ips", OneOf(DNS), "Whether each address of a name is tried in turn, or bootstrap names become their canonical ones.").noted("each address of a name is tried in turn, and names are taken as they stand")),
    of(ALL, text("security.protocol", "PLAINTEXT", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), "How to speak to brokers; only PLAINTEXT is spoken so far.")),
    of(ALL, int("request.timeout.ms", "30000", AtLeast(0), "How long an answer may take before the connection is given up.")).also(&["socket.timeout.ms"]),
    of(ALL, long("reconnect.backoff.ms", "50", AtLeast(0), "How long to wait before connecting again to a broker; doubled with each failure, with jitter.")),
    of(ALL, long("reconnect.backoff.max.ms", "1000", AtLeast(0), "The longest wait before connecting again to a broker.")),
    of(ALL, long("retry.backoff.ms", "100", AtLeast(0), "How long to wait before asking again; doubled with each failure, with jitter.")),
    of(ALL, long("retry.backoff.max.ms", "1000", AtLeast(0), "The longest wait before asking again.")),
    of(ALL, long("socket.connection.setup.timeout.ms", "10000", AtLeast(1), "How long a connection may take to come about; doubled with each failure.")),
    of(ALL, long("socket.connection.setup.timeout.max.ms", "30000", AtLeast(1), "The longest a connection may take to come about.")),
    of(ALL, long("connections.max.idle.ms", "540000", AtLeast(-1), "A connection silent for so long is closed; -1 keeps it. Kafka's admin client says 300000.")),
    of(ALL, int("send.buffer.bytes", "-1", AtLeast(-1), "SO_SNDBUF of connections; -1 leaves it to the kernel, which tunes it (Java says 131072).")).also(&["socket.send.buffer.bytes"]),
    of(ALL, int("receive.buffer.bytes", "-1", AtLeast(-1), "SO_RCVBUF of connections; -1 leaves it to the kernel, which tunes it (Java says 32768 or 65536).")).also(&["socket.receive.buffer.bytes"]),
    of(ALL, int("receive.message.max.bytes", "104923136", Between(1000, LAST_INT), "The largest answer that is read; librdkafka's key, whose default is 100000000.")),
    of(ALL, long("metadata.max.age.ms", "300000", AtLeast(1), "How old what is known of topics and brokers may be before it is asked for again.")).also(&["topic.metadata.refresh.interval.ms"]),
    of(PRODUCER, long("metadata.max.idle.ms", "300000", AtLeast(5000), "A topic nothing was sent to for so long is no longer asked about.")),
    of(ALL, text("metadata.recovery.strategy", "rebootstrap", OneOf(&["rebootstrap", "none"]), "What to do when no known broker can be reached: ask bootstrap.servers again, or keep trying.")),
    of(ALL, long("metadata.recovery.rebootstrap.trigger.ms", "300000", AtLeast(0), "Ask bootstrap.servers again when nothing was learnt for so long.")),
    of(CONSUMER_ADMIN, int("default.api.timeout.ms", "60000", AtLeast(0), "How long a call may take that was given no time of its own.")),
    of(ALL, long("bootstrap.resolve.timeout.ms", "0", AtLeast(0), "How long names of bootstrap.servers may fail to resolve.").noted("names are looked up at each attempt to connect, for as long as the call may take")),
    of(ALL, boolean("metadata.cluster.check.enable", "true", "Whether brokers are told which cluster is expected.").noted("the version of ApiVersions that carries it is not spoken")),
    of(ADMIN, list("bootstrap.controllers", "", Any, "Where the controllers of the quorum are.").refused("ask through the brokers: give bootstrap.servers")),

    // The producer.
    of(PRODUCER, text("acks", "all", OneOf(&["all", "-1", "1", "0"]), "Who must have a record before it counts as sent: all in-sync replicas, the leader, nobody.")).also(&["request.required.acks"]),
    of(PRODUCER, int("batch.size", "16384", AtLeast(0), "Bytes a batch of one partition may hold before it is sent without waiting; 0 sends each record alone.")),
    of(PRODUCER, long("linger.ms", "5", AtLeast(0), "How long a batch that is not full waits for more records.")).also(&["queue.buffering.max.ms"]),
    of(PRODUCER, long("buffer.memory", "33554432", AtLeast(0), "Bytes of records that may wait to be sent.")).also(&["queue.buffering.max.kbytes"]),
    of(PRODUCER, long("max.block.ms", "60000", AtLeast(0), "How long send may wait for memory or for the topic to be known.")),
    of(PRODUCER, int("max.request.size", "1048576", AtLeast(0), "Bytes of the largest request, and so of the largest record.")).also(&["message.max.bytes"]),
    of(PRODUCER, int("max.in.flight.requests.per.connection", "5", AtLeast(1), "Requests to one broker that may wait for an answer; with idempotence 5 at most.")).also(&["max.in.flight"]),
    of(PRODUCER, boolean("enable.idempotence", "true", "Whether the broker recognizes a record sent twice; needs acks=all, retries and at most 5 requests in flight.")),
    of(PRODUCER_ADMIN, int("retries", "2147483647", Between(0, LAST_INT), "How often to try again what failed in a way that may pass; the time-outs end it earlier.")).also(&["message.send.max.retries"]),
    of(PRODUCER, int("delivery.timeout.ms", "120000", AtLeast(0), "How long a record may be on its way, waiting and retries included; at least linger.ms + request.timeout.ms.")).also(&["message.timeout.ms"]),
    of(PRODUCER, text("compression.type", "none", OneOf(&["none", "gzip", "snappy", "lz4", "zstd"]), "How batches are compressed.")).also(&["compression.codec"]),
    of(PRODUCER, int("compression.gzip.level", "-1", BetweenOrMinusOne(1, 9), "The effort of gzip.")),
    of(PRODUCER, int("compression.lz4.level", "9", Between(1, 17), "The effort of lz4.").noted("the lz4 of this client knows one level, the fastest")),
    of(PRODUCER, int("compression.zstd.level", "3", Between(-131_072, 22), "The effort of zstd.")),
    of(PRODUCER, int("compression.level", "-1", Between(-1, 12), "librdkafka's level for whichever codec is used; -1 is the codec's own default.")),
    of(PRODUCER, unset("partitioner.class", Class, Any, "How a record without a partition gets one: null hashes the key and sticks to a partition for a batch without one; RoundRobinPartitioner takes them in turn.")).also(&["partitioner"]),
    of(PRODUCER, boolean("partitioner.ignore.keys", "false", "Whether records with a key are spread as if they had none.")),
    of(PRODUCER, boolean("partitioner.adaptive.partitioning.enable", "true", "Whether faster brokers get more of the records without a key.")),
    of(PRODUCER, long("partitioner.availability.timeout.ms", "0", AtLeast(0), "A partition whose batches wait for so long gets no records without a key; 0 never.")),
    of(PRODUCER, boolean("partitioner.rack.aware", "false", "Whether partitions led in the client's rack are preferred.").noted("partitions are taken whatever their rack")),
    of(PRODUCER, unset("transactional.id", Text, Any, "The name of a producer of transactions.").refused("this client does not speak transactions yet")),
    of(PRODUCER, int("transaction.timeout.ms", "60000", AtLeast(1), "How long a transaction may be open.").noted("this client does not speak transactions yet")),
    of(PRODUCER, boolean("transaction.two.phase.commit.enable", "false", "Whether an outside coordinator ends transactions.").noted("this client does not speak transactions yet")),
    of(PRODUCER, class("key.serializer", "How keys become bytes.").noted(CODE)),
    of(PRODUCER, class("value.serializer", "How values become bytes.").noted(CODE)),

    // The consumer.
    of(CONSUMER, unset("group.id", Text, Any, "The group whose members share the partitions; without one nothing can be committed.")),
    of(CONSUMER, unset("group.instance.id", Text, Any, "A name that survives a restart: the group then does not rebalance for one.")),
    of(CONSUMER, text("group.protocol", "classic", OneOf(&["classic", "consumer"]), "Who computes assignments: a member (classic) or the broker (consumer); only classic is spoken so far.")),
    of(CONSUMER, unset("group.remote.assignor", Text, Any, "The broker's assignor.").noted("it belongs to group.protocol=consumer")),
    of(CONSUMER, text("auto.offset.reset", "latest", Any, "Where to begin when the group has no offset, or its offset is gone: earliest, latest, by_duration:PT1H, or none.")),
    of(CONSUMER, boolean("enable.auto.commit", "true", "Whether offsets of what was polled are committed now and then.")).also(&["auto.commit.enable"]),
    of(CONSUMER, int("auto.commit.interval.ms", "5000", AtLeast(0), "How often they are.")),
    of(CONSUMER, int("session.timeout.ms", "45000", AtLeast(1), "A member not heard from for so long is out of the group.")),
    of(CONSUMER, int("heartbeat.interval.ms", "3000", AtLeast(1), "How often a member is heard; at most a third of session.timeout.ms is wise.")),
    of(CONSUMER, int("max.poll.interval.ms", "300000", AtLeast(1), "A member that does not poll for so long leaves the group.")),
    of(CONSUMER, int("max.poll.records", "500", AtLeast(1), "Records one poll gives at most.")),
    of(CONSUMER, int("fetch.min.bytes", "1", AtLeast(0), "The broker waits until so much is there.")),
    of(CONSUMER, int("fetch.max.wait.ms", "500", AtLeast(0), "But not longer than this.")).also(&["fetch.wait.max.ms"]),
    of(CONSUMER, int("fetch.max.bytes", "52428800", AtLeast(0), "Bytes of one answer; a first batch larger than that comes all the same.")),
    of(CONSUMER, int("max.partition.fetch.bytes", "1048576", AtLeast(0), "Bytes of one partition in an answer; a first batch larger than that comes all the same.")).also(&["fetch.message.max.bytes"]),
    of(CONSUMER, text("isolation.level", "read_uncommitted", OneOf(&["read_uncommitted", "read_committed"]), "Whether records of open and aborted transactions are seen.")),
    of(CONSUMER, boolean("check.crcs", "true", "Whether the checksum of each batch is verified.")),
    of(CONSUMER, list("partition.assignment.strategy", "range,cooperative-sticky", OneOf(&["range", "roundrobin", "sticky", "cooperative-sticky"]), "How partitions are shared in a group, the best liked first; Java's class names mean the same.")),
    of(CONSUMER, boolean("allow.auto.create.topics", "true", "Whether asking for a topic may create it, where the broker allows that.")),
    of(CONSUMER, boolean("exclude.internal.topics", "true", "Whether a pattern leaves out the cluster's own topics.")),
    of(CONSUMER, class("key.deserializer", "How bytes become keys.").noted(CODE)),
    of(CONSUMER, class("value.deserializer", "How bytes become values.").noted(CODE)),
    of(CONSUMER, text("share.acknowledgement.mode", "implicit", Any, "How records of a share group are acknowledged.").noted(SHARE)),
    of(CONSUMER, text("share.acquire.mode", "BATCH_OPTIMIZED", Any, "How records of a share group are acquired.").noted(SHARE)),

    // What Java's clients have besides.
    of(ALL, list("config.providers", "", Any, "Where ${…} in values come from.").noted("values are taken as they stand")),
    of(ALL, boolean("enable.metrics.push", "true", "Whether the broker may ask for the client's metrics.").noted(METRICS)),
    of(PRODUCER_CONSUMER, list("interceptor.classes", "", Any, "Code that sees records on their way.").noted(CODE)),
    of(ALL, list("metric.reporters", "", Any, "Code that shows metrics.").noted(METRICS)),
    of(ALL, int("metrics.num.samples", "2", AtLeast(1), "Samples of a metric.").noted(METRICS)),
    of(ALL, text("metrics.recording.level", "INFO", Any, "Which metrics are kept.").noted(METRICS)),
    of(ALL, long("metrics.sample.window.ms", "30000", AtLeast(0), "How long a sample is.").noted(METRICS)),
    of(ALL, boolean("auto.include.jmx.reporter", "true", "Gone since Kafka 4.0.").noted(METRICS)),
    of(ALL, unset("security.providers", Text, Any, "Java's providers of cryptography.").noted(PLAINTEXT)),
    of(ALL, unset("sasl.jaas.config", Password, Any, "Who the client is.").noted(PLAINTEXT)),
];

/// Keys that are accepted by how they begin, and why they do nothing. Where `security.protocol` asks for what they set up, that
/// key is refused.
pub const CLIENT_FAMILIES: &[(&str, &str)] = &[
    ("ssl.", PLAINTEXT),
    ("ssl_", PLAINTEXT),
    ("sasl.", PLAINTEXT),
    ("https.ca.", PLAINTEXT),
    ("enable.ssl.", PLAINTEXT),
    ("enable.sasl.", PLAINTEXT),
    ("oauthbearer_", PLAINTEXT),
    ("metrics.", METRICS),
    ("confluent.", "it belongs to another product"),
    ("internal.", "it is a switch of Kafka's own tests"),
    ("config.providers.", "values are taken as they stand"),
    ("topic.metadata.refresh.", "what is asked again, and when, follows metadata.max.age.ms and retry.backoff.ms"),
    ("api.version.", "versions are always negotiated"),
    ("broker.version.", "versions are always negotiated"),
    ("queued.m", "fetch.max.bytes and max.partition.fetch.bytes bound what is fetched ahead"),
    ("offset.store.", "offsets are kept by the broker"),
    ("log.", "the client writes no log of its own"),
];

/// Keys of librdkafka that change nothing here, and why.
const LIBRDKAFKA_ONLY: &[(&str, &str)] = &[
    ("queue.buffering.max.messages", "buffer.memory alone bounds what waits"),
    ("queue.buffering.backpressure.threshold", "batch.size and linger.ms decide when a batch is sent"),
    ("batch.num.messages", "batch.size alone bounds a batch"),
    ("message.copy.max.bytes", "records are copied into their batch once, whatever their size"),
    ("sticky.partitioning.linger.ms", "a record without a key sticks to a partition for batch.size bytes"),
    ("queuing.strategy", "batches are sent in the order of their records"),
    ("delivery.report.only.error", "every record reports once, to whoever waits for it"),
    ("produce.offset.report", "every record reports its offset"),
    ("enable.gapless.guarantee", "an idempotent producer fails what follows a lost batch anyway"),
    ("enable.auto.offset.store", "positions are those of what poll gave out"),
    ("enable.partition.eof", "position and lag say how far a partition is read"),
    ("coordinator.query.interval.ms", "the coordinator is asked for when it has moved"),
    ("group.protocol.type", "consumers of one group always speak as consumer"),
    ("fetch.queue.backoff.ms", "fetches go on as soon as there is room"),
    ("fetch.error.backoff.ms", "retry.backoff.ms says how long to wait"),
    ("consume.callback.max.messages", CALLBACKS),
    ("socket.blocking.max.ms", "no socket blocks"),
    ("socket.keepalive.enable", "connections.max.idle.ms and request.timeout.ms find dead connections"),
    ("socket.nagle.disable", "it is always disabled"),
    ("socket.max.fails", "a request that is not answered in time ends its connection"),
    ("broker.address.ttl", "names are looked up at each attempt to connect"),
    ("broker.address.family", "all addresses of a name are tried"),
    ("reconnect.backoff.jitter.ms", "there is always a fifth of jitter"),
    ("topic.blacklist", "no topic is looked at that was not asked for"),
    ("statistics.interval.ms", METRICS),
    ("enabled_events", CALLBACKS),
    ("debug", "the client writes no log of its own"),
    ("log_level", "the client writes no log of its own"),
    ("enable.random.seed", "there is one source of chance per client"),
    ("builtin.features", CALLBACKS),
    ("plugin.library.paths", CALLBACKS),
    ("interceptors", CALLBACKS),
    ("opaque", CALLBACKS),
    ("default_topic_conf", CALLBACKS),
    ("msg_order_cmp", CALLBACKS),
];

/// The row of a key, by Kafka's name or librdkafka's.
pub fn client_row(name: &str) -> Option<&'static ClientRow> {
    let by_name = CLIENT_ROWS.iter().find(|row| row.row.name == name);
    by_name.or_else(|| CLIENT_ROWS.iter().find(|row| row.librdkafka.contains(&name)))
}

/// What a key that was given means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A setting of this client: its name and its plain value, good by its own row.
    Setting {
        /// Kafka's name.
        name: &'static str,
        /// As Kafka writes it.
        value: String,
    },
    /// It does nothing here; why.
    Nothing(String),
    /// It cannot be; what is wrong, and what to do.
    Wrong {
        /// What is wrong.
        message: String,
        /// What to do.
        help: Option<String>,
    },
}

/// Judges one key for one kind of client.
pub fn meaning(role: ClientRole, key: &str, value: &str) -> Meaning {
    let Some(ClientRow { row, roles, .. }) = client_row(key) else { return without_row(key) };
    let Row { name, .. } = *row;
    let value = row.plain(&translated(key, value));
    if let Err(message) = row.check(&value) {
        return Meaning::Wrong { message, help: (name != key).then(|| format!("{key} is {name} here")) };
    }
    if let Some((message, help)) = unspoken(name, &value) {
        return Meaning::Wrong { message, help: Some(help) };
    }
    match row.handling {
        Handling::Refused(why) => {
            Meaning::Wrong { message: format!("{key} is not served"), help: Some(why.to_owned()) }
        }
        Handling::Noted(why) | Handling::Mapped(why) => Meaning::Nothing(why.to_owned()),
        Handling::Honoured if !roles.contains(&role) => {
            let theirs: Vec<_> = roles.iter().map(|role| role.name()).collect();
            Meaning::Nothing(format!("it is a setting of a {}, and this is a {}", theirs.join(" or "), role.name()))
        }
        Handling::Honoured => Meaning::Setting { name, value },
    }
}

fn without_row(key: &str) -> Meaning {
    let only = LIBRDKAFKA_ONLY.iter().find(|(name, _)| *name == key);
    let family = || CLIENT_FAMILIES.iter().find(|(prefix, _)| key.starts_with(prefix));
    if let Some((_, why)) = only.or_else(family) {
        return Meaning::Nothing((*why).to_owned());
    }
    if key.ends_with("_cb") {
        return Meaning::Nothing(CALLBACKS.to_owned());
    }
    let help = match nearest_client_key(key) {
        Some(name) => format!("did you mean {name}?"),
        None => "look it up in the table of client settings, or remove it".to_owned(),
    };
    Meaning::Wrong { message: format!("unknown setting {key}"), help: Some(help) }
}

/// The key nearest to `wrong`, when one is near enough to be meant.
pub fn nearest_client_key(wrong: &str) -> Option<&'static str> {
    let names = CLIENT_ROWS.iter().flat_map(|row| std::iter::once(row.row.name).chain(row.librdkafka.iter().copied()));
    let rated = names.map(|name| (strsim::jaro_winkler(wrong, name), name));
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.9).map(|(_, name)| name)
}

/// Values that are good Kafka but that this client does not speak.
fn unspoken(name: &str, value: &str) -> Option<(String, String)> {
    match (name, value) {
        ("security.protocol", "PLAINTEXT") | ("group.protocol", "classic") => None,
        ("security.protocol", _) => Some((
            format!("security.protocol={value}: this client speaks PLAINTEXT only so far"),
            "connect to a plain-text listener of the broker, or through a tunnel (stunnel, ssh -L)".to_owned(),
        )),
        ("group.protocol", _) => Some((
            format!("group.protocol={value}: this client speaks the classic protocol only so far"),
            "leave group.protocol out: brokers serve both".to_owned(),
        )),
        _ => None,
    }
}

/// librdkafka's words, and Java's longer ones, as Kafka's short ones.
fn translated<'v>(key: &str, value: &'v str) -> Cow<'v, str> {
    let value = value.trim();
    let last = |name: &'v str| name.rsplit('.').next().unwrap_or(name);
    match key {
        "queue.buffering.max.kbytes" => {
            value.parse::<u64>().map_or(value.into(), |number| number.saturating_mul(1024).to_string().into())
        }
        "security.protocol" => value.to_ascii_uppercase().into(),
        "group.protocol" | "metadata.recovery.strategy" => value.to_ascii_lowercase().into(),
        "isolation.level" => value.to_ascii_lowercase().into(),
        "auto.offset.reset" => match value.to_ascii_lowercase().as_str() {
            "smallest" | "beginning" | "earliest" => "earliest".into(),
            "largest" | "end" | "latest" => "latest".into(),
            "error" | "none" => "none".into(),
            _ => value.into(),
        },
        // librdkafka writes 0 for what Java writes as -1.
        "socket.send.buffer.bytes" | "socket.receive.buffer.bytes" if value == "0" => "-1".into(),
        "partition.assignment.strategy" => {
            let short = |name: &'v str| match last(name.trim().trim_start_matches("class ")) {
                "RangeAssignor" => "range",
                "RoundRobinAssignor" => "roundrobin",
                "StickyAssignor" => "sticky",
                "CooperativeStickyAssignor" => "cooperative-sticky",
                _ => name.trim(),
            };
            value.split(',').map(short).collect::<Vec<_>>().join(",").into()
        }
        _ => value.into(),
    }
}

/// One line of a client's properties file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEntry {
    /// As written.
    pub key: String,
    /// As written.
    pub value: String,
    /// 1-based.
    pub line: usize,
}

/// Reads the text of a `client.properties`, Java's grammar, which librdkafka's `key=value` lines obey too. The error is a line
/// and what is wrong there.
pub fn client_properties(text: &[u8]) -> Result<Vec<ClientEntry>, (Option<usize>, String)> {
    let entries = properties::parse(text)?.into_iter();
    Ok(entries.map(|entry| ClientEntry { key: entry.key, value: entry.value, line: entry.line }).collect())
}

/// For help texts and the README: what may be written for a row.
pub fn allowed(row: &Row) -> String {
    match (row.range, row.kind) {
        (Range::OneOf(words), _) => words.join(" | "),
        (Range::AtLeast(low), _) => format!("{low} and more"),
        (Range::Between(low, high), _) => format!("{low} to {high}"),
        (Range::BetweenOrMinusOne(low, high), _) => format!("{low} to {high}, or -1"),
        (_, Kind::Boolean) => "true | false".to_owned(),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn setting(key: &str, value: &str) -> Meaning {
        let role = client_row(key).map_or(ClientRole::Producer, |row| row.roles[0]);
        meaning(role, key, value)
    }

    fn good(name: &'static str, value: &str) -> Meaning {
        Meaning::Setting { name, value: value.to_owned() }
    }

    #[test]
    fn names_are_unique_and_defaults_pass_their_own_check() {
        let mut seen = BTreeSet::new();
        for row in CLIENT_ROWS {
            for name in std::iter::once(&row.row.name).chain(row.librdkafka) {
                assert!(seen.insert(*name), "{name} stands twice");
                assert!(LIBRDKAFKA_ONLY.iter().all(|(only, _)| only != name), "{name} stands twice");
            }
            assert!(!row.roles.is_empty());
            assert!(row.row.doc.ends_with('.'), "{}", row.row.name);
            if let Some(default) = row.row.default {
                assert_eq!(row.row.check(default), Ok(()), "{}", row.row.name);
            }
        }
    }

    #[test]
    fn librdkafka_names_and_words_become_kafkas() {
        assert_eq!(setting("queue.buffering.max.ms", "50"), good("linger.ms", "50"));
        assert_eq!(setting("queue.buffering.max.kbytes", "1024"), good("buffer.memory", "1048576"));
        assert_eq!(setting("auto.offset.reset", "smallest"), good("auto.offset.reset", "earliest"));
        assert_eq!(setting("metadata.broker.list", "a:1"), good("bootstrap.servers", "a:1"));
        assert_eq!(setting("security.protocol", "plaintext"), good("security.protocol", "PLAINTEXT"));
        assert_eq!(setting("socket.receive.buffer.bytes", "0"), good("receive.buffer.bytes", "-1"));
    }

    #[test]
    fn java_class_names_of_assignors_become_their_short_names() {
        let classes = "org.apache.kafka.clients.consumer.RangeAssignor, \
                       org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        assert_eq!(
            setting("partition.assignment.strategy", classes),
            good("partition.assignment.strategy", "range,cooperative-sticky")
        );
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest_one() {
        let Meaning::Wrong { message, help } = setting("lingr.ms", "5") else { panic!("accepted") };
        assert_eq!((message.as_str(), help.as_deref()), ("unknown setting lingr.ms", Some("did you mean linger.ms?")));
        let Meaning::Wrong { help, .. } = setting("xyzzy", "5") else { panic!("accepted") };
        assert!(!help.unwrap().contains("did you mean"));
    }

    #[test]
    fn what_is_not_spoken_is_refused_clearly() {
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("group.protocol", "CONSUMER"),
            ("transactional.id", "t"),
            ("bootstrap.controllers", "a:1"),
            ("acks", "2"),
            ("linger.ms", "-1"),
        ] {
            assert!(matches!(setting(key, value), Meaning::Wrong { .. }), "{key}={value}");
        }
    }

    #[test]
    fn what_does_nothing_says_why() {
        for key in ["key.serializer", "sasl.mechanism", "ssl.keystore.location", "debug", "dr_msg_cb", "confluent.x"] {
            assert!(matches!(setting(key, "anything"), Meaning::Nothing(why) if !why.is_empty()), "{key}");
        }
        let Meaning::Nothing(why) = meaning(ClientRole::Producer, "group.id", "g") else { panic!("taken") };
        assert_eq!(why, "it is a setting of a consumer, and this is a producer");
    }

    #[test]
    fn units_are_understood() {
        assert_eq!(setting("linger.ms", "1s"), good("linger.ms", "1000"));
        assert_eq!(setting("fetch.max.bytes", "1MiB"), good("fetch.max.bytes", "1048576"));
        assert_eq!(setting("batch.size", "64KiB"), good("batch.size", "65536"));
        assert_eq!(setting("buffer.memory", "32MiB"), good("buffer.memory", "33554432"));
    }
}
