//! What connections cost in memory: idle ones, and ones that only announce. Alone in its binary, because it looks at the
//! memory of the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ringlog::rt;
use ringlog::rt::executor::run_one;
use ringlog::rt::net::{Net, NetConfig};
use rt_support::*;

/// Each has two ends in this process, and both count as open files.
const IDLE_MAX: u64 = 2000;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

async fn until(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(20), "it never became true");
        rt::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn idle_and_announcing_connections_cost_next_to_nothing() {
    ringlog::rt::executor::probe_host().unwrap();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(IDLE_MAX * 4);
    let idle_count = IDLE_MAX.min(files / 2 - 200);
    run_one(one_shard(), move || async move {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, echo);
        println!("one shard: {} KiB", resident_bytes() >> 10);
        // Connections that never ask. The echo server's own task is in the sum.
        let before = resident_bytes();
        let silent: Vec<_> = on_thread(&net, move || (0..idle_count).map(|_| connect(address)).collect()).await;
        until(|| net.stats().connections == idle_count).await;
        let each = resident_bytes().saturating_sub(before) / idle_count;
        println!("{idle_count} silent connections: {each} bytes each");
        assert!(each < 2 << 10, "{each} bytes for a silent connection");
        drop(silent);
        until(|| net.stats().connections == 0).await;

        // Each has asked once, so that each has had a buffer.
        let open = move |count: u64| -> Vec<TcpStream> {
            let ask = |_| {
                let mut stream = connect(address);
                stream.write_all(&frame(&[1; 100])).unwrap();
                read_frame(&mut stream);
                stream
            };
            (0..count).map(ask).collect()
        };
        let mut streams = on_thread(&net, move || open(100)).await;
        let before = resident_bytes();
        streams.extend(on_thread(&net, move || open(idle_count)).await);
        until(|| net.stats().connections == 100 + idle_count).await;
        let busy = resident_bytes();
        // Buffers go back after a second of silence.
        rt::sleep(Duration::from_millis(3000)).await;
        streams.extend(on_thread(&net, move || open(10)).await);
        let each = resident_bytes().saturating_sub(before) / idle_count;
        println!(
            "{idle_count} connections: {} bytes each just after a request, {each} idle",
            (busy - before) / idle_count
        );
        assert!(each < 2 << 10, "{each} bytes for an idle connection");

        drop(streams);
        until(|| net.stats().connections == 0).await;

        // A hundred that announce 100 MiB and send nothing of it.
        let before = resident_bytes();
        let announcing = on_thread(&net, move || {
            let announce = |_| {
                let mut stream = connect(address);
                stream.write_all(&(100i32 << 20).to_be_bytes()).unwrap();
                stream.write_all(&[0; 10]).unwrap();
                stream
            };
            (0..100).map(announce).collect::<Vec<_>>()
        })
        .await;
        until(|| net.stats().connections == 100).await;
        rt::sleep(Duration::from_millis(50)).await;
        let grown = resident_bytes().saturating_sub(before);
        println!("100 connections that announced 100 MiB: {} KiB", grown >> 10);
        assert!(grown < 16 << 20, "{grown} bytes");
        // The next is served as ever.
        on_thread(&net, move || open(1)).await;
        drop(announcing);
    })
    .unwrap();
}
