//! The control plane: one ordinary thread with a tokio runtime, where start-up, signals, HTTP and the metadata log live.
//!
//! Shell. Owns the life of the process: directories locked, listener bound, executors started, image published, ready;
//! then drain, flush, close, clean marker. Speaks to shards only through the mesh and never touches a partition. Always:
//! what can be refused at start is refused with one line saying what, where and what to do, before any file is changed.

pub mod checkpoints;
pub mod exposition;
pub mod flush_probe;
pub mod groups;
pub mod http;
pub mod mesh;

mod boot;
mod embedded;
mod stop;

pub use boot::{Options, run};
pub use embedded::Embedded;

/// Why the broker did not start, or did not end well: one line for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);
