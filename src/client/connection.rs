//! One connection to one broker: the handshake, frames out and in, answers matched to requests, deadlines.
//!
//! Shell. Owns the socket, what is queued for it, and the requests in flight. Does not own who connects when (`network`). Always:
//! requests are written in the order they were handed over, all that is queued in one vectored write; answers come in that
//! order, or the connection ends; when it ends, everybody who waits is told who ended it and why. A request that is not answered
//! in time ends the connection too, as its answer would be taken for the next one's; so does one without an answer that is not written
//! in time. Source: KIP-35 and KIP-511 (ApiVersions).

mod frames;
mod handshake;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::error::{CallError, ClientError};
use crate::protocol::wire::Segment;
use crate::protocol::{ApiKey, Message as _, Records, Request, encode_request, parse_response_header};
use frames::Frames;
pub(crate) use handshake::{Dial, dial};

/// Pieces given to the kernel in one write. A produce request of one partition is three.
const SLICES_MAX: usize = 64;
/// Room for a request without its records; larger ones grow it.
const REQUEST_BYTES: usize = 256;
/// When there is nothing to wait for. The timer is set again when there is.
const LONG: Duration = Duration::from_secs(365 * 86_400);

/// What came of a request.
pub(crate) type Answer = Result<Reply, CallError>;

/// A response frame; decodes on demand into messages that borrow from it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The version both request and response have.
    pub(crate) version: i16,
    api: ApiKey,
    /// Without its length prefix. Empty for requests that are not answered.
    frame: Bytes,
    broker: Rc<str>,
}

impl Reply {
    /// Decodes it. Errors: it is no such response.
    pub(crate) fn read<'r, R: Request<'r>>(&'r self) -> Result<R::Response, ClientError> {
        debug_assert_eq!(R::API, self.api, "an answer is read as what was asked");
        let decoded = parse_response_header(&self.frame, self.api, self.version)
            .and_then(|(_, reader)| R::Response::decode_body(reader, self.version));
        decoded.map_err(|why| malformed(&self.broker, self.api, why.to_string()).into())
    }

    /// Records of the decoded response, without copying. They keep the whole frame in memory.
    pub(crate) fn records(&self, at: Records) -> Bytes {
        self.frame.slice(at.range())
    }

    /// Bytes of the frame.
    pub(crate) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Who sent it, for people: `broker 1 at host:port`.
    pub(crate) fn broker(&self) -> &str {
        &self.broker
    }
}

fn malformed(broker: &str, api: ApiKey, why: String) -> CallError {
    CallError::Malformed { broker: broker.into(), api: api.name(), why: why.into() }
}

/// The answer to a request, on its way. Dropping it takes nothing back: the answer is thrown away when it comes.
#[derive(Debug)]
#[must_use = "whether the request was done is only known from the answer"]
pub(crate) struct PendingReply(oneshot::Receiver<Answer>);

impl PendingReply {
    /// And where to put the answer.
    pub(crate) fn new() -> (oneshot::Sender<Answer>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(receiver))
    }
}

impl Future for PendingReply {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.0).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(CallError::Disconnected {
                    broker: "this client".into(),
                    api: "a request",
                    why: "it was closed".into(),
                })
            })
        })
    }
}

/// What a broker speaks, by API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    /// Sorted by key.
    served: Vec<(i16, RangeInclusive<i16>)>,
}

impl Versions {
    /// From an ApiVersions answer; of a key said twice the last counts.
    pub(crate) fn new(served: impl IntoIterator<Item = (i16, i16, i16)>) -> Self {
        let mut served: Vec<_> = served.into_iter().map(|(key, low, high)| (key, low..=high)).collect();
        served.sort_by_key(|(key, _)| *key);
        Self { served }
    }

    /// All of it, by rising key.
    pub(crate) fn served(&self) -> &[(i16, RangeInclusive<i16>)] {
        &self.served
    }

    /// What the broker speaks of one API.
    pub(crate) fn of(&self, api: ApiKey) -> Option<&RangeInclusive<i16>> {
        let at = self.served.binary_search_by_key(&api.number(), |(key, _)| *key).ok()?;
        self.served.get(at).map(|(_, versions)| versions)
    }

    /// The highest version both sides speak.
    pub(crate) fn pick(&self, api: ApiKey) -> Option<i16> {
        let (ours, theirs) = (api.versions(), self.of(api)?);
        let highest = *ours.end().min(theirs.end());
        (highest >= *ours.start() && highest >= *theirs.start()).then_some(highest)
    }
}

/// A request to be sent: what [`Connection::submit`] needs besides the message.
pub(crate) struct Order {
    /// For the cuts of the message, in its order; empty ones included.
    pub(crate) records: Vec<Bytes>,
    /// When waiting ends.
    pub(crate) deadline: Instant,
    /// How long that is from the start, for the error.
    pub(crate) after: Duration,
    /// False for Produce with acks=0: the order is done when its bytes are with the kernel.
    pub(crate) answered: bool,
    /// Where the answer goes.
    pub(crate) sender: oneshot::Sender<Answer>,
}

/// The handle; clones share the connection. It stays open until [`Connection::close`], or until its [`Driver`] is dropped.
#[derive(Clone)]
pub(crate) struct Connection(Rc<Shared>);

struct Shared {
    broker: Rc<str>,
    versions: Versions,
    client_id: Rc<str>,
    state: RefCell<State>,
}

struct State {
    /// Bytes to be written, in order.
    queue: VecDeque<Bytes>,
    in_flight: VecDeque<InFlight>,
    /// Orders without an answer, and how many bytes must be written for them.
    unanswered: VecDeque<(u64, InFlight)>,
    /// Bytes handed over and bytes written since the beginning.
    queued: u64,
    written: u64,
    next_correlation: i32,
    /// The earliest deadline, or when the connection has been idle for too long. May be too early, never too late.
    wake_at: Instant,
    last_used: Instant,
    driver: Option<Waker>,
    closed: Option<Box<str>>,
}

struct InFlight {
    correlation: i32,
    api: ApiKey,
    version: i16,
    deadline: Instant,
    after: Duration,
    sender: oneshot::Sender<Answer>,
}

impl Connection {
    pub(crate) fn versions(&self) -> &Versions {
        &self.0.versions
    }

    /// For people: `broker 1 at host:port`.
    pub(crate) fn broker(&self) -> &str {
        &self.0.broker
    }

    /// Requests waiting for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.state.borrow().in_flight.len()
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.state.borrow().closed.is_some()
    }

    /// Ends it; everybody who waits is told `why`.
    pub(crate) fn close(&self, why: &str) {
        let mut state = self.0.state.borrow_mut();
        state.closed.get_or_insert_with(|| why.into());
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
    }

    /// Queues one request. Its place in the order is taken here; it is written when the driver runs next, together with all else
    /// that was queued by then.
    pub(crate) fn submit<'a, R: Request<'a>>(&self, request: &R, order: Order) {
        let Order { records, deadline, after, answered, sender } = order;
        let Some(version) = self.0.versions.pick(R::API) else {
            let (broker, theirs) = (Box::from(self.broker()), self.0.versions.of(R::API).cloned());
            let error = CallError::UnsupportedVersion { broker, api: R::API.name(), ours: R::API.versions(), theirs };
            // Nobody waits any more: then nobody needs to know.
            _ = sender.send(Err(error));
            return;
        };
        let mut state = self.0.state.borrow_mut();
        if let Some(why) = &state.closed {
            _ = sender.send(Err(disconnected(&self.0.broker, R::API, why)));
            return;
        }
        let correlation = state.next_correlation;
        state.next_correlation = correlation.checked_add(1).unwrap_or(0);
        let buffer = BytesMut::with_capacity(REQUEST_BYTES);
        let encoded = encode_request(buffer, version, correlation, &self.0.client_id, request);
        state.queued += encoded.bytes_total() as u64;
        let mut records = records.into_iter().enumerate();
        for segment in encoded.into_segments() {
            state.queue.push_back(match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Records { index, bytes } => {
                    let found = records.find(|(at, _)| *at == index).map(|(_, found)| found);
                    let found = found.expect("each cut of a request has its records");
                    assert_eq!(found.len(), bytes, "records are as long as the request announces");
                    found
                }
            });
        }
        state.wake_at = state.wake_at.min(deadline);
        let order = InFlight { correlation, api: R::API, version, deadline, after, sender };
        if answered {
            state.last_used = Instant::now();
            state.in_flight.push_back(order);
        } else {
            let end = state.queued;
            state.unanswered.push_back((end, order));
        }
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
    }
}

fn disconnected(broker: &str, api: ApiKey, why: &str) -> CallError {
    CallError::Disconnected { broker: broker.into(), api: api.name(), why: why.into() }
}

/// Moves the bytes. Await [`Driver::run`] for as long as the connection shall live.
pub(crate) struct Driver {
    connection: Connection,
    stream: TcpStream,
    frames: Frames,
    idle_max: Option<Duration>,
    timer: Pin<Box<Sleep>>,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// We closed it: it was told to, or idle for too long.
    Here,
    /// The broker closed it, the network broke it, or what came was no answer.
    There,
}

impl Driver {
    fn new(dialled: handshake::Dialled, dial: &Dial<'_>) -> Self {
        let handshake::Dialled { stream, broker, versions } = dialled;
        let now = Instant::now();
        let state = State {
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            unanswered: VecDeque::new(),
            queued: 0,
            written: 0,
            next_correlation: 1,
            wake_at: now + dial.settings.connections_max_idle.unwrap_or(LONG),
            last_used: now,
            driver: None,
            closed: None,
        };
        let client_id = dial.settings.client_id.as_str().into();
        let shared = Shared { broker, versions, client_id, state: RefCell::new(state) };
        Self {
            connection: Connection(Rc::new(shared)),
            stream,
            frames: Frames::new(dial.settings.receive_message_max_bytes),
            idle_max: dial.settings.connections_max_idle,
            timer: Box::pin(sleep_until(now)),
        }
    }

    /// The handle.
    pub(crate) fn connection(&self) -> Connection {
        self.connection.clone()
    }

    /// Until the connection ends, by either side.
    pub(crate) async fn run(mut self) -> Ended {
        let (why, ended) = poll_fn(|context| self.turn(context)).await;
        self.connection.close(&why);
        ended
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Poll<(Box<str>, Ended)> {
        {
            let mut state = self.connection.0.state.borrow_mut();
            if let Some(why) = &state.closed {
                return Poll::Ready((why.clone(), Ended::Here));
            }
            if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.driver = Some(context.waker().clone());
            }
        }
        if let Err(error) = self.write(context) {
            return Poll::Ready((error.to_string().into(), Ended::There));
        }
        if let Err(why) = self.read(context) {
            return Poll::Ready((why, Ended::There));
        }
        self.look_at_the_clock(context)
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let mut state = self.connection.0.state.borrow_mut();
        while !state.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(&state.queue) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            let written = Pin::new(&mut self.stream).poll_write_vectored(context, &slices[..count]);
            let Poll::Ready(written) = written else { return Ok(()) };
            let mut left = written?;
            if left == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            state.written += left as u64;
            while let Some(front) = state.queue.front_mut().filter(|_| left > 0) {
                let step = left.min(front.len());
                left -= step;
                front.advance(step);
                if front.is_empty() {
                    state.queue.pop_front();
                }
            }
            while state.unanswered.front().is_some_and(|(end, _)| *end <= state.written) {
                let Some((_, InFlight { api, version, sender, .. })) = state.unanswered.pop_front() else { break };
                state.last_used = Instant::now();
                let broker = Rc::clone(&self.connection.0.broker);
                // Nobody waits any more: then nobody needs to know.
                _ = sender.send(Ok(Reply { version, api, frame: Bytes::new(), broker }));
            }
        }
        Ok(())
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<(), Box<str>> {
        loop {
            let buffer = self.frames.room();
            let read = pin!(self.stream.read_buf(buffer)).poll(context);
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("it closed the connection".into()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error.to_string().into()),
            }
            while let Some(frame) = self.frames.cut().map_err(|error| error.to_string())? {
                self.answer(frame)?;
            }
        }
    }

    fn answer(&mut self, frame: Bytes) -> Result<(), Box<str>> {
        let shared = &self.connection.0;
        let Some(InFlight { correlation, api, version, sender, .. }) = shared.state.borrow_mut().in_flight.pop_front()
        else {
            return Err("it sent an answer nobody had asked for".into());
        };
        let Some(came) = frame.first_chunk().map(|id| i32::from_be_bytes(*id)).filter(|came| *came == correlation)
        else {
            let why = "an answer to another request came in its place (its correlation id differs)";
            _ = sender.send(Err(malformed(&shared.broker, api, why.to_owned())));
            return Err(why.into());
        };
        debug_assert_eq!(came, correlation);
        // Nobody waits any more: the answer is of no use.
        _ = sender.send(Ok(Reply { version, api, frame, broker: Rc::clone(&shared.broker) }));
        Ok(())
    }

    /// Deadlines and idleness. The timer follows `wake_at`, which moves to an earlier time when a request asks for it, and is
    /// set anew when it fires: requests of one kind share their time-out, so the timer is touched once in a while only.
    fn look_at_the_clock(&mut self, context: &mut Context<'_>) -> Poll<(Box<str>, Ended)> {
        loop {
            let wake_at = self.connection.0.state.borrow().wake_at;
            if wake_at < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(wake_at);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            let mut state = self.connection.0.state.borrow_mut();
            if let Some(late) = state.in_flight.iter().find(|one| one.deadline <= now) {
                let why = format!("{} was not answered within {:?}", late.api.name(), late.after);
                return Poll::Ready((why.into(), Ended::There));
            }
            if let Some((_, late)) = state.unanswered.iter().find(|(_, one)| one.deadline <= now) {
                let why = format!("{} could not be written within {:?}", late.api.name(), late.after);
                return Poll::Ready((why.into(), Ended::There));
            }
            let idle_at = self.idle_max.map(|idle_max| state.last_used + idle_max);
            let busy = !state.in_flight.is_empty() || !state.queue.is_empty();
            if !busy && idle_at.is_some_and(|idle_at| idle_at <= now) {
                return Poll::Ready(("it was idle for connections.max.idle.ms".into(), Ended::Here));
            }
            let unanswered = state.unanswered.iter().map(|(_, one)| one);
            let earliest = state.in_flight.iter().chain(unanswered).map(|one| one.deadline).min();
            let idle_at = idle_at.filter(|_| !busy).unwrap_or(now + LONG.min(self.idle_max.unwrap_or(LONG)));
            state.wake_at = earliest.map_or(idle_at, |earliest| earliest.min(idle_at));
        }
    }
}

impl Drop for Driver {
    /// Tells everybody who waits.
    fn drop(&mut self) {
        let shared = &self.connection.0;
        let (in_flight, unanswered, why) = {
            let mut state = shared.state.borrow_mut();
            let why = state.closed.get_or_insert_with(|| "this client was closed".into()).clone();
            state.queue.clear();
            (std::mem::take(&mut state.in_flight), std::mem::take(&mut state.unanswered), why)
        };
        let now = Instant::now();
        let unanswered = unanswered.into_iter().map(|(_, order)| order);
        for InFlight { api, deadline, after, sender, .. } in in_flight.into_iter().chain(unanswered) {
            let broker = || Box::from(&*shared.broker);
            _ = sender.send(Err(if deadline <= now {
                CallError::TimedOut { broker: broker(), api: api.name(), after }
            } else {
                disconnected(&shared.broker, api, &why)
            }));
        }
    }
}

#[cfg(test)]
mod tests;
