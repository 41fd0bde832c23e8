//! What does an append cost the shard's CPU, without the wait for the disk? Producer rules, stamping, index, tail cache and
//! queue, for one batch; then the same with the write to tmpfs behind it, where the device is memory: the copy into the
//! staging buffer, the system calls, the acknowledgement.

use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringlog::log::{Log, LogPlace, LogRuntime, LogSettings, StartFacts};
use ringlog::protocol::batch::{self, BatchInfo, Builder, BuilderOptions, Codec};
use ringlog::rt;
use ringlog::rt::executor::{Setup, run_one};
use ringlog::types::{AckClass, LeaderEpoch, PartitionIndex, TopicId, TopicPartition};

fn settings() -> LogSettings {
    LogSettings {
        ack_class: AckClass::Written,
        segment_bytes: 1 << 30,
        segment_ms: Duration::from_secs(604_800),
        segment_jitter_ms: Duration::ZERO,
        index_bytes_max: 10 << 20,
        index_interval_bytes: 4096,
        retention_ms: None,
        retention_bytes: None,
        delete_policy: true,
        file_delete_delay: Duration::ZERO,
        producer_expiry: Duration::from_secs(86_400),
        flush_interval: Duration::from_secs(1),
        preallocate_bytes: 32 << 20,
        prewrite_bytes_max: 0,
    }
}

fn one_record(value_bytes: usize) -> (BytesMut, BatchInfo) {
    let options =
        BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
    let mut builder = Builder::new(options);
    builder.push(1, None, Some(&vec![7; value_bytes]), &[]);
    let batch = builder.finish();
    let info = batch::check(&batch).expect("built here");
    (batch, info)
}

async fn open(dir: &Path, runtime: &LogRuntime) -> Rc<Log> {
    let place = LogPlace {
        dir: dir.join("bench-0"),
        tp: TopicPartition { topic: "bench".into(), partition: PartitionIndex::ZERO },
        topic_id: TopicId::from_bytes([1; 16]),
    };
    let facts = StartFacts { clean: false, recovery_point: None, log_start: None, now: 0 };
    Log::open(place, settings(), facts, runtime).await.expect("an empty directory").0
}

/// Runs `iterations` appends of `value_bytes` on a shard, `depth` in flight, and returns the time of the appends: with their
/// acknowledgements (`acked`), or only of the calls.
fn time_appends(iterations: u64, value_bytes: usize, depth: u64, acked: bool) -> Duration {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    let path = dir.path().to_owned();
    let mut setup = Setup::on_all_cpus(vec![path.clone()]);
    setup.cpus.truncate(1);
    run_one(setup, move || async move {
        let runtime = LogRuntime::new(16 << 20, 8 << 20);
        let log = open(&path, &runtime).await;
        let changed = rt::Event::default();
        let observer = changed.clone();
        log.on_change(move || observer.notify_all());
        let (batch, info) = one_record(value_bytes);
        let mut spent = Duration::ZERO;
        let mut left = iterations;
        while left > 0 {
            let now = left.min(depth);
            let batches: Vec<BytesMut> = (0..now).map(|_| batch.clone()).collect();
            let begun = Instant::now();
            for batch in batches {
                black_box(log.append(batch, &info, LeaderEpoch::ZERO, 0)).expect("appended");
            }
            let called = begun.elapsed();
            while log.acked_offset() < log.limits().log_end {
                changed.wait().await;
            }
            spent += if acked { begun.elapsed() } else { called };
            left -= now;
        }
        log.close().await.expect("closed");
        spent
    })
    .expect("a shard")
}

fn appends(criterion: &mut Criterion) {
    for value_bytes in [100, 16 << 10] {
        let mut group = criterion.benchmark_group(format!("append of {value_bytes} B"));
        group.throughput(Throughput::Bytes(value_bytes as u64)).sample_size(20);
        group.bench_function("the call", |bencher| {
            bencher.iter_custom(|iterations| time_appends(iterations, value_bytes, 64, false));
        });
        for depth in [1, 64] {
            group.bench_function(format!("to its acknowledgement on tmpfs, {depth} in flight"), |bencher| {
                bencher.iter_custom(|iterations| time_appends(iterations, value_bytes, depth, true));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, appends);
criterion_main!(benches);
