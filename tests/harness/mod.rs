//! Shell. Starts the built binary on a directory of its own, kills it, starts it again; or points at another broker.
//!
//! Owns the child process and its directory: both are gone when the value is dropped. Does not own what is done with the
//! broker. Always true: a process is ended by its handle; no test waits by sleeping but on a condition with a deadline.

// Each test binary includes this module and takes what it needs of it; `pub` means "for the tests".
#![allow(dead_code, unreachable_pub)]

pub mod clients;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A Kafka broker's address here sends the clients' tests there instead: so the tests are proved before our broker is.
pub const BOOTSTRAP_VARIABLE: &str = "RINGLOG_TEST_BOOTSTRAP";

/// Another binary with our command line, such as a release build.
pub const BINARY_VARIABLE: &str = "RINGLOG_TEST_BINARY";

/// Far above what any start takes, so that only a hang meets it: debug build, two cores, a scan after a kill.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Far above what a clean stop takes.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);

/// What a test talks to.
pub enum Target {
    /// Our binary, started for this test.
    Own(Broker),
    /// Somebody else's broker.
    Foreign(String),
}

impl Target {
    /// Our binary on a fresh directory, unless [`BOOTSTRAP_VARIABLE`] names a broker. `overrides` bind our broker only.
    pub fn start(overrides: &[(&str, &str)]) -> Self {
        match std::env::var(BOOTSTRAP_VARIABLE) {
            Ok(bootstrap) => Self::Foreign(bootstrap),
            Err(_) => Self::Own(Broker::start(overrides)),
        }
    }

    /// For `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        match self {
            Self::Own(broker) => broker.kafka.to_string(),
            Self::Foreign(bootstrap) => bootstrap.clone(),
        }
    }
}

/// One broker process and its data.
pub struct Broker {
    directory: TempDir,
    overrides: Vec<(String, String)>,
    child: Child,
    /// Where Kafka's protocol is spoken.
    pub kafka: SocketAddr,
    /// Where HTTP is spoken.
    pub admin: SocketAddr,
}

impl Broker {
    /// A fresh directory and any free port.
    pub fn start(overrides: &[(&str, &str)]) -> Self {
        Self::start_on_port(0, overrides)
    }

    /// A fresh directory and a port that stays the same over restarts.
    pub fn start_on_port(port: u16, overrides: &[(&str, &str)]) -> Self {
        // On the disk that cargo builds on: a tmpfs would not take direct I/O.
        let directory = tempfile::Builder::new().prefix("broker-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let overrides = overrides.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect::<Vec<_>>();
        let mut child = spawn(directory.path(), port, &overrides);
        let ready = wait_until_ready(&mut child, directory.path());
        Self { directory, overrides, child, kafka: ready.kafka, admin: ready.admin }
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        data_in(self.directory.path())
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, at once; returns when the process is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(Signal::KILL.as_raw()),
            "the broker had ended before it was killed: {}",
            self.log()
        );
    }

    /// SIGTERM; returns how the process ended.
    pub fn stop(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        let child = &mut self.child;
        match wait_for(STOP_TIME_MAX, || child.try_wait().unwrap()) {
            Some(status) => status,
            None => panic!("no clean stop within {STOP_TIME_MAX:?}: {}", self.log()),
        }
    }

    /// Starts again on the same directory and port, after [`Broker::kill`] or [`Broker::stop`].
    pub fn start_again(&mut self) {
        self.child = spawn(self.directory.path(), self.kafka.port(), &self.overrides);
        self.admin = wait_until_ready(&mut self.child, self.directory.path()).admin;
    }

    /// Starts again and is killed `after` a time, ready or not.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.child = spawn(self.directory.path(), self.kafka.port(), &self.overrides);
        pause(after);
        self.kill();
    }

    /// The end of what the process wrote to its standard error.
    pub fn log(&self) -> String {
        log_tail(self.directory.path())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!(
                "the broker's directory is kept: {}; its last words:\n{}",
                self.directory.path().display(),
                self.log()
            );
        }
    }
}

#[derive(serde::Deserialize)]
struct Ready {
    kafka: SocketAddr,
    admin: SocketAddr,
    pid: u32,
}

fn data_in(directory: &Path) -> PathBuf {
    directory.join("data")
}

fn log_tail(directory: &Path) -> String {
    const LINES: usize = 40;
    let log = fs::read_to_string(directory.join("broker.log")).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

fn ready_file_in(directory: &Path) -> PathBuf {
    directory.join("ready")
}

fn spawn(directory: &Path, port: u16, overrides: &[(String, String)]) -> Child {
    let ready_file = ready_file_in(directory);
    let _ = fs::remove_file(&ready_file);
    let log = fs::File::options().create(true).append(true).open(directory.join("broker.log")).unwrap();
    let binary = std::env::var_os(BINARY_VARIABLE).unwrap_or_else(|| env!("CARGO_BIN_EXE_ringlog").into());
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .arg("--ready-file")
        .arg(&ready_file)
        .args(["--override", &format!("log.dirs={}", data_in(directory).display())])
        .args(["--override", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")])
        .args(["--override", "admin.listener=127.0.0.1:0"])
        .args(["--override", "group.initial.rebalance.delay.ms=0"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    for (key, value) in overrides {
        command.args(["--override", &format!("{key}={value}")]);
    }
    command.spawn().unwrap()
}

fn wait_until_ready(child: &mut Child, directory: &Path) -> Ready {
    let ready_file = ready_file_in(directory);
    let ready = wait_for(START_TIME_MAX, || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the broker ended at its start, {status}: {}", log_tail(directory));
        }
        // Written under another name and renamed: when it is there, it is whole.
        fs::read(&ready_file).ok()
    });
    let Some(ready) = ready else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("not ready within {START_TIME_MAX:?}: {}", log_tail(directory));
    };
    let ready: Ready = serde_json::from_slice(&ready).unwrap();
    assert_eq!(ready.pid, child.id());
    ready
}

/// Asks `condition` until it gives something or `time_max` has passed.
pub fn wait_for<T>(time_max: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time_max;
    loop {
        let found = condition();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        pause(Duration::from_millis(5));
    }
}

/// Between two looks at a condition, or as a part of a test's own schedule: never in the hope that something has happened.
pub fn pause(time: Duration) {
    #[allow(clippy::disallowed_methods)] // a test thread is no shard
    std::thread::sleep(time);
}

/// A port for a broker that comes back on it. Not an ephemeral one: while the broker is down, a client that connects to it
/// could be given that very port as its own, would meet itself, and would keep the broker from binding.
pub fn lasting_port(random: &mut fastrand::Rng) -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first_ephemeral: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    let candidates = 20_000..first_ephemeral.max(20_001);
    (0..1000)
        .map(|_| random.u16(candidates.clone()))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("no free port below the ephemeral ones")
}
