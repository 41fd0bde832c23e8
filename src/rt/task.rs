//! Shell. Tasks of one shard: spawning, catching panics, counting, and ending them when the shard ends.
//!
//! Owns the shard's `Current`: its task queues, the register of live tasks and the count of work in flight. Knows nothing of
//! sockets or files. Always: a new task is queued, never run inside `spawn` (glommio's own `spawn_local` polls it at once,
//! within whatever the caller has borrowed); a panic never reaches the executor; when the shard's main future is done every
//! task is dropped on its own shard, which glommio by itself would not do.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use glommio::{Latency, Shares, TaskQueueHandle};
use slab::Slab;
use tracing::{error, warn};

use super::event::Event;
use super::pulse::Pulse;
use super::ring::Ring;
use crate::types::ShardIndex;

/// The preempt timer of the executor and the latency of its queues: below it 0.9.0 was seen to hang.
pub(super) const PREEMPT_EVERY: Duration = Duration::from_millis(1);
/// How often the tasks of a shard may wake each other before a question is left open: then they are not stuck.
const ANSWERING_ROUNDS_MAX: u32 = 100;
/// Rounds of dropping tasks when the shard ends; a task that spawns another from its destructor needs a second one.
const ENDING_ROUNDS_MAX: u32 = 100;

thread_local! {
    static CURRENT: OnceCell<Rc<Current>> = const { OnceCell::new() };
    /// Polls of tasks other than the machinery's own: how the net task tells whether anybody ran.
    static POLLS: Cell<u64> = const { Cell::new(0) };
    /// A task of the background queue is being polled.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
    /// glommio has something to submit that it will not look at by itself before the next preemption.
    static QUEUED_IO: Cell<bool> = const { Cell::new(false) };
}

/// What this thread's shard is made of.
pub(super) struct Current {
    pub(super) index: ShardIndex,
    pub(super) pulse: Arc<Pulse>,
    /// glommio's rings.
    pub(super) rings: Vec<RawFd>,
    /// Our own; without it files and answers go the slower way.
    pub(super) ring: Option<Rc<Ring>>,
    front: TaskQueueHandle,
    background: TaskQueueHandle,
    tasks: RefCell<Slab<Option<Waker>>>,
    ending: Cell<bool>,
    panics: Cell<u64>,
    work: Cell<u32>,
    /// Rises with activity; tells the heartbeats whether to go on.
    stirs: Cell<u64>,
    stirred: Event,
    /// Calls on the helper thread that must come back before the executor may end.
    blocking_calls: Cell<u32>,
}

impl Current {
    /// Makes this thread a shard. Once per thread, on its executor.
    pub(super) fn install(index: ShardIndex, pulse: Arc<Pulse>, rings: Vec<RawFd>, ring: Option<Rc<Ring>>) -> Rc<Self> {
        pulse.set_thread();
        let executor = glommio::executor();
        let latency = Latency::Matters(PREEMPT_EVERY);
        let current = Rc::new(Self {
            index,
            pulse,
            rings,
            ring,
            front: executor.create_task_queue(Shares::Static(800), latency, "front"),
            background: executor.create_task_queue(Shares::Static(100), Latency::NotImportant, "background"),
            tasks: RefCell::default(),
            ending: Cell::new(false),
            panics: Cell::new(0),
            work: Cell::new(0),
            stirs: Cell::new(0),
            stirred: Event::default(),
            blocking_calls: Cell::new(0),
        });
        CURRENT.with(|cell| assert!(cell.set(current.clone()).is_ok(), "this thread already is a shard"));
        current
    }

    /// This thread's shard. Panics elsewhere: that is a bug of ours.
    pub(super) fn get() -> Rc<Self> {
        CURRENT.with(|cell| cell.get().cloned()).expect("called on a thread that is no shard (see rt::executor::start)")
    }

    /// Something happened: the heartbeats beat for a while.
    pub(super) fn stir(&self) {
        self.stirs.set(self.stirs.get() + 1);
        if self.stirred.has_waiters() {
            self.stirred.notify_all();
        }
    }

    fn change_work(&self, by: i32) {
        self.work.set(self.work.get().checked_add_signed(by).expect("each guard counts itself out once"));
        self.pulse.set_work(self.work.get());
    }

    /// Shows a sign of life every `period` while there is work in flight or something happened within the period.
    pub(super) async fn heartbeat(self: Rc<Self>, period: Duration) {
        let mut seen = 0;
        loop {
            if self.work.get() == 0 && self.stirs.get() == seen {
                self.stirred.wait().await;
            }
            seen = self.stirs.get();
            glommio::timer::sleep(period).await;
            self.pulse.turn();
        }
    }

    /// Answers the watchdog: a sign of life at once, and whether every task has been polled when it is so.
    pub(super) async fn answer_kicks(self: Rc<Self>) {
        loop {
            let mut kicked = false;
            std::future::poll_fn(|context| {
                self.pulse.set_kick(context.waker().clone());
                if std::mem::replace(&mut kicked, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.pulse.turn();
            let question = self.pulse.question();
            // Whoever was left behind stands before this task in the queue, or wakes others behind it.
            for _ in 0..ANSWERING_ROUNDS_MAX {
                let before = polls();
                glommio::executor().yield_now().await;
                if polls() == before {
                    self.pulse.answer(question);
                    break;
                }
            }
        }
    }

    /// Drops every task, and waits until glommio has closed what they had open.
    pub(super) async fn end_tasks(&self) {
        self.ending.set(true);
        for _ in 0..ENDING_ROUNDS_MAX {
            let wakers: Vec<Waker> = self.tasks.borrow().iter().filter_map(|(_, waker)| waker.clone()).collect();
            wakers.into_iter().for_each(Waker::wake);
            // Descriptors of dropped files are closed by the turns that this sleep makes.
            glommio::timer::sleep(PREEMPT_EVERY).await;
            if self.tasks.borrow().is_empty() {
                break;
            }
        }
        while self.blocking_calls.get() > 0 {
            glommio::timer::sleep(PREEMPT_EVERY).await;
        }
        if let Some(ring) = &self.ring {
            ring.drain();
        }
        let left = self.tasks.borrow().len();
        if left > 0 {
            warn!(shard = self.index, left, "tasks did not end with their shard");
        }
        if self.panics.get() > 0 {
            warn!(shard = self.index, panics = self.panics.get(), "tasks of this shard had panicked");
        }
        glommio::timer::sleep(PREEMPT_EVERY).await;
    }
}

/// A spawned task; dropping it detaches it.
pub struct Task<T>(glommio::task::JoinHandle<Option<T>>);

impl<T> Task<T> {
    /// Waits for the task's result; `None` if it panicked or was cancelled.
    pub async fn join(self) -> Option<T> {
        self.0.await.flatten()
    }
}

/// Spawns on this shard. A panic inside is caught, logged and counted; it never unwinds into the executor. The task is
/// dropped, wherever it waits, when the shard's main future is done.
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let current = Current::get();
    let queue = current.front;
    spawn_guarded(current, queue, Polls::Counted, future)
}

/// Like [`spawn`], for the machinery: its polls do not count as the shard doing something.
pub(super) fn spawn_unseen(future: impl Future<Output = ()> + 'static) -> Task<()> {
    let current = Current::get();
    let queue = current.front;
    spawn_guarded(current, queue, Polls::Uncounted, future)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Polls {
    Counted,
    Uncounted,
}

/// Like [`spawn`], in the background task queue (retention, recovery, compaction): fewer shares, no latency promise. While one
/// can run the shard does not linger.
pub fn spawn_background<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    let current = Current::get();
    let queue = current.background;
    let (pulse, state) = (current.pulse.clone(), AtomicU8::new(RUNNABLE));
    pulse.count_background(true);
    let background = Background(Arc::new(BackgroundWaker { pulse, state, task: OnceLock::new() }));
    current.stir();
    spawn_guarded(current, queue, Polls::Counted, async move {
        let waker = Waker::from(background.0.clone());
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            background.0.task.get_or_init(|| context.waker().clone());
            background.0.leave_runnable(WAITING);
            IN_BACKGROUND.set(true);
            let _reset = Reset;
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    })
}

struct Reset;

impl Drop for Reset {
    fn drop(&mut self) {
        IN_BACKGROUND.set(false);
    }
}

/// Counts a background task while it waits for the executor: glommio does not tell, and the net task must give way then.
struct BackgroundWaker {
    pulse: Arc<Pulse>,
    state: AtomicU8,
    task: OnceLock<Waker>,
}

const WAITING: u8 = 0;
const RUNNABLE: u8 = 1;
/// Whoever still holds its waker wakes nobody.
const ENDED: u8 = 2;

impl BackgroundWaker {
    fn leave_runnable(&self, to: u8) {
        if self.state.swap(to, Ordering::Relaxed) == RUNNABLE {
            self.pulse.count_background(false);
        }
    }
}

impl Wake for BackgroundWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.compare_exchange(WAITING, RUNNABLE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.pulse.count_background(true);
        }
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

/// Settles a background task's count when the task ends.
struct Background(Arc<BackgroundWaker>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.leave_runnable(ENDED);
    }
}

fn spawn_guarded<T: 'static>(
    current: Rc<Current>,
    queue: TaskQueueHandle,
    polls: Polls,
    future: impl Future<Output = T> + 'static,
) -> Task<T> {
    let key = current.tasks.borrow_mut().insert(None);
    let registered = Registered { key, current };
    let guarded = async move {
        let current = &registered.current;
        let mut place = pin!(Some(future));
        let mut first = true;
        let result = std::future::poll_fn(|context| {
            if polls == Polls::Counted {
                POLLS.set(POLLS.get() + 1);
            }
            if current.ending.get() {
                return Poll::Ready(None);
            }
            if std::mem::take(&mut first) {
                current.tasks.borrow_mut()[registered.key] = Some(context.waker().clone());
            }
            let future = place.as_mut().as_pin_mut().expect("it is taken only after this");
            match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
                Ok(poll) => poll.map(Some),
                Err(panic) => {
                    note_panic(current, panic);
                    Poll::Ready(None)
                }
            }
        })
        .await;
        // Destructors may panic as well, and glommio would abort.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| place.set(None))) {
            note_panic(current, panic);
        }
        result
    };
    Task(glommio::spawn_local_into(guarded, queue).expect("both queues live as long as the executor").detach())
}

/// One line of the register of tasks.
struct Registered {
    key: usize,
    current: Rc<Current>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let waker = self.current.tasks.borrow_mut().remove(self.key);
        drop(waker);
    }
}

fn note_panic(current: &Current, panic: Box<dyn Any + Send>) {
    current.panics.set(current.panics.get() + 1);
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    error!(shard = current.index, "a task panicked and was ended: {}", text.unwrap_or("(no text)"));
}

/// Runs `work` at once. A panic inside is caught, logged and counted like one of a task: for what is done on behalf of one client
/// in a task that many depend on.
pub fn contained(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        note_panic(&Current::get(), panic);
    }
}

/// How many tasks of this shard panicked so far.
pub fn panics() -> u64 {
    Current::get().panics.get()
}

/// Marks work in flight until dropped: while any is, the shard's heartbeats beat and the watchdog minds the shard. File
/// operations and blocking calls mark themselves. Not for what merely waits for a client, such as a long poll.
pub struct Work(Rc<Current>);

/// See [`Work`].
pub fn work() -> Work {
    let current = Current::get();
    current.change_work(1);
    current.stir();
    Work(current)
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.change_work(-1);
    }
}

pub(super) fn polls() -> u64 {
    POLLS.get()
}

pub(super) fn in_background() -> bool {
    IN_BACKGROUND.get()
}

/// "An SQE was queued": the net task owes glommio a turn.
pub(super) fn queued_io() {
    QUEUED_IO.set(true);
}

pub(super) fn owes_glommio() -> bool {
    QUEUED_IO.get()
}

pub(super) fn take_queued_io() -> bool {
    QUEUED_IO.take()
}

/// Runs blocking calls (directory fsync, rename, unlink, read_dir) on the shard's helper thread. Its calls run one after
/// another. A panic of the closure continues in the caller. Dropping the future does not stop the call.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let current = Current::get();
    let queue = current.front;
    // In a task of its own, outside the register: glommio's helper thread breaks when nobody waits for its answer.
    let call = BlockingCall::new(current);
    let answered = async move {
        let _call = call;
        let panicking = AssertUnwindSafe(work);
        let answer = glommio::executor().spawn_blocking(move || catch_unwind(AssertUnwindSafe(panicking.0))).await;
        // So that the net task sees that something ran: this one wakes the caller.
        POLLS.set(POLLS.get() + 1);
        answer
    };
    let answer = glommio::spawn_local_into(answered, queue).expect("the queue lives as long as the executor").detach();
    match answer.await.expect("only the end of the executor cancels it, and that waits for blocking calls") {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

struct BlockingCall(Rc<Current>);

impl BlockingCall {
    fn new(current: Rc<Current>) -> Self {
        current.blocking_calls.set(current.blocking_calls.get() + 1);
        current.change_work(1);
        current.stir();
        Self(current)
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        self.0.blocking_calls.set(self.0.blocking_calls.get() - 1);
        self.0.change_work(-1);
    }
}
