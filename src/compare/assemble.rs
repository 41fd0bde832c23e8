//! From the journal's turns to the comparison: cells with their findings, classes and notes.
//!
//! Pure. Owns how turns become a cell's report. Always true: a cell one target lost records in is lossy and says nothing of speed;
//! one whose targets promise different things is crossed, and says so; latency histograms are added, never averaged.

use super::metric::Metric;
use super::presets::{Cell, Shape};
use super::report::{CellReport, Measurement, State};
use super::verdict;
use crate::bench::recorder::{decode, encode};
use crate::bench::schedule::Rate;

/// What is known of a cell beside its turns.
pub(super) struct Known<'a> {
    /// Names of the targets.
    pub(super) names: [&'a str; 2],
    /// `shared` or `pinned`.
    pub(super) layout: &'a str,
    /// Records per second offered, where they are a share of a maximum.
    pub(super) rate: Option<f64>,
    /// What the unmeasured round found missing, by target.
    pub(super) lossy: Vec<(usize, String)>,
    /// The calls that do it alone.
    pub(super) commands: Vec<String>,
    /// The second target's numbers are those of an earlier comparison (or the first's).
    pub(super) recorded: bool,
}

/// The report of a cell.
pub(super) fn cell_report(cell: &Cell, known: Known<'_>, measurements: Vec<Measurement>) -> CellReport {
    let names = known.names;
    let offered = known.rate.or(match cell.plan.rate {
        Rate::Fixed(rate) => Some(rate),
        Rate::Max | Rate::Ramp(..) => None,
    });
    let (mut findings, notes_of_findings) = verdict::findings(&cell.metrics, &measurements, offered);
    let classes = [0, 1].map(|target| class(&measurements, target));
    let asked = classes.iter().all(|class| !class.is_empty());
    let (fair, sentence) =
        if asked { verdict::classes(names, [&classes[0], &classes[1]]) } else { (true, String::new()) };
    let mut lossy: Vec<(usize, String)> = known.lossy;
    lossy.extend(measurements.iter().filter(|one| !one.lossy.is_empty()).map(|one| (one.target, one.lossy.clone())));
    lossy.dedup();
    let state = state(&lossy, fair, &measurements);
    if let Some(why) = why_no_headline(state) {
        findings.iter_mut().for_each(|finding| finding.withdraw(why));
    }
    // The last loss told is the first note.
    let mut notes: Vec<String> = lossy
        .iter()
        .rev()
        .map(|(target, why)| format!("{} broke its promise: {why}.", names.get(*target).unwrap_or(&"?")))
        .collect();
    notes.extend(notes_of_findings);
    notes.extend([0, 1].into_iter().filter_map(|target| turns_without_numbers(names[target], target, &measurements)));
    if cell.shape == Shape::Soak {
        notes.push(
            "A soak is one pair: it shows how each target held out, and no difference is claimed from it.".to_owned(),
        );
    }
    if known.recorded {
        notes.push("One side is recorded: the pairs were not measured back to back, so what changed on the host between the two days is in the ratios.".to_owned());
    }
    notes.iter_mut().for_each(|note| name_targets(note, names));
    let histograms = if cell.metrics.contains(&Metric::P99) {
        vec![merged(&measurements, 0), merged(&measurements, 1)]
    } else {
        vec![String::new(); 2]
    };
    CellReport {
        key: cell.key.clone(),
        workload: cell.workload.to_owned(),
        name: cell.name.clone(),
        load: cell.load.clone(),
        layout: known.layout.to_owned(),
        seconds: Some(cell.plan.duration.as_secs_f64()),
        offered,
        offered_share: cell.share,
        classes: classes.to_vec(),
        class_sentence: sentence,
        client: cell.plan.client_facts(),
        commands: known.commands,
        state,
        lossy: [0, 1].map(|target| loss(&lossy, target)).to_vec(),
        measurements: measurements.into_iter().map(|one| Measurement { histogram: String::new(), ..one }).collect(),
        findings,
        histograms,
        notes,
    }
}

/// Whether the numbers may be quoted; `fair` when both targets promise what may be compared.
fn state(lossy: &[(usize, String)], fair: bool, measurements: &[Measurement]) -> State {
    let has_numbers = |target: usize| measurements.iter().any(|one| one.target == target && one.error.is_empty());
    if !lossy.is_empty() {
        State::Lossy
    } else if !(has_numbers(0) && has_numbers(1)) {
        State::Failed
    } else if !fair {
        State::Crossed
    } else {
        State::Valid
    }
}

/// What stands in place of a claim where none may be made.
fn why_no_headline(state: State) -> Option<&'static str> {
    match state {
        // A number of a broker that loses records is no number.
        State::Lossy => Some("no headline: records were lost"),
        State::Crossed => Some("not comparable: different promises"),
        State::Failed | State::Valid => None,
    }
}

fn turns_without_numbers(name: &str, target: usize, measurements: &[Measurement]) -> Option<String> {
    let failed = || measurements.iter().filter(move |one| one.target == target && !one.error.is_empty());
    let first = &failed().next()?.error;
    Some(format!("{name}: {} turn(s) without numbers: {first}", failed().count()))
}

/// The verdict knows targets by their place; readers know them by name.
fn name_targets(note: &mut String, names: [&str; 2]) {
    for (words, name) in [("The first target", names[0]), ("The second target", names[1])] {
        if note.starts_with(words) {
            *note = note.replacen(words, name, 1);
        }
    }
}

/// What acknowledgements of a target meant; the weakest word when turns differ.
fn class(measurements: &[Measurement], target: usize) -> String {
    let mut classes: Vec<&str> = measurements
        .iter()
        .filter(|one| one.target == target && !one.ack_class.is_empty())
        .map(|one| one.ack_class.as_str())
        .collect();
    classes.sort_unstable();
    classes.dedup();
    classes.join(" or ")
}

/// What was first found wrong with a target's records.
fn loss(lossy: &[(usize, String)], target: usize) -> String {
    lossy.iter().find(|(of, _)| *of == target).map(|(_, why)| why.clone()).unwrap_or_default()
}

/// Histograms of a target added up; empty where there is none.
fn merged(measurements: &[Measurement], target: usize) -> String {
    let mut all = crate::bench::recorder::histogram();
    for one in measurements.iter().filter(|one| one.target == target && !one.histogram.is_empty()) {
        if let Ok(histogram) = decode(&one.histogram) {
            // All have the bounds of `histogram()`; one of another tool's that does not fit is left out.
            _ = all.add(&histogram);
        }
    }
    if all.is_empty() { String::new() } else { encode(&all) }
}

/// Turns of a recorded comparison that stand for this cell's, as `target`'s. What lost records then has lost them.
pub(super) fn recorded_turns(
    recorded: &super::report::Comparison,
    place: usize,
    cell: &Cell,
    layout: &str,
    target: usize,
) -> (Vec<Measurement>, Option<f64>) {
    let seconds = Some(cell.plan.duration.as_secs_f64());
    let same = |found: &&CellReport| {
        found.key == cell.key && found.layout == layout && found.load == cell.load && found.seconds == seconds
    };
    let Some(found) = recorded.cells.iter().find(same) else { return (Vec::new(), None) };
    let lost = found.lossy.get(place).filter(|_| found.state == State::Lossy);
    let turns = found.measurements.iter().filter(|one| one.target == place).map(|one| {
        let lossy = lost.filter(|_| one.lossy.is_empty()).unwrap_or(&one.lossy).clone();
        Measurement { target, lossy, ..one.clone() }
    });
    let mut turns: Vec<Measurement> = turns.collect();
    if let (Some(first), Some(histogram)) = (turns.first_mut(), found.histograms.get(place)) {
        // The sum of all is kept once; adding it up again gives itself.
        first.histogram = histogram.clone();
    }
    (turns, found.offered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::presets::{Preset, cells};
    use crate::compare::report::Comparison;

    fn cell(key: &str) -> Cell {
        cells(Preset::Quick, &Preset::Quick.pacing(), 1).into_iter().find(|cell| cell.key == key).unwrap()
    }

    fn known() -> Known<'static> {
        Known {
            names: ["ringlog", "kafka"],
            layout: "shared",
            rate: None,
            lossy: Vec::new(),
            commands: Vec::new(),
            recorded: false,
        }
    }

    fn turns(classes: [&str; 2]) -> Vec<Measurement> {
        let mut latency = crate::bench::recorder::histogram();
        latency.saturating_record(700);
        let turn = |pair: u32, target: usize| Measurement {
            pair,
            target,
            ack_class: classes[target].to_owned(),
            numbers: [
                ("records_per_second".to_owned(), 10.0 * (2.0 - target as f64)),
                ("bytes_per_second".to_owned(), 5.0),
            ]
            .into(),
            histogram: encode(&latency),
            ..Measurement::default()
        };
        (0..5).flat_map(|pair| [turn(pair, 0), turn(pair, 1)]).collect()
    }

    #[test]
    fn a_cell_says_who_is_faster_and_what_was_promised() {
        let report = cell_report(&cell("W1"), known(), turns(["written", "page-cache"]));
        assert_eq!((report.state, report.findings[0].word.as_str()), (State::Valid, "faster"));
        assert!(report.class_sentence.contains("ringlog is the stricter one"));
        assert_eq!(decode(&report.histograms[1]).unwrap().len(), 5);
        assert!(report.measurements.iter().all(|one| one.histogram.is_empty()), "the sum is kept once");
    }

    #[test]
    fn a_target_that_loses_records_gets_no_headline() {
        let known = Known { lossy: vec![(1, "3 LOST".to_owned())], ..known() };
        let report = cell_report(&cell("W1"), known, turns(["written", "page-cache"]));
        assert_eq!(report.state, State::Lossy);
        assert!(report.findings.iter().all(|finding| finding.is_better().is_none()));
        assert!(report.notes[0].contains("kafka broke its promise: 3 LOST"));
    }

    #[test]
    fn crossed_promises_are_no_comparison() {
        let report = cell_report(&cell("W1"), known(), turns(["written", "flush-each"]));
        assert_eq!(report.state, State::Crossed);
        assert!(report.findings[0].word.contains("not comparable"));
        assert!(report.class_sentence.contains("NOT promise the same"));
    }

    #[test]
    fn turns_without_numbers_are_told_and_a_target_without_any_failed() {
        let mut measured = turns(["written", "page-cache"]);
        for one in measured.iter_mut().filter(|one| one.target == 1) {
            one.error = "connection refused".to_owned();
        }
        let report = cell_report(&cell("W1"), known(), measured);
        assert_eq!(report.state, State::Failed);
        assert!(
            report.notes.iter().any(|note| note.contains("kafka: 5 turn(s) without numbers: connection refused")),
            "{:?}",
            report.notes
        );
    }

    #[test]
    fn recorded_turns_are_those_of_the_same_load() {
        let mut recorded = Comparison::default();
        recorded.cells.push(cell_report(&cell("W1"), known(), turns(["written", "page-cache"])));
        let (found, _) = recorded_turns(&recorded, 1, &cell("W1"), "shared", 0);
        assert!(found.len() == 5 && found.iter().all(|one| one.target == 0 && one.ack_class == "page-cache"));
        assert_eq!(decode(&merged(&found, 0)).unwrap().len(), 5);
        assert!(recorded_turns(&recorded, 1, &cell("W1"), "pinned", 0).0.is_empty());
        let other = Cell { load: "something else".to_owned(), ..cell("W1") };
        assert!(recorded_turns(&recorded, 1, &other, "shared", 0).0.is_empty());
        let mut longer = cell("W1");
        longer.plan.duration *= 2;
        assert!(recorded_turns(&recorded, 1, &longer, "shared", 0).0.is_empty());
    }

    #[test]
    fn a_recorded_target_that_lost_records_has_lost_them() {
        let known = || Known { lossy: vec![(1, "3 LOST".to_owned())], ..known() };
        let mut recorded = Comparison::default();
        recorded.cells.push(cell_report(&cell("W1"), known(), turns(["written", "page-cache"])));
        let (of_the_loser, _) = recorded_turns(&recorded, 1, &cell("W1"), "shared", 1);
        assert!(of_the_loser.iter().all(|one| one.lossy == "3 LOST"));
        let (of_the_other, _) = recorded_turns(&recorded, 0, &cell("W1"), "shared", 0);
        assert!(of_the_other.iter().all(|one| one.lossy.is_empty()));
        let again = Known { lossy: Vec::new(), ..known() };
        assert_eq!(cell_report(&cell("W1"), again, of_the_loser).state, State::Lossy);
    }

    #[test]
    fn a_load_that_was_offered_and_carried_has_no_winner() {
        let known = Known { rate: Some(10.0), ..known() };
        let mut measured = turns(["written", "page-cache"]);
        measured.iter_mut().for_each(|one| {
            one.numbers.insert("records_per_second".to_owned(), 10.0 + 0.01 * one.target as f64);
        });
        let report = cell_report(&cell("W1"), known, measured);
        assert_eq!(report.findings[0].word, "as offered");
    }
}
