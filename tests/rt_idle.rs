//! An idle shard costs nothing, also after it was busy and while clients are connected. Alone in its binary, because it
//! measures the CPU of the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringlog::rt::executor::start;
use ringlog::rt::net::{Net, NetConfig};
use ringlog::rt::{self, hop};
use rt_support::*;
use rustix::time::{ClockId, clock_gettime};

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn two_shards_with_idle_connections_use_no_cpu() {
    let shards = start(setup(), |index| async move {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, echo);
        // Busy first, so that heartbeats and lingering had a reason.
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let client = std::thread::spawn(move || saturate(address, 8, &told));
        rt::sleep(Duration::from_millis(300)).await;
        stop.store(true, Ordering::Relaxed);
        let answers = on_thread(&net, move || client.join().unwrap()).await;
        assert!(answers > 100);
        let idle: Vec<_> = on_thread(&net, move || (0..100).map(|_| connect(address)).collect()).await;
        rt::sleep(Duration::from_millis(200)).await;
        // One shard measures; both are idle.
        if index == 0 {
            let mut least = 1.0f64;
            let mut fewest_turns = u64::MAX;
            for _ in 0..3 {
                let turns = net.stats().turns;
                let (sender, receiver) = hop::remote(&net);
                std::thread::spawn(move || {
                    let (cpu, since) = (cpu_time(), Instant::now());
                    std::thread::park_timeout(Duration::from_secs(2));
                    sender.send((cpu_time() - cpu).as_secs_f64() / since.elapsed().as_secs_f64());
                });
                least = least.min(receiver.recv().await.unwrap());
                fewest_turns = fewest_turns.min(net.stats().turns - turns);
            }
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            println!("{}", status.lines().find(|line| line.starts_with("VmRSS")).unwrap());
            println!("{:.3} % of a core, watchdog included; {fewest_turns} turns in 2 s", least * 100.0);
            assert!(least < 0.005, "{:.3} % of a core", least * 100.0);
            // The wake-up that ends the wait, and the settling kick after it.
            assert!(fewest_turns < 20, "{fewest_turns} turns in 2 s");
        } else {
            rt::sleep(Duration::from_secs(7)).await;
        }
        drop(idle);
    })
    .unwrap();
    shards.join().unwrap();
}
