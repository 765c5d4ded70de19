//! What rows of a ticket or a batch used, from their ends until they are stored: the store counts it with the row or the
//! line. A kill between the two would count the row twice, as it runs again, or not at all.

use std::collections::HashMap;
use std::ops::Range;

use super::{AnswerRow, RelQueryState, RowProgress, State, Status};
use crate::account::{Account, Spent};
use crate::budgets::BudgetAmount;
use crate::error::RequestError;
use crate::results::{Answer, CellKey};

/// What the run of a row leaves to be counted.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCharge {
    /// Whose sum it adds to.
    pub account: Account,
    pub spent: Spent,
    /// Its answer, where the stored cache is to have it. Not before the row is counted: a ticket that is gone on with
    /// would find the answer there, and nobody would count it.
    pub answer: Option<(CellKey, Answer)>,
}

/// Answers of a column that were taken.
#[derive(Debug)]
pub struct TakenRows {
    pub rows: Vec<(u32, AnswerRow)>,
    /// What those of them used that were withheld, and ran. Whoever takes them counts it.
    pub charges: Vec<RowCharge>,
    /// How far the column is.
    pub status: Status,
}

/// Where a row is counted that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedBy {
    /// Memory, at once.
    Memory,
    /// The store, with the row of the ticket or the line of the batch.
    Ticket,
    /// Nobody: a ticket or a batch stands for the relQuery, which has ended without this row.
    Nobody,
}

impl State {
    /// Where a row is counted that ends now.
    pub(crate) fn counted_by(&self, row: u32) -> CountedBy {
        match self.recorded {
            None => CountedBy::Memory,
            Some(_) if self.is_over() || self.rows[row as usize].state != RowProgress::Pending => {
                CountedBy::Nobody
            }
            Some(_) => CountedBy::Ticket,
        }
    }

    /// Whether it has ended before its rows, and not so that they run again: neither at another gateway, nor at the next
    /// start. What they have used is counted then.
    pub(crate) fn is_called_off(&self) -> bool {
        match self.status {
            Status::Running | Status::Failed(RequestError::ShuttingDown) => false,
            Status::Completed | Status::Cancelled | Status::Failed(_) => !self.runs_again,
        }
    }

    /// Whether the rows that it ended without run again elsewhere, which counts them.
    pub fn runs_again(&self) -> bool {
        self.runs_again
    }

    /// Whether somebody records its rows, with what they used.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Keeps what a row used that is about to be settled, or was called off.
    pub(crate) fn keep_charge(&mut self, row: u32, charge: RowCharge) {
        self.charges.insert(row, charge);
    }

    /// Takes what rows used that ran, for who records them together: those that have answers or were called off, and those
    /// that failed.
    pub fn take_charges(&mut self, rows: Range<usize>) -> (Vec<RowCharge>, Vec<RowCharge>) {
        let (mut used, mut failed) = (Vec::new(), Vec::new());
        for row in rows {
            let Some(charge) = self.charges.remove(&(row as u32)) else { continue };
            let has_failed = matches!(self.rows[row].state, RowProgress::Failed(_));
            let kept = if has_failed { &mut failed } else { &mut used };
            kept.push(charge);
        }
        (used, failed)
    }

    /// What a row used that the store counts with it.
    pub fn charge(&self, row: u32) -> Option<&RowCharge> {
        self.charges.get(&row)
    }
}

impl RelQueryState {
    /// Takes the answers that a column has, and how far it is. Their places are for further rows.
    pub fn take_finished(&self) -> TakenRows {
        let mut state = self.read();
        let finished = std::mem::take(&mut state.finished);
        let charges = finished.iter().filter_map(|number| state.charges.remove(number)).collect();
        let rows = finished
            .iter()
            .map(|number| {
                (*number, std::mem::replace(&mut state.rows[*number as usize], AnswerRow::pending()))
            })
            .collect();
        // None is left of those that were shown before there was a ticket.
        let recorded = state.recorded.map(|_| 0);
        state.recorded = recorded;
        state.free.extend(finished);
        TakenRows { rows, charges, status: state.status.clone() }
    }

    /// Its unfinished rows will run again elsewhere, which counts them: what they have used here does not count. To be said
    /// before it ends; where a server's end is why, before its charges are revoked.
    pub fn run_again(&self) {
        self.read().runs_again = true;
    }

    /// Of these rows, those for which nothing is set aside yet.
    pub(crate) fn not_reserved(&self, mut rows: HashMap<u32, BudgetAmount>) -> HashMap<u32, BudgetAmount> {
        if let Some(kept) = &self.read().reservation {
            rows.retain(|row, _| !kept.holds(*row));
        }
        rows
    }

    /// So many more of the rows that were withheld are in the store, with what they used: that.
    #[must_use = "it is known to be stored now"]
    pub(crate) fn record(&self, rows: usize) -> Vec<RowCharge> {
        let mut state = self.read();
        let stored: Vec<u32> = state.withheld().iter().take(rows).copied().collect();
        let charges = stored.iter().filter_map(|row| state.charges.remove(row)).collect();
        let recorded = state.recorded.map(|recorded| recorded + stored.len());
        state.recorded = recorded;
        drop(state);
        self.notify();
        charges
    }

    /// Nothing is withheld any more: no store promises anything of it. What rows used that no store counts.
    #[must_use = "nobody has counted it"]
    pub(crate) fn show_all(&self) -> Vec<RowCharge> {
        let mut state = self.read();
        state.recorded = None;
        let charges = std::mem::take(&mut state.charges);
        drop(state);
        self.notify();
        charges.into_values().collect()
    }

    /// What is withheld will never be shown here: whoever waits for it is told that it was called off. What rows used
    /// that nobody counts.
    #[must_use = "somebody may hold it against a budget"]
    pub(crate) fn revoke(&self) -> Vec<RowCharge> {
        let mut state = self.read();
        if !state.withheld().is_empty() {
            state.status = Status::Cancelled;
        }
        let charges = std::mem::take(&mut state.charges);
        drop(state);
        self.notify();
        charges.into_values().collect()
    }
}
