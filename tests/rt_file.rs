//! Direct files on the build's disk and on tmpfs, and the guard against polled I/O.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::rt;
use ringlog::rt::executor::{Setup, run_one};
use ringlog::rt::file::record::{self, Event, Op};
use ringlog::rt::file::{Access, AlignedBuf, BLOCK_BYTES, DirectFile};
use rt_support::*;

fn on(dir: &Path) -> Setup {
    Setup { data_dirs: vec![dir.to_owned()], ..one_shard() }
}

fn filled(blocks: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::new(blocks * BLOCK_BYTES);
    buf.as_mut_slice().fill(byte);
    buf
}

/// Everything a file does, on the file system of `dir`.
fn write_read_and_cut(dir: &Path) {
    let path = dir.join("00000000000000000000.log");
    let given = path.clone();
    run_one(on(dir), move || async move {
        let file = DirectFile::open(&given, Access::CreateNew).await.unwrap();
        assert!(DirectFile::open(&given, Access::CreateNew).await.is_err());
        assert_eq!(file.len().await.unwrap(), 0);
        assert!(file.read(0, BLOCK_BYTES).await.unwrap().as_slice().is_empty());

        file.preallocate(1 << 20).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 1 << 20);
        let buf = file.write(filled(2, 1), 0).await.unwrap();
        assert_eq!(buf.as_slice(), [1; 2 * BLOCK_BYTES]);
        file.write(filled(1, 2), 2 * BLOCK_BYTES as u64).await.unwrap();
        file.sync_data().await.unwrap();
        // A second allocation changes nothing of what is there.
        file.preallocate(64 << 10).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 1 << 20);

        let read = file.read(BLOCK_BYTES as u64, 4 * BLOCK_BYTES).await.unwrap();
        let expected = [[1; BLOCK_BYTES], [2; BLOCK_BYTES], [0; BLOCK_BYTES], [0; BLOCK_BYTES]].concat();
        assert!(read.as_slice() == expected);
        let part = read.slice(BLOCK_BYTES - 1..BLOCK_BYTES + 1);
        drop(read);
        assert_eq!(part.as_slice(), [1, 2]);

        file.truncate(3 * BLOCK_BYTES as u64 - 5).await.unwrap();
        let end = file.read(2 * BLOCK_BYTES as u64, 2 * BLOCK_BYTES).await.unwrap();
        assert_eq!(end.as_slice(), [2; BLOCK_BYTES - 5], "short at the end, and nothing behind it");
        let past = file.read(16 * BLOCK_BYTES as u64, BLOCK_BYTES).await.unwrap();
        assert!(past.as_slice().is_empty() && past.slice(0..0).as_slice().is_empty());

        let renamed = given.with_extension("deleted");
        let to = renamed.clone();
        rt::blocking(move || fs::rename(given, to)).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 3 * BLOCK_BYTES as u64 - 5, "the size of the file, not of the path");

        let other = file.clone();
        file.close().await.unwrap();
        other.write(filled(1, 3), 0).await.unwrap();
        other.close().await.unwrap();
        let reader = DirectFile::open(&renamed, Access::Read).await.unwrap();
        assert_eq!(reader.read(0, BLOCK_BYTES).await.unwrap().as_slice(), [3; BLOCK_BYTES]);
        assert!(reader.write(filled(1, 4), 0).await.is_err());
        reader.close().await.unwrap();
    })
    .unwrap();
    let entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries, [path.with_extension("deleted")], "the probe file is gone");
}

#[test]
fn a_file_on_disk_is_written_read_and_cut() {
    write_read_and_cut(disk_dir().path());
}

#[test]
fn a_file_on_tmpfs_is_written_read_and_cut() {
    if fs::metadata("/dev/shm").is_err() {
        return println!("not run: no tmpfs at /dev/shm");
    }
    write_read_and_cut(tempfile::tempdir_in("/dev/shm").unwrap().path());
}

#[test]
fn a_data_directory_that_cannot_be_written_is_one_clear_line() {
    let dir = disk_dir();
    let missing = dir.path().join("missing");
    let error = run_one(on(&missing), || async {}).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("cannot write here") && !error.contains('\n'), "{error}");
}

#[test]
fn unaligned_io_is_refused_before_the_kernel_sees_it() {
    let dir = disk_dir();
    let path = dir.path().join("file");
    run_one(on(dir.path()), move || async move {
        let file = DirectFile::open(&path, Access::CreateNew).await.unwrap();
        for (position, len) in [(1, BLOCK_BYTES), (0, 100), (512, 512), (0, 2 << 20)] {
            let file = file.clone();
            assert!(rt::spawn(async move { file.read(position, len).await.map(drop) }).join().await.is_none());
        }
        file.close().await.unwrap();
    })
    .unwrap();
}

/// Submissions to each io_uring of this process, sorted.
fn submissions() -> Vec<u64> {
    let mut all: Vec<u64> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let name = entry.file_name().into_string().ok()?;
            if target.as_os_str() != "anon_inode:[io_uring]" {
                return None;
            }
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{name}")).ok()?;
            info.lines().find_map(|line| line.strip_prefix("SqTail:")?.trim().parse().ok())
        })
        .collect();
    all.sort();
    all
}

/// Opens an empty file first, as a new log does, writes to it, and returns how many requests the quietest of the shard's
/// three rings carried: the ring for polled I/O, unless glommio uses it.
fn polled_submissions(setup: Setup, path: PathBuf) -> u64 {
    run_one(setup, move || async move {
        let file = DirectFile::open(&path, Access::CreateNew).await.unwrap();
        for block in 0..64u64 {
            file.write(filled(1, 1), block * BLOCK_BYTES as u64).await.unwrap();
        }
        file.close().await.unwrap();
        submissions()[0]
    })
    .unwrap()
}

#[test]
fn an_empty_file_opened_first_does_not_switch_the_disk_to_polling() {
    // In a process of its own, because it counts the rings of the whole process.
    if std::env::var_os("RT_FILE_ALONE").is_none() {
        let this = std::env::current_exe().unwrap();
        let name = "an_empty_file_opened_first_does_not_switch_the_disk_to_polling";
        let status =
            std::process::Command::new(this).args(["--exact", name]).env("RT_FILE_ALONE", "1").status().unwrap();
        assert!(status.success());
        return;
    }
    let dir = disk_dir();
    let guarded = polled_submissions(on(dir.path()), dir.path().join("guarded"));
    assert!(guarded <= 2, "{guarded} polled requests");
    let unguarded = polled_submissions(one_shard(), dir.path().join("unguarded"));
    println!("polled requests without the guard: {unguarded}");
}

#[test]
fn a_recording_holds_what_was_done_in_order() {
    let dir = disk_dir();
    let path = dir.path().join("file");
    let expected_path = path.clone();
    let events = run_one(on(dir.path()), move || async move {
        record::start();
        let file = DirectFile::open(&path, Access::CreateNew).await.unwrap();
        let (first, second) = (file.write(filled(1, 1), 0), file.write(filled(1, 2), 4096));
        let (first, second) = futures_lite::future::zip(first, second).await;
        first.and(second).unwrap();
        file.sync_data().await.unwrap();
        file.truncate(5000).await.unwrap();
        record::note(|| Op::Remove { path: "gone".into() }).finished();
        let events = record::stop();
        file.write(filled(1, 3), 8192).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(record::len(), 0);
        events
    })
    .unwrap();
    let started: Vec<&Op> = events
        .iter()
        .filter_map(|event| match event {
            Event::Started(_, op) => Some(op),
            Event::Finished(_) => None,
        })
        .collect();
    let Op::Open { file, .. } = started[0] else { panic!("{started:?}") };
    let write = |byte: u8, position| Op::Write { file: *file, position, bytes: vec![byte; 4096].into() };
    let expected = [
        &Op::Open { file: *file, path: expected_path, created: true },
        &write(1, 0),
        &write(2, 4096),
        &Op::Sync { file: *file },
        &Op::Truncate { file: *file, len: 5000 },
        &Op::Remove { path: "gone".into() },
    ];
    assert_eq!(started, expected);
    let at = |wanted: Event| events.iter().position(|event| *event == wanted).unwrap();
    let starts =
        |number: u32| events.iter().position(|event| matches!(event, Event::Started(n, _) if *n == number)).unwrap();
    assert!(starts(2) < at(Event::Finished(1)), "both writes were under way at once");
    assert!(at(Event::Finished(1)).max(at(Event::Finished(2))) < starts(3));
    assert_eq!(events.len(), 12, "all finished");
}
