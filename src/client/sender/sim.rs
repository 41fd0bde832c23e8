//! The producer's core under chance: accumulator and sender against model brokers, in virtual time, from one seed.
//!
//! Pure, tests only. The brokers keep Kafka's rules for producers (duplicates within five batches, gaps, epochs, "whoever is
//! unknown may begin anywhere") and fail in every way a network and a cluster can: answers are lost with the request done, half
//! done or done later; leaders move and metadata lags; batches are refused, for a while or for good; topics are made again.
//! What must hold: what was acknowledged lies in the log; with idempotence once and in order, whatever failed; what failed for
//! sure does not lie there; and everything ends.
//!
//! `RINGLOG_SEED=7` runs one seed; `RINGLOG_SEEDS=5000` that many. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Done, Outcome, PartAnswer, RequestId, Sender, SenderSettings, Written};
use crate::client::accumulator::{Accumulator, AccumulatorSettings, TopicView};
use crate::client::delivery::SendError;
use crate::client::outgoing::BatchForm;
use crate::client::partitioner::Partitioning;
use crate::client::record::RecordRef;
use crate::protocol::ErrorCode;
use crate::protocol::batch::{self, Codec, Records};
use crate::types::{BrokerId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId};

const TOPIC: &str = "t";
const BROKERS: i32 = 3;
/// Faults end then, so that the rest must be delivered.
const HEALED_AT: Duration = Duration::from_secs(60);
/// Far past every time-out: whatever has not ended by then hangs.
const END: Duration = Duration::from_secs(600);

/// Which guarantees a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Idempotent,
    OneInFlight,
    Loose,
}

/// A record: its partition and its number there.
type Value = (u32, u64);

enum Event {
    /// The program sends some records.
    Send,
    Poll,
    /// A request reaches its broker; dropped when its connection is another by now, unless it was on its way already.
    Arrive {
        connection: u64,
        broker: BrokerId,
        id: RequestId,
        parts: Vec<(u32, Bytes)>,
        late: bool,
    },
    /// An answer reaches the producer.
    Answer {
        connection: u64,
        broker: BrokerId,
        id: RequestId,
        outcome: Outcome,
    },
    Disconnect(BrokerId),
    MoveLeader,
    Metadata,
    Identity,
    Recreate,
}

#[derive(Default)]
struct ProducerState {
    epoch: i16,
    next: i32,
    /// First and last sequence, first offset.
    batches: VecDeque<(i32, i32, i64)>,
}

#[derive(Default)]
struct Log {
    values: Vec<Value>,
    producers: HashMap<i64, ProducerState>,
    leader: i32,
    bytes_max: usize,
}

#[derive(Default)]
struct Connection {
    number: u64,
    /// Nothing arrives before what was sent earlier.
    last_arrival: Duration,
    last_answer: Duration,
    outstanding: BTreeSet<RequestId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Acked(Option<i64>),
    Failed { maybe_written: bool },
}

struct World {
    mode: Mode,
    random: fastrand::Rng,
    start: Instant,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    next_event: u64,
    queues: Accumulator<Value>,
    sender: Sender<Value>,
    logs: Vec<Log>,
    /// Logs of topics that were deleted.
    buried: Vec<Vec<Value>>,
    topic_id: u8,
    connections: HashMap<i32, Connection>,
    sent: Vec<u64>,
    fates: BTreeMap<Value, Fate>,
    to_send: u64,
    next_producer_id: i64,
    polled_at: Option<Duration>,
    recreations: bool,
    trace: bool,
}

fn broker(number: i32) -> BrokerId {
    BrokerId::new(number).unwrap()
}

impl World {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mode = random.choice([Mode::Idempotent, Mode::Idempotent, Mode::OneInFlight, Mode::Loose]).unwrap();
        let partitions = random.usize(1..4);
        let form = BatchForm {
            batch_bytes: random.usize(80..2000),
            codec: random.choice([Codec::None, Codec::None, Codec::Lz4]).unwrap(),
            level: None,
        };
        let queues = Accumulator::new(AccumulatorSettings {
            form,
            linger: Duration::from_millis(random.u64(0..20)),
            memory_bytes: random.usize(4000..100_000),
            record_bytes_max: 4000,
            partitioning: Partitioning::default(),
            seed,
        });
        let sender = Sender::new(SenderSettings {
            in_flight_max: if mode == Mode::OneInFlight { 1 } else { random.usize(1..6) },
            request_bytes_max: random.usize(500..5000),
            delivery_timeout: Duration::from_millis(random.u64(2000..90_000)),
            retries: if random.u8(..4) == 0 { random.u32(0..4) } else { u32::MAX },
            retry_backoff: Duration::from_millis(random.u64(1..100)),
            retry_backoff_max: Duration::from_millis(random.u64(100..1000)),
            idempotent: mode == Mode::Idempotent,
            availability_timeout: Duration::from_millis(random.u64(0..200)),
            seed,
        });
        let log = |random: &mut fastrand::Rng| Log {
            leader: random.i32(0..BROKERS),
            bytes_max: if random.bool() { 1 << 20 } else { random.usize(150..1000) },
            ..Log::default()
        };
        let logs = (0..partitions).map(|_| log(&mut random)).collect();
        let to_send = random.u64(50..1500);
        let recreations = random.u8(..8) == 0;
        let mut world = Self {
            mode,
            random,
            start: Instant::now(),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            next_event: 0,
            queues,
            sender,
            logs,
            buried: Vec::new(),
            topic_id: 1,
            connections: HashMap::new(),
            sent: vec![0; partitions],
            fates: BTreeMap::new(),
            to_send,
            next_producer_id: 1000,
            polled_at: None,
            recreations,
            trace,
        };
        world.tell_metadata();
        world.after(Duration::ZERO, Event::Send);
        for broker_number in 0..BROKERS {
            let at = world.fault_time(8000);
            world.after(at, Event::Disconnect(broker(broker_number)));
        }
        let at = world.fault_time(10_000);
        world.after(at, Event::MoveLeader);
        if world.recreations {
            world.after(Duration::from_secs(20), Event::Recreate);
        }
        world
    }

    fn fault_time(&mut self, mean_ms: u64) -> Duration {
        Duration::from_millis(1 + self.random.u64(..2 * mean_ms))
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn healed(&self) -> bool {
        self.now >= HEALED_AT
    }

    fn chance(&mut self, in_thousand: u32) -> bool {
        !self.healed() && self.random.u32(..1000) < in_thousand
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + delay, self.next_event), event);
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.next_event += 1;
        self.events.insert((at.max(self.now), self.next_event), event);
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.3} {}", self.now.as_secs_f64(), what());
        }
    }

    fn run(mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            assert!(at < END, "hangs: {} in flight", self.sender.in_flight());
            self.now = at;
            self.on(event);
            self.sender.check(&self.queues);
        }
        assert!(self.queues.is_empty(), "the queues are not empty, and nothing will happen any more");
        assert_eq!(self.to_send, 0, "the program is stuck");
        assert_eq!(self.queues.used_bytes(), 0);
        self.verify();
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Send => self.on_send(),
            Event::Poll => {
                if self.polled_at == Some(self.now) {
                    self.polled_at = None;
                }
                self.poll();
            }
            Event::Arrive { connection, broker, id, parts, late } => {
                let state = self.connections.entry(broker.value()).or_default();
                let alive = state.number == connection;
                if !alive && !late {
                    return;
                }
                let outcome = self.answer(broker, &parts);
                if !alive {
                    return;
                }
                let delay = Duration::from_micros(self.random.u64(50..3000));
                let slow =
                    if self.chance(10) { Duration::from_millis(self.random.u64(..4000)) } else { Duration::ZERO };
                let state = self.connections.entry(broker.value()).or_default();
                state.last_answer = state.last_answer.max(self.now + delay + slow);
                let at = state.last_answer;
                self.at(at, Event::Answer { connection, broker, id, outcome });
            }
            Event::Answer { connection, broker, id, outcome } => {
                let state = self.connections.entry(broker.value()).or_default();
                if state.number == connection && state.outstanding.remove(&id) {
                    self.on_outcome(id, outcome);
                }
            }
            Event::Disconnect(broker) => {
                self.disconnect(broker);
                if !self.healed() {
                    let at = self.fault_time(5000);
                    self.after(at, Event::Disconnect(broker));
                }
            }
            Event::MoveLeader => {
                let partition = self.random.usize(..self.logs.len());
                self.logs[partition].leader = self.random.i32(0..BROKERS);
                if !self.healed() {
                    let at = self.fault_time(6000);
                    self.after(at, Event::MoveLeader);
                }
            }
            Event::Metadata => {
                self.tell_metadata();
                self.poll();
            }
            Event::Identity => {
                self.next_producer_id += 1;
                self.sender.on_identity(ProducerId::new(self.next_producer_id).unwrap(), ProducerEpoch::ZERO);
                self.poll();
            }
            Event::Recreate => {
                self.say(|| "the topic is made again".to_owned());
                self.topic_id += 1;
                for log in &mut self.logs {
                    self.buried.push(std::mem::take(&mut log.values));
                    log.producers.clear();
                }
                let lag = Duration::from_millis(self.random.u64(..300));
                self.after(lag, Event::Metadata);
            }
        }
    }

    fn on_send(&mut self) {
        let burst = self.random.u64(1..40).min(self.to_send);
        for _ in 0..burst {
            let partition = self.random.usize(..self.sent.len());
            let value = (partition as u32, self.sent[partition]);
            let mut bytes = [&value.0.to_be_bytes()[..], &value.1.to_be_bytes()].concat();
            bytes.resize(12 + self.random.usize(..200), 7);
            let record = RecordRef::new(TOPIC, &bytes).partition(PartitionIndex::new(partition as i32).unwrap());
            let now = self.instant();
            match self.queues.append(&record, 0, || value, || now) {
                Ok(appended) => {
                    self.sent[partition] += 1;
                    self.to_send -= 1;
                    if appended.wake {
                        self.poll_at(self.now);
                    }
                }
                Err(SendError::WouldBlock) => {
                    if self.queues.must_wake_for_room() {
                        self.poll_at(self.now);
                    }
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
        if self.to_send > 0 {
            let pause = if self.random.u8(..4) == 0 { 800 } else { 10 };
            let pause = Duration::from_millis(self.random.u64(..pause));
            self.after(pause, Event::Send);
        } else {
            self.queues.begin_flush();
            self.poll_at(self.now);
        }
    }

    /// The shell's timer: at most one is set, and an earlier one replaces a later.
    fn poll_at(&mut self, at: Duration) {
        if self.polled_at.is_none_or(|set| at < set) {
            self.polled_at = Some(at);
            self.at(at, Event::Poll);
        }
    }

    fn poll(&mut self) {
        loop {
            let now = self.instant();
            let turn = self.sender.poll(&mut self.queues, now);
            self.tell(turn.done);
            if turn.wants_identity {
                self.sender.on_identity_asked();
                let delay = Duration::from_millis(self.random.u64(1..200));
                self.after(delay, Event::Identity);
            }
            if !turn.leaderless.is_empty() {
                self.after(Duration::from_millis(100), Event::Metadata);
            }
            if turn.requests.is_empty() {
                if let Some(at) = turn.wake_at {
                    self.poll_at(at.duration_since(self.start));
                }
                return;
            }
            for id in turn.requests {
                self.send(id);
            }
        }
    }

    fn send(&mut self, id: RequestId) {
        let request = self.sender.request_mut(id);
        let to = request.broker;
        let mut parts = Vec::new();
        for batch in &mut request.batches {
            parts.push((batch.place.partition, batch.seal().0));
        }
        let unreachable = self.chance(10);
        let state = self.connections.entry(to.value()).or_default();
        state.outstanding.insert(id);
        let connection = state.number;
        if unreachable {
            let outcome = Outcome::Lost { maybe_written: false, retriable: true, why: "could not connect".into() };
            let delay = Duration::from_millis(self.random.u64(..200));
            return self.after(delay, Event::Answer { connection, broker: to, id, outcome });
        }
        let delay = Duration::from_micros(self.random.u64(50..2000));
        let state = self.connections.entry(to.value()).or_default();
        state.last_arrival = state.last_arrival.max(self.now + delay);
        let at = state.last_arrival;
        self.at(at, Event::Arrive { connection, broker: to, id, parts, late: false });
    }

    /// Everything in flight is lost: of what has not arrived, the first few may still, later.
    fn disconnect(&mut self, from: BrokerId) {
        let state = self.connections.entry(from.value()).or_default();
        let dead = state.number;
        state.number += 1;
        let lost = std::mem::take(&mut state.outstanding);
        let mut survivors = self.random.usize(..6);
        for event in self.events.values_mut() {
            if let Event::Arrive { connection, broker, late, .. } = event
                && (*connection, *broker) == (dead, from)
                && survivors > 0
            {
                survivors -= 1;
                *late = true;
            }
        }
        for id in lost {
            let why = "the connection broke".into();
            self.on_outcome(id, Outcome::Lost { maybe_written: true, retriable: true, why });
        }
    }

    fn on_outcome(&mut self, id: RequestId, outcome: Outcome) {
        self.say(|| format!("outcome of {id}: {outcome:?}"));
        let now = self.instant();
        let after = self.sender.on_outcome(id, outcome, &mut self.queues, now);
        self.tell(after.done);
        if !after.stale.is_empty() {
            let lag = Duration::from_millis(self.random.u64(1..300));
            self.after(lag, Event::Metadata);
        }
        self.poll_at(self.now);
    }

    fn tell(&mut self, done: Vec<Done<Value>>) {
        for done in done {
            self.say(|| format!("told {:?} {:?}", done.waiters, done.result));
            for (index, value) in done.waiters.into_iter().enumerate() {
                assert_eq!(value.0, done.partition);
                let fate = match &done.result {
                    Ok(written) => Fate::Acked(written.base_offset.map(|base| base.value() + index as i64)),
                    Err(error) => Fate::Failed { maybe_written: error.maybe_written() },
                };
                assert_eq!(self.fates.insert(value, fate), None, "{value:?} was told of twice");
            }
        }
    }

    fn tell_metadata(&mut self) {
        let lost = |leaderless: bool, log: &Log| (!leaderless).then(|| broker(log.leader));
        let leaderless: Vec<bool> = (0..self.logs.len()).map(|_| self.chance(20)).collect();
        let leaders: Vec<_> = self.logs.iter().zip(leaderless).map(|(log, leaderless)| lost(leaderless, log)).collect();
        let id = Some(TopicId::from_bytes([self.topic_id; 16]));
        if let Some(topic) = self.queues.set_topic(TOPIC, TopicView::Known { id, leaders: &leaders }) {
            self.sender.on_recreated(topic);
        }
    }

    /// What a broker makes of a request.
    fn answer(&mut self, at: BrokerId, parts: &[(u32, Bytes)]) -> Outcome {
        let throttle = if self.chance(10) { Duration::from_millis(self.random.u64(..200)) } else { Duration::ZERO };
        let parts = parts
            .iter()
            .map(|(partition, bytes)| {
                if self.chance(2) {
                    return None;
                }
                let (code, base_offset) = self.append(at, *partition, bytes);
                self.say(|| format!("broker {at} partition {partition}: {code} {base_offset:?}"));
                let written = Written { base_offset: base_offset.and_then(Offset::new), append_time: None };
                Some(PartAnswer { code, message: None, written })
            })
            .collect();
        Outcome::Answered { throttle, parts }
    }

    fn append(&mut self, at: BrokerId, partition: u32, bytes: &Bytes) -> (ErrorCode, Option<i64>) {
        let leads = self.logs[partition as usize].leader == at.value();
        if !leads {
            return (ErrorCode::NOT_LEADER_OR_FOLLOWER, None);
        }
        for (in_thousand, code) in [
            (15, ErrorCode::NOT_ENOUGH_REPLICAS),
            (5, ErrorCode::CORRUPT_MESSAGE),
            (5, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            (6, ErrorCode::INVALID_RECORD),
        ] {
            if self.chance(in_thousand) {
                return (code, None);
            }
        }
        let spoilt = if self.chance(15) {
            let codes = [
                ErrorCode::REQUEST_TIMED_OUT,
                ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                // The leader moved while the replicas were waited for.
                ErrorCode::NOT_LEADER_OR_FOLLOWER,
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ];
            self.random.choice(codes)
        } else {
            None
        };
        let log = &mut self.logs[partition as usize];
        if bytes.len() > log.bytes_max && batch::parse_header(bytes).unwrap().records > 1 {
            return (ErrorCode::MESSAGE_TOO_LARGE, None);
        }
        let info = batch::check_produced(bytes).unwrap();
        let base_offset = log.values.len() as i64;
        if let Some(stamp) = info.producer {
            let (first, last) = {
                let first = stamp.base_sequence.unwrap();
                (first.value(), first.plus(info.last_offset_delta).value())
            };
            let (epoch, next) = (stamp.epoch.value(), stamp.base_sequence.unwrap().plus(info.records).value());
            if let Some(state) = log.producers.get_mut(&stamp.id.value()) {
                let known =
                    state.batches.iter().find(|batch| epoch == state.epoch && (batch.0, batch.1) == (first, last));
                if let Some((_, _, offset)) = known {
                    return (ErrorCode::NONE, Some(*offset));
                }
                if epoch < state.epoch {
                    return (ErrorCode::INVALID_PRODUCER_EPOCH, None);
                }
                if epoch > state.epoch && first != 0 || epoch == state.epoch && first != state.next {
                    return (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, None);
                }
                if epoch > state.epoch {
                    state.batches.clear();
                }
            }
            let state = log.producers.entry(stamp.id.value()).or_default();
            (state.epoch, state.next) = (epoch, next);
            state.batches.push_back((first, last, base_offset));
            if state.batches.len() > 5 {
                state.batches.pop_front();
            }
        }
        for record in Records::open(bytes, 1 << 20).unwrap().iter() {
            let value = record.unwrap().value.unwrap().to_vec();
            let of = u32::from_be_bytes(value[..4].try_into().unwrap());
            assert_eq!(of, partition, "a record went to another partition");
            log.values.push((of, u64::from_be_bytes(value[4..12].try_into().unwrap())));
        }
        (spoilt.unwrap_or(ErrorCode::NONE), Some(base_offset))
    }

    fn verify(&self) {
        let logs = || self.logs.iter().map(|log| &log.values).chain(&self.buried);
        for (partition, sent) in self.sent.iter().enumerate() {
            for number in 0..*sent {
                assert!(
                    self.fates.contains_key(&(partition as u32, number)),
                    "nobody was told of {partition}:{number}"
                );
            }
        }
        let mut copies: BTreeMap<Value, u32> = BTreeMap::new();
        for log in logs() {
            log.iter().for_each(|value| *copies.entry(*value).or_default() += 1);
            // A broker knows nothing of the producers of a topic that was made again, and takes any sequence of them.
            if self.mode == Mode::Idempotent && self.buried.is_empty() {
                for pair in log.windows(2) {
                    assert!(pair[0].1 < pair[1].1, "{:?} lies before {:?}", pair[0], pair[1]);
                }
            }
        }
        // With one request in flight records may repeat, but never overtake: the first copies are in order.
        if self.mode == Mode::OneInFlight && !self.recreations {
            for log in logs() {
                let mut seen = BTreeSet::new();
                let firsts: Vec<_> = log.iter().filter(|value| seen.insert(**value)).collect();
                // A request given up may still arrive late: then what followed it was sent before.
                let acked = firsts.iter().filter(|value| matches!(self.fates[**value], Fate::Acked(_)));
                assert!(acked.is_sorted(), "out of order with one request in flight");
            }
        }
        for (value, fate) in &self.fates {
            let copies = copies.get(value).copied().unwrap_or(0);
            match fate {
                Fate::Acked(offset) => {
                    assert!(copies >= 1, "{value:?} was acknowledged and is lost");
                    if let Some(offset) = offset.filter(|_| self.buried.is_empty()) {
                        let log = &self.logs[value.0 as usize].values;
                        assert_eq!(log[offset as usize], *value, "{value:?} is not where it was said to be");
                    }
                }
                Fate::Failed { maybe_written: false } => {
                    assert_eq!(copies, 0, "{value:?} failed for sure and was written");
                }
                Fate::Failed { maybe_written: true } => {}
            }
            if self.mode == Mode::Idempotent && self.buried.is_empty() {
                assert!(copies <= 1, "{value:?} was written {copies} times");
            }
        }
    }
}

#[test]
fn chance_loses_nothing_repeats_nothing_and_reorders_nothing() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let one = number("RINGLOG_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGLOG_SEEDS").unwrap_or(400),
    };
    println!("seeds {seeds:?}");
    for seed in seeds {
        let world = std::panic::AssertUnwindSafe(|| World::new(seed, one.is_some()).run());
        if let Err(panic) = std::panic::catch_unwind(world) {
            eprintln!("failed with RINGLOG_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
