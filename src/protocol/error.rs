//! Kafka's error codes: number, name, whether a client may try again, one sentence.
//!
//! Pure. Owns the table. Does not own which failure becomes which code: `server/errors.rs` does. Always true: every
//! code of Kafka 4.3 is here once; a code from a newer peer passes through unchanged. Source: Kafka's protocol guide,
//! "Error Codes"; which are retriable was read from the exceptions of Kafka 4.4's client.

use std::fmt;

/// A code as it stands in a message. Any number is possible: peers may be newer than this table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(pub i16);

/// What the table says of one code.
struct Row {
    name: &'static str,
    retriable: bool,
    sentence: &'static str,
}

macro_rules! error_codes {
    ($($code:literal $name:ident $kind:ident $sentence:literal;)*) => {
        impl ErrorCode {
            $(#[doc = concat!(stringify!($code), ": ", $sentence)] pub const $name: Self = Self($code);)*

            /// Every code of the table, in rising order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            fn row(self) -> Option<&'static Row> {
                Some(match self {
                    $(Self::$name => {
                        &Row { name: stringify!($name), retriable: error_codes!(@$kind), sentence: $sentence }
                    })*
                    _ => return None,
                })
            }
        }
    };
    (@retriable) => { true };
    (@final) => { false };
}

error_codes! {
      -1 UNKNOWN_SERVER_ERROR                   final     "The broker failed in a way it has no word for.";
       0 NONE                                   final     "All is well.";
       1 OFFSET_OUT_OF_RANGE                    final     "The offset is below the log start or above the log end.";
       2 CORRUPT_MESSAGE                        retriable "The batch fails its checksum or is damaged otherwise.";
       3 UNKNOWN_TOPIC_OR_PARTITION             retriable "This broker has no such partition.";
       4 INVALID_FETCH_SIZE                     final     "The fetch size is impossible.";
       5 LEADER_NOT_AVAILABLE                   retriable "The partition has no leader at the moment.";
       6 NOT_LEADER_OR_FOLLOWER                 retriable "This broker does not lead (or follow) the partition.";
       7 REQUEST_TIMED_OUT                      retriable "The broker could not do it in the time the request allows.";
       8 BROKER_NOT_AVAILABLE                   final     "The broker is not there.";
       9 REPLICA_NOT_AVAILABLE                  retriable "The replica is not there.";
      10 MESSAGE_TOO_LARGE                      final     "The batch is larger than the topic allows.";
      11 STALE_CONTROLLER_EPOCH                 final     "Another controller has taken over.";
      12 OFFSET_METADATA_TOO_LARGE              final     "The metadata of a committed offset is too long.";
      13 NETWORK_EXCEPTION                      retriable "The connection broke before the answer came.";
      14 COORDINATOR_LOAD_IN_PROGRESS           retriable "The coordinator is still reading its log.";
      15 COORDINATOR_NOT_AVAILABLE              retriable "The coordinator is not there yet.";
      16 NOT_COORDINATOR                        retriable "Another broker coordinates this group or transaction.";
      17 INVALID_TOPIC_EXCEPTION                final     "The topic name is illegal, or the topic may not be used so.";
      18 RECORD_LIST_TOO_LARGE                  final     "The batch is larger than a segment.";
      19 NOT_ENOUGH_REPLICAS                    retriable "Too few replicas are in sync; nothing was appended.";
      20 NOT_ENOUGH_REPLICAS_AFTER_APPEND       retriable "Too few replicas are in sync; the batch was appended all the same.";
      21 INVALID_REQUIRED_ACKS                  final     "The acks value is none of -1, 0 and 1.";
      22 ILLEGAL_GENERATION                     final     "The generation is not the group's current one.";
      23 INCONSISTENT_GROUP_PROTOCOL            final     "The member shares no protocol with the group.";
      24 INVALID_GROUP_ID                       final     "The group id is illegal.";
      25 UNKNOWN_MEMBER_ID                      final     "The group has no such member.";
      26 INVALID_SESSION_TIMEOUT                final     "The session timeout is outside the broker's bounds.";
      27 REBALANCE_IN_PROGRESS                  final     "The group is rebalancing; join again.";
      28 INVALID_COMMIT_OFFSET_SIZE             final     "The committed offset does not fit into a record.";
      29 TOPIC_AUTHORIZATION_FAILED             final     "The topic may not be used by this principal.";
      30 GROUP_AUTHORIZATION_FAILED             final     "The group may not be used by this principal.";
      31 CLUSTER_AUTHORIZATION_FAILED           final     "The cluster may not be used so by this principal.";
      32 INVALID_TIMESTAMP                      final     "A record's timestamp is outside the topic's bounds.";
      33 UNSUPPORTED_SASL_MECHANISM             final     "The SASL mechanism is not enabled.";
      34 ILLEGAL_SASL_STATE                     final     "The request does not fit the state of authentication.";
      35 UNSUPPORTED_VERSION                    final     "This version of the request is not served.";
      36 TOPIC_ALREADY_EXISTS                   final     "A topic of this name exists.";
      37 INVALID_PARTITIONS                     final     "The number of partitions is illegal.";
      38 INVALID_REPLICATION_FACTOR             final     "The replication factor is illegal, or there are too few brokers.";
      39 INVALID_REPLICA_ASSIGNMENT             final     "The assignment of replicas is illegal.";
      40 INVALID_CONFIG                         final     "A setting is unknown or its value illegal.";
      41 NOT_CONTROLLER                         retriable "This broker is not the controller.";
      42 INVALID_REQUEST                        final     "The request contradicts itself or the protocol.";
      43 UNSUPPORTED_FOR_MESSAGE_FORMAT         final     "The partition's message format cannot answer this.";
      44 POLICY_VIOLATION                       final     "A policy forbids it.";
      45 OUT_OF_ORDER_SEQUENCE_NUMBER           final     "The batch's sequence does not follow the producer's last one.";
      46 DUPLICATE_SEQUENCE_NUMBER              final     "The batch was appended before.";
      47 INVALID_PRODUCER_EPOCH                 final     "The producer's epoch is older than the partition's.";
      48 INVALID_TXN_STATE                      final     "The transaction's state does not allow this.";
      49 INVALID_PRODUCER_ID_MAPPING            final     "The producer id does not belong to this transactional id.";
      50 INVALID_TRANSACTION_TIMEOUT            final     "The transaction timeout is longer than the broker allows.";
      51 CONCURRENT_TRANSACTIONS                retriable "The producer's previous transaction is still being completed.";
      52 TRANSACTION_COORDINATOR_FENCED         final     "The marker comes from a coordinator that was replaced.";
      53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED  final     "The transactional id may not be used by this principal.";
      54 SECURITY_DISABLED                      final     "The cluster has no authorizer.";
      55 OPERATION_NOT_ATTEMPTED                final     "Not tried, because another part of the request failed.";
      56 KAFKA_STORAGE_ERROR                    retriable "The partition's disk failed.";
      57 LOG_DIR_NOT_FOUND                      final     "The broker has no such log directory.";
      58 SASL_AUTHENTICATION_FAILED             final     "Authentication failed.";
      59 UNKNOWN_PRODUCER_ID                    final     "Nothing is known of this producer id.";
      60 REASSIGNMENT_IN_PROGRESS               final     "A reassignment of the partition is under way.";
      61 DELEGATION_TOKEN_AUTH_DISABLED         final     "Delegation tokens are not enabled.";
      62 DELEGATION_TOKEN_NOT_FOUND             final     "There is no such delegation token.";
      63 DELEGATION_TOKEN_OWNER_MISMATCH        final     "The principal neither owns nor may renew the delegation token.";
      64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED   final     "Delegation tokens cannot be asked for over this connection.";
      65 DELEGATION_TOKEN_AUTHORIZATION_FAILED  final     "The delegation token may not be used by this principal.";
      66 DELEGATION_TOKEN_EXPIRED               final     "The delegation token has expired.";
      67 INVALID_PRINCIPAL_TYPE                 final     "The type of principal is not supported.";
      68 NON_EMPTY_GROUP                        final     "The group has members.";
      69 GROUP_ID_NOT_FOUND                     final     "There is no such group.";
      70 FETCH_SESSION_ID_NOT_FOUND             retriable "There is no such fetch session.";
      71 INVALID_FETCH_SESSION_EPOCH            retriable "The fetch session expects another epoch.";
      72 LISTENER_NOT_FOUND                     retriable "The leader has no listener of this name.";
      73 TOPIC_DELETION_DISABLED                final     "Deleting topics is disabled.";
      74 FENCED_LEADER_EPOCH                    retriable "The request's leader epoch is older than the broker's.";
      75 UNKNOWN_LEADER_EPOCH                   retriable "The request's leader epoch is newer than the broker's.";
      76 UNSUPPORTED_COMPRESSION_TYPE           final     "The codec is unknown, or the request too old for it.";
      77 STALE_BROKER_EPOCH                     final     "The broker has registered again since.";
      78 OFFSET_NOT_AVAILABLE                   retriable "A new leader does not know its high watermark yet.";
      79 MEMBER_ID_REQUIRED                     final     "Join again with the member id given here.";
      80 PREFERRED_LEADER_NOT_AVAILABLE         retriable "The preferred leader cannot lead.";
      81 GROUP_MAX_SIZE_REACHED                 final     "The group is full.";
      82 FENCED_INSTANCE_ID                     final     "Another member uses this group instance id.";
      83 ELIGIBLE_LEADERS_NOT_AVAILABLE         retriable "No replica is eligible to lead.";
      84 ELECTION_NOT_NEEDED                    retriable "The preferred leader leads already.";
      85 NO_REASSIGNMENT_IN_PROGRESS            final     "No reassignment is under way.";
      86 GROUP_SUBSCRIBED_TO_TOPIC              final     "The group is subscribed to the topic.";
      87 INVALID_RECORD                         final     "A record breaks the rules of its topic or format.";
      88 UNSTABLE_OFFSET_COMMIT                 retriable "An offset waits for its transaction to end.";
      89 THROTTLING_QUOTA_EXCEEDED              retriable "The quota is used up.";
      90 PRODUCER_FENCED                        final     "A newer producer uses this transactional id.";
      91 RESOURCE_NOT_FOUND                     final     "There is no such resource.";
      92 DUPLICATE_RESOURCE                     final     "A resource is named twice.";
      93 UNACCEPTABLE_CREDENTIAL                final     "The credential does not meet the requirements.";
      94 INCONSISTENT_VOTER_SET                 final     "Sender or receiver is no voter.";
      95 INVALID_UPDATE_VERSION                 final     "The feature level is illegal.";
      96 FEATURE_UPDATE_FAILED                  final     "The features could not be updated.";
      97 PRINCIPAL_DESERIALIZATION_FAILURE      final     "The forwarded principal could not be read.";
      98 SNAPSHOT_NOT_FOUND                     final     "There is no such snapshot.";
      99 POSITION_OUT_OF_RANGE                  final     "The position lies outside the snapshot.";
     100 UNKNOWN_TOPIC_ID                       retriable "This broker has no topic of this id.";
     101 DUPLICATE_BROKER_REGISTRATION          final     "The broker id is taken.";
     102 BROKER_ID_NOT_REGISTERED               final     "The broker is not registered.";
     103 INCONSISTENT_TOPIC_ID                  retriable "The log belongs to another topic id.";
     104 INCONSISTENT_CLUSTER_ID                final     "The cluster id is another one.";
     105 TRANSACTIONAL_ID_NOT_FOUND             final     "There is no such transactional id.";
     106 FETCH_SESSION_TOPIC_ID_ERROR           retriable "The fetch session mixes topic names and ids.";
     107 INELIGIBLE_REPLICA                     final     "A replica may not be in sync at present.";
     108 NEW_LEADER_ELECTED                     final     "The change was made, and another leader elected with it.";
     109 OFFSET_MOVED_TO_TIERED_STORAGE         final     "The offset has moved to tiered storage.";
     110 FENCED_MEMBER_EPOCH                    final     "The member's epoch is fenced; it must give up its partitions and rejoin.";
     111 UNRELEASED_INSTANCE_ID                 final     "Another member holds this group instance id still.";
     112 UNSUPPORTED_ASSIGNOR                   final     "The assignor is not supported.";
     113 STALE_MEMBER_EPOCH                     final     "The member's epoch is stale; retry with the next heartbeat's.";
     114 MISMATCHED_ENDPOINT_TYPE               final     "The listener is of another type than the request asks about.";
     115 UNSUPPORTED_ENDPOINT_TYPE              final     "This type of endpoint is not supported.";
     116 UNKNOWN_CONTROLLER_ID                  final     "There is no such controller.";
     117 UNKNOWN_SUBSCRIPTION_ID                final     "The telemetry subscription is unknown or outdated.";
     118 TELEMETRY_TOO_LARGE                    final     "The telemetry is larger than the broker accepts.";
     119 INVALID_REGISTRATION                   final     "The controller refuses the broker's registration.";
     120 TRANSACTION_ABORTABLE                  final     "The transaction failed; abort it and go on.";
     121 INVALID_RECORD_STATE                   final     "The record is in another state than the acknowledgement assumes.";
     122 SHARE_SESSION_NOT_FOUND                retriable "There is no such share session.";
     123 INVALID_SHARE_SESSION_EPOCH            retriable "The share session expects another epoch.";
     124 FENCED_STATE_EPOCH                     final     "The state epoch is another one.";
     125 INVALID_VOTER_KEY                      final     "The voter's key is another one.";
     126 DUPLICATE_VOTER                        final     "The voter is in the set already.";
     127 VOTER_NOT_FOUND                        final     "The voter is not in the set.";
     128 INVALID_REGULAR_EXPRESSION             final     "The regular expression is not valid.";
     129 REBOOTSTRAP_REQUIRED                   final     "The client's metadata is stale; it should bootstrap anew.";
     130 STREAMS_INVALID_TOPOLOGY               final     "The streams topology is invalid.";
     131 STREAMS_INVALID_TOPOLOGY_EPOCH         final     "The streams topology epoch is invalid.";
     132 STREAMS_TOPOLOGY_FENCED                final     "The streams topology epoch is outdated.";
     133 SHARE_SESSION_LIMIT_REACHED            retriable "There are too many share sessions.";
}

impl ErrorCode {
    /// Kafka's name, or `UNKNOWN` for a code that is not in the table.
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |row| row.name)
    }

    /// Whether the same request may succeed later without anybody changing it. False for unknown codes.
    pub fn retriable(self) -> bool {
        self.row().is_some_and(|row| row.retriable)
    }

    /// What it means, for people.
    pub fn sentence(self) -> &'static str {
        self.row().map_or("An error this version does not know.", |row| row.sentence)
    }

    /// Whether it is not [`ErrorCode::NONE`].
    pub fn is_error(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_from_minus_one_to_133_once() {
        let codes: Vec<i16> = ErrorCode::ALL.iter().map(|code| code.0).collect();
        assert_eq!(codes, (-1..=133).collect::<Vec<i16>>());
    }

    #[test]
    fn codes_say_their_name_and_unknown_ones_pass_through() {
        assert_eq!(ErrorCode::NOT_LEADER_OR_FOLLOWER.to_string(), "NOT_LEADER_OR_FOLLOWER (6)");
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.retriable());
        assert!(!ErrorCode::TOPIC_ALREADY_EXISTS.retriable());
        assert_eq!(ErrorCode(999).to_string(), "UNKNOWN (999)");
    }
}
