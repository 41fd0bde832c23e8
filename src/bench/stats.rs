//! How sure: medians, intervals, ratios of pairs.
//!
//! Pure. Owns the arithmetic that turns several runs into one honest number. Always true: intervals are of the ratio of *pairs*, so
//! that drift of the host cancels; an estimate is the middle of its interval; the same values give the same interval.
//! Source: Student, The probable error of a mean (1908); Abramowitz and Stegun, 26.7 (his distribution, whole degrees of freedom);
//! the paired design of the benchmark's method rules.
//!
//! The ratio is the geometric mean of the pairs' ratios, and the interval Student's, of the mean of their logarithms: exact where
//! noise multiplies, on the safe side where its tails are heavier or both sides of a pair are skewed alike (what is skewed in both
//! cancels in their difference); where only one side is, it misses up to 9 % at five pairs. Not a percentile bootstrap: resamples of a
//! few values spread too little, and of pairs without any difference it claims one in 26 % of cases with three pairs, 17 % with five,
//! 10 % with ten, 20 % with five of which one side is skewed. Nor a bootstrap-t: at three pairs it has no ends, at five it is a third
//! wider for the same promise, at ten it breaks it where tails are heavy (7 %). The tests below simulate what is promised.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use serde::{Deserialize, Serialize};

/// The share of intervals that may miss the truth: they are 95 % intervals.
pub const MISS: f64 = 0.05;

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

/// The geometric mean of `ours / theirs` over pairs, with its 95 % interval. Pairs in which either is not positive are left out; `None`
/// when none are left. One pair gives an interval of no width, which says nothing: ask for at least five.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    paired_ratio_missing(pairs, MISS)
}

/// As [`paired_ratio`], with an interval that misses the truth in a share `miss` of all cases: for those who look at their pairs more
/// than once.
pub fn paired_ratio_missing(pairs: &[(f64, f64)], miss: f64) -> Option<Interval> {
    let logs: Vec<f64> = pairs
        .iter()
        .filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0)
        .map(|(ours, theirs)| (ours / theirs).ln())
        .collect();
    if logs.is_empty() {
        return None;
    }
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let half = match u32::try_from(logs.len() - 1).unwrap_or(u32::MAX) {
        0 => 0.0,
        degrees => {
            let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
            student(degrees, miss) * (squares / f64::from(degrees) / count).sqrt()
        }
    };
    Some(Interval { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
}

/// How many standard errors from the middle Student's distribution ends but for a share `miss`, half of it on each side.
fn student(degrees: u32, miss: f64) -> f64 {
    // Halving the bracket so often reaches the last digit of an angle.
    const HALVINGS: u32 = 60;
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if student_within(degrees, middle) < 1.0 - miss { low = middle } else { high = middle }
    }
    f64::from(degrees).sqrt() * low.tan()
}

/// The share of Student's distribution within `√degrees · tan(angle)` standard errors of its middle.
fn student_within(degrees: u32, angle: f64) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    let (mut step, mut term, mut sum) = if odd { (1, cosine, 0.0) } else { (0, 1.0, 0.0) };
    while step + 2 <= degrees {
        sum += term;
        term *= cosine * cosine * f64::from(step + 1) / f64::from(step + 2);
        step += 2;
    }
    if odd { (angle + sine * sum) * FRAC_2_PI } else { sine * sum }
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
pub(crate) mod tests {
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
        let ratio = paired_ratio(&pairs).unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        assert_eq!(finding(&ratio), Finding::Higher);
        assert!(ratio.excludes(1.0));
    }

    #[test]
    fn the_distribution_is_that_of_the_tables() {
        for (degrees, miss, value) in [
            (1, 0.05, 12.706),
            (2, 0.05, 4.303),
            (3, 0.05, 3.182),
            (4, 0.05, 2.776),
            (9, 0.05, 2.262),
            (30, 0.05, 2.042),
            (4, 0.01, 4.604),
            (1000, 0.05, 1.962),
        ] {
            assert!((student(degrees, miss) - value).abs() < 0.001, "{degrees} {miss}: {}", student(degrees, miss));
        }
    }

    /// Noise of one measurement, as a logarithm.
    pub(crate) type Noise = fn(&mut fastrand::Rng) -> f64;

    pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
    }

    /// Student's with three degrees of freedom: one in a hundred lies beyond six.
    pub(crate) fn heavy(random: &mut fastrand::Rng) -> f64 {
        let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
        normal(random) / (squares / 3.0).sqrt()
    }

    /// Never much better, now and then much worse, as latencies are.
    pub(crate) fn skewed(random: &mut fastrand::Rng) -> f64 {
        -(1.0 - random.f64()).ln()
    }

    /// Pairs whose sides have noise of a spread of about 3 %.
    pub(crate) fn noisy_pairs(count: usize, ratio: f64, noise: Noise, random: &mut fastrand::Rng) -> Vec<(f64, f64)> {
        let mut side = |middle: f64| middle * (0.03 * noise(random)).exp();
        (0..count).map(|_| (side(100.0 * ratio), side(100.0))).collect()
    }

    /// The share of samples of pairs in which a difference is claimed.
    fn claims(count: usize, ratio: f64, noise: Noise) -> f64 {
        const SAMPLES: usize = 4000;
        let mut random = fastrand::Rng::with_seed(count as u64);
        let claimed = |_: &usize| {
            let pairs = noisy_pairs(count, ratio, noise, &mut random);
            finding(&paired_ratio(&pairs).unwrap()) != Finding::NoDifferenceShown
        };
        (0..SAMPLES).filter(claimed).count() as f64 / SAMPLES as f64
    }

    #[test]
    fn pairs_without_a_difference_claim_one_no_more_often_than_promised() {
        for count in [3, 5, 10, 15] {
            for noise in [normal as Noise, heavy, skewed] {
                let share = claims(count, 1.0, noise);
                assert!(share < 0.06, "{count} pairs: {share}");
            }
            // And not because nothing is ever claimed.
            assert!(claims(count, 1.0, normal) > 0.04, "{count} pairs");
        }
    }

    #[test]
    fn a_fifth_more_at_three_percent_of_noise_is_shown_by_five_pairs() {
        assert!(claims(5, 1.2, normal) > 0.99);
        assert!(claims(5, 1.2, skewed) > 0.98);
    }

    #[test]
    fn the_estimate_is_the_middle_of_its_interval() {
        let ratio = paired_ratio(&[(2.0, 1.0), (3.0, 1.0), (4.5, 1.0)]).unwrap();
        assert!((ratio.value - 3.0).abs() < 1e-9 && (ratio.low * ratio.high - 9.0).abs() < 1e-9, "{ratio:?}");
        let wider = paired_ratio_missing(&[(2.0, 1.0), (3.0, 1.0), (4.5, 1.0)], 0.01).unwrap();
        assert!(wider.value == ratio.value && wider.low < ratio.low && wider.high > ratio.high);
    }

    #[test]
    fn pairs_without_a_number_are_left_out() {
        assert_eq!(paired_ratio(&[(1.0, 2.0), (0.0, 1.0), (3.0, 4.0)]), paired_ratio(&[(1.0, 2.0), (3.0, 4.0)]));
        assert_eq!(paired_ratio(&[(0.0, 1.0)]), None);
    }
}
