//! A Kafka client for Rust programs: producer, consumer and admin, with async and blocking faces over one pure core.
//!
//! Shell, over pure parts. Imports only `types`, `protocol` and `config`: it is linked into other people's programs and
//! speaks to any broker. Source: Kafka's Java client, whose settings and behaviour it follows.
