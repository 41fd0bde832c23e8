//! Records become batches: one queue of batches per partition, filled at the back, drained at the front.
//!
//! Pure. Owns the queues, the memory they may take, the choice of partitions, who waits for a flush, and whether the sender
//! must be woken. Does not own which batch may go when (`sender`) nor threads: the shell keeps it behind one short lock.
//! Always true: batches of a queue are in the order of their records; the bytes charged are those of the batches not ended.
//! Source: Kafka's `RecordAccumulator`; KIP-480 and KIP-794 (sticky partitions).
//!
//! **Waking.** A record wakes the sender only when it changed what the sender must do: a batch became ready that a broker
//! could take, or the first record of a batch brings a linger that ends before the sender would look by itself.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use smallvec::SmallVec;

use super::delivery::SendError;
use super::outgoing::{Batch, BatchForm, Place, borrowed};
use super::partitioner::{self, Load, Partitioning, Partitions, Sticky};
use super::record::RecordRef;
use crate::protocol::ErrorCode;
use crate::protocol::batch::{Codec, HEADER_BYTES, record_bytes_max};
use crate::types::{BrokerId, PartitionIndex, TimestampMs, TopicId, TopicName};

/// A new batch's buffer begins no larger, and grows as records come: with a `batch.size` of megabytes and many partitions,
/// most batches stay small.
const FIRST_BUFFER_BYTES_MAX: usize = 64 << 10;
/// Below this the estimate of what compression makes of a topic's records does not fall: a batch of zeros would else gather
/// thousands of times its size.
const RATIO_MIN: f32 = 1.0 / 32.0;
/// Steps of that estimate, as Kafka's: down slowly, up fast, since a batch too large is refused.
const RATIO_STEP_DOWN: f32 = 0.005;
const RATIO_STEP_UP: f32 = 0.05;
/// Smaller batches say nothing of larger ones: a codec's own framing outweighs what it saves on a record or two.
const RATIO_SAMPLE_BYTES_MIN: usize = 1024;
/// Buffers kept for the next batches, at most.
const SPARE_BUFFERS_MAX: usize = 1024;

/// Settings of the accumulator.
#[derive(Clone, Debug)]
pub(crate) struct AccumulatorSettings {
    /// `batch.size` and the codec.
    pub(crate) form: BatchForm,
    /// `linger.ms`: the longest wait of a batch for more records.
    pub(crate) linger: Duration,
    /// `buffer.memory`.
    pub(crate) memory_bytes: usize,
    /// `max.request.size`: no record may be larger, counted with the header of a batch of its own, as in Java.
    pub(crate) record_bytes_max: usize,
    /// How partitions are chosen.
    pub(crate) partitioning: Partitioning,
    /// Of the random choices.
    pub(crate) seed: u64,
}

/// What the cluster says of a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TopicView<'a> {
    /// It is there: who leads each of its partitions.
    Known {
        /// `None` from brokers before topic ids.
        id: Option<TopicId>,
        /// By partition.
        leaders: &'a [Option<BrokerId>],
    },
    /// It is not there, or may not be used.
    Broken(ErrorCode),
}

struct Topic<W> {
    name: TopicName,
    id: Option<TopicId>,
    /// How many there are now; `queues` may be longer, after a topic was made again with fewer.
    count: u32,
    queues: Vec<Queue<W>>,
    /// Partitions with a leader.
    available: Vec<u32>,
    broken: Option<ErrorCode>,
    sticky: Sticky,
    next_in_turn: u32,
    /// Estimate of wire bytes by raw bytes.
    ratio: f32,
    /// See [`Accumulator::take_used`].
    used: bool,
}

struct Queue<W> {
    batches: VecDeque<Batch<W>>,
    /// Records ever put in.
    records: u64,
    leader: Option<BrokerId>,
    /// In the list of active places.
    active: bool,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { batches: VecDeque::new(), records: 0, leader: None, active: false }
    }
}

/// What the sender does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SenderState {
    /// It will look at the queues before it sleeps.
    Awake,
    /// Until then, or until somebody wakes it.
    Asleep(Option<Instant>),
}

/// A record was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Appended {
    /// Where it went.
    pub(crate) place: Place,
    /// The sender must be woken, by the caller, once.
    pub(crate) wake: bool,
}

/// See the head of the file. `W` is what waits for each record.
pub(crate) struct Accumulator<W> {
    settings: AccumulatorSettings,
    random: fastrand::Rng,
    topics: Vec<Topic<W>>,
    names: HashMap<TopicName, u32>,
    /// The topic of the last record: most producers write to one.
    last_topic: usize,
    active: Vec<Place>,
    used_bytes: usize,
    /// Somebody was refused for want of room: nothing lingers until there is some.
    starved: bool,
    /// The sender was woken for that already.
    pressed: bool,
    spare_buffers: Vec<BytesMut>,
    spare_waiters: Vec<Vec<W>>,
    generation: u64,
    /// Batches not ended, by generation, in rising order.
    unfinished: VecDeque<(u64, u64)>,
    /// Batches of this generation and older ones do not linger.
    flush_through: Option<u64>,
    closed: bool,
    fatal: Option<ErrorCode>,
    sender: SenderState,
    /// Brokers that can take nothing until they answer, or until the sender's sleep ends: what becomes ready for them wakes nobody.
    busy: SmallVec<[BrokerId; 8]>,
    /// Brokers that have taken nothing for longer than the availability time-out.
    slow: SmallVec<[BrokerId; 8]>,
}

impl<W> Accumulator<W> {
    /// Empty, knowing no topic.
    pub(crate) fn new(settings: AccumulatorSettings) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            topics: Vec::new(),
            names: HashMap::new(),
            last_topic: 0,
            active: Vec::new(),
            used_bytes: 0,
            starved: false,
            pressed: false,
            spare_buffers: Vec::new(),
            spare_waiters: Vec::new(),
            generation: 0,
            unfinished: VecDeque::new(),
            flush_through: None,
            closed: false,
            fatal: None,
            sender: SenderState::Asleep(None),
            busy: SmallVec::new(),
            slow: SmallVec::new(),
        }
    }

    /// Takes what the cluster says of a topic. True when it is another topic under the same name: what was sent to the old
    /// one is gone, and sequences begin anew.
    pub(crate) fn set_topic(&mut self, name: &str, view: TopicView<'_>) -> Option<u32> {
        let index = match self.names.get(name) {
            Some(index) => *index,
            None => {
                let index = u32::try_from(self.topics.len()).expect("a producer writes to fewer than 2^32 topics");
                let name: TopicName = name.into();
                self.names.insert(name.clone(), index);
                self.topics.push(Topic {
                    name,
                    id: None,
                    count: 0,
                    queues: Vec::new(),
                    available: Vec::new(),
                    broken: None,
                    sticky: Sticky::default(),
                    next_in_turn: 0,
                    ratio: 1.0,
                    used: false,
                });
                index
            }
        };
        let topic = &mut self.topics[index as usize];
        match view {
            TopicView::Broken(code) => {
                topic.broken = Some(code);
                topic.available.clear();
                topic.queues.iter_mut().for_each(|queue| queue.leader = None);
                None
            }
            TopicView::Known { id, leaders } => {
                let recreated = topic.id.is_some() && id.is_some() && topic.id != id;
                topic.id = id.or(topic.id);
                topic.broken = None;
                topic.count = u32::try_from(leaders.len()).expect("a topic has fewer than 2^31 partitions");
                if topic.queues.len() < leaders.len() {
                    topic.queues.resize_with(leaders.len(), Queue::default);
                }
                for (queue, leader) in
                    topic.queues.iter_mut().zip(leaders.iter().copied().chain(std::iter::repeat(None)))
                {
                    queue.leader = leader;
                }
                topic.available =
                    leaders.iter().zip(0..).filter(|(leader, _)| leader.is_some()).map(|(_, at)| at).collect();
                if topic.sticky.partition.is_some_and(|partition| partition >= topic.count) {
                    topic.sticky = Sticky::default();
                }
                recreated.then_some(index)
            }
        }
    }

    /// The names of all topics it was told of.
    pub(crate) fn topic_names(&self) -> impl ExactSizeIterator<Item = &TopicName> {
        self.topics.iter().map(|topic| &topic.name)
    }

    /// The names of those that records were sent to since the last time this was asked, or that have some still.
    pub(crate) fn take_used(&mut self) -> Vec<TopicName> {
        let used = self.topics.iter_mut().filter_map(|topic| {
            let queued = topic.queues.iter().any(|queue| queue.active);
            (std::mem::take(&mut topic.used) || queued).then(|| topic.name.clone())
        });
        used.collect()
    }

    /// How many partitions a topic has; `None` while nothing is known of it. Errors: it may not be used.
    pub(crate) fn partition_count(&self, name: &str) -> Result<Option<u32>, SendError> {
        let Some(index) = self.names.get(name) else { return Ok(None) };
        let topic = &self.topics[*index as usize];
        match topic.broken {
            None => Ok((topic.count > 0).then_some(topic.count)),
            Some(code) if code.retriable() => Ok(None),
            Some(code) => Err(SendError::Topic { topic: topic.name.clone(), code }),
        }
    }

    /// Takes a record: into the open batch of its partition, or a new one. `waiter` is made only when it is taken; `now` is
    /// asked only for a new batch.
    pub(crate) fn append(
        &mut self,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        waiter: impl FnOnce() -> W,
        now: impl FnOnce() -> Instant,
    ) -> Result<Appended, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        if let Some(code) = self.fatal {
            return Err(SendError::Fatal { code });
        }
        let topic_index = self.topic_of(record.topic)?;
        let bytes = record_bytes_max(record.key, record.value, borrowed(record.headers));
        let alone = bytes + HEADER_BYTES;
        if self.used_bytes + alone > self.settings.memory_bytes || alone > self.settings.record_bytes_max {
            return Err(self.refuse(alone));
        }
        let mut closed = None;
        let partition = self.choose(topic_index, record, timestamp, bytes, &mut closed)?;
        let place = Place { topic: topic_index as u32, partition };
        let appended = self.push(place, record, timestamp, waiter, now)?;
        let wake = appended.wake || closed.is_some_and(|partition| self.closed_elsewhere(place, partition));
        Ok(Appended { wake, ..appended })
    }

    /// A batch was closed because the record did not fit, and the record went to another partition: the batch is ready.
    fn closed_elsewhere(&mut self, place: Place, partition: u32) -> bool {
        let closed = Place { partition, ..place };
        let wake = closed != place && self.must_wake(self.leader(closed), None);
        if wake {
            self.sender = SenderState::Awake;
        }
        wake
    }

    fn topic_of(&mut self, name: &str) -> Result<usize, SendError> {
        let last = self.topics.get(self.last_topic).filter(|topic| *topic.name == *name);
        if last.is_none() {
            match self.names.get(name) {
                Some(index) => self.last_topic = *index as usize,
                None => return Err(SendError::NoMetadata { topic: name.into() }),
            }
        }
        let topic = &self.topics[self.last_topic];
        match topic.broken {
            None if topic.count > 0 => Ok(self.last_topic),
            Some(code) if !code.retriable() => Err(SendError::Topic { topic: topic.name.clone(), code }),
            _ => Err(SendError::NoMetadata { topic: topic.name.clone() }),
        }
    }

    /// `bytes`: of a batch with this record alone.
    #[cold]
    fn refuse(&mut self, bytes: usize) -> SendError {
        for (bytes_max, setting) in
            [(self.settings.record_bytes_max, "max.request.size"), (self.settings.memory_bytes, "buffer.memory")]
        {
            if bytes > bytes_max {
                return SendError::RecordTooLarge { bytes, bytes_max, setting };
            }
        }
        self.starved = true;
        SendError::WouldBlock
    }

    /// After [`SendError::WouldBlock`]: whether the sender must be woken, by the caller, to let nothing linger any longer.
    pub(crate) fn must_wake_for_room(&mut self) -> bool {
        let wake = self.starved && !self.pressed && matches!(self.sender, SenderState::Asleep(_));
        self.pressed |= wake;
        if wake {
            self.sender = SenderState::Awake;
        }
        wake
    }

    /// `bytes`: the most the record can take. `closed`: the partition whose open batch was closed to choose another.
    fn choose(
        &mut self,
        topic_index: usize,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        bytes: usize,
        closed: &mut Option<u32>,
    ) -> Result<u32, SendError> {
        let Self { topics, settings, random, slow, .. } = self;
        let topic = &mut topics[topic_index];
        let within = |partition: PartitionIndex, topic: &Topic<W>| match u32::try_from(partition.value()) {
            Ok(index) if index < topic.count => Ok(index),
            _ => Err(SendError::NoPartition { topic: topic.name.clone(), partition, count: topic.count }),
        };
        if let Some(partition) = record.partition {
            return within(partition, topic);
        }
        match (&settings.partitioning, record.key) {
            (Partitioning::BuiltIn { ignore_keys: false, .. } | Partitioning::UniformSticky, Some(key)) => {
                Ok(partitioner::partition_for_key(key, topic.count))
            }
            (Partitioning::BuiltIn { .. }, _) => {
                // A switch may have been put off because the batch was not full; perhaps it was drained since.
                if let Some(partition) = topic.sticky.partition {
                    // What stays empty of a batch counts as used: its share is over.
                    let empty = topic.close_for(partition, &settings.form, record, timestamp, bytes);
                    *closed = empty.map(|_| partition);
                    let full = topic.all_full(partition, &settings.form);
                    if !topic.sticky.on_appended(empty.unwrap_or(0), settings.form.batch_bytes, full) {
                        return Ok(partition);
                    }
                }
                Ok(topic.switch(settings, random, slow))
            }
            (Partitioning::UniformSticky, None) => {
                if let Some(partition) = topic.sticky.partition {
                    let empty = topic.close_for(partition, &settings.form, record, timestamp, bytes);
                    *closed = empty.map(|_| partition);
                }
                let open = topic.sticky.partition.filter(|partition| !topic.all_full(*partition, &settings.form));
                Ok(match open {
                    Some(partition) => partition,
                    None => topic.switch(settings, random, slow),
                })
            }
            (Partitioning::RoundRobin, _) => {
                let turn = topic.next_in_turn;
                topic.next_in_turn = turn.wrapping_add(1);
                Ok(match &topic.available[..] {
                    [] => turn % topic.count,
                    available => available[turn as usize % available.len()],
                })
            }
            (Partitioning::Custom(partitioner), _) => {
                let partitions = |topic: &Topic<W>| -> Result<u32, SendError> {
                    let view = Partitions { count: topic.count, available: &topic.available };
                    within(partitioner.partition(record, view), topic)
                };
                let first = partitions(topic)?;
                *closed = topic.close_for(first, &settings.form, record, timestamp, bytes).map(|_| first);
                if !topic.all_full(first, &settings.form) {
                    return Ok(first);
                }
                partitioner.on_new_batch(record.topic, PartitionIndex::new(first as i32).unwrap_or_default());
                partitions(topic)
            }
        }
    }

    fn push(
        &mut self,
        place: Place,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        waiter: impl FnOnce() -> W,
        now: impl FnOnce() -> Instant,
    ) -> Result<Appended, SendError> {
        let (form, topic) = (&self.settings.form, &mut self.topics[place.topic as usize]);
        let queue = &mut topic.queues[place.partition as usize];
        let mut waiter = Some(waiter);
        let mut make = || (waiter.take().expect("a record is pushed once"))();
        let last = queue.batches.back_mut();
        let pushed = last.and_then(|last| last.try_push(form, topic.ratio, record, timestamp, &mut make));
        // What the sender must hear of, and when.
        let (bytes, news) = match pushed {
            Some(bytes) => {
                let ready = queue.batches.len() == 1 && queue.batches[0].is_full(form, topic.ratio);
                (bytes, ready.then_some(None))
            }
            None => {
                let now = now();
                let buffer = self.spare_buffers.pop().unwrap_or_else(|| {
                    let first = record_bytes_max(record.key, record.value, borrowed(record.headers)) + HEADER_BYTES;
                    BytesMut::with_capacity(form.batch_bytes.min(FIRST_BUFFER_BYTES_MAX).max(first))
                });
                let waiters = self.spare_waiters.pop().unwrap_or_default();
                let mut batch = Batch::new(form, place, queue.records, self.generation, now, buffer, waiters);
                let grown = batch.try_push(form, topic.ratio, record, timestamp, make);
                let bytes = HEADER_BYTES + grown.expect("an empty batch takes any record");
                let ready = !queue.batches.is_empty()
                    || self.settings.linger.is_zero()
                    || batch.is_full(form, topic.ratio)
                    || self.starved;
                queue.batches.push_back(batch);
                if !queue.active {
                    queue.active = true;
                    self.active.push(place);
                }
                match self.unfinished.back_mut() {
                    Some((generation, count)) if *generation == self.generation => *count += 1,
                    _ => self.unfinished.push_back((self.generation, 1)),
                }
                (bytes, Some(if ready { None } else { Some(now + self.settings.linger) }))
            }
        };
        queue.records += 1;
        topic.used = true;
        self.used_bytes += bytes;
        let leader = queue.leader;
        if record.partition.is_none() && topic.sticky.partition == Some(place.partition) {
            let full = topic.all_full(place.partition, form);
            if matches!(self.settings.partitioning, Partitioning::BuiltIn { .. })
                && topic.sticky.on_appended(bytes, form.batch_bytes, full)
            {
                topic.switch(&self.settings, &mut self.random, &self.slow);
            }
        }
        let wake = news.is_some_and(|at| self.must_wake(leader, at));
        if wake {
            self.sender = SenderState::Awake;
        }
        Ok(Appended { place, wake })
    }

    /// `at`: when something is to be done; `None` is now.
    fn must_wake(&self, leader: Option<BrokerId>, at: Option<Instant>) -> bool {
        let SenderState::Asleep(until) = self.sender else { return false };
        match (leader, at) {
            (Some(leader), _) if self.busy.contains(&leader) => false,
            (_, Some(at)) => until.is_none_or(|until| at < until),
            // Without a leader, too: it may not know yet that one is to be asked for.
            (_, None) => true,
        }
    }

    // What flush and close need.

    /// Nothing that is queued now lingers any more. The generation to ask [`Accumulator::is_flushed`] about.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        let through = self.generation;
        self.generation += 1;
        self.flush_through = Some(through);
        through
    }

    /// Whether every batch begun before that flush has ended.
    pub(crate) fn is_flushed(&self, through: u64) -> bool {
        self.unfinished.front().is_none_or(|(generation, _)| *generation > through)
    }

    /// Whether no batch is left, queued or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// Takes no further record.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.begin_flush();
    }

    /// Takes no further record, for that reason.
    pub(crate) fn set_fatal(&mut self, code: ErrorCode) {
        self.fatal = Some(code);
    }

    /// Bytes of `buffer.memory` in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Whether a record of so many bytes would find room.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes + bytes + HEADER_BYTES <= self.settings.memory_bytes
    }

    // What the sender needs.

    /// Partitions that have batches, in no particular order.
    pub(crate) fn active(&self) -> &[Place] {
        &self.active
    }

    /// Takes a partition without batches off the list of active ones. Panics when it has some.
    pub(crate) fn deactivate(&mut self, at: usize) {
        let place = self.active.swap_remove(at);
        let queue = self.queue_mut(place);
        assert!(queue.batches.is_empty(), "a queue with batches must be looked at");
        queue.active = false;
    }

    /// The oldest batch of a partition.
    pub(crate) fn front(&self, place: Place) -> Option<&Batch<W>> {
        self.queue(place).batches.front()
    }

    /// Takes it out.
    pub(crate) fn pop(&mut self, place: Place) -> Option<Batch<W>> {
        self.queue_mut(place).batches.pop_front()
    }

    /// Every batch waiting in a partition, in order.
    pub(crate) fn waiting_mut(&mut self, place: Place) -> impl Iterator<Item = &mut Batch<W>> {
        self.queue_mut(place).batches.iter_mut()
    }

    /// Puts a batch back among those of its partition, in its order.
    pub(crate) fn requeue(&mut self, batch: Batch<W>) {
        let place = batch.place;
        let queue = self.queue_mut(place);
        let at = queue.batches.iter().position(|other| other.ordinal > batch.ordinal);
        queue.batches.insert(at.unwrap_or(queue.batches.len()), batch);
        if !queue.active {
            queue.active = true;
            self.active.push(place);
        }
    }

    /// Puts the parts of a batch that was split into its place: the parts end one by one from here on.
    pub(crate) fn requeue_parts(&mut self, whole_raw_bytes: usize, parts: Vec<Batch<W>>) {
        let Some(first) = parts.first() else { return };
        let (place, generation) = (first.place, first.generation);
        let topic = &mut self.topics[place.topic as usize];
        topic.ratio = topic.ratio.max(1.0);
        let count = self.unfinished.iter_mut().find(|(one, _)| *one == generation);
        count.expect("the whole batch has not ended").1 += parts.len() as u64 - 1;
        self.used_bytes = self.used_bytes + parts.iter().map(Batch::raw_bytes).sum::<usize>() - whole_raw_bytes;
        for part in parts {
            self.requeue(part);
        }
    }

    /// Who leads a partition.
    pub(crate) fn leader(&self, place: Place) -> Option<BrokerId> {
        self.queue(place).leader
    }

    /// A topic's name.
    pub(crate) fn topic_name(&self, topic: u32) -> &TopicName {
        &self.topics[topic as usize].name
    }

    /// From when on the oldest batch of a partition, never sent before, is to be sent.
    pub(crate) fn due(&self, place: Place) -> Due {
        let (topic, queue) = (&self.topics[place.topic as usize], self.queue(place));
        let Some(batch) = queue.batches.front() else { return Due::Never };
        if queue.batches.len() > 1 || batch.is_full(&self.settings.form, topic.ratio) {
            return Due::Full;
        }
        let flushed = self.flush_through.is_some_and(|through| batch.generation <= through);
        if flushed || self.starved || self.closed {
            return Due::Pressed;
        }
        Due::At(batch.created + self.settings.linger)
    }

    /// Bytes a batch will take on the wire.
    pub(crate) fn wire_bytes(&self, batch: &Batch<W>) -> usize {
        batch.wire_bytes(&self.settings.form, self.topics[batch.place.topic as usize].ratio)
    }

    /// How batches are built.
    pub(crate) fn form(&self) -> &BatchForm {
        &self.settings.form
    }

    /// A batch has ended, well or not: its memory is free, and its buffers serve again.
    pub(crate) fn end(&mut self, batch: Batch<W>) {
        self.used_bytes -= batch.raw_bytes();
        (self.starved, self.pressed) = (false, false);
        if let Some(at) = self.unfinished.iter().position(|(generation, _)| *generation == batch.generation) {
            self.unfinished[at].1 -= 1;
            if self.unfinished[at].1 == 0 {
                self.unfinished.remove(at);
            }
        }
        let telling = RATIO_SAMPLE_BYTES_MIN.min(self.settings.form.batch_bytes / 2);
        if self.settings.form.codec != Codec::None
            && batch.raw_bytes() >= telling
            && let Some(ratio) = batch.ratio()
        {
            let estimate = &mut self.topics[batch.place.topic as usize].ratio;
            *estimate = if ratio > *estimate {
                (*estimate + RATIO_STEP_UP).max(ratio)
            } else {
                (*estimate - RATIO_STEP_DOWN).max(ratio).max(RATIO_MIN)
            };
        }
        if let Some(buffer) = batch.into_buffer() {
            self.recycle_buffer(buffer);
        }
    }

    /// Keeps a buffer for a later batch, as far as all of them stay within `buffer.memory`.
    pub(crate) fn recycle_buffer(&mut self, buffer: BytesMut) {
        let spare_bytes = self.spare_buffers.len() * self.settings.form.batch_bytes;
        let wanted = self.settings.form.batch_bytes.min(FIRST_BUFFER_BYTES_MAX);
        if buffer.capacity() >= wanted
            && buffer.capacity() <= 2 * self.settings.form.batch_bytes.max(wanted)
            && self.spare_buffers.len() < SPARE_BUFFERS_MAX
            && spare_bytes + self.used_bytes < self.settings.memory_bytes
        {
            self.spare_buffers.push(buffer);
        }
    }

    /// Keeps a list of waiters that have been told.
    pub(crate) fn recycle_waiters(&mut self, mut waiters: Vec<W>) {
        waiters.clear();
        if self.spare_waiters.len() < SPARE_BUFFERS_MAX && waiters.capacity() > 0 {
            self.spare_waiters.push(waiters);
        }
    }

    /// The sender goes to sleep: it looks again at `until`, when woken, and when a `busy` broker answers; a broker that is busy
    /// without having anything to answer is busy until `until` at most.
    pub(crate) fn sleep(
        &mut self,
        until: Option<Instant>,
        busy: SmallVec<[BrokerId; 8]>,
        slow: SmallVec<[BrokerId; 8]>,
    ) {
        self.sender = SenderState::Asleep(until);
        self.busy = busy;
        self.slow = slow;
    }

    /// The sender is at work: nobody needs to wake it.
    pub(crate) fn wake(&mut self) {
        self.sender = SenderState::Awake;
    }

    fn queue(&self, place: Place) -> &Queue<W> {
        &self.topics[place.topic as usize].queues[place.partition as usize]
    }

    fn queue_mut(&mut self, place: Place) -> &mut Queue<W> {
        &mut self.topics[place.topic as usize].queues[place.partition as usize]
    }

    /// What must hold between any two calls; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self, in_flight_raw_bytes: usize, in_flight: u64) {
        let queues = || self.topics.iter().flat_map(|topic| &topic.queues);
        let batches = || queues().flat_map(|queue| &queue.batches);
        let queued: usize = batches().map(Batch::raw_bytes).sum();
        assert_eq!(self.used_bytes, queued + in_flight_raw_bytes, "bytes are charged once");
        let unfinished: u64 = self.unfinished.iter().map(|(_, count)| count).sum();
        assert_eq!(unfinished, batches().count() as u64 + in_flight, "batches are counted once");
        for queue in queues() {
            assert!(queue.active || queue.batches.is_empty(), "a queue with batches is active");
            assert!(queue.batches.iter().is_sorted_by_key(|batch| batch.ordinal), "a queue is in order");
        }
        assert_eq!(self.active.len(), queues().filter(|queue| queue.active).count());
    }
}

/// See [`Accumulator::due`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// There is no batch.
    Never,
    /// Now: it is full.
    Full,
    /// Now: a flush, a close or want of memory presses.
    Pressed,
    /// When its linger ends.
    At(Instant),
}

impl<W> Topic<W> {
    /// Whether a partition has no batch that could take another record.
    fn all_full(&self, partition: u32, form: &BatchForm) -> bool {
        let last = self.queues.get(partition as usize).and_then(|queue| queue.batches.back());
        last.is_none_or(|batch| batch.is_full(form, self.ratio))
    }

    /// Closes the open batch of a partition if the record, of at most `bytes`, does not fit; gives the bytes that stay empty.
    fn close_for(
        &mut self,
        partition: u32,
        form: &BatchForm,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        bytes: usize,
    ) -> Option<usize> {
        let last = self.queues.get_mut(partition as usize)?.batches.back_mut()?;
        if last.wire_bytes(form, self.ratio) + bytes <= form.batch_bytes {
            return None;
        }
        last.close_for(form, self.ratio, record, timestamp)
    }

    /// The next sticky partition.
    fn switch(&mut self, settings: &AccumulatorSettings, random: &mut fastrand::Rng, slow: &[BrokerId]) -> u32 {
        let partitions = Partitions { count: self.count, available: &self.available };
        let next = match settings.partitioning {
            Partitioning::BuiltIn { adaptive: true, .. } => {
                let mut loads: SmallVec<[Load; 64]> = SmallVec::new();
                for partition in &self.available {
                    let queue = &self.queues[*partition as usize];
                    if !queue.leader.is_some_and(|leader| slow.contains(&leader)) {
                        loads.push(Load { partition: *partition, queued: queue.batches.len() as u32 });
                    }
                }
                partitioner::next_sticky(partitions, &loads, random.u32(..))
            }
            Partitioning::UniformSticky => {
                partitioner::next_for_new_batch(partitions, self.sticky.partition, random.u32(..))
            }
            _ => partitioner::next_sticky(partitions, &[], random.u32(..)),
        };
        self.sticky.switch_to(next);
        next
    }
}

#[cfg(test)]
mod tests;
