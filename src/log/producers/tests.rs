//! Pure: the rules of `producers`, one table row each.

use super::*;

fn stamp(id: i64, epoch: i16, first: i32) -> ProducerStamp {
    ProducerStamp {
        id: ProducerId::new(id).unwrap(),
        epoch: ProducerEpoch::new(epoch).unwrap(),
        base_sequence: Sequence::new(first),
    }
}

fn batch(producer: Option<ProducerStamp>, records: u32) -> BatchInfo {
    BatchInfo {
        base_offset: 0,
        bytes: 100,
        leader_epoch: -1,
        last_offset_delta: records - 1,
        codec: None,
        log_append_time: false,
        transactional: false,
        control: false,
        delete_horizon: false,
        base_timestamp: 1,
        max_timestamp: 1000,
        producer,
        records,
        crc: 0,
    }
}

fn transactional(info: BatchInfo) -> BatchInfo {
    BatchInfo { transactional: true, ..info }
}

fn marker(id: i64, epoch: i16) -> BatchInfo {
    BatchInfo { control: true, transactional: true, ..batch(Some(stamp(id, epoch, -1)), 1) }
}

fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

fn sequence(value: i32) -> Sequence {
    Sequence::new(value).unwrap()
}

/// Producer 7, epoch 2, six batches of ten records from sequence 0, offsets from 100.
fn six_batches() -> Producers {
    let mut producers = Producers::default();
    for number in 0..6 {
        producers.replay(&batch(Some(stamp(7, 2, number * 10)), 10), offset(100 + i64::from(number) * 10), 5000);
    }
    producers
}

#[test]
fn each_rule_answers_as_kafka_does() {
    let producers = six_batches();
    let check = |id, epoch, first, records| producers.check(&batch(Some(stamp(id, epoch, first)), records));
    let gap = |given, expected| Err(SequenceError::OutOfOrder { given: sequence(given), expected: sequence(expected) });
    assert_eq!(producers.check(&batch(None, 3)), Ok(Verdict::New));
    assert_eq!(check(7, 2, 60, 4), Ok(Verdict::New), "the next one");
    assert_eq!(check(7, 2, 61, 4), gap(61, 60), "a gap");
    assert_eq!(check(7, 2, 55, 5), gap(55, 60), "part of a batch is no duplicate");
    assert_eq!(check(7, 2, 0, 10), gap(0, 60), "older than the window");
    let fenced =
        SequenceError::Fenced { given: ProducerEpoch::new(1).unwrap(), current: ProducerEpoch::new(2).unwrap() };
    assert_eq!(check(7, 1, 60, 1), Err(fenced), "an older epoch");
    assert_eq!(check(7, 1, 50, 10), Err(fenced), "an older epoch is no duplicate");
    assert_eq!(check(7, 3, 0, 1), Ok(Verdict::New), "a newer epoch from 0");
    assert_eq!(check(7, 3, 60, 1), gap(60, 0), "a newer epoch from elsewhere");
    assert_eq!(check(8, 0, 1234, 1), Ok(Verdict::New), "an unknown producer may begin anywhere");
}

#[test]
fn duplicate_batch_returns_its_first_offset() {
    let producers = six_batches();
    for number in 1..6 {
        let Ok(Verdict::Duplicate(found)) = producers.check(&batch(Some(stamp(7, 2, number * 10)), 10)) else {
            panic!("batch {number} is in the window");
        };
        assert_eq!(found.base_offset(), offset(100 + i64::from(number) * 10));
        assert_eq!(found.last_offset, offset(109 + i64::from(number) * 10));
        assert_eq!(found.timestamp, 1000);
    }
}

#[test]
fn sequences_wrap_within_a_batch_and_between_batches() {
    let mut producers = Producers::default();
    producers.replay(&batch(Some(stamp(7, 0, i32::MAX - 2)), 5), offset(0), 0);
    assert_eq!(producers.check(&batch(Some(stamp(7, 0, 2)), 1)), Ok(Verdict::New));
    assert!(matches!(producers.check(&batch(Some(stamp(7, 0, i32::MAX - 2)), 5)), Ok(Verdict::Duplicate(_))));

    let mut producers = Producers::default();
    producers.replay(&batch(Some(stamp(7, 0, i32::MAX)), 1), offset(0), 0);
    assert_eq!(producers.check(&batch(Some(stamp(7, 0, 0)), 1)), Ok(Verdict::New));
}

#[test]
fn a_transaction_is_open_until_its_marker() {
    let mut producers = Producers::default();
    producers.replay(&transactional(batch(Some(stamp(7, 0, 0)), 2)), offset(10), 0);
    producers.replay(&transactional(batch(Some(stamp(7, 0, 2)), 2)), offset(12), 0);
    producers.replay(&transactional(batch(Some(stamp(9, 0, 0)), 2)), offset(14), 0);
    assert_eq!(producers.first_unstable(), Some(offset(10)));
    assert_eq!(producers.check(&batch(Some(stamp(7, 0, 4)), 1)), Err(SequenceError::TransactionOpen));
    assert_eq!(producers.check(&marker(7, 0)), Ok(Verdict::New));
    producers.replay(&marker(7, 0), offset(16), 0);
    assert_eq!(producers.first_unstable(), Some(offset(14)));
    assert_eq!(producers.check(&batch(Some(stamp(7, 0, 4)), 1)), Ok(Verdict::New));
    producers.replay(&marker(9, 1), offset(17), 0);
    assert_eq!(producers.first_unstable(), None);
    assert!(matches!(producers.check(&marker(9, 0)), Err(SequenceError::Fenced { .. })));
}

#[test]
fn a_silent_producer_is_forgotten_by_the_brokers_clock() {
    let mut producers = six_batches();
    producers.replay(&transactional(batch(Some(stamp(9, 0, 0)), 1)), offset(200), 5000);
    producers.expire(6000, Duration::from_millis(1000));
    assert_eq!(producers.len(), 2, "not longer than the expiry");
    producers.expire(6001, Duration::from_millis(1000));
    assert_eq!(producers.len(), 1, "an open transaction keeps its producer");

    // A recovery counts from its own time, however old the records are.
    let mut recovered = Producers::from_snapshot(&six_batches().to_snapshot(), 1_000_000).unwrap();
    recovered.expire(1_000_500, Duration::from_millis(1000));
    assert!(matches!(recovered.check(&batch(Some(stamp(7, 2, 50)), 10)), Ok(Verdict::Duplicate(_))));
}

#[test]
fn a_snapshot_brings_back_the_whole_window() {
    let mut producers = six_batches();
    producers.replay(&transactional(batch(Some(stamp(9, 3, 0)), 1)), offset(200), 5000);
    producers.replay(&marker(11, 4), offset(201), 5000);
    assert_eq!(Producers::from_snapshot(&producers.to_snapshot(), 5000), Some(producers));
}

#[test]
fn snapshot_bytes_are_kafkas() {
    let mut producers = Producers::default();
    producers.replay(&batch(Some(stamp(1, 2, 3)), 2), offset(10), 0);
    let bytes = producers.to_snapshot();
    assert_eq!(bytes.get(..2), Some(&[0, 1][..]), "version");
    assert_eq!(
        bytes.get(2..6),
        Some(&crc32c::crc32c(bytes.get(6..).unwrap()).to_be_bytes()[..]),
        "checksum of the rest"
    );
    #[rustfmt::skip]
    let rest = [
        0, 0, 0, 1,              // entries
        0, 0, 0, 0, 0, 0, 0, 1,  // producer id
        0, 2,                    // epoch
        0, 0, 0, 4,              // last sequence
        0, 0, 0, 0, 0, 0, 0, 11, // last offset
        0, 0, 0, 1,              // offset delta
        0, 0, 0, 0, 0, 0, 3, 232, // timestamp
        255, 255, 255, 255,      // coordinator epoch
        255, 255, 255, 255, 255, 255, 255, 255, // first offset of the open transaction
    ];
    assert_eq!(bytes.get(6..), Some(&rest[..]));
}

#[test]
fn damaged_snapshots_are_refused() {
    let bytes = six_batches().to_snapshot();
    for cut in 0..bytes.len() {
        assert_eq!(Producers::from_snapshot(&bytes[..cut], 0), None);
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert_eq!(Producers::from_snapshot(&flipped, 0), None, "byte {at}");
    }
}
