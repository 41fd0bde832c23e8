//! `kafka-log-dirs`.
//!
//! Shell: asks the cluster. Owns the tool's flags and text. Source: Kafka 4.4's LogDirsCommand, asked.

use serde::Serialize;

use super::exceptions::spelled;
use super::options::{Flag, Manner, Words, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread};
use crate::cli::show::joined;
use crate::client::admin::BrokerLogDirs;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-log-dirs",
    about: "Shows what lies in the log directories of brokers.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::Bare,
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-server", "host:port,…", "REQUIRED: brokers to connect to."),
    value("broker-list", "0,1,…", "Only these brokers."),
    value("command-config", "file", "A properties file with settings of the client."),
    switch("describe", "REQUIRED: show the log directories."),
    switch("help", "Show this page."),
    value("topic-list", "t1,t2,…", "Only these topics."),
    switch("version", "Show whose output is spoken."),
];

// The fields stand in the order the tool prints them.
#[derive(Serialize)]
struct Document<'d> {
    brokers: Vec<Broker<'d>>,
    version: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Broker<'d> {
    broker: i32,
    log_dirs: Vec<Dir<'d>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dir<'d> {
    partitions: Vec<Partition>,
    error: Option<String>,
    log_dir: &'d str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Partition {
    partition: String,
    size: i64,
    offset_lag: i64,
    is_future: bool,
}

fn document(brokers: &[BrokerLogDirs], topics: &[&str]) -> String {
    let document = Document {
        brokers: brokers
            .iter()
            .map(|broker| Broker {
                broker: broker.broker,
                log_dirs: broker
                    .log_dirs
                    .iter()
                    .map(|dir| Dir {
                        partitions: dir
                            .partitions
                            .iter()
                            .filter(|one| topics.is_empty() || topics.contains(&one.topic.as_str()))
                            .map(|one| Partition {
                                partition: format!("{}-{}", one.topic, one.partition),
                                size: one.size,
                                offset_lag: one.offset_lag,
                                is_future: one.is_future,
                            })
                            .collect(),
                        error: dir.error.as_ref().map(|error| {
                            let spelled = spelled(error);
                            spelled.split(": ").next().unwrap_or_default().to_owned()
                        }),
                        log_dir: &dir.path,
                    })
                    .collect(),
            })
            .collect(),
        version: 1,
    };
    serde_json::to_string(&document).expect("strings and numbers are always JSON")
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    words.require(&["bootstrap-server", "describe"]).map_err(Stop::Usage)?;
    let bootstrap = words.value("bootstrap-server").map_err(Stop::Said)?.unwrap_or_default();
    let list = |text: Option<&str>| -> Vec<String> {
        text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let topics = list(words.value("topic-list").map_err(Stop::Said)?);
    let mut brokers = Vec::new();
    for word in list(words.value("broker-list").map_err(Stop::Said)?) {
        brokers.push(word.parse::<i32>().map_err(|_| Stop::Said(format!("For input string: \"{word}\"")))?);
    }
    // A set, as in Kafka.
    brokers.sort_unstable();
    brokers.dedup();
    let io = client_thread()?;
    let admin =
        Access::new(bootstrap, words.value("command-config").map_err(Stop::Said)?).admin(&io).map_err(Stop::Said)?;
    let told = |error: crate::client::ClientError| Stop::Said(error.to_string());
    let known: Vec<i32> = admin.describe_cluster().map_err(told)?.brokers.iter().map(|broker| broker.id).collect();
    let missing: Vec<i32> = brokers.iter().copied().filter(|id| !known.contains(id)).collect();
    if !missing.is_empty() {
        return Err(Stop::Said(format!(
            "ERROR: The given brokers do not exist from --broker-list: {}. Current existent brokers: {}",
            joined(missing),
            joined(known)
        )));
    }
    if brokers.is_empty() {
        brokers = known;
    }
    writeln!(desk.out, "Querying brokers for log directories information")?;
    let dirs = admin.describe_log_dirs(brokers.clone(), None).map_err(told)?;
    if let Some(error) = dirs.iter().find_map(|broker| broker.error.as_ref()) {
        return Err(Stop::Said(spelled(error)));
    }
    writeln!(desk.out, "Received log directory information from brokers {}", joined(brokers))?;
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    writeln!(desk.out, "{}", document(&dirs, &topics))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::admin::{LogDir, LogDirPartition};

    #[test]
    fn the_document_has_its_fields_in_order() {
        let partition = |topic: &str| LogDirPartition {
            topic: topic.to_owned(),
            partition: 0,
            size: 248,
            offset_lag: 0,
            is_future: false,
        };
        let dir = LogDir {
            path: "/data".to_owned(),
            total_bytes: None,
            usable_bytes: None,
            partitions: vec![partition("s1"), partition("t1")],
            error: None,
        };
        let brokers = [BrokerLogDirs { broker: 1, log_dirs: vec![dir], error: None }];
        assert_eq!(
            document(&brokers, &["s1"]),
            r#"{"brokers":[{"broker":1,"logDirs":[{"partitions":[{"partition":"s1-0","size":248,"offsetLag":0,"isFuture":false}],"error":null,"logDir":"/data"}]}],"version":1}"#
        );
    }
}
