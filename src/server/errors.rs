//! Where an error of a room becomes one of Kafka's codes. Nowhere else.
//!
//! Pure. Owns the table from variant to code, nothing else. Always: no `_` arm, so a new variant stops the build here until
//! somebody has looked up what Kafka answers. The choice matters: clients retry, reset or give up by the code alone.
//! Source: Kafka 4.4 as measured, else `ReplicaManager`, `KafkaApis`, `LogValidator`.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::controller::CommandError;
use crate::coordinator::command::GroupError;
use crate::log::{AppendError, ReadError};
use crate::protocol::ErrorCode;
use crate::protocol::batch::{BatchError, RecordFaultKind, RecordsError};
use crate::replica::{FetchError, LeadershipError, ProduceError};
use crate::shard::calls::DeleteRecordsError;

/// Role and epoch.
pub(super) fn leadership(error: &LeadershipError) -> ErrorCode {
    match error {
        LeadershipError::NotLeader => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        LeadershipError::Fenced { .. } => ErrorCode::FENCED_LEADER_EPOCH,
        LeadershipError::Unknown { .. } => ErrorCode::UNKNOWN_LEADER_EPOCH,
    }
}

/// What a log refuses to append.
pub(super) fn append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Offline(_) | AppendError::NoSpace => ErrorCode::KAFKA_STORAGE_ERROR,
        AppendError::TooLarge { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
        AppendError::ProducerFenced { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        AppendError::InvalidTxnState(_) => ErrorCode::INVALID_TXN_STATE,
    }
}

/// What becomes of a produced batch.
pub(super) fn produce(error: &ProduceError) -> ErrorCode {
    match error {
        ProduceError::Leadership(error) => leadership(error),
        ProduceError::Append(error) => append(error),
        ProduceError::TimedOut => ErrorCode::REQUEST_TIMED_OUT,
    }
}

/// What a log refuses to read.
pub(super) fn read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        // Its topic was deleted, or the broker ends: clients ask for metadata and learn which.
        ReadError::Closed => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ReadError::Offline(_) | ReadError::Disk(_) => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}

/// What becomes of a read or a question about offsets.
pub(super) fn fetch(error: &FetchError) -> ErrorCode {
    match error {
        FetchError::Leadership(error) => leadership(error),
        FetchError::Read(error) => read(error),
    }
}

/// What is wrong with a batch.
pub(super) fn batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::Truncated { .. } | BatchError::Magic(0 | 1) | BatchError::Invalid(_) => ErrorCode::INVALID_RECORD,
        BatchError::Length(_) | BatchError::Magic(_) | BatchError::Crc => ErrorCode::CORRUPT_MESSAGE,
        BatchError::Unreadable(_) => ErrorCode::UNKNOWN_SERVER_ERROR,
        BatchError::TooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
    }
}

/// What is wrong with the records of a batch. One record with a bad time decides, whatever else is wrong.
pub(super) fn records(error: &RecordsError) -> ErrorCode {
    match error {
        RecordsError::Batch(error) => batch(error),
        RecordsError::Refused(faults) => {
            let time = faults.iter().any(|fault| match fault.kind {
                RecordFaultKind::Timestamp(_) => true,
                RecordFaultKind::KeyMissing => false,
            });
            if time { ErrorCode::INVALID_TIMESTAMP } else { ErrorCode::INVALID_RECORD }
        }
    }
}

/// Why a log start did not move.
pub(super) fn delete_records(error: &DeleteRecordsError) -> ErrorCode {
    match error {
        DeleteRecordsError::Leadership(error) => leadership(error),
        DeleteRecordsError::OutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        DeleteRecordsError::Read(error) => read(error),
        DeleteRecordsError::Append(error) => append(error),
    }
}

/// What the controller refused.
pub(super) fn command(error: &CommandError) -> ErrorCode {
    match error {
        CommandError::InvalidTopic(_) => ErrorCode::INVALID_TOPIC_EXCEPTION,
        CommandError::TopicExists(_) => ErrorCode::TOPIC_ALREADY_EXISTS,
        CommandError::InvalidPartitions(_) => ErrorCode::INVALID_PARTITIONS,
        CommandError::InvalidReplicationFactor(_) => ErrorCode::INVALID_REPLICATION_FACTOR,
        CommandError::InvalidReplicaAssignment(_) => ErrorCode::INVALID_REPLICA_ASSIGNMENT,
        CommandError::InvalidConfig(_) => ErrorCode::INVALID_CONFIG,
        CommandError::InvalidRequest(_) => ErrorCode::INVALID_REQUEST,
        CommandError::PolicyViolation(_) => ErrorCode::POLICY_VIOLATION,
        CommandError::UnknownTopic(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        CommandError::UnknownTopicId(_) => ErrorCode::UNKNOWN_TOPIC_ID,
        CommandError::DeletionDisabled => ErrorCode::TOPIC_DELETION_DISABLED,
        CommandError::Storage(_) => ErrorCode::KAFKA_STORAGE_ERROR,
        // The broker is going away: clients look for another controller and try again.
        CommandError::Gone => ErrorCode::NOT_CONTROLLER,
    }
}

/// Why no producer id could be leased: retriable, so that producers wait for the controller as they do with Kafka.
pub(super) fn lease(error: &CommandError) -> ErrorCode {
    match error {
        CommandError::Gone => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        CommandError::Storage(_)
        | CommandError::InvalidTopic(_)
        | CommandError::TopicExists(_)
        | CommandError::InvalidPartitions(_)
        | CommandError::InvalidReplicationFactor(_)
        | CommandError::InvalidReplicaAssignment(_)
        | CommandError::InvalidConfig(_)
        | CommandError::InvalidRequest(_)
        | CommandError::PolicyViolation(_)
        | CommandError::UnknownTopic(_)
        | CommandError::UnknownTopicId(_)
        | CommandError::DeletionDisabled => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    }
}

/// What a group coordinator refused.
pub(super) fn group(error: &GroupError) -> ErrorCode {
    match error {
        GroupError::Unexpected => ErrorCode::UNKNOWN_SERVER_ERROR,
        GroupError::OffsetMetadataTooLarge => ErrorCode::OFFSET_METADATA_TOO_LARGE,
        GroupError::LoadInProgress => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        GroupError::CoordinatorNotAvailable => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        GroupError::NotCoordinator => ErrorCode::NOT_COORDINATOR,
        GroupError::IllegalGeneration => ErrorCode::ILLEGAL_GENERATION,
        GroupError::InconsistentProtocol => ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        GroupError::InvalidGroupId => ErrorCode::INVALID_GROUP_ID,
        GroupError::UnknownMember => ErrorCode::UNKNOWN_MEMBER_ID,
        GroupError::InvalidSessionTimeout => ErrorCode::INVALID_SESSION_TIMEOUT,
        GroupError::RebalanceInProgress => ErrorCode::REBALANCE_IN_PROGRESS,
        GroupError::NonEmptyGroup => ErrorCode::NON_EMPTY_GROUP,
        GroupError::GroupIdNotFound => ErrorCode::GROUP_ID_NOT_FOUND,
        GroupError::MemberIdRequired => ErrorCode::MEMBER_ID_REQUIRED,
        GroupError::GroupMaxSizeReached => ErrorCode::GROUP_MAX_SIZE_REACHED,
        GroupError::FencedInstanceId => ErrorCode::FENCED_INSTANCE_ID,
        GroupError::SubscribedToTopic => ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC,
    }
}

/// The owning shard is going away with the broker: clients refresh their metadata and try again.
pub(super) const SHARD_GONE: ErrorCode = ErrorCode::NOT_LEADER_OR_FOLLOWER;
