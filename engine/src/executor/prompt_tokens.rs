//! How likely the tokens of prompts were: each by the logits at the token before it.

use std::sync::Arc;

use base::{LikelyPromptToken, PromptLikelihood, PromptOutcome, PromptToken, RowError, Slot, TokenId};
use rayon::prelude::*;

use super::distribution::{Distribution, DistributionRequest};
use crate::decoder::{LogitPlace, LogitQueries, LogitStats, SampleQuery};
use crate::device::Cpu;
use crate::parallel::{GpuRanks, HiddenStates, Ranks, RowStats, StepError};
use crate::sample::all_finite;
use crate::text::TokenText;

/// Positions whose logits are in memory together: bounds them at a vocabulary's width each, however long a
/// prompt is.
const LOGIT_ROWS_MAX: usize = 64;

/// How likely a token is, or what is wrong with its row.
type Likelihood = Result<PromptLikelihood, RowError>;

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
    let mut found: Vec<Likelihood> = Vec::with_capacity(wanted.len());
    for piece in wanted.chunks(LOGIT_ROWS_MAX) {
        let first = found.len();
        let likelihoods = match ranks.on_gpus() {
            Some(mut gpus) => on_gpus(&mut gpus, (text, ids_end), (piece, hidden.first() + first))?,
            None => on_host(ranks, (text, ids_end), hidden, (piece, first))?,
        };
        found.extend(likelihoods);
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

/// How likely tokens are by the hidden states before them, of which the first is row `first`.
fn on_host(
    ranks: &mut Ranks,
    (text, ids_end): (&dyn TokenText, usize),
    hidden: &HiddenStates,
    (wanted, first): (&[(TokenId, u32)], usize),
) -> Result<Vec<Likelihood>, StepError> {
    let logits = ranks.logits(hidden, first..first + wanted.len())?;
    let (cpu, vocab) = (ranks.model().cpu(), ranks.model().config().vocab);
    let one = |(logits, (token, top)): (&[f32], &(TokenId, u32))| {
        likelihood(cpu, (logits, ids_end), text, (*token, *top))
    };
    let found: Vec<Likelihood> = cpu.run(|| logits.par_chunks_exact(vocab).zip(wanted).map(one).collect());
    ranks.keep_logits(logits);
    Ok(found)
}

/// The same where logits stay on GPUs, which find what is told of them. `first`: among all rows that the step keeps.
fn on_gpus(
    gpus: &mut GpuRanks<'_>,
    (text, ids_end): (&dyn TokenText, usize),
    (wanted, first): (&[(TokenId, u32)], usize),
) -> Result<Vec<Likelihood>, StepError> {
    let query = |(_, top): &(TokenId, u32)| SampleQuery {
        top_k: *top as usize,
        inverse_temperature: 1.0,
        ..SampleQuery::default()
    };
    let queries: Vec<SampleQuery> = wanted.iter().map(query).collect();
    let rows = gpus.query_logits(LogitQueries { first, queries: &queries, ids_end, masks: &[] })?;
    let tokens: Vec<u32> = wanted.iter().map(|(token, _)| token.0).collect();
    let places = gpus.token_places(&tokens, ids_end)?;
    let one = |((token, _), (row, place)): (&(TokenId, u32), (&RowStats, &LogitPlace))| {
        let LogitStats { top_k, max, sum } = &row.whole;
        let Some(top) = top_k.kept() else { return Err(RowError::NotANumber) };
        if token.0 as usize >= ids_end {
            return Err(padding(*token));
        }
        // Not above 0, however sums are rounded.
        let logprob = |logit: f32| (f64::from(logit - max) - sum.ln()).min(0.0);
        let likely = |(logit, id): &(f32, u32)| LikelyPromptToken {
            id: TokenId(*id),
            text: shown(text, TokenId(*id)).0,
            logprob: logprob(*logit),
        };
        let (logprob, rank) = (logprob(place.logit), 1 + place.above);
        Ok(PromptLikelihood { logprob, rank, top: top.iter().map(likely).collect() })
    };
    Ok(wanted.iter().zip(rows.iter().zip(&places)).map(one).collect())
}

/// Nobody says a token that only fills the vocabulary up.
fn padding(token: TokenId) -> RowError {
    RowError::Refused(format!("token {token} of the prompt is padding of the vocabulary: nothing says it"))
}

/// How likely a token is by the logits before it, beside the `top` likeliest.
fn likelihood(
    cpu: &Cpu,
    (logits, ids_end): (&[f32], usize),
    text: &dyn TokenText,
    (token, top): (TokenId, u32),
) -> Likelihood {
    if !all_finite(logits) {
        return Err(RowError::NotANumber);
    }
    let wanted = DistributionRequest { top_logprobs: Some(top), probabilities: false };
    let all = Distribution::of(cpu, (logits, ids_end), None, wanted);
    let own = all.and_then(|all| Some((all.logprob_of(cpu, token, top)?, all.rank_of(token)?)));
    let (own, rank) = own.ok_or_else(|| padding(token))?;
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
