//! The controller as a whole, on real files.

use std::cell::RefCell;
use std::path::PathBuf;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::config::{Sources, load};

fn settings(overrides: &[(&str, &str)]) -> Arc<BrokerSettings> {
    let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Arc::new(load(&Sources { overrides, ..Default::default() }).unwrap().0)
}

/// Tells the test of every image, which it must take before the command answers.
struct Telling(UnboundedSender<Arc<Image>>);

impl Publisher for Telling {
    fn publish(&self, image: Arc<Image>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.send(image).unwrap();
        Box::pin(async {})
    }
}

struct Node {
    controller: Controller,
    first: Arc<Image>,
    published: RefCell<UnboundedReceiver<Arc<Image>>>,
}

impl Node {
    /// What was published since the last look, as versions.
    fn versions(&self) -> Vec<u64> {
        std::iter::from_fn(|| self.published.borrow_mut().try_recv().ok()).map(|image| image.version).collect()
    }

    fn last(&self) -> Arc<Image> {
        std::iter::from_fn(|| self.published.borrow_mut().try_recv().ok()).last().expect("an image was published")
    }
}

/// Runs one life of a node over `root` and ends it cleanly.
fn live<T>(root: &tempfile::TempDir, overrides: &[(&str, &str)], life: impl AsyncFnOnce(&Node) -> T) -> T {
    live_in(root, ["a", "b"], overrides, life)
}

fn live_in<T>(
    root: &tempfile::TempDir,
    log_dirs: [&str; 2],
    overrides: &[(&str, &str)],
    life: impl AsyncFnOnce(&Node) -> T,
) -> T {
    let settings = settings(overrides);
    let paths: Vec<PathBuf> = log_dirs.iter().map(|name| root.path().join(name)).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let dirs = DataDirs::open(&paths, settings.node_id, None, move || random.u128(..)).unwrap();
    let advertised = Advertised { host: "h".to_owned(), port: 9092 };
    let opened = open(settings, &dirs, advertised, random_bits).unwrap();
    let (tell, published) = unbounded_channel();
    let node = Node { controller: opened.controller(), first: opened.image(), published: RefCell::new(published) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let task = tokio::spawn(opened.run(Telling(tell)));
        let answer = life(&node).await;
        node.controller.stop().await;
        task.await.unwrap();
        answer
    })
}

fn topic(name: &str, partitions: i32) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions, replication_factor: -1, ..Default::default() }
}

fn epochs(image: &Image, name: &str) -> Vec<i32> {
    image.topics[name].partitions.iter().map(|partition| partition.leader_epoch.value()).collect()
}

#[test]
fn a_created_topic_is_published_before_its_answer_and_outlives_the_process() {
    let root = tempfile::tempdir().unwrap();
    let id = live(&root, &[], async |node| {
        let created = node.controller.create_topics(vec![topic("t", 3)], false).await.remove(0).unwrap();
        let image = node.last();
        assert_eq!(image.topics["t"].id, created.id);
        assert_eq!((created.partitions, created.replication_factor), (3, 1));
        created.id
    });
    live(&root, &[], async |node| {
        assert_eq!(node.first.topics["t"].id, id);
        assert_eq!(epochs(&node.first, "t"), [1, 1, 1]);
        assert_eq!(node.first.brokers[0].host, "h");
    });
}

#[test]
fn leader_epochs_rise_at_every_start() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        node.controller.create_topics(vec![topic("t", 1)], false).await.remove(0).unwrap();
        assert_eq!(epochs(&node.last(), "t"), [0]);
    });
    for life in 1..4 {
        live(&root, &[], async |node| assert_eq!(epochs(&node.first, "t"), [life]));
    }
}

#[test]
fn partitions_go_to_the_directory_with_the_fewest() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        node.controller.create_topics(vec![topic("t", 3), topic("u", 2)], false).await;
        let image = node.last();
        let places = |name: &str| -> Vec<usize> {
            image.topics[name].partitions.iter().map(|partition| partition.log_dir).collect()
        };
        assert_eq!((places("t"), places("u")), (vec![0, 1, 0], vec![1, 0]));
    });
}

#[test]
fn log_dirs_may_be_reordered() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        node.controller.create_topics(vec![topic("t", 2)], false).await.remove(0).unwrap();
    });
    live_in(&root, ["b", "a"], &[], async |node| {
        let places: Vec<usize> = node.first.topics["t"].partitions.iter().map(|partition| partition.log_dir).collect();
        assert_eq!(places, [1, 0]);
    });
}

#[test]
fn a_directory_may_leave_log_dirs_when_its_topics_are_gone() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        node.controller.create_topics(vec![topic("t", 2)], false).await.remove(0).unwrap();
        node.controller.delete_topics(vec![TopicRef::Name("t".to_owned())]).await.remove(0).unwrap();
    });
    live_in(&root, ["a", "c"], &[], async |node| assert!(node.first.topics.is_empty()));
}

#[test]
fn validating_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        let controller = &node.controller;
        let created = controller.create_topics(vec![topic("t", 2)], true).await.remove(0).unwrap();
        assert_eq!(created.partitions, 2);
        assert_ne!(created.id, TopicId::ZERO, "as in Kafka an id is drawn, though nobody will have it");
        controller.create_topics(vec![topic("t", 2)], false).await.remove(0).unwrap();
        assert_eq!(controller.create_partitions(vec![("t".to_owned(), 5)], true).await, [Ok(())]);
        let retention = ConfigEdits::Each(vec![("retention.ms".to_owned(), ConfigEdit::Set("5".to_owned()))]);
        assert_eq!(controller.alter_topic_configs("t".to_owned(), retention, true).await, Ok(()));
        assert_eq!(node.versions().len(), 1, "only the creation was published");
    });
}

#[test]
fn of_two_edits_of_a_list_at_once_both_stand() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        let controller = &node.controller;
        controller.create_topics(vec![topic("t", 1)], false).await.remove(0).unwrap();
        let policy = |edit| ConfigEdits::Each(vec![("cleanup.policy".to_owned(), edit)]);
        let [append, subtract] =
            [ConfigEdit::Append("compact".to_owned()), ConfigEdit::Subtract("delete".to_owned())].map(policy);
        let alter = |edits| controller.alter_topic_configs("t".to_owned(), edits, false);
        let outcomes = tokio::join!(alter(append), alter(subtract));
        assert_eq!(outcomes, (Ok(()), Ok(())));
        assert_eq!(node.last().topics["t"].configs["cleanup.policy"], "compact");
    });
}

#[test]
fn topics_change_and_go() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        let controller = &node.controller;
        let id = controller.create_topics(vec![topic("t", 1)], false).await.remove(0).unwrap().id;
        assert_eq!(controller.create_partitions(vec![("t".to_owned(), 3)], false).await, [Ok(())]);
        let change = |edit| ConfigEdits::Each(vec![("retention.ms".to_owned(), edit)]);
        let set = |value: &str| change(ConfigEdit::Set(value.to_owned()));
        controller.alter_topic_configs("t".to_owned(), set("5"), false).await.unwrap();
        let image = node.last();
        assert_eq!((image.topics["t"].partitions.len(), image.topics["t"].configs["retention.ms"].as_str()), (3, "5"));
        controller.alter_topic_configs("t".to_owned(), change(ConfigEdit::Remove), false).await.unwrap();
        assert!(node.last().topics["t"].configs.is_empty());
        let bad = controller.alter_topic_configs("t".to_owned(), set("-5"), false).await;
        let message = "Invalid value -5 for configuration retention.ms: Value must be at least -1";
        assert_eq!(bad, Err(CommandError::InvalidConfig(message.to_owned())));
        assert_eq!(controller.delete_topics(vec![TopicRef::Id(id)]).await, [Ok(("t".to_owned(), id))]);
        assert!(node.last().topics.is_empty());
        let again = controller.create_topics(vec![topic("t", 1)], false).await.remove(0).unwrap();
        assert_ne!(again.id, id, "a topic made again is another one");
    });
}

#[test]
fn producer_ids_are_never_given_twice() {
    let root = tempfile::tempdir().unwrap();
    let block = |root: &tempfile::TempDir| {
        live(root, &[], async |node| {
            let blocks = [
                node.controller.allocate_producer_ids().await.unwrap(),
                node.controller.allocate_producer_ids().await.unwrap(),
            ];
            assert!(node.versions().is_empty(), "shards need not know");
            blocks
        })
    };
    assert_eq!(block(&root), [0..1000, 1000..2000]);
    assert_eq!(block(&root), [2000..3000, 3000..4000]);
}

#[test]
fn internal_topics_are_made_once_as_the_settings_say() {
    let root = tempfile::tempdir().unwrap();
    let overrides = [("offsets.topic.num.partitions", "7"), ("offsets.topic.segment.bytes", "2MiB")];
    live(&root, &overrides, async |node| {
        node.controller.ensure_internal_topic("__consumer_offsets").await.unwrap();
        let image = node.last();
        let made = &image.topics["__consumer_offsets"];
        assert_eq!((made.partitions.len(), made.internal), (7, true));
        assert_eq!(
            (made.configs["cleanup.policy"].as_str(), made.configs["segment.bytes"].as_str()),
            ("compact", "2097152")
        );
        node.controller.ensure_internal_topic("__consumer_offsets").await.unwrap();
        assert!(node.versions().is_empty());
        let refused = node.controller.ensure_internal_topic("mine").await;
        assert!(matches!(refused, Err(CommandError::InvalidTopic(_))), "{refused:?}");
    });
}

#[test]
fn after_a_stop_every_command_answers_that_the_controller_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let controller = live(&root, &[], async |node| node.controller.clone());
    let answers = futures_lite::future::block_on(async {
        let created = controller.create_topics(vec![topic("a", 1), topic("b", 1)], false).await;
        (created, controller.allocate_producer_ids().await)
    });
    assert_eq!(answers, (vec![Err(CommandError::Gone), Err(CommandError::Gone)], Err(CommandError::Gone)));
}

fn make_partition(path: &std::path::Path, topic: TopicId) {
    std::fs::create_dir(path).unwrap();
    std::fs::write(path.join("partition.metadata"), format!("version: 0\ntopic_id: {topic}\n")).unwrap();
}

#[test]
fn what_a_crash_left_of_a_deleted_topic_goes_at_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let [left, kept] = ["a/left-0", "a/kept-0"].map(|name| root.path().join(name));
    live(&root, &[], async |node| {
        let created = node.controller.create_topics(vec![topic("left", 1), topic("kept", 1)], false).await;
        let id = |index: usize| created[index].as_ref().unwrap().id;
        make_partition(&left, id(0));
        make_partition(&kept, id(1));
        node.controller.delete_topics(vec![TopicRef::Name("left".to_owned())]).await.remove(0).unwrap();
    });
    assert!(left.exists(), "no shard removed it: as after a crash");
    live(&root, &[], async |_| {});
    assert!(!left.exists() && kept.exists());
}

#[test]
fn lost_metadata_is_refused_while_there_are_partitions() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |_| {});
    std::fs::remove_dir_all(root.path().join("a").join(log::METADATA_DIR)).unwrap();
    make_partition(&root.path().join("b/t-0"), TopicId::from_bytes([1; 16]));
    let settings = settings(&[]);
    let paths: Vec<PathBuf> = ["a", "b"].iter().map(|name| root.path().join(name)).collect();
    for _ in 0..2 {
        let dirs = DataDirs::open(&paths, settings.node_id, None, random_bits).unwrap();
        let opened = open(settings.clone(), &dirs, Advertised { host: "h".to_owned(), port: 1 }, random_bits);
        let error = opened.err().expect("it is refused").to_string();
        assert!(error.contains("holds t-0, but no directory holds a metadata log"), "{error}");
    }
}

#[test]
fn a_cluster_whose_metadata_lies_on_a_missing_disk_is_not_begun_anew() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |_| {});
    std::fs::rename(root.path().join("a"), root.path().join("elsewhere")).unwrap();
    let settings = settings(&[]);
    let paths: Vec<PathBuf> = ["a", "b"].iter().map(|name| root.path().join(name)).collect();
    let dirs = DataDirs::open(&paths, settings.node_id, None, random_bits).unwrap();
    let opened = open(settings, &dirs, Advertised { host: "h".to_owned(), port: 1 }, random_bits);
    let error = opened.err().expect("it is refused").to_string();
    assert!(error.contains("/a is new, but"), "{error}");
    assert!(!root.path().join("a").join(log::METADATA_DIR).exists());
}

/// A log that fails from its second batch on: the first is the start.
struct Failing {
    batches: u32,
}

impl MetadataLog for Failing {
    fn append(&mut self, _: &[Record], _: u64) -> Result<(), log::LogError> {
        self.batches += 1;
        if self.batches == 1 { Ok(()) } else { Err(log::LogError::Ended("disk on fire".to_owned())) }
    }

    fn wants_snapshot(&self) -> bool {
        false
    }

    fn snapshot(&mut self, _: &[Record], _: u64) -> Result<(), log::LogError> {
        unreachable!("never wanted")
    }
}

#[test]
fn what_was_not_committed_is_refused_and_not_published() {
    let root = tempfile::tempdir().unwrap();
    let settings = settings(&[]);
    let mut random = fastrand::Rng::with_seed(11);
    let dirs = DataDirs::open(&[root.path().join("a")], settings.node_id, None, move || random.u128(..)).unwrap();
    let mut opened = open(settings, &dirs, Advertised { host: "h".to_owned(), port: 1 }, random_bits).unwrap();
    opened.task.log = Box::new(Failing { batches: 1 });
    let (tell, mut published) = unbounded_channel();
    let controller = opened.controller();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (created, ids) = runtime.block_on(async {
        let task = tokio::spawn(opened.run(Telling(tell)));
        let created = controller.create_topics(vec![topic("t", 1), topic("a b", 1)], false).await;
        let ids = controller.allocate_producer_ids().await;
        controller.stop().await;
        task.await.unwrap();
        (created, ids)
    });
    let refused = |answer: &Result<_, CommandError>| matches!(answer, Err(CommandError::Storage(why)) if why.contains("disk on fire"));
    assert!(refused(&created[0].clone().map(|_| ())) && refused(&ids.map(|_| ())), "{created:?}");
    assert!(matches!(created[1], Err(CommandError::InvalidTopic(_))), "its own reason stays");
    assert!(published.try_recv().is_err());
}

/// The metadata log cut at every byte: each start shows a prefix of what was answered, never a mixture.
#[test]
fn a_node_killed_at_any_byte_of_its_metadata_log_starts_with_a_prefix() {
    let root = tempfile::tempdir().unwrap();
    live(&root, &[], async |node| {
        node.controller.create_topics(vec![topic("a", 1)], false).await;
        node.controller.create_topics(vec![topic("b", 2), topic("c", 1)], false).await;
        node.controller.delete_topics(vec![TopicRef::Name("a".to_owned())]).await;
    });
    let path = root.path().join("a").join(log::METADATA_DIR).join(format!("{:020}.log", 0));
    let whole = std::fs::read(&path).unwrap();
    let snapshot_end = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let states = ["", "a", "a b c", "b c"];
    let mut reached = 0;
    for cut in (snapshot_end..=whole.len()).step_by(7).chain([whole.len()]) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let names =
            live(&root, &[], async |node| node.first.topics.keys().map(|name| &**name).collect::<Vec<_>>().join(" "));
        let state = states.iter().position(|state| *state == names).unwrap_or_else(|| panic!("cut at {cut}: {names}"));
        assert!(state >= reached, "cut at {cut}: {names} after {}", states[reached]);
        reached = state;
    }
    assert_eq!(reached, states.len() - 1);
}
