//! What shards and the control plane ask of a shard, and what it answers.
//!
//! Shell, but only in what it names (sockets): owned, `Send` messages without behaviour; what is in them is in `vocabulary`.
//! Always: one question has one kind of answer, named beside it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;

use crate::controller::image::Image;
use crate::coordinator::command::{GroupAnswer, GroupCommand, GroupError, ListFilter, ListedGroup};
use crate::log::producers::ActiveProducer;
use crate::replica::FetchError;
use crate::types::{LeaderEpoch, Offset, PartitionId, ShardIndex};

pub use super::vocabulary::{
    ApplyReport, DeleteRecordsError, DirCheckpoint, EpochQuestion, FetchItem, FetchShare, FoundOffset, HopRead,
    MemoryReport, MetricsReport, NetFacts, OffsetQuestion, Outcomes, PartitionFacts, ProduceItem, ProduceItems,
    ProduceShare, ShardFacts, WantedOffset, WatchId, WatchShare,
};

/// A question to one shard.
pub enum ShardCall {
    /// Opens what `image` gives this shard, without serving it yet, so that no client is sent to a log that is not there.
    /// → [`ShardAnswer::Applied`]
    Prepare(Arc<Image>),
    /// Serves by `image` from now on: what `Prepare` does if it was not asked, then new leader epochs and settings, then the
    /// removal of what is gone. → [`ShardAnswer::Applied`]
    Apply(Arc<Image>),
    /// Accepts connections from this listening socket and deals them to the shards. → [`ShardAnswer::Done`]
    Listen(OwnedFd),
    /// Serves this connection. No answer is asked.
    Adopt(Adopted),
    /// Whether a connection may move between these shards; if so it is counted at the second from now on. → [`ShardAnswer::May`]
    Move {
        /// Where it is served.
        from: ShardIndex,
        /// Where it wants to.
        to: ShardIndex,
    },
    /// A dealt connection ended. No answer is asked.
    Closed {
        /// Where it was served.
        shard: ShardIndex,
        /// Its other end.
        peer: IpAddr,
    },
    /// → [`ShardAnswer::Produced`]
    Produce(ProduceShare),
    /// → [`ShardAnswer::Fetched`]
    Fetch(FetchShare),
    /// Answers once something these partitions owe a waiting fetch has come, or they ended. → [`ShardAnswer::Done`]
    Watch(WatchShare),
    /// Gives up a watch; it is answered at once. No answer is asked.
    Unwatch(WatchId),
    /// → [`ShardAnswer::Offsets`]
    ListOffsets(Vec<OffsetQuestion>),
    /// → [`ShardAnswer::EpochEnds`]
    EpochEnd(Vec<EpochQuestion>),
    /// Moves log starts; `None` means the high watermark. → [`ShardAnswer::Deleted`]
    DeleteRecords(Vec<(PartitionId, Option<Offset>)>),
    /// → [`ShardAnswer::Producers`]
    DescribeProducers(Vec<PartitionId>),
    /// A command for the coordinator of this partition of `__consumer_offsets`. → [`ShardAnswer::Group`], perhaps minutes
    /// later
    Group(PartitionId, Box<GroupCommand>),
    /// The groups of every coordinator of the shard. → [`ShardAnswer::Groups`]
    ListGroups(ListFilter),
    /// → [`ShardAnswer::Facts`]
    Describe,
    /// → [`ShardAnswer::Metrics`]
    Metrics,
    /// Flushes every log. → [`ShardAnswer::Done`]
    Flush,
    /// Takes no new requests, finishes what was accepted, and cuts what is not finished at the deadline.
    /// → [`ShardAnswer::Done`], once no connection is left
    Drain(Instant),
    /// Flushes and closes every log and ends the shard; to be asked after every shard has drained.
    /// → [`ShardAnswer::Stopped`]
    Stop,
}

/// An accepted connection on its way to the shard that is to serve it.
pub struct Adopted {
    /// The socket.
    pub socket: OwnedFd,
    /// Its other end.
    pub peer: SocketAddr,
    /// The shard that dealt it and counts it.
    pub dealer: ShardIndex,
    /// Of its next requests, when another shard served it before.
    pub received: BytesMut,
    /// How many did.
    pub moves: u32,
}

/// The groups of a shard.
#[derive(Debug, Default)]
pub struct ListedGroups {
    /// Of every coordinator that has loaded.
    pub groups: Vec<ListedGroup>,
    /// Why others are not among them, yet.
    pub error: Option<GroupError>,
}

/// The answer to a [`ShardCall`].
pub enum ShardAnswer {
    /// It is done.
    Done,
    /// Yes or no.
    May(bool),
    /// What opening logs found.
    Applied(ApplyReport),
    /// One outcome a batch.
    Produced(Outcomes),
    /// One outcome a partition.
    Fetched(Vec<Result<HopRead, FetchError>>),
    /// One outcome a question.
    Offsets(Vec<Result<FoundOffset, FetchError>>),
    /// One outcome a question; `None` lies below every epoch or above the current one.
    EpochEnds(Vec<Result<Option<(LeaderEpoch, Offset)>, FetchError>>),
    /// One new log start a partition.
    Deleted(Vec<Result<Offset, DeleteRecordsError>>),
    /// The producers of each partition.
    Producers(Vec<Result<Vec<ActiveProducer>, FetchError>>),
    /// Of the kind the command expects.
    Group(Box<GroupAnswer>),
    /// Those that can be listed.
    Groups(ListedGroups),
    /// What there is.
    Facts(Box<ShardFacts>),
    /// How it fares.
    Metrics(Box<MetricsReport>),
    /// What to write into the checkpoint files, one entry a log directory.
    Stopped(Vec<DirCheckpoint>),
}
