//! An executor in virtual time: durations from a cost model, output lengths from a table.

use std::collections::BTreeMap;

use base::{BatchPlan, End, ExecError, Executor, Nanos, RowOutcome, Sampled, Slot, StepOutcome, TokenId};
use scheduler::CostModel;

use crate::trace::Lowered;

/// How a row's output comes about.
#[derive(Clone, Copy, Debug)]
struct OutputLength {
    /// Tokens, the end token included.
    tokens: u64,
    /// Steps that give them; 0: one a token.
    samplings: u64,
}

impl OutputLength {
    /// Tokens that a step adds to so many: each step adds alike, to the whole token.
    fn next(self, before: u64) -> u64 {
        let steps = self.samplings.min(self.tokens);
        if steps == 0 || before >= self.tokens {
            return 1;
        }
        let after = |step: u64| self.tokens.saturating_mul(step) / steps;
        let step = before.saturating_mul(steps) / self.tokens;
        let reached = (step..=steps).map(after).find(|reached| *reached > before);
        reached.map_or(1, |reached| reached - before)
    }
}

/// Runs plans by arithmetic.
#[derive(Clone, Debug)]
pub struct SimExecutor {
    cost: CostModel,
    /// What a block takes on its way to the host tier or back.
    move_per_block: Nanos,
    /// True output length by row seed. The scheduler never sees it.
    lengths: BTreeMap<u64, OutputLength>,
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
        self.lengths.insert(seed, OutputLength { tokens, samplings: 0 });
    }

    /// Tells in how many steps a row whose length is told produces its tokens: fewer than tokens where
    /// constraints force some or guesses come true. 0: one a token.
    pub fn set_samplings(&mut self, seed: u64, samplings: u64) {
        if let Some(length) = self.lengths.get_mut(&seed) {
            length.samplings = samplings;
        }
    }

    /// Tells all that a trace says of its rows' outputs.
    pub fn set_outputs(&mut self, lowered: &Lowered) {
        lowered.lengths.iter().for_each(|(seed, tokens)| self.set_length(*seed, *tokens));
        lowered.samplings.iter().for_each(|(seed, samplings)| self.set_samplings(*seed, *samplings));
    }

    fn sample(&self, slot: &Slot) -> Option<RowOutcome> {
        let spec = slot.sample.as_ref()?;
        let before = u64::from(spec.output_index);
        let limit = spec.generation.output_max.0;
        let length = self.lengths.get(&spec.seed);
        let more = length.map_or(1, |length| length.next(before)).min(limit.saturating_sub(before)).max(1);
        let output = before + more;
        let is_over = length.is_some_and(|length| output >= length.tokens);
        let end = match (output >= limit, is_over) {
            (true, _) => Some(End::Length),
            (false, true) => Some(End::Stop),
            (false, false) => None,
        };
        let word = |output: u64| (spec.seed.wrapping_mul(31) + output) % 1_000;
        let text = if self.is_mute { String::new() } else { format!("w{} ", word(output)) };
        let tokens = (before + 1..=output).map(|output| TokenId(word(output) as u32)).collect();
        Some(RowOutcome {
            request: slot.request,
            result: Ok(Sampled { tokens, text, end, ..Sampled::default() }),
        })
    }
}

impl Executor for SimExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let sequences = plan.decode_sequences() + plan.guesses();
        let moved = (plan.moves.out.len() + plan.moves.back.len()) as u64;
        let work = self.cost.mixed(plan.prefill_tokens() + plan.decode_extra(), sequences);
        let elapsed = Nanos(work.0 + self.move_per_block.0 * moved);
        let rows = plan.slots.iter().filter_map(|slot| self.sample(slot)).collect();
        Ok(StepOutcome { step: plan.step, elapsed, rows, prompts: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gets_its_tokens_in_as_many_steps_as_it_is_told_to() {
        for (tokens, samplings, steps) in [(7, 0, 7), (7, 7, 7), (7, 2, 2), (7, 3, 3), (5, 1, 1), (3, 9, 3)] {
            let length = OutputLength { tokens, samplings };
            let (mut before, mut taken) = (0, 0);
            while before < tokens {
                before += length.next(before);
                taken += 1;
            }
            assert_eq!((before, taken), (tokens, steps), "{tokens} tokens in {samplings} samplings");
        }
        let interrupted = OutputLength { tokens: 9, samplings: 3 };
        assert_eq!(interrupted.next(4), 2, "from anywhere to the next whole step");
    }
}
