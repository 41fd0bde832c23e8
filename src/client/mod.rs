//! A Kafka client for Rust programs: producer, consumer and admin, with async and blocking faces over one pure core.
//!
//! Shell, over pure parts. Imports only `types`, `protocol` and `config`: it is linked into other people's programs and
//! speaks to any broker. Source: Kafka's Java client, whose settings and behaviour it follows.
//!
//! ```text
//! settings   words of Kafka (or librdkafka) -> typed settings        error      what can go wrong, and whether it may pass
//! io         the thread clients live on                              connection one socket: handshake, frames, deadlines
//! network    lanes to brokers, metadata, coordinators                cluster    what the brokers said of the cluster
//! admin      topics, settings, groups, offsets, records
//! ```

pub mod admin;
pub mod cluster;
pub(crate) mod connection;
pub mod error;
#[cfg(test)]
pub(crate) mod fake_broker;
pub mod io;
pub(crate) mod network;
pub mod settings;

pub use admin::{Admin, BlockingAdmin};
pub use error::{CallError, ClientError};
pub use io::Io;
pub use settings::{AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings, Settings};
