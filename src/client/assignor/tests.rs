//! What an assignor owes a group, and the bytes members exchange.

use super::*;

fn part(topic: &str, index: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition: PartitionIndex::new(index).unwrap() }
}

fn parts(topic: &str, indexes: &[i32]) -> Vec<TopicPartition> {
    indexes.iter().map(|index| part(topic, *index)).collect()
}

fn topics(list: &[(&str, usize)]) -> Topics {
    list.iter().map(|(name, count)| ((*name).into(), vec![BTreeSet::new(); *count])).collect()
}

fn member(id: &str, wants: &[&str]) -> Member {
    let topics = wants.iter().map(|topic| (*topic).into()).collect();
    Member { id: id.into(), instance: None, subscription: Subscription { topics, ..Default::default() } }
}

fn racked(id: &str, wants: &[&str], rack: &str) -> Member {
    let mut member = member(id, wants);
    member.subscription.rack = Some(rack.into());
    member
}

#[test]
fn range_gives_the_first_members_one_more_of_each_topic() {
    let members = [member("b", &["t", "u"]), member("a", &["t", "u"])];
    let dealt = Assignor::Range.assign(&topics(&[("t", 3), ("u", 3)]), &members);
    assert_eq!(dealt[1], [parts("t", &[0, 1]), parts("u", &[0, 1])].concat());
    assert_eq!(dealt[0], [parts("t", &[2]), parts("u", &[2])].concat());
}

#[test]
fn range_puts_static_members_first_by_their_instance() {
    let mut old = member("z", &["t"]);
    old.instance = Some("i".into());
    let dealt = Assignor::Range.assign(&topics(&[("t", 3)]), &[member("a", &["t"]), old]);
    assert_eq!(dealt, [parts("t", &[2]), parts("t", &[0, 1])]);
}

#[test]
fn range_matches_racks_and_keeps_topics_alike() {
    let in_racks = |racks: &[&str]| racks.iter().map(|rack| BTreeSet::from([Rack::from(*rack)])).collect::<Vec<_>>();
    let mut there = Topics::new();
    there.insert("t".into(), in_racks(&["y", "x", "y", "x"]));
    there.insert("u".into(), in_racks(&["y", "x", "y", "x"]));
    let members = [racked("a", &["t", "u"], "x"), racked("b", &["t", "u"], "y")];
    let dealt = Assignor::Range.assign(&there, &members);
    assert_eq!(dealt[0], [parts("t", &[1, 3]), parts("u", &[1, 3])].concat());
    assert_eq!(dealt[1], [parts("t", &[0, 2]), parts("u", &[0, 2])].concat());
    // Replicas in every rack: racks say nothing, and plain ranges are dealt out.
    let everywhere = vec![BTreeSet::from(["x".into(), "y".into()]); 4];
    let there = Topics::from([("t".into(), everywhere)]);
    assert_eq!(Assignor::Range.assign(&there, &members)[0], parts("t", &[0, 1]));
}

#[test]
fn round_robin_goes_on_with_the_next_member_at_the_next_topic() {
    let members = [member("a", &["t", "u"]), member("b", &["t", "u"]), member("c", &["u"])];
    let dealt = Assignor::RoundRobin.assign(&topics(&[("t", 3), ("u", 3), ("nobody", 2)]), &members);
    assert_eq!(dealt[0], [parts("t", &[0, 2]), parts("u", &[2])].concat());
    assert_eq!(dealt[1], [parts("t", &[1]), parts("u", &[0])].concat());
    assert_eq!(dealt[2], parts("u", &[1]));
}

#[test]
fn a_newcomer_gets_its_share_and_nothing_else_moves() {
    let there = topics(&[("t", 6)]);
    let mut a = member("a", &["t"]);
    a.subscription.user_data = Assignor::Sticky.user_data(&parts("t", &[0, 1, 2]).into_iter().collect(), Some(3));
    let mut b = member("b", &["t"]);
    b.subscription.user_data = Assignor::Sticky.user_data(&parts("t", &[3, 4, 5]).into_iter().collect(), Some(3));
    let dealt = Assignor::Sticky.assign(&there, &[a, b, member("c", &["t"])]);
    assert_eq!(dealt, [parts("t", &[0, 1]), parts("t", &[3, 4]), parts("t", &[2, 5])]);
}

#[test]
fn the_claim_of_a_newer_generation_is_believed() {
    let there = topics(&[("t", 2)]);
    let with = |id: &str, indexes: &[i32], generation| {
        let mut member = member(id, &["t"]);
        let had = parts("t", indexes).into_iter().collect();
        member.subscription.user_data = Assignor::Sticky.user_data(&had, generation);
        member
    };
    let dealt = Assignor::Sticky.assign(&there, &[with("a", &[0, 1], Some(1)), with("b", &[0], Some(2))]);
    assert_eq!(dealt, [parts("t", &[1]), parts("t", &[0])]);
    let mut broken = member("a", &["t"]);
    broken.subscription.user_data = Some(Bytes::from_static(&[0xff; 9]));
    assert_eq!(Assignor::Sticky.assign(&there, &[broken])[0].len(), 2, "unreadable data is no data");
}

#[test]
fn a_chain_of_moves_evens_out_what_single_moves_cannot() {
    // a reads t alone can give; b reads t and u; c reads u: a has 3, b has 2, c has 0, and only through b can c be helped.
    let there = topics(&[("t", 3), ("u", 2)]);
    let with = |id: &str, wants: &[&str], owned: Vec<TopicPartition>| {
        let mut member = member(id, wants);
        member.subscription.owned = owned.into_iter().collect();
        member.subscription.generation = Some(1);
        member
    };
    let members = [
        with("a", &["t"], parts("t", &[0, 1, 2])),
        with("b", &["t", "u"], parts("u", &[0, 1])),
        with("c", &["u"], vec![]),
    ];
    let dealt = sticky::assign(&there, &members, &cooperative_claims(&members));
    let mut shares: Vec<usize> = dealt.iter().map(Vec::len).collect();
    shares.sort_unstable();
    assert_eq!(shares, [1, 2, 2]);
}

#[test]
fn cooperative_sticky_keeps_back_what_another_member_still_reads() {
    let there = topics(&[("t", 2)]);
    let mut a = member("a", &["t"]);
    a.subscription.owned = parts("t", &[0, 1]).into_iter().collect();
    a.subscription.generation = Some(1);
    let b = member("b", &["t"]);
    let first = Assignor::CooperativeSticky.assign(&there, &[a.clone(), b.clone()]);
    assert_eq!(first, [parts("t", &[0]), vec![]]);
    a.subscription.owned = first[0].iter().cloned().collect();
    assert_eq!(Assignor::CooperativeSticky.assign(&there, &[a, b]), [parts("t", &[0]), parts("t", &[1])]);
}

#[test]
fn names_and_classes_are_read_and_others_refused() {
    for assignor in Assignor::ALL {
        assert_eq!(Assignor::parse(assignor.name()), Ok(assignor));
        let class = format!("org.apache.kafka.clients.consumer.{}", assignor.class());
        assert_eq!(Assignor::parse(&class), Ok(assignor));
    }
    assert!(Assignor::parse("uniform").is_err());
    assert_eq!(
        Assignor::common_protocol(&[Assignor::Range, Assignor::CooperativeSticky]),
        RebalanceProtocol::Eager,
        "as Java's default pair"
    );
    assert_eq!(Assignor::common_protocol(&[Assignor::CooperativeSticky]), RebalanceProtocol::Cooperative);
}

/// What any assignor owes, over random groups that change from generation to generation.
#[test]
fn every_partition_goes_to_one_subscriber_evenly_and_stays_where_it_can() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let names = ["a", "b", "c", "d", "e"];
        let mut there = topics(&names.map(|name| (name, random.usize(0..7))));
        there.insert("empty".into(), Vec::new());
        let equal = random.bool();
        let member_of = |index: usize, random: &mut fastrand::Rng| {
            let wants: Vec<&str> = names.iter().copied().filter(|_| equal || random.bool()).collect();
            let mut one = member(&format!("m{index}"), &wants);
            one.instance = random.bool().then(|| format!("i{index}").into());
            one.subscription.topics.insert("missing".into());
            one
        };
        let mut members: Vec<Member> = (0..random.usize(1..6)).map(|index| member_of(index, &mut random)).collect();
        let mut joined = members.len();
        for assignor in Assignor::ALL {
            let mut generation = 0;
            for _ in 0..6 {
                let dealt = assignor.assign(&there, &members);
                check(&there, &members, &dealt, assignor, seed);
                let mut shuffled = members.clone();
                random.shuffle(&mut shuffled);
                for (member, given) in shuffled.iter().zip(assignor.assign(&there, &shuffled)) {
                    let place = members.iter().position(|other| other.id == member.id).unwrap();
                    assert_eq!(given, dealt[place], "seed {seed}: {assignor} depends on the order of members");
                }
                generation += 1;
                for (member, given) in members.iter_mut().zip(&dealt) {
                    let had: BTreeSet<TopicPartition> = given.iter().cloned().collect();
                    member.subscription.user_data = assignor.user_data(&had, Some(generation));
                    if assignor.protocol() == RebalanceProtocol::Cooperative {
                        member.subscription.owned = had;
                        member.subscription.generation = Some(generation);
                    }
                }
                let settled = assignor.assign(&there, &members);
                if matches!(assignor, Assignor::Sticky | Assignor::CooperativeSticky) {
                    for (given, now) in dealt.iter().zip(&settled) {
                        assert!(
                            given.iter().all(|partition| now.contains(partition)),
                            "seed {seed}: {assignor} moved without need"
                        );
                    }
                }
                match random.u8(..3) {
                    0 if members.len() > 1 => _ = members.remove(random.usize(..members.len())),
                    1 => {
                        joined += 1;
                        members.push(member_of(joined, &mut random));
                    }
                    _ => there.get_mut(names[random.usize(..names.len())]).unwrap().push(BTreeSet::new()),
                }
            }
            for member in &mut members {
                member.subscription.owned.clear();
                member.subscription.user_data = None;
            }
        }
    }
}

fn check(there: &Topics, members: &[Member], dealt: &[Vec<TopicPartition>], assignor: Assignor, seed: u64) {
    let mut owner = BTreeMap::new();
    for (index, given) in dealt.iter().enumerate() {
        for partition in given {
            assert!(members[index].wants(&partition.topic), "seed {seed}: {assignor} gives what nobody asked for");
            assert_eq!(owner.insert(partition, index), None, "seed {seed}: {assignor} gives {partition} twice");
        }
    }
    let mut kept_back = 0;
    for (topic, partitions) in there {
        let wanted = members.iter().any(|member| member.wants(topic));
        for index in 0..partitions.len() {
            let partition = part(topic, i32::try_from(index).unwrap());
            let held = members.iter().any(|member| member.subscription.owned.contains(&partition));
            match owner.contains_key(&partition) {
                given if given == wanted => {}
                false if held && assignor == Assignor::CooperativeSticky => kept_back += 1,
                given => panic!("seed {seed}: {assignor}: {partition} wanted {wanted}, given {given}"),
            }
        }
    }
    let sticky = matches!(assignor, Assignor::Sticky | Assignor::CooperativeSticky);
    if sticky && kept_back == 0 {
        for (from, given) in dealt.iter().enumerate() {
            for (to, others) in dealt.iter().enumerate().filter(|(_, others)| others.len() + 1 < given.len()) {
                let movable = given.iter().any(|partition| members[to].wants(&partition.topic));
                assert!(!movable, "seed {seed}: {from} has {} and {to} {}", given.len(), others.len());
            }
        }
    }
}

/// The bytes members exchange.
mod vectors {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Of two console consumers of Kafka 4.4 in rack r1, one of which joined after the other had three partitions of `vec`, as
    /// DescribeGroups showed them.
    #[test]
    fn members_write_the_bytes_that_java_members_write() {
        let written = [
            (Assignor::Range, vec![], vec![], None, "0003000000010003766563ffffffff00000000ffffffff00027231"),
            (Assignor::Range, vec![], vec![], Some(1), "0003000000010003766563ffffffff000000000000000100027231"),
            (
                Assignor::Sticky,
                vec![0, 1, 2],
                vec![],
                Some(1),
                "00030000000100037665630000001d0000000100037665630000000300000000000000010000000200000001000000000000000100027231",
            ),
            (
                Assignor::CooperativeSticky,
                vec![0, 1],
                vec![0, 1],
                Some(2),
                "000300000001000376656300000004000000020000000100037665630000000200000000000000010000000200027231",
            ),
            (
                Assignor::CooperativeSticky,
                vec![],
                vec![],
                Some(2),
                "00030000000100037665630000000400000002000000000000000200027231",
            ),
        ];
        for (assignor, had, owned, generation, hex) in written {
            let had = parts("vec", &had).into_iter().collect();
            let subscription = Subscription {
                topics: ["vec".into()].into(),
                user_data: assignor.user_data(&had, generation),
                owned: parts("vec", &owned).into_iter().collect(),
                generation,
                rack: Some("r1".into()),
            };
            assert_eq!(wire::encode_subscription(&subscription), bytes(hex), "{assignor}");
            assert_eq!(wire::decode_subscription(&bytes(hex)), Ok(subscription));
        }
        let assigned: BTreeSet<TopicPartition> = parts("vec", &[0, 1]).into_iter().collect();
        let hex = "0003000000010003766563000000020000000000000001ffffffff";
        assert_eq!(wire::encode_assignment(&assigned), bytes(hex));
        assert_eq!(wire::decode_assignment(&bytes(hex)), Ok(assigned));
    }

    #[test]
    fn every_version_of_a_subscription_is_read() {
        let written = Subscription {
            topics: ["t".into(), "u".into()].into(),
            user_data: Some(Bytes::from_static(&[0, 0, 0, 7])),
            owned: parts("t", &[1, 2]).into_iter().collect(),
            generation: Some(7),
            rack: Some("r1".into()),
        };
        let bytes = wire::encode_subscription(&written);
        assert_eq!(wire::decode_subscription(&bytes), Ok(written.clone()));
        for (version, len) in [(0u8, 20), (1, 20 + 4 + 3 + 4 + 8), (2, 20 + 4 + 3 + 4 + 8 + 4)] {
            let mut older = bytes[..len].to_vec();
            older[1] = version;
            let read = wire::decode_subscription(&older).unwrap();
            assert_eq!((read.topics, read.user_data), (written.topics.clone(), written.user_data.clone()));
            assert_eq!(read.owned.is_empty(), version < 1);
            assert_eq!(read.generation, written.generation.filter(|_| version >= 2));
            assert_eq!(read.rack, None);
        }
        let mut newer = [&bytes[..], b"more"].concat();
        newer[1] = 9;
        assert_eq!(wire::decode_subscription(&newer), Ok(written));
    }

    #[test]
    fn hostile_bytes_are_errors() {
        assert_eq!(wire::decode_assignment(&[]), Ok(BTreeSet::new()));
        assert!(wire::decode_assignment(&[0]).is_err());
        assert!(wire::decode_subscription(&[0xff, 0xff, 0, 0, 0, 0]).is_err(), "a negative version");
        assert!(wire::decode_subscription(&[0, 3, 0x7f, 0xff, 0xff, 0xff]).is_err(), "a count without bytes");
        let negative = [0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert!(wire::decode_assignment(&negative).is_err(), "a negative partition");
        let good = wire::encode_assignment(&parts("t", &[0, 1]).into_iter().collect());
        for len in 1..good.len() {
            assert!(wire::decode_assignment(&good[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn sticky_data_of_both_layouts_is_read() {
        let had: BTreeSet<TopicPartition> = parts("t", &[0, 3]).into_iter().collect();
        let bytes = wire::encode_sticky_data(&had, Some(5));
        assert_eq!(wire::decode_sticky_data(&bytes), Ok((had.clone(), Some(5))));
        assert_eq!(wire::decode_sticky_data(&bytes[..bytes.len() - 4]), Ok((had, None)));
        assert_eq!(wire::decode_cooperative_data(&wire::encode_cooperative_data(Some(9))), Ok(Some(9)));
        assert_eq!(wire::decode_cooperative_data(&wire::encode_cooperative_data(None)), Ok(None));
    }
}
