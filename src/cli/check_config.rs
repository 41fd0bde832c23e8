//! `ringlog check-config`: what `serve` would say to a settings file, on this machine, without starting anything.
//!
//! Shell. Owns the list of things that are looked at and how the findings are shown. Does not own the judgements: they are those
//! of the rooms `serve` uses. Always: nothing it does stays. The JSON form is `version` 1: names may be added, not changed.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::problems::{count, paint_stdout, word, write_problems};
use super::serve_args::{key_value, sources};
use super::{EXIT_CONFIG, EXIT_FAILED, Failure};
use crate::config::{BrokerSettings, Listener, Problem, load};
use crate::controller::data_dirs;
use crate::rt::executor;

const EXAMPLES: &str = "\
Examples:
  ringlog check-config server.properties
  ringlog check-config server.properties --override log.dirs=/srv/data
  ringlog check-config server.properties -o json | jq .problems

Exit codes: 0 a broker would start, 1 this machine would not let it, 3 errors in the settings.";

/// Checks a settings file and this machine, without starting a broker.
///
/// All problems of the file come at once, each with its line. Then the machine is asked: io_uring and limits, the data
/// directories (writable, direct I/O), and whether the ports are free.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckConfigArgs {
    /// Settings, in the form and with the names of Kafka's server.properties.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// One setting, stronger than the file and the environment; may be given again.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
    overrides: Vec<(String, String)>,

    /// How the findings are written.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// One thing of the machine that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: String,
    ok: bool,
    message: String,
}

impl Finding {
    fn good(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self { what: what.into(), ok: true, message: message.into() }
    }

    fn bad(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self { what: what.into(), ok: false, message: message.into() }
    }
}

pub(super) fn run(args: &CheckConfigArgs, out: &mut impl Write) -> Result<(), Failure> {
    let loaded = load(&sources(Some(args.file.clone()), &args.overrides));
    let mut findings = look_at_host();
    let (settings, problems) = match &loaded {
        Ok((settings, problems)) => {
            findings.extend(look_at_dirs(settings));
            findings.extend(look_at_ports(settings));
            (Some(settings), problems)
        }
        Err(problems) => (None, problems),
    };
    match args.output {
        OutputFormat::Text => write_text(out, args, settings, problems, &findings)?,
        OutputFormat::Json => write_json(out, args, settings, problems, &findings)?,
    }
    if settings.is_none() {
        return Err(Failure::Told(EXIT_CONFIG));
    }
    if findings.iter().all(|finding| finding.ok) { Ok(()) } else { Err(Failure::Told(EXIT_FAILED)) }
}

fn look_at_host() -> Vec<Finding> {
    match executor::probe_host() {
        Ok(warnings) if warnings.is_empty() => vec![Finding::good("io_uring and limits", "fit")],
        Ok(warnings) => warnings.into_iter().map(|warning| Finding::good("io_uring and limits", warning)).collect(),
        Err(error) => vec![Finding::bad("io_uring and limits", error.to_string())],
    }
}

fn look_at_dirs(settings: &BrokerSettings) -> Vec<Finding> {
    let look = |dir: &PathBuf| {
        let what = format!("data directory {}", dir.display());
        match data_dirs::probe(dir) {
            Ok(notes) if notes.is_empty() => Finding::good(what, "writable, with direct I/O"),
            Ok(notes) => Finding::good(what, notes.join("; ")),
            Err(error) => Finding::bad(what, error.to_string()),
        }
    };
    settings.log_dirs.iter().map(look).collect()
}

fn look_at_ports(settings: &BrokerSettings) -> Vec<Finding> {
    let Listener { host, port, .. } = &settings.listener;
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let mut findings = vec![match (host, *port).to_socket_addrs() {
        Ok(addresses) => look_at_port(format!("listener {}", settings.listener), &addresses.collect::<Vec<_>>()),
        Err(error) => {
            Finding::bad(format!("listener {}", settings.listener), format!("{host} is no address here: {error}"))
        }
    }];
    if let Some(address) = settings.admin_listener {
        findings.push(look_at_port(format!("admin.listener {address}"), &[address]));
    }
    findings
}

fn look_at_port(what: String, addresses: &[SocketAddr]) -> Finding {
    match TcpListener::bind(addresses) {
        Ok(_) => Finding::good(what, "free"),
        Err(error) => Finding::bad(what, format!("cannot be bound: {error}; stop who uses it, or choose another port")),
    }
}

fn write_text(
    out: &mut impl Write,
    args: &CheckConfigArgs,
    settings: Option<&BrokerSettings>,
    problems: &[Problem],
    findings: &[Finding],
) -> std::io::Result<()> {
    writeln!(out, "{}", args.file.display())?;
    if problems.is_empty() {
        writeln!(out, "{}", count(problems))?;
    } else {
        write_problems(out, paint_stdout(), problems)?;
    }
    writeln!(out, "\nthis machine")?;
    for Finding { what, ok, message } in findings {
        writeln!(out, "{:<5} {what}: {message}", if *ok { "ok" } else { "fail" })?;
    }
    if settings.is_none() {
        writeln!(out, "data directories and ports were not looked at: the settings have errors")?;
    }
    Ok(())
}

/// The JSON form.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    file: String,
    ok: bool,
    problems: Vec<ReportedProblem<'a>>,
    host: &'a [Finding],
    /// What was given, as plain values; null when the settings have errors.
    settings: Option<&'a std::collections::BTreeMap<String, String>>,
}

#[derive(Serialize)]
struct ReportedProblem<'a> {
    severity: &'static str,
    place: &'a str,
    message: &'a str,
    help: Option<&'a str>,
}

fn write_json(
    out: &mut impl Write,
    args: &CheckConfigArgs,
    settings: Option<&BrokerSettings>,
    problems: &[Problem],
    findings: &[Finding],
) -> Result<(), Failure> {
    let report = Report {
        version: 1,
        file: args.file.display().to_string(),
        ok: settings.is_some() && findings.iter().all(|finding| finding.ok),
        problems: problems
            .iter()
            .map(|problem| ReportedProblem {
                severity: word(problem.severity),
                place: &problem.place,
                message: &problem.message,
                help: problem.help.as_deref(),
            })
            .collect(),
        host: findings,
        settings: settings.map(|settings| &settings.given),
    };
    let text = serde_json::to_string_pretty(&report)?;
    Ok(writeln!(out, "{text}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a file of this text, whose DIR is a fresh directory; the exit and the output.
    fn check(text: &str, output: OutputFormat) -> (Result<(), Failure>, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.properties");
        std::fs::write(&file, text.replace("DIR", &dir.path().display().to_string())).unwrap();
        let mut out = Vec::new();
        let ended = run(&CheckConfigArgs { file, overrides: Vec::new(), output }, &mut out);
        (ended, String::from_utf8(out).unwrap())
    }

    const GOOD: &str = "log.dirs=DIR/data\nlisteners=PLAINTEXT://127.0.0.1:0\nadmin.listener=127.0.0.1:0\n";

    #[test]
    fn a_good_file_is_good() {
        let (ended, shown) = check(GOOD, OutputFormat::Text);
        assert!(ended.is_ok(), "{shown}");
        assert!(shown.contains("no problems\n") && shown.contains("/data will be made"), "{shown}");
        assert!(shown.contains("ok    listener PLAINTEXT://127.0.0.1:0: free"), "{shown}");
    }

    #[test]
    fn a_taken_port_is_a_failure_of_the_machine() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!("log.dirs=DIR\nadmin.listener=off\nlisteners=PLAINTEXT://{}\n", taken.local_addr().unwrap());
        let (ended, shown) = check(&text, OutputFormat::Text);
        assert!(matches!(ended, Err(Failure::Told(EXIT_FAILED))), "{shown}");
        assert!(shown.contains("fail  listener PLAINTEXT://127.0.0.1:"), "{shown}");
    }

    #[test]
    fn errors_of_the_file_are_shown_and_counted() {
        let (ended, shown) = check("node.idd=1\nnum.partitions=x\n", OutputFormat::Text);
        assert!(matches!(ended, Err(Failure::Told(EXIT_CONFIG))), "{shown}");
        assert!(
            shown.contains("error: unknown key node.idd\n") && shown.contains("help: did you mean node.id?\n"),
            "{shown}"
        );
        assert!(shown.contains("\n2 errors\n"), "{shown}");
    }

    #[test]
    fn programs_get_json() {
        let (_, shown) = check(&format!("{GOOD}num.io.threads=8\n"), OutputFormat::Json);
        let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&report["version"], &report["ok"]), (&1.into(), &true.into()));
        assert_eq!(report["problems"][0]["severity"], "note");
        assert_eq!(report["settings"]["num.io.threads"], "8");
    }
}
