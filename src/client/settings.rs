//! The settings of clients as types: what was given in Kafka's words, checked, with the rules between keys.
//!
//! Pure. Owns the typed settings of all clients here, of each in `producer`, `consumer` and below; `builder` makes them out of words.
//! Does not own the table of keys (`config::client_rows`) nor files: the caller reads those. Always: built settings passed every
//! check of every row; durations that mean "for ever" are `None`. Source: Kafka 4.4's `ProducerConfig`, `ConsumerConfig` (the rules
//! between keys) and their validation order.

mod address;
mod builder;
mod consumer;
mod producer;

use std::time::Duration;

pub use self::address::HostPort;
pub use self::builder::{Builder, Desk, Settings};
pub use self::consumer::{ConsumerSettings, IsolationLevel, OffsetReset};
pub use self::producer::{Acks, PartitionerKind, ProducerSettings};
use crate::config::client_rows::ClientRole;
use crate::config::{Problem, Severity};

/// For ever, as far as a clock can be added to.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Settings put together by hand, and times that programs name, may be [`Duration::MAX`]: they mean the longest there is.
pub(crate) fn bound<const COUNT: usize>(times: [&mut Duration; COUNT]) {
    times.into_iter().for_each(|time| *time = (*time).min(LONGEST));
}

/// What all clients need.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// `bootstrap.servers`, each with its port; never empty.
    pub bootstrap_servers: Vec<HostPort>,
    /// `client.id`; empty when none was given.
    pub client_id: String,
    /// `client.rack`
    pub client_rack: Option<String>,
    /// `request.timeout.ms`
    pub request_timeout: Duration,
    /// `reconnect.backoff.ms`
    pub reconnect_backoff: Duration,
    /// `reconnect.backoff.max.ms`
    pub reconnect_backoff_max: Duration,
    /// `retry.backoff.ms`
    pub retry_backoff: Duration,
    /// `retry.backoff.max.ms`
    pub retry_backoff_max: Duration,
    /// `socket.connection.setup.timeout.ms`
    pub connection_setup_timeout: Duration,
    /// `socket.connection.setup.timeout.max.ms`
    pub connection_setup_timeout_max: Duration,
    /// `connections.max.idle.ms`; `None` is −1: connections are kept.
    pub connections_max_idle: Option<Duration>,
    /// `send.buffer.bytes`; `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<u32>,
    /// `receive.buffer.bytes`; `None` leaves it to the kernel.
    pub receive_buffer_bytes: Option<u32>,
    /// `receive.message.max.bytes`
    pub receive_message_max_bytes: u32,
    /// `metadata.max.age.ms`
    pub metadata_max_age: Duration,
    /// `metadata.max.idle.ms`; a producer's, for others the default.
    pub metadata_max_idle: Duration,
    /// `metadata.recovery.strategy` is `rebootstrap`.
    pub rebootstrap: bool,
    /// `metadata.recovery.rebootstrap.trigger.ms`
    pub rebootstrap_trigger: Duration,
    /// `allow.auto.create.topics`; true for a producer, as in Kafka, and false for an admin client.
    pub allow_auto_create_topics: bool,
    /// What was accepted without effect, for people.
    pub notes: Vec<Problem>,
}

/// Settings of an admin client.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `default.api.timeout.ms`
    pub default_api_timeout: Duration,
    /// `retries`
    pub retries: u32,
}

impl Settings for AdminSettings {
    const ROLE: ClientRole = ClientRole::Admin;

    fn assemble(desk: &mut Desk) -> Self {
        Self {
            client: desk.client(Self::ROLE),
            default_api_timeout: desk.millis("default.api.timeout.ms"),
            retries: desk.not_negative("retries").unwrap_or(0),
        }
    }
}

impl ClientSettings {
    pub(crate) fn bounded(mut self) -> Self {
        bound([
            &mut self.request_timeout,
            &mut self.reconnect_backoff,
            &mut self.reconnect_backoff_max,
            &mut self.retry_backoff,
            &mut self.retry_backoff_max,
            &mut self.connection_setup_timeout,
            &mut self.connection_setup_timeout_max,
            &mut self.metadata_max_age,
            &mut self.metadata_max_idle,
            &mut self.rebootstrap_trigger,
        ]);
        self.connections_max_idle = self.connections_max_idle.map(|time| time.min(LONGEST));
        self
    }
}

impl Desk {
    pub(super) fn client(&mut self, role: ClientRole) -> ClientSettings {
        let mut servers = Vec::new();
        let listed = self.text("bootstrap.servers").to_owned();
        for server in listed.split(',').map(str::trim).filter(|server| !server.is_empty()) {
            match HostPort::parse(server) {
                Ok(server) => servers.push(server),
                Err(message) => self.wrong(
                    "bootstrap.servers",
                    format!("bootstrap.servers: {message}"),
                    "as in bootstrap.servers=broker1:9092,broker2:9092",
                ),
            }
        }
        if servers.is_empty() && listed.trim().is_empty() {
            let message = "bootstrap.servers is missing".to_owned();
            self.wrong("bootstrap.servers", message, "as in bootstrap.servers=127.0.0.1:9092");
        }
        let idle = if role == ClientRole::Admin && self.given("connections.max.idle.ms").is_none() {
            300_000
        } else {
            self.number("connections.max.idle.ms")
        };
        ClientSettings {
            bootstrap_servers: servers,
            client_id: self.text("client.id").to_owned(),
            client_rack: self.optional("client.rack"),
            request_timeout: self.millis("request.timeout.ms"),
            reconnect_backoff: self.millis("reconnect.backoff.ms"),
            reconnect_backoff_max: self.millis("reconnect.backoff.max.ms").max(self.millis("reconnect.backoff.ms")),
            retry_backoff: self.millis("retry.backoff.ms"),
            retry_backoff_max: self.millis("retry.backoff.max.ms").max(self.millis("retry.backoff.ms")),
            connection_setup_timeout: self.millis("socket.connection.setup.timeout.ms"),
            connection_setup_timeout_max: self.millis("socket.connection.setup.timeout.max.ms"),
            connections_max_idle: u64::try_from(idle).ok().map(Duration::from_millis),
            send_buffer_bytes: self.not_negative("send.buffer.bytes"),
            receive_buffer_bytes: self.not_negative("receive.buffer.bytes"),
            receive_message_max_bytes: self.not_negative("receive.message.max.bytes").unwrap_or(u32::MAX),
            metadata_max_age: self.millis("metadata.max.age.ms"),
            metadata_max_idle: self.millis("metadata.max.idle.ms"),
            rebootstrap: self.text("metadata.recovery.strategy") == "rebootstrap",
            rebootstrap_trigger: self.millis("metadata.recovery.rebootstrap.trigger.ms"),
            allow_auto_create_topics: match role {
                ClientRole::Producer => true,
                ClientRole::Consumer => self.flag("allow.auto.create.topics"),
                ClientRole::Admin => false,
            },
            notes: self.problems.iter().filter(|problem| problem.severity != Severity::Error).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::assignor::Assignor;
    use crate::protocol::batch::Codec;

    #[test]
    fn defaults_are_kafkas() {
        let settings = ProducerSettings::builder().set("bootstrap.servers", "b:1").build().unwrap();
        assert_eq!(
            (settings.batch_size, settings.linger, settings.acks),
            (16_384, Duration::from_millis(5), Acks::All)
        );
        assert!(settings.enable_idempotence && settings.partitioner_adaptive);
        assert_eq!(settings.delivery_timeout, Duration::from_secs(120));
        assert_eq!(settings.client.connections_max_idle, Some(Duration::from_secs(540)));
        let consumer = ConsumerSettings::builder().set("bootstrap.servers", "b").build().unwrap();
        assert_eq!(consumer.assignors, [Assignor::Range, Assignor::CooperativeSticky]);
        assert_eq!((consumer.auto_offset_reset, consumer.enable_auto_commit), (OffsetReset::Latest, false));
        let admin = AdminSettings::builder().set("bootstrap.servers", "b").build().unwrap();
        assert_eq!(admin.client.connections_max_idle, Some(Duration::from_secs(300)));
        assert!(!admin.client.allow_auto_create_topics);
    }

    #[test]
    fn a_properties_file_of_either_client_is_read() {
        let text = b"# mine\nmetadata.broker.list=a:1,[::1]:2\nqueue.buffering.max.ms = 50\nkey.serializer=x.Y\ncompression.codec=zstd\n";
        let settings = ProducerSettings::from_properties(text, "client.properties").unwrap();
        let servers: Vec<_> = settings.client.bootstrap_servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["a:1", "[::1]:2"]);
        assert_eq!((settings.linger.as_millis(), settings.compression), (50, Codec::Zstd));
        assert_eq!(settings.client.notes.len(), 1);
        assert_eq!(settings.client.notes[0].place, "client.properties:4");
        let refused = ProducerSettings::from_properties(b"linger.ms=5\nlingr.ms=5\n", "f").unwrap_err().to_string();
        assert_eq!(
            refused,
            "f:2: unknown setting lingr.ms (did you mean linger.ms?)\n\
             settings: bootstrap.servers is missing (as in bootstrap.servers=127.0.0.1:9092)"
        );
    }
}
