//! One member, event by event: what it sends, what its user hears, what it gives up.

use super::*;

const SESSION: Duration = Duration::from_secs(45);

fn settings(assignors: &[Assignor]) -> MembershipSettings {
    MembershipSettings {
        group_id: "g".into(),
        instance_id: None,
        assignors: assignors.to_vec(),
        session_timeout: SESSION,
        heartbeat_interval: Duration::from_secs(3),
        max_poll_interval: Duration::from_secs(300),
        request_timeout: Duration::from_secs(30),
        retry_backoff: Duration::from_millis(100),
        retry_backoff_max: Duration::from_secs(1),
        rack: None,
        seed: 7,
    }
}

fn part(topic: &str, index: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition: crate::types::PartitionIndex::new(index).unwrap() }
}

fn parts(indexes: &[i32]) -> BTreeSet<TopicPartition> {
    indexes.iter().map(|index| part("t", *index)).collect()
}

fn topics(count: usize) -> Topics {
    [("t".into(), vec![BTreeSet::new(); count])].into()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A member that polls, with a coordinator.
fn member(settings: MembershipSettings) -> Membership {
    let mut member = Membership::new(settings);
    member.on_subscription(["t".into()].into());
    assert_eq!(member.next_action(Duration::ZERO), None, "nothing joins before the first poll");
    member.on_poll();
    assert_eq!(member.next_action(Duration::ZERO), Some(Action::FindCoordinator));
    assert_eq!(member.next_action(Duration::ZERO), None, "it is asked once");
    member.on_coordinator(Ok(()), Duration::ZERO);
    member
}

fn expect_join(member: &mut Membership, now: Duration) -> Join {
    match member.next_action(now) {
        Some(Action::Join(join)) => join,
        other => panic!("{other:?}"),
    }
}

fn expect_sync(member: &mut Membership, now: Duration) -> Sync {
    match member.next_action(now) {
        Some(Action::Sync(sync)) => sync,
        other => panic!("{other:?}"),
    }
}

fn follower(generation: i32, protocol: &str) -> Joined {
    Joined {
        generation,
        protocol: protocol.into(),
        leader: "other".into(),
        member_id: "me".into(),
        skip_assignment: false,
        members: Vec::new(),
    }
}

/// Through join and sync to this share, without its steps.
fn settle(member: &mut Membership, generation: i32, share: &[i32], now: Duration) {
    let join = expect_join(member, now);
    let protocol = join.protocols[0].0.name();
    member.on_join(join.ask, Ok(follower(generation, protocol)), now);
    let sync = expect_sync(member, now);
    assert_eq!(sync.identity.generation, generation);
    member.on_sync(sync.ask, Ok(wire::encode_assignment(&parts(share))), now);
}

fn take_steps(member: &mut Membership) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = member.next_step() {
        member.on_step_done();
        steps.push(step);
    }
    steps
}

#[test]
fn a_member_takes_the_id_it_is_given_and_joins_again_at_once() {
    let mut member = member(settings(&[Assignor::Range]));
    let join = expect_join(&mut member, Duration::ZERO);
    assert_eq!(&*join.member_id, "");
    member.on_join(join.ask, Err(Refused::TakeId("me".into())), Duration::ZERO);
    let join = expect_join(&mut member, Duration::ZERO);
    assert_eq!(&*join.member_id, "me");
    assert_eq!(join.timeout, secs(305));
}

#[test]
fn a_leader_deals_out_to_everybody_and_watches_the_topics() {
    let mut member = member(settings(&[Assignor::Range]));
    let join = expect_join(&mut member, Duration::ZERO);
    let subscription = join.protocols[0].1.clone();
    let joined = Joined {
        leader: "me".into(),
        members: vec![
            ("me".into(), None, subscription.clone()),
            ("you".into(), None, subscription),
            ("broken".into(), None, Bytes::from_static(&[0xff])),
        ],
        ..follower(1, "range")
    };
    member.on_join(join.ask, Ok(joined), Duration::ZERO);
    let Some(Action::Deal { ask, topics: wanted }) = member.next_action(Duration::ZERO) else { panic!() };
    assert_eq!(wanted, ["t".into()].into());
    member.on_topics(ask + 1, &topics(9));
    assert_eq!(member.next_action(Duration::ZERO), None, "an answer to another question changes nothing");
    member.on_topics(ask, &topics(3));
    let sync = expect_sync(&mut member, Duration::ZERO);
    let shares: Vec<_> =
        sync.assignments.iter().map(|(id, share)| (&**id, wire::decode_assignment(share).unwrap())).collect();
    assert_eq!(shares, [("me", parts(&[0, 1])), ("you", parts(&[2])), ("broken", parts(&[]))]);
    member.on_sync(sync.ask, Ok(sync.assignments[0].1.clone()), Duration::ZERO);
    assert_eq!(take_steps(&mut member), [Step::Assign(parts(&[0, 1]))]);
    member.on_metadata(|_| Some(3));
    assert!(member.is_settled());
    member.on_metadata(|_| Some(4));
    assert!(!member.is_settled(), "another partition is to be dealt out");
    assert_eq!(member.next_action(secs(1)), None, "first everything is given up");
    assert_eq!(take_steps(&mut member), [Step::Revoke(parts(&[0, 1]))]);
    expect_join(&mut member, secs(1));
}

#[test]
fn an_eager_member_gives_everything_up_inside_a_poll_and_beats_until_then() {
    let mut member = member(settings(&[Assignor::Range]));
    settle(&mut member, 1, &[0, 1], Duration::ZERO);
    assert_eq!(take_steps(&mut member), [Step::Assign(parts(&[0, 1]))]);
    assert_eq!(member.next_deadline(), Some(secs(3)));
    let Some(Action::Heartbeat { ask, identity }) = member.next_action(secs(3)) else { panic!() };
    assert_eq!((identity.generation, &*identity.member_id), (1, "me"));
    member.on_heartbeat(ask, Err(Refused::Code(ErrorCode::REBALANCE_IN_PROGRESS)), secs(3));
    assert_eq!(member.next_action(secs(3)), None, "it waits for the user");
    let beat = member.next_action(secs(6));
    assert!(matches!(beat, Some(Action::Heartbeat { .. })), "and stays alive meanwhile: {beat:?}");
    assert_eq!(take_steps(&mut member), [Step::Revoke(parts(&[0, 1]))]);
    let join = expect_join(&mut member, secs(7));
    let told = wire::decode_subscription(&join.protocols[0].1).unwrap();
    assert!(told.owned.is_empty());
}

#[test]
fn a_cooperative_member_gives_up_what_moves_and_joins_again() {
    let mut member = member(settings(&[Assignor::CooperativeSticky]));
    settle(&mut member, 1, &[0, 1, 2], Duration::ZERO);
    take_steps(&mut member);
    let Some(Action::Heartbeat { ask, .. }) = member.next_action(secs(3)) else { panic!() };
    member.on_heartbeat(ask, Err(Refused::Code(ErrorCode::REBALANCE_IN_PROGRESS)), secs(3));
    let join = expect_join(&mut member, secs(3));
    let told = wire::decode_subscription(&join.protocols[0].1).unwrap();
    assert_eq!((told.owned, told.generation), (parts(&[0, 1, 2]), Some(1)));
    member.on_join(join.ask, Ok(follower(2, "cooperative-sticky")), secs(3));
    let sync = expect_sync(&mut member, secs(3));
    member.on_sync(sync.ask, Ok(wire::encode_assignment(&parts(&[0, 1]))), secs(3));
    assert_eq!(take_steps(&mut member), [Step::Revoke(parts(&[2])), Step::Assign(parts(&[]))]);
    assert_eq!(member.owned(), &parts(&[0, 1]));
    let join = expect_join(&mut member, secs(3));
    let told = wire::decode_subscription(&join.protocols[0].1).unwrap();
    assert_eq!((told.owned, told.generation), (parts(&[0, 1]), Some(2)));
}

#[test]
fn a_member_that_is_not_known_any_more_loses_what_it_had() {
    let lost: [(ErrorCode, &str); 2] = [(ErrorCode::UNKNOWN_MEMBER_ID, ""), (ErrorCode::ILLEGAL_GENERATION, "me")];
    for (code, id) in lost {
        let mut member = member(settings(&[Assignor::CooperativeSticky]));
        settle(&mut member, 1, &[0], Duration::ZERO);
        take_steps(&mut member);
        let Some(Action::Heartbeat { ask, .. }) = member.next_action(secs(3)) else { panic!() };
        member.on_heartbeat(ask, Err(Refused::Code(code)), secs(3));
        assert_eq!(member.identity(), None);
        assert_eq!(member.next_action(secs(3)), None);
        assert_eq!(take_steps(&mut member), [Step::Lose(parts(&[0]))], "{code}");
        let join = expect_join(&mut member, secs(3));
        assert_eq!(&*join.member_id, id, "{code}");
        assert!(wire::decode_subscription(&join.protocols[0].1).unwrap().owned.is_empty());
    }
}

#[test]
fn a_fenced_member_tells_its_user_and_tries_again_only_at_the_next_poll() {
    let mut member = member(MembershipSettings { instance_id: Some("i".into()), ..settings(&[Assignor::Range]) });
    settle(&mut member, 1, &[0], Duration::ZERO);
    take_steps(&mut member);
    let identity = member.identity().unwrap();
    member.on_commit_refused(&identity, ErrorCode::FENCED_INSTANCE_ID, secs(1));
    assert_eq!(member.next_action(secs(1)), None);
    member.on_poll();
    assert_eq!(member.next_action(secs(1)), None, "not before the user heard of it");
    assert_eq!(member.take_error().and_then(|error| error.code()), Some(ErrorCode::FENCED_INSTANCE_ID));
    member.on_poll();
    assert_eq!(take_steps(&mut member), [Step::Lose(parts(&[0]))], "before it could be given a record");
    expect_join(&mut member, secs(1));
}

#[test]
fn a_user_that_does_not_poll_makes_its_member_leave_until_it_polls_again() {
    let mut member = member(settings(&[Assignor::Range]));
    settle(&mut member, 1, &[0], Duration::ZERO);
    take_steps(&mut member);
    assert!(!matches!(member.next_action(secs(299)), Some(Action::Leave { .. })), "it waits in a poll");
    member.on_poll_end(secs(300));
    assert!(!matches!(member.next_action(secs(599)), Some(Action::Leave { .. })));
    assert!(member.next_deadline().unwrap() <= secs(600));
    let Some(Action::Leave { identity, .. }) = member.next_action(secs(600)) else { panic!() };
    assert_eq!(&*identity.member_id, "me");
    assert_eq!((member.next_action(secs(700)), member.next_deadline()), (None, None));
    member.on_poll();
    assert_eq!(take_steps(&mut member), [Step::Lose(parts(&[0]))], "before it could be given a record");
    member.on_coordinator(Ok(()), secs(701));
    assert_eq!(&*expect_join(&mut member, secs(701)).member_id, "");
}

#[test]
fn a_loss_while_the_user_hears_of_a_step_is_told_after_it_as_far_as_it_goes() {
    let lose = |member: &mut Membership| {
        let Some(Action::Heartbeat { ask, .. }) = member.next_action(secs(3)) else { panic!() };
        member.on_heartbeat(ask, Err(Refused::Code(ErrorCode::UNKNOWN_MEMBER_ID)), secs(3));
    };
    let mut assigned = member(settings(&[Assignor::CooperativeSticky]));
    settle(&mut assigned, 1, &[0, 1], Duration::ZERO);
    assert_eq!(assigned.next_step(), Some(Step::Assign(parts(&[0, 1]))));
    lose(&mut assigned);
    assigned.on_step_done();
    assert_eq!(take_steps(&mut assigned), [Step::Lose(parts(&[0, 1]))]);
    expect_join(&mut assigned, secs(3));

    let mut revoked = member(settings(&[Assignor::CooperativeSticky]));
    settle(&mut revoked, 1, &[0], Duration::ZERO);
    take_steps(&mut revoked);
    revoked.on_subscription(["u".into()].into());
    assert_eq!(revoked.next_action(secs(1)), None, "first it gives up what it reads no more");
    assert_eq!(revoked.next_step(), Some(Step::Revoke(parts(&[0]))));
    lose(&mut revoked);
    revoked.on_step_done();
    assert!(take_steps(&mut revoked).is_empty(), "nothing is left to lose");
    expect_join(&mut revoked, secs(3));
}

#[test]
fn who_unsubscribes_after_a_loss_loses_and_commits_nothing() {
    let mut member = member(settings(&[Assignor::Range]));
    settle(&mut member, 1, &[0], Duration::ZERO);
    take_steps(&mut member);
    member.on_poll_end(secs(1));
    assert!(matches!(member.next_action(secs(301)), Some(Action::Leave { .. })));
    member.on_unsubscribed("bye", Farewell::ByKind);
    assert_eq!(take_steps(&mut member), [Step::Lose(parts(&[0]))]);
    assert_eq!((member.next_action(secs(302)), member.is_leaving()), (None, false), "it has left");
}

#[test]
fn a_coordinator_that_moves_is_looked_for_and_the_generation_kept() {
    let mut member = member(settings(&[Assignor::Range]));
    settle(&mut member, 1, &[0], Duration::ZERO);
    take_steps(&mut member);
    let Some(Action::Heartbeat { ask, .. }) = member.next_action(secs(3)) else { panic!() };
    member.on_heartbeat(ask, Err(Refused::Code(ErrorCode::NOT_COORDINATOR)), secs(3));
    assert_eq!(member.next_action(secs(3)), None, "not before the back-off");
    let retry = member.next_deadline().unwrap();
    assert!(retry > secs(3) && retry <= secs(3) + Duration::from_millis(120), "{retry:?}");
    assert_eq!(member.next_action(retry), Some(Action::FindCoordinator));
    member.on_coordinator(Ok(()), secs(4));
    assert!(matches!(member.next_action(secs(6)), Some(Action::Heartbeat { .. })));
    assert!(member.is_settled(), "it is the same generation");
    // Silence for a session: it is looked for again.
    assert_eq!(member.next_action(secs(49)), None);
    assert_eq!(member.next_action(secs(50)), Some(Action::FindCoordinator));
}

#[test]
fn leaving_gives_up_first_then_says_good_bye_and_static_members_do_not() {
    for instance_id in [None, Some(Arc::from("i"))] {
        let is_static = instance_id.is_some();
        let mut member = member(MembershipSettings { instance_id, ..settings(&[Assignor::Range]) });
        settle(&mut member, 1, &[0], Duration::ZERO);
        take_steps(&mut member);
        member.on_unsubscribed("bye", Farewell::ByKind);
        assert_eq!(member.next_action(secs(1)), None);
        assert!(member.identity().is_some(), "the last commit needs it");
        assert_eq!(take_steps(&mut member), [Step::Revoke(parts(&[0]))]);
        let action = member.next_action(secs(1));
        assert_eq!(matches!(action, Some(Action::Leave { .. })), !is_static);
        assert_eq!(member.identity(), None);
        member.on_subscription(["t".into()].into());
        assert_eq!(&*expect_join(&mut member, secs(2)).member_id, "", "it comes back as a stranger");
    }
}

#[test]
fn answers_to_abandoned_requests_change_nothing() {
    let mut member = member(settings(&[Assignor::Range]));
    let join = expect_join(&mut member, Duration::ZERO);
    member.on_unsubscribed("bye", Farewell::ByKind);
    member.on_join(join.ask, Ok(follower(1, "range")), secs(1));
    assert_eq!((member.next_action(secs(1)), member.identity()), (None, None));
    member.on_subscription(["t".into()].into());
    let again = expect_join(&mut member, secs(2));
    member.on_join(join.ask, Ok(follower(1, "range")), secs(2));
    assert_eq!(member.next_action(secs(2)), None, "the old answer is no answer to the new question");
    member.on_join(again.ask, Ok(follower(2, "nonsense")), secs(2));
    let error = member.take_error().unwrap();
    assert!(error.to_string().contains("`nonsense`, which was not offered"), "{error}");
}

#[test]
fn a_share_that_cannot_be_read_is_told_and_asked_for_again() {
    let mut member = member(settings(&[Assignor::Range]));
    let join = expect_join(&mut member, Duration::ZERO);
    member.on_join(join.ask, Ok(follower(1, "range")), Duration::ZERO);
    let sync = expect_sync(&mut member, Duration::ZERO);
    member.on_sync(sync.ask, Ok(Bytes::from_static(&[0, 1, 0xff])), Duration::ZERO);
    assert!(member.take_error().is_some());
    member.on_poll();
    expect_join(&mut member, secs(1));
}

#[test]
fn a_subscription_that_changes_on_the_way_is_dealt_out_anew() {
    let mut member = member(settings(&[Assignor::Range]));
    let join = expect_join(&mut member, Duration::ZERO);
    member.on_subscription(["u".into()].into());
    member.on_join(join.ask, Ok(follower(1, "range")), Duration::ZERO);
    let sync = expect_sync(&mut member, Duration::ZERO);
    member.on_sync(sync.ask, Ok(wire::encode_assignment(&parts(&[0]))), Duration::ZERO);
    assert_eq!(take_steps(&mut member), [Step::Assign(parts(&[]))], "what is no longer wanted is not given out");
    let join = expect_join(&mut member, Duration::ZERO);
    assert_eq!(wire::decode_subscription(&join.protocols[0].1).unwrap().topics, ["u".into()].into());
}
