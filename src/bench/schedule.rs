//! When records are to be sent, decided before anything is known of how the broker fares.
//!
//! Pure: `now` is a parameter, in microseconds since the run began. Owns the intended send times of one producer. Does not
//! own the waiting. Always true: in an open loop the nth intended time depends on the seed and n alone, never on answers,
//! so that a stalled broker is charged for every record that waited behind the stall (no coordinated omission).
//! Source: wrk2's constant rate; OpenMessaging Benchmark issue 247 for what happens without it.

use std::fmt;
use std::str::FromStr;

use super::units;

/// Microseconds since the run began.
pub type Micros = u64;

/// The rate asked for, of the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as answers come: a closed loop, bounded by what may be outstanding.
    Max,
    /// Records a second.
    Fixed(f64),
    /// From the first to the second, in a straight line over the run.
    Ramp(f64, f64),
}

/// `max`, `50000`, `50k`, `ramp:10k..200k`.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let positive = |text: &str| match units::parse_count(text)? {
            rate if rate > 0.0 && rate <= 1e9 => Ok(rate),
            _ => Err(format!("`{text}` is no rate: between 1 per second and 1G")),
        };
        if text == "max" {
            Ok(Self::Max)
        } else if let Some(range) = text.strip_prefix("ramp:") {
            let (from, to) = range.split_once("..").ok_or("write ramp:FROM..TO, such as ramp:10k..200k")?;
            Ok(Self::Ramp(positive(from)?, positive(to)?))
        } else {
            positive(text).map(Self::Fixed)
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Fixed(rate) => write!(f, "{rate}"),
            Self::Ramp(from, to) => write!(f, "ramp:{from}..{to}"),
        }
    }
}

/// How the records of an open loop follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Evenly.
    Uniform,
    /// As independent users would send: gaps drawn from the exponential distribution.
    Poisson,
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "poisson" => Ok(Self::Poisson),
            _ => Err(format!("`{text}` is no arrival; there are uniform and poisson")),
        }
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Poisson => "poisson",
        })
    }
}

/// The intended send times of one of `producers` equal producers.
#[derive(Clone, Debug)]
pub struct Schedule {
    shape: Shape,
    arrival: Arrival,
    random: fastrand::Rng,
    /// Records due before the next one, as a real number: the Poisson process in units of its own rate.
    position: f64,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Records per microsecond.
    Fixed(f64),
    /// From, to (per microsecond), and over how many microseconds.
    Ramp(f64, f64, f64),
}

impl Schedule {
    /// `None` for [`Rate::Max`], which has no intended times. `ramp_us` is how long a ramp takes; at its end the rate stays.
    pub fn new(
        rate: Rate,
        arrival: Arrival,
        producers: u32,
        producer: u32,
        ramp_us: Micros,
        seed: u64,
    ) -> Option<Self> {
        let share = 1e-6 / f64::from(producers);
        let shape = match rate {
            Rate::Max => return None,
            Rate::Fixed(rate) => Shape::Fixed(rate * share),
            Rate::Ramp(from, to) => Shape::Ramp(from * share, to * share, ramp_us.max(1) as f64),
        };
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(producer).wrapping_mul(0xd1b5_4a32_d192_ed03));
        let position = match arrival {
            // Producers take turns rather than all sending at the same instant.
            Arrival::Uniform => (f64::from(producer) + 0.5) / f64::from(producers),
            Arrival::Poisson => gap(&mut random),
        };
        Some(Self { shape, arrival, random, position })
    }

    /// When the next record is to be sent.
    pub fn next_at(&self) -> Micros {
        match self.shape {
            Shape::Fixed(rate) => (self.position / rate) as Micros,
            Shape::Ramp(from, to, over) => {
                let slope = (to - from) / over;
                let due_at_end = (from + to) / 2.0 * over;
                let at = if self.position >= due_at_end {
                    over + (self.position - due_at_end) / to
                } else if slope == 0.0 {
                    self.position / from
                } else {
                    // The root of from·t + slope·t²/2 = position, in the form that stays exact for small slopes.
                    2.0 * self.position / (from + (from * from + 2.0 * slope * self.position).max(0.0).sqrt())
                };
                at as Micros
            }
        }
    }

    /// The record of [`Schedule::next_at`] is on its way: on to the one after it.
    pub fn advance(&mut self) {
        self.position += match self.arrival {
            Arrival::Uniform => 1.0,
            Arrival::Poisson => gap(&mut self.random),
        };
    }

    /// About how many records are due before `at`, of those not advanced over: what is drawn may differ by its root.
    pub fn due_before(&self, at: Micros) -> u64 {
        let at = at as f64;
        let due = match self.shape {
            Shape::Fixed(rate) => rate * at,
            Shape::Ramp(from, to, over) => {
                let within = at.min(over);
                from * within + (to - from) / over * within * within / 2.0 + (at - within) * to
            }
        };
        (due - self.position).max(0.0).ceil() as u64
    }

    /// Advances over several records at once.
    pub fn skip(&mut self, records: u64) {
        match self.arrival {
            Arrival::Poisson if records == 1 => self.advance(),
            _ => self.position += records as f64,
        }
    }

    /// What the whole schedule offers at `at`, records a second.
    pub fn rate_at(rate: Rate, at: Micros, ramp_us: Micros) -> Option<f64> {
        match rate {
            Rate::Max => None,
            Rate::Fixed(rate) => Some(rate),
            Rate::Ramp(from, to) => Some(from + (to - from) * (at as f64 / ramp_us.max(1) as f64).min(1.0)),
        }
    }
}

fn gap(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &mut Schedule, count: usize) -> Vec<Micros> {
        (0..count)
            .map(|_| {
                let at = schedule.next_at();
                schedule.advance();
                at
            })
            .collect()
    }

    #[test]
    fn uniform_producers_take_turns_and_never_drift() {
        let mut first = Schedule::new(Rate::Fixed(1000.0), Arrival::Uniform, 2, 0, 0, 1).unwrap();
        let mut second = Schedule::new(Rate::Fixed(1000.0), Arrival::Uniform, 2, 1, 0, 1).unwrap();
        assert_eq!(times(&mut first, 3), [500, 2500, 4500]);
        assert_eq!(times(&mut second, 3), [1500, 3500, 5500]);
        let last = *times(&mut first, 1_000_000).last().unwrap();
        assert_eq!(last, 500 + 2000 * 1_000_002);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_independent_users() {
        let mut schedule = Schedule::new(Rate::Fixed(1000.0), Arrival::Poisson, 1, 0, 0, 42).unwrap();
        let times = times(&mut schedule, 100_000);
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1000.0).abs() < 15.0, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn a_ramp_offers_the_area_under_its_line() {
        let second = 1_000_000;
        let mut schedule = Schedule::new(Rate::Ramp(100.0, 300.0), Arrival::Uniform, 1, 0, 10 * second, 1).unwrap();
        let times = times(&mut schedule, 3000);
        let until = |at: Micros| times.iter().filter(|time| **time < at).count();
        assert_eq!(until(5 * second), 750);
        assert_eq!(until(10 * second), 2000);
        assert_eq!(until(11 * second), 2300);
        assert!(times.is_sorted());
        assert_eq!(Schedule::rate_at(Rate::Ramp(100.0, 300.0), 5 * second, 10 * second), Some(200.0));
    }

    #[test]
    fn what_is_due_is_known_without_a_walk() {
        let second = 1_000_000;
        for rate in [Rate::Fixed(200.0), Rate::Ramp(100.0, 300.0), Rate::Ramp(300.0, 100.0)] {
            let mut schedule = Schedule::new(rate, Arrival::Uniform, 1, 0, 10 * second, 1).unwrap();
            let due = schedule.due_before(12 * second);
            let mut walked = 0;
            while schedule.next_at() < 12 * second {
                schedule.skip(1);
                walked += 1;
            }
            assert!(due.abs_diff(walked) <= 1, "{rate}: {due}, {walked}");
            assert_eq!(schedule.due_before(12 * second), 0);
        }
    }

    #[test]
    fn a_ramp_may_fall() {
        let mut schedule = Schedule::new(Rate::Ramp(300.0, 100.0), Arrival::Uniform, 1, 0, 10_000_000, 1).unwrap();
        let times = times(&mut schedule, 2500);
        assert!(times.is_sorted());
        assert_eq!(times.iter().filter(|time| **time < 10_000_000).count(), 2000);
    }

    #[test]
    fn rates_are_read_and_absurd_ones_refused() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("50k".parse(), Ok(Rate::Fixed(50_000.0)));
        assert_eq!("ramp:10k..200k".parse(), Ok(Rate::Ramp(10_000.0, 200_000.0)));
        for text in ["0", "-1", "fast", "ramp:1", "ramp:0..5", "2000G"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert!(Schedule::new(Rate::Max, Arrival::Uniform, 1, 0, 0, 1).is_none());
    }
}
