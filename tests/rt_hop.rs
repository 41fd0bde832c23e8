//! Messages between cores: order, bounds, ends, and that a sleeping shard is woken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringlog::rt::executor::start;
use ringlog::rt::hop::{self, Gone, HopSeed, Hops, Responder};
use ringlog::rt::net::{Net, NetConfig};
use ringlog::rt::{self, Event};
use rt_support::*;

type Seeds = Vec<HopSeed<u64, u64>>;

/// Two shards, on two CPUs where there are two.
fn two_shards() -> ringlog::rt::executor::Setup {
    let mut setup = setup();
    setup.cpus = vec![setup.cpus[0], setup.cpus[setup.cpus.len() - 1]];
    setup
}

/// Runs `main` on two shards, each with its end of a mesh; `handler` answers on both. Every shard waits for the other's end.
fn on_two_shards<Fut: Future<Output = ()> + 'static>(
    (seeds, main): (Seeds, impl Fn(usize, Net, Hops<u64, u64>) -> Fut + Send + Clone + 'static),
    handler: impl Fn(u64, Responder<u64>) + Send + Clone + 'static,
) {
    let running = Arc::new(AtomicUsize::new(seeds.len()));
    let seeds = share(seeds);
    let shards = start(two_shards(), move |index| {
        let (main, handler, seed, running) = (main.clone(), handler.clone(), seeds(index), running.clone());
        async move {
            let net = Net::start(NetConfig::default()).unwrap();
            let hops = seed.start(&net, handler);
            main(index, net, hops).await;
            running.fetch_sub(1, Ordering::SeqCst);
            while running.load(Ordering::SeqCst) > 0 {
                rt::sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .unwrap();
    shards.join().unwrap();
}

/// Lets each shard take its seed out of a value that all clones share.
fn share(seeds: Seeds) -> impl Fn(usize) -> HopSeed<u64, u64> + Send + Clone + 'static {
    let places: Arc<Vec<_>> = Arc::new(seeds.into_iter().map(crossbeam_place).collect());
    move |index| places[index].pop().unwrap()
}

fn crossbeam_place<T>(value: T) -> crossbeam_queue::ArrayQueue<T> {
    let place = crossbeam_queue::ArrayQueue::new(1);
    assert!(place.push(value).is_ok());
    place
}

/// A shard that keeps every question and answers none; `asked` tells that there was one.
fn start_silent(seed: HopSeed<u64, u64>, net: &Net, asked: &Arc<AtomicBool>) -> Hops<u64, u64> {
    let (held, told) = (RefCell::new(Vec::new()), asked.clone());
    seed.start(net, move |_, responder| {
        held.borrow_mut().push(responder);
        told.store(true, Ordering::SeqCst);
    })
}

#[test]
fn questions_are_answered_by_the_shard_asked_and_by_oneself() {
    let (seeds, port) = hop::mesh(2, 16);
    let main = move |index: usize, _net: Net, hops: Hops<u64, u64>| {
        let port = port.clone();
        async move {
            assert_eq!(hops.call(1 - index, 20).await, Ok(21));
            assert_eq!(hops.call(index, 30).await, Ok(31));
            // From a shard a port works too.
            assert_eq!(port.call(1 - index, 40).await, Ok(41));
        }
    };
    on_two_shards((seeds, main), |question, responder| responder.answer(question + 1));
}

#[test]
fn messages_stay_in_order_through_a_full_inbox() {
    const COUNT: u64 = 20_000;
    let (seeds, _port) = hop::mesh(2, 4);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        if index == 0 {
            // The answer is how many came before in the right order.
            let calls: Vec<_> = (0..COUNT).map(|question| hops.call(1, question)).collect();
            for (question, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await, Ok(question as u64));
            }
        }
    };
    on_two_shards((seeds, main), {
        move |question, responder| {
            thread_local!(static EXPECTED: Cell<u64> = const { Cell::new(0) });
            let expected = EXPECTED.replace(question + 1);
            responder.answer(if expected == question { question } else { u64::MAX });
        }
    });
}

#[test]
fn a_responder_may_wait_and_a_dropped_one_answers_gone() {
    let (seeds, _port) = hop::mesh(2, 16);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        let slow = hops.call(1 - index, 1);
        assert_eq!(hops.call(1 - index, 0).await, Err(Gone));
        // A call that is forgotten leaves no trace in the next that takes its place.
        drop(hops.call(1 - index, 1));
        let next = hops.call(1 - index, 2);
        assert_eq!(slow.await, Ok(101));
        assert_eq!(next.await, Ok(102));
    };
    on_two_shards((seeds, main), |question, responder| {
        if question > 0 {
            rt::spawn(async move {
                rt::sleep(Duration::from_millis(5)).await;
                responder.answer(100 + question);
            });
        }
    });
}

#[test]
fn what_follows_an_answer_is_run_once_and_a_panic_in_it_is_contained() {
    let (seeds, _port) = hop::mesh(2, 4);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        let (told, changed) = (Rc::new(RefCell::new(Vec::new())), Event::default());
        for question in [0, 1, 2, 3, 4, 5] {
            let (told, changed) = (told.clone(), changed.clone());
            hops.call_then(1 - index, question, move |answer| {
                told.borrow_mut().push(answer);
                changed.notify_all();
                assert!(question != 2, "this is what the test wants");
            });
        }
        while told.borrow().len() < 6 {
            changed.wait().await;
        }
        // Answers come in their own order, and whoever is not answered is told so.
        assert_eq!(*told.borrow(), [Err(Gone), Ok(11), Ok(12), Ok(13), Ok(14), Ok(15)]);
        assert_eq!((rt::panics(), hops.call(1 - index, 6).await), (1, Ok(16)));
    };
    on_two_shards((seeds, main), |question, responder| {
        if question > 0 {
            responder.answer(10 + question);
        }
    });
}

#[test]
fn a_panic_in_a_handler_is_contained_and_its_asker_is_told() {
    let (seeds, _port) = hop::mesh(2, 4);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        assert_eq!(hops.call(1 - index, 0).await, Err(Gone));
        assert_eq!(hops.call(1 - index, 2).await, Ok(3), "the shard serves on");
        assert_eq!(rt::panics(), 1);
    };
    on_two_shards((seeds, main), |question, responder| {
        assert!(question > 0, "this is what the test wants");
        responder.answer(question + 1);
    });
}

#[test]
fn what_found_no_room_arrives_although_a_background_task_lets_its_shard_sleep() {
    const LAST: u64 = 3;
    let (seeds, _port) = hop::mesh(2, 1);
    let arrived = Arc::new(AtomicUsize::new(0));
    let seen = arrived.clone();
    let main = move |index: usize, _net, hops: Hops<u64, u64>| {
        let arrived = arrived.clone();
        async move {
            if index == 1 {
                // Takes nothing out of its inbox meanwhile.
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(50) {
                    std::hint::spin_loop();
                }
            } else {
                rt::spawn_background(async {});
                for question in 0..LAST {
                    hops.post(1, question);
                }
            }
            let began = Instant::now();
            while arrived.load(Ordering::SeqCst) < LAST as usize {
                assert!(began.elapsed() < Duration::from_secs(20), "they wait for an event that nobody will make");
                rt::sleep(Duration::from_secs(1)).await;
            }
        }
    };
    on_two_shards((seeds, main), move |_, _| _ = seen.fetch_add(1, Ordering::SeqCst));
}

#[test]
fn what_would_follow_an_answer_is_dropped_with_its_shard() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    const PATIENCE: Duration = Duration::from_secs(10);
    let dropped = Arc::new(AtomicUsize::new(0));
    let (seeds, _port) = hop::mesh(2, 4);
    let seeds = share(seeds);
    let asked = Arc::new(AtomicBool::new(false));
    let counted = dropped.clone();
    let shards = start(two_shards(), move |index| {
        let (seed, asked, dropped) = (seeds(index), asked.clone(), counted.clone());
        async move {
            let net = Net::start(NetConfig::default()).unwrap();
            let hops = start_silent(seed, &net, &asked);
            if index == 0 {
                // It holds what holds it, as a request holds its server.
                let (counted, own) = (Counted(dropped), hops.clone());
                hops.call_then(1, 0, move |_| drop((counted, own)));
                while !asked.load(Ordering::SeqCst) {
                    rt::sleep(Duration::from_millis(1)).await;
                }
                return;
            }
            // Answers nothing for as long as shard 0 lives.
            let began = Instant::now();
            while dropped.load(Ordering::SeqCst) == 0 && began.elapsed() < PATIENCE {
                rt::sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .unwrap();
    shards.join().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn a_shard_that_ends_leaves_nobody_waiting() {
    let (seeds, port) = hop::mesh(2, 16);
    let seeds = share(seeds);
    let asked = Arc::new(AtomicBool::new(false));
    let shards = start(two_shards(), {
        let (asked, port) = (asked.clone(), port.clone());
        move |index| {
            let (seed, asked, port) = (seeds(index), asked.clone(), port.clone());
            async move {
                let net = Net::start(NetConfig::default()).unwrap();
                let hops = start_silent(seed, &net, &asked);
                if index == 0 {
                    // Held by shard 1 until it ends.
                    assert_eq!(hops.call(1, 1).await, Err(Gone));
                    assert_eq!(hops.call(1, 2).await, Err(Gone));
                    assert_eq!(port.call(1, 3).await, Err(Gone));
                } else {
                    while !asked.load(Ordering::SeqCst) {
                        rt::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
        }
    })
    .unwrap();
    shards.join().unwrap();
    let late = port.call(0, 4);
    assert_eq!(futures_lite::future::block_on(late), Err(Gone));
}

#[test]
fn a_parked_shard_hears_threads_and_shards() {
    let (seeds, port) = hop::mesh(2, 16);
    let main = move |index: usize, net: Net, hops: Hops<u64, u64>| {
        let port = port.clone();
        async move {
            for question in 0..20 {
                // Longer than the linger, so both are parked.
                rt::sleep(Duration::from_millis(3)).await;
                let port = port.clone();
                let from_thread =
                    on_thread(&net, move || futures_lite::future::block_on(port.call(index, question))).await;
                assert_eq!(from_thread, Ok(question));
                assert_eq!(hops.call(1 - index, question).await, Ok(question));
            }
        }
    };
    on_two_shards((seeds, main), |question, responder| responder.answer(question));
}

/// Waits of `count` calls from shard 0 to shard 1, one after another, sorted.
async fn waits(hops: &Hops<u64, u64>, count: u64, pause: Duration) -> Vec<Duration> {
    let mut waits = Vec::new();
    for question in 0..count {
        if !pause.is_zero() {
            rt::sleep(pause).await;
        }
        let since = Instant::now();
        assert_eq!(hops.call(1, question).await, Ok(question));
        waits.push(since.elapsed());
    }
    waits.sort();
    waits
}

#[test]
fn a_lingering_shard_hears_at_once() {
    let (seeds, _port) = hop::mesh(2, 16);
    // A linger long enough that nobody parks: without the bell each hop would wait for the preempt timer.
    let seeds = share(seeds);
    let done = Arc::new(AtomicBool::new(false));
    let shards = start(two_shards(), move |index| {
        let (seed, done) = (seeds(index), done.clone());
        async move {
            let linger = Duration::from_millis(500);
            let net = Net::start(NetConfig { linger, ..NetConfig::default() }).unwrap();
            let hops = seed.start(&net, |question, responder| responder.answer(question));
            if index == 0 {
                let waits = waits(&hops, 2000, Duration::ZERO).await;
                done.store(true, Ordering::SeqCst);
                assert!(waits[1000] < Duration::from_micros(800), "median {:?}", waits[1000]);
            } else {
                while !done.load(Ordering::SeqCst) {
                    rt::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    })
    .unwrap();
    shards.join().unwrap();
}

#[test]
fn a_hop_between_busy_shards_does_not_wait_for_the_preempt_timer_twice() {
    let (seeds, _port) = hop::mesh(2, 16);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        let finished = Event::default();
        let busy = rt::spawn(async {
            loop {
                let since = Instant::now();
                while since.elapsed() < Duration::from_micros(10) {
                    std::hint::spin_loop();
                }
                rt::yield_if_needed().await;
                futures_lite::future::yield_now().await;
            }
        });
        if index == 0 {
            let waits = waits(&hops, 1000, Duration::ZERO).await;
            assert!(waits[500] < Duration::from_millis(2), "median {:?}", waits[500]);
        }
        finished.notify_all();
        drop(busy);
    };
    on_two_shards((seeds, main), |question, responder| responder.answer(question));
}

#[test]
fn both_ways_at_once_through_tiny_inboxes_do_not_deadlock() {
    let (seeds, _port) = hop::mesh(2, 2);
    let main = |index: usize, _net, hops: Hops<u64, u64>| async move {
        let tasks: Vec<_> = (0..50u64)
            .map(|task| {
                let hops = hops.clone();
                rt::spawn(async move {
                    for round in 0..100 {
                        let question = task << 32 | round;
                        assert_eq!(hops.call(1 - index, question).await, Ok(question));
                    }
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.join().await, Some(()));
        }
    };
    on_two_shards((seeds, main), |question, responder| responder.answer(question));
}
