//! Least squares with coefficients that cannot be negative: costs and times are not.
//!
//! Pure. Owns the arithmetic only. Always true: the answer has as many coefficients as there are columns, none negative;
//! columns that tell the same story are the caller's to join. Source: Lawson and Hanson's active sets, by coordinate descent,
//! which needs no inverse and converges because the problem is convex.

/// Passes over the coefficients. Each is a few hundred operations; problems here have at most six columns.
const PASSES: usize = 20_000;
/// Relative change below which the passes end.
const SETTLED: f64 = 1e-12;

/// Coefficients `x ≥ 0` that make `rows · x` nearest to `values`, each row weighted by 1/value: what is made small is the
/// relative error. Rows whose value is not positive are left out.
pub fn fit(rows: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    let weighted: Vec<Vec<f64>> = rows
        .iter()
        .zip(values)
        .filter(|(_, value)| **value > 0.0)
        .map(|(row, value)| row.iter().map(|cell| cell / value).collect())
        .collect();
    // Columns are brought to one size, so that a pass moves all of them alike.
    let size = |column: usize| weighted.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
    let sizes: Vec<f64> = (0..columns).map(size).collect();
    let scaled = |row: &[f64], column: usize| if sizes[column] > 0.0 { row[column] / sizes[column] } else { 0.0 };
    let product = |a: usize, b: usize| weighted.iter().map(|row| scaled(row, a) * scaled(row, b)).sum::<f64>();
    let gram: Vec<Vec<f64>> = (0..columns).map(|a| (0..columns).map(|b| product(a, b)).collect()).collect();
    let right: Vec<f64> = (0..columns).map(|a| weighted.iter().map(|row| scaled(row, a)).sum()).collect();
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
