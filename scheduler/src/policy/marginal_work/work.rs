//! The marginal-work key: what a relQuery still adds to a machine that others use too.
//!
//! RelServe's estimate (Eq. 10) is the time a relQuery would take alone: it charges every decode step
//! in full, so one row with a long output ranks behind sixty short ones. In a shared batch a row adds
//! its own prompt, its own sequence, and the share of each step that its memory keeps others from.

use base::Nanos;

use crate::breakdown::WorkTime;
use crate::cost::CostModel;

/// What is left of a relQuery, as sums over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prompt tokens to compute.
    pub prompt: u64,
    /// Output tokens to come.
    pub output: u64,
    /// Sum over rows of output tokens to come times tokens that only this row holds.
    pub held_output: u128,
}

/// What a decode step is divided among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Tokens of the KV pool.
    pub kv_tokens: u64,
    /// Rows of a step.
    pub sequences: u64,
}

/// Marginal work of a relQuery, ns.
///
/// ```text
/// a_p * prompt * (1 - hide / 2) + sum over rows of  output(r) * (a_d + b_d * max(held(r) / cap, 1 / mns))
/// ```
///
/// Where mixed steps hide all they can, about half of the prompts of a busy machine rides free.
pub fn marginal_work(cost: &CostModel, work: &Work, capacity: Capacity) -> WorkTime {
    let prompts = u128::from(cost.prefill_per_token.0) * u128::from(work.prompt) * paid(cost) / PAID_MAX;
    let outputs = u128::from(cost.decode_per_sequence.0) * u128::from(work.output);
    let base = u128::from(cost.decode_base.0);
    let by_memory = base * work.held_output / u128::from(capacity.kv_tokens.max(1));
    let by_seats = base * u128::from(work.output) / u128::from(capacity.sequences.max(1));
    WorkTime { prompt: clip(prompts), output: clip(outputs), share: clip(by_memory.max(by_seats)) }
}

/// The prompts of this work where there is nobody in whose steps they could ride, ns.
pub(crate) fn whole_prompt(cost: &CostModel, work: &WorkTime) -> Nanos {
    clip(u128::from(work.prompt.0) * PAID_MAX / paid(cost))
}

/// Of [`PAID_MAX`] parts of a prompt's time, those that it pays on a busy machine: at least half.
fn paid(cost: &CostModel) -> u128 {
    let hide = cost.hide_permille().unwrap_or(0).clamp(0, 1_000).unsigned_abs();
    PAID_MAX - u128::from(hide)
}

const PAID_MAX: u128 = 2_000;

fn clip(value: u128) -> Nanos {
    Nanos(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_pays_for_its_prompt_its_sequence_and_its_share_of_the_memory() {
        // Ten rows of 100 tokens that each decode 20: 1,000 * 0.1 + 200 * 0.45 + 25 * 200 * 110 / 10,000 ms.
        let work = Work { prompt: 1_000, output: 200, held_output: 200 * 110 };
        let capacity = Capacity { kv_tokens: 10_000, sequences: 256 };
        let got = marginal_work(&CostModel::default().hiding(0), &work, capacity).total();
        assert_eq!(got, Nanos(100_000_000 + 90_000_000 + 55_000_000));
        let roomy = Capacity { kv_tokens: u64::MAX, sequences: 256 };
        let got = marginal_work(&CostModel::default(), &work, roomy).total();
        assert_eq!(got, Nanos(140_000_000 + 25_000_000 * 200 / 256), "half of the prompt is hidden");
        let got = marginal_work(&CostModel::default(), &work, roomy);
        assert_eq!(whole_prompt(&CostModel::default(), &got), Nanos(100_000_000), "and none of it alone");
    }
}
