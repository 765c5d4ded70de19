//! An executor that is lost takes nothing with it but what it had computed, and a row that loses it each time
//! fails alone.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use base::{BatchPlan, RelQueryId, RowError, Time, TokenCount, TokenId};
use common::{Memory, item, submission};
use proptest::prelude::*;
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig};

/// A row: its relQuery and its number.
type At = (u64, u32);

/// A scheduler over an executor that can be lost, and what the outside was told.
struct World {
    scheduler: Scheduler,
    memory: Memory,
    now: u64,
    /// Seed, output limit and tokens so far of rows that have not ended; a seed is a row of its own.
    open: BTreeMap<At, (u64, u64, Vec<TokenId>)>,
    next_id: u64,
    next_seed: u64,
    done: BTreeSet<At>,
    failed: Vec<(At, RowError)>,
    losses: u32,
    /// Losses by seed.
    lost: BTreeMap<u64, u32>,
}

impl World {
    fn new(config: SchedulerConfig) -> Self {
        let block_tokens = config.block_tokens;
        Self {
            scheduler: Scheduler::new(config, CostModel::default()).expect("a valid configuration"),
            memory: Memory::new(block_tokens),
            now: 0,
            open: BTreeMap::new(),
            next_id: 1,
            next_seed: 1,
            done: BTreeSet::new(),
            failed: Vec::new(),
            losses: 0,
            lost: BTreeMap::new(),
        }
    }

    /// Rows with a common template, of `own` tokens each beside it; a seventh of the relQueries are like
    /// another.
    fn submit(&mut self, rows: u32, own: u32, output_max: u64) {
        let id = self.next_id;
        let prompt = |row: u32| (0..9).chain((0..own).map(|i| 100 * (row + 1) + i + id as u32 % 7)).collect();
        let seeds = self.next_seed..;
        let items: Vec<_> =
            (0..rows).zip(seeds).map(|(row, seed)| item(row, prompt(row), output_max, seed)).collect();
        self.memory.know(&items);
        let fresh = items.iter().map(|item| ((id, item.row), (item.seed, output_max, Vec::new())));
        let fresh: Vec<_> = fresh.collect();
        if self.scheduler.submit(submission(id, self.now, items)).is_ok() {
            self.open.extend(fresh);
            (self.next_id, self.next_seed) = (id + 1, self.next_seed + u64::from(rows));
        }
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Token { relquery, row, token, .. } => {
                    self.open.get_mut(&(relquery.0, row)).expect("it is open").2.push(token);
                }
                Event::RowDone { relquery, row, .. } => {
                    let (seed, most, said) = self.open.remove(&(relquery.0, row)).expect("it ends once");
                    assert_eq!(said, self.memory.truth(seed, most), "what a run without faults says");
                    self.done.insert((relquery.0, row));
                }
                Event::RowFailed { relquery, row, error, .. } => {
                    let (seed, ..) = self.open.remove(&(relquery.0, row)).expect("it ends once");
                    let losses = self.lost.get(&seed).copied().unwrap_or(0);
                    assert!(losses >= 2, "{error}: the executor was lost {losses} times with it");
                    self.failed.push(((relquery.0, row), error));
                }
                _ => {}
            }
        }
    }

    /// Plans a step and lets it end, with the executor where `loses` says so. False: there was nothing to do.
    fn step(&mut self, mut loses: impl FnMut(&BatchPlan) -> bool) -> bool {
        self.now += 1;
        let Some(plan) = self.scheduler.plan(Time(self.now)) else { return false };
        let events = match loses(&plan) {
            true => {
                self.losses += 1;
                for slot in &plan.slots {
                    let (id, row) = self.scheduler.row_of(slot.request).expect("its row is open");
                    let seed = self.open[&(id.0, row)].0;
                    *self.lost.entry(seed).or_default() += 1;
                }
                self.memory.lose();
                let events = self.scheduler.lose_step(plan.step, "lost", Time(self.now));
                self.check_forgotten();
                events
            }
            false => {
                let outcome = self.memory.step(&plan);
                self.scheduler.apply(&outcome, Time(self.now))
            }
        };
        self.note(events);
        self.scheduler.check_invariants().expect("the books balance");
        true
    }

    /// Nothing is held, nothing can be hit, and every row that has not ended waits.
    fn check_forgotten(&self) {
        let stats = self.scheduler.stats();
        assert_eq!((stats.kv_free_blocks, stats.rows_running), (stats.kv_total_blocks, 0));
        self.scheduler.check_invariants().expect("the books balance");
    }

    fn finish(&mut self, mut loses: impl FnMut(&BatchPlan) -> bool) {
        let mut steps = 0;
        while self.step(&mut loses) {
            steps += 1;
            assert!(steps < 20_000, "no end in sight after {} losses", self.losses);
        }
        assert!(self.scheduler.is_idle() && self.open.is_empty(), "rows wait and nothing is planned");
    }
}

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        kv_blocks: 400,
        block_tokens: 4,
        chunk_tokens: TokenCount(2_048),
        ..SchedulerConfig::default()
    }
}

/// 64 rows of which one loses the executor where `is_fatal` says so of its slot: decoding or not, after so
/// many tokens.
fn poisoned(policy: Policy, is_fatal: impl Fn(bool, u32) -> bool) -> World {
    let mut world = World::new(config(policy));
    world.submit(64, 5, 12);
    let long =
        (1..=64).find(|seed| world.memory.truth(*seed, 12).len() == 12).expect("one does not stop early");
    world.finish(|plan| {
        plan.slots.iter().any(|slot| {
            let sample = slot.sample.as_ref().filter(|sample| sample.seed == long);
            sample.is_some_and(|sample| is_fatal(!slot.is_prefill, sample.output_index))
        })
    });
    let poison = ((1, long as u32 - 1), 64 - 1);
    assert_eq!((world.failed.len(), world.done.len()), (1, poison.1), "{policy}");
    let (at, error) = &world.failed[0];
    assert_eq!(*at, poison.0, "{policy}");
    assert!(error.to_string().contains("quarantined: 2 steps"), "{error}");
    world
}

#[test]
fn a_row_that_loses_the_executor_each_time_fails_alone_with_its_second_loss() {
    for policy in Policy::ALL {
        assert_eq!(poisoned(policy, |_, _| true).losses, 2, "{policy}");
    }
}

#[test]
fn so_does_one_that_loses_it_only_as_it_decodes_or_late() {
    for policy in Policy::ALL {
        assert_eq!(poisoned(policy, |decodes, _| decodes).losses, 2, "{policy}");
        assert_eq!(poisoned(policy, |_, said| said > 4).losses, 2, "{policy}");
    }
}

#[test]
fn a_loss_that_no_row_is_to_blame_for_fails_none() {
    for policy in Policy::ALL {
        for when in 1..8 {
            let mut world = World::new(config(policy));
            world.submit(20, 5, 9);
            world.submit(1, 30, 9);
            let mut steps = 0;
            world.finish(|_| {
                steps += 1;
                steps == when
            });
            assert_eq!((world.losses, world.failed.len(), world.done.len()), (1, 0, 21), "{policy}");
        }
    }
}

#[test]
fn rows_that_lose_it_only_together_do_not_do_so_for_ever() {
    for policy in Policy::ALL {
        let mut world = World::new(config(policy));
        world.submit(8, 5, 40);
        world.finish(|plan| plan.decode_sequences() > 1);
        assert!(world.losses <= 8, "{policy}: {} losses", world.losses);
        let beside = |(_, error): &(At, RowError)| error.to_string().contains("beside others");
        assert!(world.failed.iter().all(beside), "{policy}: {:?}", world.failed);
        // Those after them are served.
        world.submit(1, 5, 40);
        world.finish(|plan| plan.decode_sequences() > 1);
    }
}

#[test]
fn an_executor_that_loses_every_step_ends_every_row_with_its_second_loss() {
    for policy in Policy::ALL {
        let mut world = World::new(config(policy));
        world.submit(8, 5, 9);
        world.finish(|_| true);
        assert_eq!((world.failed.len(), world.losses), (8, 1 + 8), "{policy}");
    }
}

#[test]
fn the_next_executor_is_told_what_each_row_has_said() {
    let mut world = World::new(config(Policy::MarginalWork));
    world.submit(4, 5, 12);
    while world.open.values().any(|(_, _, said)| said.len() < 3) {
        assert!(world.step(|_| false));
    }
    let said: BTreeMap<At, usize> = world.open.iter().map(|(at, row)| (*at, row.2.len())).collect();
    assert!(!said.is_empty());
    world.step(|_| true);
    for (_, row) in said.keys() {
        let plan = world.scheduler.plan(Time(1_000)).expect("they are tried");
        assert_eq!(plan.slots.len(), 1, "one by one");
        let (id, tried) = world.scheduler.row_of(plan.slots[0].request).expect("it is open");
        assert_eq!((id, tried), (RelQueryId(1), *row));
        let sample = plan.slots[0].sample.as_ref().expect("its whole text is computed");
        let expected = &world.open[&(1, *row)].2;
        assert_eq!((&sample.already_generated, sample.output_index as usize), (expected, expected.len()));
        let events = world.scheduler.apply(&world.memory.step(&plan), Time(1_000));
        world.note(events);
        // What it decoded as it was lost, it decodes again before it is cleared.
        world.step(|plan| {
            assert!(plan.slots[0].sample.as_ref().is_some_and(|sample| sample.already_generated.is_empty()));
            false
        });
    }
    world.finish(|_| false);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever it was about to do, all blocks can be forgotten, and what is told in the end is what would
    /// have been.
    #[test]
    fn all_blocks_can_be_forgotten_in_any_state(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        blocks in 20..90u32,
        block_tokens in 1..5u32,
        chunk in 9..40u64,
        deeds in prop::collection::vec((0..12u8, 0..6u32, 1..12u32), 10..80),
    ) {
        let mut world = World::new(SchedulerConfig {
            policy,
            kv_blocks: blocks,
            block_tokens,
            sequences_max: 8,
            chunk_tokens: TokenCount(chunk),
            step_tokens_max: TokenCount(64),
            publish_generated: blocks.is_multiple_of(2),
            ..SchedulerConfig::default()
        });
        for (deed, which, size) in deeds {
            match deed {
                0..3 => world.submit(1 + which, size, u64::from(size)),
                3 => {
                    let id = world.open.keys().nth(which as usize).map(|(id, _)| *id);
                    if let Some(id) = id {
                        world.scheduler.cancel(RelQueryId(id));
                        world.open.retain(|(open, _), _| *open != id);
                    }
                }
                4 => {
                    let at = world.open.keys().nth(which as usize).copied();
                    if let Some((id, row)) = at {
                        world.scheduler.cancel_row(RelQueryId(id), row);
                        world.open.remove(&(id, row));
                    }
                }
                5 => {
                    // Between two steps: nobody is to blame.
                    world.memory.lose();
                    prop_assert!(world.scheduler.forget_memory());
                    world.check_forgotten();
                }
                6 => {
                    world.step(|_| true);
                }
                _ => {
                    world.step(|_| false);
                }
            }
            world.scheduler.check_invariants().map_err(TestCaseError::fail)?;
        }
        world.finish(|_| false);
    }
}
