//! A row with which every step fails, fails alone; and an executor that is down fails nobody early.

mod common;

use std::collections::BTreeSet;

use base::{RelQueryId, Time, TokenCount};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig};

/// A relQuery of 64 rows in one step, and what came of it.
struct Run {
    failed_steps: u32,
    /// Failed steps after which each row failed, by row.
    failed: Vec<(u32, u32)>,
    done: usize,
}

/// Runs 64 rows; a step fails if `fails` says so of the seeds in it and the failed steps so far.
fn run(policy: Policy, fails: impl Fn(&[u64], u32) -> bool) -> Run {
    let config = SchedulerConfig {
        policy,
        kv_blocks: 400,
        block_tokens: 4,
        chunk_tokens: TokenCount(2_048),
        ..SchedulerConfig::default()
    };
    let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
    let mut memory = Memory::new(4);
    let items: Vec<_> = (0..64).map(|row| item(row, vec![row; 9], 5, u64::from(row))).collect();
    memory.know(&items);
    scheduler.submit(submission(1, 0, items)).expect("room");
    let mut run = Run { failed_steps: 0, failed: Vec::new(), done: 0 };
    for now in 0..2_000 {
        let Some(plan) = scheduler.plan(Time(now)) else { break };
        let seeds: Vec<u64> =
            plan.slots.iter().filter_map(|slot| slot.sample.as_ref()).map(|sample| sample.seed).collect();
        let events = if fails(&seeds, run.failed_steps) {
            run.failed_steps += 1;
            scheduler.abort_step(plan.step, "the step failed", Time(now))
        } else {
            scheduler.apply(&memory.step(&plan), Time(now))
        };
        for event in events {
            match event {
                Event::RowFailed { row, .. } => run.failed.push((row, run.failed_steps)),
                Event::RowDone { .. } => run.done += 1,
                _ => {}
            }
        }
        scheduler.check_invariants().expect("the books balance");
    }
    assert!(scheduler.is_idle(), "{policy}: no end after {} failed steps", run.failed_steps);
    run
}

#[test]
fn a_poisonous_row_among_64_fails_alone() {
    for policy in Policy::ALL {
        let run = run(policy, |seeds, _| seeds.contains(&37));
        // log2(64) steps find it, then it has its three attempts.
        assert_eq!((run.failed, run.done), (vec![(37, 9)], 63), "{policy}");
    }
}

#[test]
fn two_poisonous_rows_fail_and_nobody_else() {
    for policy in Policy::ALL {
        let run = run(policy, |seeds, _| seeds.contains(&3) || seeds.contains(&50));
        let rows: BTreeSet<u32> = run.failed.iter().map(|(row, _)| *row).collect();
        assert_eq!((rows, run.done), (BTreeSet::from([3, 50]), 62), "{policy}");
        assert!(run.failed_steps <= 2 * (6 + 3), "{policy}: {} failed steps", run.failed_steps);
    }
}

#[test]
fn an_executor_that_is_down_for_a_while_fails_no_row() {
    for policy in Policy::ALL {
        let run = run(policy, |_, failed| failed < 8);
        assert_eq!((run.failed, run.done), (vec![], 64), "{policy}");
    }
}

#[test]
fn an_executor_that_stays_down_ends_every_row_after_its_attempts() {
    for policy in Policy::ALL {
        let run = run(policy, |_, _| true);
        assert_eq!((run.failed.len(), run.done), (64, 0), "{policy}");
        assert!(run.failed.iter().all(|(_, after)| *after >= 3), "{policy}");
        // Splits of the groups, and three attempts for each row.
        assert!(run.failed_steps <= 64 + 3 * 64, "{policy}: {} failed steps", run.failed_steps);
    }
}

#[test]
fn suspects_that_find_no_room_get_that_of_others() {
    let config = SchedulerConfig {
        policy: Policy::RelServe,
        kv_blocks: 12,
        block_tokens: 4,
        watermark_permille: 0,
        ..SchedulerConfig::default()
    };
    let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
    let mut memory = Memory::new(4);
    for id in 1..=4 {
        let items = vec![item(0, vec![id as u32; 11], 12, id)];
        memory.know(&items);
        scheduler.submit(submission(id, id, items)).expect("room");
    }
    let mut ended = BTreeSet::new();
    for now in 0..1_000 {
        let Some(plan) = scheduler.plan(Time(now)) else { break };
        let events = match now % 3 {
            0 => scheduler.abort_step(plan.step, "flaky", Time(now)),
            _ => scheduler.apply(&memory.step(&plan), Time(now)),
        };
        scheduler.check_invariants().expect("the books balance");
        ended.extend(events.iter().filter_map(|event| match event {
            Event::RowDone { relquery, .. } => Some(*relquery),
            _ => None,
        }));
    }
    assert_eq!(ended, (1..=4).map(RelQueryId).collect::<BTreeSet<_>>());
}
