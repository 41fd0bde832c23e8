//! Everything a run is told: what `ringlog bench` reads from its arguments, and what `compare` and `tune` vary.
//!
//! Pure. Owns the plan and the rules between its parts. Does not own how it is carried out (`load`). Always true: a plan that
//! passed [`Plan::check`] can be run; what it leaves open has the defaults written here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::fail_if::Condition;
use super::report::WorkloadFacts;
use super::schedule::{Arrival, Rate};
use super::units;
use super::verify::STAMP_BYTES;
use super::workload::{KEY_BYTES, Workload};
use crate::client::settings::Acks;
use crate::client::{ClientError, ProducerSettings, Settings as _};
use crate::config::client_rows::{ClientRole, client_row};
use crate::protocol::batch::Codec;

/// Producer numbers have sixteen bits, one of which marks nothing yet.
const PRODUCERS_MAX: u32 = 32_768;
/// Each is a socket; beyond this one address has no ports left.
const CONNECTIONS_MAX: u32 = 28_000;
/// The largest number of partitions a topic is created with.
const PARTITIONS_MAX: u32 = 100_000;

/// What is shorter would be over before the last second of warm-up is counted and measuring can begin.
pub const DURATION_MIN: Duration = Duration::from_millis(250);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records in.
    Produce,
    /// Records out, of what lies in the topic.
    Consume,
    /// Records in and out, latency from the intended send to the consumer's hands; little load.
    EndToEnd,
    /// The same under load, with any number of producers, consumers and groups.
    Mixed,
    /// Connections that do next to nothing.
    Idle,
    /// Connections made and closed, one after the other.
    ConnectStorm,
}

impl Kind {
    /// The word on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::EndToEnd => "e2e",
            Self::Mixed => "mixed",
            Self::Idle => "idle",
            Self::ConnectStorm => "connect-storm",
        }
    }

    /// Whether records are sent.
    pub const fn produces(self) -> bool {
        matches!(self, Self::Produce | Self::EndToEnd | Self::Mixed)
    }

    /// Whether records are read while measuring.
    pub const fn consumes(self) -> bool {
        matches!(self, Self::Consume | Self::EndToEnd | Self::Mixed)
    }
}

/// Whether records are stamped and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// When acknowledgements are asked for and records are large enough.
    Auto,
    /// Always; a plan under which it is impossible is refused.
    On,
    /// Never.
    Off,
}

/// The topic of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicPlan {
    /// There already, or made and left.
    Named(String),
    /// Made for this run and deleted after it.
    Own,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is measured.
    pub kind: Kind,
    /// `bootstrap.servers`.
    pub bootstrap: String,
    /// Where to.
    pub topic: TopicPlan,
    /// Of a topic that is made.
    pub partitions: u32,
    /// Of a topic that is made; −1 leaves it to the broker.
    pub replication: i16,
    /// Of a topic that is made.
    pub topic_settings: Vec<(String, String)>,
    /// Client settings by Kafka's names, stronger than the fields below: see [`Plan::settled`].
    pub settings: Vec<(String, String)>,
    /// `all`, `1` or `0`.
    pub acks: String,
    /// `batch.size`, bytes.
    pub batch_size: u64,
    /// `linger.ms`, at microsecond grain where the client takes it.
    pub linger: Duration,
    /// `none`, or a codec with or without a level: `zstd:3`.
    pub compression: String,
    /// `max.in.flight.requests.per.connection`.
    pub in_flight: u32,
    /// `enable.idempotence`; `None` as the client decides.
    pub idempotence: Option<bool>,
    /// What is sent.
    pub workload: Workload,
    /// When.
    pub rate: Rate,
    /// When exactly.
    pub arrival: Arrival,
    /// With [`Rate::Max`]: the limit under which the largest rate is searched for.
    pub slo: Option<Condition>,
    /// How long is measured.
    pub duration: Duration,
    /// Ends earlier, after so many records.
    pub records: Option<u64>,
    /// Before measuring.
    pub warmup: Duration,
    /// Warm up longer, until throughput is level.
    pub until_steady: bool,
    /// How long records may take to be answered once sending has stopped; what then has no answer has failed.
    pub drain: Duration,
    /// How many.
    pub producers: u32,
    /// How many in each group.
    pub consumers: u32,
    /// Consumer groups; 0 reads without one.
    pub groups: u32,
    /// Of idle and storm.
    pub connections: u32,
    /// Generator threads.
    pub threads: u32,
    /// Processors the generator is pinned to; empty leaves it to the kernel.
    pub pin: Vec<usize>,
    /// In a closed loop: records each producer may have outstanding; `None` leaves it to `buffer.memory`.
    pub outstanding: Option<u64>,
    /// Batches are built once and sent again and again.
    pub prebuilt: bool,
    /// Whether records are stamped and read back.
    pub verify: Verify,
    /// Whether the host's limits are measured before and after.
    pub ceilings: bool,
    /// Where the disk is measured; should be the broker's file system.
    pub directory: PathBuf,
    /// The broker's process, where it is known.
    pub pid: Option<u32>,
    /// Of our broker's metrics, where it is known.
    pub admin: Option<String>,
    /// How often the run is repeated.
    pub repeat: u32,
    /// Names the run in overlays.
    pub label: String,
    /// To run it again.
    pub command: String,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            kind: Kind::Produce,
            bootstrap: "127.0.0.1:9092".to_owned(),
            topic: TopicPlan::Own,
            partitions: 1,
            replication: -1,
            topic_settings: Vec::new(),
            settings: Vec::new(),
            acks: "all".to_owned(),
            batch_size: 16_384,
            linger: Duration::from_millis(5),
            compression: "none".to_owned(),
            in_flight: 5,
            idempotence: None,
            workload: Workload::default(),
            rate: Rate::Max,
            arrival: Arrival::Poisson,
            slo: None,
            duration: Duration::from_secs(60),
            records: None,
            warmup: Duration::from_secs(10),
            until_steady: true,
            drain: Duration::from_secs(30),
            producers: 1,
            consumers: 1,
            groups: 0,
            connections: 100,
            threads: 1,
            pin: Vec::new(),
            outstanding: None,
            prebuilt: false,
            verify: Verify::Auto,
            ceilings: true,
            directory: PathBuf::from("."),
            pid: None,
            admin: None,
            repeat: 1,
            label: String::new(),
            command: String::new(),
        }
    }
}

impl Plan {
    /// Whether the plan can be run. The error says what to change.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}; it lies between {low} and {high}"))
            }
        };
        within("--producers", self.producers, u32::from(self.kind.produces()), PRODUCERS_MAX)?;
        within("--consumers", self.consumers, u32::from(self.kind.consumes()), PRODUCERS_MAX)?;
        within("--groups", self.groups, 0, 1000)?;
        within("--connections", self.connections, 1, CONNECTIONS_MAX)?;
        within("--partitions", self.partitions, 1, PARTITIONS_MAX)?;
        within("--threads", self.threads, 1, 256)?;
        within("--repeat", self.repeat, 1, 1000)?;
        within("--in-flight", self.in_flight, 1, 10_000)?;
        if !matches!(self.acks.as_str(), "all" | "-1" | "1" | "0") {
            return Err(format!("--acks is `{}`; there are all, 1 and 0", self.acks));
        }
        self.codec()?;
        if self.duration.is_zero() && self.records.is_none() {
            return Err("nothing would be measured: give --duration or --records".to_owned());
        }
        if self.duration < DURATION_MIN && self.records.is_none() {
            return Err(format!("--duration is {}; it is at least 250ms", units::duration(self.duration)));
        }
        if self.slo.is_some() && self.rate != Rate::Max {
            return Err("--slo searches for the largest rate; leave --rate at max".to_owned());
        }
        if let Some(slo) = &self.slo
            && slo.latency_limit().is_none()
        {
            return Err(format!("--slo is `{slo}`; write a limit on latency, such as p99<=20ms"));
        }
        if let Some((name, _)) = self.slo.as_ref().and_then(Condition::latency_limit)
            && name.starts_with("e2e.")
            && !self.kind.consumes()
        {
            return Err(format!("--slo is on {name}, and bench {} reads nothing; bench mixed does", self.kind.name()));
        }
        if self.slo.is_some() && !matches!(self.kind, Kind::Produce | Kind::Mixed) {
            return Err(format!("bench {} has no rate to search for", self.kind.name()));
        }
        if self.prebuilt && self.kind != Kind::Produce {
            return Err("--prebuilt is a mode of bench produce".to_owned());
        }
        if self.prebuilt && self.rate != Rate::Max {
            return Err("--prebuilt sends as fast as answers come; leave --rate at max".to_owned());
        }
        if self.outstanding.is_some() && self.rate != Rate::Max {
            return Err("--outstanding bounds a closed loop; an open loop waits for nobody".to_owned());
        }
        if self.outstanding == Some(0) {
            return Err("--outstanding 0 would send nothing".to_owned());
        }
        if self.verify == Verify::On
            && let Err(why) = self.verifies()
        {
            return Err(format!("--verify is not possible here: {why}"));
        }
        if matches!(self.kind, Kind::EndToEnd | Kind::Mixed) && self.workload.sizes.min() < STAMP_BYTES as u64 {
            return Err(format!("the send time takes {STAMP_BYTES} bytes of each record; give a larger --size"));
        }
        Ok(())
    }

    /// Why records cannot be verified; `None` when they can.
    fn unverifiable(&self) -> Option<String> {
        match () {
            () if !self.kind.produces() => Some(format!("bench {} sends nothing of its own", self.kind.name())),
            () if self.acks == "0" => Some("with acks=0 nothing is promised that could be broken".to_owned()),
            () if self.prebuilt => Some("the same batches are sent again and again".to_owned()),
            () if self.workload.sizes.min() < STAMP_BYTES as u64 => {
                Some(format!("records may be smaller than the {STAMP_BYTES} bytes of a stamp"))
            }
            () => None,
        }
    }

    /// Whether records are verified; the error says why not.
    pub fn verifies(&self) -> Result<(), String> {
        match self.verify {
            Verify::Off => Err("switched off".to_owned()),
            Verify::Auto | Verify::On => {
                // Wrong settings are told when they are used.
                let settled = self.settled();
                settled.as_ref().unwrap_or(self).unverifiable().map_or(Ok(()), Err)
            }
        }
    }

    /// The plan with what its client settings say in the fields they are stronger than, so that a run is what is said of it.
    /// Errors: the settings are wrong.
    pub fn settled(&self) -> Result<Self, ClientError> {
        let mut plan = self.clone();
        if !self.kind.produces() {
            return Ok(plan);
        }
        let settings = self.producer_settings()?;
        plan.acks = match settings.acks {
            Acks::None => "0",
            Acks::Leader => "1",
            Acks::All => "all",
        }
        .to_owned();
        plan.batch_size = settings.batch_size as u64;
        plan.linger = settings.linger;
        plan.in_flight = u32::try_from(settings.max_in_flight).unwrap_or(u32::MAX);
        if self.settings.iter().any(|(name, _)| name.starts_with("compression.")) {
            let level = settings.compression_level.map_or_else(String::new, |level| format!(":{level}"));
            plan.compression = format!("{}{level}", settings.compression.name());
        }
        Ok(plan)
    }

    /// The settings of its producers. Errors: a name or a value is wrong.
    pub(crate) fn producer_settings(&self) -> Result<ProducerSettings, ClientError> {
        let mut builder = ProducerSettings::builder();
        for (name, value) in self.client_words(ClientRole::Producer) {
            builder = builder.set_at(&name, value, "command line");
        }
        builder.build()
    }

    /// Whether the first bytes of records are stamped: to verify them, or to know how old they are.
    pub fn stamps(&self) -> bool {
        self.verifies().is_ok() || matches!(self.kind, Kind::EndToEnd | Kind::Mixed)
    }

    /// Seconds of warm-up, whole ones.
    pub fn warmup_seconds(&self) -> u64 {
        self.warmup.as_secs_f64().ceil() as u64
    }

    fn codec(&self) -> Result<(Codec, Option<i32>), String> {
        let (name, level) = self
            .compression
            .split_once(':')
            .map_or((self.compression.as_str(), None), |(name, level)| (name, Some(level)));
        let names = || Codec::ALL.map(Codec::name).join(", ");
        let codec = Codec::parse(name).ok_or_else(|| format!("`{name}` is no compression; there are {}", names()))?;
        let level = level
            .map(|level| level.parse::<i32>().map_err(|_| format!("`{level}` is no level of {name}")))
            .transpose()?;
        if level.is_some() && matches!(codec, Codec::None | Codec::Snappy) {
            return Err(format!("{name} has no levels"));
        }
        Ok((codec, level))
    }

    /// Kafka's words for a client of `role`, the stronger ones last. Settings the role does not know are left to the others.
    pub fn client_words(&self, role: ClientRole) -> Vec<(String, String)> {
        let mut words = vec![
            ("bootstrap.servers".to_owned(), self.bootstrap.clone()),
            ("client.id".to_owned(), "ringlog-bench".to_owned()),
        ];
        if role == ClientRole::Producer {
            words.extend(self.producer_words());
        }
        if role == ClientRole::Consumer {
            words.push(("enable.auto.commit".to_owned(), "true".to_owned()));
            words.push((
                "auto.offset.reset".to_owned(),
                if self.kind == Kind::Consume { "earliest" } else { "latest" }.to_owned(),
            ));
        }
        for (name, value) in &self.settings {
            // A name nobody knows goes to all, so that it is refused with the nearest one.
            if client_row(name).is_none_or(|row| row.roles.contains(&role)) {
                words.push((name.clone(), value.clone()));
            }
        }
        words
    }

    fn producer_words(&self) -> Vec<(String, String)> {
        let (codec, level) = self.codec().unwrap_or((Codec::None, None));
        let mut words = vec![
            ("acks", self.acks.clone()),
            ("batch.size", self.batch_size.to_string()),
            ("linger.ms", self.linger.as_millis().to_string()),
            ("compression.type", codec.name().to_owned()),
            ("max.in.flight.requests.per.connection", self.in_flight.to_string()),
        ];
        if let Some(level) = level {
            let name = match codec {
                Codec::Gzip => "compression.gzip.level",
                Codec::Lz4 => "compression.lz4.level",
                _ => "compression.zstd.level",
            };
            words.push((name, level.to_string()));
        }
        if let Some(idempotence) = self.idempotence {
            words.push(("enable.idempotence", idempotence.to_string()));
        }
        // A batch or a record larger than a request may be needs room in the request.
        let request = self.batch_size.max(self.workload.sizes.max() + KEY_BYTES as u64) + 4096;
        if request > 1_048_576 {
            words.push(("max.request.size", request.min(i32::MAX as u64).to_string()));
        }
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The client's settings as the report lists them: of the roles that take part, the strongest words only.
    pub fn client_facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let roles = [(self.kind.produces(), ClientRole::Producer), (self.kind.consumes(), ClientRole::Consumer)];
        for (_, role) in roles.into_iter().filter(|(takes_part, _)| *takes_part) {
            facts.extend(self.client_words(role).into_iter().filter(|(name, _)| name != "bootstrap.servers"));
        }
        facts
    }

    /// What the report says of the load.
    pub fn workload_facts(&self, topic: &str, partitions: u32) -> WorkloadFacts {
        let closed = self.rate == Rate::Max;
        WorkloadFacts {
            topic: topic.to_owned(),
            partitions,
            record_size: self.workload.sizes.to_string(),
            record_size_mean: self.workload.sizes.mean(),
            payload: self.workload.payload.name().to_owned(),
            compressibility: self.workload.payload.compressibility().to_owned(),
            keys: self.workload.keys.to_string(),
            loop_mode: if closed { "closed" } else { "open" }.to_owned(),
            rate: self.rate.to_string(),
            arrival: if closed { String::new() } else { self.arrival.to_string() },
            producers: if self.kind.produces() { self.producers } else { 0 },
            consumers: if self.kind.consumes() { self.consumers } else { 0 },
            groups: self.groups,
            connections: if matches!(self.kind, Kind::Idle | Kind::ConnectStorm) { self.connections } else { 0 },
            prebuilt: self.prebuilt,
            seed: self.workload.seed,
            warmup_seconds: self.warmup_seconds(),
        }
    }

    /// Bytes of keys and values the run may produce, about; without a bound of its own as many as a fast broker takes.
    pub fn bytes_at_most(&self) -> f64 {
        // Written by one broker on the fastest disk this was run on.
        const BYTES_PER_SECOND: f64 = 700e6;
        if !self.kind.produces() {
            return 0.0;
        }
        // Warm-up may last three times as long until throughput is level.
        let seconds =
            self.duration.as_secs_f64() + self.warmup.as_secs_f64() * if self.until_steady { 3.0 } else { 1.0 };
        let size = self.workload.sizes.mean();
        let in_time = match self.rate {
            Rate::Max => BYTES_PER_SECOND * seconds,
            Rate::Fixed(rate) => rate * size * seconds,
            Rate::Ramp(from, to) => from.max(to) * size * seconds,
        };
        match self.records {
            Some(records) if self.warmup.is_zero() => in_time.min(records as f64 * size),
            _ => in_time,
        }
    }

    /// The plan in a line, for the log of what happens.
    pub fn sentence(&self) -> String {
        let rate = match self.rate {
            Rate::Max => "as fast as answers come".to_owned(),
            rate => format!("{rate} records/s, {} arrivals", self.arrival),
        };
        format!(
            "bench {}: {} of {}, {rate}, {}",
            self.kind.name(),
            self.workload.sizes,
            self.workload.payload.name(),
            units::duration(self.duration)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_can_be_run_and_is_verified() {
        let plan = Plan::default();
        assert_eq!(plan.check(), Ok(()));
        assert_eq!(plan.verifies(), Ok(()));
    }

    #[test]
    fn absurd_plans_are_refused_with_what_to_change() {
        let refused = |change: fn(&mut Plan), part: &str| {
            let mut plan = Plan::default();
            change(&mut plan);
            let why = plan.check().unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        refused(|plan| plan.producers = 0, "--producers");
        refused(|plan| plan.partitions = 1_000_000, "--partitions");
        refused(|plan| plan.acks = "2".to_owned(), "--acks");
        refused(|plan| plan.compression = "brotli".to_owned(), "zstd");
        refused(|plan| plan.compression = "snappy:3".to_owned(), "no levels");
        refused(|plan| plan.duration = Duration::ZERO, "--duration");
        refused(|plan| plan.duration = Duration::from_millis(100), "at least 250ms");
        refused(|plan| (plan.rate, plan.slo) = (Rate::Fixed(1.0), "p99<1s".parse().ok()), "--rate at max");
        refused(|plan| plan.slo = "errors>1".parse().ok(), "--slo");
        refused(|plan| plan.slo = "e2e.p99<=5ms".parse().ok(), "reads nothing");
        refused(|plan| (plan.verify, plan.acks) = (Verify::On, "0".to_owned()), "acks=0");
        refused(|plan| (plan.kind, plan.workload.sizes) = (Kind::EndToEnd, "10".parse().unwrap()), "--size");
        refused(|plan| (plan.prebuilt, plan.rate) = (true, Rate::Fixed(1.0)), "--prebuilt");
    }

    #[test]
    fn what_a_run_may_write_is_known_before_it_begins() {
        let plan = Plan { rate: Rate::Fixed(1000.0), warmup: Duration::from_secs(10), ..Plan::default() };
        assert_eq!(plan.bytes_at_most(), 1000.0 * 1024.0 * 90.0);
        let counted = Plan { records: Some(500), warmup: Duration::ZERO, ..Plan::default() };
        assert_eq!(counted.bytes_at_most(), 500.0 * 1024.0);
        assert_eq!(Plan { kind: Kind::Consume, ..Plan::default() }.bytes_at_most(), 0.0);
    }

    #[test]
    fn small_records_and_acks_0_are_not_verified_and_say_why() {
        let small =
            Plan { workload: Workload { sizes: "10".parse().unwrap(), ..Workload::default() }, ..Plan::default() };
        assert!(small.verifies().unwrap_err().contains("stamp"));
        let unasked = Plan { acks: "0".to_owned(), ..Plan::default() };
        assert!(unasked.verifies().unwrap_err().contains("acks=0"));
    }

    #[test]
    fn what_is_said_of_a_plan_follows_its_client_settings() {
        let with = |settings: &[(&str, &str)]| Plan {
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Plan::default()
        };
        let unasked = with(&[("acks", "0")]);
        assert!(unasked.verifies().unwrap_err().contains("acks=0"));
        assert!(Plan { verify: Verify::On, ..unasked }.check().unwrap_err().contains("--verify"));
        let words = [
            ("request.required.acks", "1"),
            ("batch.size", "99"),
            ("linger.ms", "7"),
            ("compression.type", "zstd"),
            ("compression.zstd.level", "4"),
            ("max.in.flight.requests.per.connection", "3"),
        ];
        let plan = with(&words).settled().unwrap();
        assert_eq!((plan.acks.as_str(), plan.batch_size, plan.compression.as_str()), ("1", 99, "zstd:4"));
        assert_eq!((plan.linger, plan.in_flight), (Duration::from_millis(7), 3));
        let plain = Plan { compression: "lz4:5".to_owned(), ..Plan::default() };
        assert_eq!(plain.settled().unwrap().compression, "lz4:5");
        assert!(with(&[("acks", "2")]).settled().is_err());
    }

    #[test]
    fn settings_go_to_the_clients_that_know_them() {
        let settings = vec![("fetch.min.bytes".to_owned(), "7".to_owned()), ("batch.size".to_owned(), "99".to_owned())];
        let plan = Plan { settings, compression: "zstd:7".to_owned(), ..Plan::default() };
        let words = |role| plan.client_words(role).into_iter().collect::<BTreeMap<_, _>>();
        let producer = words(ClientRole::Producer);
        assert_eq!(producer["batch.size"], "99");
        assert_eq!((producer["compression.type"].as_str(), producer["compression.zstd.level"].as_str()), ("zstd", "7"));
        assert!(!producer.contains_key("fetch.min.bytes"));
        let consumer = words(ClientRole::Consumer);
        assert_eq!(consumer["fetch.min.bytes"], "7");
        assert!(!consumer.contains_key("batch.size"));
    }
}
