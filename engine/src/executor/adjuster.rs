//! What a slot does to its logits before it draws: its row's adjustments, over the tokens that the row had before
//! the slot and those that the slot draws itself.

use base::{LogitAdjustments, RowError, TokenId};
use llguidance::toktrie::SimpleVob;

use super::sampled_slot::SampledSlot;
use crate::adjust::{TokenCounts, adjust, keep};
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
        adjust(logits, self.adjustments, &self.counts, self.barred(index));
    }

    /// Makes sure that only tokens of the row's list can be drawn as token number `index`, where it has one. `ids_end`:
    /// tokens from there on are padding; `constraint`: what its constraint allows there.
    pub(super) fn keep_listed(
        &self,
        logits: &mut [f32],
        ids_end: usize,
        index: u32,
        constraint: Option<&SimpleVob>,
    ) -> Result<(), RowError> {
        let Some(listed) = &self.adjustments.allowed else { return Ok(()) };
        let (barred, end) = (self.barred(index), ids_end.min(logits.len()));
        let may_be = |token: &&TokenId| {
            let is_allowed =
                constraint.is_none_or(|mask| (token.0 as usize) < mask.len() && mask.is_allowed(token.0));
            (token.0 as usize) < end && !barred.contains(token) && is_allowed
        };
        if keep(logits, listed.iter().filter(may_be)) {
            return Ok(());
        }
        let reason = format!(
            "none of `allowed_token_ids` can be output token {}: its constraint or `min_tokens` rules them out",
            u64::from(index) + 1
        );
        Err(RowError::Refused(reason))
    }

    /// Tokens that are not drawn as token number `index`, since they would end the output too early.
    fn barred(&self, index: u32) -> &[TokenId] {
        let is_early = u64::from(index) < self.adjustments.output_min.0;
        if is_early { &self.ends } else { &[] }
    }

    /// Counts a token that was drawn, and those that it forced.
    pub(super) fn push(&mut self, token: TokenId, pushed: &Pushed) {
        self.counts.push(token);
        if let Pushed::Open(forced) = pushed {
            forced.iter().for_each(|token| self.counts.push(*token));
        }
    }
}
