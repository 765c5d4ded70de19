//! Policy `auto` (DESIGN 12): the last minutes once more under each candidate, and which of them to serve by.
//!
//! [`choose`] is what a server calls with its record of the last minutes, and what a simulated server calls
//! with what it has seen so far ([`run`]): it knows no length of a row that has not ended.

mod evidence;
mod run;

use std::ops::Range;

use base::Nanos;
use scheduler::{AutoConfig, Policy};
use serde::Serialize;

use evidence::{CandidateLatencies, is_better, keeps_tail};
pub use run::run;

use crate::fleet::{FleetMachine, replay_fleet};
use crate::replay::{SimError, replay_latencies};
use crate::replay_config::ReplayConfig;
use crate::trace::{Trace, TraceRelQuery};
use crate::watch::Watcher;

/// How the last minutes come out under a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CandidateOutcome {
    /// The candidate.
    pub policy: Policy,
    /// Mean latency of relQueries, in seconds.
    pub mean: f64,
    /// 99th percentile, in seconds.
    pub p99: f64,
}

/// Which policy to serve by from now on, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The one that is in force.
    pub present: Policy,
    /// The one that should be.
    pub chosen: Policy,
    /// RelQueries that were replayed.
    pub relqueries: usize,
    /// Each candidate.
    pub outcomes: Vec<CandidateOutcome>,
}

impl Verdict {
    /// Of these latencies. The present policy stays unless another one that keeps the bound on the 99th
    /// percentile has a mean that is lower by as much as `settings` ask for and by more than chance makes it
    /// (`evidence`), or the present one breaks that bound over the whole time and in both halves of it.
    fn of(present: Policy, candidates: &[CandidateLatencies], settings: &AutoConfig) -> Self {
        let outcomes: Vec<CandidateOutcome> = candidates.iter().map(CandidateLatencies::outcome).collect();
        let keeps = |place: usize, part: fn(usize) -> Range<usize>| {
            keeps_tail(candidates, place, part, settings.p99_permille_max)
        };
        let allowed = (0..candidates.len()).filter(|place| keeps(*place, |count| 0..count));
        let best = allowed.min_by(|a, b| outcomes[*a].mean.total_cmp(&outcomes[*b].mean));
        let parts: [fn(usize) -> Range<usize>; 3] =
            [|count| 0..count, |count| 0..count / 2, |count| count / 2..count];
        let now = candidates.iter().position(|one| one.policy == present);
        let now = now.filter(|place| parts.iter().any(|part| keeps(*place, *part)));
        let chosen = match (best.map(|place| &candidates[place]), now.map(|place| &candidates[place])) {
            (Some(best), Some(now)) if is_better(best, now, settings.gain_permille_min) => best.policy,
            (Some(best), None) => best.policy,
            _ => present,
        };
        let relqueries = candidates.first().map_or(0, |one| one.latencies.len());
        Self { present, chosen, relqueries, outcomes }
    }

    /// The outcome of a policy, where it is a candidate.
    pub fn outcome(&self, policy: Policy) -> Option<&CandidateOutcome> {
        self.outcomes.iter().find(|one| one.policy == policy)
    }
}

impl std::fmt::Display for Verdict {
    /// `marginal-work 1.230 s (p99 4.000), relserve 1.190 s (p99 4.100), means of 40 relQueries: stays with ..`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, one) in self.outcomes.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{} {:.3} s (p99 {:.3})", one.policy, one.mean, one.p99)?;
        }
        write!(f, ", means of {} relQueries: ", self.relqueries)?;
        match self.chosen == self.present {
            true => write!(f, "stays with {}", self.present),
            false => write!(f, "changes from {} to {}", self.present, self.chosen),
        }
    }
}

/// What runs the rows.
#[derive(Clone, Debug)]
pub enum Judge {
    /// An engine under its scheduler.
    Engine(Box<ReplayConfig>),
    /// Replicas behind a fleet.
    Fleet(Box<FleetMachine>),
}

impl Judge {
    fn settings(&self) -> &AutoConfig {
        match self {
            Self::Engine(config) => &config.scheduler.auto,
            Self::Fleet(machine) => &machine.queue.auto,
        }
    }

    /// Latency of each relQuery, in seconds, in the order of the trace.
    fn replay(&self, trace: &Trace, policy: Policy, watch: &mut dyn Watcher) -> Result<Vec<f64>, SimError> {
        match self {
            Self::Engine(config) => {
                let mut config = config.clone();
                config.scheduler.fairness.get_or_insert(true);
                // A latency ends with the last row. What a relQuery gives of it to see its first rows early is asked
                // for, and speaks for no policy that has none.
                config.scheduler.marginal_work.first_rows_permille = 0;
                replay_latencies(trace, policy, &config, watch)
            }
            Self::Fleet(machine) => {
                let mut machine = machine.clone();
                machine.queue.fairness.get_or_insert(true);
                let ends = replay_fleet(trace, policy, &machine, watch)?.t_done;
                Ok(trace.relqueries.iter().zip(ends).map(|(one, end)| end - one.arrival).collect())
            }
        }
    }
}

/// Replays a trace of the last minutes under each candidate. `None` where it says too little.
pub fn choose(
    mut trace: Trace,
    present: Policy,
    judge: &Judge,
    watch: &mut dyn Watcher,
) -> Result<Option<Verdict>, SimError> {
    let settings = judge.settings();
    if trace.relqueries.len() < settings.relqueries_min as usize {
        return Ok(None);
    }
    expect_lengths(&mut trace);
    let mut candidates = Vec::with_capacity(Policy::CANDIDATES.len());
    for policy in Policy::CANDIDATES {
        let latencies = judge.replay(&trace, policy, watch)?;
        candidates.push(CandidateLatencies { policy, latencies });
    }
    Ok(Some(Verdict::of(present, &candidates, settings)))
}

/// Gives each row that has not ended, which a record has with an output of 0, the length that rows like it
/// had: those of its relQuery, else those of its template and output limit, else that limit.
fn expect_lengths(trace: &mut Trace) {
    let ended = |relquery: &TraceRelQuery| {
        let known = relquery.rows.iter().map(|row| row[2]).filter(|output| *output > 0);
        known.fold((0, 0), |(rows, tokens), output| (rows + 1, tokens + output))
    };
    let mean = |(rows, tokens): (i64, i64)| (rows > 0).then(|| (tokens + rows / 2) / rows);
    let all: Vec<(u64, u64, (i64, i64))> =
        trace.relqueries.iter().map(|one| (one.template_id, one.ol, ended(one))).collect();
    for relquery in &mut trace.relqueries {
        if relquery.rows.iter().all(|row| row[2] > 0) {
            continue;
        }
        let alike = || {
            let same = all.iter().filter(|(id, ol, _)| (*id, *ol) == (relquery.template_id, relquery.ol));
            mean(same.fold((0, 0), |(rows, tokens), (_, _, one)| (rows + one.0, tokens + one.1)))
        };
        let limit = i64::try_from(relquery.ol).unwrap_or(i64::MAX);
        let expected = mean(ended(relquery)).or_else(alike).unwrap_or(limit).clamp(1, limit.max(1));
        relquery.rows.iter_mut().filter(|row| row[2] <= 0).for_each(|row| row[2] = expected);
    }
}

/// A change of policy in a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Switch {
    /// When.
    pub at: Nanos,
    /// Why.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen where `relserve` is in force and each of 80 relQueries takes a second under it; under
    /// `marginal-work` the relQuery at each place takes so many.
    fn chosen(seconds: fn(usize) -> f64) -> Policy {
        let under = |policy, seconds: fn(usize) -> f64| CandidateLatencies {
            policy,
            latencies: (0..80).map(seconds).collect(),
        };
        let candidates = [under(Policy::MarginalWork, seconds), under(Policy::RelServe, |_| 1.0)];
        Verdict::of(Policy::RelServe, &candidates, &AutoConfig::default()).chosen
    }

    #[test]
    fn a_change_needs_a_gain_that_is_not_chance_and_a_bearable_tail() {
        assert_eq!(chosen(|_| 0.995), Policy::RelServe, "half a hundredth is less than asked for");
        assert_eq!(chosen(|_| 0.98), Policy::MarginalWork);
        // Two hundredths on average, of batches that gain and lose in turn: chance alone makes as much.
        assert_eq!(chosen(|at| if (at / 10).is_multiple_of(2) { 0.8 } else { 1.16 }), Policy::RelServe);
        assert_eq!(chosen(|at| if (at / 10).is_multiple_of(2) { 0.9 } else { 1.0 }), Policy::MarginalWork);
        assert_eq!(chosen(|at| if at % 40 == 39 { 1.3 } else { 0.5 }), Policy::RelServe, "a long tail");
    }

    #[test]
    fn a_tail_that_is_too_long_at_all_times_ends_a_policy() {
        let long = |from: usize| {
            let latencies = (0..80).map(|at| if at >= from && at % 4 == 3 { 1.6 } else { 0.7 }).collect();
            let candidates = [
                CandidateLatencies { policy: Policy::RelServe, latencies },
                CandidateLatencies { policy: Policy::MarginalWork, latencies: vec![1.0; 80] },
            ];
            Verdict::of(Policy::RelServe, &candidates, &AutoConfig::default()).chosen
        };
        assert_eq!(long(40), Policy::RelServe, "in the second half alone: that may pass");
        assert_eq!(long(0), Policy::MarginalWork);
    }

    #[test]
    fn a_row_that_has_not_ended_is_as_long_as_those_like_it() {
        let relquery = |template_id, outputs: &[i64]| TraceRelQuery {
            template_id,
            ol: 50,
            rows: outputs.iter().map(|output| [-1, 5, *output]).collect(),
            ..TraceRelQuery::default()
        };
        let relqueries = vec![relquery(1, &[10, 0, 20]), relquery(1, &[0]), relquery(2, &[0])];
        let mut trace = Trace { relqueries, ..Trace::default() };
        expect_lengths(&mut trace);
        let lengths: Vec<Vec<i64>> =
            trace.relqueries.iter().map(|one| one.rows.iter().map(|row| row[2]).collect()).collect();
        assert_eq!(lengths, [vec![10, 15, 20], vec![15], vec![50]]);
    }
}
