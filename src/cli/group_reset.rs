//! Where a reset moves the offsets of a group.
//!
//! Shell: asks where partitions begin and end; the notation and the bounds are pure. Owns the notation of `--to` and `--topic`, and
//! the rule that a new offset lies within its partition. Used by `groups reset` and by kafka-consumer-groups. Source: Kafka's
//! `--reset-offsets`.

use jiff::tz::TimeZone;

use super::moments::parse_moment;
use crate::client::ClientError;
use crate::client::admin::{BlockingAdmin, CommittedOffset, ItemError, ListedOffset, OffsetSpec};
use crate::types::TimestampMs;

/// Where offsets are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the log start.
    Earliest,
    /// To the end.
    Latest,
    /// Where they are; partitions without one go to the end.
    Current,
    /// To that offset.
    Offset(i64),
    /// By so many records.
    Shift(i64),
    /// To the first record as late as that, else to the end.
    Moment(TimestampMs),
}

impl Target {
    /// Reads what stands after `--to`.
    pub(super) fn parse(text: &str, now: TimestampMs, zone: &TimeZone) -> Result<Self, String> {
        if let Some(moment) = text.strip_prefix('@') {
            return parse_moment(moment, now, zone).map(Self::Moment);
        }
        let number = || text.parse::<i64>().ok();
        match text {
            "earliest" | "start" => Ok(Self::Earliest),
            "latest" | "end" => Ok(Self::Latest),
            "current" => Ok(Self::Current),
            _ if text.starts_with(['+', '-']) => number().map(Self::Shift).ok_or_else(|| wrong(text)),
            _ => number().map(Self::Offset).ok_or_else(|| wrong(text)),
        }
    }
}

fn wrong(text: &str) -> String {
    format!("{text:?} is no place: write earliest, latest, current, an offset, +N, -N or @MOMENT")
}

/// A topic, or some of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) topic: String,
    /// Empty: all.
    pub(super) partitions: Vec<i32>,
}

/// Reads `orders` or `orders:0,2`.
pub(super) fn parse_scope(text: &str) -> Result<Scope, String> {
    let Some((topic, partitions)) = text.split_once(':') else {
        return Ok(Scope { topic: text.to_owned(), partitions: Vec::new() });
    };
    let number = |word: &str| {
        let number: Option<i32> = word.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| format!("{word:?} of {text:?} is no partition"))
    };
    Ok(Scope { topic: topic.to_owned(), partitions: partitions.split(',').map(number).collect::<Result<_, _>>()? })
}

/// One offset on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// Where it is; `None`: nothing is committed.
    pub(super) from: Option<i64>,
    /// Where it goes; within the partition.
    pub(super) to: i64,
    /// What was asked for, where that lies outside the partition.
    pub(super) bounded: Option<i64>,
    /// There is no record as late as asked.
    pub(super) too_late: bool,
}

/// Chooses the new offset of each place. Errors: a broker that does not tell where a partition begins or ends, or what is committed.
pub(super) fn plan(
    admin: &BlockingAdmin,
    target: Target,
    places: &[(String, i32)],
    committed: &[CommittedOffset],
) -> Result<Vec<Move>, ClientError> {
    let ask = |spec: OffsetSpec| {
        admin.list_offsets(places.iter().map(|(topic, partition)| (topic.clone(), *partition, spec)).collect(), false)
    };
    let (starts, ends) = (ask(OffsetSpec::Earliest)?, ask(OffsetSpec::Latest)?);
    let by_time = match target {
        Target::Moment(moment) => ask(OffsetSpec::Timestamp(moment))?,
        _ => Vec::new(),
    };
    let mut moves = Vec::new();
    for (topic, partition) in places {
        let start = told(&starts, topic, *partition)?;
        let end = told(&ends, topic, *partition)?;
        let found = committed.iter().find(|one| one.topic == *topic && one.partition == *partition);
        let from = match found {
            Some(CommittedOffset { error: Some(error), .. }) => return Err(unknown(topic, *partition, error)),
            found => found.and_then(|one| one.offset),
        };
        let late = match target {
            Target::Moment(_) => listed(&by_time, topic, *partition)?,
            _ => None,
        };
        moves.push(choose(target, (topic, *partition), from, (start, end), late));
    }
    Ok(moves)
}

fn told(offsets: &[ListedOffset], topic: &str, partition: i32) -> Result<i64, ClientError> {
    listed(offsets, topic, partition)?.ok_or_else(|| untold(topic, partition))
}

/// `None`: there is no such record, which an offset that could not be looked up must not be taken for.
fn listed(offsets: &[ListedOffset], topic: &str, partition: i32) -> Result<Option<i64>, ClientError> {
    match offsets.iter().find(|one| one.topic == topic && one.partition == partition) {
        Some(ListedOffset { error: Some(error), .. }) => Err(unknown(topic, partition, error)),
        Some(ListedOffset { offset, .. }) => Ok(*offset),
        None => Err(untold(topic, partition)),
    }
}

fn unknown(topic: &str, partition: i32, error: &ItemError) -> ClientError {
    let what = format_args!("partition {topic}-{partition}");
    ClientError::broker(what, crate::protocol::ErrorCode(error.code), Some(&error.message))
}

fn untold(topic: &str, partition: i32) -> ClientError {
    ClientError::Misuse(format!("the broker does not tell where {topic}-{partition} begins and ends").into())
}

fn choose(target: Target, place: (&str, i32), from: Option<i64>, (start, end): (i64, i64), late: Option<i64>) -> Move {
    let wanted = match target {
        Target::Earliest => start,
        Target::Latest => end,
        Target::Current => from.unwrap_or(end),
        Target::Offset(offset) => offset,
        Target::Shift(by) => from.unwrap_or(start).saturating_add(by),
        Target::Moment(_) => late.unwrap_or(end),
    };
    let to = wanted.clamp(start, end.max(start));
    Move {
        topic: place.0.to_owned(),
        partition: place.1,
        from,
        to,
        bounded: (to != wanted).then_some(wanted),
        too_late: matches!(target, Target::Moment(_)) && late.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(target: Target, from: Option<i64>, late: Option<i64>) -> i64 {
        choose(target, ("t", 0), from, (10, 20), late).to
    }

    #[test]
    fn new_offsets_lie_within_the_partition() {
        assert_eq!(to(Target::Earliest, None, None), 10);
        assert_eq!(to(Target::Latest, None, None), 20);
        assert_eq!(to(Target::Offset(99), None, None), 20);
        assert_eq!(to(Target::Offset(0), None, None), 10);
        assert_eq!(to(Target::Shift(-5), Some(12), None), 10);
        assert_eq!(to(Target::Shift(3), Some(12), None), 15);
        assert_eq!(to(Target::Shift(i64::MAX), Some(12), None), 20);
        assert_eq!(to(Target::Current, Some(13), None), 13);
        assert_eq!(to(Target::Current, None, None), 20);
        assert_eq!(to(Target::Moment(5), Some(13), Some(17)), 17);
        let late = choose(Target::Moment(5), ("t", 0), None, (10, 20), None);
        assert!(late.too_late && late.to == 20 && late.bounded.is_none());
        assert_eq!(choose(Target::Offset(99), ("t", 0), None, (10, 20), None).bounded, Some(99));
    }

    #[test]
    fn a_moment_that_could_not_be_looked_up_moves_nothing() {
        crate::cli::outcome::tests::deaf_to_times(|admin| {
            let places = [("t".to_owned(), 0), ("t".to_owned(), 1)];
            assert_eq!(plan(admin, Target::Latest, &places, &[]).unwrap().len(), 2);
            let error = plan(admin, Target::Moment(1), &places, &[]).unwrap_err().to_string();
            assert!(error.contains("partition t-1"), "{error}");
        });
    }

    #[test]
    fn an_offset_that_could_not_be_read_is_not_taken_for_none() {
        crate::cli::outcome::tests::deaf_to_times(|admin| {
            let error = ItemError {
                code: 14,
                name: "COORDINATOR_LOAD_IN_PROGRESS",
                message: "not yet".into(),
                retriable: true,
            };
            let unread = CommittedOffset {
                topic: "t".to_owned(),
                partition: 0,
                offset: None,
                leader_epoch: None,
                metadata: String::new(),
                error: Some(error),
            };
            let error = plan(admin, Target::Shift(-1), &[("t".to_owned(), 0)], &[unread]).unwrap_err().to_string();
            assert!(error.contains("partition t-0") && error.contains("not yet"), "{error}");
        });
    }

    #[test]
    fn places_are_read() {
        let read = |text: &str| Target::parse(text, 1_000_000, &TimeZone::UTC);
        assert_eq!(read("earliest"), Ok(Target::Earliest));
        assert_eq!(read("-10"), Ok(Target::Shift(-10)));
        assert_eq!(read("+10"), Ok(Target::Shift(10)));
        assert_eq!(read("10"), Ok(Target::Offset(10)));
        assert_eq!(read("@-1s"), Ok(Target::Moment(999_000)));
        assert!(read("soon").is_err() && read("+x").is_err());
        assert_eq!(parse_scope("a:0,2"), Ok(Scope { topic: "a".into(), partitions: vec![0, 2] }));
        assert!(parse_scope("a:x").is_err());
    }
}
