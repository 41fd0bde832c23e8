//! The names Kafka's Java code has for error codes, as its tools print them.
//!
//! Shell, for the admin client's values it reads; does nothing but words. Owns the way from a code to `org.apache.kafka.common.errors.…Exception`. Always: every code has one. Source: the enum
//! `Errors` of Kafka 4.4.

use crate::client::ClientError;
use crate::client::admin::ItemError;
use crate::protocol::ErrorCode;

const PACKAGE: &str = "org.apache.kafka.common.errors";

/// Codes whose exception is not their name in another spelling.
const IRREGULAR: &[(ErrorCode, &str)] = &[
    (ErrorCode::UNKNOWN_SERVER_ERROR, "UnknownServerException"),
    (ErrorCode::CORRUPT_MESSAGE, "CorruptRecordException"),
    (ErrorCode::REQUEST_TIMED_OUT, "TimeoutException"),
    (ErrorCode::MESSAGE_TOO_LARGE, "RecordTooLargeException"),
    (ErrorCode::NETWORK_EXCEPTION, "NetworkException"),
    (ErrorCode::INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
    (ErrorCode::RECORD_LIST_TOO_LARGE, "RecordBatchTooLargeException"),
    (ErrorCode::TOPIC_ALREADY_EXISTS, "TopicExistsException"),
    (ErrorCode::INVALID_CONFIG, "InvalidConfigurationException"),
    (ErrorCode::NON_EMPTY_GROUP, "GroupNotEmptyException"),
    (ErrorCode::KAFKA_STORAGE_ERROR, "KafkaStorageException"),
];

/// The simple name of the exception of a code.
pub(super) fn exception(code: ErrorCode) -> String {
    if let Some((_, name)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == code) {
        return (*name).to_owned();
    }
    let mut name = String::new();
    for word in code.name().split('_') {
        let (first, rest) = word.split_at(word.len().min(1));
        name.push_str(first);
        name.push_str(&rest.to_ascii_lowercase());
    }
    if name.ends_with("Exception") { name } else { name + "Exception" }
}

/// As Java prints the exception of a refusal: `org.apache.kafka.common.errors.X: message`.
pub(super) fn spelled(error: &ItemError) -> String {
    format!("{PACKAGE}.{}: {}", exception(ErrorCode(error.code)), message(error))
}

/// As [`spelled`], of a whole call.
pub(super) fn spelled_call(error: &ClientError) -> String {
    match error.code() {
        Some(_) => spelled(&refusal(error)),
        None => error.to_string(),
    }
}

/// What a broker said, without our words around it.
pub(super) fn refusal(error: &ClientError) -> ItemError {
    match innermost(error) {
        ClientError::Broker { code, message, .. } => ItemError {
            code: code.0,
            name: code.name(),
            message: message.as_deref().unwrap_or(code.sentence()).trim_end_matches('.').to_owned(),
            retriable: code.retriable(),
        },
        other => ItemError::from(other),
    }
}

fn innermost(error: &ClientError) -> &ClientError {
    match error {
        ClientError::TimedOut { last: Some(last), .. } if last.code().is_some() => innermost(last),
        other => other,
    }
}

/// The message of that exception: the broker's words, or what Java says where the broker said nothing.
pub(super) fn message(error: &ItemError) -> String {
    let code = ErrorCode(error.code);
    if error.message == code.sentence().trim_end_matches('.') {
        return default_message(code).map_or_else(|| with_stop(code.sentence()), str::to_owned);
    }
    // The stop at the end is not kept on the way here; most of Kafka's sentences have one, those about settings do not.
    match code {
        ErrorCode::TOPIC_ALREADY_EXISTS
        | ErrorCode::INVALID_PARTITIONS
        | ErrorCode::INVALID_REPLICATION_FACTOR
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::GROUP_ID_NOT_FOUND
        | ErrorCode::NON_EMPTY_GROUP
        | ErrorCode::UNKNOWN_MEMBER_ID => with_stop(&error.message),
        _ => error.message.clone(),
    }
}

fn with_stop(sentence: &str) -> String {
    if sentence.ends_with('.') { sentence.to_owned() } else { format!("{sentence}.") }
}

/// What scripts look for, where brokers send a bare code.
fn default_message(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::GROUP_ID_NOT_FOUND => "The group id does not exist.",
        ErrorCode::NON_EMPTY_GROUP => "The group is not empty.",
        ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC => {
            "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
        }
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "This server does not host this topic-partition.",
        ErrorCode::COORDINATOR_NOT_AVAILABLE => "The coordinator is not available.",
        ErrorCode::INVALID_GROUP_ID => "The group id is invalid.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_spelled_as_java_spells_them() {
        assert_eq!(exception(ErrorCode::GROUP_ID_NOT_FOUND), "GroupIdNotFoundException");
        assert_eq!(exception(ErrorCode::INVALID_REPLICATION_FACTOR), "InvalidReplicationFactorException");
        assert_eq!(exception(ErrorCode::TOPIC_ALREADY_EXISTS), "TopicExistsException");
        assert_eq!(exception(ErrorCode::NETWORK_EXCEPTION), "NetworkException");
        let error = ClientError::broker("group g", ErrorCode::NETWORK_EXCEPTION, None);
        assert!(spelled_call(&error).starts_with("org.apache.kafka.common.errors.NetworkException: "));
    }

    #[test]
    fn what_brokers_do_not_say_java_says() {
        let error = |code: ErrorCode, message: &str| ItemError {
            code: code.0,
            name: code.name(),
            message: message.to_owned(),
            retriable: false,
        };
        let bare = error(ErrorCode::NON_EMPTY_GROUP, ErrorCode::NON_EMPTY_GROUP.sentence().trim_end_matches('.'));
        assert_eq!(spelled(&bare), "org.apache.kafka.common.errors.GroupNotEmptyException: The group is not empty.");
        assert_eq!(
            spelled(&error(ErrorCode::GROUP_ID_NOT_FOUND, "Group g not found")),
            "org.apache.kafka.common.errors.GroupIdNotFoundException: Group g not found."
        );
        assert_eq!(
            message(&error(ErrorCode::INVALID_CONFIG, "Unknown topic config name: a")),
            "Unknown topic config name: a"
        );
    }
}
