//! The settings nothing beats: front of throughput, latency and cost, and its knee.
//!
//! Pure. Owns dominance. Always true: no member of the front is worse than another in everything; the knee is a member.
//! Source: Pareto; the knee is the member nearest to the corner where every best would meet, on logarithmic scales.

use super::goal::Goal;
use super::trial::Measured;

/// The axes, more being better on each: logarithms of bytes per second, of the latency and of the cost, the last two negated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axes {
    /// Bytes per second.
    pub throughput: f64,
    /// The goal's percentile.
    pub latency: f64,
    /// `None` when no cost was measured; then it plays no part.
    pub cost: Option<f64>,
}

impl Axes {
    /// Of a measurement. `None` when throughput or latency is missing.
    pub fn of(goal: &Goal, measured: &Measured) -> Option<Self> {
        let latency = measured.percentile(goal.percentile()).filter(|latency| *latency > 0.0)?;
        let throughput = Some(measured.bytes_per_second).filter(|bytes| *bytes > 0.0)?;
        Some(Self {
            throughput: throughput.ln(),
            latency: -latency.ln(),
            cost: measured.cpu_ms_per_mb().map(|cpu| -cpu.ln()),
        })
    }

    fn list(&self) -> [f64; 3] {
        [self.throughput, self.latency, self.cost.unwrap_or(0.0)]
    }

    /// At least as good in everything up to `tolerance`, and better than that in something. Differences within the tolerance
    /// are noise: they neither save a point nor damn one.
    pub fn dominates(&self, other: &Self, tolerance: f64) -> bool {
        let pairs = || self.list().into_iter().zip(other.list());
        pairs().all(|(mine, theirs)| mine >= theirs - tolerance)
            && pairs().any(|(mine, theirs)| mine > theirs + tolerance)
    }
}

/// Indices of the points no other dominates, in the order given. With a tolerance dominance may run in a ring; so points are
/// taken in order of their sum, and only those taken can dominate: the front of something is never empty.
pub fn front(points: &[Axes], tolerance: f64) -> Vec<usize> {
    let sum = |index: &usize| points[*index].list().iter().sum::<f64>();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    let mut taken: Vec<usize> = Vec::new();
    for index in order {
        if !taken.iter().any(|other| points[*other].dominates(&points[index], tolerance)) {
            taken.push(index);
        }
    }
    taken.sort_unstable();
    taken
}

/// The member of the front nearest to the corner of all bests, each axis scaled to the front's own width. `None` of nothing.
pub fn knee(points: &[Axes], front: &[usize]) -> Option<usize> {
    let lists: Vec<[f64; 3]> = front.iter().map(|index| points[*index].list()).collect();
    let width = |axis: usize| {
        let values = || lists.iter().map(|list| list[axis]);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    };
    let widths = [width(0), width(1), width(2)];
    let distance = |list: &[f64; 3]| -> f64 {
        list.iter()
            .zip(widths)
            // An axis on which all are within 2 % of each other decides nothing.
            .filter(|(_, (low, high))| high - low > 0.02)
            .map(|(value, (low, high))| ((high - value) / (high - low)).powi(2))
            .sum()
    };
    let nearest = (0..front.len()).min_by(|a, b| distance(&lists[*a]).total_cmp(&distance(&lists[*b])))?;
    Some(front[nearest])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(bytes: f64, latency: f64, cost: f64) -> Axes {
        Axes { throughput: f64::ln(bytes), latency: -f64::ln(latency), cost: Some(-f64::ln(cost)) }
    }

    #[test]
    fn the_front_holds_what_nothing_beats() {
        let points = [axes(100.0, 5.0, 1.0), axes(200.0, 10.0, 1.0), axes(150.0, 20.0, 1.0), axes(50.0, 4.0, 1.0)];
        assert_eq!(front(&points, 0.0), vec![0, 1, 3]);
        assert_eq!(front(&[], 0.0), Vec::<usize>::new());
    }

    #[test]
    fn differences_within_the_tolerance_neither_save_nor_damn() {
        let points = [axes(100.0, 5.0, 1.0), axes(100.5, 10.0, 1.0), axes(99.5, 5.02, 1.0)];
        assert_eq!(front(&points, 0.02), vec![0, 2]);
    }

    #[test]
    fn the_knee_gives_up_little_of_each() {
        let points = [axes(100.0, 2.0, 8.0), axes(100.0, 3.0, 2.0), axes(100.0, 30.0, 1.8)];
        let front = front(&points, 0.0);
        assert_eq!(front, vec![0, 1, 2]);
        assert_eq!(knee(&points, &front), Some(1));
        assert_eq!(knee(&points, &[]), None);
    }

    #[test]
    fn cost_that_nobody_measured_plays_no_part() {
        let bare = |bytes: f64, latency: f64| Axes { cost: None, ..axes(bytes, latency, 1.0) };
        assert_eq!(front(&[bare(1.0, 1.0), bare(2.0, 1.0)], 0.0), vec![1]);
    }
}
