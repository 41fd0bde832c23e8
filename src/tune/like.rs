//! `--like TOPIC`: reads some records of a topic and describes its load.
//!
//! Shell: reads through the client. Owns how many records are read, and from where: the newest, from all partitions alike. Does
//! not own what they say (`load::likeness`). Always true: nothing is committed, no group is joined, nothing is kept but sizes and
//! hashes, apart from a little of the values to see how they shrink.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use super::load::{Likeness, Seen, likeness};
use crate::bench::plan::Plan;
use crate::client::{Consumer, ConsumerSettings, Settings as _};
use crate::config::client_rows::ClientRole;
use crate::protocol::batch::{Builder, BuilderOptions, Codec};
use crate::types::Offset;

/// Records that are read at most.
const RECORDS_MAX: usize = 50_000;
/// However slow they come.
const READ_TIME: Duration = Duration::from_secs(10);
/// Of values that are kept to see how they shrink.
const VALUES_BYTES: usize = 4 << 20;
/// Of a batch for that purpose.
const BATCH_BYTES: usize = 64 << 10;

/// What was found, and the topic's partitions.
#[derive(Debug)]
pub struct Found {
    /// In words for a load.
    pub likeness: Likeness,
    /// Of the topic.
    pub partitions: u32,
}

/// Reads the newest records of `topic` on the plan's cluster. Errors: no such topic, too few records, not reachable.
pub fn sample(plan: &Plan, topic: &str) -> anyhow::Result<Found> {
    let mut builder = ConsumerSettings::builder();
    for (name, value) in plan.client_words(ClientRole::Consumer) {
        builder = builder.set_at(&name, value, "tune");
    }
    let settings = builder
        .set_at("enable.auto.commit", "false", "tune")
        .set_at("auto.offset.reset", "earliest", "tune")
        // A name that is mistyped is told, not made.
        .set_at("allow.auto.create.topics", "false", "tune")
        .set_at("max.poll.records", "5000", "tune")
        .build()?;
    let mut consumer = Consumer::new(settings)?;
    let sampled = read(&mut consumer, topic);
    consumer.close_sync(Duration::from_secs(5));
    let (seen, values, partitions) = sampled.with_context(|| format!("--like {topic}"))?;
    let likeness = likeness(&seen, shrinks(&values)).map_err(|why| anyhow!("--like {topic}: {why}"))?;
    Ok(Found { likeness, partitions })
}

type Sampled = (Vec<Seen>, Vec<Vec<u8>>, u32);

fn read(consumer: &mut Consumer, topic: &str) -> anyhow::Result<Sampled> {
    let partitions = consumer.partitions_for_sync(topic)?;
    if partitions.is_empty() {
        bail!("there is no such topic");
    }
    consumer.assign(partitions.iter().cloned())?;
    let starts = consumer.beginning_offsets_sync(partitions.iter().cloned())?;
    let ends = consumer.end_offsets_sync(partitions.iter().cloned())?;
    let each = (RECORDS_MAX / partitions.len()).max(1) as u64;
    let mut there = 0u64;
    for partition in &partitions {
        let zero = Offset::ZERO;
        let (start, end) =
            (starts.get(partition).copied().unwrap_or(zero), ends.get(partition).copied().unwrap_or(zero));
        let count = start.distance_to(end.max(start));
        there += count.min(each);
        let from = Offset::new(end.max(start).value() - i64::try_from(count.min(each)).unwrap_or(0)).unwrap_or(start);
        consumer.seek(partition, from)?;
    }
    let wanted = usize::try_from(there).unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
    let (mut seen, mut values, mut bytes) = (Vec::with_capacity(wanted), Vec::new(), 0);
    let began = Instant::now();
    while seen.len() < wanted && began.elapsed() < READ_TIME {
        for record in consumer.poll_sync(Duration::from_millis(500))? {
            let value = record.value.as_deref().unwrap_or_default();
            if bytes < VALUES_BYTES {
                bytes += value.len();
                values.push(value.to_vec());
            }
            let hash = |key: &[u8]| {
                let mut hasher = DefaultHasher::new();
                key.hash(&mut hasher);
                hasher.finish()
            };
            seen.push(Seen {
                partition: record.partition.value(),
                timestamp: record.timestamp,
                key: record.key.as_deref().map(hash),
                value_bytes: value.len() as u64,
            });
        }
    }
    Ok((seen, values, u32::try_from(partitions.len()).unwrap_or(u32::MAX)))
}

/// How many times smaller zstd makes these values in batches of [`BATCH_BYTES`].
fn shrinks(values: &[Vec<u8>]) -> f64 {
    let size = |codec| {
        let options = BuilderOptions { codec, level: None, producer: None, transactional: false, control: false };
        let mut total = 0;
        let mut values = values.iter().peekable();
        while values.peek().is_some() {
            let mut builder = Builder::new(options);
            let mut bytes = 0;
            while let Some(value) = values.next_if(|_| bytes < BATCH_BYTES) {
                bytes += value.len().max(1);
                builder.push(0, None, Some(value), &[]);
            }
            total += builder.finish().len();
        }
        total as f64
    };
    let packed = size(Codec::Zstd);
    if packed > 0.0 { size(Codec::None) / packed } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_shrink_as_far_as_they_repeat() {
        let same: Vec<Vec<u8>> = (0..500).map(|_| b"the same words again and again and again".to_vec()).collect();
        assert!(shrinks(&same) > 10.0);
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<Vec<u8>> =
            (0..500).map(|_| std::iter::repeat_with(|| random.u8(..)).take(200).collect()).collect();
        assert!((0.9..1.1).contains(&shrinks(&noise)));
        assert_eq!(shrinks(&[]), 1.0);
    }
}
