//! Everything one core owns.
//!
//! Shell. Owns the partitions of this shard, the image it serves by, its memory budget and its end of the hop mesh; not
//! connections (`server`), not bytes on disk (`log`). Always: a partition lives on exactly one shard; the image only moves
//! forward; a question from another shard is taken up without awaiting, and what must wait gets a task of its own.

pub mod apply;
pub mod calls;
pub mod data;
pub mod groups;
pub mod memory;
pub mod router;
mod vocabulary;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::{BrokerSettings, TopicSettings};
use crate::controller::Controller;
use crate::controller::image::{Image, TopicImage};
use crate::log::{LogRuntime, ReadError};
use crate::metrics::{Latencies, ShardMetrics};
use crate::replica::{FetchError, LeadershipError, Partition, ProduceError};
use crate::rt;
use crate::rt::hop::{Gone, HopSeed, Hops, Responder};
use crate::rt::net::Net;
use crate::shard::apply::FoundDir;
use crate::shard::calls::{
    MemoryReport, MetricsReport, NetFacts, PartitionFacts, ShardAnswer, ShardCall, ShardFacts, WatchId,
};
use crate::shard::memory::{AnswerBudget, MemoryBudget, Reserved};
use crate::types::{PartitionId, ShardIndex, TimestampMs, TopicId, TopicPartition};

/// What a shard needs to start; built by the control plane, one a shard, before the executors run.
pub struct ShardBoot {
    /// Which shard.
    pub index: ShardIndex,
    /// Its end of the mesh. The mesh has one end a shard, so its length is the number of shards.
    pub seed: HopSeed<ShardCall, ShardAnswer>,
    /// How many shards there are.
    pub shards: usize,
    /// The broker's settings.
    pub settings: Arc<BrokerSettings>,
    /// The metadata log.
    pub controller: Controller,
    /// The image to begin with: without topics, until [`ShardCall::Apply`] brings the replayed one.
    pub image: Arc<Image>,
    /// What the last run left in each of `log.dirs`, in that order.
    pub found: Arc<Vec<FoundDir>>,
    /// This shard's counters.
    pub metrics: Arc<ShardMetrics>,
}

/// One core's state. `Rc`.
pub struct Shard {
    index: ShardIndex,
    shards: usize,
    settings: Arc<BrokerSettings>,
    controller: Controller,
    metrics: Arc<ShardMetrics>,
    latencies: Latencies,
    net: Net,
    hops: OnceCell<Hops<ShardCall, ShardAnswer>>,
    memory: MemoryBudget,
    answer_memory: AnswerBudget,
    log_runtime: LogRuntime,
    image: RefCell<Arc<Image>>,
    topics: RefCell<HashMap<TopicId, Topic>>,
    partitions: RefCell<HashMap<PartitionId, Rc<Partition>>>,
    /// Partitions this shard owns whose logs did not open, with the reason.
    offline: RefCell<HashMap<PartitionId, Offline>>,
    found: RefCell<Option<Arc<Vec<FoundDir>>>>,
    coordinators: groups::Coordinators,
    applying: apply::Turn,
    maintaining: apply::Turn,
    stopping: rt::Event,
    stopped: Cell<bool>,
    watches: RefCell<HashMap<WatchId, rt::Event>>,
    /// Produce shares of this shard that wait for an acknowledgement.
    shares_pending: Cell<usize>,
}

/// A topic of the image with its settings worked out once.
#[derive(Clone)]
struct Topic {
    image: Arc<TopicImage>,
    settings: Rc<TopicSettings>,
}

struct Offline {
    name: TopicPartition,
    log_dir: usize,
    reason: String,
}

/// Why there is no partition to ask.
#[derive(Clone, Debug)]
pub enum Absent {
    /// Not led here; the client's metadata is old.
    NotLeader,
    /// Its log did not open.
    Offline(String),
}

impl From<Absent> for FetchError {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::NotLeader => LeadershipError::NotLeader.into(),
            Absent::Offline(reason) => ReadError::Offline(reason).into(),
        }
    }
}

impl From<Absent> for ProduceError {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::NotLeader => LeadershipError::NotLeader.into(),
            Absent::Offline(reason) => crate::log::AppendError::Offline(reason).into(),
        }
    }
}

/// Shares of the shard's memory: half for requests, a sixteenth for the tail cache, or at most a quarter where a size was given,
/// an eighth for batches that were acknowledged before they were written, a sixteenth for answers to fetches, and at most a
/// sixteenth for what was read from disk, of which half may be read ahead. The pinned pool has a bound of its own.
const REQUESTS_SHARE: u64 = 2;
const TAIL_CACHE_SHARE: u64 = 16;
const TAIL_CACHE_SHARE_MAX: u64 = 4;
const UNWRITTEN_SHARE: u64 = 8;
const ANSWERS_SHARE: u64 = 16;
const READ_CACHE_SHARE: u64 = 16;
/// Enough for sixteen readers that take 1 MiB at a time, one piece in hand and one ahead each.
const READ_CACHE_BYTES_MAX: u64 = 32 << 20;

impl Shard {
    /// Builds the shard on its executor. The caller then starts the mesh with [`Shard::join_mesh`].
    pub fn new(boot: ShardBoot, net: Net) -> (Rc<Self>, HopSeed<ShardCall, ShardAnswer>) {
        let memory = memory_bytes(&boot.settings, boot.shards);
        let shard = Rc::new(Self {
            index: boot.index,
            shards: boot.shards,
            controller: boot.controller,
            metrics: boot.metrics,
            latencies: Latencies::default(),
            net,
            hops: OnceCell::new(),
            memory: MemoryBudget::new((memory / REQUESTS_SHARE) as usize),
            answer_memory: AnswerBudget::new((memory / ANSWERS_SHARE) as usize),
            log_runtime: LogRuntime::new(
                tail_cache_bytes(boot.settings.engine_tail_cache_bytes, memory) as usize,
                READ_CACHE_BYTES_MAX.min(memory / READ_CACHE_SHARE) as usize,
            ),
            image: RefCell::new(boot.image),
            topics: RefCell::default(),
            partitions: RefCell::default(),
            offline: RefCell::default(),
            found: RefCell::new(Some(boot.found)),
            coordinators: groups::Coordinators::default(),
            applying: apply::Turn::default(),
            maintaining: apply::Turn::default(),
            stopping: rt::Event::default(),
            stopped: Cell::new(false),
            watches: RefCell::default(),
            shares_pending: Cell::new(0),
            settings: boot.settings,
        });
        (shard, boot.seed)
    }

    /// Begins to send to and hear from the other shards. `handler` gets every question; those that are not the server's go
    /// to [`Shard::on_call`].
    pub fn join_mesh(
        &self,
        seed: HopSeed<ShardCall, ShardAnswer>,
        handler: impl Fn(ShardCall, Responder<ShardAnswer>) + 'static,
    ) {
        let started = self.hops.set(seed.start(&self.net, handler)).is_ok();
        assert!(started, "a shard joins the mesh once");
    }

    /// Which shard this is.
    pub fn index(&self) -> ShardIndex {
        self.index
    }

    /// How many there are.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The broker's settings.
    pub fn settings(&self) -> &Arc<BrokerSettings> {
        &self.settings
    }

    /// The metadata log.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// This shard's counters.
    pub fn metrics(&self) -> &Arc<ShardMetrics> {
        &self.metrics
    }

    /// This shard's request latencies.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// This shard's sockets.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// The budget requests are admitted from.
    pub fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// Memory for the answer to a fetch that wants `bytes`: as much as answers that wait for their peers leave.
    pub fn reserve_answer(&self, bytes: usize) -> Reserved {
        self.answer_memory.reserve(bytes, self.net.stats().queued_bytes as usize)
    }

    /// The image this shard serves by. One request uses one image from its first line to its last.
    pub fn image(&self) -> Arc<Image> {
        self.image.borrow().clone()
    }

    /// The settings of a topic of the current image.
    pub fn topic_settings(&self, topic: TopicId) -> Option<Rc<TopicSettings>> {
        self.topics.borrow().get(&topic).map(|topic| topic.settings.clone())
    }

    /// The shard that owns `partition`.
    pub fn owner(&self, partition: PartitionId) -> ShardIndex {
        router::owner(partition, self.shards)
    }

    /// A partition of this shard.
    pub fn partition(&self, id: PartitionId) -> Result<Rc<Partition>, Absent> {
        if let Some(partition) = self.partitions.borrow().get(&id) {
            return Ok(partition.clone());
        }
        match self.offline.borrow().get(&id) {
            Some(offline) => Err(Absent::Offline(offline.reason.clone())),
            None => Err(Absent::NotLeader),
        }
    }

    /// This shard's share of `engine.memory.max.bytes`.
    fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.settings, self.shards)
    }

    /// Asks another shard. The question is on its way when this returns; the answer comes through the future.
    pub fn ask(&self, to: ShardIndex, call: ShardCall) -> impl Future<Output = Result<ShardAnswer, Gone>> + 'static {
        self.metrics.hop_calls.increment();
        self.hops().call(to, call)
    }

    /// Whether another shard is there.
    pub fn reaches(&self, to: ShardIndex) -> bool {
        self.hops().reaches(to)
    }

    /// Tells another shard.
    pub fn tell(&self, to: ShardIndex, call: ShardCall) {
        self.metrics.hop_calls.increment();
        self.hops().post(to, call);
    }

    fn hops(&self) -> &Hops<ShardCall, ShardAnswer> {
        self.hops.get().expect("the mesh is joined before any request is served")
    }

    /// Takes up one question. Those about connections are handed back: they are the server's.
    pub fn on_call(
        self: &Rc<Self>,
        call: ShardCall,
        responder: Responder<ShardAnswer>,
    ) -> Option<(ShardCall, Responder<ShardAnswer>)> {
        let shard = self.clone();
        match call {
            ShardCall::Prepare(image) => {
                rt::spawn(async move { responder.answer(ShardAnswer::Applied(shard.prepare(image).await)) });
            }
            ShardCall::Apply(image) => {
                rt::spawn(async move { responder.answer(ShardAnswer::Applied(shard.apply(image).await)) });
            }
            ShardCall::Produce(share) => {
                self.append(share, move |outcomes| responder.answer(ShardAnswer::Produced(outcomes)));
            }
            ShardCall::Fetch(share) => {
                rt::spawn(async move { responder.answer(ShardAnswer::Fetched(shard.fetch_for_hop(&share).await)) });
            }
            ShardCall::Watch(share) => {
                // Begun at once: what gives it up may be the next message.
                let watching = shard.watch_for_hop(share);
                rt::spawn(async move {
                    watching.await;
                    responder.answer(ShardAnswer::Done);
                });
            }
            ShardCall::Unwatch(id) => self.unwatch(id),
            ShardCall::ListOffsets(questions) => {
                rt::spawn(async move { responder.answer(ShardAnswer::Offsets(shard.list_offsets(&questions).await)) });
            }
            ShardCall::EpochEnd(questions) => {
                responder.answer(ShardAnswer::EpochEnds(self.epoch_ends(&questions)));
            }
            ShardCall::DescribeProducers(partitions) => {
                rt::spawn(async move {
                    responder.answer(ShardAnswer::Producers(shard.active_producers(&partitions).await));
                });
            }
            ShardCall::DeleteRecords(items) => {
                rt::spawn(async move { responder.answer(ShardAnswer::Deleted(shard.delete_records(&items).await)) });
            }
            ShardCall::Group(partition, command) => self.on_group_command(partition, *command, responder),
            ShardCall::ListGroups(filter) => self.on_list_groups(&filter, responder),
            ShardCall::Describe => {
                rt::spawn(async move { responder.answer(ShardAnswer::Facts(Box::new(shard.facts().await))) });
            }
            ShardCall::Metrics => {
                rt::spawn(async move { responder.answer(ShardAnswer::Metrics(Box::new(shard.report().await))) });
            }
            ShardCall::Flush => {
                rt::spawn(async move {
                    shard.flush().await;
                    responder.answer(ShardAnswer::Done);
                });
            }
            ShardCall::Listen(_)
            | ShardCall::Adopt(_)
            | ShardCall::Move { .. }
            | ShardCall::Closed { .. }
            | ShardCall::Drain(_)
            | ShardCall::Stop => return Some((call, responder)),
        }
        None
    }

    /// Retention, rolling by time and expiry of producers, for every log, until the shard stops. The work of each round is
    /// done in the background queue: no request waits for it.
    pub async fn maintain(self: Rc<Self>) {
        let interval = self.settings.log_retention_check_interval;
        while !self.stopped.get() {
            futures_lite::future::or(rt::sleep(interval), self.stopping.wait()).await;
            let shard = self.clone();
            rt::spawn_background(async move { shard.maintain_once().await }).join().await;
        }
    }

    async fn maintain_once(&self) {
        let _turn = self.maintaining.take().await;
        for partition in self.partitions_now() {
            if self.stopped.get() {
                return;
            }
            let high_watermark = partition.limits().high_watermark;
            match partition.log().maintain(now_ms(), high_watermark).await {
                Ok(0) => {}
                Ok(segments) => tracing::info!(partition = %partition.name(), segments, "retention deleted segments"),
                Err(error) => tracing::warn!(partition = %partition.name(), %error, "maintenance of a log failed"),
            }
            rt::yield_if_needed().await;
        }
    }

    fn partitions_now(&self) -> Vec<Rc<Partition>> {
        self.partitions.borrow().values().cloned().collect()
    }

    /// What this shard holds. Gives way in between: there may be thousands of partitions.
    pub async fn facts(&self) -> ShardFacts {
        let mut partitions = Vec::new();
        for partition in self.partitions_now() {
            partitions.push(self.partition_facts(&partition));
            rt::yield_if_needed().await;
        }
        partitions.extend(self.offline.borrow().iter().map(|(id, offline)| offline_facts(*id, offline)));
        partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        ShardFacts { shard: self.index, connections: self.metrics.connections_open(), partitions }
    }

    fn partition_facts(&self, partition: &Partition) -> PartitionFacts {
        let (limits, log) = (partition.limits(), partition.log().limits());
        let (traffic, (waiting_acks, waiting_fetches)) = (partition.traffic(), partition.waiting());
        let id = partition.id();
        PartitionFacts {
            topic: partition.name().topic.to_string(),
            topic_id: id.topic_id.to_string(),
            partition: id.partition.value(),
            log_dir: self.log_dir_of(partition),
            ack_class: partition.settings().log.ack_class.name(),
            offline: partition.log().offline(),
            leader_epoch: limits.leader_epoch.value(),
            log_start_offset: limits.log_start.value(),
            last_stable_offset: limits.last_stable.value(),
            high_watermark: limits.high_watermark.value(),
            log_end_offset: limits.log_end.value(),
            written_offset: log.written.value(),
            flushed_offset: log.flushed.value(),
            size_bytes: partition.log().size_bytes(),
            segments: partition.log().segment_count(),
            records_in: traffic.records_in,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            waiting_acks,
            waiting_fetches,
        }
    }

    /// Gauges and histograms.
    pub async fn report(&self) -> MetricsReport {
        let partitions = self.partitions_now();
        let (mut failed, mut log_bytes) = (0, 0);
        for partition in &partitions {
            failed += usize::from(partition.log().offline().is_some());
            log_bytes += partition.log().size_bytes();
            rt::yield_if_needed().await;
        }
        let (log, net) = (self.log_runtime.stats(), self.net.stats());
        MetricsReport {
            latencies: self.latencies.snapshot(),
            memory: MemoryReport {
                limit: self.memory_bytes(),
                requests_limit: self.memory.limit() as u64,
                requests: self.memory.used() as u64,
                requests_waiting: self.memory.waiting() as u64,
                tail_cache: log.tail_cache_bytes,
                pending_writes: log.pending_bytes,
                answers_limit: self.answer_memory.limit() as u64,
                queued_answers: net.queued_bytes,
                read_answers: self.answer_memory.reserved() as u64,
                pinned: u64::from(self.settings.engine_io_memory_bytes),
            },
            log,
            net: NetFacts {
                connections: net.connections,
                queued_bytes: net.queued_bytes,
                turns: net.turns,
                full_turns: net.full_turns,
                lingers: net.lingers,
                parks: net.parks,
                paused: net.paused,
                kicks: net.kicks,
            },
            partitions_offline: failed + self.offline.borrow().len(),
            log_bytes,
            partitions: partitions.len(),
        }
    }
}

fn memory_bytes(settings: &BrokerSettings, shards: usize) -> u64 {
    settings.engine_memory_max_bytes / shards as u64
}

/// What the tail cache may hold of a shard's `memory`.
fn tail_cache_bytes(given: Option<u64>, memory: u64) -> u64 {
    given.unwrap_or(memory / TAIL_CACHE_SHARE).min(memory / TAIL_CACHE_SHARE_MAX)
}

fn offline_facts(id: PartitionId, offline: &Offline) -> PartitionFacts {
    PartitionFacts {
        topic: offline.name.topic.to_string(),
        topic_id: id.topic_id.to_string(),
        partition: id.partition.value(),
        log_dir: offline.log_dir,
        offline: Some(offline.reason.clone()),
        leader_epoch: -1,
        ..Default::default()
    }
}

/// The wall clock, as record timestamps count it.
pub fn now_ms() -> TimestampMs {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as TimestampMs
}
