//! The cost model: two lines from batch to duration (RelServe, Eq. 9), and a third for steps that do both.
//!
//! Integer nanoseconds, so that a plan never depends on rounding. It must not know where the
//! durations were measured.

use base::{Nanos, TokenCount};
use serde::{Deserialize, Serialize};

/// Most sequences of a step of few rows, of which what it hides may be told apart ([`CostModel::mixed_hidden_few`]).
pub const FEW_SEQUENCES: u32 = 8;

/// Estimated device time of a prefill batch and of one decode step (RelServe, Eq. 9), and of a step
/// that does both (no equation of the paper: its engine never mixes).
///
/// ```text
/// prefill = a_p * utok + b_p        decode = a_d * req + b_d
/// mixed   = a_d * req + b_d + max(0, a_p * utok - H(req))
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
    /// `H` beside [`FEW_SEQUENCES`] sequences at most, where it was measured apart. Most of what few rows cost is
    /// reading the weights, which a mixed step does once; many rows keep the arithmetic busy that prompts need.
    /// `None`: as beside many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_hidden_few: Option<i64>,
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
            mixed_hidden_few: None,
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
                let seen = (prompts - i128::from(self.hidden_beside(sequences))).max(0);
                Nanos(self.decode(sequences).0.saturating_add(u64::try_from(seen).unwrap_or(u64::MAX)))
            }
        }
    }

    /// `H` beside so many sequences.
    pub fn hidden_beside(&self, sequences: u64) -> i64 {
        let is_few = sequences <= u64::from(FEW_SEQUENCES);
        self.mixed_hidden_few.filter(|_| is_few).unwrap_or(self.mixed_hidden)
    }

    /// What a step of `uncached` prompt tokens takes beside these and beside the few sequences that decode in it: less
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
        let hidden = |span: i64| {
            let span = i128::from(span).saturating_mul(times) / over;
            i64::try_from(span).unwrap_or(if span < 0 { i64::MIN } else { i64::MAX })
        };
        Self {
            prefill_per_token: of(self.prefill_per_token),
            prefill_base: of(self.prefill_base),
            decode_per_sequence: of(self.decode_per_sequence),
            decode_base: of(self.decode_base),
            mixed_hidden: hidden(self.mixed_hidden),
            mixed_hidden_few: self.mixed_hidden_few.map(hidden),
        }
    }

    /// The same engine, of whose difference `b_d - b_p` a mixed step hides `permille` thousandths
    /// (1000: the roofline; 0: nothing), beside however many sequences.
    pub fn hiding(self, permille: u64) -> Self {
        let slack = self.decode_base.saturating_sub(self.prefill_base).0;
        let hidden = u128::from(slack) * u128::from(permille) / 1_000;
        let mixed_hidden = i64::try_from(hidden).unwrap_or(i64::MAX);
        Self { mixed_hidden, mixed_hidden_few: None, ..self }
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
        self.saved_by(self.mixed_hidden)
    }

    /// The same of a step of few rows.
    pub fn mixing_few_saves(&self) -> i64 {
        self.saved_by(self.hidden_beside(1))
    }

    fn saved_by(&self, hidden: i64) -> i64 {
        i64::try_from(self.prefill_base.0).unwrap_or(i64::MAX).saturating_add(hidden)
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

    #[test]
    fn few_rows_hide_what_was_measured_beside_few_and_many_what_was_beside_many() {
        let apart = CostModel {
            mixed_hidden: -12_000_000,
            mixed_hidden_few: Some(15_000_000),
            ..CostModel::default()
        };
        let beside = |cost: &CostModel, rows| {
            let over_decode = cost.mixed(TokenCount(400), rows).saturating_sub(cost.decode(rows));
            over_decode.0 / 1_000_000
        };
        assert_eq!([1, 8, 9, 64].map(|rows| beside(&apart, rows)), [25, 25, 52, 52]);
        assert_eq!((apart.mixing_saves(), apart.mixing_few_saves()), (-2_000_000, 25_000_000));
        let alike = CostModel { mixed_hidden_few: None, ..apart };
        assert_eq!([1, 64].map(|rows| beside(&alike, rows)), [52, 52], "nothing was told apart");
        assert_eq!(alike.mixing_few_saves(), -2_000_000);
        let twice = apart.paced(Nanos(2), Nanos(1));
        assert_eq!((twice.mixed_hidden, twice.mixed_hidden_few), (-24_000_000, Some(30_000_000)));
        assert_eq!(apart.hiding(1_000), CostModel::default(), "the roofline knows no few rows");
    }

    #[test]
    fn a_model_from_before_few_rows_were_told_apart_opens_and_is_written_as_it_was() {
        let before = r#"{"prefill_per_token":1,"prefill_base":2,"decode_per_sequence":3,"decode_base":4,"mixed_hidden":-5}"#;
        let cost: CostModel = serde_json::from_str(before).expect("a model of an earlier version");
        assert_eq!((cost.mixed_hidden, cost.mixed_hidden_few, cost.hidden_beside(1)), (-5, None, -5));
        assert_eq!(serde_json::to_string(&cost).expect("plain numbers"), before);
        let apart = CostModel { mixed_hidden_few: Some(7), ..cost };
        let text = serde_json::to_string(&apart).expect("plain numbers");
        assert_eq!(serde_json::from_str::<CostModel>(&text).expect("what was written"), apart);
    }
}
