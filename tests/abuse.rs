//! Peers that mean harm, or have trouble: the others must not notice.

#![allow(clippy::unwrap_used)]

mod server_support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use ringlog::protocol::admin::*;
use ringlog::protocol::fetch::*;
use ringlog::protocol::{self, ApiKey, ErrorCode};
use server_support::{Broker, Client, PATIENCE};
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
