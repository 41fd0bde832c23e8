//! One turn: one target under one load, once.
//!
//! Shell; blocking. Owns how each shape of a workload is carried out and what is counted around the run itself: the machine's
//! processor time including write-back. Does not own order or warm-up (`run`). Always true: what a turn wrote is synced
//! and its topic deleted, whatever happened, and the files are gone before the next one begins, so that nobody pays for
//! another's dirty pages or unlinked blocks.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::brokers::pause;
use super::metric::{self, Metric};
use super::presets::{Cell, Shape, at_rate, noise};
use super::report::Measurement;
use super::side::Side;
use super::soak;
use crate::bench::assemble::late;
use crate::bench::load;
use crate::bench::plan::{Kind, Plan, TopicPlan, Verify};
use crate::bench::report::Run;
use crate::bench::watch::{Cancel, Progress};
use crate::bench::{host, process};
use crate::client::{Producer, ProducerRecord, ProducerSettings, Settings as _};
use crate::protocol::batch::Codec;

/// How long the first acknowledgement after a start may take.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(180);
/// The broker is killed so long after the load began.
const KILL_AFTER: Duration = Duration::from_secs(3);
/// How long a noisy neighbour may take until it is answered.
const LOUD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long is waited for the files of a deleted topic to go.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The same where they cannot be looked for, because the broker was not started here.
const SETTLE_UNSEEN: Duration = Duration::from_millis(500);
/// How often is looked around while waiting.
const LOOK_AROUND: Duration = Duration::from_millis(50);
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
            if self.cell.shape == Shape::Soak {
                plan.topic_settings.extend(soak::retention(&plan, rate));
            }
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
        let noisy = format!("{topic}-noise");
        let ended = match self.cell.shape {
            Shape::Load => self.load(side, &self.plan(side, &topic), watcher).map(|(one, _)| one),
            Shape::Neighbour => self.neighbour(side, &topic, &noisy, watcher),
            Shape::Soak => self.soak(side, &topic, watcher),
            Shape::CatchUp { bytes, cold } => self.catch_up(side, &topic, bytes, cold, watcher),
            Shape::Idle { partitions } => {
                let made = side.create(&topic, partitions, self.cell.class);
                made.and_then(|()| self.load(side, &self.plan(side, &topic), watcher)).map(|(one, _)| one)
            }
            Shape::ColdStart { partitions } => self.cold_start(side, &topic, partitions),
            Shape::Kill => self.kill(side, &topic),
        };
        let ended = ended.map_err(|error| side.failure(&error));
        side.delete(&topic);
        if self.cell.shape == Shape::Neighbour {
            side.delete(&noisy);
        }
        self.settle(side, &topic);
        ended
    }

    fn load(&self, side: &Side, plan: &Plan, watcher: &mut dyn FnMut(Progress)) -> Result<(Measurement, Run), String> {
        let around = Around::begin(side);
        let run = self.run(plan, watcher)?;
        let mut one = measurement(plan, &run)?;
        around.end(side, plan, &mut one, bytes_of(&run), run.verification.enabled);
        Ok((one, run))
    }

    fn run(&self, plan: &Plan, watcher: &mut dyn FnMut(Progress)) -> Result<Run, String> {
        let run = run_apart(plan, self.cancel, watcher)?;
        if run.verdict.interrupted { Err("interrupted".to_owned()) } else { Ok(run) }
    }

    /// The quiet load alone, then beside the noise. In this order: the noise leaves work behind (dirty pages, files to be
    /// deleted) that a quiet load after it would be charged for.
    fn neighbour(
        &self,
        side: &Side,
        topic: &str,
        noisy: &str,
        watcher: &mut dyn FnMut(Progress),
    ) -> Result<Measurement, String> {
        let quiet = self.plan(side, topic);
        let (alone, _) = self.load(side, &quiet, watcher)?;
        let noise = Plan { topic: TopicPlan::Named(noisy.to_owned()), ..noise(&quiet) };
        let stop = Cancel::default();
        let (beside, noise) = std::thread::scope(|scope| {
            let (told, hears) = mpsc::channel();
            let (noise, stop) = (&noise, &stop);
            let making = scope.spawn(move || {
                // Nobody hears once the quiet load runs.
                load::run(noise, stop, &mut |progress| _ = told.send(progress)).map_err(|error| error.to_string())
            });
            let beside = self.until_loud(&hears).and_then(|()| self.load(side, &quiet, watcher));
            let outlasted = !making.is_finished();
            stop.cancel();
            let made = making.join().map_err(|_| "the generator failed".to_owned()).flatten();
            let made = made.and_then(|run| if outlasted { Ok(run) } else { Err("it ended early".to_owned()) });
            let made = made.and_then(|run| measurement(noise, &run));
            (beside, made.map_err(|error| format!("the noise: {error}")))
        });
        let ((beside, run), noise) = match (beside, noise) {
            (Ok(beside), Ok(noise)) => (beside, noise),
            _ if self.cancel.is_cancelled() => return Err("interrupted".to_owned()),
            // What befell the noise is told first: the quiet load may have waited for it in vain.
            (_, Err(why)) | (Err(why), _) => return Err(why),
        };
        // Processor time of broker and generator is that of both loads; lateness is still the quiet one's own.
        let late = late(&run.results);
        let mut one = Measurement { client_bound: late.is_some(), reasons: late.into_iter().collect(), ..beside };
        if one.lossy.is_empty() {
            one.lossy.clone_from(&alone.lossy);
        }
        let (p99_alone, p99) = (alone.number(Metric::P99.key()), one.number(Metric::P99.key()));
        let inflation = p99.zip(p99_alone).map(|(beside, alone)| beside / alone);
        for (metric, value) in [
            (Metric::NoiseInflation, inflation),
            (Metric::P99Alone, p99_alone),
            (Metric::NoiseBytes, noise.number(Metric::Bytes.key())),
        ] {
            one.numbers.extend(value.map(|value| (metric.key().to_owned(), value)));
        }
        one.numbers.retain(|key, _| self.cell.metrics.iter().any(|metric| metric.key() == key));
        Ok(one)
    }

    /// Waits until the files of the turn's topics are gone and the file system has written down that they are. Hundreds of
    /// megabytes, unlinked during a quiet load, made its p99 50 to 105 ms where it is 8 to 13 without (four turns each,
    /// unoptimized build, two busy cores, ext4).
    fn settle(&self, side: &Side, topic: &str) {
        let Some(data) = side.data() else { return pause(SETTLE_UNSEEN) };
        let until = Instant::now() + SETTLE_TIMEOUT;
        let is_of_topic = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(topic);
        let is_left = || std::fs::read_dir(&data).into_iter().flatten().flatten().any(is_of_topic);
        while is_left() && Instant::now() < until && !self.cancel.is_cancelled() {
            pause(LOOK_AROUND);
        }
        if let Ok(directory) = std::fs::File::open(&data) {
            // A file system that cannot has nothing to wait for.
            _ = rustix::fs::syncfs(&directory);
        }
    }

    /// Waits until the noise has had its first second.
    fn until_loud(&self, hears: &mpsc::Receiver<Progress>) -> Result<(), String> {
        let deadline = Instant::now() + LOUD_TIMEOUT;
        loop {
            match hears.recv_timeout(LOOK_AROUND) {
                Ok(Progress::Second { records, .. }) if records > 0 => return Ok(()),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err("the noise never began".to_owned()),
                _ if self.cancel.is_cancelled() => return Err("interrupted".to_owned()),
                _ if Instant::now() > deadline => {
                    return Err(format!("the noise had no answer within {} s", LOUD_TIMEOUT.as_secs()));
                }
                _ => {}
            }
        }
    }

    fn soak(&self, side: &Side, topic: &str, watcher: &mut dyn FnMut(Progress)) -> Result<Measurement, String> {
        let plan = self.plan(side, topic);
        let rate = self.rate.ok_or("a soak has a rate")?;
        let stretches = soak::stretches(&plan, rate);
        let around = Around::begin(side);
        let (mut taken, mut bytes) = (Vec::with_capacity(stretches.count), 0);
        for number in 0..stretches.count {
            let warmup = if number == 0 { plan.warmup } else { Duration::ZERO };
            let run = self.run(&Plan { duration: stretches.each, warmup, ..plan.clone() }, watcher)?;
            bytes += bytes_of(&run);
            taken.push(measurement(&plan, &run)?);
        }
        let mut one = soak::together(&taken, &stretches);
        around.end(side, &plan, &mut one, bytes, false);
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
        let filled = self.run(&fill, watcher)?;
        measurement(&fill, &filled)?;
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
        self.load(side, &read, watcher).map(|(one, _)| one)
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
        let mut one = measurement(&plan, &run)?;
        let longest = run.results.response_us.as_ref().map(|all| all.max as f64 / 1e6);
        one.numbers.extend(longest.map(|seconds| (Metric::Outage.key().to_owned(), seconds)));
        // Its process changed meanwhile: what it cost is not known.
        one.numbers.retain(|key, _| {
            [Metric::Outage, Metric::Records, Metric::P50, Metric::P99].iter().any(|metric| metric.key() == key)
        });
        Ok(one)
    }
}

/// What a run of `plan` found. Errors: its numbers are not true, or its records were to be read back and were not.
fn measurement(plan: &Plan, run: &Run) -> Result<Measurement, String> {
    let one = metric::measurement(run);
    match () {
        () if !one.error.is_empty() => Err(one.error),
        () if plan.verifies().is_ok() && !run.verification.enabled => Err(run.verification.sentence()),
        () => Ok(one),
    }
}

/// All bytes a run moved, whether measured or while warming up and draining.
fn bytes_of(run: &Run) -> u64 {
    run.series.iter().map(|second| second.bytes).sum()
}

/// The machine and the device as they were before a load.
struct Around {
    machine: Option<process::MachineSample>,
    own_cpu_seconds: f64,
    device: Option<process::DeviceSample>,
}

impl Around {
    fn begin(side: &Side) -> Self {
        Self {
            machine: process::machine(),
            own_cpu_seconds: process::own_cpu_seconds(),
            device: side.data().and_then(|data| process::device(&data)),
        }
    }

    /// Adds to `one` what `bytes` cost: all that were moved since then, for what warm-up and drain cost is counted, too. What
    /// `verified` reads back is not the load's.
    fn end(self, side: &Side, plan: &Plan, one: &mut Measurement, bytes: u64, verified: bool) {
        // Whoever answers from the page cache pays for the writing later; here it is waited for, and counted. Ringlog's
        // records are on the device when it answers.
        if let (Some(data), TopicPlan::Named(topic)) =
            (side.data().filter(|_| side.facts.software != "ringlog"), &plan.topic)
        {
            sync(&data, topic);
        }
        self.add(&Self::begin(side), one, bytes, verified);
    }

    fn add(&self, after: &Self, one: &mut Measurement, bytes: u64, verified: bool) {
        if let (Some(first), Some(last)) = (self.machine, after.machine) {
            one.steal = host::steal(&first, &last);
            let busy = last.busy_seconds - first.busy_seconds - (after.own_cpu_seconds - self.own_cpu_seconds);
            let megabytes = bytes as f64 / 1e6;
            if megabytes > 0.0 && busy > 0.0 && !verified {
                one.numbers.insert(Metric::SystemCpuPerMb.key().to_owned(), busy * 1e3 / megabytes);
            }
        }
        // What the run itself saw ended before the writing did.
        let amplification = Metric::WriteAmplification.key();
        if let (Some(first), Some(last), true) = (self.device, after.device, one.numbers.contains_key(amplification)) {
            let written = last.written_bytes.saturating_sub(first.written_bytes) as f64;
            one.numbers.insert(amplification.to_owned(), written / (bytes as f64).max(1.0));
        }
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
    use crate::bench::report::Second;
    use crate::bench::verify::Verification;

    #[test]
    fn a_run_whose_records_were_to_be_read_back_and_were_not_has_no_numbers() {
        let mut run = Run::default();
        run.verdict.valid = true;
        run.verification = Verification::skipped("reading back failed: gone");
        let plan = |verify| Plan { verify, ..Plan::default() };
        for asked in [Verify::On, Verify::Auto] {
            assert!(measurement(&plan(asked), &run).unwrap_err().contains("reading back failed: gone"));
        }
        assert!(measurement(&plan(Verify::Off), &run).is_ok());
        let unverifiable = Plan { acks: "0".to_owned(), ..plan(Verify::Auto) };
        assert!(measurement(&unverifiable, &run).is_ok());
        run.verification = Verification { enabled: true, ..Verification::default() };
        assert!(measurement(&plan(Verify::On), &run).is_ok());
        run.verdict.valid = false;
        assert!(measurement(&plan(Verify::Off), &run).is_err());
    }

    #[test]
    fn warm_up_and_drain_are_in_what_was_paid_and_in_what_it_is_paid_for() {
        let costs = |seconds: &[(bool, u64)]| {
            let second =
                |(measured, bytes): &(bool, u64)| Second { measured: *measured, bytes: *bytes, ..Second::default() };
            let run = Run { series: seconds.iter().map(second).collect(), ..Run::default() };
            let moved: u64 = seconds.iter().map(|(_, bytes)| bytes).sum();
            let look = |bytes: u64| Around {
                machine: Some(process::MachineSample { busy_seconds: bytes as f64 * 1e-8, ..Default::default() }),
                own_cpu_seconds: 0.0,
                device: Some(process::DeviceSample { written_bytes: bytes * 11 / 10, flushes: 0 }),
            };
            let mut one = Measurement {
                numbers: [(Metric::WriteAmplification.key().to_owned(), 0.0)].into(),
                ..Measurement::default()
            };
            look(0).add(&look(moved), &mut one, bytes_of(&run), false);
            (one.number(Metric::WriteAmplification.key()), one.number(Metric::SystemCpuPerMb.key()))
        };
        let measured_only = costs(&[(true, 1_000_000), (true, 1_000_000)]);
        let warmed_up =
            costs(&[(false, 1_000_000), (false, 1_000_000), (true, 1_000_000), (true, 1_000_000), (false, 50)]);
        for (without, with) in [(measured_only.0, warmed_up.0), (measured_only.1, warmed_up.1)] {
            assert!((with.unwrap() / without.unwrap() - 1.0).abs() < 0.05, "{measured_only:?} {warmed_up:?}");
        }
        assert!((measured_only.0.unwrap() - 1.1).abs() < 1e-6);
    }

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
