//! One generator thread's place of work: what it writes down, and how it hears of start and stop.
//!
//! Shell. Owns the sheet of a thread (recorder, ledger, errors) and the line to whoever leads the run (`load`). Does not own
//! what is sent. Always true: the lock around a sheet is taken by its own thread alone while measuring, for one record or one
//! batch, never across a wait; a thread that ends hands over everything it knows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[expect(
    clippy::disallowed_types,
    reason = "delivery handlers must be Sync; only one thread ever takes the lock while measuring"
)]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::clock::Clock;
use super::plan::Plan;
use super::recorder::{Interval, Recorder};
use super::schedule::{Micros, Schedule};
use super::target::{BenchError, ReadyTopic};
use super::verify::Ledger;

/// How often finished seconds are handed over.
const HAND_OVER: Duration = Duration::from_millis(100);
/// A record that was due so shortly before the stop waited for nobody but the generator's next wake-up.
const UNSENT_AGE_MIN: Micros = 1000;
/// Steps in which the unsent records of a schedule are written down; a billion a second would take minutes one by one.
const UNSENT_STEPS_MAX: u64 = 1_000_000;

/// Where the run stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Clients are made; nothing is sent.
    Preparing,
    /// Go, by this clock.
    Running(Clock),
    /// Send nothing new; wait for what is under way.
    Stopping,
    /// All that was sent has its answer, or never will: whoever reads along reads to where the partitions end now.
    Drained,
}

/// What a thread tells whoever leads.
pub(crate) enum Told {
    /// Its clients are ready.
    Ready,
    /// Finished seconds.
    Seconds(Vec<(u64, Interval)>),
    /// Its sources are exhausted, or were stopped and have drained.
    Done,
    /// It cannot go on.
    Failed(BenchError),
    /// It has ended; all it knows.
    Ended(Box<Remains>),
}

/// What is left when a thread has ended.
#[derive(Default)]
pub(crate) struct Remains {
    pub(crate) seconds: Vec<(u64, Interval)>,
    pub(crate) ledger: Ledger,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) notes: Vec<String>,
    /// Batches that were sent again.
    pub(crate) retries: u64,
    /// When the last record was acknowledged or read, microseconds of the run.
    pub(crate) last_us: u64,
}

/// What a thread writes down.
#[derive(Default)]
pub(crate) struct Sheet {
    pub(crate) recorder: Recorder,
    pub(crate) ledger: Ledger,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) notes: Vec<String>,
    pub(crate) retries: u64,
    pub(crate) last_us: u64,
}

impl Sheet {
    pub(crate) fn on_error(&mut self, name: &str, count: u64) {
        // Names come from tables, so there are few; the bound is against those that carry numbers.
        const NAMES_MAX: usize = 100;
        let name = if self.errors.len() < NAMES_MAX || self.errors.contains_key(name) { name } else { "others" };
        *self.errors.entry(name.to_owned()).or_default() += count;
    }
}

/// Everything about the run that is the same for all threads.
pub(crate) struct Brief {
    pub(crate) plan: Plan,
    pub(crate) topic: ReadyTopic,
    /// Marks this run's records.
    pub(crate) run: u32,
    /// Where reading begins, by partition.
    pub(crate) starts: Vec<i64>,
    /// Where reading ends at the latest; what lies in the topic when `consume` begins.
    pub(crate) ends: Vec<i64>,
    /// Records that may still be sent or read; counts down only when the plan says how many.
    pub(crate) budget: AtomicU64,
    /// Members of groups that have not read to the end: nobody leaves before, so that none has to wait for a rebalance.
    pub(crate) members: AtomicU32,
    /// The broker's process, when it runs here.
    pub(crate) broker_pid: Option<u32>,
    /// Where the measured time ends, microseconds of the run; `u64::MAX` while that is not known. Set before the stop is told, so
    /// that what is answered while things are drained is not counted for the second in which they began to be.
    pub(crate) ends_at: AtomicU64,
}

/// One generator thread's place. Shared with the delivery handlers of its producers.
pub(crate) struct Station {
    pub(crate) brief: Arc<Brief>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Which thread, of the plan's.
    pub(crate) number: u32,
    told: mpsc::UnboundedSender<Told>,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    sheet: Mutex<Sheet>,
}

impl Station {
    pub(crate) fn new(
        brief: Arc<Brief>,
        phase: watch::Receiver<Phase>,
        number: u32,
        told: mpsc::UnboundedSender<Told>,
    ) -> Arc<Self> {
        Arc::new(Self { brief, phase, number, told, sheet: Default::default() })
    }

    /// The sheet. Hold it across no await.
    pub(crate) fn sheet(&self) -> MutexGuard<'_, Sheet> {
        let mut sheet = self.sheet.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.brief.ends_at.load(Ordering::Relaxed);
        sheet.recorder.end_at((end < u64::MAX).then_some(end));
        sheet
    }

    /// Tells whoever leads. Nobody listens any more only when the run was given up.
    pub(crate) fn tell(&self, what: Told) {
        _ = self.told.send(what);
    }

    /// Of `count` things numbered through, those that are this thread's.
    pub(crate) fn share(&self, count: u32) -> impl Iterator<Item = u32> + use<> {
        (self.number..count).step_by(self.brief.plan.threads as usize)
    }

    /// Until the run begins; `None` when it was called off.
    pub(crate) async fn started(&self) -> Option<Clock> {
        let mut phase = self.phase.clone();
        let begun = phase.wait_for(|phase| !matches!(phase, Phase::Preparing)).await.ok()?;
        match *begun {
            Phase::Running(clock) => Some(clock),
            _ => None,
        }
    }

    /// Until nothing new may be sent.
    pub(crate) async fn stopped(&self) {
        let mut phase = self.phase.clone();
        // An error means that whoever leads is gone: that is a stop, too.
        _ = phase.wait_for(|phase| matches!(phase, Phase::Stopping | Phase::Drained)).await;
    }

    /// Whether nothing new may be sent.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Stopping | Phase::Drained)
    }

    /// Whether nothing more will be acknowledged, in any thread.
    pub(crate) fn is_drained(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Drained)
    }

    /// Writes down what `schedule` had due and unsent when the measured time ended: leaving it out would hide a stall that
    /// outlasts the run. To be called after the stop.
    pub(crate) fn charge_unsent(&self, schedule: &mut Schedule) {
        let end = self.brief.ends_at.load(Ordering::Relaxed);
        if !self.is_stopping() || end == u64::MAX {
            return;
        }
        let until = end.saturating_sub(UNSENT_AGE_MIN);
        let step = schedule.due_before(until).div_ceil(UNSENT_STEPS_MAX).max(1);
        let mut sheet = self.sheet();
        while schedule.next_at() < until {
            sheet.recorder.on_unsent(end, schedule.next_at(), step);
            schedule.skip(step);
        }
    }

    /// Takes `count` records off the budget; false when it is used up.
    pub(crate) fn may_send(&self, count: u64) -> bool {
        if self.brief.plan.records.is_none() {
            return true;
        }
        let take = |left: u64| (left >= count).then(|| if left == u64::MAX { left } else { left - count });
        self.brief.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Hands over finished seconds until the run stops.
    pub(crate) async fn report_seconds(&self, clock: Clock) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(HAND_OVER) => {}
                () = self.stopped() => return,
            }
            let seconds = self.sheet().recorder.take_finished(clock.now());
            if !seconds.is_empty() {
                self.tell(Told::Seconds(seconds));
            }
        }
    }

    /// The end: everything on the sheet goes to whoever leads.
    pub(crate) fn end(&self) {
        let sheet = std::mem::take(&mut *self.sheet());
        self.tell(Told::Ended(Box::new(Remains {
            seconds: sheet.recorder.finish(),
            ledger: sheet.ledger,
            errors: sheet.errors,
            notes: sheet.notes,
            retries: sheet.retries,
            last_us: sheet.last_us,
        })));
    }
}
