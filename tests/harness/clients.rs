//! Shell. librdkafka as the tests use it: a few words for what each of them does.
//!
//! Owns names, time limits and the receipt of deliveries. Source: librdkafka's `CONFIGURATION.md`.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfig};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Headers, Message};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, Timestamp, TopicPartitionList};

/// Far above what any answer takes, so that only a hang meets it.
pub const TIME_MAX: Duration = Duration::from_secs(60);

/// A configuration for `bootstrap` and some more `settings`.
pub fn config(bootstrap: &str, settings: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("broker.address.family", "v4");
    // Reconnect soon: the default grows to 10 s, and brokers here come back in less.
    config.set("reconnect.backoff.max.ms", "500");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config
}

/// A name that no other run has used: the broker may be somebody else's and outlive the test.
pub fn unique(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

pub fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    AdminClient::from_config(&config(bootstrap, &[])).unwrap()
}

/// A new topic under a unique name.
pub fn create_topic(bootstrap: &str, name: &str, partitions: i32, settings: &[(&str, &str)]) -> String {
    let name = unique(name);
    create_topic_named(bootstrap, &name, partitions, settings);
    name
}

/// A new topic under exactly that name.
pub fn create_topic_named(bootstrap: &str, name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    let results = block_on(admin(bootstrap).create_topics([&topic], &AdminOptions::new())).unwrap();
    assert_eq!(results, [Ok(name.to_owned())]);
}

/// What became of one record.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// As given to [`Sender::send`].
    pub tag: usize,
    pub partition: i32,
    /// The offset, or why not.
    pub result: Result<i64, RDKafkaErrorCode>,
}

pub struct Deliveries(mpsc::Sender<Delivery>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: usize) {
        let delivery = match result {
            Ok(message) => Delivery { tag, partition: message.partition(), result: Ok(message.offset()) },
            Err((error, message)) => {
                let code = error.rdkafka_error_code().expect("deliveries fail with a code");
                Delivery { tag, partition: message.partition(), result: Err(code) }
            }
        };
        // Nobody listens any more when the test is over.
        let _ = self.0.send(delivery);
    }
}

/// A record to be filled; `tag` comes back with its delivery.
pub fn record(topic: &str, tag: usize) -> BaseRecord<'_, [u8], [u8], usize> {
    BaseRecord::with_opaque_to(topic, tag)
}

/// A producer whose deliveries are received in a channel.
pub struct Sender {
    pub producer: ThreadedProducer<Deliveries>,
    pub deliveries: mpsc::Receiver<Delivery>,
}

impl Sender {
    pub fn new(bootstrap: &str, settings: &[(&str, &str)]) -> Self {
        let (deliver, deliveries) = mpsc::channel();
        let config = config(bootstrap, settings);
        Self { producer: config.create_with_context(Deliveries(deliver)).unwrap(), deliveries }
    }

    /// Queues a record, waiting while the producer's queue is full.
    pub fn send(&self, mut record: BaseRecord<'_, [u8], [u8], usize>) {
        let deadline = Instant::now() + TIME_MAX;
        loop {
            match self.producer.send(record) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused))
                    if Instant::now() < deadline =>
                {
                    record = refused;
                    super::pause(Duration::from_millis(5));
                }
                Err((error, _)) => panic!("a record was refused by the client: {error}"),
            }
        }
    }

    /// Sends payloads to one partition and waits for all of them; their offsets in order of sending.
    pub fn send_all<P: AsRef<[u8]>>(
        &self,
        topic: &str,
        partition: i32,
        payloads: impl IntoIterator<Item = P>,
    ) -> Vec<i64> {
        let mut count = 0;
        for payload in payloads {
            self.send(record(topic, count).partition(partition).payload(payload.as_ref()));
            count += 1;
        }
        self.offsets(count)
    }

    /// The offsets of the next `count` deliveries, by tag from 0.
    pub fn offsets(&self, count: usize) -> Vec<i64> {
        let offsets: BTreeMap<usize, i64> = (0..count)
            .map(|_| {
                let delivery = self.next_delivery();
                (
                    delivery.tag,
                    delivery.result.unwrap_or_else(|error| panic!("record {} failed: {error}", delivery.tag)),
                )
            })
            .collect();
        assert!(offsets.keys().copied().eq(0..count), "each record is delivered once");
        offsets.into_values().collect()
    }

    pub fn next_delivery(&self) -> Delivery {
        self.deliveries.recv_timeout(TIME_MAX).expect("no delivery in time")
    }
}

/// One record as read, with everything a producer gave it.
#[derive(Clone, PartialEq, Debug)]
pub struct ReadRecord {
    pub partition: i32,
    pub offset: i64,
    pub timestamp: Timestamp,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl ReadRecord {
    pub fn of(message: &BorrowedMessage<'_>) -> Self {
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = message.headers().map_or(vec![], |headers| {
            headers.iter().map(|header| (header.key.to_owned(), own(header.value))).collect()
        });
        Self {
            partition: message.partition(),
            offset: message.offset(),
            timestamp: message.timestamp(),
            key: own(message.key()),
            value: own(message.payload()),
            headers,
        }
    }
}

/// A consumer of `topic`'s `partitions` from their beginning, in no group.
pub fn reader(bootstrap: &str, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> BaseConsumer {
    let consumer: BaseConsumer = config(bootstrap, settings).set("group.id", unique("reader")).create().unwrap();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    consumer
}

/// The next record, whatever errors pass before it; they are told when none comes.
pub fn next_record<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> ReadRecord {
    let deadline = Instant::now() + TIME_MAX;
    let mut last_error = None;
    while Instant::now() < deadline {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => return ReadRecord::of(&message),
            Some(Err(error)) => last_error = Some(error),
            None => {}
        }
    }
    panic!("no record in time; last error: {last_error:?}");
}

/// The next `count` records.
pub fn read<C: ConsumerContext>(consumer: &BaseConsumer<C>, count: usize) -> Vec<ReadRecord> {
    (0..count).map(|_| next_record(consumer)).collect()
}
