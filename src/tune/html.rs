//! The answer as one page that needs nothing else.
//!
//! Pure. Owns which figures it has. Does not own the page's style nor the drawing (`bench::html`, `bench::svg`, `bench::plots`).
//! Always true: no network, no scripts; Kafka's default and the pick are outlined wherever settings are drawn; every figure has
//! its numbers in a table under it; cells that were not measured are empty, never filled in by a model.

use std::fmt::Write as _;
use std::time::Duration;

use super::advice::{Verdict, number};
use super::drift::Drift;
use super::effects::Matters;
use super::goal::{Goal, Target};
use super::model;
use super::report::{Answer, GridAnswer, Setting, cells, heads};
use super::space::{Knob, Point, Space};
use super::trial::{Facts, Measured};
use crate::bench::figures::{Figure, Table};
use crate::bench::html::{put_figure, shell};
use crate::bench::plots::{Bar, HeatMap, bars};
use crate::bench::svg::{Axis, Chart, Line, Mark, escape};
use crate::bench::units;

/// Everything a page is drawn from.
pub struct Page<'a> {
    /// Where the points lie.
    pub space: &'a Space,
    /// What was wanted.
    pub goal: &'a Goal,
    /// The default point over time.
    pub drift: &'a Drift,
    /// To run it again.
    pub command: &'a str,
}

impl Page<'_> {
    /// The page of a search.
    pub fn of(&self, answer: &Answer) -> String {
        let mut body = String::new();
        self.head(
            &mut body,
            "Which settings for this load?",
            &answer.facts,
            &answer.asked.bootstrap,
            &answer.started_at,
        );
        let box_class =
            if answer.advice.verdict == Verdict::NothingHolds { " style=\"border-color:var(--bad)\"" } else { "" };
        _ = write!(
            body,
            "<div class=\"ack\"{box_class}><b>{}</b><span>Wanted: {}. Load: {}.</span></div>",
            escape(&answer.advice.headline),
            escape(&self.goal.to_string()),
            escape(&answer.asked.load.sentence())
        );
        self.tiles(&mut body, answer);
        body.push_str("<ul class=\"why\">");
        for sentence in &answer.advice.sentences {
            _ = write!(body, "<li>{}</li>", escape(sentence));
        }
        body.push_str("</ul>");
        if answer.advice.verdict != Verdict::NothingHolds {
            body.push_str("<section id=\"paste\"><h2>To paste</h2><p class=\"cap\">Only what was searched; everything else stays as it is.</p>");
            for paste in &answer.paste {
                _ = write!(body, "<h3>{}</h3><pre>{}</pre>", escape(paste.client), escape(paste.text.trim_end()));
            }
            body.push_str("</section>");
        }
        let pick = &answer.advice.pick;
        for figure in self.heat_maps(&answer.points, Some(pick)) {
            put_figure(&mut body, &figure);
        }
        let figures = [
            self.front(answer),
            self.effects(answer),
            models(&answer.model, self.goal),
            self.drift_over_time(),
            Some(self.all(&answer.points, pick)),
            Some(held_fixed(&answer.advice.held_fixed)),
        ];
        for figure in figures.into_iter().flatten() {
            put_figure(&mut body, &figure);
        }
        self.end(body, "Which settings for this load?", &answer.tool, &answer.started_at)
    }

    /// The page of a full grid.
    pub fn of_grid(&self, answer: &GridAnswer) -> String {
        let title = "batch.size × linger.ms, every cell";
        let mut body = String::new();
        self.head(&mut body, title, &answer.facts, &answer.asked.bootstrap, &answer.started_at);
        let best = self.goal.number(&answer.best.measured).map_or_else(String::new, |value| number(self.goal, value));
        _ = write!(
            body,
            "<div class=\"ack\"><b>Best cell: {} ({})</b><span>Wanted: {}. Load: {}.</span></div><ul class=\"why\">",
            escape(&self.space.words(&answer.best.point)),
            escape(&best),
            escape(&self.goal.to_string()),
            escape(&answer.asked.load.sentence())
        );
        for sentence in answer.sentences(self.space) {
            _ = write!(body, "<li>{}</li>", escape(&sentence));
        }
        body.push_str("</ul>");
        for figure in self.heat_maps(&answer.cells, Some(&answer.best.point)) {
            put_figure(&mut body, &figure);
        }
        let figures = [
            models(&answer.model, self.goal),
            self.drift_over_time(),
            Some(self.all(&answer.cells, &answer.best.point)),
        ];
        for figure in figures.into_iter().flatten() {
            put_figure(&mut body, &figure);
        }
        self.end(body, title, &answer.tool, &answer.started_at)
    }

    fn head(&self, out: &mut String, title: &str, facts: &Facts, bootstrap: &str, started_at: &str) {
        let software = match facts.software.as_str() {
            "ringlog" => "Ringlog",
            "kafka" => "Apache Kafka",
            _ => "a Kafka-compatible broker",
        };
        _ = write!(
            out,
            "<header><h1>{}</h1><p class=\"sub\">{software} · {} · {} · {}, {} processors</p></header>",
            escape(title),
            escape(bootstrap),
            escape(started_at),
            escape(&facts.cpu_model),
            facts.cores
        );
        if !facts.ack_class.is_empty() {
            _ = write!(
                out,
                "<p>Acknowledgement class: <b>{}</b>. {}</p>",
                escape(&facts.ack_class),
                escape(&facts.ack_words)
            );
        }
    }

    fn tiles(&self, out: &mut String, answer: &Answer) {
        let mut tiles: Vec<(String, String)> = Vec::new();
        let shown = |setting: &Setting| {
            self.goal.number(&setting.measured).map(|value| match self.goal.target {
                Target::Cost => format!("{} ms/MB", units::digits(value)),
                _ => number(self.goal, value),
            })
        };
        let name = self.goal.number_name();
        tiles.extend(shown(&answer.recommended).map(|text| (text, format!("{name}, recommended"))));
        if let Some(default) = answer.kafka_default.as_ref().filter(|default| default.point != answer.recommended.point)
        {
            tiles.extend(shown(default).map(|text| (text, format!("{name}, Kafka's defaults"))));
        }
        if let Some(gain) = &answer.advice.gain {
            let word = if self.goal.sign() > 0.0 { "more" } else { "less" };
            tiles.push((format!("{:.0} % {word}", gain.better * 100.0), format!("gain, from {} pairs", gain.pairs)));
        }
        tiles.push((answer.trials.to_string(), "trials".to_owned()));
        tiles.push((units::duration(Duration::from_secs(answer.seconds as u64)), "taken".to_owned()));
        out.push_str("<div class=\"tiles\">");
        for (value, name) in tiles {
            let (number, unit) = value.split_once(' ').unwrap_or((&value, ""));
            _ = write!(
                out,
                "<div class=\"tile\"><b>{} <small>{}</small></b><span>{}</span></div>",
                escape(number),
                escape(unit),
                escape(&name)
            );
        }
        out.push_str("</div>");
    }

    /// One map each of latency, throughput, cost and fill, when both knobs of the plane were searched.
    fn heat_maps(&self, settings: &[Setting], pick: Option<&Point>) -> Vec<Figure> {
        let Some(plane) = Plane::of(self.space, settings) else { return Vec::new() };
        MAPS.iter().filter_map(|quantity| self.heat_map(&plane, quantity, pick)).collect()
    }

    /// `None` when there is nothing to see.
    fn heat_map(&self, plane: &Plane<'_>, quantity: &Quantity, pick: Option<&Point>) -> Option<Figure> {
        let values = plane.values(self.goal, quantity.of);
        values.iter().flatten().flatten().next()?;
        let known = || values.iter().flatten().flatten().copied();
        let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
        if quantity.id == "map-throughput" && high < low * 1.01 {
            // At a fixed rate that is carried everywhere the map would paint noise.
            return None;
        }
        let row_names = plane.names(plane.size, &plane.rows);
        let column_names = plane.names(plane.linger, &plane.columns);
        let mut table = Table { head: vec!["batch.size".to_owned()], rows: Vec::new() };
        table.head.extend(column_names.iter().cloned());
        for (name, row) in row_names.iter().zip(&values) {
            let mut cells = vec![name.clone()];
            cells.extend(row.iter().map(|value| value.map_or_else(|| "–".to_owned(), quantity.format)));
            table.row(cells);
        }
        let title = quantity.title.unwrap_or(self.goal.percentile());
        let map = HeatMap {
            title: title.to_owned(),
            x_label: "linger.ms".to_owned(),
            y_label: "batch.size".to_owned(),
            columns: column_names,
            rows: row_names,
            cells: values,
            format: quantity.format,
            low_is_good: quantity.low_is_good,
            default: plane.spot(&self.space.default_point()),
            pick: pick.and_then(|pick| plane.spot(pick)),
        };
        let more = if self.space.factors.len() > 2 { " Other knobs stand where the cell was best." } else { "" };
        Some(Figure {
            id: quantity.id.to_owned(),
            title: format!("batch.size × linger.ms: {title}"),
            caption: format!(
                "Darker is better. Broken outline: Kafka's default. Strong outline: the pick. Empty cells were not measured.{more}"
            ),
            svg: map.to_svg(),
            table,
        })
    }

    /// Latency over throughput; at a fixed rate, over cost.
    fn front(&self, answer: &Answer) -> Option<Figure> {
        let fixed = answer.asked.load.offered().is_some();
        let x_of =
            |measured: &Measured| if fixed { measured.cpu_ms_per_mb() } else { Some(measured.bytes_per_second / 1e6) };
        let y_of = |measured: &Measured| measured.percentile(self.goal.percentile()).filter(|value| *value > 0.0);
        let spot = |setting: &Setting| Some((x_of(&setting.measured)?, y_of(&setting.measured)?));
        let x = if fixed { Axis::log("CPU, ms per MB", units::digits) } else { Axis::log("MB/s", units::digits) };
        let mut chart = Chart::new("Front", x, Axis::log(self.goal.percentile(), units::micros));
        chart.height = 380.0;
        let scattered = |name: &str, style: usize, settings: Vec<&Setting>, named: bool| {
            let points: Vec<((f64, f64), String)> = settings
                .iter()
                .filter_map(|setting| {
                    Some((spot(setting)?, if named { self.space.short(&setting.point) } else { String::new() }))
                })
                .collect();
            Line {
                dots: true,
                scattered: true,
                labels: points.iter().map(|(_, label)| label.clone()).collect(),
                ..Line::new(name, style, points.into_iter().map(|(point, _)| point).collect())
            }
        };
        let is = |setting: &&Setting, point: &Point| setting.point == *point;
        let default = self.space.default_point();
        let pick = &answer.advice.pick;
        let plain = |setting: &&Setting| !is(setting, &default) && !is(setting, pick);
        chart.lines.push(scattered(
            "beaten by another",
            5,
            answer.points.iter().filter(|one| !one.on_front).filter(plain).collect(),
            false,
        ));
        let front: Vec<&Setting> = answer.points.iter().filter(|one| one.on_front).collect();
        chart.lines.push(scattered("front", 0, front.iter().copied().filter(plain).collect(), false));
        chart.lines.push(scattered(
            "Kafka's default",
            1,
            answer.points.iter().filter(|one| is(one, &default)).collect(),
            true,
        ));
        if *pick != default {
            chart.lines.push(scattered("pick", 2, answer.points.iter().filter(|one| is(one, pick)).collect(), true));
        }
        if let Some(limit) = self.goal.slo.limit_us(self.goal.percentile()) {
            chart.marks.push(Mark::Across(limit, self.goal.slo.to_string()));
        }
        let mut table = Table { head: heads(self.goal), rows: Vec::new() };
        for setting in front {
            let knee = if Some(&setting.settings) == answer.knee.as_ref() { "knee" } else { "" };
            table.row(cells(self.space, self.goal, setting, knee.to_owned()));
        }
        (!chart.is_empty()).then(|| Figure {
            id: "front".to_owned(),
            title: "What nothing beats".to_owned(),
            caption: "Each dot is a setting. The front are those that no other beats in throughput, latency and cost at once; the knee gives up little of each.".to_owned(),
            svg: chart.to_svg(),
            table,
        })
    }

    fn effects(&self, answer: &Answer) -> Option<Figure> {
        let mut rows = Vec::new();
        let mut table =
            Table::new(&["knob", "verdict", "on average", "with the rest as picked", "at most", "as good within 5 %"]);
        for effect in &answer.effects {
            let verdict = match effect.matters {
                Matters::Yes => "matters",
                Matters::No => "does not matter",
                Matters::NotShown => "not shown",
            };
            rows.push(Bar {
                name: effect.name.to_owned(),
                value: effect.at_pick.max(effect.on_average),
                text: format!("{:.0} %, {verdict}", effect.at_pick.max(effect.on_average) * 100.0),
                style: if effect.matters == Matters::Yes { 0 } else { 5 },
            });
            let (low, high) = effect.as_good;
            table.row(vec![
                effect.name.to_owned(),
                verdict.to_owned(),
                format!("{:.1} %", effect.on_average * 100.0),
                format!("{:.1} %", effect.at_pick * 100.0),
                format!("{:.1} %", effect.at_most * 100.0),
                format!("{} to {}", effect.knob.show(low), effect.knob.show(high)),
            ]);
        }
        (!rows.is_empty()).then(|| Figure {
            id: "effects".to_owned(),
            title: "Which knobs matter".to_owned(),
            caption: format!(
                "By how much {} differs between the best and the worst value of a knob.",
                self.goal.number_name()
            ),
            svg: bars("Effects", &rows, None),
            table,
        })
    }

    fn drift_over_time(&self) -> Option<Figure> {
        let points: Vec<(f64, f64)> =
            self.drift.points().iter().map(|(at, value)| (at.as_secs_f64() / 60.0, value.exp())).collect();
        if points.len() < 2 {
            return None;
        }
        let format: fn(f64) -> String = match self.goal.target {
            Target::Latency => units::micros,
            Target::Throughput => |value| format!("{} MB/s", units::digits(value / 1e6)),
            Target::Cost => units::digits,
        };
        let y = Axis::linear(self.goal.number_name(), format);
        let mut chart = Chart::new("Kafka's default over time", Axis::linear("minutes", |value| format!("{value}")), y);
        chart.height = 220.0;
        let mut table = Table::new(&["minute", self.goal.number_name()]);
        for (at, value) in &points {
            table.row(vec![format!("{at:.1}"), format(*value)]);
        }
        chart.lines.push(Line { dots: true, ..Line::new("Kafka's default", 1, points) });
        let shown = self.drift.shown().map_or_else(
            || "No drift was shown.".to_owned(),
            |drift| format!("The host drifted by {:.0} %; comparisons are corrected for it.", drift * 100.0),
        );
        Some(Figure {
            id: "drift".to_owned(),
            title: "Did the host stay the same?".to_owned(),
            caption: format!("Kafka's default point, measured again every few trials. {shown}"),
            svg: chart.to_svg(),
            table,
        })
    }

    fn all(&self, settings: &[Setting], pick: &Point) -> Figure {
        let mut table = Table { head: heads(self.goal), rows: Vec::new() };
        let default = self.space.default_point();
        for setting in settings {
            let mark = match () {
                () if setting.point == *pick => "pick",
                () if setting.point == default => "Kafka's default",
                () if !setting.holds => "does not hold",
                () => "",
            };
            table.row(cells(self.space, self.goal, setting, mark.to_owned()));
        }
        Figure {
            id: "settings".to_owned(),
            title: "Every setting that was measured".to_owned(),
            caption: "All trials of a setting together, weighted by their length.".to_owned(),
            svg: String::new(),
            table,
        }
    }

    fn end(&self, mut body: String, title: &str, tool: &str, started_at: &str) -> String {
        _ = write!(body, "<section id=\"again\"><h2>To do it again</h2><pre>{}</pre></section>", escape(self.command));
        let footer = format!(
            "Written by {}, {}. This page loads nothing from the network and needs no scripts; all trials are in the journal.",
            escape(tool),
            escape(started_at)
        );
        shell(title, &body, &footer)
    }
}

/// What a heat map shows.
struct Quantity {
    id: &'static str,
    /// `None`: the name of the goal's percentile.
    title: Option<&'static str>,
    of: fn(&Measured, &Goal) -> Option<f64>,
    format: fn(f64) -> String,
    low_is_good: bool,
}

const MAPS: [Quantity; 4] = [
    Quantity {
        id: "map-latency",
        title: None,
        of: |measured, goal| measured.percentile(goal.percentile()).filter(|value| *value > 0.0),
        format: units::micros,
        low_is_good: true,
    },
    Quantity {
        id: "map-throughput",
        title: Some("MB/s"),
        of: |measured, _| Some(measured.bytes_per_second / 1e6),
        format: units::digits,
        low_is_good: false,
    },
    Quantity {
        id: "map-cost",
        title: Some("CPU, ms per MB"),
        of: |measured, _| measured.cpu_ms_per_mb(),
        format: units::digits,
        low_is_good: true,
    },
    Quantity {
        id: "map-fill",
        title: Some("fill of a batch when it leaves"),
        of: |measured, _| Some(measured.fill.min(1.0)),
        format: |value| format!("{:.0} %", value * 100.0),
        low_is_good: false,
    },
];

/// Settings by batch.size (rows) and linger.ms (columns).
struct Plane<'a> {
    space: &'a Space,
    settings: &'a [Setting],
    /// The factors of batch.size and of linger.ms.
    size: usize,
    linger: usize,
    /// Their levels that were measured; the others would be empty rows of a grid.
    rows: Vec<usize>,
    columns: Vec<usize>,
}

impl<'a> Plane<'a> {
    /// `None` when one of the knobs was not searched.
    fn of(space: &'a Space, settings: &'a [Setting]) -> Option<Self> {
        let place = |knob| space.factors.iter().position(|factor| factor.knob == knob);
        let (size, linger) = (place(Knob::BatchSize)?, place(Knob::Linger)?);
        let levels = |factor: usize| -> Vec<usize> {
            (0..space.factors[factor].levels.len())
                .filter(|level| settings.iter().any(|setting| setting.point[factor] == *level))
                .collect()
        };
        Some(Self { space, settings, size, linger, rows: levels(size), columns: levels(linger) })
    }

    /// The best setting of a cell.
    fn cell(&self, goal: &Goal, row: usize, column: usize) -> Option<&Setting> {
        let is_here = |setting: &&Setting| setting.point[self.size] == row && setting.point[self.linger] == column;
        let here = self.settings.iter().filter(is_here);
        here.max_by(|a, b| goal.standing(&a.measured).compare(&goal.standing(&b.measured)))
    }

    /// A number of each cell, by row and column.
    fn values(&self, goal: &Goal, of: fn(&Measured, &Goal) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
        let value = |row: usize, column: usize| of(&self.cell(goal, row, column)?.measured, goal);
        self.rows.iter().map(|row| self.columns.iter().map(|column| value(*row, *column)).collect()).collect()
    }

    /// (row, column) of a point, when it was measured.
    fn spot(&self, point: &[usize]) -> Option<(usize, usize)> {
        let row = self.rows.iter().position(|level| *level == point[self.size])?;
        Some((row, self.columns.iter().position(|level| *level == point[self.linger])?))
    }

    fn names(&self, factor: usize, levels: &[usize]) -> Vec<String> {
        let factor = &self.space.factors[factor];
        levels.iter().map(|level| factor.knob.show(factor.levels[*level])).collect()
    }
}

fn held_fixed(list: &[(String, String)]) -> Figure {
    let mut table = Table::new(&["name", "value"]);
    for (name, value) in list {
        table.row(vec![name.clone(), value.clone()]);
    }
    Figure {
        id: "held-fixed".to_owned(),
        title: "What was held fixed".to_owned(),
        caption: "The answer holds for these; another load or another broker may want another.".to_owned(),
        svg: String::new(),
        table,
    }
}

/// Found against predicted, for the parts that may be shown; errors of all.
fn models(report: &model::Report, goal: &Goal) -> Option<Figure> {
    let mut table = Table::new(&["part", "term", "of", "value", "error on held-out settings"]);
    let mut svg = String::new();
    type Shown<'a> = (&'static str, &'a Option<model::Part>, fn(f64) -> String);
    let parts: [Shown<'_>; 2] = [("CPU per MB", &report.cpu, units::digits), ("p50", &report.p50, units::micros)];
    for (name, part, format) in parts {
        let Some(part) = part else { continue };
        let error = format!("{:.1} % (at worst {:.0} %)", part.error * 100.0, part.error_max * 100.0);
        if !part.is_good() {
            table.row(vec![name.to_owned(), "not shown".to_owned(), String::new(), String::new(), error]);
            continue;
        }
        for term in &part.terms {
            let value = format!("{} {}", units::digits(term.value), term.unit);
            table.row(vec![name.to_owned(), term.name.clone(), term.of.clone(), value, error.clone()]);
        }
        let mut chart = Chart::new(
            format!("{name}: found and predicted"),
            Axis::log(&format!("{name}, found"), format),
            Axis::log(&format!("{name}, predicted"), format),
        );
        chart.height = 280.0;
        let ends = || part.held_out.iter().flat_map(|(found, predicted)| [*found, *predicted]);
        let (low, high) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
        chart.lines.push(Line::new("exact", 5, vec![(low, low), (high, high)]));
        let dots = Line { dots: true, scattered: true, ..Line::new("held-out settings", 0, part.held_out.clone()) };
        chart.lines.push(dots);
        svg.push_str(&chart.to_svg());
    }
    // One picture can be taken away as a file; two would not be one.
    let pictures = svg.matches("<svg").count();
    let caption = format!(
        "CPU = a·requests + b·MB + c·records + d·partition-batches + e·requests that find the broker asleep; latency = linger wait + queue + service. Each dot was predicted by a fit that had not seen it. Wanted here: {}.",
        goal
    );
    (!table.rows.is_empty()).then(|| Figure {
        id: "model".to_owned(),
        title: "What explains the numbers".to_owned(),
        caption,
        svg: if pictures == 2 { stacked(&svg) } else { svg },
        table,
    })
}

/// Two pictures of the model, one above the other, as one.
fn stacked(svgs: &str) -> String {
    const EACH: f64 = 280.0;
    let mut out = crate::bench::svg::open("Model: found and predicted", 2.0 * EACH + 10.0);
    for (index, piece) in svgs.split_inclusive("</svg>").enumerate() {
        // An inner picture of the same width, moved down.
        let inner = piece.replacen(
            "<svg class=\"chart\"",
            &format!("<svg y=\"{:.0}\" height=\"{EACH}\"", (EACH + 10.0) * index as f64),
            1,
        );
        out.push_str(&inner);
    }
    out.push_str("</svg>");
    out
}
