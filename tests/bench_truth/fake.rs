//! A broker for tests of the load generator: it answers when it is told to, and tells lies when it is told to.
//!
//! Lives on a thread of its own, on a free port; one topic, one broker. Requests of a connection are answered in order, each no
//! earlier than its arrival plus the script's delay, and not within the script's stall.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use ringlog::protocol::admin::*;
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec, Records as BatchRecords, parse_header, stamp};
use ringlog::protocol::fetch::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{
    ApiKey, ErrorCode, Message, Records, Request, Segment, advertised_apis, encode_response, parse_request_header,
};
use ringlog::types::{LeaderEpoch, Offset};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The only topic there is.
pub(crate) const TOPIC: &str = "truth";

/// What the broker does to the records it has acknowledged, before anybody reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// The fifth record is gone.
    Drop,
    /// The fifth record also lies at the end.
    Duplicate,
    /// The fifth and the sixth record change places.
    Swap,
    /// A byte of the fifth record is another.
    Alter,
    /// The number of the format in the header of every batch that is read is another.
    Format,
    /// The first produce request is done, and its connection closed in place of an answer.
    HangUp,
    /// The first fetch is refused, as by a leader that has just lost its office.
    Moved,
}

/// How the broker behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub partitions: i32,
    /// Until a produce request is answered.
    pub delay: Duration,
    /// From the first produce request on: when it answers nothing, and for how long.
    pub stall: Option<(Duration, Duration)>,
    pub lie: Lie,
    /// What every produce request gets.
    pub error: ErrorCode,
}

impl Default for Script {
    fn default() -> Self {
        Self { partitions: 1, delay: Duration::ZERO, stall: None, lie: Lie::None, error: ErrorCode::NONE }
    }
}

type Log = Vec<(i64, Option<Vec<u8>>, Vec<u8>)>;

struct State {
    script: Script,
    port: i32,
    logs: Mutex<Vec<Log>>,
    ends: Mutex<Vec<i64>>,
    first_produce: Mutex<Option<Instant>>,
    lied: Mutex<bool>,
    refused: Mutex<bool>,
}

/// Ends with its test.
pub(crate) struct FakeBroker {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeBroker {
    pub(crate) fn start(script: Script) -> Self {
        let (ready, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let count = script.partitions as usize;
                let state = Arc::new(State {
                    script,
                    port: i32::from(address.port()),
                    logs: Mutex::new(vec![Log::new(); count]),
                    ends: Mutex::new(vec![0; count]),
                    first_produce: Mutex::new(None),
                    lied: Mutex::new(false),
                    refused: Mutex::new(false),
                });
                ready.send(address).unwrap();
                tokio::select! {
                    _ = stopped => {}
                    () = async {
                        loop {
                            let Ok((stream, _)) = listener.accept().await else { return };
                            tokio::spawn(serve(stream, Arc::clone(&state)));
                        }
                    } => {}
                }
            });
        });
        Self { address: address.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Frames in, answers out in order, each at its time.
async fn serve(stream: TcpStream, state: Arc<State>) {
    let (mut reading, mut writing) = stream.into_split();
    let (answers, mut queue) = tokio::sync::mpsc::unbounded_channel::<(Instant, Bytes)>();
    let writer = tokio::spawn(async move {
        while let Some((at, frame)) = queue.recv().await {
            tokio::time::sleep_until(at.into()).await;
            if writing.write_all(&frame).await.is_err() {
                return;
            }
        }
    });
    while let Ok(length) = reading.read_i32().await {
        let mut frame = vec![0; length as usize];
        if reading.read_exact(&mut frame).await.is_err() {
            break;
        }
        let (header, _) = parse_request_header(&frame).unwrap();
        let mut at = Instant::now();
        if header.api == ApiKey::Produce {
            let first = *state.first_produce.lock().unwrap().get_or_insert(at);
            at += state.script.delay;
            if let Some((after, length)) = state.script.stall {
                let stall = first + after..first + after + length;
                at = if stall.contains(&at) { stall.end } else { at };
            }
        }
        if header.api == ApiKey::Fetch {
            // As a broker that has nothing yet waits a little.
            at += Duration::from_millis(2);
        }
        let Some(answer) = state.answer(&frame) else { continue };
        let hangs_up = state.script.lie == Lie::HangUp && header.api == ApiKey::Produce;
        if hangs_up && !std::mem::replace(&mut state.refused.lock().unwrap(), true) {
            break;
        }
        if answers.send((at, answer)).is_err() {
            break;
        }
    }
    drop(answers);
    _ = writer.await;
}

impl State {
    fn answer(&self, frame: &[u8]) -> Option<Bytes> {
        let (header, reader) = parse_request_header(frame).unwrap();
        let (api, version, correlation) = (header.api, header.version, header.correlation_id);
        let plain = |encoded: ringlog::protocol::Encoded| Some(encoded.into_bytes().freeze());
        match api {
            ApiKey::ApiVersions => {
                let response = ApiVersionsResponse { api_keys: advertised_apis(), ..Default::default() };
                plain(encode_response(BytesMut::new(), api, version, correlation, &response))
            }
            ApiKey::Metadata => {
                let partitions = (0..self.script.partitions).map(|partition_index| MetadataPartition {
                    partition_index,
                    leader_id: 1,
                    leader_epoch: 0,
                    replica_nodes: vec![1],
                    isr_nodes: vec![1],
                    ..Default::default()
                });
                let topic = MetadataTopic {
                    name: Some(TOPIC.into()),
                    topic_id: ringlog::types::TopicId::from_bytes([7; 16]),
                    partitions: partitions.collect(),
                    ..Default::default()
                };
                let response = MetadataResponse {
                    brokers: vec![MetadataBroker { node_id: 1, host: "127.0.0.1".into(), port: self.port, rack: None }],
                    controller_id: 1,
                    topics: vec![topic],
                    ..Default::default()
                };
                plain(encode_response(BytesMut::new(), api, version, correlation, &response))
            }
            ApiKey::InitProducerId => {
                let response = InitProducerIdResponse { producer_id: 1, ..Default::default() };
                plain(encode_response(BytesMut::new(), api, version, correlation, &response))
            }
            ApiKey::DescribeConfigs => {
                let request = DescribeConfigsRequest::decode_body(reader, version).unwrap();
                let results = request.resources.iter().map(|resource| DescribeConfigsResult {
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.clone(),
                    configs: vec![DescribedConfig {
                        name: if resource.resource_type == 2 {
                            "ringlog.ack.durability"
                        } else {
                            "engine.ack.durability"
                        }
                        .into(),
                        value: Some("memory".into()),
                        ..Default::default()
                    }],
                    ..Default::default()
                });
                let response = DescribeConfigsResponse { results: results.collect(), ..Default::default() };
                plain(encode_response(BytesMut::new(), api, version, correlation, &response))
            }
            ApiKey::ListOffsets => {
                let request = ListOffsetsRequest::decode_body(reader, version).unwrap();
                self.lie_once();
                let ends = self.ends.lock().unwrap();
                let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
                    name: topic.name.clone(),
                    partitions: topic
                        .partitions
                        .iter()
                        .map(|partition| ListOffsetsPartitionResponse {
                            partition_index: partition.partition_index,
                            offset: if partition.timestamp == -2 {
                                0
                            } else {
                                ends[partition.partition_index as usize]
                            },
                            ..Default::default()
                        })
                        .collect(),
                });
                let response = ListOffsetsResponse { topics: topics.collect(), ..Default::default() };
                plain(encode_response(BytesMut::new(), api, version, correlation, &response))
            }
            ApiKey::Produce => self.produce(frame, version, correlation),
            ApiKey::Fetch => Some(self.fetch(frame, version, correlation)),
            other => panic!("the fake broker was asked for {}", other.name()),
        }
    }

    fn produce(&self, frame: &[u8], version: i16, correlation: i32) -> Option<Bytes> {
        let (_, reader) = parse_request_header(frame).unwrap();
        let request = ProduceRequest::decode_body(reader, version).unwrap();
        let (mut logs, mut ends) = (self.logs.lock().unwrap(), self.ends.lock().unwrap());
        let responses = request.topic_data.iter().map(|topic| ProduceTopicResponse {
            name: topic.name.clone(),
            partition_responses: topic
                .partition_data
                .iter()
                .map(|partition| {
                    let index = partition.index as usize;
                    let batch = &frame[partition.records.unwrap().range()];
                    let base_offset = ends[index];
                    if self.script.error == ErrorCode::NONE {
                        let records = BatchRecords::open(batch, 1 << 26).unwrap();
                        for record in records.iter().map(Result::unwrap) {
                            let offset = base_offset + i64::from(record.offset_delta);
                            logs[index].push((offset, record.key.map(<[u8]>::to_vec), record.value.unwrap().to_vec()));
                        }
                        ends[index] += i64::from(parse_header(batch).unwrap().records);
                    }
                    // A liar that moves records does not say where they lie.
                    let told = if self.script.lie == Lie::Swap { -1 } else { base_offset };
                    ProducePartitionResponse {
                        index: partition.index,
                        error_code: self.script.error,
                        base_offset: if self.script.error == ErrorCode::NONE { told } else { -1 },
                        ..Default::default()
                    }
                })
                .collect(),
        });
        let response = ProduceResponse { responses: responses.collect(), ..Default::default() };
        let answered = request.acks != 0;
        let encoded = encode_response(BytesMut::new(), ApiKey::Produce, version, correlation, &response);
        answered.then(|| encoded.into_bytes().freeze())
    }

    /// The lie is told when the end is asked for after records came: by whoever is about to read them back.
    fn lie_once(&self) {
        let mut lied = self.lied.lock().unwrap();
        let (mut logs, mut ends) = (self.logs.lock().unwrap(), self.ends.lock().unwrap());
        let log = &mut logs[0];
        if *lied || log.len() < 8 {
            return;
        }
        *lied = true;
        match self.script.lie {
            Lie::None => {}
            Lie::Drop => _ = log.remove(5),
            Lie::Duplicate => {
                let (_, key, value) = log[5].clone();
                log.push((ends[0], key, value));
                ends[0] += 1;
            }
            Lie::Swap => {
                let (fifth, sixth) = (log[5].0, log[6].0);
                log.swap(5, 6);
                (log[5].0, log[6].0) = (fifth, sixth);
            }
            Lie::Alter => {
                let value = &mut log[5].2;
                let last = value.len() - 1;
                value[last] ^= 1;
            }
            // The records are as they were.
            Lie::Format | Lie::HangUp | Lie::Moved => {}
        }
    }

    fn fetch(&self, frame: &[u8], version: i16, correlation: i32) -> Bytes {
        let (_, reader) = parse_request_header(frame).unwrap();
        let request = FetchRequest::decode_body(reader, version).unwrap();
        let (logs, ends) = (self.logs.lock().unwrap(), self.ends.lock().unwrap());
        let refuses = self.script.lie == Lie::Moved && !std::mem::replace(&mut self.refused.lock().unwrap(), true);
        let mut batches = Vec::new();
        let responses = request.topics.iter().map(|topic| FetchTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    let index = partition.partition as usize;
                    let mut bytes = batches_from(&logs[index], partition.fetch_offset);
                    if self.script.lie == Lie::Format && !bytes.is_empty() {
                        const FORMAT_AT: usize = 16;
                        bytes[FORMAT_AT] ^= 4;
                    }
                    if refuses {
                        bytes.clear();
                    }
                    let records = Records::of_length(bytes.len());
                    batches.push(bytes);
                    FetchPartitionResponse {
                        partition_index: partition.partition,
                        error_code: if refuses { ErrorCode::NOT_LEADER_OR_FOLLOWER } else { ErrorCode::NONE },
                        high_watermark: ends[index],
                        log_start_offset: 0,
                        records: Some(records),
                        ..Default::default()
                    }
                })
                .collect(),
        });
        let response = FetchResponse { responses: responses.collect(), ..Default::default() };
        let encoded = encode_response(BytesMut::new(), FetchRequest::API, version, correlation, &response);
        let mut out = BytesMut::new();
        for segment in encoded.into_segments() {
            match segment {
                Segment::Bytes(bytes) => out.extend_from_slice(&bytes),
                Segment::Records { index, .. } => out.extend_from_slice(&batches[index]),
            }
        }
        out.freeze()
    }
}

/// Some records from an offset on, a batch for each stretch without gaps.
fn batches_from(log: &Log, from: i64) -> Vec<u8> {
    const RECORDS: usize = 2000;
    let start = log.partition_point(|(offset, ..)| *offset < from);
    let mut out = Vec::new();
    let mut open: Option<(i64, Builder)> = None;
    let mut close = |open: Option<(i64, Builder)>| {
        if let Some((base, builder)) = open {
            let mut batch = builder.finish();
            stamp(&mut batch, Offset::new(base).unwrap(), LeaderEpoch::ZERO);
            out.extend_from_slice(&batch);
        }
    };
    for (offset, key, value) in log[start..].iter().take(RECORDS) {
        if open.as_ref().is_some_and(|(base, builder)| base + builder.count() as i64 != *offset) {
            close(open.take());
        }
        let options =
            BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
        let (_, builder) = open.get_or_insert_with(|| (*offset, Builder::new(options)));
        builder.push(0, key.as_deref(), Some(value), &[]);
    }
    close(open.take());
    out
}
