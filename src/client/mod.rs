//! A Kafka client for Rust programs: producer, consumer and admin, with async and blocking faces over one pure core.
//!
//! Shell, over pure parts. Imports only `types`, `protocol` and `config`: it is linked into other people's programs and
//! speaks to any broker. Source: Kafka's Java client, whose settings and behaviour it follows.

mod delivery;
mod partitioner;
mod record;

pub use delivery::{ProduceError, SendError};
pub use partitioner::{Partitioner, Partitioning, Partitions, murmur2, partition_for_key};
pub use record::{
    Deserializer, Header, Headers, Payload, Plain, ProducerInterceptor, ProducerRecord, Record, RecordMetadata,
    RecordRef, SerdeError, Serializer, TimestampKind,
};
