//! A broker that answers what a producer asks, and every Produce with success at once; it keeps nothing.

#![allow(dead_code, reason = "each bench uses some of it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::BytesMut;
use ringlog::protocol::admin::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{self, ApiKey, Message, encode_response, parse_request_header};
use ringlog::types::TopicId;

/// Its only topic.
pub(crate) const TOPIC: &str = "null";
/// Of that topic.
pub(crate) const PARTITIONS: i32 = 6;

/// Starts it; the CPU of its threads is added to `cpu_ns`.
pub(crate) fn null_broker(cpu_ns: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let cpu_ns = Arc::clone(&cpu_ns);
            std::thread::spawn(move || serve(socket, address, &cpu_ns));
        }
    });
    address
}

fn serve(mut socket: TcpStream, address: SocketAddr, cpu_ns: &AtomicU64) {
    socket.set_nodelay(true).expect("a TCP socket");
    let mut frame = Vec::new();
    let mut before = 0;
    loop {
        let mut length = [0; 4];
        if socket.read_exact(&mut length).is_err() {
            return;
        }
        frame.resize(u32::from_be_bytes(length) as usize, 0);
        if socket.read_exact(&mut frame).is_err() {
            return;
        }
        if socket.write_all(&answer(&frame, address)).is_err() {
            return;
        }
        let now = thread_cpu_ns();
        cpu_ns.fetch_add(now - before, Relaxed);
        before = now;
    }
}

fn answer(frame: &[u8], address: SocketAddr) -> BytesMut {
    let (header, reader) = parse_request_header(frame).expect("a request");
    let (api, version, id) = (header.api, header.version, header.correlation_id);
    match api {
        ApiKey::ApiVersions => {
            let response = ApiVersionsResponse { api_keys: protocol::advertised_apis(), ..Default::default() };
            encode_response(BytesMut::new(), api, version, id, &response).into_bytes()
        }
        ApiKey::Metadata => {
            let partition = |index| MetadataPartition {
                partition_index: index,
                leader_id: 1,
                replica_nodes: vec![1],
                isr_nodes: vec![1],
                ..Default::default()
            };
            let response = MetadataResponse {
                brokers: vec![MetadataBroker {
                    node_id: 1,
                    host: "127.0.0.1".into(),
                    port: address.port().into(),
                    rack: None,
                }],
                controller_id: 1,
                topics: vec![MetadataTopic {
                    name: Some(TOPIC.into()),
                    topic_id: TopicId::from_bytes([1; 16]),
                    partitions: (0..PARTITIONS).map(partition).collect(),
                    ..Default::default()
                }],
                ..Default::default()
            };
            encode_response(BytesMut::new(), api, version, id, &response).into_bytes()
        }
        ApiKey::InitProducerId => {
            let response = InitProducerIdResponse { producer_id: 1, producer_epoch: 0, ..Default::default() };
            encode_response(BytesMut::new(), api, version, id, &response).into_bytes()
        }
        ApiKey::Produce => {
            let request = ProduceRequest::decode_body(reader, version).expect("a produce request");
            let partition = |partition: &ProducePartition| ProducePartitionResponse {
                index: partition.index,
                base_offset: 0,
                ..Default::default()
            };
            let topic = |topic: &ProduceTopic<'_>| ProduceTopicResponse {
                name: topic.name.to_shared().into(),
                partition_responses: topic.partition_data.iter().map(partition).collect(),
            };
            let response =
                ProduceResponse { responses: request.topic_data.iter().map(topic).collect(), ..Default::default() };
            encode_response(BytesMut::new(), api, version, id, &response).into_bytes()
        }
        other => panic!("a producer does not ask for {}", other.name()),
    }
}

fn cpu_ns(id: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(id);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn thread_cpu_ns() -> u64 {
    cpu_ns(rustix::time::ClockId::ThreadCPUTime)
}

/// CPU of this process so far.
pub(crate) fn process_cpu_ns() -> u64 {
    cpu_ns(rustix::time::ClockId::ProcessCPUTime)
}
