//! What a slot asks of sampling, and what it draws.

use base::{RequestId, SampleSpec, Slot, TokenId};

use super::answer_probability::{ScoredAnswers, is_listed};
use super::distribution::{DistributionRequest, DrawnLogprob};

/// A slot that samples.
pub(super) struct SampledSlot<'a> {
    pub(super) request: RequestId,
    pub(super) spec: &'a SampleSpec,
    /// What its row begins with, whatever is drawn: it is sampled behind that for the first time.
    pub(super) opening: &'a [TokenId],
    /// Tokens at which it is sampled too, if all before them are drawn.
    pub(super) guesses: &'a [TokenId],
    /// Whether what its constraint forces may follow what is drawn.
    pub(super) forces: bool,
}

impl<'a> SampledSlot<'a> {
    /// A slot's sampling, if it samples; in front of its guesses it has so many tokens of an opening.
    pub(super) fn of(slot: &'a Slot, opening: usize, forces: bool) -> Option<Self> {
        let (known, guesses) = slot.input.split_at(slot.input.len() - slot.guesses as usize);
        let opening = &known[known.len() - opening..];
        Some(Self { request: slot.request, spec: slot.sample.as_ref()?, opening, guesses, forces })
    }

    /// Output position of the first token that it samples.
    pub(super) fn first_index(&self) -> u32 {
        self.spec.output_index + self.opening.len() as u32
    }

    /// Positions whose logits are wanted.
    pub(super) fn rows(&self) -> usize {
        1 + self.guesses.len()
    }

    /// Whether its output must keep a constraint.
    pub(super) fn is_constrained(&self) -> bool {
        self.spec.generation.constraint.is_some()
    }

    /// Which of its constraint's answers is drawn, where not simply the likeliest.
    pub(super) fn scored(&self) -> Option<ScoredAnswers<'a>> {
        let generation = &self.spec.generation;
        ScoredAnswers::new(generation.constraint.as_ref(), generation.scoring.as_ref())
    }

    /// Whether its row asks how likely its tokens are, and beside how many of the most likely ones each.
    pub(super) fn top_logprobs(&self) -> Option<u32> {
        self.spec.generation.logprobs
    }

    /// Tokens that are then told in place of the most likely ones; none: those.
    pub(super) fn logprob_tokens(&self) -> &'a [TokenId] {
        &self.spec.generation.logprob_tokens
    }

    /// Whether its logits are changed before it draws.
    pub(super) fn is_adjusted(&self) -> bool {
        self.spec.generation.adjustments.is_some()
    }

    /// What is wanted of the distributions that its tokens are drawn from.
    pub(super) fn wanted(&self) -> DistributionRequest {
        DistributionRequest {
            top_logprobs: self.top_logprobs(),
            probabilities: is_listed(self.spec.generation.constraint.as_ref()),
        }
    }

    /// Tokens that the output may still take.
    pub(super) fn left(&self) -> usize {
        let SampleSpec { generation, output_index, .. } = self.spec;
        let left = generation.output_max.0.saturating_sub(u64::from(*output_index)).max(1);
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}

/// A token that was drawn or forced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DrawnToken {
    pub(super) token: TokenId,
    /// Whether it followed from the one before it.
    pub(super) is_forced: bool,
    /// How likely it was, where that is asked for.
    pub(super) logprob: Option<DrawnLogprob>,
    /// The probability of each token that was allowed in its place; empty where nobody wants it, or they are many.
    pub(super) probabilities: Vec<(TokenId, f32)>,
}

impl DrawnToken {
    /// One of which nobody asks how likely it was.
    pub(super) fn plain(token: TokenId) -> Self {
        Self { token, is_forced: false, logprob: None, probabilities: Vec::new() }
    }

    /// One without which the output would not be what it must be; beside it are told those that are `named`.
    pub(super) fn forced(token: TokenId, named: &[TokenId]) -> Self {
        Self { is_forced: true, logprob: Some(DrawnLogprob::forced(token, named)), ..Self::plain(token) }
    }
}

/// Tokens that were drawn, with those that they forced.
#[derive(Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) tokens: Vec<DrawnToken>,
    /// Set where the row's constraint has ended: what is forced behind them, unsampled.
    pub(super) rest: Option<Vec<u8>>,
}
