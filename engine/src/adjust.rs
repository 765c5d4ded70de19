//! Penalties, biases and an earliest end: what is done to a row's logits before a token is drawn, as OpenAI and vLLM
//! define it. Min-p acts on probabilities at the row's temperature, so the draw itself keeps to it.

use std::collections::HashMap;
use std::sync::Arc;

use base::{LogitAdjustments, TokenId};

/// The tokens that a row has so far, as its penalties count them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenCounts {
    /// Those of the prompt, ordered, each once; none where no penalty looks at them.
    prompt: Arc<[TokenId]>,
    /// How often the output has each.
    output: HashMap<TokenId, u32>,
}

impl TokenCounts {
    /// Of a row that has said nothing yet.
    pub(crate) fn new(prompt: Option<&[TokenId]>) -> Self {
        let mut prompt = prompt.unwrap_or_default().to_vec();
        prompt.sort_unstable();
        prompt.dedup();
        Self { prompt: prompt.into(), output: HashMap::new() }
    }

    /// Counts a token of the output.
    pub(crate) fn push(&mut self, token: TokenId) {
        *self.output.entry(token).or_default() += 1;
    }

    /// The tokens of prompt and output, each once.
    fn all(&self) -> impl Iterator<Item = TokenId> {
        let said = self.output.keys().filter(|token| self.prompt.binary_search(token).is_err());
        self.prompt.iter().chain(said).copied()
    }
}

/// Changes `logits`, of which those of `barred` are not to be drawn. What is not a number stays so: the row shall
/// fail by it; and what is one stays one, however large a penalty is.
pub(crate) fn adjust(
    logits: &mut [f32],
    adjustments: &LogitAdjustments,
    counts: &TokenCounts,
    barred: &[TokenId],
) {
    let LogitAdjustments { logit_bias, repetition_penalty, frequency_penalty, presence_penalty, .. } =
        adjustments;
    let mut change = |token: TokenId, changed: &dyn Fn(f32) -> f32| {
        if let Some(logit) = logits.get_mut(token.0 as usize).filter(|logit| logit.is_finite()) {
            *logit = changed(*logit).clamp(f32::MIN, f32::MAX);
        }
    };
    logit_bias.iter().for_each(|(token, bias)| change(*token, &|logit| logit + bias));
    if adjustments.needs_prompt() {
        let penalty = *repetition_penalty;
        counts.all().for_each(|token| {
            change(token, &|logit| if logit > 0.0 { logit / penalty } else { logit * penalty });
        });
    }
    for (token, count) in &counts.output {
        change(*token, &|logit| logit - frequency_penalty * *count as f32 - presence_penalty);
    }
    barred.iter().for_each(|token| change(*token, &|_| f32::MIN));
}

/// Makes sure that none but these tokens is drawn; whether there is any. What is not a number stays so here too.
pub(crate) fn keep<'a>(logits: &mut [f32], tokens: impl Iterator<Item = &'a TokenId>) -> bool {
    let logit = |token: &TokenId| Some((token.0 as usize, *logits.get(token.0 as usize)?));
    let kept: Vec<(usize, f32)> = tokens.filter_map(logit).collect();
    logits.iter_mut().filter(|logit| logit.is_finite()).for_each(|logit| *logit = f32::MIN);
    kept.iter().for_each(|(token, logit)| logits[*token] = *logit);
    !kept.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_it_was_and_nothing_else_is_drawn() {
        let mut logits = [2.0, -2.0, f32::NAN, 0.5];
        assert!(keep(&mut logits, [TokenId(1), TokenId(3), TokenId(9)].iter()));
        assert!(logits[0] == f32::MIN && logits[1] == -2.0 && logits[2].is_nan() && logits[3] == 0.5);
        assert!(!keep(&mut logits, [TokenId(9)].iter()), "it is none of the model's");
    }

    fn counts(prompt: &[u32], output: &[u32]) -> TokenCounts {
        let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
        let mut counts = TokenCounts::new(Some(&prompt));
        output.iter().for_each(|token| counts.push(TokenId(*token)));
        counts
    }

    fn adjusted(adjustments: &LogitAdjustments, counts: &TokenCounts, barred: &[u32]) -> Vec<f32> {
        let mut logits = [2.0, -2.0, 1.0, 0.5, -1.0, 0.0];
        let barred: Vec<TokenId> = barred.iter().copied().map(TokenId).collect();
        adjust(&mut logits, adjustments, counts, &barred);
        logits.to_vec()
    }

    #[test]
    fn presence_counts_once_and_frequency_each_time_of_the_output_alone() {
        let counts = counts(&[3, 3, 4], &[0, 0, 0, 1]);
        let presence = LogitAdjustments { presence_penalty: 0.5, ..LogitAdjustments::default() };
        assert_eq!(adjusted(&presence, &counts, &[]), [1.5, -2.5, 1.0, 0.5, -1.0, 0.0]);
        let frequency = LogitAdjustments { frequency_penalty: -0.5, ..LogitAdjustments::default() };
        assert_eq!(adjusted(&frequency, &counts, &[]), [3.5, -1.5, 1.0, 0.5, -1.0, 0.0]);
        let both = LogitAdjustments { presence_penalty: 0.25, frequency_penalty: 1.0, ..frequency };
        assert_eq!(adjusted(&both, &counts, &[]), [-1.25, -3.25, 1.0, 0.5, -1.0, 0.0]);
    }

    #[test]
    fn repetition_brings_each_token_of_prompt_and_output_nearer_to_the_improbable_once() {
        let repetition = LogitAdjustments { repetition_penalty: 2.0, ..LogitAdjustments::default() };
        let counts = counts(&[0, 4, 4, 0], &[4, 3, 3, 1]);
        assert_eq!(adjusted(&repetition, &counts, &[]), [1.0, -4.0, 1.0, 0.25, -2.0, 0.0]);
        let rewards = LogitAdjustments { repetition_penalty: 0.5, ..repetition };
        assert_eq!(adjusted(&rewards, &counts, &[]), [4.0, -1.0, 1.0, 1.0, -0.5, 0.0]);
    }

    #[test]
    fn biases_come_before_penalties_and_what_is_barred_is_never_drawn() {
        let bias = vec![(TokenId(1), 6.0), (TokenId(5), -100.0), (TokenId(900), 1.0)];
        let all =
            LogitAdjustments { logit_bias: bias, repetition_penalty: 2.0, ..LogitAdjustments::default() };
        let found = adjusted(&all, &counts(&[1], &[]), &[2]);
        assert_eq!(found, [2.0, 2.0, f32::MIN, 0.5, -1.0, -100.0]);
        assert_eq!(adjusted(&LogitAdjustments::default(), &counts(&[1], &[1]), &[])[1], -2.0);
    }

    #[test]
    fn numbers_stay_numbers_and_what_is_none_stays_none() {
        let huge = LogitAdjustments { repetition_penalty: f32::MAX, ..LogitAdjustments::default() };
        let mut logits = [f32::NAN, f32::INFINITY, -7.0];
        adjust(&mut logits, &huge, &counts(&[0, 1, 2], &[]), &[TokenId(0)]);
        assert!(logits[0].is_nan() && logits[1] == f32::INFINITY && logits[2] == f32::MIN, "{logits:?}");
    }
}
