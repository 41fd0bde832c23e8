//! The runtime against real sockets, files and threads: order, bounds, ends. Nothing here depends on how fast the machine is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringlog::rt::executor::{Setup, run_one, start};
use ringlog::rt::net::{FrameReader, Net, NetConfig, NetError, Payload, Replies, Reply, listen};
use ringlog::rt::{self, hop};
use smallvec::smallvec;

fn setup() -> Setup {
    Setup::on_all_cpus(Vec::new())
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn reply(bytes: impl Into<Bytes>) -> Reply {
    Reply { parts: smallvec![Payload::Mem(bytes.into())] }
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

/// Answers each frame with itself, length included, until the peer ends.
async fn echo(mut reader: FrameReader, replies: Replies) {
    while let Ok(Some(length)) = reader.next_length().await {
        let Ok(body) = reader.read_body(length as usize).await else { return };
        let mut whole = length.to_be_bytes().to_vec();
        whole.extend_from_slice(&body);
        replies.reserve().fill(reply(whole));
    }
}

/// Accepts for ever; each connection goes to `serve`.
fn serve<F, Fut>(net: &Net, serve: F) -> SocketAddr
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
            let (reader, replies) = net.adopt(socket, peer).unwrap();
            rt::spawn(serve(reader, replies));
        }
    });
    address
}

/// Runs `client` on a thread of its own while the shard serves, and returns what it returns.
fn with_server<T: Send + 'static, Fut: Future<Output = ()> + 'static>(
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

async fn on_thread<T: Send + 'static>(net: &Net, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = hop::remote(net);
    let thread = std::thread::spawn(move || sender.send(work()));
    let result = receiver.recv().await;
    thread.join().unwrap();
    result.unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

#[test]
fn frames_of_all_sizes_come_back_whole() {
    with_server(echo, |address| {
        let mut stream = connect(address);
        for size in [0, 1, 3, 200, 2047, 2048, 4091, 4092, 4093, 65_536, 70_000, 1_048_576, 3_000_000, 7, 65_536, 65_600] {
            let body: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            stream.write_all(&frame(&body)).unwrap();
            assert!(read_frame(&mut stream) == body, "{size} bytes");
        }
    });
}
