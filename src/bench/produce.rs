//! Sends records through the client, as a program would: closed loop, or open loop by schedule.
//!
//! Shell; tasks on the producer's own thread, so that no wake-up crosses threads. Owns the loops and the book of records under
//! way. Does not own what is measured of them (`recorder`) nor when they are due (`schedule`). Always true: in an open loop a
//! record keeps its intended time however long the client's buffer was full, also when it could not be sent before the end; nothing is
//! allocated for a record.

use std::collections::VecDeque;
use std::sync::Arc;
#[expect(
    clippy::disallowed_types,
    reason = "the delivery handler must be Sync; only one thread ever takes the lock"
)]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::clock::Clock;
use super::plan::Plan;
use super::recorder::BatchCounts;
use super::schedule::{Micros, Rate, Schedule};
use super::station::{Station, Told};
use super::target::BenchError;
use super::timer::Timer;
use super::verify::Stamp;
use super::workload::Generator;
use crate::client::{DeliveredBatch, Io, Producer, ProducerMetrics, ProducerOptions, RecordRef, SendError};
use crate::history::Value;

/// Records sent without giving way to the client's own task, at most; and for how long.
const BURST_RECORDS: u32 = 128;
const BURST_US: Micros = 100;
/// Above this rate of one thread, send times are rounded up to a tick they share: one wake-up for all producers.
const TICK_ABOVE_RATE: f64 = 10_000.0;
const TICK_US: Micros = 100;
/// How often the client's counters are looked at.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// How long a sender sleeps at most when there is no room: an unknown topic rings no bell.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// A record under way.
#[derive(Clone, Copy)]
struct Pending {
    intended: Micros,
    sent: Micros,
    bytes: u32,
    answered: bool,
}

/// The records one producer has under way, by number; numbers follow each other.
#[derive(Default)]
struct Book {
    first: u64,
    pending: VecDeque<Pending>,
    outstanding: u64,
}

impl Book {
    fn take(&mut self, number: u64) -> Option<Pending> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let pending = self.pending.get_mut(at).filter(|pending| !pending.answered)?;
        pending.answered = true;
        let taken = *pending;
        self.outstanding -= 1;
        while self.pending.front().is_some_and(|front| front.answered) {
            self.pending.pop_front();
            self.first += 1;
        }
        Some(taken)
    }
}

/// One producer of the run, and who waits for it.
struct Sender {
    station: Arc<Station>,
    clock: Clock,
    number: u16,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    book: Mutex<Book>,
    /// Rung when a batch was answered: there may be room.
    room: Notify,
    verifies: bool,
}

impl Sender {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was acknowledged, or failed for good.
    fn on_delivery(&self, batch: &DeliveredBatch<'_>) {
        let now = self.clock.now();
        let partition = batch.partition.value().cast_unsigned();
        let mut book = self.book();
        let mut sheet = self.station.sheet();
        match batch.result {
            Ok(base) => {
                // Neighbours of a batch sent in one go have the same times: they are recorded together.
                let mut alike: Option<(Pending, u64, u64)> = None;
                for (place, tag) in batch.tags() {
                    let Some(pending) = book.take(tag) else { continue };
                    if self.verifies {
                        let offset = base.map(|base| base.value() + i64::from(place));
                        sheet.ledger.on_acked(partition, Value::new(self.number, tag), 1, offset);
                    }
                    alike = match alike {
                        Some((first, records, bytes))
                            if first.intended == pending.intended && first.sent == pending.sent =>
                        {
                            Some((first, records + 1, bytes + u64::from(pending.bytes)))
                        }
                        other => {
                            if let Some((first, records, bytes)) = other {
                                sheet.recorder.on_acked(now, first.intended, first.sent, records, bytes);
                            }
                            Some((pending, 1, u64::from(pending.bytes)))
                        }
                    };
                }
                if let Some((first, records, bytes)) = alike {
                    sheet.recorder.on_acked(now, first.intended, first.sent, records, bytes);
                }
                sheet.last_us = sheet.last_us.max(now);
            }
            Err(error) => {
                let mut count = 0;
                for (_, tag) in batch.tags() {
                    if let Some(pending) = book.take(tag) {
                        sheet.recorder.on_failed(now, pending.intended, pending.sent, 1);
                        count += 1;
                    }
                }
                let name = error.code().map_or_else(|| "not delivered in time".to_owned(), |code| code.to_string());
                sheet.on_error(&name, count);
            }
        }
        self.room.notify_one();
    }

    /// What never got an answer counts as failed, with the age it has.
    fn give_up(&self) {
        let now = self.clock.now();
        let mut book = self.book();
        let mut sheet = self.station.sheet();
        let left: Vec<Pending> = book.pending.iter().filter(|pending| !pending.answered).copied().collect();
        for pending in &left {
            sheet.recorder.on_failed(now, pending.intended, pending.sent, 1);
        }
        if !left.is_empty() {
            sheet.on_error("no answer when the run ended", left.len() as u64);
        }
        *book = Book::default();
    }
}

/// Everything one producer task needs while it sends.
struct Loop {
    sender: Arc<Sender>,
    producer: Producer,
    topic: String,
    generator: Generator,
    stamps: bool,
    next: u64,
    outstanding_max: u64,
    now_ms: i64,
    now_ms_at: Micros,
}

/// How an attempt to send ended.
enum Sent {
    Yes,
    /// The client's buffer, or the plan's bound, is full.
    Full,
    /// No more: the budget is used up, or the producer cannot go on.
    Over,
}

/// Prepares producer `number`, waits for the start, sends until the stop, and waits for what is under way.
pub(crate) async fn run(station: Arc<Station>, io: Io, number: u32) {
    if let Err(error) = produce(&station, io, number).await {
        station.tell(Told::Failed(error));
    }
}

async fn produce(station: &Arc<Station>, io: Io, number: u32) -> Result<(), BenchError> {
    let plan = &station.brief.plan;
    let settings = plan.producer_settings()?;
    let sender: Arc<std::sync::OnceLock<Arc<Sender>>> = Arc::default();
    let handler = Arc::clone(&sender);
    let options = ProducerOptions::default().seed(plan.workload.seed ^ u64::from(number)).on_delivery(move |batch| {
        if let Some(sender) = handler.get() {
            sender.on_delivery(batch);
        }
    });
    let producer = Producer::on_with(&io, settings, options)?;
    let topic = station.brief.topic.name.clone();
    let ready = producer.partition_count(&topic).await;
    ready.map_err(|error| BenchError::Topic { topic: topic.clone(), why: error.to_string() })?;
    let generator = Generator::new(&plan.workload, number);
    station.tell(Told::Ready);
    let Some(clock) = station.started().await else { return Ok(()) };
    let this = Arc::new(Sender {
        station: Arc::clone(station),
        clock,
        number: u16::try_from(number).expect("the plan bounds the number of producers"),
        book: Default::default(),
        room: Notify::new(),
        verifies: plan.verifies().is_ok(),
    });
    _ = sender.set(Arc::clone(&this));
    let mut sending = Loop {
        sender: this,
        producer,
        topic,
        generator,
        stamps: plan.stamps(),
        next: 0,
        outstanding_max: plan.outstanding.unwrap_or(u64::MAX),
        now_ms: 0,
        now_ms_at: 0,
    };
    let ramp_us = u64::try_from((plan.warmup + plan.duration).as_micros()).unwrap_or(u64::MAX);
    let mut schedule = Schedule::new(plan.rate, plan.arrival, plan.producers, number, ramp_us, plan.workload.seed);
    let counting = count_batches(station, clock, sending.producer.clone());
    let sends = async {
        match &mut schedule {
            Some(schedule) => sending.open(schedule, tick(plan)).await,
            None => sending.closed().await,
        }
    };
    tokio::select! {
        sent = sends => sent?,
        () = counting => {}
    }
    sending.drain().await;
    if let Some(schedule) = &mut schedule {
        station.charge_unsent(schedule);
    }
    Ok(())
}

/// Writes down how the client's counters grow, second by second. Never ends.
async fn count_batches(station: &Station, clock: Clock, producer: Producer) {
    let mut before = producer.metrics();
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        let after = producer.metrics();
        station.sheet().recorder.on_batches(clock.now(), &counts(&before, &after));
        before = after;
    }
}

/// The grain of send times.
fn tick(plan: &Plan) -> Micros {
    let fastest = match plan.rate {
        Rate::Max => 0.0,
        Rate::Fixed(rate) => rate,
        Rate::Ramp(from, to) => from.max(to),
    };
    if fastest / f64::from(plan.threads) > TICK_ABOVE_RATE { TICK_US } else { 1 }
}

impl Loop {
    /// As fast as there is room.
    async fn closed(&mut self) -> Result<(), BenchError> {
        loop {
            let began = self.sender.clock.now();
            let mut wanted = None;
            for _ in 0..BURST_RECORDS {
                let now = self.sender.clock.now();
                match self.send(now, now, now)? {
                    Sent::Yes => {}
                    Sent::Full => {
                        wanted = Some(now);
                        break;
                    }
                    Sent::Over => return Ok(()),
                }
                if now - began > BURST_US {
                    break;
                }
            }
            if self.sender.station.is_stopping() {
                return Ok(());
            }
            if wanted.is_none() {
                tokio::task::yield_now().await;
            } else if !self.wait_for_room().await {
                return Ok(());
            }
        }
    }

    /// By schedule, whatever the broker does.
    async fn open(&mut self, schedule: &mut Schedule, tick: Micros) -> Result<(), BenchError> {
        let host = |source| BenchError::Host { what: "a timer".to_owned(), source };
        let mut timer = Timer::new(self.sender.clock).map_err(host)?;
        // Until then the client's buffer was full: being late is not the generator's fault.
        let mut unblocked = 0;
        loop {
            let began = self.sender.clock.now();
            let mut full = false;
            for _ in 0..BURST_RECORDS {
                let now = self.sender.clock.now();
                let intended = schedule.next_at();
                if intended > now {
                    break;
                }
                let looked = if unblocked > intended { intended } else { now };
                match self.send(now, intended, looked)? {
                    Sent::Yes => schedule.advance(),
                    Sent::Full => {
                        full = true;
                        break;
                    }
                    Sent::Over => return Ok(()),
                }
                if now - began > BURST_US {
                    break;
                }
            }
            if self.sender.station.is_stopping() {
                return Ok(());
            }
            if full {
                if !self.wait_for_room().await {
                    return Ok(());
                }
                unblocked = self.sender.clock.now();
            } else if schedule.next_at() > self.sender.clock.now() {
                let at = schedule.next_at().div_ceil(tick) * tick;
                tokio::select! {
                    woken = timer.until(at) => woken.map_err(host)?,
                    () = self.sender.station.stopped() => return Ok(()),
                }
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// False when the run stops meanwhile.
    async fn wait_for_room(&self) -> bool {
        tokio::select! {
            () = self.sender.room.notified() => true,
            () = tokio::time::sleep(ROOM_WAIT) => true,
            () = self.sender.station.stopped() => false,
        }
    }

    fn send(&mut self, now: Micros, intended: Micros, looked: Micros) -> Result<Sent, BenchError> {
        if self.sender.book().outstanding >= self.outstanding_max {
            return Ok(Sent::Full);
        }
        if !self.sender.station.may_send(1) {
            return Ok(Sent::Over);
        }
        if now >= self.now_ms_at + 1000 {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.now_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            self.now_ms_at = now;
        }
        let number = self.next;
        let draft = self.generator.draft();
        if self.stamps {
            let stamp = Stamp {
                run: self.sender.station.brief.run,
                value: Value::new(self.sender.number, number),
                intended_ns: self.sender.clock.host_ns(intended),
            };
            stamp.write(draft.value);
        }
        let bytes = draft.value.len() + draft.key.map_or(0, |key| key.len());
        let record = RecordRef {
            topic: &self.topic,
            partition: None,
            key: draft.key.as_ref().map(|key| &key[..]),
            value: Some(draft.value),
            headers: &[],
            timestamp: Some(self.now_ms),
        };
        // Written down before it is sent: the answer may come before this thread is back.
        {
            let mut book = self.sender.book();
            book.pending.push_back(Pending {
                intended,
                sent: now,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                answered: false,
            });
            book.outstanding += 1;
        }
        match self.producer.try_send_tagged(record, number) {
            Ok(()) => {
                self.next += 1;
                self.sender.station.sheet().recorder.on_sent(now, intended, looked, 1);
                Ok(Sent::Yes)
            }
            Err(error) => {
                let mut book = self.sender.book();
                book.pending.pop_back();
                book.outstanding -= 1;
                match error {
                    SendError::WouldBlock | SendError::NoMetadata { .. } => {
                        self.give_back();
                        Ok(Sent::Full)
                    }
                    error => Err(BenchError::Topic { topic: self.topic.clone(), why: error.to_string() }),
                }
            }
        }
    }

    /// A record that was not sent does not count.
    fn give_back(&self) {
        let brief = &self.sender.station.brief;
        if brief.plan.records.is_some() {
            use std::sync::atomic::Ordering::Relaxed;
            _ = brief.budget.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(1)));
        }
    }

    async fn drain(&mut self) {
        if tokio::time::timeout(self.sender.station.brief.plan.drain, self.producer.flush()).await.is_err() {
            self.sender.give_up();
        }
        self.producer.close(Duration::from_millis(100)).await;
        self.sender.give_up();
        self.sender.station.sheet().retries += self.producer.metrics().retries;
    }
}

fn counts(before: &ProducerMetrics, after: &ProducerMetrics) -> BatchCounts {
    BatchCounts {
        requests: after.requests - before.requests,
        batches: after.batches - before.batches,
        records: after.records_acked + after.records_failed - before.records_acked - before.records_failed,
        wire_bytes: after.batch_wire_bytes - before.batch_wire_bytes,
        raw_bytes: after.batch_raw_bytes - before.batch_raw_bytes,
        lingered: after.batches_lingered - before.batches_lingered,
        full: after.batches_full - before.batches_full,
        retries: after.retries - before.retries,
    }
}
