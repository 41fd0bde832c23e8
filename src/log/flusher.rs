//! From written to flushed: rounds of `fdatasync` that all callers of one log share.
//!
//! Shell. Owns when a log is synced (class `flushed`: after every write, while anything is unsynced; else when somebody
//! asks, and at the interval), the end of a rolled segment (cut, sync, side files) and the leader-epoch checkpoint's
//! writing. Always: one round at a time; a round covers what was written before it began; a failed sync ends the log and is
//! never tried again, because a second one would succeed without the lost data (the kernel forgets it). A file that was not
//! opened was not synced: that is tried again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use crate::rt;
use crate::types::{AckClass, Offset};

use super::appender::{NO_SPACE_RETRY, TaskGuard, is_out_of_descriptors, is_shortage};
use super::checkpoint::format_epochs;
use super::files::{self, Durable};
use super::segment::{Phase, Segment, Snapshot};
use super::vocabulary::AppendError;
use super::{EPOCHS_FILE, Log, METADATA_FILE};

/// The flusher's side of a log.
#[derive(Default)]
pub(super) struct Flusher {
    is_running: Cell<bool>,
    has_timer: Cell<bool>,
    /// The largest offset that somebody waits for.
    wanted: Cell<Offset>,
    /// The directory itself is not known to be durable.
    is_new_dir: Cell<bool>,
    /// A file was made: its name is not durable yet.
    dir_changed: Cell<bool>,
    /// The checkpoint does not have every epoch that wrote.
    epochs_changed: Cell<bool>,
    /// Of rolled segments, by segment id: to be written when those are sealed.
    snapshots: RefCell<BTreeMap<u64, Snapshot>>,
    /// Segments whose side files are being written, by their base.
    side_files: RefCell<BTreeSet<Offset>>,
}

impl Flusher {
    pub(super) fn new(is_new_dir: bool) -> Self {
        Self { is_new_dir: Cell::new(is_new_dir), ..Self::default() }
    }

    pub(super) fn on_file_created(&self) {
        self.dir_changed.set(true);
    }

    pub(super) fn on_epoch_written(&self) {
        self.epochs_changed.set(true);
    }

    pub(super) fn on_roll(&self, segment: &Segment, snapshot: Snapshot) {
        self.snapshots.borrow_mut().insert(segment.id, snapshot);
    }
}

/// Something was written: sync now, later, or not at all.
pub(super) fn on_written(log: &Rc<Log>) {
    let wanted = log.flusher.wanted.get() > log.limits().flushed;
    if wanted || log.settings.borrow().ack_class == AckClass::Flushed {
        start(log);
    } else if !log.flusher.has_timer.replace(true) {
        let (log, work) = (Rc::clone(log), rt::work());
        rt::spawn(async move {
            // Unsynced data is work in flight: the runtime must not forget this task.
            let _work = work;
            let interval = log.settings.borrow().flush_interval;
            rt::sleep(interval).await;
            log.flusher.has_timer.set(false);
            if log.is_dirty() && !log.is_ended() {
                start(&log);
            }
        });
    }
}

/// Begins rounds, unless they run. Not on a log that has ended: a sync that follows a failed one succeeds, and lies.
pub(super) fn start(log: &Rc<Log>) {
    if !log.is_offline() && !log.flusher.is_running.replace(true) {
        let (log, work) = (Rc::clone(log), rt::work());
        rt::spawn(async move {
            let _work = work;
            run(log).await;
        });
    }
}

/// Waits until everything appended so far is flushed.
pub(super) async fn flush(log: &Rc<Log>) -> Result<Offset, AppendError> {
    let target = log.limits().log_end;
    log.flusher.wanted.set(log.flusher.wanted.get().max(target));
    loop {
        if let Some(reason) = log.offline() {
            return Err(AppendError::Offline(reason));
        }
        let limits = log.limits();
        if limits.flushed >= target {
            return Ok(limits.flushed);
        }
        if log.is_released.get() {
            return Err(AppendError::Offline("it is closed".to_owned()));
        }
        if limits.written < target && log.appender.is_full() {
            return Err(AppendError::NoSpace);
        }
        let changed = log.changed.wait();
        if limits.written > limits.flushed {
            start(log);
        }
        changed.await;
    }
}

/// Waits until no round and no task of the flusher runs.
pub(super) async fn settle(log: &Log) {
    while log.flusher.is_running.get() || !log.flusher.side_files.borrow().is_empty() {
        log.changed.wait().await;
    }
}

/// Waits until the rolled segments below `end` are sealed and their side files written, except for what waits for space. Rounds
/// may go on meanwhile, and do as long as a log of class `flushed` is written to: who waits for the last of them waits for ever.
pub(super) async fn seal_below(log: &Rc<Log>, end: Offset) -> Result<(), AppendError> {
    loop {
        log.refuse_ended()?;
        let unsealed = log.unsealed_segments();
        let rolled = unsealed.front().filter(|segment| segment.base < end && segment.phase.get() == Phase::Rolled);
        let is_written = rolled.is_none_or(|segment| segment.written.get() == segment.bytes.get());
        let sealed_end = rolled.map_or(end, |segment| segment.base);
        let is_sealed = rolled.is_none() || (!is_written && log.appender.is_full());
        if is_sealed && log.flusher.side_files.borrow().first().is_none_or(|&base| base >= sealed_end) {
            return Ok(());
        }
        let changed = log.changed.wait();
        if !is_sealed && is_written {
            start(log);
        }
        changed.await;
    }
}

async fn run(log: Rc<Log>) {
    let guard = TaskGuard { log: &log, is_running: &log.flusher.is_running };
    let mut was_short = false;
    loop {
        let covered = log.limits().written;
        match round(&log).await {
            Ok(()) => log.on_flushed(covered),
            Err(Stop::Shortage(error)) => {
                if !was_short {
                    tracing::warn!(tp = %log.place.tp, %error, "no descriptor left: nothing is flushed until one returns");
                }
                was_short = true;
                rt::sleep(NO_SPACE_RETRY).await;
            }
            Err(Stop::Failed(reason)) => {
                drop(guard);
                log.fail(reason);
                return;
            }
        }
        let limits = log.limits();
        let more = limits.written > limits.flushed
            && (log.flusher.wanted.get() > limits.flushed || log.settings.borrow().ack_class == AckClass::Flushed);
        if !more || log.is_offline() {
            break;
        }
    }
    drop(guard);
    log.appender.rest(log.shared());
    if log.is_dirty() && !log.is_ended() {
        on_written(&log);
    }
}

/// Why a round ended before its end.
enum Stop {
    /// The directory could not be opened: nothing of it was synced, and it may be tried again.
    Shortage(io::Error),
    Failed(String),
}

/// Makes everything written so far durable: epochs, names, data, oldest first.
async fn round(log: &Rc<Log>) -> Result<(), Stop> {
    let failed = |what: &str, error: io::Error| Stop::Failed(format!("{what}: {error}"));
    // A batch's epoch is durable no later than the batch: recovery reads epochs of synced batches from the checkpoint.
    match write_epochs(log).await {
        // No new file can be made; what is written already can be synced all the same.
        Err(error) if is_shortage(&error) => log.flusher.epochs_changed.set(true),
        result => result.map_err(|error| failed(&format!("write {EPOCHS_FILE}"), error))?,
    }
    sync_names(log).await.map_err(|error| match error {
        error if is_out_of_descriptors(&error) => Stop::Shortage(error),
        error => failed("sync directory", error),
    })?;
    for segment in log.unsealed_segments() {
        sync(log, &segment).await.map_err(|error| failed(&format!("sync {}", log.file_name(&segment)), error))?;
    }
    Ok(())
}

async fn sync_names(log: &Log) -> io::Result<()> {
    let (flusher, dir) = (&log.flusher, log.place.dir.clone());
    let (is_new_dir, dir_changed) = (flusher.is_new_dir.replace(false), flusher.dir_changed.replace(false));
    let synced = match (is_new_dir, dir_changed) {
        (true, _) => files::sync_new_dir(dir, METADATA_FILE).await,
        (false, true) => files::sync_dir(dir).await,
        (false, false) => Ok(()),
    };
    if synced.is_err() {
        flusher.is_new_dir.set(is_new_dir);
        flusher.dir_changed.set(flusher.dir_changed.get() || dir_changed);
    }
    synced
}

async fn sync(log: &Rc<Log>, segment: &Rc<Segment>) -> io::Result<()> {
    let (phase, written) = (segment.phase.get(), segment.written.get());
    let complete = phase == Phase::Rolled && written == segment.bytes.get();
    if let Some(file) = segment.open_writer()
        && (complete || written > segment.synced.get())
    {
        if complete {
            while log.appender.is_allocating() {
                log.changed.wait().await;
            }
            file.truncate(written).await?;
            segment.allocated.set(written);
        }
        let _permit = log.shared().syncs.acquire().await;
        file.sync_data().await?;
        log.shared().count(|stats| stats.flushes += 1);
    }
    segment.synced.set(written);
    if complete {
        segment.seal();
        log.shared().touch(segment);
        write_side_files(log, segment);
    }
    Ok(())
}

/// Writes the indexes and the snapshot of a sealed segment, behind everyone's back: if that fails or a crash comes first,
/// the next start reads more data.
fn write_side_files(log: &Rc<Log>, segment: &Rc<Segment>) {
    let snapshot = log.flusher.snapshots.borrow_mut().remove(&segment.id);
    let Some(files) = segment.side_files(snapshot) else { return };
    log.flusher.side_files.borrow_mut().insert(segment.base);
    let (log, segment) = (Rc::clone(log), Rc::clone(segment));
    rt::spawn_background(async move {
        if segment.deleted.get().is_none()
            && !log.is_released.get()
            && let Err(error) = segment.write_side_files(&log.place.dir, files, Durable::Now).await
        {
            tracing::warn!(tp = %log.place.tp, base = %segment.base, %error, "index files of a segment were not written");
        }
        log.flusher.side_files.borrow_mut().remove(&segment.base);
        log.changed.notify_all();
    });
}

/// Writes the leader-epoch checkpoint if an epoch wrote that is not in it.
pub(super) async fn write_epochs(log: &Log) -> io::Result<()> {
    if !log.flusher.epochs_changed.replace(false) {
        return Ok(());
    }
    let text = format_epochs(log.state.borrow().epochs.entries());
    files::write(vec![(log.place.dir.join(EPOCHS_FILE), text.into_bytes())], Durable::Now).await
}
