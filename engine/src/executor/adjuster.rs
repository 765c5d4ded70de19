//! What a slot does to its logits before it draws: its row's adjustments, over the tokens that the row had before
//! the slot and those that the slot draws itself.

use base::{LogitAdjustments, TokenId};

use super::sampled_slot::SampledSlot;
use crate::adjust::{TokenCounts, adjust};
use crate::constraint::Pushed;

/// The adjustments of one slot.
pub(super) struct Adjuster<'a> {
    adjustments: &'a LogitAdjustments,
    counts: TokenCounts,
    /// Tokens that end the output.
    ends: Vec<TokenId>,
}

impl<'a> Adjuster<'a> {
    /// Of a slot whose row has these tokens before it, and whose output ends with any of `ends` or its own stop
    /// tokens; `None` where it changes nothing.
    pub(super) fn new(
        slot: &SampledSlot<'a>,
        counts: Option<&TokenCounts>,
        ends: &[TokenId],
    ) -> Option<Self> {
        let spec = slot.spec;
        let adjustments = spec.generation.adjustments.as_deref()?;
        let mut counts = counts.cloned().unwrap_or_else(|| TokenCounts::new(spec.prompt.as_deref()));
        slot.opening.iter().for_each(|token| counts.push(*token));
        let model: &[TokenId] = if spec.generation.ignore_end { &[] } else { ends };
        let ends = [model, &spec.generation.stop_tokens].concat();
        Some(Self { adjustments, counts, ends })
    }

    /// Changes the logits of the output's token number `index`.
    pub(super) fn adjust(&self, logits: &mut [f32], index: u32) {
        let is_early = u64::from(index) < self.adjustments.output_min.0;
        let barred: &[TokenId] = if is_early { &self.ends } else { &[] };
        adjust(logits, self.adjustments, &self.counts, barred);
    }

    /// Counts a token that was drawn, and those that it forced.
    pub(super) fn push(&mut self, token: TokenId, pushed: &Pushed) {
        self.counts.push(token);
        if let Pushed::Open(forced) = pushed {
            forced.iter().for_each(|token| self.counts.push(*token));
        }
    }
}
