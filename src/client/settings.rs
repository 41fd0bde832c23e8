//! The settings of clients as types: what was given in Kafka's words, checked, with the rules between keys.
//!
//! Pure. Owns the typed settings and how they come out of words ([`Builder`]). Does not own the table of keys
//! (`config::client_rows`) nor files: the caller reads those. Always: built settings passed every check of every row; durations
//! that mean "for ever" are `None`. Source: Kafka 4.4's `ProducerConfig`, `ConsumerConfig` (the rules between keys) and their
//! validation order.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use super::error::ClientError;
use crate::config::client_rows::{ClientRole, Meaning, client_properties, client_row, meaning};
use crate::config::{Problem, Severity};
use crate::protocol::batch::Codec;

/// The port of a bootstrap server that names none.
const DEFAULT_PORT: u16 = 9092;
/// More of them make an idempotent producer's duplicates unrecognizable: the broker keeps five batches per producer.
const IN_FLIGHT_MAX_IDEMPOTENT: usize = 5;

/// What all clients need.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// `bootstrap.servers`, each with its port; never empty.
    pub bootstrap_servers: Vec<HostPort>,
    /// `client.id`; empty when none was given.
    pub client_id: String,
    /// `client.rack`
    pub client_rack: Option<String>,
    /// `request.timeout.ms`
    pub request_timeout: Duration,
    /// `reconnect.backoff.ms`
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`
    pub reconnect_backoff_max: Duration,
    /// `retry.backoff.ms`
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`
    pub retry_backoff_max: Duration,
    /// `socket.connection.setup.timeout.ms`
    pub connection_setup_timeout: Duration,
    /// `socket.connection.setup.timeout.max.ms`
    pub connection_setup_timeout_max: Duration,
    /// `connections.max.idle.ms`; `None` is −1: connections are kept.
    pub connections_max_idle: Option<Duration>,
    /// `send.buffer.bytes`; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<u32>,
    /// `receive.buffer.bytes`; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<u32>,
    /// `receive.message.max.bytes`
    pub receive_message_max_bytes: u32,
    /// `metadata.max.age.ms`
    pub metadata_max_age: Duration,
    /// `metadata.max.idle.ms`; a producer's, for others the default.
    pub metadata_max_idle: Duration,
    /// `metadata.recovery.strategy` is `rebootstrap`.
    pub rebootstrap: bool,
    /// `metadata.recovery.rebootstrap.trigger.ms`
    pub rebootstrap_trigger: Duration,
    /// `allow.auto.create.topics`; true for a producer, as in Kafka, and false for an admin client.
    pub allow_auto_create_topics: bool,
    /// What was accepted without effect, for people.
    pub notes: Vec<Problem>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// 1 and more.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`, `host`, `[::1]:port`, with or without `PLAINTEXT://` before it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("{text:?} is no host:port: {why}"));
        let text = text.trim();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("plaintext") => rest,
            Some(_) => return wrong("write it without ://"),
            None => text,
        };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, after)) => (host, after.strip_prefix(':').or(after.is_empty().then_some(""))),
            None if rest.matches(':').count() > 1 => return wrong("put an IPv6 address in brackets"),
            None => rest.split_once(':').map_or((rest, Some("")), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || letter == '/') {
            return wrong("the host is missing or has blanks or slashes in it");
        }
        let port = match port {
            Some("") if !rest.ends_with(':') => Ok(DEFAULT_PORT),
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(()),
            None => Err(()),
        };
        let Ok(port) = port else { return wrong("the port is a number from 1 to 65535") };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `acks`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The broker does not answer.
    None,
    /// The leader has it.
    Leader,
    /// All in-sync replicas have it.
    All,
}

impl Acks {
    /// As it stands in a Produce request.
    pub const fn wire(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// `partitioner.class`, or librdkafka's `partitioner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionerKind {
    /// Null: murmur2 of the key, sticky without one.
    Default,
    /// Each partition in turn.
    RoundRobin,
}

/// Settings of a producer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `acks`
    pub acks: Acks,
    /// `batch.size`, bytes; 0 sends each record alone.
    pub batch_size: usize,
    /// `linger.ms`
    pub linger: Duration,
    /// `buffer.memory`, bytes.
    pub buffer_memory: u64,
    /// `max.block.ms`
    pub max_block: Duration,
    /// `max.request.size`, bytes.
    pub max_request_size: usize,
    /// `max.in.flight.requests.per.connection`; at most 5 with idempotence.
    pub max_in_flight: usize,
    /// `enable.idempotence`; false where other settings contradict it and it was not asked for by name.
    pub enable_idempotence: bool,
    /// `retries`
    pub retries: u32,
    /// `delivery.timeout.ms`; at least linger + request time-out.
    pub delivery_timeout: Duration,
    /// `compression.type`
    pub compression: Codec,
    /// The level of that codec, where one was given.
    pub compression_level: Option<i32>,
    /// `partitioner.class`
    pub partitioner: PartitionerKind,
    /// `partitioner.ignore.keys`
    pub partitioner_ignore_keys: bool,
    /// `partitioner.adaptive.partitioning.enable`
    pub partitioner_adaptive: bool,
    /// `partitioner.availability.timeout.ms`; `None` is 0: never.
    pub partitioner_availability_timeout: Option<Duration>,
}

/// `auto.offset.reset`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// The log start.
    Earliest,
    /// The end.
    Latest,
    /// The caller is told.
    None,
    /// The first record so much younger than now.
    ByDuration(Duration),
}

/// `isolation.level`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset, without aborted records.
    ReadCommitted,
}

impl IsolationLevel {
    /// As it stands in requests.
    pub const fn wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// One of `partition.assignment.strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignorKind {
    /// Neighbouring partitions per topic.
    Range,
    /// In turn.
    RoundRobin,
    /// Balanced, moving as little as can be; everything is given up in between.
    Sticky,
    /// The same, giving up only what moves.
    CooperativeSticky,
}

impl AssignorKind {
    /// The name in the group protocol and in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }
}

/// Settings of a consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `group.id`
    pub group_id: Option<String>,
    /// `group.instance.id`
    pub group_instance_id: Option<String>,
    /// `auto.offset.reset`
    pub auto_offset_reset: OffsetReset,
    /// `enable.auto.commit`; false without a group.
    pub enable_auto_commit: bool,
    /// `auto.commit.interval.ms`
    pub auto_commit_interval: Duration,
    /// `session.timeout.ms`
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`; less than the session time-out.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`
    pub max_poll_interval: Duration,
    /// `max.poll.records`
    pub max_poll_records: usize,
    /// `fetch.min.bytes`
    pub fetch_min_bytes: i32,
    /// `fetch.max.wait.ms`
    pub fetch_max_wait: Duration,
    /// `fetch.max.bytes`
    pub fetch_max_bytes: i32,
    /// `max.partition.fetch.bytes`
    pub max_partition_fetch_bytes: i32,
    /// `isolation.level`
    pub isolation_level: IsolationLevel,
    /// `check.crcs`
    pub check_crcs: bool,
    /// `partition.assignment.strategy`; never empty.
    pub assignors: Vec<AssignorKind>,
    /// `exclude.internal.topics`
    pub exclude_internal_topics: bool,
    /// `default.api.timeout.ms`
    pub default_api_timeout: Duration,
}

/// Settings of an admin client.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `default.api.timeout.ms`
    pub default_api_timeout: Duration,
    /// `retries`
    pub retries: u32,
}

/// Settings a [`Builder`] can build.
pub trait Settings: Sized {
    /// Whose they are.
    const ROLE: ClientRole;

    /// From checked words; problems between keys go into the desk.
    #[doc(hidden)]
    fn assemble(desk: &mut Desk) -> Self;

    /// Nothing given yet.
    fn builder() -> Builder<Self> {
        Builder { given: Vec::new(), problems: Vec::new(), kind: PhantomData }
    }

    /// From the text of a properties file; `place` names it in problems. Errors: everything that is wrong with it.
    fn from_properties(text: &[u8], place: &str) -> Result<Self, ClientError> {
        Self::builder().properties(text, place).build()
    }
}

/// Gathers words; the later one of a key wins.
#[derive(Clone, Debug)]
pub struct Builder<S> {
    /// Key, value, place.
    given: Vec<(String, String, String)>,
    problems: Vec<Problem>,
    kind: PhantomData<fn() -> S>,
}

impl<S: Settings> Builder<S> {
    /// One key, in Kafka's or librdkafka's words.
    #[must_use]
    pub fn set(self, key: &str, value: impl ToString) -> Self {
        self.set_at(key, value, "settings")
    }

    /// One key, and where it was given (`-X`), for problems.
    #[must_use]
    pub fn set_at(mut self, key: &str, value: impl ToString, place: &str) -> Self {
        self.given.push((key.to_owned(), value.to_string(), place.to_owned()));
        self
    }

    /// The text of a properties file; `place` names it in problems.
    #[must_use]
    pub fn properties(mut self, text: &[u8], place: &str) -> Self {
        match client_properties(text) {
            Ok(entries) => self
                .given
                .extend(entries.into_iter().map(|entry| (entry.key, entry.value, format!("{place}:{}", entry.line)))),
            Err((line, message)) => self.problems.push(Problem {
                severity: Severity::Error,
                place: line.map_or_else(|| place.to_owned(), |line| format!("{place}:{line}")),
                message,
                help: None,
            }),
        }
        self
    }

    /// Checks all of it. Errors: every problem that was found, notes beside them.
    pub fn build(self) -> Result<S, ClientError> {
        let mut desk = Desk { values: BTreeMap::new(), problems: self.problems };
        for (key, value, place) in self.given {
            desk.admit(S::ROLE, &key, &value, place);
        }
        let settings = S::assemble(&mut desk);
        if desk.problems.iter().any(|problem| problem.severity == Severity::Error) {
            desk.problems.retain(|problem| problem.severity != Severity::Note);
            return Err(ClientError::Settings(desk.problems));
        }
        Ok(settings)
    }
}

/// Words that passed the check of their row, and what was found so far.
#[derive(Debug)]
pub struct Desk {
    /// By Kafka's name: value and place.
    values: BTreeMap<&'static str, (String, String)>,
    problems: Vec<Problem>,
}

impl Desk {
    fn admit(&mut self, role: ClientRole, key: &str, value: &str, place: String) {
        match meaning(role, key, value) {
            Meaning::Setting { name, value } => _ = self.values.insert(name, (value, place)),
            Meaning::Nothing(why) => self.problems.push(Problem {
                severity: Severity::Note,
                place,
                message: format!("{key} has no effect here"),
                help: Some(why),
            }),
            Meaning::Wrong { message, help } => {
                self.problems.push(Problem { severity: Severity::Error, place, message, help });
            }
        }
    }

    fn wrong(&mut self, name: &'static str, message: String, help: &str) {
        let place = self.values.get(name).map_or_else(|| "settings".to_owned(), |(_, place)| place.clone());
        self.problems.push(Problem { severity: Severity::Error, place, message, help: Some(help.to_owned()) });
    }

    fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str())
    }

    /// The value, given or default; empty where the default is null.
    fn text(&self, name: &'static str) -> &str {
        let default = || client_row(name).and_then(|row| row.row.default).unwrap_or_default();
        self.given(name).unwrap_or_else(default)
    }

    fn optional(&self, name: &'static str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn number(&self, name: &'static str) -> i64 {
        self.text(name).parse().expect("the row of this key checks that it is a number")
    }

    fn int(&self, name: &'static str) -> i32 {
        self.text(name).parse().expect("the row of this key checks that it is an INT")
    }

    /// For rows whose range begins at 0 or 1.
    fn size(&self, name: &'static str) -> usize {
        usize::try_from(self.number(name)).expect("the row of this key checks that it is not negative")
    }

    fn millis(&self, name: &'static str) -> Duration {
        // Longer than a hundred years is for ever, and would overflow a clock.
        let ms = u64::try_from(self.number(name)).expect("the row of this key checks that it is not negative");
        Duration::from_millis(ms.min(100 * 365 * 86_400_000))
    }

    fn flag(&self, name: &'static str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    fn not_negative(&self, name: &'static str) -> Option<u32> {
        u32::try_from(self.number(name)).ok()
    }

    fn client(&mut self, role: ClientRole) -> ClientSettings {
        let mut servers = Vec::new();
        let listed = self.text("bootstrap.servers").to_owned();
        for server in listed.split(',').map(str::trim).filter(|server| !server.is_empty()) {
            match HostPort::parse(server) {
                Ok(server) => servers.push(server),
                Err(message) => self.wrong(
                    "bootstrap.servers",
                    format!("bootstrap.servers: {message}"),
                    "as in bootstrap.servers=broker1:9092,broker2:9092",
                ),
            }
        }
        if servers.is_empty() && listed.trim().is_empty() {
            let message = "bootstrap.servers is missing".to_owned();
            self.wrong("bootstrap.servers", message, "as in bootstrap.servers=127.0.0.1:9092");
        }
        let idle = if role == ClientRole::Admin && self.given("connections.max.idle.ms").is_none() {
            300_000
        } else {
            self.number("connections.max.idle.ms")
        };
        ClientSettings {
            bootstrap_servers: servers,
            client_id: self.text("client.id").to_owned(),
            client_rack: self.optional("client.rack"),
            request_timeout: self.millis("request.timeout.ms"),
            reconnect_backoff: self.millis("reconnect.backoff.ms"),
            reconnect_backoff_max: self.millis("reconnect.backoff.max.ms").max(self.millis("reconnect.backoff.ms")),
            retry_backoff: self.millis("retry.backoff.ms"),
            retry_backoff_max: self.millis("retry.backoff.max.ms").max(self.millis("retry.backoff.ms")),
            connection_setup_timeout: self.millis("socket.connection.setup.timeout.ms"),
            connection_setup_timeout_max: self.millis("socket.connection.setup.timeout.max.ms"),
            connections_max_idle: u64::try_from(idle).ok().map(Duration::from_millis),
            send_buffer_bytes: self.not_negative("send.buffer.bytes"),
            receive_buffer_bytes: self.not_negative("receive.buffer.bytes"),
            receive_message_max_bytes: self.not_negative("receive.message.max.bytes").unwrap_or(u32::MAX),
            metadata_max_age: self.millis("metadata.max.age.ms"),
            metadata_max_idle: self.millis("metadata.max.idle.ms"),
            rebootstrap: self.text("metadata.recovery.strategy") == "rebootstrap",
            rebootstrap_trigger: self.millis("metadata.recovery.rebootstrap.trigger.ms"),
            allow_auto_create_topics: match role {
                ClientRole::Producer => true,
                ClientRole::Consumer => self.flag("allow.auto.create.topics"),
                ClientRole::Admin => false,
            },
            notes: self.problems.iter().filter(|problem| problem.severity != Severity::Error).cloned().collect(),
        }
    }

    /// The rules of KIP-679: idempotence unless something given contradicts it; an error when it was asked for as well.
    fn idempotence(&mut self) -> bool {
        let asked = self.given("enable.idempotence").is_some();
        if !self.flag("enable.idempotence") {
            return false;
        }
        let mut against = Vec::new();
        if !matches!(self.text("acks"), "all" | "-1") {
            against.push(("acks", "acks=all"));
        }
        if self.number("retries") == 0 {
            against.push(("retries", "retries above 0"));
        }
        if self.size("max.in.flight.requests.per.connection") > IN_FLIGHT_MAX_IDEMPOTENT {
            against.push(("max.in.flight.requests.per.connection", "at most 5 requests in flight"));
        }
        for (name, needed) in against.iter().filter(|_| asked) {
            let message = format!("enable.idempotence=true needs {needed}, but {name}={}", self.text(name));
            self.wrong(name, message, "change one of the two");
        }
        against.is_empty()
    }

    fn partitioner(&mut self) -> PartitionerKind {
        let name = self.text("partitioner.class").to_owned();
        match name.rsplit('.').next().unwrap_or_default() {
            // murmur2_random is what librdkafka calls Java's.
            "" | "null" | "murmur2_random" | "DefaultPartitioner" | "UniformStickyPartitioner" => {
                PartitionerKind::Default
            }
            "RoundRobinPartitioner" => PartitionerKind::RoundRobin,
            _ => {
                let message = format!("partitioner {name} is not known here");
                let help = "leave it out for murmur2 of the key as in Java, or write RoundRobinPartitioner; others are code: \
                            give the producer a partitioner of your own";
                self.wrong("partitioner.class", message, help);
                PartitionerKind::Default
            }
        }
    }

    fn compression_level(&mut self, codec: Codec) -> Option<i32> {
        let name = match codec {
            Codec::Gzip => "compression.gzip.level",
            Codec::Zstd => "compression.zstd.level",
            Codec::None | Codec::Snappy | Codec::Lz4 => return None,
        };
        match (self.given(name), self.given("compression.level")) {
            (None, Some(_)) => {
                let level = self.int("compression.level");
                if codec == Codec::Gzip && level > 9 {
                    let message = format!("compression.level={level}: gzip knows 1 to 9");
                    self.wrong("compression.level", message, "lower it, or use zstd");
                }
                (level > 0).then_some(level)
            }
            (Some(_), _) => Some(self.int(name)).filter(|level| codec != Codec::Gzip || *level != -1),
            (None, None) => None,
        }
    }

    fn offset_reset(&mut self) -> OffsetReset {
        let text = self.text("auto.offset.reset").to_owned();
        match text.as_str() {
            "earliest" => OffsetReset::Earliest,
            "latest" => OffsetReset::Latest,
            "none" => OffsetReset::None,
            _ => match text.strip_prefix("by_duration:").and_then(iso_duration) {
                Some(duration) => OffsetReset::ByDuration(duration),
                None => {
                    let message = format!("auto.offset.reset={text} is not known");
                    self.wrong("auto.offset.reset", message, "earliest, latest, none, or as in by_duration:PT1H30M");
                    OffsetReset::Latest
                }
            },
        }
    }
}

/// Reads `P1DT2H3M4.5S`, as Java's `Duration.parse` does, without signs.
fn iso_duration(text: &str) -> Option<Duration> {
    let rest = text.trim().to_ascii_uppercase();
    let rest = rest.strip_prefix('P')?;
    let (days, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (rest, ""),
    };
    let (mut seconds, mut parts) = (0.0, 0);
    for (part, units) in [(days, "D"), (time, "HMS")] {
        let mut part = part;
        let mut units = units;
        while !part.is_empty() {
            let end = part.find(|letter: char| letter.is_ascii_alphabetic())?;
            let unit = part[end..].chars().next()?;
            let number = &part[..end];
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            let at = units.find(unit)?;
            if number.is_empty() || !(whole || unit == 'S') {
                return None;
            }
            let factor = match unit {
                'D' => 86_400.0,
                'H' => 3_600.0,
                'M' => 60.0,
                _ => 1.0,
            };
            seconds += number.parse::<f64>().ok()? * factor;
            parts += 1;
            units = &units[at + 1..];
            part = &part[end + 1..];
        }
    }
    if parts == 0 { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

impl Settings for ProducerSettings {
    const ROLE: ClientRole = ClientRole::Producer;

    fn assemble(desk: &mut Desk) -> Self {
        let client = desk.client(Self::ROLE);
        let linger = desk.millis("linger.ms");
        let least = linger + client.request_timeout;
        let mut delivery_timeout = desk.millis("delivery.timeout.ms");
        if delivery_timeout < least {
            if desk.given("delivery.timeout.ms").is_some() {
                let message = "delivery.timeout.ms is less than linger.ms + request.timeout.ms".to_owned();
                desk.wrong("delivery.timeout.ms", message, "raise it, or lower one of the others");
            }
            delivery_timeout = least;
        }
        let compression = Codec::parse(desk.text("compression.type")).expect("the row lists the codecs");
        let enable_idempotence = desk.idempotence();
        let availability = desk.millis("partitioner.availability.timeout.ms");
        Self {
            acks: match desk.text("acks") {
                "0" => Acks::None,
                "1" => Acks::Leader,
                _ => Acks::All,
            },
            batch_size: desk.size("batch.size"),
            linger,
            buffer_memory: desk.size("buffer.memory") as u64,
            max_block: desk.millis("max.block.ms"),
            max_request_size: desk.size("max.request.size"),
            max_in_flight: desk.size("max.in.flight.requests.per.connection"),
            enable_idempotence,
            retries: desk.not_negative("retries").unwrap_or(0),
            delivery_timeout,
            compression,
            compression_level: desk.compression_level(compression),
            partitioner: desk.partitioner(),
            partitioner_ignore_keys: desk.flag("partitioner.ignore.keys"),
            partitioner_adaptive: desk.flag("partitioner.adaptive.partitioning.enable"),
            partitioner_availability_timeout: (!availability.is_zero()).then_some(availability),
            client,
        }
    }
}

impl Settings for ConsumerSettings {
    const ROLE: ClientRole = ClientRole::Consumer;

    fn assemble(desk: &mut Desk) -> Self {
        let mut client = desk.client(Self::ROLE);
        let group_id = desk.optional("group.id");
        let (session_timeout, heartbeat_interval) =
            (desk.millis("session.timeout.ms"), desk.millis("heartbeat.interval.ms"));
        if heartbeat_interval >= session_timeout {
            let message = "heartbeat.interval.ms is not less than session.timeout.ms".to_owned();
            desk.wrong("heartbeat.interval.ms", message, "a third of session.timeout.ms is wise");
        }
        if group_id.is_none() && desk.given("enable.auto.commit").is_some() && desk.flag("enable.auto.commit") {
            let message = "enable.auto.commit=true without a group.id".to_owned();
            desk.wrong("enable.auto.commit", message, "give a group.id: offsets are committed for a group");
        }
        let known =
            [AssignorKind::Range, AssignorKind::RoundRobin, AssignorKind::Sticky, AssignorKind::CooperativeSticky];
        let names = desk.text("partition.assignment.strategy");
        let assignors: Vec<_> =
            names.split(',').filter_map(|name| known.into_iter().find(|kind| kind.name() == name.trim())).collect();
        if assignors.is_empty() {
            let message = "partition.assignment.strategy is empty".to_owned();
            desk.wrong("partition.assignment.strategy", message, "name at least one, or leave it out");
        }
        if desk.given("receive.message.max.bytes").is_none() {
            // An answer may be as large as was asked for, and somewhat larger.
            let asked = desk.not_negative("fetch.max.bytes").unwrap_or(0).saturating_add(1 << 20);
            client.receive_message_max_bytes = client.receive_message_max_bytes.max(asked);
        }
        Self {
            enable_auto_commit: group_id.is_some() && desk.flag("enable.auto.commit"),
            group_id,
            group_instance_id: desk.optional("group.instance.id"),
            auto_offset_reset: desk.offset_reset(),
            auto_commit_interval: desk.millis("auto.commit.interval.ms"),
            session_timeout,
            heartbeat_interval,
            max_poll_interval: desk.millis("max.poll.interval.ms"),
            max_poll_records: desk.size("max.poll.records"),
            fetch_min_bytes: desk.int("fetch.min.bytes"),
            fetch_max_wait: desk.millis("fetch.max.wait.ms"),
            fetch_max_bytes: desk.int("fetch.max.bytes"),
            max_partition_fetch_bytes: desk.int("max.partition.fetch.bytes"),
            isolation_level: match desk.text("isolation.level") {
                "read_committed" => IsolationLevel::ReadCommitted,
                _ => IsolationLevel::ReadUncommitted,
            },
            check_crcs: desk.flag("check.crcs"),
            assignors,
            exclude_internal_topics: desk.flag("exclude.internal.topics"),
            default_api_timeout: desk.millis("default.api.timeout.ms"),
            client,
        }
    }
}

impl Settings for AdminSettings {
    const ROLE: ClientRole = ClientRole::Admin;

    fn assemble(desk: &mut Desk) -> Self {
        Self {
            client: desk.client(Self::ROLE),
            default_api_timeout: desk.millis("default.api.timeout.ms"),
            retries: desk.not_negative("retries").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(words: &[(&str, &str)]) -> Result<ProducerSettings, String> {
        let builder = ProducerSettings::builder().set("bootstrap.servers", "b:1");
        let built = words.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).build();
        built.map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_kafkas() {
        let settings = producer(&[]).unwrap();
        assert_eq!(
            (settings.batch_size, settings.linger, settings.acks),
            (16_384, Duration::from_millis(5), Acks::All)
        );
        assert!(settings.enable_idempotence && settings.partitioner_adaptive);
        assert_eq!(settings.delivery_timeout, Duration::from_secs(120));
        assert_eq!(settings.client.connections_max_idle, Some(Duration::from_secs(540)));
        let consumer = ConsumerSettings::builder().set("bootstrap.servers", "b").build().unwrap();
        assert_eq!(consumer.assignors, [AssignorKind::Range, AssignorKind::CooperativeSticky]);
        assert_eq!((consumer.auto_offset_reset, consumer.enable_auto_commit), (OffsetReset::Latest, false));
        let admin = AdminSettings::builder().set("bootstrap.servers", "b").build().unwrap();
        assert_eq!(admin.client.connections_max_idle, Some(Duration::from_secs(300)));
        assert!(!admin.client.allow_auto_create_topics);
    }

    #[test]
    fn a_properties_file_of_either_client_is_read() {
        let text = b"# mine\nmetadata.broker.list=a:1,[::1]:2\nqueue.buffering.max.ms = 50\nkey.serializer=x.Y\ncompression.codec=zstd\n";
        let settings = ProducerSettings::from_properties(text, "client.properties").unwrap();
        let servers: Vec<_> = settings.client.bootstrap_servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["a:1", "[::1]:2"]);
        assert_eq!((settings.linger.as_millis(), settings.compression), (50, Codec::Zstd));
        assert_eq!(settings.client.notes.len(), 1);
        assert_eq!(settings.client.notes[0].place, "client.properties:4");
        let refused = ProducerSettings::from_properties(b"linger.ms=5\nlingr.ms=5\n", "f").unwrap_err().to_string();
        assert_eq!(
            refused,
            "f:2: unknown setting lingr.ms (did you mean linger.ms?)\n\
             settings: bootstrap.servers is missing (as in bootstrap.servers=127.0.0.1:9092)"
        );
    }

    #[test]
    fn idempotence_gives_way_unless_it_was_asked_for() {
        assert!(!producer(&[("acks", "1")]).unwrap().enable_idempotence);
        assert!(!producer(&[("max.in.flight", "6")]).unwrap().enable_idempotence);
        let refused = producer(&[("acks", "1"), ("enable.idempotence", "true")]).unwrap_err();
        assert!(refused.contains("enable.idempotence=true needs acks=all, but acks=1"), "{refused}");
    }

    #[test]
    fn delivery_takes_at_least_linger_and_one_request() {
        assert_eq!(producer(&[("linger.ms", "200000")]).unwrap().delivery_timeout, Duration::from_secs(230));
        assert!(producer(&[("delivery.timeout.ms", "1000")]).is_err());
    }

    #[test]
    fn levels_belong_to_their_codec() {
        let level = |words: &[(&str, &str)]| producer(words).map(|settings| settings.compression_level);
        assert_eq!(level(&[("compression.type", "gzip"), ("compression.gzip.level", "6")]), Ok(Some(6)));
        assert_eq!(level(&[("compression.type", "zstd"), ("compression.level", "9")]), Ok(Some(9)));
        assert_eq!(level(&[("compression.type", "snappy"), ("compression.level", "9")]), Ok(None));
        assert!(level(&[("compression.type", "gzip"), ("compression.level", "12")]).is_err());
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| HostPort::parse(text).map(|address| address.to_string());
        assert_eq!(read("h").as_deref(), Ok("h:9092"));
        assert_eq!(read(" PLAINTEXT://h:1 ").as_deref(), Ok("h:1"));
        assert_eq!(read("[::1]").as_deref(), Ok("[::1]:9092"));
        for bad in ["", ":1", "h:", "h:0", "h:70000", "::1", "http://h:1", "h:1/x", "[::1]x", "a b:1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_read_as_java_writes_them() {
        assert_eq!(iso_duration("PT1H30M"), Some(Duration::from_secs(5400)));
        assert_eq!(iso_duration("P1DT0.5S"), Some(Duration::from_millis(86_400_500)));
        for bad in ["", "P", "PT", "1H", "PT1D", "PT1M1H", "P1H", "PTH", "PT-1S"] {
            assert_eq!(iso_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_consumers_rules_hold() {
        let consumer = |key: &str, value: &str| {
            ConsumerSettings::builder()
                .set("bootstrap.servers", "b")
                .set(key, value)
                .build()
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            consumer("auto.offset.reset", "by_duration:PT2S").unwrap().auto_offset_reset,
            OffsetReset::ByDuration(Duration::from_secs(2))
        );
        for (key, value) in [
            ("auto.offset.reset", "sometimes"),
            ("heartbeat.interval.ms", "45000"),
            ("enable.auto.commit", "true"),
            ("partition.assignment.strategy", ""),
            ("partition.assignment.strategy", "com.example.Mine"),
            ("group.protocol", "consumer"),
        ] {
            assert!(consumer(key, value).is_err(), "{key}={value}");
        }
    }
}
