//! The largest rate a broker sustains: by bisection, not by ramp.
//!
//! Pure. Owns which rate is tried next and when to stop. Does not own the trial. Always true: the answer is a rate that was
//! tried and held; the rate it is bounded by failed twice, so that one hiccup of the host does not bound it; the search ends
//! after [`STEPS_MAX`] trials.
//! Source: what OpenMessaging Benchmark's three-second control loop gets wrong: a ramp's backlog is charged to the next rate.

/// More trials than any search needs: twenty doublings, ten halvings, and some that are made twice.
const STEPS_MAX: usize = 40;

/// What a trial found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Records per second acknowledged.
    pub achieved: f64,
    /// What the limit is on, microseconds; `None` when it was not measured.
    pub latency_us: Option<f64>,
    /// Records waiting for their acknowledgement in the first and in the last third of the trial, on average.
    pub backlog: (f64, f64),
    /// Records that failed.
    pub errors: u64,
    /// The generator itself was late. A rate that holds all the same is sustained; of one that does not hold it is said.
    pub client_bound: bool,
}

/// The bisection.
#[derive(Clone, Debug)]
pub struct Search {
    limit_us: f64,
    /// The relative width at which it is good enough.
    precision: f64,
    sustained: Option<f64>,
    /// Rates that failed, all above what held; the lowest bounds the answer.
    failed: Vec<f64>,
    /// The lowest of them failed again.
    confirmed: bool,
    next: f64,
    steps: usize,
}

impl Search {
    /// Begins at `start` records per second, with a limit on latency, and ends when the answer is known within `precision`
    /// (0.05 is 5 %).
    pub fn new(start: f64, limit_us: f64, precision: f64) -> Self {
        Self {
            limit_us,
            precision: precision.max(0.005),
            sustained: None,
            failed: Vec::new(),
            confirmed: false,
            next: start.max(1.0),
            steps: 0,
        }
    }

    /// The rate to try; `None` when the search is over.
    pub fn next_rate(&self) -> Option<f64> {
        let settled = match (self.sustained, self.bound()) {
            (Some(_), Some(_)) => self.confirmed,
            (None, Some(failed)) => failed <= 1.0,
            _ => false,
        };
        (!settled && self.steps < STEPS_MAX).then_some(self.next)
    }

    /// Takes in what [`Search::next_rate`]'s trial found; the error says why it was not sustained.
    pub fn on_trial(&mut self, trial: Trial) -> Result<(), String> {
        let rate = self.next;
        let verdict = self.judge(rate, trial);
        self.steps += 1;
        match verdict {
            Ok(()) => {
                self.sustained = Some(self.sustained.map_or(rate, |best| best.max(rate)));
                self.failed.retain(|failed| *failed > rate);
            }
            Err(_) if self.failed.contains(&rate) => self.confirmed = true,
            Err(_) => self.failed.push(rate),
        }
        self.next = match (self.sustained, self.bound()) {
            (Some(sustained), None) => sustained * 2.0,
            // What a failing broker still achieved is a better guess than half, when it is below.
            (None, Some(failed)) => {
                let achieved = trial.achieved * 0.9;
                if achieved > 0.0 && achieved < failed { achieved.max(failed / 8.0) } else { failed / 2.0 }
            }
            // It is known closely enough: the bound is tried once more.
            (Some(sustained), Some(failed)) if failed / sustained - 1.0 <= self.precision => failed,
            (Some(sustained), Some(failed)) => (sustained * failed).sqrt(),
            (None, None) => rate,
        };
        verdict
    }

    fn bound(&self) -> Option<f64> {
        self.failed.iter().copied().reduce(f64::min)
    }

    /// The largest rate that held.
    pub fn answer(&self) -> Option<f64> {
        self.sustained
    }

    fn judge(&self, rate: f64, trial: Trial) -> Result<(), String> {
        let late = if trial.client_bound { "; the generator itself could not keep up: client-bound" } else { "" };
        self.held(rate, trial).map_err(|why| format!("{why}{late}"))
    }

    fn held(&self, rate: f64, trial: Trial) -> Result<(), String> {
        let micros = super::units::micros;
        if trial.errors > 0 {
            return Err(format!("{} records failed, or had no answer in time", trial.errors));
        }
        let latency_us = trial.latency_us.ok_or("the latency of the limit was not measured")?;
        if latency_us > self.limit_us {
            return Err(format!("latency {} above {}", micros(latency_us), micros(self.limit_us)));
        }
        // A backlog that keeps growing by more than a tenth of a second's records is no steady state.
        let (first, last) = trial.backlog;
        if last > first * 1.5 + rate * 0.1 {
            return Err(format!("the backlog grew from {first:.0} to {last:.0} records"));
        }
        if trial.achieved < rate * 0.97 {
            return Err(format!("only {:.0} of {rate:.0} records/s were acknowledged", trial.achieved));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker that sustains `capacity` and is slow beyond it, and in the trials of those numbers.
    fn found(capacity: f64, start: f64, hiccups: &[usize]) -> (Option<f64>, usize) {
        let mut search = Search::new(start, 20_000.0, 0.05);
        let mut trials = 0;
        while let Some(rate) = search.next_rate() {
            trials += 1;
            let over = rate > capacity || hiccups.contains(&trials);
            _ = search.on_trial(Trial {
                achieved: rate.min(capacity),
                latency_us: Some(if over { 900_000.0 } else { 2_000.0 }),
                backlog: if over { (10.0, rate * 10.0) } else { (10.0, 10.0) },
                errors: 0,
                client_bound: false,
            });
        }
        (search.answer(), trials)
    }

    #[test]
    fn the_capacity_is_found_within_its_precision_from_above_and_below() {
        for (capacity, start) in [(73_000.0, 1_000.0), (73_000.0, 1_000_000.0), (5.0, 50_000.0), (900_000.0, 100_000.0)]
        {
            let (answer, trials) = found(capacity, start, &[]);
            let answer = answer.unwrap();
            assert!(answer <= capacity && answer >= capacity / 1.051, "{answer} for {capacity}");
            assert!(trials <= 22, "{trials}");
        }
    }

    #[test]
    fn a_trial_that_fails_by_accident_does_not_bound_the_answer() {
        for hiccups in [&[1][..], &[2], &[3], &[1, 4]] {
            let (answer, trials) = found(73_000.0, 10_000.0, hiccups);
            let answer = answer.unwrap();
            assert!(answer > 69_000.0 && answer <= 73_000.0 && trials <= 30, "{hiccups:?}: {answer}, {trials}");
        }
    }

    #[test]
    fn a_broker_that_sustains_nothing_gives_no_answer_and_the_search_ends() {
        let (answer, trials) = found(0.0, 1000.0, &[]);
        assert_eq!(answer, None);
        assert!(trials <= STEPS_MAX);
    }

    #[test]
    fn growing_backlogs_errors_and_slow_answers_are_not_sustained() {
        let good =
            Trial { achieved: 1000.0, latency_us: Some(100.0), backlog: (50.0, 60.0), errors: 0, client_bound: false };
        let judge = |trial| Search::new(1000.0, 1000.0, 0.05).on_trial(trial);
        assert_eq!(judge(good), Ok(()));
        assert!(judge(Trial { backlog: (50.0, 500.0), ..good }).unwrap_err().contains("backlog"));
        assert!(judge(Trial { errors: 1, ..good }).unwrap_err().contains("failed"));
        assert_eq!(judge(Trial { client_bound: true, ..good }), Ok(()));
        let late = Trial { client_bound: true, achieved: 900.0, ..good };
        assert!(judge(late).unwrap_err().contains("client-bound"));
        assert!(judge(Trial { latency_us: Some(1001.0), ..good }).unwrap_err().contains("latency"));
        assert!(judge(Trial { latency_us: None, ..good }).unwrap_err().contains("not measured"));
        assert!(judge(Trial { achieved: 900.0, ..good }).unwrap_err().contains("acknowledged"));
    }
}
