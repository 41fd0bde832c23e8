//! The whole server in one process: two shards, a client that is only a socket, and every kind of request once.

#![allow(clippy::unwrap_used)]

mod server_support;

use std::time::{Duration, Instant};

use ringlog::protocol::admin::*;
use ringlog::protocol::batch::{ProducerStamp, Records as BatchRecords};
use ringlog::protocol::fetch::*;
use ringlog::protocol::groups::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use ringlog::shard::calls::{ShardAnswer, ShardCall, WatchId, WatchShare};
use ringlog::types::{PartitionId, PartitionIndex, ProducerEpoch, ProducerId, Sequence};
use server_support::{Broker, Client, PATIENCE, batch, loaded, now};
use smallvec::smallvec;

const PRODUCE: i16 = 11;
const FETCH: i16 = 12;

fn create_topic(client: &mut Client, name: &str, partitions: i32) {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
}

/// Sends one produce request with one batch for each of `partitions`.
fn send_produce(client: &mut Client, topic: &str, acks: i16, partitions: &[(i32, &[u8])]) -> i32 {
    let data = partitions
        .iter()
        .map(|(index, records)| ProducePartition { index: *index, records: Some(Records::of_length(records.len())) });
    let request = ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: smallvec![ProduceTopic { name: topic.into(), partition_data: data.collect() }],
        ..Default::default()
    };
    let records: Vec<&[u8]> = partitions.iter().map(|(_, records)| *records).collect();
    client.send_records(PRODUCE, &request, &records)
}

fn produced(client: &mut Client, sent: i32) -> ProduceResponse<'static> {
    client.read_answer(ApiKey::Produce, PRODUCE, sent, decoded!(ProduceResponse))
}

fn fetch_request(topic: &str, partitions: &[(i32, i64)], max_wait: Duration, min_bytes: i32) -> FetchRequest<'static> {
    let partition = |(index, offset): &(i32, i64)| FetchPartition {
        partition: *index,
        fetch_offset: *offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    FetchRequest {
        max_wait_ms: i32::try_from(max_wait.as_millis()).unwrap(),
        min_bytes,
        max_bytes: 50 << 20,
        topics: smallvec![FetchTopic {
            topic: topic.to_owned().into(),
            partitions: partitions.iter().map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The values of every record of every partition of a fetch answer, in order.
fn fetched(client: &mut Client, sent: i32) -> Vec<(i32, ErrorCode, i64, Vec<String>)> {
    client.read_answer(ApiKey::Fetch, FETCH, sent, |body, version| {
        let reader = ringlog::protocol::Reader::new(body);
        let response = <FetchResponse as ringlog::protocol::Message>::decode_body(reader, version).unwrap();
        let mut partitions = Vec::new();
        for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
            let bytes = &body[partition.records.unwrap().range()];
            partitions.push((partition.partition_index, partition.error_code, partition.high_watermark, values(bytes)));
        }
        partitions
    })
}

fn values(mut bytes: &[u8]) -> Vec<String> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let records = BatchRecords::open(bytes, 1 << 20).unwrap();
        for record in records.iter() {
            values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
        }
        bytes = &bytes[records.info().bytes as usize..];
    }
    values
}

#[test]
fn what_is_produced_is_fetched_from_every_shard() {
    let broker = Broker::start(2, &[]);
    // Two connections: they are dealt to different shards, so each partition is seen from its owner and across a hop.
    let (mut first, mut second) = (broker.connect(), broker.connect());
    create_topic(&mut first, "words", 4);
    let batches: Vec<_> =
        (0..4).map(|index| batch(now(), &[&format!("a{index}"), &format!("b{index}")], None)).collect();
    let parts: Vec<(i32, &[u8])> = (0..).zip(batches.iter().map(Vec::as_slice)).collect();
    for (client, base) in [(&mut first, 0), (&mut second, 2)] {
        let sent = send_produce(client, "words", -1, &parts);
        let response = produced(client, sent);
        for (index, partition) in (0..).zip(&response.responses[0].partition_responses) {
            assert_eq!((partition.index, partition.error_code), (index, ErrorCode::NONE), "{partition:?}");
            assert_eq!(partition.base_offset, base);
        }
    }
    for client in [&mut first, &mut second] {
        let sent =
            client.send(FETCH, &fetch_request("words", &[(0, 0), (1, 2), (2, 4), (3, 9)], Duration::from_secs(5), 1));
        let expected = |index: i32, times: usize| vec![vec![format!("a{index}"), format!("b{index}")]; times].concat();
        assert_eq!(
            fetched(client, sent),
            [
                (0, ErrorCode::NONE, 4, expected(0, 2)),
                (1, ErrorCode::NONE, 4, expected(1, 1)),
                (2, ErrorCode::NONE, 4, Vec::new()),
                (3, ErrorCode::OFFSET_OUT_OF_RANGE, -1, Vec::new()),
            ]
        );
    }
    drop((first, second));
    let checkpoints = broker.stop();
    let ends: Vec<_> = checkpoints
        .iter()
        .flat_map(|dir| &dir.recovery_points)
        .map(|(name, end)| (name.to_string(), end.value()))
        .collect();
    assert_eq!(ends.len(), 4, "{ends:?}");
    assert!(ends.iter().all(|(_, end)| *end == 4) && checkpoints.iter().all(|dir| dir.clean), "{checkpoints:?}");
}

#[test]
fn a_long_poll_ends_when_its_bytes_come_wherever_they_are_written() {
    let broker = Broker::start(2, &[]);
    let (mut reader, mut writer) = (broker.connect(), broker.connect());
    create_topic(&mut writer, "slow", 4);
    let wanted: Vec<(i32, i64)> = (0..4).map(|index| (index, 0)).collect();
    for round in 0..4 {
        let offsets: Vec<(i32, i64)> = wanted.iter().map(|(index, _)| (*index, i64::from(*index < round))).collect();
        let began = Instant::now();
        let sent = reader.send(FETCH, &fetch_request("slow", &offsets, Duration::from_secs(20), 1));
        let records = batch(now(), &["late"], None);
        let acked = send_produce(&mut writer, "slow", 1, &[(round, &records)]);
        assert_eq!(produced(&mut writer, acked).responses[0].partition_responses[0].error_code, ErrorCode::NONE);
        let answer = fetched(&mut reader, sent);
        assert_eq!(answer[round as usize].3, ["late"]);
        assert!(began.elapsed() < Duration::from_secs(10), "the wait was not cut short");
    }
    // Nothing comes: the answer is empty, at the end of the wait.
    let began = Instant::now();
    let sent = reader.send(FETCH, &fetch_request("slow", &[(0, 1), (1, 1)], Duration::from_millis(200), 1));
    assert_eq!(fetched(&mut reader, sent), [0, 1].map(|index| (index, ErrorCode::NONE, 1, Vec::<String>::new())));
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[test]
fn the_stages_of_requests_are_counted_and_fill_no_more_than_their_client_waited() {
    const POLL: Duration = Duration::from_millis(100);
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "staged", 4);
    let began = Instant::now();
    let records = batch(now(), &["x"], None);
    // Of four partitions some are on the connection's own shard and some are not.
    for index in 0..8 {
        let sent = send_produce(&mut client, "staged", -1, &[(index % 4, &records)]);
        assert_eq!(produced(&mut client, sent).responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    }
    let at = |offset| (0..4).map(|index| (index, offset)).collect::<Vec<(i32, i64)>>();
    for (offset, wait) in [(0, Duration::ZERO), (2, POLL)] {
        let sent = client.send(FETCH, &fetch_request("staged", &at(offset), wait, 1));
        assert_eq!(fetched(&mut client, sent).len(), 4);
    }
    let waited = began.elapsed();
    let sums = |key: usize| {
        let staged: u64 = broker.metrics.iter().map(|shard| shard.requests_staged[key].value()).sum();
        let nanos =
            |stage: usize| broker.metrics.iter().map(|shard| shard.stage_nanos[key][stage].value()).sum::<u64>();
        (staged, [nanos(0), nanos(1), nanos(2)].map(Duration::from_nanos))
    };
    let (produces, fetches) = (sums(0), sums(1));
    assert_eq!((produces.0, fetches.0), (8, 2));
    let [_, local, remote] = produces.1;
    assert!(local > Duration::ZERO && remote > Duration::ZERO, "{produces:?}");
    let [_, local, remote] = fetches.1;
    assert!(local > Duration::ZERO && remote > Duration::ZERO, "{fetches:?}");
    let of_fetches: Duration = fetches.1.iter().sum();
    assert!(of_fetches >= POLL, "the long poll is in it: {of_fetches:?}");
    let of_all = of_fetches + produces.1.iter().sum::<Duration>();
    assert!(of_all <= waited, "one client, one request at a time: {of_all:?} of {waited:?}");
    for (_, latencies) in broker.reports().iter().flat_map(|report| &report.latencies) {
        assert!(latencies.stages.iter().all(|stage| stage.len() == latencies.total.len()));
    }
}

#[test]
fn answers_keep_the_order_of_requests_when_many_are_sent_at_once() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "order", 3);
    let records = batch(now(), &["x"], None);
    let sent: Vec<i32> =
        (0..100).map(|number| send_produce(&mut client, "order", -1, &[(number % 3, &records)])).collect();
    let fetch = client.send(FETCH, &fetch_request("order", &[(0, 0), (1, 0), (2, 0)], Duration::ZERO, 1));
    for (number, sent) in (0..).zip(sent) {
        let response = produced(&mut client, sent);
        assert_eq!(response.responses[0].partition_responses[0].base_offset, number / 3);
    }
    // A fetch behind produce requests sees what they were told is there.
    let counts: Vec<_> = fetched(&mut client, fetch).iter().map(|(.., values)| values.len()).collect();
    assert_eq!(counts, [34, 33, 33]);
}

#[test]
fn a_connection_moves_to_the_shard_that_it_is_for_with_all_that_it_has_asked() {
    const PARTITIONS: i32 = 20;
    const REQUESTS: i64 = 300;
    const AHEAD: i64 = 5;
    let broker = Broker::start(2, &[]);
    create_topic(&mut broker.connect(), "t", PARTITIONS);
    let records = batch(now(), &["x"], None);
    let mut hops_at_home = Vec::new();
    for partition in 0..PARTITIONS {
        let mut client = broker.connect();
        let mut sent = std::collections::VecDeque::new();
        for offset in 0..REQUESTS + AHEAD {
            if offset < REQUESTS {
                sent.push_back(send_produce(&mut client, "t", 1, &[(partition, &records)]));
            }
            if offset >= AHEAD {
                let response = produced(&mut client, sent.pop_front().unwrap());
                let answer = &response.responses[0].partition_responses[0];
                assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, offset - AHEAD));
            }
        }
        let before = broker.counter("hop_calls");
        for _ in 0..50 {
            let sent = client.send(FETCH, &fetch_request("t", &[(partition, 0)], Duration::ZERO, 1));
            assert_eq!(fetched(&mut client, sent)[0].3.len(), REQUESTS as usize);
        }
        hops_at_home.push(broker.counter("hop_calls") - before);
    }
    assert!(broker.counter("connections_moved") > 0, "twenty partitions all lie where their clients came");
    // What one client needs to say good-bye may fall into the time of the next.
    assert!(hops_at_home.iter().all(|hops| *hops < 10), "{hops_at_home:?}");
}

#[test]
fn idempotent_producers_are_deduplicated_and_fenced() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "once", 1);
    let id = client.ask(4, &InitProducerIdRequest::default(), decoded!(InitProducerIdResponse));
    assert_eq!((id.error_code, id.producer_epoch), (ErrorCode::NONE, 0));
    let stamped = |sequence, epoch| {
        let stamp = ProducerStamp {
            id: ProducerId::new(id.producer_id).unwrap(),
            epoch: ProducerEpoch::new(epoch).unwrap(),
            base_sequence: Sequence::new(sequence),
        };
        batch(now(), &["x"], Some(stamp))
    };
    let (first, gap, newer) = (stamped(0, 0), stamped(5, 0), stamped(0, 1));
    let mut outcome = |records: &[u8]| {
        let sent = send_produce(&mut client, "once", -1, &[(0, records)]);
        let response = produced(&mut client, sent);
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    };
    assert_eq!(outcome(&first), (ErrorCode::NONE, 0));
    assert_eq!(outcome(&first), (ErrorCode::NONE, 0));
    assert_eq!(outcome(&gap), (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, -1));
    assert_eq!(outcome(&newer), (ErrorCode::NONE, 1));
    assert_eq!(outcome(&first), (ErrorCode::INVALID_PRODUCER_EPOCH, -1));
}

#[test]
fn a_group_forms_commits_and_is_found_again() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "work", 2);
    let coordinator = client.ask(
        4,
        &FindCoordinatorRequest { coordinator_keys: vec!["team".into()], ..Default::default() },
        decoded!(FindCoordinatorResponse),
    );
    let found = &coordinator.coordinators[0];
    assert_eq!((found.error_code, found.port), (ErrorCode::NONE, i32::from(broker.address.port())));

    let mut join = JoinGroupRequest {
        group_id: "team".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupProtocol { name: "range".into(), metadata: (&b"m"[..]).into() }],
        ..Default::default()
    };
    let refused = loaded(|| client.ask(9, &join, decoded!(JoinGroupResponse)), |response| response.error_code);
    assert_eq!(refused.error_code, ErrorCode::MEMBER_ID_REQUIRED);
    join.member_id = refused.member_id.clone();
    let joined = client.ask(9, &join, decoded!(JoinGroupResponse));
    assert_eq!((joined.error_code, joined.generation_id), (ErrorCode::NONE, 1));
    assert_eq!(joined.leader, joined.member_id);

    let assignment = SyncGroupAssignment { member_id: joined.member_id.clone(), assignment: (&b"all"[..]).into() };
    let sync = SyncGroupRequest {
        group_id: "team".into(),
        generation_id: 1,
        member_id: joined.member_id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![assignment],
        ..Default::default()
    };
    let synced = client.ask(5, &sync, decoded!(SyncGroupResponse));
    assert_eq!((synced.error_code, &synced.assignment[..]), (ErrorCode::NONE, &b"all"[..]));

    let partition = |index| OffsetCommitPartition {
        partition_index: index,
        committed_offset: 7,
        committed_metadata: Some("note".into()),
        ..Default::default()
    };
    let commit = OffsetCommitRequest {
        group_id: "team".into(),
        generation_id_or_member_epoch: 1,
        member_id: joined.member_id.clone(),
        topics: vec![OffsetCommitTopic { name: "work".into(), partitions: vec![partition(1), partition(9)] }],
        ..Default::default()
    };
    let committed = client.ask(9, &commit, decoded!(OffsetCommitResponse));
    let codes: Vec<_> = committed.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);

    let groups = vec![OffsetFetchGroup { group_id: "team".into(), topics: None, ..Default::default() }];
    let offsets = client.ask(8, &OffsetFetchRequest { groups, ..Default::default() }, decoded!(OffsetFetchResponse));
    let offset = &offsets.groups[0].topics[0].partitions[0];
    assert_eq!((offset.partition_index, offset.committed_offset), (1, 7));

    let listed = client.ask(5, &ListGroupsRequest::default(), decoded!(ListGroupsResponse));
    assert_eq!(listed.groups.len(), 1);
    assert_eq!((&*listed.groups[0].group_id, &*listed.groups[0].group_state), ("team", "Stable"));
}

#[test]
fn a_faulty_peer_is_closed_counted_and_hurts_nobody() {
    let broker = Broker::start(2, &[]);
    let mut healthy = broker.connect();
    let faults: [(&str, &[u8]); 5] = [
        ("faults_frame_length", &(-1_i32).to_be_bytes()),
        ("faults_frame_length", &i32::MAX.to_be_bytes()),
        ("faults_unserved", &[0, 0, 0, 10, 0, 99, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
        ("faults_header", &[0, 0, 0, 10, 0, 3, 0, 9, 0, 0, 0, 1, 0, 99]),
        ("faults_body", &[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
    ];
    for (counter, bytes) in faults {
        let before = broker.counter(counter);
        let mut peer = broker.connect();
        peer.send_raw(bytes);
        assert!(peer.receive().is_none(), "{counter}: the connection is closed");
        assert_eq!(broker.counter(counter), before + 1, "{counter}");
        let answer = healthy.ask(0, &ApiVersionsRequest::default(), decoded!(ApiVersionsResponse));
        assert_eq!(answer.error_code, ErrorCode::NONE);
    }
    // A version nobody knows is answered in the oldest form, and the connection lives on.
    healthy.send_raw(&[0, 0, 0, 11, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0]);
    let frame = healthy.receive().unwrap();
    assert_eq!(&frame[..6], [0, 0, 0, 7, 0, 35]);
    let answer = healthy.ask(4, &api_versions(), decoded!(ApiVersionsResponse));
    assert_eq!(answer.error_code, ErrorCode::NONE);
}

fn api_versions() -> ApiVersionsRequest<'static> {
    ApiVersionsRequest { client_software_name: "smoke".into(), client_software_version: "1.0".into() }
}

#[test]
fn null_records_are_answered_and_acks_zero_is_not() {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "odd", 2);
    let request = ProduceRequest {
        acks: 1,
        timeout_ms: 1000,
        topic_data: smallvec![ProduceTopic {
            name: "odd".into(),
            partition_data: smallvec![ProducePartition { index: 0, records: None }],
        }],
        ..Default::default()
    };
    let sent = client.send(PRODUCE, &request);
    assert_eq!(produced(&mut client, sent).responses[0].partition_responses[0].error_code, ErrorCode::INVALID_RECORD);

    let records = batch(now(), &["x"], None);
    send_produce(&mut client, "odd", 0, &[(0, &records), (1, &records)]);
    let fetch = client.send(FETCH, &fetch_request("odd", &[(0, 0), (1, 0)], Duration::ZERO, 0));
    let found: Vec<_> = fetched(&mut client, fetch).into_iter().map(|(.., values)| values).collect();
    assert_eq!(found, [["x"], ["x"]]);
    send_produce(&mut client, "odd", 0, &[(7, &records)]);
    assert!(client.receive().is_none(), "acks=0 has no other way to say no");
}

#[test]
fn produced_bytes_are_copied_once_and_fetched_bytes_never() {
    const BATCHES: usize = 200;
    const ROUNDS: usize = 3;
    let broker = Broker::start(1, &[("engine.tail.cache.bytes", "4194304")]);
    let mut client = broker.connect();
    create_topic(&mut client, "bulk", 1);
    let value = "x".repeat(64 << 10);
    let records = batch(now(), &[&value], None);
    for _ in 0..BATCHES {
        let sent = send_produce(&mut client, "bulk", 1, &[(0, &records)]);
        assert_eq!(produced(&mut client, sent).responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    }
    // From the start: what left the tail cache comes from disk, the rest from memory.
    for _ in 0..ROUNDS {
        let mut offset = 0;
        while offset < BATCHES as i64 {
            let sent = client.send(FETCH, &fetch_request("bulk", &[(0, offset)], Duration::ZERO, 1));
            offset += fetched(&mut client, sent)[0].3.len() as i64;
        }
    }
    let (bytes, log) = ((records.len() * BATCHES) as f64, broker.reports()[0].log);
    let copied = (broker.counter("produce_copied_bytes") + log.append_copied_bytes) as f64;
    assert!(copied <= 1.1 * bytes, "{copied} bytes were copied for {bytes} produced");
    assert_eq!(broker.counter("fetch_copied_bytes"), 0);
    assert_eq!(broker.counter("fetch_bytes"), (records.len() * BATCHES * ROUNDS) as u64);
    assert!(log.disk_read_bytes > 0 && log.cache_read_bytes > 0, "both ways were taken: {log:?}");
}

#[test]
fn a_watch_that_is_given_up_at_once_is_answered() {
    let broker = Broker::start(1, &[]);
    let mut client = broker.connect();
    create_topic(&mut client, "quiet", 1);
    let named = vec![MetadataRequestTopic { name: Some("quiet".into()), ..Default::default() }];
    let request = MetadataRequest { topics: Some(named), ..Default::default() };
    let topic_id = client.ask(12, &request, decoded!(MetadataResponse)).topics[0].topic_id;
    let partitions = vec![(PartitionId { topic_id, partition: PartitionIndex::ZERO }, 0)];
    let port = broker.port();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Both lie in the inbox when the shard looks, in most rounds.
        for number in 0..200 {
            let id = WatchId { from: 0, number };
            let watch = port.call(0, ShardCall::Watch(WatchShare { id, partitions: partitions.clone(), bytes: 1 }));
            let unwatch = port.call(0, ShardCall::Unwatch(id));
            let (watched, _) = futures_lite::future::block_on(futures_lite::future::zip(watch, unwatch));
            assert!(matches!(watched, Ok(ShardAnswer::Done)));
        }
        tell.send(()).unwrap();
    });
    told.recv_timeout(PATIENCE).expect("each watch ends");
}
