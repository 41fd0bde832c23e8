//! The OpenMessaging Benchmark's workload files in, its result files out.
//!
//! Pure. Owns the names of both. Read are flat files of `key: value` lines (all of its workloads are) and of `key = value`
//! lines (flat TOML), with `#` comments; nested YAML is refused by line. Always true: a key that would change the load and
//! is not understood is an error, never ignored; lists by period have one entry a second, quiet ones included. Written are the fields its chart scripts read: rates and latencies per
//! period (here one second, there ten), latencies in milliseconds, publish delays in microseconds, quantile maps.
//! Source: openmessaging/benchmark `Workload.java` and `TestResult.java`. Its "publish latency" is what we call service.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::recorder::decode;
use super::report::{Run, Second, Spread};

/// What a workload file asks for. `None` where it does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OmbWorkload {
    /// `name`.
    pub name: Option<String>,
    /// `partitionsPerTopic`.
    pub partitions: Option<u32>,
    /// `messageSize`, bytes.
    pub message_size: Option<u64>,
    /// `keyDistributor` is not `NO_KEY`.
    pub keyed: Option<bool>,
    /// `useRandomizedPayloads`: random rather than zeros.
    pub randomized: Option<bool>,
    /// `randomBytesRatio`: of a randomized payload, the share that is random; the rest is zeros.
    pub random_share: Option<f64>,
    /// `producersPerTopic`.
    pub producers: Option<u32>,
    /// `subscriptionsPerTopic`: consumer groups.
    pub groups: Option<u32>,
    /// `consumerPerSubscription`.
    pub consumers_per_group: Option<u32>,
    /// `producerRate`; `Some(None)` is its 0: search the largest.
    pub rate: Option<Option<f64>>,
    /// `testDurationMinutes`.
    pub minutes: Option<u64>,
    /// `warmupDurationMinutes`.
    pub warmup_minutes: Option<u64>,
    /// `payloadFile`, as it stands there.
    pub payload_file: Option<String>,
}

/// Reads a workload file. Errors: a sentence with the line's number.
pub fn read_workload(text: &str) -> Result<OmbWorkload, String> {
    let mut workload = OmbWorkload::default();
    for (line, index) in text.lines().zip(1..) {
        let at = |why: String| format!("line {index}: {why}");
        if line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---" {
            continue;
        }
        if line.starts_with([' ', '\t', '-', '[']) {
            return Err(at("only flat `key: value` lines are read".to_owned()));
        }
        let (key, value) = line.split_once([':', '=']).ok_or_else(|| at(format!("`{line}` is no `key: value`")))?;
        let (key, value) = (key.trim(), unquoted(value));
        let number =
            || value.replace('_', "").parse::<u64>().map_err(|_| at(format!("`{value}` is no number for {key}")));
        let small = || number().and_then(|number| u32::try_from(number).map_err(|_| at(format!("{key} is too large"))));
        let boolean = || match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(at(format!("{key} is true or false"))),
        };
        match key {
            "name" => workload.name = Some(value.to_owned()),
            "topics" => {
                if number()? != 1 {
                    return Err(at("one topic a run; start one run for each of several topics".to_owned()));
                }
            }
            "partitionsPerTopic" => workload.partitions = Some(small()?),
            "messageSize" => workload.message_size = Some(number()?),
            "keyDistributor" => match value {
                "NO_KEY" => workload.keyed = Some(false),
                "KEY_ROUND_ROBIN" | "RANDOM_NANO" => workload.keyed = Some(true),
                _ => return Err(at(format!("`{value}` is no keyDistributor"))),
            },
            "useRandomizedPayloads" => workload.randomized = Some(boolean()?),
            "payloadFile" => workload.payload_file = Some(value.to_owned()),
            "producersPerTopic" => workload.producers = Some(small()?),
            "subscriptionsPerTopic" => workload.groups = Some(small()?),
            "consumerPerSubscription" | "consumersPerSubscription" => workload.consumers_per_group = Some(small()?),
            "producerRate" => {
                let rate = number()?;
                workload.rate = Some((rate > 0).then_some(rate as f64));
            }
            "testDurationMinutes" => workload.minutes = Some(number()?),
            "warmupDurationMinutes" => workload.warmup_minutes = Some(number()?),
            "consumerBacklogSizeGB" => {
                if number()? != 0 {
                    return Err(at(
                        "a backlog phase is not part of this tool; run `bench produce`, then `bench consume`"
                            .to_owned(),
                    ));
                }
            }
            "randomBytesRatio" => {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                workload.random_share = Some(share.ok_or_else(|| at(format!("{key} lies between 0 and 1")))?);
            }
            // They shape the payload pool and the drain, not what is sent when.
            "randomizedPayloadPoolSize" | "backlogDrainRatio" | "logIntervalMillis" => {}
            _ => return Err(at(format!("`{key}` is no key of an OpenMessaging workload that is known here"))),
        }
    }
    Ok(workload)
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.0;
        }
    }
    value.split(" #").next().unwrap_or_default().trim()
}

/// Names of the eight numbers of a [`Spread`], as the result file closes its field names.
const SPREAD_NAMES: [&str; 8] = ["Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "Max"];

/// The result file of a run.
pub fn result(run: &Run) -> Value {
    let measured: Vec<&Second> = run.series.iter().filter(|second| second.measured).collect();
    let mut out = Map::new();
    let workload = &run.workload;
    let mut put = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
    put("workload", json!(if run.label.is_empty() { &run.kind } else { &run.label }));
    put("driver", json!(format!("ringlog-bench/{}", run.broker.software)));
    put("messageSize", json!(workload.record_size_mean as u64));
    put("topics", json!(1));
    put("partitions", json!(workload.partitions));
    put("producersPerTopic", json!(workload.producers));
    put("consumersPerTopic", json!(workload.consumers));
    put("publishRate", list(&measured, |second| second.acked as f64));
    put("publishErrorRate", list(&measured, |second| second.errors as f64));
    put("consumeRate", list(&measured, |second| second.consumed as f64));
    put("backlog", json!(backlog(run)));
    type Pick = fn(&Second) -> Option<Spread>;
    let spreads: [(&str, f64, Pick); 3] = [
        ("publishLatency", 1e-3, |second| second.service_us),
        ("publishDelayLatency", 1.0, |second| second.publish_delay_us),
        ("endToEndLatency", 1e-3, |second| second.end_to_end_us),
    ];
    for (prefix, factor, spread) in spreads {
        for (index, suffix) in SPREAD_NAMES.iter().enumerate() {
            let value = |second: &Second| spread(second).map_or(0.0, |spread| spread[index] as f64 * factor);
            put(&format!("{prefix}{suffix}"), list(&measured, value));
        }
    }
    let aggregates = [
        ("aggregatedPublishLatency", "service_us", 1e-3),
        ("aggregatedPublishDelayLatency", "publish_delay_us", 1.0),
        ("aggregatedEndToEndLatency", "end_to_end_us", 1e-3),
    ];
    for (prefix, name, factor) in aggregates {
        let histogram = run.histograms.get(name).and_then(|text| decode(text).ok());
        for (suffix, value) in SPREAD_NAMES.iter().zip(aggregate(histogram.as_ref())) {
            put(&format!("{prefix}{suffix}"), json!(value * factor));
        }
        put(&format!("{prefix}Quantiles"), json!(quantiles(histogram.as_ref(), factor)));
    }
    Value::Object(out)
}

/// Records that were acknowledged and not yet read, by every group, at the end of each measured second.
fn backlog(run: &Run) -> Vec<f64> {
    let readers = if run.workload.consumers > 0 { u64::from(run.workload.groups.max(1)) } else { 0 };
    let (mut readable, mut consumed) = (0, 0);
    let each = run.series.iter().map(|second| {
        readable += second.acked * readers;
        consumed += second.consumed;
        (second.measured, readable.saturating_sub(consumed) as f64)
    });
    each.filter(|(measured, _)| *measured).map(|(_, backlog)| backlog).collect()
}

fn list(seconds: &[&Second], pick: impl Fn(&Second) -> f64) -> Value {
    json!(seconds.iter().map(|second| pick(second)).collect::<Vec<f64>>())
}

fn aggregate(histogram: Option<&Histogram<u64>>) -> [f64; 8] {
    let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else { return [0.0; 8] };
    let at = |quantile| histogram.value_at_quantile(quantile) as f64;
    [histogram.mean(), at(0.5), at(0.75), at(0.95), at(0.99), at(0.999), at(0.9999), histogram.max() as f64]
}

/// Percentile to value, as its quantile charts read them.
fn quantiles(histogram: Option<&Histogram<u64>>, factor: f64) -> BTreeMap<String, f64> {
    let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) else { return BTreeMap::new() };
    histogram
        .iter_quantiles(5)
        .map(|step| (format!("{}", step.quantile_iterated_to() * 100.0), step.value_iterated_to() as f64 * factor))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::recorder::{encode, histogram};

    #[test]
    fn a_shipped_workload_is_read_and_so_is_its_toml_form() {
        let yaml = "# SPDX\nname: 1-topic-16-partitions-1kb\n\ntopics: 1\npartitionsPerTopic: 16\nkeyDistributor: \"NO_KEY\"\nmessageSize: 1024\n\
                    payloadFile: \"payload/payload-1Kb.data\"\nsubscriptionsPerTopic: 1\nconsumerPerSubscription: 4\nproducersPerTopic: 4\n\
                    producerRate: 50000\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: 15\n";
        let workload = read_workload(yaml).unwrap();
        assert_eq!((workload.partitions, workload.message_size, workload.producers), (Some(16), Some(1024), Some(4)));
        assert_eq!((workload.rate, workload.minutes, workload.keyed), (Some(Some(50_000.0)), Some(15), Some(false)));
        assert_eq!(read_workload(&yaml.replace(": ", " = ")), Ok(workload));
        assert_eq!(read_workload("producerRate: 0").unwrap().rate, Some(None));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_line() {
        for (text, part) in [
            ("name: a\nflux: 3", "line 2"),
            ("topics: 5", "one topic"),
            ("name: a\n  - a", "line 2"),
            ("messageSize: big", "no number"),
            ("consumerBacklogSizeGB: 100", "backlog"),
            ("randomBytesRatio: 1.5", "between 0 and 1"),
        ] {
            let why = read_workload(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn lists_have_an_entry_a_second_and_the_backlog_is_what_groups_have_not_read() {
        let mut run = Run::default();
        (run.workload.consumers, run.workload.groups) = (1, 2);
        let second = |measured, acked, consumed| Second { measured, acked, consumed, ..Second::default() };
        run.series = vec![second(false, 10, 15), second(true, 20, 25), second(true, 0, 0), second(true, 0, 20)];
        run.series[1].service_us = Some([1000; 8]);
        let json = result(&run);
        assert_eq!(json["backlog"], json!([20.0, 20.0, 0.0]));
        assert_eq!(json["publishLatency99pct"], json!([1.0, 0.0, 0.0]));
        assert_eq!(json["publishRate"], json!([20.0, 0.0, 0.0]));
    }

    #[test]
    fn the_result_has_the_names_chart_scripts_read() {
        let mut run = Run::default();
        let mut service = histogram();
        [1000, 2000, 50_000].iter().for_each(|value| service.saturating_record(*value));
        run.histograms.insert("service_us".to_owned(), encode(&service));
        run.series.push(Second { measured: true, acked: 100, service_us: Some([1000; 8]), ..Second::default() });
        let json = result(&run);
        assert_eq!(json["publishRate"], json!([100.0]));
        assert_eq!(json["publishLatency99pct"], json!([1.0]));
        assert!((json["aggregatedPublishLatencyMax"].as_f64().unwrap() - 50.0).abs() < 0.1);
        assert!(json["aggregatedPublishLatencyQuantiles"].as_object().unwrap().len() > 2);
        for name in [
            "consumeRate",
            "backlog",
            "publishErrorRate",
            "publishDelayLatency99pct",
            "endToEndLatencyAvg",
            "endToEndLatency95pct",
            "aggregatedEndToEndLatencyQuantiles",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }
}
