//! What explains the numbers: a cost of requests, megabytes, records, batches and wakes; a latency of waiting, queue and service.
//!
//! Pure. Owns the batch-fill formula, the fit and its error on points it was not fitted to. Always true: no coefficient is
//! negative; terms that one load cannot tell apart are joined and say so; a part whose error on held-out points is above
//! [`ERROR_MAX`] is not shown, and nothing is predicted from it.
//! Source: CPU = a·requests + b·MB + c·records + d·partition-batches + e·wakes; batch fill min(batch.size/s, 1 + λ·linger);
//! wakes r·exp(−r·τ), the requests of r a second that come at random and find the last one gone for τ; M/M/1 queue.

use std::collections::BTreeMap;

use serde::Serialize;

use super::least_squares;
use super::space::{Knob, Space};
use super::trial::Measured;

/// A model that errs by more than this, on average over held-out points, is not shown.
pub const ERROR_MAX: f64 = 0.25;
/// Fewer points than this fit anything.
pub const POINTS_MIN: usize = 8;
/// Every fourth point is held out, four times over.
const FOLDS: usize = 4;
/// A broker that was asked nothing for so long sleeps, and its next request pays for the waking. From τ = 0.2 to 1 ms the fit is
/// about equally good, on Kafka as on ours (`tuning/batch-and-linger.md`).
const ASLEEP_AFTER_SECONDS: f64 = 0.5e-3;
/// A smaller coefficient, in the unit it is shown in, is what is left of zero.
const SHOWN_MIN: f64 = 1e-3;
/// Of a record batch.
const BATCH_HEADER_BYTES: f64 = 61.0;
/// Columns less apart than this tell one story.
const APART_MIN: f64 = 0.08;
/// Utilisation at which the queue's formula is cut: beyond it latency depends on how long one looks.
const BUSY_MAX: f64 = 0.97;

/// What the model must know of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadShape {
    /// Records per second, where the load is fixed.
    pub rate: Option<f64>,
    /// Key and value, on average.
    pub record_bytes: f64,
    /// Producers.
    pub producers: f64,
    /// Whether keys spread the records over the partitions.
    pub keyed: bool,
    /// Processors that broker and clients share.
    pub cores: f64,
}

/// A point and what was found there.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Level of each factor.
    pub point: Vec<usize>,
    /// All its trials.
    pub measured: Measured,
    /// Whether the rate was carried: latency of a growing backlog is no latency.
    pub carried: bool,
}

/// A coefficient and what it is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Term {
    /// `a`, `b`, `c`, `d`, or what the latency term is.
    pub name: String,
    /// What it is multiplied with.
    pub of: String,
    /// Its value.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
}

/// One of the two parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Its terms; those that are zero are left out.
    pub terms: Vec<Term>,
    /// Mean relative error on held-out points.
    pub error: f64,
    /// The largest.
    pub error_max: f64,
    /// Held-out points: what was found, what was predicted.
    #[serde(skip)]
    pub held_out: Vec<(f64, f64)>,
}

impl Part {
    /// Whether it may be shown.
    pub fn is_good(&self) -> bool {
        self.error <= ERROR_MAX
    }
}

/// Both parts with their errors; a part is absent when there was nothing to fit it to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Processor milliseconds per megabyte.
    pub cpu: Option<Part>,
    /// Median latency, microseconds.
    pub p50: Option<Part>,
    /// Points the fit used.
    pub points: usize,
    /// Why a part is absent or not shown.
    pub remarks: Vec<String>,
}

/// How batches come about.
#[derive(Clone, Debug)]
struct Filling {
    /// Bytes of a record on the wire, by codec.
    record_bytes: BTreeMap<u64, f64>,
    /// Batches that a producer fills side by side.
    streams: f64,
    /// Seconds that records gather even without linger: a turn of the client's loop.
    turn: f64,
    /// Logarithm of batches per request: constant and slope over the logarithm of records per batch.
    together: (f64, f64),
}

/// What a setting makes of the load, per second.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    records: f64,
    batches: f64,
    requests: f64,
    megabytes: f64,
    /// Seconds a batch stays open.
    open: f64,
    /// Records that reach one open batch in a second.
    arrivals: f64,
}

/// The fitted model.
#[derive(Clone, Debug)]
pub struct Model {
    shape: LoadShape,
    filling: Filling,
    cpu: Vec<f64>,
    joined: Joined,
    latency: Vec<f64>,
}

/// What the model expects of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Processor milliseconds per megabyte; `None` when no cost was fitted.
    pub cpu_ms_per_mb: Option<f64>,
    /// Median latency; `None` when none was fitted.
    pub p50_us: Option<f64>,
    /// Records in a batch.
    pub records_per_batch: f64,
}

/// Which columns of the cost stand for others, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Joined {
    /// Records go with megabytes: one record size.
    records: bool,
    /// Batches go with requests: as many in each.
    batches: bool,
}

fn rate_of(shape: &LoadShape, measured: &Measured) -> f64 {
    shape.rate.unwrap_or(measured.records_per_second)
}

impl Filling {
    fn fit(shape: &LoadShape, space: &Space, samples: &[&Sample]) -> Self {
        let mut sizes: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for sample in samples {
            let measured = &sample.measured;
            if measured.records_per_batch > 0.0 && measured.bytes_per_batch > 0.0 {
                let bytes = (measured.bytes_per_batch - BATCH_HEADER_BYTES).max(1.0) / measured.records_per_batch;
                sizes.entry(space.value(&sample.point, Knob::Compression)).or_default().push(bytes);
            }
        }
        let record_bytes =
            sizes.into_iter().map(|(codec, all)| (codec, all.iter().sum::<f64>() / all.len() as f64)).collect();
        let mut filling = Self { record_bytes, streams: 1.0, turn: 0.0, together: (0.0, 0.0) };
        filling.fit_gathering(shape, space, samples);
        filling.fit_together(shape, space, samples);
        filling
    }

    /// Streams and turn by trying a grid: two numbers, and the formula has a kink.
    fn fit_gathering(&mut self, shape: &LoadShape, space: &Space, samples: &[&Sample]) {
        let partitions = samples.iter().map(|sample| space.value(&sample.point, Knob::Partitions)).max().unwrap_or(1);
        let most = if shape.keyed { partitions as f64 } else { (partitions as f64).min(4.0) };
        let mut best = (f64::INFINITY, 1.0, 0.0);
        for step in 0..=16 {
            let streams = most.powf(f64::from(step) / 16.0);
            for turn_us in
                [0.0, 10.0, 20.0, 40.0, 70.0, 100.0, 150.0, 200.0, 300.0, 500.0, 700.0, 1000.0, 2000.0, 5000.0]
            {
                (self.streams, self.turn) = (streams, turn_us / 1e6);
                let error: f64 = samples
                    .iter()
                    .filter(|sample| sample.measured.records_per_batch > 0.0)
                    .map(|sample| {
                        let found = sample.measured.records_per_batch;
                        (self.records_per_batch(shape, space, sample).0 / found).ln().powi(2).min(4.0)
                    })
                    .sum();
                // Of equals the simpler: fewer streams, no turn.
                if error < best.0 - 1e-9 {
                    best = (error, streams, turn_us / 1e6);
                }
            }
        }
        (_, self.streams, self.turn) = best;
    }

    fn fit_together(&mut self, shape: &LoadShape, space: &Space, samples: &[&Sample]) {
        let points: Vec<(f64, f64)> = samples
            .iter()
            .filter(|sample| sample.measured.requests_per_second > 0.0 && sample.measured.batches_per_second > 0.0)
            .map(|sample| {
                let per_request = sample.measured.batches_per_second / sample.measured.requests_per_second;
                (self.records_per_batch(shape, space, sample).0.ln(), per_request.max(1.0).ln())
            })
            .collect();
        let count = points.len() as f64;
        if count < 1.0 {
            return;
        }
        let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = if spread > 1e-6 { both / spread } else { 0.0 };
        self.together = (y - slope * x, slope);
    }

    /// Records in a batch at this point, seconds it stays open, and records that reach it in a second.
    fn records_per_batch(&self, shape: &LoadShape, space: &Space, sample: &Sample) -> (f64, f64, f64) {
        self.gather(shape, space, &sample.point, rate_of(shape, &sample.measured))
    }

    fn gather(&self, shape: &LoadShape, space: &Space, point: &[usize], rate: f64) -> (f64, f64, f64) {
        let codec = space.value(point, Knob::Compression);
        let known = self.record_bytes.get(&codec).or_else(|| self.record_bytes.values().next_back());
        let record = known.copied().unwrap_or(shape.record_bytes).max(1.0);
        let room = ((space.value(point, Knob::BatchSize) as f64 - BATCH_HEADER_BYTES) / record).floor().max(1.0);
        let arrivals = rate / (shape.producers.max(1.0) * self.streams.max(1.0));
        let linger = (space.value(point, Knob::Linger) as f64 / 1e3).max(self.turn);
        let gathered = 1.0 + arrivals * linger;
        let records = gathered.min(room);
        let open = if gathered <= room { linger } else { (room - 1.0) / arrivals.max(1e-9) };
        (records, open, arrivals)
    }

    fn traffic(&self, shape: &LoadShape, space: &Space, point: &[usize], rate: f64) -> Traffic {
        let (per_batch, open, arrivals) = self.gather(shape, space, point, rate);
        let batches = rate / per_batch;
        let together = (self.together.0 + self.together.1 * per_batch.ln()).exp();
        let together = together.clamp(1.0, space.value(point, Knob::Partitions).max(1) as f64);
        let megabytes = rate * shape.record_bytes / 1e6;
        Traffic { records: rate, batches, requests: batches / together, megabytes, open, arrivals }
    }
}

impl Traffic {
    /// Of what was counted, not of what the formula says; waiting is always the formula's.
    fn of(measured: &Measured, formula: Traffic) -> Self {
        Self {
            records: measured.records_per_second,
            batches: measured.batches_per_second,
            requests: measured.requests_per_second,
            megabytes: measured.bytes_per_second / 1e6,
            ..formula
        }
    }

    fn columns(&self, joined: Joined) -> Vec<f64> {
        let none_if = |joined: bool, value: f64| if joined { 0.0 } else { value };
        vec![
            self.requests,
            self.megabytes,
            none_if(joined.records, self.records),
            none_if(joined.batches, self.batches),
            self.wakes(),
        ]
    }

    /// Requests that find the broker asleep.
    fn wakes(&self) -> f64 {
        self.requests * (-self.requests * ASLEEP_AFTER_SECONDS).exp()
    }

    /// Median wait for the batch to be closed, microseconds. The record that opens a batch waits for all of the time, those
    /// that follow arrive evenly over it.
    fn wait_us(&self) -> f64 {
        let followers = self.arrivals * self.open;
        let share = followers / (1.0 + followers);
        let median = if share > 0.5 { 0.5 / share } else { 1.0 };
        self.open * median.min(1.0) * 1e6
    }

    fn latency_columns(&self, busy: f64) -> Vec<f64> {
        let busy = busy.clamp(0.0, BUSY_MAX);
        vec![self.wait_us(), 1.0, self.megabytes / self.requests.max(1e-9), busy / (1.0 - busy)]
    }
}

fn product(row: &[f64], coefficients: &[f64]) -> f64 {
    row.iter().zip(coefficients).map(|(a, b)| a * b).sum()
}

impl Model {
    /// Fits to these points.
    fn fit(shape: &LoadShape, space: &Space, samples: &[&Sample]) -> Self {
        let filling = Filling::fit(shape, space, samples);
        let formula = |sample: &Sample| filling.traffic(shape, space, &sample.point, rate_of(shape, &sample.measured));
        let costed: Vec<(Traffic, f64)> = samples
            .iter()
            .filter_map(|sample| {
                let cpu = sample.measured.cpu_ms_per_mb()?;
                Some((Traffic::of(&sample.measured, formula(sample)), cpu * sample.measured.bytes_per_second / 1e6))
            })
            .collect();
        let values: Vec<f64> = costed.iter().map(|(_, cpu)| *cpu).collect();
        let plain: Vec<Vec<f64>> = costed.iter().map(|(traffic, _)| traffic.columns(Joined::default())).collect();
        let joined = Joined {
            records: least_squares::apart(&plain, &values, 2, 1) < APART_MIN,
            batches: least_squares::apart(&plain, &values, 3, 0) < APART_MIN,
        };
        let rows: Vec<Vec<f64>> = costed.iter().map(|(traffic, _)| traffic.columns(joined)).collect();
        let cpu = least_squares::fit_robust(&rows, &values);
        let mut model = Self { shape: *shape, filling, cpu, joined, latency: Vec::new() };
        let (rows, values): (Vec<Vec<f64>>, Vec<f64>) = samples
            .iter()
            .filter(|sample| sample.carried && sample.measured.p50_us > 0.0)
            .map(|sample| {
                let traffic = model.traffic(space, &sample.point, &sample.measured);
                (traffic.latency_columns(model.busy(&traffic)), sample.measured.p50_us)
            })
            .unzip();
        if rows.len() >= POINTS_MIN / 2 {
            model.latency = least_squares::fit_robust(&rows, &values);
        }
        model
    }

    fn traffic(&self, space: &Space, point: &[usize], measured: &Measured) -> Traffic {
        self.filling.traffic(&self.shape, space, point, rate_of(&self.shape, measured))
    }

    fn busy(&self, traffic: &Traffic) -> f64 {
        product(&traffic.columns(self.joined), &self.cpu) / 1e3 / self.shape.cores.max(1.0)
    }

    /// What a setting would do at `rate` records per second.
    pub fn predict(&self, space: &Space, point: &[usize], rate: f64) -> Prediction {
        let traffic = self.filling.traffic(&self.shape, space, point, rate);
        let cpu = product(&traffic.columns(self.joined), &self.cpu);
        let p50 = product(&traffic.latency_columns(self.busy(&traffic)), &self.latency);
        Prediction {
            cpu_ms_per_mb: (cpu > 0.0).then(|| cpu / traffic.megabytes.max(1e-12)),
            p50_us: (p50 > 0.0).then_some(p50),
            records_per_batch: traffic.records / traffic.batches,
        }
    }

    fn cpu_terms(&self) -> Vec<Term> {
        let records = if self.joined.records {
            "MB, with the records in them (one record size cannot tell them apart)"
        } else {
            "MB"
        };
        let batches =
            if self.joined.batches { "request, with the batches in it (always about as many)" } else { "request" };
        let rows = [
            ("a", batches, 1e3, "µs"),
            ("b", records, 1.0, "ms"),
            ("c", "1,000 records", 1e6, "µs"),
            ("d", "partition batch", 1e3, "µs"),
            ("e", "request that finds the broker asleep", 1e3, "µs"),
        ];
        let terms = rows.iter().zip(&self.cpu).map(|((name, of, factor, unit), value)| Term {
            name: (*name).to_owned(),
            of: format!("per {of}"),
            value: value * factor,
            unit,
        });
        terms.filter(|term| term.value >= SHOWN_MIN).collect()
    }

    fn latency_terms(&self) -> Vec<Term> {
        let rows = [
            ("linger wait", "times the wait the formula expects", "×"),
            ("service", "for every request", "µs"),
            ("service", "per MB in a request", "µs"),
            ("queue", "times busy/(1 − busy)", "µs"),
        ];
        let terms = rows.iter().zip(&self.latency).filter(|(_, value)| **value > 0.0);
        terms
            .map(|((name, of, unit), value)| Term {
                name: (*name).to_owned(),
                of: (*of).to_owned(),
                value: *value,
                unit,
            })
            .collect()
    }
}

/// Fits the model, and judges it on points it was not fitted to. The model is absent when there are too few points.
pub fn fit(shape: &LoadShape, space: &Space, samples: &[Sample]) -> (Option<Model>, Report) {
    let usable: Vec<&Sample> = samples.iter().filter(|sample| sample.measured.records_per_second > 0.0).collect();
    let mut report = Report { points: usable.len(), ..Report::default() };
    if usable.len() < POINTS_MIN {
        report.remarks.push(format!("{} settings were measured; a model needs {POINTS_MIN}", usable.len()));
        return (None, report);
    }
    let (mut cpu, mut p50) = (Vec::new(), Vec::new());
    for fold in 0..FOLDS {
        let part = |held: bool| -> Vec<&Sample> {
            let numbered = usable.iter().enumerate();
            numbered.filter(|(index, _)| (index % FOLDS == fold) == held).map(|(_, sample)| *sample).collect()
        };
        let model = Model::fit(shape, space, &part(false));
        for sample in part(true) {
            let expected = model.predict(space, &sample.point, rate_of(shape, &sample.measured));
            if let (Some(found), Some(expected)) = (sample.measured.cpu_ms_per_mb(), expected.cpu_ms_per_mb) {
                cpu.push((found, expected));
            }
            if let Some(expected) = expected.p50_us.filter(|_| sample.carried && sample.measured.p50_us > 0.0) {
                p50.push((sample.measured.p50_us, expected));
            }
        }
    }
    let model = Model::fit(shape, space, &usable);
    report.cpu = part(cpu, model.cpu_terms());
    report.p50 = part(p50, model.latency_terms()).filter(|_| shape.rate.is_some());
    let mut remark = |part: &Option<Part>, name: &str, absent: &str| match part {
        None => report.remarks.push(format!("no model of {name}: {absent}")),
        Some(part) if !part.is_good() => report.remarks.push(format!(
            "the model of {name} errs by {:.0} % on held-out settings; above {:.0} % it is not shown",
            part.error * 100.0,
            ERROR_MAX * 100.0
        )),
        Some(_) => {}
    };
    remark(&report.cpu.clone(), "cost", "no processor time was measured");
    remark(&report.p50.clone(), "latency", "it needs a fixed rate that is carried");
    (Some(model), report)
}

fn part(held_out: Vec<(f64, f64)>, terms: Vec<Term>) -> Option<Part> {
    if held_out.len() < POINTS_MIN / 2 {
        return None;
    }
    let errors: Vec<f64> = held_out.iter().map(|(found, expected)| (expected / found - 1.0).abs()).collect();
    let error = errors.iter().sum::<f64>() / errors.len() as f64;
    Some(Part { terms, error, error_max: errors.iter().copied().fold(0.0, f64::max), held_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: LoadShape =
        LoadShape { rate: Some(20_000.0), record_bytes: 1000.0, producers: 1.0, keyed: false, cores: 2.0 };

    fn space() -> Space {
        Space::new(&[Knob::BatchSize, Knob::Linger], 1).unwrap()
    }

    /// A broker that obeys the formulas: 20 µs a request, 1 ms a MB; 400 µs of service.
    fn obedient(space: &Space, point: &[usize]) -> Measured {
        let room = ((space.value(point, Knob::BatchSize) as f64 - 61.0) / 1000.0).floor().max(1.0);
        let linger = (space.value(point, Knob::Linger) as f64 / 1e3).max(100e-6);
        let per_batch = (1.0 + 20_000.0 * linger).min(room);
        let open = if 1.0 + 20_000.0 * linger <= room { linger } else { (room - 1.0) / 20_000.0 };
        let batches = 20_000.0 / per_batch;
        let cpu = batches * 0.020 + 20.0;
        Measured {
            offered_per_second: Some(20_000.0),
            records_per_second: 20_000.0,
            bytes_per_second: 2e7,
            broker_cpu_ms_per_mb: Some(cpu / 20.0),
            records_per_batch: per_batch,
            bytes_per_batch: per_batch * 1000.0 + 61.0,
            batches_per_second: batches,
            requests_per_second: batches,
            p50_us: open * 0.5 * 1e6 + 400.0 + 20.0 / batches * 1000.0,
            valid: true,
            ..Measured::default()
        }
    }

    fn samples(count: usize) -> Vec<Sample> {
        let space = space();
        let points = space.latin_hypercube(count, 4);
        points.into_iter().map(|point| Sample { measured: obedient(&space, &point), point, carried: true }).collect()
    }

    #[test]
    fn a_broker_that_obeys_is_predicted_where_it_was_not_measured() {
        let space = space();
        let (model, report) = fit(&SHAPE, &space, &samples(20));
        let (cpu, p50) = (report.cpu.clone().unwrap(), report.p50.clone().unwrap());
        assert!(cpu.error < 0.05 && p50.error < 0.12, "{} {}", cpu.error, p50.error);
        let model = model.unwrap();
        for point in space.points() {
            let (found, expected) = (obedient(&space, &point), model.predict(&space, &point, 20_000.0));
            let cpu = expected.cpu_ms_per_mb.unwrap() / found.broker_cpu_ms_per_mb.unwrap();
            assert!((0.85..1.15).contains(&cpu), "{}: {cpu}", space.words(&point));
        }
    }

    #[test]
    fn a_broker_that_sleeps_between_few_requests_is_predicted() {
        let space = space();
        let mut sleepy = samples(20);
        for sample in &mut sleepy {
            let requests = sample.measured.requests_per_second;
            let wakes = requests * (-requests * ASLEEP_AFTER_SECONDS).exp();
            sample.measured.broker_cpu_ms_per_mb = Some((requests * 0.020 + 20.0 + wakes * 0.2) / 20.0);
        }
        let cost = fit(&SHAPE, &space, &sleepy).1.cpu.unwrap();
        assert!(cost.error < 0.05, "{}", cost.error);
        let woken = cost.terms.iter().find(|term| term.name == "e").unwrap();
        assert!((woken.value - 200.0).abs() < 20.0, "{:?}", cost.terms);
    }

    #[test]
    fn what_one_load_cannot_tell_apart_is_joined_and_says_so() {
        let (_, report) = fit(&SHAPE, &space(), &samples(20));
        let terms = report.cpu.unwrap().terms;
        let names: Vec<&str> = terms.iter().map(|term| term.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(terms[1].of.contains("cannot tell them apart"));
        assert!((terms[0].value - 20.0).abs() < 1.0 && (terms[1].value - 1.0).abs() < 0.1, "{terms:?}");
    }

    #[test]
    fn nonsense_is_not_shown_and_few_points_give_no_model() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut wild = samples(20);
        for sample in &mut wild {
            sample.measured.broker_cpu_ms_per_mb = Some(0.1 + 10.0 * random.f64());
            sample.measured.p50_us = 100.0 + 1e6 * random.f64().powi(3);
        }
        let (_, report) = fit(&SHAPE, &space(), &wild);
        assert!(!report.cpu.as_ref().unwrap().is_good() && !report.p50.as_ref().unwrap().is_good());
        assert_eq!(report.remarks.len(), 2);
        let (model, report) = fit(&SHAPE, &space(), &samples(5));
        assert!(model.is_none() && report.remarks[0].contains("a model needs"));
    }

    #[test]
    fn cost_that_was_not_measured_gives_no_cost_model() {
        let mut samples = samples(20);
        samples.iter_mut().for_each(|sample| sample.measured.broker_cpu_ms_per_mb = None);
        let (_, report) = fit(&SHAPE, &space(), &samples);
        assert!(report.cpu.is_none() && report.p50.is_some());
        assert!(report.remarks[0].contains("no processor time"));
    }
}
