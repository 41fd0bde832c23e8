//! Requests no client of good manners sends, answered as Kafka 4.4 was seen to answer them on the wire: what is given twice,
//! what is given without its parts, which of two faults is told, what a fetch waits for.
//!
//! With `RINGLOG_TEST_BOOTSTRAP=127.0.0.1:9092` the long polls are put to the broker there: so they are proved on Kafka.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server_support;

use std::time::{Duration, Instant};

use ringlog::protocol::admin::*;
use ringlog::protocol::batch::ProducerStamp;
use ringlog::protocol::fetch::*;
use ringlog::protocol::groups::*;
use ringlog::protocol::operator::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use ringlog::types::{ProducerEpoch, ProducerId, Sequence, TopicId};
use server_support::{Broker, Client, PATIENCE, batch, loaded, now};
use smallvec::smallvec;

/// Runs `checks` one after the other against one broker.
fn answers_to(checks: &[fn(&mut Client)]) {
    let broker = Broker::start(2, &[]);
    let mut client = broker.connect();
    checks.iter().for_each(|check| check(&mut client));
}

#[test]
fn long_polls_are_answered_as_kafka_does() {
    match std::env::var("RINGLOG_TEST_BOOTSTRAP") {
        Ok(address) => {
            a_fetch_waits_for_nothing_that_its_limits_keep_out(&mut Client::connect(address.parse().unwrap()))
        }
        Err(_) => answers_to(&[a_fetch_waits_for_nothing_that_its_limits_keep_out]),
    }
}

#[test]
fn an_epoch_older_than_all_that_are_known_ends_where_they_begin() {
    // The records are older than retention allows: their segment goes, and with it all that is known of epoch 0.
    let settings = [("log.retention.check.interval.ms", "10")];
    let broker = Broker::start(1, &settings);
    let mut client = broker.connect();
    fresh(&mut client);
    produce(&mut client, -1, 10_000, &[("t", 1)], &batch(1000, &["a", "b", "c"], None));
    let earliest = |client: &mut Client| {
        let partitions = vec![ListOffsetsPartition { timestamp: -2, ..Default::default() }];
        let topics = vec![ListOffsetsTopic { name: "t".into(), partitions }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        client.ask(7, &request, decoded!(ListOffsetsResponse)).topics[0].partitions[0].offset
    };
    let give_up = Instant::now() + PATIENCE;
    while earliest(&mut client) != 3 && Instant::now() < give_up {
        std::thread::yield_now();
    }
    let broker = broker.restart(&settings);
    let mut client = broker.connect();
    assert_eq!(earliest(&mut client), 3);
    for (asked, code, epoch, end) in
        [(0, ErrorCode::NONE, 0, 3), (1, ErrorCode::NONE, 1, 3), (2, ErrorCode::NONE, -1, -1)]
    {
        let partition = OffsetForLeaderPartition { leader_epoch: asked, ..Default::default() };
        let topics = vec![OffsetForLeaderTopic { topic: "t".into(), partitions: vec![partition] }];
        let request = OffsetForLeaderEpochRequest { topics, ..Default::default() };
        let response = client.ask(4, &request, decoded!(OffsetForLeaderEpochResponse));
        let answer = &response.topics[0].partitions[0];
        assert_eq!((answer.error_code, answer.leader_epoch, answer.end_offset), (code, epoch, end), "epoch {asked}");
    }
}

#[test]
fn an_answer_holds_no_more_partitions_than_the_broker_allows() {
    let broker = Broker::start(1, &[("max.request.partition.size.limit", "1")]);
    let mut client = broker.connect();
    fresh(&mut client);
    let request = DescribeTopicPartitionsRequest { response_partition_limit: 5, ..Default::default() };
    let response = client.ask(0, &request, decoded!(DescribeTopicPartitionsResponse));
    assert_eq!(response.topics[0].partitions.len(), 1);
    assert_eq!(response.next_cursor.map(|cursor| cursor.partition_index), Some(1));
}

/// A new topic `t` of two partitions in place of the last one.
fn fresh(client: &mut Client) -> TopicId {
    let old = DeleteTopic { name: Some("t".into()), topic_id: TopicId::ZERO };
    client.ask(6, &DeleteTopicsRequest { topics: vec![old], ..Default::default() }, |_, _| ());
    let topic =
        CreatableTopic { name: "t".into(), num_partitions: 2, replication_factor: 1, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
    response.topics[0].topic_id
}

#[test]
fn data_is_answered_as_kafka_does() {
    answers_to(&[
        a_topic_that_is_not_there_is_told_before_illegal_acks,
        a_duplicate_is_answered_with_the_largest_timestamp_of_its_original,
        a_timeout_is_not_for_the_own_device_and_unreadable_records_do_not_stop_a_search,
        a_fetch_that_goes_on_with_a_session_finds_none,
        only_a_replica_of_the_partition_may_follow_it,
        who_is_too_old_for_zstd_is_given_none,
        an_unknown_position_is_told_before_an_unknown_topic,
        the_shape_of_a_batch_is_judged_before_acks_and_internal_topics,
        records_of_a_topic_without_a_policy_can_be_deleted,
    ]);
}

#[test]
fn groups_are_answered_as_kafka_does() {
    answers_to(&[
        commits_leave_out_what_has_no_partitions_and_fetches_answer_it,
        sync_group_must_name_the_protocol_from_version_five_on,
    ]);
}

#[test]
fn topics_and_settings_are_answered_as_kafka_does() {
    answers_to(&[
        a_topic_asked_for_twice_is_created_on_first_use,
        an_id_counts_for_more_than_the_name_beside_it,
        a_request_that_names_one_id_asks_by_ids_alone,
        internal_topics_but_that_of_offsets_are_not_made_on_first_use,
        settings_are_shown_as_they_were_parsed,
        what_is_wrong_of_itself_is_told_before_an_unknown_topic,
        a_count_that_adds_nothing_is_told_before_an_illegal_assignment,
        no_topic_is_deleted_that_is_named_twice_in_any_way,
        an_empty_list_of_settings_asks_for_all,
        settings_are_altered_only_where_the_request_says_one_thing,
        partitions_are_described_from_a_cursor_among_the_topics_asked_for,
    ]);
}

fn produce(
    client: &mut Client,
    acks: i16,
    timeout_ms: i32,
    topics: &[(&str, usize)],
    records: &[u8],
) -> ProduceResponse<'static> {
    let partition = |index| ProducePartition { index, records: Some(Records::of_length(records.len())) };
    let topic = |&(name, count): &(&str, usize)| ProduceTopic {
        name: name.to_owned().into(),
        partition_data: (0..count as i32).map(partition).collect(),
    };
    let topic_data = topics.iter().map(topic).collect();
    let request = ProduceRequest { acks, timeout_ms, topic_data, ..Default::default() };
    let times = topics.iter().map(|(_, count)| count).sum();
    let sent = client.send_records(11, &request, &vec![records; times]);
    client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse))
}

fn a_topic_that_is_not_there_is_told_before_illegal_acks(client: &mut Client) {
    fresh(client);
    let response = produce(client, 7, 10_000, &[("t", 1), ("none", 1), ("t", 0)], &batch(now(), &["v"], None));
    let codes = response.responses.iter().map(|topic| topic.partition_responses[0].error_code);
    let expected = [ErrorCode::INVALID_REQUIRED_ACKS, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION];
    assert_eq!(codes.collect::<Vec<_>>(), expected, "a topic without partitions is not answered");
}

fn a_duplicate_is_answered_with_the_largest_timestamp_of_its_original(client: &mut Client) {
    fresh(client);
    let producer = ProducerStamp {
        id: ProducerId::new(7).unwrap(),
        epoch: ProducerEpoch::new(0).unwrap(),
        base_sequence: Sequence::new(0),
    };
    let (first, again) = (now(), now() + 1000);
    for (sent, told) in [(first, -1), (again, first)] {
        let response = produce(client, -1, 10_000, &[("t", 1)], &batch(sent, &["v"], Some(producer)));
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (ErrorCode::NONE, 0));
        assert_eq!(partition.log_append_time_ms, told);
    }
}

fn a_timeout_is_not_for_the_own_device_and_unreadable_records_do_not_stop_a_search(client: &mut Client) {
    fresh(client);
    let mut garbage = batch(5000, &["v"], None);
    garbage[61] = 0xff;
    let checksum = crc32c::crc32c(&garbage[21..]);
    garbage[17..21].copy_from_slice(&checksum.to_be_bytes());
    for (records, offset) in [(garbage, 0), (batch(7000, &["v"], None), 1)] {
        let response = produce(client, -1, 0, &[("t", 1)], &records);
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (ErrorCode::NONE, offset));
    }
    let partitions = vec![ListOffsetsPartition { timestamp: 4000, ..Default::default() }];
    let topics = vec![ListOffsetsTopic { name: "t".into(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let response = client.ask(7, &request, decoded!(ListOffsetsResponse));
    let found = &response.topics[0].partitions[0];
    assert_eq!((found.error_code, found.offset, found.timestamp), (ErrorCode::NONE, 1, 7000));
}

fn a_fetch_that_goes_on_with_a_session_finds_none(client: &mut Client) {
    fresh(client);
    let topics = |partitions: &[FetchPartition]| {
        smallvec![FetchTopic { topic: "t".into(), partitions: partitions.into(), ..Default::default() }]
    };
    for (session_epoch, code) in
        [(0, ErrorCode::NONE), (-1, ErrorCode::NONE), (5, ErrorCode::FETCH_SESSION_ID_NOT_FOUND)]
    {
        let request = FetchRequest { session_epoch, topics: topics(&[]), ..Default::default() };
        let response = client.ask(12, &request, decoded!(FetchResponse));
        assert_eq!(response.error_code, code);
        assert!(response.responses.is_empty(), "a topic without partitions is not answered");
    }
}

fn a_fetch_waits_for_nothing_that_its_limits_keep_out(client: &mut Client) {
    const WAIT: Duration = Duration::from_secs(3);
    fresh(client);
    let records = batch(now(), &["x".repeat(600).as_str()], None);
    let one = records.len() as i32;
    let began = Instant::now();
    // Kafka takes a moment to lead a new partition.
    while produce(client, -1, 10_000, &[("t", 1)], &records).responses[0].partition_responses[0].error_code
        != ErrorCode::NONE
    {
        assert!(began.elapsed() < PATIENCE);
    }
    for _ in 0..2 {
        let response = produce(client, -1, 10_000, &[("t", 1)], &records);
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    }
    // Three batches. The limits of the partition and of the request, what it wants at least; whole batches, and whether it waits.
    let huge = 1 << 20;
    for (partition_bytes, bytes, bytes_min, batches, waits) in [
        (one * 2 - 1, huge, one + 1, 1, false),
        (one * 2 - 1, huge, one * 2 - 1, 1, false),
        (huge, one * 2 - 1, one * 2, 1, false),
        (1, huge, one, 1, false),
        (huge, 1, huge, 1, false),
        (huge, huge, one * 3, 3, false),
        (one * 2 - 1, huge, one * 2, 1, true),
        (one * 2, huge, one * 2 + 1, 2, true),
        (huge, huge, one * 3 + 1, 3, true),
    ] {
        let partition =
            |partition| FetchPartition { partition, partition_max_bytes: partition_bytes, ..Default::default() };
        let topic =
            FetchTopic { topic: "t".into(), partitions: smallvec![partition(0), partition(1)], ..Default::default() };
        let request = FetchRequest {
            max_wait_ms: WAIT.as_millis() as i32,
            min_bytes: bytes_min,
            max_bytes: bytes,
            topics: smallvec![topic],
            ..Default::default()
        };
        let asked = Instant::now();
        let response = client.ask(12, &request, decoded!(FetchResponse));
        let took = asked.elapsed();
        let case = format!("limits {partition_bytes} and {bytes}, at least {bytes_min}: {took:?}");
        // Kafka cuts the last batch at the limit.
        let found = response.responses[0].partitions[0].records.unwrap().len() / records.len();
        assert_eq!((found, took >= WAIT), (batches, waits), "{case}");
    }
}

fn only_a_replica_of_the_partition_may_follow_it(client: &mut Client) {
    let topic_id = fresh(client);
    let partition = FetchPartition { partition: 0, partition_max_bytes: 1, ..Default::default() };
    let topics = smallvec![FetchTopic { topic: "t".into(), topic_id, partitions: smallvec![partition] }];
    let mut request = FetchRequest { replica_id: 5, topics, ..Default::default() };
    request.replica_state.replica_id = 5;
    for (version, epoch) in [(15, -1), (16, 0)] {
        let response = client.ask(version, &request, decoded!(FetchResponse));
        let answer = &response.responses[0].partitions[0];
        assert_eq!(answer.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(answer.current_leader.leader_epoch, epoch, "the leader is named from version 16 on");
    }
}

fn who_is_too_old_for_zstd_is_given_none(client: &mut Client) {
    fresh(client);
    assert_eq!(alter(client, "t", &[("compression.type", Some("zstd"))]), ErrorCode::NONE);
    produce(client, -1, 10_000, &[("t", 1)], &batch(now(), &["v"], None));
    for (version, code) in [(9, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode::NONE)] {
        let partition = FetchPartition { partition_max_bytes: 1 << 20, ..Default::default() };
        let topic = FetchTopic { topic: "t".into(), partitions: smallvec![partition], ..Default::default() };
        let request = FetchRequest { topics: smallvec![topic], ..Default::default() };
        let response = client.ask(version, &request, decoded!(FetchResponse));
        let answer = &response.responses[0].partitions[0];
        let bytes = answer.records.map_or(0, |records| records.len());
        assert_eq!((answer.error_code, bytes > 0), (code, code == ErrorCode::NONE), "version {version}");
    }
}

fn an_unknown_position_is_told_before_an_unknown_topic(client: &mut Client) {
    fresh(client);
    let asked = |name: &'static str, timestamps: &[i64]| ListOffsetsTopic {
        name: name.into(),
        partitions: timestamps
            .iter()
            .map(|&timestamp| ListOffsetsPartition { timestamp, ..Default::default() })
            .collect(),
    };
    let topics = vec![asked("none", &[-33]), asked("t", &[])];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let response = client.ask(7, &request, decoded!(ListOffsetsResponse));
    assert_eq!(response.topics.len(), 1, "a topic without partitions is not answered");
    assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::UNSUPPORTED_VERSION);
}

fn a_topic_asked_for_twice_is_created_on_first_use(client: &mut Client) {
    fresh(client);
    let asked = || MetadataRequestTopic { name: Some("new".into()), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![asked(), asked()]), allow_auto_topic_creation: true, ..Default::default() };
    let response = client.ask(9, &request, decoded!(MetadataResponse));
    assert_eq!(response.topics.iter().map(|topic| topic.error_code).collect::<Vec<_>>(), [ErrorCode::NONE]);
}

fn an_id_counts_for_more_than_the_name_beside_it(client: &mut Client) {
    let topic_id = fresh(client);
    let asked = |topic_id| MetadataRequestTopic { name: Some("t".into()), topic_id };
    for (topic_id, code) in [(topic_id, ErrorCode::NONE), (TopicId::from_bytes([9; 16]), ErrorCode::UNKNOWN_TOPIC_ID)] {
        let request = MetadataRequest { topics: Some(vec![asked(topic_id)]), ..Default::default() };
        let response = client.ask(12, &request, decoded!(MetadataResponse));
        assert_eq!((response.topics[0].error_code, response.topics[0].topic_id), (code, topic_id));
    }
    let beside = |name| (Some(name), topic_id);
    let answered = metadata(client, &[beside("a"), beside("b"), (None, topic_id)]);
    assert_eq!(answered, [(Some("t".into()), ErrorCode::NONE, 3576, false)], "once, whatever names stand beside it");
}

/// Metadata of version 12 with the operations of topics: name, code, operations, whether internal.
fn metadata(
    client: &mut Client,
    asked: &[(Option<&'static str>, TopicId)],
) -> Vec<(Option<String>, ErrorCode, i32, bool)> {
    let topic = |&(name, topic_id): &(Option<&'static str>, TopicId)| MetadataRequestTopic {
        name: name.map(Into::into),
        topic_id,
    };
    let request = MetadataRequest {
        topics: Some(asked.iter().map(topic).collect()),
        allow_auto_topic_creation: true,
        include_topic_authorized_operations: true,
        ..Default::default()
    };
    let response = client.ask(12, &request, decoded!(MetadataResponse));
    let answered = response.topics.iter();
    let facts = |topic: &MetadataTopic<'_>| {
        let name = topic.name.as_deref().map(str::to_owned);
        (name, topic.error_code, topic.topic_authorized_operations, topic.is_internal)
    };
    answered.map(facts).collect()
}

fn a_request_that_names_one_id_asks_by_ids_alone(client: &mut Client) {
    let topic_id = fresh(client);
    let answered = metadata(client, &[(None, topic_id), (Some("by-name"), TopicId::ZERO)]);
    assert_eq!(answered, [(Some("t".into()), ErrorCode::NONE, 3576, false)]);
    let request = MetadataRequest { topics: None, ..Default::default() };
    let response = client.ask(12, &request, decoded!(MetadataResponse));
    assert!(response.topics.iter().all(|topic| topic.name.as_deref() != Some("by-name")), "nor is it made");
}

fn internal_topics_but_that_of_offsets_are_not_made_on_first_use(client: &mut Client) {
    let asked = ["__transaction_state", "__share_group_state", "__consumer_offsets", "a b"];
    let answered = metadata(client, &asked.map(|name| (Some(name), TopicId::ZERO)));
    let (unknown, illegal) = (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::INVALID_TOPIC_EXCEPTION);
    let expected = [(unknown, true), (unknown, true), (ErrorCode::NONE, true), (illegal, false)];
    let expected =
        asked.into_iter().zip(expected).map(|(name, (code, internal))| (Some(name.to_owned()), code, 3576, internal));
    assert_eq!(answered, expected.collect::<Vec<_>>());
}

/// Gives `t` these settings and no others.
fn alter(client: &mut Client, topic: &'static str, configs: &[(&'static str, Option<&'static str>)]) -> ErrorCode {
    let given = |&(name, value): &(&'static str, Option<&'static str>)| AlterableConfig {
        name: name.into(),
        value: value.map(Into::into),
    };
    let configs = configs.iter().map(given).collect();
    let resource = AlterConfigsResource { resource_type: 2, resource_name: topic.into(), configs };
    let request = AlterConfigsRequest { resources: vec![resource], ..Default::default() };
    client.ask(2, &request, decoded!(AlterConfigsResponse)).responses[0].error_code
}

fn settings_are_shown_as_they_were_parsed(client: &mut Client) {
    fresh(client);
    let given = [("cleanup.policy", Some("delete , compact")), ("min.cleanable.dirty.ratio", Some(" 5e-1"))];
    assert_eq!(alter(client, "t", &given), ErrorCode::NONE);
    let keys = Some(given.iter().map(|(name, _)| (*name).into()).collect());
    let resource = DescribeConfigsResource { resource_type: 2, resource_name: "t".into(), configuration_keys: keys };
    let request = DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, ..Default::default() };
    let response = client.ask(4, &request, decoded!(DescribeConfigsResponse));
    let mut shown = response.results[0]
        .configs
        .iter()
        .map(|config| (config.value.as_deref(), config.synonyms[0].value.as_deref()))
        .collect::<Vec<_>>();
    shown.sort_unstable();
    assert_eq!(shown, [(Some("0.5"), Some("0.5")), (Some("delete,compact"), Some("delete,compact"))]);

    let config = CreatableTopicConfig { name: "cleanup.policy".into(), value: Some("delete , compact".into()) };
    let topic = CreatableTopic {
        name: "raw".into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![config],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], validate_only: true, ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    let told = &response.topics[0];
    let policy = told.configs.iter().flatten().find(|config| &*config.name == "cleanup.policy").unwrap();
    assert_eq!(policy.value.as_deref(), Some("delete , compact"), "its creator hears its own words");
    assert_ne!(told.topic_id, TopicId::ZERO, "of a topic that is only judged, too");
}

fn what_is_wrong_of_itself_is_told_before_an_unknown_topic(client: &mut Client) {
    let name = "retention.ms";
    for (configs, code) in [
        (&[(name, None)][..], ErrorCode::INVALID_REQUEST),
        (&[(name, Some("1")), (name, Some("2"))], ErrorCode::INVALID_REQUEST),
        (&[(name, Some("x"))], ErrorCode::INVALID_CONFIG),
        (&[(name, Some("1"))], ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    ] {
        assert_eq!(alter(client, "nobody", configs), code, "{configs:?}");
    }
}

fn a_count_that_adds_nothing_is_told_before_an_illegal_assignment(client: &mut Client) {
    fresh(client);
    for (count, code) in [(2, ErrorCode::INVALID_PARTITIONS), (3, ErrorCode::INVALID_REPLICA_ASSIGNMENT)] {
        let assignments = Some(vec![CreatePartitionsAssignment { broker_ids: vec![99] }]);
        let topics = vec![CreatePartitionsTopic { name: "t".into(), count, assignments }];
        let request = CreatePartitionsRequest { topics, ..Default::default() };
        let response = client.ask(3, &request, decoded!(CreatePartitionsResponse));
        assert_eq!(response.results[0].error_code, code);
    }
}

fn the_shape_of_a_batch_is_judged_before_acks_and_internal_topics(client: &mut Client) {
    fresh(client);
    client.ask(3, &FindCoordinatorRequest { key: "g".into(), ..Default::default() }, |_, _| ());
    let one = batch(now(), &["v"], None);
    let two = [&one[..], &one[..]].concat();
    for (acks, topic, refused) in
        [(7, "t", ErrorCode::INVALID_REQUIRED_ACKS), (1, "__consumer_offsets", ErrorCode::INVALID_TOPIC_EXCEPTION)]
    {
        for (records, code) in [(&one[..], refused), (&two[..], ErrorCode::INVALID_RECORD)] {
            let response = produce(client, acks, 10_000, &[(topic, 1)], records);
            assert_eq!(response.responses[0].partition_responses[0].error_code, code, "{topic}");
        }
    }
}

fn delete_records(client: &mut Client) -> (ErrorCode, i64) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: -1 }];
    let topics = vec![DeleteRecordsTopic { name: "t".into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 10_000 };
    let response = client.ask(2, &request, decoded!(DeleteRecordsResponse));
    let answer = &response.topics[0].partitions[0];
    (answer.error_code, answer.low_watermark)
}

fn records_of_a_topic_without_a_policy_can_be_deleted(client: &mut Client) {
    fresh(client);
    let records = batch(now(), &["a", "b", "c"], None);
    let response = produce(client, -1, 10_000, &[("t", 1)], &records);
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    for (policy, answer) in [("compact", (ErrorCode::POLICY_VIOLATION, -1)), ("", (ErrorCode::NONE, 3))] {
        assert_eq!(alter(client, "t", &[("cleanup.policy", Some(policy))]), ErrorCode::NONE);
        assert_eq!(delete_records(client), answer, "{policy:?}");
    }
}

fn commits_leave_out_what_has_no_partitions_and_fetches_answer_it(client: &mut Client) {
    fresh(client);
    let request = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    client.ask(3, &request, |_, _| ());
    let topic = |name: &'static str, partitions| OffsetCommitTopic { name: name.into(), partitions };
    let partition = OffsetCommitPartition { committed_offset: 5, ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        topics: vec![topic("t", vec![partition]), topic("u", Vec::new())],
        ..Default::default()
    };
    let ask = || client.ask(8, &request, decoded!(OffsetCommitResponse));
    let response = loaded(ask, |response| response.topics[0].partitions[0].error_code);
    assert_eq!(response.topics.iter().map(|topic| &*topic.name).collect::<Vec<_>>(), ["t"]);

    let topic = |name: &'static str, partition_indexes| OffsetFetchTopic { name: name.into(), partition_indexes };
    let topics = Some(vec![topic("t", vec![-1, 0]), topic("u", Vec::new())]);
    let request = OffsetFetchRequest { group_id: "g".into(), topics, ..Default::default() };
    let response = client.ask(7, &request, decoded!(OffsetFetchResponse));
    let answered = response.topics.iter().map(|topic| {
        let offsets = topic.partitions.iter().map(|one| (one.partition_index, one.committed_offset));
        (&*topic.name, offsets.collect::<Vec<_>>())
    });
    assert_eq!(answered.collect::<Vec<_>>(), [("t", vec![(-1, -1), (0, 5)]), ("u", vec![])]);

    let request = DeleteGroupsRequest { groups_names: vec!["g".into(), "g".into()] };
    let response = client.ask(2, &request, decoded!(DeleteGroupsResponse));
    let codes = response.results.iter().map(|group| group.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [ErrorCode::NONE], "a group is deleted once");
}

fn sync_group_must_name_the_protocol_from_version_five_on(client: &mut Client) {
    fresh(client);
    client.ask(3, &FindCoordinatorRequest { key: "g".into(), ..Default::default() }, |_, _| ());
    let request = SyncGroupRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        protocol_type: Some("consumer".into()),
        ..Default::default()
    };
    for (version, code) in [(4, ErrorCode::UNKNOWN_MEMBER_ID), (5, ErrorCode::INCONSISTENT_GROUP_PROTOCOL)] {
        assert_eq!(client.ask(version, &request, decoded!(SyncGroupResponse)).error_code, code);
    }
}

fn no_topic_is_deleted_that_is_named_twice_in_any_way(client: &mut Client) {
    let topic_id = fresh(client);
    let by_id = || DeleteTopic { name: None, topic_id };
    let by_name = || DeleteTopic { name: Some("t".into()), topic_id: TopicId::ZERO };
    let mut delete = |topics: Vec<DeleteTopic<'static>>| {
        let request = DeleteTopicsRequest { topics, ..Default::default() };
        let response = client.ask(6, &request, decoded!(DeleteTopicsResponse));
        let answered = response.responses.iter();
        answered.map(|one| (one.name.as_deref().map(str::to_owned), one.topic_id, one.error_code)).collect::<Vec<_>>()
    };
    let invalid = ErrorCode::INVALID_REQUEST;
    assert_eq!(delete(vec![by_id(), by_id(), by_id()]), [(None, topic_id, invalid)]);
    assert_eq!(delete(vec![by_name(), by_name()]), [(Some("t".into()), TopicId::ZERO, invalid)]);
    assert_eq!(delete(vec![by_id(), by_name()]), [(Some("t".into()), topic_id, invalid)]);
    assert_eq!(delete(vec![by_id()]), [(Some("t".into()), topic_id, ErrorCode::NONE)]);
}

fn an_empty_list_of_settings_asks_for_all(client: &mut Client) {
    fresh(client);
    let mut described = |keys: Option<Vec<&'static str>>| {
        let configuration_keys = keys.map(|keys| keys.into_iter().map(Into::into).collect());
        let resource = DescribeConfigsResource { resource_type: 2, resource_name: "t".into(), configuration_keys };
        let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        client.ask(4, &request, decoded!(DescribeConfigsResponse)).results[0].configs.len()
    };
    assert_eq!(described(Some(vec!["retention.ms"])), 1);
    assert_eq!(described(Some(Vec::new())), described(None));
}

fn settings_are_altered_only_where_the_request_says_one_thing(client: &mut Client) {
    fresh(client);
    let (invalid, illegal) = (ErrorCode::INVALID_REQUEST, ErrorCode::INVALID_TOPIC_EXCEPTION);
    let change = || ConfigChange { name: "retention.ms".into(), config_operation: 0, value: Some("1000".into()) };
    let resource = |name: &'static str| IncrementalAlterConfigsResource {
        resource_type: 2,
        resource_name: name.into(),
        configs: vec![change()],
    };
    let resources = ["t", "t", "", "a b"].map(resource).into();
    let request = IncrementalAlterConfigsRequest { resources, ..Default::default() };
    let response = client.ask(1, &request, decoded!(IncrementalAlterConfigsResponse));
    let codes = response.responses.iter().map(|one| (&*one.resource_name, one.error_code));
    assert_eq!(codes.collect::<Vec<_>>(), [("t", invalid), ("t", invalid), ("", invalid), ("a b", illegal)]);

    let given =
        |value: Option<&'static str>| AlterableConfig { name: "retention.ms".into(), value: value.map(Into::into) };
    for (configs, code) in [
        (vec![given(Some("1")), given(Some("2"))], invalid),
        (vec![given(None)], invalid),
        (vec![given(Some("1"))], ErrorCode::NONE),
    ] {
        let resource = AlterConfigsResource { resource_type: 2, resource_name: "t".into(), configs };
        let request = AlterConfigsRequest { resources: vec![resource], ..Default::default() };
        assert_eq!(client.ask(2, &request, decoded!(AlterConfigsResponse)).responses[0].error_code, code);
    }
}

fn partitions_are_described_from_a_cursor_among_the_topics_asked_for(client: &mut Client) {
    fresh(client);
    let mut describe = |limit, cursor: Option<(&'static str, i32)>| {
        let request = DescribeTopicPartitionsRequest {
            topics: ["t", "unknown"].map(|name| TopicRequest { name: name.into() }).into(),
            response_partition_limit: limit,
            cursor: cursor.map(|(name, partition_index)| Cursor { topic_name: name.into(), partition_index }),
        };
        let response = client.ask(0, &request, decoded!(DescribeTopicPartitionsResponse));
        let next = response.next_cursor.map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
        (response.topics.iter().map(|topic| (topic.error_code, topic.partitions.len())).collect::<Vec<_>>(), next)
    };
    let (none, unknown) = (ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(describe(3, None), (vec![(none, 2), (unknown, 0)], None));
    assert_eq!(describe(2, None), (vec![(none, 2)], Some(("unknown".into(), 0))));
    assert_eq!(describe(3, Some(("t", 1))), (vec![(none, 1), (unknown, 0)], None));
    for cursor in [("t", -1), ("elsewhere", 0)] {
        assert_eq!(describe(3, Some(cursor)), (vec![(ErrorCode::INVALID_REQUEST, 0); 2], None));
    }
}
