//! The range assignor: for each topic, neighbouring partitions to members in their order.
//!
//! Pure. Owns the quotas and the matching of racks. Always true: of each topic the first members get one partition more
//! where it does not divide evenly; without racks, topics with equal numbers of partitions and equal subscribers are dealt
//! out alike. Racks count only if some members and some replicas stand in the same one and not every partition has
//! replicas in all: then a member first gets what lies in its rack, within the same quotas, and topics that would have been
//! dealt out alike still are. Source: KIP-881 and Java's RangeAssignor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Member, Rack, Topics, in_order, partition_indexes};
use crate::types::{TopicName, TopicPartition};

/// One topic while it is dealt out.
struct Deal<'a> {
    topic: &'a TopicName,
    racks: &'a [BTreeSet<Rack>],
    /// Its subscribers in order, and how many partitions each has got.
    takers: Vec<(usize, usize)>,
    /// Partitions that each gets at least.
    quota: usize,
    /// How many get one more.
    extras: usize,
    /// Who got it.
    owner: Vec<Option<usize>>,
    matches_racks: bool,
}

pub(super) fn assign(topics: &Topics, members: &[Member]) -> Vec<Vec<TopicPartition>> {
    let order = in_order(members);
    let mut deals: Vec<Deal<'_>> =
        topics.iter().filter_map(|(topic, racks)| Deal::begin(topic, racks, members, &order)).collect();

    if deals.iter().any(|deal| deal.matches_racks) {
        // Topics that fall alike without racks are to fall alike with them.
        let mut alike: BTreeMap<(Vec<usize>, usize), Vec<usize>> = BTreeMap::new();
        for (index, deal) in deals.iter().enumerate() {
            let takers = deal.takers.iter().map(|(member, _)| *member).collect();
            alike.entry((takers, deal.racks.len())).or_default().push(index);
        }
        for indexes in alike.into_values() {
            match indexes[..] {
                [index] if deals[index].matches_racks => deals[index].take_ranges(members, RackRule::Same),
                [_] => {}
                _ => take_together(&mut deals, &indexes, members),
            }
        }
    }

    let mut dealt = vec![Vec::new(); members.len()];
    for mut deal in deals {
        deal.take_ranges(members, RackRule::Any);
        for (partition, owner) in partition_indexes(deal.racks.len()).zip(&deal.owner) {
            let owner = owner.expect("the quotas add up to the number of partitions");
            dealt[owner].push(TopicPartition { topic: Arc::clone(deal.topic), partition });
        }
    }
    dealt
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RackRule {
    Same,
    Any,
}

/// Partition by partition, for all these topics at once, to the first member whose rack has a replica in each.
fn take_together(deals: &mut [Deal<'_>], indexes: &[usize], members: &[Member]) {
    let first = &deals[indexes[0]];
    let takers: Vec<usize> = first.takers.iter().map(|(member, _)| *member).collect();
    for partition in 0..first.racks.len() {
        let fits = |place: &usize| {
            let member = takers[*place];
            indexes
                .iter()
                .all(|&index| deals[index].room_of(*place) > 0 && deals[index].in_rack_of(&members[member], partition))
        };
        let Some(place) = (0..takers.len()).find(fits) else { continue };
        for &index in indexes {
            deals[index].give(partition, place);
        }
    }
}

impl<'a> Deal<'a> {
    /// `None` if nobody wants the topic.
    fn begin(topic: &'a TopicName, racks: &'a [BTreeSet<Rack>], members: &[Member], order: &[usize]) -> Option<Self> {
        let takers: Vec<(usize, usize)> =
            order.iter().filter(|index| members[**index].wants(topic)).map(|index| (*index, 0)).collect();
        if takers.is_empty() {
            return None;
        }
        let of_members: BTreeSet<&Rack> =
            takers.iter().filter_map(|(index, _)| members[*index].subscription.rack.as_ref()).collect();
        let of_replicas: BTreeSet<&Rack> = racks.iter().flatten().collect();
        let everywhere = racks.iter().all(|racks| racks.len() == of_replicas.len());
        Some(Self {
            topic,
            racks,
            quota: racks.len() / takers.len(),
            extras: racks.len() % takers.len(),
            takers,
            owner: vec![None; racks.len()],
            matches_racks: !of_members.is_disjoint(&of_replicas) && !everywhere,
        })
    }

    /// Topics whose racks say nothing fit everybody.
    fn in_rack_of(&self, member: &Member, partition: usize) -> bool {
        let rack = member.subscription.rack.as_ref();
        !self.matches_racks || rack.is_none_or(|rack| self.racks[partition].contains(rack))
    }

    /// How many more the taker at `place` may get.
    fn room_of(&self, place: usize) -> usize {
        (self.quota + usize::from(self.extras > 0)).saturating_sub(self.takers[place].1)
    }

    fn give(&mut self, partition: usize, place: usize) {
        let (member, taken) = &mut self.takers[place];
        self.owner[partition] = Some(*member);
        *taken += 1;
        self.extras -= usize::from(*taken > self.quota);
    }

    fn take_ranges(&mut self, members: &[Member], rule: RackRule) {
        for place in 0..self.takers.len() {
            let member = &members[self.takers[place].0];
            let room = self.room_of(place);
            let free: Vec<usize> = (0..self.owner.len())
                .filter(|&index| self.owner[index].is_none())
                .filter(|&index| rule == RackRule::Any || self.in_rack_of(member, index))
                .take(room)
                .collect();
            for partition in free {
                self.give(partition, place);
            }
        }
    }
}
