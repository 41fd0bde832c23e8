//! The answer as data, schema version 1, and as text.
//!
//! Pure. Owns the names of the fields and the layout of the table. Always true: a field keeps its name and unit within a schema
//! version; times end in `_us`, rates are per second, cost is processor milliseconds per 10^6 bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::advice::{self, Advice, Gain, Verdict, advise};
use super::effects::{Effect, effects};
use super::goal::{Goal, Target};
use super::grid::Grid;
use super::load::Asked;
use super::model::{self, Sample};
use super::pareto::{self, Axes};
use super::properties::{Paste, pastes};
use super::search::{End, Search, Summary, WORTH_IT};
use super::space::{Point, Space};
use super::trial::{Facts, Measured};
use crate::bench::{stats, units};

/// Rises when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// One setting and what it did.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Values by Kafka's names.
    pub settings: BTreeMap<&'static str, String>,
    /// All its trials together.
    pub measured: Measured,
    /// How many.
    pub trials: usize,
    /// Whether it carries the load and holds what must hold.
    pub holds: bool,
    /// Whether nothing that was tried beats it in throughput, latency and cost at once.
    pub on_front: bool,
    /// Level of each factor.
    #[serde(skip)]
    pub point: Point,
}

/// Everything a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: String,
    /// When the search began, RFC 3339.
    pub started_at: String,
    /// What was asked.
    pub asked: Asked,
    /// Of broker and host.
    pub facts: Facts,
    /// Why it ended.
    pub end: End,
    /// From first to last trial, interruptions left out.
    pub seconds: f64,
    /// How many.
    pub trials: usize,
    /// In words, with the gain.
    pub advice: Advice,
    /// What to set.
    pub recommended: Setting,
    /// Kafka's defaults. Absent when they were not reached.
    pub kafka_default: Option<Setting>,
    /// Of each knob, the greatest first.
    pub effects: Vec<Effect>,
    /// What explains the numbers.
    pub model: model::Report,
    /// How far the host drifted, as a share; absent when no drift was shown.
    pub drift: Option<f64>,
    /// The member of the front that gives up little of each.
    pub knee: Option<BTreeMap<&'static str, String>>,
    /// Ready to paste.
    pub paste: Vec<Paste>,
    /// Every point that was measured.
    pub points: Vec<Setting>,
}

fn named(space: &Space, point: &[usize]) -> BTreeMap<&'static str, String> {
    let pairs = space.factors.iter().zip(point);
    pairs.map(|(factor, level)| (factor.knob.name(), factor.knob.word(factor.levels[*level]))).collect()
}

/// Indices of the front among these summaries and the knee's.
fn front(goal: &Goal, summaries: &[Summary]) -> (Vec<usize>, Option<usize>) {
    let usable: Vec<(usize, Axes)> = summaries
        .iter()
        .enumerate()
        .filter(|(_, summary)| summary.measured.valid && summary.standing.excess < 1.0)
        .filter_map(|(index, summary)| Some((index, Axes::of(goal, &summary.measured)?)))
        .collect();
    let axes: Vec<Axes> = usable.iter().map(|(_, axes)| *axes).collect();
    let front = pareto::front(&axes, WORTH_IT);
    let knee = pareto::knee(&axes, &front).map(|index| usable[index].0);
    (front.into_iter().map(|index| usable[index].0).collect(), knee)
}

impl Answer {
    /// Of a search that is over. `None` when nothing was measured.
    pub fn of(search: &Search, end: End, asked: &Asked, facts: &Facts, started_at: &str) -> Option<Self> {
        let (space, goal) = (&search.plan().space, &search.plan().goal);
        let summaries = search.summaries();
        let effects = effects(search);
        let samples: Vec<Sample> = summaries
            .iter()
            .map(|summary| Sample {
                point: summary.point.clone(),
                measured: summary.measured.clone(),
                carried: carried(&summary.measured),
            })
            .collect();
        let (_, model) = model::fit(&asked.load.shape(facts.cores.max(1)), space, &samples);
        let advice = advise(search, end, asked, facts, &effects, &model)?;
        let (front, knee) = front(goal, &summaries);
        let setting = |index: usize| {
            let summary: &Summary = &summaries[index];
            Setting {
                settings: named(space, &summary.point),
                measured: summary.measured.clone(),
                trials: summary.trials,
                holds: summary.standing.is_feasible(),
                on_front: front.contains(&index),
                point: summary.point.clone(),
            }
        };
        let at = |point: &Point| summaries.iter().position(|summary| summary.point == *point);
        let recommended = setting(at(&advice.recommended)?);
        let default = space.default_point();
        let seconds = search.records().last().map_or(0.0, |record| record.ended.as_secs_f64());
        Some(Self {
            schema_version: SCHEMA_VERSION,
            tool: format!("ringlog tune {}", env!("CARGO_PKG_VERSION")),
            started_at: started_at.to_owned(),
            asked: asked.clone(),
            facts: facts.clone(),
            end,
            seconds,
            trials: search.records().len(),
            paste: pastes(space, &advice.recommended, recommended.measured.records_per_batch),
            kafka_default: at(&default).map(setting),
            recommended,
            effects,
            model,
            drift: search.drift().shown(),
            knee: knee.map(|index| named(space, &summaries[index].point)),
            points: (0..summaries.len()).map(setting).collect(),
            advice,
        })
    }

    /// Lines for a terminal.
    pub fn text(&self, space: &Space, goal: &Goal) -> String {
        let mut out = String::new();
        _ = writeln!(out, "{}\n", self.advice.headline);
        out.push_str(&self.table(space, goal));
        out.push('\n');
        for sentence in &self.advice.sentences {
            _ = writeln!(out, "- {sentence}");
        }
        if self.advice.verdict != Verdict::NothingHolds {
            for paste in &self.paste {
                _ = writeln!(out, "\n{}:", paste.client);
                for line in paste.text.lines() {
                    _ = writeln!(out, "  {line}");
                }
            }
        }
        _ = writeln!(out, "\nHeld fixed:");
        for (name, value) in &self.advice.held_fixed {
            _ = writeln!(out, "  {name}: {value}");
        }
        out
    }

    /// The front, the defaults and the pick beside each other.
    fn table(&self, space: &Space, goal: &Goal) -> String {
        let default = space.default_point();
        let shown: Vec<&Setting> = self
            .points
            .iter()
            .filter(|setting| setting.on_front || setting.point == default || setting.point == self.advice.pick)
            .collect();
        let mut rows = vec![heads(goal)];
        for setting in &shown {
            let mut marks = Vec::new();
            for (is, word) in [
                (setting.point == self.advice.recommended, "recommended"),
                (setting.point == self.advice.pick && setting.point != self.advice.recommended, "best found"),
                (setting.point == default, "Kafka's default"),
                (Some(&setting.settings) == self.knee.as_ref(), "knee"),
                (!setting.holds, "does not hold"),
            ] {
                if is {
                    marks.push(word);
                }
            }
            rows.push(cells(space, goal, setting, marks.join(", ")));
        }
        aligned(&rows)
    }
}

/// Whether a fixed rate was carried; a closed loop carries whatever it does.
pub fn carried(measured: &Measured) -> bool {
    measured.valid
        && measured
            .offered_per_second
            .is_none_or(|offered| measured.records_per_second >= offered * super::goal::CARRIED_SHARE)
}

/// Column names of a table of settings.
pub fn heads(goal: &Goal) -> Vec<String> {
    let mut heads = vec!["settings", "records/s", "MB/s", "p50", "p99"];
    if !matches!(goal.percentile(), "p50" | "p99") {
        heads.push(goal.percentile());
    }
    heads.extend(["CPU ms/MB", "records/batch", "fill", "trials", ""]);
    heads.into_iter().map(str::to_owned).collect()
}

/// The cells below [`heads`].
pub fn cells(space: &Space, goal: &Goal, setting: &Setting, mark: String) -> Vec<String> {
    let measured = &setting.measured;
    let mut cells = vec![
        space.short(&setting.point),
        units::grouped(measured.records_per_second as u64),
        units::digits(measured.bytes_per_second / 1e6),
        units::micros(measured.p50_us),
        units::micros(measured.p99_us),
    ];
    if !matches!(goal.percentile(), "p50" | "p99") {
        cells.push(measured.percentile(goal.percentile()).map_or_else(|| "–".to_owned(), units::micros));
    }
    cells.extend([
        measured.cpu_ms_per_mb().map_or_else(|| "–".to_owned(), units::digits),
        units::digits(measured.records_per_batch),
        format!("{:.0} %", measured.fill.min(1.0) * 100.0),
        setting.trials.to_string(),
        mark,
    ]);
    cells
}

/// Columns as wide as they must be; the first and the last to the left, numbers to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let left = column == 0 || column + 1 == columns;
            let (before, after) = if left { ("", pad.as_str()) } else { (pad.as_str(), "") };
            _ = write!(line, "{}{before}{cell}{after}", if column > 0 { "  " } else { "" });
        }
        _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// What a full grid found, and how a search stands before it.
#[derive(Clone, Debug, Serialize)]
pub struct GridAnswer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What wrote it.
    pub tool: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// What was asked.
    pub asked: Asked,
    /// Of broker and host.
    pub facts: Facts,
    /// Why it ended.
    pub end: End,
    /// The cells alone took so long.
    pub sweep_seconds: f64,
    /// The best cell.
    pub best: Setting,
    /// Every cell.
    pub cells: Vec<Setting>,
    /// How far the host drifted, as a share.
    pub drift: Option<f64>,
    /// What explains the numbers.
    pub model: model::Report,
    /// The search that was judged.
    pub judged: Option<Judged>,
}

/// A search before the grid.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Its pick.
    pub pick: BTreeMap<&'static str, String>,
    /// The pick against the grid's best, in pairs measured beside each other; 1 when they are the same.
    pub ratio: Option<Gain>,
    /// The share of the grid's best the pick reaches: above 1 when it is better.
    pub share_of_best: Option<f64>,
    /// Its time over the grid's.
    pub share_of_time: f64,
    /// Level of each factor.
    #[serde(skip)]
    pub point: Point,
}

impl GridAnswer {
    /// Of a grid that is over. `search_time` is that of the judged search. `None` when nothing was measured.
    pub fn of(
        grid: &Grid,
        end: End,
        asked: &Asked,
        facts: &Facts,
        started_at: &str,
        search_time: Option<Duration>,
    ) -> Option<Self> {
        let plan = grid.plan();
        let setting = |point: &Point| {
            let trials: Vec<&Measured> = grid
                .records()
                .iter()
                .filter(|record| record.order.point == *point)
                .map(|record| &record.measured)
                .collect();
            let measured = Measured::pooled(&trials)?;
            Some(Setting {
                settings: named(&plan.space, point),
                holds: plan.goal.standing(&measured).is_feasible(),
                trials: trials.len(),
                on_front: false,
                measured,
                point: point.clone(),
            })
        };
        let cells: Vec<Setting> = super::grid::cells(&plan.space).iter().filter_map(setting).collect();
        let best = setting(&grid.best_cell()?)?;
        let samples: Vec<Sample> = cells
            .iter()
            .map(|cell| Sample {
                point: cell.point.clone(),
                carried: carried(&cell.measured),
                measured: cell.measured.clone(),
            })
            .collect();
        let (_, model) = model::fit(&asked.load.shape(facts.cores.max(1)), &plan.space, &samples);
        let sweep_seconds = grid.sweep_time().as_secs_f64();
        let judged = plan.judged.as_ref().map(|point| {
            let ratio = advice::gain(&plan.goal, &grid.pairs(), stats::MISS);
            let share = match &ratio {
                _ if *point == best.point => Some(1.0),
                Some(gain) if plan.goal.sign() > 0.0 => Some(gain.ratio.value),
                Some(gain) => Some(1.0 / gain.ratio.value),
                None => None,
            };
            let time = search_time.map_or(0.0, |time| time.as_secs_f64());
            Judged {
                pick: named(&plan.space, point),
                ratio,
                share_of_best: share,
                share_of_time: time / sweep_seconds.max(1e-9),
                point: point.clone(),
            }
        });
        Some(Self {
            schema_version: SCHEMA_VERSION,
            tool: format!("ringlog tune {}", env!("CARGO_PKG_VERSION")),
            started_at: started_at.to_owned(),
            asked: asked.clone(),
            facts: facts.clone(),
            end,
            sweep_seconds,
            best,
            cells,
            drift: grid.drift().shown(),
            model,
            judged,
        })
    }

    /// Lines for a terminal.
    pub fn text(&self, space: &Space, goal: &Goal) -> String {
        let number = |setting: &Setting| {
            goal.number(&setting.measured)
                .map_or_else(|| "not measured".to_owned(), |value| advice::number(goal, value))
        };
        let mut out = format!(
            "Best of {} cells: {} ({}{}), in {:.0} s.\n\n",
            self.cells.len(),
            space.words(&self.best.point),
            if goal.target == Target::Latency { format!("{} ", goal.percentile()) } else { String::new() },
            number(&self.best),
            self.sweep_seconds
        );
        let mut rows = vec![heads(goal)];
        for cell in &self.cells {
            let mark = match () {
                () if cell.point == self.best.point => "best",
                () if cell.point == space.default_point() => "Kafka's default",
                () if !cell.holds => "does not hold",
                () => "",
            };
            rows.push(cells(space, goal, cell, mark.to_owned()));
        }
        out.push_str(&aligned(&rows));
        out.push('\n');
        for sentence in self.sentences(space) {
            _ = writeln!(out, "- {sentence}");
        }
        out
    }

    /// What is to be said beside the table.
    pub fn sentences(&self, space: &Space) -> Vec<String> {
        let mut said = Vec::new();
        if self.end == End::Interrupted {
            said.push(format!(
                "Interrupted after {} of {} cells; --resume goes on.",
                self.cells.len(),
                Space::grid().len()
            ));
        }
        if let Some(judged) = &self.judged {
            let share = judged.share_of_best.map_or_else(
                || "could not be compared with it".to_owned(),
                |share| format!("reaches {:.0} % of it", share * 100.0),
            );
            let interval = judged.ratio.as_ref().map_or_else(String::new, |gain| {
                format!(
                    " (ratio {:.3}, 95 % interval {:.3} to {:.3}, {} pairs)",
                    gain.ratio.value, gain.ratio.low, gain.ratio.high, gain.pairs
                )
            });
            said.push(format!(
                "The search's pick {} {share}{interval}, found in {:.0} % of the grid's time.",
                space.words(&judged.point),
                judged.share_of_time * 100.0
            ));
        }
        for (part, name) in [(&self.model.cpu, "CPU per MB"), (&self.model.p50, "p50")] {
            if let Some(part) = part {
                said.push(format!(
                    "The model predicts {name} of held-out cells within {:.1} % on average, {:.0} % at worst{}.",
                    part.error * 100.0,
                    part.error_max * 100.0,
                    if part.is_good() { "" } else { "; it is not shown" }
                ));
            }
        }
        if let Some(drift) = self.drift {
            said.push(format!("The host drifted by {:.0} % meanwhile.", drift * 100.0));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up_and_have_no_blanks_at_their_ends() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text =
            aligned(&[row(["settings", "p99", ""]), row(["a", "1.25 ms", "knee"]), row(["long name", "9 µs", ""])]);
        assert_eq!(text, "settings       p99\na          1.25 ms  knee\nlong name     9 µs\n");
    }

    #[test]
    fn a_rate_that_was_not_reached_is_not_carried() {
        let at = |records_per_second| Measured {
            offered_per_second: Some(100.0),
            records_per_second,
            valid: true,
            ..Measured::default()
        };
        assert!(carried(&at(99.0)) && !carried(&at(90.0)));
        assert!(carried(&Measured { valid: true, ..Measured::default() }));
    }
}
