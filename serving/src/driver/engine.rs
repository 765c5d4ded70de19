//! The local engine under its scheduler: plan a step, execute it, apply its outcome.
//!
//! An executor that is lost, or that panics, is replaced by a fresh one (`fresh`), and the scheduler forgets what lay in
//! its memory; meanwhile the engine takes and gives up work as ever and runs none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::{BatchPlan, ExecError, Executor, StepOutcome, Time};
use scheduler::{Event, Scheduler};

use super::fresh::{Maker, Making, Report, Wake, drop_apart, words};
use crate::config::RestartConfig;
use crate::live::describe::{Course, Step};
use crate::shared::Shared;

/// An engine and what is wanted of it.
pub struct Engine {
    /// What is wanted.
    pub scheduler: Scheduler,
    machine: Machine,
    /// Makes another executor, where one can be made.
    maker: Option<Maker>,
    restart: RestartConfig,
    wake: Wake,
    /// When the last step ended, while steps follow one another.
    last_end: Option<Time>,
    /// Executors in a row that ran no step.
    trouble: u32,
}

/// What runs steps.
enum Machine {
    /// An executor does.
    Runs(Box<dyn Executor>),
    /// It was lost, and another is made: the last attempt began then.
    Rests(Making, Time),
    /// It was lost for good.
    Dead,
}

/// What came of a turn.
pub(crate) enum Turn {
    /// There was nothing to do.
    Idle,
    /// A step ended at this time; described where somebody looks.
    Stepped(Vec<Event>, Time, Option<Box<Step>>),
    /// Another executor is being made, by an attempt that began then.
    Resting(Time),
    /// The executor is gone for good.
    Dead,
}

/// What became of a step.
enum Fate {
    Ran(StepOutcome),
    Failed(String),
    /// And so is the executor.
    Lost(String),
}

impl Engine {
    /// One at rest; without a maker it dies with its executor.
    pub fn new(
        scheduler: Scheduler,
        executor: Box<dyn Executor>,
        (maker, restart): (Option<Maker>, RestartConfig),
    ) -> Self {
        Self {
            scheduler,
            machine: Machine::Runs(executor),
            maker: maker.filter(|_| restart.failures_max > 0),
            restart,
            wake: Arc::new(|| ()),
            last_end: None,
            trouble: 0,
        }
    }

    /// The same, where `wake` brings about its next turn when a fresh executor has something to say.
    pub(crate) fn woken_by(self, wake: Wake) -> Self {
        Self { wake, ..self }
    }

    /// Plans and runs one step.
    pub(crate) fn turn(&mut self, shared: &Shared) -> Turn {
        self.hear(shared);
        let clock = shared.clock;
        let planning = clock.now();
        let executor = match &mut self.machine {
            Machine::Runs(executor) => executor,
            Machine::Rests(_, since) => return Turn::Resting(*since),
            Machine::Dead => return Turn::Dead,
        };
        let Some(plan) = self.scheduler.plan(planning) else {
            self.last_end = None;
            return Turn::Idle;
        };
        shared.pulse.busy(planning);
        let planned = clock.now();
        let gap = self.last_end.map(|end| planned.since(end));
        let fate = run(executor, &plan);
        let now = clock.now();
        let mut told = shared.live.is_watched().then(|| Box::new(Step::of(&self.scheduler, &plan)));
        let is_failed = !matches!(fate, Fate::Ran(_));
        let events = match fate {
            Fate::Ran(outcome) => self.applied(outcome, planning, now),
            Fate::Failed(reason) => {
                tracing::warn!(step = plan.step.0, reason, "a step failed");
                self.failed(shared, |scheduler| scheduler.abort_step(plan.step, &reason, now))
            }
            Fate::Lost(reason) => {
                tracing::error!(step = plan.step.0, rows = plan.slots.len(), reason, "the executor is lost");
                shared.metrics.steps.engine_losses.inc();
                self.rest(now);
                if matches!(self.machine, Machine::Dead) {
                    return Turn::Dead;
                }
                self.failed(shared, |scheduler| scheduler.lose_step(plan.step, &reason, now))
            }
        };
        shared.pulse.step(now);
        let applied = clock.now();
        let scheduling = planned.since(planning) + applied.since(now);
        shared.metrics.steps.stepped(&plan, gap, scheduling, now.since(planned));
        if let Some(told) = &mut told {
            told.course = Course { start: planned, took: now.since(planned), scheduling, gap, is_failed };
        }
        Turn::Stepped(events, now, told)
    }

    /// The scheduler's model of the machine is fitted to the time from step to step, not to the executor's
    /// alone: planning, fan-out and whoever else has the processor are what a step costs as well.
    fn applied(&mut self, outcome: StepOutcome, planning: Time, now: Time) -> Vec<Event> {
        self.trouble = 0;
        let begun = self.last_end.replace(now).unwrap_or(planning);
        self.scheduler.apply(&StepOutcome { elapsed: now.since(begun), ..outcome }, now)
    }

    /// A step failed whole: the rows that fail with it are quarantined.
    fn failed(&mut self, shared: &Shared, tell: impl FnOnce(&mut Scheduler) -> Vec<Event>) -> Vec<Event> {
        shared.metrics.steps.failures.inc();
        self.last_end = None;
        let events = tell(&mut self.scheduler);
        for event in &events {
            if let Event::RowFailed { relquery, row, error, .. } = event {
                tracing::error!(relquery = relquery.0, row, %error, "a row is quarantined: steps with it fail");
                shared.metrics.steps.rows_quarantined.inc();
            }
        }
        events
    }

    /// The executor is lost: it is dropped elsewhere, and another is made if that can be.
    fn rest(&mut self, now: Time) {
        let Machine::Runs(lost) = std::mem::replace(&mut self.machine, Machine::Dead) else { return };
        let Some(maker) = self.maker.clone() else {
            tracing::error!("nothing more will run: there is no way to make another executor");
            drop(drop_apart(lost));
            return;
        };
        let how = (self.restart.clone(), self.trouble);
        match Making::begin(lost, maker, how, Arc::clone(&self.wake)) {
            Ok(making) => self.machine = Machine::Rests(making, now),
            Err(error) => tracing::error!(%error, "nothing more will run: no thread to make an executor on"),
        }
        self.trouble = self.trouble.saturating_add(1);
    }

    /// Hears how it goes with the fresh executor, where one is made.
    fn hear(&mut self, shared: &Shared) {
        while let Machine::Rests(making, since) = &mut self.machine {
            match making.hear() {
                None => return,
                Some(Report::Begins) => {
                    tracing::warn!("making a fresh executor");
                    *since = shared.clock.now();
                }
                Some(Report::Failed(reason)) => {
                    tracing::error!(reason, "no fresh executor could be made");
                    shared.metrics.steps.engine_restart_failures.inc();
                }
                Some(Report::Made(executor)) => {
                    tracing::warn!("a fresh executor runs on; what was in flight is computed anew");
                    shared.metrics.steps.engine_restarts.inc();
                    self.machine = Machine::Runs(executor);
                }
                Some(Report::GaveUp) => {
                    tracing::error!("nothing more will run: too many attempts in a row have failed");
                    self.machine = Machine::Dead;
                }
            }
        }
    }
}

/// Runs a step; a panic loses the executor, whatever state that left it in.
fn run(executor: &mut Box<dyn Executor>, plan: &BatchPlan) -> Fate {
    match catch_unwind(AssertUnwindSafe(|| executor.step(plan))) {
        Ok(Ok(outcome)) => Fate::Ran(outcome),
        Ok(Err(ExecError::Lost(reason))) => Fate::Lost(reason),
        Ok(Err(error)) => Fate::Failed(error.to_string()),
        Err(panic) => Fate::Lost(format!("the executor panicked: {}", words(&*panic))),
    }
}
