//! Priorities: the key that orders relQueries, and the two formulas that give its number.
//!
//! Pure functions over counts; who computes them when is `update.rs`.

use base::{Nanos, RelQueryId, ServiceClass, Time, TokenCount};

use crate::breakdown::Estimate;
use crate::config::SchedulerConfig;
use crate::cost::CostModel;
use crate::decompose::Batches;
use crate::miss_ratio::MissRatio;

/// The order of relQueries: smaller goes first. Total and unique, so that no decision hangs on a tie
/// (RelServe's Eq. 14 compares numbers alone; DESIGN 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelQueryKey {
    /// Who waits; always `Interactive` where classes do not count.
    pub class: ServiceClass,
    /// Whether it may wait for those that need less; what is late goes before (`tail`).
    pub is_on_time: bool,
    /// Prio(R) in ns; 0 under the first-come policies.
    pub priority: u64,
    /// When the relQuery arrived.
    pub arrival: Time,
    /// Its id, in the order of submission.
    pub id: RelQueryId,
}

impl RelQueryKey {
    /// The key under these settings.
    pub(crate) fn new(
        config: &SchedulerConfig,
        class: ServiceClass,
        priority: Nanos,
        arrival: Time,
        id: RelQueryId,
    ) -> Self {
        let class = if config.is_fair() { class } else { ServiceClass::Interactive };
        let priority = if config.policy.is_prioritised() { priority.0 } else { 0 };
        Self { class, is_on_time: true, priority, arrival, id }
    }

    /// The same of a relQuery that `is_late`.
    pub(crate) fn late(self, is_late: bool) -> Self {
        Self { is_on_time: !is_late, ..self }
    }
}

/// Sequences among which the static key shares a decode step: a typical batch of the traces.
const STATIC_SHARE: u64 = 64;

/// Priority that never changes, of the paper's static baseline with linear L1 and L2 (RelServe, Eq. 6-7).
///
/// ```text
/// Prio(R) = sum over r in R of  a_p * tok(r) + (a_d + b_d / 64) * OL(r)
/// ```
///
/// `prompt` is the sum of tok(r), `output_max` the sum of OL(r).
pub fn static_priority(cost: &CostModel, prompt: TokenCount, output_max: TokenCount) -> Nanos {
    let prompts = u128::from(cost.prefill_per_token.0) * u128::from(prompt.0);
    let share =
        u128::from(STATIC_SHARE) * u128::from(cost.decode_per_sequence.0) + u128::from(cost.decode_base.0);
    let outputs = share * u128::from(output_max.0) / u128::from(STATIC_SHARE);
    clip(prompts + outputs)
}

/// Remaining duration of a relQuery from its batches (RelServe, Eq. 10; corrected as DESIGN 9 says).
///
/// ```text
/// PEM(R) = sum over prefill batches of (a_p * utok + b_p) + sum over decode steps of (a_d * req + b_d)
/// ```
pub fn estimate(cost: &CostModel, batches: &Batches, ratio: MissRatio) -> Estimate {
    let tokens = u128::from(cost.prefill_per_token.0) * batches.prefill_tokens.floor_scaled();
    let tokens = tokens / batches.prefill_tokens.denominator();
    let prefill_bases = u128::from(cost.prefill_base.0) * u128::from(batches.prefill_batches);
    let decode_bases = u128::from(cost.decode_base.0) * u128::from(batches.decode_steps);
    let sequences = u128::from(cost.decode_per_sequence.0) * u128::from(batches.decode_sequences);
    Estimate {
        prefill_tokens: clip(tokens),
        prefill_bases: clip(prefill_bases),
        decode_bases: clip(decode_bases),
        decode_sequences: clip(sequences),
        missed: ratio.missed(),
        sampled: ratio.total(),
    }
}

fn clip(value: u128) -> Nanos {
    Nanos(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_priority_is_linear_in_prompts_and_outputs() {
        // 3 rows of 140 tokens with OL 5: 420 * 1e-4 + 15 * (4.5e-4 + 0.025 / 64) s.
        let got = static_priority(&CostModel::default(), TokenCount(420), TokenCount(15));
        assert_eq!(got, Nanos(42_000_000 + 6_750_000 + 5_859_375));
    }

    #[test]
    fn keys_are_ordered_by_class_then_priority_then_arrival_then_id() {
        let key = |class, priority, arrival, id| {
            RelQueryKey::new(
                &SchedulerConfig { policy: crate::Policy::MarginalWork, ..SchedulerConfig::default() },
                class,
                Nanos(priority),
                Time(arrival),
                RelQueryId(id),
            )
        };
        let first = key(ServiceClass::Interactive, 9, 9, 9);
        assert!(first < key(ServiceClass::Bulk, 0, 0, 0));
        assert!(first < key(ServiceClass::Interactive, 10, 0, 0));
        assert!(first < key(ServiceClass::Interactive, 9, 10, 0));
        assert!(first < key(ServiceClass::Interactive, 9, 9, 10));
    }
}
