//! A log whose process has no descriptors left. Alone in its binary, because the limit is the whole process's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod log_support;

use std::fs::File;
use std::time::Duration;

use log_support::*;
use ringlog::log::{AppendError, LogSettings};
use ringlog::types::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const DESCRIPTORS: u64 = 256;

/// Every descriptor that is left, until dropped.
fn take_all() -> Vec<File> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), maximum: limit.maximum }).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_log_waits_for_descriptors_and_goes_on() {
    let dir = disk_dir();
    let path = dir.path().to_owned();
    on_shard(dir.path(), move || async move {
        let rules = LogSettings { segment_bytes: 1_000, flush_interval: Duration::from_secs(3600), ..settings() };
        let log = open(&path, rules, AFTER_CRASH).await;
        append(&log, batch(1, 900, 0, NOW, None)).unwrap();
        acked(&log).await;
        // The runtime has the descriptors it works with once it has stood still.
        ringlog::rt::sleep(Duration::from_millis(20)).await;

        // Its directory cannot be opened to be flushed.
        let taken = take_all();
        let flushing = ringlog::rt::spawn({
            let log = log.clone();
            async move { log.flush().await }
        });
        ringlog::rt::sleep(Duration::from_millis(100)).await;
        assert_eq!((log.limits().flushed, log.offline()), (Offset::ZERO, None));
        drop(taken);
        assert_eq!(flushing.join().await, Some(Ok(offset(1))));

        // The next segment's file cannot be made.
        let taken = take_all();
        append(&log, batch(1, 900, 1, NOW, None)).unwrap();
        while !log.is_full() {
            assert_eq!(log.offline(), None);
            ringlog::rt::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(append(&log, batch(1, 900, 2, NOW, None)), Err(AppendError::NoSpace));
        drop(taken);
        acked(&log).await;
        append(&log, batch(1, 900, 2, NOW, None)).unwrap();
        acked(&log).await;
        assert_eq!(log.close().await, Ok(offset(3)));
    });
}
