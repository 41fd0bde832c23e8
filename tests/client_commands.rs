//! The commands that speak to a cluster, as scripts see them: what they print where, exit codes, faults. Runs the built binary against
//! one broker per test; RINGLOG_TEST_BOOTSTRAP points them at another.

#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::Target;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The binary with the words of a command line and the address of a broker.
struct Shell {
    target: Target,
    /// Where profiles would be looked for: empty.
    home: tempfile::TempDir,
}

impl Shell {
    fn start() -> Self {
        let target = Target::start(&[("group.initial.rebalance.delay.ms", "0")]);
        Self { target, home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = bare(words, self.home.path());
        command.env("RINGLOG_BROKERS", self.target.bootstrap());
        command
    }

    /// Runs a line to its end: exit code, standard output, standard error.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        told(self.command(words).stdin(Stdio::null()).output().unwrap())
    }

    /// As `run`, of a line that must succeed: its standard output.
    fn ok(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!(code, 0, "{words:?}\n{out}\n{err}");
        out
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    /// Runs a line with that standard input.
    fn feed(&self, words: &[&str], input: &[u8]) -> (i32, String, String) {
        let mut child =
            self.command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        told(child.wait_with_output().unwrap())
    }

    fn produce(&self, words: &[&str], input: &str) {
        let (code, _, err) = self.feed(&[&["produce"], words].concat(), input.as_bytes());
        assert_eq!(code, 0, "{err}");
    }
}

fn bare(words: &[&str], home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.args(words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RINGLOG_") || name.to_string_lossy().starts_with("KAFKA_") {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", home).env("HOME", home).env("TZ", "UTC");
    command
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn topics_are_created_listed_described_changed_and_deleted() {
    let shell = Shell::start();
    let created = shell.json(&["topics", "create", "orders", "pay", "-p", "3", "-c", "retention.ms=7d", "-o", "json"]);
    assert_eq!(created[0]["name"], "orders");
    assert_eq!((&created[0]["partitions"], &created[0]["error"]), (&Value::from(3), &Value::Null));
    let listed = shell.ok(&["topics", "list"]);
    assert_eq!(listed, "NAME    PARTITIONS  REPLICAS\norders           3         1\npay              3         1\n");
    let described = shell.json(&["topics", "describe", "orders", "-o", "json"]);
    assert_eq!(described[0]["partitions"][2]["high_watermark"], 0);
    assert_eq!(described[0]["configs"][0]["value"], "604800000");
    shell.ok(&["topics", "alter", "orders", "--unset", "retention.ms"]);
    shell.ok(&["topics", "add-partitions", "orders", "-n", "2"]);
    let described = shell.ok(&["topics", "describe", "orders"]);
    assert!(described.contains("PARTITIONS  5"), "{described}");
    let (code, out, err) = shell.run(&["topics", "create", "orders", "new"]);
    assert_eq!(code, 5, "{out}{err}");
    assert!(err.contains("topic orders: Topic 'orders' already exists"), "{err}");
    assert_eq!(shell.run(&["topics", "create", "orders"]).0, 1);
    assert_eq!(shell.run(&["topics", "create", "orders", "--if-not-exists"]).0, 0);
    let (code, out, _) = shell.run(&["topics", "delete", "-r", "n.*", "p.*", "--dry-run"]);
    assert_eq!((code, out.as_str()), (0, "new\npay\n"));
    let (code, out, err) = shell.run(&["topics", "delete", "pay", "order"]);
    assert_eq!((code, out.as_str()), (5, "pay\n"), "{err}");
    assert!(err.contains("topic order: there is no such topic; did you mean orders?"), "{err}");
}

#[test]
fn what_is_produced_is_consumed_by_offset_by_time_and_as_json() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "copy", "-p", "1"]);
    shell.produce(&["words"], "a\nb\nc\n");
    shell.produce(&["words", "-K", ":", "-H", "source=test", "-z", "zstd", "-Z"], "k:v\nk2:\n");
    assert_eq!(shell.ok(&["consume", "words", "-e"]), "a\nb\nc\nv\n\n");
    assert_eq!(shell.ok(&["consume", "words", "-o", "-2", "-e", "-K", "="]), "k=v\nk2=\n");
    assert_eq!(shell.ok(&["consume", "words", "-o", "1:3"]), "b\nc\n");
    assert_eq!(shell.ok(&["consume", "words", "-o", "+1", "-n", "2"]), "b\nc\n");
    assert_eq!(
        shell.ok(&["consume", "words", "-o", "@-1h:end", "-f", "%t/%p/%o %K %S|"]),
        "words/0/0 -1 1|words/0/1 -1 1|words/0/2 -1 1|words/0/3 1 1|words/0/4 2 -1|"
    );
    assert_eq!(shell.ok(&["consume", "words", "-o", "@2020-01-01:2020-01-02"]), "");
    let lines = shell.ok(&["consume", "words", "-o", "3:", "-e", "-J"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["payload"], "v");
    assert_eq!(first["headers"], serde_json::json!(["source", "test"]));
    let whole = shell.ok(&["consume", "words", "-e", "-J"]);
    shell.produce(&["copy", "-J"], &whole);
    assert_eq!(shell.ok(&["consume", "copy", "-e", "-f", "%k=%s,%h;"]), "=a,;=b,;=c,;k=v,source=test;k2=,source=test;");
    shell.produce(&["copy", "-J", "--own-place"], r#"{"topic":"words","partition":0,"payload":"back"}"#);
    assert_eq!(shell.ok(&["consume", "words", "-o", "-1", "-e"]), "back\n");
    shell.produce(&["copy", "-f", "%k %v{3}%h\\n"], "key abc\nkey x\nyx=1\n");
    assert_eq!(shell.ok(&["consume", "copy", "-o", "-2", "-e", "-f", "%k/%s/%h;"]), "key/abc/;key/x\ny/x=1;");
}

#[test]
fn what_was_read_before_a_fault_is_delivered() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    let (good, missing) = (shell.home.path().join("good"), shell.home.path().join("missing"));
    std::fs::write(&good, "1\n2\n3\n").unwrap();
    let (good, missing) = (good.to_str().unwrap(), missing.to_str().unwrap());
    // A linger that outlasts the command, unless its end sends what is open.
    let lingering = ["produce", "words", "-X", "linger.ms=60000", good];
    let (code, _, err) = shell.run(&[&lingering[..], &[missing]].concat());
    assert!(code == 1 && err.contains("missing"), "{code}: {err}");
    assert_eq!(shell.ok(&["consume", "words", "-e"]), "1\n2\n3\n");
    let (code, _, err) = shell.feed(&["produce", "words", "-X", "linger.ms=60000", "-f", "%p %v\\n"], b"0 4\n-1 5\n");
    assert!(code == 1, "{err}");
    assert_eq!(shell.ok(&["consume", "words", "-e"]), "1\n2\n3\n4\n");
}

#[test]
fn what_was_read_before_a_signal_is_delivered() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    let bootstrap = shell.target.bootstrap();
    // A linger that outlasts the test, unless the end sends what is open.
    let own = ["produce", "words", "-X", "linger.ms=60000", "-X", "delivery.timeout.ms=120000"];
    let console =
        ["kafka-console-producer", "--bootstrap-server", &bootstrap, "--topic", "words", "--timeout", "60000"];
    let mut wanted = String::new();
    for (words, line, signal) in
        [(&own[..], "a\n", Signal::INT), (&own, "b\n", Signal::TERM), (&console, "c\n", Signal::INT)]
    {
        let mut child = shell.command(words).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        while rustix::io::ioctl_fionread(&input).unwrap() > 0 {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let (code, _, err) = told(child.wait_with_output().unwrap());
        assert_eq!((code, err.as_str()), (130, ""), "{words:?}");
        wanted.push_str(line);
        assert_eq!(shell.ok(&["consume", "words", "-e"]), wanted);
    }
}

#[test]
fn a_group_goes_on_where_what_was_written_ended() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    shell.produce(&["words"], "1\n2\n3\n4\n5\n");
    assert_eq!(shell.ok(&["consume", "words", "-g", "readers", "-n", "2"]), "1\n2\n");
    let described = shell.json(&["groups", "describe", "readers", "-o", "json"]);
    let partition = &described[0]["partitions"][0];
    assert_eq!((&partition["current_offset"], &partition["lag"]), (&Value::from(2), &Value::from(3)));
    assert_eq!(shell.ok(&["consume", "words", "-g", "readers", "-e"]), "3\n4\n5\n");
    let planned = shell.ok(&["groups", "reset", "readers", "--topic", "words", "--to", "-1"]);
    assert!(planned.contains("5           4"), "{planned}");
    assert_eq!(shell.json(&["groups", "describe", "readers", "-o", "json"])[0]["total_lag"], 0);
    shell.ok(&["groups", "reset", "readers", "--all-topics", "--to", "earliest", "--execute"]);
    assert_eq!(shell.json(&["groups", "describe", "readers", "-o", "json"])[0]["total_lag"], 5);
    shell.ok(&["groups", "delete-offsets", "readers", "--topic", "words"]);
    assert!(shell.ok(&["groups", "list"]).contains("readers"));
    let (code, _, err) = shell.run(&["groups", "describe", "reader"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("there is no such group"), "{err}");
    let (code, out, _) = shell.run(&["groups", "delete", "readers", "nobody"]);
    assert_eq!((code, out.as_str()), (5, "readers\n"));
    let latest = ["-e", "-X", "auto.offset.reset=latest"];
    assert_eq!(shell.ok(&[&["consume", "words", "-g", "late"][..], &latest].concat()), "");
    assert_eq!(
        shell.ok(&[&["consume", "words", "-g", "early", "-o", "start"][..], &latest].concat()),
        "1\n2\n3\n4\n5\n"
    );
    assert!(shell.ok(&["topics", "list", "--internal"]).contains("__consumer_offsets"));
    assert_eq!(shell.ok(&["topics", "delete", "-r", ".*", "--dry-run"]), "words\n");
    assert_eq!(shell.ok(&["topics", "delete", "__consumer_offsets", "--dry-run"]), "__consumer_offsets\n");
}

/// What the group has yet to read of the topic.
fn rest(shell: &Shell, topic: &str, group: &str) -> Vec<String> {
    let mut lines: Vec<String> = shell.ok(&["consume", topic, "-g", group, "-e"]).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn partitions_of_which_nothing_was_written_are_left_to_the_group() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "3"]);
    for partition in ["0", "1", "2"] {
        let lines: String = (0..5).map(|number| format!("{partition}{number}\n")).collect();
        shell.produce(&["words", "-p", partition], &lines);
    }
    let bootstrap = shell.target.bootstrap();
    let all: Vec<String> = (0..3).flat_map(|of| (0..5).map(move |number| format!("{of}{number}"))).collect();
    // The first poll gives all three.
    let console = ["kafka-console-consumer", "--bootstrap-server", &bootstrap, "--topic", "words", "--from-beginning"];
    let verifiable = ["kafka-verifiable-consumer", "--bootstrap-server", &bootstrap, "--topic", "words", "--verbose"];
    for (group, words) in [
        ("own", &["consume", "words", "-n", "5", "-g", "own"][..]),
        ("console", &[&console[..], &["--max-messages", "5", "--group", "console"]].concat()),
        (
            "verifiable",
            &[&verifiable[..], &["--enable-autocommit", "--max-messages", "5", "--group-id", "verifiable"]].concat(),
        ),
    ] {
        let first = shell.ok(words);
        let mut lines: Vec<String> = match group {
            "verifiable" => {
                let events = first.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let records = events.filter(|event| event["name"] == "record_data");
                records.map(|event| event["value"].as_str().unwrap().to_owned()).collect()
            }
            _ => first.lines().map(str::to_owned).collect(),
        };
        assert_eq!(lines.len(), 5, "{first}");
        lines.extend(rest(&shell, "words", group));
        lines.sort();
        assert_eq!(lines, all, "{group}");
    }
}

#[test]
fn what_nobody_took_is_not_committed() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    shell.produce(&["words"], "1\n2\n3\n");
    let bootstrap = shell.target.bootstrap();
    let console = ["kafka-console-consumer", "--bootstrap-server", &bootstrap, "--topic", "words", "--from-beginning"];
    for (group, words) in [
        ("own", &["consume", "words", "-g", "own"][..]),
        ("console", &[&console[..], &["--group", "console"]].concat()),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = shell.command(words).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert!(ended.status.success(), "{group}: {ended:?}");
        assert_eq!(rest(&shell, "words", group), ["1", "2", "3"], "{group}");
    }
}

#[test]
fn offsets_settings_and_the_cluster_are_shown() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    shell.produce(&["words"], "1\n2\n3\n");
    let offsets = shell.json(&["offsets", "words", "-o", "json"]);
    assert_eq!((&offsets[0]["log_start_offset"], &offsets[0]["log_end_offset"]), (&Value::from(0), &Value::from(3)));
    assert_eq!(shell.json(&["offsets", "words", "--time", "-1h", "-o", "json"])[0]["offset"], 0);
    shell.ok(&["topics", "trim", "words", "--before", "2"]);
    assert_eq!(shell.json(&["offsets", "words", "-o", "json"])[0]["log_start_offset"], 2);
    shell.ok(&["configs", "set", "topic", "words", "max.message.bytes=2MiB"]);
    let configs = shell.ok(&["configs", "describe", "topic", "words"]);
    assert!(configs.contains("max.message.bytes  2097152  DYNAMIC_TOPIC_CONFIG"), "{configs}");
    let (code, _, err) = shell.run(&["configs", "set", "topic", "words", "retention.mss=1"]);
    assert!(code == 1 && err.contains("did you mean retention.ms?"), "{err}");
    shell.ok(&["configs", "unset", "topic", "words", "max.message.bytes"]);
    assert!(shell.ok(&["configs", "describe", "topic", "words"]).contains("all at their defaults"));
    let id = shell.ok(&["cluster", "id"]);
    assert_eq!(shell.json(&["cluster", "info", "-o", "json"])["cluster_id"], id.trim());
    assert_eq!(shell.json(&["cluster", "health", "-o", "json"])["healthy"], true);
    assert!(shell.ok(&["cluster", "api-versions"]).contains("Produce"));
    assert!(shell.ok(&["cluster", "log-dirs", "--topics", "words"]).contains("words-0"));
}

#[test]
fn faults_are_one_clear_line_and_the_documented_exit_code() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    // Nobody listens there: the port was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let began = Instant::now();
    for words in [&["topics", "list"][..], &["consume", "words"], &["produce", "words"], &["cluster", "health"]] {
        let mut command = bare(words, shell.home.path());
        let (code, out, err) = told(command.args(["-b", &free]).stdin(Stdio::null()).output().unwrap());
        assert_eq!((code, out.as_str()), (4, ""), "{words:?}: {err}");
        assert!(err.starts_with("error: could not connect to ") && err.contains("is a broker running there?"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    // Somebody listens who is no broker.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let mut command = bare(&["topics", "list", "--timeout", "300ms", "-b", &address], shell.home.path());
    let (code, _, err) = told(command.stdin(Stdio::null()).output().unwrap());
    assert_eq!(code, 4, "{err}");
    assert!(began.elapsed() < Duration::from_secs(20), "a wrong address is told at once");
    for (words, code, wanted) in [
        (&["consume", "word", "-e"][..], 1, "did you mean words?"),
        (&["consume", "words", "-p", "7"], 1, "topic words has no partition 7: it has 1"),
        (&["consume", "words", "-o", "99", "-e"], 1, "offset 99 is not there: it has 0 to 0"),
        (&["consume", "words", "-o", "soon"], 1, "\"soon\" is no offset"),
        (&["consume", "words", "-f", "%q"], 1, "no such token"),
        (&["consume", "words", "-g", "g", "-o", "5"], 1, "ringlog groups reset g"),
        (&["produce", "word"], 1, "did you mean words?"),
        (&["produce", "words", "-z", "zip"], 3, "compression.type"),
        (&["topics", "list", "-X", "bootstrap.server=h:1"], 3, "did you mean bootstrap.servers?"),
        (&["topics", "list", "-b", "h:port"], 3, "the port is a number"),
        (&["topics", "list", "--profile", "nowhere"], 3, "there is no profile nowhere"),
        (&["topics", "create", "x", "-p", "0"], 2, "0 is not in"),
        (&["topics", "delete"], 2, "required"),
        (&["groups", "reset", "g", "--to", "soon", "--all-topics"], 1, "\"soon\" is no place"),
    ] {
        let (told, _, err) = shell.run(words);
        assert_eq!(told, code, "{words:?}: {err}");
        assert!(err.contains(wanted), "{words:?}: {err}");
    }
    let (code, _, err) = shell.feed(&["produce", "words", "-J"], b"{\"payload\":1}\n{\"colour\":1}\n");
    assert!(code == 1 && err.contains("record 2: \"colour\" is no field"), "{err}");
    assert_eq!(shell.ok(&["consume", "words", "-e"]), "1\n", "what came before the bad record is delivered");
}

#[test]
fn a_reader_that_goes_away_ends_consume_without_a_word() {
    let shell = Shell::start();
    shell.ok(&["topics", "create", "words", "-p", "1"]);
    shell.produce(&["words"], &vec!["x".repeat(999); 3000].join("\n"));
    let mut child = shell.command(&["consume", "words"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first.len(), 1000);
    shell.produce(&["words"], "more\n");
    let output = child.wait_with_output().unwrap();
    let mut err = String::new();
    (&output.stderr[..]).read_to_string(&mut err).unwrap();
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn a_profile_names_brokers_and_settings() {
    let shell = Shell::start();
    let folder = shell.home.path().join("ringlog");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "current = \"here\"\n[profiles.here]\nbrokers = [\"{}\"]\nsettings = {{ \"request.timeout.ms\" = 9000 }}\n",
        shell.target.bootstrap()
    );
    std::fs::write(folder.join("config.toml"), text).unwrap();
    let (code, out, err) = told(bare(&["cluster", "id"], shell.home.path()).output().unwrap());
    assert_eq!((code, out.trim().len()), (0, 22), "{err}");
}

#[test]
fn kafkas_names_work_as_first_word_and_as_links() {
    let shell = Shell::start();
    let bootstrap = shell.target.bootstrap();
    let connected = ["--bootstrap-server", bootstrap.as_str()];
    let run = |words: &[&str]| {
        let (tool, rest) = words.split_first().unwrap();
        shell.run(&[&[*tool], &connected[..], rest].concat())
    };
    assert_eq!(
        run(&["kafka-topics", "--create", "--topic", "t1", "--partitions", "2"]),
        (0, "Created topic t1.\n".to_owned(), String::new())
    );
    let (code, out, _) = run(&["kafka-topics.sh", "--create", "--topic", "t1"]);
    assert_eq!((code, out.as_str()), (1, "Error while executing topic command : Topic 't1' already exists.\n"));
    let (code, out, err) = run(&["kafka-topics", "--list", "--create"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("Command must include exactly one action: --list"), "{err}");
    let dir = shell.home.path().join("bin");
    let links = shell.ok(&["install-shims", dir.to_str().unwrap()]);
    assert_eq!(links.lines().count(), 28, "{links}");
    let through_link = |tool: &str, words: &[&str], input: &[u8]| {
        let mut child = Command::new(dir.join(tool))
            .args(connected)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        told(child.wait_with_output().unwrap())
    };
    let (code, _, err) = through_link(
        "kafka-console-producer.sh",
        &["--topic", "t1", "--reader-property", "parse.key=true"],
        b"k\tv\nk\tw\n",
    );
    assert_eq!(code, 0, "{err}");
    let words = [
        "--topic",
        "t1",
        "--group",
        "g1",
        "--from-beginning",
        "--max-messages",
        "1",
        "--formatter-property",
        "print.key=true",
    ];
    let (code, out, err) = through_link("kafka-console-consumer", &words, b"");
    assert_eq!((code, out.as_str()), (0, "k\tv\n"), "{err}");
    assert!(err.contains("Processed a total of 1 messages"), "{err}");
    let (code, out, err) = through_link("kafka-consumer-groups", &["--describe", "--group", "g1"], b"");
    assert_eq!(code, 0, "{err}");
    let row: Vec<&str> = out
        .lines()
        .find(|line| line.starts_with("g1 ") && !line.contains(" 0   0 "))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row.len(), 9, "{out}");
    let (_, out, _) = through_link(
        "kafka-producer-perf-test",
        &["--topic", "t1", "--num-records", "500", "--record-size", "50", "--throughput", "-1"],
        b"",
    );
    assert!(out.starts_with("500 records sent, ") && out.trim_end().ends_with(" ms 99.9th."), "{out}");
    let (_, out, _) = through_link("kafka-get-offsets", &["--topic", "t1"], b"");
    assert_eq!(out.lines().count(), 2, "{out}");
}

/// A counter of the broker's metrics page; none of a row that is not there.
fn counter(admin: std::net::SocketAddr, row: &str) -> Option<f64> {
    let mut page = std::net::TcpStream::connect(admin).unwrap();
    page.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix(row)?.trim().parse().ok())
}

#[test]
fn a_bench_of_our_broker_tells_the_stages_of_its_requests() {
    let shell = Shell::start();
    let Target::Own(broker) = &shell.target else { return println!("not run: no other broker counts stages") };
    let (admin, page) = (broker.admin.to_string(), shell.home.path().join("page.html"));
    let staged = "ringlog_requests_staged_total{request=\"Produce\"}";
    let before = counter(broker.admin, staged).unwrap_or(0.0);
    let load = ["--rate", "200", "--size", "100", "--duration", "1s", "--warmup", "0s", "--no-ceilings"];
    let kept = ["--admin", &admin, "--html", page.to_str().unwrap(), "-o", "json"];
    let run = shell.json(&[&["bench", "e2e"], &load[..], &kept[..]].concat());
    let stages = run["broker"]["stages"].as_array().unwrap();
    let names: Vec<&Value> = stages.iter().map(|of| &of["request"]).collect();
    assert_eq!(names, ["Produce", "Fetch"]);
    for of in stages {
        assert!(of["requests"].as_u64().unwrap() > 0, "{of}");
        for stage in ["request_queue_us", "local_us", "remote_us"] {
            assert!(of[stage].as_f64().unwrap() >= 0.0, "{stage} of {of}");
        }
    }
    let counted = stages[0]["requests"].as_f64().unwrap();
    let after = counter(broker.admin, staged).unwrap();
    assert!(after >= before + counted, "{before} + {counted} and {after}");
    for stage in ["request_queue", "local", "remote"] {
        let row = format!("ringlog_request_stage_microseconds_total{{request=\"Produce\",stage=\"{stage}\"}}");
        assert!(counter(broker.admin, &row).is_some(), "{row}");
        let kafkas = stage.replace('_', "");
        let row = format!("kafka_network_requestmetrics_{kafkas}timems{{request=\"Produce\",quantile=\"0.99\"}}");
        assert!(counter(broker.admin, &row).is_some(), "{row}");
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("<section id=\"stages\">"));
}

#[test]
fn a_command_starts_in_an_instant() {
    let home = tempfile::tempdir().unwrap();
    let mut times: Vec<Duration> = (0..15)
        .map(|_| {
            let began = Instant::now();
            assert!(bare(&["version"], home.path()).stdout(Stdio::null()).status().unwrap().success());
            began.elapsed()
        })
        .collect();
    times.sort();
    // 50 ms is the promise; a debug build on a busy machine must not fail on it, so the middle of many is taken.
    assert!(times[7] < Duration::from_millis(50), "{times:?}");
}
