//! A soak: one load for as long as was asked for, while the broker deletes what is old.
//!
//! Pure. Owns how long its stretches are, what its topic keeps, and the numbers that follow from its course. Does not own carrying
//! it out (`turn`). Always true: both targets keep the same number of bytes; percentiles are read from histograms that were added
//! up. A soak is a chain of runs, not one: a run keeps the histograms of each of its seconds, which for hours would be gigabytes.
//! Source: workload W18, and its targets: no step when deletion begins, no growth of memory.

use std::time::Duration;

use super::metric::Metric;
use super::report::{Measurement, Stretch};
use crate::bench::plan::Plan;
use crate::bench::recorder::{decode, encode, histogram};

/// Shorter than this a soak has no beginning and no end to be compared.
pub const LENGTH_MIN: Duration = Duration::from_secs(6);
/// A longer one belongs to whoever watches it.
pub const LENGTH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Deletion begins after this part of it: 20 minutes of two hours.
const BEFORE_DELETION: u32 = 6;
/// Deletion begins earlier where more than this would lie on the disk by then.
const KEPT_BYTES_MAX: f64 = (16u64 << 30) as f64;
/// Stretches of a soak at least, four of them before deletion begins.
const STRETCHES: u32 = 24;
/// A run counts whole seconds.
const STRETCH_MIN: Duration = Duration::from_secs(1);
/// Segments a partition keeps: deletion then takes an eighth of it at a time.
const SEGMENTS_KEPT: f64 = 8.0;
/// What Kafka and we take for `segment.bytes`.
const SEGMENT_BYTES: std::ops::RangeInclusive<f64> = (1u64 << 20) as f64..=(1u64 << 30) as f64;
/// How often a broker looks for segments to delete, at most and at least; the default of five minutes would be half of a short soak.
const CHECK_INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);

/// How a soak is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretches {
    /// How long each is.
    pub(super) each: Duration,
    /// How many.
    pub(super) count: usize,
    /// How many of them end before deletion begins.
    pub(super) before: usize,
}

/// Cuts a soak under `rate` records per second.
pub(super) fn stretches(plan: &Plan, rate: f64) -> Stretches {
    let per_second = bytes_per_second(plan, rate);
    let begins = kept_bytes(per_second, plan.duration) / per_second;
    let each = Duration::from_secs_f64(begins / 2.0).min(plan.duration / STRETCHES).max(STRETCH_MIN);
    let fit = |seconds: f64| (seconds / each.as_secs_f64() + 1e-9) as usize;
    let count = fit(plan.duration.as_secs_f64()).max(2);
    Stretches { each, count, before: fit(begins).clamp(1, count / 2) }
}

/// The settings of its topic under `rate` records per second, the same words in both houses.
pub(super) fn retention(plan: &Plan, rate: f64) -> Vec<(String, String)> {
    let kept = kept_bytes(bytes_per_second(plan, rate), plan.duration) / f64::from(plan.partitions);
    let segment = (kept / SEGMENTS_KEPT).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
    [("retention.bytes", kept), ("segment.bytes", segment)]
        .map(|(name, bytes)| (name.to_owned(), format!("{bytes:.0}")))
        .to_vec()
}

/// The settings of a broker that is started for it.
pub(super) fn broker_settings(length: Duration) -> Vec<(String, String)> {
    vec![("log.retention.check.interval.ms".to_owned(), check_interval(length).as_millis().to_string())]
}

/// What may lie on the disk at once, where a broker writes up to `bytes_per_second`.
pub(super) fn disk_bytes(length: Duration, bytes_per_second: f64) -> f64 {
    kept_bytes(bytes_per_second, length) * (1.0 + 1.0 / SEGMENTS_KEPT)
        + bytes_per_second * check_interval(length).as_secs_f64()
}

fn bytes_per_second(plan: &Plan, rate: f64) -> f64 {
    (rate * plan.workload.sizes.mean()).max(1.0)
}

fn kept_bytes(bytes_per_second: f64, length: Duration) -> f64 {
    (bytes_per_second * (length / BEFORE_DELETION).as_secs_f64()).min(KEPT_BYTES_MAX)
}

fn check_interval(length: Duration) -> Duration {
    (length / 60).clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end())
}

/// One turn of what its stretches were, in order.
pub(super) fn together(taken: &[Measurement], stretches: &Stretches) -> Measurement {
    let Some(first) = taken.first() else { return Measurement::default() };
    let mut one = Measurement {
        started_at: first.started_at.clone(),
        ack_class: first.ack_class.clone(),
        client_bound: taken.iter().filter(|stretch| stretch.client_bound).count() * 2 > taken.len(),
        reasons: taken.iter().map(|stretch| &stretch.reasons).find(|all| !all.is_empty()).cloned().unwrap_or_default(),
        course: taken.iter().zip(1u32..).map(|(stretch, number)| point(stretch, stretches.each * number)).collect(),
        ..Measurement::default()
    };
    let mut set = |metric: Metric, value: Option<f64>| {
        one.numbers.extend(value.map(|value| (metric.key().to_owned(), value)));
    };
    // All stretches were offered the same, so that a mean of them is that of the whole.
    for metric in [Metric::Records, Metric::Bytes, Metric::CpuPerMb, Metric::WriteAmplification] {
        let values: Vec<f64> = taken.iter().filter_map(|stretch| stretch.number(metric.key())).collect();
        set(metric, (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64));
    }
    let rss = |stretch: Option<&Measurement>| stretch.and_then(|stretch| stretch.number(Metric::Rss.key()));
    let (began, ended) = (rss(taken.get(stretches.before - 1)), rss(taken.last()));
    set(Metric::Rss, ended);
    set(Metric::MemoryDrift, over(ended, began));
    let (all, count) = (sum(taken), stretches.before);
    for (metric, quantile) in [(Metric::P50, 0.5), (Metric::P99, 0.99), (Metric::P999, 0.999)] {
        set(metric, (!all.is_empty()).then(|| all.value_at_quantile(quantile) as f64));
    }
    let before = p99(taken.get(..count));
    set(Metric::DeletionStep, over(p99(taken.get(count..2 * count)), before));
    set(Metric::LatencyDrift, over(p99(taken.get(taken.len().saturating_sub(count)..)), before));
    one.histogram = if all.is_empty() { String::new() } else { encode(&all) };
    one
}

fn point(stretch: &Measurement, end: Duration) -> Stretch {
    Stretch {
        seconds: end.as_secs_f64(),
        p99_us: stretch.number(Metric::P99.key()),
        rss_bytes: stretch.number(Metric::Rss.key()),
    }
}

fn over(value: Option<f64>, beginning: Option<f64>) -> Option<f64> {
    let beginning = beginning.filter(|value| *value > 0.0)?;
    Some(value? / beginning)
}

fn p99(stretches: Option<&[Measurement]>) -> Option<f64> {
    let all = sum(stretches?);
    (!all.is_empty()).then(|| all.value_at_quantile(0.99) as f64)
}

fn sum(stretches: &[Measurement]) -> hdrhistogram::Histogram<u64> {
    let mut all = histogram();
    for stretch in stretches.iter().filter_map(|stretch| decode(&stretch.histogram).ok()) {
        all.add(&stretch).expect("they were made here, with the bounds that all of them share");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seconds: u64) -> Plan {
        Plan { duration: Duration::from_secs(seconds), partitions: 16, ..Plan::default() }
    }

    fn settings(pairs: &[(String, String)]) -> Vec<(&str, u64)> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.parse().unwrap())).collect()
    }

    #[test]
    fn two_hours_at_a_gentle_rate_delete_from_the_twentieth_minute_on() {
        // 4 MB/s: 4.9 GB in twenty minutes.
        let cut = stretches(&plan(7200), 4000.0);
        assert_eq!(cut, Stretches { each: Duration::from_secs(300), count: 24, before: 4 });
        let kept = 4000 * 1024 * 1200 / 16;
        assert_eq!(settings(&retention(&plan(7200), 4000.0)), [("retention.bytes", kept), ("segment.bytes", kept / 8)]);
    }

    #[test]
    fn a_rate_that_would_fill_the_disk_deletes_earlier_and_still_has_two_stretches_before() {
        let cut = stretches(&plan(7200), 400_000.0);
        assert_eq!(cut.before, 2);
        assert!(cut.each < Duration::from_secs(25) && cut.count > 300, "{cut:?}");
        let kept: u64 = settings(&retention(&plan(7200), 400_000.0))[0].1;
        assert_eq!(kept * 16, 16 << 30);
        assert!(disk_bytes(Duration::from_secs(7200), 400e6) < 25e9);
    }

    #[test]
    fn the_shortest_soak_has_whole_seconds_and_segments_a_broker_takes() {
        let cut = stretches(&plan(6), 1000.0);
        assert_eq!(cut, Stretches { each: Duration::from_secs(1), count: 6, before: 1 });
        assert_eq!(settings(&retention(&plan(6), 1000.0))[1], ("segment.bytes", 1 << 20));
        assert_eq!(settings(&broker_settings(LENGTH_MIN)), [("log.retention.check.interval.ms", 1000)]);
        assert_eq!(settings(&broker_settings(LENGTH_MAX)), [("log.retention.check.interval.ms", 10_000)]);
    }

    fn stretch(latency_us: u64, rss: f64) -> Measurement {
        let mut latency = histogram();
        latency.record_n(latency_us, 100).unwrap();
        Measurement {
            ack_class: "written".to_owned(),
            numbers: [("rss_bytes".to_owned(), rss), ("cpu_ms_per_mb".to_owned(), rss)].into(),
            histogram: encode(&latency),
            ..Measurement::default()
        }
    }

    #[test]
    fn the_course_tells_a_step_at_deletion_and_a_drift_of_latency_and_memory() {
        let taken: Vec<Measurement> = [(100, 10.0), (100, 10.0), (200, 10.0), (200, 10.0), (100, 10.0), (300, 20.0)]
            .map(|(latency, rss)| stretch(latency, rss))
            .to_vec();
        let one = together(&taken, &Stretches { each: Duration::from_secs(5), count: 6, before: 2 });
        let number = |metric: Metric| one.number(metric.key());
        assert_eq!((number(Metric::DeletionStep), number(Metric::LatencyDrift)), (Some(2.0), Some(3.0)));
        assert_eq!((number(Metric::MemoryDrift), number(Metric::P50)), (Some(2.0), Some(100.0)));
        assert_eq!(number(Metric::CpuPerMb), Some(70.0 / 6.0));
        assert_eq!((one.course.len(), one.course[5].seconds), (6, 30.0));
        assert_eq!((one.ack_class.as_str(), decode(&one.histogram).unwrap().len()), ("written", 600));
    }

    #[test]
    fn a_broker_elsewhere_has_no_memory_to_tell_of() {
        let mut taken = vec![stretch(100, 1.0); 4];
        taken.iter_mut().for_each(|stretch| stretch.numbers.clear());
        let one = together(&taken, &Stretches { each: Duration::from_secs(1), count: 4, before: 1 });
        assert_eq!((one.number(Metric::MemoryDrift.key()), one.number(Metric::LatencyDrift.key())), (None, Some(1.0)));
        assert_eq!(
            together(&[], &Stretches { each: Duration::from_secs(1), count: 2, before: 1 }),
            Measurement::default()
        );
    }
}
