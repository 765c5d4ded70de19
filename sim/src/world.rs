//! A scheduler, an executor and a virtual clock: what happens when, until nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};

use base::{Executor, Nanos, Periods, RelQueryId, StepId, Submission, Time};
use scheduler::{Event, Refused, Scheduler, Usage};

use crate::summary::Iteration;
use crate::watch::{Mark, Unwatched, Watch};

/// Something that happens at a time of the trace's choosing.
#[derive(Clone, Debug)]
enum Action {
    Submit(Box<Submission>),
    Cancel(RelQueryId),
}

/// How a relQuery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// When.
    pub at: Time,
    /// Its latency in three parts.
    pub periods: Periods,
    /// Its tokens.
    pub usage: Usage,
}

/// How long a step takes that fails.
const FAILURE: Nanos = Nanos(1_000_000);

/// The world.
#[derive(Debug)]
pub struct World<E> {
    /// The scheduler under test.
    pub scheduler: Scheduler,
    executor: E,
    now: Time,
    /// What is to come, by time and then in the order it was scheduled.
    actions: BTreeMap<(Time, u64), Action>,
    scheduled: u64,
    failing: BTreeSet<StepId>,
    checks: bool,
    iterations: Vec<Iteration>,
    events: Vec<(Time, Event)>,
    finished: BTreeMap<RelQueryId, Finished>,
    refused: Vec<(RelQueryId, Refused)>,
}

impl<E: Executor> World<E> {
    /// A world at time zero in which nothing happens yet.
    pub fn new(scheduler: Scheduler, executor: E) -> Self {
        Self {
            scheduler,
            executor,
            now: Time(0),
            actions: BTreeMap::new(),
            scheduled: 0,
            failing: BTreeSet::new(),
            checks: false,
            iterations: Vec::new(),
            events: Vec::new(),
            finished: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Checks the scheduler's invariants after every step from now on; slow.
    pub fn check_every_step(&mut self) {
        self.checks = true;
    }

    /// Lets a relQuery arrive at the time it says.
    pub fn submit(&mut self, submission: Submission) {
        self.schedule(submission.arrival, Action::Submit(Box::new(submission)));
    }

    /// Lets a relQuery be cancelled.
    pub fn cancel_at(&mut self, at: Time, id: RelQueryId) {
        self.schedule(at, Action::Cancel(id));
    }

    /// Lets a step fail whole.
    pub fn fail_step(&mut self, step: StepId) {
        self.failing.insert(step);
    }

    fn schedule(&mut self, at: Time, action: Action) {
        self.actions.insert((at, self.scheduled), action);
        self.scheduled += 1;
    }

    /// Runs until nothing is left to do; an error is a broken promise of the scheduler.
    pub fn run_until_idle(&mut self) -> Result<(), String> {
        self.run_watched(&mut Unwatched)
    }

    /// [`run_until_idle`](Self::run_until_idle) before a watcher.
    pub fn run_watched(&mut self, watch: &mut dyn Watch) -> Result<(), String> {
        loop {
            self.let_happen(watch);
            watch.mark(Mark::PlanBegins);
            if let Some(plan) =
                self.scheduler.plan_in_phases(self.now, &mut |phase| watch.mark(Mark::Planned(phase)))
            {
                self.run_step(&plan, watch)?;
            } else if !self.scheduler.is_idle() {
                return Err("rows wait and nothing is planned".into());
            } else if let Some(((at, _), _)) = self.actions.first_key_value() {
                self.now = *at;
            } else {
                return Ok(());
            }
        }
    }

    /// Everything due by now.
    fn let_happen(&mut self, watch: &mut dyn Watch) {
        while let Some(entry) = self.actions.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Action::Submit(submission) => {
                    let id = submission.id;
                    watch.mark(Mark::SubmitBegins);
                    let taken = self.scheduler.submit(*submission);
                    watch.mark(Mark::Submitted);
                    if let Err(refused) = taken {
                        self.refused.push((id, refused));
                    }
                }
                Action::Cancel(id) => {
                    self.scheduler.cancel(id);
                }
            }
        }
    }

    fn run_step(&mut self, plan: &base::BatchPlan, watch: &mut dyn Watch) -> Result<(), String> {
        let start = self.now;
        let events = if self.failing.remove(&plan.step) {
            self.now = self.now + FAILURE;
            self.scheduler.abort_step(plan.step, "a fault of the simulation", self.now)
        } else {
            let outcome = self.executor.step(plan).map_err(|error| error.to_string())?;
            self.now = self.now + outcome.elapsed;
            self.iterations.push(Iteration {
                start,
                duration: outcome.elapsed,
                uncached: plan.prefill_tokens(),
                decoding: plan.decode_sequences(),
            });
            watch.mark(Mark::ApplyBegins);
            let events = self.scheduler.apply(&outcome, self.now);
            watch.mark(Mark::Applied);
            events
        };
        for event in events {
            if let Event::RelQueryDone { relquery, periods, usage } = event {
                self.finished.insert(relquery, Finished { at: self.now, periods, usage });
            }
            self.events.push((self.now, event));
        }
        if self.checks { self.scheduler.check_invariants() } else { Ok(()) }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The steps that ran.
    pub fn iterations(&self) -> &[Iteration] {
        &self.iterations
    }

    /// Everything the scheduler said, and when.
    pub fn events(&self) -> &[(Time, Event)] {
        &self.events
    }

    /// The relQueries that are done.
    pub fn finished(&self) -> &BTreeMap<RelQueryId, Finished> {
        &self.finished
    }

    /// The relQueries that were not taken, and why.
    pub fn refused(&self) -> &[(RelQueryId, Refused)] {
        &self.refused
    }
}
