//! Every cell of the plane batch.size × linger.ms: what a search is judged by, and what a heat map without gaps needs.
//!
//! Pure. Owns the order of the cells: shuffled from a seed, so that drift does not draw a pattern, with the default point again
//! and again; at the end the best cell, and the pick of a search when one is judged, in pairs. Always true: the same plan and
//! results give the same trials, as in `search`.

use std::collections::VecDeque;
use std::time::Duration;

use super::drift::Drift;
use super::goal::Goal;
use super::search::{End, Order, Purpose, Record, Step};
use super::space::{Point, Space};
use super::trial::Measured;

/// Cells between two measurements of the default.
const DRIFT_EVERY: usize = 8;
/// Pairs of the best cell and the judged pick at the end.
const PAIRS: usize = 5;

/// What a grid is told.
#[derive(Clone, Debug)]
pub struct GridPlan {
    /// The plane; cells are points of it.
    pub space: Space,
    /// By which the best is told.
    pub goal: Goal,
    /// Of each cell.
    pub cell: Duration,
    /// Of the order.
    pub seed: u64,
    /// The pick of a search to be judged.
    pub judged: Option<Point>,
}

/// The course over the cells.
#[derive(Clone, Debug)]
pub struct Grid {
    plan: GridPlan,
    queue: VecDeque<(Point, Purpose)>,
    records: Vec<Record>,
    drift: Drift,
    ordered: usize,
    paired: bool,
    best: Option<Point>,
    interrupted: bool,
}

/// Points of `space` that are cells of the coarse grid.
pub fn cells(space: &Space) -> Vec<Point> {
    let coarse = Space::grid();
    let of = |point: Point| {
        let wanted: Vec<_> =
            coarse.factors.iter().zip(&point).map(|(factor, level)| (factor.knob, factor.levels[*level])).collect();
        space.nearest(&wanted)
    };
    coarse.points().map(of).collect()
}

impl Grid {
    /// Nothing measured yet.
    pub fn new(plan: GridPlan) -> Self {
        let mut order = cells(&plan.space);
        fastrand::Rng::with_seed(plan.seed).shuffle(&mut order);
        let mut queue = VecDeque::new();
        for (index, point) in order.into_iter().enumerate() {
            if index % DRIFT_EVERY == 0 {
                queue.push_back((plan.space.default_point(), Purpose::Drift));
            }
            queue.push_back((point, Purpose::Grid));
        }
        queue.push_back((plan.space.default_point(), Purpose::Drift));
        if let Some(judged) = &plan.judged {
            queue.push_back((judged.clone(), Purpose::Race));
        }
        Self {
            plan,
            queue,
            records: Vec::new(),
            drift: Drift::default(),
            ordered: 0,
            paired: false,
            best: None,
            interrupted: false,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &GridPlan {
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

    /// What to do next; asked once for each result.
    pub fn next(&mut self) -> Step {
        if self.interrupted {
            return Step::Done(End::Interrupted);
        }
        if self.queue.is_empty() && !self.paired {
            self.paired = true;
            self.best = self.best_cell();
            if let (Some(judged), Some(best)) =
                (self.plan.judged.clone(), self.best.clone().filter(|best| Some(best) != self.plan.judged.as_ref()))
            {
                for pair in 0..PAIRS {
                    let both = if pair % 2 == 0 { [&best, &judged] } else { [&judged, &best] };
                    self.queue.extend(both.map(|point| (point.clone(), Purpose::Final)));
                }
            }
        }
        match self.queue.pop_front() {
            None => Step::Done(End::Exhausted),
            Some((point, purpose)) => {
                let number = self.ordered;
                self.ordered += 1;
                Step::Measure(Order { number, point, duration: self.plan.cell, purpose })
            }
        }
    }

    /// The result of the trial last ordered.
    pub fn on_result(&mut self, record: Record) {
        if record.order.point == self.plan.space.default_point()
            && let Some(number) = self.plan.goal.number(&record.measured)
        {
            self.drift.on_check(record.began + (record.ended - record.began) / 2, number.ln());
        }
        self.records.push(record);
    }

    /// Ctrl-C.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// All that is left, for a progress bar: (made, to be made).
    pub fn progress(&self) -> (usize, usize) {
        let pairs = if self.plan.judged.is_some() && !self.paired { 2 * PAIRS } else { 0 };
        (self.ordered, self.ordered + self.queue.len() + pairs)
    }

    /// The cell that stood best in the sweep itself.
    pub fn best_cell(&self) -> Option<Point> {
        if self.best.is_some() {
            return self.best.clone();
        }
        let mut best: Option<(&Record, super::goal::Standing)> = None;
        for record in self.records.iter().filter(|record| record.order.purpose == Purpose::Grid) {
            let mut standing = self.plan.goal.standing(&record.measured);
            let middle = record.began + (record.ended - record.began) / 2;
            standing.value -= self.plan.goal.sign() * self.drift.correction(middle);
            if best.as_ref().is_none_or(|(_, known)| standing.compare(known).is_gt()) {
                best = Some((record, standing));
            }
        }
        best.map(|(record, _)| record.order.point.clone())
    }

    /// Pairs of (judged pick, best cell), measured beside each other.
    pub fn pairs(&self) -> Vec<(&Measured, &Measured)> {
        let finals: Vec<&Record> =
            self.records.iter().filter(|record| record.order.purpose == Purpose::Final).collect();
        let judged = self.plan.judged.as_ref();
        finals
            .chunks_exact(2)
            .map(|pair| {
                let (first, second) = (&pair[0].measured, &pair[1].measured);
                if Some(&pair[0].order.point) == judged { (first, second) } else { (second, first) }
            })
            .collect()
    }

    /// How long the sweep itself took: cells only, with all that a trial takes beside measuring.
    pub fn sweep_time(&self) -> Duration {
        self.records
            .iter()
            .filter(|record| record.order.purpose == Purpose::Grid)
            .map(|record| record.ended - record.began)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::goal::Target;
    use crate::tune::space::Knob;

    #[test]
    fn every_cell_is_measured_once_and_the_judged_pick_meets_the_best() {
        let space = Space::new(&[Knob::BatchSize, Knob::Linger], 1).unwrap();
        let judged = vec![3, 2];
        let mut grid = Grid::new(GridPlan {
            space: space.clone(),
            goal: Goal { target: Target::Latency, slo: "p99<=1s".parse().unwrap() },
            cell: Duration::from_secs(5),
            seed: 3,
            judged: Some(judged.clone()),
        });
        let mut now = Duration::ZERO;
        while let Step::Measure(order) = grid.next() {
            let began = now;
            now += Duration::from_secs(6);
            let p99_us =
                if order.point == judged { 1010.0 } else { 1000.0 + 100.0 * order.point.iter().sum::<usize>() as f64 };
            let measured = Measured { p99_us, bytes_per_second: 1.0, valid: true, ..Measured::default() };
            grid.on_result(Record { order, began, ended: now, measured });
        }
        let mut met: Vec<Point> = grid
            .records()
            .iter()
            .filter(|one| one.order.purpose == Purpose::Grid)
            .map(|one| one.order.point.clone())
            .collect();
        met.sort();
        let mut all = cells(&space);
        all.sort();
        assert_eq!((met.len(), met), (42, all));
        assert_eq!(grid.best_cell(), Some(vec![0, 0]));
        assert_eq!(grid.pairs().len(), PAIRS);
        assert!(grid.pairs().iter().all(|(pick, best)| pick.p99_us == 1010.0 && best.p99_us == 1000.0));
        assert_eq!(grid.sweep_time(), Duration::from_secs(42 * 6));
        assert!(grid.drift().checks() >= 6);
    }
}
