//! Exactly once with an outside store: each record's effect and the offset behind it are written in one transaction of a
//! database, and the database's offset is where reading begins again. The group's committed offsets are not used.
//!
//! ```text
//! cargo run --example exactly_once -- localhost:9092 my-topic results.db [COUNT]
//! ```
//! It sums numbers (or counts letters, where a value is no number) by key. Kill it whenever you like and start it again:
//! the sums come out as if it had run once. With COUNT it ends after so many records.

use std::time::Duration;

use ringlog::client::consumer::Position;
use ringlog::client::{Consumer, ConsumerSettings, Record, Settings};
use ringlog::types::{LeaderEpoch, Offset, TopicPartition};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

/// Results and offsets live and die together.
const SCHEMA: &str = "
    create table if not exists sums (key blob primary key, sum integer not null, records integer not null);
    create table if not exists offsets (
        topic text not null, partition integer not null, next_offset integer not null, leader_epoch integer,
        primary key (topic, partition)
    );
";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, database, rest @ ..] = &arguments[..] else {
        anyhow::bail!("usage: exactly_once BOOTSTRAP TOPIC DATABASE [COUNT]");
    };
    let mut left: Option<u64> = rest.first().map(|count| count.parse()).transpose()?;
    let mut database = Connection::open(database)?;
    database.execute_batch(SCHEMA)?;

    let settings = ConsumerSettings::builder()
        .set("bootstrap.servers", bootstrap)
        .set("auto.offset.reset", "earliest")
        // What an aborted transaction wrote has no effect here either.
        .set("isolation.level", "read_committed")
        .build()?;
    let mut consumer = Consumer::new(settings)?;
    let partitions = consumer.partitions_for_sync(topic)?;
    consumer.assign(partitions.iter().cloned())?;
    for partition in &partitions {
        if let Some(position) = read_position(&database, partition)? {
            // With the epoch: should the log have lost records that this database already counted, that is noticed.
            consumer.seek_to_position(partition, position)?;
        }
    }

    while left != Some(0) {
        let mut records = consumer.poll_sync(Duration::from_secs(1))?;
        if let Some(left) = &mut left {
            records.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= records.len() as u64;
        }
        // All or nothing: a crash before the commit leaves results and offsets as they were, one after it leaves both done.
        let transaction = database.transaction()?;
        for record in &records {
            apply(&transaction, record)?;
        }
        transaction.commit()?;
    }
    consumer.close_sync(Duration::from_secs(5));
    let (keys, records): (i64, i64) =
        database.query_row("select count(*), coalesce(sum(records), 0) from sums", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    println!("{records} records under {keys} keys");
    Ok(())
}

fn read_position(database: &Connection, partition: &TopicPartition) -> anyhow::Result<Option<Position>> {
    let found = database
        .query_row(
            "select next_offset, leader_epoch from offsets where topic = ? and partition = ?",
            params![&*partition.topic, partition.partition.value()],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i32>>(1)?)),
        )
        .optional()?;
    Ok(found.and_then(|(offset, epoch)| {
        Some(Position { offset: Offset::new(offset)?, leader_epoch: epoch.and_then(LeaderEpoch::new) })
    }))
}

fn apply(transaction: &Transaction<'_>, record: &Record) -> anyhow::Result<()> {
    let value = record.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let number = value.trim().parse().unwrap_or(value.len() as i64);
    transaction.execute(
        "insert into sums values (?, ?, 1) on conflict do update set sum = sum + excluded.sum, records = records + 1",
        params![record.key.as_deref().unwrap_or_default(), number],
    )?;
    transaction.execute(
        "insert into offsets values (?, ?, ?, ?)
         on conflict do update set next_offset = excluded.next_offset, leader_epoch = excluded.leader_epoch",
        params![
            &*record.topic,
            record.partition.value(),
            record.offset.next().value(),
            record.leader_epoch.map(LeaderEpoch::value)
        ],
    )?;
    Ok(())
}
