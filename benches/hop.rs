//! What does a message between two cores cost, there and back, alone and with many in flight?

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringlog::rt::executor::{Setup, Shards, start};
use ringlog::rt::hop::{self, HopPort};
use ringlog::rt::net::{Net, NetConfig};
use ringlog::rt::{self};

/// A round of `window` calls in flight, `rounds` times; shard 0 asks shard 1.
struct Ask {
    window: u64,
    rounds: u64,
}

/// Two shards that live until `stop`; shard 0 measures what it is asked to, so that nothing but hops is in the time.
fn shards(stop: Arc<AtomicBool>) -> (Shards, HopPort<Message, Duration>) {
    let (seeds, port) = hop::mesh::<Message, Duration>(2, 1024);
    let seeds: Arc<Vec<_>> = Arc::new(
        seeds
            .into_iter()
            .map(|seed| {
                let place = crossbeam_queue::ArrayQueue::new(1);
                assert!(place.push(seed).is_ok());
                place
            })
            .collect(),
    );
    let all = Setup::on_all_cpus(Vec::new());
    let setup = Setup { cpus: vec![all.cpus[0], all.cpus[all.cpus.len() - 1]], ..all };
    let shards = start(setup, move |index| {
        let (seeds, stop) = (seeds.clone(), stop.clone());
        async move {
            let net = Net::start(NetConfig::default()).expect("the net task starts");
            let seed = seeds[index].pop().expect("each takes its own");
            let hops = std::rc::Rc::new(std::cell::OnceCell::<hop::Hops<Message, Duration>>::new());
            let own = hops.clone();
            let started = seed.start(&net, move |message, responder| match message {
                Message::Echo(number) => {
                    black_box(number);
                    responder.answer(Duration::ZERO);
                }
                Message::Measure(ask) => {
                    let hops = own.get().cloned().expect("set before anything is asked");
                    rt::spawn(async move {
                        let since = Instant::now();
                        for _ in 0..ask.rounds {
                            let calls: Vec<_> =
                                (0..ask.window).map(|number| hops.call(1, Message::Echo(number))).collect();
                            for call in calls {
                                call.await.expect("the other shard lives");
                            }
                        }
                        responder.answer(since.elapsed());
                    });
                }
            });
            assert!(hops.set(started).is_ok());
            while !stop.load(Ordering::Relaxed) {
                rt::sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .expect("two shards start");
    (shards, port)
}

enum Message {
    Echo(u64),
    Measure(Ask),
}

fn hops(criterion: &mut Criterion) {
    let stop = Arc::new(AtomicBool::new(false));
    let (shards, port) = shards(stop.clone());
    let mut group = criterion.benchmark_group("hop there and back");
    for window in [1, 16, 256] {
        group.throughput(Throughput::Elements(window));
        group.bench_function(format!("{window} in flight"), |bencher| {
            bencher.iter_custom(|rounds| {
                let ask = Message::Measure(Ask { window, rounds });
                futures_lite::future::block_on(port.call(0, ask)).expect("shard 0 lives")
            });
        });
    }
    group.finish();
    stop.store(true, Ordering::Relaxed);
    shards.join().expect("both end well");
}

criterion_group!(benches, hops);
criterion_main!(benches);
