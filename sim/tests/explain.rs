//! What a decision tells about itself, on the trace whose numbers are computed by hand.

use base::Nanos;
use scheduler::breakdown::PriorityParts;
use scheduler::{Decision, Explanation, Policy};
use sim::{Mark, ReplayConfig, Trace, Watcher, Workload, generate, replay_watched};

const TWO: &str = r#"{
  "schema": "relserve-trace/1", "name": "two", "templates": [{"id": 0, "tokens": 40}],
  "relqueries": [
    {"rel_id": 0, "tenant": "a", "arrival": 0.0, "template_id": 0, "ol": 5, "groups": [],
     "rows": [[-1, 100, 3], [-1, 100, 3], [-1, 100, 3]]},
    {"rel_id": 1, "tenant": "a", "arrival": 0.01, "template_id": 0, "ol": 10, "groups": [],
     "rows": [[-1, 60, 2], [-1, 60, 2]]}
  ]
}"#;

/// Keeps the explanation of each step.
#[derive(Default)]
struct Explained(Vec<Explanation>);

impl Watcher for Explained {
    fn mark(&mut self, _: Mark) {}

    fn planned(&mut self, decision: &Decision) {
        self.0.push(decision.explain());
    }
}

fn explained(trace: &Trace, policy: Policy) -> Vec<Explanation> {
    let mut watch = Explained::default();
    replay_watched(trace, policy, &ReplayConfig::default(), &mut watch).expect("a replay");
    watch.0
}

#[test]
fn a_transition_is_explained_to_the_last_term() {
    let trace = Trace::parse(TWO).expect("the trace above");
    let second = explained(&trace, Policy::RelServe).swap_remove(1);
    let expected = "\
step 2: transition: prefilling first lowers the mean latency, at 0.044000 s
  could prefill 2 rows of 1 relQueries, 120 uncached tokens
  could decode 3 rows of 1 relQueries
  relQuery 1 waits: priority 0.255100 s, computed: prompts 0.012000 + prefills 0.010000 + decode steps 0.225000 \
+ sequences 0.008100, miss ratio 120/200; here for 0.034000 s
  relQuery 0 runs: priority 0.105400 s, computed: prompts 0.000000 + prefills 0.000000 + decode steps 0.100000 \
+ sequences 0.005400, miss ratio 1/1; here for 0.044000 s
  delta -0.098500 s = 0.026500 lost - 0.125000 gained
    relQuery 0 loses 0.022000 + 0.004500
    1 waiting relQueries gain 5 decode steps each
";
    assert_eq!(second.to_string(), expected);
    let json = serde_json::to_value(&second).expect("plain data");
    assert_eq!(json["delta"]["total"], -98_500_000);
}

#[test]
fn every_policy_says_what_its_priorities_are_made_of() {
    let trace = Trace::parse(TWO).expect("the trace above");
    let first = |policy| explained(&trace, policy).swap_remove(0).to_string();
    for (policy, part) in [
        (Policy::Fcfs, "by arrival"),
        (Policy::StaticPriority, "420 prompt and 15 output tokens"),
        (Policy::RelServe, "miss ratio"),
        (Policy::MarginalWork, "share of the steps"),
    ] {
        let told = first(policy);
        assert!(told.contains(part), "{policy}: {told}");
    }
}

#[test]
fn a_decision_tells_of_sixteen_relqueries_and_counts_the_others() {
    let trace =
        generate(&Workload { seed: 5, relqueries: 60, rows: (1, 3), rate: 100.0, ..Workload::default() });
    for policy in [Policy::Fcfs, Policy::RelServePrefill, Policy::MarginalWork] {
        let all = explained(&trace, policy);
        assert!(all.iter().all(|one| one.relqueries.listed.len() <= 16), "{policy}");
        let most = all.iter().map(|one| one.relqueries.left_out).max();
        assert!(most > Some(0), "{policy}: never more than sixteen");
    }
}

#[test]
fn the_parts_add_up_and_the_choice_follows_from_delta_in_every_step() {
    let trace = generate(&Workload { seed: 3, relqueries: 30, ..Workload::default() });
    let (mut priorities, mut transitions) = (0, 0);
    for policy in Policy::ALL {
        for step in explained(&trace, policy) {
            for one in &step.relqueries.listed {
                let sum = match one.breakdown.parts {
                    PriorityParts::Arrival | PriorityParts::First => Nanos(0),
                    // The priority is a time, made of these counts.
                    PriorityParts::Static { .. } => continue,
                    PriorityParts::Estimate(parts) => parts.total(),
                    PriorityParts::Work(parts) => parts.total(),
                };
                assert!(one.breakdown.is_aged || one.priority == sum, "{policy}: {step}");
                priorities += 1;
            }
            let Some(delta) = &step.delta else { continue };
            let told: u64 = delta.losses.listed.iter().map(|loss| loss.prefill.0 + loss.sequences.0).sum();
            let is_whole = delta.losses.left_out == 0;
            assert!(if is_whole { told == delta.running.0 } else { told < delta.running.0 }, "{step}");
            let base = ReplayConfig::default().cost.decode_base;
            assert_eq!(base * (delta.waiting_relqueries * delta.steps), delta.waiting, "{step}");
            assert_eq!(step.reason.contains("prefilling first"), delta.total < 0, "{step}");
            transitions += 1;
        }
    }
    assert!(priorities > 1_000 && transitions > 20, "{priorities} priorities, {transitions} transitions");
}
