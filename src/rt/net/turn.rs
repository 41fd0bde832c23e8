//! Shell. The net task: waits, wakes, lets tasks run, sends, and gives glommio its turns.
//!
//! Owns the order of one turn. One turn: epoll → wake the tasks concerned, and those whose file operations are done → inboxes
//! → the tasks run (they stand behind the net task in the same queue, so yielding runs them all) → one send per connection
//! with answers, single slices all in one call → file operations go to the kernel → a full turn for glommio if it is owed
//! one → linger or park.
//! Always: it sleeps only after it has announced so, looked at every inbox once more and seen no task of its queue run; a
//! lingering or parked shard is woken by sockets, by its rings, by its bell, by tasks of its own, by the watchdog.
//!
//! Non-obvious. glommio submits and reaps I/O only when its run queue empties or its 1 ms preempt timer fires, and the net
//! task always runs: without *full turns* an append waits 1 ms to be submitted and 1 ms to be reaped. Every preempt timer
//! makes a ring readable, so timers are at most 1 ms late. While the task lingers glommio believes the shard is awake and
//! rings no bell for anyone: hence our own. Rings are switched off in the epoll while parked, else each wake-up of glommio
//! would wake us through them.

use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use tracing::error;

use super::send::send_together;
use super::{EVENTS_PER_TURN, Entry, Inner, Looked, key_of};
use crate::rt::raw::{self, Readable};
use crate::rt::ring::{SENDS_AT_ONCE, Served};
use crate::rt::task;

/// Tokens that are no entry's: no key is that large.
const TOKEN_BELL: u64 = u64::MAX;
const TOKEN_RING: u64 = u64::MAX - 1;
const TOKEN_OWN_RING: u64 = u64::MAX - 2;
/// How often tasks may wake each other within one turn before sockets are looked at again.
const ROUNDS_PER_TURN: u32 = 4;
/// How long to sleep while a message waits for room in another shard's inbox.
const OVERFLOW_PAUSE: Duration = Duration::from_micros(50);
/// Entries looked at by the sweep between two yields.
const SWEEP_SLICE: usize = 512;

/// What the net task alone owns.
struct Turner {
    net: Rc<Inner>,
    events: Vec<epoll::Event>,
    /// The wait for our epoll in glommio's ring; may outlive the park that armed it.
    armed: Option<Readable>,
    ring_is_readable: bool,
    quiet_since: Instant,
}

/// What a turn found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Something happened: the shard is not idle.
    Something,
    /// Something waits that no event will announce.
    MoreSoon,
    /// Something can be done at once.
    MoreNow,
}

impl Found {
    fn and(self, other: Self) -> Self {
        if (other as u8) > (self as u8) { other } else { self }
    }
}

/// The net task's future.
pub(super) fn run(net: Rc<Inner>) -> io::Result<impl Future<Output = ()> + 'static> {
    let pulse = net.current.pulse.clone();
    epoll::add(&net.epoll, pulse.bell(), EventData::new_u64(TOKEN_BELL), EventFlags::IN | EventFlags::ET)?;
    for ring in &net.current.rings {
        epoll::add(&net.epoll, raw::borrow(*ring), EventData::new_u64(TOKEN_RING), EventFlags::IN)?;
    }
    if let Some(ring) = &net.current.ring {
        let descriptor = raw::borrow(ring.descriptor());
        epoll::add(&net.epoll, descriptor, EventData::new_u64(TOKEN_OWN_RING), EventFlags::IN | EventFlags::ET)?;
        ring.set_served(Served::EachTurn);
    }
    make_ready()?;
    pulse.set_parked(false);
    let turner = Turner {
        quiet_since: Instant::now(),
        events: Vec::with_capacity(EVENTS_PER_TURN),
        armed: None,
        ring_is_readable: false,
        net,
    };
    Ok(turner.run())
}

impl Turner {
    async fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            let mut found = self.wait(wait);
            found = found.and(self.reap());
            found = found.and(self.look_at_inboxes());
            found = found.and(self.resume());
            found = found.and(self.let_tasks_run().await);
            found = found.and(self.flush().await);
            self.submit();
            found = found.and(self.give_glommio_its_turn().await);
            wait = self.judge(found).await;
        }
    }

    /// Waits for events up to `timeout` and tells the tasks concerned.
    fn wait(&mut self, timeout: Duration) -> Found {
        let net = self.net.clone();
        let pulse = &net.current.pulse;
        let lingers = !timeout.is_zero();
        let mut timeout = timeout;
        if lingers {
            net.lingers.set(net.lingers.get() + 1);
            pulse.fall_asleep();
            if net.has_mail() {
                timeout = Duration::ZERO;
            }
        }
        let timespec = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        self.events.clear();
        let waited = epoll::wait(&net.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timespec));
        if lingers {
            pulse.wake_up();
        }
        net.now.set(Instant::now());
        net.turn.set(net.turn.get() + 1);
        pulse.turn();
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => error!(%errno, "epoll failed"),
        }
        let mut found = Found::Nothing;
        for event in &self.events {
            match event.data.u64() {
                // Whoever rang left a message, or was the watchdog; neither the bell nor a ring is activity by itself.
                // What our own ring brought is reaped in any case.
                TOKEN_BELL | TOKEN_OWN_RING => {}
                TOKEN_RING => self.ring_is_readable = true,
                token => {
                    found = found.and(Found::Something);
                    net.on_event(token, event.flags);
                }
            }
        }
        if self.events.len() == EVENTS_PER_TURN { found.and(Found::MoreNow) } else { found }
    }

    /// Wakes those whose file operations are done.
    fn reap(&self) -> Found {
        if self.net.current.ring.as_ref().is_some_and(|ring| ring.reap()) { Found::Something } else { Found::Nothing }
    }

    /// Gives the kernel the file operations that this turn's tasks queued.
    fn submit(&self) {
        if let Some(ring) = &self.net.current.ring {
            ring.submit();
        }
    }

    fn look_at_inboxes(&self) -> Found {
        let mut found = Found::Nothing;
        // Wakes what other threads want woken on this one.
        while let Some(waker) = self.net.current.pulse.next_remote_wake() {
            waker.wake();
            found = Found::Something;
        }
        // By index: a handler may add an inbox.
        for index in 0.. {
            let Some(inbox) = self.net.inboxes.borrow().get(index).cloned() else { break };
            found = found.and(match inbox.look() {
                Looked::Idle => Found::Nothing,
                Looked::Busy => Found::Something,
                Looked::More => Found::MoreSoon,
            });
        }
        found
    }

    /// Wakes the tasks that used up their share of the last turn.
    fn resume(&self) -> Found {
        let mut waiting = std::mem::take(&mut *self.net.next_turn.borrow_mut());
        if waiting.is_empty() {
            return Found::Nothing;
        }
        for waker in waiting.drain(..) {
            waker.wake();
        }
        // The memory serves the next turn.
        let mut place = self.net.next_turn.borrow_mut();
        if place.is_empty() {
            *place = waiting;
        }
        Found::Something
    }

    /// Lets every task of the queue run, and those they wake, until none is left or some rounds have passed.
    async fn let_tasks_run(&self) -> Found {
        let mut found = Found::Nothing;
        for _ in 0..ROUNDS_PER_TURN {
            if !yield_to_tasks().await {
                return found;
            }
            found = Found::Something;
        }
        Found::MoreNow
    }

    async fn flush(&self) -> Found {
        if !self.net.flush() {
            return Found::Nothing;
        }
        // Sending makes room, for which a task may have waited.
        if yield_to_tasks().await { Found::MoreNow } else { Found::Something }
    }

    async fn give_glommio_its_turn(&mut self) -> Found {
        let queued = task::take_queued_io();
        if !queued && !self.ring_is_readable {
            return Found::Nothing;
        }
        self.ring_is_readable = false;
        self.net.full_turns.set(self.net.full_turns.get() + 1);
        full_turn().await;
        // Tasks that it woke may stand behind this one in the queue.
        if yield_to_tasks().await { Found::MoreNow } else { Found::Nothing }
    }

    /// How long the next wait may be; parks if the shard has been quiet for long enough.
    async fn judge(&mut self, found: Found) -> Duration {
        let net = &self.net;
        if found != Found::Nothing {
            net.current.stir();
            self.quiet_since = net.now.get();
        }
        match found {
            _ if !net.next_turn.borrow().is_empty() || !net.dirty.borrow().is_empty() => return Duration::ZERO,
            _ if net.current.ring.as_ref().is_some_and(|ring| ring.has_queued()) => return Duration::ZERO,
            // Tasks that ran since glommio's turn may have queued something.
            _ if task::owes_glommio() => return Duration::ZERO,
            Found::MoreNow => return Duration::ZERO,
            Found::MoreSoon => return OVERFLOW_PAUSE,
            _ if net.inboxes.borrow().iter().any(|inbox| inbox.waits_for_room()) => return OVERFLOW_PAUSE,
            Found::Something | Found::Nothing => {}
        }
        // Background tasks run only while this one waits in glommio.
        let quiet = net.now.get().saturating_duration_since(self.quiet_since);
        let left = net.config.linger.saturating_sub(quiet);
        if left.is_zero() || net.current.pulse.has_background() {
            self.park().await;
            return Duration::ZERO;
        }
        left.min(Duration::from_millis(999))
    }

    /// Lets glommio have the thread until an event, a bell, a message or a task of this shard needs the net task.
    async fn park(&mut self) {
        let net = self.net.clone();
        let pulse = &net.current.pulse;
        self.switch_rings(EventFlags::empty());
        pulse.fall_asleep();
        if !net.has_mail() {
            net.parks.set(net.parks.get() + 1);
            pulse.set_parked(true);
            self.serve_ring(Served::AtOnce);
            let armed = self.armed.get_or_insert_with(|| Readable::new(&net.epoll));
            let mut first = true;
            let came = std::future::poll_fn(|context| {
                // Woken by a task of this shard: `nudge` took the waker.
                if !std::mem::take(&mut first) && net.parked.borrow().is_none() {
                    return Poll::Ready(false);
                }
                *net.parked.borrow_mut() = Some(context.waker().clone());
                ready!(pin!(&mut *armed).poll(context));
                Poll::Ready(true)
            })
            .await;
            net.parked.borrow_mut().take();
            pulse.set_parked(false);
            self.serve_ring(Served::EachTurn);
            if came {
                self.armed = None;
            }
            self.quiet_since = Instant::now();
        }
        pulse.wake_up();
        self.switch_rings(EventFlags::IN);
    }

    fn serve_ring(&self, served: Served) {
        if let Some(ring) = &self.net.current.ring {
            ring.set_served(served);
        }
    }

    fn switch_rings(&self, interest: EventFlags) {
        for ring in &self.net.current.rings {
            let data = EventData::new_u64(TOKEN_RING);
            if let Err(errno) = epoll::modify(&self.net.epoll, raw::borrow(*ring), data, interest) {
                error!(%errno, "epoll refused a ring");
            }
        }
    }
}

/// Gives every task that now stands in the queue one poll; tells whether there was any.
async fn yield_to_tasks() -> bool {
    let before = task::polls();
    glommio::executor().yield_now().await;
    task::polls() != before
}

impl Drop for Turner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The shard would serve nobody, and nobody would know: its partitions are led by no one until a restart. Not
            // through the log: its writer would not live to write it.
            eprintln!("the net task of a shard panicked; ending the process");
            std::process::abort();
        }
        self.serve_ring(Served::No);
        // Whoever waits for an operation in it, perhaps to close a log, is woken now or never.
        if let Some(ring) = &self.net.current.ring {
            ring.drain();
        }
        self.net.current.pulse.set_parked(true);
        self.net.close_all();
    }
}

impl Inner {
    /// Whether anything came that no epoll event will announce again.
    fn has_mail(&self) -> bool {
        self.current.pulse.has_remote_wakes()
            || self.current.ring.as_ref().is_some_and(|ring| ring.has_completions())
            || !self.next_turn.borrow().is_empty()
            || !self.dirty.borrow().is_empty()
            || self.inboxes.borrow().iter().any(|inbox| !inbox.is_empty())
    }

    fn on_event(&self, token: u64, flags: EventFlags) {
        let (key, generation) = key_of(token);
        let entries = self.entries.borrow();
        // Closed earlier in this turn, its place perhaps taken by another.
        let Some((of, entry)) = entries.get(key) else { return };
        if *of != generation {
            return;
        }
        match entry {
            Entry::Connection(connection) => {
                let connection = connection.clone();
                drop(entries);
                connection.on_event(flags);
            }
            Entry::Listening(listening) => {
                let listening = listening.clone();
                drop(entries);
                listening.on_event();
            }
        }
    }

    /// Sends what the tasks left, one connection after another. `false`: nothing.
    fn flush(&self) -> bool {
        let mut dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        if dirty.is_empty() {
            return false;
        }
        for some in dirty.chunks(SENDS_AT_ONCE) {
            let first = send_together(self.current.ring.as_deref(), some);
            for (connection, first) in some.iter().zip(first) {
                connection.dirty.set(false);
                connection.flush(first);
            }
        }
        dirty.clear();
        // What was marked meanwhile goes out in the next turn.
        let mut place = self.dirty.borrow_mut();
        if place.is_empty() {
            *place = dirty;
        }
        true
    }

    fn close_all(&self) {
        let connections: Vec<_> = self
            .entries
            .borrow()
            .iter()
            .filter_map(|(_, (_, entry))| match entry {
                Entry::Connection(connection) => Some(connection.clone()),
                Entry::Listening(_) => None,
            })
            .collect();
        for connection in connections {
            connection.cut(io::ErrorKind::ConnectionAborted.into());
        }
        let inboxes = std::mem::take(&mut *self.inboxes.borrow_mut());
        for inbox in inboxes {
            inbox.close();
        }
    }
}

thread_local! {
    /// Always readable. Made when the net task starts: later no descriptor may be left.
    static READY: OnceCell<OwnedFd> = const { OnceCell::new() };
}

fn make_ready() -> io::Result<()> {
    READY.with(|ready| {
        if ready.get().is_none() {
            _ = ready.set(rustix::event::eventfd(1, EventfdFlags::CLOEXEC)?);
        }
        Ok(())
    })
}

/// Lets glommio submit and reap its I/O and look at its timers, and the background queue run.
pub(in crate::rt) async fn full_turn() {
    // Where it cannot be made, on an executor without a net task, a yield must do.
    let made = make_ready();
    if glommio::executor().need_preempt() || made.is_err() {
        // The executor turns before it runs another task.
        glommio::executor().yield_now().await;
        return;
    }
    let turned = READY.with(|ready| ready.get().map(Readable::new));
    if let Some(turned) = turned {
        turned.await;
    }
}

/// Cuts connections whose peer sends or takes nothing for too long.
pub(super) async fn sweep(net: Rc<Inner>) {
    loop {
        if net.connections.get() == 0 {
            net.adopted.wait().await;
        }
        crate::rt::sleep(net.sweep_every.get()).await;
        let now = Instant::now();
        let mut from = 0;
        loop {
            let slice: Vec<_> = {
                let entries = net.entries.borrow();
                let slice = from..entries.capacity().min(from + SWEEP_SLICE);
                slice
                    .filter_map(|key| match entries.get(key) {
                        Some((_, Entry::Connection(connection))) if connection.is_due(now) => Some(connection.clone()),
                        _ => None,
                    })
                    .collect()
            };
            slice.iter().for_each(|connection| connection.on_sweep(now));
            from += SWEEP_SLICE;
            if from >= net.entries.borrow().capacity() {
                break;
            }
            crate::rt::yield_if_needed().await;
        }
    }
}
