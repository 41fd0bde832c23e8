//! Requests of a few bytes that ask for much: what the process holds meanwhile, and how long others wait. Alone in their binary,
//! and one at a time, because they measure all that the process holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_types, reason = "the tests of one process take turns")]

mod server_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringlog::protocol::admin::*;
use ringlog::protocol::fetch::*;
use ringlog::protocol::groups::*;
use ringlog::protocol::operator::{DescribeProducersRequest, DescribeProducersResponse, DescribeProducersTopic};
use ringlog::protocol::placement::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records, Str};
use server_support::{Broker, Client, PATIENCE, batch, loaded, now};
use smallvec::smallvec;

static TURN: Mutex<()> = Mutex::new(());

/// Sets a flag when it goes, however the test ends: the other thread would wait for ever.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes this process holds.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn api_versions(client: &mut Client) -> Duration {
    let began = Instant::now();
    let answer = client.ask(0, &ApiVersionsRequest::default(), decoded!(ApiVersionsResponse));
    assert_eq!(answer.error_code, ErrorCode::NONE);
    began.elapsed()
}

/// Works while somebody else asks for the versions of APIs: that one never waits for long, and the process, of which both sides
/// are a part, holds little more than before.
fn modestly<T>(broker: &Broker, what: &str, growth_max: u64, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let before = resident_bytes();
    std::thread::scope(|scope| {
        let is_done = Done(&done);
        let other = scope.spawn(|| {
            let mut client = broker.connect();
            let (mut longest, mut most) = (Duration::ZERO, 0);
            while !done.load(Ordering::Relaxed) {
                longest = longest.max(api_versions(&mut client));
                most = most.max(resident_bytes());
            }
            (longest, most.saturating_sub(before))
        });
        let result = work();
        drop(is_done);
        let (longest, growth) = other.join().unwrap();
        println!("{what}: others waited for {longest:?} at most; {} MiB more were held", growth >> 20);
        assert!(longest < Duration::from_secs(5), "{what}: others waited for {longest:?}");
        assert!(growth < growth_max, "{what}: {} MiB more were held", growth >> 20);
        result
    })
}

fn create_topic(client: &mut Client, name: &'static str) {
    let topic = CreatableTopic { name: name.into(), num_partitions: 1, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
}

#[test]
fn a_long_name_of_many_partitions_is_not_held_for_each_of_them() {
    const PARTITIONS: i32 = 50_000;
    const GROWTH_MAX: u64 = 64 << 20;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    let name: Str<'static> = "x".repeat(32_767).into();

    let partition = |partition_index| ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
    let partitions: Vec<_> = (0..PARTITIONS).chain([0]).map(partition).collect();
    let topics = vec![ListOffsetsTopic { name: name.clone(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer =
        modestly(&broker, "ListOffsets", GROWTH_MAX, || client.ask(7, &request, decoded!(ListOffsetsResponse)));
    let codes: Vec<_> = answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!((codes.len(), codes[0]), (PARTITIONS as usize, ErrorCode::INVALID_REQUEST), "the first is there twice");
    assert!(codes[1..].iter().all(|code| *code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));

    let topics = vec![ElectLeadersTopic { topic: name.clone(), partitions: (0..PARTITIONS).collect() }];
    let request = ElectLeadersRequest { topic_partitions: Some(topics), ..Default::default() };
    let answer =
        modestly(&broker, "ElectLeaders", GROWTH_MAX, || client.ask(2, &request, decoded!(ElectLeadersResponse)));
    assert_eq!(answer.replica_election_results[0].partition_result.len(), PARTITIONS as usize);

    let partition = |partition_index| ReassignablePartition { partition_index, ..Default::default() };
    let topics = vec![ReassignableTopic { name, partitions: (0..PARTITIONS).map(partition).collect() }];
    let request = AlterPartitionReassignmentsRequest { topics, ..Default::default() };
    let answer = modestly(&broker, "AlterPartitionReassignments", GROWTH_MAX, || {
        client.ask(0, &request, decoded!(AlterPartitionReassignmentsResponse))
    });
    assert_eq!(answer.responses[0].partitions.len(), PARTITIONS as usize);
}

/// The ends of all partitions of the log of offsets, together: how many records were ever written to it.
fn offsets_written(client: &mut Client) -> i64 {
    let partition = |partition_index| ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
    let partitions = (0..4).map(partition).collect();
    let topics = vec![ListOffsetsTopic { name: "__consumer_offsets".into(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer = client.ask(7, &request, decoded!(ListOffsetsResponse));
    answer.topics[0].partitions.iter().map(|partition| partition.offset).sum()
}

#[test]
fn requests_that_name_very_much_cost_neither_memory_nor_the_turns_of_others() {
    const GROWTH_MAX: u64 = 256 << 20;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "t");
    let key = FindCoordinatorRequest { coordinator_keys: vec!["g".into()], ..Default::default() };
    client.ask(4, &key, decoded!(FindCoordinatorResponse));
    let fetch = |partition_indexes| {
        let topics = vec![OffsetFetchTopic { name: "t".into(), partition_indexes }];
        let group = OffsetFetchGroup { group_id: "g".into(), topics: Some(topics), ..Default::default() };
        OffsetFetchRequest { groups: vec![group], ..Default::default() }
    };
    let request = fetch(vec![0; 500_000]);
    let ask = || client.ask(8, &request, decoded!(OffsetFetchResponse));
    let answer = loaded(ask, |answer| answer.groups[0].error_code);
    assert_eq!(answer.groups[0].topics[0].partitions.len(), 1, "one place is named");

    modestly(&broker, "very many names", GROWTH_MAX, || {
        let describe = |names: Vec<Str<'static>>| DescribeGroupsRequest { groups: names, ..Default::default() };
        let answer = client.ask(5, &describe(vec!["".into(); 500_000]), decoded!(DescribeGroupsResponse));
        assert_eq!(answer.groups.len(), 1, "one group is named");
        let names: Vec<_> = (0..30_000).map(|number| format!("group-{number}").into()).collect();
        let answer = client.ask(5, &describe(names.clone()), decoded!(DescribeGroupsResponse));
        assert!(answer.groups.iter().map(|group| &group.group_id).eq(&names), "each group, in order");
        let answer = client.ask(2, &DeleteGroupsRequest { groups_names: names }, decoded!(DeleteGroupsResponse));
        assert!(answer.results.iter().all(|result| result.error_code == ErrorCode::GROUP_ID_NOT_FOUND));
        assert_eq!(answer.results.len(), 30_000);

        let group = || OffsetFetchGroup { group_id: "g".into(), topics: None, ..Default::default() };
        let groups = (0..50_000).map(|_| group()).collect();
        let answer = client.ask(8, &OffsetFetchRequest { groups, ..Default::default() }, decoded!(OffsetFetchResponse));
        let codes: Vec<_> = answer.groups.iter().map(|group| group.error_code).collect();
        assert!(codes[0] == ErrorCode::NONE && codes[1..].iter().all(|code| *code == ErrorCode::INVALID_REQUEST));

        // More than any request may say.
        let mut greedy = broker.connect();
        greedy.send(5, &describe(vec!["".into(); 1_000_000]));
        assert!(greedy.receive().is_none());
    });
    modestly(&broker, "very many partitions", GROWTH_MAX, || {
        for (indexes, answered) in [(vec![0; 500_000], 1), ((0..500_000).collect(), 500_000)] {
            let topics = vec![DescribeProducersTopic { name: "t".into(), partition_indexes: indexes }];
            let request = DescribeProducersRequest { topics };
            let answer = client.ask(0, &request, decoded!(DescribeProducersResponse));
            assert_eq!(answer.topics[0].partitions.len(), answered);
        }
        let answer = client.ask(8, &fetch((0..500_000).collect()), decoded!(OffsetFetchResponse));
        assert_eq!(answer.groups[0].topics[0].partitions.len(), 500_000);
        let mut greedy = broker.connect();
        greedy.send(8, &fetch((0..4_000_000).collect()));
        assert!(greedy.receive().is_none());
    });
    assert_eq!(broker.counter("faults_body"), 2);

    modestly(&broker, "one offset, deleted very often", GROWTH_MAX, || {
        let partitions = vec![OffsetCommitPartition { committed_offset: 7, ..Default::default() }];
        let topics = vec![OffsetCommitTopic { name: "t".into(), partitions }];
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            generation_id_or_member_epoch: -1,
            topics,
            ..Default::default()
        };
        let answer = client.ask(8, &request, decoded!(OffsetCommitResponse));
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::NONE);
        let before = offsets_written(&mut client);
        let topics = vec![OffsetDeleteTopic { name: "t".into(), partitions: vec![0; 500_000] }];
        let request = OffsetDeleteRequest { group_id: "g".into(), topics };
        let answer = client.ask(0, &request, decoded!(OffsetDeleteResponse));
        let codes: Vec<_> = answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
        assert_eq!((codes.as_slice(), offsets_written(&mut client) - before), (&[ErrorCode::NONE][..], 1));
    });

    modestly(&broker, "one broker by many spellings", GROWTH_MAX, || {
        let spelled = |zeros| DescribeConfigsResource {
            resource_type: 4,
            resource_name: format!("{}1", "0".repeat(zeros)).into(),
            ..Default::default()
        };
        let request = DescribeConfigsRequest { resources: (0..1_000).map(spelled).collect(), ..Default::default() };
        let answer = client.ask(4, &request, decoded!(DescribeConfigsResponse));
        assert_eq!(answer.results.len(), 1);
        assert!((answer.results[0].error_code, answer.results[0].configs.len() > 100) == (ErrorCode::NONE, true));
    });
}

/// Sends a batch, and waits for it.
fn produce(client: &mut Client, topic: &'static str, records: &[u8]) {
    let data = ProducePartition { index: 0, records: Some(Records::of_length(records.len())) };
    let topic_data = smallvec![ProduceTopic { name: topic.into(), partition_data: smallvec![data] }];
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
    let sent = client.send_records(11, &request, &[records]);
    let response = client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse));
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
}

/// Asks for the batch at `offset`, and no more.
fn fetch_one(client: &mut Client, topic: &'static str, offset: i64) {
    let partition = FetchPartition { fetch_offset: offset, partition_max_bytes: 1, ..Default::default() };
    let topics = smallvec![FetchTopic { topic: topic.into(), partitions: smallvec![partition], ..Default::default() }];
    client.send(12, &FetchRequest { max_bytes: 1 << 20, topics, ..Default::default() });
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn small_answers_that_nobody_takes_do_not_hold_the_pieces_they_were_cut_from() {
    const READERS: u64 = 4;
    const PIECES: i64 = 300;
    const GROWTH_MAX: u64 = 48 << 20;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = [("engine.memory.max.bytes", "134217728")];
    let broker = Broker::start(1, &memory);
    let mut client = broker.connect();
    create_topic(&mut client, "cold");
    // In each piece that is read there is one small batch.
    let (small, large) = (batch(now(), &["x"], None), batch(now(), &["x".repeat(127 << 10).as_str()], None));
    for _ in 0..PIECES {
        produce(&mut client, "cold", &small);
        produce(&mut client, "cold", &large);
    }
    let broker = broker.restart(&memory);
    let answered = || broker.metrics[0].requests_staged[ApiKey::Fetch.number() as usize].value();
    let report = || broker.reports()[0].clone();
    let mut readers: Vec<Client> = (0..READERS).map(|_| broker.connect()).collect();
    for reader in &mut readers {
        let (before, mut asked) = (report().memory.queued_answers, answered());
        while report().memory.queued_answers == before {
            fetch_one(reader, "cold", 1);
            asked += 1;
            wait_until("it is answered", || answered() == asked);
        }
    }
    let (before, asked) = (resident_bytes(), answered() + READERS * PIECES as u64);
    // Far from each other, so that none finds the pieces of another in memory.
    for (first, reader) in (0..PIECES).step_by(PIECES as usize / READERS as usize).zip(&mut readers) {
        (0..PIECES).for_each(|number| fetch_one(reader, "cold", 2 * ((first + number) % PIECES)));
    }
    let mut most = 0;
    wait_until("all are answered, or no more are read", || {
        most = most.max(resident_bytes());
        answered() == asked || report().net.paused >= READERS
    });
    let growth = most.saturating_sub(before);
    println!("{} of {asked} fetches were answered; {} MiB more were held", answered(), growth >> 20);
    assert!(growth < GROWTH_MAX, "{} MiB more were held", growth >> 20);
}
