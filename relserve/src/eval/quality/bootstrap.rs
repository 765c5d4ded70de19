//! Intervals by resampling (Efron 1979): of a mean, and of the mean difference of two ways of asking the same
//! rows, as the GGR paper compares accuracies (*Optimizing LLM Queries in Relational Data Analytics
//! Workloads*, figure 6: 10,000 resamples).

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Resamples of each interval.
pub(super) const RESAMPLES: usize = 10_000;

/// The middle and 95 of 100 resampled means.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Interval {
    /// The 2.5th percentile.
    pub(super) low: f64,
    pub(super) median: f64,
    /// The 97.5th.
    pub(super) high: f64,
}

/// Resamples rows with replacement and takes the mean of each resample. Values that are differences of paired
/// rows give the paired bootstrap: both of a pair are drawn together.
pub(super) fn bootstrap(values: &[f64], seed: u64) -> Option<Interval> {
    let count = values.len();
    if count == 0 {
        return None;
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut mean = || {
        let drawn = (0..count).map(|_| values[random.random_range(0..count)]);
        drawn.sum::<f64>() / count as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| mean()).collect();
    means.sort_by(f64::total_cmp);
    let at = |permille: usize| means[(RESAMPLES - 1) * permille / 1_000];
    Some(Interval { low: at(25), median: at(500), high: at(975) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_known_share_is_that_of_the_normal_approximation() {
        // 64 of 100: a standard deviation of sqrt(0.64 * 0.36 / 100) = 0.048.
        let values: Vec<f64> = (0..100).map(|row| f64::from(row < 64)).collect();
        let Interval { low, median, high } = bootstrap(&values, 7).expect("there are values");
        assert!((median - 0.64).abs() <= 0.01, "{median}");
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.015;
        assert!(near(low, 0.64 - 1.96 * 0.048) && near(high, 0.64 + 1.96 * 0.048), "{low} {high}");
    }

    #[test]
    fn paired_differences_have_the_interval_of_the_pairs_and_not_of_the_scores() {
        // The second way is right where the first is, and in 10 more of 200 rows.
        let one: Vec<f64> = (0..200).map(|row| f64::from(row % 2 == 0)).collect();
        let other: Vec<f64> = (0..200).map(|row| f64::from(row % 2 == 0 || row % 20 == 1)).collect();
        let differences: Vec<f64> = one.iter().zip(&other).map(|(one, other)| other - one).collect();
        let Interval { low, median, high } = bootstrap(&differences, 7).expect("there are values");
        assert!(low < median && median < high, "an interval, not a constant: {low} {median} {high}");
        // sqrt(0.05 * 0.95 / 200) = 0.0154, a third of what unpaired scores have (0.05).
        assert!((median - 0.05).abs() <= 0.005 && (0.02..0.03).contains(&low), "{low} {median}");
        assert!((0.075..0.09).contains(&high), "{high}");
        assert_ne!(bootstrap(&differences, 7), bootstrap(&one, 7));
        assert_eq!(bootstrap(&differences, 7), bootstrap(&differences, 7), "one seed, one interval");
    }

    #[test]
    fn what_never_differs_has_no_width_and_nothing_has_no_interval() {
        let same = bootstrap(&[0.0; 30], 1).expect("there are values");
        assert_eq!((same.low, same.median, same.high), (0.0, 0.0, 0.0));
        assert_eq!(bootstrap(&[], 1), None);
    }
}
