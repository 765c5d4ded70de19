//! The cost model: two lines from batch to duration (RelServe, Eq. 9), and a third for steps that do both.
//!
//! Integer nanoseconds, so that a plan never depends on rounding. It must not know where the
//! durations were measured.

use base::{Nanos, TokenCount};
use serde::{Deserialize, Serialize};

/// Estimated device time of a prefill batch and of one decode step (RelServe, Eq. 9), and of a step
/// that does both (no equation of the paper: its engine never mixes).
///
/// ```text
/// prefill = a_p * utok + b_p        decode = a_d * req + b_d
/// mixed   = a_d * req + b_d + max(0, a_p * utok - H)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// `a_p`: ns per prompt token that the prefix cache does not supply.
    pub prefill_per_token: Nanos,
    /// `b_p`: ns per prefill step.
    pub prefill_base: Nanos,
    /// `a_d`: ns per sequence of a decode step.
    pub decode_per_sequence: Nanos,
    /// `b_d`: ns per decode step.
    pub decode_base: Nanos,
    /// `H`: ns of prompt work that a mixed step hides behind its decodes. Below `-b_p`, a mixed step
    /// takes longer than a prefill and a decode apart.
    #[serde(default)]
    pub mixed_hidden: i64,
}

impl Default for CostModel {
    /// What the traces use (OPT-13B on one A100-40GB); any real engine is measured first.
    fn default() -> Self {
        Self {
            prefill_per_token: Nanos(100_000),
            prefill_base: Nanos(10_000_000),
            decode_per_sequence: Nanos(450_000),
            decode_base: Nanos(25_000_000),
            mixed_hidden: 15_000_000,
        }
    }
}

/// A measured step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A prefill step.
    Prefill {
        /// Prompt tokens computed.
        tokens: TokenCount,
        /// How long it took.
        elapsed: Nanos,
    },
    /// A decode step.
    Decode {
        /// Rows extended.
        sequences: u64,
        /// How long it took.
        elapsed: Nanos,
    },
    /// A step that does both.
    Mixed {
        /// Prompt tokens computed.
        tokens: TokenCount,
        /// Rows extended.
        sequences: u64,
        /// How long it took.
        elapsed: Nanos,
    },
}

impl CostModel {
    /// `L^prefill(p)` of Eq. 9.
    pub fn prefill(&self, uncached: TokenCount) -> Nanos {
        line(self.prefill_per_token, self.prefill_base, uncached.0)
    }

    /// `L^decode(d)` of Eq. 9.
    pub fn decode(&self, sequences: u64) -> Nanos {
        line(self.decode_per_sequence, self.decode_base, sequences)
    }

    /// The duration of a step of `uncached` prompt tokens and `sequences` decodes; either may be 0.
    pub fn mixed(&self, uncached: TokenCount, sequences: u64) -> Nanos {
        match (uncached.0, sequences) {
            (_, 0) => self.prefill(uncached),
            (0, _) => self.decode(sequences),
            _ => {
                let prompts = i128::from(self.prefill_per_token.0) * i128::from(uncached.0);
                let seen = (prompts - i128::from(self.mixed_hidden)).max(0);
                Nanos(self.decode(sequences).0.saturating_add(u64::try_from(seen).unwrap_or(u64::MAX)))
            }
        }
    }

    /// What a step of `uncached` prompt tokens takes beside these and beside the sequences that decode in it: less
    /// than `b_d` where it hides prompts.
    pub fn mixed_base(&self, uncached: TokenCount) -> Nanos {
        let prompts = self.prefill_per_token.0.saturating_mul(uncached.0);
        let taken = prompts.saturating_add(self.decode_per_sequence.0);
        self.mixed(uncached, 1).saturating_sub(Nanos(taken))
    }

    /// An engine whose steps take `measured` where this one's take `modelled`; the same where either is 0.
    pub fn paced(&self, measured: Nanos, modelled: Nanos) -> Self {
        if measured.0 == 0 || modelled.0 == 0 {
            return *self;
        }
        let (times, over) = (i128::from(measured.0), i128::from(modelled.0));
        let of = |span: Nanos| {
            let span = i128::from(span.0).saturating_mul(times) / over;
            Nanos(u64::try_from(span).unwrap_or(u64::MAX))
        };
        let hidden = i128::from(self.mixed_hidden).saturating_mul(times) / over;
        Self {
            prefill_per_token: of(self.prefill_per_token),
            prefill_base: of(self.prefill_base),
            decode_per_sequence: of(self.decode_per_sequence),
            decode_base: of(self.decode_base),
            mixed_hidden: i64::try_from(hidden).unwrap_or(if hidden < 0 { i64::MIN } else { i64::MAX }),
        }
    }

    /// The same engine, of whose difference `b_d - b_p` a mixed step hides `permille` thousandths
    /// (1000: the roofline; 0: nothing).
    pub fn hiding(self, permille: u64) -> Self {
        let slack = self.decode_base.saturating_sub(self.prefill_base).0;
        let hidden = u128::from(slack) * u128::from(permille) / 1_000;
        Self { mixed_hidden: i64::try_from(hidden).unwrap_or(i64::MAX), ..self }
    }

    /// `H / (b_d - b_p)` in thousandths, for reports; `None` where a decode step has no more overhead
    /// than a prefill.
    pub fn hide_permille(&self) -> Option<i64> {
        let slack = self.decode_base.0.checked_sub(self.prefill_base.0).filter(|slack| *slack > 0)?;
        i64::try_from(i128::from(self.mixed_hidden) * 1_000 / i128::from(slack)).ok()
    }

    /// What one mixed step takes less than a prefill and a decode apart, when its prompts are long: ns,
    /// negative where mixing costs.
    pub fn mixing_saves(&self) -> i64 {
        i64::try_from(self.prefill_base.0).unwrap_or(i64::MAX).saturating_add(self.mixed_hidden)
    }
}

/// `slope * x + base`, at most the longest span.
fn line(slope: Nanos, base: Nanos, x: u64) -> Nanos {
    Nanos(slope.0.saturating_mul(x).saturating_add(base.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_a_mixed_step_falls_by_the_prompts_that_it_hides() {
        let cost = CostModel::default();
        let base = |tokens| cost.mixed_base(TokenCount(tokens)).0 / 1_000_000;
        assert_eq!([0, 50, 150, 2_048].map(base), [25, 20, 10, 10]);
        let costly = CostModel { mixed_hidden: -5_000_000, ..cost };
        assert_eq!(costly.mixed_base(TokenCount(50)), Nanos(30_000_000));
        assert_eq!(costly.mixed_base(TokenCount(0)), Nanos(25_000_000), "nothing is mixed");
    }
}
