//! The start: from settings to a broker that answers, and from a signal back to nothing.
//!
//! Shell, on the main thread, which becomes the control thread. Order matters and is the order of the lines of `serve`.
//! Always: nothing on disk is touched before host, cores and ports are known to be good, no log before every directory is locked,
//! and no client is let in before every log was tried. Prints the few lines a person wants to see; everything else goes to the log.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinHandle;

use super::Failure;
use super::checkpoints;
use super::checkpoints::{Checkpoints, Offsets};
use super::flush_probe;
use super::http::{self, Facts, Phase};
use super::mesh::{ShardPort, ask_all};
use super::stop::{self, Signals, stop_shards};
use crate::config::{BrokerSettings, Problem};
use crate::controller::data_dirs::DataDirs;
use crate::controller::image::Image;
use crate::controller::{self, Advertised, Controller, Opened, Publisher, random_bits};
use crate::log::files;
use crate::metrics::ShardMetrics;
use crate::rt::{self, executor::Setup, hop};
use crate::server;
use crate::shard::ShardBoot;
use crate::shard::apply::FoundDir;
use crate::shard::calls::{ApplyReport, DirCheckpoint, ShardAnswer, ShardCall};

/// Messages one shard's inbox holds before senders queue on their side: more than the requests that one turn of all
/// connections of a busy shard can bring, small enough to cost nothing.
const INBOX_MESSAGES: usize = 4096;
/// How long the shards may take to say how far they are before a checkpoint is left out.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(30);
/// How long opening every log may take before start-up is given up. Recovery reads at disk speed; this is a hang, not a
/// slow disk.
const OPEN_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// What the command line adds to the settings.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Gets one line of JSON (`kafka`, `admin`, `pid`) once clients are served; written under another name, then renamed.
    pub ready_file: Option<PathBuf>,
}

/// Runs the broker until a signal ends it. Errors: why it did not start, or what was left undone at the end.
pub fn run(settings: BrokerSettings, notes: &[Problem], options: &Options) -> Result<(), Failure> {
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure(format!("the control thread did not start: {error}")))?;
    runtime.block_on(async { serve(Arc::new(settings), notes, options, began, Life::of_the_process()?).await })
}

/// Whose process it is.
pub(super) enum Life {
    /// The broker's own: signals end it, and a person reads standard error.
    Process(Signals),
    /// Somebody else's, who is told where to connect, says when to end, and wants to read nothing.
    Guest {
        /// Gets the address of the listener once clients are served.
        ready: mpsc::Sender<SocketAddr>,
        /// Used or dropped when the broker shall end.
        stop: oneshot::Receiver<()>,
    },
}

impl Life {
    fn of_the_process() -> Result<Self, Failure> {
        Signals::catch().map(Self::Process)
    }

    fn say(&self, line: std::fmt::Arguments<'_>) {
        if self.speaks() {
            // Standard error: standard output is a data channel.
            eprintln!("{line}");
        }
    }

    fn speaks(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    fn ready(&self, kafka: SocketAddr) {
        if let Self::Guest { ready, .. } = self {
            // A host that does not wait for it has dropped `stop` too.
            _ = ready.send(kafka);
        }
    }

    /// Waits for the end; the next signal after it ends the process at once.
    async fn ended(&mut self) {
        match self {
            Self::Process(signals) => {
                let signal = signals.next().await;
                tracing::info!("{signal}: finishing what was accepted; a second signal ends at once");
            }
            // Dropped means the same.
            Self::Guest { stop, .. } => _ = stop.await,
        }
    }
}

pub(super) async fn serve(
    settings: Arc<BrokerSettings>,
    notes: &[Problem],
    options: &Options,
    began: Instant,
    mut life: Life,
) -> Result<(), Failure> {
    greet(&life, notes)?;
    let cpus = cpus(&settings)?;
    let Doors { listener, kafka, admin } = Doors::open(&settings).await?;
    let dirs = open_dirs(&settings, &life)?;
    let found = find(&dirs);
    tell_layout(&life, &settings, &cpus, kafka);

    let (seeds, port) = hop::mesh::<ShardCall, ShardAnswer>(cpus.len(), INBOX_MESSAGES);
    let shards = ShardPort { port, count: cpus.len() };
    let counters: Vec<_> = (0..cpus.len()).map(|_| Arc::new(ShardMetrics::default())).collect();
    let opened = open_metadata(&settings, &dirs, kafka, &life)?;
    let checkpoints = known_checkpoints(&settings, &found, &opened.image())?;
    let controller = opened.controller();
    let (images, image) = watch::channel(opened.image());
    let threads = start_shards(&settings, cpus, seeds, &controller, &image, &found, &counters)?;
    let recovered = open_logs(&shards, &opened.image()).await?;
    tell_recovery(&life, &recovered, &dirs);

    let publisher = MeshPublisher { shards: shards.clone(), images, checkpoints: Arc::clone(&checkpoints) };
    let commands = tokio::spawn(opened.run(publisher));
    let facts = Arc::new(Facts {
        shards: shards.clone(),
        counters,
        image,
        started: Instant::now(),
        phase: AtomicU8::new(Phase::Starting as u8),
    });
    let admin = answer_admin(admin, &facts)?;
    let checkpointing =
        tokio::spawn(checkpoint_now_and_then(shards.clone(), Arc::clone(&settings), Arc::clone(&checkpoints)));
    let running = Running { settings, shards, threads, controller, commands, checkpoints, checkpointing, facts, dirs };

    running.let_clients_in(listener).await?;
    life.say(format_args!("ready: kafka={kafka} admin={admin} in {} ms", began.elapsed().as_millis()));
    if let Some(path) = &options.ready_file {
        write_ready_file(path, kafka, &admin)?;
    }
    life.ready(kafka);

    life.ended().await;
    let speaks = life.speaks();
    if let Life::Process(signals) = life {
        tokio::spawn(signals.end_at_next());
    }
    running.stop().await?;
    if speaks {
        eprintln!("stopped: every log flushed and closed");
    }
    Ok(())
}

/// The first lines: who starts, and what is odd about the settings and this host.
fn greet(life: &Life, notes: &[Problem]) -> Result<(), Failure> {
    life.say(format_args!("ringlog {}", env!("CARGO_PKG_VERSION")));
    for note in notes {
        life.say(format_args!("note: {}: {}", note.place, note.message));
    }
    for warning in rt::executor::probe_host().map_err(|error| Failure(error.to_string()))? {
        life.say(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// Ports that are bound, on which nobody is answered yet.
struct Doors {
    listener: OwnedFd,
    /// Where the listener is.
    kafka: SocketAddr,
    admin: Option<TcpListener>,
}

impl Doors {
    async fn open(settings: &BrokerSettings) -> Result<Self, Failure> {
        let listener = bind(settings)?;
        let kafka = listener_address(&listener)?;
        let admin = match settings.admin_listener {
            Some(address) => Some(bind_admin(address).await?),
            None => None,
        };
        Ok(Self { listener, kafka, admin })
    }
}

fn open_dirs(settings: &BrokerSettings, life: &Life) -> Result<DataDirs, Failure> {
    let dirs = DataDirs::open(&settings.log_dirs, settings.node_id, settings.cluster_id.as_deref(), random_bits)
        .map_err(|error| Failure(error.to_string()))?;
    for note in &dirs.notes {
        life.say(format_args!("note: {note}"));
    }
    Ok(dirs)
}

/// Says what will run where, and what an acknowledgement is worth there.
fn tell_layout(life: &Life, settings: &BrokerSettings, cpus: &[usize], kafka: SocketAddr) {
    life.say(format_args!("data: {}", paths(&settings.log_dirs)));
    life.say(format_args!("shards: {} on cores {}", cpus.len(), numbers(cpus)));
    life.say(format_args!("listener: {}://{kafka}", settings.listener.name));
    if life.speaks() {
        let class = settings.topic_settings("", &BTreeMap::new()).ack_class();
        life.say(format_args!("ack class: {class}; {}", flush_words(settings)));
    }
}

/// Opens the metadata log, marks the directories as in use, and says what a crash had left.
fn open_metadata(
    settings: &Arc<BrokerSettings>,
    dirs: &DataDirs,
    kafka: SocketAddr,
    life: &Life,
) -> Result<Opened, Failure> {
    let opened = controller::open(Arc::clone(settings), dirs, advertised(settings, kafka), random_bits)
        .map_err(|error| Failure(error.to_string()))?;
    // From here on a crash is a crash; whatever failed before leaves the marks of the last clean end.
    dirs.mark_running().map_err(|error| Failure(error.to_string()))?;
    if opened.torn_bytes > 0 {
        life.say(format_args!(
            "note: the metadata log ended in {} bytes of a change nobody was told of; cut",
            opened.torn_bytes
        ));
    }
    if opened.removed_partitions > 0 {
        life.say(format_args!(
            "note: removed {} partitions of deleted topics that a crash had left",
            opened.removed_partitions
        ));
    }
    Ok(opened)
}

/// The checkpoints of the last run, of those partitions that are still there.
fn known_checkpoints(
    settings: &BrokerSettings,
    found: &[FoundDir],
    image: &Image,
) -> Result<Arc<Mutex<Checkpoints>>, Failure> {
    let known = settings.log_dirs.iter().cloned().zip(
        found
            .iter()
            .map(|dir| Offsets { recovery_points: dir.recovery_points.clone(), log_starts: dir.log_starts.clone() }),
    );
    let mut checkpoints = Checkpoints::new(known);
    // A crash may have come between the end of a topic and this.
    checkpoints.keep_those_of(image).map_err(|error| Failure(format!("offset checkpoints: {error}")))?;
    Ok(Arc::new(Mutex::new(checkpoints)))
}

fn tell_recovery(life: &Life, recovered: &ApplyReport, dirs: &DataDirs) {
    let clean = dirs.dirs.iter().all(|dir| dir.clean);
    life.say(format_args!("{}", recovery_words(recovered, clean)));
    for (name, reason) in &recovered.failed {
        life.say(format_args!("offline: {name}: {reason}"));
    }
}

/// Answers on the admin port from now on. Returns where that is; `off` when there is none.
fn answer_admin(admin: Option<TcpListener>, facts: &Arc<Facts>) -> Result<String, Failure> {
    let Some(admin) = admin else { return Ok("off".to_owned()) };
    let address = admin.local_addr().map_err(|error| Failure(format!("admin.listener: {error}")))?;
    tokio::spawn(axum::serve(admin, http::router(Arc::clone(facts))).into_future());
    Ok(address.to_string())
}

/// A broker whose logs are open.
struct Running {
    settings: Arc<BrokerSettings>,
    shards: ShardPort,
    threads: rt::executor::Shards,
    controller: Controller,
    /// Works on the controller's commands.
    commands: JoinHandle<()>,
    checkpoints: Arc<Mutex<Checkpoints>>,
    checkpointing: JoinHandle<()>,
    facts: Arc<Facts>,
    /// Last, since the locks on them are the last to go.
    dirs: DataDirs,
}

impl Running {
    async fn let_clients_in(&self, listener: OwnedFd) -> Result<(), Failure> {
        self.shards
            .port
            .call(0, ShardCall::Listen(listener))
            .await
            .map_err(|_| Failure("shard 0 ended during start-up; see the log above".to_owned()))?;
        self.facts.enter(Phase::Ready);
        Ok(())
    }

    /// Finishes what was accepted, closes every log and records how that went. Errors: what was left undone.
    async fn stop(self) -> Result<(), Failure> {
        let Self { settings, shards, threads, controller, commands, checkpoints, checkpointing, facts, dirs } = self;
        facts.enter(Phase::Draining);
        checkpointing.abort();
        controller.stop().await;
        if commands.await.is_err() {
            tracing::error!("the controller ended badly");
        }
        let closed = stop_shards(&shards, settings.log_dirs.len()).await;
        // Before the threads are waited for: one that hangs in its device must not cost the other logs their clean end.
        let finished = finish(&settings, &dirs, &mut *checkpoints.lock().await, &closed);
        let joined = join_shards(threads).await;
        // The directories stay locked until nothing of this process can write there, or it ends.
        drop(dirs);
        finished.and(joined)
    }
}

/// Waits for the shards' threads, which end at once where they have closed their logs.
async fn join_shards(shards: rt::executor::Shards) -> Result<(), Failure> {
    let (ended, end) = oneshot::channel();
    // A thread of its own: the runtime would wait for one of its pool's, however long.
    thread::Builder::new()
        .name("join".to_owned())
        .spawn(move || ended.send(shards.join()))
        .map_err(|error| Failure(format!("the shards' threads cannot be waited for: {error}")))?;
    match tokio::time::timeout(stop::JOIN, end).await {
        Ok(Ok(joined)) => joined.map_err(|error| Failure(error.to_string())),
        Ok(Err(_)) => Err(Failure("a shard ended badly; see the log above".to_owned())),
        Err(_) => {
            Err(Failure("a shard's thread did not end, most likely for its device; ending without it".to_owned()))
        }
    }
}

fn bind(settings: &BrokerSettings) -> Result<OwnedFd, Failure> {
    let listener = &settings.listener;
    let address = resolve(&listener.host, listener.port)?;
    rt::net::listen(address, settings.socket_listen_backlog_size as i32).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there; stop it, or give another port in listeners"
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; give another port in listeners",
            _ => "check the address in listeners",
        };
        Failure(format!("cannot listen on {address} ({}): {error}: {advice}", listener.name))
    })
}

async fn bind_admin(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure(format!("cannot listen on {address} (admin.listener): {error}: give another address, or 'off'"))
    })
}

/// An empty host is every interface, as in Kafka.
fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    if host.is_empty() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    let unknown = |reason: String| Failure(format!("listeners: host '{host}' does not resolve: {reason}"));
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.next().ok_or_else(|| unknown("no address".to_owned()))
}

fn listener_address(listener: &OwnedFd) -> Result<SocketAddr, Failure> {
    socket2::SockRef::from(listener)
        .local_addr()
        .ok()
        .and_then(|address| address.as_socket())
        .ok_or_else(|| Failure("the listener has no address".to_owned()))
}

/// Where clients are told to connect: what the settings say, with the bound port for port 0.
fn advertised(settings: &BrokerSettings, bound: SocketAddr) -> Advertised {
    let port = if settings.advertised_port == 0 { bound.port() } else { settings.advertised_port };
    Advertised { host: settings.advertised_host.clone(), port }
}

/// The CPUs to run on: `engine.cpu.set`, else the affinity mask; the first `engine.shards` of them.
fn cpus(settings: &BrokerSettings) -> Result<Vec<usize>, Failure> {
    let allowed: Vec<_> = core_affinity::get_core_ids()
        .ok_or_else(|| Failure("the affinity mask of this process cannot be read".to_owned()))?
        .into_iter()
        .map(|core| core.id)
        .collect();
    let mut cpus = match &settings.engine_cpu_set {
        Some(wanted) => {
            if let Some(forbidden) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
                let allowed = numbers(&allowed);
                return Err(Failure(format!(
                    "engine.cpu.set: CPU {forbidden} is not in the affinity mask ({allowed})"
                )));
            }
            wanted.clone()
        }
        None => allowed,
    };
    if let Some(shards) = settings.engine_shards {
        let shards = shards as usize;
        if shards > cpus.len() {
            return Err(Failure(format!(
                "engine.shards: {shards} shards need as many CPUs, only {} are allowed",
                cpus.len()
            )));
        }
        cpus.truncate(shards);
    }
    Ok(cpus)
}

/// What the last run left in each log directory.
fn find(dirs: &DataDirs) -> Arc<Vec<FoundDir>> {
    let found = dirs.dirs.iter().map(|dir| {
        let (offsets, problems) = checkpoints::read(&dir.path);
        for problem in problems {
            tracing::warn!("{problem}");
        }
        match crate::log::sweep_leftovers(&dir.path) {
            Ok(0) => {}
            Ok(swept) => tracing::info!(dir = %dir.path.display(), swept, "removed what deletions had left behind"),
            Err(error) => tracing::warn!(dir = %dir.path.display(), %error, "leftovers of deletions stay"),
        }
        let Offsets { recovery_points, log_starts } = offsets;
        FoundDir { clean: dir.clean, recovery_points, log_starts }
    });
    Arc::new(found.collect())
}

fn flush_words(settings: &BrokerSettings) -> String {
    match flush_probe::measure(&settings.log_dirs[0]) {
        Ok(cost) => format!("fdatasync here: p50 {:.2?}, p99 {:.2?}: {}", cost.p50, cost.p99, cost.verdict()),
        Err(error) => format!("fdatasync could not be measured: {error}"),
    }
}

fn recovery_words(report: &ApplyReport, clean: bool) -> String {
    if report.opened == 0 && report.failed.is_empty() {
        return "recovery: no logs yet".to_owned();
    }
    let how = if clean { "clean" } else { "unclean" };
    format!(
        "recovery: {how} start, {} logs opened, {} segments, {} bytes scanned, {} bytes truncated, {} offline",
        report.opened,
        report.segments,
        report.bytes_scanned,
        report.bytes_truncated,
        report.failed.len()
    )
}

fn numbers(values: &[usize]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn paths(values: &[PathBuf]) -> String {
    values.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
}

fn start_shards(
    settings: &Arc<BrokerSettings>,
    cpus: Vec<usize>,
    seeds: Vec<hop::HopSeed<ShardCall, ShardAnswer>>,
    controller: &Controller,
    image: &watch::Receiver<Arc<Image>>,
    found: &Arc<Vec<FoundDir>>,
    counters: &[Arc<ShardMetrics>],
) -> Result<rt::executor::Shards, Failure> {
    let shards = cpus.len();
    let image = Arc::new(Image::empty(image.borrow().cluster_id.clone(), image.borrow().directories().to_vec()));
    // The closure is cloned for every executor; each finds its own boot in its own slot.
    let boots: Vec<_> = seeds
        .into_iter()
        .zip(counters)
        .enumerate()
        .map(|(index, (seed, metrics))| {
            let boot = ShardBoot {
                index,
                seed,
                shards,
                settings: Arc::clone(settings),
                controller: controller.clone(),
                image: Arc::clone(&image),
                found: Arc::clone(found),
                metrics: Arc::clone(metrics),
            };
            let slot = ArrayQueue::new(1);
            assert!(slot.push(boot).is_ok(), "the slot is empty");
            slot
        })
        .collect();
    let boots = Arc::new(boots);
    let setup =
        Setup { cpus, io_memory_bytes: settings.engine_io_memory_bytes as usize, data_dirs: settings.log_dirs.clone() };
    rt::executor::start(setup, move |index| server::run_shard(boots[index].pop().expect("each executor starts once")))
        .map_err(|error| Failure(error.to_string()))
}

/// Opens every log: each shard applies the replayed image. The sum of what they found.
async fn open_logs(shards: &ShardPort, image: &Arc<Image>) -> Result<ApplyReport, Failure> {
    let answers = ask_all(shards, OPEN_PATIENCE, || ShardCall::Apply(Arc::clone(image))).await;
    let mut sum = ApplyReport::default();
    for (shard, answer) in answers.into_iter().enumerate() {
        match answer {
            Some(ShardAnswer::Applied(report)) => sum.add(report),
            _ => return Err(Failure(format!("shard {shard} ended during start-up; see the log above"))),
        }
    }
    Ok(sum)
}

/// Gives a committed image to the shards: all prepare it before any serves by it, so that no client is sent to a log that
/// is not there yet.
struct MeshPublisher {
    shards: ShardPort,
    images: watch::Sender<Arc<Image>>,
    checkpoints: Arc<Mutex<Checkpoints>>,
}

impl Publisher for MeshPublisher {
    fn publish(&self, image: Arc<Image>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let (shards, checkpoints) = (self.shards.clone(), Arc::clone(&self.checkpoints));
        self.images.send_replace(Arc::clone(&image));
        Box::pin(async move {
            ask_all(&shards, OPEN_PATIENCE, || ShardCall::Prepare(Arc::clone(&image))).await;
            let applied = ask_all(&shards, OPEN_PATIENCE, || ShardCall::Apply(Arc::clone(&image))).await;
            for answer in applied.into_iter().flatten() {
                let ShardAnswer::Applied(report) = answer else { continue };
                for (name, reason) in report.failed {
                    tracing::error!(partition = name, reason, "a log did not open; its partition is offline");
                }
            }
            // Before the next command, which may give a deleted name again.
            if let Err(error) = checkpoints.lock().await.keep_those_of(&image) {
                tracing::error!(%error, "offset checkpoints of a deleted topic were not rewritten; tried again with the next ones");
            }
        })
    }
}

/// Writes the checkpoints every `log.flush.offset.checkpoint.interval.ms`, so that recovery after a kill reads little.
async fn checkpoint_now_and_then(
    shards: ShardPort,
    settings: Arc<BrokerSettings>,
    checkpoints: Arc<Mutex<Checkpoints>>,
) {
    let mut ticks = tokio::time::interval(settings.log_flush_offset_checkpoint_interval.max(Duration::from_millis(1)));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        // Held from the question on: what a shard told before a topic's end must not be written after it.
        let mut checkpoints = checkpoints.lock().await;
        let answers = ask_all(&shards, CHECKPOINT_PATIENCE, || ShardCall::Describe).await;
        let mut partitions = Vec::new();
        for answer in answers.into_iter().flatten() {
            if let ShardAnswer::Facts(facts) = answer {
                partitions.extend(facts.partitions);
            }
        }
        checkpoints.on_report(&partitions);
    }
}

/// Writes the last checkpoints and, where every log closed cleanly, the clean marker.
fn finish(
    settings: &BrokerSettings,
    dirs: &DataDirs,
    checkpoints: &mut Checkpoints,
    closed: &[DirCheckpoint],
) -> Result<(), Failure> {
    let unrecorded = |error: &dyn std::fmt::Display| Failure(format!("the clean end was not recorded: {error}"));
    let mut outcome = Ok(());
    // One bad directory keeps no other from its clean end.
    for (index, (closed, written)) in closed.iter().zip(checkpoints.on_end(closed)).enumerate() {
        let marked = written.map_err(|error| unrecorded(&error)).and_then(|()| {
            if !closed.clean {
                return Ok(());
            }
            let dir = &settings.log_dirs[index];
            let unmarked = |error: &dyn std::fmt::Display| unrecorded(&format_args!("{}: {error}", dir.display()));
            // A log's clean end leaves its small files to this one sync.
            files::sync_all_blocking(dir).map_err(|error| unmarked(&error))?;
            dirs.mark_clean(index).map_err(|error| unmarked(&error))
        });
        outcome = outcome.and(marked);
    }
    outcome?;
    if closed.iter().all(|closed| closed.clean) {
        Ok(())
    } else {
        Err(Failure("stopped, but not every log closed cleanly: the next start will scan them".to_owned()))
    }
}

fn write_ready_file(path: &std::path::Path, kafka: SocketAddr, admin: &str) -> Result<(), Failure> {
    let line = json!({ "kafka": kafka.to_string(), "admin": admin, "pid": std::process::id() });
    let unfinished = path.with_extension("tmp");
    std::fs::write(&unfinished, format!("{line}\n"))
        .and_then(|()| std::fs::rename(&unfinished, path))
        .map_err(|error| Failure(format!("--ready-file {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load};

    #[test]
    fn a_directory_that_takes_no_checkpoint_keeps_no_other_from_its_clean_end() {
        let root = tempfile::tempdir().unwrap();
        let paths = ["bad", "good"].map(|name| root.path().join(name));
        let overrides = vec![("log.dirs".to_owned(), format!("{},{}", paths[0].display(), paths[1].display()))];
        let settings = load(&Sources { overrides, ..Default::default() }).unwrap().0;
        let dirs = DataDirs::open(&paths, settings.node_id, None, random_bits).unwrap();
        std::fs::create_dir(paths[0].join("log-start-offset-checkpoint.tmp")).unwrap();
        let mut checkpoints = Checkpoints::new(paths.iter().map(|path| (path.clone(), Offsets::default())));
        let closed = [true, true].map(|clean| DirCheckpoint { clean, ..DirCheckpoint::default() });
        finish(&settings, &dirs, &mut checkpoints, &closed).unwrap_err();
        assert_eq!(paths.map(|path| path.join(".kafka_cleanshutdown").exists()), [false, true]);
    }
}
