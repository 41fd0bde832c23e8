//! What a producer did: counted by the driver, read by anybody.
//!
//! Shell. Owns the counters. Always: they only rise, but for gauges, which say so. Source: Kafka's producer metrics, for which
//! questions are asked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::client::sender::Counts;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Written by the driver alone.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        /// What a producer did since it was made.
        #[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
        pub struct ProducerMetrics {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes of `buffer.memory` in use now.
            pub buffer_used_bytes: u64,
            /// Mean size of batches on the wire, by `batch.size`; above 1 where single records are larger. 0 before the first.
            pub batch_fill: f64,
            /// Share of batches that were sent because their linger was over, rather than full. 0 before the first.
            pub lingered_share: f64,
        }

        impl Counters {
            pub(super) fn snapshot(&self, buffer_used_bytes: u64, batch_bytes: u64) -> ProducerMetrics {
                let counted = ProducerMetrics {
                    buffer_used_bytes,
                    $($name: self.$name.load(Relaxed),)*
                    ..ProducerMetrics::default()
                };
                counted.with_shares(batch_bytes)
            }
        }
    };
}

counters! {
    /// Records acknowledged.
    records_acked,
    /// Records that failed after they were taken.
    records_failed,
    /// Batches put into requests, retries included.
    batches,
    /// Their bytes on the wire.
    batch_wire_bytes,
    /// Their bytes before compression.
    batch_raw_bytes,
    /// Produce requests.
    requests,
    /// Requests without an answer now. A gauge.
    requests_in_flight,
    /// Batches sent again.
    retries,
    /// Batches split because they were too large.
    splits,
    /// Batches sent because they were full.
    batches_full,
    /// Batches sent because their linger was over, or a flush asked.
    batches_lingered,
    /// Batches sent early, because something else went to the same broker.
    batches_early,
    /// Epochs begun because of gaps in sequences.
    sequence_restarts,
    /// Milliseconds brokers asked to wait for, in sum.
    throttle_ms,
}

impl ProducerMetrics {
    fn with_shares(mut self, batch_bytes: u64) -> Self {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let first_sends = self.batches_full + self.batches_lingered + self.batches_early;
        self.batch_fill = share(self.batch_wire_bytes, self.batches * batch_bytes.max(1));
        self.lingered_share = share(self.batches_lingered, first_sends);
        self
    }
}

impl Counters {
    pub(super) fn add(&self, counter: impl FnOnce(&Self) -> &AtomicU64, count: u64) {
        counter(self).fetch_add(count, Relaxed);
    }

    /// Takes over what the sender counts, and how many requests are in flight.
    pub(super) fn take_over(&self, counts: Counts, in_flight: usize) {
        let Counts { retries, splits, full, lingered, early, restarts } = counts;
        for (counter, count) in [
            (&self.retries, retries),
            (&self.splits, splits),
            (&self.batches_full, full),
            (&self.batches_lingered, lingered),
            (&self.batches_early, early),
            (&self.sequence_restarts, restarts),
            (&self.requests_in_flight, in_flight as u64),
        ] {
            counter.store(count, Relaxed);
        }
    }
}
