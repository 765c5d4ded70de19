//! Adds to the slots of a step what is computed behind their own tokens: guesses where it only decodes, which
//! [`speculate`](crate::speculate) makes and knows the worth of, and behind prompts what outputs must begin with.

use base::{Nanos, TokenId};

use crate::Scheduler;
use crate::flight::Draft;
use crate::kv::Ledger;
use crate::row::Row;
use crate::speculate::{DraftTokens, Source, Speculation, Spoken, Terms};

/// How many times as many tokens as the openings of a step its other ones may be: a step that is full with prompts
/// computes a quarter more at most, in memory and time.
const STEP_PER_OPENINGS: u64 = 4;

impl Scheduler {
    /// Puts behind the prompts that end in this step what their rows' forms have every output begin with: the
    /// first token that is decided comes with the prompt then, and not a step later. It takes what blocks are left,
    /// and counts among no limit of prompts.
    pub(crate) fn add_openings(&mut self, drafts: &mut [Draft]) {
        if !self.computes_ahead() {
            return;
        }
        let mut left = self.config.computed_tokens_max() / STEP_PER_OPENINGS;
        for draft in drafts.iter_mut().filter(|draft| draft.is_prefill) {
            let relquery = self.relqueries.get_mut(&draft.relquery).expect("its slot is being written");
            let row = relquery.row_mut(draft.index);
            if draft.end != row.total() || !row.generated.is_empty() {
                continue;
            }
            let generation = &row.item.generation;
            // A limit of one token has it drawn.
            let room = left.min(row.output_max().saturating_sub(1)) as usize;
            let opening: &[TokenId] = match generation.constraint {
                Some(_) => generation.compiled.opening(),
                None => &[],
            };
            let mut tokens = opening[..opening.len().min(room)].to_vec();
            let ahead =
                grant_ahead(row, &mut self.kv.ledger, draft.end, self.config.block_tokens, tokens.len());
            tokens.truncate(ahead);
            left -= tokens.len() as u64;
            draft.drafted = (!tokens.is_empty()).then_some(DraftTokens { source: Source::Opening, tokens });
        }
    }

    /// Adds guesses to the slots of a step that only decodes. All its rows have their blocks: guesses take
    /// what is left.
    pub(crate) fn add_draft_tokens(&mut self, drafts: &mut [Draft]) {
        if !self.computes_ahead() || drafts.iter().any(|draft| draft.is_prefill) {
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
            let most = drafted.tokens.len();
            let ahead = grant_ahead(row, &mut self.kv.ledger, draft.end, self.config.block_tokens, most);
            drafted.tokens.truncate(ahead);
            guesses_left -= drafted.tokens.len();
            draft.drafted = (!drafted.tokens.is_empty()).then_some(drafted);
        }
    }

    /// Whether steps compute what is not output yet: not while it is looked for which row breaks them.
    fn computes_ahead(&self) -> bool {
        self.config.speculation == Speculation::Auto && self.isolation.is_empty()
    }
}

/// Gives a row blocks for `most` tokens behind its first `end`; for how many it has some then.
fn grant_ahead(row: &mut Row, ledger: &mut Ledger, end: u32, block_tokens: u32, most: usize) -> usize {
    let (end, block_tokens) = ((end - row.own_start()) as usize, block_tokens as usize);
    while row.own.blocks.len() * block_tokens < end + most {
        let Some(block) = ledger.grant() else { break };
        row.own.blocks.push(block);
    }
    (row.own.blocks.len() * block_tokens - end).min(most)
}
