//! Produce (key 0).
//!
//! Shell. Owns the way of a request's batches to their owners and of the outcomes back; not the rules for batches
//! (`batch_rules`), not the append (`replica`). Always: batches stay slices of the request's frame unless the topic asks for
//! another codec; stage one (check, then split by owner, append or send) is done when [`Plan::start`] returns, so that the
//! connection may read its next request: checking gives way to others between two batches, what follows has no await;
//! every partition of the request gets an answer. Source: KIP-98, KIP-467, KIP-951; Kafka's
//! `KafkaApis.handleProduceRequest`, `ReplicaManager`.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use smallvec::SmallVec;

use crate::config::TopicSettings;
use crate::controller::image::BrokerImage;
use crate::log::Appended;
use crate::protocol::batch::{RecordFault, RecordFaultKind};
use crate::protocol::produce::{
    LeaderIdAndEpoch, NodeEndpoint, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse,
    RecordError,
};
use crate::protocol::{ErrorCode, RequestHeader, Str, Wire};
use crate::replica::ProduceError;
use crate::server::batch_rules::{self, Refusal};
use crate::server::{Server, errors};
use crate::shard::calls::{Outcomes, ProduceItem, ProduceItems, ProduceShare};
use crate::shard::now_ms;
use crate::shard::router::{Places, split};
use crate::types::{LeaderEpoch, PartitionId, PartitionIndex, ShardIndex};

/// The client id of Kafka's own tools, which alone may write to internal topics.
const ADMIN_CLIENT: &str = "__admin_client";

/// How long at least the own device may take. The timeout of a request is for its other replicas: Kafka answers what it
/// has appended even if that timeout is 0. Under a shorter one we would refuse what is being written, and the client would
/// send it again. Also how long a request that wants no answer may hold its memory.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Batches of no more than this are copied where they would keep more than twice their size: it costs no more than counting.
const SMALL_BYTES: usize = 2048;

/// Piece of memory for small batches of the own shard, which its tail cache forgets in the order they came.
const SMALL_MEMORY_BYTES: usize = 16 << 10;

/// From this version on, an answer names the leader a client should have asked (KIP-951).
const LEADERS_FROM: i16 = 10;

/// Whether a produce request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acks {
    /// acks=0: nothing is answered, and an error closes the connection.
    None,
    /// acks=1 and acks=all, which are the same for a partition with one replica.
    Class,
}

/// A decoded produce request: what goes where, without a borrow of the frame.
pub(super) struct Plan {
    version: i16,
    acks: Acks,
    timeout: Duration,
    topics: SmallVec<[PlannedTopic; 1]>,
}

struct PlannedTopic {
    name: Str<'static>,
    partitions: SmallVec<[(i32, Result<Target, Refusal>); 1]>,
}

/// Where a batch goes, and where it lies in the frame.
struct Target {
    partition: PartitionId,
    leader_epoch: LeaderEpoch,
    settings: Rc<TopicSettings>,
    range: Range<usize>,
    /// Why the batch goes nowhere, once its shape is found to be right.
    refusal: Option<ErrorCode>,
}

impl Plan {
    /// Looks up every partition of the request. Nothing of the batches is read yet.
    pub(super) fn new(server: &Server, header: &RequestHeader<'_>, request: ProduceRequest<'_>) -> Self {
        let image = server.shard().image();
        let acks_legal = matches!(request.acks, -1..=1);
        let internal_allowed = header.client_id == ADMIN_CLIENT;
        let named = request.topic_data.into_iter().filter(|topic| !topic.partition_data.is_empty());
        let topics = named.map(|topic| {
            let known = image.topics.get(&*topic.name);
            let settings = known.and_then(|topic| server.shard().topic_settings(topic.id));
            let target = |index: i32, range: Option<Range<usize>>| {
                let unknown = || Refusal::of(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                let (topic, settings) = known.zip(settings.clone()).ok_or_else(unknown)?;
                let place = PartitionIndex::new(index).ok_or_else(unknown)?;
                let partition = topic.partitions.get(place.value() as usize).ok_or_else(unknown)?;
                let null = || Refusal::because(ErrorCode::INVALID_RECORD, "the records are null");
                let range = range.ok_or_else(null)?;
                let refusal = if !acks_legal {
                    Some(ErrorCode::INVALID_REQUIRED_ACKS)
                } else if topic.internal && !internal_allowed {
                    Some(ErrorCode::INVALID_TOPIC_EXCEPTION)
                } else {
                    None
                };
                let id = PartitionId { topic_id: topic.id, partition: place };
                Ok(Target { partition: id, leader_epoch: partition.leader_epoch, settings, range, refusal })
            };
            let partitions = topic.partition_data.iter().map(|partition| {
                (partition.index, target(partition.index, partition.records.map(|records| records.range())))
            });
            let partitions = partitions.collect();
            let name = known.map_or_else(|| topic.name.into_owned(), |topic| topic.name.clone().into());
            PlannedTopic { name, partitions }
        });
        Self {
            version: header.version,
            acks: if request.acks == 0 { Acks::None } else { Acks::Class },
            timeout: Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0)),
            topics: topics.collect(),
        }
    }

    /// Whether an answer is expected.
    pub(super) fn acks(&self) -> Acks {
        self.acks
    }

    /// Of the request.
    pub(super) fn version(&self) -> i16 {
        self.version
    }

    /// Stage one: splits the frame into batches, checks them, and appends them here or sends them to their owners. In order
    /// if the caller awaits it before it starts the next. Dropped before its end, nothing is appended. `memory_bytes`: what a
    /// part of the frame keeps alive. Stage two: `answer` is run with the answer, when the batches went to their owners, and
    /// whether every one was appended, once the acks have come; perhaps before this returns. Returns the owner of all batches, if it is one.
    pub(super) async fn start(
        self,
        server: &Rc<Server>,
        mut frame: BytesMut,
        memory_bytes: usize,
        read_at: Instant,
        answer: impl FnOnce(ProduceResponse<'static>, Instant, bool) + 'static,
    ) -> Option<ShardIndex> {
        let shard = server.shard();
        let now = now_ms();
        let mut items = ProduceItems::new();
        let mut consumed = 0;
        let mut check = |target: Target| {
            // The ranges rise, so splitting from the front gives each batch its own handle on the one allocation.
            drop(frame.split_to(target.range.start - consumed));
            let bytes = frame.split_to(target.range.len());
            consumed = target.range.end;
            if let Some(code) = target.refusal {
                batch_rules::check_shape(&bytes, self.version)?;
                return Err(Refusal::of(code));
            }
            let validate = shard.settings().engine_validate_records;
            let accepted = batch_rules::check(bytes, &target.settings, validate, self.version, now)
                .inspect_err(|_| shard.metrics().faults_batch.increment())?;
            shard.metrics().produce_copied_bytes.add(accepted.copied as u64);
            items.push(ProduceItem { partition: target.partition, batch: accepted.batch, info: accepted.info });
            Ok(target.leader_epoch)
        };
        let mut topics = SmallVec::with_capacity(self.topics.len());
        let mut is_first = true;
        for topic in self.topics {
            let mut partitions = SmallVec::with_capacity(topic.partitions.len());
            for (index, target) in topic.partitions {
                // A batch may cost milliseconds, where its records are read or compressed anew.
                if !std::mem::take(&mut is_first) {
                    shard.net().give_way().await;
                }
                partitions.push((index, target.and_then(&mut check)));
            }
            topics.push(StartedTopic { name: topic.name, partitions });
        }
        let deadline = read_at
            + match self.acks {
                Acks::None => DEVICE_TIMEOUT,
                Acks::Class => self.timeout.max(DEVICE_TIMEOUT),
            };
        let started =
            Started { server: server.clone(), version: self.version, topics, sent_at: Instant::now(), answer };
        let (mut groups, places) = split(items, |item| shard.owner(item.partition));
        let share_of = |owner, mut items: ProduceItems| {
            leave_frame(server, owner, &mut items, memory_bytes);
            ProduceShare { items, deadline, now }
        };
        match groups.len() {
            0 => {
                started.finish(Outcomes::new());
                None
            }
            1 => {
                let (owner, items) = groups.remove(0);
                shard.produce(owner, share_of(owner, items), |outcomes| started.finish(outcomes));
                Some(owner)
            }
            shares => {
                let joining = Rc::new(Joining::new(started, places, shares));
                for (number, (owner, items)) in groups.into_iter().enumerate() {
                    let joining = joining.clone();
                    shard.produce(owner, share_of(owner, items), move |outcomes| joining.on_share(number, outcomes));
                }
                None
            }
        }
    }
}

/// Batches are cached by their owner, and each keeps the memory of its whole frame. Where an owner's batches are less than half
/// of an even share of it, they are copied out, so that what is held stays near what the cache accounts for.
fn leave_frame(server: &Server, owner: ShardIndex, items: &mut [ProduceItem], memory_bytes: usize) {
    let shard = server.shard();
    let bytes: usize = items.iter().map(|item| item.batch.len()).sum();
    let times_max = if bytes <= SMALL_BYTES { 2 } else { 2 * shard.shards() };
    if bytes * times_max >= memory_bytes {
        return;
    }
    for item in items {
        item.batch = if bytes <= SMALL_BYTES && owner == shard.index() {
            server.small_batches.copy_of(&item.batch)
        } else {
            BytesMut::from(&item.batch[..])
        };
    }
    shard.metrics().produce_copied_bytes.add(bytes as u64);
}

/// Where small batches are copied to without an allocation each.
#[derive(Default)]
pub(super) struct SmallBatches(RefCell<BytesMut>);

impl SmallBatches {
    fn copy_of(&self, batch: &[u8]) -> BytesMut {
        let mut memory = self.0.borrow_mut();
        if memory.capacity() < batch.len() {
            *memory = BytesMut::with_capacity(SMALL_MEMORY_BYTES);
        }
        memory.extend_from_slice(batch);
        memory.split()
    }
}

/// A produce request after stage one.
struct Started<F> {
    server: Rc<Server>,
    version: i16,
    topics: SmallVec<[StartedTopic; 1]>,
    sent_at: Instant,
    answer: F,
}

/// One topic: each partition went to its owner under a leader epoch, or was refused.
struct StartedTopic {
    name: Str<'static>,
    partitions: SmallVec<[(i32, Result<LeaderEpoch, Refusal>); 1]>,
}

/// A produce request that several shards answer.
struct Joining<F> {
    started: Cell<Option<Started<F>>>,
    places: Places,
    outcomes: RefCell<Vec<Outcomes>>,
    missing: Cell<usize>,
}

impl<F: FnOnce(ProduceResponse<'static>, Instant, bool)> Joining<F> {
    fn new(started: Started<F>, places: Places, shares: usize) -> Self {
        let outcomes = RefCell::new(vec![Outcomes::new(); shares]);
        Self { started: Cell::new(Some(started)), places, outcomes, missing: Cell::new(shares) }
    }

    fn on_share(&self, number: usize, outcomes: Outcomes) {
        self.outcomes.borrow_mut()[number] = outcomes;
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0
            && let Some(started) = self.started.take()
        {
            let outcomes = self.outcomes.take().into_iter().map(Outcomes::into_vec);
            started.finish(self.places.join(outcomes).into());
        }
    }
}

impl<F: FnOnce(ProduceResponse<'static>, Instant, bool)> Started<F> {
    /// Stage two: every batch that was sent has its outcome, in the order of the request.
    fn finish(self, outcomes: Outcomes) {
        let (server, mut outcomes) = (&*self.server, outcomes.into_iter());
        let mut response = ProduceResponse::default();
        let (mut errors, mut late) = (0, 0);
        for topic in self.topics {
            let partitions = topic.partitions.into_iter().map(|(index, sent)| {
                let answer = match sent {
                    Err(refusal) => refused(index, refusal),
                    Ok(epoch) => match outcomes.next().expect("one outcome a batch that was sent") {
                        Ok(appended) => taken(index, &appended),
                        Err(error) => failed(server, index, &error, epoch),
                    },
                };
                errors += u64::from(answer.error_code != ErrorCode::NONE);
                late += u64::from(answer.error_code == ErrorCode::REQUEST_TIMED_OUT);
                answer
            });
            response
                .responses
                .push(ProduceTopicResponse { partition_responses: partitions.collect(), name: topic.name });
        }
        server.shard().metrics().produce_errors.add(errors);
        let leaders_named = |topic: &ProduceTopicResponse<'_>| {
            topic.partition_responses.iter().any(|partition| partition.current_leader != LeaderIdAndEpoch::default())
        };
        if self.version >= LEADERS_FROM && response.responses.iter().any(leaders_named) {
            response.node_endpoints = endpoints(server);
        }
        (self.answer)(response, self.sent_at, errors == late);
    }
}

fn taken(index: i32, appended: &Appended) -> ProducePartitionResponse<'static> {
    ProducePartitionResponse {
        index,
        base_offset: appended.base_offset.value(),
        log_append_time_ms: appended.log_append_time.unwrap_or(-1),
        log_start_offset: appended.log_start.value(),
        ..Default::default()
    }
}

fn refused(index: i32, refusal: Refusal) -> ProducePartitionResponse<'static> {
    let record_error = |fault: RecordFault| {
        let message = match fault.kind {
            RecordFaultKind::KeyMissing => "a compacted topic takes no record without a key".into(),
            RecordFaultKind::Timestamp(time) => format!("timestamp {time} is outside the topic's bounds").into(),
        };
        RecordError { batch_index: fault.index as i32, batch_index_error_message: Some(message) }
    };
    ProducePartitionResponse {
        index,
        error_code: refusal.code,
        record_errors: refusal.faults.into_iter().map(record_error).collect(),
        error_message: refusal.message.map(|message| message.into_owned().into()),
        ..Default::default()
    }
}

fn failed(
    server: &Server,
    index: i32,
    error: &ProduceError,
    leader_epoch: LeaderEpoch,
) -> ProducePartitionResponse<'static> {
    let error_code = errors::produce(error);
    let current_leader = if error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
        LeaderIdAndEpoch { leader_id: server.shard().settings().node_id.value(), leader_epoch: leader_epoch.value() }
    } else {
        LeaderIdAndEpoch::default()
    };
    let error_message = Some(error.to_string().into());
    ProducePartitionResponse { index, error_code, error_message, current_leader, ..Default::default() }
}

/// Where the leaders are that an answer names (KIP-951).
pub(super) fn endpoints(server: &Server) -> Vec<NodeEndpoint<'static>> {
    let endpoint = |broker: &BrokerImage| NodeEndpoint {
        node_id: broker.id.value(),
        host: broker.host.clone().into(),
        port: i32::from(broker.port),
        rack: broker.rack.clone().map(Into::into),
    };
    server.shard().image().brokers.iter().map(endpoint).collect()
}
