//! When measuring may begin: after the warm-up time, and once throughput is level.
//!
//! Pure. Owns the decision, second by second. Always true: it never begins before the warm-up time, and never later than
//! its limit (a load that is not level is measured all the same, and said not to be).
//! Source: the stability test of the report's method rules: a coefficient of variation below 5 %.

use std::collections::VecDeque;

/// Seconds whose throughputs are compared.
const WINDOW: usize = 5;
/// Standard deviation over mean below which throughput is called level.
const VARIATION_MAX: f64 = 0.05;

/// What is known after one more second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warmth {
    /// Go on warming up.
    Warming,
    /// Measure from the next second on.
    Steady,
    /// Measure from the next second on, though throughput still swings: the time for warming up is over.
    Swinging,
}

/// Watches the warm-up.
#[derive(Clone, Debug)]
pub struct Steadiness {
    seconds_min: u64,
    seconds_max: u64,
    seen: u64,
    window: VecDeque<f64>,
}

impl Steadiness {
    /// At least `warmup` seconds. Without `until_level`, exactly those; with it, up to thrice as many and at least a window.
    pub fn new(warmup: u64, until_level: bool) -> Self {
        let seconds_max = if until_level { (warmup * 3).max(warmup + 2 * WINDOW as u64) } else { warmup };
        Self { seconds_min: warmup, seconds_max, seen: 0, window: VecDeque::with_capacity(WINDOW) }
    }

    /// Nothing is to be warmed up.
    pub fn is_off(&self) -> bool {
        self.seconds_max == 0
    }

    /// One more second has passed, with so many records.
    pub fn on_second(&mut self, records: f64) -> Warmth {
        self.seen += 1;
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(records);
        let level = self.variation().is_some_and(|variation| variation < VARIATION_MAX);
        match () {
            () if self.seen < self.seconds_min => Warmth::Warming,
            () if level => Warmth::Steady,
            () if self.seen >= self.seconds_max => Warmth::Swinging,
            () => Warmth::Warming,
        }
    }

    /// Standard deviation over mean of the last seconds; `None` before there are enough.
    pub fn variation(&self) -> Option<f64> {
        (self.window.len() == WINDOW).then(|| variation(self.window.iter().copied()))
    }
}

/// Standard deviation over mean; 0 for nothing.
pub fn variation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count();
    if count == 0 {
        return 0.0;
    }
    let mean = values.clone().sum::<f64>() / count as f64;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
    if mean == 0.0 { 0.0 } else { variance.sqrt() / mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(steadiness: &mut Steadiness, seconds: impl Iterator<Item = f64>) -> (usize, Warmth) {
        for (index, records) in seconds.enumerate() {
            match steadiness.on_second(records) {
                Warmth::Warming => {}
                warmth => return (index + 1, warmth),
            }
        }
        panic!("never began");
    }

    #[test]
    fn a_level_load_is_measured_after_the_warm_up_time() {
        let mut steadiness = Steadiness::new(10, true);
        assert_eq!(begins(&mut steadiness, std::iter::repeat(1000.0)), (10, Warmth::Steady));
    }

    #[test]
    fn a_rising_load_is_waited_for() {
        let mut steadiness = Steadiness::new(5, true);
        let rising = (1..).map(|second: i32| if second < 12 { f64::from(second) * 100.0 } else { 1200.0 });
        let (second, warmth) = begins(&mut steadiness, rising);
        assert_eq!(warmth, Warmth::Steady);
        assert!((12..=16).contains(&second), "{second}");
    }

    #[test]
    fn a_load_that_never_levels_is_measured_and_said_to_swing() {
        let mut steadiness = Steadiness::new(5, true);
        let swinging = (0..).map(|second: i32| if second % 2 == 0 { 100.0 } else { 1000.0 });
        assert_eq!(begins(&mut steadiness, swinging), (15, Warmth::Swinging));
    }

    #[test]
    fn without_the_test_the_time_alone_decides() {
        let mut steadiness = Steadiness::new(3, false);
        assert_eq!(begins(&mut steadiness, [5.0, 50.0, 500.0, 1.0].into_iter()), (3, Warmth::Swinging));
        assert!(Steadiness::new(0, false).is_off());
    }
}
