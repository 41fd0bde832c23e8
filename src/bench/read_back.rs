//! Reads back what a run wrote, and asks the ledger for its verdict.
//!
//! Shell. Owns the reading after the measuring, so that it disturbs nothing. Always true: every partition is read from where it
//! ended when the run began to where it ends now, once; leaders that move and connections that break are followed within
//! [`PATIENCE`]; reading that is cut short gives no verdict rather than half of one, and such a run is not valid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::reader::{FetchPlan, Met, Reader};
use super::station::Brief;
use super::target::{BenchError, Cluster, partition_index};
use super::units;
use super::verify::{Ledger, Read, Stamp, Verification};
use super::watch::{Cancel, Progress};
use crate::client::{ClientSettings, Io};
use crate::protocol::ErrorCode;

/// How long leaders may take to be known again.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long reading may bring nothing new before it is given up: a broker that was killed is back by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long is waited before the cluster is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

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
    ledger: Ledger,
    cancelled: impl Fn() -> bool,
    progress: &mpsc::UnboundedSender<u64>,
) -> Result<Verification, BenchError> {
    let mut reading = Reading {
        brief,
        ledger,
        positions: (0..).zip(brief.starts.iter().copied()).collect(),
        moved_at: Instant::now(),
        read: 0,
        told: 0,
        unreadable: None,
        progress,
    };
    loop {
        match reading.go_on(settings.clone(), &cancelled).await {
            Ok(()) => return Ok(reading.finish()),
            Err(BenchError::Interrupted) => {
                let read = units::grouped(reading.read);
                return Ok(Verification::skipped(format!("interrupted after {read} records were read back")));
            }
            Err(error) if may_pass(&error) && reading.moved_at.elapsed() < PATIENCE => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the same may succeed when leaders, starts and ends have been asked for anew.
fn may_pass(error: &BenchError) -> bool {
    error.retriable() || matches!(error, BenchError::Refused { code: ErrorCode::OFFSET_OUT_OF_RANGE, .. })
}

/// What was read back so far.
struct Reading<'a> {
    brief: &'a Brief,
    ledger: Ledger,
    /// Where reading goes on, of partitions that were not read to their end.
    positions: BTreeMap<u32, i64>,
    /// When anything new was read.
    moved_at: Instant,
    read: u64,
    told: u64,
    unreadable: Option<String>,
    progress: &'a mpsc::UnboundedSender<u64>,
}

impl Reading<'_> {
    /// Reads on to the ends, as whoever leads now tells them.
    async fn go_on(&mut self, settings: ClientSettings, cancelled: &impl Fn() -> bool) -> Result<(), BenchError> {
        const LATEST: i64 = -1;
        const EARLIEST: i64 = -2;
        let cluster = Cluster::connect(settings).await?;
        // Leaders may have moved since the run began.
        cluster.network.topic_ready(&self.brief.topic.name, READY_TIMEOUT).await?;
        let mut topic = self.brief.topic.clone();
        for (partition, leader) in topic.leaders.iter_mut().enumerate() {
            if let Some((now, _)) = cluster.network.cluster().leader(&topic.name, partition_index(partition)) {
                *leader = now;
            }
        }
        let ends = cluster.offsets(&topic, LATEST).await?;
        for ((partition, start), end) in (0..).zip(cluster.offsets(&topic, EARLIEST).await?).zip(&ends) {
            let Some(position) = self.positions.get_mut(&partition) else { continue };
            if *position < start {
                self.ledger.on_deleted(partition, *position..start);
                *position = start;
            }
            if *position >= *end {
                self.positions.remove(&partition);
            }
        }
        let plan =
            FetchPlan { partition_max_bytes: 4 << 20, max_wait: Duration::from_millis(100), ..FetchPlan::default() };
        for mut reader in Reader::all(&cluster.network, &topic, &self.positions, plan) {
            while !reader.is_idle() {
                if cancelled() {
                    return Err(BenchError::Interrupted);
                }
                self.fetch(&cluster, &mut reader, &ends).await?;
            }
        }
        Ok(())
    }

    /// One fetch of one reader. Errors leave the positions at what was read.
    async fn fetch(&mut self, cluster: &Cluster, reader: &mut Reader, ends: &[i64]) -> Result<(), BenchError> {
        let before: Vec<(u32, i64)> = reader.positions().collect();
        let fetched = reader.fetch(&cluster.network, |met| self.meet(met, ends)).await;
        if let Err(BenchError::Unreadable { partition, offset, .. }) = &fetched {
            // No consumer gets past it either: what was acknowledged behind it counts as lost.
            self.ledger.on_read(*partition, *offset, Read::Unknown);
            reader.leave(*partition);
        }
        for (partition, position) in before {
            let now = reader.position(partition);
            if now != Some(position) {
                self.moved_at = Instant::now();
            }
            match now.filter(|now| ends.get(partition as usize).is_some_and(|end| now < end)) {
                Some(now) => _ = self.positions.insert(partition, now),
                None => {
                    reader.leave(partition);
                    self.positions.remove(&partition);
                }
            }
        }
        if self.read - self.told > 100_000 {
            self.told = self.read;
            _ = self.progress.send(self.read);
        }
        match fetched {
            Ok(_) if self.moved_at.elapsed() < PATIENCE => Ok(()),
            Ok(_) => {
                let why = format!("nothing more could be read for {} s, before its end", PATIENCE.as_secs());
                Err(BenchError::Topic { topic: self.brief.topic.name.clone(), why })
            }
            Err(error @ BenchError::Unreadable { .. }) => {
                self.unreadable.get_or_insert(error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn meet(&mut self, met: Met<'_>, ends: &[i64]) {
        match met {
            Met::Record(partition, offset, _, value) => {
                self.read += 1;
                let read = value.map_or(Read::Foreign, |value| Stamp::read(value, self.brief.run));
                self.ledger.on_read(partition, offset, read);
            }
            Met::Damaged(partition, first, last) => {
                // The last offset is of the damaged bytes, too: it may be any number.
                let end = ends.get(partition as usize).copied().unwrap_or(0);
                (first..=last.min(end - 1)).for_each(|offset| self.ledger.on_read(partition, offset, Read::Unknown));
            }
            Met::Deleted(partition, from, to) => self.ledger.on_deleted(partition, from..to),
        }
    }

    fn finish(self) -> Verification {
        let mut verdict = self.ledger.finish();
        verdict.note =
            self.unreadable.into_iter().chain(verdict.note).reduce(|first, second| format!("{first}; {second}"));
        verdict
    }
}
