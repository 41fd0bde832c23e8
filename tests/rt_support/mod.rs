//! What the tests of the runtime share: a frame echo server on a shard, clients on threads, and looks at the process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringlog::rt::executor::{Setup, run_one};
pub(crate) use ringlog::rt::net::{FrameReader, Payload, Replies};
use ringlog::rt::net::{Net, NetConfig, Reply, listen};
use ringlog::rt::{self, hop};
use smallvec::smallvec;

pub(crate) fn setup() -> Setup {
    Setup::on_all_cpus(Vec::new())
}

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn reply(bytes: impl Into<Bytes>) -> Reply {
    Reply { parts: smallvec![Payload::Mem(bytes.into())] }
}

pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

/// Answers each frame with itself, length included, until the peer ends.
pub(crate) async fn echo(mut reader: FrameReader, replies: Replies) {
    while let Ok(Some(length)) = reader.next_length().await {
        let Ok(body) = reader.read_body(length as usize).await else { return };
        let mut whole = length.to_be_bytes().to_vec();
        whole.extend_from_slice(&body);
        replies.reserve().fill(reply(whole));
    }
}

/// Accepts for ever; each connection goes to `serve`.
pub(crate) fn serve<F, Fut>(net: &Net, serve: F) -> SocketAddr
where
    F: Fn(FrameReader, Replies) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let socket = listen(any_port(), 128).unwrap();
    let address = socket2::SockRef::from(&socket).local_addr().unwrap().as_socket().unwrap();
    let mut listener = net.listener(socket).unwrap();
    let net = net.clone();
    rt::spawn(async move {
        loop {
            let (socket, peer) = listener.accept().await.unwrap();
            let (reader, replies) = net.adopt(socket, peer, bytes::BytesMut::new()).unwrap();
            rt::spawn(serve(reader, replies));
        }
    });
    address
}

/// Runs `client` on a thread of its own while the shard serves, and returns what it returns.
pub(crate) fn with_server<T: Send + 'static, Fut: Future<Output = ()> + 'static>(
    server: impl Fn(FrameReader, Replies) -> Fut + Send + 'static,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    run_one(setup(), move || async move {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, server);
        on_thread(&net, move || client(address)).await
    })
    .unwrap()
}

pub(crate) async fn on_thread<T: Send + 'static>(net: &Net, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = hop::remote(net);
    let thread = std::thread::spawn(move || sender.send(work()));
    let result = receiver.recv().await;
    thread.join().unwrap();
    result.unwrap()
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

pub(crate) fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

/// One shard, on the first CPU we may use.
pub(crate) fn one_shard() -> Setup {
    let mut setup = setup();
    setup.cpus.truncate(1);
    setup
}

/// A directory on the file system of the build, where direct I/O is real.
pub(crate) fn disk_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// Sockets of this process whose own address is `address`: the server's ends, the listener included.
pub(crate) fn count_sockets_to(address: SocketAddr) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{:04X}", address.port());
    let inodes: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&port))
        .map(|fields| fields[9])
        .collect();
    let ours =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    ours.filter(|target| inodes.iter().any(|inode| target.as_os_str() == format!("socket:[{inode}]").as_str())).count()
}

/// Closed loops on `connections` connections until told to stop; returns how many answers came.
pub(crate) fn saturate(address: SocketAddr, connections: usize, stop: &AtomicBool) -> u64 {
    let mut streams: Vec<TcpStream> = (0..connections).map(|_| connect(address)).collect();
    let request = frame(&[1; 196]);
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut streams {
            stream.write_all(&request).unwrap();
        }
        for stream in &mut streams {
            read_frame(stream);
            answers += 1;
        }
    }
    answers
}

/// What the scheduler does to any thread on a CPU: how late one is that wakes every few milliseconds.
pub(crate) struct Control {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Control {
    pub(crate) fn start(cpu: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            assert!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }));
            let mut late = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let due = Instant::now() + Duration::from_millis(3);
                std::thread::park_timeout(Duration::from_millis(3));
                late.push(due.elapsed());
            }
            late.sort();
            late
        });
        Self { stop, thread }
    }

    /// Ends it; `part` of the times it was not later than the result.
    pub(crate) fn lateness(self, part: f64) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.thread.join().unwrap();
        late.get(((late.len() as f64 * part) as usize).min(late.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}
