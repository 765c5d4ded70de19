//! Bulk work beside work that somebody waits for: of a step in which both could run, bulk rows take a stated
//! share.
//!
//! The order alone does not keep them apart: rows of a bulk relQuery that began while nothing else was here
//! decode in every later step, and each makes it longer; their memory keeps others out. So while a higher
//! class is here they pause, all but those that the share pays for, and give their memory up where a row of a
//! higher class finds none. The share is never less than one row, so bulk work goes on whatever arrives.

use base::ServiceClass;

use crate::Scheduler;
use crate::priority::RelQueryKey;

/// What bulk work may add to a step with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BulkPart {
    /// Rows that decode.
    pub(crate) rows: usize,
    /// Prompt tokens beside those that ride free.
    pub(crate) tokens: u64,
}

impl Scheduler {
    /// What bulk work may add to the next step; `None` where it is alone, absent, or not held back.
    pub(crate) fn bulk_part(&self) -> Option<BulkPart> {
        let share = self.config.marginal_work.bulk_share_permille.filter(|_| self.config.is_fair())?;
        let sets = [&self.queues.waiting, &self.queues.running];
        let is_bulk = |key: Option<&RelQueryKey>| key.is_some_and(|key| key.class == ServiceClass::Bulk);
        let has_bulk = sets.iter().any(|set| is_bulk(set.last()));
        let has_others = sets.iter().any(|set| set.first().is_some_and(|key| key.class < ServiceClass::Bulk));
        if !has_bulk || !has_others {
            return None;
        }
        let time = u128::from(self.estimates.cost.decode(self.higher_rows()).0) * u128::from(share) / 1_000;
        let of = |cost: u64| u64::try_from(time / u128::from(cost.max(1))).unwrap_or(u64::MAX);
        let rows = usize::try_from(of(self.estimates.cost.decode_per_sequence.0)).unwrap_or(usize::MAX);
        Some(BulkPart { rows: rows.max(1), tokens: of(self.estimates.cost.prefill_per_token.0) })
    }

    /// Rows of higher classes that hold memory.
    pub(crate) fn higher_rows(&self) -> u64 {
        let higher = self.queues.running.iter().take_while(|key| key.class < ServiceClass::Bulk);
        higher.map(|key| self.relqueries[&key.id].running.len() as u64).sum()
    }

    /// RelQueries of higher classes that wait.
    pub(crate) fn higher_waiting(&self) -> u64 {
        self.queues.waiting.iter().take_while(|key| key.class < ServiceClass::Bulk).count() as u64
    }

    /// Whether rows of this class count as bulk in a step with others.
    pub(crate) fn is_bulk(&self, id: base::RelQueryId) -> bool {
        self.relqueries.get(&id).is_some_and(|relquery| relquery.class == ServiceClass::Bulk)
    }
}
