//! The load generator: workloads, schedules, histograms, verification, what the broker paid, reports.
//!
//! Shell, over pure parts. Speaks to any Kafka broker through `client`; knows nothing of the server's rooms.

pub mod fail_if;
pub mod figures;
pub mod html;
pub mod omb;
pub mod plots;
pub mod recorder;
pub mod report;
pub mod schedule;
pub mod search;
pub mod stats;
pub mod steady;
pub mod svg;
pub mod units;
pub mod verify;
pub mod workload;
