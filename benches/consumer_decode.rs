//! What does a consumer pay for the records of one fetched mebibyte: checksum and walk, unpacking, and records one by one, as
//! owned records (`poll`) or borrowed ones (`poll_batches`)?

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ringlog::client::fetcher::{Digest, FetchTarget, Fetcher, FetcherSettings, Leader, Plan, Position};
use ringlog::client::settings::{IsolationLevel, OffsetReset};
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec, stamp};
use ringlog::protocol::fetch::FetchPartitionResponse;
use ringlog::types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicPartition};

const ANSWER_BYTES: usize = 1 << 20;
const BATCH_BYTES: usize = 64 << 10;

/// One answer: batches of `BATCH_BYTES` before compression, and how many records they hold.
fn answer(record_bytes: usize, codec: Codec) -> (Bytes, usize) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut out = BytesMut::new();
    let mut records = 0;
    let per_batch = BATCH_BYTES / record_bytes;
    while records * record_bytes < ANSWER_BYTES {
        let mut builder =
            Builder::new(BuilderOptions { codec, level: None, producer: None, transactional: false, control: false });
        for _ in 0..per_batch {
            // Half of it compresses.
            let mut value = vec![b'x'; record_bytes];
            random.fill(&mut value[record_bytes / 2..]);
            builder.push(1_700_000_000_000, None, Some(&value), &[]);
        }
        let mut batch = builder.finish();
        stamp(&mut batch, Offset::new(records as i64).expect("not negative"), LeaderEpoch::ZERO);
        out.extend_from_slice(&batch);
        records += per_batch;
    }
    (out.freeze(), records)
}

/// A fetcher that asked and got `bytes`, and has them checked and cut.
fn fetched(bytes: &Bytes) -> Fetcher {
    let mut fetcher = Fetcher::new(FetcherSettings {
        reset: OffsetReset::Earliest,
        isolation: IsolationLevel::ReadUncommitted,
        check_crcs: true,
        bytes_max: 50 << 20,
        partition_bytes_max: 1 << 20,
        retry_backoff: Duration::from_millis(100),
    });
    let partition = TopicPartition { topic: "t".into(), partition: PartitionIndex::ZERO };
    fetcher.assign(partition.clone(), true, 0);
    fetcher.seek(&partition, Position { offset: Offset::ZERO, leader_epoch: None });
    let leader = Leader { broker: BrokerId::ZERO, epoch: None, topic_id: None };
    let plans = fetcher.plan(Duration::from_secs(1), |_| Some(leader));
    let [Plan::Fetch(_, asked)] = &plans[..] else { panic!("one fetch is planned") };
    let asked: &FetchTarget = &asked[0];
    let digest = Digest::of(bytes, asked.from, IsolationLevel::ReadUncommitted, &[], true);
    fetcher.on_fetched(asked, &FetchPartitionResponse::default(), digest, Duration::from_secs(1), 0);
    fetcher
}

fn decode(criterion: &mut Criterion) {
    for record_bytes in [100, 1024] {
        for codec in Codec::ALL {
            let (bytes, count) = answer(record_bytes, codec);
            let mut group = criterion.benchmark_group(format!("{record_bytes} B, {}", codec.name()));
            group.throughput(Throughput::Elements(count as u64));
            group.bench_function(BenchmarkId::from_parameter("check and walk"), |bench| {
                bench.iter(|| fetched(&bytes));
            });
            group.bench_function(BenchmarkId::from_parameter("owned records"), |bench| {
                bench.iter_batched(
                    || fetched(&bytes),
                    |mut fetcher| {
                        let mut records = Vec::with_capacity(500);
                        let mut sum = 0;
                        // As polls take them: 500 at a time.
                        while let Some(mut portion) = fetcher.take(500) {
                            records.clear();
                            portion.read_into(500, &mut records).expect("good batches");
                            sum += records
                                .iter()
                                .filter_map(|record| record.value.as_ref())
                                .map(Bytes::len)
                                .sum::<usize>();
                            fetcher.settle(portion);
                        }
                        assert_eq!(sum, count * record_bytes);
                    },
                    BatchSize::LargeInput,
                );
            });
            group.bench_function(BenchmarkId::from_parameter("borrowed records"), |bench| {
                bench.iter_batched(
                    || fetched(&bytes),
                    |mut fetcher| {
                        let mut sum = 0;
                        while let Some(mut portion) = fetcher.take(500) {
                            let mut batches = Vec::new();
                            portion.open_into(&mut batches).expect("good batches");
                            for view in batches.iter().flat_map(|batch| batch.iter()) {
                                sum += view.expect("a good record").value.map_or(0, <[u8]>::len);
                            }
                            fetcher.settle(portion);
                        }
                        assert_eq!(sum, count * record_bytes);
                    },
                    BatchSize::LargeInput,
                );
            });
            group.finish();
        }
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
