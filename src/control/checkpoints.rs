//! The offset checkpoints of each log directory: read at start, written once a minute, at a deletion and at the end.
//!
//! Shell, on the control thread: one file serves the logs of all shards, so no shard can own it. Owns
//! `recovery-point-offset-checkpoint` and `log-start-offset-checkpoint`; the formats are `log::checkpoint`'s. Always: a
//! recovery point written here was reached by the log before, and an old one only makes recovery read more; what is known of a
//! partition stays until something newer is, because without its recovery point damage would pass for a torn tail and be cut;
//! entries have names, not ids, so those of a deleted topic are gone from disk before its name can be given again.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::controller::image::Image;
use crate::log::{checkpoint, files};
use crate::shard::calls::{DirCheckpoint, PartitionFacts};
use crate::types::{Offset, PartitionIndex, TopicPartition};

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";

/// The two maps of one log directory.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Everything below was synced.
    pub recovery_points: HashMap<TopicPartition, Offset>,
    /// First offset a client may read.
    pub log_starts: HashMap<TopicPartition, Offset>,
}

/// The checkpoints of all log directories, as they were last written or are to be.
pub struct Checkpoints {
    dirs: Vec<Dir>,
}

struct Dir {
    path: PathBuf,
    offsets: Offsets,
    /// The files may hold what `offsets` does not: a write has failed.
    unwritten: bool,
}

impl Dir {
    fn write(&mut self) -> io::Result<()> {
        let written = write(&self.path, &self.offsets);
        self.unwritten = written.is_err();
        written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

impl Checkpoints {
    /// As [`read`] found them.
    pub fn new(dirs: impl IntoIterator<Item = (PathBuf, Offsets)>) -> Self {
        let dir = |(path, offsets)| Dir { path, offsets, unwritten: false };
        Self { dirs: dirs.into_iter().map(dir).collect() }
    }

    /// Forgets partitions that `image` does not have, on disk too. Writes nothing when the disk has none either. Errors: the
    /// first of what the file systems answered; the next call tries again what was not written.
    pub fn keep_those_of(&mut self, image: &Image) -> io::Result<()> {
        let has = |partition: &TopicPartition| {
            let topic = image.topics.get(&partition.topic);
            topic.is_some_and(|topic| (partition.partition.value() as usize) < topic.partitions.len())
        };
        let mut outcome = Ok(());
        for dir in &mut self.dirs {
            let Offsets { recovery_points, log_starts } = &mut dir.offsets;
            let before = recovery_points.len() + log_starts.len();
            recovery_points.retain(|partition, _| has(partition));
            log_starts.retain(|partition, _| has(partition));
            if dir.unwritten || recovery_points.len() + log_starts.len() < before {
                outcome = outcome.and(dir.write());
            }
        }
        outcome
    }

    /// Takes over what running shards report, and writes it. Of a partition that is not served only what is further than
    /// known: one that never opened reports zeroes.
    pub fn on_report(&mut self, partitions: &[PartitionFacts]) {
        for facts in partitions {
            let (Some(index), Some(Dir { offsets, .. })) =
                (PartitionIndex::new(facts.partition), self.dirs.get_mut(facts.log_dir))
            else {
                continue;
            };
            let partition = TopicPartition { topic: facts.topic.as_str().into(), partition: index };
            let reported = [
                (&mut offsets.recovery_points, facts.flushed_offset),
                (&mut offsets.log_starts, facts.log_start_offset),
            ];
            for (known, offset) in reported {
                let Some(offset) = Offset::new(offset) else { continue };
                let known = known.entry(partition.clone()).or_default();
                *known = if facts.offline.is_some() { offset.max(*known) } else { offset };
            }
        }
        for dir in &mut self.dirs {
            if let Err(error) = dir.write() {
                tracing::warn!(%error, "offset checkpoints were not written");
            }
        }
    }

    /// Takes over where logs were closed, and writes it, one `closed` a directory in their order; what came of each. What did
    /// not close keeps what is known of it.
    pub fn on_end(&mut self, closed: &[DirCheckpoint]) -> Vec<io::Result<()>> {
        let mut outcomes = Vec::with_capacity(closed.len());
        for (dir, closed) in self.dirs.iter_mut().zip(closed) {
            dir.offsets.recovery_points.extend(closed.recovery_points.iter().cloned());
            dir.offsets.log_starts.extend(closed.log_starts.iter().cloned());
            outcomes.push(dir.write());
        }
        outcomes
    }
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

/// Writes the checkpoints of `dir`, each file atomically. A log start of a topic that is gone would cut a new log of its name,
/// a recovery point only refuse it: so log starts go first. Errors: what the file system answered.
fn write(dir: &Path, offsets: &Offsets) -> io::Result<()> {
    for (name, offsets) in [(LOG_STARTS, &offsets.log_starts), (RECOVERY_POINTS, &offsets.recovery_points)] {
        let text = checkpoint::format_offsets(offsets.iter().map(|(partition, offset)| (partition, *offset)));
        files::write_blocking(&dir.join(name), text.as_bytes())?;
    }
    Ok(())
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

    fn offsets(points: &[(&str, i64)]) -> Offsets {
        let points = points.iter().map(|(topic, offset)| (named(topic), Offset::new(*offset).unwrap()));
        Offsets {
            recovery_points: points.clone().collect(),
            log_starts: points.map(|(name, _)| (name, Offset::ZERO)).collect(),
        }
    }

    /// What the next start would read.
    fn on_disk(dir: &Path) -> HashMap<TopicPartition, Offset> {
        let (offsets, problems) = read(dir);
        assert!(problems.is_empty(), "{problems:?}");
        offsets.recovery_points
    }

    #[test]
    fn what_was_written_is_read_back_and_a_broken_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &offsets(&[("a", 7)])).unwrap();
        let (found, problems) = read(dir.path());
        assert_eq!(found, offsets(&[("a", 7)]));
        assert!(problems.is_empty());

        std::fs::write(dir.path().join(RECOVERY_POINTS), "not a checkpoint").unwrap();
        let (offsets, problems) = read(dir.path());
        assert!(offsets.recovery_points.is_empty());
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn a_partition_that_is_not_served_keeps_its_recovery_point_while_the_broker_runs_and_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut checkpoints =
            Checkpoints::new([(dir.path().to_owned(), offsets(&[("never-opened", 40), ("failed", 5)]))]);
        checkpoints.on_report(&[
            partition("never-opened", Some("corrupt"), 0),
            partition("failed", Some("EIO"), 8),
            partition("good", None, 9),
        ]);
        assert_eq!(on_disk(dir.path()), offsets(&[("never-opened", 40), ("failed", 8), ("good", 9)]).recovery_points);
        // Only one of them closed.
        let closed =
            DirCheckpoint { recovery_points: vec![(named("good"), Offset::new(12).unwrap())], ..Default::default() };
        checkpoints.on_end(&[closed]).remove(0).unwrap();
        assert_eq!(on_disk(dir.path()), offsets(&[("never-opened", 40), ("failed", 8), ("good", 12)]).recovery_points);
    }

    #[test]
    fn what_is_known_of_a_deleted_topic_leaves_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let known = offsets(&[("gone", 1000)]);
        write(dir.path(), &known).unwrap();
        let mut checkpoints = Checkpoints::new([(dir.path().to_owned(), known)]);
        checkpoints.keep_those_of(&Image::empty("cluster".into(), Vec::new())).unwrap();
        assert!(on_disk(dir.path()).is_empty());
    }

    #[test]
    fn a_write_that_failed_after_a_deletion_is_tried_again_before_the_name_can_be_given() {
        for blocked in [LOG_STARTS, RECOVERY_POINTS] {
            let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let known = offsets(&[("gone", 1000)]);
            let dirs = [dir.path(), other.path()].map(|path| (path.to_owned(), known.clone()));
            dirs.iter().for_each(|(path, known)| write(path, known).unwrap());
            let mut checkpoints = Checkpoints::new(dirs);
            let none = Image::empty("cluster".into(), Vec::new());

            let obstacle = dir.path().join(format!("{blocked}.tmp"));
            std::fs::create_dir(&obstacle).unwrap();
            checkpoints.keep_those_of(&none).unwrap_err();
            assert!(on_disk(other.path()).is_empty(), "the other directory is not concerned");
            let (half, _) = read(dir.path());
            assert!(half.log_starts.is_empty() || !half.recovery_points.is_empty(), "{half:?}");

            std::fs::remove_dir(&obstacle).unwrap();
            checkpoints.keep_those_of(&none).unwrap();
            assert_eq!(read(dir.path()).0, Offsets::default());
        }
    }
}
