//! A broker in this process, and a client that is nothing but a socket and our own codec.
//!
//! Owns the shards' threads, the control thread and the data directory of one test; all end when the value is dropped.

#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use crossbeam_queue::ArrayQueue;
use ringlog::config::{self, BrokerSettings, Sources};
use ringlog::controller::data_dirs::DataDirs;
use ringlog::controller::image::Image;
use ringlog::controller::{self, Advertised, Publisher};
use ringlog::metrics::ShardMetrics;
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec, ProducerStamp};
use ringlog::protocol::{self, ErrorCode, Request};
use ringlog::rt::executor::{Setup, Shards};
use ringlog::rt::hop::{self, HopPort};
use ringlog::rt::net::listen;
use ringlog::server::run_shard;
use ringlog::shard::ShardBoot;
use ringlog::shard::apply::FoundDir;
use ringlog::shard::calls::{DirCheckpoint, MetricsReport, ShardAnswer, ShardCall};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub type Port = HopPort<ShardCall, ShardAnswer>;

/// Far above what anything takes, so that only a hang meets it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running broker.
pub struct Broker {
    /// Where Kafka's protocol is spoken.
    pub address: SocketAddr,
    /// The counters of each shard.
    pub metrics: Vec<Arc<ShardMetrics>>,
    port: Port,
    directory: Option<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    control: Option<std::thread::JoinHandle<Vec<DirCheckpoint>>>,
}

struct MeshPublisher {
    port: Port,
    shards: usize,
}

impl Publisher for MeshPublisher {
    fn publish(&self, image: Arc<Image>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (port, shards) = (self.port.clone(), self.shards);
        Box::pin(async move {
            ask_all(&port, shards, || ShardCall::Prepare(image.clone())).await;
            ask_all(&port, shards, || ShardCall::Apply(image.clone())).await;
        })
    }
}

async fn ask_all(port: &Port, shards: usize, call: impl Fn() -> ShardCall) -> Vec<ShardAnswer> {
    let asked: Vec<_> = (0..shards).map(|shard| port.call(shard, call())).collect();
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await.expect("the shard is there"));
    }
    answers
}

/// Asks until the coordinator has read its log, as every client does.
pub fn loaded<A>(mut ask: impl FnMut() -> A, code: impl Fn(&A) -> ErrorCode) -> A {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if code(&answer) != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS || Instant::now() > give_up {
            return answer;
        }
        std::thread::yield_now();
    }
}

impl Broker {
    /// A fresh directory, `shards` shards (on as many cores as there are), any free port.
    pub fn start(shards: usize, overrides: &[(&str, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("server-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self::start_in(directory, shards, overrides)
    }

    /// Stops, and starts again on the same directory. Every log is scanned, as after a crash.
    pub fn restart(mut self, overrides: &[(&str, &str)]) -> Self {
        let (directory, shards) = (self.directory.take().unwrap(), self.metrics.len());
        self.end();
        Self::start_in(directory, shards, overrides)
    }

    fn start_in(directory: TempDir, shards: usize, overrides: &[(&str, &str)]) -> Self {
        let mut all = vec![
            ("log.dirs".to_owned(), directory.path().join("data").display().to_string()),
            ("listeners".to_owned(), "PLAINTEXT://127.0.0.1:0".to_owned()),
            ("admin.listener".to_owned(), "off".to_owned()),
            ("offsets.topic.num.partitions".to_owned(), "4".to_owned()),
            ("group.initial.rebalance.delay.ms".to_owned(), "0".to_owned()),
        ];
        all.extend(overrides.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        let sources = Sources { overrides: all, ..Sources::default() };
        let (settings, _) = config::load(&sources).unwrap();
        let settings = Arc::new(settings);
        let metrics: Vec<_> = (0..shards).map(|_| Arc::new(ShardMetrics::default())).collect();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let counters = metrics.clone();
        let control = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(control(settings, shards, counters, ready, stopped))
        });
        let (address, port) = is_ready.recv_timeout(PATIENCE).expect("the broker starts");
        Self { address, metrics, port, directory: Some(directory), stop: Some(stop), control: Some(control) }
    }

    /// Drains, closes every log, and gives back what goes into the checkpoints.
    pub fn stop(mut self) -> Vec<DirCheckpoint> {
        self.end()
    }

    /// Its log directory.
    pub fn data(&self) -> PathBuf {
        self.directory.as_ref().expect("it runs").path().join("data")
    }

    /// The way to ask its shards what the control plane asks.
    pub fn port(&self) -> Port {
        self.port.clone()
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A counter summed over the shards.
    pub fn counter(&self, name: &str) -> u64 {
        self.metrics
            .iter()
            .flat_map(|metrics| metrics.named())
            .filter(|(named, _)| *named == name)
            .map(|(_, value)| value)
            .sum()
    }

    /// Gauges and histograms of each shard.
    pub fn reports(&self) -> Vec<MetricsReport> {
        let asked = ask_all(&self.port, self.metrics.len(), || ShardCall::Metrics);
        let answers = futures_lite::future::block_on(asked);
        let report = |answer| match answer {
            ShardAnswer::Metrics(report) => *report,
            _ => panic!("Metrics is answered with a report"),
        };
        answers.into_iter().map(report).collect()
    }

    fn end(&mut self) -> Vec<DirCheckpoint> {
        drop(self.stop.take());
        let checkpoints = self.control.take().map(|control| control.join().expect("the control thread ends well"));
        drop(self.directory.take());
        checkpoints.unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

async fn control(
    settings: Arc<BrokerSettings>,
    shards: usize,
    metrics: Vec<Arc<ShardMetrics>>,
    ready: mpsc::Sender<(SocketAddr, Port)>,
    stopped: oneshot::Receiver<()>,
) -> Vec<DirCheckpoint> {
    let dirs = DataDirs::open(&settings.log_dirs, settings.node_id, None, controller::random_bits).unwrap();
    let socket = listen("127.0.0.1:0".parse().unwrap(), 64).unwrap();
    let address = socket2::SockRef::from(&socket).local_addr().unwrap().as_socket().unwrap();
    let advertised = Advertised { host: "127.0.0.1".to_owned(), port: address.port() };
    let opened = controller::open(settings.clone(), &dirs, advertised, controller::random_bits).unwrap();
    let (seeds, port) = hop::mesh(shards, 1024);
    let running = start_shards(&settings, shards, seeds, &opened, &metrics);
    ask_all(&port, shards, || ShardCall::Apply(opened.image())).await;
    let command_loop = tokio::spawn(opened.run(MeshPublisher { port: port.clone(), shards }));
    port.call(0, ShardCall::Listen(socket)).await.unwrap();
    ready.send((address, port.clone())).unwrap();
    // The sender is dropped, not used.
    _ = stopped.await;
    let deadline = Instant::now() + Duration::from_secs(5);
    ask_all(&port, shards, || ShardCall::Drain(deadline)).await;
    let mut checkpoints = Vec::new();
    for answer in ask_all(&port, shards, || ShardCall::Stop).await {
        let ShardAnswer::Stopped(stopped) = answer else { panic!("Stop is answered with checkpoints") };
        checkpoints.extend(stopped);
    }
    command_loop.abort();
    running.join().unwrap();
    checkpoints
}

fn start_shards(
    settings: &Arc<BrokerSettings>,
    shards: usize,
    seeds: Vec<hop::HopSeed<ShardCall, ShardAnswer>>,
    opened: &controller::Opened,
    metrics: &[Arc<ShardMetrics>],
) -> Shards {
    let image = Arc::new(Image::empty(opened.image().cluster_id.clone(), Vec::new()));
    let boots: Vec<_> = seeds
        .into_iter()
        .zip(metrics)
        .enumerate()
        .map(|(index, (seed, metrics))| {
            let slot = ArrayQueue::new(1);
            let boot = ShardBoot {
                index,
                seed,
                shards,
                settings: settings.clone(),
                controller: opened.controller(),
                image: image.clone(),
                found: Arc::new(vec![FoundDir::default()]),
                metrics: metrics.clone(),
            };
            assert!(slot.push(boot).is_ok());
            slot
        })
        .collect();
    let boots = Arc::new(boots);
    let cores: Vec<_> = core_affinity::get_core_ids().unwrap().into_iter().map(|core| core.id).collect();
    let setup = Setup {
        cpus: (0..shards).map(|shard| cores[shard % cores.len()]).collect(),
        io_memory_bytes: 4 << 20,
        data_dirs: settings.log_dirs.clone(),
    };
    ringlog::rt::executor::start(setup, move |index| run_shard(boots[index].pop().expect("each boot is taken once")))
        .unwrap()
}

/// One connection, one request after the other, or many at once.
pub struct Client {
    /// What it calls itself.
    pub client_id: &'static str,
    socket: TcpStream,
    correlation_id: i32,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { client_id: "smoke", socket, correlation_id: 0 }
    }

    /// Sends a request; its correlation id.
    pub fn send<'a, R: Request<'a>>(&mut self, version: i16, request: &R) -> i32 {
        self.correlation_id += 1;
        let frame = protocol::encode_request(BytesMut::new(), version, self.correlation_id, self.client_id, request);
        self.socket.write_all(&frame.into_bytes()).unwrap();
        self.correlation_id
    }

    /// Sends a request whose records are given beside it: each field of them gets one entry.
    pub fn send_records<'a, R: Request<'a>>(&mut self, version: i16, request: &R, records: &[&[u8]]) -> i32 {
        self.correlation_id += 1;
        let frame = protocol::encode_request(BytesMut::new(), version, self.correlation_id, self.client_id, request);
        let mut bytes = Vec::new();
        for segment in frame.into_segments() {
            match segment {
                protocol::Segment::Bytes(head) => bytes.extend_from_slice(&head),
                protocol::Segment::Records { index, .. } => bytes.extend_from_slice(records[index]),
            }
        }
        self.socket.write_all(&bytes).unwrap();
        self.correlation_id
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next frame without its length; `None` when the broker closed the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        match self.socket.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer within {PATIENCE:?}"),
            Err(_) => return None,
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame).ok()?;
        Some(frame)
    }

    /// Asks and waits; `read` sees the decoded response and the frame it borrows from.
    pub fn ask<'q, R, T>(&mut self, version: i16, request: &R, read: impl FnOnce(&[u8], i16) -> T) -> T
    where
        R: Request<'q>,
    {
        let sent = self.send(version, request);
        self.read_answer(R::API, version, sent, read)
    }

    /// Reads the answer to the request `sent`.
    pub fn read_answer<T>(
        &mut self,
        api: protocol::ApiKey,
        version: i16,
        sent: i32,
        read: impl FnOnce(&[u8], i16) -> T,
    ) -> T {
        let frame = self.receive().expect("an answer, not a closed connection");
        let (correlation_id, reader) = protocol::parse_response_header(&frame, api, version).unwrap();
        assert_eq!(correlation_id, sent, "answers come in the order of requests");
        read(&frame[reader.position()..], version)
    }
}

/// Decodes a response body and makes it own what it borrowed.
#[macro_export]
macro_rules! decoded {
    ($response:ty) => {
        |body: &[u8], version: i16| {
            let reader = ringlog::protocol::Reader::new(body);
            let response = <$response as ringlog::protocol::Message>::decode_body(reader, version).unwrap();
            ringlog::protocol::Wire::into_owned(response)
        }
    };
}

/// One batch of records, each with a key and a value, stamped `timestamp`.
pub fn batch(timestamp: i64, values: &[&str], producer: Option<ProducerStamp>) -> Vec<u8> {
    let options = BuilderOptions { codec: Codec::None, level: None, producer, transactional: false, control: false };
    let mut builder = Builder::new(options);
    for value in values {
        builder.push(timestamp, Some(b"key"), Some(value.as_bytes()), &[]);
    }
    builder.finish().to_vec()
}

/// The wall clock.
pub fn now() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since_1970.as_millis()).unwrap()
}
