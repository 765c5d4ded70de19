//! What a policy's choice is built from: offers of waiting rows, steps of one phase and mixed ones,
//! preemption.
//!
//! It must not know which policy it serves: `policy` has a file for each.

use base::{RelQueryId, TokenCount};

use crate::Scheduler;
use crate::admit::{Admission, Admitted, Budget, OfferedRow};
use crate::cache_view::CacheView;
use crate::choice::{Choice, Offer};
use crate::decision::Reason;
use crate::row::{Row, RowState};

impl Scheduler {
    /// vLLM's rule: prefill whatever can be admitted, across relQueries; else decode.
    pub(crate) fn prefill_first(&mut self) -> Choice {
        self.prefill_waiting().unwrap_or_else(|| self.decode_all())
    }

    /// Prefills whatever can be admitted, across relQueries; `None` where nothing can.
    pub(crate) fn prefill_waiting(&mut self) -> Option<Choice> {
        let admission = self.admission(false, self.prefill_budget());
        let can_admit = !admission.rows.is_empty();
        can_admit.then_some(Choice { reason: Reason::PrefillFirst, prefill: admission.rows, decodes: false })
    }

    /// Sarathi's rule: everything that runs decodes; what is left of `tokens` goes to prompts, first to
    /// those that are cut, then to the rows of `offers`. These are asked for once the decodes have their
    /// room: a row preempted for it waits before those that come after it.
    pub(crate) fn mixed(&mut self, tokens: u64, offers: impl FnOnce(&Self) -> Vec<Offer>) -> Choice {
        self.make_decode_room();
        let offers = offers(self);
        let mut left = tokens.saturating_sub(self.decode_tokens());
        let mut prefill: Vec<Admitted> = Vec::new();
        let free = u64::try_from(self.estimates.cost.mixed_hidden).unwrap_or(0)
            / self.estimates.cost.prefill_per_token.0.max(1);
        let bulk = self.bulk_part();
        let free = free.saturating_add(bulk.map_or(0, |bulk| bulk.tokens));
        for (relquery, index, remaining) in self.partial_prefills() {
            let mut most = left;
            if bulk.is_some() && self.is_bulk(relquery) {
                let taken: u64 = prefill.iter().map(|partial| u64::from(partial.take)).sum();
                most = left.min(free.saturating_sub(taken));
            }
            let take = remaining.min(u32::try_from(most).unwrap_or(u32::MAX));
            if take > 0 {
                prefill.push(Admitted { relquery, index, take });
                left -= u64::from(take);
            }
        }
        let budget = self.prefill_budget();
        let taken: u64 = prefill.iter().map(|partial| u64::from(partial.take)).sum();
        let free_blocks = match self.queues.running_rows {
            0 => self.kv.ledger.available(),
            _ => budget.free_blocks.saturating_sub(self.decode_need()),
        };
        let budget =
            Budget { tokens: left, cuts: true, free_blocks, free: free.saturating_sub(taken), ..budget };
        let mut admission = Admission::new(budget);
        self.promise(&mut admission, &prefill);
        prefill.extend(self.offer_waiting(admission, &offers).rows);
        let reason = if prefill.is_empty() { Reason::NoRoom } else { Reason::Mixed };
        Choice { reason, prefill, decodes: true }
    }

    /// Whether a prompt that is cut is computed on: by the policy, or by [`Self::complete_cut_prompts`].
    pub(crate) fn continues_prompts(&self) -> bool {
        self.config.policy.cuts_prompts() || self.serves_auto
    }

    /// Of prompts that are cut, as much as one step may compute.
    pub(crate) fn cut_prompts(&self) -> Vec<Admitted> {
        let mut left = self.config.step_tokens_max.0;
        let mut partials = Vec::new();
        for (relquery, index, missing) in self.partial_prefills() {
            let take = missing.min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= u64::from(take);
            partials.extend((take > 0).then_some(Admitted { relquery, index, take }));
        }
        partials
    }

    /// Under `auto`, where first rows' steps have cut a prompt and the policy in force takes prompts whole: the rest of
    /// it, and waiting prompts of the first relQuery beside it, as many as fit. `None` where no prompt is cut.
    pub(crate) fn complete_cut_prompts(&mut self) -> Option<Choice> {
        if !self.serves_auto || self.config.policy.cuts_prompts() {
            return None;
        }
        let mut prefill = self.cut_prompts();
        if prefill.is_empty() {
            return None;
        }
        let taken: u64 = prefill.iter().map(|partial| u64::from(partial.take)).sum();
        let left = self.config.step_tokens_max.0.saturating_sub(taken);
        let mut admission = Admission::new(Budget { tokens: left, ..self.prefill_budget() });
        self.promise(&mut admission, &prefill);
        let admission = self.offer_waiting(admission, &self.offers(true));
        // The first row of an admission is taken even if it is larger: here it has no step to itself.
        if admission.tokens <= left {
            prefill.extend(admission.rows);
        }
        Some(Choice { reason: Reason::PrefillFirst, prefill, decodes: false })
    }

    /// Decodes because nothing can be prefilled. If nothing runs either, the memory an admission
    /// leaves free is given up: a row that fits the pool must be able to run.
    pub(crate) fn decode_all(&mut self) -> Choice {
        if self.queues.waiting.is_empty() {
            return self.decode_because(Reason::NothingWaits);
        }
        if self.queues.running_rows > 0 {
            return self.decode_because(Reason::NoRoom);
        }
        let budget = Budget { free_blocks: self.kv.ledger.available(), ..self.prefill_budget() };
        let admission = self.admission(true, budget);
        Choice { reason: Reason::NothingRuns, prefill: admission.rows, decodes: false }
    }

    pub(crate) fn decode_because(&mut self, reason: Reason) -> Choice {
        self.make_decode_room();
        Choice { reason, prefill: Vec::new(), decodes: true }
    }

    /// Rows that may still be admitted: no step takes rows of more relQueries than these.
    pub(crate) fn free_sequences(&self) -> u32 {
        self.config.sequences_max.saturating_sub(self.queues.running_rows)
    }

    /// What a prefill step may use.
    pub(crate) fn prefill_budget(&self) -> Budget {
        Budget {
            free_sequences: self.free_sequences(),
            tokens: self.config.step_tokens_max.0,
            free_blocks: self.kv.ledger.available().saturating_sub(self.config.watermark_blocks()),
            cuts: false,
            free: 0,
        }
    }

    /// Offers waiting rows in key order until one does not fit; `alone`: of the first relQuery only.
    pub(crate) fn admission(&mut self, alone: bool, budget: Budget) -> Admission {
        self.offer_waiting(Admission::new(budget), &self.offers(alone))
    }

    /// Waiting relQueries in key order: as many as there are free sequences, for each takes one or ends the
    /// offers.
    pub(crate) fn offers(&self, alone: bool) -> Vec<Offer> {
        let most = if alone { 1 } else { self.free_sequences() as usize };
        self.first_waiting(most).iter().map(|key| Offer::unlimited(key.id)).collect()
    }

    /// What half-prefilled rows will have computed by the end of the step can be hit in it.
    pub(crate) fn promise(&mut self, admission: &mut Admission, partials: &[Admitted]) {
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        for partial in partials {
            let Some(relquery) = self.relqueries.get_mut(&partial.relquery) else { continue };
            let scope = relquery.scope;
            let row = relquery.row_mut(partial.index);
            // What it stands on may be gone with a row that failed: then nobody reaches what it adds.
            if !row.parts.is_empty() || row.scores_prompt() {
                continue; // Others find what the one publishes when they are drafted; the other publishes nothing.
            }
            let resident = view.resident(scope, row, 0, |_| ());
            if resident < view.hittable(row, 0).min(row.computed / self.config.block_tokens) {
                continue;
            }
            let content = if self.config.publish_generated { row.total() } else { row.prompt_len() };
            let filled = content.min(row.computed + partial.take) / self.config.block_tokens;
            row.make_keys(&self.kv.hasher, scope, (0, filled), self.config.block_tokens);
            admission.promise(&row.own.keys[..filled as usize]);
        }
    }

    /// Offers the rows of waiting relQueries in order until one does not fit.
    pub(crate) fn offer_waiting(&mut self, mut admission: Admission, offers: &[Offer]) -> Admission {
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        'relqueries: for Offer { id, row_tokens_max } in offers {
            let Some(relquery) = self.relqueries.get_mut(id) else { continue };
            let scope = relquery.scope;
            for position in 0..relquery.waiting_len() {
                let Some(index) = relquery.waiting_at(position) else { break };
                let (row, tokens_max) = (relquery.row_mut(index), *row_tokens_max);
                let offered = OfferedRow { relquery: *id, scope, index, row, tokens_max };
                if !admission.offer(&view, offered) {
                    break 'relqueries;
                }
            }
        }
        self.telemetry.decision.candidate_tokens = Some(TokenCount(admission.tokens));
        self.telemetry.decision.candidate_rows = admission.rows.len() as u32;
        let relqueries = admission.rows.chunk_by(|a, b| a.relquery == b.relquery).count();
        self.telemetry.decision.candidate_relqueries = relqueries as u32;
        admission
    }

    /// Rows that hold KV, in key and row order.
    pub(crate) fn running_rows(&self) -> impl Iterator<Item = (RelQueryId, u32)> + '_ {
        self.queues.running.iter().flat_map(|key| {
            let relquery = &self.relqueries[&key.id];
            relquery.running.iter().map(|index| (key.id, *index))
        })
    }

    /// The same, each with its row: a relQuery is looked up once for all its rows.
    fn running_with_rows(&self) -> impl Iterator<Item = (RelQueryId, u32, &Row)> + '_ {
        self.queues.running.iter().flat_map(|key| {
            let relquery = &self.relqueries[&key.id];
            relquery.running.iter().map(|index| (key.id, *index, relquery.row(*index)))
        })
    }

    /// Rows whose prompt is partly computed, and how many tokens are missing.
    pub(crate) fn partial_prefills(&self) -> Vec<(RelQueryId, u32, u32)> {
        self.running_with_rows()
            .filter(|(_, _, row)| row.state == RowState::Prefilling)
            .map(|(id, index, row)| (id, index, row.missing()))
            .collect()
    }

    /// Rows that a decode extends: all whose prompt is computed, or those of them that are tried; of bulk
    /// rows as many as may while others are here.
    pub(crate) fn decoding_rows(&self) -> Vec<(RelQueryId, u32)> {
        let tried: Option<Vec<_>> = (!self.isolation.is_empty()).then(|| self.isolation.group().collect());
        let bulk = self.bulk_part().filter(|_| tried.is_none());
        let mut left = bulk.map_or(usize::MAX, |bulk| bulk.rows);
        let mut may = |id| {
            let counts = bulk.is_some() && self.is_bulk(id);
            let may = !counts || left > 0;
            left -= usize::from(counts && may);
            may
        };
        self.running_with_rows()
            .filter(|(_, _, row)| row.state == RowState::Running)
            .map(|(id, index, _)| (id, index))
            .filter(|row| tried.as_ref().is_none_or(|tried| tried.contains(row)))
            .filter(|(id, _)| may(*id))
            .collect()
    }

    /// Tokens that a decode of all those rows computes: one each, and those that were forced.
    pub(crate) fn decode_tokens(&self) -> u64 {
        let missing = |(id, index): &(RelQueryId, u32)| u64::from(self.relqueries[id].row(*index).missing());
        self.decoding_rows().iter().map(missing).sum()
    }

    /// Blocks that a decode of all those rows needs.
    pub(crate) fn decode_need(&self) -> u32 {
        let need = |(id, index): &(RelQueryId, u32)| {
            self.relqueries[id].row(*index).blocks_missing(self.config.block_tokens)
        };
        self.decoding_rows().iter().map(need).sum()
    }

    /// Preempts rows until all that still run can decode: the last row of the last relQuery first.
    fn make_decode_room(&mut self) {
        while self.decode_need() > self.kv.ledger.available() {
            let Some(id) = self.queues.running.last().map(|key| key.id) else { return };
            self.preempt(id);
        }
    }

    /// The last row of a running relQuery gives its blocks up.
    pub(crate) fn preempt(&mut self, id: RelQueryId) {
        let last = self.relqueries[&id].running.last().copied();
        last.into_iter().for_each(|index| self.preempt_row((id, index)));
    }

    /// A running row gives its blocks up.
    pub(crate) fn preempt_row(&mut self, (id, index): (RelQueryId, u32)) {
        self.take_back(id, index);
        self.telemetry.counters.preemptions += 1;
        self.telemetry.decision.preempted.extend(self.relqueries[&id].row(index).request);
        self.place(id);
    }

    /// Releases a row's blocks and puts it in front of its relQuery's waiting rows.
    pub(crate) fn take_back(&mut self, id: RelQueryId, index: u32) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        relquery.requeue(index);
        let row = relquery.row_mut(index);
        row.state = RowState::Waiting;
        row.release(|block| self.kv.ledger.release(block));
        self.queues.running_rows -= 1;
    }
}
