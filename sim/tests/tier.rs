//! The host tier on traces: what it finds, and what its moves cost.
//!
//! The figures of docs/HOST-TIER.md: `cargo test -p sim --test tier -- --nocapture`.

use scheduler::{Policy, SchedulerConfig};
use serde_json::json;
use sim::{Machine, Replay, Trace, Workload, generate, replay};

/// Forty documents of 1,000 tokens, each asked three questions about, in turn: three times through all of
/// them.
fn documents() -> Trace {
    let templates: Vec<_> = (0..40).map(|id| json!({"id": id, "tokens": 1_000})).collect();
    let relquery = |number: u32| {
        json!({
            "rel_id": number, "tenant": "a", "arrival": f64::from(number) * 0.5, "template_id": number % 40,
            "ol": 8, "groups": [], "rows": [[-1, 30, 8], [-1, 30, 8], [-1, 30, 8]],
        })
    };
    let relqueries: Vec<_> = (0..120).map(relquery).collect();
    let trace = json!({
        "schema": "relserve-trace/1", "name": "documents", "templates": templates, "relqueries": relqueries,
    });
    Trace::parse(&trace.to_string()).expect("it is one")
}

/// What a tier does with what is evicted.
#[derive(Clone, Copy, Debug)]
enum Tier {
    Absent,
    All,
    Reused,
}

/// A trace under policy `marginal-work`, the tier four times the pool.
fn run(trace: &Trace, machine: Machine, tier: Tier) -> Replay {
    let mut config = machine.config(1_000);
    let limits = config.scheduler;
    let host_kv_blocks = if matches!(tier, Tier::Absent) { 0 } else { 4 * limits.kv_blocks };
    let host_kv_reused_only = matches!(tier, Tier::Reused);
    config.scheduler = SchedulerConfig { host_kv_blocks, host_kv_reused_only, ..limits };
    replay(trace, Policy::MarginalWork, &config).expect("it runs")
}

/// Hit rate and mean latency without a tier, with all of it, and with what was hit alone.
fn compare(trace: &Trace, machine: Machine) -> [(f64, f64); 3] {
    [Tier::Absent, Tier::All, Tier::Reused].map(|tier| {
        let summary = run(trace, machine, tier).summary;
        eprintln!(
            "{} on {}, tier {tier:?}: hit {:.3}, mean {:.2} s",
            trace.name,
            machine.name(),
            summary.hit,
            summary.mean
        );
        (summary.hit, summary.mean)
    })
}

#[test]
fn prefixes_that_come_round_again_are_found_and_the_mean_falls() {
    for machine in Machine::ALL {
        let [without, all, reused] = compare(&documents(), machine);
        for with in [all, reused] {
            assert!(with.0 > without.0 + 0.1 && with.1 < without.1, "{with:?} for {without:?}");
        }
    }
}

#[test]
fn where_nothing_comes_round_again_what_was_hit_alone_costs_next_to_nothing() {
    let trace = generate(&Workload { rate: 0.6, ..Workload::default() });
    for machine in Machine::ALL {
        let [without, all, reused] = compare(&trace, machine);
        assert!(all.0 >= without.0 - 0.01 && reused.0 >= without.0 - 0.01);
        assert!(reused.1 < 1.05 * without.1, "{reused:?} for {without:?}");
    }
}
