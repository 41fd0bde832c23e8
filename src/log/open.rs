//! Opening a log: what lies in its directory, and how far it can be believed.
//!
//! Shell. Owns the listing of a partition's directory, the choice between a clean start (reads no data) and a recovery
//! (feeds the pure scanner of `recovery`, cuts, syncs), and the sweeping of what an earlier run left behind. Always: nothing
//! is served that a second crash could take back: what recovery accepts is synced first (KAFKA-10101), and so are the names
//! it removes, or a removed segment could come back beside newer records of the same offsets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use crate::rt;
use crate::rt::file::{Access, DirectFile};
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use super::checkpoint::{format_partition_metadata, parse_epochs, parse_partition_metadata};
use super::epochs::Epochs;
use super::files::{Durable, UNFINISHED_SUFFIX, remove_all, sync_new_dir, write};
use super::index::SegmentIndex;
use super::producers::Producers;
use super::recovery::{Corrupt, Known, Next, Recovered, Recovery, scan_start};
use super::segment::{
    DATA_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, Indexes, Phase, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path,
    read_index, scan,
};
use super::tail::Tail;
use super::upkeep::DELETED_DIR_SUFFIX;
use super::{
    EPOCHS_FILE, Limits, Log, LogPlace, LogRuntime, LogSettings, METADATA_FILE, OpenError, RecoveryReport, StartFacts,
    State,
};

/// One data file.
#[derive(Clone, Copy, Debug)]
struct DataFile {
    base: Offset,
    bytes: u64,
    modified: TimestampMs,
}

/// What lies in a partition's directory.
struct Listing {
    /// Its name is not known to be durable: it was made now, or may have been shortly before a crash.
    is_new: bool,
    /// Oldest first.
    data: Vec<DataFile>,
    /// Offsets of snapshots, oldest first.
    snapshots: Vec<Offset>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    /// Set after a clean end whose files agree.
    clean: Option<CleanEnd>,
}

/// The end of a log as its clean close left it.
struct CleanEnd {
    log_end: Offset,
    producers: Producers,
    /// Of the last segment, if it has data.
    index: Option<SegmentIndex>,
}

/// A log as it was found: what [`Log`] is built from.
struct Found {
    segments: VecDeque<Rc<Segment>>,
    log_start: Offset,
    log_end: Offset,
    producers: Producers,
    epochs: Epochs,
    epoch_noted: Option<LeaderEpoch>,
    /// The checkpoint of epochs says something else.
    epochs_changed: bool,
    snapshot_offset: Option<Offset>,
    report: RecoveryReport,
}

impl Log {
    /// Opens the log in `place.dir`, or creates it (directory and `partition.metadata`; durable with the first flush). After a clean end no data is
    /// read; else the log is scanned from the segment that holds the recovery point on.
    pub async fn open(
        place: LogPlace,
        settings: LogSettings,
        facts: StartFacts,
        runtime: &LogRuntime,
    ) -> Result<(Rc<Log>, RecoveryReport), OpenError> {
        let (dir, topic_id) = (place.dir.clone(), place.topic_id);
        let listing = rt::blocking(move || prepare(&dir, topic_id, facts)).await?;
        let is_new = listing.is_new;
        let opening = Opening { place: &place, settings: &settings, facts, runtime };
        let found = match listing.clean {
            Some(_) => opening.start_clean(listing),
            None => opening.recover(listing).await?,
        };
        let limits = Limits {
            log_start: found.log_start,
            flushed: found.log_end,
            written: found.log_end,
            log_end: found.log_end,
        };
        let state = State {
            segments: found.segments,
            producers: found.producers,
            epochs: found.epochs,
            epoch_noted: found.epoch_noted,
            snapshot_offset: found.snapshot_offset,
            offline: None,
        };
        let log = Log {
            place,
            runtime: runtime.clone(),
            settings: RefCell::new(settings),
            state: RefCell::new(state),
            limits: Cell::new(limits),
            appender: super::Appender::default(),
            flusher: super::Flusher::new(is_new),
            reads: super::reader::Reads::default(),
            tail: Tail::new(found.log_end),
            changed: rt::Event::default(),
            observer: RefCell::default(),
            is_ended: Cell::new(false),
            is_released: Cell::new(false),
            is_offline: Cell::new(false),
        };
        let log = Rc::new(log);
        if found.epochs_changed {
            // Now, not with the next write: a later recovery begins behind the batches that told of them.
            log.flusher.on_epoch_written();
            super::flusher::start(&log);
        }
        Ok((log, found.report))
    }
}

struct Opening<'a> {
    place: &'a LogPlace,
    settings: &'a LogSettings,
    facts: StartFacts,
    runtime: &'a LogRuntime,
}

impl Opening<'_> {
    fn start_clean(&self, listing: Listing) -> Found {
        let Listing { data, snapshots, epochs, clean, .. } = listing;
        let CleanEnd { log_end, producers, mut index } = clean.expect("the caller looked");
        let newest = data.last().map(|file| file.base);
        let segments = data.into_iter().map(|file| {
            let read = if Some(file.base) == newest { index.take() } else { None };
            self.segment(file, read.map_or(Indexes::OnDisk, Indexes::Read))
        });
        let mut epochs = Epochs::from_entries(epochs);
        epochs.truncate_end(log_end);
        self.found(segments.collect(), log_end, producers, epochs, snapshots.last().copied(), RecoveryReport::default())
    }

    async fn recover(&self, listing: Listing) -> Result<Found, OpenError> {
        let Listing { data, snapshots, epochs, .. } = listing;
        let noted = epochs.clone();
        let (dir, log_start) = (&self.place.dir, self.facts.log_start.unwrap_or_default());
        let recovery_point = self.facts.recovery_point.unwrap_or_default();
        let (first, producers) = self.scan_start(&data, &snapshots, recovery_point).await;
        let index_interval_bytes = self.settings.index_interval_bytes;
        let known = Known { recovery_point, now: self.facts.now, index_interval_bytes };
        let mut recovery = Recovery::new(known, producers, Epochs::from_entries(epochs));
        let mut report = RecoveryReport::default();
        let (unscanned, scanned) = data.split_at(first);
        let mut segments: VecDeque<_> = unscanned.iter().map(|&file| self.segment(file, Indexes::OnDisk)).collect();
        let mut removed = Vec::new();
        for (number, &file) in scanned.iter().enumerate() {
            let path = file_path(dir, file.base, DATA_SUFFIX);
            if recovery.begin(file.base, file.bytes) == Next::Remove {
                tracing::warn!(path = %path.display(), bytes = file.bytes, "removed: it lies above the end of the log");
                report.bytes_truncated += file.bytes;
                removed.push(file.base);
                continue;
            }
            let next = scanned.get(number + 1).map(|file| file.base);
            let recovered = self.recover_segment(&path, file, next, &mut recovery, &mut report).await?;
            let indexes = Indexes::Built(recovered.index, recovered.first_timestamp);
            let segment = self.segment(DataFile { bytes: recovered.valid_bytes, ..file }, indexes);
            if next.is_some() {
                let snapshot = (recovery.end_offset(), recovery.producers().to_snapshot());
                if let Some(files) = segment.side_files(Some(snapshot))
                    && let Err(error) = segment.write_side_files(dir, files, Durable::Now).await
                {
                    tracing::warn!(path = %path.display(), %error, "index files of a segment were not written");
                }
            }
            segments.push_back(segment);
        }
        let finished = recovery.finish(log_start).map_err(|corrupt| self.corrupt(corrupt))?;
        let (mut log_end, producers, epochs) = finished;
        if log_end < log_start {
            // Its last records were deleted by request and then lost, unsynced: the log begins anew where it was cut.
            let path = file_path(dir, log_start, SNAPSHOT_SUFFIX);
            let snapshot = vec![(path.clone(), producers.to_snapshot())];
            write(snapshot, Durable::Now).await.map_err(|source| disk(&path, source))?;
            removed.extend(segments.drain(..).map(|segment| segment.base));
            log_end = log_start;
        }
        let stale = snapshots.iter().copied().filter(|&snapshot| snapshot > log_end);
        self.remove(&removed, stale).await?;
        if log_end > recovery_point || !removed.is_empty() {
            sync_new_dir(dir.clone(), METADATA_FILE).await.map_err(|source| disk(dir, source))?;
        }
        let snapshot_offset = snapshots.iter().copied().rfind(|&snapshot| snapshot <= log_end);
        let found = self.found(segments, log_end, producers, epochs, snapshot_offset, report);
        Ok(Found { epochs_changed: found.epochs.entries() != noted, ..found })
    }

    async fn scan_start(&self, data: &[DataFile], snapshots: &[Offset], recovery_point: Offset) -> (usize, Producers) {
        let bases: Vec<Offset> = data.iter().map(|file| file.base).collect();
        let (snapshots, dir, now) = (snapshots.to_owned(), self.place.dir.clone(), self.facts.now);
        rt::blocking(move || {
            scan_start(&bases, &snapshots, recovery_point, |offset| {
                let bytes = std::fs::read(file_path(&dir, offset, SNAPSHOT_SUFFIX)).ok()?;
                Producers::from_snapshot(&bytes, now)
            })
        })
        .await
    }

    /// Scans one file, cuts what is not whole and syncs what was not known to be synced.
    async fn recover_segment(
        &self,
        path: &Path,
        data: DataFile,
        next: Option<Offset>,
        recovery: &mut Recovery,
        report: &mut RecoveryReport,
    ) -> Result<Recovered, OpenError> {
        if data.bytes == 0 {
            return recovery.end(next).map_err(|corrupt| self.corrupt(corrupt));
        }
        let file = DirectFile::open(path, Access::ReadWrite).await.map_err(|source| disk(path, source))?;
        let read = scan(&file, data.bytes, |piece| recovery.feed(piece)).await;
        report.bytes_scanned += read.map_err(|source| disk(path, source))?;
        let ended = recovery.end(next);
        let cut = async {
            let Ok(recovered) = &ended else { return Ok(()) };
            if recovered.valid_bytes < data.bytes {
                file.truncate(recovered.valid_bytes).await?;
            }
            // Padding needs no sync: losing that cut again only brings zeroes back.
            let is_known = recovery.end_offset() <= self.facts.recovery_point.unwrap_or_default();
            if is_known && recovered.lost_bytes == 0 { Ok(()) } else { file.sync_data().await }
        };
        let result = cut.await;
        let closed = file.close().await;
        result.and(closed).map_err(|source| disk(path, source))?;
        let recovered = ended.map_err(|corrupt| self.corrupt(corrupt))?;
        if recovered.lost_bytes > 0 {
            let (at, lost) = (recovered.valid_bytes, recovered.lost_bytes);
            tracing::info!(path = %path.display(), at, lost, "cut a torn tail that was never flushed");
        }
        report.bytes_truncated += recovered.lost_bytes;
        Ok(recovered)
    }

    async fn remove(&self, segments: &[Offset], snapshots: impl Iterator<Item = Offset>) -> Result<(), OpenError> {
        let dir = &self.place.dir;
        let suffixes = [DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX];
        let mut paths: Vec<PathBuf> = snapshots.map(|snapshot| file_path(dir, snapshot, SNAPSHOT_SUFFIX)).collect();
        paths.extend(segments.iter().flat_map(|&base| suffixes.map(|suffix| file_path(dir, base, suffix))));
        remove_all(paths).await.map_err(|source| disk(dir, source))
    }

    fn segment(&self, file: DataFile, indexes: Indexes) -> Rc<Segment> {
        let id = self.runtime.0.new_segment_id();
        let indexes = if file.bytes == 0 { Indexes::Built(SegmentIndex::new(file.base), None) } else { indexes };
        Rc::new(Segment::found(id, file.base, file.bytes, file.modified, indexes))
    }

    fn found(
        &self,
        mut segments: VecDeque<Rc<Segment>>,
        log_end: Offset,
        producers: Producers,
        mut epochs: Epochs,
        snapshot_offset: Option<Offset>,
        mut report: RecoveryReport,
    ) -> Found {
        report.segments = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        match segments.back() {
            // Its index is in memory, or it is empty and needs none.
            Some(newest) if newest.bytes.get() > 0 || newest.base == log_end => newest.phase.set(Phase::Active),
            _ => {}
        }
        if segments.back().is_none_or(|newest| newest.phase.get() != Phase::Active) {
            let id = self.runtime.0.new_segment_id();
            segments.push_back(Rc::new(Segment::new(id, log_end, 0, self.facts.now)));
        }
        let first_base = segments.front().map_or(log_end, |segment| segment.base);
        let log_start = self.facts.log_start.unwrap_or_default().clamp(first_base, log_end.max(first_base));
        let epoch_noted = epochs.latest();
        epochs.truncate_start(log_start);
        let epochs_changed = false;
        Found { segments, log_start, log_end, producers, epochs, epoch_noted, epochs_changed, snapshot_offset, report }
    }

    fn corrupt(&self, corrupt: Corrupt) -> OpenError {
        OpenError::Corrupt {
            file: file_path(&self.place.dir, corrupt.segment, DATA_SUFFIX),
            position: corrupt.position,
            flushed: self.facts.recovery_point.unwrap_or_default(),
            reason: corrupt.reason,
        }
    }
}

fn disk(path: &Path, source: io::Error) -> OpenError {
    OpenError::Disk { path: path.to_owned(), source }
}

/// Makes the directory if it is not there, checks whose it is, lists it and sweeps it. Blocks.
fn prepare(dir: &Path, topic_id: TopicId, facts: StartFacts) -> Result<Listing, OpenError> {
    let metadata = dir.join(METADATA_FILE);
    let mut is_new = !facts.clean;
    match std::fs::read_to_string(&metadata) {
        Ok(text) if !text.is_empty() => {
            let found = parse_partition_metadata(&text);
            let found = found.map_err(|error| disk(&metadata, io::Error::new(io::ErrorKind::InvalidData, error)))?;
            if found != topic_id {
                return Err(OpenError::WrongTopic { dir: dir.to_owned(), found, expected: topic_id });
            }
        }
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(disk(&metadata, source)),
        // New, or made shortly before a power cut: the first flush makes it durable, before anything in it counts as flushed.
        _ => {
            std::fs::create_dir_all(dir).map_err(|source| disk(dir, source))?;
            let text = format_partition_metadata(topic_id);
            std::fs::write(&metadata, text).map_err(|source| disk(&metadata, source))?;
            is_new = true;
        }
    }
    let mut listing = list(dir, is_new).map_err(|source| disk(dir, source))?;
    if facts.clean {
        listing.clean = clean_end(dir, &listing, facts);
    }
    Ok(listing)
}

fn list(dir: &Path, is_new: bool) -> io::Result<Listing> {
    let mut listing = Listing { is_new, data: Vec::new(), snapshots: Vec::new(), epochs: Vec::new(), clean: None };
    let mut side_files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(base) = offset_in(name, DATA_SUFFIX) {
            let metadata = std::fs::metadata(entry.path())?;
            let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            listing.data.push(DataFile { base, bytes: metadata.len(), modified });
        } else if let Some(offset) = offset_in(name, SNAPSHOT_SUFFIX) {
            listing.snapshots.push(offset);
        } else if let Some(base) = offset_in(name, INDEX_SUFFIX).or_else(|| offset_in(name, TIME_INDEX_SUFFIX)) {
            side_files.push((base, entry.path()));
        } else if name == EPOCHS_FILE {
            // A damaged checkpoint is no reason to refuse: epochs of unsynced batches are read from those anyway.
            let bytes = std::fs::read(entry.path())?;
            listing.epochs = parse_epochs(&String::from_utf8_lossy(&bytes)).unwrap_or_else(|error| {
                tracing::warn!(path = %entry.path().display(), %error, "the leader epoch checkpoint is damaged: ignored");
                Vec::new()
            });
        } else if is_leftover(name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    listing.data.sort_by_key(|file| file.base);
    listing.snapshots.sort_unstable();
    for (base, path) in side_files {
        if listing.data.binary_search_by_key(&base, |file| file.base).is_err() {
            std::fs::remove_file(path)?;
        }
    }
    // Snapshots are of use at the beginning of a segment, and at the log end.
    let newest = listing.snapshots.last().copied();
    let (kept, unused): (Vec<_>, Vec<_>) = listing.snapshots.iter().partition(|&&offset| {
        Some(offset) == newest || listing.data.binary_search_by_key(&offset, |file| file.base).is_ok()
    });
    for offset in unused {
        std::fs::remove_file(file_path(dir, offset, SNAPSHOT_SUFFIX))?;
    }
    listing.snapshots = kept;
    Ok(listing)
}

/// The end of a cleanly closed log, from names and side files alone: its newest snapshot is named after it. `None` when the
/// files do not agree; then the data is asked.
fn clean_end(dir: &Path, listing: &Listing, facts: StartFacts) -> Option<CleanEnd> {
    let newest = listing.data.last().copied();
    let snapshot = listing.snapshots.last().copied();
    let (log_end, index) = match newest {
        Some(file) if file.bytes > 0 => {
            (snapshot.filter(|&end| end > file.base)?, Some(read_index(dir, file.base, file.bytes)?))
        }
        Some(file) => (file.base, None),
        None => (snapshot.unwrap_or_default().max(facts.log_start.unwrap_or_default()), None),
    };
    if facts.recovery_point.is_some_and(|point| point > log_end) {
        return None;
    }
    let producers = match snapshot {
        Some(offset) if offset == log_end => {
            Producers::from_snapshot(&std::fs::read(file_path(dir, offset, SNAPSHOT_SUFFIX)).ok()?, facts.now)?
        }
        Some(_) => return None,
        // Nothing was ever appended.
        None if log_end == listing.data.first().map_or(log_end, |file| file.base) => Producers::default(),
        None => return None,
    };
    Some(CleanEnd { log_end, producers, index })
}

/// The offset in a name of 20 digits and `suffix`.
fn offset_in(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok().and_then(Offset::new) } else { None }
}

fn is_leftover(name: &str) -> bool {
    name.ends_with(DELETED_SUFFIX) || name.ends_with(UNFINISHED_SUFFIX)
}

/// Removes what an earlier run left behind in one log directory: `…-delete` directories, and `.deleted` and `.tmp` files in
/// it and in its partitions. Returns how many. What cannot be read or removed (`lost+found` is root's) stays, with a warning.
/// Blocks: for the control thread, before logs are opened.
pub fn sweep_leftovers(log_dir: &Path) -> io::Result<u32> {
    let mut swept = 0;
    for entry in std::fs::read_dir(log_dir)? {
        let entry = entry?;
        match sweep_entry(&entry) {
            Ok(count) => swept += count,
            Err(error) => tracing::warn!(path = %entry.path().display(), %error, "leftovers of deletions stay"),
        }
    }
    Ok(swept)
}

fn sweep_entry(entry: &DirEntry) -> io::Result<u32> {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    if !entry.file_type()?.is_dir() {
        return remove_leftover(entry);
    }
    if name.ends_with(DELETED_DIR_SUFFIX) {
        return std::fs::remove_dir_all(entry.path()).map(|()| 1);
    }
    std::fs::read_dir(entry.path())?.map(|file| remove_leftover(&file?)).sum()
}

fn remove_leftover(file: &DirEntry) -> io::Result<u32> {
    let is_leftover = is_leftover(&file.file_name().to_string_lossy());
    if is_leftover { std::fs::remove_file(file.path()).map(|()| 1) } else { Ok(0) }
}
