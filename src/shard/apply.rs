//! From image to logs: what a shard opens, changes and removes when metadata moves, and how it ends.
//!
//! Shell. Owns the order of these steps. Always: one image is applied at a time, in the order of arrival; a partition is
//! served only after its log is open and knows its leader epoch; what recovery refuses is offline with its reason while the
//! rest serves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use crate::config::TopicSettings;
use crate::controller::image::{Image, PartitionImage, TopicImage};
use crate::log::{Log, LogPlace, OpenError, RecoveryReport, StartFacts};
use crate::replica::Partition;
use crate::rt;
use crate::shard::calls::{ApplyReport, DirCheckpoint};
use crate::shard::{Offline, Shard, Topic, now_ms};
use crate::types::{LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicName, TopicPartition};

/// What the last run left in one log directory, read by the control plane before the shards start.
#[derive(Clone, Debug, Default)]
pub struct FoundDir {
    /// The clean-shutdown marker was there.
    pub clean: bool,
    /// `recovery-point-offset-checkpoint`.
    pub recovery_points: HashMap<TopicPartition, Offset>,
    /// `log-start-offset-checkpoint`.
    pub log_starts: HashMap<TopicPartition, Offset>,
}

/// Logs opened or closed at the same time. Both wait for the disk most of the time; more than a few gain nothing and take
/// memory.
const LOGS_AT_ONCE: usize = 8;

/// One at a time, in the order of arrival.
#[derive(Default)]
pub(super) struct Turn {
    taken: Cell<bool>,
    freed: rt::Event,
}

impl Turn {
    pub(super) async fn take(&self) -> TurnTaken<'_> {
        while self.taken.replace(true) {
            self.freed.wait().await;
        }
        TurnTaken(self)
    }
}

pub(super) struct TurnTaken<'a>(&'a Turn);

impl Drop for TurnTaken<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        self.0.freed.notify_all();
    }
}

/// A log to be opened.
struct Opening {
    id: PartitionId,
    name: TopicPartition,
    log_dir: usize,
    leader_epoch: LeaderEpoch,
    settings: Rc<TopicSettings>,
}

impl Shard {
    /// Opens the logs `image` gives this shard and that are not open yet.
    pub(super) async fn prepare(self: &Rc<Self>, image: Arc<Image>) -> ApplyReport {
        let _turn = self.applying.take().await;
        self.open_missing(&image).await
    }

    /// Serves by `image`.
    pub(super) async fn apply(self: &Rc<Self>, image: Arc<Image>) -> ApplyReport {
        let _turn = self.applying.take().await;
        if image.version < self.image().version {
            return ApplyReport::default();
        }
        let mut report = self.open_missing(&image).await;
        // The checkpoints of the last run are about topics of the last run: a topic made again under an old name starts new.
        self.found.borrow_mut().take();
        let deleted = self.image().topics.keys().filter(|name| !image.topics.contains_key(*name)).cloned().collect();
        let changed = self.adopt_topics(&image);
        *self.image.borrow_mut() = image.clone();
        self.lead_changed(&changed, &mut report).await;
        self.delete_gone(&image, &mut report).await;
        self.forget_offsets_of(deleted);
        report
    }

    fn forget_offsets_of(&self, topics: Vec<TopicName>) {
        if !topics.is_empty() {
            self.coordinators.topics_deleted(&topics);
        }
    }

    async fn open_missing(self: &Rc<Self>, image: &Arc<Image>) -> ApplyReport {
        let openings: Vec<Opening> = self.changed_topics(image).flat_map(|topic| self.missing_of(topic)).collect();
        let report = Rc::new(RefCell::new(ApplyReport::default()));
        let (shard, opened) = (self.clone(), report.clone());
        each_few(openings, move |opening| {
            let (shard, opened) = (shard.clone(), opened.clone());
            async move { shard.open(opening, &opened).await }
        })
        .await;
        let report = report.borrow().clone();
        self.metrics.recovery_scanned_bytes.add(report.bytes_scanned);
        self.metrics.recovery_truncated_bytes.add(report.bytes_truncated);
        report
    }

    /// Topics of `image` that are new or differ from the current image's. Unchanged ones are shared between images.
    fn changed_topics<'a>(&self, image: &'a Image) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        image
            .topics
            .values()
            .filter(|topic| self.topics.borrow().get(&topic.id).is_none_or(|known| !Arc::ptr_eq(&known.image, topic)))
    }

    /// The partitions of a topic that this broker leads and this shard owns.
    fn owned_of<'a>(&self, topic: &'a TopicImage) -> impl Iterator<Item = (PartitionId, &'a PartitionImage)> {
        let (me, index, shards, topic_id) = (self.settings.node_id, self.index, self.shards, topic.id);
        topic.partitions.iter().zip(0..).filter_map(move |(partition, number)| {
            let partition_index = PartitionIndex::new(number)?;
            let id = PartitionId { topic_id, partition: partition_index };
            (partition.leader == me && super::router::owner(id, shards) == index).then_some((id, partition))
        })
    }

    fn missing_of(&self, topic: &Arc<TopicImage>) -> Vec<Opening> {
        let (partitions, offline) = (self.partitions.borrow(), self.offline.borrow());
        let mut missing =
            self.owned_of(topic).filter(|(id, _)| !partitions.contains_key(id) && !offline.contains_key(id)).peekable();
        if missing.peek().is_none() {
            return Vec::new();
        }
        let settings = Rc::new(self.settings.topic_settings(&topic.name, &topic.configs));
        missing
            .map(|(id, partition)| Opening {
                id,
                name: TopicPartition { topic: topic.name.clone(), partition: id.partition },
                log_dir: partition.log_dir,
                leader_epoch: partition.leader_epoch,
                settings: settings.clone(),
            })
            .collect()
    }

    async fn open(self: &Rc<Self>, opening: Opening, report: &RefCell<ApplyReport>) {
        let (id, name, log_dir) = (opening.id, opening.name.clone(), opening.log_dir);
        match self.open_partition(opening).await {
            Ok((partition, recovery)) => {
                self.partitions.borrow_mut().insert(id, partition.clone());
                self.coordinate(&partition);
                let mut report = report.borrow_mut();
                report.opened += 1;
                report.segments += recovery.segments;
                report.bytes_scanned += recovery.bytes_scanned;
                report.bytes_truncated += recovery.bytes_truncated;
            }
            Err(error) => {
                tracing::error!(partition = %name, %error, "a log did not open; its partition is offline");
                let reason = error.to_string();
                report.borrow_mut().failed.push((name.to_string(), reason.clone()));
                self.offline.borrow_mut().insert(id, Offline { name, log_dir, reason });
            }
        }
    }

    async fn open_partition(&self, opening: Opening) -> Result<(Rc<Partition>, RecoveryReport), OpenError> {
        let Opening { id, name, log_dir, leader_epoch, settings } = opening;
        let facts = self.start_facts(&name, log_dir);
        let place = self.place_of(id, name.clone(), log_dir);
        let (log, recovery) = Log::open(place, settings.log.clone(), facts, &self.log_runtime).await?;
        Ok((Partition::lead(id, name, log, leader_epoch, settings).await?, recovery))
    }

    fn place_of(&self, id: PartitionId, name: TopicPartition, log_dir: usize) -> LogPlace {
        let dir = self.settings.log_dirs[log_dir].join(name.to_string());
        LogPlace { dir, tp: name, topic_id: id.topic_id }
    }

    fn start_facts(&self, name: &TopicPartition, log_dir: usize) -> StartFacts {
        let found = self.found.borrow();
        match found.as_ref().and_then(|dirs| dirs.get(log_dir)) {
            Some(dir) => StartFacts {
                clean: dir.clean,
                recovery_point: dir.recovery_points.get(name).copied(),
                log_start: dir.log_starts.get(name).copied(),
                now: now_ms(),
            },
            None => StartFacts { clean: true, recovery_point: None, log_start: None, now: now_ms() },
        }
    }

    /// Works out the settings of new and changed topics, and forgets those that are gone.
    fn adopt_topics(&self, image: &Image) -> Vec<Topic> {
        let changed: Vec<_> = self
            .changed_topics(image)
            .map(|topic| Topic {
                image: topic.clone(),
                settings: Rc::new(self.settings.topic_settings(&topic.name, &topic.configs)),
            })
            .collect();
        let mut topics = self.topics.borrow_mut();
        topics.retain(|id, _| image.topic_ids.contains_key(id));
        topics.extend(changed.iter().map(|topic| (topic.image.id, topic.clone())));
        changed
    }

    async fn lead_changed(self: &Rc<Self>, changed: &[Topic], report: &mut ApplyReport) {
        for topic in changed {
            for (id, image) in self.owned_of(&topic.image) {
                let Ok(partition) = self.partition(id) else { continue };
                if *partition.settings() != *topic.settings {
                    partition.set_settings(topic.settings.clone());
                }
                if image.leader_epoch <= partition.leader_epoch() {
                    continue;
                }
                match partition.begin_epoch(image.leader_epoch).await {
                    Ok(()) => self.coordinate(&partition),
                    Err(error) => {
                        tracing::error!(partition = %partition.name(), %error, "the new leader epoch was not recorded");
                        report.failed.push((partition.name().to_string(), error.to_string()));
                    }
                }
            }
        }
    }

    async fn delete_gone(&self, image: &Image, report: &mut ApplyReport) {
        let me = self.settings.node_id;
        let kept = |id: &PartitionId| {
            let topic = image.topic_ids.get(&id.topic_id).and_then(|name| image.topics.get(name));
            topic
                .and_then(|topic| topic.partitions.get(id.partition.value() as usize))
                .is_some_and(|partition| partition.leader == me)
        };
        let unopened: Vec<_> = self.offline.borrow_mut().extract_if(|id, _| !kept(id)).collect();
        for (id, offline) in unopened {
            let place = self.place_of(id, offline.name, offline.log_dir);
            let settings = self.settings.topic_settings(&place.tp.topic, &BTreeMap::new());
            if let Err(error) = Log::delete_unopened(&place, &settings.log).await {
                tracing::warn!(partition = %place.tp, %error, "a deleted log was not removed; a topic of its name cannot use it");
            }
        }
        let gone: HashSet<PartitionId> = self.partitions.borrow().keys().filter(|id| !kept(id)).copied().collect();
        for id in gone {
            let Some(partition) = self.partitions.borrow_mut().remove(&id) else { continue };
            self.coordinators.unload(id);
            partition.end();
            report.deleted += 1;
            if let Err(error) = partition.log().clone().delete().await {
                tracing::warn!(partition = %partition.name(), %error, "a deleted log was not removed; the next start will");
            }
        }
    }

    /// Flushes every log that is not offline.
    pub(super) async fn flush(&self) {
        for partition in self.partitions_now() {
            if let Err(error) = partition.log().flush().await {
                tracing::warn!(partition = %partition.name(), %error, "a log was not flushed");
            }
        }
    }

    /// Ends every partition and closes its log. One checkpoint a log directory.
    pub async fn stop(self: &Rc<Self>) -> Vec<DirCheckpoint> {
        let _turn = self.applying.take().await;
        self.stopped.set(true);
        self.stopping.notify_all();
        // Maintenance ends with the log it is at: nothing deletes segments of a log that is being closed.
        let _maintained = self.maintaining.take().await;
        self.coordinators.unload_all();
        let checkpoints = Rc::new(RefCell::new(vec![DirCheckpoint::default(); self.settings.log_dirs.len()]));
        let partitions: Vec<_> = self.partitions.borrow_mut().drain().map(|(_, partition)| partition).collect();
        let (shard, closed) = (self.clone(), checkpoints.clone());
        each_few(partitions, move |partition| {
            let (shard, closed) = (shard.clone(), closed.clone());
            async move { shard.close(&partition, &closed).await }
        })
        .await;
        let mut checkpoints = checkpoints.take();
        mark_clean(&mut checkpoints, &self.logs_owned());
        checkpoints
    }

    /// How many logs of this shard the image places in each directory.
    fn logs_owned(&self) -> Vec<usize> {
        let mut counts = vec![0; self.settings.log_dirs.len()];
        for topic in self.image().topics.values() {
            self.owned_of(topic).for_each(|(_, partition)| counts[partition.log_dir] += 1);
        }
        counts
    }

    async fn close(&self, partition: &Partition, checkpoints: &RefCell<Vec<DirCheckpoint>>) {
        partition.end();
        let (name, dir) = (partition.name().clone(), self.log_dir_of(partition));
        let log_start = partition.log().limits().log_start;
        match partition.log().clone().close().await {
            Ok(recovery_point) => {
                let checkpoint = &mut checkpoints.borrow_mut()[dir];
                checkpoint.recovery_points.push((name.clone(), recovery_point));
                checkpoint.log_starts.push((name, log_start));
            }
            Err(error) => {
                tracing::error!(partition = %name, %error, "a log did not close; the next start recovers it");
            }
        }
    }

    pub(super) fn log_dir_of(&self, partition: &Partition) -> usize {
        let id = partition.id();
        let topics = self.topics.borrow();
        let image =
            topics.get(&id.topic_id).and_then(|topic| topic.image.partitions.get(id.partition.value() as usize));
        image.map(|image| image.log_dir).unwrap_or_default()
    }
}

/// A directory ended cleanly when every log in it closed: one that never opened did not, nor one whose task panicked.
fn mark_clean(checkpoints: &mut [DirCheckpoint], owned: &[usize]) {
    for (checkpoint, owned) in checkpoints.iter_mut().zip(owned) {
        checkpoint.clean = checkpoint.recovery_points.len() == *owned;
    }
}

/// Runs `work` on every item, a few at a time. A panic in one ends only that one.
async fn each_few<T, F>(items: Vec<T>, work: impl Fn(T) -> F + Clone + 'static)
where
    T: 'static,
    F: Future<Output = ()> + 'static,
{
    let workers = items.len().min(LOGS_AT_ONCE);
    let queue = Rc::new(RefCell::new(VecDeque::from(items)));
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (queue, work) = (queue.clone(), work.clone());
            rt::spawn(async move {
                loop {
                    let next = queue.borrow_mut().pop_front();
                    let Some(item) = next else { return };
                    work(item).await;
                }
            })
        })
        .collect();
    for task in tasks {
        // The panic was logged where it was caught; its partition is not served.
        task.join().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_log_that_did_not_close_is_not_clean() {
        let name = TopicPartition { topic: "orders".into(), partition: PartitionIndex::ZERO };
        let closed = DirCheckpoint { recovery_points: vec![(name, Offset::ZERO)], ..Default::default() };
        let mut checkpoints = [DirCheckpoint::default(), closed.clone(), closed, DirCheckpoint::default()];
        mark_clean(&mut checkpoints, &[0, 1, 2, 1]);
        assert_eq!(checkpoints.map(|checkpoint| checkpoint.clean), [true, true, false, false]);
    }
}
