//! What the tests of the log share: a shard to run on, settings, batches, and reading everything back.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use ringlog::log::{
    AppendError, Appended, Log, LogPlace, LogRuntime, LogSettings, OpenError, ReadBounds, RecoveryReport, StartFacts,
};
use ringlog::protocol::batch::{self, Builder, BuilderOptions, Codec, ProducerStamp};
use ringlog::rt::executor::{Setup, run_one};
use ringlog::rt::net::{Net, NetConfig, Payload};
use ringlog::types::*;

pub(crate) const NOW: TimestampMs = 1_800_000_000_000;

/// Runs `main` on a shard of its own; returning from it without closing its logs is a crash for them.
pub(crate) fn on_shard<T: Send + 'static, Fut: Future<Output = T> + 'static>(
    dir: &Path,
    main: impl FnOnce() -> Fut + Send + 'static,
) -> T {
    let mut setup = Setup::on_all_cpus(vec![dir.to_owned()]);
    setup.cpus.truncate(1);
    let main = || async move {
        // While tests wait for nothing but each other's tasks the runtime must mind the shard, too.
        let _work = ringlog::rt::work();
        // As under a broker: writes and flushes go through the shard's own ring.
        let _net = Net::start(NetConfig::default()).unwrap();
        main().await
    };
    run_one(setup, main).unwrap()
}

/// On the file system of the build, where direct I/O is real.
pub(crate) fn disk_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// In memory, where it is there and files cost nothing.
pub(crate) fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| disk_dir())
}

pub(crate) fn settings() -> LogSettings {
    LogSettings {
        ack_class: AckClass::Written,
        segment_bytes: 1 << 30,
        segment_ms: Duration::from_secs(7 * 24 * 3600),
        segment_jitter_ms: Duration::ZERO,
        index_bytes_max: 10 << 20,
        index_interval_bytes: 4096,
        retention_ms: None,
        retention_bytes: None,
        delete_policy: true,
        file_delete_delay: Duration::ZERO,
        producer_expiry: Duration::from_secs(24 * 3600),
        flush_interval: Duration::from_secs(1),
        preallocate_bytes: 4 << 20,
        prewrite_bytes_max: 32 << 10,
    }
}

pub(crate) fn place(dir: &Path) -> LogPlace {
    LogPlace {
        dir: dir.join("orders-0"),
        tp: TopicPartition { topic: "orders".into(), partition: PartitionIndex::ZERO },
        topic_id: TopicId::parse("AAAAAAAAQAGAAAAAAAAAAg").unwrap(),
    }
}

pub(crate) const AFTER_CRASH: StartFacts = StartFacts { clean: false, recovery_point: None, log_start: None, now: NOW };

pub(crate) fn after_close(recovery_point: Offset) -> StartFacts {
    StartFacts { clean: true, recovery_point: Some(recovery_point), ..AFTER_CRASH }
}

pub(crate) async fn try_open(
    dir: &Path,
    settings: LogSettings,
    facts: StartFacts,
) -> Result<(Rc<Log>, RecoveryReport), OpenError> {
    Log::open(place(dir), settings, facts, &LogRuntime::new(64 << 20, 8 << 20)).await
}

pub(crate) async fn open(dir: &Path, settings: LogSettings, facts: StartFacts) -> Rc<Log> {
    try_open(dir, settings, facts).await.unwrap().0
}

pub(crate) fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

pub(crate) fn epoch(value: i32) -> LeaderEpoch {
    LeaderEpoch::new(value).unwrap()
}

pub(crate) fn stamp(id: i64, first_sequence: i32) -> ProducerStamp {
    ProducerStamp {
        id: ProducerId::new(id).unwrap(),
        epoch: ProducerEpoch::ZERO,
        base_sequence: Sequence::new(first_sequence),
    }
}

/// A batch of `records` records of `value_bytes` each, filled from `seed`, all with `timestamp`.
pub(crate) fn batch(
    records: u32,
    value_bytes: usize,
    seed: u64,
    timestamp: TimestampMs,
    producer: Option<ProducerStamp>,
) -> BytesMut {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = BuilderOptions { codec: Codec::None, level: None, producer, transactional: false, control: false };
    let mut builder = Builder::new(options);
    for _ in 0..records {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(value_bytes).collect();
        builder.push(timestamp, None, Some(&value), &[]);
    }
    builder.finish()
}

pub(crate) fn append(log: &Rc<Log>, batch: BytesMut) -> Result<Appended, AppendError> {
    append_in(log, batch, epoch(0))
}

pub(crate) fn append_in(log: &Rc<Log>, batch: BytesMut, epoch: LeaderEpoch) -> Result<Appended, AppendError> {
    let info = batch::check(&batch).unwrap();
    log.append(batch, &info, epoch, NOW)
}

/// The batch as the log stores it.
pub(crate) fn stored(mut batch: BytesMut, base: i64, epoch: i32) -> Vec<u8> {
    batch::stamp(&mut batch, offset(base), self::epoch(epoch));
    batch.to_vec()
}

/// Waits until everything appended is acknowledged.
pub(crate) async fn acked(log: &Rc<Log>) {
    let event = ringlog::rt::Event::default();
    let observer = event.clone();
    log.on_change(move || observer.notify_all());
    while log.acked_offset() < log.limits().log_end {
        assert_eq!(log.offline(), None);
        event.wait().await;
    }
}

pub(crate) fn bounds(log: &Log, bytes_max: usize) -> ReadBounds {
    ReadBounds { below: log.limits().log_end, bytes_max, at_least_one: true }
}

pub(crate) async fn read(log: &Rc<Log>, from: Offset, bounds: ReadBounds) -> Vec<u8> {
    let data = log.plan_read(from, bounds).unwrap().run().await.unwrap();
    // Cached reads never wait: without this a long test would look like a shard that stands still.
    ringlog::rt::yield_if_needed().await;
    let bytes: Vec<u8> = data.parts.iter().flat_map(|part| part_bytes(part).to_vec()).collect();
    assert_eq!(bytes.len(), data.bytes);
    bytes
}

pub(crate) fn part_bytes(part: &Payload) -> &[u8] {
    match part {
        Payload::Mem(part) => part,
        Payload::Disk(part) => part.as_slice(),
    }
}

/// All batches from `from` to the log end, read in steps of `bytes_max`.
pub(crate) async fn read_all(log: &Rc<Log>, from: Offset, bytes_max: usize) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    let mut next = from;
    while next < log.limits().log_end {
        let bytes = read(log, next, bounds(log, bytes_max)).await;
        assert!(!bytes.is_empty(), "nothing at {next}");
        for batch in split(&bytes) {
            let info = batch::check_stored(&batch).unwrap();
            next = offset(info.base_offset).plus(info.last_offset_delta).next();
            batches.push(batch);
        }
    }
    batches
}

/// Whole batches one after another.
pub(crate) fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = bytes.split_at(batch::parse_header(bytes).unwrap().bytes as usize);
        batches.push(batch.to_vec());
        bytes = rest;
    }
    batches
}

pub(crate) fn file_names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
