//! What does a send cost the caller, and what does a batch cost the thread that seals it? `try_send` into the accumulator (lock,
//! clock, partition, copy into the batch), while the client's own thread is at rest; then building and sealing a batch of 64 KiB
//! per codec.
//!
//! `cargo bench --bench accumulator`

mod null_broker;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use null_broker::{TOPIC, null_broker};
use ringlog::client::{Producer, ProducerSettings, RecordRef, Settings as _};
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    let address = null_broker(Arc::new(AtomicU64::new(0)));
    let settings = ProducerSettings::builder()
        .set("bootstrap.servers", address)
        .set("batch.size", 64 << 10)
        .set("linger.ms", 1000)
        .set("buffer.memory", 256 << 20)
        .build()
        .expect("good settings");
    let producer = Producer::new(settings).expect("a thread");
    futures_lite::future::block_on(producer.partition_count(TOPIC)).expect("the topic is there");
    for bytes in [16, 100, 1024] {
        let value = vec![7; bytes];
        group.throughput(Throughput::Elements(1));
        for (name, keyed) in [("sticky", false), ("keyed", true)] {
            group.bench_with_input(BenchmarkId::new(name, bytes), &value, |bencher, value| {
                bencher.iter_custom(|iterations| {
                    let (mut spent, mut left) = (Duration::ZERO, iterations);
                    while left > 0 {
                        let count = left.min(500);
                        let began = Instant::now();
                        for number in 0..count {
                            let key = number.to_be_bytes();
                            let record = RecordRef::new(TOPIC, black_box(value));
                            let record = if keyed { record.key(&key) } else { record };
                            producer.try_send_tagged(record, number).expect("there is room");
                        }
                        spent += began.elapsed();
                        left -= count;
                        producer.flush_sync();
                    }
                    spent
                });
            });
        }
    }
    group.finish();
    producer.close_sync(Duration::from_secs(10));
}

fn build(criterion: &mut Criterion) {
    const BATCH_BYTES: usize = 64 << 10;
    let mut group = criterion.benchmark_group("build");
    let mut random = fastrand::Rng::with_seed(1);
    for (name, bytes) in [("100_b", 100), ("1_kib", 1024)] {
        // Half noise, half text: codecs find something to do.
        let mut value = vec![b'v'; bytes];
        random.fill(&mut value[bytes / 2..]);
        group.throughput(Throughput::Bytes(BATCH_BYTES as u64));
        for codec in Codec::ALL {
            let options = BuilderOptions { codec, level: None, producer: None, transactional: false, control: false };
            group.bench_function(BenchmarkId::new(name, codec.name()), |bencher| {
                let mut spare = Some(BytesMut::with_capacity(BATCH_BYTES));
                bencher.iter(|| {
                    let mut builder = Builder::with_buffer(options, spare.take().unwrap_or_default());
                    while builder.bytes() + bytes + 20 <= BATCH_BYTES {
                        builder.push(1_700_000_000_000, None, Some(&value), &[]);
                    }
                    let (batch, kept) = builder.finish_keeping();
                    spare = kept.or(Some(batch));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, append, build);
criterion_main!(benches);
