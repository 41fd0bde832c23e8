//! From the words that were given to typed broker settings, or to all their problems at once.
//!
//! Pure: what it must know of the host is a parameter. Owns the rules between keys (listeners, roles, ids, directories) and the
//! sentences of problems. Does not own the checks of single values ([`super::rows`]) nor where the words come from
//! ([`super::load`]). Always: settings come out only when no problem is an error.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::broker_rows::{BROKER_ROWS, FAMILIES, INNER, broker_row, family};
use super::rows::{Handling, parse_boolean, split_list};
use super::{BrokerSettings, Listener, Problem, Severity, ValidateRecords};
use crate::types::BrokerId;

/// Longer than any run, and short enough to be added to any clock.
const LONG_TIME: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What must be known of the machine.
pub(super) struct Host {
    /// Its name.
    pub(super) name: String,
    /// How much memory this process may use, of the machine or its cgroup.
    pub(super) memory_bytes: u64,
}

/// One key as it was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) value: String,
    pub(super) place: String,
}

/// Judges every key, then all together.
pub(super) fn settle(
    given: BTreeMap<String, Given>,
    cluster_id: Option<Given>,
    host: &Host,
    problems: Vec<Problem>,
) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> {
    let mut desk = Desk { values: BTreeMap::new(), places: BTreeMap::new(), problems };
    for (key, given) in given {
        desk.admit(key, given);
    }
    let settings = desk.settings(cluster_id, host);
    if desk.problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(desk.problems);
    }
    Ok((settings, desk.problems))
}

/// The key nearest to `wrong`, when one is near enough to be meant.
pub(super) fn nearest(wrong: &str) -> Option<&'static str> {
    let rows = BROKER_ROWS.iter().map(|row| (strsim::jaro_winkler(wrong, row.name), row.name));
    rows.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.9).map(|(_, name)| name)
}

/// Values that passed their own check, and what was found so far.
struct Desk {
    values: BTreeMap<String, String>,
    places: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Desk {
    /// Takes one key with a good value; anything else becomes a problem.
    fn admit(&mut self, key: String, given: Given) {
        let Given { value, place } = given;
        let Some(row) = broker_row(&key) else {
            match family(&key) {
                Some(Handling::Refused(why)) => {
                    self.problem(Severity::Error, place, format!("{key} is not served"), Some(why.into()))
                }
                Some(Handling::Noted(why) | Handling::Mapped(why)) => {
                    self.problem(Severity::Note, place, format!("{key} has no effect here"), Some(why.into()));
                }
                Some(Handling::Honoured) => unreachable!("families are noted or refused: {FAMILIES:?}"),
                None if INNER.contains(&key.as_str()) => {
                    let why = "it concerns the inside of Java's broker, or has gone from Kafka";
                    self.problem(Severity::Note, place, format!("{key} has no effect here"), Some(why.into()));
                }
                None => {
                    let help = nearest(&key).map(|name| format!("did you mean {name}?"));
                    self.problem(Severity::Error, place, format!("unknown key {key}"), help);
                }
            }
            return;
        };
        if row.name.starts_with("engine.") && row.default.is_none() && value.trim() == "auto" {
            return;
        }
        let plain = row.plain(&value);
        if let Err(why) = row.check(&plain) {
            self.problem(Severity::Error, place, why, Some(row.doc.to_owned()));
            return;
        }
        match row.handling {
            Handling::Refused(why) if row.default != Some(plain.as_str()) => {
                self.problem(Severity::Error, place, format!("{key}={plain} is not served"), Some(why.to_owned()));
                return;
            }
            Handling::Noted(why) => {
                self.problem(Severity::Note, place.clone(), format!("{key} has no effect here"), Some(why.to_owned()));
            }
            Handling::Mapped(how) => {
                self.problem(
                    Severity::Note,
                    place.clone(),
                    format!("{key} works differently here"),
                    Some(how.to_owned()),
                );
            }
            Handling::Honoured | Handling::Refused(_) => {}
        }
        self.places.insert(key.clone(), place);
        self.values.insert(key, plain);
    }

    fn problem(&mut self, severity: Severity, place: String, message: String, help: Option<String>) {
        self.problems.push(Problem { severity, place, message, help });
    }

    /// A problem with the value of `key`, wherever that was given.
    fn error(&mut self, key: &str, message: String, help: &str) {
        let place = self.place(key);
        self.problem(Severity::Error, place, message, Some(help.to_owned()));
    }

    fn warn(&mut self, key: &str, message: String, help: &str) {
        let place = self.place(key);
        self.problem(Severity::Warning, place, message, Some(help.to_owned()));
    }

    fn place(&self, key: &str) -> String {
        self.places.get(key).cloned().unwrap_or_else(|| "defaults".to_owned())
    }

    /// The value of `key` or its default; `None` is null.
    fn optional(&self, key: &str) -> Option<&str> {
        let row = broker_row(key).expect("only keys with a row are asked for");
        self.values.get(key).map(String::as_str).or(row.default)
    }

    fn text(&self, key: &str) -> &str {
        self.optional(key).expect("only keys with a default are asked for without a choice")
    }

    fn number(&self, key: &str) -> i64 {
        self.text(key).parse().expect("the row's check let only integers pass")
    }

    fn count(&self, key: &str) -> u32 {
        u32::try_from(self.number(key)).expect("the row's range lies within 32 bits without sign")
    }

    fn flag(&self, key: &str) -> bool {
        parse_boolean(self.text(key)).expect("the row's check let only booleans pass")
    }

    fn millis(&self, key: &str) -> Duration {
        Duration::from_millis(u64::try_from(self.number(key)).expect("the row's range begins at 0"))
    }

    fn settings(&mut self, cluster_id: Option<Given>, host: &Host) -> BrokerSettings {
        self.check_roles();
        self.check_replication();
        self.check_retention();
        let node_id = self.node_id();
        let listener = self.listener();
        let (advertised_host, advertised_port) = self.advertised(&listener, host);
        let log_dirs = self.log_dirs();
        let admin_listener = self.admin_listener();
        let engine_cpu_set = self.cpu_set();
        let cluster_id = self.cluster_id(cluster_id);
        if self.number("group.min.session.timeout.ms") > self.number("group.max.session.timeout.ms") {
            let message = "group.min.session.timeout.ms is larger than group.max.session.timeout.ms".to_owned();
            self.error(
                "group.min.session.timeout.ms",
                message,
                "no member could join: lower the one or raise the other",
            );
        }
        let os_when_negative = |number: i64| u32::try_from(number).ok();
        let idle = u64::try_from(self.number("connections.max.idle.ms")).map_or(LONG_TIME, Duration::from_millis);
        BrokerSettings {
            node_id,
            broker_rack: self.optional("broker.rack").map(str::to_owned),
            cluster_id,
            listener,
            advertised_host,
            advertised_port,
            log_dirs,
            admin_listener,
            max_request_partition_size_limit: self.count("max.request.partition.size.limit"),
            auto_create_topics_enable: self.flag("auto.create.topics.enable"),
            delete_topic_enable: self.flag("delete.topic.enable"),
            num_partitions: self.count("num.partitions"),
            default_replication_factor: self.count("default.replication.factor").try_into().unwrap_or(i16::MAX),
            fetch_max_bytes: self.count("fetch.max.bytes"),
            socket_request_max_bytes: self.count("socket.request.max.bytes"),
            socket_listen_backlog_size: self.count("socket.listen.backlog.size"),
            socket_send_buffer_bytes: os_when_negative(self.number("socket.send.buffer.bytes")),
            socket_receive_buffer_bytes: os_when_negative(self.number("socket.receive.buffer.bytes")),
            connections_max_idle: idle.min(LONG_TIME),
            max_connections: self.count("max.connections"),
            max_connections_per_ip: self.count("max.connections.per.ip"),
            offsets_topic_num_partitions: self.count("offsets.topic.num.partitions"),
            offsets_topic_segment_bytes: self.count("offsets.topic.segment.bytes"),
            offsets_retention: Duration::from_secs(60 * u64::from(self.count("offsets.retention.minutes"))),
            offsets_retention_check_interval: self.millis("offsets.retention.check.interval.ms"),
            offset_metadata_max_bytes: self.count("offset.metadata.max.bytes"),
            offsets_commit_timeout: self.millis("offsets.commit.timeout.ms"),
            group_initial_rebalance_delay: self.millis("group.initial.rebalance.delay.ms"),
            group_min_session_timeout: self.millis("group.min.session.timeout.ms"),
            group_max_session_timeout: self.millis("group.max.session.timeout.ms"),
            group_max_size: self.count("group.max.size"),
            log_retention_check_interval: self.millis("log.retention.check.interval.ms"),
            log_flush_offset_checkpoint_interval: self.millis("log.flush.offset.checkpoint.interval.ms"),
            producer_id_expiration: self.millis("producer.id.expiration.ms"),
            engine_flush_interval: self.millis("engine.flush.interval.ms"),
            engine_preallocate_bytes: self.count("engine.preallocate.bytes"),
            engine_prewrite_max_bytes: self.count("engine.prewrite.max.bytes"),
            engine_shards: self.optional("engine.shards").map(|_| self.count("engine.shards")),
            engine_cpu_set,
            engine_memory_max_bytes: match self.optional("engine.memory.max.bytes") {
                Some(_) => self.number("engine.memory.max.bytes").unsigned_abs(),
                None => host.memory_bytes / 5 * 3,
            },
            engine_io_memory_bytes: self.count("engine.io.memory.bytes"),
            engine_tail_cache_bytes: self
                .optional("engine.tail.cache.bytes")
                .map(|_| self.number("engine.tail.cache.bytes").unsigned_abs()),
            engine_validate_records: match self.text("engine.validate.records") {
                "none" => ValidateRecords::None,
                "all" => ValidateRecords::All,
                _ => ValidateRecords::Compacted,
            },
            given: self.values.clone(),
        }
    }

    fn check_roles(&mut self) {
        if !split_list(self.text("process.roles")).contains(&"broker") {
            let message = "process.roles has no broker in it".to_owned();
            self.error(
                "process.roles",
                message,
                "a node that is only a controller is not served: use broker,controller",
            );
        }
        for key in ["controller.quorum.voters", "controller.quorum.bootstrap.servers"] {
            let count = split_list(self.text(key)).len();
            if count > 1 {
                let help = "one node keeps its own metadata log: remove the key";
                self.error(key, format!("{key} names {count} controllers; quorums are not served yet"), help);
            }
        }
    }

    fn check_replication(&mut self) {
        if self.values.get("offsets.topic.replication.factor").is_some_and(|given| given != "1") {
            let message = "__consumer_offsets will have one replica: there is one broker".to_owned();
            self.warn("offsets.topic.replication.factor", message, "offsets.topic.replication.factor=1 says the same");
        }
        let key = "default.replication.factor";
        if self.count(key) > 1 {
            let message = format!("{key}={} is more than there are brokers", self.count(key));
            self.warn(key, message, "topics whose creator does not say 1 will be refused, as on a Kafka of one broker");
        }
    }

    /// Of a topic 0 is taken, as in Kafka; for all of them it is not.
    fn check_retention(&mut self) {
        let keys = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
        let Some(key) = keys.into_iter().find(|key| self.values.contains_key(*key)) else { return };
        if self.number(key) == 0 {
            let message = format!("{key} must be unlimited (-1) or, greater than or equal to 1");
            self.error(key, message, "0 would delete every closed segment of every topic; -1 keeps all");
        }
    }

    fn node_id(&mut self) -> BrokerId {
        let mut id = self.number("node.id");
        if let Some(old) = self.values.get("broker.id").filter(|old| *old != "-1").cloned() {
            if self.values.get("node.id").is_some_and(|new| *new != old) {
                self.error("broker.id", format!("broker.id={old} and node.id={id} differ"), "keep node.id");
            } else {
                self.warn("broker.id", "broker.id is the old name of node.id".to_owned(), "write node.id");
                id = self.number("broker.id");
                self.values.insert("node.id".to_owned(), old);
            }
        }
        i32::try_from(id).ok().and_then(BrokerId::new).expect("the row's range begins at 0 and ends within 32 bits")
    }

    /// The one client listener. Its errors leave the default in place, which nobody sees.
    fn listener(&mut self) -> Listener {
        let controllers = self.optional("controller.listener.names").unwrap_or_default();
        let controllers: Vec<String> = split_list(controllers).into_iter().map(str::to_ascii_uppercase).collect();
        let protocols = self.protocols();
        let mut served = Vec::new();
        let listeners = self.text("listeners").to_owned();
        for text in split_list(&listeners) {
            let listener = match parse_listener(text) {
                Ok(listener) => listener,
                Err(why) => {
                    self.error("listeners", format!("{text:?} is no listener: {why}"), "write NAME://host:port");
                    continue;
                }
            };
            if controllers.contains(&listener.name) {
                let place = self.place("listeners");
                let message = format!("no port is opened for {listener}");
                self.problem(Severity::Note, place, message, Some("one node needs no controller listener".to_owned()));
                continue;
            }
            match protocols.get(&listener.name).map(String::as_str) {
                Some("PLAINTEXT") => served.push(listener),
                Some(protocol) => {
                    let help =
                        "only PLAINTEXT is served so far: keep the broker in a trusted network, or behind a TLS proxy";
                    self.error("listeners", format!("{listener} is {protocol}, which is not served"), help);
                }
                None => {
                    let help = "give it a protocol in listener.security.protocol.map";
                    self.error("listeners", format!("nobody says which protocol {listener} speaks"), help);
                }
            }
        }
        if served.len() > 1 {
            let help = "one client listener is served so far: keep the one that clients use";
            self.error("listeners", format!("{} client listeners are given", served.len()), help);
        }
        if served.is_empty() && self.problems.iter().all(|problem| problem.severity != Severity::Error) {
            self.error("listeners", "there is no listener for clients".to_owned(), "add PLAINTEXT://:9092");
        }
        let default = || Listener { name: "PLAINTEXT".to_owned(), host: "127.0.0.1".to_owned(), port: 9092 };
        served.into_iter().next().unwrap_or_else(default)
    }

    /// Listener name to protocol, both in capitals as Kafka compares them.
    fn protocols(&mut self) -> BTreeMap<String, String> {
        let text = self.text("listener.security.protocol.map").to_owned();
        let mut protocols = BTreeMap::new();
        for pair in split_list(&text) {
            match pair.split_once(':') {
                Some((name, protocol)) => {
                    protocols.insert(name.trim().to_ascii_uppercase(), protocol.trim().to_ascii_uppercase());
                }
                None => {
                    let message = format!("{pair:?} is no NAME:PROTOCOL");
                    self.error("listener.security.protocol.map", message, "write pairs such as PLAINTEXT:PLAINTEXT");
                }
            }
        }
        protocols
    }

    fn advertised(&mut self, listener: &Listener, host: &Host) -> (String, u16) {
        let everywhere = |name: &str| matches!(name, "" | "0.0.0.0" | "::");
        let text = self.optional("advertised.listeners").unwrap_or_default().to_owned();
        for entry in split_list(&text) {
            match parse_listener(entry) {
                Ok(advertised) if advertised.name != listener.name => {}
                Ok(advertised) if matches!(advertised.host.as_str(), "0.0.0.0" | "::") => {
                    let help = "clients are sent there: name an address they can reach";
                    self.error("advertised.listeners", format!("{entry} is not an address to connect to"), help);
                }
                Ok(advertised) => {
                    let name = if advertised.host.is_empty() { host.name.clone() } else { advertised.host };
                    return (name, advertised.port);
                }
                Err(why) => {
                    let message = format!("{entry:?} is no listener: {why}");
                    self.error("advertised.listeners", message, "write NAME://host:port");
                }
            }
        }
        if !everywhere(&listener.host) {
            return (listener.host.clone(), listener.port);
        }
        let help = "set advertised.listeners if clients cannot reach this machine by that name";
        self.warn("listeners", format!("clients will be sent to {}", host.name), help);
        (host.name.clone(), listener.port)
    }

    fn log_dirs(&mut self) -> Vec<PathBuf> {
        let key =
            if split_list(self.optional("log.dirs").unwrap_or_default()).is_empty() { "log.dir" } else { "log.dirs" };
        let text = self.text(key).to_owned();
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in split_list(&text) {
            let dir = PathBuf::from(dir);
            if dirs.contains(&dir) {
                let help = "two log dirs cannot be one place";
                self.error(key, format!("{} is given twice", dir.display()), help);
            } else {
                dirs.push(dir);
            }
        }
        if dirs.is_empty() {
            self.error(key, "no data directory is given".to_owned(), "name at least one, or remove the key for ./data");
        }
        dirs
    }

    fn admin_listener(&mut self) -> Option<SocketAddr> {
        let text = self.text("admin.listener").to_owned();
        match text.as_str() {
            "off" => None,
            address => match address.parse() {
                Ok(address) => Some(address),
                Err(_) => {
                    let message = format!("{address:?} is no address:port");
                    self.error("admin.listener", message, "write 127.0.0.1:9644, [::1]:9644, or off");
                    None
                }
            },
        }
    }

    fn cpu_set(&mut self) -> Option<Vec<usize>> {
        let text = self.optional("engine.cpu.set")?.to_owned();
        let cpus = parse_cpu_set(&text);
        if cpus.is_none() {
            self.error(
                "engine.cpu.set",
                format!("{text:?} is no set of cores"),
                "write numbers and ranges, such as 2-7,9",
            );
        }
        cpus
    }

    fn cluster_id(&mut self, given: Option<Given>) -> Option<String> {
        let Given { value, place } = given?;
        // Kafka takes any text; what it generates has 22 letters, and the file it stands in has one line.
        if value.is_empty() || value.len() > 64 || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            let help = "a cluster id is a short word; Kafka's own have 22 letters".to_owned();
            self.problem(Severity::Error, place, format!("{value:?} is no cluster id"), Some(help));
            return None;
        }
        Some(value)
    }
}

fn parse_listener(text: &str) -> Result<Listener, &'static str> {
    let (name, address) = text.split_once("://").ok_or("it has no ://")?;
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or("its bracket is not closed")?,
        None if host.contains(':') => return Err("an IPv6 address needs brackets"),
        None => host,
    };
    if name.is_empty() {
        return Err("it has no name");
    }
    let port = port.parse().map_err(|_| "its port is no number up to 65535")?;
    Ok(Listener { name: name.to_ascii_uppercase(), host: host.to_owned(), port })
}

fn parse_cpu_set(text: &str) -> Option<Vec<usize>> {
    // The kernel's own limit of CPU numbers; it also bounds what a range may ask us to list.
    const CPUS_MAX: usize = 8192;
    let mut cpus = Vec::new();
    for part in split_list(text) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}
