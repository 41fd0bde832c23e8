//! Members of the client against the broker's own pure coordinator, with a network that loses and delays, users that poll
//! slowly, members that leave, die and come back, topics that grow, and a coordinator that moves.
//!
//! Held at every step: no two members that the coordinator counts as its own, in one generation or both dynamic, read the
//! same partition. When the faults end: everybody alive is settled in one generation within [`HEAL`], and all partitions are
//! read, each by one. `RINGLOG_SEED=n` plays one seed, `RINGLOG_SEEDS=n` that many.

#![allow(clippy::unwrap_used)] // a test ends by panicking

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use ringlog::client::assignor::{Assignor, Topics};
use ringlog::client::membership::{
    Action, Ask, Farewell, Identity, Joined, Membership, MembershipSettings, Refused, Step,
};
use ringlog::coordinator::command as group;
use ringlog::coordinator::command::{GroupAnswer, GroupCommand, GroupError, GroupSettings, Now, Ticket};
use ringlog::coordinator::partition::{Effects, Partition, WriteId};
use ringlog::protocol::ErrorCode;
use ringlog::types::{PartitionIndex, TopicId, TopicName, TopicPartition};

const GROUP: &str = "g";
const SLOTS: usize = 5;
const CHAOS: Duration = Duration::from_secs(90);
/// Ghosts (joins whose answers were lost) hold a rebalance for its timeout, and new ones for a session.
const HEAL: Duration = Duration::from_secs(120);
const SESSION: Duration = Duration::from_secs(6);
const MAX_POLL: Duration = Duration::from_secs(8);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A process with a member in it, and its user.
struct Process {
    life: u32,
    member: Membership,
    user: User,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum User {
    /// Waits in a poll until then.
    Polls(Duration),
    /// Hears of a step until then.
    Hears(Step, Duration),
    /// Works until then.
    Works(Duration),
}

/// What a member waits for.
#[derive(Clone, Debug)]
enum Asked {
    Join(Ask),
    Sync(Ask),
    Heartbeat(Ask),
    Leave,
    Commit(Identity),
}

#[derive(Debug)]
enum Event {
    /// A request reaches the coordinator.
    Request {
        slot: usize,
        life: u32,
        number: u64,
        asked: Asked,
        command: GroupCommand,
    },
    /// Its answer reaches the member, or none does.
    Answer {
        slot: usize,
        life: u32,
        number: u64,
        asked: Asked,
        answer: Option<GroupAnswer>,
    },
    Found {
        slot: usize,
        life: u32,
    },
    Known {
        slot: usize,
        life: u32,
        ask: Ask,
    },
    Metadata {
        slot: usize,
        life: u32,
    },
    Wake {
        slot: usize,
        life: u32,
    },
    Written(WriteId),
    Chaos,
}

struct World {
    rng: Rng,
    seed: u64,
    assignors: Vec<Assignor>,
    partition: Partition,
    writes: VecDeque<WriteId>,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64)>>,
    bodies: BTreeMap<u64, Event>,
    counter: u64,
    askers: BTreeMap<Ticket, (usize, u32, u64, Asked)>,
    /// Requests that were not answered yet.
    waiting: BTreeSet<u64>,
    topics: BTreeMap<TopicName, usize>,
    processes: [Option<Process>; SLOTS],
    lives: u32,
    away_until: Duration,
    healing: bool,
    seen: Seen,
}

/// What happened at least once over all seeds: a simulation that never gets there proves nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    assigned: u64,
    revoked: u64,
    lost: u64,
    overdue: u64,
    static_restarts: u64,
    unanswered: u64,
    moved: u64,
    grown: u64,
}

fn topic(index: usize) -> TopicName {
    ["a", "b", "c"][index].into()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let assignors = match rng.usize(0..5) {
            0 => vec![Assignor::Range],
            1 => vec![Assignor::RoundRobin],
            2 => vec![Assignor::Sticky],
            3 => vec![Assignor::Range, Assignor::CooperativeSticky],
            _ => vec![Assignor::CooperativeSticky],
        };
        let settings = GroupSettings {
            initial_rebalance_delay: Duration::from_millis(rng.u64(0..3) * 500),
            min_session_timeout: Duration::from_secs(1),
            max_session_timeout: Duration::from_secs(60),
            max_size: 100,
            offset_metadata_max: 64,
            offsets_retention: Duration::from_secs(10_000),
            retention_check_interval: Duration::from_secs(1000),
        };
        Self {
            topics: (0..3).map(|index| (topic(index), rng.usize(1..4))).collect(),
            rng,
            seed,
            assignors,
            partition: Partition::new(settings),
            writes: VecDeque::new(),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            counter: 0,
            askers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            processes: Default::default(),
            lives: 0,
            away_until: Duration::ZERO,
            healing: false,
            seen: Seen::default(),
        }
    }

    fn play(mut self) -> Seen {
        self.after(Duration::ZERO, Event::Chaos);
        self.run_until(CHAOS);
        self.healing = true;
        for slot in 0..SLOTS {
            if self.processes[slot].is_none() && (slot == 0 || self.rng.bool()) {
                self.start(slot);
            } else if let Some(process) = &mut self.processes[slot] {
                // Whoever was told to read only some topics reads all now.
                process.member.on_subscription((0..3).map(topic).collect());
                self.drive(slot);
            }
        }
        let deadline = CHAOS + HEAL;
        while !self.is_settled() {
            assert!(self.now < deadline, "seed {}: not settled: {}", self.seed, self.report());
            self.run_until(self.now + Duration::from_millis(500));
        }
        self.seen
    }

    fn report(&self) -> String {
        let processes = self.processes.iter().flatten();
        let lines: Vec<String> = processes.map(|process| format!("{:?} {:#?}", process.user, process.member)).collect();
        format!("{}\n{:#?}", lines.join("\n"), self.partition)
    }

    fn is_settled(&self) -> bool {
        let members: Vec<&Membership> = self.processes.iter().flatten().map(|process| &process.member).collect();
        let generations: BTreeSet<Option<i32>> =
            members.iter().map(|member| member.identity().map(|identity| identity.generation)).collect();
        let owned: usize = members.iter().map(|member| member.owned().len()).sum();
        let distinct: BTreeSet<&TopicPartition> = members.iter().flat_map(|member| member.owned()).collect();
        let all: usize = self.topics.values().sum();
        members.iter().all(|member| member.is_settled())
            && generations.len() == 1
            && generations.first().is_some_and(Option::is_some)
            && owned == all
            && distinct.len() == all
    }

    fn clock(&self) -> Now {
        Now { monotonic: self.now, wall: 1_000_000 + self.now.as_millis() as i64 }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.counter += 1;
        self.bodies.insert(self.counter, event);
        self.events.push(Reverse((self.now + delay, self.counter)));
    }

    fn chance(&mut self, percent: u32) -> bool {
        !self.healing && self.rng.u32(0..100) < percent
    }

    fn flight(&mut self) -> Duration {
        let slow = self.chance(3);
        Duration::from_millis(if slow { self.rng.u64(0..6000) } else { self.rng.u64(0..20) })
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let tick = self.partition.next_deadline();
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            match (tick, event) {
                (Some(at), _) if at <= end && event.is_none_or(|event| at <= event) => {
                    self.now = self.now.max(at);
                    let mut fx = Effects::default();
                    self.partition.on_tick(self.clock(), &mut fx);
                    self.take(fx);
                }
                (_, Some(at)) if at <= end => {
                    let Reverse((at, id)) = self.events.pop().unwrap();
                    self.now = self.now.max(at);
                    let event = self.bodies.remove(&id).unwrap();
                    self.on_event(event);
                }
                _ => break,
            }
            self.check_owners();
        }
        self.now = end;
    }

    /// Two that are both of the group never read the same. A static member that slept through a rebalance still counts as
    /// one of the group while it does not know: for static members only one generation is compared.
    fn check_owners(&mut self) {
        let mut fx = Effects::default();
        self.partition.on_command(self.clock(), Ticket(0), GroupCommand::Describe(GROUP.into()), 0, &mut fx);
        let Some((_, GroupAnswer::Describe(Ok(group)))) = fx.replies.pop() else { return };
        let counted = |member: &Membership| {
            let identity = member.identity()?;
            group.members.iter().any(|one| one.member_id == identity.member_id).then_some(identity.generation)
        };
        let mut owner: BTreeMap<&TopicPartition, (usize, i32)> = BTreeMap::new();
        for (slot, process) in self.processes.iter().enumerate() {
            let Some(process) = process else { continue };
            let Some(generation) = counted(&process.member) else { continue };
            for partition in process.member.owned() {
                if let Some((other, theirs)) = owner.insert(partition, (slot, generation)) {
                    let dynamic = is_dynamic(slot) && is_dynamic(other);
                    assert!(
                        !dynamic && theirs != generation,
                        "seed {}, {:?}: {other} and {slot} both read {partition}: {}",
                        self.seed,
                        self.now,
                        self.report()
                    );
                }
            }
        }
    }

    fn process(&mut self, slot: usize, life: u32) -> Option<&mut Process> {
        self.processes[slot].as_mut().filter(|process| process.life == life)
    }

    fn on_event(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Request { slot, life, number, asked, command } => {
                self.counter += 1;
                let ticket = Ticket(self.counter);
                self.askers.insert(ticket, (slot, life, number, asked));
                if now < self.away_until {
                    let answer = command.refused(GroupError::NotCoordinator);
                    return self.deliver(ticket, answer);
                }
                let (random, mut fx) = (self.rng.u128(..), Effects::default());
                self.partition.on_command(self.clock(), ticket, command, random, &mut fx);
                self.take(fx);
            }
            Event::Answer { slot, life, number, asked, answer } => {
                if !self.waiting.remove(&number) {
                    return;
                }
                self.seen.unanswered += u64::from(answer.is_none());
                if let Some(process) = self.process(slot, life) {
                    on_answer(&mut process.member, asked, answer, now);
                    self.drive(slot);
                }
            }
            Event::Found { slot, life } => {
                if let Some(process) = self.process(slot, life) {
                    process.member.on_coordinator(Ok(()), now);
                    self.drive(slot);
                }
            }
            Event::Known { slot, life, ask } => {
                let topics: Topics =
                    self.topics.iter().map(|(topic, count)| (topic.clone(), vec![BTreeSet::new(); *count])).collect();
                if let Some(process) = self.process(slot, life) {
                    process.member.on_topics(ask, &topics);
                    self.drive(slot);
                }
            }
            Event::Metadata { slot, life } => {
                let topics = self.topics.clone();
                if let Some(process) = self.process(slot, life) {
                    process.member.on_metadata(|topic| topics.get(topic).copied());
                    self.drive(slot);
                }
            }
            Event::Wake { slot, life } => {
                if self.process(slot, life).is_some() {
                    self.drive(slot);
                }
            }
            Event::Written(id) => {
                let mut fx = Effects::default();
                self.partition.on_written(self.clock(), id, Ok(()), &mut fx);
                self.take(fx);
            }
            Event::Chaos => self.wreak(),
        }
    }

    fn take(&mut self, fx: Effects) {
        self.partition.check();
        for (id, _) in fx.writes {
            self.writes.push_back(id);
            // The log completes in order.
            let id = self.writes.pop_front().unwrap();
            self.after(Duration::from_millis(10), Event::Written(id));
        }
        for (ticket, answer) in fx.replies {
            self.deliver(ticket, answer);
        }
    }

    fn deliver(&mut self, ticket: Ticket, answer: GroupAnswer) {
        let Some((slot, life, number, asked)) = self.askers.remove(&ticket) else { return };
        if !self.chance(3) {
            let flight = self.flight();
            self.after(flight, Event::Answer { slot, life, number, asked, answer: Some(answer) });
        }
    }

    fn wreak(&mut self) {
        if self.healing {
            return;
        }
        let slot = self.rng.usize(0..SLOTS);
        match self.rng.u32(0..100) {
            0..35 if self.processes[slot].is_none() => self.start(slot),
            // Killed: nobody is told. Static ones come back at once, or their places are kept for nothing.
            35..45 if self.processes[slot].take().is_some() && !is_dynamic(slot) => {
                self.seen.static_restarts += 1;
                self.start(slot);
            }
            45..60 => {
                if let Some(process) = &mut self.processes[slot] {
                    // A program that does so has come out of its poll, or dropped it.
                    process.member.on_step_undone();
                    process.member.on_unsubscribed("bye", Farewell::ByKind);
                    process.user = User::Works(self.now);
                    self.drive(slot);
                }
            }
            60..70 => {
                let index = self.rng.usize(0..3);
                *self.topics.get_mut(&topic(index)).unwrap() += usize::from(self.topics.values().sum::<usize>() < 14);
                self.seen.grown += 1;
                self.spread_metadata();
            }
            70..78 => {
                self.seen.moved += 1;
                self.away_until = self.now + Duration::from_millis(self.rng.u64(0..3000));
            }
            78..90 => {
                let wants = self.some_topics();
                if let Some(process) = &mut self.processes[slot] {
                    process.member.on_subscription(wants);
                    self.drive(slot);
                }
            }
            _ => {}
        }
        let pause = Duration::from_millis(self.rng.u64(0..4000));
        self.after(pause, Event::Chaos);
    }

    fn some_topics(&mut self) -> BTreeSet<TopicName> {
        let some: BTreeSet<TopicName> = (0..3).filter(|_| self.rng.u8(..) < 180).map(topic).collect();
        if some.is_empty() { [topic(0)].into() } else { some }
    }

    fn spread_metadata(&mut self) {
        for slot in 0..SLOTS {
            if let Some(life) = self.processes[slot].as_ref().map(|process| process.life) {
                let delay = Duration::from_millis(self.rng.u64(0..500));
                self.after(delay, Event::Metadata { slot, life });
            }
        }
    }

    fn start(&mut self, slot: usize) {
        self.lives += 1;
        let mut member = Membership::new(MembershipSettings {
            group_id: GROUP.into(),
            instance_id: (!is_dynamic(slot)).then(|| format!("i{slot}").into()),
            assignors: self.assignors.clone(),
            session_timeout: SESSION,
            heartbeat_interval: Duration::from_secs(1),
            max_poll_interval: MAX_POLL,
            request_timeout: REQUEST_TIMEOUT,
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            rack: None,
            seed: self.rng.u64(..),
        });
        member.on_subscription(if self.healing { (0..3).map(topic).collect() } else { self.some_topics() });
        self.processes[slot] = Some(Process { life: self.lives, member, user: User::Works(self.now) });
        self.drive(slot);
    }

    /// The user acts, then the member, and somebody is woken when there is more.
    fn drive(&mut self, slot: usize) {
        self.act_for_user(slot);
        let Some(process) = &mut self.processes[slot] else { return };
        let life = process.life;
        let overdue_before = process.member.identity().is_some();
        let mut actions = Vec::new();
        while let Some(action) = process.member.next_action(self.now) {
            actions.push(action);
        }
        let lapsed = overdue_before && process.member.identity().is_none();
        self.seen.overdue += u64::from(lapsed);
        let member = process.member.next_deadline();
        let (User::Polls(until) | User::Hears(_, until) | User::Works(until)) = process.user;
        let wake = member.into_iter().chain([until]).filter(|at| *at > self.now).min();
        let stopped = !process.member.is_leaving() && process.member.owned().is_empty() && actions_end(&actions);
        for action in actions {
            self.send(slot, life, action);
        }
        if stopped {
            self.processes[slot] = None;
        } else if let Some(at) = wake {
            self.after(at - self.now, Event::Wake { slot, life });
        }
    }

    fn act_for_user(&mut self, slot: usize) {
        loop {
            let now = self.now;
            let (listens, polls, dawdles) =
                (self.rng.u64(0..40), self.rng.u64(100..500), self.chance(4).then(|| self.rng.u64(0..14_000)));
            let works = Duration::from_millis(dawdles.unwrap_or(self.rng.u64(0..100)));
            let commits = self.rng.bool();
            let Some(process) = &mut self.processes[slot] else { return };
            let life = process.life;
            match process.user.clone() {
                User::Works(until) if now >= until => {
                    process.member.on_poll();
                    process.user = User::Polls(now + Duration::from_millis(polls));
                }
                User::Polls(_) if process.member.has_step() => {
                    let step = process.member.next_step().unwrap();
                    let identity = process.member.identity().filter(|_| matches!(step, Step::Revoke(_)) && commits);
                    process.user = User::Hears(step, now + Duration::from_millis(listens));
                    if let Some(identity) = identity {
                        self.commit(slot, life, identity);
                    }
                }
                User::Polls(until) if now >= until => {
                    if let Some(error) = process.member.take_error() {
                        // A restart of its static twin: this one is the older.
                        assert_eq!(error.code(), Some(ErrorCode::FENCED_INSTANCE_ID), "{error}");
                        self.processes[slot] = None;
                        return;
                    }
                    process.member.on_poll_end(now);
                    process.user = User::Works(now + works);
                }
                User::Hears(step, until) if now >= until => {
                    match step {
                        Step::Assign(_) => self.seen.assigned += 1,
                        Step::Revoke(_) => self.seen.revoked += 1,
                        Step::Lose(_) => self.seen.lost += 1,
                    }
                    process.member.on_step_done();
                    process.user = User::Polls(now + Duration::from_millis(polls));
                }
                User::Works(_) | User::Polls(_) | User::Hears(..) => return,
            }
        }
    }

    fn commit(&mut self, slot: usize, life: u32, identity: Identity) {
        let command = GroupCommand::OffsetCommit(group::CommitRequest {
            member: member_request(&identity, slot),
            retention: None,
            version: 9,
            partitions: vec![group::CommitPartition {
                topic: topic(0),
                topic_id: TopicId::ZERO,
                partition: PartitionIndex::ZERO,
                offset: 7,
                leader_epoch: None,
                metadata: "".into(),
            }],
        });
        self.request(slot, life, Asked::Commit(identity), command, REQUEST_TIMEOUT);
    }

    fn send(&mut self, slot: usize, life: u32, action: Action) {
        let instance_id: Option<Arc<str>> = (!is_dynamic(slot)).then(|| format!("i{slot}").into());
        match action {
            Action::FindCoordinator => {
                let flight = self.flight();
                self.after(flight, Event::Found { slot, life });
            }
            Action::Deal { ask, .. } => {
                let flight = self.flight();
                self.after(flight, Event::Known { slot, life, ask });
            }
            Action::Join(join) => {
                let protocols = join.protocols.into_iter();
                let command = GroupCommand::Join(group::JoinRequest {
                    group_id: GROUP.into(),
                    member_id: join.member_id,
                    instance_id,
                    client_id: "c".into(),
                    client_host: "/h".into(),
                    session_timeout_ms: SESSION.as_millis() as i32,
                    rebalance_timeout_ms: MAX_POLL.as_millis() as i32,
                    protocol_type: "consumer".into(),
                    protocols: protocols
                        .map(|(assignor, metadata)| group::Protocol { name: assignor.name().into(), metadata })
                        .collect(),
                    version: 9,
                });
                self.request(slot, life, Asked::Join(join.ask), command, join.timeout);
            }
            Action::Sync(sync) => {
                let command = GroupCommand::Sync(group::SyncRequest {
                    member: member_request(&sync.identity, slot),
                    protocol_type: Some("consumer".into()),
                    protocol: Some(sync.assignor.name().into()),
                    assignments: sync.assignments,
                });
                self.request(slot, life, Asked::Sync(sync.ask), command, MAX_POLL);
            }
            Action::Heartbeat { ask, identity } => {
                let command = GroupCommand::Heartbeat(member_request(&identity, slot));
                self.request(slot, life, Asked::Heartbeat(ask), command, REQUEST_TIMEOUT);
            }
            Action::Leave { identity, .. } => {
                let leaving = group::Leaving { member_id: identity.member_id, instance_id, reason: None };
                let request = group::LeaveRequest { group_id: GROUP.into(), members: vec![leaving] };
                self.request(slot, life, Asked::Leave, GroupCommand::Leave(request), REQUEST_TIMEOUT);
            }
        }
    }

    fn request(&mut self, slot: usize, life: u32, asked: Asked, command: GroupCommand, patience: Duration) {
        self.counter += 1;
        let number = self.counter;
        self.waiting.insert(number);
        self.after(patience, Event::Answer { slot, life, number, asked: asked.clone(), answer: None });
        if !self.chance(3) {
            let flight = self.flight();
            self.after(flight, Event::Request { slot, life, number, asked, command });
        }
    }
}

/// Slots 3 and 4 are static.
fn is_dynamic(slot: usize) -> bool {
    slot < 3
}

/// A process ends when its member has said good-bye.
fn actions_end(actions: &[Action]) -> bool {
    matches!(actions.last(), Some(Action::Leave { reason: "bye", .. }))
}

fn member_request(identity: &Identity, slot: usize) -> group::MemberRequest {
    group::MemberRequest {
        group_id: GROUP.into(),
        generation: identity.generation,
        member_id: identity.member_id.clone(),
        instance_id: (!is_dynamic(slot)).then(|| format!("i{slot}").into()),
    }
}

fn on_answer(member: &mut Membership, asked: Asked, answer: Option<GroupAnswer>, now: Duration) {
    match (asked, answer) {
        (Asked::Join(ask), None) => member.on_join(ask, Err(Refused::Unanswered), now),
        (Asked::Join(ask), Some(GroupAnswer::Join(answer))) => {
            let answer = match answer {
                Ok(joined) => Ok(Joined {
                    generation: joined.generation,
                    protocol: joined.protocol.unwrap(),
                    leader: joined.leader,
                    member_id: joined.member_id,
                    skip_assignment: joined.skip_assignment,
                    members: joined.members.into_iter().map(|m| (m.member_id, m.instance_id, m.metadata)).collect(),
                }),
                Err(group::JoinRefused { error: GroupError::MemberIdRequired, member_id }) => {
                    Err(Refused::TakeId(member_id))
                }
                Err(refused) => Err(code(refused.error)),
            };
            member.on_join(ask, answer, now);
        }
        (Asked::Sync(ask), None) => member.on_sync(ask, Err(Refused::Unanswered), now),
        (Asked::Sync(ask), Some(GroupAnswer::Sync(answer))) => {
            let share: Result<Bytes, Refused> = answer.map(|synced| synced.assignment).map_err(code);
            member.on_sync(ask, share, now);
        }
        (Asked::Heartbeat(ask), None) => member.on_heartbeat(ask, Err(Refused::Unanswered), now),
        (Asked::Heartbeat(ask), Some(GroupAnswer::Heartbeat(answer))) => {
            member.on_heartbeat(ask, answer.map_err(code), now);
        }
        (Asked::Commit(identity), Some(GroupAnswer::OffsetCommit(Err(error)))) => {
            if let Refused::Code(code) = code(error) {
                member.on_commit_refused(&identity, code, now);
            }
        }
        (Asked::Commit(_) | Asked::Leave, _) => {}
        (asked, answer) => panic!("{asked:?} was answered by {answer:?}"),
    }
}

fn code(error: GroupError) -> Refused {
    Refused::Code(match error {
        GroupError::NotCoordinator => ErrorCode::NOT_COORDINATOR,
        GroupError::CoordinatorNotAvailable => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        GroupError::LoadInProgress => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        GroupError::IllegalGeneration => ErrorCode::ILLEGAL_GENERATION,
        GroupError::UnknownMember => ErrorCode::UNKNOWN_MEMBER_ID,
        GroupError::RebalanceInProgress => ErrorCode::REBALANCE_IN_PROGRESS,
        GroupError::FencedInstanceId => ErrorCode::FENCED_INSTANCE_ID,
        GroupError::GroupIdNotFound => ErrorCode::GROUP_ID_NOT_FOUND,
        other => panic!("no member of this kind hears {other:?}"),
    })
}

#[test]
fn groups_settle_with_every_partition_read_once_whatever_happened() {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().unwrap());
    let seeds = match number("RINGLOG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RINGLOG_SEEDS").unwrap_or(60),
    };
    println!("seeds {seeds:?}");
    let many = seeds.end - seeds.start > 50;
    let mut total = Seen::default();
    for seed in seeds {
        let seen = match std::panic::catch_unwind(|| World::new(seed).play()) {
            Ok(seen) => seen,
            Err(panic) => {
                eprintln!("failed with RINGLOG_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        };
        total.assigned += seen.assigned;
        total.revoked += seen.revoked;
        total.lost += seen.lost;
        total.overdue += seen.overdue;
        total.static_restarts += seen.static_restarts;
        total.unanswered += seen.unanswered;
        total.moved += seen.moved;
        total.grown += seen.grown;
    }
    println!("{total:?}");
    if many {
        let Seen { assigned, revoked, lost, overdue, static_restarts, unanswered, moved, grown } = total;
        let counts = [assigned, revoked, lost, overdue, static_restarts, unanswered, moved, grown];
        assert!(counts.iter().all(|count| *count > 0), "something never happened: {total:?}");
    }
}
