//! What is sent: how large records are, what is in them, which keys they have.
//!
//! Pure. Owns the specifications people write and the generator that follows them from a seed. Does not own when records
//! are sent (`schedule`) nor the stamp in their first bytes (`verify`). Always true: one seed gives one stream of records;
//! a record costs a copy and a few random numbers, so that the generator is not what is measured.
//! Source: the payload and key options of the OpenMessaging Benchmark, and what was missing in them: the key spread of real loads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::units;

/// Bytes of payload material that values are cut from. Larger than any codec's window at default levels (zstd's level 3
/// looks back 2 MiB, lz4 64 KiB), so that repeating it does not look like compressible data.
const MATERIAL_BYTES: usize = 4 << 20;
/// Records larger than this no broker takes by default by far; it also bounds the memory of one value.
pub const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Sizes read from a file beyond this many are refused: a sample of a distribution is meant.
const FILE_SIZES_MAX: usize = 10_000_000;
/// Steps of the table from which Zipf keys are drawn by bisection.
const ZIPF_KEYS_MAX: u64 = 10_000_000;

/// How large values are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(u64),
    /// Every size from the first to the second, both included, equally often.
    Uniform(u64, u64),
    /// Log-normal by its median and the spread of its logarithm, cut at a largest size.
    LogNormal {
        /// Half of the records are smaller.
        median: u64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// No record is larger.
        max: u64,
    },
    /// Drawn from these, equally often: from a file with one size a line.
    Sample(Vec<u64>),
}

impl Sizes {
    /// From the text of a file with one size a line; blank lines and lines with `#` are skipped.
    pub fn from_lines(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            sizes.push(bounded(line).map_err(|why| format!("line {}: {why}", number + 1))?);
            if sizes.len() > FILE_SIZES_MAX {
                return Err(format!("more than {FILE_SIZES_MAX} sizes; a sample of the distribution is enough"));
            }
        }
        if sizes.is_empty() { Err("holds no sizes; write one a line".to_owned()) } else { Ok(Self::Sample(sizes)) }
    }

    /// The smallest size it gives.
    pub fn min(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Uniform(size, _) => *size,
            Self::LogNormal { .. } => 1,
            Self::Sample(sizes) => sizes.iter().copied().min().unwrap_or(1),
        }
    }

    /// The largest size it gives.
    pub fn max(&self) -> u64 {
        match self {
            Self::Fixed(size) | Self::Uniform(_, size) => *size,
            Self::LogNormal { max, .. } => *max,
            Self::Sample(sizes) => sizes.iter().copied().max().unwrap_or(1),
        }
    }

    /// What a record has on average. For the log-normal one the cut at its largest size is left out of account.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(size) => *size as f64,
            Self::Uniform(low, high) => (*low as f64 + *high as f64) / 2.0,
            Self::LogNormal { median, sigma, max } => (*median as f64 * (sigma * sigma / 2.0).exp()).min(*max as f64),
            Self::Sample(sizes) => sizes.iter().map(|size| *size as f64).sum::<f64>() / sizes.len().max(1) as f64,
        }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Fixed(size) => *size,
            Self::Uniform(low, high) => random.u64(*low..=*high),
            Self::LogNormal { median, sigma, max } => {
                let size = *median as f64 * (normal(random) * sigma).exp();
                (size.round() as u64).clamp(1, *max)
            }
            Self::Sample(sizes) => sizes[random.usize(..sizes.len())],
        }
    }
}

/// One draw from the standard normal distribution (Box and Muller).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

fn bounded(text: &str) -> Result<u64, String> {
    match units::parse_bytes(text)? {
        0 => Err("a record has at least one byte".to_owned()),
        size if size > RECORD_BYTES_MAX => {
            Err(format!("`{text}` is larger than the {} a record may have", units::size(RECORD_BYTES_MAX)))
        }
        size => Ok(size),
    }
}

/// `1KiB`, `dist:uniform:100..2KiB`, `dist:lognormal:1KiB,0.8` and `dist:lognormal:1KiB,0.8,1MiB` (median, sigma, largest).
/// The fourth form, `file:PATH`, is read by whoever may open files: see [`Sizes::from_lines`].
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(distribution) = text.strip_prefix("dist:") else { return bounded(text).map(Self::Fixed) };
        match distribution.split_once(':') {
            Some(("fixed", size)) => bounded(size).map(Self::Fixed),
            Some(("uniform", range)) => {
                let (low, high) = range
                    .split_once("..")
                    .ok_or("write dist:uniform:SMALLEST..LARGEST, such as dist:uniform:100..2KiB")?;
                let (low, high) = (bounded(low)?, bounded(high)?);
                if low > high { Err(format!("`{range}` begins above its end")) } else { Ok(Self::Uniform(low, high)) }
            }
            Some(("lognormal", numbers)) => {
                const HOW: &str = "write dist:lognormal:MEDIAN,SIGMA[,LARGEST], such as dist:lognormal:1KiB,0.8";
                let mut parts = numbers.split(',');
                let median = bounded(parts.next().ok_or(HOW)?)?;
                let sigma: f64 = parts.next().ok_or(HOW)?.trim().parse().map_err(|_| HOW)?;
                // Five sigma of 3 span fifteen e-folds: beyond it the median says nothing about the records.
                if !(0.0..=3.0).contains(&sigma) {
                    return Err("the sigma of a log-normal size lies between 0 and 3".to_owned());
                }
                let max = match parts.next() {
                    Some(max) => bounded(max)?,
                    None => (median * 64).min(1_000_000).max(median),
                };
                if parts.next().is_some() {
                    return Err(HOW.to_owned());
                }
                if max < median {
                    Err("the largest size is below the median".to_owned())
                } else {
                    Ok(Self::LogNormal { median, sigma, max })
                }
            }
            _ => Err(format!(
                "`{text}` is no distribution; there are dist:uniform:A..B and dist:lognormal:MEDIAN,SIGMA[,LARGEST]"
            )),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => f.write_str(&units::size(*size)),
            Self::Uniform(low, high) => write!(f, "uniform {} to {}", units::size(*low), units::size(*high)),
            Self::LogNormal { median, sigma, max } => {
                write!(f, "log-normal, median {}, sigma {sigma}, at most {}", units::size(*median), units::size(*max))
            }
            Self::Sample(sizes) => write!(f, "drawn from {} sizes of a file", sizes.len()),
        }
    }
}

/// What is in the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Random bytes: no codec makes them smaller.
    Random,
    /// Words with the frequencies of prose.
    Text,
    /// Objects with the same field names and changing values.
    Json,
    /// Nothing but zeros: the toy payload that flatters every codec.
    Zeros,
}

impl Payload {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Random, Self::Text, Self::Json, Self::Zeros];

    /// The word in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Text => "text",
            Self::Json => "json",
            Self::Zeros => "zeros",
        }
    }

    /// How far zstd at its default level shrinks 64 KiB of it, as a test of this file measures: stated beside results,
    /// because no codec's number means anything without it.
    pub const fn compressibility(self) -> &'static str {
        match self {
            Self::Random => "incompressible (zstd 1.0×)",
            Self::Text => "text-like (zstd about 3×)",
            Self::Json => "JSON-like (zstd about 5×)",
            Self::Zeros => "zeros (zstd above 100×: says nothing about real data)",
        }
    }

    fn material(self, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MATERIAL_BYTES + 512);
        match self {
            Self::Random => {
                bytes.resize(MATERIAL_BYTES, 0);
                random.fill(&mut bytes);
            }
            Self::Zeros => bytes.resize(MATERIAL_BYTES, 0),
            Self::Text => {
                let words = vocabulary(random);
                while bytes.len() < MATERIAL_BYTES {
                    // A cubed uniform draw: a few words make up most of a text, most words are rare.
                    let rank = random.f64().powi(3) * words.len() as f64;
                    bytes.extend_from_slice(words[rank as usize].as_bytes());
                    bytes.extend_from_slice(if random.u8(..12) == 0 { b". " } else { b" " });
                }
            }
            Self::Json => {
                let words = vocabulary(random);
                let word =
                    |random: &mut fastrand::Rng| words[(random.f64().powi(2) * words.len() as f64) as usize].clone();
                while bytes.len() < MATERIAL_BYTES {
                    let object = format!(
                        "{{\"id\":{},\"user\":\"{}-{}\",\"amount\":{}.{:02},\"currency\":\"{}\",\"status\":\"{}\",\"note\":\"{} {} {}\",\"ts\":17{:011}}}",
                        random.u32(..),
                        word(random),
                        random.u32(..100_000),
                        random.u32(..10_000),
                        random.u8(..100),
                        ["EUR", "USD", "GBP", "JPY"][random.usize(..4)],
                        ["created", "paid", "shipped", "returned"][random.usize(..4)],
                        word(random),
                        word(random),
                        word(random),
                        random.u64(..100_000_000_000),
                    );
                    bytes.extend_from_slice(object.as_bytes());
                }
            }
        }
        bytes.truncate(MATERIAL_BYTES);
        bytes
    }
}

fn vocabulary(random: &mut fastrand::Rng) -> Vec<String> {
    const SYLLABLES: [&str; 24] = [
        "ba", "con", "de", "er", "fi", "gra", "hu", "in", "jo", "ka", "lo", "men", "nu", "or", "pre", "qui", "ra",
        "sta", "ti", "un", "ver", "wi", "xe", "yo",
    ];
    (0..2000).map(|_| (0..random.usize(1..=4)).map(|_| SYLLABLES[random.usize(..SYLLABLES.len())]).collect()).collect()
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|payload| payload.name() == text)
            .ok_or_else(|| format!("`{text}` is no payload; there are random, text, json and zeros"))
    }
}

/// Which keys records have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// None: the sticky partitioner fills one batch after the other.
    None,
    /// So many, equally often.
    Uniform(u64),
    /// So many, the first most often: the share of the nth falls with n to this power.
    Zipf(u64, f64),
}

/// `none`, `uniform:100000`, `zipf:100000` (power 1), `zipf:100000,0.8`.
impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const HOW: &str = "write none, uniform:KEYS or zipf:KEYS[,POWER]";
        let keys = |text: &str| match units::parse_count(text)? {
            keys if keys >= 1.0 && keys <= ZIPF_KEYS_MAX as f64 => Ok(keys as u64),
            _ => Err(format!("between 1 and {ZIPF_KEYS_MAX} keys")),
        };
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            Some(("uniform", count)) => keys(count).map(Self::Uniform),
            Some(("zipf", numbers)) => {
                let (count, power) = numbers.split_once(',').unwrap_or((numbers, "1"));
                let power: f64 = power.trim().parse().map_err(|_| HOW)?;
                if (0.0..=5.0).contains(&power) { Ok(Self::Zipf(keys(count)?, power)) } else { Err(HOW.to_owned()) }
            }
            _ => Err(format!("`{text}` names no keys; {HOW}")),
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Uniform(count) => write!(f, "{} equally often", units::grouped(*count)),
            Self::Zipf(count, power) => write!(f, "{}, Zipf with power {power}", units::grouped(*count)),
        }
    }
}

/// Everything about the records of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Of the values.
    pub sizes: Sizes,
    /// In the values.
    pub payload: Payload,
    /// Of the records.
    pub keys: Keys,
    /// From which everything random is drawn.
    pub seed: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self { sizes: Sizes::Fixed(1024), payload: Payload::Random, keys: Keys::None, seed: 1 }
    }
}

/// One record to be sent, borrowed until the next is asked for.
#[derive(Debug)]
pub struct Draft<'a> {
    /// Eight bytes in hexadecimal digits' worth of key; `None` without keys.
    pub key: Option<[u8; KEY_BYTES]>,
    /// The payload; its first bytes are the caller's to stamp.
    pub value: &'a mut [u8],
}

/// Keys are eight digits: wide enough for all of them, and of one length, so that sizes stay as stated.
pub const KEY_BYTES: usize = 8;

/// Follows a [`Workload`] from its seed; each producer has one, told apart by its number.
pub struct Generator {
    sizes: Sizes,
    material: Vec<u8>,
    keys: KeySource,
    random: fastrand::Rng,
    value: Vec<u8>,
}

enum KeySource {
    None,
    Uniform(u64),
    /// Running totals of the shares, to be searched.
    Zipf(Vec<f64>),
}

impl Generator {
    /// For producer `producer` of the run.
    pub fn new(workload: &Workload, producer: u32) -> Self {
        let mut random =
            fastrand::Rng::with_seed(workload.seed ^ u64::from(producer).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let material = workload.payload.material(&mut random);
        let keys = match workload.keys {
            Keys::None => KeySource::None,
            Keys::Uniform(count) => KeySource::Uniform(count),
            Keys::Zipf(count, power) => {
                let mut total = 0.0;
                let shares = (1..=count).map(|rank| {
                    total += (rank as f64).powf(-power);
                    total
                });
                KeySource::Zipf(shares.collect())
            }
        };
        let value = Vec::with_capacity(usize::try_from(workload.sizes.max().min(1 << 20)).unwrap_or(1 << 20));
        Self { sizes: workload.sizes.clone(), material, keys, random, value }
    }

    /// The next record.
    pub fn draft(&mut self) -> Draft<'_> {
        let size = usize::try_from(self.sizes.draw(&mut self.random)).expect("sizes are bounded by RECORD_BYTES_MAX");
        self.value.clear();
        let mut at = self.random.usize(..self.material.len());
        while self.value.len() < size {
            let piece = (size - self.value.len()).min(self.material.len() - at);
            self.value.extend_from_slice(&self.material[at..at + piece]);
            at = 0;
        }
        let key = match &self.keys {
            KeySource::None => None,
            KeySource::Uniform(count) => Some(self.random.u64(..*count)),
            KeySource::Zipf(totals) => {
                let draw = self.random.f64() * totals.last().copied().unwrap_or_default();
                Some(totals.partition_point(|total| *total <= draw).min(totals.len() - 1) as u64)
            }
        };
        Draft { key: key.map(key_bytes), value: &mut self.value }
    }
}

fn key_bytes(number: u64) -> [u8; KEY_BYTES] {
    let mut bytes = [b'0'; KEY_BYTES];
    let mut rest = number;
    for byte in bytes.iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{Builder, BuilderOptions, Codec};

    fn workload(sizes: &str, payload: Payload, keys: &str) -> Workload {
        Workload { sizes: sizes.parse().unwrap(), payload, keys: keys.parse().unwrap(), seed: 7 }
    }

    #[test]
    fn one_seed_gives_one_stream_and_producers_differ() {
        let workload = workload("dist:uniform:100..300", Payload::Random, "uniform:1000");
        let stream = |producer| {
            let mut generator = Generator::new(&workload, producer);
            (0..50)
                .map(|_| {
                    let draft = generator.draft();
                    (draft.key, draft.value.to_vec())
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn sizes_follow_their_distribution() {
        let mut random = fastrand::Rng::with_seed(3);
        let uniform: Sizes = "dist:uniform:100..300".parse().unwrap();
        let draws: Vec<u64> = (0..20_000).map(|_| uniform.draw(&mut random)).collect();
        assert!(draws.iter().all(|size| (100..=300).contains(size)));
        let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
        assert!((mean - uniform.mean()).abs() < 3.0, "{mean}");

        let lognormal: Sizes = "dist:lognormal:1KiB,0.8,1MiB".parse().unwrap();
        let mut draws: Vec<u64> = (0..20_000).map(|_| lognormal.draw(&mut random)).collect();
        draws.sort_unstable();
        let median = draws[draws.len() / 2] as f64;
        assert!((median / 1024.0 - 1.0).abs() < 0.05, "{median}");
        assert!(*draws.last().unwrap() <= 1 << 20);

        let sample = Sizes::from_lines("# bytes\n10\n\n1KiB\n").unwrap();
        assert_eq!(sample, Sizes::Sample(vec![10, 1024]));
        assert_eq!((sample.min(), sample.max(), sample.mean()), (10, 1024, 517.0));
    }

    #[test]
    fn absurd_sizes_and_keys_are_refused_with_an_example() {
        for text in [
            "0",
            "1TiB",
            "dist:uniform:10",
            "dist:uniform:10..5",
            "dist:lognormal:1k",
            "dist:lognormal:1k,9",
            "dist:lognormal:1k,1,10",
            "dist:pareto:1",
        ] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
        for text in ["uniform", "uniform:0", "zipf:10,-1", "zipf:99g", "some"] {
            assert!(text.parse::<Keys>().is_err(), "{text}");
        }
        assert!(Sizes::from_lines("# nothing\n").is_err());
        assert!(Sizes::from_lines("12\nabc\n").unwrap_err().starts_with("line 2"));
    }

    #[test]
    fn zipf_keys_fall_with_their_rank() {
        let mut generator = Generator::new(&workload("10", Payload::Zeros, "zipf:1000,1"), 0);
        let mut counts = std::collections::BTreeMap::<_, u32>::new();
        for _ in 0..20_000 {
            *counts.entry(generator.draft().key.unwrap()).or_default() += 1;
        }
        let of = |key: u64| f64::from(*counts.get(&key_bytes(key)).unwrap_or(&0));
        assert!(of(0) / of(1) > 1.7 && of(0) / of(1) < 2.4, "{} {}", of(0), of(1));
        assert!(of(0) / of(9) > 7.0, "{} {}", of(0), of(9));
    }

    #[test]
    fn payloads_compress_as_stated() {
        let shrinks = |payload| {
            let mut generator = Generator::new(&workload("1KiB", payload, "none"), 0);
            let mut sizes = [0.0; 2];
            for (codec, size) in [Codec::None, Codec::Zstd].into_iter().zip(&mut sizes) {
                let options =
                    BuilderOptions { codec, level: None, producer: None, transactional: false, control: false };
                let mut builder = Builder::new(options);
                (0..64).for_each(|_| builder.push(0, None, Some(generator.draft().value), &[]));
                *size = builder.finish().len() as f64;
            }
            sizes[0] / sizes[1]
        };
        assert!((0.95..1.05).contains(&shrinks(Payload::Random)));
        let text = shrinks(Payload::Text);
        assert!((2.0..4.5).contains(&text), "text {text}");
        let json = shrinks(Payload::Json);
        assert!((3.0..7.0).contains(&json), "json {json}");
        assert!(shrinks(Payload::Zeros) > 100.0);
    }
}
