//! The local engine under its scheduler: plan a step, execute it, apply its outcome.
//!
//! An executor that is lost, or that panics, is replaced by a fresh one (`restart`), and the scheduler forgets
//! what lay in its memory; meanwhile the engine takes and gives up work as ever and runs none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::{BatchPlan, ExecError, Executor, StepOutcome, Time};
use scheduler::snapshot::Start;
use scheduler::{Event, Scheduler};

use super::restart::{ExecutorFactory, PendingRestart, Report, Wake, drop_apart, words};
use crate::config::RestartConfig;
use crate::live::describe::{Step, StepTiming};
use crate::live::pace::TimedStep;
use crate::shared::Shared;

/// An engine and what is wanted of it.
pub struct Engine {
    /// What is wanted.
    pub scheduler: Scheduler,
    executor: ExecutorState,
    /// Makes another executor, where one can be made.
    factory: Option<ExecutorFactory>,
    restart: RestartConfig,
    wake: Wake,
    /// When the last step was begun to be planned.
    begun: Option<Time>,
    /// When the last step ended, while steps follow one another.
    last_end: Option<Time>,
    /// What is kept of the last step whether anybody looks or not.
    report: StepReport,
    /// Executors in a row that ran no step.
    failures: u32,
}

/// What a step leaves to be kept of it.
#[derive(Debug, Default)]
pub(crate) struct StepReport {
    /// RelQueries that began with it.
    pub(crate) starts: Vec<Start>,
    /// How long it took; nothing of one that failed.
    pub(crate) timed: Option<TimedStep>,
}

/// What runs steps.
enum ExecutorState {
    /// An executor does.
    Running(Box<dyn Executor>),
    /// It was lost, and another is made: the last attempt began then.
    Restarting(PendingRestart, Time),
    /// It was lost for good.
    Dead,
}

/// What came of a turn.
pub(crate) enum StepResult {
    /// There was nothing to do.
    Idle,
    /// A step ended at this time; described where somebody looks.
    Stepped(Vec<Event>, Time, Option<Box<Step>>),
    /// Another executor is being made, by an attempt that began then.
    Restarting(Time),
    /// The executor is gone for good.
    Dead,
}

/// What became of a step.
enum StepEnd {
    Ran(StepOutcome),
    Failed(String),
    /// And so is the executor.
    Lost(String),
}

impl Engine {
    /// One at rest; without a factory it dies with its executor.
    pub fn new(
        scheduler: Scheduler,
        executor: Box<dyn Executor>,
        (factory, restart): (Option<ExecutorFactory>, RestartConfig),
    ) -> Self {
        Self {
            scheduler,
            executor: ExecutorState::Running(executor),
            factory: factory.filter(|_| restart.failures_max > 0),
            restart,
            wake: Arc::new(|| ()),
            begun: None,
            last_end: None,
            report: StepReport::default(),
            failures: 0,
        }
    }

    /// The same, where `wake` brings about its next turn when a fresh executor has something to say.
    pub(crate) fn woken_by(self, wake: Wake) -> Self {
        Self { wake, ..self }
    }

    /// When the last step began: what it says comes at its end.
    pub(crate) fn begun(&self) -> Option<Time> {
        self.begun
    }

    /// Takes what the last step left.
    pub(crate) fn take_report(&mut self) -> StepReport {
        std::mem::take(&mut self.report)
    }

    /// Plans and runs one step.
    pub(crate) fn advance(&mut self, shared: &Shared) -> StepResult {
        self.poll_restart(shared);
        let clock = shared.clock;
        let planning = clock.now();
        let executor = match &mut self.executor {
            ExecutorState::Running(executor) => executor,
            ExecutorState::Restarting(_, since) => return StepResult::Restarting(*since),
            ExecutorState::Dead => return StepResult::Dead,
        };
        let Some(plan) = self.scheduler.plan(planning) else {
            self.last_end = None;
            return StepResult::Idle;
        };
        shared.pulse.busy(planning);
        self.begun = Some(planning);
        let planned = clock.now();
        self.report = StepReport { starts: self.scheduler.starts(), timed: None };
        let gap = self.last_end.map(|end| planned.since(end));
        let end = run(executor, &plan);
        let now = clock.now();
        let mut step = Box::new(Step::of(&self.scheduler, &plan));
        let is_failed = !matches!(end, StepEnd::Ran(_));
        let events = match end {
            StepEnd::Ran(outcome) => self.applied(&plan, outcome, planning, now),
            StepEnd::Failed(reason) => {
                tracing::warn!(step = plan.step.0, reason, "a step failed");
                self.failed(shared, |scheduler| scheduler.abort_step(plan.step, &reason, now))
            }
            StepEnd::Lost(reason) => {
                tracing::error!(step = plan.step.0, rows = plan.slots.len(), reason, "the executor is lost");
                shared.metrics.steps.engine_losses.inc();
                self.rest(now);
                if matches!(self.executor, ExecutorState::Dead) {
                    return StepResult::Dead;
                }
                self.failed(shared, |scheduler| scheduler.lose_step(plan.step, &reason, now))
            }
        };
        shared.pulse.step(now);
        let applied = clock.now();
        let scheduling = planned.since(planning) + applied.since(now);
        shared.metrics.steps.stepped(&plan, gap, scheduling, now.since(planned));
        step.timing = StepTiming { start: planned, took: now.since(planned), scheduling, gap, is_failed };
        StepResult::Stepped(events, now, Some(step))
    }

    /// The scheduler's model of the executor is fitted to the time from step to step, not to the executor's
    /// alone: planning, fan-out and whoever else has the processor are what a step costs as well.
    fn applied(&mut self, plan: &BatchPlan, outcome: StepOutcome, planning: Time, now: Time) -> Vec<Event> {
        self.failures = 0;
        let begun = self.last_end.replace(now).unwrap_or(planning);
        let elapsed = now.since(begun);
        let tokens = plan.prefill_tokens() + plan.decode_extra();
        let sequences = plan.decode_sequences() + plan.guesses();
        self.report.timed = Some(TimedStep { at: now, tokens, sequences, elapsed });
        self.scheduler.apply(&StepOutcome { elapsed, ..outcome }, now)
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
        let ExecutorState::Running(lost) = std::mem::replace(&mut self.executor, ExecutorState::Dead) else {
            return;
        };
        let Some(factory) = self.factory.clone() else {
            tracing::error!("nothing more will run: there is no way to make another executor");
            drop(drop_apart(lost));
            return;
        };
        let config = self.restart.clone();
        match PendingRestart::begin(lost, factory, config, self.failures, Arc::clone(&self.wake)) {
            Ok(pending) => self.executor = ExecutorState::Restarting(pending, now),
            Err(error) => tracing::error!(%error, "nothing more will run: no thread to make an executor on"),
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// Hears how it goes with the fresh executor, where one is made.
    fn poll_restart(&mut self, shared: &Shared) {
        while let ExecutorState::Restarting(pending, since) = &mut self.executor {
            match pending.poll() {
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
                    self.executor = ExecutorState::Running(executor);
                }
                Some(Report::GaveUp) => {
                    tracing::error!("nothing more will run: too many attempts in a row have failed");
                    self.executor = ExecutorState::Dead;
                }
            }
        }
    }
}

/// Runs a step; a panic loses the executor, whatever state that left it in.
fn run(executor: &mut Box<dyn Executor>, plan: &BatchPlan) -> StepEnd {
    match catch_unwind(AssertUnwindSafe(|| executor.step(plan))) {
        Ok(Ok(outcome)) => StepEnd::Ran(outcome),
        Ok(Err(ExecError::Lost(reason))) => StepEnd::Lost(reason),
        Ok(Err(error)) => StepEnd::Failed(error.to_string()),
        Err(panic) => StepEnd::Lost(format!("the executor panicked: {}", words(&*panic))),
    }
}
