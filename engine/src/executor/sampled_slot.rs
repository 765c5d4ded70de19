//! What a slot asks of sampling, and what it draws.

use base::{RequestId, SampleSpec, Slot, TokenId};

/// A slot that samples.
pub(super) struct SampledSlot<'a> {
    pub(super) request: RequestId,
    pub(super) spec: &'a SampleSpec,
    /// Tokens at which it is sampled too, if all before them are drawn.
    pub(super) guesses: &'a [TokenId],
    /// Whether what its constraint forces may follow what is drawn.
    pub(super) forces: bool,
}

impl<'a> SampledSlot<'a> {
    /// A slot's sampling, if it samples.
    pub(super) fn of(slot: &'a Slot, forces: bool) -> Option<Self> {
        let guesses = &slot.input[slot.input.len() - slot.guesses as usize..];
        Some(Self { request: slot.request, spec: slot.sample.as_ref()?, guesses, forces })
    }

    /// Positions whose logits are wanted.
    pub(super) fn rows(&self) -> usize {
        1 + self.guesses.len()
    }

    /// Whether its output must keep a constraint.
    pub(super) fn is_constrained(&self) -> bool {
        self.spec.generation.constraint.is_some()
    }

    /// Tokens that the output may still take.
    pub(super) fn left(&self) -> usize {
        let SampleSpec { generation, output_index, .. } = self.spec;
        let left = generation.output_max.0.saturating_sub(u64::from(*output_index)).max(1);
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}

/// Tokens that were drawn, with those that they forced.
#[derive(Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) tokens: Vec<TokenId>,
    /// Set where the row's constraint has ended: what is forced behind them, unsampled.
    pub(super) rest: Option<Vec<u8>>,
}
