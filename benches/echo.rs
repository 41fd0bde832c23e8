//! What does a tiny request cost the net task? CPU of the shard's thread per request, over loopback, nothing else on the shard.
//!
//! Requests of 200 bytes, answers of 60; the handler only reads the frame. Not a criterion bench, because the answer is CPU
//! time and not wall time: `cargo bench --bench echo`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringlog::rt::executor::{Setup, run_one};
use ringlog::rt::net::{FrameReader, Net, NetConfig, Payload, Replies, Reply, listen};
use ringlog::rt::{self};
use rustix::time::{ClockId, clock_gettime};
use smallvec::smallvec;

const WARM_UP: Duration = Duration::from_millis(400);
const WINDOW: Duration = Duration::from_millis(800);
const ROUNDS: usize = 3;

/// One load: connections, requests in flight on each, bytes of a request with its length.
struct Load {
    name: &'static str,
    connections: usize,
    in_flight: usize,
    request_bytes: usize,
}

const LOADS: [Load; 6] = [
    Load { name: "1 connection", connections: 1, in_flight: 1, request_bytes: 200 },
    Load { name: "16", connections: 16, in_flight: 1, request_bytes: 200 },
    Load { name: "64", connections: 64, in_flight: 1, request_bytes: 200 },
    Load { name: "512", connections: 512, in_flight: 1, request_bytes: 200 },
    Load { name: "1, 32 in flight", connections: 1, in_flight: 32, request_bytes: 200 },
    Load { name: "8 x 64 KiB, 2 in flight", connections: 8, in_flight: 2, request_bytes: 64 << 10 },
];

fn main() {
    println!(
        "{:<26}{:>12}{:>12}{:>10}{:>10}{:>24}",
        "load", "us/request", "requests/s", "p50 us", "p99 us", "turns lingers full park"
    );
    for load in LOADS {
        let mut rounds: Vec<_> = (0..ROUNDS).map(|_| measure(&load)).collect();
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (cpu, rate, p50, p99, net) = &rounds[ROUNDS / 2];
        println!("{:<26}{cpu:>12.2}{rate:>12.0}{p50:>10.0}{p99:>10.0}{net:>24}", load.name);
    }
}

fn measure(load: &Load) -> (f64, f64, f64, f64, String) {
    let all = Setup::on_all_cpus(Vec::new());
    let client_cpu = *all.cpus.last().expect("there is a CPU");
    let (connections, in_flight, request_bytes) = (load.connections, load.in_flight, load.request_bytes);
    run_one(all, move || async move {
        let net = Net::start(NetConfig::default()).expect("the net task starts");
        let address = serve(&net);
        let answers = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counted, told) = (answers.clone(), stop.clone());
        let client = std::thread::spawn(move || {
            core_affinity::set_for_current(core_affinity::CoreId { id: client_cpu });
            drive(address, connections, in_flight, request_bytes, &counted, &told)
        });
        rt::sleep(WARM_UP).await;
        let (cpu, count, stats, since) = (cpu_time(), answers.load(Ordering::Relaxed), net.stats(), Instant::now());
        rt::sleep(WINDOW).await;
        let cpu = cpu_time() - cpu;
        let count = (answers.load(Ordering::Relaxed) - count) as f64;
        let seconds = since.elapsed().as_secs_f64();
        let after = net.stats();
        stop.store(true, Ordering::Relaxed);
        let mut waits = rt::blocking(move || client.join().expect("the client ends")).await;
        waits.sort();
        let at = |part: f64| waits[(waits.len() as f64 * part) as usize].as_secs_f64() * 1e6;
        let per = |after: u64, before: u64| (after - before) as f64 / count;
        let net = format!(
            "{:.2} {:.2} {:.3} {:.3}",
            per(after.turns, stats.turns),
            per(after.lingers, stats.lingers),
            per(after.full_turns, stats.full_turns),
            per(after.parks, stats.parks)
        );
        (cpu * 1e6 / count, count / seconds, at(0.5), at(0.99), net)
    })
    .expect("a shard starts")
}

fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn serve(net: &Net) -> SocketAddr {
    let socket = listen("127.0.0.1:0".parse().expect("an address"), 1024).expect("a port is free");
    let address = socket2::SockRef::from(&socket).local_addr().ok().and_then(|address| address.as_socket());
    let mut listener = net.listener(socket).expect("the listener registers");
    let net = net.clone();
    rt::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            let (reader, replies) = net.adopt(socket, peer, bytes::BytesMut::new()).expect("the socket registers");
            rt::spawn(answer(reader, replies));
        }
    });
    address.expect("it is bound")
}

async fn answer(mut reader: FrameReader, replies: Replies) {
    let answer = Bytes::from([&56i32.to_be_bytes()[..], &[0; 56]].concat());
    while let Ok(Some(length)) = reader.next_length().await {
        let slot = replies.reserve();
        if reader.read_body(length as usize).await.is_err() {
            return;
        }
        slot.fill(Reply { parts: smallvec![Payload::Mem(answer.clone())] });
    }
}

/// Keeps `in_flight` requests on each of `connections` from a few threads; returns every wait.
fn drive(
    address: SocketAddr,
    connections: usize,
    in_flight: usize,
    request_bytes: usize,
    answers: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<Duration> {
    let body = request_bytes - 4;
    let request = [&(body as i32).to_be_bytes()[..], &vec![1; body][..]].concat();
    let mut streams: Vec<(TcpStream, std::collections::VecDeque<Instant>)> = (0..connections)
        .map(|_| {
            let stream = TcpStream::connect(address).expect("it listens");
            stream.set_nodelay(true).expect("it is a TCP socket");
            (stream, std::collections::VecDeque::new())
        })
        .collect();
    for (stream, sent) in &mut streams {
        for _ in 0..in_flight {
            sent.push_back(Instant::now());
            stream.write_all(&request).expect("it takes requests");
        }
    }
    // Like the server under test, the client must not be the bottleneck: it waits with one epoll and reads what is there.
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("an epoll");
    for (at, (stream, _)) in streams.iter().enumerate() {
        let data = rustix::event::epoll::EventData::new_u64(at as u64);
        rustix::event::epoll::add(&epoll, stream, data, rustix::event::epoll::EventFlags::IN).expect("it registers");
    }
    let mut waits = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut partial = vec![0usize; connections];
    let mut buffer = vec![0; 64 * 60];
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        if rustix::event::epoll::wait(&epoll, spare, Some(&timeout)).is_err() {
            continue;
        }
        for event in &events {
            let at = event.data.u64() as usize;
            let (stream, sent) = &mut streams[at];
            let read = stream.read(&mut buffer).expect("it answers");
            partial[at] += read;
            let whole = partial[at] / 60;
            partial[at] %= 60;
            for _ in 0..whole {
                waits.extend(sent.pop_front().map(|sent| sent.elapsed()));
                sent.push_back(Instant::now());
            }
            for _ in 0..whole {
                stream.write_all(&request).expect("it takes requests");
            }
            answers.fetch_add(whole as u64, Ordering::Relaxed);
        }
    }
    waits
}
