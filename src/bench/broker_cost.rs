//! What the broker paid for the load: processor time, memory, switches, bytes to the device.
//!
//! Shell: looks at `/proc` and, for our broker, at its metrics page. Owns the difference between two looks. Always true: a
//! number appears only when it was measured; a broker on another host has none. Kernel threads that write a broker's dirty
//! pages are not in its own processor time: the machine's total less the generator's stands beside it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ack_class::Described;
use super::assemble::moved;
use super::plan::{Kind, Plan};
use super::process::{self, DeviceSample, MachineSample, ProcessSample};
use super::recorder::Interval;
use super::report::{BrokerFacts, GeneratorFacts, RequestStages, ShardWork};
use crate::client::settings::HostPort;

/// How long the metrics page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// The page of a broker with tens of thousands of partitions; what comes after is not read.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// Counters a report carries at most.
const COUNTERS_MAX: usize = 200;
/// Shards a report carries at most: one a core, on any host of today.
const SHARDS_MAX: usize = 1024;
/// Every shard has it, and tells it even while it hangs: it says which shards there are.
const OF_EVERY_SHARD: &str = "ringlog_produce_batches_total";

/// Answered requests whose stages are counted, by API; and what the stages took them. They are told by shards that hang, too.
const STAGED: &str = "ringlog_requests_staged_total";
const STAGE_MICROS: &str = "ringlog_request_stage_microseconds_total";
/// The APIs whose stages a report carries: those that move records.
const STAGED_APIS: [&str; 2] = ["Produce", "Fetch"];

/// Counters of a metrics page: by name, then by their labels as they are written there.
type Counters = BTreeMap<String, BTreeMap<String, f64>>;

/// Programs that listen for a broker elsewhere, as the kernel cuts their names: their costs are not the broker's.
const FORWARDERS: &[&str] = &[
    "com.docker.back",
    "docker-proxy",
    "envoy",
    "gvproxy",
    "haproxy",
    "kubectl",
    "ncat",
    "nginx",
    "pasta",
    "passt",
    "rootlessport",
    "slirp4netns",
    "socat",
    "ssh",
    "sshd",
    "sshd-session",
    "traefik",
];

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct BrokerWatch {
    /// The process, when it runs here.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// Why there is none though one listens here.
    pub note: Option<String>,
    /// A directory on the device under its data.
    directory: Option<PathBuf>,
    /// Of the metrics page.
    admin: Option<String>,
}

/// What was seen at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    at: Instant,
    process: Option<ProcessSample>,
    /// Of the whole machine.
    pub machine: Option<MachineSample>,
    device: Option<DeviceSample>,
    own_cpu_seconds: f64,
    counters: Counters,
}

impl BrokerWatch {
    /// Finds the broker of the plan: by the given process, or by its port when the address is this host's and the cluster is that
    /// one broker.
    pub fn find(plan: &Plan, software: &str, brokers: u32, broker: &Described) -> Self {
        let first = plan.bootstrap.split(',').next().and_then(|text| HostPort::parse(text).ok());
        let here = first.filter(|address| process::is_this_host(&address.host));
        let named = |pid| (pid, process::name(pid).unwrap_or_default());
        let listener = here.as_ref().and_then(|address| process::listener(address.port)).map(named);
        let (chosen, note) = match choose(plan.pid.map(named), brokers, listener) {
            Ok(chosen) => (chosen, None),
            Err(why) => (None, Some(why)),
        };
        let (pid, process) = chosen.unzip();
        let log_dirs = broker.get("log.dirs").or_else(|| broker.get("log.dir"));
        let directory = log_dirs.and_then(|dirs| dirs.split(',').next()).map(|dir| PathBuf::from(dir.trim()));
        // A relative directory is relative to the broker's own.
        let directory = directory
            .map(|dir| pid.map_or_else(|| dir.clone(), |pid| PathBuf::from(format!("/proc/{pid}/cwd")).join(&dir)));
        let one_here = here.is_some() && brokers == 1;
        let asked = || broker.get("admin.listener").filter(|listener| *listener != "off" && one_here).cloned();
        let admin = plan.admin.clone().or_else(|| asked().filter(|_| software == "ringlog"));
        Self { pid, process, note, directory: directory.filter(|dir| pid.is_some() && dir.exists()), admin }
    }

    /// Where its data lies on this host, as far as that is known.
    pub fn data_directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Looks now. `thorough` also reads the metrics page, which costs the broker a millisecond or two.
    pub fn look(&self, thorough: bool) -> Look {
        let counters = match &self.admin {
            Some(address) if thorough => page(address).map(|text| counters(&text)).unwrap_or_default(),
            _ => Counters::new(),
        };
        Look {
            at: Instant::now(),
            process: self.pid.and_then(process::process),
            machine: process::machine(),
            device: self.directory.as_deref().and_then(process::device),
            own_cpu_seconds: process::own_cpu_seconds(),
            counters,
        }
    }
}

/// A process and its name.
type Named = (u32, String);

/// The process whose costs are the broker's: the given one, or the one that listens here. Errors: a sentence that says why the one that
/// listens is not it.
fn choose(given: Option<Named>, brokers: u32, listener: Option<Named>) -> Result<Option<Named>, String> {
    if given.is_some() {
        return Ok(given);
    }
    let Some((pid, name)) = listener.filter(|(pid, _)| *pid != std::process::id()) else { return Ok(None) };
    if FORWARDERS.contains(&name.as_str()) {
        return Err(format!(
            "Whoever listens here is {name}, not the broker: what the broker paid is not known. Give --pid."
        ));
    }
    if brokers != 1 {
        let why = "what one of them paid is not what the load cost";
        return Err(format!("There are {brokers} brokers, and {why}: it is left out. Give --pid for one process."));
    }
    Ok(Some((pid, name)))
}

/// One GET of `/public_metrics`, whose size does not grow with the number of topics.
fn page(address: &str) -> std::io::Result<String> {
    let to = address.to_socket_addrs()?.next().ok_or_else(|| std::io::Error::other("no address"))?;
    let mut stream = TcpStream::connect_timeout(&to, PAGE_TIMEOUT)?;
    stream.set_read_timeout(Some(PAGE_TIMEOUT))?;
    stream.set_write_timeout(Some(PAGE_TIMEOUT))?;
    stream.write_all(format!("GET /public_metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut text = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Counters of an OpenMetrics page: our broker's own, which only grow.
fn counters(text: &str) -> Counters {
    let mut counters = Counters::new();
    for line in text.lines().filter(|line| line.starts_with("ringlog_")) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let name = &line[..end];
        if !["_total", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        let (labels, value) = line[end..].rsplit_once('}').unwrap_or(("", &line[end..]));
        if let Some(value) = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok()) {
            counters.entry(name.to_owned()).or_default().insert(labels.trim_start_matches('{').to_owned(), value);
        }
    }
    counters
}

/// How much a counter grew, all its labels together. `None` when a row of it stands on one page only: a shard that did not
/// answer in time would else seem to have done all it ever did within the run.
fn growth(before: &Counters, after: &Counters, name: &str) -> Option<f64> {
    let (before, after) = (before.get(name)?, after.get(name)?);
    before.keys().eq(after.keys()).then(|| after.values().sum::<f64>() - before.values().sum::<f64>())
}

/// What each shard did between two pages. Shards that neither page tells of are left out.
fn shard_work(before: &Counters, after: &Counters) -> Vec<ShardWork> {
    let shard_of = |labels: &String| labels.strip_prefix("shard=\"")?.strip_suffix('"')?.parse::<u32>().ok();
    let mut shards: Vec<u32> =
        after.get(OF_EVERY_SHARD).into_iter().flat_map(BTreeMap::keys).filter_map(shard_of).collect();
    shards.sort_unstable();
    let work = shards.into_iter().take(SHARDS_MAX).map(|shard| {
        let labels = format!("shard=\"{shard}\"");
        let grown = |name: &str| {
            let value = |page: &Counters| page.get(&format!("ringlog_{name}_total"))?.get(&labels).copied();
            // Less than before: the broker was started anew meanwhile.
            value(after).zip(value(before)).map(|(after, before)| after - before).filter(|grown| *grown >= 0.0)
        };
        let grown = |name: &str| grown(name).map(|grown| grown as u64);
        ShardWork {
            shard,
            produce_batches: grown("produce_batches"),
            produce_bytes: grown("produce_bytes"),
            fetch_bytes: grown("fetch_bytes"),
            log_writes: grown("log_writes"),
            log_written_bytes: grown("log_written_bytes"),
            log_prewritten_bytes: grown("log_prewritten_bytes"),
            net_full_turns: grown("net_full_turns"),
            net_parks: grown("net_parks"),
            watchdog_kicks: grown("watchdog_kicks"),
        }
    });
    work.filter(|work| *work != ShardWork { shard: work.shard, ..ShardWork::default() }).collect()
}

/// How long the requests answered between two pages were in each stage. Rows begin with an API's first request: one that the
/// earlier page lacks was zero then.
fn stages(before: &Counters, after: &Counters) -> Vec<RequestStages> {
    if !before.contains_key(OF_EVERY_SHARD) {
        return Vec::new();
    }
    let of = |request: &&str| {
        let grown = |name: &str, labels: &str| {
            let after = after.get(name)?.get(labels)?;
            let before = before.get(name).and_then(|rows| rows.get(labels)).unwrap_or(&0.0);
            // Less than before: the broker was started anew meanwhile.
            Some(after - before).filter(|grown| *grown >= 0.0)
        };
        let requests = grown(STAGED, &format!("request=\"{request}\"")).filter(|requests| *requests > 0.0)?;
        let mean = |stage| Some(grown(STAGE_MICROS, &format!("request=\"{request}\",stage=\"{stage}\""))? / requests);
        Some(RequestStages {
            request: (*request).to_owned(),
            requests: requests as u64,
            request_queue_us: mean("request_queue")?,
            local_us: mean("local")?,
            remote_us: mean("remote")?,
        })
    };
    STAGED_APIS.iter().filter_map(of).collect()
}

/// Adds the costs between two looks to what is known of the broker, per unit of what `totals` says was done.
pub fn add_costs(facts: &mut BrokerFacts, kind: Kind, before: &Look, after: &Look, totals: &Interval) {
    let seconds = (after.at - before.at).as_secs_f64();
    let (records, bytes) = moved(kind, totals);
    let (produced, requests) = (totals.acked_bytes as f64, (totals.batches.requests + totals.requests) as f64);
    let per = |amount: f64, count: f64| (count > 0.0).then(|| amount / count);
    if let (Some(before), Some(after)) = (&before.process, &after.process) {
        let (user, system) = (after.user_seconds - before.user_seconds, after.system_seconds - before.system_seconds);
        let cpu = user + system;
        facts.cpu_user_seconds = Some(user);
        facts.cpu_system_seconds = Some(system);
        facts.cores_busy = per(cpu, seconds);
        facts.cpu_ms_per_mb = per(cpu * 1e3, bytes / 1e6);
        facts.cpu_us_per_request = per(cpu * 1e6, requests);
        facts.cpu_ms_per_1000_records = per(cpu * 1e3, records / 1e3);
        facts.rss_bytes = Some(after.rss_bytes);
        facts.rss_peak_bytes = Some(after.rss_peak_bytes);
        facts.context_switches = after.context_switches.checked_sub(before.context_switches);
        facts.written_bytes =
            after.written_bytes.zip(before.written_bytes).and_then(|(after, before)| after.checked_sub(before));
    }
    if let (Some(machine_before), Some(machine_after)) = (&before.machine, &after.machine) {
        let own = after.own_cpu_seconds - before.own_cpu_seconds;
        if before.process.is_some() {
            facts.machine_cpu_seconds = Some((machine_after.busy_seconds - machine_before.busy_seconds - own).max(0.0));
            let growth = machine_after.cached_bytes.cast_signed() - machine_before.cached_bytes.cast_signed();
            facts.page_cache_growth_bytes = Some(growth);
        }
    }
    if let (Some(before), Some(after)) = (before.device, after.device) {
        facts.device_written_bytes = after.written_bytes.checked_sub(before.written_bytes);
        facts.device_flushes = after.flushes.checked_sub(before.flushes);
    }
    let written = facts.device_written_bytes.or(facts.written_bytes);
    facts.write_amplification = written.and_then(|written| per(written as f64, produced)).filter(|_| kind.produces());
    // Added up over APIs and stages they would say nothing.
    let summed = after.counters.keys().filter(|name| ![STAGED, STAGE_MICROS].contains(&name.as_str()));
    let grown = summed.filter_map(|name| {
        let grown = growth(&before.counters, &after.counters, name).filter(|grown| *grown > 0.0)?;
        Some((name.clone(), grown))
    });
    facts.counters = grown.take(COUNTERS_MAX).collect();
    if facts.software == "ringlog" {
        facts.shards = shard_work(&before.counters, &after.counters);
        facts.stages = stages(&before.counters, &after.counters);
    }
}

/// What the generator used between two looks.
pub fn generator(kind: Kind, threads: u32, before: &Look, after: &Look, totals: &Interval) -> GeneratorFacts {
    let seconds = (after.at - before.at).as_secs_f64();
    let cpu = after.own_cpu_seconds - before.own_cpu_seconds;
    let (records, bytes) = moved(kind, totals);
    let per = |amount: f64, count: f64| if count > 0.0 { amount / count } else { 0.0 };
    GeneratorFacts {
        threads,
        cpu_seconds: cpu,
        cpu_ms_per_mb: per(cpu * 1e3, bytes / 1e6),
        cpu_us_per_record: per(cpu * 1e6, records),
        busy_share: per(cpu, seconds * f64::from(threads)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Instant, cpu: f64, written: u64) -> Look {
        let process =
            ProcessSample { user_seconds: cpu, rss_bytes: 7, written_bytes: Some(written), ..ProcessSample::default() };
        Look {
            at,
            process: Some(process),
            machine: None,
            device: None,
            own_cpu_seconds: cpu / 2.0,
            counters: Counters::new(),
        }
    }

    #[test]
    fn costs_are_per_megabyte_request_and_thousand_records() {
        let began = Instant::now();
        let (before, after) = (look(began, 1.0, 0), look(began + Duration::from_secs(10), 3.0, 300_000_000));
        let mut totals = Interval { acked: 100_000, acked_bytes: 200_000_000, ..Interval::default() };
        totals.batches.requests = 4000;
        let mut facts = BrokerFacts::default();
        add_costs(&mut facts, Kind::Produce, &before, &after, &totals);
        assert_eq!(facts.cpu_ms_per_mb, Some(10.0));
        assert_eq!(facts.cpu_us_per_request, Some(500.0));
        assert_eq!(facts.cpu_ms_per_1000_records, Some(20.0));
        assert_eq!(facts.cores_busy.map(|busy| (busy * 1000.0).round()), Some(200.0));
        assert_eq!(facts.write_amplification, Some(1.5));
        let generator = generator(Kind::Produce, 2, &before, &after, &totals);
        assert_eq!(generator.cpu_ms_per_mb, 5.0);
        assert!((generator.busy_share - 0.05).abs() < 1e-6);
    }

    #[test]
    fn only_the_one_broker_that_listens_here_or_the_process_given_is_watched() {
        let named = |pid, name: &str| Some((pid, name.to_owned()));
        assert_eq!(choose(None, 1, named(7, "java")), Ok(named(7, "java")));
        assert_eq!(choose(named(9, "ssh"), 3, named(7, "java")), Ok(named(9, "ssh")));
        assert_eq!(choose(None, 1, None), Ok(None));
        assert_eq!(choose(None, 1, named(std::process::id(), "ringlog")), Ok(None));
        assert!(choose(None, 3, named(7, "java")).unwrap_err().contains("3 brokers"));
        for forwarder in ["ssh", "kubectl", "docker-proxy", "socat", "haproxy"] {
            assert!(choose(None, 1, named(7, forwarder)).unwrap_err().contains(forwarder));
        }
        assert!(FORWARDERS.iter().all(|name| name.len() <= 15), "the kernel's names are no longer");
    }

    #[test]
    fn a_broker_elsewhere_has_no_costs() {
        let mut nothing = look(Instant::now(), 1.0, 0);
        nothing.process = None;
        let mut facts = BrokerFacts::default();
        add_costs(&mut facts, Kind::Produce, &nothing, &nothing, &Interval::default());
        assert_eq!(facts, BrokerFacts::default());
    }

    #[test]
    fn counters_keep_their_labels_and_gauges_are_left_out() {
        let text = "# HELP x\nringlog_writes_total{shard=\"0\"} 3\nringlog_writes_total{shard=\"1\"} 4\nringlog_open_files 9\nkafka_x_total 5\nringlog_stage_seconds_sum{stage=\"a b\"} 0.5 17\n";
        let counters = counters(text);
        assert_eq!(counters.len(), 2);
        let writes = [("shard=\"0\"".to_owned(), 3.0), ("shard=\"1\"".to_owned(), 4.0)];
        assert_eq!(counters["ringlog_writes_total"], BTreeMap::from(writes));
        assert_eq!(counters["ringlog_stage_seconds_sum"]["stage=\"a b\""], 0.5);
        let bare = super::counters("ringlog_kicks_total 8.0\n");
        assert_eq!(bare["ringlog_kicks_total"][""], 8.0);
    }

    /// A page on which shard `n` has appended `batches[n]`, and written as often where `answers[n]`.
    fn shards_page(batches: &[u64], answers: &[bool]) -> Counters {
        let mut text = String::new();
        for (shard, (count, answers)) in batches.iter().zip(answers).enumerate() {
            text.push_str(&format!("ringlog_produce_batches_total{{shard=\"{shard}\"}} {count}.0\n"));
            if *answers {
                text.push_str(&format!("ringlog_log_writes_total{{shard=\"{shard}\"}} {count}.0\n"));
            }
        }
        counters(&text)
    }

    fn between(software: &str, before: Counters, after: Counters) -> BrokerFacts {
        let began = Instant::now();
        let (mut first, mut last) = (look(began, 1.0, 0), look(began, 1.0, 0));
        (first.counters, last.counters) = (before, after);
        let mut facts = BrokerFacts { software: software.to_owned(), ..BrokerFacts::default() };
        add_costs(&mut facts, Kind::Produce, &first, &last, &Interval::default());
        facts
    }

    fn batches_and_writes(shard: u32, batches: u64, writes: Option<u64>) -> ShardWork {
        ShardWork { shard, produce_batches: Some(batches), log_writes: writes, ..ShardWork::default() }
    }

    #[test]
    fn each_shard_has_what_it_did_between_the_looks_and_the_sum_is_that_of_all() {
        let all = [true; 12];
        let before: Vec<u64> = (0..12).collect();
        let after: Vec<u64> = (0..12).map(|shard| shard * 3).collect();
        let facts = between("ringlog", shards_page(&before, &all), shards_page(&after, &all));
        let expected: Vec<ShardWork> =
            (0..12).map(|shard| batches_and_writes(shard, u64::from(shard) * 2, Some(u64::from(shard) * 2))).collect();
        assert_eq!(facts.shards, expected);
        assert_eq!(facts.counters["ringlog_produce_batches_total"], 132.0);
        assert_eq!(between("kafka", shards_page(&before, &all), shards_page(&after, &all)).shards, []);
    }

    #[test]
    fn a_shard_that_did_not_answer_has_no_numbers_rather_than_all_it_ever_did() {
        let facts =
            between("ringlog", shards_page(&[1000, 1000], &[true, false]), shards_page(&[1005, 1007], &[true, true]));
        assert_eq!(facts.shards, [batches_and_writes(0, 5, Some(5)), batches_and_writes(1, 7, None)]);
        assert_eq!(facts.counters, BTreeMap::from([("ringlog_produce_batches_total".to_owned(), 12.0)]));
    }

    #[test]
    fn a_page_that_could_not_be_read_and_a_broker_started_anew_give_no_numbers() {
        let page = || shards_page(&[7], &[true]);
        for (before, after) in
            [(Counters::new(), page()), (page(), Counters::new()), (page(), shards_page(&[3], &[true]))]
        {
            let facts = between("ringlog", before, after);
            assert_eq!((facts.shards, facts.counters), (Vec::new(), BTreeMap::new()));
        }
    }

    /// A page on which a broker has answered so many requests of an API, with so many microseconds in each stage.
    fn stages_page(rows: &[(&str, u64, [f64; 3])]) -> Counters {
        let mut text = "ringlog_produce_batches_total{shard=\"0\"} 1.0\n".to_owned();
        for (request, requests, micros) in rows {
            text.push_str(&format!("ringlog_requests_staged_total{{request=\"{request}\"}} {requests}.0\n"));
            for (stage, micros) in ["request_queue", "local", "remote"].iter().zip(micros) {
                text.push_str(&format!(
                    "ringlog_request_stage_microseconds_total{{request=\"{request}\",stage=\"{stage}\"}} {micros}\n"
                ));
            }
        }
        counters(&text)
    }

    #[test]
    fn stages_are_means_of_the_requests_answered_between_the_looks() {
        let before = stages_page(&[("Metadata", 1, [1.0; 3]), ("Produce", 100, [50.0, 1000.0, 5000.0])]);
        let after = stages_page(&[
            ("Fetch", 4, [0.0, 40.0, 2000.0]),
            ("Metadata", 9, [9.0; 3]),
            ("Produce", 300, [250.0, 3000.5, 105_000.0]),
        ]);
        let stages = |request: &str, requests, [request_queue_us, local_us, remote_us]: [f64; 3]| RequestStages {
            request: request.to_owned(),
            requests,
            request_queue_us,
            local_us,
            remote_us,
        };
        let facts = between("ringlog", before.clone(), after.clone());
        assert_eq!(
            facts.stages,
            [stages("Produce", 200, [1.0, 10.0025, 500.0]), stages("Fetch", 4, [0.0, 10.0, 500.0])]
        );
        assert_eq!(facts.counters, BTreeMap::new());
        assert_eq!(between("kafka", before, after).stages, []);
    }

    #[test]
    fn stages_of_no_requests_of_no_page_and_of_a_broker_started_anew_are_not_told() {
        let page = |requests| stages_page(&[("Produce", requests, [7.0; 3])]);
        for (before, after) in
            [(page(5), page(5)), (Counters::new(), page(5)), (page(5), Counters::new()), (page(5), page(2))]
        {
            assert_eq!(between("ringlog", before, after).stages, []);
        }
    }
}
