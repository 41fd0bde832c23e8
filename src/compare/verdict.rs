//! From measured pairs to what may be said: faster, slower, or no difference shown.
//!
//! Pure. Owns the rules. Always true: a word of difference is said only when the 95 % interval of the paired ratio leaves 1 out and
//! there were at least [`PAIRS_MIN`] pairs; a rate the client limited is no win of a broker's; disturbed pairs are left out
//! only while enough others remain, never by their result.
//! Source: the paired design of the method rules; `bench::stats` for the arithmetic.

use super::metric::{Metric, Promise};
use super::report::{Finding, Measurement};
use crate::bench::stats::{self, Interval, median, paired_ratio};
use crate::bench::units;

/// Pairs below which nothing is claimed: an interval of fewer says more about luck.
pub const PAIRS_MIN: usize = 5;
/// Share of processor time a hypervisor may take before a pair counts as disturbed.
pub const STEAL_MAX: f64 = 0.02;
/// A target whose last pairs differ from its first by more than this is told to be still changing.
const TREND_MAX: f64 = 0.15;

/// Share of the offered rate from which on a load was carried, as `bench` says it.
const CARRIED_MIN: f64 = 0.97;

/// Turns of both targets that were taken one after the other.
pub type Pair<'a> = (&'a Measurement, &'a Measurement);

impl Finding {
    /// Whether the first target was shown to be better, worse, or neither.
    pub fn is_better(&self) -> Option<bool> {
        let metric = Metric::from_key(&self.metric)?;
        let (better, worse) = metric.words();
        (self.word == better).then_some(true).or_else(|| (self.word == worse).then_some(false))
    }

    /// The word as people read it.
    pub fn claim(&self) -> String {
        if self.at_least { format!("{}, at least", self.word) } else { self.word.clone() }
    }

    /// Takes back what it claims, for this reason.
    pub(super) fn withdraw(&mut self, why: &str) {
        why.clone_into(&mut self.word);
        self.at_least = false;
    }

    /// Whether its interval was asked for a difference, so that chance may have answered.
    pub fn is_tested(&self) -> bool {
        self.is_better().is_some() || self.word == NO_DIFFERENCE
    }

    /// The ends of the ratio's interval with what stands before, between and behind them; nothing for one pair, which has none.
    pub fn interval(&self, before: &str, between: &str, behind: &str) -> String {
        let ratio = self.ratio.filter(|_| self.pairs > 1);
        ratio.map_or_else(String::new, |ratio| format!("{before}{:.2}{between}{:.2}{behind}", ratio.low, ratio.high))
    }

    /// `ringlog faster than kafka: 1.84× [1.71, 1.97] the records per second`.
    pub fn sentence(&self, first: &str, second: &str) -> String {
        let Some(metric) = Metric::from_key(&self.metric) else { return String::new() };
        let ratio = self
            .ratio
            .map(|ratio| format!("{:.2}×{} the {}", ratio.value, self.interval(" [", ", ", "]"), metric.name()))
            .unwrap_or_default();
        match self.is_better() {
            Some(_) => {
                let at_least = if self.at_least { "at least " } else { "" };
                format!("{first} {} than {second}: {at_least}{ratio}", self.word)
            }
            None if ratio.is_empty() => format!("{}: {}", metric.name(), self.word),
            None => format!("{}: {ratio}", self.word),
        }
    }
}

/// The measured pairs, both turns of which have numbers, in order; disturbed ones left out while enough remain.
pub fn pairs(measurements: &[Measurement]) -> (Vec<Pair<'_>>, Vec<String>) {
    let good = |target: usize| measurements.iter().filter(move |one| one.target == target && one.error.is_empty());
    let mut pairs: Vec<Pair<'_>> =
        good(0).filter_map(|ours| Some((ours, good(1).find(|theirs| theirs.pair == ours.pair)?))).collect();
    pairs.sort_by_key(|(ours, _)| ours.pair);
    let mut notes = Vec::new();
    let disturbed = |pair: &&Pair<'_>| pair.0.steal > STEAL_MAX || pair.1.steal > STEAL_MAX;
    let count = pairs.iter().filter(disturbed).count();
    if count > 0 && pairs.len() - count >= PAIRS_MIN {
        pairs.retain(|pair| !disturbed(&pair));
        notes.push(format!(
            "{count} pair{} left out: the hypervisor took more than {:.0} % of the processors.",
            plural(count),
            STEAL_MAX * 100.0
        ));
    } else if count > 0 {
        notes.push(format!(
            "The hypervisor took more than {:.0} % of the processors in {count} of {} pairs, too many to leave out.",
            STEAL_MAX * 100.0,
            pairs.len()
        ));
    }
    (pairs, notes)
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The word of an interval that holds 1.
const NO_DIFFERENCE: &str = "no difference shown";

/// What limits a rate beside the broker.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// The client was the limit of this target in most pairs.
    client: [bool; 2],
    /// What was offered was carried by both.
    offer: bool,
}

impl Limits {
    fn of(pairs: &[Pair<'_>], offered: Option<f64>) -> Self {
        let most = |count: usize| count * 2 > pairs.len();
        let carried = |rate: f64| {
            (0..2).all(|target| {
                let rates = pairs.iter().filter_map(|pair| of(pair, target).number(Metric::Records.key()));
                median(&rates.collect::<Vec<_>>()).is_some_and(|carried| carried >= rate * CARRIED_MIN)
            })
        };
        Self { client: [0, 1].map(|target| most(client_bound(pairs, target))), offer: offered.is_some_and(carried) }
    }

    /// The word for a rate whose ratio says nothing of the brokers, and else whether the one that is ahead was held back.
    fn judge(self, metric: Metric, ratio: &Interval) -> (Option<&'static str>, bool) {
        let differs = stats::finding(ratio) != stats::Finding::NoDifferenceShown;
        let slower = usize::from(ratio.value > 1.0);
        match self.client {
            _ if !metric.is_rate() => (None, false),
            // The generator's schedule is the same for both, to the record.
            _ if self.offer && metric.is_offered() && (ratio.value - 1.0).abs() <= 1.0 - CARRIED_MIN => {
                (Some("as offered"), false)
            }
            // Either may be the slower one where none was shown to be.
            [ours, theirs] if !differs => ((ours || theirs).then_some("client-bound"), false),
            bound if bound[slower] => (Some("client-bound"), false),
            bound => (None, bound[1 - slower]),
        }
    }
}

/// Pairs in which the client was the limit of a target.
fn client_bound(pairs: &[Pair<'_>], target: usize) -> usize {
    pairs.iter().filter(|pair| of(pair, target).client_bound).count()
}

fn of<'a>(pair: &Pair<'a>, target: usize) -> &'a Measurement {
    if target == 0 { pair.0 } else { pair.1 }
}

/// What may be said of each metric; `offered` records per second, where the load was not as much as the broker takes.
pub fn findings(metrics: &[Metric], measurements: &[Measurement], offered: Option<f64>) -> (Vec<Finding>, Vec<String>) {
    let (pairs, mut notes) = pairs(measurements);
    let limits = Limits::of(&pairs, offered);
    for (target, which) in ["The first target", "The second target"].into_iter().enumerate() {
        if limits.client[target] {
            let (bound, all) = (client_bound(&pairs, target), pairs.len());
            notes.push(format!("{which} was client-bound in {bound} of {all} pairs: its rate is the client's as much as its own; processor time per unit still compares."));
        }
    }
    let findings: Vec<Finding> = metrics.iter().map(|metric| finding(*metric, &pairs, limits)).collect();
    notes.extend(metrics.iter().zip(&findings).filter_map(|(metric, found)| left_out(*metric, found, pairs.len())));
    let telling = |place: usize, metric: Metric| {
        place == 0 || matches!(metric, Metric::CpuPerMb | Metric::CpuPerRequest | Metric::CpuPerThousand)
    };
    for (_, metric) in metrics.iter().enumerate().filter(|(place, metric)| telling(*place, **metric)) {
        notes.extend((0..2).filter_map(|target| trend(*metric, &pairs, target)));
    }
    (findings, notes)
}

/// What is said of pairs without a number (or with a zero, which has no ratio) that others of them have.
fn left_out(metric: Metric, found: &Finding, pairs: usize) -> Option<String> {
    let missing = pairs.saturating_sub(found.pairs as usize);
    (missing > 0 && (found.pairs > 0 || metric.is_rate())).then(|| {
        let name = metric.name();
        format!("{missing} of {pairs} pairs are not in the ratio of {name}: it was zero, or not measured, in one of their turns.")
    })
}

fn finding(metric: Metric, pairs: &[Pair<'_>], limits: Limits) -> Finding {
    let values: Vec<(f64, f64)> = pairs
        .iter()
        .filter_map(|(ours, theirs)| Some((ours.number(metric.key())?, theirs.number(metric.key())?)))
        .collect();
    let of = |pick: fn(&(f64, f64)) -> f64| median(&values.iter().map(pick).collect::<Vec<_>>());
    let ratio = paired_ratio(&values);
    let used = values.iter().filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0).count();
    let (better, worse) = metric.words();
    let (limited, held_back) = ratio.as_ref().map_or((None, false), |ratio| limits.judge(metric, ratio));
    let word = match (&ratio, limited) {
        (None, _) => "not measured",
        (Some(_), _) if used < PAIRS_MIN => "too few pairs",
        (Some(_), Some(limited)) => limited,
        (Some(ratio), None) => match (stats::finding(ratio), metric.more_is_better()) {
            (stats::Finding::NoDifferenceShown, _) => NO_DIFFERENCE,
            (stats::Finding::Higher, true) | (stats::Finding::Lower, false) => better,
            _ => worse,
        },
    };
    Finding {
        metric: metric.key().to_owned(),
        medians: of(|pair| pair.0).into_iter().chain(of(|pair| pair.1)).collect(),
        ratio,
        pairs: u32::try_from(used).unwrap_or(u32::MAX),
        word: word.to_owned(),
        at_least: held_back && used >= PAIRS_MIN,
    }
}

/// Whether a target was still getting faster (or slower) while it was measured.
fn trend(metric: Metric, pairs: &[Pair<'_>], target: usize) -> Option<String> {
    let values: Vec<f64> =
        pairs.iter().filter_map(|pair| of(pair, target).number(metric.key())).filter(|value| *value > 0.0).collect();
    let third = values.len() / 3;
    if values.len() < PAIRS_MIN || third == 0 {
        return None;
    }
    let (first, last) = (median(&values[..third])?, median(&values[values.len() - third..])?);
    let growth = last / first - 1.0;
    (growth.abs() > TREND_MAX).then(|| {
        let which = if target == 0 { "The first target" } else { "The second target" };
        format!(
            "{which} was still changing: its {} moved by {:+.0} % from the first pairs to the last.",
            metric.name(),
            growth * 100.0
        )
    })
}

/// Whether what two targets promise may be compared, and the sentence that belongs beside the numbers.
pub fn classes(names: [&str; 2], classes: [&str; 2]) -> (bool, String) {
    let promises = classes.map(Promise::of);
    let [ours, theirs] = promises;
    let said = format!("{}: {}; {}: {}.", names[0], classes[0], names[1], classes[1]);
    match (ours, theirs) {
        (Promise::Unknown, _) | (_, Promise::Unknown) => (
            true,
            format!(
                "{said} At least one broker does not say what its acknowledgement means: whether they promise the same is not known."
            ),
        ),
        _ if ours == theirs && classes[0] == classes[1] => (true, format!("{said} Both promise the same.")),
        _ if ours == theirs && ours == Promise::SurvivesKill => {
            let stricter = if classes[0] == "written" { names[0] } else { names[1] };
            (
                true,
                format!(
                    "{said} Both survive a killed broker and neither a power loss; {stricter} is the stricter one: it answers after the \
                     write has reached the device, the other while it is in the kernel's memory."
                ),
            )
        }
        _ if ours == theirs => {
            (true, format!("{said} Both promise the same by different names: synced to the device."))
        }
        _ => (
            false,
            format!(
                "{said} They do NOT promise the same ({} against {}): a faster number of the weaker one is no win.",
                ours.words(),
                theirs.words()
            ),
        ),
    }
}

/// The limits of the host that moved by more than 15 % between two looks at them.
pub fn drift(ceilings: &[crate::bench::report::Ceilings]) -> Option<String> {
    let worst = ceilings.windows(2).map(|two| two[0].drift(&two[1])).fold(0.0, f64::max);
    (worst > crate::bench::assemble::DRIFT_MAX).then(|| {
        format!(
            "What this host can do changed by up to {:.0} % between two rounds (other load, or a noisy hypervisor). Pairs are measured \
             back to back, so that slow changes cancel in the ratios; absolute numbers are those of a disturbed host.",
            worst * 100.0
        )
    })
}

/// A number as its metric is read.
pub fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Records | Metric::Requests => format!("{}/s", units::count(value)),
        Metric::Bytes | Metric::Egress | Metric::NoiseBytes => format!("{}/s", units::bytes(value)),
        Metric::P50 | Metric::P99 | Metric::P999 | Metric::P99Alone => units::micros(value),
        Metric::CpuPerMb | Metric::SystemCpuPerMb => format!("{} ms/MB", units::digits(value)),
        Metric::CpuPerRequest => format!("{} µs", units::digits(value)),
        Metric::CpuPerThousand => format!("{} ms", units::digits(value)),
        Metric::CpuShare => format!("{} %", units::digits(value * 100.0)),
        Metric::Rss => units::bytes(value),
        Metric::WriteAmplification
        | Metric::NoiseInflation
        | Metric::DeletionStep
        | Metric::LatencyDrift
        | Metric::MemoryDrift => format!("{}×", units::digits(value)),
        Metric::Switches => format!("{}/s", units::count(value)),
        Metric::Seconds | Metric::Outage => units::micros(value * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(target: usize, pair: u32, records: f64) -> Measurement {
        Measurement {
            target,
            pair,
            numbers: [("records_per_second".to_owned(), records)].into(),
            ..Measurement::default()
        }
    }

    fn turns(values: &[(f64, f64)]) -> Vec<Measurement> {
        let pairs = values.iter().zip(0..);
        pairs.flat_map(|((ours, theirs), pair)| [measured(0, pair, *ours), measured(1, pair, *theirs)]).collect()
    }

    fn word(measurements: &[Measurement]) -> String {
        findings(&[Metric::Records], measurements, None).0[0].word.clone()
    }

    #[test]
    fn a_difference_is_said_only_when_the_interval_leaves_one_out() {
        let clear = [(20.0, 10.0), (21.0, 10.0), (19.0, 10.0), (20.0, 10.5), (20.5, 10.0)];
        assert_eq!(word(&turns(&clear)), "faster");
        assert_eq!(word(&turns(&clear.map(|(ours, theirs)| (theirs, ours)))), "slower");
        assert_eq!(
            word(&turns(&[(10.0, 11.0), (11.0, 10.0), (10.0, 10.0), (10.2, 10.0), (9.9, 10.0)])),
            "no difference shown"
        );
    }

    #[test]
    fn fewer_than_five_pairs_claim_nothing_and_a_pair_needs_both_turns() {
        assert_eq!(word(&turns(&[(20.0, 10.0); 4])), "too few pairs");
        let mut broken = turns(&[(20.0, 10.0); 5]);
        broken[3].error = "the broker died".to_owned();
        assert_eq!(word(&broken), "too few pairs");
        assert_eq!(word(&[]), "not measured");
    }

    #[test]
    fn a_rate_the_client_limited_is_no_win_but_its_cost_is() {
        let mut all = turns(&[(20.0, 10.0); 5]);
        for one in &mut all {
            one.client_bound = true;
            one.numbers.insert("cpu_ms_per_mb".to_owned(), if one.target == 0 { 1.0 } else { 3.0 });
        }
        let (findings, notes) = findings(&[Metric::Records, Metric::CpuPerMb], &all, None);
        assert_eq!((findings[0].word.as_str(), findings[1].word.as_str()), ("client-bound", "cheaper"));
        assert!(notes[0].contains("The first target was client-bound in 5 of 5"), "{notes:?}");
        assert_eq!(findings[1].is_better(), Some(true));
    }

    #[test]
    fn a_client_that_held_only_the_faster_one_back_takes_no_difference_away() {
        let bound = |values: &[(f64, f64)], targets: &[usize]| {
            let mut all = turns(values);
            all.iter_mut().for_each(|one| one.client_bound = targets.contains(&one.target));
            let found = findings(&[Metric::Records], &all, None).0.remove(0);
            (found.claim(), found.is_better(), found.sentence("a", "b"))
        };
        let (claim, better, sentence) = bound(&[(20.0, 10.0); 5], &[0]);
        assert_eq!((claim.as_str(), better), ("faster, at least", Some(true)));
        assert!(sentence.starts_with("a faster than b: at least 2.00×"), "{sentence}");
        assert_eq!(bound(&[(10.0, 20.0); 5], &[1]).0, "slower, at least");
        assert_eq!(bound(&[(20.0, 10.0); 5], &[1]).0, "client-bound");
        assert_eq!(bound(&[(20.0, 10.0); 5], &[0, 1]).0, "client-bound");
        let same = [(10.0, 11.0), (11.0, 10.0), (10.0, 10.0), (10.2, 10.0), (9.9, 10.0)];
        assert_eq!(bound(&same, &[0]).0, "client-bound");
    }

    #[test]
    fn a_rate_that_was_offered_and_carried_by_both_is_no_win() {
        let mut all = turns(&[(100.0, 100.1), (100.0, 100.1), (100.0, 100.2), (100.0, 100.1), (100.0, 100.1)]);
        for one in &mut all {
            one.numbers.insert(Metric::NoiseBytes.key().to_owned(), if one.target == 0 { 2.0 } else { 1.0 });
        }
        let words = |all: &[Measurement], offered| {
            let found = findings(&[Metric::Records, Metric::NoiseBytes], all, offered).0;
            found.into_iter().map(|found| found.word).collect::<Vec<_>>()
        };
        assert_eq!(words(&all, None), ["slower", "faster"]);
        assert_eq!(words(&all, Some(100.0)), ["as offered", "faster"], "the noise is as fast as answers come");
        assert_eq!(words(&all, Some(150.0))[0], "slower", "it was not carried");
    }

    #[test]
    fn pairs_without_a_number_are_told() {
        let mut all = turns(&[(20.0, 10.0); 6]);
        all[3].numbers.clear();
        let (found, notes) = findings(&[Metric::Records, Metric::CpuPerMb], &all, None);
        assert_eq!((found[0].pairs, found[0].word.as_str()), (5, "faster"));
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("1 of 6 pairs are not in the ratio of records per second"), "{notes:?}");
    }

    #[test]
    fn disturbed_pairs_go_while_enough_remain() {
        let mut all = turns(&[(20.0, 10.0); 7]);
        all[0].steal = 0.5;
        let (kept, notes) = pairs(&all);
        assert_eq!(kept.len(), 6);
        assert!(notes[0].contains("1 pair left out"));
        all[2].steal = 0.5;
        all[4].steal = 0.5;
        let (kept, notes) = pairs(&all);
        assert_eq!(kept.len(), 7);
        assert!(notes[0].contains("3 of 7"));
    }

    #[test]
    fn a_target_that_still_warms_up_is_told() {
        let warming = [(10.0, 10.0), (10.0, 12.0), (10.0, 14.0), (10.0, 16.0), (10.0, 18.0), (10.0, 20.0)];
        let (_, notes) = findings(&[Metric::Records], &turns(&warming), None);
        assert!(notes.iter().any(|note| note.starts_with("The second target was still changing")), "{notes:?}");
    }

    #[test]
    fn classes_are_never_crossed_without_a_sentence() {
        let judge = |ours, theirs| classes(["ringlog", "kafka"], [ours, theirs]);
        let (fair, words) = judge("written", "page-cache");
        assert!(fair && words.contains("ringlog is the stricter one"), "{words}");
        let (fair, words) = judge("flushed", "flush-each");
        assert!(fair && words.contains("synced to the device"), "{words}");
        for (ours, theirs) in [
            ("written", "flush-each"),
            ("flushed", "page-cache"),
            ("memory", "page-cache"),
            ("written", "flush-every-10"),
        ] {
            let (fair, words) = judge(ours, theirs);
            assert!(!fair && words.contains("NOT promise the same"), "{words}");
        }
        assert!(judge("written", "unknown").1.contains("not known"));
        assert!(judge("none", "none").0);
    }

    #[test]
    fn sentences_say_who_what_and_how_sure() {
        let (findings, _) = findings(&[Metric::Records], &turns(&[(20.0, 10.0); 5]), None);
        assert_eq!(
            findings[0].sentence("ringlog", "kafka"),
            "ringlog faster than kafka: 2.00× [2.00, 2.00] the records per second"
        );
        let (findings, _) = super::findings(&[Metric::Records], &turns(&[(20.0, 10.0)]), None);
        assert_eq!(findings[0].sentence("ringlog", "kafka"), "too few pairs: 2.00× the records per second");
    }

    #[test]
    fn drift_of_the_host_is_told() {
        let ceilings =
            |disk| crate::bench::report::Ceilings { disk_write_bytes_per_second: disk, ..Default::default() };
        assert_eq!(drift(&[ceilings(100.0), ceilings(95.0)]), None);
        assert!(drift(&[ceilings(100.0), ceilings(95.0), ceilings(50.0)]).unwrap().contains("47 %"));
    }
}
