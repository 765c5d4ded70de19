//! What the simulator says of the same trace: the real scheduler in virtual time, on a machine as fast as the
//! server says it is. A large gap between this ratio and the measured one means that something else than the
//! order of the work decides.
//!
//! An approximation where the client cannot know: a relQuery's rows count as equally long, and the part they
//! share is as large a share of their tokens as of their characters.

use base::TokenCount;
use serde_json::{Value, json};
use sim::trace::{Template, Trace, TraceRelQuery};
use sim::{ReplayConfig, replay};

use crate::record::Record;
use crate::workload::RelQuery;

/// The ratio of each policy's simulated mean latency to that of `fcfs` (or of the first policy), from the
/// tokens that a run's records tell and `state`, the server's `GET /v1/scheduler`. `None` for a policy that the
/// simulator does not know, and for all where the server told too little.
pub fn predict(
    trace: &[RelQuery],
    records: &[Record],
    state: &Value,
    policies: &[String],
) -> Vec<Option<f64>> {
    let means: Vec<Option<f64>> = match machine(state).zip(lengths(trace, records)) {
        None => vec![None; policies.len()],
        Some((config, trace)) => policies
            .iter()
            .map(|policy| {
                let policy = serde_json::from_value(json!(policy)).ok()?;
                Some(replay(&trace, policy, &config).ok()?.summary.mean)
            })
            .collect(),
    };
    let base = policies.iter().position(|policy| policy == "fcfs").unwrap_or(0);
    let base = means.get(base).copied().flatten().filter(|mean| *mean > 0.0);
    means.into_iter().map(|mean| Some(mean? / base?)).collect()
}

/// The machine that the server describes: its cost model, and its limits where it tells them.
fn machine(state: &Value) -> Option<ReplayConfig> {
    let cost = &state["cost"];
    let cost = json!({
        "prefill_per_token": cost["prefill_ns_per_token"],
        "prefill_base": cost["prefill_ns"],
        "decode_per_sequence": cost["decode_ns_per_sequence"],
        "decode_base": cost["decode_ns"],
        "mixed_hidden": cost["mixed_hidden_ns"].as_i64().unwrap_or(0),
    });
    let mut config = ReplayConfig { cost: serde_json::from_value(cost).ok()?, ..Default::default() };
    // The server's own defaults, but for what no longer matters without a real engine.
    config.scheduler = Default::default();
    config.scheduler.rows_max = u32::MAX;
    config.scheduler.relqueries_max = u32::MAX;
    config.scheduler.refit = false;
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let limits = &state["limits"];
    if let Some(blocks) = number(&state["kv_blocks"]["total"]) {
        config.scheduler.kv_blocks = blocks;
    }
    if let Some(tokens) = number(&limits["block_tokens"]) {
        config.scheduler.block_tokens = tokens;
    }
    if let Some(sequences) = number(&limits["sequences_max"]) {
        config.scheduler.sequences_max = sequences;
    }
    if let Some(tokens) = limits["step_tokens_max"].as_u64() {
        config.scheduler.step_tokens_max = TokenCount(tokens);
    }
    Some(config)
}

/// The trace as lengths. RelQueries that failed are left out; `None` where one that ended has no token counts.
fn lengths(trace: &[RelQuery], records: &[Record]) -> Option<Trace> {
    let mut templates: Vec<Template> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    let mut relqueries = Vec::new();
    for record in records.iter().filter(|record| record.error.is_none()) {
        let relquery = trace.get(record.index as usize)?;
        let rows = relquery.rows.len() as u64;
        let row_tokens = (record.tokens.prompt? / rows).max(2);
        let id = known.iter().position(|template| *template == relquery.template).unwrap_or_else(|| {
            known.push(&relquery.template);
            let shared = (row_tokens as f64 * shared_part(relquery)) as u64;
            templates.push(Template { id: templates.len() as u64, tokens: shared.clamp(1, row_tokens - 1) });
            templates.len() - 1
        });
        let template = templates[id];
        let output = match relquery.ignore_eos {
            true => u64::from(relquery.max_tokens),
            false => (record.tokens.output? / rows).max(1),
        };
        let own = row_tokens.saturating_sub(template.tokens).max(1);
        relqueries.push(TraceRelQuery {
            rel_id: u64::from(record.index),
            tenant: "loadgen".into(),
            arrival: record.arrival_ms / 1e3,
            template_id: template.id,
            ol: u64::from(relquery.max_tokens),
            groups: Vec::new(),
            rows: vec![[-1, i64::try_from(own).ok()?, i64::try_from(output).ok()?]; relquery.rows.len()],
            ..TraceRelQuery::default()
        });
    }
    let (schema, name) = ("relserve-trace/1".into(), "loadgen".into());
    Some(Trace { schema, name, templates, relqueries, ..Trace::default() })
}

/// How much of a prompt's characters stand before its first cell.
fn shared_part(relquery: &RelQuery) -> f64 {
    let fixed = relquery.template.find('{').unwrap_or(relquery.template.len());
    let total: usize = relquery.rows.iter().map(|row| relquery.prompt(row).len()).sum();
    (fixed * relquery.rows.len()) as f64 / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, Tokens};
    use crate::scenario::{Scenario, TableSpec};
    use crate::table::Table;
    use crate::workload::trace;

    /// A busy trace and its records, each row of 100 prompt tokens.
    fn busy() -> (Vec<RelQuery>, Vec<Record>) {
        let scenario = Scenario { relqueries: 30, rate_per_s: 2.0, ..Scenario::default() };
        let trace = trace(&scenario, &[Table::load(&TableSpec::default(), 1).expect("generated")]);
        let record = |relquery: &RelQuery| {
            let rows = relquery.rows.len() as u64;
            let tokens = Tokens { prompt: Some(rows * 100), output: Some(rows * 5), ..Tokens::default() };
            Record::new(relquery, Outcome { tokens, ..Outcome::default() }, None, 1.0)
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
    fn the_simulator_relates_policies_on_the_servers_own_cost_model() {
        let (trace, records) = busy();
        let policies = ["relserve", "fcfs", "of another server"].map(str::to_owned);
        let ratios = predict(&trace, &records, &state(), &policies);
        assert_eq!((ratios[1], ratios[2]), (Some(1.0), None));
        let ratio = ratios[0].expect("a policy of the simulator");
        assert!(ratio > 0.05 && ratio < 1.0, "under load the order matters: {ratio}");
        assert_eq!(ratios, predict(&trace, &records, &state(), &policies), "no clock, no chance");
    }

    #[test]
    fn a_server_that_tells_too_little_gives_no_prediction() {
        let (trace, mut records) = busy();
        let policies = ["fcfs".to_owned()];
        assert_eq!(predict(&trace, &records, &json!({"cost": {"prefill_ns": 1}}), &policies), [None]);
        assert_eq!(predict(&trace, &records, &json!(null), &policies), [None]);
        records[3].tokens.prompt = None;
        assert_eq!(predict(&trace, &records, &state(), &policies), [None]);
        assert_eq!(predict(&trace, &[], &state(), &policies), [None], "nothing measured");
    }
}
