//! One trial: the settings, how long, and what was found.
//!
//! Pure: the trait is carried out elsewhere (`measuring` by bench; tests by a simulated broker). Owns the words of a
//! measurement, which the journal keeps. Always true: times are microseconds, rates per second, cost is processor milliseconds
//! per megabyte (10^6 bytes); a number that was not measured is absent, never zero; percentiles of several measurements are those
//! of all their records, wherever their histograms are known.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::space::Point;
use crate::bench::recorder::{decode, histogram, percentiles};
use crate::bench::report::Percentiles;

/// What a number is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Time,
    Count,
    Bytes,
    Plain,
}

/// Name, unit, and where it lies in a measurement.
type Number = (&'static str, Unit, fn(&Measured) -> Option<f64>);

/// What may be limited, by the names of bench's `--fail-if`.
pub(super) const NUMBERS: &[Number] = &[
    ("p50", Unit::Time, |one| Some(one.p50_us)),
    ("p90", Unit::Time, |one| Some(one.p90_us)),
    ("p99", Unit::Time, |one| Some(one.p99_us)),
    ("p99.9", Unit::Time, |one| Some(one.p999_us)),
    ("max", Unit::Time, |one| Some(one.max_us)),
    ("mean", Unit::Time, |one| Some(one.mean_us)),
    ("records/s", Unit::Count, |one| Some(one.records_per_second)),
    ("bytes/s", Unit::Bytes, |one| Some(one.bytes_per_second)),
    ("cpu-ms/mb", Unit::Plain, Measured::cpu_ms_per_mb),
];

/// What one trial found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// How long was measured, warm-up left out.
    pub seconds: f64,
    /// What the schedule asked for; absent in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_per_second: Option<f64>,
    /// Acknowledged.
    pub records_per_second: f64,
    /// Acknowledged: keys and values.
    pub bytes_per_second: f64,
    /// Percentiles of the latency the goal is about: response (intended time to acknowledgement), or end to end where
    /// consumers take part.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The largest.
    pub max_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// That latency: HdrHistogram V2 compressed, base64, one to two kilobytes; empty where it is not known, or several were added up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub histogram: String,
    /// The broker's processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_ms_per_mb: Option<f64>,
    /// The client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_ms_per_mb: Option<f64>,
    /// Produce requests.
    pub requests_per_second: f64,
    /// Batches in them.
    pub batches_per_second: f64,
    /// On average.
    pub records_per_batch: f64,
    /// As sent, on average.
    pub bytes_per_batch: f64,
    /// Bytes per batch over `batch.size`.
    pub fill: f64,
    /// Share of batches that left because linger had passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linger_expired_share: Option<f64>,
    /// Bytes without compression over bytes sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_ratio: Option<f64>,
    /// Records that failed for good.
    pub errors: u64,
    /// Whether the numbers may be believed; `notes` says why not.
    pub valid: bool,
    /// The generator, not the broker, was the limit.
    pub client_bound: bool,
    /// What weakens the numbers, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Measured {
    /// Processor time by which points are compared: the broker's where it is known, else the client's.
    pub fn cpu_ms_per_mb(&self) -> Option<f64> {
        self.broker_cpu_ms_per_mb.or(self.client_cpu_ms_per_mb).filter(|cpu| *cpu > 0.0)
    }

    /// The percentile of that name, microseconds.
    pub fn percentile(&self, name: &str) -> Option<f64> {
        let latency = |number: &&Number| number.0 == name && number.1 == Unit::Time;
        NUMBERS.iter().find(latency).and_then(|(_, _, read)| read(self))
    }

    /// Of several measurements of one point. Percentiles are those of all their records together. Of anything else, and where a
    /// histogram is missing, the mean of the logarithms, weighted by length, so that one stall does not count more than its
    /// share. Counts are added, weaknesses joined. `None` of nothing.
    pub fn pooled(all: &[&Self]) -> Option<Self> {
        let first = *all.first()?;
        let mean = |pick: &dyn Fn(&Self) -> Option<f64>| {
            let (mut sum, mut weight) = (0.0, 0.0);
            for one in all {
                if let Some(value) = pick(one).filter(|value| *value > 0.0) {
                    let seconds = one.seconds.max(1e-3);
                    sum += seconds * value.ln();
                    weight += seconds;
                }
            }
            (weight > 0.0).then(|| (sum / weight).exp())
        };
        let plain = |pick: fn(&Self) -> f64| mean(&|one: &Self| Some(pick(one))).unwrap_or(0.0);
        let mut notes: Vec<String> = all.iter().flat_map(|one| one.notes.iter().cloned()).collect();
        notes.sort();
        notes.dedup();
        // Shares may be zero: their mean is the plain one.
        let shares: Vec<f64> = all.iter().filter_map(|one| one.linger_expired_share).collect();
        let latency = together(all);
        let pooled = |exact: fn(&Percentiles) -> f64, pick: fn(&Self) -> f64| {
            latency.as_ref().map_or_else(|| plain(pick), exact)
        };
        Some(Self {
            seconds: all.iter().map(|one| one.seconds).sum(),
            offered_per_second: first.offered_per_second,
            records_per_second: plain(|one| one.records_per_second),
            bytes_per_second: plain(|one| one.bytes_per_second),
            p50_us: pooled(|all| all.p50 as f64, |one| one.p50_us),
            p90_us: pooled(|all| all.p90 as f64, |one| one.p90_us),
            p99_us: pooled(|all| all.p99 as f64, |one| one.p99_us),
            p999_us: pooled(|all| all.p999 as f64, |one| one.p999_us),
            max_us: all.iter().map(|one| one.max_us).fold(0.0, f64::max),
            mean_us: pooled(|all| all.mean, |one| one.mean_us),
            histogram: String::new(),
            broker_cpu_ms_per_mb: mean(&|one| one.broker_cpu_ms_per_mb),
            client_cpu_ms_per_mb: mean(&|one| one.client_cpu_ms_per_mb),
            requests_per_second: plain(|one| one.requests_per_second),
            batches_per_second: plain(|one| one.batches_per_second),
            records_per_batch: plain(|one| one.records_per_batch),
            bytes_per_batch: plain(|one| one.bytes_per_batch),
            fill: plain(|one| one.fill),
            linger_expired_share: (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64),
            compression_ratio: mean(&|one| one.compression_ratio),
            errors: all.iter().map(|one| one.errors).sum(),
            valid: all.iter().any(|one| one.valid),
            client_bound: all.iter().filter(|one| one.client_bound).count() * 2 > all.len(),
            notes,
        })
    }
}

/// The latency of all records of several measurements. `None` of a single one, which says it itself, and where one's is not known.
fn together(all: &[&Measured]) -> Option<Percentiles> {
    let mut sum = histogram();
    for one in all {
        sum.add(&decode(&one.histogram).ok()?).ok()?;
    }
    percentiles(&sum).filter(|_| all.len() > 1)
}

/// What the first trial told of the broker and of this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `ringlog`, `kafka`, `unknown`.
    pub software: String,
    /// Brokers.
    pub brokers: u32,
    /// Of the APIs and versions it says it has.
    pub api_fingerprint: String,
    /// In one word.
    pub ack_class: String,
    /// In sentences.
    pub ack_words: String,
    /// Whether the broker's own processor time is known: it runs on this host.
    pub broker_cost_known: bool,
    /// Of this host.
    pub cpu_model: String,
    /// Processors.
    pub cores: u32,
    /// Its kernel.
    pub kernel: String,
    /// Under the broker, as far as it is known.
    pub disk: String,
}

impl Facts {
    /// What tells the broker of these facts from that of `now`, in words; `None` when it can be the same one.
    pub fn other_broker(&self, now: &Self) -> Option<String> {
        let pairs = [
            ("software", &self.software, &now.software),
            ("APIs", &self.api_fingerprint, &now.api_fingerprint),
            ("acknowledgement class", &self.ack_class, &now.ack_class),
        ];
        let differs = pairs.iter().find(|(_, before, now)| !before.is_empty() && before != now);
        differs.map(|(name, before, now)| {
            format!("the broker is not the one of the trials so far: its {name} was {before} and is {now} now")
        })
    }
}

/// Why a trial could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Ctrl-C: what was measured so far stands.
    #[error("interrupted")]
    Interrupted,
    /// Anything else ends the search: the same would happen to every other point.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Measures points, one after the other.
pub trait Trial {
    /// Brings the load up with these settings and measures for `duration` once it is level.
    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Measured, TrialError>;

    /// Time since this tuner began, on the clock that budgets are of.
    fn elapsed(&self) -> Duration;

    /// What the trials so far told of the broker and the host.
    fn facts(&self) -> Option<Facts> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooling_weighs_by_length_and_keeps_what_is_absent_absent() {
        let one = |seconds, p99_us| Measured { seconds, p99_us, valid: true, ..Measured::default() };
        let (short, long) = (one(1.0, 1000.0), one(3.0, 16_000.0));
        let pooled = Measured::pooled(&[&short, &long]).unwrap();
        assert!((pooled.p99_us - 8000.0).abs() < 1e-6);
        assert_eq!((pooled.seconds, pooled.broker_cpu_ms_per_mb), (4.0, None));
        assert_eq!(Measured::pooled(&[]), None);
    }

    #[test]
    fn percentiles_of_several_are_those_of_their_sum() {
        let mut all = histogram();
        let mut one = |latencies: &[(u64, u64)]| {
            let mut own = histogram();
            for (micros, count) in latencies {
                own.record_n(*micros, *count).unwrap();
            }
            all.add(&own).unwrap();
            let found = percentiles(&own).unwrap();
            Measured {
                seconds: 1.0,
                p50_us: found.p50 as f64,
                p99_us: found.p99 as f64,
                histogram: crate::bench::recorder::encode(&own),
                ..Measured::default()
            }
        };
        // A trial with a stall, and one without: their mean is the p99 of neither, nor of both.
        let (calm, stalled) = (one(&[(1000, 9_990), (2000, 10)]), one(&[(1000, 9_800), (50_000, 200)]));
        let pooled = Measured::pooled(&[&calm, &stalled]).unwrap();
        let sum = percentiles(&all).unwrap();
        assert_eq!((pooled.p50_us, pooled.p99_us), (sum.p50 as f64, sum.p99 as f64));
        assert!(pooled.histogram.is_empty(), "an answer of many settings would be many kilobytes");
        let alone = Measured::pooled(&[&stalled]).unwrap();
        assert!((alone.p99_us - stalled.p99_us).abs() < 1e-6);
        let unknown = Measured { histogram: String::new(), ..calm };
        assert_ne!(Measured::pooled(&[&unknown, &stalled]).unwrap().p99_us, sum.p99 as f64);
    }

    #[test]
    fn another_broker_is_told_by_what_it_says_of_itself() {
        let facts = |ack_class: &str| Facts { ack_class: ack_class.to_owned(), ..Facts::default() };
        assert_eq!(facts("written").other_broker(&facts("written")), None);
        assert_eq!(facts("").other_broker(&facts("written")), None, "a journal that does not tell");
        assert!(
            facts("written").other_broker(&facts("flushed")).unwrap().contains("class was written and is flushed now")
        );
    }

    #[test]
    fn the_brokers_cost_comes_before_the_clients() {
        let mut measured = Measured { client_cpu_ms_per_mb: Some(2.0), ..Measured::default() };
        assert_eq!(measured.cpu_ms_per_mb(), Some(2.0));
        measured.broker_cpu_ms_per_mb = Some(1.0);
        assert_eq!(measured.cpu_ms_per_mb(), Some(1.0));
        assert_eq!(Measured::default().cpu_ms_per_mb(), None);
    }
}
