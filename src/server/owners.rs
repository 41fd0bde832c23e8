//! Asking the owners of many partitions at once.
//!
//! Shell. Owns nothing. Always: one message a shard, or for very many questions one after the other, and others have their turn
//! between them; the answers come back in the order of the questions.

use crate::protocol::ErrorCode;
use crate::rt::hop::Gone;
use crate::server::{Server, errors};
use crate::shard::calls::{ShardAnswer, ShardCall};
use crate::shard::router::split;
use crate::types::PartitionId;

/// Questions of one message: some milliseconds of work to whoever asks and whoever answers.
const QUESTIONS_AT_ONCE: usize = 4096;

/// Sends each question that has no answer yet to the owner of its partition. `open` takes the answers out of a message.
pub(super) async fn ask_owners<Q, A>(
    server: &Server,
    questions: impl IntoIterator<Item = Result<Q, ErrorCode>>,
    partition_of: impl Fn(&Q) -> PartitionId,
    call: impl Fn(Vec<Q>) -> ShardCall,
    open: impl Fn(ShardAnswer) -> Vec<Result<A, ErrorCode>>,
) -> Vec<Result<A, ErrorCode>> {
    let (mut questions, mut answers) = (questions.into_iter(), Vec::new());
    loop {
        let some: Vec<_> = questions.by_ref().take(QUESTIONS_AT_ONCE).collect();
        if some.is_empty() {
            return answers;
        }
        answers.extend(ask_some(server, some, &partition_of, &call, &open).await);
        server.shard().net().give_way().await;
    }
}

async fn ask_some<Q, A>(
    server: &Server,
    questions: Vec<Result<Q, ErrorCode>>,
    partition_of: impl Fn(&Q) -> PartitionId,
    call: impl Fn(Vec<Q>) -> ShardCall,
    open: impl Fn(ShardAnswer) -> Vec<Result<A, ErrorCode>>,
) -> Vec<Result<A, ErrorCode>> {
    let shard = server.shard();
    let (mut asked, mut refused) = (Vec::new(), Vec::with_capacity(questions.len()));
    for question in questions {
        refused.push(question.map(|question| asked.push(question)).err());
    }
    let (groups, places) = split(asked, |question| shard.owner(partition_of(question)));
    let calls: Vec<_> = groups.into_iter().map(|(owner, group)| (group.len(), shard.ask(owner, call(group)))).collect();
    let mut answers = Vec::with_capacity(calls.len());
    for (count, answer) in calls {
        answers.push(match answer.await {
            Ok(answer) => open(answer),
            Err(Gone) => (0..count).map(|_| Err(errors::SHARD_GONE)).collect(),
        });
    }
    let mut answers = places.join(answers).into_iter();
    refused
        .into_iter()
        .map(|refused| refused.map_or_else(|| answers.next().expect("one answer a question"), Err))
        .collect()
}
