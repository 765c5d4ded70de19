//! What is set aside in budgets for rows that are under way, and what becomes of it: a call that was made counts, whether
//! anybody still waits for its answer or not.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use serving::budgets::BudgetAmount;
use serving::column::LeftCall;
use serving::price::TokenPrices;
use serving::relquery_state::{AnswerRow, AnswerSource, RowProgress};
use serving::submit::{self, Prepared};
use sql::budget::{ComputedCalls, Reservation};

/// The most that a row may compute: its prompt, and an answer of full length. Nothing of a row that cannot run, whose answer
/// is known, or that gets another's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowMost {
    /// In budgets of SQL.
    pub calls: ComputedCalls,
    /// In those of the tenant.
    pub amount: BudgetAmount,
    /// Tokens of its prompt.
    prompt: u64,
}

impl RowMost {
    /// Of each row.
    pub(super) fn of(prepared: &Prepared, prices: TokenPrices) -> Vec<Self> {
        let mut most = vec![Self::default(); prepared.rows];
        for row in prepared.parts.iter().flat_map(|part| &part.rows) {
            if let Some(own) = row.targets.first().and_then(|target| most.get_mut(*target as usize)) {
                let (amount, prompt) = (submit::most(row, prices), row.item.prompt.len() as u64);
                *own = Self { calls: ComputedCalls::one(amount.tokens), amount, prompt };
            }
        }
        most
    }
}

struct ReservedCall {
    reservation: Reservation,
    most: RowMost,
}

impl ReservedCall {
    /// It computed so many tokens, or nothing.
    fn settle(mut self, computed: Option<u64>) {
        self.reservation.settle(0, computed);
    }
}

/// What is set aside for rows that are under way, by their names.
#[derive(Default)]
pub(super) struct ReservedCalls(Mutex<HashMap<u64, ReservedCall>>);

impl ReservedCalls {
    fn rows(&self) -> MutexGuard<'_, HashMap<u64, ReservedCall>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes what is set aside for further rows.
    pub(super) fn add(&self, ids: &[u64], reserved: Option<Reservation>, most: &[RowMost]) {
        let rows = reserved.into_iter().flat_map(Reservation::into_rows).zip(most);
        let calls = rows.map(|(reservation, most)| ReservedCall { reservation, most: *most });
        self.rows().extend(ids.iter().copied().zip(calls));
    }

    /// A row has an answer, or has failed.
    pub(super) fn settle(&self, id: u64, row: &AnswerRow) {
        let Some(call) = self.rows().remove(&id) else { return };
        let computed = match &row.state {
            RowProgress::Done { usage, source: AnswerSource::Model, .. } => {
                Some(usage.prompt.0.saturating_add(usage.output.0))
            }
            // It had begun: the call was made.
            RowProgress::Failed(_) if row.start.is_some() => {
                Some(call.most.prompt.saturating_add(row.pieces))
            }
            RowProgress::Done { .. } | RowProgress::Failed(_) | RowProgress::Pending => None,
        };
        call.settle(computed);
    }

    /// A call was made whose answer nobody takes.
    pub(super) fn settle_left(&self, left: LeftCall) {
        let Some(call) = self.rows().remove(&left.name) else { return };
        let most = call.most.calls.tokens;
        let computed = left.output.map_or(most, |output| call.most.prompt.saturating_add(output.0));
        call.settle(Some(computed));
    }
}
