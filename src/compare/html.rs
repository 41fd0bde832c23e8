//! A comparison as one page that needs nothing else.
//!
//! Pure. Owns the page around the figures: who was compared, what may be said, what each promised, how to do it again. Always true:
//! no network, no scripts; what a target's acknowledgement meant stands before the first number; a cell that may not be quoted
//! has no verdict but the reason.

use std::fmt::Write as _;

use super::figures::{all, name_of};
use super::metric::Metric;
use super::report::{CellReport, Comparison, State};
use super::verdict::shown;
use crate::bench::figures::{Figure, Table};
use crate::bench::html::{put_figure, shell};
use crate::bench::svg::escape;
use crate::bench::units;

/// The page.
pub fn page(comparison: &Comparison) -> String {
    let title = title(comparison);
    let mut body = String::new();
    head(&mut body, comparison, &title);
    promises(&mut body, comparison);
    summary(&mut body, comparison);
    for figure in all(comparison) {
        put_figure(&mut body, &figure);
    }
    weaknesses(&mut body, comparison);
    again(&mut body, comparison);
    let footer = format!(
        "Written by {} {}, {}. This page loads nothing from the network and needs no scripts; the numbers behind it are in compare.json (schema version {}).",
        escape(&comparison.tool.name),
        escape(&comparison.tool.version),
        escape(&comparison.finished_at),
        comparison.schema_version
    );
    shell(&title, &body, &footer)
}

fn title(comparison: &Comparison) -> String {
    format!("{} against {}", comparison.name(0), comparison.name(1))
}

/// `Apache Kafka 4.4.0 …`, `Ringlog 0.1.0`.
pub fn software(facts: &super::report::TargetFacts) -> String {
    let name = match facts.software.as_str() {
        "ringlog" => "Ringlog",
        "kafka" => "Apache Kafka",
        _ => "a Kafka-compatible broker",
    };
    format!("{name} {}", facts.version)
}

fn head(out: &mut String, comparison: &Comparison, title: &str) {
    let host = &comparison.host;
    _ = write!(
        out,
        "<header><h1>{}</h1><p class=\"sub\">{} · {} pairs of each workload, in random order · {} · {}</p></header>",
        escape(title),
        escape(&format!("preset {}", comparison.preset)),
        comparison.pairs,
        escape(&comparison.layouts.join("; ")),
        escape(&comparison.started_at)
    );
    out.push_str("<ul class=\"why\">");
    for facts in &comparison.targets {
        let recorded = facts.recorded.as_ref().map(|file| format!(", recorded in {file}")).unwrap_or_default();
        let warm = if facts.warm_seconds > 0.0 {
            format!(", warmed up for {:.0} s before anything was measured", facts.warm_seconds)
        } else {
            String::new()
        };
        _ = write!(
            out,
            "<li><b>{}</b>: {}{}{}</li>",
            escape(&facts.name),
            escape(&software(facts)),
            escape(&recorded),
            escape(&warm)
        );
    }
    _ = write!(
        out,
        "<li>{}, {} usable cores, {} memory, {}</li>",
        escape(&host.cpu_model),
        host.cores,
        units::bytes(host.memory_bytes as f64),
        escape(&host.disk)
    );
    out.push_str("</ul>");
    let mut badges: Vec<(&str, String)> = Vec::new();
    let count = |state: State| comparison.cells.iter().filter(|cell| cell.state == state).count();
    badges.push(("good", format!("{} workloads compared", count(State::Valid))));
    for (state, class, words) in [
        (State::Lossy, "bad", "lossy"),
        (State::Crossed, "bad", "of different promises"),
        (State::Failed, "warn", "without numbers of both"),
    ] {
        if count(state) > 0 {
            badges.push((class, format!("{} {words}", count(state))));
        }
    }
    if comparison.interrupted {
        badges.push(("warn", "interrupted".to_owned()));
    }
    out.push_str("<div class=\"badges\">");
    for (class, text) in badges {
        _ = write!(out, "<span class=\"badge {class}\">{}</span>", escape(&text));
    }
    out.push_str("</div>");
}

/// What acknowledgements meant, each sentence once.
fn promises(out: &mut String, comparison: &Comparison) {
    let mut sentences: Vec<(&str, Vec<&str>)> = Vec::new();
    for cell in comparison.cells.iter().filter(|cell| !cell.class_sentence.is_empty()) {
        match sentences.iter_mut().find(|(sentence, _)| *sentence == cell.class_sentence) {
            Some((_, keys)) if !keys.contains(&cell.key.as_str()) => keys.push(&cell.key),
            Some(_) => {}
            None => sentences.push((&cell.class_sentence, vec![&cell.key])),
        }
    }
    for (sentence, keys) in sentences {
        _ = write!(
            out,
            "<div class=\"ack\"><b>What an acknowledgement meant</b><span>{} ({})</span></div>",
            escape(sentence),
            escape(&keys.join(", "))
        );
    }
}

/// The verdict of each cell in a line, the headline number first.
fn summary(out: &mut String, comparison: &Comparison) {
    let (first, second) = (comparison.name(0), comparison.name(1));
    out.push_str("<section id=\"summary\"><h2>What was found</h2>");
    _ = write!(
        out,
        "<p class=\"cap\">{}. A difference is claimed only where the 95 % interval of the paired ratio leaves 1 out. {}</p>",
        escape(&tally(comparison)),
        escape(&chance(comparison).unwrap_or_default())
    );
    out.push_str("<div class=\"scroll\"><table><thead><tr><th>workload</th><th style=\"text-align:left\">what</th>");
    _ = write!(
        out,
        "<th>{}</th><th>{}</th><th>ratio</th><th style=\"text-align:left\">{} is</th></tr></thead><tbody>",
        escape(first),
        escape(second),
        escape(first)
    );
    for cell in &comparison.cells {
        for (index, finding) in cell.findings.iter().enumerate() {
            let Some(metric) = Metric::from_key(&finding.metric) else { continue };
            let name = if index == 0 { name_of(comparison, cell) } else { String::new() };
            let number = |target: usize| {
                finding.medians.get(target).map_or_else(|| "–".to_owned(), |value| shown(metric, *value))
            };
            let ratio = finding
                .ratio
                .map_or_else(String::new, |ratio| format!("{:.2}×{}", ratio.value, finding.interval(" [", ", ", "]")));
            let colour = match finding.is_better() {
                Some(true) => "color:var(--good);font-weight:600",
                Some(false) => "color:var(--bad);font-weight:600",
                None => "color:var(--soft)",
            };
            _ = write!(
                out,
                "<tr><td>{}</td><td style=\"text-align:left\">{}</td><td>{}</td><td>{}</td><td>{ratio}</td><td style=\"text-align:left;{colour}\">{}</td></tr>",
                escape(&name),
                metric.name(),
                escape(&number(0)),
                escape(&number(1)),
                escape(&finding.claim())
            );
        }
    }
    out.push_str("</tbody></table></div></section>");
}

/// `In 24 numbers ringlog does better in 15, worse in 3; in 6 no difference was shown`.
pub fn tally(comparison: &Comparison) -> String {
    let findings = || comparison.cells.iter().flat_map(|cell| &cell.findings);
    let better = findings().filter(|finding| finding.is_better() == Some(true)).count();
    let worse = findings().filter(|finding| finding.is_better() == Some(false)).count();
    let all = findings().count();
    format!(
        "Of {all} numbers {} is better in {better} and worse in {worse}; in {} no difference was shown or none may be claimed",
        comparison.name(0),
        all - better - worse
    )
}

/// How many of the claims are expected to be chance's. `None` when nothing was tested.
pub fn chance(comparison: &Comparison) -> Option<String> {
    let tested = comparison.cells.iter().flat_map(|cell| &cell.findings).filter(|finding| finding.is_tested()).count();
    (tested > 0).then(|| {
        format!(
            "Of {tested} intervals of 95 % each, {} are expected to miss the truth by chance alone.",
            units::digits(tested as f64 * crate::bench::stats::MISS)
        )
    })
}

fn weaknesses(out: &mut String, comparison: &Comparison) {
    let of_cells =
        |cell: &CellReport| cell.notes.iter().map(|note| format!("{}: {note}", cell.key)).collect::<Vec<_>>();
    let notes: Vec<String> =
        comparison.notes.iter().cloned().chain(comparison.cells.iter().flat_map(of_cells)).collect();
    for (id, title, lines) in [
        ("notes", "What weakens these numbers", &notes),
        ("not-covered", "What was not compared", &comparison.not_covered),
    ] {
        if lines.is_empty() {
            continue;
        }
        _ = write!(out, "<section id=\"{id}\"><h2>{title}</h2><ul class=\"why\">");
        for line in lines {
            _ = write!(out, "<li>{}</li>", escape(line));
        }
        out.push_str("</ul></section>");
    }
}

fn again(out: &mut String, comparison: &Comparison) {
    _ = write!(out, "<section id=\"again\"><h2>To repeat it</h2><pre>{}</pre>", escape(&comparison.command));
    let mut table = Table::new(&["what", "value"]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table.row(vec![name.to_owned(), value]);
        }
    };
    let host = &comparison.host;
    row("processor", format!("{}, {} usable cores", host.cpu_model, host.cores));
    row("memory", units::bytes(host.memory_bytes as f64));
    row("kernel", host.kernel.clone());
    row("governor", host.governor.clone());
    row("disk", host.disk.clone());
    row("io_uring", host.io_uring.clone());
    row("seed of the order", comparison.seed.to_string());
    for facts in &comparison.targets {
        row(&facts.name, software(facts));
        row(&format!("{}: how", facts.name), facts.how.clone());
        for (name, value) in &facts.settings {
            row(&format!("{}: {name}", facts.name), value.clone());
        }
    }
    out.push_str("<div class=\"scroll\"><table><tbody>");
    for cells in &table.rows {
        _ = write!(out, "<tr><td>{}</td><td class=\"words\">{}</td></tr>", escape(&cells[0]), escape(&cells[1]));
    }
    out.push_str("</tbody></table></div>");
    for cell in &comparison.cells {
        _ = write!(
            out,
            "<details><summary>{}</summary><p class=\"cap\">{}.</p>",
            escape(&name_of(comparison, cell)),
            escape(&cell.load)
        );
        for (facts, command) in comparison.targets.iter().zip(&cell.commands) {
            _ = write!(out, "<h3>{}</h3><pre>{}</pre>", escape(&facts.name), escape(command));
        }
        let settings: Vec<String> = cell.client.iter().map(|(name, value)| format!("{name}={value}")).collect();
        _ = write!(out, "<h3>client settings of both</h3><pre>{}</pre></details>", escape(&settings.join("\n")));
    }
    out.push_str("</section>");
    put_ceilings(out, comparison);
}

fn put_ceilings(out: &mut String, comparison: &Comparison) {
    let mut table = Table::new(&[
        "when",
        "disk, direct sequential write",
        "write of 4 KiB + fdatasync",
        "loopback, one stream",
        "CRC-32C, one core",
    ]);
    for (index, found) in comparison.ceilings.iter().enumerate() {
        let rate = |value: f64| if value > 0.0 { format!("{}/s", units::bytes(value)) } else { "–".to_owned() };
        let flush = if found.flush_us > 0.0 { units::micros(found.flush_us) } else { "–".to_owned() };
        let when = if index == 0 { "before".to_owned() } else { format!("after round {index}") };
        table.row(vec![
            when,
            rate(found.disk_write_bytes_per_second),
            flush,
            rate(found.loopback_bytes_per_second),
            rate(found.crc32c_bytes_per_second),
        ]);
    }
    if !table.rows.is_empty() {
        let caption = "What this host can do at most, measured by this tool between the rounds of pairs.".to_owned();
        put_figure(
            out,
            &Figure {
                id: "ceilings".to_owned(),
                title: "The limits of this host".to_owned(),
                caption,
                svg: String::new(),
                table,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::recorder::{encode, histogram};
    use crate::bench::report::Ceilings;
    use crate::compare::assemble::{Known, cell_report};
    use crate::compare::metric::BYTES_PER_REQUEST;
    use std::time::Duration;

    use crate::compare::presets::{Pacing, Preset, Shape, cells};
    use crate::compare::report::{Measurement, SCHEMA_VERSION, Stretch, TargetFacts};

    pub(in crate::compare) fn example() -> Comparison {
        let mut random = fastrand::Rng::with_seed(3);
        let target = |name: &str, software: &str| TargetFacts {
            name: name.to_owned(),
            software: software.to_owned(),
            version: "1.2".to_owned(),
            warm_seconds: 40.0,
            ..TargetFacts::default()
        };
        let mut comparison = Comparison {
            schema_version: SCHEMA_VERSION,
            preset: "quick".to_owned(),
            pairs: 5,
            layouts: vec!["shared: all".to_owned()],
            targets: vec![target("ringlog", "ringlog"), target("kafka", "kafka")],
            ceilings: vec![Ceilings { disk_write_bytes_per_second: 5e8, ..Ceilings::default() }],
            notes: vec!["A note.".to_owned()],
            not_covered: vec!["W22: another command.".to_owned()],
            ..Comparison::default()
        };
        let pacing = Pacing { soak: Some(Duration::from_secs(7200)), ..Preset::Full.pacing() };
        for (place, cell) in cells(Preset::Full, &pacing, 1).into_iter().enumerate() {
            let mut turns = Vec::new();
            for pair in 0..cell.pairs.min(5) {
                for target in 0..2 {
                    let mut latency = histogram();
                    (0..2000).for_each(|_| {
                        latency.saturating_record(500 * (1 + target as u64) + (random.f64().powi(6) * 9000.0) as u64)
                    });
                    let mut one = Measurement { pair, target, histogram: encode(&latency), ..Measurement::default() };
                    one.ack_class = ["written", "page-cache"][target].to_owned();
                    for metric in &cell.metrics {
                        one.numbers.insert(
                            metric.key().to_owned(),
                            (100.0 + place as f64) * (1.0 + target as f64) * (0.95 + 0.1 * random.f64()),
                        );
                    }
                    if cell.shape == Shape::Soak {
                        one.course = (1..=24)
                            .map(|at| Stretch {
                                seconds: f64::from(at) * 300.0,
                                p99_us: Some(700.0 + f64::from(at)),
                                rss_bytes: Some(9e8),
                            })
                            .collect();
                    }
                    one.numbers.insert(BYTES_PER_REQUEST.to_owned(), 1000.0 * (1 + place) as f64);
                    turns.push(one);
                }
            }
            let known = Known {
                names: ["ringlog", "kafka"],
                layout: "shared",
                rate: cell.share.map(|share| share * 1e5),
                lossy: if cell.key == "W19" { vec![(1, "3 LOST".to_owned())] } else { Vec::new() },
                commands: vec!["ringlog bench produce".to_owned(); 2],
                recorded: false,
            };
            comparison.cells.push(cell_report(&cell, known, turns));
        }
        comparison
    }

    #[test]
    fn a_page_needs_no_network_and_no_script_and_has_every_figure() {
        let page = page(&example());
        for foreign in ["http://", "https://", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for id in [
            "summary",
            "ratio-throughput",
            "ratio-latency",
            "ratio-cost",
            "ratio-rest",
            "load",
            "cost-by-size",
            "percentiles-shared-w4",
            "percentiles-shared-w21",
            "soak-latency",
            "soak-memory",
            "pairs",
            "notes",
            "not-covered",
            "again",
            "ceilings",
        ] {
            assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
        }
        assert!(page.contains("ringlog is the stricter one") && page.contains("floor: 9,000 cycles"));
        assert!(!page.contains("NaN") && !page.contains("inf×"));
        // The words of a soak: no verdict from its one pair, its course by the clock.
        assert!(
            page.contains("A soak is one pair") && page.contains("<td>1:40:00</td>") && page.contains("too few pairs")
        );
    }

    #[test]
    fn a_cell_that_may_not_be_quoted_is_in_no_figure() {
        let comparison = example();
        let page = page(&comparison);
        assert!(page.contains("no headline: records were lost") && page.contains("kafka broke its promise: 3 LOST"));
        let forest = page
            .split("<section id=\"ratio-throughput\"")
            .nth(1)
            .and_then(|rest| rest.split("</section>").next())
            .unwrap();
        assert!(forest.contains("W2") && !forest.contains("W19"));
    }

    #[test]
    fn words_from_outside_are_escaped() {
        let mut comparison = example();
        comparison.targets[1].name = "<img src=x>".to_owned();
        comparison.command = "a <b>".to_owned();
        comparison.notes.push("<script>".to_owned());
        let page = page(&comparison);
        assert!(!page.contains("<img") && !page.contains("<script"));
    }
}
