//! Which knobs matter, by how much, and how far each can be turned without harm.
//!
//! Pure. Owns the effect of one knob: on average over what was tried, and at the pick. Always true: a knob is said to matter only
//! when the trials cannot be explained without it; "does not matter" always comes with how much it could be at most.
//! Source: partial dependence (Friedman) over the surrogate of the search.

use super::search::{Search, Summary};
use super::space::Knob;
use super::surrogate::Surrogate;

/// Worse by less than this is as good.
pub const AS_GOOD: f64 = 0.05;
/// Log likelihood that a knob must add to the explanation of the trials to be more than an accident.
const EVIDENCE_MIN: f64 = 2.0;
/// An effect that could be this large at most is said not to matter; beyond, it is only "not shown".
const HARMLESS: f64 = 0.10;

/// What may be said of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matters {
    /// It does.
    Yes,
    /// It does not, as far as anybody will notice.
    No,
    /// The trials were too few or too noisy to tell.
    NotShown,
}

/// What one knob does to the target's number.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Effect {
    /// Kafka's name.
    pub name: &'static str,
    /// Which.
    #[serde(skip)]
    pub knob: Knob,
    /// Between its best and its worst level on average over the rest, as a share: 0.5 is half as much again.
    pub on_average: f64,
    /// The same with everything else at the pick.
    pub at_pick: f64,
    /// The effect may be larger than it looks, but not beyond this.
    pub at_most: f64,
    /// The verdict.
    pub matters: Matters,
    /// Each level with how much worse than the best level it is on average, as a share.
    pub levels: Vec<(u64, f64)>,
    /// The pick's level.
    pub pick: u64,
    /// The smallest and the largest level around the pick that are as good within [`AS_GOOD`].
    pub as_good: (u64, u64),
}

/// Of every knob of the search, the greatest first. Empty while there is nothing to go by.
pub fn effects(search: &Search) -> Vec<Effect> {
    let (Some((value, excess)), Some(pick)) = (search.surrogate(), search.pick()) else { return Vec::new() };
    let summaries = search.summaries();
    let space = &search.plan().space;
    let weight: f64 = summaries.iter().map(Summary::weight).sum();
    let mut effects: Vec<Effect> = (0..space.factors.len())
        .map(|index| {
            let factor = &space.factors[index];
            let at = |point: &[usize], level: usize| {
                let mut moved = point.to_vec();
                moved[index] = level;
                moved
            };
            let average = |level: usize| {
                let values = summaries.iter().map(|summary| value.mean(&at(&summary.point, level)));
                values.sum::<f64>() / summaries.len() as f64
            };
            let averages: Vec<f64> = (0..factor.levels.len()).map(average).collect();
            let local: Vec<f64> = (0..factor.levels.len()).map(|level| value.mean(&at(&pick, level))).collect();
            let (wide, narrow) = (width(&averages), width(&local));
            let error = value.noise() * (2.0 * factor.levels.len() as f64 / weight.max(1.0)).sqrt();
            let most = wide.max(narrow);
            let explains = value.evidence(index) >= EVIDENCE_MIN && most > 1.5 * super::search::WORTH_IT;
            // What is not explained by the knob is judged where it would be used: far from the pick nobody goes.
            let at_most = (if explains { most } else { narrow } + 2.0 * error).exp() - 1.0;
            let matters = match at_most {
                _ if explains => Matters::Yes,
                at_most if at_most <= HARMLESS => Matters::No,
                _ => Matters::NotShown,
            };
            let best = averages.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let levels = factor.levels.iter().zip(&averages).map(|(level, value)| (*level, (best - value).exp() - 1.0));
            let (low, high) = as_good(&local, &excess, pick[index], |level| at(&pick, level));
            Effect {
                name: factor.knob.name(),
                knob: factor.knob,
                on_average: wide.exp() - 1.0,
                at_pick: narrow.exp() - 1.0,
                at_most,
                matters,
                levels: levels.collect(),
                pick: factor.levels[pick[index]],
                as_good: (factor.levels[low], factor.levels[high]),
            }
        })
        .collect();
    effects.sort_by(|a, b| b.on_average.max(b.at_pick).total_cmp(&a.on_average.max(a.at_pick)));
    effects
}

fn width(values: &[f64]) -> f64 {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (high - low).max(0.0)
}

/// The levels around the pick's, without a gap, at which the number is as good and what must hold still does.
fn as_good(local: &[f64], excess: &Option<Surrogate>, pick: usize, at: impl Fn(usize) -> Vec<usize>) -> (usize, usize) {
    let good = |level: usize| {
        local[level] >= local[pick] - AS_GOOD.ln_1p()
            && excess.as_ref().is_none_or(|excess| excess.mean(&at(level)) <= 0.0)
    };
    let (mut low, mut high) = (pick, pick);
    while low > 0 && good(low - 1) {
        low -= 1;
    }
    while high + 1 < local.len() && good(high + 1) {
        high += 1;
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_as_good_end_where_the_slo_does_and_at_gaps() {
        let local = [0.0, 0.99, 1.0, 0.98, 0.5, 1.0];
        assert_eq!(as_good(&local, &None, 2, |_| Vec::new()), (1, 3));
        assert_eq!(as_good(&local, &None, 5, |_| Vec::new()), (5, 5));
        assert_eq!(as_good(&[1.0], &None, 0, |_| Vec::new()), (0, 0));
    }
}
