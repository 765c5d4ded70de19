//! A world in which steps fail and people change their minds.

use base::{RelQueryId, StepId, Time};
use scheduler::{Policy, Scheduler, SchedulerConfig};
use sim::{ReplayConfig, Shape, SimExecutor, World, paper_like};

fn world(policy: Policy) -> (World<SimExecutor>, Vec<RelQueryId>) {
    let config = ReplayConfig::default();
    let trace = paper_like(5, Shape { relqueries: 12, rows_max: 20, rate: 4.0, ..Shape::default() });
    let lowered = trace.lower().expect("a trace");
    let mut executor = SimExecutor::new(config.cost);
    for (seed, length) in lowered.lengths {
        executor.set_length(seed, length);
    }
    let settings = SchedulerConfig { policy, kv_blocks: 3_000, ..config.scheduler };
    let scheduler = Scheduler::new(settings, config.cost).expect("a valid configuration");
    let mut world = World::new(scheduler, executor);
    world.check_every_step();
    let ids = lowered.submissions.iter().map(|submission| submission.id).collect();
    for submission in lowered.submissions {
        world.submit(submission);
    }
    (world, ids)
}

#[test]
fn failed_steps_and_cancelled_relqueries_leave_the_others_whole() {
    for policy in Policy::ALL {
        let (mut world, ids) = world(policy);
        for step in [1, 2, 7, 20, 21] {
            world.fail_step(StepId(step));
        }
        world.cancel_at(Time(700_000_000), ids[1]);
        world.cancel_at(Time(701_000_000), ids[1]);
        world.run_until_idle().expect("the scheduler keeps its promises");
        assert!(!world.finished().contains_key(&ids[1]), "{policy}");
        assert_eq!(world.finished().len(), ids.len() - 1, "{policy}");
        assert_eq!(world.scheduler.stats().kv_used_blocks, 0, "{policy}");
    }
}

#[test]
fn a_relquery_whose_steps_always_fail_ends_with_failed_rows() {
    let (mut world, ids) = world(Policy::Fcfs);
    for step in 1..=3 {
        world.fail_step(StepId(step));
    }
    world.run_until_idle().expect("the scheduler keeps its promises");
    let failed =
        world.events().iter().filter(|(_, event)| matches!(event, scheduler::Event::RowFailed { .. }));
    assert!(failed.count() > 0);
    assert_eq!(world.finished().len(), ids.len());
}
