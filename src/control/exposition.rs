//! The text of `/metrics`: Kafka's names as the JMX exporter spells them, kafka_exporter's names, and our own.
//!
//! Shell, but only to count descriptors: takes what one scrape gathered, gives OpenMetrics text (the format library is
//! `prometheus-client`). Owns the names
//! and their help; counts nothing itself. Always: a name carries its unit, label sets are small and known, and per-topic
//! rows exist only for topics that exist. Source of the Kafka names: the metric groups of Kafka's monitoring page in the
//! JMX exporter's usual spelling (`…PerSec` becomes `…_total`), which existing dashboards query.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::groups::GroupFacts;
use crate::metrics::{API_KEYS, ApiLatencies, ShardMetrics, Stage};
use crate::protocol::ApiKey;
use crate::shard::calls::{MetricsReport, PartitionFacts, ShardFacts};

/// What one scrape gathered.
pub struct Scrape {
    /// By shard index.
    pub shards: Vec<ShardScrape>,
    /// Groups with what they have committed; only for [`Detail::PerPartition`].
    pub groups: Vec<GroupFacts>,
    /// Since the broker was ready.
    pub uptime: Duration,
    /// This broker.
    pub node_id: i32,
    /// Advertised `host:port`.
    pub address: String,
}

/// One shard's part.
pub struct ShardScrape {
    /// Counters, readable even when the shard hangs.
    pub counters: Arc<ShardMetrics>,
    /// Gauges and histograms; `None` when the shard did not answer in time.
    pub report: Option<Box<MetricsReport>>,
    /// Partitions; `None` when the shard did not answer in time.
    pub facts: Option<Box<ShardFacts>>,
}

/// Whether rows of single topics and partitions are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// All series: `/metrics`.
    PerPartition,
    /// Sums only, of a size that does not grow with the number of topics: `/public_metrics`.
    Sums,
}

/// The exposition of `scrape`.
pub fn render(scrape: &Scrape, detail: Detail) -> String {
    let mut page = Page::default();
    broker_rows(&mut page, scrape);
    request_rows(&mut page, scrape);
    shard_rows(&mut page, scrape);
    if detail == Detail::PerPartition {
        partition_rows(&mut page, scrape);
        group_rows(&mut page, scrape);
    }
    page.text()
}

fn partitions(scrape: &Scrape) -> impl Iterator<Item = &PartitionFacts> {
    scrape.shards.iter().filter_map(|shard| shard.facts.as_deref()).flat_map(|facts| &facts.partitions)
}

fn reports(scrape: &Scrape) -> impl Iterator<Item = &MetricsReport> {
    scrape.shards.iter().filter_map(|shard| shard.report.as_deref())
}

fn counted(scrape: &Scrape, of: impl Fn(&ShardMetrics) -> u64) -> f64 {
    scrape.shards.iter().map(|shard| of(&shard.counters)).sum::<u64>() as f64
}

/// Kafka's broker-wide names.
fn broker_rows(page: &mut Page, scrape: &Scrape) {
    let led = reports(scrape).map(|report| report.partitions).sum::<usize>() as f64;
    let offline = reports(scrape).map(|report| report.partitions_offline).sum::<usize>() as f64;
    page.gauge("kafka_server_replicamanager_leadercount", "Partitions this broker leads", led);
    page.gauge("kafka_server_replicamanager_partitioncount", "Partitions this broker hosts", led + offline);
    page.gauge("kafka_server_replicamanager_offlinereplicacount", "Partitions whose log failed", offline);
    page.gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions with fewer in sync than replicas",
        0.0,
    );
    page.gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader", offline);
    page.gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller", 1.0);
    page.gauge("kafka_brokers", "Brokers of the cluster", 1.0);
    let labels = vec![("id", scrape.node_id.to_string()), ("address", scrape.address.clone())];
    page.row("kafka_broker_info", "Who the brokers are", Kind::Gauge, labels, 1.0);
    page.gauge("process_open_fds", "Open file descriptors of this process", open_descriptors());
    page.gauge("ringlog_uptime_seconds", "Since this broker was ready", scrape.uptime.as_secs_f64());

    let all = Vec::new;
    let topics = "kafka_server_brokertopicmetrics";
    for (name, help, value) in [
        ("bytesin", "Bytes of batches appended", counted(scrape, |shard| shard.produce_bytes.value())),
        ("bytesout", "Bytes of batches sent to consumers", counted(scrape, |shard| shard.fetch_bytes.value())),
        ("messagesin", "Records appended", counted(scrape, |shard| shard.produce_records.value())),
        ("totalproducerequests", "Produce requests", counted(scrape, |shard| requests_of(shard, 0))),
        ("totalfetchrequests", "Fetch requests", counted(scrape, |shard| requests_of(shard, 1))),
        (
            "failedproducerequests",
            "Partitions of produce requests refused",
            counted(scrape, |shard| shard.produce_errors.value()),
        ),
        (
            "failedfetchrequests",
            "Partitions of fetch requests refused",
            counted(scrape, |shard| shard.fetch_errors.value()),
        ),
    ] {
        page.row(&format!("{topics}_{name}"), help, Kind::Counter, all(), value);
    }
    let open = counted(scrape, ShardMetrics::connections_open);
    page.gauge("kafka_server_socket_server_metrics_connection_count", "Open connections", open);
}

fn requests_of(shard: &ShardMetrics, key: usize) -> u64 {
    shard.requests.get(key).map_or(0, crate::metrics::Counter::value)
}

/// Requests and their times, by API.
fn request_rows(page: &mut Page, scrape: &Scrape) {
    let mut times: BTreeMap<i16, ApiLatencies> = BTreeMap::new();
    for report in reports(scrape) {
        for (key, latencies) in &report.latencies {
            times.entry(*key).and_modify(|sum| sum.add(latencies)).or_insert_with(|| latencies.clone());
        }
    }
    for key in 0..API_KEYS {
        let count = counted(scrape, |shard| requests_of(shard, key));
        if count > 0.0 {
            let labels = vec![("request", api_name(key as i16))];
            page.row("kafka_network_requestmetrics_requests", "Requests by API", Kind::Counter, labels, count);
        }
        stage_rows(page, scrape, key);
    }
    for (key, latencies) in &times {
        let stages = Stage::ALL.iter().zip(&latencies.stages).map(|(stage, histogram)| {
            let (name, help) = kafkas_stage(*stage);
            (name, help, histogram)
        });
        let help = "Milliseconds from the request read to its answer queued; what the socket takes is not in it";
        for (name, help, histogram) in std::iter::once(("totaltimems", help, &latencies.total)).chain(stages) {
            for (label, quantile) in [("0.50", 0.5), ("0.95", 0.95), ("0.99", 0.99), ("0.999", 0.999)] {
                let labels = vec![("request", api_name(*key)), ("quantile", label.to_owned())];
                let millis = histogram.value_at_quantile(quantile) as f64 / 1000.0;
                page.row(&format!("kafka_network_requestmetrics_{name}"), help, Kind::Gauge, labels, millis);
            }
        }
    }
}

/// Kafka's name for a stage, and what it is here. Kafka's ResponseQueueTimeMs and ResponseSendTimeMs are missing: answers leave
/// a turn at a time, and when one of them is with the kernel is not seen.
fn kafkas_stage(stage: Stage) -> (&'static str, &'static str) {
    match stage {
        Stage::RequestQueue => (
            "requestqueuetimems",
            "Milliseconds from the request read to its turn: waits for requests of its connection before it. Waits for memory come before it is read and are not in it",
        ),
        Stage::Local => (
            "localtimems",
            "Milliseconds of checking and reading, also from disk; all of a request that is in no other stage",
        ),
        Stage::Remote => (
            "remotetimems",
            "Milliseconds of waiting: Produce from its append to its acknowledgement (of other shards: with the way there and back), Fetch for data, JoinGroup and SyncGroup for the coordinator and the other members. The answer is queued next; no row tells what the socket takes",
        ),
    }
}

/// The sums behind the stages of one API: what a bench takes the difference of. No rows for an API that nobody used.
fn stage_rows(page: &mut Page, scrape: &Scrape, key: usize) {
    let requests = counted(scrape, |shard| shard.requests_staged[key].value());
    if requests == 0.0 {
        return;
    }
    let request = || ("request", api_name(key as i16));
    let help = "Answered requests whose stages are in ringlog_request_stage_microseconds";
    page.row("ringlog_requests_staged", help, Kind::Counter, vec![request()], requests);
    for (index, stage) in Stage::ALL.into_iter().enumerate() {
        let nanos = counted(scrape, |shard| shard.stage_nanos[key][index].value());
        let name = match stage {
            Stage::RequestQueue => "request_queue",
            Stage::Local => "local",
            Stage::Remote => "remote",
        };
        let help = "Time of answered requests in each stage; see kafka_network_requestmetrics";
        let labels = vec![request(), ("stage", name.to_owned())];
        page.row("ringlog_request_stage_microseconds", help, Kind::Counter, labels, nanos / 1e3);
    }
}

fn api_name(key: i16) -> String {
    ApiKey::from_number(key).map_or_else(|| format!("key{key}"), |api| api.name().to_owned())
}

/// Our own names, by shard.
fn shard_rows(page: &mut Page, scrape: &Scrape) {
    for (index, shard) in scrape.shards.iter().enumerate() {
        let labels = || vec![("shard", index.to_string())];
        for (name, value) in shard.counters.named() {
            page.row(&format!("ringlog_{name}"), "See src/metrics.rs", Kind::Counter, labels(), value as f64);
        }
        let Some(report) = shard.report.as_deref() else { continue };
        let (log, net, memory) = (report.log, report.net, report.memory);
        for (name, help, value) in [
            ("log_appended_bytes", "Bytes appended to logs", log.appended_bytes),
            ("log_append_copied_bytes", "Bytes copied in user space on the append path", log.append_copied_bytes),
            ("log_writes", "Direct writes", log.writes),
            ("log_written_bytes", "Bytes written to segment files", log.written_bytes),
            ("log_prewritten_bytes", "Bytes of zeroes written ahead of small writes", log.prewritten_bytes),
            ("log_flushes", "fdatasync calls", log.flushes),
            ("log_cache_read_bytes", "Bytes read from tail caches", log.cache_read_bytes),
            ("log_disk_read_bytes", "Bytes read from disk", log.disk_read_bytes),
            ("net_turns", "Turns of the net loop", net.turns),
            ("net_full_turns", "Turns in which glommio's rings were served", net.full_turns),
            ("net_lingers", "Waits in the shard's own epoll", net.lingers),
            ("watchdog_kicks", "Times the standing shard was woken from outside", net.kicks),
            ("net_parks", "Times the executor slept", net.parks),
            ("net_reads_paused", "Connections not read for want of room in their answer queue", net.paused),
        ] {
            page.row(&format!("ringlog_{name}"), help, Kind::Counter, labels(), value as f64);
        }
        for (part, bytes) in [
            ("requests", memory.requests),
            ("tail_cache", memory.tail_cache),
            ("pending_writes", memory.pending_writes),
            ("read_answers", memory.read_answers),
            ("queued_answers", memory.queued_answers),
            ("pinned", memory.pinned),
        ] {
            let labels = vec![("shard", index.to_string()), ("part", part.to_owned())];
            page.row("ringlog_memory_bytes", "Parts of the shard's memory budget", Kind::Gauge, labels, bytes as f64);
        }
        let limit = memory.limit as f64;
        page.row("ringlog_memory_limit_bytes", "The shard's memory budget", Kind::Gauge, labels(), limit);
        let limit = memory.answers_limit as f64;
        let help =
            "What answers to fetches may hold beside the first batch of each: of read_answers and queued_answers";
        page.row("ringlog_memory_answers_limit_bytes", help, Kind::Gauge, labels(), limit);
        let waiting = memory.requests_waiting as f64;
        page.row("ringlog_memory_requests_waiting", "Frames waiting for memory", Kind::Gauge, labels(), waiting);
        page.row("ringlog_shard_connections", "Open connections", Kind::Gauge, labels(), net.connections as f64);
        page.row("ringlog_shard_partitions", "Partitions owned", Kind::Gauge, labels(), report.partitions as f64);
    }
}

/// Rows of single partitions, and sums by topic.
fn partition_rows(page: &mut Page, scrape: &Scrape) {
    let mut topics: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for facts in partitions(scrape) {
        let labels = || vec![("topic", facts.topic.clone()), ("partition", facts.partition.to_string())];
        for (name, help, value) in [
            ("kafka_log_log_size", "Bytes of all segments", facts.size_bytes as f64),
            ("kafka_log_log_logstartoffset", "First offset a client may read", facts.log_start_offset as f64),
            ("kafka_log_log_logendoffset", "Next offset to be given", facts.log_end_offset as f64),
            ("kafka_log_log_numlogsegments", "Segments", facts.segments as f64),
            ("kafka_topic_partition_oldest_offset", "First offset a client may read", facts.log_start_offset as f64),
            ("kafka_topic_partition_current_offset", "High watermark", facts.high_watermark as f64),
            ("kafka_topic_partition_leader", "Broker that leads", f64::from(scrape.node_id)),
            ("kafka_topic_partition_replicas", "Replicas", 1.0),
            ("kafka_topic_partition_in_sync_replica", "In-sync replicas", 1.0),
            ("kafka_topic_partition_under_replicated_partition", "1 if not all replicas are in sync", 0.0),
            ("kafka_cluster_partition_underminisr", "1 if below min.insync.replicas", 0.0),
            ("ringlog_partition_flushed_offset", "Everything below is synced", facts.flushed_offset as f64),
        ] {
            page.row(name, help, Kind::Gauge, labels(), value);
        }
        let sums = topics.entry(&facts.topic).or_default();
        for (sum, value) in sums.iter_mut().zip([1, facts.bytes_in, facts.bytes_out, facts.records_in]) {
            *sum += value;
        }
    }
    for (topic, [count, bytes_in, bytes_out, records_in]) in topics {
        let labels = || vec![("topic", topic.to_owned())];
        page.row("kafka_topic_partitions", "Partitions of the topic", Kind::Gauge, labels(), count as f64);
        for (name, help, value) in [
            ("kafka_server_brokertopicmetrics_bytesin", "Bytes of batches appended", bytes_in),
            ("kafka_server_brokertopicmetrics_bytesout", "Bytes of batches sent to consumers", bytes_out),
            ("kafka_server_brokertopicmetrics_messagesin", "Records appended", records_in),
        ] {
            page.row(name, help, Kind::Counter, labels(), value as f64);
        }
    }
}

/// kafka_exporter's names for groups.
fn group_rows(page: &mut Page, scrape: &Scrape) {
    for group in &scrape.groups {
        let name = || ("consumergroup", group.group.clone());
        let members = group.members.len() as f64;
        page.row("kafka_consumergroup_members", "Members of the group", Kind::Gauge, vec![name()], members);
        let mut sums: BTreeMap<&str, [i64; 2]> = BTreeMap::new();
        for offset in &group.offsets {
            let labels = || vec![name(), ("topic", offset.topic.clone()), ("partition", offset.partition.to_string())];
            let committed = offset.committed as f64;
            page.row("kafka_consumergroup_current_offset", "Next offset to be read", Kind::Gauge, labels(), committed);
            if let Some(lag) = offset.lag {
                page.row("kafka_consumergroup_lag", "Records not read yet", Kind::Gauge, labels(), lag as f64);
            }
            let sum = sums.entry(&offset.topic).or_default();
            sum[0] += offset.committed;
            sum[1] += offset.lag.unwrap_or(0);
        }
        for (topic, [committed, lag]) in sums {
            let labels = || vec![name(), ("topic", topic.to_owned())];
            let help = "Sum over the topic's partitions";
            page.row("kafka_consumergroup_current_offset_sum", help, Kind::Gauge, labels(), committed as f64);
            page.row("kafka_consumergroup_lag_sum", help, Kind::Gauge, labels(), lag as f64);
        }
    }
}

fn open_descriptors() -> f64 {
    std::fs::read_dir("/proc/self/fd").map_or(0.0, |entries| entries.count() as f64)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Counter,
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Family {
    help: String,
    kind: Kind,
    rows: Vec<(Labels, f64)>,
}

/// Rows gathered under their names, in the order of the names.
#[derive(Default, Debug)]
struct Page {
    families: BTreeMap<String, Family>,
}

impl Page {
    fn row(&mut self, name: &str, help: &str, kind: Kind, labels: Labels, value: f64) {
        self.families
            .entry(name.to_owned())
            .or_insert_with(|| Family { help: help.to_owned(), kind, rows: Vec::new() })
            .rows
            .push((labels, value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.row(name, help, Kind::Gauge, Vec::new(), value);
    }

    fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String does not fail");
        // The library writes an empty label set as braces; scripts that cut at the first blank do not expect them.
        text.replace("{} ", " ")
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, family) in &self.families {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut rows = encoder.encode_descriptor(name, &family.help, None, kind)?;
            for (labels, value) in &family.rows {
                let row = rows.encode_family(labels)?;
                match family.kind {
                    Kind::Counter => ConstCounter::new(*value).encode(row)?,
                    Kind::Gauge => ConstGauge::new(*value).encode(row)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::metrics::{Latencies, Stages};

    /// A shard that did nothing, and says so.
    fn idle_shard() -> ShardScrape {
        ShardScrape {
            counters: Arc::new(ShardMetrics::default()),
            report: Some(Box::new(MetricsReport {
                latencies: Vec::new(),
                log: Default::default(),
                net: Default::default(),
                memory: Default::default(),
                partitions: 0,
                partitions_offline: 0,
                log_bytes: 0,
            })),
            facts: None,
        }
    }

    fn scrape(shards: Vec<ShardScrape>) -> Scrape {
        Scrape { shards, groups: Vec::new(), uptime: Duration::ZERO, node_id: 1, address: String::new() }
    }

    #[test]
    fn counters_that_bench_reads_by_shard_are_there_for_each() {
        let text = render(&scrape(vec![idle_shard(), idle_shard()]), Detail::Sums);
        for name in [
            "produce_batches",
            "produce_bytes",
            "fetch_bytes",
            "log_writes",
            "log_written_bytes",
            "log_prewritten_bytes",
            "net_full_turns",
            "net_parks",
            "watchdog_kicks",
        ] {
            let line = format!("ringlog_{name}_total{{shard=\"1\"}} 0.0");
            assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
        }
    }

    #[test]
    fn stages_are_summed_over_shards_for_each_api_that_was_used() {
        let nanos = |nanos| Duration::from_nanos(nanos);
        let read_at = Instant::now();
        let (begun_at, now) = (read_at + nanos(500), read_at + nanos(5500));
        let times = Stages { read_at, begun_at, waited: nanos(4000) }.ended(now);
        let latencies = Latencies::default();
        latencies.record(1, &times);
        let shard = || {
            let shard = idle_shard();
            shard.counters.count_stages(1, &times);
            let report = Box::new(MetricsReport { latencies: latencies.snapshot(), ..*shard.report.unwrap() });
            ShardScrape { report: Some(report), ..shard }
        };
        let text = render(&scrape(vec![shard(), shard()]), Detail::Sums);
        for line in [
            "ringlog_requests_staged_total{request=\"Fetch\"} 2.0",
            "ringlog_request_stage_microseconds_total{request=\"Fetch\",stage=\"request_queue\"} 1.0",
            "ringlog_request_stage_microseconds_total{request=\"Fetch\",stage=\"local\"} 2.0",
            "ringlog_request_stage_microseconds_total{request=\"Fetch\",stage=\"remote\"} 8.0",
            "kafka_network_requestmetrics_totaltimems{request=\"Fetch\",quantile=\"0.99\"} 0.005",
            "kafka_network_requestmetrics_requestqueuetimems{request=\"Fetch\",quantile=\"0.99\"} 0.0",
            "kafka_network_requestmetrics_localtimems{request=\"Fetch\",quantile=\"0.99\"} 0.001",
            "kafka_network_requestmetrics_remotetimems{request=\"Fetch\",quantile=\"0.99\"} 0.004",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
        }
        assert!(!text.contains("{request=\"Produce\""));
    }

    #[test]
    fn names_that_dashboards_ask_for_are_there_with_their_sums() {
        let counters = Arc::new(ShardMetrics::default());
        counters.count_request(0);
        counters.produce_bytes.add(1000);
        let partition = PartitionFacts { topic: "orders".to_owned(), bytes_in: 1000, ..PartitionFacts::default() };
        let facts = Box::new(ShardFacts { partitions: vec![partition], ..ShardFacts::default() });
        let scrape = Scrape {
            shards: vec![ShardScrape { counters, report: None, facts: Some(facts) }],
            groups: Vec::new(),
            uptime: Duration::from_secs(3),
            node_id: 1,
            address: "localhost:9092".to_owned(),
        };
        let text = render(&scrape, Detail::PerPartition);
        for line in [
            "kafka_server_brokertopicmetrics_bytesin_total 1000.0",
            "kafka_server_brokertopicmetrics_bytesin_total{topic=\"orders\"} 1000.0",
            "kafka_network_requestmetrics_requests_total{request=\"Produce\"} 1.0",
            "kafka_topic_partitions{topic=\"orders\"} 1.0",
            "ringlog_uptime_seconds 3.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
        }
        assert!(!render(&scrape, Detail::Sums).contains("orders"));
    }
}
