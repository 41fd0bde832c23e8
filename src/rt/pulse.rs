//! Shell. What one shard shows to other threads, and the watchdog that looks at it.
//!
//! Owns the atomics, the bell and the watchdog thread. Knows nothing of what a shard works on. Always: only the shard writes
//! `turns`, `work` and `parked`; everybody may ring.
//!
//! glommio 0.9 can park with runnable tasks (issue 53 of its fork): when its preempt timer, or anything else in its latency
//! ring, comes between its look at the rings and its look at the queues. Any task may be among them, its heartbeats and the
//! one that answers kicks included, and nobody counts what stands in its queues. So **a shard that ran and sleeps is asked**
//! whether all of its tasks have been polled, and asked again until it answers. That it ran, for whatever reason (a socket, a
//! timer, a file), shows in its thread's CPU time, which the kernel counts. A question always reaches the executor: waking a
//! task of another thread writes glommio's eventfd, whatever that task's state, if its queue is one where latency matters.
//! Source: glommio 0.9.0, `LocalExecutor::run`, `SleepNotifier::queue_waker`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::SegQueue;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::time::Timespec;
use tracing::{error, warn};

/// How often the watchdog looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it looks while every shard is idle: looking costs a tenth of a percent of a core at the pace above.
const LOOK_EVERY_WHEN_IDLE: Duration = Duration::from_millis(100);
/// A shard that stood still this many looks is kicked. One look may fall between two heartbeats; two do not.
const LOOKS_BEFORE_KICK: u32 = 2;
/// So many kicks follow each other; then every hundredth look kicks. Each leaves glommio a reference to count until the shard
/// runs again, and it counts to 32,767.
const KICKS_IN_A_ROW: u32 = 100;
/// A shard that ran is asked this many looks after it last did, in case it parked with runnable tasks. Sooner, and a request
/// now and then would cost a question each.
const LOOKS_BEFORE_ASKING: u32 = 5;
/// Where the kernel does not count a thread's CPU time, a shard is asked after this many idle looks.
const LOOKS_BETWEEN_QUESTIONS: u64 = 16;
/// A shard that stands still this many looks in spite of the kicks is beyond help. Looks, not time: a suspended machine
/// must not count.
const LOOKS_BEFORE_END: u32 = 1000;
/// A shard that got less than a tenth of these ten seconds can hardly have had its turn.
const CPU_TIME_OF_THE_STARVED: u64 = 1_000_000_000;

/// One shard as seen from other threads.
pub(super) struct Pulse {
    /// Rises with every sign of life.
    turns: AtomicU64,
    /// Pieces of work in flight that will need the shard again: file operations, blocking calls, `rt::work` guards.
    work: AtomicU32,
    /// Background tasks that wait for the executor.
    background: AtomicU32,
    /// The net task waits in glommio's ring and has nothing to do.
    parked: AtomicBool,
    /// The net task sleeps, here or in glommio, and a message must ring.
    sleeping: AtomicBool,
    /// In the net task's epoll, edge triggered: a write is an event, nobody reads it.
    bell: OwnedFd,
    /// Wakers of this shard's tasks, woken by other threads: the net task wakes them on its side.
    remote_wakes: SegQueue<Waker>,
    /// The net task's epoll, once there is one.
    epoll: OnceLock<Arc<OwnedFd>>,
    /// Wakes the shard's pulse task through glommio's own descriptor, which ends every kind of sleep.
    kick: OnceLock<Waker>,
    kicks: AtomicU64,
    /// Questions whether every task has been polled, and the last one that was answered.
    asked: AtomicU32,
    answered: AtomicU32,
    /// `schedstat`, `stat` and `wchan` of the shard's thread.
    cpu_time: OnceLock<OwnedFd>,
    state: OnceLock<OwnedFd>,
    waits_in: OnceLock<OwnedFd>,
    finished: AtomicBool,
}

impl Pulse {
    pub(super) fn new() -> rustix::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            turns: AtomicU64::new(0),
            work: AtomicU32::new(0),
            background: AtomicU32::new(0),
            // Without a net task there is nobody who should turn.
            parked: AtomicBool::new(true),
            sleeping: AtomicBool::new(false),
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            remote_wakes: SegQueue::new(),
            epoll: OnceLock::new(),
            kick: OnceLock::new(),
            kicks: AtomicU64::new(0),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            cpu_time: OnceLock::new(),
            state: OnceLock::new(),
            waits_in: OnceLock::new(),
            finished: AtomicBool::new(false),
        }))
    }

    /// A sign of life, given by the shard.
    pub(super) fn turn(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }

    pub(super) fn set_work(&self, count: u32) {
        self.work.store(count, Ordering::Relaxed);
    }

    /// One background task more, or less, that can run.
    pub(super) fn count_background(&self, more: bool) {
        if more {
            self.background.fetch_add(1, Ordering::Relaxed);
        } else {
            self.background.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn has_background(&self) -> bool {
        self.background.load(Ordering::Relaxed) > 0
    }

    pub(super) fn set_parked(&self, parked: bool) {
        self.parked.store(parked, Ordering::Relaxed);
    }

    pub(super) fn bell(&self) -> impl AsFd + '_ {
        &self.bell
    }

    /// The net task's epoll; `false` when the shard has one already.
    pub(super) fn set_epoll(&self, epoll: Arc<OwnedFd>) -> bool {
        self.epoll.set(epoll).is_ok()
    }

    pub(super) fn set_kick(&self, waker: Waker) {
        // A second waker of the same task would do the same.
        let _ = self.kick.set(waker);
    }

    /// This thread is the shard's.
    pub(super) fn set_thread(&self) {
        for (name, place) in [("schedstat", &self.cpu_time), ("stat", &self.state), ("wchan", &self.waits_in)] {
            if let Ok(file) = std::fs::File::open(format!("/proc/thread-self/{name}")) {
                let _ = place.set(file.into());
            }
        }
    }

    /// What its thread is doing, as the kernel says it: `R` running or waiting for a core, `D` held by the kernel, `S` asleep;
    /// and where in the kernel it waits.
    fn state(&self) -> (Option<char>, String) {
        let mut text = [0; 128];
        let mut read = |place: &OnceLock<OwnedFd>| {
            let length = place.get().and_then(|file| rustix::io::pread(file, &mut text, 0).ok()).unwrap_or(0);
            String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned()
        };
        // The name before the state stands in parentheses and may hold anything.
        let state = read(&self.state).rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        (state, read(&self.waits_in))
    }

    /// Nanoseconds its thread has run, as of its last sleep or tick; `None` where the kernel does not say.
    fn cpu_time(&self) -> Option<u64> {
        let mut text = [0; 32];
        let length = rustix::io::pread(self.cpu_time.get()?, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        text.split(' ').next()?.parse().ok()
    }

    /// The question that is open, for its answer.
    pub(super) fn question(&self) -> u32 {
        self.asked.load(Ordering::Acquire)
    }

    /// Every task that could run when `question` was asked has been polled.
    pub(super) fn answer(&self, question: u32) {
        self.answered.store(question, Ordering::Release);
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire)
    }

    /// Asks whether every task has been polled, which makes the executor poll them.
    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
        if let Some(waker) = self.kick.get() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Told by the shard before it looks at its inboxes for the last time and sleeps. Pairs with [`Pulse::ring`]: either
    /// that look sees the message, or the ringer sees the sleeper.
    pub(super) fn fall_asleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Wakes the net task if it sleeps. Called after a message was put where the shard will look.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.write_bell();
        }
    }

    fn write_bell(&self) {
        // Fails only when the counter is full, after 2^64 writes nobody read.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Wakes a task of this shard from another thread.
    pub(super) fn wake_there(&self, waker: Waker) {
        self.remote_wakes.push(waker);
        self.ring();
    }

    /// The next task that another thread wants woken.
    pub(super) fn next_remote_wake(&self) -> Option<Waker> {
        self.remote_wakes.pop()
    }

    pub(super) fn has_remote_wakes(&self) -> bool {
        !self.remote_wakes.is_empty()
    }

    fn kick(&self) {
        if let Some(waker) = self.kick.get() {
            waker.wake_by_ref();
        }
        self.write_bell();
    }

    /// Whether the net task sleeps although its epoll has something for it.
    fn oversleeps(&self) -> bool {
        self.epoll.get().is_some_and(|epoll| {
            let mut waited = [PollFd::new(epoll, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut waited, Some(&now)).is_ok_and(|ready| ready > 0)
        })
    }
}

/// What the watchdog remembers of one shard between looks.
#[derive(Default)]
struct Seen {
    turns: u64,
    looks_still: u32,
    cpu_time: u64,
    /// Its thread's CPU time when it was first kicked.
    cpu_time_kicked: u64,
    rest: Rest,
}

/// Why a shard stands still in spite of the kicks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standstill {
    /// The kernel holds its thread, most likely for a device: it goes on when the device does, and no other process would be
    /// served sooner.
    Held,
    /// It could run, and no core was given to it.
    Starved,
    /// Its own fault: it loops, or sleeps in spite of the kicks.
    Own,
}

impl Standstill {
    /// `ran`: CPU time since the first kick, nanoseconds.
    fn of(state: Option<char>, ran: u64) -> Self {
        match state {
            Some('D') => Self::Held,
            Some('R') if ran < CPU_TIME_OF_THE_STARVED => Self::Starved,
            _ => Self::Own,
        }
    }
}

/// Whether a shard that shows no sign of life has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Rest {
    #[default]
    Unknown,
    /// Asked, when it had made so many turns.
    Asked(u64),
    Settled,
}

/// What one look asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Fine,
    /// Ask: it sleeps, perhaps with tasks that could run.
    Ask,
    /// Ask again: it did not answer.
    AskAgain,
    /// Kick: it stands still with work to do.
    Kick,
    /// It stands still in spite of the kicks.
    Lost,
}

impl Seen {
    /// Begins another wait for a shard that its host keeps from running, and that has had so much CPU time.
    fn wait_for_host(&mut self, cpu_time: u64) {
        self.looks_still = KICKS_IN_A_ROW;
        self.cpu_time_kicked = cpu_time;
    }

    /// `due`: the shard has something to do that should make it turn. `cpu_time` is asked for only where the others leave the
    /// answer open.
    fn look(&mut self, turns: u64, due: bool, answered: bool, cpu_time: impl FnOnce() -> u64) -> Verdict {
        if turns != self.turns {
            // The turn that a question causes is no life of its own.
            self.rest = match self.rest {
                Rest::Asked(then) if answered && !due && turns == then + 1 => {
                    self.cpu_time = cpu_time();
                    Rest::Settled
                }
                _ => Rest::Unknown,
            };
            self.turns = turns;
            self.looks_still = 0;
            return Verdict::Fine;
        }
        if due {
            self.rest = Rest::Unknown;
            self.looks_still += 1;
            return match self.looks_still {
                ..LOOKS_BEFORE_KICK => Verdict::Fine,
                LOOKS_BEFORE_END.. => Verdict::Lost,
                looks if looks > KICKS_IN_A_ROW && !looks.is_multiple_of(KICKS_IN_A_ROW) => Verdict::Fine,
                _ => Verdict::Kick,
            };
        }
        let cpu_time = cpu_time();
        let has_run = std::mem::replace(&mut self.cpu_time, cpu_time) != cpu_time;
        match self.rest {
            Rest::Asked(_) => Verdict::AskAgain,
            Rest::Settled if !has_run => Verdict::Fine,
            Rest::Settled => {
                self.rest = Rest::Unknown;
                self.looks_still = 0;
                Verdict::Fine
            }
            Rest::Unknown => {
                // Idle time is not standing still.
                self.looks_still = LOOKS_BEFORE_ASKING.min(self.looks_still + 1);
                if has_run || self.looks_still < LOOKS_BEFORE_ASKING {
                    return Verdict::Fine;
                }
                self.rest = Rest::Asked(turns);
                Verdict::Ask
            }
        }
    }
}

/// The thread that looks at every shard's pulse.
pub(super) struct Watchdog {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    pub(super) fn start(pulses: Vec<Arc<Pulse>>) -> std::io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let told = ending.clone();
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&pulses, &told))?;
        Ok(Self { ending, thread })
    }

    pub(super) fn end(self) {
        self.ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            error!("the watchdog had panicked");
        }
    }
}

fn watch(pulses: &[Arc<Pulse>], ending: &AtomicBool) {
    let mut seen: Vec<Seen> = pulses.iter().map(|_| Seen::default()).collect();
    let mut looks: u64 = 0;
    while !ending.load(Ordering::Acquire) {
        let mut all_idle = true;
        looks += 1;
        for (shard, (pulse, seen)) in pulses.iter().zip(&mut seen).enumerate() {
            if pulse.finished.load(Ordering::Acquire) {
                continue;
            }
            let turns = pulse.turns();
            // The last question costs a system call, so it is asked only where the others leave the answer open.
            let due = !pulse.parked.load(Ordering::Relaxed)
                || pulse.work.load(Ordering::Relaxed) > 0
                || pulse.has_background()
                || (turns == seen.turns && pulse.oversleeps());
            let cpu_time = || pulse.cpu_time().unwrap_or(looks / LOOKS_BETWEEN_QUESTIONS);
            let verdict = seen.look(turns, due, pulse.is_answered(), cpu_time);
            all_idle &= seen.rest == Rest::Settled;
            match verdict {
                Verdict::Fine => {}
                Verdict::Ask => pulse.ask(),
                Verdict::AskAgain => {
                    pulse.kicks.fetch_add(1, Ordering::Relaxed);
                    pulse.ask();
                }
                Verdict::Kick => {
                    pulse.kicks.fetch_add(1, Ordering::Relaxed);
                    if seen.looks_still == LOOKS_BEFORE_KICK {
                        seen.cpu_time_kicked = pulse.cpu_time().unwrap_or(0);
                        warn!(shard, turns, "a shard stood still with work in flight; kicked it");
                    }
                    pulse.kick();
                }
                Verdict::Lost => {
                    let (state, waits_in) = pulse.state();
                    let cpu_time = pulse.cpu_time().unwrap_or(0);
                    let ran = cpu_time.saturating_sub(seen.cpu_time_kicked);
                    let cause = Standstill::of(state, ran);
                    if cause != Standstill::Own {
                        let state = state.unwrap_or('?');
                        warn!(shard, turns, %state, waits_in, ?cause, "a shard has stood still for ten seconds; waiting for the host");
                        seen.wait_for_host(cpu_time);
                        pulse.kick();
                        continue;
                    }
                    // Not through the log: its writer would not live to write it.
                    eprintln!(
                        "shard {shard} stands still at turn {turns} in spite of {LOOKS_BEFORE_END} looks and kicks (thread \
                         state {}, in {waits_in}, {} ms of CPU since); ending the process",
                        state.unwrap_or('?'),
                        ran / 1_000_000
                    );
                    std::process::abort();
                }
            }
        }
        std::thread::park_timeout(if all_idle { LOOK_EVERY_WHEN_IDLE } else { LOOK_EVERY });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_still_with_work_is_kicked_and_in_the_end_lost() {
        let mut seen = Seen::default();
        let mut look = || seen.look(1, true, true, || 0);
        assert_eq!(look(), Verdict::Fine);
        assert_eq!(look(), Verdict::Fine);
        let verdicts: Vec<_> = (LOOKS_BEFORE_KICK..LOOKS_BEFORE_END).map(|_| look()).collect();
        let (row, rest) = verdicts.split_at((KICKS_IN_A_ROW + 1 - LOOKS_BEFORE_KICK) as usize);
        assert!(row.iter().all(|verdict| *verdict == Verdict::Kick));
        assert_eq!(rest.iter().filter(|verdict| **verdict == Verdict::Kick).count(), 8);
        assert_eq!(look(), Verdict::Lost);
    }

    #[test]
    fn an_hour_of_waiting_for_the_host_asks_for_few_kicks_and_counts_cpu_time_from_each_beginning() {
        let mut seen = Seen::default();
        let mut kicks = 0;
        for _ in 0..360_000 {
            match seen.look(1, true, true, || 0) {
                Verdict::Kick => kicks += 1,
                Verdict::Lost => {
                    let cpu_time = seen.cpu_time_kicked + CPU_TIME_OF_THE_STARVED / 2;
                    assert_eq!(Standstill::of(Some('R'), cpu_time - seen.cpu_time_kicked), Standstill::Starved);
                    seen.wait_for_host(cpu_time);
                    kicks += 1;
                }
                _ => {}
            }
        }
        assert!(kicks < 10_000, "{kicks}");
    }

    #[test]
    fn a_shard_that_the_host_keeps_from_running_is_waited_for_and_one_that_loops_or_sleeps_on_is_not() {
        assert_eq!(Standstill::of(Some('D'), 0), Standstill::Held);
        assert_eq!(Standstill::of(Some('R'), 3_000_000), Standstill::Starved);
        assert_eq!(Standstill::of(Some('R'), 9_000_000_000), Standstill::Own);
        assert_eq!(Standstill::of(Some('S'), 0), Standstill::Own);
        assert_eq!(Standstill::of(None, 0), Standstill::Own);
    }

    #[test]
    fn the_kernel_says_what_a_thread_does() {
        let pulse = Pulse::new().unwrap();
        assert_eq!(pulse.state(), (None, String::new()));
        pulse.set_thread();
        assert_eq!(pulse.state().0, Some('R'), "it is this one");
    }

    #[test]
    fn a_turn_after_a_kick_starts_the_count_again() {
        let mut seen = Seen::default();
        for turns in 1..5000 {
            assert_eq!(seen.look(turns, true, true, || 0), Verdict::Fine);
            assert_eq!(seen.look(turns, true, true, || 0), Verdict::Fine);
            assert_eq!(seen.look(turns, true, true, || 0), Verdict::Kick);
        }
    }

    /// A shard without work: its counters, and how many questions it leaves unanswered.
    #[derive(Default)]
    struct Idle {
        seen: Seen,
        turns: u64,
        cpu_time: u64,
        answered: bool,
        deaf_to: u32,
    }

    impl Idle {
        fn questions_in(&mut self, looks: u32) -> u32 {
            let mut questions = 0;
            for _ in 0..looks {
                match self.seen.look(self.turns, false, self.answered, || self.cpu_time) {
                    Verdict::Fine => {}
                    Verdict::Ask | Verdict::AskAgain => {
                        questions += 1;
                        // Whether or not it gets to its tasks, it woke.
                        self.cpu_time += 1;
                        self.answered = self.deaf_to == 0;
                        self.turns += u64::from(self.answered);
                        self.deaf_to = self.deaf_to.saturating_sub(1);
                    }
                    other => panic!("{other:?}"),
                }
            }
            questions
        }
    }

    #[test]
    fn each_burst_of_activity_ends_in_one_question_and_idleness_in_no_more() {
        let mut idle = Idle::default();
        for _burst in 0..3 {
            (idle.turns, idle.cpu_time) = (idle.turns + 1, idle.cpu_time + 1);
            assert_eq!(idle.questions_in(100), 1);
        }
        // A timer, or anything else that woke it without a turn.
        idle.cpu_time += 1;
        assert_eq!(idle.questions_in(100), 1);
        assert_eq!(idle.questions_in(1000), 0);
    }

    #[test]
    fn a_shard_that_does_not_answer_is_asked_until_it_does() {
        let mut idle = Idle { turns: 1, deaf_to: 20, ..Idle::default() };
        assert_eq!(idle.questions_in(100), 21);
        assert_eq!(idle.questions_in(1000), 0);
        assert_eq!(idle.seen.rest, Rest::Settled);
    }

    #[test]
    fn that_a_thread_ran_shows_in_its_cpu_time() {
        let pulse = Pulse::new().unwrap();
        pulse.set_thread();
        let Some(before) = pulse.cpu_time() else { return println!("not run: this kernel does not count") };
        // The kernel counts at its ticks and when the thread sleeps.
        let since = std::time::Instant::now();
        while pulse.cpu_time() == Some(before) {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
        let seen_by_another = std::thread::spawn(move || pulse.cpu_time()).join().unwrap();
        assert!(seen_by_another > Some(before));
    }

    #[test]
    fn a_shard_that_runs_is_not_asked() {
        let mut seen = Seen::default();
        for cpu_time in 0..1000 {
            assert_eq!(seen.look(0, false, true, || cpu_time), Verdict::Fine);
        }
    }
}
