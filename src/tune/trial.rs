//! One trial: the settings, how long, and what was found.
//!
//! Pure: the trait is carried out elsewhere (`measuring` by bench; tests by a simulated broker). Owns the words of a
//! measurement, which the journal keeps. Always true: times are microseconds, rates per second, cost is processor milliseconds
//! per megabyte (10^6 bytes); a number that was not measured is absent, never zero.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::space::Point;

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
        match name {
            "p50" => Some(self.p50_us),
            "p90" => Some(self.p90_us),
            "p99" => Some(self.p99_us),
            "p99.9" => Some(self.p999_us),
            "max" => Some(self.max_us),
            "mean" => Some(self.mean_us),
            _ => None,
        }
    }

    /// Of several measurements of one point: the mean of their logarithms, weighted by their length, so that one stall does
    /// not count more than its share. Counts are added, weaknesses joined. `None` of nothing.
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
        Some(Self {
            seconds: all.iter().map(|one| one.seconds).sum(),
            offered_per_second: first.offered_per_second,
            records_per_second: plain(|one| one.records_per_second),
            bytes_per_second: plain(|one| one.bytes_per_second),
            p50_us: plain(|one| one.p50_us),
            p90_us: plain(|one| one.p90_us),
            p99_us: plain(|one| one.p99_us),
            p999_us: plain(|one| one.p999_us),
            max_us: all.iter().map(|one| one.max_us).fold(0.0, f64::max),
            mean_us: plain(|one| one.mean_us),
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

/// What the first trial told of the broker and of this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `ringlog`, `kafka`, `unknown`.
    pub software: String,
    /// Brokers.
    pub brokers: u32,
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
    fn the_brokers_cost_comes_before_the_clients() {
        let mut measured = Measured { client_cpu_ms_per_mb: Some(2.0), ..Measured::default() };
        assert_eq!(measured.cpu_ms_per_mb(), Some(2.0));
        measured.broker_cpu_ms_per_mb = Some(1.0);
        assert_eq!(measured.cpu_ms_per_mb(), Some(1.0));
        assert_eq!(Measured::default().cpu_ms_per_mb(), None);
    }
}
