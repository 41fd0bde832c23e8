//! One connection: requests in, answers out in their order.
//!
//! Shell. Owns the loop from frame to answer and the limits on a peer; not the handlers. Always: memory is admitted before
//! a body is read; requests take effect in the order they came; produce requests overlap after their first stage, everything
//! else waits until the earlier ones are answered, so that whoever saw an ack sees its record; whatever is wrong with a
//! peer's bytes closes its connection, is counted once, and is logged at debug; a connection moves to another shard only
//! between two requests, with every earlier one answered. Source: Kafka's `SocketServer`, KIP-511.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use smallvec::{SmallVec, smallvec};

use crate::metrics::Stages;
use crate::protocol::produce::{ProduceRequest, ProduceResponse};
use crate::protocol::{self, ApiKey, Encoded, HeaderError, Message, RequestHeader, Segment, WireError};
use crate::rt;
use crate::rt::net::{FrameReader, NetError, Payload, Replies, Reply};
use crate::server::dispatch::{decode, dispatch};
use crate::server::leaning::Leaning;
use crate::server::produce::{Acks, Plan};
use crate::server::{Counted, Handle, Server};
use crate::shard::memory::Permit;
use crate::types::ShardIndex;

/// Produce requests of one connection that may be under way at once. Clients send five by default; a window beyond this
/// gains nothing and holds memory.
const IN_FLIGHT_MAX: usize = 64;

/// The smallest request: key, version, correlation id and a null client id.
const REQUEST_BYTES_MIN: usize = 10;

/// How long a frame may stay unfinished while others wait for its memory: this long, and one second more for each MiB.
const FRAME_PATIENCE: Duration = Duration::from_secs(2);

/// Answers of no more than this leave the shard's buffer by a copy, which costs less than memory that must grow.
const SHORT_ANSWER_BYTES: usize = 256;

/// Why a connection ends before its peer closes it.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("frame of {0} bytes")]
    FrameLength(i32),
    #[error("an unfinished frame stood still while others waited for its memory")]
    Stalled,
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("bad body of {} {version}: {error}", api.name())]
    Body { api: ApiKey, version: i16, error: WireError },
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    #[error(transparent)]
    Net(#[from] NetError),
}

/// The client went while its request waited.
#[derive(Debug, thiserror::Error)]
#[error("the client went while its request waited")]
pub(super) struct Abandoned;

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum Unserved {
    /// Its body did not parse.
    Body(WireError),
    /// Nobody waits for the answer.
    Abandoned,
}

impl From<WireError> for Unserved {
    fn from(error: WireError) -> Self {
        Self::Body(error)
    }
}

impl From<Abandoned> for Unserved {
    fn from(Abandoned: Abandoned) -> Self {
        Self::Abandoned
    }
}

/// What a handler knows of the request beside its body.
pub(super) struct Context<'a> {
    pub(super) server: &'a Rc<Server>,
    reader: &'a FrameReader,
    api: ApiKey,
    /// Of the request.
    pub(super) version: i16,
    correlation_id: i32,
    /// What the client calls itself.
    pub(super) client_id: &'a str,
    /// When the last byte of the request was there.
    pub(super) read_at: Instant,
    /// How long the request has waited for data or for others; see [`Stages`].
    waited: Cell<Duration>,
    leaning: &'a RefCell<Leaning>,
}

impl Context<'_> {
    /// The other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.reader.peer()
    }

    /// The partitions of the request belong to one shard, or to several.
    pub(super) fn concerns(&self, owner: Option<ShardIndex>) {
        self.leaning.borrow_mut().on_request(owner);
    }

    /// An answer without records.
    pub(super) fn reply<'m>(&self, response: &impl Message<'m>) -> Reply {
        self.reply_with_records(response, Vec::new())
    }

    /// An answer whose nth records field gets the nth of `records`.
    pub(super) fn reply_with_records<'m>(
        &self,
        response: &impl Message<'m>,
        records: Vec<SmallVec<[Payload; 4]>>,
    ) -> Reply {
        self.server.encode(self.api, self.version, self.correlation_id, response, records)
    }

    /// Waits for `future` as long as the client is there.
    pub(super) async fn unless_gone<T>(&self, future: impl Future<Output = T>) -> Result<T, Abandoned> {
        let gone = async {
            self.reader.closed().await;
            Err(Abandoned)
        };
        futures_lite::future::or(async { Ok(future.await) }, gone).await
    }

    /// Waits for `future` as long as the client is there and the shard is not to end: for waits that may take minutes, which
    /// count as the request's waiting.
    pub(super) async fn unless_gone_or_draining<T>(&self, future: impl Future<Output = T>) -> Result<T, Abandoned> {
        let draining = async {
            self.server.drain_begins().await;
            Err(Abandoned)
        };
        let began = Instant::now();
        let ended = self.unless_gone(futures_lite::future::or(async { Ok(future.await) }, draining)).await?;
        self.waited_since(began);
        ended
    }

    /// The request waited from `began` until now.
    pub(super) fn waited_since(&self, began: Instant) {
        self.waited.set(self.waited.get() + began.elapsed());
    }
}

impl Server {
    /// An answer; its nth records field gets the nth of `records`.
    fn encode<'m>(
        &self,
        api: ApiKey,
        version: i16,
        correlation_id: i32,
        response: &impl Message<'m>,
        records: Vec<SmallVec<[Payload; 4]>>,
    ) -> Reply {
        let mut buffer = self.answer_buffer.take();
        buffer.reserve(SHORT_ANSWER_BYTES);
        let encoded = protocol::encode_response(buffer, api, version, correlation_id, response);
        match encoded.copied_out(SHORT_ANSWER_BYTES) {
            Ok((message, buffer)) => {
                self.answer_buffer.replace(buffer);
                Reply { parts: smallvec![Payload::Mem(message)] }
            }
            Err(encoded) => into_reply(encoded, records),
        }
    }
}

fn into_reply(encoded: Encoded, records: Vec<SmallVec<[Payload; 4]>>) -> Reply {
    let mut records: Vec<_> = records.into_iter().map(Some).collect();
    let mut reply = Reply::default();
    for segment in encoded.into_segments() {
        match segment {
            Segment::Bytes(bytes) => reply.parts.push(Payload::Mem(bytes)),
            Segment::Records { index: nth, .. } => {
                let parts = records.get_mut(nth).and_then(Option::take).expect("records for every cut of the message");
                reply.parts.extend(parts);
            }
        }
    }
    reply
}

/// Serves a connection to its end, or until it moves to another shard.
pub(super) async fn serve(
    server: &Rc<Server>,
    mut reader: FrameReader,
    replies: Replies,
    leaning: Leaning,
    counted: &Counted<'_>,
) {
    reader.set_idle_timeout(Some(server.shard().settings().connections_max_idle));
    let handle = Handle::new(replies.clone());
    let registered = Registered::new(server, handle.clone());
    let moves = leaning.moves();
    let leaning = RefCell::new(leaning);
    let mut connection = Connection { server, reader: &mut reader, replies: &replies, handle, leaning, counted };
    match connection.run().await {
        Err(fault) => {
            count(server, &fault);
            tracing::debug!(peer = %connection.reader.peer(), %fault, "connection closed");
            // Its socket counts as long as it is open.
            replies.close();
            replies.flushed().await;
        }
        Ok(end) => {
            // The peer sends no more, or the shard drains, or another is to go on: what was asked is answered first.
            connection.handle.below(1).await;
            replies.flushed().await;
            if end == End::Moves
                && let Some((socket, received)) = reader.detach()
            {
                counted.give_away(socket, received, moves + 1);
            }
        }
    }
    registered.ended.set(true);
}

/// Why a connection is served no more, without a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Its peer or this shard ends.
    Here,
    /// The shard that its requests concern serves it from now on.
    Moves,
}

fn count(server: &Server, fault: &Fault) {
    let metrics = server.shard().metrics();
    match fault {
        Fault::FrameLength(_) => metrics.faults_frame_length.increment(),
        Fault::Stalled => metrics.faults_frame_stalled.increment(),
        Fault::Header(HeaderError::Wire(_)) => metrics.faults_header.increment(),
        Fault::Header(_) => metrics.faults_unserved.increment(),
        Fault::Body { .. } => metrics.faults_body.increment(),
        Fault::Net(NetError::Idle) => metrics.connections_idle_closed.increment(),
        Fault::Net(NetError::Lost(_)) | Fault::Abandoned(_) => metrics.connections_lost.increment(),
        Fault::Net(NetError::Truncated) => metrics.faults_frame_truncated.increment(),
    }
}

/// A connection's entry with the server, taken out however its task ends; a task that panics ends only its connection.
struct Registered<'a> {
    server: &'a Rc<Server>,
    key: usize,
    /// The task came to its end.
    ended: Cell<bool>,
}

impl<'a> Registered<'a> {
    fn new(server: &'a Rc<Server>, handle: Rc<Handle>) -> Self {
        Self { server, key: server.connections.borrow_mut().insert(handle), ended: Cell::new(false) }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let handle = self.server.connections.borrow_mut().remove(self.key);
        handle.replies.close();
        // Tasks that a stopping shard leaves behind are dropped, too.
        if !self.ended.get() && !self.server.draining() {
            self.server.shard().metrics().connections_panicked.increment();
        }
        self.server.connection_ended.notify_all();
    }
}

/// One request between its first stage and its answer.
struct InFlight {
    server: Rc<Server>,
    handle: Rc<Handle>,
}

impl InFlight {
    fn begin(server: Rc<Server>, handle: Rc<Handle>) -> Self {
        handle.in_flight.set(handle.in_flight.get() + 1);
        Self { server, handle }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.handle.in_flight.set(self.handle.in_flight.get() - 1);
        self.handle.finished.notify_all();
        if self.server.draining() && !self.handle.busy() {
            self.handle.replies.close();
        }
    }
}

struct Connection<'a> {
    server: &'a Rc<Server>,
    reader: &'a mut FrameReader,
    replies: &'a Replies,
    handle: Rc<Handle>,
    leaning: RefCell<Leaning>,
    counted: &'a Counted<'a>,
}

impl Connection<'_> {
    async fn run(&mut self) -> Result<End, Fault> {
        while !self.server.draining() {
            let wish = self.leaning.borrow_mut().take_wish();
            if let Some(shard) = wish
                && self.counted.may_move(shard).await
            {
                return Ok(End::Moves);
            }
            let Some(length) = self.reader.next_length().await? else { return Ok(End::Here) };
            let bytes = self.legal(length)?;
            let permit = self.server.shard().memory().admit(bytes).await;
            let frame = self.read_body(bytes).await?;
            self.server.shard().metrics().request_bytes.add(bytes as u64);
            self.handle.serving.set(true);
            let served = self.serve_frame(frame, permit, Instant::now()).await;
            self.handle.serving.set(false);
            served?;
            rt::yield_if_needed().await;
        }
        Ok(End::Here)
    }

    fn legal(&self, length: i32) -> Result<usize, Fault> {
        let bytes_max = self.server.shard().settings().socket_request_max_bytes as usize;
        usize::try_from(length)
            .ok()
            .filter(|bytes| (REQUEST_BYTES_MIN..=bytes_max).contains(bytes))
            .ok_or(Fault::FrameLength(length))
    }

    /// Reads a body. While others wait for memory of its class, an unfinished one is given up after a while.
    async fn read_body(&mut self, bytes: usize) -> Result<BytesMut, Fault> {
        let memory = self.server.shard().memory();
        let mut body = std::pin::pin!(self.reader.read_body(bytes));
        if let Some(body) = futures_lite::future::poll_once(&mut body).await {
            return Ok(body?);
        }
        let patience = FRAME_PATIENCE + Duration::from_secs(bytes as u64 >> 20);
        loop {
            match rt::timeout_at(Instant::now() + patience, &mut body).await {
                Some(body) => return Ok(body?),
                None if memory.pressed(bytes) => return Err(Fault::Stalled),
                None => {}
            }
        }
    }

    async fn serve_frame(&mut self, frame: BytesMut, permit: Permit, read_at: Instant) -> Result<(), Fault> {
        let (header, body) = match protocol::parse_request_header(&frame) {
            Ok(parsed) => parsed,
            Err(HeaderError::ApiVersionsTooNew { correlation_id, .. }) => {
                let downgrade = protocol::api_versions_downgrade(BytesMut::new(), correlation_id);
                self.handle.below(1).await;
                self.replies.reserve().fill(into_reply(downgrade, Vec::new()));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (api, version) = (header.api, header.version);
        self.server.shard().metrics().count_request(api.number());
        let fault = |error| Fault::Body { api, version, error };
        self.handle.below(if api == ApiKey::Produce { IN_FLIGHT_MAX } else { 1 }).await;
        let stages = Stages { read_at, begun_at: Instant::now(), waited: Duration::ZERO };
        if api == ApiKey::Produce {
            let request: ProduceRequest<'_> = decode(body, version).map_err(fault)?;
            let plan = Plan::new(self.server, &header, request);
            let correlation_id = header.correlation_id;
            return self.produce(plan, correlation_id, frame, permit, stages).await;
        }
        let slot = self.replies.reserve();
        let RequestHeader { correlation_id, client_id, .. } = header;
        let (server, reader, leaning, waited) = (self.server, &*self.reader, &self.leaning, Cell::default());
        let cx = Context { server, reader, api, version, correlation_id, client_id, read_at, waited, leaning };
        match dispatch(&cx, api, body).await {
            Ok(reply) => {
                answered(server, api, Stages { waited: cx.waited.get(), ..stages }, Instant::now());
                slot.fill(reply);
            }
            Err(Unserved::Body(error)) => return Err(fault(error)),
            Err(Unserved::Abandoned) => return Err(Abandoned.into()),
        }
        Ok(())
    }

    /// Stage one now; stage two when the acks come, while the next request is read.
    async fn produce(
        &self,
        plan: Plan,
        correlation_id: i32,
        frame: BytesMut,
        permit: Permit,
        stages: Stages,
    ) -> Result<(), Fault> {
        let (acks, version) = (plan.acks(), plan.version());
        let (slot, replies) = (self.replies.reserve(), self.replies.clone());
        let in_flight = InFlight::begin(self.server.clone(), self.handle.clone());
        let answer = move |response: ProduceResponse<'static>, sent_at, all_taken| {
            let (server, now) = (&in_flight.server, Instant::now());
            answered(server, ApiKey::Produce, Stages { waited: now - sent_at, ..stages }, now);
            drop(permit);
            match acks {
                Acks::Class => {
                    slot.fill(server.encode(ApiKey::Produce, version, correlation_id, &response, Vec::new()));
                }
                Acks::None if all_taken => slot.skip(),
                // Nobody reads an answer: closing is the only way to say it, and what Kafka does.
                Acks::None => {
                    tracing::debug!("connection closed: a produce request that wants no answer failed");
                    replies.close();
                }
            }
        };
        let owner = plan.start(self.server, frame, self.reader.memory_bytes(), stages.read_at, answer).await;
        self.leaning.borrow_mut().on_request(owner);
        Ok(())
    }
}

/// Counts a request whose answer is queued `now`.
fn answered(server: &Server, api: ApiKey, stages: Stages, now: Instant) {
    let times = stages.ended(now);
    server.shard().metrics().count_stages(api.number(), &times);
    server.shard().latencies().record(api.number(), &times);
}
