//! What rows have used that replicas run and have not ended: what is known or estimated here, for no reply will tell it. It
//! is never nothing, or tenants would hang up to compute for nothing.

use base::{RelQueryId, TokenCount};
use scheduler::Usage;
use scheduler::fleet::MARKUP_TOKENS_MAX;

use super::fleet::Fleet;
use super::replica::Transport;
use crate::config::PromptForm;
use crate::price::TokenPrices;

/// What an unfinished row has used.
pub(crate) struct RowUse {
    pub(crate) usage: Usage,
    /// What its tokens cost where it runs, where a fleet says so.
    pub(crate) prices: Option<TokenPrices>,
}

impl Fleet {
    /// What a row has used so far that was sent to a replica: its prompt, and what it was heard to put out, `told` or kept
    /// here for its end. A server may have put out more by now: the more counts. `None`: it runs nowhere.
    pub(crate) fn used_so_far(&self, id: RelQueryId, row: u32, told: TokenCount) -> Option<RowUse> {
        let kept = self.local.get(&(id, row)).and_then(|request| self.local_answers.get(request));
        let output = told.max(TokenCount(kept.map_or(0, |answer| answer.tokens)));
        let (replica, mut usage) = self.queue.row_usage(id, row, output)?;
        let scale = self.queue.prompt_scale(replica);
        let replica = self.replicas.get(&replica)?;
        // The local engine tells each token.
        if let Transport::Server { style, .. } = &replica.transport {
            let estimated = self.queue.estimated_output(id, row, self.shared.clock.now());
            usage.output = usage.output.max(estimated.unwrap_or_default());
            if style.form == PromptForm::Messages {
                // Of a text the gateway knows bytes; how many tokens those are, earlier replies have told.
                let bytes = usage.prompt.0;
                let told = scale.as_told(bytes).unwrap_or(bytes);
                let prompt = TokenCount(told.clamp(1, bytes.saturating_add(MARKUP_TOKENS_MAX)));
                (usage.prompt, usage.computed) = (prompt, prompt);
            }
        }
        Some(RowUse { usage, prices: Some(replica.prices) })
    }
}
