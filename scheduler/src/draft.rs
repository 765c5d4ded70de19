//! Adds guesses to a step that only decodes: [`speculate`](crate::speculate) makes them and knows what they
//! pay.

use base::Nanos;

use crate::Scheduler;
use crate::flight::Draft;
use crate::speculate::{Speculation, Spoken, Terms};

impl Scheduler {
    /// Adds guesses to the slots of a step that only decodes. All its rows have their blocks: guesses take
    /// what is left.
    pub(crate) fn add_draft_tokens(&mut self, drafts: &mut [Draft]) {
        let is_on = self.config.speculation == Speculation::Auto && self.isolation.is_empty();
        if !is_on || drafts.iter().any(|draft| draft.is_prefill) {
            return;
        }
        let rows = drafts.len() as u64;
        let saved = Nanos(self.estimates.cost.decode(rows).0 / rows.max(1));
        let terms = Terms { saved, cost: self.estimates.cost.decode_per_sequence };
        // What bounds the rows of a step bounds its guesses.
        let mut guesses_left = self.config.sequences_max as usize;
        for draft in drafts {
            let relquery = self.relqueries.get_mut(&draft.relquery).expect("its slot is being written");
            let (row, drafter) = relquery.row_and_drafter(draft.index);
            // The last token of an output need not be guessed: drawing it ends the row.
            let left = row.output_max().saturating_sub(row.generated.len() as u64 + 1);
            let most = guesses_left.min(usize::try_from(left).unwrap_or(usize::MAX));
            if most == 0 {
                continue;
            }
            let spoken = Spoken { input: &row.item.prompt, output: &row.generated };
            let Some(mut drafted) = drafter.draft(spoken, terms, most) else { continue };
            let end = (draft.end - row.own_start()) as usize;
            let block_tokens = self.config.block_tokens as usize;
            while row.own.blocks.len() * block_tokens < end + drafted.tokens.len() {
                let Some(block) = self.kv.ledger.grant() else { break };
                row.own.blocks.push(block);
            }
            drafted.tokens.truncate(row.own.blocks.len() * block_tokens - end);
            guesses_left -= drafted.tokens.len();
            draft.drafted = (!drafted.tokens.is_empty()).then_some(drafted);
        }
    }
}
