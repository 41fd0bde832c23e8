//! A shard that shares its core with programs that only compute: glommio 0.9 was seen to forget runnable tasks then. Alone in
//! its binary, because it fills a core for half a minute.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringlog::rt::executor::start;
use ringlog::rt::net::{Net, NetConfig};
use rt_support::*;

const LOAD: Duration = Duration::from_secs(30);
const HOGS: usize = 2;
const CLIENTS: usize = 2;

fn pin_to(cpu: usize) {
    assert!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }));
}

#[test]
fn no_request_waits_longer_than_the_hogs_slices_explain() {
    let setup = one_shard();
    let cpu = setup.cpus[0];
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..HOGS)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                pin_to(cpu);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let control = Control::start(cpu);
    let (sender, receiver) = std::sync::mpsc::channel();
    let shards = start(setup, move |_| {
        let sender = sender.clone();
        async move {
            let net = Net::start(NetConfig::default()).unwrap();
            let address = serve(&net, echo);
            let (worst, asked) = on_thread(&net, move || ask_for_a_while(address)).await;
            println!("{asked} requests, the longest wait {worst:?}, {:?}", net.stats());
            assert!(asked > 1000);
            sender.send((worst, net.stats().kicks)).unwrap();
        }
    })
    .unwrap();
    shards.join().unwrap();
    let (worst, kicks) = receiver.recv().unwrap();
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    let control = control.lateness(1.0);
    println!("{kicks} kicks, the longest wait of a plain thread {control:?}");
    // A request needs the core a few times: to be read, to be handled, to be kicked. A hang would last until the end.
    let bound = 8 * control + Duration::from_millis(200);
    assert!(worst < bound, "a request waited {worst:?}, a plain thread {control:?}");
}

/// Closed loops that leave the shard no rest, then ones that pause as long as it lingers, then ones that let it park: it is on
/// the way to sleep and back that tasks were forgotten.
fn ask_for_a_while(address: std::net::SocketAddr) -> (Duration, u64) {
    let pauses = [Duration::ZERO, Duration::from_micros(600), Duration::from_millis(3)];
    pauses.into_iter().map(|pause| ask_with_pauses(address, pause)).fold((Duration::ZERO, 0), longest_and_sum)
}

fn ask_with_pauses(address: std::net::SocketAddr, pause: Duration) -> (Duration, u64) {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = connect(address);
                let (mut worst, mut asked, began) = (Duration::ZERO, 0, Instant::now());
                while began.elapsed() < LOAD / 3 {
                    let since = Instant::now();
                    stream.write_all(&frame(&[1; 196])).unwrap();
                    read_frame(&mut stream);
                    worst = worst.max(since.elapsed());
                    asked += 1;
                    if !pause.is_zero() {
                        std::thread::park_timeout(pause);
                    }
                }
                (worst, asked)
            })
        })
        .collect();
    let all = clients.into_iter().map(|client| client.join().unwrap()).fold((Duration::ZERO, 0), longest_and_sum);
    println!("pauses of {pause:?}: {} requests, the longest wait {:?}", all.1, all.0);
    all
}

fn longest_and_sum(all: (Duration, u64), one: (Duration, u64)) -> (Duration, u64) {
    (all.0.max(one.0), all.1 + one.1)
}
