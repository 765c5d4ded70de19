//! RelServe: the priority of a relQuery is what is left of it (Eq. 10), brought up to date before every step
//! (the dynamic priority updater, section 4.2), and the batch arranger weighs prefill against decode where it
//! matters (section 4.3). Two ablations settle that case without weighing. One that waits too long goes first
//! (Eq. 13).

use base::{Nanos, RelQueryId, ServiceClass, Time, TokenCount};

use super::rules::Rules;
use super::view::RelQueryView;
use crate::Scheduler;
use crate::admit::Admission;
use crate::arrange::{Candidate, Delta, loss, running_loss, waiting_gain};
use crate::breakdown::{PriorityBreakdown, PriorityParts};
use crate::choice::Choice;
use crate::decision::{Loss, Reason, Trade};
use crate::paper_variant::PriorityReading;
use crate::priority::estimate;
use crate::starvation::starves_at;
use crate::truncated::Truncated;

pub(super) const RULES: Rules = Rules {
    priority,
    choose: |scheduler| scheduler.arranged(InTransition::Weighed),
    on_arrival: Scheduler::set_starvation_timer,
    on_plan: update_priorities,
    sends: Some(|transition| transition.lowers_the_mean()),
};

pub(super) const PREFILL_FIRST: Rules =
    Rules { choose: |scheduler| scheduler.arranged(InTransition::Prefill), sends: None, ..RULES };

pub(super) const DECODE_FIRST: Rules =
    Rules { choose: |scheduler| scheduler.arranged(InTransition::Decode), sends: Some(|_| false), ..RULES };

/// What runs in the transitional case: the first waiting relQuery goes behind one that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InTransition {
    /// What lowers the mean latency (Eq. 15-17).
    Weighed,
    Prefill,
    Decode,
}

/// Eq. 10 from Eq. 11 and Algorithm 1; zero once it starves (Eq. 13).
fn priority(relquery: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    let of = PriorityBreakdown::of;
    if relquery.is_promoted() {
        return (Nanos(0), of(PriorityParts::First));
    }
    let ratio = relquery.miss_ratio();
    let alone = estimate(relquery.cost(), &relquery.batches(ratio), ratio);
    (alone.total(), of(PriorityParts::Estimate(alone)))
}

/// What runs gets its priority anew (Eq. 8); then the ones that waited too long go first (Eq. 13).
fn update_priorities(scheduler: &mut Scheduler, now: Time) {
    if scheduler.config.paper_variant.priorities == PriorityReading::Updated {
        scheduler.update_running();
    }
    scheduler.promote_starving(now);
}

impl Scheduler {
    /// The adaptive batch arranger (RelServe, section 4.3, Eq. 14, on full keys; DESIGN 9).
    fn arranged(&mut self, transition: InTransition) -> Choice {
        let Some(front) = self.first_waiting(1).first().copied() else { return self.decode_all() };
        let first_running = self.queues.running.first().copied();
        let is_transition = first_running.is_some_and(|first| front > first);
        // Bulk rows have no step of their own while somebody waits for others.
        if is_transition && front.class == ServiceClass::Bulk && self.bulk_part().is_some() {
            return self.decode_because(Reason::TransitionDecode);
        }
        if is_transition && transition == InTransition::Decode {
            return self.decode_because(Reason::TransitionDecode);
        }
        let admission = self.admission(true, self.prefill_budget());
        if admission.rows.is_empty() {
            return self.decode_all();
        }
        let reason = match first_running {
            None => Reason::NothingRuns,
            Some(first) if first.id == front.id => Reason::Internal,
            Some(_) if !is_transition => Reason::Overtakes,
            Some(_) if transition == InTransition::Prefill => Reason::TransitionPrefill,
            Some(_) => self.weigh(front.id, &admission),
        };
        if reason == Reason::TransitionDecode {
            return self.decode_because(reason);
        }
        Choice { reason, prefill: admission.rows, decodes: false }
    }

    /// Eq. 15-17 for the candidate.
    fn weigh(&mut self, front: RelQueryId, admission: &Admission) -> Reason {
        let output_max = |id: RelQueryId| self.relqueries.get(&id).map_or(0, |relquery| relquery.output_max);
        let candidate = Candidate {
            uncached: TokenCount(admission.tokens),
            rows: admission.rows.len() as u64,
            output_max: output_max(front),
        };
        let running = || self.queues.running.iter().map(|key| output_max(key.id));
        let running_max = running().max().unwrap_or(0);
        let delta = Delta {
            running: running_loss(&self.estimates.cost, candidate, running()).0,
            waiting: waiting_gain(
                &self.estimates.cost,
                candidate,
                self.queues.waiting.len() as u64,
                running_max,
            )
            .0,
            reading: self.config.paper_variant.delta,
        };
        let losses = Truncated::of(self.queues.running.iter(), |key| {
            let (prefill, sequences) = loss(&self.estimates.cost, candidate, output_max(key.id));
            Some(Loss { id: key.id, prefill, sequences })
        });
        let steps = candidate.output_max.min(running_max);
        self.telemetry.decision.delta = Some(delta);
        self.telemetry.decision.trade =
            Some(Trade { losses, waiting: self.queues.waiting.len() as u64, steps });
        if delta.favours_prefill() { Reason::TransitionPrefill } else { Reason::TransitionDecode }
    }

    /// Priority zero, from now on, for each relQuery that starves (Eq. 13).
    fn promote_starving(&mut self, now: Time) {
        while let Some((starves_at, id)) = self.timers.take_if(|at| at < now) {
            let Some(relquery) = self.relqueries.get_mut(&id) else { continue };
            // One that started in time has stopped waiting, as Eq. 13 counts it.
            if relquery.started.is_none_or(|started| started > starves_at) && relquery.waiting_len() > 0 {
                relquery.is_promoted = true;
                self.update_priority(id);
            }
        }
    }

    /// Sets the time from which the relQuery is starving, as the configuration says.
    fn set_starvation_timer(&mut self, id: RelQueryId) {
        let Some(unit) = self.config.unit_waiting_ms_max else { return };
        let Some(relquery) = self.relqueries.get(&id) else { return };
        let waits = relquery.started.is_none();
        let at = waits.then(|| starves_at(relquery.arrival, unit, relquery.rows_submitted));
        self.timers.set(id, at);
    }
}
