//! What does a batch cost before it is appended? The check that every batch gets, against walking its records, which only
//! compacted topics and `engine.validate.records` ask for; and stamping LogAppendTime.
//!
//! `cargo bench --bench batch_check`

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ringlog::protocol::batch::{self, Builder, BuilderOptions, Codec, RecordRules};

/// As many records of 100 bytes as fit into `bytes` of batch. They hold a counter and half noise: codecs find something to do.
fn batch_of(codec: Codec, bytes: usize) -> BytesMut {
    let mut random = fastrand::Rng::with_seed(1);
    let mut builder =
        Builder::new(BuilderOptions { codec, level: None, producer: None, transactional: false, control: false });
    while builder.count() == 0 || builder.bytes() + 110 <= bytes {
        let mut value = [b'v'; 100];
        value[..8].copy_from_slice(&builder.count().to_be_bytes());
        random.fill(&mut value[50..]);
        builder.push(1_700_000_000_000, None, Some(&value), &[]);
    }
    builder.finish()
}

fn checks(criterion: &mut Criterion) {
    const ANY_RECORD: RecordRules = RecordRules { keys_required: false, timestamps: i64::MIN..=i64::MAX };
    let mut group = criterion.benchmark_group("batch");
    for bytes in [200, 1 << 10, 16 << 10, 64 << 10, 1 << 20] {
        let mut batch = batch_of(Codec::None, bytes);
        group.throughput(Throughput::Bytes(batch.len() as u64));
        group.bench_with_input(BenchmarkId::new("check", bytes), &batch, |bencher, batch| {
            bencher.iter(|| batch::check_produced(black_box(batch)).expect("a good batch"));
        });
        group.bench_with_input(BenchmarkId::new("walk", bytes), &batch, |bencher, batch| {
            bencher.iter(|| batch::validate_records(black_box(batch), &ANY_RECORD, 2 << 20).expect("good records"));
        });
        group.bench_function(BenchmarkId::new("log_append_time", bytes), |bencher| {
            let mut now = 0;
            bencher.iter(|| {
                now += 1;
                batch::set_log_append_time(black_box(&mut batch), now);
            });
        });
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = batch_of(codec, 64 << 10);
        group.throughput(Throughput::Bytes(64 << 10));
        group.bench_with_input(BenchmarkId::new("walk_64_kib", codec.name()), &batch, |bencher, batch| {
            bencher.iter(|| batch::validate_records(black_box(batch), &ANY_RECORD, 2 << 20).expect("good records"));
        });
    }
    group.finish();
}

criterion_group!(benches, checks);
criterion_main!(benches);
