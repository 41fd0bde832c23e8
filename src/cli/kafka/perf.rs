//! What the performance tools share: statistics in Kafka's words, its way of writing moments, and pacing.
//!
//! Pure. Owns the lines of `kafka-producer-perf-test`, percentiles as it computes them, and Java's date patterns. Always: a megabyte is
//! 2^20 bytes. Source: Kafka 4.4's ProducerPerformance and ConsumerPerformance, asked.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Latencies that are kept; of more, every so-manieth.
const SAMPLES_MAX: u64 = 500_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Counts of a window of time.
#[derive(Clone, Debug, Default)]
struct Window {
    count: u64,
    bytes: u64,
    latency_sum_ms: u64,
    latency_max_ms: u64,
    begun_ms: u64,
}

/// Counts and latencies of records, in milliseconds since the start of the test.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    all: Window,
    window: Window,
    samples: Vec<u32>,
    /// One in so many records is sampled.
    sampling: u64,
    interval_ms: u64,
    steady: bool,
}

impl Stats {
    pub(super) fn new(records: u64, interval_ms: u64, steady: bool, now_ms: u64) -> Self {
        let window = Window { begun_ms: now_ms, ..Window::default() };
        Self {
            all: window.clone(),
            window,
            samples: Vec::new(),
            sampling: (records / records.clamp(1, SAMPLES_MAX)).max(1),
            interval_ms,
            steady,
        }
    }

    /// A record of that size was acknowledged so long after it was sent; perhaps a line is due.
    pub(super) fn record(&mut self, latency_ms: u64, bytes: u64, now_ms: u64) -> Option<String> {
        for window in [&mut self.all, &mut self.window] {
            window.count += 1;
            window.bytes += bytes;
            window.latency_sum_ms += latency_ms;
            window.latency_max_ms = window.latency_max_ms.max(latency_ms);
        }
        if self.all.count.is_multiple_of(self.sampling) {
            self.samples.push(u32::try_from(latency_ms).unwrap_or(u32::MAX));
        }
        let elapsed = now_ms.saturating_sub(self.window.begun_ms);
        if elapsed < self.interval_ms {
            return None;
        }
        let mut line = window_line(&self.window, elapsed);
        if self.steady && self.window.count == self.all.count {
            line.insert_str(0, "In steady state.\n");
        }
        self.window = Window { begun_ms: now_ms, ..Window::default() };
        Some(line)
    }

    /// The closing line.
    pub(super) fn total(&mut self, now_ms: u64) -> String {
        let elapsed = now_ms.saturating_sub(self.all.begun_ms).max(1) as f64;
        let rate = 1000.0 * self.all.count as f64 / elapsed;
        let mb = 1000.0 * self.all.bytes as f64 / elapsed / MIB;
        self.samples.sort_unstable();
        let [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(|share| percentile(&self.samples, share));
        format!(
            "{}{} records sent, {rate:.6} records/sec ({mb:.2} MB/sec), {:.2} ms avg latency, {:.2} ms max latency, {p50} ms 50th, {p95} ms \
             95th, {p99} ms 99th, {p999} ms 99.9th.",
            self.all.count,
            if self.steady { " steady state" } else { "" },
            self.all.latency_sum_ms as f64 / self.all.count.max(1) as f64,
            self.all.latency_max_ms as f64,
        )
    }
}

fn window_line(window: &Window, elapsed_ms: u64) -> String {
    let elapsed = elapsed_ms.max(1) as f64;
    format!(
        "{} records sent, {:.1} records/sec ({:.2} MB/sec), {:.1} ms avg latency, {:.1} ms max latency.",
        window.count,
        1000.0 * window.count as f64 / elapsed,
        1000.0 * window.bytes as f64 / elapsed / MIB,
        window.latency_sum_ms as f64 / window.count.max(1) as f64,
        window.latency_max_ms as f64,
    )
}

/// Of sorted values: the one at that share of their number, as the tools count.
pub(super) fn percentile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at).or(sorted.last()).copied().unwrap_or_default()
}

/// A pattern of Java's SimpleDateFormat.
#[derive(Clone, Debug)]
pub(super) struct DateFormat {
    /// Letters with how often they stand, and text between.
    parts: Vec<DatePart>,
}

#[derive(Clone, Debug)]
enum DatePart {
    Text(String),
    Field(char, usize),
}

impl DateFormat {
    /// Errors: a letter that means nothing, in Java's words.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let mut parts: Vec<DatePart> = Vec::new();
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' => {
                    let mut text = String::new();
                    loop {
                        match letters.next() {
                            Some('\'') if letters.next_if_eq(&'\'').is_some() => text.push('\''),
                            Some('\'') => break,
                            Some(letter) => text.push(letter),
                            None => return Err("Unterminated quote".to_owned()),
                        }
                    }
                    parts.push(DatePart::Text(if text.is_empty() { "'".to_owned() } else { text }));
                }
                'y' | 'M' | 'd' | 'H' | 'h' | 'm' | 's' | 'S' | 'a' | 'E' | 'Z' | 'X' | 'D' => {
                    let mut count = 1;
                    while letters.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    parts.push(DatePart::Field(letter, count));
                }
                letter if letter.is_ascii_alphabetic() => {
                    return Err(format!("Illegal pattern character '{letter}'"));
                }
                letter => parts.push(DatePart::Text(letter.to_string())),
            }
        }
        Ok(Self { parts })
    }

    /// The moment, milliseconds since 1970.
    pub(super) fn format(&self, ms: i64, zone: &TimeZone) -> String {
        let Ok(moment) = Timestamp::from_millisecond(ms) else { return ms.to_string() };
        let moment = moment.to_zoned_datetime(zone.clone());
        let mut text = String::new();
        for part in &self.parts {
            match part {
                DatePart::Text(plain) => text.push_str(plain),
                DatePart::Field(letter, count) => {
                    let width = *count;
                    let number = |value: i64| format!("{value:0width$}");
                    let shown = match letter {
                        'y' if width == 2 => moment.strftime("%y").to_string(),
                        'y' => number(i64::from(moment.year())),
                        'M' if width == 3 => moment.strftime("%b").to_string(),
                        'M' if width > 3 => moment.strftime("%B").to_string(),
                        'M' => number(i64::from(moment.month())),
                        'd' => number(i64::from(moment.day())),
                        'D' => number(i64::from(moment.day_of_year())),
                        'H' => number(i64::from(moment.hour())),
                        'h' => number(i64::from((moment.hour() + 11) % 12 + 1)),
                        'm' => number(i64::from(moment.minute())),
                        's' => number(i64::from(moment.second())),
                        'S' => number(i64::from(moment.millisecond())),
                        'a' => moment.strftime("%p").to_string(),
                        'E' if width > 3 => moment.strftime("%A").to_string(),
                        'E' => moment.strftime("%a").to_string(),
                        'X' => moment.strftime("%:z").to_string(),
                        _ => moment.strftime("%z").to_string(),
                    };
                    text.push_str(&shown);
                }
            }
        }
        text
    }
}

/// How long to wait before the `sent`-th record, when so many a second are wanted and so much time is over.
pub(super) fn pace(sent: u64, per_second: f64, elapsed: std::time::Duration) -> Option<std::time::Duration> {
    if per_second <= 0.0 || !per_second.is_finite() {
        return None;
    }
    let due = std::time::Duration::try_from_secs_f64(sent as f64 / per_second).ok()?;
    due.checked_sub(elapsed).filter(|wait| *wait >= std::time::Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_are_those_that_scripts_read() {
        let mut stats = Stats::new(1000, 500, false, 0);
        let mut lines = Vec::new();
        for index in 0..1000_u64 {
            lines.extend(stats.record(4, 100, index));
        }
        assert_eq!(
            lines,
            ["501 records sent, 1002.0 records/sec (0.10 MB/sec), 4.0 ms avg latency, 4.0 ms max latency."]
        );
        assert_eq!(
            stats.total(1000),
            "1000 records sent, 1000.000000 records/sec (0.10 MB/sec), 4.00 ms avg latency, 4.00 ms max latency, 4 ms 50th, 4 ms 95th, \
             4 ms 99th, 4 ms 99.9th."
        );
        assert!(Stats::new(10, 1, true, 0).total(1).starts_with("0 steady state records sent, 0.000000 records/sec"));
    }

    #[test]
    fn percentiles_are_the_value_at_their_share() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 0.999].map(|share| percentile(&sorted, share)), [51, 100, 100]);
        assert_eq!(percentile::<u32>(&[], 0.5), 0);
    }

    #[test]
    fn javas_patterns_are_written_out() {
        let format = |pattern: &str| DateFormat::parse(pattern).unwrap().format(1_767_261_609_045, &TimeZone::UTC);
        assert_eq!(format("yyyy-MM-dd HH:mm:ss:SSS"), "2026-01-01 10:00:09:045");
        assert_eq!(format("yy 'at' hh a"), "26 at 10 AM");
        assert_eq!(DateFormat::parse("foo").unwrap_err(), "Illegal pattern character 'f'");
    }

    #[test]
    fn pacing_waits_until_a_record_is_due() {
        assert_eq!(pace(100, 1000.0, Duration::from_millis(60)), Some(Duration::from_millis(40)));
        assert_eq!(pace(100, 1000.0, Duration::from_millis(160)), None);
        assert_eq!(pace(100, -1.0, Duration::ZERO), None);
    }
}
