//! The sticky assignor: as even as the subscriptions allow, and then as close to what was as that allows.
//!
//! Pure. Owns belief in claims, the filling and the evening out. Always true: afterwards no chain of moves, each from a
//! member to another subscriber of the topic, would bring two members' shares closer together; a partition leaves its
//! owner only along such a chain. Source: KIP-54 for the two aims and their order. Java's assignor moves single partitions
//! until that no longer helps and can end short of the best for unequal subscriptions; chains (shortest augmenting paths,
//! as in matching) cannot.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Claim, Member, Topics, in_order, partition_indexes};
use crate::types::TopicPartition;

/// What may change hands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Movable {
    /// Partitions that their holder did not have before.
    New,
    All,
}

/// Everything by number: members in their order, topics that anybody wants, partitions one after the other.
struct Table {
    /// For each topic its subscribers, in order.
    subscribers: Vec<Vec<usize>>,
    topic_of: Vec<usize>,
    /// Who has each partition.
    owner: Vec<Option<usize>>,
    /// Who had it before, if that is believed.
    before: Vec<Option<usize>>,
    /// For each member: the partitions it has of each topic.
    held: Vec<BTreeMap<usize, Vec<usize>>>,
    load: Vec<usize>,
}

pub(super) fn assign(topics: &Topics, members: &[Member], claims: &[Claim]) -> Vec<Vec<TopicPartition>> {
    let order = in_order(members);
    let (mut partitions, mut subscribers, mut topic_of) = (Vec::new(), Vec::new(), Vec::new());
    for (topic, racks) in topics {
        let wanting: Vec<usize> = (0..order.len()).filter(|&place| members[order[place]].wants(topic)).collect();
        if wanting.is_empty() {
            continue;
        }
        for partition in partition_indexes(racks.len()) {
            partitions.push(TopicPartition { topic: Arc::clone(topic), partition });
            topic_of.push(subscribers.len());
        }
        subscribers.push(wanting);
    }

    let mut table = Table {
        before: believed(&partitions, &order, claims, |place, partition| {
            subscribers[topic_of[partition]].binary_search(&place).is_ok()
        }),
        owner: vec![None; partitions.len()],
        held: vec![BTreeMap::new(); members.len()],
        load: vec![0; members.len()],
        subscribers,
        topic_of,
    };
    for partition in 0..partitions.len() {
        if let Some(place) = table.before[partition] {
            table.give(partition, place);
        }
    }
    table.fill();
    // What is new first: only what that cannot even out is taken from those who had it.
    table.even_out(Movable::New);
    table.even_out(Movable::All);

    let mut dealt = vec![Vec::new(); members.len()];
    for (partition, owner) in partitions.into_iter().zip(table.owner) {
        dealt[order[owner.expect("a topic in the table has a subscriber")]].push(partition);
    }
    dealt
}

/// Who had each partition: the claim of the newest generation. Two of the same generation contradict each other, and
/// neither is believed: both may be reading, and neither may go on without the other being stopped.
fn believed(
    partitions: &[TopicPartition],
    order: &[usize],
    claims: &[Claim],
    may_have: impl Fn(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let mut best: Vec<Option<(i32, Option<usize>)>> = vec![None; partitions.len()];
    for (place, &member) in order.iter().enumerate() {
        let claim = &claims[member];
        let generation = claim.generation.unwrap_or(-1);
        for partition in &claim.partitions {
            let Ok(index) = partitions.binary_search(partition) else { continue };
            best[index] = match best[index] {
                Some((newest, owner)) if newest > generation => Some((newest, owner)),
                Some((newest, _)) if newest == generation => Some((newest, None)),
                _ => Some((generation, Some(place))),
            };
        }
    }
    let owner = |(index, best): (usize, Option<(i32, Option<usize>)>)| {
        best.and_then(|(_, owner)| owner).filter(|place| may_have(*place, index))
    };
    best.into_iter().enumerate().map(owner).collect()
}

impl Table {
    fn give(&mut self, partition: usize, place: usize) {
        self.owner[partition] = Some(place);
        self.held[place].entry(self.topic_of[partition]).or_default().push(partition);
        self.load[place] += 1;
    }

    /// What nobody has goes to the subscriber with the least; topics that few want come first, while these have room.
    fn fill(&mut self) {
        let mut free: Vec<usize> = (0..self.owner.len()).filter(|&index| self.owner[index].is_none()).collect();
        free.sort_by_key(|&index| self.subscribers[self.topic_of[index]].len());
        for partition in free {
            let subscribers = &self.subscribers[self.topic_of[partition]];
            let least = subscribers.iter().copied().min_by_key(|&place| self.load[place]);
            self.give(partition, least.expect("a topic in the table has a subscriber"));
        }
    }

    /// Begins with those that have most. One from whom no chain leads to a lesser share is settled for good: whoever can be
    /// reached from it has as much, give or take one, and so no later chain passes through any of them.
    fn even_out(&mut self, movable: Movable) {
        let mut settled = vec![false; self.load.len()];
        let most = |load: &[usize], settled: &[bool]| {
            let open = (0..load.len()).filter(|&place| !settled[place]);
            open.max_by_key(|&place| (load[place], std::cmp::Reverse(place)))
        };
        while let Some(place) = most(&self.load, &settled) {
            match self.chain_from(place, movable) {
                Some(chain) => self.move_along(place, &chain),
                None => settled[place] = true,
            }
        }
    }

    /// The shortest chain of (topic, next member) from `start` to somebody who has at least two less.
    fn chain_from(&self, start: usize, movable: Movable) -> Option<Vec<(usize, usize)>> {
        let enough = self.load[start].checked_sub(2)?;
        let mut came_by: Vec<Option<(usize, usize)>> = vec![None; self.load.len()];
        let mut topic_seen = vec![false; self.subscribers.len()];
        let mut round = VecDeque::from([start]);
        while !round.is_empty() {
            let mut next_round = VecDeque::new();
            for from in round {
                for (&topic, partitions) in &self.held[from] {
                    let moves = movable == Movable::All || partitions.iter().any(|&one| self.before[one] != Some(from));
                    if !moves || std::mem::replace(&mut topic_seen[topic], true) {
                        continue;
                    }
                    for &to in &self.subscribers[topic] {
                        if to != start && came_by[to].is_none() {
                            came_by[to] = Some((from, topic));
                            next_round.push_back(to);
                        }
                    }
                }
            }
            let least = next_round.iter().copied().min_by_key(|&place| (self.load[place], place));
            if let Some(end) = least.filter(|&place| self.load[place] <= enough) {
                let mut chain = Vec::new();
                let mut at = end;
                while at != start {
                    let (from, topic) = came_by[at].expect("the search came this way");
                    chain.push((topic, at));
                    at = from;
                }
                chain.reverse();
                return Some(chain);
            }
            round = next_round;
        }
        None
    }

    fn move_along(&mut self, start: usize, chain: &[(usize, usize)]) {
        let mut from = start;
        for &(topic, to) in chain {
            let partition = self.choose(topic, from, to);
            let held = self.held[from].get_mut(&topic).expect("the chain leads over what it has");
            held.retain(|&other| other != partition);
            if held.is_empty() {
                self.held[from].remove(&topic);
            }
            self.load[from] -= 1;
            self.give(partition, to);
            from = to;
        }
    }

    /// Best one that `to` had before, then one that is new to `from`, then the last.
    fn choose(&self, topic: usize, from: usize, to: usize) -> usize {
        let rank = |partition: usize| match self.before[partition] {
            Some(before) if before == to => 2,
            Some(before) if before == from => 0,
            _ => 1,
        };
        let held = self.held[from][&topic].iter().copied();
        held.max_by_key(|&partition| (rank(partition), partition)).expect("empty lists are taken out")
    }
}
