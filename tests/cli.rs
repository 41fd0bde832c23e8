//! The binary as scripts see it: exit codes, and what is said where.

use std::process::{Command, Output, Stdio};

fn ringlog(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.args(arguments);
    // The settings of whoever runs the tests are not ours.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KAFKA_") || name == "CLUSTER_ID" || name == "RINGLOG_LOG" {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = ringlog(arguments).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("it speaks UTF-8");
    (status.code().expect("it exits"), text(stdout), text(stderr))
}

#[test]
fn a_wrong_call_exits_with_2_and_says_so_on_stderr() {
    for arguments in [&[][..], &["srve"], &["serve", "--override", "nonsense"], &["check-config"]] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains("--help") || err.contains("Usage:"), "{err}");
    }
}

#[test]
fn help_and_version_exit_with_0_on_stdout() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["version"], &["--version"]] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
        assert!(out.contains("ringlog"), "{out}");
    }
}

#[test]
fn errors_in_the_settings_exit_with_3_and_all_are_told() {
    let dir = tempfile::tempdir().expect("a directory for the file");
    let file = dir.path().join("server.properties");
    std::fs::write(&file, "num.partitions=0\nlog.retention.hour=1\n").expect("a settings file");
    let file = file.to_str().expect("a path in UTF-8");
    let expected = format!(
        "error: unknown key log.retention.hour\n  --> {file}:2\n  help: did you mean log.retention.hours?\n\
         error: Invalid value 0 for configuration num.partitions: Value must be at least 1\n  --> {file}:1\n  \
         help: How many partitions a topic gets when its creator does not say.\n2 errors\n"
    );
    let (code, out, err) = run(&["serve", "-c", file]);
    assert_eq!((code, out.as_str(), err.as_str()), (3, "", expected.as_str()));
    let (code, out, err) = run(&["check-config", file]);
    assert_eq!((code, err.as_str()), (3, ""));
    assert!(out.contains(&expected), "{out}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended =
        ringlog(&["completions", "bash"]).stdout(writer).stderr(Stdio::piped()).output().expect("the binary runs");
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}
