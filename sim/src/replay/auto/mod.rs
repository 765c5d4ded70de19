//! Policy `auto` (DESIGN 12): the last minutes once more under each candidate, and which of them to serve by.
//!
//! [`choose`] is what a server calls with its record of the last minutes, and what a simulated server calls
//! with what it has seen so far ([`run`]): it knows no length of a row that has not ended.

mod run;

use base::Nanos;
use scheduler::{AutoConfig, Policy};
use serde::Serialize;

pub use run::run;

use crate::fleet::{FleetMachine, replay_fleet};
use crate::replay::{SimError, replay_watched};
use crate::replay_config::ReplayConfig;
use crate::summary::LatencySummary;
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
    /// Of these outcomes. The present policy stays unless another one that keeps the bound on the 99th
    /// percentile has a mean that is lower by as much as `settings` ask for, or the present one breaks that
    /// bound.
    fn of(
        present: Policy,
        relqueries: usize,
        outcomes: Vec<CandidateOutcome>,
        settings: &AutoConfig,
    ) -> Self {
        let least = outcomes.iter().map(|one| one.p99).fold(f64::INFINITY, f64::min);
        let bound = least * f64::from(settings.p99_permille_max) / 1e3;
        let allowed = || outcomes.iter().filter(|one| one.p99 <= bound);
        let best = allowed().min_by(|a, b| a.mean.total_cmp(&b.mean)).copied();
        let now = allowed().find(|one| one.policy == present);
        let factor = 1.0 - f64::from(settings.gain_permille_min) / 1e3;
        let chosen = match (best, now) {
            (Some(best), Some(now)) if best.mean >= now.mean * factor => present,
            (Some(best), _) => best.policy,
            (None, _) => present,
        };
        Self { present, chosen, relqueries, outcomes }
    }

    /// The outcome of a policy, where it is a candidate.
    pub fn outcome(&self, policy: Policy) -> Option<&CandidateOutcome> {
        self.outcomes.iter().find(|one| one.policy == policy)
    }
}

impl std::fmt::Display for Verdict {
    /// `marginal-work 1.23 s, relserve-dp 1.19 s (of 40 relQueries): changes to relserve-dp`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, one) in self.outcomes.iter().enumerate() {
            write!(f, "{}{} {:.3} s", if place > 0 { ", " } else { "" }, one.policy, one.mean)?;
        }
        write!(f, " (mean of {} relQueries): ", self.relqueries)?;
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

    fn replay(
        &self,
        trace: &Trace,
        policy: Policy,
        watch: &mut dyn Watcher,
    ) -> Result<LatencySummary, SimError> {
        match self {
            Self::Engine(config) => {
                let mut config = config.clone();
                config.scheduler.fairness.get_or_insert(true);
                Ok(replay_watched(trace, policy, &config, watch)?.summary)
            }
            Self::Fleet(machine) => {
                let mut machine = machine.clone();
                machine.queue.fairness.get_or_insert(true);
                Ok(replay_fleet(trace, policy, &machine, watch)?.summary)
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
    let mut outcomes = Vec::with_capacity(Policy::CANDIDATES.len());
    for policy in Policy::CANDIDATES {
        let summary = judge.replay(&trace, policy, watch)?;
        outcomes.push(CandidateOutcome { policy, mean: summary.mean, p99: summary.p99 });
    }
    Ok(Some(Verdict::of(present, trace.relqueries.len(), outcomes, settings)))
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

    fn outcome(policy: Policy, mean: f64, p99: f64) -> CandidateOutcome {
        CandidateOutcome { policy, mean, p99 }
    }

    fn chosen(outcomes: &[CandidateOutcome]) -> Policy {
        Verdict::of(Policy::RelServe, 20, outcomes.to_vec(), &AutoConfig::default()).chosen
    }

    #[test]
    fn a_change_needs_a_gain_and_a_bearable_tail() {
        let present = outcome(Policy::RelServe, 1.0, 10.0);
        assert_eq!(chosen(&[outcome(Policy::MarginalWork, 0.995, 10.0), present]), Policy::RelServe);
        assert_eq!(chosen(&[outcome(Policy::MarginalWork, 0.98, 10.0), present]), Policy::MarginalWork);
        assert_eq!(chosen(&[outcome(Policy::MarginalWork, 0.5, 12.6), present]), Policy::RelServe);
        assert_eq!(chosen(&[outcome(Policy::MarginalWork, 1.1, 7.9), present]), Policy::MarginalWork);
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
