//! Which trial next: a state machine that spends a budget where it tells most.
//!
//! Pure: `now` is the time since the tuner began, everything random comes from the plan's seed. Owns the phases (default and
//! profiles and Latin hypercube; successive halving; refinement by expected improvement and around the knee; a last race; pairs
//! of pick and default) and when to stop. Does not own the measuring. Always true: the same plan, times and results give the
//! same trials, which is how a journal is resumed; the default point is measured again every few trials; the last trials are
//! pairs of pick and default in ABBA order, so that the gain is told from drift.
//! Source: successive halving (Jamieson, Talwalkar); expected improvement under a constraint (Gardner and others, 2014).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::drift::Drift;
use super::goal::{Goal, Standing};
use super::pareto::{self, Axes};
use super::space::{Point, Space};
use super::surrogate::{Observation, Surrogate, expected_improvement, normal_below};
use super::trial::Measured;
use crate::bench::stats::{Finding, finding, paired_ratio_missing};

/// Nothing that can improve by less than this is looked for.
pub const WORTH_IT: f64 = 0.02;
/// Trials between two measurements of the default point.
const DRIFT_EVERY: usize = 6;
/// The shortest and the longest unit of a trial. Below a second a p99 is a handful of records; beyond twenty, noise is the
/// host's and not the trial's.
const UNIT_MIN: Duration = Duration::from_secs(1);
const UNIT_MAX: Duration = Duration::from_secs(20);
/// Lengths of the rungs, in units.
const FIRST_RUNG: u32 = 1;
const SECOND_RUNG: u32 = 2;
const THIRD_RUNG: u32 = 4;
const REFINE_UNITS: u32 = 2;
const FINAL_UNITS: u32 = 2;
/// Refinements a plan sets time aside for; more when the budget lasts.
const REFINEMENTS: u32 = 8;
/// Points that reach the third rung, and the race.
const RACERS: usize = 3;
/// Spaces larger than this are searched by a sample of candidates.
const CANDIDATES_MAX: usize = 3000;
/// Pairs that are added while pick and default are not told apart and there is time; two keep the order ABBA.
const MORE_PAIRS: usize = 2;
/// More than this many do not help: what is not shown then is not worth showing.
const PAIRS_MAX: usize = 15;
/// How often one look at the pairs may show a difference that is not there. Pairs are added until one is shown, so there are up to
/// seven looks; at 5 % each, one of them would show something in 17 % of searches in which there is nothing. At this level all of
/// them together do in less than 5 %, and all their intervals hold the truth in 95 % of searches. Found by simulation, as below; the
/// idea is Pocock's (Group sequential methods, 1977).
pub const LOOK_MISS: f64 = 0.0115;
/// How sure the search is when it says that nothing can improve: nine in ten, one-sided.
const SURE: f64 = 1.28;
/// Values this far (as logarithms) below the best are all alike: bad. The surrogate's resolution is kept for the rest.
const BAD: f64 = 1.5;

/// What a search is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where.
    pub space: Space,
    /// What for.
    pub goal: Goal,
    /// How long it may take, all in all.
    pub budget: Duration,
    /// Where everything random comes from.
    pub seed: u64,
    /// What a trial takes beside measuring: warm-up, connections. A first guess; then it is taken from the trials.
    pub overhead: Duration,
}

/// How a plan's budget is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Effort {
    unit: Duration,
    hypercube: usize,
    pairs: usize,
}

impl Plan {
    /// Points of the Latin hypercube: enough to see each factor at several levels.
    fn hypercube(&self) -> usize {
        4 + 2 * self.space.factors.len() + self.space.factors.len().saturating_sub(2)
    }

    /// Units of measuring and number of trials for so many points and pairs.
    fn cost(&self, hypercube: usize, pairs: usize) -> (u32, u32) {
        let first = (1 + self.space.profiles().len() + hypercube) as u32;
        let second = first.div_ceil(3) + 2;
        let third = RACERS as u32;
        let drift = (first + second + third + REFINEMENTS) / DRIFT_EVERY as u32 + 1;
        let last = 2 * pairs as u32;
        let units = first * FIRST_RUNG
            + second * SECOND_RUNG
            + third * THIRD_RUNG
            + REFINEMENTS * REFINE_UNITS
            + 2 * REFINE_UNITS
            + drift
            + last * FINAL_UNITS;
        (units, first + second + third + REFINEMENTS + 2 + drift + last)
    }

    fn effort(&self) -> Option<Effort> {
        let full = self.hypercube();
        let choices = [(full * 2, 5), (full, 5), (full, 3), (full / 2, 3)];
        for (index, (hypercube, pairs)) in choices.into_iter().enumerate() {
            let (units, trials) = self.cost(hypercube, pairs);
            let unit = self.budget.saturating_sub(self.overhead * trials) / units;
            // Twice the points only when there is time to measure each as long as is useful.
            let least = if index == 0 { UNIT_MAX } else { UNIT_MIN };
            if unit >= least {
                // Whole seconds: that is how bench counts. What is left over goes into refinement.
                return Some(Effort { unit: Duration::from_secs(unit.min(UNIT_MAX).as_secs()), hypercube, pairs });
            }
        }
        None
    }

    /// Whether the budget is enough. The error says how much would be.
    pub fn check(&self) -> Result<(), String> {
        if self.effort().is_some() {
            return Ok(());
        }
        let (units, trials) = self.cost(self.hypercube() / 2, 3);
        let least = UNIT_MIN * units + self.overhead * trials;
        Err(format!(
            "a budget of {} s is too short for {} settings: at least {} s are needed (about {trials} trials)",
            self.budget.as_secs(),
            self.space.len(),
            least.as_secs() + 1
        ))
    }
}

/// Why a trial is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Kafka's default, first of all.
    Default,
    /// A profile of the field.
    Profile,
    /// A point of the Latin hypercube.
    Explore,
    /// A good one, longer.
    Halving,
    /// Where the surrogate expects an improvement.
    Refine,
    /// Beside the knee of the front.
    Front,
    /// The default again.
    Drift,
    /// The best few, once more.
    Race,
    /// Pick and default, in pairs.
    Final,
    /// A cell of the full grid.
    Grid,
}

impl Purpose {
    /// For progress lines.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Default => "Kafka's default",
            Self::Profile => "profile",
            Self::Explore => "exploring",
            Self::Halving => "longer look",
            Self::Refine => "refining",
            Self::Front => "around the knee",
            Self::Drift => "has the host drifted?",
            Self::Race => "last race",
            Self::Final => "pick against default",
            Self::Grid => "grid",
        }
    }
}

/// One trial to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// From 0.
    pub number: usize,
    /// Level of each factor.
    pub point: Point,
    /// To be measured, warm-up apart.
    pub duration: Duration,
    /// Why.
    pub purpose: Purpose,
}

/// One trial made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked.
    pub order: Order,
    /// When, since the tuner began.
    pub began: Duration,
    /// Likewise.
    pub ended: Duration,
    /// What was found.
    pub measured: Measured,
}

/// Why a search is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Nothing is likely to improve by [`WORTH_IT`].
    NothingToGain,
    /// The time is used up.
    Budget,
    /// Every point was measured.
    Exhausted,
    /// Ctrl-C.
    Interrupted,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A trial.
    Measure(Order),
    /// Nothing more.
    Done(End),
}

/// Everything known of one point.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Which.
    pub point: Point,
    /// All its trials together.
    pub measured: Measured,
    /// Before the goal, drift taken out.
    pub standing: Standing,
    /// How many trials.
    pub trials: usize,
    /// Measured length in units of the plan.
    weight: f64,
}

impl Summary {
    /// How long it was measured, in units of the search.
    pub fn weight(&self) -> f64 {
        self.weight
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Explore,
    Second,
    Third,
    Refine,
    Race,
    Final,
    Done,
}

/// The search.
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    effort: Effort,
    phase: Phase,
    queue: VecDeque<(Point, u32, Purpose)>,
    records: Vec<Record>,
    ordered: usize,
    since_default: usize,
    refinements: usize,
    drift: Drift,
    end: End,
    pick: Option<Point>,
}

impl Search {
    /// Errors: the budget is too short.
    pub fn new(plan: Plan) -> Result<Self, String> {
        plan.check()?;
        let effort = plan.effort().ok_or("the budget is too short")?;
        let mut search = Self {
            effort,
            phase: Phase::Explore,
            queue: VecDeque::new(),
            records: Vec::new(),
            ordered: 0,
            since_default: 0,
            refinements: 0,
            drift: Drift::default(),
            end: End::Budget,
            pick: None,
            plan,
        };
        search.plan_exploration();
        Ok(search)
    }

    fn plan_exploration(&mut self) {
        let space = &self.plan.space;
        let default = space.default_point();
        self.queue.push_back((default.clone(), FIRST_RUNG, Purpose::Default));
        let mut known = vec![default];
        let profiles = space.profiles().into_iter().map(|(_, point)| (point, Purpose::Profile));
        let explored = space
            .latin_hypercube(self.effort.hypercube, self.plan.seed)
            .into_iter()
            .map(|point| (point, Purpose::Explore));
        for (point, purpose) in profiles.chain(explored) {
            if !known.contains(&point) {
                known.push(point.clone());
                self.queue.push_back((point, FIRST_RUNG, purpose));
            }
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// All trials so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What the default point says of the host.
    pub fn drift(&self) -> &Drift {
        &self.drift
    }

    /// What is measured as one unit.
    pub fn unit(&self) -> Duration {
        self.effort.unit
    }

    /// What a trial takes beside measuring, so far.
    fn overhead(&self) -> Duration {
        let beside = |record: &Record| (record.ended - record.began).saturating_sub(record.order.duration);
        match self.records.len() as u32 {
            0 => self.plan.overhead,
            count => self.records.iter().map(beside).sum::<Duration>() / count,
        }
    }

    /// Time the last phase needs.
    fn reserve(&self) -> Duration {
        (self.effort.unit * FINAL_UNITS + self.overhead()) * (2 * self.effort.pairs as u32)
    }

    /// What to do at `now`. Asked again before the result of an order is in, it gives the next one as if that result were
    /// missing; so ask once for each result.
    pub fn next(&mut self, now: Duration) -> Step {
        loop {
            if self.phase == Phase::Done {
                return Step::Done(self.end);
            }
            if self.phase < Phase::Final && self.since_default >= DRIFT_EVERY {
                return self.order(self.plan.space.default_point(), FIRST_RUNG, Purpose::Drift);
            }
            if let Some((point, units, purpose)) = self.queue.pop_front() {
                let reserve = if self.phase < Phase::Final { self.reserve() } else { Duration::ZERO };
                let takes = self.effort.unit * units + self.overhead();
                // The very first trials are made whatever the clock says: without them there is nothing to report.
                if self.ordered < 2 || now + takes + reserve <= self.plan.budget.mul_f64(1.001) {
                    return self.order(point, units, purpose);
                }
                self.queue.clear();
                if self.phase < Phase::Final {
                    self.end = End::Budget;
                    self.enter_final();
                } else {
                    self.phase = Phase::Done;
                    self.reconsider();
                }
                continue;
            }
            self.advance();
        }
    }

    fn order(&mut self, point: Point, units: u32, purpose: Purpose) -> Step {
        let number = self.ordered;
        self.ordered += 1;
        if point == self.plan.space.default_point() {
            self.since_default = 0;
        } else {
            self.since_default += 1;
        }
        Step::Measure(Order { number, point, duration: self.effort.unit * units, purpose })
    }

    /// The result of the trial last ordered.
    pub fn on_result(&mut self, record: Record) {
        assert!(record.ended >= record.began, "a trial ends after it begins");
        if record.order.point == self.plan.space.default_point()
            && let Some(number) = self.plan.goal.number(&record.measured)
        {
            self.drift.on_check(record.began + (record.ended - record.began) / 2, number.ln());
        }
        self.records.push(record);
    }

    /// Ctrl-C: what is there is all there will be.
    pub fn interrupt(&mut self) {
        self.pick = self.pick.take().or_else(|| self.best().map(|summary| summary.point));
        self.end = End::Interrupted;
        self.phase = Phase::Done;
    }

    fn advance(&mut self) {
        match self.phase {
            Phase::Explore => {
                self.phase = Phase::Second;
                let kept = self.kept(true);
                self.queue.extend(kept.into_iter().map(|point| (point, SECOND_RUNG, Purpose::Halving)));
            }
            Phase::Second => {
                self.phase = Phase::Third;
                let kept = self.kept(false);
                self.queue.extend(kept.into_iter().map(|point| (point, THIRD_RUNG, Purpose::Halving)));
            }
            Phase::Third => self.phase = Phase::Refine,
            Phase::Refine => match self.propose() {
                Ok((point, purpose)) => {
                    self.refinements += 1;
                    self.queue.push_back((point, REFINE_UNITS, purpose));
                }
                Err(end) => {
                    self.end = end;
                    self.phase = Phase::Race;
                    self.plan_race();
                }
            },
            Phase::Race => self.enter_final(),
            Phase::Final if self.is_undecided() => self.plan_pairs(MORE_PAIRS),
            Phase::Final => {
                self.phase = Phase::Done;
                self.reconsider();
            }
            Phase::Done => {}
        }
    }

    /// Whether the pairs so far do not tell pick and default apart, and a few more might.
    fn is_undecided(&self) -> bool {
        let goal = &self.plan.goal;
        let pairs: Vec<(f64, f64)> = self
            .pairs()
            .iter()
            .filter_map(|(pick, default)| Some((goal.number(pick)?, goal.number(default)?)))
            .collect();
        // One pair has no interval.
        let open = |ratio| pairs.len() < 2 || finding(&ratio) == Finding::NoDifferenceShown;
        pairs.len() < PAIRS_MAX && paired_ratio_missing(&pairs, LOOK_MISS).is_some_and(open)
    }

    /// The pick has now been measured longer than anything else. When it turns out to break what must hold, the best of those
    /// that do not takes its place, without pairs to its name.
    fn reconsider(&mut self) {
        let summaries = self.summaries();
        let broken = |summary: &&Summary| Some(&summary.point) == self.pick.as_ref() && !summary.standing.is_feasible();
        if summaries.iter().any(|summary| broken(&summary)) {
            self.pick = self.safest().map(|summary| summary.point);
        }
    }

    /// The best point of those that hold what must hold with something to spare; without one, the best at all.
    fn safest(&self) -> Option<Summary> {
        let mut summaries = self.smoothed();
        if let Some((_, Some(excess))) = self.surrogate() {
            for summary in &mut summaries {
                summary.standing.excess += excess.predict(&summary.point).1;
            }
        }
        let best = summaries.into_iter().max_by(|a, b| a.standing.compare(&b.standing));
        best.filter(|best| best.standing.is_feasible()).or_else(|| self.best())
    }

    /// Of the points so far the best by the goal, and of each other objective the best few, so that no corner of the front is
    /// lost early; or only the very best.
    fn kept(&self, wide: bool) -> Vec<Point> {
        let summaries = self.smoothed();
        let goals = if wide { summaries.len().div_ceil(3) } else { RACERS };
        let others = if wide { summaries.len().div_ceil(8) } else { 0 };
        let mut kept: Vec<Point> = Vec::new();
        let mut take = |order: &mut dyn FnMut(&Summary, &Summary) -> std::cmp::Ordering, count: usize| {
            let mut sorted: Vec<&Summary> = summaries.iter().collect();
            sorted.sort_by(|a, b| order(a, b));
            for summary in sorted.into_iter().take(count) {
                if !kept.contains(&summary.point) {
                    kept.push(summary.point.clone());
                }
            }
        };
        take(&mut |a, b| b.standing.compare(&a.standing), goals);
        take(&mut |a, b| a.measured.p99_us.total_cmp(&b.measured.p99_us), others);
        take(&mut |a, b| b.measured.bytes_per_second.total_cmp(&a.measured.bytes_per_second), others);
        let cost = |summary: &Summary| summary.measured.cpu_ms_per_mb().unwrap_or(f64::INFINITY);
        take(&mut |a, b| cost(a).total_cmp(&cost(b)), others);
        kept
    }

    /// One summary for each point that was measured, in the order of their first trial. Drift is taken out of the values.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut groups: BTreeMap<&Point, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            groups.entry(&record.order.point).or_default().push(record);
        }
        let mut groups: Vec<(&Point, Vec<&Record>)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, records)| records.first().map_or(0, |record| record.order.number));
        let summary = |(point, records): (&Point, Vec<&Record>)| {
            let measured: Vec<&Measured> = records.iter().map(|record| &record.measured).collect();
            let measured = Measured::pooled(&measured)?;
            let seconds = |record: &&Record| record.order.duration.as_secs_f64();
            let total: f64 = records.iter().map(seconds).sum();
            let correction: f64 = records
                .iter()
                .map(|record| seconds(record) * self.drift.correction(record.began + (record.ended - record.began) / 2))
                .sum::<f64>()
                / total.max(1e-9);
            let mut standing = self.plan.goal.standing(&measured);
            // The correction is of the number; the value has its sign.
            standing.value -= self.plan.goal.sign() * correction;
            let weight = total / self.effort.unit.as_secs_f64();
            Some(Summary { point: point.clone(), measured, standing, trials: records.len(), weight })
        };
        groups.into_iter().filter_map(summary).collect()
    }

    /// The summaries with standings as the surrogates see them: what one lucky or unlucky trial said is drawn towards its
    /// neighbours.
    fn smoothed(&self) -> Vec<Summary> {
        let mut summaries = self.summaries();
        if let Some((value, excess)) = self.surrogates(&summaries) {
            for summary in &mut summaries {
                // Far from the best the values were cut; the plain ones keep their order there.
                let smooth = value.mean(&summary.point);
                summary.standing.value = summary.standing.value.min(smooth.max(summary.standing.value - 0.2));
                // A limit is a cliff that a smooth surface rounds off: what was found there counts, and so do the neighbours.
                if let Some(excess) = &excess {
                    summary.standing.excess = summary.standing.excess.max(excess.mean(&summary.point));
                }
            }
        }
        summaries
    }

    /// The best point so far. `None` before the first result.
    pub fn best(&self) -> Option<Summary> {
        self.smoothed().into_iter().max_by(|a, b| a.standing.compare(&b.standing))
    }

    /// The surrogates of the goal's value (a logarithm, more is better) and, where something must hold, of its excess: for
    /// effects and sensitivity.
    pub fn surrogate(&self) -> Option<(Surrogate, Option<Surrogate>)> {
        self.surrogates(&self.summaries())
    }

    fn surrogates(&self, summaries: &[Summary]) -> Option<(Surrogate, Option<Surrogate>)> {
        let top = summaries
            .iter()
            .filter(|summary| summary.standing.is_feasible())
            .map(|summary| summary.standing.value)
            .reduce(f64::max)
            .or_else(|| summaries.iter().map(|summary| summary.standing.value).reduce(f64::max))?;
        let observe = |value: &dyn Fn(&Summary) -> f64| -> Vec<Observation> {
            let one = |summary: &Summary| Observation {
                point: summary.point.clone(),
                value: value(summary),
                weight: summary.weight,
            };
            summaries.iter().map(one).collect()
        };
        let values = observe(&|summary| summary.standing.value.clamp(top - BAD, top + BAD));
        let value = Surrogate::fit(&self.plan.space, &values)?;
        let constrained =
            summaries.iter().any(|summary| !summary.standing.is_feasible()) || !self.plan.goal.slo.is_empty();
        let excess = constrained
            .then(|| Surrogate::fit(&self.plan.space, &observe(&|summary| summary.standing.excess.clamp(-0.7, 1.0))))
            .flatten();
        Some((value, excess))
    }

    /// The next point to refine with, or why there is none.
    fn propose(&self) -> Result<(Point, Purpose), End> {
        let summaries = self.summaries();
        let Some((value, excess)) = self.surrogates(&summaries) else { return Err(End::Exhausted) };
        let measured: Vec<&Point> = summaries.iter().map(|summary| &summary.point).collect();
        let candidates: Vec<Point> =
            self.candidates(&summaries).into_iter().filter(|point| !measured.contains(&point)).collect();
        if candidates.is_empty() {
            return Err(End::Exhausted);
        }
        let feasible = |point: &Point| match &excess {
            None => 1.0,
            Some(excess) => {
                let (mean, spread) = excess.predict(point);
                normal_below(-mean / spread.max(1e-6))
            }
        };
        let best = self.best().ok_or(End::Exhausted)?;
        if !best.standing.is_feasible() {
            // Nothing holds yet: go where the miss is expected to shrink most.
            let Some(excess) = &excess else { return Err(End::Exhausted) };
            let score = |point: &Point| {
                let (mean, spread) = excess.predict(point);
                expected_improvement(-mean, spread, -best.standing.excess)
            };
            return Ok((highest(candidates, score), Purpose::Refine));
        }
        let incumbent = value.mean(&best.point);
        let hope = |point: &Point| {
            let (mean, spread) = value.predict(point);
            if feasible(point) < 0.1 { f64::NEG_INFINITY } else { mean + SURE * spread - incumbent }
        };
        if self.refinements >= 3 && candidates.iter().all(|point| hope(point) < (1.0 + WORTH_IT).ln()) {
            return Err(End::NothingToGain);
        }
        let score = |point: &Point| {
            let (mean, spread) = value.predict(point);
            expected_improvement(mean, spread, incumbent) * feasible(point)
        };
        if self.refinements % 3 == 2
            && let Some(knee) = self.knee(&summaries)
        {
            let near: Vec<Point> =
                self.plan.space.neighbours(&knee).into_iter().filter(|point| !measured.contains(&point)).collect();
            if !near.is_empty() {
                return Ok((highest(near, score), Purpose::Front));
            }
        }
        Ok((highest(candidates, score), Purpose::Refine))
    }

    /// All points of a small space; of a large one the neighbourhood of the best and a seeded sample.
    fn candidates(&self, summaries: &[Summary]) -> Vec<Point> {
        let space = &self.plan.space;
        if space.len() <= CANDIDATES_MAX {
            return space.points().collect();
        }
        let mut sorted: Vec<&Summary> = summaries.iter().collect();
        sorted.sort_by(|a, b| b.standing.compare(&a.standing));
        let near = sorted.iter().take(6).flat_map(|summary| space.neighbours(&summary.point));
        let second: Vec<Point> = sorted.first().map(|best| space.neighbours(&best.point)).unwrap_or_default();
        let second = second.iter().flat_map(|point| space.neighbours(point)).collect::<Vec<_>>();
        let mut random = fastrand::Rng::with_seed(self.plan.seed ^ ((self.ordered as u64) << 20));
        let sample = (0..CANDIDATES_MAX / 2).map(|_| space.at(random.usize(..space.len())));
        let mut all: Vec<Point> = near.chain(second).chain(sample).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The knee of the front of what was measured and carries the load.
    fn knee(&self, summaries: &[Summary]) -> Option<Point> {
        let usable: Vec<(&Summary, Axes)> = summaries
            .iter()
            .filter(|summary| summary.standing.excess < 0.7)
            .filter_map(|summary| Some((summary, Axes::of(&self.plan.goal, &summary.measured)?)))
            .collect();
        let axes: Vec<Axes> = usable.iter().map(|(_, axes)| *axes).collect();
        let knee = pareto::knee(&axes, &pareto::front(&axes, WORTH_IT))?;
        Some(usable[knee].0.point.clone())
    }

    fn plan_race(&mut self) {
        let mut sorted = self.smoothed();
        sorted.sort_by(|a, b| b.standing.compare(&a.standing));
        let close = sorted.first().map(|best| best.standing);
        let racers = sorted.iter().take(RACERS).filter(|summary| {
            // Those that may yet be the best, and were not looked at long enough to know.
            let close =
                close.is_some_and(|best| best.value - summary.standing.value < 0.15 && summary.standing.excess < 0.1);
            close && summary.weight < f64::from(THIRD_RUNG)
        });
        let racers: Vec<Point> = racers.map(|summary| summary.point.clone()).collect();
        self.queue.extend(racers.into_iter().map(|point| (point, REFINE_UNITS, Purpose::Race)));
    }

    fn enter_final(&mut self) {
        self.phase = Phase::Final;
        let default = self.plan.space.default_point();
        self.pick = self.safest().map(|summary| summary.point);
        if self.pick.as_ref().is_some_and(|pick| *pick != default) {
            self.plan_pairs(self.effort.pairs);
        }
    }

    fn plan_pairs(&mut self, pairs: usize) {
        let default = self.plan.space.default_point();
        let Some(pick) = self.pick.clone() else { return };
        for pair in 0..pairs {
            // ABBA: a drift in one direction falls on both alike.
            let (first, second) = if pair % 2 == 0 { (&default, &pick) } else { (&pick, &default) };
            for point in [first, second] {
                self.queue.push_back((point.clone(), FINAL_UNITS, Purpose::Final));
            }
        }
    }

    /// What is recommended once the last phase has begun: the best point. Before, the best so far.
    pub fn pick(&self) -> Option<Point> {
        self.pick.clone().or_else(|| self.best().map(|summary| summary.point))
    }

    /// The pairs of the last phase: (pick, default), those of which both were measured.
    pub fn pairs(&self) -> Vec<(&Measured, &Measured)> {
        let default = self.plan.space.default_point();
        let pick = self.pick.as_ref();
        let of_pair = |record: &&Record| {
            let point = &record.order.point;
            record.order.purpose == Purpose::Final && (*point == default || Some(point) == pick)
        };
        let finals: Vec<&Record> = self.records.iter().filter(of_pair).collect();
        if !finals.iter().any(|record| record.order.point != default) {
            return Vec::new();
        }
        finals
            .chunks_exact(2)
            .map(|pair| {
                let (first, second) = (pair[0], pair[1]);
                if first.order.point == default {
                    (&second.measured, &first.measured)
                } else {
                    (&first.measured, &second.measured)
                }
            })
            .collect()
    }

    /// The share of the budget a search is through with at `now`, for a progress bar. Never above 1.
    pub fn progress(&self, now: Duration) -> f64 {
        (now.as_secs_f64() / self.plan.budget.as_secs_f64().max(1e-9)).min(1.0)
    }
}

/// The candidate with the highest score; of equals the first. Panics on none.
fn highest(candidates: Vec<Point>, score: impl Fn(&Point) -> f64) -> Point {
    let mut best: Option<(f64, Point)> = None;
    for point in candidates {
        let value = score(&point);
        if best.as_ref().is_none_or(|(known, _)| value > *known) {
            best = Some((value, point));
        }
    }
    best.expect("there is at least one candidate").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::goal::Target;
    use crate::tune::space::Knob;

    fn plan(seconds: u64) -> Plan {
        Plan {
            space: Space::new(&[Knob::BatchSize, Knob::Linger], 1).unwrap(),
            goal: Goal { target: Target::Latency, slo: "p99<=1s".parse().unwrap() },
            budget: Duration::from_secs(seconds),
            seed: 1,
            overhead: Duration::from_secs(1),
        }
    }

    /// Runs a search to its end on a surface without noise; `cost` is what a trial takes beside measuring.
    fn run(plan: Plan, p99_us: impl Fn(&[usize]) -> f64) -> (Search, Duration, End) {
        let mut search = Search::new(plan).unwrap();
        let mut now = Duration::ZERO;
        loop {
            match search.next(now) {
                Step::Done(end) => return (search, now, end),
                Step::Measure(order) => {
                    let began = now;
                    now += order.duration + Duration::from_secs(1);
                    let measured = Measured {
                        seconds: order.duration.as_secs_f64(),
                        p99_us: p99_us(&order.point),
                        bytes_per_second: 1e6,
                        records_per_second: 1e3,
                        valid: true,
                        ..Measured::default()
                    };
                    search.on_result(Record { order, began, ended: now, measured });
                }
            }
        }
    }

    fn bowl(point: &[usize]) -> f64 {
        1000.0 * (0.1 * (point[0] as f64 - 5.0).powi(2) + 0.15 * (point[1] as f64 - 1.0).powi(2)).exp()
    }

    #[test]
    fn a_bowl_is_walked_down_within_the_budget() {
        let (search, took, _) = run(plan(200), bowl);
        assert!(took <= Duration::from_secs(201), "{took:?}");
        assert_eq!(search.pick(), Some(vec![5, 1]));
        assert_eq!(search.pairs().len(), 5);
        assert!(search.pairs().iter().all(|(pick, default)| pick.p99_us < default.p99_us));
    }

    #[test]
    fn a_search_ends_early_when_nothing_is_to_be_gained() {
        let (search, took, end) = run(plan(3600), |_| 5000.0);
        assert_eq!(end, End::NothingToGain);
        assert!(took < Duration::from_secs(3000), "{took:?}");
        assert!(search.records().len() > 15);
    }

    #[test]
    fn the_default_is_measured_again_and_again() {
        let (search, ..) = run(plan(400), bowl);
        let default = search.plan().space.default_point();
        let mut gap = 0;
        for record in search.records() {
            gap = if record.order.point == default { 0 } else { gap + 1 };
            assert!(gap <= DRIFT_EVERY, "trial {}", record.order.number);
        }
        assert_eq!(search.records()[0].order.point, default);
    }

    #[test]
    fn a_setting_that_misses_the_slo_is_not_picked_while_another_holds_it() {
        // The quickest p50 lies where p99 breaks the limit; only large batches hold it.
        let mut plan = plan(300);
        plan.goal.slo = "p99<=10ms".parse().unwrap();
        plan.goal.target = Target::Throughput;
        let (search, ..) = run(plan, |point| if point[0] >= 6 { 9000.0 } else { 30_000.0 });
        assert!(search.pick().unwrap()[0] >= 6);
    }

    #[test]
    fn a_budget_that_is_too_short_is_refused_with_what_would_be_enough() {
        let why = Search::new(plan(20)).unwrap_err();
        assert!(why.contains("at least"), "{why}");
    }

    #[test]
    fn the_same_results_give_the_same_trials() {
        let trials = |search: &Search| search.records().iter().map(|record| record.order.clone()).collect::<Vec<_>>();
        let (one, ..) = run(plan(250), bowl);
        let (two, ..) = run(plan(250), bowl);
        assert_eq!(trials(&one), trials(&two));
    }

    #[test]
    fn looking_again_and_again_shows_nothing_that_is_not_there() {
        use crate::bench::stats::tests::{Noise, heavy, noisy_pairs, normal, skewed};
        let shown = |first: usize, noise: Noise| {
            let mut random = fastrand::Rng::with_seed(first as u64);
            let shown = |_: &usize| {
                let pairs = noisy_pairs(PAIRS_MAX, 1.0, noise, &mut random);
                let mut looks = (first..=PAIRS_MAX).step_by(MORE_PAIRS).map(|count| &pairs[..count]);
                looks.any(|pairs| {
                    finding(&paired_ratio_missing(pairs, LOOK_MISS).unwrap()) != Finding::NoDifferenceShown
                })
            };
            (0..4000).filter(shown).count() as f64 / 4000.0
        };
        for first in [3, 5] {
            for noise in [normal as Noise, heavy, skewed] {
                assert!(shown(first, noise) < 0.06, "{}", shown(first, noise));
            }
        }
    }

    #[test]
    fn an_interrupted_search_still_has_a_best() {
        let mut search = Search::new(plan(200)).unwrap();
        assert_eq!(search.pick(), None);
        let Step::Measure(order) = search.next(Duration::ZERO) else { panic!("it begins with a trial") };
        let measured = Measured { p99_us: 1.0, bytes_per_second: 1.0, valid: true, ..Measured::default() };
        let point = order.point.clone();
        search.on_result(Record { order, began: Duration::ZERO, ended: Duration::from_secs(2), measured });
        search.interrupt();
        assert_eq!(search.next(Duration::from_secs(2)), Step::Done(End::Interrupted));
        assert_eq!(search.pick(), Some(point));
    }
}
