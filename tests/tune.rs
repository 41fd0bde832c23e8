//! The tuner before a simulated broker whose truth is known: it finds what a full grid would find in a quarter of the time, it
//! says when a knob does not matter, it notices when the host drifts, and an interrupted search ends where a whole one does.

use std::time::Duration;

use ringlog::tune::advice::Verdict;
use ringlog::tune::effects::{Matters, effects};
use ringlog::tune::goal::{Goal, Target};
use ringlog::tune::grid::{Grid, GridPlan};
use ringlog::tune::html::Page;
use ringlog::tune::journal::{self, Journal};
use ringlog::tune::load::{Asked, Load};
use ringlog::tune::model::{self, LoadShape, Sample};
use ringlog::tune::report::{Answer, GridAnswer};
use ringlog::tune::run::{self, Course};
use ringlog::tune::search::{End, Plan, Purpose, Search};
use ringlog::tune::space::{Knob, Point, Space};
use ringlog::tune::trial::{Facts, Measured, Trial, TrialError};

/// Beside measuring, a trial warms up and connects.
const OVERHEAD: Duration = Duration::from_millis(1500);
/// Of one cell of the full grid.
const CELL: Duration = Duration::from_secs(15);

/// A broker and a load whose numbers follow formulas, and a clock that only trials move.
struct Simulated {
    space: Space,
    /// Records per second; `None` is as fast as it goes.
    rate: Option<f64>,
    /// Bytes of a record.
    size: f64,
    /// Processor µs per request, ms per MB, µs per record.
    cost: (f64, f64, f64),
    cores: f64,
    /// Noise of one second, as a share.
    noise: f64,
    /// Factor on latency and cost at a time.
    drift: fn(f64) -> f64,
    random: fastrand::Rng,
    now: Duration,
}

impl Simulated {
    fn new(space: Space, rate: Option<f64>, seed: u64) -> Self {
        Self {
            space,
            rate,
            size: 1000.0,
            cost: (40.0, 0.9, 0.4),
            cores: 1.0,
            noise: 0.10,
            drift: |_| 1.0,
            random: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
        }
    }

    /// Without noise and drift.
    fn truth(&self, point: &[usize]) -> Measured {
        let value = |knob| self.space.value(point, knob);
        let (ratio, codec_us) =
            [(1.0, 0.0), (1.9, 0.5), (2.6, 1.6), (1.8, 0.6), (2.5, 6.0)][value(Knob::Compression) as usize];
        let wire = self.size / ratio + 8.0;
        let room = ((value(Knob::BatchSize) as f64 - 61.0) / wire).floor().max(1.0);
        let linger = (value(Knob::Linger) as f64 / 1e3).max(60e-6);
        let per_mb = self.cost.1 * (0.4 + 0.6 / ratio);
        let at = |rate: f64| {
            let per_batch = (1.0 + rate * linger).min(room);
            let open = if 1.0 + rate * linger <= room { linger } else { (room - 1.0) / rate };
            let requests = rate / per_batch;
            let busy_ms = requests * self.cost.0 / 1e3 + rate * self.size / 1e6 * per_mb + rate * self.cost.2 / 1e3;
            (per_batch, open, requests, busy_ms, busy_ms / 1e3 / self.cores)
        };
        // The client can send a million records a second; its codec takes from that.
        let client_most = 1e6 / (1.0 + codec_us);
        let carried = match self.rate {
            Some(rate) if at(rate).4 < 0.98 => rate.min(client_most),
            wanted => {
                let (mut low, mut high) = (1.0, wanted.unwrap_or(client_most).min(client_most));
                for _ in 0..60 {
                    let middle = (low + high) / 2.0;
                    if at(middle).4 < 0.98 { low = middle } else { high = middle }
                }
                low
            }
        };
        let overloaded = self.rate.is_some_and(|rate| carried < rate * 0.99);
        let (per_batch, open, requests, busy_ms, busy) = at(carried);
        let megabytes = carried * self.size / 1e6;
        let queue = busy / (1.0 - busy.min(0.98));
        let service = 350.0 + 1500.0 * megabytes / requests;
        let backlog = if overloaded { 2e6 } else { 0.0 };
        let followers = (carried * open).max(0.0);
        let wait = open * 1e6 * (0.5 / (followers / (1.0 + followers)).max(0.5)).min(1.0);
        Measured {
            offered_per_second: self.rate,
            records_per_second: carried,
            bytes_per_second: carried * self.size,
            p50_us: wait + service + 150.0 * queue + backlog,
            p90_us: 0.9 * open * 1e6 + 1.6 * service + 400.0 * queue + backlog,
            p99_us: open * 1e6 + 3.0 * service + 900.0 * queue + backlog,
            p999_us: open * 1e6 + 6.0 * service + 2000.0 * queue + backlog,
            max_us: open * 1e6 + 9.0 * service + 4000.0 * queue + backlog,
            mean_us: wait + service + 200.0 * queue + backlog,
            broker_cpu_ms_per_mb: Some(busy_ms / megabytes),
            requests_per_second: requests,
            batches_per_second: requests,
            records_per_batch: per_batch,
            bytes_per_batch: per_batch * wire + 61.0,
            fill: (per_batch * wire / value(Knob::BatchSize) as f64).min(1.0),
            linger_expired_share: Some(if per_batch < room { 1.0 } else { 0.0 }),
            compression_ratio: Some(ratio),
            valid: true,
            ..Measured::default()
        }
    }
}

impl Trial for Simulated {
    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Measured, TrialError> {
        let mut measured = self.truth(point);
        let seconds = duration.as_secs_f64();
        let drift = (self.drift)(self.now.as_secs_f64());
        let mut shake = |share: f64| {
            let normal: f64 = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
            (normal * share / seconds.sqrt()).exp()
        };
        let whole = shake(self.noise) * drift;
        measured.p50_us *= whole * shake(self.noise / 4.0);
        measured.p90_us *= whole;
        measured.p99_us *= whole * shake(self.noise);
        measured.p999_us *= whole * shake(self.noise * 2.0);
        measured.broker_cpu_ms_per_mb = measured.broker_cpu_ms_per_mb.map(|cpu| cpu * drift * shake(self.noise / 4.0));
        if self.rate.is_none() {
            let speed = shake(self.noise / 3.0) / drift;
            measured.records_per_second *= speed;
            measured.bytes_per_second *= speed;
        }
        measured.seconds = seconds;
        self.now += duration + OVERHEAD;
        Ok(measured)
    }

    fn elapsed(&self) -> Duration {
        self.now
    }
}

fn plane() -> Space {
    Space::new(&[Knob::BatchSize, Knob::Linger], 1).expect("two knobs")
}

fn plan(space: Space, target: Target, slo: &str, budget: Duration, seed: u64) -> Plan {
    Plan { space, goal: Goal { target, slo: slo.parse().unwrap_or_default() }, budget, seed, overhead: OVERHEAD }
}

/// Another trait object that gives up after so many trials, as Ctrl-C does.
struct Impatient<'a>(&'a mut Simulated, usize);

impl Trial for Impatient<'_> {
    fn measure(&mut self, point: &Point, duration: Duration) -> Result<Measured, TrialError> {
        self.1 = self.1.checked_sub(1).ok_or(TrialError::Interrupted)?;
        self.0.measure(point, duration)
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn searched(plan: Plan, broker: &mut Simulated) -> (Search, End) {
    let mut course = Course::Search(Box::new(Search::new(plan).expect("the budget is enough")));
    let ended = run::run(&mut course, broker, None, true, &mut |_| {}).expect("there is no journal to fail");
    let Course::Search(search) = course else { unreachable!("it was a search") };
    (*search, ended.end)
}

fn asked(plan: &Plan, load: Load) -> Asked {
    Asked {
        mode: "tune".to_owned(),
        bootstrap: "simulated:9092".to_owned(),
        load,
        connection: Default::default(),
        target: plan.goal.target.name().to_owned(),
        slo: plan.goal.slo.to_string(),
        space: plan.space.to_string(),
        budget_seconds: plan.budget.as_secs(),
        warmup_seconds: 1,
        seed: plan.seed,
    }
}

fn load(rate: &str) -> Load {
    Load { rate: rate.to_owned(), size: "1000".to_owned(), partitions: 1, ..Load::default() }
}

fn facts() -> Facts {
    Facts { software: "kafka".to_owned(), broker_cost_known: true, cores: 1, ..Facts::default() }
}

fn answer(search: &Search, end: End, load: Load) -> Answer {
    let asked = asked(search.plan(), load);
    Answer::of(search, end, &asked, &facts(), "2026-01-01T00:00:00Z").expect("something was measured")
}

/// The share of the full grid's best that the pick reaches, both without noise; and the share of the grid's time it took.
fn against_the_grid(target: Target, slo: &str, rate: Option<f64>, seed: u64) -> (f64, f64, String) {
    let grid = Space::grid();
    let goal = Goal { target, slo: slo.parse().unwrap_or_default() };
    let cells = Simulated::new(grid.clone(), rate, 0);
    let best = grid
        .points()
        .map(|point| cells.truth(&point))
        .max_by(|a, b| goal.standing(a).compare(&goal.standing(b)))
        .expect("the grid has cells");
    let grid_time = (CELL + OVERHEAD) * grid.len() as u32;

    let mut broker = Simulated::new(plane(), rate, seed);
    let (search, _) = searched(plan(plane(), target, slo, grid_time / 4, seed), &mut broker);
    let pick = search.pick().expect("something was measured");
    let found = broker.truth(&pick);
    let share = if goal.standing(&found).is_feasible() {
        (goal.standing(&found).value - goal.standing(&best).value).exp()
    } else {
        0.0
    };
    let words = format!(
        "{target} {slo} at {rate:?}, seed {seed}: {} after {} trials",
        plane().words(&pick),
        search.records().len()
    );
    (share, broker.now.as_secs_f64() / grid_time.as_secs_f64(), words)
}

#[test]
fn the_grids_best_is_found_in_a_quarter_of_its_time() {
    let goals = [
        (Target::Latency, "", Some(5_000.0)),
        (Target::Latency, "", Some(20_000.0)),
        (Target::Latency, "p99<=100ms", Some(100_000.0)),
        (Target::Cost, "p99<=17ms", Some(5_000.0)),
        (Target::Cost, "p99<=20ms", Some(20_000.0)),
        (Target::Cost, "", Some(50_000.0)),
        (Target::Throughput, "", None),
        (Target::Throughput, "p99<=60ms", None),
    ];
    let mut shares = Vec::new();
    for (target, slo, rate) in goals {
        for seed in 1..=8 {
            let (share, time, words) = against_the_grid(target, slo, rate, seed);
            println!("{:5.1} % of the best in {:4.1} % of the time: {words}", share * 100.0, time * 100.0);
            assert!(time <= 0.255, "{words}: {time}");
            shares.push(share);
        }
    }
    shares.sort_by(f64::total_cmp);
    let reached = shares.iter().filter(|share| **share >= 0.95).count();
    println!("{reached} of {} reach 95 %; the worst is {:.3}", shares.len(), shares[0]);
    assert!(reached * 20 >= shares.len() * 19 && shares[0] > 0.8, "{reached} of {}: {shares:?}", shares.len());
}

#[test]
fn a_broker_that_obeys_the_model_is_predicted_within_a_tenth() {
    for (rate, seed) in [(5_000.0, 1), (20_000.0, 2), (60_000.0, 3)] {
        let broker = Simulated::new(plane(), Some(rate), seed);
        let shape = LoadShape { rate: Some(rate), record_bytes: 1000.0, producers: 1.0, keyed: false, cores: 1.0 };
        let points = plane().latin_hypercube(22, seed).into_iter();
        let samples: Vec<Sample> = points
            .map(|point| {
                let mut noisy = Simulated {
                    space: plane(),
                    random: fastrand::Rng::with_seed(seed + point[0] as u64),
                    ..Simulated::new(plane(), Some(rate), seed)
                };
                let measured = noisy.measure(&point, Duration::from_secs(5)).expect("a simulated broker does not fail");
                Sample { carried: measured.records_per_second > rate * 0.98, measured, point }
            })
            .collect();
        let (model, report) = model::fit(&shape, &plane(), &samples);
        let (model, cpu, p50) =
            (model.expect("enough points"), report.cpu.expect("cost"), report.p50.expect("latency"));
        println!("at {rate}: held-out error {:.1} % of CPU, {:.1} % of p50", cpu.error * 100.0, p50.error * 100.0);
        assert!(cpu.error <= 0.10 && p50.error <= 0.10, "at {rate}: {} {}", cpu.error, p50.error);
        // And against the truth, where nothing was measured.
        let held: Vec<(f64, f64)> = plane()
            .points()
            .filter(|point| samples.iter().all(|sample| sample.point != *point))
            .filter(|point| broker.truth(point).records_per_second > rate * 0.98)
            .map(|point| {
                let (found, expected) = (broker.truth(&point), model.predict(&plane(), &point, rate));
                let off =
                    |found: f64, expected: Option<f64>| (expected.expect("both parts were fitted") / found - 1.0).abs();
                (
                    off(found.broker_cpu_ms_per_mb.expect("cost"), expected.cpu_ms_per_mb),
                    off(found.p50_us, expected.p50_us),
                )
            })
            .collect();
        let mean = |pick: fn(&(f64, f64)) -> f64| held.iter().map(pick).sum::<f64>() / held.len() as f64;
        assert!(
            mean(|off| off.0) <= 0.10 && mean(|off| off.1) <= 0.10,
            "at {rate}: {} {}",
            mean(|off| off.0),
            mean(|off| off.1)
        );
    }
}

#[test]
fn a_knob_that_does_not_matter_is_said_not_to() {
    // The simulated broker has no use for requests in flight; linger matters a great deal.
    let space = Space::new(&[Knob::BatchSize, Knob::Linger, Knob::InFlight], 1).expect("three knobs");
    let mut right = 0;
    for seed in 1..=6 {
        let mut broker = Simulated::new(space.clone(), Some(5_000.0), seed);
        let plan = plan(space.clone(), Target::Latency, "", Duration::from_secs(900), seed);
        let (search, _) = searched(plan, &mut broker);
        let effects = effects(&search);
        let of = |knob| effects.iter().find(|effect| effect.knob == knob).expect("every knob has an effect");
        println!("seed {seed}: linger {:?}, in flight {:?}", of(Knob::Linger), of(Knob::InFlight));
        assert_eq!(of(Knob::Linger).matters, Matters::Yes, "seed {seed}");
        assert_ne!(of(Knob::InFlight).matters, Matters::Yes, "seed {seed}");
        right += u32::from(of(Knob::InFlight).matters == Matters::No);
    }
    assert!(right >= 4, "{right} of 6");
}

#[test]
fn the_gain_is_stated_with_an_interval_that_holds_the_truth() {
    let mut held = 0;
    for seed in 1..=10 {
        let mut broker = Simulated::new(plane(), Some(5_000.0), seed);
        let (search, end) = searched(plan(plane(), Target::Latency, "", Duration::from_secs(300), seed), &mut broker);
        let answer = answer(&search, end, load("5k"));
        let gain = answer.advice.gain.expect("the default is not the best here");
        let (pick, default) = (broker.truth(&answer.advice.pick), broker.truth(&plane().default_point()));
        let truth = pick.p99_us / default.p99_us;
        assert!(gain.shown && answer.advice.verdict == Verdict::Change, "seed {seed}: {}", answer.advice.headline);
        held += u32::from(gain.ratio.low * 0.97 <= truth && truth <= gain.ratio.high * 1.03);
    }
    assert!(held >= 8, "{held} of 10 intervals hold the truth");
}

#[test]
fn where_nothing_is_to_be_gained_the_defaults_are_kept() {
    // At this rate and goal every setting carries the load alike.
    let space = Space::new(&[Knob::InFlight], 1).expect("one knob");
    for seed in 1..=5 {
        let mut broker = Simulated::new(space.clone(), Some(5_000.0), seed);
        let (search, end) =
            searched(plan(space.clone(), Target::Latency, "", Duration::from_secs(400), seed), &mut broker);
        let answer = answer(&search, end, load("5k"));
        assert_eq!(answer.advice.verdict, Verdict::KeepDefaults, "seed {seed}: {}", answer.advice.headline);
        assert_eq!(answer.recommended.point, space.default_point());
    }
}

#[test]
fn an_slo_nothing_can_hold_is_said_and_nothing_is_recommended() {
    let mut broker = Simulated::new(plane(), Some(5_000.0), 1);
    let plan = plan(plane(), Target::Cost, "p99<=500us", Duration::from_secs(200), 1);
    let (search, end) = searched(plan, &mut broker);
    let answer = answer(&search, end, load("5k"));
    assert_eq!(answer.advice.verdict, Verdict::NothingHolds);
    assert!(answer.advice.headline.contains("p99<=500us"), "{}", answer.advice.headline);
    assert!(!answer.text(&plane(), &search.plan().goal).contains("librdkafka"));
}

#[test]
fn drift_is_noticed_and_does_not_decide() {
    let mut good = 0;
    for seed in 1..=8 {
        let quiet = Simulated::new(plane(), Some(5_000.0), seed);
        let mut drifting =
            Simulated { drift: |at| if at > 60.0 { 1.6 } else { 1.0 }, ..Simulated::new(plane(), Some(5_000.0), seed) };
        let (search, end) = searched(plan(plane(), Target::Latency, "", Duration::from_secs(300), seed), &mut drifting);
        let shown = search.drift().shown();
        println!(
            "seed {seed}: drift {shown:?} over {} checks, pick {}",
            search.drift().checks(),
            plane().words(&search.pick().expect("a pick"))
        );
        assert!(shown.is_some_and(|drift| (0.3..1.0).contains(&drift)), "seed {seed}: {shown:?}");
        let answer = answer(&search, end, load("5k"));
        assert!(answer.advice.sentences.iter().any(|sentence| sentence.contains("drifted")), "seed {seed}");
        let best = plane().points().map(|point| quiet.truth(&point).p99_us).fold(f64::INFINITY, f64::min);
        good += u32::from(best / quiet.truth(&answer.advice.pick).p99_us >= 0.95);
    }
    assert!(good >= 7, "{good} of 8 picks are good all the same");
}

#[test]
fn an_interrupted_search_ends_where_a_whole_one_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let plan = || plan(plane(), Target::Cost, "p99<=20ms", Duration::from_secs(200), 7);
    let question = asked(&plan(), load("20k"));
    let course = || Course::Search(Box::new(Search::new(plan()).expect("the budget is enough")));
    let broker = || Simulated::new(plane(), Some(20_000.0), 7);

    let whole_path = dir.path().join("whole.jsonl");
    let (mut whole, mut undisturbed) = (course(), broker());
    let mut journal = Journal::create(&whole_path, &question, "").expect("a new file");
    run::run(&mut whole, &mut undisturbed, Some(&mut journal), true, &mut |_| {}).expect("the journal can be written");

    // The same broker, interrupted twice; its clock and its noise go on as they would have.
    let path = dir.path().join("pieces.jsonl");
    let mut broker = broker();
    Journal::create(&path, &question, "").expect("a new file");
    let mut last = None;
    for patience in [9, 17, usize::MAX] {
        let (mut journal, kept) = Journal::resume(&path, &question).expect("the same question");
        let mut course = course();
        run::replay(&mut course, kept.records).expect("the same program");
        let ended = run::run(&mut course, &mut Impatient(&mut broker, patience), Some(&mut journal), true, &mut |_| {});
        last = Some((course, ended.expect("the journal can be written").end));
    }
    let (pieces, end) = last.expect("three pieces");
    assert_ne!(end, End::Interrupted);
    assert_eq!(whole.records(), pieces.records());
    assert_eq!(journal::read(&whole_path).expect("written").records, journal::read(&path).expect("written").records);
    let (Course::Search(whole), Course::Search(pieces)) = (whole, pieces) else { unreachable!("both were searches") };
    assert_eq!(whole.pick(), pieces.pick());

    // What an interrupted one says is no more than it knows.
    let records = journal::read(&path).expect("written").records;
    let mut early = course();
    run::replay(&mut early, records[..12].to_vec()).expect("the same program");
    let Course::Search(mut early) = early else { unreachable!("it was a search") };
    early.interrupt();
    let said = answer(&early, End::Interrupted, load("20k")).advice;
    assert!(said.headline.contains("for now") || said.recommended == plane().default_point(), "{}", said.headline);
    assert!(said.sentences[0].contains("--resume"), "{:?}", said.sentences);

    // A finished search answers again without a trial.
    let mut again = course();
    run::replay(&mut again, pieces.records().to_vec()).expect("the same program");
    let ended = run::run(&mut again, &mut Impatient(&mut broker, 0), None, true, &mut |_| {}).expect("no journal");
    let Course::Search(again) = again else { unreachable!("it was a search") };
    assert!(ended.end != End::Interrupted && again.pick() == whole.pick());

    // Another program's journal is not gone on with.
    let mut foreign = pieces.records().to_vec();
    foreign[3].order.point = vec![0, 0];
    assert!(run::replay(&mut course(), foreign).expect_err("not its trials").contains("another version"));
}

#[test]
fn the_grid_judges_a_search_in_pairs() {
    let goal = Goal { target: Target::Latency, slo: "p99<=1s".parse().expect("a limit") };
    let mut broker = Simulated::new(plane(), Some(5_000.0), 3);
    let plan = GridPlan { space: plane(), goal: goal.clone(), cell: CELL, seed: 3, judged: Some(vec![5, 0]) };
    let mut course = Course::Grid(Box::new(Grid::new(plan)));
    let ended = run::run(&mut course, &mut broker, None, true, &mut |_| {}).expect("no journal");
    let Course::Grid(grid) = course else { unreachable!("it was a grid") };
    let question =
        Asked { mode: "grid".to_owned(), ..asked(&self::plan(plane(), Target::Latency, "", CELL, 3), load("5k")) };
    let answer =
        GridAnswer::of(&grid, ended.end, &question, &facts(), "", Some(Duration::from_secs(150))).expect("measured");
    assert_eq!(answer.cells.len(), 42);
    let judged = answer.judged.as_ref().expect("a search was judged");
    assert!((0.9..1.1).contains(&judged.share_of_best.expect("in pairs")) && judged.share_of_time < 0.25);
    let text = answer.text(&plane(), &goal);
    assert!(text.contains("of the grid's time") && text.contains("Kafka's default"), "{text}");
    let page =
        Page { space: &plane(), goal: &goal, drift: grid.drift(), command: "ringlog tune --grid" }.of_grid(&answer);
    check_page(&page, &["map-latency", "map-cost", "settings", "drift"]);
}

/// Tags close in order, nothing is fetched, and the figures are there.
fn check_page(page: &str, figures: &[&str]) {
    let mut open = Vec::new();
    let body = &page[page.find("<body>").expect("a body")..];
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag is closed");
        if let Some(name) = tag.strip_prefix('/') {
            let top = open.pop();
            assert!(top.as_deref() == Some(name) || name == "html", "</{name}> closes {top:?}");
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().expect("a name").to_owned());
        }
    }
    for figure in figures {
        assert!(page.contains(&format!("id=\"{figure}\"")), "{figure} is missing");
    }
    for foreign in ["<script", "src=", "https://"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(!page.contains("NaN"));
}

#[test]
fn the_answer_is_a_page_a_text_and_json() {
    let space = Space::new(&[Knob::BatchSize, Knob::Linger, Knob::Compression], 1).expect("three knobs");
    let mut broker = Simulated::new(space.clone(), Some(20_000.0), 5);
    let plan = plan(space.clone(), Target::Cost, "p99<=20ms", Duration::from_secs(600), 5);
    let (search, end) = searched(plan, &mut broker);
    let answer = answer(&search, end, load("20k"));
    let goal = &search.plan().goal;
    let page = Page { space: &space, goal, drift: search.drift(), command: "ringlog tune <&>" }.of(&answer);
    check_page(
        &page,
        &[
            "map-latency",
            "map-cost",
            "map-fill",
            "front",
            "effects",
            "model",
            "drift",
            "settings",
            "held-fixed",
            "paste",
        ],
    );
    assert!(page.contains("class=\"pick\"") && page.contains("class=\"default\"") && page.contains("&lt;&amp;&gt;"));
    let text = answer.text(&space, goal);
    for part in [
        "Set batch.size=",
        "Kafka's default",
        "recommended",
        "compression.type matters",
        "Java:",
        "librdkafka:",
        "franz-go:",
        "Held fixed:",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let json = serde_json::to_value(&answer).expect("all of it can be written");
    assert_eq!(json["schema_version"], 1);
    assert!(
        json["advice"]["gain"]["ratio"]["low"].is_number()
            && json["points"].as_array().is_some_and(|all| all.len() > 20)
    );
    assert!(search.records().iter().any(|record| record.order.purpose == Purpose::Front));
    if let Some(path) = std::env::var_os("RINGLOG_TUNE_PAGE") {
        std::fs::write(path, page).expect("the page can be written");
    }
    println!("{text}");
}
