//! In which order things are measured, and what is left of it.
//!
//! Pure: seeded. Owns the order. Always true: the two turns of a pair follow each other directly, the first of them drawn at
//! random; all workloads have had a pair before any has its next one, so that an interrupted comparison has equally many of
//! each and a host that slowly changes does so for all; soaks and restarts come after every load, restarts last, since a
//! restarted JVM is cold again.

use std::collections::BTreeSet;

/// When a cell is measured; the earlier ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In rounds with all others, after an unmeasured one.
    Rounds,
    /// After all rounds: it takes hours, and who wants to interrupt it has the rest by then.
    Soak,
    /// Last: its broker is started again and cold.
    Restarts,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Rounds, Self::Soak, Self::Restarts];
}

/// One pair to be measured: both targets, one directly after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which layout of cores, by its place in the list.
    pub layout: usize,
    /// Counted from 0.
    pub pair: u32,
    /// Which cell, by its place in the list.
    pub cell: usize,
    /// Which target goes first.
    pub first: usize,
}

impl Task {
    /// What a journal remembers it by.
    pub fn id(&self) -> (usize, u32, usize) {
        (self.layout, self.pair, self.cell)
    }
}

/// Everything to be measured, in order. `cells[cell]` says when a cell is measured, and how many pairs of it.
pub fn tasks(seed: u64, layouts: usize, cells: &[(Stage, u32)]) -> Vec<Task> {
    let mut random = fastrand::Rng::with_seed(seed);
    let pairs = cells.iter().map(|(_, pairs)| *pairs).max().unwrap_or(0);
    let mut tasks = Vec::new();
    for layout in 0..layouts {
        for stage in Stage::ALL {
            for pair in 0..pairs {
                let in_round = |cell: &usize| cells[*cell].0 == stage && pair < cells[*cell].1;
                let mut round: Vec<usize> = (0..cells.len()).filter(in_round).collect();
                random.shuffle(&mut round);
                tasks.extend(round.into_iter().map(|cell| Task { layout, pair, cell, first: random.usize(..2) }));
            }
        }
    }
    tasks
}

/// The tasks that are not among those `done`, in order.
pub fn left(tasks: &[Task], done: &BTreeSet<(usize, u32, usize)>) -> Vec<Task> {
    tasks.iter().filter(|task| !done.contains(&task.id())).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_every_cell_comes_once_and_rounds_do_not_mix() {
        let tasks = tasks(7, 2, &[(Stage::Rounds, 5), (Stage::Restarts, 5), (Stage::Rounds, 5)]);
        assert_eq!(tasks.len(), 2 * 5 * 3);
        assert_eq!(tasks.iter().map(Task::id).collect::<BTreeSet<_>>().len(), tasks.len());
        for layout in 0..2 {
            let of: Vec<&Task> = tasks.iter().filter(|task| task.layout == layout).collect();
            assert!(of[..10].iter().all(|task| task.cell != 1), "loads first: {of:?}");
            let rounds: Vec<u32> = of[..10].iter().map(|task| task.pair).collect();
            assert!(rounds.is_sorted(), "{rounds:?}");
        }
    }

    #[test]
    fn a_soak_has_its_own_number_of_pairs_and_comes_between_rounds_and_restarts() {
        let tasks = tasks(7, 1, &[(Stage::Restarts, 3), (Stage::Soak, 1), (Stage::Rounds, 3)]);
        let cells: Vec<usize> = tasks.iter().map(|task| task.cell).collect();
        assert_eq!(cells, [2, 2, 2, 1, 0, 0, 0]);
    }

    #[test]
    fn the_seed_decides_and_both_targets_go_first_about_as_often() {
        let of = |seed| tasks(seed, 1, &[(Stage::Rounds, 50); 8]);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        let first = of(3).iter().filter(|task| task.first == 0).count();
        assert!((150..=250).contains(&first), "{first} of 400");
    }

    #[test]
    fn what_is_done_is_left_out_and_the_rest_keeps_its_order() {
        let all = tasks(1, 1, &[(Stage::Rounds, 3); 2]);
        let done: BTreeSet<_> = all[..2].iter().map(Task::id).collect();
        assert_eq!(left(&all, &done), all[2..]);
        assert_eq!(left(&all, &all.iter().map(Task::id).collect()), []);
    }
}
