//! `ringlog offsets`: where partitions begin and end, or what offset a moment has.
//!
//! Shell: asks the cluster. Owns the command and what it shows. Source: Kafka's `kafka-get-offsets`, kcat's `-Q`.

use std::io::Write;

use anyhow::anyhow;
use clap::Args;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::connect::ConnectArgs;
use super::moments::{parse_moment, rfc3339};
use super::outcome::{Tally, with_hint};
use super::show::{Output, OutputArgs, Table, or_dash, write_json};
use super::{Failure, unix_now_ms};
use crate::client::admin::OffsetSpec;

const EXAMPLES: &str = "\
Examples:
  ringlog offsets orders
  ringlog offsets orders --time -1h
  ringlog offsets orders payments --time 2026-01-31T10:00 -o json";

/// Shows where the partitions of topics begin and end, or the first offset at or after a moment.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct OffsetsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Only these partitions
    #[arg(short, long, value_name = "N,…", value_delimiter = ',')]
    partitions: Vec<i32>,
    /// The first offset at or after this moment: -1h, 2026-01-31T10:00, 1767225600000, or max (the latest record)
    #[arg(short, long, value_name = "MOMENT", allow_hyphen_values = true)]
    time: Option<String>,
    /// The end is the last stable offset: behind it transactions are open
    #[arg(long)]
    committed: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    topic: String,
    partition: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_start_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_end_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
}

/// Asks and shows.
pub(super) fn run(args: &OffsetsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let time = match args.time.as_deref() {
        None => None,
        Some("max" | "max-timestamp") => Some(OffsetSpec::MaxTimestamp),
        Some(text) => {
            let moment = parse_moment(text, unix_now_ms(), &TimeZone::system());
            Some(OffsetSpec::Timestamp(moment.map_err(|why| anyhow!("--time: {why}"))?))
        }
    };
    let admin = args.connect.admin()?;
    let mut tally = Tally::default();
    let mut wanted = Vec::new();
    for topic in admin.describe_topics(args.topics.clone())? {
        if let Some(error) = &topic.error {
            tally.failed(&format!("topic {}", topic.name), with_hint(&admin, &topic.name, error));
            continue;
        }
        for asked in &args.partitions {
            if !topic.partitions.iter().any(|one| one.partition == *asked) {
                tally.failed(&format!("topic {}", topic.name), format!("it has no partition {asked}"));
            }
        }
        let chosen = |partition: &i32| args.partitions.is_empty() || args.partitions.contains(partition);
        let partitions = topic.partitions.iter().map(|one| one.partition).filter(chosen);
        wanted.extend(partitions.map(|partition| (topic.name.clone(), partition)));
    }
    let ask = |spec: OffsetSpec| {
        let asked = wanted.iter().map(|(topic, partition)| (topic.clone(), *partition, spec)).collect();
        admin.list_offsets(asked, args.committed)
    };
    let mut lines = Vec::new();
    let first = ask(time.unwrap_or(OffsetSpec::Earliest))?;
    let ends = if time.is_none() { ask(OffsetSpec::Latest)? } else { Vec::new() };
    for one in first {
        let end = ends.iter().find(|end| (&end.topic, end.partition) == (&one.topic, one.partition));
        if let Some(error) = one.error.as_ref().or_else(|| end?.error.as_ref()) {
            tally.failed(&format!("{}-{}", one.topic, one.partition), error);
            continue;
        }
        tally.done();
        lines.push(Line {
            log_start_offset: one.offset.filter(|_| time.is_none()),
            log_end_offset: end.and_then(|end| end.offset),
            offset: one.offset.filter(|_| time.is_some()),
            timestamp: one.timestamp.filter(|_| time.is_some()),
            topic: one.topic,
            partition: one.partition,
        });
    }
    if args.output.output == Output::Json {
        write_json(out, &lines)?;
        return tally.end();
    }
    let mut table = match time {
        None => Table::new(&["TOPIC", "#PARTITION", "#LOG-START", "#LOG-END", "#RECORDS"]),
        Some(_) => Table::new(&["TOPIC", "#PARTITION", "#OFFSET", "TIMESTAMP"]),
    };
    for line in &lines {
        let mut cells = vec![line.topic.clone(), line.partition.to_string()];
        match time {
            None => {
                let records = line.log_start_offset.zip(line.log_end_offset).map(|(start, end)| end - start);
                cells.extend([or_dash(line.log_start_offset), or_dash(line.log_end_offset), or_dash(records)]);
            }
            Some(_) => cells.extend([or_dash(line.offset), or_dash(line.timestamp.map(rfc3339))]),
        }
        table.row(cells);
    }
    if !table.is_empty() {
        out.write_all(table.render().as_bytes())?;
    }
    tally.end()
}
