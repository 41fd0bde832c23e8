//! Ctrl-C and SIGTERM: a command that reads or sends ends in order, and at the second signal at once.
//!
//! Shell: listens on a client's thread. Owns the signals and what becomes of input that was read when one came. Always: what was read
//! is sent before the producer is closed, as far as [`CLOSE`] allows; the exit code is 130. Source: shells; Java's shutdown hook in
//! the console producer.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::{EXIT_INTERRUPTED, problems};
use crate::client::{ConsumerHandle, Io, Producer};

/// How long what was read may take to be handed over, and then to be delivered.
const CLOSE: Duration = Duration::from_secs(10);

/// Ctrl-C and SIGTERM, heard from when this was made.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn on(io: &Io) -> io::Result<Self> {
        io.block_on(|| async {
            Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn exit() -> ! {
    std::process::exit(i32::from(EXIT_INTERRUPTED))
}

/// The first signal ends the poll under way and sets the flag, the second one ends the process.
pub(super) fn end_polls(io: &Io, consumer: ConsumerHandle) -> io::Result<Arc<AtomicBool>> {
    let mut signals = Signals::on(io)?;
    let flag = Arc::new(AtomicBool::new(false));
    let came = Arc::clone(&flag);
    io.spawn(move || async move {
        signals.next().await;
        came.store(true, Ordering::Relaxed);
        consumer.wake();
        signals.next().await;
        exit();
    });
    Ok(flag)
}

/// Input on its way to a producer, from one read to the next.
pub(super) struct Intake {
    /// Held while anything that was read is not sent.
    busy: Arc<Mutex<()>>,
    came: Arc<AtomicBool>,
}

impl Intake {
    /// From now on the first signal lets what was read be sent, closes the producer and ends the process, the second one ends it at
    /// once. Errors: the system lets nobody listen.
    pub(super) fn of(io: &Io, producer: &Producer) -> io::Result<Self> {
        let mut signals = Signals::on(io)?;
        let intake = Self { busy: Arc::default(), came: Arc::default() };
        let (busy, came, producer) = (Arc::clone(&intake.busy), Arc::clone(&intake.came), producer.clone());
        io.spawn(move || async move {
            signals.next().await;
            came.store(true, Ordering::Relaxed);
            let ends = async {
                // Held to the end: nothing is read any more.
                let _busy = timeout(CLOSE, busy.lock()).await;
                let failed = producer.metrics().records_failed;
                producer.close(CLOSE).await;
                tell_failed(producer.metrics().records_failed - failed);
            };
            tokio::select! {
                () = ends => {}
                () = signals.next() => {}
            }
            exit();
        });
        Ok(intake)
    }

    /// Waits until `input` can be read. What is read must be sent before the guard is dropped; until then no signal ends the process.
    pub(super) fn next(&self, input: impl AsFd) -> io::Result<MutexGuard<'_, ()>> {
        loop {
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                // After a signal this waits for the end of the process.
                Ok(_) => return Ok(self.busy.blocking_lock()),
            }
        }
    }

    /// Whether the process is about to end by a signal.
    pub(super) fn interrupted(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}

fn tell_failed(records: u64) {
    if records > 0 {
        let what = format!("interrupted: {records} records were not delivered");
        // Nobody is left to tell when this fails.
        _ = problems::write_error(&mut io::stderr().lock(), problems::paint_stderr(), &what);
    }
}
