//! `ringlog doctor`: is this host fit for a log broker, and what does it cost where it is not?
//!
//! Shell: reads `/proc` and `/sys`, measures for a few seconds. Owns reading and the table. Does not own the verdicts
//! (`bench::checkup`). Always: nothing on the host is changed but for a scratch file in the given directory, removed again; a
//! fact that cannot be read is left out. Exit code 1 when something keeps a broker from running.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{ContentArrangement, Table};
use rustix::process::{Resource, getrlimit};

use super::{EXIT_FAILED, Failure, problems};
use crate::bench::checkup::{Facts, Finding, Level, examine, gravest};
use crate::bench::{host, probes, process, units};
use crate::rt::executor;

/// The version of `-o json`. It rises when a field changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;
/// Longer tells no more than it costs.
const TIME_MAX: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  ringlog doctor --dir /srv/ringlog           the host, and the disk under that directory
  ringlog doctor --time 30s                   a longer look at the flush tail
  ringlog doctor --no-measure -o json         only what can be read, for programs

Only reads, and writes one scratch file of a few megabytes in --dir, which it removes. A finding that `costs` says how
much (measured, where a few seconds are enough) and how to change it.

Exit codes: 0 a broker runs here, 1 something keeps it from running (or --dir cannot be used), 2 wrong arguments.";

/// Checks whether this host is fit for a log broker: what each finding costs and how to change it.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// The data directory, or one on the same disk
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How long is measured, in all
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = units::parse_seconds)]
    time: Duration,
    /// Only read
    #[arg(long)]
    no_measure: bool,
    /// Only what is not as wanted
    #[arg(long)]
    short: bool,
    /// A table, or JSON (schema version 1)
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// How findings are printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Looks, judges and prints.
pub(super) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    if args.time < Duration::from_millis(100) || args.time > TIME_MAX {
        return Err(super::bench::wrong_call("--time lies between 100ms and 10min".to_owned()));
    }
    let directory = args.dir.canonicalize().with_context(|| format!("--dir {}", args.dir.display()))?;
    if !directory.is_dir() {
        return Err(anyhow::anyhow!("--dir {} is no directory", args.dir.display()).into());
    }
    let facts = look(&directory, (!args.no_measure).then_some(args.time));
    let findings = examine(&facts);
    match args.output {
        Format::Table => write_table(out, &findings, args.short)?,
        Format::Json => {
            let host = host::facts(&directory);
            let worst = gravest(&findings);
            let value = serde_json::json!({
                "schema_version": SCHEMA_VERSION, "directory": directory, "verdict": worst, "findings": findings, "facts": facts, "host": host,
            });
            writeln!(out, "{value:#}")?;
        }
    }
    out.flush()?;
    if gravest(&findings) == Level::Stops { Err(Failure::Told(EXIT_FAILED)) } else { Ok(()) }
}

/// Reads the facts, and measures when a time is given.
fn look(directory: &Path, time: Option<Duration>) -> Facts {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of_memory = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    // Before the probe, which raises the soft limits of this process as a broker would.
    let (memlock_bytes, open_files) = limits();
    let device = process::device_number(directory);
    let (device_name, file_system, mount_options) = device.map(mount).unwrap_or_default();
    let queue = |name: &str| device.map_or_else(String::new, |device| of_queue(device, name));
    let space = rustix::fs::statvfs(directory).ok();
    Facts {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        io_uring_refused: executor::probe_host()
            .err()
            .map(|error| error.to_string())
            .filter(|why| why.contains("io_uring"))
            .unwrap_or_default(),
        memlock_bytes,
        open_files,
        cores: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        quota_cores: quota(),
        load: word("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clocksource: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        huge_pages: chosen(&word("/sys/kernel/mm/transparent_hugepage/enabled")),
        dirty_ratio: number("/proc/sys/vm/dirty_ratio"),
        dirty_background_ratio: number("/proc/sys/vm/dirty_background_ratio"),
        memory_bytes: of_memory("MemTotal"),
        swap_bytes: of_memory("SwapTotal"),
        swappiness: number("/proc/sys/vm/swappiness"),
        file_system,
        mount_options,
        device: device_name,
        scheduler: chosen(&queue("scheduler")),
        rotational: match queue("rotational").as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        },
        write_cache: queue("write_cache"),
        direct_refused: probes::direct_refused(directory),
        free_bytes: space.as_ref().map_or(0, |space| space.f_bavail * space.f_frsize),
        size_bytes: space.as_ref().map_or(0, |space| space.f_blocks * space.f_frsize),
        somaxconn: number("/proc/sys/net/core/somaxconn"),
        ports: ports(&word("/proc/sys/net/ipv4/ip_local_port_range")),
        max_map_count: number("/proc/sys/vm/max_map_count"),
        measured: time.map(|time| probes::measure(directory, time)),
    }
}

fn word(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn number(path: &str) -> Option<u64> {
    word(path).parse().ok()
}

/// `madvise` of `always [madvise] never`; a single word as it is.
fn chosen(text: &str) -> String {
    let bracketed = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    bracketed.unwrap_or(text).to_owned()
}

fn ports(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What may be locked (`None` without a limit, as for root), and how many files may be opened.
fn limits() -> (Option<u64>, u64) {
    let privileged = rustix::thread::capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK));
    let memlock = if privileged { None } else { getrlimit(Resource::Memlock).maximum };
    (memlock, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
}

/// Cores' worth of time the control group of this process allows, of either version; `None` without a limit.
fn quota() -> Option<f64> {
    let own = word("/proc/self/cgroup");
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let unified = word(&format!("/sys/fs/cgroup{path}/cpu.max"));
    let unified = if unified.is_empty() { word("/sys/fs/cgroup/cpu.max") } else { unified };
    let mut words = unified.split_whitespace().map(str::parse::<f64>);
    if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
        return (period > 0.0).then(|| quota / period);
    }
    let old = |name: &str| word(&format!("/sys/fs/cgroup/cpu/{name}")).parse::<f64>().ok().filter(|value| *value > 0.0);
    Some(old("cpu.cfs_quota_us")? / old("cpu.cfs_period_us")?)
}

/// Device, file system and options of the mount of a device.
fn mount((major, minor): (u32, u32)) -> (String, String, String) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_line(&mounts, major, minor).unwrap_or_default()
}

fn mount_line(mounts: &str, major: u32, minor: u32) -> Option<(String, String, String)> {
    let number = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split_whitespace().collect();
        if left.get(2) != Some(&number.as_str()) {
            return None;
        }
        let mut right = right.split_whitespace();
        let (file_system, source) = (right.next()?, right.next()?);
        // Options of the mount, then those of the file system, each once.
        let mut options: Vec<&str> = left.get(5)?.split(',').collect();
        options
            .extend(right.next().unwrap_or_default().split(',').filter(|option| *option != "rw" && !option.is_empty()));
        Some((source.to_owned(), file_system.to_owned(), options.join(",")))
    })
}

/// A line of a block device's queue; a partition has that of its disk.
fn of_queue((major, minor): (u32, u32), name: &str) -> String {
    let own = word(&format!("/sys/dev/block/{major}:{minor}/queue/{name}"));
    if own.is_empty() { word(&format!("/sys/dev/block/{major}:{minor}/../queue/{name}")) } else { own }
}

fn write_table(out: &mut impl Write, findings: &[Finding], short: bool) -> std::io::Result<()> {
    let paint = problems::paint_stdout();
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(vec!["CHECK", "", "FOUND"]);
    for finding in findings.iter().filter(|finding| !short || finding.level > Level::Good) {
        table.add_row(vec![finding.check, finding.level.word(), &finding.found]);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    let worth: Vec<&Finding> = findings.iter().filter(|finding| finding.level > Level::Good).collect();
    for level in [Level::Stops, Level::Costs, Level::Note] {
        for finding in worth.iter().filter(|finding| finding.level == level) {
            let (on, off) = match (paint, level) {
                (true, Level::Stops) => ("\x1b[1;31m", "\x1b[0m"),
                (true, Level::Costs) => ("\x1b[1;33m", "\x1b[0m"),
                (true, _) => ("\x1b[1;36m", "\x1b[0m"),
                (false, _) => ("", ""),
            };
            writeln!(out, "\n{on}{} {}{off}: {}", finding.check, level.word(), finding.found)?;
            writeln!(out, "  {}", finding.cost)?;
            if !finding.how.is_empty() {
                writeln!(out, "  change: {}", finding.how)?;
            }
        }
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    writeln!(
        out,
        "\n{} looked at: {} good, {} to know, {} that cost, {} that stop a broker",
        findings.len(),
        count(Level::Good),
        count(Level::Note),
        count(Level::Costs),
        count(Level::Stops)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_in_brackets_are_the_ones_in_force() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(ports("32768\t60999"), Some((32_768, 60_999)));
        assert_eq!(ports("many"), None);
    }

    #[test]
    fn a_mount_has_its_own_options_and_those_of_its_file_system() {
        let mounts = "26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard,data=journal\n";
        let found = mount_line(mounts, 254, 0).unwrap();
        assert_eq!(found, ("/dev/vda".to_owned(), "ext4".to_owned(), "rw,relatime,discard,data=journal".to_owned()));
        assert_eq!(mount_line(mounts, 8, 0), None);
    }

    #[test]
    fn this_host_can_be_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let facts = look(directory.path(), None);
        assert!(facts.cores > 0 && facts.size_bytes > 0 && !facts.kernel.is_empty() && facts.measured.is_none());
        let mut text = Vec::new();
        write_table(&mut text, &examine(&facts), false).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("looked at:"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
