//! Which batches go to which broker now, and what follows from the answers.
//!
//! Pure. Owns requests in flight, retries and their pace, the sequences of an idempotent producer, and expiry. Does not own
//! the queues (`accumulator`), sockets or metadata: the shell sends what [`Sender::poll`] puts together and reports what came
//! of it. Always true: batches of a partition are acknowledged in the order of their records as long as the producer is
//! idempotent or has one request in flight; a sequence is given again only to what surely was not written under it.
//! Source: Kafka's `Sender` and `TransactionManager`; KIP-98, KIP-360 (epochs), KIP-91 (delivery time-out), KIP-219 (throttle).
//!
//! **Sequences.** A batch gets its sequence when it is first sent and keeps it through retries. `OUT_OF_ORDER_SEQUENCE_NUMBER`
//! for a batch that has older ones unresolved before it only says that those must come first. For the oldest it says that
//! there is a gap, and with it that neither this batch nor any behind it was written: the partition *restarts*. Once nothing of
//! it is in flight it takes a newer epoch (chosen here, as Java does for producers without transactions; a fresh producer id
//! when epochs run out) and its batches count from 0 again. Until the first acknowledgement under an epoch only one batch
//! travels: a broker that knows nothing of a producer takes any sequence, so the second could overtake the first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use slab::Slab;
use smallvec::SmallVec;

use super::accumulator::{Accumulator, Due};
use super::delivery::ProduceError;
use super::error::metadata_is_stale;
use super::outgoing::{Batch, Place};
use super::sequences::{Sequences, Verdict};
use crate::protocol::ErrorCode;
use crate::types::{BrokerId, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicName};

/// Share by which a back-off is shortened or lengthened at random, so that clients do not come back all at once.
const BACKOFF_JITTER: f64 = 0.2;

/// Settings of the sender.
#[derive(Clone, Debug)]
pub(crate) struct SenderSettings {
    /// `max.in.flight.requests.per.connection`.
    pub(crate) in_flight_max: usize,
    /// `max.request.size`.
    pub(crate) request_bytes_max: usize,
    /// `delivery.timeout.ms`.
    pub(crate) delivery_timeout: Duration,
    /// `retries`.
    pub(crate) retries: u32,
    /// `retry.backoff.ms`.
    pub(crate) retry_backoff: Duration,
    /// `retry.backoff.max.ms`.
    pub(crate) retry_backoff_max: Duration,
    /// `enable.idempotence`.
    pub(crate) idempotent: bool,
    /// `partitioner.availability.timeout.ms`; zero: never.
    pub(crate) availability_timeout: Duration,
    /// Of the jitter.
    pub(crate) seed: u64,
}

/// Names a request in flight.
pub(crate) type RequestId = usize;

/// One Produce request: a batch for each of some partitions of one broker.
pub(crate) struct InFlight<W> {
    /// Where to.
    pub(crate) broker: BrokerId,
    /// At most one per partition, by topic and partition.
    pub(crate) batches: Vec<Batch<W>>,
}

/// What is to be done after a [`Sender::poll`].
pub(crate) struct Turn<W> {
    /// To be sealed and sent, in this order.
    pub(crate) requests: SmallVec<[RequestId; 4]>,
    /// To be told.
    pub(crate) done: Vec<Done<W>>,
    /// A producer id is needed before anything can be sent.
    pub(crate) wants_identity: bool,
    /// Topics of which some partition with batches has no leader.
    pub(crate) leaderless: SmallVec<[u32; 4]>,
    /// When to poll again at the latest.
    pub(crate) wake_at: Option<Instant>,
}

/// Records of one batch, to be told what became of them.
pub(crate) struct Done<W> {
    /// Their topic.
    pub(crate) topic: TopicName,
    /// Their partition.
    pub(crate) partition: u32,
    /// One for each record, in order.
    pub(crate) waiters: Vec<W>,
    /// When the batch was begun.
    pub(crate) created: Instant,
    /// What became of them.
    pub(crate) result: Result<Written, ProduceError>,
}

/// A batch was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// Of its first record, if the broker said.
    pub(crate) base_offset: Option<Offset>,
    /// The broker's time, where the topic stamps records itself.
    pub(crate) append_time: Option<TimestampMs>,
}

/// What a broker said of one batch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PartAnswer {
    /// Its code.
    pub(crate) code: ErrorCode,
    /// Its own words.
    pub(crate) message: Option<Box<str>>,
    /// If all is well.
    pub(crate) written: Written,
}

/// What became of a request.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    /// Answered: in the order of the request's batches; `None` where the answer left one out.
    Answered {
        /// `throttle_time_ms`.
        throttle: Duration,
        /// One for each batch.
        parts: Vec<Option<PartAnswer>>,
    },
    /// Written out, with acks=0: no answer comes.
    Unanswered,
    /// No answer.
    Lost {
        /// The broker may have got the request.
        maybe_written: bool,
        /// The same may succeed later.
        retriable: bool,
        /// What happened.
        why: Box<str>,
    },
}

/// What follows from an [`Outcome`].
pub(crate) struct Aftermath<W> {
    /// To be told.
    pub(crate) done: Vec<Done<W>>,
    /// Topics whose leaders are not what was thought.
    pub(crate) stale: SmallVec<[u32; 4]>,
}

/// What is known of a batch whose request was not answered.
#[derive(Clone, Copy)]
struct Lost<'w> {
    maybe_written: bool,
    retriable: bool,
    why: &'w str,
}

#[derive(Default)]
struct BrokerState {
    in_flight: usize,
    not_before: Option<Instant>,
    /// Since when something ready for it could not be sent.
    blocked_since: Option<Instant>,
    /// Since when no connection to it came about.
    unreachable_since: Option<Instant>,
}

impl BrokerState {
    /// Since when it takes nothing.
    fn slow_since(&self) -> Option<Instant> {
        self.blocked_since.into_iter().chain(self.unreachable_since).min()
    }
}

/// Counters of a sender's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Batches sent again.
    pub(crate) retries: u64,
    /// Batches split.
    pub(crate) splits: u64,
    /// Batches that were sent because they were full.
    pub(crate) full: u64,
    /// Batches that were sent because their linger was over.
    pub(crate) lingered: u64,
    /// Batches that were sent earlier, with others for the broker, or for a flush.
    pub(crate) early: u64,
    /// Epochs begun because of gaps.
    pub(crate) restarts: u64,
}

enum Identity {
    /// Needed, not asked for.
    Missing,
    /// Asked for.
    Asked,
    Given(ProducerId, ProducerEpoch),
}

/// See the head of the file.
pub(crate) struct Sender<W> {
    settings: SenderSettings,
    random: fastrand::Rng,
    sequences: Vec<Vec<Sequences>>,
    brokers: BTreeMap<BrokerId, BrokerState>,
    requests: Slab<InFlight<W>>,
    identity: Identity,
    fatal: Option<ErrorCode>,
    counts: Counts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    Full,
    Due,
    Lingering,
}

struct Candidate {
    place: Place,
    broker: BrokerId,
    urgency: Urgency,
}

impl<W> Sender<W> {
    /// Nothing in flight.
    pub(crate) fn new(settings: SenderSettings) -> Self {
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
            sequences: Vec::new(),
            brokers: BTreeMap::new(),
            requests: Slab::new(),
            identity: Identity::Missing,
            fatal: None,
            counts: Counts::default(),
        }
    }

    /// Counters.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many requests are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// A request that [`Sender::poll`] put together, to be sealed and sent. Panics when it was answered.
    pub(crate) fn request_mut(&mut self, id: RequestId) -> &mut InFlight<W> {
        &mut self.requests[id]
    }

    /// Ends what is over its time, and puts together what can be sent at `now`. When it gives no request, the accumulator
    /// knows that the sender sleeps until `wake_at`.
    pub(crate) fn poll(&mut self, queues: &mut Accumulator<W>, now: Instant) -> Turn<W> {
        let mut turn = Turn {
            requests: SmallVec::new(),
            done: Vec::new(),
            wants_identity: false,
            leaderless: SmallVec::new(),
            wake_at: None,
        };
        self.expire_in_flight(queues, now, &mut turn);
        let mut candidates: Vec<Candidate> = Vec::new();
        loop {
            candidates.clear();
            self.look(queues, now, &mut turn, &mut candidates);
            if !self.put_together(queues, now, &mut turn, &candidates) {
                break;
            }
        }
        if turn.requests.is_empty() {
            self.sleep(queues, now, &mut turn);
        } else {
            queues.wake();
        }
        turn
    }

    /// Lets the accumulator know until when nothing will be sent, which brokers take nothing now, and which have not for too long.
    fn sleep(&mut self, queues: &mut Accumulator<W>, now: Instant, turn: &mut Turn<W>) {
        let patience = self.settings.availability_timeout;
        let (mut busy, mut slow) = (SmallVec::new(), SmallVec::new());
        for (broker, state) in &mut self.brokers {
            let throttled = state.not_before.filter(|until| *until > now);
            if let Some(until) = throttled {
                // No answer ends a throttle, and what becomes ready meanwhile wakes nobody.
                earliest(&mut turn.wake_at, until);
            }
            if throttled.is_some() || state.in_flight >= self.settings.in_flight_max {
                busy.push(*broker);
            } else {
                // It could take what there is: what it could not take before went, expired, or has another leader.
                state.blocked_since = None;
            }
            let waits = |place: &Place| queues.leader(*place) == Some(*broker);
            if state.unreachable_since.is_some() && state.in_flight == 0 && !queues.active().iter().any(waits) {
                // Nothing goes there any more that could tell whether it is back.
                state.unreachable_since = None;
            }
            if !patience.is_zero()
                && state.slow_since().is_some_and(|since| now.saturating_duration_since(since) > patience)
            {
                slow.push(*broker);
            }
        }
        queues.sleep(turn.wake_at, busy, slow);
    }

    /// Tells the waiters of batches in flight whose time is up; the batches stay until they are answered, as their sequences
    /// are in use.
    fn expire_in_flight(&mut self, queues: &Accumulator<W>, now: Instant, turn: &mut Turn<W>) {
        for (_, request) in &mut self.requests {
            for batch in request.batches.iter_mut().filter(|batch| !batch.expired) {
                let deadline = batch.deadline(self.settings.delivery_timeout);
                if deadline > now {
                    earliest(&mut turn.wake_at, deadline);
                    continue;
                }
                batch.expired = true;
                batch.maybe_written = true;
                let error = timed_out(batch, now);
                turn.done.push(done(queues, batch, Err(error)));
            }
        }
    }

    /// Walks over the partitions with batches: what could be sent, and when the others can.
    fn look(&mut self, queues: &mut Accumulator<W>, now: Instant, turn: &mut Turn<W>, candidates: &mut Vec<Candidate>) {
        let mut at = 0;
        while let Some(place) = queues.active().get(at).copied() {
            while let Some(front) = queues.front(place)
                && (self.fatal.is_some() || front.deadline(self.settings.delivery_timeout) <= now)
            {
                let Some(mut batch) = queues.pop(place) else { break };
                let error = match self.fatal {
                    Some(code) => ProduceError::Fatal { code },
                    None => timed_out(&batch, now),
                };
                self.sequences_of(place).drop_waiting(&batch);
                turn.done.push(done(queues, &mut batch, Err(error)));
                queues.end(batch);
            }
            let Some(front) = queues.front(place) else {
                queues.deactivate(at);
                continue;
            };
            at += 1;
            earliest(&mut turn.wake_at, front.deadline(self.settings.delivery_timeout));
            let Some(broker) = queues.leader(place) else {
                if !turn.leaderless.contains(&place.topic) {
                    turn.leaderless.push(place.topic);
                }
                continue;
            };
            if let Some(until) = front.not_before
                && until > now
                && front.sent_to == Some(broker)
            {
                earliest(&mut turn.wake_at, until);
                continue;
            }
            let urgency = if front.attempts > 0 || !front.is_open() {
                Urgency::Due
            } else {
                match queues.due(place) {
                    Due::Never => continue,
                    Due::Full => Urgency::Full,
                    Due::Pressed => Urgency::Due,
                    Due::At(due) if due <= now => Urgency::Due,
                    Due::At(due) => {
                        earliest(&mut turn.wake_at, due);
                        Urgency::Lingering
                    }
                }
            };
            if self.may_send(queues, place, &mut turn.wants_identity) {
                candidates.push(Candidate { place, broker, urgency });
            }
        }
    }

    /// Whether the order of the partition allows its oldest batch to be sent now.
    fn may_send(&mut self, queues: &mut Accumulator<W>, place: Place, wants_identity: &mut bool) -> bool {
        let one_at_a_time = self.settings.in_flight_max == 1;
        if !self.settings.idempotent {
            return !one_at_a_time || !self.sequences_of(place).has_in_flight();
        }
        let Identity::Given(id, epoch) = self.identity else {
            *wants_identity |= matches!(self.identity, Identity::Missing);
            return false;
        };
        if self.sequences_of(place).must_restart() {
            if self.sequences_of(place).has_in_flight() {
                return false;
            }
            let newer = if !self.sequences_of(place).is_under(id, epoch) {
                Some((id, epoch))
            } else {
                // The last epoch is never used: brokers keep it for fencing.
                let next = epoch.value().checked_add(1).filter(|epoch| *epoch < i16::MAX).and_then(ProducerEpoch::new);
                next.map(|epoch| (id, epoch))
            };
            let Some((id, epoch)) = newer else {
                self.identity = Identity::Missing;
                *wants_identity = true;
                return false;
            };
            self.identity = Identity::Given(id, epoch);
            self.counts.restarts += 1;
            self.sequences_of(place).restart(id, epoch);
            for batch in queues.waiting_mut(place) {
                batch.stamp = None;
                batch.maybe_written = false;
            }
        }
        let sequences = self.sequences_of(place);
        sequences.begin(id, epoch);
        queues.front(place).is_some_and(|front| sequences.may_send(front))
    }

    /// Builds at most one request per broker. False when there was nothing to build.
    fn put_together(
        &mut self,
        queues: &mut Accumulator<W>,
        now: Instant,
        turn: &mut Turn<W>,
        candidates: &[Candidate],
    ) -> bool {
        let mut brokers: SmallVec<[BrokerId; 8]> = SmallVec::new();
        for candidate in candidates.iter().filter(|candidate| candidate.urgency != Urgency::Lingering) {
            if !brokers.contains(&candidate.broker) {
                brokers.push(candidate.broker);
            }
        }
        let mut built = false;
        for broker in brokers {
            let in_flight_max = self.settings.in_flight_max;
            let state = self.brokers.entry(broker).or_default();
            if state.not_before.is_some_and(|until| until > now) || state.in_flight >= in_flight_max {
                state.blocked_since.get_or_insert(now);
                continue;
            }
            state.blocked_since = None;
            state.in_flight += 1;
            let batches = self.take(queues, candidates, broker);
            built = true;
            turn.requests.push(self.requests.insert(InFlight { broker, batches }));
        }
        built
    }

    /// Takes the batches of one request out of the queues. When a batch goes because its time has come, those that still
    /// linger for the same broker go with it, as in Java: partitions then keep step and share requests. When all that are
    /// ready are full, the others stay: the partition that is being filled would else be cut short each time.
    fn take(&mut self, queues: &mut Accumulator<W>, candidates: &[Candidate], broker: BrokerId) -> Vec<Batch<W>> {
        let pressed = |candidate: &&Candidate| candidate.broker == broker && candidate.urgency == Urgency::Due;
        let pressed = candidates.iter().any(|candidate| pressed(&candidate));
        let wanted =
            |candidate: &&Candidate| candidate.broker == broker && (pressed || candidate.urgency == Urgency::Full);
        let sized = |candidate: &Candidate| {
            let front = queues.front(candidate.place)?;
            Some((front.created, queues.wire_bytes(front), candidate.place, candidate.urgency))
        };
        let mut wanted: Vec<_> = candidates.iter().filter(wanted).filter_map(sized).collect();
        if wanted.iter().map(|(_, bytes, ..)| bytes).sum::<usize>() > self.settings.request_bytes_max {
            // Not all will find a place: the oldest first, so that none is left out again and again.
            wanted.sort_by_key(|(created, ..)| *created);
        }
        let mut batches: Vec<Batch<W>> = Vec::with_capacity(wanted.len());
        let mut bytes = 0;
        for (_, front_bytes, place, urgency) in wanted {
            if !batches.is_empty() && bytes + front_bytes > self.settings.request_bytes_max {
                break;
            }
            bytes += front_bytes;
            let Some(mut batch) = queues.pop(place) else { continue };
            if batch.attempts > 0 {
                self.counts.retries += 1;
            } else {
                match urgency {
                    Urgency::Full => self.counts.full += 1,
                    Urgency::Due => self.counts.lingered += 1,
                    Urgency::Lingering => self.counts.early += 1,
                }
            }
            batch.attempts += 1;
            batch.not_before = None;
            batch.sent_to = Some(broker);
            let idempotent = self.settings.idempotent;
            self.sequences_of(place).on_sent(&mut batch, idempotent);
            batches.push(batch);
        }
        batches.sort_unstable_by_key(|batch| batch.place);
        batches
    }

    /// Takes what became of a request. Panics when it was answered before.
    pub(crate) fn on_outcome(
        &mut self,
        id: RequestId,
        outcome: Outcome,
        queues: &mut Accumulator<W>,
        now: Instant,
    ) -> Aftermath<W> {
        let InFlight { broker, batches } = self.requests.remove(id);
        let state = self.brokers.entry(broker).or_default();
        state.in_flight -= 1;
        if matches!(outcome, Outcome::Lost { maybe_written: false, retriable: true, .. }) {
            state.unreachable_since.get_or_insert(now);
        } else {
            state.unreachable_since = None;
        }
        let mut after = Aftermath { done: Vec::with_capacity(batches.len()), stale: SmallVec::new() };
        match outcome {
            Outcome::Answered { throttle, parts } => {
                if !throttle.is_zero() {
                    // As in Java, a shorter one does not end a longer one.
                    state.not_before = state.not_before.max(Some(now + throttle));
                }
                let left_out =
                    Lost { maybe_written: true, retriable: true, why: "the broker's answer left the batch out" };
                let mut parts = parts.into_iter();
                for batch in batches {
                    match parts.next().flatten() {
                        Some(part) => self.on_answer(batch, part, queues, now, &mut after),
                        None => self.on_lost(batch, left_out, queues, now, &mut after),
                    }
                }
            }
            Outcome::Unanswered => {
                for batch in batches {
                    self.sequences_of(batch.place).on_resolved(&batch);
                    let written = Written { base_offset: None, append_time: None };
                    finish(batch, Ok(written), queues, &mut after);
                }
            }
            Outcome::Lost { maybe_written, retriable, why } => {
                let lost = Lost { maybe_written, retriable, why: &why };
                for batch in batches {
                    self.on_lost(batch, lost, queues, now, &mut after);
                }
            }
        }
        after
    }

    fn on_lost(
        &mut self,
        mut batch: Batch<W>,
        lost: Lost<'_>,
        queues: &mut Accumulator<W>,
        now: Instant,
        after: &mut Aftermath<W>,
    ) {
        let Lost { maybe_written, retriable, why } = lost;
        batch.maybe_written |= maybe_written;
        batch.trouble = Some(why.into());
        note(&mut after.stale, batch.place.topic);
        if !maybe_written {
            // Nothing was sent: `retries` are not for brokers that cannot be reached, `delivery.timeout.ms` is.
            batch.attempts -= 1;
        }
        if retriable {
            self.retry(batch, queues, now, after);
        } else {
            let error = timed_out(&batch, now);
            self.give_up(batch, error, queues, after);
        }
    }

    fn on_answer(
        &mut self,
        mut batch: Batch<W>,
        part: PartAnswer,
        queues: &mut Accumulator<W>,
        now: Instant,
        after: &mut Aftermath<W>,
    ) {
        let PartAnswer { code, message, written } = part;
        match code {
            ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
                self.sequences_of(batch.place).on_resolved(&batch);
                let written = if code.is_error() { Written { base_offset: None, ..written } } else { written };
                return finish(batch, Ok(written), queues, after);
            }
            ErrorCode::MESSAGE_TOO_LARGE if batch.records() > 1 && !batch.expired => {
                return self.split(batch, queues);
            }
            _ => {}
        }
        batch.trouble = Some(message.as_deref().unwrap_or(code.sentence()).into());
        if metadata_is_stale(code) {
            note(&mut after.stale, batch.place.topic);
        }
        let verdict = self.sequences_of(batch.place).judge(&mut batch, code);
        match verdict {
            Verdict::Retry => self.retry(batch, queues, now, after),
            Verdict::Fail => {
                if code == ErrorCode::CLUSTER_AUTHORIZATION_FAILED && self.settings.idempotent {
                    self.on_fatal(code, queues);
                }
                let error = match self.fatal {
                    Some(code) => ProduceError::Fatal { code },
                    None => ProduceError::Refused { code, message, maybe_written: batch.maybe_written },
                };
                self.give_up(batch, error, queues, after);
            }
        }
    }

    fn split(&mut self, batch: Batch<W>, queues: &mut Accumulator<W>) {
        self.counts.splits += 1;
        let (place, raw_bytes) = (batch.place, batch.raw_bytes());
        let form = *queues.form();
        let ordinal = batch.ordinal;
        let parts = batch.split(&form);
        self.sequences_of(place).on_split(ordinal, &parts);
        queues.requeue_parts(raw_bytes, parts);
    }

    fn retry(&mut self, mut batch: Batch<W>, queues: &mut Accumulator<W>, now: Instant, after: &mut Aftermath<W>) {
        let over = batch.expired || batch.deadline(self.settings.delivery_timeout) <= now;
        if over || batch.attempts > self.settings.retries || self.fatal.is_some() {
            let error = match self.fatal {
                Some(code) => ProduceError::Fatal { code },
                None => timed_out(&batch, now),
            };
            return self.give_up(batch, error, queues, after);
        }
        batch.not_before = Some(now + self.backoff(batch.attempts));
        self.sequences_of(batch.place).on_waiting();
        queues.requeue(batch);
    }

    /// Before attempt `attempts` + 1: doubling, bounded, with jitter.
    fn backoff(&mut self, attempts: u32) -> Duration {
        let SenderSettings { retry_backoff: first, retry_backoff_max: max, .. } = self.settings;
        let doubled = first.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(max.max(first));
        doubled.mul_f64(1.0 - BACKOFF_JITTER + 2.0 * BACKOFF_JITTER * self.random.f64())
    }

    fn give_up(&mut self, batch: Batch<W>, error: ProduceError, queues: &mut Accumulator<W>, after: &mut Aftermath<W>) {
        self.sequences_of(batch.place).on_failed(&batch);
        finish(batch, Err(error), queues, after);
    }

    /// The producer id came.
    pub(crate) fn on_identity(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        self.identity = Identity::Given(id, epoch);
    }

    /// The producer id was asked for; [`Sender::on_identity`] or [`Sender::on_fatal`] will follow.
    pub(crate) fn on_identity_asked(&mut self) {
        self.identity = Identity::Asked;
    }

    /// The producer cannot go on: whatever is queued fails at the next poll, whatever is in flight when it is answered.
    pub(crate) fn on_fatal(&mut self, code: ErrorCode, queues: &mut Accumulator<W>) {
        self.fatal = Some(code);
        queues.set_fatal(code);
    }

    /// A topic was made again under its name: nothing sent to the old one counts.
    pub(crate) fn on_recreated(&mut self, topic: u32) {
        if let Some(partitions) = self.sequences.get_mut(topic as usize) {
            partitions.iter_mut().for_each(Sequences::on_recreated);
        }
    }

    /// Fails everything that is queued or in flight; what is in flight stays until it is answered.
    pub(crate) fn abort(&mut self, queues: &mut Accumulator<W>) -> Vec<Done<W>> {
        let mut told = Vec::new();
        for place in queues.active().to_vec() {
            while let Some(mut batch) = queues.pop(place) {
                let maybe_written = batch.maybe_written;
                self.sequences_of(place).drop_waiting(&batch);
                told.push(done(queues, &mut batch, Err(ProduceError::Closed { maybe_written })));
                queues.end(batch);
            }
        }
        for (_, request) in &mut self.requests {
            for batch in request.batches.iter_mut().filter(|batch| !batch.expired) {
                (batch.expired, batch.maybe_written) = (true, true);
                told.push(done(queues, batch, Err(ProduceError::Closed { maybe_written: true })));
            }
        }
        told
    }

    fn sequences_of(&mut self, place: Place) -> &mut Sequences {
        let (topic, partition) = (place.topic as usize, place.partition as usize);
        if self.sequences.len() <= topic {
            self.sequences.resize_with(topic + 1, Vec::new);
        }
        let partitions = &mut self.sequences[topic];
        if partitions.len() <= partition {
            partitions.resize_with(partition + 1, Sequences::default);
        }
        &mut partitions[partition]
    }

    /// What must hold between any two calls; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self, queues: &Accumulator<W>) {
        let batches = || self.requests.iter().flat_map(|(_, request)| &request.batches);
        queues.check(batches().map(Batch::raw_bytes).sum(), batches().count() as u64);
        for (broker, state) in &self.brokers {
            assert!(state.in_flight <= self.settings.in_flight_max, "{broker} has {} in flight", state.in_flight);
        }
        self.sequences.iter().flatten().for_each(Sequences::check);
    }
}

fn earliest(wake_at: &mut Option<Instant>, at: Instant) {
    if wake_at.is_none_or(|known| at < known) {
        *wake_at = Some(at);
    }
}

fn note(topics: &mut SmallVec<[u32; 4]>, topic: u32) {
    if !topics.contains(&topic) {
        topics.push(topic);
    }
}

fn done<W>(queues: &Accumulator<W>, batch: &mut Batch<W>, result: Result<Written, ProduceError>) -> Done<W> {
    Done {
        topic: queues.topic_name(batch.place.topic).clone(),
        partition: batch.place.partition,
        waiters: batch.take_waiters(),
        created: batch.created,
        result,
    }
}

fn finish<W>(
    mut batch: Batch<W>,
    result: Result<Written, ProduceError>,
    queues: &mut Accumulator<W>,
    after: &mut Aftermath<W>,
) {
    if !batch.expired {
        after.done.push(done(queues, &mut batch, result));
    }
    queues.end(batch);
}

fn timed_out<W>(batch: &Batch<W>, now: Instant) -> ProduceError {
    ProduceError::TimedOut {
        after: now.saturating_duration_since(batch.created),
        attempts: batch.attempts,
        maybe_written: batch.maybe_written,
        last: batch.trouble.clone().unwrap_or_else(|| {
            if batch.attempts == 0 { "the broker took no request".into() } else { "the broker did not answer".into() }
        }),
    }
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
