//! What a policy weighs when rows of the first waiting relQuery could go to a replica at which rows of others run
//! that come before it: the transitional case (RelServe, section 4.3), where a queue decides when to send.

use base::TokenCount;

use super::marginal_work::config::MarginalWorkConfig;
use super::marginal_work::joins::{Joining, Left, tokens_max};
use crate::arrange::{Candidate, Delta, running_loss, waiting_gain};
use crate::cost::CostModel;
use crate::paper_variant::DeltaReading;

/// One replica, and the first waiting relQuery.
pub(crate) struct Transition<'a> {
    /// What the replica's steps cost.
    pub(crate) cost: &'a CostModel,
    /// Settings of policy `marginal-work`.
    pub(crate) settings: &'a MarginalWorkConfig,
    /// How Eq. 17 is read.
    pub(crate) reading: DeltaReading,
    /// What is left there of relQueries that come before it.
    pub(crate) ahead: Left,
    /// Output limits of all relQueries with rows there.
    pub(crate) running: &'a [u64],
    /// Whether one of them is of a higher class.
    pub(crate) is_lower: bool,
    /// Its rows, as many as there is room for.
    pub(crate) candidate: Candidate,
    /// The same, as they are expected to be.
    pub(crate) joining: Joining,
    /// RelQueries that wait.
    pub(crate) waiting: u64,
}

impl Transition<'_> {
    /// Eq. 15-17: sends if the mean latency is thought to fall.
    pub(crate) fn lowers_the_mean(&self) -> bool {
        let longest = self.running.iter().copied().max().unwrap_or(0);
        let delta = Delta {
            running: running_loss(self.cost, self.candidate, self.running.iter().copied()).0,
            waiting: waiting_gain(self.cost, self.candidate, self.waiting, longest).0,
            reading: self.reading,
        };
        delta.favours_prefill()
    }

    /// O8 of docs/MARGINAL-WORK.md: sends if a row gains more machine time than it costs.
    pub(crate) fn is_worth_its_tokens(&self) -> bool {
        let Some(gain) = self.settings.gain else { return true };
        let worth = if self.is_lower { 1_000 / u64::from(gain.lower_class.max(1)) } else { 1_000 };
        let TokenCount(tokens) = self.candidate.uncached;
        let row = tokens / self.candidate.rows.max(1);
        row <= tokens_max(self.cost, &self.ahead, &self.joining, worth)
    }
}
