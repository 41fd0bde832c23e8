//! Ringlog: a Kafka-compatible log broker for Linux. The rooms, in layer order; each says at its top what it owns.
//!
//! A room may import only rooms above it in this list (`rt`, `metrics` stand beside `protocol`); `tests/tidy.rs` holds that.

/// One file per command.
pub mod cli;
/// The table of settings.
pub mod config;
/// The control plane: boot, signals, HTTP, checkpoints; an ordinary thread.
pub mod control;
/// The metadata log and the image of the cluster replayed from it.
pub mod controller;
/// Groups and their committed offsets.
pub mod coordinator;
/// From what clients saw, what a broker did wrong.
pub mod history;
/// One partition on one disk.
pub mod log;
/// Counters and histograms per shard, merged on scrape.
pub mod metrics;
/// Kafka's wire: APIs, messages, record batches.
pub mod protocol;
/// One partition in the cluster's eyes: role, high watermark, waiters.
pub mod replica;
/// The only door to glommio: executors, sockets, direct files, hops between cores.
pub mod rt;
/// Kafka's face: connections and handlers.
pub mod server;
/// Everything one core owns.
pub mod shard;
/// The words of the field as types.
pub mod types;
