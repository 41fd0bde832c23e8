//! `ringlog serve`: a broker until it is told to stop.
//!
//! Shell. Owns the process's log; the broker itself is `control`'s. Log lines are written by a thread of their own through
//! a bounded queue that drops when full: a terminal that does not read must not stop a shard.

use std::io;

use anyhow::Context as _;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::Failure;
use super::serve_args::{LogFormat, ServeArgs};
use crate::config::load;
use crate::control;

/// Lines that may wait for the writing thread.
const LINES_WAITING_MAX: usize = 4096;

/// Runs the broker until SIGTERM or SIGINT.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let (settings, notes) = load(&args.sources()).map_err(Failure::Config)?;
    let _writer = start_log(&args)?;
    let options = control::Options { ready_file: args.ready_file };
    Ok(control::run(settings, &notes, &options)?)
}

/// Sends log lines to standard error. Whoever drops the guard waits for the last ones.
fn start_log(args: &ServeArgs) -> Result<WorkerGuard, Failure> {
    let filter = EnvFilter::try_new(args.log_filter()).context("--log-level")?;
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING_MAX).lossy(true).finish(io::stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match args.log_format {
        LogFormat::Text => lines.with_ansi(super::problems::paint_stderr()).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(guard)
}
