//! The partitions that a request names: each once, and very many of them a part at a time.
//!
//! Shell. Owns nothing. Always: what a list of partitions costs does not depend on how long the name of their topic is; others
//! have their turn within a list of any length.

use std::collections::{HashMap, HashSet};

use crate::server::Server;

/// Elements of a list between two turns of others: less than a millisecond of work.
pub(super) const ELEMENTS_AT_ONCE: usize = 4096;

/// Partitions, each once. What a request names again is not answered again: an answer may be as long as a partition has
/// producers, or an offset metadata, for the few bytes that name it.
#[derive(Default)]
pub(super) struct Named<'r>(HashMap<&'r str, HashSet<i32>>);

impl<'r> Named<'r> {
    /// Those of a topic: to be looked up once for all of them, because a name may have 32 KiB.
    pub(super) fn of(&mut self, topic: &'r str) -> &mut HashSet<i32> {
        self.0.entry(topic).or_default()
    }

    /// Those of a topic, if it was named.
    pub(super) fn get(&self, topic: &str) -> Option<&HashSet<i32>> {
        self.0.get(topic)
    }
}

/// Keeps the partitions that are not `seen` yet, and adds them; `again` hears of the others.
pub(super) async fn keep_new<P>(
    server: &Server,
    seen: &mut HashSet<i32>,
    partitions: &mut Vec<P>,
    index: impl Fn(&P) -> i32,
    mut again: impl FnMut(i32),
) {
    let mut rest = std::mem::take(partitions).into_iter();
    while rest.len() > 0 {
        for partition in rest.by_ref().take(ELEMENTS_AT_ONCE) {
            let index = index(&partition);
            if seen.insert(index) { partitions.push(partition) } else { again(index) }
        }
        server.shard().net().give_way().await;
    }
}

/// What `answer` gives for each element of a list.
pub(super) async fn answer_each<P, A>(server: &Server, list: &[P], mut answer: impl FnMut(&P) -> A) -> Vec<A> {
    let mut answers = Vec::with_capacity(list.len());
    for some in list.chunks(ELEMENTS_AT_ONCE) {
        answers.extend(some.iter().map(&mut answer));
        server.shard().net().give_way().await;
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_once() {
        let mut named = Named::default();
        let new = [("a", 0), ("b", 0), ("a", 1), ("a", 0)].map(|(topic, partition)| named.of(topic).insert(partition));
        assert_eq!(new, [true, true, true, false]);
        assert_eq!(named.get("a"), Some(&HashSet::from([0, 1])));
        assert_eq!(named.get("c"), None);
    }
}
