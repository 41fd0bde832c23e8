//! Leads a comparison: starts both, warms both, measures pair after pair, ends both.
//!
//! Shell; blocking. Owns the order of these steps. Does not own a turn (`turn`), the brokers (`side`) or what follows from the
//! numbers (`assemble`, `verdict`). Always true: nothing is measured before both targets were warmed by the base load and by an
//! unmeasured round of every workload; what was measured is in the journal before the next turn begins; whatever ends a
//! comparison early, a report of what there is comes out of it, and every broker that was started is ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::assemble::{Known, cell_report, recorded_turns};
use super::brokers::usable_cores;
use super::journal::{Existing, Header, Journal, Line};
use super::metric::Metric;
use super::order::{self, Stage, Task};
use super::presets::{self, BASE, Cell, Pacing, Preset, Shape};
use super::repeat;
use super::report::{Comparison, Measurement, SCHEMA_VERSION};
use super::side::{Side, Starting};
use super::soak;
use super::targets::{Source, Target, list};
use super::turn::Turn;
use super::verdict;
use crate::bench::plan::Plan;
use crate::bench::report::Tool;
use crate::bench::watch::{Cancel, Progress};
use crate::bench::{ceilings, host, units};

/// A target that fails so often in a row in one cell is not tried there again.
const FAILURES_MAX: usize = 2;
/// Bytes per second the fastest target may write; what a turn may need on disk follows from it.
const WRITE_BYTES_PER_SECOND: u64 = 700_000_000;
/// What brokers need beside that: preallocated segments, a JVM's log, the topic that is just being deleted.
const ROOM_BYTES: u64 = 3 << 30;

/// Which cores brokers and generator run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All of them run wherever the kernel puts them.
    Shared,
    /// Brokers on some cores, the generator on others.
    Pinned {
        /// Of brokers.
        brokers: Vec<usize>,
        /// Of the generator.
        client: Vec<usize>,
    },
}

impl Layout {
    /// Half of the usable cores for brokers, the rest for the generator. Errors: there is only one.
    pub fn halves() -> Result<Self, String> {
        let cores = usable_cores();
        if cores.len() < 2 {
            return Err("--layout pinned needs two cores, and this process may use one".to_owned());
        }
        let (brokers, client) = cores.split_at(cores.len() / 2);
        Ok(Self::Pinned { brokers: brokers.to_vec(), client: client.to_vec() })
    }

    /// `shared` or `pinned`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Pinned { .. } => "pinned",
        }
    }

    /// In words, for the report.
    pub fn words(&self) -> String {
        match self {
            Self::Shared => "shared: brokers and generator on all cores".to_owned(),
            Self::Pinned { brokers, client } => {
                format!("pinned: brokers on cores {}, generator on cores {}", list(brokers), list(client))
            }
        }
    }

    fn broker_cores(&self) -> &[usize] {
        match self {
            Self::Shared => &[],
            Self::Pinned { brokers, .. } => brokers,
        }
    }

    fn client_cores(&self) -> &[usize] {
        match self {
            Self::Shared => &[],
            Self::Pinned { client, .. } => client,
        }
    }

    /// Generator threads: as many as it has cores of its own, or half of those it shares.
    fn threads(&self) -> u32 {
        let cores = match self {
            Self::Shared => usable_cores().len() / 2,
            Self::Pinned { client, .. } => client.len(),
        };
        u32::try_from(cores.clamp(1, 16)).unwrap_or(1)
    }
}

/// Everything a comparison is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The first is told of, the second is what it is held against.
    pub targets: [Target; 2],
    /// Which workloads.
    pub preset: Preset,
    /// Only these of them; empty for all.
    pub workloads: Vec<String>,
    /// How long and how often.
    pub pacing: Pacing,
    /// One after the other.
    pub layouts: Vec<Layout>,
    /// Of the order.
    pub seed: u64,
    /// Brokers get fresh directories in it.
    pub directory: PathBuf,
    /// Whether those stay.
    pub keep: bool,
    /// What was measured, line by line.
    pub journal: PathBuf,
    /// What becomes of one that is there.
    pub existing: Existing,
    /// Where Kafka lies.
    pub kafka_home: Option<PathBuf>,
    /// This program, to start Ringlog.
    pub program: PathBuf,
    /// To do it again.
    pub command: String,
}

/// What happens meanwhile.
#[derive(Clone, Debug)]
pub enum Event {
    /// A step begins.
    Step(String),
    /// A turn begins: how many were taken of how many, and which.
    Turn {
        /// Turns taken.
        done: usize,
        /// Turns in all.
        of: usize,
        /// Which is next.
        what: String,
    },
    /// A turn ended.
    Taken(String),
    /// Within a turn.
    Progress(Progress),
}

/// What came out of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, of as much as was measured.
    pub comparison: Comparison,
    /// Why it ended early, when it did and nobody asked for it.
    pub failure: Option<String>,
}

/// About how long it takes.
pub fn estimate(settings: &Settings) -> Result<std::time::Duration, String> {
    Ok(presets::estimate(&chosen(settings)?.0, &settings.pacing, settings.layouts.len()))
}

/// The cells to be measured, and what is said of those that cannot be.
fn chosen(settings: &Settings) -> Result<(Vec<Cell>, Vec<String>), String> {
    let all = presets::cells(settings.preset, &settings.pacing, settings.seed);
    let mut cells = presets::only(all, &settings.workloads)?;
    let mut notes = presets::not_covered(settings.preset, &settings.pacing);
    let running: Vec<&str> = settings
        .targets
        .iter()
        .filter(|target| matches!(target.source, Source::Running { .. }))
        .map(|target| target.name.as_str())
        .collect();
    if !running.is_empty() {
        let (restarting, rest): (Vec<Cell>, Vec<Cell>) =
            cells.into_iter().partition(|cell| cell.shape.stage() == Stage::Restarts);
        if !restarting.is_empty() {
            let keys: Vec<&str> = restarting.iter().map(|cell| cell.key.as_str()).collect();
            notes.push(format!(
                "{}: {} was running already and is not stopped or killed.",
                keys.join(", "),
                running.join(" and ")
            ));
        }
        cells = rest;
        if let Some(soak) = cells.iter().find(|cell| cell.shape == Shape::Soak) {
            notes.push(format!(
                "{}: {} was running already, and looks for segments to delete as often as its log.retention.check.interval.ms says.",
                soak.key,
                running.join(" and ")
            ));
        }
        let pinned = settings.layouts.iter().any(|layout| matches!(layout, Layout::Pinned { .. }));
        if pinned {
            notes.push(format!(
                "{} was running already and keeps the cores it has; only the generator is pinned.",
                running.join(" and ")
            ));
        }
    }
    if cells.is_empty() {
        return Err("nothing is left to compare: the workloads chosen stop or kill a broker that was not started here"
            .to_owned());
    }
    Ok((cells, notes))
}

/// Compares. Errors: why it could not begin. Must not be called within an async runtime.
pub fn run(settings: &Settings, cancel: &Cancel, watcher: &mut dyn FnMut(Event)) -> Result<Outcome, String> {
    let (cells, not_covered) = chosen(settings)?;
    let directory = Directory::make(&settings.directory, settings)?;
    let mut software = Vec::with_capacity(settings.targets.len());
    for target in &settings.targets {
        let mut say = |what: String| watcher(Event::Step(what));
        software.push(Side::software(target, &settings.program, settings.kafka_home.as_deref(), &mut say)?);
    }
    let header = Header {
        started_at: now(),
        seed: settings.seed,
        pairs: settings.pacing.pairs,
        preset: settings.preset.name().to_owned(),
        targets: settings.targets.iter().map(Target::to_argument).collect(),
        software,
        directory: std::path::absolute(&settings.directory)
            .map_or_else(|_| String::new(), |path| path.display().to_string()),
        threads: settings.layouts.iter().map(Layout::threads).collect(),
        layouts: settings.layouts.iter().map(|layout| layout.name().to_owned()).collect(),
        cells: cells.iter().map(|cell| format!("{}: {}", cell.key, cell.load)).collect(),
        seconds: settings.pacing.duration.as_secs_f64(),
        ..Header::default()
    };
    let journal = Journal::open(&settings.journal, header, settings.existing)?;
    let stages: Vec<(Stage, u32)> = cells.iter().map(|cell| (cell.shape.stage(), cell.pairs)).collect();
    let tasks = order::tasks(settings.seed, settings.layouts.len(), &stages);
    let mut leader = Leader {
        settings,
        cells: &cells,
        directory: &directory.path,
        cancel,
        watcher,
        journal,
        facts: Vec::new(),
        recorded_rates: BTreeMap::new(),
        taken: 0,
        of: 0,
        notes: Vec::new(),
    };
    let failure = leader.lead(&tasks).err().filter(|_| !cancel.is_cancelled());
    if leader.facts.is_empty() {
        // Nothing was even begun: then why is the answer, and a journal without a turn is no journal.
        leader.journal.discard_empty();
        return Err(failure.unwrap_or_else(|| "interrupted before anything was measured".to_owned()));
    }
    let comparison = leader.conclude(&tasks, not_covered, failure.as_deref());
    Ok(Outcome { comparison, failure })
}

/// `2026-11-30T02:45:44Z`
fn now() -> String {
    jiff::Timestamp::try_from(SystemTime::now())
        .map_or_else(|_| String::new(), |time| time.round(jiff::Unit::Second).unwrap_or(time).to_string())
}

/// A directory of the comparison's own, removed with everything in it unless it is to stay.
struct Directory {
    path: PathBuf,
    keep: bool,
}

impl Directory {
    fn make(parent: &Path, settings: &Settings) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("--dir {}: {error}", parent.display());
        std::fs::create_dir_all(parent).map_err(|error| failed(&error))?;
        let path = parent.join(format!("ringlog-compare-{}-{:04x}", std::process::id(), fastrand::u16(..)));
        std::fs::create_dir(&path).map_err(|error| failed(&error))?;
        let made = Self { path, keep: settings.keep };
        if settings.targets.iter().any(Target::is_started) {
            let space = rustix::fs::statvfs(&made.path).map_err(|error| failed(&error))?;
            let (free, needed) = (space.f_bavail * space.f_frsize, needed(&settings.pacing));
            if free < needed {
                return Err(failed(&format!(
                    "{} are free, and a turn may need {}; give a --dir with more room",
                    units::bytes(free as f64),
                    units::bytes(needed as f64)
                )));
            }
        }
        Ok(made)
    }
}

/// Disk space a comparison may need at once.
fn needed(pacing: &Pacing) -> u64 {
    let turn = WRITE_BYTES_PER_SECOND * (pacing.duration + pacing.warmup).as_secs().max(1);
    let soak = pacing.soak.map_or(0.0, |length| soak::disk_bytes(length, WRITE_BYTES_PER_SECOND as f64));
    turn.max(soak as u64) + ROOM_BYTES
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.keep {
            // Brokers have removed theirs; what cannot be removed is left to whoever made it so.
            _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

struct Leader<'a> {
    settings: &'a Settings,
    cells: &'a [Cell],
    directory: &'a Path,
    cancel: &'a Cancel,
    watcher: &'a mut dyn FnMut(Event),
    journal: Journal,
    /// Of both targets, once they were reached.
    facts: Vec<super::report::TargetFacts>,
    /// What recorded targets were offered, by layout and cell.
    recorded_rates: BTreeMap<(usize, String), f64>,
    taken: usize,
    of: usize,
    notes: Vec<String>,
}

/// Why the leading ended early; a cancelled one has no more to say.
type Ended = Result<(), String>;

impl Leader<'_> {
    fn say(&mut self, what: String) {
        (self.watcher)(Event::Step(what));
    }

    fn lead(&mut self, tasks: &[Task]) -> Ended {
        let keys: Vec<&str> = self.cells.iter().map(|cell| cell.key.as_str()).collect();
        let left = order::left(tasks, &self.journal.done(&keys));
        let settings = self.settings;
        for (number, layout) in settings.layouts.iter().enumerate() {
            let of_layout: Vec<Task> = left.iter().filter(|task| task.layout == number).copied().collect();
            if of_layout.is_empty() {
                if self.facts.is_empty() && left.is_empty() {
                    self.say("everything was measured before; only the report is written".to_owned());
                    self.open(layout).map(drop)?;
                }
                continue;
            }
            let mut sides = self.open(layout)?;
            self.ceilings()?;
            self.warm(&mut sides, layout, number, &of_layout)?;
            self.measure(&mut sides, layout, number, &of_layout)?;
            for side in sides {
                self.say(format!("ending {}", side.facts.name));
                drop(side);
            }
        }
        self.journal.add(Line::Done {})
    }

    fn open(&mut self, layout: &Layout) -> Result<[Side; 2], String> {
        let starting = Starting {
            directory: self.directory,
            cores: layout.broker_cores(),
            keep: self.settings.keep,
            program: &self.settings.program,
            kafka_home: self.settings.kafka_home.as_deref(),
            settings: Side::broker_settings()
                .into_iter()
                .chain(self.settings.pacing.soak.into_iter().flat_map(soak::broker_settings))
                .collect(),
        };
        let watcher = &mut *self.watcher;
        let mut say = |what: String| watcher(Event::Step(what));
        let first = Side::open(0, &self.settings.targets[0], &starting, &mut say)?;
        let second = Side::open(1, &self.settings.targets[1], &starting, &mut say)?;
        if self.facts.is_empty() {
            self.facts = vec![first.facts.clone(), second.facts.clone()];
        }
        for side in [&first, &second] {
            let Some((recorded, place)) = &side.recorded else { continue };
            for (number, layout) in self.settings.layouts.iter().enumerate() {
                for cell in self.cells {
                    let (_, offered) = recorded_turns(recorded, *place, cell, layout.name(), side.index);
                    self.recorded_rates.extend(offered.map(|rate| ((number, cell.key.clone()), rate)));
                }
            }
        }
        Ok([first, second])
    }

    fn ceilings(&mut self) -> Ended {
        self.say("measuring what this host can do".to_owned());
        let found = ceilings::measure(self.directory);
        self.journal.add(Line::Ceilings(found))
    }

    /// The base load on each target, alternating, then every workload once; nothing of it is measured, but the maximum of the
    /// base load is remembered, and records are read back.
    fn warm(&mut self, sides: &mut [Side; 2], layout: &Layout, number: usize, tasks: &[Task]) -> Ended {
        let base = presets::cells(Preset::Quick, &self.settings.pacing, self.settings.seed);
        let kinds: Vec<&Cell> =
            [BASE, "W4"].iter().filter_map(|key| base.iter().find(|cell| cell.key == *key)).collect();
        let mut maxima = [Vec::new(), Vec::new()];
        for side in sides.iter_mut().filter(|side| side.is_measured()) {
            self.say(format!("warming up {} for {}", side.facts.name, units::duration(self.settings.pacing.warm)));
            let began = Instant::now();
            let (mut round, mut failures) = (0, 0);
            while began.elapsed() < self.settings.pacing.warm || maxima[side.index].is_empty() {
                self.go_on()?;
                let cell = kinds[round % kinds.len()];
                match self.turn(side, cell, None, layout, false) {
                    Ok(one) if cell.key == BASE => maxima[side.index].extend(one.number(Metric::Records.key())),
                    Ok(_) => {}
                    Err(error) => {
                        failures += 1;
                        let told = format!("{} under {}: {error}", side.facts.name, cell.key);
                        if failures > FAILURES_MAX {
                            return Err(told);
                        }
                        self.say(told);
                    }
                }
                round += 1;
            }
            self.add_warmth(side.index, began);
        }
        // The last rounds count: the first ones were those of a cold JVM.
        let largest = maxima.map(|rates| rates.iter().rev().take(3).copied().fold(0.0, f64::max));
        if self.journal.maximum(number).is_none() {
            self.journal.add(Line::Maximum { layout: number, records_per_second: largest })?;
        }
        let cells = self.cells;
        let unmeasured: Vec<&Cell> = cells
            .iter()
            .enumerate()
            .filter(|(place, cell)| cell.shape.stage() == Stage::Rounds && tasks.iter().any(|task| task.cell == *place))
            .map(|(_, cell)| cell)
            .collect();
        self.say(format!("one unmeasured round of {} workloads, read back", unmeasured.len()));
        for cell in unmeasured {
            for side in sides.iter_mut().filter(|side| side.is_measured()) {
                self.go_on()?;
                let began = Instant::now();
                let rate = self.rate(cell, number);
                match self.turn(side, cell, rate, layout, true) {
                    Ok(one) if !one.lossy.is_empty() => {
                        let line = Line::Lossy { cell: cell.key.clone(), target: side.index, why: one.lossy };
                        self.journal.add(line)?;
                    }
                    Ok(_) => {}
                    // When it is measured nothing is read back: what kept it from being proved is told now.
                    Err(error) => {
                        let told = format!("{} under {}: {error}", side.facts.name, cell.key);
                        self.notes
                            .push(format!("The unmeasured round, in which records are read back, failed: {told}"));
                        self.say(told);
                    }
                }
                self.add_warmth(side.index, began);
            }
        }
        Ok(())
    }

    fn add_warmth(&mut self, target: usize, began: Instant) {
        if let Some(facts) = self.facts.get_mut(target) {
            facts.warm_seconds += began.elapsed().as_secs_f64();
        }
    }

    fn measure(&mut self, sides: &mut [Side; 2], layout: &Layout, number: usize, tasks: &[Task]) -> Ended {
        let measured = sides.iter().filter(|side| side.is_measured()).count();
        self.of = tasks.len() * measured;
        self.taken = 0;
        let mut failures = vec![[0usize; 2]; self.cells.len()];
        let mut round = tasks.first().map(|task| task.pair);
        let cells = self.cells;
        for task in tasks {
            if round != Some(task.pair) {
                round = Some(task.pair);
                self.ceilings()?;
            }
            let cell = &cells[task.cell];
            for (position, target) in [task.first, 1 - task.first].into_iter().enumerate() {
                self.go_on()?;
                let side = &mut sides[target];
                if !side.is_measured() {
                    self.add_recorded(side, cell, layout, number, task)?;
                    continue;
                }
                let what = format!(
                    "pair {} of {}: {} under {} ({})",
                    task.pair + 1,
                    cell.pairs,
                    side.facts.name,
                    cell.key,
                    cell.name
                );
                (self.watcher)(Event::Turn { done: self.taken, of: self.of, what });
                let rate = self.rate(cell, number);
                let ended = if failures[task.cell][target] >= FAILURES_MAX {
                    Err("not tried again after it failed twice in a row".to_owned())
                } else {
                    self.turn(side, cell, rate, layout, false)
                };
                self.go_on()?;
                let mut measurement = ended.unwrap_or_else(|error| Measurement { error, ..Measurement::default() });
                (measurement.pair, measurement.target, measurement.first) = (task.pair, target, position == 0);
                failures[task.cell][target] =
                    if measurement.error.is_empty() { 0 } else { failures[task.cell][target] + 1 };
                self.taken += 1;
                (self.watcher)(Event::Taken(taken_line(&sides[target], cell, &measurement)));
                self.journal.add(Line::Turn {
                    layout: number,
                    cell: cell.key.clone(),
                    measurement: Box::new(measurement),
                })?;
                self.revive(&mut sides[target])?;
            }
        }
        self.ceilings()
    }

    /// A broker that died is started again, once it is known and noted.
    fn revive(&mut self, side: &mut Side) -> Ended {
        let Some(broker) = side.broker.as_mut() else { return Ok(()) };
        let Some(obituary) = broker.obituary() else { return Ok(()) };
        let note = format!("{} died while it was measured: {obituary}", side.facts.name);
        broker.stop();
        broker.launch()?;
        broker.until_listening()?;
        self.say(format!("{note}; it was started again"));
        self.notes.push(note);
        Ok(())
    }

    fn add_recorded(&mut self, side: &Side, cell: &Cell, layout: &Layout, number: usize, task: &Task) -> Ended {
        let Some((recorded, place)) = &side.recorded else { return Ok(()) };
        let (turns, _) = recorded_turns(recorded, *place, cell, layout.name(), side.index);
        let found = turns.into_iter().find(|one| one.pair == task.pair);
        let absent = || Measurement {
            error: "the recorded comparison has no such turn, of as many seconds".to_owned(),
            ..Measurement::default()
        };
        let measurement = Measurement { pair: task.pair, target: side.index, ..found.unwrap_or_else(absent) };
        self.journal.add(Line::Turn { layout: number, cell: cell.key.clone(), measurement: Box::new(measurement) })
    }

    fn turn(
        &mut self,
        side: &mut Side,
        cell: &Cell,
        rate: Option<f64>,
        layout: &Layout,
        verify: bool,
    ) -> Result<Measurement, String> {
        if cell.share.is_some() && rate.is_none() {
            return Err("its rate is a share of a maximum that is not known".to_owned());
        }
        let turn = Turn {
            cell,
            rate,
            cores: layout.client_cores(),
            threads: layout.threads(),
            verify,
            tag: format!("{}-{:08x}", cell.key.replace(['@', '%'], "-").to_ascii_lowercase(), fastrand::u32(..)),
            cancel: self.cancel,
        };
        let watcher = &mut *self.watcher;
        turn.take(side, &mut |progress| watcher(Event::Progress(progress)))
    }

    /// Records per second of a cell that offers a share of the slower target's maximum. What a recorded target was offered
    /// then, the other one is offered now.
    fn rate(&self, cell: &Cell, layout: usize) -> Option<f64> {
        let share = cell.share?;
        if let Some(offered) = self.recorded_rates.get(&(layout, cell.key.clone())) {
            return Some(*offered);
        }
        let maximum = self.journal.maximum(layout)?;
        let slower = maximum.into_iter().filter(|rate| *rate > 0.0).fold(f64::INFINITY, f64::min);
        slower.is_finite().then(|| (slower * share).round().max(1.0))
    }

    fn go_on(&self) -> Ended {
        if self.cancel.is_cancelled() { Err("interrupted".to_owned()) } else { Ok(()) }
    }

    fn conclude(&self, tasks: &[Task], not_covered: Vec<String>, failure: Option<&str>) -> Comparison {
        let settings = self.settings;
        let names = [settings.targets[0].name.as_str(), settings.targets[1].name.as_str()];
        let recorded = self.facts.iter().any(|facts| facts.recorded.is_some());
        let mut cells = Vec::new();
        for (number, layout) in settings.layouts.iter().enumerate() {
            for cell in self.cells {
                let turns = self.journal.turns(number, &cell.key);
                if turns.is_empty() {
                    continue;
                }
                let rate = self.rate(cell, number);
                let commands = self.facts.iter().map(|facts| self.command(cell, layout, rate, facts)).collect();
                let known = Known {
                    names,
                    layout: layout.name(),
                    rate,
                    lossy: self.journal.lossy(&cell.key),
                    commands,
                    recorded,
                };
                cells.push(cell_report(cell, known, turns));
            }
        }
        let found = self.journal.ceilings();
        let mut notes = self.notes.clone();
        notes.extend(failure.map(|why| format!("Ended early: {why}")));
        notes.extend(verdict::drift(&found));
        if recorded {
            notes.push(
                "One side is recorded: compare it only on the host it was recorded on, and prefer measuring both."
                    .to_owned(),
            );
        }
        let keys: Vec<&str> = self.cells.iter().map(|cell| cell.key.as_str()).collect();
        Comparison {
            schema_version: SCHEMA_VERSION,
            tool: Tool { name: "ringlog compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            started_at: self.journal.header.started_at.clone(),
            finished_at: now(),
            command: settings.command.clone(),
            preset: settings.preset.name().to_owned(),
            seed: settings.seed,
            pairs: settings.pacing.pairs,
            layouts: settings.layouts.iter().map(Layout::words).collect(),
            interrupted: !order::left(tasks, &self.journal.done(&keys)).is_empty(),
            targets: self.facts.clone(),
            host: host::facts(self.directory),
            ceilings: found,
            cells,
            notes,
            not_covered,
        }
    }

    /// The call that does a cell alone, where one call can.
    fn command(&self, cell: &Cell, layout: &Layout, rate: Option<f64>, facts: &super::report::TargetFacts) -> String {
        let mut plan = Plan {
            bootstrap: "HOST:PORT".to_owned(),
            pin: layout.client_cores().to_vec(),
            threads: layout.threads(),
            ..cell.plan.clone()
        };
        plan.topic_settings = cell.class.topic_settings(&facts.software);
        if let Some(rate) = rate {
            if cell.shape == Shape::Soak {
                plan.topic_settings.extend(soak::retention(&plan, rate));
            }
            plan = presets::at_rate(plan, rate);
        }
        match cell.shape {
            Shape::ColdStart { .. } => facts.how.clone(),
            Shape::CatchUp { .. } => repeat::command(&plan, Some("TOPIC")),
            Shape::Neighbour => {
                let noise = repeat::command(&presets::noise(&plan), None);
                format!("{}\n{noise} &\n{}", repeat::command(&plan, None), repeat::command(&plan, None))
            }
            Shape::Load | Shape::Idle { .. } | Shape::Kill | Shape::Soak => repeat::command(&plan, None),
        }
    }
}

/// A line about a turn that was taken.
fn taken_line(side: &Side, cell: &Cell, measurement: &Measurement) -> String {
    let head = format!("{:<12} {:<12}", cell.key, side.facts.name);
    if !measurement.error.is_empty() {
        return format!("{head} {}", measurement.error);
    }
    let numbers = cell.metrics.iter().filter_map(|metric| {
        Some(format!("{} {}", metric.name(), verdict::shown(*metric, measurement.number(metric.key())?)))
    });
    format!("{head} {}", numbers.take(3).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(targets: [&str; 2]) -> Settings {
        Settings {
            targets: targets.map(|text| Target::parse(text).unwrap()),
            preset: Preset::Quick,
            workloads: Vec::new(),
            pacing: Preset::Quick.pacing(),
            layouts: vec![Layout::Shared],
            seed: 1,
            directory: PathBuf::from("."),
            keep: false,
            journal: PathBuf::from("journal"),
            existing: Existing::Keep,
            kafka_home: None,
            program: PathBuf::from("ringlog"),
            command: String::new(),
        }
    }

    #[test]
    fn a_broker_that_was_running_is_never_restarted() {
        let (cells, notes) = chosen(&settings(["a=ringlog", "b=127.0.0.1:1"])).unwrap();
        assert!(cells.iter().all(|cell| cell.shape.stage() != Stage::Restarts));
        assert!(notes.iter().any(|note| note.starts_with("W17: b was running already")), "{notes:?}");
        assert!(
            chosen(&settings(["a=ringlog", "b=kafka"]))
                .unwrap()
                .0
                .iter()
                .any(|cell| cell.shape.stage() == Stage::Restarts)
        );
        let mut only = settings(["a=ringlog", "b=127.0.0.1:1"]);
        only.workloads = vec!["W17".to_owned()];
        assert!(chosen(&only).unwrap_err().contains("nothing is left"));
    }

    #[test]
    fn a_comparison_without_its_targets_does_not_begin_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(["a=ringlog:/nowhere/ringlog", "b=127.0.0.1:1"]);
        settings.directory = directory.path().join("data");
        settings.journal = directory.path().join("journal");
        let error = run(&settings, &Cancel::default(), &mut |_| ()).unwrap_err();
        assert!(error.contains("/nowhere/ringlog"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path().join("data")).unwrap().count(), 0);
    }
}
