//! Direct files (stub).
use std::io;
use std::path::Path;
use std::rc::Rc;
/// Unit of direct I/O: position, length and memory are multiples of it.
pub const BLOCK_BYTES: usize = 4096;
/// Aligned memory for writes. `!Send`.
pub struct AlignedBuf {}
impl AlignedBuf {
    /// Zeroed? No: contents are unspecified until written; `len` is rounded up to a block.
    pub fn new(len: usize) -> Self { let _ = len; todo!() }
    /// All of it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] { todo!() }
    /// All of it.
    pub fn as_slice(&self) -> &[u8] { todo!() }
}
/// A slice of what a direct read brought; clones share the memory. `!Send`: goes to sockets of this shard, or is copied to `Bytes`.
#[derive(Clone)]
pub struct DiskSlice {}
impl DiskSlice {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] { todo!() }
    /// A part of it, without copying.
    pub fn slice(&self, range: std::ops::Range<usize>) -> DiskSlice { let _ = range; todo!() }
}
/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access { /** reads only */ Read, /** both */ ReadWrite, /** both; must not exist yet */ CreateNew }
/// One file opened with O_DIRECT. Closing is explicit.
#[derive(Clone)]
pub struct DirectFile { _p: Rc<()> }
impl DirectFile {
    /// Opens.
    pub async fn open(path: &Path, access: Access) -> io::Result<Self> { let _ = (path, access); todo!() }
    /// Writes all of `buf` at `position` (both aligned). A short write is an error. Returns the buffer for reuse.
    pub async fn write(&self, buf: AlignedBuf, position: u64) -> io::Result<AlignedBuf> { let _ = (buf, position); todo!() }
    /// Reads up to `len` bytes at `position` (aligned, at most 1 MiB); short at the end of the file.
    pub async fn read(&self, position: u64, len: usize) -> io::Result<DiskSlice> { let _ = (position, len); todo!() }
    /// fdatasync.
    pub async fn sync_data(&self) -> io::Result<()> { todo!() }
    /// Makes the file at least `len` bytes long with allocated blocks (fallocate, size changes).
    pub async fn preallocate(&self, len: u64) -> io::Result<()> { let _ = len; todo!() }
    /// Cuts or extends to `len`.
    pub async fn truncate(&self, len: u64) -> io::Result<()> { let _ = len; todo!() }
    /// Size in bytes.
    pub async fn len(&self) -> io::Result<u64> { todo!() }
    /// Ends the last handle; must be awaited.
    pub async fn close(self) -> io::Result<()> { todo!() }
}
