//! Counters and latencies of one shard.
//!
//! Pure: no I/O, no clock. Owns the numbers, not their names in any exposition format: the control plane reads
//! them and writes the text. Counters are relaxed atomics with exactly one writer, the shard they belong to, so that any
//! thread may read them at any time, even of a shard that hangs. Latencies are plain histograms that only the shard
//! touches; the control plane asks the shard for a copy.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

/// A number that only rises. One writer, any readers.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. A load and a store instead of a locked add: only the owning shard writes.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The number now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// API keys below this have a request counter of their own; the highest key of Kafka 4.4 is 94.
pub const API_KEYS: usize = 96;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one shard. Built by the control plane, written by the shard, read by both.
        #[derive(Debug)]
        pub struct ShardMetrics {
            /// Requests dispatched, by API key.
            pub requests: [Counter; API_KEYS],
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Default for ShardMetrics {
            fn default() -> Self {
                Self { requests: std::array::from_fn(|_| Counter::default()), $($name: Counter::default(),)* }
            }
        }

        impl ShardMetrics {
            /// Every counter but `requests`, by its field name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.value()),)*]
            }
        }
    };
}

counters! {
    /// Connections this shard took over.
    connections_opened,
    /// Connections that ended here, for any reason.
    connections_closed,
    /// Sockets closed right after accept: too many from one address. Counted on the dealing shard.
    connections_refused,
    /// Connections closed because nothing arrived for `connections.max.idle.ms`.
    connections_idle_closed,
    /// Connections the peer reset, or that were cut because it took no answers.
    connections_lost,
    /// Connections whose task panicked; only that connection ended.
    connections_panicked,
    /// Frames whose length was negative, below a header or above `socket.request.max.bytes`.
    faults_frame_length,
    /// Connections closed by the peer in the middle of a frame.
    faults_frame_truncated,
    /// Unfinished frames cut so that others could have their memory.
    faults_frame_stalled,
    /// Request headers that did not parse.
    faults_header,
    /// Unknown API keys and versions outside the served range.
    faults_unserved,
    /// Request bodies that did not parse.
    faults_body,
    /// Produced batches refused for what is in them (checksum, size, counts, timestamps).
    faults_batch,
    /// Bytes of batches appended.
    produce_bytes,
    /// Batches appended.
    produce_batches,
    /// Records appended, as the batch headers count them.
    produce_records,
    /// Partitions of produce requests that answered an error.
    produce_errors,
    /// Batch bytes copied in user space between socket and log: re-encoding only. The log counts its own copies.
    produce_copied_bytes,
    /// Bytes of batches sent to consumers.
    fetch_bytes,
    /// Partitions of fetch requests that answered an error.
    fetch_errors,
    /// Fetched bytes copied in user space: what was read from disk here for a connection of another shard.
    fetch_copied_bytes,
    /// Fetches that had to wait for data.
    fetch_long_polls,
    /// Waiting fetches given up because their client had gone.
    fetch_long_polls_cancelled,
    /// Messages sent to other shards.
    hop_calls,
    /// Bytes of admitted requests, all time.
    request_bytes,
    /// Bytes read by recovery when logs were opened.
    recovery_scanned_bytes,
    /// Bytes cut from log tails by recovery.
    recovery_truncated_bytes,
}

impl ShardMetrics {
    /// Counts a request of API `key`.
    pub fn count_request(&self, key: i16) {
        if let Some(counter) = usize::try_from(key).ok().and_then(|index| self.requests.get(index)) {
            counter.increment();
        }
    }

    /// Connections open on this shard now.
    pub fn connections_open(&self) -> u64 {
        self.connections_opened.value().saturating_sub(self.connections_closed.value())
    }
}

/// Request latencies by API, microseconds from the whole request read to its answer queued.
#[derive(Default)]
pub struct Latencies {
    by_key: RefCell<BTreeMap<i16, Histogram<u64>>>,
}

/// Two significant digits keep a histogram at about 10 KiB; one minute is the longest told apart.
const LATENCY_DIGITS: u8 = 2;
const LATENCY_MAX_US: u64 = 60_000_000;

impl Latencies {
    /// Records one request of API `key`.
    pub fn record(&self, key: i16, micros: u64) {
        self.by_key
            .borrow_mut()
            .entry(key)
            .or_insert_with(|| {
                Histogram::new_with_bounds(1, LATENCY_MAX_US, LATENCY_DIGITS)
                    .expect("the bounds are constants in range")
            })
            .saturating_record(micros.max(1));
    }

    /// A copy of all histograms.
    pub fn snapshot(&self) -> Vec<(i16, Histogram<u64>)> {
        self.by_key.borrow().iter().map(|(key, histogram)| (*key, histogram.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_unknown_keys_are_not_counted_and_do_not_panic() {
        let metrics = ShardMetrics::default();
        metrics.count_request(0);
        metrics.count_request(-1);
        metrics.count_request(i16::MAX);
        assert_eq!(metrics.requests.iter().map(Counter::value).sum::<u64>(), 1);
    }

    #[test]
    fn latencies_beyond_a_minute_are_kept_at_the_bound() {
        let latencies = Latencies::default();
        latencies.record(1, u64::MAX);
        latencies.record(1, 0);
        let snapshot = latencies.snapshot();
        assert_eq!(snapshot[0].1.len(), 2);
        assert!(snapshot[0].1.max() >= LATENCY_MAX_US);
    }
}
