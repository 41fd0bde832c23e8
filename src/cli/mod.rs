//! The commands: one file each, and what they share with the world outside.
//!
//! Shell. Owns the arguments, the exit codes and how failures are shown. Does not own what a command does. Always: 0 is done, 1 is
//! failed, 2 is a wrong call, 3 is a settings file with errors in it; a reader that went away (broken pipe) is no failure and no
//! message. Source: rustc's messages.

mod bench;
mod bench_args;
mod bench_show;
mod check_config;
mod compare;
mod completions;
mod doctor;
mod dump;
mod problems;
pub mod serve;
pub mod serve_args;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Problem;

const EXAMPLES: &str = "\
Examples:
  ringlog serve                                  a broker on 127.0.0.1:9092 with its data in ./data
  ringlog serve -c server.properties             the same, with the settings of a Kafka broker
  ringlog check-config server.properties         what would serve say to this file, on this machine?
  ringlog bench produce --html report.html       how fast is the broker on 127.0.0.1:9092, and at what price?
  ringlog compare --html report.html             how does it stand beside Apache Kafka, on this machine?
  ringlog doctor --dir /srv/ringlog              is this host fit for a log broker, and what does it cost where not?

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 errors in the settings.";

/// It could not be done.
const EXIT_FAILED: u8 = 1;
/// The settings hold errors. 2, a wrong call, is clap's.
const EXIT_CONFIG: u8 = 3;

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
    Compare(Box<compare::CompareArgs>),
    Doctor(doctor::DoctorArgs),
    /// Looks into the files of a log.
    #[command(subcommand, after_help = "Example:\n  ringlog log dump data/orders-0/00000000000000000000.log")]
    Log(LogCommand),
    Completions(completions::CompletionsArgs),
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
        Command::Compare(args) => compare::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Log(LogCommand::Dump(args)) => dump::run(&args, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
        Command::Version(args) => version::run(&args, &mut out),
    };
    exit_code(ended.and_then(|()| Ok(out.flush()?)))
}

fn exit_code(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Operation(error)) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Operation(error)) => {
            // Nobody is left to tell when this fails.
            _ = problems::write_error(&mut io::stderr().lock(), problems::paint_stderr(), &format!("{error:#}"));
            ExitCode::from(EXIT_FAILED)
        }
        Err(Failure::Told(code)) => ExitCode::from(code),
        Err(Failure::Config(problems)) => {
            _ = problems::write_problems(&mut io::stderr().lock(), problems::paint_stderr(), &problems);
            ExitCode::from(EXIT_CONFIG)
        }
    }
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
