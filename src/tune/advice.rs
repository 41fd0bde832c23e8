//! What the measurements mean, in sentences a person would say.
//!
//! Pure. Owns the words and the judgement whether a gain was shown. Always true: a gain is stated with its interval, from pairs
//! measured beside each other; when none was shown, Kafka's defaults are what is recommended; what was held fixed is listed.

use serde::Serialize;

use super::effects::{AS_GOOD, Effect, Matters};
use super::goal::{Goal, Target};
use super::load::{Asked, Load};
use super::model;
use super::search::{End, LOOK_MISS, Search, Summary};
use super::space::{Knob, Point, Space};
use super::trial::{Facts, Measured};
use crate::bench::stats::{Interval, paired_ratio_missing};
use crate::bench::units;
use crate::config::client_rows::client_row;

/// Share of batches below which linger is said to play no part.
const HARDLY_EVER: f64 = 0.05;

/// What the pick does against Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The target's number at the pick over the one at the defaults: the geometric mean over the pairs, with its 95 % interval. After a
    /// search it is one of several looks: so wide that all of them hold the truth in 95 % of searches.
    pub ratio: Interval,
    /// Pairs it is from.
    pub pairs: usize,
    /// The share by which the pick is better; negative when it is worse.
    pub better: f64,
    /// Whether the interval lies on the good side of 1.
    pub shown: bool,
}

/// What is recommended, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Verdict {
    /// The pick, instead of the defaults.
    Change,
    /// The defaults: nothing better was shown.
    KeepDefaults,
    /// Nothing that was tried holds what must hold.
    NothingHolds,
}

/// The answer in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What is recommended.
    pub verdict: Verdict,
    /// The point to set: the defaults, when those are to be kept.
    #[serde(skip)]
    pub recommended: Point,
    /// The best point found, whether or not its gain was shown.
    #[serde(skip)]
    pub pick: Point,
    /// Against the defaults. `None` when the pick is the default, or no pairs were measured.
    pub gain: Option<Gain>,
    /// The answer in one sentence.
    pub headline: String,
    /// Why, what matters, how sure.
    pub sentences: Vec<String>,
    /// Name and value of what was not turned.
    pub held_fixed: Vec<(String, String)>,
}

/// The target's number as people read it.
pub fn number(goal: &Goal, value: f64) -> String {
    match goal.target {
        Target::Latency => units::micros(value),
        Target::Throughput => format!("{} MB/s", units::digits(value / 1e6)),
        Target::Cost => format!("{} ms of CPU per MB", units::digits(value)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Of pairs (pick, default), by the goal's number; `miss` is what the interval of one look may miss.
pub fn gain(goal: &Goal, pairs: &[(&Measured, &Measured)], miss: f64) -> Option<Gain> {
    let numbers: Vec<(f64, f64)> =
        pairs.iter().filter_map(|(pick, default)| Some((goal.number(pick)?, goal.number(default)?))).collect();
    let ratio = paired_ratio_missing(&numbers, miss)?;
    let (better, shown) =
        if goal.sign() > 0.0 { (ratio.value - 1.0, ratio.low > 1.0) } else { (1.0 - ratio.value, ratio.high < 1.0) };
    // Fewer than three pairs have intervals that say nothing.
    Some(Gain { ratio, pairs: numbers.len(), better, shown: shown && numbers.len() >= 3 })
}

/// The answer of a search. `None` when nothing was measured.
pub fn advise(
    search: &Search,
    end: End,
    asked: &Asked,
    facts: &Facts,
    effects: &[Effect],
    model: &model::Report,
) -> Option<Advice> {
    let (space, goal) = (&search.plan().space, &search.plan().goal);
    let summaries = search.summaries();
    let pick = search.pick()?;
    let default = space.default_point();
    let of = |point: &Point| summaries.iter().find(|summary| summary.point == *point);
    let best = of(&pick)?;
    let gain = (pick != default).then(|| gain(goal, &search.pairs(), LOOK_MISS)).flatten();
    let default_holds = of(&default).is_some_and(|summary| summary.standing.is_feasible());
    let verdict = match &gain {
        _ if !best.standing.is_feasible() => Verdict::NothingHolds,
        _ if pick == default => Verdict::KeepDefaults,
        _ if !default_holds => Verdict::Change,
        Some(gain) if gain.shown => Verdict::Change,
        _ => Verdict::KeepDefaults,
    };
    let recommended = if verdict == Verdict::KeepDefaults { default.clone() } else { pick.clone() };
    let mut words = Words { goal, space, load: &asked.load, facts, sentences: Vec::new() };
    let headline = words.headline(&verdict, best, of(&default), gain.as_ref(), default_holds);
    words.how_it_ended(search, end);
    words.batches(best);
    for effect in effects {
        words.effect(effect);
    }
    words.model(model, of(&recommended));
    words.doubts(search, best);
    let sentences = words.sentences;
    Some(Advice { verdict, recommended, pick, gain, headline, sentences, held_fixed: held_fixed(space, asked) })
}

struct Words<'a> {
    goal: &'a Goal,
    space: &'a Space,
    load: &'a Load,
    facts: &'a Facts,
    sentences: Vec<String>,
}

impl Words<'_> {
    fn say(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    fn at(&self, summary: &Summary) -> String {
        let name =
            if self.goal.target == Target::Latency { format!("{} ", self.goal.percentile()) } else { String::new() };
        self.goal
            .number(&summary.measured)
            .map_or_else(|| "not measured".to_owned(), |value| format!("{name}{}", number(self.goal, value)))
    }

    fn headline(
        &self,
        verdict: &Verdict,
        best: &Summary,
        default: Option<&Summary>,
        gain: Option<&Gain>,
        default_holds: bool,
    ) -> String {
        match verdict {
            Verdict::NothingHolds => {
                let must = if self.goal.slo.is_empty() { "the load".to_owned() } else { self.goal.slo.to_string() };
                format!(
                    "Nothing that was tried carries the load and holds {must}. The nearest miss is {} ({}, {} records/s).",
                    self.space.words(&best.point),
                    self.at(best),
                    units::count(best.measured.records_per_second)
                )
            }
            Verdict::KeepDefaults => self.keep(best, gain),
            Verdict::Change => {
                let mut text = self.change(best, default, gain);
                if !default_holds {
                    let must = if self.goal.slo.is_empty() {
                        "carry the load".to_owned()
                    } else {
                        format!("hold {}", self.goal.slo)
                    };
                    text.push_str(&format!(". The defaults do not {must}"));
                }
                text.push('.');
                text
            }
        }
    }

    fn keep(&self, best: &Summary, gain: Option<&Gain>) -> String {
        let pick = self.space.words(&best.point);
        match gain {
            None if best.point != self.space.default_point() => format!(
                "Keep Kafka's defaults for now: the best so far is {pick} ({}), but it was not measured beside them in pairs.",
                self.at(best)
            ),
            None => {
                format!("Keep Kafka's defaults ({pick}): nothing that was tried is better ({}).", self.at(best))
            }
            Some(gain) => format!(
                "Keep Kafka's defaults: no gain over them was shown. The best found is {pick}, at {:.2}× their {} (95 % interval {:.2} to {:.2}).",
                gain.ratio.value,
                self.goal.number_name(),
                gain.ratio.low,
                gain.ratio.high
            ),
        }
    }

    /// Without the full stop.
    fn change(&self, best: &Summary, default: Option<&Summary>, gain: Option<&Gain>) -> String {
        let mut text = format!("Set {}: {}", self.space.words(&best.point), self.at(best));
        if let Some(default) = default {
            text.push_str(&format!("; Kafka's defaults ({}): {}", self.space.short(&default.point), self.at(default)));
        }
        match gain {
            Some(gain) if gain.better >= 0.0 => {
                let (word, low, high) = if self.goal.sign() > 0.0 {
                    ("more", gain.ratio.low - 1.0, gain.ratio.high - 1.0)
                } else {
                    ("less", 1.0 - gain.ratio.high, 1.0 - gain.ratio.low)
                };
                text.push_str(&format!(
                    ". That is {} {word} (95 % interval {} to {}, from {} pairs)",
                    percent(gain.better),
                    percent(low),
                    percent(high),
                    gain.pairs
                ));
            }
            Some(_) => {}
            None => text.push_str(". No pairs were measured beside each other, so there is no interval"),
        }
        text
    }

    fn how_it_ended(&mut self, search: &Search, end: End) {
        let trials = search.records().len();
        let points = search.summaries().len();
        let of = format!("{trials} trials of {points} of {} settings", units::grouped(self.space.len() as u64));
        self.say(match end {
            End::NothingToGain => format!("After {of} nothing else is likely to be better by 2 %."),
            End::Budget => format!("The budget was used up after {of}; more time might find more."),
            End::Exhausted => format!("All settings worth trying were tried: {of}."),
            End::Interrupted => format!("Interrupted after {of}: what follows is from those; --resume goes on."),
        });
    }

    /// Why a batch leaves, at the pick.
    fn batches(&mut self, best: &Summary) {
        let measured = &best.measured;
        if measured.records_per_batch <= 0.0 {
            return;
        }
        let mut text = format!(
            "At {} a batch holds {} records and is {} full when it leaves",
            self.space.short(&best.point),
            units::digits(measured.records_per_batch),
            percent(measured.fill.min(1.0))
        );
        if let Some(share) = measured.linger_expired_share {
            if share < HARDLY_EVER {
                text.push_str("; hardly any waits for linger to pass, so a longer linger.ms would change nothing");
            } else if measured.fill < 0.5 {
                text.push_str(&format!(
                    "; {} leave because linger has passed, so a larger batch.size would change nothing",
                    percent(share)
                ));
            } else {
                text.push_str(&format!("; {} leave because linger has passed", percent(share)));
            }
        }
        text.push('.');
        self.say(text);
    }

    fn effect(&mut self, effect: &Effect) {
        let name = effect.name;
        let show = |value: u64| effect.knob.show(value);
        let target = self.goal.number_name();
        self.say(match effect.matters {
            Matters::No => format!("{name} does not matter here: at most {} of {target} over all values it was tried at.", percent(effect.at_most)),
            Matters::NotShown => format!(
                "Whether {name} matters was not shown: an effect of up to {} would be hidden by the noise of these trials.",
                percent(effect.at_most)
            ),
            Matters::Yes => {
                let (low, high) = effect.as_good;
                let flat = if !effect.knob.is_ordered() {
                    String::new()
                } else if low == high {
                    format!("; a step away from {} already costs more than {}", show(effect.pick), percent(AS_GOOD))
                } else {
                    format!("; from {} to {} it is as good within {}", show(low), show(high), percent(AS_GOOD))
                };
                let more = if self.goal.sign() > 0.0 { "its best value gives" } else { "its worst value costs" };
                format!(
                    "{name} matters: {more} {} more {target} than its {} with the rest as picked, {} more on average{flat}.",
                    percent(effect.at_pick),
                    if self.goal.sign() > 0.0 { "worst" } else { "best" },
                    percent(effect.on_average)
                )
            }
        });
    }

    fn model(&mut self, model: &model::Report, recommended: Option<&Summary>) {
        if let Some(cpu) = model.cpu.as_ref().filter(|part| part.is_good()) {
            let whose = if self.facts.broker_cost_known { "the broker" } else { "the client" };
            let terms: Vec<String> = cpu
                .terms
                .iter()
                .map(|term| format!("{} {} {}", units::digits(term.value), term.unit, term.of))
                .collect();
            let mut text = format!(
                "What {whose} pays: {} (off by {} on settings it was not fitted to)",
                terms.join(", "),
                percent(cpu.error)
            );
            let request = cpu.terms.iter().find(|term| term.name == "a");
            if let (Some(request), Some(summary)) = (request, recommended) {
                let measured = &summary.measured;
                let paid = measured.cpu_ms_per_mb().unwrap_or(0.0) * measured.bytes_per_second / 1e6;
                let share = request.value * measured.requests_per_second / 1e3 / paid.max(1e-9);
                if (0.0..=1.0).contains(&share) {
                    text.push_str(&format!("; {} of it goes into requests as such", percent(share)));
                }
            }
            text.push('.');
            self.say(text);
        }
        for remark in &model.remarks {
            self.say(format!("{}{}.", remark[..1].to_uppercase(), &remark[1..]));
        }
    }

    fn doubts(&mut self, search: &Search, best: &Summary) {
        if let Some(drift) = search.drift().shown() {
            let doubt = if drift > super::drift::DRIFT_MAX {
                " That is too much to be sure: repeat on a quieter host."
            } else {
                ""
            };
            self.say(format!(
                "The host drifted by {} while the default point was watched; comparisons are corrected for it.{doubt}",
                percent(drift)
            ));
        }
        if best.measured.client_bound {
            self.say(
                "The load generator, not the broker, was the limit at the pick: a faster client would find more."
                    .to_owned(),
            );
        }
        if self.goal.target == Target::Cost && !self.facts.broker_cost_known {
            self.say("The broker does not run on this host, so CPU is the client's own.".to_owned());
        }
        if self.goal.target == Target::Throughput && self.load.offered().is_some() {
            self.say(
                "At a fixed rate all settings that carry it have the same throughput; with --rate max the tuner looks for the most.".to_owned(),
            );
        }
        for note in best.measured.notes.iter().take(3) {
            self.say(note.clone());
        }
    }
}

fn held_fixed(space: &Space, asked: &Asked) -> Vec<(String, String)> {
    let (load, settings) = (&asked.load, &asked.connection.settings);
    let java = |name: &str| client_row(name).map_or_else(|| name.to_owned(), |row| row.row.name.to_owned());
    let given: Vec<String> = settings.keys().map(|name| java(name)).collect();
    let mut list: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| list.push((name.to_owned(), value));
    add("load", load.sentence());
    add("acks", load.acks.clone());
    for knob in Knob::ALL {
        let reads = knob != Knob::FetchMinBytes || load.consumers > 0;
        if !space.searches(knob) && reads {
            add(
                knob.name(),
                if knob == Knob::Partitions { load.partitions.to_string() } else { knob.word(space.held(knob)) },
            );
        }
    }
    let idempotence = if load.acks == "all" { "true" } else { "false" };
    for (name, value) in [("enable.idempotence", idempotence), ("buffer.memory", "33554432")] {
        if !given.iter().any(|given| given == name) {
            add(name, value.to_owned());
        }
    }
    // Knobs and acks are told above, whoever set them.
    for ((name, value), java) in settings.iter().zip(&given) {
        if java != "acks" && !Knob::ALL.iter().any(|knob| knob.name() == java) {
            add(name, value.clone());
        }
    }
    add("broker", "its settings and those of the host as they are".to_owned());
    if load.offered().is_none() {
        add(
            "outstanding",
            "each producer keeps twice max.in.flight batches outstanding, so that latency means something".to_owned(),
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(target: Target) -> Goal {
        Goal { target, slo: Default::default() }
    }

    fn at(p99_us: f64) -> Measured {
        Measured { p99_us, ..Measured::default() }
    }

    #[test]
    fn a_gain_is_shown_when_its_interval_says_so() {
        let (good, bad): (Vec<Measured>, Vec<Measured>) =
            (0..5).map(|index| (at(50.0 + f64::from(index)), at(100.0))).unzip();
        let pairs: Vec<(&Measured, &Measured)> = good.iter().zip(&bad).collect();
        let found = gain(&goal(Target::Latency), &pairs, LOOK_MISS).unwrap();
        assert!(found.shown && (0.45..0.52).contains(&found.better), "{found:?}");
        let swapped: Vec<(&Measured, &Measured)> = bad.iter().zip(&good).collect();
        assert!(!gain(&goal(Target::Latency), &swapped, LOOK_MISS).unwrap().shown);
        assert!(!gain(&goal(Target::Latency), &pairs[..2], LOOK_MISS).unwrap().shown, "two pairs show nothing");
        assert_eq!(gain(&goal(Target::Cost), &pairs, LOOK_MISS), None);
    }

    #[test]
    fn numbers_read_like_their_target() {
        assert_eq!(number(&goal(Target::Latency), 4100.0), "4.10 ms");
        assert_eq!(number(&goal(Target::Throughput), 250e6), "250 MB/s");
        assert_eq!(number(&goal(Target::Cost), 0.84), "0.840 ms of CPU per MB");
    }

    fn asked(settings: &[(&str, &str)]) -> Asked {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Asked {
            mode: "tune".to_owned(),
            bootstrap: String::new(),
            load: Load::default(),
            connection: crate::tune::load::Connection { settings, ..Default::default() },
            target: String::new(),
            slo: String::new(),
            space: String::new(),
            budget_seconds: 1,
            warmup_seconds: 1,
            seed: 1,
        }
    }

    #[test]
    fn what_was_given_is_listed_as_it_was_given() {
        let space = Space::new(&[Knob::Linger], 6).unwrap().holding(vec![(Knob::BatchSize, 65_536)]);
        let listed =
            held_fixed(&space, &asked(&[("batch.size", "65536"), ("buffer.memory", "99"), ("client.id", "x")]));
        for (name, value) in [("batch.size", "65536"), ("buffer.memory", "99"), ("client.id", "x")] {
            let found: Vec<&str> = listed.iter().filter(|pair| pair.0 == name).map(|pair| pair.1.as_str()).collect();
            assert_eq!(found, [value], "{name}");
        }
    }

    #[test]
    fn what_was_not_turned_is_listed() {
        let space = Space::new(&[Knob::BatchSize, Knob::Linger], 6).unwrap();
        let names: Vec<String> = held_fixed(&space, &asked(&[])).into_iter().map(|(name, _)| name).collect();
        for name in ["acks", "compression.type", "partitions", "outstanding"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(!names.iter().any(|name| name == "batch.size" || name == "fetch.min.bytes"));
    }
}
