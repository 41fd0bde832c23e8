//! Which shard owns a partition, and how a request splits over shards.
//!
//! Pure. Owns no state: the owner is a function of the partition's id and the number of shards alone, so every core finds
//! it without asking anyone, and a restart with as many shards finds the same owner. Source: rendezvous (highest random
//! weight) hashing, Thaler and Ravishankar 1996.

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

/// The items of one request grouped by owner, each group in request order and each item with its place in the request.
#[derive(Debug, PartialEq, Eq)]
pub struct Split<T> {
    groups: Vec<(ShardIndex, Vec<usize>, Vec<T>)>,
    count: usize,
}

impl<T> Split<T> {
    /// Groups `items` by `owner_of`. Groups stand in the order of their first item.
    pub fn new(items: impl IntoIterator<Item = T>, owner_of: impl Fn(&T) -> ShardIndex) -> Self {
        let mut split = Self { groups: Vec::new(), count: 0 };
        for item in items {
            let owner = owner_of(&item);
            let place = split.count;
            split.count += 1;
            match split.groups.iter_mut().find(|(shard, ..)| *shard == owner) {
                Some((_, places, group)) => {
                    places.push(place);
                    group.push(item);
                }
                None => split.groups.push((owner, vec![place], vec![item])),
            }
        }
        split
    }

    /// The groups to be sent out, and the frame their answers are joined in.
    pub fn into_groups(self) -> (Vec<(ShardIndex, Vec<T>)>, Places) {
        let (mut groups, mut places) = (Vec::with_capacity(self.groups.len()), Vec::with_capacity(self.groups.len()));
        for (shard, group_places, group) in self.groups {
            groups.push((shard, group));
            places.push(group_places);
        }
        (groups, Places { places, count: self.count })
    }
}

/// Where the answers of each group belong in the request.
#[derive(Debug, PartialEq, Eq)]
pub struct Places {
    places: Vec<Vec<usize>>,
    count: usize,
}

impl Places {
    /// The places of each group's items.
    pub fn groups(&self) -> impl Iterator<Item = &[usize]> {
        self.places.iter().map(Vec::as_slice)
    }

    /// Puts the answers back into request order. `answers` has one entry a group, each as long as its group.
    pub fn join<A>(&self, answers: Vec<Vec<A>>) -> Vec<A> {
        let mut joined: Vec<Option<A>> = Vec::new();
        joined.resize_with(self.count, || None);
        assert_eq!(answers.len(), self.places.len(), "one list of answers a group");
        for (places, answers) in self.places.iter().zip(answers) {
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
        let (groups, places) = Split::new([10, 21, 12, 33, 20], |item| item % 10).into_groups();
        assert_eq!(groups, [(0, vec![10, 20]), (1, vec![21]), (2, vec![12]), (3, vec![33])]);
        let answers = groups.into_iter().map(|(_, group)| group).collect();
        assert_eq!(places.join(answers), [10, 21, 12, 33, 20]);
    }
}
