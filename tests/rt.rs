//! The runtime against real sockets, files and threads: order, bounds, ends. Nothing here depends on how fast the machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringlog::rt::executor::{run_one, start};
use ringlog::rt::net::{Net, NetConfig, NetError, Reply};
use ringlog::rt::{self, Event};
use rt_support::*;

#[test]
fn frames_of_all_sizes_come_back_whole() {
    with_server(echo, |address| {
        let mut stream = connect(address);
        for size in
            [0, 1, 3, 200, 2047, 2048, 4091, 4092, 4093, 65_536, 70_000, 1_048_576, 3_000_000, 7, 65_536, 65_600]
        {
            let body: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            stream.write_all(&frame(&body)).unwrap();
            assert!(read_frame(&mut stream) == body, "{size} bytes");
        }
    });
}

#[test]
fn a_thousand_frames_in_one_write_come_back_in_order() {
    with_server(echo, |address| {
        let mut stream = connect(address);
        let bodies: Vec<Vec<u8>> = (0..1000).map(|n: u32| vec![n as u8; (n % 300) as usize]).collect();
        let all: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
        let mut sending = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || sending.write_all(&all).unwrap());
        for body in &bodies {
            assert_eq!(&read_frame(&mut stream), body);
        }
        sender.join().unwrap();
    });
}

#[test]
fn frames_cut_at_every_byte_come_back_whole() {
    with_server(echo, |address| {
        let mut stream = connect(address);
        let two: Vec<u8> = [frame(b"the first"), frame(b"and the second")].concat();
        for cut in 1..two.len() {
            stream.write_all(&two[..cut]).unwrap();
            // The answer to a first frame that is whole proves that the server saw the cut.
            let whole = cut >= frame(b"the first").len();
            if whole {
                assert_eq!(read_frame(&mut stream), b"the first");
            }
            stream.write_all(&two[cut..]).unwrap();
            if !whole {
                assert_eq!(read_frame(&mut stream), b"the first");
            }
            assert_eq!(read_frame(&mut stream), b"and the second");
        }
        for byte in two {
            stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(read_frame(&mut stream), b"the first");
        assert_eq!(read_frame(&mut stream), b"and the second");
    });
}

#[test]
fn a_large_frame_is_waited_for_as_a_whole_and_what_follows_it_is_not() {
    with_server(echo, |address| {
        let (mut stream, mut other) = (connect(address), connect(address));
        let (large, small) = (vec![7; 300_000], b"small".to_vec());
        let both = [frame(&large), frame(&small)].concat();
        for cuts in [[3, 4], [4, 5], [1_000, 60_000], [160_000, 290_000], [299_000, 300_003], [300_004, 300_006]] {
            let (first, rest) = both.split_at(cuts[0]);
            let (second, third) = rest.split_at(cuts[1] - cuts[0]);
            for piece in [first, second, third] {
                stream.write_all(piece).unwrap();
                // Its answer proves that the shard has looked at the sockets since, so that it waits for the next piece.
                other.write_all(&frame(b"look")).unwrap();
                assert_eq!(read_frame(&mut other), b"look");
            }
            assert!(read_frame(&mut stream) == large, "{cuts:?}");
            assert_eq!(read_frame(&mut stream), small, "{cuts:?}");
            stream.write_all(&frame(b"alone")).unwrap();
            assert_eq!(read_frame(&mut stream), b"alone", "{cuts:?}");
        }
    });
}

#[test]
fn answers_leave_in_the_order_of_their_places_whatever_the_order_of_filling() {
    let server = |mut reader: FrameReader, replies: Replies| async move {
        let mut held = Vec::new();
        while let Ok(Some(length)) = reader.next_length().await {
            let body = reader.read_body(length as usize).await.unwrap();
            held.push((replies.reserve(), body));
            if held.len() == 4 {
                for (at, (slot, body)) in held.drain(..).rev().enumerate() {
                    if at == 2 {
                        slot.skip()
                    } else {
                        slot.fill(reply(frame(&body)))
                    }
                    rt::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    };
    with_server(server, |address| {
        let mut stream = connect(address);
        for body in [b"0", b"1", b"2", b"3"] {
            stream.write_all(&frame(body)).unwrap();
        }
        for body in [b"0", b"2", b"3"] {
            assert_eq!(read_frame(&mut stream), body);
        }
    });
}

#[test]
fn a_place_dropped_unfilled_closes_after_the_answers_before_it() {
    let server = |mut reader: FrameReader, replies: Replies| async move {
        let (first, second, third) = (replies.reserve(), replies.reserve(), replies.reserve());
        third.fill(reply(frame(b"never sent")));
        drop(second);
        first.fill(reply(frame(b"sent")));
        assert!(matches!(reader.next_length().await, Err(NetError::Lost(_))));
    };
    with_server(server, |address| {
        let mut stream = connect(address);
        assert_eq!(read_frame(&mut stream), b"sent");
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    });
}

#[test]
fn a_reader_that_is_dropped_leaves_the_answers_that_were_promised() {
    let server = |mut reader: FrameReader, replies: Replies| async move {
        let length = reader.next_length().await.unwrap().unwrap();
        let body = reader.read_body(length as usize).await.unwrap();
        let slot = replies.reserve();
        drop(reader);
        rt::sleep(Duration::from_millis(5)).await;
        slot.fill(reply(frame(&body)));
    };
    with_server(server, |address| {
        let mut stream = connect(address);
        stream.write_all(&frame(b"asked")).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_frame(&mut stream), b"asked");
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    });
}

#[test]
fn an_end_between_frames_is_an_end_and_within_a_frame_an_error() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let noted = seen.clone();
        let address = serve(&net, move |mut reader, _replies| {
            let noted = noted.clone();
            async move {
                let result = match reader.next_length().await {
                    Ok(Some(length)) => reader.read_body(length as usize).await.map(|_| "whole"),
                    Ok(None) => Ok("ended"),
                    Err(error) => Err(error),
                };
                noted.borrow_mut().push(result.map_err(|error| error.to_string()));
            }
        });
        for bytes in [vec![], vec![0, 0], vec![0, 0, 0, 9, 1], frame(b"abc")] {
            let count = bytes.len();
            on_thread(&net, move || connect(address).write_all(&bytes).unwrap()).await;
            let before = Instant::now();
            while seen.borrow().is_empty() && before.elapsed() < Duration::from_secs(10) {
                rt::sleep(Duration::from_millis(1)).await;
            }
            let result = seen.borrow_mut().pop().unwrap();
            match count {
                0 => assert_eq!(result, Ok("ended")),
                7 => assert_eq!(result, Ok("whole")),
                _ => assert_eq!(result, Err(NetError::Truncated.to_string())),
            }
        }
    })
    .unwrap();
}

#[test]
fn a_peer_that_takes_nothing_is_not_read_from_and_is_cut_in_the_end() {
    run_one(setup(), || async {
        let config = NetConfig { write_timeout: Duration::from_millis(300), ..NetConfig::default() };
        let bound = config.out_bytes_max;
        let net = Net::start(config).unwrap();
        let ended = Rc::new(Cell::new(false));
        let (watched, most) = (ended.clone(), Rc::new(Cell::new(0)));
        let seen = most.clone();
        let answer = bytes::Bytes::from(vec![7; 64 << 10]);
        let address = serve(&net, move |mut reader, replies| {
            let (watched, seen, answer) = (watched.clone(), seen.clone(), answer.clone());
            async move {
                while let Ok(Some(length)) = reader.next_length().await {
                    reader.read_body(length as usize).await.unwrap();
                    replies.reserve().fill(reply(answer.clone()));
                    seen.set(seen.get().max(replies.queued_bytes()));
                }
                watched.set(true);
            }
        });
        let asked = on_thread(&net, move || {
            let mut greedy = connect(address);
            greedy.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
            let request = frame(&[1; 100]);
            let mut asked = 0;
            // Ends when the server cuts the connection.
            while greedy.write_all(&request).is_ok() {
                asked += 1;
            }
            asked
        })
        .await;
        assert!(asked > 10, "{asked}");
        let before = Instant::now();
        while !ended.get() && before.elapsed() < Duration::from_secs(10) {
            rt::sleep(Duration::from_millis(1)).await;
        }
        assert!(ended.get());
        assert!(most.get() <= bound + (64 << 10), "{} bytes queued", most.get());
        assert_eq!(net.stats().queued_bytes, 0);
        assert!(net.stats().paused > 0);
    })
    .unwrap();
}

#[test]
fn a_slow_reader_gets_everything_in_the_end() {
    let answer_bytes = 3 << 20;
    let server = move |mut reader: FrameReader, replies: Replies| async move {
        while let Ok(Some(length)) = reader.next_length().await {
            let body = reader.read_body(length as usize).await.unwrap();
            let parts = (0..answer_bytes / 4096).map(|_| Payload::Mem(vec![body[0]; 4096].into())).collect();
            replies.reserve().fill(Reply { parts });
            replies.room().await;
        }
        replies.flushed().await;
    };
    with_server(server, move |address| {
        let mut stream = connect(address);
        for n in 0..4 {
            stream.write_all(&frame(&[n])).unwrap();
        }
        let mut read = vec![0; answer_bytes];
        for n in 0..4 {
            stream.read_exact(&mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == n), "answer {n}");
        }
    });
}

#[test]
fn a_reset_while_answers_are_stuck_ends_the_connection() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, |reader, replies| async move {
            replies.reserve().fill(reply(vec![1; 16 << 20]));
            let closed = reader.closed();
            closed.await;
            replies.flushed().await;
            let mut reader = reader;
            assert!(reader.next_length().await.is_err());
        });
        on_thread(&net, move || {
            let mut stream = connect(address);
            stream.read_exact(&mut [0; 1]).unwrap();
            // Unread bytes make the close a reset.
            drop(stream);
        })
        .await;
        let before = Instant::now();
        while net.stats().connections > 0 && before.elapsed() < Duration::from_secs(10) {
            rt::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((net.stats().connections, net.stats().queued_bytes), (0, 0));
        assert_eq!(rt::panics(), 0);
    })
    .unwrap();
}

#[test]
fn a_long_poll_learns_that_its_client_has_gone() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let cancelled = Event::default();
        let waiting = cancelled.wait();
        let address = serve(&net, move |mut reader, replies| {
            let cancelled = cancelled.clone();
            async move {
                let length = reader.next_length().await.unwrap().unwrap();
                reader.read_body(length as usize).await.unwrap();
                let slot = replies.reserve();
                let deadline = Instant::now() + Duration::from_secs(60);
                if rt::timeout_at(deadline, reader.closed()).await.is_some() {
                    cancelled.notify_all();
                }
                slot.skip();
            }
        });
        on_thread(&net, move || connect(address).write_all(&frame(b"fetch")).unwrap()).await;
        assert!(rt::timeout_at(Instant::now() + Duration::from_secs(10), waiting).await.is_some());
    })
    .unwrap();
}

#[test]
fn idle_connections_end_and_busy_ones_do_not() {
    let server = |mut reader: FrameReader, replies: Replies| async move {
        reader.set_idle_timeout(Some(Duration::from_millis(200)));
        let slot = replies.reserve();
        // An answer is awaited: that is not idleness.
        let early = rt::timeout_at(Instant::now() + Duration::from_millis(600), reader.next_length()).await;
        assert!(early.is_none());
        slot.skip();
        assert!(matches!(reader.next_length().await, Err(NetError::Idle)));
        replies.reserve().fill(reply(frame(b"idle")));
        replies.flushed().await;
    };
    with_server(server, |address| {
        let mut stream = connect(address);
        assert_eq!(read_frame(&mut stream), b"idle");
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    });
}

#[test]
fn ten_thousand_connections_leave_no_descriptor_behind() {
    with_server(echo, |address| {
        let ask = || {
            let mut stream = connect(address);
            stream.write_all(&frame(b"hello")).unwrap();
            assert_eq!(read_frame(&mut stream), b"hello");
            // A reset instead of TIME_WAIT, so that the ports last.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        };
        (0..10).for_each(|_| ask());
        let sockets_before = count_sockets_to(address);
        (0..10_000).for_each(|_| ask());
        let since = Instant::now();
        while count_sockets_to(address) > sockets_before && since.elapsed() < Duration::from_secs(10) {
            ask();
        }
        assert!(count_sockets_to(address) <= sockets_before, "{} more", count_sockets_to(address) - sockets_before);
    });
}

#[test]
fn a_closed_connections_descriptor_may_be_reused_at_once() {
    // Server and clients close as fast as they can, so that descriptor numbers and places in the table change hands within
    // one turn. Every connection must get its own answer.
    let server = |mut reader: FrameReader, replies: Replies| async move {
        if let Ok(Some(length)) = reader.next_length().await {
            let body = reader.read_body(length as usize).await.unwrap();
            replies.reserve().fill(reply(frame(&body)));
            replies.close();
        }
    };
    with_server(server, |address| {
        let clients: Vec<_> = (0..8u32)
            .map(|client| {
                std::thread::spawn(move || {
                    for round in 0..300u32 {
                        let name = [client.to_be_bytes(), round.to_be_bytes()].concat();
                        let mut stream = connect(address);
                        stream.write_all(&frame(&name)).unwrap();
                        assert_eq!(read_frame(&mut stream), name);
                        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

#[test]
fn executors_that_start_at_once_find_their_own_rings() {
    // Each serves a request that needs its file completions seen while it lingers: a shard with another's rings would wait
    // for the preempt timer and, without Net's own turns, for ever.
    let starts: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                let shards = start(setup(), |_| async {
                    let net = Net::start(NetConfig::default()).unwrap();
                    let address = serve(&net, echo);
                    on_thread(&net, move || {
                        let mut stream = connect(address);
                        for _ in 0..100 {
                            stream.write_all(&frame(b"x")).unwrap();
                            assert_eq!(read_frame(&mut stream), b"x");
                        }
                    })
                    .await;
                })
                .unwrap();
                shards.join().unwrap();
            })
        })
        .collect();
    starts.into_iter().for_each(|start| start.join().unwrap());
}

#[test]
fn a_panicking_task_ends_alone() {
    run_one(setup(), || async {
        assert_eq!(rt::spawn(async { panic!("on purpose") }).join().await, None::<()>);
        assert_eq!(rt::spawn_background(async { panic!("on purpose, too") }).join().await, None::<()>);
        assert_eq!(rt::spawn(async { 7 }).join().await, Some(7));
        assert_eq!(rt::panics(), 2);
        assert_eq!(rt::blocking(|| 8).await, 8);
        let caught = rt::spawn(async { rt::blocking(|| panic!("over there")).await }).join().await;
        assert_eq!(caught, None::<()>);
        assert_eq!(rt::blocking(|| 9).await, 9);
    })
    .unwrap();
}

#[test]
fn a_panicking_main_is_an_error_of_join() {
    let shards = start(one_shard(), |_| async { panic!("on purpose") }).unwrap();
    assert!(shards.join().unwrap_err().to_string().contains("shard 0"));
}

#[test]
fn tasks_are_dropped_on_their_shard_when_it_ends() {
    struct Told(Arc<AtomicU64>, std::thread::ThreadId);
    impl Drop for Told {
        fn drop(&mut self) {
            assert_eq!(std::thread::current().id(), self.1);
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let told = dropped.clone();
    run_one(setup(), move || async move {
        let net = Net::start(NetConfig::default()).unwrap();
        let thread = std::thread::current().id();
        let [a, b, c] = [(); 3].map(|()| Told(told.clone(), thread));
        rt::spawn(async move {
            let _a = a;
            std::future::pending::<()>().await;
        });
        rt::spawn_background(async move {
            let _b = b;
            rt::sleep(Duration::from_secs(3600)).await;
        });
        let address = serve(&net, move |mut reader, _| {
            let _c = &c;
            async move { drop(reader.next_length().await) }
        });
        on_thread(&net, move || connect(address)).await.set_nodelay(true).unwrap();
    })
    .unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
}

#[test]
fn background_work_goes_on_beside_lingering_and_saturated_sockets() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, echo);
        let progress = Rc::new(Cell::new(0u64));
        let counted = progress.clone();
        rt::spawn_background(async move {
            loop {
                counted.set(counted.get() + 1);
                rt::yield_if_needed().await;
            }
        });
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        let client = std::thread::spawn(move || {
            let mut stream = connect(address);
            let mut asked = 0u64;
            while !told.load(Ordering::Relaxed) {
                stream.write_all(&frame(&[1; 100])).unwrap();
                read_frame(&mut stream);
                asked += 1;
            }
            asked
        });
        let mut least = u64::MAX;
        for _ in 0..5 {
            let before = progress.get();
            rt::sleep(Duration::from_millis(100)).await;
            least = least.min(progress.get() - before);
        }
        done.store(true, Ordering::Relaxed);
        let asked = on_thread(&net, move || client.join().unwrap()).await;
        assert!(least > 10, "background made {least} steps in 100 ms");
        assert!(asked > 100, "the client got {asked} answers in 500 ms");
    })
    .unwrap();
}

#[test]
fn a_background_task_that_sleeps_keeps_nobody_awake() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let stop = Event::default();
        let stopped = stop.wait();
        let woken = rt::spawn_background(async move {
            stopped.await;
            7
        });
        rt::spawn_background(rt::sleep(Duration::from_secs(3600)));
        rt::sleep(Duration::from_millis(300)).await;
        let mut fewest = u64::MAX;
        for _ in 0..5 {
            let turns = net.stats().turns;
            rt::sleep(Duration::from_millis(200)).await;
            fewest = fewest.min(net.stats().turns - turns);
        }
        // The wake-up that ends the wait, and the watchdog's settling kick.
        assert!(fewest < 12, "{fewest} turns");
        stop.notify_all();
        assert_eq!(woken.join().await, Some(7));
    })
    .unwrap();
}

#[test]
fn timers_fire_beside_saturated_sockets() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, echo);
        let done = Arc::new(AtomicBool::new(false));
        let told = done.clone();
        let client = std::thread::spawn(move || saturate(address, 8, &told));
        let mut late = Vec::new();
        for _ in 0..100 {
            let due = Instant::now() + Duration::from_millis(2);
            rt::sleep_until(due).await;
            late.push(due.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        on_thread(&net, move || client.join().unwrap()).await;
        late.sort();
        // The preempt timer of 1 ms bounds it; glommio's default of 100 ms would show in every one.
        assert!(late[50] < Duration::from_millis(20), "median {:?}", late[50]);
    })
    .unwrap();
}

#[test]
fn unanswered_requests_beyond_the_line_wait_until_places_are_free() {
    let server = |mut reader: FrameReader, replies: Replies| async move {
        let mut slots = std::collections::VecDeque::new();
        let mut read = 0u32;
        while read < 3000 {
            let next = rt::timeout_at(Instant::now() + Duration::from_millis(50), reader.next_length()).await;
            match next {
                Some(length) => {
                    reader.read_body(length.unwrap().unwrap() as usize).await.unwrap();
                    slots.push_back(replies.reserve());
                    read += 1;
                }
                // Paused: acks=0 frees places without sending a byte.
                None => {
                    assert_eq!(slots.len(), 1024);
                    let reading = rt::spawn(async move {
                        let length = reader.next_length().await;
                        (reader, length)
                    });
                    rt::sleep(Duration::from_millis(5)).await;
                    slots.drain(..).for_each(|slot: rt::net::Slot| slot.skip());
                    let (resumed, length) = reading.join().await.unwrap();
                    reader = resumed;
                    reader.read_body(length.unwrap().unwrap() as usize).await.unwrap();
                    slots.push_back(replies.reserve());
                    read += 1;
                }
            }
        }
        slots.drain(..).for_each(|slot| slot.skip());
        replies.reserve().fill(reply(frame(b"all")));
        replies.flushed().await;
    };
    with_server(server, |address| {
        let mut stream = connect(address);
        let all: Vec<u8> = (0..3000).flat_map(|_| frame(b"x")).collect();
        stream.write_all(&all).unwrap();
        assert_eq!(read_frame(&mut stream), b"all");
    });
}

#[test]
fn a_shard_that_stands_still_with_work_is_kicked_and_counted() {
    run_one(setup(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let work = rt::work();
        rt::sleep(Duration::from_millis(50)).await;
        let before = net.stats().kicks;
        let since = Instant::now();
        while net.stats().kicks < before + 3 && since.elapsed() < Duration::from_secs(5) {
            // Blocks the shard, as a task that glommio forgot would.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert!(net.stats().kicks >= before + 3, "{} kicks", net.stats().kicks - before);
        drop(work);
        rt::sleep(Duration::from_millis(1)).await;
    })
    .unwrap();
}
