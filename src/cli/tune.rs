//! `ringlog tune`: which settings for this load, by measurement.
//!
//! Shell: reads files and the environment, writes journal, pages and properties, listens for Ctrl-C. Owns the arguments and how
//! they become a question, and what is shown meanwhile. Does not own search and measuring (`tune`). Always: the paths of results
//! are tried before anything is measured; Ctrl-C keeps every finished trial and reports on them; talk goes to stderr; nothing
//! is recommended that breaks the SLO.

use std::cell::RefCell;
use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::bench::{command_line, failure, listen_for_ctrl_c, try_path, wrong_call};
use super::bench_args::Format;
use super::connect::{BrokersArgs, DEFAULT_BROKER};
use super::serve_args::key_value;
use super::{EXIT_INTERRUPTED, EXIT_VERDICT, Failure};
use crate::bench::plan::Plan as BenchPlan;
use crate::bench::schedule::Rate;
use crate::bench::target::BenchError;
use crate::bench::units;
use crate::bench::watch::{Cancel, Progress};
use crate::bench::workload::{Keys, Payload, Sizes};
use crate::client::ClientError;
use crate::config::client_rows::client_row;
use crate::tune::advice::{self, Verdict};
use crate::tune::goal::{Goal, Target};
use crate::tune::grid::{Grid, GridPlan};
use crate::tune::html::Page;
use crate::tune::journal::{self, Journal, Kept};
use crate::tune::like;
use crate::tune::load::{Asked, Connection, Load};
use crate::tune::measuring::{self, Measuring};
use crate::tune::properties;
use crate::tune::report::{Answer, GridAnswer};
use crate::tune::run::{self, Course, Ended, Event};
use crate::tune::search::{End, Order, Plan, Search, Step};
use crate::tune::slo::Slo;
use crate::tune::space::{Knob, Point, Space};
use crate::tune::trial::{Facts, TrialError};

/// What a trial takes beside warm-up and measuring, before the first one was made: a topic, connections, the drain.
const OVERHEAD_GUESS: Duration = Duration::from_millis(700);

const EXAMPLES: &str = "\
Examples:
  ringlog tune -b localhost:9092 --rate 20k --size 1KiB --slo 'p99<=10ms'
  ringlog tune --like orders --target cost --slo 'p99<=20ms' --write client.properties --html tune.html
  ringlog tune --rate max --params batch.size,linger.ms,compression,max.in.flight --budget 40m
  ringlog tune --rate 20k --slo 'p99<=10ms' --resume           goes on where Ctrl-C ended it
  ringlog tune --grid --rate 20k --against tune.jsonl          every cell, and how the search stands before it

Each setting is tried on a topic made for it and deleted after it. The answer is measured in pairs with Kafka's
defaults; when no gain is shown, the defaults are what is recommended. Every trial is kept in the journal.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 errors in the settings, 4 no broker there or no answer in time,
6 nothing that was tried carries the load and holds the SLO, 130 interrupted (what was measured is reported).";

/// Finds batch.size, linger.ms and other client settings for a load, by measuring them on any Kafka broker.
///
/// Tries Kafka's defaults, known profiles and a spread of other settings, looks longer at the good ones, and refines around
/// the best until nothing is likely to improve by 2 % or the budget is used up.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    goal: GoalArgs,
    #[command(flatten)]
    measuring: MeasuringArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
#[command(
    next_help_heading = "Connection",
    mut_arg("bootstrap", |arg| arg.default_value(DEFAULT_BROKER)),
    mut_arg("settings", |arg| {
        arg.help("A client setting, in Kafka's or librdkafka's words; may be given again; held fixed")
    })
)]
struct ConnectionArgs {
    #[command(flatten)]
    brokers: BrokersArgs,
    /// The broker's process on this host, for what it pays [default: whoever listens on its port]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Sample this topic: its sizes, keys, partitions, rate and how far it compresses; flags below are stronger
    #[arg(long, value_name = "TOPIC")]
    like: Option<String>,
    /// Records per second in all, or `max`: as fast as answers come [default: max, with --like the topic's]
    #[arg(long, value_name = "RATE", value_parser = known::<Rate>)]
    rate: Option<String>,
    /// Size of values: 1KiB, dist:uniform:A..B, dist:lognormal:MEDIAN,SIGMA[,LARGEST] [default: 1KiB]
    #[arg(long, value_name = "SIZE", value_parser = known::<Sizes>)]
    size: Option<String>,
    /// What is in them: random, text, json or zeros [default: json]
    #[arg(long, value_name = "KIND", value_parser = known::<Payload>)]
    payload: Option<String>,
    /// none, uniform:KEYS or zipf:KEYS[,POWER] [default: none]
    #[arg(long, value_name = "KEYS", value_parser = known::<Keys>)]
    keys: Option<String>,
    /// Of the topics that are made [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    partitions: Option<u32>,
    /// Producers
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    producers: u32,
    /// Consumers that read meanwhile; latency is then end to end [default: 0, with fetch.min.bytes: 1]
    #[arg(long, value_name = "C")]
    consumers: Option<u32>,
    /// all, 1 or 0: what is promised is the user's to choose and is never tuned
    #[arg(long, value_name = "ACKS", default_value = "all", value_parser = ["all", "1", "0"])]
    acks: String,
    /// Write to this topic instead of topics made for the trials; its records stay
    #[arg(short, long, value_name = "NAME")]
    topic: Option<String>,
    /// Replicas of topics that are made [default: the broker's]
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A setting of topics that are made; may be given again
    #[arg(long = "topic-config", value_name = "KEY=VALUE", value_parser = key_value)]
    topic_settings: Vec<(String, String)>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Goal")]
struct GoalArgs {
    /// What is made better: latency, throughput or cost (processor time per MB) [default: latency; at --rate max
    /// throughput]
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<Target>)]
    target: Option<Target>,
    /// What must hold, such as 'p99<=10ms' or 'p99<=10ms and cpu-ms/mb<1'
    #[arg(long, value_name = "LIMITS", value_parser = str::parse::<Slo>)]
    slo: Option<Slo>,
    /// What is turned, of batch.size, linger.ms, compression, max.in.flight, partitions, fetch.min.bytes
    #[arg(long, value_name = "KNOBS", value_delimiter = ',', default_value = "batch.size,linger.ms", value_parser = Knob::parse)]
    params: Vec<Knob>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Measuring")]
struct MeasuringArgs {
    /// How long the search may take
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = units::parse_seconds)]
    budget: Duration,
    /// Before each trial
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_seconds)]
    warmup: Duration,
    /// Once, before the first trial: a Java broker is slower at first, and needs a minute where it was just started
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_seconds)]
    broker_warmup: Duration,
    /// From which everything random is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Generator threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Measure all of a 7 × 6 grid of batch.size and linger.ms instead of searching
    #[arg(long, conflicts_with = "params")]
    grid: bool,
    /// With --grid: how long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = units::parse_seconds)]
    cell: Duration,
    /// With --grid: the journal of a search, whose pick is measured beside the grid's best
    #[arg(long, value_name = "FILE", requires = "grid")]
    against: Option<PathBuf>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Where every trial is kept [default: tune.jsonl, with --grid: tune-grid.jsonl]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Go on with the journal of the same command
    #[arg(long)]
    resume: bool,
    /// Write what is recommended as a properties file with Java's names, which this program reads, too
    #[arg(long, value_name = "FILE", conflicts_with = "grid")]
    write: Option<PathBuf>,
    /// Write the answer as one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// On standard output: a table with sentences, or the answer as JSON (schema version 1)
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Nothing on stderr but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Text that can be read as a `T`, kept as it was written: the journal and the report show it.
fn known<T: std::str::FromStr<Err = String>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// Everything that was asked, ready to be measured.
struct Question {
    load: Load,
    goal: Goal,
    space: Space,
    base: BenchPlan,
    course: Course,
    asked: Asked,
    judged_time: Option<Duration>,
}

/// Runs what the arguments ask for.
pub(super) fn run(args: TuneArgs, out: &mut impl Write) -> Result<(), Failure> {
    let path = args
        .output
        .journal
        .clone()
        .unwrap_or_else(|| PathBuf::from(if args.measuring.grid { "tune-grid.jsonl" } else { "tune.jsonl" }));
    let shown = Rc::new(RefCell::new(Shown::new(args.output.quiet)));
    let connection = connection(&args)?;
    let load = load(&args, &connection, &path, &shown)?;
    let mut question = question(&args, connection, load)?;
    for path in [&args.output.html, &args.output.write].into_iter().flatten() {
        try_path(path)?;
    }
    let now = units::rfc3339(SystemTime::now());
    let (mut journal, kept) = if args.output.resume {
        let (journal, kept) = Journal::resume(&path, &question.asked)?;
        (journal, Some(kept))
    } else {
        (Journal::create(&path, &question.asked, &now)?, None)
    };
    let Kept { started_at, facts, records, .. } = kept.unwrap_or_else(|| Kept::empty(question.asked.clone(), now));
    let resumed_at = records.last().map_or(Duration::ZERO, |record| record.ended);
    if !records.is_empty() {
        shown.borrow_mut().say(&format!("{} trials of {} are taken over", records.len(), path.display()));
    }
    run::replay(&mut question.course, records).map_err(|why| anyhow!("{}: {why}", path.display()))?;

    let cancel = Cancel::default();
    listen_for_ctrl_c(cancel.clone());
    let taken_over = TakenOver { resumed_at, facts };
    let measured = measure(&args, &mut question, &mut journal, cancel, taken_over, &shown);
    shown.borrow_mut().end();
    if question.course.records().is_empty() {
        // A journal without a trial would only be in the way of the next attempt.
        _ = fs::remove_file(&path);
    }
    let (ended, facts) = measured?;
    Asking { args: &args, question: &question, facts: &facts, started_at: &started_at }.conclude(ended, &path, out)
}

/// What the cluster is and how it is spoken to.
fn connection(args: &TuneArgs) -> Result<BenchPlan, Failure> {
    let settings = args.connection.brokers.words()?;
    // What is turned cannot be held fixed as well.
    let java = |name: &str| client_row(name).map_or_else(|| name.to_owned(), |row| row.row.name.to_owned());
    let turned = |name: &str| args.goal.params.iter().any(|knob| knob.name() == java(name));
    if let Some((name, _)) = settings.iter().find(|(name, _)| turned(name)) {
        return Err(wrong_call(format!(
            "{name} is set and is to be tuned; leave it out of the settings, or of --params"
        )));
    }
    Ok(BenchPlan {
        bootstrap: args.connection.brokers.bootstrap_servers(),
        settings,
        pid: args.connection.pid,
        topic: measuring::topic(args.load.topic.clone()),
        replication: args.load.replication_factor.unwrap_or(-1),
        topic_settings: args.load.topic_settings.clone(),
        threads: args.measuring.threads,
        command: command_line(),
        ..BenchPlan::default()
    })
}

/// The load: flags, then the topic it is to be like, then defaults.
fn load(args: &TuneArgs, connection: &BenchPlan, journal: &Path, shown: &Rc<RefCell<Shown>>) -> Result<Load, Failure> {
    let given = &args.load;
    let defaults = Load::default();
    let reads = args.goal.params.contains(&Knob::FetchMinBytes);
    let mut load = Load {
        rate: given.rate.clone().unwrap_or(defaults.rate),
        size: given.size.clone().unwrap_or(defaults.size),
        payload: given.payload.clone().unwrap_or(defaults.payload),
        keys: given.keys.clone().unwrap_or(defaults.keys),
        partitions: given.partitions.unwrap_or(defaults.partitions),
        producers: given.producers,
        consumers: given.consumers.unwrap_or(u32::from(reads)),
        acks: given.acks.clone(),
    };
    if reads && load.consumers == 0 {
        return Err(wrong_call("fetch.min.bytes is a consumer's: give --consumers 1".to_owned()));
    }
    let Some(topic) = &given.like else { return Ok(load) };
    if args.output.resume {
        // A second sample would be another load.
        let kept = journal::read(journal)?;
        return Ok(kept.asked.load);
    }
    shown.borrow_mut().say(&format!("sampling {topic}"));
    let found = like::sample(connection, topic).map_err(client_failure)?;
    for sentence in &found.likeness.sentences {
        shown.borrow_mut().say(&format!("  {sentence}"));
    }
    if given.size.is_none() {
        load.size = found.likeness.size;
    }
    if given.keys.is_none() {
        load.keys = found.likeness.keys;
    }
    if given.payload.is_none() {
        load.payload = found.likeness.payload.name().to_owned();
    }
    if given.partitions.is_none() {
        load.partitions = found.partitions;
    }
    if given.rate.is_none() {
        let rate = found
            .likeness
            .rate
            .ok_or_else(|| wrong_call(format!("the timestamps of {topic} do not tell its rate: give --rate")))?;
        load.rate = format!("{}", rate.round());
    }
    Ok(load)
}

fn question(args: &TuneArgs, connection: BenchPlan, mut load: Load) -> Result<Question, Failure> {
    let rate = load.rate().map_err(wrong_call)?;
    let target = args.goal.target.unwrap_or(if rate == Rate::Max { Target::Throughput } else { Target::Latency });
    let goal = Goal { target, slo: args.goal.slo.clone().unwrap_or_default() };
    if args.load.topic.is_some() && args.goal.params.contains(&Knob::Partitions) {
        return Err(wrong_call(
            "partitions can be tuned only on topics made for the trials: leave out --topic".to_owned(),
        ));
    }
    let knobs = if args.measuring.grid { vec![Knob::BatchSize, Knob::Linger] } else { args.goal.params.clone() };
    let space = Space::new(&knobs, u64::from(load.partitions)).map_err(wrong_call)?;
    let measured = if args.measuring.grid { args.measuring.cell } else { args.measuring.budget };
    if measured < Duration::from_secs(1) {
        return Err(wrong_call("less than a second cannot be measured".to_owned()));
    }
    let seed = args.measuring.seed;
    let base = measuring::base(connection, &load, args.measuring.warmup, seed).map_err(wrong_call)?;
    let space = space.holding(measuring::held(&base));
    load.acks.clone_from(&base.acks);
    let asked = Asked {
        mode: if args.measuring.grid { "grid" } else { "tune" }.to_owned(),
        bootstrap: base.bootstrap.clone(),
        load: load.clone(),
        connection: Connection::of(&base),
        target: target.name().to_owned(),
        slo: goal.slo.to_string(),
        space: space.to_string(),
        budget_seconds: measured.as_secs(),
        warmup_seconds: base.warmup_seconds(),
        seed,
    };
    let overhead = Duration::from_secs(base.warmup_seconds()) + OVERHEAD_GUESS;
    let plan = Plan { space: space.clone(), goal: goal.clone(), budget: measured, seed, overhead };
    let (course, judged_time) = if args.measuring.grid {
        let (judged, time) = match &args.measuring.against {
            Some(path) => judged(path, &asked, &space, &goal)?,
            None => (None, None),
        };
        let cell = Duration::from_secs(measured.as_secs());
        let plan = GridPlan { space: space.clone(), goal: goal.clone(), cell, seed, judged };
        (Course::Grid(Box::new(Grid::new(plan))), time)
    } else {
        (Course::Search(Box::new(Search::new(plan).map_err(wrong_call)?)), None)
    };
    Ok(Question { load, goal, space, base, course, asked, judged_time })
}

/// The pick of a finished search over the same plane, and how long it took.
fn judged(
    path: &Path,
    asked: &Asked,
    space: &Space,
    goal: &Goal,
) -> Result<(Option<Point>, Option<Duration>), Failure> {
    let kept = journal::read(path)?;
    let same = Asked { mode: kept.asked.mode.clone(), budget_seconds: kept.asked.budget_seconds, ..asked.clone() };
    if let Some(difference) = kept.asked.difference(&same) {
        return Err(wrong_call(format!("{} is of another question: {difference}", path.display())));
    }
    if kept.asked.mode != "tune" {
        return Err(wrong_call(format!("{} is no search", path.display())));
    }
    let plan = Plan {
        space: space.clone(),
        goal: goal.clone(),
        budget: Duration::from_secs(kept.asked.budget_seconds),
        seed: kept.asked.seed,
        overhead: Duration::from_secs(kept.asked.warmup_seconds) + OVERHEAD_GUESS,
    };
    let time = kept.records.last().map(|record| record.ended);
    let mut course = Course::Search(Box::new(Search::new(plan).map_err(wrong_call)?));
    run::replay(&mut course, kept.records).map_err(|why| anyhow!("{}: {why}", path.display()))?;
    let Course::Search(mut search) = course else { return Ok((None, None)) };
    // The last word of a search is said when it is asked once more.
    if let Some(time) = time {
        _ = search.next(time);
    }
    let pick = search.pick().ok_or_else(|| anyhow!("{} holds no trials", path.display()))?;
    Ok((Some(pick), time))
}

/// What a journal that is gone on with tells: where its clock stands, and what it knows of the broker.
struct TakenOver {
    resumed_at: Duration,
    facts: Option<Facts>,
}

fn measure(
    args: &TuneArgs,
    question: &mut Question,
    journal: &mut Journal,
    cancel: Cancel,
    taken_over: TakenOver,
    shown: &Rc<RefCell<Shown>>,
) -> Result<(Ended, Facts), Failure> {
    let TakenOver { resumed_at, facts } = taken_over;
    let known = facts.is_some();
    if let Step::Done(end) = question.course.clone().next(resumed_at) {
        // The journal holds a whole search: only its answer is wanted.
        _ = question.course.next(resumed_at);
        return Ok((Ended { end, failure: None }, facts.unwrap_or_default()));
    }
    let watching = Rc::clone(shown);
    let watcher = Box::new(move |progress| watching.borrow_mut().on_progress(&progress));
    let mut trial = Measuring::new(
        question.base.clone(),
        question.space.clone(),
        &question.load,
        cancel,
        resumed_at,
        facts,
        watcher,
    );
    shown.borrow_mut().begin("warming the broker up");
    match trial.warm_up(args.measuring.broker_warmup) {
        Ok(()) => {}
        Err(TrialError::Interrupted) => return Err(Failure::Told(EXIT_INTERRUPTED)),
        Err(TrialError::Failed(error)) => return Err(client_failure(error)),
    }
    let (space, goal) = (question.space.clone(), question.goal.clone());
    let mut on_event = |event: Event<'_>| shown.borrow_mut().on_event(&event, &space, &goal);
    let ended = run::run(&mut question.course, &mut trial, Some(journal), known, &mut on_event)?;
    use crate::tune::trial::Trial as _;
    Ok((ended, trial.facts().unwrap_or_default()))
}

/// What was asked and found out, for whoever tells the answer.
struct Asking<'a> {
    args: &'a TuneArgs,
    question: &'a Question,
    facts: &'a Facts,
    started_at: &'a str,
}

impl Asking<'_> {
    /// Prints and writes the answer, and judges.
    fn conclude(&self, ended: Ended, journal: &Path, out: &mut impl Write) -> Result<(), Failure> {
        let Ended { end, failure } = ended;
        let written = match &self.question.course {
            Course::Search(search) => self.answer(search, end, out)?,
            Course::Grid(grid) => self.grid_answer(grid, end, out)?,
        };
        let go_on = format!("every finished trial is in {}; --resume goes on with it", journal.display());
        if let Some(error) = failure {
            out.flush()?;
            if !self.args.output.quiet {
                eprintln!("{go_on}");
            }
            return Err(client_failure(error));
        }
        if end == End::Interrupted {
            out.flush()?;
            if !self.args.output.quiet {
                eprintln!("interrupted: {go_on}");
            }
            return Err(Failure::Told(EXIT_INTERRUPTED));
        }
        if written { Ok(()) } else { Err(Failure::Told(EXIT_VERDICT)) }
    }

    /// Whether something could be recommended.
    fn answer(&self, search: &Search, end: End, out: &mut impl Write) -> Result<bool, Failure> {
        let Self { args, question, facts, started_at } = self;
        let Some(answer) = Answer::of(search, end, &question.asked, facts, started_at) else {
            return Ok(true);
        };
        match args.output.output {
            Format::Table => out.write_all(answer.text(&question.space, &question.goal).as_bytes())?,
            Format::Json => print_json(out, &answer)?,
        }
        if let Some(path) = &args.output.html {
            let page = page(question, search.drift()).of(&answer);
            fs::write(path, page).with_context(|| path.display().to_string())?;
        }
        let holds = answer.advice.verdict != Verdict::NothingHolds;
        if let Some(path) = args.output.write.as_ref().filter(|_| holds) {
            let comments = [
                format!("{} for {}", answer.tool, question.load.sentence()),
                answer.advice.headline.clone(),
                format!("{}, {}, acknowledgement class {}", started_at, question.asked.bootstrap, facts.ack_class),
            ];
            let text = properties::file(&question.space, &answer.advice.recommended, &comments);
            fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        Ok(holds)
    }

    fn grid_answer(&self, grid: &Grid, end: End, out: &mut impl Write) -> Result<bool, Failure> {
        let question = self.question;
        let answer = GridAnswer::of(grid, end, &question.asked, self.facts, self.started_at, question.judged_time);
        let Some(answer) = answer else { return Ok(true) };
        match self.args.output.output {
            Format::Table => out.write_all(answer.text(&question.space, &question.goal).as_bytes())?,
            Format::Json => print_json(out, &answer)?,
        }
        if let Some(path) = &self.args.output.html {
            let page = page(question, grid.drift()).of_grid(&answer);
            fs::write(path, page).with_context(|| path.display().to_string())?;
        }
        Ok(true)
    }
}

fn page<'a>(question: &'a Question, drift: &'a crate::tune::drift::Drift) -> Page<'a> {
    Page { space: &question.space, goal: &question.goal, drift, command: &question.base.command }
}

fn print_json(out: &mut impl Write, answer: &impl serde::Serialize) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, answer).context("writing the answer")?;
    writeln!(out)?;
    Ok(())
}

/// As bench tells it: a wrong call, wrong settings, or one line.
fn client_failure(error: anyhow::Error) -> Failure {
    match error.downcast::<BenchError>() {
        Ok(error) => failure(error),
        Err(error) => match error.downcast::<ClientError>() {
            Ok(ClientError::Settings(problems)) => Failure::Config(problems),
            Ok(error) => Failure::Operation(error.into()),
            Err(error) => Failure::Operation(error),
        },
    }
}

/// What is shown meanwhile: a bar on a terminal, a line a trial elsewhere.
struct Shown {
    quiet: bool,
    bar: Option<ProgressBar>,
    /// What the trial under way is.
    trial: String,
    best: String,
}

impl Shown {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            bar: (!quiet && io::stderr().is_terminal()).then(ProgressBar::hidden),
            trial: String::new(),
            best: String::new(),
        }
    }

    fn begin(&mut self, what: &str) {
        self.trial = what.to_owned();
        match &self.bar {
            Some(bar) => {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.set_length(1000);
                if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:20} {msg}") {
                    bar.set_style(style.progress_chars("━╸─"));
                }
                bar.enable_steady_tick(Duration::from_millis(120));
                bar.set_message(what.to_owned());
            }
            None => self.say(what),
        }
    }

    fn on_progress(&mut self, progress: &Progress) {
        if let (Some(bar), Progress::Second { measured, latency: Some(latency), records, .. }) = (&self.bar, progress) {
            let phase = if *measured { "" } else { " warm-up" };
            bar.set_message(format!(
                "{}{phase}  {}/s p99 {}{}",
                self.trial,
                units::grouped(*records),
                units::micros(latency.p99 as f64),
                self.best
            ));
        }
    }

    fn on_event(&mut self, event: &Event<'_>, space: &Space, goal: &Goal) {
        match event {
            Event::Begins(order) => {
                self.trial = describe(order, space);
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{}{}", self.trial, self.best));
                }
            }
            Event::Ended(record, course) => {
                let done = match course {
                    Course::Search(search) => {
                        self.best =
                            search.best().filter(|best| best.standing.is_feasible()).map_or_else(String::new, |best| {
                                let value = goal
                                    .number(&best.measured)
                                    .map_or_else(String::new, |value| advice::number(goal, value));
                                format!("  · best {} ({value})", space.short(&best.point))
                            });
                        search.progress(record.ended)
                    }
                    Course::Grid(grid) => {
                        let (done, all) = grid.progress();
                        done as f64 / all.max(1) as f64
                    }
                };
                match &self.bar {
                    Some(bar) => bar.set_position((done * 1000.0) as u64),
                    None => {
                        let measured = &record.measured;
                        let cost = measured
                            .cpu_ms_per_mb()
                            .map_or_else(String::new, |cpu| format!("  {} ms/MB", units::digits(cpu)));
                        let line = format!(
                            "{:>3.0} %  {}: {}/s  p50 {}  p99 {}{cost}{}",
                            done * 100.0,
                            describe(&record.order, space),
                            units::grouped(measured.records_per_second as u64),
                            units::micros(measured.p50_us),
                            units::micros(measured.p99_us),
                            self.best
                        );
                        self.say(&line);
                    }
                }
            }
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) if !bar.is_hidden() => bar.println(line),
            _ if self.quiet => {}
            // Nobody is left to tell when this fails.
            _ => _ = writeln!(io::stderr().lock(), "{line}"),
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn describe(order: &Order, space: &Space) -> String {
    let seconds = units::digits(order.duration.as_secs_f64());
    format!("trial {}, {} s, {}: {}", order.number + 1, seconds, order.purpose.words(), space.short(&order.point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: TuneArgs,
    }

    fn asked(words: &[&str]) -> Result<Question, Failure> {
        let args =
            Only::try_parse_from(std::iter::once(&"tune").chain(words)).map_err(|error| anyhow!("{error}"))?.args;
        let shown = Rc::new(RefCell::new(Shown::new(true)));
        let connection = connection(&args)?;
        let load = load(&args, &connection, Path::new("none"), &shown)?;
        question(&args, connection, load)
    }

    #[test]
    fn the_target_follows_the_rate_unless_it_is_given() {
        let target = |words: &[&str]| asked(words).map(|question| question.goal.target).ok();
        assert_eq!(target(&["--rate", "20k"]), Some(Target::Latency));
        assert_eq!(target(&[]), Some(Target::Throughput));
        assert_eq!(target(&["--rate", "20k", "--target", "cost"]), Some(Target::Cost));
    }

    #[test]
    fn tuning_fetch_min_bytes_brings_a_consumer() {
        let question = asked(&["--rate", "1k", "--params", "linger.ms,fetch.min.bytes"]).ok().unwrap();
        assert_eq!(question.load.consumers, 1);
        assert_eq!(question.base.kind, crate::bench::plan::Kind::Mixed);
        assert!(asked(&["--rate", "1k", "--params", "fetch.min.bytes", "--consumers", "0"]).is_err());
    }

    #[test]
    fn absurd_questions_are_refused() {
        for words in [
            &["--budget", "5s"][..],
            &["--rate", "ramp:1..2"],
            &["--params", "acks"],
            &["--params", "linger.ms,linger.ms"],
            &["--slo", "p99"],
            &["--size", "-1"],
            &["--acks", "2"],
            &["--topic", "t", "--params", "partitions"],
            &["-X", "linger.ms=1"],
            &["--against", "x"],
            &["--producers", "0"],
            &["--grid", "--cell", "0s"],
        ] {
            assert!(asked(words).is_err(), "{words:?}");
        }
    }
}
