//! Metadata log and admin commands (CONTRACT STUB). Runs on the control thread; shards see only `Arc<Image>`.
pub mod image;
use std::collections::BTreeMap;
use std::sync::Arc;
use crate::types::*;
/// One topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic { /** name */ pub name: String, /** −1 = default */ pub partitions: i32, /** −1 = default */ pub replication_factor: i16, /** manual assignment: partition -> brokers */ pub assignment: Vec<(i32, Vec<i32>)>, /** overrides; a null value is an error */ pub configs: Vec<(String, Option<String>)> }
/// A topic by name or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef { /** name */ Name(String), /** id */ Id(TopicId) }
/// Why one item of a command was refused; maps 1:1 to codes in server/errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError { /** 17 */ #[error("{0}")] InvalidTopic(String), /** 36 */ #[error("Topic '{0}' already exists.")] TopicExists(String), /** 37 */ #[error("{0}")] InvalidPartitions(String), /** 38 */ #[error("{0}")] InvalidReplicationFactor(String), /** 39 */ #[error("{0}")] InvalidReplicaAssignment(String), /** 40 */ #[error("{0}")] InvalidConfig(String), /** 42 */ #[error("{0}")] InvalidRequest(String), /** 3 */ #[error("{0}")] UnknownTopic(String), /** 100 */ #[error("{0}")] UnknownTopicId(String), /** 73 */ #[error("Topic deletion is disabled.")] DeletionDisabled, /** 56: the metadata log failed */ #[error("{0}")] Storage(String), /** shutting down */ #[error("the controller is shutting down")] Gone }
/// A created (or validated) topic, as answered.
#[derive(Clone, Debug)]
pub struct CreatedTopic { /** id (zero if only validated) */ pub id: TopicId, /** count */ pub partitions: i32, /** rf */ pub replication_factor: i16, /** overrides in force */ pub configs: BTreeMap<String, String> }
/// Handle to the controller, for shards. Each call is committed (fsynced) and applied by every shard before it answers.
#[derive(Clone)]
pub struct Controller {}
impl Controller {
    /// Creates (or only validates) topics.
    pub async fn create_topics(&self, topics: Vec<NewTopic>, validate_only: bool) -> Vec<Result<CreatedTopic, CommandError>> { let _ = (topics, validate_only); todo!() }
    /// Deletes topics.
    pub async fn delete_topics(&self, topics: Vec<TopicRef>) -> Vec<Result<(String, TopicId), CommandError>> { let _ = topics; todo!() }
    /// Raises partition counts: (topic, new total, assignment).
    pub async fn create_partitions(&self, topics: Vec<(String, i32)>, validate_only: bool) -> Vec<Result<(), CommandError>> { let _ = (topics, validate_only); todo!() }
    /// Sets (`Some`) and removes (`None`) overrides of one topic, all or nothing.
    pub async fn alter_topic_configs(&self, topic: String, changes: Vec<(String, Option<String>)>, validate_only: bool) -> Result<(), CommandError> { let _ = (topic, changes, validate_only); todo!() }
    /// A block of producer ids nobody was ever given: `first..first + count`.
    pub async fn allocate_producer_ids(&self) -> Result<std::ops::Range<i64>, CommandError> { todo!() }
}
/// Publishes a new image to all shards and waits until each applied it (logs opened); implemented by the server's boot over the hop mesh.
pub trait Publisher: Send + 'static {
    /// Resolves when every shard has applied `image`.
    fn publish(&self, image: Arc<image::Image>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
}
