//! How a group's partitions are dealt out: range, round-robin, sticky, cooperative-sticky.
//!
//! Pure. Owns the names, the order of members, round-robin, and the step that makes a sticky assignment cooperative; the
//! siblings own [`range`], [`sticky`] and the [`wire`] form of what members tell each other. Always true: each partition
//! of a subscribed topic goes to exactly one of its subscribers (cooperative-sticky may keep one back for a round), and
//! the answer depends on what is given alone, not on its order: any member may lead. Source: KIP-54 (sticky), KIP-429
//! (cooperative), KIP-345 (static members keep their place), KIP-792 (generation), KIP-881 (racks), and Java's assignors,
//! with which these share groups.

mod range;
mod sticky;
#[cfg(test)]
mod tests;
/// Subscriptions and assignments as they travel.
pub mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::types::{PartitionIndex, TopicName, TopicPartition};

/// A rack's name.
pub type Rack = Arc<str>;

/// The topics there are: for each partition, in the order of their numbers, the racks of its replicas (none: unknown).
pub type Topics = BTreeMap<TopicName, Vec<BTreeSet<Rack>>>;

/// What a member wants and has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subscription {
    /// What it reads.
    pub topics: BTreeSet<TopicName>,
    /// Of its assignor; others do not look at it.
    pub user_data: Option<Bytes>,
    /// What it still reads while it joins: all it has under a cooperative protocol, nothing under an eager one.
    pub owned: BTreeSet<TopicPartition>,
    /// In which generation it got `owned`. `None` before the first, and from members too old to say.
    pub generation: Option<i32>,
    /// Where it stands.
    pub rack: Option<Rack>,
}

/// A member as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Member {
    /// Its id, which the coordinator gave.
    pub id: Arc<str>,
    /// Its `group.instance.id`, if it is static.
    pub instance: Option<Arc<str>>,
    /// What it said.
    pub subscription: Subscription,
}

impl Member {
    /// Static members first, by the name that outlives a restart: so they get the same again.
    fn place(&self) -> (bool, &str, &str) {
        (self.instance.is_none(), self.instance.as_deref().unwrap_or_default(), &self.id)
    }

    fn wants(&self, topic: &TopicName) -> bool {
        self.subscription.topics.contains(topic)
    }
}

/// Whether members give up everything before a rebalance, or only what moves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RebalanceProtocol {
    /// Everything is given up, then dealt out anew.
    Eager,
    /// What stays is kept; what moves is given up first and dealt out in a second round (KIP-429).
    Cooperative,
}

/// One way of dealing out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Assignor {
    /// Topic by topic, neighbouring partitions to one member; topics of equal size and subscribers fall alike, so that
    /// joined data meets.
    Range,
    /// Partition by partition in turn.
    RoundRobin,
    /// As even as can be, and of these as close to what was.
    Sticky,
    /// [`Assignor::Sticky`] under the cooperative protocol.
    CooperativeSticky,
}

/// A name that is no assignor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no assignor; there are range, roundrobin, sticky and cooperative-sticky")]
pub struct UnknownAssignor(pub String);

impl Assignor {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Range, Self::RoundRobin, Self::Sticky, Self::CooperativeSticky];

    /// The name that members compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::Sticky => "sticky",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Reads [`Assignor::name`], and Java's class names, with or without their package, as `partition.assignment.strategy`
    /// has them. Errors: any other text.
    pub fn parse(text: &str) -> Result<Self, UnknownAssignor> {
        let class = text.trim().rsplit('.').next().unwrap_or_default();
        Self::ALL
            .into_iter()
            .find(|assignor| class == assignor.name() || class == assignor.class())
            .ok_or_else(|| UnknownAssignor(text.to_owned()))
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Range => "RangeAssignor",
            Self::RoundRobin => "RoundRobinAssignor",
            Self::Sticky => "StickyAssignor",
            Self::CooperativeSticky => "CooperativeStickyAssignor",
        }
    }

    /// The best protocol it can work under.
    pub const fn protocol(self) -> RebalanceProtocol {
        match self {
            Self::Range | Self::RoundRobin | Self::Sticky => RebalanceProtocol::Eager,
            Self::CooperativeSticky => RebalanceProtocol::Cooperative,
        }
    }

    /// The protocol of a member that offers all of these: the best that each of them knows, so that it need not know which
    /// one the group will choose.
    pub fn common_protocol(offered: &[Self]) -> RebalanceProtocol {
        offered.iter().map(|assignor| assignor.protocol()).min().unwrap_or(RebalanceProtocol::Eager)
    }

    /// What a member says to the assignor that will lead: sticky ones hear what it had and since when. `had` is the last
    /// assignment, also when it was given up since; `generation` is the one it came with.
    pub fn user_data(self, had: &BTreeSet<TopicPartition>, generation: Option<i32>) -> Option<Bytes> {
        match self {
            Self::Range | Self::RoundRobin => None,
            Self::Sticky if had.is_empty() => None,
            Self::Sticky => Some(wire::encode_sticky_data(had, generation)),
            Self::CooperativeSticky => Some(wire::encode_cooperative_data(generation)),
        }
    }

    /// Deals out. The answer has one entry for each of `members`, in their order, each sorted. Topics that do not exist
    /// are passed over.
    pub fn assign(self, topics: &Topics, members: &[Member]) -> Vec<Vec<TopicPartition>> {
        let mut dealt = match self {
            Self::Range => range::assign(topics, members),
            Self::RoundRobin => round_robin(topics, members),
            Self::Sticky => sticky::assign(topics, members, &sticky_claims(members)),
            Self::CooperativeSticky => {
                let dealt = sticky::assign(topics, members, &cooperative_claims(members));
                without_partitions_in_hand(members, dealt)
            }
        };
        for partitions in &mut dealt {
            partitions.sort_unstable();
        }
        dealt
    }
}

impl fmt::Display for Assignor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a member says it had, and in which generation; the newest is believed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Claim {
    partitions: BTreeSet<TopicPartition>,
    generation: Option<i32>,
}

/// An eager member has given up everything by the time it joins: what it had stands in its user data. Data that cannot be
/// read is no data, as in Java: the member gets a share all the same.
fn sticky_claims(members: &[Member]) -> Vec<Claim> {
    let claim = |member: &Member| {
        let data = member.subscription.user_data.as_deref()?;
        let (partitions, generation) = wire::decode_sticky_data(data).ok()?;
        Some(Claim { partitions, generation })
    };
    members.iter().map(|member| claim(member).unwrap_or_default()).collect()
}

/// The generation of members before version 2 of the subscription stands in their user data.
fn cooperative_claims(members: &[Member]) -> Vec<Claim> {
    let generation = |member: &Member| {
        let from_data = || wire::decode_cooperative_data(member.subscription.user_data.as_deref()?).ok()?;
        member.subscription.generation.or_else(from_data)
    };
    members
        .iter()
        .map(|member| Claim { partitions: member.subscription.owned.clone(), generation: generation(member) })
        .collect()
}

/// Takes out what another member still reads: that one gives it up first, joins again, and the next round deals it out.
fn without_partitions_in_hand(members: &[Member], mut dealt: Vec<Vec<TopicPartition>>) -> Vec<Vec<TopicPartition>> {
    let mut holders: BTreeMap<&TopicPartition, Vec<usize>> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for partition in &member.subscription.owned {
            holders.entry(partition).or_default().push(index);
        }
    }
    for (index, partitions) in dealt.iter_mut().enumerate() {
        partitions.retain(|partition| holders.get(partition).is_none_or(|holders| holders.contains(&index)));
    }
    dealt
}

/// Members in the order of [`Member::place`], as indexes into `members`.
fn in_order(members: &[Member]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| members[*a].place().cmp(&members[*b].place()));
    order
}

fn round_robin(topics: &Topics, members: &[Member]) -> Vec<Vec<TopicPartition>> {
    let mut dealt = vec![Vec::new(); members.len()];
    let order = in_order(members);
    let mut next = 0;
    for (topic, partitions) in topics {
        if !members.iter().any(|member| member.wants(topic)) {
            continue;
        }
        for index in partition_indexes(partitions.len()) {
            while !members[order[next]].wants(topic) {
                next = (next + 1) % order.len();
            }
            dealt[order[next]].push(TopicPartition { topic: Arc::clone(topic), partition: index });
            next = (next + 1) % order.len();
        }
    }
    dealt
}

/// 0 up to `count`, which is a number of partitions that exist.
fn partition_indexes(count: usize) -> impl Iterator<Item = PartitionIndex> {
    (0..count).map(|index| {
        let index = i32::try_from(index).ok().and_then(PartitionIndex::new);
        index.expect("a topic has fewer than 2^31 partitions")
    })
}
