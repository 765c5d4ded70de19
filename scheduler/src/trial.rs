//! The step that tries rows under suspicion: [`isolation`](crate::isolation) says which, this one builds it.

use crate::Scheduler;
use crate::admit::{Admission, Admitted, Budget, OfferedRow};
use crate::cache_view::CacheView;
use crate::choice::Choice;
use crate::decision::Reason;
use crate::isolation::RowAt;
use crate::row::RowState;

impl Scheduler {
    /// The step that tries suspects, while there are any: those that run go on, those that were taken back
    /// are admitted. Where they find no room, rows that are not tried give theirs up.
    pub(crate) fn trial(&mut self) -> Option<Choice> {
        let group: Vec<RowAt> = self.isolation.group().collect();
        if group.is_empty() {
            return None;
        }
        loop {
            let prefill = self.trial_prefill(&group);
            let decodes = !self.decoding_rows().is_empty();
            if self.decode_need() <= self.kv.ledger.available() && (decodes || !prefill.is_empty()) {
                return Some(Choice { reason: Reason::Trial, prefill, decodes });
            }
            let others = self.running_rows().filter(|row| !group.contains(row));
            // A row that runs alone fits, so this ends.
            let last = others.last().or_else(|| self.running_rows().last())?;
            self.preempt_row(last);
        }
    }

    /// What the group's rows that do not decode compute, as far as there is room.
    fn trial_prefill(&mut self, group: &[RowAt]) -> Vec<Admitted> {
        let tokens = self.config.computed_tokens_max();
        let mut left = tokens.saturating_sub(self.decode_tokens());
        let mut prefill = Vec::new();
        for (relquery, index) in group.iter().copied() {
            let row = self.relqueries[&relquery].row(index);
            if row.state == RowState::Prefilling && left > 0 {
                let missing = u64::from(row.missing());
                let take = u32::try_from(missing.min(left)).expect("what is missing is a u32");
                prefill.push(Admitted { relquery, index, take });
                left -= u64::from(take);
            }
        }
        let budget = self.prefill_budget();
        let free_blocks = match self.queues.running_rows {
            0 => self.kv.ledger.available(),
            _ => budget.free_blocks.saturating_sub(self.decode_need()),
        };
        let cuts = self.continues_prompts();
        let mut admission = Admission::new(Budget { tokens: left, free_blocks, cuts, ..budget });
        self.promise(&mut admission, &prefill);
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        for (id, index) in group.iter().copied() {
            let Some(relquery) = self.relqueries.get_mut(&id) else { continue };
            let scope = relquery.scope;
            let row = relquery.row_mut(index);
            if row.state != RowState::Waiting {
                continue;
            }
            if !admission.offer(&view, OfferedRow { relquery: id, scope, index, row, tokens_max: None }) {
                break;
            }
        }
        prefill.extend(admission.rows);
        prefill
    }
}
