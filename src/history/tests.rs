//! Pure. Proves that the checker passes legal histories and catches each kind of fault.

use proptest::prelude::*;

use super::*;

fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

const fn value(number: u64) -> Value {
    Value::new(1, number)
}

fn invoked(number: u64) -> Event {
    Event::SendInvoked { partition: 0, value: value(number) }
}

fn acked(number: u64, at: i64) -> Event {
    Event::SendAcked { partition: 0, value: value(number), offset: Some(offset(at)) }
}

fn failed(number: u64) -> Event {
    Event::SendFailed { partition: 0, value: value(number) }
}

fn polled(at: i64, number: u64) -> Event {
    Event::Polled { consumer: 5, partition: 0, offset: offset(at), value: Some(value(number)) }
}

fn committed(at: i64) -> Event {
    Event::CommitAcked { group: 3, partition: 0, offset: offset(at) }
}

const ASSIGNED: Event = Event::Assigned { consumer: 5, partition: 0 };
const ASKED: Event = Event::FetchInvoked { reader: 8, group: 3, partition: 0 };

fn fetched(at: Option<i64>) -> Event {
    Event::OffsetFetched { reader: 8, group: 3, partition: 0, offset: at.map(offset) }
}

fn verdict(events: impl IntoIterator<Item = Event>) -> Report {
    let mut history = History::new();
    events.into_iter().for_each(|event| history.on_event(event));
    history.finish()
}

fn anomalies(events: &[Event]) -> Vec<Anomaly> {
    verdict(events.iter().copied()).anomalies
}

/// Records 0, 1, 2 at offsets 0, 1, 2, acknowledged.
fn three_sent() -> Vec<Event> {
    (0..3).flat_map(|number| [invoked(number), acked(number, number as i64)]).collect()
}

fn after_three_sent(events: &[Event]) -> Vec<Anomaly> {
    anomalies(&[&three_sent(), events].concat())
}

#[test]
fn a_legal_history_is_clean_and_counted() {
    let report = verdict([
        invoked(0),
        invoked(1),
        invoked(2), // never resolved, and not in the log
        acked(0, 0),
        acked(1, 1),
        invoked(3), // never resolved, but in the log
        invoked(4),
        failed(4),
        invoked(5),
        Event::SendAcked { partition: 0, value: value(5), offset: None },
        ASSIGNED,
        polled(0, 0),
        polled(1, 1),
        committed(2),
        ASKED,
        committed(3), // may or may not be seen by the one who asked before
        fetched(Some(2)),
        polled(3, 3), // offset 2 holds a marker
        ASSIGNED,
        polled(1, 1), // from the committed offset again
        polled(3, 3),
        polled(4, 5),
    ]);
    assert_eq!(
        report,
        Report { sent: 6, acked: 3, failed: 1, polled: 6, commits: 2, offsets_fetched: 1, ..Report::default() }
    );
    assert!(report.is_clean());
}

#[test]
fn an_acknowledged_record_that_later_ones_overtook_is_lost() {
    let lost = Anomaly::Lost { partition: 0, value: value(1), offset: Some(offset(1)), read_up_to: offset(2) };
    assert_eq!(after_three_sent(&[polled(0, 0), ASSIGNED, polled(2, 2)]), [lost]);
    let somewhere = Event::SendAcked { partition: 0, value: value(7), offset: None };
    let lost = Anomaly::Lost { partition: 0, value: value(7), offset: None, read_up_to: offset(0) };
    assert_eq!(anomalies(&[invoked(0), invoked(7), somewhere, polled(0, 0)]), [lost]);
}

#[test]
fn an_acknowledged_tail_that_nobody_read_is_unseen() {
    let unseen = Anomaly::Unseen { partition: 0, value: value(2), offset: Some(offset(2)) };
    assert_eq!(after_three_sent(&[polled(0, 0), polled(1, 1)]), [unseen]);
}

#[test]
fn a_value_at_two_offsets_is_a_duplicate_told_once() {
    let duplicate = Anomaly::Duplicate { partition: 0, value: value(2), first: offset(2), second: offset(3) };
    let twice = [polled(0, 0), polled(1, 1), polled(2, 2), polled(3, 2)];
    assert_eq!(after_three_sent(&[&twice[..], &[ASSIGNED], &twice[..]].concat()), [duplicate]);
    // Also when the first place is only known from the acknowledgement, and then it is not lost.
    assert_eq!(after_three_sent(&[polled(0, 0), polled(1, 1), ASSIGNED, polled(3, 2)]), [duplicate]);
}

#[test]
fn an_offset_with_two_values_is_inconsistent() {
    let read = [polled(0, 0), polled(1, 1), polled(2, 2), ASSIGNED];
    let events = [&[invoked(0), acked(0, 0), invoked(1), invoked(2), invoked(3)], &read[..], &[polled(2, 3)]].concat();
    let inconsistent =
        Anomaly::InconsistentOffset { partition: 0, offset: offset(2), first: value(2), second: value(3) };
    assert_eq!(anomalies(&events), [inconsistent]);
}

#[test]
fn a_producers_later_record_may_not_lie_first() {
    let reordered = Anomaly::Reordered {
        partition: 0,
        earlier: value(0),
        earlier_offset: offset(1),
        later: value(1),
        later_offset: offset(0),
    };
    // Whether acknowledged or only read.
    assert_eq!(anomalies(&[invoked(0), invoked(1), acked(0, 1), acked(1, 0), polled(0, 1), polled(1, 0)]), [reordered]);
    assert_eq!(anomalies(&[invoked(0), invoked(1), polled(0, 1), polled(1, 0)]), [reordered]);
}

#[test]
fn a_failed_send_may_not_be_read_however_late_it_is_known_to_have_failed() {
    let aborted = Anomaly::AbortedRead { partition: 0, value: value(0), offset: offset(0) };
    assert_eq!(anomalies(&[invoked(0), failed(0), polled(0, 0)]), [aborted]);
    assert_eq!(anomalies(&[invoked(0), polled(0, 0), failed(0)]), [aborted]);
}

#[test]
fn what_nobody_sent_is_a_phantom() {
    let phantom = |value| Anomaly::Phantom { partition: 0, offset: offset(0), value };
    assert_eq!(anomalies(&[polled(0, 9)]), [phantom(Some(value(9)))]);
    let foreign = Event::Polled { consumer: 5, partition: 0, offset: offset(0), value: None };
    assert_eq!(anomalies(&[foreign]), [phantom(None)]);
}

#[test]
fn a_poll_may_not_go_back_or_skip_within_one_assignment() {
    let read = [polled(0, 0), polled(1, 1), polled(2, 2)];
    let back = |at| Anomaly::PollWentBack { consumer: 5, partition: 0, after: offset(2), offset: offset(at) };
    assert_eq!(after_three_sent(&[&read[..], &[polled(2, 2)]].concat()), [back(2)]);
    assert_eq!(after_three_sent(&[&read[..], &[polled(1, 1)]].concat()), [back(1)]);
    let skipped = Anomaly::PollSkipped {
        consumer: 5,
        partition: 0,
        after: offset(0),
        next: offset(2),
        value: value(1),
        offset: offset(1),
    };
    assert_eq!(after_three_sent(&[polled(0, 0), polled(2, 2), ASSIGNED, polled(1, 1), polled(2, 2)]), [skipped]);
    // Past an aborted record it may go: nobody shows that one.
    assert_eq!(
        anomalies(&[
            invoked(0),
            acked(0, 0),
            invoked(1),
            invoked(2),
            acked(2, 2),
            failed(1),
            polled(0, 0),
            polled(2, 2)
        ]),
        []
    );
}

#[test]
fn a_groups_offset_may_not_go_back() {
    let back = |seen: Option<i64>| Anomaly::OffsetWentBack {
        group: 3,
        partition: 0,
        committed: offset(7),
        seen: seen.map(offset),
    };
    assert_eq!(anomalies(&[committed(7), ASKED, fetched(Some(7))]), []);
    assert_eq!(anomalies(&[committed(7), ASKED, fetched(Some(9))]), [], "a commit whose answer was lost");
    assert_eq!(anomalies(&[committed(7), ASKED, fetched(Some(6))]), [back(Some(6))]);
    assert_eq!(anomalies(&[committed(7), ASKED, fetched(None)]), [back(None)]);
    assert_eq!(anomalies(&[committed(7), committed(6), ASKED, fetched(Some(6))]), [back(Some(6))]);
    assert_eq!(anomalies(&[ASKED, committed(7), fetched(None)]), [], "asked before the commit");
}

#[test]
fn partitions_and_producers_do_not_disturb_each_other() {
    let sent = |partition, producer, number, at| {
        let value = Value::new(producer, number);
        [
            Event::SendInvoked { partition, value },
            Event::SendAcked { partition, value, offset: Some(offset(at)) },
            Event::Polled { consumer: partition, partition, offset: offset(at), value: Some(value) },
        ]
    };
    let events = [sent(0, 1, 0, 0), sent(1, 1, 0, 0), sent(0, 2, 0, 1), sent(1, 2, 5, 1), sent(0, 1, 1, 2)];
    assert_eq!(anomalies(events.as_flattened()), []);
}

#[test]
fn a_flood_of_anomalies_is_counted_and_kept_short() {
    let report = verdict((0..5000).flat_map(|number| [invoked(number), acked(number, number as i64)]));
    assert_eq!((report.anomaly_count, report.anomalies.len()), (5000, EVIDENCE_OF_A_KIND_MAX));
    assert!(report.to_string().contains("5000 anomalies\n  unseen: 1:0 of partition 0"));
}

#[test]
fn values_read_back_and_foreign_bytes_are_none() {
    for value in [Value::new(0, 0), Value::new(u16::MAX, Value::NUMBER_END - 1), Value::new(7, 1 << 40)] {
        assert_eq!(Value::from_bytes(&[&value.to_bytes()[..], b"padding"].concat()), Some(value));
    }
    assert_eq!((Value::new(9, 4).producer(), Value::new(9, 4).number()), (9, 4));
    assert_eq!(Value::from_bytes(b"short"), None);
    assert_eq!(Value::from_bytes(&[0; 8]), None);
    assert_eq!(Value::from_bytes(&[0xff; 8]), None);
}

#[test]
#[should_panic(expected = "do not rise")]
fn a_value_is_sent_once() {
    anomalies(&[invoked(1), invoked(1)]);
}

/// A correct broker in a few lines: two producers, lost answers, refusals, a consumer that starts again from its commit.
fn legal_run(seed: u64, sends: usize) -> Vec<Event> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut events = Vec::new();
    let mut log: Vec<Value> = Vec::new();
    let (mut position, mut commit, mut numbers) = (0, None, [0; 2]);
    let read = |log: &[Value], position: &mut usize, events: &mut Vec<Event>, up_to: usize| {
        while *position < up_to {
            let at = offset(*position as i64);
            events.push(Event::Polled { consumer: 0, partition: 0, offset: at, value: Some(log[*position]) });
            *position += 1;
        }
    };
    for _ in 0..sends {
        let producer = random.usize(..2);
        let value = Value::new(producer as u16, numbers[producer]);
        numbers[producer] += 1;
        events.push(Event::SendInvoked { partition: 0, value });
        match random.u8(..10) {
            0 => events.push(Event::SendFailed { partition: 0, value }),
            1 => {} // never arrived
            2 => log.push(value),
            _ => {
                events.push(Event::SendAcked { partition: 0, value, offset: Offset::new(log.len() as i64) });
                log.push(value);
            }
        }
        if random.u8(..4) == 0 {
            let up_to = random.usize(position..=log.len());
            read(&log, &mut position, &mut events, up_to);
        }
        if random.u8(..8) == 0 {
            commit = Some(position);
            events.push(Event::CommitAcked { group: 0, partition: 0, offset: offset(position as i64) });
        }
        if random.u8(..16) == 0 {
            events.push(Event::FetchInvoked { reader: 0, group: 0, partition: 0 });
            let at = commit.map(|commit| offset(commit as i64));
            events.push(Event::OffsetFetched { reader: 0, group: 0, partition: 0, offset: at });
            events.push(Event::Assigned { consumer: 0, partition: 0 });
            position = commit.unwrap_or(0);
        }
    }
    read(&log, &mut position, &mut events, log.len());
    events
}

proptest! {
    #[test]
    fn legal_runs_are_clean(seed: u64, sends in 0usize..300) {
        let report = verdict(legal_run(seed, sends));
        prop_assert!(report.is_clean(), "{}", report);
    }

    /// A correct run in which one record reads as its neighbour, or not at all, at every reading of it.
    #[test]
    fn one_wrong_record_is_found(seed: u64, sends in 20usize..300, wrong: proptest::sample::Index) {
        let mut events = legal_run(seed, sends);
        let acked: Vec<Value> = events
            .iter()
            .filter_map(|event| match event {
                Event::SendAcked { value, .. } => Some(*value),
                _ => None,
            })
            .collect();
        prop_assume!(acked.len() >= 2);
        let victim = acked[wrong.index(acked.len())];
        let other = *acked.iter().find(|value| **value != victim).unwrap();

        let without = events.iter().copied().filter(|event| !matches!(event, Event::Polled { value, .. } if *value == Some(victim)));
        prop_assert!(!verdict(without).is_clean());

        for event in &mut events {
            if let Event::Polled { value, .. } = event && *value == Some(victim) {
                *value = Some(other);
            }
        }
        prop_assert!(!verdict(events).is_clean());
    }
}

#[test]
fn a_million_records_take_tens_of_megabytes() {
    // What is kept for a record: its send (in a list that doubles) and its cell in a page.
    const BYTES_MAX: usize = 2 * size_of::<Send>() + size_of::<Option<Value>>();
    const { assert!(BYTES_MAX <= 80) };
    let mut history = History::new();
    for number in 0..1_000_000 {
        history.on_event(invoked(number));
        history.on_event(acked(number, number as i64));
        history.on_event(polled(number as i64, number));
    }
    let partition = &history.partitions[&0];
    assert_eq!(partition.pages.len(), 1_000_000usize.div_ceil(PAGE_OFFSETS as usize));
    assert!(partition.sends[&1].capacity() <= 2_000_000);
    assert!(history.finish().is_clean());
}
