//! One turn: one target under one load, once.
//!
//! Shell; blocking. Owns how each shape of a workload is carried out and what is counted around the run itself: the machine's
//! processor time including write-back. Does not own order or warm-up (`run`). Always true: what a turn wrote is synced
//! before the next one begins, so that nobody pays for another's dirty pages; its topic is deleted whatever happened.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::brokers::pause;
use super::metric::{Metric, measurement};
use super::presets::{Cell, Shape, at_rate};
use super::report::Measurement;
use super::side::Side;
use crate::bench::load::{self, Cancel, Progress};
use crate::bench::plan::{Kind, Plan, TopicPlan, Verify};
use crate::bench::report::Run;
use crate::bench::{host, process};
use crate::client::{Producer, ProducerRecord, ProducerSettings, Settings as _};
use crate::protocol::batch::Codec;

/// How long the first acknowledgement after a start may take.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(180);
/// The broker is killed so long after the load began.
const KILL_AFTER: Duration = Duration::from_secs(3);
/// How long filling a topic may take.
const FILL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long is waited for the device after a turn.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// Of the records that fill it.
const FILL_RECORD_BYTES: u64 = 1024;

/// A turn to be taken.
pub(super) struct Turn<'a> {
    /// What.
    pub(super) cell: &'a Cell,
    /// Records per second, where they are a share of a maximum.
    pub(super) rate: Option<f64>,
    /// Of the generator; empty leaves it to the kernel.
    pub(super) cores: &'a [usize],
    /// Of the generator.
    pub(super) threads: u32,
    /// The unmeasured round: records are read back.
    pub(super) verify: bool,
    /// Names the topic.
    pub(super) tag: String,
    /// Ends it early.
    pub(super) cancel: &'a Cancel,
}

impl Turn<'_> {
    /// The plan this side gets.
    pub(super) fn plan(&self, side: &Side, topic: &str) -> Plan {
        let mut plan = side.plan(&self.cell.plan);
        plan.topic = TopicPlan::Named(topic.to_owned());
        plan.topic_settings = side.topic_settings(self.cell.class);
        plan.pin = self.cores.to_vec();
        plan.threads = self.threads;
        if let Some(rate) = self.rate {
            plan = at_rate(plan, rate);
        }
        if self.verify {
            // Where records cannot be verified, this asks for nothing.
            plan.verify = Verify::Auto;
        }
        plan
    }

    /// Takes the turn. Errors: a sentence.
    pub(super) fn take(&self, side: &mut Side, watcher: &mut dyn FnMut(Progress)) -> Result<Measurement, String> {
        let topic = format!("compare-{}", self.tag);
        let ended = match self.cell.shape {
            Shape::Load => self.load(side, &self.plan(side, &topic), watcher),
            Shape::CatchUp { bytes, cold } => self.catch_up(side, &topic, bytes, cold, watcher),
            Shape::Idle { partitions } => {
                let made = side.create(&topic, partitions, self.cell.class);
                made.and_then(|()| self.load(side, &self.plan(side, &topic), watcher))
            }
            Shape::ColdStart { partitions } => self.cold_start(side, &topic, partitions),
            Shape::Kill => self.kill(side, &topic),
        };
        let ended = ended.map_err(|error| side.failure(&error));
        side.delete(&topic);
        ended
    }

    fn load(&self, side: &Side, plan: &Plan, watcher: &mut dyn FnMut(Progress)) -> Result<Measurement, String> {
        let device = || side.data().and_then(|data| process::device(&data));
        let (before, device_before) = ((process::machine(), process::own_cpu_seconds()), device());
        let run = run_apart(plan, self.cancel, watcher)?;
        if run.verdict.interrupted {
            return Err("interrupted".to_owned());
        }
        // Whoever answers from the page cache pays for the writing later; here it is waited for, and counted. Ringlog's
        // records are on the device when it answers.
        if let (Some(data), TopicPlan::Named(topic)) =
            (side.data().filter(|_| side.facts.software != "ringlog"), &plan.topic)
        {
            sync(&data, topic);
        }
        let after = (process::machine(), process::own_cpu_seconds());
        let mut one = measurement(&run);
        if let (Some(first), Some(last)) = (before.0, after.0) {
            one.steal = host::steal(&first, &last);
            let busy = last.busy_seconds - first.busy_seconds - (after.1 - before.1);
            let megabytes = run.results.bytes as f64 / 1e6;
            // Verification reads everything back: the machine's time is then not that of the load.
            if megabytes > 0.0 && busy > 0.0 && !run.verification.enabled {
                one.numbers.insert(Metric::SystemCpuPerMb.key().to_owned(), busy * 1e3 / megabytes);
            }
        }
        // What the run itself saw ended before the writing did.
        let amplification = Metric::WriteAmplification.key();
        if let (Some(first), Some(last), true) = (device_before, device(), one.numbers.contains_key(amplification)) {
            let written = last.written_bytes.saturating_sub(first.written_bytes) as f64;
            one.numbers.insert(amplification.to_owned(), written / (run.results.bytes as f64).max(1.0));
        }
        Ok(one)
    }

    fn catch_up(
        &self,
        side: &Side,
        topic: &str,
        bytes: u64,
        cold: bool,
        watcher: &mut dyn FnMut(Progress),
    ) -> Result<Measurement, String> {
        let records = bytes / FILL_RECORD_BYTES;
        let read = self.plan(side, topic);
        let fill = Plan {
            kind: Kind::Produce,
            records: Some(records),
            duration: FILL_TIMEOUT,
            warmup: Duration::ZERO,
            verify: Verify::Off,
            ..read.clone()
        };
        let filled = run_apart(&fill, self.cancel, watcher)?;
        if filled.results.records < records {
            return Err(format!("only {} of {records} records could be written to be read", filled.results.records));
        }
        if let Some(data) = side.data() {
            sync(&data, topic);
            if cold {
                empty_cache(&data, topic);
            }
        }
        let read =
            Plan { records: Some(filled.results.records), duration: FILL_TIMEOUT, warmup: Duration::ZERO, ..read };
        self.load(side, &read, watcher)
    }

    /// From the start of the process to the first acknowledged record of a topic that was there before.
    fn cold_start(&self, side: &mut Side, topic: &str, partitions: u32) -> Result<Measurement, String> {
        side.create(topic, partitions, self.cell.class)?;
        send_one(&side.address, topic)?;
        let broker = side.broker.as_mut().ok_or("it was not started here, so it cannot be started again")?;
        broker.stop();
        let began = broker.launch()?;
        send_one(&side.address, topic)?;
        let seconds = began.elapsed().as_secs_f64();
        // The metrics address may have changed with the process.
        side.broker.as_mut().map_or(Ok(()), super::brokers::Broker::until_listening)?;
        Ok(Measurement { numbers: [(Metric::Seconds.key().to_owned(), seconds)].into(), ..Measurement::default() })
    }

    /// The broker dies under the load and comes back; the longest wait of a record is the outage, and nothing acknowledged
    /// may be missing.
    fn kill(&self, side: &mut Side, topic: &str) -> Result<Measurement, String> {
        let plan = Plan { pid: None, admin: None, ..self.plan(side, topic) };
        let broker = side.broker.as_mut().ok_or("it was not started here, so it may not be killed")?;
        let cancel = self.cancel;
        let run = std::thread::scope(|scope| {
            let loading = scope.spawn(|| load::run(&plan, cancel, &mut |_| ()).map_err(|error| error.to_string()));
            let deadline = Instant::now() + KILL_AFTER;
            while Instant::now() < deadline && !loading.is_finished() {
                pause(Duration::from_millis(10));
            }
            broker.kill();
            let restarted = broker.launch().and_then(|_| broker.until_listening());
            let run = loading.join().map_err(|_| "the generator failed".to_owned())?;
            restarted.and(run)
        })?;
        if run.verdict.interrupted {
            return Err("interrupted".to_owned());
        }
        let mut one = measurement(&run);
        let longest = run.results.response_us.as_ref().map(|all| all.max as f64 / 1e6);
        one.numbers.extend(longest.map(|seconds| (Metric::Outage.key().to_owned(), seconds)));
        // Its process changed meanwhile: what it cost is not known.
        one.numbers.retain(|key, _| {
            [Metric::Outage, Metric::Records, Metric::P50, Metric::P99].iter().any(|metric| metric.key() == key)
        });
        Ok(one)
    }
}

/// Runs a plan on a thread of its own, whose pinning does not stay with the caller's.
pub(super) fn run_apart(plan: &Plan, cancel: &Cancel, watcher: &mut dyn FnMut(Progress)) -> Result<Run, String> {
    let (told, hears) = mpsc::channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            // Nobody hears when the watcher has gone, which ends with the scope.
            load::run(plan, cancel, &mut |progress| _ = told.send(progress)).map_err(|error| error.to_string())
        });
        hears.iter().for_each(watcher);
        running.join().map_err(|_| "the generator failed".to_owned())?
    })
}

/// Sends a record and waits for its acknowledgement, however often the broker has to be looked for.
fn send_one(address: &str, topic: &str) -> Result<(), String> {
    let settings = ProducerSettings::builder()
        .set("bootstrap.servers", address)
        .set("acks", "all")
        .set("linger.ms", 0)
        .set("compression.type", Codec::None.name())
        .set("reconnect.backoff.ms", 5)
        .set("reconnect.backoff.max.ms", 20)
        .set("retry.backoff.ms", 5)
        .set("retry.backoff.max.ms", 20)
        .set("max.block.ms", FIRST_ACK_TIMEOUT.as_millis())
        .build()
        .map_err(|error| error.to_string())?;
    let producer = Producer::new(settings).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + FIRST_ACK_TIMEOUT;
    loop {
        match producer.send_sync(ProducerRecord::to(topic).value("first")) {
            Ok(_) => break,
            Err(error) if Instant::now() > deadline => {
                return Err(format!("no acknowledgement within {} s: {error}", FIRST_ACK_TIMEOUT.as_secs()));
            }
            Err(_) => pause(Duration::from_millis(2)),
        }
    }
    producer.close_sync(Duration::from_secs(1));
    Ok(())
}

/// Waits until what a topic's files hold is on the device; not for ever, since other programs' writes may be before it.
fn sync(data: &Path, topic: &str) {
    let deadline = Instant::now() + SYNC_TIMEOUT;
    for file in files(data, topic).into_iter().take_while(|_| Instant::now() < deadline) {
        if let Ok(file) = std::fs::File::open(file) {
            // A file that is gone, or cannot be synced, has nothing to wait for.
            _ = rustix::fs::fdatasync(&file);
        }
    }
}

/// The segments of a topic.
fn files(data: &Path, topic: &str) -> Vec<PathBuf> {
    let partitions = std::fs::read_dir(data).into_iter().flatten().flatten();
    let of_topic = partitions.filter(|entry| entry.file_name().to_string_lossy().starts_with(topic));
    let inside = of_topic.flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten().flatten());
    inside
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect()
}

/// Empties the page cache of a topic's files, which must be synced already. Files that cannot be opened are left as they are.
fn empty_cache(data: &Path, topic: &str) {
    for file in files(data, topic) {
        if let Ok(file) = std::fs::File::open(file) {
            _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_of_the_topic_are_synced_and_emptied() {
        let directory = tempfile::tempdir().unwrap();
        for (partition, file) in [("t-0", "0.log"), ("t-1", "0.log"), ("t-1", "0.index"), ("other-0", "0.log")] {
            std::fs::create_dir_all(directory.path().join(partition)).unwrap();
            std::fs::write(directory.path().join(partition).join(file), "x").unwrap();
        }
        assert_eq!(files(directory.path(), "t-").len(), 2);
        sync(directory.path(), "t-");
        empty_cache(directory.path(), "t-");
        assert_eq!(files(Path::new("/nowhere/at/all"), "t-"), Vec::<PathBuf>::new());
    }
}
