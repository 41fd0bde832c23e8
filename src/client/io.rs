//! The thread clients live on: a tokio runtime of one thread, shared by any number of clients.
//!
//! Shell. Owns the thread and the door to it: closures go in, values come out. What is made on the thread may be `Rc` and
//! stays there. Always: tasks handed over by one caller start in the order they were handed over; the thread ends when the
//! last [`Io`] is dropped and the last task it was given has ended.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};

use tokio::runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

/// Makes a task; called on the thread.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A thread with a runtime; clients live on it. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Io {
    jobs: mpsc::UnboundedSender<Job>,
    thread: ThreadId,
}

impl Io {
    /// Starts a thread of that name (the system keeps 15 letters of it). Errors: the system has no thread or no epoll left.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        // Unbounded, as nobody could wait here: it holds tasks to start, and those who start many (producers, consumers)
        // bound what they have in flight themselves.
        let (jobs, inbox) = mpsc::unbounded_channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&runtime, inbox))?;
        Ok(Self { jobs, thread: thread.thread().id() })
    }

    /// Whether the caller is on this thread already.
    pub fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    /// Calls `make` on the thread and runs the task it gives there; the task may hold what cannot leave a thread. Nothing
    /// happens when the thread has ended by a panic.
    pub fn spawn<F, Fut>(&self, make: F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        _ = self.jobs.send(Box::new(move || Box::pin(make())));
    }

    /// As [`Io::spawn`], and waits for the task's value, from any thread and any runtime. Dropping the future does not stop
    /// the task. Panics when the task panicked.
    pub fn run<F, Fut, T>(&self, make: F) -> Answer<T>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.spawn(move || {
            let task = make();
            async move {
                // Nobody waits any more: the value is of no use.
                _ = sender.send(task.await);
            }
        });
        Answer(receiver)
    }

    /// As [`Io::run`], for callers without a runtime. Panics when called from a task of any tokio runtime: it would stand
    /// still with all others on that thread.
    pub fn block_on<F, Fut, T>(&self, make: F) -> T
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.run(make).0.blocking_recv().expect(PANICKED)
    }
}

const PANICKED: &str = "the task on the client's thread ended by a panic";

/// The value of a task on its way from the thread of an [`Io`].
#[derive(Debug)]
#[must_use = "nothing is lost by dropping it but the value"]
pub struct Answer<T>(oneshot::Receiver<T>);

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).expect(PANICKED))
    }
}

/// Tasks that were handed over and have not ended.
#[derive(Default)]
struct Running {
    count: Cell<usize>,
    ended: Notify,
}

/// Counts one task, also when it panics.
struct Counted(Rc<Running>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.ended.notify_one();
    }
}

fn run(runtime: &runtime::Runtime, mut inbox: mpsc::UnboundedReceiver<Job>) {
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async move {
        let running = Rc::new(Running::default());
        while let Some(job) = inbox.recv().await {
            running.count.set(running.count.get() + 1);
            let counted = Counted(Rc::clone(&running));
            // Called within a task, so that a panic in `make` is that task's alone.
            spawn_local(async move {
                let _counted = counted;
                job().await;
            });
        }
        while running.count.get() > 0 {
            running.ended.notified().await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_may_hold_what_cannot_leave_its_thread() {
        let io = Io::start("io-test").unwrap();
        let sum = io.block_on(|| async {
            let numbers = Rc::new(vec![1, 2, 3]);
            tokio::task::yield_now().await;
            numbers.iter().sum::<i32>()
        });
        assert_eq!(sum, 6);
        assert!(!io.is_here());
        let here = io.clone();
        assert!(io.block_on(move || async move { here.is_here() }));
    }

    #[test]
    fn tasks_outlive_the_last_handle_and_then_the_thread_ends() {
        let io = Io::start("io-test").unwrap();
        let (go, gone) = oneshot::channel::<()>();
        let answer = io.run(|| async move {
            _ = gone.await;
            7
        });
        drop(io);
        go.send(()).unwrap();
        assert_eq!(answer.0.blocking_recv(), Ok(7));
    }

    #[test]
    fn a_panic_is_its_own_tasks_alone() {
        let io = Io::start("io-test").unwrap();
        let panicked = io.run(|| async {
            if true {
                panic!("meant")
            }
        });
        assert!(panicked.0.blocking_recv().is_err());
        assert_eq!(io.block_on(|| async { 1 }), 1);
    }

    #[test]
    fn an_answer_can_be_awaited_on_another_runtime() {
        let io = Io::start("io-test").unwrap();
        let other = runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(other.block_on(io.run(|| async { "here" })), "here");
    }
}
