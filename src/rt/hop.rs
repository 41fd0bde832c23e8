//! Shell. Messages between cores: one bounded inbox per shard, questions out, answers home.
//!
//! Owns the inboxes, the questions that wait for an answer and what did not fit into a full inbox. Knows nothing of what is
//! asked. Always: messages of one sender to one receiver arrive in the order sent; nothing here waits for room (what does not
//! fit waits at the sender, whose callers' permits bound it); a handler never awaits, so no two shards can wait for each
//! other; every question gets an answer or `Gone`. A shard looks at its inbox every turn and is rung only while it sleeps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use crossbeam_queue::ArrayQueue;
use slab::Slab;

use super::net::{Inbox, Looked, Net};
use super::once;
use super::pulse::Pulse;
use super::task::contained;
use crate::types::ShardIndex;

pub use super::once::{RemoteReceiver, RemoteSender, remote};

/// Messages taken in one turn; the rest waits for the next, after sockets had theirs.
const MESSAGES_PER_TURN: usize = 256;

/// The other side is gone (shutdown) or dropped the question unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the owning shard went away")]
pub struct Gone;

/// Where an answer goes.
enum Home<A> {
    /// Nobody asked for one.
    Nowhere,
    /// A shard's waiting question, by key and generation.
    Shard(ShardIndex, usize, u32),
    /// A thread that is no shard.
    Port(once::Sender<A>),
}

enum Message<Q, A> {
    Question(Q, Home<A>),
    Answer(usize, u32, Result<A, Gone>),
}

/// One shard's inbox, seen by all.
struct Door<Q, A> {
    messages: ArrayQueue<Message<Q, A>>,
    /// The shard's, once it runs.
    pulse: OnceLock<Arc<Pulse>>,
    closed: AtomicBool,
}

impl<Q, A> Door<Q, A> {
    /// Gives the message back when the inbox is full.
    fn push(&self, message: Message<Q, A>) -> Result<(), Message<Q, A>> {
        self.messages.push(message)?;
        self.ring();
        // Closed meanwhile: nobody will look, so the message is dropped here, or by whoever closed it.
        if self.closed.load(Ordering::SeqCst) {
            self.clear();
        }
        Ok(())
    }

    fn ring(&self) {
        // Pairs with the fence in `Hops::start`: a shard that we do not know yet looks into its inbox after us.
        fence(Ordering::SeqCst);
        if let Some(pulse) = self.pulse.get() {
            pulse.ring();
        }
    }

    fn clear(&self) {
        while self.messages.pop().is_some() {}
    }
}

/// Builds the mesh before the executors start: one inbox per shard, bounded by `capacity` messages.
pub fn mesh<Q: Send + 'static, A: Send + 'static>(
    shards: usize,
    capacity: usize,
) -> (Vec<HopSeed<Q, A>>, HopPort<Q, A>) {
    let door = |_| Door { messages: ArrayQueue::new(capacity), pulse: OnceLock::new(), closed: AtomicBool::new(false) };
    let doors: Arc<[Door<Q, A>]> = (0..shards).map(door).collect();
    let seeds = (0..shards).map(|own| HopSeed { own, doors: doors.clone() }).collect();
    (seeds, HopPort { doors })
}

/// One shard's end before its executor runs; `Send`. Dropped unstarted, the shard counts as gone.
pub struct HopSeed<Q, A> {
    own: ShardIndex,
    doors: Arc<[Door<Q, A>]>,
}

impl<Q: Send + 'static, A: Send + 'static> HopSeed<Q, A> {
    /// On the executor: starts the inbox task. `handler` runs inline for each question, in order of arrival per sender, and never awaits.
    pub fn start(self, net: &Net, handler: impl Fn(Q, Responder<A>) + 'static) -> Hops<Q, A> {
        let hops = Rc::new(Inner {
            own: self.own,
            net: net.clone(),
            waiting: RefCell::default(),
            generation: Cell::new(0),
            overflow: self.doors.iter().map(|_| RefCell::default()).collect(),
            overflowing: Cell::new(0),
            gone: self.doors.iter().map(|_| Cell::new(false)).collect(),
            doors: self.doors.clone(),
        });
        let door = &self.doors[self.own];
        assert!(door.pulse.set(net.pulse()).is_ok(), "a seed starts once");
        fence(Ordering::SeqCst);
        net.add_inbox(Rc::new(Desk { hops: hops.clone(), handler }));
        Hops(hops)
    }
}

impl<Q, A> Drop for HopSeed<Q, A> {
    fn drop(&mut self) {
        if self.doors[self.own].pulse.get().is_none() {
            close(&self.doors, self.own);
        }
    }
}

/// Tells everyone that this shard answers no more.
fn close<Q, A>(doors: &[Door<Q, A>], own: ShardIndex) {
    doors[own].closed.store(true, Ordering::SeqCst);
    doors[own].clear();
    doors.iter().for_each(Door::ring);
}

/// A shard's end of the mesh. Clones share it. `!Send`.
pub struct Hops<Q, A>(Rc<Inner<Q, A>>);

impl<Q, A> Clone for Hops<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<Q, A> {
    own: ShardIndex,
    net: Net,
    doors: Arc<[Door<Q, A>]>,
    /// Questions of this shard that wait for an answer.
    waiting: RefCell<Slab<Waiting<A>>>,
    generation: Cell<u32>,
    /// Per receiver: what did not fit, in order.
    overflow: Vec<RefCell<VecDeque<Message<Q, A>>>>,
    /// Messages in `overflow`.
    overflowing: Cell<usize>,
    /// Shards whose end has been noticed here.
    gone: Vec<Cell<bool>>,
}

struct Waiting<A> {
    generation: u32,
    to: ShardIndex,
    who: Who<A>,
}

/// Who waits for an answer.
enum Who<A> {
    /// A future: not polled yet, or woken by this.
    Future(Option<Waker>),
    /// A future that will find it here.
    Answered(Result<A, Gone>),
    /// Nobody: this is run.
    Then(Box<dyn FnOnce(Result<A, Gone>)>),
}

impl<Q: Send + 'static, A: Send + 'static> Hops<Q, A> {
    /// Sends now (order kept per pair of shards), answers later. Never blocks: a full inbox spills to a local queue (bounded
    /// by the admission permits of the callers). Dropping the future forgets the answer, not the question.
    pub fn call(&self, to: ShardIndex, question: Q) -> impl Future<Output = Result<A, Gone>> + use<Q, A> {
        let key = self.ask(to, question, Who::Future(None));
        Call { hops: self.0.clone(), key }
    }

    /// Like [`Hops::call`], for an answer that no task waits for: `then` is run with it by the net task, and must not take long.
    /// A panic in it is contained. It is dropped unrun when this shard ends first.
    pub fn call_then(&self, to: ShardIndex, question: Q, then: impl FnOnce(Result<A, Gone>) + 'static) {
        self.ask(to, question, Who::Then(Box::new(then)));
    }

    /// Whether the other side still takes questions.
    pub fn reaches(&self, to: ShardIndex) -> bool {
        !self.0.doors[to].closed.load(Ordering::SeqCst)
    }

    fn ask(&self, to: ShardIndex, question: Q, who: Who<A>) -> usize {
        let hops = &self.0;
        let generation = hops.generation.get().wrapping_add(1);
        hops.generation.set(generation);
        let key = hops.waiting.borrow_mut().insert(Waiting { generation, to, who });
        if self.reaches(to) {
            hops.send(to, Message::Question(question, Home::Shard(hops.own, key, generation)));
        } else {
            hops.on_answer(key, generation, Err(Gone));
        }
        key
    }

    /// Sends without asking for an answer.
    pub fn post(&self, to: ShardIndex, question: Q) {
        if self.reaches(to) {
            self.0.send(to, Message::Question(question, Home::Nowhere));
        }
    }
}

struct Call<Q, A> {
    hops: Rc<Inner<Q, A>>,
    key: usize,
}

impl<Q, A> Future for Call<Q, A> {
    type Output = Result<A, Gone>;

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let mut waiting = self.hops.waiting.borrow_mut();
        let who = &mut waiting[self.key].who;
        match std::mem::replace(who, Who::Future(None)) {
            Who::Answered(answer) => Poll::Ready(answer),
            Who::Future(_) | Who::Then(_) => {
                *who = Who::Future(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<Q, A> Drop for Call<Q, A> {
    fn drop(&mut self) {
        let forgotten = self.hops.waiting.borrow_mut().remove(self.key);
        drop(forgotten);
    }
}

impl<Q, A> Inner<Q, A> {
    fn send(&self, to: ShardIndex, message: Message<Q, A>) {
        let first = self.overflow[to].borrow().is_empty();
        let refused = if first { self.doors[to].push(message).err() } else { Some(message) };
        if let Some(message) = refused {
            self.overflow[to].borrow_mut().push_back(message);
            self.overflowing.set(self.overflowing.get() + 1);
            self.net.nudge();
        }
    }

    /// Sends what found no room before; `false` while something is left.
    fn send_overflow(&self) -> bool {
        if self.overflowing.get() == 0 {
            return true;
        }
        for (door, overflow) in self.doors.iter().zip(&self.overflow) {
            loop {
                // The borrow ends before the push, which drops messages when the door has closed.
                let Some(message) = overflow.borrow_mut().pop_front() else { break };
                if let Err(refused) = door.push(message) {
                    overflow.borrow_mut().push_front(refused);
                    break;
                }
                self.overflowing.set(self.overflowing.get() - 1);
            }
        }
        self.overflowing.get() == 0
    }

    fn on_answer(&self, key: usize, generation: u32, answer: Result<A, Gone>) {
        let mut waiting = self.waiting.borrow_mut();
        // The caller may have given up, and its place may be another's.
        let Some(entry) = waiting.get_mut(key).filter(|entry| entry.generation == generation) else { return };
        if let Who::Then(_) = entry.who {
            let entry = waiting.remove(key);
            drop(waiting);
            if let Who::Then(then) = entry.who {
                contained(move || then(answer));
            }
            return;
        }
        let before = std::mem::replace(&mut entry.who, Who::Answered(answer));
        drop(waiting);
        if let Who::Future(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Nobody will run these: drops them, outside the borrow.
    fn forget_what_follows(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let keys: Vec<usize> =
            waiting.iter().filter(|(_, entry)| matches!(entry.who, Who::Then(_))).map(|(key, _)| key).collect();
        let forgotten: Vec<_> = keys.into_iter().map(|key| waiting.remove(key)).collect();
        drop(waiting);
        drop(forgotten);
    }

    /// Answers `Gone` to every question asked of a shard that has closed since the last look.
    fn notice_the_gone(&self) {
        for (shard, (door, noticed)) in self.doors.iter().zip(&self.gone).enumerate() {
            if noticed.get() || !door.closed.load(Ordering::SeqCst) {
                continue;
            }
            noticed.set(true);
            let asked: Vec<(usize, u32)> = self
                .waiting
                .borrow()
                .iter()
                .filter(|(_, entry)| entry.to == shard && !matches!(entry.who, Who::Answered(_)))
                .map(|(key, entry)| (key, entry.generation))
                .collect();
            for (key, generation) in asked {
                self.on_answer(key, generation, Err(Gone));
            }
        }
    }
}

/// The inbox as the net task sees it.
struct Desk<Q, A, H> {
    hops: Rc<Inner<Q, A>>,
    handler: H,
}

impl<Q: Send + 'static, A: Send + 'static, H: Fn(Q, Responder<A>) + 'static> Inbox for Desk<Q, A, H> {
    fn look(&self) -> Looked {
        let door = &self.hops.doors[self.hops.own];
        let mut taken = 0;
        while taken < MESSAGES_PER_TURN {
            let Some(message) = door.messages.pop() else { break };
            taken += 1;
            match message {
                Message::Question(question, home) => {
                    let sender: Rc<dyn Sender<A>> = self.hops.clone();
                    let responder = Responder { sender, home: Some(home) };
                    // Dropped by a panic, the responder answers `Gone`.
                    contained(|| (self.handler)(question, responder));
                }
                Message::Answer(key, generation, answer) => self.hops.on_answer(key, generation, answer),
            }
        }
        // What a shard answered before it ended comes first.
        if taken < MESSAGES_PER_TURN {
            self.hops.notice_the_gone();
        }
        match (self.hops.send_overflow(), taken) {
            (false, _) | (true, MESSAGES_PER_TURN) => Looked::More,
            (true, 0) => Looked::Idle,
            (true, _) => Looked::Busy,
        }
    }

    fn is_empty(&self) -> bool {
        self.hops.doors[self.hops.own].messages.is_empty()
    }

    fn waits_for_room(&self) -> bool {
        self.hops.overflowing.get() > 0
    }

    fn close(&self) {
        // What waits for room elsewhere has waited for nothing, unless it finds some now.
        self.hops.send_overflow();
        close(&self.hops.doors, self.hops.own);
        for overflow in &self.hops.overflow {
            let lost = std::mem::take(&mut *overflow.borrow_mut());
            drop(lost);
        }
        self.hops.notice_the_gone();
        self.hops.forget_what_follows();
    }
}

/// The way home of an answer, whatever the questions are.
trait Sender<A> {
    fn send_home(&self, home: Home<A>, answer: Result<A, Gone>);
}

impl<Q, A> Sender<A> for Inner<Q, A> {
    fn send_home(&self, home: Home<A>, answer: Result<A, Gone>) {
        match home {
            Home::Nowhere => {}
            Home::Shard(shard, key, generation) => self.send(shard, Message::Answer(key, generation, answer)),
            Home::Port(port) => {
                // Dropped, it answers `Gone` by itself.
                if let Ok(answer) = answer {
                    port.send(answer);
                }
            }
        }
    }
}

/// Answers one question, from any shard task; dropping it answers `Gone`. Carries its way home, so it may live long (long poll). `!Send`.
pub struct Responder<A> {
    sender: Rc<dyn Sender<A>>,
    home: Option<Home<A>>,
}

impl<A> Responder<A> {
    /// Sends the answer home.
    pub fn answer(mut self, answer: A) {
        if let Some(home) = self.home.take() {
            self.sender.send_home(home, Ok(answer));
        }
    }
}

impl<A> Drop for Responder<A> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            self.sender.send_home(home, Err(Gone));
        }
    }
}

/// A door into the mesh from ordinary threads (the control plane). `Send + Clone`.
pub struct HopPort<Q, A> {
    doors: Arc<[Door<Q, A>]>,
}

impl<Q, A> Clone for HopPort<Q, A> {
    fn clone(&self) -> Self {
        Self { doors: self.doors.clone() }
    }
}

impl<Q: Send + 'static, A: Send + 'static> HopPort<Q, A> {
    /// Asks from any runtime; the future is executor-neutral and `Send`. While the inbox is full it tries again whenever its
    /// runtime polls it, so the question is sent at the first poll that finds room.
    pub fn call(&self, to: ShardIndex, question: Q) -> impl Future<Output = Result<A, Gone>> + Send + use<Q, A> {
        let doors = self.doors.clone();
        async move {
            let (sender, receiver) = once::channel();
            let mut message = Some(Message::Question(question, Home::Port(sender)));
            std::future::poll_fn(|context| {
                let Some(unsent) = message.take() else { return Poll::Ready(()) };
                if doors[to].closed.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                match doors[to].push(unsent) {
                    Ok(()) => Poll::Ready(()),
                    Err(refused) => {
                        message = Some(refused);
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                }
            })
            .await;
            receiver.recv().await
        }
    }
}
