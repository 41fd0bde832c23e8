//! The producer against the real broker in one process: every codec, order, linger and batches, faults of topics and of the
//! broker, and what it says when something cannot be.

#![allow(clippy::unwrap_used)]

mod harness;
mod server_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use ringlog::client::{
    DeliveryError, Io, Plain, ProduceError, Producer, ProducerInterceptor, ProducerOptions, ProducerRecord,
    ProducerSettings, RecordMetadata, RecordRef, SendError, Settings as _,
};
use ringlog::protocol::admin::*;
use ringlog::protocol::batch::Records as BatchRecords;
use ringlog::protocol::fetch::*;
use ringlog::protocol::{ErrorCode, Message as _};
use ringlog::types::PartitionIndex;
use server_support::{Broker, Client, PATIENCE};
use smallvec::smallvec;

fn settings(broker: &Broker, more: &[(&str, &str)]) -> ProducerSettings {
    let mut builder = ProducerSettings::builder().set("bootstrap.servers", broker.address);
    for (key, value) in more {
        builder = builder.set(key, value);
    }
    builder.build().unwrap()
}

fn create(client: &mut Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
        name: (*name).to_owned().into(),
        value: Some((*value).to_owned().into()),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
}

fn delete(client: &mut Client, name: &str) {
    let request = DeleteTopicsRequest { topic_names: vec![name.into()], timeout_ms: 10_000, ..Default::default() };
    let response = client.ask(5, &request, decoded!(DeleteTopicsResponse));
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
}

/// Every record of a partition: how many batches, and the values in order.
fn read(client: &mut Client, topic: &str, partition: i32) -> (usize, Vec<Vec<u8>>) {
    let (mut batches, mut values) = (0, Vec::new());
    loop {
        let request = FetchRequest {
            max_bytes: 50 << 20,
            topics: smallvec![FetchTopic {
                topic: topic.to_owned().into(),
                partitions: smallvec![FetchPartition {
                    partition,
                    fetch_offset: values.len() as i64,
                    partition_max_bytes: 8 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let sent = client.send(12, &request);
        let before = values.len();
        client.read_answer(ringlog::protocol::ApiKey::Fetch, 12, sent, |body, version| {
            let response = FetchResponse::decode_body(ringlog::protocol::Reader::new(body), version).unwrap();
            let told = &response.responses[0].partitions[0];
            assert_eq!(told.error_code, ErrorCode::NONE);
            let mut bytes = &body[told.records.unwrap().range()];
            while !bytes.is_empty() {
                let records = BatchRecords::open(bytes, 64 << 20).unwrap();
                values.extend(records.iter().map(|record| record.unwrap().value.unwrap_or_default().to_vec()));
                batches += 1;
                bytes = &bytes[records.info().bytes as usize..];
            }
        });
        if values.len() == before {
            return (batches, values);
        }
    }
}

fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![b'.'; bytes];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

fn at(partition: i32) -> PartitionIndex {
    PartitionIndex::new(partition).unwrap()
}

#[test]
fn every_codec_delivers_every_record_once_and_in_order() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    let io = Io::start("test").unwrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("codec-{codec}");
        create(&mut client, &topic, 3, &[]);
        let producer =
            Producer::on(&io, settings(&broker, &[("compression.type", codec), ("linger.ms", "2")])).unwrap();
        block_on(producer.partition_count(&topic)).unwrap();
        let (sender, told) = mpsc::channel();
        const COUNT: u64 = 5000;
        for number in 0..COUNT {
            let value = numbered(number, 100);
            let record = RecordRef::new(&topic, &value).partition(at((number % 3) as i32));
            let sender = sender.clone();
            producer.try_send(record, move |outcome| _ = sender.send((number, outcome))).unwrap();
        }
        producer.close_sync(PATIENCE);
        drop(sender);
        let told: BTreeMap<u64, RecordMetadata> =
            told.iter().map(|(number, outcome): (u64, Result<_, ProduceError>)| (number, outcome.unwrap())).collect();
        assert_eq!(told.len() as u64, COUNT);
        for partition in 0..3 {
            let (_, values) = read(&mut client, &topic, partition);
            let expected: Vec<u64> = (0..COUNT).filter(|number| number % 3 == partition as u64).collect();
            assert_eq!(values.iter().map(|value| number(value)).collect::<Vec<_>>(), expected, "{codec}");
            for (offset, number) in expected.iter().enumerate() {
                assert_eq!(told[number].offset.unwrap().value(), offset as i64);
                assert_eq!(told[number].partition, at(partition));
            }
        }
        let metrics = producer.metrics();
        assert_eq!((metrics.records_acked, metrics.records_failed, metrics.buffer_used_bytes), (COUNT, 0, 0));
        assert_eq!(metrics.batch_wire_bytes < metrics.batch_raw_bytes, codec != "none", "{codec}: {metrics:?}");
    }
}

#[test]
fn acks_none_and_leader_deliver_too() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create(&mut client, "acks", 1, &[]);
    for (acks, offset) in [("1", Some(0)), ("0", None)] {
        let producer = Producer::new(settings(&broker, &[("acks", acks), ("enable.idempotence", "false")])).unwrap();
        let told = producer.send_sync(ProducerRecord::to("acks").value("x")).unwrap();
        assert_eq!(told.offset.map(|offset| offset.value()), offset);
        producer.close_sync(PATIENCE);
    }
    let end = Instant::now() + PATIENCE;
    while read(&mut client, "acks", 0).1.len() < 2 {
        assert!(Instant::now() < end, "the unanswered record never came");
    }
}

#[test]
fn linger_gathers_and_a_flush_does_not_wait_for_it() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create(&mut client, "gathered", 1, &[]);
    let producer =
        Producer::new(settings(&broker, &[("linger.ms", "60000"), ("delivery.timeout.ms", "120000")])).unwrap();
    block_on(producer.partition_count("gathered")).unwrap();
    for number in 0..20 {
        producer.try_send(RecordRef::new("gathered", &numbered(number, 50)), |outcome| _ = outcome.unwrap()).unwrap();
    }
    assert_eq!(producer.metrics().records_acked, 0);
    producer.flush_sync();
    assert_eq!(producer.metrics().records_acked, 20);
    let (batches, values) = read(&mut client, "gathered", 0);
    assert_eq!((batches, values.len()), (1, 20));
    // Full batches do not wait either: of 400 records of about 110 bytes each two are full, the rest lingers.
    for number in 20..420 {
        producer.try_send(RecordRef::new("gathered", &numbered(number, 100)), |_| {}).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while producer.metrics().records_acked < 300 {
        assert!(Instant::now() < end, "{:?}", producer.metrics());
        std::thread::yield_now();
    }
    assert!(producer.metrics().records_acked < 420);
    producer.close_sync(PATIENCE);
    assert_eq!(producer.metrics().records_acked, 420);
    assert_eq!(read(&mut client, "gathered", 0).1.len(), 420);
}

#[test]
fn tags_come_back_once_per_batch_with_their_places() {
    let broker = Broker::start(1, &[]);
    create(&mut broker.connect(), "tagged", 2, &[]);
    let (sender, told) = mpsc::channel();
    let options = ProducerOptions::default().on_delivery(move |batch| {
        let base = batch.result.unwrap().unwrap().value();
        let tags: Vec<_> = batch.tags().map(|(index, tag)| (base + i64::from(index), tag)).collect();
        sender.send((batch.partition.value(), tags)).unwrap();
    });
    let producer = Producer::with(settings(&broker, &[]), options).unwrap();
    block_on(producer.partition_count("tagged")).unwrap();
    for tag in 0..1000 {
        let record = RecordRef::new("tagged", b"twelve bytes").partition(at((tag % 2) as i32));
        producer.try_send_tagged(record, tag).unwrap();
    }
    producer.close_sync(PATIENCE);
    drop(producer);
    let mut seen: BTreeMap<i32, Vec<(i64, u64)>> = BTreeMap::new();
    for (partition, tags) in told.try_iter() {
        seen.entry(partition).or_default().extend(tags);
    }
    for (partition, tags) in seen {
        let expected: Vec<_> = (0..500).map(|offset| (offset as i64, offset * 2 + partition as u64)).collect();
        assert_eq!(tags, expected);
    }
}

#[test]
fn a_batch_the_topic_finds_too_large_is_split_and_a_record_that_is_fails() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create(&mut client, "narrow", 1, &[("max.message.bytes", "2000")]);
    let producer =
        Producer::new(settings(&broker, &[("batch.size", "100000"), ("linger.ms", "50"), ("retry.backoff.ms", "1")]))
            .unwrap();
    let sends: Vec<_> = (0..300)
        .map(|number| block_on(producer.send(ProducerRecord::to("narrow").value(numbered(number, 100)))).unwrap())
        .collect();
    let offsets: Vec<i64> = sends.into_iter().map(|send| send.wait().unwrap().offset.unwrap().value()).collect();
    assert_eq!(offsets, (0..300).collect::<Vec<_>>());
    assert!(producer.metrics().splits > 0);
    let refused = producer.send_sync(ProducerRecord::to("narrow").value(numbered(300, 5000)));
    assert!(
        matches!(&refused, Err(DeliveryError::NotDelivered(ProduceError::Refused { code, .. })) if *code == ErrorCode::MESSAGE_TOO_LARGE),
        "{refused:?}"
    );
    // The sequence of the one that was refused is used by the next.
    assert_eq!(producer.send_sync(ProducerRecord::to("narrow").value("x")).unwrap().offset.unwrap().value(), 300);
    producer.close_sync(PATIENCE);
    let (_, values) = read(&mut client, "narrow", 0);
    assert_eq!(values.len(), 301);
}

#[test]
fn what_cannot_be_sent_is_refused_at_the_door_and_says_why() {
    let broker = Broker::start(1, &[("auto.create.topics.enable", "false")]);
    create(&mut broker.connect(), "there", 2, &[]);
    let producer = Producer::new(settings(&broker, &[("max.block.ms", "300"), ("max.request.size", "10000")])).unwrap();
    let refused = |record: ProducerRecord| match producer.send_sync(record) {
        Err(DeliveryError::NotSent(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(ProducerRecord::to("absent").value("x")),
        "topic absent was not found within 300ms (max.block.ms): This broker has no such partition."
    );
    assert!(refused(ProducerRecord::to("no good").value("x")).starts_with("topic no good cannot be used"));
    assert_eq!(
        refused(ProducerRecord::to("there").partition(at(2)).value("x")),
        "topic there has no partition 2, only 0 to 1"
    );
    assert!(
        refused(ProducerRecord::to("there").value(vec![0; 20_000]))
            .ends_with("more than the 10000 of max.request.size")
    );
    let unknown = producer.try_send(RecordRef::new("elsewhere", b"x"), |_| {});
    assert!(matches!(unknown, Err(SendError::NoMetadata { .. })), "{unknown:?}");
    producer.close_sync(PATIENCE);
    assert_eq!(refused(ProducerRecord::to("there").value("x")), "the producer is closed");
    producer.close_sync(PATIENCE);
}

#[test]
fn a_full_buffer_blocks_those_who_wait_and_refuses_those_who_do_not() {
    let broker = Broker::start(1, &[]);
    create(&mut broker.connect(), "tight", 1, &[]);
    let producer = Producer::new(settings(
        &broker,
        &[("buffer.memory", "40000"), ("linger.ms", "60000"), ("delivery.timeout.ms", "120000")],
    ))
    .unwrap();
    block_on(producer.partition_count("tight")).unwrap();
    let value = numbered(0, 1000);
    let mut would_block = 0;
    for _ in 0..2000 {
        match producer.try_send(RecordRef::new("tight", &value), |outcome| _ = outcome.unwrap()) {
            Ok(()) => {}
            Err(SendError::WouldBlock) => would_block += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(producer.metrics().buffer_used_bytes <= 40_000);
    }
    assert!(would_block > 0);
    // Those who wait get through in the end: want of room ends the linger.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let sent = block_on(producer.send(ProducerRecord::to("tight").value(numbered(1, 1000)))).unwrap();
                    drop(sent);
                }
            });
        }
    });
    producer.close_sync(PATIENCE);
    let metrics = producer.metrics();
    assert_eq!(metrics.records_acked, 2000 - would_block + 400);
    assert_eq!(metrics.buffer_used_bytes, 0);
}

#[test]
fn a_topic_deleted_and_made_again_takes_records_again() {
    let broker = Broker::start(2, &[("auto.create.topics.enable", "false")]);
    let mut client = broker.connect();
    create(&mut client, "again", 1, &[]);
    let quick = [("retry.backoff.ms", "10"), ("retry.backoff.max.ms", "50")];
    let producer = Producer::new(settings(&broker, &quick)).unwrap();
    for number in 0..10 {
        producer.send_sync(ProducerRecord::to("again").value(numbered(number, 20))).unwrap();
    }
    delete(&mut client, "again");
    // The send is under way while there is no topic.
    std::thread::scope(|scope| {
        let send = scope.spawn(|| producer.send_sync(ProducerRecord::to("again").value(numbered(10, 20))));
        create(&mut client, "again", 1, &[]);
        assert_eq!(send.join().unwrap().unwrap().offset.unwrap().value(), 0);
    });
    for number in 11..20 {
        producer.send_sync(ProducerRecord::to("again").value(numbered(number, 20))).unwrap();
    }
    producer.close_sync(PATIENCE);
    let (_, values) = read(&mut client, "again", 0);
    assert_eq!(values.iter().map(|value| number(value)).collect::<Vec<_>>(), (10..20).collect::<Vec<_>>());
}

#[test]
fn closing_at_once_fails_what_is_left() {
    // Nobody listens there: nothing can be delivered.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let settings =
        ProducerSettings::builder().set("bootstrap.servers", address).set("max.block.ms", 200).build().unwrap();
    let producer = Producer::new(settings).unwrap();
    let sent = producer.send_sync(ProducerRecord::to("t").value("x"));
    assert!(
        matches!(&sent, Err(DeliveryError::NotSent(SendError::NoTopic { why, .. })) if why.contains("connection refused")),
        "{sent:?}"
    );
    producer.close_sync(Duration::ZERO);

    let broker = Broker::start(1, &[]);
    create(&mut broker.connect(), "left", 1, &[]);
    let lingering = [("linger.ms", "60000"), ("delivery.timeout.ms", "120000")];
    let producer = Producer::new(self::settings(&broker, &lingering)).unwrap();
    let delivery = block_on(producer.send(ProducerRecord::to("left").value("x"))).unwrap();
    producer.close_sync(Duration::ZERO);
    match delivery.wait() {
        Ok(_) | Err(ProduceError::Closed { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn interceptors_see_records_go_and_come_back() {
    #[derive(Default)]
    struct Counting {
        sent: AtomicU64,
        acked: AtomicU64,
        failed: AtomicU64,
    }
    impl ProducerInterceptor for Counting {
        fn on_send(&self, record: ProducerRecord) -> ProducerRecord {
            self.sent.fetch_add(1, Relaxed);
            record.header("seen", "yes")
        }
        fn on_acknowledgement(&self, outcome: Result<&RecordMetadata, &ProduceError>) {
            match outcome {
                Ok(_) => self.acked.fetch_add(1, Relaxed),
                Err(_) => self.failed.fetch_add(1, Relaxed),
            };
        }
    }
    let broker = Broker::start(1, &[]);
    create(&mut broker.connect(), "seen", 1, &[]);
    let counting = Arc::new(Counting::default());
    let options = ProducerOptions::default().interceptor(counting.clone());
    let producer = Producer::with(settings(&broker, &[]), options).unwrap();
    let typed = producer.typed::<str, i32>(Plain, Plain);
    typed.send_sync("seen", Some("key"), &7).unwrap();
    producer.try_send_tagged(RecordRef::new("seen", b"x"), 1).unwrap();
    assert!(producer.try_send_tagged(RecordRef::new("seen", b"x").partition(at(7)), 1).is_err());
    producer.close_sync(PATIENCE);
    let counts = [&counting.sent, &counting.acked, &counting.failed].map(|count| count.load(Relaxed));
    assert_eq!(counts, [3, 2, 1]);
}

#[test]
fn a_callback_that_panics_takes_nobody_along() {
    let broker = Broker::start(1, &[]);
    create(&mut broker.connect(), "loud", 1, &[]);
    let producer = Producer::new(settings(&broker, &[])).unwrap();
    block_on(producer.partition_count("loud")).unwrap();
    producer.try_send(RecordRef::new("loud", b"1"), |_| panic!("a callback of the test")).unwrap();
    producer.try_send(RecordRef::new("loud", b"2"), |outcome| _ = outcome.unwrap()).unwrap();
    assert_eq!(producer.send_sync(ProducerRecord::to("loud").value("3")).unwrap().offset.unwrap().value(), 2);
    producer.close_sync(PATIENCE);
}

#[test]
fn kills_of_the_broker_lose_nothing_repeat_nothing_and_reorder_nothing() {
    let seed = std::env::var("RINGLOG_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("RINGLOG_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut broker = harness::Broker::start_on_port(harness::lasting_port(&mut random), &[]);
    create(&mut Client::connect(broker.kafka), "killed", 3, &[]);
    let settings = ProducerSettings::builder()
        .set("bootstrap.servers", broker.kafka)
        .set("linger.ms", 1)
        .set("reconnect.backoff.max.ms", 200)
        .build()
        .unwrap();
    let acked: Arc<[AtomicU64; 3]> = Arc::default();
    let told = Arc::clone(&acked);
    let options = ProducerOptions::default().seed(seed).on_delivery(move |batch| {
        batch.result.unwrap();
        told[batch.partition.value() as usize].fetch_add(batch.records() as u64, Relaxed);
    });
    let producer = Producer::with(settings, options).unwrap();
    block_on(producer.partition_count("killed")).unwrap();
    let stop = Arc::new(AtomicU64::new(0));
    let (sender, is_over) = (producer.clone(), Arc::clone(&stop));
    let sending = std::thread::spawn(move || {
        let mut sent = [0_u64; 3];
        while is_over.load(Relaxed) == 0 {
            let partition = random.usize(..3);
            let value = numbered(sent[partition], 60);
            let record = RecordRef::new("killed", &value).partition(at(partition as i32));
            match sender.try_send_tagged(record, sent[partition]) {
                Ok(()) => sent[partition] += 1,
                Err(SendError::WouldBlock) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
            if random.u8(..) == 0 {
                std::thread::yield_now();
            }
        }
        sent
    });
    for kill in 1..=4 {
        // Each life of the broker does some work before it ends.
        let (before, end) = (total(&acked), Instant::now() + PATIENCE);
        while total(&acked) < before + 2000 * kill {
            assert!(Instant::now() < end, "nothing moves in life {kill}: {:?}", producer.metrics());
            std::thread::yield_now();
        }
        broker.kill();
        broker.start_again();
    }
    stop.store(1, Relaxed);
    let sent = sending.join().unwrap();
    producer.close_sync(2 * PATIENCE);
    assert_eq!(producer.metrics().records_failed, 0, "{:?}", producer.metrics());
    let mut client = Client::connect(broker.kafka);
    for (partition, sent) in (0..3).zip(sent) {
        let (_, values) = read(&mut client, "killed", partition);
        assert_eq!(values.len() as u64, sent, "partition {partition}");
        assert!(values.iter().map(|value| number(value)).eq(0..sent), "partition {partition} is out of order");
    }
    assert!(producer.metrics().retries > 0);
}

fn total(acked: &[AtomicU64; 3]) -> u64 {
    acked.iter().map(|count| count.load(Relaxed)).sum()
}
