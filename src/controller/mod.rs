//! The metadata of the cluster, and the one task that changes it.
//!
//! Shell: runs on the control thread; shards see only frozen images. Owns the order of commands: each is planned on the image,
//! committed to the metadata log, replayed, published to every shard, and only then answered. Does not own the rules
//! ([`plan`], pure), what records mean ([`image`], pure), nor the logs of partitions. Always: what was answered is on disk and known
//! to every shard; when the metadata log fails, every later change is refused until restart. Source: Kafka's KRaft controller.

mod command;
pub mod data_dirs;
pub mod image;
pub mod log;
mod plan;

use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub use self::command::{CommandError, ConfigEdit, ConfigEdits, CreatedTopic, NewTopic, TopicRef};
use self::data_dirs::{DataDirs, DirError};
use self::image::{DirectoryId, Image, Record, ReplayError};
use self::log::{FileLog, MetadataLog, OpenLogError, OpenedLog};
use self::plan::Plan;
use crate::config::BrokerSettings;
use crate::types::TopicId;

/// Commands that may wait for the task; a sender past that waits itself.
const COMMANDS_WAITING_MAX: usize = 1024;

/// Publishes an image to all shards; the server's boot implements it over the hops between cores.
pub trait Publisher: Send + 'static {
    /// Resolves when every shard has applied `image` (logs opened, or closed and on their way out).
    fn publish(&self, image: Arc<Image>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

type Answer<T> = oneshot::Sender<T>;

enum Command {
    CreateTopics {
        topics: Vec<NewTopic>,
        validate_only: bool,
        answer: Answer<Vec<Result<CreatedTopic, CommandError>>>,
    },
    DeleteTopics {
        topics: Vec<TopicRef>,
        answer: Answer<Vec<Result<(String, TopicId), CommandError>>>,
    },
    CreatePartitions {
        topics: Vec<(String, i32)>,
        validate_only: bool,
        answer: Answer<Vec<Result<(), CommandError>>>,
    },
    AlterTopicConfigs {
        topic: String,
        edits: ConfigEdits,
        validate_only: bool,
        answer: Answer<Result<(), CommandError>>,
    },
    AllocateProducerIds {
        answer: Answer<Result<Range<i64>, CommandError>>,
    },
    EnsureInternalTopic {
        name: String,
        answer: Answer<Result<(), CommandError>>,
    },
    Stop {
        answer: Answer<()>,
    },
}

/// Handle to the controller. Clones go to shards: the futures belong to no runtime. Each change is committed (fsynced) and applied
/// by every shard before it answers. A dropped future does not take its command back.
#[derive(Clone)]
pub struct Controller {
    commands: mpsc::Sender<Command>,
}

impl Controller {
    /// Creates (or only validates) topics; one answer each, in order.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> Vec<Result<CreatedTopic, CommandError>> {
        let count = topics.len();
        self.ask_for_each(count, |answer| Command::CreateTopics { topics, validate_only, answer }).await
    }

    /// Deletes topics; one answer each, in order.
    pub async fn delete_topics(&self, topics: Vec<TopicRef>) -> Vec<Result<(String, TopicId), CommandError>> {
        let count = topics.len();
        self.ask_for_each(count, |answer| Command::DeleteTopics { topics, answer }).await
    }

    /// Raises partition counts: topic and new total.
    pub async fn create_partitions(
        &self,
        topics: Vec<(String, i32)>,
        validate_only: bool,
    ) -> Vec<Result<(), CommandError>> {
        let count = topics.len();
        self.ask_for_each(count, |answer| Command::CreatePartitions { topics, validate_only, answer }).await
    }

    /// Changes overrides of one topic, all or nothing.
    pub async fn alter_topic_configs(
        &self,
        topic: String,
        edits: ConfigEdits,
        validate_only: bool,
    ) -> Result<(), CommandError> {
        let command = |answer| Command::AlterTopicConfigs { topic, edits, validate_only, answer };
        self.ask(command).await.unwrap_or(Err(CommandError::Gone))
    }

    /// A block of producer ids nobody was ever given.
    pub async fn allocate_producer_ids(&self) -> Result<Range<i64>, CommandError> {
        self.ask(|answer| Command::AllocateProducerIds { answer }).await.unwrap_or(Err(CommandError::Gone))
    }

    /// Makes a topic the broker keeps state in, if it is not there. `InvalidTopic` for names that are none of those.
    pub async fn ensure_internal_topic(&self, name: &str) -> Result<(), CommandError> {
        let name = name.to_owned();
        self.ask(|answer| Command::EnsureInternalTopic { name, answer }).await.unwrap_or(Err(CommandError::Gone))
    }

    /// Ends the task after the commands before this one; later ones answer [`CommandError::Gone`].
    pub async fn stop(&self) {
        self.ask(|answer| Command::Stop { answer }).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.ok()?;
        answered.await.ok()
    }

    async fn ask_for_each<T>(
        &self,
        count: usize,
        command: impl FnOnce(Answer<Vec<Result<T, CommandError>>>) -> Command,
    ) -> Vec<Result<T, CommandError>> {
        let answers = self.ask(command).await;
        answers.unwrap_or_else(|| std::iter::repeat_with(|| Err(CommandError::Gone)).take(count).collect())
    }
}

/// Why the controller did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log did not open.
    #[error(transparent)]
    Log(#[from] OpenLogError),
    /// Its records contradict each other, or a directory is missing.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The start could not be committed.
    #[error(transparent)]
    Commit(#[from] log::LogError),
    /// The data directories do not fit the metadata.
    #[error(transparent)]
    Dirs(#[from] DirError),
}

/// Where the broker tells its clients to connect.
#[derive(Clone, Debug)]
pub struct Advertised {
    /// Host name or address.
    pub host: String,
    /// Port; the bound one when the settings say 0.
    pub port: u16,
}

/// A controller whose log is open, whose start is committed, and whose task does not run yet.
pub struct Opened {
    controller: Controller,
    task: Task,
    /// Bytes of an unanswered change that a crash left torn.
    pub torn_bytes: u64,
    /// Partitions of deleted topics that a crash left behind, now removed.
    pub removed_partitions: u32,
}

/// Opens the metadata log in the data directories, replays it, and commits the start: every leader epoch rises by one, and
/// this broker is where `advertised` says. `random` gives topic ids.
pub fn open(
    settings: Arc<BrokerSettings>,
    dirs: &DataDirs,
    advertised: Advertised,
    random: impl FnMut() -> u128 + Send + 'static,
) -> Result<Opened, OpenError> {
    let OpenedLog { log, batches, torn_bytes } = FileLog::open(dirs.metadata_home()?)?;
    let directories: Vec<DirectoryId> = dirs.dirs.iter().map(|dir| dir.id.clone()).collect();
    let mut image = Image::empty(dirs.cluster_id.clone(), directories);
    let records = batches.iter().flat_map(|batch| &batch.records);
    let gone: BTreeSet<TopicId> = records.filter_map(Record::gone_topic).collect();
    for mut batch in batches {
        // What is told of a topic that ends later names directories that may have left log.dirs since.
        batch.records.retain(|record| record.topic().is_none_or(|topic| !gone.contains(&topic)));
        image = image.replay(&batch.records)?;
        image.version = batch.version;
    }
    if image.version == 0 {
        dirs.expect_no_partitions()?;
    }
    dirs.write_new_metas()?;
    // A snapshot forgets these, but is written only after the shards have let go of every topic that was gone before it.
    let removed_partitions = dirs.remove_partitions_of(&gone)?;
    let (commands, inbox) = mpsc::channel(COMMANDS_WAITING_MAX);
    let broker = Record::Broker {
        id: settings.node_id.value(),
        host: advertised.host,
        port: advertised.port,
        rack: settings.broker_rack.clone(),
    };
    let mut task = Task { settings, log: Box::new(log), image: Arc::new(image), inbox, random: Box::new(random) };
    task.commit(&[Record::Started, broker])?;
    Ok(Opened { controller: Controller { commands }, task, torn_bytes, removed_partitions })
}

impl Opened {
    /// The image to start from. It is the caller's to bring to the shards before [`Opened::run`].
    pub fn image(&self) -> Arc<Image> {
        self.task.image.clone()
    }

    /// The handle; its commands wait until [`Opened::run`] is polled.
    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Works on commands until [`Controller::stop`], or until every other handle is dropped.
    pub async fn run(self, publisher: impl Publisher) {
        let Self { controller, task, .. } = self;
        drop(controller);
        task.run(publisher).await;
    }
}

struct Task {
    settings: Arc<BrokerSettings>,
    log: Box<dyn MetadataLog>,
    image: Arc<Image>,
    inbox: mpsc::Receiver<Command>,
    random: Box<dyn FnMut() -> u128 + Send>,
}

impl Task {
    async fn run(mut self, publisher: impl Publisher) {
        while let Some(command) = self.inbox.recv().await {
            match command {
                Command::CreateTopics { topics, validate_only, answer } => {
                    _ = answer.send(self.create_topics(&topics, validate_only, &publisher).await);
                }
                Command::DeleteTopics { topics, answer } => {
                    let plan = plan::plan_delete_topics(&self.image, &self.settings, &topics);
                    _ = answer.send(self.carry_out(plan, false, &publisher).await);
                }
                Command::CreatePartitions { topics, validate_only, answer } => {
                    let plan = plan::plan_create_partitions(&self.image, &topics);
                    _ = answer.send(self.carry_out(plan, validate_only, &publisher).await);
                }
                Command::AlterTopicConfigs { topic, edits, validate_only, answer } => {
                    _ = answer.send(self.alter_topic_configs(&topic, &edits, validate_only, &publisher).await);
                }
                Command::AllocateProducerIds { answer } => _ = answer.send(self.allocate_producer_ids()),
                Command::EnsureInternalTopic { name, answer } => {
                    _ = answer.send(self.ensure_internal_topic(&name, &publisher).await);
                }
                Command::Stop { answer } => {
                    // Commands still waiting are dropped with the inbox, which answers them Gone.
                    _ = answer.send(());
                    return;
                }
            }
            self.snapshot_if_wanted();
        }
    }

    async fn create_topics(
        &mut self,
        topics: &[NewTopic],
        validate_only: bool,
        publisher: &impl Publisher,
    ) -> Vec<Result<CreatedTopic, CommandError>> {
        let (image, random) = (&self.image, &mut self.random);
        let new_id = || loop {
            let id = TopicId::random(&mut *random);
            if !image.topic_ids.contains_key(&id) {
                break id;
            }
        };
        let plan = plan::plan_create_topics(image, &self.settings, topics, new_id);
        self.carry_out(plan, validate_only, publisher).await
    }

    async fn alter_topic_configs(
        &mut self,
        topic: &str,
        edits: &ConfigEdits,
        validate_only: bool,
        publisher: &impl Publisher,
    ) -> Result<(), CommandError> {
        let record = plan::plan_alter_topic_configs(&self.image, &self.settings, topic, edits)?;
        let plan = Plan { records: record.into_iter().collect(), answers: vec![Ok(())] };
        self.carry_out(plan, validate_only, publisher).await.remove(0)
    }

    /// Shards do not see producer ids: nothing is published.
    fn allocate_producer_ids(&mut self) -> Result<Range<i64>, CommandError> {
        let (record, block) = plan::plan_producer_ids(&self.image)?;
        self.commit(&[record]).map_err(|error| CommandError::Storage(error.to_string()))?;
        Ok(block)
    }

    async fn ensure_internal_topic(&mut self, name: &str, publisher: &impl Publisher) -> Result<(), CommandError> {
        if self.image.topics.contains_key(name) {
            return Ok(());
        }
        let Some(topic) = plan::internal_topic(&self.settings, name) else {
            return Err(CommandError::InvalidTopic(format!("{name} is not a topic of the broker's own")));
        };
        self.create_topics(&[topic], false, publisher).await.remove(0).map(|_| ())
    }

    /// Commits and publishes a plan; when that fails, all that was planned is refused.
    async fn carry_out<T>(
        &mut self,
        plan: Plan<T>,
        validate_only: bool,
        publisher: &impl Publisher,
    ) -> Vec<Result<T, CommandError>> {
        let Plan { records, answers } = plan;
        if validate_only || records.is_empty() {
            return answers;
        }
        match self.commit(&records) {
            Ok(()) => {
                publisher.publish(self.image.clone()).await;
                answers
            }
            Err(error) => {
                let refused = CommandError::Storage(error.to_string());
                answers.into_iter().map(|answer| answer.and(Err(refused.clone()))).collect()
            }
        }
    }

    /// Makes `records` durable, then part of the image. A planned record that does not replay is a bug of ours.
    fn commit(&mut self, records: &[Record]) -> Result<(), log::LogError> {
        let image = self.image.replay(records).expect("a plan's records replay on the image they were planned on");
        self.log.append(records, image.version)?;
        tracing::debug!(version = image.version, ?records, "committed metadata");
        self.image = Arc::new(image);
        Ok(())
    }

    fn snapshot_if_wanted(&mut self) {
        if self.log.wants_snapshot() && self.log.snapshot(&self.image.to_records(), self.image.version).is_ok() {
            tracing::info!(version = self.image.version, "wrote a snapshot of the metadata");
        }
    }
}

/// 128 bits from the kernel, for ids that must never be given twice anywhere.
pub fn random_bits() -> u128 {
    let mut bytes = [0; 16];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut device| std::io::Read::read_exact(&mut device, &mut bytes));
    read.expect("every Linux has /dev/urandom");
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;
