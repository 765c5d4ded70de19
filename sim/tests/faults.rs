//! A world in which things go wrong and people change their minds: one promise of the scheduler per fault.

use base::{RelQueryId, RowError, Time};
use scheduler::{Event, Policy, Scheduler, SchedulerConfig};
use sim::{
    Dataset, Fault, FaultPlan, Replay, ReplayConfig, SimExecutor, Trace, Unwatched, Workload, World,
    generate, replay, replay_with_faults,
};

fn trace() -> Trace {
    generate(&Workload { relqueries: 12, rows: (1, 20), ..Workload::new(Dataset::Rotten, 4.0, 5) })
}

fn config() -> ReplayConfig {
    let mut config = ReplayConfig::default();
    config.scheduler.kv_blocks = 3_000;
    config
}

/// The trace under a policy with these faults, and without any.
fn both(policy: Policy, faults: Vec<Fault>) -> (Replay, Replay) {
    let (trace, config, plan) = (trace(), config(), FaultPlan { faults });
    let faulty = replay_with_faults(&trace, policy, &config, &plan, &mut Unwatched);
    (faulty.expect("a replay"), replay(&trace, policy, &config).expect("a replay"))
}

/// A world with the trace in it, checked after every step.
fn world(policy: Policy, faults: Vec<Fault>) -> World<SimExecutor> {
    let config = config();
    let plan = FaultPlan { faults };
    let (lowered, _) = plan.lower(&trace()).expect("a trace");
    let mut executor = SimExecutor::new(config.cost);
    for (seed, length) in lowered.lengths {
        executor.set_length(seed, length);
    }
    let settings = SchedulerConfig { policy, ..config.scheduler };
    let mut world = World::new(Scheduler::new(settings, config.cost).expect("valid"), executor);
    world.check_every_step();
    world.set_faults(plan.step_faults());
    for submission in lowered.submissions {
        world.submit(submission);
    }
    world
}

/// Tokens that each replay sampled, all rows together.
fn output(replay: &Replay) -> u64 {
    replay.progress.iter().map(|progress| progress.usage.output.0).sum()
}

#[test]
fn a_slow_span_delays_and_changes_no_output() {
    for policy in Policy::ALL {
        let (slow, plain) = both(policy, vec![Fault::Slow { from: 1.0, until: 4.0, factor: 5.0 }]);
        assert!(slow.summary.mean > plain.summary.mean, "{policy}");
        assert_eq!(output(&slow), output(&plain), "{policy}");
        assert_eq!(slow.failed_rows, 0);
    }
}

#[test]
fn a_failed_step_costs_its_time_and_nothing_else() {
    for policy in Policy::ALL {
        let (failed, plain) = both(policy, vec![Fault::FailedStep { at: 0.0 }]);
        assert_eq!(output(&failed), output(&plain), "{policy}");
        assert_eq!((failed.failed_rows, failed.counts.preempts), (0, plain.counts.preempts), "{policy}");
        assert!(failed.t_done[0] > plain.t_done[0], "{policy}");
    }
}

#[test]
fn steps_that_fail_until_a_row_is_alone_and_then_three_times_fail_it_and_end_its_relquery() {
    let faults = (0..40).map(|step| Fault::FailedStep { at: f64::from(step) * 1e-6 }).collect();
    let (failed, _) = both(Policy::Fcfs, faults);
    assert!(failed.failed_rows > 0);
    assert_eq!(failed.summary.n, 12);
}

#[test]
fn a_row_that_is_not_a_number_fails_alone() {
    for policy in Policy::ALL {
        let mut world = world(policy, vec![Fault::NotANumber { rel_id: 3, row: 0 }]);
        world.run_until_idle().expect("the scheduler keeps its promises");
        let failed: Vec<_> = world
            .events()
            .iter()
            .filter_map(|(_, event)| match event {
                Event::RowFailed { relquery, row, error, .. } => Some((*relquery, *row, error.clone())),
                _ => None,
            })
            .collect();
        assert_eq!(failed, [(RelQueryId(3), 0, RowError::NotANumber)], "{policy}");
        assert_eq!(world.finished().len(), 12, "{policy}");
    }
}

#[test]
fn a_lost_replica_costs_recomputation_and_no_answer() {
    for policy in Policy::ALL {
        let (lost, plain) = both(policy, vec![Fault::LostReplica { from: 1.5, until: 2.5 }]);
        assert_eq!((lost.failed_rows, lost.summary.n), (0, 12), "{policy}");
        assert_eq!(output(&lost), output(&plain), "{policy}: rows keep the tokens they have");
        assert!(lost.counts.uncached > plain.counts.uncached, "{policy}: nothing is hit that was lost");
        assert!(lost.counts.preempts > 0, "{policy}");
        let idle = lost
            .iterations
            .iter()
            .all(|one| one.start + one.duration <= Time(1_500_000_000) || one.start >= Time(2_500_000_000));
        assert!(idle, "{policy}: no step ran while it was gone");
    }
}

#[test]
fn a_replica_that_is_lost_while_idle_comes_back_empty() {
    let mut twice = trace();
    twice.relqueries.truncate(1);
    let again = sim::TraceRelQuery { rel_id: 1, arrival: 1_000.0, ..twice.relqueries[0].clone() };
    twice.relqueries.push(again);
    let run = |faults| {
        let plan = FaultPlan { faults };
        let replay = replay_with_faults(&twice, Policy::RelServe, &config(), &plan, &mut Unwatched);
        replay.expect("a replay").progress[1].usage.cached
    };
    let (kept, lost) = (run(vec![]), run(vec![Fault::LostReplica { from: 500.0, until: 501.0 }]));
    assert!(kept > lost, "the template was cached: {kept} of the second relQuery, after the loss {lost}");
}

#[test]
fn what_is_called_off_leaves_the_others_whole() {
    for policy in Policy::ALL {
        let row = Fault::CancelRow { at: 1.2, rel_id: 2, row: 0 };
        let (with, plain) = both(policy, vec![Fault::Cancel { at: 1.0, rel_id: 1 }, row]);
        assert_eq!(with.cancelled, [RelQueryId(1)], "{policy}");
        assert_eq!((with.summary.n, with.failed_rows), (11, 0), "{policy}");
        assert!(with.t_done[1] >= 1.0 && with.t_done[1] < plain.t_done[1], "{policy}");
    }
}

#[test]
fn late_rows_join_an_open_relquery_and_miss_one_that_has_ended() {
    for policy in Policy::ALL {
        let late = |at| Fault::LateRows { at, rel_id: 0, rows: vec![[-1, 50, 4]; 3] };
        let (open, plain) = both(policy, vec![late(0.3)]);
        let (ended, _) = both(policy, vec![late(1e6)]);
        let output = |replay: &Replay| replay.progress[0].usage.output.0;
        assert_eq!(output(&open), output(&plain) + 12, "{policy}");
        assert_eq!((ended.t_done, ended.summary), (plain.t_done, plain.summary), "{policy}");
    }
}

#[test]
fn whatever_goes_wrong_every_relquery_ends_and_the_accounts_balance() {
    for seed in 0..6 {
        let trace = trace();
        let plan = FaultPlan::random(seed, &trace, 25);
        assert_eq!(plan, FaultPlan::random(seed, &trace, 25), "a seed is a plan");
        let json = serde_json::to_string(&plan).expect("plain data");
        assert_eq!(FaultPlan::parse(&json).expect("what was written"), plan);
        for policy in Policy::ALL {
            let replay = replay_with_faults(&trace, policy, &config(), &plan, &mut Unwatched);
            let replay = replay.expect("every relQuery ends");
            assert_eq!(replay.summary.n + replay.cancelled.len(), 12, "{policy}, seed {seed}");
            let mut world = world(policy, plan.faults.clone());
            world.run_until_idle().expect("the scheduler keeps its promises");
            assert_eq!(world.scheduler.stats().kv_used_blocks, 0, "{policy}, seed {seed}");
        }
    }
}

#[test]
fn a_fault_that_cannot_be_is_named_by_place_and_field() {
    let check = |fault: &str| {
        let json = format!(r#"{{"faults": [{{"kind": "failed_step", "at": 1}}, {fault}]}}"#);
        let plan = FaultPlan::parse(&json).and_then(|plan| plan.check(&trace()));
        plan.expect_err(fault).to_string()
    };
    assert_eq!(
        check(r#"{"kind": "slow", "from": 2, "until": 1, "factor": 2}"#),
        "faults[1].until must be after `from`"
    );
    assert_eq!(
        check(r#"{"kind": "slow", "from": 2, "until": 3, "factor": 0}"#),
        "faults[1].factor must be from 0.001 to 1000"
    );
    assert_eq!(
        check(r#"{"kind": "cancel", "at": 2, "rel_id": 99}"#),
        "faults[1].rel_id is no relQuery of the trace"
    );
    assert_eq!(
        check(r#"{"kind": "not_a_number", "rel_id": 1, "row": 999}"#),
        "faults[1].row is no row of the relQuery"
    );
    assert_eq!(check(r#"{"kind": "failed_step", "at": -1}"#), "faults[1].at must be from 0 to 1e9 seconds");
    assert_eq!(
        check(r#"{"kind": "late_rows", "at": 1, "rel_id": 1, "rows": []}"#),
        "faults[1].rows must not be empty"
    );
    assert!(check(r#"{"kind": "fire"}"#).contains("unknown variant `fire`"));
}
