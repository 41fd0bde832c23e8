//! What `ringlog bench` can be told.
//!
//! Shell: takes the environment's broker list. Owns the flags of every kind of run and the presets. Does not own what becomes of
//! them (`bench`). Always: a kind has only the flags that mean something for it; an option says its default.

use std::path::PathBuf;
use std::time::Duration;

use super::connect::{BrokersArgs, DEFAULT_BROKER};
use super::serve_args::key_value;
use crate::bench::fail_if::Condition;
use crate::bench::plan::Verify;
use crate::bench::schedule::{Arrival, Rate};
use crate::bench::units;
use crate::bench::workload::{Keys, Payload};

const EXAMPLES: &str = "\
Examples:
  ringlog bench produce -b localhost:9092 --duration 60s --html report.html
  ringlog bench produce --rate 50k --size 1KiB --linger 5ms --batch-size 64KiB --out run.json
  ringlog bench produce --slo 'p99<=20ms'                 the largest rate that keeps within it
  ringlog bench e2e --rate 1000 --fail-if 'p99>10ms'
  ringlog bench consume -t orders --consumers 4
  ringlog bench report a.json b.json --html both.html --csv seconds.csv

Latency is counted from the moment a record was meant to be sent, so a broker that stalls is charged for all
that waited. Without -t a topic is made for the run and deleted after it. At --rate max a run writes as much as
the broker takes: tens of gigabytes a minute. Profiles are not read: the call is in the report.

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 errors in the settings, 4 no broker there or no answer in time,
6 a verdict against the run: records were lost or could not be verified, the host changed while measuring, no rate
held --slo, or a --fail-if condition held; 130 interrupted (what was measured is reported).";

const REPORT_EXAMPLES: &str = "\
Examples:
  ringlog bench report a.json b.json --html both.html
  ringlog bench report a.json b.json --csv seconds.csv
  ringlog bench report run.json --csv - | gzip > seconds.csv.gz";

/// Measures any Kafka broker: throughput, latency from the intended send time, what the broker paid, and proof that
/// nothing was lost.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
pub(super) enum What {
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
pub(super) struct ProduceRun {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(flatten)]
    pub(super) topic: TopicArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Build batches once and send them again and again: the broker's limit without a client's work
    #[arg(long, help_heading = "Load")]
    pub(super) prebuilt: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ConsumeRun {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// The topic to read
    #[arg(short, long, value_name = "NAME")]
    pub(super) topic: String,
    #[command(flatten)]
    pub(super) read: ReadArgs,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct MixedRun {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(flatten)]
    pub(super) topic: TopicArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) read: ReadArgs,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ConnectionsRun {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// How many connections: open all the time (idle), or being made at the same time (connect-storm)
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) connections: u32,
    /// idle: questions per second over all connections [default: one in ten seconds each]; connect-storm: connections
    /// per second [default: max]
    #[arg(long, value_name = "N|max", value_parser = str::parse::<Rate>)]
    pub(super) rate: Option<Rate>,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(clap::Args, Clone, Debug)]
#[command(
    next_help_heading = "Connection",
    mut_arg("bootstrap", |arg| arg.default_value(DEFAULT_BROKER)),
    mut_arg("settings", |arg| {
        arg.help("A client setting, in Kafka's or librdkafka's words; may be given again; stronger than the flags")
    })
)]
pub(super) struct ConnectionArgs {
    #[command(flatten)]
    pub(super) brokers: BrokersArgs,
    /// The broker's process on this host [default: whoever listens on its port, where the cluster is that one broker]
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
    /// Where our broker shows its metrics [default: as it says itself]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) admin: Option<String>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Topic")]
pub(super) struct TopicArgs {
    /// The topic; made where it is not there [default: one made for the run and deleted after it]
    #[arg(short, long, value_name = "NAME")]
    pub(super) topic: Option<String>,
    /// Partitions of a topic that is made [default: 6, e2e: 1]
    #[arg(long, value_name = "N")]
    pub(super) partitions: Option<u32>,
    /// Replicas of a topic that is made [default: the broker's]
    #[arg(long, value_name = "N")]
    pub(super) replication_factor: Option<i16>,
    /// A setting of a topic that is made; may be given again
    #[arg(long = "topic-config", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) topic_settings: Vec<(String, String)>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Records per second in all: a number, `max` (closed loop), or `ramp:FROM..TO` [default: max, e2e: 1000]
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub(super) rate: Option<Rate>,
    /// How records of an open loop follow each other: poisson or uniform
    #[arg(long, value_name = "HOW", default_value = "poisson", value_parser = str::parse::<Arrival>)]
    pub(super) arrival: Arrival,
    /// Look for the largest rate that keeps within this limit, such as p99<=20ms
    #[arg(long, value_name = "LIMIT", value_parser = str::parse::<Condition>)]
    pub(super) slo: Option<Condition>,
    /// Size of values: 1KiB, dist:uniform:A..B, dist:lognormal:MEDIAN,SIGMA[,LARGEST], or file:PATH with one size a
    /// line [default: 1KiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) size: Option<String>,
    /// What is in them: random, text, json or zeros [default: random]
    #[arg(long, value_name = "KIND", value_parser = str::parse::<Payload>)]
    pub(super) payload: Option<Payload>,
    /// none, uniform:KEYS or zipf:KEYS[,POWER] [default: none]
    #[arg(long, value_name = "KEYS", value_parser = str::parse::<Keys>)]
    pub(super) keys: Option<Keys>,
    /// Producers [default: 1]
    #[arg(long, value_name = "P")]
    pub(super) producers: Option<u32>,
    /// all, 1 or 0 [default: all]
    #[arg(long, value_name = "ACKS")]
    pub(super) acks: Option<String>,
    /// batch.size [default: 16KiB]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    pub(super) batch_size: Option<u64>,
    /// linger.ms [default: 5ms, e2e: 0]
    #[arg(long, value_name = "TIME", value_parser = units::parse_millis)]
    pub(super) linger: Option<Duration>,
    /// none, gzip, snappy, lz4 or zstd, with or without a level as in zstd:3 [default: none]
    #[arg(long, short = 'z', value_name = "CODEC")]
    pub(super) compression: Option<String>,
    /// max.in.flight.requests.per.connection [default: 5]
    #[arg(long, value_name = "N")]
    pub(super) in_flight: Option<u32>,
    /// enable.idempotence [default: as the client decides]
    #[arg(long, value_name = "BOOL")]
    pub(super) idempotence: Option<bool>,
    /// In a closed loop, records each producer may have outstanding [default: as many as buffer.memory holds]
    #[arg(long, value_name = "N")]
    pub(super) outstanding: Option<u64>,
    /// A workload file of the OpenMessaging Benchmark (flat YAML, or the same keys as TOML); flags are stronger
    #[arg(long, visible_alias = "scenario", value_name = "FILE")]
    pub(super) workload: Option<PathBuf>,
    /// A load of the field: std-1k, small-100b, large-64k, tiny-request, keyed, throughput, latency; flags are stronger
    #[arg(long, value_name = "NAME", value_parser = preset)]
    pub(super) preset: Option<&'static Preset>,
    /// Read everything back and prove that nothing was lost, duplicated, reordered or altered: on, off, or auto (on
    /// when acknowledgements are asked for)
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, default_missing_value = "on", value_parser = verify)]
    pub(super) verify: Verify,
    /// From which everything random is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub(super) struct ReadArgs {
    /// Consumers, in each group [default: 1]
    #[arg(long, value_name = "C")]
    pub(super) consumers: Option<u32>,
    /// Consumer groups; 0 reads assigned partitions without a group [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) groups: Option<u32>,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Measuring")]
pub(super) struct TimeArgs {
    /// How long is measured [default: 60s]
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_seconds)]
    pub(super) duration: Option<Duration>,
    /// End after so many records
    #[arg(short = 'n', long, value_name = "N", value_parser = whole_count)]
    pub(super) records: Option<u64>,
    /// Before measuring; goes on up to three times as long until throughput is level [default: 10s, with --records: 0]
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds)]
    pub(super) warmup: Option<Duration>,
    /// Measure right after the warm-up time, level or not
    #[arg(long)]
    pub(super) no_steady: bool,
    /// Measure so often; the report is the median run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) repeat: u32,
    /// Generator threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: u32,
    /// Processors the generator may use, such as 1 or 2-7
    #[arg(long, value_name = "CPUS", value_parser = processors)]
    pub(super) pin: Option<Pinned>,
    /// Do not measure what the host can do before and after
    #[arg(long)]
    pub(super) no_ceilings: bool,
    /// Where the disk is measured; on the broker's file system, if it is here
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) directory: PathBuf,
}

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Write the report as JSON (schema version 1)
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    /// Write the report as one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the result file of the OpenMessaging Benchmark
    #[arg(long, value_name = "FILE")]
    pub(super) omb_out: Option<PathBuf>,
    /// On standard output: a table, or the report as JSON
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(super) output: Format,
    /// End with exit code 6 when this holds, such as 'p99>20ms' or 'records/s<50k'; may be given again
    #[arg(long, value_name = "CONDITION", value_parser = str::parse::<Condition>)]
    pub(super) fail_if: Vec<Condition>,
    /// Names the run in reports
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) label: String,
    /// Nothing on stderr but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// How results are printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = REPORT_EXAMPLES)]
pub(super) struct ReportArgs {
    /// Reports as `bench --out` wrote them
    #[arg(required = true, value_name = "RUN.json")]
    pub(super) runs: Vec<PathBuf>,
    /// The page to write [default: only the table is printed]
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Every second of every run, comma-separated: records, bytes, errors, latency in microseconds; `-` for standard
    /// output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pinned(pub(super) Vec<usize>);

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
        count if (1.0..1e15).contains(&count) => Ok(count as u64),
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
pub(super) struct Preset {
    pub(super) name: &'static str,
    pub(super) size: &'static str,
    pub(super) keys: &'static str,
    pub(super) producers: u32,
    pub(super) partitions: u32,
    pub(super) batch_size: u64,
    pub(super) linger_ms: u64,
    pub(super) outstanding: Option<u64>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::Sizes;

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
