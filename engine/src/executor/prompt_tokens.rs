//! How likely the tokens of prompts were: each by the logits at the token before it.

use std::sync::Arc;

use base::{LikelyPromptToken, PromptLikelihood, PromptOutcome, PromptToken, RowError, Slot, TokenId};
use rayon::prelude::*;

use super::distribution::{Distribution, DistributionRequest};
use crate::device::Cpu;
use crate::parallel::{HiddenStates, Ranks, StepError};
use crate::sample::all_finite;
use crate::text::TokenText;

/// Positions whose logits are in memory together: bounds them at a vocabulary's width each, however long a
/// prompt is.
const LOGIT_ROWS_MAX: usize = 64;

/// How many targets slots have.
pub(super) fn count(slots: &[Slot]) -> usize {
    slots.iter().filter_map(|slot| slot.prompt_targets.as_ref()).map(|targets| targets.tokens.len()).sum()
}

/// How likely the targets of slots are, by the hidden states before them, in order. `ids_end`: token ids from
/// there on are padding.
pub(super) fn score(
    ranks: &mut Ranks,
    (text, ids_end): (&dyn TokenText, usize),
    hidden: &HiddenStates,
    slots: &[Slot],
) -> Result<Vec<PromptOutcome>, StepError> {
    let targets = slots.iter().filter_map(|slot| slot.prompt_targets.as_ref());
    let wanted: Vec<(TokenId, u32)> =
        targets.flat_map(|targets| targets.tokens.iter().map(|token| (*token, targets.top))).collect();
    let vocab = ranks.model().config().vocab;
    let mut found: Vec<Result<PromptLikelihood, RowError>> = Vec::with_capacity(wanted.len());
    for piece in wanted.chunks(LOGIT_ROWS_MAX) {
        let logits = ranks.logits(hidden, found.len()..found.len() + piece.len())?;
        let cpu = ranks.model().cpu();
        let one = |(logits, (token, top)): (&[f32], &(TokenId, u32))| {
            likelihood(cpu, (logits, ids_end), text, (*token, *top))
        };
        let likelihoods: Vec<Result<PromptLikelihood, RowError>> =
            cpu.run(|| logits.par_chunks_exact(vocab).zip(piece).map(one).collect());
        found.extend(likelihoods);
        ranks.keep_logits(logits);
    }
    let mut found = found.into_iter();
    let outcomes = slots.iter().filter_map(|slot| {
        let targets = slot.prompt_targets.as_ref()?;
        let own: Vec<_> = found.by_ref().take(targets.tokens.len()).collect();
        let first = (slot.start == 0).then(|| Ok(prompt_token(text, slot.input[0], None)));
        let others = targets.tokens.iter().zip(own);
        let others = others.map(|(id, found)| found.map(|found| prompt_token(text, *id, Some(found))));
        let result: Result<Arc<[PromptToken]>, RowError> = first.into_iter().chain(others).collect();
        Some(PromptOutcome { request: slot.request, result })
    });
    Ok(outcomes.collect())
}

/// How likely a token is by the logits before it, beside the `top` likeliest.
fn likelihood(
    cpu: &Cpu,
    (logits, ids_end): (&[f32], usize),
    text: &dyn TokenText,
    (token, top): (TokenId, u32),
) -> Result<PromptLikelihood, RowError> {
    if !all_finite(logits) {
        return Err(RowError::NotANumber);
    }
    let wanted = DistributionRequest { top_logprobs: Some(top), probabilities: false };
    let all = Distribution::of(cpu, (logits, ids_end), None, wanted);
    let own = all.and_then(|all| Some((all.logprob_of(cpu, token, top)?, all.rank_of(token)?)));
    let Some((own, rank)) = own else {
        let reason = format!("token {token} of the prompt is padding of the vocabulary: nothing says it");
        return Err(RowError::Refused(reason));
    };
    let likely = |(id, logprob): (TokenId, f32)| LikelyPromptToken {
        id,
        text: shown(text, id).0,
        logprob: logprob.into(),
    };
    let top = own.top.into_iter().map(likely).collect();
    Ok(PromptLikelihood { logprob: own.logprob.into(), rank, top })
}

/// A token of a prompt as it is told.
fn prompt_token(text: &dyn TokenText, id: TokenId, likelihood: Option<PromptLikelihood>) -> PromptToken {
    let (text, bytes) = shown(text, id);
    PromptToken { id, text, bytes, likelihood }
}

/// A token's text, of a special one as it is written, and its bytes.
fn shown(text: &dyn TokenText, token: TokenId) -> (String, Option<Vec<u8>>) {
    let bytes = text.bytes(token);
    let written = match &bytes {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => text.special(token).unwrap_or_default(),
    };
    (written, bytes)
}
