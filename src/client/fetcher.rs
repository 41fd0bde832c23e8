//! What a consumer reads: where it stands in each partition, what to ask which broker for, what came and waits.
//!
//! Pure. Owns positions, the plan of requests and the batches that were fetched ahead. Does not own who assigns the
//! partitions, nor commits. Always true: a partition is in at most one request at a time; an answer counts only if nothing
//! was sought, paused away or lost meanwhile (`version`); positions move only forward, but for a seek, a reset or a
//! truncation; batches are given out in the order of their offsets. Source: Java's Fetcher and SubscriptionState; KIP-74
//! (limits), KIP-207, KIP-320 (truncation), KIP-392 (reading from the nearest replica), KIP-516 (topic ids), KIP-1106
//! (reset by duration).
//!
//! **Memory.** A partition is asked again while less than [`PREFETCH_ANSWERS`] × `max.partition.fetch.bytes` of it wait and
//! less than `fetch.max.bytes` in all; one that has nothing waiting is always asked. So at most `fetch.max.bytes` and one
//! answer per broker are held, and what is paused with data in hand.
//!
//! **Sessions.** Every request names all its partitions (session 0, epoch −1). Incremental sessions (KIP-227) would save
//! bytes with very many partitions per broker; they are not spoken.

mod batches;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use self::batches::{Content, Ended, Stored, Taken, Walked, walk};
pub use self::batches::{DECOMPRESSED_BYTES_MAX, RecordBatch, RecordView, RecordViews};
use super::consumer_error::ConsumerError;
use super::error::{ClientError, metadata_is_stale};
use super::record::Record;
use super::settings::{IsolationLevel, OffsetReset};
use crate::protocol::ErrorCode;
use crate::protocol::batch::BatchError;
use crate::protocol::fetch::{AbortedTransaction, FetchPartitionResponse};
use crate::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicName, TopicPartition};

/// So many full answers of one partition may wait while the next is asked for: one being read, one ready.
const PREFETCH_ANSWERS: usize = 2;
/// How long another replica is read from before the leader is asked again which is nearest.
const PREFERRED_REPLICA_TIME: Duration = Duration::from_secs(300);

/// What a fetcher is told of itself.
#[derive(Clone, Debug)]
pub struct FetcherSettings {
    /// `auto.offset.reset`.
    pub reset: OffsetReset,
    /// `isolation.level`.
    pub isolation: IsolationLevel,
    /// `check.crcs`.
    pub check_crcs: bool,
    /// `fetch.max.bytes`.
    pub bytes_max: usize,
    /// `max.partition.fetch.bytes`.
    pub partition_bytes_max: i32,
    /// `retry.backoff.ms`.
    pub retry_backoff: Duration,
}

/// Where reading goes on, and the epoch of the record before, if it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The next offset.
    pub offset: Offset,
    /// Of the record before it: with it, a truncation is noticed.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What to look up before reading can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The log start.
    Earliest,
    /// The end.
    Latest,
    /// The first record at or after this time; the end if there is none.
    Time(TimestampMs),
}

impl Lookup {
    /// As ListOffsets spells it.
    pub const fn wire(self) -> i64 {
        match self {
            Self::Latest => -1,
            Self::Earliest => -2,
            Self::Time(timestamp) => timestamp,
        }
    }
}

/// What the cluster says of a partition's leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Who it is.
    pub broker: BrokerId,
    /// Since when.
    pub epoch: Option<LeaderEpoch>,
    /// The topic's id, where brokers tell.
    pub topic_id: Option<TopicId>,
}

/// One partition of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Which.
    pub partition: TopicPartition,
    /// Goes back with the answer.
    pub version: u64,
    /// Who leads it.
    pub leader: Leader,
}

/// A request to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Read what the group has committed: [`Fetcher::on_committed`].
    Committed(Vec<(TopicPartition, u64)>),
    /// Look offsets up: [`Fetcher::on_looked_up`].
    LookUp(BrokerId, Vec<(Target, Lookup)>),
    /// Ask where an epoch ends: [`Fetcher::on_validated`].
    Validate(BrokerId, Vec<(Target, LeaderEpoch)>),
    /// Fetch: [`Fetcher::on_fetched`] for each, then [`Fetcher::on_answered`].
    Fetch(BrokerId, Vec<FetchTarget>),
}

/// One partition of a fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTarget {
    /// Which one, and who leads it.
    pub target: Target,
    /// From where.
    pub from: Position,
    /// At most so much.
    pub bytes_max: i32,
}

/// The bytes of an answer, gone through: checked and cut into batches. Made apart from the fetcher, so that whoever guards
/// it with a lock need not hold that meanwhile.
#[derive(Debug)]
pub struct Digest(Walked);

impl Digest {
    /// Of the `records` that answer a fetch from `from` on.
    pub fn of(
        records: &Bytes,
        from: Position,
        isolation: IsolationLevel,
        aborted: &[AbortedTransaction],
        check_crcs: bool,
    ) -> Self {
        Self(walk(records, from, isolation, aborted, check_crcs))
    }
}

/// One partition.
#[derive(Debug)]
struct State {
    /// Rises whenever what is under way ceases to matter.
    version: u64,
    phase: Phase,
    paused: bool,
    /// In a request, or its batches are being read by the user.
    asked: bool,
    retry_at: Duration,
    /// What the user gets next.
    position: Option<Position>,
    /// What is fetched next: at or after `position`. Counts in [`Phase::Reading`] only.
    fetch_from: Position,
    /// The leader epoch under which `fetch_from` was found to be good.
    validated: Option<LeaderEpoch>,
    stored: VecDeque<Stored>,
    stored_bytes: usize,
    /// The next batch needs so much.
    bytes_needed: i32,
    /// Another replica to read from, and until when.
    preferred: Option<(BrokerId, Duration)>,
    high_watermark: Option<Offset>,
    last_stable_offset: Option<Offset>,
    log_start: Option<Offset>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Wants to know what is committed.
    Committed,
    LookUp(Lookup),
    Validating,
    Reading,
    /// Waits for a seek: the user was told why.
    Stopped,
}

/// Batches handed to the user's side, to be given back as far as they were not read.
#[derive(Debug)]
pub struct Portion {
    partition: TopicPartition,
    version: u64,
    position: Position,
    batches: VecDeque<Stored>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Fetcher {
    settings: FetcherSettings,
    versions: u64,
    partitions: BTreeMap<TopicPartition, State>,
    /// Partitions with batches, in the order in which they get their turn.
    ready: VecDeque<TopicPartition>,
    /// Brokers with a fetch under way.
    fetching: BTreeSet<BrokerId>,
    /// Where the next plan begins, so that limits do not starve the last ones.
    turn: usize,
    errors: VecDeque<(TopicPartition, u64, ConsumerError)>,
    stale: BTreeSet<TopicName>,
}

impl Fetcher {
    /// Without partitions.
    pub fn new(settings: FetcherSettings) -> Self {
        Self {
            settings,
            versions: 0,
            partitions: BTreeMap::new(),
            ready: VecDeque::new(),
            fetching: BTreeSet::new(),
            turn: 0,
            errors: VecDeque::new(),
            stale: BTreeSet::new(),
        }
    }

    /// What is assigned.
    pub fn assigned(&self) -> impl ExactSizeIterator<Item = &TopicPartition> {
        self.partitions.keys()
    }

    /// Whether it is assigned.
    pub fn is_assigned(&self, partition: &TopicPartition) -> bool {
        self.partitions.contains_key(partition)
    }

    /// Begins with a partition at what is committed (`from_group`) or at what `auto.offset.reset` says. One that is assigned
    /// already goes on as it is.
    pub fn assign(&mut self, partition: TopicPartition, from_group: bool, wall: TimestampMs) {
        if self.partitions.contains_key(&partition) {
            return;
        }
        let version = self.next_version();
        let zero = Position { offset: Offset::ZERO, leader_epoch: None };
        let state = State {
            version,
            phase: Phase::Committed,
            paused: false,
            asked: false,
            retry_at: Duration::ZERO,
            position: None,
            fetch_from: zero,
            validated: None,
            stored: VecDeque::new(),
            stored_bytes: 0,
            bytes_needed: 0,
            preferred: None,
            high_watermark: None,
            last_stable_offset: None,
            log_start: None,
        };
        self.partitions.insert(partition.clone(), state);
        if !from_group {
            self.reset(&partition, wall, None);
        }
    }

    /// Ends with a partition; what waits of it is dropped.
    pub fn unassign(&mut self, partition: &TopicPartition) {
        self.partitions.remove(partition);
        self.ready.retain(|other| other != partition);
        self.errors.retain(|(other, ..)| other != partition);
    }

    /// Where the user stands; `None` while that is being found out, or if it is not assigned.
    pub fn position(&self, partition: &TopicPartition) -> Option<Position> {
        self.partitions.get(partition)?.position
    }

    /// Where the user stands in each partition where that is known.
    pub fn positions(&self) -> impl Iterator<Item = (&TopicPartition, Position)> {
        self.partitions.iter().filter_map(|(partition, state)| Some((partition, state.position?)))
    }

    /// How many offsets lie between the user and the end it may read to, by the newest answer.
    pub fn lag(&self, partition: &TopicPartition) -> Option<u64> {
        let state = self.partitions.get(partition)?;
        let end = match self.settings.isolation {
            IsolationLevel::ReadUncommitted => state.high_watermark?,
            IsolationLevel::ReadCommitted => state.last_stable_offset?,
        };
        let position = state.position?.offset;
        Some(if end > position { position.distance_to(end) } else { 0 })
    }

    /// Log start and high watermark, by the newest answer.
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<(Offset, Offset)> {
        let state = self.partitions.get(partition)?;
        Some((state.log_start?, state.high_watermark?))
    }

    /// Goes on at `position`. False if it is not assigned.
    pub fn seek(&mut self, partition: &TopicPartition, position: Position) -> bool {
        self.restart(partition, Phase::Reading, Some(position))
    }

    /// Goes on at what is to be looked up. False if it is not assigned.
    pub fn seek_to(&mut self, partition: &TopicPartition, lookup: Lookup) -> bool {
        self.restart(partition, Phase::LookUp(lookup), None)
    }

    /// Gives nothing of it out and asks for nothing, until it is resumed; what waits is kept. False if it is not assigned.
    pub fn pause(&mut self, partition: &TopicPartition, paused: bool) -> bool {
        let Some(state) = self.partitions.get_mut(partition) else { return false };
        state.paused = paused;
        if !paused && !state.stored.is_empty() && !self.ready.contains(partition) {
            self.ready.push_back(partition.clone());
        }
        true
    }

    /// What is paused.
    pub fn paused(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.iter().filter(|(_, state)| state.paused).map(|(partition, _)| partition)
    }

    /// What stopped a partition and the user has not heard of.
    pub fn take_error(&mut self) -> Option<ConsumerError> {
        while let Some((partition, version, error)) = self.errors.pop_front() {
            if self.partitions.get(&partition).is_some_and(|state| state.version == version) {
                return Some(error);
            }
        }
        None
    }

    /// Topics of which something was found to be untrue since the last call.
    pub fn take_stale(&mut self) -> BTreeSet<TopicName> {
        std::mem::take(&mut self.stale)
    }

    /// What to send now. `leader_of` says what the cluster is known to be; topics it does not know become stale.
    pub fn plan(&mut self, now: Duration, leader_of: impl Fn(&TopicPartition) -> Option<Leader>) -> Vec<Plan> {
        let waiting: usize =
            self.partitions.values().filter(|state| !state.paused).map(|state| state.stored_bytes).sum();
        let crowded = waiting >= self.settings.bytes_max;
        let enough = PREFETCH_ANSWERS * usize::try_from(self.settings.partition_bytes_max).unwrap_or(0).max(1);
        let mut committed = Vec::new();
        let mut lookups: BTreeMap<BrokerId, Vec<(Target, Lookup)>> = BTreeMap::new();
        let mut validations: BTreeMap<BrokerId, Vec<(Target, LeaderEpoch)>> = BTreeMap::new();
        let mut fetches: BTreeMap<BrokerId, Vec<FetchTarget>> = BTreeMap::new();
        for (partition, state) in &mut self.partitions {
            if state.asked || now < state.retry_at || state.phase == Phase::Stopped {
                continue;
            }
            if state.phase == Phase::Committed {
                state.asked = true;
                committed.push((partition.clone(), state.version));
                continue;
            }
            let Some(leader) = leader_of(partition) else {
                self.stale.insert(partition.topic.clone());
                state.retry_at = now + self.settings.retry_backoff;
                continue;
            };
            let target = Target { partition: partition.clone(), version: state.version, leader };
            if state.phase == Phase::Reading && state.must_validate(leader.epoch) {
                state.phase = Phase::Validating;
            }
            match state.phase {
                Phase::Committed | Phase::Stopped => {}
                Phase::LookUp(lookup) => {
                    state.asked = true;
                    lookups.entry(leader.broker).or_default().push((target, lookup));
                }
                Phase::Validating => {
                    let epoch = state.fetch_from.leader_epoch.expect("only a position with an epoch is validated");
                    state.asked = true;
                    validations.entry(leader.broker).or_default().push((target, epoch));
                }
                Phase::Reading => {
                    let full = state.stored_bytes >= enough || crowded && !state.stored.is_empty();
                    let broker = state.read_from(leader.broker, now);
                    if state.paused || full || self.fetching.contains(&broker) {
                        continue;
                    }
                    fetches.entry(broker).or_default().push(FetchTarget {
                        target,
                        from: state.fetch_from,
                        bytes_max: self.settings.partition_bytes_max.max(state.bytes_needed),
                    });
                }
            }
        }
        let mut plans = Vec::new();
        if !committed.is_empty() {
            plans.push(Plan::Committed(committed));
        }
        plans.extend(lookups.into_iter().map(|(broker, targets)| Plan::LookUp(broker, targets)));
        plans.extend(validations.into_iter().map(|(broker, targets)| Plan::Validate(broker, targets)));
        for (broker, mut targets) in fetches {
            self.turn = self.turn.wrapping_add(1);
            let turn = self.turn % targets.len();
            targets.rotate_left(turn);
            for target in &targets {
                let state = self.partitions.get_mut(&target.target.partition);
                state.expect("it was just planned for").asked = true;
            }
            self.fetching.insert(broker);
            plans.push(Plan::Fetch(broker, targets));
        }
        plans
    }

    /// When to call [`Fetcher::plan`] although nothing happened.
    pub fn next_deadline(&self) -> Option<Duration> {
        let waits = |state: &&State| !state.asked && state.retry_at > Duration::ZERO && state.phase != Phase::Stopped;
        self.partitions.values().filter(waits).map(|state| state.retry_at).min()
    }

    /// Something failed on its way: these are asked again after the back-off, and what is known of their leaders is doubted.
    pub fn on_failed<'a>(&mut self, targets: impl IntoIterator<Item = (&'a TopicPartition, u64)>, now: Duration) {
        for (partition, version) in targets {
            if let Some(state) = live(&mut self.partitions, partition, version) {
                state.asked = false;
                state.retry_at = now + self.settings.retry_backoff;
                state.preferred = None;
                self.stale.insert(partition.topic.clone());
            }
        }
    }

    /// The whole of a request was refused for a reason that the user must hear.
    pub fn on_refused<'a>(
        &mut self,
        targets: impl IntoIterator<Item = (&'a TopicPartition, u64)>,
        error: &ClientError,
        now: Duration,
    ) {
        let mut first = None;
        for (partition, version) in targets {
            if let Some(state) = live(&mut self.partitions, partition, version) {
                state.asked = false;
                state.retry_at = now + self.settings.retry_backoff;
                first.get_or_insert((partition, version));
            }
        }
        if let Some((partition, version)) = first {
            self.tell(partition, version, error.clone().into());
        }
    }

    /// What the group has committed for a partition; `None`: nothing.
    pub fn on_committed(
        &mut self,
        partition: &TopicPartition,
        version: u64,
        committed: Option<Position>,
        wall: TimestampMs,
    ) {
        let Some(state) = live(&mut self.partitions, partition, version) else { return };
        state.asked = false;
        match committed {
            Some(position) => {
                state.phase = Phase::Reading;
                (state.position, state.fetch_from) = (Some(position), position);
            }
            None => self.reset(partition, wall, None),
        }
    }

    /// What a lookup found; `None`: no record is so young.
    pub fn on_looked_up(
        &mut self,
        target: &Target,
        lookup: Lookup,
        found: Result<Option<Position>, ErrorCode>,
        now: Duration,
    ) {
        let Some(state) = live(&mut self.partitions, &target.partition, target.version) else { return };
        state.asked = false;
        match found {
            Ok(Some(position)) => {
                state.phase = Phase::Reading;
                (state.position, state.fetch_from) = (Some(position), position);
                // It was told by this leader.
                state.validated = target.leader.epoch;
            }
            Ok(None) if lookup != Lookup::Latest => state.phase = Phase::LookUp(Lookup::Latest),
            // A log without an end: asked again, like any answer that makes no sense.
            Ok(None) => state.retry_at = now + self.settings.retry_backoff,
            Err(code) => self.on_code(&target.partition, target.version, code, now),
        }
    }

    /// Where the epoch asked about ends for the leader: (its largest epoch not above that, its end); `None`: it cannot tell.
    pub fn on_validated(
        &mut self,
        target: &Target,
        end: Result<Option<Position>, ErrorCode>,
        now: Duration,
        wall: TimestampMs,
    ) {
        let Some(state) = live(&mut self.partitions, &target.partition, target.version) else { return };
        state.asked = false;
        let end = match end {
            Ok(end) => end,
            Err(code) => return self.on_code(&target.partition, target.version, code, now),
        };
        state.phase = Phase::Reading;
        state.validated = target.leader.epoch;
        let position = state.position.unwrap_or(state.fetch_from);
        if end.is_some_and(|end| end.offset >= state.fetch_from.offset) {
            return;
        }
        // What was fetched ahead may be of the part that is gone; the part before is fetched again.
        state.version = self.versions + 1;
        self.versions += 1;
        state.stored.clear();
        state.stored_bytes = 0;
        state.fetch_from = position;
        if end.is_some_and(|end| end.offset >= position.offset) {
            return;
        }
        match (self.settings.reset, end) {
            (OffsetReset::None, _) => {
                let offset = position.offset;
                let partition = target.partition.clone();
                let end = end.map(|end| end.offset);
                self.stop(&target.partition, ConsumerError::Truncated { partition, offset, end });
            }
            (_, Some(end)) => {
                (state.position, state.fetch_from) = (Some(end), end);
            }
            (_, None) => self.reset(&target.partition, wall, None),
        }
    }

    /// The broker cannot be asked where epochs end: positions are taken as they are.
    pub fn on_validation_unsupported(&mut self, target: &Target) {
        if let Some(state) = live(&mut self.partitions, &target.partition, target.version) {
            state.asked = false;
            state.phase = Phase::Reading;
            state.validated = target.leader.epoch;
        }
    }

    /// The answer to one partition of a fetch, and what its bytes hold.
    pub fn on_fetched(
        &mut self,
        asked: &FetchTarget,
        answer: &FetchPartitionResponse,
        digest: Digest,
        now: Duration,
        wall: TimestampMs,
    ) {
        let Target { partition, version, leader } = &asked.target;
        let Some(state) = live(&mut self.partitions, partition, *version) else { return };
        state.asked = false;
        if answer.error_code == ErrorCode::OFFSET_OUT_OF_RANGE {
            if state.preferred.take().is_some() {
                return; // another replica may be behind: the leader knows
            }
            if !state.stored.is_empty() {
                // Batches before the gap are good, and are read first; then the answer will be the same.
                state.retry_at = now + self.settings.retry_backoff;
                return;
            }
            return self.reset(partition, wall, Some(asked.from.offset));
        }
        if answer.error_code.is_error() {
            state.preferred = None;
            return self.on_code(partition, *version, answer.error_code, now);
        }
        state.high_watermark = Offset::new(answer.high_watermark).or(state.high_watermark);
        state.last_stable_offset = Offset::new(answer.last_stable_offset).or(state.last_stable_offset);
        state.log_start = Offset::new(answer.log_start_offset).or(state.log_start);
        state.validated = state.validated.max(leader.epoch);
        if let Some(replica) = BrokerId::new(answer.preferred_read_replica) {
            state.preferred = Some((replica, now + PREFERRED_REPLICA_TIME)).filter(|(id, _)| *id != leader.broker);
        }
        let settings = &self.settings;
        let walked = digest.0;
        state.bytes_needed = 0;
        let progress = walked.next != state.fetch_from;
        state.fetch_from = walked.next;
        if !walked.stored.is_empty() {
            if state.stored.is_empty() && !self.ready.contains(partition) {
                self.ready.push_back(partition.clone());
            }
            state.stored_bytes += walked.stored.iter().map(Stored::bytes).sum::<usize>();
            state.stored.extend(walked.stored);
        }
        match walked.ended {
            None => {}
            // Brokers since KIP-74 send the first batch whole, whatever the limit. One that does not is asked for more.
            Some(Ended::TooSmall(need)) => {
                state.bytes_needed = i32::try_from(need).unwrap_or(i32::MAX);
                if state.bytes_needed <= asked.bytes_max {
                    state.retry_at = now + settings.retry_backoff; // that was enough, and it did not come
                }
            }
            // The good ones before it are read first; it will be the first of the next answer.
            Some(Ended::Damaged(_)) if progress => {}
            Some(Ended::Damaged(why)) => {
                let offset = state.fetch_from.offset;
                state.retry_at = now + settings.retry_backoff;
                self.tell(partition, *version, ConsumerError::Corrupt { partition: partition.clone(), offset, why });
            }
        }
    }

    /// A fetch is over, answered or not: partitions of it that the answer did not mention are asked again.
    pub fn on_answered(&mut self, broker: BrokerId, asked: &[FetchTarget]) {
        self.fetching.remove(&broker);
        for FetchTarget { target, .. } in asked {
            if let Some(state) = live(&mut self.partitions, &target.partition, target.version) {
                state.asked = false;
            }
        }
    }

    /// Whether something can be given out.
    pub fn has_ready(&self) -> bool {
        self.ready.iter().any(|partition| self.partitions.get(partition).is_some_and(State::gives))
    }

    /// The next batches of one partition, enough for `count` records if there are so many. They count as in the user's
    /// hands until [`Fetcher::settle`].
    pub fn take(&mut self, count: usize) -> Option<Portion> {
        for _ in 0..self.ready.len() {
            let partition = self.ready.pop_front()?;
            let Some(state) = self.partitions.get_mut(&partition) else { continue };
            if !state.gives() {
                // A paused one comes back when it is resumed.
                continue;
            }
            let (mut batches, mut records) = (VecDeque::new(), 0);
            while records < count {
                let Some(stored) = state.stored.pop_front() else { break };
                state.stored_bytes = state.stored_bytes.saturating_sub(stored.bytes());
                records += stored.records();
                batches.push_back(stored);
            }
            let position = state.position.expect("batches are stored only where the position is known");
            return Some(Portion { version: state.version, position, batches, partition });
        }
        None
    }

    /// The user has read a portion up to where it stands now; what is left of it comes first again. True if that made room
    /// for another request.
    pub fn settle(&mut self, portion: Portion) -> bool {
        let Portion { partition, version, position, mut batches } = portion;
        let Some(state) = live(&mut self.partitions, &partition, version) else { return false };
        state.position = Some(position);
        state.stored_bytes += batches.iter().map(Stored::bytes).sum::<usize>();
        while let Some(stored) = batches.pop_back() {
            state.stored.push_front(stored);
        }
        if !state.stored.is_empty() && !self.ready.contains(&partition) {
            self.ready.push_back(partition);
        }
        !state.asked
    }

    /// The user could not read a batch to its end: what waits behind it is dropped and fetched again from there.
    pub fn on_unreadable(&mut self, partition: &TopicPartition, position: Position) {
        self.restart(partition, Phase::Reading, Some(position));
    }

    /// Begins anew; answers to what was asked before no longer count.
    fn restart(&mut self, partition: &TopicPartition, phase: Phase, position: Option<Position>) -> bool {
        let version = self.next_version();
        let Some(state) = self.partitions.get_mut(partition) else { return false };
        state.version = version;
        state.phase = phase;
        state.asked = false;
        state.retry_at = Duration::ZERO;
        state.position = position;
        state.validated = None;
        if let Some(position) = position {
            state.fetch_from = position;
        }
        state.stored.clear();
        state.stored_bytes = 0;
        state.bytes_needed = 0;
        self.ready.retain(|other| other != partition);
        true
    }

    /// By `auto.offset.reset`; `outside` is the offset that was not there.
    fn reset(&mut self, partition: &TopicPartition, wall: TimestampMs, outside: Option<Offset>) {
        let lookup = match self.settings.reset {
            OffsetReset::Earliest => Lookup::Earliest,
            OffsetReset::Latest => Lookup::Latest,
            OffsetReset::ByDuration(age) => {
                let age = TimestampMs::try_from(age.as_millis()).unwrap_or(TimestampMs::MAX);
                Lookup::Time(wall.saturating_sub(age).max(0))
            }
            OffsetReset::None => {
                let partition = partition.clone();
                let error = match outside {
                    Some(offset) => ConsumerError::OutOfRange { partition: partition.clone(), offset },
                    None => ConsumerError::NoOffset { partition: partition.clone() },
                };
                return self.stop(&partition, error);
            }
        };
        self.restart(partition, Phase::LookUp(lookup), None);
    }

    fn stop(&mut self, partition: &TopicPartition, error: ConsumerError) {
        let Some(state) = self.partitions.get_mut(partition) else { return };
        state.phase = Phase::Stopped;
        let version = state.version;
        self.tell(partition, version, error);
    }

    /// One error of a partition at a time is enough.
    fn tell(&mut self, partition: &TopicPartition, version: u64, error: ConsumerError) {
        if !self.errors.iter().any(|(other, known, _)| other == partition && *known == version) {
            self.errors.push_back((partition.clone(), version, error));
        }
    }

    /// A code that is no answer: what may pass is tried again, the rest is told.
    fn on_code(&mut self, partition: &TopicPartition, version: u64, code: ErrorCode, now: Duration) {
        let Some(state) = live(&mut self.partitions, partition, version) else { return };
        state.retry_at = now + self.settings.retry_backoff;
        if metadata_is_stale(code) || code == ErrorCode::OFFSET_NOT_AVAILABLE {
            self.stale.insert(partition.topic.clone());
        } else if code == ErrorCode::CORRUPT_MESSAGE {
            let offset = state.fetch_from.offset;
            let why = BatchError::Crc;
            self.tell(partition, version, ConsumerError::Corrupt { partition: partition.clone(), offset, why });
        } else if !code.retriable() && code != ErrorCode::UNKNOWN_SERVER_ERROR {
            let error = ClientError::broker(format_args!("partition {partition}"), code, None);
            self.tell(partition, version, error.into());
        }
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }
}

/// The partition, if nothing has happened to it since.
fn live<'a>(
    partitions: &'a mut BTreeMap<TopicPartition, State>,
    partition: &TopicPartition,
    version: u64,
) -> Option<&'a mut State> {
    partitions.get_mut(partition).filter(|state| state.version == version)
}

impl State {
    fn gives(&self) -> bool {
        !self.paused && !self.stored.is_empty()
    }

    /// A newer leader may never have had what came before the position.
    fn must_validate(&self, leader_epoch: Option<LeaderEpoch>) -> bool {
        self.fetch_from.leader_epoch.is_some() && leader_epoch.is_some() && self.validated < leader_epoch
    }

    fn read_from(&mut self, leader: BrokerId, now: Duration) -> BrokerId {
        if self.preferred.is_some_and(|(_, until)| now >= until) {
            self.preferred = None;
        }
        self.preferred.map_or(leader, |(replica, _)| replica)
    }
}

impl Portion {
    /// Which partition it is of.
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// Moves up to `count` records to the end of `out`. Errors: a batch is damaged inside; the position stands before what
    /// could not be read, and the portion is to be given to [`Fetcher::on_unreadable`].
    pub fn read_into(&mut self, count: usize, out: &mut Vec<Record>) -> Result<(), ConsumerError> {
        let enough = out.len() + count;
        while let Some(mut stored) = self.batches.pop_front() {
            if let Content::Packed(info, bytes) = &stored.content {
                if out.len() >= enough {
                    self.batches.push_front(stored);
                    return Ok(());
                }
                let batch = RecordBatch::open(self.partition.clone(), *info, bytes, self.position.offset);
                stored.content = Content::Open(batch.map_err(|why| self.corrupt(why))?);
            }
            if let Content::Open(batch) = &mut stored.content {
                let taken = batch.take_into(enough - out.len(), out);
                let here = Position { offset: batch.from(), leader_epoch: batch.leader_epoch() };
                if here.offset > self.position.offset {
                    self.position = here;
                }
                match taken {
                    Ok(Taken::All) => {}
                    Ok(Taken::Some) => {
                        self.batches.push_front(stored);
                        return Ok(());
                    }
                    Err(why) => return Err(self.corrupt(why)),
                }
            }
            self.position = stored.next;
        }
        Ok(())
    }

    /// All of it as batches, opened. Errors: as [`Portion::read_into`]; batches before the damaged one are in `out`.
    pub fn open_into(&mut self, out: &mut Vec<RecordBatch>) -> Result<(), ConsumerError> {
        while let Some(stored) = self.batches.pop_front() {
            match stored.content {
                Content::Skipped => {}
                Content::Open(batch) => out.push(batch),
                Content::Packed(info, bytes) => {
                    let batch = RecordBatch::open(self.partition.clone(), info, &bytes, self.position.offset);
                    out.push(batch.map_err(|why| self.corrupt(why))?);
                }
            }
            self.position = stored.next;
        }
        Ok(())
    }

    /// Where reading stands.
    pub fn position(&self) -> Position {
        self.position
    }

    fn corrupt(&self, why: BatchError) -> ConsumerError {
        ConsumerError::Corrupt { partition: self.partition.clone(), offset: self.position.offset, why }
    }
}
