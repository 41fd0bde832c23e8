//! Points in time as people write them on a command line.
//!
//! Pure: now and the time zone are parameters. Owns the notations of a moment (milliseconds, seconds, dates, times of day, so
//! long ago) and of a duration. Always: what comes out is milliseconds since 1970, the clock of record timestamps. Source: the
//! offsets of rpk's `consume`; ISO 8601; Kafka's `--to-datetime` and `--by-duration`.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::bench::units;
use crate::types::TimestampMs;

/// Numbers from here on are milliseconds: as seconds they lie beyond the year 5138.
const SECONDS_END: i64 = 100_000_000_000;

/// Reads a moment: `now`, `end` (now), `-1h` (so long ago), `1767225600000` (ms), `1767225600` (s), `2026-01-01`,
/// `2026-01-01T10:00[:00[.000]][Z]`. Without an offset it is in `zone`. The error says what is accepted.
pub(super) fn parse_moment(text: &str, now: TimestampMs, zone: &TimeZone) -> Result<TimestampMs, String> {
    let text = text.trim();
    if text == "now" || text == "end" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-') {
        return parse_duration(ago).map(|ms| now.saturating_sub(ms)).ok_or_else(|| not_a_moment(text));
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(if number < SECONDS_END { number * 1000 } else { number });
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.as_millisecond());
    }
    // A bare date parses as a time of day too: it is its midnight.
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    let civil = civil.map_err(|_| not_a_moment(text))?;
    let zoned = civil.to_zoned_datetime(zone.clone()).map_err(|_| not_a_moment(text))?;
    Ok(zoned.timestamp().as_millisecond())
}

fn not_a_moment(text: &str) -> String {
    format!(
        "{text:?} is no point in time: write 2026-01-31T10:00, 2026-01-31, milliseconds since 1970, or -1h for an hour ago"
    )
}

/// Reads a duration in milliseconds: `500ms`, `10s`, `5m`, `1h30m`, `2d`, `PT1H30M`, `P1DT2H`. A day has 24 hours.
pub(super) fn parse_duration(text: &str) -> Option<i64> {
    units::parse_span(text).and_then(|span| i64::try_from(span.as_millis()).ok())
}

/// `2026-01-31T10:00:00.000Z`
pub(super) fn rfc3339(ms: TimestampMs) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => format!("{moment:.3}"),
        // Timestamps are data of clients: some are no moments of our calendar.
        Err(_) => ms.to_string(),
    }
}

/// The moment in the words of `strftime`.
pub(super) fn strftime(ms: TimestampMs, pattern: &str, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned_datetime(zone.clone()).strftime(pattern).to_string(),
        Err(_) => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = 1_796_006_556_012;

    fn moment(text: &str) -> Result<TimestampMs, String> {
        parse_moment(text, NOW, &TimeZone::UTC)
    }

    #[test]
    fn moments_are_read_in_every_notation() {
        assert_eq!(moment("now"), Ok(NOW));
        assert_eq!(moment("-1h"), Ok(NOW - 3_600_000));
        assert_eq!(moment("-1h30m"), Ok(NOW - 5_400_000));
        assert_eq!(moment("1767225600000"), Ok(1_767_225_600_000));
        assert_eq!(moment("1767225600"), Ok(1_767_225_600_000));
        assert_eq!(moment("2026-01-01"), Ok(1_767_225_600_000));
        assert_eq!(moment("2026-01-01T00:00"), Ok(1_767_225_600_000));
        assert_eq!(moment("2026-01-01T00:00:00.250"), Ok(1_767_225_600_250));
        assert_eq!(moment("2026-01-01T01:00:00+01:00"), Ok(1_767_225_600_000));
        let berlin = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(parse_moment("2026-01-01T01:00", NOW, &berlin), Ok(1_767_225_600_000));
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_would_be_one() {
        for text in ["", "yesterday", "2026-13-01", "-", "-x", "10:00"] {
            assert!(moment(text).is_err_and(|why| why.contains("2026-01-31T10:00")), "{text}");
        }
    }

    #[test]
    fn durations_are_read_in_both_notations() {
        assert_eq!(parse_duration("500ms"), Some(500));
        assert_eq!(parse_duration("2d"), Some(172_800_000));
        assert_eq!(parse_duration("PT1H30M"), Some(5_400_000));
        assert_eq!(parse_duration("P1DT2H"), Some(93_600_000));
        assert_eq!(parse_duration("1 fortnight"), None);
    }

    #[test]
    fn moments_are_written_and_impossible_ones_stay_numbers() {
        assert_eq!(rfc3339(1_767_225_600_250), "2026-01-01T00:00:00.250Z");
        assert_eq!(rfc3339(i64::MAX), "9223372036854775807");
        assert_eq!(strftime(1_767_225_600_250, "%F %T", &TimeZone::UTC), "2026-01-01 00:00:00");
    }
}
