//! Processes of this host as `/proc` shows them: processor time, memory, switches, who listens on a port.
//!
//! Shell: reads `/proc`. Owns the parsing. Always true: what cannot be read (another user's process, another system) is
//! `None`, never a zero that would look like a measurement.

use std::fs;
use std::path::Path;

/// One look at a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessSample {
    /// Processor seconds in user mode, all threads.
    pub user_seconds: f64,
    /// Processor seconds in the kernel.
    pub system_seconds: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Its largest value so far.
    pub rss_peak_bytes: u64,
    /// Voluntary and involuntary, of the threads alive now.
    pub context_switches: u64,
    /// Bytes it caused to be written; `None` without the right to see it.
    pub written_bytes: Option<u64>,
}

/// One look at the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSample {
    /// Processor seconds spent on anything but idling, waiting and steal.
    pub busy_seconds: f64,
    /// Processor seconds a hypervisor took away.
    pub steal_seconds: f64,
    /// All of it.
    pub total_seconds: f64,
    /// Page cache, bytes.
    pub cached_bytes: u64,
}

/// One look at a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSample {
    /// Bytes written.
    pub written_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Looks at a process; `None` when there is none of that id.
pub fn process(pid: u32) -> Option<ProcessSample> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (user, system) = times(&stat)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut switches = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if let Ok(status) = fs::read_to_string(task.path().join("status")) {
            switches += field(&status, "voluntary_ctxt_switches").unwrap_or(0)
                + field(&status, "nonvoluntary_ctxt_switches").unwrap_or(0);
        }
    }
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok();
    Some(ProcessSample {
        user_seconds: user / ticks_per_second(),
        system_seconds: system / ticks_per_second(),
        rss_bytes: field(&status, "VmRSS").unwrap_or(0) * 1024,
        rss_peak_bytes: field(&status, "VmHWM").unwrap_or(0) * 1024,
        context_switches: switches,
        written_bytes: io.and_then(|io| field(&io, "write_bytes")),
    })
}

/// utime and stime of `/proc/PID/stat`, in ticks. The name before them may hold anything, also brackets.
fn times(stat: &str) -> Option<(f64, f64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    Some((user, fields.next()?.parse().ok()?))
}

/// The number behind `name:` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor seconds of this process so far, user and kernel.
pub fn own_cpu_seconds() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 * 1e-9
}

/// Looks at the machine; `None` where there is no `/proc`.
pub fn machine() -> Option<MachineSample> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let cached = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "Cached")).unwrap_or(0);
    let mut sample = machine_times(&stat)?;
    sample.cached_bytes = cached * 1024;
    Some(sample)
}

fn machine_times(stat: &str) -> Option<MachineSample> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal (guest time is within user's).
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    let per_second = ticks_per_second();
    Some(MachineSample {
        busy_seconds: busy / per_second,
        steal_seconds: steal / per_second,
        total_seconds: (busy + idle + iowait + steal) / per_second,
        cached_bytes: 0,
    })
}

/// Looks at the block device under `path`; `None` where it has none to see (a network or memory file system).
pub fn device(path: &Path) -> Option<DeviceSample> {
    let (major, minor) = device_number(path)?;
    device_line(&fs::read_to_string("/proc/diskstats").ok()?, major, minor)
}

/// Major and minor number of the device `path` lies on.
pub fn device_number(path: &Path) -> Option<(u32, u32)> {
    let device = rustix::fs::stat(path).ok()?.st_dev;
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

fn device_line(stats: &str, major: u32, minor: u32) -> Option<DeviceSample> {
    let fields = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|fields| {
        fields.first().and_then(|text| text.parse().ok()) == Some(major)
            && fields.get(1).and_then(|text| text.parse().ok()) == Some(minor)
    })?;
    const SECTOR_BYTES: u64 = 512; // in diskstats, whatever the device has
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    Some(DeviceSample { written_bytes: number(9)? * SECTOR_BYTES, flushes: number(18).unwrap_or(0) })
}

/// The name of a process, as the kernel keeps it: fifteen bytes at most.
pub fn name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The process that listens on `port` of this host; `None` when it cannot be found (it is not here, or another user's).
pub fn listener(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|path| listening_inode(&fs::read_to_string(path).ok()?, port))?;
    let socket = format!("socket:[{inode}]");
    let processes =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in processes {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let holds =
            |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == socket.as_str());
        if descriptors.flatten().any(holds) {
            return Some(pid);
        }
    }
    None
}

/// The inode of the socket that listens on `port`, in the format of `/proc/net/tcp`.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = fields.get(1)?.rsplit_once(':')?;
        let found = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(3)? == LISTEN;
        found.then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

/// Whether `host` is this host, as far as a name can tell: then the broker's process can be looked for here.
pub fn is_this_host(host: &str) -> bool {
    use std::net::{TcpListener, ToSocketAddrs};
    // Only an address of this host can be bound to.
    let bindable = |address: std::net::SocketAddr| TcpListener::bind((address.ip(), 0)).is_ok();
    (host, 0u16).to_socket_addrs().is_ok_and(|mut addresses| addresses.any(bindable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20 0 3 0 99 0 0";
        assert_eq!(times(stat), Some((111.0, 222.0)));
        assert_eq!(times("12 (cut"), None);
    }

    #[test]
    fn this_process_is_seen_with_its_memory() {
        let sample = process(std::process::id()).unwrap();
        assert!(sample.rss_bytes > 100_000 && sample.rss_peak_bytes >= sample.rss_bytes);
        assert!(own_cpu_seconds() > 0.0);
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn the_machine_adds_up() {
        let sample = machine_times("cpu  100 0 100 700 50 10 20 20 0 0\ncpu0 1 2 3").unwrap();
        assert!((sample.busy_seconds / sample.total_seconds - 0.23).abs() < 1e-9);
        assert_eq!(machine_times("intr 5"), None);
    }

    #[test]
    fn a_device_is_found_by_its_numbers() {
        let stats = " 254 0 vda 10 0 80 5 20 0 400 9 0 1 2 0 0 0 0 7 3\n 254 1 vda1 1 1 1 1 1 1 1 1 1 1 1";
        assert_eq!(device_line(stats, 254, 0), Some(DeviceSample { written_bytes: 400 * 512, flushes: 7 }));
        assert_eq!(device_line(stats, 8, 0), None);
    }

    #[test]
    fn whoever_listens_is_found_by_port() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        assert_eq!(listener(port), Some(std::process::id()));
        assert!(is_this_host("127.0.0.1") && !is_this_host("192.0.2.1"));
    }
}
