//! Counters and latencies of one shard, and the stages of a request.
//!
//! Pure: no I/O, no clock. Owns the numbers, not their names in any exposition format: the control plane reads
//! them and writes the text. Counters are relaxed atomics with exactly one writer, the shard they belong to, so that any
//! thread may read them at any time, even of a shard that hangs. Latencies are plain histograms that only the shard
//! touches; the control plane asks the shard for a copy. Always: the stages of a request leave no gap, their sum is its
//! total. Source of the stages: Kafka's `RequestChannel.updateRequestMetrics`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
            /// Requests answered whose stages are in `stage_nanos`, by API key.
            pub requests_staged: [Counter; API_KEYS],
            /// Nanoseconds of all of them, by API key and [`Stage`]. Not microseconds: a stage may take less than one.
            pub stage_nanos: [[Counter; STAGES]; API_KEYS],
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Default for ShardMetrics {
            fn default() -> Self {
                Self {
                    requests: std::array::from_fn(|_| Counter::default()),
                    requests_staged: std::array::from_fn(|_| Counter::default()),
                    stage_nanos: std::array::from_fn(|_| Default::default()),
                    $($name: Counter::default(),)*
                }
            }
        }

        impl ShardMetrics {
            /// Every counter that is not by API, by its field name.
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
    /// Connections that went on to the shard which owns what they write or read: opened there, closed here.
    connections_moved,
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

    /// Counts the stages of an answered request of API `key`.
    pub fn count_stages(&self, key: i16, times: &StageTimes) {
        let Ok(index) = usize::try_from(key) else { return };
        let Some((staged, nanos)) = self.requests_staged.get(index).zip(self.stage_nanos.get(index)) else { return };
        staged.increment();
        for (counter, time) in nanos.iter().zip(times.0) {
            counter.add(time.as_nanos() as u64);
        }
    }

    /// Connections open on this shard now.
    pub fn connections_open(&self) -> u64 {
        self.connections_opened.value().saturating_sub(self.connections_closed.value())
    }
}

/// What a request's time goes into, in Kafka's words. What comes before (waiting for memory, receiving the bytes) is in none, nor is
/// what comes after: answers wait for those before them and leave a turn at a time, so that of one alone it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Wholly read, but its turn has not come: requests of its connection before it are not answered yet.
    RequestQueue,
    /// The shard works for it: it is parsed and checked, or reads. Also whatever is no wait of the next stage.
    Local,
    /// It waits: for its acknowledgement, here or from another shard (its append, of about a microsecond, is counted in), for data,
    /// for the other members of its group.
    Remote,
}

/// How many there are.
pub const STAGES: usize = 3;

impl Stage {
    /// In the order in which a request begins them.
    pub const ALL: [Self; STAGES] = [Self::RequestQueue, Self::Local, Self::Remote];
}

/// A request on its way through the stages.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// When its last byte was there.
    pub read_at: Instant,
    /// When its turn had come.
    pub begun_at: Instant,
    /// How long it has waited since then.
    pub waited: Duration,
}

impl Stages {
    /// How long each stage took of a request answered `now`.
    pub fn ended(self, now: Instant) -> StageTimes {
        let since_begun = now.saturating_duration_since(self.begun_at);
        let remote = self.waited.min(since_begun);
        StageTimes([self.begun_at.saturating_duration_since(self.read_at), since_begun - remote, remote])
    }
}

/// How long an answered request was in each stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageTimes([Duration; STAGES]);

impl StageTimes {
    /// From the whole request read to its answer queued.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

/// The latencies of one API, microseconds.
#[derive(Clone, Debug)]
pub struct ApiLatencies {
    /// From the whole request read to its answer queued.
    pub total: Histogram<u64>,
    /// The parts of it, by [`Stage`].
    pub stages: [Histogram<u64>; STAGES],
}

/// Two significant digits keep a histogram at 20 KiB; one minute is the longest told apart.
const LATENCY_DIGITS: u8 = 2;
/// A stage is told apart by a sixteenth, which keeps its histogram at 3 KiB. The counters have the exact sums.
const STAGE_DIGITS: u8 = 1;
const LATENCY_MAX_US: u64 = 60_000_000;

impl Default for ApiLatencies {
    fn default() -> Self {
        let histogram =
            |digits| Histogram::new_with_bounds(1, LATENCY_MAX_US, digits).expect("the bounds are constants in range");
        Self { total: histogram(LATENCY_DIGITS), stages: std::array::from_fn(|_| histogram(STAGE_DIGITS)) }
    }
}

impl ApiLatencies {
    fn record(&mut self, times: &StageTimes) {
        let micros = |time: Duration| time.as_micros() as u64;
        self.total.saturating_record(micros(times.total()).max(1));
        for (histogram, time) in self.stages.iter_mut().zip(times.0) {
            histogram.saturating_record(micros(time));
        }
    }

    /// Adds those of another shard.
    pub fn add(&mut self, other: &Self) {
        const ONE_RANGE: &str = "all histograms of a kind have one range";
        self.total.add(&other.total).expect(ONE_RANGE);
        for (sum, histogram) in self.stages.iter_mut().zip(&other.stages) {
            sum.add(histogram).expect(ONE_RANGE);
        }
    }
}

/// Request latencies by API.
#[derive(Default)]
pub struct Latencies {
    by_key: RefCell<BTreeMap<i16, ApiLatencies>>,
}

impl Latencies {
    /// Records one answered request of API `key`.
    pub fn record(&self, key: i16, times: &StageTimes) {
        self.by_key.borrow_mut().entry(key).or_default().record(times);
    }

    /// A copy of all histograms.
    pub fn snapshot(&self) -> Vec<(i16, ApiLatencies)> {
        self.by_key.borrow().iter().map(|(key, latencies)| (*key, latencies.clone())).collect()
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

    /// A request whose turn came after `queued`, and that was answered `since` then, having waited for `waited`.
    fn times(queued: Duration, since: Duration, waited: Duration) -> StageTimes {
        let read_at = Instant::now();
        let begun_at = read_at + queued;
        Stages { read_at, begun_at, waited }.ended(begun_at + since)
    }

    #[test]
    fn stages_leave_no_gap() {
        let [queued, since, waited] = [30, 500, 420].map(Duration::from_nanos);
        let times = times(queued, since, waited);
        assert_eq!(times, StageTimes([queued, Duration::from_nanos(80), waited]));
        assert_eq!(times.total(), queued + since);
    }

    #[test]
    fn a_request_waits_no_longer_than_it_takes() {
        let second = Duration::from_secs(1);
        assert_eq!(times(second, second, 2 * second), StageTimes([second, Duration::ZERO, second]));
        // A clock that went back.
        let now = Instant::now();
        let times = Stages { read_at: now, begun_at: now + second, waited: second }.ended(now);
        assert_eq!(times, StageTimes([second, Duration::ZERO, Duration::ZERO]));
    }

    #[test]
    fn stages_are_counted_by_api_to_the_nanosecond() {
        let metrics = ShardMetrics::default();
        let times = times(Duration::from_nanos(1), Duration::from_nanos(5), Duration::from_nanos(3));
        for key in [1, 1, -1, i16::MAX] {
            metrics.count_stages(key, &times);
        }
        assert_eq!(metrics.requests_staged.iter().map(Counter::value).sum::<u64>(), 2);
        assert_eq!(metrics.stage_nanos[1].each_ref().map(Counter::value), [2, 4, 6]);
    }

    #[test]
    fn latencies_beyond_a_minute_are_kept_at_the_bound() {
        let latencies = Latencies::default();
        let long = Duration::from_secs(1 << 40);
        latencies.record(1, &times(Duration::ZERO, long, long));
        latencies.record(1, &times(Duration::ZERO, Duration::ZERO, Duration::ZERO));
        let snapshot = latencies.snapshot();
        let ApiLatencies { total, stages } = &snapshot[0].1;
        assert_eq!(total.len(), 2);
        assert!(total.max() >= LATENCY_MAX_US);
        assert_eq!(stages.each_ref().map(Histogram::len), [2, 2, 2]);
        assert!(stages[2].max() >= LATENCY_MAX_US && stages[0].max() == 0 && stages[1].max() == 0);
    }

    #[test]
    fn latencies_of_two_shards_are_one_sum() {
        let [one, other] = [10, 20].map(|micros| {
            let latencies = Latencies::default();
            latencies.record(0, &times(Duration::from_micros(micros), Duration::ZERO, Duration::ZERO));
            latencies.snapshot().remove(0).1
        });
        let mut sum = one;
        sum.add(&other);
        assert_eq!((sum.total.len(), sum.total.max()), (2, 20));
        assert_eq!((sum.stages[0].len(), sum.stages[0].max()), (2, 20));
    }
}
