//! `auto`: which policies it chooses among, with which it begins, and its settings.
//!
//! It is no formula of its own. The simulator is exact enough to be the judge (DESIGN 12): the owner of a
//! scheduler replays its last minutes under each candidate, and tells the scheduler by `set_policy`.

use base::{Millis, TokenCount};
use serde::{Deserialize, Serialize};

use super::Policy;
use crate::cost::CostModel;

/// Settings of policy `auto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoConfig {
    /// Least time between two choices. A replay that takes long is followed by a longer rest.
    pub every_ms: Millis,
    /// RelQueries that came in so long a time are replayed.
    pub window_ms: Millis,
    /// The newest of them are, that together have no more tokens than this, an output token counted as 16.
    pub tokens_max: TokenCount,
    /// Fewer of them say too little.
    pub relqueries_min: u32,
    /// By how many thousandths another policy's mean latency must be lower for a change.
    pub gain_permille_min: u32,
    /// The 99th percentile of latency that is borne, in thousandths of the least that a candidate has.
    pub p99_permille_max: u32,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self {
            every_ms: Millis(10_000),
            window_ms: Millis(600_000),
            tokens_max: TokenCount(8_000_000),
            relqueries_min: 10,
            gain_permille_min: 10,
            p99_permille_max: 1_250,
        }
    }
}

impl Policy {
    /// What `auto` chooses among. First come, first served is not one of them: no mean is least under it.
    pub const CANDIDATES: [Self; 6] = [
        Self::MarginalWorkSlowAging,
        Self::MarginalWork,
        Self::RelServe,
        Self::RelServeDecode,
        Self::RelServePrefill,
        Self::StaticPriority,
    ];

    /// This policy, or, of `auto`, the one to begin with on a machine of which nothing but its costs is known:
    /// mixed steps where they save time, beside many rows or, which is what a machine has at first, beside few, else
    /// the paper's. Of the two ages the slower: its mean is the lower one where machines are overloaded, and nowhere
    /// else do they differ.
    pub fn resolved(self, cost: &CostModel) -> Self {
        match self {
            Self::Auto if cost.mixing_saves().max(cost.mixing_few_saves()) >= 0 => {
                Self::MarginalWorkSlowAging
            }
            Self::Auto => Self::RelServe,
            named => named,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_mixed_steps_where_they_save_beside_many_rows_or_few() {
        let machine = |mixed_hidden, mixed_hidden_few| {
            let cost = CostModel { mixed_hidden, mixed_hidden_few, ..CostModel::default() };
            Policy::Auto.resolved(&cost)
        };
        let costly = -10_000_001;
        assert_eq!(machine(costly + 1, None), Policy::MarginalWorkSlowAging);
        assert_eq!(machine(costly, None), Policy::RelServe);
        assert_eq!(machine(costly, Some(costly)), Policy::RelServe);
        assert_eq!(machine(costly, Some(0)), Policy::MarginalWorkSlowAging);
        assert_eq!(machine(0, Some(costly)), Policy::MarginalWorkSlowAging);
    }
}
