//! The seconds of runs as comma-separated values, for spreadsheets and scripts.
//!
//! Pure. Owns the columns, whose names carry their unit, and the quoting. Always: one header line, then a line a second of each
//! run, in the order given; a cell is empty where nothing was measured; numbers are plain digits, without
//! grouping or exponents. Source: RFC 4180, with line feeds alone as line ends.

use std::fmt::Write as _;

use super::report::Run;

/// Names are those of `series` in `run.json`, with a unit where it has none there.
const HEADER: &str = "run,second,measured,offered_records,sent_records,acked_records,bytes,error_records,consumed_records,\
                      backlog_records,p50_us,p99_us,p999_us,max_us\n";

/// Every second of these runs, warm-up and drain included (`measured` is false there). `second` is counted from the run's begin;
/// `bytes` are those acknowledged (in `consume`: read); latency is the response time, or end to end where there is no other.
pub fn series(runs: &[Run]) -> String {
    let mut out = HEADER.to_owned();
    for run in runs {
        let name = match run.label.as_str() {
            "" => quoted(&format!("{} {}", run.kind, run.started_at)),
            label => quoted(label),
        };
        for second in &run.series {
            let offered = second.offered.map_or_else(String::new, |offered| offered.to_string());
            _ = write!(
                out,
                "{name},{},{},{offered},{},{},{},{},{},{},",
                second.t,
                second.measured,
                second.sent,
                second.acked,
                second.bytes,
                second.errors,
                second.consumed,
                second.backlog
            );
            // Nothing was answered in such a second: it has no latency, not one of zero.
            _ = match second.max_us {
                0 => writeln!(out, ",,,"),
                max => writeln!(out, "{},{},{},{max}", second.p50_us, second.p99_us, second.p999_us),
            };
        }
    }
    out
}

/// Between quotation marks, those within doubled.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Second;

    fn run(label: &str, series: Vec<Second>) -> Run {
        Run {
            label: label.to_owned(),
            kind: "produce".to_owned(),
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            series,
            ..Run::default()
        }
    }

    #[test]
    fn a_line_a_second_of_each_run_has_the_numbers_of_its_series() {
        let answered = Second {
            t: 7,
            measured: true,
            offered: Some(1_500_000.5),
            sent: 1_234_567,
            acked: 1_234_000,
            bytes: 1_263_616_000,
            errors: 2,
            consumed: 3,
            backlog: 565,
            p50_us: 900,
            p99_us: 5000,
            p999_us: 9000,
            max_us: 20_000,
            ..Second::default()
        };
        let text = series(&[run("new", vec![Second::default(), answered]), run("", vec![Second::default()])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                HEADER.trim_end(),
                "\"new\",0,false,,0,0,0,0,0,0,,,,",
                "\"new\",7,true,1500000.5,1234567,1234000,1263616000,2,3,565,900,5000,9000,20000",
                "\"produce 2026-01-02T03:04:05Z\",0,false,,0,0,0,0,0,0,,,,",
            ]
        );
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn every_line_has_as_many_cells_as_the_header() {
        let text =
            series(&[run("a", vec![Second::default(), Second { max_us: 5, offered: Some(1.0), ..Second::default() }])]);
        let cells: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(cells, [14, 14, 14]);
        assert_eq!(series(&[]), HEADER);
    }

    #[test]
    fn names_keep_their_commas_marks_and_line_ends() {
        let text = series(&[run("16 KiB, \"quick\"\nand dirty", vec![Second::default()])]);
        assert!(text.contains("\n\"16 KiB, \"\"quick\"\"\nand dirty\",0,false,"), "{text}");
    }
}
