//! The accumulator by itself: batches, room, waking, partitions, flushes.

use super::*;
use crate::types::{PartitionIndex, TopicId};

const TOPIC: &str = "t";

fn leaders(count: usize) -> Vec<Option<BrokerId>> {
    vec![BrokerId::new(1); count]
}

fn accumulator(partitioning: Partitioning, partitions: usize) -> Accumulator<u64> {
    let mut queues = Accumulator::new(AccumulatorSettings {
        form: BatchForm { batch_bytes: 200, codec: Codec::None, level: None },
        linger: Duration::from_millis(5),
        memory_bytes: 4000,
        record_bytes_max: 2000,
        partitioning,
        seed: 7,
    });
    let id = Some(TopicId::from_bytes([1; 16]));
    queues.set_topic(TOPIC, TopicView::Known { id, leaders: &leaders(partitions) });
    queues
}

fn put(queues: &mut Accumulator<u64>, record: RecordRef<'_>, now: Instant) -> Result<Appended, SendError> {
    let appended = queues.append(&record, 0, || 0, || now);
    queues.check(0, 0);
    appended
}

fn to(partition: i32, value: &[u8]) -> RecordRef<'_> {
    RecordRef::new(TOPIC, value).partition(PartitionIndex::new(partition).unwrap())
}

#[test]
fn the_sender_is_woken_for_the_first_linger_and_for_full_batches_only() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 2), Instant::now());
    let woken = |queues: &mut Accumulator<u64>, partition, at| put(queues, to(partition, &[0; 50]), at).unwrap().wake;
    assert!(woken(&mut queues, 0, now), "a linger begins");
    assert!(!woken(&mut queues, 0, now), "the sender is awake");
    queues.sleep(Some(now + Duration::from_millis(5)), SmallVec::new(), SmallVec::new());
    assert!(!woken(&mut queues, 1, now + Duration::from_millis(1)), "its linger ends after the sender's sleep");
    assert!(woken(&mut queues, 0, now), "the second batch of partition 0 makes the first one full");
    queues.sleep(None, SmallVec::from_slice(&[BrokerId::new(1).unwrap()]), SmallVec::new());
    for _ in 0..9 {
        assert!(!woken(&mut queues, 1, now), "the broker is busy: its answer wakes the sender");
    }
}

#[test]
fn the_sender_hears_of_a_batch_without_a_leader_before_its_sleep_ends() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    let id = Some(TopicId::from_bytes([1; 16]));
    queues.set_topic(TOPIC, TopicView::Known { id, leaders: &[None] });
    // Something in flight keeps it until then.
    queues.sleep(Some(now + Duration::from_secs(120)), SmallVec::new(), SmallVec::new());
    assert!(put(&mut queues, to(0, &[0; 300]), now).unwrap().wake, "a leader is to be asked for");
}

#[test]
fn due_is_what_is_full_pressed_or_over_its_linger() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    let place = Place { topic: 0, partition: 0 };
    assert_eq!(queues.due(place), Due::Never);
    put(&mut queues, to(0, b"x"), now).unwrap();
    assert_eq!(queues.due(place), Due::At(now + Duration::from_millis(5)));
    let flush = queues.begin_flush();
    assert_eq!((queues.due(place), queues.is_flushed(flush)), (Due::Pressed, false));
    let first = queues.pop(place).unwrap();
    queues.append(&to(0, b"y"), 0, || 0, || now).unwrap();
    assert_eq!(queues.due(place), Due::At(now + Duration::from_millis(5)), "it was begun after the flush");
    queues.end(first);
    assert!(queues.is_flushed(flush) && !queues.is_empty());
    put(&mut queues, to(0, &[0; 190]), now).unwrap();
    assert_eq!(queues.due(place), Due::Full);
}

#[test]
fn memory_is_charged_until_a_batch_ends_and_want_of_it_presses() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    let place = Place { topic: 0, partition: 0 };
    let mut taken = 0;
    while put(&mut queues, to(0, &[0; 300]), now).is_ok() {
        taken += 1;
    }
    assert!((9..13).contains(&taken), "{taken}");
    assert_eq!(put(&mut queues, to(0, &[0; 300]), now), Err(SendError::WouldBlock));
    queues.sleep(None, SmallVec::new(), SmallVec::new());
    assert!(queues.must_wake_for_room() && !queues.must_wake_for_room());
    let batch = queues.pop(place).unwrap();
    let bytes = batch.raw_bytes();
    let before = queues.used_bytes();
    queues.end(batch);
    assert_eq!(queues.used_bytes(), before - bytes);
    assert!(queues.has_room(300));
    put(&mut queues, to(0, &[0; 300]), now).unwrap();
    let too_large = put(&mut queues, to(0, &[0; 2000]), now);
    assert!(matches!(too_large, Err(SendError::RecordTooLarge { setting: "max.request.size", .. })), "{too_large:?}");
}

#[test]
fn the_largest_record_is_javas_whether_there_is_room_or_not() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    // Of 2000: the header of a batch, overhead of a record, no key, the length of the value, no headers.
    let largest = 2000 - 61 - 21 - 1 - 2 - 1;
    let too_large = SendError::RecordTooLarge { bytes: 2001, bytes_max: 2000, setting: "max.request.size" };
    put(&mut queues, to(0, &vec![0; largest]), now).unwrap();
    assert_eq!(put(&mut queues, to(0, &vec![0; largest + 1]), now), Err(too_large.clone()));
    while put(&mut queues, to(0, &[0; 300]), now).is_ok() {}
    assert_eq!(put(&mut queues, to(0, &vec![0; largest]), now), Err(SendError::WouldBlock));
    assert_eq!(put(&mut queues, to(0, &vec![0; largest + 1]), now), Err(too_large));
}

#[test]
fn a_share_of_batch_size_goes_to_one_partition_before_the_next() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 4), Instant::now());
    let mut runs: Vec<(u32, usize)> = Vec::new();
    for number in 0..600 {
        let place = put(&mut queues, RecordRef::new(TOPIC, &[0; 20]), now).unwrap().place;
        match runs.last_mut() {
            Some((partition, count)) if *partition == place.partition => *count += 1,
            _ => runs.push((place.partition, 1)),
        }
        if number % 20 == 19 {
            for place in queues.active().to_vec() {
                while let Some(batch) = queues.pop(place) {
                    queues.end(batch);
                }
            }
            while !queues.active().is_empty() {
                queues.deactivate(0);
            }
        }
    }
    assert!(runs.len() > 20, "{runs:?}");
    let seen: std::collections::BTreeSet<u32> = runs.iter().map(|(partition, _)| *partition).collect();
    assert_eq!(seen.len(), 4);
}

#[test]
fn keys_go_where_javas_go_and_turns_go_round() {
    let now = Instant::now();
    let mut queues = accumulator(Partitioning::default(), 7);
    let place = put(&mut queues, RecordRef::new(TOPIC, b"").key(b"foobar"), now).unwrap().place;
    assert_eq!(place.partition, partitioner::partition_for_key(b"foobar", 7));
    let mut queues = accumulator(Partitioning::RoundRobin, 3);
    let turns: Vec<u32> =
        (0..5).map(|_| put(&mut queues, RecordRef::new(TOPIC, b"x").key(b"k"), now).unwrap().place.partition).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1]);
}

#[test]
fn each_new_batch_goes_to_another_partition_when_sticky_by_batches() {
    let (mut queues, now) = (accumulator(Partitioning::UniformSticky, 5), Instant::now());
    let mut before = None;
    for _ in 0..30 {
        let place = put(&mut queues, RecordRef::new(TOPIC, &[0; 60]), now).unwrap().place;
        let begun = queues.queue(place).batches.back().map(Batch::records) == Some(1);
        assert_eq!(begun, before != Some(place.partition));
        before = Some(place.partition);
    }
}

#[test]
fn a_partition_the_programs_partitioner_invents_is_refused() {
    struct Wrong;
    impl super::super::partitioner::Partitioner for Wrong {
        fn partition(&self, _: &RecordRef<'_>, partitions: Partitions<'_>) -> PartitionIndex {
            PartitionIndex::new(partitions.count as i32).unwrap()
        }
    }
    let mut queues = accumulator(Partitioning::Custom(std::sync::Arc::new(Wrong)), 2);
    let refused = put(&mut queues, RecordRef::new(TOPIC, b"x"), Instant::now());
    assert!(matches!(refused, Err(SendError::NoPartition { count: 2, .. })), "{refused:?}");
}

#[test]
fn topics_are_told_apart_when_unknown_gone_or_forbidden() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    let unknown = put(&mut queues, RecordRef::new("other", b"x"), now);
    assert_eq!(unknown, Err(SendError::NoMetadata { topic: "other".into() }));
    queues.set_topic(TOPIC, TopicView::Broken(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    assert!(matches!(put(&mut queues, to(0, b"x"), now), Err(SendError::NoMetadata { .. })));
    queues.set_topic(TOPIC, TopicView::Broken(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    assert!(matches!(put(&mut queues, to(0, b"x"), now), Err(SendError::Topic { .. })));
    let id = Some(TopicId::from_bytes([2; 16]));
    assert_eq!(queues.set_topic(TOPIC, TopicView::Known { id, leaders: &leaders(1) }), Some(0));
    assert_eq!(queues.set_topic(TOPIC, TopicView::Known { id, leaders: &leaders(2) }), None);
    put(&mut queues, to(1, b"x"), now).unwrap();
    queues.close();
    assert_eq!(put(&mut queues, to(1, b"x"), now), Err(SendError::Closed));
}

#[test]
fn buffers_come_back_to_the_next_batches() {
    let (mut queues, now) = (accumulator(Partitioning::default(), 1), Instant::now());
    let place = Place { topic: 0, partition: 0 };
    put(&mut queues, to(0, b"x"), now).unwrap();
    let mut batch = queues.pop(place).unwrap();
    let at = {
        let (bytes, _) = batch.seal();
        bytes.as_ptr()
    };
    let waiters = batch.take_waiters();
    queues.end(batch);
    queues.recycle_waiters(waiters);
    assert_eq!((queues.spare_buffers.len(), queues.spare_waiters.len()), (1, 1));
    put(&mut queues, to(0, b"y"), now).unwrap();
    assert!(queues.spare_buffers.is_empty() && queues.spare_waiters.is_empty());
    assert_eq!(queues.pop(place).unwrap().seal().0.as_ptr(), at);
}
