//! The binary: hands the arguments to [`ringlog::cli`].

/// Requests come and go at the size of their batches: an allocator that keeps freed memory at hand spares each of them its
/// page faults (the system's gives large blocks back to the kernel at once).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    ringlog::cli::main()
}
