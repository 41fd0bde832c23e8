//! Which partition a record without one goes to.
//!
//! Pure. Owns the key hash, the choice of the next sticky partition and what a custom partitioner is. Does not own the queues
//! whose lengths weigh the choice (`accumulator`). Always true: a choice lies below the topic's number of partitions; chance
//! comes in as a parameter. Source: Kafka's `Utils.murmur2`, `BuiltInPartitioner` (KIP-794), `StickyPartitionCache` (KIP-480)
//! and `RoundRobinPartitioner`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::record::RecordRef;
use crate::types::PartitionIndex;

/// How partitions are chosen for records that name none.
#[derive(Clone)]
pub enum Partitioning {
    /// Kafka's default: by the key's hash, and without a key one partition after the other, switching each time about
    /// `batch.size` bytes went to one.
    BuiltIn {
        /// Partitions with longer queues are chosen more rarely (`partitioner.adaptive.partitioning.enable`).
        adaptive: bool,
        /// Partitions of a broker that takes nothing for so long are left out; zero: never
        /// (`partitioner.availability.timeout.ms`). Only together with `adaptive`.
        availability_timeout: Duration,
        /// Keys play no part (`partitioner.ignore.keys`).
        ignore_keys: bool,
    },
    /// By the key's hash, and without a key another partition with each new batch.
    UniformSticky,
    /// Each record to the next partition, whatever its key.
    RoundRobin,
    /// The program's own.
    Custom(Arc<dyn Partitioner>),
}

impl Default for Partitioning {
    fn default() -> Self {
        Self::BuiltIn { adaptive: true, availability_timeout: Duration::ZERO, ignore_keys: false }
    }
}

impl fmt::Debug for Partitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn { adaptive, availability_timeout, ignore_keys } => f
                .debug_struct("BuiltIn")
                .field("adaptive", adaptive)
                .field("availability_timeout", availability_timeout)
                .field("ignore_keys", ignore_keys)
                .finish(),
            Self::UniformSticky => f.write_str("UniformSticky"),
            Self::RoundRobin => f.write_str("RoundRobin"),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// The partitions of a topic, as a partitioner sees them.
#[derive(Clone, Copy, Debug)]
pub struct Partitions<'a> {
    /// How many there are; at least one.
    pub count: u32,
    /// Those that have a leader at the moment, in rising order.
    pub available: &'a [u32],
}

impl Partitions<'_> {
    /// One of those with a leader, or of all when none has one.
    fn uniform(&self, random: u32) -> u32 {
        match self.available {
            [] => random % self.count,
            available => {
                let at = random as usize % available.len();
                available.get(at).copied().unwrap_or(0)
            }
        }
    }
}

/// A partitioner of the program's own. Called under the producer's lock: it must be quick and may not send.
pub trait Partitioner: Send + Sync {
    /// Where the record goes. A partition the topic has not is an error of the send.
    fn partition(&self, record: &RecordRef<'_>, partitions: Partitions<'_>) -> PartitionIndex;

    /// A record would begin a new batch in `partition`; right after this, [`Partitioner::partition`] is asked once more.
    fn on_new_batch(&self, topic: &str, partition: PartitionIndex) {
        let _ = (topic, partition);
    }
}

/// Austin Appleby's MurmurHash2, 32 bits, with the seed of Kafka's clients.
pub fn murmur2(data: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mix = |word: u32| {
        let word = word.wrapping_mul(MULTIPLIER);
        (word ^ (word >> 24)).wrapping_mul(MULTIPLIER)
    };
    // Java's lengths have 31 bits; keys stay far below.
    let mut hash = SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(MULTIPLIER) ^ mix(u32::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

/// Where a key goes among `count` partitions, as with every Java client. Panics when `count` is zero.
pub fn partition_for_key(key: &[u8], count: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % count
}

/// The length of one partition's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Its number.
    pub(crate) partition: u32,
    /// Batches waiting.
    pub(crate) queued: u32,
}

/// The next sticky partition: by weight when `loads` tell partitions apart, else each alike. `loads` holds the partitions
/// that have a leader and are not left out for slowness; `random` is spread evenly over all of its values.
pub(crate) fn next_sticky(partitions: Partitions<'_>, loads: &[Load], random: u32) -> u32 {
    let random = random & 0x7fff_ffff;
    let longest = loads.iter().map(|load| load.queued).max();
    let uneven = loads.iter().any(|load| Some(load.queued) != longest);
    match longest {
        Some(longest) if partitions.count >= 2 && (uneven || loads.len() < partitions.count as usize) => {
            // A queue of the longest length has weight 1, one that is n shorter n + 1.
            let weight = |load: &Load| u64::from(longest - load.queued) + 1;
            let sum: u64 = loads.iter().map(weight).sum();
            let mut rest = u64::from(random) % sum;
            for load in loads {
                match rest.checked_sub(weight(load)) {
                    Some(less) => rest = less,
                    None => return load.partition,
                }
            }
            partitions.uniform(random)
        }
        _ => partitions.uniform(random),
    }
}

/// Another partition than `previous`, if there is one: what a new batch asks for under [`Partitioning::UniformSticky`].
pub(crate) fn next_for_new_batch(partitions: Partitions<'_>, previous: Option<u32>, random: u32) -> u32 {
    let chosen = partitions.uniform(random);
    if Some(chosen) != previous || partitions.available.len() < 2 {
        return chosen;
    }
    let at = partitions.available.iter().position(|one| *one == chosen).unwrap_or(0);
    // Spread over the others by the bits that did not choose.
    let others = partitions.available.len() - 1;
    let step = 1 + (random as usize / partitions.available.len()) % others;
    partitions.available.get((at + step) % partitions.available.len()).copied().unwrap_or(chosen)
}

/// Where records without a key go at the moment, and how much of the current share is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sticky {
    /// `None` before the first record.
    pub(crate) partition: Option<u32>,
    produced_bytes: usize,
}

impl Sticky {
    /// From now on `partition`, with a whole share.
    pub(crate) fn switch_to(&mut self, partition: u32) {
        *self = Self { partition: Some(partition), produced_bytes: 0 };
    }

    /// Counts `bytes` that went to the partition. True when it is time to switch: a share of `batch_bytes` is used up and no
    /// batch is left half full (KIP-794: leaving one behind would halve the batches), or twice the share.
    pub(crate) fn on_appended(&mut self, bytes: usize, batch_bytes: usize, all_full: bool) -> bool {
        self.produced_bytes += bytes;
        self.produced_bytes >= batch_bytes && all_full || self.produced_bytes >= batch_bytes.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(queued: &[u32]) -> Vec<Load> {
        queued.iter().zip(0..).map(|(queued, partition)| Load { partition, queued: *queued }).collect()
    }

    const THREE: Partitions<'_> = Partitions { count: 3, available: &[0, 1, 2] };

    #[test]
    fn hashes_are_those_of_javas_tests() {
        let vectors: [(&[u8], i32); 6] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ];
        for (text, hash) in vectors {
            assert_eq!(murmur2(text).cast_signed(), hash, "{text:?}");
        }
        assert_eq!(partition_for_key(b"foobar", 7), (-790_332_482_i32 & i32::MAX) as u32 % 7);
    }

    #[test]
    fn weights_are_those_of_the_example_in_kafkas_source() {
        // Queues 0, 3, 1: weights 4, 1, 3.
        let queues = loads(&[0, 3, 1]);
        let chosen: Vec<u32> = (0..8).map(|random| next_sticky(THREE, &queues, random)).collect();
        assert_eq!(chosen, [0, 0, 0, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn equal_queues_are_chosen_alike_and_partitions_without_leader_never() {
        assert_eq!(
            (0..6).map(|random| next_sticky(THREE, &loads(&[2, 2, 2]), random)).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2]
        );
        let two = Partitions { count: 3, available: &[0, 2] };
        assert!((0..100).all(|random| next_sticky(two, &[], random) != 1));
        let none = Partitions { count: 3, available: &[] };
        assert_eq!((0..3).map(|random| next_sticky(none, &[], random)).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_partition_left_out_for_slowness_is_not_chosen_though_queues_are_even() {
        let without_1 = [Load { partition: 0, queued: 0 }, Load { partition: 2, queued: 0 }];
        assert!((0..100).all(|random| next_sticky(THREE, &without_1, random) != 1));
    }

    #[test]
    fn a_share_ends_with_a_full_batch_or_twice_over() {
        let mut sticky = Sticky::default();
        sticky.switch_to(1);
        assert!(!sticky.on_appended(99, 100, true));
        assert!(!sticky.on_appended(60, 100, false));
        assert!(sticky.on_appended(0, 100, true));
        assert!(sticky.on_appended(41, 100, false));
    }

    #[test]
    fn a_new_batch_goes_elsewhere_when_there_is_an_elsewhere() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut seen = [0; 3];
        for _ in 0..300 {
            let next = next_for_new_batch(THREE, Some(1), random.u32(..));
            seen[next as usize] += 1;
        }
        assert!(seen[0] > 100 && seen[1] == 0 && seen[2] > 100, "{seen:?}");
        let one = Partitions { count: 3, available: &[1] };
        assert_eq!(next_for_new_batch(one, Some(1), 5), 1);
    }
}
