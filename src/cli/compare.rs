//! `ringlog compare`: two targets, one load, paired runs.
//!
//! Shell: writes reports, listens for Ctrl-C. Owns the arguments and how results look on a terminal. Does not own the comparison
//! (`compare::run`). Always: report paths are tried before anything is measured; Ctrl-C ends it in order, what was measured is
//! reported and can be gone on with; talk goes to stderr; a target that lost records ends it with exit code 6.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::bench_args::Format;
use super::{EXIT_INTERRUPTED, EXIT_VERDICT, Failure};
use crate::bench::plan::DURATION_MIN;
use crate::bench::units;
use crate::bench::watch::{Cancel, Progress};
use crate::compare::journal::Existing;
use crate::compare::metric::Metric;
use crate::compare::presets::Preset;
use crate::compare::report::{Comparison, State};
use crate::compare::run::{Event, Layout, Outcome, Settings, estimate, run as compare};
use crate::compare::verdict::{PAIRS_MIN, shown};
use crate::compare::{html, soak, targets};

const EXAMPLES: &str = "\
Examples:
  ringlog compare --kafka auto --html report.html           starts both on fresh directories; seven minutes
  ringlog compare --preset standard --layout both --html report.html
  ringlog compare --target kafka=broker:9092,pid=4711       a Kafka that runs already
  ringlog compare --target new=ringlog --target old=ringlog:/opt/old/ringlog
  ringlog compare --target a=ringlog --target b=ringlog,override=engine.shards=1 --workload W2,W4
  ringlog compare --target kafka=@compare.json              without Java: against a recorded run
  ringlog compare --preset full --workload W21              how a quiet load fares beside a noisy one
  ringlog compare --workload W18 --soak 2h                  drift of latency and memory while old segments are deleted
  ringlog compare --resume --html report.html               goes on after an interruption

Both get the same client, the same settings and the same promise: what survives a killed broker (`written` here, the
page cache in Kafka), or what survives power loss (`flushed` here, flush.messages=1 in Kafka). Both are warmed up. Each
workload is measured in pairs, who goes first is drawn at random, and a difference is claimed only when the 95 % interval
of the paired ratio leaves 1 out. Where the client held only the faster one back, it is faster by at least that; rates of
a load that was offered and carried by both say nothing (\"as offered\").

Kafka's jars are looked for in --kafka-home, KAFKA_HOME and the cache (RINGLOG_CACHE, else ~/.cache/ringlog), and fetched
with Maven where they are in none of them.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 6 a target lost records, 130 interrupted (the report is written).";

/// Compares two brokers under the same loads, pair by pair: faster, slower, or no difference shown.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// Kafka as a target: `auto`, or the directory a release was unpacked to
    #[arg(long, value_name = "auto|DIR", num_args = 0..=1, default_missing_value = "auto", help_heading = "Targets")]
    kafka: Option<String>,
    /// A target; may be given twice: NAME=HOST:PORT[,pid=N][,admin=H:P], NAME=ringlog[:BINARY][,override=K=V],
    /// NAME=kafka[:DIR][,override=K=V][,heap=1g], NAME=@RECORDED.json [default: ringlog=ringlog and kafka=kafka]
    #[arg(long = "target", value_name = "NAME=…", help_heading = "Targets")]
    targets: Vec<String>,
    /// Where a Kafka release was unpacked
    #[arg(long, value_name = "DIR", help_heading = "Targets")]
    kafka_home: Option<PathBuf>,
    /// Brokers that are started get fresh directories in here, removed afterwards; on the disk that is to be compared
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Targets")]
    dir: PathBuf,
    /// Leave those directories
    #[arg(long, help_heading = "Targets")]
    keep: bool,

    /// quick (about 7 minutes), standard (about 50) or full (hours)
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = Preset::parse, help_heading = "Measuring")]
    preset: Preset,
    /// Only these workloads of the preset, by number or key: W2,W10@50%
    #[arg(long = "workload", value_name = "W…", value_delimiter = ',', help_heading = "Measuring")]
    workloads: Vec<String>,
    /// Pairs of each workload; fewer than five claim nothing [default: 5, full: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Measuring")]
    pairs: Option<u32>,
    /// How long each turn is measured [default: 2s, standard: 4s, full: 15s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, help_heading = "Measuring")]
    duration: Option<Duration>,
    /// Load on each target before anything is measured [default: 10s, standard: 60s, full: 90s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, help_heading = "Measuring")]
    warm: Option<Duration>,
    /// Add a soak of this length (W18): one pair of it, after all others
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, help_heading = "Measuring")]
    soak: Option<Duration>,
    /// shared, pinned (brokers on half of the cores, the client on the others), or both, one after the other
    #[arg(long, value_name = "CORES", default_value = "shared", value_parser = ["shared", "pinned", "both"], help_heading = "Measuring")]
    layout: String,
    /// Of the random order
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Measuring")]
    seed: u64,

    /// What is measured is written here, line by line
    #[arg(long, value_name = "FILE", default_value = "ringlog-compare.jsonl", help_heading = "Journal")]
    journal: PathBuf,
    /// Go on with the comparison in the journal
    #[arg(long, help_heading = "Journal")]
    resume: bool,
    /// Begin anew though the journal holds an unfinished comparison
    #[arg(long, conflicts_with = "resume", help_heading = "Journal")]
    fresh: bool,

    /// Write the report as one page that needs no network
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Write the report as JSON (schema version 1); --target NAME=@FILE compares with it later
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// On standard output: a table, or the report as JSON
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table, help_heading = "Output")]
    output: Format,
    /// Nothing on stderr but errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// Compares.
pub(super) fn run(args: &CompareArgs, out: &mut impl Write) -> Result<(), Failure> {
    let settings = settings(args)?;
    for path in [&args.out, &args.html].into_iter().flatten() {
        super::bench::try_path(path)?;
    }
    let expected = estimate(&settings).map_err(super::bench::wrong_call)?;
    let cancel = Cancel::default();
    listen_for_the_end(cancel.clone());
    let mut told = Told::new(args.quiet);
    told.say(&format!(
        "{} against {}: preset {}, {} pairs; about {} min",
        settings.targets[0].name,
        settings.targets[1].name,
        settings.preset.name(),
        settings.pacing.pairs,
        (expected.as_secs_f64() / 60.0).ceil()
    ));
    let began = Instant::now();
    let ended = compare(&settings, &cancel, &mut |event| told.on_event(event));
    told.end();
    let outcome = ended.map_err(|why| anyhow!(why))?;
    told.say(&format!("measured in {:.1} min", began.elapsed().as_secs_f64() / 60.0));
    conclude(&outcome, args, out)?;
    if cancel.is_cancelled() {
        told.say(&format!("interrupted; `--resume` goes on with {}", settings.journal.display()));
    }
    judge(&outcome.comparison, cancel.is_cancelled())
}

/// Whether scripts may go on. Interrupted comes first: what was measured is not all that was asked.
fn judge(comparison: &Comparison, is_interrupted: bool) -> Result<(), Failure> {
    let is_lossy = comparison.cells.iter().any(|cell| cell.state == State::Lossy);
    match (is_interrupted, is_lossy) {
        (true, _) => Err(Failure::Told(EXIT_INTERRUPTED)),
        (false, true) => Err(Failure::Told(EXIT_VERDICT)),
        (false, false) => Ok(()),
    }
}

fn settings(args: &CompareArgs) -> Result<Settings, Failure> {
    let wrong = super::bench::wrong_call;
    let layouts = match args.layout.as_str() {
        "pinned" => vec![Layout::halves().map_err(wrong)?],
        "both" => vec![Layout::Shared, Layout::halves().map_err(wrong)?],
        _ => vec![Layout::Shared],
    };
    let mut pacing = args.preset.pacing();
    pacing.pairs = args.pairs.unwrap_or(pacing.pairs);
    pacing.duration = args.duration.unwrap_or(pacing.duration);
    pacing.warm = args.warm.unwrap_or(pacing.warm);
    if pacing.duration < DURATION_MIN || pacing.duration > Duration::from_secs(3600) {
        return Err(wrong("--duration lies between 250ms and 1h".to_owned()));
    }
    pacing.soak = args.soak;
    if args.soak.is_some_and(|length| length < soak::LENGTH_MIN || length > soak::LENGTH_MAX) {
        return Err(wrong("--soak lies between 6s and 7d".to_owned()));
    }
    Ok(Settings {
        targets: targets::pair(args.kafka.as_deref(), &args.targets).map_err(wrong)?,
        preset: args.preset,
        workloads: args.workloads.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect(),
        pacing,
        layouts,
        seed: args.seed,
        directory: args.dir.clone(),
        keep: args.keep,
        journal: args.journal.clone(),
        existing: match (args.resume, args.fresh) {
            (true, _) => Existing::Resume,
            (false, true) => Existing::Replace,
            (false, false) => Existing::Keep,
        },
        kafka_home: args.kafka_home.clone(),
        program: std::env::current_exe().context("where this program lies")?,
        command: super::bench::command_line(),
    })
}

/// The first signal ends the comparison in order, so that the brokers it started end, too; the second one ends this process, and
/// then they do not.
fn listen_for_the_end(cancel: Cancel) {
    use tokio::signal::unix::{SignalKind, signal};
    let listening = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else { return };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if cancel.is_cancelled() {
                    std::process::exit(i32::from(EXIT_INTERRUPTED));
                }
                cancel.cancel();
            }
        });
    };
    // Without that thread a signal ends the process as it always does.
    _ = std::thread::Builder::new().name("signals".to_owned()).spawn(listening);
}

/// Writes what was asked for and prints the result.
fn conclude(outcome: &Outcome, args: &CompareArgs, out: &mut impl Write) -> Result<(), Failure> {
    let comparison = &outcome.comparison;
    let written =
        super::bench::write_files(&[(&args.out, &|| comparison.to_json()), (&args.html, &|| html::page(comparison))]);
    match args.output {
        Format::Table => write_table(out, comparison)?,
        Format::Json => out.write_all(comparison.to_json().as_bytes())?,
    }
    out.flush()?;
    written?;
    if let Some(why) = &outcome.failure {
        return Err(anyhow!("{why} (what was measured before is reported; --resume goes on)").into());
    }
    Ok(())
}

/// The table for people, with the promises before it and what weakens it behind.
fn write_table(out: &mut impl Write, comparison: &Comparison) -> io::Result<()> {
    let (first, second) = (comparison.name(0), comparison.name(1));
    for facts in &comparison.targets {
        let recorded = facts.recorded.as_ref().map(|file| format!(" (recorded: {file})")).unwrap_or_default();
        writeln!(out, "{}: {}{recorded}", facts.name, html::software(facts))?;
    }
    let mut said: Vec<&str> = Vec::new();
    for cell in comparison.cells.iter().filter(|cell| !cell.class_sentence.is_empty()) {
        if !said.contains(&cell.class_sentence.as_str()) {
            said.push(&cell.class_sentence);
            writeln!(out, "{}", cell.class_sentence)?;
        }
    }
    writeln!(out)?;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(vec![
        "WORKLOAD",
        "WHAT",
        &first.to_uppercase(),
        &second.to_uppercase(),
        "RATIO",
        "95 %",
        &format!("{} IS", first.to_uppercase()),
    ]);
    let both = comparison.layouts.len() > 1;
    for cell in &comparison.cells {
        for (index, finding) in cell.findings.iter().enumerate() {
            let Some(metric) = Metric::from_key(&finding.metric) else { continue };
            let layout = if both { format!(" {}", cell.layout) } else { String::new() };
            let number = |target: usize| {
                finding.medians.get(target).map_or_else(|| "–".to_owned(), |value| shown(metric, *value))
            };
            table.add_row(vec![
                if index == 0 { format!("{} {}{layout}", cell.key, cell.name) } else { String::new() },
                metric.name().to_owned(),
                number(0),
                number(1),
                finding.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}×", ratio.value)),
                finding.interval("", "–", ""),
                finding.claim(),
            ]);
        }
    }
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "\n{}.", html::tally(comparison))?;
    if let Some(chance) = html::chance(comparison) {
        writeln!(out, "{chance}")?;
    }
    if (comparison.pairs as usize) < PAIRS_MIN {
        writeln!(out, "With fewer than {PAIRS_MIN} pairs nothing is claimed.")?;
    }
    let of_cells =
        comparison.cells.iter().flat_map(|cell| cell.notes.iter().map(move |note| format!("{}: {note}", cell.key)));
    for note in comparison.notes.iter().cloned().chain(of_cells) {
        writeln!(out, "- {note}")?;
    }
    Ok(())
}

/// What is shown meanwhile: a bar on a terminal, a line a turn elsewhere.
struct Told {
    quiet: bool,
    bar: Option<ProgressBar>,
    what: String,
}

impl Told {
    fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("━╸─"));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { quiet, bar, what: String::new() }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Step(what) => {
                self.say(&what);
                self.what = what;
            }
            Event::Turn { done, of, what } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(of as u64);
                    bar.set_position(done as u64);
                    bar.set_message(what.clone());
                }
                self.what = what;
            }
            Event::Taken(line) => self.say(&line),
            Event::Progress(Progress::Second { records, bytes, .. }) => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!(
                        "{}  {}/s {}/s",
                        self.what,
                        units::count(records as f64),
                        units::bytes(bytes as f64)
                    ));
                }
            }
            Event::Progress(_) => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(line),
            // Nobody is left to tell when this fails.
            None => _ = writeln!(io::stderr().lock(), "{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Call {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn call(words: &[&str]) -> CompareArgs {
        <Call as clap::Parser>::parse_from(std::iter::once("compare").chain(words.iter().copied())).args
    }

    #[test]
    fn a_bare_call_compares_ringlog_with_kafka() {
        let settings = settings(&call(&[])).unwrap();
        assert_eq!(settings.targets.map(|target| target.to_argument()), ["ringlog=ringlog", "kafka=kafka"]);
        assert_eq!((settings.pacing.pairs, settings.existing), (5, Existing::Keep));
    }

    #[test]
    fn an_interrupted_comparison_says_so_even_when_records_were_lost() {
        let code = |comparison: &Comparison, is_interrupted| match judge(comparison, is_interrupted) {
            Ok(()) => 0,
            Err(Failure::Told(code)) => code,
            Err(_) => u8::MAX,
        };
        let mut comparison = Comparison::default();
        assert_eq!((code(&comparison, false), code(&comparison, true)), (0, EXIT_INTERRUPTED));
        let lossy = crate::compare::report::CellReport { state: State::Lossy, ..Default::default() };
        comparison.cells.push(lossy);
        assert_eq!((code(&comparison, false), code(&comparison, true)), (EXIT_VERDICT, EXIT_INTERRUPTED));
    }

    #[test]
    fn help_tells_how_long_each_preset_warms() {
        let command = <Call as clap::CommandFactory>::command();
        let warm = command.get_arguments().find(|argument| argument.get_id() == "warm").unwrap();
        let help = warm.get_help().unwrap().to_string();
        for preset in Preset::ALL {
            let seconds = format!(": {}s", preset.pacing().warm.as_secs());
            assert!(help.contains(&seconds), "{help} {seconds}");
        }
    }

    #[test]
    fn absurd_calls_are_refused() {
        for words in [
            &["--target", "nonsense"][..],
            &["--duration", "1ms"],
            &["--soak", "1s"],
            &["--kafka", "auto", "--target", "a=h:1", "--target", "b=h:2"],
        ] {
            assert!(matches!(settings(&call(words)), Err(Failure::Told(2))), "{words:?}");
        }
        assert!(<Call as clap::Parser>::try_parse_from(["compare", "--pairs", "0"]).is_err());
        assert!(<Call as clap::Parser>::try_parse_from(["compare", "--preset", "huge"]).is_err());
    }
}
