//! An executor in virtual time: durations from a cost model, output lengths from a table.

use std::collections::BTreeMap;

use base::{BatchPlan, End, ExecError, Executor, RowOutcome, Sampled, Slot, StepOutcome, TokenId};
use scheduler::CostModel;

/// Runs plans by arithmetic.
#[derive(Clone, Debug)]
pub struct SimExecutor {
    cost: CostModel,
    /// True output length by row seed. The scheduler never sees it.
    lengths: BTreeMap<u64, u64>,
}

impl SimExecutor {
    /// An executor as fast as `cost` says.
    pub fn new(cost: CostModel) -> Self {
        Self { cost, lengths: BTreeMap::new() }
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
        let sampled = Sampled::one(TokenId(word as u32), format!("w{word} "), end);
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }
}

impl Executor for SimExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let sequences = plan.decode_sequences() + plan.guesses();
        let elapsed = self.cost.mixed(plan.prefill_tokens() + plan.decode_extra(), sequences);
        let rows = plan.slots.iter().filter_map(|slot| self.sample(slot)).collect();
        Ok(StepOutcome { step: plan.step, elapsed, rows })
    }
}
