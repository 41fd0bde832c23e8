//! Kafka's wire (stub).
pub mod batch;
