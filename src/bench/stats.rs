//! How sure: medians, intervals, ratios of pairs.
//!
//! Pure: resampling is seeded. Owns the arithmetic that turns several runs into one honest number. Always true: the same
//! values and seed give the same interval; intervals are of the ratio of *pairs*, so that drift of the host cancels.
//! Source: the percentile bootstrap; the paired design of the benchmark's method rules.

use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap. The interval's ends then move by less than 1 % of its width from seed to seed.
const RESAMPLES: usize = 10_000;

/// A number and how far it may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the interval leaves `value` out.
    pub fn excludes(&self, value: f64) -> bool {
        self.low > value || self.high < value
    }
}

/// The middle value; of an even number of them the mean of the two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The value below which `share` of the sorted values lie, interpolated. Panics when there are none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// The geometric mean of `ours / theirs` over pairs, with its bootstrap 95 % interval. Pairs in which either is not
/// positive are left out; `None` when none are left. One pair gives an interval of no width, which says nothing: ask for
/// at least five.
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0)
        .map(|(ours, theirs)| (ours / theirs).ln())
        .collect();
    let interval = bootstrap(&logs, seed, |values| values.iter().sum::<f64>() / values.len() as f64)?;
    Some(Interval { value: interval.value.exp(), low: interval.low.exp(), high: interval.high.exp() })
}

/// The median with its bootstrap 95 % interval.
pub fn median_interval(values: &[f64], seed: u64) -> Option<Interval> {
    bootstrap(values, seed, |values| median(values).expect("a resample is as large as the values"))
}

fn bootstrap(values: &[f64], seed: u64, estimate: impl Fn(&[f64]) -> f64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resample = vec![0.0; values.len()];
    let mut estimates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.iter_mut().for_each(|place| *place = values[random.usize(..values.len())]);
            estimate(&resample)
        })
        .collect();
    estimates.sort_by(f64::total_cmp);
    Some(Interval { value: estimate(values), low: quantile(&estimates, 0.025), high: quantile(&estimates, 0.975) })
}

/// What may be said of a ratio, where more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The interval lies above 1.
    Higher,
    /// The interval lies below 1.
    Lower,
    /// It holds 1: nothing was shown.
    NoDifferenceShown,
}

/// The finding of an interval of a ratio.
pub fn finding(ratio: &Interval) -> Finding {
    match ratio {
        ratio if ratio.low > 1.0 => Finding::Higher,
        ratio if ratio.high < 1.0 => Finding::Lower,
        _ => Finding::NoDifferenceShown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_constant_ratio_has_an_interval_of_no_width_whatever_the_host_did() {
        let pairs: Vec<(f64, f64)> = [1.0, 5.0, 2.0, 9.0, 3.0].iter().map(|drift| (2.0 * drift, *drift)).collect();
        let ratio = paired_ratio(&pairs, 1).unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        assert_eq!(finding(&ratio), Finding::Higher);
        assert!(ratio.excludes(1.0));
    }

    #[test]
    fn noise_around_one_shows_no_difference() {
        let mut random = fastrand::Rng::with_seed(5);
        let pairs: Vec<(f64, f64)> =
            (0..10).map(|_| (90.0 + 20.0 * random.f64(), 90.0 + 20.0 * random.f64())).collect();
        let ratio = paired_ratio(&pairs, 1).unwrap();
        assert_eq!(finding(&ratio), Finding::NoDifferenceShown, "{ratio:?}");
    }

    #[test]
    fn intervals_hold_the_truth_about_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(11);
        let holds = (0..200)
            .filter(|seed| {
                let values: Vec<f64> = (0..20).map(|_| random.f64() + random.f64() + random.f64()).collect();
                let interval = median_interval(&values, *seed).unwrap();
                interval.low <= 1.5 && 1.5 <= interval.high
            })
            .count();
        assert!(holds >= 180, "{holds} of 200");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_bad_pairs_are_left_out() {
        let pairs = [(1.0, 2.0), (3.0, 4.0), (0.0, 1.0), (5.0, 9.0)];
        assert_eq!(paired_ratio(&pairs, 3), paired_ratio(&pairs, 3));
        assert_eq!(paired_ratio(&[(0.0, 1.0)], 3), None);
    }
}
