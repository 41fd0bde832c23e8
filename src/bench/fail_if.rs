//! `--fail-if 'p99>20ms'`: conditions under which a run that went well is a failure all the same, for CI.
//!
//! Pure. Owns the grammar: METRIC OPERATOR VALUE, several joined by `or`. Always true: a metric the run does not have makes
//! the condition fail loudly instead of passing silently.
//! Also the other way round: `--slo 'p99<=10ms'` reads with the same grammar what must hold.

use std::fmt;
use std::str::FromStr;

use super::report::{Percentiles, Run};
use super::units;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Micros,
    Bytes,
    Count,
    Plain,
}

/// Name, unit, and where it lies in a run.
type Metric = (&'static str, Unit, fn(&Run) -> Option<f64>);

fn latency(run: &Run, pick: fn(&Percentiles) -> f64) -> Option<f64> {
    run.headline_latency().map(pick)
}

const METRICS: &[Metric] = &[
    ("p50", Unit::Micros, |run| latency(run, |all| all.p50 as f64)),
    ("p90", Unit::Micros, |run| latency(run, |all| all.p90 as f64)),
    ("p95", Unit::Micros, |run| latency(run, |all| all.p95 as f64)),
    ("p99", Unit::Micros, |run| latency(run, |all| all.p99 as f64)),
    ("p99.9", Unit::Micros, |run| latency(run, |all| all.p999 as f64)),
    ("p99.99", Unit::Micros, |run| latency(run, |all| all.p9999 as f64)),
    ("max", Unit::Micros, |run| latency(run, |all| all.max as f64)),
    ("mean", Unit::Micros, |run| latency(run, |all| all.mean)),
    ("e2e.p50", Unit::Micros, |run| run.results.end_to_end_us.as_ref().map(|all| all.p50 as f64)),
    ("e2e.p99", Unit::Micros, |run| run.results.end_to_end_us.as_ref().map(|all| all.p99 as f64)),
    ("e2e.p99.9", Unit::Micros, |run| run.results.end_to_end_us.as_ref().map(|all| all.p999 as f64)),
    ("records/s", Unit::Count, |run| Some(run.results.records_per_second)),
    ("bytes/s", Unit::Bytes, |run| Some(run.results.bytes_per_second)),
    ("errors", Unit::Count, |run| Some(run.results.errors as f64)),
    ("lost", Unit::Count, |run| run.verification.enabled.then_some(run.verification.lost as f64)),
    ("duplicated", Unit::Count, |run| run.verification.enabled.then_some(run.verification.duplicated as f64)),
    ("cpu-ms/mb", Unit::Plain, |run| run.broker.cpu_ms_per_mb),
    ("cpu-us/request", Unit::Plain, |run| run.broker.cpu_us_per_request),
    ("rss", Unit::Bytes, |run| run.broker.rss_bytes.map(|bytes| bytes as f64)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// In the order in which they are looked for: the longer first.
const OPERATORS: [(&str, Operator); 4] =
    [("<=", Operator::LessOrEqual), (">=", Operator::GreaterOrEqual), ("<", Operator::Less), (">", Operator::Greater)];

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    text: String,
    metric: usize,
    operator: Operator,
    value: f64,
}

/// Comparisons of which one must hold for the whole to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(Vec<Comparison>);

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(" or ").flat_map(|part| part.split("||"));
        parts.map(|part| comparison(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

fn comparison(text: &str) -> Result<Comparison, String> {
    let (operator, name, value) = OPERATORS
        .iter()
        .find_map(|(sign, operator)| text.split_once(sign).map(|(name, value)| (*operator, name.trim(), value.trim())))
        .ok_or_else(|| format!("`{text}` is no condition; write it as p99>20ms or records/s<50k"))?;
    let metric = METRICS.iter().position(|(known, ..)| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let names: Vec<&str> = METRICS.iter().map(|(name, ..)| *name).collect();
        format!("`{name}` is not measured; there are {}", names.join(", "))
    })?;
    let value = match METRICS[metric].1 {
        Unit::Micros => {
            // A bare number would be milliseconds to one reader and microseconds to the next.
            if value.ends_with(|letter: char| letter.is_ascii_digit()) {
                return Err(format!("`{text}` needs a unit: us, ms or s"));
            }
            units::parse_millis(value)?.as_secs_f64() * 1e6
        }
        Unit::Bytes => units::parse_bytes(value.trim_end_matches("/s"))? as f64,
        Unit::Count => units::parse_count(value)?,
        Unit::Plain => value.parse().map_err(|_| format!("`{value}` is no number"))?,
    };
    // Nothing is more or less than "not a number", so that such a condition never fails a run.
    if !value.is_finite() {
        return Err(format!("`{text}` needs a finite number"));
    }
    Ok(Comparison { text: text.to_owned(), metric, operator, value })
}

impl Comparison {
    /// Whether it holds; the error names the metric that was not measured.
    fn holds(&self, run: &Run) -> Result<bool, String> {
        let (name, _, read) = METRICS[self.metric];
        let measured = read(run).ok_or_else(|| format!("`{}`: this run did not measure {name}", self.text))?;
        Ok(match self.operator {
            Operator::Less => measured < self.value,
            Operator::LessOrEqual => measured <= self.value,
            Operator::Greater => measured > self.value,
            Operator::GreaterOrEqual => measured >= self.value,
        })
    }

    fn found(&self, run: &Run) -> String {
        let (name, unit, read) = METRICS[self.metric];
        let value = read(run).map_or_else(
            || "not measured".to_owned(),
            |value| match unit {
                Unit::Micros => units::micros(value),
                Unit::Bytes => units::bytes(value),
                Unit::Count => units::count(value),
                Unit::Plain => units::digits(value),
            },
        );
        format!("{}: {name} is {value}", self.text)
    }
}

impl Condition {
    /// The sentence that says why the run fails under this condition; `None` when it does not.
    pub fn fails(&self, run: &Run) -> Option<String> {
        self.0.iter().find_map(|comparison| match comparison.holds(run) {
            Ok(false) => None,
            Ok(true) => Some(comparison.found(run)),
            Err(missing) => Some(missing),
        })
    }

    /// Read as what must hold (`p99<=10ms`): whether it does. A metric that was not measured does not hold.
    pub fn holds(&self, run: &Run) -> bool {
        self.0.iter().any(|comparison| comparison.holds(run).unwrap_or(false))
    }

    /// Of a limit such as `p99<=10ms`: the percentile's name and its microseconds. `None` for anything else.
    pub fn latency_limit(&self) -> Option<(&'static str, f64)> {
        let limit = self.limit()?;
        Some((METRICS[limit.metric].0, limit.value))
    }

    /// What such a limit is on, in `run`; `None` when it was not measured.
    pub fn latency_of(&self, run: &Run) -> Option<f64> {
        METRICS[self.limit()?.metric].2(run)
    }

    /// What was found instead of what must hold; `None` when it holds.
    pub fn broken(&self, run: &Run) -> Option<String> {
        let found = || self.0.iter().map(|comparison| comparison.found(run)).collect::<Vec<_>>().join("; ");
        (!self.holds(run)).then(found)
    }

    fn limit(&self) -> Option<&Comparison> {
        match &self.0[..] {
            [one] if matches!(one.operator, Operator::Less | Operator::LessOrEqual) => {
                (METRICS[one.metric].1 == Unit::Micros).then_some(one)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.0.iter().map(|comparison| comparison.text.as_str()).collect();
        f.write_str(&parts.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(p99: u64, records_per_second: f64) -> Run {
        let mut run = Run { kind: "produce".to_owned(), ..Run::default() };
        run.results.response_us = Some(Percentiles { p99, ..Percentiles::default() });
        run.results.records_per_second = records_per_second;
        run
    }

    #[test]
    fn a_condition_that_holds_fails_the_run_and_says_what_was_found() {
        let condition: Condition = "p99>20ms".parse().unwrap();
        assert_eq!(condition.fails(&run(20_000, 0.0)), None);
        assert_eq!(condition.fails(&run(25_000, 0.0)), Some("p99>20ms: p99 is 25.0 ms".to_owned()));
        let either: Condition = "p99 > 20ms or records/s < 50k".parse().unwrap();
        assert!(either.fails(&run(1, 49_999.0)).is_some());
        assert!(either.fails(&run(1, 50_000.0)).is_none());
    }

    #[test]
    fn what_was_not_measured_fails_loudly() {
        let condition: Condition = "e2e.p99>1s".parse().unwrap();
        assert!(condition.fails(&run(1, 1.0)).unwrap().contains("did not measure"));
        let condition: Condition = "lost>0".parse().unwrap();
        assert!(condition.fails(&run(1, 1.0)).is_some());
        assert!(!condition.holds(&run(1, 1.0)));
    }

    #[test]
    fn wrong_conditions_are_refused_with_what_there_is() {
        for (text, part) in [
            ("p99", "no condition"),
            ("p98>1ms", "not measured"),
            ("p99>20", "unit"),
            ("p99>fast", "no time"),
            ("records/s<lots", "no count"),
            ("cpu-ms/mb>NaN", "finite"),
            ("cpu-ms/mb>inf", "finite"),
        ] {
            let why = text.parse::<Condition>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn a_limit_is_a_latency_with_an_upper_bound() {
        let limit = |text: &str| text.parse::<Condition>().unwrap().latency_limit();
        assert_eq!(limit("p99<=10ms"), Some(("p99", 10_000.0)));
        assert_eq!(limit("p99>10ms"), None);
        assert_eq!(limit("records/s<10"), None);
        let limit: Condition = "p99<=10ms".parse().unwrap();
        assert_eq!(limit.latency_of(&run(7, 1.0)), Some(7.0));
        assert_eq!(limit.broken(&run(7, 1.0)), None);
        assert_eq!(limit.broken(&run(12_000, 1.0)), Some("p99<=10ms: p99 is 12.0 ms".to_owned()));
        let elsewhere: Condition = "e2e.p99<=10ms".parse().unwrap();
        assert_eq!(elsewhere.latency_of(&run(7, 1.0)), None);
    }
}
