//! What can be turned: knobs, the levels they are tried at, and the first points of a search.
//!
//! Pure: the Latin hypercube is drawn from a seed. Owns the grids, Kafka's defaults and the field's profiles. Does not own which
//! point comes next (`search`). Always true: every level of every factor is legal for Kafka's clients; the default point lies
//! on the grid, so that the gain over it is a difference of two measurements of one kind.
//! Source: Kafka 4.x's defaults (linger.ms is 5 since KIP-1030); the throughput and latency profiles of Confluent's white paper.

use std::fmt;

use crate::bench::units;

/// Something a user of a client can turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// `batch.size`, bytes.
    BatchSize,
    /// `linger.ms`.
    Linger,
    /// `compression.type`; levels are numbers into [`CODECS`].
    Compression,
    /// `max.in.flight.requests.per.connection`.
    InFlight,
    /// Partitions of the topic.
    Partitions,
    /// `fetch.min.bytes`.
    FetchMinBytes,
}

/// Codecs by their number in a level.
pub const CODECS: [&str; 5] = ["none", "lz4", "zstd", "snappy", "gzip"];

/// The most partitions tried: beyond this a search would spend its budget on making topics.
const PARTITIONS_MAX: u64 = 48;

impl Knob {
    /// All of them, in the order in which they are worth turning.
    pub const ALL: [Self; 6] =
        [Self::BatchSize, Self::Linger, Self::Compression, Self::InFlight, Self::Partitions, Self::FetchMinBytes];

    /// Kafka's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BatchSize => "batch.size",
            Self::Linger => "linger.ms",
            Self::Compression => "compression.type",
            Self::InFlight => "max.in.flight.requests.per.connection",
            Self::Partitions => "partitions",
            Self::FetchMinBytes => "fetch.min.bytes",
        }
    }

    /// Reads Kafka's name or the short one of the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let short = |knob: &Self| match knob {
            Self::Compression => "compression",
            Self::InFlight => "max.in.flight",
            other => other.name(),
        };
        Self::ALL.into_iter().find(|knob| knob.name() == text || short(knob) == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(short).collect();
            format!("`{text}` is no knob of the tuner; there are {}", names.join(", "))
        })
    }

    /// What Kafka 4.x does when it is not told. Partitions have no default of the client's: the load's own number stands in.
    pub const fn kafka_default(self, partitions: u64) -> u64 {
        match self {
            Self::BatchSize => 16_384,
            Self::Linger => 5,
            Self::Compression => 0,
            Self::InFlight => 5,
            Self::Partitions => partitions,
            Self::FetchMinBytes => 1,
        }
    }

    /// Whether levels have an order, so that a level between two others behaves between them.
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Self::Compression)
    }

    /// A level as a person writes it.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::BatchSize | Self::FetchMinBytes => units::size(value),
            Self::Linger => format!("{value} ms"),
            Self::Compression => codec(value).to_owned(),
            Self::InFlight | Self::Partitions => value.to_string(),
        }
    }

    /// A level as a properties file writes it.
    pub fn word(self, value: u64) -> String {
        match self {
            Self::Compression => codec(value).to_owned(),
            _ => value.to_string(),
        }
    }

    fn levels(self, partitions: u64) -> Vec<u64> {
        match self {
            Self::BatchSize => (12..=20).map(|power| 1 << power).collect(),
            Self::Linger => vec![0, 1, 2, 5, 10, 20, 50],
            Self::Compression => (0..CODECS.len() as u64).collect(),
            Self::InFlight => (1..=5).collect(),
            Self::Partitions => {
                let factors = [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1)];
                let mut levels: Vec<u64> = factors
                    .iter()
                    .map(|(up, down)| (partitions * up / down).clamp(1, PARTITIONS_MAX.max(partitions)))
                    .collect();
                levels.dedup();
                levels
            }
            Self::FetchMinBytes => vec![1, 4096, 16_384, 65_536, 262_144],
        }
    }
}

fn codec(value: u64) -> &'static str {
    usize::try_from(value).ok().and_then(|index| CODECS.get(index)).copied().unwrap_or("none")
}

/// A knob and the values it is tried at, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The knob.
    pub knob: Knob,
    /// At least one value; the default among them.
    pub levels: Vec<u64>,
}

/// One level of each factor, by its index.
pub type Point = Vec<usize>;

/// All that is searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// In the order asked for.
    pub factors: Vec<Factor>,
    /// Partitions of the load: where the partitions factor stands by default.
    partitions: u64,
    /// Knobs that are not searched and do not stand at Kafka's default.
    held: Vec<(Knob, u64)>,
}

impl Space {
    /// Of these knobs, for a load on so many partitions. Errors: none, or one twice.
    pub fn new(knobs: &[Knob], partitions: u64) -> Result<Self, String> {
        if knobs.is_empty() {
            return Err("nothing to tune: name at least one knob".to_owned());
        }
        if let Some(twice) = knobs.iter().enumerate().find(|(index, knob)| knobs[..*index].contains(knob)) {
            return Err(format!("{} is named twice", twice.1.name()));
        }
        let partitions = partitions.max(1);
        let factors = knobs.iter().map(|knob| Factor { knob: *knob, levels: knob.levels(partitions) }).collect();
        Ok(Self { factors, partitions, held: Vec::new() })
    }

    /// The same space, with knobs that are not searched held at these values.
    pub fn holding(self, held: Vec<(Knob, u64)>) -> Self {
        Self { held, ..self }
    }

    /// Whether the knob is searched.
    pub fn searches(&self, knob: Knob) -> bool {
        self.factors.iter().any(|factor| factor.knob == knob)
    }

    /// The plane people ask about, as coarse as a full sweep of it can bear: seven sizes of a batch, six times to linger.
    pub fn grid() -> Self {
        const KIB: u64 = 1024;
        let sizes = [4, 16, 32, 64, 128, 256, 1024].map(|size| size * KIB).to_vec();
        let factors = vec![
            Factor { knob: Knob::BatchSize, levels: sizes },
            Factor { knob: Knob::Linger, levels: vec![0, 1, 5, 10, 20, 50] },
        ];
        Self { factors, partitions: 1, held: Vec::new() }
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.factors.iter().map(|factor| factor.levels.len()).product()
    }

    /// Never: a space has a factor, and a factor a level.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The point numbered `index`, the last factor changing fastest. Panics past [`Self::len`].
    pub fn at(&self, index: usize) -> Point {
        assert!(index < self.len(), "point {index} of {}", self.len());
        let mut rest = index;
        let mut point: Point = self
            .factors
            .iter()
            .rev()
            .map(|factor| {
                let level = rest % factor.levels.len();
                rest /= factor.levels.len();
                level
            })
            .collect();
        point.reverse();
        point
    }

    /// Every point.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// What the point sets `knob` to; what it is held at, or what Kafka does, where the knob is not searched.
    pub fn value(&self, point: &[usize], knob: Knob) -> u64 {
        let factor = self.factors.iter().zip(point).find(|(factor, _)| factor.knob == knob);
        factor.map_or_else(|| self.held(knob), |(factor, level)| factor.levels[*level])
    }

    /// Where a knob that is not searched stands.
    pub fn held(&self, knob: Knob) -> u64 {
        let held = self.held.iter().find(|(name, _)| *name == knob);
        held.map_or(knob.kafka_default(self.partitions), |(_, value)| *value)
    }

    /// The point whose values lie nearest to these; knobs not named stand at Kafka's default.
    pub fn nearest(&self, wanted: &[(Knob, u64)]) -> Point {
        let value = |knob: Knob| {
            let named = wanted.iter().find(|(name, _)| *name == knob);
            named.map_or(knob.kafka_default(self.partitions), |(_, value)| *value)
        };
        let nearest = |factor: &Factor| {
            let wanted = value(factor.knob);
            let distance = |level: &u64| level.abs_diff(wanted);
            (0..factor.levels.len()).min_by_key(|index| distance(&factor.levels[*index])).unwrap_or(0)
        };
        self.factors.iter().map(nearest).collect()
    }

    /// What Kafka 4.x's clients do when they are told nothing.
    pub fn default_point(&self) -> Point {
        self.nearest(&[])
    }

    /// The field's profiles that differ from the default and from each other, with their names.
    pub fn profiles(&self) -> Vec<(&'static str, Point)> {
        const KIB: u64 = 1024;
        let profiles: [(&'static str, &[(Knob, u64)]); 4] = [
            ("latency", &[(Knob::Linger, 0), (Knob::BatchSize, 16 * KIB), (Knob::FetchMinBytes, 1)]),
            (
                "throughput",
                &[
                    (Knob::BatchSize, 128 * KIB),
                    (Knob::Linger, 50),
                    (Knob::Compression, 1),
                    (Knob::FetchMinBytes, 64 * KIB),
                ],
            ),
            ("balanced", &[(Knob::BatchSize, 64 * KIB), (Knob::Linger, 5)]),
            ("large batches", &[(Knob::BatchSize, 1024 * KIB), (Knob::Linger, 10)]),
        ];
        let default = self.default_point();
        let mut points: Vec<(&'static str, Point)> = Vec::new();
        for (name, wanted) in profiles {
            let point = self.nearest(wanted);
            if point != default && points.iter().all(|(_, known)| *known != point) {
                points.push((name, point));
            }
        }
        points
    }

    /// `count` points, each factor's levels spread evenly over them, shuffled from `seed`: a Latin hypercube on the grid.
    pub fn latin_hypercube(&self, count: usize, seed: u64) -> Vec<Point> {
        let mut random = fastrand::Rng::with_seed(seed);
        let columns: Vec<Vec<usize>> = self
            .factors
            .iter()
            .map(|factor| {
                // One draw within each of `count` equal stretches of the factor, then in any order.
                let levels = factor.levels.len() as f64;
                let mut column: Vec<usize> = (0..count)
                    .map(|stretch| ((stretch as f64 + random.f64()) / count as f64 * levels) as usize)
                    .map(|level| level.min(factor.levels.len() - 1))
                    .collect();
                random.shuffle(&mut column);
                column
            })
            .collect();
        (0..count).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
    }

    /// Points one step away: up or down where levels have an order, any other level where not.
    pub fn neighbours(&self, point: &[usize]) -> Vec<Point> {
        let mut found = Vec::new();
        for (index, factor) in self.factors.iter().enumerate() {
            for level in 0..factor.levels.len() {
                let step = level.abs_diff(point[index]);
                if step == 1 || (step > 0 && !factor.knob.is_ordered()) {
                    let mut moved = point.to_vec();
                    moved[index] = level;
                    found.push(moved);
                }
            }
        }
        found
    }

    /// `batch.size=65536 linger.ms=2`.
    pub fn words(&self, point: &[usize]) -> String {
        let words = self.factors.iter().zip(point);
        let words: Vec<String> = words
            .map(|(factor, level)| format!("{}={}", factor.knob.name(), factor.knob.word(factor.levels[*level])))
            .collect();
        words.join(" ")
    }

    /// `64 KiB, 2 ms`.
    pub fn short(&self, point: &[usize]) -> String {
        let words = self.factors.iter().zip(point);
        let words: Vec<String> = words
            .map(|(factor, level)| {
                let value = factor.knob.show(factor.levels[*level]);
                match factor.knob {
                    Knob::InFlight => format!("{value} in flight"),
                    Knob::Partitions => format!("{value} partitions"),
                    Knob::FetchMinBytes => format!("fetch {value}"),
                    _ => value,
                }
            })
            .collect();
        words.join(", ")
    }
}

impl fmt::Display for Space {
    /// Names every level: two spaces with the same text hold the same points.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, factor) in self.factors.iter().enumerate() {
            let levels: Vec<String> = factor.levels.iter().map(|level| factor.knob.word(*level)).collect();
            write!(f, "{}{}: {}", if index > 0 { "; " } else { "" }, factor.knob.name(), levels.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> Space {
        Space::new(&[Knob::BatchSize, Knob::Linger], 6).unwrap()
    }

    #[test]
    fn the_default_point_is_kafkas_and_lies_on_every_grid() {
        for space in [plane(), Space::grid(), Space::new(&Knob::ALL, 6).unwrap()] {
            let point = space.default_point();
            for factor in &space.factors {
                assert_eq!(space.value(&point, factor.knob), factor.knob.kafka_default(space.partitions), "{space}");
            }
        }
        assert_eq!(plane().words(&plane().default_point()), "batch.size=16384 linger.ms=5");
        assert_eq!(Space::grid().len(), 42);
    }

    #[test]
    fn points_are_numbered_without_gaps() {
        let space = plane();
        let mut all: Vec<Point> = space.points().collect();
        assert_eq!(all.len(), 63);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 63);
        assert_eq!(space.at(62), vec![8, 6]);
    }

    #[test]
    fn a_latin_hypercube_spreads_every_factor_evenly() {
        let space = plane();
        for seed in 0..20 {
            let points = space.latin_hypercube(9, seed);
            let mut sizes: Vec<usize> = points.iter().map(|point| point[0]).collect();
            sizes.sort_unstable();
            assert_eq!(sizes, (0..9).collect::<Vec<_>>(), "seed {seed}");
            for level in 0..7 {
                let times = points.iter().filter(|point| point[1] == level).count();
                assert!(times <= 3, "seed {seed}: level {level} {times} times");
            }
            assert_eq!(points, space.latin_hypercube(9, seed));
        }
    }

    #[test]
    fn knobs_that_are_not_searched_stand_at_kafkas_default_or_where_they_are_held() {
        let space = plane();
        assert_eq!(space.value(&[0, 0], Knob::InFlight), 5);
        assert_eq!(space.value(&[0, 0], Knob::Partitions), 6);
        assert_eq!(space.value(&[4, 2], Knob::BatchSize), 65_536);
        assert_eq!(space.short(&[4, 2]), "64 KiB, 2 ms");
        let linger = Space::new(&[Knob::Linger], 6).unwrap().holding(vec![(Knob::BatchSize, 65_536)]);
        assert_eq!((linger.value(&[2], Knob::BatchSize), linger.value(&[2], Knob::Linger)), (65_536, 2));
    }

    #[test]
    fn neighbours_are_one_step_away_and_codecs_have_no_order() {
        let space = Space::new(&[Knob::Linger, Knob::Compression], 1).unwrap();
        let near = space.neighbours(&[0, 2]);
        assert_eq!(near, vec![vec![1, 2], vec![0, 0], vec![0, 1], vec![0, 3], vec![0, 4]]);
    }

    #[test]
    fn profiles_never_repeat_the_default() {
        assert_eq!(plane().profiles().len(), 4);
        let one = Space::new(&[Knob::InFlight], 1).unwrap();
        assert!(one.profiles().is_empty());
    }

    #[test]
    fn partitions_stay_within_reason() {
        let levels = |partitions| Knob::Partitions.levels(partitions);
        assert_eq!(levels(1), vec![1, 2, 4]);
        assert_eq!(levels(6), vec![1, 3, 6, 12, 24]);
        assert_eq!(levels(100), vec![25, 50, 100]);
    }

    #[test]
    fn wrong_knobs_are_refused() {
        assert!(Knob::parse("buffer.memory").unwrap_err().contains("max.in.flight"));
        assert_eq!(Knob::parse("max.in.flight"), Ok(Knob::InFlight));
        assert_eq!(Knob::parse("compression.type"), Ok(Knob::Compression));
        assert!(Space::new(&[], 1).is_err());
        assert!(Space::new(&[Knob::Linger, Knob::Linger], 1).unwrap_err().contains("twice"));
    }
}
