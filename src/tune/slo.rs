//! `--slo 'p99<=10ms'`: what must hold at a setting before it may be recommended.
//!
//! Pure. Owns the grammar (the one of bench's `--fail-if`, with `and` or a comma between conditions, since all must hold) and
//! how far a measurement misses it. Always true: the distance is continuous, so that a search can walk towards settings that
//! hold from ones that do not; what was not measured does not hold.

use std::fmt;
use std::str::FromStr;

use super::trial::{Measured, NUMBERS, Unit};
use crate::bench::units;

/// A measurement this many times beyond its limit is as bad as one any further: e^2.
const EXCESS_MAX: f64 = 2.0;

#[derive(Clone, Debug, PartialEq)]
struct Limit {
    text: String,
    metric: usize,
    /// `<` and `<=`: the value is the largest allowed.
    upper: bool,
    value: f64,
}

/// Conditions that must all hold; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slo(Vec<Limit>);

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split(" and ").flat_map(|part| part.split([',', '&'])).map(str::trim).filter(|part| !part.is_empty());
        let limits = parts.map(limit).collect::<Result<Vec<_>, _>>()?;
        if limits.is_empty() { Err("the SLO is empty; write it as p99<=10ms".to_owned()) } else { Ok(Self(limits)) }
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    let signs = [("<=", true), (">=", false), ("<", true), (">", false)];
    let (upper, name, value) = signs
        .iter()
        .find_map(|(sign, upper)| text.split_once(sign).map(|(name, value)| (*upper, name.trim(), value.trim())))
        .ok_or_else(|| format!("`{text}` is no limit; write it as p99<=10ms"))?;
    let metric = NUMBERS.iter().position(|(known, ..)| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<&str> = NUMBERS.iter().map(|(name, ..)| *name).collect();
        format!("`{name}` cannot be limited; there are {}", names.join(", "))
    })?;
    let number = match NUMBERS[metric].1 {
        // A bare number would be milliseconds to one reader and microseconds to the next.
        Unit::Time if value.ends_with(|letter: char| letter.is_ascii_digit()) => {
            return Err(format!("`{text}` needs a unit: us, ms or s"));
        }
        Unit::Time => units::parse_millis(value)?.as_secs_f64() * 1e6,
        Unit::Count => units::parse_count(value)?,
        Unit::Bytes => units::parse_bytes(value.trim_end_matches("/s"))? as f64,
        Unit::Plain => value.parse().map_err(|_| format!("`{value}` is no number"))?,
    };
    if number.is_finite() && number > 0.0 {
        Ok(Limit { text: text.to_owned(), metric, upper, value: number })
    } else {
        Err(format!("`{text}`: the limit must be above zero"))
    }
}

impl Limit {
    /// The logarithm of how many times the limit is missed; negative when there is room.
    fn excess(&self, measured: &Measured) -> f64 {
        match NUMBERS[self.metric].2(measured) {
            Some(found) if found > 0.0 => {
                let ratio = (found / self.value).ln();
                (if self.upper { ratio } else { -ratio }).clamp(-EXCESS_MAX, EXCESS_MAX)
            }
            _ => EXCESS_MAX,
        }
    }
}

impl Slo {
    /// Whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The logarithm of how many times the worst limit is missed; zero or less when all hold. `None` when nothing is asked.
    pub fn excess(&self, measured: &Measured) -> Option<f64> {
        self.0.iter().map(|limit| limit.excess(measured)).reduce(f64::max)
    }

    /// The percentile the SLO is about, when it is about one: a search for latency improves the same number.
    pub fn percentile(&self) -> Option<&'static str> {
        self.0.iter().map(|limit| NUMBERS[limit.metric]).find(|(_, unit, _)| *unit == Unit::Time).map(|(name, ..)| name)
    }

    /// The limit on that percentile, microseconds: drawn into figures.
    pub fn limit_us(&self, percentile: &str) -> Option<f64> {
        self.0.iter().find(|limit| NUMBERS[limit.metric].0 == percentile && limit.upper).map(|limit| limit.value)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.0.iter().map(|limit| limit.text.as_str()).collect();
        f.write_str(&parts.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(p99_us: f64, records_per_second: f64) -> Measured {
        Measured { p99_us, records_per_second, ..Measured::default() }
    }

    #[test]
    fn all_limits_must_hold_and_the_worst_one_counts() {
        let slo: Slo = "p99<=10ms and records/s>=50k".parse().unwrap();
        assert!(slo.excess(&measured(9_000.0, 60_000.0)).unwrap() < 0.0);
        assert!((slo.excess(&measured(20_000.0, 60_000.0)).unwrap() - 2f64.ln()).abs() < 1e-12);
        assert!((slo.excess(&measured(9_000.0, 25_000.0)).unwrap() - 2f64.ln()).abs() < 1e-12);
        assert_eq!((slo.percentile(), slo.limit_us("p99")), (Some("p99"), Some(10_000.0)));
        assert_eq!(slo.to_string(), "p99<=10ms and records/s>=50k");
    }

    #[test]
    fn what_was_not_measured_does_not_hold_and_nothing_asked_is_none() {
        let slo: Slo = "cpu-ms/mb<1".parse().unwrap();
        assert_eq!(slo.excess(&measured(1.0, 1.0)), Some(EXCESS_MAX));
        assert_eq!(Slo::default().excess(&measured(1.0, 1.0)), None);
    }

    #[test]
    fn wrong_limits_are_refused_with_what_there_is() {
        for (text, part) in [
            ("", "empty"),
            ("p99", "no limit"),
            ("p98<1ms", "cannot be limited"),
            ("p99<10", "unit"),
            ("p99<0ms", "above zero"),
            ("records/s>many", "no count"),
        ] {
            let why = text.parse::<Slo>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
