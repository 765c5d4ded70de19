//! `auto`: which policies it chooses among, and with which it begins.
//!
//! It is no formula of its own. The simulator is exact enough to be the judge (DESIGN 12): the owner of a
//! scheduler replays its last minutes under each candidate, and tells the scheduler by `set_policy`.

use super::Policy;
use crate::cost::CostModel;

impl Policy {
    /// What `auto` chooses among. First come, first served is not one of them: no mean is least under it.
    pub const CANDIDATES: [Self; 5] = [
        Self::MarginalWork,
        Self::RelServe,
        Self::RelServeDecode,
        Self::RelServePrefill,
        Self::StaticPriority,
    ];

    /// This policy, or, of `auto`, the one to begin with on a machine of which nothing but its costs is known:
    /// mixed steps where they save time, else the paper's.
    pub fn resolved(self, cost: &CostModel) -> Self {
        match self {
            Self::Auto if cost.mixing_saves() > 0 => Self::MarginalWork,
            Self::Auto => Self::RelServe,
            named => named,
        }
    }
}
