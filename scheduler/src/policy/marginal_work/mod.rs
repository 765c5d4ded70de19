//! Policy `marginal-work`: what a product deploys after the study of the published policies.
//!
//! Three things make it better than RelServe's own. Everything that runs decodes in every step and
//! prompts ride along (`step`), so nobody waits for a phase to end. RelQueries are ordered by the work
//! they still add to a shared machine (`work`), with output lengths learned from rows that ended
//! (`lengths`) and shared beginnings counted once (`sharing`). And age counts (`age`), so that nothing
//! starves. Each part can be switched off.

pub mod age;
pub mod config;
pub(crate) mod instants;
mod isolate;
pub mod lengths;
pub(crate) mod sharing;
mod step;
mod timers;
pub mod work;

use base::{Nanos, RelQueryId, SpanKind, Time, TokenId};

pub use config::{Gain, MarginalWorkConfig, Steps};

use super::rules::Rules;
use crate::Scheduler;
use crate::breakdown::{PriorityBreakdown, PriorityParts};
use crate::cache_view::CacheView;
use crate::miss_ratio::MissRatio;
use crate::priority::estimate;
use crate::relquery::RelQuery;
use crate::remaining::{miss_ratio, remaining_batches};
use age::aged;
use lengths::Expected;
use work::{Capacity, Work, marginal_work};

pub(super) const RULES: Rules = Rules {
    priority: Scheduler::marginal_priority,
    choose: Scheduler::marginal_step,
    on_arrival: Scheduler::prepare_rows,
    on_plan: update_priorities,
};

/// What has come with time takes effect, then what runs gets its priority anew.
fn update_priorities(scheduler: &mut Scheduler, now: Time) {
    scheduler.run_timers(now);
    scheduler.update_running();
}

impl Scheduler {
    /// Orders and counts rows that were just added.
    fn prepare_rows(&mut self, id: RelQueryId) {
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

    /// The number that orders relQueries: the work that is left, and since when it waits.
    fn marginal_priority(&mut self, id: RelQueryId) -> (Nanos, PriorityBreakdown) {
        let expected = self.expected(id);
        let Some(relquery) = self.relqueries.get_mut(&id) else { return Default::default() };
        if relquery.is_promoted {
            return (Nanos(0), PriorityBreakdown { parts: PriorityParts::First, is_aged: false });
        }
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        let settings = &self.config.marginal_work;
        let (work, parts) = if settings.marginal_key {
            let prompt = fresh_prompt(&view, relquery, settings.exact_sharing, self.config.sample_rows);
            let work = remaining_work(relquery, prompt, expected);
            let capacity = Capacity {
                kv_tokens: self.config.kv_tokens(),
                sequences: u64::from(self.config.sequences_max),
            };
            let work = marginal_work(&self.estimates.cost, &work, capacity);
            (work.total(), PriorityParts::Work(work))
        } else {
            let ratio = miss_ratio(&view, relquery, self.config.sample_rows as usize);
            let alone =
                estimate(&self.estimates.cost, &remaining_batches(relquery, ratio, &self.config), ratio);
            (alone.total(), PriorityParts::Estimate(alone))
        };
        let is_aged = settings.age_half_ms.is_some();
        (aged(work, relquery.arrival, settings.age_half_ms), PriorityBreakdown { parts, is_aged })
    }

    /// How long a row of the relQuery is expected to be.
    fn expected(&self, id: RelQueryId) -> Expected {
        let Some(relquery) = self.relqueries.get(&id) else { return Expected::limit(0) };
        if self.config.marginal_work.learned_lengths {
            Expected::of(relquery.output_max, relquery.finished, self.estimates.lengths.of(relquery.kind))
        } else {
            Expected::limit(relquery.output_max)
        }
    }
}

/// Prompt tokens that the never admitted rows will compute.
fn fresh_prompt(view: &CacheView<'_>, relquery: &mut RelQuery, exact: bool, samples: u32) -> u64 {
    let scope = relquery.scope;
    let tokens = relquery.fresh_tokens();
    let total = tokens[tokens.len() - 1] - tokens[0];
    let novel = relquery.fresh_novel();
    if !exact || novel.len() < 2 {
        let ratio = miss_ratio(view, relquery, samples as usize);
        return (u128::from(total) * u128::from(ratio.missed()) / u128::from(ratio.total())) as u64;
    }
    // The cache is asked for the first one; it supplies the others with what they share with it.
    let (first, all) = (novel[1] - novel[0], novel[novel.len() - 1] - novel[0]);
    let index = relquery.fresh_head().expect("there is one");
    let uncached = view.uncached(scope, relquery.row_mut(index));
    all - first + u64::from(uncached).min(first)
}

/// The work that is left of a relQuery of which never admitted rows will compute `prompt` tokens.
fn remaining_work(relquery: &RelQuery, prompt: u64, expected: Expected) -> Work {
    let mut work = Work { prompt, ..Work::default() };
    let rows = relquery.fresh_len() as u64;
    let output = expected.remaining(0, relquery.output_max);
    work.output += rows * output;
    work.held_output += u128::from(output) * (u128::from(prompt) + u128::from(rows * output / 2));
    for index in relquery.requeued.iter().chain(&relquery.running) {
        let row = relquery.row(*index);
        let generated = row.generated.len() as u64;
        let output = expected.remaining(generated, row.output_max());
        // A waiting row has computed nothing.
        let missing = if row.is_running() { 0 } else { u64::from(row.missing()) };
        work.prompt += missing;
        work.output += output;
        work.held_output += u128::from(output) * u128::from(row.private_tokens() + generated + output / 2);
    }
    work
}
