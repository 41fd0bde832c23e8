//! A log and the disk under it: directories of Kafka and of earlier versions, a device that fails, a device that fills up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod log_support;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use log_support::*;
use ringlog::log::{AppendError, Limits, Log, LogPlace, LogRuntime, LogSettings, ReadError, StartFacts};
use ringlog::protocol::batch;
use ringlog::rt::file::fault::{self, Fault};
use ringlog::types::*;

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/disk").join(version)
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in file_names(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn kafkas_files_open_and_the_same_batches_give_the_same_files() {
    let theirs = golden("kafka-4.4").join("orders-0");
    let dir = disk_dir();
    copy_dir(&theirs, &dir.path().join("theirs/orders-0"));
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let settings = LogSettings { index_interval_bytes: 100, ..settings() };
        let topic_id = TopicId::parse("UpKw1UwARMqBANbU3LOAYQ").unwrap();
        let in_dir = |name: &str| LogPlace { topic_id, ..place(&path.join(name)) };
        let facts = after_close(offset(100));
        let runtime = LogRuntime::new(1 << 20, 8 << 20);
        let (log, report) = Log::open(in_dir("theirs"), settings.clone(), facts, &runtime).await.unwrap();
        assert_eq!((report.bytes_scanned, log.limits().log_end), (0, offset(100)));
        let batches = read_all(&log, offset(0), 1 << 20).await;
        assert_eq!(batches.len(), 5);
        // Their producers are known: a batch resent across the change of broker is no second one.
        let last = batches.last().unwrap();
        let again = append(&log, last.as_slice().into()).unwrap();
        assert_eq!((again.duplicate, again.base_offset), (true, offset(80)));
        let found = log.find_max_timestamp(offset(100)).await.unwrap().unwrap();
        assert_eq!(found.1, batch::parse_header(last).unwrap().max_timestamp);
        log.close().await.unwrap();

        let (log, _) = Log::open(in_dir("ours"), settings, AFTER_CRASH, &runtime).await.unwrap();
        for batch in &batches {
            append(&log, batch.as_slice().into()).unwrap();
        }
        log.close().await.unwrap();
        let ours = path.join("ours/orders-0");
        assert_eq!(file_names(&ours), file_names(&theirs));
        for name in file_names(&ours) {
            assert_eq!(std::fs::read(ours.join(&name)).unwrap(), std::fs::read(theirs.join(&name)).unwrap(), "{name}");
        }
    });
}

fn golden_settings() -> LogSettings {
    LogSettings { segment_bytes: 2_000, index_interval_bytes: 100, ..settings() }
}

/// The batches of the golden log of this program, as produced.
fn golden_batches() -> impl Iterator<Item = (bytes::BytesMut, LeaderEpoch)> {
    (0..20).map(|number: i32| {
        let producer = stamp(i64::from(number % 2), number / 2 * 3);
        (batch(3, 40 + number as usize * 5, number as u64, NOW + i64::from(number), Some(producer)), epoch(number / 12))
    })
}

#[test]
fn golden_files_of_earlier_versions_open() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    let written = std::env::var("RINGLOG_GOLDEN").is_ok_and(|value| value == "write");
    on_shard(dir.path(), move || async move {
        if written {
            let log = open(&path, golden_settings(), AFTER_CRASH).await;
            for (batch, epoch) in golden_batches() {
                append_in(&log, batch, epoch).unwrap();
            }
            log.flush().await.unwrap();
            log.delete_records(offset(20)).await.unwrap();
            log.close().await.unwrap();
            copy_dir(&path.join("orders-0"), &golden("0.1.0").join("orders-0"));
        } else {
            copy_dir(&golden("0.1.0").join("orders-0"), &path.join("orders-0"));
        }
        let facts = StartFacts { log_start: Some(offset(20)), ..after_close(offset(60)) };
        let (log, report) = try_open(&path, golden_settings(), facts).await.unwrap();
        let everything =
            Limits { log_start: offset(20), flushed: offset(60), written: offset(60), log_end: offset(60) };
        assert_eq!((report.bytes_scanned, log.limits()), (0, everything));
        let expected: Vec<_> = golden_batches()
            .enumerate()
            .map(|(number, (batch, epoch))| stored(batch, number as i64 * 3, epoch.value()))
            .collect();
        assert_eq!(read_all(&log, offset(20), 1_000).await, expected[6..]);
        for (batch, epoch) in golden_batches().skip(10) {
            assert!(append_in(&log, batch, epoch).unwrap().duplicate, "the window of five is back");
        }
        assert_eq!(log.epoch_end(epoch(0)), Some((epoch(0), offset(36))));
        log.close().await.unwrap();
    });
}

/// Appends until the device is full, and again when it has space. `fill` takes what space there is and gives it back with what it
/// returned; at least `appended_min` batches fit before.
fn refused_until_space_returns<T: 'static>(
    dir: &Path,
    appended_min: usize,
    fill: impl FnOnce(&Path) -> T + Send + 'static,
) {
    let path = dir.to_owned();
    let (appended, acknowledged) = on_shard(dir, move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        let first = batch(1, 10_000, 0, NOW, None);
        append(&log, first.clone()).unwrap();
        acked(&log).await;
        let event = ringlog::rt::Event::default();
        let observer = event.clone();
        log.on_change(move || observer.notify_all());
        let filled = fill(&path);
        let mut appended = vec![stored(first, 0, 0)];
        // Until it is refused: everything taken is acknowledged, in blocks that were allocated before.
        let refused = loop {
            let batch = batch(1, 10_000, appended.len() as u64, NOW, None);
            match append(&log, batch.clone()) {
                Ok(at) => appended.push(stored(batch, at.base_offset.value(), 0)),
                Err(error) => break error,
            }
            while log.acked_offset() < log.limits().log_end && !log.is_full() {
                event.wait().await;
            }
        };
        assert_eq!(refused, AppendError::NoSpace);
        assert!(appended.len() >= appended_min && log.is_full() && log.offline().is_none(), "{}", appended.len());
        assert_eq!(read_all(&log, offset(0), 100_000).await, appended, "still served");

        drop(filled);
        let batch = batch(1, 10_000, 77, NOW, None);
        let at = loop {
            match append(&log, batch.clone()) {
                Ok(at) => break at,
                Err(error) => assert_eq!(error, AppendError::NoSpace),
            }
            ringlog::rt::sleep(Duration::from_millis(20)).await;
        };
        appended.push(stored(batch, at.base_offset.value(), 0));
        log.flush().await.unwrap();
        assert!(!log.is_full());
        (appended, log.acked_offset())
    });
    let path = dir.to_owned();
    on_shard(dir, move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        assert_eq!(log.limits().log_end, acknowledged);
        assert_eq!(read_all(&log, offset(0), 100_000).await, appended);
        log.close().await.unwrap();
    });
}

#[test]
fn a_log_whose_device_gives_no_blocks_refuses_appends_until_it_does_and_loses_nothing() {
    // The first allocation of a segment is of 128 KiB.
    let dir = disk_dir();
    refused_until_space_returns(dir.path(), 10, |dir| fault::ask(Fault::Full, dir));
}

/// A file system of its own, gone when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(bytes: u64) -> Self {
        let dir = disk_dir();
        let options = format!("size={bytes}");
        let mut mount = std::process::Command::new("mount");
        let status = mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).status().unwrap();
        assert!(status.success(), "mounting a small file system needs root");
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A third of that file system, until dropped.
struct Ballast(PathBuf);

impl Ballast {
    fn below(dir: &Path) -> Self {
        let path = dir.join("ballast");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
#[ignore = "needs root, to mount a small file system: .ci/run runs it where it is root"]
fn a_full_device_refuses_appends_until_space_returns_and_loses_nothing() {
    let mounted = Mounted::tmpfs(3 << 20);
    refused_until_space_returns(mounted.0.path(), 50, Ballast::below);
}

#[test]
fn a_disk_error_ends_the_log_for_good() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        open(&path, settings(), AFTER_CRASH).await.close().await.unwrap();
        // A device that takes no bytes, and no direct I/O either.
        std::os::unix::fs::symlink("/dev/full", path.join("orders-0/00000000000000000000.log")).unwrap();
        let log = open(&path, settings(), AFTER_CRASH).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        let event = ringlog::rt::Event::default();
        let observer = event.clone();
        log.on_change(move || observer.notify_all());
        while log.offline().is_none() {
            event.wait().await;
        }
        assert_eq!(log.acked_offset(), offset(0), "nothing was acknowledged");
        assert!(matches!(append(&log, batch(1, 100, 0, NOW, None)), Err(AppendError::Offline(_))));
        assert!(matches!(log.flush().await, Err(AppendError::Offline(_))));
        assert!(matches!(log.plan_read(offset(0), bounds(&log, 1)), Err(ReadError::Offline(_))));
        assert!(matches!(log.close().await, Err(AppendError::Offline(_))));
    });
}

/// What fails on the way to an acknowledgement of which class.
const FAULTS: [(AckClass, Fault); 6] = [
    (AckClass::Memory, Fault::Write),
    (AckClass::Written, Fault::Write),
    (AckClass::Written, Fault::WriteThatArrives),
    (AckClass::Written, Fault::Sync),
    (AckClass::Flushed, Fault::Write),
    (AckClass::Flushed, Fault::Sync),
];

async fn offline(log: &Rc<Log>) {
    let event = ringlog::rt::Event::default();
    let observer = event.clone();
    log.on_change(move || observer.notify_all());
    while log.offline().is_none() {
        event.wait().await;
    }
}

#[test]
fn a_failed_write_or_flush_is_never_tried_again_and_nothing_acknowledged_is_lost() {
    const INTERVAL: Duration = Duration::from_millis(50);
    for (class, fault) in FAULTS {
        println!("{class:?}, {fault:?}");
        let dir = disk_dir();
        let settings = move || LogSettings { ack_class: class, flush_interval: INTERVAL, ..settings() };
        let path = dir.path().to_owned();
        let (appended, acknowledged, flushed) = on_shard(dir.path(), move || async move {
            let runtime = LogRuntime::new(64 << 20, 8 << 20);
            let open = async |dir| Log::open(place(dir), settings(), AFTER_CRASH, &runtime).await.unwrap().0;
            let (log, neighbour) = (open(&path).await, open(&path.join("neighbour")).await);
            let mut appended = Vec::new();
            let mut append_some = |log: &Rc<Log>, count| {
                for _ in 0..count {
                    let batch = batch(1, 1_500, appended.len() as u64, NOW, None);
                    let at = append(log, batch.clone())?;
                    appended.push(stored(batch, at.base_offset.value(), 0));
                }
                Ok::<_, AppendError>(())
            };
            append_some(&log, 5).unwrap();
            log.flush().await.unwrap();
            // A flush of this one is due at the interval, when the log has ended.
            append_some(&log, 1).unwrap();
            acked(&log).await;
            let asked = fault::ask(fault, &path.join("orders-0"));
            append_some(&log, 5).unwrap();
            offline(&log).await;
            assert!(asked.struck());

            let (acknowledged, flushed) = (log.acked_offset(), log.limits().flushed);
            assert!(flushed < offset(11), "what was not flushed is not said to be");
            assert!(matches!(append_some(&log, 1), Err(AppendError::Offline(_))));
            assert!(matches!(log.flush().await, Err(AppendError::Offline(_))));
            assert!(matches!(log.maintain(NOW, acknowledged).await, Err(AppendError::Offline(_))));
            assert!(matches!(log.delete_records(offset(3)).await, Err(AppendError::Offline(_))));
            // Long enough for whatever would try again by itself.
            ringlog::rt::sleep(INTERVAL * 5).await;
            log.set_settings(LogSettings { ack_class: AckClass::Flushed, ..settings() });
            ringlog::rt::sleep(INTERVAL).await;
            log.set_settings(settings());
            assert_eq!((log.acked_offset(), log.limits().flushed), (acknowledged, flushed));
            assert!(matches!(log.clone().close().await, Err(AppendError::Offline(_))));
            assert_eq!(asked.later(), 0, "nothing is written or flushed any more");

            append(&neighbour, batch(1, 1_500, 0, NOW, None)).unwrap();
            neighbour.flush().await.unwrap();
            neighbour.close().await.unwrap();
            (appended, acknowledged, flushed)
        });
        if fault == Fault::Sync && class == AckClass::Flushed {
            // What the device never had is gone.
            let file = dir.path().join("orders-0/00000000000000000000.log");
            let mut bytes = std::fs::read(&file).unwrap();
            let kept = &appended[..flushed.value() as usize];
            bytes[kept.iter().map(Vec::len).sum()..].fill(0);
            std::fs::write(&file, bytes).unwrap();
        }
        let path = dir.path().to_owned();
        on_shard(dir.path(), move || async move {
            let facts = StartFacts { recovery_point: Some(flushed), ..AFTER_CRASH };
            let log = open(&path, settings(), facts).await;
            let end = log.limits().log_end;
            // Class memory promises nothing that a device must keep.
            assert!(end >= if class == AckClass::Memory { flushed } else { acknowledged }, "{end}, {acknowledged}");
            let found = read_all(&log, offset(0), 100_000).await;
            assert_eq!(found, appended[..found.len()]);
            append(&log, batch(1, 1_500, 0, NOW, None)).unwrap();
            log.close().await.unwrap();
        });
    }
}

#[test]
fn a_log_that_failed_holds_no_batches_any_more() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let runtime = LogRuntime::new(64 << 20, 8 << 20);
        let (log, _) = Log::open(place(&path), settings(), AFTER_CRASH, &runtime).await.unwrap();
        let asked = fault::ask(Fault::Write, &path.join("orders-0"));
        // More than one write takes.
        for seed in 0..30 {
            append(&log, batch(1, 100_000, seed, NOW, None)).unwrap();
        }
        offline(&log).await;
        assert!(asked.struck());
        assert_eq!(runtime.pending_bytes(), 0);
        assert_eq!(runtime.stats().tail_cache_bytes, 0);
        assert!(matches!(log.close().await, Err(AppendError::Offline(_))));
        assert_eq!(runtime.pending_bytes(), 0);
    });
}

#[test]
fn a_segment_that_grew_after_a_restart_is_not_as_old_as_its_last_index_files() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 3_000, retention_ms: Some(DAY), ..settings() };
        let log = open(&path, rules.clone(), AFTER_CRASH).await;
        let old = NOW - 5 * DAY.as_millis() as i64;
        append(&log, batch(1, 1_000, 0, old, None)).unwrap();
        let end = log.close().await.unwrap();

        let log = open(&path, rules.clone(), after_close(end)).await;
        // Index files cannot be written: their place is taken.
        let in_the_way = path.join("orders-0/00000000000000000000.index.tmp");
        std::fs::create_dir(&in_the_way).unwrap();
        while log.segment_count() == 1 {
            append(&log, batch(1, 1_000, 0, NOW, None)).unwrap();
        }
        log.flush().await.unwrap();
        let end = log.close().await.unwrap();
        std::fs::remove_dir(in_the_way).unwrap();

        let log = open(&path, rules, after_close(end)).await;
        assert_eq!(log.maintain(NOW, end).await.unwrap(), 0);
        let found = log.find_timestamp(NOW, end).await.unwrap();
        assert_eq!(found.map(|(offset, ..)| offset), Some(offset(1)));
        log.close().await.unwrap();
    });
}
