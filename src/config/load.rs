//! Gathers what was given: the file, the environment, the command line.
//!
//! Shell: reads the settings file and those it points to, and asks the host for its name and memory. Owns the precedence between
//! sources and the names of the environment. Does not own what keys mean ([`super::settle`]). Always: of file, environment and
//! command line the later wins, and each value keeps the place it was given at. Source: the environment names of Apache Kafka's
//! container image; KIP-297.

use std::collections::BTreeMap;
use std::path::Path;

use super::properties::{self, Reference};
use super::settle::{Given, Host, nearest, settle};
use super::{BrokerSettings, Problem, Severity, Sources};

/// Environment names that begin like a setting but speak to Java's start scripts, or that Kubernetes makes for a service named
/// kafka.
const NOT_SETTINGS: &[&str] = &[
    "KAFKA_HEAP_OPTS",
    "KAFKA_JVM_",
    "KAFKA_LOG4J_",
    "KAFKA_TOOLS_LOG4J_",
    "KAFKA_JMX_",
    "KAFKA_OPTS",
    "KAFKA_GC_",
    "KAFKA_DEBUG",
    "KAFKA_HOME",
    "KAFKA_VERSION",
    "KAFKA_SERVICE_",
    "KAFKA_PORT",
    "KAFKA_CLUSTER_ID",
];

/// Reads all sources. The answer holds the settings with notes and warnings, or every problem that was found.
pub fn load(sources: &Sources) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> {
    load_on(sources, &host())
}

fn load_on(sources: &Sources, host: &Host) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> {
    let mut gathered = Gathered { env: &sources.env, given: BTreeMap::new(), problems: Vec::new() };
    if let Some(file) = &sources.file {
        gathered.read_file(file);
    }
    gathered.read_env();
    for (key, value) in &sources.overrides {
        gathered.put(key.clone(), value, "--override".to_owned());
    }
    let cluster_id = ["CLUSTER_ID", "KAFKA_CLUSTER_ID"].into_iter().find_map(|name| {
        let (_, value) = sources.env.iter().find(|(key, _)| key == name)?;
        Some(Given { value: value.trim().to_owned(), place: name.to_owned() })
    });
    settle(gathered.given, cluster_id, host, gathered.problems)
}

struct Gathered<'a> {
    env: &'a [(String, String)],
    given: BTreeMap<String, Given>,
    problems: Vec<Problem>,
}

impl Gathered<'_> {
    fn read_file(&mut self, path: &Path) {
        let name = path.display().to_string();
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) => {
                let help = "name a readable settings file, or leave it out: every setting has a default";
                return self.error(name, format!("the settings cannot be read: {error}"), Some(help.to_owned()));
            }
        };
        match properties::parse(&text) {
            Ok(entries) => {
                for entry in entries {
                    let place = format!("{name}:{}", entry.line);
                    if let Some(earlier) = entry.replaces {
                        self.problems.push(Problem {
                            severity: Severity::Warning,
                            place: place.clone(),
                            message: format!("{} was already set on line {earlier}", entry.key),
                            help: Some("the later line holds: remove the other".to_owned()),
                        });
                    }
                    self.put(entry.key, &entry.value, place);
                }
            }
            Err((line, why)) => {
                let place = line.map_or(name.clone(), |line| format!("{name}:{line}"));
                self.error(place, why, None);
            }
        }
    }

    fn read_env(&mut self) {
        for (name, value) in self.env {
            let Some(rest) = name.strip_prefix("KAFKA_") else { continue };
            if NOT_SETTINGS.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let key = env_to_key(rest.strip_prefix("CFG_").unwrap_or(rest));
            self.put(key, value, name.clone());
        }
    }

    /// Takes one key with its references replaced; a later source wins.
    fn put(&mut self, key: String, value: &str, place: String) {
        let env = self.env;
        let expanded = properties::expand(value, |reference| match reference {
            Reference::Env(name) => {
                let found = env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
                found.ok_or_else(|| format!("the environment has no {name}"))
            }
            Reference::File { path, key } => {
                let text = std::fs::read(path).map_err(|error| format!("{path} cannot be read: {error}"))?;
                properties::lookup(&text, key).ok_or_else(|| format!("{path} has no key {key}"))
            }
        });
        match expanded {
            Ok(value) => _ = self.given.insert(key, Given { value, place }),
            Err(why) => {
                let help = nearest(&key).filter(|name| *name != key).map(|name| format!("did you mean {name}?"));
                self.error(place, format!("{key}: {why}"), help);
            }
        }
    }

    fn error(&mut self, place: String, message: String, help: Option<String>) {
        self.problems.push(Problem { severity: Severity::Error, place, message, help });
    }
}

/// `LOG_DIRS` is `log.dirs`; a double underscore is one underscore, a triple one a dash.
fn env_to_key(name: &str) -> String {
    name.to_ascii_lowercase().replace("___", "-").replace("__", "\u{0}").replace('_', ".").replace('\u{0}', "_")
}

fn host() -> Host {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Host { name: if name.is_empty() { "localhost".to_owned() } else { name }, memory_bytes: memory_bytes() }
}

/// The least of the machine's memory and the limits of our cgroup (version 2) and all above it.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The widths differ between machines; so do the lints about them.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let mut bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    for group in root.join(own).ancestors().take_while(|group| group.starts_with(root)) {
        let limit = std::fs::read_to_string(group.join("memory.max")).ok();
        bytes = bytes.min(limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX));
    }
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::config::{Listener, ValidateRecords};
    use crate::types::BrokerId;

    fn a_host() -> Host {
        Host { name: "box".to_owned(), memory_bytes: 10 << 30 }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn load_overrides(list: &[(&str, &str)]) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> {
        load_on(&Sources { overrides: pairs(list), ..Default::default() }, &a_host())
    }

    /// Settings with these overrides, for the tests of the room.
    pub(in super::super) fn settings(list: &[(&str, &str)]) -> BrokerSettings {
        load_overrides(list).unwrap().0
    }

    fn refusal(list: &[(&str, &str)]) -> String {
        let problems = load_overrides(list).unwrap_err();
        let errors: Vec<String> = problems
            .into_iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| format!("{} / {}", problem.message, problem.help.unwrap_or_default()))
            .collect();
        errors.join("\n")
    }

    fn load_file(text: &str, env: &[(&str, &str)]) -> Result<(BrokerSettings, Vec<Problem>), Vec<Problem>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        std::fs::write(&path, text.replace("DIR", &dir.path().display().to_string())).unwrap();
        std::fs::write(dir.path().join("secret"), "where=/srv/log\n").unwrap();
        load_on(&Sources { file: Some(path), env: pairs(env), overrides: Vec::new() }, &a_host())
    }

    #[test]
    fn without_a_word_everything_has_a_default() {
        let (settings, problems) = load_overrides(&[]).unwrap();
        assert_eq!(problems, []);
        assert_eq!(settings.node_id, BrokerId::new(1).unwrap());
        assert_eq!(settings.listener, Listener { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 9092 });
        assert_eq!((settings.advertised_host.as_str(), settings.advertised_port), ("127.0.0.1", 9092));
        assert_eq!(settings.log_dirs, [PathBuf::from("data")]);
        assert_eq!(settings.admin_listener, Some("127.0.0.1:9644".parse().unwrap()));
        assert_eq!(settings.engine_memory_max_bytes, 6 << 30);
        assert_eq!(settings.engine_validate_records, ValidateRecords::Compacted);
        assert_eq!(settings.offsets_retention, Duration::from_secs(7 * 86_400));
        assert_eq!((settings.engine_shards, settings.engine_cpu_set), (None, None));
    }

    #[test]
    fn every_default_passes_its_own_check_and_names_are_unique() {
        let mut names = std::collections::BTreeSet::new();
        for row in crate::config::BROKER_ROWS {
            assert!(names.insert(row.name), "{} stands twice", row.name);
            assert!(row.default.is_none_or(|value| row.check(value).is_ok()), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
    }

    /// Kafka's own sample file for one combined node, key by key.
    #[test]
    fn the_usual_server_properties_is_taken() {
        let text = "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n\
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\ncontroller.listener.names=CONTROLLER\n\
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT\n\
            num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\nsocket.receive.buffer.bytes=102400\n\
            socket.request.max.bytes=104857600\nlog.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\n\
            num.recovery.threads.per.data.dir=2\noffsets.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1\n\
            transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.hours=168\n\
            log.segment.bytes=1073741824\nlog.retention.check.interval.ms=300000\n";
        let (settings, problems) = load_file(text, &[]).unwrap();
        assert!(problems.iter().all(|problem| problem.severity == Severity::Note), "{problems:#?}");
        assert_eq!(settings.listener, Listener { name: "PLAINTEXT".into(), host: String::new(), port: 9092 });
        assert_eq!((settings.advertised_host.as_str(), settings.advertised_port), ("localhost", 9092));
        assert_eq!(settings.log_dirs, [PathBuf::from("/tmp/kraft-combined-logs")]);
    }

    #[test]
    fn all_problems_come_at_once_with_their_lines() {
        let text =
            "log.retention.hour=168\nnode.id=one\n# fine\nnum.partitions=0\nzookeeper.connect=z:2181\nnode.id=x\n";
        let problems = load_file(text, &[]).unwrap_err();
        let seen: Vec<(String, String, Option<String>)> = problems
            .into_iter()
            .map(|problem| {
                let place = problem.place.rsplit_once('/').unwrap().1.to_owned();
                (place, problem.message, problem.help.filter(|help| help.starts_with("did you")))
            })
            .collect();
        let entry =
            |place: &str, message: &str, help: Option<&str>| (place.into(), message.into(), help.map(str::to_owned));
        assert_eq!(
            seen,
            [
                entry("server.properties:6", "node.id was already set on line 2", None),
                entry(
                    "server.properties:1",
                    "unknown key log.retention.hour",
                    Some("did you mean log.retention.hours?")
                ),
                entry(
                    "server.properties:6",
                    "Invalid value x for configuration node.id: Not a number of type INT",
                    None
                ),
                entry(
                    "server.properties:4",
                    "Invalid value 0 for configuration num.partitions: Value must be at least 1",
                    None
                ),
                entry("server.properties:5", "zookeeper.connect is not served", None),
            ]
        );
    }

    #[test]
    fn the_environment_is_stronger_than_the_file_and_the_command_line_than_both() {
        let env = [
            ("KAFKA_NUM_PARTITIONS", "4"),
            ("KAFKA_CFG_BROKER_RACK", "r1"),
            ("KAFKA_HEAP_OPTS", "-Xmx1g"),
            ("KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
            ("KAFKA_LOG4J_ROOT_LOGLEVEL", "DEBUG"),
            ("CLUSTER_ID", "5L6g3nShT-eMCtK--X86sw"),
            ("PATH", "/bin"),
        ];
        let (settings, problems) = load_file("num.partitions=2\nbroker.rack=r0\n", &env).unwrap();
        assert_eq!(problems, []);
        assert_eq!((settings.num_partitions, settings.broker_rack.as_deref()), (4, Some("r1")));
        assert_eq!(settings.cluster_id.as_deref(), Some("5L6g3nShT-eMCtK--X86sw"));
        let sources = Sources { env: pairs(&env), overrides: pairs(&[("num.partitions", "9")]), ..Default::default() };
        assert_eq!(load_on(&sources, &a_host()).unwrap().0.num_partitions, 9);
    }

    #[test]
    fn environment_names_are_those_of_kafkas_image() {
        for (name, key) in [
            ("LOG_DIRS", "log.dirs"),
            ("LISTENER_NAME_INTERNAL_SSL___A__B", "listener.name.internal.ssl-a_b"),
            ("AUTO_CREATE_TOPICS_ENABLE", "auto.create.topics.enable"),
        ] {
            assert_eq!(env_to_key(name), key);
        }
    }

    #[test]
    fn an_unknown_environment_name_is_an_error_too() {
        let sources = Sources { env: pairs(&[("KAFKA_NUM_PARTITION", "4")]), ..Default::default() };
        let problems = load_on(&sources, &a_host()).unwrap_err();
        assert_eq!(problems[0].place, "KAFKA_NUM_PARTITION");
        assert_eq!(problems[0].help.as_deref(), Some("did you mean num.partitions?"));
    }

    #[test]
    fn values_may_point_to_the_environment_and_to_files() {
        let text = "broker.rack=${env:RACK}\nlog.dirs=${file:DIR/secret:where}/a\nnum.partitions=${env:NOPE}\n";
        let problems = load_file(text, &[("RACK", "r9")]).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].message, "num.partitions: the environment has no NOPE");
        let (settings, _) = load_file(text, &[("RACK", "r9"), ("NOPE", "3")]).unwrap();
        assert_eq!((settings.broker_rack.as_deref(), settings.num_partitions), (Some("r9"), 3));
        assert_eq!(settings.log_dirs, [PathBuf::from("/srv/log/a")]);
    }

    #[test]
    fn units_are_taken_where_kafka_wants_plain_numbers() {
        let settings = settings(&[
            ("log.segment.bytes", "16MiB"),
            ("connections.max.idle.ms", "10m"),
            ("offsets.retention.minutes", "7d"),
            ("engine.memory.max.bytes", "512MB"),
            ("engine.shards", "auto"),
            ("engine.cpu.set", "2-4, 9,3"),
        ]);
        assert_eq!(settings.given["log.segment.bytes"], "16777216");
        assert_eq!(settings.connections_max_idle, Duration::from_secs(600));
        assert_eq!(settings.offsets_retention, Duration::from_secs(7 * 86_400));
        assert_eq!(settings.engine_memory_max_bytes, 512_000_000);
        assert_eq!((settings.engine_shards, settings.engine_cpu_set), (None, Some(vec![2, 3, 4, 9])));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_its_reason() {
        for (list, part) in [
            (&[("listeners", "SSL://:9093")][..], "SSL://:9093 is SSL, which is not served"),
            (
                &[
                    ("listeners", "PLAINTEXT://a:1,INNER://b:2"),
                    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"),
                ],
                "2 client listeners are given",
            ),
            (&[("listeners", "INNER://b:2")], "nobody says which protocol"),
            (&[("listeners", "PLAINTEXT://::1:9092")], "an IPv6 address needs brackets"),
            (&[("listeners", "PLAINTEXT://a:99999")], "its port is no number up to 65535"),
            (&[("listeners", "C://:1"), ("controller.listener.names", "C")], "there is no listener for clients"),
            (&[("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")], "is not an address to connect to"),
            (
                &[("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")],
                "access control is not built yet",
            ),
            (&[("remote.log.storage.system.enable", "true")], "there is no remote tier here"),
            (&[("process.roles", "controller")], "process.roles has no broker in it"),
            (&[("controller.quorum.voters", "1@a:1,2@b:1,3@c:1")], "names 3 controllers"),
            (&[("broker.id", "2"), ("node.id", "3")], "broker.id=2 and node.id=3 differ"),
            (&[("log.dirs", "/a,/a")], "/a is given twice"),
            (&[("admin.listener", "9644")], "is no address:port"),
            (&[("engine.cpu.set", "9-2")], "is no set of cores"),
            (&[("engine.cpu.set", "0-99999999999")], "is no set of cores"),
            (&[("group.min.session.timeout.ms", "1h")], "group.min.session.timeout.ms is larger"),
            (&[("log.segment.bytes", "1000")], "Value must be at least 1048576"),
            (&[("log.retention.hours", "0")], "log.retention.hours must be unlimited (-1) or"),
        ] {
            let refusal = refusal(list);
            assert!(refusal.contains(part), "{list:?}: {refusal}");
        }
    }

    #[test]
    fn listeners_and_ids_in_all_their_shapes() {
        let six = settings(&[("listeners", "PLAINTEXT://[::1]:0")]);
        assert_eq!((six.listener.to_string(), six.advertised_port), ("PLAINTEXT://[::1]:0".to_owned(), 0));
        let everywhere = settings(&[("listeners", "PLAINTEXT://:9092")]);
        assert_eq!(everywhere.advertised_host, "box");
        let named = settings(&[("listeners", "inner://b:2"), ("listener.security.protocol.map", "Inner:plaintext")]);
        assert_eq!((named.listener.name.as_str(), named.advertised_host.as_str()), ("INNER", "b"));
        assert_eq!(settings(&[("connections.max.idle.ms", "-1")]).connections_max_idle.as_secs(), 100 * 365 * 86_400);
        let old = settings(&[("broker.id", "7")]);
        assert_eq!((old.node_id.value(), old.given["node.id"].as_str()), (7, "7"));
        assert_eq!(settings(&[("node.id", "0")]).node_id.value(), 0);
        assert_eq!(settings(&[("admin.listener", "off")]).admin_listener, None);
        assert_eq!(settings(&[("remote.log.storage.system.enable", "false")]).node_id.value(), 1);
    }

    #[test]
    fn a_file_that_is_not_there_is_one_clear_error() {
        let sources = Sources { file: Some("/nowhere/server.properties".into()), ..Default::default() };
        let problems = load_on(&sources, &a_host()).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].place, "/nowhere/server.properties");
    }

    #[test]
    fn this_host_has_a_name_and_memory() {
        let host = host();
        assert!(!host.name.is_empty() && host.memory_bytes > 64 << 20, "{} {}", host.name, host.memory_bytes);
    }
}
