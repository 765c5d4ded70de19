//! What the simulator says of the same trace: the real scheduler in virtual time, on a machine as fast as the
//! server says it is, under the server's own limits. Where this mean is not the measured one, something else
//! than the order of the work decides.

use base::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::{LatencySummary, ReplayConfig, replay_lowered};

use crate::draft_counts::DraftCounts;
use crate::dry_run;
use crate::record::Record;
use crate::workload::RelQuery;

/// A simulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Mean latency, ms.
    pub mean_ms: f64,
    /// When the last relQuery ended, s.
    pub done_s: f64,
    /// Share of prompt tokens from the prefix cache.
    pub hit: f64,
}

impl Simulated {
    /// What of a replay is compared with a run.
    pub(crate) fn of(summary: &LatencySummary) -> Self {
        Self { mean_ms: summary.mean * 1e3, done_s: summary.makespan, hit: summary.hit }
    }
}

/// What a run of `policy` should have come to, from the tokens that its records tell and `state`, the
/// server's `GET /v1/scheduler` at its end. `None` for a policy that the simulator does not know and where
/// the server told too little.
pub fn predict(trace: &[RelQuery], records: &[Record], state: &Value, policy: &str) -> Option<Simulated> {
    let policy = serde_json::from_value(json!(policy)).ok()?;
    let (mut machine, drafts) = (machine(state)?, DraftCounts::of([state]));
    drafts.price(&mut machine);
    let mut lowered = dry_run::lowered(trace, records)?;
    drafts.spread(&mut lowered);
    let replay = replay_lowered(lowered, policy, &machine).ok()?;
    Some(Simulated::of(&replay.summary))
}

/// The machine that the server describes: its cost model at the pace of its steps, and its limits where it tells
/// them. The model is of its last steps and counts odd ones little; the pace is of all it keeps.
pub(crate) fn machine(state: &Value) -> Option<ReplayConfig> {
    let cost = &state["cost"];
    let cost = json!({
        "prefill_per_token": cost["prefill_ns_per_token"],
        "prefill_base": cost["prefill_ns"],
        "decode_per_sequence": cost["decode_ns_per_sequence"],
        "decode_base": cost["decode_ns"],
        "mixed_hidden": cost["mixed_hidden_ns"].as_i64().unwrap_or(0),
        "mixed_hidden_few": cost["mixed_hidden_few_ns"],
    });
    let mut config = ReplayConfig { cost: serde_json::from_value(cost).ok()?, ..ReplayConfig::default() };
    let pace = |name: &str| state["pace"][name].as_u64().map(Nanos);
    if let (Some(measured), Some(modelled)) = (pace("measured_ns"), pace("modelled_ns")) {
        config.cost = config.cost.paced(measured, modelled);
    }
    // The scheduler's own defaults, and what the server says of them under the same names.
    config.scheduler = Default::default();
    let mut limits = serde_json::to_value(&config.scheduler).ok()?;
    for (name, limit) in limits.as_object_mut()? {
        if let Some(reported) = state["limits"].get(name) {
            *limit = reported.clone();
        }
    }
    if let Some(blocks) = state["kv_blocks"].get("total") {
        limits["kv_blocks"] = blocks.clone();
    }
    // The tokens are made up: guesses of what follows would cost and never be right.
    limits["speculation"] = json!("off");
    config.scheduler = serde_json::from_value(limits).ok()?;
    // What no longer matters without a real engine.
    config.scheduler.rows_max = u32::MAX;
    config.scheduler.relqueries_max = u32::MAX;
    config.scheduler.refit = false;
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RelQueryOutcome, TokenUsage};
    use crate::scenario::{Scenario, TableSpec};
    use crate::table::SourceTable;
    use crate::workload::trace;

    /// A busy trace and its records, each row of 100 prompt tokens.
    fn busy() -> (Vec<RelQuery>, Vec<Record>) {
        let scenario = Scenario { relqueries: 30, rate_per_s: 2.0, ..Scenario::default() };
        let trace = trace(&scenario, &[SourceTable::load(&TableSpec::default(), 1).expect("generated")]);
        let record = |relquery: &RelQuery| {
            let rows = relquery.rows.len() as u64;
            let tokens =
                TokenUsage { prompt: Some(rows * 100), output: Some(rows * 5), ..TokenUsage::default() };
            Record::new(relquery, RelQueryOutcome { tokens, ..RelQueryOutcome::default() }, None, 1.0)
        };
        let records = trace.iter().map(record).collect();
        (trace, records)
    }

    fn state() -> Value {
        json!({
            "cost": {
                "prefill_ns_per_token": 100_000, "prefill_ns": 10_000_000,
                "decode_ns_per_sequence": 450_000, "decode_ns": 25_000_000,
            },
            "kv_blocks": { "total": 4_000 },
        })
    }

    #[test]
    fn the_simulator_runs_policies_on_the_servers_own_cost_model_and_limits() {
        let (trace, records) = busy();
        let of = |state: &Value, policy| predict(&trace, &records, state, policy).map(|run| run.mean_ms);
        let fcfs = of(&state(), "fcfs").expect("a policy of the simulator");
        let ratio = of(&state(), "relserve").expect("another") / fcfs;
        assert!(ratio > 0.05 && ratio < 1.0, "under load the order matters: {ratio}");
        assert_eq!(of(&state(), "of another server"), None);
        assert_eq!(of(&state(), "fcfs"), Some(fcfs), "no clock, no chance");
        let mut slow = state();
        slow["pace"] = json!({ "steps": 9, "measured_ns": 300, "modelled_ns": 200 });
        assert!(of(&slow, "fcfs") > Some(fcfs * 1.4), "steps took half as long again");
        let mut narrow = state();
        narrow["limits"] = json!({ "sequences_max": 4, "of_a_later_version": true });
        assert!(of(&narrow, "fcfs") > Some(fcfs * 1.2), "four rows at a time");
        narrow["limits"] = json!({ "sequences_max": "many" });
        assert_eq!(of(&narrow, "fcfs"), None);
    }

    #[test]
    fn a_server_whose_guesses_are_right_is_as_quick_as_they_made_it_and_the_simulator_makes_none() {
        let (trace, records) = busy();
        let of = |state: &Value| predict(&trace, &records, state, "fcfs").map(|run| run.mean_ms);
        // Steps that cost much and rows that cost little, so that however many run at once steps are what counts.
        let mut guesses = state();
        (guesses["cost"]["decode_ns"], guesses["cost"]["decode_ns_per_sequence"]) =
            (json!(250_000_000), json!(45_000));
        let plain = of(&guesses).expect("all is told");
        (guesses["output_tokens"], guesses["draft_tokens"], guesses["accepted_tokens"]) =
            (json!(1_000), json!(500), json!(500));
        let quicker = of(&guesses).expect("all is told");
        assert!(quicker < plain * 0.9, "every other token came without a step: {quicker} beside {plain}");
        let machine = machine(&guesses).expect("all is told");
        let settings = serde_json::to_value(&machine.scheduler).expect("plain data");
        assert_eq!(settings["speculation"], "off");
    }

    #[test]
    fn what_few_rows_hide_is_taken_from_a_server_that_tells_it() {
        let few = |state: &Value| machine(state).map(|machine| machine.cost.mixed_hidden_few);
        assert_eq!(few(&state()), Some(None), "one of an earlier version");
        let mut tells = state();
        for (told, want) in [(json!(null), None), (json!(-3_000_000), Some(-3_000_000))] {
            tells["cost"]["mixed_hidden_few_ns"] = told;
            assert_eq!(few(&tells), Some(want));
        }
    }

    #[test]
    fn a_server_that_tells_too_little_gives_no_prediction() {
        let (trace, mut records) = busy();
        assert_eq!(predict(&trace, &records, &json!({"cost": {"prefill_ns": 1}}), "fcfs"), None);
        assert_eq!(predict(&trace, &records, &json!(null), "fcfs"), None);
        records[3].tokens.prompt = None;
        assert_eq!(predict(&trace, &records, &state(), "fcfs"), None);
        assert_eq!(predict(&trace, &[], &state(), "fcfs"), None, "nothing measured");
    }
}
