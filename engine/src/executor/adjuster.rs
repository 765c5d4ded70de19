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

    /// Makes sure that only tokens of the row's list can be drawn as token number `index`, where it has one.
    /// `ids_end`: tokens from there on are padding; `constraint`: what its constraint allows there. Where that
    /// is one token alone, it is forced and not drawn, whether it comes through logits or not: it need not be
    /// listed.
    pub(super) fn keep_listed(
        &self,
        logits: &mut [f32],
        ids_end: usize,
        index: u32,
        constraint: Option<&SimpleVob>,
    ) -> Result<(), RowError> {
        let Some(listed) = &self.adjustments.allowed else { return Ok(()) };
        if constraint.is_some_and(|mask| mask.num_set() == 1) {
            return Ok(());
        }
        let (barred, end) = (self.barred(index), ids_end.min(logits.len()));
        let may_be = |token: &&TokenId| {
            (token.0 as usize) < end && !barred.contains(token) && is_allowed(constraint, **token)
        };
        if keep(logits, listed.iter().filter(may_be)) {
            return Ok(());
        }
        let (nth, cause) = (u64::from(index) + 1, none_of(listed, end, barred, constraint));
        Err(RowError::Refused(format!("none of `allowed_token_ids` can be output token {nth}: {cause}")))
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

/// Whether a constraint allows a token, where there is one.
fn is_allowed(constraint: Option<&SimpleVob>, token: TokenId) -> bool {
    constraint.is_none_or(|mask| (token.0 as usize) < mask.len() && mask.is_allowed(token.0))
}

/// Why none of the listed tokens can be drawn.
fn none_of(
    listed: &[TokenId],
    end: usize,
    barred: &[TokenId],
    constraint: Option<&SimpleVob>,
) -> &'static str {
    let mut known = listed.iter().filter(|token| (token.0 as usize) < end).peekable();
    if known.peek().is_none() {
        return "none is a token of the model";
    }
    let (ending, others): (Vec<&TokenId>, Vec<&TokenId>) = known.partition(|token| barred.contains(token));
    let is_open = ending.iter().any(|token| is_allowed(constraint, **token));
    match (is_open, others.is_empty()) {
        (false, _) => "its constraint rules them out",
        (true, true) => "`min_tokens` rules them out, since they would end the output",
        (true, false) => "its constraint and `min_tokens` together rule them out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_draw_nothing_is_told_by_what() {
        let of = |listed: &[u32], barred: &[u32], allowed: Option<&[u32]>| {
            let tokens = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<TokenId>>();
            let mask = allowed.map(|allowed| {
                let mut mask = SimpleVob::alloc(8);
                allowed.iter().for_each(|token| mask.allow_token(*token));
                mask
            });
            none_of(&tokens(listed), 6, &tokens(barred), mask.as_ref())
        };
        assert_eq!(of(&[6, 9], &[], None), "none is a token of the model");
        assert_eq!(of(&[6], &[6], Some(&[6, 1])), "none is a token of the model");
        assert_eq!(of(&[2, 9], &[], Some(&[0, 1])), "its constraint rules them out");
        assert_eq!(of(&[2], &[2], Some(&[0, 1])), "its constraint rules them out");
        assert_eq!(of(&[2], &[2], None), "`min_tokens` rules them out, since they would end the output");
        let both = "its constraint and `min_tokens` together rule them out";
        assert_eq!(of(&[2, 3], &[2], Some(&[1, 2])), both);
    }
}
