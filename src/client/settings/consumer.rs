//! Settings of a consumer, and the rules between them.
//!
//! Pure. Owns [`ConsumerSettings`]. Always: heartbeats come within a session; offsets are committed only for a group; an answer
//! as large as was asked for is taken. Source: Kafka 4.4's `ConsumerConfig`.

use std::time::Duration;

use super::builder::{Desk, Settings};
use super::{ClientSettings, bound};
use crate::client::assignor::Assignor;
use crate::config::client_rows::ClientRole;

/// `auto.offset.reset`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// The log start.
    Earliest,
    /// The end.
    Latest,
    /// The caller is told.
    None,
    /// The first record so much younger than now.
    ByDuration(Duration),
}

/// `isolation.level`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset, without aborted records.
    ReadCommitted,
}

impl IsolationLevel {
    /// As it stands in requests.
    pub const fn wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// Settings of a consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerSettings {
    /// What all clients need.
    pub client: ClientSettings,
    /// `group.id`
    pub group_id: Option<String>,
    /// `group.instance.id`
    pub group_instance_id: Option<String>,
    /// `auto.offset.reset`
    pub auto_offset_reset: OffsetReset,
    /// `enable.auto.commit`; false without a group.
    pub enable_auto_commit: bool,
    /// `auto.commit.interval.ms`
    pub auto_commit_interval: Duration,
    /// `session.timeout.ms`
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`; less than the session time-out.
    pub heartbeat_interval: Duration,
    /// `max.poll.interval.ms`
    pub max_poll_interval: Duration,
    /// `max.poll.records`
    pub max_poll_records: usize,
    /// `fetch.min.bytes`
    pub fetch_min_bytes: i32,
    /// `fetch.max.wait.ms`
    pub fetch_max_wait: Duration,
    /// `fetch.max.bytes`
    pub fetch_max_bytes: i32,
    /// `max.partition.fetch.bytes`
    pub max_partition_fetch_bytes: i32,
    /// `isolation.level`
    pub isolation_level: IsolationLevel,
    /// `check.crcs`
    pub check_crcs: bool,
    /// `partition.assignment.strategy`; never empty.
    pub assignors: Vec<Assignor>,
    /// `exclude.internal.topics`
    pub exclude_internal_topics: bool,
    /// `default.api.timeout.ms`
    pub default_api_timeout: Duration,
}

impl ConsumerSettings {
    pub(crate) fn bounded(mut self) -> Self {
        bound([
            &mut self.auto_commit_interval,
            &mut self.session_timeout,
            &mut self.heartbeat_interval,
            &mut self.max_poll_interval,
            &mut self.fetch_max_wait,
            &mut self.default_api_timeout,
        ]);
        Self { client: self.client.bounded(), ..self }
    }
}

impl Settings for ConsumerSettings {
    const ROLE: ClientRole = ClientRole::Consumer;

    fn assemble(desk: &mut Desk) -> Self {
        let mut client = desk.client(Self::ROLE);
        let group_id = desk.optional("group.id");
        let (session_timeout, heartbeat_interval) =
            (desk.millis("session.timeout.ms"), desk.millis("heartbeat.interval.ms"));
        if heartbeat_interval >= session_timeout {
            let message = "heartbeat.interval.ms is not less than session.timeout.ms".to_owned();
            desk.wrong("heartbeat.interval.ms", message, "a third of session.timeout.ms is wise");
        }
        if group_id.is_none() && desk.given("enable.auto.commit").is_some() && desk.flag("enable.auto.commit") {
            let message = "enable.auto.commit=true without a group.id".to_owned();
            desk.wrong("enable.auto.commit", message, "give a group.id: offsets are committed for a group");
        }
        let names = desk.text("partition.assignment.strategy");
        let assignors: Vec<_> = names
            .split(',')
            .filter_map(|name| Assignor::ALL.into_iter().find(|kind| kind.name() == name.trim()))
            .collect();
        if assignors.is_empty() {
            let message = "partition.assignment.strategy is empty".to_owned();
            desk.wrong("partition.assignment.strategy", message, "name at least one, or leave it out");
        }
        if desk.given("receive.message.max.bytes").is_none() {
            // An answer may be as large as was asked for, and somewhat larger.
            let asked = desk.not_negative("fetch.max.bytes").unwrap_or(0).saturating_add(1 << 20);
            client.receive_message_max_bytes = client.receive_message_max_bytes.max(asked);
        }
        Self {
            enable_auto_commit: group_id.is_some() && desk.flag("enable.auto.commit"),
            group_id,
            group_instance_id: desk.optional("group.instance.id"),
            auto_offset_reset: desk.offset_reset(),
            auto_commit_interval: desk.millis("auto.commit.interval.ms"),
            session_timeout,
            heartbeat_interval,
            max_poll_interval: desk.millis("max.poll.interval.ms"),
            max_poll_records: desk.size("max.poll.records"),
            fetch_min_bytes: desk.int("fetch.min.bytes"),
            fetch_max_wait: desk.millis("fetch.max.wait.ms"),
            fetch_max_bytes: desk.int("fetch.max.bytes"),
            max_partition_fetch_bytes: desk.int("max.partition.fetch.bytes"),
            isolation_level: match desk.text("isolation.level") {
                "read_committed" => IsolationLevel::ReadCommitted,
                _ => IsolationLevel::ReadUncommitted,
            },
            check_crcs: desk.flag("check.crcs"),
            assignors,
            exclude_internal_topics: desk.flag("exclude.internal.topics"),
            default_api_timeout: desk.millis("default.api.timeout.ms"),
            client,
        }
    }
}

impl Desk {
    fn offset_reset(&mut self) -> OffsetReset {
        let text = self.text("auto.offset.reset").to_owned();
        match text.as_str() {
            "earliest" => OffsetReset::Earliest,
            "latest" => OffsetReset::Latest,
            "none" => OffsetReset::None,
            _ => match text.strip_prefix("by_duration:").and_then(iso_duration) {
                Some(duration) => OffsetReset::ByDuration(duration),
                None => {
                    let message = format!("auto.offset.reset={text} is not known");
                    self.wrong("auto.offset.reset", message, "earliest, latest, none, or as in by_duration:PT1H30M");
                    OffsetReset::Latest
                }
            },
        }
    }
}

/// Reads `P1DT2H3M4.5S`, as Java's `Duration.parse` does, without signs.
fn iso_duration(text: &str) -> Option<Duration> {
    let rest = text.trim().to_ascii_uppercase();
    let rest = rest.strip_prefix('P')?;
    let (days, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (rest, ""),
    };
    let (mut seconds, mut parts) = (0.0, 0);
    for (part, units) in [(days, "D"), (time, "HMS")] {
        let mut part = part;
        let mut units = units;
        while !part.is_empty() {
            let end = part.find(|letter: char| letter.is_ascii_alphabetic())?;
            let unit = part[end..].chars().next()?;
            let number = &part[..end];
            let whole = number.bytes().all(|byte| byte.is_ascii_digit());
            let at = units.find(unit)?;
            if number.is_empty() || !(whole || unit == 'S') {
                return None;
            }
            let factor = match unit {
                'D' => 86_400.0,
                'H' => 3_600.0,
                'M' => 60.0,
                _ => 1.0,
            };
            seconds += number.parse::<f64>().ok()? * factor;
            parts += 1;
            units = &units[at + 1..];
            part = &part[end + 1..];
        }
    }
    if parts == 0 { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_java_writes_them() {
        assert_eq!(iso_duration("PT1H30M"), Some(Duration::from_secs(5400)));
        assert_eq!(iso_duration("P1DT0.5S"), Some(Duration::from_millis(86_400_500)));
        for bad in ["", "P", "PT", "1H", "PT1D", "PT1M1H", "P1H", "PTH", "PT-1S"] {
            assert_eq!(iso_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_consumers_rules_hold() {
        let consumer = |key: &str, value: &str| {
            ConsumerSettings::builder()
                .set("bootstrap.servers", "b")
                .set(key, value)
                .build()
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            consumer("auto.offset.reset", "by_duration:PT2S").unwrap().auto_offset_reset,
            OffsetReset::ByDuration(Duration::from_secs(2))
        );
        for (key, value) in [
            ("auto.offset.reset", "sometimes"),
            ("heartbeat.interval.ms", "45000"),
            ("enable.auto.commit", "true"),
            ("partition.assignment.strategy", ""),
            ("partition.assignment.strategy", "com.example.Mine"),
            ("group.protocol", "consumer"),
        ] {
            assert!(consumer(key, value).is_err(), "{key}={value}");
        }
    }
}
