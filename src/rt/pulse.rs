//! Shell. What one shard shows to other threads, and the watchdog that looks at it.
//!
//! Owns the atomics, the bell and the watchdog thread. Knows nothing of what a shard works on. Always: only the shard writes
//! `turns`, `work` and `parked`; everybody may ring. Source: glommio 0.9 can park with runnable
//! tasks (issue 53 of its fork), its own heartbeat timers included, and only a kick from outside ends that.

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
/// A shard that parked gets one kick this many looks after its last turn, in case it parked with runnable tasks.
const LOOKS_BEFORE_SETTLING: u32 = 5;
/// A shard that stands still this many looks in spite of the kicks is beyond help. Looks, not time: a suspended machine
/// must not count.
const LOOKS_BEFORE_END: u32 = 1000;

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
    settling: Settling,
}

/// Every burst of activity is followed by one kick, and the turn which that kick causes is no activity.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Settling {
    #[default]
    Active,
    Kicked,
    Settled,
}

/// What one look asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Fine,
    /// Kick, in case: it parked.
    Settle,
    /// Kick: it stands still with work to do.
    Kick,
    /// It stands still in spite of the kicks.
    Lost,
}

impl Seen {
    /// `due`: the shard has something to do that should make it turn.
    fn look(&mut self, turns: u64, due: bool) -> Verdict {
        if turns != self.turns {
            self.settling = if self.settling == Settling::Kicked { Settling::Settled } else { Settling::Active };
            self.turns = turns;
            self.looks_still = 0;
            return Verdict::Fine;
        }
        if !due {
            // Idle time is not standing still.
            self.looks_still = LOOKS_BEFORE_SETTLING.min(self.looks_still + 1);
            if self.settling == Settling::Active && self.looks_still == LOOKS_BEFORE_SETTLING {
                self.settling = Settling::Kicked;
                return Verdict::Settle;
            }
            return Verdict::Fine;
        }
        self.looks_still += 1;
        match self.looks_still {
            ..LOOKS_BEFORE_KICK => Verdict::Fine,
            LOOKS_BEFORE_END.. => Verdict::Lost,
            _ => Verdict::Kick,
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
    while !ending.load(Ordering::Acquire) {
        let mut all_idle = true;
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
            all_idle &= !due && turns == seen.turns && seen.settling == Settling::Settled;
            match seen.look(turns, due) {
                Verdict::Fine => {}
                Verdict::Settle => pulse.kick(),
                Verdict::Kick => {
                    pulse.kicks.fetch_add(1, Ordering::Relaxed);
                    if seen.looks_still == LOOKS_BEFORE_KICK {
                        warn!(shard, turns, "a shard stood still with work in flight; kicked it");
                    }
                    pulse.kick();
                }
                Verdict::Lost => {
                    // Not through the log: its writer would not live to write it.
                    eprintln!(
                        "shard {shard} stands still at turn {turns} in spite of {LOOKS_BEFORE_END} looks and kicks; ending \
                         the process"
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
        assert_eq!(seen.look(1, true), Verdict::Fine);
        assert_eq!(seen.look(1, true), Verdict::Fine);
        for _ in LOOKS_BEFORE_KICK..LOOKS_BEFORE_END {
            assert_eq!(seen.look(1, true), Verdict::Kick);
        }
        assert_eq!(seen.look(1, true), Verdict::Lost);
    }

    #[test]
    fn a_turn_after_a_kick_starts_the_count_again() {
        let mut seen = Seen::default();
        for turns in 1..5000 {
            assert_eq!(seen.look(turns, true), Verdict::Fine);
            assert_eq!(seen.look(turns, true), Verdict::Fine);
            assert_eq!(seen.look(turns, true), Verdict::Kick);
        }
    }

    #[test]
    fn each_burst_of_activity_ends_in_one_kick_and_idleness_in_no_more() {
        let mut seen = Seen::default();
        let mut kicks = 0;
        let mut turns = 0;
        for _burst in 0..3 {
            turns += 1;
            for _ in 0..100 {
                match seen.look(turns, false) {
                    Verdict::Fine => {}
                    Verdict::Settle => {
                        kicks += 1;
                        turns += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(kicks, 3);
    }
}
