//! The admin client against a real broker: every call, what it changes, and what it refuses.
//!
//! With `RINGLOG_TEST_BOOTSTRAP=host:port` the same tests run against that broker: so they are proved on Apache Kafka first.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server_support;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Instant;

use ringlog::client::admin::*;
use ringlog::client::{Admin, AdminSettings, BlockingAdmin, ClientError, Settings as _};
use ringlog::protocol::batch::ProducerStamp;
use ringlog::protocol::groups::{JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse};
use ringlog::protocol::groups::{SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse};
use ringlog::protocol::produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic};
use ringlog::protocol::{ApiKey, ErrorCode, Records};
use ringlog::types::{ProducerEpoch, ProducerId, Sequence};
use server_support::{Broker, Client, PATIENCE, batch, now};
use smallvec::smallvec;

struct Cluster {
    address: SocketAddr,
    admin: BlockingAdmin,
    foreign: bool,
    _broker: Option<Broker>,
}

impl Cluster {
    fn start() -> Self {
        let given = std::env::var("RINGLOG_TEST_BOOTSTRAP").ok();
        let broker = given.is_none().then(|| Broker::start(2, &[("node.id", "1")]));
        let address = match (&broker, &given) {
            (Some(broker), _) => broker.address,
            (None, given) => given.as_deref().unwrap().to_socket_addrs().unwrap().next().unwrap(),
        };
        let settings = AdminSettings::builder().set("bootstrap.servers", address).set("client.id", "admin-test");
        let admin = Admin::new(settings.build().unwrap()).unwrap().blocking();
        Self { address, admin, foreign: given.is_some(), _broker: broker }
    }

    /// A name nobody has used.
    fn name(&self, what: &str) -> String {
        format!("{what}-{:08x}", fastrand::u32(..))
    }

    /// A new topic of so many partitions.
    fn topic(&self, partitions: i32) -> String {
        let name = self.name("words");
        let created = self.admin.create_topics(vec![NewTopic::new(&name).partitions(partitions)], false).unwrap();
        assert_eq!(created[0].error, None);
        // Kafka answers before the leaders have heard of it.
        let ends = || (0..partitions).map(|partition| (name.clone(), partition, OffsetSpec::Latest)).collect();
        let begun = Instant::now();
        while self.admin.list_offsets(ends(), false).unwrap().iter().any(|one| one.error.is_some()) {
            assert!(begun.elapsed() < PATIENCE, "the topic does not come into being");
        }
        name
    }

    /// Appends one batch, stamped `time`.
    fn put(&self, topic: &str, partition: i32, time: i64, values: &[&str], producer: Option<ProducerStamp>) {
        let bytes = batch(time, values, producer);
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 10_000,
            topic_data: smallvec![ProduceTopic {
                name: topic.into(),
                partition_data: smallvec![ProducePartition {
                    index: partition,
                    records: Some(Records::of_length(bytes.len())),
                }],
            }],
            ..Default::default()
        };
        let mut client = Client::connect(self.address);
        let sent = client.send_records(11, &request, &[&bytes]);
        let answer = client.read_answer(ApiKey::Produce, 11, sent, decoded!(ProduceResponse));
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::NONE);
    }

    /// A group whose only member has the partition 0 of the topic. The member lives as long as its connection.
    fn group_with_member(&self, topic: &str) -> (String, Client) {
        let group = self.name("readers");
        // The coordinator is looked up, and so the topic of offsets made, before a member can join.
        assert_eq!(self.admin.list_group_offsets(group.clone(), None).unwrap(), []);
        let mut client = Client::connect(self.address);
        let mut join = JoinGroupRequest {
            group_id: group.as_str().into(),
            session_timeout_ms: 30_000,
            rebalance_timeout_ms: 30_000,
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupProtocol {
                name: "range".into(),
                metadata: b"\0\0\0\0\0\0\xff\xff\xff\xff"[..].into(),
            }],
            ..Default::default()
        };
        let first = client.ask(9, &join, decoded!(JoinGroupResponse));
        assert_eq!(first.error_code, ErrorCode::MEMBER_ID_REQUIRED);
        join.member_id = first.member_id.clone();
        let joined = client.ask(9, &join, decoded!(JoinGroupResponse));
        assert_eq!(joined.error_code, ErrorCode::NONE);
        let name = u16::try_from(topic.len()).unwrap().to_be_bytes();
        let assignment =
            [b"\0\x01\0\0\0\x01", &name[..], topic.as_bytes(), b"\0\0\0\x01\0\0\0\0\xff\xff\xff\xff"].concat();
        let sync = SyncGroupRequest {
            group_id: group.as_str().into(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: vec![SyncGroupAssignment {
                member_id: joined.member_id.clone(),
                assignment: assignment.into(),
            }],
            ..Default::default()
        };
        assert_eq!(client.ask(5, &sync, decoded!(SyncGroupResponse)).error_code, ErrorCode::NONE);
        (group, client)
    }
}

/// Asks until the answer is as expected: Kafka's brokers learn of a change after it was answered.
fn soon<T: PartialEq + std::fmt::Debug>(expected: &T, ask: impl Fn() -> T) {
    let begun = Instant::now();
    loop {
        let answer = ask();
        if answer == *expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}, not {expected:?}");
    }
}

fn code(error: &Option<ItemError>) -> Option<&'static str> {
    error.as_ref().map(|error| error.name)
}

#[test]
fn the_cluster_says_who_it_is() {
    let cluster = Cluster::start();
    cluster.admin.reach().unwrap();
    let described = cluster.admin.describe_cluster().unwrap();
    assert!(!described.cluster_id.is_empty());
    assert_eq!(described.controller, Some(1));
    assert_eq!(described.brokers.len(), 1);
    assert_eq!((described.brokers[0].id, described.brokers[0].fenced), (1, false));
    assert_eq!(described.brokers[0].port, i32::from(cluster.address.port()));

    let apis = cluster.admin.api_versions(Vec::new()).unwrap();
    let fetch = apis[0].apis.iter().find(|api| api.key == 1).unwrap();
    assert_eq!((fetch.name, fetch.usable.is_some()), (Some("Fetch"), true));
    let unknown = cluster.admin.api_versions(vec![77]).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no broker 77 in the cluster: its brokers are 1");
}

#[test]
fn without_an_authorizer_there_are_no_access_rules() {
    let error = Cluster::start().admin.describe_acls().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::SECURITY_DISABLED), "{error}");
}

#[test]
fn topics_are_created_listed_described_and_deleted() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let (words, checked) = (cluster.name("words"), cluster.name("checked"));
    let only = admin.create_topics(vec![NewTopic::new(&checked).partitions(2)], true).unwrap();
    assert_eq!(code(&only[0].error), None);
    let created = admin
        .create_topics(
            vec![
                NewTopic::new(&words).partitions(3).replication_factor(1).config("retention.ms", "60000"),
                NewTopic::new("no good name"),
                NewTopic::new(cluster.name("many")).replication_factor(9),
                NewTopic::new(cluster.name("odd")).config("retention.ms", "soon"),
            ],
            false,
        )
        .unwrap();
    let find = |name: &str| created.iter().find(|topic| topic.name.starts_with(name)).unwrap();
    assert_eq!((find("words").partitions, find("words").replication_factor), (Some(3), Some(1)));
    assert!(find("words").configs.iter().any(|config| {
        config.name == "retention.ms"
            && config.value.as_deref() == Some("60000")
            && config.source == ConfigSource::DynamicTopic
    }));
    assert_eq!(code(&find("no good").error), Some("INVALID_TOPIC_EXCEPTION"));
    assert_eq!(code(&find("many").error), Some("INVALID_REPLICATION_FACTOR"));
    assert_eq!(code(&find("odd").error), Some("INVALID_CONFIG"));
    let again = admin.create_topics(vec![NewTopic::new(&words)], false).unwrap();
    assert_eq!(code(&again[0].error), Some("TOPIC_ALREADY_EXISTS"));

    let listed = || admin.list_topics(false).unwrap();
    soon(&true, || listed().iter().any(|topic| topic.name == words));
    let listed = listed();
    let listing = listed.iter().find(|topic| topic.name == words).unwrap();
    assert_eq!((listing.partitions, listing.replication_factor, listing.internal), (3, 1, false));
    assert_eq!(listing.id, find("words").id);
    assert!(listed.iter().all(|topic| topic.name != checked), "what was only checked is not there");

    let described = admin.describe_topics(vec!["nobody".into(), words.clone()]).unwrap();
    assert_eq!(code(&described[0].error), Some("UNKNOWN_TOPIC_OR_PARTITION"));
    let numbers = || {
        let described = admin.describe_topics(vec![words.clone()]).unwrap().remove(0).partitions.into_iter();
        described.map(|one| (one.partition, one.leader, one.in_sync)).collect::<Vec<_>>()
    };
    soon(&vec![(0, Some(1), vec![1]), (1, Some(1), vec![1]), (2, Some(1), vec![1])], numbers);

    let grow = |total| vec![NewPartitions { topic: words.clone(), total, assignments: None }];
    assert_eq!(code(&admin.create_partitions(grow(2), false).unwrap()[0].error), Some("INVALID_PARTITIONS"));
    assert_eq!(code(&admin.create_partitions(grow(5), true).unwrap()[0].error), None);
    assert_eq!(admin.describe_topics(vec![words.clone()]).unwrap()[0].partitions.len(), 3);
    assert_eq!(code(&admin.create_partitions(grow(5), false).unwrap()[0].error), None);
    soon(&5, || admin.describe_topics(vec![words.clone()]).unwrap()[0].partitions.len());

    let deleted = admin.delete_topics(vec![words.clone(), "nobody".into()]).unwrap();
    let find = |name: &str| code(&deleted.iter().find(|topic| topic.name == name).unwrap().error);
    assert_eq!((find(&words), find("nobody")), (None, Some("UNKNOWN_TOPIC_OR_PARTITION")));
    soon(&true, || admin.list_topics(true).unwrap().iter().all(|topic| topic.name != words));
}

#[test]
fn settings_are_described_with_their_source_and_changed_one_by_one() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = ConfigResource::topic(cluster.topic(1));
    let change = |changes| admin.alter_configs(vec![(topic.clone(), changes)], false).unwrap().remove(0);
    let value = |name: &str| {
        let mut described = admin.describe_configs(vec![topic.clone()], Some(vec![name.to_owned()])).unwrap();
        let entry = described.remove(0).configs.remove(0);
        (entry.value.unwrap_or_default(), entry.source)
    };
    assert_eq!(value("retention.ms"), ("604800000".into(), ConfigSource::Default));
    assert_eq!(
        change(vec![ConfigChange::set("retention.ms", "1000"), ConfigChange::set("cleanup.policy", "compact")]).error,
        None
    );
    soon(&("1000".into(), ConfigSource::DynamicTopic), || value("retention.ms"));
    let append = ConfigChange {
        name: "cleanup.policy".into(),
        operation: ConfigOperation::Append,
        value: Some("delete".into()),
    };
    assert_eq!(change(vec![append]).error, None);
    soon(&"compact,delete".to_owned(), || value("cleanup.policy").0);
    assert_eq!(change(vec![ConfigChange::delete("retention.ms")]).error, None);
    soon(&ConfigSource::Default, || value("retention.ms").1);
    assert_eq!(code(&change(vec![ConfigChange::set("retention.ms", "soon")]).error), Some("INVALID_CONFIG"));
    assert_eq!(code(&change(vec![ConfigChange::set("retentoin.ms", "1")]).error), Some("INVALID_CONFIG"));

    let all = admin
        .describe_configs(vec![ConfigResource::broker(1), topic.clone(), ConfigResource::topic("nobody")], None)
        .unwrap();
    assert_eq!((all[0].resource.name.as_str(), code(&all[0].error)), ("1", None));
    let node = all[0].configs.iter().find(|config| config.name == "node.id").unwrap();
    assert_eq!((node.value.as_deref(), node.source, node.kind), (Some("1"), ConfigSource::StaticBroker, Some("int")));
    let policy = all[1].configs.iter().find(|config| config.name == "cleanup.policy").unwrap();
    assert!(policy.documentation.is_some());
    let synonyms: Vec<_> = policy.synonyms.iter().map(|one| (one.name.as_str(), one.source)).collect();
    assert_eq!(
        synonyms,
        [("cleanup.policy", ConfigSource::DynamicTopic), ("log.cleanup.policy", ConfigSource::Default)]
    );
    assert_eq!(code(&all[2].error), Some("UNKNOWN_TOPIC_OR_PARTITION"));
    let nobody = admin.describe_configs(vec![ConfigResource::broker(77)], None).unwrap_err();
    assert_eq!(nobody.to_string(), "there is no broker 77 in the cluster");

    let resources = admin.list_config_resources(vec![ResourceType::Topic]).unwrap();
    assert!(resources.contains(&topic));
    assert!(resources.iter().all(|resource| resource.kind == ResourceType::Topic));
}

#[test]
fn offsets_are_found_by_time_and_records_deleted_from_the_front() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = cluster.topic(2);
    let time = now() - 10_000;
    cluster.put(&topic, 0, time, &["a", "b", "c"], None);
    cluster.put(&topic, 0, time + 5_000, &["d", "e"], None);
    let offset = |spec| {
        let listed = admin.list_offsets(vec![(topic.clone(), 0, spec)], false).unwrap().remove(0);
        assert_eq!(listed.error, None);
        listed.offset
    };
    assert_eq!(offset(OffsetSpec::Earliest), Some(0));
    assert_eq!(offset(OffsetSpec::Latest), Some(5));
    assert_eq!(offset(OffsetSpec::Timestamp(time + 1)), Some(3));
    assert_eq!(offset(OffsetSpec::Timestamp(time + 60_000)), None);
    assert!(matches!(offset(OffsetSpec::MaxTimestamp), Some(3 | 4)));

    let asked = vec![
        (topic.clone(), 7, OffsetSpec::Latest),
        (topic.clone(), 1, OffsetSpec::Latest),
        ("nobody".into(), 0, OffsetSpec::Latest),
    ];
    let listed = admin.list_offsets(asked, true).unwrap();
    assert_eq!(code(&listed[0].error), Some("UNKNOWN_TOPIC_OR_PARTITION"));
    assert_eq!((code(&listed[1].error), listed[1].offset), (None, Some(0)));
    assert_eq!(code(&listed[2].error), Some("UNKNOWN_TOPIC_OR_PARTITION"));

    let delete = |before| admin.delete_records(vec![(topic.clone(), 0, before)]).unwrap().remove(0);
    assert_eq!(delete(RecordsBefore::Offset(2)).low_watermark, Some(2));
    assert_eq!(offset(OffsetSpec::Earliest), Some(2));
    assert_eq!(code(&delete(RecordsBefore::Offset(99)).error), Some("OFFSET_OUT_OF_RANGE"));
    assert_eq!(delete(RecordsBefore::HighWatermark).low_watermark, Some(5));
    assert_eq!(offset(OffsetSpec::Earliest), Some(5));

    // Partitions added after the leaders were asked for are found all the same.
    admin.create_partitions(vec![NewPartitions { topic: topic.clone(), total: 3, assignments: None }], false).unwrap();
    soon(&Some(0), || admin.list_offsets(vec![(topic.clone(), 2, OffsetSpec::Latest)], false).unwrap()[0].offset);
}

#[test]
fn disks_and_producers_are_described() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = cluster.topic(1);
    let stamp = ProducerStamp {
        id: ProducerId::new(7).unwrap(),
        epoch: ProducerEpoch::new(3).unwrap(),
        base_sequence: Sequence::new(0),
    };
    cluster.put(&topic, 0, now(), &["a", "b"], Some(stamp));
    let dirs = admin.describe_log_dirs(Vec::new(), Some(vec![topic.clone()])).unwrap();
    assert_eq!((dirs.len(), dirs[0].broker, &dirs[0].error), (1, 1, &None));
    let partitions: Vec<_> = dirs[0].log_dirs.iter().flat_map(|dir| &dir.partitions).collect();
    assert_eq!((partitions.len(), partitions[0].topic.as_str(), partitions[0].is_future), (1, topic.as_str(), false));
    assert!(partitions[0].size > 0);
    assert!(dirs[0].log_dirs[0].total_bytes.is_some_and(|bytes| bytes > 0));

    let producers = admin.describe_producers(vec![(topic.clone(), 0), (topic.clone(), 5)]).unwrap();
    let one = &producers[0].producers[0];
    assert_eq!((one.producer_id, one.producer_epoch, one.last_sequence), (7, 3, Some(1)));
    assert_eq!(one.transaction_start_offset, None);
    assert_eq!(code(&producers[1].error), Some("UNKNOWN_TOPIC_OR_PARTITION"));
}

#[test]
fn a_cluster_of_one_elects_and_moves_nothing() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = cluster.topic(1);
    let elected = admin.elect_leaders(Election::Preferred, Some(vec![(topic.clone(), 0), (topic.clone(), 9)])).unwrap();
    let codes: Vec<_> = elected.iter().map(|one| (one.partition, code(&one.error))).collect();
    assert!(codes.contains(&(0, Some("ELECTION_NOT_NEEDED"))), "{codes:?}");
    assert!(codes.contains(&(9, Some("UNKNOWN_TOPIC_OR_PARTITION"))), "{codes:?}");
    let plan = |replicas| vec![ReassignmentPlan { topic: topic.clone(), partition: 0, replicas }];
    assert_eq!(code(&admin.alter_reassignments(plan(Some(vec![1]))).unwrap()[0].error), None);
    assert_eq!(
        code(&admin.alter_reassignments(plan(Some(vec![4]))).unwrap()[0].error),
        Some("INVALID_REPLICA_ASSIGNMENT")
    );
    assert_eq!(code(&admin.alter_reassignments(plan(None)).unwrap()[0].error), Some("NO_REASSIGNMENT_IN_PROGRESS"));
    assert_eq!(admin.list_reassignments(None).unwrap(), []);
    assert_eq!(admin.list_reassignments(Some(vec![(topic, 0)])).unwrap(), []);
}

#[test]
fn offsets_of_an_empty_group_are_set_read_and_forgotten() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = cluster.topic(2);
    let group = cluster.name("readers");
    let set = |partition, offset| NewCommittedOffset {
        topic: topic.clone(),
        partition,
        offset,
        metadata: "mine".into(),
        ..NewCommittedOffset::default()
    };
    let outcomes = admin.alter_group_offsets(group.clone(), vec![set(0, 5), set(1, 6)]).unwrap();
    assert!(outcomes.iter().all(|one| one.error.is_none()), "{outcomes:?}");
    let offsets = |partitions| {
        let listed = admin.list_group_offsets(group.clone(), partitions).unwrap();
        listed.into_iter().map(|one| (one.partition, one.offset, one.metadata)).collect::<Vec<_>>()
    };
    let mine = || "mine".to_owned();
    assert_eq!(offsets(None), [(0, Some(5), mine()), (1, Some(6), mine())]);
    assert_eq!(offsets(Some(vec![(topic.clone(), 1)])), [(1, Some(6), mine())]);
    let listed = admin.list_groups(Vec::new(), Vec::new()).unwrap();
    let listing = listed.iter().find(|one| one.group == group).unwrap();
    assert_eq!((listing.state.as_str(), listing.coordinator), ("Empty", 1));
    assert!(admin.list_groups(vec!["Stable".into()], Vec::new()).unwrap().iter().all(|one| one.group != group));

    let forgotten = admin.delete_group_offsets(group.clone(), vec![(topic.clone(), 0)]).unwrap();
    assert_eq!(code(&forgotten[0].error), None);
    assert_eq!(offsets(None), [(1, Some(6), mine())]);
    let deleted = admin.delete_groups(vec![group.clone(), "nobody".into()]).unwrap();
    assert_eq!((code(&deleted[0].error), code(&deleted[1].error)), (None, Some("GROUP_ID_NOT_FOUND")));
    assert_eq!(offsets(None), []);
}

#[test]
fn a_group_is_described_with_what_its_members_have() {
    let cluster = Cluster::start();
    let admin = &cluster.admin;
    let topic = cluster.topic(1);
    let (group, member) = cluster.group_with_member(&topic);
    assert_eq!(admin.find_coordinator(group.clone()).unwrap(), 1);
    let described = admin.describe_groups(vec![group.clone(), "nobody".into()]).unwrap();
    let one = &described[0];
    assert_eq!((one.state.as_str(), one.assignor.as_str(), one.coordinator), ("Stable", "range", Some(1)));
    assert_eq!(one.members.len(), 1);
    assert_eq!(one.members[0].assignment, [(topic.clone(), 0)]);
    assert_eq!(one.members[0].client_id, "smoke");
    assert!(described[1].members.is_empty());
    // Kafka says that there is no such group from version 6 on; before that, that it is dead.
    assert!(
        described[1].state == "Dead" || code(&described[1].error) == Some("GROUP_ID_NOT_FOUND"),
        "{:?}",
        described[1]
    );

    assert_eq!(code(&admin.delete_groups(vec![group.clone()]).unwrap()[0].error), Some("NON_EMPTY_GROUP"));
    let busy = admin
        .alter_group_offsets(group.clone(), vec![NewCommittedOffset { topic: topic.clone(), ..Default::default() }])
        .unwrap();
    assert_eq!(code(&busy[0].error), Some("UNKNOWN_MEMBER_ID"));
    let id = one.members[0].member_id.clone();
    let removed = admin.remove_members(group.clone(), vec![(id, false), ("nobody".into(), false)]).unwrap();
    assert_eq!((code(&removed[0].error), code(&removed[1].error)), (None, Some("UNKNOWN_MEMBER_ID")));
    assert_eq!(admin.describe_groups(vec![group.clone()]).unwrap()[0].state, "Empty");
    drop(member);
}

#[test]
fn calls_can_be_awaited_and_shared_between_threads() {
    let cluster = Cluster::start();
    let topic = cluster.topic(1);
    let settings = AdminSettings::builder().set("metadata.broker.list", cluster.address).build().unwrap();
    let admin = Admin::new(settings).unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (admin, topic) = (admin.clone(), topic.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async { admin.describe_topics(vec![topic]).await.unwrap()[0].partitions.len() })
            })
        })
        .collect();
    assert!(tasks.into_iter().all(|task| task.join().unwrap() == 1));
}

#[test]
fn a_broker_that_stops_is_told_of_within_the_time_allowed() {
    let mut cluster = Cluster::start();
    if cluster.foreign {
        return println!("not run: that broker is not ours to stop");
    }
    cluster.admin.describe_cluster().unwrap();
    drop(cluster._broker.take());
    let error = cluster.admin.within(std::time::Duration::from_millis(300)).describe_cluster().unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    let told = error.to_string();
    assert!(told.starts_with("describing the cluster took longer than 300ms"), "{told}");
    assert!(told.contains("connection refused"), "{told}");
}
