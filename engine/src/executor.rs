//! The local executor: a batch plan through the decoder to sampled tokens and their text.
//!
//! It keeps the text of rows that are not yet retired and where they stand in their constraint, nothing else
//! of a request. It trusts nothing in a plan: what contradicts pool, vocabulary or context is refused before
//! anything is written.

mod adjuster;
mod answer_probability;
mod check;
mod distribution;
mod draw;
mod on_gpus;
mod on_host;
mod prompt_tokens;
mod rows;
mod sampled_slot;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use base::{
    BatchPlan, Bytes, ExecError, Executor, Nanos, PromptOutcome, RowError, RowOutcome, Slot, StepOutcome,
    TokenId,
};

use crate::constraint::Constraints;
use crate::device::cuda::GpuError;
use crate::parallel::{HiddenStates, Ranks, ShardedModel, StepError};
use crate::pool::{PoolError, PoolShape};
use crate::text::TokenText;
use rows::RowStates;
use sampled_slot::SampledSlot;

/// Size of the KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Positions of a block.
    pub block_tokens: u32,
    /// Memory for keys and values.
    pub kv_bytes: Bytes,
}

/// Runs batch plans on this machine.
pub struct LocalExecutor {
    ranks: Ranks,
    /// Blocks of the host tier behind each pool.
    tier_blocks: usize,
    rows: RowStates,
}

impl LocalExecutor {
    /// An executor of a model; `ends` are the model's own end tokens. Allocates the pool.
    pub fn new(
        model: impl Into<ShardedModel>,
        text: Arc<dyn TokenText>,
        ends: Vec<TokenId>,
        settings: PoolSettings,
    ) -> Result<Self, PoolError> {
        let model = model.into();
        let shape = model.pool_shape(settings.block_tokens, settings.kv_bytes)?;
        let ranks = Ranks::start(&model, shape)?;
        Ok(Self { ranks, tier_blocks: 0, rows: RowStates::new(text, ends) })
    }

    /// The same with a host tier of `bytes` behind the pools of all ranks.
    pub fn with_tier(mut self, bytes: Bytes) -> Result<Self, PoolError> {
        self.tier_blocks = self.ranks.add_tier(bytes)?;
        Ok(self)
    }

    /// Blocks of its host tier.
    pub fn tier_blocks(&self) -> usize {
        self.tier_blocks
    }

    /// Extents of its pool, or of each rank's.
    pub fn pool_shape(&self) -> PoolShape {
        self.ranks.pool_shape()
    }

    /// What the pools of all ranks take.
    pub fn kv_bytes(&self) -> Bytes {
        Bytes(self.pool_shape().bytes().0 * self.model().count() as u64)
    }

    /// The model whose ranks it runs.
    pub fn model(&self) -> &ShardedModel {
        self.ranks.model()
    }

    /// What compiles the constraints of its rows.
    pub fn constraints(&self) -> Arc<Constraints> {
        self.rows.constraints()
    }

    /// Rows whose text it keeps.
    pub fn rows_kept(&self) -> usize {
        self.rows.len()
    }

    /// How likely the targets of slots are, and the hidden states of what is sampled.
    fn score_prompts(
        &mut self,
        hidden: HiddenStates,
        slots: &[Slot],
    ) -> Result<(Vec<PromptOutcome>, HiddenStates), StepError> {
        if slots.iter().all(|slot| slot.prompt_targets.is_none()) {
            return Ok((Vec::new(), hidden));
        }
        let Self { ranks, rows, .. } = self;
        let (targets, sampled) = hidden.split(prompt_tokens::count(slots));
        let prompts = prompt_tokens::score(ranks, (rows.text(), rows.ids_end()), &targets, slots)?;
        Ok((prompts, sampled))
    }

    /// Samples computed slots, those of a step that ask for it.
    fn sample(
        &mut self,
        hidden: &HiddenStates,
        sampled: &[SampledSlot<'_>],
    ) -> Result<Vec<RowOutcome>, StepError> {
        let mut outcomes = Vec::with_capacity(sampled.len());
        let Self { ranks, rows, .. } = self;
        match ranks.on_gpus() {
            // What comes back says how long the step took, and that it was computed.
            Some(mut gpus) if sampled.is_empty() => gpus.wait()?,
            Some(mut gpus) => on_gpus::sample(&mut gpus, rows, (sampled, hidden.first()), &mut outcomes)?,
            None => on_host::sample(ranks, rows, hidden, sampled, &mut outcomes)?,
        }
        Ok(outcomes)
    }
}

/// The slots that are computed: where a row begins with tokens that nobody draws, these are no guesses, and no logits
/// are made at them. `lengths` says how many of each slot they are.
fn without_openings<'a>(slots: &'a [Slot], lengths: &[usize]) -> Cow<'a, [Slot]> {
    if lengths.iter().all(|length| *length == 0) {
        return Cow::Borrowed(slots);
    }
    let slots = slots.iter().zip(lengths);
    slots.map(|(slot, length)| Slot { guesses: slot.guesses - *length as u32, ..slot.clone() }).collect()
}

/// Slots whose row has failed by what may be a guess, without their guesses. A token of which a model makes
/// no numbers spoils what is computed beside it, the tokens before it too: a product with nothing of it is
/// still not a number.
fn without_guesses<'a>(slots: &'a [Slot], rows: &'a [RowOutcome]) -> impl Iterator<Item = Slot> + 'a {
    let failed = |slot: &&Slot| {
        let result = rows.iter().find(|row| row.request == slot.request).map(|row| &row.result);
        slot.guesses > 0 && matches!(result, Some(Err(RowError::NotANumber)))
    };
    slots.iter().filter(failed).map(|slot| {
        let known = slot.input.len() - slot.guesses as usize;
        Slot { input: slot.input[..known].to_vec(), guesses: 0, prompt_targets: None, ..slot.clone() }
    })
}

/// A step that cannot be computed. A GPU with too little memory for it has enough for a smaller one, and no
/// row has gone on yet; whatever else fails leaves nothing to rely on.
fn failed(error: StepError) -> ExecError {
    match error {
        StepError::Gpu(GpuError::OutOfMemory { .. }) => ExecError::Failed(error.to_string()),
        error => lost(error),
    }
}

/// A step that fails when some rows have gone on and others have not, or their blocks are anywhere.
fn lost(error: StepError) -> ExecError {
    ExecError::Lost(error.to_string())
}

impl Executor for LocalExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let start = Instant::now();
        self.rows.retire(&plan.retired);
        check::check(plan, self.model().config(), self.pool_shape()).map_err(ExecError::BadPlan)?;
        check::check_moves(plan, self.pool_shape(), self.tier_blocks).map_err(ExecError::BadPlan)?;
        self.rows.resume(&plan.slots);
        self.ranks.move_blocks(&plan.moves).map_err(lost)?;
        let openings: Vec<usize> = plan.slots.iter().map(|slot| self.rows.opening_len(slot)).collect();
        let slots = without_openings(&plan.slots, &openings);
        let hidden = self.ranks.forward(&slots).map_err(failed)?;
        let (prompts, hidden) = self.score_prompts(hidden, &slots).map_err(failed)?;
        let sampled: Vec<SampledSlot<'_>> = slots
            .iter()
            .zip(openings)
            .filter_map(|(slot, opening)| SampledSlot::of(slot, opening, true))
            .collect();
        let mut rows = self.sample(&hidden, &sampled).map_err(lost)?;
        let again: Vec<Slot> = without_guesses(&plan.slots, &rows).collect();
        if !again.is_empty() {
            // The scheduler takes what begins the guesses for computed, and here it is not: nothing may
            // follow the drawn token.
            let hidden = self.ranks.forward(&again).map_err(lost)?;
            let sampled: Vec<SampledSlot<'_>> =
                again.iter().filter_map(|slot| SampledSlot::of(slot, 0, false)).collect();
            for outcome in self.sample(&hidden, &sampled).map_err(lost)? {
                rows.iter_mut()
                    .filter(|row| row.request == outcome.request)
                    .for_each(|row| *row = outcome.clone());
            }
        }
        let elapsed = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(StepOutcome { step: plan.step, elapsed, rows, prompts })
    }
}
