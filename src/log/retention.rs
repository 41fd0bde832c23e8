//! Which segments may go.
//!
//! Pure: a plan only; the shell deletes. Always: only a run of the oldest segments goes, never one that holds an offset at or
//! above the high watermark, and an empty active segment stays. Source: Kafka's `UnifiedLog.deleteOldSegments` (size, then
//! time, then log start).

use std::time::Duration;

use crate::types::{Offset, TimestampMs};

/// What the plan needs to know of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentFacts {
    /// incl.
    pub base_offset: Offset,
    /// excl.: base of the next segment, or the log end
    pub end_offset: Offset,
    /// logical size
    pub bytes: u64,
    /// largest record timestamp; the time of the last append when its records carry none
    pub newest: TimestampMs,
}

/// The rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `retention.ms`
    pub age_max: Option<Duration>,
    /// `retention.bytes`
    pub bytes_max: Option<u64>,
    /// what clients may no longer read
    pub log_start: Offset,
    /// nothing at or above it goes
    pub high_watermark: Offset,
    /// the broker's clock
    pub now: TimestampMs,
}

/// How many of the oldest segments go. `segments` are all of the log's, oldest first, the active one last; when all go, the
/// active one is rolled first.
pub fn plan_deletion(segments: &[SegmentFacts], rules: Rules) -> usize {
    let mut surplus = rules.bytes_max.map(|bytes_max| {
        let total: u64 = segments.iter().map(|segment| segment.bytes).sum();
        total.saturating_sub(bytes_max)
    });
    let age_max = rules.age_max.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let mut count = 0;
    for segment in segments {
        let empty = segment.base_offset == segment.end_offset;
        if empty || segment.end_offset > rules.high_watermark {
            break;
        }
        let below_start = segment.end_offset <= rules.log_start && count + 1 < segments.len();
        let too_old = age_max.is_some_and(|age| rules.now.saturating_sub(segment.newest) > age);
        let too_much = surplus.is_some_and(|surplus| surplus > 0 && surplus >= segment.bytes);
        if !(below_start || too_old || too_much) {
            break;
        }
        surplus = surplus.map(|surplus| surplus.saturating_sub(segment.bytes));
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(value: i64) -> Offset {
        Offset::new(value).unwrap()
    }

    /// Four segments of ten offsets and 100 bytes, newest timestamps 1000, 2000, 3000, 4000.
    fn four() -> Vec<SegmentFacts> {
        (0..4)
            .map(|n| SegmentFacts {
                base_offset: offset(n * 10),
                end_offset: offset(n * 10 + 10),
                bytes: 100,
                newest: (n + 1) * 1000,
            })
            .collect()
    }

    fn rules() -> Rules {
        Rules { age_max: None, bytes_max: None, log_start: offset(0), high_watermark: offset(40), now: 5000 }
    }

    #[test]
    fn without_rules_nothing_goes() {
        assert_eq!(plan_deletion(&four(), rules()), 0);
        assert_eq!(plan_deletion(&[], rules()), 0);
    }

    #[test]
    fn size_takes_whole_segments_only() {
        let count = |bytes| plan_deletion(&four(), Rules { bytes_max: Some(bytes), ..rules() });
        assert_eq!([count(400), count(301), count(300), count(101), count(100), count(0)], [0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn age_counts_from_the_newest_record() {
        let count = |age| plan_deletion(&four(), Rules { age_max: Some(Duration::from_millis(age)), ..rules() });
        assert_eq!([count(4000), count(3999), count(1500), count(999)], [0, 1, 3, 4]);
    }

    #[test]
    fn a_young_segment_protects_the_older_ones_behind_it() {
        let mut segments = four();
        segments[1].newest = 9000;
        assert_eq!(plan_deletion(&segments, Rules { age_max: Some(Duration::from_millis(1)), ..rules() }), 1);
    }

    #[test]
    fn nothing_at_or_above_the_high_watermark_goes() {
        let young = Rules { age_max: Some(Duration::ZERO), ..rules() };
        assert_eq!(plan_deletion(&four(), Rules { high_watermark: offset(39), ..young }), 3);
        assert_eq!(plan_deletion(&four(), Rules { high_watermark: offset(10), ..young }), 1);
        assert_eq!(plan_deletion(&four(), Rules { high_watermark: offset(0), ..young }), 0);
    }

    #[test]
    fn log_start_takes_what_lies_wholly_below_it_but_never_the_active_segment() {
        let count = |start| plan_deletion(&four(), Rules { log_start: offset(start), ..rules() });
        assert_eq!([count(9), count(10), count(25), count(40)], [0, 1, 2, 3]);
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let mut segments = four();
        segments.push(SegmentFacts { base_offset: offset(40), end_offset: offset(40), bytes: 0, newest: 0 });
        assert_eq!(plan_deletion(&segments, Rules { age_max: Some(Duration::ZERO), ..rules() }), 4);
    }
}
