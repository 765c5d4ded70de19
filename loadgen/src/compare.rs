//! Replays one trace against the server under one policy after another.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::Error;
use crate::html::RecordedRun;
use crate::replay::predict;
use crate::run::{Mode, run};
use crate::scenario::Scenario;
use crate::server::ServerProcess;
use crate::summary::RunSummary;
use crate::workload::RelQuery;

/// What is compared.
pub struct ComparePlan<'a> {
    /// The server's program.
    pub program: &'a Path,
    /// Arguments beyond those that every start needs.
    pub arguments: &'a [String],
    /// The policies, in order.
    pub policies: &'a [String],
    /// How often each policy runs; rounds of all policies follow one another.
    pub repeat: u32,
    /// Where the records go: a folder per policy, and in it one per round where there are several.
    pub out: &'a Path,
}

/// Each policy's run (of several, the one with the median mean), and what its server told of its scheduler
/// (JSON as it came).
pub async fn compare(
    plan: &ComparePlan<'_>,
    scenario: &Scenario,
    trace: &[RelQuery],
) -> Result<Vec<(RecordedRun, Option<Value>)>, Error> {
    let mut rounds: Vec<Vec<(RecordedRun, Option<Value>)>> =
        plan.policies.iter().map(|_| Vec::new()).collect();
    for round in 1..=plan.repeat.max(1) {
        for (policy, runs) in plan.policies.iter().zip(&mut rounds) {
            let mut dir = plan.out.join(policy);
            if plan.repeat > 1 {
                dir = dir.join(round.to_string());
            }
            runs.push(one(plan, scenario, trace, policy, &dir).await?);
        }
    }
    Ok(rounds.into_iter().filter_map(median).collect())
}

/// One policy's run on a server of its own.
async fn one(
    plan: &ComparePlan<'_>,
    scenario: &Scenario,
    trace: &[RelQuery],
    policy: &str,
    dir: &Path,
) -> Result<(RecordedRun, Option<Value>), Error> {
    std::fs::create_dir_all(dir).map_err(|error| Error::file(dir, error))?;
    let timeout = Duration::from_millis(scenario.timeout_ms);
    let server = ServerProcess::start(plan.program, plan.arguments, policy, timeout).await?;
    let lines = dir.join("requests.jsonl");
    let records = run(server.target.clone(), scenario, Mode::RelQuery, trace, &lines).await?;
    let state = server.scheduler().await;
    let scheduler_share = server.scheduler_share().await;
    server.stop().await?;
    let simulated = state.as_ref().and_then(|state| predict(trace, &records, state, policy));
    let summary = RunSummary { scheduler_share, simulated, ..RunSummary::of(policy, &records) };
    Ok((RecordedRun { summary, records }, state))
}

/// The run whose mean latency is the median, knowing of the others.
fn median(mut runs: Vec<(RecordedRun, Option<Value>)>) -> Option<(RecordedRun, Option<Value>)> {
    let means: Vec<f64> = runs.iter().filter_map(|(run, _)| run.summary.mean_ms()).collect();
    let rank = |run: &RecordedRun| run.summary.mean_ms().unwrap_or(f64::INFINITY);
    runs.sort_by(|(a, _), (b, _)| rank(a).total_cmp(&rank(b)));
    let middle = runs.len().saturating_sub(1) / 2;
    let (mut run, state) = runs.into_iter().nth(middle)?;
    if means.len() > 1 {
        run.summary.repeated_ms = means;
    }
    Some((run, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, RelQueryOutcome};
    use crate::scenario::TableSpec;
    use crate::table::SourceTable;

    #[test]
    fn the_median_of_three_rounds_is_shown_and_the_others_are_told() {
        let scenario = Scenario { relqueries: 1, ..Scenario::default() };
        let table = SourceTable::load(&TableSpec::default(), 1).expect("generated");
        let trace = crate::workload::trace(&scenario, &[table]);
        let round = |ms: f64| {
            let records = vec![Record::new(&trace[0], RelQueryOutcome::default(), None, ms)];
            (RecordedRun { summary: RunSummary::of("fcfs", &records), records }, Some(Value::from(ms)))
        };
        let (run, state) = median(vec![round(30.0), round(10.0), round(20.0)]).expect("three");
        assert_eq!((run.summary.mean_ms(), state), (Some(20.0), Some(Value::from(20.0))));
        assert_eq!(run.summary.repeated_ms, [30.0, 10.0, 20.0]);
        assert!(median(vec![round(7.0)]).expect("one").0.summary.repeated_ms.is_empty());
        assert!(median(Vec::new()).is_none());
    }
}
