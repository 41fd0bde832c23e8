//! Shell. Kill -9 at any moment: nothing acknowledged is lost, nothing is there twice, order holds, groups' offsets never go back.
//!
//! Four idempotent producers (acks=all, each with another codec) and a group whose members come and go, against the built
//! binary, which is killed at random moments of its work and of its start and comes back on the same directory and port.
//! What the clients saw is judged by `ringlog::history`. `RINGLOG_KILLS` (20) says how often; the seed of the schedule is
//! printed, and `RINGLOG_SEED` takes it back (the schedule repeats, the race with the broker does not).

#![allow(clippy::unwrap_used)] // a test ends by panicking

mod harness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset as ClientOffset, TopicPartitionList};
use ringlog::history::{Event, History, Report, Value};
use ringlog::types::Offset;

use harness::clients::{self, TIME_MAX};
use harness::{Broker, lasting_port, pause, wait_for};

const PARTITIONS: u32 = 4;
const CODECS: [&str; 4] = ["none", "lz4", "zstd", "snappy"];
const GROUP: u32 = 0;
/// The consumer that reads everything at the end, told apart from the members, which are numbered from 0.
const FINAL_READER: u32 = u32::MAX;

fn from_environment(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn nothing_acknowledged_is_lost_doubled_or_reordered_by_kill_9() {
    let kills = from_environment("RINGLOG_KILLS").unwrap_or(20);
    let seed = from_environment("RINGLOG_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("RINGLOG_SEED={seed} RINGLOG_KILLS={kills}");
    let mut random = fastrand::Rng::with_seed(seed);

    let mut broker = Broker::start_on_port(lasting_port(&mut random), &[]);
    let bootstrap = broker.kafka.to_string();
    let topic = clients::create_topic(&bootstrap, "kill", PARTITIONS as i32, &[]);
    let (events, judge) = spawn_judge();
    let run = Run {
        bootstrap,
        topic,
        group: clients::unique("kill-group"),
        events,
        acked: Arc::default(),
        committed: Arc::default(),
        refusal: Arc::default(),
    };
    let producers: Vec<_> = (0..CODECS.len() as u16).map(|id| run.spawn_producer(id, random.fork())).collect();
    let mut members: Vec<_> = (0..2).map(|id| run.spawn_member(id)).collect();
    let observer = run.observer();

    for kill in 0..kills {
        // Each life does some work for everybody before it ends.
        run.wait_for_work();
        if run.refusal.get().is_some() {
            break;
        }
        pause(Duration::from_millis(random.u64(20..1200)));
        broker.kill();
        while random.u8(..4) == 0 {
            broker.start_and_kill(Duration::from_millis(random.u64(..300)));
        }
        broker.start_again();
        if kill % 5 == 4 {
            // Another member instead of the oldest one.
            members.push(run.spawn_member(2 + kill as u32));
            members.remove(0).join();
        }
        if random.bool() {
            run.observe_offsets(&observer);
        }
    }
    run.wait_for_work();
    producers.into_iter().for_each(Worker::join);
    members.into_iter().for_each(Worker::join);
    run.observe_offsets(&observer);
    drop(observer);

    let status = broker.stop();
    assert!(status.success(), "the clean stop ended with {status}: {}", broker.log());
    broker.start_again();
    run.observe_offsets(&run.observer());
    run.read_everything();
    let refusal = run.refusal.get().cloned();
    drop(run);
    let report = judge.join().unwrap();
    println!("{report}");
    assert!(report.is_clean(), "with RINGLOG_SEED={seed}: {report}");
    assert_eq!(refusal, None, "a producer gave a record up, with RINGLOG_SEED={seed}");
    assert!(report.commits > 0 && report.offsets_fetched > 0, "the group did nothing: {report}");
}

fn spawn_judge() -> (mpsc::Sender<Event>, JoinHandle<Report>) {
    let (events, incoming) = mpsc::channel();
    let judge = thread::spawn(move || {
        let mut history = History::new();
        incoming.into_iter().for_each(|event| history.on_event(event));
        history.finish()
    });
    (events, judge)
}

/// A thread that works until it is told to end.
struct Worker {
    name: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn spawn(name: String, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = thread::Builder::new().name(name.clone()).spawn(move || work(&told)).unwrap();
        Self { name, stop, thread }
    }

    fn join(self) {
        self.stop.store(true, Ordering::Relaxed);
        // Clients close without a time limit: a broker that owes one an answer would hold the test for ever.
        let ended = wait_for(2 * TIME_MAX, || self.thread.is_finished().then_some(()));
        assert!(ended.is_some(), "{} did not come to its end", self.name);
        self.thread.join().unwrap();
    }
}

/// What all clients of the run share.
struct Run {
    bootstrap: String,
    topic: String,
    group: String,
    events: mpsc::Sender<Event>,
    /// Records acknowledged.
    acked: Arc<AtomicU64>,
    /// Commits acknowledged.
    committed: Arc<AtomicU64>,
    /// The first record that a producer gave up. None does so by itself: the broker must have broken its sequence.
    refusal: Arc<OnceLock<String>>,
}

impl Run {
    fn wait_for_work(&self) {
        for (done, wanted, whose) in [(&self.acked, 100, "producers"), (&self.committed, 1, "group's members")] {
            let goal = done.load(Ordering::Relaxed) + wanted;
            let reached = || done.load(Ordering::Relaxed) >= goal || self.refusal.get().is_some();
            let reached = wait_for(TIME_MAX, || reached().then_some(()));
            assert!(reached.is_some(), "the {whose} do not get through to the broker");
        }
    }

    fn spawn_producer(&self, id: u16, mut random: fastrand::Rng) -> Worker {
        let settings = [
            ("enable.idempotence", "true"),
            ("compression.codec", CODECS[usize::from(id)]),
            ("linger.ms", "2"),
            // Never given up: each record is delivered in the end, or the client says why not.
            ("message.timeout.ms", "0"),
            ("queue.buffering.max.messages", "2000"),
            ("reconnect.backoff.ms", "20"),
            ("reconnect.backoff.max.ms", "200"),
            ("socket.timeout.ms", "10000"),
        ];
        let context =
            Deliveries { events: self.events.clone(), acked: self.acked.clone(), refusal: self.refusal.clone() };
        let config = clients::config(&self.bootstrap, &settings);
        let producer: ThreadedProducer<Deliveries> = config.create_with_context(context).unwrap();
        let (events, topic, refusal) = (self.events.clone(), self.topic.clone(), self.refusal.clone());
        Worker::spawn(format!("producer-{id}"), move |stop| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..random.u8(1..60) {
                    let (partition, value) = (random.u32(..PARTITIONS), Value::new(id, number));
                    number += 1;
                    events.send(Event::SendInvoked { partition, value }).unwrap();
                    let payload = [&value.to_bytes()[..], &vec![number as u8; random.usize(..1500)]].concat();
                    let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(&topic, Box::new(value))
                        .payload(&payload)
                        .partition(partition as i32);
                    // The queue is full while the broker is away, and takes nothing more after a refusal.
                    while let Err((_, refused)) = producer.send(record) {
                        if refusal.get().is_some() {
                            return;
                        }
                        record = refused;
                        pause(Duration::from_millis(5));
                    }
                }
                pause(Duration::from_millis(random.u64(2..20)));
            }
            let _ = producer.flush(TIME_MAX); // what does not arrive in time stays unknown; a refusal is told elsewhere
        })
    }

    fn consumer_settings(&self) -> rdkafka::ClientConfig {
        let settings = [
            ("group.id", &*self.group),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("session.timeout.ms", "6000"),
            ("max.poll.interval.ms", "10000"), // also how long a rebalance waits for a member that is gone
            ("heartbeat.interval.ms", "300"),
            ("reconnect.backoff.ms", "20"),
            ("reconnect.backoff.max.ms", "200"),
            ("check.crcs", "true"),
        ];
        clients::config(&self.bootstrap, &settings)
    }

    fn spawn_member(&self, id: u32) -> Worker {
        let (assign, assigned) = mpsc::channel();
        let consumer: BaseConsumer<Assignments> =
            self.consumer_settings().create_with_context(Assignments(assign)).unwrap();
        consumer.subscribe(&[&self.topic]).unwrap();
        let (topic, events, committed) = (self.topic.clone(), self.events.clone(), self.committed.clone());
        let member = Member { id, topic, events, committed, consumer, assigned };
        Worker::spawn(format!("member-{id}"), move |stop| member.work(stop))
    }

    /// Asks for the group's offsets from outside of it.
    fn observer(&self) -> BaseConsumer {
        self.consumer_settings().create().unwrap()
    }

    fn observe_offsets(&self, observer: &BaseConsumer) {
        const READER: u32 = 0;
        for partition in 0..PARTITIONS {
            self.events.send(Event::FetchInvoked { reader: READER, group: GROUP, partition }).unwrap();
        }
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(&self.topic, 0, PARTITIONS as i32 - 1);
        let answer = wait_for(TIME_MAX, || observer.committed_offsets(asked.clone(), Duration::from_secs(5)).ok());
        for element in answer.expect("the group's offsets could not be fetched").elements() {
            element.error().unwrap();
            let offset = match element.offset() {
                ClientOffset::Offset(offset) => Some(Offset::new(offset).unwrap()),
                ClientOffset::Invalid => None,
                other => panic!("{other:?} was fetched as a group's offset"),
            };
            let partition = element.partition() as u32;
            self.events.send(Event::OffsetFetched { reader: READER, group: GROUP, partition, offset }).unwrap();
        }
    }

    /// From the first record to the high watermark of each partition.
    fn read_everything(&self) {
        let reader = clients::reader(&self.bootstrap, &self.topic, PARTITIONS as i32, &[("check.crcs", "true")]);
        let mut left: BTreeMap<u32, i64> = (0..PARTITIONS)
            .map(|partition| {
                let (_, high) = reader.fetch_watermarks(&self.topic, partition as i32, TIME_MAX).unwrap();
                (partition, high)
            })
            .filter(|(_, high)| *high > 0)
            .collect();
        while !left.is_empty() {
            let record = clients::next_record(&reader);
            let partition = record.partition as u32;
            self.events.send(polled(FINAL_READER, partition, record.offset, record.value.as_deref())).unwrap();
            if left.get(&partition).is_some_and(|high| record.offset + 1 >= *high) {
                left.remove(&partition);
            }
        }
    }
}

fn polled(consumer: u32, partition: u32, offset: i64, payload: Option<&[u8]>) -> Event {
    let offset = Offset::new(offset).expect("consumers read at real offsets");
    Event::Polled { consumer, partition, offset, value: payload.and_then(Value::from_bytes) }
}

struct Deliveries {
    events: mpsc::Sender<Event>,
    acked: Arc<AtomicU64>,
    refusal: Arc<OnceLock<String>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Value>;

    fn delivery(&self, result: &DeliveryResult<'_>, value: Box<Value>) {
        match result {
            Ok(message) => {
                let (partition, offset) = (message.partition() as u32, Offset::new(message.offset()));
                self.events.send(Event::SendAcked { partition, value: *value, offset }).unwrap();
                self.acked.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                self.refusal.get_or_init(|| format!("{value}: {error}"));
            }
        }
    }
}

/// Tells a member's thread about each new assignment, from inside its own poll.
struct Assignments(mpsc::Sender<Vec<u32>>);

impl ClientContext for Assignments {}

impl ConsumerContext for Assignments {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let partitions = match rebalance {
            Rebalance::Assign(list) => list.elements().iter().map(|element| element.partition() as u32).collect(),
            _ => vec![],
        };
        let _ = self.0.send(partitions);
    }
}

struct Member {
    id: u32,
    topic: String,
    events: mpsc::Sender<Event>,
    committed: Arc<AtomicU64>,
    consumer: BaseConsumer<Assignments>,
    assigned: Receiver<Vec<u32>>,
}

impl Member {
    fn work(&self, stop: &AtomicBool) {
        const COMMIT_EVERY: Duration = Duration::from_millis(100);
        // The next offset of each partition that was read since the last commit.
        let mut uncommitted = BTreeMap::new();
        let mut last_commit = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let polled_now = self.consumer.poll(Duration::from_millis(50));
            for partition in self.assigned.try_iter().inspect(|_| uncommitted.clear()).flatten() {
                self.events.send(Event::Assigned { consumer: self.id, partition }).unwrap();
            }
            // Errors come while the broker is away, and the client goes on by itself.
            if let Some(Ok(message)) = polled_now {
                let partition = message.partition() as u32;
                self.events.send(polled(self.id, partition, message.offset(), message.payload())).unwrap();
                uncommitted.insert(partition, message.offset() + 1);
            }
            if last_commit.elapsed() >= COMMIT_EVERY {
                self.commit(&uncommitted);
                uncommitted.clear();
                last_commit = Instant::now();
            }
        }
    }

    fn commit(&self, next_offsets: &BTreeMap<u32, i64>) {
        let mut offsets = TopicPartitionList::new();
        for (&partition, &next) in next_offsets {
            offsets.add_partition_offset(&self.topic, partition as i32, ClientOffset::Offset(next)).unwrap();
        }
        // A failed commit may have happened or not: the checker hears of those that surely have.
        if !next_offsets.is_empty() && self.consumer.commit(&offsets, CommitMode::Sync).is_ok() {
            for (&partition, &next) in next_offsets {
                let offset = Offset::new(next).unwrap();
                self.events.send(Event::CommitAcked { group: GROUP, partition, offset }).unwrap();
            }
            self.committed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The recovery point of a topic's partition 0 in the checkpoint.
fn checkpointed(broker: &Broker, topic: &str) -> Option<i64> {
    let text = std::fs::read_to_string(broker.data().join("recovery-point-offset-checkpoint")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{topic} 0 ")))?;
    line.parse().ok()
}

#[test]
fn damage_below_the_recovery_point_is_refused_at_every_start_and_cut_at_none() {
    let mut broker = Broker::start(&[("log.flush.offset.checkpoint.interval.ms", "100")]);
    let bootstrap = broker.kafka.to_string();
    let topic = clients::create_topic(&bootstrap, "damaged", 1, &[("flush.messages", "1")]);
    let sender = clients::Sender::new(&bootstrap, &[("linger.ms", "0")]);
    assert_eq!(sender.send_all(&topic, 0, (0..20).map(|n| n.to_string())).last(), Some(&19));
    wait_for(TIME_MAX, || (checkpointed(&broker, &topic) == Some(20)).then_some(())).expect("a checkpoint");
    broker.kill();

    let file = broker.data().join(format!("{topic}-0/00000000000000000000.log"));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[65] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    for _ in 0..3 {
        broker.start_again();
        let log = broker.log();
        let (_, last_start) = log.rsplit_once("data: ").unwrap();
        assert!(last_start.contains(&format!("offline: {topic}-0")), "{log}");
        wait_for(TIME_MAX, || (checkpointed(&broker, &topic) == Some(20)).then_some(())).expect("it is not forgotten");
        assert!(!broker.stop().success(), "not every log closed cleanly");
        assert_eq!(checkpointed(&broker, &topic), Some(20));
        assert!(std::fs::read(&file).unwrap() == bytes, "nothing was cut");
    }
}

#[test]
fn a_topic_made_again_under_its_name_is_whole_after_a_kill() {
    let mut broker = Broker::start(&[]);
    let bootstrap = broker.kafka.to_string();
    let name = clients::create_topic(&bootstrap, "again", 1, &[]);
    let sender = clients::Sender::new(&bootstrap, &[("linger.ms", "0")]);
    sender.send_all(&name, 0, (0..20).map(|n| format!("old {n}")));
    drop(sender);
    // The clean end writes what the next minute would.
    assert!(broker.stop().success());
    broker.start_again();
    assert_eq!(checkpointed(&broker, &name), Some(20));

    let admin = clients::admin(&bootstrap);
    let options = AdminOptions::new();
    block_on(admin.delete_topics(&[&name], &options)).unwrap().remove(0).unwrap();
    assert_eq!(checkpointed(&broker, &name), None, "it is gone before the answer");
    let topic = NewTopic::new(&name, 1, TopicReplication::Fixed(1));
    block_on(admin.create_topics([&topic], &options)).unwrap().remove(0).unwrap();
    let sender = clients::Sender::new(&bootstrap, &[("linger.ms", "0")]);
    assert_eq!(sender.send_all(&name, 0, (0..5).map(|n| format!("new {n}"))), [0, 1, 2, 3, 4]);
    broker.kill();
    broker.start_again();
    let found = clients::read(&clients::reader(&bootstrap, &name, 1, &[]), 5);
    let values = found.iter().map(|record| String::from_utf8(record.value.clone().unwrap()).unwrap());
    assert!(values.eq((0..5).map(|n| format!("new {n}"))), "{found:?}");
}
