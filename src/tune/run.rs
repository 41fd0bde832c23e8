//! The loop: next trial, measure, write it down, tell the search.
//!
//! Shell: writes the journal. Owns the order of these steps and what an interruption leaves. Does not own the decisions (`search`,
//! `grid`) nor the measuring (`trial`). Always true: a course replayed from its journal makes the same trials, or says that the
//! journal was written by another program.

use super::grid::Grid;
use super::journal::{Journal, JournalError};
use super::search::{End, Order, Record, Search, Step};
use super::trial::{Trial, TrialError};

/// What is gone through: a search, or a grid.
#[derive(Clone, Debug)]
pub enum Course {
    /// A search.
    Search(Box<Search>),
    /// Every cell.
    Grid(Box<Grid>),
}

impl Course {
    /// What to do at `now`; asked once for each result.
    pub fn next(&mut self, now: std::time::Duration) -> Step {
        match self {
            Self::Search(search) => search.next(now),
            Self::Grid(grid) => grid.next(),
        }
    }

    fn on_result(&mut self, record: Record) {
        match self {
            Self::Search(search) => search.on_result(record),
            Self::Grid(grid) => grid.on_result(record),
        }
    }

    fn interrupt(&mut self) {
        match self {
            Self::Search(search) => search.interrupt(),
            Self::Grid(grid) => grid.interrupt(),
        }
    }

    /// All trials so far.
    pub fn records(&self) -> &[Record] {
        match self {
            Self::Search(search) => search.records(),
            Self::Grid(grid) => grid.records(),
        }
    }
}

/// How a course ended.
#[derive(Debug)]
pub struct Ended {
    /// Why there is nothing more to do.
    pub end: End,
    /// What went wrong, when something did; what was measured before it stands.
    pub failure: Option<anyhow::Error>,
}

/// For whoever shows progress.
#[derive(Debug)]
pub enum Event<'a> {
    /// A trial begins.
    Begins(&'a Order),
    /// A trial is over.
    Ended(&'a Record, &'a Course),
}

/// Goes through the records of a journal without measuring. Errors: they are not what this course would have done.
pub fn replay(course: &mut Course, records: Vec<Record>) -> Result<(), String> {
    for record in records {
        match course.next(record.began) {
            Step::Measure(order) if order == record.order => course.on_result(record),
            Step::Measure(order) => {
                return Err(format!(
                    "trial {} of the journal is not the one this program would make (it would measure {:?} for {:.1} s): \
                     it was written by another version. Begin anew with another --journal",
                    record.order.number,
                    order.point,
                    order.duration.as_secs_f64()
                ));
            }
            Step::Done(_) => {
                return Err(format!("the search ends before trial {} of the journal", record.order.number));
            }
        }
    }
    Ok(())
}

/// Goes on until the course is done, interrupted, or a trial fails. Errors: the journal cannot be written.
pub fn run(
    course: &mut Course,
    trial: &mut dyn Trial,
    mut journal: Option<&mut Journal>,
    facts_known: bool,
    watcher: &mut dyn FnMut(Event<'_>),
) -> Result<Ended, JournalError> {
    let mut facts_known = facts_known;
    loop {
        let now = trial.elapsed();
        let order = match course.next(now) {
            Step::Done(end) => return Ok(Ended { end, failure: None }),
            Step::Measure(order) => order,
        };
        watcher(Event::Begins(&order));
        let measured = match trial.measure(&order.point, order.duration) {
            Ok(measured) => measured,
            Err(error) => {
                course.interrupt();
                let failure = match error {
                    TrialError::Interrupted => None,
                    TrialError::Failed(error) => Some(error),
                };
                return Ok(Ended { end: End::Interrupted, failure });
            }
        };
        let mut record = Record { order, began: now, ended: trial.elapsed(), measured };
        if let Some(journal) = &mut journal {
            if let (false, Some(facts)) = (facts_known, trial.facts()) {
                journal.on_facts(&facts)?;
                facts_known = true;
            }
            record = journal.on_record(&record)?;
        }
        course.on_result(record.clone());
        watcher(Event::Ended(&record, course));
    }
}
