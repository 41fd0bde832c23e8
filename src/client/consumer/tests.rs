//! A consumer over a socket, from a broker whose log has transactions: what it gives out, where it reads on, what it says of lag.
//!
//! The broker is `fake_broker`, since ours takes no transactions yet. Which records are skipped is proved on bytes by
//! `fetcher/tests.rs`; here it is the way there: the isolation level asked for, the aborted transactions of an answer, positions.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use futures_lite::future::poll_once;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

use super::*;
use crate::client::assignor::{Assignor, wire};
use crate::client::fake_broker::{Asked, FakeBroker, Kind, Peer, batch_of, metadata, on_a_thread};
use crate::client::membership::{Action, Joined};
use crate::client::settings::{IsolationLevel, OffsetReset, Settings as _};
use crate::protocol::admin::{MetadataPartition, MetadataResponse, MetadataTopic};
use crate::protocol::batch::Codec;
use crate::protocol::fetch::{
    AbortedTransaction, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse,
};
use crate::protocol::groups::{
    Coordinator, FindCoordinatorResponse, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchGroupResponse, OffsetFetchResponse,
    SyncGroupResponse,
};
use crate::protocol::{ApiKey, ErrorCode, Records};
use crate::types::{Offset, PartitionIndex, TopicId};

const TOPIC: TopicId = TopicId::from_bytes([7; 16]);
/// How long records may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing is open below; above lies the beginning of a transaction.
const LAST_STABLE_OFFSET: i64 = 11;
const HIGH_WATERMARK: i64 = 13;

fn part() -> TopicPartition {
    TopicPartition { topic: "t".into(), partition: PartitionIndex::new(0).unwrap() }
}

fn of(producer: i64) -> Kind {
    Kind { producer: Some(producer), control: None }
}

fn marker(producer: i64, commit: bool) -> Kind {
    Kind { producer: Some(producer), control: Some(commit) }
}

/// The log in two answers, which meet within an aborted transaction of producer 1, and end with one of producer 3.
struct Answer {
    /// It holds everything below.
    end: i64,
    aborted: Vec<AbortedTransaction>,
    records: Bytes,
}

fn log() -> [Answer; 2] {
    let aborted = |all: &[(i64, i64)]| {
        all.iter()
            .map(|(producer_id, first_offset)| AbortedTransaction {
                producer_id: *producer_id,
                first_offset: *first_offset,
            })
            .collect()
    };
    let first = [
        batch_of(0, &["a0", "a1"], Codec::None, of(1)),
        batch_of(2, &["c2"], Codec::Lz4, of(2)),
        batch_of(3, &["d3"], Codec::None, Kind::default()),
        batch_of(4, &[""], Codec::None, marker(2, true)),
    ];
    let second = [
        batch_of(5, &["a5"], Codec::Zstd, of(1)),
        batch_of(6, &[""], Codec::None, marker(1, false)),
        batch_of(7, &["e7"], Codec::None, of(1)),
        batch_of(8, &[""], Codec::None, marker(1, true)),
        batch_of(9, &["f9"], Codec::None, of(3)),
        batch_of(10, &[""], Codec::None, marker(3, false)),
    ];
    [
        Answer { end: 5, aborted: aborted(&[(1, 0)]), records: first.concat().into() },
        Answer { end: LAST_STABLE_OFFSET, aborted: aborted(&[(1, 0), (3, 9)]), records: second.concat().into() },
    ]
}

/// What a fetch asked: its isolation level and offset.
type Fetches = Rc<RefCell<Vec<(i8, i64)>>>;

/// Answers fetches from [`log`]; one at its end is left waiting, as by a broker that waits for more.
async fn serve(port: u16, fetches: Fetches, mut peer: Peer) {
    peer.greet().await;
    while let Some(asked) = peer.next().await {
        match asked.api {
            ApiKey::Metadata => peer.answer(&asked, &topic(port)).await,
            ApiKey::Fetch => fetch(&asked, &fetches, &mut peer).await,
            other => panic!("{other:?} was asked"),
        }
    }
}

fn topic(port: u16) -> MetadataResponse<'static> {
    let partition = MetadataPartition {
        leader_id: 1,
        leader_epoch: 3,
        replica_nodes: vec![1],
        isr_nodes: vec![1],
        ..Default::default()
    };
    let topic =
        MetadataTopic { name: Some("t".into()), topic_id: TOPIC, partitions: vec![partition], ..Default::default() };
    MetadataResponse { topics: vec![topic], ..metadata(&[(1, port)]) }
}

async fn fetch(asked: &Asked, fetches: &Fetches, peer: &mut Peer) {
    let request: FetchRequest<'_> = asked.read();
    let offset = request.topics[0].partitions[0].fetch_offset;
    let committed = request.isolation_level == IsolationLevel::ReadCommitted.wire();
    fetches.borrow_mut().push((request.isolation_level, offset));
    let Some(answer) = log().into_iter().find(|answer| offset < answer.end) else { return };
    let partition = FetchPartitionResponse {
        high_watermark: HIGH_WATERMARK,
        last_stable_offset: LAST_STABLE_OFFSET,
        log_start_offset: 0,
        aborted_transactions: committed.then_some(answer.aborted),
        records: Some(Records::of_length(answer.records.len())),
        ..Default::default()
    };
    let topic =
        FetchTopicResponse { topic: "t".into(), topic_id: TOPIC, partitions: [partition].into_iter().collect() };
    let response = FetchResponse { responses: [topic].into_iter().collect(), ..Default::default() };
    peer.answer_with(asked, &response, &[answer.records]).await;
}

/// What a consumer that begins at `from` gets until it stands at the end of the log: records, lag, and what it fetched.
async fn read(isolation: &str, from: i64) -> (Vec<(i64, String)>, Option<u64>, Vec<(i8, i64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let fetches = Fetches::default();
    let seen = Rc::clone(&fetches);
    let broker = FakeBroker::on(listener, move |_, peer| serve(port, Rc::clone(&seen), peer));
    let settings = ConsumerSettings::builder()
        .set("bootstrap.servers", &broker.address)
        .set("client.id", "tester")
        .set("isolation.level", isolation)
        .set("auto.offset.reset", "none")
        .build()
        .unwrap();
    let mut consumer = Consumer::new(settings).unwrap();
    consumer.assign([part()]).unwrap();
    consumer.seek(&part(), Offset::new(from).unwrap()).unwrap();
    let end = Offset::new(LAST_STABLE_OFFSET);
    let (deadline, mut records) = (Instant::now() + PATIENCE, Vec::new());
    while consumer.known_position(&part()) != end
        || fetches.borrow().last().is_none_or(|(_, at)| *at < LAST_STABLE_OFFSET)
    {
        assert!(Instant::now() < deadline, "{records:?} came, {:?} were fetched", fetches.borrow());
        for record in consumer.poll(Duration::from_millis(20)).await.unwrap() {
            records.push((record.offset.value(), String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    let lag = consumer.lag(&part());
    consumer.close(Duration::from_secs(1)).await;
    (records, lag, fetches.take())
}

fn texts(records: &[(i64, &str)]) -> Vec<(i64, String)> {
    records.iter().map(|(offset, text)| (*offset, (*text).to_owned())).collect()
}

/// A member that was dealt [`part`] and whose user has not heard of it.
fn dealt() -> Membership {
    let now = Duration::ZERO;
    let mut member = Membership::new(MembershipSettings {
        group_id: "g".into(),
        instance_id: None,
        assignors: vec![Assignor::Range],
        session_timeout: PATIENCE,
        heartbeat_interval: PATIENCE,
        max_poll_interval: PATIENCE,
        request_timeout: PATIENCE,
        retry_backoff: now,
        retry_backoff_max: now,
        rack: None,
        seed: 1,
    });
    member.on_subscription(["t".into()].into());
    member.on_poll();
    assert_eq!(member.next_action(now), Some(Action::FindCoordinator));
    member.on_coordinator(Ok(()), now);
    let Some(Action::Join(join)) = member.next_action(now) else { panic!() };
    let joined = Joined {
        generation: 1,
        protocol: "range".into(),
        leader: "other".into(),
        member_id: "me".into(),
        skip_assignment: false,
        members: Vec::new(),
    };
    member.on_join(join.ask, Ok(joined), now);
    let Some(Action::Sync(sync)) = member.next_action(now) else { panic!() };
    member.on_sync(sync.ask, Ok(wire::encode_assignment(&[part()].into())), now);
    member
}

#[test]
fn partitions_of_a_step_that_was_not_heard_to_its_end_are_not_read() {
    let fetcher = Fetcher::new(FetcherSettings {
        reset: OffsetReset::Earliest,
        isolation: IsolationLevel::ReadUncommitted,
        check_crcs: true,
        bytes_max: 1000,
        partition_bytes_max: 1000,
        retry_backoff: Duration::ZERO,
    });
    let shared = Arc::new(Shared::new(fetcher, Some(dealt()), None));
    let polling = Polling(Arc::clone(&shared));
    {
        let mut state = shared.lock();
        let step = state.membership.as_mut().and_then(Membership::next_step);
        assert_eq!(step, Some(Step::Assign([part()].into())));
        state.fetcher.assign(part(), true, wall());
    }
    // The program drops its poll while its listener is at it.
    drop(polling);
    let state = shared.lock();
    assert!(!state.fetcher.is_assigned(&part()));
    assert!(state.membership.as_ref().is_some_and(Membership::has_step), "it is told again");
}

/// A broker that names a coordinator at `dead` first, then itself.
async fn coordinate(port: u16, dead: u16, named: Rc<Cell<bool>>, mut peer: Peer) {
    peer.greet().await;
    while let Some(asked) = peer.next().await {
        match asked.api {
            ApiKey::Metadata => peer.answer(&asked, &topic(port)).await,
            ApiKey::FindCoordinator => {
                let (node_id, port) = if named.replace(true) { (1, port) } else { (7, dead) };
                let (key, host, port) = ("g".into(), "127.0.0.1".into(), i32::from(port));
                let coordinators = vec![Coordinator { key, node_id, host, port, ..Default::default() }];
                peer.answer(&asked, &FindCoordinatorResponse { coordinators, ..Default::default() }).await;
            }
            ApiKey::OffsetFetch => {
                let groups = vec![OffsetFetchGroupResponse { group_id: "g".into(), ..Default::default() }];
                peer.answer(&asked, &OffsetFetchResponse { groups, ..Default::default() }).await;
            }
            ApiKey::OffsetCommit => peer.answer(&asked, &OffsetCommitResponse::default()).await,
            other => panic!("{other:?} was asked"),
        }
    }
}

#[test]
fn a_coordinator_that_cannot_be_reached_is_looked_for_again_also_without_members() {
    on_a_thread(async {
        let (listener, gone) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (port, dead) = (listener.local_addr().unwrap().port(), gone.local_addr().unwrap().port());
        drop(gone);
        let named = Rc::new(Cell::new(false));
        let broker = FakeBroker::on(listener, move |_, peer| coordinate(port, dead, Rc::clone(&named), peer));
        let settings = ConsumerSettings::builder()
            .set("bootstrap.servers", &broker.address)
            .set("client.id", "tester")
            .set("group.id", "g")
            .set("auto.offset.reset", "none")
            .set("retry.backoff.ms", 1)
            .build()
            .unwrap();
        let mut consumer = Consumer::new(settings).unwrap();
        consumer.assign([part()]).unwrap();
        consumer.commit_offsets([(part(), Offset::ZERO.into())].into()).await.unwrap();
        assert!(consumer.committed([part()]).await.unwrap().is_empty(), "the answer holds none");
        consumer.close(Duration::ZERO).await;
    });
}

/// What a coordinator was asked by a member.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// With an id.
    Joins,
    /// As which generation.
    Commits(i32),
    /// Which member.
    Leaves(String),
}

/// Whether a join is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deals {
    Yes,
    /// The member only gets its id.
    No,
}

/// A broker that coordinates group `g` and deals [`part`] to its one member, `me`, and says what it was asked. Fetches and lookups
/// are not answered.
async fn deal(port: u16, deals: Deals, words: UnboundedSender<Word>, mut peer: Peer) {
    peer.greet().await;
    while let Some(asked) = peer.next().await {
        match asked.api {
            ApiKey::Metadata => peer.answer(&asked, &topic(port)).await,
            ApiKey::FindCoordinator => {
                let (key, host, port) = ("g".into(), "127.0.0.1".into(), i32::from(port));
                let coordinators = vec![Coordinator { key, node_id: 1, host, port, ..Default::default() }];
                peer.answer(&asked, &FindCoordinatorResponse { coordinators, ..Default::default() }).await;
            }
            ApiKey::JoinGroup => {
                let nameless = asked.read::<JoinGroupRequest<'_>>().member_id.is_empty();
                let error_code = if nameless { ErrorCode::MEMBER_ID_REQUIRED } else { ErrorCode::NONE };
                if !nameless {
                    words.send(Word::Joins).unwrap();
                }
                if nameless || deals == Deals::Yes {
                    let answer = JoinGroupResponse {
                        error_code,
                        generation_id: 3,
                        protocol_name: Some("range".into()),
                        leader: "other".into(),
                        member_id: "me".into(),
                        ..Default::default()
                    };
                    peer.answer(&asked, &answer).await;
                }
            }
            ApiKey::SyncGroup => {
                let assignment = wire::encode_assignment(&[part()].into()).to_vec().into();
                peer.answer(&asked, &SyncGroupResponse { assignment, ..Default::default() }).await;
            }
            ApiKey::Heartbeat => peer.answer(&asked, &HeartbeatResponse::default()).await,
            ApiKey::OffsetFetch => {
                let groups = vec![OffsetFetchGroupResponse { group_id: "g".into(), ..Default::default() }];
                peer.answer(&asked, &OffsetFetchResponse { groups, ..Default::default() }).await;
            }
            ApiKey::OffsetCommit => {
                let generation = asked.read::<OffsetCommitRequest<'_>>().generation_id_or_member_epoch;
                words.send(Word::Commits(generation)).unwrap();
                peer.answer(&asked, &OffsetCommitResponse::default()).await;
            }
            ApiKey::LeaveGroup => {
                let member = asked.read::<LeaveGroupRequest<'_>>().members[0].member_id.to_string();
                words.send(Word::Leaves(member)).unwrap();
                peer.answer(&asked, &LeaveGroupResponse::default()).await;
            }
            _ => {}
        }
    }
}

/// A consumer of group `g` without auto commit, and what its coordinator is asked.
async fn member(deals: Deals) -> (Consumer, tokio::sync::mpsc::UnboundedReceiver<Word>, FakeBroker) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (words, heard) = tokio::sync::mpsc::unbounded_channel();
    let broker = FakeBroker::on(listener, move |_, peer| deal(port, deals, words.clone(), peer));
    let settings = ConsumerSettings::builder()
        .set("bootstrap.servers", &broker.address)
        .set("client.id", "tester")
        .set("group.id", "g")
        .set("enable.auto.commit", "false")
        .set("partition.assignment.strategy", "range")
        .set("retry.backoff.ms", 1)
        .build()
        .unwrap();
    (Consumer::new(settings).unwrap(), heard, broker)
}

/// Polls until the share has come.
async fn until_dealt(consumer: &mut Consumer) {
    let dealt = async {
        while consumer.assignment().is_empty() {
            consumer.poll(Duration::from_millis(5)).await.unwrap();
        }
    };
    timeout(PATIENCE, dealt).await.unwrap();
}

async fn next(heard: &mut tokio::sync::mpsc::UnboundedReceiver<Word>) -> Word {
    timeout(PATIENCE, heard.recv()).await.unwrap().unwrap()
}

#[test]
fn a_member_without_time_leaves_its_group_all_the_same() {
    on_a_thread(async {
        let (mut consumer, mut heard, _broker) = member(Deals::Yes).await;
        consumer.subscribe(["t"]).unwrap();
        until_dealt(&mut consumer).await;
        assert_eq!(next(&mut heard).await, Word::Joins);
        consumer.close(Duration::ZERO).await;
        assert_eq!(next(&mut heard).await, Word::Leaves("me".to_owned()));
    });
}

#[test]
fn a_consumer_that_is_dropped_while_it_joins_leaves_its_group() {
    on_a_thread(async {
        let (mut consumer, mut heard, _broker) = member(Deals::No).await;
        consumer.subscribe(["t"]).unwrap();
        {
            let mut poll = pin!(consumer.poll(Duration::MAX));
            assert!(poll_once(&mut poll).await.is_none());
            assert_eq!(next(&mut heard).await, Word::Joins);
        }
        drop(consumer);
        assert_eq!(next(&mut heard).await, Word::Leaves("me".to_owned()));
    });
}

#[test]
fn a_commit_under_way_is_waited_for_before_the_consumer_ends() {
    on_a_thread(async {
        for by_hand in [true, false] {
            let (mut consumer, mut heard, _broker) = member(Deals::Yes).await;
            if by_hand {
                consumer.assign([part()]).unwrap();
            } else {
                consumer.subscribe(["t"]).unwrap();
                until_dealt(&mut consumer).await;
                assert_eq!(next(&mut heard).await, Word::Joins);
            }
            let (tell, told) = std::sync::mpsc::channel();
            consumer.commit_offsets_async([(part(), Offset::ZERO.into())].into(), move |done| tell.send(done).unwrap());
            consumer.close(PATIENCE).await;
            assert!(matches!(told.try_recv(), Ok(Ok(()))), "by hand: {by_hand}");
            assert_eq!(next(&mut heard).await, Word::Commits(if by_hand { -1 } else { 3 }));
            if !by_hand {
                assert_eq!(next(&mut heard).await, Word::Leaves("me".to_owned()));
            }
        }
    });
}

#[test]
fn a_program_may_wait_for_ever() {
    on_a_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = FakeBroker::on(listener, move |_, peer| serve(port, Fetches::default(), peer));
        let words = ConsumerSettings::builder().set("bootstrap.servers", &broker.address).set("client.id", "tester");
        let mut settings = words.set("auto.offset.reset", "none").build().unwrap();
        (settings.default_api_timeout, settings.client.request_timeout) = (Duration::MAX, Duration::MAX);
        let mut consumer = Consumer::new(settings).unwrap();
        consumer.assign([part()]).unwrap();
        consumer.seek(&part(), Offset::new(LAST_STABLE_OFFSET).unwrap()).unwrap();
        let handle = consumer.handle();
        {
            let mut poll = pin!(consumer.poll(Duration::MAX));
            assert!(poll_once(&mut poll).await.is_none());
            handle.wake();
            assert!(matches!(poll.await, Err(ConsumerError::Woken)));
        }
        let mut poll = Box::pin(consumer.poll_batches(Duration::MAX));
        assert!(poll_once(&mut poll).await.is_none());
        drop(poll);
        assert_eq!(handle.position(&part(), Duration::MAX).await.unwrap(), Offset::new(LAST_STABLE_OFFSET).unwrap());
        consumer.close(Duration::MAX).await;
    });
}

#[test]
fn a_read_committed_consumer_skips_aborted_records_and_markers_and_stands_behind_them() {
    on_a_thread(async {
        let (records, lag, fetches) = read("read_committed", 0).await;
        assert_eq!(records, texts(&[(2, "c2"), (3, "d3"), (7, "e7")]));
        assert_eq!(lag, Some(0), "what is open above is not its lag");
        assert_eq!(fetches, [(1, 0), (1, 5), (1, LAST_STABLE_OFFSET)]);
    });
}

#[test]
fn a_consumer_that_begins_within_an_aborted_transaction_skips_the_rest_of_it() {
    on_a_thread(async {
        let (records, _, fetches) = read("read_committed", 1).await;
        assert_eq!(records, texts(&[(2, "c2"), (3, "d3"), (7, "e7")]));
        assert_eq!(fetches[0], (1, 1));
        let (records, lag, fetches) = read("read_committed", 8).await;
        assert_eq!((records, lag), (Vec::new(), Some(0)), "a marker and an aborted transaction are all there is");
        assert_eq!(fetches, [(1, 8), (1, LAST_STABLE_OFFSET)]);
    });
}

#[test]
fn a_read_uncommitted_consumer_gets_aborted_records_and_no_markers() {
    on_a_thread(async {
        let (records, lag, fetches) = read("read_uncommitted", 0).await;
        let all = [(0, "a0"), (1, "a1"), (2, "c2"), (3, "d3"), (5, "a5"), (7, "e7"), (9, "f9")];
        assert_eq!(records, texts(&all));
        assert_eq!(lag, Some(HIGH_WATERMARK.abs_diff(LAST_STABLE_OFFSET)));
        assert_eq!(fetches, [(0, 0), (0, 5), (0, LAST_STABLE_OFFSET)]);
    });
}
