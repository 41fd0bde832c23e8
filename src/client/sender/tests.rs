//! The sender by itself: what shares a request, what waits, what an answer leads to.

use super::*;
use crate::client::accumulator::{AccumulatorSettings, TopicView};
use crate::client::outgoing::BatchForm;
use crate::client::partitioner::Partitioning;
use crate::client::record::RecordRef;
use crate::protocol::batch::{Codec, ProducerStamp};
use crate::types::{PartitionIndex, Sequence};

const TOPIC: &str = "t";
const MS: Duration = Duration::from_millis(1);

struct Rig {
    queues: Accumulator<u64>,
    sender: Sender<u64>,
    now: Instant,
}

impl Rig {
    /// One broker leads partitions 0 and 1, another one partition 2.
    fn new(idempotent: bool, in_flight_max: usize) -> Self {
        let mut queues = Accumulator::new(AccumulatorSettings {
            form: BatchForm { batch_bytes: 200, codec: Codec::None, level: None },
            linger: 5 * MS,
            memory_bytes: 1 << 20,
            record_bytes_max: 1 << 20,
            partitioning: Partitioning::default(),
            seed: 1,
        });
        let leaders = [1, 1, 2].map(BrokerId::new);
        queues.set_topic(TOPIC, TopicView::Known { id: None, leaders: &leaders });
        let mut sender = Sender::new(SenderSettings {
            in_flight_max,
            request_bytes_max: 1000,
            delivery_timeout: 1000 * MS,
            retries: 10,
            retry_backoff: 10 * MS,
            retry_backoff_max: 100 * MS,
            idempotent,
            availability_timeout: Duration::ZERO,
            seed: 1,
        });
        if idempotent {
            sender.on_identity(ProducerId::new(7).unwrap(), ProducerEpoch::ZERO);
        }
        Self { queues, sender, now: Instant::now() }
    }

    fn put(&mut self, partition: i32, bytes: usize) {
        let value = vec![0; bytes];
        let record = RecordRef::new(TOPIC, &value).partition(PartitionIndex::new(partition).unwrap());
        let now = self.now;
        self.queues.append(&record, 0, || 0, || now).unwrap();
    }

    fn poll(&mut self) -> Turn<u64> {
        let turn = self.sender.poll(&mut self.queues, self.now);
        for id in &turn.requests {
            self.sender.request_mut(*id).batches.iter_mut().for_each(|batch| _ = batch.seal());
        }
        self.sender.check(&self.queues);
        turn
    }

    fn answer(&mut self, id: RequestId, codes: &[ErrorCode]) -> Aftermath<u64> {
        self.answer_with(id, codes, Duration::ZERO)
    }

    fn answer_throttled(&mut self, id: RequestId, throttle: Duration) {
        self.answer_with(id, &[ErrorCode::NONE], throttle);
    }

    fn answer_with(&mut self, id: RequestId, codes: &[ErrorCode], throttle: Duration) -> Aftermath<u64> {
        let written = Written { base_offset: None, append_time: None };
        let part = |code: &ErrorCode| Some(PartAnswer { code: *code, message: None, written });
        let outcome = Outcome::Answered { throttle, parts: codes.iter().map(part).collect() };
        let after = self.sender.on_outcome(id, outcome, &mut self.queues, self.now);
        self.sender.check(&self.queues);
        after
    }

    fn partitions(&mut self, id: RequestId) -> Vec<u32> {
        self.sender.request_mut(id).batches.iter().map(|batch| batch.place.partition).collect()
    }

    fn stamp(&mut self, id: RequestId) -> (i16, i32) {
        let ProducerStamp { epoch, base_sequence, .. } = self.sender.request_mut(id).batches[0].stamp.unwrap();
        (epoch.value(), base_sequence.unwrap().value())
    }
}

#[test]
fn what_lingers_goes_with_what_is_due_and_not_with_what_is_full() {
    let mut rig = Rig::new(false, 5);
    rig.put(0, 10);
    let first_due = rig.now + 5 * MS;
    rig.now += 2 * MS;
    rig.put(1, 10);
    rig.put(2, 10);
    let turn = rig.poll();
    assert!(turn.requests.is_empty());
    assert_eq!(turn.wake_at, Some(first_due));
    rig.now = first_due;
    let turn = rig.poll();
    assert_eq!(turn.requests.len(), 1);
    assert_eq!(rig.partitions(turn.requests[0]), [0, 1], "partition 1 keeps step, partition 2 has another broker");
    rig.put(0, 300);
    rig.put(1, 10);
    let turn = rig.poll();
    assert_eq!(rig.partitions(turn.requests[0]), [0]);
    let counts = rig.sender.counts();
    assert_eq!((counts.lingered, counts.early, counts.full), (1, 1, 1));
}

#[test]
fn requests_stay_below_their_size_and_the_next_one_begins_with_what_was_left_out() {
    let mut rig = Rig::new(false, 1);
    rig.put(0, 700);
    rig.put(1, 700);
    let first = rig.poll().requests[0];
    assert_eq!(rig.partitions(first), [0]);
    rig.put(0, 700);
    assert!(rig.poll().requests.is_empty(), "one in flight is all that is allowed");
    rig.answer(first, &[ErrorCode::NONE]);
    let second = rig.poll().requests[0];
    assert_eq!(rig.partitions(second), [1]);
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_after_a_growing_pause_and_asks_for_leaders() {
    let mut rig = Rig::new(false, 5);
    rig.put(0, 300);
    let mut id = rig.poll().requests[0];
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let after = rig.answer(id, &[ErrorCode::NOT_LEADER_OR_FOLLOWER]);
        assert!(after.done.is_empty());
        assert_eq!(&after.stale[..], [0]);
        let turn = rig.poll();
        let wake_at = turn.wake_at.unwrap();
        pauses.push(wake_at.duration_since(rig.now).as_millis());
        rig.now = wake_at;
        id = rig.poll().requests[0];
    }
    for (pause, least) in pauses.iter().zip([8, 16, 32, 64, 80]) {
        assert!((least..=least * 3 / 2).contains(pause), "{pauses:?}");
    }
    assert_eq!(rig.sender.counts().retries, 5);
}

#[test]
fn a_new_leader_is_tried_without_a_pause() {
    let mut rig = Rig::new(false, 5);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::NOT_LEADER_OR_FOLLOWER]);
    assert!(rig.poll().requests.is_empty());
    let leaders = [2, 1, 2].map(BrokerId::new);
    rig.queues.set_topic(TOPIC, TopicView::Known { id: None, leaders: &leaders });
    assert_eq!(rig.poll().requests.len(), 1);
}

#[test]
fn what_is_over_its_time_fails_queued_or_in_flight_and_is_told_once() {
    let mut rig = Rig::new(false, 1);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.put(1, 300);
    rig.now += 1000 * MS;
    let turn = rig.poll();
    assert_eq!(turn.done.len(), 2);
    for done in &turn.done {
        let Err(ProduceError::TimedOut { attempts, maybe_written, .. }) = &done.result else { panic!("not timed out") };
        assert_eq!((*attempts, *maybe_written), (1 - done.partition, done.partition == 0));
    }
    assert!(rig.answer(id, &[ErrorCode::NONE]).done.is_empty());
    assert!(rig.queues.is_empty());
}

#[test]
fn a_broker_that_cannot_be_reached_uses_up_no_retries() {
    let mut rig = Rig::new(false, 5);
    rig.sender.settings.retries = 0;
    rig.put(0, 300);
    let lost = |maybe_written| Outcome::Lost { maybe_written, retriable: true, why: "gone".into() };
    for _ in 0..3 {
        let id = rig.poll().requests[0];
        let after = rig.sender.on_outcome(id, lost(false), &mut rig.queues, rig.now);
        assert!(after.done.is_empty());
        rig.now += 20 * MS;
    }
    let id = rig.poll().requests[0];
    let after = rig.sender.on_outcome(id, lost(true), &mut rig.queues, rig.now);
    assert!(matches!(after.done[0].result, Err(ProduceError::TimedOut { attempts: 1, maybe_written: true, .. })));
}

#[test]
fn a_throttled_broker_is_left_alone() {
    let mut rig = Rig::new(false, 5);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer_throttled(id, 50 * MS);
    let end = rig.now + 50 * MS;
    assert_eq!(rig.poll().wake_at, Some(end), "records that come now wake nobody");
    rig.put(0, 300);
    let turn = rig.poll();
    assert_eq!((turn.requests.len(), turn.wake_at), (0, Some(end)));
    rig.now = end;
    assert_eq!(rig.poll().requests.len(), 1);
}

#[test]
fn a_shorter_throttle_does_not_end_a_longer_one() {
    let mut rig = Rig::new(false, 5);
    rig.put(0, 300);
    let first = rig.poll().requests[0];
    rig.put(0, 300);
    let second = rig.poll().requests[0];
    rig.answer_throttled(first, 50 * MS);
    rig.answer_throttled(second, 20 * MS);
    assert_eq!(rig.poll().wake_at, Some(rig.now + 50 * MS));
}

#[test]
fn the_first_batch_of_an_epoch_travels_alone_and_five_follow_at_most() {
    let mut rig = Rig::new(true, 5);
    (0..8).for_each(|_| rig.put(0, 300));
    let turn = rig.poll();
    assert_eq!(turn.requests.len(), 1);
    assert_eq!(rig.stamp(turn.requests[0]), (0, 0));
    rig.answer(turn.requests[0], &[ErrorCode::NONE]);
    let turn = rig.poll();
    assert_eq!(
        turn.requests.iter().map(|id| rig.stamp(*id)).collect::<Vec<_>>(),
        (1..6).map(|at| (0, at)).collect::<Vec<_>>()
    );
}

/// Three batches in flight after a first one that was acknowledged.
fn three_in_flight() -> (Rig, Vec<RequestId>) {
    let mut rig = Rig::new(true, 5);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::NONE]);
    (0..3).for_each(|_| rig.put(0, 300));
    let ids = rig.poll().requests.to_vec();
    assert_eq!(ids.len(), 3);
    (rig, ids)
}

#[test]
fn those_behind_a_refused_batch_wait_for_it_under_their_sequences() {
    let (mut rig, ids) = three_in_flight();
    rig.answer(ids[0], &[ErrorCode::NOT_ENOUGH_REPLICAS]);
    rig.answer(ids[1], &[ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER]);
    rig.answer(ids[2], &[ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER]);
    rig.now += 20 * MS;
    let again = rig.poll().requests.to_vec();
    assert_eq!(again.iter().map(|id| rig.stamp(*id)).collect::<Vec<_>>(), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(rig.sender.counts().restarts, 0);
}

#[test]
fn a_gap_begins_a_new_epoch_once_nothing_is_in_flight() {
    let (mut rig, ids) = three_in_flight();
    let after = rig.answer(ids[0], &[ErrorCode::INVALID_RECORD]);
    assert!(matches!(after.done[0].result, Err(ProduceError::Refused { maybe_written: false, .. })));
    rig.answer(ids[1], &[ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER]);
    rig.now += 20 * MS;
    assert!(rig.poll().requests.is_empty(), "the third is in flight under the old epoch");
    rig.answer(ids[2], &[ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER]);
    rig.now += 20 * MS;
    let turn = rig.poll();
    assert_eq!(turn.requests.len(), 1, "the first of an epoch travels alone");
    assert_eq!(rig.stamp(turn.requests[0]), (1, 0));
    rig.answer(turn.requests[0], &[ErrorCode::NONE]);
    let turn = rig.poll();
    assert_eq!(rig.stamp(turn.requests[0]), (1, 1));
}

#[test]
fn a_batch_refused_behind_which_nothing_was_sent_gives_its_sequence_back() {
    let mut rig = Rig::new(true, 5);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::INVALID_RECORD]);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    assert_eq!(rig.stamp(id), (0, 0));
}

/// What is sent next after a batch that was refused with `code` and ran out of time: whether the refused one may be written, its
/// stamp and the next one's.
fn after_expiry(code: ErrorCode) -> (bool, (i16, i32), (i16, i32)) {
    let mut rig = Rig::new(true, 5);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::NONE]);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    let refused = rig.stamp(id);
    rig.answer(id, &[code]);
    rig.now += 1001 * MS;
    let turn = rig.poll();
    let Err(ProduceError::TimedOut { maybe_written, .. }) = turn.done[0].result else { panic!("not timed out") };
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    (maybe_written, refused, rig.stamp(id))
}

#[test]
fn a_sequence_is_not_given_again_after_a_refusal_that_may_follow_an_append() {
    for code in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::REQUEST_TIMED_OUT]
    {
        assert_eq!(after_expiry(code), (true, (0, 1), (0, 2)), "{code}");
    }
    for code in [ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::CORRUPT_MESSAGE] {
        assert_eq!(after_expiry(code), (false, (0, 1), (0, 1)), "{code}");
    }
}

#[test]
fn epochs_run_out_into_a_new_producer_id() {
    let mut rig = Rig::new(true, 5);
    let last = ProducerEpoch::new(i16::MAX - 1).unwrap();
    rig.sender.on_identity(ProducerId::new(7).unwrap(), last);
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER]);
    rig.now += 20 * MS;
    let turn = rig.poll();
    assert!(turn.wants_identity && turn.requests.is_empty());
    rig.sender.on_identity(ProducerId::new(8).unwrap(), ProducerEpoch::ZERO);
    let id = rig.poll().requests[0];
    let stamp = rig.sender.request_mut(id).batches[0].stamp.unwrap();
    assert_eq!((stamp.id.value(), stamp.epoch.value(), stamp.base_sequence), (8, 0, Some(Sequence::ZERO)));
}

#[test]
fn what_must_not_be_idempotent_ends_the_producer() {
    let mut rig = Rig::new(true, 5);
    rig.put(0, 300);
    rig.put(2, 300);
    let ids = rig.poll().requests.to_vec();
    let after = rig.answer(ids[0], &[ErrorCode::CLUSTER_AUTHORIZATION_FAILED]);
    let fatal = ProduceError::Fatal { code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED };
    assert_eq!(after.done[0].result, Err(fatal.clone()));
    let after = rig.answer(ids[1], &[ErrorCode::NOT_LEADER_OR_FOLLOWER]);
    assert_eq!(after.done[0].result, Err(fatal));
    assert!(rig.queues.is_empty());
}

#[test]
fn a_batch_that_is_too_large_goes_again_in_parts_each_under_its_sequence() {
    let mut rig = Rig::new(true, 5);
    (0..4).for_each(|_| rig.put(0, 20));
    rig.queues.begin_flush();
    let id = rig.poll().requests[0];
    rig.answer(id, &[ErrorCode::MESSAGE_TOO_LARGE]);
    let mut seen = Vec::new();
    while let Some(id) = rig.poll().requests.first().copied() {
        seen.push(rig.stamp(id).1);
        rig.answer(id, &[ErrorCode::NONE]);
    }
    assert_eq!(seen, [0, 2], "two parts of two records");
    assert!(rig.queues.is_empty());
}

#[test]
fn a_slow_broker_is_known_to_the_partitioner() {
    let mut rig = Rig::new(false, 1);
    rig.sender.settings.availability_timeout = 100 * MS;
    rig.put(0, 300);
    rig.poll();
    rig.put(1, 300);
    rig.poll();
    rig.now += 200 * MS;
    rig.poll();
    for _ in 0..100 {
        let now = rig.now;
        let place = rig.queues.append(&RecordRef::new(TOPIC, &[0; 150]), 0, || 0, || now).unwrap().place;
        assert_eq!(place.partition, 2);
    }
}

/// Which partitions records without one go to.
fn chosen(rig: &mut Rig) -> [bool; 3] {
    let mut seen = [false; 3];
    for _ in 0..100 {
        let now = rig.now;
        let place = rig.queues.append(&RecordRef::new(TOPIC, &[0; 150]), 0, || 0, || now).unwrap().place;
        seen[place.partition as usize] = true;
    }
    seen
}

/// Polls, as long as `for_ms`, while nobody listens at the first broker.
fn refuse_connections(rig: &mut Rig, for_ms: u32) {
    let end = rig.now + for_ms * MS;
    while rig.now < end {
        let turn = rig.poll();
        for id in &turn.requests {
            let lost = Outcome::Lost { maybe_written: false, retriable: true, why: "refused".into() };
            rig.sender.on_outcome(*id, lost, &mut rig.queues, rig.now);
        }
        if turn.requests.is_empty() {
            rig.now = turn.wake_at.unwrap_or(end);
        }
    }
}

#[test]
fn a_broker_that_refuses_connections_is_known_to_the_partitioner() {
    let mut rig = Rig::new(false, 5);
    rig.sender.settings.availability_timeout = 100 * MS;
    rig.put(0, 300);
    refuse_connections(&mut rig, 50);
    assert_eq!(chosen(&mut rig), [true; 3], "it may come back");

    let mut rig = Rig::new(false, 5);
    rig.sender.settings.availability_timeout = 100 * MS;
    rig.put(0, 300);
    refuse_connections(&mut rig, 500);
    assert_eq!(chosen(&mut rig), [false, false, true]);
}

#[test]
fn a_broker_that_nothing_waits_for_is_tried_again() {
    let mut rig = Rig::new(false, 5);
    rig.sender.settings.availability_timeout = 100 * MS;
    rig.put(0, 300);
    refuse_connections(&mut rig, 2000);
    assert!(rig.queues.is_empty(), "its time was up");
    rig.poll();
    assert_eq!(chosen(&mut rig), [true; 3]);
}

#[test]
fn a_broker_is_not_slow_any_more_once_it_could_take_what_expired() {
    let mut rig = Rig::new(false, 1);
    rig.sender.settings.availability_timeout = 100 * MS;
    rig.put(0, 300);
    let id = rig.poll().requests[0];
    rig.put(1, 300);
    rig.poll();
    rig.now += 1000 * MS;
    assert_eq!(rig.poll().done.len(), 2, "both are over their time");
    rig.answer(id, &[ErrorCode::NONE]);
    assert!(rig.poll().requests.is_empty());
    rig.now += 200 * MS;
    rig.poll();
    assert_eq!(chosen(&mut rig), [true; 3]);
}
