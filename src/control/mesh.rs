//! The control thread's side of the mesh: asking shards from an ordinary thread.
//!
//! Shell. Owns nothing: the mesh belongs to `rt::hop`, the questions to `shard::calls`.

use std::time::Duration;

use crate::rt::hop::HopPort;
use crate::shard::calls::{ShardAnswer, ShardCall};
use crate::types::ShardIndex;

/// The door into the mesh, and how many shards are behind it.
#[derive(Clone)]
pub struct ShardPort {
    /// The door.
    pub port: HopPort<ShardCall, ShardAnswer>,
    /// Shards are `0..count`.
    pub count: usize,
}

impl ShardPort {
    /// Every shard's index.
    pub fn indices(&self) -> std::ops::Range<ShardIndex> {
        0..self.count
    }
}

/// Asks every shard at once and waits at most `patience`; `None` for those that did not answer.
pub async fn ask_all(
    shards: &ShardPort,
    patience: Duration,
    question: impl Fn() -> ShardCall,
) -> Vec<Option<ShardAnswer>> {
    let deadline = tokio::time::Instant::now() + patience;
    let asked: Vec<_> = shards.indices().map(|shard| shards.port.call(shard, question())).collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(tokio::time::timeout_at(deadline, answer).await.ok().and_then(Result::ok));
    }
    answers
}
