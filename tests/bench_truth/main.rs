//! Does the load generator tell the truth? Against brokers whose delays, stalls and lies are known.
//!
//! What must hold to the microsecond is shown in simulated time, with the same schedule and recorder. What needs sockets is
//! shown by lower bounds and proportions, which a busy machine cannot break.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_types, reason = "the fake broker's threads share what they were sent")]

mod fake;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fake::{FakeBroker, Lie, Script, TOPIC};
use ringlog::bench::load;
use ringlog::bench::plan::{Kind, Plan, TopicPlan, Verify};
use ringlog::bench::recorder::{Collector, Recorder, decode, percentiles};
use ringlog::bench::report::{Percentiles, Run};
use ringlog::bench::schedule::{Arrival, Rate, Schedule};
use ringlog::bench::target::BenchError;
use ringlog::bench::watch::{Cancel, Progress};
use ringlog::protocol::ErrorCode;

const SECOND: u64 = 1_000_000;

fn measured(recorder: Recorder, seconds: u64) -> Percentiles {
    let mut collector = Collector::default();
    recorder.finish().iter().for_each(|(index, interval)| collector.add(*index, interval));
    percentiles(&collector.totals(0, seconds, u64::MAX).latencies.response).unwrap()
}

/// A broker that answers after `service`, but nothing within the stall; requests do not wait for each other.
fn answered_at(sent: u64, service: u64, stall: std::ops::Range<u64>) -> u64 {
    let at = sent + service;
    if stall.contains(&at) || (sent < stall.start && at > stall.end) { stall.end.max(at) } else { at }
}

#[test]
fn percentiles_of_known_delays_are_right_within_the_histograms_precision() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut schedule = Schedule::new(Rate::Fixed(10_000.0), Arrival::Poisson, 1, 0, 0, seed).unwrap();
    let (mut recorder, mut delays) = (Recorder::default(), Vec::new());
    for _ in 0..200_000 {
        let at = schedule.next_at();
        schedule.advance();
        // Mostly quick, with a long tail.
        let delay = 200 + (random.f64().powi(20) * 2e6) as u64;
        delays.push(delay);
        recorder.on_sent(at, at, at, 1);
        recorder.on_acked(at + delay, at, at, 1, 100);
    }
    delays.sort_unstable();
    let read = measured(recorder, 1000);
    for (value, quantile) in
        [(read.p50, 0.5), (read.p90, 0.9), (read.p99, 0.99), (read.p999, 0.999), (read.p9999, 0.9999)]
    {
        let truth = delays[(quantile * delays.len() as f64) as usize - 1] as f64;
        let next = delays[((quantile * delays.len() as f64) as usize).min(delays.len() - 1)] as f64;
        assert!(
            value as f64 >= truth * 0.999 && value as f64 <= next * 1.001 + 1.0,
            "{quantile}: {value}, truth {truth}"
        );
    }
    assert!((read.max as f64 / delays[delays.len() - 1] as f64 - 1.0).abs() < 0.001);
}

#[test]
fn a_stall_of_a_second_shows_in_open_loop_and_hides_in_closed_loop() {
    // Ten seconds, 1,000 records a second, a service time of 1 ms, and one second in which nothing is answered.
    let stall = 5 * SECOND..6 * SECOND;
    let mut schedule = Schedule::new(Rate::Fixed(1000.0), Arrival::Uniform, 1, 0, 0, 1).unwrap();
    let mut open = Recorder::default();
    while schedule.next_at() < 10 * SECOND {
        let at = schedule.next_at();
        schedule.advance();
        open.on_acked(answered_at(at, 1000, stall.clone()), at, at, 1, 100);
    }
    let open = measured(open, 11);

    let (mut closed, mut now) = (Recorder::default(), 0);
    while now < 10 * SECOND {
        let answered = answered_at(now, 1000, stall.clone());
        closed.on_acked(answered, now, now, 1, 100);
        now = answered;
    }
    let closed = measured(closed, 11);

    // A tenth of all records met the stall; a twentieth waited more than half of it.
    assert!(open.p95 >= 490_000 && open.p99 >= 890_000, "{open:?}");
    // The closed loop sent nothing while it waited: one record in nine thousand met it.
    assert!(closed.p99 <= 1001 && closed.p999 <= 1001 && closed.max >= 999_000, "{closed:?}");
}

fn plan(broker: &FakeBroker) -> Plan {
    Plan {
        bootstrap: broker.address.to_string(),
        topic: TopicPlan::Named(TOPIC.to_owned()),
        duration: Duration::from_secs(2),
        warmup: Duration::ZERO,
        until_steady: false,
        ceilings: false,
        linger: Duration::ZERO,
        ..Plan::default()
    }
}

fn measure(plan: &Plan) -> Run {
    load::run(plan, &Cancel::default(), &mut |_| {}).unwrap()
}

#[test]
fn a_run_reports_the_delays_of_its_broker_and_proves_that_nothing_was_lost() {
    let broker = FakeBroker::start(Script { delay: Duration::from_millis(30), partitions: 3, ..Script::default() });
    let run = measure(&Plan { rate: Rate::Fixed(200.0), arrival: Arrival::Uniform, ..plan(&broker) });
    let response = run.results.response_us.as_ref().unwrap();
    let service = run.results.service_us.as_ref().unwrap();
    assert!(response.p50 >= 30_000 && service.p50 >= 30_000, "{response:?}");
    // Each part is no larger than the whole.
    assert!(service.p50 <= response.p50 && service.max <= response.max);
    assert!(run.results.records > 200 && run.results.offered_per_second == Some(200.0), "{:?}", run.results.records);
    assert_eq!(run.ack_class, "memory");
    assert!(run.verification.enabled && run.verification.is_clean(), "{:?}", run.verification);
    assert!(run.verification.checked >= run.results.records);
    assert_eq!(percentiles(&decode(&run.histograms["response_us"]).unwrap()).as_ref(), Some(response));
    assert!(Run::from_json(&run.to_json()).is_ok());
}

#[test]
fn a_stalled_broker_is_charged_in_open_loop_only() {
    let script = Script { stall: Some((Duration::from_millis(700), Duration::from_secs(1))), ..Script::default() };
    let broker = FakeBroker::start(script);
    let open = measure(&Plan {
        rate: Rate::Fixed(500.0),
        arrival: Arrival::Uniform,
        duration: Duration::from_secs(3),
        ..plan(&broker)
    });
    let open = open.results.response_us.unwrap();
    // A third of the records met the stall, so a sixth of them waited half a second and more.
    assert!(open.p90 >= 500_000 && open.max >= 900_000, "{open:?}");

    let broker = FakeBroker::start(script);
    let closed = measure(&Plan { outstanding: Some(1), duration: Duration::from_secs(3), ..plan(&broker) });
    let closed = closed.results.response_us.unwrap();
    // One record met it. The proportion of those that did not is what the closed loop gets wrong.
    assert!(closed.max >= 900_000 && closed.p90 < 450_000, "{closed:?}");
    assert!(closed.p90 < open.p90 / 2);
}

#[test]
fn a_stall_that_outlasts_the_run_is_charged_for_every_record_that_was_due() {
    // The client's buffer is full soon after the stall begins: most records are never sent.
    let script = Script { stall: Some((Duration::from_millis(200), Duration::from_secs(2))), ..Script::default() };
    let stalled = |broker: &FakeBroker| Plan {
        rate: Rate::Fixed(5000.0),
        arrival: Arrival::Uniform,
        duration: Duration::from_millis(1200),
        settings: vec![("buffer.memory".to_owned(), "65536".to_owned())],
        ..plan(broker)
    };
    let broker = FakeBroker::start(script);
    let run = measure(&stalled(&broker));
    let response = run.results.response_us.as_ref().unwrap();
    assert!((5900..=6010).contains(&response.count), "{response:?}");
    assert!(response.p50 >= 300_000 && run.results.unsent > 4000, "{:?}", run.results);
    assert!(run.verdict.reasons.iter().any(|why| why.contains("could not be sent")), "{:?}", run.verdict);

    let broker = FakeBroker::start(script);
    let run = measure(&Plan { kind: Kind::EndToEnd, ..stalled(&broker) });
    // All that was acknowledged was read, though most of it long after the stop.
    let end_to_end = run.results.end_to_end_us.as_ref().unwrap();
    assert!(run.verification.is_clean() && end_to_end.max > 1_500_000, "{end_to_end:?}");
    assert_eq!(end_to_end.count, run.verification.checked, "{:?}", run.verdict);
}

#[test]
fn every_lie_about_acknowledged_records_is_caught() {
    for lie in [Lie::None, Lie::Drop, Lie::Duplicate, Lie::Swap, Lie::Alter] {
        let broker = FakeBroker::start(Script { lie, ..Script::default() });
        let run = measure(&Plan { records: Some(200), duration: Duration::from_secs(30), ..plan(&broker) });
        let found = &run.verification;
        assert!(found.enabled && found.checked == 200, "{lie:?}: {found:?}");
        let counts = (found.lost, found.duplicated, found.reordered, found.corrupt);
        let expected = match lie {
            Lie::None => (0, 0, 0, 0),
            Lie::Drop => (1, 0, 0, 0),
            Lie::Duplicate => (0, 1, 0, 0),
            Lie::Swap => (0, 0, 1, 0),
            Lie::Alter => (0, 0, 0, 1),
            Lie::Format | Lie::HangUp | Lie::Moved => unreachable!("they have tests of their own"),
        };
        assert_eq!(counts, expected, "{lie:?}: {found:?}");
        assert_eq!(run.verdict.lossy, lie != Lie::None);
        assert_eq!(run.verdict.valid, lie == Lie::None, "{:?}", run.verdict);
    }
}

#[test]
fn what_a_producer_without_idempotence_sends_again_is_told_and_blames_nobody() {
    let broker = FakeBroker::start(Script { lie: Lie::HangUp, ..Script::default() });
    let plan =
        Plan { idempotence: Some(false), records: Some(200), duration: Duration::from_secs(30), ..plan(&broker) };
    let run = measure(&plan);
    let found = &run.verification;
    assert!(found.at_least_once && found.duplicated > 0 && found.checked == 200, "{found:?}");
    assert!(run.verdict.valid && !run.verdict.lossy, "{:?}", run.verdict);
    assert!(run.verdict.reasons.iter().any(|why| why.starts_with("At least once")), "{:?}", run.verdict);
}

#[test]
fn a_leader_that_moves_while_records_are_read_back_is_followed() {
    let broker = FakeBroker::start(Script { lie: Lie::Moved, ..Script::default() });
    let run = measure(&Plan { records: Some(200), duration: Duration::from_secs(30), ..plan(&broker) });
    let found = &run.verification;
    assert!(found.enabled && found.is_clean() && found.checked == 200, "{found:?}");
    assert!(run.verdict.valid, "{:?}", run.verdict);
}

#[test]
fn a_partition_that_cannot_be_read_back_has_lost_its_records() {
    let broker = FakeBroker::start(Script { lie: Lie::Format, ..Script::default() });
    let run = measure(&Plan { records: Some(200), duration: Duration::from_secs(30), ..plan(&broker) });
    let found = &run.verification;
    assert!(found.enabled && run.verdict.lossy && !run.verdict.valid, "{found:?}");
    assert!(found.corrupt == 1 && found.lost >= 199, "{found:?}");
    let expected = "partition 0 cannot be read from offset 0 on: message format 6; only 2 is served";
    assert!(found.sentence().contains(expected), "{}", found.sentence());
}

#[test]
fn refused_records_are_errors_by_name_and_the_run_is_not_valid() {
    let broker = FakeBroker::start(Script { error: ErrorCode::TOPIC_AUTHORIZATION_FAILED, ..Script::default() });
    let run = measure(&Plan { rate: Rate::Fixed(100.0), ..plan(&broker) });
    assert_eq!(run.results.records, 0);
    assert!(run.results.errors > 0 && !run.verdict.valid);
    assert!(
        run.results.errors_by_code.keys().any(|name| name.contains("29") || name.contains("TOPIC_AUTHORIZATION")),
        "{:?}",
        run.results.errors_by_code
    );
}

#[test]
fn end_to_end_latency_runs_from_the_intended_send_to_the_consumers_hands() {
    let broker = FakeBroker::start(Script { delay: Duration::from_millis(5), ..Script::default() });
    let run = measure(&Plan { kind: Kind::EndToEnd, rate: Rate::Fixed(100.0), ..plan(&broker) });
    let end_to_end = run.results.end_to_end_us.as_ref().unwrap();
    assert!(end_to_end.count > 50 && end_to_end.min > 0, "{end_to_end:?}");
    assert!(run.results.consumed > 50 && run.verification.is_clean());
}

#[test]
fn batches_built_once_are_counted_record_by_record() {
    let broker = FakeBroker::start(Script { partitions: 2, delay: Duration::from_millis(1), ..Script::default() });
    let run = measure(&Plan { prebuilt: true, duration: Duration::from_secs(1), ..plan(&broker) });
    let batches = run.results.batches.as_ref().unwrap();
    assert_eq!(batches.records_per_batch, 15.0);
    assert!(run.results.records > 15 && run.results.records.is_multiple_of(15), "{}", run.results.records);
    assert!(!run.verification.enabled && run.verification.note.is_some());
}

#[test]
fn what_lies_in_a_topic_is_read_to_where_it_ended() {
    let broker = FakeBroker::start(Script { partitions: 2, ..Script::default() });
    let written = measure(&Plan { records: Some(500), duration: Duration::from_secs(30), ..plan(&broker) });
    assert_eq!(written.results.records, 500);
    let read = measure(&Plan { kind: Kind::Consume, duration: Duration::from_secs(30), ..plan(&broker) });
    assert_eq!(read.results.consumed, 500);
    assert!(read.verdict.valid && read.results.seconds < 30.0, "{:?}", read.verdict);
}

#[test]
fn idle_connections_and_storms_are_measured() {
    let broker = FakeBroker::start(Script::default());
    let idle = measure(&Plan {
        kind: Kind::Idle,
        connections: 20,
        rate: Rate::Fixed(100.0),
        verify: Verify::Off,
        ..plan(&broker)
    });
    assert!(idle.results.response_us.as_ref().unwrap().count > 50);
    let storm = measure(&Plan {
        kind: Kind::ConnectStorm,
        connections: 4,
        duration: Duration::from_secs(1),
        verify: Verify::Off,
        ..plan(&broker)
    });
    assert!(storm.results.requests_per_second.unwrap() > 10.0 && storm.verdict.valid);
}

#[test]
fn a_run_that_is_called_off_reports_what_it_measured() {
    let broker = FakeBroker::start(Script::default());
    let cancel = Cancel::default();
    let plan = Plan { rate: Rate::Fixed(200.0), duration: Duration::from_secs(600), ..plan(&broker) };
    let run = load::run(&plan, &cancel, &mut |progress| {
        if let Progress::Second { t: 1.., .. } = progress {
            cancel.cancel();
        }
    })
    .unwrap();
    assert!(run.verdict.interrupted && run.results.records > 100 && run.results.seconds < 100.0);
    assert!(run.verification.is_clean() && run.verification.enabled);
}

#[test]
fn a_run_that_ends_within_a_second_counts_to_its_end() {
    // Four requests at a time, of one record each, and each takes 400 ms: at most four records in each 400 ms.
    let delay = Duration::from_millis(400);
    let broker = FakeBroker::start(Script { delay, ..Script::default() });
    let slow = Plan { batch_size: 1, in_flight: 4, outstanding: Some(4), verify: Verify::Off, ..plan(&broker) };
    let possible = |run: &Run| 4 * (run.results.seconds / delay.as_secs_f64()) as u64;

    let run = measure(&Plan { duration: Duration::from_millis(1500), ..slow.clone() });
    assert_eq!((run.results.seconds, possible(&run)), (1.5, 12));
    assert!((1..=12).contains(&run.results.records), "{:?}", run.results);

    // The answers to what was under way come within the same second.
    let cancel = Cancel::default();
    let run = load::run(&Plan { duration: Duration::from_secs(600), ..slow }, &cancel, &mut |progress| {
        if let Progress::Second { t: 0, .. } = progress {
            cancel.cancel();
        }
    })
    .unwrap();
    assert!(run.verdict.interrupted && run.results.seconds > 1.0, "{:?}", run.results);
    assert!((1..=possible(&run)).contains(&run.results.records), "{:?}", run.results);
}

/// The binary against a fake broker.
fn bench(broker: &FakeBroker, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.args(["bench", "produce", "-t", TOPIC, "-b", &broker.address.to_string(), "-o", "json", "--no-ceilings"]);
    command.args(["--warmup", "0s", "--no-steady", "--verify", "off"]).args(words.split_whitespace());
    command.env_remove("RINGLOG_BROKERS").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Lets it run until so many lines on standard error have begun with `mark`, then presses Ctrl-C: exit code and report.
fn called_off(mut command: Command, mark: &str, count: usize) -> (Option<i32>, Run) {
    let mut child = command.spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    told.by_ref().filter(|line| line.starts_with(mark)).nth(count - 1).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // It must not wait for whoever reads what it says.
    told.for_each(drop);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), Run::from_json(std::str::from_utf8(&output.stdout).unwrap()).unwrap())
}

#[test]
fn ctrl_c_is_told_by_the_exit_code_and_what_was_measured_is_reported() {
    let broker = FakeBroker::start(Script::default());
    let (code, run) = called_off(bench(&broker, "--rate 200 --duration 600s"), "measuring ", 1);
    assert_eq!(code, Some(130));
    assert!(run.verdict.interrupted && run.results.records > 0 && run.results.seconds < 100.0, "{:?}", run.results);
    let (code, run) = called_off(bench(&broker, "--slo p99<=10s --duration 1s --in-flight 4"), "trying ", 2);
    assert_eq!(code, Some(130));
    assert_eq!(run.search.len(), 1, "the second trial was not made to its end");
    assert!(run.verdict.interrupted, "{:?}", run.verdict);
    assert!(run.verdict.reasons[0].starts_with("The search was interrupted"), "{:?}", run.verdict);
}

#[test]
fn a_search_called_off_before_its_first_trial_has_nothing_to_report() {
    let broker = FakeBroker::start(Script::default());
    let cancel = Cancel::default();
    cancel.cancel();
    let plan = Plan { slo: "p99<=10ms".parse().ok(), ..plan(&broker) };
    assert!(matches!(load::run(&plan, &cancel, &mut |_| {}), Err(BenchError::Interrupted)));
}

#[test]
fn no_rate_that_holds_is_a_verdict_with_all_its_steps() {
    // Every record takes twenty times the limit.
    let broker = FakeBroker::start(Script { delay: Duration::from_millis(20), ..Script::default() });
    let output = bench(&broker, "--slo p99<=1ms --duration 250ms").output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{err}");
    assert!(err.contains("error: No rate was sustained; at the lowest one tried: "), "{err}");
    let run = Run::from_json(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
    assert!(run.search.len() > 2 && run.search.iter().all(|step| !step.sustained), "{:?}", run.search);
    assert!(!run.verdict.valid && !run.verdict.interrupted, "{:?}", run.verdict);
}

#[test]
fn nobody_there_is_an_error_that_names_the_address() {
    // A port that was free a moment ago; nobody else is told of it.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = Plan { bootstrap: address.to_string(), ceilings: false, ..Plan::default() };
    let error = load::run(&plan, &Cancel::default(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[test]
fn the_largest_rate_is_found_by_trials() {
    // Four requests at a time, each 20 ms, each of one record: about two hundred a second.
    let broker = FakeBroker::start(Script { delay: Duration::from_millis(20), ..Script::default() });
    let plan = Plan {
        slo: "p99<=400ms".parse().ok(),
        batch_size: 1,
        in_flight: 4,
        duration: Duration::from_secs(1),
        verify: Verify::Off,
        ..plan(&broker)
    };
    let run = measure(&plan);
    assert!(run.search.len() > 2 && run.search.iter().any(|step| !step.sustained), "{:?}", run.search);
    let best = run.search.iter().filter(|step| step.sustained).map(|step| step.rate).fold(0.0, f64::max);
    assert!(best > 20.0 && best < 1000.0, "{best}");
}
