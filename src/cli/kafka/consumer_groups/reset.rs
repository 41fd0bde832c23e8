//! `kafka-consumer-groups --reset-offsets`.
//!
//! Shell: asks the cluster, reads a file. Owns the tool's notations of a place and its CSV; the choice of offsets is in `group_reset`.
//! Source: Kafka 4.4's GroupOffsetsResetter, asked.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::{Failed, chosen, partitions, scopes, tables};
use crate::cli::group_reset::{Move, Target, plan};
use crate::cli::kafka::Desk;
use crate::cli::kafka::exceptions::spelled;
use crate::cli::kafka::options::Words;
use crate::cli::moments::{parse_duration, parse_moment};
use crate::cli::unix_now_ms;
use crate::client::admin::{BlockingAdmin, NewCommittedOffset};

/// Places and offsets from a file, by group.
type FromFile = BTreeMap<String, Vec<(String, i32, i64)>>;

pub(super) fn run(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let groups = chosen(words, admin)?;
    let scopes = scopes(words)?;
    let from_file = match words.value("from-file").map_err(Failed::Usage)? {
        Some(path) => Some(read(path, &groups)?),
        None => None,
    };
    let target = if from_file.is_some() { None } else { Some(target(words)?) };
    let mut rows = Vec::new();
    let described = if groups.is_empty() { Vec::new() } else { admin.describe_groups(groups.clone())? };
    for group in &groups {
        let state = described.iter().find(|one| one.group == *group).map_or("", |one| one.state.as_str());
        if !matches!(state, "" | "Empty" | "Dead") {
            writeln!(
                desk.out,
                "\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )?;
            continue;
        }
        let committed = admin.list_group_offsets(group.clone(), None)?;
        let mut moves: Vec<Move> = Vec::new();
        if let Some(file) = &from_file {
            for (topic, partition, offset) in file.get(group).into_iter().flatten() {
                moves.extend(plan(admin, Target::Offset(*offset), &[(topic.clone(), *partition)], &committed)?);
            }
        } else if let Some(target) = target {
            let places = match words.has("all-topics") {
                true => committed.iter().map(|one| (one.topic.clone(), one.partition)).collect(),
                false => partitions(admin, &scopes)?,
            };
            moves = plan(admin, target, &places, &committed)?;
            if let (Target::Shift(_), Some(bare)) = (target, moves.iter().find(|one| one.from.is_none())) {
                return Err(Failed::Usage(format!(
                    "Cannot shift offset for partition {}-{} since there is no current committed offset",
                    bare.topic, bare.partition
                )));
            }
        }
        for one in &moves {
            tell(one, desk)?;
        }
        if words.has("execute") && !moves.is_empty() {
            let offsets = moves.iter().map(|one| NewCommittedOffset {
                topic: one.topic.clone(),
                partition: one.partition,
                offset: one.to,
                ..NewCommittedOffset::default()
            });
            let outcomes = admin.alter_group_offsets(group.clone(), offsets.collect())?;
            if let Some(error) = outcomes.iter().find_map(|one| one.error.as_ref()) {
                return Err(Failed::Because(spelled(error)));
            }
        }
        rows.extend(moves.into_iter().map(|one| (group.clone(), one.topic, one.partition, one.to)));
    }
    if words.has("export") {
        let several = groups.len() > 1;
        for (group, topic, partition, offset) in &rows {
            let group = if several { format!("{group},") } else { String::new() };
            writeln!(desk.out, "{group}{topic},{partition},{offset}")?;
        }
        writeln!(desk.out)?;
    } else {
        write!(desk.out, "{}", tables::reset(&rows, &groups))?;
    }
    Ok(())
}

/// What is not as it was asked for.
fn tell(one: &Move, desk: &mut Desk<'_>) -> Result<(), Failed> {
    if one.too_late {
        writeln!(
            desk.out,
            "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.",
            one.partition, one.topic
        )?;
    }
    if let Some(wanted) = one.bounded {
        let (word, end) = if wanted > one.to { ("higher", "latest") } else { ("lower", "earliest") };
        eprintln!(
            "WARN New offset ({wanted}) is {word} than {end} offset for topic partition {}-{}. Value will be set to {}.",
            one.topic, one.partition, one.to
        );
    }
    Ok(())
}

fn target(words: &Words) -> Result<Target, Failed> {
    if let Some(text) = words.value("to-datetime").map_err(Failed::Usage)? {
        return datetime(text).map(Target::Moment);
    }
    if let Some(text) = words.value("by-duration").map_err(Failed::Usage)? {
        let duration = Some(text).filter(|text| text.to_ascii_uppercase().starts_with('P')).and_then(parse_duration);
        let duration = duration.ok_or_else(|| Failed::Because("Text cannot be parsed to a Duration".to_owned()))?;
        return Ok(Target::Moment(unix_now_ms().saturating_sub(duration)));
    }
    if let Some(offset) = words.number("to-offset").map_err(Failed::Usage)? {
        return Ok(Target::Offset(offset));
    }
    if let Some(by) = words.number("shift-by").map_err(Failed::Usage)? {
        return Ok(Target::Shift(by));
    }
    Ok(if words.has("to-earliest") {
        Target::Earliest
    } else if words.has("to-latest") {
        Target::Latest
    } else {
        Target::Current
    })
}

/// `YYYY-MM-DDThh:mm:ss.sss`, with an offset or in UTC.
fn datetime(text: &str) -> Result<i64, Failed> {
    let time = text.split_once('T').map(|(_, time)| time).unwrap_or_default();
    let zoned = time.ends_with('Z') || time.contains(['+', '-']);
    let whole = if zoned { text.to_owned() } else { format!("{text}Z") };
    let wrong = || Failed::Because(format!("java.text.ParseException: Unparseable date: \"{whole}\""));
    // The tool wants milliseconds; times without them are refused.
    if !time.contains('.') {
        return Err(wrong());
    }
    parse_moment(&whole, unix_now_ms(), &TimeZone::UTC).map_err(|_| wrong())
}

fn read(path: &str, groups: &[String]) -> Result<FromFile, Failed> {
    let text = std::fs::read_to_string(path)
        .map_err(|_| Failed::Because(format!("java.io.IOException: Unable to read file {path}")))?;
    parse_csv(&text, groups).map_err(Failed::Because)
}

/// `topic,partition,offset`, or with the group before it.
fn parse_csv(text: &str, groups: &[String]) -> Result<FromFile, String> {
    let mut found = FromFile::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').map(|cell| cell.trim().trim_matches('"')).collect();
        let (group, rest) = match (cells.as_slice(), groups) {
            ([topic, partition, offset], [group]) => (group.as_str(), (*topic, *partition, *offset)),
            ([group, topic, partition, offset], _) => (*group, (*topic, *partition, *offset)),
            _ => return Err(format!("a line of the file is no topic,partition,offset: {line}")),
        };
        let (topic, partition, offset) = rest;
        let wrong = |word: &str| format!("For input string: \"{word}\"");
        let partition = partition.parse().map_err(|_| wrong(partition))?;
        let offset = offset.parse().map_err(|_| wrong(offset))?;
        found.entry(group.to_owned()).or_default().push((topic.to_owned(), partition, offset));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc_unless_they_say_otherwise() {
        let read = |text: &str| {
            datetime(text).map_err(|failed| match failed {
                Failed::Because(why) => why,
                _ => String::new(),
            })
        };
        assert_eq!(read("2026-01-01T00:00:00.000"), Ok(1_767_225_600_000));
        assert_eq!(read("2026-01-01T01:00:00.000+01:00"), Ok(1_767_225_600_000));
        assert_eq!(
            read("2026-01-01T00:00").unwrap_err(),
            "java.text.ParseException: Unparseable date: \"2026-01-01T00:00Z\""
        );
    }

    #[test]
    fn files_name_groups_or_not() {
        let one = ["g".to_owned()];
        let found = parse_csv("t1,0,1\n\"t1\",1,2\n", &one).unwrap();
        assert_eq!(found["g"], [("t1".to_owned(), 0, 1), ("t1".to_owned(), 1, 2)]);
        let found = parse_csv("a,t1,0,1\nb,t1,1,2\n", &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(found.len(), 2);
        assert!(parse_csv("t1,0", &one).is_err() && parse_csv("t1,x,0", &one).is_err());
    }
}
