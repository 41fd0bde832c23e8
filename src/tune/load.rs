//! The user's load: stated, or read off a topic.
//!
//! Pure. Owns what a load is and how records of a topic become one (`--like`). Does not own reading them (`like`). Always true: a
//! load is text that its user could have written, so that it can be shown, kept in the journal and stated again; what could
//! not be told from the sample says so.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::LoadShape;
use crate::bench::plan::{Plan, TopicPlan};
use crate::bench::schedule::Rate;
use crate::bench::units;
use crate::bench::workload::{KEY_BYTES, Keys, Payload, Sizes, Workload};

/// Fewer records than this describe no topic.
pub const SAMPLE_MIN: usize = 100;
/// A fixed size is told from a spread one by this: standard deviation over mean.
const FIXED_SPREAD: f64 = 0.02;
/// The most keys a generator draws from.
const KEYS_MAX: f64 = 1e7;

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Records per second, or `max`.
    pub rate: String,
    /// Of the values: `1KiB`, `dist:lognormal:…`.
    pub size: String,
    /// `random`, `text`, `json`, `zeros`.
    pub payload: String,
    /// `none`, `uniform:N`, `zipf:N,POWER`.
    pub keys: String,
    /// Of the topic.
    pub partitions: u32,
    /// How many.
    pub producers: u32,
    /// Readers while measuring; latency is then end to end.
    pub consumers: u32,
    /// `all`, `1`, `0`.
    pub acks: String,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            rate: "max".to_owned(),
            size: "1KiB".to_owned(),
            payload: Payload::Json.name().to_owned(),
            keys: "none".to_owned(),
            partitions: 6,
            producers: 1,
            consumers: 0,
            acks: "all".to_owned(),
        }
    }
}

impl Load {
    /// The rate as the generator takes it. Errors: not readable, or a ramp, which is no load to tune for.
    pub fn rate(&self) -> Result<Rate, String> {
        match self.rate.parse()? {
            Rate::Ramp(..) => Err("--rate is a ramp; tune for the rate you have, or for max".to_owned()),
            rate => Ok(rate),
        }
    }

    /// Records per second, where it is fixed.
    pub fn offered(&self) -> Option<f64> {
        match self.rate() {
            Ok(Rate::Fixed(rate)) => Some(rate),
            _ => None,
        }
    }

    /// The records as the generator takes them.
    pub fn workload(&self, seed: u64) -> Result<Workload, String> {
        let keys: Keys = self.keys.parse()?;
        Ok(Workload { sizes: self.size.parse()?, payload: self.payload.parse()?, keys, seed })
    }

    /// Bytes of a record: value and key.
    pub fn record_bytes(&self) -> f64 {
        let value = self.size.parse::<Sizes>().map_or(1024.0, |sizes| sizes.mean());
        value + if self.is_keyed() { KEY_BYTES as f64 } else { 0.0 }
    }

    fn is_keyed(&self) -> bool {
        self.keys != "none"
    }

    /// What the model must know.
    pub fn shape(&self, cores: u32) -> LoadShape {
        LoadShape {
            rate: self.offered(),
            record_bytes: self.record_bytes(),
            producers: f64::from(self.producers.max(1)),
            keyed: self.is_keyed(),
            cores: f64::from(cores.max(1)),
        }
    }

    /// In a line.
    pub fn sentence(&self) -> String {
        let plural = |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let rate = match self.offered() {
            Some(rate) => format!("{} records/s", units::grouped(rate as u64)),
            None => "as fast as answers come".to_owned(),
        };
        let size = self.size.parse::<Sizes>().map_or_else(|_| self.size.clone(), |sizes| sizes.to_string());
        let keys = match self.keys.parse::<Keys>() {
            Ok(Keys::None) | Err(_) => "no keys".to_owned(),
            Ok(keys) => format!("keys {keys}"),
        };
        let readers =
            if self.consumers > 0 { format!(", {}", plural(self.consumers, "consumer")) } else { String::new() };
        format!(
            "{rate} of {size} ({}), {keys}, {}, {}{readers}, acks={}",
            self.payload,
            plural(self.partitions, "partition"),
            plural(self.producers, "producer"),
            self.acks
        )
    }
}

/// Where trials go, and how: what changes the numbers beside the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// Client settings that are held fixed. Those that let one in are not told: some are secrets.
    pub settings: BTreeMap<String, String>,
    /// Written to; absent where a topic is made for each trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Of topics that are made.
    pub topic_settings: BTreeMap<String, String>,
    /// Of topics that are made; -1 leaves it to the broker.
    pub replication: i16,
    /// Of the generator.
    pub threads: u32,
    /// The broker's process, where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl Connection {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Self {
        let lets_in = |name: &str| name.starts_with("sasl.") || name.starts_with("ssl.");
        Self {
            settings: plan.settings.iter().filter(|(name, _)| !lets_in(name)).cloned().collect(),
            topic: match &plan.topic {
                TopicPlan::Named(name) => Some(name.clone()),
                TopicPlan::Own => None,
            },
            topic_settings: plan.topic_settings.iter().cloned().collect(),
            replication: plan.replication,
            threads: plan.threads,
            pid: plan.pid,
        }
    }
}

/// What was asked: two journals with the same answer to this question may be joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// `tune` or `grid`.
    pub mode: String,
    /// Of the cluster.
    pub bootstrap: String,
    /// What is sent.
    pub load: Load,
    /// Where to, and how.
    #[serde(default)]
    pub connection: Connection,
    /// `latency`, `throughput`, `cost`.
    pub target: String,
    /// Empty when nothing must hold.
    pub slo: String,
    /// All knobs with all levels.
    pub space: String,
    /// Seconds; of a grid, those of a cell.
    pub budget_seconds: u64,
    /// Seconds before each trial.
    pub warmup_seconds: u64,
    /// Of everything random.
    pub seed: u64,
}

impl Asked {
    /// What differs, with both values; `None` when nothing does.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let value = |asked: &Self| serde_json::to_value(asked).unwrap_or_default();
        first_difference("", &value(self), &value(other))
    }
}

fn first_difference(name: &str, mine: &serde_json::Value, theirs: &serde_json::Value) -> Option<String> {
    use serde_json::Value::Object;
    match (mine, theirs) {
        (Object(mine), Object(theirs)) => mine.keys().chain(theirs.keys()).find_map(|key| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            let of = |object: &serde_json::Map<String, serde_json::Value>| object.get(key).cloned().unwrap_or_default();
            first_difference(&name, &of(mine), &of(theirs))
        }),
        _ if mine == theirs => None,
        _ => Some(format!("{name} was {mine} and is {theirs} now")),
    }
}

/// One record of a topic, as far as a load needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its partition.
    pub partition: i32,
    /// Milliseconds.
    pub timestamp: i64,
    /// A hash of its key; absent without one.
    pub key: Option<u64>,
    /// Of its value.
    pub value_bytes: u64,
}

/// What a topic's records say.
#[derive(Clone, Debug, PartialEq)]
pub struct Likeness {
    /// Records per second over the sampled stretch; absent when timestamps do not tell.
    pub rate: Option<f64>,
    /// For `--size`.
    pub size: String,
    /// For `--keys`.
    pub keys: String,
    /// For `--payload`: the kind that shrinks most alike.
    pub payload: Payload,
    /// What was seen, in sentences.
    pub sentences: Vec<String>,
}

/// Describes a sample; `shrinks` is how many times smaller zstd makes its values in batches. Errors: too few records.
pub fn likeness(seen: &[Seen], shrinks: f64) -> Result<Likeness, String> {
    if seen.len() < SAMPLE_MIN {
        return Err(format!("{} records are too few to be like; {SAMPLE_MIN} are needed", seen.len()));
    }
    let mut sentences = vec![format!("{} records were read", units::grouped(seen.len() as u64))];
    let rate = rate(seen);
    sentences.push(match rate {
        Some(rate) => format!("about {} records/s over the sampled stretch, by their timestamps", units::count(rate)),
        None => "timestamps do not tell the rate: give --rate".to_owned(),
    });
    let size = sizes(seen);
    sentences
        .push(format!("sizes: {}", size.parse::<Sizes>().map_or_else(|_| size.clone(), |sizes| sizes.to_string())));
    let keys = keys(seen);
    sentences.push(match keys.parse::<Keys>() {
        Ok(Keys::None) | Err(_) => "keys: none".to_owned(),
        Ok(keys) => format!("keys: {keys}"),
    });
    // Halfway between what text, JSON and zeros of the generator shrink to.
    let payload = match shrinks {
        shrinks if shrinks < 1.5 => Payload::Random,
        shrinks if shrinks < 3.9 => Payload::Text,
        shrinks if shrinks < 30.0 => Payload::Json,
        _ => Payload::Zeros,
    };
    sentences.push(format!(
        "zstd shrinks the values {} times; {} payload is used",
        units::digits(shrinks),
        payload.name()
    ));
    Ok(Likeness { rate, size, keys, payload, sentences })
}

/// Each partition's records over the time they span; partitions that say nothing are taken like the others.
fn rate(seen: &[Seen]) -> Option<f64> {
    let mut partitions: BTreeMap<i32, (u64, i64, i64)> = BTreeMap::new();
    for record in seen {
        let entry = partitions.entry(record.partition).or_insert((0, i64::MAX, i64::MIN));
        *entry = (entry.0 + 1, entry.1.min(record.timestamp), entry.2.max(record.timestamp));
    }
    let rates: Vec<f64> = partitions
        .values()
        .filter(|(count, first, last)| *count > 1 && last > first)
        .map(|(count, first, last)| (count - 1) as f64 / (last - first) as f64 * 1e3)
        .collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let rate = mean * partitions.len() as f64;
    (rate >= 1.0 && rate.is_finite()).then_some(rate)
}

fn sizes(seen: &[Seen]) -> String {
    let mut sorted: Vec<f64> = seen.iter().map(|record| record.value_bytes.max(1) as f64).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let spread = (sorted.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / count).sqrt();
    let median = sorted[sorted.len() / 2].max(1.0);
    let largest = sorted.last().copied().unwrap_or(median);
    if spread <= FIXED_SPREAD * mean {
        return format!("{}", median as u64);
    }
    // Between the sixteenth and the eighty-fourth of a hundred lie two standard deviations; ends would be moved by outliers.
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize].ln();
    let sigma = ((at(0.84) - at(0.16)) / 2.0).clamp(0.01, 3.0);
    format!("dist:lognormal:{},{sigma:.2},{}", median as u64, largest.max(median) as u64)
}

fn keys(seen: &[Seen]) -> String {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for key in seen.iter().filter_map(|record| record.key) {
        *counts.entry(key).or_default() += 1;
    }
    let keyed: u64 = counts.values().sum();
    if keyed * 2 < seen.len() as u64 {
        return "none".to_owned();
    }
    // Keys seen once and twice tell of those not seen at all (Chao's estimate).
    let times = |n: u64| counts.values().filter(|count| **count == n).count() as f64;
    let (once, twice) = (times(1), times(2));
    let unseen = if twice > 0.0 { once * once / (2.0 * twice) } else { once * (once - 1.0).max(0.0) / 2.0 };
    let distinct = (counts.len() as f64 + unseen).clamp(1.0, KEYS_MAX).round();
    let mut sorted: Vec<u64> = counts.values().copied().collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let expected = keyed as f64 / distinct;
    // The commonest of equal keys is hardly ever more than five deviations above their mean.
    if (sorted[0] as f64) < expected + 5.0 * expected.sqrt() + 3.0 {
        return format!("uniform:{distinct}");
    }
    // The power by which the counts of the commonest keys fall with their rank.
    let ranked: Vec<(f64, f64)> = sorted
        .iter()
        .take(50)
        .enumerate()
        .filter(|(_, count)| **count >= 5)
        .map(|(rank, count)| (((rank + 1) as f64).ln(), (*count as f64).ln()))
        .collect();
    if ranked.len() < 3 {
        return format!("uniform:{distinct}");
    }
    let count = ranked.len() as f64;
    let (x, y) =
        (ranked.iter().map(|pair| pair.0).sum::<f64>() / count, ranked.iter().map(|pair| pair.1).sum::<f64>() / count);
    let both: f64 = ranked.iter().map(|pair| (pair.0 - x) * (pair.1 - y)).sum();
    let spread: f64 = ranked.iter().map(|pair| (pair.0 - x).powi(2)).sum();
    format!("zipf:{distinct},{:.2}", (-both / spread.max(1e-9)).clamp(0.0, 5.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(
        count: u64,
        keys: impl Fn(&mut fastrand::Rng) -> Option<u64>,
        size: impl Fn(&mut fastrand::Rng) -> u64,
    ) -> Vec<Seen> {
        let mut random = fastrand::Rng::with_seed(1);
        (0..count)
            .map(|index| Seen {
                partition: (index % 4) as i32,
                timestamp: 1_000_000 + (index / 5) as i64,
                key: keys(&mut random),
                value_bytes: size(&mut random),
            })
            .collect()
    }

    #[test]
    fn a_topic_is_described_in_words_its_user_could_have_written() {
        let seen = topic(20_000, |random| Some(random.u64(..500)), |_| 300);
        let like = likeness(&seen, 4.8).unwrap();
        assert!((4_900.0..5_100.0).contains(&like.rate.unwrap()), "{:?}", like.rate);
        assert_eq!((like.size.as_str(), like.payload), ("300", Payload::Json));
        assert_eq!(like.keys, "uniform:500");
        assert!(like.size.parse::<Sizes>().is_ok() && like.keys.parse::<Keys>().is_ok());
    }

    #[test]
    fn spread_sizes_and_uneven_keys_are_seen() {
        let lognormal = |random: &mut fastrand::Rng| {
            let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            (1000.0 * (0.5 * normal).exp()) as u64
        };
        let zipf = |random: &mut fastrand::Rng| Some((1000f64.powf(random.f64()) - 1.0) as u64);
        let like = likeness(&topic(20_000, zipf, lognormal), 1.0).unwrap();
        let Ok(Sizes::LogNormal { median, sigma, .. }) = like.size.parse() else { panic!("{}", like.size) };
        assert!((900..1100).contains(&median) && (0.4..0.6).contains(&sigma), "{}", like.size);
        let Ok(Keys::Zipf(_, power)) = like.keys.parse() else { panic!("{}", like.keys) };
        assert!((0.7..1.3).contains(&power), "{}", like.keys);
    }

    #[test]
    fn what_the_sample_does_not_tell_is_said() {
        let mut seen = topic(200, |_| None, |_| 10);
        seen.iter_mut().for_each(|record| record.timestamp = 7);
        let like = likeness(&seen, 1.0).unwrap();
        assert_eq!((like.rate, like.keys.as_str()), (None, "none"));
        assert!(like.sentences.iter().any(|sentence| sentence.contains("give --rate")));
        assert!(likeness(&seen[..50], 1.0).unwrap_err().contains("too few"));
    }

    #[test]
    fn the_same_load_on_another_topic_or_by_another_client_is_another_question() {
        let asked = |plan: &Plan| Asked {
            mode: "tune".to_owned(),
            bootstrap: plan.bootstrap.clone(),
            load: Load::default(),
            connection: Connection::of(plan),
            target: "latency".to_owned(),
            slo: String::new(),
            space: String::new(),
            budget_seconds: 60,
            warmup_seconds: 1,
            seed: 1,
        };
        let pairs = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let first = asked(&Plan::default());
        let flushed = asked(&Plan { topic_settings: pairs("flush.messages", "1"), ..Plan::default() });
        let settings = "connection.topic_settings.flush.messages";
        assert_eq!(first.difference(&flushed), Some(format!("{settings} was null and is \"1\" now")));
        assert_eq!(flushed.difference(&first), Some(format!("{settings} was \"1\" and is null now")));
        for other in [
            Plan { topic: TopicPlan::Named("t".to_owned()), ..Plan::default() },
            Plan { replication: 3, ..Plan::default() },
            Plan { settings: pairs("batch.size", "65536"), ..Plan::default() },
            Plan { threads: 2, ..Plan::default() },
            Plan { pid: Some(7), ..Plan::default() },
        ] {
            assert!(first.difference(&asked(&other)).is_some(), "{other:?}");
        }
        let secret = asked(&Plan { settings: pairs("sasl.jaas.config", "password"), ..Plan::default() });
        assert!(!serde_json::to_string(&secret).unwrap().contains("password"), "a journal keeps no secrets");
    }

    #[test]
    fn a_load_says_itself_and_a_ramp_is_none() {
        let load = Load { rate: "20k".to_owned(), ..Load::default() };
        assert_eq!(load.offered(), Some(20_000.0));
        assert_eq!(load.sentence(), "20,000 records/s of 1 KiB (json), no keys, 6 partitions, 1 producer, acks=all");
        let ramp = Load { rate: "ramp:1..2".to_owned(), ..Load::default() };
        assert!(ramp.rate().unwrap_err().contains("ramp"));
        let keyed = Load { keys: "uniform:10".to_owned(), size: "100".to_owned(), ..Load::default() };
        assert_eq!(keyed.record_bytes(), 108.0);
    }
}
