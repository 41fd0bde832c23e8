//! One partition on one disk.
//!
//! Shell. `Log` owns the partition's segments, its bounds (log start, flushed, written, log end), what is known of its
//! producers and leader epochs. It does not know requests, roles, replicas or access rights: `replica` does, and asks.
//! Always: offsets are given without gap, in the order of the calls of [`Log::append`]; `flushed <= written <= log_end`;
//! after a failed write or sync nothing is acknowledged any more and nothing is written to that log until a restart.
//!
//! | file | | duty |
//! | --- | --- | --- |
//! | `appender` `flusher` | shell | bytes to the device; written to flushed |
//! | `tail` `reader` `lookup` | shell | the newest batches in memory; reads; offsets for times |
//! | `segment` `runtime` | shell | one segment's files; what all logs of a shard share |
//! | `open` `upkeep` `files` | shell | start and recovery; retention, deletion, the end; small files |
//! | `index` `producers` `epochs` `recovery` `retention` `checkpoint` `vocabulary` | pure | rules and formats |
//!
//! Formats are Kafka's own, byte for byte: a directory written here opens there, and the other way round.

#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod appender;
pub mod checkpoint;
pub mod epochs;
pub mod files;
mod flusher;
pub mod index;
mod lookup;
mod open;
pub mod producers;
mod reader;
pub mod recovery;
pub mod retention;
mod runtime;
mod segment;
mod tail;
mod upkeep;
mod vocabulary;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use bytes::BytesMut;

use crate::protocol::batch::{self, BatchInfo};
use crate::rt::Event;
use crate::types::{AckClass, LeaderEpoch, Offset, TimestampMs};

use appender::Appender;
use epochs::Epochs;
use flusher::Flusher;
use index::IndexedBatch;
use producers::{ActiveProducer, Producers, Verdict};
use runtime::Shared;
use segment::{DATA_SUFFIX, Phase, Segment};
use tail::{CachedBatch, Tail};

pub use open::sweep_leftovers;
pub use reader::{ReadBounds, ReadData, ReadPlan};
pub use runtime::LogRuntime;
pub use vocabulary::{
    AppendError, Appended, Limits, LogPlace, LogSettings, LogStats, OpenError, ReadError, RecoveryReport, StartFacts,
};

/// Name of the checkpoint of leader epochs in a partition's directory.
const EPOCHS_FILE: &str = "leader-epoch-checkpoint";
/// Name of the file that holds the topic's id.
const METADATA_FILE: &str = "partition.metadata";

/// One partition's log on this shard. Ends by [`Log::close`] or [`Log::delete`], awaited.
pub struct Log {
    place: LogPlace,
    runtime: LogRuntime,
    settings: RefCell<LogSettings>,
    state: RefCell<State>,
    limits: Cell<Limits>,
    appender: Appender,
    flusher: Flusher,
    reads: reader::Reads,
    tail: Rc<Tail>,
    /// Notified after every change of `limits`, and when anything ends.
    changed: Event,
    observer: RefCell<Option<Rc<dyn Fn()>>>,
    /// No appends: closing, closed or deleted.
    is_ended: Cell<bool>,
    /// Handles are closed, or about to be.
    is_released: Cell<bool>,
    is_offline: Cell<bool>,
}

struct State {
    /// Oldest first, without gap; the last one takes appends. Never empty.
    segments: VecDeque<Rc<Segment>>,
    producers: Producers,
    epochs: Epochs,
    /// The newest epoch that the checkpoint on disk has.
    epoch_noted: Option<LeaderEpoch>,
    /// Newest snapshot of producers on disk.
    snapshot_offset: Option<Offset>,
    offline: Option<String>,
}

impl State {
    fn active(&self) -> &Rc<Segment> {
        self.segments.back().expect("a log has an active segment")
    }

    fn first_base(&self) -> Offset {
        self.segments.front().expect("a log has an active segment").base
    }
}

impl Log {
    /// Appends one checked batch: rules of producers, roll if needed, base offset and leader epoch stamped in place, tail
    /// cache, queue of the writer. No await: the order of offsets is the order of calls. Not durable yet: see
    /// [`Log::acked_offset`]. The observer is not called from within: the caller knows that the log end moved.
    ///
    /// `info` is what [`batch::check`] said of `batch`; `now` the broker's clock. Errors: see [`AppendError`]; after each of
    /// them the log is as it was.
    pub fn append(
        self: &Rc<Self>,
        mut batch: BytesMut,
        info: &BatchInfo,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> Result<Appended, AppendError> {
        assert_eq!(batch.len(), info.bytes as usize, "the batch is the one that was checked");
        self.refuse_ended()?;
        let settings = self.settings.borrow();
        if info.bytes > settings.segment_bytes {
            return Err(AppendError::TooLarge { bytes: info.bytes });
        }
        let mut limits = self.limits.get();
        let mut state = self.state.borrow_mut();
        if let Verdict::Duplicate(original) = state.producers.check(info)? {
            return Ok(Appended {
                base_offset: original.base_offset(),
                last_offset: original.last_offset,
                log_append_time: Some(original.timestamp),
                duplicate: true,
                log_start: limits.log_start,
            });
        }

        let base_offset = limits.log_end;
        let last_offset = base_offset.plus(info.last_offset_delta);
        let is_roll = should_roll(state.active(), info, last_offset, &settings, now);
        let end_bytes = state.active().bytes.get() + u64::from(info.bytes);
        if (is_roll && self.appender.is_full()) || self.appender.refuses(state.active(), end_bytes) {
            appender::retry_space(self, state.active(), end_bytes);
            return Err(AppendError::NoSpace);
        }
        if is_roll {
            self.roll(&mut state, &settings, now);
        }

        batch::stamp(&mut batch, base_offset, leader_epoch);
        let bytes = batch.freeze();
        let segment = Rc::clone(state.active());
        let position = u32::try_from(segment.bytes.get()).expect("a segment is shorter than 2 GiB");
        let indexed = IndexedBatch { position, bytes: info.bytes, last_offset, max_timestamp: info.max_timestamp };
        segment.on_append(indexed, settings.index_interval_bytes, now);
        state.producers.replay(info, base_offset, now);
        state.epochs.assign(leader_epoch, base_offset);
        if state.epoch_noted != Some(leader_epoch) {
            state.epoch_noted = Some(leader_epoch);
            self.flusher.on_epoch_written();
        }
        limits.log_end = last_offset.next();
        self.limits.set(limits);
        drop((state, settings));

        self.shared().count(|stats| stats.appended_bytes += u64::from(info.bytes));
        self.shared().tail.push(&self.tail, CachedBatch { base: base_offset, last: last_offset, bytes: bytes.clone() });
        appender::push(self, &segment, bytes, limits.log_end);
        Ok(Appended {
            base_offset,
            last_offset,
            log_append_time: info.log_append_time.then_some(info.max_timestamp),
            duplicate: false,
            log_start: limits.log_start,
        })
    }

    /// The bounds now.
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Everything below reached the topic's ack class.
    pub fn acked_offset(&self) -> Offset {
        let limits = self.limits.get();
        match self.settings.borrow().ack_class {
            AckClass::Memory => limits.log_end,
            AckClass::Written => limits.written,
            AckClass::Flushed => limits.flushed,
        }
    }

    /// Registers the one observer: called after `limits` moved (other than by `append`), when space ran out or returned, and
    /// when the log went offline; outside any borrow. Forgotten when the log ends.
    pub fn on_change(&self, observer: impl Fn() + 'static) {
        *self.observer.borrow_mut() = Some(Rc::new(observer));
    }

    /// Set once a write or flush failed: the reason.
    pub fn offline(&self) -> Option<String> {
        self.state.borrow().offline.clone()
    }

    /// Whether the device is full: appends are refused, and those taken since it filled wait for space.
    pub fn is_full(&self) -> bool {
        self.appender.is_full()
    }

    /// First offset of the oldest open transaction: below it everything is decided. `None` when none is open.
    pub fn first_unstable(&self) -> Option<Offset> {
        self.state.borrow().producers.first_unstable()
    }

    /// The producers it knows, by rising id.
    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        self.state.borrow().producers.active().collect()
    }

    /// Largest epoch <= `epoch` and its exclusive end (KIP-101/279); `None` below the first.
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.state.borrow().epochs.end_of(epoch, self.limits.get().log_end)
    }

    /// This broker leads in `epoch` from the log end on. The checkpoint is written with the first flush after a batch of
    /// that epoch: an epoch that wrote nothing leaves no trace, and a thousand idle logs start without a thousand syncs.
    pub async fn begin_epoch(&self, epoch: LeaderEpoch) -> Result<(), OpenError> {
        let log_end = self.limits.get().log_end;
        self.state.borrow_mut().epochs.assign(epoch, log_end);
        Ok(())
    }

    /// Writes and syncs everything appended so far; the flushed offset after. Concurrent callers share rounds.
    /// Errors: `Offline`; `NoSpace` while what was appended waits for space.
    pub async fn flush(self: &Rc<Self>) -> Result<Offset, AppendError> {
        flusher::flush(self).await
    }

    /// New settings. A stronger class takes hold of what is written already.
    pub fn set_settings(self: &Rc<Self>, settings: LogSettings) {
        *self.settings.borrow_mut() = settings;
        if self.is_dirty() && !self.is_ended() {
            flusher::on_written(self);
        }
        self.notify();
    }

    /// Bytes of all segments, without padding.
    pub fn size_bytes(&self) -> u64 {
        self.state.borrow().segments.iter().map(|segment| segment.bytes.get()).sum()
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.state.borrow().segments.len()
    }

    /// Ends the active segment and begins one at the log end. The writer makes its file.
    fn roll(&self, state: &mut State, settings: &LogSettings, now: TimestampMs) {
        let log_end = self.limits.get().log_end;
        let active = state.active();
        assert!(active.base < log_end, "an empty segment is not rolled: its name is the next one's");
        active.roll();
        self.flusher.on_roll(active, (log_end, state.producers.to_snapshot()));
        state.snapshot_offset = Some(log_end);
        let jitter_max = i64::try_from(settings.segment_jitter_ms.as_millis()).unwrap_or(i64::MAX);
        let jitter = if jitter_max > 0 { fastrand::i64(0..jitter_max) } else { 0 };
        state.segments.push_back(Rc::new(Segment::new(self.shared().new_segment_id(), log_end, jitter, now)));
    }

    fn on_written(self: &Rc<Self>, written: Offset) {
        if self.is_offline() {
            return;
        }
        let mut limits = self.limits.get();
        assert!(limits.written <= written && written <= limits.log_end, "written {written} of {limits:?}");
        limits.written = written;
        self.limits.set(limits);
        self.tail.on_written(written);
        self.shared().tail.evict();
        flusher::on_written(self);
        self.notify();
    }

    fn on_flushed(&self, flushed: Offset) {
        if self.is_offline() {
            return;
        }
        let mut limits = self.limits.get();
        assert!(limits.flushed <= flushed && flushed <= limits.written, "flushed {flushed} of {limits:?}");
        limits.flushed = flushed;
        self.limits.set(limits);
        self.notify();
    }

    fn on_file_created(&self) {
        self.flusher.on_file_created();
        self.changed.notify_all();
    }

    /// Ends the log: the disk failed. Nothing is tried again.
    fn fail(&self, reason: String) {
        if self.is_offline.replace(true) {
            self.changed.notify_all();
            return;
        }
        tracing::error!(tp = %self.place.tp, %reason, "the log is offline until the broker restarts");
        self.state.borrow_mut().offline = Some(reason);
        // Nothing of it will be written or read: neither is it counted any more.
        self.appender.forget_pending(self.shared());
        self.shared().tail.clear(&self.tail);
        self.notify();
    }

    fn on_shortage(&self, error: &io::Error) {
        if self.appender.set_full(true) {
            tracing::warn!(tp = %self.place.tp, %error, "no space left: appends are refused until it returns");
            self.notify();
        }
    }

    fn on_space(&self) {
        if self.appender.set_full(false) {
            tracing::info!(tp = %self.place.tp, "space returned: appends are taken again");
            self.notify();
        }
    }

    fn notify(&self) {
        self.changed.notify_all();
        let observer = self.observer.borrow().clone();
        if let Some(observer) = observer {
            observer();
        }
    }

    fn refuse_ended(&self) -> Result<(), AppendError> {
        if self.is_offline() {
            return Err(AppendError::Offline(self.offline().unwrap_or_default()));
        }
        if self.is_ended() { Err(AppendError::Offline("it is closed".to_owned())) } else { Ok(()) }
    }

    fn is_offline(&self) -> bool {
        self.is_offline.get()
    }

    fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    /// Whether a flush round would have something to do.
    fn is_dirty(&self) -> bool {
        let limits = self.limits.get();
        let state = self.state.borrow();
        let mut newest = state.segments.iter().rev();
        limits.flushed < limits.written || newest.nth(1).is_some_and(|older| older.phase.get() != Phase::Sealed)
    }

    /// Segments that may have unsynced bytes, oldest first; the active one last.
    fn unsealed_segments(&self) -> VecDeque<Rc<Segment>> {
        let mut unsealed = VecDeque::new();
        for segment in self.state.borrow().segments.iter().rev() {
            if segment.phase.get() == Phase::Sealed {
                break;
            }
            unsealed.push_front(Rc::clone(segment));
        }
        unsealed
    }

    fn shared(&self) -> &Rc<Shared> {
        &self.runtime.0
    }

    fn file_name(&self, segment: &Segment) -> String {
        segment.path(&self.place.dir, DATA_SUFFIX).display().to_string()
    }
}

/// Whether the batch goes into a new segment: size, time, a full index, or an offset too far from the segment's base.
/// Source: Kafka's `LogSegment.shouldRoll`.
fn should_roll(
    active: &Segment,
    info: &BatchInfo,
    last_offset: Offset,
    settings: &LogSettings,
    now: TimestampMs,
) -> bool {
    let bytes = active.bytes.get();
    if bytes == 0 {
        return false;
    }
    // Records carry their own clock; a segment whose first record has none goes by the broker's.
    let waited_ms = match active.first_timestamp.get() {
        Some(first) if first >= 0 => info.max_timestamp.saturating_sub(first),
        _ => now.saturating_sub(active.created),
    };
    let age_max = i64::try_from(settings.segment_ms.as_millis()).unwrap_or(i64::MAX).saturating_sub(active.jitter_ms);
    bytes + u64::from(info.bytes) > u64::from(settings.segment_bytes)
        || waited_ms > age_max
        || active.is_index_full(settings.index_bytes_max)
        || index::relative(active.base, last_offset).is_none()
}
