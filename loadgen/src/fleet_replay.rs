//! What the simulator says of a run in front of replicas: the queue that served in virtual time, and replicas
//! under their own limits, as fast as their steps went. Two ways are measured, not simulated: that of a row (the
//! server in front counts the time of its tries, those behind count that of their rows), and that of a relQuery
//! (its client counts its latency, the server in front what it had it for).

use base::Nanos;
use serde_json::{Value, json};
use sim::fleet::{FleetMachine, replay_fleet_lowered};
use sim::watch::Unwatched;

use crate::contest::Contestant;
use crate::draft_counts::DraftCounts;
use crate::dry_run;
use crate::record::{Periods, Record};
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
}

impl RowTimes {
    /// Asks both sides; none where one of them does not count.
    pub async fn read(front: Option<&ServerProcess>, upstreams: &[ServerProcess]) -> Option<Self> {
        let tries = front?.seconds("relserve_replica_try_seconds").await?;
        let mut rows = SecondsCount::default();
        for upstream in upstreams {
            rows = rows.plus(upstream.seconds("relserve_relquery_seconds").await?);
        }
        Some(Self { tries, rows })
    }

    /// What a try took beyond its row since `before`, s.
    fn transport_s(self, before: Self) -> Option<f64> {
        let (tries, rows) = (self.tries.mean_since(before.tries)?, self.rows.mean_since(before.rows)?);
        Some((tries - rows).max(0.0))
    }
}

/// Replicas behind a queue, as they describe themselves.
pub struct MeasuredFleet {
    policy: Value,
    drafts: DraftCounts,
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
        let mut one = machine(&mean_replica(replicas)?)?;
        let drafts = DraftCounts::of(replicas);
        drafts.price(&mut one);
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
        let mut queue = machine(&queue)?.scheduler;
        // It learns what its replicas cost while it serves, and orders by that.
        queue.refit = front["limits"]["refit"].as_bool().unwrap_or(true);
        let mut fleet = FleetMachine {
            replicas: u32::try_from(replicas.len()).ok()?,
            replica: serde_json::from_value(limits).ok()?,
            // A RelServe says nothing of its memory to who stands in front of it.
            reported: None,
            inner,
            cost: one.cost,
            transport: nanos(after.transport_s(before)?),
            fleet: Default::default(),
            queue,
        };
        (fleet.fleet.rows_max, fleet.fleet.relqueries_max) = (u32::MAX, u32::MAX);
        Some(Self { policy, drafts, machine: fleet })
    }

    /// What the run should have come to, from the tokens that its records tell.
    pub fn predict(&self, trace: &[RelQuery], records: &[Record]) -> Option<Simulated> {
        let policy = serde_json::from_value(self.policy.clone()).ok()?;
        let mut lowered = dry_run::lowered(trace, records)?;
        self.drafts.spread(&mut lowered);
        let replay = replay_fleet_lowered(lowered, policy, &self.machine, &mut Unwatched).ok()?;
        let simulated = Simulated::of(&replay.summary);
        Some(Simulated { mean_ms: simulated.mean_ms + outside_ms(records), ..simulated })
    }
}

/// What relQueries took on average beside the time for which the server in front had them, ms: from their client to
/// its queue and back. 0 where the server does not tell that time.
fn outside_ms(records: &[Record]) -> f64 {
    let outside = records.iter().filter_map(|record| {
        let Periods { waiting_ms, core_ms, tail_ms } = record.periods?;
        Some((record.latency_ms? - (waiting_ms + core_ms + tail_ms)).max(0.0))
    });
    let (sum, count) = outside.fold((0.0, 0_u32), |(sum, count), one| (sum + one, count + 1));
    sum / f64::from(count.max(1))
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
    // What their steps took beside what their models say of them: of all together.
    let sum = |name: &str| {
        let each = replicas.iter().map(|replica| replica["pace"][name].as_u64());
        each.sum::<Option<u64>>()
    };
    mean["pace"] = json!({ "measured_ns": sum("measured_ns"), "modelled_ns": sum("modelled_ns") });
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
        RowTimes { tries: seconds(tries_s), rows: seconds(rows_s) }
    }

    /// A busy trace, and its records: of each relQuery the server in front tells these periods.
    fn busy(periods: Option<Periods>) -> (Vec<RelQuery>, Vec<Record>) {
        let scenario = Scenario { relqueries: 30, rate_per_s: 2.0, ..Scenario::default() };
        let trace = trace(&scenario, &[SourceTable::load(&TableSpec::default(), 1).expect("generated")]);
        let record = |relquery: &RelQuery| {
            let rows = relquery.rows.len() as u64;
            let tokens = TokenUsage { prompt: Some(rows * 100), ..TokenUsage::default() };
            Record::new(
                relquery,
                RelQueryOutcome { tokens, periods, ..RelQueryOutcome::default() },
                None,
                150.0,
            )
        };
        let records = trace.iter().map(record).collect();
        (trace, records)
    }

    fn fleet(front: &Value, replicas: &[Value], after: RowTimes) -> Option<MeasuredFleet> {
        MeasuredFleet::of(&contestant(), front, replicas, [RowTimes::default(), after])
    }

    /// The mean of the busy trace on so many replicas.
    fn mean_ms(front: &Value, replicas: usize, after: RowTimes) -> Option<f64> {
        let (trace, records) = busy(None);
        let fleet = fleet(front, &vec![state(100_000); replicas], after)?;
        fleet.predict(&trace, &records).map(|run| run.mean_ms)
    }

    #[test]
    fn the_simulator_runs_the_queue_on_as_many_replicas_as_there_were() {
        let front = state(1);
        let one = mean_ms(&front, 1, times(5.0, 5.0)).expect("all is told");
        let two = mean_ms(&front, 2, times(5.0, 5.0)).expect("all is told");
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
    fn replicas_whose_guesses_are_right_take_as_many_steps_as_they_took() {
        let (trace, records) = busy(None);
        let guessing = |accepted: u64| {
            let mut one = state(100_000);
            (one["output_tokens"], one["draft_tokens"], one["accepted_tokens"]) =
                (json!(1_000), json!(accepted), json!(accepted));
            let fleet = fleet(&state(1), &[one.clone(), one], times(5.0, 5.0)).expect("all is told");
            (
                fleet.machine.cost.decode_per_sequence,
                fleet.predict(&trace, &records).expect("it runs").mean_ms,
            )
        };
        let (plain, half) = (guessing(0), guessing(500));
        assert_eq!((plain.0, half.0), (Nanos(450_000), Nanos(900_000)), "a step has a guess beside each row");
        assert!(half.1 < plain.1 * 0.95, "{half:?} beside {plain:?}");
    }

    #[test]
    fn replicas_are_as_fast_as_their_steps_went_not_as_their_models_say_at_the_end() {
        let (trace, records) = busy(None);
        let of_both = |measured_ns: u64| {
            let mut one = state(100_000);
            one["pace"] = json!({ "steps": 9, "measured_ns": measured_ns, "modelled_ns": 200 });
            let fleet = fleet(&state(1), &[one.clone(), one], times(5.0, 5.0)).expect("all is told");
            (fleet.machine.cost.decode_base, fleet.predict(&trace, &records).expect("it runs").mean_ms)
        };
        let (as_modelled, slower) = (of_both(200), of_both(300));
        assert_eq!((as_modelled.0, slower.0), (Nanos(25_000_000), Nanos(37_500_000)));
        assert!(slower.1 > as_modelled.1 * 1.4, "{slower:?} beside {as_modelled:?}");
        assert_eq!(mean_replica(&[state(1), state(1)]).expect("two")["pace"]["measured_ns"], json!(null));
    }

    #[test]
    fn the_queue_learns_what_its_replicas_cost_unless_it_is_told_not_to() {
        let (trace, records) = busy(None);
        let mut slow = state(100_000);
        slow["cost"]["decode_ns"] = json!(100_000_000);
        let thought = |front: &Value| {
            let fleet = fleet(front, &[slow.clone(), slow.clone()], times(5.0, 5.0)).expect("all is told");
            let lowered = dry_run::lowered(&trace, &records).expect("all is told");
            let policy = serde_json::from_value(json!("relserve")).expect("a policy");
            let replay = replay_fleet_lowered(lowered, policy, &fleet.machine, &mut Unwatched);
            replay.expect("it runs").fitted.decode_base
        };
        let mut front = state(1);
        assert!(thought(&front) > Nanos(50_000_000), "{:?}", thought(&front));
        front["limits"]["refit"] = json!(false);
        assert_eq!(thought(&front), Nanos(25_000_000), "what a queue begins with");
    }

    #[test]
    fn the_way_between_client_and_queue_is_added_as_measured() {
        let fleet =
            fleet(&state(1), &[state(100_000), state(100_000)], times(5.0, 5.0)).expect("all is told");
        let mean = |periods: Option<Periods>| {
            let (trace, records) = busy(periods);
            fleet.predict(&trace, &records).expect("it runs").mean_ms
        };
        let told = Periods { waiting_ms: 60.0, core_ms: 30.0, tail_ms: 10.0 };
        let beside = mean(Some(told)) - mean(None);
        assert!((beside - 50.0).abs() < 1e-6, "150 ms for the client, 100 for the server: {beside}");
        let odd = Periods { waiting_ms: 900.0, ..told };
        assert!((mean(Some(odd)) - mean(None)).abs() < 1e-6, "nothing ends before it begins");
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
