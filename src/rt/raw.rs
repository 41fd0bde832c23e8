//! Shell. The only unsafe lines of `rt`: receiving into unwritten memory, many sends in one call, naming glommio's own
//! descriptors, waiting for a descriptor through glommio's ring, and asking the kernel whether io_uring is allowed.
//!
//! Owns nothing and decides nothing. Every function is safe to call; what makes it so stands at its block.
#![allow(unsafe_code)]

use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures_lite::AsyncRead;
use glommio::net::TcpStream;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Sends that leave in one system call.
pub(super) const SENDS_AT_ONCE: u32 = 32;

/// Receives at most `limit` bytes behind what `buffer` already holds, without waiting and without growing it. 0 means the
/// peer closed, provided `limit` and the spare capacity are not 0.
///
/// Unsafe by measurement: zeroing the memory first costs a tenth of receiving 64 KiB.
pub(super) fn receive(socket: impl AsFd, buffer: &mut BytesMut, limit: usize) -> rustix::io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let limit = limit.min(spare.len());
    let ((filled, _), _) = rustix::net::recv(socket, &mut spare[..limit], RecvFlags::DONTWAIT)?;
    let received = filled.len();
    // SAFETY: `recv` has written the first `received` bytes of the spare capacity, so `len + received` are initialised and
    // within the capacity.
    unsafe { buffer.set_len(buffer.len() + received) };
    Ok(received)
}

/// A descriptor that glommio owns and does not lend: one of its rings, or an open file of its own.
///
/// The caller holds the executor or the file for as long as it uses the result. A caller that did not would at worst act on
/// another descriptor of this process with the same number.
pub(super) fn borrow<'a>(descriptor: RawFd) -> BorrowedFd<'a> {
    debug_assert!(descriptor >= 0, "{descriptor} is no descriptor");
    // SAFETY: not -1, and open while its owner lives, which the caller holds.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

/// Waits until `descriptor` is readable by a POLL_ADD in glommio's main ring. Created armed; may be kept across drops of
/// its borrowers and polled again until it is ready once.
///
/// glommio offers no such call. Its `TcpStream` arms a POLL_ADD when made from any descriptor; reading from it then tries
/// `recv`, which fails with ENOTSOCK on what is no socket: that failure is the answer "readable".
pub(super) struct Readable(ManuallyDrop<TcpStream>);

impl Readable {
    /// Arms the poll. The descriptor must be none of a socket and outlive the wait.
    pub(super) fn new(descriptor: impl AsFd) -> Self {
        // SAFETY: the stream never closes the descriptor, because it is never dropped; it never reads from it either,
        // because it is no socket. Not dropping it leaks one weak count of the reactor, no memory.
        Self(ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(descriptor.as_fd().as_raw_fd()) }))
    }
}

impl Future for Readable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut *self.0).poll_read(context, &mut [0]).map(|_| ())
    }
}

/// A ring for nothing but sends that do not wait: many of them in one system call. glommio's rings are served too seldom.
pub(super) struct SendRing(IoUring);

/// What became of one send; `None`: the kernel was not asked.
pub(super) type SendResult = Option<rustix::io::Result<usize>>;

impl SendRing {
    /// A ring for [`SENDS_AT_ONCE`] sends.
    pub(super) fn new() -> io::Result<Self> {
        IoUring::new(SENDS_AT_ONCE).map(Self)
    }

    /// Sends each slice to its socket, as much as the kernel takes without waiting. `results` are in their order, those of
    /// slices beyond [`SENDS_AT_ONCE`] stay as they are. After an error the ring is of no more use.
    pub(super) fn send(&mut self, sends: &[(BorrowedFd<'_>, &[u8])], results: &mut [SendResult]) -> io::Result<()> {
        let flags = (SendFlags::DONTWAIT | SendFlags::NOSIGNAL).bits().cast_signed();
        let mut waiting = 0;
        for (number, (socket, bytes)) in (0..).zip(sends) {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), length).flags(flags);
            // SAFETY: the socket and the bytes are borrowed for as long as this function runs, and the kernel is done with
            // both when it returns: a send with DONTWAIT is finished, one way or the other, when the call that submits it
            // returns (it is neither given to a worker nor armed), and what was never submitted the kernel never reads.
            if unsafe { self.0.submission().push(&send.build().user_data(number)) }.is_err() {
                break;
            }
            waiting += 1;
        }
        while waiting > 0 {
            match self.0.submit_and_wait(waiting) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for done in self.0.completion() {
                waiting -= 1;
                let result = usize::try_from(done.result()).map_err(|_| Errno::from_raw_os_error(-done.result()));
                let number = usize::try_from(done.user_data()).expect("the number of a slice");
                results[number] = Some(result);
            }
        }
        Ok(())
    }
}

/// Tries to set up a ring of `entries`, and closes it again.
pub(super) fn try_ring(entries: u32) -> rustix::io::Result<()> {
    let mut parameters = rustix::io_uring::io_uring_params::default();
    // SAFETY: default parameters name no other descriptor (no ATTACH_WQ).
    unsafe { rustix::io_uring::io_uring_setup(entries, &mut parameters) }.map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sends_leave_together_and_each_tells_what_became_of_it() {
        let mut ring = SendRing::new().unwrap();
        let (well, mut reader) = UnixStream::pair().unwrap();
        let (full, _keeps_it_open) = UnixStream::pair().unwrap();
        let (ended, _other) = UnixStream::pair().unwrap();
        ended.shutdown(Shutdown::Write).unwrap();
        full.set_nonblocking(true).unwrap();
        while rustix::net::send(&full, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
        full.set_nonblocking(false).unwrap();

        let sends: [(BorrowedFd<'_>, &[u8]); 4] =
            [(well.as_fd(), b"one "), (full.as_fd(), b"x"), (ended.as_fd(), b"y"), (well.as_fd(), b"two")];
        let mut results = [None; 4];
        ring.send(&sends, &mut results).unwrap();
        assert_eq!(results, [Some(Ok(4)), Some(Err(Errno::AGAIN)), Some(Err(Errno::PIPE)), Some(Ok(3))]);
        let mut arrived = [0; 7];
        reader.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"one two");
    }

    #[test]
    fn sends_beyond_the_ring_are_not_tried_and_it_serves_again() {
        let mut ring = SendRing::new().unwrap();
        let (socket, mut reader) = UnixStream::pair().unwrap();
        for _ in 0..3 {
            let sends = vec![(socket.as_fd(), &b"z"[..]); SENDS_AT_ONCE as usize + 5];
            let mut results = vec![None; sends.len()];
            ring.send(&sends, &mut results).unwrap();
            let (tried, rest) = results.split_at(SENDS_AT_ONCE as usize);
            assert!(tried.iter().all(|result| *result == Some(Ok(1))) && rest.iter().all(Option::is_none));
            reader.read_exact(&mut [0; SENDS_AT_ONCE as usize]).unwrap();
        }
    }
}
