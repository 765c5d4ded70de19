//! When relQueries arrive: an open loop, so arrivals never wait for answers.

use std::time::Duration;

use crate::random::SplitMix64;

/// Arrival times of a Poisson process with `rate_per_s`, counted from the start; the first is at its own gap.
pub fn poisson(seed: u64, rate_per_s: f64, count: u32) -> Vec<Duration> {
    let mut random = SplitMix64::new(seed, "arrivals");
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            // The inverse of the exponential distribution; 1 - u is never 0.
            at += -(1.0 - random.unit()).ln() / rate_per_s;
            Duration::from_secs_f64(at)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let times = poisson(5, 4.0, 20_000);
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.25).abs() < 0.01, "{mean}");
        // An exponential's deviation equals its mean.
        assert!((variance.sqrt() - 0.25).abs() < 0.01, "{variance}");
        let long = gaps.iter().filter(|gap| **gap > 0.25).count() as f64 / gaps.len() as f64;
        assert!((long - (-1.0f64).exp()).abs() < 0.01, "{long}");
    }

    #[test]
    fn a_seed_is_a_trace_and_more_arrivals_do_not_change_the_first() {
        assert_eq!(poisson(7, 1.0, 10), poisson(7, 1.0, 20)[..10]);
        assert_ne!(poisson(7, 1.0, 10), poisson(8, 1.0, 10));
    }
}
