//! What the generator runs on, for the report.
//!
//! Shell: reads `/proc` and `/sys`. Always true: a fact that cannot be had is left empty; nothing is changed.

use std::fs;
use std::path::Path;

use super::process::{MachineSample, device_number};
use super::report::HostFacts;

/// The host, and what lies under `directory`.
pub fn facts(directory: &Path) -> HostFacts {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let memory = read("/proc/meminfo");
    let memory =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    HostFacts {
        cpu_model: model.map_or_else(|| "unknown processor".to_owned(), |(_, model)| model.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        kernel: release,
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        memory_bytes: memory.unwrap_or(0) * 1024,
        disk: disk(directory),
        io_uring: match read("/proc/sys/kernel/io_uring_disabled").as_str() {
            "0" => "permitted".to_owned(),
            "1" => "for privileged processes only".to_owned(),
            "2" => "switched off".to_owned(),
            _ => String::new(),
        },
        steal_percent: String::new(),
    }
}

/// `vda, ext4, rw,relatime, scheduler none`.
fn disk(directory: &Path) -> String {
    let Some((major, minor)) = device_number(directory) else { return String::new() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some((file_system, source, options)) = mount(&mounts, major, minor) else {
        return format!("device {major}:{minor}");
    };
    let scheduler = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/scheduler"))
        .or_else(|_| fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/../queue/scheduler")))
        .unwrap_or_default();
    let chosen = scheduler.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let scheduler = chosen.map(|scheduler| format!(", scheduler {scheduler}")).unwrap_or_default();
    format!("{source}, {file_system}, {options}{scheduler}")
}

/// File system, source and options of the first mount of a device in the format of `mountinfo`.
fn mount(mounts: &str, major: u32, minor: u32) -> Option<(String, String, String)> {
    let number = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split_whitespace().collect();
        let mut right = right.split_whitespace();
        (left.get(2) == Some(&number.as_str()))
            .then(|| Some((right.next()?.to_owned(), right.next()?.to_owned(), (*left.get(5)?).to_owned())))
            .flatten()
    })
}

/// `1.2 %` of the processor time between two looks was taken away.
pub fn steal(before: &MachineSample, after: &MachineSample) -> f64 {
    let total = after.total_seconds - before.total_seconds;
    if total > 0.0 { (after.steal_seconds - before.steal_seconds) / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device() {
        let mounts = "21 1 0:20 / /proc rw,nosuid - proc proc rw\n26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n";
        assert_eq!(mount(mounts, 254, 0), Some(("ext4".to_owned(), "/dev/vda".to_owned(), "rw,relatime".to_owned())));
        assert_eq!(mount(mounts, 8, 1), None);
    }

    #[test]
    fn this_host_has_a_processor_memory_and_a_kernel() {
        let facts = facts(Path::new("."));
        assert!(facts.cores > 0 && facts.memory_bytes > 1 << 20 && !facts.kernel.is_empty());
    }
}
