//! Shell. Files with direct I/O: aligned writes, aligned reads, flush, preallocation, close.
//!
//! Owns `DirectFile`, the aligned memory it writes from and the slices it reads into. Knows nothing of logs or batches; decides
//! nothing about retries (a failed write or sync is final for its caller). Always: positions, lengths and memory are
//! multiples of [`BLOCK_BYTES`]; one operation is at most [`IO_BYTES_MAX`]; a write that came out short is an error; no
//! unwritten memory is ever shown (glommio's `read_at` shows it past the end of a file, so only `read_at_aligned` is used).
//! On tmpfs the same calls work through the page cache. Source: glommio 0.9.0 as read and measured.

pub mod fault;
pub mod record;

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;

use glommio::GlommioError;
use glommio::io::{DmaBuffer, DmaFile, OpenOptions, ReadResult};

use super::ring::{InFlight, Keeps, Ring};
use super::task::Current;
use super::{raw, task};
use fault::{Fault, Operation};

/// Unit of direct I/O: position, length and memory are multiples of it. What the device says is ignored: glommio reads it
/// from the wrong device on machines with two.
pub const BLOCK_BYTES: usize = 4096;
/// Longest single read or write: larger ones were seen to hang in the kernel (5.15, 6.1) beyond the device's limit.
pub const IO_BYTES_MAX: usize = 1 << 20;

/// Aligned memory for writes. `!Send`.
pub struct AlignedBuf(DmaBuffer);

impl AlignedBuf {
    /// `len` is rounded up to a block. The contents are unspecified until written (memory of earlier I/O of this shard).
    /// Costs 0.2 µs from the shard's pool, page faults when that is used up.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(BLOCK_BYTES);
        Self(glommio::allocate_dma_buffer(len))
    }

    /// All of it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_bytes_mut()
    }

    /// All of it.
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A slice of what a direct read brought; clones share the memory. `!Send`: goes to sockets of this shard, or is copied to `Bytes`.
#[derive(Clone, Default)]
pub struct DiskSlice {
    bytes: ReadResult,
    memory_bytes: usize,
}

impl DiskSlice {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of all that the read brought, which stay in memory as long as any slice of them.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// A part of it, without copying. Panics when the range is not within it.
    pub fn slice(&self, range: Range<usize>) -> DiskSlice {
        let part = ReadResult::slice(&self.bytes, range.start, range.end - range.start);
        DiskSlice { bytes: part.expect("the range is within the slice"), memory_bytes: self.memory_bytes }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// reads only
    Read,
    /// both
    ReadWrite,
    /// both; must not exist yet
    CreateNew,
}

/// One file opened with O_DIRECT. Clones share it. Closing is explicit: see [`DirectFile::close`].
#[derive(Clone)]
pub struct DirectFile(Rc<Opened>);

struct Opened {
    file: DmaFile,
    recorded: record::FileId,
}

impl DirectFile {
    /// Opens. Do not unlink the path meanwhile (glommio panics then). `EINVAL`: the file system has no direct I/O.
    pub async fn open(path: &Path, access: Access) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).create_new(access == Access::CreateNew);
        let file = counted(options.dma_open(path)).await?;
        let recorded = record::opened(path, access == Access::CreateNew);
        Ok(Self(Rc::new(Opened { file, recorded })))
    }

    /// Writes all of `buf` at `position` (aligned). A short write is an error: `StorageFull`, unless the next try would say
    /// otherwise. Returns the buffer for reuse. When the future is dropped the write may or may not happen.
    pub async fn write(&self, buf: AlignedBuf, position: u64) -> io::Result<AlignedBuf> {
        assert_aligned(position, buf.as_slice().len());
        let recording = record::write(self.0.recorded, position, buf.as_slice());
        let buffer = Rc::new(buf.0);
        if let Some(striking) = fault::strike(Operation::Write, self.0.file.as_raw_fd()) {
            match striking.fault() {
                Fault::WriteThatHangs => striking.until_taken_back().await,
                Fault::WriteThatArrives => {
                    self.write_at(&buffer, position).await?;
                    return Err(fault::error());
                }
                Fault::Write | Fault::Sync | Fault::SlowSync | Fault::Full => return Err(fault::error()),
            }
        }
        let written = self.write_at(&buffer, position).await?;
        if written != buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("wrote {written} of {} bytes at {position}", buffer.len()),
            ));
        }
        recording.finished();
        Ok(AlignedBuf(Rc::into_inner(buffer).expect("glommio gave its share back with the result")))
    }

    async fn write_at(&self, buffer: &Rc<DmaBuffer>, position: u64) -> io::Result<usize> {
        let keeps = Keeps(self.0.clone(), Some(buffer.clone()));
        let file = raw::borrow(self.0.file.as_raw_fd());
        match own_ring().and_then(|ring| ring.write(file, buffer.as_bytes(), position, keeps)) {
            Some(write) => by_ring(write).await,
            None => counted(self.0.file.write_rc_at(buffer.clone(), position)).await,
        }
    }

    /// Reads up to `len` bytes at `position` (aligned, at most 1 MiB); short at the end of the file, empty past it.
    pub async fn read(&self, position: u64, len: usize) -> io::Result<DiskSlice> {
        assert_aligned(position, len);
        let bytes = counted(self.0.file.read_at_aligned(position, len)).await?;
        Ok(DiskSlice { bytes, memory_bytes: len })
    }

    /// fdatasync. After an error nothing is known of any earlier write, and a second call would lie.
    pub async fn sync_data(&self) -> io::Result<()> {
        let recording = record::sync(self.0.recorded);
        match fault::strike(Operation::Sync, self.0.file.as_raw_fd()).map(|striking| striking.fault()) {
            None => {}
            Some(Fault::SlowSync) => super::sleep(fault::SLOW_SYNC).await,
            Some(_) => return Err(fault::error()),
        }
        let keeps = Keeps(self.0.clone(), None);
        match own_ring().and_then(|ring| ring.sync_data(raw::borrow(self.0.file.as_raw_fd()), keeps)) {
            Some(sync) => drop(by_ring(sync).await?),
            None => counted(self.0.file.fdatasync()).await?,
        }
        recording.finished();
        Ok(())
    }

    /// Makes the file at least `len` bytes long with allocated blocks that read as zeros; what is there stays. Where the
    /// file system cannot allocate ahead, the file only grows.
    pub async fn preallocate(&self, len: u64) -> io::Result<()> {
        let recording = record::preallocate(self.0.recorded, len);
        if fault::strike(Operation::Allocate, self.0.file.as_raw_fd()).is_some() {
            return Err(fault::no_space());
        }
        match counted(self.0.file.pre_allocate(len, false)).await {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                if self.len().await? < len {
                    counted(self.0.file.truncate(len)).await?;
                }
            }
            result => result?,
        }
        recording.finished();
        Ok(())
    }

    /// Cuts or extends to `len`, any number of bytes.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let recording = record::truncate(self.0.recorded, len);
        counted(self.0.file.truncate(len)).await?;
        recording.finished();
        Ok(())
    }

    /// Size in bytes. Asks the descriptor, because glommio asks the path, which a rename changes.
    pub async fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(raw::borrow(self.0.file.as_raw_fd()))?;
        Ok(stat.st_size.try_into().expect("a size is not negative"))
    }

    /// Ends the last handle; must be awaited. With other clones alive it only drops this one. A handle that is dropped
    /// instead is closed on some later turn of the executor, or never if that ends first.
    pub async fn close(self) -> io::Result<()> {
        match Rc::into_inner(self.0) {
            Some(opened) => counted(opened.file.close()).await,
            None => Ok(()),
        }
    }
}

fn assert_aligned(position: u64, len: usize) {
    assert!(
        position.is_multiple_of(BLOCK_BYTES as u64) && len.is_multiple_of(BLOCK_BYTES) && len <= IO_BYTES_MAX,
        "direct I/O of {len} bytes at {position}"
    );
}

/// Runs one operation of glommio as work in flight, and makes the net task give glommio a turn to submit it.
async fn counted<T>(operation: impl Future<Output = Result<T, GlommioError<()>>>) -> io::Result<T> {
    let _work = task::work();
    task::queued_io();
    operation.await.map_err(|error| match error {
        // glommio's own conversion loses the number of the error, and with it "no space left".
        GlommioError::EnhancedIoError { source, .. } | GlommioError::IoError(source) => source,
        error => error.into(),
    })
}

fn own_ring() -> Option<Rc<Ring>> {
    Current::get().ring.clone()
}

/// Runs one operation of our own ring as work in flight.
async fn by_ring(operation: InFlight) -> io::Result<usize> {
    let _work = task::work();
    Ok(operation.await?)
}
