//! Memory shortage, with eviction, preemption and recomputation, against a second opinion.
//!
//! The expected numbers are those of a separate simulator of the same rules that was written apart from
//! this code and keeps whole segments (template, shared value, own tokens) instead of blocks. Every end
//! time agreed to a microsecond when they were taken; here the means and the preemptions are pinned.

use scheduler::Policy;
use sim::{ReplayConfig, Shape, paper_like, replay};

#[test]
fn a_pool_far_too_small_gives_what_a_segment_level_simulator_gives() {
    let trace = paper_like(3, Shape { relqueries: 20, rate: 2.0, ..Shape::default() });
    let mut config = ReplayConfig::default();
    config.scheduler.kv_blocks = 4_000;
    let expected = [
        (Policy::Fcfs, 17.695_182_75, 19),
        (Policy::StaticPriority, 10.442_765_25, 25),
        (Policy::RelServe, 9.707_827_75, 23),
    ];
    for (policy, mean, preempts) in expected {
        let got = replay(&trace, policy, &config).expect("a replay");
        assert!((got.summary.mean - mean).abs() < 1e-6, "{policy}: {} instead of {mean}", got.summary.mean);
        assert_eq!(got.counts.preempts, preempts, "{policy}");
    }
}
