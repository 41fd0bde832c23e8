//! What became of each of several things, and the exit code of all.
//!
//! Shell: writes to standard error, asks on the terminal. Owns the exit codes 1 (nothing was done) and 5 (some was not), the question
//! before something is destroyed, and how it is told what was. Always: each failure is a line of its own that names the thing.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::anyhow;
use serde::Serialize;

use super::show::{Output, nearest, write_json};
use super::{EXIT_FAILED, EXIT_PARTIAL, Failure, problems};
use crate::client::admin::{BlockingAdmin, ItemError, ListedOffset};
use crate::protocol::ErrorCode;

/// Counts what was done and what was not.
#[derive(Debug, Default)]
pub(super) struct Tally {
    done: usize,
    failed: usize,
}

impl Tally {
    /// It was done.
    pub(super) fn done(&mut self) {
        self.done += 1;
    }

    /// It was not, for that reason.
    pub(super) fn failed(&mut self, what: &str, why: impl std::fmt::Display) {
        self.failed += 1;
        // Nobody is left to tell when this fails.
        _ = problems::write_error(&mut io::stderr().lock(), problems::paint_stderr(), &format!("{what}: {why}"));
    }

    /// The exit code.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self {
            Self { failed: 0, .. } => Ok(()),
            Self { done: 0, .. } => Err(Failure::Told(EXIT_FAILED)),
            _ => Err(Failure::Told(EXIT_PARTIAL)),
        }
    }
}

/// One of the things that were to be destroyed.
pub(super) struct Destroyed<'d> {
    /// As it stands on standard output once it is gone.
    pub(super) name: String,
    /// As a line about its failure begins.
    pub(super) what: String,
    /// The topic or group that may have been mistyped.
    pub(super) within: &'d str,
    /// Why it is still there.
    pub(super) error: Option<&'d ItemError>,
}

/// Tells what became of each of them: names of those that are gone, one a line, or all outcomes as JSON; and the exit code.
pub(super) fn tell_destroyed<'d, O: Serialize>(
    admin: &BlockingAdmin,
    outcomes: &'d [O],
    of: impl Fn(&'d O) -> Destroyed<'d>,
    output: Output,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut tally = Tally::default();
    for Destroyed { name, what, within, error } in outcomes.iter().map(of) {
        match error {
            None => {
                tally.done();
                if output != Output::Json {
                    writeln!(out, "{name}")?;
                }
            }
            Some(error) => tally.failed(&what, with_hint(admin, within, error)),
        }
    }
    if output == Output::Json {
        write_json(out, &outcomes)?;
    }
    tally.end()
}

/// The offset that was asked for; `None`: there is no such record. Errors: the broker does not tell, which must not be taken for that.
pub(super) fn listed(one: &ListedOffset) -> anyhow::Result<Option<i64>> {
    match &one.error {
        Some(error) => Err(anyhow!("{}-{}: {error}", one.topic, one.partition)),
        None => Ok(one.offset),
    }
}

/// The error with the name that was meant, where the topic or group is not there.
pub(super) fn with_hint(admin: &BlockingAdmin, name: &str, error: &ItemError) -> String {
    let names: Vec<String> = match ErrorCode(error.code) {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => match admin.list_topics(true) {
            Ok(topics) => topics.into_iter().map(|topic| topic.name).collect(),
            Err(_) => Vec::new(),
        },
        ErrorCode::GROUP_ID_NOT_FOUND => match admin.list_groups(Vec::new(), Vec::new()) {
            Ok(groups) => groups.into_iter().map(|group| group.group).collect(),
            Err(_) => Vec::new(),
        },
        _ => return error.to_string(),
    };
    let missing = match ErrorCode(error.code) {
        ErrorCode::GROUP_ID_NOT_FOUND => "there is no such group",
        _ => "there is no such topic",
    };
    // A partition may be missing from a topic that is there.
    if names.iter().any(|known| known == name) {
        return error.to_string();
    }
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("{missing}; did you mean {near}?"),
        None => missing.to_owned(),
    }
}

/// Asks on a terminal whether to go on; without one, or with `yes`, it goes on.
pub(super) fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes || !io::stdin().is_terminal() {
        return Ok(());
    }
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => {
            writeln!(stderr, "nothing was done")?;
            Err(Failure::Told(EXIT_FAILED))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::client::fake_broker::{FakeBroker, metadata, on_a_thread};
    use crate::client::settings::AdminSettings;
    use crate::client::{Admin, Settings as _};
    use crate::protocol::ApiKey;
    use crate::protocol::admin::{
        ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
        MetadataPartition, MetadataResponse, MetadataTopic,
    };
    use tokio::net::TcpListener;

    /// Runs `test` with a broker whose topic `t` has two partitions of ten records, and which cannot look up moments in the second.
    /// Whatever else it is asked for is not answered: the connection ends.
    pub(in crate::cli) fn deaf_to_times(test: impl FnOnce(&BlockingAdmin)) {
        let (listening, address) = std::sync::mpsc::channel();
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let broker = std::thread::spawn(move || {
            on_a_thread(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                let _broker = FakeBroker::on(listener, move |_, mut peer| async move {
                    peer.greet().await;
                    while let Some(asked) = peer.next().await {
                        match asked.api {
                            ApiKey::Metadata => peer.answer(&asked, &topic(port)).await,
                            ApiKey::ListOffsets => peer.answer(&asked, &offsets(&asked.read())).await,
                            _ => return,
                        }
                    }
                });
                listening.send(port).unwrap();
                _ = end.await;
            });
        });
        let admin = AdminSettings::builder()
            .set("bootstrap.servers", format!("127.0.0.1:{}", address.recv().unwrap()))
            .set("client.id", "tester")
            .set("retries", 0)
            .build()
            .unwrap();
        test(&Admin::new(admin).unwrap().blocking());
        drop(ended);
        broker.join().unwrap();
    }

    fn topic(port: u16) -> MetadataResponse<'static> {
        let partition = |partition_index| MetadataPartition {
            partition_index,
            leader_id: 1,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..Default::default()
        };
        let topic = MetadataTopic {
            name: Some("t".into()),
            topic_id: crate::types::TopicId::from_bytes([7; 16]),
            partitions: vec![partition(0), partition(1)],
            ..Default::default()
        };
        MetadataResponse { topics: vec![topic], ..metadata(&[(1, port)]) }
    }

    fn offsets(request: &ListOffsetsRequest<'_>) -> ListOffsetsResponse<'static> {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|one| {
                let (error_code, offset) = match (one.timestamp, one.partition_index) {
                    (-2, _) => (ErrorCode::NONE, 0),
                    (0.., 1) => (ErrorCode::KAFKA_STORAGE_ERROR, -1),
                    _ => (ErrorCode::NONE, 10),
                };
                let partition_index = one.partition_index;
                ListOffsetsPartitionResponse { partition_index, error_code, offset, ..Default::default() }
            });
            ListOffsetsTopicResponse { name: "t".into(), partitions: partitions.collect() }
        });
        ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
    }
}
