//! What this host can do at most, measured in the same minute as the run.
//!
//! Shell: writes a file of its own in the given directory (and removes it), opens a loopback connection. Owns the four
//! measurements. Does not own the verdict's threshold's use. Always true: each takes about a second at most; what cannot be
//! measured (no direct I/O, no room, no right) is 0 and said so, and never fails the run.
//! Source: "ceilings before and after, drift above 15 % voids the run"; rpk's and fio's sequential write recipes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::report::{CeilingFacts, Ceilings};
use super::stats::median;

/// Each measurement goes on for so long.
const TIME: Duration = Duration::from_millis(700);
/// Direct writes: what our broker and Redpanda's recipe write with, large enough to be limited by the device.
const WRITE_BYTES: usize = 256 << 10;
/// The file is written over and over within this size, into extents that exist after the first round.
const FILE_BYTES: u64 = 64 << 20;
/// What a small durable append writes.
const BLOCK_BYTES: usize = 4096;
/// Pieces over loopback.
const PIECE_BYTES: usize = 64 << 10;

/// Measures all four.
pub fn measure(directory: &Path) -> Ceilings {
    let (disk_write_bytes_per_second, flush_us) = disk(directory).unwrap_or_default();
    Ceilings {
        disk_write_bytes_per_second,
        flush_us,
        loopback_bytes_per_second: loopback().unwrap_or_default(),
        crc32c_bytes_per_second: crc(),
    }
}

/// Both measurements as the report has them.
pub fn facts(before: Ceilings, after: Ceilings, directory: &Path) -> CeilingFacts {
    let shown = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    CeilingFacts { before, after, drift: before.drift(&after), directory: shown.display().to_string() }
}

/// A file that is gone when it is dropped.
pub(super) struct Scratch(std::path::PathBuf);

impl Scratch {
    /// A file that may be made there.
    pub(super) fn at(path: std::path::PathBuf) -> Self {
        Self(path)
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may be gone already; nothing depends on it.
        _ = std::fs::remove_file(&self.0);
    }
}

/// Bytes per second of direct sequential writes, and the median microseconds of a small write with fdatasync.
fn disk(directory: &Path) -> std::io::Result<(f64, f64)> {
    let path = directory.join(format!(".ringlog-bench-ceiling-{}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let scratch = Scratch(path);
    // Some file systems (tmpfs of old kernels) know no direct I/O: then there is no such limit to stand beside.
    let file = File::from(rustix::fs::open(&scratch.0, flags | OFlags::DIRECT, Mode::RUSR | Mode::WUSR)?);
    let pages = Pages::new(WRITE_BYTES)?;
    let whole = pages.bytes();
    // Two rounds: the first allocates, the second is measured, as a preallocated log would be written.
    let mut offset = 0;
    while offset < FILE_BYTES {
        rustix::io::pwrite(&file, whole, offset)?;
        offset += WRITE_BYTES as u64;
    }
    rustix::fs::fdatasync(&file)?;
    let mut rates = Vec::new();
    for _ in 0..3 {
        let (began, mut written, mut offset) = (Instant::now(), 0u64, 0);
        while began.elapsed() < TIME / 3 {
            written += rustix::io::pwrite(&file, whole, offset)? as u64;
            offset = (offset + WRITE_BYTES as u64) % FILE_BYTES;
        }
        rates.push(written as f64 / began.elapsed().as_secs_f64());
    }
    let (mut flushes, began) = (Vec::new(), Instant::now());
    while began.elapsed() < TIME / 2 || flushes.len() < 5 {
        let one = Instant::now();
        rustix::io::pwrite(&file, &whole[..BLOCK_BYTES], (flushes.len() * BLOCK_BYTES) as u64 % FILE_BYTES)?;
        rustix::fs::fdatasync(file.as_fd())?;
        flushes.push(one.elapsed().as_secs_f64() * 1e6);
        if began.elapsed() > TIME * 4 {
            break;
        }
    }
    // The fastest of three: what the device can do, less what else happened.
    Ok((rates.into_iter().fold(0.0, f64::max), median(&flushes).unwrap_or_default()))
}

/// Memory that begins at a page, as direct I/O wants it.
pub(super) struct Pages {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Pages {
    pub(super) fn new(bytes: usize) -> std::io::Result<Self> {
        let mut memory = vec![0x5a; bytes + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        if start > BLOCK_BYTES {
            return Err(std::io::Error::other("memory cannot be aligned"));
        }
        fastrand::Rng::with_seed(1).fill(&mut memory);
        Ok(Self { memory, start, bytes })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

/// Bytes per second from one thread to another over loopback.
fn loopback() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sender = thread::Builder::new().name("bench-loopback".to_owned()).spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(TIME * 4))?;
        let piece = vec![0x5a; PIECE_BYTES];
        let began = Instant::now();
        while began.elapsed() < TIME {
            stream.write_all(&piece)?;
        }
        Ok(())
    })?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(TIME * 4))?;
    let mut piece = vec![0; PIECE_BYTES];
    let (began, mut received) = (Instant::now(), 0);
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            count => received += count,
        }
    }
    let rate = received as f64 / began.elapsed().as_secs_f64();
    sender.join().map_err(|_| std::io::Error::other("the sender failed"))??;
    Ok(rate)
}

/// Bytes per second of CRC-32C on one core, in pieces of 64 KiB that stay in the cache.
fn crc() -> f64 {
    let mut piece = vec![0u8; PIECE_BYTES];
    fastrand::Rng::with_seed(2).fill(&mut piece);
    let mut best = 0.0f64;
    for _ in 0..5 {
        let (began, mut bytes, mut sum) = (Instant::now(), 0usize, 0u32);
        while began.elapsed() < Duration::from_millis(20) {
            sum = crc32c::crc32c_append(sum, &piece);
            bytes += piece.len();
        }
        std::hint::black_box(sum);
        best = best.max(bytes as f64 / began.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_of_this_host_is_positive_and_the_scratch_file_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let ceilings = measure(directory.path());
        assert!(ceilings.loopback_bytes_per_second > 1e6 && ceilings.crc32c_bytes_per_second > 1e6);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_measures_nothing_and_fails_nothing() {
        assert_eq!(measure(Path::new("/nowhere/at/all")).disk_write_bytes_per_second, 0.0);
    }
}
