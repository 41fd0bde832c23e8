//! A Kafka client for Rust programs: producer, consumer and admin, with async and blocking faces over one pure core.
//!
//! Shell, over pure parts. Imports only `types`, `protocol` and `config`: it is linked into other people's programs and
//! speaks to any broker. Source: Kafka's Java client, whose settings and behaviour it follows.
//!
//! ```text
//! settings   words of Kafka (or librdkafka) -> typed settings        error      what can go wrong, and whether it may pass
//! io         the thread clients live on                              connection one socket: handshake, frames, deadlines
//! network    lanes to brokers, metadata, coordinators                cluster    what the brokers said of the cluster
//! admin      topics, settings, groups, offsets, records              record     records, headers, serializers
//!
//! producer    faces and the task behind them      accumulator  records -> batches per partition, memory, waking
//! partitioner which partition                     outgoing     one batch: filled, sealed, split
//! delivery    what can become of a send           sender       what goes now, retries, expiry; sequences: of one partition
//!
//! consumer    faces and the thread behind them    fetcher      positions, what to fetch, what waits to be read
//! assignor    how partitions are dealt out        membership   a member of a group: joins, beats, gives up, leaves
//! ```

mod accumulator;
pub mod admin;
pub mod assignor;
pub mod cluster;
pub(crate) mod connection;
pub mod consumer;
mod consumer_error;
mod delivery;
pub mod error;
#[cfg(test)]
pub(crate) mod fake_broker;
pub mod fetcher;
pub mod io;
pub mod membership;
pub(crate) mod network;
mod outgoing;
mod partitioner;
mod producer;
mod record;
mod sender;
mod sequences;
pub mod settings;

pub use admin::{Admin, BlockingAdmin};
pub use consumer::{Consumer, ConsumerHandle};
pub use consumer_error::ConsumerError;
pub use delivery::{DeliveryError, ProduceError, SendError};
pub use error::{CallError, ClientError};
pub use io::Io;
pub use partitioner::{Partitioner, Partitioning, Partitions, murmur2, partition_for_key};
pub use producer::{DeliveredBatch, Delivery, Producer, ProducerMetrics, ProducerOptions, TypedProducer};
pub use record::{
    Deserializer, Header, Headers, Payload, Plain, ProducerInterceptor, ProducerRecord, Record, RecordMetadata,
    RecordRef, SerdeError, Serializer, TimestampKind,
};
pub use settings::{AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings, Settings};
