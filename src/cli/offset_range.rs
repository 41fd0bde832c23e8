//! Where reading begins and ends, as written after `consume -o`.
//!
//! Pure. Owns the notation. Does not own how moments become offsets: the broker is asked. Always: a range's end is exclusive.
//! Source: kcat's `-o`, rpk's `--offset`.

use jiff::tz::TimeZone;

use super::moments::parse_moment;
use crate::types::TimestampMs;

/// From where to where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OffsetRange {
    pub(super) from: Begin,
    pub(super) to: Until,
}

/// Where reading begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begin {
    /// The log start.
    Start,
    /// The end: only what comes from now on.
    End,
    /// Where the group stopped.
    Stored,
    /// That offset.
    At(i64),
    /// So many records after the start.
    AfterStart(i64),
    /// So many records before the end.
    BeforeEnd(i64),
    /// The first record as late as that.
    Time(TimestampMs),
}

/// Where reading ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// Never.
    Open,
    /// The end as it is at the beginning.
    End,
    /// Before that offset.
    Before(i64),
    /// Before the first record as late as that.
    Time(TimestampMs),
}

/// For help and errors.
const NOTATIONS: &str = "start, end, stored, 42 (an offset), -42 (so many before the end), +42 (so many after the start), \
                         10:20, :20, 10:end, @MOMENT, @MOMENT:MOMENT, @-1h:end";

/// Reads the text after `-o`.
pub(super) fn parse(text: &str, now: TimestampMs, zone: &TimeZone) -> Result<OffsetRange, String> {
    let open = |from| Ok(OffsetRange { from, to: Until::Open });
    let moment = |text: &str| parse_moment(text, now, zone);
    match text {
        "start" | "beginning" | "earliest" | "oldest" => return open(Begin::Start),
        "end" | "latest" | "newest" => return open(Begin::End),
        "stored" => return open(Begin::Stored),
        _ => {}
    }
    if let Some(times) = text.strip_prefix('@') {
        return time_range(times, &moment);
    }
    // kcat's s@ and e@.
    if let Some(start) = text.strip_prefix("s@") {
        return Ok(OffsetRange { from: Begin::Time(moment(start)?), to: Until::Open });
    }
    if let Some(end) = text.strip_prefix("e@") {
        return Ok(OffsetRange { from: Begin::Start, to: Until::Time(moment(end)?) });
    }
    let wrong = || format!("{text:?} is no offset: write {NOTATIONS}");
    let number = |text: &str| text.parse::<i64>().ok().filter(|offset| *offset >= 0).ok_or_else(wrong);
    if let Some((from, to)) = text.split_once(':') {
        let from = match from {
            "" | "start" => Begin::Start,
            from => Begin::At(number(from)?),
        };
        let to = match to {
            "" => Until::Open,
            "end" => Until::End,
            to => Until::Before(number(to)?),
        };
        if let (Begin::At(from), Until::Before(to)) = (from, to)
            && to < from
        {
            return Err(format!("{text:?} ends before it begins"));
        }
        return Ok(OffsetRange { from, to });
    }
    if let Some(count) = text.strip_prefix('-') {
        return open(Begin::BeforeEnd(number(count)?));
    }
    if let Some(count) = text.strip_prefix('+') {
        return open(Begin::AfterStart(number(count)?));
    }
    open(Begin::At(number(text)?))
}

/// Colons stand within moments too: the whole is tried first, then each colon as the one between.
fn time_range(text: &str, moment: &impl Fn(&str) -> Result<TimestampMs, String>) -> Result<OffsetRange, String> {
    let why = match moment(text) {
        Ok(from) => return Ok(OffsetRange { from: Begin::Time(from), to: Until::Open }),
        Err(why) => why,
    };
    for (at, _) in text.match_indices(':') {
        let (from, to) = (&text[..at], &text[at + 1..]);
        let from = if from.is_empty() { Ok(Begin::Start) } else { moment(from).map(Begin::Time) };
        let to = match to {
            "" => Ok(Until::Open),
            "end" => Ok(Until::End),
            to => moment(to).map(Until::Time),
        };
        if let (Ok(from), Ok(to)) = (from, to) {
            if let (Begin::Time(from), Until::Time(to)) = (from, to)
                && to < from
            {
                return Err(format!("@{text} ends before it begins"));
            }
            return Ok(OffsetRange { from, to });
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = 1_796_006_556_012;

    fn read(text: &str) -> Result<OffsetRange, String> {
        parse(text, NOW, &TimeZone::UTC)
    }

    #[test]
    fn offsets_and_ranges_are_read() {
        for (text, from, to) in [
            ("start", Begin::Start, Until::Open),
            ("beginning", Begin::Start, Until::Open),
            ("end", Begin::End, Until::Open),
            ("stored", Begin::Stored, Until::Open),
            ("42", Begin::At(42), Until::Open),
            ("-5", Begin::BeforeEnd(5), Until::Open),
            ("+5", Begin::AfterStart(5), Until::Open),
            ("10:20", Begin::At(10), Until::Before(20)),
            (":20", Begin::Start, Until::Before(20)),
            ("10:", Begin::At(10), Until::Open),
            ("10:end", Begin::At(10), Until::End),
            (":end", Begin::Start, Until::End),
        ] {
            assert_eq!(read(text), Ok(OffsetRange { from, to }), "{text}");
        }
    }

    #[test]
    fn moments_and_ranges_of_moments_are_read() {
        let (ten, eleven) = (1_767_261_600_000, 1_767_265_200_000);
        for (text, from, to) in [
            ("@1767261600000", Begin::Time(ten), Until::Open),
            ("@2026-01-01T10:00", Begin::Time(ten), Until::Open),
            ("@2026-01-01T10:00:2026-01-01T11:00", Begin::Time(ten), Until::Time(eleven)),
            ("@2026-01-01T10:00:00Z:end", Begin::Time(ten), Until::End),
            ("@1767261600000:1767265200000", Begin::Time(ten), Until::Time(eleven)),
            ("@-1h:end", Begin::Time(NOW - 3_600_000), Until::End),
            ("@-1h", Begin::Time(NOW - 3_600_000), Until::Open),
            ("@-2h:-1h", Begin::Time(NOW - 7_200_000), Until::Time(NOW - 3_600_000)),
            ("@:-1h", Begin::Start, Until::Time(NOW - 3_600_000)),
            ("s@1767261600000", Begin::Time(ten), Until::Open),
            ("e@1767261600000", Begin::Start, Until::Time(ten)),
        ] {
            assert_eq!(read(text), Ok(OffsetRange { from, to }), "{text}");
        }
    }

    #[test]
    fn wrong_offsets_are_refused() {
        for text in ["", "x", "--5", "1:x", "20:10", "@", "@noon", "@-1h:-2h", "1.5"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("x").unwrap_err().contains("-42 (so many before the end)"));
    }
}
