//! Trials in earnest: each is a run of `bench` with one setting changed.
//!
//! Shell: opens sockets, makes topics, reads clocks. Owns how a point becomes a plan of bench and a run becomes a measurement.
//! Always true: a topic made for a trial is deleted after it; what bench says against a run is kept beside its numbers; the clock
//! goes on from where a journal ended; a client setting that was given is what is measured and what is told.

use std::time::{Duration, Instant};

use super::load::Load;
use super::space::{CODECS, Knob, Point, Space};
use super::trial::{Facts, Measured, Trial, TrialError};
use crate::bench::load;
use crate::bench::plan::{Kind, Plan, TopicPlan, Verify};
use crate::bench::report::Run;
use crate::bench::schedule::Rate;
use crate::bench::target::BenchError;
use crate::bench::watch::{Cancel, Progress};

/// What each producer of a closed loop may have outstanding, in full batches per request in flight: one on its way, one filling.
const OUTSTANDING_BATCHES: u64 = 2;
/// A closed loop never has fewer records outstanding: an empty pipe measures the pipe.
const OUTSTANDING_MIN: u64 = 16;

/// So often a trial is begun whose topic was not ready.
const ATTEMPTS: u32 = 4;

/// Shows what goes on in a trial.
pub type Watcher<'a> = Box<dyn FnMut(Progress) + 'a>;

/// Measures by bench.
pub struct Measuring<'a> {
    base: Plan,
    space: Space,
    record_bytes: f64,
    cancel: Cancel,
    watcher: Watcher<'a>,
    started: Instant,
    resumed_at: Duration,
    facts: Option<Facts>,
}

/// The plan that all trials have in common. `connection` carries addresses, settings, process and topic; its settings are stronger
/// than the load. Errors: the load cannot be read.
pub fn base(connection: Plan, load: &Load, warmup: Duration, seed: u64) -> Result<Plan, String> {
    let workload = load.workload(seed)?;
    let plan = Plan {
        kind: if load.consumers > 0 { Kind::Mixed } else { Kind::Produce },
        partitions: load.partitions,
        acks: load.acks.clone(),
        rate: load.rate()?,
        workload,
        producers: load.producers,
        consumers: load.consumers.max(1),
        groups: 0,
        warmup,
        until_steady: false,
        slo: None,
        // The last word on correctness is bench's; here it would cost a second read of everything.
        verify: Verify::Off,
        ceilings: false,
        ..connection
    };
    plan.check()?;
    plan.settled().map_err(|error| error.to_string())
}

/// Where the base plan holds the knobs of a client that are not searched.
pub fn held(base: &Plan) -> Vec<(Knob, u64)> {
    let codec = base.compression.split(':').next().unwrap_or_default();
    let codec = CODECS.iter().position(|name| *name == codec).unwrap_or(0);
    let fetch = base.settings.iter().rev().find(|(name, _)| name == Knob::FetchMinBytes.name());
    let fetch = fetch.and_then(|(_, value)| value.parse().ok());
    let of_producer = [
        (Knob::BatchSize, base.batch_size),
        (Knob::Linger, u64::try_from(base.linger.as_millis()).unwrap_or(u64::MAX)),
        (Knob::Compression, codec as u64),
        (Knob::InFlight, u64::from(base.in_flight)),
    ];
    of_producer.into_iter().chain(fetch.map(|bytes| (Knob::FetchMinBytes, bytes))).collect()
}

impl<'a> Measuring<'a> {
    /// Ready for its first trial. `resumed_at` is where the journal ended; `facts` what it knew.
    pub fn new(
        base: Plan,
        space: Space,
        load: &Load,
        cancel: Cancel,
        resumed_at: Duration,
        facts: Option<Facts>,
        watcher: Watcher<'a>,
    ) -> Self {
        Self {
            base,
            space,
            record_bytes: load.record_bytes(),
            cancel,
            watcher,
            started: Instant::now(),
            resumed_at,
            facts,
        }
    }

    /// Runs the load without counting, at Kafka's default and two profiles: a broker in Java compiles what it is asked for often,
    /// and small requests and large ones take different ways (Kafka's cost per MB fell by two thirds over its first minute).
    /// The clock of the budget begins after it.
    pub fn warm_up(&mut self, duration: Duration) -> Result<(), TrialError> {
        if !duration.is_zero() {
            let mut points = vec![self.space.default_point()];
            points.extend(self.space.profiles().into_iter().take(2).map(|(_, point)| point));
            let each = duration / u32::try_from(points.len()).unwrap_or(1);
            for point in points {
                self.trial(&point, each.max(Duration::from_secs(1)))?;
            }
        }
        self.started = Instant::now();
        Ok(())
    }

    fn plan(&self, point: &Point, duration: Duration) -> Plan {
        let value = |knob| self.space.value(point, knob);
        let small = |knob| u32::try_from(value(knob)).unwrap_or(u32::MAX);
        let mut plan = Plan { duration, ..self.base.clone() };
        for factor in &self.space.factors {
            match factor.knob {
                Knob::BatchSize => plan.batch_size = value(Knob::BatchSize),
                Knob::Linger => plan.linger = Duration::from_millis(value(Knob::Linger)),
                Knob::Compression => plan.compression = Knob::Compression.word(value(Knob::Compression)),
                Knob::InFlight => plan.in_flight = small(Knob::InFlight),
                Knob::Partitions => plan.partitions = small(Knob::Partitions),
                Knob::FetchMinBytes => {
                    plan.settings.push((Knob::FetchMinBytes.name().to_owned(), value(Knob::FetchMinBytes).to_string()));
                }
            }
        }
        if plan.rate == Rate::Max && plan.outstanding.is_none() {
            let in_batch = (value(Knob::BatchSize) as f64 / self.record_bytes.max(1.0)).ceil() as u64;
            plan.outstanding = Some((OUTSTANDING_BATCHES * u64::from(plan.in_flight) * in_batch).max(OUTSTANDING_MIN));
        }
        plan
    }

    fn trial(&mut self, point: &Point, duration: Duration) -> Result<Measured, TrialError> {
        let plan = self.plan(point, duration);
        let mut attempt = 1;
        let run = loop {
            match load::run(&plan, &self.cancel, &mut self.watcher) {
                Ok(run) => break run,
                // Whatever fails after Ctrl-C failed because of it.
                Err(_) if self.cancel.is_cancelled() => return Err(TrialError::Interrupted),
                // A topic just made may not be led yet, for all its broker says; an hour of trials does not end for that.
                Err(BenchError::Topic { topic, why }) if attempt < ATTEMPTS && plan.topic == TopicPlan::Own => {
                    (self.watcher)(Progress::Step(format!("again, with another topic: {topic}: {why}")));
                    attempt += 1;
                }
                Err(error) => return Err(TrialError::Failed(error.into())),
            }
        };
        if self.cancel.is_cancelled() || run.verdict.interrupted {
            return Err(TrialError::Interrupted);
        }
        let now = facts(&run);
        let known = self.facts.get_or_insert_with(|| now.clone());
        match known.other_broker(&now) {
            Some(why) => Err(TrialError::Failed(anyhow::Error::msg(why))),
            None => Ok(measured(&run)),
        }
    }
}

impl Trial for Measuring<'_> {
    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Measured, TrialError> {
        self.trial(point, duration)
    }

    fn elapsed(&self) -> Duration {
        self.resumed_at + self.started.elapsed()
    }

    fn facts(&self) -> Option<Facts> {
        self.facts.clone()
    }
}

fn facts(run: &Run) -> Facts {
    Facts {
        software: run.broker.software.clone(),
        brokers: run.broker.brokers,
        api_fingerprint: run.broker.api_fingerprint.clone(),
        ack_class: run.ack_class.clone(),
        ack_words: run.ack.words.clone(),
        broker_cost_known: run.broker.cpu_ms_per_mb.is_some(),
        cpu_model: run.host.cpu_model.clone(),
        cores: run.host.cores,
        kernel: run.host.kernel.clone(),
        disk: run.host.disk.clone(),
    }
}

/// What a run of bench says, in the tuner's words.
pub fn measured(run: &Run) -> Measured {
    let results = &run.results;
    let end_to_end = (run.kind == "mixed").then_some(results.end_to_end_us.as_ref()).flatten();
    let histogram = if end_to_end.is_some() { "end_to_end_us" } else { "response_us" };
    let latency = end_to_end.or_else(|| run.headline_latency()).cloned().unwrap_or_default();
    let batches = results.batches.clone().unwrap_or_default();
    let per_second = |count: u64| count as f64 / results.seconds.max(1e-9);
    Measured {
        seconds: results.seconds,
        offered_per_second: results.offered_per_second,
        records_per_second: results.records_per_second,
        bytes_per_second: results.bytes_per_second,
        p50_us: latency.p50 as f64,
        p90_us: latency.p90 as f64,
        p99_us: latency.p99 as f64,
        p999_us: latency.p999 as f64,
        max_us: latency.max as f64,
        mean_us: latency.mean,
        histogram: run.histograms.get(histogram).cloned().unwrap_or_default(),
        broker_cpu_ms_per_mb: run.broker.cpu_ms_per_mb,
        client_cpu_ms_per_mb: Some(run.generator.cpu_ms_per_mb).filter(|cpu| *cpu > 0.0),
        requests_per_second: per_second(batches.requests),
        batches_per_second: per_second(batches.batches),
        records_per_batch: batches.records_per_batch,
        bytes_per_batch: batches.bytes_per_batch,
        fill: batches.fill,
        linger_expired_share: batches.linger_expired_share,
        compression_ratio: batches.compression_ratio,
        errors: results.errors,
        valid: run.verdict.valid && latency.count > 0,
        client_bound: run.verdict.client_bound,
        // What changes from trial to trial would be many sentences for one fact; `client_bound` has its own.
        notes: if run.verdict.valid { Vec::new() } else { run.verdict.reasons.clone() },
    }
}

/// The topic trials write to: one made for each, unless it is named.
pub fn topic(name: Option<String>) -> TopicPlan {
    name.map_or(TopicPlan::Own, TopicPlan::Named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::client_rows::ClientRole;

    fn measuring(knobs: &[Knob], load: &Load, settings: &[(&str, &str)]) -> Measuring<'static> {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let connection = Plan { settings, ..Plan::default() };
        let base = base(connection, load, Duration::from_secs(1), 1).unwrap();
        let space = Space::new(knobs, u64::from(load.partitions)).unwrap().holding(held(&base));
        Measuring::new(base, space, load, Cancel::default(), Duration::ZERO, None, Box::new(|_| ()))
    }

    #[test]
    fn a_setting_that_was_given_is_measured_and_told() {
        let load = Load { size: "1000".to_owned(), ..Load::default() };
        let words = [("batch.size", "65536"), ("compression.type", "zstd"), ("acks", "1")];
        let trial = measuring(&[Knob::Linger], &load, &words);
        let plan = trial.plan(&vec![3], Duration::from_secs(1));
        assert_eq!(
            (plan.batch_size, plan.linger, plan.compression.as_str()),
            (65_536, Duration::from_millis(5), "zstd")
        );
        assert_eq!(plan.acks, "1");
        assert_eq!(plan.outstanding, Some(2 * 5 * 66), "of batches as they are, not of the default's");
        assert_eq!(trial.space.value(&[3], Knob::BatchSize), 65_536);
    }

    #[test]
    fn what_is_not_searched_does_not_override_a_setting() {
        let load = Load { consumers: 1, ..Load::default() };
        let fetch = |knobs: &[Knob]| {
            let trial = measuring(knobs, &load, &[("fetch.min.bytes", "65536")]);
            let words = trial.plan(&vec![0; knobs.len()], Duration::from_secs(1)).client_words(ClientRole::Consumer);
            words.into_iter().rfind(|(name, _)| name == "fetch.min.bytes").unwrap().1
        };
        assert_eq!(fetch(&[Knob::Linger]), "65536");
        assert_eq!(fetch(&[Knob::FetchMinBytes]), "1");
    }
}
