//! Policy `marginal-work`: what a product deploys after the study of the published policies.
//!
//! Three things make it better than RelServe's own. Everything that runs decodes in every step and
//! prompts ride along (`step`), so nobody waits for a phase to end. RelQueries are ordered by the work
//! they still add to a shared machine (`work`), with output lengths learned from rows that ended
//! (`lengths`) and shared beginnings counted once (`sharing`). And age counts (`age`), so that nothing
//! starves. Each part can be switched off.

pub mod age;
pub mod config;
pub(crate) mod first_rows;
pub(crate) mod instants;
mod isolate;
pub(crate) mod joins;
pub mod lengths;
pub(crate) mod sharing;
mod step;
mod timers;
pub mod work;

use base::{Nanos, RelQueryId, SpanKind, Time, TokenId};

pub use config::{Gain, MarginalWorkConfig, Steps};

use super::rules::Rules;
use super::view::RelQueryView;
use crate::Scheduler;
use crate::breakdown::{PriorityBreakdown, PriorityParts};
use crate::miss_ratio::MissRatio;
use crate::priority::estimate;
use crate::remaining::{expected, remaining_batches};
use crate::tail::OpenWork;
use age::aged;
use lengths::Expected;
use work::marginal_work;

pub(super) const RULES: Rules = Rules {
    priority,
    choose: Scheduler::marginal_step,
    on_arrival: Scheduler::prepare_rows,
    on_plan: update_priorities,
    sends: Some(|transition| transition.is_worth_its_tokens()),
};

/// The number that orders relQueries: the work that is left, and since when it waits.
fn priority(relquery: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    if relquery.is_promoted() {
        return (Nanos(0), PriorityBreakdown::of(PriorityParts::First));
    }
    let (left, parts) = if relquery.settings().marginal_key {
        let work = relquery.work();
        let work = marginal_work(relquery.cost(), &work, relquery.capacity());
        (work.total(), PriorityParts::Work(work))
    } else {
        let ratio = relquery.miss_ratio();
        let alone = estimate(relquery.cost(), &relquery.batches(ratio), ratio);
        (alone.total(), PriorityParts::Estimate(alone))
    };
    let half = relquery.half_life();
    let breakdown = PriorityBreakdown { is_aged: half.is_some(), ..PriorityBreakdown::of(parts) };
    (aged(left, relquery.arrival(), half), breakdown)
}

/// What has come with time takes effect, then what runs gets its priority anew.
fn update_priorities(scheduler: &mut Scheduler, now: Time) {
    scheduler.run_timers(now);
    scheduler.update_running();
    scheduler.bound_tail(now);
}

impl Scheduler {
    /// Orders and counts rows that were just added.
    pub(crate) fn prepare_rows(&mut self, id: RelQueryId) {
        let was_idle = self.relqueries.len() == 1;
        self.estimates.arrived = if was_idle { 1 } else { self.estimates.arrived + 1 };
        if self.relqueries.len() == 2 {
            self.end_first_rows();
        }
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        relquery.share(self.config.marginal_work.grouped_rows, self.config.block_tokens);
        let Some(first) = relquery.fresh_head() else { return };
        let item = &relquery.row(first).item;
        let template = item.spans.first().filter(|span| span.kind == SpanKind::Template);
        let template = template.map_or(0, |span| span.tokens.0 as usize);
        let key = self.kv.hasher.block(relquery.scope, None, &item.prompt[..template]);
        let limit = TokenId(relquery.output_max as u32);
        relquery.kind = self.kv.hasher.block(relquery.scope, Some(key), &[limit]).0;
        let batches = remaining_batches(relquery, MissRatio::ALL, &self.config);
        let alone = estimate(&self.estimates.cost, &batches, MissRatio::ALL).total();
        self.set_timer(id, alone);
    }

    /// Lets what is late go first.
    fn bound_tail(&mut self, now: Time) {
        let permille = self.config.marginal_work.tail_permille_max;
        if permille == 0 || !self.estimates.tail.is_due(now) {
            return;
        }
        let open = self.relqueries.iter().map(|(id, relquery)| OpenWork {
            id: *id,
            class: relquery.class,
            arrival: relquery.arrival,
            work: relquery.breakdown.work(),
            has_waiting: relquery.waiting_len() > 0,
        });
        let open: Vec<OpenWork> = open.collect();
        if self.estimates.tail.look(now, permille, &open, &self.estimates.cost) {
            for one in open {
                self.place(one.id);
            }
        }
    }

    /// How long a row of the relQuery is expected to be.
    fn expected(&self, id: RelQueryId) -> Expected {
        let Some(relquery) = self.relqueries.get(&id) else { return Expected::limit(0) };
        expected(relquery, &self.config.marginal_work, &self.estimates.lengths)
    }
}
