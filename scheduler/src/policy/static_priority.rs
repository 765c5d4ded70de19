//! A priority that never changes, from a relQuery's token counts as submitted (the paper's baseline vLLM-SP,
//! RelServe, Eq. 6-7), prefill first. The weak reading takes raw token counts, and running rows give way to
//! better waiting ones.

use base::{Nanos, TokenCount};

use super::rules::{Rules, no_arrival, no_update};
use super::view::RelQueryView;
use crate::Scheduler;
use crate::breakdown::{PriorityBreakdown, PriorityParts};
use crate::choice::Choice;
use crate::priority::static_priority;

pub(super) const RULES: Rules = Rules {
    priority: linear,
    choose: Scheduler::prefill_first,
    on_arrival: no_arrival,
    on_plan: no_update,
    sends: None,
};

pub(super) const WEAK: Rules = Rules {
    priority: token_sum,
    choose: prefill_or_evict,
    on_arrival: no_arrival,
    on_plan: no_update,
    sends: None,
};

/// Eq. 6-7 with linear L1 and L2.
fn linear(relquery: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    let (prompt, output) = relquery.submitted();
    let priority = static_priority(relquery.cost(), TokenCount(prompt), TokenCount(output));
    (priority, breakdown(prompt, output))
}

/// Prompt and output tokens, each counted alike.
fn token_sum(relquery: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    let (prompt, output) = relquery.submitted();
    (Nanos(prompt.saturating_add(output)), breakdown(prompt, output))
}

fn breakdown(prompt: u64, output: u64) -> PriorityBreakdown {
    PriorityBreakdown::of(PriorityParts::Static { prompt, output })
}

/// Prefills; if nothing can be admitted, makes room for the first waiting row and decodes.
fn prefill_or_evict(scheduler: &mut Scheduler) -> Choice {
    scheduler.prefill_waiting().unwrap_or_else(|| {
        scheduler.evict_for_front();
        scheduler.decode_all()
    })
}

impl Scheduler {
    /// Running rows of strictly lower priority give way until the first waiting row fits. Strictly, and
    /// by the number alone: rows of equal priority would take turns in evicting each other.
    fn evict_for_front(&mut self) {
        let Some(front) = self.queues.waiting.first().copied() else { return };
        while let Some(last) = self.queues.running.last().copied() {
            if (last.class, last.priority) <= (front.class, front.priority) {
                return;
            }
            self.preempt(last.id);
            if !self.admission(true, self.prefill_budget()).rows.is_empty() {
                return;
            }
        }
    }
}
