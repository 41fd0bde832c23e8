//! Does a log survive power loss? Random workloads are recorded write by write; every point of the recording is a crash, and
//! what each crash may leave is opened again and compared with a model.
//!
//! Most states go through the pure part of the recovery, over bytes in memory; some through `Log::open` itself, whose own
//! writes are recorded and cut again (a crash during recovery). Some workloads end because a write or a flush fails. Promises:
//! nothing below the flushed offset is lost (nothing
//! below the written offset, if only the process died); what is left is a prefix of what was appended, byte for byte; the
//! producers and epochs are those of that prefix; what recovery served survives the next crash.
//!
//! `RINGLOG_SEED=n` replays the workload of a failure; `RINGLOG_CRASH_STATES=n` asks for more than the usual number.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "log_support/disk.rs"]
mod disk;
mod log_support;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use disk::{Crash, Disk, Image, lay};
use log_support::*;
use ringlog::log::epochs::Epochs;
use ringlog::log::producers::Producers;
use ringlog::log::recovery::{Known, Next, Recovery, scan_start};
use ringlog::log::{Limits, Log, LogRuntime, LogSettings, StartFacts, checkpoint, files};
use ringlog::protocol::batch;
use ringlog::rt::file::fault::{self, Fault};
use ringlog::rt::file::record::{self, Event, Op};
use ringlog::types::*;

const STATES_DEFAULT: usize = 20_000;
/// Crash states for each point of a recording.
const STATES_PER_POINT: usize = 6;
/// One of so many states is opened by `Log::open`, and crashes again while it opens.
const OPENED_ONE_OF: usize = 150;

fn crash_settings() -> LogSettings {
    LogSettings {
        segment_bytes: 12_000,
        index_interval_bytes: 1_000,
        preallocate_bytes: 8_192,
        flush_interval: Duration::from_millis(2),
        ..settings()
    }
}

/// One batch as it must lie on disk.
struct Appended {
    base: Offset,
    last: Offset,
    bytes: Vec<u8>,
    info: batch::BatchInfo,
}

/// What one workload did.
struct History {
    dir: PathBuf,
    appended: Vec<Appended>,
    events: Vec<Event>,
    /// (events so far, limits known then), in order.
    known: Vec<(usize, Limits)>,
}

/// Appends, flushes, deletes, rolls, closes and opens again, at random, until it is enough or the disk fails.
async fn workload(dir: PathBuf, seed: u64) -> History {
    let mut random = fastrand::Rng::with_seed(seed);
    let known = Rc::new(RefCell::new(Vec::new()));
    let watch = |log: &Rc<Log>| {
        let (known, weak) = (known.clone(), Rc::downgrade(log));
        let note = move || {
            if let Some(log) = weak.upgrade() {
                known.borrow_mut().push((record::len(), log.limits()));
            }
        };
        note();
        log.on_change(note);
    };
    let mut class = crash_settings();
    class.ack_class = random.choice([AckClass::Written, AckClass::Flushed]).unwrap();
    record::start();
    let mut log = open(&dir, class.clone(), AFTER_CRASH).await;
    watch(&log);
    let mut appended: Vec<Appended> = Vec::new();
    let mut sequences = [0; 3];
    let mut leader = 0;
    let steps = random.u64(20..60);
    let faulty_from = if random.u8(0..3) == 0 { random.u64(0..steps) } else { u64::MAX };
    let mut asked = None;
    for step in 0..steps {
        if step == faulty_from {
            let fault = random.choice([Fault::Write, Fault::WriteThatArrives, Fault::Sync]).unwrap();
            asked = Some(fault::ask(fault, &dir));
        }
        let done = match random.u8(0..20) {
            0..=13 => {
                let producer = random.usize(0..4);
                let records = random.u32(1..5);
                let stamp = sequences.get_mut(producer).map(|next| {
                    *next += records as i32;
                    stamp(producer as i64, *next - records as i32)
                });
                let value_bytes = match random.u8(0..10) {
                    0..=6 => random.usize(0..300),
                    7 | 8 => random.usize(0..2500),
                    // Batches that end just before, at and after a block, so that headers straddle sectors.
                    _ => random.usize(900..1100),
                };
                let mut batch = batch(records, value_bytes, seed ^ step, NOW + step as i64, stamp);
                let info = batch::check(&batch).unwrap();
                log.append(batch.clone(), &info, epoch(leader), NOW).map(|result| {
                    batch::stamp(&mut batch, result.base_offset, epoch(leader));
                    let (base, last) = (result.base_offset, result.last_offset);
                    appended.push(Appended { base, last, bytes: batch.to_vec(), info });
                })
            }
            14 | 15 => log.flush().await.map(drop),
            16 => {
                settled(&log).await;
                Ok(())
            }
            17 => {
                let (start, end) = (log.limits().log_start.value(), log.acked_offset().value());
                log.delete_records(offset(random.i64(start..=end.max(start)))).await.map(drop)
            }
            18 => {
                let size = LogSettings { retention_bytes: Some(random.u64(0..30_000)), ..class.clone() };
                log.set_settings(size);
                let done = log.maintain(NOW, log.acked_offset()).await;
                log.set_settings(class.clone());
                done.map(drop)
            }
            _ => {
                let log_start = log.limits().log_start;
                let end = match log.clone().close().await {
                    Ok(end) => end,
                    Err(error) => {
                        assert!(struck(&asked), "{error}");
                        break;
                    }
                };
                // As whoever closes all logs does before the clean-shutdown marker is written.
                let synced = record::note(|| Op::SyncDir { path: dir.clone() });
                files::sync_all_blocking(&dir).unwrap();
                synced.finished();
                let facts = StartFacts { log_start: Some(log_start), ..after_close(end) };
                log = open(&dir, class.clone(), facts).await;
                watch(&log);
                leader += random.i32(0..2);
                log.begin_epoch(epoch(leader)).await.unwrap();
                Ok(())
            }
        };
        if let Err(error) = done {
            assert!(struck(&asked), "{error}");
            break;
        }
    }
    settled(&log).await;
    let (events, known) = (record::stop(), known.take());
    let closed = log.close().await;
    assert!(closed.is_ok() || struck(&asked), "{closed:?}");
    History { dir, appended, events, known }
}

fn struck(asked: &Option<fault::Pending>) -> bool {
    asked.as_ref().is_some_and(fault::Pending::struck)
}

/// Waits until everything appended is written or the log has ended, without an observer of its own.
async fn settled(log: &Rc<Log>) {
    while log.limits().written < log.limits().log_end && log.offline().is_none() {
        ringlog::rt::sleep(Duration::from_micros(200)).await;
    }
}

/// What a recovery made of an image.
struct Outcome {
    log_end: Offset,
    batches: Vec<Vec<u8>>,
    producers: Producers,
    epochs: Epochs,
    /// Its own cuts: to a length, or away.
    cuts: Vec<(PathBuf, Option<usize>)>,
}

/// The decisions of `Log::open` over bytes in memory.
fn recover(image: &Image, dir: &Path, facts: StartFacts) -> Result<Outcome, String> {
    let with_suffix = |suffix: &str| -> Vec<(Offset, &PathBuf, &Vec<u8>)> {
        let named = image.iter().filter_map(|(path, bytes)| {
            let digits = path.file_name()?.to_str()?.strip_suffix(suffix)?;
            Some((Offset::new(digits.parse().ok()?)?, path, bytes))
        });
        named.collect()
    };
    let (data, snapshots) = (with_suffix(".log"), with_suffix(".snapshot"));
    let bases: Vec<Offset> = data.iter().map(|file| file.0).collect();
    let snapshot_offsets: Vec<Offset> = snapshots.iter().map(|file| file.0).collect();
    let recovery_point = facts.recovery_point.unwrap_or_default();
    let (first, producers) = scan_start(&bases, &snapshot_offsets, recovery_point, |wanted| {
        let (_, _, bytes) = snapshots.iter().find(|file| file.0 == wanted)?;
        Producers::from_snapshot(bytes, NOW)
    });
    let epochs = image.get(&dir.join("orders-0/leader-epoch-checkpoint"));
    let epochs = epochs.map_or(Ok(Vec::new()), |text| checkpoint::parse_epochs(std::str::from_utf8(text).unwrap()));
    let epochs = Epochs::from_entries(epochs.map_err(|error| error.to_string())?);
    let mut recovery =
        Recovery::new(Known { recovery_point, now: NOW, index_interval_bytes: 1_000 }, producers, epochs);
    let mut batches: Vec<Vec<u8>> = Vec::new();
    let mut cuts = Vec::new();
    let refused = |corrupt| format!("refused: {corrupt:?}");
    for (number, (base, path, bytes)) in data.iter().enumerate() {
        if number < first {
            batches.extend(split(bytes));
            continue;
        }
        if recovery.begin(*base, bytes.len() as u64) == Next::Remove {
            cuts.push((path.to_path_buf(), None));
            continue;
        }
        // Fed in pieces that fall anywhere.
        for piece in bytes.chunks(1 + (number + 1) * 1_777) {
            if !recovery.feed(piece) {
                break;
            }
        }
        let recovered = recovery.end(data.get(number + 1).map(|(base, ..)| *base)).map_err(refused)?;
        let valid = &bytes[..recovered.valid_bytes as usize];
        let mut position = 0;
        for batch in split(valid) {
            let info = batch::check_stored(&batch).unwrap();
            let last = offset(info.base_offset + i64::from(info.last_offset_delta));
            assert!(recovered.index.offsets.position_of(last) as usize <= position, "the index leads past a batch");
            position += batch.len();
            batches.push(batch);
        }
        cuts.push((path.to_path_buf(), Some(valid.len())));
    }
    let (log_end, producers, epochs) = recovery.finish(facts.log_start.unwrap_or_default()).map_err(refused)?;
    Ok(Outcome { log_end, batches, producers, epochs, cuts })
}

impl History {
    /// The last limits that were known after `events` events.
    fn known_after(&self, events: usize) -> Option<Limits> {
        let after = self.known.partition_point(|(noted, _)| *noted <= events);
        after.checked_sub(1).map(|at| self.known[at].1)
    }

    /// Compares what a recovery found with what was appended and promised.
    fn check(&self, outcome: &Outcome, state: &State) -> Result<(), String> {
        let State { at_least, log_start, .. } = *state;
        if outcome.log_end < at_least {
            return Err(format!("the log ends at {}, acknowledged was {at_least}", outcome.log_end));
        }
        let first = outcome
            .batches
            .first()
            .map_or(outcome.log_end, |batch| offset(batch::parse_header(batch).unwrap().base_offset));
        if first > log_start && log_start < at_least {
            return Err(format!("the log begins at {first}, it may be read from {log_start}"));
        }
        let expected = self.appended.iter().filter(|batch| batch.base >= first && batch.last < outcome.log_end);
        if !outcome.batches.iter().eq(expected.map(|batch| &batch.bytes)) {
            return Err("the batches are not those that were appended".to_owned());
        }
        if outcome.cuts.is_empty() {
            // Without any file it ends where the checkpoint says it starts; what was there was not flushed.
            return Ok(());
        }
        let (mut producers, mut epochs) = (Producers::default(), Epochs::default());
        for batch in self.appended.iter().filter(|batch| batch.last < outcome.log_end) {
            producers.replay(&batch.info, batch.base, NOW);
            let leader = batch::parse_header(&batch.bytes).unwrap().leader_epoch;
            epochs.assign(LeaderEpoch::new(leader).unwrap(), batch.base);
        }
        if outcome.producers != producers {
            return Err(format!("producers are {:?}\nreplayed they are {producers:?}", outcome.producers));
        }
        // Epochs below the log start are forgotten with the first flush after it moved.
        let mut found = outcome.epochs.clone();
        for epochs in [&mut found, &mut epochs] {
            epochs.truncate_start(first.max(log_start));
            epochs.truncate_end(outcome.log_end);
        }
        if found != epochs {
            return Err(format!("epochs are {found:?}, replayed they are {epochs:?}"));
        }
        Ok(())
    }
}

/// A crash state and what is promised of it.
struct State {
    crash: Crash,
    image: Image,
    facts: StartFacts,
    /// Below it nothing may be lost.
    at_least: Offset,
    /// As it was known to the log that crashed.
    log_start: Offset,
}

fn state(history: &History, disk: &Disk, events: usize, random: &mut fastrand::Rng) -> State {
    let known = history.known_after(events);
    let none = Limits { log_start: offset(0), flushed: offset(0), written: offset(0), log_end: offset(0) };
    let now = known.unwrap_or(none);
    // The checkpoint is older than the log, or missing.
    let then = history.known_after(random.usize(0..=events)).unwrap_or(none);
    let recovery_point = match random.u8(0..4) {
        0 => None,
        1 => Some(then.flushed),
        _ => Some(now.flushed),
    };
    let log_start = random.choice([None, Some(then.log_start), Some(now.log_start)]).unwrap();
    let crash = if random.u8(0..3) == 0 { Crash::Kill } else { Crash::PowerLoss };
    let at_least = if crash == Crash::Kill { now.written } else { now.flushed };
    let facts = StartFacts { recovery_point, log_start, ..AFTER_CRASH };
    State { crash, image: disk.crash(crash, random), facts, at_least, log_start: now.log_start }
}

/// A crash in the middle of a recovery: some of its cuts are done. The next recovery must end where this one would have.
fn crash_again(history: &History, state: &State, outcome: &Outcome, random: &mut fastrand::Rng) -> Result<(), String> {
    let mut image = state.image.clone();
    for (path, cut) in outcome.cuts.iter().take(random.usize(0..=outcome.cuts.len())) {
        match cut {
            Some(len) => image.get_mut(path).unwrap().truncate(*len),
            None => drop(image.remove(path)),
        }
    }
    let again = recover(&image, &history.dir, state.facts)?;
    if (again.log_end, &again.batches) != (outcome.log_end, &outcome.batches) {
        return Err(format!("recovered again the log ends at {}, not {}", again.log_end, outcome.log_end));
    }
    Ok(())
}

/// Opens the state with the real thing, on files; crashes while it opens and after; goes on with what is there.
async fn open_for_real(history: &History, state: &State, dir: &Path, random: &mut fastrand::Rng) -> Result<(), String> {
    lay(&state.image, &history.dir, dir);
    std::fs::create_dir_all(dir.join("orders-0")).unwrap();
    let here: Image = state
        .image
        .iter()
        .map(|(path, bytes)| (dir.join(path.strip_prefix(&history.dir).unwrap()), bytes.clone()))
        .collect();
    record::start();
    let opened = Log::open(place(dir), crash_settings(), state.facts, &LogRuntime::new(1 << 20, 8 << 20)).await;
    let events = record::stop();
    let (log, report) = opened.map_err(|error| error.to_string())?;
    let pure = recover(&state.image, &history.dir, state.facts)?;
    let limits = log.limits();
    let log_end = pure.log_end.max(state.facts.log_start.unwrap_or_default());
    if limits != (Limits { log_start: limits.log_start, flushed: log_end, written: log_end, log_end }) {
        return Err(format!("opened {limits:?}, recovered {}", pure.log_end));
    }
    let expected: Vec<_> = pure
        .batches
        .iter()
        .filter(|batch| {
            let info = batch::parse_header(batch).unwrap();
            info.base_offset + i64::from(info.last_offset_delta) >= limits.log_start.value()
        })
        .cloned()
        .collect();
    if limits.log_start < limits.log_end && read_all(&log, limits.log_start, 3_000).await != expected {
        return Err("reads differ from what was recovered".to_owned());
    }

    // Power loss at every point of the opening, and right after it.
    let mut disk = Disk::of(&here);
    for (number, event) in events.iter().enumerate() {
        let again = recover(&disk.crash(Crash::PowerLoss, random), dir, state.facts)?;
        history.check(&again, state).map_err(|error| format!("cut at {number} of the opening: {error}"))?;
        disk.on(event);
    }
    let served = recover(&disk.crash(Crash::PowerLoss, random), dir, state.facts)?;
    if served.log_end.max(state.facts.log_start.unwrap_or_default()) < limits.log_end {
        return Err(format!("{report:?} served up to {}, then power loss left {}", limits.log_end, served.log_end));
    }

    // The log goes on: a resent batch is known, a new one follows, a clean end is found again.
    let resent = history.appended.iter().rfind(|batch| batch.last < pure.log_end && batch.info.producer.is_some());
    if let Some(resent) = resent.filter(|_| !pure.cuts.is_empty()) {
        let again = log
            .append(resent.bytes.as_slice().into(), &resent.info, epoch(9), NOW)
            .map_err(|error| error.to_string())?;
        if !again.duplicate || again.base_offset != resent.base {
            return Err(format!("resent {} was taken as {again:?}", resent.base));
        }
    }
    append_in(&log, batch(1, 50, 0, NOW, None), epoch(9)).unwrap();
    let before = read_all(&log, log.limits().log_start, 3_000).await;
    let log_start = log.limits().log_start;
    let end = log.close().await.unwrap();
    let facts = StartFacts { log_start: Some(log_start), ..after_close(end) };
    let (log, report) = try_open(dir, crash_settings(), facts).await.map_err(|error| error.to_string())?;
    if report.bytes_scanned > 0 || read_all(&log, log_start, 3_000).await != before {
        return Err(format!("after a clean end: {report:?}"));
    }
    log.close().await.unwrap();
    Ok(())
}

/// An event without the bytes.
fn short(event: &Event) -> String {
    match event {
        Event::Started(number, Op::Write { file, position, bytes }) => {
            format!("Started({number}, Write {{ file: {file}, position: {position}, len: {} }})", bytes.len())
        }
        Event::Started(number, Op::WriteWhole { path, .. }) => format!("Started({number}, WriteWhole {path:?})"),
        event => format!("{event:?}"),
    }
}

#[test]
fn what_was_flushed_survives_every_crash() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let replayed = number("RINGLOG_SEED");
    let wanted = number("RINGLOG_CRASH_STATES").map_or(STATES_DEFAULT, |states| states as usize);
    let first_seed = replayed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let dir = fast_dir();
    let path = dir.path().to_owned();
    let (states, opened) = on_shard(dir.path(), move || async move {
        let (mut states, mut opened) = (0, 0);
        for seed in first_seed.. {
            let history = workload(path.join(format!("run-{seed}")), seed).await;
            let mut random = fastrand::Rng::with_seed(seed);
            let mut disk = Disk::default();
            for events in 0..=history.events.len() {
                for _ in 0..STATES_PER_POINT {
                    let state = state(&history, &disk, events, &mut random);
                    let result = recover(&state.image, &history.dir, state.facts).and_then(|outcome| {
                        history.check(&outcome, &state)?;
                        crash_again(&history, &state, &outcome, &mut random)
                    });
                    let mut failure = result.err();
                    if states % OPENED_ONE_OF == 0 && failure.is_none() {
                        let place = path.join(format!("state-{seed}-{states}"));
                        failure = open_for_real(&history, &state, &place, &mut random).await.err();
                        std::fs::remove_dir_all(&place).unwrap();
                        opened += 1;
                    }
                    if let Some(failure) = failure {
                        let lengths: Vec<_> =
                            state.image.iter().map(|(path, bytes)| (path.file_name(), bytes.len())).collect();
                        let (crash, facts) = (state.crash, state.facts);
                        let last = &history.events[..events].iter().rev().take(12).rev().map(short).collect::<Vec<_>>();
                        panic!(
                            "RINGLOG_SEED={seed}, {crash:?} after {events} events: {failure}\n{facts:?}\n{lengths:?}\n{last:#?}"
                        );
                    }
                    states += 1;
                }
                ringlog::rt::yield_if_needed().await;
                if let Some(event) = history.events.get(events) {
                    disk.on(event);
                }
            }
            std::fs::remove_dir_all(&history.dir).unwrap();
            if replayed.is_some() || states >= wanted {
                break;
            }
        }
        (states, opened)
    });
    println!("RINGLOG_SEED={first_seed}: {states} crash states, {opened} of them opened from files and crashed again");
}
