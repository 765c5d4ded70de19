//! Planning a step: priorities are brought up to date, a choice is made and carried out.
//!
//! It must not know which policy it serves: it asks [`Policy::rules`](crate::Policy::rules).

use base::{BatchPlan, Time};

use crate::Scheduler;
use crate::decision::{Decision, Phase};

impl Scheduler {
    /// Decides the next step, or `None` when there is nothing to do or a step is in flight. Granted
    /// blocks and published prefixes are final unless the step is aborted.
    pub fn plan(&mut self, now: Time) -> Option<BatchPlan> {
        self.plan_in_phases(now, &mut |_| ())
    }

    /// [`plan`](Self::plan), telling `over` when each of its phases is over: the scheduler reads no clock,
    /// but its owner may, and so learns what each phase costs (RelServe, Table 6).
    pub fn plan_in_phases(&mut self, now: Time, over: &mut dyn FnMut(Phase)) -> Option<BatchPlan> {
        if self.steps.flight.is_some() || self.queues.rows == 0 {
            return None;
        }
        self.telemetry.decision = Decision { now, ..Decision::default() };
        self.on_plan(now);
        over(Phase::Updated);
        self.telemetry.decision.front = self.queues.waiting.first().copied();
        self.telemetry.decision.first_running = self.queues.running.first().copied();
        self.telemetry.decision.running_rows = self.queues.running_rows;
        self.telemetry.decision.running_relqueries = self.queues.running.len() as u32;
        loop {
            // Of a choice of which no step came nothing is told.
            self.telemetry.decision.head_start = None;
            let choice = self.trial().or_else(|| self.first_rows()).or_else(|| self.complete_cut_prompts());
            let choice = choice.unwrap_or_else(|| (self.config.policy.rules().choose)(self));
            self.telemetry.decision.reason = choice.reason;
            self.note_touched(&choice.prefill);
            over(Phase::Chosen);
            let plan = self.carry_out(choice, now);
            over(Phase::Granted);
            // A row that fits the pool must be able to run: where nothing else can be given up, pins are.
            if plan.is_some() || !self.release_oldest_pin() {
                return plan;
            }
        }
    }
}
