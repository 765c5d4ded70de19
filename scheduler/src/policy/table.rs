//! Which file of this folder each policy is.

use super::rules::Rules;
use super::{Policy, fcfs, marginal_work, relserve, sarathi, static_priority};

impl Policy {
    /// What it does.
    pub(crate) fn rules(self) -> &'static Rules {
        match self {
            Self::Fcfs => &fcfs::RULES,
            Self::Sarathi => &sarathi::RULES,
            Self::StaticPriority => &static_priority::RULES,
            Self::StaticPriorityWeak => &static_priority::WEAK,
            Self::RelServe => &relserve::RULES,
            Self::RelServePrefill => &relserve::PREFILL_FIRST,
            Self::RelServeDecode => &relserve::DECODE_FIRST,
            // A scheduler never runs by `auto` itself: it resolves it when it is made.
            Self::MarginalWork | Self::MarginalWorkSlowAging | Self::Auto => &marginal_work::RULES,
        }
    }
}
