//! What a run and whoever started it tell each other meanwhile: how far it is, and that it should end.
//!
//! Pure. Owns the two words. Does not own what is shown, nor who listens for Ctrl-C. Always: a run that was asked to end ends as
//! soon as it can cleanly, with what it has measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::report::Percentiles;

/// Asks a run to end early; clones ask the same run.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the run as soon as it can be ended cleanly.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens meanwhile, for whoever shows it.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A step begins.
    Step(String),
    /// A second has passed.
    Second {
        /// Seconds since the run began.
        t: u64,
        /// Whether it counted.
        measured: bool,
        /// How much of the measuring is done, 0 to 1; 0 while warming up.
        done: f64,
        /// Records acknowledged, or read.
        records: u64,
        /// Their bytes.
        bytes: u64,
        /// Records that failed.
        errors: u64,
        /// Response (or end-to-end) time in it.
        latency: Option<Percentiles>,
    },
    /// So many of so many records were read back.
    Verified(u64, u64),
}
