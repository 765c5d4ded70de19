//! What the order of relQueries is worth, on seeded workloads in the paper's shape.

use scheduler::Policy;
use sim::{ReplayConfig, Workload, paper::generate, replay};

#[test]
fn relserve_has_a_lower_mean_latency_than_first_come_first_served() {
    let trace = generate(&Workload { seed: 7, ..Workload::default() });
    let mean = |policy| replay(&trace, policy, &ReplayConfig::default()).expect("a replay").summary.mean;
    let (fcfs, relserve) = (mean(Policy::Fcfs), mean(Policy::RelServe));
    // Shown with `cargo test -p sim --test order -- --nocapture`.
    eprintln!("mean latency: fcfs {fcfs:.2} s, relserve {relserve:.2} s, ratio {:.2}", fcfs / relserve);
    assert!(relserve < fcfs, "relserve {relserve}, fcfs {fcfs}");
}

#[test]
fn a_replay_is_a_function_of_its_trace() {
    let trace = generate(&Workload { seed: 11, relqueries: 20, ..Workload::default() });
    let once = || replay(&trace, Policy::RelServe, &ReplayConfig::default()).expect("a replay");
    assert_eq!(once(), once());
}

#[test]
fn every_policy_finishes_when_memory_is_far_too_small_for_the_load() {
    let trace = generate(&Workload { seed: 3, relqueries: 30, rate: 5.0, ..Workload::default() });
    let mut config = ReplayConfig::default();
    config.scheduler.kv_blocks = 1_500;
    let mut preempted = 0;
    for policy in Policy::ALL {
        let got = replay(&trace, policy, &config).expect("a replay");
        assert_eq!(got.t_done.len(), 30);
        preempted += got.counts.preempts;
    }
    assert!(preempted > 0, "the memory is not small enough to test anything");
}
