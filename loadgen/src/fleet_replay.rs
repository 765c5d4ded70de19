//! What the simulator says of a run in front of replicas: the queue that served in virtual time, and replicas
//! as fast as they say they are, under their own limits. What a row takes on its way is measured: the server in
//! front counts the time of its tries, those behind count that of their rows. So is the time between two steps,
//! in which what else runs on a replica's cores (its own sockets, and the queue on a machine that they share)
//! keeps the next one waiting: no cost model of steps knows it.

use base::Nanos;
use serde_json::{Value, json};
use sim::fleet::{FleetMachine, replay_fleet_lowered};
use sim::watch::Unwatched;

use crate::contest::Contestant;
use crate::dry_run;
use crate::record::Record;
use crate::replay::{Simulated, machine};
use crate::server::{SecondsCount, ServerProcess};
use crate::workload::RelQuery;

/// Times of rows as both sides count them since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowTimes {
    /// Tries, by the server in front.
    tries: SecondsCount,
    /// Rows, by the servers behind it.
    rows: SecondsCount,
    /// Between two of their steps.
    gaps: SecondsCount,
}

impl RowTimes {
    /// Asks both sides; none where one of them does not count.
    pub async fn read(front: Option<&ServerProcess>, upstreams: &[ServerProcess]) -> Option<Self> {
        let tries = front?.seconds("relserve_replica_try_seconds").await?;
        let (mut rows, mut gaps) = (SecondsCount::default(), SecondsCount::default());
        for upstream in upstreams {
            rows = rows.plus(upstream.seconds("relserve_relquery_seconds").await?);
            gaps = gaps.plus(upstream.seconds("relserve_step_gap_seconds").await?);
        }
        Some(Self { tries, rows, gaps })
    }

    /// What a try took beyond its row since `before`, s.
    fn transport_s(self, before: Self) -> Option<f64> {
        let (tries, rows) = (self.tries.mean_since(before.tries)?, self.rows.mean_since(before.rows)?);
        Some((tries - rows).max(0.0))
    }

    /// What passed between two steps since `before`, s.
    fn gap_s(self, before: Self) -> f64 {
        self.gaps.mean_since(before.gaps).unwrap_or_default()
    }
}

/// Replicas behind a queue, as they describe themselves.
pub struct MeasuredFleet {
    policy: Value,
    machine: FleetMachine,
}

impl MeasuredFleet {
    /// The fleet of a contestant: `front` is what its queue says, `replicas` what those behind it say (`GET
    /// /v1/scheduler`), `times` their counts before and after the run. None where they tell too little and
    /// under `auto`, whose choices depend on the clock.
    pub fn of(server: &Contestant, front: &Value, replicas: &[Value], times: [RowTimes; 2]) -> Option<Self> {
        let policy = front["configured_policy"].clone();
        if policy == "auto" {
            return None;
        }
        let [before, after] = times;
        let one = machine(&mean_replica(replicas)?)?;
        let mut inner = one.scheduler;
        inner.policy = serde_json::from_value(replicas.first()?["policy"].clone()).ok()?;
        // A queue has no pool: what it would say of one is not looked at.
        let mut queue = front.clone();
        queue["kv_blocks"] = Value::Null;
        queue["limits"].as_object_mut()?.remove("kv_blocks");
        let field = |name: &str| server.replica.as_ref().and_then(|entry| entry.get(name)).cloned();
        let mut limits = json!({});
        for name in ["rows_max", "tokens_max"] {
            if let Some(value) = field(name) {
                limits[name] = json!(value);
            }
        }
        let mut fleet = FleetMachine {
            replicas: u32::try_from(replicas.len()).ok()?,
            replica: serde_json::from_value(limits).ok()?,
            inner,
            cost: one.cost,
            transport: nanos(after.transport_s(before)?),
            fleet: Default::default(),
            queue: machine(&queue)?.scheduler,
        };
        (fleet.fleet.rows_max, fleet.fleet.relqueries_max) = (u32::MAX, u32::MAX);
        Some(Self { policy, machine: fleet.with_gaps(nanos(after.gap_s(before))) })
    }

    /// What the run should have come to, from the tokens that its records tell.
    pub fn predict(&self, trace: &[RelQuery], records: &[Record]) -> Option<Simulated> {
        let policy = serde_json::from_value(self.policy.clone()).ok()?;
        let lowered = dry_run::lowered(trace, records)?;
        let replay = replay_fleet_lowered(lowered, policy, &self.machine, &mut Unwatched).ok()?;
        Some(Simulated::of(&replay.summary))
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// One replica as fast as all are on average; its limits are the first one's.
fn mean_replica(replicas: &[Value]) -> Option<Value> {
    let mut mean = replicas.first()?.clone();
    for (name, value) in mean["cost"].as_object_mut()? {
        let each = replicas.iter().map(|replica| replica["cost"][name].as_f64());
        // What some replicas do not tell, as what few rows hide, is not known of their mean.
        let sum: Option<f64> = each.sum();
        *value = json!(sum.map(|sum| (sum / replicas.len() as f64).round() as i64));
    }
    Some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RelQueryOutcome, TokenUsage};
    use crate::scenario::{Scenario, TableSpec};
    use crate::table::SourceTable;
    use crate::workload::trace;

    fn state(prefill_ns_per_token: u64) -> Value {
        json!({
            "policy": "fcfs", "configured_policy": "relserve",
            "cost": {
                "prefill_ns_per_token": prefill_ns_per_token, "prefill_ns": 10_000_000,
                "decode_ns_per_sequence": 450_000, "decode_ns": 25_000_000, "mixed_hidden_ns": 0,
                "hide_permille": null,
            },
            "kv_blocks": { "total": 4_000 }, "limits": { "kv_blocks": 4_000, "sequences_max": 64 },
        })
    }

    fn contestant() -> Contestant {
        toml::from_str(
            "name = \"a\"\ncommand = [\"x\"]\nsent = \"rel_query\"\nreplica = { dialect = \"vllm\", rows_max = 16 }",
        )
        .expect("sound")
    }

    fn times(tries_s: f64, rows_s: f64) -> RowTimes {
        let seconds = |sum: f64| SecondsCount { sum, count: 10.0 };
        RowTimes { tries: seconds(tries_s), rows: seconds(rows_s), gaps: SecondsCount::default() }
    }

    /// The mean of a busy trace on so many replicas.
    fn mean_ms(front: &Value, replicas: usize, after: RowTimes) -> Option<f64> {
        let scenario = Scenario { relqueries: 30, rate_per_s: 2.0, ..Scenario::default() };
        let trace = trace(&scenario, &[SourceTable::load(&TableSpec::default(), 1).expect("generated")]);
        let record = |relquery: &RelQuery| {
            let rows = relquery.rows.len() as u64;
            let tokens = TokenUsage { prompt: Some(rows * 100), ..TokenUsage::default() };
            Record::new(relquery, RelQueryOutcome { tokens, ..RelQueryOutcome::default() }, None, 1.0)
        };
        let records: Vec<Record> = trace.iter().map(record).collect();
        let none = RowTimes::default();
        let states = vec![state(100_000); replicas];
        let fleet = MeasuredFleet::of(&contestant(), front, &states, [none, after])?;
        fleet.predict(&trace, &records).map(|run| run.mean_ms)
    }

    #[test]
    fn the_simulator_runs_the_queue_on_as_many_replicas_as_there_were() {
        let front = state(1);
        let one = mean_ms(&front, 1, times(5.0, 5.0)).expect("all is told");
        let two = mean_ms(&front, 2, times(5.0, 5.0)).expect("all is told");
        let gaps = SecondsCount { sum: 0.1, count: 10.0 };
        let held_up = mean_ms(&front, 2, RowTimes { gaps, ..times(5.0, 5.0) }).expect("all is told");
        assert!(held_up > two * 1.2, "steps of 10 to 60 ms, 10 ms between two: {held_up} beside {two}");
        assert!(two < one * 0.8, "{two} beside {one}");
        let far = mean_ms(&front, 2, times(25.0, 5.0)).expect("all is told");
        assert!(far > two + 1_500.0, "two seconds on the way: {far} beside {two}");
        for policy in ["sarathi", "static-priority", "relserve", "marginal-work"] {
            let mut other = front.clone();
            (other["configured_policy"], other["limits"]["fairness"]) =
                (json!(policy), json!(policy == "marginal-work"));
            assert!(mean_ms(&other, 2, times(5.0, 5.0)).is_some(), "{policy}");
        }
        let mut auto = front.clone();
        auto["configured_policy"] = json!("auto");
        assert_eq!(mean_ms(&auto, 2, times(5.0, 5.0)), None);
        assert_eq!(mean_ms(&front, 0, times(5.0, 5.0)), None);
    }

    #[test]
    fn replicas_of_different_speed_count_as_their_mean() {
        let mut first = state(100);
        // One that hides something beside one that has nothing to hide.
        first["cost"]["hide_permille"] = json!(700);
        first["cost"]["mixed_hidden_few_ns"] = json!(7_000_000);
        let mean = mean_replica(&[first, state(301)]).expect("two");
        assert_eq!(mean["cost"]["prefill_ns_per_token"], 201);
        assert_eq!(mean["kv_blocks"]["total"], 4_000);
        assert!(mean["cost"]["mixed_hidden_few_ns"].is_null(), "the other does not tell it: {mean}");
    }
}
