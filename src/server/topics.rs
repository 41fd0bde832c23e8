//! Names of topics, and how requests name partitions.
//!
//! Pure. Owns the rule for legal names. Source: Kafka's `Topic`.

use std::collections::HashSet;

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
    fn names_given_twice_are_found() {
        assert_eq!(duplicates(["a", "b", "a", "a"].into_iter()), HashSet::from(["a"]));
    }
}
