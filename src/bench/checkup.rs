//! What a host is like for a log broker, judged: what each finding costs, and how to change it.
//!
//! Pure. Owns the verdicts and their words. Does not own looking (`probes` measures, the command reads). Always true: a finding
//! says what was found, what is wanted and why; a cost is a number measured just now where there is one, and says otherwise
//! where it is known from; nothing here changes a host. Only [`Level::Stops`] keeps a broker from running.
//! Source: rpk's tuners; Kafka's operations guide (file descriptors, maps, dirty ratios); this project's notes in `tuning/`.

use serde::Serialize;

use super::units;

/// Below this the network task has no `epoll_pwait2`.
const KERNEL_MIN: (u32, u32) = (5, 11);
/// Older ones had hangs of direct I/O.
const KERNEL_WANTED: (u32, u32) = (6, 1);
/// What a shard's rings and registered buffers are comfortable with.
const MEMLOCK_WANTED: u64 = 8 << 20;
/// Segments, indexes and connections of a few thousand partitions and clients.
const NOFILE_WANTED: u64 = 100_000;
const NOFILE_MIN: u64 = 16 * 1024;
/// Connections that may wait to be accepted when thousands come at once.
const SOMAXCONN_WANTED: u64 = 1024;
/// A load generator with a thousand connections, most of them in TIME_WAIT once, is far below this.
const PORTS_WANTED: u32 = 20_000;
/// Kafka maps two index files a segment.
const MAPS_WANTED: u64 = 262_144;
/// Share of processor time taken away above which tails are the hypervisor's.
const STEAL_NOTED: f64 = 0.005;
const STEAL_WARNED: f64 = 0.02;
/// A reading of the clock that takes longer than this is a system call.
const CLOCK_NS_MAX: f64 = 200.0;
/// A disk whose small writes take less does not spin, whatever it says.
const SPINNING_WRITE_US: f64 = 1000.0;
/// A disk that is nearly full takes the broker's storage down with it.
const FREE_MIN: u64 = 10 << 30;
const FREE_SHARE_MIN: f64 = 0.1;

/// What was read of a host; a fact that cannot be had is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    /// Release.
    pub kernel: String,
    /// Why io_uring cannot be used; empty when it can.
    pub io_uring_refused: String,
    /// Most memory this process may lock; `None` without a limit.
    pub memlock_bytes: Option<u64>,
    /// Most files this process may open.
    pub open_files: u64,
    /// Processors this process may use.
    pub cores: u32,
    /// Processors' worth of time the control group allows; `None` without a limit.
    pub quota_cores: Option<f64>,
    /// Load average of the last minute.
    pub load: f64,
    /// Of the first processor; empty where none is to be seen.
    pub governor: String,
    /// The clock the kernel reads.
    pub clocksource: String,
    /// `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// `vm.dirty_ratio`, percent.
    pub dirty_ratio: Option<u64>,
    /// `vm.dirty_background_ratio`, percent.
    pub dirty_background_ratio: Option<u64>,
    /// Memory.
    pub memory_bytes: u64,
    /// Swap space.
    pub swap_bytes: u64,
    /// `vm.swappiness`.
    pub swappiness: Option<u64>,
    /// Under the directory.
    pub file_system: String,
    /// Of its mount.
    pub mount_options: String,
    /// Its block device.
    pub device: String,
    /// Of that device.
    pub scheduler: String,
    /// Whether it says that it spins.
    pub rotational: Option<bool>,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Why direct I/O cannot be used; empty when it can.
    pub direct_refused: String,
    /// Free in the file system.
    pub free_bytes: u64,
    /// Of its size.
    pub size_bytes: u64,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// Ports of outgoing connections, both ends included.
    pub ports: Option<(u32, u32)>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// What was measured; `None` when it was not asked.
    pub measured: Option<Measured>,
}

/// Percentiles of something that was done again and again, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// Half took no longer.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Times {
    /// Of durations in microseconds, in any order; `None` of none.
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let last = times.len().checked_sub(1)?;
        let at = |share: f64| times[((last as f64) * share).ceil() as usize];
        Some(Self { count: times.len() as u64, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: times[last] })
    }

    fn words(&self) -> String {
        format!(
            "p50 {}, p99 {}, p99.9 {}, longest {} of {}",
            units::micros(self.p50),
            units::micros(self.p99),
            units::micros(self.p999),
            units::micros(self.max),
            units::grouped(self.count)
        )
    }
}

/// What a few seconds of measuring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// How long it took in all.
    pub seconds: f64,
    /// Share of processor time a hypervisor took away meanwhile.
    pub steal: f64,
    /// A direct write of 4 KiB into blocks written before.
    pub write: Option<Times>,
    /// The same with fdatasync.
    pub flush: Option<Times>,
    /// The same into a file that grows: fdatasync then also writes metadata.
    pub growing_flush: Option<Times>,
    /// The same into blocks that are reserved and were never written: fdatasync then also marks them as written.
    pub preallocated_flush: Option<Times>,
    /// How much later than asked a sleeping thread woke.
    pub wake_up: Option<Times>,
    /// A byte to another thread over loopback and back.
    pub round_trip: Option<Times>,
    /// Reading the clock once, nanoseconds.
    pub clock_ns: f64,
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As wanted.
    Good,
    /// Worth knowing.
    Note,
    /// Costs something.
    Costs,
    /// A broker does not run, or not as it should.
    Stops,
}

impl Level {
    /// For tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Costs => "costs",
            Self::Stops => "STOPS",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How grave it is.
    pub level: Level,
    /// What is there.
    pub found: String,
    /// What it costs, or what it is good for.
    pub cost: String,
    /// What to do; empty where nothing is to be done.
    pub how: String,
}

fn finding(
    check: &'static str,
    level: Level,
    found: impl Into<String>,
    cost: impl Into<String>,
    how: impl Into<String>,
) -> Finding {
    Finding { check, level, found: found.into(), cost: cost.into(), how: how.into() }
}

/// Everything that can be said of a host, in the order in which it is looked at.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let all = [
        Some(kernel(facts)),
        Some(io_uring(facts)),
        Some(memlock(facts)),
        Some(open_files(facts)),
        Some(processors(facts)),
        steal(facts),
        Some(governor(facts)),
        clock(facts),
        wake_up(facts),
        round_trip(facts),
        huge_pages(facts),
        swap(facts),
        Some(file_system(facts)),
        Some(direct(facts)),
        Some(room(facts)),
        scheduler(facts),
        write_cache(facts),
        flush(facts),
        growing(facts),
        dirty(facts),
        maps(facts),
        backlog(facts),
        ports(facts),
    ];
    all.into_iter().flatten().collect()
}

/// The gravest level among them.
pub fn gravest(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Good)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+', '~']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(facts: &Facts) -> Finding {
    let found = facts.kernel.as_str();
    let newer = format!("run a kernel of {}.{} or later", KERNEL_WANTED.0, KERNEL_WANTED.1);
    match version(found) {
        None => finding("kernel", Level::Note, found, "its version could not be read from its name", ""),
        Some(number) if number < KERNEL_MIN => {
            finding("kernel", Level::Stops, found, "the broker's network task needs epoll_pwait2 (5.11)", newer)
        }
        Some(number) if number < KERNEL_WANTED => finding(
            "kernel",
            Level::Costs,
            found,
            "direct I/O through io_uring had hangs before 6.1 that were fixed since",
            newer,
        ),
        Some(_) => finding("kernel", Level::Good, found, "has everything the broker uses", ""),
    }
}

fn io_uring(facts: &Facts) -> Finding {
    if facts.io_uring_refused.is_empty() {
        return finding("io_uring", Level::Good, "permitted", "a ring could be made", "");
    }
    finding(
        "io_uring",
        Level::Stops,
        facts.io_uring_refused.clone(),
        "the broker does all disk I/O through it",
        "sysctl kernel.io_uring_disabled=0; in containers, a seccomp profile that permits io_uring_setup, io_uring_enter and io_uring_register",
    )
}

fn memlock(facts: &Facts) -> Finding {
    let how = "ulimit -l unlimited, LimitMEMLOCK=infinity (systemd) or --ulimit memlock=-1 (containers)";
    match facts.memlock_bytes {
        None => finding("memlock", Level::Good, "no limit", "rings and buffers may be locked", ""),
        Some(bytes) if bytes < 512 << 10 => {
            finding("memlock", Level::Stops, units::size(bytes), "a shard's rings need 512 KiB at least", how)
        }
        Some(bytes) if bytes < MEMLOCK_WANTED => finding(
            "memlock",
            Level::Costs,
            units::size(bytes),
            "smaller rings and no registered buffers: more processor time a write (published: up to 40 % at 16 KiB)",
            how,
        ),
        Some(bytes) => {
            finding("memlock", Level::Good, units::size(bytes), "enough for rings; with many shards, raise it", "")
        }
    }
}

fn open_files(facts: &Facts) -> Finding {
    let count = facts.open_files;
    let how = format!("ulimit -n {NOFILE_WANTED}, LimitNOFILE={NOFILE_WANTED} (systemd)");
    let found = units::grouped(count);
    match count {
        _ if count < NOFILE_MIN => finding(
            "open files",
            Level::Costs,
            found,
            "a few thousand partitions or clients are the most there can be: each connection and each open segment is one",
            how,
        ),
        _ if count < NOFILE_WANTED => finding(
            "open files",
            Level::Note,
            found,
            format!(
                "enough for about {} connections and partitions together; Kafka's guide asks for 100,000",
                units::grouped(count / 2)
            ),
            how,
        ),
        _ => finding("open files", Level::Good, found, "enough", ""),
    }
}

fn processors(facts: &Facts) -> Finding {
    let cores = facts.cores;
    let mut found = format!("{cores} usable, load {:.1}", facts.load);
    if let Some(quota) = facts.quota_cores.filter(|quota| *quota < f64::from(cores)) {
        found.push_str(&format!(", control group allows {} of them", units::digits(quota)));
        return finding(
            "processors",
            Level::Costs,
            found,
            "a quota stops all threads for the rest of each period once it is used up: tens of milliseconds in the tail",
            "give whole cores (cpuset, static CPU manager) instead of a quota",
        );
    }
    if facts.load > f64::from(cores) * 0.5 {
        return finding(
            "processors",
            Level::Costs,
            found,
            "something else runs: every number measured now is one of a busy host",
            "wait, or measure in pairs (ringlog compare does)",
        );
    }
    if cores < 2 {
        return finding(
            "processors",
            Level::Note,
            found,
            "broker and clients share one core; a comparison says little",
            "",
        );
    }
    finding("processors", Level::Good, found, "quiet", "")
}

fn steal(facts: &Facts) -> Option<Finding> {
    let steal = facts.measured?.steal;
    let found = format!("{:.1} % of processor time while looking", steal * 100.0);
    Some(match steal {
        _ if steal > STEAL_WARNED => finding(
            "steal",
            Level::Costs,
            found,
            "a hypervisor runs others on these cores: tails above p99 are theirs",
            "dedicated cores, or another host; pairs with more than 2 % are left out by ringlog compare",
        ),
        _ if steal > STEAL_NOTED => {
            finding("steal", Level::Note, found, "some of the tail is the hypervisor's", "dedicated cores")
        }
        _ => finding("steal", Level::Good, found, "the cores are this machine's", ""),
    })
}

fn governor(facts: &Facts) -> Finding {
    match facts.governor.as_str() {
        "" => {
            finding("governor", Level::Good, "none to be seen", "a virtual machine: the host decides the frequency", "")
        }
        "performance" => finding("governor", Level::Good, "performance", "the frequency does not follow the load", ""),
        other => finding(
            "governor",
            Level::Costs,
            other,
            "cores slow down between requests: at light load latency is up to twice as long, and CPU per MB looks dearer than it is",
            "cpupower frequency-set -g performance",
        ),
    }
}

fn clock(facts: &Facts) -> Option<Finding> {
    // Those the kernel lets programs read by themselves.
    const QUICK: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];
    let measured = facts.measured?;
    let found = format!(
        "{}, {:.0} ns a reading",
        if facts.clocksource.is_empty() { "unknown" } else { &facts.clocksource },
        measured.clock_ns
    );
    let cost = format!("a request that looks at the clock ten times pays {}", units::micros(measured.clock_ns / 100.0));
    Some(match (QUICK.contains(&facts.clocksource.as_str()), measured.clock_ns > CLOCK_NS_MAX) {
        (true, _) | (false, false) => finding("clock", Level::Good, found, "read without a system call", ""),
        (false, true) => finding(
            "clock",
            Level::Costs,
            found,
            format!("each reading is a system call: {cost}"),
            "clocksource=tsc on the kernel command line, if the hypervisor offers a stable one",
        ),
    })
}

fn wake_up(facts: &Facts) -> Option<Finding> {
    let late = facts.measured?.wake_up?;
    let level = if late.p99 > 2000.0 { Level::Costs } else { Level::Good };
    let how = if level == Level::Good {
        ""
    } else {
        "fewer busy processes on these cores; pin the broker (engine.cpu.set) and its clients apart"
    };
    Some(finding(
        "wake-up",
        level,
        late.words(),
        "how late a sleeping thread runs: it is in every latency of a broker that is not busy",
        how,
    ))
}

fn round_trip(facts: &Facts) -> Option<Finding> {
    let trip = facts.measured?.round_trip?;
    Some(finding(
        "loopback",
        Level::Good,
        trip.words(),
        "a byte to another thread and back: no acknowledgement on this host is faster",
        "",
    ))
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    Some(match facts.huge_pages.as_str() {
        "" => return None,
        "always" => finding(
            "huge pages",
            Level::Note,
            "always",
            "the kernel may stop a thread to put pages together, and memory shown as resident grows",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        other => finding("huge pages", Level::Good, other, "only for those who ask", ""),
    })
}

fn swap(facts: &Facts) -> Option<Finding> {
    if facts.swap_bytes == 0 {
        return Some(finding("swap", Level::Good, "none", "nothing is paged out", ""));
    }
    let swappiness = facts.swappiness?;
    let found = format!("{}, swappiness {swappiness}", units::bytes(facts.swap_bytes as f64));
    Some(if swappiness > 10 {
        finding(
            "swap",
            Level::Costs,
            found,
            "page-cache pressure (Kafka's writes are) pages idle heap out; the request that needs it waits for the disk",
            "sysctl vm.swappiness=1",
        )
    } else {
        finding("swap", Level::Good, found, "the last resort only", "")
    })
}

fn file_system(facts: &Facts) -> Finding {
    let options: Vec<&str> = facts.mount_options.split(',').collect();
    let found = format!("{} on {}, {}", facts.file_system, facts.device, facts.mount_options);
    match facts.file_system.as_str() {
        "" => finding("file system", Level::Note, "unknown", "its mount could not be found", ""),
        "tmpfs" | "ramfs" => finding(
            "file system",
            Level::Costs,
            found,
            "memory, not a disk: nothing survives a restart, and no number measured here is one of a disk",
            "put the data directory on a disk",
        ),
        "overlay" | "nfs" | "nfs4" | "fuse" | "9p" | "cifs" => finding(
            "file system",
            Level::Costs,
            found,
            "flushes and direct I/O go through another layer, and may not mean what they say",
            "a local ext4 or XFS for the data directory (a volume, in containers)",
        ),
        "btrfs" | "zfs" | "bcachefs" => finding(
            "file system",
            Level::Costs,
            found,
            "copy on write turns each append into new blocks and each flush into a tree update",
            "ext4 or XFS; on btrfs at least chattr +C on the data directory",
        ),
        _ if options.contains(&"data=journal") => finding(
            "file system",
            Level::Costs,
            found,
            "data=journal writes every byte twice and knows no direct I/O",
            "data=ordered",
        ),
        _ if !options.contains(&"noatime") && !options.contains(&"relatime") => {
            finding("file system", Level::Note, found, "every first read of a day writes", "noatime")
        }
        _ => finding("file system", Level::Good, found, "local, with direct I/O and honest flushes", ""),
    }
}

fn direct(facts: &Facts) -> Finding {
    match (&facts.direct_refused, facts.measured.and_then(|measured| measured.write)) {
        (refused, _) if !refused.is_empty() => finding(
            "direct I/O",
            Level::Stops,
            refused.clone(),
            "class written means that the device has it, which needs direct I/O",
            "another file system for the data directory",
        ),
        (_, Some(write)) => finding(
            "direct I/O",
            Level::Good,
            format!("4 KiB: {}", write.words()),
            "what an acknowledgement of class written waits for at least",
            "",
        ),
        (_, None) => finding("direct I/O", Level::Good, "possible", "class written can be kept", ""),
    }
}

fn room(facts: &Facts) -> Finding {
    let (free, size) = (facts.free_bytes as f64, facts.size_bytes.max(1) as f64);
    let found = format!("{} of {} free", units::bytes(free), units::bytes(size));
    if facts.free_bytes < FREE_MIN || free / size < FREE_SHARE_MIN {
        return finding(
            "free space",
            Level::Costs,
            found,
            "a full disk stops every append; a nearly full one makes the device slow, too",
            "retention.bytes on the largest topics, or a larger disk",
        );
    }
    finding("free space", Level::Good, found, "enough", "")
}

fn scheduler(facts: &Facts) -> Option<Finding> {
    let quick = facts.measured.and_then(|measured| measured.write).is_some_and(|write| write.p50 < SPINNING_WRITE_US);
    let found = format!("{} ({})", facts.scheduler, facts.device);
    Some(match (facts.scheduler.as_str(), facts.rotational == Some(true)) {
        ("", _) => return None,
        ("none", _) => finding("io scheduler", Level::Good, found, "requests go to the device as they come", ""),
        (_, true) if !quick => {
            finding("io scheduler", Level::Good, found, "a spinning disk is served best in order", "")
        }
        (_, spins) => {
            let says = if spins { "the device says that it spins, and answers too quickly for that; " } else { "" };
            let name = facts.device.rsplit('/').next().unwrap_or("DEVICE");
            finding(
                "io scheduler",
                Level::Note,
                found,
                format!(
                    "{says}it orders requests for a device that needs no order, at some processor time each and with a lock all \
                     cores share; how much was not measured here: measuring it means changing it (tuning/host.md)"
                ),
                format!("echo none > /sys/block/{name}/queue/scheduler"),
            )
        }
    })
}

fn write_cache(facts: &Facts) -> Option<Finding> {
    Some(match facts.write_cache.as_str() {
        "" => return None,
        "write through" => finding(
            "write cache",
            Level::Good,
            "write through",
            "a write that has ended is on stable storage (or the device says so): flushes cost next to nothing",
            "",
        ),
        other => {
            let cost = match facts.measured.and_then(|measured| Some((measured.write?.p50, measured.flush?.p50))) {
                Some((write, flush)) if write > 0.0 => format!(
                    "flushes are real: class flushed waits {:.1} times as long as class written here ({} against {})",
                    flush / write,
                    units::micros(flush),
                    units::micros(write)
                ),
                _ => "flushes are real, and class flushed pays for each".to_owned(),
            };
            finding("write cache", Level::Note, other, cost, "")
        }
    })
}

fn flush(facts: &Facts) -> Option<Finding> {
    let flush = facts.measured?.flush?;
    let (level, cost) = match () {
        () if flush.p50 < 20.0 => (Level::Note, "flushes return at once: the device is protected against power loss, or does not honour them; find out which before class flushed is relied on".to_owned()),
        () if flush.p99 < 2000.0 => (Level::Good, "cheap: class flushed is affordable for every topic".to_owned()),
        () if flush.p99 < 15_000.0 => (Level::Note, format!("ordinary: one producer that waits for each gets {} acknowledgements a second; many share each flush", units::grouped((1e6 / flush.p50.max(1.0)) as u64))),
        () => (Level::Costs, format!("slow: with class flushed (flush.messages=1) one acknowledgement in a hundred waits {} at least", units::micros(flush.p99))),
    };
    let how = if level == Level::Costs {
        "a device with power-loss protection; linger.ms and more partitions' worth of company per flush (tuning/)"
    } else {
        ""
    };
    Some(finding("flush", level, format!("4 KiB + fdatasync: {}", flush.words()), cost, how))
}

fn growing(facts: &Facts) -> Option<Finding> {
    let measured = facts.measured?;
    let (growing, flush) = (measured.growing_flush?, measured.flush?);
    let mut cost = format!(
        "{:.1} times a flush into blocks written before: what each fsync of a log that grows costs",
        growing.p50 / flush.p50.max(0.1)
    );
    if let Some(reserved) = measured.preallocated_flush {
        cost.push_str(&format!(
            "; into blocks that are reserved and not written, as preallocated segments are, {:.1} times ({}, p99 {})",
            reserved.p50 / flush.p50.max(0.1),
            units::micros(reserved.p50),
            units::micros(reserved.p99)
        ));
    }
    Some(finding("flush, growing", Level::Note, growing.words(), cost, ""))
}

fn dirty(facts: &Facts) -> Option<Finding> {
    let (ratio, background) = (facts.dirty_ratio?, facts.dirty_background_ratio?);
    let limit = facts.memory_bytes as f64 * ratio as f64 / 100.0;
    let found = format!("vm.dirty_ratio {ratio} %, background {background} %");
    let cost = format!(
        "for Kafka's side: up to {} may lie unwritten in memory, and whoever reaches that limit is stopped until it is written; a run that writes less never meets the disk. Ringlog writes past it",
        units::bytes(limit)
    );
    let level = if limit > 2e9 { Level::Note } else { Level::Good };
    let how = if level == Level::Note {
        "for even latency of page-cache brokers: vm.dirty_background_bytes=268435456, vm.dirty_bytes=1073741824; leave the defaults for comparisons"
    } else {
        ""
    };
    Some(finding("dirty pages", level, found, cost, how))
}

fn maps(facts: &Facts) -> Option<Finding> {
    let count = facts.max_map_count?;
    let found = format!("vm.max_map_count {}", units::grouped(count));
    Some(if count < MAPS_WANTED {
        let cost = format!(
            "for Kafka's side: two maps a segment, so about {} segments are the most; Ringlog maps none",
            units::grouped(count / 2)
        );
        finding("memory maps", Level::Note, found, cost, format!("sysctl vm.max_map_count={MAPS_WANTED}"))
    } else {
        finding("memory maps", Level::Good, found, "enough for Kafka's indexes; Ringlog maps none", "")
    })
}

fn backlog(facts: &Facts) -> Option<Finding> {
    let count = facts.somaxconn?;
    let found = format!("net.core.somaxconn {count}");
    Some(if count < SOMAXCONN_WANTED {
        finding(
            "accept queue",
            Level::Costs,
            found,
            "when more clients connect at once their connection is tried again after 1 s",
            format!("sysctl net.core.somaxconn={SOMAXCONN_WANTED}, and socket.listen.backlog.size as large"),
        )
    } else {
        finding(
            "accept queue",
            Level::Good,
            found,
            "a wave of reconnecting clients fits (with socket.listen.backlog.size as large)",
            "",
        )
    })
}

fn ports(facts: &Facts) -> Option<Finding> {
    let (from, to) = facts.ports?;
    let count = (to + 1).saturating_sub(from);
    let found = format!("{from} to {to}");
    Some(if count < PORTS_WANTED {
        finding(
            "ports",
            Level::Note,
            found,
            format!(
                "a load generator here has {} connections to one address at most",
                units::grouped(u64::from(count))
            ),
            "sysctl net.ipv4.ip_local_port_range='15000 65000'",
        )
    } else {
        finding("ports", Level::Good, found, "enough for load generators", "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(p50: f64, p99: f64) -> Option<Times> {
        Some(Times { count: 1000, p50, p99, p999: p99 * 2.0, max: p99 * 3.0 })
    }

    /// A host on which everything is as wanted.
    fn good() -> Facts {
        Facts {
            kernel: "6.12.9-generic".to_owned(),
            open_files: 1_000_000,
            cores: 8,
            load: 0.2,
            clocksource: "tsc".to_owned(),
            huge_pages: "madvise".to_owned(),
            dirty_ratio: Some(20),
            dirty_background_ratio: Some(10),
            memory_bytes: 8 << 30,
            file_system: "xfs".to_owned(),
            mount_options: "rw,noatime".to_owned(),
            device: "/dev/nvme0n1".to_owned(),
            scheduler: "none".to_owned(),
            rotational: Some(false),
            write_cache: "write through".to_owned(),
            free_bytes: 500 << 30,
            size_bytes: 1000 << 30,
            somaxconn: Some(4096),
            ports: Some((32_768, 60_999)),
            max_map_count: Some(1_000_000),
            measured: Some(Measured {
                write: times(30.0, 90.0),
                flush: times(60.0, 300.0),
                growing_flush: times(400.0, 900.0),
                wake_up: times(60.0, 150.0),
                round_trip: times(20.0, 60.0),
                clock_ns: 30.0,
                ..Measured::default()
            }),
            ..Facts::default()
        }
    }

    fn level(check: &str, change: impl FnOnce(&mut Facts)) -> Level {
        let mut facts = good();
        change(&mut facts);
        examine(&facts).into_iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("no {check}")).level
    }

    #[test]
    fn a_good_host_has_nothing_that_costs() {
        let findings = examine(&good());
        assert!(gravest(&findings) <= Level::Note, "{findings:?}");
        assert_eq!(findings.len(), 23);
    }

    #[test]
    fn what_keeps_a_broker_from_running_is_told_apart() {
        assert_eq!(level("kernel", |facts| facts.kernel = "5.4.0-42".to_owned()), Level::Stops);
        assert_eq!(level("kernel", |facts| facts.kernel = "5.15.0".to_owned()), Level::Costs);
        assert_eq!(level("kernel", |facts| facts.kernel = "strange".to_owned()), Level::Note);
        assert_eq!(level("io_uring", |facts| facts.io_uring_refused = "refused".to_owned()), Level::Stops);
        assert_eq!(level("memlock", |facts| facts.memlock_bytes = Some(65_536)), Level::Stops);
        assert_eq!(level("direct I/O", |facts| facts.direct_refused = "EINVAL".to_owned()), Level::Stops);
    }

    #[test]
    fn what_costs_says_so_and_how_to_change_it() {
        type Change = fn(&mut Facts);
        let costly: [(&str, Change); 11] = [
            ("clock", |facts| {
                facts.clocksource = "hpet".to_owned();
                facts.measured = facts.measured.map(|all| Measured { clock_ns: 900.0, ..all });
            }),
            ("memlock", |facts| facts.memlock_bytes = Some(1 << 20)),
            ("open files", |facts| facts.open_files = 1024),
            ("processors", |facts| facts.load = 9.0),
            ("processors", |facts| facts.quota_cores = Some(1.5)),
            ("governor", |facts| facts.governor = "powersave".to_owned()),
            ("swap", |facts| (facts.swap_bytes, facts.swappiness) = (1 << 30, Some(60))),
            ("file system", |facts| facts.file_system = "overlay".to_owned()),
            ("free space", |facts| facts.free_bytes = 1 << 30),
            ("accept queue", |facts| facts.somaxconn = Some(128)),
            ("flush", |facts| {
                facts.measured = facts.measured.map(|all| Measured { flush: times(3000.0, 40_000.0), ..all })
            }),
        ];
        for (check, change) in costly {
            let mut facts = good();
            change(&mut facts);
            let found = examine(&facts).into_iter().find(|finding| finding.check == check).unwrap();
            assert_eq!(found.level, Level::Costs, "{check}");
            assert!(!found.cost.is_empty() && !found.how.is_empty(), "{check}");
        }
        let spinning = |measured: bool| {
            level("io scheduler", |facts| {
                (facts.scheduler, facts.rotational) = ("mq-deadline".to_owned(), Some(true));
                facts.measured = facts.measured.filter(|_| measured);
            })
        };
        assert_eq!(
            (spinning(false), spinning(true)),
            (Level::Good, Level::Note),
            "a disk that answers in 30 µs does not spin"
        );
        assert_eq!(
            level("steal", |facts| facts.measured = facts.measured.map(|all| Measured { steal: 0.05, ..all })),
            Level::Costs
        );
    }

    #[test]
    fn without_measuring_only_facts_are_judged() {
        let findings = examine(&Facts { measured: None, ..good() });
        assert!(
            !findings
                .iter()
                .any(|finding| matches!(finding.check, "flush" | "steal" | "clock" | "wake-up" | "loopback"))
        );
        assert!(findings.iter().any(|finding| finding.check == "direct I/O"));
    }

    #[test]
    fn percentiles_are_of_the_times_given() {
        let times = Times::of((1..=1000).map(f64::from).collect()).unwrap();
        assert_eq!((times.count, times.p50, times.p99, times.p999, times.max), (1000, 501.0, 991.0, 1000.0, 1000.0));
        assert_eq!(Times::of(Vec::new()), None);
    }
}
