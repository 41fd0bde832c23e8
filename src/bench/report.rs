//! `run.json`, schema version 1: everything one run found, in a form that outlives the tool.
//!
//! Pure. Owns the names of all fields. Always true: a field once written keeps its name and unit within a schema version;
//! readers ignore fields they do not know, and take absent ones as "not measured" (`null` or left out). Times are
//! microseconds where a name ends in `_us`, rates are per second, bytes are keys and values without framing.
//!
//! ```text
//! schema_version  1                        kind        produce | consume | e2e | mixed | idle | connect-storm
//! ack_class       memory | written | flushed (ours) · page-cache | flush-each | flush-every-n (Kafka's) · none | unknown
//! results         records_per_second, bytes_per_second, errors, seconds, records, …,
//!                 {response_us, service_us, publish_delay_us, end_to_end_us, slip_us}.{p50 … p9999, max, mean, count}
//! verification    enabled, checked, deleted, lost, duplicated, reordered, corrupt, other, at_least_once, foreign, evidence
//! verdict         client_bound, ceiling_drift, lossy, steady, valid, reasons
//! broker          cpu_ms_per_mb, cpu_us_per_request, cpu_ms_per_1000_records, rss_bytes, write_amplification, …,
//!                 counters and shards (ours, when its metrics page is known): growth while measuring; of each shard
//!                 {shard, produce_batches, produce_bytes, fetch_bytes, log_writes, log_written_bytes,
//!                 log_prewritten_bytes, net_full_turns, net_parks, watchdog_kicks}; stages (likewise): of Produce and
//!                 of Fetch {request, requests, request_queue_us, local_us, remote_us}, means while measuring
//! ceilings        before, after: disk, flush, loopback, crc32c · drift
//! series          one object a second · histograms: HdrHistogram V2 compressed, base64
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::verify::Verification;

/// The version this file describes. It rises when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;
/// A report larger than this is not read: a day's run has 86,400 seconds of some hundred bytes.
pub const REPORT_BYTES_MAX: u64 = 256 << 20;

/// One run, or the median one of several repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// Names the run in overlays.
    pub label: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// What was measured: `produce`, `consume`, `e2e`, `mixed`, `idle`, `connect-storm`.
    pub kind: String,
    /// The command line, to run it again.
    pub command: String,
    /// What an acknowledgement meant, in one word.
    pub ack_class: String,
    /// The same in sentences.
    pub ack: AckFacts,
    /// What was sent, and when.
    pub workload: WorkloadFacts,
    /// The client's settings, by Kafka's names; what is not here had its default.
    pub client: BTreeMap<String, String>,
    /// What was measured.
    pub results: Results,
    /// Whether the records are all there.
    pub verification: Verification,
    /// Whether the numbers may be believed.
    pub verdict: Verdict,
    /// What the broker paid, when it ran on this host.
    pub broker: BrokerFacts,
    /// What the generator itself used.
    pub generator: GeneratorFacts,
    /// What this host can do at most, measured before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<CeilingFacts>,
    /// The host the generator ran on.
    pub host: HostFacts,
    /// One entry a second, warm-up included.
    pub series: Vec<Second>,
    /// HdrHistogram V2 compressed, base64, by the names of `results`: `response_us`, …
    pub histograms: BTreeMap<String, String>,
    /// With a ramp: latency by offered rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_curve: Vec<LoadPoint>,
    /// With a search for the largest sustainable rate: every step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<SearchPoint>,
    /// With repeats: each run's headline, this one being the median by records per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Repeat>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What wrote a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tool {
    /// `ringlog bench`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What an acknowledgement meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AckFacts {
    /// `acks` of the producer: `all`, `1`, `0`.
    pub acks: String,
    /// What is lost, and what by.
    pub words: String,
    /// How it is known.
    pub source: String,
    /// Replicas of each partition, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

/// What was sent, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadFacts {
    /// The topic.
    pub topic: String,
    /// Its partitions.
    pub partitions: u32,
    /// Sizes of values, in words.
    pub record_size: String,
    /// Their mean, bytes.
    pub record_size_mean: f64,
    /// `random`, `text`, `json`, `zeros`.
    pub payload: String,
    /// How far codecs shrink it.
    pub compressibility: String,
    /// Keys, in words.
    pub keys: String,
    /// `closed` or `open`.
    pub loop_mode: String,
    /// `max`, a number per second, or `ramp:a..b`.
    pub rate: String,
    /// `uniform` or `poisson`; empty in a closed loop.
    pub arrival: String,
    /// Producers.
    pub producers: u32,
    /// Consumers.
    pub consumers: u32,
    /// Consumer groups.
    pub groups: u32,
    /// Connections of idle and storm.
    pub connections: u32,
    /// Whether batches were built once and sent again and again.
    pub prebuilt: bool,
    /// From which everything random was drawn.
    pub seed: u64,
    /// Seconds before measuring.
    pub warmup_seconds: u64,
}

/// Percentiles of one histogram, microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// How many were recorded.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub stddev: f64,
    /// Half are not larger.
    pub p50: u64,
    /// 75 %.
    pub p75: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
    /// The largest.
    pub max: u64,
}

/// What was measured, warm-up left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// How long was measured.
    pub seconds: f64,
    /// Records acknowledged; in `consume`, records read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Acknowledged (in `consume`: read) per second.
    pub records_per_second: f64,
    /// Likewise.
    pub bytes_per_second: f64,
    /// What the schedule asked for, records per second; left out in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_per_second: Option<f64>,
    /// Records that failed for good.
    pub errors: u64,
    /// The same by the name of the error.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors_by_code: BTreeMap<String, u64>,
    /// Records that were due and not sent when the measured time ended; response and publish delay count them with their age then.
    pub unsent: u64,
    /// Records read.
    pub consumed: u64,
    /// Likewise per second.
    pub consumed_per_second: f64,
    /// Bytes read per second.
    pub consumed_bytes_per_second: f64,
    /// Intended time to acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_us: Option<Percentiles>,
    /// Hand-over to acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us: Option<Percentiles>,
    /// Intended time to hand-over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_delay_us: Option<Percentiles>,
    /// Intended time to a consumer's hands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_us: Option<Percentiles>,
    /// How late the generator itself was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slip_us: Option<Percentiles>,
    /// What the client made of the records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchFacts>,
    /// Requests (fetches, connections) answered per second, where the kind counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Records sent and not acknowledged when the run ended.
    pub backlog_at_end: u64,
}

/// What the client made of the records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchFacts {
    /// Produce requests sent.
    pub requests: u64,
    /// Batches in them.
    pub batches: u64,
    /// Records per batch on average.
    pub records_per_batch: f64,
    /// Bytes per batch on average, as sent.
    pub bytes_per_batch: f64,
    /// Bytes per batch over `batch.size`.
    pub fill: f64,
    /// Share of batches that left because linger had passed, not because they were full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linger_expired_share: Option<f64>,
    /// Batches per request on average.
    pub batches_per_request: f64,
    /// Bytes without compression over bytes sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_ratio: Option<f64>,
    /// Batches sent again.
    pub retries: u64,
}

/// Whether the numbers may be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The generator was the limit, or late.
    pub client_bound: bool,
    /// What the host can do changed by more than 15 % within the run.
    pub ceiling_drift: bool,
    /// Verification found something.
    pub lossy: bool,
    /// Throughput was level when measuring began; `None` when it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// Ctrl-C ended the run before its time.
    pub interrupted: bool,
    /// Whether the headline may be quoted.
    pub valid: bool,
    /// Why not, and what else weakens it, in sentences.
    pub reasons: Vec<String>,
}

/// What the broker is, and what it paid while measuring. Costs are there when it ran on this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokerFacts {
    /// As given.
    pub address: String,
    /// `ringlog`, `kafka` or `unknown`.
    pub software: String,
    /// Brokers in the cluster.
    pub brokers: u32,
    /// A fingerprint of the APIs and versions it says it has: two runs with the same one spoke to the same software.
    pub api_fingerprint: String,
    /// Settings that bear on the numbers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Its process on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Processor seconds in user mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_user_seconds: Option<f64>,
    /// Processor seconds in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_system_seconds: Option<f64>,
    /// Cores busy on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_busy: Option<f64>,
    /// Processor milliseconds per megabyte (10^6 bytes) acknowledged or read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms_per_mb: Option<f64>,
    /// Processor microseconds per produce request (per fetch in `consume`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// Processor milliseconds per 1,000 records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms_per_1000_records: Option<f64>,
    /// Processor seconds of the whole machine less the generator's: also what kernel threads did for the broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_cpu_seconds: Option<f64>,
    /// Resident memory at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Its largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_peak_bytes: Option<u64>,
    /// Growth of the host's page cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache_growth_bytes: Option<i64>,
    /// Context switches, voluntary and not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Bytes the process caused to be written to storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Bytes the device under its data wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_written_bytes: Option<u64>,
    /// Flush requests that device served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_flushes: Option<u64>,
    /// `device_written_bytes`, or else `written_bytes`, over the bytes acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
    /// Our broker's own counters: growth over the run, by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
    /// Some of the same for each of our broker's shards, by their index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardWork>,
    /// What the time of our broker's requests went into: of Produce and of Fetch, where there were any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<RequestStages>,
}

/// What the time of one API's requests went into, from wholly read by our broker to the answer queued there. Means over the
/// requests answered while measuring; together they are the broker's whole time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestStages {
    /// `Produce` or `Fetch`.
    pub request: String,
    /// Answered.
    pub requests: u64,
    /// Waiting for their turn on their connection.
    pub request_queue_us: f64,
    /// Checking, appending, reading.
    pub local_us: f64,
    /// Waiting for the acknowledgement, or for data.
    pub remote_us: f64,
}

impl RequestStages {
    /// All of them.
    pub fn total_us(&self) -> f64 {
        self.request_queue_us + self.local_us + self.remote_us
    }
}

/// What one shard of our broker did while measuring, by the names of its counters; what it did not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardWork {
    /// Its index.
    pub shard: u32,
    /// Batches appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce_batches: Option<u64>,
    /// Their bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce_bytes: Option<u64>,
    /// Bytes of batches sent to consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_bytes: Option<u64>,
    /// Direct writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_writes: Option<u64>,
    /// Bytes they wrote to segment files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_written_bytes: Option<u64>,
    /// Bytes of zeroes written ahead of small writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_prewritten_bytes: Option<u64>,
    /// Turns of the net loop in which the executor's rings were served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_full_turns: Option<u64>,
    /// Times the executor slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_parks: Option<u64>,
    /// Times the shard stood and was woken from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_kicks: Option<u64>,
}

/// What the generator used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorFacts {
    /// Threads that generate.
    pub threads: u32,
    /// Processor seconds of this process while measuring.
    pub cpu_seconds: f64,
    /// Processor milliseconds per megabyte (10^6 bytes).
    pub cpu_ms_per_mb: f64,
    /// Processor microseconds per record.
    pub cpu_us_per_record: f64,
    /// `cpu_seconds` over what its threads could have used.
    pub busy_share: f64,
}

/// What the host can do at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CeilingFacts {
    /// Measured before the run.
    pub before: Ceilings,
    /// Measured after it.
    pub after: Ceilings,
    /// The largest relative difference between the two.
    pub drift: f64,
    /// Where the disk was measured.
    pub directory: String,
}

/// One measurement of the host's limits; 0 where something could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ceilings {
    /// Direct sequential writes of 256 KiB, bytes per second.
    pub disk_write_bytes_per_second: f64,
    /// A write of 4 KiB and fdatasync, median microseconds.
    pub flush_us: f64,
    /// One sender and one receiver over loopback in 64 KiB pieces, bytes per second.
    pub loopback_bytes_per_second: f64,
    /// CRC-32C on one core, bytes per second.
    pub crc32c_bytes_per_second: f64,
}

impl Ceilings {
    /// The largest relative difference to another measurement of the rates. The flush time is left out: one flush in ten can
    /// take twice as long on a healthy disk.
    pub fn drift(&self, after: &Self) -> f64 {
        let pairs = [
            (self.disk_write_bytes_per_second, after.disk_write_bytes_per_second),
            (self.loopback_bytes_per_second, after.loopback_bytes_per_second),
            (self.crc32c_bytes_per_second, after.crc32c_bytes_per_second),
        ];
        let differences = pairs.into_iter().filter(|(before, after)| *before > 0.0 && *after > 0.0);
        differences.map(|(before, after)| (before - after).abs() / before.max(after)).fold(0.0, f64::max)
    }
}

/// The host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Of the processor.
    pub cpu_model: String,
    /// Processors this process may use.
    pub cores: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The frequency governor; empty where there is none to see.
    pub governor: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Device, file system and mount options under the directory measured.
    pub disk: String,
    /// Whether io_uring may be used.
    pub io_uring: String,
    /// Share of processor time a hypervisor took away while measuring.
    pub steal_percent: String,
}

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Second {
    /// Seconds since the run began; the second ends at `t + 1`.
    pub t: u64,
    /// Whether it was measured, not warm-up or drain.
    pub measured: bool,
    /// What the schedule asked for, records; left out in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Records handed to the client.
    pub sent: u64,
    /// Records acknowledged.
    pub acked: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that failed.
    pub errors: u64,
    /// Records read.
    pub consumed: u64,
    /// Records sent and not yet acknowledged at its end.
    pub backlog: u64,
    /// Response time (end to end where there is no other), microseconds.
    pub p50_us: u64,
    /// 99 %.
    pub p99_us: u64,
    /// 99.9 %.
    pub p999_us: u64,
    /// The largest.
    pub max_us: u64,
    /// Service time: see [`Spread`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us: Option<Spread>,
    /// Publish delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_delay_us: Option<Spread>,
    /// End to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_us: Option<Spread>,
}

/// Mean, p50, p75, p95, p99, p99.9, p99.99 and the largest, microseconds: as an array, for there is one a second.
pub type Spread = [u64; 8];

/// Latency at one offered rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPoint {
    /// Records per second asked for.
    pub offered: f64,
    /// Records per second acknowledged.
    pub achieved: f64,
    /// Response time, microseconds.
    pub p50_us: u64,
    /// 99 %.
    pub p99_us: u64,
    /// 99.9 %.
    pub p999_us: u64,
}

/// One step of the search for the largest sustainable rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchPoint {
    /// Records per second tried.
    pub rate: f64,
    /// Records per second acknowledged.
    pub achieved: f64,
    /// Response time at 99 %, microseconds.
    pub p99_us: u64,
    /// Whether the limit held and the backlog was stable.
    pub sustained: bool,
    /// Why not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// One of several repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repeat {
    /// Headline.
    pub records_per_second: f64,
    /// Headline.
    pub bytes_per_second: f64,
    /// Response (or end-to-end) time at 50 %, microseconds.
    pub p50_us: u64,
    /// 99 %.
    pub p99_us: u64,
    /// Whether that run was valid.
    pub valid: bool,
}

impl Run {
    /// Reads a report. Errors: a sentence that says what is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let run: Self = serde_json::from_str(text).map_err(|error| format!("is no run.json: {error}"))?;
        match run.schema_version {
            SCHEMA_VERSION => Ok(run),
            0 => Err("is no run.json: it has no schema_version".to_owned()),
            other => Err(format!("has schema version {other}; this tool reads version {SCHEMA_VERSION}")),
        }
    }

    /// The report as it is written: indented, with a line end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report holds no map with keys that are not text");
        text.push('\n');
        text
    }

    /// The mean response time that the client saw of Produce or of Fetch, where it is what the run measures.
    pub fn client_mean_us(&self, request: &str) -> Option<f64> {
        let measured = match self.kind.as_str() {
            "produce" | "e2e" | "mixed" => "Produce",
            "consume" => "Fetch",
            _ => return None,
        };
        self.results.response_us.as_ref().filter(|_| request == measured).map(|all| all.mean)
    }

    /// The latency people ask for first: response time, or end to end where nothing was sent.
    pub fn headline_latency(&self) -> Option<&Percentiles> {
        match self.kind.as_str() {
            "consume" | "e2e" => self.results.end_to_end_us.as_ref().or(self.results.response_us.as_ref()),
            _ => self.results.response_us.as_ref().or(self.results.end_to_end_us.as_ref()),
        }
    }

    /// What [`Run::headline_latency`] is called.
    pub fn headline_latency_name(&self) -> &'static str {
        match self.kind.as_str() {
            "consume" | "e2e" if self.results.end_to_end_us.is_some() => "end to end",
            _ if self.results.response_us.is_none() && self.results.end_to_end_us.is_some() => "end to end",
            "consume" => "fetch",
            "connect-storm" => "connect",
            _ => "response",
        }
    }
}

impl WorkloadFacts {
    /// One line: `1 KiB random (incompressible), keys none, open loop 50000/s poisson`.
    pub fn sentence(&self) -> String {
        let schedule = match self.loop_mode.as_str() {
            "open" => {
                let rate = match self.rate.strip_prefix("ramp:").and_then(|range| range.split_once("..")) {
                    Some((from, to)) => format!("from {from} to {to}"),
                    None => self.rate.clone(),
                };
                format!("open loop, {rate} records/s, {} arrivals", self.arrival)
            }
            _ => "closed loop, as fast as answers come".to_owned(),
        };
        format!("{} {}, keys: {}; {schedule}", self.record_size, self.compressibility, self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_text() {
        let mut run = Run { schema_version: SCHEMA_VERSION, kind: "produce".to_owned(), ..Run::default() };
        run.results.response_us = Some(Percentiles { count: 3, p50: 7, ..Percentiles::default() });
        run.series.push(Second { t: 1, acked: 5, ..Second::default() });
        run.broker.shards.push(ShardWork { shard: 3, log_writes: Some(9), ..ShardWork::default() });
        run.broker.stages.push(RequestStages { request: "Produce".to_owned(), remote_us: 0.25, ..Default::default() });
        assert!(run.to_json().contains("\"log_writes\": 9") && !run.to_json().contains("net_parks"));
        assert_eq!(Run::from_json(&run.to_json()), Ok(run));
    }

    #[test]
    fn the_promised_names_are_there() {
        let percentiles = Some(Percentiles::default());
        let mut run = Run { schema_version: SCHEMA_VERSION, ack_class: "written".to_owned(), ..Run::default() };
        run.results = Results {
            response_us: percentiles.clone(),
            service_us: percentiles.clone(),
            publish_delay_us: percentiles.clone(),
            end_to_end_us: percentiles,
            ..Results::default()
        };
        run.broker = BrokerFacts {
            cpu_ms_per_mb: Some(1.0),
            cpu_us_per_request: Some(1.0),
            rss_bytes: Some(1),
            ..BrokerFacts::default()
        };
        let json: serde_json::Value = serde_json::from_str(&run.to_json()).unwrap();
        for name in ["response_us", "service_us", "publish_delay_us", "end_to_end_us"] {
            for percentile in ["p50", "p90", "p99", "p999", "p9999", "max", "mean", "count"] {
                assert!(json["results"][name][percentile].is_number(), "{name}.{percentile}");
            }
        }
        for path in [
            "/schema_version",
            "/ack_class",
            "/results/records_per_second",
            "/results/bytes_per_second",
            "/results/errors",
            "/verification/checked",
            "/verification/lost",
            "/verification/duplicated",
            "/verification/reordered",
            "/verification/corrupt",
            "/verdict/client_bound",
            "/verdict/ceiling_drift",
            "/verdict/valid",
            "/broker/cpu_ms_per_mb",
            "/broker/cpu_us_per_request",
            "/broker/rss_bytes",
        ] {
            assert!(json.pointer(path).is_some_and(|value| !value.is_null()), "{path}");
        }
    }

    #[test]
    fn foreign_files_and_later_schemas_are_refused_by_name() {
        assert!(Run::from_json("not json").unwrap_err().contains("no run.json"));
        assert!(Run::from_json("{}").unwrap_err().contains("no schema_version"));
        assert!(Run::from_json("{\"schema_version\": 99}").unwrap_err().contains("99"));
        assert!(Run::from_json("{\"schema_version\": 1, \"a_field_of_tomorrow\": 2}").is_ok());
    }

    #[test]
    fn drift_is_the_largest_difference_and_ignores_what_was_not_measured() {
        let before = Ceilings {
            disk_write_bytes_per_second: 100.0,
            loopback_bytes_per_second: 0.0,
            crc32c_bytes_per_second: 10.0,
            flush_us: 100.0,
        };
        let after = Ceilings {
            disk_write_bytes_per_second: 80.0,
            loopback_bytes_per_second: 5.0,
            crc32c_bytes_per_second: 10.5,
            flush_us: 900.0,
        };
        assert!((before.drift(&after) - 0.2).abs() < 1e-9);
        assert_eq!(before.drift(&before), 0.0);
    }
}
