//! The latency trade-off of the transitional case (RelServe, section 4.3, Eq. 15-17).
//!
//! Pure functions over counts; `choose.rs` builds the candidates and asks.

use base::{Nanos, TokenCount};

use crate::cost::CostModel;
use crate::paper_variant::DeltaReading;

/// The candidate prefill batch `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `utok(p)`.
    pub uncached: TokenCount,
    /// `req(p)`.
    pub rows: u64,
    /// `OL(p)`.
    pub output_max: u64,
}

/// What prefilling first would change, in ns summed over relQueries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// What running relQueries lose (Eq. 15).
    pub running: u64,
    /// What waiting relQueries gain (Eq. 16).
    pub waiting: u64,
    /// Whether the gain is taken off or added.
    pub reading: DeltaReading,
}

impl Delta {
    /// `running - waiting` (Eq. 17, with the sign of Figure 8; DESIGN 9), or the sum as printed.
    pub fn total(&self) -> i128 {
        let (running, waiting) = (i128::from(self.running), i128::from(self.waiting));
        match self.reading {
            DeltaReading::Figure8 => running - waiting,
            DeltaReading::AsPrinted => running + waiting,
        }
    }

    /// Whether prefilling first lowers the mean latency.
    pub fn favours_prefill(&self) -> bool {
        self.total() < 0
    }
}

/// What running relQueries lose when `p` goes first (RelServe, Eq. 15).
///
/// ```text
/// sum over R in R+ of  [ L_prefill(p) + a_d * req(p) * min(OL(R), OL(p)) ]
/// ```
pub fn running_loss(cost: &CostModel, candidate: Candidate, running: impl Iterator<Item = u64>) -> Nanos {
    let losses = running.map(|output_max| {
        let (prefill, sequences) = loss(cost, candidate, output_max);
        prefill.0.saturating_add(sequences.0)
    });
    Nanos(losses.fold(0, u64::saturating_add))
}

/// One term of Eq. 15: what a running relQuery with this output limit loses to the prefill itself, and to
/// the sequences it adds to later steps.
pub fn loss(cost: &CostModel, candidate: Candidate, output_max: u64) -> (Nanos, Nanos) {
    let per_step = cost.decode_per_sequence.0.saturating_mul(candidate.rows);
    let sequences = per_step.saturating_mul(output_max.min(candidate.output_max));
    (cost.prefill(candidate.uncached), Nanos(sequences))
}

/// What waiting relQueries gain when `p` goes first (RelServe, Eq. 16).
///
/// ```text
/// |R-| * b_d * min(OL(p), max over R in R+ of OL(R))
/// ```
pub fn waiting_gain(cost: &CostModel, candidate: Candidate, waiting: u64, running_max: u64) -> Nanos {
    let steps = candidate.output_max.min(running_max);
    Nanos(cost.decode_base.0.saturating_mul(waiting).saturating_mul(steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delta_of_the_hand_computed_trace() {
        let cost = CostModel::default();
        let candidate = Candidate { uncached: TokenCount(120), rows: 2, output_max: 10 };
        let delta = Delta {
            running: running_loss(&cost, candidate, std::iter::once(5)).0,
            waiting: waiting_gain(&cost, candidate, 1, 5).0,
            reading: DeltaReading::Figure8,
        };
        assert_eq!(delta.total(), -98_500_000);
        assert!(delta.favours_prefill());
        let printed = Delta { reading: DeltaReading::AsPrinted, ..delta };
        assert_eq!(printed.total(), 151_500_000);
    }
}
