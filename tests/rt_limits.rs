//! What happens at the limits of the process: no descriptors left, no space left. Alone in its binary, because limits are the
//! whole process's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod rt_support;

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringlog::rt;
use ringlog::rt::executor::{Setup, run_one};
use ringlog::rt::file::{Access, AlignedBuf, BLOCK_BYTES, DirectFile};
use ringlog::rt::net::{Net, NetConfig};
use rt_support::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets a soft limit until dropped.
struct Limited(Resource, Rlimit);

impl Limited {
    fn to(resource: Resource, limit: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
        Self(resource, before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

/// The lowest number that a new descriptor could get, once all numbers below it are taken.
fn fill_gaps() -> (u64, Vec<std::fs::File>) {
    let highest = || -> u64 {
        let names = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_str().unwrap().parse::<u64>().unwrap()).max().unwrap()
    };
    let mut fillers = Vec::new();
    loop {
        let filler = std::fs::File::open("/dev/null").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&filler) as u64;
        fillers.push(filler);
        if number >= highest() - 1 {
            return (number + 1, fillers);
        }
    }
}

/// One test, so that the limits of the one are not the other's.
#[test]
fn shortages_are_errors_or_waited_out() {
    connections_wait_until_there_are_descriptors_again();
    a_write_that_finds_no_room_is_an_error();
}

fn connections_wait_until_there_are_descriptors_again() {
    run_one(one_shard(), || async {
        let net = Net::start(NetConfig::default()).unwrap();
        let address = serve(&net, echo);
        // Answered, so it was accepted before the limit.
        let mut warm = on_thread(&net, move || {
            let mut stream = connect(address);
            stream.write_all(&frame(b"warm")).unwrap();
            assert_eq!(read_frame(&mut stream), b"warm");
            stream
        })
        .await;
        let connected = Arc::new(AtomicBool::new(false));
        let told = connected.clone();
        // The client's own descriptor exists before the limit.
        let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let (first_free, fillers) = fill_gaps();
        let limit = Limited::to(Resource::Nofile, first_free);
        client.connect(&address.into()).unwrap();
        let answering = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::from(client);
            stream.write_all(&frame(b"late")).unwrap();
            let answer = read_frame(&mut stream);
            told.store(true, Ordering::SeqCst);
            answer
        });
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        rt::sleep(Duration::from_millis(500)).await;
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime) - cpu;
        assert!(used.tv_sec == 0 && used.tv_nsec < 100_000_000, "it spins: {used:?}");
        assert!(!connected.load(Ordering::SeqCst), "there was a descriptor left");
        // Others are served meanwhile.
        warm.write_all(&frame(b"x")).unwrap();
        let mut reading = warm;
        let echoed = on_thread(&net, move || read_frame(&mut reading)).await;
        assert_eq!(echoed, b"x");
        drop((limit, fillers));
        let since = Instant::now();
        while !connected.load(Ordering::SeqCst) && since.elapsed() < Duration::from_secs(10) {
            rt::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(answering.join().unwrap(), b"late");
    })
    .unwrap();
}

fn a_write_that_finds_no_room_is_an_error() {
    let dir = disk_dir();
    let path = dir.path().join("file");
    run_one(Setup { data_dirs: vec![dir.path().to_owned()], ..one_shard() }, move || async move {
        let file = DirectFile::open(&path, Access::CreateNew).await.unwrap();
        // The kernel writes up to the limit and no further, as on a full disk.
        let limit = Limited::to(Resource::Fsize, 5 * BLOCK_BYTES as u64);
        let filled = |blocks: usize| {
            let mut buf = AlignedBuf::new(blocks * BLOCK_BYTES);
            buf.as_mut_slice().fill(1);
            buf
        };
        file.write(filled(4), 0).await.unwrap();
        let error = file.write(filled(4), 4 * BLOCK_BYTES as u64).await.map(drop).unwrap_err();
        drop(limit);
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        file.close().await.unwrap();
    })
    .unwrap();
}
