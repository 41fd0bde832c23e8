//! Where metadata records lie so that they outlive the process.
//!
//! Shell: plain files on the control thread. Owns the trait, which a quorum will implement later, and its one-node form: a file
//! in `ringlog-metadata/`, whose name no scanner takes for a partition. Does not own what records mean. Always: an answered
//! [`MetadataLog::append`] is on the disk; after a failed write or flush the log takes nothing more until restart, because a
//! second fsync may lie; a crash leaves at most the end of the last line torn, and that line was never answered. A full disk
//! is no failure while the file can be cut back to what it held, nor is a snapshot that got no name.
//!
//! The file: one line a batch, `crc32c in 8 hex letters`, a space, JSON, a newline; the CRC is over the JSON. The first line is
//! the snapshot the file begins with, so a file is whole by itself: `<image version in 20 digits>.log`. A new snapshot is a new
//! file (written aside, flushed, renamed, directory flushed), after which the old one is removed. Source: the
//! study of fsync failures by Rebello and others, 2020 (why a failed flush is final).

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::image::Record;
use crate::log::files::sync_dir_blocking;

/// The directory of the log, below one of `log.dirs`.
pub const METADATA_DIR: &str = "ringlog-metadata";

/// The only version of a line so far.
const LINE_VERSION: u32 = 1;
/// A file is replaced by a snapshot when it has grown by this much, so that a start reads little.
const SNAPSHOT_EVERY_BYTES: u64 = 4 << 20;
/// A snapshot that failed is tried again when the file has grown by this much more: not after each change on a full disk.
const SNAPSHOT_RETRY_BYTES: u64 = 64 << 10;

/// Records made durable in batches, and read back in order.
pub trait MetadataLog: Send {
    /// Makes `records` durable, whole or not at all; `version` is the image's after them.
    fn append(&mut self, records: &[Record], version: u64) -> Result<(), LogError>;
    /// Whether it is time for a snapshot.
    fn wants_snapshot(&self) -> bool;
    /// Replaces everything so far by `records`, which rebuild the image of `version`.
    fn snapshot(&mut self, records: &[Record], version: u64) -> Result<(), LogError>;
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log ended.
    #[error("the metadata log failed and takes nothing until restart: {0}")]
    Ended(String),
    /// The log is as it was and goes on.
    #[error("the metadata log could not take it: {0}")]
    Refused(String),
}

/// Why the log did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// Bad bytes that no crash explains.
    #[error("{path} is corrupt at byte {position}: {reason}; restore the file from a copy, nothing was changed")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the bad line begins.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// The disk.
    #[error("{path}: {source}")]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn disk(path: &Path) -> impl FnOnce(io::Error) -> OpenLogError + '_ {
    move |source| OpenLogError::Disk { path: path.to_owned(), source }
}

/// One line, written.
#[derive(Serialize)]
struct LineOut<'a> {
    v: u32,
    /// The image's version after these records.
    version: u64,
    records: &'a [Record],
}

/// What is read of a line first: whether the rest is ours to read.
#[derive(Deserialize)]
struct LineFormat {
    v: u32,
}

/// What a log held when it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Batch {
    /// The image's version after these records.
    pub version: u64,
    /// The records.
    pub records: Vec<Record>,
}

/// The one-node form.
#[derive(Debug)]
pub struct FileLog {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// Where the next line goes.
    end: u64,
    /// Where the lines after the snapshot begin.
    snapshot_end: u64,
    /// Where the last snapshot was tried in vain.
    snapshot_failed_at: u64,
    failed: Option<LogError>,
}

/// A log that was opened: the log, its batches (the snapshot first), and how many torn bytes were cut.
#[derive(Debug)]
pub struct OpenedLog {
    /// To append to.
    pub log: FileLog,
    /// All it held; empty for a new one.
    pub batches: Vec<Batch>,
    /// Bytes of an unanswered line that a crash left.
    pub torn_bytes: u64,
}

impl FileLog {
    /// Opens or makes the log below `log_dir`, which the caller has locked.
    pub fn open(log_dir: &Path) -> Result<OpenedLog, OpenLogError> {
        let dir = log_dir.join(METADATA_DIR);
        if !dir.is_dir() {
            fs::create_dir(&dir).map_err(disk(&dir))?;
            sync_dir_blocking(log_dir).map_err(disk(log_dir))?;
        }
        match newest(&dir).map_err(disk(&dir))? {
            Some(path) => Self::open_file(dir, path),
            None => {
                let (path, file, end) = Unnamed::write(&dir, &[], 0).and_then(Unnamed::name).map_err(disk(&dir))?;
                let log = Self::begun(dir, path, file, end, end);
                Ok(OpenedLog { log, batches: Vec::new(), torn_bytes: 0 })
            }
        }
    }

    fn open_file(dir: PathBuf, path: PathBuf) -> Result<OpenedLog, OpenLogError> {
        remove_others(&dir, &path).map_err(disk(&dir))?;
        let bytes = fs::read(&path).map_err(disk(&path))?;
        let corrupt = |position: usize, reason: String| OpenLogError::Corrupt {
            path: path.clone(),
            position: position as u64,
            reason,
        };
        let mut batches: Vec<Batch> = Vec::new();
        let (mut position, mut snapshot_end) = (0, 0);
        while position < bytes.len() {
            match read_line(&bytes[position..]) {
                Ok((batch, length)) => {
                    let before = batches.last().map_or(0, |batch| batch.version);
                    if !batches.is_empty() && batch.version != before + batch.records.len() as u64 {
                        let reason =
                            format!("{} records lead from version {before} to {}", batch.records.len(), batch.version);
                        return Err(corrupt(position, reason));
                    }
                    batches.push(batch);
                    position += length;
                    if batches.len() == 1 {
                        snapshot_end = position;
                    }
                }
                // A torn line is the last, and a snapshot is never torn: it was flushed before it got its name.
                Err(Bad::Bytes(reason)) if batches.is_empty() || later_line_is_good(&bytes[position..]) => {
                    return Err(corrupt(position, reason));
                }
                Err(Bad::Bytes(_)) => break,
                Err(Bad::Format(reason)) => return Err(corrupt(position, reason)),
            }
        }
        if batches.is_empty() {
            return Err(corrupt(0, "it is empty".to_owned()));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(disk(&path))?;
        let torn_bytes = (bytes.len() - position) as u64;
        if torn_bytes > 0 {
            file.set_len(position as u64).and_then(|()| file.sync_all()).map_err(disk(&path))?;
        }
        let log = Self::begun(dir, path, file, position as u64, snapshot_end as u64);
        Ok(OpenedLog { log, batches, torn_bytes })
    }

    fn begun(dir: PathBuf, path: PathBuf, file: File, end: u64, snapshot_end: u64) -> Self {
        Self { dir, path, file, end, snapshot_end, snapshot_failed_at: 0, failed: None }
    }

    fn refuse_ended(&self) -> Result<(), LogError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: &io::Error) -> LogError {
        let failed = LogError::Ended(format!("{}: {error}", self.path.display()));
        tracing::error!(path = %self.path.display(), %error, "the metadata log failed; restart the broker once the disk is well");
        self.failed = Some(failed.clone());
        failed
    }

    /// Takes away what a write left behind the end.
    fn cut_back(&self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.file.sync_all()
    }
}

impl MetadataLog for FileLog {
    fn append(&mut self, records: &[Record], version: u64) -> Result<(), LogError> {
        self.refuse_ended()?;
        let line = line(records, version);
        if let Err(error) = self.file.write_all_at(&line, self.end) {
            if !is_full(&error) || self.cut_back().is_err() {
                return Err(self.fail(&error));
            }
            tracing::warn!(path = %self.path.display(), %error, "no space left: metadata does not change until it returns");
            return Err(LogError::Refused(format!("{}: {error}", self.path.display())));
        }
        self.file.sync_data().map_err(|error| self.fail(&error))?;
        self.end += line.len() as u64;
        Ok(())
    }

    fn wants_snapshot(&self) -> bool {
        self.end - self.snapshot_end > SNAPSHOT_EVERY_BYTES.max(self.snapshot_end)
            && self.end - self.snapshot_failed_at > SNAPSHOT_RETRY_BYTES
    }

    fn snapshot(&mut self, records: &[Record], version: u64) -> Result<(), LogError> {
        self.refuse_ended()?;
        let snapshot = Unnamed::write(&self.dir, records, version).map_err(|error| {
            tracing::warn!(dir = %self.dir.display(), %error, "no snapshot of the metadata was written; its file grows on");
            self.snapshot_failed_at = self.end;
            LogError::Refused(format!("{}: {error}", self.dir.display()))
        })?;
        // From here on a start may find the new file: what the old one took would be lost.
        let (path, file, end) = snapshot.name().map_err(|error| self.fail(&error))?;
        *self = Self::begun(self.dir.clone(), path, file, end, end);
        if let Err(error) = remove_others(&self.dir, &self.path) {
            tracing::warn!(dir = %self.dir.display(), %error, "an older file of metadata stays until the next start");
        }
        Ok(())
    }
}

fn line(records: &[Record], version: u64) -> Vec<u8> {
    let line = LineOut { v: LINE_VERSION, version, records };
    let json = serde_json::to_vec(&line).expect("records are plain data with text keys");
    let mut bytes = format!("{:08x} ", crc32c::crc32c(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    bytes.push(b'\n');
    bytes
}

/// What is wrong with a line.
enum Bad {
    /// Its bytes are not those that were written.
    Bytes(String),
    /// They are, but we cannot read them.
    Format(String),
}

/// Reads the line `bytes` begin with: its batch, and its length with the newline.
fn read_line(bytes: &[u8]) -> Result<(Batch, usize), Bad> {
    let bad = |reason: &str| Bad::Bytes(reason.to_owned());
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| bad("the line has no end"))?;
    let line = &bytes[..end];
    let (crc, json) = match (line.get(..8), line.get(8), line.get(9..)) {
        (Some(crc), Some(b' '), Some(json)) => (crc, json),
        _ => return Err(bad("the line has no checksum")),
    };
    let crc = std::str::from_utf8(crc).ok().and_then(|crc| u32::from_str_radix(crc, 16).ok());
    if crc != Some(crc32c::crc32c(json)) {
        return Err(bad("its checksum does not match"));
    }
    let format =
        |error: serde_json::Error| Bad::Format(format!("it was written by another version of this program: {error}"));
    let LineFormat { v } = serde_json::from_slice(json).map_err(format)?;
    if v != LINE_VERSION {
        return Err(Bad::Format(format!("it has format {v}, this program reads {LINE_VERSION}")));
    }
    Ok((serde_json::from_slice(json).map_err(format)?, end + 1))
}

/// Whether any line after the first is good: then the first was not torn by a crash but damaged later.
fn later_line_is_good(bytes: &[u8]) -> bool {
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    starts.into_iter().any(|start| !matches!(read_line(&bytes[start..]), Err(Bad::Bytes(_))))
}

/// The file that begins with a snapshot, whole and flushed, not yet under its final name.
struct Unnamed {
    dir: File,
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Unnamed {
    fn write(dir: &Path, records: &[Record], version: u64) -> io::Result<Self> {
        let path = dir.join(format!("{version:020}.log"));
        let line = line(records, version);
        let aside = path.with_extension("tmp");
        let write = || -> io::Result<(File, File)> {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&aside)?;
            file.write_all(&line)?;
            file.sync_all()?;
            Ok((File::open(dir)?, file))
        };
        let (dir, file) = write().inspect_err(|_| {
            // A part of it would only take up space.
            _ = fs::remove_file(&aside);
        })?;
        Ok(Self { dir, path, file, bytes: line.len() as u64 })
    }

    /// The file, its path and its length.
    fn name(self) -> io::Result<(PathBuf, File, u64)> {
        fs::rename(self.path.with_extension("tmp"), &self.path)?;
        self.dir.sync_all()?;
        Ok((self.path, self.file, self.bytes))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The log file with the highest version.
fn newest(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        paths.push(entry?.path());
    }
    Ok(paths.into_iter().filter(|path| is_ours(path, "log")).max())
}

/// Whether `path` has a name that we give. A copy that somebody made beside the file has not: it is neither read nor removed.
fn is_ours(path: &Path, extension: &str) -> bool {
    let digits = |stem: &OsStr| stem.len() == 20 && stem.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    path.extension().is_some_and(|found| found == extension) && path.file_stem().is_some_and(digits)
}

/// Removes older files and half-written snapshots.
fn remove_others(dir: &Path, keep: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path != keep && (is_ours(&path, "log") || is_ours(&path, "tmp")) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(version: u64, next: &[i64]) -> Batch {
        Batch { version, records: next.iter().map(|next| Record::ProducerIds { next: *next }).collect() }
    }

    /// A log with these batches in a fresh directory.
    fn written(batches: &[Batch]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = FileLog::open(dir.path()).unwrap().log;
        for batch in batches {
            log.append(&batch.records, batch.version).unwrap();
        }
        let path = log.path.clone();
        (dir, path)
    }

    fn three() -> Vec<Batch> {
        vec![batch(1, &[1000]), batch(3, &[2000, 3000]), batch(4, &[4000])]
    }

    fn with_empty_snapshot(batches: &[Batch]) -> Vec<Batch> {
        [&[batch(0, &[])], batches].concat()
    }

    #[test]
    fn what_was_appended_is_read_back() {
        let (dir, _) = written(&three());
        let opened = FileLog::open(dir.path()).unwrap();
        assert_eq!((opened.batches, opened.torn_bytes), (with_empty_snapshot(&three()), 0));
    }

    #[test]
    fn a_file_cut_anywhere_keeps_exactly_its_whole_lines() {
        let (dir, path) = written(&three());
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> =
            whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1).collect();
        for cut in ends[0]..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let OpenedLog { mut log, batches, torn_bytes } = FileLog::open(dir.path()).unwrap();
            let kept = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(batches, with_empty_snapshot(&three())[..kept], "cut at {cut}");
            assert_eq!(torn_bytes as usize, cut - ends[kept - 1], "cut at {cut}");
            // And it goes on from there.
            let next = batch(batches[kept - 1].version + 1, &[9000]);
            log.append(&next.records, next.version).unwrap();
            assert_eq!(FileLog::open(dir.path()).unwrap().batches.last(), Some(&next), "cut at {cut}");
        }
    }

    #[test]
    fn a_tail_of_zeros_or_noise_is_cut() {
        for tail in [&[0_u8; 5000][..], b"\xff\n\xfe\n", b"deadbeef {\"v\":1}\n"] {
            let (dir, path) = written(&three());
            let whole = fs::read(&path).unwrap();
            fs::write(&path, [&whole, tail].concat()).unwrap();
            let opened = FileLog::open(dir.path()).unwrap();
            assert_eq!((opened.batches, opened.torn_bytes), (with_empty_snapshot(&three()), tail.len() as u64));
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_flipped_bit_before_the_last_line_is_refused_with_its_place() {
        let (dir, path) = written(&three());
        let whole = fs::read(&path).unwrap();
        let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        // The newline before the last line is left out: without it the two last lines are one bad line at the end, as after a
        // crash, and nothing in the file tells the two apart.
        for index in 0..last_line {
            let mut damaged = whole.clone();
            damaged[index] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let line_start = whole[..index].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            match FileLog::open(dir.path()) {
                Err(OpenLogError::Corrupt { position, .. }) => assert_eq!(position, line_start as u64, "byte {index}"),
                other => panic!("byte {index}: {other:?}"),
            }
            assert_eq!(fs::read(&path).unwrap(), damaged, "a refused file is left as it is");
        }
    }

    #[test]
    fn a_gap_between_versions_and_unknown_records_are_refused() {
        let (dir, path) = written(&three());
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [whole.clone(), line(&batch(9, &[5000]).records, 9)].concat()).unwrap();
        let error = FileLog::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("1 records lead from version 4 to 9"), "{error}");

        for (json, part) in [
            (r#"{"v":1,"version":5,"records":[{"type":"quorum"}]}"#, "written by another version"),
            (r#"{"v":2,"version":5,"records":[{"type":"quorum"}]}"#, "it has format 2, this program reads 1"),
        ] {
            let foreign = format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()));
            fs::write(&path, [whole.clone(), foreign.into_bytes()].concat()).unwrap();
            let error = FileLog::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_snapshot_that_cannot_be_written_leaves_the_log_as_it_is() {
        let (dir, path) = written(&three());
        let mut log = FileLog::open(dir.path()).unwrap().log;
        let in_the_way = path.with_file_name("00000000000000000004.tmp");
        fs::create_dir(&in_the_way).unwrap();
        assert!(matches!(log.snapshot(&batch(0, &[4000]).records, 4), Err(LogError::Refused(_))));
        log.append(&batch(5, &[5000]).records, 5).unwrap();
        fs::remove_dir(in_the_way).unwrap();
        let all = [three(), vec![batch(5, &[5000])]].concat();
        assert_eq!(FileLog::open(dir.path()).unwrap().batches, with_empty_snapshot(&all));
    }

    #[test]
    fn a_snapshot_replaces_all_before_it() {
        let (dir, _) = written(&three());
        let mut log = FileLog::open(dir.path()).unwrap().log;
        log.snapshot(&batch(0, &[4000]).records, 4).unwrap();
        log.append(&batch(5, &[5000]).records, 5).unwrap();
        assert_eq!(FileLog::open(dir.path()).unwrap().batches, [batch(4, &[4000]), batch(5, &[5000])]);
        assert_eq!(fs::read_dir(dir.path().join(METADATA_DIR)).unwrap().count(), 1);
    }

    /// Every state a crash inside `snapshot` can leave.
    #[test]
    fn a_crash_within_a_snapshot_loses_nothing() {
        let (dir, path) = written(&three());
        let metadata = dir.path().join(METADATA_DIR);
        let new = line(&batch(4, &[4000]).records, 4);
        for cut in 0..=new.len() {
            fs::write(metadata.join("00000000000000000004.tmp"), &new[..cut]).unwrap();
            assert_eq!(FileLog::open(dir.path()).unwrap().batches, with_empty_snapshot(&three()));
        }
        // Renamed, the old file not yet removed.
        fs::write(metadata.join("00000000000000000004.log"), &new).unwrap();
        assert_eq!(FileLog::open(dir.path()).unwrap().batches, [batch(4, &[4000])]);
        assert!(!path.exists());
    }

    #[test]
    fn a_copy_beside_the_file_is_neither_read_nor_removed() {
        let (dir, path) = written(&three());
        let copy = path.with_file_name("00000000000000000000_copy.log");
        fs::write(&copy, line(&[], 0)).unwrap();
        assert_eq!(FileLog::open(dir.path()).unwrap().batches, with_empty_snapshot(&three()));
        assert!(copy.exists());
    }

    #[test]
    fn a_snapshot_is_wanted_when_the_file_has_grown() {
        let (_dir, path) = written(&[]);
        let mut log = FileLog::open(path.parent().unwrap().parent().unwrap()).unwrap().log;
        assert!(!log.wants_snapshot());
        let next: Vec<i64> = (0..60_000).collect();
        let big = batch(60_000, &next);
        for round in 1..=3 {
            log.append(&big.records, 60_000 * round).unwrap();
        }
        assert!(log.wants_snapshot());
        log.snapshot(&big.records, 180_000).unwrap();
        assert!(!log.wants_snapshot());
    }

    #[test]
    fn after_a_failed_write_nothing_is_taken() {
        let (_dir, path) = written(&three());
        let mut log = FileLog::open(path.parent().unwrap().parent().unwrap()).unwrap().log;
        let before = fs::read(&path).unwrap();
        log.file = File::open(&path).unwrap(); // read only: the write fails
        let first = log.append(&batch(5, &[5000]).records, 5).unwrap_err();
        log.file = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(log.append(&batch(5, &[5000]).records, 5), Err(first.clone()));
        assert_eq!(log.snapshot(&[], 5), Err(first));
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}
