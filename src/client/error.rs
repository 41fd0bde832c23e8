//! What can go wrong between a client and a cluster, in words that say what to do.
//!
//! Pure. Owns [`CallError`] (one request to one broker) and [`ClientError`] (one thing a client was asked for), and which of
//! them may pass by themselves. Does not own what each client does about them. Always: a message names the broker, the
//! request and, where there is one, the next step. Source: Kafka's protocol guide (codes); Java's `RetriableException`.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::Problem;
use crate::protocol::ErrorCode;

/// What became of one request to one broker. Cheap to clone: one broken connection fails many requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection came about.
    #[error("could not connect to {to} ({why}){advice}")]
    Connect {
        /// `host:port`, or several of them.
        to: Box<str>,
        /// What the system said.
        why: Box<str>,
        /// `: what to do`, or empty.
        advice: Box<str>,
    },
    /// The connection broke while the request was in flight: the broker may have done it, or not.
    #[error("{broker} closed the connection during {api} ({why})")]
    Disconnected {
        /// `broker 1 at host:port`.
        broker: Box<str>,
        /// Kafka's name of the request.
        api: &'static str,
        /// What was seen.
        why: Box<str>,
    },
    /// No answer in time.
    #[error("{broker} did not answer {api} within {after:?}")]
    TimedOut {
        /// `broker 1 at host:port`.
        broker: Box<str>,
        /// Kafka's name of the request.
        api: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// Both sides know the request, but no version of it in common; or the broker does not know it.
    #[error("{broker} {}", unsupported(api, ours, theirs))]
    UnsupportedVersion {
        /// `broker 1 at host:port`.
        broker: Box<str>,
        /// Kafka's name of the request.
        api: &'static str,
        /// The versions this client speaks.
        ours: RangeInclusive<i16>,
        /// The versions the broker speaks; `None` when it does not serve the request.
        theirs: Option<RangeInclusive<i16>>,
    },
    /// What came is no answer to the request.
    #[error("{broker} sent what is no answer to {api}: {why}")]
    Malformed {
        /// `broker 1 at host:port`.
        broker: Box<str>,
        /// Kafka's name of the request.
        api: &'static str,
        /// What is wrong with it.
        why: Box<str>,
    },
}

fn unsupported(api: &str, ours: &RangeInclusive<i16>, theirs: &Option<RangeInclusive<i16>>) -> String {
    match theirs {
        None => format!("does not serve {api}: it is older, or not made for this"),
        Some(theirs) => format!(
            "speaks versions {}-{} of {api}, this client {}-{}: one of them is too old for the other",
            theirs.start(),
            theirs.end(),
            ours.start(),
            ours.end()
        ),
    }
}

impl CallError {
    /// Whether the same request may succeed later, on another connection.
    pub fn retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Disconnected { .. } | Self::TimedOut { .. } => true,
            Self::UnsupportedVersion { .. } | Self::Malformed { .. } => false,
        }
    }

    /// Whether the broker may have got the request. A retry of what is not idempotent may then do it twice.
    pub fn maybe_done(&self) -> bool {
        matches!(self, Self::Disconnected { .. } | Self::TimedOut { .. } | Self::Malformed { .. })
    }

    /// For a connection to `to` that failed with `error`.
    pub(crate) fn connect(to: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route to it".to_owned(),
            io::ErrorKind::PermissionDenied => "the system does not permit it".to_owned(),
            _ => error.to_string(),
        };
        let advice = match error.kind() {
            io::ErrorKind::ConnectionRefused => ": is a broker running there? Look at bootstrap.servers",
            io::ErrorKind::TimedOut => ": is the address right, and does a firewall let the port through?",
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => ": is the address right?",
            _ => "",
        };
        Self::Connect { to: to.into(), why: why.into(), advice: advice.into() }
    }

    /// As it is, with more to do about it.
    pub(crate) fn advised(mut self, more: &str) -> Self {
        if let Self::Connect { advice, .. } = &mut self {
            *advice = if advice.is_empty() { format!(": {more}") } else { format!("{advice}; {more}") }.into();
        }
        self
    }
}

/// Why a client could not do what it was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings hold errors; each [`Problem`] says where and what.
    #[error("{}", problems(.0))]
    Settings(Vec<Problem>),
    /// A request failed on its way.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A broker refused.
    #[error("{what}: {}{}", told(*code, message.as_deref()), coded(*code))]
    Broker {
        /// What was asked for, as in `topic orders`.
        what: Box<str>,
        /// Kafka's code.
        code: ErrorCode,
        /// The broker's own words, where it sent some.
        message: Option<Box<str>>,
    },
    /// It took longer than the caller allows.
    #[error("{what} took longer than {after:?}{}", last.as_ref().map(|last| format!("; the last thing that went wrong: {last}")).unwrap_or_default())]
    TimedOut {
        /// What was asked for.
        what: Box<str>,
        /// The time that was allowed.
        after: Duration,
        /// What stood in the way most recently.
        last: Option<Box<ClientError>>,
    },
    /// The call contradicts itself or the state the client is in.
    #[error("{0}")]
    Misuse(Box<str>),
    /// The client was closed, or its thread ended.
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// A broker's refusal.
    pub fn broker(what: impl fmt::Display, code: ErrorCode, message: Option<&str>) -> Self {
        Self::Broker { what: what.to_string().into(), code, message: message.map(Into::into) }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn retriable(&self) -> bool {
        match self {
            Self::Call(error) => error.retriable(),
            Self::Broker { code, .. } => code.retriable(),
            Self::TimedOut { .. } => true,
            Self::Settings(_) | Self::Misuse(_) | Self::Closed => false,
        }
    }

    /// Kafka's code, where a broker gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } => Some(*code),
            Self::TimedOut { last: Some(last), .. } => last.code(),
            _ => None,
        }
    }
}

/// The broker's words, or else ours.
fn told(code: ErrorCode, message: Option<&str>) -> &str {
    match message {
        Some(message) if !message.is_empty() => message.trim_end_matches('.'),
        _ => code.sentence().trim_end_matches('.'),
    }
}

fn coded(code: ErrorCode) -> String {
    format!(" [{code}]")
}

fn problems(problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}: {}", problem.place, problem.message));
        if let Some(help) = &problem.help {
            text.push_str(&format!(" ({help})"));
        }
    }
    text
}

/// Whether a code says that what is known of leaders is old: ask for metadata and send again.
pub fn metadata_is_stale(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::LEADER_NOT_AVAILABLE
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::LISTENER_NOT_FOUND
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID
            | ErrorCode::NOT_CONTROLLER
    )
}

/// Whether a code says that the group has another coordinator: ask for it and send again.
pub fn coordinator_is_stale(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_asks_whether_a_broker_is_there() {
        let error = CallError::connect("127.0.0.1:9999", &io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(
            error.to_string(),
            "could not connect to 127.0.0.1:9999 (connection refused): is a broker running there? Look at bootstrap.servers"
        );
        assert!(error.retriable() && !error.maybe_done());
    }

    #[test]
    fn a_refusal_says_the_brokers_words_and_else_ours() {
        let said = ClientError::broker("topic a", ErrorCode::INVALID_CONFIG, Some("retention.ms must be a number."));
        assert_eq!(said.to_string(), "topic a: retention.ms must be a number [INVALID_CONFIG (40)]");
        let silent = ClientError::broker("topic a", ErrorCode::TOPIC_ALREADY_EXISTS, None);
        assert_eq!(silent.to_string(), "topic a: A topic of this name exists [TOPIC_ALREADY_EXISTS (36)]");
        assert!(!silent.retriable());
        assert!(ClientError::broker("p", ErrorCode::NOT_LEADER_OR_FOLLOWER, None).retriable());
    }

    #[test]
    fn versions_without_overlap_name_both_sides() {
        let error = CallError::UnsupportedVersion {
            broker: "broker 1".into(),
            api: "Fetch",
            ours: 4..=17,
            theirs: Some(0..=3),
        };
        assert_eq!(
            error.to_string(),
            "broker 1 speaks versions 0-3 of Fetch, this client 4-17: one of them is too old for the other"
        );
        assert!(!error.retriable());
    }

    #[test]
    fn a_time_out_tells_what_stood_in_the_way() {
        let last = ClientError::broker("group g", ErrorCode::COORDINATOR_NOT_AVAILABLE, None);
        let error = ClientError::TimedOut {
            what: "reading offsets".into(),
            after: Duration::from_secs(5),
            last: Some(Box::new(last)),
        };
        assert_eq!(error.code(), Some(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        assert!(
            error
                .to_string()
                .starts_with("reading offsets took longer than 5s; the last thing that went wrong: group g")
        );
    }
}
