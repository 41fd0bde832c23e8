//! Telling those who sent records what became of them, a batch at a time.
//!
//! Shell: it calls into the program. Owns what waits for a record and the view of a batch a program gets. Always: every waiter of
//! a batch is told once, in the order of the records; a callback that panics hurts no other. Source: Kafka's `Callback`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tokio::sync::oneshot;
use tracing::error;

use super::Shared;
use crate::client::delivery::ProduceError;
use crate::client::record::RecordMetadata;
use crate::client::sender::{Done, Written};
use crate::types::{Offset, PartitionIndex, TimestampMs, TopicName};

/// What waits for a record.
pub(super) enum Waiter {
    /// To be given to `on_delivery`.
    Tag(u64),
    /// The record's time, and what to call.
    Callback(TimestampMs, Box<dyn FnOnce(Result<RecordMetadata, ProduceError>) + Send>),
    /// The record's time, and where to put the outcome.
    Future(TimestampMs, oneshot::Sender<Result<RecordMetadata, ProduceError>>),
}

/// The records of one batch that were sent with tags, acknowledged or failed together.
pub struct DeliveredBatch<'a> {
    /// Where they went.
    pub topic: &'a TopicName,
    /// Where they went.
    pub partition: PartitionIndex,
    /// When the batch's first record was taken.
    pub begun: Instant,
    /// The offset of the batch's first record, if the broker said; or what went wrong.
    pub result: Result<Option<Offset>, &'a ProduceError>,
    waiters: &'a [Waiter],
}

impl DeliveredBatch<'_> {
    /// The tags, each with its record's place in the batch, which is what to add to the first offset.
    pub fn tags(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.waiters).filter_map(|(index, waiter)| match waiter {
            Waiter::Tag(tag) => Some((index, *tag)),
            _ => None,
        })
    }

    /// How many records the batch held, tagged or not.
    pub fn records(&self) -> usize {
        self.waiters.len()
    }
}

impl Shared {
    /// Tells everybody who waits for the batch. Gives back the empty list.
    pub(super) fn tell(&self, done: Done<Waiter>) -> Vec<Waiter> {
        let Done { topic, partition, mut waiters, created, result } = done;
        let partition = PartitionIndex::new(partition.cast_signed()).unwrap_or_default();
        if let Some(handler) = &self.on_delivery
            && waiters.iter().any(|waiter| matches!(waiter, Waiter::Tag(_)))
        {
            let result = result.as_ref().map(|written| written.base_offset);
            let batch = DeliveredBatch { topic: &topic, partition, begun: created, result, waiters: &waiters };
            guarded("on_delivery", || handler(&batch));
        }
        for (index, waiter) in (0..).zip(waiters.drain(..)) {
            let (timestamp, told): (_, Told) = match waiter {
                Waiter::Tag(_) if self.interceptors.is_empty() => continue,
                Waiter::Tag(_) => (-1, Told::Nobody),
                Waiter::Callback(timestamp, callback) => (timestamp, Told::Callback(callback)),
                Waiter::Future(timestamp, sender) => (timestamp, Told::Future(sender)),
            };
            let outcome = match &result {
                Ok(Written { base_offset, append_time }) => Ok(RecordMetadata {
                    topic: topic.clone(),
                    partition,
                    offset: base_offset.map(|base| base.plus(index)),
                    timestamp: append_time.unwrap_or(timestamp),
                }),
                Err(error) => Err(error.clone()),
            };
            for interceptor in &self.interceptors {
                guarded("an interceptor", || interceptor.on_acknowledgement(outcome.as_ref()));
            }
            match told {
                Told::Nobody => {}
                Told::Callback(callback) => guarded("a callback", || callback(outcome)),
                // Nobody waits any more: then nobody needs to know.
                Told::Future(sender) => _ = sender.send(outcome),
            }
        }
        waiters
    }
}

enum Told {
    Nobody,
    Callback(Box<dyn FnOnce(Result<RecordMetadata, ProduceError>) + Send>),
    Future(oneshot::Sender<Result<RecordMetadata, ProduceError>>),
}

/// A panic in code of the program must not end the thread that others' records depend on.
fn guarded(what: &'static str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        error!(what, "code of the program panicked while a producer told it of deliveries");
    }
}
