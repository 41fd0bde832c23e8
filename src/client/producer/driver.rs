//! The task behind a producer: it asks the sender what goes now, seals it, sends it, and tells what came of it.
//!
//! Shell, on the thread of an `Io`. Owns the network and the sender's state. Does not own decisions: those are the sender's. Always:
//! compression and checksums are made outside the lock, callbacks are called outside of everything; the task ends when the
//! producer was closed and nothing is left, or at the closing deadline; however it ends, nobody is left waiting.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::task::{JoinSet, spawn_local};

use super::delivered::Waiter;
use super::{Asked, Core, Shared};
use crate::client::accumulator::TopicView;
use crate::client::error::{CallError, ClientError};
use crate::client::network::{Answer, Network, Target};
use crate::client::sender::{Done, Outcome, PartAnswer, RequestId, Sender, SenderSettings, Turn, Written};
use crate::client::settings::{Acks, ProducerSettings};
use crate::protocol::admin::InitProducerIdRequest;
use crate::protocol::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopic,
};
use crate::protocol::{ErrorCode, Records};
use crate::types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName};

/// How often topics in use are named to the network, which lets go of those nobody names for `metadata.max.idle.ms`.
const TOUCH_INTERVAL: Duration = Duration::from_secs(20);
/// When there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

struct Driver {
    shared: Arc<Shared>,
    network: Network,
    settings: ProducerSettings,
    sender: RefCell<Sender<Waiter>>,
    /// Topic names by the accumulator's numbers.
    names: RefCell<Vec<TopicName>>,
    /// On their way back to the accumulator at the next lock.
    spare_buffers: RefCell<Vec<BytesMut>>,
    spare_waiters: RefCell<Vec<Vec<Waiter>>>,
    touched: Cell<Instant>,
    /// Topics that are asked about for `try_send`.
    asking: RefCell<BTreeSet<TopicName>>,
    /// Those who ask about topics, until the producer is closed.
    asks: RefCell<JoinSet<()>>,
}

/// What one look under the lock gave.
struct Look {
    turn: Turn<Waiter>,
    /// News of topics that somebody waits for.
    asked: Vec<Asked>,
    /// Topics to ask about again.
    doubted: Vec<TopicName>,
    /// Once the producer was closed.
    closing: Option<Closing>,
    wake_at: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Closing {
    /// `None`: as long as it takes.
    deadline: Option<Instant>,
    /// Nothing is queued or in flight.
    is_empty: bool,
}

/// However the driver ends, by a panic too: its batches are told, and whoever waits for it.
struct Ending(Rc<Driver>);

impl Drop for Ending {
    fn drop(&mut self) {
        let Self(driver) = self;
        let mut core = driver.shared.lock();
        core.queues.close();
        core.ended = true;
        core.blocked.clear();
        core.asked.clear();
        let (flushes, ends) = (std::mem::take(&mut core.flushes), std::mem::take(&mut core.ends));
        // A second panic, during the first, would end the process: where it was the sender's own, its batches are lost.
        let left = catch_unwind(AssertUnwindSafe(|| driver.sender.borrow_mut().abort(&mut core.queues)));
        drop(core);
        driver.asks.borrow_mut().abort_all();
        driver.tell(left.unwrap_or_default());
        for tell in flushes.into_iter().map(|(_, tell)| tell).chain(ends) {
            // Nobody waits any more: then nobody needs to know.
            _ = tell.send(());
        }
    }
}

/// The life of a producer.
pub(super) async fn run(shared: Arc<Shared>, settings: ProducerSettings, seed: u64) {
    let network = Network::new(settings.client.clone());
    let sender = Sender::new(SenderSettings {
        in_flight_max: settings.max_in_flight,
        request_bytes_max: settings.max_request_size,
        delivery_timeout: settings.delivery_timeout,
        retries: settings.retries,
        retry_backoff: settings.client.retry_backoff,
        retry_backoff_max: settings.client.retry_backoff_max,
        idempotent: settings.enable_idempotence,
        availability_timeout: settings.partitioner_availability_timeout.unwrap_or(Duration::ZERO),
        seed: seed.rotate_left(32),
    });
    let driver = Rc::new(Driver {
        shared,
        network,
        settings,
        sender: RefCell::new(sender),
        names: RefCell::default(),
        spare_buffers: RefCell::default(),
        spare_waiters: RefCell::default(),
        touched: Cell::new(Instant::now()),
        asking: RefCell::default(),
        asks: RefCell::default(),
    });
    let _ending = Ending(Rc::clone(&driver));
    let mut changes = driver.network.on_metadata_change();
    while let Some(wake_at) = driver.pump() {
        tokio::select! {
            biased;
            () = driver.shared.bell.notified() => {}
            // An error would mean that the network is gone, which the driver holds.
            _ = changes.changed() => driver.sync_topics(),
            () = tokio::time::sleep_until(wake_at.into()) => {}
        }
    }
}

impl Driver {
    /// Does all that can be done now. When to do it again at the latest; `None` when the producer's life is over.
    fn pump(self: &Rc<Self>) -> Option<Instant> {
        loop {
            let now = Instant::now();
            let Look { turn, asked, doubted, closing, wake_at } = self.look(now);
            for topic in doubted {
                self.network.invalidate(&topic);
            }
            self.ask_about(asked);
            if closing.is_some() {
                // Whoever waits for news of a topic sees that nobody will tell.
                self.asks.borrow_mut().abort_all();
            }
            if turn.wants_identity {
                self.sender.borrow_mut().on_identity_asked();
                spawn_local(Rc::clone(self).ask_identity());
            }
            for topic in &turn.leaderless {
                self.network.invalidate(&self.names.borrow()[*topic as usize]);
            }
            for id in &turn.requests {
                self.send(*id);
            }
            let told = !turn.done.is_empty();
            self.tell(turn.done);
            {
                let sender = self.sender.borrow();
                self.shared.counters.take_over(sender.counts(), sender.in_flight());
            }
            if closing.is_some_and(|closing| self.is_over(closing, turn.requests.is_empty(), now)) {
                return None;
            }
            if turn.requests.is_empty() && !told {
                if now.duration_since(self.touched.get()) > TOUCH_INTERVAL {
                    self.touch(now);
                }
                let closes_at = closing.and_then(|closing| closing.deadline);
                return Some([wake_at, closes_at].into_iter().flatten().min().unwrap_or(now + LONG));
            }
        }
    }

    /// Everything that wants the lock, at once.
    fn look(&self, now: Instant) -> Look {
        let mut core = self.shared.lock();
        self.give_back(&mut core);
        let turn = self.sender.borrow_mut().poll(&mut core.queues, now);
        let blocked = self.serve_blocked(&mut core, now);
        let (asked, doubted) = (std::mem::take(&mut core.asked), std::mem::take(&mut core.doubted));
        let Core { queues, flushes, .. } = &mut *core;
        for (_, tell) in flushes.extract_if(.., |(through, _)| queues.is_flushed(*through)) {
            // Nobody waits any more: then nobody needs to know.
            _ = tell.send(());
        }
        let closing = core.closing.map(|deadline| Closing { deadline, is_empty: core.queues.is_empty() });
        let wake_at = [turn.wake_at, blocked].into_iter().flatten().min();
        Look { turn, asked, doubted, closing, wake_at }
    }

    fn ask_about(self: &Rc<Self>, asked: Vec<Asked>) {
        for wish in asked {
            // A program that tries again and again is one wish.
            if wish.tell.is_some() || self.asking.borrow_mut().insert(wish.topic.clone()) {
                let mut asks = self.asks.borrow_mut();
                while asks.try_join_next().is_some() {}
                asks.spawn_local(Rc::clone(self).ask(wish));
            }
        }
    }

    /// Whether a producer that is closing has nothing left, or no time: then what is left is told so.
    fn is_over(&self, closing: Closing, sent_nothing: bool, now: Instant) -> bool {
        if closing.is_empty && sent_nothing {
            return true;
        }
        if closing.deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        let left = {
            let mut core = self.shared.lock();
            self.sender.borrow_mut().abort(&mut core.queues)
        };
        self.tell(left);
        true
    }

    fn give_back(&self, core: &mut Core) {
        for buffer in self.spare_buffers.borrow_mut().drain(..) {
            core.queues.recycle_buffer(buffer);
        }
        for waiters in self.spare_waiters.borrow_mut().drain(..) {
            core.queues.recycle_waiters(waiters);
        }
    }

    /// Lets those try again who would find room now, in their order; tells those whose time is up. The next deadline.
    fn serve_blocked(&self, core: &mut Core, now: Instant) -> Option<Instant> {
        let mut wanted = 0;
        while let Some(first) = core.blocked.front() {
            wanted += first.bytes;
            let room = core.queues.has_room(wanted);
            if !room && first.deadline > now {
                break;
            }
            if let Some(blocked) = core.blocked.pop_front()
                && blocked.tell.send(room).is_err()
            {
                wanted -= blocked.bytes;
            }
        }
        core.blocked.iter().map(|blocked| blocked.deadline).min()
    }

    fn touch(&self, now: Instant) {
        let used = self.shared.lock().queues.take_used();
        self.network.touch(&used.iter().map(|name| &**name).collect::<Vec<_>>());
        self.touched.set(now);
    }

    /// Seals the batches of a request and hands it to the network.
    fn send(self: &Rc<Self>, id: RequestId) {
        let counters = &self.shared.counters;
        let mut sender = self.sender.borrow_mut();
        let in_flight = sender.request_mut(id);
        let broker = in_flight.broker;
        let names = self.names.borrow();
        let mut records: Vec<Bytes> = Vec::with_capacity(in_flight.batches.len());
        let mut topics: SmallVec<[ProduceTopic<'_>; 1]> = SmallVec::new();
        let mut topic_before = None;
        let (mut wire_bytes, mut raw_bytes) = (0, 0);
        for batch in &mut in_flight.batches {
            let (bytes, kept) = batch.seal();
            self.spare_buffers.borrow_mut().extend(kept);
            wire_bytes += bytes.len();
            raw_bytes += batch.raw_bytes();
            let partition = ProducePartition {
                index: batch.place.partition.cast_signed(),
                records: Some(Records::of_length(bytes.len())),
            };
            records.push(bytes);
            if topic_before != Some(batch.place.topic) {
                topic_before = Some(batch.place.topic);
                let name = &*names[batch.place.topic as usize];
                topics.push(ProduceTopic { name: name.into(), partition_data: SmallVec::new() });
            }
            topics.last_mut().expect("pushed above").partition_data.push(partition);
        }
        counters.add(|counters| &counters.requests, 1);
        counters.add(|counters| &counters.batches, records.len() as u64);
        counters.add(|counters| &counters.batch_wire_bytes, wire_bytes as u64);
        counters.add(|counters| &counters.batch_raw_bytes, raw_bytes as u64);
        let timeout = self.settings.client.request_timeout;
        let request = ProduceRequest {
            transactional_id: None,
            acks: self.settings.acks.wire(),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            topic_data: topics,
        };
        let pending = match self.settings.acks {
            Acks::None => self.network.send_unanswered(broker, &request, records, timeout),
            Acks::Leader | Acks::All => self.network.send(broker, &request, records, timeout),
        };
        // Weak: at the closing deadline the connections end with the driver, whatever is in flight.
        let driver = Rc::downgrade(self);
        spawn_local(async move {
            let answer = pending.await;
            if let Some(driver) = driver.upgrade() {
                driver.on_answer(id, answer);
                driver.shared.bell.notify_one();
            }
        });
    }

    fn on_answer(&self, id: RequestId, answer: Answer) {
        let outcome = match &answer {
            Ok(_) if self.settings.acks == Acks::None => Outcome::Unanswered,
            Ok(reply) => match reply.read::<ProduceRequest<'_>>() {
                Ok(response) => self.outcome_of(id, &response),
                Err(error) => Outcome::Lost { maybe_written: true, retriable: false, why: error.to_string().into() },
            },
            Err(error) => Outcome::Lost {
                maybe_written: error.maybe_done(),
                retriable: error.retriable(),
                why: error.to_string().into(),
            },
        };
        let after = {
            let mut core = self.shared.lock();
            self.sender.borrow_mut().on_outcome(id, outcome, &mut core.queues, Instant::now())
        };
        for topic in &after.stale {
            self.network.invalidate(&self.names.borrow()[*topic as usize]);
        }
        self.tell(after.done);
    }

    /// Puts an answer's parts into the order of the request's batches, and learns what it says of leaders.
    fn outcome_of(&self, id: RequestId, response: &ProduceResponse<'_>) -> Outcome {
        let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
        self.shared.counters.add(|counters| &counters.throttle_ms, throttle.as_millis() as u64);
        let mut sender = self.sender.borrow_mut();
        let names = self.names.borrow();
        let mut led_elsewhere = false;
        // Brokers answer in the order they were asked: what is looked for is nearly always the next part.
        let mut told = response
            .responses
            .iter()
            .flat_map(|topic| topic.partition_responses.iter().map(move |partition| (&*topic.name, partition)));
        let parts = sender.request_mut(id).batches.iter().map(|batch| {
            let (name, index) = (&*names[batch.place.topic as usize], batch.place.partition.cast_signed());
            let is_it =
                |(topic, partition): &(&str, &ProducePartitionResponse<'_>)| partition.index == index && *topic == name;
            let found = told.next().filter(is_it).or_else(|| {
                let mut all = response
                    .responses
                    .iter()
                    .flat_map(|topic| topic.partition_responses.iter().map(move |partition| (&*topic.name, partition)));
                all.find(is_it)
            });
            found.map(|(_, partition)| {
                led_elsewhere |= partition.current_leader.leader_id >= 0;
                part_of(partition)
            })
        });
        let parts = parts.collect();
        drop((names, sender));
        if led_elsewhere {
            self.learn(response);
        }
        Outcome::Answered { throttle, parts }
    }

    /// KIP-951: who leads now, as the broker that does not says.
    fn learn(&self, response: &ProduceResponse<'_>) {
        let brokers = response.node_endpoints.iter().map(|node| (node.node_id, &*node.host, node.port));
        self.network.learn(brokers, |cluster| {
            for topic in &response.responses {
                for partition in &topic.partition_responses {
                    let leader = &partition.current_leader;
                    if let (Some(index), Some(id), Some(epoch)) = (
                        PartitionIndex::new(partition.index),
                        BrokerId::new(leader.leader_id),
                        LeaderEpoch::new(leader.leader_epoch),
                    ) {
                        cluster.learn_leader(&topic.name, index, id, epoch);
                    }
                }
            }
        });
        self.sync_topics();
    }

    fn tell(&self, done: Vec<Done<Waiter>>) {
        for done in done {
            let count = done.waiters.len() as u64;
            match &done.result {
                Ok(_) => self.shared.counters.add(|counters| &counters.records_acked, count),
                Err(_) => self.shared.counters.add(|counters| &counters.records_failed, count),
            }
            let spare = self.shared.tell(done);
            self.spare_waiters.borrow_mut().push(spare);
        }
    }

    /// Gives the accumulator what the cluster says of its topics.
    fn sync_topics(&self) {
        let mut core = self.shared.lock();
        let names: Vec<TopicName> = core.queues.topic_names().cloned().collect();
        for name in &names {
            self.sync_topic(&mut core, name);
        }
    }

    fn sync_topic(&self, core: &mut Core, name: &str) {
        let cluster = self.network.cluster();
        let Some(topic) = cluster.topic(name) else { return };
        let mut leaders: SmallVec<[Option<BrokerId>; 64]> = SmallVec::new();
        let view = match topic.error {
            Some(code) => TopicView::Broken(code),
            None => {
                leaders.extend(topic.partitions.iter().map(|partition| partition.leader));
                TopicView::Known { id: topic.id, leaders: &leaders }
            }
        };
        if let Some(recreated) = core.queues.set_topic(name, view) {
            self.sender.borrow_mut().on_recreated(recreated);
        }
        let mut names = self.names.borrow_mut();
        if names.len() < core.queues.topic_names().len() {
            names.push(name.into());
        }
    }

    /// Until something final is known of a topic, or the wish has ended.
    async fn ask(self: Rc<Self>, wish: Asked) {
        let Asked { topic, deadline, tell } = wish;
        // What the brokers last said is worth more than that the time was up for asking once more.
        let (mut failures, mut said): (_, Option<Box<str>>) = (0, None);
        let outcome = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let why: Box<str> = match self.network.metadata_for(&[&topic], left).await {
                Ok(()) => {
                    let code = {
                        let mut core = self.shared.lock();
                        self.sync_topic(&mut core, &topic);
                        self.network.cluster().topic(&topic).and_then(|topic| topic.error)
                    };
                    match code {
                        Some(code) if code.retriable() => code.sentence().into(),
                        _ => break Ok(()),
                    }
                }
                Err(ClientError::TimedOut { last: Some(last), .. }) => break Err(last.to_string().into()),
                Err(error) => break Err(said.unwrap_or_else(|| error.to_string().into())),
            };
            failures += 1;
            let wait = self.network.retry_backoff(failures);
            if Instant::now() + wait >= deadline {
                break Err(why);
            }
            said = Some(why);
            tokio::time::sleep(wait).await;
            self.network.invalidate(&topic);
        };
        match tell {
            // Nobody waits any more: then nobody needs to know.
            Some(tell) => _ = tell.send(outcome),
            None => _ = self.asking.borrow_mut().remove(&topic),
        }
        self.shared.bell.notify_one();
    }

    /// Until there is a producer id, or a word that there will be none.
    async fn ask_identity(self: Rc<Self>) {
        let mut failures = 0;
        loop {
            let request = InitProducerIdRequest { transaction_timeout_ms: i32::MAX, ..Default::default() };
            let asked = self.network.call(Target::Any, &request, self.settings.client.request_timeout).await;
            let fatal = match asked {
                Ok(reply) => match reply.read::<InitProducerIdRequest<'_>>() {
                    Ok(answer) if answer.error_code == ErrorCode::NONE => {
                        match (ProducerId::new(answer.producer_id), ProducerEpoch::new(answer.producer_epoch)) {
                            (Some(id), Some(epoch)) => {
                                self.sender.borrow_mut().on_identity(id, epoch);
                                return self.shared.bell.notify_one();
                            }
                            _ => Some(ErrorCode::UNKNOWN_SERVER_ERROR),
                        }
                    }
                    Ok(answer) if answer.error_code.retriable() => None,
                    Ok(answer) => Some(answer.error_code),
                    Err(_) => Some(ErrorCode::UNKNOWN_SERVER_ERROR),
                },
                Err(CallError::UnsupportedVersion { .. }) => Some(ErrorCode::UNSUPPORTED_VERSION),
                Err(_) => None,
            };
            if let Some(code) = fatal {
                tracing::warn!(%code, "the cluster gives no producer id; enable.idempotence=false does without");
                let mut core = self.shared.lock();
                self.sender.borrow_mut().on_fatal(code, &mut core.queues);
                drop(core);
                return self.shared.bell.notify_one();
            }
            failures += 1;
            tokio::time::sleep(self.network.retry_backoff(failures)).await;
            if self.shared.lock().ended {
                return;
            }
        }
    }
}

fn part_of(partition: &ProducePartitionResponse<'_>) -> PartAnswer {
    let of_record = partition.record_errors.first().and_then(|record| record.batch_index_error_message.as_deref());
    PartAnswer {
        code: partition.error_code,
        message: partition.error_message.as_deref().or(of_record).map(Into::into),
        written: Written {
            base_offset: Offset::new(partition.base_offset),
            append_time: (partition.log_append_time_ms >= 0).then_some(partition.log_append_time_ms),
        },
    }
}
