//! Sampling where logits stay on GPUs: these are asked for what each row's draw needs of them, in one look at
//! all rows.

use std::collections::HashMap;
use std::sync::Arc;

use base::{RowError, RowOutcome, SampleSpec, TokenId};
use llguidance::toktrie::SimpleVob;

use super::draw::{allowed, draw, draw_rows, forbid_others, pushed, together};
use super::rows::{RowConstraint, RowStates};
use super::sampled_slot::{DrawnToken, SampledSlot};
use crate::decoder::{LogitQueries, SampleQuery};
use crate::parallel::{GpuRanks, RowDraw, RowStats, StepError};
use crate::sample::{DrawFrom, DrawKey, sample as sample_logits, sample_nucleus, sample_query, sample_top_k};

/// Rows that are looked at together: bounds the memory of logits on the device.
const QUERIED_ROWS_MAX: usize = 256;

/// A row's mask: tokens that may be drawn; `None` where all may.
type Mask = Option<Arc<SimpleVob>>;

/// The token of a row; `None` where its slot is sampled as a whole.
type RowToken = Option<Result<TokenId, RowError>>;

/// A row of logits, and what is asked of it.
struct QueriedRow<'a> {
    spec: &'a SampleSpec,
    key: DrawKey,
    /// `None`: its slot is sampled as a whole, from logits.
    from: Option<DrawFrom>,
    query: SampleQuery,
    mask: Mask,
}

/// Samples slots, all of the step's, whose rows begin with number `done` of those that it keeps.
pub(super) fn sample(
    gpus: &mut GpuRanks<'_>,
    rows: &mut RowStates,
    (mut slots, mut done): (&[SampledSlot<'_>], usize),
    outcomes: &mut Vec<RowOutcome>,
) -> Result<(), StepError> {
    while !slots.is_empty() {
        let (count, logit_rows) = together(slots, QUERIED_ROWS_MAX);
        let (now, later) = slots.split_at(count);
        sample_together(gpus, rows, done, now, outcomes)?;
        (done, slots) = (done + logit_rows, later);
    }
    Ok(())
}

/// Samples slots whose rows are looked at together, the first of them row `first` of the step.
fn sample_together(
    gpus: &mut GpuRanks<'_>,
    rows: &mut RowStates,
    first: usize,
    slots: &[SampledSlot<'_>],
    outcomes: &mut Vec<RowOutcome>,
) -> Result<(), StepError> {
    let ids_end = rows.ids_end();
    let mut states: Vec<RowConstraint> = slots.iter().map(|slot| rows.take_constraint(slot)).collect();
    let masks: Vec<Result<Mask, RowError>> = slots
        .iter()
        .zip(&mut states)
        .map(|(slot, state)| if is_whole(slot) { Ok(None) } else { allowed(state) })
        .collect();
    let mut queried: Vec<QueriedRow<'_>> =
        slots.iter().zip(&masks).flat_map(|(slot, mask)| queried_rows(slot, mask)).collect();
    let distinct = number_masks(&mut queried);
    let bits: Vec<&[u32]> = distinct.iter().map(|mask| mask.as_slice()).collect();
    let queries: Vec<SampleQuery> = queried.iter().map(|row| row.query).collect();
    let found = gpus.query_logits(LogitQueries { first, queries: &queries, ids_end, masks: &bits })?;
    let tokens = row_tokens(gpus, &queried, &found, ids_end)?;
    let mut at = 0;
    for ((slot, mut state), mask) in slots.iter().zip(states).zip(masks) {
        let own = at..at + slot.rows();
        at = own.end;
        let drawn = if is_whole(slot) {
            let mut logits = gpus.queried_logits(own)?;
            draw(gpus.cpu(), (&mut logits, ids_end), slot, (&mut state, rows.adjuster(slot)))
        } else {
            mask.and_then(|_| {
                draw_rows(slot, |row, _| {
                    let token = tokens[own.start + row].clone().expect("its slot is not sampled as a whole");
                    let token = token?;
                    Ok((DrawnToken::plain(token), pushed(&mut state, token, slot.forces)?))
                })
            })
        };
        outcomes.push(rows.outcome(slot, drawn, state));
    }
    Ok(())
}

/// Whether all of a slot's logits are needed: behind a guess nobody knows yet what a constraint allows, and
/// probabilities are of all; so is what chooses an answer by them, and what changes them is done on the processor.
fn is_whole(slot: &SampledSlot<'_>) -> bool {
    let is_scored = slot.spec.generation.scoring.is_some();
    let is_changed = slot.is_adjusted() || is_scored;
    (slot.is_constrained() && slot.rows() > 1) || slot.top_logprobs().is_some() || is_changed
}

/// A slot's rows, and what is asked of each.
fn queried_rows<'a>(
    slot: &'a SampledSlot<'_>,
    mask: &Result<Mask, RowError>,
) -> impl Iterator<Item = QueriedRow<'a>> + use<'a> {
    let (from, query) = match is_whole(slot) {
        true => (None, SampleQuery::default()),
        false => {
            let (from, query) = sample_query(&slot.spec.generation);
            (Some(from), query)
        }
    };
    let (spec, mask) = (slot.spec, mask.clone().ok().flatten());
    (slot.first_index()..).take(slot.rows()).map(move |index| {
        let key = DrawKey { seed: spec.seed, index };
        QueriedRow { spec, key, from, query, mask: mask.clone() }
    })
}

/// The token of each row, but of those whose slots are sampled as a whole.
fn row_tokens(
    gpus: &mut GpuRanks<'_>,
    rows: &[QueriedRow<'_>],
    found: &[RowStats],
    ids_end: usize,
) -> Result<Vec<RowToken>, StepError> {
    let is_sound = |row: usize| found[row].whole.top_k.kept().is_some();
    let draws: Vec<RowDraw<'_>> = (0..rows.len())
        .filter(|row| rows[*row].from == Some(DrawFrom::All) && is_sound(*row))
        .map(|row| {
            let QueriedRow { key, query, .. } = &rows[row];
            RowDraw { row, stats: &found[row], query: *query, uniform: key.uniform() }
        })
        .collect();
    let mut drawn = gpus.draw(&draws, ids_end)?.into_iter();
    let mut tokens = Vec::with_capacity(rows.len());
    for (at, (row, found)) in rows.iter().zip(found).enumerate() {
        let (generation, key, cpu) = (&row.spec.generation, row.key, gpus.cpu());
        let top_k = &found.whole.top_k;
        let Some(from) = row.from else {
            tokens.push(None);
            continue;
        };
        let token = match from {
            DrawFrom::TopK => sample_top_k(cpu, top_k, generation, key).map(Some),
            DrawFrom::All if !is_sound(at) => Err(RowError::NotANumber),
            // None: at a temperature next to nothing weights are no numbers.
            DrawFrom::All => Ok(drawn.next().expect("one for each draw").map(TokenId)),
            DrawFrom::Nucleus => sample_nucleus(cpu, (top_k, found.whole.sum), generation, key),
            DrawFrom::Logits => Ok(None),
        };
        tokens.push(Some(match token {
            Ok(None) => {
                let mut logits = gpus.queried_logits(at..at + 1)?;
                if let Some(mask) = &row.mask {
                    forbid_others(&mut logits, mask);
                }
                sample_logits(gpus.cpu(), &mut logits, ids_end, generation, key)
            }
            Ok(Some(token)) => Ok(token),
            Err(error) => Err(error),
        }));
    }
    Ok(tokens)
}

/// The masks of all rows, each once: rows of a relQuery begin with the same one. A row's query then has its
/// mask's number.
fn number_masks(rows: &mut [QueriedRow<'_>]) -> Vec<Arc<SimpleVob>> {
    let mut masks: Vec<Arc<SimpleVob>> = Vec::new();
    let mut numbers = HashMap::new();
    for QueriedRow { mask, query, .. } in rows {
        query.mask = mask.as_ref().map(|mask| {
            *numbers.entry(Arc::as_ptr(mask)).or_insert_with(|| {
                masks.push(Arc::clone(mask));
                masks.len() - 1
            })
        });
    }
    masks
}
