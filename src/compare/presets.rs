//! Which workloads are compared, and for how long.
//!
//! Pure. Owns the catalogue W1–W22 as far as one node goes, and the three presets cut from it. Does not own the addresses
//! (`run` fills them in), nor how a soak is cut (`soak`). Always true: both targets get the same plan; its acknowledgement class is asked for by name; what
//! the catalogue has and a preset leaves out is said with the reason.
//! Source: the benchmark matrix of the method rules; the floor model `c(B) = 9,000 / B + 1` cycles per byte.

use std::time::Duration;

use super::metric::Metric;
use super::order::Stage;
use crate::bench::plan::{Kind, Plan, Verify};
use crate::bench::schedule::{Arrival, Rate};
use crate::bench::units;
use crate::bench::workload::{Keys, Payload, Sizes, Workload};

/// The workload that warms brokers up and whose maximum shares of a rate are taken of.
pub const BASE: &str = "W2";
/// The soak, which is there when its length was given.
const SOAK: &str = "W18";
/// What a producer in a closed loop may have under way: enough to keep sixteen partitions busy, and not the 32 MiB of
/// `buffer.memory`, whose draining would take longer than a turn and whose queue would be all of the latency.
const UNDER_WAY_BYTES: u64 = 2 << 20;
/// Batches of a noisy neighbour: large enough that one connection fills a partition, built beforehand, so that the noise is the
/// broker's work and hardly the client's.
const NOISE_BATCH_BYTES: u64 = 65_536;
/// How many of them it has under way.
const NOISE_IN_FLIGHT: u32 = 5;
/// Cycles a request and a byte cost at least, and the clock that turns them into time, by the floor model.
const FLOOR_CYCLES_PER_REQUEST: f64 = 9000.0;
const FLOOR_CYCLES_PER_BYTE: f64 = 1.0;
const FLOOR_HERTZ: f64 = 3e9;

/// How much is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// What matters most, in about seven minutes.
    Quick,
    /// The catalogue without its longest parts: about fifty minutes.
    Standard,
    /// All of it, with twice the pairs and longer runs: hours.
    Full,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Standard, Self::Full];

    /// On the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// From its name.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == text)
            .ok_or_else(|| format!("`{text}` is no preset; there are quick, standard and full"))
    }

    /// How long and how often, where the command line does not say.
    pub const fn pacing(self) -> Pacing {
        let (pairs, duration, warmup, warm) = match self {
            Self::Quick => (5, 2, 0, 10),
            Self::Standard => (5, 4, 1, 60),
            Self::Full => (10, 15, 3, 90),
        };
        Pacing {
            pairs,
            duration: Duration::from_secs(duration),
            warmup: Duration::from_secs(warmup),
            warm: Duration::from_secs(warm),
            soak: None,
        }
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Pairs of each cell.
    pub pairs: u32,
    /// Measured in each turn.
    pub duration: Duration,
    /// Before measuring in each turn: connections and producers find their pace. The brokers are warm already.
    pub warmup: Duration,
    /// Load on each broker before anything is measured, beside one round of every workload.
    pub warm: Duration,
    /// How long a soak is, where one is asked for.
    pub soak: Option<Duration>,
}

/// Which promise an acknowledgement is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Survives a killed broker: `written` here, the page cache in Kafka.
    Written,
    /// Survives power loss: `flushed` here, `flush.messages=1` in Kafka.
    Flushed,
}

impl Class {
    /// The topic's settings that ask for it, in the words of `software`.
    pub fn topic_settings(self, software: &str) -> Vec<(String, String)> {
        let setting = match (self, software) {
            (Self::Written, "ringlog") => Some(("ringlog.ack.durability", "written")),
            (Self::Flushed, "ringlog") => Some(("ringlog.ack.durability", "flushed")),
            (Self::Flushed, _) => Some(("flush.messages", "1")),
            // The page cache is what Kafka does when nothing is said.
            (Self::Written, _) => None,
        };
        setting.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect()
    }
}

/// What is done in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The plan is run.
    Load,
    /// A topic is filled, then read as fast as it comes.
    CatchUp {
        /// How much.
        bytes: u64,
        /// With the page cache of its files emptied before.
        cold: bool,
    },
    /// The plan is run beside a topic of so many partitions that nobody uses.
    Idle {
        /// How many.
        partitions: u32,
    },
    /// The broker is stopped and started.
    ColdStart {
        /// Of the topic it finds.
        partitions: u32,
    },
    /// The broker is killed under the plan's load and started again.
    Kill,
    /// The plan is run alone, then beside [`noise`].
    Neighbour,
    /// The plan is run in stretches, on a topic whose old segments are deleted meanwhile.
    Soak,
}

impl Shape {
    /// When it is measured. What restarts its broker is only possible where the comparison started it.
    pub const fn stage(self) -> Stage {
        match self {
            Self::Load | Self::CatchUp { .. } | Self::Idle { .. } | Self::Neighbour => Stage::Rounds,
            Self::Soak => Stage::Soak,
            Self::ColdStart { .. } | Self::Kill => Stage::Restarts,
        }
    }
}

/// One workload, or one step of it.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Unique.
    pub key: String,
    /// Of the catalogue.
    pub workload: &'static str,
    /// What it is.
    pub name: String,
    /// What is done, in a sentence.
    pub load: String,
    /// Which promise.
    pub class: Class,
    /// What is done.
    pub shape: Shape,
    /// Offered as a share of the slower target's maximum under [`BASE`].
    pub share: Option<f64>,
    /// Everything but addresses.
    pub plan: Plan,
    /// What is compared, the headline first.
    pub metrics: Vec<Metric>,
    /// How often.
    pub pairs: u32,
}

/// A plan as an open loop: so many records per second, however many are under way.
pub fn at_rate(plan: Plan, rate: f64) -> Plan {
    Plan { rate: Rate::Fixed(rate), outstanding: None, ..plan }
}

/// The noisy neighbour of a quiet load: one partition of a topic of its own, filled as fast as the broker answers, until it is
/// told to stop.
pub fn noise(quiet: &Plan) -> Plan {
    Plan {
        kind: Kind::Produce,
        partitions: 1,
        producers: 1,
        rate: Rate::Max,
        outstanding: None,
        prebuilt: true,
        batch_size: NOISE_BATCH_BYTES,
        in_flight: NOISE_IN_FLIGHT,
        // It begins before the quiet load and is ended after it.
        duration: 2 * (quiet.warmup + quiet.duration) + Duration::from_secs(60),
        warmup: Duration::ZERO,
        verify: Verify::Off,
        ..quiet.clone()
    }
}

/// The least a produce request of so many bytes can cost, processor milliseconds per megabyte, by the floor model.
pub fn floor_ms_per_mb(bytes_per_request: f64) -> f64 {
    (FLOOR_CYCLES_PER_REQUEST / bytes_per_request + FLOOR_CYCLES_PER_BYTE) * 1e6 / FLOOR_HERTZ * 1e3
}

/// Parts of the catalogue that are in none of the presets, or not in this one, and why.
pub fn not_covered(preset: Preset, pacing: &Pacing) -> Vec<String> {
    let in_others = match preset {
        Preset::Quick => Some(
            "W3, W5, W6, W7, W9, W11, W12, W14, W15, W16, W19 and W20: in --preset standard; W13 and W21 in --preset full.",
        ),
        Preset::Standard => Some(
            "W5 with 10,000 partitions, W12 with 1,000 producers, W13 (cold catch-up), W17 with 1,000 partitions, W21 (noisy neighbour): in --preset full.",
        ),
        Preset::Full => None,
    };
    let soak = "W18 (soak with deletion): --soak 2h adds one pair of it, of any length, to any preset.";
    let all = [
        in_others,
        pacing.soak.is_none().then_some(soak),
        Some("W20's transactional half: this client sends no transactions yet; idempotence is covered."),
        Some("W22 (sweep of batch.size and linger.ms): that is what `ringlog tune` does."),
        Some(
            "Anything with replication: one node has one replica; no claim about clusters follows from these numbers.",
        ),
    ];
    all.into_iter().flatten().map(str::to_owned).collect()
}

/// The cells of a preset, in the order of the report.
pub fn cells(preset: Preset, pacing: &Pacing, seed: u64) -> Vec<Cell> {
    let mut catalogue = Catalogue { pacing: *pacing, seed, cells: Vec::new() };
    let wide = preset != Preset::Quick;
    let full = preset == Preset::Full;
    catalogue.throughput(wide);
    catalogue.requests(wide);
    if wide {
        catalogue.partitions(full);
        catalogue.acks_and_codecs(full);
    }
    catalogue.flushes(wide);
    catalogue.open_loop(if wide { &[0.1, 0.25, 0.5, 0.75, 0.9] } else { &[0.25, 0.75] });
    if wide {
        catalogue.fans(full);
        catalogue.reading(full);
    }
    if full {
        catalogue.neighbour();
    }
    if let Some(length) = pacing.soak {
        catalogue.soak(length);
    }
    catalogue.restarts(wide, full);
    catalogue.cells
}

/// Only the workloads named, by catalogue number or key. Errors: a name that is none.
pub fn only(cells: Vec<Cell>, names: &[String]) -> Result<Vec<Cell>, String> {
    if names.is_empty() {
        return Ok(cells);
    }
    let is = |cell: &Cell, name: &str| cell.workload.eq_ignore_ascii_case(name) || cell.key.eq_ignore_ascii_case(name);
    if let Some(stranger) = names.iter().find(|name| !cells.iter().any(|cell| is(cell, name))) {
        if stranger.eq_ignore_ascii_case(SOAK) {
            return Err(format!("{SOAK} takes as long as it is told to: give --soak 2h, or another time"));
        }
        let keys: Vec<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
        return Err(format!("`{stranger}` is not in this preset; there are {}", keys.join(", ")));
    }
    Ok(cells.into_iter().filter(|cell| names.iter().any(|name| is(cell, name))).collect())
}

/// About how long it takes.
pub fn estimate(cells: &[Cell], pacing: &Pacing, layouts: usize) -> Duration {
    // A turn also makes its topic, connects, syncs what was written, deletes the topic and waits until its files are gone: 1 to 2 s
    // beside Kafka on two busy cores.
    const AROUND: f64 = 1.6;
    const RESTART: f64 = 5.0;
    // A neighbour that is noisy for a second or so before the quiet load begins, and more to delete.
    const NOISE: f64 = 4.0;
    let turn = |cell: &Cell| {
        let load = cell.plan.duration.as_secs_f64() + cell.plan.warmup_seconds() as f64;
        match cell.shape {
            Shape::ColdStart { .. } => RESTART,
            Shape::CatchUp { bytes, .. } => bytes as f64 / 150e6 + AROUND,
            Shape::Neighbour => 2.0 * (load + AROUND) + NOISE,
            _ => load + AROUND,
        }
    };
    let rounds = |cell: &Cell| f64::from(cell.pairs + u32::from(cell.shape.stage() == Stage::Rounds));
    let turns: f64 = cells.iter().map(|cell| 2.0 * rounds(cell) * turn(cell)).sum();
    let around = 2.0 * pacing.warm.as_secs_f64() + 12.0 + 2.5 * f64::from(pacing.pairs + 1);
    Duration::from_secs_f64((turns + around) * layouts as f64)
}

struct Catalogue {
    pacing: Pacing,
    seed: u64,
    cells: Vec<Cell>,
}

impl Catalogue {
    fn plan(&self) -> Plan {
        Plan {
            partitions: 16,
            producers: 4,
            outstanding: Some(UNDER_WAY_BYTES / 1024),
            duration: self.pacing.duration,
            warmup: self.pacing.warmup,
            until_steady: false,
            // Measured once a round, not around each of some hundred turns.
            ceilings: false,
            // Read back in the round that warms up; see `run`.
            verify: Verify::Off,
            workload: Workload { seed: self.seed, ..Workload::default() },
            ..Plan::default()
        }
    }

    fn add(&mut self, key: &str, name: &str, load: &str, plan: Plan, metrics: &[Metric]) -> &mut Cell {
        let workload = [
            "W10", "W11", "W12", "W13", "W14", "W15", "W16", "W17", SOAK, "W19", "W20", "W21", "W1", "W2", "W3", "W4",
            "W5", "W6", "W7", "W8", "W9",
        ];
        let workload = workload.into_iter().find(|workload| key.starts_with(workload)).unwrap_or("cost");
        self.cells.push(Cell {
            key: key.to_owned(),
            workload,
            name: name.to_owned(),
            load: load.to_owned(),
            class: Class::Written,
            shape: Shape::Load,
            share: None,
            plan,
            metrics: metrics.to_vec(),
            pairs: self.pacing.pairs,
        });
        self.cells.last_mut().expect("one was pushed")
    }

    fn throughput(&mut self, wide: bool) {
        let mut small = self.plan();
        small.workload.sizes = Sizes::Fixed(100);
        small.outstanding = Some(UNDER_WAY_BYTES / 100);
        let load = "100 B records, 4 producers with up to 2 MiB under way each, 16 partitions, batch.size 16 KiB, linger.ms 5, acks=all, as fast as answers come";
        self.add("W1", "small records", load, small, &[Metric::Records, Metric::CpuPerThousand, Metric::P99]);
        let load = "1 KiB records, 4 producers with up to 2 MiB under way each, 16 partitions, Kafka's default settings, acks=all, as fast as answers come";
        let plan = self.plan();
        self.add(
            "W2",
            "1 KiB records",
            load,
            plan,
            &[Metric::Bytes, Metric::CpuPerMb, Metric::SystemCpuPerMb, Metric::P99, Metric::WriteAmplification],
        );
        if wide {
            for (key, bytes) in [("W3-64K", 65_536), ("W3-1M", 1_000_000)] {
                let mut plan = self.plan();
                plan.workload.sizes = Sizes::Fixed(bytes);
                plan.batch_size = 1_000_000;
                // Some tens of megabytes under way, not the whole of buffer.memory.
                plan.outstanding = Some((8_000_000 / bytes).max(4));
                let load = format!(
                    "{} records, 4 producers, 16 partitions, batch.size 1 MB, as fast as answers come",
                    units::bytes(bytes as f64)
                );
                self.add(
                    key,
                    &format!("large records, {}", units::bytes(bytes as f64)),
                    &load,
                    plan,
                    &[Metric::Bytes, Metric::CpuPerMb, Metric::SystemCpuPerMb],
                );
            }
            let mut plan = self.plan();
            plan.idempotence = Some(false);
            let load = "as W2 with enable.idempotence=false: the difference to W2 is what idempotence costs";
            self.add("W20-plain", "without idempotence", load, plan, &[Metric::Bytes, Metric::CpuPerMb]);
        }
    }

    fn requests(&mut self, wide: bool) {
        let mut plan = self.plan();
        plan.workload.sizes = Sizes::Fixed(100);
        (plan.producers, plan.outstanding, plan.linger) = (64, Some(1), Duration::ZERO);
        let load = "one 100 B record a request, 64 connections, one request under way on each, linger.ms 0";
        self.add(
            "W4",
            "tiny requests",
            load,
            plan,
            &[Metric::Records, Metric::CpuPerRequest, Metric::P50, Metric::P99],
        );
        let sizes: &[u64] = if wide { &[4096, 16_384, 65_536, 262_144] } else { &[262_144] };
        for bytes in sizes {
            let mut plan = self.plan();
            (plan.prebuilt, plan.batch_size, plan.in_flight, plan.outstanding) = (true, *bytes, 2, None);
            let size = units::size(*bytes);
            let load = format!(
                "batches of {size} built beforehand and sent again and again, 4 connections, 2 requests under way on each"
            );
            self.add(
                &format!("cost-{}", size.replace(' ', "")),
                &format!("requests of {size}"),
                &load,
                plan,
                &[Metric::CpuPerMb, Metric::CpuPerRequest, Metric::Bytes],
            );
        }
    }

    fn partitions(&mut self, full: bool) {
        let counts: &[u32] = if full { &[1, 16, 1000, 10_000] } else { &[1, 1000] };
        for count in counts {
            let mut plan = self.plan();
            plan.partitions = *count;
            plan.workload.keys = Keys::Uniform(100_000);
            let load = format!(
                "1 KiB keyed records over {count} partition(s), Poisson arrivals at 30 % of the slower target's maximum of W2"
            );
            let cell = self.add(
                &format!("W5-{count}p"),
                &format!("{count} partition{}", if *count == 1 { "" } else { "s" }),
                &load,
                plan,
                &[Metric::P99, Metric::CpuPerMb, Metric::Rss, Metric::WriteAmplification],
            );
            cell.share = Some(0.3);
        }
    }

    fn acks_and_codecs(&mut self, full: bool) {
        for acks in ["0", "1"] {
            let mut plan = self.plan();
            plan.acks = acks.to_owned();
            plan.idempotence = Some(false);
            let load = format!("as W2 with acks={acks}");
            self.add(
                &format!("W6-acks{acks}"),
                &format!("acks={acks}"),
                &load,
                plan,
                &[Metric::Bytes, Metric::CpuPerMb],
            );
        }
        let codecs: &[&str] = if full { &["lz4", "zstd", "snappy", "gzip"] } else { &["lz4", "zstd"] };
        for codec in codecs {
            let mut plan = self.plan();
            plan.compression = (*codec).to_owned();
            plan.workload.payload = Payload::Json;
            plan.batch_size = 65_536;
            let load = format!(
                "1 KiB JSON-like records compressed with {codec} by the client, batch.size 64 KiB, as fast as answers come"
            );
            self.add(
                &format!("W9-{codec}"),
                &format!("compressed with {codec}"),
                &load,
                plan,
                &[Metric::CpuPerMb, Metric::Bytes],
            );
        }
    }

    fn flushes(&mut self, wide: bool) {
        if wide {
            let mut plan = self.plan();
            (plan.producers, plan.partitions, plan.outstanding, plan.linger) = (1, 1, Some(1), Duration::ZERO);
            let load = "1 KiB records, one producer that waits for each acknowledgement, every one of them synced to the device";
            self.add("W7", "synced, one producer", load, plan, &[Metric::P50, Metric::P99]).class = Class::Flushed;
        }
        for linger in if wide { &[0, 5][..] } else { &[0] } {
            let mut plan = self.plan();
            (plan.producers, plan.outstanding, plan.linger) = (64, Some(1), Duration::from_millis(*linger));
            let load = format!(
                "1 KiB records, 64 producers that each wait for their acknowledgement, 16 partitions, linger.ms {linger}, every acknowledgement synced to the device"
            );
            let key = if *linger == 0 { "W8".to_owned() } else { format!("W8-linger{linger}") };
            let name = if *linger == 0 {
                "synced, 64 producers".to_owned()
            } else {
                format!("synced, 64 producers, linger {linger} ms")
            };
            self.add(&key, &name, &load, plan, &[Metric::Records, Metric::P50, Metric::P99]).class = Class::Flushed;
        }
    }

    fn open_loop(&mut self, shares: &[f64]) {
        for share in shares {
            let mut plan = self.plan();
            (plan.kind, plan.producers, plan.consumers) = (Kind::EndToEnd, 1, 1);
            plan.arrival = Arrival::Poisson;
            let percent = share * 100.0;
            let load = format!(
                "1 KiB records, 1 producer, 1 consumer, 16 partitions, Poisson arrivals at {percent:.0} % of the slower target's maximum of W2; latency from the intended send to the consumer's hands"
            );
            let metrics = [Metric::P50, Metric::P99, Metric::P999, Metric::CpuPerMb];
            self.add(&format!("W10@{percent:.0}%"), &format!("end to end at {percent:.0} %"), &load, plan, &metrics)
                .share = Some(*share);
        }
    }

    fn fans(&mut self, full: bool) {
        for groups in if full { &[1, 5, 20][..] } else { &[1, 5] } {
            let mut plan = self.plan();
            (plan.kind, plan.producers, plan.groups, plan.consumers) = (Kind::EndToEnd, 1, *groups, 1);
            let load = format!(
                "1 KiB records at 15 % of the slower target's maximum of W2, read by {groups} consumer group(s) at the tail"
            );
            let metrics = [Metric::CpuPerMb, Metric::Egress, Metric::P99];
            self.add(&format!("W11-{groups}g"), &format!("fan-out to {groups}"), &load, plan, &metrics).share =
                Some(0.15);
        }
        for producers in if full { &[100u32, 1000][..] } else { &[100] } {
            let mut plan = self.plan();
            plan.producers = *producers;
            let plan = at_rate(plan, f64::from(*producers) * 10.0);
            let load = format!("{producers} producers with 10 records of 1 KiB a second each");
            self.add(
                &format!("W12-{producers}"),
                &format!("fan-in from {producers}"),
                &load,
                plan,
                &[Metric::CpuShare, Metric::P99, Metric::Rss],
            );
        }
        let plan = self.plan();
        let load = "1 KiB records offered at 150 % of the slower target's maximum of W2";
        self.add("W19", "overload", load, plan, &[Metric::Bytes, Metric::Rss, Metric::CpuPerMb]).share = Some(1.5);
    }

    fn reading(&mut self, full: bool) {
        const WARM_BYTES: u64 = 512 << 20;
        for (key, name, bytes, cold) in
            [("W14", "catch-up, warm", WARM_BYTES, false), ("W13", "catch-up, cold", 4 * WARM_BYTES, true)]
        {
            if cold && !full {
                continue;
            }
            let mut plan = self.plan();
            (plan.kind, plan.batch_size, plan.consumers) = (Kind::Consume, 65_536, 1);
            let load = format!(
                "{} of 1 KiB records read from the beginning by one consumer{}",
                units::size(bytes),
                if cold { ", the page cache of the files emptied before" } else { ", just after they were written" }
            );
            self.add(key, name, &load, plan, &[Metric::Bytes, Metric::CpuPerMb]).shape = Shape::CatchUp { bytes, cold };
        }
        let partitions = if full { 10_000 } else { 1000 };
        let mut plan = self.plan();
        (plan.kind, plan.connections) = (Kind::Idle, 500);
        let load = format!("500 connections and {partitions} partitions with nothing to do");
        self.add("W15", "idle", &load, plan, &[Metric::Rss, Metric::CpuShare, Metric::Switches]).shape =
            Shape::Idle { partitions };
    }

    fn neighbour(&mut self) {
        let mut plan = self.plan();
        (plan.kind, plan.partitions, plan.producers, plan.consumers) = (Kind::EndToEnd, 15, 1, 1);
        (plan.arrival, plan.linger) = (Arrival::Poisson, Duration::ZERO);
        // So little load finds its pace with its first records.
        plan.warmup = plan.warmup.min(Duration::from_secs(1));
        let load = "1 KiB records over 15 partitions, 1 producer, 1 consumer, linger.ms 0, Poisson arrivals at 1 % of the slower target's maximum of W2: first alone, then while another connection fills a partition of another topic with batches of 64 KiB as fast as answers come; latency from the intended send to the consumer's hands";
        let metrics = [Metric::NoiseInflation, Metric::P99, Metric::P99Alone, Metric::NoiseBytes];
        let cell = self.add("W21", "noisy neighbour", load, plan, &metrics);
        (cell.shape, cell.share) = (Shape::Neighbour, Some(0.01));
    }

    fn soak(&mut self, length: Duration) {
        let mut plan = self.plan();
        (plan.duration, plan.arrival) = (length, Arrival::Poisson);
        let load = format!(
            "1 KiB records, 4 producers, 16 partitions, Poisson arrivals at 70 % of the slower target's maximum of W2 for {}; old segments are deleted from a sixth of that time on, or from 16 GiB on",
            units::duration(length)
        );
        let metrics = [
            Metric::LatencyDrift,
            Metric::DeletionStep,
            Metric::MemoryDrift,
            Metric::P99,
            Metric::CpuPerMb,
            Metric::WriteAmplification,
        ];
        let cell = self.add(SOAK, "soak with deletion", &load, plan, &metrics);
        // Five pairs of two hours each would be a day: one pair shows the course of each target, and claims nothing.
        (cell.shape, cell.share, cell.pairs) = (Shape::Soak, Some(0.7), 1);
    }

    fn restarts(&mut self, wide: bool, full: bool) {
        for partitions in if full { &[16, 1000][..] } else { &[16] } {
            let plan = self.plan();
            let load = format!(
                "the broker is stopped cleanly and started on a topic of {partitions} partitions: from the start of its process to the first acknowledged record"
            );
            let key = if *partitions == 16 { "W17".to_owned() } else { format!("W17-{partitions}p") };
            self.add(&key, &format!("cold start, {partitions} partitions"), &load, plan, &[Metric::Seconds]).shape =
                Shape::ColdStart { partitions: *partitions };
        }
        if wide {
            let mut plan = at_rate(self.plan(), 2000.0);
            plan.producers = 2;
            // Long enough for a JVM to be killed, to start, to recover and to be found again.
            plan.duration = Duration::from_secs(14);
            plan.warmup = Duration::ZERO;
            plan.verify = Verify::On;
            let load = "1 KiB records at 2,000 a second; the broker is killed (SIGKILL) after 3 s and started again at once; every acknowledged record is read back";
            self.add("W16", "kill -9", load, plan, &[Metric::Outage]).shape = Shape::Kill;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn of(preset: Preset) -> Vec<Cell> {
        cells(preset, &preset.pacing(), 1)
    }

    #[test]
    fn every_plan_can_be_run_and_every_key_is_its_own() {
        for preset in Preset::ALL {
            let cells = of(preset);
            assert_eq!(cells.iter().map(|cell| cell.key.as_str()).collect::<BTreeSet<_>>().len(), cells.len());
            assert!(cells.iter().any(|cell| cell.key == BASE));
            for cell in &cells {
                assert_eq!(cell.plan.check(), Ok(()), "{}", cell.key);
                assert!(!cell.metrics.is_empty() && !cell.load.is_empty());
                assert!(cell.workload == "cost" || cell.key.starts_with(cell.workload), "{}", cell.key);
            }
        }
    }

    #[test]
    fn wider_presets_hold_what_narrower_ones_do() {
        let keys = |preset| of(preset).into_iter().map(|cell| cell.key).collect::<BTreeSet<_>>();
        assert!(keys(Preset::Quick).is_subset(&keys(Preset::Standard)));
        assert!(keys(Preset::Standard).len() > 25 && keys(Preset::Full).len() > keys(Preset::Standard).len());
    }

    #[test]
    fn presets_take_about_as_long_as_they_say() {
        let minutes = |preset| estimate(&of(preset), &Preset::pacing(preset), 1).as_secs_f64() / 60.0;
        assert!((5.0..=9.0).contains(&minutes(Preset::Quick)), "{}", minutes(Preset::Quick));
        assert!((35.0..=60.0).contains(&minutes(Preset::Standard)), "{}", minutes(Preset::Standard));
        assert!(minutes(Preset::Full) > 120.0);
    }

    #[test]
    fn classes_are_asked_for_in_the_words_of_each_house() {
        let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!(Class::Written.topic_settings("kafka"), []);
        assert_eq!(Class::Written.topic_settings("ringlog"), one("ringlog.ack.durability", "written"));
        assert_eq!(Class::Flushed.topic_settings("ringlog"), one("ringlog.ack.durability", "flushed"));
        assert_eq!(Class::Flushed.topic_settings("kafka"), one("flush.messages", "1"));
        let flushed: Vec<String> =
            of(Preset::Full).into_iter().filter(|cell| cell.class == Class::Flushed).map(|cell| cell.key).collect();
        assert_eq!(flushed, ["W7", "W8", "W8-linger5"]);
    }

    #[test]
    fn workloads_are_chosen_by_number_or_key_and_strangers_are_named() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            only(of(Preset::Standard), &names).map(|cells| cells.into_iter().map(|cell| cell.key).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["w4", "W10@50%"]), Ok(vec!["W4".to_owned(), "W10@50%".to_owned()]));
        assert_eq!(chosen(&["W6"]).unwrap().len(), 2);
        assert_eq!(chosen(&["W1"]).unwrap(), ["W1"]);
        assert!(chosen(&["W99"]).unwrap_err().contains("W10@50%"));
    }

    #[test]
    fn a_soak_is_there_when_its_length_is_given_and_told_of_when_it_is_not() {
        let two_hours = Duration::from_secs(7200);
        let names = ["W18".to_owned()];
        for preset in Preset::ALL {
            let without = preset.pacing();
            assert!(only(of(preset), &names).unwrap_err().contains("--soak 2h"));
            assert!(not_covered(preset, &without).iter().any(|line| line.contains("--soak 2h")));
            let with = Pacing { soak: Some(two_hours), ..without };
            assert!(!not_covered(preset, &with).iter().any(|line| line.contains("W18")));
            let cells = only(cells(preset, &with, 1), &names).unwrap();
            let [soak] = cells.as_slice() else { panic!("{}", cells.len()) };
            assert_eq!((soak.shape, soak.pairs, soak.plan.duration), (Shape::Soak, 1, two_hours));
            assert!((14_400.0..15_000.0).contains(&estimate(&cells, &with, 1).as_secs_f64()));
        }
    }

    #[test]
    fn a_neighbour_is_noise_on_one_partition_that_can_be_run_and_outlasts_the_quiet_load() {
        let cells = of(Preset::Full);
        let quiet = cells.iter().find(|cell| cell.key == "W21").unwrap();
        assert_eq!((quiet.workload, quiet.shape, quiet.share), ("W21", Shape::Neighbour, Some(0.01)));
        let offered = at_rate(quiet.plan.clone(), 2000.0);
        let noise = noise(&offered);
        assert_eq!(noise.check(), Ok(()));
        assert_eq!((noise.partitions, noise.rate, noise.prebuilt), (1, Rate::Max, true));
        assert!(noise.duration > 2 * (offered.warmup + offered.duration));
        assert!(!of(Preset::Standard).iter().any(|cell| cell.key == "W21"));
        let told = |preset: Preset| not_covered(preset, &preset.pacing()).iter().any(|line| line.contains("W21"));
        assert!(told(Preset::Quick) && told(Preset::Standard) && !told(Preset::Full));
    }

    #[test]
    fn the_floor_is_the_published_curve() {
        assert!((floor_ms_per_mb(1024.0) - 3.26).abs() < 0.01);
        assert!((floor_ms_per_mb(65_536.0) - 0.379).abs() < 0.001);
    }
}
