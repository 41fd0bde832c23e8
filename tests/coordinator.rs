//! The runtime of a coordinator: answers wait for the log, failures change nothing, a restart forgets nothing.
//!
//! The log is a list in memory whose batches become durable when the test says so.

#![allow(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ringlog::coordinator::command::*;
use ringlog::coordinator::{Coordinator, Durable, Journal, JournalError, LoadError};
use ringlog::protocol::batch::{self, Builder, BuilderOptions, Codec};
use ringlog::rt::executor::{Setup, run_one};
use ringlog::rt::{self, Event};
use ringlog::types::{LeaderEpoch, Offset, PartitionIndex, TopicId};

/// What becomes of appended batches.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Durable,
    /// Nothing happens until the fate changes.
    Held,
    Fails,
    Refused,
}

#[derive(Clone)]
struct Memory {
    batches: Rc<RefCell<Vec<BytesMut>>>,
    next_offset: Rc<Cell<Offset>>,
    fate: Rc<Cell<Fate>>,
    changed: Rc<Event>,
    trimmed: Rc<Cell<u64>>,
    appended: Rc<Cell<u64>>,
    /// This append fails, on its way.
    failing: Rc<Cell<Option<u64>>>,
}

impl Memory {
    fn new() -> Self {
        Self {
            batches: Rc::default(),
            next_offset: Rc::default(),
            fate: Rc::new(Cell::new(Fate::Durable)),
            changed: Rc::default(),
            trimmed: Rc::default(),
            appended: Rc::default(),
            failing: Rc::default(),
        }
    }

    fn set(&self, fate: Fate) {
        self.fate.set(fate);
        self.changed.notify_all();
    }
}

impl Journal for Memory {
    fn log_end(&self) -> Option<Offset> {
        Some(self.next_offset.get())
    }

    fn discard_before(&self, offset: Offset) {
        self.batches.borrow_mut().retain(|batch| batch::parse_header(batch).unwrap().base_offset >= offset.value());
        self.trimmed.set(self.trimmed.get() + 1);
    }

    fn append(&self, mut batch: BytesMut) -> Result<Durable, JournalError> {
        if self.fate.get() == Fate::Refused {
            return Err(JournalError::TooLarge("by test".into()));
        }
        let info = batch::check(&batch).expect("whole batches are appended");
        batch::stamp(&mut batch, self.next_offset.get(), LeaderEpoch::ZERO);
        self.next_offset.set(self.next_offset.get().plus(info.last_offset_delta + 1));
        let number = self.appended.replace(self.appended.get() + 1);
        if self.failing.get() == Some(number) {
            return Ok(Box::pin(async { Err(JournalError::NotHere("by test".into())) }));
        }
        let memory = self.clone();
        Ok(Box::pin(async move {
            loop {
                let changed = memory.changed.wait();
                match memory.fate.get() {
                    Fate::Held => changed.await,
                    Fate::Durable => {
                        memory.batches.borrow_mut().push(batch);
                        return Ok(());
                    }
                    Fate::Fails | Fate::Refused => return Err(JournalError::Unavailable("by test".into())),
                }
            }
        }))
    }
}

/// Answers as they come.
#[derive(Clone, Default)]
struct Answers {
    come: Rc<RefCell<VecDeque<GroupAnswer>>>,
    event: Rc<Event>,
}

impl Answers {
    fn taker(&self) -> Box<dyn FnOnce(GroupAnswer)> {
        let answers = self.clone();
        Box::new(move |answer| {
            answers.come.borrow_mut().push_back(answer);
            answers.event.notify_all();
        })
    }

    fn now(&self) -> Option<GroupAnswer> {
        self.come.borrow_mut().pop_front()
    }

    async fn next(&self) -> GroupAnswer {
        loop {
            let more = self.event.wait();
            if let Some(answer) = self.now() {
                return answer;
            }
            more.await;
        }
    }
}

async fn ask(coordinator: &Coordinator, command: GroupCommand) -> GroupAnswer {
    let answers = Answers::default();
    coordinator.submit(command, answers.taker());
    answers.next().await
}

fn settings() -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay: Duration::from_millis(20),
        min_session_timeout: Duration::from_millis(1),
        max_session_timeout: Duration::from_secs(600),
        max_size: 100,
        offset_metadata_max: 100,
        offsets_retention: Duration::from_secs(600),
        retention_check_interval: Duration::from_secs(600),
    }
}

fn loaded(memory: &Memory) -> Coordinator {
    let coordinator = Coordinator::new(settings(), Box::new(memory.clone()));
    for batch in memory.batches.borrow().iter() {
        coordinator.load_batch(batch).unwrap();
    }
    coordinator.finish_loading();
    coordinator
}

fn join(client: &str, session_ms: i32) -> GroupCommand {
    GroupCommand::Join(JoinRequest {
        group_id: "g".into(),
        member_id: "".into(),
        instance_id: None,
        client_id: client.into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: session_ms,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol { name: "range".into(), metadata: Bytes::from_static(b"\0\0\0\0\0\0") }],
        version: 3,
    })
}

fn sync(joined: &Joined) -> GroupCommand {
    let share = |member: &JoinedMember| (member.member_id.clone(), Bytes::from_static(b"share"));
    GroupCommand::Sync(SyncRequest {
        member: member(joined),
        protocol_type: None,
        protocol: None,
        assignments: joined.members.iter().map(share).collect(),
    })
}

fn member(joined: &Joined) -> MemberRequest {
    MemberRequest {
        group_id: "g".into(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        instance_id: None,
    }
}

fn commit(offset: i64) -> GroupCommand {
    GroupCommand::OffsetCommit(CommitRequest {
        member: MemberRequest { group_id: "s".into(), generation: -1, member_id: "".into(), instance_id: None },
        retention: None,
        version: 9,
        partitions: vec![CommitPartition {
            topic: "t".into(),
            topic_id: TopicId::from_bytes([7; 16]),
            partition: PartitionIndex::ZERO,
            offset,
            leader_epoch: LeaderEpoch::new(2),
            metadata: "note".into(),
        }],
    })
}

fn fetch() -> GroupCommand {
    GroupCommand::OffsetFetch(FetchRequest {
        group_id: "s".into(),
        partitions: FetchWhich::All,
        stability: Stability::Durable,
    })
}

/// The one offset of group `s`.
async fn fetched(coordinator: &Coordinator) -> Option<i64> {
    let GroupAnswer::OffsetFetch(Ok(offsets)) = ask(coordinator, fetch()).await else { panic!("a fetch never fails") };
    offsets.first().map(|fetched| fetched.committed.as_ref().unwrap().offset)
}

fn on_a_shard<Fut: Future<Output = ()> + 'static>(test: impl FnOnce() -> Fut + Send + 'static) {
    let directory = tempfile::tempdir().unwrap();
    run_one(Setup::on_all_cpus(vec![directory.path().to_owned()]), test).unwrap();
}

#[test]
fn groups_and_offsets_outlive_their_coordinator() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let first = loaded(&memory);
        let GroupAnswer::Join(Ok(joined)) = ask(&first, join("a", 60_000)).await else { panic!("no join") };
        let GroupAnswer::Sync(Ok(synced)) = ask(&first, sync(&joined)).await else { panic!("no sync") };
        assert_eq!(&synced.assignment[..], b"share");
        assert_eq!(
            ask(&first, commit(5)).await,
            GroupAnswer::OffsetCommit(Ok(vec![PartitionResult {
                topic: "t".into(),
                partition: PartitionIndex::ZERO,
                error: None
            }]))
        );
        let described = ask(&first, GroupCommand::Describe("g".into())).await;
        let listed = ask(&first, GroupCommand::List(ListFilter::default())).await;
        let named = |states: &[&str]| {
            let states = states.iter().map(|&word| word.to_owned()).collect();
            GroupCommand::List(ListFilter { states, types: vec!["Classic".into()] })
        };
        let GroupAnswer::List(Ok(stable)) = ask(&first, named(&["dead", " stable"])).await else { panic!("no list") };
        assert_eq!(stable.iter().map(|group| &*group.group_id).collect::<Vec<_>>(), ["g"], "as Kafka reads the words");
        assert_eq!(ask(&first, named(&["dead"])).await, GroupAnswer::List(Ok(Vec::new())));
        let offsets = ask(&first, fetch()).await;
        first.unload();
        assert_eq!(
            ask(&first, fetch()).await,
            GroupAnswer::OffsetFetch(Err(GroupError::NotCoordinator)),
            "the leadership is over"
        );

        let second = loaded(&memory);
        assert_eq!(ask(&second, GroupCommand::Describe("g".into())).await, described);
        assert_eq!(ask(&second, GroupCommand::List(ListFilter::default())).await, listed);
        assert_eq!(ask(&second, fetch()).await, offsets);
        let heartbeat = GroupCommand::Heartbeat(member(&joined));
        assert_eq!(ask(&second, heartbeat).await, GroupAnswer::Heartbeat(Ok(())));
        second.unload();
    });
}

#[test]
fn nothing_is_seen_before_it_is_durable_and_nothing_of_what_failed() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let coordinator = loaded(&memory);
        let answers = Answers::default();
        memory.set(Fate::Held);
        coordinator.submit(commit(1), answers.taker());
        coordinator.submit(commit(2), answers.taker());
        rt::sleep(Duration::from_millis(5)).await;
        assert_eq!(answers.now(), None);
        assert_eq!(fetched(&coordinator).await, None);

        memory.set(Fate::Durable);
        answers.next().await;
        answers.next().await;
        assert_eq!(fetched(&coordinator).await, Some(2));

        for (fate, error) in
            [(Fate::Fails, GroupError::CoordinatorNotAvailable), (Fate::Refused, GroupError::Unexpected)]
        {
            memory.set(fate);
            assert_eq!(ask(&coordinator, commit(3)).await, GroupAnswer::OffsetCommit(Err(error)));
            assert_eq!(fetched(&coordinator).await, Some(2));
        }
        coordinator.unload();
    });
}

#[test]
fn a_long_log_of_old_offsets_is_written_anew_and_loads_quickly() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let first = loaded(&memory);
        let GroupAnswer::Join(Ok(joined)) = ask(&first, join("a", 600_000)).await else { panic!("no join") };
        ask(&first, sync(&joined)).await;
        let GroupCommand::OffsetCommit(mut request) = commit(0) else { panic!("a commit") };
        let one = request.partitions.remove(0);
        let partition = |number| PartitionIndex::new(number).unwrap();
        request.partitions = (0..1000).map(|n| CommitPartition { partition: partition(n), ..one.clone() }).collect();
        for offset in 0..120 {
            request.partitions.iter_mut().for_each(|at| at.offset = offset);
            ask(&first, GroupCommand::OffsetCommit(request.clone())).await;
        }
        assert_eq!(memory.trimmed.get(), 1);
        let offsets = ask(&first, fetch()).await;
        let described = ask(&first, GroupCommand::Describe("g".into())).await;
        first.unload();

        let second = Coordinator::new(settings(), Box::new(memory.clone()));
        for batch in memory.batches.borrow().iter() {
            second.load_batch(batch).unwrap();
        }
        let report = second.finish_loading();
        assert!(report.records < 25_000, "{report:?}");
        assert_eq!(ask(&second, fetch()).await, offsets);
        assert_eq!(ask(&second, GroupCommand::Describe("g".into())).await, described);
        second.unload();
    });
}

#[test]
fn a_log_that_could_not_be_written_anew_is_served_as_it_was_and_written_anew_later() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let first = loaded(&memory);
        let GroupAnswer::Join(Ok(joined)) = ask(&first, join("a", 600_000)).await else { panic!("no join") };
        ask(&first, sync(&joined)).await;
        let GroupCommand::OffsetCommit(mut request) = commit(0) else { panic!("a commit") };
        let one = request.partitions.remove(0);
        let partition = |number| PartitionIndex::new(number).unwrap();
        request.partitions = (0..1000).map(|n| CommitPartition { partition: partition(n), ..one.clone() }).collect();
        let mut commit_all = async |offset| {
            request.partitions.iter_mut().for_each(|at| at.offset = offset);
            ask(&first, GroupCommand::OffsetCommit(request.clone())).await
        };
        let before = memory.appended.get();
        for offset in 0..104 {
            commit_all(offset).await;
        }
        assert_eq!((memory.appended.get(), memory.trimmed.get()), (before + 104, 0));
        // The commit that is one too many, the first group anew; the second fails.
        memory.failing.set(Some(before + 106));
        for offset in 104..108 {
            commit_all(offset).await;
        }
        let offsets = ask(&first, fetch()).await;
        let described = ask(&first, GroupCommand::Describe("g".into())).await;
        assert_eq!(fetched(&first).await, Some(107), "what was there is served");
        assert_eq!((memory.appended.get(), memory.trimmed.get()), (before + 108 + 2, 0), "one round, given up");
        let second = loaded(&memory);
        assert_eq!(
            (ask(&second, fetch()).await, ask(&second, GroupCommand::Describe("g".into())).await),
            (offsets, described)
        );
        second.unload();

        let length = memory.batches.borrow().len();
        for offset in 108..220 {
            commit_all(offset).await;
        }
        assert_eq!(memory.trimmed.get(), 1, "tried again when the log had grown");
        assert!(memory.batches.borrow().len() < length);
        assert_eq!(fetched(&first).await, Some(219));
        let offsets = ask(&first, fetch()).await;
        first.unload();
        let third = loaded(&memory);
        assert_eq!(ask(&third, fetch()).await, offsets);
        third.unload();
    });
}

#[test]
fn a_log_with_records_that_are_not_understood_is_not_written_anew() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let options =
            BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
        let mut builder = Builder::new(options);
        builder.push(0, Some(b"\x00\x03\x00\x01g"), Some(b"?"), &[]);
        memory.append(builder.finish()).unwrap().await.unwrap();
        let coordinator = loaded(&memory);
        let GroupCommand::OffsetCommit(mut request) = commit(0) else { panic!("a commit") };
        let one = request.partitions.remove(0);
        let partition = |number| PartitionIndex::new(number).unwrap();
        request.partitions = (0..1000).map(|n| CommitPartition { partition: partition(n), ..one.clone() }).collect();
        for _ in 0..120 {
            ask(&coordinator, GroupCommand::OffsetCommit(request.clone())).await;
        }
        let first = batch::parse_header(&memory.batches.borrow()[0]).unwrap();
        assert_eq!((first.base_offset, memory.trimmed.get()), (0, 0));
        coordinator.unload();
    });
}

#[test]
fn commands_during_loading_are_told_to_wait_and_deleted_topics_are_not_forgotten() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let first = loaded(&memory);
        ask(&first, commit(5)).await;
        first.unload();

        let second = Coordinator::new(settings(), Box::new(memory.clone()));
        let loading = GroupError::LoadInProgress;
        assert_eq!(ask(&second, fetch()).await, GroupAnswer::OffsetFetch(Err(loading)));
        assert_eq!(ask(&second, commit(6)).await, GroupAnswer::OffsetCommit(Err(loading)));
        let stranger = MemberRequest { group_id: "g".into(), generation: 1, member_id: "m".into(), instance_id: None };
        assert_eq!(ask(&second, GroupCommand::Heartbeat(stranger)).await, GroupAnswer::Heartbeat(Ok(())));
        let gone = GroupCommand::TopicsDeleted(vec!["t".into()]);
        assert_eq!(ask(&second, gone).await, GroupAnswer::TopicsDeleted);
        for batch in memory.batches.borrow().iter() {
            second.load_batch(batch).unwrap();
        }
        let report = second.finish_loading();
        assert_eq!((report.records, report.groups), (1, 1));
        assert_eq!(ask(&second, GroupCommand::DeleteGroup("s".into())).await, GroupAnswer::DeleteGroup(Ok(())));
        let batches = memory.batches.borrow().len();
        assert_eq!(batches, 3, "a commit, a tombstone for the topic, a tombstone for the group");
        second.unload();
    });
}

#[test]
fn whoever_waits_is_answered_when_the_leadership_ends_and_late_writes_change_nothing() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let coordinator = loaded(&memory);
        let (joins, commits) = (Answers::default(), Answers::default());
        coordinator.submit(join("a", 60_000), joins.taker());
        memory.set(Fate::Held);
        coordinator.submit(commit(1), commits.taker());
        coordinator.unload();
        let GroupAnswer::Join(Err(refused)) = joins.next().await else { panic!("joined") };
        assert_eq!(refused.error, GroupError::NotCoordinator);
        assert_eq!(commits.next().await, GroupAnswer::OffsetCommit(Err(GroupError::NotCoordinator)));
        memory.set(Fate::Durable);
        rt::sleep(Duration::from_millis(5)).await;
        assert_eq!(commits.now(), None);
        assert_eq!(ask(&coordinator, fetch()).await, GroupAnswer::OffsetFetch(Err(GroupError::NotCoordinator)));
    });
}

#[test]
fn sessions_end_by_themselves() {
    on_a_shard(|| async {
        let memory = Memory::new();
        let coordinator = loaded(&memory);
        let GroupAnswer::Join(Ok(silent)) = ask(&coordinator, join("silent", 50)).await else { panic!("no join") };
        ask(&coordinator, sync(&silent)).await;
        // The second waits for the first to rejoin or to expire.
        let GroupAnswer::Join(Ok(joined)) = ask(&coordinator, join("b", 60_000)).await else { panic!("no join") };
        assert_eq!(joined.members.len(), 1);
        let heartbeat = GroupCommand::Heartbeat(member(&silent));
        assert_eq!(ask(&coordinator, heartbeat).await, GroupAnswer::Heartbeat(Err(GroupError::UnknownMember)));
        coordinator.unload();
    });
}

#[test]
fn a_record_of_the_future_ends_the_coordinator() {
    on_a_shard(|| async {
        let options =
            BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
        let mut builder = Builder::new(options);
        builder.push(0, Some(b"\x00\x09\x00\x01g"), Some(b"?"), &[]);
        builder.push(0, Some(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"), Some(b"\x00\x05"), &[]);
        let coordinator = Coordinator::new(settings(), Box::new(Memory::new()));
        let error = coordinator.load_batch(&builder.finish()).unwrap_err();
        assert!(matches!(error, LoadError::Record { offset: 1, .. }), "{error}");
        coordinator.finish_loading();
        assert_eq!(ask(&coordinator, fetch()).await, GroupAnswer::OffsetFetch(Err(GroupError::NotCoordinator)));
    });
}
