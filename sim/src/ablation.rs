//! What each part of policy `marginal-work` gives: the same traces with one part switched off at a time.

use base::Millis;
use scheduler::{MarginalWorkConfig, Policy, SchedulerConfig, Steps};

use crate::paper::{Workload, generate};
use crate::replay::{SimError, replay};
use crate::replay_config::ReplayConfig;

/// One line of the table: a name, and the policy it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What is switched off, or the policy compared with.
    pub name: &'static str,
    pub policy: Policy,
    /// Its settings.
    pub marginal_work: MarginalWorkConfig,
}

/// What a variant came to: means over the seeds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariantOutcome {
    /// Mean latency.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// RelServe, marginal work, and marginal work without each of its parts.
pub fn variants() -> Vec<Variant> {
    let on = MarginalWorkConfig::default();
    let part = |name, marginal_work| Variant { name, policy: Policy::MarginalWork, marginal_work };
    let other = |name, policy| Variant { name, policy, marginal_work: on.clone() };
    vec![
        other("fcfs", Policy::Fcfs),
        other("relserve", Policy::RelServe),
        part("marginal-work", on.clone()),
        part(
            "- mixed steps (two-phase, across relQueries)",
            MarginalWorkConfig { steps: Steps::TwoPhase, ..on.clone() },
        ),
        part(
            "- marginal-work key (Eq. 10 instead)",
            MarginalWorkConfig { marginal_key: false, ..on.clone() },
        ),
        part("- learned lengths", MarginalWorkConfig { learned_lengths: false, ..on.clone() }),
        part("- exact sharing (Eq. 11 instead)", MarginalWorkConfig { exact_sharing: false, ..on.clone() }),
        part("- grouped rows", MarginalWorkConfig { grouped_rows: false, ..on.clone() }),
        part("- gain rule", MarginalWorkConfig { gain: None, ..on.clone() }),
        part("- age", MarginalWorkConfig { age_half_ms: None, ..on.clone() }),
        part("fair: age halves the work in 25 s", fair()),
    ]
}

/// The fairness switch: the longest wait is no longer than under first come, first served.
pub fn fair() -> MarginalWorkConfig {
    MarginalWorkConfig {
        age_half_ms: Some(Millis(25_000)),
        age_half_works: 0,
        ..MarginalWorkConfig::default()
    }
}

/// Replays `workload` with seeds `0..seeds` on an engine that hides `hide_permille`.
pub fn measure(
    variant: &Variant,
    workload: &Workload,
    hide_permille: u64,
    seeds: u64,
) -> Result<VariantOutcome, SimError> {
    let machine = ReplayConfig::default();
    let scheduler = SchedulerConfig { marginal_work: variant.marginal_work.clone(), ..machine.scheduler };
    let cost = machine.cost.hiding(hide_permille);
    let config = ReplayConfig { scheduler, cost, ..machine };
    let mut sum = VariantOutcome { mean: 0.0, p99: 0.0, max: 0.0 };
    for seed in 0..seeds {
        let summary = replay(&generate(&Workload { seed, ..*workload }), variant.policy, &config)?.summary;
        sum.mean += summary.mean / seeds as f64;
        sum.p99 += summary.p99 / seeds as f64;
        sum.max += summary.max / seeds as f64;
    }
    Ok(sum)
}
