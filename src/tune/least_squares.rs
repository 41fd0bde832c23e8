//! Least squares with coefficients that cannot be negative: costs and times are not.
//!
//! Pure. Owns the arithmetic only. Always true: the answer has as many coefficients as there are columns, none negative;
//! columns that tell the same story are the caller's to join. Source: Lawson and Hanson's active sets, by coordinate descent,
//! which needs no inverse and converges because the problem is convex.

/// Passes over the coefficients. Each is a few hundred operations; problems here have at most six columns.
const PASSES: usize = 20_000;
/// Relative change below which the passes end.
const SETTLED: f64 = 1e-12;

/// Passes of the robust fit; the weights hardly move after the fifth.
const ROBUST_PASSES: usize = 6;
/// Errors up to this many times the middle one count in full.
const USUAL: f64 = 2.0;

/// Coefficients `x ≥ 0` that make `rows · x` nearest to `values`, each row weighted by 1/value: what is made small is the
/// relative error. Rows whose value is not positive are left out.
pub fn fit(rows: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    fit_weighted(rows, values, &vec![1.0; values.len()])
}

/// The same, but a row that errs far more than most loses weight: one trial in which the host stalled, or a broker was still
/// cold, must not bend the whole. Source: Huber's weights by iterated least squares.
pub fn fit_robust(rows: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut solved = fit(rows, values);
    for _ in 0..ROBUST_PASSES {
        let error = |(row, value): (&Vec<f64>, &f64)| {
            let found: f64 = row.iter().zip(&solved).map(|(cell, coefficient)| cell * coefficient).sum();
            // The logarithm, so that half and double err alike.
            (found.max(1e-12) / value.max(1e-12)).ln().abs()
        };
        let errors: Vec<f64> = rows.iter().zip(values).map(error).collect();
        let mut sorted = errors.clone();
        sorted.sort_by(f64::total_cmp);
        let usual = USUAL * sorted.get(sorted.len() / 2).copied().unwrap_or(0.0).max(0.005);
        let weights: Vec<f64> = errors.iter().map(|error| (usual / error.max(1e-12)).min(1.0).sqrt()).collect();
        solved = fit_weighted(rows, values, &weights);
    }
    solved
}

fn fit_weighted(rows: &[Vec<f64>], values: &[f64], weights: &[f64]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    let (weighted, aims): (Vec<Vec<f64>>, Vec<f64>) = rows
        .iter()
        .zip(values)
        .zip(weights)
        .filter(|((_, value), _)| **value > 0.0)
        .map(|((row, value), weight)| (row.iter().map(|cell| cell * weight / value).collect::<Vec<f64>>(), *weight))
        .unzip();
    // Columns are brought to one size, so that a pass moves all of them alike.
    let size = |column: usize| weighted.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
    let sizes: Vec<f64> = (0..columns).map(size).collect();
    let scaled = |row: &[f64], column: usize| if sizes[column] > 0.0 { row[column] / sizes[column] } else { 0.0 };
    let product = |a: usize, b: usize| weighted.iter().map(|row| scaled(row, a) * scaled(row, b)).sum::<f64>();
    let gram: Vec<Vec<f64>> = (0..columns).map(|a| (0..columns).map(|b| product(a, b)).collect()).collect();
    let right: Vec<f64> =
        (0..columns).map(|a| weighted.iter().zip(&aims).map(|(row, aim)| scaled(row, a) * aim).sum()).collect();
    let mut solved = vec![0.0; columns];
    for _ in 0..PASSES {
        let mut moved: f64 = 0.0;
        for column in 0..columns {
            if gram[column][column] <= 0.0 {
                continue;
            }
            let rest: f64 =
                (0..columns).filter(|other| *other != column).map(|other| gram[column][other] * solved[other]).sum();
            let value = ((right[column] - rest) / gram[column][column]).max(0.0);
            moved = moved.max((value - solved[column]).abs());
            solved[column] = value;
        }
        if moved < SETTLED {
            break;
        }
    }
    solved.iter().zip(&sizes).map(|(value, size)| if *size > 0.0 { value / size } else { 0.0 }).collect()
}

/// The share of `column` that is not explained by a multiple of `other`, rows weighted by 1/value: near zero when both tell
/// the same story.
pub fn apart(rows: &[Vec<f64>], values: &[f64], column: usize, other: usize) -> f64 {
    let pairs: Vec<(f64, f64)> = rows
        .iter()
        .zip(values)
        .filter(|(_, value)| **value > 0.0)
        .map(|(row, value)| (row[column] / value, row[other] / value))
        .collect();
    let (mut mine, mut theirs, mut both) = (0.0, 0.0, 0.0);
    for (a, b) in pairs {
        mine += a * a;
        theirs += b * b;
        both += a * b;
    }
    if mine <= 0.0 || theirs <= 0.0 { 0.0 } else { (1.0 - both * both / (mine * theirs)).max(0.0).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_sums_are_found_again() {
        let mut random = fastrand::Rng::with_seed(2);
        let truth = [3.0, 0.0, 0.5];
        let rows: Vec<Vec<f64>> =
            (0..20).map(|_| vec![random.f64() * 10.0, random.f64() * 1000.0, 1.0 + random.f64()]).collect();
        let values: Vec<f64> = rows.iter().map(|row| row.iter().zip(truth).map(|(a, b)| a * b).sum()).collect();
        let found = fit(&rows, &values);
        for (found, truth) in found.iter().zip(truth) {
            assert!((found - truth).abs() < 1e-4, "{found} {truth}");
        }
    }

    #[test]
    fn one_wild_row_does_not_bend_a_robust_fit() {
        let rows: Vec<Vec<f64>> = (1..20).map(|index| vec![f64::from(index), 1.0]).collect();
        let mut values: Vec<f64> = rows.iter().map(|row| 2.0 * row[0] + 5.0).collect();
        values[0] = 100.0;
        let found = fit_robust(&rows, &values);
        assert!((found[0] - 2.0).abs() < 0.1 && (found[1] - 5.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn no_coefficient_is_negative_and_empty_columns_are_zero() {
        let rows = vec![vec![1.0, 1.0, 0.0], vec![1.0, 2.0, 0.0], vec![1.0, 3.0, 0.0]];
        let found = fit(&rows, &[3.0, 2.0, 1.0]);
        assert!(found.iter().all(|value| *value >= 0.0) && found[2] == 0.0, "{found:?}");
        assert!(fit(&[], &[]).is_empty());
    }

    #[test]
    fn columns_that_tell_one_story_are_not_apart() {
        let rows = vec![vec![1.0, 2.0, 5.0], vec![2.0, 4.0, 1.0], vec![3.0, 6.0, 2.0]];
        let values = [1.0, 1.0, 1.0];
        assert!(apart(&rows, &values, 0, 1) < 1e-6);
        assert!(apart(&rows, &values, 0, 2) > 0.3);
    }
}
