//! Fetch (key 1).
//!
//! Shell. Owns the limits of one request over all its partitions, and the long poll; not the reads (`shard::data`), not the
//! bytes, which go from log to socket as they lie. Always: partitions are answered in request order; the first batch of the
//! first partition that has any is answered whatever the limits (KIP-74); nobody waits for bytes that the request's own
//! limits keep out; a waiting fetch holds no data and is given up when its client goes; memory for what is read is reserved
//! before, on the shard of the connection, whoever owns the partitions. No sessions are kept: id 0 is a legal answer to every
//! request for one (KIP-227). Source: KIP-74, KIP-98, KIP-110, KIP-227, KIP-320, KIP-516, KIP-951; Kafka's
//! `ReplicaManager.fetchMessages`, `DelayedFetch`; 4.4 as measured.

use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::controller::image::TopicImage;
use crate::protocol::batch::Codec;
use crate::protocol::fetch::{
    EpochAndOffset, FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopic, FetchTopicResponse,
};
use crate::protocol::produce::LeaderIdAndEpoch;
use crate::protocol::{ErrorCode, Records};
use crate::replica::Isolation;
use crate::rt;
use crate::rt::net::{Payload, Reply};
use crate::server::connection::{Abandoned, Context};
use crate::server::produce::endpoints;
use crate::server::{Server, errors};
use crate::shard::Shard;
use crate::shard::calls::{FetchItem, FetchShare, ShardAnswer, ShardCall, WatchId, WatchShare};
use crate::shard::data::Read;
use crate::shard::router::{Groups, Places, split};
use crate::types::{LeaderEpoch, Offset, PartitionId, PartitionIndex, ShardIndex};

/// From this version on topics are named by their ids (KIP-516).
const IDS_FROM: i16 = 13;

/// From this version on an answer names the leader a client should have asked, and where it is. The field is older, but
/// Kafka leaves it empty before.
const LEADERS_FROM: i16 = 16;

/// First version whose clients can be expected to read zstd (KIP-110).
const ZSTD_FROM: i16 = 10;

/// The epochs of full requests, which need no session; all others go on with one, and there is none.
const SESSION_BEGINS: i32 = 0;
const SESSION_ENDS: i32 = -1;

/// Up to this version clients do not know `KAFKA_STORAGE_ERROR`.
const NO_STORAGE_ERROR_UP_TO: i16 = 5;

/// What was read of a partition, or the code it answers.
type Outcome = Result<Read, ErrorCode>;

/// Answers a fetch. Errors: its client went while it waited.
pub(super) async fn fetch(cx: &Context<'_>, request: FetchRequest<'_>) -> Result<Reply, Abandoned> {
    if !matches!(request.session_epoch, SESSION_BEGINS | SESSION_ENDS) {
        let response = FetchResponse { error_code: ErrorCode::FETCH_SESSION_ID_NOT_FOUND, ..Default::default() };
        return Ok(cx.reply(&response));
    }
    let wanted = Wanted::new(cx, &request);
    cx.concerns(wanted.sole_owner());
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(wanted.bytes_max);
    let bytes_wanted = wanted.bytes();
    let deadline = cx.read_at + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let mut waited = false;
    loop {
        // Held until the answer is queued: nothing is awaited between the end of this function and that.
        let reserved = cx.server.shard().reserve_answer(bytes_wanted);
        let bytes_max = if reserved.bytes() < bytes_wanted { reserved.bytes() } else { wanted.bytes_max };
        let outcomes = wanted.read(cx.server, bytes_max).await;
        // Nor does anybody wait for what memory keeps out; but without room, too, for something to come.
        let bytes_min = bytes_min.min(bytes_max.max(1));
        let bytes = outcomes.iter().flatten().map(|read| read.counted_bytes).fold(0, usize::saturating_add);
        let settled = |outcome: &Outcome| outcome.as_ref().map_or(true, |read| read.diverging.is_some());
        let complete = bytes >= bytes_min || outcomes.is_empty() || outcomes.iter().any(settled);
        let may_wait = !complete && !cx.server.draining();
        let Some(began) = may_wait.then(Instant::now).filter(|now| *now < deadline) else {
            return Ok(respond(cx, &request, &wanted, outcomes));
        };
        if !std::mem::replace(&mut waited, true) {
            cx.server.shard().metrics().fetch_long_polls.increment();
        }
        let changed = wanted.changed(cx.server, &outcomes, bytes_min - bytes);
        drop((outcomes, reserved));
        let wait = rt::timeout_at(deadline, futures_lite::future::or(changed, cx.server.drain_begins()));
        cx.unless_gone(wait).await.inspect_err(|_| {
            cx.server.shard().metrics().fetch_long_polls_cancelled.increment();
        })?;
        cx.waited_since(began);
    }
}

/// The partitions of a request: those to be read, grouped by owner, and what the others answer.
struct Wanted {
    /// In request order.
    partitions: Vec<Planned>,
    groups: Groups<Vec<FetchItem>>,
    places: Places,
    bytes_max: usize,
    isolation: Isolation,
}

/// What becomes of one partition of the request.
enum Planned {
    /// It is the next of the items that are read.
    Read {
        /// For naming the leader.
        leader_epoch: LeaderEpoch,
    },
    /// It is answered without being read.
    Refused {
        /// With this.
        code: ErrorCode,
        /// For naming the leader, if the partition is known.
        leader_epoch: Option<LeaderEpoch>,
    },
}

impl Wanted {
    fn new(cx: &Context<'_>, request: &FetchRequest<'_>) -> Self {
        let shard = cx.server.shard();
        let image = shard.image();
        let replica = if cx.version >= 15 { request.replica_state.replica_id } else { request.replica_id };
        let isolation = match (replica, request.isolation_level) {
            (-1, 1) => Isolation::ReadCommitted,
            (-1, _) => Isolation::ReadUncommitted,
            _ => Isolation::LogEnd,
        };
        let mut items = Vec::new();
        let mut partitions = Vec::new();
        for topic in &request.topics {
            let (known, unknown) = if cx.version >= IDS_FROM {
                (image.topic_by_id(topic.topic_id), ErrorCode::UNKNOWN_TOPIC_ID)
            } else {
                (image.topics.get(&*topic.topic), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
            };
            let no_zstd = cx.version < ZSTD_FROM && known.is_some_and(|known| is_in_zstd(shard, known));
            for partition in &topic.partitions {
                let planned = match known.ok_or(unknown).and_then(|known| plan_item(known, partition)) {
                    // The answer is as bare as that of a partition which is not known.
                    Ok(_) if no_zstd => {
                        Planned::Refused { code: ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, leader_epoch: None }
                    }
                    // No other broker replicates from this one yet.
                    Ok((_, leader_epoch)) if replica >= 0 => {
                        Planned::Refused { code: ErrorCode::NOT_LEADER_OR_FOLLOWER, leader_epoch: Some(leader_epoch) }
                    }
                    Ok((item, leader_epoch)) => {
                        items.push(item);
                        Planned::Read { leader_epoch }
                    }
                    Err(code) => Planned::Refused { code, leader_epoch: None },
                };
                partitions.push(planned);
            }
        }
        let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(shard.settings().fetch_max_bytes as usize);
        let (groups, places) = split(items, |item| shard.owner(item.partition));
        Self { partitions, groups, places, bytes_max, isolation }
    }

    /// The shard that owns all that is read, if it is one.
    fn sole_owner(&self) -> Option<ShardIndex> {
        match &*self.groups {
            [(owner, _)] => Some(*owner),
            _ => None,
        }
    }

    /// What its partitions may bring, within the limit of the request.
    fn bytes(&self) -> usize {
        self.partition_bytes().min(self.bytes_max)
    }

    fn partition_bytes(&self) -> usize {
        let items = self.groups.iter().flat_map(|(_, items)| items);
        items.map(|item| item.bytes_max).fold(0, usize::saturating_add)
    }

    /// Reads everything once, `bytes_max` of it or the first batch.
    async fn read(&self, server: &Server, bytes_max: usize) -> Vec<Outcome> {
        if self.groups.len() > 1 && self.partition_bytes() > bytes_max {
            return self.read_in_turn(server, bytes_max).await;
        }
        let (remote, local): (Vec<_>, Vec<_>) =
            self.groups.iter().enumerate().partition(|(_, (owner, _))| *owner != server.shard().index());
        let mut answers: Vec<Vec<Outcome>> = self.groups.iter().map(|_| Vec::new()).collect();
        // The others read while this shard does.
        let asked: Vec<_> = remote
            .into_iter()
            .map(|(place, (owner, items))| {
                (place, items.len(), ask(server, *owner, self.share(items, bytes_max, true)))
            })
            .collect();
        for (place, (_, items)) in local {
            answers[place] = read_here(server, &self.share(items, bytes_max, true)).await;
        }
        for (place, count, answer) in asked {
            answers[place] = read_there(answer.await, count);
        }
        let mut outcomes = self.places.join(answers);
        self.keep_limits(&mut outcomes, bytes_max);
        outcomes
    }

    /// Reads one owner after the other, each with what the others left: where the partitions together may bring more than
    /// there is room for. The owner of the first partition comes first; clients rotate their partitions.
    async fn read_in_turn(&self, server: &Server, bytes_max: usize) -> Vec<Outcome> {
        let mut answers = Vec::with_capacity(self.groups.len());
        let (mut left, mut at_least_one) = (bytes_max, true);
        for (owner, items) in &self.groups {
            let share = self.share(items, left, at_least_one);
            let outcomes = if *owner == server.shard().index() {
                read_here(server, &share).await
            } else {
                read_there(ask(server, *owner, share).await, items.len())
            };
            let bytes: usize = outcomes.iter().flatten().map(Read::bytes).sum();
            left = left.saturating_sub(bytes);
            at_least_one &= bytes == 0;
            answers.push(outcomes);
        }
        self.places.join(answers)
    }

    fn share(&self, items: &[FetchItem], bytes_max: usize, at_least_one: bool) -> FetchShare {
        FetchShare { items: items.to_vec(), bytes_max, at_least_one, isolation: self.isolation }
    }

    /// Each owner allowed its first batch to exceed the limits; the request allows that once.
    fn keep_limits(&self, outcomes: &mut [Outcome], bytes_max: usize) {
        if self.groups.len() < 2 {
            return;
        }
        let limits_of = |(_, items): &(_, Vec<FetchItem>)| items.iter().map(|item| item.bytes_max).collect();
        let limits: Vec<usize> = self.places.join(self.groups.iter().map(limits_of));
        let (mut left, mut first) = (bytes_max, true);
        for (outcome, limit) in outcomes.iter_mut().zip(limits) {
            let Ok(read) = outcome else { continue };
            let bytes = read.bytes();
            if bytes > left.min(limit) && !first {
                read.parts.clear();
                continue;
            }
            left = left.saturating_sub(bytes);
            first &= bytes == 0;
        }
    }

    /// Resolves when what the request still misses may have come, or one of its partitions ended.
    fn changed(&self, server: &Server, outcomes: &[Outcome], missing: usize) -> impl Future<Output = ()> + 'static {
        let seen = |place: usize| outcomes[place].as_ref().map_or(0, |read| read.limits.visible_bytes);
        // If all of it comes, at least one of the owners has its part of it.
        let bytes = missing.div_ceil(self.groups.len()) as u64;
        let mut waits: SmallVec<[Pin<Box<dyn Future<Output = ()>>>; 2]> = SmallVec::new();
        for ((owner, items), places) in self.groups.iter().zip(self.places.groups()) {
            let partitions = items.iter().zip(places).map(|(item, place)| (item.partition, seen(*place)));
            let partitions: Vec<_> = partitions.collect();
            if *owner == server.shard().index() {
                waits.push(Box::pin(server.shard().watch(&partitions, bytes)));
            } else {
                waits.push(Box::pin(watch_there(server, *owner, partitions, bytes)));
            }
        }
        std::future::poll_fn(move |context| {
            let fired = waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready());
            if fired { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

fn plan_item(topic: &TopicImage, partition: &FetchPartition) -> Result<(FetchItem, LeaderEpoch), ErrorCode> {
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let index = PartitionIndex::new(partition.partition).ok_or(unknown)?;
    let image = topic.partitions.get(index.value() as usize).ok_or(unknown)?;
    let item = FetchItem {
        partition: PartitionId { topic_id: topic.id, partition: index },
        from: Offset::new(partition.fetch_offset),
        bytes_max: usize::try_from(partition.partition_max_bytes).unwrap_or(0),
        leader_epoch: LeaderEpoch::new(partition.current_leader_epoch),
        last_fetched_epoch: LeaderEpoch::new(partition.last_fetched_epoch),
    };
    Ok((item, image.leader_epoch))
}

/// Whether the topic keeps its records in zstd, whatever codec they came in.
fn is_in_zstd(shard: &Shard, topic: &TopicImage) -> bool {
    let settings = shard.topic_settings(topic.id);
    settings.is_some_and(|settings| matches!(settings.compression, Some((Codec::Zstd, _))))
}

fn ask(server: &Server, owner: ShardIndex, share: FetchShare) -> impl Future<Output = Option<ShardAnswer>> + 'static {
    let answer = server.shard().ask(owner, ShardCall::Fetch(share));
    async move { answer.await.ok() }
}

async fn read_here(server: &Server, share: &FetchShare) -> Vec<Outcome> {
    let outcomes = server.shard().fetch(share).await;
    outcomes.into_iter().map(|outcome| outcome.map_err(|error| errors::fetch(&error))).collect()
}

fn read_there(answer: Option<ShardAnswer>, count: usize) -> Vec<Outcome> {
    let outcomes = match answer {
        Some(ShardAnswer::Fetched(outcomes)) => outcomes,
        Some(_) => unreachable!("a fetch share is answered with its outcomes"),
        None => return (0..count).map(|_| Err(errors::SHARD_GONE)).collect(),
    };
    let outcome = |outcome: Result<_, _>| outcome.map(Read::from).map_err(|error| errors::fetch(&error));
    outcomes.into_iter().map(outcome).collect()
}

/// A watch on another shard, given up when this future is dropped.
fn watch_there(
    server: &Server,
    owner: ShardIndex,
    partitions: Vec<(PartitionId, u64)>,
    bytes: u64,
) -> impl Future<Output = ()> + 'static {
    let shard = server.shard().clone();
    let id = WatchId { from: shard.index(), number: server.next_number() };
    let answer = server.shard().ask(owner, ShardCall::Watch(WatchShare { id, partitions, bytes }));
    let given_up = OnDrop(Some(move || shard.tell(owner, ShardCall::Unwatch(id))));
    async move {
        let mut given_up = given_up;
        // A shard that went away is a change, too.
        answer.await.ok();
        given_up.0 = None;
    }
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

fn respond(cx: &Context<'_>, request: &FetchRequest<'_>, wanted: &Wanted, outcomes: Vec<Outcome>) -> Reply {
    let mut outcomes = outcomes.into_iter();
    let mut planned = wanted.partitions.iter();
    let mut payloads: Vec<SmallVec<[Payload; 4]>> = Vec::with_capacity(wanted.partitions.len());
    let mut errors = 0;
    let mut response = FetchResponse::default();
    let mut leaders_named = false;
    for topic in request.topics.iter().filter(|topic| !topic.partitions.is_empty()) {
        let mut partitions = SmallVec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let (outcome, leader_epoch) = match planned.next().expect("every partition was planned") {
                Planned::Refused { code, leader_epoch } => (Err(*code), *leader_epoch),
                Planned::Read { leader_epoch } => {
                    (outcomes.next().expect("every item has an outcome"), Some(*leader_epoch))
                }
            };
            let (mut answer, parts) = partition_response(partition.partition, outcome, wanted.isolation);
            if leader_epoch.is_none() {
                // As Kafka has it: empty where the partition is not known, null where it could not be read.
                answer.aborted_transactions = Some(Vec::new());
            }
            if answer.error_code != ErrorCode::NONE {
                errors += 1;
            }
            if answer.error_code == ErrorCode::KAFKA_STORAGE_ERROR && cx.version <= NO_STORAGE_ERROR_UP_TO {
                answer.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
            }
            if let Some(epoch) = leader_epoch
                && cx.version >= LEADERS_FROM
                && matches!(answer.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH)
            {
                let leader_id = cx.server.shard().settings().node_id.value();
                answer.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch: epoch.value() };
                leaders_named = true;
            }
            partitions.push(answer);
            payloads.push(parts);
        }
        response.responses.push(topic_response(topic, partitions));
    }
    if leaders_named {
        response.node_endpoints = endpoints(cx.server);
    }
    cx.server.shard().metrics().fetch_errors.add(errors);
    cx.reply_with_records(&response, payloads)
}

fn topic_response<'a>(
    topic: &FetchTopic<'a>,
    partitions: SmallVec<[FetchPartitionResponse; 1]>,
) -> FetchTopicResponse<'a> {
    FetchTopicResponse { topic: topic.topic.clone(), topic_id: topic.topic_id, partitions }
}

fn partition_response(
    index: i32,
    outcome: Outcome,
    isolation: Isolation,
) -> (FetchPartitionResponse, SmallVec<[Payload; 4]>) {
    let read = match outcome {
        Ok(read) => read,
        Err(error_code) => {
            let answer = FetchPartitionResponse { partition_index: index, error_code, ..Default::default() };
            return (answer, SmallVec::new());
        }
    };
    let mut answer = FetchPartitionResponse {
        partition_index: index,
        high_watermark: read.limits.high_watermark.value(),
        last_stable_offset: read.limits.last_stable.value(),
        log_start_offset: read.limits.log_start.value(),
        aborted_transactions: (isolation == Isolation::ReadCommitted).then(Vec::new),
        records: Some(Records::of_length(read.bytes())),
        ..Default::default()
    };
    if let Some((epoch, end)) = read.diverging {
        answer.diverging_epoch = EpochAndOffset { epoch: epoch.value(), end_offset: end.value() };
    }
    (answer, read.parts)
}
