//! The run's clock: microseconds since it began, on the clock all processes of a host share.
//!
//! Shell: asks the kernel. Always true: it never goes back, and a stamp written by one process of this host can be compared
//! with the clock of another (end-to-end latencies below a millisecond are possible, negative ones are not).

use rustix::time::{ClockId, clock_gettime};

use super::schedule::Micros;

/// Nanoseconds of the host's monotonic clock.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Counts from the moment it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start_ns: u64,
}

impl Clock {
    /// The run begins now.
    pub fn start() -> Self {
        Self { start_ns: monotonic_ns() }
    }

    /// Microseconds since then.
    pub fn now(self) -> Micros {
        (monotonic_ns() - self.start_ns) / 1000
    }

    /// As nanoseconds of the host's clock, for stamps.
    pub fn host_ns(self, at: Micros) -> u64 {
        self.start_ns + at * 1000
    }

    /// The other way round; before the run began is 0.
    pub fn at_host_ns(self, host_ns: u64) -> Micros {
        host_ns.saturating_sub(self.start_ns) / 1000
    }
}
