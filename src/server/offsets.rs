//! ListOffsets (2) and OffsetForLeaderEpoch (23): positions in logs.
//!
//! Shell. Owns the meaning of the numbers below zero that stand for positions; the owners of the partitions look them up.
//! Always: answers stand in the order of the questions; a partition that ListOffsets names twice is asked of nobody, and refused.
//! Source: KIP-79, KIP-207, KIP-320, KIP-405, KIP-734.

use std::collections::HashSet;

use crate::protocol::admin::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
    ListOffsetsTopicResponse,
};
use crate::protocol::operator::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use crate::protocol::{ErrorCode, Str};
use crate::replica::Isolation;
use crate::server::connection::Context;
use crate::server::named::{Named, keep_new};
use crate::server::owners::ask_owners;
use crate::server::{Server, errors, topics};
use crate::shard::calls::{EpochQuestion, OffsetQuestion, ShardAnswer, ShardCall, WantedOffset};
use crate::types::LeaderEpoch;

/// Answers ListOffsets.
pub(super) async fn list_offsets<'a>(cx: &Context<'_>, mut request: ListOffsetsRequest<'a>) -> ListOffsetsResponse<'a> {
    let image = cx.server.shard().image();
    let isolation = match (request.replica_id, request.isolation_level) {
        (-1, 1) => Isolation::ReadCommitted,
        (-1, _) => Isolation::ReadUncommitted,
        _ => Isolation::LogEnd,
    };
    let names: Vec<Str<'a>> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let twice = drop_repeated(cx.server, &names, &mut request.topics).await;
    let question = |topic: &str, asked: &ListOffsetsPartition, twice: Option<&HashSet<i32>>| {
        if twice.is_some_and(|twice| twice.contains(&asked.partition_index)) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let wanted = wanted_offset(asked.timestamp, cx.version).ok_or(ErrorCode::UNSUPPORTED_VERSION)?;
        let found = topics::find(&image, topic, asked.partition_index);
        let (partition, ..) = found.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok(OffsetQuestion { partition, leader_epoch: LeaderEpoch::new(asked.current_leader_epoch), isolation, wanted })
    };
    let (question, twice) = (&question, &twice);
    let questions = request.topics.iter().flat_map(|topic| {
        let twice = twice.get(&topic.name);
        topic.partitions.iter().map(move |asked| question(&topic.name, asked, twice))
    });
    let mut answers = ask_owners(
        cx.server,
        questions,
        |question| question.partition,
        ShardCall::ListOffsets,
        |answer| match answer {
            ShardAnswer::Offsets(found) => {
                found.into_iter().map(|found| found.map_err(|e| errors::fetch(&e))).collect()
            }
            _ => unreachable!("ListOffsets is answered with offsets"),
        },
    )
    .await
    .into_iter();
    let asked = request.topics.into_iter().filter(|topic| !topic.partitions.is_empty());
    let topics = asked.map(|topic| ListOffsetsTopicResponse {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                let mut answer =
                    ListOffsetsPartitionResponse { partition_index: asked.partition_index, ..Default::default() };
                match answers.next().expect("one answer a partition") {
                    Err(error_code) => answer.error_code = error_code,
                    Ok(found) => {
                        answer.offset = found.offset.map_or(-1, |offset| offset.value());
                        answer.timestamp = found.timestamp.unwrap_or(-1);
                        answer.leader_epoch = found.leader_epoch.map_or(-1, |epoch| epoch.value());
                    }
                }
                answer
            })
            .collect(),
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}

/// Keeps each partition once; those that were there more than once. `names` are those of the topics.
async fn drop_repeated<'n>(server: &Server, names: &'n [Str<'_>], topics: &mut [ListOffsetsTopic<'_>]) -> Named<'n> {
    let (mut seen, mut twice) = (Named::default(), Named::default());
    for (name, topic) in names.iter().zip(topics) {
        let again = twice.of(name);
        let index = |partition: &ListOffsetsPartition| partition.partition_index;
        keep_new(server, seen.of(name), &mut topic.partitions, index, |index| _ = again.insert(index)).await;
    }
    twice
}

/// The position a timestamp stands for, if this version knows it.
fn wanted_offset(timestamp: i64, version: i16) -> Option<WantedOffset> {
    match timestamp {
        0.. => Some(WantedOffset::At(timestamp)),
        -1 => Some(WantedOffset::Latest),
        -2 => Some(WantedOffset::Earliest),
        -3 if version >= 7 => Some(WantedOffset::MaxTimestamp),
        -4 if version >= 8 => Some(WantedOffset::Earliest),
        -5 if version >= 9 => Some(WantedOffset::Tiered),
        -6 if version >= 11 => Some(WantedOffset::Tiered),
        _ => None,
    }
}

/// Answers OffsetForLeaderEpoch.
pub(super) async fn offset_for_leader_epoch<'a>(
    cx: &Context<'_>,
    request: OffsetForLeaderEpochRequest<'a>,
) -> OffsetForLeaderEpochResponse<'a> {
    let image = cx.server.shard().image();
    let image = &image;
    let questions = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |asked| {
            let found = topics::find(image, &topic.topic, asked.partition);
            let (partition, ..) = found.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
            Ok(EpochQuestion {
                partition,
                current: LeaderEpoch::new(asked.current_leader_epoch),
                // Below every epoch: no end is known.
                wanted: LeaderEpoch::new(asked.leader_epoch),
            })
        })
    });
    let mut answers = ask_owners(
        cx.server,
        questions,
        |question| question.partition,
        ShardCall::EpochEnd,
        |answer| match answer {
            ShardAnswer::EpochEnds(ends) => ends.into_iter().map(|end| end.map_err(|e| errors::fetch(&e))).collect(),
            _ => unreachable!("EpochEnd is answered with epoch ends"),
        },
    )
    .await
    .into_iter();
    let topics = request.topics.into_iter().map(|topic| OffsetForLeaderTopicResult {
        topic: topic.topic,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                let mut answer = EpochEndOffset { partition: asked.partition, ..Default::default() };
                match answers.next().expect("one answer a partition") {
                    Err(error_code) => answer.error_code = error_code,
                    Ok(None) => {}
                    Ok(Some((epoch, end))) => {
                        answer.leader_epoch = epoch.value();
                        answer.end_offset = end.value();
                    }
                }
                answer
            })
            .collect(),
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_known_from_the_version_that_brought_them() {
        assert_eq!(wanted_offset(-3, 6), None);
        assert_eq!(wanted_offset(-3, 7), Some(WantedOffset::MaxTimestamp));
        assert_eq!(wanted_offset(-4, 8), Some(WantedOffset::Earliest));
        assert_eq!(wanted_offset(-5, 9), Some(WantedOffset::Tiered));
        assert_eq!(wanted_offset(-6, 10), None);
        assert_eq!(wanted_offset(i64::MIN, 10), None);
        assert_eq!(wanted_offset(0, 1), Some(WantedOffset::At(0)));
    }
}
