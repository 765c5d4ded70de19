//! What a replay of the last minutes proves: whether one policy is better than another by more than chance.
//!
//! The relQueries of a replay wait for each other, so their latencies are not independent draws. The method of
//! batch means (Law, Simulation Modeling and Analysis, 9.5.3) takes means of consecutive ones, which nearly are.

use std::ops::Range;

use scheduler::Policy;

use super::CandidateOutcome;
use crate::summary::LatencySummary;

/// What a replay under a candidate came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CandidateLatencies {
    pub(super) policy: Policy,
    /// Of each relQuery in seconds, in the order in which they arrived.
    pub(super) latencies: Vec<f64>,
}

impl CandidateLatencies {
    /// In short.
    pub(super) fn outcome(&self) -> CandidateOutcome {
        let LatencySummary { mean, p99, .. } = LatencySummary::of_latencies(&mut self.latencies.clone());
        CandidateOutcome { policy: self.policy, mean, p99 }
    }
}

/// Consecutive relQueries are taken together, so many times.
const BATCHES: usize = 8;

/// Whether `best` has a mean that is lower than that of `now` by so many thousandths, and by more than the standard
/// error of that difference.
pub(super) fn is_better(best: &CandidateLatencies, now: &CandidateLatencies, permille_min: u32) -> bool {
    let gains: Vec<f64> = now.latencies.iter().zip(&best.latencies).map(|(now, best)| now - best).collect();
    let (gain, all): (f64, f64) = (gains.iter().sum(), now.latencies.iter().sum());
    if gain <= all * f64::from(permille_min) / 1e3 {
        return false;
    }
    let of = |batch: usize| gains.len() * batch / BATCHES..gains.len() * (batch + 1) / BATCHES;
    let mean = gain / BATCHES as f64;
    let squares =
        (0..BATCHES).map(|batch| (gains[of(batch)].iter().sum::<f64>() - mean).powi(2)).sum::<f64>();
    let variance = squares / (BATCHES - 1) as f64;
    mean > (variance / BATCHES as f64).sqrt()
}

/// Whether the 99th percentile of the candidate at `place` is at most `permille_max` thousandths of the least that a
/// candidate has, over this part of the relQueries.
pub(super) fn keeps_tail(
    candidates: &[CandidateLatencies],
    place: usize,
    part: fn(usize) -> Range<usize>,
    permille_max: u32,
) -> bool {
    let p99 = |one: &CandidateLatencies| {
        LatencySummary::of_latencies(&mut one.latencies[part(one.latencies.len())].to_vec()).p99
    };
    let least = candidates.iter().map(p99).fold(f64::INFINITY, f64::min);
    p99(&candidates[place]) <= least * f64::from(permille_max) / 1e3
}
