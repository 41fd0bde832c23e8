//! What does the codec cost on the way of a produce request? Decoding the request (header and body, without the
//! batches' own checks) and encoding the answer, for a small producer, a busy one and one that writes to many topics.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use ringlog::protocol::{
    ApiKey, Message, Records, Segment, encode_request, encode_response, parse_request_header, produce,
};

const VERSION: i16 = 11;

const SHAPES: [(&str, usize, usize); 3] =
    [("1 topic, 1 partition", 1, 1), ("1 topic, 8 partitions", 1, 8), ("20 topics, 5 partitions each", 20, 5)];

/// A frame without its length prefix, with batches of 100 bytes.
fn request_frame(topics: usize, partitions: usize) -> Vec<u8> {
    let names: Vec<String> = (0..topics).map(|topic| format!("events.by-region.{topic}")).collect();
    let topic = |name: &String| produce::ProduceTopic {
        name: name.clone().into(),
        partition_data: (0..partitions)
            .map(|index| produce::ProducePartition { index: index as i32, records: Some(Records::of_length(100)) })
            .collect(),
    };
    let request = produce::ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: names.iter().map(topic).collect(),
        ..Default::default()
    };
    let mut frame = Vec::new();
    for segment in encode_request(BytesMut::new(), VERSION, 1, "producer-1", &request).into_segments() {
        match segment {
            Segment::Bytes(bytes) => frame.extend_from_slice(&bytes),
            Segment::Records { bytes, .. } => frame.resize(frame.len() + bytes, 0),
        }
    }
    frame.split_off(4)
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode a produce request");
    for (name, topics, partitions) in SHAPES {
        let frame = request_frame(topics, partitions);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (header, body) = parse_request_header(black_box(&frame)).expect("a header");
                let request = produce::ProduceRequest::decode_body(body, header.version).expect("a body");
                let bytes: usize = request
                    .topic_data
                    .iter()
                    .flat_map(|topic| &topic.partition_data)
                    .filter_map(|partition| partition.records)
                    .map(Records::len)
                    .sum();
                black_box(bytes)
            });
        });
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode a produce response");
    for (name, topics, partitions) in SHAPES {
        let topic = |topic: usize| produce::ProduceTopicResponse {
            name: format!("events.by-region.{topic}").into(),
            partition_responses: (0..partitions)
                .map(|index| produce::ProducePartitionResponse {
                    index: index as i32,
                    base_offset: 1_000_000,
                    log_start_offset: 0,
                    ..Default::default()
                })
                .collect(),
        };
        let response = produce::ProduceResponse { responses: (0..topics).map(topic).collect(), ..Default::default() };
        let mut buffer = BytesMut::with_capacity(64 << 10);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let frame =
                    encode_response(std::mem::take(&mut buffer), ApiKey::Produce, VERSION, 1, black_box(&response));
                buffer = frame.into_bytes();
                buffer.clear();
            });
        });
    }
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
