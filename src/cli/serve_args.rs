//! The arguments of `serve`, and where its settings and its log filter come from.
//!
//! Shell: reads the environment. Source: Kafka's `kafka-server-start.sh` (`--override`) and container image (`KAFKA_…`).

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::Sources;

const EXAMPLES: &str = "\
Examples:
  ringlog serve
  ringlog serve -c server.properties
  ringlog serve --override log.dirs=/srv/a,/srv/b --override engine.ack.durability=flushed
  KAFKA_NUM_PARTITIONS=3 ringlog serve --log-level debug

Settings are taken, each stronger than the one before, from the defaults, the file, the environment
(KAFKA_LOG_DIRS for log.dirs) and --override. Sizes may be written as 16KiB or 1MB, times as 5ms or 1h.
`ringlog check-config FILE` says what serve would say to a file.";

/// Runs a broker until SIGTERM or Ctrl-C.
///
/// Without any settings it keeps its data in ./data, serves Kafka's protocol on 127.0.0.1:9092, and metrics
/// and health over HTTP on 127.0.0.1:9644.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Settings, in the form and with the names of Kafka's server.properties.
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// One setting, stronger than the file and the environment; may be given again.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
    pub overrides: Vec<(String, String)>,

    /// What is logged: error, warn, info or debug, or a filter such as info,ringlog::log=debug [default: info].
    #[arg(long, value_name = "LEVEL", env = "RINGLOG_LOG")]
    pub log_level: Option<String>,

    /// How log lines are written.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// A file to write once the broker serves: one line of JSON with the addresses (kafka, admin) and the pid.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl ServeArgs {
    /// Where the settings come from.
    pub fn sources(&self) -> Sources {
        sources(self.config.clone(), &self.overrides)
    }

    /// The log filter: `--log-level`, else the level Kafka's container image takes, else info.
    pub fn log_filter(&self) -> String {
        let kafkas = || std::env::var("KAFKA_LOG4J_ROOT_LOGLEVEL").ok().map(|level| level.to_ascii_lowercase());
        self.log_level.clone().or_else(kafkas).unwrap_or_else(|| "info".to_owned())
    }
}

/// A file and overrides beside the environment. Variables that are not UTF-8 are none of ours.
pub(super) fn sources(file: Option<PathBuf>, overrides: &[(String, String)]) -> Sources {
    let env = std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    Sources { file, env: env.collect(), overrides: overrides.to_vec() }
}

/// Splits `key=value` for clap.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_pairs() {
        assert_eq!(key_value("a.b = c=d"), Ok(("a.b".to_owned(), "c=d".to_owned())));
        assert_eq!(key_value("a="), Ok(("a".to_owned(), String::new())));
        assert!(key_value("a").is_err() && key_value("=b").is_err());
    }
}
