//! What was measured: counts and latencies, second by second, kept so that they can be added and never need averaging.
//!
//! Pure: `now` is a parameter, in microseconds since the run began. Owns the histograms (microseconds, three significant
//! digits) of each generator thread and their sum. Does not own which seconds count: that is [`Collector::totals`]'
//! argument. Always true: percentiles are read from summed histograms; a value lies within 0.1 % of what was recorded.
//! Source: HdrHistogram; performance pitfalls "mean of percentiles" and "closed loop".
//!
//! ```text
//! intended ──publish delay──> handed to the client ──service──> acknowledged          response = delay + service
//!     └─slip─> generator looked at it first (the rest of the delay is a full client buffer)
//! intended ────────────────────end to end─────────────────────> read by a consumer
//! ```

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

use super::report::Percentiles;
use super::schedule::Micros;

/// One hour: what takes longer is recorded as an hour, and is an error of the run by then.
const LATENCY_MAX: u64 = 3_600_000_000;
/// Digits that are exact.
const DIGITS: u8 = 3;
/// The grain of the series.
pub const INTERVAL_US: Micros = 1_000_000;

/// An empty histogram with the bounds all of them share, so that adding cannot fail.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, DIGITS).expect("the bounds are constants that hdrhistogram takes")
}

/// HdrHistogram's V2 compressed form in base64, which its plotting tools read.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to memory does not fail, and the histogram's bounds are small");
    STANDARD.encode(bytes)
}

/// Reads [`encode`]'s text. Errors: a sentence when it is not that.
pub fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|_| "a histogram is not base64".to_owned())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| format!("a histogram cannot be read: {error:?}"))
}

/// The percentiles of a histogram; `None` when nothing was recorded.
pub fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    let at = |quantile| histogram.value_at_quantile(quantile);
    (!histogram.is_empty()).then(|| Percentiles {
        count: histogram.len(),
        min: histogram.min(),
        mean: histogram.mean(),
        stddev: histogram.stdev(),
        p50: at(0.50),
        p75: at(0.75),
        p90: at(0.90),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: histogram.max(),
    })
}

/// The five latencies of a run.
#[derive(Clone)]
pub struct Latencies {
    /// Intended time to the hand-over to the client.
    pub publish_delay: Histogram<u64>,
    /// Hand-over to acknowledgement.
    pub service: Histogram<u64>,
    /// Intended time to acknowledgement: what a user of the schedule feels.
    pub response: Histogram<u64>,
    /// Intended time to a consumer's hands.
    pub end_to_end: Histogram<u64>,
    /// Intended time to the generator's first look: how late the generator itself was.
    pub slip: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let [publish_delay, service, response, end_to_end, slip] = std::array::from_fn(|_| histogram());
        Self { publish_delay, service, response, end_to_end, slip }
    }
}

impl Latencies {
    fn each_mut(&mut self) -> [&mut Histogram<u64>; 5] {
        [&mut self.publish_delay, &mut self.service, &mut self.response, &mut self.end_to_end, &mut self.slip]
    }

    /// Adds another's counts to these.
    pub fn add(&mut self, other: &Self) {
        let others = [&other.publish_delay, &other.service, &other.response, &other.end_to_end, &other.slip];
        for (mine, other) in self.each_mut().into_iter().zip(others) {
            if !other.is_empty() {
                mine.add(other).expect("all histograms have the same bounds");
            }
        }
    }
}

/// Counters of the client, summed over producers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Produce requests.
    pub requests: u64,
    /// Batches in them.
    pub batches: u64,
    /// Records that were answered.
    pub records: u64,
    /// Bytes of batches as sent.
    pub wire_bytes: u64,
    /// The same before compression.
    pub raw_bytes: u64,
    /// Batches that left because linger had passed.
    pub lingered: u64,
    /// Batches that left because they were full.
    pub full: u64,
    /// Batches sent again.
    pub retries: u64,
}

impl BatchCounts {
    /// Adds another's counts to these.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.batches += other.batches;
        self.records += other.records;
        self.wire_bytes += other.wire_bytes;
        self.raw_bytes += other.raw_bytes;
        self.lingered += other.lingered;
        self.full += other.full;
        self.retries += other.retries;
    }
}

/// What happened within one second, or in several of them.
#[derive(Clone, Default)]
pub struct Interval {
    /// Records handed to the client.
    pub sent: u64,
    /// Records acknowledged.
    pub acked: u64,
    /// Bytes of their keys and values.
    pub acked_bytes: u64,
    /// Records that failed for good.
    pub errors: u64,
    /// Records that were due and not handed over when the measured time ended.
    pub unsent: u64,
    /// Records read.
    pub consumed: u64,
    /// Bytes of their keys and values.
    pub consumed_bytes: u64,
    /// Produce requests or fetches answered, where the mode counts them; connections opened by a storm.
    pub requests: u64,
    /// What the client made of the records.
    pub batches: BatchCounts,
    /// How long what ended in it took.
    pub latencies: Latencies,
}

impl Interval {
    /// Adds another's counts to these.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acked += other.acked;
        self.acked_bytes += other.acked_bytes;
        self.errors += other.errors;
        self.unsent += other.unsent;
        self.consumed += other.consumed;
        self.consumed_bytes += other.consumed_bytes;
        self.requests += other.requests;
        self.batches.add(&other.batches);
        self.latencies.add(&other.latencies);
    }

    fn is_empty(&self) -> bool {
        self.sent + self.acked + self.errors + self.unsent + self.consumed + self.requests + self.batches.batches == 0
    }
}

/// What one generator thread saw. Not shared: each thread has its own, and what is finished is sent on.
#[derive(Default)]
pub struct Recorder {
    index: u64,
    /// Where the measured time ends, once that is known.
    end: Option<Micros>,
    interval: Interval,
    finished: Vec<(u64, Interval)>,
}

impl Recorder {
    /// The measured time ends there, maybe within a second: what happens from there on is of the second after.
    pub fn end_at(&mut self, end: Option<Micros>) {
        self.end = end;
    }

    /// Records were handed to the client at `now`. `looked` is when the generator first came to the first of them.
    pub fn on_sent(&mut self, now: Micros, intended: Micros, looked: Micros, records: u64) {
        let interval = self.at(now);
        interval.sent += records;
        let latencies = &mut interval.latencies;
        latencies.publish_delay.saturating_record_n(now.saturating_sub(intended), records);
        latencies.slip.saturating_record_n(looked.saturating_sub(intended), records);
    }

    /// Records of `bytes` in all were acknowledged at `now`.
    pub fn on_acked(&mut self, now: Micros, intended: Micros, sent: Micros, records: u64, bytes: u64) {
        let interval = self.at(now);
        interval.acked += records;
        interval.acked_bytes += bytes;
        let latencies = &mut interval.latencies;
        latencies.service.saturating_record_n(now.saturating_sub(sent), records);
        latencies.response.saturating_record_n(now.saturating_sub(intended), records);
    }

    /// Records failed for good, or never got an answer: they count with the age they had, so that a stall that outlasts
    /// the run is not hidden.
    pub fn on_failed(&mut self, now: Micros, intended: Micros, sent: Micros, records: u64) {
        let interval = self.at(now);
        interval.errors += records;
        let latencies = &mut interval.latencies;
        latencies.service.saturating_record_n(now.saturating_sub(sent), records);
        latencies.response.saturating_record_n(now.saturating_sub(intended), records);
    }

    /// Records were due at `intended` and not handed over when the measured time ended at `end`: they count with the age they had
    /// then, as those do that had no answer.
    pub fn on_unsent(&mut self, end: Micros, intended: Micros, records: u64) {
        let interval = self.at(end);
        interval.unsent += records;
        let age = end.saturating_sub(intended);
        interval.latencies.publish_delay.saturating_record_n(age, records);
        interval.latencies.response.saturating_record_n(age, records);
    }

    /// Records came that cannot be read.
    pub fn on_damaged(&mut self, now: Micros, records: u64) {
        self.at(now).errors += records;
    }

    /// The client's counters grew by so much.
    pub fn on_batches(&mut self, now: Micros, counts: &BatchCounts) {
        self.at(now).batches.add(counts);
    }

    /// A request was answered.
    pub fn on_request(&mut self, now: Micros) {
        self.at(now).requests += 1;
    }

    /// Something without records took so long: a connection of a storm, a heartbeat of an idle one.
    pub fn on_answer(&mut self, now: Micros, intended: Micros, began: Micros) {
        let interval = self.at(now);
        interval.requests += 1;
        let latencies = &mut interval.latencies;
        latencies.publish_delay.saturating_record(began.saturating_sub(intended));
        latencies.service.saturating_record(now.saturating_sub(began));
        latencies.response.saturating_record(now.saturating_sub(intended));
    }

    /// A record was read; `age` is its end-to-end latency, where it is known.
    pub fn on_consumed(&mut self, now: Micros, bytes: u64, age: Option<Micros>) {
        let interval = self.at(now);
        interval.consumed += 1;
        interval.consumed_bytes += bytes;
        if let Some(age) = age {
            interval.latencies.end_to_end.saturating_record(age);
        }
    }

    /// What was finished before the second of `now`: to be called now and then, also when nothing happens.
    pub fn take_finished(&mut self, now: Micros) -> Vec<(u64, Interval)> {
        self.at(now);
        std::mem::take(&mut self.finished)
    }

    /// Everything, the second under way included.
    pub fn finish(mut self) -> Vec<(u64, Interval)> {
        if !self.interval.is_empty() {
            self.finished.push((self.index, self.interval));
        }
        self.finished
    }

    fn at(&mut self, now: Micros) -> &mut Interval {
        let past = self.end.filter(|end| now >= *end).map_or(0, |end| end.div_ceil(INTERVAL_US));
        let index = (now / INTERVAL_US).max(past);
        if index > self.index {
            let interval = std::mem::take(&mut self.interval);
            if !interval.is_empty() {
                self.finished.push((self.index, interval));
            }
            self.index = index;
        }
        &mut self.interval
    }
}

/// The sum over threads, by second.
#[derive(Default)]
pub struct Collector {
    seconds: BTreeMap<u64, Interval>,
}

impl Collector {
    /// Takes in what a recorder finished.
    pub fn add(&mut self, index: u64, interval: &Interval) {
        self.seconds.entry(index).or_default().add(interval);
    }

    /// One second's sum, if anything happened in it.
    pub fn second(&self, index: u64) -> Option<&Interval> {
        self.seconds.get(&index)
    }

    /// All seconds in which anything happened.
    pub fn seconds(&self) -> impl Iterator<Item = (u64, &Interval)> {
        self.seconds.iter().map(|(index, interval)| (*index, interval))
    }

    /// The sum of the seconds `from..to`; `drain_to` extends the *latencies* (not the counts) past `to`, so that records
    /// sent within the time and answered after it are not left out: leaving them out is how stalls get lost.
    pub fn totals(&self, from: u64, to: u64, drain_to: u64) -> Interval {
        let mut totals = Interval::default();
        for (_, interval) in self.seconds.range(from..to.max(from)) {
            totals.add(interval);
        }
        for (_, interval) in self.seconds.range(to.max(from)..drain_to.max(to).max(from)) {
            totals.latencies.add(&interval.latencies);
            totals.errors += interval.errors;
            totals.unsent += interval.unsent;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_after_an_end_within_a_second_is_of_the_next_one() {
        let mut recorder = Recorder::default();
        for at in [900_000, 1_400_000] {
            recorder.on_acked(at, at, at, 1, 10);
        }
        recorder.end_at(Some(1_500_000));
        for at in [1_499_999, 1_500_000, 1_900_000, 2_100_000] {
            recorder.on_acked(at, at, at, 1, 10);
        }
        let acked: Vec<(u64, u64)> = recorder.finish().iter().map(|(index, second)| (*index, second.acked)).collect();
        assert_eq!(acked, [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn percentiles_are_right_within_three_digits() {
        let mut histogram = histogram();
        for value in 1..=1_000_000u64 {
            histogram.saturating_record(value);
        }
        let read = percentiles(&histogram).unwrap();
        for (value, truth) in [
            (read.p50, 500_000.0),
            (read.p90, 900_000.0),
            (read.p99, 990_000.0),
            (read.p999, 999_000.0),
            (read.p9999, 999_900.0),
            (read.max, 1_000_000.0),
        ] {
            assert!((value as f64 / truth - 1.0).abs() < 0.001, "{value} for {truth}");
        }
        assert_eq!(read.count, 1_000_000);
        assert!((read.mean / 500_000.5 - 1.0).abs() < 0.001);
    }

    #[test]
    fn merging_threads_adds_counts_and_never_averages() {
        let (mut quick, mut slow) = (Recorder::default(), Recorder::default());
        for _ in 0..990 {
            quick.on_acked(500, 0, 400, 1, 10);
        }
        for _ in 0..10 {
            slow.on_acked(100_500, 0, 400, 1, 10);
        }
        let mut collector = Collector::default();
        for (index, interval) in quick.finish().iter().chain(&slow.finish()) {
            collector.add(*index, interval);
        }
        let totals = collector.totals(0, 1, 1);
        let response = percentiles(&totals.latencies.response).unwrap();
        // The mean of both threads' p99 would say 50 ms; the truth is that 99 % were quick.
        assert_eq!(response.p99, 500);
        assert!(response.p999 >= 100_000);
        assert_eq!((totals.acked, totals.acked_bytes), (1000, 10_000));
    }

    #[test]
    fn each_second_is_kept_apart_and_empty_ones_are_left_out() {
        let mut recorder = Recorder::default();
        recorder.on_sent(100, 50, 60, 1);
        recorder.on_acked(1_200_000, 50, 100, 1, 10);
        recorder.on_acked(5_000_001, 50, 100, 1, 10);
        let finished = recorder.take_finished(5_100_000);
        assert_eq!(finished.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
        let rest = recorder.finish();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].0, rest[0].1.acked), (5, 1));
    }

    #[test]
    fn answers_after_the_end_count_as_latency_but_not_as_throughput() {
        let mut recorder = Recorder::default();
        recorder.on_acked(500_000, 400_000, 400_000, 1, 10);
        recorder.on_acked(3_500_000, 900_000, 900_000, 1, 10);
        let mut collector = Collector::default();
        recorder.finish().iter().for_each(|(index, interval)| collector.add(*index, interval));
        let totals = collector.totals(0, 1, 10);
        assert_eq!(totals.acked, 1);
        assert_eq!(totals.latencies.response.len(), 2);
        assert!(totals.latencies.response.max() >= 2_600_000);
    }

    #[test]
    fn histograms_survive_their_text() {
        let mut histogram = histogram();
        [1, 1000, 123_456, 59_000_000].iter().for_each(|value| histogram.saturating_record(*value));
        let read = decode(&encode(&histogram)).unwrap();
        assert_eq!(percentiles(&read), percentiles(&histogram));
        assert!(decode("no base64!").is_err() && decode("AAAA").is_err());
    }

    #[test]
    fn what_takes_longer_than_an_hour_is_recorded_as_an_hour() {
        let mut recorder = Recorder::default();
        recorder.on_acked(u64::MAX, 0, 0, 1, 1);
        let intervals = recorder.finish();
        assert!(intervals[0].1.latencies.response.max() >= LATENCY_MAX - LATENCY_MAX / 1000);
    }
}
