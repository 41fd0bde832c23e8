//! Reads back what a run wrote, and asks the ledger for its verdict.
//!
//! Shell. Owns the reading after the measuring, so that it disturbs nothing. Always true: every partition is read from where it
//! ended when the run began to where it ends now, once; reading that is cut short gives no verdict rather than half of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::load::{Cancel, Progress};
use super::reader::{FetchPlan, Met, Reader};
use super::station::Brief;
use super::target::{BenchError, Cluster, partition_index};
use super::units;
use super::verify::{Ledger, Read, Stamp, Verification};
use crate::client::{ClientSettings, Io};

/// How long leaders may take to be known again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads back everything the run wrote and gives the ledger's verdict.
pub(crate) fn verify(
    io: &Io,
    settings: ClientSettings,
    brief: &Arc<Brief>,
    ledger: Ledger,
    cancel: &Cancel,
    watcher: &mut dyn FnMut(Progress),
) -> Verification {
    let expected = ledger.acked();
    watcher(Progress::Step(format!("reading back {} acknowledged records", units::grouped(expected))));
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (brief, cancel) = (Arc::clone(brief), cancel.clone());
    // A first Ctrl-C ended the run; only one that comes now ends the reading.
    let was_cancelled = cancel.is_cancelled();
    let answer = io.run(move || async move {
        read(settings, &brief, ledger, move || !was_cancelled && cancel.is_cancelled(), &sender).await
    });
    while let Some(read) = receiver.blocking_recv() {
        watcher(Progress::Verified(read, expected));
    }
    futures_lite::future::block_on(answer)
        .unwrap_or_else(|why| Verification::skipped(format!("reading back failed: {why}")))
}

async fn read(
    settings: ClientSettings,
    brief: &Brief,
    mut ledger: Ledger,
    cancelled: impl Fn() -> bool,
    progress: &mpsc::UnboundedSender<u64>,
) -> Result<Verification, BenchError> {
    const LATEST: i64 = -1;
    let cluster = Cluster::connect(settings).await?;
    // Leaders may have moved since the run began.
    cluster.network.topic_ready(&brief.topic.name, READY_TIMEOUT).await?;
    let mut topic = brief.topic.clone();
    for (partition, leader) in topic.leaders.iter_mut().enumerate() {
        if let Some((now, _)) = cluster.network.cluster().leader(&topic.name, partition_index(partition)) {
            *leader = now;
        }
    }
    let ends = cluster.offsets(&topic, LATEST).await?;
    let positions: BTreeMap<u32, i64> = (0..)
        .zip(&brief.starts)
        .filter(|(partition, start)| ends.get(*partition as usize) > Some(*start))
        .map(|(partition, start)| (partition, *start))
        .collect();
    let plan = FetchPlan { partition_max_bytes: 4 << 20, max_wait: Duration::from_millis(100), ..FetchPlan::default() };
    let mut read = 0u64;
    let mut told = 0;
    let mut unreadable = None;
    for mut reader in Reader::all(&cluster.network, &topic, &positions, plan) {
        while !reader.is_idle() {
            if cancelled() {
                return Ok(Verification::skipped(format!(
                    "interrupted after {} records were read back",
                    units::grouped(read)
                )));
            }
            let fetched = reader
                .fetch(&cluster.network, |met| match met {
                    Met::Record(partition, offset, _, value) => {
                        read += 1;
                        ledger.on_read(
                            partition,
                            offset,
                            value.map_or(Read::Foreign, |value| Stamp::read(value, brief.run)),
                        );
                    }
                    Met::Damaged(partition, first, last) => {
                        // The last offset is of the damaged bytes, too: it may be any number.
                        let end = ends.get(partition as usize).copied().unwrap_or(0);
                        (first..=last.min(end - 1)).for_each(|offset| ledger.on_read(partition, offset, Read::Unknown));
                    }
                })
                .await;
            match fetched {
                Ok(_) => {}
                // No consumer gets past it either: what was acknowledged behind it counts as lost.
                Err(error @ BenchError::Unreadable { partition, offset, .. }) => {
                    ledger.on_read(partition, offset, Read::Unknown);
                    reader.leave(partition);
                    unreadable.get_or_insert(error.to_string());
                }
                Err(error) => return Err(error),
            }
            for (partition, end) in (0..).zip(&ends) {
                if reader.position(partition).is_some_and(|position| position >= *end) {
                    reader.leave(partition);
                }
            }
            if read - told > 100_000 {
                told = read;
                _ = progress.send(read);
            }
        }
    }
    let mut verdict = ledger.finish();
    verdict.note = unreadable.into_iter().chain(verdict.note).reduce(|first, second| format!("{first}; {second}"));
    Ok(verdict)
}
