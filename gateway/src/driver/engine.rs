//! The local engine under its scheduler: plan a step, execute it, apply its outcome.

use std::panic::AssertUnwindSafe;

use base::{Executor, StepOutcome, Time};
use scheduler::{Event, Scheduler};

use super::Shared;
use crate::live::describe::{Course, Step};

/// An engine and what is wanted of it.
pub struct Engine {
    /// What is wanted.
    pub scheduler: Scheduler,
    executor: Box<dyn Executor>,
    /// When the last step ended, while steps follow one another.
    last_end: Option<Time>,
}

/// What came of a turn.
pub(crate) enum Turn {
    /// There was nothing to do.
    Idle,
    /// A step ended at this time; described where somebody looks.
    Stepped(Vec<Event>, Time, Option<Box<Step>>),
    /// The executor is gone for good.
    Dead,
}

impl Engine {
    /// One at rest.
    pub fn new(scheduler: Scheduler, executor: Box<dyn Executor>) -> Self {
        Self { scheduler, executor, last_end: None }
    }

    /// Plans and runs one step.
    pub(crate) fn turn(&mut self, shared: &Shared) -> Turn {
        let clock = shared.clock;
        let planning = clock.now();
        let Some(plan) = self.scheduler.plan(planning) else {
            self.last_end = None;
            return Turn::Idle;
        };
        shared.pulse.busy(planning);
        let planned = clock.now();
        let gap = self.last_end.map(|end| planned.since(end));
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| self.executor.step(&plan)));
        let now = clock.now();
        let mut told = shared.live.is_watched().then(|| Box::new(Step::of(&self.scheduler, &plan)));
        let is_failed = !matches!(result, Ok(Ok(_)));
        let events = match result {
            Ok(Ok(outcome)) => self.applied(outcome, planning, now),
            Ok(Err(error)) => {
                tracing::warn!(step = plan.step.0, %error, "a step failed");
                shared.metrics.step_failures.increment(1);
                self.last_end = None;
                self.scheduler.abort_step(plan.step, &error.to_string(), now)
            }
            Err(_) => {
                tracing::error!(step = plan.step.0, "the executor panicked; nothing more will run on it");
                return Turn::Dead;
            }
        };
        shared.pulse.step(now);
        let applied = clock.now();
        let scheduling = planned.since(planning) + applied.since(now);
        shared.metrics.step(&plan, gap, scheduling, now.since(planned));
        if let Some(told) = &mut told {
            told.course = Course { start: planned, took: now.since(planned), scheduling, gap, is_failed };
        }
        Turn::Stepped(events, now, told)
    }

    /// The scheduler's model of the machine is fitted to the time from step to step, not to the executor's
    /// alone: planning, fan-out and whoever else has the processor are what a step costs as well.
    fn applied(&mut self, outcome: StepOutcome, planning: Time, now: Time) -> Vec<Event> {
        let begun = self.last_end.replace(now).unwrap_or(planning);
        self.scheduler.apply(&StepOutcome { elapsed: now.since(begun), ..outcome }, now)
    }
}
