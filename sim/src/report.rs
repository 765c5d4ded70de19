//! The result format `relserve-expected/1`: a trace's replays side by side, as JSON.

use scheduler::{DecompositionReading, DeltaReading, PaperVariant, Policy, PriorityReading};
use serde_json::{Value, json};

use crate::record::Iteration;
use crate::replay::Replay;
use crate::replay_config::ReplayConfig;
use crate::trace::Trace;

/// The results of a trace, each under its name, with the constants they were made with.
pub fn results(trace: &Trace, config: &ReplayConfig, replays: &[(String, Replay)]) -> Value {
    let seconds = |span: base::Nanos| span.as_seconds();
    let limits = &config.scheduler;
    let policies: serde_json::Map<String, Value> =
        replays.iter().map(|(name, replay)| (name.clone(), policy(replay, config))).collect();
    json!({
        "schema": "relserve-expected/1",
        "trace": trace.name,
        "cost": {
            "a_p": seconds(config.cost.prefill_per_token),
            "b_p": seconds(config.cost.prefill_base),
            "a_d": seconds(config.cost.decode_per_sequence),
            "b_d": seconds(config.cost.decode_base),
        },
        "cfg": {
            "cap": limits.kv_tokens(),
            "mnbt": limits.step_tokens_max.0,
            "mns": limits.sequences_max,
            "watermark": f64::from(limits.watermark_permille) / 1_000.0,
        },
        "policies": policies,
    })
}

fn policy(replay: &Replay, config: &ReplayConfig) -> Value {
    let mut value = json!({
        "hide": config.cost.hide_permille().map(|permille| permille as f64 / 1_000.0),
        "summary": replay.summary,
        "counts": replay.counts,
        "tenants": replay.tenants,
        "t_done": replay.t_done,
    });
    if !replay.cancelled.is_empty() || replay.failed_rows > 0 {
        value["cancelled"] = json!(replay.cancelled);
        value["failed_rows"] = json!(replay.failed_rows);
    }
    let is_listed = replay.iterations.iter().all(|one| one.members.is_some());
    if is_listed {
        value["iterations"] = replay.iterations.iter().map(iteration).collect();
    }
    value
}

/// `[start, duration, uncached prompt tokens, decoding rows, whose rows finished their prompt, whose
/// decoded]`.
fn iteration(one: &Iteration) -> Value {
    let members = one.members.clone().unwrap_or_default();
    json!([
        one.start.0 as f64 / 1e9,
        one.duration.as_seconds(),
        one.uncached.0,
        one.decoding,
        members.prefilled,
        members.decoded
    ])
}

/// The name that the reference results have for a policy: what it imitates, its chunk where it cuts
/// prompts, and what a mixed step hides where it mixes.
pub fn reference_name(policy: Policy, config: &ReplayConfig) -> String {
    let hide = config.cost.hide_permille().map_or(0.0, |permille| permille as f64 / 1_000.0);
    let chunk = policy.always_cuts_prompts().then(|| format!("-{}", config.scheduler.chunk_tokens.0));
    let hide = policy.cuts_prompts().then(|| format!(" hide={hide}"));
    let name = [Some(policy.imitates().to_owned()), chunk, hide].into_iter().flatten().collect();
    if !policy.reads_the_paper() {
        return name;
    }
    let PaperVariant { delta, decomposition, priorities } = config.scheduler.paper_variant;
    let sign = (delta == DeltaReading::AsPrinted).then(|| " sign as printed".to_owned());
    let algorithm = (decomposition == DecompositionReading::AsPrinted).then(|| " alg1 as printed".to_owned());
    let frozen = (priorities == PriorityReading::Frozen).then(|| " no dpu".to_owned());
    let threshold = config.scheduler.unit_waiting_ms_max;
    let threshold = threshold.map(|threshold| format!(" thr={}", threshold.0 as f64 / 1_000.0));
    [Some(name), sign, algorithm, frozen, threshold].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Workload, generate};
    use crate::replay::replay;

    #[test]
    fn results_name_their_constants_and_every_end() {
        let trace = generate(&Workload { seed: 1, relqueries: 3, rows: (1, 4), ..Workload::default() });
        let config = ReplayConfig::default();
        let once = replay(&trace, Policy::RelServe, &config).expect("a replay");
        let json = results(&trace, &config, &[("relserve".to_owned(), once.clone())]);
        assert_eq!(json["cfg"]["cap"], 10_000);
        assert_eq!(json["cost"]["b_d"], 0.025);
        let relserve = &json["policies"]["relserve"];
        assert_eq!(relserve["t_done"].as_array().map(Vec::len), Some(3));
        assert_eq!(relserve["summary"]["mean"], once.summary.mean);
        assert_eq!(relserve["iterations"].as_array().map(Vec::len), Some(once.iterations.len()));
    }
}
