//! Pure: what a fetcher asks for, gives out, skips, and survives.

use bytes::BytesMut;

use super::*;
use crate::client::fake_broker::{Kind, WALL, batch_of};
use crate::protocol::batch::Codec;
use crate::types::PartitionIndex;

const NOW: Duration = Duration::from_secs(10);

fn part(index: i32) -> TopicPartition {
    TopicPartition { topic: "t".into(), partition: PartitionIndex::new(index).unwrap() }
}

fn at(offset: i64) -> Position {
    Position { offset: Offset::new(offset).unwrap(), leader_epoch: None }
}

fn settings(reset: OffsetReset) -> FetcherSettings {
    FetcherSettings {
        reset,
        isolation: IsolationLevel::ReadUncommitted,
        check_crcs: true,
        bytes_max: 1000,
        partition_bytes_max: 200,
        retry_backoff: Duration::from_millis(100),
    }
}

fn leader(epoch: i32) -> impl Fn(&TopicPartition) -> Option<Leader> {
    move |_| Some(Leader { broker: BrokerId::new(1).unwrap(), epoch: LeaderEpoch::new(epoch), topic_id: None })
}

fn plain(base: i64, values: &[&str]) -> Vec<u8> {
    batch_of(base, values, Codec::None, Kind::default())
}

fn fetches(plans: Vec<Plan>) -> Vec<FetchTarget> {
    let fetch = |plan| match plan {
        Plan::Fetch(_, targets) => targets,
        other => panic!("{other:?}"),
    };
    plans.into_iter().flat_map(fetch).collect()
}

fn answer(fetcher: &mut Fetcher, asked: &FetchTarget, bytes: &[u8]) {
    let response = FetchPartitionResponse { high_watermark: 100, log_start_offset: 0, ..Default::default() };
    answer_with(fetcher, asked, &response, bytes);
}

fn answer_with(fetcher: &mut Fetcher, asked: &FetchTarget, response: &FetchPartitionResponse, bytes: &[u8]) {
    let aborted = response.aborted_transactions.clone().unwrap_or_default();
    let isolation = fetcher.settings.isolation;
    let digest =
        Digest::of(&Bytes::copy_from_slice(bytes), asked.from, isolation, &aborted, fetcher.settings.check_crcs);
    fetcher.on_fetched(asked, response, digest, NOW, WALL);
    fetcher.on_answered(asked.target.leader.broker, std::slice::from_ref(asked));
}

fn read(fetcher: &mut Fetcher, count: usize) -> Vec<(i64, String)> {
    let mut records = Vec::new();
    while records.len() < count {
        let Some(mut portion) = fetcher.take(count - records.len()) else { break };
        portion.read_into(count - records.len(), &mut records).unwrap();
        fetcher.settle(portion);
    }
    let text = |record: &Record| String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap();
    records.iter().map(|record| (record.offset.value(), text(record))).collect()
}

fn reading(reset: OffsetReset, from: i64) -> Fetcher {
    let mut fetcher = Fetcher::new(settings(reset));
    fetcher.assign(part(0), true, WALL);
    assert!(fetcher.seek(&part(0), at(from)));
    fetcher
}

fn one_fetch(fetcher: &mut Fetcher) -> FetchTarget {
    let mut asked = fetches(fetcher.plan(NOW, leader(1)));
    assert_eq!(asked.len(), 1);
    asked.remove(0)
}

#[test]
fn a_new_partition_begins_at_what_is_committed_or_where_the_reset_says() {
    let mut fetcher = Fetcher::new(settings(OffsetReset::ByDuration(Duration::from_secs(60))));
    fetcher.assign(part(0), true, WALL);
    fetcher.assign(part(1), true, WALL);
    let plans = fetcher.plan(NOW, leader(1));
    let [Plan::Committed(asked)] = &plans[..] else { panic!("{plans:?}") };
    assert!(fetcher.plan(NOW, leader(1)).is_empty(), "nothing is asked twice");
    fetcher.on_committed(&asked[0].0, asked[0].1, Some(at(7)), WALL);
    fetcher.on_committed(&asked[1].0, asked[1].1, None, WALL);
    assert_eq!(fetcher.position(&part(0)), Some(at(7)));
    let plans = fetcher.plan(NOW, leader(1));
    let [Plan::LookUp(_, lookups), Plan::Fetch(_, fetch)] = &plans[..] else { panic!("{plans:?}") };
    assert_eq!((lookups[0].1, fetch[0].from), (Lookup::Time(WALL - 60_000), at(7)));
    fetcher.on_looked_up(&lookups[0].0, lookups[0].1, Ok(None), NOW);
    let plans = fetcher.plan(NOW, leader(1));
    let [Plan::LookUp(_, lookups)] = &plans[..] else { panic!("{plans:?}") };
    assert_eq!(lookups[0].1, Lookup::Latest, "nothing is so young: the end");
}

#[test]
fn records_come_in_order_once_and_from_the_offset_asked_for() {
    for codec in Codec::ALL {
        let mut fetcher = reading(OffsetReset::Latest, 12);
        let asked = one_fetch(&mut fetcher);
        let bytes = [
            batch_of(10, &["a", "b", "c", "d"], codec, Kind::default()),
            batch_of(20, &["e", "f"], codec, Kind::default()),
        ]
        .concat();
        answer(&mut fetcher, &asked, &[&bytes[..], &plain(30, &["cut"])[..50]].concat());
        assert_eq!(read(&mut fetcher, 1), [(12, "c".into())], "{codec:?}");
        assert_eq!(fetcher.position(&part(0)).unwrap().offset.value(), 13);
        assert_eq!(read(&mut fetcher, 2), [(13, "d".into()), (20, "e".into())]);
        assert_eq!(read(&mut fetcher, 9), [(21, "f".into())]);
        assert_eq!(fetcher.position(&part(0)).unwrap().offset.value(), 22);
        assert_eq!(fetcher.lag(&part(0)), Some(78));
        assert_eq!(one_fetch(&mut fetcher).from.offset.value(), 22);
    }
}

#[test]
fn a_paused_partition_keeps_what_it_has_and_asks_for_nothing() {
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &plain(0, &["a", "b"]));
    assert!(fetcher.pause(&part(0), true));
    assert!(!fetcher.has_ready() && read(&mut fetcher, 1).is_empty() && fetcher.plan(NOW, leader(1)).is_empty());
    fetcher.pause(&part(0), false);
    assert_eq!(read(&mut fetcher, 9), [(0, "a".into()), (1, "b".into())]);
    assert!(!fetcher.pause(&part(9), true), "not assigned");
}

#[test]
fn a_seek_makes_answers_and_portions_from_before_void() {
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &plain(0, &["a", "b"]));
    let again = one_fetch(&mut fetcher);
    let portion = fetcher.take(1).unwrap();
    fetcher.seek(&part(0), at(50));
    assert!(!fetcher.settle(portion));
    answer(&mut fetcher, &again, &plain(2, &["c"]));
    assert_eq!(fetcher.position(&part(0)), Some(at(50)));
    assert!(!fetcher.has_ready());
    assert_eq!(one_fetch(&mut fetcher).from, at(50));
}

#[test]
fn prefetching_stops_when_enough_waits_and_goes_on_when_it_was_read() {
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let value = "x".repeat(150);
    for base in [0, 1] {
        let asked = one_fetch(&mut fetcher);
        answer(&mut fetcher, &asked, &plain(base, &[&value]));
    }
    assert!(fetcher.plan(NOW, leader(1)).is_empty(), "two answers wait");
    read(&mut fetcher, 1);
    assert_eq!(one_fetch(&mut fetcher).from.offset.value(), 2);
}

#[test]
fn aborted_records_and_markers_are_not_given_out_but_positions_pass_them() {
    let (one, two) = (Kind { producer: Some(1), control: None }, Kind { producer: Some(2), control: None });
    let marker = |id, commit| Kind { producer: Some(id), control: Some(commit) };
    let log = [
        batch_of(0, &["a1", "b1"], Codec::None, one),
        batch_of(2, &["c2"], Codec::Lz4, two),
        plain(3, &["d"]),
        batch_of(4, &[""], Codec::None, marker(1, false)),
        batch_of(5, &["e1"], Codec::None, one),
        batch_of(6, &[""], Codec::None, marker(2, true)),
        batch_of(7, &[""], Codec::None, marker(1, true)),
    ]
    .concat();
    let aborted = vec![AbortedTransaction { producer_id: 1, first_offset: 0 }];
    let response = FetchPartitionResponse {
        high_watermark: 8,
        last_stable_offset: 8,
        aborted_transactions: Some(aborted),
        ..Default::default()
    };
    let mut fetcher = reading(OffsetReset::Latest, 0);
    fetcher.settings.isolation = IsolationLevel::ReadCommitted;
    let asked = one_fetch(&mut fetcher);
    answer_with(&mut fetcher, &asked, &response, &log);
    assert_eq!(read(&mut fetcher, 99), [(2, "c2".into()), (3, "d".into()), (5, "e1".into())]);
    assert_eq!((fetcher.position(&part(0)).unwrap().offset.value(), fetcher.lag(&part(0))), (8, Some(0)));

    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    answer_with(&mut fetcher, &asked, &FetchPartitionResponse { high_watermark: 8, ..Default::default() }, &log);
    let read: Vec<i64> = read(&mut fetcher, 99).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(read, [0, 1, 2, 3, 5]);
}

#[test]
fn an_answer_of_markers_only_moves_the_position() {
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &batch_of(0, &[""], Codec::None, Kind { producer: Some(1), control: Some(true) }));
    assert!(fetcher.has_ready(), "so that the program's side comes by");
    assert!(read(&mut fetcher, 1).is_empty());
    assert_eq!(fetcher.position(&part(0)).unwrap().offset.value(), 1);
}

#[test]
fn a_damaged_batch_is_told_after_the_good_ones_and_fetched_again() {
    let mut bad = plain(2, &["c"]);
    *bad.last_mut().unwrap() ^= 1;
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &[plain(0, &["a", "b"]), bad.clone()].concat());
    assert!(fetcher.take_error().is_none());
    assert_eq!(read(&mut fetcher, 9).len(), 2);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &bad);
    let error = fetcher.take_error().unwrap();
    assert!(
        matches!(&error, ConsumerError::Corrupt { offset, why: BatchError::Crc, .. } if offset.value() == 2),
        "{error}"
    );
    assert!(fetcher.plan(NOW, leader(1)).is_empty(), "not before the back-off");
    let later = fetches(fetcher.plan(NOW + Duration::from_secs(1), leader(1)));
    answer(&mut fetcher, &later[0], &plain(2, &["c"]));
    assert_eq!(read(&mut fetcher, 9), [(2, "c".into())], "it was the way, not the log");
    // Without the check, what can be read is read.
    let mut fetcher = reading(OffsetReset::Latest, 2);
    fetcher.settings.check_crcs = false;
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &bad);
    assert_eq!(read(&mut fetcher, 9).len(), 1);
}

#[test]
fn hostile_answers_are_errors_and_never_loop() {
    let mut random = fastrand::Rng::with_seed(3);
    let good = [plain(0, &["a", "b"]), batch_of(2, &["c"; 40], Codec::Zstd, Kind::default())].concat();
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..bytes.len());
            bytes[place] = random.u8(..);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        let mut fetcher = reading(OffsetReset::Latest, 0);
        fetcher.settings.check_crcs = false;
        let asked = one_fetch(&mut fetcher);
        answer(&mut fetcher, &asked, &bytes);
        let mut records = Vec::new();
        while let Some(mut portion) = fetcher.take(1000) {
            match portion.read_into(1000, &mut records) {
                Ok(()) => _ = fetcher.settle(portion),
                Err(_) => fetcher.on_unreadable(&portion.partition().clone(), portion.position()),
            }
        }
        assert!(records.is_sorted_by(|a, b| a.offset < b.offset));
    }
}

#[test]
fn a_batch_that_did_not_fit_is_asked_for_in_full() {
    let whole = plain(0, &[&"x".repeat(500)]);
    let mut fetcher = reading(OffsetReset::Latest, 0);
    let asked = one_fetch(&mut fetcher);
    assert_eq!(asked.bytes_max, 200);
    answer(&mut fetcher, &asked, &whole[..200]);
    let asked = one_fetch(&mut fetcher);
    assert_eq!(asked.bytes_max as usize, whole.len());
    answer(&mut fetcher, &asked, &whole);
    assert_eq!(read(&mut fetcher, 1).len(), 1);
    assert_eq!(one_fetch(&mut fetcher).bytes_max, 200);
}

#[test]
fn out_of_range_resets_after_what_is_good_was_read() {
    let response = FetchPartitionResponse { error_code: ErrorCode::OFFSET_OUT_OF_RANGE, ..Default::default() };
    let mut fetcher = reading(OffsetReset::Earliest, 0);
    let asked = one_fetch(&mut fetcher);
    answer(&mut fetcher, &asked, &plain(0, &["a"]));
    let asked = one_fetch(&mut fetcher);
    answer_with(&mut fetcher, &asked, &response, &[]);
    assert_eq!(read(&mut fetcher, 9), [(0, "a".into())]);
    let asked = fetches(fetcher.plan(NOW * 2, leader(1)));
    answer_with(&mut fetcher, &asked[0], &response, &[]);
    assert!(
        matches!(&fetcher.plan(NOW * 2, leader(1))[..], [Plan::LookUp(_, lookups)] if lookups[0].1 == Lookup::Earliest)
    );

    let mut fetcher = reading(OffsetReset::None, 5);
    let asked = one_fetch(&mut fetcher);
    answer_with(&mut fetcher, &asked, &response, &[]);
    assert!(matches!(fetcher.take_error(), Some(ConsumerError::OutOfRange { offset, .. }) if offset.value() == 5));
    assert!(fetcher.plan(NOW * 9, leader(1)).is_empty(), "it waits for a seek");
    fetcher.seek(&part(0), at(0));
    one_fetch(&mut fetcher);
}

#[test]
fn a_new_leader_is_asked_whether_it_has_what_was_read() {
    let ends = [
        // The leader's end of epoch 3, the reset, and where reading goes on.
        (Some(2), OffsetReset::Latest, Some(2)),
        (Some(1), OffsetReset::Latest, Some(1)),
        (Some(0), OffsetReset::None, None),
        (Some(9), OffsetReset::None, Some(2)),
    ];
    for (end, reset, goes_on) in ends {
        let mut fetcher = reading(reset, 0);
        let asked = one_fetch(&mut fetcher);
        answer(&mut fetcher, &asked, &plain(0, &["a", "b"]));
        read(&mut fetcher, 9);
        let plans = fetcher.plan(NOW, leader(2));
        let [Plan::Validate(_, targets)] = &plans[..] else { panic!("{plans:?}") };
        assert_eq!(targets[0].1.value(), 3, "the epoch of the last batch");
        let told = end.map(|offset| Position { leader_epoch: LeaderEpoch::new(3), ..at(offset) });
        fetcher.on_validated(&targets[0].0, Ok(told), NOW, WALL);
        let error = fetcher.take_error();
        match goes_on {
            Some(offset) => {
                assert!(error.is_none());
                assert_eq!(fetches(fetcher.plan(NOW, leader(2)))[0].from.offset.value(), offset, "{end:?} {reset:?}");
            }
            None => {
                let Some(ConsumerError::Truncated { offset, end, .. }) = error else { panic!("{error:?}") };
                assert_eq!((offset.value(), end.map(Offset::value)), (2, Some(0)));
            }
        }
    }
}

#[test]
fn leaders_that_changed_make_topics_stale_and_refusals_are_told() {
    let mut fetcher = reading(OffsetReset::Latest, 0);
    assert!(fetcher.plan(NOW, |_| None).is_empty());
    assert_eq!(fetcher.take_stale().len(), 1);
    let later = NOW * 2;
    let asked = fetches(fetcher.plan(later, leader(1)));
    let refusal = |code| FetchPartitionResponse { error_code: code, ..Default::default() };
    answer_with(&mut fetcher, &asked[0], &refusal(ErrorCode::NOT_LEADER_OR_FOLLOWER), &[]);
    assert_eq!((fetcher.take_stale().len(), fetcher.take_error().is_some()), (1, false));
    let asked = fetches(fetcher.plan(later * 2, leader(1)));
    answer_with(&mut fetcher, &asked[0], &refusal(ErrorCode::TOPIC_AUTHORIZATION_FAILED), &[]);
    assert!(fetcher.take_error().is_some());
    fetcher.unassign(&part(0));
    assert!(fetcher.take_error().is_none() && fetcher.plan(later * 9, leader(1)).is_empty());
}

#[test]
fn nobody_starves_behind_a_full_partition() {
    let mut fetcher = Fetcher::new(settings(OffsetReset::Latest));
    for index in 0..3 {
        fetcher.assign(part(index), true, WALL);
        fetcher.seek(&part(index), at(0));
    }
    let firsts: BTreeSet<TopicPartition> = (0..3)
        .map(|_| {
            let asked = fetches(fetcher.plan(NOW, leader(1)));
            assert_eq!(asked.len(), 3);
            fetcher.on_answered(BrokerId::new(1).unwrap(), &asked);
            asked[0].target.partition.clone()
        })
        .collect();
    assert_eq!(firsts.len(), 3, "each comes first once");
    let asked = fetches(fetcher.plan(NOW, leader(1)));
    for target in &asked {
        let response = FetchPartitionResponse { high_watermark: 9, ..Default::default() };
        let digest = Digest::of(
            &Bytes::from([plain(0, &["a"]), plain(1, &["b"])].concat()),
            at(0),
            IsolationLevel::ReadUncommitted,
            &[],
            true,
        );
        fetcher.on_fetched(target, &response, digest, NOW, WALL);
    }
    let turns: Vec<i32> = (0..6)
        .map(|_| {
            let mut portion = fetcher.take(1).unwrap();
            portion.read_into(1, &mut Vec::new()).unwrap();
            let turn = portion.partition().partition.value();
            fetcher.settle(portion);
            turn
        })
        .collect();
    assert_eq!(turns[..3], turns[3..], "turn by turn");
}

#[test]
fn batches_lend_their_records_without_a_copy() {
    let mut fetcher = reading(OffsetReset::Latest, 1);
    let asked = one_fetch(&mut fetcher);
    let frame = BytesMut::from(&plain(0, &["a", "b", "c"])[..]).freeze();
    let digest = Digest::of(&frame, asked.from, IsolationLevel::ReadUncommitted, &[], true);
    fetcher.on_fetched(&asked, &FetchPartitionResponse::default(), digest, NOW, WALL);
    let mut batches = Vec::new();
    let mut portion = fetcher.take(1).unwrap();
    portion.open_into(&mut batches).unwrap();
    fetcher.settle(portion);
    let views: Vec<_> = batches[0].iter().map(Result::unwrap).collect();
    assert_eq!(views.iter().map(|view| view.offset.value()).collect::<Vec<_>>(), [1, 2]);
    assert!(frame.as_ptr_range().contains(&views[0].value.unwrap().as_ptr()));
    let record = batches[0].to_record(&views[0]);
    assert_eq!(record.value.unwrap().as_ptr(), views[0].value.unwrap().as_ptr());
    assert_eq!(record.headers.last("h").unwrap().value.as_deref(), Some(&b"x"[..]));
    assert_eq!(fetcher.position(&part(0)).unwrap().offset.value(), 3);
}

#[test]
fn a_refusal_that_comes_again_and_again_is_kept_once_for_a_user_that_does_not_poll() {
    let mut fetcher = reading(OffsetReset::None, 0);
    let target = one_fetch(&mut fetcher).target;
    for _ in 0..3 {
        fetcher.on_refused([(&target.partition, target.version)], &ClientError::Misuse("no".into()), NOW);
    }
    assert!(fetcher.take_error().is_some());
    assert!(fetcher.take_error().is_none());
}
