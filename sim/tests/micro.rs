//! The smallest reference trace, its iterations computed by hand.

use scheduler::Policy;
use sim::{ReplayConfig, Trace, replay};

const MICRO: &str = r#"{
  "schema": "relserve-trace/1", "name": "micro", "templates": [{"id": 0, "tokens": 40}],
  "relqueries": [
    {"rel_id": 0, "tenant": "a", "arrival": 0.0, "template_id": 0, "ol": 5, "groups": [],
     "rows": [[-1, 100, 3], [-1, 100, 3], [-1, 100, 3]]},
    {"rel_id": 1, "tenant": "a", "arrival": 0.01, "template_id": 0, "ol": 10, "groups": [],
     "rows": [[-1, 60, 2], [-1, 60, 2]]}
  ]
}"#;

/// A step: uncached prompt tokens, decoding rows, microseconds.
type ExpectedStep = (u64, u64, u64);

fn check(policy: Policy, hide_permille: u64, steps: &[ExpectedStep], t_done: [f64; 2]) {
    let trace = Trace::parse(MICRO).expect("the trace above");
    let cost = scheduler::CostModel::default().hiding(hide_permille);
    let config = ReplayConfig { cost, ..ReplayConfig::default() };
    let got = replay(&trace, policy, &config).expect("a replay");
    let got_steps: Vec<ExpectedStep> =
        got.iterations.iter().map(|one| (one.uncached.0, one.decoding, one.duration.0 / 1_000)).collect();
    assert_eq!(got_steps, steps, "{policy}");
    for (got, wanted) in got.t_done.iter().zip(t_done) {
        assert!((got - wanted).abs() < 1e-9, "{policy}: {got} instead of {wanted}");
    }
}

#[test]
fn prefill_first_policies_and_relserve_prefill_both_before_they_decode() {
    let steps = [(340, 0, 44_000), (120, 0, 22_000), (0, 5, 27_250), (0, 3, 26_350)];
    for policy in [Policy::Fcfs, Policy::StaticPriority, Policy::RelServe, Policy::RelServePrefill] {
        check(policy, 1_000, &steps, [0.1196, 0.09325]);
    }
}

#[test]
fn decode_first_finishes_the_first_relquery_before_it_starts_the_second() {
    let steps = [(340, 0, 44_000), (0, 3, 26_350), (0, 3, 26_350), (120, 0, 22_000), (0, 2, 25_900)];
    check(Policy::RelServeDecode, 1_000, &steps, [0.0967, 0.1446]);
}

#[test]
fn a_mixed_step_is_as_long_as_what_it_does_not_hide() {
    check(Policy::Sarathi, 1_000, &[(340, 0, 44_000), (120, 3, 26_350), (0, 5, 27_250)], [0.0976, 0.0976]);
    check(Policy::Sarathi, 0, &[(340, 0, 44_000), (120, 3, 38_350), (0, 5, 27_250)], [0.1096, 0.1096]);
}
