//! The load generator: workloads, schedules, histograms, verification, what the broker paid, reports.
//!
//! Shell, over pure parts. Speaks to any Kafka broker through `client`; knows nothing of the server's rooms.
