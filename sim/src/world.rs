//! A scheduler, an executor and a virtual clock: what happens when, until nothing is left to do.

use std::collections::BTreeMap;

use base::{
    BatchPlan, Executor, RelQueryId, RequestId, RowError, StepId, StepOutcome, Submission, Time, WorkItem,
};
use scheduler::{Event, Refused, Scheduler};

use crate::record::{Finished, Iteration, Members};
use crate::step_faults::{StepEnd, StepFaults};
use crate::watch::{Mark, Unwatched, Watcher};

/// Something that happens at a time of the trace's choosing.
#[derive(Clone, Debug)]
enum Action {
    Submit(Box<Submission>),
    Cancel(RelQueryId),
    CancelRow(RelQueryId, u32),
    Extend(RelQueryId, Vec<WorkItem>),
}

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
    faults: StepFaults,
    checks: bool,
    is_stopped: bool,
    lists_members: bool,
    keeps_ends_alone: bool,
    iterations: Vec<Iteration>,
    events: Vec<(Time, Event)>,
    finished: BTreeMap<RelQueryId, Finished>,
    cancelled: BTreeMap<RelQueryId, Time>,
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
            faults: StepFaults::default(),
            checks: false,
            is_stopped: false,
            lists_members: false,
            keeps_ends_alone: false,
            iterations: Vec::new(),
            events: Vec::new(),
            finished: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    /// Checks the scheduler's invariants after every step from now on; slow.
    pub fn check_every_step(&mut self) {
        self.checks = true;
    }

    /// Lists from now on whose rows each iteration prefilled and decoded.
    pub fn list_members(&mut self) {
        self.lists_members = true;
    }

    /// Keeps from now on when relQueries end, and neither steps nor events: for replays that are many.
    pub fn keep_ends_alone(&mut self) {
        self.keeps_ends_alone = true;
    }

    /// Lets steps run into these faults.
    pub fn set_faults(&mut self, faults: StepFaults) {
        self.faults = faults;
    }

    /// Lets a relQuery arrive at the time it says.
    pub fn submit(&mut self, submission: Submission) {
        self.schedule(submission.arrival, Action::Submit(Box::new(submission)));
    }

    /// Lets a relQuery be cancelled.
    pub fn cancel_at(&mut self, at: Time, id: RelQueryId) {
        self.schedule(at, Action::Cancel(id));
    }

    /// Lets a row be cancelled.
    pub fn cancel_row_at(&mut self, at: Time, id: RelQueryId, row: u32) {
        self.schedule(at, Action::CancelRow(id, row));
    }

    /// Lets rows be added.
    pub fn extend_at(&mut self, at: Time, id: RelQueryId, items: Vec<WorkItem>) {
        self.schedule(at, Action::Extend(id, items));
    }

    /// Lets a step fail whole.
    pub fn fail_step(&mut self, step: StepId) {
        self.faults.fail_step(step);
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
    pub fn run_watched(&mut self, watch: &mut dyn Watcher) -> Result<(), String> {
        self.run_until(Time(u64::MAX), watch)
    }

    /// The same, until no step begins before `until` any more.
    pub fn run_until(&mut self, until: Time, watch: &mut dyn Watcher) -> Result<(), String> {
        while self.now < until {
            self.is_stopped = watch.is_over();
            if self.is_stopped {
                return Ok(());
            }
            self.let_happen(watch);
            watch.mark(Mark::PlanBegins);
            if let Some(plan) =
                self.scheduler.plan_in_phases(self.now, &mut |phase| watch.mark(Mark::Planned(phase)))
            {
                watch.planned(self.scheduler.last_decision());
                self.run_step(&plan, watch)?;
            } else if !self.scheduler.is_idle() {
                return Err("rows wait and nothing is planned".into());
            } else if let Some(((at, _), _)) =
                self.actions.first_key_value().filter(|((at, _), _)| *at < until)
            {
                self.now = *at;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether nothing is left to do and nothing is to come.
    pub fn is_over(&self) -> bool {
        self.scheduler.is_idle() && self.actions.is_empty()
    }

    /// Everything due by now.
    fn let_happen(&mut self, watch: &mut dyn Watcher) {
        if self.faults.outage_passed(self.now) {
            self.scheduler.forget_memory();
        }
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
                    if self.scheduler.cancel(id) {
                        self.cancelled.insert(id, self.now);
                    }
                }
                Action::CancelRow(id, row) => {
                    self.scheduler.cancel_row(id, row);
                }
                Action::Extend(id, items) => {
                    if let Err(refused) = self.scheduler.extend(id, items) {
                        self.refused.push((id, refused));
                    }
                }
            }
        }
        // A relQuery whose last row was called off ends even if nothing runs any more.
        if self.scheduler.is_idle() {
            let events = self.scheduler.drain_events(self.now);
            self.note(events);
        }
    }

    fn run_step(&mut self, plan: &BatchPlan, watch: &mut dyn Watcher) -> Result<(), String> {
        let start = self.now;
        let mut ran = None;
        let how = match self.faults.strikes(plan.step, start) {
            Some(how) => how,
            None => {
                let outcome = self.executor.step(plan).map_err(|error| error.to_string())?;
                let how = self.faults.end(start, outcome.elapsed);
                ran = Some(outcome);
                how
            }
        };
        let events = match (how, ran) {
            (StepEnd::Runs(end), Some(outcome)) => {
                self.now = end;
                self.apply(plan, start, outcome, watch)
            }
            (StepEnd::Runs(end) | StepEnd::Fails(end) | StepEnd::Lost(end), _) => {
                self.now = end;
                let reason = "a fault of the simulation";
                match how {
                    StepEnd::Lost(_) => self.scheduler.lose_step(plan.step, reason, end),
                    _ => self.scheduler.abort_step(plan.step, reason, end),
                }
            }
        };
        self.note(events);
        if self.checks { self.scheduler.check_invariants() } else { Ok(()) }
    }

    /// A step that ran: counted, and told to the scheduler.
    fn apply(
        &mut self,
        plan: &BatchPlan,
        start: Time,
        mut outcome: StepOutcome,
        watch: &mut dyn Watcher,
    ) -> Vec<Event> {
        outcome.elapsed = self.now.since(start);
        if self.faults.breaks_rows() {
            for row in &mut outcome.rows {
                let whose = self.scheduler.row_of(row.request);
                if whose.is_some_and(|(id, row)| self.faults.breaks(id, row)) {
                    row.result = Err(RowError::NotANumber);
                }
            }
        }
        if !self.keeps_ends_alone {
            self.iterations.push(Iteration {
                start,
                duration: outcome.elapsed,
                uncached: plan.prefill_tokens(),
                decoding: plan.decode_sequences(),
                members: self.lists_members.then(|| self.members(plan)),
            });
        }
        watch.mark(Mark::ApplyBegins);
        let events = self.scheduler.apply(&outcome, self.now);
        watch.mark(Mark::Applied);
        events
    }

    /// Whose rows finish their prompt in this step, and whose decode.
    fn members(&self, plan: &BatchPlan) -> Members {
        let relquery = |request: RequestId| self.scheduler.row_of(request).map(|(id, _)| id);
        let list = |is_prefill: bool| {
            let slots =
                plan.slots.iter().filter(|slot| slot.is_prefill == is_prefill && slot.sample.is_some());
            let mut ids: Vec<RelQueryId> = slots.filter_map(|slot| relquery(slot.request)).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        Members { prefilled: list(true), decoded: list(false) }
    }

    /// Keeps what the scheduler said.
    fn note(&mut self, events: Vec<Event>) {
        for event in events {
            if let Event::RelQueryDone { relquery, periods, usage } = event {
                self.finished.insert(relquery, Finished { relquery, at: self.now, periods, usage });
            }
            if !self.keeps_ends_alone {
                self.events.push((self.now, event));
            }
        }
    }

    /// Whether the watcher ended the run before it was done.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
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

    /// The relQueries that were called off, and when.
    pub fn cancelled(&self) -> &BTreeMap<RelQueryId, Time> {
        &self.cancelled
    }

    /// The relQueries and late rows that were not taken, and why.
    pub fn refused(&self) -> &[(RelQueryId, Refused)] {
        &self.refused
    }
}
