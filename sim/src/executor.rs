//! An executor in virtual time: durations from a cost model, output lengths from a table.

use std::collections::BTreeMap;

use base::{
    BatchPlan, End, ExecError, Executor, Nanos, RowOutcome, Sampled, Slot, StepOutcome, TokenCount, TokenId,
};
use scheduler::CostModel;

/// Runs plans by arithmetic.
#[derive(Clone, Debug)]
pub struct SimExecutor {
    cost: CostModel,
    hide_permille: u64,
    /// True output length by row seed. The scheduler never sees it.
    lengths: BTreeMap<u64, u64>,
}

impl SimExecutor {
    /// An executor as fast as `cost` says, of whose difference `b_d - b_p` a mixed step hides
    /// `hide_permille` thousandths behind its decodes (1000: the roofline; 0: nothing).
    pub fn new(cost: CostModel, hide_permille: u64) -> Self {
        Self { cost, hide_permille, lengths: BTreeMap::new() }
    }

    /// Tells how many tokens, the end token included, the row with this seed produces. A row that is
    /// not told of runs to its limit.
    pub fn set_length(&mut self, seed: u64, tokens: u64) {
        self.lengths.insert(seed, tokens);
    }

    /// Duration of an iteration of `uncached` prompt tokens and `sequences` decodes.
    ///
    /// ```text
    /// mixed = b_d + a_d * n + max(0, a_p * u - hide * (b_d - b_p))
    /// ```
    pub fn duration(&self, uncached: TokenCount, sequences: u64) -> Nanos {
        match (uncached.0, sequences) {
            (_, 0) => self.cost.prefill(uncached),
            (0, _) => self.cost.decode(sequences),
            _ => {
                let slack = self.cost.decode_base.saturating_sub(self.cost.prefill_base).0;
                let hidden = Nanos(slack.saturating_mul(self.hide_permille) / 1_000);
                let prompts = Nanos(self.cost.prefill_per_token.0.saturating_mul(uncached.0));
                self.cost.decode(sequences) + prompts.saturating_sub(hidden)
            }
        }
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
        let sampled = Sampled { token: TokenId(word as u32), text: format!("w{word} "), end };
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }
}

impl Executor for SimExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let elapsed = self.duration(plan.prefill_tokens(), plan.decode_sequences());
        let rows = plan.slots.iter().filter_map(|slot| self.sample(slot)).collect();
        Ok(StepOutcome { step: plan.step, elapsed, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixed_step_hides_as_much_as_it_is_told_to() {
        let cost = CostModel::default();
        let hidden = SimExecutor::new(cost, 1_000).duration(TokenCount(120), 3);
        let bare = SimExecutor::new(cost, 0).duration(TokenCount(120), 3);
        assert_eq!((hidden, bare), (Nanos(26_350_000), Nanos(38_350_000)));
    }
}
