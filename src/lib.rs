//! Ringlog: a Kafka-compatible log broker for Linux. The rooms, in layer order; each says at its top what it owns.
//!
//! A room may import only rooms above it in this list (`rt`, `metrics` stand beside `protocol`); `tests/tidy.rs` holds that.

/// The words of the field as types.
pub mod types;
/// Kafka's wire: APIs, messages, record batches.
pub mod protocol;
/// The only door to glommio: executors, sockets, direct files, hops between cores.
pub mod rt;
/// Counters and histograms per shard, merged on scrape.
pub mod metrics;
/// From what clients saw, what a broker did wrong.
pub mod history;
/// One partition on one disk.
pub mod log;
/// The tables of settings, what they mean, what was given.
pub mod config;
/// One partition in the cluster's eyes: role, high watermark, waiters.
pub mod replica;
/// Groups and their committed offsets.
pub mod coordinator;
/// The metadata log and the image of the cluster replayed from it.
pub mod controller;
/// Everything one core owns.
pub mod shard;
/// Kafka's face: connections and handlers.
pub mod server;
/// The control plane: boot, signals, HTTP, checkpoints; an ordinary thread.
pub mod control;
/// A Kafka client for Rust programs: producer, consumer, admin.
pub mod client;
/// The load generator: workloads, histograms, verification, reports.
pub mod bench;
/// Two targets, one load, paired runs.
pub mod compare;
/// Which batch.size and linger.ms for this load.
pub mod tune;
/// One file per command.
pub mod cli;
