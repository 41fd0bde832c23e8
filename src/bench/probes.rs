//! A few seconds of measuring for a checkup: writes, flushes, wake-ups, a byte over loopback, the clock.
//!
//! Shell: one file of its own in the given directory, removed before it returns; one loopback connection. Owns the measurements.
//! Does not own what follows from them (`checkup`). Always true: a measurement that cannot be made is `None`, and the others
//! go on; each ends within its share of the time given.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::ceilings::{Pages, Scratch};
use super::checkup::{Measured, Times};
use super::{host, process};

/// What a small append writes.
const BLOCK_BYTES: usize = 4096;
/// Written over and over within this size.
const FILE_BYTES: u64 = 8 << 20;
/// Reserved without being written; more than is written into it in the time there is.
const RESERVED_BYTES: u64 = 256 << 20;
/// Rounds at most: a device that answers at once would fill memory with its times.
const ROUNDS_MAX: usize = 200_000;
/// The sleep whose end is awaited.
const NAP: Duration = Duration::from_millis(1);
/// Readings of the clock in a stretch, and how many stretches.
const READINGS: u32 = 500;
const STRETCHES: u32 = 40;

/// Measures for about `time` in all; the flush tail gets the largest part.
pub fn measure(directory: &Path, time: Duration) -> Measured {
    let (began, before) = (Instant::now(), process::machine());
    let (write, flush, growing_flush, preallocated_flush) = disk(directory, time).unwrap_or_default();
    let wake_up = wake_up(time / 8);
    let round_trip = round_trip(time / 8).ok().flatten();
    let clock_ns = clock();
    let after = process::machine();
    let steal = before.zip(after).map_or(0.0, |(before, after)| host::steal(&before, &after));
    Measured {
        seconds: began.elapsed().as_secs_f64(),
        steal,
        write,
        flush,
        growing_flush,
        preallocated_flush,
        wake_up,
        round_trip,
        clock_ns,
    }
}

/// Why direct I/O cannot be used in a directory; empty when it can.
pub fn direct_refused(directory: &Path) -> String {
    let tried = || -> std::io::Result<()> {
        let (_scratch, file) = scratch(directory, OFlags::DIRECT)?;
        let pages = Pages::new(BLOCK_BYTES)?;
        rustix::io::pwrite(&file, pages.bytes(), 0)?;
        Ok(())
    };
    tried().map_or_else(|error| error.to_string(), |()| String::new())
}

fn scratch(directory: &Path, extra: OFlags) -> std::io::Result<(Scratch, File)> {
    let name = format!(".ringlog-probe-{}-{:08x}", std::process::id(), fastrand::u32(..));
    let scratch = Scratch::at(directory.join(name));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | extra;
    let file = File::from(rustix::fs::open(scratch.path(), flags, Mode::RUSR | Mode::WUSR)?);
    Ok((scratch, file))
}

/// Direct writes; and with fdatasync: into blocks written before, into a file that grows, into blocks that are only reserved.
type Disk = (Option<Times>, Option<Times>, Option<Times>, Option<Times>);

fn disk(directory: &Path, time: Duration) -> std::io::Result<Disk> {
    let (_scratch, file) = scratch(directory, OFlags::DIRECT).or_else(|_| scratch(directory, OFlags::empty()))?;
    let pages = Pages::new(BLOCK_BYTES)?;
    let block = pages.bytes();
    let large = Pages::new(1 << 20)?;
    let mut offset = 0;
    while offset < FILE_BYTES {
        rustix::io::pwrite(&file, large.bytes(), offset)?;
        offset += large.bytes().len() as u64;
    }
    rustix::fs::fdatasync(&file)?;
    let place = |round: usize| (round * BLOCK_BYTES) as u64 % FILE_BYTES;
    let write = again(time / 8, |round| Ok(rustix::io::pwrite(&file, block, place(round)).map(drop)?))?;
    let flush = again(time * 3 / 8, |round| {
        rustix::io::pwrite(&file, block, place(round))?;
        Ok(rustix::fs::fdatasync(&file)?)
    })?;
    let growing = again(time / 8, |round| {
        rustix::io::pwrite(&file, block, FILE_BYTES + (round * BLOCK_BYTES) as u64)?;
        Ok(rustix::fs::fdatasync(&file)?)
    })?;
    let mut preallocated = Vec::new();
    let (_other, reserved) = scratch(directory, OFlags::DIRECT).or_else(|_| scratch(directory, OFlags::empty()))?;
    // Where the file system cannot reserve, there is nothing to be said of it.
    if rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::empty(), 0, RESERVED_BYTES).is_ok() {
        preallocated = again(time / 8, |round| {
            rustix::io::pwrite(&reserved, block, (round * BLOCK_BYTES) as u64 % RESERVED_BYTES)?;
            Ok(rustix::fs::fdatasync(&reserved)?)
        })?;
    }
    Ok((Times::of(write), Times::of(flush), Times::of(growing), Times::of(preallocated)))
}

/// Microseconds of each round, for so long, and at least five rounds of them.
fn again(time: Duration, mut round: impl FnMut(usize) -> std::io::Result<()>) -> std::io::Result<Vec<f64>> {
    let (mut times, began) = (Vec::new(), Instant::now());
    while times.len() < ROUNDS_MAX && (times.len() < 5 || began.elapsed() < time) {
        let one = Instant::now();
        round(times.len())?;
        times.push(one.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

#[expect(clippy::disallowed_methods, reason = "how late a sleep ends is what is measured, on a command's own thread")]
fn wake_up(time: Duration) -> Option<Times> {
    let (mut late, began) = (Vec::new(), Instant::now());
    while began.elapsed() < time {
        let one = Instant::now();
        std::thread::sleep(NAP);
        late.push((one.elapsed().as_secs_f64() - NAP.as_secs_f64()).max(0.0) * 1e6);
    }
    Times::of(late)
}

fn round_trip(time: Duration) -> std::io::Result<Option<Times>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::Builder::new().name("probe-echo".to_owned()).spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte)? == 1 {
            stream.write_all(&byte)?;
        }
        Ok(())
    })?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut byte = [7];
    let times = again(time, |_| {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)
    });
    drop(stream);
    // It ends with the connection.
    _ = echo.join();
    Ok(Times::of(times?))
}

/// Nanoseconds of one reading: of the quickest stretch, since a thread that is stopped meanwhile is not the clock's fault.
fn clock() -> f64 {
    let stretch = || {
        let began = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
    };
    (0..STRETCHES).map(|_| stretch()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkup_measures_everything_in_its_time_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let measured = measure(directory.path(), Duration::from_millis(200));
        assert!(measured.flush.is_some_and(|flush| flush.count >= 5 && flush.p50 <= flush.max));
        assert!(
            measured.write.is_some()
                && measured.growing_flush.is_some()
                && measured.wake_up.is_some()
                && measured.round_trip.is_some()
        );
        assert!(measured.clock_ns > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_refuses_direct_writes_and_measures_no_disk() {
        assert!(!direct_refused(Path::new("/nowhere/at/all")).is_empty());
        assert_eq!(measure(Path::new("/nowhere/at/all"), Duration::from_millis(20)).flush, None);
    }
}
