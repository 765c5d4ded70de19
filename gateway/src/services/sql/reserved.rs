//! What is set aside in budgets for rows that are under way, and what becomes of it: a call that was made counts, whether
//! anybody still waits for its answer or not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

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

/// Those whose ends somebody waits for. Dropped before all is known of them (the server ends), they count with all that was
/// set aside: too much is counted then, and never too little.
pub(super) struct AwaitedCalls {
    calls: Arc<ReservedCalls>,
    is_all_known: bool,
}

impl AwaitedCalls {
    /// Nothing is known so far.
    pub(super) fn new(calls: Arc<ReservedCalls>) -> Self {
        Self { calls, is_all_known: false }
    }

    /// They themselves.
    pub(super) fn calls(&self) -> &ReservedCalls {
        &self.calls
    }

    /// Those that are not settled by now were not made.
    pub(super) fn end(mut self) {
        self.is_all_known = true;
        self.calls.rows().clear();
    }
}

impl Drop for AwaitedCalls {
    fn drop(&mut self) {
        if self.is_all_known {
            return;
        }
        let unsettled = std::mem::take(&mut *self.calls.rows());
        for call in unsettled.into_values() {
            let ComputedCalls { tokens, calls } = call.most.calls;
            call.settle((calls > 0).then_some(tokens));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::TokenCount;
    use futures_util::FutureExt as _;
    use sql::budget::{BudgetLimits, StatementBudget, TenantBudget, UnwrittenCalls};

    use super::*;

    /// A call of 4 and 5 tokens at most that is in the sum of its tenant's day.
    fn held(tenant: &Arc<TenantBudget>) -> AwaitedCalls {
        let most = RowMost { calls: ComputedCalls::one(9), prompt: 4, ..RowMost::default() };
        let statement = StatementBudget::new(BudgetLimits::default(), Arc::clone(tenant));
        let reserved = statement.reserve(&[most.calls]).now_or_never().expect("at once");
        let mut reserved = reserved.expect("it fits");
        reserved.hold(0, most.calls);
        let calls = Arc::<ReservedCalls>::default();
        calls.add(&[5], Some(reserved), &[most]);
        AwaitedCalls::new(calls)
    }

    #[test]
    fn a_call_that_nobody_learned_the_end_of_stays_in_the_sum_and_one_that_was_not_made_does_not() {
        let tenant = Arc::<TenantBudget>::default();
        drop(held(&tenant));
        assert!(tenant.take_unwritten().is_empty(), "the sum has it");
        held(&tenant).end();
        let less = UnwrittenCalls { less: ComputedCalls::one(9), ..UnwrittenCalls::default() };
        assert_eq!(tenant.take_unwritten(), BTreeMap::from([(0, less)]));
        let awaited = held(&tenant);
        awaited.calls().settle_left(LeftCall { name: 5, output: Some(TokenCount(2)) });
        awaited.end();
        let less = ComputedCalls { tokens: 3, calls: 0 };
        let less = UnwrittenCalls { less, ..UnwrittenCalls::default() };
        assert_eq!(tenant.take_unwritten(), BTreeMap::from([(0, less)]), "4 and 2 of 9");
    }
}
