//! Apache Kafka from its published jars: found, or fetched; its settings and its command line.
//!
//! Shell: looks into directories, runs `java` and `mvn`. Owns where jars are looked for and what a node is told. Does not own the
//! process (`brokers`). Always true: without Java or Maven there is one sentence that says what to install; nothing is fetched
//! when jars are there; every setting that differs from Kafka's default is in [`properties`], to be shown in the report.
//! Source: Kafka's `kafka-run-class.sh` (JVM flags, heap); its quick start with KRaft; Maven's dependency plugin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The jars that are fetched: those the conformance tests run against.
const POM: &str = include_str!("../../tests/conformance/kafka/pom.xml");
/// What its own start script gives the JVM.
const JVM_FLAGS: [&str; 7] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];
/// The oldest Java that runs the jars.
const JAVA_MIN: u32 = 17;
const RECORDED: &str = "or compare with a recorded run: --target kafka=@RECORDED.json";

/// A Kafka that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kit {
    /// Holds the jars.
    pub(super) libs: PathBuf,
    /// Of Kafka, from its jar's name.
    pub(super) version: String,
    /// The first line of `java -version`.
    pub(super) java: String,
}

/// Finds Java and the jars: in `home`, `KAFKA_HOME`, the cache, or by Maven. Errors: one sentence with what to do.
pub(super) fn find(home: Option<&Path>, say: &mut dyn FnMut(String)) -> Result<Kit, String> {
    let java = java()?;
    let kit = |libs: &Path| version(libs).map(|version| Kit { libs: libs.to_owned(), version, java: java.clone() });
    if let Some(home) = home {
        let found = [home.join("libs"), home.to_owned()].iter().find_map(|libs| kit(libs));
        return found.ok_or_else(|| format!("there is no Kafka in {}: it has no libs/kafka_2.13-*.jar; give the directory a Kafka release was unpacked to", home.display()));
    }
    if let Some(home) = std::env::var_os("KAFKA_HOME").map(PathBuf::from)
        && let Some(kit) = kit(&home.join("libs"))
    {
        return Ok(kit);
    }
    let cache = cache()?;
    // The pom is written last: it marks a download that is complete, and of which version.
    if std::fs::read_to_string(cache.join("pom.xml")).is_ok_and(|pom| pom == POM)
        && let Some(kit) = kit(&cache.join("libs"))
    {
        return Ok(kit);
    }
    fetch(&cache, say)?;
    kit(&cache.join("libs")).ok_or_else(|| format!("Maven ended well and brought no Kafka into {}", cache.display()))
}

/// Where fetched jars are kept; the scripts of the conformance tests keep theirs there, too.
fn cache() -> Result<PathBuf, String> {
    let given = std::env::var_os("RINGLOG_CACHE").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/ringlog"));
    given
        .or_else(home)
        .map(|cache| cache.join("kafka"))
        .ok_or_else(|| "there is no HOME to keep Kafka's jars in; set RINGLOG_CACHE".to_owned())
}

fn java() -> Result<String, String> {
    let missing = |why: &str| {
        format!(
            "{why}: install a Java runtime {JAVA_MIN} or later (Debian: apt install openjdk-{JAVA_MIN}-jre-headless), {RECORDED}"
        )
    };
    let output = Command::new("java")
        .arg("-version")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| missing("Kafka needs `java`, which is not on the PATH"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("version")).unwrap_or_default().trim().to_owned();
    match java_major(&line) {
        Some(major) if major < JAVA_MIN => {
            Err(missing(&format!("Kafka 4 needs Java {JAVA_MIN}, and `java` is {major}")))
        }
        _ => Ok(line),
    }
}

/// 17 of `openjdk version "17.0.15" 2025-04-15`; 8 of `java version "1.8.0_392"`.
fn java_major(line: &str) -> Option<u32> {
    let version = line.split('"').nth(1)?;
    let mut numbers = version.split(['.', '_', '-', '+']);
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        major => Some(major),
    }
}

/// `4.4.0` when `libs` holds `kafka_2.13-4.4.0.jar`.
fn version(libs: &Path) -> Option<String> {
    let names = std::fs::read_dir(libs).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut versions: Vec<String> = names.filter_map(|name| version_of_jar(&name)).collect();
    versions.sort();
    versions.pop()
}

fn version_of_jar(name: &str) -> Option<String> {
    let (_, version) = name.strip_prefix("kafka_2.")?.strip_suffix(".jar")?.split_once('-')?;
    version
        .bytes()
        .next()?
        .is_ascii_digit()
        .then(|| version.to_owned())
        .filter(|version| !version.contains("sources") && !version.contains("test"))
}

fn fetch(cache: &Path, say: &mut dyn FnMut(String)) -> Result<(), String> {
    let missing = || {
        format!(
            "Kafka's jars are not here, and neither is Maven, which would fetch them: install it (Debian: apt install maven), or unpack a \
             Kafka release and give --kafka-home DIR, {RECORDED}"
        )
    };
    if Command::new("mvn").arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        return Err(missing());
    }
    // A directory of its own, which takes the cache's place when it is whole: two may fetch at once.
    let parent = cache.parent().unwrap_or(Path::new("/"));
    let unfinished = parent.join(format!("kafka.fetch-{}", std::process::id()));
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let mut work = || -> Result<(), String> {
        std::fs::create_dir_all(&unfinished).map_err(|error| failed(&unfinished.display().to_string(), error))?;
        let pom = unfinished.join("pom.xml");
        std::fs::write(&pom, POM).map_err(|error| failed(&pom.display().to_string(), error))?;
        say(format!("fetching Kafka's jars with Maven into {}", cache.display()));
        let output = Command::new("mvn")
            .args(["-q", "-B", "-f"])
            .arg(&pom)
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", unfinished.join("libs").display()))
            .arg("-DincludeScope=runtime")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed("mvn", error))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let why = text.lines().find(|line| line.contains("ERROR")).unwrap_or("it said nothing").trim().to_owned();
            return Err(format!(
                "Maven could not fetch Kafka's jars: {why}; look at the network, or give --kafka-home DIR, {RECORDED}"
            ));
        }
        if cache.exists() {
            std::fs::remove_dir_all(cache).map_err(|error| failed(&cache.display().to_string(), error))?;
        }
        std::fs::rename(&unfinished, cache).map_err(|error| failed(&cache.display().to_string(), error))
    };
    let ended = work();
    // After a rename there is nothing left to remove.
    _ = std::fs::remove_dir_all(&unfinished);
    ended
}

/// The settings of one combined node on loopback: what it needs to be one node, what keeps its data during a run, and `overrides`.
pub(super) fn properties(data: &Path, port: u16, controller: u16, overrides: &[(String, String)]) -> String {
    let mut settings: Vec<(String, String)> = [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", "1".to_owned()),
        ("controller.quorum.bootstrap.servers", format!("127.0.0.1:{controller}")),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}")),
        ("advertised.listeners", format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned()),
        ("log.dirs", data.display().to_string()),
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("offsets.topic.num.partitions", "4".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ("log.retention.ms", "-1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    for (name, value) in overrides {
        settings.retain(|(given, _)| given != name);
        settings.push((name.clone(), value.clone()));
    }
    settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// The command that starts a node.
pub(super) fn command(kit: &Kit, heap: &str, properties: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(JVM_FLAGS).arg(format!("-Xms{heap}")).arg(format!("-Xmx{heap}"));
    command.arg("-cp").arg(format!("{}/*", kit.libs.display())).arg("kafka.Kafka").arg(properties);
    command
}

/// Makes a fresh data directory a node's. Errors: what the tool said.
pub(super) fn format(kit: &Kit, properties: &Path, seed: u64) -> Result<(), String> {
    let output = Command::new("java")
        .args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ])
        .arg("-cp")
        .arg(format!("{}/*", kit.libs.display()))
        .args(["kafka.tools.StorageTool", "format", "--standalone", "-t", &cluster_id(seed), "-c"])
        .arg(properties)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("java: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned());
    let why = err.lines().chain(out.lines()).find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    Err(format!("Kafka's storage could not be formatted: {why}"))
}

/// 22 letters of URL-safe base64, not beginning with a dash, which the tool would take for an option.
fn cluster_id(seed: u64) -> String {
    use base64::Engine as _;
    let mut bytes = [0; 16];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes[0] &= 0x7f;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_is_recognised_by_its_old_and_new_numbers() {
        assert_eq!(java_major("openjdk version \"17.0.15\" 2025-04-15"), Some(17));
        assert_eq!(java_major("java version \"1.8.0_392\""), Some(8));
        assert_eq!(java_major("openjdk version \"25-ea\""), Some(25));
        assert_eq!(java_major("no such thing"), None);
    }

    #[test]
    fn the_version_is_that_of_the_jar() {
        assert_eq!(version_of_jar("kafka_2.13-4.4.0.jar"), Some("4.4.0".to_owned()));
        for other in
            ["kafka-clients-4.4.0.jar", "kafka_2.13-4.4.0-sources.jar", "kafka_2.13-4.4.0-test.jar", "kafka_2.13.jar"]
        {
            assert_eq!(version_of_jar(other), None, "{other}");
        }
        let directory = tempfile::tempdir().unwrap();
        let mut said = Vec::new();
        // Whether Java is here or not, a directory without jars is refused.
        let error = find(Some(directory.path()), &mut |text| said.push(text)).unwrap_err();
        assert!(error.contains("libs/kafka_2.13") || error.contains("java"), "{error}");
        assert!(said.is_empty());
    }

    #[test]
    fn overrides_replace_what_a_node_is_told() {
        let text = properties(
            Path::new("/d"),
            20_000,
            20_001,
            &[("log.dirs".to_owned(), "/e".to_owned()), ("num.io.threads".to_owned(), "4".to_owned())],
        );
        assert!(
            text.contains("log.dirs=/e\n") && !text.contains("log.dirs=/d") && text.contains("num.io.threads=4\n"),
            "{text}"
        );
        assert!(text.contains("listeners=PLAINTEXT://127.0.0.1:20000,CONTROLLER://127.0.0.1:20001\n"));
    }

    #[test]
    fn cluster_ids_are_never_taken_for_options() {
        for seed in 0..500 {
            let id = cluster_id(seed);
            assert!(id.len() == 22 && !id.starts_with('-'), "{id}");
        }
    }
}
