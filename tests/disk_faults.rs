//! A device that fails under a whole broker, or holds what cannot be read: what it answers for the log that failed, what it still
//! serves, and what is there after a restart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server_support;

use ringlog::protocol::admin::*;
use ringlog::protocol::batch::{Builder, BuilderOptions, Codec};
use ringlog::protocol::fetch::*;
use ringlog::protocol::groups::*;
use ringlog::protocol::operator::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use ringlog::rt::file::fault::{self, Fault};
use server_support::{Broker, Client, batch, loaded, now};
use smallvec::smallvec;

const PRODUCE: i16 = 11;
const FETCH: i16 = 12;
const PARTITIONS: i32 = 4;

fn create_topic(client: &mut Client) {
    let topic =
        CreatableTopic { name: "t".into(), num_partitions: PARTITIONS, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
}

/// One batch of one record to each of `partitions`; what each answers.
fn produce(client: &mut Client, partitions: impl IntoIterator<Item = i32>) -> Vec<ErrorCode> {
    let sent = send(client, partitions);
    answer(client, sent)
}

fn send(client: &mut Client, partitions: impl IntoIterator<Item = i32>) -> i32 {
    let records = batch(now(), &["value"], None);
    let data = partitions
        .into_iter()
        .map(|index| ProducePartition { index, records: Some(Records::of_length(records.len())) });
    let topic = ProduceTopic { name: "t".into(), partition_data: data.collect() };
    let count = topic.partition_data.len();
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: smallvec![topic], ..Default::default() };
    client.send_records(PRODUCE, &request, &vec![&records[..]; count])
}

fn answer(client: &mut Client, sent: i32) -> Vec<ErrorCode> {
    let response = client.read_answer(ApiKey::Produce, PRODUCE, sent, decoded!(ProduceResponse));
    response.responses[0].partition_responses.iter().map(|partition| partition.error_code).collect()
}

/// What a fetch of every partition from offset 0 answers: the code, and how many records may be read.
fn fetch(client: &mut Client) -> Vec<(ErrorCode, i64)> {
    let partition = |partition| FetchPartition { partition, partition_max_bytes: 1 << 20, ..Default::default() };
    let topic =
        FetchTopic { topic: "t".into(), partitions: (0..PARTITIONS).map(partition).collect(), ..Default::default() };
    let request = FetchRequest {
        max_wait_ms: 1_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: smallvec![topic],
        ..Default::default()
    };
    let sent = client.send(FETCH, &request);
    let response = client.read_answer(ApiKey::Fetch, FETCH, sent, decoded!(FetchResponse));
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.error_code, partition.high_watermark)).collect()
}

#[test]
fn a_log_whose_disk_failed_answers_a_storage_error_the_others_serve_and_nothing_acknowledged_is_lost() {
    const OK: ErrorCode = ErrorCode::NONE;
    const FAILED: ErrorCode = ErrorCode::KAFKA_STORAGE_ERROR;
    for (class, fault) in [("written", Fault::Write), ("flushed", Fault::Sync)] {
        let settings = [("engine.ack.durability", class)];
        let broker = Broker::start(2, &settings);
        let mut client = broker.connect();
        create_topic(&mut client);
        assert_eq!(produce(&mut client, 0..PARTITIONS), [OK; 4]);

        let asked = fault::ask(fault, &broker.data().join("t-1"));
        assert_eq!(produce(&mut client, 0..PARTITIONS), [OK, FAILED, OK, OK], "{class}");
        assert!(asked.struck());
        assert_eq!(produce(&mut client, [1]), [FAILED], "for good, though the disk is well again");
        assert_eq!(produce(&mut client, 0..PARTITIONS), [OK, FAILED, OK, OK]);
        let found = fetch(&mut client);
        assert_eq!(found.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [OK, FAILED, OK, OK]);
        assert_eq!([found[0].1, found[2].1, found[3].1], [3; 3]);

        assert_eq!(told_to_operators(&mut client), (vec![OK, FAILED], vec![OK, FAILED], vec![FAILED]));
        assert_eq!(asked.later(), 0, "{class}: the failed file was left alone");
        drop(asked);
        let broker = broker.restart(&settings);
        let mut client = broker.connect();
        let found = fetch(&mut client);
        assert!(found.iter().all(|(code, _)| *code == OK), "{found:?}");
        assert!(found[1].1 >= 1, "{class}: what was acknowledged is there: {found:?}");
        assert_eq!([found[0].1, found[2].1, found[3].1], [3; 3]);
        assert_eq!(produce(&mut client, 0..PARTITIONS), [OK; 4]);
        assert_eq!(told_to_operators(&mut client), (vec![OK; 2], vec![OK; 2], vec![OK]));
    }
}

/// What OffsetForLeaderEpoch and DescribeProducers say of the first two partitions, and DescribeLogDirs of each directory.
fn told_to_operators(client: &mut Client) -> (Vec<ErrorCode>, Vec<ErrorCode>, Vec<ErrorCode>) {
    let partition = |partition| OffsetForLeaderPartition { partition, ..Default::default() };
    let topics = vec![OffsetForLeaderTopic { topic: "t".into(), partitions: vec![partition(0), partition(1)] }];
    let request = OffsetForLeaderEpochRequest { topics, ..Default::default() };
    let ends = client.ask(4, &request, decoded!(OffsetForLeaderEpochResponse));
    let topics = vec![DescribeProducersTopic { name: "t".into(), partition_indexes: vec![0, 1] }];
    let producers = client.ask(0, &DescribeProducersRequest { topics }, decoded!(DescribeProducersResponse));
    // A directory fails whatever is asked of it.
    let topics = Some(vec![DescribableLogDirTopic { topic: "t".into(), partitions: vec![0] }]);
    let dirs = client.ask(4, &DescribeLogDirsRequest { topics }, decoded!(DescribeLogDirsResponse));
    (
        ends.topics[0].partitions.iter().map(|partition| partition.error_code).collect(),
        producers.topics[0].partitions.iter().map(|partition| partition.error_code).collect(),
        dirs.results.iter().map(|dir| dir.error_code).collect(),
    )
}

fn commit(client: &mut Client, group: &str, offset: i64) -> ErrorCode {
    let partition = OffsetCommitPartition { committed_offset: offset, ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitTopic { name: "t".into(), partitions: vec![partition] }],
        ..Default::default()
    };
    let ask = || client.ask(8, &request, decoded!(OffsetCommitResponse)).topics[0].partitions[0].error_code;
    loaded(ask, |code| *code)
}

fn committed(client: &mut Client, group: &str) -> (ErrorCode, Option<i64>) {
    let groups = vec![OffsetFetchGroup { group_id: group.into(), topics: None, ..Default::default() }];
    let request = OffsetFetchRequest { groups, ..Default::default() };
    let ask = || {
        let response = client.ask(8, &request, decoded!(OffsetFetchResponse));
        let found = response.groups[0].topics.first().map(|topic| topic.partitions[0].committed_offset);
        (response.groups[0].error_code, found)
    };
    loaded(ask, |(code, _)| *code)
}

#[test]
fn offsets_whose_log_failed_are_refused_and_those_acknowledged_are_found_after_a_restart() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client);
    let groups: Vec<String> = (0..8).map(|number| format!("g{number}")).collect();
    let find = FindCoordinatorRequest { coordinator_keys: vec!["g0".into()], ..Default::default() };
    client.ask(4, &find, decoded!(FindCoordinatorResponse));
    assert!(groups.iter().all(|group| commit(&mut client, group, 5) == ErrorCode::NONE));

    let place = |group: &str| ringlog::coordinator::partition_for(group, 4);
    let failing = place(&groups[0]);
    let asked = fault::ask(Fault::Write, &broker.data().join(format!("__consumer_offsets-{failing}")));
    for group in &groups {
        let expected = if place(group) == failing { ErrorCode::NOT_COORDINATOR } else { ErrorCode::NONE };
        assert_eq!(commit(&mut client, group, 6), expected, "{group}");
        let seen = if place(group) == failing { 5 } else { 6 };
        assert_eq!(committed(&mut client, group), (ErrorCode::NONE, Some(seen)), "{group}: what is durable is served");
    }
    assert!(groups.iter().any(|group| place(group) != failing));
    assert_eq!((asked.struck(), asked.later()), (true, 0));
    drop(asked);
    let broker = broker.restart(&[]);
    let mut client = broker.connect();
    for group in &groups {
        let seen = if place(group) == failing { 5 } else { 6 };
        assert_eq!(committed(&mut client, group), (ErrorCode::NONE, Some(seen)), "{group}");
        assert_eq!(commit(&mut client, group, 7), ErrorCode::NONE, "{group}");
    }
}

/// The partition of the offsets topic that keeps `group`; the topic is there afterwards.
fn offsets_partition(client: &mut Client, group: &str) -> String {
    let find = FindCoordinatorRequest { coordinator_keys: vec![group.into()], ..Default::default() };
    client.ask(4, &find, decoded!(FindCoordinatorResponse));
    format!("__consumer_offsets-{}", ringlog::coordinator::partition_for(group, 4))
}

#[test]
fn a_member_whose_commit_hangs_is_told_in_time_and_its_heartbeats_are_heard() {
    let broker = Broker::start(2, &[("offsets.commit.timeout.ms", "1000")]);
    let mut client = broker.connect();
    create_topic(&mut client);
    let partition = offsets_partition(&mut client, "g");
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupProtocol { name: "range".into(), metadata: vec![0_u8; 6].into() }],
        ..Default::default()
    };
    let joined = loaded(|| client.ask(3, &join, decoded!(JoinGroupResponse)), |joined| joined.error_code);
    assert_eq!(joined.error_code, ErrorCode::NONE);
    let (generation_id, member_id) = (joined.generation_id, joined.member_id);
    let sync =
        SyncGroupRequest { group_id: "g".into(), generation_id, member_id: member_id.clone(), ..Default::default() };
    assert_eq!(client.ask(3, &sync, decoded!(SyncGroupResponse)).error_code, ErrorCode::NONE);

    let hanging = fault::ask(Fault::WriteThatHangs, &broker.data().join(partition));
    let offset = OffsetCommitPartition { committed_offset: 5, ..Default::default() };
    let commit = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: generation_id,
        member_id: member_id.clone(),
        topics: vec![OffsetCommitTopic { name: "t".into(), partitions: vec![offset] }],
        ..Default::default()
    };
    let committed = client.ask(8, &commit, decoded!(OffsetCommitResponse));
    assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(hanging.struck());
    let heartbeat = HeartbeatRequest { group_id: "g".into(), generation_id, member_id, ..Default::default() };
    assert_eq!(client.ask(3, &heartbeat, decoded!(HeartbeatResponse)).error_code, ErrorCode::NONE);

    let groups = vec![OffsetFetchGroup { group_id: "g".into(), topics: None, ..Default::default() }];
    let stable = OffsetFetchRequest { groups, require_stable: true, ..Default::default() };
    let answer = client.ask(8, &stable, decoded!(OffsetFetchResponse));
    assert_eq!(answer.groups[0].error_code, ErrorCode::NOT_COORDINATOR);
    drop(hanging);
    let answer = client.ask(8, &stable, decoded!(OffsetFetchResponse));
    assert_eq!(answer.groups[0].error_code, ErrorCode::NONE);
    let found = answer.groups[0].topics[0].partitions[0].committed_offset;
    assert_eq!(found, 5, "the record was on its way all the time");
}

#[test]
fn a_topic_made_again_has_no_offsets_while_the_tombstones_of_the_old_ones_are_on_their_way() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client);
    let partition = offsets_partition(&mut client, "g");
    assert_eq!(commit(&mut client, "g", 5), ErrorCode::NONE);
    let hanging = fault::ask(Fault::WriteThatHangs, &broker.data().join(partition));
    let topics = vec![DeleteTopic { name: Some("t".into()), ..Default::default() }];
    let response = client.ask(6, &DeleteTopicsRequest { topics, ..Default::default() }, decoded!(DeleteTopicsResponse));
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
    create_topic(&mut client);
    let topics = vec![OffsetFetchTopic { name: "t".into(), partition_indexes: vec![0] }];
    let groups = vec![OffsetFetchGroup { group_id: "g".into(), topics: Some(topics), ..Default::default() }];
    let answer = client.ask(8, &OffsetFetchRequest { groups, ..Default::default() }, decoded!(OffsetFetchResponse));
    let found = &answer.groups[0].topics[0].partitions[0];
    assert_eq!((found.error_code, found.committed_offset), (ErrorCode::NONE, -1));
    drop(hanging);
}

#[test]
fn a_partition_whose_groups_did_not_load_hides_no_others() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create_topic(&mut client);
    offsets_partition(&mut client, "g0");
    let groups: Vec<String> = (0..8).map(|number| format!("g{number}")).collect();
    assert!(groups.iter().all(|group| commit(&mut client, group, 5) == ErrorCode::NONE));

    let options =
        BuilderOptions { codec: Codec::None, level: None, producer: None, transactional: false, control: false };
    let mut builder = Builder::new(options);
    let of_the_future = b"\x00\x05".as_slice();
    builder.push(now(), Some(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"), Some(of_the_future), &[]);
    let records = builder.finish();
    let data = ProducePartition { index: 0, records: Some(Records::of_length(records.len())) };
    let topic = ProduceTopic { name: "__consumer_offsets".into(), partition_data: [data].into_iter().collect() };
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: smallvec![topic], ..Default::default() };
    client.client_id = "__admin_client";
    let sent = client.send_records(PRODUCE, &request, &[&records[..]]);
    assert_eq!(answer(&mut client, sent), [ErrorCode::NONE]);

    let broker = broker.restart(&[]);
    let mut client = broker.connect();
    let list = || client.ask(5, &ListGroupsRequest::default(), decoded!(ListGroupsResponse));
    let listed = loaded(list, |listed| listed.error_code);
    assert_eq!(listed.error_code, ErrorCode::NONE);
    let mut found: Vec<String> = listed.groups.iter().map(|group| group.group_id.to_string()).collect();
    found.sort();
    let others = |group: &&String| ringlog::coordinator::partition_for(group, 4) != 0;
    assert_eq!(found, groups.iter().filter(others).cloned().collect::<Vec<_>>());
    assert!(!found.is_empty() && found.len() < groups.len());
}

#[test]
fn a_topic_whose_log_did_not_open_is_deleted_whole_and_its_name_is_free_again() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client);
    assert_eq!(produce(&mut client, 0..PARTITIONS), [ErrorCode::NONE; 4]);
    std::fs::write(broker.data().join("t-1/partition.metadata"), "of nobody").unwrap();

    let broker = broker.restart(&[]);
    let mut client = broker.connect();
    assert_eq!(produce(&mut client, [0, 1]), [ErrorCode::NONE, ErrorCode::KAFKA_STORAGE_ERROR]);
    let topics = vec![DeleteTopic { name: Some("t".into()), ..Default::default() }];
    let response = client.ask(6, &DeleteTopicsRequest { topics, ..Default::default() }, decoded!(DeleteTopicsResponse));
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
    create_topic(&mut client);
    assert_eq!(produce(&mut client, 0..PARTITIONS), [ErrorCode::NONE; 4]);
}

#[test]
fn an_acknowledgement_that_does_not_come_is_told_and_what_it_was_for_may_still_come() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client);
    let hanging = fault::ask(Fault::WriteThatHangs, &broker.data().join("t-1"));
    let mut patient = broker.connect();
    let sent = send(&mut patient, [0, 1]);
    while !hanging.struck() {
        std::thread::yield_now();
    }
    assert_eq!(produce(&mut client, [0, 2, 3]), [ErrorCode::NONE; 3], "the others are served");
    // Half a minute: what a device may take.
    assert_eq!(answer(&mut patient, sent), [ErrorCode::NONE, ErrorCode::REQUEST_TIMED_OUT]);
    assert_eq!(fetch(&mut client)[1], (ErrorCode::NONE, 0));
    drop(hanging);
    assert_eq!(produce(&mut patient, [1]), [ErrorCode::NONE]);
    assert_eq!(fetch(&mut client)[1], (ErrorCode::NONE, 2));
}
