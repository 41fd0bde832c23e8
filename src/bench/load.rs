//! Leads a run: prepares, warms up, measures, drains, verifies, looks at what it cost, and reports.
//!
//! Shell. Owns the order of these steps and the clock that decides which seconds count. Does not own what generator threads do
//! (`station`, `produce`, …) nor the report's arithmetic (`assemble`). Always true: whatever happens after measuring began, a
//! report comes out of it: on Ctrl-C, on a broker that dies, on a thread that fails. A topic made for the run is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};

use super::ack_class::{Described, ack_class, software, telling};
use super::assemble::{Found, Window, assemble};
use super::broker_cost::{BrokerWatch, Look, add_costs, generator};
use super::clock::Clock;
use super::plan::{Kind, Plan, Verify};
use super::recorder::Collector;
use super::report::{BrokerFacts, Ceilings, GeneratorFacts, Repeat, Run, SearchPoint};
use super::schedule::Rate;
use super::search::{Search, Trial};
use super::station::{Brief, Phase, Remains, Station, Told};
use super::stats::median;
use super::steady::{Steadiness, Warmth};
use super::target::{BenchError, Cluster, ReadyTopic, client_settings};
use super::verify::{Ledger, Verification};
use super::watch::{Cancel, Progress};
use super::{ceilings, host, read_back, recorder, units, work};
use crate::client::{ClientSettings, Io};

/// How long clients may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// After a second has ended, how long its last hand-over may take.
const GRACE: Duration = Duration::from_millis(150);
/// How often Ctrl-C is looked for.
const LOOK_AROUND: Duration = Duration::from_millis(40);
/// How long threads may take to end: their own drain and some.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// A trial of the search for the largest rate takes so long, unless the run is to be shorter.
const TRIAL: Duration = Duration::from_secs(10);
const TRIAL_WARMUP: Duration = Duration::from_secs(2);
/// What has no answer so long after a trial was not sustained.
const TRIAL_DRAIN: Duration = Duration::from_secs(2);
/// Where the search begins; it doubles and halves from there.
const SEARCH_START: f64 = 10_000.0;
/// How closely the largest rate is found.
const SEARCH_PRECISION: f64 = 0.05;

/// Runs the plan: its search, its repeats. Must not be called within an async runtime. A search that finds no rate, or is called off,
/// gives its last trial with all its steps. Errors: the plan cannot be run, or nothing was measured before it failed.
pub fn run(plan: &Plan, cancel: &Cancel, watcher: &mut dyn FnMut(Progress)) -> Result<Run, BenchError> {
    plan.check().map_err(BenchError::Plan)?;
    pin(&plan.pin)?;
    let mut search = Vec::new();
    let mut plan = plan.clone();
    if let Some((_, limit_us)) = plan.slo.as_ref().and_then(|slo| slo.latency_limit()) {
        let searched = search_rate(&plan, limit_us, cancel, watcher)?;
        let Some(rate) = searched.answer.filter(|_| !cancel.is_cancelled()) else {
            return searched.unanswered(cancel).ok_or(BenchError::Interrupted);
        };
        search = searched.steps;
        watcher(Progress::Step(format!(
            "the largest sustainable rate is {} records/s; measuring it",
            units::grouped(rate as u64)
        )));
        plan.rate = Rate::Fixed(rate);
    }
    let slo = plan.slo.take();
    let mut runs: Vec<Run> = Vec::new();
    for number in 1..=plan.repeat {
        if plan.repeat > 1 {
            watcher(Progress::Step(format!("repeat {number} of {}", plan.repeat)));
        }
        match once(&plan, cancel, watcher) {
            Ok(mut run) => {
                if let Some(why) = slo.as_ref().and_then(|slo| slo.broken(&run)) {
                    run.verdict.valid = false;
                    run.verdict
                        .reasons
                        .insert(0, format!("The rate that was found did not hold when measured: {why}."));
                }
                runs.push(run);
            }
            // What was measured before is kept.
            Err(error) if runs.is_empty() => return Err(error),
            Err(error) => {
                watcher(Progress::Step(format!("repeat {number} failed: {error}")));
                break;
            }
        }
        if cancel.is_cancelled() {
            break;
        }
    }
    let mut run = middle(runs);
    run.search = search;
    Ok(run)
}

/// The median run by records per second, which carries the headlines of all.
fn middle(mut runs: Vec<Run>) -> Run {
    let rates: Vec<f64> = runs.iter().map(|run| run.results.records_per_second).collect();
    let target = median(&rates).expect("at least one run was made");
    let repeats: Vec<Repeat> = runs
        .iter()
        .map(|run| {
            let latency = run.headline_latency();
            Repeat {
                records_per_second: run.results.records_per_second,
                bytes_per_second: run.results.bytes_per_second,
                p50_us: latency.map_or(0, |all| all.p50),
                p99_us: latency.map_or(0, |all| all.p99),
                valid: run.verdict.valid,
            }
        })
        .collect();
    let lossy = runs.iter().position(|run| run.verdict.lossy);
    let nearest = rates
        .iter()
        .enumerate()
        .min_by(|a, b| (a.1 - target).abs().total_cmp(&(b.1 - target).abs()))
        .map_or(0, |(at, _)| at);
    // A repeat that lost records is the one to report, whatever the others did.
    let mut run = runs.swap_remove(lossy.unwrap_or(nearest));
    if repeats.len() > 1 {
        run.repeats = repeats;
    }
    run
}

/// How a search ended.
struct Searched {
    steps: Vec<SearchPoint>,
    /// The largest rate that held.
    answer: Option<f64>,
    /// The last trial that was measured to its end; without one, the one that was called off.
    last: Option<Run>,
}

impl Searched {
    /// The report of a search after which nothing more is measured. `None`: there is nothing to report.
    fn unanswered(self, cancel: &Cancel) -> Option<Run> {
        let mut run = self.last?;
        if cancel.is_cancelled() {
            let found = self.answer.map_or_else(
                || "no rate had held".to_owned(),
                |rate| format!("{} records/s had held", units::grouped(rate as u64)),
            );
            run.verdict.interrupted = true;
            run.verdict.reasons.insert(0, format!("The search was interrupted: until then {found}."));
        } else {
            let why = self.steps.last().map(|step| step.why.as_str()).unwrap_or_default();
            run.verdict.valid = false;
            run.verdict.reasons.insert(0, format!("No rate was sustained; at the lowest one tried: {why}."));
        }
        run.search = self.steps;
        Some(run)
    }
}

fn search_rate(
    plan: &Plan,
    limit_us: f64,
    cancel: &Cancel,
    watcher: &mut dyn FnMut(Progress),
) -> Result<Searched, BenchError> {
    let mut search = Search::new(SEARCH_START, limit_us, SEARCH_PRECISION);
    let (mut steps, mut last) = (Vec::new(), None);
    while let Some(rate) = search.next_rate() {
        if cancel.is_cancelled() {
            break;
        }
        let trial = Plan {
            rate: Rate::Fixed(rate),
            slo: None,
            duration: plan.duration.min(TRIAL),
            // The first trial must not pay for a broker, or a client, that is cold.
            warmup: if steps.is_empty() { plan.warmup } else { plan.warmup.min(TRIAL_WARMUP) },
            until_steady: false,
            drain: TRIAL_DRAIN,
            ceilings: false,
            records: None,
            repeat: 1,
            // The run at the answer is verified; trials only look for it.
            verify: Verify::Off,
            ..plan.clone()
        };
        watcher(Progress::Step(format!("trying {} records/s", units::grouped(rate as u64))));
        let run = match once(&trial, cancel, watcher) {
            Ok(run) => run,
            Err(BenchError::Interrupted) => break,
            Err(error) => return Err(error),
        };
        if cancel.is_cancelled() && run.verdict.interrupted {
            // Half a trial says nothing of its rate.
            last = last.or(Some(run));
            break;
        }
        let backlog: Vec<f64> =
            run.series.iter().filter(|second| second.measured).map(|second| second.backlog as f64).collect();
        let third = backlog.len().div_ceil(3).max(1);
        let mean = |part: &[f64]| if part.is_empty() { 0.0 } else { part.iter().sum::<f64>() / part.len() as f64 };
        let verdict = search.on_trial(Trial {
            achieved: run.results.records_per_second,
            latency_us: plan.slo.as_ref().and_then(|slo| slo.latency_of(&run)),
            backlog: (
                mean(&backlog[..third.min(backlog.len())]),
                mean(&backlog[backlog.len().saturating_sub(third)..]),
            ),
            errors: run.results.errors,
            client_bound: run.verdict.client_bound,
        });
        let why = verdict.err().unwrap_or_default();
        if !why.is_empty() {
            watcher(Progress::Step(format!("not sustained: {why}")));
        }
        steps.push(SearchPoint {
            rate,
            achieved: run.results.records_per_second,
            p99_us: run.results.response_us.as_ref().map_or(0, |all| all.p99),
            sustained: why.is_empty(),
            why,
        });
        last = Some(run);
    }
    Ok(Searched { steps, answer: search.answer(), last })
}

/// Keeps this thread, and those it starts from here on, on the given processors.
fn pin(processors: &[usize]) -> Result<(), BenchError> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    for processor in processors {
        if *processor >= rustix::thread::CpuSet::MAX_CPU {
            return Err(BenchError::Plan(format!("--pin names processor {processor}, which there cannot be")));
        }
        set.set(*processor);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| BenchError::Host { what: format!("--pin {processors:?}"), source: error.into() })
}

/// What is known before anything is sent.
struct Prepared {
    topic: ReadyTopic,
    brokers: u32,
    fingerprint: String,
    broker: Described,
    of_topic: Described,
    starts: Vec<i64>,
    ends: Vec<i64>,
}

async fn prepare(settings: ClientSettings, plan: Plan, own_name: String) -> Result<Prepared, BenchError> {
    let cluster = Cluster::connect(settings).await?;
    let (brokers, fingerprint) = cluster.identity().await?;
    if matches!(plan.kind, Kind::Idle | Kind::ConnectStorm) {
        let (broker, of_topic) = cluster.settings(None).await;
        let topic = ReadyTopic { name: String::new(), own: false, leaders: Vec::new(), replicas: 0 };
        return Ok(Prepared { topic, brokers, fingerprint, broker, of_topic, starts: Vec::new(), ends: Vec::new() });
    }
    let topic = cluster.ready_topic(&plan, &own_name).await?;
    let (broker, of_topic) = cluster.settings(Some(&topic.name)).await;
    const LATEST: i64 = -1;
    const EARLIEST: i64 = -2;
    let ends = cluster.offsets(&topic, LATEST).await?;
    let starts = if plan.kind == Kind::Consume { cluster.offsets(&topic, EARLIEST).await? } else { ends.clone() };
    Ok(Prepared { topic, brokers, fingerprint, broker, of_topic, starts, ends })
}

/// One run, without search and repeats.
fn once(plan: &Plan, cancel: &Cancel, watcher: &mut dyn FnMut(Progress)) -> Result<Run, BenchError> {
    let started_at = SystemTime::now();
    let settings = client_settings(plan)?;
    // Wrong settings are better told before anything is made.
    let plan = &plan.settled()?;
    let tag = fastrand::u32(..);
    let own_name = format!("ringlog-bench-{tag:08x}");
    let threads = generator_threads(plan.threads)?;
    watcher(Progress::Step(format!("connecting to {}", plan.bootstrap)));
    let prepared = {
        let (settings, plan) = (settings.clone(), plan.clone());
        threads[0].block_on(move || prepare(settings, plan, own_name))?
    };
    let cleanup = Cleanup {
        io: threads[0].clone(),
        settings: settings.clone(),
        topic: prepared.topic.own.then(|| prepared.topic.name.clone()),
    };
    let watch = BrokerWatch::find(plan, software(&prepared.broker), prepared.brokers, &prepared.broker);
    let short = too_little_room(plan, &watch);
    if let Some(short) = &short {
        watcher(Progress::Step(short.clone()));
    }
    let limits_before = limits_of_host(plan, "measuring what this host can do", watcher);
    let brief = Arc::new(brief(plan, &prepared, tag, watch.pid));
    watcher(Progress::Step(plan.sentence()));
    let mut led = lead(&brief, &threads, &watch, cancel, watcher)?;
    let limits_after = limits_of_host(plan, "measuring again what this host can do", watcher);
    let verification = match plan.verifies() {
        Err(why) => Verification::skipped(why),
        Ok(()) => {
            let ledger = std::mem::take(&mut led.ledger);
            let mut found = read_back::verify(&threads[0], settings, &brief, ledger, cancel, watcher);
            found.at_least_once = led.retries > 0 && !plan.producer_settings()?.enable_idempotence;
            found
        }
    };
    drop(cleanup);
    led.notes.extend(watch.note.clone().into_iter().chain(short));
    let limits = limits_before.zip(limits_after);
    let cancelled = cancel.is_cancelled();
    Ok(Over { plan, started_at, prepared, watch, led, verification, limits, cancelled }.report())
}

fn generator_threads(count: u32) -> Result<Vec<Io>, BenchError> {
    (0..count)
        .map(|number| Io::start(&format!("bench-{number}")))
        .collect::<Result<_, _>>()
        .map_err(|source| BenchError::Host { what: "starting generator threads".to_owned(), source })
}

/// What the host can do now, where the plan asks for it.
fn limits_of_host(plan: &Plan, step: &str, watcher: &mut dyn FnMut(Progress)) -> Option<Ceilings> {
    plan.ceilings.then(|| {
        watcher(Progress::Step(step.to_owned()));
        ceilings::measure(&plan.directory)
    })
}

/// What all generator threads are told.
fn brief(plan: &Plan, prepared: &Prepared, tag: u32, broker_pid: Option<u32>) -> Brief {
    Brief {
        plan: plan.clone(),
        topic: prepared.topic.clone(),
        run: tag,
        starts: prepared.starts.clone(),
        ends: prepared.ends.clone(),
        budget: AtomicU64::new(u64::MAX),
        members: AtomicU32::new(if plan.groups > 0 { plan.groups * plan.consumers } else { 0 }),
        broker_pid,
        ends_at: AtomicU64::new(u64::MAX),
    }
}

/// A run that is over: all its report is made of.
struct Over<'a> {
    plan: &'a Plan,
    started_at: SystemTime,
    prepared: Prepared,
    watch: BrokerWatch,
    led: Led,
    verification: Verification,
    /// What the host could do before and after.
    limits: Option<(Ceilings, Ceilings)>,
    cancelled: bool,
}

impl Over<'_> {
    fn report(self) -> Run {
        let (plan, prepared) = (self.plan, &self.prepared);
        let (broker, generator) = self.costs();
        let machine = self.led.before.machine.zip(self.led.after.machine);
        let steal = machine.map_or(0.0, |(before, after)| host::steal(&before, &after));
        let mut run = assemble(
            plan,
            Found {
                collector: self.led.collector,
                window: self.led.window,
                steady: self.led.steady,
                interrupted: self.led.interrupted,
                cancelled: self.cancelled,
                errors: self.led.errors,
                verification: self.verification,
                ceilings: self.limits.map(|(before, after)| ceilings::facts(before, after, &plan.directory)),
                broker,
                generator,
                steal,
                notes: self.led.notes,
            },
        );
        run.started_at = units::rfc3339(self.started_at);
        run.host = host::facts(&plan.directory);
        run.host.steal_percent = format!("{:.1} %", steal * 100.0);
        let partitions = u32::try_from(prepared.topic.leaders.len()).unwrap_or(u32::MAX);
        run.workload = plan.workload_facts(&prepared.topic.name, partitions);
        if prepared.topic.own {
            run.workload.topic = "made for this run".to_owned();
        }
        let replicas = (prepared.topic.replicas > 0).then_some(prepared.topic.replicas);
        (run.ack_class, run.ack) = ack_class(&plan.acks, &prepared.broker, &prepared.of_topic, replicas);
        if !plan.kind.produces() {
            run.ack.source = format!("{} Nothing was produced by this run.", run.ack.source);
        }
        run
    }

    /// What it cost the broker and the generator.
    fn costs(&self) -> (BrokerFacts, GeneratorFacts) {
        let (plan, prepared, led) = (self.plan, &self.prepared, &self.led);
        let totals = led.collector.totals(led.window.from, led.window.to, u64::MAX);
        let mut broker = BrokerFacts {
            address: plan.bootstrap.clone(),
            software: software(&prepared.broker).to_owned(),
            brokers: prepared.brokers,
            api_fingerprint: prepared.fingerprint.clone(),
            settings: telling(&prepared.broker, &prepared.of_topic),
            pid: self.watch.pid,
            process: self.watch.process.clone(),
            ..BrokerFacts::default()
        };
        add_costs(&mut broker, plan.kind, &led.before, &led.after, &totals);
        (broker, generator(plan.kind, plan.threads, &led.before, &led.after, &totals))
    }
}

/// Says so when the disk under the broker's data, where that is here, may be full before the run ends.
fn too_little_room(plan: &Plan, watch: &BrokerWatch) -> Option<String> {
    let directory = watch.data_directory()?;
    let space = rustix::fs::statvfs(directory).ok()?;
    let (free, needed) = ((space.f_bavail * space.f_frsize) as f64, plan.bytes_at_most());
    (free < needed).then(|| {
        let (free, needed) = (units::bytes(free), units::bytes(needed));
        format!("{free} are free where the broker's data lies, and this run may write {needed}: the disk may fill up.")
    })
}

/// Deletes the topic that was made for the run, also when the run fails.
struct Cleanup {
    io: Io,
    settings: ClientSettings,
    topic: Option<String>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let (settings, topic) = (self.settings.clone(), self.topic.take());
        if let Some(topic) = topic {
            // The broker may be gone: there is nothing to clean up then, and the run's own error is the one to tell.
            _ = self.io.block_on(move || async move { Cluster::connect(settings).await?.delete(&topic).await });
        }
    }
}

/// What came out of leading.
struct Led {
    collector: Collector,
    window: Window,
    steady: Option<bool>,
    interrupted: bool,
    errors: BTreeMap<String, u64>,
    notes: Vec<String>,
    retries: u64,
    ledger: Ledger,
    before: Look,
    after: Look,
}

fn lead(
    brief: &Arc<Brief>,
    threads: &[Io],
    watch: &BrokerWatch,
    cancel: &Cancel,
    watcher: &mut dyn FnMut(Progress),
) -> Result<Led, BenchError> {
    let (told, hears) = mpsc::unbounded_channel();
    let (phase, phases) = watch::channel(Phase::Preparing);
    for (io, number) in threads.iter().zip(0..) {
        let station = Station::new(Arc::clone(brief), phases.clone(), number, told.clone());
        let here = io.clone();
        io.spawn(move || work::run(station, here));
    }
    drop(told);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|source| BenchError::Host { what: "a runtime".to_owned(), source })?;
    let mut leader = Leader {
        brief,
        phase,
        hears,
        threads: threads.len(),
        watch,
        cancel,
        watcher,
        collector: Collector::default(),
        ready: 0,
        done: 0,
        ended: Vec::new(),
        failure: None,
    };
    runtime.block_on(leader.lead())
}

struct Leader<'a> {
    brief: &'a Brief,
    phase: watch::Sender<Phase>,
    hears: mpsc::UnboundedReceiver<Told>,
    threads: usize,
    watch: &'a BrokerWatch,
    cancel: &'a Cancel,
    watcher: &'a mut dyn FnMut(Progress),
    collector: Collector,
    ready: u32,
    /// Threads whose sources are exhausted.
    done: usize,
    ended: Vec<Remains>,
    failure: Option<BenchError>,
}

impl Leader<'_> {
    async fn lead(&mut self) -> Result<Led, BenchError> {
        self.until_ready().await?;
        let plan = &self.brief.plan;
        let mut beginning = Beginning::new(plan, self.watch.look(true));
        if let Some(from) = beginning.from {
            self.begin_counting(from);
        }
        let clock = Clock::start();
        self.phase.send_replace(Phase::Running(clock));
        // The next second that has not been looked at.
        let mut next = 0u64;
        let mut interrupted = false;
        loop {
            let now = Duration::from_micros(clock.now());
            let end = beginning.from.map(|from| Duration::from_secs(from) + plan.duration);
            if end.is_some_and(|end| now >= end) || self.is_over() {
                break;
            }
            if self.cancel.is_cancelled() {
                interrupted = true;
                break;
            }
            let boundary = now.as_secs();
            beginning.on_boundary(boundary, || self.watch.look(true));
            if now >= Duration::from_secs(next + 1) + GRACE {
                let records = self.show_second(next, beginning.from, plan);
                if let Some(first) = beginning.on_second(next, records) {
                    self.begin_counting(first);
                }
                next += 1;
                continue;
            }
            let mut wake = (Duration::from_secs(next + 1) + GRACE).min(Duration::from_secs(boundary + 1));
            if let Some(end) = end {
                wake = wake.min(end);
            }
            let nap = wake.saturating_sub(now).min(LOOK_AROUND);
            tokio::select! {
                told = self.hears.recv() => match told {
                    Some(told) => self.hear(told),
                    None => break,
                },
                () = tokio::time::sleep(nap) => {}
            }
        }
        let end = self.end_of_measuring(beginning.from, clock.now(), interrupted);
        self.brief.ends_at.store(end.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.phase.send_replace(Phase::Stopping);
        // Before the drain, as the records are counted.
        let after = self.watch.look(true);
        self.until_ended().await;
        let Beginning { from, steady, before, .. } = beginning;
        self.conclude(Ending { from, end, interrupted, steady, before, after })
    }

    /// Where measuring ended, when sending ended at `ended_at`. `None`: with the last answer.
    fn end_of_measuring(&self, from: Option<u64>, ended_at: u64, interrupted: bool) -> Option<u64> {
        match from.map(|from| self.planned_end(from)) {
            Some(planned) if ended_at >= planned => Some(planned),
            // By count or by exhaustion: it lasted until its last answer.
            Some(_) if !interrupted && self.failure.is_none() => None,
            _ => Some(ended_at),
        }
    }

    /// From second `from` on records count, also against the plan's number of them.
    fn begin_counting(&self, from: u64) {
        self.brief.ends_at.store(self.planned_end(from), Ordering::Relaxed);
        if let Some(records) = self.brief.plan.records {
            self.brief.budget.store(records, Ordering::Relaxed);
        }
    }

    /// Where measuring that began with second `from` is to end.
    fn planned_end(&self, from: u64) -> u64 {
        let duration = u64::try_from(self.brief.plan.duration.as_micros()).unwrap_or(u64::MAX);
        (from * recorder::INTERVAL_US).saturating_add(duration)
    }

    /// All sources are exhausted, or nothing can go on.
    fn is_over(&self) -> bool {
        self.done + self.ended.len() >= self.threads || self.failure.is_some()
    }

    async fn until_ready(&mut self) -> Result<(), BenchError> {
        let expected = work::tasks(&self.brief.plan);
        let end = tokio::time::Instant::now() + READY_TIMEOUT;
        while self.ready < expected && self.failure.is_none() {
            tokio::select! {
                told = self.hears.recv() => match told {
                    Some(told) => self.hear(told),
                    None => return Err(BenchError::Generator),
                },
                () = tokio::time::sleep_until(end) => {
                    let why = format!("its clients were not ready within {} s", READY_TIMEOUT.as_secs());
                    return Err(BenchError::Topic { topic: self.brief.topic.name.clone(), why });
                }
                () = tokio::time::sleep(LOOK_AROUND) => {
                    if self.cancel.is_cancelled() {
                        return Err(BenchError::Interrupted);
                    }
                }
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    async fn until_ended(&mut self) {
        // Producers drain, then whoever reads along.
        let end = tokio::time::Instant::now() + 2 * self.brief.plan.drain + END_TIMEOUT;
        while self.ended.len() < self.threads {
            if self.done >= self.threads {
                self.phase.send_replace(Phase::Drained);
            }
            tokio::select! {
                told = self.hears.recv() => match told {
                    Some(told) => self.hear(told),
                    None => return,
                },
                () = tokio::time::sleep_until(end) => return,
            }
        }
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Ready => self.ready += 1,
            Told::Seconds(seconds) => seconds.iter().for_each(|(index, interval)| self.collector.add(*index, interval)),
            Told::Done => self.done += 1,
            Told::Failed(error) => _ = self.failure.get_or_insert(error),
            Told::Ended(remains) => {
                remains.seconds.iter().for_each(|(index, interval)| self.collector.add(*index, interval));
                self.ended.push(*remains);
            }
        }
    }

    fn show_second(&mut self, t: u64, from: Option<u64>, plan: &Plan) -> u64 {
        let nothing = recorder::Interval::default();
        let second = self.collector.second(t).unwrap_or(&nothing);
        let latencies = &second.latencies;
        let latency =
            recorder::percentiles(&latencies.response).or_else(|| recorder::percentiles(&latencies.end_to_end));
        let (records, bytes) = match plan.kind {
            Kind::Consume => (second.consumed, second.consumed_bytes),
            Kind::Idle | Kind::ConnectStorm => (second.requests, 0),
            _ => (second.acked, second.acked_bytes),
        };
        let measured = from.is_some_and(|from| t >= from);
        let by_time =
            from.map_or(0.0, |from| (t + 1).saturating_sub(from) as f64 / plan.duration.as_secs_f64().max(1e-9));
        let by_count = plan
            .records
            .filter(|_| measured)
            .map_or(0.0, |all| 1.0 - self.brief.budget.load(Ordering::Relaxed).min(all) as f64 / all.max(1) as f64);
        let done = by_time.max(by_count).min(1.0);
        let errors = second.errors;
        (self.watcher)(Progress::Second { t, measured, done, records, bytes, errors, latency });
        records
    }

    fn conclude(&mut self, ending: Ending) -> Result<Led, BenchError> {
        let Ending { from, end, interrupted, steady, before, after } = ending;
        let mut notes = Vec::new();
        let mut cut_short = interrupted;
        let (mut errors, mut ledger) = (BTreeMap::<String, u64>::new(), Ledger::default());
        let (mut retries, mut last_us) = (0, 0);
        if self.ended.len() < self.threads {
            notes.push("A generator thread did not end in time; what it knew last is missing.".to_owned());
        }
        for remains in std::mem::take(&mut self.ended) {
            for (name, count) in remains.errors {
                *errors.entry(name).or_default() += count;
            }
            ledger.merge(remains.ledger);
            notes.extend(remains.notes);
            retries += remains.retries;
            last_us = last_us.max(remains.last_us);
        }
        if let Some(error) = self.failure.take() {
            // Nothing was measured: then the failure is the result.
            if self.collector.seconds().all(|(_, second)| second.acked + second.consumed + second.requests == 0) {
                return Err(error);
            }
            notes.push(format!("Ended early: {error}"));
            cut_short = true;
        }
        let (from, interrupted) = match from {
            Some(from) => (from, cut_short),
            None => {
                notes.push("It ended during warm-up: all of it was taken for measured.".to_owned());
                (0, true)
            }
        };
        let began = from * recorder::INTERVAL_US;
        let end = end.unwrap_or(last_us.max(began + 1));
        let whole = |us: u64| us.div_ceil(recorder::INTERVAL_US);
        Ok(Led {
            collector: std::mem::take(&mut self.collector),
            window: Window { from, to: whole(end).max(from + 1), seconds: (end - began.min(end)) as f64 / 1e6 },
            steady,
            interrupted,
            errors,
            notes,
            retries,
            ledger,
            before,
            after,
        })
    }
}

/// From when on seconds count: from the first one without a warm-up, else from the boundary at which it is warm enough.
struct Beginning {
    warmup_seconds: u64,
    until_steady: bool,
    steadiness: Steadiness,
    /// The first second that counts, once that is known.
    from: Option<u64>,
    /// Whether throughput was level by then, where that was waited for.
    steady: Option<bool>,
    /// The last boundary between two seconds that was passed.
    passed: u64,
    /// What the broker looked like at a boundary where measuring may turn out to have begun.
    boundary_look: Option<(u64, Look)>,
    /// What the broker looked like when measuring began.
    before: Look,
}

impl Beginning {
    fn new(plan: &Plan, before: Look) -> Self {
        let steadiness = Steadiness::new(plan.warmup_seconds(), plan.until_steady && !plan.warmup.is_zero());
        Self {
            warmup_seconds: plan.warmup_seconds(),
            until_steady: plan.until_steady,
            from: steadiness.is_off().then_some(0),
            steadiness,
            steady: None,
            passed: 0,
            boundary_look: None,
            before,
        }
    }

    /// Looks at the broker where measuring may turn out to have begun, once the records of the second before are counted.
    fn on_boundary(&mut self, boundary: u64, look: impl FnOnce() -> Look) {
        if self.from.is_some() || boundary <= self.passed {
            return;
        }
        self.passed = boundary;
        if boundary >= self.warmup_seconds {
            self.boundary_look = Some((boundary, look()));
        }
    }

    /// The records of second `t` are counted. Returns the first second that counts when it has become known by that.
    fn on_second(&mut self, t: u64, records: u64) -> Option<u64> {
        if self.from.is_some() {
            return None;
        }
        let warmth = self.steadiness.on_second(records as f64);
        if warmth == Warmth::Warming {
            return None;
        }
        self.steady = self.until_steady.then_some(warmth == Warmth::Steady);
        let first = t + 1;
        if let Some((_, look)) = self.boundary_look.take_if(|(at, _)| *at == first) {
            self.before = look;
        }
        self.from = Some(first);
        self.from
    }
}

struct Ending {
    from: Option<u64>,
    /// `None`: the last answer is the end.
    end: Option<u64>,
    interrupted: bool,
    steady: Option<bool>,
    before: Look,
    after: Look,
}
