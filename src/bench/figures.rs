//! The figures of a report: which of a run's facts are drawn, and the table under each.
//!
//! Pure. Owns the choice of figures and their words. Does not own drawing (`svg`, `plots`) or the page (`html`). Always
//! true: a figure appears only when the run has what it shows; several runs are laid over each other in the order given.
//! Source: the figure list of the report's design (throughput, latency, percentile curve, load curve, batch anatomy, cost, stages, shards).

use hdrhistogram::Histogram;

use super::plots::{Bar, Panel, Stack, bars, panels, stacks};
use super::recorder::decode;
use super::report::{Percentiles, RequestStages, Run, ShardWork};
use super::svg::{Axis, Chart, Line, Mark};
use super::units;

/// A picture, a sentence, and the numbers behind it.
pub struct Figure {
    /// Names it in links and downloads: letters and dashes.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// How it is read.
    pub caption: String,
    /// The picture; empty when there is only a table.
    pub svg: String,
    /// The numbers.
    pub table: Table,
}

/// Numbers with names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Over the columns.
    pub head: Vec<String>,
    /// As many cells as `head`.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// With these names over its columns.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Columns as rows: for few things with many facts each.
    fn turned(self) -> Self {
        let head = std::iter::once(String::new()).chain(self.rows.iter().map(|row| row[0].clone())).collect();
        let rows = (1..self.head.len()).map(|column| {
            std::iter::once(self.head[column].clone()).chain(self.rows.iter().map(|row| row[column].clone())).collect()
        });
        Self { head, rows: rows.collect() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

/// How a run is called in legends.
pub fn name_of(run: &Run, runs: usize) -> String {
    match (run.label.is_empty(), runs) {
        // The only run needs no name beside its numbers.
        (_, 1) => String::new(),
        (false, _) => run.label.clone(),
        (true, _) => format!("{} {}", run.kind, run.started_at),
    }
}

fn prefixed(run: &Run, runs: usize, name: &str) -> String {
    let label = name_of(run, runs);
    if runs == 1 || label.is_empty() { name.to_owned() } else { format!("{label}: {name}") }
}

fn seconds(value: f64) -> String {
    format!("{value} s")
}

fn per_second(value: f64) -> String {
    format!("{}/s", units::count(value))
}

/// Every figure these runs have, in reading order.
pub fn all(runs: &[Run]) -> Vec<Figure> {
    let figures = [
        percentile_table(runs),
        throughput(runs),
        latency_over_time(runs),
        percentile_curve(runs),
        load_curve(runs),
        search_steps(runs),
        batch_anatomy(runs),
        costs(runs),
        ceilings(runs),
        stages(runs),
        shards(runs),
        broker_counters(runs),
        repeats(runs),
    ];
    figures.into_iter().flatten().collect()
}

fn latencies(run: &Run) -> [(&'static str, &'static str, Option<&Percentiles>); 5] {
    let results = &run.results;
    [
        ("response", "response_us", results.response_us.as_ref()),
        ("service", "service_us", results.service_us.as_ref()),
        ("publish delay", "publish_delay_us", results.publish_delay_us.as_ref()),
        ("end to end", "end_to_end_us", results.end_to_end_us.as_ref()),
        ("generator slip", "slip_us", results.slip_us.as_ref()),
    ]
}

fn percentile_table(runs: &[Run]) -> Option<Figure> {
    let mut table = Table::new(&["latency", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max", "mean", "count"]);
    for run in runs {
        for (name, _, percentiles) in latencies(run) {
            // A closed loop is never late: zeros would only look like numbers.
            let Some(all) = percentiles.filter(|all| all.max > 0) else { continue };
            let micros = |value: u64| units::micros(value as f64);
            table.row(vec![
                prefixed(run, runs.len(), name),
                micros(all.p50),
                micros(all.p90),
                micros(all.p95),
                micros(all.p99),
                micros(all.p999),
                micros(all.p9999),
                micros(all.max),
                units::micros(all.mean),
                units::grouped(all.count),
            ]);
        }
    }
    (!table.rows.is_empty()).then(|| Figure {
        id: "latency".to_owned(),
        title: "Latency".to_owned(),
        caption: "Response is counted from the moment a record was meant to be sent, so a stall is charged to every record that waited behind it. \
                  It is publish delay (meant to be sent → handed to the client) plus service (handed over → acknowledged). Slip is the part of the delay \
                  that the generator itself caused."
            .to_owned(),
        svg: String::new(),
        table,
    })
}

/// Where measuring began and ended, for shading.
fn measured(run: &Run) -> Option<(f64, f64)> {
    let mut inside = run.series.iter().filter(|second| second.measured).map(|second| second.t as f64);
    let first = inside.next()?;
    Some((first, inside.next_back().unwrap_or(first) + 1.0))
}

/// The time axis of all runs: from their begin to the last second of the longest.
fn time_axis(runs: &[Run]) -> Axis {
    let end = runs.iter().filter_map(|run| run.series.last()).map(|second| second.t + 1).max().unwrap_or(1);
    Axis { range: Some((0.0, end as f64)), ..Axis::linear("seconds since the run began", seconds) }
}

fn shade_warm_up(chart: &mut Chart, runs: &[Run]) {
    let Some((from, to)) = runs.first().and_then(measured) else { return };
    let end = runs[0].series.last().map_or(to, |second| second.t as f64 + 1.0);
    if from > 0.0 {
        chart.bands.push((0.0, from, "warm-up".to_owned()));
    }
    if end > to {
        chart.bands.push((to, end, "drain".to_owned()));
    }
}

fn throughput(runs: &[Run]) -> Option<Figure> {
    let mut chart =
        Chart::new("Throughput over time", time_axis(runs), Axis::linear("records per second", units::count));
    let mut table =
        Table::new(&["second", "run", "offered", "sent", "acknowledged", "MB/s", "read", "backlog", "errors"]);
    let one = runs.len() == 1;
    for (run, index) in runs.iter().zip(0..) {
        let points = |pick: &dyn Fn(&super::report::Second) -> Option<f64>| {
            run.series.iter().filter_map(|second| Some((second.t as f64 + 0.5, pick(second)?))).collect::<Vec<_>>()
        };
        let name = |word: &str| prefixed(run, runs.len(), word);
        let has = |pick: fn(&super::report::Second) -> u64| run.series.iter().any(|second| pick(second) > 0);
        if has(|second| second.acked) {
            chart.lines.push(Line {
                area: one,
                ..Line::new(name("acknowledged"), index, points(&|second| Some(second.acked as f64)))
            });
        }
        if one && run.series.iter().any(|second| second.offered.is_some()) {
            chart.lines.push(Line::new(name("offered"), 1, points(&|second| second.offered)));
        }
        if has(|second| second.consumed) && (one || run.kind == "consume") {
            let style = if one { 2 } else { index };
            chart.lines.push(Line::new(name("read"), style, points(&|second| Some(second.consumed as f64))));
        }
        if one && has(|second| second.backlog) {
            chart.lines.push(Line::new(name("backlog (records)"), 3, points(&|second| Some(second.backlog as f64))));
        }
        for second in &run.series {
            table.row(vec![
                second.t.to_string(),
                name_of(run, runs.len()),
                second.offered.map_or_else(String::new, |offered| units::grouped(offered as u64)),
                units::grouped(second.sent),
                units::grouped(second.acked),
                units::digits(second.bytes as f64 / 1e6),
                units::grouped(second.consumed),
                units::grouped(second.backlog),
                second.errors.to_string(),
            ]);
        }
    }
    shade_warm_up(&mut chart, runs);
    (!chart.is_empty()).then(|| Figure {
        id: "throughput".to_owned(),
        title: "Throughput over time".to_owned(),
        caption: "Records in each second. Warm-up and drain are shaded and do not count.".to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

fn latency_over_time(runs: &[Run]) -> Option<Figure> {
    let mut chart = Chart::new("Latency over time", time_axis(runs), Axis::log("latency", units::micros));
    let mut table = Table::new(&["second", "run", "p50", "p99", "p99.9", "max"]);
    for (run, index) in runs.iter().zip(0..) {
        type Pick = fn(&super::report::Second) -> u64;
        let one: &[(&str, usize, Pick)] = &[
            ("p50", 0, |second| second.p50_us),
            ("p99", 1, |second| second.p99_us),
            ("p99.9", 2, |second| second.p999_us),
            ("max", 3, |second| second.max_us),
        ];
        let several: &[(&str, usize, Pick)] = &[("p99", index, |second| second.p99_us)];
        for (name, style, pick) in if runs.len() == 1 { one } else { several } {
            let points: Vec<(f64, f64)> = run
                .series
                .iter()
                .filter(|second| pick(second) > 0)
                .map(|second| (second.t as f64 + 0.5, pick(second) as f64))
                .collect();
            if !points.is_empty() {
                chart.lines.push(Line::new(prefixed(run, runs.len(), name), *style, points));
            }
        }
        for second in run.series.iter().filter(|second| second.max_us > 0) {
            let micros = |value: u64| units::micros(value as f64);
            table.row(vec![
                second.t.to_string(),
                name_of(run, runs.len()),
                micros(second.p50_us),
                micros(second.p99_us),
                micros(second.p999_us),
                micros(second.max_us),
            ]);
        }
    }
    shade_warm_up(&mut chart, runs);
    (!chart.is_empty()).then(|| Figure {
        id: "latency-over-time".to_owned(),
        title: "Latency over time".to_owned(),
        caption: format!(
            "The {} time of what was answered in each second, on a logarithmic axis: a stall is a tower, not a dent in an average.",
            runs[0].headline_latency_name()
        ),
        svg: chart.to_svg(),
        table,
    })
}

/// The part of a curve that is worth drawing: to as many nines as there are records for.
fn nines(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    const STEPS: i32 = 160;
    let end = (histogram.len() as f64).max(10.0);
    (0..=STEPS)
        .map(|step| {
            let inverse = end.powf(f64::from(step) / f64::from(STEPS));
            (inverse, at_inverse(histogram, inverse))
        })
        .filter(|(_, value)| *value > 0.0)
        .collect()
}

/// The value below which all but one in `inverse` lie.
fn at_inverse(histogram: &Histogram<u64>, inverse: f64) -> f64 {
    histogram.value_at_quantile(1.0 - 1.0 / inverse) as f64
}

fn percentile_curve(runs: &[Run]) -> Option<Figure> {
    let ticks = [
        ("0", 1.0),
        ("50 %", 2.0),
        ("90 %", 10.0),
        ("99 %", 1e2),
        ("99.9 %", 1e3),
        ("99.99 %", 1e4),
        ("99.999 %", 1e5),
        ("99.9999 %", 1e6),
        ("99.99999 %", 1e7),
    ];
    let mut x = Axis::log("percentile", |inverse| format!("{:.5} %", 100.0 * (1.0 - 1.0 / inverse)));
    let mut chart_lines = Vec::new();
    let mut histograms = Vec::new();
    let mut largest = 10.0f64;
    for (run, index) in runs.iter().zip(0..) {
        for ((name, key, _), style) in latencies(run).into_iter().zip(0..) {
            // Of several runs the one latency that each is about; of one alone all that tell something.
            let wanted = match key {
                "end_to_end_us" if runs.len() > 1 => run.headline_latency_name() == name,
                "response_us" if runs.len() > 1 => run.headline_latency_name() != "end to end",
                "response_us" | "end_to_end_us" => true,
                "service_us" => runs.len() == 1,
                _ => false,
            };
            let Some(text) = run.histograms.get(key).filter(|_| wanted) else { continue };
            let Some(histogram) = decode(text).ok().filter(|histogram| !histogram.is_empty()) else { continue };
            largest = largest.max(histogram.len() as f64);
            let style = if runs.len() == 1 { style } else { index };
            chart_lines.push(Line::new(prefixed(run, runs.len(), name), style, nines(&histogram)));
            histograms.push(histogram);
        }
    }
    x.range = Some((1.0, largest));
    x.ticks = Some(
        ticks.iter().filter(|(_, at)| *at <= largest * 1.001).map(|(text, at)| (*at, (*text).to_owned())).collect(),
    );
    let mut chart = Chart::new("Latency by percentile", x, Axis::log("latency", units::micros));
    chart.lines = chart_lines;
    let mut table = Table::new(&["percentile"]);
    for line in &chart.lines {
        table.head.push(line.name.clone());
    }
    for (name, at) in ticks.iter().skip(1).filter(|(_, at)| *at <= largest * 1.001) {
        let mut row = vec![(*name).to_owned()];
        for histogram in &histograms {
            let known = histogram.len() as f64 >= *at;
            row.push(if known { units::micros(at_inverse(histogram, *at)) } else { String::new() });
        }
        table.row(row);
    }
    (!chart.is_empty()).then(|| Figure {
        id: "percentiles".to_owned(),
        title: "Latency by percentile".to_owned(),
        caption: "Every step to the right is ten times rarer. Read it from the right: that is what one request in a thousand, or in a million, gets.".to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

fn load_curve(runs: &[Run]) -> Option<Figure> {
    let mut chart = Chart::new(
        "Latency by offered load",
        Axis::linear("offered records per second", units::count),
        Axis::log("response time", units::micros),
    );
    let mut table = Table::new(&["run", "offered/s", "achieved/s", "p50", "p99", "p99.9"]);
    let one = runs.len() == 1;
    for (run, index) in runs.iter().zip(0..) {
        type Pick = fn(&super::report::LoadPoint) -> u64;
        let lines: [(&str, usize, Pick); 3] =
            [("p50", 0, |point| point.p50_us), ("p99", 1, |point| point.p99_us), ("p99.9", 2, |point| point.p999_us)];
        for (name, style, pick) in lines.into_iter().filter(|(name, ..)| one || *name == "p99") {
            let points = run.load_curve.iter().map(|point| (point.offered, pick(point) as f64)).collect();
            chart.lines.push(Line {
                dots: run.load_curve.len() <= 40,
                ..Line::new(prefixed(run, runs.len(), name), if one { style } else { index }, points)
            });
        }
        for point in &run.load_curve {
            let micros = |value: u64| units::micros(value as f64);
            table.row(vec![
                name_of(run, runs.len()),
                units::grouped(point.offered as u64),
                units::grouped(point.achieved as u64),
                micros(point.p50_us),
                micros(point.p99_us),
                micros(point.p999_us),
            ]);
        }
        if one && let Some(knee) = knee(run) {
            chart.marks.push(Mark::At(knee, format!("knee, {}", per_second(knee))));
        }
    }
    (!chart.is_empty()).then(|| Figure {
        id: "load".to_owned(),
        title: "Latency by offered load".to_owned(),
        caption: "What a user of each rate would have felt. The knee is the last rate before p99 passes four times its median so far.".to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

/// The last offered rate before latency leaves the plain.
fn knee(run: &Run) -> Option<f64> {
    let mut seen: Vec<f64> = Vec::new();
    for (index, point) in run.load_curve.iter().enumerate() {
        let p99 = point.p99_us as f64;
        if let Some(usual) = super::stats::median(&seen).filter(|_| seen.len() >= 3)
            && p99 > usual * 4.0
        {
            return run.load_curve.get(index.checked_sub(1)?).map(|point| point.offered);
        }
        seen.push(p99);
    }
    None
}

fn search_steps(runs: &[Run]) -> Option<Figure> {
    let mut chart = Chart::new(
        "Search for the largest sustainable rate",
        Axis::log("offered records per second", units::count),
        Axis::log("p99 response time", units::micros),
    );
    let mut table = Table::new(&["run", "tried/s", "achieved/s", "p99", "sustained", "why not"]);
    for run in runs {
        for (held, style, name) in [(true, 2, "sustained"), (false, 1, "not sustained")] {
            let points = run
                .search
                .iter()
                .filter(|step| step.sustained == held)
                .map(|step| (step.rate, step.p99_us.max(1) as f64))
                .collect();
            chart.lines.push(Line {
                dots: true,
                scattered: true,
                ..Line::new(prefixed(run, runs.len(), name), style, points)
            });
        }
        for step in &run.search {
            table.row(vec![
                name_of(run, runs.len()),
                units::grouped(step.rate as u64),
                units::grouped(step.achieved as u64),
                units::micros(step.p99_us as f64),
                if step.sustained { "yes" } else { "no" }.to_owned(),
                step.why.clone(),
            ]);
        }
    }
    (!chart.is_empty()).then(|| Figure {
        id: "search".to_owned(),
        title: "Search for the largest sustainable rate".to_owned(),
        caption: "Each dot is a trial of its own, with a fresh start: no backlog of one rate is charged to the next."
            .to_owned(),
        svg: chart.to_svg(),
        table,
    })
}

fn batch_anatomy(runs: &[Run]) -> Option<Figure> {
    let mut table = Table::new(&[
        "run",
        "records per batch",
        "bytes per batch",
        "fill of batch.size",
        "left for linger",
        "batches per request",
        "requests",
        "compression",
        "retries",
    ]);
    let mut rows = Vec::new();
    for (run, index) in runs.iter().zip(0..) {
        let Some(batches) = &run.results.batches else { continue };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        table.row(vec![
            name_of(run, runs.len()),
            units::digits(batches.records_per_batch),
            units::bytes(batches.bytes_per_batch),
            percent(batches.fill),
            batches.linger_expired_share.map_or_else(|| "–".to_owned(), percent),
            units::digits(batches.batches_per_request),
            units::grouped(batches.requests),
            batches.compression_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}×")),
            batches.retries.to_string(),
        ]);
        let mut share = |name: &str, value: f64| {
            rows.push(Bar { name: prefixed(run, runs.len(), name), value, text: percent(value), style: index });
        };
        share("batch.size filled", batches.fill);
        if let Some(expired) = batches.linger_expired_share {
            share("left because linger passed", expired);
        }
    }
    (!table.rows.is_empty()).then(|| Figure {
        id: "batches".to_owned(),
        title: "Batch anatomy".to_owned(),
        caption: "What the client made of the records. Full batches cost the broker least; batches that leave for linger alone say that a longer linger would fill them, at the price of waiting.".to_owned(),
        svg: bars("Batch fill", &rows, Some(1.0)),
        table: table.turned(),
    })
}

fn costs(runs: &[Run]) -> Option<Figure> {
    let mut table = Table::new(&[
        "who",
        "CPU ms per MB",
        "CPU µs per request",
        "CPU ms per 1,000 records",
        "cores busy",
        "RSS",
        "context switches",
        "written to device",
        "write amplification",
    ]);
    let mut rows = Vec::new();
    let dash = || "–".to_owned();
    for run in runs {
        let broker = &run.broker;
        if let Some(per_mb) = broker.cpu_ms_per_mb {
            let whose = broker.process.as_ref().map_or_else(|| "broker".to_owned(), |name| format!("broker ({name})"));
            rows.push(Bar {
                name: prefixed(run, runs.len(), &whose),
                value: per_mb,
                text: format!("{} ms/MB", units::digits(per_mb)),
                style: 0,
            });
            let number = |value: Option<f64>| value.map_or_else(dash, units::digits);
            table.row(vec![
                prefixed(run, runs.len(), &whose),
                units::digits(per_mb),
                number(broker.cpu_us_per_request),
                number(broker.cpu_ms_per_1000_records),
                number(broker.cores_busy),
                broker.rss_bytes.map_or_else(dash, |bytes| units::bytes(bytes as f64)),
                broker.context_switches.map_or_else(dash, units::grouped),
                broker
                    .device_written_bytes
                    .or(broker.written_bytes)
                    .map_or_else(dash, |bytes| units::bytes(bytes as f64)),
                broker.write_amplification.map_or_else(dash, |times| format!("{times:.2}×")),
            ]);
        }
        let generator = &run.generator;
        if generator.cpu_ms_per_mb > 0.0 && !rows.is_empty() {
            let text = format!("{} ms/MB", units::digits(generator.cpu_ms_per_mb));
            rows.push(Bar {
                name: prefixed(run, runs.len(), "generator"),
                value: generator.cpu_ms_per_mb,
                text,
                style: 5,
            });
            table.row(vec![
                prefixed(run, runs.len(), "generator"),
                units::digits(generator.cpu_ms_per_mb),
                dash(),
                units::digits(generator.cpu_us_per_record),
                units::digits(generator.busy_share * f64::from(generator.threads)),
                dash(),
                dash(),
                dash(),
                dash(),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Figure {
        id: "cost".to_owned(),
        title: "What it cost".to_owned(),
        caption: "Processor time per megabyte of records. Throughput on one machine is a race of clients and disks; this number is the broker's own.".to_owned(),
        svg: bars("Processor time per megabyte", &rows, None),
        table: table.turned(),
    })
}

fn ceilings(runs: &[Run]) -> Option<Figure> {
    let mut table = Table::new(&["run", "limit", "before", "after", "reached"]);
    let mut rows = Vec::new();
    for (run, index) in runs.iter().zip(0..) {
        let Some(facts) = &run.ceilings else { continue };
        let moved = run.results.bytes_per_second.max(run.results.consumed_bytes_per_second);
        let rates = [
            (
                "disk, direct sequential write",
                facts.before.disk_write_bytes_per_second,
                facts.after.disk_write_bytes_per_second,
            ),
            ("loopback, one stream", facts.before.loopback_bytes_per_second, facts.after.loopback_bytes_per_second),
            ("CRC-32C, one core", facts.before.crc32c_bytes_per_second, facts.after.crc32c_bytes_per_second),
        ];
        for (name, before, after) in rates.into_iter().filter(|(_, before, _)| *before > 0.0) {
            let share = moved / ((before + after.max(f64::MIN_POSITIVE)) / 2.0);
            let speed = |value: f64| format!("{}/s", units::bytes(value));
            rows.push(Bar {
                name: prefixed(run, runs.len(), name),
                value: share,
                text: format!("{:.1} % of {}", share * 100.0, speed(before)),
                style: index,
            });
            table.row(vec![
                name_of(run, runs.len()),
                name.to_owned(),
                speed(before),
                speed(after),
                format!("{:.1} %", share * 100.0),
            ]);
        }
        if facts.before.flush_us > 0.0 {
            table.row(vec![
                name_of(run, runs.len()),
                "write of 4 KiB + fdatasync, median".to_owned(),
                units::micros(facts.before.flush_us),
                units::micros(facts.after.flush_us),
                String::new(),
            ]);
        }
    }
    (!table.rows.is_empty()).then(|| Figure {
        id: "ceilings".to_owned(),
        title: "Beside the limits of this host".to_owned(),
        caption: "Measured by this tool just before and just after the run. A run during which they moved by more than 15 % is void.".to_owned(),
        svg: if rows.is_empty() { String::new() } else { bars("Share of each limit", &rows, Some(1.0)) },
        table,
    })
}

/// A stage: what it is called, where it stands in a report.
type StageOf = (&'static str, fn(&RequestStages) -> f64);

const STAGES: [StageOf; 3] = [
    ("request queue", |stages| stages.request_queue_us),
    ("local", |stages| stages.local_us),
    ("remote", |stages| stages.remote_us),
];

fn stages(runs: &[Run]) -> Option<Figure> {
    // After the stages, in a colour of its own.
    const REST: (&str, usize) = ("network and client", 5);
    let mut table = Table::new(&["run", "request", "requests"]);
    table.head.extend(STAGES.iter().map(|(name, _)| (*name).to_owned()));
    table.head.extend(["in the broker", "client's response", REST.0].map(str::to_owned));
    let told = || runs.iter().flat_map(|run| run.broker.stages.iter().map(move |stages| (run, stages)));
    let mut names: Vec<&str> = Vec::new();
    for (_, stages) in told() {
        if !names.contains(&stages.request.as_str()) {
            names.push(&stages.request);
        }
    }
    let groups: Vec<Vec<Stack>> = names
        .iter()
        .map(|name| {
            told()
                .filter(|(_, stages)| stages.request == *name)
                .map(|(run, stages)| {
                    let (total, client) = (stages.total_us(), run.client_mean_us(name));
                    let rest = client.map(|client| client - total).filter(|rest| *rest >= 0.0);
                    let name = prefixed(run, runs.len(), name);
                    let times = STAGES.iter().map(|(stage, pick)| (*stage, pick(stages))).zip(0..);
                    let rest_part = rest.map(|rest| ((REST.0, rest), REST.1));
                    let part = |((stage, value), style): ((&str, f64), usize)| Bar {
                        name: format!("{name}, {stage}"),
                        value,
                        text: units::micros(value),
                        style,
                    };
                    let parts = times.chain(rest_part).map(part).collect();
                    let micros = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), units::micros);
                    let mut row =
                        vec![name_of(run, runs.len()), stages.request.clone(), units::grouped(stages.requests)];
                    row.extend(STAGES.iter().map(|(_, pick)| units::micros(pick(stages))));
                    row.extend([micros(Some(total)), micros(client), micros(rest)]);
                    table.row(row);
                    let beside =
                        client.map_or_else(String::new, |client| format!(", client {}", units::micros(client)));
                    Stack { name, parts, text: format!("broker {}{beside}", units::micros(total)) }
                })
                .collect()
        })
        .collect();
    let rest = Some(REST).filter(|_| table.rows.iter().any(|row| row.last().is_some_and(|cell| cell != "–")));
    let legend: Vec<(&str, usize)> = STAGES.iter().map(|(name, _)| *name).zip(0..).chain(rest).collect();
    (!groups.is_empty()).then(|| Figure {
        id: "stages".to_owned(),
        title: "Where the time of a request went".to_owned(),
        caption: "Mean times by the broker's own clock and counters, while measuring; the stages are Kafka's. Request queue: wholly read, waiting for its \
                  turn on its connection. Local: checked, or read. Remote: appended and waiting for the acknowledgement, or (a long poll) for data to \
                  come. What remains of the client's mean response time is the network, the kernel and the client: its linger, and how late it sent. \
                  The client's mean is over records (of fetches: over those that brought some), the broker's over requests."
            .to_owned(),
        svg: stacks("Where the time of a request went", &legend, &groups),
        table,
    })
}

/// A counter of a shard: what it is called, where it stands in a report, how its numbers are written.
type ShardCounter = (&'static str, fn(&ShardWork) -> Option<u64>, fn(u64) -> String);

const SHARD_COUNTERS: [ShardCounter; 9] = {
    const BYTES: fn(u64) -> String = |value| units::bytes(value as f64);
    [
        ("batches appended", |work| work.produce_batches, units::grouped),
        ("bytes appended", |work| work.produce_bytes, BYTES),
        ("bytes sent to consumers", |work| work.fetch_bytes, BYTES),
        ("direct writes", |work| work.log_writes, units::grouped),
        ("bytes written", |work| work.log_written_bytes, BYTES),
        ("zeroes written ahead", |work| work.log_prewritten_bytes, BYTES),
        ("full turns", |work| work.net_full_turns, units::grouped),
        ("parks", |work| work.net_parks, units::grouped),
        ("watchdog kicks", |work| work.watchdog_kicks, units::grouped),
    ]
};

fn shards(runs: &[Run]) -> Option<Figure> {
    let told = || runs.iter().zip(0usize..).filter(|(run, _)| !run.broker.shards.is_empty());
    let mut table = Table::new(&["run", "shard"]);
    table.head.extend(SHARD_COUNTERS.iter().map(|(name, ..)| (*name).to_owned()));
    for (run, _) in told() {
        for work in &run.broker.shards {
            let numbers = SHARD_COUNTERS.iter().map(|(_, pick, text)| pick(work).map_or_else(|| "–".to_owned(), text));
            table.row([name_of(run, runs.len()), work.shard.to_string()].into_iter().chain(numbers).collect());
        }
    }
    let mut pictures = Vec::new();
    for (name, pick, text) in SHARD_COUNTERS {
        let groups: Vec<Vec<(String, Bar)>> = told()
            .map(|(run, style)| {
                let bar = |work: &ShardWork| Bar {
                    name: prefixed(run, runs.len(), &format!("shard {}", work.shard)),
                    value: pick(work).unwrap_or(0) as f64,
                    text: pick(work).map_or_else(|| "–".to_owned(), text),
                    style,
                };
                run.broker.shards.iter().map(|work| (work.shard.to_string(), bar(work))).collect()
            })
            .collect();
        // What never happened is a zero in the table; a picture of it would be a line.
        if groups.iter().flatten().any(|(_, bar)| bar.value > 0.0) {
            pictures.push(Panel { name: name.to_owned(), groups });
        }
    }
    let names: Vec<(String, usize)> = told().map(|(run, style)| (name_of(run, runs.len()), style)).collect();
    let legend: Vec<(&str, usize)> =
        names.iter().filter(|_| runs.len() > 1).map(|(name, style)| (name.as_str(), *style)).collect();
    let beside = if names.len() > 1 { " The runs stand in the order of their names." } else { "" };
    (!table.rows.is_empty()).then(|| Figure {
        id: "shards".to_owned(),
        title: "What each shard did".to_owned(),
        caption: format!(
            "One bar a shard, by the broker's own counters, while measuring. Bars of one height are an even load; a bar far above the rest is a core that \
             may limit them all. Bytes written count a block once more each time that more was added to it; a full turn serves the executor's rings, a park is a \
             sleep of the executor, a kick is the watchdog waking a shard that stood still.{beside}"
        ),
        svg: if pictures.is_empty() { String::new() } else { panels("What each shard did", &legend, &pictures) },
        table,
    })
}

fn broker_counters(runs: &[Run]) -> Option<Figure> {
    let mut table = Table::new(&["run", "counter", "growth while measuring"]);
    for run in runs {
        for (name, value) in &run.broker.counters {
            table.row(vec![name_of(run, runs.len()), name.clone(), units::digits(*value)]);
        }
    }
    (!table.rows.is_empty()).then(|| Figure {
        id: "counters".to_owned(),
        title: "The broker's own counters".to_owned(),
        caption: "From its metrics page: how much each grew while measuring.".to_owned(),
        svg: String::new(),
        table,
    })
}

fn repeats(runs: &[Run]) -> Option<Figure> {
    let mut chart = Chart::new(
        "Repeats",
        Axis::linear("repeat", |value| format!("{value:.0}")),
        Axis::linear("records per second", units::count),
    );
    chart.height = 240.0;
    let mut table = Table::new(&["run", "repeat", "records/s", "MB/s", "p50", "p99", "valid"]);
    for (run, index) in runs.iter().zip(0..) {
        let points = run
            .repeats
            .iter()
            .zip(1..)
            .map(|(repeat, number)| (f64::from(number), repeat.records_per_second))
            .collect();
        chart.lines.push(Line {
            dots: true,
            scattered: true,
            ..Line::new(prefixed(run, runs.len(), "records/s"), index, points)
        });
        for (repeat, number) in run.repeats.iter().zip(1..) {
            table.row(vec![
                name_of(run, runs.len()),
                number.to_string(),
                units::grouped(repeat.records_per_second as u64),
                units::digits(repeat.bytes_per_second / 1e6),
                units::micros(repeat.p50_us as f64),
                units::micros(repeat.p99_us as f64),
                if repeat.valid { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    (!chart.is_empty()).then(|| Figure {
        id: "repeats".to_owned(),
        title: "Repeats".to_owned(),
        caption: "The same run several times. The figures above are those of the median repeat.".to_owned(),
        svg: chart.to_svg(),
        table,
    })
}
