//! The members of one classic group: who they are, what they support, who leads, who waits.
//!
//! Pure. Owns the book-keeping of members, so that its counts and indexes cannot drift from them; not the rules of
//! rebalancing, which are in `group`. Always: what [`Roster::check`] walks. Order is by member id, so every choice made by
//! going through the members is the same in every run. Source: KIP-62 (timeouts), KIP-345 (static members);
//! ConsumerProtocolSubscription v0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::command::{MemberId, Protocol, Ticket};
use super::records::Fields;
use crate::types::TopicName;

/// A member. Times are on the coordinator's monotonic clock.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) instance_id: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_timeout: Duration,
    /// In order of preference. A loaded member has only the protocol of its last generation: that is all the log keeps.
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    pub(super) awaiting_sync: Option<Ticket>,
    /// In its first join: it has no id to heartbeat with yet, so its session bounds the wait itself.
    pub(super) is_new: bool,
    /// `None` once it passed while the member waited for us: armed again when it is answered.
    pub(super) session_ends: Option<Duration>,
    /// Counted: set and taken by the roster alone.
    pub(super) awaiting_join: Option<Ticket>,
}

impl Member {
    /// A member that waits for nothing and has no share.
    pub(super) fn new(id: MemberId, protocols: Vec<Protocol>, session_timeout: Duration) -> Self {
        Self {
            id,
            instance_id: None,
            client_id: Arc::default(),
            client_host: Arc::default(),
            rebalance_timeout: session_timeout,
            session_timeout,
            protocols,
            assignment: Bytes::new(),
            awaiting_sync: None,
            is_new: false,
            session_ends: None,
            awaiting_join: None,
        }
    }

    /// Whether its join waits for the generation to begin.
    pub(super) fn awaits_join(&self) -> bool {
        self.awaiting_join.is_some()
    }

    /// Whether the end of the session means nothing: a waiting member cannot heartbeat. New ones may expire all the same,
    /// else clients that gave up joining would pile up in a long rebalance (KAFKA-7610).
    pub(super) fn is_excused(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// The metadata for `protocol`; empty if the member does not support it.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols.iter().find(|own| &*own.name == protocol).map(|own| own.metadata.clone()).unwrap_or_default()
    }

    /// The names it supports, each once: a client may send one twice.
    fn protocol_names(&self) -> BTreeSet<&Arc<str>> {
        self.protocols.iter().map(|protocol| &protocol.name).collect()
    }
}

/// What a member that was taken out was waiting for.
#[derive(Debug)]
pub(super) struct Dismissed {
    pub(super) id: MemberId,
    pub(super) join: Option<Ticket>,
    pub(super) sync: Option<Ticket>,
}

/// All members of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    members: BTreeMap<MemberId, Member>,
    /// Instance id to member id.
    static_ids: BTreeMap<Arc<str>, MemberId>,
    /// How many members support each protocol.
    supported: BTreeMap<Arc<str>, usize>,
    /// `None` exactly when there are no members.
    leader: Option<MemberId>,
    /// How many wait for their join's answer.
    awaiting_join: usize,
}

impl Roster {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn get(&self, id: &MemberId) -> Option<&Member> {
        self.members.get(id)
    }

    /// To change anything but what is counted here: protocols and the awaited join have ways of their own.
    pub(super) fn get_mut(&mut self, id: &MemberId) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.values_mut()
    }

    /// The members, with `instead` in the place of the member of that id.
    pub(super) fn iter_with<'a>(
        &'a self,
        instead: Option<(&'a MemberId, &'a Member)>,
    ) -> impl Iterator<Item = &'a Member> {
        self.members.values().map(move |member| match instead {
            Some((id, other)) if *id == member.id => other,
            _ => member,
        })
    }

    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.members.keys().cloned().collect()
    }

    /// Who holds a static member's instance id.
    pub(super) fn holder(&self, instance_id: &Arc<str>) -> Option<&MemberId> {
        self.static_ids.get(instance_id)
    }

    pub(super) fn leader(&self) -> Option<&MemberId> {
        self.leader.as_ref()
    }

    pub(super) fn leads(&self, id: &MemberId) -> bool {
        self.leader.as_ref() == Some(id)
    }

    /// How many wait for their join's answer.
    pub(super) fn awaiting_join(&self) -> usize {
        self.awaiting_join
    }

    /// The longest any member may take to rejoin.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Whether every member supports `protocol`; anything goes among none.
    pub(super) fn all_support(&self, protocol: &Arc<str>) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// The protocol most members prefer among those all support; on a tie the first by name. `instead` as in
    /// [`Roster::iter_with`].
    pub(super) fn vote(&self, instead: Option<(&MemberId, &Member)>) -> Option<Arc<str>> {
        let voters: Vec<&Member> = self.iter_with(instead).collect();
        let mut supporters = BTreeMap::<&Arc<str>, usize>::new();
        for name in voters.iter().flat_map(|member| member.protocol_names()) {
            *supporters.entry(name).or_default() += 1;
        }
        let mut votes = BTreeMap::<&Arc<str>, usize>::new();
        for member in &voters {
            let favourite = member.protocols.iter().find(|own| supporters.get(&own.name) == Some(&voters.len()));
            *votes.entry(&favourite?.name).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|&(_, count)| count == most).map(|(name, _)| name.clone())
    }

    /// The topics all subscriptions for `protocol` name together; `None` if one of them cannot be read.
    pub(super) fn subscriptions(&self, protocol: &str) -> Option<BTreeSet<TopicName>> {
        let mut all = BTreeSet::new();
        for member in self.members.values() {
            all.extend(subscribed_topics(&member.metadata(protocol))?);
        }
        Some(all)
    }

    /// Adds a member whose id is new here; the first one leads.
    pub(super) fn insert(&mut self, member: Member) {
        assert!(!self.members.contains_key(&member.id), "member {} is already here", member.id);
        if let Some(instance_id) = &member.instance_id {
            self.static_ids.insert(instance_id.clone(), member.id.clone());
        }
        self.leader.get_or_insert_with(|| member.id.clone());
        self.awaiting_join += usize::from(member.awaits_join());
        self.count(&member);
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member out; if it led, the first of the others leads until a better choice is made.
    pub(super) fn remove(&mut self, id: &MemberId) -> Option<Dismissed> {
        let member = self.members.remove(id)?;
        self.uncount(&member);
        self.awaiting_join -= usize::from(member.awaits_join());
        if let Some(instance_id) = &member.instance_id
            && self.static_ids.get(instance_id) == Some(id)
        {
            self.static_ids.remove(instance_id);
        }
        if self.leads(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(Dismissed { id: member.id, join: member.awaiting_join, sync: member.awaiting_sync })
    }

    /// Puts `member` in the place of `old_id`, its lead included.
    pub(super) fn replace(&mut self, old_id: &MemberId, member: Member) -> Option<Dismissed> {
        let led = self.leads(old_id);
        let dismissed = self.remove(old_id);
        let new_id = member.id.clone();
        self.insert(member);
        if led {
            self.leader = Some(new_id);
        }
        dismissed
    }

    pub(super) fn set_protocols(&mut self, id: &MemberId, protocols: Vec<Protocol>) {
        let mut member = self.members.remove(id).expect("only members change their protocols");
        self.uncount(&member);
        member.protocols = protocols;
        self.count(&member);
        self.members.insert(member.id.clone(), member);
    }

    /// `id` leads from now on, if it is a member.
    pub(super) fn set_leader(&mut self, id: &MemberId) {
        if self.members.contains_key(id) {
            self.leader = Some(id.clone());
        }
    }

    /// Unless the leader waits to join, the first member that does leads.
    pub(super) fn elect_joined_leader(&mut self) {
        if !self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(Member::awaits_join)
            && let Some(member) = self.members.values().find(|member| member.awaits_join())
        {
            self.leader = Some(member.id.clone());
        }
    }

    /// A join waits for the generation to begin. Returns the one that waited for this member before.
    pub(super) fn await_join(&mut self, id: &MemberId, ticket: Ticket) -> Option<Ticket> {
        let member = self.members.get_mut(id).expect("only members await a generation");
        let older = member.awaiting_join.replace(ticket);
        self.awaiting_join += usize::from(older.is_none());
        older
    }

    /// The waiting join of a member, to be answered.
    pub(super) fn take_join(&mut self, id: &MemberId) -> Option<Ticket> {
        let taken = self.members.get_mut(id)?.awaiting_join.take();
        self.awaiting_join -= usize::from(taken.is_some());
        taken
    }

    fn count(&mut self, member: &Member) {
        for name in member.protocol_names() {
            *self.supported.entry(name.clone()).or_default() += 1;
        }
    }

    fn uncount(&mut self, member: &Member) {
        for name in member.protocol_names() {
            let count = self.supported.get_mut(name).expect("counted when it came");
            *count -= 1;
            if *count == 0 {
                self.supported.remove(name);
            }
        }
    }

    /// Walks every invariant; panics with the one that does not hold.
    pub(super) fn check(&self) {
        let waiting = self.members.values().filter(|member| member.awaits_join()).count();
        assert_eq!(waiting, self.awaiting_join, "count of members awaiting a join");
        let mut supported = BTreeMap::<Arc<str>, usize>::new();
        for (id, member) in &self.members {
            assert_eq!(*id, member.id);
            assert!(!member.awaits_join() || member.awaiting_sync.is_none(), "{id} waits twice");
            if let Some(instance_id) = &member.instance_id {
                assert_eq!(self.static_ids.get(instance_id), Some(id), "{id} does not hold {instance_id}");
            }
            member.protocol_names().into_iter().for_each(|name| *supported.entry(name.clone()).or_default() += 1);
        }
        assert_eq!(supported, self.supported, "counts of protocols");
        assert!(self.static_ids.values().all(|id| self.members.contains_key(id)), "an instance id of nobody");
        assert_eq!(self.leader.is_some(), !self.members.is_empty(), "a group with members has a leader, and only it");
        assert!(self.leader.iter().all(|leader| self.members.contains_key(leader)), "the leader is a member");
    }
}

/// The topics in the subscription of one consumer. Every version of the format begins as version 0 does.
/// `None` if the bytes are no subscription: then nobody knows what the group reads.
fn subscribed_topics(subscription: &[u8]) -> Option<Vec<TopicName>> {
    let mut fields = Fields::new(subscription);
    let _version = fields.int16().ok()?;
    let count = u32::try_from(fields.int32().ok()?).ok()?;
    // No memory is taken by the count: each topic read must be there.
    (0..count).map(|_| fields.string().ok().map(TopicName::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, protocols: &[&str]) -> Member {
        let protocol = |name: &&str| Protocol { name: Arc::from(*name), metadata: Bytes::new() };
        Member::new(id.into(), protocols.iter().map(protocol).collect(), Duration::from_secs(10))
    }

    fn roster(members: &[(&str, &[&str])]) -> Roster {
        let mut roster = Roster::default();
        for (id, protocols) in members {
            roster.insert(member(id, protocols));
            roster.check();
        }
        roster
    }

    #[test]
    fn the_vote_goes_to_the_favourite_among_what_all_support() {
        let all = roster(&[("a", &["rr", "range"]), ("b", &["range", "rr"]), ("c", &["sticky", "range", "rr"])]);
        assert_eq!(all.vote(None).as_deref(), Some("range"));
        assert_eq!(roster(&[("a", &["b", "a"]), ("b", &["a", "b"])]).vote(None).as_deref(), Some("a"));
        assert_eq!(roster(&[("a", &["x"]), ("b", &["y"])]).vote(None), None);
        let newcomer = member("z", &["rr"]);
        assert_eq!(all.vote(Some((&"a".into(), &newcomer))).as_deref(), Some("rr"));
    }

    #[test]
    fn a_protocol_named_twice_counts_once() {
        let all = roster(&[("a", &["range", "range"]), ("b", &["range"])]);
        assert!(all.all_support(&"range".into()));
    }

    #[test]
    fn lead_and_instance_pass_to_the_replacement() {
        let mut all = roster(&[]);
        all.insert(Member { instance_id: Some("i".into()), ..member("old", &["range"]) });
        all.insert(member("a", &["range"]));
        all.await_join(&"old".into(), Ticket(4));
        let new = Member { instance_id: Some("i".into()), ..member("new", &["range"]) };
        let dismissed = all.replace(&"old".into(), new).unwrap();
        assert_eq!((&*dismissed.id, dismissed.join, dismissed.sync), ("old", Some(Ticket(4)), None));
        all.check();
        assert!(all.leads(&"new".into()));
        assert_eq!(all.holder(&"i".into()).map(|id| &**id), Some("new"));
        assert_eq!(all.awaiting_join(), 0);
    }

    #[test]
    fn subscriptions_are_read_from_any_version_and_refused_when_broken() {
        let v1 = b"\x00\x01\x00\x00\x00\x02\x00\x01t\x00\x02uu\xff\xff\xff\xff\x00\x00\x00\x00";
        assert_eq!(subscribed_topics(v1), Some(vec!["t".into(), "uu".into()]));
        assert_eq!(subscribed_topics(b""), None);
        assert_eq!(subscribed_topics(b"\x00\x00\x7f\xff\xff\xff"), None);
        assert_eq!(subscribed_topics(b"\x00\x00\xff\xff\xff\xff"), None);
    }
}
