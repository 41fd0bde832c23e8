//! How long does it take to find where a fetch begins? Lookups in the indexes of a full 1 GiB segment (262,144 entries, one
//! for each 4 KiB), at random offsets and times, and building them batch by batch.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ringlog::log::index::{IndexedBatch, OffsetIndex, SegmentIndex};
use ringlog::types::Offset;

const BATCH_BYTES: u32 = 4097;
const BATCHES: i64 = 262_144;
const RECORDS: i64 = 10;

fn offset(value: i64) -> Offset {
    Offset::new(value).expect("not negative")
}

fn batch(number: i64) -> IndexedBatch {
    let position = u32::try_from(number * i64::from(BATCH_BYTES)).expect("within 2 GiB");
    let last_offset = offset(number * RECORDS + RECORDS - 1);
    IndexedBatch { position, bytes: BATCH_BYTES, last_offset, max_timestamp: number }
}

fn full() -> SegmentIndex {
    let mut index = SegmentIndex::new(Offset::ZERO);
    (0..BATCHES).for_each(|number| index.on_batch(batch(number), 4096));
    index.finish();
    index
}

fn lookups(criterion: &mut Criterion) {
    let index = full();
    let mut random = fastrand::Rng::with_seed(1);
    criterion.bench_function("offset -> position, random", |bencher| {
        bencher.iter_batched(
            || offset(random.i64(0..BATCHES * RECORDS)),
            |wanted| black_box(&index).offsets.position_of(wanted),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("time -> offset, random", |bencher| {
        bencher.iter_batched(
            || random.i64(0..BATCHES),
            |wanted| black_box(&index).times.offset_before(wanted),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("note one batch", |bencher| {
        bencher.iter_batched_ref(
            || SegmentIndex::new(Offset::ZERO),
            |index| (0..1000).for_each(|number| index.on_batch(batch(number), 4096)),
            BatchSize::SmallInput,
        );
    });
    let bytes = index.offsets.to_bytes();
    criterion.bench_function("read .index of 2 MiB", |bencher| {
        bencher.iter(|| OffsetIndex::parse(Offset::ZERO, black_box(&bytes), 1 << 30));
    });
}

criterion_group!(benches, lookups);
criterion_main!(benches);
