//! `ringlog bench`: measures any Kafka broker, and lays reports over each other.
//!
//! Shell: reads files and the environment, writes reports, listens for Ctrl-C. Owns the arguments and how they become a plan
//! (flag, then workload file, then preset, then default). Does not own the measuring (`bench::load`) nor how results look
//! (`bench_show`). Always: report paths are tried before anything is measured; Ctrl-C ends the run, what was measured is
//! reported, and the exit code is 130; a lossy run prints no headline; exit code 6 is a verdict against the run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::bench_args::{
    BenchArgs, ConnectionArgs, ConnectionsRun, Format, LoadArgs, MixedRun, OutputArgs, ReadArgs, ReportArgs, TimeArgs,
    TopicArgs, What,
};
use super::bench_show::{Shown, write_table};
use super::{EXIT_INTERRUPTED, EXIT_VERDICT, Failure, problems};
use crate::bench::load;
use crate::bench::omb::{self, OmbWorkload};
use crate::bench::plan::{Kind, Plan, TopicPlan, Verify};
use crate::bench::report::{REPORT_BYTES_MAX, Run};
use crate::bench::schedule::Rate;
use crate::bench::target::BenchError;
use crate::bench::watch::Cancel;
use crate::bench::workload::{Keys, Payload, Sizes};
use crate::bench::{csv, html, units};
use crate::client::ClientError;
use crate::compare::targets::quoted;

/// Runs what the arguments ask for.
pub(super) fn run(args: BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (plan, output) = match args.what {
        What::Report(args) => return report(&args, out),
        What::Produce(args) => {
            let mut plan = base(Kind::Produce, &args.connection, &args.time, &args.output)?;
            load_of(&mut plan, &args.load, &args.topic, &args.time, None)?;
            plan.prebuilt = args.prebuilt;
            (plan, args.output)
        }
        What::Consume(args) => {
            let mut plan = base(Kind::Consume, &args.connection, &args.time, &args.output)?;
            plan.topic = TopicPlan::Named(args.topic);
            read_of(&mut plan, &args.read);
            (plan, args.output)
        }
        What::E2e(args) => (mixed(Kind::EndToEnd, &args)?, args.output),
        What::Mixed(args) => (mixed(Kind::Mixed, &args)?, args.output),
        What::Idle(args) => (connections(Kind::Idle, &args)?, args.output),
        What::ConnectStorm(args) => (connections(Kind::ConnectStorm, &args)?, args.output),
    };
    plan.check().map_err(wrong_call)?;
    for path in [&output.out, &output.html, &output.omb_out].into_iter().flatten() {
        try_path(path)?;
    }
    let cancel = Cancel::default();
    listen_for_ctrl_c(cancel.clone());
    let mut shown = Shown::new(output.quiet);
    let ended = load::run(&plan, &cancel, &mut |progress| shown.on_progress(progress));
    shown.end();
    let run = ended.map_err(failure)?;
    match conclude(&run, &output, out) {
        // Whatever the verdict on what was measured: it is not what was asked for.
        Ok(()) | Err(Failure::Told(EXIT_VERDICT)) if cancel.is_cancelled() => Err(Failure::Told(EXIT_INTERRUPTED)),
        concluded => concluded,
    }
}

fn mixed(kind: Kind, args: &MixedRun) -> Result<Plan, Failure> {
    let mut plan = base(kind, &args.connection, &args.time, &args.output)?;
    load_of(&mut plan, &args.load, &args.topic, &args.time, Some(&args.read))?;
    Ok(plan)
}

fn connections(kind: Kind, args: &ConnectionsRun) -> Result<Plan, Failure> {
    let mut plan = base(kind, &args.connection, &args.time, &args.output)?;
    plan.connections = args.connections;
    plan.rate = args.rate.unwrap_or(Rate::Max);
    plan.verify = Verify::Off;
    Ok(plan)
}

/// What every run has.
fn base(kind: Kind, connection: &ConnectionArgs, time: &TimeArgs, output: &OutputArgs) -> Result<Plan, Failure> {
    // Each side gets its own: see `Plan::client_words`.
    let defaults = Plan::default();
    let default_warmup =
        if time.records.is_some() || kind == Kind::Consume { Duration::ZERO } else { Duration::from_secs(10) };
    Ok(Plan {
        kind,
        bootstrap: connection.brokers.bootstrap_servers(),
        settings: connection.brokers.words()?,
        pid: connection.pid,
        admin: connection.admin.clone(),
        duration: time.duration.unwrap_or(if time.records.is_some() {
            Duration::from_secs(86_400)
        } else {
            defaults.duration
        }),
        records: time.records,
        warmup: time.warmup.unwrap_or(default_warmup),
        until_steady: !time.no_steady,
        repeat: time.repeat,
        threads: time.threads,
        pin: time.pin.as_ref().map(|pinned| pinned.0.clone()).unwrap_or_default(),
        ceilings: !time.no_ceilings,
        directory: time.directory.clone(),
        label: output.label.clone(),
        command: command_line(),
        ..defaults
    })
}

/// The load: flags, then the workload file, then the preset, then what the kind has by default.
fn load_of(
    plan: &mut Plan,
    load: &LoadArgs,
    topic: &TopicArgs,
    time: &TimeArgs,
    read: Option<&ReadArgs>,
) -> Result<(), Failure> {
    let file = match &load.workload {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            omb::read_workload(&text).map_err(|why| anyhow!("{}: {why}", path.display()))?
        }
        None => OmbWorkload::default(),
    };
    let load = Load { args: load, file: &file };
    load.topic(plan, topic);
    load.rate(plan);
    load.records(plan)?;
    load.clients(plan)?;
    load.time(plan, time);
    if plan.label.is_empty() {
        let of_preset = || load.args.preset.map(|preset| preset.name.to_owned());
        plan.label = file.name.clone().or_else(of_preset).unwrap_or_default();
    }
    if let Some(read) = read {
        plan.consumers = file.consumers_per_group.unwrap_or(1);
        plan.groups = file.groups.unwrap_or(0);
        read_of(plan, read);
    }
    Ok(())
}

/// What says what the load is. The preset is among the flags.
struct Load<'a> {
    args: &'a LoadArgs,
    file: &'a OmbWorkload,
}

impl Load<'_> {
    fn topic(&self, plan: &mut Plan, topic: &TopicArgs) {
        plan.topic = topic.topic.clone().map_or(TopicPlan::Own, TopicPlan::Named);
        plan.partitions = topic
            .partitions
            .or(self.file.partitions)
            .or(self.args.preset.map(|preset| preset.partitions))
            .unwrap_or(if is_light(plan) { 1 } else { 6 });
        plan.replication = topic.replication_factor.unwrap_or(-1);
        plan.topic_settings = topic.topic_settings.clone();
    }

    fn rate(&self, plan: &mut Plan) {
        plan.rate = match (self.args.rate, self.file.rate) {
            (Some(rate), _) => rate,
            (None, Some(Some(rate))) => Rate::Fixed(rate),
            (None, None) if is_light(plan) => Rate::Fixed(1000.0),
            _ => Rate::Max,
        };
        plan.slo = self.args.slo.clone();
        if plan.slo.is_none() && self.file.rate == Some(None) && self.args.rate.is_none() {
            // Its 0 is a search; the limit is ours to choose, and said in the report's command.
            plan.slo = "p99<=100ms".parse().ok();
        }
        plan.arrival = self.args.arrival;
    }

    fn records(&self, plan: &mut Plan) -> Result<(), Failure> {
        let (args, file) = (self.args, self.file);
        let size = args
            .size
            .clone()
            .or(file.message_size.map(|size| size.to_string()))
            .or(args.preset.map(|preset| preset.size.to_owned()));
        if let Some(size) = size {
            plan.workload.sizes = sizes(&size)?;
        }
        plan.workload.payload = match args.payload {
            Some(payload) => payload,
            None => payload_of(file).map_err(wrong_call)?,
        };
        let keyed = || file.keyed.map(|keyed| if keyed { Keys::Uniform(100_000) } else { Keys::None });
        let of_preset = || args.preset.and_then(|preset| preset.keys.parse().ok());
        plan.workload.keys = args.keys.or_else(keyed).or_else(of_preset).unwrap_or(Keys::None);
        plan.workload.seed = args.seed;
        plan.verify = args.verify;
        Ok(())
    }

    /// Needs the rate.
    fn clients(&self, plan: &mut Plan) -> Result<(), Failure> {
        let (args, preset) = (self.args, self.args.preset);
        plan.producers = args.producers.or(self.file.producers).or(preset.map(|preset| preset.producers)).unwrap_or(1);
        plan.acks = args.acks.clone().unwrap_or_else(|| "all".to_owned());
        plan.batch_size = args.batch_size.or(preset.map(|preset| preset.batch_size)).unwrap_or(16_384);
        let default_linger = if is_light(plan) { 0 } else { 5 };
        plan.linger =
            args.linger.unwrap_or(Duration::from_millis(preset.map_or(default_linger, |preset| preset.linger_ms)));
        if !plan.linger.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(wrong_call("--linger counts whole milliseconds, as linger.ms does".to_owned()));
        }
        plan.compression = args.compression.clone().unwrap_or_else(|| "none".to_owned());
        plan.in_flight = args.in_flight.unwrap_or(5);
        plan.idempotence = args.idempotence;
        plan.outstanding =
            args.outstanding.or(preset.and_then(|preset| preset.outstanding).filter(|_| plan.rate == Rate::Max));
        Ok(())
    }

    fn time(&self, plan: &mut Plan, time: &TimeArgs) {
        if let Some(minutes) = self.file.minutes.filter(|_| time.duration.is_none() && time.records.is_none()) {
            plan.duration = Duration::from_secs(minutes * 60);
        }
        if let Some(minutes) = self.file.warmup_minutes.filter(|_| time.warmup.is_none() && time.records.is_none()) {
            plan.warmup = Duration::from_secs(minutes * 60);
        }
    }
}

/// Latency is what is asked for: few partitions, a steady trickle, no linger.
fn is_light(plan: &Plan) -> bool {
    plan.kind == Kind::EndToEnd
}

/// What a workload file has in its records, where no flag says. Errors: it has what is not made here.
fn payload_of(file: &OmbWorkload) -> Result<Payload, String> {
    match (file.randomized, file.random_share) {
        (Some(true), Some(share)) if share > 0.0 && share < 1.0 => Err(format!(
            "randomBytesRatio is {share}: records that are random in part are not made here, and how far they can be \
             compressed changes the result; choose with --payload random, text, json or zeros"
        )),
        (Some(true), Some(0.0)) => Ok(Payload::Zeros),
        (Some(false), _) if file.payload_file.is_none() => Ok(Payload::Zeros),
        _ => Ok(Payload::Random),
    }
}

fn read_of(plan: &mut Plan, read: &ReadArgs) {
    plan.consumers = read.consumers.unwrap_or(plan.consumers);
    plan.groups = read.groups.unwrap_or(plan.groups);
}

fn sizes(text: &str) -> Result<Sizes, Failure> {
    match text.strip_prefix("file:") {
        Some(path) => {
            let lines = fs::read_to_string(path).with_context(|| path.to_owned())?;
            Sizes::from_lines(&lines).map_err(|why| anyhow!("{path}: {why}").into())
        }
        None => text.parse().map_err(wrong_call),
    }
}

/// The call as it was made, quoted for a shell.
pub(super) fn command_line() -> String {
    let mut words = std::env::args().map(|word| quoted(&word));
    let program = words.next().unwrap_or_default();
    let name =
        Path::new(&program).file_name().map_or_else(|| program.clone(), |name| name.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// A message and exit code 2, as clap does it.
pub(super) fn wrong_call(why: String) -> Failure {
    // Nobody is left to tell when this fails.
    _ = problems::write_error(&mut std::io::stderr().lock(), problems::paint_stderr(), &why);
    Failure::Told(2)
}

/// Errors in settings are shown as such; all else is one line.
pub(super) fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Plan(why) => wrong_call(why),
        BenchError::Interrupted => {
            // Nobody is left to tell when this fails.
            _ = problems::write_error(&mut std::io::stderr().lock(), problems::paint_stderr(), &error.to_string());
            Failure::Told(EXIT_INTERRUPTED)
        }
        BenchError::Client(ClientError::Settings(problems)) => Failure::Config(problems),
        // Told apart from the rest by its exit code: nobody there, no answer in time.
        BenchError::Client(error) => Failure::Operation(error.into()),
        other => Failure::Operation(other.into()),
    }
}

/// A report that cannot be written is better known before an hour of measuring.
pub(super) fn try_path(path: &Path) -> Result<(), Failure> {
    let tried = fs::OpenOptions::new().append(true).create(true).open(path);
    tried.map(drop).with_context(|| format!("cannot write {}", path.display())).map_err(Failure::from)
}

/// A report and where it goes.
type ToWrite<'w> = (&'w Option<PathBuf>, &'w dyn Fn() -> String);

/// Writes reports. One that fails does not keep the rest from being written: a full disk costs one file, not what was measured.
pub(super) fn write_files(reports: &[ToWrite<'_>]) -> anyhow::Result<()> {
    let mut written = Ok(());
    for (path, text) in reports {
        if let Some(path) = path
            && let Err(error) = fs::write(path, text())
        {
            written = Err(anyhow!(error).context(format!("cannot write {}", path.display())));
        }
    }
    written
}

/// The first Ctrl-C ends the run and its report is written; the second ends the process.
pub(super) fn listen_for_ctrl_c(cancel: Cancel) {
    let listening = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            for pressed in 0.. {
                if tokio::signal::ctrl_c().await.is_err() {
                    return;
                }
                match pressed {
                    0 if !cancel.is_cancelled() => cancel.cancel(),
                    _ => std::process::exit(i32::from(EXIT_INTERRUPTED)),
                }
            }
        });
    };
    // Without that thread Ctrl-C ends the process as it always does.
    _ = std::thread::Builder::new().name("ctrl-c".to_owned()).spawn(listening);
}

/// Writes what was asked for, prints the result, and judges.
fn conclude(run: &Run, output: &OutputArgs, out: &mut impl Write) -> Result<(), Failure> {
    let written = write_files(&[
        (&output.out, &|| run.to_json()),
        (&output.html, &|| html::page(std::slice::from_ref(run))),
        (&output.omb_out, &|| format!("{:#}\n", omb::result(run))),
    ]);
    match output.output {
        Format::Table => write_table(out, std::slice::from_ref(run))?,
        Format::Json => out.write_all(run.to_json().as_bytes())?,
    }
    out.flush()?;
    written?;
    let mut against = Vec::new();
    if run.verdict.lossy {
        against.push(run.verification.sentence());
    }
    if !run.verdict.valid && !run.verdict.lossy {
        against.extend(run.verdict.reasons.iter().cloned());
    }
    against.extend(output.fail_if.iter().filter_map(|condition| condition.fails(run)));
    if against.is_empty() {
        return Ok(());
    }
    for reason in against {
        _ = problems::write_error(&mut std::io::stderr().lock(), problems::paint_stderr(), &reason);
    }
    Err(Failure::Told(EXIT_VERDICT))
}

fn report(args: &ReportArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut runs = args.runs.iter().map(|path| read_report(path)).collect::<Result<Vec<Run>, _>>()?;
    tell_apart(&mut runs, &args.runs);
    if let Some(path) = &args.html {
        fs::write(path, html::page(&runs)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match &args.csv {
        // Programs read it: nothing else may stand there.
        Some(path) if path.as_os_str() == "-" => {
            out.write_all(csv::series(&runs).as_bytes())?;
            // The numbers leave without their verdict.
            for (run, path) in runs.iter().zip(&args.runs).filter(|(run, _)| !run.verdict.valid) {
                _ = writeln!(std::io::stderr().lock(), "{}: {}", path.display(), html::verdict_words(run));
            }
            return Ok(());
        }
        Some(path) => {
            fs::write(path, csv::series(&runs)).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => {}
    }
    Ok(write_table(out, &runs)?)
}

/// Gives each of several runs a name of its own: a preset labels all its runs alike.
fn tell_apart(runs: &mut [Run], paths: &[PathBuf]) {
    if runs.len() < 2 {
        return;
    }
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let labels: Vec<String> = runs.iter().map(|run| run.label.clone()).collect();
    for (run, path) in runs.iter_mut().zip(paths) {
        let own = stem(path).filter(|own| paths.iter().filter(|path| stem(path).as_ref() == Some(own)).count() == 1);
        let file = own.unwrap_or_else(|| path.display().to_string());
        if run.label.is_empty() {
            run.label = file;
        } else if labels.iter().filter(|label| **label == run.label).count() > 1 {
            run.label = format!("{} ({file})", run.label);
        }
    }
}

fn read_report(path: &Path) -> anyhow::Result<Run> {
    let length = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    if length > REPORT_BYTES_MAX {
        bail!("{}: {} are no run.json", path.display(), units::bytes(length as f64));
    }
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Run::from_json(&text).map_err(|why| anyhow!("{} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::{SCHEMA_VERSION, Second};

    /// Writes a run of one second under each name, with its label, and gives the arguments to report them.
    fn reports(directory: &Path, files: &[(&str, &str)]) -> ReportArgs {
        let runs = files.iter().map(|(file, label)| {
            let mut run = Run {
                schema_version: SCHEMA_VERSION,
                label: (*label).to_owned(),
                kind: "produce".to_owned(),
                ..Run::default()
            };
            run.series.push(Second { t: 4, acked: 1234, ..Second::default() });
            run.verdict.valid = true;
            let path = directory.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, run.to_json()).unwrap();
            path
        });
        ReportArgs { runs: runs.collect(), html: None, csv: None }
    }

    fn said(args: &ReportArgs) -> String {
        let mut out = Vec::new();
        assert!(report(args, &mut out).is_ok());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn seconds_go_to_a_file_beside_the_table_or_alone_to_standard_output() {
        let directory = tempfile::tempdir().unwrap();
        let mut args = reports(directory.path(), &[("a.json", ""), ("b.json", "quick")]);
        args.csv = Some(PathBuf::from("-"));
        let alone = said(&args);
        let lines: Vec<&str> = alone.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("run,second,measured,"), "{alone}");
        assert!(lines[1].starts_with("\"a\",4,false,,0,1234,") && lines[2].starts_with("\"quick\",4,"), "{alone}");
        let file = directory.path().join("seconds.csv");
        args.csv = Some(file.clone());
        assert!(said(&args).contains("verdict"));
        assert_eq!(fs::read_to_string(file).unwrap(), alone);
        args.csv = Some(directory.path().join("no such directory/seconds.csv"));
        assert!(report(&args, &mut Vec::new()).is_err());
    }

    #[test]
    fn flags_are_stronger_than_the_workload_file_also_where_they_say_the_default() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(subcommand)]
            what: What,
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("load.yaml");
        fs::write(&file, "testDurationMinutes: 15\nwarmupDurationMinutes: 2\n").unwrap();
        let plan = |words: &str| {
            let call = ["bench", "e2e", "--workload", file.to_str().unwrap()];
            let words: Words = clap::Parser::parse_from(call.into_iter().chain(words.split_whitespace()));
            let What::E2e(args) = words.what else { unreachable!("the call says e2e") };
            let Ok(plan) = mixed(Kind::EndToEnd, &args) else { panic!("a plain call is refused") };
            (plan.warmup.as_secs(), plan.duration.as_secs())
        };
        assert_eq!(plan(""), (120, 900));
        assert_eq!(plan("--duration 60s --warmup 10s"), (10, 60));
    }

    #[test]
    fn a_workload_file_that_is_random_in_part_asks_for_a_choice() {
        let of =
            |randomized, random_share| payload_of(&OmbWorkload { randomized, random_share, ..OmbWorkload::default() });
        assert!(of(Some(true), Some(0.5)).unwrap_err().contains("--payload"));
        assert_eq!(of(Some(true), Some(1.0)), Ok(Payload::Random));
        assert_eq!(of(Some(true), Some(0.0)), Ok(Payload::Zeros));
        assert_eq!(of(Some(false), Some(0.5)), Ok(Payload::Zeros));
        assert_eq!(of(None, None), Ok(Payload::Random));
    }

    #[test]
    fn runs_of_one_label_are_told_apart_by_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let labels = |files: &[(&str, &str)]| -> Vec<String> {
            let args = reports(directory.path(), files);
            let mut runs: Vec<Run> = args.runs.iter().map(|path| read_report(path).unwrap()).collect();
            tell_apart(&mut runs, &args.runs);
            runs.into_iter().map(|run| run.label).collect()
        };
        assert_eq!(labels(&[("a.json", "")]), [""]);
        assert_eq!(labels(&[("a.json", ""), ("b.json", "quick")]), ["a", "quick"]);
        assert_eq!(labels(&[("a.json", "std-1k"), ("b.json", "std-1k")]), ["std-1k (a)", "std-1k (b)"]);
        let path = |name: &str| directory.path().join(name).display().to_string();
        let expected = [path("x/run.json"), path("y/run.json")];
        assert_eq!(labels(&[("x/run.json", ""), ("y/run.json", "")]), expected);
    }
}
