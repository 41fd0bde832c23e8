//! `ringlog compare` and `ringlog doctor` as scripts see them: two brokers of ours, tiny loads. What is held here is structure, not
//! speed: pairs, promises, journal, reports, and that nothing is left running or lying about.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn ringlog(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.args(arguments).current_dir(directory);
    // The settings of whoever runs the tests are not ours.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KAFKA_") || name == "CLUSTER_ID" || name == "RINGLOG_LOG" {
            command.env_remove(name);
        }
    }
    command
}

fn run(arguments: &[&str], directory: &Path) -> (i32, String, String) {
    let Output { status, stdout, stderr } = ringlog(arguments, directory).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("it speaks UTF-8");
    (status.code().expect("it exits"), text(stdout), text(stderr))
}

/// A place on a disk, where direct I/O works.
fn place() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("compare-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

const TWO: [&str; 4] =
    ["--target", "a=ringlog,override=engine.shards=1", "--target", "b=ringlog,override=engine.shards=1"];
const TINY: [&str; 6] = ["--duration", "300ms", "--warm", "200ms", "--pairs", "2"];

fn compare<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["compare"], &TWO[..], &TINY[..], more].concat()
}

#[test]
fn two_builds_are_compared_pair_by_pair_and_nothing_is_left() {
    let place = place();
    let words = compare(&["--workload", "W4,W8,W10@25%,W17", "--html", "report.html", "--out", "compare.json"]);
    let (code, out, err) = run(&words, place.path());
    assert_eq!(code, 0, "{err}");
    for part in
        ["W4 tiny requests", "a: written; b: written.", "a: flushed; b: flushed.", "too few pairs", "W17 cold start"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    let text = std::fs::read_to_string(place.path().join("compare.json")).expect("the report");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        (&report["schema_version"], &report["pairs"], &report["interrupted"]),
        (&1.into(), &2.into(), &false.into())
    );
    assert_eq!(report["targets"][0]["software"], "ringlog");
    let cells = report["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell["state"], "valid", "{cell}");
        assert_eq!(cell["measurements"].as_array().map(Vec::len), Some(4), "{}", cell["key"]);
        let firsts = cell["measurements"].as_array().unwrap().iter().filter(|one| one["first"] == true).count();
        assert_eq!(firsts, 2, "one of each pair");
        assert!(cell["findings"][0]["ratio"]["value"].as_f64().is_some_and(|ratio| ratio > 0.0), "{cell}");
        assert!(cell["commands"][0].as_str().is_some_and(|command| command.contains("ringlog")), "{cell}");
    }
    let page = std::fs::read_to_string(place.path().join("report.html")).expect("the page");
    assert!(page.contains("a against b") && page.contains("id=\"summary\"") && !page.contains("<script"));
    let mut left: Vec<String> = std::fs::read_dir(place.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["compare.json", "report.html", "ringlog-compare.jsonl"],
        "brokers and their directories are gone"
    );

    // The recorded run stands for a target; the other one is measured now.
    let words = [
        "compare",
        "--target",
        "a=ringlog,override=engine.shards=1",
        "--target",
        "b=@compare.json",
        "--journal",
        "second.jsonl",
        "--workload",
        "W4",
    ];
    let (code, out, err) = run(&[&words[..], &TINY[..], &["-o", "json"]].concat(), place.path());
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("it is JSON");
    assert!(report["targets"][1]["recorded"].as_str().is_some_and(|file| file.contains("compare.json")), "{out}");
    assert_eq!(report["cells"][0]["measurements"].as_array().map(Vec::len), Some(4));
    assert!(report["notes"].to_string().contains("recorded"));
}

#[test]
fn an_interrupted_comparison_reports_what_it_has_and_can_be_gone_on_with() {
    let place = place();
    let journal = place.path().join("ringlog-compare.jsonl");
    let words = compare(&["--workload", "W4,W8", "--out", "compare.json"]);
    let child = ringlog(&words, place.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let turns = || {
        std::fs::read_to_string(&journal)
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with("{\"turn\""))
            .count()
    };
    let patience = Instant::now() + Duration::from_secs(120);
    while turns() < 2 {
        assert!(Instant::now() < patience, "it measures nothing");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("--resume"), "{err}");
    let measured = turns();
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path().join("compare.json")).unwrap()).unwrap();
    assert_eq!(report["interrupted"], true);

    let (code, _, err) = run(&words, place.path());
    assert_eq!(code, 1, "an unfinished journal is not overwritten");
    assert!(err.contains("--fresh"), "{err}");
    let (code, _, err) = run(&[&words[..], &["--seed", "9", "--resume"]].concat(), place.path());
    assert_eq!(code, 1, "another comparison does not go on with it");
    assert!(err.contains("seed were 1, not 9"), "{err}");
    let (code, _, err) = run(&[&words[..], &["--resume"]].concat(), place.path());
    assert_eq!(code, 0, "{err}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path().join("compare.json")).unwrap()).unwrap();
    assert_eq!(report["interrupted"], false);
    assert!(turns() >= 8 && turns() - measured < 8, "what was measured was not measured again");
}

#[test]
fn a_quiet_load_is_measured_alone_and_beside_noise_and_a_soak_deletes_what_is_old() {
    let place = place();
    let more = ["--preset", "full", "--workload", "W18,W21", "--soak", "8s", "--out", "compare.json"];
    let (code, out, err) = run(&compare(&[&more[..], &["--html", "report.html"]].concat()), place.path());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("W21 noisy neighbour") && out.contains("W18 soak with deletion"), "{out}");
    assert!(err.contains("pair 1 of 1: a under W18") || err.contains("W18          a"), "{err}");
    let text = std::fs::read_to_string(place.path().join("compare.json")).expect("the report");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    let cell = |key: &str| {
        let cells = report["cells"].as_array().expect("cells");
        cells.iter().find(|cell| cell["key"] == key).unwrap_or_else(|| panic!("no {key}: {out}"))
    };
    let turns = |key: &str| cell(key)["measurements"].as_array().expect("turns").clone();
    let positive = |one: &Value, number: &str| {
        one["numbers"][number].as_f64().filter(|value| *value > 0.0).unwrap_or_else(|| panic!("no {number}: {one}"))
    };
    assert_eq!((turns("W21").len(), turns("W18").len()), (4, 2), "two pairs, and one of the soak");
    for one in turns("W21") {
        let inflation = positive(&one, "p99_us") / positive(&one, "p99_alone_us");
        assert!((positive(&one, "p99_beside_noise_over_alone") - inflation).abs() < 1e-9, "{one}");
        assert!(positive(&one, "noise_bytes_per_second") > 1e6, "{one}");
    }
    let command = cell("W21")["commands"][0].as_str().expect("how").to_owned();
    assert!(command.contains("--prebuilt") && command.contains(" &\nringlog bench e2e"), "{command}");
    for one in turns("W18") {
        assert!(one["course"].as_array().is_some_and(|course| course.len() >= 6), "{one}");
        for number in ["p99_end_over_beginning", "p99_after_deletion_over_before", "rss_end_over_beginning"] {
            positive(&one, number);
        }
    }
    assert!(cell("W18")["commands"][0].as_str().is_some_and(|command| command.contains("retention.bytes=")));
    assert!(!report["not_covered"].to_string().contains("W18"), "it was covered");
    let page = std::fs::read_to_string(place.path().join("report.html")).expect("the page");
    assert!(page.contains("id=\"soak-latency\"") && page.contains("id=\"soak-memory\""));
}

#[test]
fn what_cannot_be_compared_is_told_in_one_line() {
    let place = place();
    for (arguments, code, part) in [
        (&["compare", "--resume"][..], 1, "--resume"),
        (&["compare", "--target", "nonsense"], 2, "no name"),
        (
            &["compare", "--target", "a=127.0.0.1:1", "--target", "b=127.0.0.1:2", "--workload", "W17"],
            2,
            "nothing is left",
        ),
        (&["compare", "--workload", "W99"], 2, "W99"),
        (&["compare", "--workload", "W18"], 2, "--soak 2h"),
        (&["compare", "--target", "a=ringlog:/nowhere/ringlog", "--target", "b=127.0.0.1:1"], 1, "/nowhere/ringlog"),
        (&["compare", "--target", "k=kafka:/nowhere/kafka"], 1, "kafka"),
        (&["compare", "--target", "k=@missing.json"], 1, "missing.json"),
        (&["compare", "--html", "no/such/directory/report.html"], 1, "cannot write"),
        (&["compare", "--dir", "/proc/nothing"], 1, "--dir"),
    ] {
        let (found, out, err) = run(arguments, place.path());
        assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {err}");
        assert!(
            err.lines().any(|line| line.starts_with("error:") && line.contains(part)) || err.contains(part),
            "{arguments:?}: {err}"
        );
    }
}

#[test]
fn without_java_there_is_one_line_that_says_what_to_install() {
    let place = place();
    let mut command = ringlog(&["compare", "--kafka", "auto"], place.path());
    command.env("PATH", place.path()).env("RINGLOG_CACHE", place.path().join("cache"));
    let output = command.output().expect("the binary runs");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{err}");
    let line = err.lines().find(|line| line.starts_with("error:")).unwrap_or_else(|| panic!("{err}"));
    assert!(line.contains("java") && line.contains("install") && line.contains("@RECORDED.json"), "{line}");
}

#[test]
fn the_doctor_only_looks_and_speaks_to_people_and_programs() {
    let place = place();
    let (code, out, err) = run(&["doctor", "--time", "300ms"], place.path());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("flush") && out.contains("looked at:"), "{out}");
    let (code, out, err) = run(&["doctor", "--no-measure", "-o", "json"], place.path());
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(report["schema_version"], 1);
    assert!(
        report["findings"]
            .as_array()
            .is_some_and(|findings| findings.iter().all(|finding| finding["cost"].is_string()))
    );
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let (code, _, err) = run(&["doctor", "--dir", "/nowhere"], place.path());
    assert_eq!(code, 1);
    assert!(err.contains("/nowhere"), "{err}");
}
