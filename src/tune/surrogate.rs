//! What trials say about points that were not tried: a Gaussian process over the levels.
//!
//! Pure and deterministic. Owns the fit and the prediction with its spread. Does not own which point is tried next (`search`).
//! Always true: a prediction's spread falls to the noise at points that were measured and rises to that of the whole away from
//! them. Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2 and 5.4; Matérn 5/2, a length for each
//! factor by the marginal likelihood: a knob that does not matter gets a length beyond its range.

use super::space::{Point, Space};

/// Lengths that are tried, in widths of a factor. The largest says: does not matter.
const LENGTHS: [f64; 6] = [0.15, 0.3, 0.6, 1.2, 2.5, 6.0];
/// Noise of a trial of unit weight that is tried, as a share of the spread of all values.
const NOISES: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.35, 0.6];
/// Rounds over the lengths; two settle them.
const ROUNDS: usize = 2;

/// One value at one point. `weight` is how many trials of unit length it stands for.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Where.
    pub point: Point,
    /// What.
    pub value: f64,
    /// How sure: noise falls with its root.
    pub weight: f64,
}

/// The fitted process.
#[derive(Clone, Debug)]
pub struct Surrogate {
    places: Vec<Vec<Place>>,
    shape: Vec<Shape>,
    mean: f64,
    scale: f64,
    hyper: Hyper,
    lower: Vec<f64>,
    weights: Vec<f64>,
    values: Vec<f64>,
    observed: Vec<f64>,
    likelihood: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Hyper {
    lengths: Vec<f64>,
    noise: f64,
}

/// A coordinate: a place between 0 and 1, or which of several.
type Place = f64;

#[derive(Clone, Copy, Debug)]
struct Shape {
    levels: usize,
    ordered: bool,
}

fn place(shape: &[Shape], point: &[usize]) -> Vec<Place> {
    let one = |(shape, level): (&Shape, &usize)| {
        if shape.ordered { *level as f64 / (shape.levels.max(2) - 1) as f64 } else { *level as f64 }
    };
    shape.iter().zip(point).map(one).collect()
}

fn kernel(shape: &[Shape], lengths: &[f64], a: &[Place], b: &[Place]) -> f64 {
    let distance: f64 = shape
        .iter()
        .zip(lengths)
        .zip(a.iter().zip(b))
        .map(|((shape, length), (a, b))| {
            // Codecs have no order: two different ones are half a width apart, whichever they are.
            let apart = if shape.ordered { a - b } else { f64::from(u8::from(a != b)) * 0.5 };
            (apart / length).powi(2)
        })
        .sum();
    let root = (5.0 * distance).sqrt();
    (1.0 + root + root * root / 3.0) * (-root).exp()
}

/// Lower triangle of the root of a symmetric positive matrix, row by row. `None` when it is not positive.
fn cholesky(matrix: &[f64], size: usize) -> Option<Vec<f64>> {
    let mut lower = vec![0.0; size * size];
    for row in 0..size {
        for column in 0..=row {
            let mut sum = matrix[row * size + column];
            for inner in 0..column {
                sum -= lower[row * size + inner] * lower[column * size + inner];
            }
            if row == column {
                if sum <= 1e-12 {
                    return None;
                }
                lower[row * size + row] = sum.sqrt();
            } else {
                lower[row * size + column] = sum / lower[column * size + column];
            }
        }
    }
    Some(lower)
}

/// Solves `L x = b`.
fn forward(lower: &[f64], right: &[f64]) -> Vec<f64> {
    let size = right.len();
    let mut solved = vec![0.0; size];
    for row in 0..size {
        let sum: f64 = (0..row).map(|column| lower[row * size + column] * solved[column]).sum();
        solved[row] = (right[row] - sum) / lower[row * size + row];
    }
    solved
}

/// Solves `Lᵀ x = b`.
fn backward(lower: &[f64], right: &[f64]) -> Vec<f64> {
    let size = right.len();
    let mut solved = vec![0.0; size];
    for row in (0..size).rev() {
        let sum: f64 = (row + 1..size).map(|column| lower[column * size + row] * solved[column]).sum();
        solved[row] = (right[row] - sum) / lower[row * size + row];
    }
    solved
}

/// Factor, solution and log likelihood under one set of parameters.
fn solve(
    shape: &[Shape],
    places: &[Vec<Place>],
    values: &[f64],
    weights: &[f64],
    hyper: &Hyper,
) -> Option<(Vec<f64>, Vec<f64>, f64)> {
    let size = places.len();
    let mut matrix = vec![0.0; size * size];
    for row in 0..size {
        for column in 0..=row {
            let covariance = kernel(shape, &hyper.lengths, &places[row], &places[column]);
            matrix[row * size + column] = covariance;
            matrix[column * size + row] = covariance;
        }
        matrix[row * size + row] += hyper.noise.powi(2) / weights[row].max(1e-3) + 1e-9;
    }
    let lower = cholesky(&matrix, size)?;
    let half = forward(&lower, values);
    let fit: f64 = half.iter().map(|value| value * value).sum();
    let spread: f64 = (0..size).map(|index| lower[index * size + index].ln()).sum();
    let solution = backward(&lower, &half);
    Some((lower, solution, -0.5 * fit - spread))
}

impl Surrogate {
    /// Fits to what was observed. `None` below three observations: there is nothing to learn a shape from.
    pub fn fit(space: &Space, observed: &[Observation]) -> Option<Self> {
        if observed.len() < 3 {
            return None;
        }
        let shape: Vec<Shape> = space
            .factors
            .iter()
            .map(|factor| Shape { levels: factor.levels.len(), ordered: factor.knob.is_ordered() })
            .collect();
        let places: Vec<Vec<Place>> = observed.iter().map(|one| place(&shape, &one.point)).collect();
        let total: f64 = observed.iter().map(|one| one.weight).sum();
        let mean = observed.iter().map(|one| one.value * one.weight).sum::<f64>() / total;
        let variance = observed.iter().map(|one| (one.value - mean).powi(2)).sum::<f64>() / observed.len() as f64;
        let scale = variance.sqrt().max(1e-6);
        let values: Vec<f64> = observed.iter().map(|one| (one.value - mean) / scale).collect();
        let weights: Vec<f64> = observed.iter().map(|one| one.weight).collect();

        let likelihood = |hyper: &Hyper| {
            // A weak preference for smooth shapes: few points would else be explained by wiggles or by noise alone.
            let prior: f64 = hyper.lengths.iter().map(|length| -0.5 * (length / 0.8).ln().powi(2) * 0.5).sum();
            let noise = -0.5 * (hyper.noise / 0.1).ln().powi(2) * 0.5;
            solve(&shape, &places, &values, &weights, hyper)
                .map_or(f64::NEG_INFINITY, |(_, _, value)| value + prior + noise)
        };
        let mut best = Hyper { lengths: vec![0.6; shape.len()], noise: 0.1 };
        let mut best_value = likelihood(&best);
        let mut consider = |hyper: Hyper, best: &mut Hyper| {
            let value = likelihood(&hyper);
            if value > best_value {
                (best_value, *best) = (value, hyper);
            }
        };
        for length in LENGTHS {
            for noise in NOISES {
                consider(Hyper { lengths: vec![length; shape.len()], noise }, &mut best);
            }
        }
        for _ in 0..ROUNDS {
            for factor in 0..shape.len() {
                for length in LENGTHS {
                    let mut hyper = best.clone();
                    hyper.lengths[factor] = length;
                    consider(hyper, &mut best);
                }
            }
            for noise in NOISES {
                consider(Hyper { noise, ..best.clone() }, &mut best);
            }
        }
        let (lower, solution, likelihood) = solve(&shape, &places, &values, &weights, &best)?;
        let (hyper, observed) = (best, weights);
        Some(Self { places, shape, mean, scale, hyper, lower, weights: solution, values, observed, likelihood })
    }

    /// What a trial there would find on average.
    pub fn mean(&self, point: &[usize]) -> f64 {
        let at = place(&self.shape, point);
        let sum: f64 = self
            .places
            .iter()
            .zip(&self.weights)
            .map(|(place, weight)| weight * kernel(&self.shape, &self.hyper.lengths, place, &at))
            .sum();
        self.mean + self.scale * sum
    }

    /// The mean and how far the truth may lie from it, as a standard deviation. A trial's own noise is not in it.
    pub fn predict(&self, point: &[usize]) -> (f64, f64) {
        let at = place(&self.shape, point);
        let covariance: Vec<f64> =
            self.places.iter().map(|place| kernel(&self.shape, &self.hyper.lengths, place, &at)).collect();
        let sum: f64 = covariance.iter().zip(&self.weights).map(|(covariance, weight)| covariance * weight).sum();
        let known: f64 = forward(&self.lower, &covariance).iter().map(|value| value * value).sum();
        (self.mean + self.scale * sum, self.scale * (1.0 - known).max(1e-9).sqrt())
    }

    /// How much better what was observed is explained with this factor than without it, as a difference of log likelihoods.
    /// Below two or so the factor may as well not be there.
    pub fn evidence(&self, factor: usize) -> f64 {
        let mut lengths = self.hyper.lengths.clone();
        // So long that no level is apart from another.
        lengths[factor] = 1e6;
        let without = NOISES
            .iter()
            .filter_map(|noise| {
                let hyper = Hyper { lengths: lengths.clone(), noise: *noise };
                Some(solve(&self.shape, &self.places, &self.values, &self.observed, &hyper)?.2)
            })
            .reduce(f64::max);
        without.map_or(f64::INFINITY, |without| self.likelihood - without)
    }

    /// Standard deviation of one trial of unit weight.
    pub fn noise(&self) -> f64 {
        self.scale * self.hyper.noise
    }
}

/// Chance that a standard normal lies below `value`. Source: Abramowitz and Stegun 26.2.17; the error is below 1e-7.
pub fn normal_below(value: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * value.abs());
    let poly =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = normal_density(value) * poly;
    if value >= 0.0 { 1.0 - tail } else { tail }
}

fn normal_density(value: f64) -> f64 {
    (-0.5 * value * value).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// By how much a point is expected to beat `best`: nothing when it does not.
pub fn expected_improvement(mean: f64, spread: f64, best: f64) -> f64 {
    let gain = mean - best;
    if spread <= 1e-12 {
        return gain.max(0.0);
    }
    let z = gain / spread;
    gain * normal_below(z) + spread * normal_density(z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::space::Knob;

    fn plane() -> Space {
        Space::new(&[Knob::BatchSize, Knob::Linger], 1).unwrap()
    }

    fn observe(space: &Space, count: usize, noise: f64, truth: impl Fn(&[usize]) -> f64) -> Vec<Observation> {
        let mut random = fastrand::Rng::with_seed(3);
        let points = space.latin_hypercube(count, 5).into_iter();
        points
            .map(|point| {
                let value = truth(&point) + noise * (random.f64() + random.f64() + random.f64() - 1.5) * 2.0;
                Observation { value, point, weight: 1.0 }
            })
            .collect()
    }

    fn hill(point: &[usize]) -> f64 {
        -0.05 * (point[0] as f64 - 4.0).powi(2) - 0.04 * (point[1] as f64 - 2.0).powi(2)
    }

    #[test]
    fn a_hill_is_found_from_a_handful_of_points() {
        let space = plane();
        let surrogate = Surrogate::fit(&space, &observe(&space, 14, 0.01, hill)).unwrap();
        let best = space.points().max_by(|a, b| surrogate.mean(a).total_cmp(&surrogate.mean(b))).unwrap();
        assert!(hill(&best) > -0.1, "{best:?}");
        let errors: Vec<f64> = space.points().map(|point| (surrogate.mean(&point) - hill(&point)).abs()).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        // Of a range of 1.4, from fourteen points of sixty-three.
        assert!(mean < 0.2, "{mean}");
    }

    #[test]
    fn a_measured_point_is_surer_than_one_far_away() {
        let space = plane();
        let observed = vec![
            Observation { point: vec![0, 0], value: 0.0, weight: 4.0 },
            Observation { point: vec![1, 0], value: 0.3, weight: 4.0 },
            Observation { point: vec![0, 1], value: -0.4, weight: 4.0 },
        ];
        let surrogate = Surrogate::fit(&space, &observed).unwrap();
        let (mean, near) = surrogate.predict(&[0, 0]);
        let (_, far) = surrogate.predict(&[8, 6]);
        assert!(near < far && mean.abs() < 0.2, "{mean} {near} {far}");
        assert!((surrogate.mean(&[3, 3]) - surrogate.predict(&[3, 3]).0).abs() < 1e-9);
    }

    #[test]
    fn a_knob_that_does_not_matter_is_flat() {
        let space = plane();
        let truth = |point: &[usize]| -0.1 * (point[0] as f64 - 4.0).powi(2);
        let surrogate = Surrogate::fit(&space, &observe(&space, 16, 0.005, truth)).unwrap();
        let column: Vec<f64> = (0..7).map(|level| surrogate.mean(&[4, level])).collect();
        let width = column.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            - column.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(width < 0.15, "{width}: {column:?}");
        assert!(surrogate.evidence(0) > 5.0 && surrogate.evidence(1) < 2.0);
    }

    #[test]
    fn too_little_is_refused_and_equal_values_do_no_harm() {
        let space = plane();
        assert!(Surrogate::fit(&space, &observe(&space, 2, 0.0, hill)).is_none());
        let flat = Surrogate::fit(&space, &observe(&space, 8, 0.0, |_| 3.0)).unwrap();
        assert!((flat.mean(&[4, 4]) - 3.0).abs() < 1e-3);
    }

    #[test]
    fn chances_and_improvements_are_right() {
        assert!((normal_below(0.0) - 0.5).abs() < 1e-6);
        assert!((normal_below(1.96) - 0.975).abs() < 1e-4 && (normal_below(-1.96) - 0.025).abs() < 1e-4);
        assert!((expected_improvement(1.0, 0.0, 0.4) - 0.6).abs() < 1e-12);
        assert_eq!(expected_improvement(0.0, 0.0, 0.4), 0.0);
        assert!((expected_improvement(0.0, 1.0, 0.0) - 0.398_942).abs() < 1e-4);
    }
}
