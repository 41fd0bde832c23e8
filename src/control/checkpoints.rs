//! The offset checkpoints of each log directory: read at start, written once a minute and at a clean stop.
//!
//! Shell, on the control thread: one file serves the logs of all shards, so no shard can own it. Owns
//! `recovery-point-offset-checkpoint` and `log-start-offset-checkpoint`; the formats are `log::checkpoint`'s. Always: a
//! recovery point written here was reached by the log before; an old one only makes recovery read more.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::log::{checkpoint, files};
use crate::shard::calls::{DirCheckpoint, PartitionFacts};
use crate::types::{Offset, PartitionIndex, TopicPartition};

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";

/// The two maps of one log directory.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Everything below was synced.
    pub recovery_points: HashMap<TopicPartition, Offset>,
    /// First offset a client may read.
    pub log_starts: HashMap<TopicPartition, Offset>,
}

/// Reads the checkpoints of `dir`. A file that is missing or not readable as a checkpoint counts as empty: recovery then
/// reads whole logs. What was wrong comes back beside it.
pub fn read(dir: &Path) -> (Offsets, Vec<String>) {
    let mut problems = Vec::new();
    let mut load = |name: &str| match std::fs::read_to_string(dir.join(name)) {
        Ok(text) => match checkpoint::parse_offsets(&text) {
            Ok(entries) => entries.into_iter().collect(),
            Err(error) => {
                problems
                    .push(format!("{}: {error}; every log in the directory is read whole", dir.join(name).display()));
                HashMap::new()
            }
        },
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                problems.push(format!("{}: {error}", dir.join(name).display()));
            }
            HashMap::new()
        }
    };
    let offsets = Offsets { recovery_points: load(RECOVERY_POINTS), log_starts: load(LOG_STARTS) };
    (offsets, problems)
}

/// Writes the checkpoints of `dir`, each file atomically. Errors: what the file system answered.
pub fn write(dir: &Path, entries: &DirCheckpoint) -> io::Result<()> {
    for (name, offsets) in [(RECOVERY_POINTS, &entries.recovery_points), (LOG_STARTS, &entries.log_starts)] {
        let text = checkpoint::format_offsets(offsets.iter().map(|(tp, offset)| (tp, *offset)));
        files::write_blocking(&dir.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// What running shards report, gathered by log directory. Partitions that never opened are left out: what the last
/// checkpoint said of them stays the truth, so `before` is carried over.
pub fn gather(dirs: &[PathBuf], partitions: &[PartitionFacts], before: &[Offsets]) -> Vec<DirCheckpoint> {
    let mut gathered: Vec<_> = dirs.iter().map(|_| DirCheckpoint::default()).collect();
    for facts in partitions {
        let (Some(partition), Some(target)) = (PartitionIndex::new(facts.partition), gathered.get_mut(facts.log_dir))
        else {
            continue;
        };
        let tp = TopicPartition { topic: facts.topic.as_str().into(), partition };
        let reported = (Offset::new(facts.flushed_offset), Offset::new(facts.log_start_offset));
        let (recovery_point, log_start) = match (&facts.offline, before.get(facts.log_dir)) {
            (None, _) => reported,
            (Some(_), Some(before)) => (before.recovery_points.get(&tp).copied(), before.log_starts.get(&tp).copied()),
            (Some(_), None) => (None, None),
        };
        target.recovery_points.extend(recovery_point.map(|offset| (tp.clone(), offset)));
        target.log_starts.extend(log_start.map(|offset| (tp.clone(), offset)));
    }
    gathered
}

/// One entry a directory, over all shards.
pub fn merge(dirs: usize, reports: impl IntoIterator<Item = Vec<DirCheckpoint>>) -> Vec<DirCheckpoint> {
    let clean = || DirCheckpoint { clean: true, ..DirCheckpoint::default() };
    let mut merged: Vec<_> = (0..dirs).map(|_| clean()).collect();
    for report in reports {
        for (sum, part) in merged.iter_mut().zip(report) {
            sum.clean &= part.clean;
            sum.recovery_points.extend(part.recovery_points);
            sum.log_starts.extend(part.log_starts);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: &str, offline: Option<&str>, flushed: i64) -> PartitionFacts {
        PartitionFacts {
            topic: topic.to_owned(),
            offline: offline.map(str::to_owned),
            flushed_offset: flushed,
            ..PartitionFacts::default()
        }
    }

    fn named(topic: &str) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex::ZERO }
    }

    #[test]
    fn what_was_written_is_read_back_and_a_broken_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let seven = Offset::new(7).unwrap();
        let entries = DirCheckpoint { clean: true, recovery_points: vec![(named("a"), seven)], log_starts: vec![] };
        write(dir.path(), &entries).unwrap();
        let (offsets, problems) = read(dir.path());
        assert_eq!(offsets.recovery_points, HashMap::from([(named("a"), seven)]));
        assert!(problems.is_empty());

        std::fs::write(dir.path().join(RECOVERY_POINTS), "not a checkpoint").unwrap();
        let (offsets, problems) = read(dir.path());
        assert!(offsets.recovery_points.is_empty());
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn an_offline_partition_keeps_the_recovery_point_it_had() {
        let known = HashMap::from([(named("bad"), Offset::new(40).unwrap())]);
        let before = [Offsets { recovery_points: known, ..Offsets::default() }];
        let dirs = [PathBuf::from("data")];
        let gathered = gather(&dirs, &[partition("bad", Some("corrupt"), 0), partition("good", None, 9)], &before);
        let points: HashMap<_, _> = gathered[0].recovery_points.iter().cloned().collect();
        assert_eq!(points[&named("bad")].value(), 40);
        assert_eq!(points[&named("good")].value(), 9);
    }
}
