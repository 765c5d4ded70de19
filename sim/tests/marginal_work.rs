//! What policy `marginal-work` gives against RelServe's own on the paper's workload and with a second tenant,
//! on the same seeded traces for both. The figures are shown with `-- --nocapture`; docs/MARGINAL-WORK.md has
//! the table.

use std::collections::BTreeMap;

use scheduler::{MarginalWorkConfig, Policy, Steps};
use sim::ablation::{Variant, VariantOutcome, fair, measure};
use sim::{LatencySummary, Offline, ReplayConfig, Workload, generate, replay};

const SEEDS: u64 = 8;

fn of(policy: Policy, settings: MarginalWorkConfig, rate: f64, hide_permille: u64) -> VariantOutcome {
    let variant = Variant { name: "", policy, marginal_work: settings };
    let workload = Workload { rate, ..Workload::default() };
    measure(&variant, &workload, hide_permille, SEEDS).expect("a replay")
}

/// RelServe's mean and 99th percentile over those of marginal work.
fn gains(settings: MarginalWorkConfig, rate: f64, hide_permille: u64) -> (f64, f64) {
    let relserve = of(Policy::RelServe, MarginalWorkConfig::default(), rate, hide_permille);
    let marginal = of(Policy::MarginalWork, settings, rate, hide_permille);
    (relserve.mean / marginal.mean, relserve.p99 / marginal.p99)
}

fn check(rate: f64, hide_permille: u64, mean_min: f64, p99_min: f64) {
    let (mean, p99) = gains(MarginalWorkConfig::default(), rate, hide_permille);
    eprintln!("{rate}/s, hide {hide_permille}: mean {mean:.3} times lower, p99 {p99:.3} times");
    assert!(mean >= mean_min, "{rate}/s, hide {hide_permille}: mean {mean} times lower");
    assert!(p99 >= p99_min, "{rate}/s, hide {hide_permille}: p99 {p99} times lower");
}

#[test]
fn where_prompts_hide_the_mean_is_much_lower() {
    check(1.0, 1_000, 1.46, 1.0 / 0.8);
    check(1.0, 750, 1.39, 1.0 / 0.8);
    check(0.8, 750, 1.43, 1.0 / 0.8);
    check(0.6, 750, 1.45, 1.0 / 0.8);
}

#[test]
fn where_nothing_hides_the_mean_is_still_lower() {
    // Age on the scale of the work that comes gives 1.104 here, and no mean above RelServe's on small bases.
    check(1.0, 0, 1.15, 1.10);
    // The gain that was tuned to this machine gave 1.18 at these two.
    check(0.8, 0, 1.17, 1.0 / 0.9);
    check(0.6, 0, 1.16, 1.0 / 0.9);
}

#[test]
fn with_the_fairness_switch_nobody_waits_longer_than_under_first_come_first_served() {
    for (hide_permille, mean_min) in [(1_000, 1.35), (750, 1.27)] {
        let fcfs = of(Policy::Fcfs, MarginalWorkConfig::default(), 1.0, hide_permille);
        let relserve = of(Policy::RelServe, MarginalWorkConfig::default(), 1.0, hide_permille);
        let fair = of(Policy::MarginalWork, fair(), 1.0, hide_permille);
        eprintln!("fair, hide {hide_permille}: {:.3} {} {}", relserve.mean / fair.mean, fair.p99, fcfs.p99);
        assert!(relserve.mean / fair.mean >= mean_min, "mean {} against {}", fair.mean, relserve.mean);
        assert!(fair.p99 <= fcfs.p99, "p99 {} against {}", fair.p99, fcfs.p99);
    }
}

#[test]
fn an_engine_that_cannot_mix_gains_by_batches_across_relqueries() {
    let two_phase = MarginalWorkConfig { steps: Steps::TwoPhase, ..MarginalWorkConfig::default() };
    for rate in [0.7, 1.0] {
        let (mean, _) = gains(two_phase.clone(), rate, 0);
        eprintln!("two-phase {rate}: {mean:.3}");
        assert!(mean >= 1.10, "{rate}/s: mean {mean} times lower");
    }
}

/// Means over the seeds of each tenant's mean and 99th percentile.
fn tenants(policy: Policy, hide_permille: u64) -> BTreeMap<String, (f64, f64)> {
    let workload = Workload { rate: 0.4, offline: Some(Offline::default()), ..Workload::default() };
    let config = ReplayConfig::default();
    let config = ReplayConfig { cost: config.cost.hiding(hide_permille), ..config };
    let mut means: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for seed in 0..4 {
        let trace = generate(&Workload { seed, ..workload });
        let done = replay(&trace, policy, &config).expect("a replay").t_done;
        let mut latencies: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (relquery, done) in trace.relqueries.iter().zip(done) {
            latencies.entry(&relquery.tenant).or_default().push(done - relquery.arrival);
        }
        for (tenant, mut latencies) in latencies {
            let summary = LatencySummary::of_latencies(&mut latencies);
            let mean = means.entry(tenant.to_owned()).or_default();
            *mean = (mean.0 + summary.mean / 4.0, mean.1 + summary.p99 / 4.0);
        }
    }
    means
}

#[test]
fn an_interactive_tenant_is_faster_beside_a_heavy_offline_one_which_is_no_worse() {
    for (hide_permille, mean_min, p99_min) in [(750, 1.5, 1.7), (1_000, 1.5, 1.7), (0, 1.15, 1.2)] {
        let (relserve, marginal) =
            (tenants(Policy::RelServe, hide_permille), tenants(Policy::MarginalWork, hide_permille));
        let (mean, p99) =
            (relserve["online"].0 / marginal["online"].0, relserve["online"].1 / marginal["online"].1);
        eprintln!(
            "tenants, hide {hide_permille}: {mean:.3} {p99:.3} {} {}",
            relserve["offline"].0, marginal["offline"].0
        );
        assert!(mean >= mean_min, "hide {hide_permille}: online mean {mean} times lower");
        assert!(p99 >= p99_min, "hide {hide_permille}: online p99 {p99} times lower");
        let (before, after) = (relserve["offline"].0, marginal["offline"].0);
        assert!(after <= before, "hide {hide_permille}: offline mean {after} s, {before} s under RelServe");
    }
}
