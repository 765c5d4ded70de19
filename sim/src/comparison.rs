//! One trace under several policies: replays, results, and the reasons of chosen steps.

use std::fmt;
use std::ops::RangeInclusive;

use scheduler::{Decision, Policy};
use serde_json::Value;

use crate::faults::FaultPlan;
use crate::replay::{Replay, SimError, replay_with_faults};
use crate::replay_config::ReplayConfig;
use crate::report::{reference_name, results};
use crate::table::PolicyTable;
use crate::trace::Trace;
use crate::watch::{Mark, Watcher};

/// Replays of a trace side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    replays: Vec<Replay>,
    explained: Vec<(Policy, Vec<String>)>,
}

/// Writes the decisions of some steps down.
struct Explain {
    steps: RangeInclusive<u64>,
    lines: Vec<String>,
}

impl Watcher for Explain {
    fn mark(&mut self, _: Mark) {}

    fn planned(&mut self, decision: &Decision) {
        if decision.step.is_some_and(|step| self.steps.contains(&step.0)) {
            self.lines.push(decision.explain().to_string());
        }
    }
}

impl Comparison {
    /// Replays the trace under each policy; the decisions of the steps `explain` are kept as text.
    pub fn of(
        trace: &Trace,
        policies: &[Policy],
        config: &ReplayConfig,
        faults: &FaultPlan,
        explain: Option<RangeInclusive<u64>>,
    ) -> Result<Self, SimError> {
        let (mut replays, mut explained) = (Vec::new(), Vec::new());
        // Steps are numbered from 1.
        let steps = explain.unwrap_or(0..=0);
        for policy in policies {
            let mut watch = Explain { steps: steps.clone(), lines: Vec::new() };
            replays.push(replay_with_faults(trace, *policy, config, faults, &mut watch)?);
            if !watch.lines.is_empty() {
                explained.push((*policy, watch.lines));
            }
        }
        Ok(Self { replays, explained })
    }

    /// The replays, in the order of the policies.
    pub fn replays(&self) -> &[Replay] {
        &self.replays
    }

    /// What it comes to.
    pub fn table(&self) -> PolicyTable {
        self.replays.iter().collect()
    }

    /// The results in the format `relserve-expected/1`.
    pub fn results(&self, trace: &Trace, config: &ReplayConfig) -> Value {
        let named = |replay: &Replay| (reference_name(replay.policy, config), replay.clone());
        results(trace, config, &self.replays.iter().map(named).collect::<Vec<_>>())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (policy, lines) in &self.explained {
            writeln!(f, "{policy}:")?;
            for line in lines {
                writeln!(f, "{line}")?;
            }
            writeln!(f)?;
        }
        self.table().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;
    use crate::paper::{Dataset, Workload, generate};

    fn trace() -> Trace {
        let mut trace = generate(&Workload { relqueries: 5, ..Workload::new(Dataset::Beer, 2.0, 3) });
        trace.relqueries[2].tenant = "other".into();
        trace
    }

    #[test]
    fn a_comparison_reads_as_tables_and_as_reasons() {
        let (trace, config) = (trace(), ReplayConfig::default());
        let cancel = FaultPlan { faults: vec![Fault::Cancel { at: trace.relqueries[4].arrival, rel_id: 4 }] };
        let policies = [Policy::Fcfs, Policy::RelServe];
        let both = Comparison::of(&trace, &policies, &config, &cancel, Some(1..=2)).expect("replays");
        let text = both.to_string();
        let count = |start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
        assert_eq!((count("fcfs "), count("relserve ")), (1, 1), "{text}");
        assert_eq!(count("other "), 2, "a line per tenant and policy: {text}");
        assert_eq!(text.matches("step 1: ").count(), 2, "{text}");
        assert_eq!(text.matches("step 3: ").count(), 0, "{text}");
        assert_eq!(text.matches("\n  could decode ").count(), 4, "each step in full: {text}");
        assert!(text.contains("fcfs: 1 relQueries called off, 0 rows failed"), "{text}");
        assert!(text.contains("      1.00"), "{text}");
    }

    #[test]
    fn results_carry_the_names_of_the_reference() {
        let (trace, config) = (trace(), ReplayConfig::default());
        let both = [Policy::Fcfs, Policy::Sarathi];
        let both = Comparison::of(&trace, &both, &config, &FaultPlan::default(), None).expect("replays");
        let json = both.results(&trace, &config);
        let mut names: Vec<&String> = json["policies"].as_object().expect("an object").keys().collect();
        names.sort_unstable();
        assert_eq!(names, ["sarathi-512 hide=1", "vllm"]);
        assert_eq!(json["policies"]["vllm"]["tenants"]["other"]["n"], 1);
        let first = &json["policies"]["vllm"]["iterations"][0];
        assert_eq!(first[4].as_array().map(Vec::len), Some(1), "{first}");
    }
}
