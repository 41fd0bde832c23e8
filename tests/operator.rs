//! What tools for operators ask of a broker that is alone: elections, moves of partitions, what has settings,
//! who produces.

mod server_support;

use ringlog::protocol::admin::*;
use ringlog::protocol::batch::ProducerStamp;
use ringlog::protocol::groups::*;
use ringlog::protocol::operator::*;
use ringlog::protocol::placement::*;
use ringlog::protocol::produce::*;
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use ringlog::types::{ProducerEpoch, ProducerId, Sequence};
use server_support::{Broker, Client, batch, now};
use smallvec::smallvec;

/// A broker of id 1 with the topic `words` of two partitions.
fn broker_with_words() -> (Broker, Client) {
    let broker = Broker::start(2, &[("node.id", "1")]);
    let mut client = broker.connect();
    let words = CreatableTopic { name: "words".into(), num_partitions: 2, replication_factor: 1, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![words], ..Default::default() };
    let response = client.ask(7, &request, decoded!(CreateTopicsResponse));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE);
    (broker, client)
}

#[test]
fn no_partition_needs_an_election() {
    let (_broker, mut client) = broker_with_words();
    let mut elect = |version, election_type, topic_partitions| {
        let request = ElectLeadersRequest { election_type, topic_partitions, ..Default::default() };
        client.ask(version, &request, decoded!(ElectLeadersResponse))
    };
    let asked = || Some(vec![ElectLeadersTopic { topic: "words".into(), partitions: vec![0, 7] }]);
    for version in 0..=2 {
        let answer = elect(version, 0, asked());
        assert_eq!(answer.error_code, ErrorCode::NONE);
        let codes: Vec<_> =
            answer.replica_election_results[0].partition_result.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [ErrorCode::ELECTION_NOT_NEEDED, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);
    }
    let all = elect(2, 1, None).replica_election_results;
    assert_eq!(all, [ElectLeadersTopicResult { topic: "words".into(), partition_result: Vec::new() }]);
    let unknown = elect(2, 9, asked());
    assert_eq!(unknown.error_code, ErrorCode::INVALID_REQUEST);
    assert_eq!(unknown.replica_election_results[0].partition_result[0].error_code, ErrorCode::INVALID_REQUEST);
}

#[test]
fn a_partition_can_be_moved_only_to_where_it_is() {
    let (_broker, mut client) = broker_with_words();
    let partition = |partition_index, replicas| ReassignablePartition { partition_index, replicas };
    let partitions = vec![
        partition(0, Some(vec![1])),
        partition(1, Some(vec![1, 12345])),
        partition(1, Some(vec![1, 1])),
        partition(1, Some(Vec::new())),
        partition(1, None),
        partition(2, Some(vec![1])),
    ];
    let topics = vec![ReassignableTopic { name: "words".into(), partitions }];
    let request = AlterPartitionReassignmentsRequest { topics, ..Default::default() };
    let answer = client.ask(1, &request, decoded!(AlterPartitionReassignmentsResponse));
    assert_eq!((answer.error_code, answer.allow_replication_factor_change), (ErrorCode::NONE, true));
    let codes: Vec<_> = answer.responses[0].partitions.iter().map(|one| one.error_code).collect();
    let illegal = ErrorCode::INVALID_REPLICA_ASSIGNMENT;
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(codes, [ErrorCode::NONE, illegal, illegal, illegal, ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, unknown]);
    let listed =
        client.ask(0, &ListPartitionReassignmentsRequest::default(), decoded!(ListPartitionReassignmentsResponse));
    assert_eq!((listed.error_code, listed.topics), (ErrorCode::NONE, Vec::new()));
}

#[test]
fn what_has_settings_is_listed() {
    let (_broker, mut client) = broker_with_words();
    let mut listed = |version, resource_types| {
        let request = ListConfigResourcesRequest { resource_types };
        let answer = client.ask(version, &request, decoded!(ListConfigResourcesResponse));
        let resources = answer.config_resources.into_iter();
        (answer.error_code, resources.map(|one| (one.resource_type, one.resource_name.to_string())).collect::<Vec<_>>())
    };
    let (topic, broker, logger) = ((2, "words".to_owned()), (4, "1".to_owned()), (8, "1".to_owned()));
    assert_eq!(listed(1, Vec::new()), (ErrorCode::NONE, vec![logger, broker, topic.clone()]));
    assert_eq!(listed(1, vec![2, 32]), (ErrorCode::NONE, vec![topic]));
    assert_eq!(listed(1, vec![3]), (ErrorCode::UNSUPPORTED_VERSION, Vec::new()));
    // Its first version knows client metrics alone.
    assert_eq!(listed(0, Vec::new()), (ErrorCode::NONE, Vec::new()));
}

#[test]
fn a_transaction_finds_no_coordinator_and_is_not_told_to_try_again() {
    let broker = Broker::start(1, &[]);
    let request = FindCoordinatorRequest { key_type: 1, coordinator_keys: vec!["txn".into()], ..Default::default() };
    let answer = broker.connect().ask(4, &request, decoded!(FindCoordinatorResponse));
    assert_eq!(answer.coordinators[0].error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
}

#[test]
fn a_partition_tells_of_its_producers() {
    let (_broker, mut client) = broker_with_words();
    let stamp = ProducerStamp {
        id: ProducerId::new(7).unwrap(),
        epoch: ProducerEpoch::new(3).unwrap(),
        base_sequence: Sequence::new(0),
    };
    let time = now();
    let bytes = batch(time, &["a", "b"], Some(stamp));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: smallvec![ProduceTopic {
            name: "words".into(),
            partition_data: smallvec![ProducePartition { index: 1, records: Some(Records::of_length(bytes.len())) }],
        }],
        ..Default::default()
    };
    let sent = client.send_records(11, &request, &[&bytes]);
    client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse));
    let topics = vec![
        DescribeProducersTopic { name: "words".into(), partition_indexes: vec![0, 1, 2] },
        DescribeProducersTopic { name: "two words".into(), partition_indexes: vec![0] },
    ];
    let answer = client.ask(0, &DescribeProducersRequest { topics }, decoded!(DescribeProducersResponse));
    assert_eq!(answer.topics[1].partitions[0].error_code, ErrorCode::INVALID_TOPIC_EXCEPTION);
    let partitions = &answer.topics[0].partitions;
    let codes: Vec<_> = partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);
    assert_eq!(partitions[0].active_producers, []);
    let expected = ProducerState {
        producer_id: 7,
        producer_epoch: 3,
        last_sequence: 1,
        last_timestamp: time,
        coordinator_epoch: -1,
        current_txn_start_offset: -1,
    };
    assert_eq!(partitions[1].active_producers, [expected]);
}
