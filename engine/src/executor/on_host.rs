//! Sampling where logits come to the host: from each row's highest where that is enough, else from all of
//! them.

use base::{RowError, RowOutcome, SampleSpec};
use rayon::prelude::*;

use super::draw::{draw, draw_rows, pushed, together};
use super::rows::RowStates;
use super::sampled_slot::{Drawn, DrawnToken, SampledSlot};
use crate::parallel::{HiddenStates, Ranks, StepError};
use crate::sample::{DrawKey, sample_top_k, top_k_wanted};

/// Rows whose logits are in memory together: bounds them at a vocabulary's width each.
const LOGIT_ROWS_MAX: usize = 64;

/// Samples slots from hidden states of all their rows, in order.
pub(super) fn sample(
    ranks: &mut Ranks,
    rows: &mut RowStates,
    hidden: &HiddenStates,
    slots: &[SampledSlot<'_>],
    outcomes: &mut Vec<RowOutcome>,
) -> Result<(), StepError> {
    if slots.is_empty() {
        return Ok(());
    }
    if let Some(wanted) = wanted(slots) {
        let found = ranks.top_k(hidden, &wanted, rows.ids_end())?;
        let mut rest = &found[..];
        for slot in slots {
            let mut state = rows.take_constraint(slot);
            let (own, behind) = rest.split_at(slot.rows());
            rest = behind;
            let SampleSpec { generation, seed, .. } = slot.spec;
            let drawn = draw_rows(slot, |row, index| {
                let key = DrawKey { seed: *seed, index };
                let token = sample_top_k(ranks.model().cpu(), &own[row], generation, key)?;
                Ok((DrawnToken::plain(token), pushed(&mut state, token, slot.forces)?))
            });
            outcomes.push(rows.outcome(slot, drawn, state));
        }
        return Ok(());
    }
    let (mut done, mut slots) = (0, slots);
    while !slots.is_empty() {
        let (count, logit_rows) = together(slots, LOGIT_ROWS_MAX);
        let (now, later) = slots.split_at(count);
        let logits = ranks.logits(hidden, done..done + logit_rows)?;
        let logits = sample_from_logits(ranks, rows, now, logits, outcomes);
        ranks.keep_logits(logits);
        (done, slots) = (done + logit_rows, later);
    }
    Ok(())
}

/// Samples slots whose logits are in memory together; gives these back, used up.
fn sample_from_logits(
    ranks: &Ranks,
    rows: &mut RowStates,
    slots: &[SampledSlot<'_>],
    mut logits: Vec<f32>,
    outcomes: &mut Vec<RowOutcome>,
) -> Vec<f32> {
    let (vocab, ids_end) = (ranks.model().config().vocab, rows.ids_end());
    let mut states: Vec<_> = slots.iter().map(|slot| rows.take_constraint(slot)).collect();
    let mut rest = &mut logits[..];
    let mut jobs = Vec::with_capacity(slots.len());
    for (slot, state) in slots.iter().zip(&mut states) {
        let (own, behind) = std::mem::take(&mut rest).split_at_mut(slot.rows() * vocab);
        jobs.push((own, slot, (state, rows.adjuster(slot))));
        rest = behind;
    }
    let cpu = ranks.model().cpu();
    let one =
        |(logits, slot, row): (&mut [f32], &SampledSlot<'_>, _)| draw(cpu, (logits, ids_end), slot, row);
    let drawn: Vec<Result<Drawn, RowError>> = cpu.run(|| jobs.into_par_iter().map(one).collect());
    for ((slot, drawn), state) in slots.iter().zip(drawn).zip(states) {
        outcomes.push(rows.outcome(slot, drawn, state));
    }
    logits
}

/// How many of its highest logits each row is sampled from; `None` where any row needs all of them.
fn wanted(slots: &[SampledSlot<'_>]) -> Option<Vec<usize>> {
    let mut rows = Vec::new();
    for slot in slots {
        let generation = &slot.spec.generation;
        let has_logprobs = slot.top_logprobs().is_some();
        let is_plain = generation.constraint.is_none() && !has_logprobs && !slot.is_adjusted();
        let wanted = top_k_wanted(generation).filter(|_| is_plain)?;
        rows.extend(std::iter::repeat_n(wanted, slot.rows()));
    }
    Some(rows)
}
