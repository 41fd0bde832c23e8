//! The figures of a comparison: ratios, throughput against latency, percentiles laid over each other, cost by request size, the
//! course of a soak.
//!
//! Pure. Owns the choice of figures and their words. Does not own drawing (`bench::svg`, `bench::plots`) or the page (`html`).
//! Always true: a figure appears only when there is what it shows; a cell that may not be quoted is in none of them.

use super::metric::{BYTES_PER_REQUEST, Metric};
use super::presets::floor_ms_per_mb;
use super::report::{CellReport, Comparison, Finding, State, Stretch};
use super::verdict::{PAIRS_MIN, shown};
use crate::bench::figures::{Figure, Table};
use crate::bench::plots::{ForestRow, forest};
use crate::bench::recorder::decode;
use crate::bench::stats::median;
use crate::bench::svg::{Axis, Chart, Line};
use crate::bench::units;

/// Line styles of percentiles, by target.
const STYLES: [[usize; 3]; 2] = [[0, 2, 4], [1, 3, 5]];

/// What a cell is called in figures: with its layout where there are two.
pub(super) fn name_of(comparison: &Comparison, cell: &CellReport) -> String {
    let head = format!("{} {}", cell.key.split('@').next().unwrap_or_default(), cell.name);
    if comparison.layouts.len() > 1 { format!("{head} ({})", cell.layout) } else { head }
}

fn quotable(comparison: &Comparison) -> impl Iterator<Item = &CellReport> {
    comparison.cells.iter().filter(|cell| cell.state == State::Valid)
}

fn layouts(comparison: &Comparison) -> Vec<String> {
    let mut layouts: Vec<String> = Vec::new();
    for cell in &comparison.cells {
        if !layouts.contains(&cell.layout) {
            layouts.push(cell.layout.clone());
        }
    }
    layouts
}

fn of_layout(comparison: &Comparison, layout: &str, words: &str) -> (String, String) {
    if layouts(comparison).len() > 1 {
        (format!("-{layout}"), format!("{words}, {layout} cores"))
    } else {
        (String::new(), words.to_owned())
    }
}

/// Every figure a comparison has, in reading order.
pub(super) fn all(comparison: &Comparison) -> Vec<Figure> {
    let mut figures: Vec<Figure> = forests(comparison);
    for layout in layouts(comparison) {
        figures.extend(load_curve(comparison, &layout));
        figures.extend(cost_by_size(comparison, &layout));
        figures.extend(courses(comparison, &layout));
    }
    figures.extend(
        quotable(comparison)
            .filter(|cell| cell.histograms.iter().all(|text| !text.is_empty()))
            .filter_map(|cell| percentiles(comparison, cell)),
    );
    figures.extend(every_pair(comparison));
    figures
}

/// Ratios, one figure for each sort of number.
fn forests(comparison: &Comparison) -> Vec<Figure> {
    Sort::ALL.iter().filter_map(|sort| sort.forest(comparison)).collect()
}

/// Numbers that are told together.
struct Sort {
    id: &'static str,
    title: &'static str,
    holds: fn(Metric) -> bool,
    /// What a target has that is ahead.
    ahead: Ahead,
}

#[derive(Clone, Copy)]
enum Ahead {
    More,
    Less,
}

impl Sort {
    const ALL: [Self; 4] = [
        Self { id: "ratio-throughput", title: "Throughput", holds: Metric::is_rate, ahead: Ahead::More },
        Self {
            id: "ratio-latency",
            title: "Latency",
            holds: |metric| {
                matches!(
                    metric,
                    Metric::P50
                        | Metric::P99
                        | Metric::P999
                        | Metric::Seconds
                        | Metric::Outage
                        | Metric::NoiseInflation
                        | Metric::P99Alone
                        | Metric::DeletionStep
                        | Metric::LatencyDrift
                )
            },
            ahead: Ahead::Less,
        },
        Self {
            id: "ratio-cost",
            title: "Processor time",
            holds: |metric| {
                matches!(
                    metric,
                    Metric::CpuPerMb
                        | Metric::SystemCpuPerMb
                        | Metric::CpuPerRequest
                        | Metric::CpuPerThousand
                        | Metric::CpuShare
                )
            },
            ahead: Ahead::Less,
        },
        Self {
            id: "ratio-rest",
            title: "Memory, switches, bytes to the device",
            holds: |metric| {
                matches!(metric, Metric::Rss | Metric::MemoryDrift | Metric::Switches | Metric::WriteAmplification)
            },
            ahead: Ahead::Less,
        },
    ];

    /// `None` when no quotable cell has a ratio of this sort.
    fn forest(&self, comparison: &Comparison) -> Option<Figure> {
        let (first, second) = (comparison.name(0), comparison.name(1));
        let mut rows = Vec::new();
        let mut table = Table::new(&["workload", "what", first, second, "ratio", "95 % interval", "pairs", "verdict"]);
        for cell in quotable(comparison) {
            for finding in &cell.findings {
                let Some(metric) = Metric::from_key(&finding.metric).filter(|metric| (self.holds)(*metric)) else {
                    continue;
                };
                let Some(ratio) = finding.ratio else { continue };
                let mut row = vec![name_of(comparison, cell), metric.name().to_owned()];
                row.extend(
                    (0..2).map(|target| {
                        finding.medians.get(target).map_or_else(String::new, |value| shown(metric, *value))
                    }),
                );
                row.extend([
                    format!("{:.2}×", ratio.value),
                    finding.interval("", " – ", ""),
                    finding.pairs.to_string(),
                    finding.claim(),
                ]);
                table.row(row);
                if is_drawn(finding) {
                    let name = format!("{}: {}", cell_short(comparison, cell), metric.short());
                    rows.push(ForestRow { name, ratio, more_is_better: metric.more_is_better() });
                }
            }
        }
        if table.rows.is_empty() {
            return None;
        }
        let caption = format!(
            "{first} over {second}: the geometric mean of the ratio of each pair with its 95 % interval (Student's, of the logarithms). Grey where the interval holds 1: no \
             difference was shown. Green is where {first} does better, red where {second} does. Rates that the client or the offered load was the limit of are in the table only."
        );
        let (left, right) = match self.ahead {
            Ahead::More => (format!("{second} more"), format!("{first} more")),
            Ahead::Less => (format!("{first} less"), format!("{second} less")),
        };
        let svg = if rows.is_empty() { String::new() } else { forest(self.title, &rows, &left, &right) };
        Some(Figure { id: self.id.to_owned(), title: format!("{}: ratios", self.title), caption, svg, table })
    }
}

/// What too few pairs found, and a rate that something else than the broker was the limit of, is in the table only.
fn is_drawn(finding: &Finding) -> bool {
    finding.pairs as usize >= PAIRS_MIN && !matches!(finding.word.as_str(), "client-bound" | "as offered")
}

fn cell_short(comparison: &Comparison, cell: &CellReport) -> String {
    if comparison.layouts.len() > 1 { format!("{} ({})", cell.key, cell.layout) } else { cell.key.clone() }
}

fn medians(cell: &CellReport, metric: Metric) -> Option<[f64; 2]> {
    let finding: &Finding = cell.findings.iter().find(|finding| finding.metric == metric.key())?;
    Some([*finding.medians.first()?, *finding.medians.get(1)?])
}

fn load_curve(comparison: &Comparison, layout: &str) -> Option<Figure> {
    let mut steps: Vec<&CellReport> =
        quotable(comparison).filter(|cell| cell.workload == "W10" && cell.layout == layout).collect();
    steps.sort_by(|a, b| a.offered.unwrap_or(0.0).total_cmp(&b.offered.unwrap_or(0.0)));
    if steps.len() < 2 {
        return None;
    }
    let mut chart = Chart::new(
        "End-to-end latency by offered load",
        Axis::linear("offered records per second", units::count),
        Axis::log("end-to-end latency", units::micros),
    );
    let mut table = Table::new(&["offered/s", "of the slower maximum", "target", "p50", "p99", "p99.9", "CPU per MB"]);
    let percentiles = [(Metric::P50, "p50"), (Metric::P99, "p99"), (Metric::P999, "p99.9")];
    for (target, styles) in STYLES.iter().enumerate() {
        for ((metric, name), style) in percentiles.iter().zip(styles) {
            let points =
                steps.iter().filter_map(|cell| Some((cell.offered?, medians(cell, *metric)?[target]))).collect();
            chart
                .lines
                .push(Line { dots: true, ..Line::new(format!("{} {name}", comparison.name(target)), *style, points) });
        }
        for cell in &steps {
            let mut row = vec![
                units::grouped(cell.offered.unwrap_or(0.0) as u64),
                cell.offered_share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0)),
                comparison.name(target).to_owned(),
            ];
            row.extend(percentiles.iter().map(|(metric, _)| *metric).chain([Metric::CpuPerMb]).map(|metric| {
                medians(cell, metric).map_or_else(|| "–".to_owned(), |both| shown(metric, both[target]))
            }));
            table.row(row);
        }
    }
    chart.height = 380.0;
    let (suffix, title) = of_layout(comparison, layout, "Latency by offered load");
    Some(Figure {
        id: format!("load{suffix}"),
        title,
        caption: "Open loop, Poisson arrivals: both were offered the same rates, shares of the slower one's maximum. Latency counts from the moment a \
                  record was meant to be sent to the consumer's hands; medians over the pairs."
            .to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

/// Points of the cost curve: produced loads whose class is the everyday one.
fn cost_points(cell: &CellReport, target: usize) -> Option<(f64, f64)> {
    let of = |key: &str| {
        let values: Vec<f64> =
            cell.measurements.iter().filter(|one| one.target == target).filter_map(|one| one.number(key)).collect();
        median(&values).filter(|value| *value > 0.0)
    };
    Some((of(BYTES_PER_REQUEST)?, of(Metric::CpuPerMb.key())?))
}

fn cost_by_size(comparison: &Comparison, layout: &str) -> Option<Figure> {
    let mut chart = Chart::new(
        "Broker CPU per megabyte by request size",
        Axis::log("bytes per produce request", units::bytes),
        Axis::log("broker CPU, ms per MB", units::digits),
    );
    let mut table = Table::new(&["workload", "target", "bytes per request", "CPU per MB", "floor", "times the floor"]);
    let cells: Vec<&CellReport> = quotable(comparison)
        .filter(|cell| {
            cell.layout == layout
                && matches!(cell.workload.as_str(), "W1" | "W2" | "W3" | "W4" | "cost")
                && cell.offered.is_none()
        })
        .collect();
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for target in 0..2 {
        let mut points = Vec::new();
        for cell in &cells {
            let Some((bytes, cost)) = cost_points(cell, target) else { continue };
            (low, high) = (low.min(bytes), high.max(bytes));
            points.push((bytes, cost));
            let floor = floor_ms_per_mb(bytes);
            table.row(vec![
                cell.key.clone(),
                comparison.name(target).to_owned(),
                units::bytes(bytes),
                units::digits(cost),
                units::digits(floor),
                format!("{:.1}×", cost / floor),
            ]);
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.lines.push(Line { dots: true, ..Line::new(comparison.name(target), target, points) });
    }
    if chart.lines.iter().any(|line| line.points.len() < 2) {
        return None;
    }
    let steps = 40;
    let floor = (0..=steps)
        .map(|step| low * (high / low).powf(f64::from(step) / f64::from(steps)))
        .map(|bytes| (bytes, floor_ms_per_mb(bytes)));
    chart.lines.push(Line::new("floor: 9,000 cycles a request + 1 a byte at 3 GHz", 5, floor.collect()));
    chart.height = 380.0;
    let (suffix, title) = of_layout(comparison, layout, "What a megabyte costs, by the size of requests");
    Some(Figure {
        id: format!("cost-by-size{suffix}"),
        title,
        caption: "The most telling picture: small requests cost the broker per request, large ones per byte. The floor is what receiving, checking and \
                  writing cost at least by published measurements of the parts; a broker can come near it, not below."
            .to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

/// `1:05:00`, `5:00`.
fn clock_time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Latency and memory of a soak over its time.
fn courses(comparison: &Comparison, layout: &str) -> Vec<Figure> {
    type Of = fn(&Stretch) -> Option<f64>;
    let sorts: [(&str, &str, Axis, Metric, Of); 2] = [
        ("soak-latency", "p99 over a soak", Axis::log("p99 latency", units::micros), Metric::P99, |at| at.p99_us),
        ("soak-memory", "Memory over a soak", Axis::linear("resident memory", units::bytes), Metric::Rss, |at| {
            at.rss_bytes
        }),
    ];
    let Some(cell) = quotable(comparison)
        .find(|cell| cell.layout == layout && cell.measurements.iter().any(|one| !one.course.is_empty()))
    else {
        return Vec::new();
    };
    let mut figures = Vec::new();
    for (id, words, axis, metric, of) in sorts {
        let mut chart = Chart::new(words, Axis::linear("time", clock_time), axis);
        let mut table = Table::new(&["target", "until", words]);
        for one in &cell.measurements {
            let points: Vec<(f64, f64)> = one.course.iter().filter_map(|at| Some((at.seconds, of(at)?))).collect();
            for (seconds, value) in &points {
                let name = comparison.name(one.target).to_owned();
                table.row(vec![name, clock_time(*seconds), shown(metric, *value)]);
            }
            if !points.is_empty() {
                chart.lines.push(Line::new(comparison.name(one.target), one.target, points));
            }
        }
        if chart.lines.is_empty() {
            continue;
        }
        let (suffix, title) = of_layout(comparison, layout, words);
        let caption = format!("{}. One point a stretch.", cell.load);
        figures.push(Figure { id: format!("{id}{suffix}"), title, caption, svg: chart.to_svg(), table });
    }
    figures
}

fn percentiles(comparison: &Comparison, cell: &CellReport) -> Option<Figure> {
    const TICKS: [(&str, f64); 7] = [
        ("50 %", 2.0),
        ("90 %", 10.0),
        ("99 %", 1e2),
        ("99.9 %", 1e3),
        ("99.99 %", 1e4),
        ("99.999 %", 1e5),
        ("99.9999 %", 1e6),
    ];
    let histograms: Vec<_> = cell.histograms.iter().map(|text| decode(text).ok()).collect::<Option<_>>()?;
    let largest = histograms.iter().map(hdrhistogram::Histogram::len).max()?.max(10) as f64;
    let mut x = Axis::log("percentile", |inverse| format!("{:.5} %", 100.0 - 100.0 / inverse));
    x.range = Some((1.0, largest));
    x.ticks = Some(TICKS.iter().filter(|(_, at)| *at <= largest).map(|(text, at)| (*at, (*text).to_owned())).collect());
    let mut chart = Chart::new(format!("Latency by percentile, {}", cell.key), x, Axis::log("latency", units::micros));
    let mut table = Table::new(&["percentile", comparison.name(0), comparison.name(1)]);
    const STEPS: i32 = 160;
    for (target, histogram) in histograms.iter().enumerate() {
        let end = (histogram.len() as f64).max(10.0);
        let points = (0..=STEPS)
            .map(|step| end.powf(f64::from(step) / f64::from(STEPS)))
            .map(|inverse| (inverse, histogram.value_at_quantile(1.0 - 1.0 / inverse) as f64))
            .filter(|(_, value)| *value > 0.0)
            .collect();
        chart.lines.push(Line::new(comparison.name(target), target, points));
    }
    for (name, at) in TICKS.iter().filter(|(_, at)| *at <= largest) {
        let mut row = vec![(*name).to_owned()];
        row.extend(histograms.iter().map(|histogram| {
            // A percentile with fewer records than it takes to have one says nothing.
            if histogram.len() as f64 >= *at {
                units::micros(histogram.value_at_quantile(1.0 - 1.0 / at) as f64)
            } else {
                "–".to_owned()
            }
        }));
        table.row(row);
    }
    let mut maxima = vec!["largest".to_owned()];
    maxima.extend(histograms.iter().map(|histogram| units::micros(histogram.max() as f64)));
    table.row(maxima);
    Some(Figure {
        id: format!("percentiles-{}-{}", cell.layout, cell.key.replace(['@', '%', '.'], "").to_ascii_lowercase()),
        title: format!("Latency by percentile: {}", name_of(comparison, cell)),
        caption: format!("{}. All pairs added up. Every step to the right is ten times rarer.", cell.load),
        svg: chart.to_svg(),
        table,
    })
}

/// Every number that was measured.
fn every_pair(comparison: &Comparison) -> Option<Figure> {
    let mut table = Table::new(&["workload", "pair", "target", "went", "headline", "second", "third", "steal"]);
    for cell in &comparison.cells {
        let metrics: Vec<Metric> =
            cell.findings.iter().filter_map(|finding| Metric::from_key(&finding.metric)).take(3).collect();
        let mut turns: Vec<_> = cell.measurements.iter().collect();
        turns.sort_by_key(|one| (one.pair, !one.first));
        for one in turns {
            let mut row = vec![
                cell_short(comparison, cell),
                (one.pair + 1).to_string(),
                comparison.name(one.target).to_owned(),
                if one.first { "first" } else { "second" }.to_owned(),
            ];
            for place in 0..3 {
                let number = metrics.get(place).and_then(|metric| {
                    Some(format!("{} {}", metric.short(), shown(*metric, one.number(metric.key())?)))
                });
                let missing =
                    if place == 0 { one.error.lines().next().unwrap_or_default().to_owned() } else { String::new() };
                row.push(number.unwrap_or(missing));
            }
            row.push(format!("{:.1} %", one.steal * 100.0));
            table.row(row);
        }
    }
    (!table.rows.is_empty()).then(|| Figure {
        id: "pairs".to_owned(),
        title: "Every pair".to_owned(),
        caption: "In the order of pairs; who went first was drawn at random.".to_owned(),
        svg: String::new(),
        table,
    })
}
