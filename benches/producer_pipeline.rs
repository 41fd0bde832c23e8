//! How many records a second does a producer carry, and at what CPU? The whole client against a broker of one thread that answers
//! every Produce at once: the records are made, partitioned, put into batches, sealed, written, answered, and told.
//!
//! `cargo bench --bench producer_pipeline [-- FILTER]` prints, for each case, the rate and the CPU seconds of this process without
//! the null broker's thread. Not criterion: what counts is the steady state of three threads over seconds.

mod null_broker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use null_broker::{TOPIC, null_broker, process_cpu_ns};
use ringlog::client::{Io, Producer, ProducerOptions, ProducerSettings, RecordRef, SendError, Settings as _};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEASURED: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    record_bytes: usize,
    batch_bytes: usize,
    codec: &'static str,
    /// Records are made by a task on the producer's own thread.
    on_io: bool,
    keyed: bool,
    tagged: bool,
}

const USUAL: Case = Case {
    name: "",
    record_bytes: 100,
    batch_bytes: 64 << 10,
    codec: "none",
    on_io: false,
    keyed: false,
    tagged: true,
};

const CASES: [Case; 9] = [
    Case { name: "100 B, 64 KiB", ..USUAL },
    Case { name: "100 B, 64 KiB, on the io thread", on_io: true, ..USUAL },
    Case { name: "100 B, 16 KiB", batch_bytes: 16 << 10, ..USUAL },
    Case { name: "100 B, 16 KiB, on the io thread", batch_bytes: 16 << 10, on_io: true, ..USUAL },
    Case { name: "100 B, 64 KiB, keyed", keyed: true, ..USUAL },
    Case { name: "100 B, 64 KiB, callbacks", tagged: false, ..USUAL },
    Case { name: "1 KiB, 64 KiB", record_bytes: 1024, ..USUAL },
    Case { name: "1 KiB, 64 KiB, on the io thread", record_bytes: 1024, on_io: true, ..USUAL },
    Case { name: "1 KiB, 64 KiB, lz4", record_bytes: 1024, codec: "lz4", ..USUAL },
];

struct Counts {
    acked: AtomicU64,
    tags: AtomicU64,
}

fn send(producer: &Producer, case: &Case, number: u64, value: &[u8], counts: &Arc<Counts>) -> Result<(), SendError> {
    let key = number.to_be_bytes();
    let mut record = RecordRef::new(TOPIC, value);
    if case.keyed {
        record = record.key(&key);
    }
    if case.tagged {
        return producer.try_send_tagged(record, number);
    }
    let counts = Arc::clone(counts);
    producer.try_send(record, move |outcome| {
        outcome.expect("the null broker takes everything");
        counts.acked.fetch_add(1, Relaxed);
    })
}

fn measure(case: Case) {
    let broker_cpu = Arc::new(AtomicU64::new(0));
    let address = null_broker(Arc::clone(&broker_cpu));
    let settings = ProducerSettings::builder()
        .set("bootstrap.servers", address)
        .set("batch.size", case.batch_bytes)
        .set("linger.ms", 5)
        .set("compression.type", case.codec)
        .build()
        .expect("good settings");
    let counts = Arc::new(Counts { acked: AtomicU64::new(0), tags: AtomicU64::new(0) });
    let told = Arc::clone(&counts);
    let options = ProducerOptions::default().on_delivery(move |batch| {
        batch.result.expect("the null broker takes everything");
        let (mut count, mut tags) = (0, 0);
        for (_, tag) in batch.tags() {
            count += 1;
            tags ^= tag;
        }
        told.acked.fetch_add(count, Relaxed);
        told.tags.fetch_xor(tags, Relaxed);
    });
    let io = Io::start("bench").expect("a thread");
    let producer = Producer::on_with(&io, settings, options).expect("good settings");
    futures_lite::future::block_on(producer.partition_count(TOPIC)).expect("the topic is there");

    let mut value = vec![0; case.record_bytes];
    for (at, byte) in value.iter_mut().enumerate() {
        *byte = b"abcdefgh 0123456789"[at * 7 % 19];
    }
    let end = Instant::now() + WARM_UP + MEASURED;
    let (sender, maker) = (producer.clone(), Arc::clone(&counts));
    let make = move |number: &mut u64, count: u64| -> bool {
        for _ in 0..count {
            match send(&sender, &case, *number, &value, &maker) {
                Ok(()) => *number += 1,
                // Closed: the measurement is over.
                Err(SendError::WouldBlock | SendError::Closed) => return false,
                Err(other) => panic!("{other}"),
            }
        }
        true
    };
    let thread = if case.on_io {
        io.spawn(move || async move {
            let mut number = 0;
            while Instant::now() < end {
                make(&mut number, 500);
                tokio::task::yield_now().await;
            }
        });
        None
    } else {
        Some(std::thread::spawn(move || {
            let mut number = 0;
            while Instant::now() < end {
                if !make(&mut number, 1000) {
                    std::thread::yield_now();
                }
            }
        }))
    };
    let pause = |time: Duration| {
        let (_keep, never) = std::sync::mpsc::channel::<()>();
        _ = never.recv_timeout(time);
    };
    pause(WARM_UP);
    let before =
        (Instant::now(), counts.acked.load(Relaxed), process_cpu_ns(), broker_cpu.load(Relaxed), producer.metrics());
    pause(MEASURED - Duration::from_millis(200));
    let after =
        (Instant::now(), counts.acked.load(Relaxed), process_cpu_ns(), broker_cpu.load(Relaxed), producer.metrics());
    let seconds = after.0.duration_since(before.0).as_secs_f64();
    let records = (after.1 - before.1) as f64;
    let cpu_s = ((after.2 - before.2) - (after.3 - before.3)) as f64 / 1e9;
    let megabytes = records * case.record_bytes as f64 / 1e6;
    println!(
        "{:<34} {:>6.2} M records/s {:>7.0} MB/s  {:>6.2} M records per CPU second  {:>6.3} CPU ms/MB  {:>5.1} records/batch {:>4.1} batches/request",
        case.name,
        records / seconds / 1e6,
        megabytes / seconds,
        records / cpu_s / 1e6,
        cpu_s * 1e3 / megabytes,
        records / (after.4.batches - before.4.batches) as f64,
        (after.4.batches - before.4.batches) as f64 / (after.4.requests - before.4.requests) as f64,
    );
    if let Some(thread) = thread {
        thread.join().expect("the maker ends well");
    }
    producer.close_sync(Duration::from_secs(10));
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for case in CASES {
        if filter.as_deref().is_none_or(|filter| case.name.contains(filter)) {
            measure(case);
        }
    }
}
