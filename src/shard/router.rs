//! Which shard owns a partition, and how a request splits over shards.
//!
//! Pure. Owns no state: the owner is a function of the partition's id and the number of shards alone, so every core finds
//! it without asking anyone, and a restart with as many shards finds the same owner. Always: each item of a request is in
//! one group, and its answer comes back to its own place. Source: rendezvous (highest random weight) hashing, Thaler and
//! Ravishankar 1996.

use std::ops::Deref;

use smallvec::{SmallVec, smallvec};

use crate::types::{PartitionId, ShardIndex};

/// The shard that owns `partition` among `shards` (at least one): the one with the largest weight. When a shard is added,
/// only the partitions it wins move.
pub fn owner(partition: PartitionId, shards: usize) -> ShardIndex {
    assert!(shards > 0, "there is at least one shard");
    (0..shards).max_by_key(|shard| weight(partition, *shard)).expect("the range is not empty")
}

fn weight(partition: PartitionId, shard: ShardIndex) -> u64 {
    let id = u128::from_be_bytes(partition.topic_id.to_bytes());
    let mut hash = mix(id as u64 ^ (id >> 64) as u64);
    hash = mix(hash ^ partition.partition.value() as u64);
    mix(hash ^ shard as u64)
}

/// A bijection that spreads every input bit over all output bits (the finalizer of SplitMix64).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The items of one request, in whatever list they come, grouped by owner: each group in request order, the groups in the
/// order of their first item. Most requests have one owner: their items stay where they are.
pub fn split<T, L>(items: L, owner_of: impl Fn(&T) -> ShardIndex) -> (Groups<L>, Places)
where
    L: Deref<Target = [T]> + Default + Extend<T> + IntoIterator<Item = T>,
{
    let Some(first) = items.first().map(&owner_of) else { return (Groups::new(), Places::default()) };
    let count = items.len();
    if items.iter().all(|item| owner_of(item) == first) {
        return (smallvec![(first, items)], Places { groups: smallvec![(0..count).collect()], count });
    }
    let (mut groups, mut places) = (Groups::<L>::new(), Places { groups: SmallVec::new(), count });
    for (place, item) in items.into_iter().enumerate() {
        let owner = owner_of(&item);
        match groups.iter().position(|(shard, _)| *shard == owner) {
            Some(known) => {
                groups[known].1.extend([item]);
                places.groups[known].push(place);
            }
            None => {
                let mut group = L::default();
                group.extend([item]);
                groups.push((owner, group));
                places.groups.push(smallvec![place]);
            }
        }
    }
    (groups, places)
}

/// Lists of items by owner.
pub type Groups<L> = SmallVec<[(ShardIndex, L); 1]>;

/// Where the answers of each group belong in the request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    groups: SmallVec<[SmallVec<[usize; 4]>; 1]>,
    count: usize,
}

impl Places {
    /// The places of each group's items.
    pub fn groups(&self) -> impl Iterator<Item = &[usize]> {
        self.groups.iter().map(SmallVec::as_slice)
    }

    /// Puts the answers back into request order. `answers` has one entry a group, each as long as its group.
    pub fn join<A>(&self, answers: impl IntoIterator<Item = Vec<A>>) -> Vec<A> {
        let mut answers = answers.into_iter();
        if let [_] = &*self.groups {
            let answers = answers.next().expect("one list of answers a group");
            assert_eq!(answers.len(), self.count, "one answer an item");
            return answers;
        }
        let mut joined: Vec<Option<A>> = Vec::new();
        joined.resize_with(self.count, || None);
        for places in &self.groups {
            let answers = answers.next().expect("one list of answers a group");
            assert_eq!(answers.len(), places.len(), "one answer an item");
            for (place, answer) in places.iter().zip(answers) {
                joined[*place] = Some(answer);
            }
        }
        joined.into_iter().map(|answer| answer.expect("every place belongs to one group")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{PartitionIndex, TopicId};

    fn partition(topic: u128, index: i32) -> PartitionId {
        PartitionId {
            topic_id: TopicId::from_bytes(topic.to_be_bytes()),
            partition: PartitionIndex::new(index).unwrap(),
        }
    }

    #[test]
    fn partitions_of_one_topic_spread_over_all_shards() {
        let mut counts = [0_u32; 4];
        for index in 0..4000 {
            counts[owner(partition(7, index), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_new_shard_takes_only_what_it_wins() {
        for index in 0..1000 {
            let (before, after) = (owner(partition(9, index), 3), owner(partition(9, index), 4));
            assert!(after == before || after == 3);
        }
    }

    #[test]
    fn answers_return_to_the_order_of_the_request() {
        let (groups, places) = split(vec![10, 21, 12, 33, 20], |item| item % 10);
        assert_eq!(groups.as_slice(), [(0, vec![10, 20]), (1, vec![21]), (2, vec![12]), (3, vec![33])]);
        assert_eq!(places.join(groups.into_iter().map(|(_, group)| group)), [10, 21, 12, 33, 20]);
    }

    #[test]
    fn one_owner_or_none_is_one_group_or_none() {
        let (groups, places) = split(vec![5, 15], |_| 3);
        assert_eq!(groups.as_slice(), [(3, vec![5, 15])]);
        assert_eq!(places.join(groups.into_iter().map(|(_, group)| group)), [5, 15]);
        let (groups, places) = split(Vec::<u8>::new(), |_| 3);
        assert!(groups.is_empty());
        assert_eq!(places.join(Vec::<Vec<u8>>::new()), Vec::<u8>::new());
    }
}
