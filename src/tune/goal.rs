//! What is wanted: the number that is made better, and what must hold meanwhile.
//!
//! Pure. Owns how two measurements are told better from worse. Always true: a setting that holds the SLO and carries the load
//! beats every one that does not; among those that do not, the nearer miss wins; values are logarithms, so that a difference
//! is a ratio. Source: "max MB/s subject to p99 ≤ x" and "min CPU/MB subject to p99 ≤ x" of the tuner's design.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::slo::Slo;
use super::trial::Measured;

/// A rate is carried when this share of it was acknowledged: less means a backlog that grows.
pub const CARRIED_SHARE: f64 = 0.98;
/// Errors and doubtful numbers miss the goal by this much, as if the latency were e times its limit.
const UNUSABLE_EXCESS: f64 = 1.0;

/// Which number is made better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The percentile of the SLO; p99 without one.
    Latency,
    /// Bytes per second.
    Throughput,
    /// Processor time per megabyte: the broker's where it is known, else the client's.
    Cost,
}

impl Target {
    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Cost => "cost",
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Latency, Self::Throughput, Self::Cost]
            .into_iter()
            .find(|target| target.name() == text)
            .ok_or_else(|| format!("`{text}` is no target; there are latency, throughput and cost"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Made better.
    pub target: Target,
    /// Must hold.
    pub slo: Slo,
}

/// How a measurement stands before a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Zero or less: all that must hold does. Else the logarithm of how far the worst misses.
    pub excess: f64,
    /// More is better; the logarithm of the target's number, with its sign.
    pub value: f64,
}

impl Standing {
    /// Whether the setting may be recommended.
    pub fn is_feasible(&self) -> bool {
        self.excess <= 0.0
    }

    /// The better one is greater.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.is_feasible(), other.is_feasible()) {
            (true, true) => self.value.total_cmp(&other.value),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => other.excess.total_cmp(&self.excess),
        }
    }
}

impl Goal {
    /// The percentile that latency means here.
    pub fn percentile(&self) -> &'static str {
        self.slo.percentile().unwrap_or("p99")
    }

    /// The target's number: microseconds, bytes per second, or milliseconds per megabyte. `None` when it was not measured.
    pub fn number(&self, measured: &Measured) -> Option<f64> {
        let number = match self.target {
            Target::Latency => measured.percentile(self.percentile()),
            Target::Throughput => Some(measured.bytes_per_second),
            Target::Cost => measured.cpu_ms_per_mb(),
        };
        number.filter(|number| *number > 0.0)
    }

    /// 1 where more is better, −1 where less is.
    pub fn sign(&self) -> f64 {
        if self.target == Target::Throughput { 1.0 } else { -1.0 }
    }

    /// What the target's number is called.
    pub fn number_name(&self) -> &'static str {
        match self.target {
            Target::Latency => self.percentile(),
            Target::Throughput => "MB/s",
            Target::Cost => "CPU per MB",
        }
    }

    /// How the measurement stands.
    pub fn standing(&self, measured: &Measured) -> Standing {
        let value = self.number(measured).map(|number| self.sign() * number.ln());
        let mut excess = self.slo.excess(measured).unwrap_or(-1.0);
        if let Some(offered) = measured.offered_per_second.filter(|offered| *offered > 0.0) {
            let short = (offered * CARRIED_SHARE / measured.records_per_second.max(1e-9)).ln();
            // A shortfall of 2 % is as bad as a latency of twice the limit: the backlog grows without end.
            excess = excess.max((short * 35.0).clamp(-1.0, 2.0));
        }
        if value.is_none() || measured.errors > 0 || !measured.valid {
            excess = excess.max(UNUSABLE_EXCESS);
        }
        // Without its number a measurement is worth less than any with it, and never feasible.
        Standing { excess, value: value.unwrap_or(-1e3) }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.target {
            Target::Latency => format!("the lowest {}", self.percentile()),
            Target::Throughput => "the most MB/s".to_owned(),
            Target::Cost => "the least CPU per MB".to_owned(),
        };
        if self.slo.is_empty() { f.write_str(&what) } else { write!(f, "{what} while {} holds", self.slo) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(p99_us: f64, records_per_second: f64) -> Measured {
        Measured {
            p99_us,
            records_per_second,
            bytes_per_second: records_per_second * 1000.0,
            offered_per_second: Some(1000.0),
            valid: true,
            ..Measured::default()
        }
    }

    fn goal(target: Target, slo: &str) -> Goal {
        Goal { target, slo: slo.parse().unwrap_or_default() }
    }

    #[test]
    fn a_setting_that_holds_beats_a_faster_one_that_does_not() {
        let goal = goal(Target::Throughput, "p99<=10ms");
        let (holds, misses) = (measured(9_000.0, 1000.0), measured(11_000.0, 2000.0));
        assert_eq!(goal.standing(&holds).compare(&goal.standing(&misses)), Ordering::Greater);
        let further = measured(30_000.0, 3000.0);
        assert_eq!(goal.standing(&misses).compare(&goal.standing(&further)), Ordering::Greater);
    }

    #[test]
    fn a_load_that_is_not_carried_is_no_success_however_quick_the_answers() {
        let goal = goal(Target::Latency, "");
        assert!(goal.standing(&measured(1_000.0, 990.0)).is_feasible());
        assert!(!goal.standing(&measured(100.0, 900.0)).is_feasible());
        let broken = Measured { errors: 1, ..measured(1.0, 1000.0) };
        assert!(!goal.standing(&broken).is_feasible());
        let doubtful = Measured { valid: false, ..measured(1.0, 1000.0) };
        assert!(!goal.standing(&doubtful).is_feasible());
    }

    #[test]
    fn cost_that_was_not_measured_is_never_feasible() {
        assert!(!goal(Target::Cost, "").standing(&measured(1.0, 1000.0)).is_feasible());
    }

    #[test]
    fn goals_say_themselves() {
        assert_eq!(goal(Target::Cost, "p99.9<=20ms").to_string(), "the least CPU per MB while p99.9<=20ms holds");
        assert_eq!(goal(Target::Latency, "p99.9<=20ms").to_string(), "the lowest p99.9 while p99.9<=20ms holds");
        assert!("speed".parse::<Target>().is_err());
    }
}
