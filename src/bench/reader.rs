//! Reads partitions as they are, with plain fetches: for verification, and for consumers that need no group.
//!
//! Shell; lives on a client thread. Owns positions and long polls, one fetch under way per broker. Does not own what is made
//! of the records. Always true: every record from the start position on is shown once, in order of its partition, its batch's
//! checksum checked; a batch that is damaged on the way is shown as such, not skipped; a fetch that brings bytes moves a position
//! or is an error, so that nobody fetches the same damage for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use super::target::{BenchError, ReadyTopic};
use crate::client::network::{Network, Target};
use crate::protocol::ErrorCode;
use crate::protocol::batch::{self, BatchError, Records};
use crate::protocol::fetch::{FetchPartition, FetchRequest, FetchTopic};
use crate::types::{BrokerId, TopicId};

/// Most bytes the records of one batch may take once decompressed.
const RECORDS_BYTES_MAX: usize = 256 << 20;
/// A fetch is answered within its wait and a network's patience.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a reader fetches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchPlan {
    pub(crate) min_bytes: i32,
    pub(crate) max_wait: Duration,
    pub(crate) max_bytes: i32,
    pub(crate) partition_max_bytes: i32,
    pub(crate) check_crcs: bool,
}

impl Default for FetchPlan {
    fn default() -> Self {
        Self {
            min_bytes: 1,
            max_wait: Duration::from_millis(500),
            max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            check_crcs: true,
        }
    }
}

/// One thing a reader met.
pub(crate) enum Met<'a> {
    /// A record: partition, offset, key, value.
    Record(u32, i64, Option<&'a [u8]>, Option<&'a [u8]>),
    /// Offsets of a batch whose bytes are damaged: partition, first, last.
    Damaged(u32, i64, i64),
    /// Offsets that retention removed before they were read: partition, first, where the log begins now.
    Deleted(u32, i64, i64),
}

/// Positions in one topic at one broker.
pub(crate) struct Reader {
    topic: String,
    topic_id: TopicId,
    broker: BrokerId,
    positions: BTreeMap<i32, i64>,
    plan: FetchPlan,
}

impl Reader {
    /// One reader for each broker that leads any of `partitions`, at the given positions.
    pub(crate) fn all(
        network: &Network,
        topic: &ReadyTopic,
        positions: &BTreeMap<u32, i64>,
        plan: FetchPlan,
    ) -> Vec<Self> {
        let topic_id = network.cluster().topic(&topic.name).and_then(|topic| topic.id).unwrap_or_default();
        let mut readers: BTreeMap<BrokerId, Self> = BTreeMap::new();
        for (partition, position) in positions {
            let Some(leader) = topic.leaders.get(*partition as usize) else { continue };
            let reader = readers.entry(*leader).or_insert_with(|| Self {
                topic: topic.name.clone(),
                topic_id,
                broker: *leader,
                positions: BTreeMap::new(),
                plan,
            });
            reader.positions.insert(i32::try_from(*partition).unwrap_or(i32::MAX), *position);
        }
        readers.into_values().collect()
    }

    /// Where it stands in a partition.
    pub(crate) fn position(&self, partition: u32) -> Option<i64> {
        self.positions.get(&i32::try_from(partition).ok()?).copied()
    }

    /// Where it stands in all its partitions.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, i64)> + '_ {
        self.positions.iter().map(|(partition, position)| (partition.cast_unsigned(), *position))
    }

    /// No longer reads that partition.
    pub(crate) fn leave(&mut self, partition: u32) {
        if let Ok(partition) = i32::try_from(partition) {
            self.positions.remove(&partition);
        }
    }

    /// Whether it reads nothing any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.positions.is_empty()
    }

    /// One fetch; shows what came, and gives back the bytes of its records. Errors: the broker is gone, or refuses; what lies in a
    /// partition is no batch ([`BenchError::Unreadable`]).
    pub(crate) async fn fetch(&mut self, network: &Network, mut see: impl FnMut(Met<'_>)) -> Result<usize, BenchError> {
        let partitions = self.positions.iter().map(|(partition, offset)| FetchPartition {
            partition: *partition,
            fetch_offset: *offset,
            partition_max_bytes: self.plan.partition_max_bytes,
            ..Default::default()
        });
        let topic =
            FetchTopic { topic: self.topic.as_str().into(), topic_id: self.topic_id, partitions: partitions.collect() };
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: i32::try_from(self.plan.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.plan.min_bytes,
            max_bytes: self.plan.max_bytes,
            topics: [topic].into_iter().collect(),
            ..Default::default()
        };
        let reply = network.call(Target::Broker(self.broker), &request, self.plan.max_wait + PATIENCE).await?;
        let response = reply.read::<FetchRequest<'_>>()?;
        let refuse = |partition: Option<i32>, code: ErrorCode| {
            Err(BenchError::Refused { topic: self.topic.clone(), partition, code })
        };
        if response.error_code != ErrorCode::NONE {
            return refuse(None, response.error_code);
        }
        let unreadable = |partition: u32, offset: i64, why: String| BenchError::Unreadable {
            topic: self.topic.clone(),
            partition,
            offset,
            why,
        };
        let (mut bytes, mut moved, mut stuck) = (0, false, None);
        for answer in response.responses.iter().flat_map(|topic| &topic.partitions) {
            match answer.error_code {
                ErrorCode::NONE => {}
                code => {
                    // Retention passed by: what is gone cannot be read. Kafka does not say where its log begins here.
                    let start = answer.log_start_offset;
                    let position = self.positions.get_mut(&answer.partition_index);
                    match position.filter(|position| code == ErrorCode::OFFSET_OUT_OF_RANGE && **position < start) {
                        Some(position) => {
                            see(Met::Deleted(answer.partition_index.cast_unsigned(), *position, start));
                            *position = start;
                            moved = true;
                            continue;
                        }
                        None => return refuse(Some(answer.partition_index), code),
                    }
                }
            }
            let Some(records) = answer.records.filter(|records| !records.is_empty()) else { continue };
            let Some(position) = self.positions.get_mut(&answer.partition_index) else { continue };
            let records = reply.records(records);
            bytes += records.len();
            let partition = answer.partition_index.cast_unsigned();
            let began = *position;
            show(&records, partition, position, self.plan.check_crcs, &mut see)
                .map_err(|why| unreadable(partition, *position, why.to_string()))?;
            moved |= *position > began;
            stuck = stuck.or((*position == began).then_some((partition, began)));
        }
        match stuck.filter(|_| !moved) {
            // A broker sends a batch that is larger than its limits whole, where it comes first: the next answer would be the same.
            Some((partition, offset)) => Err(unreadable(partition, offset, "no whole batch came".to_owned())),
            None => Ok(bytes),
        }
    }
}

/// Shows the records of whole batches from `position` on and moves it; the last batch may be cut, as a fetch ends anywhere.
/// Errors: what stands there is no batch, so that nothing tells where the next one begins.
fn show(
    mut rest: &[u8],
    partition: u32,
    position: &mut i64,
    check_crcs: bool,
    see: &mut impl FnMut(Met<'_>),
) -> Result<(), BatchError> {
    while !rest.is_empty() {
        let info = match batch::parse_header(rest) {
            Ok(info) => info,
            Err(BatchError::Truncated { .. }) => break,
            Err(error) => return Err(error),
        };
        let Some(whole) = rest.get(..info.bytes as usize) else { break };
        rest = &rest[info.bytes as usize..];
        let last = info.base_offset + i64::from(info.last_offset_delta);
        let checked = if check_crcs { batch::check_stored(whole).map(drop) } else { Ok(()) };
        let walked = checked.and_then(|()| walk(whole, partition, *position, see));
        if walked.is_err() {
            see(Met::Damaged(partition, info.base_offset.max(*position), last));
        }
        *position = (*position).max(last + 1);
    }
    Ok(())
}

fn walk(whole: &[u8], partition: u32, from: i64, see: &mut impl FnMut(Met<'_>)) -> Result<(), BatchError> {
    let records = Records::open(whole, RECORDS_BYTES_MAX)?;
    let info = *records.info();
    if info.control {
        return Ok(());
    }
    for record in records.iter() {
        let record = record?;
        let offset = info.base_offset + i64::from(record.offset_delta);
        if offset >= from {
            see(Met::Record(partition, offset, record.key, record.value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{Builder, BuilderOptions, Codec, stamp};
    use crate::types::{LeaderEpoch, Offset};

    fn batch(base: i64, records: usize) -> Vec<u8> {
        let options =
            BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
        let mut builder = Builder::new(options);
        (0..records).for_each(|_| builder.push(0, None, Some(b"value"), &[]));
        let mut bytes = builder.finish();
        stamp(&mut bytes, Offset::new(base).unwrap(), LeaderEpoch::ZERO);
        bytes.to_vec()
    }

    fn seen(bytes: &[u8], mut position: i64) -> (Vec<String>, i64) {
        let mut seen = Vec::new();
        let shown = show(bytes, 3, &mut position, true, &mut |met| {
            seen.push(match met {
                Met::Record(partition, offset, ..) => format!("{partition}@{offset}"),
                Met::Damaged(partition, from, to) => format!("{partition} damaged {from}-{to}"),
                Met::Deleted(partition, from, to) => format!("{partition} deleted {from}-{to}"),
            });
        });
        seen.extend(shown.err().map(|error| error.to_string()));
        (seen, position)
    }

    #[test]
    fn records_are_shown_from_the_position_on_and_a_cut_batch_waits() {
        let mut bytes = batch(10, 3);
        bytes.extend(batch(13, 2));
        let cut = bytes.len() - 1;
        assert_eq!(seen(&bytes[..cut], 11), (vec!["3@11".to_owned(), "3@12".to_owned()], 13));
        assert_eq!(seen(&bytes, 13), (vec!["3@13".to_owned(), "3@14".to_owned()], 15));
        assert_eq!(seen(b"junk", 5), (vec![], 5));
    }

    #[test]
    fn a_header_that_is_none_is_an_error_behind_what_came_before() {
        let mut bytes = batch(10, 1);
        let second = bytes.len();
        bytes.extend(batch(11, 1));
        // The format's number.
        bytes[second + 16] = 7;
        assert_eq!(seen(&bytes, 10), (vec!["3@10".to_owned(), "message format 7; only 2 is served".to_owned()], 11));
    }

    #[test]
    fn a_damaged_batch_is_shown_and_passed() {
        let mut bytes = batch(10, 3);
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        bytes.extend(batch(13, 1));
        assert_eq!(seen(&bytes, 10), (vec!["3 damaged 10-12".to_owned(), "3@13".to_owned()], 14));
    }
}
