//! How likely what is drawn was: the model's own distribution over the tokens that the row's constraint allows, before
//! temperature, top-k and top-p.

use base::TokenId;
use llguidance::toktrie::SimpleVob;

use crate::device::Cpu;

/// Of so many allowed tokens at most, probabilities are found whether anybody asks or not: those of labels cost nothing
/// beside their row's product with the vocabulary.
const ALLOWED_FREE: usize = 4096;

/// What is wanted of a distribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct DistributionRequest {
    /// How likely the drawn token was, beside so many of the most likely ones.
    pub(super) top_logprobs: Option<u32>,
    /// All of it, where that costs nothing.
    pub(super) probabilities: bool,
}

/// How likely a token was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DrawnLogprob {
    /// Natural logarithm of its probability; 0 of a forced one.
    pub(super) logprob: f32,
    /// The most likely tokens in its place, where they are asked for, the likeliest first; or itself and those that are
    /// named.
    pub(super) top: Vec<(TokenId, f32)>,
}

impl DrawnLogprob {
    /// That of a token that is forced, beside those that are named: nothing else can stand there.
    pub(super) fn forced(token: TokenId, named: &[TokenId]) -> Self {
        let one = |one: TokenId| (one, if one == token { 0.0 } else { f32::NEG_INFINITY });
        let top = if named.is_empty() { Vec::new() } else { with_others(token, named).map(one).collect() };
        Self { logprob: 0.0, top }
    }
}

/// A token and those of a list that are others.
fn with_others(token: TokenId, named: &[TokenId]) -> impl Iterator<Item = TokenId> {
    std::iter::once(token).chain(named.iter().copied().filter(move |one| *one != token))
}

/// The distribution that a token is drawn from.
pub(super) struct Distribution {
    /// Tokens that are allowed.
    ids: Vec<u32>,
    /// Theirs.
    logits: Vec<f32>,
    max: f32,
    /// Logarithm of the sum of `e^(logit - max)`.
    log_sum: f32,
}

impl Distribution {
    /// That over the tokens of `allowed`, or over all below `ids_end`; `None` where nothing of it is wanted.
    pub(super) fn of(
        cpu: &Cpu,
        (logits, ids_end): (&[f32], usize),
        allowed: Option<&SimpleVob>,
        wanted: DistributionRequest,
    ) -> Option<Self> {
        let end = ids_end.min(logits.len());
        let ids: Vec<u32> = match allowed {
            Some(mask)
                if wanted.top_logprobs.is_some()
                    || (wanted.probabilities && mask.num_set() <= ALLOWED_FREE) =>
            {
                let mut ids = Vec::with_capacity(mask.num_set());
                mask.iter_set_entries(|id| ids.push(id as u32));
                ids.retain(|id| (*id as usize) < end);
                ids
            }
            None if wanted.top_logprobs.is_some() => (0..end as u32).collect(),
            _ => return None,
        };
        let logits: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut weights = logits.clone();
        cpu.exp(&mut weights, max, 1.0);
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        Some(Self { ids, logits, max, log_sum: sum.ln() as f32 })
    }

    /// How likely a token is, beside the `top` most likely ones.
    pub(super) fn logprob_of(&self, cpu: &Cpu, token: TokenId, top: u32) -> Option<DrawnLogprob> {
        let at = self.ids.binary_search(&token.0).ok()?;
        let found = (top > 0).then(|| cpu.top_k_of(&self.logits, top as usize, self.logits.len()));
        let found = found.as_ref().and_then(|found| found.kept()).unwrap_or_default();
        let top = found.iter().map(|(logit, at)| (TokenId(self.ids[*at as usize]), self.logprob(*logit)));
        Some(DrawnLogprob { logprob: self.logprob(self.logits[at]), top: top.collect() })
    }

    /// How likely a token is, beside those that are named, which need not be allowed.
    pub(super) fn logprob_beside(&self, token: TokenId, named: &[TokenId]) -> Option<DrawnLogprob> {
        let of = |token: TokenId| Some(self.logprob(self.logits[self.ids.binary_search(&token.0).ok()?]));
        let one = |token: TokenId| (token, of(token).unwrap_or(f32::NEG_INFINITY));
        Some(DrawnLogprob { logprob: of(token)?, top: with_others(token, named).map(one).collect() })
    }

    /// How many tokens are likelier than one, and one.
    pub(super) fn rank_of(&self, token: TokenId) -> Option<u32> {
        let own = self.logits[self.ids.binary_search(&token.0).ok()?];
        Some(1 + self.logits.iter().filter(|logit| **logit > own).count() as u32)
    }

    /// The probability of each allowed token; none where they are many.
    pub(super) fn probabilities(&self) -> Vec<(TokenId, f32)> {
        if self.ids.len() > ALLOWED_FREE {
            return Vec::new();
        }
        let probabilities = self.ids.iter().zip(&self.logits);
        probabilities.map(|(id, logit)| (TokenId(*id), self.logprob(*logit).exp())).collect()
    }

    fn logprob(&self, logit: f32) -> f32 {
        // Not above 0, however sums are rounded.
        (logit - self.max - self.log_sum).min(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBABILITIES: DistributionRequest =
        DistributionRequest { top_logprobs: None, probabilities: true };

    fn asked(top: u32) -> DistributionRequest {
        DistributionRequest { top_logprobs: Some(top), probabilities: false }
    }

    fn mask(of: usize, tokens: &[u32]) -> SimpleVob {
        let mut mask = SimpleVob::alloc(of);
        tokens.iter().for_each(|token| mask.allow_token(*token));
        mask
    }

    #[test]
    fn probabilities_are_those_of_the_definition_over_what_is_allowed() {
        let cpu = Cpu::new(Some(1)).expect("a thread starts");
        // Number 4 is padding.
        let logits = [1.0f32, 2.0, 3.0, 4.0, 99.0];
        let exact = |allowed: &[usize], token: usize| {
            let sum: f64 = allowed.iter().map(|token| f64::from(logits[*token]).exp()).sum();
            (f64::from(logits[token]) - sum.ln()) as f32
        };
        let close = |x: f32, y: f32| assert!((x - y).abs() < 1e-5, "{x} {y}");

        assert!(Distribution::of(&cpu, (&logits, 4), None, PROBABILITIES).is_none(), "nobody asks");
        let all = Distribution::of(&cpu, (&logits, 4), None, asked(2)).unwrap();
        let found = all.logprob_of(&cpu, TokenId(1), 2).unwrap();
        close(found.logprob, exact(&[0, 1, 2, 3], 1));
        assert_eq!(found.top.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [3, 2]);
        close(found.top[0].1, exact(&[0, 1, 2, 3], 3));
        assert_eq!(all.logprob_of(&cpu, TokenId(4), 0), None, "padding is never drawn");
        assert_eq!([3, 1, 4].map(|token| all.rank_of(TokenId(token))), [Some(1), Some(3), None]);

        let labels = Distribution::of(&cpu, (&logits, 4), Some(&mask(5, &[0, 2, 4])), PROBABILITIES).unwrap();
        close(labels.logprob_of(&cpu, TokenId(2), 0).unwrap().logprob, exact(&[0, 2], 2));
        let probabilities = labels.probabilities();
        assert_eq!(probabilities.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [0, 2]);
        close(probabilities.iter().map(|(_, probability)| probability).sum(), 1.0);
        let only = Distribution::of(&cpu, (&logits, 4), Some(&mask(5, &[1])), PROBABILITIES).unwrap();
        assert_eq!(only.logprob_of(&cpu, TokenId(1), 0), Some(DrawnLogprob::default()));
    }

    #[test]
    fn named_tokens_are_told_behind_the_drawn_one_wherever_they_rank() {
        let cpu = Cpu::new(Some(1)).expect("a thread starts");
        let logits = [1.0f32, 2.0, 3.0, 4.0];
        let named = [TokenId(2), TokenId(0), TokenId(1)];
        let all = Distribution::of(&cpu, (&logits, 4), None, asked(0)).unwrap();
        let found = all.logprob_beside(TokenId(0), &named).unwrap();
        assert_eq!(found.top.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [0, 2, 1], "each once");
        for (token, logprob) in &found.top {
            assert_eq!(*logprob, all.logprob_of(&cpu, *token, 0).unwrap().logprob);
        }
        assert_eq!(found.logprob, found.top[0].1);
        // What a constraint does not allow there has no probability at all.
        let some = Distribution::of(&cpu, (&logits, 4), Some(&mask(4, &[0, 1])), asked(0)).unwrap();
        let found = some.logprob_beside(TokenId(1), &named).unwrap();
        assert_eq!(found.top[1], (TokenId(2), f32::NEG_INFINITY));
        assert_eq!(some.logprob_beside(TokenId(3), &named), None, "it was not drawn");
        let forced = DrawnLogprob::forced(TokenId(2), &named);
        let none = f32::NEG_INFINITY;
        assert_eq!(forced.top, [(TokenId(2), 0.0), (TokenId(0), none), (TokenId(1), none)]);
        assert_eq!(DrawnLogprob::forced(TokenId(2), &[]), DrawnLogprob::default());
    }

    #[test]
    fn a_wide_mask_is_looked_at_for_who_asks_only() {
        let cpu = Cpu::new(Some(1)).expect("a thread starts");
        let logits = vec![0.0f32; 2 * ALLOWED_FREE];
        let wide = mask(logits.len(), &(0..=ALLOWED_FREE as u32).collect::<Vec<_>>());
        assert!(Distribution::of(&cpu, (&logits, logits.len()), Some(&wide), PROBABILITIES).is_none());
        let found = Distribution::of(&cpu, (&logits, logits.len()), Some(&wide), asked(0)).unwrap();
        let found = found.logprob_of(&cpu, TokenId(7), 0).unwrap();
        assert!((found.logprob + ((ALLOWED_FREE + 1) as f32).ln()).abs() < 1e-4, "{}", found.logprob);
    }
}
