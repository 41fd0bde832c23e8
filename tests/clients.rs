//! Shell. What librdkafka, the client under half of the world's languages, finds when it talks to the broker.
//!
//! Each test starts the built binary on a directory of its own. With `RINGLOG_TEST_BOOTSTRAP=host:port` they all talk to that
//! broker instead; every one of them passes against Apache Kafka 4.4, so what fails here is the broker, not the test.

#![allow(clippy::unwrap_used)] // a test ends by panicking

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_lite::future::block_on;
use rdkafka::admin::{AdminOptions, ConfigSource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::{Offset, Timestamp, TopicPartitionList};
use ringlog::history::{Event, History, Value};

use harness::clients::{self, ReadRecord, Sender, TIME_MAX};
use harness::{Target, wait_for};

/// Now, in the clock of record timestamps: tests stamp near now, because retention deletes what is old.
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn values(records: &[ReadRecord]) -> Vec<Vec<u8>> {
    records.iter().map(|record| record.value.clone().unwrap()).collect()
}

#[test]
fn each_codec_comes_back_as_it_was_sent() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = clients::create_topic(&bootstrap, codec, 1, &[]);
        // 300 KB in batches of up to 100 KB: several blocks of 32 and of 64 KiB, where codecs have those.
        let payloads: Vec<_> = (0..300u32).map(|n| [&n.to_be_bytes()[..], &[n as u8; 996]].concat()).collect();
        let sender =
            Sender::new(&bootstrap, &[("compression.codec", codec), ("linger.ms", "100"), ("batch.size", "100000")]);
        let offsets = sender.send_all(&topic, 0, &payloads);
        assert_eq!(offsets, (0..300).collect::<Vec<_>>(), "{codec}");
        let records = clients::read(&clients::reader(&bootstrap, &topic, 1, &[("check.crcs", "true")]), 300);
        assert_eq!(values(&records), payloads, "{codec}");
        assert!(records.iter().map(|record| record.offset).eq(0..300), "{codec}");
    }
}

#[test]
fn keys_nulls_headers_and_timestamps_come_back_as_they_were_sent() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "records", 1, &[]);
    let sender = Sender::new(&bootstrap, &[]);
    let now = now_ms();
    let headers = OwnedHeaders::new()
        .insert(Header { key: "name", value: Some(&b"value"[..]) })
        .insert(Header { key: "empty", value: Some(&b""[..]) })
        .insert(Header { key: "name", value: None::<&[u8]> });

    let record = |tag| clients::record(&topic, tag).partition(0);
    sender.send(record(0).key(b"key").payload(b"value").timestamp(now).headers(headers));
    sender.send(record(1).timestamp(now - 5000)); // null and null
    sender.send(record(2).key(b"").payload(b"").timestamp(now + 1));
    sender.send(record(3).key(b"tombstone").timestamp(now + 2));
    assert_eq!(sender.offsets(4), [0, 1, 2, 3]);

    let expected = |offset, timestamp, key: Option<&[u8]>, value: Option<&[u8]>, headers| ReadRecord {
        partition: 0,
        offset,
        timestamp: Timestamp::CreateTime(timestamp),
        key: key.map(<[u8]>::to_vec),
        value: value.map(<[u8]>::to_vec),
        headers,
    };
    let headers = vec![("name".into(), Some(b"value".to_vec())), ("empty".into(), Some(vec![])), ("name".into(), None)];
    assert_eq!(
        clients::read(&clients::reader(&bootstrap, &topic, 1, &[]), 4),
        [
            expected(0, now, Some(b"key"), Some(b"value"), headers),
            expected(1, now - 5000, None, None, vec![]),
            expected(2, now + 1, Some(b""), Some(b""), vec![]),
            expected(3, now + 2, Some(b"tombstone"), None, vec![]),
        ]
    );
}

#[test]
fn log_append_time_topics_stamp_by_the_brokers_clock() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "stamped", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let sender = Sender::new(&bootstrap, &[]);
    let before = now_ms();
    sender.send(clients::record(&topic, 0).partition(0).payload(b"v").timestamp(before - 3_000_000));
    sender.offsets(1);
    let record = clients::next_record(&clients::reader(&bootstrap, &topic, 1, &[("check.crcs", "true")]));
    match record.timestamp {
        Timestamp::LogAppendTime(at) => {
            assert!((before..=now_ms()).contains(&at), "{at} is not between {before} and now")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn topics_that_ask_for_a_codec_get_it_and_lose_nothing() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let payloads: Vec<_> = (0..200u32).map(|n| [n as u8; 500]).collect();
    for (wanted, sent) in
        [("zstd", "none"), ("uncompressed", "gzip"), ("gzip", "lz4"), ("lz4", "snappy"), ("snappy", "zstd")]
    {
        let topic = clients::create_topic(&bootstrap, wanted, 1, &[("compression.type", wanted)]);
        let sender = Sender::new(
            &bootstrap,
            &[("compression.codec", sent), ("linger.ms", "50"), ("enable.idempotence", "true")],
        );
        assert_eq!(sender.send_all(&topic, 0, &payloads), (0..200).collect::<Vec<_>>());
        let records = clients::read(&clients::reader(&bootstrap, &topic, 1, &[("check.crcs", "true")]), 200);
        assert_eq!(values(&records), payloads, "{sent} to {wanted}");
    }
}

#[test]
fn an_idempotent_producer_with_many_requests_in_flight_keeps_its_order() {
    const RECORDS: u64 = 20_000;
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "idempotent", 3, &[]);
    // Small batches and no linger: as many requests as the client will send.
    let settings = [("enable.idempotence", "true"), ("linger.ms", "0"), ("batch.num.messages", "50")];
    let sender = Sender::new(&bootstrap, &settings);
    let mut history = History::new();
    for number in 0..RECORDS {
        let (partition, value) = ((number % 3) as u32, Value::new(0, number));
        history.on_event(Event::SendInvoked { partition, value });
        let payload = value.to_bytes();
        sender.send(clients::record(&topic, number as usize).partition(partition as i32).payload(&payload));
    }
    for _ in 0..RECORDS {
        let delivery = sender.next_delivery();
        let (partition, value) = (delivery.partition as u32, Value::new(0, delivery.tag as u64));
        let offset = ringlog::types::Offset::new(delivery.result.unwrap());
        history.on_event(Event::SendAcked { partition, value, offset });
    }
    for record in clients::read(&clients::reader(&bootstrap, &topic, 3, &[]), RECORDS as usize) {
        history.on_event(Event::Polled {
            consumer: 0,
            partition: record.partition as u32,
            offset: ringlog::types::Offset::new(record.offset).unwrap(),
            value: Value::from_bytes(&record.value.unwrap()),
        });
    }
    let report = history.finish();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn acks_0_and_1_arrive_too() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    for acks in ["0", "1"] {
        let topic = clients::create_topic(&bootstrap, "acks", 1, &[]);
        let sender = Sender::new(&bootstrap, &[("acks", acks)]);
        sender.send_all(&topic, 0, (0..100u8).map(|n| [n]));
        let records = clients::read(&clients::reader(&bootstrap, &topic, 1, &[]), 100);
        assert!(values(&records).iter().map(|value| value[0]).eq(0..100), "acks={acks}");
    }
}

#[test]
fn offsets_for_times_and_watermarks_tell_what_was_written() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "times", 2, &[]);
    let consumer = clients::reader(&bootstrap, &topic, 0, &[]);
    assert_eq!(consumer.fetch_watermarks(&topic, 0, TIME_MAX).unwrap(), (0, 0));

    // One batch a record, a second apart, one of them out of order.
    let sender = Sender::new(&bootstrap, &[("linger.ms", "0")]);
    let start = now_ms() - 60_000;
    for (tag, seconds) in [0, 1, 2, 5, 3, 6].into_iter().enumerate() {
        let record = clients::record(&topic, tag).partition(0).payload(b"v");
        sender.send(record.timestamp(start + seconds * 1000));
        sender.next_delivery().result.unwrap();
    }
    assert_eq!(consumer.fetch_watermarks(&topic, 0, TIME_MAX).unwrap(), (0, 6));
    assert_eq!(consumer.fetch_watermarks(&topic, 1, TIME_MAX).unwrap(), (0, 0));

    let offset_at = |partition, timestamp| {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(&topic, partition, Offset::Offset(timestamp)).unwrap();
        let answer = consumer.offsets_for_times(asked, TIME_MAX).unwrap();
        let element = answer.find_partition(&topic, partition).unwrap();
        element.error().unwrap();
        element.offset()
    };
    assert_eq!(offset_at(0, start - 1), Offset::Offset(0));
    assert_eq!(offset_at(0, start), Offset::Offset(0));
    assert_eq!(offset_at(0, start + 1), Offset::Offset(1));
    assert_eq!(offset_at(0, start + 2500), Offset::Offset(3), "the first record that is not older");
    assert_eq!(offset_at(0, start + 6000), Offset::Offset(5));
    assert_eq!(offset_at(0, start + 6001), Offset::End);
    assert_eq!(offset_at(1, start), Offset::End);
}

#[test]
fn topics_are_created_described_and_deleted() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let admin = clients::admin(&bootstrap);
    let options = AdminOptions::new();
    let name = clients::unique("admin");
    let topic = NewTopic::new(&name, 3, TopicReplication::Fixed(1)).set("retention.ms", "123456789");

    let create = |topic: &NewTopic<'_>, options: &AdminOptions| {
        block_on(admin.create_topics([topic], options)).unwrap().remove(0)
    };
    create(&topic, &AdminOptions::new().validate_only(true)).unwrap();
    let partitions = || {
        let metadata = admin.inner().fetch_metadata(None, TIME_MAX).unwrap();
        metadata.topics().iter().find(|topic| topic.name() == name).map(|topic| topic.partitions().len())
    };
    assert_eq!(partitions(), None, "validated, not created");
    create(&topic, &options).unwrap();
    assert_eq!(wait_for(TIME_MAX, partitions), Some(3));

    assert_eq!(create(&topic, &options).unwrap_err().1, RDKafkaErrorCode::TopicAlreadyExists);
    let refused = |topic: NewTopic<'_>| create(&topic, &options).unwrap_err().1;
    let other = clients::unique("refused");
    assert_eq!(refused(NewTopic::new("no/slash", 1, TopicReplication::Fixed(1))), RDKafkaErrorCode::InvalidTopic);
    assert_eq!(
        refused(NewTopic::new(&other, 1, TopicReplication::Fixed(9))),
        RDKafkaErrorCode::InvalidReplicationFactor
    );
    let unknown_key = NewTopic::new(&other, 1, TopicReplication::Fixed(1)).set("no.such.key", "1");
    assert_eq!(refused(unknown_key), RDKafkaErrorCode::InvalidConfig);
    let bad_value = NewTopic::new(&other, 1, TopicReplication::Fixed(1)).set("retention.ms", "soon");
    assert_eq!(refused(bad_value), RDKafkaErrorCode::InvalidConfig);

    let described =
        block_on(admin.describe_configs([&ResourceSpecifier::Topic(&name)], &options)).unwrap().remove(0).unwrap();
    let entry = |key: &str| described.get(key).unwrap_or_else(|| panic!("{key} is not described"));
    assert_eq!(entry("retention.ms").value.as_deref(), Some("123456789"));
    assert_eq!(entry("retention.ms").source, ConfigSource::DynamicTopic);
    assert_eq!(entry("cleanup.policy").value.as_deref(), Some("delete"));
    assert!(entry("cleanup.policy").is_default);
    assert_eq!(entry("max.message.bytes").value.as_deref(), Some("1048588"));

    assert_eq!(block_on(admin.delete_topics(&[&name], &options)).unwrap(), [Ok(name.clone())]);
    let gone = wait_for(TIME_MAX, || partitions().is_none().then_some(()));
    assert!(gone.is_some(), "the topic is still listed");
    let again = block_on(admin.delete_topics(&[&name], &options)).unwrap().remove(0);
    assert_eq!(again.unwrap_err().1, RDKafkaErrorCode::UnknownTopicOrPartition);
}

#[test]
fn a_topic_made_again_under_its_name_is_empty() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let admin = clients::admin(&bootstrap);
    let options = AdminOptions::new();
    let topic = clients::create_topic(&bootstrap, "again", 1, &[]);
    Sender::new(&bootstrap, &[]).send_all(&topic, 0, [b"old"; 10]);
    block_on(admin.delete_topics(&[&topic], &options)).unwrap().remove(0).unwrap();
    // Kafka may still be deleting.
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
    let made = wait_for(TIME_MAX, || block_on(admin.create_topics([&new], &options)).unwrap().remove(0).ok());
    assert_eq!(made, Some(topic.clone()));
    assert_eq!(Sender::new(&bootstrap, &[]).send_all(&topic, 0, [b"new"]), [0]);
    let record = clients::next_record(&clients::reader(&bootstrap, &topic, 1, &[]));
    assert_eq!((record.offset, record.value), (0, Some(b"new".to_vec())));
}

#[test]
fn a_record_larger_than_the_topic_takes_is_refused_and_the_next_one_is_not() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "large", 1, &[("max.message.bytes", "100000")]);
    let sender = Sender::new(&bootstrap, &[("message.max.bytes", "10000000")]);
    sender.send(clients::record(&topic, 0).partition(0).payload(&vec![1; 200_000]));
    assert_eq!(sender.next_delivery().result, Err(RDKafkaErrorCode::MessageSizeTooLarge));
    assert_eq!(sender.send_all(&topic, 0, [vec![2; 99_000]]), [0]);
    let reader = clients::reader(&bootstrap, &topic, 1, &[("fetch.message.max.bytes", "1000")]);
    assert_eq!(
        clients::next_record(&reader).value,
        Some(vec![2; 99_000]),
        "the first batch comes whole whatever the limit"
    );
}

#[test]
fn unknown_topics_are_made_by_a_producer_and_not_by_a_consumer() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::unique("auto");
    let consumer: BaseConsumer =
        clients::config(&bootstrap, &[("group.id", &topic), ("auto.offset.reset", "earliest")]).create().unwrap();
    consumer.subscribe(&[&topic]).unwrap();
    let unknown = wait_for(TIME_MAX, || consumer.poll(Duration::from_millis(100))).unwrap().unwrap_err();
    assert_eq!(unknown.rdkafka_error_code(), Some(RDKafkaErrorCode::UnknownTopicOrPartition));
    let sender = Sender::new(&bootstrap, &[]);
    sender.send(clients::record(&topic, 0).payload(b"v"));
    assert_eq!(sender.offsets(1), [0]);
}

// Groups.

fn member(bootstrap: &str, group: &str, topic: &str, settings: &[(&str, &str)]) -> BaseConsumer {
    let mut config = clients::config(bootstrap, settings);
    config
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("topic.metadata.refresh.interval.ms", "1000")
        .set("session.timeout.ms", "10000")
        .set("heartbeat.interval.ms", "500");
    let consumer: BaseConsumer = config.create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    consumer
}

/// Polls every member until their assignments are `sizes` and share no partition. Records that come by are given to `seen`.
fn settle(members: &[&BaseConsumer], sizes: &[usize], mut seen: impl FnMut(ReadRecord)) {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        for member in members {
            if let Some(Ok(message)) = member.poll(Duration::from_millis(20)) {
                seen(ReadRecord::of(&message));
            }
        }
        let assignments: Vec<Vec<i32>> = members
            .iter()
            .map(|member| member.assignment().unwrap().elements().iter().map(|element| element.partition()).collect())
            .collect();
        let distinct: BTreeSet<_> = assignments.iter().flatten().collect();
        let counts: Vec<_> = assignments.iter().map(Vec::len).collect();
        if counts == sizes && distinct.len() == sizes.iter().sum::<usize>() {
            return;
        }
        assert!(Instant::now() < deadline, "assignments stay at {assignments:?}");
    }
}

fn grow_and_shrink(strategy: &str) {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "group", 6, &[]);
    let group = clients::unique("group");
    let settings = [("partition.assignment.strategy", strategy)];
    let sender = Sender::new(&bootstrap, &[]);
    let produce = |round: u8| {
        (0..6).for_each(|partition| {
            sender.send_all(&topic, partition, (0..20).map(|n| [round, partition as u8, n]));
        });
    };
    // Every record, by partition and offset; read again only after a rebalance that came between poll and commit.
    let mut seen: BTreeMap<(i32, i64), Vec<u8>> = BTreeMap::new();
    let mut see = |record: ReadRecord| {
        let value = record.value.unwrap();
        let earlier = seen.insert((record.partition, record.offset), value.clone());
        assert!(earlier.is_none_or(|earlier| earlier == value));
    };

    produce(0);
    let first = member(&bootstrap, &group, &topic, &settings);
    settle(&[&first], &[6], &mut see);
    let second = member(&bootstrap, &group, &topic, &settings);
    settle(&[&first, &second], &[3, 3], &mut see);
    produce(1);
    let third = member(&bootstrap, &group, &topic, &settings);
    settle(&[&first, &second, &third], &[2, 2, 2], &mut see);
    drop(first); // leaves
    produce(2);
    settle(&[&second, &third], &[3, 3], &mut see);
    drop(third);
    settle(&[&second], &[6], &mut see);

    let deadline = Instant::now() + TIME_MAX;
    while seen.len() < 360 {
        assert!(Instant::now() < deadline, "only {} of 360 records were read", seen.len());
        settle(&[&second], &[6], |record| {
            seen.insert((record.partition, record.offset), record.value.unwrap());
        });
    }
    for partition in 0..6 {
        for (offset, (round, n)) in (0..3).flat_map(|round| (0..20).map(move |n| (round, n))).enumerate() {
            assert_eq!(seen[&(partition, offset as i64)], [round, partition as u8, n]);
        }
    }
}

#[test]
fn groups_grow_and_shrink_under_eager_rebalancing() {
    grow_and_shrink("range");
}

#[test]
fn groups_grow_and_shrink_under_cooperative_rebalancing() {
    grow_and_shrink("cooperative-sticky");
}

#[test]
fn a_consumer_that_comes_back_goes_on_where_it_committed() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "commits", 1, &[]);
    let group = clients::unique("group");
    Sender::new(&bootstrap, &[]).send_all(&topic, 0, (0..100u8).map(|n| [n]));

    let first = member(&bootstrap, &group, &topic, &[]);
    assert_eq!(clients::read(&first, 40).last().unwrap().offset, 39);
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 0, Offset::Offset(40)).unwrap();
    offsets.find_partition(&topic, 0).unwrap().set_metadata("said by the first");
    first.commit(&offsets, CommitMode::Sync).unwrap();
    clients::read(&first, 10); // read, not committed
    drop(first);

    let second = member(&bootstrap, &group, &topic, &[]);
    let record = clients::next_record(&second);
    assert_eq!((record.offset, record.value), (40, Some(vec![40])));
    let committed = second.committed(TIME_MAX).unwrap();
    let committed = committed.find_partition(&topic, 0).unwrap();
    assert_eq!((committed.offset(), committed.metadata()), (Offset::Offset(40), "said by the first"));

    // A group that has never committed knows of no offset.
    let stranger: BaseConsumer =
        clients::config(&bootstrap, &[("group.id", &clients::unique("group"))]).create().unwrap();
    let mut asked = TopicPartitionList::new();
    asked.add_partition(&topic, 0);
    let committed = stranger.committed_offsets(asked, TIME_MAX).unwrap();
    assert_eq!(committed.find_partition(&topic, 0).unwrap().offset(), Offset::Invalid);
}

#[test]
fn a_static_member_that_comes_back_keeps_its_partitions() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "static", 4, &[]);
    let group = clients::unique("group");
    let first = member(&bootstrap, &group, &topic, &[("group.instance.id", "one")]);
    let second = member(&bootstrap, &group, &topic, &[("group.instance.id", "two")]);
    settle(&[&first, &second], &[2, 2], |_| {});
    let partitions = |member: &BaseConsumer| {
        member.assignment().unwrap().elements().iter().map(|element| element.partition()).collect::<BTreeSet<_>>()
    };
    let (of_first, of_second) = (partitions(&first), partitions(&second));
    drop(second); // a static member does not leave
    let second = member(&bootstrap, &group, &topic, &[("group.instance.id", "two")]);
    settle(&[&first, &second], &[2, 2], |_| {});
    assert_eq!((partitions(&first), partitions(&second)), (of_first, of_second));
}

#[test]
fn groups_are_listed_with_their_members() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "listed", 2, &[]);
    let group = clients::unique("group");
    let consumer = member(&bootstrap, &group, &topic, &[("client.id", "the-one")]);
    settle(&[&consumer], &[2], |_| {});
    let listed = consumer.fetch_group_list(Some(&group), TIME_MAX).unwrap();
    let [group] = listed.groups() else { panic!("{} groups", listed.groups().len()) };
    assert_eq!((group.state(), group.protocol_type(), group.protocol()), ("Stable", "consumer", "range"));
    let [member] = group.members() else { panic!("{} members", group.members().len()) };
    assert_eq!(member.client_id(), "the-one");
    assert!(member.assignment().is_some_and(|bytes| !bytes.is_empty()));
}

#[test]
fn deleted_groups_forget_their_offsets() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "forget", 1, &[]);
    let group = clients::unique("group");
    Sender::new(&bootstrap, &[]).send_all(&topic, 0, [b"v"; 5]);
    let consumer = member(&bootstrap, &group, &topic, &[]);
    clients::read(&consumer, 5);
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    drop(consumer);
    let admin = clients::admin(&bootstrap);
    let deleted =
        wait_for(TIME_MAX, || block_on(admin.delete_groups(&[&group], &AdminOptions::new())).unwrap().remove(0).ok());
    assert_eq!(deleted.as_deref(), Some(&*group));
    let again = member(&bootstrap, &group, &topic, &[]);
    assert_eq!(clients::next_record(&again).offset, 0);
}

#[test]
fn two_hundred_records_fetched_one_by_one_come_in_order() {
    let target = Target::start(&[]);
    let bootstrap = target.bootstrap();
    let topic = clients::create_topic(&bootstrap, "small", 1, &[]);
    let sender = Sender::new(&bootstrap, &[("linger.ms", "0")]);
    let reader = clients::reader(&bootstrap, &topic, 1, &[("fetch.wait.max.ms", "5000")]);
    for number in 0..200u8 {
        // Each is read before the next is sent: a long poll ends when its record comes, not when its time is up.
        assert_eq!(sender.send_all(&topic, 0, [[number]]), [i64::from(number)]);
        assert_eq!(clients::next_record(&reader).value, Some(vec![number]));
    }
}
