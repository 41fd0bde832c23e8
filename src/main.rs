//! The binary: hands the arguments to [`ringlog::cli`].

use std::ffi::{c_int, c_long};

/// Requests come and go at the size of their batches: an allocator that keeps freed memory at hand spares each of them its
/// page faults (the system's gives large blocks back to the kernel at once).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 2 and 3: how long freed memory stays at hand, in ms. Its bindings have no name for it.
const PURGE_DELAY: c_int = 15;

/// A cache that was given up with its topic is taken again by the next one. After mimalloc's one second its memory would be new
/// memory, whose faults cost more than the requests it holds (`tuning/knobs.md`, tail cache).
const PURGE_DELAY_MS: c_long = 600_000;

fn main() -> std::process::ExitCode {
    #[allow(unsafe_code, reason = "an option of the allocator is set by a call to C")]
    // SAFETY: the call is not thread-safe, and there is no other thread yet; it stores one number of one option, unless
    // the environment (MIMALLOC_PURGE_DELAY) has set it.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    }
    ringlog::cli::main()
}
