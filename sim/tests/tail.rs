//! The bound on the longest latency (MARGINAL-WORK.md, O13): what it is for, and what it may cost.

use base::{Nanos, TokenCount};
use scheduler::fleet::{FleetConfig, ReplicaConfig};
use scheduler::{CostModel, Policy, SchedulerConfig};
use sim::fleet::{FleetMachine, replay_fleet};
use sim::summary::LatencySummary;
use sim::watch::Unwatched;
use sim::{ReplayConfig, Trace, Workload, generate, replay};

/// Means over traces.
fn over(traces: &[Trace], run: impl Fn(&Trace) -> LatencySummary) -> (f64, f64) {
    let runs: Vec<LatencySummary> = traces.iter().map(run).collect();
    let mean = |of: fn(&LatencySummary) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    (mean(|one| one.mean), mean(|one| one.p99))
}

/// Seeds under which somebody waits long without a bound: that differs much from trace to trace, and examples `tail` and
/// `fleet_order` give the means of six.
fn traces(rate: f64, seeds: [u64; 2]) -> Vec<Trace> {
    seeds.into_iter().map(|seed| generate(&Workload { rate, seed, ..Workload::default() })).collect()
}

#[test]
fn on_an_overloaded_engine_the_longest_is_bounded_and_the_mean_stays_far_below_fcfs() {
    let traces = traces(1.0, [1, 2]);
    let run = |policy, tail, late| {
        let mut machine = ReplayConfig::default();
        machine.scheduler.marginal_work.tail_permille_max = tail;
        machine.scheduler.marginal_work.late_permille_max = late;
        over(&traces, |trace| replay(trace, policy, &machine).expect("a replay").summary)
    };
    let fcfs = run(Policy::Fcfs, 0, 0);
    let free = run(Policy::MarginalWork, 0, 0);
    let bound = run(Policy::MarginalWork, 1_250, 0);
    eprintln!("mean, p99: fcfs {fcfs:?}, without a bound {free:?}, with {bound:?}");
    assert!(free.1 > 1.3 * fcfs.1, "nothing to bound");
    assert!(bound.1 < 0.75 * free.1 && bound.1 < fcfs.1 && bound.0 < 0.4 * fcfs.0);
    let (longest, percentile) = (run(Policy::MarginalWork, 1_000, 0), run(Policy::MarginalWork, 1_000, 10));
    eprintln!("at 1000: of the longest {longest:?}, of the percentile {percentile:?}");
    assert!(percentile.0 < 0.97 * longest.0, "the largest no longer holds all others up");
}

/// One server of rows, with room for 64 of them, behind our queue.
fn server(tail: u32, late: u32) -> FleetMachine {
    let scheduler = ReplayConfig::default().scheduler;
    let inner = SchedulerConfig {
        policy: Policy::Sarathi,
        fairness: Some(false),
        chunk_tokens: TokenCount(2_048),
        step_tokens_max: TokenCount(2_048),
        sequences_max: 64,
        kv_blocks: 400_000,
        ..scheduler.clone()
    };
    FleetMachine {
        replicas: 1,
        replica: ReplicaConfig { rows_max: 64, tokens_max: None },
        reported: None,
        inner,
        cost: CostModel {
            prefill_per_token: Nanos(90_000),
            prefill_base: Nanos(3_000_000),
            decode_per_sequence: Nanos(350_000),
            decode_base: Nanos(8_000_000),
            mixed_hidden: 0,
            mixed_hidden_few: None,
        },
        transport: Nanos(2_000_000),
        fleet: FleetConfig {
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            tail_permille_max: tail,
            late_permille_max: late,
            ..FleetConfig::default()
        },
        queue: SchedulerConfig { refit: true, ..scheduler },
    }
}

fn in_front(traces: &[Trace], policy: Policy, tail: u32, late: u32) -> (f64, f64) {
    let machine = server(tail, late);
    over(traces, |trace| replay_fleet(trace, policy, &machine, &mut Unwatched).expect("a replay").summary)
}

#[test]
fn in_front_of_an_overloaded_server_the_longest_is_bounded_where_nothing_else_is_set() {
    let traces = traces(0.7, [2, 4]);
    let default = FleetConfig::default();
    let (tail, late) = (default.tail_permille_max, default.late_permille_max);
    let fcfs = in_front(&traces, Policy::Fcfs, 0, 0);
    let free = in_front(&traces, Policy::MarginalWork, 0, 0);
    let bound = in_front(&traces, Policy::MarginalWork, tail, late);
    eprintln!("mean, p99: fcfs {fcfs:?}, without a bound {free:?}, with {bound:?}");
    assert!(free.1 > 1.6 * fcfs.1, "nothing to bound");
    assert!(bound.1 < 0.7 * free.1 && bound.0 < 1.2 * free.0 && bound.0 < 0.7 * fcfs.0);
}

#[test]
fn one_in_a_hundred_that_may_be_later_lowers_the_mean_more_than_a_longer_bound_for_all() {
    let traces = traces(0.7, [2, 4]);
    let free = in_front(&traces, Policy::MarginalWork, 0, 0);
    let longest = in_front(&traces, Policy::MarginalWork, 1_000, 0);
    let percentile = in_front(&traces, Policy::MarginalWork, 1_000, 10);
    eprintln!(
        "mean, p99: without a bound {free:?}, of the longest {longest:?}, of the percentile {percentile:?}"
    );
    assert!(percentile.0 < 0.97 * longest.0, "the largest no longer holds all others up");
    assert!(percentile.1 < 0.85 * free.1, "and all others are bounded");
}
