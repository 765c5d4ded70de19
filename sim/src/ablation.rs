//! What each part of policy `ours` gives: the same traces with one part switched off at a time.

use base::Millis;
use scheduler::{OursConfig, Policy, SchedulerConfig, Steps};

use crate::paper::{Workload, generate};
use crate::replay::{SimError, replay};
use crate::replay_config::ReplayConfig;

/// One line of the table: a name, and the policy it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What is switched off, or the policy compared with.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// Its settings.
    pub ours: OursConfig,
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

/// RelServe, `ours`, and `ours` without each of its parts.
pub fn variants() -> Vec<Variant> {
    let on = OursConfig::default();
    let ours = |name, ours| Variant { name, policy: Policy::Ours, ours };
    let other = |name, policy| Variant { name, policy, ours: on.clone() };
    vec![
        other("fcfs", Policy::Fcfs),
        other("relserve", Policy::RelServe),
        ours("ours", on.clone()),
        ours(
            "- mixed steps (two-phase, across relQueries)",
            OursConfig { steps: Steps::TwoPhase, ..on.clone() },
        ),
        ours("- marginal-work key (Eq. 10 instead)", OursConfig { marginal_key: false, ..on.clone() }),
        ours("- learned lengths", OursConfig { learned_lengths: false, ..on.clone() }),
        ours("- exact sharing (Eq. 11 instead)", OursConfig { exact_sharing: false, ..on.clone() }),
        ours("- grouped rows", OursConfig { grouped_rows: false, ..on.clone() }),
        ours("- gain rule", OursConfig { gain: None, ..on.clone() }),
        ours("- age", OursConfig { age_half_ms: None, ..on.clone() }),
        ours("fair: age halves the work in 25 s", fair()),
    ]
}

/// The fairness switch: the longest wait is no longer than under first come, first served.
pub fn fair() -> OursConfig {
    OursConfig { age_half_ms: Some(Millis(25_000)), ..OursConfig::default() }
}

/// Replays `workload` with seeds `0..seeds` on an engine that hides `hide_permille`.
pub fn measure(
    variant: &Variant,
    workload: &Workload,
    hide_permille: u64,
    seeds: u64,
) -> Result<VariantOutcome, SimError> {
    let machine = ReplayConfig::default();
    let scheduler = SchedulerConfig { ours: variant.ours.clone(), ..machine.scheduler };
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
