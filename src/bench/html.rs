//! The report as one page that needs nothing else.
//!
//! Pure. Owns the page around the figures: headline, verdict, how the numbers came about. Always true: no network, no
//! scripts; light and dark by the reader's choice; it prints; every figure has its numbers in a table under it and can be
//! taken away as SVG. A run that lost records gets no headline.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::figures::{self, Figure, Table};
use super::report::Run;
use super::svg::{STYLE, escape, standalone};
use super::units;

/// Rows of a table that stay open under a figure; longer ones fold.
const ROWS_OPEN_MAX: usize = 12;

const PAGE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--faint:#f4f6f9;--paper:#fff;--accent:#0b66c3;--good:#08805a;--goodbg:#e3f4ec;--bad:#b3261e;--badbg:#fbe9e7;--warn:#8a5a00;--warnbg:#fdf1d8}\
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--line:#313a47;--faint:#1b222c;--paper:#151b23;--accent:#62a9f5;--good:#4cc79b;--goodbg:#12312a;--bad:#f2857d;--badbg:#3b1d1c;--warn:#e3b341;--warnbg:#34290f}}\
*{box-sizing:border-box}html{background:var(--paper)}\
body{margin:0 auto;max-width:1000px;padding:40px 28px 72px;background:var(--paper);color:var(--ink);font:15.5px/1.55 ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
h1{font-size:27px;line-height:1.25;margin:0 0 6px;letter-spacing:-.01em}h2{font-size:18.5px;margin:52px 0 4px;letter-spacing:-.005em}h3{font-size:14px;margin:22px 0 6px;color:var(--soft);font-weight:600}\
p{margin:6px 0}.sub{color:var(--soft);margin:0 0 18px}.cap{color:var(--soft);font-size:14px;max-width:74ch;margin:0 0 12px}a{color:var(--accent)}\
code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}pre{background:var(--faint);border:1px solid var(--line);border-radius:8px;padding:12px 14px;white-space:pre-wrap;overflow-wrap:anywhere}\
.ack{border-left:4px solid var(--accent);background:var(--faint);padding:10px 16px;border-radius:0 8px 8px 0;margin:18px 0}.ack b{font-size:15.5px}.ack span{color:var(--soft);font-size:14px;display:block}\
.badges{display:flex;flex-wrap:wrap;gap:8px;margin:16px 0 0}.badge{border-radius:999px;padding:3px 12px;font-size:13.5px;font-weight:600;background:var(--faint);color:var(--soft)}\
.good{background:var(--goodbg);color:var(--good)}.bad{background:var(--badbg);color:var(--bad)}.warn{background:var(--warnbg);color:var(--warn)}\
.why{margin:10px 0 0;padding-left:20px;color:var(--soft);font-size:14px}\
.tiles{display:flex;flex-wrap:wrap;gap:1px;background:var(--line);border:1px solid var(--line);border-radius:12px;overflow:hidden;margin:22px 0 0}\
.tile{background:var(--paper);padding:14px 18px 12px;flex:1 1 22%;min-width:140px}.tile b{display:block;font-size:26px;line-height:1.2;font-weight:650;letter-spacing:-.015em;font-variant-numeric:tabular-nums;white-space:nowrap}.tile b small{font-size:14px;font-weight:500;color:var(--soft);letter-spacing:0}.tile span{color:var(--soft);font-size:13px}\
figure{margin:0}figure svg{display:block;width:100%;height:auto}\
.scroll{overflow-x:auto;margin:10px 0 0}table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;width:100%}th{font-weight:600;color:var(--soft);text-align:right;padding:6px 10px;border-bottom:1px solid var(--line);white-space:nowrap}td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left;padding-left:2px}tr:last-child td{border-bottom:0}\
td.words{text-align:left;white-space:normal;overflow-wrap:anywhere}th.words{text-align:left}\
details{margin:10px 0 0;font-size:14px}summary{cursor:pointer;color:var(--soft)}summary:hover{color:var(--ink)}.fold{max-height:420px;overflow:auto;border:1px solid var(--line);border-radius:8px;margin-top:8px;padding:0 10px}\
.take{font-size:12.5px;margin:2px 0 0;text-align:right}.take a{color:var(--soft);text-decoration:none}.take a:hover{color:var(--accent);text-decoration:underline}footer{margin-top:64px;border-top:1px solid var(--line);padding-top:14px;color:var(--soft);font-size:13px}\
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--faint:#f5f5f5;--paper:#fff;--accent:#0b66c3;--good:#08805a;--goodbg:#fff;--bad:#b3261e;--badbg:#fff;--warn:#8a5a00;--warnbg:#fff}body{max-width:none;padding:0;font-size:11pt}h2{break-after:avoid;margin-top:26pt}figure,.tiles,tr{break-inside:avoid}.take,details{display:none}}\
@media (max-width:560px){body{padding:22px 14px 48px}h1{font-size:22px}.tile b{font-size:20px}}";

/// The report of one run, or several laid over each other. Panics on no runs: there is nothing to report.
pub fn page(runs: &[Run]) -> String {
    let first = runs.first().expect("a report is of at least one run");
    let title = if runs.len() == 1 { title_of(first) } else { format!("{} runs side by side", runs.len()) };
    let mut body = String::new();
    match runs {
        [run] => head_of_one(&mut body, run, &title),
        _ => head_of_several(&mut body, runs, &title),
    }
    for figure in figures::all(runs) {
        put_figure(&mut body, &figure);
    }
    for run in runs {
        reproduce(&mut body, run, runs.len());
    }
    document(&title, &body, first)
}

/// A page around `body`, in this report's style: for the reports of other commands, too.
pub fn shell(title: &str, body: &str, footer: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{PAGE}{STYLE}</style>\n</head>\n<body>\n{body}\n<footer>{footer}</footer>\n</body>\n</html>\n",
        escape(title)
    )
}

fn document(title: &str, body: &str, run: &Run) -> String {
    let footer = format!(
        "Written by {} {}, {}. This page loads nothing from the network and needs no scripts; the numbers behind it are in run.json (schema version {}).",
        escape(&run.tool.name),
        escape(&run.tool.version),
        escape(&run.started_at),
        run.schema_version
    );
    shell(title, body, &footer)
}

fn title_of(run: &Run) -> String {
    let what = match run.kind.as_str() {
        "produce" => "Produce benchmark",
        "consume" => "Consume benchmark",
        "e2e" => "End-to-end benchmark",
        "mixed" => "Mixed produce and consume benchmark",
        "idle" => "Idle connections benchmark",
        "connect-storm" => "Connection storm benchmark",
        other => other,
    };
    if run.label.is_empty() { what.to_owned() } else { format!("{what}: {}", run.label) }
}

fn head_of_one(out: &mut String, run: &Run, title: &str) {
    _ = write!(
        out,
        "<header><h1>{}</h1><p class=\"sub\">{} · {} · topic {}, {} partition{} · {}</p></header>",
        escape(title),
        escape(&software(run)),
        escape(&run.broker.address),
        escape(&run.workload.topic),
        run.workload.partitions,
        if run.workload.partitions == 1 { "" } else { "s" },
        escape(&run.started_at)
    );
    ack(out, run, "");
    if run.workload.connections == 0 && run.kind != "consume" {
        _ = write!(out, "<p>{}</p>", escape(&run.workload.sentence()));
    }
    badges(out, run);
    if run.verdict.lossy {
        _ = write!(
            out,
            "<p class=\"badge bad\" style=\"border-radius:8px;padding:12px 16px;margin-top:22px\">No headline: {}.</p>",
            escape(&run.verification.sentence())
        );
        evidence(out, run);
    } else {
        tiles(out, run);
        _ = write!(
            out,
            "<p class=\"cap\" style=\"margin-top:12px;max-width:none\">Verification: {}.</p>",
            escape(&run.verification.sentence())
        );
    }
}

/// The broker's name with a capital letter.
fn software(run: &Run) -> String {
    match run.broker.software.as_str() {
        "ringlog" => "Ringlog".to_owned(),
        "kafka" => "Apache Kafka".to_owned(),
        "" | "unknown" => "a Kafka-compatible broker".to_owned(),
        other => other.to_owned(),
    }
}

fn ack(out: &mut String, run: &Run, label: &str) {
    if run.ack.words.is_empty() || matches!(run.kind.as_str(), "idle" | "connect-storm") {
        return;
    }
    let prefix = if label.is_empty() { String::new() } else { format!("{}: ", escape(label)) };
    _ = write!(
        out,
        "<div class=\"ack\"><b>{prefix}Acknowledgement class: {}</b> (acks={})<span>{} {}</span></div>",
        escape(&run.ack_class),
        escape(&run.ack.acks),
        escape(&run.ack.words),
        escape(&run.ack.source)
    );
}

fn badges(out: &mut String, run: &Run) {
    let verdict = &run.verdict;
    let mut list = vec![if verdict.valid { ("good", "valid".to_owned()) } else { ("bad", "not valid".to_owned()) }];
    if verdict.lossy {
        list.push(("bad", "lossy".to_owned()));
    } else if run.verification.is_partial() {
        list.push(("warn", "partly verified".to_owned()));
    } else if run.verification.enabled {
        list.push(("good", "verified: nothing lost".to_owned()));
    } else {
        list.push(("", "not verified".to_owned()));
    }
    if verdict.client_bound {
        list.push(("warn", "client-bound".to_owned()));
    }
    if verdict.ceiling_drift {
        list.push(("bad", "host drifted".to_owned()));
    }
    match verdict.steady {
        Some(true) => list.push(("good", "steady".to_owned())),
        Some(false) => list.push(("warn", "not steady".to_owned())),
        None => {}
    }
    if verdict.interrupted {
        list.push(("warn", "interrupted".to_owned()));
    }
    if run.results.errors > 0 {
        list.push(("bad", format!("{} errors", units::grouped(run.results.errors))));
    }
    out.push_str("<div class=\"badges\">");
    for (class, text) in list {
        _ = write!(out, "<span class=\"badge {class}\">{}</span>", escape(&text));
    }
    out.push_str("</div>");
    if !verdict.reasons.is_empty() {
        out.push_str("<ul class=\"why\">");
        for reason in &verdict.reasons {
            _ = write!(out, "<li>{}</li>", escape(reason));
        }
        out.push_str("</ul>");
    }
}

fn evidence(out: &mut String, run: &Run) {
    if !run.verification.evidence.is_empty() {
        _ = write!(out, "<h3>Evidence</h3><pre>{}</pre>", escape(&run.verification.evidence.join("\n")));
    }
}

/// The numbers people look for first, with their units apart.
fn headline(run: &Run) -> Vec<(String, String, String)> {
    let split = |text: String| match text.rsplit_once(' ') {
        Some((number, unit)) => (number.to_owned(), unit.to_owned()),
        None => (text, String::new()),
    };
    let mut tiles = Vec::new();
    let mut add = |(number, unit): (String, String), name: String| tiles.push((number, unit, name));
    let results = &run.results;
    if results.records_per_second > 0.0 {
        let verb = if run.kind == "consume" { "read" } else { "acknowledged" };
        add((units::digits(results.bytes_per_second / 1e6), "MB/s".to_owned()), format!("{verb}, {}", run.ack_class));
        add((units::grouped(results.records_per_second as u64), "/s".to_owned()), format!("records {verb}"));
    }
    if let Some(per_second) =
        results.requests_per_second.filter(|_| matches!(run.kind.as_str(), "idle" | "connect-storm"))
    {
        add(
            (units::count(per_second), "/s".to_owned()),
            if run.kind == "idle" { "requests" } else { "connections" }.to_owned(),
        );
    }
    if let Some(latency) = run.headline_latency() {
        let name = run.headline_latency_name();
        for (value, percentile) in
            [(latency.p50, "p50"), (latency.p99, "p99"), (latency.p999, "p99.9"), (latency.max, "max")]
        {
            add(split(units::micros(value as f64)), format!("{name}, {percentile}"));
        }
    }
    if let Some(cpu) = run.broker.cpu_ms_per_mb {
        add((units::digits(cpu), "ms/MB".to_owned()), "broker processor time".to_owned());
    }
    tiles
}

fn tiles(out: &mut String, run: &Run) {
    out.push_str("<div class=\"tiles\">");
    for (number, unit, name) in headline(run) {
        _ = write!(
            out,
            "<div class=\"tile\"><b>{} <small>{}</small></b><span>{}</span></div>",
            escape(&number),
            escape(&unit),
            escape(&name)
        );
    }
    out.push_str("</div>");
}

fn head_of_several(out: &mut String, runs: &[Run], title: &str) {
    let first = &runs[0];
    _ = write!(
        out,
        "<header><h1>{}</h1><p class=\"sub\">Laid over each other as measured; <code>ringlog compare</code> says whether a difference is real.</p></header>",
        escape(title)
    );
    let classes: std::collections::BTreeSet<&str> = runs.iter().map(|run| run.ack_class.as_str()).collect();
    if classes.len() > 1 {
        let words: Vec<&str> = classes.into_iter().collect();
        _ = write!(
            out,
            "<ul class=\"why\"><li>The runs do not promise the same: their acknowledgement classes are {}. A faster number of a weaker class is no win.</li></ul>",
            escape(&words.join(" and "))
        );
    }
    let mut table =
        Table::new(&["run", "class", "records/s", "MB/s", "p50", "p99", "p99.9", "max", "CPU ms/MB", "verdict"]);
    for run in runs {
        let latency = run.headline_latency();
        let micros = |pick: fn(&super::report::Percentiles) -> u64| {
            latency.map_or_else(|| "–".to_owned(), |all| units::micros(pick(all) as f64))
        };
        let shown = |text: String| if run.verdict.lossy { "LOSSY".to_owned() } else { text };
        table.row(vec![
            figures::name_of(run, runs.len()),
            run.ack_class.clone(),
            shown(units::grouped(run.results.records_per_second as u64)),
            shown(units::digits(run.results.bytes_per_second / 1e6)),
            micros(|all| all.p50),
            micros(|all| all.p99),
            micros(|all| all.p999),
            micros(|all| all.max),
            run.broker.cpu_ms_per_mb.map_or_else(|| "–".to_owned(), units::digits),
            verdict_words(run),
        ]);
    }
    put_table(out, &table);
    // What holds for all of them is said once.
    if runs.iter().all(|run| run.ack == first.ack && run.ack_class == first.ack_class) {
        ack(out, first, "All of them");
    } else {
        runs.iter().for_each(|run| ack(out, run, &figures::name_of(run, runs.len())));
    }
}

/// The verdict in a few words.
pub fn verdict_words(run: &Run) -> String {
    let verdict = &run.verdict;
    let mut words = Vec::new();
    for (set, word) in [
        (verdict.lossy, "lossy"),
        (verdict.ceiling_drift, "host drifted"),
        (verdict.client_bound, "client-bound"),
        (verdict.interrupted, "interrupted"),
        (verdict.steady == Some(false), "not steady"),
    ] {
        if set {
            words.push(word);
        }
    }
    match (verdict.valid, words.is_empty()) {
        (true, true) => "valid".to_owned(),
        (true, false) => format!("valid, {}", words.join(", ")),
        (false, true) => "not valid".to_owned(),
        (false, false) => format!("not valid: {}", words.join(", ")),
    }
}

/// A figure with its heading, caption, picture, download and table.
pub fn put_figure(out: &mut String, figure: &Figure) {
    _ = write!(
        out,
        "<section id=\"{id}\"><h2>{}</h2><p class=\"cap\">{}</p>",
        escape(&figure.title),
        escape(&figure.caption),
        id = escape(&figure.id)
    );
    if !figure.svg.is_empty() {
        _ = write!(
            out,
            "<figure>{}</figure><p class=\"take\"><a download=\"{}.svg\" href=\"data:image/svg+xml;base64,{}\">Download as SVG</a></p>",
            figure.svg,
            escape(&figure.id),
            STANDARD.encode(standalone(&figure.svg))
        );
    }
    put_table(out, &figure.table);
    out.push_str("</section>");
}

/// A table; one of many rows folds.
pub fn put_table(out: &mut String, table: &Table) {
    // A column that says nothing in any row (the name of the only run) is left out.
    let shown: Vec<usize> = (0..table.head.len())
        .filter(|column| table.rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty())))
        .collect();
    if shown.is_empty() {
        return;
    }
    let fold = table.rows.len() > ROWS_OPEN_MAX;
    out.push_str(if fold {
        "<details><summary>Numbers</summary><div class=\"fold\">"
    } else {
        "<div class=\"scroll\">"
    });
    let wordy = |column: usize| table.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.len() > 40));
    out.push_str("<table>");
    if shown.iter().any(|column| !table.head[*column].is_empty()) {
        out.push_str("<thead><tr>");
        for column in &shown {
            let class = if wordy(*column) { " class=\"words\"" } else { "" };
            _ = write!(out, "<th{class}>{}</th>", escape(&table.head[*column]));
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>");
    for row in &table.rows {
        out.push_str("<tr>");
        for column in &shown {
            let class = if wordy(*column) { " class=\"words\"" } else { "" };
            _ = write!(out, "<td{class}>{}</td>", escape(row.get(*column).map_or("", String::as_str)));
        }
        out.push_str("</tr>");
    }
    out.push_str(if fold { "</tbody></table></div></details>" } else { "</tbody></table></div>" });
}

fn reproduce(out: &mut String, run: &Run, runs: usize) {
    let label = figures::name_of(run, runs);
    let heading = if runs > 1 { format!("To repeat it: {label}") } else { "To repeat it".to_owned() };
    _ = write!(out, "<section><h2>{}</h2><pre>{}</pre>", escape(&heading), escape(&run.command));
    let mut table = Table::new(&["what", "value"]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table.row(vec![name.to_owned(), value]);
        }
    };
    let host = &run.host;
    row("processor", format!("{}, {} usable", host.cpu_model, host.cores));
    row("memory", units::bytes(host.memory_bytes as f64));
    row("kernel", host.kernel.clone());
    row("governor", host.governor.clone());
    row("disk", host.disk.clone());
    row("io_uring", host.io_uring.clone());
    row("steal while measuring", host.steal_percent.clone());
    row(
        "broker",
        format!(
            "{} ({}), {} in the cluster, APIs {}",
            software(run),
            run.broker.address,
            run.broker.brokers,
            run.broker.api_fingerprint
        ),
    );
    for (name, value) in &run.broker.settings {
        row(&format!("broker: {name}"), value.clone());
    }
    for (name, value) in &run.client {
        row(&format!("client: {name}"), value.clone());
    }
    row(
        "producers, consumers, groups",
        format!("{}, {}, {}", run.workload.producers, run.workload.consumers, run.workload.groups),
    );
    row("generator", format!("{} thread(s), {:.0} % busy", run.generator.threads, run.generator.busy_share * 100.0));
    row("seed", run.workload.seed.to_string());
    row(
        "measured",
        format!("{} s after {} s of warm-up", units::digits(run.results.seconds), run.workload.warmup_seconds),
    );
    for (name, count) in &run.results.errors_by_code {
        row(&format!("error: {name}"), units::grouped(*count));
    }
    for note in &run.notes {
        row("note", note.clone());
    }
    out.push_str("<div class=\"scroll\"><table><tbody>");
    for cells in &table.rows {
        _ = write!(out, "<tr><td>{}</td><td class=\"words\">{}</td></tr>", escape(&cells[0]), escape(&cells[1]));
    }
    out.push_str("</tbody></table></div></section>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::recorder::{encode, histogram, percentiles};
    use crate::bench::report::{
        BatchFacts, CeilingFacts, Ceilings, LoadPoint, RequestStages, SearchPoint, Second, ShardWork,
    };

    fn run(label: &str) -> Run {
        let mut latencies = histogram();
        let mut random = fastrand::Rng::with_seed(4);
        (0..50_000).for_each(|_| latencies.saturating_record(800 + (random.f64().powi(8) * 20_000.0) as u64));
        let mut run = Run {
            schema_version: 1,
            kind: "produce".to_owned(),
            label: label.to_owned(),
            ack_class: "written".to_owned(),
            ..Run::default()
        };
        run.ack.words = "on the device".to_owned();
        run.results.records_per_second = 123_456.0;
        run.results.bytes_per_second = 126_000_000.0;
        run.results.response_us = percentiles(&latencies);
        run.results.batches = Some(BatchFacts { fill: 0.9, linger_expired_share: Some(0.1), ..BatchFacts::default() });
        run.histograms.insert("response_us".to_owned(), encode(&latencies));
        run.series = (0..30)
            .map(|t| Second {
                t,
                measured: t > 5,
                acked: 1000 + t,
                sent: 1000,
                p50_us: 900,
                p99_us: 5000,
                p999_us: 9000,
                max_us: 20_000,
                ..Second::default()
            })
            .collect();
        run.broker.cpu_ms_per_mb = Some(0.8);
        run.broker.shards = (0..2)
            .map(|shard| ShardWork {
                shard,
                produce_batches: Some(4321 + u64::from(shard)),
                produce_bytes: Some(5_000_000),
                log_writes: Some(87),
                watchdog_kicks: Some(0),
                ..ShardWork::default()
            })
            .collect();
        run.broker.stages = vec![RequestStages {
            request: "Produce".to_owned(),
            requests: 4321,
            request_queue_us: 0.5,
            local_us: 20.0,
            remote_us: 300.0,
        }];
        run.ceilings = Some(CeilingFacts {
            before: Ceilings { disk_write_bytes_per_second: 5e8, ..Ceilings::default() },
            ..CeilingFacts::default()
        });
        run.load_curve = (1..10)
            .map(|step| LoadPoint {
                offered: f64::from(step) * 1e4,
                p99_us: 1000,
                p50_us: 500,
                p999_us: 2000,
                ..LoadPoint::default()
            })
            .collect();
        run.search = vec![SearchPoint { rate: 1e4, p99_us: 900, sustained: true, ..SearchPoint::default() }];
        run.verdict.valid = true;
        run
    }

    #[test]
    fn a_page_needs_no_network_and_no_script_and_has_every_figure() {
        let page = page(&[run("")]);
        for foreign in ["http://", "https://", "<script", "@import", "url("] {
            // The one address in it names the SVG language in downloads, which are base64 here.
            assert!(!page.contains(foreign), "{foreign}");
        }
        for id in [
            "latency",
            "throughput",
            "latency-over-time",
            "percentiles",
            "load",
            "search",
            "batches",
            "cost",
            "ceilings",
            "stages",
            "shards",
        ] {
            assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
        }
        assert!(page.contains("Acknowledgement class: written") && page.contains("123,456"));
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
        assert!(!page.contains("NaN"));
    }

    /// The section of a figure: its picture, and what stands under it.
    fn section<'a>(page: &'a str, id: &str) -> (&'a str, &'a str) {
        let (_, rest) = page.split_once(&format!("<section id=\"{id}\">")).expect("the figure is there");
        let (section, _) = rest.split_once("</section>").expect("it ends");
        section.split_once("</svg>").expect("it has a picture")
    }

    #[test]
    fn what_each_shard_did_is_in_the_picture_and_in_the_table_alike() {
        let page = page(&[run("")]);
        let (picture, under) = section(&page, "shards");
        for (shard, batches) in [(0, "4,321"), (1, "4,322")] {
            assert!(picture.contains(&format!("<title>shard {shard}: {batches}</title>")), "{picture}");
            assert!(under.contains(&format!("<tr><td>{shard}</td><td>{batches}</td><td>5.00 MB</td>")), "{under}");
        }
        // What never happened is a number and no picture; what was not told says so.
        assert!(!picture.contains("watchdog kicks") && under.contains("<th>watchdog kicks</th>"));
        assert!(under.contains("<td>–</td><td>0</td></tr>"));
    }

    #[test]
    fn shards_of_several_runs_stand_beside_each_other_and_runs_without_them_are_left_out() {
        let mut kafka = run("kafka");
        kafka.broker.shards.clear();
        let all = page(&[run("old"), run("new"), kafka.clone()]);
        let (picture, under) = section(&all, "shards");
        assert!(
            picture.contains("<title>old: shard 1: 4,322</title>") && picture.contains("<title>new: shard 0: 4,321")
        );
        assert!(under.contains("<tr><td>new</td><td>1</td><td>4,322</td>"));
        assert!(!picture.contains("kafka") && !under.contains("kafka"));
        assert!(!page(&[kafka]).contains("id=\"shards\""));
    }

    #[test]
    fn the_stages_of_a_request_are_in_the_picture_and_in_the_table_alike_with_what_remains() {
        let mut one = run("");
        one.results.response_us.as_mut().unwrap().mean = 1320.5;
        let page = page(&[one]);
        let (picture, under) = section(&page, "stages");
        for (stage, time) in [
            ("request queue", "0.500 µs"),
            ("local", "20.0 µs"),
            ("remote", "300 µs"),
            ("network and client", "1.00 ms"),
        ] {
            assert!(picture.contains(&format!("<title>Produce, {stage}: {time}</title>")), "{stage} {picture}");
            assert!(
                under.contains(&format!("<th>{stage}</th>")) && under.contains(&format!("<td>{time}</td>")),
                "{under}"
            );
        }
        assert!(picture.contains(">broker 320 µs, client 1.32 ms</text>"), "{picture}");
    }

    #[test]
    fn stages_without_a_clients_time_have_no_remainder_and_brokers_that_tell_none_no_figure() {
        let mut consuming = run("ours");
        consuming.kind = "consume".to_owned();
        let mut kafka = run("kafka");
        kafka.broker.stages.clear();
        let all = page(&[consuming, kafka.clone()]);
        let (picture, under) = section(&all, "stages");
        assert!(
            picture.contains("<title>ours: Produce, local: 20.0 µs</title>") && !picture.contains("network and client")
        );
        assert!(under.contains("<tr><td>ours</td><td>Produce</td><td>4,321</td>") && !under.contains("kafka"));
        assert!(under.contains("<td>–</td><td>–</td></tr>"));
        assert!(!page(&[kafka]).contains("id=\"stages\""));
    }

    #[test]
    fn a_lossy_run_gets_no_headline_but_its_evidence() {
        let mut run = run("");
        run.verification.enabled = true;
        run.verification.lost = 3;
        run.verification.evidence.push("lost: 1:7 of partition 0".to_owned());
        run.verdict.lossy = true;
        run.verdict.valid = false;
        let page = page(&[run]);
        assert!(!page.contains("class=\"tiles\"") && !page.contains("123,456 <small>"));
        assert!(page.contains("3 LOST") && page.contains("lost: 1:7"));
    }

    #[test]
    fn runs_of_different_classes_are_laid_over_each_other_with_a_warning() {
        let mut other = run("kafka");
        other.ack_class = "page-cache".to_owned();
        let page = page(&[run("ringlog"), other]);
        assert!(
            page.contains("page-cache and written")
                && page.contains("ringlog: acknowledged")
                && page.contains("kafka: acknowledged")
        );
    }

    #[test]
    fn words_from_outside_are_escaped() {
        let page = page(&[run("<img src=x onerror=alert(1)>")]);
        assert!(!page.contains("<img") && page.contains("&lt;img"));
    }
}
