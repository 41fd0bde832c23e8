//! A broker within another program, for that program's tests: started where its settings say, stopped when told.
//!
//! Shell. Owns the broker's control thread, on which `boot` runs as in a process of its own, save that it catches no signals
//! and says nothing on standard error. Always: when [`Embedded::stop`] has returned, or the value was dropped, every log is
//! closed and every thread of the broker has ended.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

use super::boot::{Life, serve};
use super::{Failure, Options};
use crate::config::BrokerSettings;

/// A running broker; ends with the value.
#[derive(Debug)]
pub struct Embedded {
    kafka: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Embedded {
    /// Starts it and waits until clients are served. Give `listeners=PLAINTEXT://127.0.0.1:0` for a free port and
    /// `admin.listener=off`. Errors: what kept it from starting.
    pub fn start(settings: BrokerSettings) -> Result<Self, Failure> {
        let (ready, is_ready) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let life = Life::Guest { ready, stop: stopped };
        let thread = thread::Builder::new()
            .name("broker".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| Failure(format!("the control thread did not start: {error}")))?;
                runtime.block_on(serve(Arc::new(settings), &[], &Options::default(), Instant::now(), life))
            })
            .map_err(|error| Failure(format!("the control thread did not start: {error}")))?;
        let mut broker = Self { kafka: SocketAddr::from(([0, 0, 0, 0], 0)), stop: Some(stop), thread: Some(thread) };
        match is_ready.recv() {
            Ok(kafka) => {
                broker.kafka = kafka;
                Ok(broker)
            }
            // It ended without a word to us: its thread tells why.
            Err(_) => Err(broker.end().err().unwrap_or_else(|| Failure("the broker ended at once".to_owned()))),
        }
    }

    /// Where Kafka's protocol is spoken; for `bootstrap.servers`.
    pub fn address(&self) -> SocketAddr {
        self.kafka
    }

    /// Finishes what was accepted, flushes and closes every log. Errors: what was left undone.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(Failure("the broker's control thread ended by a panic".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(failure) = self.end() {
            tracing::warn!("an embedded broker did not end well: {failure}");
        }
    }
}
