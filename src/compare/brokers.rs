//! Brokers that are started for a comparison: their directories, their processes, their end.
//!
//! Shell: starts processes. Owns them. Does not own what is sent to them. Always true: a broker ends with its value, by its id;
//! its directory goes with it unless it is to be kept; it keeps its port over restarts; Ctrl-C in a terminal does not reach it
//! (it has a process group of its own), so that a comparison can end in order.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::kafka::{self, Kit};
use super::targets::{list, quoted};

/// How long a broker may take until it accepts connections: a JVM on a busy host takes its time.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// How long it may take to end in order, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
/// How often is looked whether something has happened.
const LOOK_AROUND: Duration = Duration::from_millis(5);
/// Lines of a broker's log that are told when it fails.
const LOG_LINES_TOLD: usize = 6;
/// Of the end of its log that is read for them.
const LOG_BYTES_READ: u64 = 16 << 10;
/// Ports of started Kafkas lie below those of outgoing connections.
const KAFKA_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// What is started.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `serve` of a build of ours.
    Ringlog {
        /// The build.
        binary: PathBuf,
        /// Its settings.
        overrides: Vec<(String, String)>,
    },
    /// Kafka from its jars.
    Kafka {
        /// Jars and Java.
        kit: Kit,
        /// Its settings.
        overrides: Vec<(String, String)>,
        /// Of the JVM.
        heap: String,
    },
}

/// A broker that was started.
#[derive(Debug)]
pub(super) struct Broker {
    kind: Kind,
    directory: PathBuf,
    cores: Vec<usize>,
    keep: bool,
    port: Option<u16>,
    controller_port: u16,
    child: Option<Child>,
    /// Of its metrics, when it has them.
    pub(super) admin: Option<String>,
    /// The command line, for the report.
    pub(super) command: String,
}

impl Broker {
    /// Starts a broker on a fresh directory and waits until it accepts connections. `cores` empty leaves them to the kernel.
    pub(super) fn start(kind: Kind, directory: &Path, cores: &[usize], keep: bool) -> Result<Self, String> {
        fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let directory = directory.canonicalize().map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut broker = Self {
            kind,
            directory,
            cores: cores.to_vec(),
            keep,
            port: None,
            controller_port: 0,
            child: None,
            admin: None,
            command: String::new(),
        };
        // A port that was free a moment ago may not be so any more; then another is drawn.
        let mut worst = String::new();
        for _ in 0..5 {
            if matches!(broker.kind, Kind::Kafka { .. }) {
                broker.draw_ports()?;
                broker.format()?;
            }
            match broker.launch().and_then(|_| broker.until_listening()) {
                Ok(()) => return Ok(broker),
                Err(error) => worst = error,
            }
            broker.end(Signal::KILL);
            if !worst.contains("in use") {
                break;
            }
        }
        Err(worst)
    }

    /// `bootstrap.servers`.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.unwrap_or_default())
    }

    /// Of the process that runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Where its data lies.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Why it is not running any more; `None` while it is.
    pub(super) fn obituary(&mut self) -> Option<String> {
        let name = self.name();
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => None,
            Some(Ok(Some(status))) => Some(format!("{name} ended ({status}){}", self.log_tail())),
            Some(Err(error)) => Some(format!("{name}: {error}")),
            None => Some(format!("{name} is not running")),
        }
    }

    /// Ends it in order; the directory stays.
    pub(super) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Starts it again on its directory and port, and gives the moment its process began. Does not wait.
    pub(super) fn launch(&mut self) -> Result<Instant, String> {
        let ready = self.directory.join("ready.json");
        // Left by the process before.
        _ = fs::remove_file(&ready);
        let mut command = match &self.kind {
            Kind::Ringlog { binary, overrides } => {
                let mut command = Command::new(binary);
                command.arg("serve").arg("--override").arg(format!("log.dirs={}", self.data().display()));
                command.arg("--override").arg(format!("listeners=PLAINTEXT://127.0.0.1:{}", self.port.unwrap_or(0)));
                command.args(["--override", "admin.listener=127.0.0.1:0", "--override", "log.retention.ms=-1"]);
                for (name, value) in overrides {
                    command.arg("--override").arg(format!("{name}={value}"));
                }
                command.arg("--ready-file").arg(&ready);
                // The settings of whoever compares are not the broker's.
                for (name, _) in std::env::vars_os() {
                    let text = name.to_string_lossy();
                    if text.starts_with("KAFKA_") || text == "CLUSTER_ID" || text == "RINGLOG_LOG" {
                        command.env_remove(&name);
                    }
                }
                command
            }
            Kind::Kafka { kit, heap, .. } => kafka::command(kit, heap, &self.directory.join("server.properties")),
        };
        let failed = |error: std::io::Error| format!("{}: {error}", self.directory.join("broker.log").display());
        let log = File::options().create(true).append(true).open(self.directory.join("broker.log")).map_err(failed)?;
        let also = log.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(log).stderr(also).current_dir(&self.directory).process_group(0);
        self.command = shown(&command, &self.cores);
        let began = Instant::now();
        let child = on_cores(&self.cores, || command.spawn())
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        self.child = Some(child);
        Ok(began)
    }

    /// Waits until it accepts connections.
    pub(super) fn until_listening(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(obituary) = self.obituary() {
                return Err(obituary);
            }
            if self.is_listening() {
                return Ok(());
            }
            pause(LOOK_AROUND);
        }
        Err(format!(
            "{} did not accept connections within {} s{}",
            self.name(),
            START_TIMEOUT.as_secs(),
            self.log_tail()
        ))
    }

    fn is_listening(&mut self) -> bool {
        match self.kind {
            Kind::Ringlog { .. } => {
                let Ok(text) = fs::read_to_string(self.directory.join("ready.json")) else { return false };
                let Ok(ready) = serde_json::from_str::<serde_json::Value>(&text) else { return false };
                let word = |name: &str| ready.get(name).and_then(|value| value.as_str()).map(str::to_owned);
                self.port = word("kafka").and_then(|address| address.rsplit_once(':')?.1.parse().ok());
                self.admin = word("admin").filter(|admin| admin.contains(':'));
                self.port.is_some()
            }
            Kind::Kafka { .. } => TcpStream::connect(self.address()).is_ok(),
        }
    }

    fn draw_ports(&mut self) -> Result<(), String> {
        let mut random = fastrand::Rng::new();
        for _ in 0..200 {
            let port = random.u16(KAFKA_PORTS);
            if TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
                (self.port, self.controller_port) = (Some(port), port + 1);
                return Ok(());
            }
        }
        Err(format!("there is no free pair of ports between {} and {}", KAFKA_PORTS.start, KAFKA_PORTS.end))
    }

    fn format(&mut self) -> Result<(), String> {
        let Kind::Kafka { kit, overrides, .. } = &self.kind else { return Ok(()) };
        // Formatted anew for each port, since the controller's address is written into it.
        _ = fs::remove_dir_all(self.data());
        let path = self.directory.join("server.properties");
        let text = kafka::properties(&self.data(), self.port.unwrap_or_default(), self.controller_port, overrides);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        kafka::format(kit, &path, fastrand::u64(..))
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Ringlog { .. } => "Ringlog",
            Kind::Kafka { .. } => "Kafka",
        }
    }

    /// The last lines of its log, behind a colon; nothing when there are none.
    fn log_tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.directory.join("broker.log"))?;
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_BYTES_READ)))?;
            let mut text = Vec::new();
            file.take(LOG_BYTES_READ).read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES_TOLD)..];
        if last.is_empty() { String::new() } else { format!("; its log ends:\n  {}", last.join("\n  ")) }
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else { return };
        let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if !ended(&mut child)
            && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        {
            // It is our child and was not waited for: the id is still its own.
            _ = rustix::process::kill_process(pid, signal);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !ended(&mut child) {
            if Instant::now() > deadline {
                // A second attempt cannot fail differently; whatever it says, the child is waited for.
                _ = child.kill();
                break;
            }
            pause(LOOK_AROUND);
        }
        _ = child.wait();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end(Signal::TERM);
        if !self.keep {
            // What cannot be removed is left to whoever made the directory unwritable.
            _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Calls `work` on a thread that may only use `cores`, which the processes it starts inherit.
fn on_cores<T: Send>(cores: &[usize], work: impl FnOnce() -> std::io::Result<T> + Send) -> std::io::Result<T> {
    if cores.is_empty() {
        return work();
    }
    let set = cpu_set(cores)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            rustix::thread::sched_setaffinity(None, &set)?;
            work()
        });
        thread.join().map_err(|_| std::io::Error::other("the thread that starts brokers failed"))?
    })
}

fn cpu_set(cores: &[usize]) -> std::io::Result<rustix::thread::CpuSet> {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        if *core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(std::io::Error::other(format!("there is no core {core}")));
        }
        set.set(*core);
    }
    Ok(set)
}

/// Cores this process may use.
pub(super) fn usable_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Waits on a command's own thread.
#[expect(clippy::disallowed_methods, reason = "the thread of a command, which has nothing else to do")]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A command as a shell would take it.
fn shown(command: &Command, cores: &[usize]) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut text = if cores.is_empty() { String::new() } else { format!("taskset -c {} ", list(cores)) };
    for (index, word) in words.enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&quoted(&word.to_string_lossy()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_a_shell_takes_them() {
        let mut command = Command::new("java");
        command.args(["-cp", "/l/*", "it's", "log.dirs=/d"]);
        assert_eq!(shown(&command, &[0, 2]), "taskset -c 0,2 java -cp '/l/*' 'it'\\''s' log.dirs=/d");
    }

    #[test]
    fn a_program_that_is_not_there_or_ends_at_once_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let kind = |binary: &str| Kind::Ringlog { binary: PathBuf::from(binary), overrides: Vec::new() };
        let missing = Broker::start(kind("/nowhere/ringlog"), &directory.path().join("a"), &[], false).unwrap_err();
        assert!(missing.contains("/nowhere/ringlog"), "{missing}");
        let ended = Broker::start(kind("/bin/false"), &directory.path().join("b"), &[], false).unwrap_err();
        assert!(ended.contains("ended"), "{ended}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "their directories are gone");
    }

    #[test]
    fn processes_started_on_cores_may_use_only_those() {
        let core = usable_cores().into_iter().next().expect("this thread runs on some core");
        let output = on_cores(&[core], || Command::new("cat").arg("/proc/self/status").output()).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let allowed = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        assert_eq!(allowed, core.to_string());
        assert!(on_cores(&[100_000], || Ok(())).is_err());
    }
}
