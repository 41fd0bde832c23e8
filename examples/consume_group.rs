//! Reads a topic as a member of a group, says what the group deals out to it, and commits what it has done.
//!
//! ```text
//! cargo run --example consume_group -- localhost:9092 my-group my-topic [setting=value …]
//! ```
//! Start it several times, also beside Java consumers of the same group: the partitions are dealt out anew each time.
//! Ctrl-C leaves the group cleanly.

use std::io::{BufWriter, Write};
use std::time::Duration;

use ringlog::client::consumer::{Heard, RebalanceListener};
use ringlog::client::{Consumer, ConsumerError, ConsumerHandle, ConsumerSettings, Settings};
use ringlog::types::TopicPartition;

/// Prints what comes and goes. A real program would open and close what it keeps for each partition.
struct Announcer;

impl RebalanceListener<ConsumerHandle> for Announcer {
    fn on_assigned<'a>(&'a mut self, _: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        announce("assigned", partitions);
        Box::pin(std::future::ready(()))
    }

    fn on_revoked<'a>(&'a mut self, handle: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        Box::pin(async move {
            announce("revoked", partitions);
            // The next owner begins where this one ends: nothing is read twice.
            if let Err(error) = handle.commit().await {
                eprintln!("the last commit failed: {error}");
            }
        })
    }

    fn on_lost<'a>(&'a mut self, _: &'a ConsumerHandle, partitions: &'a [TopicPartition]) -> Heard<'a> {
        announce("lost", partitions);
        Box::pin(std::future::ready(()))
    }
}

fn announce(what: &str, partitions: &[TopicPartition]) {
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    eprintln!("{what}: {}", if names.is_empty() { "nothing".to_owned() } else { names.join(" ") });
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, group, topic, more @ ..] = &arguments[..] else {
        anyhow::bail!("usage: consume_group BOOTSTRAP GROUP TOPIC [setting=value …]");
    };
    let mut builder = ConsumerSettings::builder()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest");
    for setting in more {
        let Some((key, value)) = setting.split_once('=') else { anyhow::bail!("`{setting}` is no setting=value") };
        builder = builder.set(key, value);
    }
    let mut consumer = Consumer::new(builder.build()?)?;
    consumer.set_listener(Announcer);
    consumer.subscribe([topic])?;

    // Whoever wants the consumer to stop wakes it: the poll under way ends, and the loop with it.
    let handle = consumer.handle();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        if let Ok(runtime) = runtime {
            _ = runtime.block_on(tokio::signal::ctrl_c());
            handle.wake();
        }
    });

    let mut out = BufWriter::new(std::io::stdout().lock());
    loop {
        let records = match consumer.poll_sync(Duration::from_secs(1)) {
            Ok(records) => records,
            Err(ConsumerError::Woken) => break,
            // The group is sorting itself out, or a broker restarts: the next poll goes on.
            Err(error) if error.retriable() => {
                eprintln!("{error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for record in &records {
            let value = record.value.as_deref().map_or("null".into(), String::from_utf8_lossy);
            writeln!(out, "{}-{}@{} {value}", record.topic, record.partition, record.offset)?;
        }
        out.flush()?;
        if !records.is_empty() {
            // Not waited for: the next poll may begin. A failure is mended by the next commit.
            consumer.commit_async(|result| {
                if let Err(error) = result {
                    eprintln!("a commit failed: {error}");
                }
            });
        }
    }
    consumer.close_sync(Duration::from_secs(10));
    Ok(())
}
