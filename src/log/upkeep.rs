//! What a log does beside serving: retention, DeleteRecords, the clean end, deletion.
//!
//! Shell. Owns the carrying out of plans; `retention` makes them. Always: a file is renamed, the rename synced, and only
//! later unlinked, so that a crash finds it either way and a reader that holds it reads on; the file of the segment that
//! follows exists before the one before it goes, because its name may be all that remembers the log end.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::rt;
use crate::types::{Offset, TimestampMs, TopicPartition};

use super::checkpoint::parse_partition_metadata;
use super::files::Durable;
use super::flusher::{seal_below, settle, write_epochs};
use super::retention::{Rules, SegmentFacts, plan_deletion};
use super::segment::{
    DATA_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, Phase, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path,
};
use super::{AppendError, Log, LogPlace, LogSettings, METADATA_FILE, appender, files};

/// Suffix of a partition's directory that waits for its removal.
pub(super) const DELETED_DIR_SUFFIX: &str = "-delete";
/// Longest name of a file. Kafka cuts the topic's name so that the renamed directory fits.
const NAME_BYTES_MAX: usize = 255;

impl Log {
    /// Retention by time and size, removal of what lies below the log start, expiry of producers. Returns how many segments
    /// were deleted. `now` is the broker's clock; nothing at or above `high_watermark` goes. Segments roll by time when they
    /// are appended to, as in Kafka, not here.
    pub async fn maintain(self: &Rc<Self>, now: TimestampMs, high_watermark: Offset) -> Result<u32, AppendError> {
        self.refuse_ended()?;
        let settings = self.settings.borrow().clone();
        self.state.borrow_mut().producers.expire(now, settings.producer_expiry);
        let rules = Rules {
            age_max: settings.retention_ms.filter(|_| settings.delete_policy),
            bytes_max: settings.retention_bytes.filter(|_| settings.delete_policy),
            log_start: self.limits().log_start,
            high_watermark,
            now,
        };
        loop {
            let facts = self.segment_facts();
            let count = plan_deletion(&facts, rules);
            // Timestamps are read from the oldest segment on, only as far as the plan gets.
            let next = self.state.borrow().segments.get(count).cloned();
            match next.filter(|next| rules.age_max.is_some() && next.known_newest().is_none()) {
                Some(next) => {
                    if let Err(error) = next.newest(&self.place.dir).await {
                        tracing::warn!(file = %self.file_name(&next), %error, "its age is not known: retention keeps it");
                        return self.delete_oldest(&facts, count, now).await;
                    }
                }
                None => return self.delete_oldest(&facts, count, now).await,
            }
        }
    }

    /// DeleteRecords: moves the log start up to `to`, which is at most the high watermark. Returns the log start.
    pub async fn delete_records(self: &Rc<Self>, to: Offset) -> Result<Offset, AppendError> {
        self.refuse_ended()?;
        self.move_log_start(to.min(self.limits().log_end));
        let log_start = self.limits().log_start;
        let rules =
            Rules { age_max: None, bytes_max: None, log_start, high_watermark: log_start, now: TimestampMs::MIN };
        let facts = self.segment_facts();
        let count = plan_deletion(&facts, rules);
        self.delete_oldest(&facts, count, TimestampMs::MIN).await?;
        Ok(self.limits().log_start)
    }

    /// Clean end: writes, syncs, snapshots the producers, cuts the file to its data, closes. Returns the recovery point to
    /// note. The clean-shutdown marker may be written only when every log's close returned without error and
    /// [`files::sync_all_blocking`] was called: indexes and producers of the last segment are not synced one by one.
    pub async fn close(self: Rc<Self>) -> Result<Offset, AppendError> {
        if self.is_ended.replace(true) {
            return Err(AppendError::Offline("it is closed".to_owned()));
        }
        let flushed = self.flush().await;
        appender::stop(&self).await;
        settle(&self).await;
        let finished = match flushed {
            Ok(end) => self.finish_files(end).await,
            Err(error) => Err(error),
        };
        self.release().await;
        finished
    }

    /// Deletes the log so that a crash at any point leaves it whole or gone: renames the directory to `….<unique>-delete`,
    /// syncs the parent, and unlinks after `file.delete.delay.ms` in the background.
    pub async fn delete(self: Rc<Self>) -> Result<(), AppendError> {
        if self.is_ended.replace(true) {
            return Err(AppendError::Offline("it is closed".to_owned()));
        }
        appender::stop(&self).await;
        settle(&self).await;
        self.release().await;
        let delay = self.settings.borrow().file_delete_delay;
        delete_dir(&self.place, delay).await
    }

    /// [`Log::delete`] for a log that did not open. Leaves the directory of another topic alone.
    pub async fn delete_unopened(place: &LogPlace, settings: &LogSettings) -> Result<(), AppendError> {
        let metadata = place.dir.join(METADATA_FILE);
        let found = rt::blocking(move || std::fs::read_to_string(metadata)).await;
        match found.map(|text| parse_partition_metadata(&text)) {
            Ok(Ok(found)) if found != place.topic_id => Ok(()),
            _ => delete_dir(place, settings.file_delete_delay).await,
        }
    }

    fn move_log_start(&self, to: Offset) {
        let mut limits = self.limits();
        if to <= limits.log_start {
            return;
        }
        limits.log_start = to;
        self.limits.set(limits);
        if self.state.borrow_mut().epochs.truncate_start(to) {
            self.flusher.on_epoch_written();
        }
        self.notify();
    }

    /// What the plan needs; segments whose newest timestamp is not known count as young.
    fn segment_facts(&self) -> Vec<SegmentFacts> {
        let log_end = self.limits().log_end;
        let state = self.state.borrow();
        let ends = state.segments.iter().skip(1).map(|segment| segment.base).chain([log_end]);
        let facts = state.segments.iter().zip(ends).map(|(segment, end_offset)| SegmentFacts {
            base_offset: segment.base,
            end_offset,
            bytes: segment.bytes.get(),
            newest: segment.known_newest().unwrap_or(TimestampMs::MAX),
        });
        facts.collect()
    }

    /// Deletes the `count` oldest segments of a plan made from `facts`; rolls first if that is all of them.
    async fn delete_oldest(
        self: &Rc<Self>,
        facts: &[SegmentFacts],
        count: usize,
        now: TimestampMs,
    ) -> Result<u32, AppendError> {
        let Some(newest) = count.checked_sub(1).and_then(|last| facts.get(last)) else { return Ok(0) };
        if count == facts.len() && self.limits().log_end == newest.end_offset {
            self.roll_for_deletion(now).await?;
        }
        let next = self.state.borrow().segments.iter().find(|segment| segment.base >= newest.end_offset).cloned();
        if let Some(next) = next {
            self.make_file(&next).await?;
        }
        // What goes is sealed first, and its side files are written: the snapshot at its end is all that will be left of the
        // producers in it.
        seal_below(self, newest.end_offset).await?;
        // By offset, not by number: others may have deleted while we waited.
        let (deleted, log_start) = {
            let mut state = self.state.borrow_mut();
            let sealed = state.segments.iter().take_while(|segment| segment.phase.get() == Phase::Sealed);
            let count = sealed.take_while(|segment| segment.base < newest.end_offset).count();
            let deleted: Vec<Rc<Segment>> = state.segments.drain(..count).collect();
            (deleted, state.first_base())
        };
        if deleted.is_empty() {
            return Ok(0);
        }
        self.move_log_start(log_start);
        let mut names = Vec::new();
        for segment in &deleted {
            segment.deleted.set(Some(log_start));
            self.shared().forget(segment);
        }
        for segment in &deleted {
            segment.end_opens().await;
            // The data first: data that a crash left without its snapshot would be replayed without the producers before it.
            for suffix in [DATA_SUFFIX, SNAPSHOT_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
                names.push(segment.path(&self.place.dir, suffix));
            }
        }
        let renamed: Vec<_> = names.into_iter().map(|from| (from.clone(), with_suffix(from, DELETED_SUFFIX))).collect();
        let unlinked: Vec<_> = renamed.iter().map(|(_, to)| to.clone()).collect();
        let result = match files::rename_all(renamed).await {
            Ok(()) => files::sync_dir(self.place.dir.clone()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::warn!(tp = %self.place.tp, %error, "deleted segments were not renamed; the next start sees them again");
        }
        let count = u32::try_from(deleted.len()).unwrap_or(u32::MAX);
        tracing::info!(tp = %self.place.tp, segments = count, %log_start, "deleted the oldest segments");
        let (tp, delay) = (self.place.tp.clone(), self.settings.borrow().file_delete_delay);
        rt::spawn_background(async move {
            rt::sleep(delay).await;
            for segment in deleted {
                if let Err(error) = segment.close().await {
                    tracing::debug!(base = %segment.base, %error, "a file of a deleted segment did not close");
                }
            }
            if let Err(error) = files::remove_all(unlinked).await {
                tracing::warn!(%tp, %error, "deleted segments were not removed; the next start will");
            }
        });
        Ok(count)
    }

    /// Rolls the active segment, all of which is to be deleted, and makes the next one's file durable: its name is the log end.
    async fn roll_for_deletion(self: &Rc<Self>, now: TimestampMs) -> Result<(), AppendError> {
        let next = {
            let settings = self.settings.borrow();
            let mut state = self.state.borrow_mut();
            self.roll(&mut state, &settings, now);
            Rc::clone(state.active())
        };
        self.make_file(&next).await?;
        self.flush().await?;
        files::sync_dir(self.place.dir.clone())
            .await
            .map_err(|error| AppendError::Offline(format!("sync {}: {error}", self.place.dir.display())))
    }

    /// Waits for the file of a segment: appends that are still in memory bring it; where there are none it is made now.
    async fn make_file(self: &Rc<Self>, segment: &Rc<Segment>) -> Result<(), AppendError> {
        if !segment.exists.get() && segment.bytes.get() == 0 {
            appender::push(self, segment, bytes::Bytes::new(), segment.base);
        }
        while !segment.exists.get() {
            self.refuse_ended()?;
            if self.appender.is_full() {
                return Err(AppendError::NoSpace);
            }
            self.changed.wait().await;
        }
        Ok(())
    }

    /// The files of a log whose every byte is flushed: epochs, the active segment's cut and indexes, producers.
    async fn finish_files(self: &Rc<Self>, end: Offset) -> Result<Offset, AppendError> {
        let failed = |what: &str, error: std::io::Error| AppendError::Offline(format!("{what}: {error}"));
        write_epochs(self).await.map_err(|error| failed("write the leader epochs", error))?;
        let (active, snapshot) = {
            let state = self.state.borrow();
            let is_new = end > Offset::ZERO && state.snapshot_offset.is_none_or(|offset| offset < end);
            (Rc::clone(state.active()), is_new.then(|| (end, state.producers.to_snapshot())))
        };
        if let Some(file) = active.open_writer() {
            let cut = match file.truncate(active.bytes.get()).await {
                Ok(()) => file.sync_data().await,
                Err(error) => Err(error),
            };
            cut.map_err(|error| failed("cut the last segment", error))?;
        }
        if active.bytes.get() == 0 {
            if let Some((offset, bytes)) = snapshot {
                let path = file_path(&self.place.dir, offset, SNAPSHOT_SUFFIX);
                let written = files::write(vec![(path, bytes)], Durable::Later).await;
                written.map_err(|error| failed("write the producers", error))?;
            }
        } else if let Some(side) = active.side_files(snapshot) {
            let written = active.write_side_files(&self.place.dir, side, Durable::Later).await;
            written.map_err(|error| failed("write the indexes", error))?;
        }
        Ok(end)
    }

    /// Gives everything back: handles, cache, observer.
    async fn release(&self) {
        self.is_released.set(true);
        self.notify();
        *self.observer.borrow_mut() = None;
        let segments: Vec<_> = self.state.borrow().segments.iter().cloned().collect();
        for segment in segments {
            self.shared().forget(&segment);
            if let Err(error) = segment.close().await {
                tracing::warn!(file = %self.file_name(&segment), %error, "a file did not close");
            }
        }
        self.shared().tail.clear(&self.tail);
    }
}

/// Renames the directory of a log, which nothing writes to any more, and unlinks it after `delay` in the background.
async fn delete_dir(place: &LogPlace, delay: Duration) -> Result<(), AppendError> {
    let dir = &place.dir;
    let parent = dir.parent().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let deleted = parent.join(deleted_dir_name(&place.tp));
    let renamed = match files::rename_all(vec![(dir.clone(), deleted.clone())]).await {
        Ok(()) => files::sync_dir(parent).await,
        Err(error) => Err(error),
    };
    renamed.map_err(|error| AppendError::Offline(format!("rename {}: {error}", dir.display())))?;
    rt::spawn_background(async move {
        rt::sleep(delay).await;
        let path = deleted.clone();
        if let Err(error) = rt::blocking(move || std::fs::remove_dir_all(path)).await
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %deleted.display(), %error, "a deleted log was not removed; the next start will");
        }
    });
    Ok(())
}

fn deleted_dir_name(partition: &TopicPartition) -> String {
    let tail = format!("-{}.{:032x}{DELETED_DIR_SUFFIX}", partition.partition, fastrand::u128(..));
    let room = NAME_BYTES_MAX - tail.len();
    format!("{}{tail}", partition.topic.get(..room).unwrap_or(&partition.topic))
}

fn with_suffix(path: PathBuf, suffix: &str) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}
