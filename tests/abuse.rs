//! Peers that mean harm, or have trouble: the others must not notice.

#![allow(clippy::unwrap_used)]

mod server_support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use ringlog::protocol::admin::*;
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec};
use ringlog::protocol::fetch::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{self, ApiKey, ErrorCode, Records};
use server_support::{Broker, Client, PATIENCE, batch, now};
use smallvec::smallvec;

/// Waits for a condition that other threads bring about.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn api_versions(client: &mut Client) -> Duration {
    let began = Instant::now();
    let answer = client.ask(0, &ApiVersionsRequest::default(), decoded!(ApiVersionsResponse));
    assert_eq!(answer.error_code, ErrorCode::NONE);
    began.elapsed()
}

/// Connections that announce a frame of `bytes` and send only its first ten.
fn announce(broker: &Broker, count: usize, bytes: u32) -> Vec<TcpStream> {
    let announce = |_| {
        let mut socket = TcpStream::connect(broker.address).unwrap();
        socket.write_all(&bytes.to_be_bytes()).unwrap();
        socket.write_all(&[0; 10]).unwrap();
        socket
    };
    (0..count).map(announce).collect()
}

#[test]
fn announced_giants_do_not_keep_others_waiting() {
    let broker = Broker::start(2, &[("engine.memory.max.bytes", "536870912")]);
    let mut healthy = broker.connect();
    let giants = announce(&broker, 100, 100 << 20);
    wait_until("the giants are there", || broker.counter("connections_opened") == 101);
    for _ in 0..100 {
        assert!(api_versions(&mut healthy) < Duration::from_secs(2));
    }
    drop(giants);
    wait_until("their connections end", || broker.counter("connections_closed") == 100);
}

#[test]
fn unfinished_frames_that_hold_all_memory_are_cut_when_others_need_it() {
    let broker = Broker::start(1, &[("engine.memory.max.bytes", "67108864")]);
    let mut healthy = broker.connect();
    // A quarter of the memory is for frames of this size: 16 of them hold it all.
    let mut stuck = announce(&broker, 17, 1 << 20);
    wait_until("they are there", || broker.counter("connections_opened") == 18);
    assert!(api_versions(&mut healthy) < Duration::from_secs(10));
    wait_until("the stuck are cut", || broker.counter("faults_frame_stalled") > 0);
    let is_cut = |socket: &mut TcpStream| {
        socket.set_nonblocking(true).unwrap();
        match socket.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    };
    let mut cut = 0;
    wait_until("they notice", || {
        cut += stuck.extract_if(.., is_cut).count();
        cut > 0
    });
    assert!(!stuck.is_empty(), "no more are cut than others need");
}

#[test]
fn a_long_poll_whose_client_went_is_freed_at_once() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    let topics =
        vec![CreatableTopic { name: "idle".into(), num_partitions: 4, replication_factor: 1, ..Default::default() }];
    client.ask(7, &CreateTopicsRequest { topics, ..Default::default() }, decoded!(CreateTopicsResponse));
    let partition = |partition| FetchPartition { partition, partition_max_bytes: 1000, ..Default::default() };
    let request = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        topics: smallvec![FetchTopic {
            topic: "idle".into(),
            partitions: (0..4).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut waiting: Vec<Client> = (0..20).map(|_| broker.connect()).collect();
    for client in &mut waiting {
        client.send(12, &request);
    }
    wait_until("all wait", || broker.counter("fetch_long_polls") == 20);
    drop(waiting);
    wait_until("all are freed", || broker.counter("fetch_long_polls_cancelled") == 20);
    wait_until("their connections end", || broker.counter("connections_closed") == 20);
    // The broker still answers, and stops without waiting for anybody.
    api_versions(&mut client);
    let mut last = broker.connect();
    last.send(12, &request);
    wait_until("one more waits", || broker.counter("fetch_long_polls") == 21);
    let began = Instant::now();
    broker.stop();
    assert!(began.elapsed() < Duration::from_secs(5), "a long poll held up the end");
    assert!(last.receive().is_some(), "the drain answers a waiting fetch with what there is");
}

#[test]
fn requests_may_come_byte_by_byte_or_a_thousand_at_once() {
    let broker = Broker::start(1, &[]);
    let frame = |number| {
        let request = ApiVersionsRequest { client_software_name: "x".into(), client_software_version: "1".into() };
        protocol::encode_request(BytesMut::new(), 4, number, "abuse", &request).into_bytes()
    };
    let mut client = broker.connect();
    for byte in frame(1) {
        client.send_raw(&[byte]);
    }
    let all: Vec<u8> = (2..=1001).flat_map(frame).collect();
    client.send_raw(&all);
    for number in 1..=1001 {
        let answer = client.read_answer(ApiKey::ApiVersions, 4, number, decoded!(ApiVersionsResponse));
        assert_eq!(answer.error_code, ErrorCode::NONE);
    }
}

#[test]
fn one_address_gets_only_its_share_of_connections() {
    let broker = Broker::start(2, &[("max.connections.per.ip", "3")]);
    let mut held: Vec<_> = (0..3).map(|_| broker.connect()).collect();
    for client in &mut held {
        api_versions(client);
    }
    let mut refused = broker.connect();
    assert!(refused.receive().is_none());
    assert_eq!(broker.counter("connections_refused"), 1);
    drop(held.pop());
    wait_until("a place is free", || broker.counter("connections_closed") == 1);
    wait_until("it is given", || {
        let mut client = broker.connect();
        client.send(0, &ApiVersionsRequest::default());
        client.receive().is_some()
    });
}

/// A topic of one configuration.
fn create_topic(client: &mut Client, name: &'static str, partitions: i32, config: (&'static str, &'static str)) {
    let configs = vec![CreatableTopicConfig { name: config.0.into(), value: Some(config.1.into()) }];
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
}

fn send_produce(client: &mut Client, topic: &'static str, partitions: std::ops::Range<i32>, records: &[u8]) -> i32 {
    let count = partitions.len();
    let data = partitions.map(|index| ProducePartition { index, records: Some(Records::of_length(records.len())) });
    let topic_data = smallvec![ProduceTopic { name: topic.into(), partition_data: data.collect() }];
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
    client.send_records(11, &request, &vec![records; count])
}

fn produced(client: &mut Client, sent: i32) -> Vec<(ErrorCode, i64)> {
    let response = client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse));
    let partitions = response.responses[0].partition_responses.iter();
    partitions.map(|partition| (partition.error_code, partition.base_offset)).collect()
}

/// Sends batches of which each takes milliseconds, and a light one after them. How long the first answer took, the longest wait
/// of somebody else meanwhile, and both answers.
#[allow(clippy::type_complexity, reason = "read once")]
fn beside_others(
    broker: &Broker,
    heavy: &mut Client,
    topic: &'static str,
    partitions: i32,
    records: &[u8],
) -> (Duration, Duration, Vec<(ErrorCode, i64)>, Vec<(ErrorCode, i64)>) {
    let light = batch(now(), &["v"], None);
    let (begin, answered) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut client = broker.connect();
            api_versions(&mut client);
            begin.wait();
            let mut longest = Duration::ZERO;
            while !answered.load(Ordering::Relaxed) {
                longest = longest.max(api_versions(&mut client));
            }
            longest
        });
        begin.wait();
        let began = Instant::now();
        let sent = send_produce(heavy, topic, 0..partitions, records);
        let sent_light = send_produce(heavy, topic, partitions - 1..partitions, &light);
        let first = produced(heavy, sent);
        let took = began.elapsed();
        answered.store(true, Ordering::Relaxed);
        (took, other.join().unwrap(), first, produced(heavy, sent_light))
    })
}

#[test]
fn batches_whose_records_are_read_keep_nobody_waiting_for_all_of_them() {
    const PARTITIONS: i32 = 40;
    const RECORDS: i64 = 4_000;
    const TRIES: usize = 10;
    let broker = Broker::start(1, &[]);
    let mut heavy = broker.connect();
    create_topic(&mut heavy, "keyed", PARTITIONS, ("cleanup.policy", "compact"));
    create_topic(&mut heavy, "packed", PARTITIONS, ("compression.type", "zstd"));
    // Little to send, much to read: some megabytes, of which the last record is not legal on the one topic.
    let options =
        BuilderOptions { codec: Codec::Gzip, level: None, producer: None, transactional: false, control: false };
    let mut builder = Builder::new(options);
    (1..RECORDS).for_each(|_| builder.push(now(), Some(b"key"), Some(&[b'x'; 1_000]), &[]));
    builder.push(now(), None, Some(b"without a key"), &[]);
    let records = builder.finish().to_vec();

    // Without a rest between them somebody waits for all of them, every time. With one a busy machine may still do that.
    let kept_waiting = |_| {
        let (took, longest, answers, light) = beside_others(&broker, &mut heavy, "keyed", PARTITIONS, &records);
        assert_eq!(answers, vec![(ErrorCode::INVALID_RECORD, -1); PARTITIONS as usize]);
        assert_eq!(light[0].0, ErrorCode::NONE);
        println!("{PARTITIONS} batches took {took:?}, the longest wait of others was {longest:?}");
        longest * 4 > took
    };
    assert!(!(0..TRIES).all(kept_waiting));

    let (_, _, answers, light) = beside_others(&broker, &mut heavy, "packed", PARTITIONS, &records);
    assert_eq!(answers, vec![(ErrorCode::NONE, 0); PARTITIONS as usize]);
    assert_eq!(
        light,
        [(ErrorCode::NONE, RECORDS)],
        "the next request of the connection is not before it, though it is light"
    );
}

/// Batches of the log that slow consumers read, and bytes of the value in each.
const BULK_BATCHES: usize = 512;
const BULK_VALUE: usize = 64 << 10;

/// Asks for much from `offset` on.
fn send_fetch(client: &mut Client, topic: &'static str, offset: i64) -> i32 {
    const MUCH: i32 = 32 << 20;
    let partition = FetchPartition { fetch_offset: offset, partition_max_bytes: MUCH, ..Default::default() };
    let topics = smallvec![FetchTopic { topic: topic.into(), partitions: smallvec![partition], ..Default::default() }];
    client.send(12, &FetchRequest { max_wait_ms: 500, min_bytes: 1, max_bytes: MUCH, topics, ..Default::default() })
}

/// Reads the answer to a fetch from `offset`: whole batches, each `batch` but for offset and epoch. The offset after them.
fn read_fetched(client: &mut Client, sent: i32, offset: i64, batch: &[u8]) -> i64 {
    // Base offset, length, leader epoch, magic: the first two and the third are the broker's.
    const STAMPED: usize = 8 + 4 + 4;
    client.read_answer(ApiKey::Fetch, 12, sent, |body, version| {
        let reader = protocol::Reader::new(body);
        let response = <FetchResponse<'_> as protocol::Message>::decode_body(reader, version).unwrap();
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::NONE);
        let batches = body[partition.records.unwrap().range()].chunks(batch.len());
        assert!(batches.len() > 0, "there is always one more batch");
        let end = offset + batches.len() as i64;
        for (expected, stored) in (offset..).zip(batches) {
            assert_eq!(stored[..8], expected.to_be_bytes());
            assert!(stored[8..12] == batch[8..12] && stored[STAMPED..] == batch[STAMPED..], "batch {expected}");
        }
        end
    })
}

#[test]
fn fetches_whose_answers_nobody_takes_hold_their_share_of_memory() {
    const READERS: usize = 20;
    /// A batch of 64 KiB may lie in two of them.
    const BATCH_PIECES: u64 = 2 * (128 << 10);
    let broker = Broker::start(2, &[("engine.memory.max.bytes", "134217728")]);
    let mut client = broker.connect();
    create_topic(&mut client, "bulk", 1, ("retention.ms", "-1"));
    let records = batch(now(), &["x".repeat(BULK_VALUE).as_str()], None);
    for _ in 0..BULK_BATCHES {
        let sent = send_produce(&mut client, "bulk", 0..1, &records);
        assert_eq!(produced(&mut client, sent)[0].0, ErrorCode::NONE);
    }
    let fetches = |broker: &Broker| -> u64 { broker.metrics.iter().map(|one| one.requests_staged[1].value()).sum() };
    let mut readers: Vec<Client> = (0..READERS).map(|_| broker.connect()).collect();
    let sent: Vec<i32> = readers.iter_mut().map(|reader| send_fetch(reader, "bulk", 0)).collect();
    let mut most = 0;
    wait_until("all are answered", || {
        let done = fetches(&broker) == READERS as u64;
        for memory in broker.reports().iter().map(|report| report.memory) {
            let held = memory.queued_answers + memory.read_answers;
            // Twice its share, and beside it the pieces of the batch that each reader is given whatever there is.
            assert!(held <= 2 * memory.answers_limit + READERS as u64 * BATCH_PIECES, "{memory:?}");
            most = most.max(held);
        }
        done
    });
    println!("at most {most} bytes were held");
    let ends: Vec<i64> =
        (0..).zip(&mut readers).map(|(at, reader)| read_fetched(reader, sent[at], 0, &records)).collect();
    // Now that they are taken, there is room for the rest.
    for (reader, mut end) in readers.iter_mut().zip(ends).take(3) {
        while end < BULK_BATCHES as i64 {
            let sent = send_fetch(reader, "bulk", end);
            end = read_fetched(reader, sent, end, &records);
        }
        assert_eq!(end, BULK_BATCHES as i64);
    }
    wait_until("nothing is held", || broker.reports().iter().all(|report| report.memory.queued_answers == 0));
    assert!(broker.reports().iter().all(|report| report.memory.read_answers == 0));
}

#[test]
fn readers_that_take_nothing_leave_a_healthy_one_more_than_a_batch_at_a_time() {
    const GREEDY: usize = 12;
    const BATCHES: i64 = 512;
    const BYTES_EACH_MIN: i64 = 64 << 10;
    let broker = Broker::start(1, &[("engine.memory.max.bytes", "134217728")]);
    let mut client = broker.connect();
    create_topic(&mut client, "bulk", 1, ("retention.ms", "-1"));
    let records = batch(now(), &["x".repeat(16 << 10).as_str()], None);
    for _ in 0..BATCHES {
        let sent = send_produce(&mut client, "bulk", 0..1, &records);
        assert_eq!(produced(&mut client, sent)[0].0, ErrorCode::NONE);
    }
    let mut greedy: Vec<Client> = (0..GREEDY).map(|_| broker.connect()).collect();
    for reader in &mut greedy {
        // Until its socket, its answers and its requests have no room.
        (0..500).for_each(|_| _ = send_fetch(reader, "bulk", 0));
    }
    wait_until("none is read from", || broker.reports()[0].net.paused as usize >= GREEDY);
    let memory = broker.reports()[0].memory;
    assert!(memory.queued_answers > memory.answers_limit / 2, "{memory:?}");
    let (mut end, mut fetches) = (0, 0);
    while end < BATCHES {
        let sent = send_fetch(&mut client, "bulk", end);
        end = read_fetched(&mut client, sent, end, &records);
        fetches += 1;
    }
    let bytes_each = BATCHES * records.len() as i64 / fetches;
    println!("{bytes_each} bytes a fetch; {memory:?}");
    assert!(bytes_each >= BYTES_EACH_MIN, "{bytes_each}");
}
