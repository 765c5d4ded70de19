//! Seeded worlds: whatever is submitted, cancelled and broken, the books balance after every call,
//! every row ends once, and there is progress while there is work.

mod common;

use std::collections::BTreeMap;

use base::{RelQueryId, Time, TokenCount};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig, Stats};

/// A seeded source of numbers (splitmix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the outside knows of each row: whether its end has been told.
#[derive(Default)]
struct Books {
    open: BTreeMap<(RelQueryId, u32), bool>,
    relqueries: BTreeMap<RelQueryId, bool>,
}

impl Books {
    fn note(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::RowDone { relquery, row, usage, .. } => {
                    let ended = self.open.get_mut(&(relquery, row)).expect("a row that was submitted");
                    assert!(!std::mem::replace(ended, true), "row {row} of {relquery} ended twice");
                    assert!(usage.output.0 >= 1);
                    assert!(usage.cached.0 < usage.prompt.0);
                    assert!(usage.computed + usage.cached >= usage.prompt);
                }
                Event::RowFailed { relquery, row, .. } => {
                    let ended = self.open.get_mut(&(relquery, row)).expect("a row that was submitted");
                    assert!(!std::mem::replace(ended, true), "row {row} of {relquery} ended twice");
                }
                Event::RelQueryDone { relquery, .. } => {
                    let done = self.relqueries.get_mut(&relquery).expect("a relQuery that was submitted");
                    assert!(!std::mem::replace(done, true), "relQuery {relquery} was done twice");
                    let mut rows = self.open.range((relquery, 0)..=(relquery, u32::MAX));
                    assert!(rows.all(|(_, ended)| *ended), "{relquery} is done, a row of it is not");
                }
                Event::Started { .. } | Event::Token { .. } => {}
            }
        }
    }

    fn forget(&mut self, id: RelQueryId) {
        self.relqueries.remove(&id);
        self.open.retain(|(relquery, _), _| *relquery != id);
    }
}

struct World {
    draws: Draws,
    scheduler: Scheduler,
    memory: Memory,
    books: Books,
    next: u64,
    seed: u64,
}

impl World {
    fn new(seed: u64, policy: Policy) -> Self {
        let mut draws = Draws(seed);
        let block_tokens = 1 + draws.below(4) as u32;
        let config = SchedulerConfig {
            policy,
            step_tokens_max: TokenCount(8 + draws.below(60)),
            chunk_tokens: TokenCount(10 + draws.below(20)),
            sequences_max: 1 + draws.below(9) as u32,
            kv_blocks: 48 / block_tokens + draws.below(40) as u32,
            block_tokens,
            watermark_permille: draws.below(300) as u32,
            rows_max: 60,
            unit_waiting_ms_max: draws.one_in(2).then_some(base::Millis(0)),
            publish_generated: draws.one_in(2),
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        let memory = Memory::new(block_tokens);
        Self { draws, scheduler, memory, books: Books::default(), next: 1, seed: 1 }
    }

    fn items(&mut self, first_row: u32) -> Vec<base::WorkItem> {
        let template: Vec<u32> = (0..self.draws.below(12) as u32).map(|i| 1_000 + i).collect();
        let rows = 1 + self.draws.below(6) as u32;
        (first_row..first_row + rows)
            .map(|row| {
                let mut prompt = template.clone();
                for _ in 0..1 + self.draws.below(12) {
                    prompt.push(self.draws.below(3) as u32);
                }
                self.seed += 1;
                item(row, prompt, 1 + self.draws.below(9), self.seed)
            })
            .collect()
    }

    fn submit(&mut self, now: Time) {
        let items = self.items(0);
        let id = RelQueryId(self.next);
        self.next += 1;
        self.memory.know(&items);
        let rows: Vec<u32> = items.iter().map(|item| item.row).collect();
        if self.scheduler.submit(submission(id.0, now.0, items)).is_ok() {
            self.books.relqueries.insert(id, false);
            self.books.open.extend(rows.iter().map(|row| ((id, *row), false)));
        }
    }

    fn extend(&mut self) {
        let id = RelQueryId(1 + self.draws.below(self.next));
        let first_row = 100 * (1 + self.draws.below(50) as u32);
        let items = self.items(first_row);
        self.memory.know(&items);
        let rows: Vec<u32> = items.iter().map(|item| item.row).collect();
        if self.scheduler.extend(id, items).is_ok() {
            self.books.open.extend(rows.iter().map(|row| ((id, *row), false)));
        }
    }

    fn cancel(&mut self) {
        let id = RelQueryId(self.draws.below(self.next + 2));
        if self.draws.one_in(2) {
            if self.scheduler.cancel(id) {
                self.books.forget(id);
            }
            assert!(!self.scheduler.cancel(id), "a second cancel finds nothing");
        } else {
            let row = self.draws.below(6) as u32;
            if self.scheduler.cancel_row(id, row) {
                let ended = self.books.open.insert((id, row), true);
                assert_eq!(ended, Some(false));
            }
            assert!(!self.scheduler.cancel_row(id, row));
        }
    }

    fn check(&self) {
        self.scheduler.check_invariants().expect("the books balance");
    }

    /// One turn: things happen, a step is planned, more happens, the step ends somehow.
    fn turn(&mut self, now: Time, faults: bool) {
        let plan = self.scheduler.plan(now);
        self.check();
        let Some(plan) = plan else {
            let events = self.scheduler.drain_events(now);
            self.books.note(events);
            assert!(self.scheduler.is_idle(), "rows wait, nothing runs and nothing is planned");
            return;
        };
        assert!(self.scheduler.plan(now).is_none(), "one step at a time");
        if faults && self.draws.one_in(6) {
            self.cancel();
            self.check();
        }
        let events = if faults && self.draws.one_in(8) {
            let events = self.scheduler.abort_step(plan.step, "injected", now);
            if self.draws.one_in(3) {
                assert!(self.scheduler.forget_memory());
                self.memory.cells.clear();
            }
            events
        } else {
            let outcome = self.memory.step(&plan);
            self.scheduler.apply(&outcome, now)
        };
        self.books.note(events);
        self.check();
    }
}

/// Runs a world to its end; what it went through.
fn run(seed: u64, policy: Policy) -> Stats {
    let mut world = World::new(seed, policy);
    for turn in 0..150 {
        let now = Time(turn * 1_000_000);
        if world.draws.one_in(2) {
            world.submit(now);
        }
        if world.draws.one_in(5) {
            world.extend();
        }
        if world.draws.one_in(9) {
            world.cancel();
        }
        if world.draws.one_in(20) {
            let broken = world.seed;
            world.memory.broken.push(broken);
        }
        world.check();
        world.turn(now, true);
    }
    // No more arrivals or faults: everything ends, in a number of steps that work explains.
    let mut turns = 0;
    while !world.scheduler.is_idle() {
        world.turn(Time(1_000_000_000 + turns), false);
        turns += 1;
        assert!(turns < 5_000, "no end after {turns} steps");
    }
    let events = world.scheduler.drain_events(Time(2_000_000_000));
    world.books.note(events);
    assert!(world.books.open.values().all(|ended| *ended), "a row never ended");
    assert!(world.books.relqueries.values().all(|done| *done), "a relQuery was never done");
    let stats = world.scheduler.stats();
    assert_eq!(stats.kv_used_blocks, 0);
    stats
}

#[test]
fn every_row_ends_once_and_no_block_is_lost_whatever_happens() {
    for policy in Policy::ALL.into_iter().chain([Policy::StaticPriorityWeak]) {
        let (mut preemptions, mut hits) = (0, 0);
        for seed in 0..60 {
            let stats = run(seed, policy);
            preemptions += stats.preemptions;
            hits += stats.prefix_hit_tokens;
        }
        assert!(
            preemptions > 10 && hits > 1_000,
            "{policy}: {preemptions} preemptions, {hits} hits: too easy"
        );
    }
}

#[test]
fn the_same_calls_give_the_same_plans() {
    let trace = |seed| {
        let mut world = World::new(seed, Policy::RelServe);
        let mut decisions = Vec::new();
        for turn in 0..60 {
            world.submit(Time(turn));
            world.turn(Time(turn), true);
            decisions.push(world.scheduler.last_decision().to_string());
        }
        decisions
    };
    assert_eq!(trace(3), trace(3));
}
