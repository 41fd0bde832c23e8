//! Reads records while measuring: what lies in a topic, or what is being produced into it.
//!
//! Shell; tasks on a client thread. Owns the reading loops: plain fetches of assigned partitions, or a consumer group. Always
//! true: a record's age is counted from the time it was meant to be sent, on the clock all processes of this host share; whoever
//! reads along goes on until the producers have drained, and then to where the partitions end, no longer than the plan's drain:
//! to leave earlier would hide the slowest records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::spawn_local;

use super::clock::Clock;
use super::plan::{Kind, Plan};
use super::reader::{FetchPlan, Met, Reader};
use super::station::{Station, Told};
use super::target::{BenchError, Cluster, client_settings};
use super::verify::Stamp;
use crate::client::{Consumer, ConsumerError, ConsumerSettings, Io, Settings as _};
use crate::config::client_rows::ClientRole;

/// How long a group may take to deal out its partitions.
const JOIN: Duration = Duration::from_secs(30);
/// How long a member waits for records at a time.
const POLL: Duration = Duration::from_millis(300);
/// How long a member may take to leave.
const CLOSE: Duration = Duration::from_secs(5);

/// The settings of the plan's consumers.
pub(crate) fn consumer_settings(plan: &Plan, group: Option<&str>) -> Result<ConsumerSettings, BenchError> {
    let mut builder = ConsumerSettings::builder();
    for (name, value) in plan.client_words(ClientRole::Consumer) {
        if group.is_some() || name != "enable.auto.commit" {
            builder = builder.set_at(&name, value, "command line");
        }
    }
    if let Some(group) = group {
        builder = builder.set_at("group.id", group, "command line");
    }
    Ok(builder.build()?)
}

/// Consumer `number`, from preparing to the end of its tail.
pub(crate) async fn run(station: Arc<Station>, io: Io, number: u32) {
    let done = if station.brief.plan.groups > 0 {
        grouped(&station, &io, number).await
    } else {
        assigned(&station, number).await
    };
    if let Err(error) = done {
        station.tell(Told::Failed(error));
    }
}

/// Reads its share of the partitions with plain fetches.
async fn assigned(station: &Arc<Station>, number: u32) -> Result<(), BenchError> {
    let brief = &station.brief;
    let plan = &brief.plan;
    let settings = consumer_settings(plan, None)?;
    let fetch_plan = FetchPlan {
        min_bytes: settings.fetch_min_bytes,
        max_wait: settings.fetch_max_wait,
        max_bytes: settings.fetch_max_bytes,
        partition_max_bytes: settings.max_partition_fetch_bytes,
        check_crcs: settings.check_crcs,
    };
    let cluster = Cluster::connect(client_settings(plan)?).await?;
    cluster.network.topic_ready(&brief.topic.name, Duration::from_secs(30)).await?;
    let mine = |partition: &u32| partition % plan.consumers == number % plan.consumers;
    let positions: BTreeMap<u32, i64> =
        (0..).zip(brief.starts.iter().copied()).filter(|(partition, _)| mine(partition)).collect();
    let readers = Reader::all(&cluster.network, &brief.topic, &positions, fetch_plan);
    station.tell(Told::Ready);
    let Some(clock) = station.started().await else { return Ok(()) };
    let cluster = std::rc::Rc::new(cluster);
    let tasks: Vec<_> = readers
        .into_iter()
        .map(|reader| spawn_local(read(Arc::clone(station), std::rc::Rc::clone(&cluster), reader, clock)))
        .collect();
    let mut outcome = Ok(());
    for task in tasks {
        match task.await {
            Ok(Err(error)) => outcome = Err(error),
            Ok(Ok(())) => {}
            Err(_) => outcome = Err(BenchError::Generator),
        }
    }
    outcome
}

/// One reader's loop.
async fn read(
    station: Arc<Station>,
    cluster: std::rc::Rc<Cluster>,
    mut reader: Reader,
    clock: Clock,
) -> Result<(), BenchError> {
    let catching_up = station.brief.plan.kind == Kind::Consume;
    let mut tail: Option<Tail> = None;
    while !reader.is_idle() {
        let began = clock.now();
        let mut tally = Tally::new(&station, clock);
        let bytes = reader.fetch(&cluster.network, |met| match met {
            Met::Record(_, _, key, value) => tally.on_record(key, value),
            Met::Damaged(_, first, last) => tally.on_damaged(last.saturating_sub(first).saturating_add(1)),
            Met::Deleted(..) => {}
        });
        let bytes = bytes.await?;
        let over = tally.over;
        if catching_up && bytes > 0 {
            station.sheet().recorder.on_answer(clock.now(), began, began);
        }
        if catching_up {
            leave_what_was_read(&station, &mut reader);
        }
        if catching_up && (over || station.is_stopping()) {
            break;
        }
        if let Some(tail) = &mut tail {
            let at_end = |(partition, position): (u32, i64)| {
                tail.ends.get(partition as usize).is_none_or(|end| position >= *end)
            };
            let read_all = reader.positions().all(at_end);
            if tail.is_over(read_all) {
                break;
            }
        } else if station.is_drained() {
            tail = Some(Tail::begin(&station, &cluster).await?);
        }
    }
    Ok(())
}

/// What is left to read once the producers have drained.
struct Tail {
    ends: Vec<i64>,
    until: tokio::time::Instant,
    read_all: bool,
}

impl Tail {
    async fn begin(station: &Station, cluster: &Cluster) -> Result<Self, BenchError> {
        const LATEST: i64 = -1;
        let until = tokio::time::Instant::now() + station.brief.plan.drain;
        Ok(Self { ends: cluster.offsets(&station.brief.topic, LATEST).await?, until, read_all: false })
    }

    /// To be asked after each fetch. All was read only after one more of them: what was acknowledged before its followers had it is
    /// behind the end that is told to readers.
    fn is_over(&mut self, read_all: bool) -> bool {
        std::mem::replace(&mut self.read_all, read_all) && read_all || tokio::time::Instant::now() > self.until
    }
}

/// `consume` ends where the topic ended when it began.
fn leave_what_was_read(station: &Station, reader: &mut Reader) {
    for (partition, end) in (0..).zip(&station.brief.ends) {
        if reader.position(partition).is_some_and(|position| position >= *end) {
            reader.leave(partition);
        }
    }
}

/// What one fetch or poll brought, written down record by record.
struct Tally<'a> {
    station: &'a Station,
    clock: Clock,
    now: u64,
    over: bool,
}

/// Records a damaged batch is taken for at most: its count is of the damaged bytes, too.
const DAMAGED_RECORDS_MAX: i64 = 1_000_000;

impl<'a> Tally<'a> {
    fn new(station: &'a Station, clock: Clock) -> Self {
        Self { station, clock, now: 0, over: false }
    }

    fn on_damaged(&mut self, records: i64) {
        let records = records.clamp(1, DAMAGED_RECORDS_MAX).cast_unsigned();
        let mut sheet = self.station.sheet();
        sheet.recorder.on_damaged(self.clock.now(), records);
        sheet.on_error("damaged batch", records);
    }

    fn on_record(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) {
        // All records of one fetch are in the reader's hands at the same time.
        if self.now == 0 {
            self.now = self.clock.now();
        }
        if self.station.brief.plan.kind == Kind::Consume && !self.station.may_send(1) {
            self.over = true;
            return;
        }
        let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        let intended = value.and_then(Stamp::time_of);
        let age = intended.and_then(|ns| age(self.clock, self.now, ns));
        let mut sheet = self.station.sheet();
        sheet.recorder.on_consumed(self.now, bytes as u64, age);
        sheet.last_us = sheet.last_us.max(self.now);
    }
}

/// How old a record is that was meant to be sent at `ns` of the host's clock. Records that lay there before the run have no latency,
/// only an age; nor have those that were stamped before the host was started anew, whose clock then stood where ours will be.
fn age(clock: Clock, now: u64, ns: u64) -> Option<u64> {
    (clock.host_ns(0)..=clock.host_ns(now)).contains(&ns).then(|| now.saturating_sub(clock.at_host_ns(ns)))
}

/// Reads as a member of a group.
async fn grouped(station: &Arc<Station>, io: &Io, number: u32) -> Result<(), BenchError> {
    let brief = &station.brief;
    let plan = &brief.plan;
    let group = format!("ringlog-bench-{:08x}-{}", brief.run, number / plan.consumers);
    let topic = |error: ConsumerError| BenchError::Topic { topic: brief.topic.name.clone(), why: error.to_string() };
    let mut membership = Some(Membership(station));
    let mut consumer = Consumer::on(io, consumer_settings(plan, Some(&group))?);
    consumer.subscribe([&brief.topic.name]).map_err(topic)?;
    // Ready means dealt out: a rebalance is not what is measured. A member of a group larger than the topic gets nothing.
    let ready = tokio::time::Instant::now() + JOIN;
    let mut early = Vec::new();
    while consumer.assignment().is_empty() && tokio::time::Instant::now() < ready {
        early.extend(consumer.poll_batches(Duration::from_millis(100)).await.map_err(topic)?);
    }
    station.tell(Told::Ready);
    let Some(clock) = station.started().await else { return Ok(()) };
    let catching_up = plan.kind == Kind::Consume;
    let mut tail: Option<Tail> = None;
    loop {
        let batches = if early.is_empty() {
            tokio::select! {
                polled = consumer.poll_batches(POLL) => polled.map_err(topic)?,
                () = station.stopped(), if catching_up => break,
            }
        } else {
            std::mem::take(&mut early)
        };
        let mut tally = Tally::new(station, clock);
        for record in batches.iter().flat_map(|batch| batch.iter()) {
            match record {
                Ok(record) => tally.on_record(record.key, record.value),
                Err(_) => tally.on_damaged(1),
            }
        }
        if tally.over {
            break;
        }
        if catching_up && has_read_all(&consumer, &brief.ends) {
            break;
        }
        if let Some(tail) = &mut tail {
            // A member of a group larger than the topic has nothing to read.
            let read_all = consumer.assignment().is_empty() || has_read_all(&consumer, &tail.ends);
            if tail.is_over(read_all) {
                membership = None;
            }
            let alone = brief.members.load(Ordering::Relaxed) == 0;
            if membership.is_none() && (alone || tokio::time::Instant::now() > tail.until) {
                break;
            }
        } else if station.is_drained() {
            tail = Some(Tail::begin(station, &Cluster::connect(client_settings(plan)?).await?).await?);
        }
    }
    drop(membership);
    consumer.close(CLOSE).await;
    Ok(())
}

/// A member that has not read to the end.
struct Membership<'a>(&'a Station);

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        self.0.brief.members.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a member stands at or past where each of its partitions ended.
fn has_read_all(consumer: &Consumer, ends: &[i64]) -> bool {
    let assignment = consumer.assignment();
    !assignment.is_empty()
        && assignment.iter().all(|partition| {
            let end = usize::try_from(partition.partition.value()).ok().and_then(|index| ends.get(index));
            let position = consumer.known_position(partition).map(|offset| offset.value());
            end.is_some_and(|end| position.is_some_and(|position| position >= *end))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_stamped_within_the_run_has_a_latency() {
        let clock = Clock::start();
        let stamped = |at: i64| clock.host_ns(0).saturating_add_signed(at);
        assert_eq!(age(clock, 5000, stamped(2_000_000)), Some(3000));
        assert_eq!(age(clock, 5000, stamped(5_000_000)), Some(0));
        assert_eq!(age(clock, 5000, stamped(-1_000_000)), None);
        assert_eq!(age(clock, 5000, stamped(60_000_000_000)), None);
    }
}
