//! What a policy sees of a relQuery when it gives it a priority: the same of one whose steps are planned here
//! and of one whose rows are sent to replicas (DESIGN 12).

use base::{Nanos, Time};

use super::marginal_work::config::MarginalWorkConfig;
use super::marginal_work::work::{Capacity, Work};
use crate::cost::CostModel;
use crate::decompose::Batches;
use crate::miss_ratio::MissRatio;

/// A relQuery as a policy sees it.
pub(crate) trait RelQueryView {
    /// What steps cost where its rows run.
    fn cost(&self) -> &CostModel;

    /// What a step there is divided among.
    fn capacity(&self) -> Capacity;

    /// Settings of policy `marginal-work`.
    fn settings(&self) -> &MarginalWorkConfig;

    /// The waiting that makes its work count half (O6); `None` where age does not count.
    fn half_life(&self) -> Option<Nanos>;

    /// When it came.
    fn arrival(&self) -> Time;

    /// Whether it goes first, for having waited too long (Eq. 13) or being urgent.
    fn is_promoted(&self) -> bool;

    /// Prompt tokens and output limits of all rows that were ever submitted.
    fn submitted(&self) -> (u64, u64);

    /// The share of its waiting prompts that no cache supplies (Eq. 11).
    fn miss_ratio(&mut self) -> MissRatio;

    /// The batches that are left of it (Algorithm 1).
    fn batches(&self, ratio: MissRatio) -> Batches;

    /// The work that is left of it, with lengths as they are expected.
    fn work(&mut self) -> Work;
}
