//! What a flush costs on this disk, measured once at start-up.
//!
//! Shell, on the control thread. Owns one scratch file, removed before it returns. The figure stands in the start-up
//! lines beside the ack class, since the class `flushed` costs exactly this; it decides nothing.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flushes to measure: enough for a p99 worth the name on a fast disk.
const ROUNDS_MAX: usize = 100;
/// Time the probe may take: the first acknowledged record is due within a second of process start.
const BUDGET: Duration = Duration::from_millis(120);
/// One block, as the tail rewrite of an append.
const WRITE_BYTES: usize = 4096;

/// Latencies of `fdatasync` after a 4 KiB write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushCost {
    /// Median.
    pub p50: Duration,
    /// 99th percentile (the largest, when fewer than 100 rounds fitted the budget).
    pub p99: Duration,
    /// Rounds measured, at least 1.
    pub rounds: usize,
}

impl FlushCost {
    /// One plain sentence about what the figures mean for the class `flushed`.
    pub fn verdict(&self) -> &'static str {
        if self.p50 < Duration::from_micros(20) {
            "flushes return at once: the device has power-loss protection, or does not honour them"
        } else if self.p99 < Duration::from_millis(2) {
            "flushes are cheap: ack class 'flushed' is affordable"
        } else if self.p99 < Duration::from_millis(15) {
            "flushes are ordinary: ack class 'flushed' wants several producers to share each one"
        } else {
            "flushes are slow: ack class 'flushed' will be bound by this disk"
        }
    }
}

/// Measures in `dir`. Errors: what the file system answered.
pub fn measure(dir: &Path) -> io::Result<FlushCost> {
    let path = dir.join(".flush-probe");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    let outcome = rounds(&file);
    fs::remove_file(&path)?;
    let mut latencies = outcome?;
    latencies.sort_unstable();
    let last = latencies.len() - 1;
    Ok(FlushCost {
        p50: latencies[latencies.len() / 2],
        p99: latencies[(latencies.len() * 99 / 100).min(last)],
        rounds: latencies.len(),
    })
}

fn rounds(file: &fs::File) -> io::Result<Vec<Duration>> {
    let block = [0x5a; WRITE_BYTES];
    // The first flush also writes the new file's metadata: not what an append pays.
    file.write_all_at(&block, 0)?;
    file.sync_data()?;
    let began = Instant::now();
    let mut latencies = Vec::with_capacity(ROUNDS_MAX);
    while latencies.is_empty() || (latencies.len() < ROUNDS_MAX && began.elapsed() < BUDGET) {
        file.write_all_at(&block, 0)?;
        let flushed = Instant::now();
        file.sync_data()?;
        latencies.push(flushed.elapsed());
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_measures_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let cost = measure(dir.path()).unwrap();
        assert!(cost.rounds >= 1 && cost.p50 <= cost.p99);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_verdict_follows_the_tail_not_the_median() {
        let cost = |p50_us, p99_us| FlushCost {
            p50: Duration::from_micros(p50_us),
            p99: Duration::from_micros(p99_us),
            rounds: 100,
        };
        assert!(cost(5, 9).verdict().contains("at once"));
        assert!(cost(200, 900).verdict().contains("cheap"));
        assert!(cost(300, 9_000).verdict().contains("ordinary"));
        assert!(cost(300, 40_000).verdict().contains("slow"));
    }
}
