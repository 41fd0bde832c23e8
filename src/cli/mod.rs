//! The commands: one file each, and what they share with the world outside.
//!
//! Shell. Owns the arguments, the exit codes and how failures are shown. Does not own what a command does. Always: 0 is done, 1 is
//! failed, 2 is a wrong call, 3 is settings with errors in them, 4 is nobody there or no answer in time, 5 is done in part, 6 is a
//! verdict against what was measured, 130 is interrupted; a reader that went away (broken pipe) is no failure and no message. Under the name of a tool of Kafka's, as first word or as the
//! name it was called by, the rules are that tool's (`kafka`). Source: rustc's messages.

mod bench;
mod bench_args;
mod bench_show;
mod check_config;
mod cluster;
mod compare;
mod completions;
mod configs;
mod connect;
mod consume;
mod doctor;
mod dump;
mod group_reset;
mod groups;
mod install_shims;
mod interrupt;
mod kafka;
mod man;
mod moments;
mod offset_range;
mod offsets;
mod offsets_decoder;
mod outcome;
mod problems;
mod produce;
mod record_format;
mod record_input;
pub mod serve;
pub mod serve_args;
mod show;
mod topics;
mod tune;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};

use crate::client::ClientError;
use crate::config::Problem;
use crate::types::TimestampMs;

const EXAMPLES: &str = "\
Examples:
  ringlog serve                                  a broker on 127.0.0.1:9092 with its data in ./data
  ringlog serve -c server.properties             the same, with the settings of a Kafka broker
  ringlog check-config server.properties         what would serve say to this file, on this machine?
  ringlog bench produce --html report.html       how fast is the broker on 127.0.0.1:9092, and at what price?
  ringlog tune --rate 20k --slo 'p99<=10ms'      which batch.size and linger.ms for this load?
  ringlog compare --html report.html             how does it stand beside Apache Kafka, on this machine?
  ringlog doctor --dir /srv/ringlog              is this host fit for a log broker, and what does it cost where not?

  ringlog topics create orders -p 12             a topic, on any Kafka broker
  seq 10 | ringlog produce orders                ten records from standard input
  ringlog consume orders -o start -e             and back

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 errors in the settings,
4 no broker there or no answer in time, 5 done in part,
6 a verdict against what was measured, 130 interrupted.
Kafka's tools work by their names: ringlog kafka-topics … (see install-shims).";

/// It could not be done.
const EXIT_FAILED: u8 = 1;
/// The call is wrong: clap's.
const EXIT_USAGE: u8 = 2;
/// The settings hold errors.
const EXIT_CONFIG: u8 = 3;
/// Nobody is there, or nobody answers in time.
const EXIT_UNREACHABLE: u8 = 4;
/// Some of it could not be done.
const EXIT_PARTIAL: u8 = 5;
/// Ctrl-C, as shells say it.
const EXIT_INTERRUPTED: u8 = 130;

/// A Kafka-compatible log broker: one executor per core, direct I/O, one binary.
#[derive(Debug, Parser)]
#[command(name = "ringlog", version, about, after_help = EXAMPLES, max_term_width = 100, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve_args::ServeArgs),
    CheckConfig(check_config::CheckConfigArgs),
    // Boxed: it has more flags than all others together.
    Bench(Box<bench_args::BenchArgs>),
    Produce(produce::ProduceArgs),
    Consume(consume::ConsumeArgs),
    Topics(topics::TopicsArgs),
    Groups(groups::GroupsArgs),
    Configs(configs::ConfigsArgs),
    Offsets(offsets::OffsetsArgs),
    Cluster(cluster::ClusterArgs),
    Tune(Box<tune::TuneArgs>),
    Compare(Box<compare::CompareArgs>),
    Doctor(doctor::DoctorArgs),
    /// Looks into the files of a log.
    #[command(subcommand, after_help = "Example:\n  ringlog log dump data/orders-0/00000000000000000000.log")]
    Log(LogCommand),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    InstallShims(install_shims::InstallShimsArgs),
    Version(version::VersionArgs),
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    Dump(dump::DumpArgs),
}

/// How a command ends when it does not end well.
#[derive(Debug)]
pub enum Failure {
    /// The settings hold errors: exit code 3.
    Config(Vec<Problem>),
    /// It could not be done: exit code 1, with one line that says what, where and what to do.
    Operation(anyhow::Error),
    /// The command has said why, and this is its exit code.
    Told(u8),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Operation(error.into())
    }
}

/// Runs the command the arguments name.
pub fn main() -> ExitCode {
    if let Some(code) = as_kafkas_tool() {
        return code;
    }
    // A wrong call ends here with exit code 2, help and version with 0.
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let ended = match arguments.command {
        Command::Serve(args) => {
            drop(out);
            return exit_code(serve::run(args));
        }
        Command::CheckConfig(args) => check_config::run(&args, &mut out),
        Command::Bench(args) => bench::run(*args, &mut out),
        Command::Produce(args) => produce::run(&args),
        Command::Consume(args) => consume::run(&args, &mut out),
        Command::Topics(args) => topics::run(&args, &mut out),
        Command::Groups(args) => groups::run(&args, &mut out),
        Command::Configs(args) => configs::run(&args, &mut out),
        Command::Offsets(args) => offsets::run(&args, &mut out),
        Command::Cluster(args) => cluster::run(&args, &mut out),
        Command::Tune(args) => tune::run(*args, &mut out),
        Command::Compare(args) => compare::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Log(LogCommand::Dump(args)) => dump::run(&args, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
        Command::Man(args) => man::run(&args, &mut out),
        Command::InstallShims(args) => install_shims::run(&args, &mut out),
        Command::Version(args) => version::run(&args, &mut out),
    };
    exit_code(ended.and_then(|()| Ok(out.flush()?)))
}

/// Runs one of Kafka's tools, where this was called by its name or it is the first word.
fn as_kafkas_tool() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let (called, rest) = words.split_first()?;
    if let Some(tool) = kafka::find(called) {
        return Some(kafka::main(tool, rest));
    }
    let (first, rest) = rest.split_first()?;
    Some(kafka::main(kafka::find(first)?, rest))
}

fn exit_code(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Operation(error)) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Operation(error)) => {
            // Nobody is left to tell when this fails.
            if let Some(ClientError::Settings(problems)) = error.downcast_ref() {
                _ = problems::write_problems(&mut io::stderr().lock(), problems::paint_stderr(), problems);
                return ExitCode::from(EXIT_CONFIG);
            }
            _ = problems::write_error(&mut io::stderr().lock(), problems::paint_stderr(), &format!("{error:#}"));
            ExitCode::from(connect::exit_code_of(&error))
        }
        Err(Failure::Told(code)) => ExitCode::from(code),
        Err(Failure::Config(problems)) => {
            _ = problems::write_problems(&mut io::stderr().lock(), problems::paint_stderr(), &problems);
            ExitCode::from(EXIT_CONFIG)
        }
    }
}

/// Milliseconds since 1970, as record timestamps count them.
fn unix_now_ms() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::try_from(since.as_millis()).unwrap_or(TimestampMs::MAX)
}

/// Waits, on the thread of a command: it has nothing else to do.
#[expect(clippy::disallowed_methods, reason = "the main thread of a command is no shard")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_contradict_nothing() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Arguments::command().get_subcommands_mut() {
            let name = command.get_name().to_owned();
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("ringlog {name}")), "{help}");
        }
    }
}
