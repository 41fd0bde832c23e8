//! Waiting for an intended send time with the precision of the kernel's high-resolution timers.
//!
//! Shell: a timerfd within tokio's epoll. Tokio's own timers count whole milliseconds, which would be the largest part of
//! what an open loop measures. Always true: it wakes at or after the asked time, by some fifty microseconds on a quiet host.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::clock::Clock;
use super::schedule::Micros;

/// One waiter's timer.
pub(crate) struct Timer {
    clock: Clock,
    descriptor: AsyncFd<OwnedFd>,
}

impl Timer {
    /// On the run's clock. Errors: no descriptor is left, or no runtime with I/O runs here.
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe: it must not outlive the descriptor, which is owned here"
        )]
        let descriptor = AsyncFd::try_with_interest(descriptor, Interest::READABLE)?;
        Ok(Self { clock, descriptor })
    }

    /// Until `at`.
    pub(crate) async fn until(&mut self, at: Micros) -> io::Result<()> {
        if self.clock.now() >= at {
            return Ok(());
        }
        let at_ns = self.clock.host_ns(at);
        let value =
            Timespec { tv_sec: (at_ns / 1_000_000_000).cast_signed(), tv_nsec: (at_ns % 1_000_000_000).cast_signed() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            let mut ready = self.descriptor.readable().await?;
            let read = ready.try_io(|descriptor| {
                let mut expirations = [0; 8];
                Ok(rustix::io::read(descriptor, &mut expirations)?)
            });
            match read {
                Ok(outcome) => return outcome.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_wakes_early_and_does_not_wait_for_the_past() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::start();
            let mut timer = Timer::new(clock).unwrap();
            for step in 1..=20 {
                let at = step * 700;
                timer.until(at).await.unwrap();
                assert!(clock.now() >= at);
            }
            timer.until(0).await.unwrap();
        });
    }
}
