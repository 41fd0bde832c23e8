//! `ringlog bench`: measures any Kafka broker, and lays reports over each other.
//!
//! Shell: reads files and the environment, writes reports, listens for Ctrl-C. Owns the arguments and how they become a plan
//! (flag, then workload file, then preset, then default). Does not own the measuring (`bench::load`) nor how results look
//! (`bench_show`). Always: report paths are tried before anything is measured; Ctrl-C ends the run and what was measured is
//! reported; a lossy run prints no headline; exit code 6 is a verdict against the run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::bench_show::{Shown, write_table};
use super::serve_args::key_value;
use super::{Failure, problems};
use crate::bench::fail_if::Condition;
use crate::bench::load::{self, Cancel};
use crate::bench::omb::{self, OmbWorkload};
use crate::bench::plan::{Kind, Plan, TopicPlan, Verify};
use crate::bench::report::{REPORT_BYTES_MAX, Run};
use crate::bench::schedule::{Arrival, Rate};
use crate::bench::target::BenchError;
use crate::bench::workload::{Keys, Payload, Sizes};
use crate::bench::{html, units};
use crate::client::ClientError;
use crate::config::client_rows::client_properties;

/// The run went to its end and does not count: it lost records, the host changed, or a --fail-if condition held.
pub(super) const EXIT_VERDICT: u8 = 6;

const EXAMPLES: &str = "\
Examples:
  ringlog bench produce -b localhost:9092 --duration 60s --html report.html
  ringlog bench produce --rate 50k --size 1KiB --linger 5ms --batch-size 64KiB --out run.json
  ringlog bench produce --slo 'p99<=20ms'                 the largest rate that keeps within it
  ringlog bench e2e --rate 1000 --fail-if 'p99>10ms'
  ringlog bench consume -t orders --consumers 4
  ringlog bench report a.json b.json --html both.html

Latency is counted from the moment a record was meant to be sent, so a broker that stalls is charged for all
that waited. Without -t a topic is made for the run and deleted after it.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 errors in the settings, 6 a verdict against the run: records
were lost, the host changed while measuring, or a --fail-if condition held.";

/// Measures any Kafka broker: throughput, latency from the intended send time, what the broker paid, and proof that
/// nothing was lost.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Records in
    Produce(ProduceRun),
    /// Records out, of what lies in a topic
    Consume(ConsumeRun),
    /// Records in and out under light load: latency from the intended send to the consumer's hands
    E2e(MixedRun),
    /// Records in and out under any load
    Mixed(MixedRun),
    /// Connections that do next to nothing: what does each cost?
    Idle(ConnectionsRun),
    /// Connections made and closed, again and again
    ConnectStorm(ConnectionsRun),
    /// A page of one report, or of several laid over each other
    Report(ReportArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct ProduceRun {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    topic: TopicArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Build batches once and send them again and again: the broker's limit without a client's work
    #[arg(long, help_heading = "Load")]
    prebuilt: bool,
}

#[derive(clap::Args, Clone, Debug)]
struct ConsumeRun {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The topic to read
    #[arg(short, long, value_name = "NAME")]
    topic: String,
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
struct MixedRun {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    topic: TopicArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
struct ConnectionsRun {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// How many connections: open all the time (idle), or being made at the same time (connect-storm)
    #[arg(long, value_name = "N", default_value_t = 100)]
    connections: u32,
    /// idle: questions per second over all connections [default: one in ten seconds each]; connect-storm: connections
    /// per second [default: max]
    #[arg(long, value_name = "N|max", value_parser = str::parse::<Rate>)]
    rate: Option<Rate>,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
struct ConnectionArgs {
    /// Brokers to ask first
    #[arg(
        short = 'b',
        long = "bootstrap-server",
        value_name = "HOST:PORT,…",
        env = "RINGLOG_BROKERS",
        default_value = "127.0.0.1:9092"
    )]
    bootstrap: String,
    /// A client setting, in Kafka's or librdkafka's words; may be given again; stronger than the flags
    #[arg(short = 'X', value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    /// A properties file with client settings
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// The broker's process on this host [default: whoever listens on its port]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Where our broker shows its metrics [default: as it says itself]
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Topic")]
struct TopicArgs {
    /// The topic; made where it is not there [default: one made for the run and deleted after it]
    #[arg(short, long, value_name = "NAME")]
    topic: Option<String>,
    /// Partitions of a topic that is made [default: 6, e2e: 1]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Replicas of a topic that is made [default: the broker's]
    #[arg(long, value_name = "N")]
    replication_factor: Option<i16>,
    /// A setting of a topic that is made; may be given again
    #[arg(long = "topic-config", value_name = "KEY=VALUE", value_parser = key_value)]
    topic_settings: Vec<(String, String)>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Records per second in all: a number, `max` (closed loop), or `ramp:FROM..TO` [default: max, e2e: 1000]
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    rate: Option<Rate>,
    /// How records of an open loop follow each other: poisson or uniform
    #[arg(long, value_name = "HOW", default_value = "poisson", value_parser = str::parse::<Arrival>)]
    arrival: Arrival,
    /// Look for the largest rate that keeps within this limit, such as p99<=20ms
    #[arg(long, value_name = "LIMIT", value_parser = str::parse::<Condition>)]
    slo: Option<Condition>,
    /// Size of values: 1KiB, dist:uniform:A..B, dist:lognormal:MEDIAN,SIGMA[,LARGEST], or file:PATH with one size a
    /// line [default: 1KiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// What is in them: random, text, json or zeros [default: random]
    #[arg(long, value_name = "KIND", value_parser = str::parse::<Payload>)]
    payload: Option<Payload>,
    /// none, uniform:KEYS or zipf:KEYS[,POWER] [default: none]
    #[arg(long, value_name = "KEYS", value_parser = str::parse::<Keys>)]
    keys: Option<Keys>,
    /// Producers [default: 1]
    #[arg(long, value_name = "P")]
    producers: Option<u32>,
    /// all, 1 or 0 [default: all]
    #[arg(long, value_name = "ACKS")]
    acks: Option<String>,
    /// batch.size [default: 16KiB]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    batch_size: Option<u64>,
    /// linger.ms [default: 5ms, e2e: 0]
    #[arg(long, value_name = "TIME", value_parser = units::parse_millis)]
    linger: Option<Duration>,
    /// none, gzip, snappy, lz4 or zstd, with or without a level as in zstd:3 [default: none]
    #[arg(long, short = 'z', value_name = "CODEC")]
    compression: Option<String>,
    /// max.in.flight.requests.per.connection [default: 5]
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,
    /// enable.idempotence [default: as the client decides]
    #[arg(long, value_name = "BOOL")]
    idempotence: Option<bool>,
    /// In a closed loop, records each producer may have outstanding [default: as many as buffer.memory holds]
    #[arg(long, value_name = "N")]
    outstanding: Option<u64>,
    /// A workload file of the OpenMessaging Benchmark (flat YAML, or the same keys as TOML); flags are stronger
    #[arg(long, visible_alias = "scenario", value_name = "FILE")]
    workload: Option<PathBuf>,
    /// A load of the field: std-1k, small-100b, large-64k, tiny-request, keyed, throughput, latency; flags are stronger
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<&'static Preset>,
    /// Read everything back and prove that nothing was lost, duplicated, reordered or altered: on, off, or auto (on
    /// when acknowledgements are asked for)
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, default_missing_value = "on", value_parser = verify)]
    verify: Verify,
    /// From which everything random is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
struct ReadArgs {
    /// Consumers, in each group [default: 1]
    #[arg(long, value_name = "C")]
    consumers: Option<u32>,
    /// Consumer groups; 0 reads assigned partitions without a group [default: 0]
    #[arg(long, value_name = "N")]
    groups: Option<u32>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Measuring")]
struct TimeArgs {
    /// How long is measured [default: 60s]
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_seconds)]
    duration: Option<Duration>,
    /// End after so many records
    #[arg(short = 'n', long, value_name = "N", value_parser = whole_count)]
    records: Option<u64>,
    /// Before measuring; goes on up to three times as long until throughput is level [default: 10s, with --records: 0]
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds)]
    warmup: Option<Duration>,
    /// Measure right after the warm-up time, level or not
    #[arg(long)]
    no_steady: bool,
    /// Measure so often; the report is the median run
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Generator threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Processors the generator may use, such as 1 or 2-7
    #[arg(long, value_name = "CPUS", value_parser = processors)]
    pin: Option<Pinned>,
    /// Do not measure what the host can do before and after
    #[arg(long)]
    no_ceilings: bool,
    /// Where the disk is measured; on the broker's file system, if it is here
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Write the report as JSON (schema version 1)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the report as one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the result file of the OpenMessaging Benchmark
    #[arg(long, value_name = "FILE")]
    omb_out: Option<PathBuf>,
    /// On standard output: a table, or the report as JSON
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
    /// End with exit code 6 when this holds, such as 'p99>20ms' or 'records/s<50k'; may be given again
    #[arg(long, value_name = "CONDITION", value_parser = str::parse::<Condition>)]
    fail_if: Vec<Condition>,
    /// Names the run in reports
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Nothing on stderr but errors
    #[arg(short, long)]
    quiet: bool,
}

/// How results are printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog bench report a.json b.json --html both.html")]
struct ReportArgs {
    /// Reports as `bench --out` wrote them
    #[arg(required = true, value_name = "RUN.json")]
    runs: Vec<PathBuf>,
    /// The page to write [default: only the table is printed]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pinned(Vec<usize>);

/// `1`, `2-7`, `0,2,4-5`.
fn processors(text: &str) -> Result<Pinned, String> {
    let wrong = || format!("`{text}` names no processors; write 1, 2-7 or 0,2");
    let mut list = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) =
            (from.trim().parse().map_err(|_| wrong())?, to.trim().parse().map_err(|_| wrong())?);
        if from > to || to > 4096 {
            return Err(wrong());
        }
        list.extend(from..=to);
    }
    Ok(Pinned(list))
}

fn whole_count(text: &str) -> Result<u64, String> {
    match units::parse_count(text)? {
        count if count >= 1.0 && count < 1e15 => Ok(count as u64),
        _ => Err(format!("`{text}` is no number of records")),
    }
}

fn verify(text: &str) -> Result<Verify, String> {
    match text {
        "auto" => Ok(Verify::Auto),
        "on" | "true" => Ok(Verify::On),
        "off" | "false" => Ok(Verify::Off),
        _ => Err("write on, off or auto".to_owned()),
    }
}

/// A load people compare by.
#[derive(Debug)]
struct Preset {
    name: &'static str,
    size: &'static str,
    keys: &'static str,
    producers: u32,
    partitions: u32,
    batch_size: u64,
    linger_ms: u64,
    outstanding: Option<u64>,
}

const PRESETS: &[Preset] = &[
    Preset {
        name: "std-1k",
        size: "1KiB",
        keys: "none",
        producers: 4,
        partitions: 16,
        batch_size: 16_384,
        linger_ms: 5,
        outstanding: None,
    },
    Preset {
        name: "small-100b",
        size: "100",
        keys: "none",
        producers: 4,
        partitions: 16,
        batch_size: 16_384,
        linger_ms: 5,
        outstanding: None,
    },
    Preset {
        name: "large-64k",
        size: "64KiB",
        keys: "none",
        producers: 4,
        partitions: 16,
        batch_size: 1_048_576,
        linger_ms: 5,
        outstanding: None,
    },
    Preset {
        name: "tiny-request",
        size: "100",
        keys: "none",
        producers: 64,
        partitions: 64,
        batch_size: 1,
        linger_ms: 0,
        outstanding: Some(1),
    },
    Preset {
        name: "keyed",
        size: "1KiB",
        keys: "uniform:100000",
        producers: 4,
        partitions: 16,
        batch_size: 16_384,
        linger_ms: 5,
        outstanding: None,
    },
    Preset {
        name: "throughput",
        size: "1KiB",
        keys: "none",
        producers: 4,
        partitions: 16,
        batch_size: 1_048_576,
        linger_ms: 10,
        outstanding: None,
    },
    Preset {
        name: "latency",
        size: "1KiB",
        keys: "none",
        producers: 1,
        partitions: 1,
        batch_size: 16_384,
        linger_ms: 0,
        outstanding: None,
    },
];

fn preset(name: &str) -> Result<&'static Preset, String> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Runs what the arguments ask for.
pub(super) fn run(args: BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (plan, output) = match args.what {
        What::Report(args) => return report(&args, out),
        What::Produce(args) => {
            let mut plan = base(Kind::Produce, &args.connection, &args.time, &args.output)?;
            load_of(&mut plan, &args.load, &args.topic, None)?;
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
    conclude(&run, &output, out)
}

fn mixed(kind: Kind, args: &MixedRun) -> Result<Plan, Failure> {
    let mut plan = base(kind, &args.connection, &args.time, &args.output)?;
    load_of(&mut plan, &args.load, &args.topic, Some(&args.read))?;
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
    let mut settings = Vec::new();
    if let Some(file) = &connection.command_config {
        let text = fs::read(file).with_context(|| format!("--command-config {}", file.display()))?;
        let entries = client_properties(&text).map_err(|(line, why)| match line {
            Some(line) => anyhow!("{}:{line}: {why}", file.display()),
            None => anyhow!("{}: {why}", file.display()),
        })?;
        settings.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
    }
    settings.extend(connection.settings.iter().cloned());
    // Each side gets its own: see `Plan::client_words`.
    let defaults = Plan::default();
    let default_warmup =
        if time.records.is_some() || kind == Kind::Consume { Duration::ZERO } else { Duration::from_secs(10) };
    Ok(Plan {
        kind,
        bootstrap: connection.bootstrap.clone(),
        settings,
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
fn load_of(plan: &mut Plan, load: &LoadArgs, topic: &TopicArgs, read: Option<&ReadArgs>) -> Result<(), Failure> {
    let file = match &load.workload {
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            omb::read_workload(&text).map_err(|why| anyhow!("{}: {why}", path.display()))?
        }
        None => OmbWorkload::default(),
    };
    let preset = load.preset;
    let light = plan.kind == Kind::EndToEnd;
    plan.topic = topic.topic.clone().map_or(TopicPlan::Own, TopicPlan::Named);
    plan.partitions = topic
        .partitions
        .or(file.partitions)
        .or(preset.map(|preset| preset.partitions))
        .unwrap_or(if light { 1 } else { 6 });
    plan.replication = topic.replication_factor.unwrap_or(-1);
    plan.topic_settings = topic.topic_settings.clone();
    plan.rate = match (load.rate, file.rate) {
        (Some(rate), _) => rate,
        (None, Some(Some(rate))) => Rate::Fixed(rate),
        (None, None) if light => Rate::Fixed(1000.0),
        _ => Rate::Max,
    };
    plan.slo = load.slo.clone();
    if plan.slo.is_none() && file.rate == Some(None) && load.rate.is_none() {
        // Its 0 is a search; the limit is ours to choose, and said in the report's command.
        plan.slo = "p99<=100ms".parse().ok();
    }
    plan.arrival = load.arrival;
    let size = load
        .size
        .clone()
        .or(file.message_size.map(|size| size.to_string()))
        .or(preset.map(|preset| preset.size.to_owned()));
    if let Some(size) = size {
        plan.workload.sizes = sizes(&size)?;
    }
    let zeros = file.randomized == Some(false) && file.payload_file.is_none();
    plan.workload.payload = load.payload.unwrap_or(if zeros { Payload::Zeros } else { Payload::Random });
    let keyed = || file.keyed.map(|keyed| if keyed { Keys::Uniform(100_000) } else { Keys::None });
    let of_preset = || preset.and_then(|preset| preset.keys.parse().ok());
    plan.workload.keys = load.keys.or_else(keyed).or_else(of_preset).unwrap_or(Keys::None);
    plan.workload.seed = load.seed;
    plan.producers = load.producers.or(file.producers).or(preset.map(|preset| preset.producers)).unwrap_or(1);
    plan.acks = load.acks.clone().unwrap_or_else(|| "all".to_owned());
    plan.batch_size = load.batch_size.or(preset.map(|preset| preset.batch_size)).unwrap_or(16_384);
    let default_linger = if light { 0 } else { 5 };
    plan.linger =
        load.linger.unwrap_or(Duration::from_millis(preset.map_or(default_linger, |preset| preset.linger_ms)));
    if plan.linger.subsec_nanos() % 1_000_000 != 0 {
        return Err(wrong_call("--linger counts whole milliseconds, as linger.ms does".to_owned()));
    }
    plan.compression = load.compression.clone().unwrap_or_else(|| "none".to_owned());
    plan.in_flight = load.in_flight.unwrap_or(5);
    plan.idempotence = load.idempotence;
    plan.outstanding =
        load.outstanding.or(preset.and_then(|preset| preset.outstanding).filter(|_| plan.rate == Rate::Max));
    plan.verify = load.verify;
    if let Some(minutes) = file.minutes.filter(|_| plan.duration == Plan::default().duration) {
        plan.duration = Duration::from_secs(minutes * 60);
    }
    if let Some(minutes) = file.warmup_minutes.filter(|_| plan.warmup == Plan::default().warmup) {
        plan.warmup = Duration::from_secs(minutes * 60);
    }
    if plan.label.is_empty() {
        plan.label = file.name.or(preset.map(|preset| preset.name.to_owned())).unwrap_or_default();
    }
    if let Some(read) = read {
        plan.consumers = file.consumers_per_group.unwrap_or(1);
        plan.groups = file.groups.unwrap_or(0);
        read_of(plan, read);
    }
    Ok(())
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
    let quoted = |word: String| {
        let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+".contains(letter);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let mut words = std::env::args().map(quoted);
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
fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Plan(why) => wrong_call(why),
        BenchError::Client(ClientError::Settings(problems)) => Failure::Config(problems),
        other => Failure::Operation(other.into()),
    }
}

/// A report that cannot be written is better known before an hour of measuring.
pub(super) fn try_path(path: &Path) -> Result<(), Failure> {
    let tried = fs::OpenOptions::new().append(true).create(true).open(path);
    tried.map(drop).with_context(|| format!("cannot write {}", path.display())).map_err(Failure::from)
}

/// The first Ctrl-C ends the run and its report is written; the second ends the process.
fn listen_for_ctrl_c(cancel: Cancel) {
    let listening = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            for pressed in 0.. {
                if tokio::signal::ctrl_c().await.is_err() {
                    return;
                }
                match pressed {
                    0 if !cancel.is_cancelled() => cancel.cancel(),
                    _ => std::process::exit(130),
                }
            }
        });
    };
    // Without that thread Ctrl-C ends the process as it always does.
    _ = std::thread::Builder::new().name("ctrl-c".to_owned()).spawn(listening);
}

/// Writes what was asked for, prints the result, and judges.
fn conclude(run: &Run, output: &OutputArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut written = Ok(());
    let mut write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| {
        if let Some(path) = path
            && let Err(error) = fs::write(path, text())
        {
            // The rest is written and printed all the same: a full disk costs one file, not the run.
            written = Err(anyhow!(error).context(format!("cannot write {}", path.display())));
        }
    };
    write(&output.out, &|| run.to_json());
    write(&output.html, &|| html::page(std::slice::from_ref(run)));
    write(&output.omb_out, &|| format!("{:#}\n", omb::result(run)));
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
    let mut runs = Vec::new();
    for path in &args.runs {
        let mut run = read_report(path)?;
        if run.label.is_empty() && args.runs.len() > 1 {
            run.label =
                path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned());
        }
        runs.push(run);
    }
    if let Some(path) = &args.html {
        fs::write(path, html::page(&runs)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(write_table(out, &runs)?)
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

    #[test]
    fn processors_are_lists_and_ranges() {
        assert_eq!(processors("0,2-4"), Ok(Pinned(vec![0, 2, 3, 4])));
        assert!(processors("a").is_err() && processors("4-2").is_err() && processors("1-99999").is_err());
    }

    #[test]
    fn presets_hold_what_parses() {
        for preset in PRESETS {
            assert!(preset.size.parse::<Sizes>().is_ok() && preset.keys.parse::<Keys>().is_ok(), "{}", preset.name);
        }
        assert!(super::preset("none-such").unwrap_err().contains("std-1k"));
    }
}
