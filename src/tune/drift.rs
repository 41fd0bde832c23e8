//! Whether the machine stayed the same: the default point, measured again and again.
//!
//! Pure. Owns the estimate of how far the host moved between two moments and whether that is more than noise. Always true: the
//! correction is zero as long as no drift is shown, because correcting by noise would add it to every trial.
//! Source: the drift control of the tuner's design; ABBA pairs at the end of a search do the rest.

use std::time::Duration;

/// Drift beyond this makes the search doubtful, corrected or not: the host did something else meanwhile.
pub const DRIFT_MAX: f64 = 0.15;
/// Less than this is never called drift.
const DRIFT_MIN: f64 = 0.05;
/// Fewer checks than this show nothing.
const CHECKS_MIN: usize = 5;
/// A change this many standard errors wide is drift: the strongest of all changes by chance is below it in about 49 searches
/// of 50, given more room when there are few checks.
const CHANGE_MIN: f64 = 3.2;
const CHANGE_FEW: f64 = 7.0;

/// The default point's number (as a logarithm) at the times it was measured.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    checks: Vec<(Duration, f64)>,
}

impl Drift {
    /// One more measurement of the default point; `value` is the logarithm of the target's number.
    pub fn on_check(&mut self, at: Duration, value: f64) {
        self.checks.push((at, value));
    }

    /// How many there are.
    pub fn checks(&self) -> usize {
        self.checks.len()
    }

    /// When and what.
    pub fn points(&self) -> &[(Duration, f64)] {
        &self.checks
    }

    /// Each check replaced by the middle one of itself and its neighbours: a single stall is no drift.
    fn smooth(&self) -> Vec<(Duration, f64)> {
        let value = |index: usize| self.checks[index].1;
        let last = self.checks.len().saturating_sub(1);
        let middle = |index: usize| {
            let mut near = [value(index.saturating_sub(1)), value(index), value((index + 1).min(last))];
            near.sort_by(f64::total_cmp);
            near[1]
        };
        self.checks.iter().enumerate().map(|(index, (at, _))| (*at, middle(index))).collect()
    }

    /// The two stretches of checks that differ most: by how many standard errors of that difference, and by how much.
    fn strongest_change(&self) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.checks.iter().map(|(_, value)| *value).collect();
        if values.len() < CHECKS_MIN {
            return None;
        }
        let freedom = (values.len() - 2) as f64;
        let change = |at: usize| {
            let (before, after) = values.split_at(at);
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let squares = |part: &[f64], mean: f64| part.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            let (low, high) = (mean(before), mean(after));
            let deviation = ((squares(before, low) + squares(after, high)) / freedom).sqrt();
            let error = deviation * (1.0 / before.len() as f64 + 1.0 / after.len() as f64).sqrt();
            ((high - low).abs() / error.max(1e-9), (high - low).abs())
        };
        // One check alone on a side is a stall, not a stretch.
        (2..=values.len() - 2).map(change).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// How far the host moved from one stretch of time to the next, as a share, when that is more than noise. `None` when no
    /// drift is shown.
    pub fn shown(&self) -> Option<f64> {
        let (errors, by) = self.strongest_change()?;
        let freedom = self.checks.len() as f64 - 2.0;
        (by > DRIFT_MIN.ln_1p() && errors > CHANGE_MIN + CHANGE_FEW / freedom).then(|| by.exp_m1())
    }

    /// What to take from a value (a logarithm) measured at `at` so that it stands beside those of the whole search.
    pub fn correction(&self, at: Duration) -> f64 {
        if self.shown().is_none() {
            return 0.0;
        }
        let smooth = self.smooth();
        let mean = smooth.iter().map(|(_, value)| *value).sum::<f64>() / smooth.len() as f64;
        let after = smooth.partition_point(|(when, _)| *when <= at);
        let value = match (after.checked_sub(1).map(|before| smooth[before]), smooth.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let share = (at - from).as_secs_f64() / (*to - from).as_secs_f64().max(1e-9);
                low + (high - low) * share
            }
            (Some((_, value)), None) => value,
            (None, first) => first.map_or(mean, |(_, value)| *value),
        };
        value - mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(values: impl IntoIterator<Item = f64>) -> Drift {
        let mut drift = Drift::default();
        for (index, value) in values.into_iter().enumerate() {
            drift.on_check(Duration::from_secs(10 * index as u64), f64::ln(value));
        }
        drift
    }

    #[test]
    fn noise_is_no_drift_and_is_not_corrected() {
        let mut shown = 0;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let drift = drift((0..10).map(|_| 5.0 * (1.0 + 0.1 * (random.f64() + random.f64() + random.f64() - 1.5))));
            shown += u32::from(drift.shown().is_some());
            if drift.shown().is_none() {
                assert_eq!(drift.correction(Duration::from_secs(30)), 0.0);
            }
        }
        assert!(shown <= 10, "{shown} of 200 called drift");
    }

    #[test]
    fn a_step_and_a_slope_are_shown_and_corrected() {
        let step = drift([5.0, 5.1, 4.95, 5.0, 7.0, 7.1, 6.9, 7.0]);
        let shown = step.shown().unwrap();
        assert!((0.3..0.5).contains(&shown), "{shown}");
        let before = step.correction(Duration::from_secs(5));
        let after = step.correction(Duration::from_secs(65));
        assert!((after - before - 1.4f64.ln()).abs() < 0.05, "{before} {after}");

        let slope = drift((0..10).map(|index| 5.0 * 1.05f64.powi(index)));
        assert!(slope.shown().unwrap() > 0.2);
    }

    #[test]
    fn one_stall_is_no_drift() {
        assert_eq!(drift([5.0, 5.1, 4.9, 50.0, 5.0, 5.05, 4.95]).shown(), None);
        assert_eq!(drift([5.0, 9.0]).shown(), None);
        assert_eq!(Drift::default().correction(Duration::ZERO), 0.0);
    }
}
