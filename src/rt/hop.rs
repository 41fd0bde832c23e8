//! Messages between cores (stub).
use crate::types::ShardIndex;
/// The other side is gone (shutdown) or dropped the question unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the owning shard went away")]
pub struct Gone;
/// Builds the mesh before the executors start: one inbox per shard, bounded by `capacity` messages.
pub fn mesh<Q: Send + 'static, A: Send + 'static>(shards: usize, capacity: usize) -> (Vec<HopSeed<Q, A>>, HopPort<Q, A>) { let _ = (shards, capacity); todo!() }
/// One shard's end before its executor runs; `Send`.
pub struct HopSeed<Q, A>(std::marker::PhantomData<(Q, A)>);
impl<Q: Send + 'static, A: Send + 'static> HopSeed<Q, A> {
    /// On the executor: starts the inbox task. `handler` runs inline for each question, in order of arrival per sender, and never awaits.
    pub fn start(self, net: &super::net::Net, handler: impl Fn(Q, Responder<A>) + 'static) -> Hops<Q, A> { let _ = (net, handler); todo!() }
}
/// A shard's end of the mesh. Clones share it. `!Send`.
pub struct Hops<Q, A>(std::marker::PhantomData<(Q, A)>);
impl<Q, A> Clone for Hops<Q, A> { fn clone(&self) -> Self { todo!() } }
impl<Q: Send + 'static, A: Send + 'static> Hops<Q, A> {
    /// Sends now (order kept per pair of shards), answers later. Never blocks: a full inbox spills to a local queue (bounded by the admission permits of the callers).
    pub fn call(&self, to: ShardIndex, question: Q) -> impl Future<Output = Result<A, Gone>> + 'static { let _ = (to, question); std::future::pending() }
    /// Sends without asking for an answer.
    pub fn post(&self, to: ShardIndex, question: Q) { let _ = (to, question); todo!() }
}
use std::future::Future;
/// Answers one question, from any shard task; dropping it answers `Gone`. Carries its way home, so it may live long (long poll). `!Send`.
pub struct Responder<A>(std::marker::PhantomData<A>);
impl<A: Send + 'static> Responder<A> {
    /// Sends the answer home.
    pub fn answer(self, answer: A) { let _ = answer; todo!() }
}
/// A door into the mesh from ordinary threads (the control plane). `Send + Clone`.
pub struct HopPort<Q, A>(std::marker::PhantomData<(Q, A)>);
impl<Q, A> Clone for HopPort<Q, A> { fn clone(&self) -> Self { todo!() } }
impl<Q: Send + 'static, A: Send + 'static> HopPort<Q, A> {
    /// Asks from any runtime; the future is executor-neutral and `Send`.
    pub fn call(&self, to: ShardIndex, question: Q) -> impl Future<Output = Result<A, Gone>> + Send + 'static { let _ = (to, question); std::future::pending() }
}
/// An answer that comes from another thread to a task of this shard; the wake goes through the shard's epoll.
pub fn remote<T: Send + 'static>(net: &super::net::Net) -> (RemoteSender<T>, RemoteReceiver<T>) { let _ = net; todo!() }
/// `Send`; dropping it answers `Gone`.
pub struct RemoteSender<T>(std::marker::PhantomData<T>);
impl<T: Send + 'static> RemoteSender<T> { /** Sends. */ pub fn send(self, value: T) { let _ = value; todo!() } }
/// Awaited on the shard.
pub struct RemoteReceiver<T>(std::marker::PhantomData<T>);
impl<T: Send + 'static> RemoteReceiver<T> { /** Waits. */ pub async fn recv(self) -> Result<T, Gone> { todo!() } }
