//! From what was found to the report of it: seconds to totals, totals to percentiles, findings to a verdict.
//!
//! Pure. Owns the rules of the verdict. Always true: a lossy run is not valid; neither is one that was to be verified and could
//! not be, during which the host changed, or that measured nothing; every rule that was broken is said in a sentence.

use hdrhistogram::Histogram;

use super::plan::{Kind, Plan};
use super::recorder::{Collector, Interval, encode, percentiles};
use super::report::{
    BatchFacts, BrokerFacts, CeilingFacts, GeneratorFacts, LoadPoint, Results, Run, SCHEMA_VERSION, Second, Spread,
    Tool, Verdict,
};
use super::schedule::{Rate, Schedule};
use super::units;
use super::verify::Verification;

/// What the host can do may change by so much between the beginning and the end; beyond it the run is void.
pub const DRIFT_MAX: f64 = 0.15;
/// Share of its cores above which the generator is called the limit.
const BUSY_MAX: f64 = 0.85;
/// The generator is late when one record in a hundred is by more than this.
const SLIP_MAX_US: u64 = 10_000;
/// Share of unsent records that is worth saying.
const UNSENT_TOLD: f64 = 0.001;
/// Share of failed records above which a headline is no headline.
const ERRORS_MAX: f64 = 0.001;
/// Share of processor time taken away by a hypervisor that is worth saying.
const STEAL_TOLD: f64 = 0.02;
/// Points of a load curve.
const LOAD_POINTS_MAX: u64 = 40;

/// The measured stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// First second that counts.
    pub from: u64,
    /// First second that does not any more. The one before it may have ended early: then it holds what was before that end.
    pub to: u64,
    /// How long it was.
    pub seconds: f64,
}

/// Everything that was found.
pub struct Found {
    /// All seconds.
    pub collector: Collector,
    /// Those that count.
    pub window: Window,
    /// Whether throughput was level; `None` when nobody asked.
    pub steady: Option<bool>,
    /// Ctrl-C ended it.
    pub interrupted: bool,
    /// Somebody asked for its end, before measuring or reading back was over.
    pub cancelled: bool,
    /// By name.
    pub errors: std::collections::BTreeMap<String, u64>,
    /// The ledger's verdict.
    pub verification: Verification,
    /// Limits of the host.
    pub ceilings: Option<CeilingFacts>,
    /// The broker, with its costs.
    pub broker: BrokerFacts,
    /// The generator.
    pub generator: GeneratorFacts,
    /// Share of processor time taken away.
    pub steal: f64,
    /// Whatever else there is to say.
    pub notes: Vec<String>,
}

/// The report. Host, acknowledgement class and names are the caller's to fill in.
pub fn assemble(plan: &Plan, found: Found) -> Run {
    let Found { collector, window, .. } = &found;
    let totals = collector.totals(window.from, window.to, u64::MAX);
    let ramp_us = u64::try_from((plan.warmup + plan.duration).as_micros()).unwrap_or(u64::MAX);
    let series = series(plan, collector, window, ramp_us);
    let latencies = &totals.latencies;
    let histograms = [
        ("response_us", &latencies.response),
        ("service_us", &latencies.service),
        ("publish_delay_us", &latencies.publish_delay),
        ("end_to_end_us", &latencies.end_to_end),
        ("slip_us", &latencies.slip),
    ];
    let (records, bytes) = moved(plan.kind, &totals);
    let per_second = |amount: f64| if window.seconds > 0.0 { amount / window.seconds } else { 0.0 };
    let requests = totals.requests + totals.batches.requests;
    let results = Results {
        seconds: window.seconds,
        records: records as u64,
        bytes: bytes as u64,
        records_per_second: per_second(records),
        bytes_per_second: per_second(bytes),
        offered_per_second: offered(plan, window, ramp_us),
        errors: totals.errors,
        errors_by_code: found.errors.clone(),
        unsent: totals.unsent,
        consumed: totals.consumed,
        consumed_per_second: per_second(totals.consumed as f64),
        consumed_bytes_per_second: per_second(totals.consumed_bytes as f64),
        response_us: percentiles(&latencies.response),
        service_us: percentiles(&latencies.service),
        publish_delay_us: percentiles(&latencies.publish_delay),
        end_to_end_us: percentiles(&latencies.end_to_end),
        slip_us: percentiles(&latencies.slip),
        batches: batches(plan, &totals),
        requests_per_second: (requests > 0).then(|| per_second(requests as f64)),
        backlog_at_end: series.iter().rfind(|second| second.t < window.to).map_or(0, |second| second.backlog),
    };
    let verdict = verdict(plan, &found, &totals, &results);
    Run {
        schema_version: SCHEMA_VERSION,
        tool: Tool { name: "ringlog bench".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        label: plan.label.clone(),
        kind: plan.kind.name().to_owned(),
        command: plan.command.clone(),
        client: plan.client_facts(),
        results,
        verdict,
        load_curve: match plan.rate {
            Rate::Ramp(..) => load_curve(plan, collector, window, ramp_us),
            _ => Vec::new(),
        },
        histograms: histograms
            .into_iter()
            .filter(|(_, histogram)| !histogram.is_empty())
            .map(|(name, histogram)| (name.to_owned(), encode(histogram)))
            .collect(),
        series,
        verification: found.verification,
        ceilings: found.ceilings,
        broker: found.broker,
        generator: found.generator,
        notes: found.notes,
        ..Run::default()
    }
}

/// Records and bytes the run is about.
pub fn moved(kind: Kind, totals: &Interval) -> (f64, f64) {
    match kind {
        Kind::Consume => (totals.consumed as f64, totals.consumed_bytes as f64),
        _ => (totals.acked as f64, totals.acked_bytes as f64),
    }
}

fn series(plan: &Plan, collector: &Collector, window: &Window, ramp_us: u64) -> Vec<Second> {
    let last = collector.seconds().last().map_or(0, |(index, _)| index);
    let nothing = Interval::default();
    let mut backlog = 0u64;
    (0..=last)
        .map(|t| {
            let interval = collector.second(t).unwrap_or(&nothing);
            let latencies = &interval.latencies;
            backlog = (backlog + interval.sent).saturating_sub(interval.acked + interval.errors);
            let shown = if latencies.response.is_empty() { &latencies.end_to_end } else { &latencies.response };
            let shown = if plan.kind.produces() || !latencies.end_to_end.is_empty() || !shown.is_empty() {
                shown
            } else {
                &latencies.service
            };
            let at = |quantile| if shown.is_empty() { 0 } else { shown.value_at_quantile(quantile) };
            let sending = t < window.to;
            let middle = t * 1_000_000 + 500_000;
            Second {
                t,
                measured: (window.from..window.to).contains(&t),
                offered: Schedule::rate_at(plan.rate, middle, ramp_us).filter(|_| sending && plan.kind.produces()),
                sent: interval.sent,
                acked: interval.acked,
                bytes: if plan.kind.produces() { interval.acked_bytes } else { interval.consumed_bytes },
                errors: interval.errors,
                consumed: interval.consumed,
                backlog,
                p50_us: at(0.5),
                p99_us: at(0.99),
                p999_us: at(0.999),
                max_us: if shown.is_empty() { 0 } else { shown.max() },
                service_us: spread(&latencies.service),
                publish_delay_us: spread(&latencies.publish_delay),
                end_to_end_us: spread(&latencies.end_to_end),
            }
        })
        .collect()
}

fn spread(histogram: &Histogram<u64>) -> Option<Spread> {
    let at = |quantile| histogram.value_at_quantile(quantile);
    (!histogram.is_empty()).then(|| {
        [histogram.mean().round() as u64, at(0.5), at(0.75), at(0.95), at(0.99), at(0.999), at(0.9999), histogram.max()]
    })
}

fn offered(plan: &Plan, window: &Window, ramp_us: u64) -> Option<f64> {
    if !plan.kind.produces() {
        return None;
    }
    let middle = window.from * 1_000_000 + (window.seconds * 5e5) as u64;
    Schedule::rate_at(plan.rate, middle, ramp_us)
}

fn batches(plan: &Plan, totals: &Interval) -> Option<BatchFacts> {
    let counts = &totals.batches;
    let per = |amount: u64, count: u64| if count > 0 { amount as f64 / count as f64 } else { 0.0 };
    (counts.batches > 0).then(|| {
        let bytes_per_batch = per(counts.wire_bytes, counts.batches);
        let raw_per_batch = per(counts.raw_bytes, counts.batches);
        BatchFacts {
            requests: counts.requests,
            batches: counts.batches,
            records_per_batch: per(counts.records, counts.batches),
            bytes_per_batch,
            fill: raw_per_batch / plan.batch_size.max(1) as f64,
            linger_expired_share: (counts.lingered + counts.full > 0)
                .then(|| per(counts.lingered, counts.lingered + counts.full)),
            batches_per_request: per(counts.batches, counts.requests),
            compression_ratio: (counts.wire_bytes > 0 && plan.compression != "none")
                .then(|| per(counts.raw_bytes, counts.wire_bytes)),
            retries: counts.retries,
        }
    })
}

fn load_curve(plan: &Plan, collector: &Collector, window: &Window, ramp_us: u64) -> Vec<LoadPoint> {
    // A last second that was cut short has no rate.
    let to = window.to.min(window.from + window.seconds as u64);
    let step = (to - window.from).div_ceil(LOAD_POINTS_MAX).max(1);
    let mut points = Vec::new();
    let mut from = window.from;
    while from + step <= to {
        let totals = collector.totals(from, from + step, 0);
        let middle = (2 * from + step) * 500_000;
        if let (Some(offered), Some(all)) =
            (Schedule::rate_at(plan.rate, middle, ramp_us), percentiles(&totals.latencies.response))
        {
            let achieved = totals.acked as f64 / step as f64;
            points.push(LoadPoint { offered, achieved, p50_us: all.p50, p99_us: all.p99, p999_us: all.p999 });
        }
        from += step;
    }
    points.sort_by(|a, b| a.offered.total_cmp(&b.offered));
    points
}

/// Whether the generator was the limit, and by what.
pub fn client_bound(generator: &GeneratorFacts, results: &Results) -> Vec<String> {
    let mut reasons = Vec::new();
    if generator.busy_share > BUSY_MAX {
        reasons.push(format!(
            "Client-bound: the generator used {:.0} % of its {} thread(s). The broker could do more; give --threads, or fewer, larger batches.",
            generator.busy_share * 100.0,
            generator.threads
        ));
    }
    reasons.extend(late(results));
    reasons
}

/// Whether the generator came late to its own records, and by how much.
pub fn late(results: &Results) -> Option<String> {
    let slip = results.slip_us.as_ref().filter(|slip| slip.p99 > SLIP_MAX_US)?;
    let by = units::micros(slip.p99 as f64);
    Some(format!("Client-bound: the generator itself was late, by {by} for one record in a hundred."))
}

fn verdict(plan: &Plan, found: &Found, totals: &Interval, results: &Results) -> Verdict {
    let mut reasons = Vec::new();
    let lossy = found.verification.enabled && !found.verification.is_clean();
    if lossy {
        reasons.push(format!("Lossy: {}.", found.verification.sentence()));
    }
    let unverified = was_not_verified(plan, found);
    reasons.extend(unverified.clone());
    if found.verification.is_partial() && unverified.is_none() {
        reasons.push(format!("Partly verified: {}.", found.verification.sentence()));
    }
    reasons.extend(found.verification.accepted().map(|accepted| format!("At least once: {accepted}.")));
    let drift = found.ceilings.as_ref().map_or(0.0, |ceilings| ceilings.drift);
    let ceiling_drift = drift > DRIFT_MAX;
    if ceiling_drift {
        reasons.push(format!(
            "Void: what this host can do changed by {:.0} % between the beginning and the end (15 % at most). Something else ran; measure again.",
            drift * 100.0
        ));
    }
    let bound = client_bound(&found.generator, results);
    let is_client_bound = !bound.is_empty();
    reasons.extend(bound);
    let done = totals.acked + totals.consumed + totals.requests;
    let tried = totals.errors + if plan.kind == Kind::Consume { totals.consumed } else { totals.acked };
    let too_many_errors = totals.errors as f64 > ERRORS_MAX * tried.max(1) as f64;
    if too_many_errors {
        reasons.push(format!("{} of {} records failed.", units::grouped(totals.errors), units::grouped(tried)));
    }
    if totals.unsent as f64 > UNSENT_TOLD * done as f64 {
        reasons.push(format!(
            "{} were due and could not be sent before the end; they count with the time they had waited by then.",
            units::grouped(totals.unsent)
        ));
    }
    let all = found.collector.totals(0, u64::MAX, u64::MAX);
    let readable = all.acked * u64::from(plan.groups.max(1));
    if plan.kind.produces() && plan.kind.consumes() && all.consumed < readable {
        reasons.push(format!(
            "{} acknowledged records were not read before the end: end-to-end latency is without them.",
            units::grouped(readable - all.consumed)
        ));
    }
    if done == 0 {
        reasons.push("Nothing was answered while measuring.".to_owned());
    }
    if found.steady == Some(false) {
        reasons.push("Throughput still swung by more than 5 % from second to second when measuring began.".to_owned());
    }
    if found.steal > STEAL_TOLD {
        reasons.push(format!("A hypervisor took {:.1} % of this host's processor time away.", found.steal * 100.0));
    }
    if found.interrupted {
        reasons.push(format!("Interrupted after {} measured seconds.", units::digits(results.seconds)));
    }
    if matches!(plan.rate, Rate::Fixed(_))
        && let Some(offered) = results.offered_per_second
        && results.records_per_second < offered * 0.97
        && plan.records.is_none()
    {
        reasons.push(format!(
            "Not sustained: {} of the {} records/s offered were acknowledged.",
            units::grouped(results.records_per_second as u64),
            units::grouped(offered as u64)
        ));
    }
    Verdict {
        client_bound: is_client_bound,
        ceiling_drift,
        lossy,
        steady: found.steady,
        interrupted: found.interrupted,
        valid: !lossy && unverified.is_none() && !ceiling_drift && !too_many_errors && done > 0,
        reasons,
    }
}

/// Says so when nothing was verified of what was to be: everything may be gone. Whoever called the run off knows why.
fn was_not_verified(plan: &Plan, found: &Found) -> Option<String> {
    let verification = &found.verification;
    let nothing = !verification.enabled || verification.is_partial() && verification.checked == 0;
    (plan.verifies().is_ok() && nothing && !found.cancelled)
        .then(|| format!("Not verified, as it was to be: {}.", verification.sentence()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Verify;
    use crate::bench::recorder::Recorder;

    fn found(fill: impl FnOnce(&mut Recorder)) -> Found {
        let mut recorder = Recorder::default();
        fill(&mut recorder);
        let mut collector = Collector::default();
        recorder.finish().iter().for_each(|(index, interval)| collector.add(*index, interval));
        Found {
            collector,
            window: Window { from: 1, to: 3, seconds: 2.0 },
            steady: None,
            interrupted: false,
            errors: Default::default(),
            cancelled: false,
            verification: Verification { enabled: true, ..Verification::default() },
            ceilings: None,
            broker: BrokerFacts::default(),
            generator: GeneratorFacts::default(),
            steal: 0.0,
            notes: Vec::new(),
        }
    }

    /// A record every 10 ms for three seconds, each answered after 1 ms.
    fn level(recorder: &mut Recorder) {
        for step in 0..300 {
            let at = step * 10_000;
            recorder.on_sent(at, at, at, 1);
            recorder.on_acked(at + 1000, at, at, 1, 100);
        }
    }

    #[test]
    fn warm_up_does_not_count_and_rates_are_of_the_window() {
        let run = assemble(&Plan::default(), found(level));
        assert_eq!((run.results.records, run.results.records_per_second), (200, 100.0));
        assert_eq!(run.results.bytes_per_second, 10_000.0);
        assert_eq!(run.results.response_us.as_ref().unwrap().p50, 1000);
        assert_eq!(run.series.iter().map(|second| second.measured).collect::<Vec<_>>(), [false, true, true]);
        assert!(run.verdict.valid && run.histograms.contains_key("response_us"));
    }

    #[test]
    fn a_lossy_run_is_not_valid() {
        let mut found = found(level);
        found.verification = Verification { enabled: true, checked: 10, lost: 1, ..Verification::default() };
        let verdict = assemble(&Plan::default(), found).verdict;
        assert!(verdict.lossy && !verdict.valid && verdict.reasons[0].contains("1 LOST"));
    }

    #[test]
    fn a_run_that_was_to_be_verified_and_was_not_is_not_valid() {
        let plan = |verify| Plan { verify, ..Plan::default() };
        let verdict = |verify, cancelled| {
            let verification = Verification::skipped("reading back failed");
            assemble(&plan(verify), Found { verification, cancelled, ..found(level) }).verdict
        };
        let unverified = verdict(Verify::On, false);
        assert!(!unverified.valid && unverified.reasons[0].contains("reading back failed"), "{unverified:?}");
        assert!(verdict(Verify::On, true).valid && verdict(Verify::Off, false).valid);
        let deleted = Verification { enabled: true, deleted: 5, ..Verification::default() };
        let of = |checked| Found { verification: Verification { checked, ..deleted.clone() }, ..found(level) };
        assert!(!assemble(&Plan::default(), of(0)).verdict.valid);
        let partly = assemble(&Plan::default(), of(5)).verdict;
        assert!(partly.valid && partly.reasons[0].starts_with("Partly verified"), "{partly:?}");
    }

    #[test]
    fn a_host_that_changed_voids_the_run() {
        let mut found = found(level);
        found.ceilings = Some(CeilingFacts { drift: 0.2, ..CeilingFacts::default() });
        let verdict = assemble(&Plan::default(), found).verdict;
        assert!(verdict.ceiling_drift && !verdict.valid && verdict.reasons[0].starts_with("Void"));
    }

    #[test]
    fn a_busy_or_late_generator_is_said_to_be_the_limit_and_the_run_stays_valid() {
        let mut busy = found(level);
        busy.generator = GeneratorFacts { threads: 1, busy_share: 0.9, ..GeneratorFacts::default() };
        let verdict = assemble(&Plan::default(), busy).verdict;
        assert!(verdict.client_bound && verdict.valid);
        let late = found(|recorder| {
            (0..300).for_each(|step| {
                let at = step * 10_000 + 50_000;
                recorder.on_sent(at, at - 50_000, at, 1);
                recorder.on_acked(at, at - 50_000, at, 1, 1);
            })
        });
        assert!(assemble(&Plan::default(), late).verdict.client_bound);
    }

    #[test]
    fn a_run_without_answers_is_not_valid() {
        let verdict = assemble(&Plan::default(), found(|recorder| recorder.on_sent(1_500_000, 1, 1, 1))).verdict;
        assert!(!verdict.valid && verdict.reasons[0].contains("Nothing"));
    }

    #[test]
    fn the_backlog_is_what_was_sent_and_not_answered() {
        let run = assemble(
            &Plan::default(),
            found(|recorder| {
                let send = |recorder: &mut Recorder, step: u64| recorder.on_sent(step * 100_000, 0, 0, 1);
                (0..15).for_each(|step| send(recorder, step));
                recorder.on_acked(1_500_000, 0, 0, 5, 5);
                (15..30).for_each(|step| send(recorder, step));
                recorder.on_acked(4_500_000, 0, 0, 25, 5);
            }),
        );
        assert_eq!(run.series.iter().map(|second| second.backlog).collect::<Vec<_>>(), [10, 15, 25, 25, 0]);
        assert_eq!(run.results.backlog_at_end, 25);
    }

    #[test]
    fn a_ramp_has_a_curve_by_offered_rate() {
        let plan = Plan {
            rate: Rate::Ramp(100.0, 300.0),
            duration: std::time::Duration::from_secs(3),
            warmup: Default::default(),
            ..Plan::default()
        };
        let run = assemble(&plan, found(level));
        assert_eq!(run.load_curve.len(), 2);
        assert!(run.load_curve[0].offered < run.load_curve[1].offered);
    }
}
