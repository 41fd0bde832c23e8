//! The rules of topics, by table.

use super::super::image::tests::{broker, empty};
use super::*;
use crate::config::{Sources, load};

fn settings(overrides: &[(&str, &str)]) -> BrokerSettings {
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    load(&Sources { overrides, ..Default::default() }).unwrap().0
}

/// Topic ids 101, 102, 103 …
fn ids() -> impl FnMut() -> TopicId {
    ids_after(100)
}

fn ids_after(mut last: u8) -> impl FnMut() -> TopicId {
    move || {
        last += 1;
        TopicId::from_bytes([last; 16])
    }
}

/// One broker and the topics `t1` (one partition) and `a.b` (two).
fn image() -> Image {
    let image = empty().replay(&[broker()]).unwrap();
    let topics = [counted("t1", 1, 1), counted("a.b", 2, 1)];
    let plan = plan_create_topics(&image, &settings(&[]), &topics, ids_after(0));
    image.replay(&plan.records).unwrap()
}

fn counted(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions, replication_factor, ..Default::default() }
}

fn by_hand(assignment: &[(i32, &[i32])]) -> NewTopic {
    let assignment = assignment.iter().map(|(partition, brokers)| (*partition, brokers.to_vec())).collect();
    NewTopic { assignment, ..counted("m", -1, -1) }
}

fn refusal(topic: NewTopic) -> Option<CommandError> {
    plan_create_topics(&image(), &settings(&[]), &[topic], ids()).answers.remove(0).err()
}

/// Each line is what Apache Kafka 4.4 answered to the same request on one broker.
#[test]
fn topics_are_refused_in_kafkas_words() {
    use CommandError::{
        InvalidConfig, InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest,
        InvalidTopic, PolicyViolation,
    };
    let long = "x".repeat(250);
    for (topic, kind, message) in [
        (
            counted("", 1, 1),
            InvalidTopic as fn(String) -> CommandError,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (counted(".", 1, 1), InvalidTopic, "Topic name is invalid: '.' is not allowed"),
        (counted("..", 1, 1), InvalidTopic, "Topic name is invalid: '..' is not allowed"),
        (
            counted("a b", 1, 1),
            InvalidTopic,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            counted(&long, 1, 1),
            InvalidTopic,
            &format!("Topic name is invalid: the length of '{long}' is longer than the max allowed length 249"),
        ),
        (counted("t1", 1, 1), CommandError::TopicExists, "Topic 't1' already exists."),
        (counted("a_b", 1, 1), InvalidTopic, "Topic 'a_b' collides with existing topic: a.b"),
        (counted("z", 0, 1), InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
        (counted("z", -2, 1), InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
        (
            counted("z", 1, 0),
            InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            counted("z", 1, -2),
            InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            counted("z", 1, 3),
            InvalidReplicationFactor,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) \
          are registered or some brokers have all their log directories cordoned.",
        ),
        (counted("z", 20_000, 1), PolicyViolation, "Excessively large number of partitions per request."),
        (
            counted("__cluster_metadata", 1, 1),
            InvalidRequest,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            by_hand(&[(0, &[1]), (2, &[1])]),
            InvalidReplicaAssignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            by_hand(&[(-1, &[1])]),
            InvalidReplicaAssignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            by_hand(&[(0, &[1]), (0, &[1])]),
            InvalidReplicaAssignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            by_hand(&[(0, &[7])]),
            InvalidReplicaAssignment,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            by_hand(&[(0, &[1, 1])]),
            InvalidReplicaAssignment,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            by_hand(&[(0, &[])]),
            InvalidReplicaAssignment,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic { partitions: 1, ..by_hand(&[(0, &[1])]) },
            InvalidRequest,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic { replication_factor: 1, ..by_hand(&[(0, &[1])]) },
            InvalidRequest,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic { configs: vec![("retention.ms".into(), None)], ..counted("z", 1, 1) },
            InvalidConfig,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic { configs: vec![("x".into(), Some("1".into()))], ..counted("z", 1, 1) },
            InvalidConfig,
            "Unknown topic config name: x",
        ),
    ] {
        let refused = refusal(topic).unwrap_or_else(|| panic!("accepted, not: {message}"));
        assert_eq!(refused.to_string(), message);
        assert_eq!(std::mem::discriminant(&refused), std::mem::discriminant(&kind(String::new())), "{message}");
    }
}

#[test]
fn a_name_is_judged_before_configs_and_those_before_counts() {
    let config = vec![("x".to_owned(), Some("1".to_owned()))];
    let all = NewTopic { configs: config.clone(), ..counted("a b", 0, 0) };
    assert!(matches!(refusal(all), Some(CommandError::InvalidTopic(_))));
    let exists = NewTopic { configs: config.clone(), ..counted("t1", 0, 0) };
    assert!(matches!(refusal(exists), Some(CommandError::TopicExists(_))));
    let configs = NewTopic { configs: config, ..counted("z", 0, 0) };
    assert!(matches!(refusal(configs), Some(CommandError::InvalidConfig(_))));
    assert!(matches!(refusal(counted("z", 0, 0)), Some(CommandError::InvalidReplicationFactor(_))));
}

#[test]
fn defaults_fill_what_the_creator_left_open() {
    let settings = settings(&[("num.partitions", "4")]);
    let plan =
        plan_create_topics(&image(), &settings, &[counted("d", -1, -1), by_hand(&[(1, &[1]), (0, &[1])])], ids());
    let counts: Vec<(i32, i16)> = plan
        .answers
        .into_iter()
        .map(|answer| answer.map(|topic| (topic.partitions, topic.replication_factor)).unwrap())
        .collect();
    assert_eq!(counts, [(4, 1), (2, 1)]);
}

#[test]
fn one_bad_topic_does_not_spoil_the_others() {
    let topics =
        [counted("n", 1, 1), counted("dup", 1, 1), counted("a b", 1, 1), counted("dup", 2, 1), counted("o", 1, 1)];
    let plan = plan_create_topics(&image(), &settings(&[]), &topics, ids());
    let duplicate = Err(CommandError::InvalidRequest("Duplicate topic name.".to_owned()));
    let answers: Vec<Result<i32, CommandError>> =
        plan.answers.into_iter().map(|answer| answer.map(|topic| topic.partitions)).collect();
    assert_eq!((&answers[0], &answers[1], &answers[3], &answers[4]), (&Ok(1), &duplicate, &duplicate, &Ok(1)));
    assert!(matches!(answers[2], Err(CommandError::InvalidTopic(_))));
    let image = image().replay(&plan.records).unwrap();
    assert_eq!(image.topics.keys().map(|name| &**name).collect::<Vec<_>>(), ["a.b", "n", "o", "t1"]);
}

#[test]
fn kafka_lets_names_collide_within_one_request() {
    let plan = plan_create_topics(&image(), &settings(&[]), &[counted("x.y", 1, 1), counted("x_y", 1, 1)], ids());
    assert!(plan.answers.iter().all(Result::is_ok), "{:?}", plan.answers);
    assert_eq!(image().replay(&plan.records).unwrap().topics.len(), 4);
}

#[test]
fn partitions_are_refused_in_kafkas_words() {
    use CommandError::{InvalidPartitions, InvalidRequest, PolicyViolation};
    for (asked, answer) in [
        (&[("nope", 2)][..], unknown_topic()),
        (
            &[("t1", 0)],
            InvalidPartitions("The topic t1 currently has 1 partition(s); 0 would not be an increase.".into()),
        ),
        (
            &[("t1", -1)],
            InvalidPartitions("The topic t1 currently has 1 partition(s); -1 would not be an increase.".into()),
        ),
        (&[("t1", 1)], InvalidPartitions("Topic already has 1 partition(s).".into())),
        (&[("t1", 100_000)], PolicyViolation("Excessively large number of additional partitions per request.".into())),
        (&[("t1", 2), ("t1", 3)], InvalidRequest("Duplicate topic name.".into())),
    ] {
        let asked: Vec<(String, i32)> = asked.iter().map(|(name, total)| ((*name).to_owned(), *total)).collect();
        let plan = plan_create_partitions(&image(), &asked);
        assert!(plan.records.is_empty());
        assert!(plan.answers.iter().all(|seen| *seen == Err(answer.clone())), "{:?}", plan.answers);
    }
    let plan = plan_create_partitions(&image(), &[("t1".to_owned(), 4)]);
    let image = image().replay(&plan.records).unwrap();
    let places: Vec<usize> = image.topics["t1"].partitions.iter().map(|partition| partition.log_dir).collect();
    assert_eq!(places, [0, 1, 0, 1], "t1 and a.b began with 2 in the first and 1 in the second");
}

#[test]
fn deletion_answers_item_by_item() {
    let image = image();
    let id = image.topics["t1"].id;
    let unknown = TopicId::from_bytes([99; 16]);
    let asked = [TopicRef::Name("nope".into()), TopicRef::Id(unknown), TopicRef::Id(id), TopicRef::Name("t1".into())];
    let plan = plan_delete_topics(&image, &settings(&[]), &asked);
    assert_eq!(
        plan.answers,
        [
            Err(unknown_topic()),
            Err(CommandError::UnknownTopicId("This server does not host this topic ID.".into())),
            Ok(("t1".to_owned(), id)),
            Err(CommandError::InvalidRequest("Duplicate topic name.".into())),
        ]
    );
    assert_eq!(plan.records, [Record::TopicGone { topic: id.to_string() }]);
    let off = plan_delete_topics(&image, &settings(&[("delete.topic.enable", "false")]), &asked[2..3]);
    assert_eq!((off.answers, off.records), (vec![Err(CommandError::DeletionDisabled)], vec![]));
}

#[test]
fn config_changes_are_judged_as_a_whole() {
    let change = |pairs: &[(&str, Option<&str>)]| {
        let edit = |value: Option<&str>| value.map_or(ConfigEdit::Remove, |value| ConfigEdit::Set(value.to_owned()));
        let edits = pairs.iter().map(|(name, value)| ((*name).to_owned(), edit(*value))).collect();
        plan_alter_topic_configs(&image(), &settings(&[]), "t1", &ConfigEdits::Each(edits))
    };
    assert!(matches!(change(&[("retention.ms", Some("5"))]), Ok(Some(Record::Configs { .. }))));
    assert_eq!(change(&[("retention.ms", None)]), Ok(None), "nothing to remove, nothing to write");
    let conflict = change(&[("min.compaction.lag.ms", Some("100")), ("max.compaction.lag.ms", Some("10"))]);
    assert!(matches!(conflict, Err(CommandError::InvalidConfig(_))));
    let long = "x".repeat(CONFIG_VALUE_BYTES_MAX + 1);
    assert!(
        matches!(change(&[("retention.ms", Some(&long))]), Err(CommandError::InvalidConfig(why)) if why.len() < 200)
    );
    let none = ConfigEdits::Each(Vec::new());
    let of_nobody = |edits: &ConfigEdits| plan_alter_topic_configs(&image(), &settings(&[]), "nope", edits);
    assert!(matches!(of_nobody(&none), Err(CommandError::UnknownTopic(_))));
    let invalid = ConfigEdits::Each(vec![("retention.ms".to_owned(), ConfigEdit::Set("x".to_owned()))]);
    assert!(
        matches!(of_nobody(&invalid), Err(CommandError::InvalidConfig(_))),
        "what is wrong of itself is told first"
    );
}

#[test]
fn lists_are_edited_from_the_topics_own_or_from_kafkas_default() {
    let broker = settings(&[("log.cleanup.policy", "compact")]);
    let edited = |image: &Image, edits: ConfigEdits| {
        let record = plan_alter_topic_configs(image, &broker, "t1", &edits)?;
        Ok::<_, CommandError>(record.map_or_else(|| image.clone(), |record| image.replay(&[record]).unwrap()))
    };
    let policy = |edit| ConfigEdits::Each(vec![("cleanup.policy".to_owned(), edit)]);
    let configs = |image: &Image| image.topics["t1"].configs.clone();
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);

    let appended = edited(&image(), policy(ConfigEdit::Append(" compact , compact".to_owned()))).unwrap();
    assert_eq!(configs(&appended), one("cleanup.policy", "delete,compact"), "whatever the broker's default");
    let again = edited(&appended, policy(ConfigEdit::Append("delete".to_owned()))).unwrap();
    assert_eq!(configs(&again), configs(&appended), "a word that is there stays where it is");
    let rest = edited(&appended, policy(ConfigEdit::Subtract("delete,other".to_owned()))).unwrap();
    assert_eq!(configs(&rest), one("cleanup.policy", "compact"));
    let replaced = edited(&rest, ConfigEdits::Exactly(one("retention.ms", "5"))).unwrap();
    assert_eq!(configs(&replaced), one("retention.ms", "5"), "what is not given goes, whoever set it");
    let no_list = ConfigEdits::Each(vec![("retention.ms".to_owned(), ConfigEdit::Append("5".to_owned()))]);
    let refused = CommandError::InvalidConfig("'retention.ms' is not a list".to_owned());
    assert_eq!(edited(&image(), no_list).err(), Some(refused));
}
