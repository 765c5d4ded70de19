//! First rows early: a relQuery that has the machine for itself lets its first rows end before it prefills the
//! others, where that holds up its last row by no more than a small share of its time.
//!
//! A decode step of few rows costs its base whatever rides in it, and rows that decode early spare nobody a step: all it
//! costs is bases. So a relQuery may spend a share of the time it is expected to take on them, and no more: when that is
//! spent, or when someone else comes, it goes on as if nothing had been.

use base::{Nanos, ServiceClass};

use crate::Scheduler;
use crate::admit::{Admission, Budget};
use crate::breakdown::PriorityParts;
use crate::choice::Choice;
use crate::decision::Reason;

/// How far a relQuery is with its first rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FirstRows {
    /// None of its rows has run.
    #[default]
    Untried,
    /// Its running rows go first, for as long as there is this much to spend.
    Running(Nanos),
    /// Its rows run as all others do.
    Over,
}

/// Of how many rows one goes first: so few that they are seen early, so many that their decode steps are worth
/// their bases.
const ONE_OF: usize = 10;

impl Scheduler {
    /// The step of a relQuery that is alone here, while its first rows go first; `None` where they do not.
    pub(crate) fn first_rows(&mut self) -> Option<Choice> {
        let share = self.config.marginal_work.first_rows_permille;
        if share == 0 || self.relqueries.len() != 1 {
            return None;
        }
        let id = *self.relqueries.keys().next()?;
        let relquery = &self.relqueries[&id];
        if relquery.class == ServiceClass::Bulk || relquery.waiting_len() == 0 {
            return None;
        }
        let base = self.estimates.cost.decode_base;
        let left = match relquery.first_rows {
            FirstRows::Untried if relquery.running.is_empty() => self.first_rows_budget(id, share),
            FirstRows::Running(left) => left,
            FirstRows::Untried | FirstRows::Over => return None,
        };
        let goes_on = !relquery.running.is_empty();
        // The first token comes with the prompt.
        let steps = self.expected(id).remaining(0, relquery.output_max).saturating_sub(1);
        let cost = match goes_on {
            true => base,
            false => Nanos(self.estimates.cost.prefill_base.0.saturating_add(base.0.saturating_mul(steps))),
        };
        let rows = (relquery.waiting_len() / ONE_OF).max(1);
        let pays = cost <= left && (goes_on || steps > 0 && relquery.waiting_len() > 1);
        let after = match (pays, goes_on) {
            (false, _) => FirstRows::Over,
            (true, true) => FirstRows::Running(left.saturating_sub(base)),
            (true, false) => FirstRows::Running(left.saturating_sub(self.estimates.cost.prefill_base)),
        };
        self.relqueries.get_mut(&id)?.first_rows = after;
        if !pays {
            return None;
        }
        if goes_on {
            return Some(self.decode_because(Reason::FirstRows));
        }
        let budget = self.prefill_budget();
        let free_sequences = budget.free_sequences.min(u32::try_from(rows).unwrap_or(u32::MAX));
        let free_blocks = self.kv.ledger.available();
        let admission = Admission::new(Budget { free_sequences, free_blocks, ..budget });
        let prefill = self.offer_waiting(admission, &self.offers(true)).rows;
        (!prefill.is_empty()).then_some(Choice { reason: Reason::FirstRows, prefill, decodes: false })
    }

    /// Nobody is alone here any longer.
    pub(super) fn end_first_rows(&mut self) {
        for relquery in self.relqueries.values_mut() {
            if let FirstRows::Running(_) = relquery.first_rows {
                relquery.first_rows = FirstRows::Over;
            }
        }
    }

    /// So many thousandths of the time that the relQuery takes alone, with rows as long as expected.
    fn first_rows_budget(&self, id: base::RelQueryId, share: u32) -> Nanos {
        let relquery = &self.relqueries[&id];
        let alone = match relquery.breakdown.parts {
            PriorityParts::Work(work) => {
                let steps = self.expected(id).remaining(0, relquery.output_max);
                let bases = self.estimates.cost.decode_base.0.saturating_mul(steps);
                work.prompt.0.saturating_add(work.output.0).saturating_add(bases)
            }
            _ => relquery.breakdown.work().0,
        };
        Nanos(u64::try_from(u128::from(alone) * u128::from(share) / 1_000).unwrap_or(u64::MAX))
    }
}
