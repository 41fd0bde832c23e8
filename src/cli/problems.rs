//! How problems look on a terminal.
//!
//! Shell: asks whether there is a terminal. Owns the three lines of a problem and their colours. Source: rustc's messages;
//! no-color.org.

use std::io::{self, IsTerminal, Write};

use crate::config::{Problem, Severity};

/// Whether to colour what goes to standard error.
pub(super) fn paint_stderr() -> bool {
    io::stderr().is_terminal() && colours_are_welcome()
}

/// Whether to colour what goes to standard output.
pub(super) fn paint_stdout() -> bool {
    io::stdout().is_terminal() && colours_are_welcome()
}

fn colours_are_welcome() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// One line that begins with `error:`.
pub(super) fn write_error(out: &mut impl Write, paint: bool, message: &str) -> io::Result<()> {
    let (on, off) = mark(paint, Severity::Error);
    writeln!(out, "{on}error{off}: {message}")
}

/// Problems one after the other, the gravest first, and a last line that counts them.
pub(super) fn write_problems(out: &mut impl Write, paint: bool, problems: &[Problem]) -> io::Result<()> {
    for severity in [Severity::Error, Severity::Warning, Severity::Note] {
        for problem in problems.iter().filter(|problem| problem.severity == severity) {
            let (on, off) = mark(paint, severity);
            writeln!(out, "{on}{}{off}: {}", word(severity), problem.message)?;
            writeln!(out, "  --> {}", problem.place)?;
            if let Some(help) = &problem.help {
                writeln!(out, "  help: {help}")?;
            }
        }
    }
    writeln!(out, "{}", count(problems))
}

/// `2 errors, 1 warning`, or that there are none.
pub(super) fn count(problems: &[Problem]) -> String {
    let parts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(|severity| {
            let count = problems.iter().filter(|problem| problem.severity == severity).count();
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{plural}", word(severity)))
        })
        .collect();
    if parts.is_empty() { "no problems".to_owned() } else { parts.join(", ") }
}

/// The word for a severity.
pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn mark(paint: bool, severity: Severity) -> (&'static str, &'static str) {
    match (paint, severity) {
        (false, _) => ("", ""),
        (true, Severity::Error) => ("\x1b[1;31m", "\x1b[0m"),
        (true, Severity::Warning) => ("\x1b[1;33m", "\x1b[0m"),
        (true, Severity::Note) => ("\x1b[1;36m", "\x1b[0m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(severity: Severity, message: &str, help: Option<&str>) -> Problem {
        let (message, help) = (message.to_owned(), help.map(str::to_owned));
        Problem { severity, place: "server.properties:12".to_owned(), message, help }
    }

    #[test]
    fn problems_are_shown_gravest_first_and_counted() {
        let problems = [
            problem(Severity::Note, "num.io.threads has no effect here", None),
            problem(Severity::Error, "unknown key log.retention.hour", Some("did you mean log.retention.hours?")),
        ];
        let mut out = Vec::new();
        write_problems(&mut out, false, &problems).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "error: unknown key log.retention.hour\n  --> server.properties:12\n  help: did you mean log.retention.hours?\n\
             note: num.io.threads has no effect here\n  --> server.properties:12\n1 error, 1 note\n"
        );
        assert_eq!(count(&[]), "no problems");
    }
}
