//! The host tier on a trace: more prompt tokens are found the larger it is, and none of it changes what is asked for.

use scheduler::{Policy, SchedulerConfig};
use sim::{Dataset, Replay, ReplayConfig, Workload, generate, replay};

/// Sixty relQueries under policy `ours` on the reference machine with a pool of 4,000 tokens before a tier of
/// `host` ones.
fn run(host: u32) -> Replay {
    let trace = generate(&Workload { relqueries: 60, ..Workload::new(Dataset::Rotten, 1.0, 1) });
    let machine = ReplayConfig::default();
    let scheduler = SchedulerConfig { kv_blocks: 4_000, host_kv_blocks: host, ..machine.scheduler };
    replay(&trace, Policy::Ours, &ReplayConfig { scheduler, ..machine }).expect("it runs")
}

#[test]
fn a_larger_tier_finds_more_and_changes_no_request() {
    let runs = [0, 1_000, 4_000, 16_000].map(run);
    let hits = runs.each_ref().map(|run| run.summary.hit);
    assert!(hits.is_sorted(), "{hits:?}");
    assert!(hits[3] > hits[0] + 0.01, "{hits:?}");
    let uncached = runs.each_ref().map(|run| run.counts.uncached);
    assert!(uncached[3] < uncached[0], "{uncached:?}");
    let asked = runs.each_ref().map(|run| run.summary.n);
    assert_eq!(asked, [60; 4]);
}
