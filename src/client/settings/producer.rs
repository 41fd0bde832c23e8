//! Settings of a producer, and the rules between them.
//!
//! Pure. Owns [`ProducerSettings`]. Always: idempotence holds what it needs; a delivery takes at least linger and one request.
//! Source: Kafka 4.4's `ProducerConfig`; KIP-679.

use std::time::Duration;

use super::builder::{Desk, Settings};
use super::{ClientSettings, bound};
use crate::config::client_rows::ClientRole;
use crate::protocol::batch::Codec;

/// More of them make an idempotent producer's duplicates unrecognizable: the broker keeps five batches per producer.
const IN_FLIGHT_MAX_IDEMPOTENT: usize = 5;

/// `acks`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The broker does not answer.
    None,
    /// The leader has it.
    Leader,
    /// All in-sync replicas have it.
    All,
}

impl Acks {
    /// As it stands in a Produce request.
    pub const fn wire(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// `partitioner.class`, or librdkafka's `partitioner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionerKind {
    /// Null: murmur2 of the key, sticky without one.
    Default,
    /// Each partition in turn.
    RoundRobin,
}

/// Settings of a producer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `acks`
    pub acks: Acks,
    /// `batch.size`, bytes; 0 sends each record alone.
    pub batch_size: usize,
    /// `linger.ms`
    pub linger: Duration,
    /// `buffer.memory`, bytes.
    pub buffer_memory: u64,
    /// `max.block.ms`
    pub max_block: Duration,
    /// `max.request.size`, bytes.
    pub max_request_size: usize,
    /// `max.in.flight.requests.per.connection`; at most 5 with idempotence.
    pub max_in_flight: usize,
    /// `enable.idempotence`; false where other settings contradict it and it was not asked for by name.
    pub enable_idempotence: bool,
    /// `retries`
    pub retries: u32,
    /// `delivery.timeout.ms`; at least linger + request time-out.
    pub delivery_timeout: Duration,
    /// `compression.type`
    pub compression: Codec,
    /// The level of that codec, where one was given.
    pub compression_level: Option<i32>,
    /// `partitioner.class`
    pub partitioner: PartitionerKind,
    /// `partitioner.ignore.keys`
    pub partitioner_ignore_keys: bool,
    /// `partitioner.adaptive.partitioning.enable`
    pub partitioner_adaptive: bool,
    /// `partitioner.availability.timeout.ms`; `None` is 0: never.
    pub partitioner_availability_timeout: Option<Duration>,
}

impl ProducerSettings {
    pub(crate) fn bounded(mut self) -> Self {
        bound([&mut self.linger, &mut self.max_block, &mut self.delivery_timeout]);
        Self { client: self.client.bounded(), ..self }
    }
}

impl Settings for ProducerSettings {
    const ROLE: ClientRole = ClientRole::Producer;

    fn assemble(desk: &mut Desk) -> Self {
        let client = desk.client(Self::ROLE);
        let linger = desk.millis("linger.ms");
        let least = linger + client.request_timeout;
        let mut delivery_timeout = desk.millis("delivery.timeout.ms");
        if delivery_timeout < least {
            if desk.given("delivery.timeout.ms").is_some() {
                let message = "delivery.timeout.ms is less than linger.ms + request.timeout.ms".to_owned();
                desk.wrong("delivery.timeout.ms", message, "raise it, or lower one of the others");
            }
            delivery_timeout = least;
        }
        let compression = Codec::parse(desk.text("compression.type")).expect("the row lists the codecs");
        let enable_idempotence = desk.idempotence();
        let availability = desk.millis("partitioner.availability.timeout.ms");
        Self {
            acks: match desk.text("acks") {
                "0" => Acks::None,
                "1" => Acks::Leader,
                _ => Acks::All,
            },
            batch_size: desk.size("batch.size"),
            linger,
            buffer_memory: desk.size("buffer.memory") as u64,
            max_block: desk.millis("max.block.ms"),
            max_request_size: desk.size("max.request.size"),
            max_in_flight: desk.size("max.in.flight.requests.per.connection"),
            enable_idempotence,
            retries: desk.not_negative("retries").unwrap_or(0),
            delivery_timeout,
            compression,
            compression_level: desk.compression_level(compression),
            partitioner: desk.partitioner(),
            partitioner_ignore_keys: desk.flag("partitioner.ignore.keys"),
            partitioner_adaptive: desk.flag("partitioner.adaptive.partitioning.enable"),
            partitioner_availability_timeout: (!availability.is_zero()).then_some(availability),
            client,
        }
    }
}

impl Desk {
    /// The rules of KIP-679: idempotence unless something given contradicts it; an error when it was asked for as well, and when the
    /// number of requests in flight is all that contradicts it.
    fn idempotence(&mut self) -> bool {
        let asked = self.given("enable.idempotence").is_some();
        if !self.flag("enable.idempotence") {
            return false;
        }
        let mut against = Vec::new();
        if !matches!(self.text("acks"), "all" | "-1") {
            against.push(("acks", "acks=all"));
        }
        if self.number("retries") == 0 {
            against.push(("retries", "retries above 0"));
        }
        let in_flight = "max.in.flight.requests.per.connection";
        if self.size(in_flight) > IN_FLIGHT_MAX_IDEMPOTENT {
            // Whoever wants more throughput does not say by it that records may be lost or repeated (KAFKA-17927).
            if !asked && against.is_empty() {
                let message = format!("{in_flight}={}: idempotence needs at most 5", self.text(in_flight));
                self.wrong(in_flight, message, "lower it, or write enable.idempotence=false");
            }
            against.push((in_flight, "at most 5 requests in flight"));
        }
        for (name, needed) in against.iter().filter(|_| asked) {
            let message = format!("enable.idempotence=true needs {needed}, but {name}={}", self.text(name));
            self.wrong(name, message, "change one of the two");
        }
        against.is_empty()
    }

    fn partitioner(&mut self) -> PartitionerKind {
        let name = self.text("partitioner.class").to_owned();
        match name.rsplit('.').next().unwrap_or_default() {
            // murmur2_random is what librdkafka calls Java's.
            "" | "null" | "murmur2_random" | "DefaultPartitioner" | "UniformStickyPartitioner" => {
                PartitionerKind::Default
            }
            "RoundRobinPartitioner" => PartitionerKind::RoundRobin,
            _ => {
                let message = format!("partitioner {name} is not known here");
                let help = "leave it out for murmur2 of the key as in Java, or write RoundRobinPartitioner; others are code: \
                            give the producer a partitioner of your own";
                self.wrong("partitioner.class", message, help);
                PartitionerKind::Default
            }
        }
    }

    fn compression_level(&mut self, codec: Codec) -> Option<i32> {
        let name = match codec {
            Codec::Gzip => "compression.gzip.level",
            Codec::Zstd => "compression.zstd.level",
            Codec::None | Codec::Snappy | Codec::Lz4 => return None,
        };
        match (self.given(name), self.given("compression.level")) {
            (None, Some(_)) => {
                let level = self.int("compression.level");
                if codec == Codec::Gzip && level > 9 {
                    let message = format!("compression.level={level}: gzip knows 1 to 9");
                    self.wrong("compression.level", message, "lower it, or use zstd");
                }
                (level > 0).then_some(level)
            }
            (Some(_), _) => Some(self.int(name)).filter(|level| codec != Codec::Gzip || *level != -1),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(words: &[(&str, &str)]) -> Result<ProducerSettings, String> {
        let builder = ProducerSettings::builder().set("bootstrap.servers", "b:1");
        let built = words.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).build();
        built.map_err(|error| error.to_string())
    }

    #[test]
    fn idempotence_gives_way_unless_it_was_asked_for() {
        assert!(!producer(&[("acks", "1")]).unwrap().enable_idempotence);
        assert!(!producer(&[("acks", "1"), ("max.in.flight", "6")]).unwrap().enable_idempotence);
        let refused = producer(&[("acks", "1"), ("enable.idempotence", "true")]).unwrap_err();
        assert!(refused.contains("enable.idempotence=true needs acks=all, but acks=1"), "{refused}");
    }

    #[test]
    fn more_requests_in_flight_do_not_switch_idempotence_off_by_themselves() {
        let refused = producer(&[("max.in.flight", "6")]).unwrap_err();
        assert!(refused.contains("max.in.flight.requests.per.connection=6"), "{refused}");
        let without = producer(&[("max.in.flight", "6"), ("enable.idempotence", "false")]).unwrap();
        assert_eq!((without.enable_idempotence, without.max_in_flight), (false, 6));
    }

    #[test]
    fn delivery_takes_at_least_linger_and_one_request() {
        assert_eq!(producer(&[("linger.ms", "200000")]).unwrap().delivery_timeout, Duration::from_secs(230));
        assert!(producer(&[("delivery.timeout.ms", "1000")]).is_err());
    }

    #[test]
    fn levels_belong_to_their_codec() {
        let level = |words: &[(&str, &str)]| producer(words).map(|settings| settings.compression_level);
        assert_eq!(level(&[("compression.type", "gzip"), ("compression.gzip.level", "6")]), Ok(Some(6)));
        assert_eq!(level(&[("compression.type", "zstd"), ("compression.level", "9")]), Ok(Some(9)));
        assert_eq!(level(&[("compression.type", "snappy"), ("compression.level", "9")]), Ok(None));
        assert!(level(&[("compression.type", "gzip"), ("compression.level", "12")]).is_err());
    }
}
