//! What a group coordinator is asked and what it answers: owned, plain, `Send`, because both cross cores.
//!
//! Pure. Owns the words between `server/groups` and this room; not the wire (versions, nulls and defaults are the server's
//! to spell) and not topics: that a topic exists was checked before a command is built. One command names at most one
//! group, since groups live on different partitions: a request for many groups becomes many commands. Source: Kafka's
//! JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5, OffsetCommit v2–9, OffsetFetch v1–9, ListGroups v0–5,
//! DescribeGroups v0–6, DeleteGroups v0–2, OffsetDelete v0.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::types::{LeaderEpoch, PartitionIndex, TimestampMs, TopicId, TopicName};

/// A group's name. May be empty: old clients commit offsets under it.
pub type GroupId = Arc<str>;
/// The name the coordinator gave a member, `<client or instance id>-<random>`; empty when it has none yet.
pub type MemberId = Arc<str>;

/// The place of one command in its shell's table of those that wait: an answer carries it home.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// The time, read once per event: deadlines are counted on a clock that never jumps, records carry the wall's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Since some fixed moment.
    pub monotonic: Duration,
    /// Milliseconds since 1970.
    pub wall: TimestampMs,
}

/// The broker's settings that bind groups.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`
    pub min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`
    pub max_session_timeout: Duration,
    /// `group.max.size`
    pub max_size: usize,
    /// `offset.metadata.max.bytes`, which Kafka counts in UTF-16 units
    pub offset_metadata_max: usize,
    /// `offsets.retention.minutes`
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`
    pub retention_check_interval: Duration,
}

/// Why a command, or one item of it, was refused. Each is one of Kafka's codes, named beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// −1
    #[error("the coordinator could not write the group's records")]
    Unexpected,
    /// 12
    #[error("offset metadata is longer than offset.metadata.max.bytes")]
    OffsetMetadataTooLarge,
    /// 14
    #[error("the coordinator is loading the group's records")]
    LoadInProgress,
    /// 15
    #[error("the coordinator is not available")]
    CoordinatorNotAvailable,
    /// 16
    #[error("this broker does not coordinate the group")]
    NotCoordinator,
    /// 22
    #[error("the generation is not the group's current one")]
    IllegalGeneration,
    /// 23
    #[error("the member shares no protocol with the group")]
    InconsistentProtocol,
    /// 24
    #[error("the group id is empty")]
    InvalidGroupId,
    /// 25
    #[error("the group does not know this member")]
    UnknownMember,
    /// 26
    #[error("the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms")]
    InvalidSessionTimeout,
    /// 27
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    /// 68
    #[error("the group is not empty")]
    NonEmptyGroup,
    /// 69
    #[error("no such group")]
    GroupIdNotFound,
    /// 79: join again with the member id beside this error (KIP-394)
    #[error("the group member needs a member id before it joins")]
    MemberIdRequired,
    /// 81
    #[error("the group has reached group.max.size")]
    GroupMaxSizeReached,
    /// 82
    #[error("a newer member took over this group instance id")]
    FencedInstanceId,
    /// 86
    #[error("the group is subscribed to the topic")]
    SubscribedToTopic,
}

/// One question to the coordinator of a partition of `__consumer_offsets`.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// Answered by [`GroupAnswer::Join`], perhaps minutes later.
    Join(JoinRequest),
    /// Answered by [`GroupAnswer::Sync`] when the leader's assignment is durable.
    Sync(SyncRequest),
    /// Answered by [`GroupAnswer::Heartbeat`].
    Heartbeat(MemberRequest),
    /// Answered by [`GroupAnswer::Leave`].
    Leave(LeaveRequest),
    /// Answered by [`GroupAnswer::OffsetCommit`] when the offsets are durable.
    OffsetCommit(CommitRequest),
    /// Answered by [`GroupAnswer::OffsetFetch`].
    OffsetFetch(FetchRequest),
    /// Answered by [`GroupAnswer::Describe`].
    Describe(GroupId),
    /// All groups of this partition, answered by [`GroupAnswer::List`]. Goes to every coordinator partition.
    List(ListFilter),
    /// Answered by [`GroupAnswer::DeleteGroup`] when the tombstones are durable.
    DeleteGroup(GroupId),
    /// Answered by [`GroupAnswer::OffsetDelete`] when the tombstones are durable.
    OffsetDelete(OffsetDeleteRequest),
    /// Topics that are gone: their committed offsets go too. Goes to every coordinator partition; answered at once by
    /// [`GroupAnswer::TopicsDeleted`], the tombstones follow.
    TopicsDeleted(Vec<TopicName>),
}

impl GroupCommand {
    /// The group it is about, by which [`super::partition_for`] finds its coordinator; `None` if it concerns all groups.
    pub fn group_id(&self) -> Option<&GroupId> {
        match self {
            Self::Join(request) => Some(&request.group_id),
            Self::Sync(request) => Some(&request.member.group_id),
            Self::Heartbeat(request) => Some(&request.group_id),
            Self::Leave(request) => Some(&request.group_id),
            Self::OffsetCommit(request) => Some(&request.member.group_id),
            Self::OffsetFetch(request) => Some(&request.group_id),
            Self::Describe(group_id) | Self::DeleteGroup(group_id) => Some(group_id),
            Self::OffsetDelete(request) => Some(&request.group_id),
            Self::List(_) | Self::TopicsDeleted(_) => None,
        }
    }

    /// The answer of the kind this command expects, saying that all of it was refused.
    pub fn refused(&self, error: GroupError) -> GroupAnswer {
        match self {
            Self::Join(request) => GroupAnswer::Join(Err(JoinRefused { error, member_id: request.member_id.clone() })),
            Self::Sync(_) => GroupAnswer::Sync(Err(error)),
            Self::Heartbeat(_) => GroupAnswer::Heartbeat(Err(error)),
            Self::Leave(_) => GroupAnswer::Leave(Err(error)),
            Self::OffsetCommit(_) => GroupAnswer::OffsetCommit(Err(error)),
            Self::OffsetFetch(_) => GroupAnswer::OffsetFetch(Err(error)),
            Self::Describe(_) => GroupAnswer::Describe(Err(error)),
            Self::List(_) => GroupAnswer::List(Err(error)),
            Self::DeleteGroup(_) => GroupAnswer::DeleteGroup(Err(error)),
            Self::OffsetDelete(_) => GroupAnswer::OffsetDelete(Err(error)),
            Self::TopicsDeleted(_) => GroupAnswer::TopicsDeleted,
        }
    }
}

/// The answer to one [`GroupCommand`], of the same kind.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupAnswer {
    /// To a join.
    Join(Result<Joined, JoinRefused>),
    /// To a sync.
    Sync(Result<Synced, GroupError>),
    /// To a heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// To a leave: one entry per member of the request, in its order.
    Leave(Result<Vec<Left>, GroupError>),
    /// To a commit: one entry per partition of the request, in its order. An `Err` holds for all of them.
    OffsetCommit(Result<Vec<PartitionResult>, GroupError>),
    /// To a fetch: an unknown group, topic or partition is no error but an entry without an offset.
    OffsetFetch(Result<Vec<FetchedOffset>, GroupError>),
    /// To a describe. `GroupIdNotFound`: DescribeGroups says state `Dead` up to v5 and code 69 from v6 (KIP-1043).
    Describe(Result<DescribedGroup, GroupError>),
    /// To a list.
    List(Result<Vec<ListedGroup>, GroupError>),
    /// To a group's deletion.
    DeleteGroup(Result<(), GroupError>),
    /// To a deletion of offsets: one entry per partition of the request, in its order.
    OffsetDelete(Result<Vec<PartitionResult>, GroupError>),
    /// Heard.
    TopicsDeleted,
}

/// One embedded protocol a member supports; the metadata belongs to the clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// For example `range`.
    pub name: Arc<str>,
    /// Opaque, except that subscriptions of consumers are read for the expiry of offsets.
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The group to join.
    pub group_id: GroupId,
    /// Empty for a first join.
    pub member_id: MemberId,
    /// Static membership (KIP-345).
    pub instance_id: Option<Arc<str>>,
    /// From the request header; becomes part of a new member id.
    pub client_id: Arc<str>,
    /// Kafka's spelling of the peer: `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// As sent; negative is refused like any other value outside the bounds.
    pub session_timeout_ms: i32,
    /// As sent, the session timeout for v0; negative counts as zero.
    pub rebalance_timeout_ms: i32,
    /// For example `consumer`, `connect`, `sr`.
    pub protocol_type: Arc<str>,
    /// In order of the member's preference.
    pub protocols: Vec<Protocol>,
    /// The request's version: from 4 a first join is answered with a member id to join with (KIP-394), from 9 a returning
    /// static leader is told to skip the assignment (KIP-814).
    pub version: i16,
}

/// Where the group stands after a join.
#[derive(Clone, PartialEq, Debug)]
pub struct Joined {
    /// The generation to sync, commit and heartbeat with.
    pub generation: i32,
    /// Of the group.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol the members voted for.
    pub protocol: Option<Arc<str>>,
    /// The member that assigns.
    pub leader: MemberId,
    /// KIP-814: this member leads, but the assignment stands.
    pub skip_assignment: bool,
    /// This member's id.
    pub member_id: MemberId,
    /// All members, for the leader only; else empty.
    pub members: Vec<JoinedMember>,
}

/// One member, as the leader is told.
#[derive(Clone, PartialEq, Debug)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its instance id if static.
    pub instance_id: Option<Arc<str>>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// A join that was refused, or must be made again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRefused {
    /// Why.
    pub error: GroupError,
    /// With [`GroupError::MemberIdRequired`] the id to join with, else the sender's or empty.
    pub member_id: MemberId,
}

/// Who speaks: the fields a member proves itself by. Also the whole of a heartbeat.
#[derive(Clone, Debug)]
pub struct MemberRequest {
    /// The group.
    pub group_id: GroupId,
    /// −1 where a request comes from outside the group.
    pub generation: i32,
    /// Empty where a request comes from outside the group.
    pub member_id: MemberId,
    /// Static membership.
    pub instance_id: Option<Arc<str>>,
}

/// SyncGroup.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// Who.
    pub member: MemberRequest,
    /// v5 and later (KIP-559): must be the group's.
    pub protocol_type: Option<Arc<str>>,
    /// v5 and later (KIP-559): must be the group's.
    pub protocol: Option<Arc<str>>,
    /// From the leader: each member's share. The leader's own retry replaces it.
    pub assignments: Vec<(MemberId, Bytes)>,
}

/// A member's share.
#[derive(Clone, PartialEq, Debug)]
pub struct Synced {
    /// Of the group.
    pub protocol_type: Option<Arc<str>>,
    /// Of the generation.
    pub protocol: Option<Arc<str>>,
    /// Opaque; empty if the leader gave this member nothing.
    pub assignment: Bytes,
}

/// LeaveGroup.
#[derive(Clone, Debug)]
pub struct LeaveRequest {
    /// The group.
    pub group_id: GroupId,
    /// Up to v2 exactly one.
    pub members: Vec<Leaving>,
}

/// One member that leaves. A static member may be named by its instance id alone.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// Empty: by instance id.
    pub member_id: MemberId,
    /// Static membership.
    pub instance_id: Option<Arc<str>>,
    /// KIP-800, for the log.
    pub reason: Option<Arc<str>>,
}

/// What became of one leaving member.
#[derive(Clone, PartialEq, Debug)]
pub struct Left {
    /// As in the request.
    pub member_id: MemberId,
    /// As in the request.
    pub instance_id: Option<Arc<str>>,
    /// `None`: it left.
    pub error: Option<GroupError>,
}

/// OffsetCommit.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// Who. Generation −1 and no member id: a consumer that assigns its partitions itself.
    pub member: MemberRequest,
    /// The retention field of v2–4: how long these offsets shall live. `None` (−1): the broker's rule.
    pub retention: Option<Duration>,
    /// The request's version: from 9 a generation of an unknown group is code 69, before it was 22.
    pub version: i16,
    /// What to remember. Unknown topics and partitions were answered by the server and are not here.
    pub partitions: Vec<CommitPartition>,
}

/// One partition's offset to remember.
#[derive(Clone, Debug)]
pub struct CommitPartition {
    /// The topic.
    pub topic: TopicName,
    /// Its id now, kept beside the offset so that a topic made again does not inherit it.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// As sent: Kafka stores negative numbers too.
    pub offset: i64,
    /// The epoch of the last consumed record (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// The client's note; null is the same as empty.
    pub metadata: Arc<str>,
}

/// What became of one partition of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct PartitionResult {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// `None`: done.
    pub error: Option<GroupError>,
}

/// OffsetFetch for one group.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The group.
    pub group_id: GroupId,
    /// Which partitions.
    pub partitions: FetchWhich,
    /// Whether commits on their way to the log are waited for.
    pub stability: Stability,
}

/// Which offsets a fetch asks for.
#[derive(Clone, Debug)]
pub enum FetchWhich {
    /// The null topics of v2 and later.
    All,
    /// These. With an id, an offset committed for another topic of that name counts as absent.
    These(Vec<(TopicName, Option<TopicId>, PartitionIndex)>),
}

/// The `require_stable` of OffsetFetch v7 (KIP-447).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    /// The newest durable offsets.
    Durable,
    /// As `Durable`, after the commits that arrived earlier are.
    AfterPendingCommits,
}

/// One partition's committed offset.
#[derive(Clone, PartialEq, Debug)]
pub struct FetchedOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// `None`: offset −1, epoch −1, metadata "".
    pub committed: Option<Committed>,
}

/// A committed offset.
#[derive(Clone, PartialEq, Debug)]
pub struct Committed {
    /// As it was sent.
    pub offset: i64,
    /// The epoch of the last consumed record.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The client's note.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub committed_at: TimestampMs,
    /// Only if the commit named a retention (v2–4).
    pub expires_at: Option<TimestampMs>,
    /// The topic's id then; zero in records older than Kafka 4.1.
    pub topic_id: TopicId,
}

/// What ListGroups asks. Empty lists ask for everything; words are compared without regard to case, states also to blanks
/// around them.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Names of states (v4 and later).
    pub states: Vec<String>,
    /// Names of types (v5 and later); only `classic` groups live here.
    pub types: Vec<String>,
}

/// One group of a list. Its type is `classic`.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedGroup {
    /// Its id.
    pub group_id: GroupId,
    /// Empty for a group that only commits offsets.
    pub protocol_type: Arc<str>,
    /// Kafka's word: `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`.
    pub state: &'static str,
}

/// DescribeGroups.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedGroup {
    /// Its id.
    pub group_id: GroupId,
    /// As in [`ListedGroup::state`].
    pub state: &'static str,
    /// Empty for a group that only commits offsets.
    pub protocol_type: Arc<str>,
    /// The chosen protocol, told only while Stable; else empty.
    pub protocol: Arc<str>,
    /// In order of their ids.
    pub members: Vec<DescribedMember>,
}

/// One member of a described group.
#[derive(Clone, PartialEq, Debug)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its instance id if static.
    pub instance_id: Option<Arc<str>>,
    /// From its requests.
    pub client_id: Arc<str>,
    /// From its connection.
    pub client_host: Arc<str>,
    /// For the chosen protocol, told only while Stable; else empty.
    pub metadata: Bytes,
    /// Its share.
    pub assignment: Bytes,
}

/// OffsetDelete.
#[derive(Clone, Debug)]
pub struct OffsetDeleteRequest {
    /// The group.
    pub group_id: GroupId,
    /// Whose offsets go.
    pub partitions: Vec<(TopicName, PartitionIndex)>,
}
