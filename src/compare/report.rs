//! `compare.json`, schema version 1: everything a comparison found.
//!
//! Pure. Owns the names of all fields. Always true: a field once written keeps its name and unit within a schema version; readers
//! ignore fields they do not know; what was not measured is left out. Units are those of `run.json`.
//!
//! ```text
//! schema_version  1                         targets     two: name, software, version, how, settings, recorded
//! preset, seed, pairs, layouts, command     cells       one per workload and step: key, name, load, class, offered,
//! host, ceilings, notes, not_covered                    measurements (pair, target, numbers, of a soak its course), findings
//!                                                       (metric, medians, ratio {value, low, high}, word), histograms,
//!                                                       state, notes
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::report::{Ceilings, HostFacts, Tool};
use crate::bench::stats::Interval;

/// The version this file describes. It rises when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// A comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: Tool,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub finished_at: String,
    /// The command line, to do it again.
    pub command: String,
    /// `quick`, `standard` or `full`.
    pub preset: String,
    /// From which the order was drawn.
    pub seed: u64,
    /// Pairs asked for of each cell.
    pub pairs: u32,
    /// Layouts of cores, in words.
    pub layouts: Vec<String>,
    /// Ended before everything was measured.
    pub interrupted: bool,
    /// The first is told of, the second is what it is held against.
    pub targets: Vec<TargetFacts>,
    /// Where it ran.
    pub host: HostFacts,
    /// What the host could do, in the order in which it was measured: before, between the rounds, after.
    pub ceilings: Vec<Ceilings>,
    /// What was compared.
    pub cells: Vec<CellReport>,
    /// What else there is to say.
    pub notes: Vec<String>,
    /// Workloads of the catalogue that are not in this comparison, and why.
    pub not_covered: Vec<String>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetFacts {
    /// In tables and legends.
    pub name: String,
    /// `ringlog`, `kafka` or `unknown`.
    pub software: String,
    /// As far as it is known.
    pub version: String,
    /// The command it was started with, or the address it was reached at.
    pub how: String,
    /// What it was started with, or said of itself.
    pub settings: BTreeMap<String, String>,
    /// Seconds of load it had had before anything was measured; 0 where it was recorded.
    pub warm_seconds: f64,
    /// The file its numbers come from, when it was not measured now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
}

/// Whether the numbers of a cell may be quoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Yes.
    #[default]
    Valid,
    /// A target lost, duplicated or altered acknowledged records.
    Lossy,
    /// The targets did not promise the same.
    Crossed,
    /// Nothing was measured of one of them.
    Failed,
}

/// One workload, or one step of it, under one layout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellReport {
    /// Unique: `W10@50%`.
    pub key: String,
    /// Of the catalogue: `W10`.
    pub workload: String,
    /// What it is.
    pub name: String,
    /// What was done, in a sentence.
    pub load: String,
    /// `shared` or `pinned`.
    pub layout: String,
    /// Seconds measured in a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Records per second offered; left out in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// The same as a share of the slower target's maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_share: Option<f64>,
    /// What an acknowledgement meant, of each target.
    pub classes: Vec<String>,
    /// What that means side by side.
    pub class_sentence: String,
    /// Client settings, the same for both.
    pub client: BTreeMap<String, String>,
    /// The command that does this alone, of each target.
    pub commands: Vec<String>,
    /// Whether the numbers may be quoted.
    pub state: State,
    /// What each target lost, duplicated or altered; empty where nothing.
    pub lossy: Vec<String>,
    /// Every turn that was measured.
    pub measurements: Vec<Measurement>,
    /// What may be said.
    pub findings: Vec<Finding>,
    /// Latency over all pairs, added up: HdrHistogram V2 compressed, base64; of each target, empty where there is none.
    pub histograms: Vec<String>,
    /// What weakens it, in sentences.
    pub notes: Vec<String>,
}

/// One turn: one target under one load, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// Counted from 0.
    pub pair: u32,
    /// 0 or 1.
    pub target: usize,
    /// Whether it came first in its pair.
    pub first: bool,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Why there are no numbers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// What an acknowledgement meant.
    pub ack_class: String,
    /// The numbers, by [`super::metric::Metric::key`].
    pub numbers: BTreeMap<String, f64>,
    /// Share of processor time a hypervisor took away.
    pub steal: f64,
    /// The generator was the limit, or late.
    pub client_bound: bool,
    /// The sentences of its verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What verification found wrong; empty when nothing was, or it was not asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lossy: String,
    /// Records that were read back and found in order.
    pub checked: u64,
    /// Of a soak: its stretches, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Stretch>,
    /// Latency: HdrHistogram V2 compressed, base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub histogram: String,
}

/// What may be said of one number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// [`super::metric::Metric::key`].
    pub metric: String,
    /// Medians of the first and the second target.
    pub medians: Vec<f64>,
    /// The geometric mean of first over second of each pair, which the ratio of the medians need not be; left out where there was no pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Interval>,
    /// Pairs that were used.
    pub pairs: u32,
    /// `faster`, `slower`, `cheaper`, … `no difference shown`, `client-bound`, `as offered`, `too few pairs`, `not measured`.
    pub word: String,
    /// The client was the limit of the faster one only: it is faster by at least what was measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// A stretch of a soak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stretch {
    /// When it ended, seconds of the soak.
    pub seconds: f64,
    /// 99 % of its records waited no longer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Resident memory of the broker at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<f64>,
}

impl Measurement {
    /// A number of it, when there is one that can be used.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.numbers.get(key).copied().filter(|value| value.is_finite())
    }
}

impl Comparison {
    /// Reads a report. Errors: a sentence that says what is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let comparison: Self = serde_json::from_str(text).map_err(|error| format!("is no compare.json: {error}"))?;
        match comparison.schema_version {
            SCHEMA_VERSION if comparison.targets.len() == 2 => Ok(comparison),
            SCHEMA_VERSION => Err("is no compare.json: it does not have two targets".to_owned()),
            0 => Err("is no compare.json: it has no schema_version".to_owned()),
            other => Err(format!("has schema version {other}; this tool reads version {SCHEMA_VERSION}")),
        }
    }

    /// The report as it is written: indented, with a line end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report holds no map with keys that are not text");
        text.push('\n');
        text
    }

    /// The name of a target; the number of one that is not there.
    pub fn name(&self, target: usize) -> &str {
        self.targets.get(target).map_or("?", |facts| facts.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_survives_its_text() {
        let mut comparison = Comparison { schema_version: SCHEMA_VERSION, ..Comparison::default() };
        comparison.targets = vec![
            TargetFacts::default(),
            TargetFacts { recorded: Some("old.json".to_owned()), ..TargetFacts::default() },
        ];
        let mut cell = CellReport { key: "W2".to_owned(), state: State::Lossy, ..CellReport::default() };
        cell.measurements.push(Measurement { numbers: [("records".to_owned(), 5.0)].into(), ..Measurement::default() });
        comparison.cells.push(cell);
        assert_eq!(Comparison::from_json(&comparison.to_json()), Ok(comparison));
    }

    #[test]
    fn foreign_files_and_later_schemas_are_refused_by_name() {
        assert!(Comparison::from_json("[]").unwrap_err().contains("no compare.json"));
        assert!(Comparison::from_json("{}").unwrap_err().contains("no schema_version"));
        assert!(Comparison::from_json("{\"schema_version\": 9}").unwrap_err().contains("version 9"));
        assert!(Comparison::from_json("{\"schema_version\": 1}").unwrap_err().contains("two targets"));
    }
}
