//! The producer as programs see it: async, blocking, and with callbacks, from any thread.
//!
//! Shell. Owns the faces, the lock around the accumulator, and those who wait for room, for topics, for a flush or the end. Does
//! not own what happens on the client's thread ([`driver`]). Always: a record that was taken is told about exactly once; the lock
//! is held for one record's copy, never across a wait; nothing is allocated for a record sent with a tag.
//! Source: Kafka's `KafkaProducer`.
//!
//! **Threads.** [`Producer::try_send`] and its kin may be called from any thread, also from a task on the producer's own [`Io`]
//! thread, where no wake-up crosses threads. Callbacks and [`ProducerOptions::on_delivery`] are called on that thread: quickly,
//! please; they may send.

mod delivered;
mod driver;
mod metrics;
#[cfg(test)]
mod tests;
mod typed;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
#[expect(
    clippy::disallowed_types,
    reason = "programs send from any thread; the lock is held for one record's copy"
)]
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Notify, oneshot};

use super::accumulator::{Accumulator, AccumulatorSettings, Appended};
use super::delivery::{DeliveryError, ProduceError, SendError};
use super::error::ClientError;
use super::io::Io;
use super::outgoing::{BatchForm, borrowed};
use super::partitioner::Partitioning;
use super::record::{ProducerInterceptor, ProducerRecord, RecordMetadata, RecordRef};
use super::sequences::UNRESOLVED_MAX;
use super::settings::{Acks, PartitionerKind, ProducerSettings};
use crate::protocol::batch::record_bytes_max;
use crate::types::{TimestampMs, TopicName};
pub use delivered::DeliveredBatch;
use delivered::Waiter;
use metrics::Counters;
pub use metrics::ProducerMetrics;
pub use typed::TypedProducer;

/// What a producer can be given besides its settings.
#[derive(Default)]
pub struct ProducerOptions {
    partitioning: Option<Partitioning>,
    interceptors: Vec<Arc<dyn ProducerInterceptor>>,
    on_delivery: Option<Handler>,
    seed: Option<u64>,
}

type Handler = Box<dyn Fn(&DeliveredBatch<'_>) + Send + Sync>;

impl ProducerOptions {
    /// How partitions are chosen, whatever the settings say.
    #[must_use]
    pub fn partitioning(mut self, partitioning: Partitioning) -> Self {
        self.partitioning = Some(partitioning);
        self
    }

    /// One more interceptor, after those given before.
    #[must_use]
    pub fn interceptor(mut self, interceptor: Arc<dyn ProducerInterceptor>) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Called once for each batch that holds records sent by [`Producer::try_send_tagged`], when it was acknowledged or failed.
    #[must_use]
    pub fn on_delivery(mut self, handler: impl Fn(&DeliveredBatch<'_>) + Send + Sync + 'static) -> Self {
        self.on_delivery = Some(Box::new(handler));
        self
    }

    /// Of sticky partitions and of the jitter of retries, to see the same again.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl fmt::Debug for ProducerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerOptions").field("partitioning", &self.partitioning).finish_non_exhaustive()
    }
}

/// Sends records to a cluster. Clones share one producer. When the last clone is dropped, what was taken is still delivered, as
/// long as the process and the delivery time-out last; [`Producer::close`] waits for that.
#[derive(Clone)]
pub struct Producer(Arc<Handle>);

/// What the clones share; the driver has only what is inside.
struct Handle {
    shared: Arc<Shared>,
    io: Io,
}

struct Shared {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    core: Mutex<Core>,
    /// Wakes the driver.
    bell: Notify,
    counters: Counters,
    interceptors: Vec<Arc<dyn ProducerInterceptor>>,
    on_delivery: Option<Handler>,
    max_block: Duration,
    batch_bytes: usize,
}

struct Core {
    queues: Accumulator<Waiter>,
    /// Who waits for room, in order.
    blocked: VecDeque<Blocked>,
    /// Who waits for news of a topic: the driver takes them out.
    asked: Vec<Asked>,
    /// Topics for which records were refused by what was said of them some time ago: the driver asks again.
    doubted: Vec<TopicName>,
    /// Who waits for a flush.
    flushes: Vec<(u64, oneshot::Sender<()>)>,
    /// Set by the first close; `None` within is "as long as it takes".
    closing: Option<Option<Instant>>,
    /// The driver's last act was done.
    ended: bool,
    /// Who waits for the end.
    ends: Vec<oneshot::Sender<()>>,
}

struct Blocked {
    bytes: usize,
    deadline: Instant,
    /// True: try again. False: time is up.
    tell: oneshot::Sender<bool>,
}

struct Asked {
    topic: TopicName,
    deadline: Instant,
    /// `Ok`: look again. `Err`: time is up, and why.
    tell: Option<oneshot::Sender<Result<(), Box<str>>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        // A partitioner of the program may panic in here; its record is lost, the queues are whole.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record's way to its end: a future that may be awaited on any runtime, or dropped.
#[derive(Debug)]
#[must_use = "whether the record was delivered is only known from here"]
pub struct Delivery(oneshot::Receiver<Result<RecordMetadata, ProduceError>>);

impl Delivery {
    /// Waits for it on this thread. Not for tasks of a runtime.
    pub fn wait(self) -> Result<RecordMetadata, ProduceError> {
        futures_lite::future::block_on(self)
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, ProduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The driver ended by a panic, and its batches with it.
        let lost = || Err(ProduceError::Closed { maybe_written: true });
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or_else(|_| lost()))
    }
}

impl Producer {
    /// A producer with a thread of its own. Connects when something is to be sent. Errors: no thread can be started.
    pub fn new(settings: ProducerSettings) -> Result<Self, ClientError> {
        Self::with(settings, ProducerOptions::default())
    }

    /// As [`Producer::new`], with options.
    pub fn with(settings: ProducerSettings, options: ProducerOptions) -> Result<Self, ClientError> {
        let io = Io::start("ringlog-producer")
            .map_err(|error| ClientError::Misuse(format!("no thread for the producer: {error}").into()))?;
        Self::on_with(&io, settings, options)
    }

    /// A producer on a thread that others live on, too. Errors: settings that contradict each other.
    pub fn on(io: &Io, settings: ProducerSettings) -> Result<Self, ClientError> {
        Self::on_with(io, settings, ProducerOptions::default())
    }

    /// As [`Producer::on`], with options.
    pub fn on_with(io: &Io, settings: ProducerSettings, options: ProducerOptions) -> Result<Self, ClientError> {
        check(&settings)?;
        let settings = settings.bounded();
        let ProducerOptions { partitioning, interceptors, on_delivery, seed } = options;
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let memory_bytes = usize::try_from(settings.buffer_memory).unwrap_or(usize::MAX);
        let queues = Accumulator::new(AccumulatorSettings {
            form: BatchForm {
                batch_bytes: settings.batch_size,
                codec: settings.compression,
                level: settings.compression_level,
            },
            linger: settings.linger,
            memory_bytes,
            record_bytes_max: settings.max_request_size,
            partitioning: partitioning.unwrap_or_else(|| partitioning_of(&settings)),
            seed,
        });
        let core = Core {
            queues,
            blocked: VecDeque::new(),
            asked: Vec::new(),
            doubted: Vec::new(),
            flushes: Vec::new(),
            closing: None,
            ended: false,
            ends: Vec::new(),
        };
        let shared = Arc::new(Shared {
            #[expect(clippy::disallowed_types, reason = "see the import")]
            core: Mutex::new(core),
            bell: Notify::new(),
            counters: Counters::default(),
            interceptors,
            on_delivery,
            max_block: settings.max_block,
            batch_bytes: settings.batch_size,
        });
        let of_driver = Arc::clone(&shared);
        io.spawn(move || driver::run(of_driver, settings, seed));
        Ok(Self(Arc::new(Handle { shared, io: io.clone() })))
    }

    /// The thread it lives on.
    pub fn io(&self) -> &Io {
        &self.0.io
    }

    /// Sends a record: waits, up to `max.block.ms`, for news of its topic and for room, and gives the way to its end.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, SendError> {
        let record = self.intercepted(record);
        let borrowed = RecordRef::from(&record);
        let taken = self.until_taken(&borrowed, |timestamp| {
            let (sender, receiver) = oneshot::channel();
            (Waiter::Future(timestamp, sender), receiver)
        });
        taken.await.map(Delivery).inspect_err(|error| self.tell_refused(error))
    }

    /// As [`Producer::send`], and waits for the end, all of it on this thread. Not for tasks of a runtime.
    pub fn send_sync(&self, record: ProducerRecord) -> Result<RecordMetadata, DeliveryError> {
        futures_lite::future::block_on(async {
            let delivery = self.send(record).await?;
            Ok(delivery.await?)
        })
    }

    /// Sends a record without ever waiting; `callback` is called when it is acknowledged or has failed, once. Errors: besides
    /// those of the record, `WouldBlock` when `buffer.memory` is full and `NoMetadata` when nothing is known of the topic yet
    /// ([`Producer::partition_count`] waits for that); the callback is dropped then.
    pub fn try_send<'r>(
        &self,
        record: impl Into<RecordRef<'r>>,
        callback: impl FnOnce(Result<RecordMetadata, ProduceError>) + Send + 'static,
    ) -> Result<(), SendError> {
        self.try_with(record.into(), |timestamp| Waiter::Callback(timestamp, Box::new(callback)))
    }

    /// As [`Producer::try_send`], for very many records: instead of a callback `tag` comes back through
    /// [`ProducerOptions::on_delivery`], once per batch, so that nothing is allocated for a record.
    pub fn try_send_tagged<'r>(&self, record: impl Into<RecordRef<'r>>, tag: u64) -> Result<(), SendError> {
        self.try_with(record.into(), |_| Waiter::Tag(tag))
    }

    fn try_with(&self, record: RecordRef<'_>, waiter: impl FnOnce(TimestampMs) -> Waiter) -> Result<(), SendError> {
        if self.0.shared.interceptors.is_empty() {
            return self.try_append(&record, waiter);
        }
        let record = self.intercepted(record.to_record());
        let tried = self.try_append(&RecordRef::from(&record), waiter);
        if let Err(error) = &tried {
            self.tell_refused(error);
        }
        tried
    }

    #[inline]
    fn try_append(&self, record: &RecordRef<'_>, waiter: impl FnOnce(TimestampMs) -> Waiter) -> Result<(), SendError> {
        let shared = &self.0.shared;
        let timestamp = record.timestamp.unwrap_or_else(now_ms);
        let mut core = shared.lock();
        match core.queues.append(record, timestamp, || waiter(timestamp), Instant::now) {
            Ok(Appended { wake: false, .. }) => Ok(()),
            Ok(Appended { wake: true, .. }) => {
                drop(core);
                shared.bell.notify_one();
                Ok(())
            }
            Err(error) => Err(self.refused(core, error)),
        }
    }

    #[cold]
    fn refused(&self, mut core: MutexGuard<'_, Core>, error: SendError) -> SendError {
        let wake = match &error {
            SendError::WouldBlock => core.queues.must_wake_for_room(),
            SendError::NoMetadata { topic } => {
                let asked = core.asked.iter().any(|asked| asked.topic == *topic);
                if !asked {
                    let deadline = Instant::now() + self.0.shared.max_block;
                    core.asked.push(Asked { topic: topic.clone(), deadline, tell: None });
                }
                !asked
            }
            // This record has its answer; the next one may have another. Nothing else would ask before the topic is forgotten.
            SendError::Topic { topic, .. } | SendError::NoPartition { topic, .. } => {
                let doubted = core.doubted.contains(topic);
                if !doubted {
                    core.doubted.push(topic.clone());
                }
                !doubted
            }
            _ => false,
        };
        drop(core);
        if wake {
            self.0.shared.bell.notify_one();
        }
        error
    }

    async fn until_taken<T>(
        &self,
        record: &RecordRef<'_>,
        waiter: impl Fn(TimestampMs) -> (Waiter, T),
    ) -> Result<T, SendError> {
        let shared = &self.0.shared;
        let deadline = Instant::now() + shared.max_block;
        let timestamp = record.timestamp.unwrap_or_else(now_ms);
        loop {
            let mut ticket = None;
            let make = || {
                let (waiter, given) = waiter(timestamp);
                ticket = Some(given);
                waiter
            };
            let waits = {
                let mut core = shared.lock();
                match core.queues.append(record, timestamp, make, Instant::now) {
                    Ok(Appended { wake, .. }) => {
                        drop(core);
                        if wake {
                            shared.bell.notify_one();
                        }
                        return Ok(ticket.expect("the waiter of a record that was taken was made"));
                    }
                    Err(SendError::WouldBlock) => {
                        let (tell, told) = oneshot::channel();
                        let bytes = record_bytes_max(record.key, record.value, borrowed(record.headers));
                        core.queues.must_wake_for_room();
                        core.blocked.push_back(Blocked { bytes, deadline, tell });
                        Waits::ForRoom(told)
                    }
                    Err(SendError::NoMetadata { topic }) => {
                        let (tell, told) = oneshot::channel();
                        core.asked.push(Asked { topic: topic.clone(), deadline, tell: Some(tell) });
                        Waits::ForTopic(topic, told)
                    }
                    Err(error) => return Err(self.refused(core, error)),
                }
            };
            shared.bell.notify_one();
            match waits {
                Waits::ForRoom(told) => match told.await {
                    Ok(true) => {}
                    Ok(false) => return Err(SendError::NoRoom { after: shared.max_block }),
                    Err(_) => return Err(SendError::Closed),
                },
                Waits::ForTopic(topic, told) => match told.await {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return Err(SendError::NoTopic { topic, after: shared.max_block, why }),
                    Err(_) => return Err(SendError::Closed),
                },
            }
        }
    }

    /// How many partitions a topic has; waits for news of it up to `max.block.ms`. To be called before [`Producer::try_send`].
    pub async fn partition_count(&self, topic: &str) -> Result<u32, SendError> {
        let shared = &self.0.shared;
        let deadline = Instant::now() + shared.max_block;
        loop {
            let told = {
                let mut core = shared.lock();
                if core.closing.is_some() {
                    return Err(SendError::Closed);
                }
                match core.queues.partition_count(topic) {
                    Ok(Some(count)) => return Ok(count),
                    Ok(None) => {}
                    Err(error) => return Err(self.refused(core, error)),
                }
                let (tell, told) = oneshot::channel();
                core.asked.push(Asked { topic: topic.into(), deadline, tell: Some(tell) });
                told
            };
            shared.bell.notify_one();
            match told.await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => {
                    return Err(SendError::NoTopic { topic: topic.into(), after: shared.max_block, why });
                }
                Err(_) => return Err(SendError::Closed),
            }
        }
    }

    /// Sends at once what lingers, and waits until every record taken before has been acknowledged or has failed.
    pub async fn flush(&self) {
        let told = {
            let mut core = self.0.shared.lock();
            let through = core.queues.begin_flush();
            if core.ended || core.queues.is_flushed(through) {
                return;
            }
            let (tell, told) = oneshot::channel();
            core.flushes.push((through, tell));
            told
        };
        self.0.shared.bell.notify_one();
        _ = told.await;
    }

    /// [`Producer::flush`] on this thread. Not for tasks of a runtime.
    pub fn flush_sync(&self) {
        futures_lite::future::block_on(self.flush());
    }

    /// Takes no further record, and waits until all have been acknowledged or have failed; at `deadline` from now the rest fails
    /// with [`ProduceError::Closed`]. Further calls wait for the same end.
    pub async fn close(&self, deadline: Duration) {
        let told = {
            let mut core = self.0.shared.lock();
            core.begin_close(Instant::now().checked_add(deadline));
            if core.ended {
                return;
            }
            let (tell, told) = oneshot::channel();
            core.ends.push(tell);
            told
        };
        self.0.shared.bell.notify_one();
        _ = told.await;
    }

    /// [`Producer::close`] on this thread. Not for tasks of a runtime.
    pub fn close_sync(&self, deadline: Duration) {
        futures_lite::future::block_on(self.close(deadline));
    }

    /// What it did so far.
    pub fn metrics(&self) -> ProducerMetrics {
        let used_bytes = self.0.shared.lock().queues.used_bytes();
        self.0.shared.counters.snapshot(used_bytes as u64, self.0.shared.batch_bytes as u64)
    }

    fn intercepted(&self, record: ProducerRecord) -> ProducerRecord {
        self.0.shared.interceptors.iter().fold(record, |record, interceptor| interceptor.on_send(record))
    }

    fn tell_refused(&self, error: &SendError) {
        if !self.0.shared.interceptors.is_empty() {
            let error = ProduceError::NotSent(Box::new(error.clone()));
            for interceptor in &self.0.shared.interceptors {
                interceptor.on_acknowledgement(Err(&error));
            }
        }
    }
}

enum Waits {
    ForRoom(oneshot::Receiver<bool>),
    ForTopic(TopicName, oneshot::Receiver<Result<(), Box<str>>>),
}

impl Core {
    fn begin_close(&mut self, deadline: Option<Instant>) {
        self.queues.close();
        // An earlier deadline than one that is set already holds; a later one does not.
        let earlier = match self.closing {
            None | Some(None) => deadline,
            Some(Some(set)) => Some(deadline.map_or(set, |deadline| deadline.min(set))),
        };
        self.closing = Some(earlier);
        for blocked in self.blocked.drain(..) {
            // Nobody waits any more: then nobody needs to know.
            _ = blocked.tell.send(true);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        if core.closing.is_none() {
            core.begin_close(None);
        }
        drop(core);
        self.shared.bell.notify_one();
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

fn partitioning_of(settings: &ProducerSettings) -> Partitioning {
    match settings.partitioner {
        PartitionerKind::Default => Partitioning::BuiltIn {
            adaptive: settings.partitioner_adaptive,
            availability_timeout: settings.partitioner_availability_timeout.unwrap_or(Duration::ZERO),
            ignore_keys: settings.partitioner_ignore_keys,
        },
        PartitionerKind::RoundRobin => Partitioning::RoundRobin,
    }
}

/// What settings put together by hand can get wrong; those that were built from words are past this.
fn check(settings: &ProducerSettings) -> Result<(), ClientError> {
    let wrong = |what: &str| Err(ClientError::Misuse(what.into()));
    if settings.max_in_flight == 0 {
        return wrong("max.in.flight.requests.per.connection is at least 1");
    }
    if settings.enable_idempotence && settings.max_in_flight > UNRESOLVED_MAX {
        return wrong("with enable.idempotence, max.in.flight.requests.per.connection is at most 5");
    }
    if settings.enable_idempotence && settings.acks != Acks::All {
        return wrong("enable.idempotence needs acks=all");
    }
    Ok(())
}

/// The wall clock.
fn now_ms() -> TimestampMs {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::try_from(since_1970.as_millis()).unwrap_or(TimestampMs::MAX)
}
