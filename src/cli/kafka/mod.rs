//! Kafka's own tools by their names: the same flags, the same text, the same exit codes, on our client.
//!
//! Shell. Owns the list of tools, how one is found (argv[0] or the first word, with or without `.sh`), and how arguments that are wrong
//! are told. One file per tool; the reading of options is in `options`. Always: where a value is the same, the text on standard
//! output is byte for byte that of Kafka 4.4, and so is the exit code; stack traces and log lines are left out, and help pages are in
//! our words. Source: the tools of Kafka 4.4, asked (tests/conformance/shims.sh asks them again).

mod cluster_tool;
mod configs;
mod consumer_perf;
mod console_consumer;
mod console_producer;
mod consumer_groups;
mod dump_log;
mod e2e_latency;
mod exceptions;
mod get_offsets;
mod line_reader;
mod log_dirs;
mod message_formatter;
mod options;
mod perf;
mod producer_perf;
mod topics;
mod verifiable_consumer;
mod verifiable_producer;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use options::{Flag, Manner, Words, help, parse};

use super::connect::check_brokers;
use crate::client::admin::{Admin, BlockingAdmin};
use crate::client::{AdminSettings, ClientError, Io, Settings};
use crate::config::client_rows::{client_properties, client_row};

/// Whose output is spoken here.
const KAFKA_VERSION: &str = "4.4.0";

/// One of Kafka's tools.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// What it is for, in a sentence.
    about: &'static str,
    flags: &'static [Flag],
    manner: Manner,
    /// How arguments that cannot be read are told.
    wrong: Wrong,
    run: fn(&Words, &mut Desk<'_>) -> Result<(), Stop>,
}

/// How a tool tells of arguments it cannot read. The exit code is 1 in each case.
enum Wrong {
    /// The message.
    Bare,
    /// The message and the help page.
    WithHelp,
    /// The message behind these words.
    After(&'static str),
}

/// What a tool works with.
struct Desk<'d> {
    out: &'d mut dyn Write,
    /// The words of the call, for tools that repeat them.
    args: &'d [String],
}

/// Why a tool ends early.
#[derive(Debug)]
enum Stop {
    /// The arguments contradict each other: the message and the help page, exit code 1.
    Usage(String),
    /// A message on standard error, exit code 1.
    Said(String),
    /// Everything is said: this exit code.
    Exit(u8),
    /// Standard output cannot be written.
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Every tool.
const TOOLS: &[&Tool] = &[
    &cluster_tool::TOOL,
    &configs::TOOL,
    &console_consumer::TOOL,
    &console_producer::TOOL,
    &consumer_groups::TOOL,
    &consumer_perf::TOOL,
    &dump_log::TOOL,
    &e2e_latency::TOOL,
    &get_offsets::TOOL,
    &log_dirs::TOOL,
    &producer_perf::TOOL,
    &topics::TOOL,
    &verifiable_consumer::TOOL,
    &verifiable_producer::TOOL,
];

/// The tool of that name, or of that path's last part.
pub(super) fn find(word: &str) -> Option<&'static Tool> {
    let name = Path::new(word).file_name()?.to_str()?;
    let name = name.strip_suffix(".sh").unwrap_or(name);
    TOOLS.iter().find(|tool| tool.name == name).copied()
}

/// The names of all tools, in the order of the alphabet.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
    names.sort_unstable();
    names
}

/// Runs a tool with the words behind its name.
pub(super) fn main(tool: &Tool, args: &[String]) -> ExitCode {
    // Not locked: clients' threads write lines of their own.
    let mut out = BufWriter::new(io::stdout());
    let ended = run(tool, args, &mut out);
    let ended = ended.and_then(|()| Ok(out.flush()?));
    let mut stderr = io::stderr().lock();
    // Nobody is left to tell when writing to standard error fails.
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Exit(code)) => {
            _ = out.flush();
            ExitCode::from(code)
        }
        Err(Stop::Said(message)) => {
            _ = out.flush();
            _ = writeln!(stderr, "{message}");
            ExitCode::FAILURE
        }
        Err(Stop::Usage(message)) => {
            _ = out.flush();
            match tool.manner {
                // The page without its first line, which says what the tool is for.
                Manner::Plain => {
                    let page = help(tool.about, tool.flags);
                    _ = write!(stderr, "{message}\n{}", page.split_once('\n').map_or("", |(_, options)| options));
                }
                Manner::Usage => {
                    let name = usage_name(tool);
                    _ = writeln!(stderr, "usage: {name} [--help] [options]\n{name}: error: {message}");
                }
            }
            ExitCode::FAILURE
        }
        Err(Stop::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Stop::Io(error)) => {
            _ = writeln!(stderr, "standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the tool calls itself in messages.
fn usage_name(tool: &Tool) -> &str {
    match tool.name.strip_prefix("kafka-") {
        Some(short) if short.starts_with("verifiable-") => short,
        _ => tool.name,
    }
}

fn run(tool: &Tool, args: &[String], out: &mut dyn Write) -> Result<(), Stop> {
    if args.is_empty() {
        return match tool.manner {
            Manner::Plain => Err(Stop::Said(help(tool.about, tool.flags).trim_end().to_owned())),
            Manner::Usage => {
                write!(out, "usage: {} [--help] [options]\n\n{}", usage_name(tool), help(tool.about, tool.flags))?;
                Ok(())
            }
        };
    }
    let words = match parse(tool.flags, tool.manner, args) {
        Ok(words) => words,
        Err(message) => {
            return Err(match (tool.manner, &tool.wrong) {
                (Manner::Usage, _) | (_, Wrong::WithHelp) => Stop::Usage(message),
                (_, Wrong::Bare) => Stop::Said(message),
                (_, Wrong::After(words)) => Stop::Said(format!("{words}{message}")),
            });
        }
    };
    if words.has("help") {
        let page = help(tool.about, tool.flags);
        return match tool.manner {
            Manner::Plain => Err(Stop::Said(page.trim_end().to_owned())),
            Manner::Usage => {
                write!(out, "usage: {} [--help] [options]\n\n{page}", usage_name(tool))?;
                Err(Stop::Exit(1))
            }
        };
    }
    if words.has("version") {
        writeln!(out, "{KAFKA_VERSION} (Ringlog {})", env!("CARGO_PKG_VERSION"))?;
        return Ok(());
    }
    (tool.run)(&words, &mut Desk { out, args })
}

/// Where a tool connects, and with which settings.
struct Access<'a> {
    bootstrap: &'a str,
    /// A properties file.
    file: Option<&'a str>,
    /// Stronger than the file.
    properties: Vec<(String, String)>,
}

impl<'a> Access<'a> {
    fn new(bootstrap: &'a str, file: Option<&'a str>) -> Self {
        Self { bootstrap, file, properties: Vec::new() }
    }

    /// Typed settings; `defaults` are weaker than what was given. As Kafka does, unknown settings are passed over with a word.
    fn settings<S: Settings>(&self, defaults: &[(&str, String)]) -> Result<S, ClientError> {
        let mut builder = S::builder();
        for (key, value) in defaults {
            builder = builder.set_at(key, value, "default");
        }
        let mut given = Vec::new();
        if let Some(file) = self.file {
            let text = std::fs::read(file).map_err(|error| ClientError::Misuse(unread(file, &error).into()))?;
            let entries = client_properties(&text)
                .map_err(|(line, why)| ClientError::Misuse(format!("{file}:{}: {why}", line.unwrap_or(1)).into()))?;
            given.extend(entries.into_iter().map(|entry| (entry.key, entry.value, file)));
        }
        given.extend(self.properties.iter().map(|(key, value)| (key.clone(), value.clone(), "property")));
        for (key, value, place) in given {
            let known = client_row(&key).is_some()
                || !matches!(
                    crate::config::client_rows::meaning(S::ROLE, &key, &value),
                    crate::config::client_rows::Meaning::Wrong { .. }
                );
            if known {
                builder = builder.set_at(&key, value, place);
            } else {
                eprintln!("WARN These configurations '[{key}]' were supplied but are not used yet.");
            }
        }
        if !self.bootstrap.is_empty() {
            builder = builder.set_at("bootstrap.servers", self.bootstrap, "--bootstrap-server");
        }
        builder.build()
    }

    /// An admin client whose cluster answers. The error is what Kafka's tools say, in one line or two.
    fn admin(&self, io: &Io) -> Result<BlockingAdmin, String> {
        if let Some(file) = self.file
            && let Err(error) = std::fs::metadata(file)
        {
            return Err(unread(file, &error));
        }
        check_brokers(self.bootstrap).map_err(|wrong| {
            format!(
                "Failed to create new KafkaAdminClient\n\
                 org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient\n\
                 Caused by: org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: {wrong}"
            )
        })?;
        let settings: AdminSettings = self.settings(&[]).map_err(|error| error.to_string())?;
        let admin = Admin::on(io, settings).blocking();
        admin.reach().map_err(|error| error.to_string())?;
        Ok(admin)
    }
}

/// Settings that are wrong, as Java says it: the first of them.
fn config_exception(error: &ClientError) -> String {
    match error {
        ClientError::Settings(problems) => match problems.first() {
            Some(problem) => format!("org.apache.kafka.common.config.ConfigException: {}", problem.message),
            None => error.to_string(),
        },
        other => other.to_string(),
    }
}

/// `k=v` words; without `=` the value is empty.
fn key_values<'w>(words: impl Iterator<Item = &'w str>) -> Vec<(String, String)> {
    words
        .map(|word| word.split_once('=').unwrap_or((word, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The entries of a properties file.
fn properties(file: &str) -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read(file).map_err(|error| unread(file, &error))?;
    let entries = client_properties(&text).map_err(|(line, why)| format!("{file}:{}: {why}", line.unwrap_or(1)))?;
    Ok(entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

/// Says that an option has a new name, behind `words`; both together are refused.
fn deprecated(words: &Words, old: &str, new: &str, says: &str, desk: &mut Desk<'_>) -> Result<(), Stop> {
    if !words.has(old) {
        return Ok(());
    }
    if words.has(new) {
        return Err(Stop::Usage(format!("Options --{new} and --{old} cannot be specified together.")));
    }
    writeln!(desk.out, "{says} deprecated and will be removed in a future version. Use --{new} instead.")?;
    Ok(())
}

/// A file that cannot be read, as Java says it.
fn unread(file: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{file}\njava.nio.file.NoSuchFileException: {file}"),
        _ => format!("{file}: {error}"),
    }
}

/// The client's thread. Errors: the system gives none.
fn client_thread() -> Result<Io, Stop> {
    Ok(Io::start("client")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tool's own check makes of a command line, or the words it refuses it with.
    pub(super) fn checked<T>(
        tool: &Tool,
        line: &str,
        check: impl FnOnce(&Words, &mut Desk<'_>) -> Result<T, Stop>,
    ) -> Result<T, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = parse(tool.flags, tool.manner, &args)?;
        let mut out = Vec::new();
        check(&words, &mut Desk { out: &mut out, args: &args }).map_err(|stop| match stop {
            Stop::Usage(why) | Stop::Said(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn tools_are_found_by_name_and_by_path() {
        assert_eq!(find("kafka-topics").map(|tool| tool.name), Some("kafka-topics"));
        assert_eq!(find("/usr/bin/kafka-topics.sh").map(|tool| tool.name), Some("kafka-topics"));
        assert!(find("kafka-nothing").is_none() && find("topics").is_none());
    }

    #[test]
    fn every_tool_has_help_and_unique_flags() {
        for tool in TOOLS {
            let mut names: Vec<_> = tool.flags.iter().map(|flag| flag.name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", tool.name);
            assert!(names.contains(&"help"), "{}", tool.name);
            assert!(help(tool.about, tool.flags).contains("--help"), "{}", tool.name);
        }
    }
}
