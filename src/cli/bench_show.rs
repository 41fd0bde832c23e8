//! How a run looks on a terminal: while it goes on, and when it is done.
//!
//! Shell: writes to stderr while measuring (a bar on a terminal, a line a second elsewhere), and the result's table to whoever
//! asks. Always: the acknowledgement class stands beside the numbers; a lossy run has no headline; talk never goes to stdout.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::bench::html::verdict_words;
use crate::bench::report::{Percentiles, RequestStages, Run};
use crate::bench::units;
use crate::bench::watch::Progress;

/// What is shown meanwhile.
pub(super) struct Shown {
    quiet: bool,
    bar: Option<ProgressBar>,
}

impl Shown {
    /// Nothing yet.
    pub(super) fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {bar:24} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { quiet, bar }
    }

    /// Shows one thing that happened.
    pub(super) fn on_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Step(what) => match &self.bar {
                Some(bar) => {
                    bar.set_position(0);
                    bar.set_message(what);
                }
                None => self.say(&what),
            },
            Progress::Second { t, measured, done, records, bytes, errors, latency } => {
                let phase = if measured { "measuring" } else { "warm-up" };
                let mut line = format!(
                    "{phase} {:>4} s  {:>11}/s  {:>9}/s",
                    t + 1,
                    units::grouped(records),
                    units::bytes(bytes as f64)
                );
                if let Some(latency) = latency {
                    line.push_str(&format!(
                        "  p50 {:>8}  p99 {:>8}",
                        units::micros(latency.p50 as f64),
                        units::micros(latency.p99 as f64)
                    ));
                }
                if errors > 0 {
                    line.push_str(&format!("  {errors} errors"));
                }
                match &self.bar {
                    Some(bar) => {
                        bar.set_position((done * 1000.0) as u64);
                        bar.set_message(line);
                    }
                    None => self.say(&line),
                }
            }
            Progress::Verified(read, of) => {
                if let Some(bar) = &self.bar {
                    bar.set_position((read as f64 / of.max(1) as f64 * 1000.0) as u64);
                    bar.set_message(format!("reading back {} of {} records", units::grouped(read), units::grouped(of)));
                }
            }
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            // Nobody is left to tell when this fails.
            _ = writeln!(io::stderr().lock(), "{line}");
        }
    }
}

/// The result of one run, or several beside each other, one column each.
pub(super) fn write_table(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let several = runs.len() > 1;
    if several {
        table.set_header(std::iter::once(String::new()).chain(runs.iter().map(|run| run.label.clone())));
    }
    for (name, cell_of) in ROWS {
        let texts: Vec<Option<String>> = runs.iter().map(cell_of).collect();
        if texts.iter().all(Option::is_none) {
            continue;
        }
        let cells = texts
            .into_iter()
            .map(|text| Cell::new(text.unwrap_or_else(|| "–".to_owned())).set_alignment(CellAlignment::Left));
        table.add_row(std::iter::once(Cell::new(name)).chain(cells));
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for run in runs {
        let label = if several { format!("{}: ", run.label) } else { String::new() };
        write_remarks(out, run, &label)?;
    }
    Ok(())
}

/// What stands below the table: the promise in words, the reasons of the verdict, the evidence, the errors.
fn write_remarks(out: &mut impl Write, run: &Run, label: &str) -> io::Result<()> {
    if !run.ack.words.is_empty() && is_about_records(run) {
        writeln!(out, "{label}{}: {} {}", run.ack_class, run.ack.words, run.ack.source)?;
    }
    for reason in run.verdict.reasons.iter().chain(&run.notes) {
        writeln!(out, "{label}{reason}")?;
    }
    for line in run.verification.evidence.iter().take(5) {
        writeln!(out, "{label}  {line}")?;
    }
    for (name, count) in &run.results.errors_by_code {
        writeln!(out, "{label}error {name}: {}", units::grouped(*count))?;
    }
    Ok(())
}

/// A row's name and what a run has to say there. A row nobody has anything to say in is left out.
type Row = (&'static str, fn(&Run) -> Option<String>);

const ROWS: [Row; 20] = [
    ("throughput", throughput),
    ("ack class", |run| is_about_records(run).then(|| format!("{} (acks={})", run.ack_class, run.ack.acks))),
    ("offered", |run| {
        run.results.offered_per_second.map(|offered| format!("{} records/s", units::grouped(offered as u64)))
    }),
    ("read", read),
    ("requests", |run| run.results.requests_per_second.map(|rate| format!("{}/s", units::count(rate)))),
    ("response", |run| run.results.response_us.as_ref().map(latency_line)),
    ("service", |run| {
        run.results.service_us.as_ref().filter(|_| run.results.offered_per_second.is_some()).map(latency_line)
    }),
    ("end to end", |run| run.results.end_to_end_us.as_ref().map(latency_line)),
    ("late by generator", |run| run.results.slip_us.as_ref().filter(|slip| slip.p99 > 1000).map(latency_line)),
    ("batches", batches),
    ("broker CPU", broker_cpu),
    ("broker stages", broker_stages),
    ("broker memory", |run| run.broker.rss_bytes.map(|bytes| units::bytes(bytes as f64))),
    ("to the device", to_the_device),
    ("generator CPU", generator_cpu),
    ("limits here", limits_here),
    ("errors", |run| (run.results.errors > 0).then(|| units::grouped(run.results.errors))),
    ("verification", |run| is_about_records(run).then(|| run.verification.sentence())),
    ("measured", measured),
    ("verdict", |run| Some(verdict_words(run))),
];

/// Connections acknowledge nothing.
fn is_about_records(run: &Run) -> bool {
    !matches!(run.kind.as_str(), "idle" | "connect-storm")
}

fn throughput(run: &Run) -> Option<String> {
    let results = &run.results;
    // A lossy run has numbers, but none that may be quoted.
    (results.records > 0 && !run.verdict.lossy).then(|| speed(results.bytes_per_second, results.records_per_second))
}

fn read(run: &Run) -> Option<String> {
    let results = &run.results;
    (results.consumed > 0 && run.kind != "consume")
        .then(|| speed(results.consumed_bytes_per_second, results.consumed_per_second))
}

fn speed(bytes_per_second: f64, records_per_second: f64) -> String {
    format!("{} MB/s, {} records/s", units::digits(bytes_per_second / 1e6), units::grouped(records_per_second as u64))
}

fn batches(run: &Run) -> Option<String> {
    let batches = run.results.batches.as_ref()?;
    let linger = batches
        .linger_expired_share
        .map_or_else(String::new, |share| format!(", {:.0} % left for linger", share * 100.0));
    Some(format!(
        "{} records, {} each, {:.0} % full{linger}",
        units::digits(batches.records_per_batch),
        units::bytes(batches.bytes_per_batch),
        batches.fill * 100.0
    ))
}

fn broker_cpu(run: &Run) -> Option<String> {
    let broker = &run.broker;
    let per_request =
        broker.cpu_us_per_request.map_or_else(String::new, |cost| format!(", {} µs/request", units::digits(cost)));
    let busy = broker.cores_busy.map_or_else(String::new, |busy| format!(", {} cores busy", units::digits(busy)));
    let of = broker.process.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    match broker.cpu_ms_per_mb {
        Some(cost) => Some(format!("{} ms/MB{per_request}{busy}{of}", units::digits(cost))),
        None => broker.cores_busy.map(|busy| format!("{} cores busy{of}", units::digits(busy))),
    }
}

fn broker_stages(run: &Run) -> Option<String> {
    let of = |stages: &RequestStages| {
        format!(
            "{}: queue {}, local {}, remote {}",
            stages.request,
            units::micros(stages.request_queue_us),
            units::micros(stages.local_us),
            units::micros(stages.remote_us)
        )
    };
    let told: Vec<String> = run.broker.stages.iter().map(of).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn to_the_device(run: &Run) -> Option<String> {
    let written = run.broker.device_written_bytes.or(run.broker.written_bytes)?;
    Some(match run.broker.write_amplification {
        Some(times) => format!("{}, {times:.2}× what was acknowledged", units::bytes(written as f64)),
        None => units::bytes(written as f64),
    })
}

fn generator_cpu(run: &Run) -> Option<String> {
    let generator = &run.generator;
    let busy = format!("{:.0} % of {} thread(s)", generator.busy_share * 100.0, generator.threads);
    Some(match generator.cpu_ms_per_mb {
        0.0 => busy,
        cost => format!("{} ms/MB, {busy}", units::digits(cost)),
    })
}

fn limits_here(run: &Run) -> Option<String> {
    let before = run.ceilings.as_ref()?.before;
    Some(format!(
        "disk {}/s, flush {}, loopback {}/s",
        units::bytes(before.disk_write_bytes_per_second),
        units::micros(before.flush_us),
        units::bytes(before.loopback_bytes_per_second)
    ))
}

fn measured(run: &Run) -> Option<String> {
    Some(format!(
        "{} s after {} s of warm-up",
        units::digits(run.results.seconds),
        run.series.iter().take_while(|second| !second.measured).count()
    ))
}

fn latency_line(all: &Percentiles) -> String {
    let micros = |value: u64| units::micros(value as f64);
    format!(
        "p50 {}, p99 {}, p99.9 {}, p99.99 {}, max {}",
        micros(all.p50),
        micros(all.p99),
        micros(all.p999),
        micros(all.p9999),
        micros(all.max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(runs: &[Run]) -> String {
        let mut out = Vec::new();
        write_table(&mut out, runs).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn run(label: &str) -> Run {
        let mut run = Run {
            label: label.to_owned(),
            kind: "produce".to_owned(),
            ack_class: "written".to_owned(),
            ..Run::default()
        };
        run.results.records = 10;
        run.results.records_per_second = 123_456.0;
        run.results.bytes_per_second = 126_000_000.0;
        run.results.response_us = Some(Percentiles { p50: 900, p99: 5000, ..Percentiles::default() });
        run.verdict.valid = true;
        run
    }

    #[test]
    fn the_class_stands_beside_the_numbers() {
        let text = text(&[run("")]);
        assert!(
            text.contains("126 MB/s, 123,456 records/s")
                && text.contains("written (acks=)")
                && text.contains("p99 5.00 ms"),
            "{text}"
        );
    }

    #[test]
    fn a_lossy_run_has_no_headline() {
        let mut lossy = run("");
        lossy.verdict.lossy = true;
        lossy.verification.enabled = true;
        lossy.verification.lost = 1;
        let text = text(&[lossy]);
        assert!(!text.contains("123,456") && text.contains("1 LOST"), "{text}");
    }

    #[test]
    fn a_broker_that_tells_its_stages_has_a_line_of_them() {
        let mut ours = run("");
        let stages = |request: &str| RequestStages {
            request: request.to_owned(),
            local_us: 20.0,
            remote_us: 1200.0,
            ..RequestStages::default()
        };
        ours.broker.stages = vec![stages("Produce"), stages("Fetch")];
        let expected =
            "Produce: queue 0 µs, local 20.0 µs, remote 1.20 ms; Fetch: queue 0 µs, local 20.0 µs, remote 1.20 ms";
        let shown = text(&[ours]);
        assert!(shown.contains("broker stages") && shown.contains(expected), "{shown}");
        assert!(!text(&[run("")]).contains("stages"));
    }

    #[test]
    fn several_runs_have_a_column_each() {
        let text = text(&[run("ringlog"), run("kafka")]);
        assert!(text.contains("ringlog") && text.contains("kafka"), "{text}");
    }
}
