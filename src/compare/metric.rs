//! The numbers a comparison is made of, and what an acknowledgement promises.
//!
//! Pure. Owns which numbers there are, where they lie in a run, which direction is the good one, and the words for it. Always
//! true: a number that was not measured is absent, never zero; a run whose numbers are not true gives none, and says why.

use super::report::Measurement;
use crate::bench::report::{Percentiles, Run};

/// The table of numbers: what each is, its name in files, for people, and where there is little room.
macro_rules! metrics {
    ($($(#[doc = $what:literal])+ $metric:ident = $key:literal, $name:literal, $short:literal;)+) => {
        /// A number of a turn.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $what])+ $metric,)+
        }

        impl Metric {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$metric),+];

            /// In files.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$metric => $key,)+
                }
            }

            /// For people.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$metric => $name,)+
                }
            }

            /// In figures.
            pub const fn short(self) -> &'static str {
                match self {
                    $(Self::$metric => $short,)+
                }
            }
        }
    };
}

metrics! {
    /// Records acknowledged (read, where reading is measured) per second.
    Records = "records_per_second", "records per second", "records/s";
    /// Their bytes per second.
    Bytes = "bytes_per_second", "bytes per second", "MB/s";
    /// Bytes delivered to consumers per second.
    Egress = "consumed_bytes_per_second", "bytes delivered per second", "MB/s delivered";
    /// Requests per second.
    Requests = "requests_per_second", "requests per second", "requests/s";
    /// Half of the records waited no longer, microseconds.
    P50 = "p50_us", "p50 latency", "p50";
    /// 99 %.
    P99 = "p99_us", "p99 latency", "p99";
    /// 99.9 %.
    P999 = "p999_us", "p99.9 latency", "p99.9";
    /// The broker's own processor time per megabyte.
    CpuPerMb = "cpu_ms_per_mb", "broker CPU per MB", "CPU per MB";
    /// The machine's processor time less the client's, write-back included, per megabyte.
    SystemCpuPerMb = "system_cpu_ms_per_mb", "machine CPU per MB", "machine per MB";
    /// The broker's processor time per produce request.
    CpuPerRequest = "cpu_us_per_request", "broker CPU per request", "CPU per request";
    /// The broker's processor time per thousand records.
    CpuPerThousand = "cpu_ms_per_1000_records", "broker CPU per 1,000 records", "CPU per 1,000";
    /// Cores the broker keeps busy.
    CpuShare = "cores_busy", "processor share", "cores busy";
    /// Resident memory.
    Rss = "rss_bytes", "resident memory", "memory";
    /// Bytes the device wrote per byte acknowledged.
    WriteAmplification = "write_amplification", "write amplification", "bytes to device";
    /// Context switches per second.
    Switches = "context_switches_per_second", "context switches", "switches";
    /// From the start of the process to the first acknowledged record, seconds.
    Seconds = "start_seconds", "time to the first acknowledgement", "start";
    /// The longest a record waited while the broker was killed and started again, seconds.
    Outage = "outage_seconds", "outage after kill -9", "outage";
    /// p99 beside a noisy neighbour over p99 alone.
    NoiseInflation = "p99_beside_noise_over_alone", "p99 beside the noise over alone", "p99 beside/alone";
    /// p99 of a load before it gets a neighbour, microseconds.
    P99Alone = "p99_alone_us", "p99 latency alone", "p99 alone";
    /// Bytes per second the noisy neighbour gets through.
    NoiseBytes = "noise_bytes_per_second", "bytes per second of the noise", "MB/s of noise";
    /// p99 of a soak just after deletion began over p99 before it.
    DeletionStep = "p99_after_deletion_over_before", "p99 once deletion began over before", "p99 at deletion";
    /// p99 at the end of a soak over p99 before deletion began.
    LatencyDrift = "p99_end_over_beginning", "p99 at the end over the beginning", "p99 end/beginning";
    /// Resident memory at the end of a soak over that when deletion began.
    MemoryDrift = "rss_end_over_beginning", "memory at the end over the beginning", "memory end/beginning";
}

impl Metric {
    /// From [`Metric::key`].
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.iter().find(|metric| metric.key() == key).copied()
    }

    /// The words of a first target that is better, and of one that is worse.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::CpuPerMb | Self::SystemCpuPerMb | Self::CpuPerRequest | Self::CpuPerThousand | Self::CpuShare => {
                ("cheaper", "dearer")
            }
            Self::Rss => ("smaller", "larger"),
            Self::WriteAmplification | Self::Switches => ("fewer", "more"),
            Self::NoiseInflation | Self::DeletionStep | Self::LatencyDrift | Self::MemoryDrift => {
                ("steadier", "less steady")
            }
            _ => ("faster", "slower"),
        }
    }

    /// Whether a larger number is the better one.
    pub const fn more_is_better(self) -> bool {
        self.is_rate()
    }

    /// Whether it is a throughput, which a client can be the limit of.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::Records | Self::Bytes | Self::Egress | Self::Requests | Self::NoiseBytes)
    }

    /// Whether it is a throughput of the cell's own load, which an open loop offers and a broker can only carry.
    pub const fn is_offered(self) -> bool {
        matches!(self, Self::Records | Self::Bytes | Self::Egress | Self::Requests)
    }

    /// Where it lies in a run; of those that a run alone does not have, `None`.
    fn of(self, run: &Run) -> Option<f64> {
        let results = &run.results;
        let latency = |pick: fn(&Percentiles) -> u64| run.headline_latency().map(|all| pick(all) as f64);
        let positive = |value: f64| (value > 0.0).then_some(value);
        match self {
            Self::Records => positive(results.records_per_second),
            Self::Bytes => positive(results.bytes_per_second),
            Self::Egress => positive(results.consumed_bytes_per_second),
            Self::Requests => results.requests_per_second,
            Self::P50 => latency(|all| all.p50),
            Self::P99 => latency(|all| all.p99),
            Self::P999 => latency(|all| all.p999),
            Self::CpuPerMb => run.broker.cpu_ms_per_mb,
            Self::CpuPerRequest => run.broker.cpu_us_per_request,
            Self::CpuPerThousand => run.broker.cpu_ms_per_1000_records,
            Self::CpuShare => run.broker.cores_busy,
            Self::Rss => run.broker.rss_bytes.map(|bytes| bytes as f64),
            Self::WriteAmplification => run.broker.write_amplification,
            Self::Switches => run
                .broker
                .context_switches
                .filter(|_| results.seconds > 0.0)
                .map(|count| count as f64 / results.seconds),
            Self::SystemCpuPerMb
            | Self::Seconds
            | Self::Outage
            | Self::NoiseInflation
            | Self::P99Alone
            | Self::NoiseBytes
            | Self::DeletionStep
            | Self::LatencyDrift
            | Self::MemoryDrift => None,
        }
    }
}

/// Beside the metrics: bytes of a request on average, the abscissa of the cost curve.
pub const BYTES_PER_REQUEST: &str = "bytes_per_request";

/// Why the numbers of a run are not true: too much of it failed, or nothing was answered. A client that was the limit, a host
/// that changed and lost records are told of in other ways, beside the numbers; what else there is to say goes with the reasons.
fn untrue(run: &Run) -> Option<String> {
    let verdict = &run.verdict;
    let otherwise_told = verdict.valid || verdict.lossy || verdict.ceiling_drift;
    (!otherwise_told)
        .then(|| if verdict.reasons.is_empty() { "the run is not valid".to_owned() } else { verdict.reasons.join(" ") })
}

/// A turn's numbers from its run.
pub fn measurement(run: &Run) -> Measurement {
    if let Some(error) = untrue(run) {
        return Measurement { started_at: run.started_at.clone(), error, ..Measurement::default() };
    }
    let mut one = Measurement {
        started_at: run.started_at.clone(),
        ack_class: run.ack_class.clone(),
        client_bound: run.verdict.client_bound,
        reasons: run.verdict.reasons.clone(),
        lossy: if run.verdict.lossy { run.verification.sentence() } else { String::new() },
        checked: run.verification.checked,
        histogram: histogram(run).cloned().unwrap_or_default(),
        ..Measurement::default()
    };
    for metric in Metric::ALL {
        if let Some(value) = metric.of(run).filter(|value| value.is_finite()) {
            one.numbers.insert(metric.key().to_owned(), value);
        }
    }
    if let Some(batches) = run.results.batches.as_ref().filter(|batches| batches.requests > 0) {
        let bytes = batches.bytes_per_batch * batches.batches_per_request;
        one.numbers.insert(BYTES_PER_REQUEST.to_owned(), bytes);
    }
    one
}

/// The histogram of the latency people ask for first.
fn histogram(run: &Run) -> Option<&String> {
    let key = if run.headline_latency_name() == "end to end" { "end_to_end_us" } else { "response_us" };
    run.histograms.get(key)
}

/// What an acknowledgement promises, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing.
    Nothing,
    /// Lost by a killed broker.
    InMemory,
    /// Survives a killed broker, not a power loss.
    SurvivesKill,
    /// As before, and synced now and then.
    SyncedSometimes,
    /// Survives power loss.
    Synced,
    /// The broker does not say.
    Unknown,
}

impl Promise {
    /// Of a class as a report names it.
    pub fn of(class: &str) -> Self {
        match class {
            "none" => Self::Nothing,
            "memory" => Self::InMemory,
            "written" | "page-cache" => Self::SurvivesKill,
            "flushed" | "flush-each" => Self::Synced,
            other if other.starts_with("flush-every-") => Self::SyncedSometimes,
            _ => Self::Unknown,
        }
    }

    /// In a few words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing is promised",
            Self::InMemory => "lost by a killed broker",
            Self::SurvivesKill => "survives a killed broker",
            Self::SyncedSometimes => "synced after some records",
            Self::Synced => "survives power loss",
            Self::Unknown => "not known",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::BatchFacts;

    #[test]
    fn every_metric_has_a_key_of_its_own() {
        for metric in Metric::ALL {
            assert_eq!(Metric::from_key(metric.key()), Some(*metric));
        }
        assert_eq!(Metric::from_key("colour"), None);
    }

    fn valid(kind: &str) -> Run {
        let mut run = Run { kind: kind.to_owned(), ..Run::default() };
        run.verdict.valid = true;
        run
    }

    #[test]
    fn a_run_that_is_not_valid_gives_no_numbers_and_says_why() {
        let mut run = valid("produce");
        run.results.records_per_second = 10.0;
        run.verdict.valid = false;
        run.verdict.reasons = vec!["2,000 of 10,000 records failed.".to_owned()];
        let one = measurement(&run);
        assert_eq!((one.error.as_str(), one.numbers.is_empty()), ("2,000 of 10,000 records failed.", true));
        // These are told beside the numbers.
        for told in [|run: &mut Run| run.verdict.lossy = true, |run: &mut Run| run.verdict.ceiling_drift = true] {
            let mut run = run.clone();
            told(&mut run);
            assert_eq!((measurement(&run).error, measurement(&run).numbers.len()), (String::new(), 1));
        }
        run.verdict.valid = true;
        run.verdict.client_bound = true;
        assert_eq!((measurement(&run).error, measurement(&run).client_bound), (String::new(), true));
    }

    #[test]
    fn a_run_gives_the_numbers_it_has_and_no_others() {
        let mut run = valid("produce");
        run.results.records_per_second = 10.0;
        run.results.response_us = Some(Percentiles { p50: 7, p99: 9, ..Percentiles::default() });
        run.results.batches =
            Some(BatchFacts { requests: 2, bytes_per_batch: 100.0, batches_per_request: 3.0, ..BatchFacts::default() });
        run.histograms.insert("response_us".to_owned(), "blob".to_owned());
        let one = measurement(&run);
        assert_eq!(
            (one.number("records_per_second"), one.number("p99_us"), one.number(BYTES_PER_REQUEST)),
            (Some(10.0), Some(9.0), Some(300.0))
        );
        assert_eq!((one.number("cpu_ms_per_mb"), one.number("bytes_per_second")), (None, None));
        assert_eq!(one.histogram, "blob");
    }

    #[test]
    fn end_to_end_runs_show_the_latency_that_is_theirs() {
        let mut run = valid("e2e");
        run.results.response_us = Some(Percentiles { p50: 7, ..Percentiles::default() });
        run.results.end_to_end_us = Some(Percentiles { p50: 70, ..Percentiles::default() });
        run.histograms =
            [("response_us".to_owned(), "r".to_owned()), ("end_to_end_us".to_owned(), "e".to_owned())].into();
        let one = measurement(&run);
        assert_eq!((one.number("p50_us"), one.histogram.as_str()), (Some(70.0), "e"));
    }

    #[test]
    fn the_names_of_both_houses_mean_promises() {
        assert_eq!(Promise::of("written"), Promise::of("page-cache"));
        assert_eq!(Promise::of("flushed"), Promise::of("flush-each"));
        assert_eq!(Promise::of("flush-every-7"), Promise::SyncedSometimes);
        assert_eq!(Promise::of("surprise"), Promise::Unknown);
    }
}
