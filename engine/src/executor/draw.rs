//! What a slot draws: a token from its logits, then further ones for as long as they are what was guessed.
//!
//! Which token is drawn depends on logits, seed and output position alone, so tokens that come by guesses are
//! those that would have come one by one, at any temperature.

use std::sync::Arc;

use base::{RowError, TokenId};
use llguidance::toktrie::SimpleVob;

use super::adjuster::Adjuster;
use super::answer_probability::ScoredAnswers;
use super::distribution::{Distribution, DrawnLogprob};
use super::rows::{RowConstraint, refused};
use super::sampled_slot::{Drawn, DrawnToken, SampledSlot};
use crate::constraint::Pushed;
use crate::device::Cpu;
use crate::sample::{DrawKey, all_finite, forbid, sample};

/// How many of the first slots have their logits in memory together, at least one, and the rows of them,
/// `most` where that is more than one slot.
pub(super) fn together(slots: &[SampledSlot<'_>], most: usize) -> (usize, usize) {
    let (mut count, mut rows) = (0, 0);
    for slot in slots {
        if count > 0 && rows + slot.rows() > most {
            break;
        }
        (count, rows) = (count + 1, rows + slot.rows());
    }
    (count, rows)
}

/// Draws from `logits` `[1 + guesses, vocab]`, of which those from `ids_end` on are padding.
pub(super) fn draw(
    cpu: &Cpu,
    (logits, ids_end): (&mut [f32], usize),
    slot: &SampledSlot<'_>,
    (state, mut adjuster): (&mut RowConstraint, Option<Adjuster<'_>>),
) -> Result<Drawn, RowError> {
    // A guess may be forced instead of drawn: then nobody looks at its own logits, which say whether it is
    // computed.
    let may_force = !slot.guesses.is_empty() && matches!(state, Ok(Some(_)));
    if may_force && !all_finite(logits) {
        return Err(RowError::NotANumber);
    }
    let vocab = logits.len() / slot.rows();
    let scored = slot.scored();
    draw_rows(slot, |row, index| {
        let logits = &mut logits[row * vocab..][..vocab];
        let how = (scored.as_ref(), adjuster.as_ref());
        let (drawn, pushed) = draw_one(cpu, (logits, ids_end), (slot, how), (state, index))?;
        if let Some(adjuster) = &mut adjuster {
            adjuster.push(drawn.token, &pushed);
        }
        Ok((drawn, pushed))
    })
}

/// Draws by `one`, which is told the row of logits and the output position; an opening comes before what is drawn.
///
/// A row of logits behind a guess that cannot be drawn from is left to the next step, for the tokens before
/// it are sound: it fails there, unless the output ends with them.
pub(super) fn draw_rows(
    slot: &SampledSlot<'_>,
    mut one: impl FnMut(usize, u32) -> Result<(DrawnToken, Pushed), RowError>,
) -> Result<Drawn, RowError> {
    let named = slot.logprob_tokens();
    let forced = |token| DrawnToken::forced(token, named);
    let mut tokens: Vec<DrawnToken> = slot.opening.iter().copied().map(forced).collect();
    // As where there was no room for the opening: then the first token is drawn among itself alone.
    if named.is_empty()
        && slot.top_logprobs().is_some_and(|top| top > 0)
        && let Some(first) = tokens.first_mut()
    {
        first.logprob = Some(DrawnLogprob { top: vec![(first.token, 0.0)], ..DrawnLogprob::default() });
    }
    for row in 0..slot.rows() {
        let drawn = &tokens[slot.opening.len()..];
        // Forced tokens are guessed as well, or the logits behind them are not here.
        if row < drawn.len() {
            continue;
        }
        let is_guessed = drawn.iter().map(|drawn| drawn.token).eq(slot.guesses[..row].iter().copied());
        if tokens.len() >= slot.left() || !is_guessed {
            break;
        }
        let index = slot.first_index() + row as u32;
        match one(row, index) {
            Err(error) if row == 0 => return Err(error),
            Err(_) => break,
            Ok((token, Pushed::Ended(rest))) => {
                tokens.push(token);
                return Ok(Drawn { tokens, rest: Some(rest) });
            }
            Ok((token, Pushed::Open(behind))) => {
                tokens.push(token);
                tokens.extend(behind.into_iter().map(forced));
            }
        }
    }
    Ok(Drawn { tokens, rest: None })
}

/// What decides a draw beside logits and constraint.
type DrawRules<'a> = (Option<&'a ScoredAnswers<'a>>, Option<&'a Adjuster<'a>>);

/// Draws a token among those that the row's constraint allows, and tells the constraint.
fn draw_one(
    cpu: &Cpu,
    (logits, ids_end): (&mut [f32], usize),
    (slot, (scored, adjuster)): (&SampledSlot<'_>, DrawRules<'_>),
    (state, index): (&mut RowConstraint, u32),
) -> Result<(DrawnToken, Pushed), RowError> {
    let (allowed, wanted) = (allowed(state)?, slot.wanted());
    let scored = scored.zip(allowed.as_deref()).zip(state.as_ref().ok().and_then(Option::as_ref));
    if let Some(((scored, allowed), state)) = scored {
        allowed.iter_set_entries(|token| {
            if let Some(logit) = logits.get_mut(token) {
                *logit += scored.before(state.written(), state.bytes(token as u32));
            }
        });
    }
    let distribution = Distribution::of(cpu, (logits, ids_end), allowed.as_deref(), wanted);
    if let Some(adjuster) = adjuster {
        adjuster.adjust(logits, index);
    }
    if let Some(((scored, allowed), state)) = scored {
        allowed.iter_set_entries(|token| {
            let may_be = scored.may_be(state.written(), state.bytes(token as u32));
            if let Some(logit) = logits.get_mut(token).filter(|_| !may_be) {
                *logit = f32::MIN;
            }
        });
    }
    if let Some(allowed) = &allowed {
        forbid_others(logits, allowed);
    }
    if let Some(adjuster) = adjuster {
        adjuster.keep_listed(logits, ids_end, index, allowed.as_deref())?;
    }
    let key = DrawKey { seed: slot.spec.seed, index };
    let token = sample(cpu, logits, ids_end, &slot.spec.generation, key)?;
    let logprob =
        distribution.as_ref().zip(wanted.top_logprobs).and_then(|(all, top)| match slot.logprob_tokens() {
            [] => all.logprob_of(cpu, token, top),
            named => all.logprob_beside(token, named),
        });
    let probabilities =
        distribution.filter(|_| wanted.probabilities).map(|all| all.probabilities()).unwrap_or_default();
    Ok((
        DrawnToken { logprob, probabilities, ..DrawnToken::plain(token) },
        pushed(state, token, slot.forces)?,
    ))
}

/// Makes sure that only tokens of a mask can be drawn.
pub(super) fn forbid_others(logits: &mut [f32], mask: &SimpleVob) {
    forbid(logits, |token| (token.0 as usize) < mask.len() && mask.is_allowed(token.0));
}

/// The tokens that the row's constraint allows next; `None` where it has none.
pub(super) fn allowed(state: &mut RowConstraint) -> Result<Option<Arc<SimpleVob>>, RowError> {
    match state.as_mut() {
        Ok(None) => Ok(None),
        Ok(Some(state)) => state.allowed().map(Some).map_err(refused),
        Err(error) => Err(error.clone()),
    }
}

/// What a token did to its row's constraint.
pub(super) fn pushed(state: &mut RowConstraint, token: TokenId, forces: bool) -> Result<Pushed, RowError> {
    match state.as_mut().map_err(|error| error.clone())? {
        None => Ok(Pushed::Open(Vec::new())),
        Some(state) if forces => state.push(token).map_err(refused),
        Some(state) => state.take(token).map_err(refused),
    }
}
