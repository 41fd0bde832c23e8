//! The small text files beside the segments, in Kafka's formats.
//!
//! Pure. Owns `recovery-point-offset-checkpoint` and `log-start-offset-checkpoint` of a log directory,
//! `leader-epoch-checkpoint` and `partition.metadata` of a partition. Does not own their writing: see `files`. Always: what
//! is written reads back, and a text that was cut or damaged is an error that names the line.

use crate::types::{LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition};

/// Version line of the checkpoint files and of `partition.metadata`.
const VERSION: &str = "0";

/// A text that is not in the format of its file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct FormatError {
    /// from 1
    pub line: usize,
    /// what is wrong there
    pub reason: &'static str,
}

/// The text of `recovery-point-offset-checkpoint` or `log-start-offset-checkpoint`.
pub fn format_offsets<'a>(offsets: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>) -> String {
    let lines = offsets.map(|(tp, offset)| format!("{} {} {offset}", tp.topic, tp.partition));
    format_lines(lines)
}

/// Reads what [`format_offsets`] (or Kafka) wrote.
pub fn parse_offsets(text: &str) -> Result<Vec<(TopicPartition, Offset)>, FormatError> {
    parse_lines(text, |line| {
        let mut words = line.split_ascii_whitespace();
        let topic = TopicName::from(words.next()?);
        let partition = PartitionIndex::new(words.next()?.parse().ok()?)?;
        let offset = Offset::new(words.next()?.parse().ok()?)?;
        words.next().is_none().then_some((TopicPartition { topic, partition }, offset))
    })
}

/// The text of `leader-epoch-checkpoint`.
pub fn format_epochs(entries: &[(LeaderEpoch, Offset)]) -> String {
    format_lines(entries.iter().map(|(epoch, start)| format!("{epoch} {start}")))
}

/// Reads what [`format_epochs`] (or Kafka) wrote.
pub fn parse_epochs(text: &str) -> Result<Vec<(LeaderEpoch, Offset)>, FormatError> {
    parse_lines(text, |line| {
        let mut words = line.split_ascii_whitespace();
        let epoch = LeaderEpoch::new(words.next()?.parse().ok()?)?;
        let start = Offset::new(words.next()?.parse().ok()?)?;
        words.next().is_none().then_some((epoch, start))
    })
}

/// The text of `partition.metadata`.
pub fn format_partition_metadata(topic_id: TopicId) -> String {
    format!("version: {VERSION}\ntopic_id: {topic_id}")
}

/// The topic id in `partition.metadata`.
pub fn parse_partition_metadata(text: &str) -> Result<TopicId, FormatError> {
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("version: 0") {
        return Err(FormatError { line: 1, reason: "not `version: 0`" });
    }
    let id = lines.next().and_then(|line| line.strip_prefix("topic_id: "));
    id.and_then(|id| TopicId::parse(id.trim_end()))
        .ok_or(FormatError { line: 2, reason: "not `topic_id: <22 letters>`" })
}

fn format_lines(lines: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("{VERSION}\n{}\n", lines.len());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn parse_lines<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, FormatError> {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some(VERSION) {
        return Err(FormatError { line: 1, reason: "not version 0" });
    }
    let count: Option<usize> = lines.next().and_then(|line| line.trim().parse().ok());
    let count = count.ok_or(FormatError { line: 2, reason: "no count of entries" })?;
    let mut entries = Vec::new();
    for (index, line) in lines.enumerate() {
        entries.push(parse(line).ok_or(FormatError { line: index + 3, reason: "no entry" })?);
    }
    if entries.len() != count {
        return Err(FormatError { line: 2, reason: "the count is not that of the entries" });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex::new(partition).unwrap() }
    }

    #[test]
    fn offset_checkpoints_are_kafkas() {
        let text = "0\n2\norders 0 42\n__consumer_offsets 49 7\n";
        let entries =
            vec![(tp("orders", 0), Offset::new(42).unwrap()), (tp("__consumer_offsets", 49), Offset::new(7).unwrap())];
        assert_eq!(parse_offsets(text), Ok(entries.clone()));
        assert_eq!(format_offsets(entries.iter().map(|(tp, offset)| (tp, *offset))), text);
    }

    #[test]
    fn epoch_checkpoints_are_kafkas() {
        let text = "0\n2\n0 0\n3 120\n";
        let epoch = |value| LeaderEpoch::new(value).unwrap();
        let entries = [(epoch(0), Offset::ZERO), (epoch(3), Offset::new(120).unwrap())];
        assert_eq!(parse_epochs(text), Ok(entries.to_vec()));
        assert_eq!(format_epochs(&entries), text);
        assert_eq!(parse_epochs("0\n0\n"), Ok(vec![]));
    }

    #[test]
    fn partition_metadata_is_kafkas() {
        let id = TopicId::parse("AAAAAAAAQAGAAAAAAAAAAg").unwrap();
        assert_eq!(format_partition_metadata(id), "version: 0\ntopic_id: AAAAAAAAQAGAAAAAAAAAAg");
        assert_eq!(parse_partition_metadata("version: 0\ntopic_id: AAAAAAAAQAGAAAAAAAAAAg\n"), Ok(id));
    }

    #[test]
    fn damaged_texts_are_errors_that_name_the_line() {
        let line = |text: &str| parse_offsets(text).unwrap_err().line;
        assert_eq!([line(""), line("1\n0\n"), line("0\n"), line("0\nx\n"), line("0\n2\na 0 1\n")], [1, 1, 2, 2, 2]);
        assert_eq!([line("0\n1\na 0 -1\n"), line("0\n1\na 0\n"), line("0\n2\na 0 1\nb 0 1 2\n")], [3, 3, 4]);
        assert_eq!(parse_epochs("\0\0\0\0").unwrap_err().line, 1);
        assert_eq!(parse_partition_metadata("version: 1\n").unwrap_err().line, 1);
        assert_eq!(parse_partition_metadata("version: 0\ntopic_id: x\n").unwrap_err().line, 2);
    }
}
