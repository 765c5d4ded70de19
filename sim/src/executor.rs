//! An executor in virtual time: durations from a cost model, output lengths from a table.

use std::collections::BTreeMap;

use base::{BatchPlan, End, ExecError, Executor, Nanos, RowOutcome, Sampled, Slot, StepOutcome, TokenId};
use scheduler::CostModel;

/// Runs plans by arithmetic.
#[derive(Clone, Debug)]
pub struct SimExecutor {
    cost: CostModel,
    /// What a block takes on its way to the host tier or back.
    move_per_block: Nanos,
    /// True output length by row seed. The scheduler never sees it.
    lengths: BTreeMap<u64, u64>,
    is_mute: bool,
}

impl SimExecutor {
    /// An executor as fast as `cost` says.
    pub fn new(cost: CostModel) -> Self {
        Self { cost, move_per_block: Nanos(0), lengths: BTreeMap::new(), is_mute: false }
    }

    /// Its tokens have no text from now on, for those who read none.
    pub fn mute(&mut self) {
        self.is_mute = true;
    }

    /// Tells what moving a block takes; nothing where that is not told. A step's moves come before its work,
    /// and nothing of them is hidden behind it.
    pub fn set_move(&mut self, per_block: Nanos) {
        self.move_per_block = per_block;
    }

    /// Tells how many tokens, the end token included, the row with this seed produces. A row that is
    /// not told of runs to its limit.
    pub fn set_length(&mut self, seed: u64, tokens: u64) {
        self.lengths.insert(seed, tokens);
    }

    fn sample(&self, slot: &Slot) -> Option<RowOutcome> {
        let spec = slot.sample.as_ref()?;
        let output = u64::from(spec.output_index) + 1;
        let limit = spec.generation.output_max.0;
        let is_over = self.lengths.get(&spec.seed).is_some_and(|length| output >= *length);
        let end = match (output >= limit, is_over) {
            (true, _) => Some(End::Length),
            (false, true) => Some(End::Stop),
            (false, false) => None,
        };
        let word = (spec.seed.wrapping_mul(31) + output) % 1_000;
        let text = if self.is_mute { String::new() } else { format!("w{word} ") };
        let sampled = Sampled::one(TokenId(word as u32), text, end);
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }
}

impl Executor for SimExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let sequences = plan.decode_sequences() + plan.guesses();
        let moved = (plan.moves.out.len() + plan.moves.back.len()) as u64;
        let work = self.cost.mixed(plan.prefill_tokens() + plan.decode_extra(), sequences);
        let elapsed = Nanos(work.0 + self.move_per_block.0 * moved);
        let rows = plan.slots.iter().filter_map(|slot| self.sample(slot)).collect();
        Ok(StepOutcome { step: plan.step, elapsed, rows })
    }
}
