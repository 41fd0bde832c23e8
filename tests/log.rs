//! A log on a real file system: appended, read, rolled, closed, opened again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod log_support;

use std::time::Duration;

use log_support::*;
use ringlog::log::{
    AppendError, Limits, Log, LogPlace, LogRuntime, LogSettings, OpenError, ReadBounds, ReadError, StartFacts,
    sweep_leftovers,
};
use ringlog::protocol::batch;
use ringlog::rt::file::fault::{self, Fault};
use ringlog::rt::file::record::{self, Event, Op};
use ringlog::types::*;

/// Many batches of mixed sizes, as stored; their base offsets rise by the record count.
fn mixed(count: u64) -> Vec<(bytes::BytesMut, i64)> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut base = 0;
    (0..count)
        .map(|seed| {
            let records = random.u32(1..20);
            let batch = batch(records, random.usize(0..2000), seed, NOW + seed as i64, None);
            base += i64::from(records);
            (batch, base - i64::from(records))
        })
        .collect()
}

#[test]
fn appended_batches_are_read_back_stamped_and_in_order() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        let appended = append(&log, batch(3, 100, 1, NOW, None)).unwrap();
        assert_eq!((appended.base_offset, appended.last_offset, appended.duplicate), (offset(0), offset(2), false));
        assert_eq!(
            log.limits(),
            Limits { log_end: offset(3), log_start: offset(0), written: offset(0), flushed: offset(0) }
        );
        append_in(&log, batch(2, 100, 2, NOW, None), epoch(4)).unwrap();
        acked(&log).await;
        assert_eq!(log.acked_offset(), offset(5));
        let expected = [stored(batch(3, 100, 1, NOW, None), 0, 0), stored(batch(2, 100, 2, NOW, None), 3, 4)];
        assert_eq!(read_all(&log, offset(0), 1 << 20).await, expected);
        assert_eq!(read(&log, offset(4), bounds(&log, 1)).await, expected[1]);
        assert_eq!(log.epoch_end(epoch(2)), Some((epoch(0), offset(3))));
        assert_eq!(log.epoch_end(epoch(9)), Some((epoch(4), offset(5))));

        let refused = log.plan_read(offset(6), bounds(&log, 1)).err().unwrap();
        assert_eq!(refused, ReadError::OutOfRange { wanted: offset(6), start: offset(0), end: offset(5) });
        assert!(read(&log, offset(5), bounds(&log, 1)).await.is_empty());
        let below = ReadBounds { below: offset(4), ..bounds(&log, 1 << 20) };
        assert_eq!(read(&log, offset(0), below).await, expected[0]);
        log.close().await.unwrap();
    });
}

#[test]
fn a_clean_start_reads_no_data_and_finds_everything() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let settings = LogSettings { segment_bytes: 1 << 20, ..settings() };
        let log = open(&path, settings.clone(), AFTER_CRASH).await;
        let mut expected = Vec::new();
        for (batch, base) in mixed(400) {
            append(&log, batch.clone()).unwrap();
            expected.push(stored(batch, base, 0));
        }
        append(&log, batch(1, 10, 0, NOW, Some(stamp(7, 0)))).unwrap();
        expected.push(stored(batch(1, 10, 0, NOW, Some(stamp(7, 0))), log.limits().log_end.value() - 1, 0));
        let (segments, bytes) = (log.segment_count(), log.size_bytes());
        assert!(segments > 2, "{segments}");
        let end = log.close().await.unwrap();

        // Files are exactly as long as their data, so that other tools can read them.
        let on_disk: u64 = file_names(&path.join("orders-0"))
            .iter()
            .filter(|name| name.ends_with(".log"))
            .map(|name| std::fs::metadata(path.join("orders-0").join(name)).unwrap().len())
            .sum();
        assert_eq!(on_disk, bytes);

        let (log, report) = try_open(&path, settings, after_close(end)).await.unwrap();
        assert_eq!((report.bytes_scanned, report.bytes_truncated, report.segments as usize), (0, 0, segments));
        let everything = Limits { log_start: offset(0), flushed: end, written: end, log_end: end };
        assert_eq!((log.limits(), log.size_bytes()), (everything, bytes));
        assert_eq!(read_all(&log, offset(0), 100_000).await, expected);
        let again = append(&log, batch(1, 10, 0, NOW, Some(stamp(7, 0)))).unwrap();
        assert_eq!((again.duplicate, again.base_offset.next()), (true, end));
        append(&log, batch(1, 10, 1, NOW, Some(stamp(7, 1)))).unwrap();
        expected.push(stored(batch(1, 10, 1, NOW, Some(stamp(7, 1))), end.value(), 0));
        acked(&log).await;
        assert_eq!(read_all(&log, offset(0), 1 << 20).await, expected);
        log.close().await.unwrap();
    });
}

#[test]
fn cold_reads_equal_the_log_at_every_offset_and_size() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let settings = LogSettings { segment_bytes: 2 << 20, ..settings() };
        let runtime = LogRuntime::new(0, 8 << 20);
        let (log, _) = Log::open(place(&path), settings, AFTER_CRASH, &runtime).await.unwrap();
        let mut expected = Vec::new();
        for (batch, base) in mixed(600) {
            append(&log, batch.clone()).unwrap();
            expected.push((base, stored(batch, base, 0)));
            if base % 7 == 0 {
                acked(&log).await;
            }
        }
        acked(&log).await;
        assert_eq!(runtime.stats().tail_cache_bytes, 0, "all written, so all evicted");
        for bytes_max in [1, 5_000, 50_000, 3 << 20] {
            let read = read_all(&log, offset(0), bytes_max).await;
            assert!(read.iter().eq(expected.iter().map(|(_, batch)| batch)), "in steps of {bytes_max}");
        }
        let end = log.limits().log_end;
        for wanted in (0..end.value()).step_by(3) {
            let at = expected.partition_point(|(base, _)| *base <= wanted) - 1;
            assert_eq!(&read(&log, offset(wanted), bounds(&log, 1)).await, &expected[at].1);
        }
        let none = ReadBounds { at_least_one: false, ..bounds(&log, 10) };
        assert!(read(&log, offset(0), none).await.is_empty());
        // Everything after a bound stays out, wherever it falls.
        let below = expected[300].0;
        let bounded = ReadBounds { below: offset(below), ..bounds(&log, 1 << 20) };
        let last = split(&read(&log, offset(expected[299].0), bounded).await);
        assert_eq!(last, [expected[299].1.clone()]);
        assert!(runtime.stats().disk_read_bytes > 0);
        log.close().await.unwrap();
    });
}

#[test]
fn a_reader_that_comes_before_its_read_ahead_has_ended_does_not_read_the_same_again() {
    const BATCHES: u64 = 400;
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let runtime = LogRuntime::new(0, 8 << 20);
        let (log, _) = Log::open(place(&path), settings(), AFTER_CRASH, &runtime).await.unwrap();
        let mut written = 0;
        for seed in 0..BATCHES {
            let batch = batch(1, 20_000, seed, NOW, None);
            written += batch.len() as u64;
            append(&log, batch).unwrap();
            acked(&log).await;
        }
        for bytes_max in [50_000, 400_000, 1 << 20] {
            let before = runtime.stats().disk_read_bytes;
            assert_eq!(read_all(&log, offset(0), bytes_max).await.len() as u64, BATCHES);
            let read = runtime.stats().disk_read_bytes - before;
            // Pieces begin at blocks, so neighbours share one.
            assert!(read < written + written / 10, "{read} bytes were read of {written}, in steps of {bytes_max}");
        }
        log.close().await.unwrap();
    });
}

#[test]
fn a_log_that_was_not_closed_loses_nothing_that_was_written() {
    let dir = disk_dir();
    let (first, second) = (dir.path().to_owned(), dir.path().to_owned());
    let settings = LogSettings { segment_bytes: 1 << 20, ..settings() };
    let (killed, again) = (settings.clone(), settings);
    let written = on_shard(dir.path(), move || async move {
        let log = open(&first, killed, AFTER_CRASH).await;
        for (number, (batch, _)) in mixed(300).into_iter().enumerate() {
            append(&log, batch).unwrap();
            if number == 150 {
                log.flush().await.unwrap();
            }
        }
        for number in 0..8 {
            append(&log, batch(10, 10, 9, NOW - 90_000_000, Some(stamp(7, number * 10)))).unwrap();
        }
        acked(&log).await;
        log.limits()
    });
    on_shard(dir.path(), move || async move {
        let facts = StartFacts { recovery_point: Some(written.flushed), ..AFTER_CRASH };
        let (log, report) = try_open(&second, again, facts).await.unwrap();
        let end = written.log_end;
        assert_eq!(log.limits(), Limits { log_start: offset(0), flushed: end, written: end, log_end: end });
        assert!(report.bytes_scanned > 0 && report.bytes_truncated == 0, "{report:?}");
        let read = read_all(&log, offset(0), 1 << 20).await;
        let expected = mixed(300).into_iter().map(|(batch, base)| stored(batch, base, 0));
        assert!(read.into_iter().take(300).eq(expected));
        // The whole window is back, though the records are older than the expiry.
        log.maintain(NOW, end).await.unwrap();
        for number in 3..8 {
            let resent = append(&log, batch(10, 10, 9, NOW - 90_000_000, Some(stamp(7, number * 10)))).unwrap();
            assert_eq!(
                (resent.duplicate, resent.last_offset.value() + 1),
                (true, end.value() - i64::from(7 - number) * 10)
            );
        }
        let gap = append(&log, batch(1, 10, 9, NOW, Some(stamp(7, 81)))).unwrap_err();
        assert!(matches!(gap, AppendError::OutOfOrderSequence { .. }), "{gap}");
        log.close().await.unwrap();
    });
}

#[test]
fn corruption_below_the_flushed_offset_is_refused_with_its_place() {
    let dir = fast_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        let first_bytes = batch(1, 100, 0, NOW, None).len();
        for seed in 0..10 {
            append(&log, batch(1, 100, seed, NOW, None)).unwrap();
        }
        log.close().await.unwrap();
        let file = path.join("orders-0/00000000000000000000.log");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[first_bytes * 4 + 70] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        let facts = |recovery_point| StartFacts { recovery_point: Some(offset(recovery_point)), ..AFTER_CRASH };

        let error = try_open(&path, settings(), facts(5)).await.err().unwrap();
        let OpenError::Corrupt { file: named, position, flushed, .. } = &error else { panic!("{error}") };
        assert_eq!((named, *position, *flushed), (&file, first_bytes as u64 * 4, offset(5)));
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "nothing was cut");

        // Zeroes are padding only at the end of what was flushed.
        let mut holed = bytes.clone();
        holed[first_bytes * 4..first_bytes * 5].fill(0);
        std::fs::write(&file, &holed).unwrap();
        let error = try_open(&path, settings(), facts(8)).await.err().unwrap();
        let OpenError::Corrupt { position, .. } = &error else { panic!("{error}") };
        assert_eq!(*position, first_bytes as u64 * 4);
        assert_eq!(std::fs::read(&file).unwrap(), holed, "nothing was cut");
        std::fs::write(&file, &bytes).unwrap();

        // Above it, the same bytes are a torn tail.
        let (log, report) = try_open(&path, settings(), facts(4)).await.unwrap();
        assert_eq!(log.limits().log_end, offset(4));
        assert!(report.bytes_truncated > 0);
        log.close().await.unwrap();

        let error = try_open(&path, settings(), facts(5)).await.err().unwrap();
        assert!(error.to_string().contains("its records end at offset 4"), "{error}");
        std::fs::remove_file(&file).unwrap();
        let error = try_open(&path, settings(), facts(4)).await.err().unwrap();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    });
}

#[test]
fn a_directory_of_another_topic_is_refused() {
    let dir = fast_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        open(&path, settings(), AFTER_CRASH).await.close().await.unwrap();
        let other = LogPlace { topic_id: TopicId::from_bytes([9; 16]), ..place(&path) };
        let error = Log::open(other, settings(), AFTER_CRASH, &LogRuntime::new(0, 8 << 20)).await.err().unwrap();
        assert!(matches!(error, OpenError::WrongTopic { .. }), "{error}");
    });
}

#[test]
fn each_class_acknowledges_at_its_own_point() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let class = |ack_class| LogSettings { ack_class, ..settings() };
        let log = open(&path, class(AckClass::Memory), AFTER_CRASH).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        assert_eq!((log.acked_offset(), log.limits().written), (offset(1), offset(0)));
        log.set_settings(class(AckClass::Written));
        assert_eq!(log.acked_offset(), offset(0));
        acked(&log).await;
        assert_eq!((log.limits().written, log.limits().flushed), (offset(1), offset(0)));
        log.set_settings(class(AckClass::Flushed));
        assert_eq!(log.acked_offset(), offset(0));
        acked(&log).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        acked(&log).await;
        assert_eq!((log.limits().flushed, log.acked_offset()), (offset(2), offset(2)));
        log.close().await.unwrap();
    });
}

#[test]
fn written_data_is_flushed_at_the_interval() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let log =
            open(&path, LogSettings { flush_interval: Duration::from_millis(5), ..settings() }, AFTER_CRASH).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        let event = ringlog::rt::Event::default();
        let observer = event.clone();
        log.on_change(move || observer.notify_all());
        while log.limits().flushed < offset(1) {
            event.wait().await;
        }
        log.close().await.unwrap();
    });
}

#[test]
fn concurrent_flushes_share_rounds() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let runtime = LogRuntime::new(1 << 20, 8 << 20);
        let (log, _) = Log::open(place(&path), settings(), AFTER_CRASH, &runtime).await.unwrap();
        let mut flushes = Vec::new();
        for seed in 0..64 {
            let appended = append(&log, batch(1, 100, seed, NOW, None)).unwrap();
            let log = log.clone();
            flushes.push((appended, ringlog::rt::spawn(async move { log.flush().await })));
        }
        for (appended, flush) in flushes {
            assert!(flush.join().await.unwrap().unwrap() > appended.last_offset);
        }
        let stats = runtime.stats();
        assert!(stats.flushes <= 3, "{stats:?}");
        log.close().await.unwrap();
    });
}

#[test]
fn each_byte_is_copied_about_once() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let runtime = LogRuntime::new(1 << 20, 8 << 20);
        let (log, _) = Log::open(place(&path), settings(), AFTER_CRASH, &runtime).await.unwrap();
        for seed in 0..40 {
            append(&log, batch(1, 64 << 10, seed, NOW, None)).unwrap();
            if seed % 2 == 0 {
                acked(&log).await;
            }
        }
        acked(&log).await;
        let stats = runtime.stats();
        assert!(stats.append_copied_bytes as f64 <= 1.1 * stats.appended_bytes as f64, "{stats:?}");
        assert_eq!(stats.pending_bytes, 0);
        log.close().await.unwrap();
    });
}

#[test]
fn blocks_ahead_of_small_writes_are_written_before_and_hold_nothing_after_a_crash() {
    for (size, is_prewritten) in [(100, true), (100_000, false)] {
        let dir = disk_dir();
        let (first, second) = (dir.path().to_owned(), dir.path().to_owned());
        let end = on_shard(dir.path(), move || async move {
            let runtime = LogRuntime::new(1 << 20, 8 << 20);
            let (log, _) = Log::open(place(&first), settings(), AFTER_CRASH, &runtime).await.unwrap();
            while runtime.stats().appended_bytes < 600_000 {
                append(&log, batch(1, size, 1, NOW, None)).unwrap();
                acked(&log).await;
            }
            let prewritten = runtime.stats().prewritten_bytes;
            assert_eq!(prewritten > 0, is_prewritten, "{size}: {:?}", runtime.stats());
            assert!(prewritten <= 900_000, "not far beyond what is needed: {prewritten}");
            log.limits().log_end
        });
        on_shard(dir.path(), move || async move {
            let (log, report) = try_open(&second, settings(), AFTER_CRASH).await.unwrap();
            assert_eq!((log.limits().log_end, report.bytes_truncated), (end, 0));
            assert_eq!(read_all(&log, offset(0), 1 << 20).await.len() as i64, end.value());
            log.close().await.unwrap();
        });
    }
}

#[test]
fn small_appends_go_on_at_the_odd_end_of_logs_that_were_closed() {
    const LOGS: usize = 12;
    let dir = fast_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let mut random = fastrand::Rng::with_seed(4);
        // More logs than writes may be in flight, so that more is appended while a write waits for its turn.
        let runtime = LogRuntime::new(8 << 20, 8 << 20);
        let rules =
            |number| LogSettings { prewrite_bytes_max: if number % 2 == 0 { 0 } else { 32 << 10 }, ..settings() };
        let mut logs = Vec::new();
        for number in 0..LOGS {
            let path = path.join(number.to_string());
            let (log, _) = Log::open(place(&path), rules(number), AFTER_CRASH, &runtime).await.unwrap();
            append(&log, batch(1, 5_000 + number, 0, NOW, None)).unwrap();
            acked(&log).await;
            let end = log.close().await.unwrap();
            logs.push(Log::open(place(&path), rules(number), after_close(end), &runtime).await.unwrap().0);
        }
        for number in 0..12_000 {
            append(&logs[random.usize(..LOGS)], batch(1, random.usize(0..1_500), number, NOW, None)).unwrap();
            if random.u8(..16) == 0 {
                ringlog::rt::sleep(Duration::from_micros(random.u64(0..60))).await;
            }
        }
        for (number, log) in logs.into_iter().enumerate() {
            acked(&log).await;
            let file = path.join(number.to_string()).join("orders-0").join(data_file(0));
            assert_eq!(std::fs::metadata(file).unwrap().len() % 4096, 0, "an odd end of the blocks cuts writes oddly");
            assert_eq!(read_all(&log, offset(0), 1 << 20).await.len() as i64, log.limits().log_end.value());
            log.close().await.unwrap();
        }
    });
}

#[test]
fn retention_deletes_old_segments_and_moves_the_log_start() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 10_000, retention_ms: Some(Duration::from_millis(50)), ..settings() };
        let log = open(&path, rules.clone(), AFTER_CRASH).await;
        for number in 0..10_i64 {
            append(&log, batch(1, 9_000, 0, NOW + number * 10, None)).unwrap();
        }
        acked(&log).await;
        assert_eq!(log.segment_count(), 10);
        let end = log.limits().log_end;
        assert_eq!(log.maintain(NOW + 80, offset(2)).await, Ok(2), "nothing above the high watermark");
        assert_eq!(log.maintain(NOW + 80, end).await, Ok(1));
        assert_eq!(log.limits().log_start, offset(3));
        let refused = log.plan_read(offset(2), bounds(&log, 1)).err().unwrap();
        assert_eq!(refused, ReadError::OutOfRange { wanted: offset(2), start: offset(3), end });

        assert_eq!(log.delete_records(offset(5)).await, Ok(offset(5)));
        assert_eq!((log.limits().log_start, log.segment_count()), (offset(5), 5));

        // All of it: the log goes on, at its end, in a new file.
        assert_eq!(log.maintain(NOW + 1000, end).await, Ok(5));
        assert_eq!((log.limits().log_start, log.segment_count(), log.size_bytes()), (end, 1, 0));
        let names = file_names(&path.join("orders-0"));
        assert!(names.contains(&format!("{:020}.log", end.value())), "{names:?}");
        drop(log);

        let (log, _) = try_open(&path, rules, StartFacts { recovery_point: Some(end), ..AFTER_CRASH }).await.unwrap();
        assert_eq!(log.limits(), Limits { log_start: end, flushed: end, written: end, log_end: end });
        assert_eq!(append(&log, batch(1, 10, 0, NOW, None)).unwrap().base_offset, end);
        log.close().await.unwrap();
    });
}

/// The two race, so it is tried on several new shards: without the wait one of twenty loses.
#[test]
fn the_file_that_follows_is_there_before_the_one_before_it_goes() {
    for _ in 0..40 {
        let dir = fast_dir();
        let path = dir.path().to_owned();
        on_shard(dir.path(), move || async move {
            let rules = LogSettings { segment_bytes: 10_000, ..settings() };
            let log = open(&path, rules.clone(), AFTER_CRASH).await;
            append(&log, batch(1, 9_000, 0, NOW, None)).unwrap();
            acked(&log).await;
            let end = log.close().await.unwrap();
            let log = open(&path, rules, after_close(end)).await;
            // Begins the second segment, and is still in memory when the first one, in which nothing was written, may go.
            append(&log, batch(1, 9_000, 1, NOW, None)).unwrap();
            record::start();
            assert_eq!(log.delete_records(offset(1)).await, Ok(offset(1)));
            let events = record::stop();
            let made = events.iter().position(|event| match event {
                Event::Started(_, Op::Open { path, created: true, .. }) => path.ends_with(data_file(1)),
                _ => false,
            });
            let gone = events.iter().position(|event| match event {
                Event::Started(_, Op::Rename { from, .. }) => from.ends_with(data_file(0)),
                _ => false,
            });
            assert!(made.is_some() && made < gone, "{made:?} {gone:?}: a crash between them would forget the log end");
            log.close().await.unwrap();
        });
    }
}

fn data_file(base: i64) -> String {
    format!("{base:020}.log")
}

#[test]
fn offsets_for_times_equal_a_scan_of_all_records() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let settings = LogSettings { segment_bytes: 50_000, index_interval_bytes: 500, ..settings() };
        let runtime = LogRuntime::new(20_000, 8 << 20);
        let (log, _) = Log::open(place(&path), settings.clone(), AFTER_CRASH, &runtime).await.unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        let mut records: Vec<(i64, i64, i32)> = Vec::new();
        for number in 0..300_i64 {
            // Mostly rising, with stragglers and equals.
            let timestamp = number * 5 - random.i64(0..100);
            let (count, leader) = (random.u32(1..4), (number / 100) as i32);
            let appended = append_in(&log, batch(count, 400, 0, timestamp, None), epoch(leader)).unwrap();
            records.extend((0..i64::from(count)).map(|at| (appended.base_offset.value() + at, timestamp, leader)));
        }
        log.flush().await.unwrap();
        log.delete_records(offset(100)).await.unwrap();
        let end = log.limits().log_end;
        let scan = |at: i64, below: i64| {
            let found = records.iter().find(|&&(offset, timestamp, _)| offset >= 100 && timestamp >= at);
            let (offset, timestamp, leader) = *found.filter(|record| record.0 < below)?;
            Some((Offset::new(offset).unwrap(), timestamp, epoch(leader)))
        };
        for at in (-120..1600).step_by(7) {
            assert_eq!(log.find_timestamp(at, end).await.unwrap(), scan(at, end.value()), "at {at}");
            assert_eq!(log.find_timestamp(at, offset(300)).await.unwrap(), scan(at, 300), "at {at} below 300");
        }
        let largest = records.iter().map(|record| record.1).max().unwrap();
        assert_eq!(log.find_max_timestamp(end).await.unwrap(), scan(largest, end.value()));
        assert_eq!(log.find_max_timestamp(offset(200)).await.unwrap(), None, "not below the bound");
        let closed = log.close().await.unwrap();

        // The same from the files, and again without the index files.
        for round in 0..2 {
            let facts = StartFacts { log_start: Some(offset(100)), ..after_close(closed) };
            let log = open(&path, settings.clone(), facts).await;
            for at in (-120..1600).step_by(31) {
                assert_eq!(log.find_timestamp(at, end).await.unwrap(), scan(at, end.value()), "at {at}, round {round}");
            }
            log.close().await.unwrap();
            for name in file_names(&path.join("orders-0")) {
                if name.ends_with("index") {
                    std::fs::remove_file(path.join("orders-0").join(name)).unwrap();
                }
            }
        }
    });
}

#[test]
fn a_segment_rolls_by_size_time_and_full_index_and_never_when_empty() {
    let dir = fast_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let bases = |log: &Log| log.segment_count();
        let log = open(&path.join("a"), LogSettings { segment_bytes: 1000, ..settings() }, AFTER_CRASH).await;
        append(&log, batch(1, 900, 0, NOW, None)).unwrap();
        assert_eq!(bases(&log), 1, "an empty segment takes whatever fits one");
        append(&log, batch(1, 1, 0, NOW, None)).unwrap();
        append(&log, batch(1, 900, 0, NOW, None)).unwrap();
        assert_eq!(bases(&log), 3);
        let too_large = append(&log, batch(1, 1000, 0, NOW, None)).unwrap_err();
        assert!(matches!(too_large, AppendError::TooLarge { bytes } if bytes > 1000));
        log.close().await.unwrap();

        let log =
            open(&path.join("b"), LogSettings { segment_ms: Duration::from_millis(100), ..settings() }, AFTER_CRASH)
                .await;
        for timestamp in [NOW, NOW + 100, NOW + 101, NOW + 150] {
            append(&log, batch(1, 1, 0, timestamp, None)).unwrap();
        }
        assert_eq!(bases(&log), 2);
        log.close().await.unwrap();

        let full = LogSettings { index_interval_bytes: 0, index_bytes_max: 48, ..settings() };
        let log = open(&path.join("c"), full, AFTER_CRASH).await;
        for number in 0..12 {
            append(&log, batch(1, 1, 0, NOW + number, None)).unwrap();
        }
        assert_eq!(bases(&log), 3);
        let end = log.close().await.unwrap();
        assert_eq!(end, offset(12));
    });
}

/// Written to without a pause, so that every flush ends with something new to flush.
#[test]
fn the_oldest_segments_of_a_busy_log_go_while_flush_follows_flush() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { ack_class: AckClass::Flushed, segment_bytes: 100_000, ..settings() };
        let log = open(&path, rules, AFTER_CRASH).await;
        let slow = fault::ask(Fault::SlowSync, &path);
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let (busy, is_done) = (log.clone(), done.clone());
        let producer = ringlog::rt::spawn(async move {
            let event = ringlog::rt::Event::default();
            let observer = event.clone();
            busy.on_change(move || observer.notify_all());
            while !is_done.get() {
                append(&busy, batch(1, 1_000, 0, NOW, None)).unwrap();
                while busy.limits().written < busy.limits().log_end {
                    event.wait().await;
                }
            }
        });
        while log.segment_count() < 4 {
            ringlog::rt::sleep(Duration::from_millis(1)).await;
        }
        let give_up = std::time::Instant::now() + Duration::from_secs(10);
        let started = ringlog::rt::timeout_at(give_up, log.delete_records(offset(150))).await;
        done.set(true);
        drop(slow);
        producer.join().await.unwrap();
        assert_eq!(started, Some(Ok(offset(150))), "it does not wait until nothing is written");
        assert!(!file_names(&path.join("orders-0")).contains(&data_file(0)));
        log.close().await.unwrap();
    });
}

#[test]
fn a_deleted_log_is_renamed_at_once_and_unlinked_later() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let log =
            open(&path, LogSettings { file_delete_delay: Duration::from_secs(3600), ..settings() }, AFTER_CRASH).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        let waiting = log.clone();
        let waiter = ringlog::rt::spawn(async move { waiting.flush().await });
        log.clone().delete().await.unwrap();
        assert!(
            waiter.join().await.unwrap().is_ok_and(|flushed| flushed == offset(1)) || log.limits().flushed == offset(0)
        );
        assert!(matches!(append(&log, batch(1, 100, 0, NOW, None)), Err(AppendError::Offline(_))));
        assert!(matches!(log.plan_read(offset(0), bounds(&log, 1)), Err(ReadError::Closed)));
        let names = file_names(&path);
        let [renamed] = names.iter().filter(|name| name.ends_with("-delete")).collect::<Vec<_>>()[..] else {
            panic!("{names:?}")
        };
        assert!(renamed.starts_with("orders-0.") && !path.join("orders-0").exists());

        std::fs::write(path.join("recovery-point-offset-checkpoint.tmp"), b"").unwrap();
        std::fs::create_dir(path.join("other-0")).unwrap();
        std::fs::write(path.join("other-0/00000000000000000000.log.deleted"), b"").unwrap();
        std::fs::write(path.join("other-0/00000000000000000000.log"), b"").unwrap();
        assert_eq!(sweep_leftovers(&path).unwrap(), 3);
        assert_eq!(file_names(&path.join("other-0")), ["00000000000000000000.log"]);

        // Made again under its name it begins at 0, whatever lies in the renamed directory.
        let log = open(&path, settings(), AFTER_CRASH).await;
        assert_eq!(log.limits().log_end, offset(0));
        log.close().await.unwrap();
    });
}

#[test]
fn a_read_that_a_deletion_overtakes_is_told_that_the_log_is_closed() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 10_000, ..settings() };
        let log = open(&path, rules.clone(), AFTER_CRASH).await;
        for number in 0..3 {
            append(&log, batch(1, 9_000, 0, NOW + number, None)).unwrap();
        }
        let end = log.close().await.unwrap();
        // Opened again, so that nothing of it is in memory.
        let log = open(&path, rules, after_close(end)).await;
        let plans = [0, 2].map(|from| log.plan_read(offset(from), bounds(&log, 1 << 20)).unwrap());
        log.clone().delete().await.unwrap();
        for plan in plans {
            assert_eq!(plan.run().await.err(), Some(ReadError::Closed));
        }
        assert_eq!(log.find_timestamp(NOW, end).await, Err(ReadError::Closed));
    });
}

#[test]
fn a_thousand_idle_logs_hold_no_files() {
    let dir = fast_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let runtime = LogRuntime::new(1 << 20, 8 << 20);
        let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open_files();
        let mut logs = Vec::new();
        for number in 0..1000 {
            let place = LogPlace { dir: path.join(format!("orders-{number}")), ..place(&path) };
            logs.push(Log::open(place, settings(), AFTER_CRASH, &runtime).await.unwrap().0);
        }
        // Other tests of this binary open a few meanwhile.
        assert!(open_files() < before + 100);
        for log in logs {
            log.close().await.unwrap();
        }
    });
}

#[test]
fn the_stored_batch_differs_from_the_produced_one_only_outside_its_checksum() {
    let produced = batch(3, 100, 1, NOW, None);
    let stored = stored(produced.clone(), 77, 5);
    assert_eq!(batch::check(&stored).unwrap().crc, batch::check(&produced).unwrap().crc);
    assert_eq!(stored[21..], produced[21..]);
}

/// Readers at random places while batches are appended, segments roll and the oldest go: what is read is what was appended.
#[test]
fn readers_see_the_right_bytes_while_the_log_rolls_and_deletes() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 60_000, retention_bytes: Some(300_000), ..settings() };
        // Room for some batches only, so that reads meet the border between cache and disk.
        let (log, _) = Log::open(place(&path), rules, AFTER_CRASH, &LogRuntime::new(50_000, 8 << 20)).await.unwrap();
        let all: Vec<Vec<u8>> = mixed(400).into_iter().map(|(batch, base)| stored(batch, base, 0)).collect();
        let all = std::rc::Rc::new(all);
        let readers: Vec<_> = (0..4_u64)
            .map(|seed| {
                let (log, all) = (log.clone(), all.clone());
                ringlog::rt::spawn(async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let (mut reads, mut gone) = (0, 0);
                    while log.limits().log_end.value() < last_offset(all.last().unwrap()) + 1 {
                        let limits = log.limits();
                        let from = offset(random.i64(limits.log_start.value()..=limits.log_end.value()));
                        let bytes_max = random.usize(1..200_000);
                        // Sometimes the log moves on between plan and run.
                        let plan = log.plan_read(from, bounds(&log, bytes_max)).unwrap();
                        ringlog::rt::sleep(Duration::from_micros(random.u64(0..2000))).await;
                        match plan.run().await {
                            Ok(data) => {
                                let bytes: Vec<u8> =
                                    data.parts.iter().flat_map(|part| part_bytes(part).to_vec()).collect();
                                let at = all.partition_point(|batch| last_offset(batch) < from.value());
                                let read = split(&bytes);
                                assert!(read.iter().eq(all[at..].iter().take(read.len())), "from {from}");
                                assert!(!read.is_empty() || from == limits.log_end, "nothing at {from} of {limits:?}");
                                reads += 1;
                            }
                            Err(error) => {
                                assert!(matches!(error, ReadError::OutOfRange { .. }), "{error}");
                                assert!(from < log.limits().log_start);
                                gone += 1;
                            }
                        }
                    }
                    (reads, gone)
                })
            })
            .collect();
        for (number, (batch, _)) in mixed(400).into_iter().enumerate() {
            append(&log, batch).unwrap();
            if number % 5 == 0 {
                acked(&log).await;
            }
            if number % 25 == 0 {
                log.maintain(NOW, log.acked_offset()).await.unwrap();
            }
        }
        let mut reads = 0;
        for reader in readers {
            reads += reader.join().await.expect("a reader found wrong bytes").0;
        }
        assert!(reads > 20 && log.limits().log_start > offset(0), "{reads} reads, {:?}", log.limits());
        log.close().await.unwrap();
    });
}

fn last_offset(batch: &[u8]) -> i64 {
    let info = batch::parse_header(batch).unwrap();
    info.base_offset + i64::from(info.last_offset_delta)
}

#[test]
fn epochs_that_only_recovery_found_outlive_the_next_clean_end() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    let crashed = path.clone();
    on_shard(dir.path(), move || async move {
        let log = open(&crashed, settings(), AFTER_CRASH).await;
        log.begin_epoch(epoch(0)).await.unwrap();
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        acked(&log).await;
    });
    // As after a crash within the second before the first flush.
    assert!(!path.join("orders-0/leader-epoch-checkpoint").exists());
    on_shard(dir.path(), move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        log.begin_epoch(epoch(1)).await.unwrap();
        let end = log.close().await.unwrap();
        let log = open(&path, settings(), after_close(end)).await;
        assert_eq!(log.epoch_end(epoch(0)), Some((epoch(0), offset(1))));
        log.close().await.unwrap();
    });
}

#[test]
fn a_segment_keeps_its_age_over_restarts() {
    const MINUTE: TimestampMs = 60_000;
    let dir = disk_dir();
    for clean in [false, true] {
        let mut end = None;
        for (number, minutes) in [0, 40, 80, 90].into_iter().enumerate() {
            let path = dir.path().join(if clean { "clean" } else { "crash" });
            end = on_shard(dir.path(), move || async move {
                let settings = LogSettings { segment_ms: Duration::from_secs(3600), ..settings() };
                let log = open(&path, settings, end.map_or(AFTER_CRASH, after_close)).await;
                append(&log, batch(1, 100, 0, NOW + minutes * MINUTE, None)).unwrap();
                log.flush().await.unwrap();
                if clean {
                    // What the first append after a clean end brings to light holds for the next one.
                    append(&log, batch(1, 100, 0, NOW + minutes * MINUTE, None)).unwrap();
                    log.flush().await.unwrap();
                }
                assert_eq!(log.segment_count(), if number < 2 { 1 } else { 2 }, "{minutes} minutes, clean: {clean}");
                if clean { Some(log.close().await.unwrap()) } else { None }
            });
        }
    }
}

#[test]
fn a_checkpoint_of_epochs_that_is_no_text_is_ignored() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let log = open(&path, settings(), AFTER_CRASH).await;
        append(&log, batch(1, 100, 0, NOW, None)).unwrap();
        let end = log.close().await.unwrap();
        std::fs::write(path.join("orders-0/leader-epoch-checkpoint"), b"\xff\xfe\x00").unwrap();
        let log = open(&path, settings(), after_close(end)).await;
        assert_eq!(log.limits().log_end, offset(1));
        log.close().await.unwrap();
    });
}

#[test]
fn a_leftover_that_cannot_be_removed_keeps_no_other() {
    let dir = disk_dir();
    for number in 0..5 {
        let partition = dir.path().join(format!("orders-{number}"));
        std::fs::create_dir(&partition).unwrap();
        std::fs::write(partition.join("00000000000000000000.log.deleted"), b"").unwrap();
    }
    // No file, so it is not removed as one.
    std::fs::create_dir_all(dir.path().join("lost+found/directory.tmp")).unwrap();
    assert_eq!(sweep_leftovers(dir.path()).unwrap(), 5);
}

#[test]
fn a_search_for_a_time_and_a_deletion_go_on_side_by_side() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 1_000, ..settings() };
        for round in 0..30 {
            let place = path.join(round.to_string());
            let log = open(&place, rules.clone(), AFTER_CRASH).await;
            for number in 0..8 {
                append(&log, batch(1, 900, 0, NOW + number, None)).unwrap();
            }
            let end = log.close().await.unwrap();
            // Opened again: every file is opened by the search.
            let log = open(&place, rules.clone(), after_close(end)).await;
            let searches: Vec<_> = (0..8)
                .map(|number| {
                    let log = log.clone();
                    ringlog::rt::spawn(async move { log.find_timestamp(NOW + number, end).await.map(drop) })
                })
                .collect();
            for _ in 0..round % 6 {
                ringlog::rt::sleep(Duration::from_micros(100)).await;
            }
            log.delete_records(offset(6)).await.unwrap();
            for search in searches {
                assert!(search.join().await.is_some(), "it did not panic");
            }
            log.close().await.unwrap();
        }
        assert_eq!(ringlog::rt::panics(), 0);
    });
}
