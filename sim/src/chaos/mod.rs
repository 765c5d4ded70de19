//! Deterministic simulation: a seed draws a small world in which everything happens that may happen to a
//! scheduler, and after each step every promise is checked.
//!
//! Policies with their settings, tables, arrivals (ties among them), rows added and called off, steps and
//! rows that fail, poisonous rows, answers that are missing or belong to another step, too little memory,
//! tenants, classes, deadlines, a clock that stands still or jumps: `setup` draws it, `memory` checks what
//! slots read, `accounting` what the outside is told, `arrivals` brings and calls off, and this file runs it.
//! A world is a function of its seed and reads no clock, so a failing seed is a bug report.

mod accounting;
mod arrivals;
mod draws;
mod memory;
mod promises;
mod setup;

use std::collections::BTreeSet;

use base::{
    BatchPlan, End, Nanos, RelQueryId, RequestId, RowError, RowOutcome, Sampled, Slot, StepOutcome, Time,
};
use scheduler::{Event, Scheduler};

use accounting::{Accounting, OUTAGE, POISON};
use draws::ChaosDraws;
use memory::{MemoryModel, token};
use setup::Setup;

/// What worlds went through; sums over several show whether they were hard enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChaosCounts {
    /// Steps planned.
    pub steps: u64,
    /// Steps that failed whole.
    pub failed_steps: u64,
    /// Of those, steps with which the executor was lost.
    pub losses: u64,
    /// Rows that ended well, and rows that failed.
    pub rows_done: u64,
    /// Rows that ended with an error.
    pub rows_failed: u64,
    /// Rows whose blocks were taken for others.
    pub preemptions: u64,
    /// Prompt tokens that the prefix cache supplied.
    pub hits: u64,
    /// Of those, tokens that came back from the host tier.
    pub restored: u64,
    /// Submissions that were refused.
    pub refused: u64,
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guessed tokens that came.
    pub accepted: u64,
}

impl std::ops::AddAssign for ChaosCounts {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.failed_steps += other.failed_steps;
        self.losses += other.losses;
        self.rows_done += other.rows_done;
        self.rows_failed += other.rows_failed;
        self.preemptions += other.preemptions;
        self.hits += other.hits;
        self.restored += other.restored;
        self.refused += other.refused;
        self.guessed += other.guessed;
        self.accepted += other.accepted;
    }
}

/// Runs the world of a seed to its end. `tell` hears every decision if it is given; the error is the
/// first broken promise.
pub fn run_seed(seed: u64, tell: Option<&mut dyn FnMut(&str)>) -> Result<ChaosCounts, String> {
    let mut draws = ChaosDraws::new(seed);
    let setup = Setup::draw(&mut draws);
    World::new(draws, setup, tell)?.run()
}

/// The same in a world of extremes: costs of nothing and of the largest numbers, and a clock that goes back and leaps
/// to the end of time.
pub fn run_extreme_seed(seed: u64, tell: Option<&mut dyn FnMut(&str)>) -> Result<ChaosCounts, String> {
    let mut draws = ChaosDraws::new(seed);
    let setup = Setup::draw(&mut draws).extreme(&mut draws);
    World::new(draws, setup, tell)?.run()
}

struct World<'a> {
    draws: ChaosDraws,
    setup: Setup,
    scheduler: Scheduler,
    memory: MemoryModel,
    accounting: Accounting,
    now: Time,
    next_id: u64,
    next_seed: u64,
    tally: ChaosCounts,
    /// The outcome of an earlier step.
    stray: Option<StepOutcome>,
    /// A shape of relQuery that arrives again and again.
    favourite: Option<Vec<Vec<u32>>>,
    tell: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> World<'a> {
    fn new(draws: ChaosDraws, setup: Setup, tell: Option<&'a mut dyn FnMut(&str)>) -> Result<Self, String> {
        let scheduler =
            Scheduler::new(setup.config.clone(), setup.cost).map_err(|error| error.to_string())?;
        let memory =
            MemoryModel::new(setup.config.kv_blocks, setup.config.host_kv_blocks, setup.config.block_tokens);
        let mut world = Self {
            draws,
            scheduler,
            memory,
            accounting: Accounting { attempts_max: setup.config.attempts_max, ..Accounting::default() },
            now: Time(0),
            next_id: 1,
            next_seed: 1,
            tally: ChaosCounts::default(),
            stray: None,
            favourite: None,
            tell,
            setup,
        };
        let setup = world.setup.clone();
        world.say(|| format!("{setup:#?}"));
        Ok(world)
    }

    fn run(mut self) -> Result<ChaosCounts, String> {
        for _ in 0..self.setup.turns {
            self.turn()?;
        }
        self.work_off()?;
        Ok(self.tally())
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(tell) = &mut self.tell {
            tell(&line());
        }
    }

    /// One turn: time passes or not, things happen, a step is planned, more happens, the step ends somehow.
    fn turn(&mut self) -> Result<(), String> {
        self.pass_time();
        if self.draws.one_in(self.setup.rates.arrivals) {
            self.arrive();
        }
        if self.draws.one_in(self.setup.rates.extends) {
            self.extend();
        }
        if self.draws.one_in(self.setup.rates.cancels) {
            self.cancel()?;
        }
        self.step(true)
    }

    fn pass_time(&mut self) {
        if self.setup.wild_clock && self.draws.one_in(3) {
            self.now = Time(match self.draws.below(8) {
                0 => 0,
                1 => u64::MAX - self.draws.below(2),
                _ => self.draws.below(self.now.0.saturating_add(1)),
            });
            return;
        }
        let still = if self.setup.ties { 5 } else { 2 };
        if !self.draws.one_in(still) && self.setup.ties {
            return;
        }
        let pass = match self.draws.below(20) {
            0 => self.draws.below(20_000_000_000),
            1..10 => self.draws.below(60_000_000),
            _ => 1_000_000,
        };
        self.now = self.now + Nanos(pass);
    }

    /// Plans a step and lets it end.
    fn step(&mut self, wild: bool) -> Result<(), String> {
        let plan = self.scheduler.plan(self.now);
        self.scheduler.check_invariants()?;
        let Some(plan) = plan else {
            let events = self.scheduler.drain_events(self.now);
            self.note(&events)?;
            return match self.scheduler.is_idle() {
                true => Ok(()),
                false => Err("rows wait, nothing runs and nothing is planned".into()),
            };
        };
        self.tally.steps += 1;
        if let Some(tell) = &mut self.tell {
            tell(&format!("{:?} {}", plan.kind(), self.scheduler.last_decision()));
            for slot in &plan.slots {
                let row = self.scheduler.row_of(slot.request).map(|(id, row)| format!("{id} row {row}"));
                let (start, tokens) = (slot.start, slot.input.len());
                tell(&format!("  {}: {tokens} tokens from {start}", row.unwrap_or_default()));
            }
        }
        promises::check_plan(&plan, &self.scheduler)?;
        if self.scheduler.plan(self.now).is_some() {
            return Err("two steps at a time".into());
        }
        for slot in &plan.slots {
            let (id, row) = self.scheduler.row_of(slot.request).ok_or("a slot of no row")?;
            let row = self.accounting.open.get(&id).and_then(|open| open.rows.get(&row));
            self.memory.introduce(slot.request, row.ok_or("a slot of a row nobody submitted")?.seed)?;
        }
        self.memory.run(&plan)?;
        if wild {
            self.meanwhile()?;
        }
        self.settle(&plan, wild)?;
        self.scheduler.check_invariants()
    }

    /// What happens while a step is in flight.
    fn meanwhile(&mut self) -> Result<(), String> {
        let rates = self.setup.rates;
        if self.draws.one_in(4 * rates.arrivals) {
            self.arrive();
        }
        if self.draws.one_in(rates.cancels) {
            self.cancel()?;
        }
        if self.draws.one_in(rates.strays) {
            let before = self.scheduler.stats();
            let Some(stray) = self.stray.take() else { return Ok(()) };
            let events = match self.draws.one_in(2) {
                true => self.scheduler.apply(&stray, self.now),
                false => self.scheduler.abort_step(stray.step, "late", self.now),
            };
            let is_quiet = events.iter().all(|event| matches!(event, Event::RelQueryDone { .. }));
            let after = self.scheduler.stats();
            if !is_quiet
                || (after.output_tokens, after.kv_free_blocks)
                    != (before.output_tokens, before.kv_free_blocks)
            {
                return Err(format!("the outcome of step {} counted later on", stray.step));
            }
            self.note(&events)?;
        }
        Ok(())
    }

    /// The step in flight ends: whole, with failed rows, or not at all.
    fn settle(&mut self, plan: &BatchPlan, wild: bool) -> Result<(), String> {
        let reason = match self.is_poisoned(plan) {
            true => Some(POISON),
            false => (wild && self.draws.one_in(self.setup.rates.aborts)).then_some(OUTAGE),
        };
        let events = if let Some(reason) = reason {
            self.say(|| format!("  fails: {reason}"));
            self.tally.failed_steps += 1;
            self.memory.spoil(plan);
            let is_lost = self.draws.one_in(4);
            self.accuse(plan, is_lost);
            match is_lost {
                true => self.lose(plan, reason)?,
                false => self.scheduler.abort_step(plan.step, reason, self.now),
            }
        } else {
            let outcome = self.outcome(plan, wild);
            let events = self.scheduler.apply(&outcome, self.now);
            self.stray = Some(outcome);
            events
        };
        let started = self.note(&events)?;
        if promises::starvation_bound(self.setup.config.policy) == promises::Bound::InOrder
            && self.tally.failed_steps == 0
        {
            self.accounting.check_in_order(&started, self.tally.steps)?;
        }
        Ok(())
    }

    /// The rows of a step that failed have it against them.
    fn accuse(&mut self, plan: &BatchPlan, is_lost: bool) {
        let requests: BTreeSet<RequestId> = plan.slots.iter().map(|slot| slot.request).collect();
        for request in &requests {
            let seed = self.memory.seed(*request);
            let Some(row) = seed.and_then(|seed| self.accounting.row(seed)) else { continue };
            match is_lost {
                true => row.losses += 1,
                false => row.alone += u32::from(requests.len() == 1),
            }
            row.lost_alone = is_lost && requests.len() == 1;
        }
    }

    /// The executor is lost with the step: a fresh one has nothing in its memory, so nothing is held or hit.
    fn lose(&mut self, plan: &BatchPlan, reason: &str) -> Result<Vec<Event>, String> {
        self.say(|| "  and the executor is lost".into());
        self.memory.spoil_all();
        let events = self.scheduler.lose_step(plan.step, reason, self.now);
        self.scheduler.check_invariants()?;
        let stats = self.scheduler.stats();
        if stats.kv_free_blocks != stats.kv_total_blocks || stats.rows_running > 0 {
            return Err("the executor is lost, and not all that it held is forgotten".into());
        }
        self.tally.losses += 1;
        Ok(events)
    }

    fn is_poisoned(&mut self, plan: &BatchPlan) -> bool {
        plan.slots.iter().any(|slot| {
            let seed = self.memory.seed(slot.request);
            seed.and_then(|seed| self.accounting.row(seed)).is_some_and(|row| row.is_poison)
        })
    }

    /// What the executor says of a plan that it ran.
    fn outcome(&mut self, plan: &BatchPlan, wild: bool) -> StepOutcome {
        let mut rows = Vec::new();
        for slot in &plan.slots {
            rows.extend(self.sampled(plan, slot, wild));
        }
        if self.draws.one_in(8) {
            rows.reverse();
        }
        let elapsed = match self.draws.below(30) {
            0 => Nanos(0),
            1 => Nanos(self.draws.below(u64::MAX)),
            _ => {
                let sequences = plan.decode_sequences() + plan.guesses();
                self.setup.cost.mixed(plan.prefill_tokens() + plan.decode_extra(), sequences)
            }
        };
        if !self.setup.ties && elapsed.0 < 1 << 40 {
            self.now = self.now + elapsed;
        }
        StepOutcome { step: plan.step, elapsed, rows, prompts: Vec::new() }
    }

    fn sampled(&mut self, plan: &BatchPlan, slot: &Slot, wild: bool) -> Option<RowOutcome> {
        let sample = slot.sample.as_ref()?;
        let index = u64::from(sample.output_index);
        // A row that was called off meanwhile is no longer accounted for.
        let row = self.accounting.row(sample.seed);
        let is_broken = row.as_ref().is_some_and(|row| row.is_broken) && index > sample.seed % 3;
        let is_missed = wild && self.draws.one_in(self.setup.rates.missing);
        if let Some(row) = row.filter(|_| is_missed) {
            row.was_missed = true;
        }
        if is_missed || is_broken {
            self.memory.spoil_unshared(plan, slot);
        }
        if is_missed {
            return None;
        }
        if is_broken {
            return Some(RowOutcome { request: slot.request, result: Err(RowError::NotANumber) });
        }
        let left = sample.generation.output_max.0 - index;
        let forced = if self.draws.one_in(self.setup.rates.forced) { self.draws.between(1, 6) } else { 0 };
        let guesses = &slot.input[slot.input.len() - slot.guesses as usize..];
        let truth = (index..).map(|index| token(sample.seed, index as usize));
        let right = guesses.iter().zip(truth).take_while(|(guessed, token)| *guessed == token).count() as u64;
        let right = if self.draws.one_in(self.setup.rates.unverified) { 0 } else { right };
        let count = (right + 1 + forced).min(left);
        let end = if count == left {
            Some(End::Length)
        } else {
            self.draws.one_in(self.setup.rates.stops).then_some(End::Stop)
        };
        let tokens = (index..index + count).map(|index| token(sample.seed, index as usize)).collect();
        let sampled = Sampled { tokens, end, ..Sampled::default() };
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }

    fn note(&mut self, events: &[Event]) -> Result<Vec<RelQueryId>, String> {
        self.accounting.note(events)
    }

    /// Nothing arrives and nothing but poison goes wrong any more: everything ends, in steps that the
    /// work explains.
    fn work_off(&mut self) -> Result<(), String> {
        let cuts = self.setup.config.policy.cuts_prompts();
        let bound = self.tally.steps + self.accounting.steps_explained(cuts);
        // Finding a poisonous row among ten takes four steps, and then it has its attempts.
        let failed_before = self.tally.failed_steps;
        let failed_max = self.accounting.open_rows() * (4 + u64::from(self.setup.config.attempts_max));
        while !self.scheduler.is_idle() {
            self.step(false)?;
            self.now = self.now + Nanos(1_000_000);
            let failed = self.tally.failed_steps - failed_before;
            if failed > failed_max || self.tally.steps > bound + failed {
                let steps = self.tally.steps;
                return Err(format!(
                    "step {steps}, {failed} failed: the work left explained {bound}, {failed_max}"
                ));
            }
        }
        let events = self.scheduler.drain_events(self.now);
        self.note(&events)?;
        match (self.accounting.open.is_empty(), self.scheduler.stats().kv_used_blocks) {
            (true, 0) => self.scheduler.check_invariants(),
            (false, _) => Err("a relQuery was never done".into()),
            (true, blocks) => Err(format!("{blocks} blocks are held for nobody")),
        }
    }

    fn tally(&self) -> ChaosCounts {
        let stats = self.scheduler.stats();
        ChaosCounts {
            rows_done: self.accounting.rows_done,
            rows_failed: self.accounting.rows_failed,
            preemptions: stats.preemptions,
            hits: stats.prefix_hit_tokens,
            restored: stats.tier.restored_tokens,
            guessed: stats.guessed_tokens,
            accepted: stats.accepted_tokens,
            ..self.tally
        }
    }
}
