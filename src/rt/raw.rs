//! Shell. The unsafe lines of `rt` besides its `ring`: receiving into unwritten memory, when a socket counts as readable,
//! naming glommio's own descriptors, waiting for a descriptor through glommio's ring, asking the kernel whether io_uring is
//! allowed, and interrupting a thread.
//!
//! Owns nothing and decides nothing. Always: every function is safe to call, and what makes it so stands at its block.
#![allow(unsafe_code)]

use std::future::Future;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures_lite::AsyncRead;
use glommio::net::TcpStream;
use rustix::net::RecvFlags;

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

/// Lets the kernel call `socket` readable only when so many bytes are there, or its peer has ended: SO_RCVLOWAT. What is there
/// already is announced anew.
pub(super) fn set_receive_low_water(socket: impl AsFd, bytes: usize) -> std::io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option's value is an integer that lives during the call, and its length is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
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

/// Ends the system call that thread `id` of this process sleeps in, with EINTR. Nothing else happens to it: the signal, SIGURG,
/// is the one that means nothing to anybody. An id that is no thread's any more is nobody's harm.
pub(super) fn interrupt(id: i32) {
    extern "C" fn nothing(_: libc::c_int) {}
    static HANDLED: Once = Once::new();
    // An ignored signal would not end a sleep, so there must be a handler; one that is there already will do.
    HANDLED.call_once(|| {
        // SAFETY: all zeroes are a valid `sigaction`; the handler does nothing, so it may run anywhere at any time; calls it
        // interrupts are restarted where they can be.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGURG, std::ptr::null(), &raw mut action);
            if matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut());
            }
        }
    });
    // SAFETY: takes three integers; a thread of this process or none gets a signal that has a handler.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGURG) };
}

/// Tries to set up a ring of `entries`, and closes it again.
pub(super) fn try_ring(entries: u32) -> rustix::io::Result<()> {
    let mut parameters = rustix::io_uring::io_uring_params::default();
    // SAFETY: default parameters name no other descriptor (no ATTACH_WQ).
    unsafe { rustix::io_uring::io_uring_setup(entries, &mut parameters) }.map(drop)
}
