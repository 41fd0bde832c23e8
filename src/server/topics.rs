//! Names of topics, and how requests name partitions.
//!
//! Pure. Owns the rule for legal names. Source: Kafka's `Topic`.

use std::collections::{HashMap, HashSet};

use crate::controller::image::{Image, PartitionImage, TopicImage};
use crate::types::{PartitionId, PartitionIndex};

/// Longest name of a topic.
const NAME_BYTES_MAX: usize = 249;

/// Whether a topic can have this name.
pub(super) fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(legal)
}

/// The partition a request names, if it is there.
pub(super) fn find<'i>(
    image: &'i Image,
    topic: &str,
    partition: i32,
) -> Option<(PartitionId, &'i TopicImage, &'i PartitionImage)> {
    let topic = image.topics.get(topic)?;
    let index = PartitionIndex::new(partition)?;
    let partition = topic.partitions.get(index.value() as usize)?;
    Some((PartitionId { topic_id: topic.id, partition: index }, topic, partition))
}

/// The names that occur more than once.
pub(super) fn duplicates<'a>(names: impl Iterator<Item = &'a str>) -> HashSet<&'a str> {
    let mut seen = HashSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

/// Partitions, each once. What a request names again is not answered again: an answer may be as long as a partition has
/// producers, or an offset metadata, for the few bytes that name it.
#[derive(Default)]
pub(super) struct Named<'r>(HashMap<&'r str, HashSet<i32>>);

impl<'r> Named<'r> {
    /// Adds it. Whether it is new.
    pub(super) fn insert(&mut self, topic: &'r str, partition: i32) -> bool {
        self.0.entry(topic).or_default().insert(partition)
    }

    /// Whether it is there.
    pub(super) fn contains(&self, topic: &str, partition: i32) -> bool {
        self.0.get(topic).is_some_and(|partitions| partitions.contains(&partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rule() {
        for good in ["a", "a.b_c-D9", "...", &"x".repeat(249)] {
            assert!(is_legal_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(!is_legal_name(bad), "{bad}");
        }
    }

    #[test]
    fn partitions_are_named_once() {
        let mut named = Named::default();
        let new = [("a", 0), ("b", 0), ("a", 1), ("a", 0)].map(|(topic, partition)| named.insert(topic, partition));
        assert_eq!(new, [true, true, true, false]);
        assert!(named.contains("a", 1) && !named.contains("b", 1) && !named.contains("c", 0));
    }

    #[test]
    fn names_given_twice_are_found() {
        assert_eq!(duplicates(["a", "b", "a", "a"].into_iter()), HashSet::from(["a"]));
    }
}
