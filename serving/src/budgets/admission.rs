//! Rows of a tenant that come in windows: as many as surely fit its budget are let in, and the others wait for those that run
//! to take less than they might. Whoever waits is woken when something is given back, and sets nothing aside meanwhile, so
//! that two never wait for one another.

use std::sync::{Arc, Mutex};

use base::TenantId;
use store::UnixMillis;

use super::{BudgetAmount, BudgetReservation, BudgetStatus, Budgets};
use crate::error::RequestError;

/// Whether rows of a tenant are let in.
enum Admission {
    /// It has no budget.
    Unlimited,
    /// So many of them, with what is set aside for them.
    Rows(usize, Arc<BudgetReservation>),
    /// Once rows that run have taken less than they might.
    Later,
}

impl Budgets {
    /// Sets aside what the first of these rows may take, as many as fit and one at least, by their places; with how many
    /// these are. Waits while none fits and rows that run may turn out to take less. `None` for a tenant without a budget.
    ///
    /// # Errors
    /// Where the first row would not fit either if all that is set aside were given back: nothing is worth waiting for.
    pub async fn reserve_first(
        self: &Arc<Self>,
        tenant: TenantId,
        rows: &[BudgetAmount],
        now: impl Fn() -> UnixMillis,
    ) -> Result<Option<(usize, Arc<BudgetReservation>)>, RequestError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look: what is given back after it is heard of.
            changed.as_mut().enable();
            match self.admit_first(tenant, rows, now())? {
                Admission::Unlimited => return Ok(None),
                Admission::Rows(count, reserved) => return Ok(Some((count, reserved))),
                Admission::Later => changed.await,
            }
        }
    }

    fn admit_first(
        self: &Arc<Self>,
        tenant: TenantId,
        rows: &[BudgetAmount],
        now: UnixMillis,
    ) -> Result<Admission, RequestError> {
        let mut tenants = self.tenants();
        let Some(found) = tenants.get_mut(&tenant).filter(|found| found.has_budget()) else {
            return Ok(Admission::Unlimited);
        };
        let (status, nothing) = (found.status(), BudgetAmount::default());
        let mut asked = nothing;
        // Answers that are known already cost nothing, however much is spent.
        let fits = |row: &&BudgetAmount| {
            let more = asked.plus(**row);
            let fits = **row == nothing || status.has_room(more);
            if fits {
                asked = more;
            }
            fits
        };
        let count = rows.iter().take_while(fits).count();
        if let Some(first) = rows.first()
            && count == 0
        {
            let settled = BudgetStatus { reserved: nothing, ..status };
            settled.bounds(*first).try_for_each(|bound| bound.check(now))?;
            return Ok(Admission::Later);
        }
        found.reserved = found.reserved.plus(asked);
        drop(tenants);
        let rows = (0..).zip(rows[..count].iter().copied()).filter(|(_, row)| *row != nothing);
        let rows = Mutex::new(rows.collect());
        let reserved = BudgetReservation { budgets: Arc::clone(self), tenant, rows };
        Ok(Admission::Rows(count, Arc::new(reserved)))
    }
}

#[cfg(test)]
mod tests {
    use base::Money;
    use futures_util::FutureExt as _;
    use store::{Computed, TenantLimits};

    use super::*;
    use crate::error::BudgetUnits;

    const TENANT: TenantId = TenantId(7);
    const NOW: UnixMillis = UnixMillis(1_000);

    #[test]
    fn the_first_rows_that_fit_are_let_in_and_the_others_wait_for_those_that_run() {
        let budgets = Arc::<Budgets>::default();
        let allow = |max| {
            let limits = TenantLimits { day_tokens: Some(max), ..TenantLimits::default() };
            let stored = Computed { day_tokens: 5, ..Computed::default() };
            budgets.refresh(vec![(TENANT, limits, stored)]);
        };
        allow(40);
        let row = |tokens| BudgetAmount { tokens, cost: Money(0) };
        let next = |rows: &[BudgetAmount]| {
            let admitted = budgets.reserve_first(TENANT, rows, || NOW).now_or_never();
            admitted.map(|admitted| admitted.map(|admitted| admitted.expect("there is a budget")))
        };
        let (count, first) = next(&[row(10), row(0), row(20), row(10)]).expect("at once").expect("it fits");
        assert_eq!((count, budgets.status(TENANT).reserved), (3, row(30)));
        first.renumber(&[7, 8, 9]);
        assert!(first.holds(7) && first.holds(9) && !first.holds(8) && !first.holds(0));
        // Two that wait for what runs: each has it once that has taken less.
        assert!(next(&[row(10)]).is_none());
        let one = [row(24)];
        let mut waiting = std::pin::pin!(budgets.reserve_first(TENANT, &one, || NOW));
        assert!((&mut waiting).now_or_never().is_none());
        budgets.charge(TENANT, row(1));
        first.release(9);
        let woken = (&mut waiting).now_or_never().expect("woken").expect("it fits");
        let (count, second) = woken.expect("there is a budget");
        assert_eq!((count, budgets.status(TENANT).reserved), (1, row(34)), "5 and 1 are spent");
        drop((first, second));
        // With nothing set aside there is nothing to wait for.
        let refused = next(&[row(35)]).expect("at once").map(|(count, _)| count).expect_err("6 and 35 of 40");
        let RequestError::TenantBudget { used, reserved, .. } = refused else { panic!("{refused}") };
        assert_eq!([used, reserved], [6, 0].map(BudgetUnits::Tokens));
        let never = next(&[row(41)]).expect("at once").map(|(count, _)| count).expect_err("41 of 40");
        assert!(matches!(never, RequestError::TooLarge { .. }), "{never}");
        // More is allowed: who waits hears of it.
        let held = next(&[row(30)]).expect("at once").expect("it fits");
        let one = [row(20)];
        let mut waiting = std::pin::pin!(budgets.reserve_first(TENANT, &one, || NOW));
        assert!((&mut waiting).now_or_never().is_none());
        allow(100);
        assert!((&mut waiting).now_or_never().is_some());
        drop(held);
        budgets.refresh(Vec::new());
        let unlimited = budgets.reserve_first(TENANT, &one, || NOW).now_or_never();
        assert!(matches!(unlimited, Some(Ok(None))));
    }
}
