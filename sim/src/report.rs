//! The result format `relserve-expected/1`: a trace's replays side by side, as JSON.

use serde_json::{Value, json};

use crate::replay::{Replay, ReplayConfig};
use crate::trace::Trace;

/// Iterations are listed up to this many relQueries; beyond, the list says little and weighs much.
const LISTED_MAX: usize = 20;

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
        "t_done": replay.t_done,
    });
    if replay.t_done.len() <= LISTED_MAX {
        let iterations = replay.iterations.iter().map(|one| {
            json!([one.start.0 as f64 / 1e9, one.duration.as_seconds(), one.uncached.0, one.decoding])
        });
        value["iterations"] = iterations.collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use scheduler::Policy;

    use super::*;
    use crate::replay::replay;
    use crate::workload::{Shape, paper_like};

    #[test]
    fn results_name_their_constants_and_every_end() {
        let trace = paper_like(1, Shape { relqueries: 3, rows_max: 4, ..Shape::default() });
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
