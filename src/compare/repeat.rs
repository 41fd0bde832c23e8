//! The command that does one load of a comparison alone.
//!
//! Pure. Owns how a plan is written as a call of `ringlog bench`. Always true: the call makes the same plan; what a plan has by
//! default in `bench` is left out where it is the same there.

use super::targets::{list, quoted};
use crate::bench::plan::{Kind, Plan, Verify};
use crate::bench::schedule::Rate;
use crate::bench::workload::{Keys, Payload, Sizes};

/// A call of `ringlog bench`; `topic` where the plan does not make its own.
pub(super) fn command(plan: &Plan, topic: Option<&str>) -> String {
    let mut words: Vec<String> = vec!["ringlog".to_owned(), "bench".to_owned(), plan.kind.name().to_owned()];
    let mut add = |flag: &str, value: String| {
        words.push(flag.to_owned());
        words.push(quoted(&value));
    };
    add("-b", plan.bootstrap.clone());
    if let Some(topic) = topic {
        add("-t", topic.to_owned());
    }
    if plan.kind.produces() {
        add("--partitions", plan.partitions.to_string());
        for (name, value) in &plan.topic_settings {
            add("--topic-config", format!("{name}={value}"));
        }
        add("--producers", plan.producers.to_string());
        add("--size", size(&plan.workload.sizes));
        if plan.workload.payload != Payload::Random {
            add("--payload", plan.workload.payload.name().to_owned());
        }
        if let Some(keys) = keys(&plan.workload.keys) {
            add("--keys", keys);
        }
        add("--rate", rate(plan.rate));
        add("--acks", plan.acks.clone());
        add("--batch-size", plan.batch_size.to_string());
        add("--linger", format!("{}ms", plan.linger.as_millis()));
        if plan.compression != "none" {
            add("--compression", plan.compression.clone());
        }
        if plan.in_flight != 5 {
            add("--in-flight", plan.in_flight.to_string());
        }
        if let Some(idempotence) = plan.idempotence {
            add("--idempotence", idempotence.to_string());
        }
        if let Some(outstanding) = plan.outstanding {
            add("--outstanding", outstanding.to_string());
        }
        if plan.verify == Verify::Off {
            add("--verify", "off".to_owned());
        }
        add("--seed", plan.workload.seed.to_string());
    }
    if plan.kind.consumes() {
        add("--consumers", plan.consumers.to_string());
        add("--groups", plan.groups.to_string());
    }
    if matches!(plan.kind, Kind::Idle | Kind::ConnectStorm) {
        add("--connections", plan.connections.to_string());
    }
    add("--duration", format!("{}ms", plan.duration.as_millis()));
    add("--warmup", format!("{}ms", plan.warmup.as_millis()));
    if plan.threads != 1 {
        add("--threads", plan.threads.to_string());
    }
    if !plan.pin.is_empty() {
        add("--pin", list(&plan.pin));
    }
    for (name, value) in &plan.settings {
        add("-X", format!("{name}={value}"));
    }
    if let Some(records) = plan.records {
        add("--records", records.to_string());
    }
    words.extend(
        [(!plan.until_steady, "--no-steady"), (!plan.ceilings, "--no-ceilings"), (plan.prebuilt, "--prebuilt")]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, flag)| flag.to_owned()),
    );
    words.join(" ")
}

fn rate(rate: Rate) -> String {
    match rate {
        Rate::Max => "max".to_owned(),
        Rate::Fixed(rate) => format!("{rate:.0}"),
        Rate::Ramp(from, to) => format!("ramp:{from:.0}..{to:.0}"),
    }
}

fn size(sizes: &Sizes) -> String {
    match sizes {
        Sizes::Fixed(bytes) => bytes.to_string(),
        Sizes::Uniform(from, to) => format!("dist:uniform:{from}..{to}"),
        Sizes::LogNormal { median, sigma, max } => format!("dist:lognormal:{median},{sigma},{max}"),
        // No workload of a comparison draws from a file.
        Sizes::Sample(_) => "file:SIZES".to_owned(),
    }
}

fn keys(keys: &Keys) -> Option<String> {
    match keys {
        Keys::None => None,
        Keys::Uniform(count) => Some(format!("uniform:{count}")),
        Keys::Zipf(count, power) => Some(format!("zipf:{count},{power}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::presets::{Preset, cells};

    #[test]
    fn a_load_is_written_as_the_call_that_makes_it() {
        let cells = cells(Preset::Quick, &Preset::Quick.pacing(), 7);
        let of = |key: &str| {
            let plan = &cells.iter().find(|cell| cell.key == key).unwrap().plan;
            command(&Plan { bootstrap: "h:1".to_owned(), pin: vec![1], ..plan.clone() }, None)
        };
        assert_eq!(
            of("W4"),
            "ringlog bench produce -b h:1 --partitions 16 --producers 64 --size 100 --rate max --acks all --batch-size 16384 \
             --linger 0ms --outstanding 1 --verify off --seed 7 --duration 2000ms --warmup 0ms --pin 1 --no-steady --no-ceilings"
        );
        assert!(of("cost-256KiB").ends_with("--prebuilt"));
        assert!(of("W10@25%").starts_with("ringlog bench e2e -b h:1"));
    }
}
