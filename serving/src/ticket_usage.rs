//! Where what a row used is counted: in memory as it ends, which writes its sums now and then; of a row that a ticket or a
//! batch keeps in the store, in one transaction with the row, so that after any kill the sums are those of the rows that are stored.
//! Until then the relQuery has it ([`RowCharge`]), and budgets hold it. Must not know the store.

use base::Time;

use crate::account::BATCHES;
use crate::budgets::BudgetAmount;
use crate::relquery_state::charges::CountedBy;
use crate::relquery_state::{RelQueryKind, RelQueryState, RowCharge, RowProgress};
use crate::shared::Shared;

impl Shared {
    /// A row that ran has finished or failed. What it used is counted; or given back, where the relQuery has ended and its
    /// ticket or batch with it.
    pub(crate) fn settle_run(
        &self,
        relquery: &RelQueryState,
        (index, row): (u32, RowProgress),
        charge: RowCharge,
        now: Time,
    ) -> Option<RowCharge> {
        // Held over both: who makes a ticket finds the row ended and counted, or keeps it back with what it used.
        let mut state = relquery.read();
        let left = match state.counted_by(index) {
            CountedBy::Memory => {
                if relquery.kind == RelQueryKind::Column {
                    state.leave_finished(index, charge.spent.usage.output);
                }
                self.count_in_memory(charge);
                None
            }
            CountedBy::Ticket => {
                self.budgets.charge(charge.account.tenant, amount(&charge));
                self.accounts.withhold(charge.account, &charge.spent);
                state.keep_charge(index, charge);
                None
            }
            CountedBy::Nobody => Some(charge),
        };
        state.settle(index, row, now, relquery.arrival);
        left
    }

    /// Counts what a row used that no store counts: it has ended without a ticket and a batch, or was called off and is no
    /// line's.
    pub(crate) fn count_in_memory(&self, charge: RowCharge) {
        self.accounts.add(charge.account, charge.spent);
        self.budgets.charge(charge.account.tenant, amount(&charge));
        self.write_answer(charge);
    }

    /// Counts what a row used that its relQuery has ended without: with its batch, where it is a line's and somebody will
    /// record that; else in memory.
    pub(crate) fn count_left(&self, relquery: &RelQueryState, index: u32, charge: RowCharge) {
        // Held over both: who takes what a batch called off finds it, or has said before that nobody records it.
        let mut state = relquery.read();
        if charge.account.route != BATCHES || !state.is_recorded() {
            return self.count_in_memory(charge);
        }
        self.budgets.charge(charge.account.tenant, amount(&charge));
        self.accounts.withhold(charge.account, &charge.spent);
        state.keep_charge(index, charge);
    }

    /// So many more rows of a ticket are in the store, and what they used is counted there.
    pub fn recorded(&self, relquery: &RelQueryState, rows: usize) {
        self.recorded_charges(relquery.record(rows));
    }

    /// Rows are in the store that were taken from a column, and what they used is counted there.
    pub fn recorded_charges(&self, charges: Vec<RowCharge>) {
        for charge in charges {
            self.budgets.written(charge.account.tenant, amount(&charge));
            self.accounts.release(charge.account, &charge.spent);
            self.write_answer(charge);
        }
    }

    /// No ticket stands for a relQuery any more: all of it is shown, and what no store counts is counted in memory.
    pub fn without_ticket(&self, relquery: &RelQueryState) {
        self.count_charges(relquery.show_all());
    }

    /// Counts in memory what rows used that no store counts.
    pub fn count_charges(&self, charges: Vec<RowCharge>) {
        for charge in charges {
            self.accounts.add(charge.account, charge.spent);
            self.accounts.release(charge.account, &charge.spent);
            self.write_answer(charge);
        }
    }

    /// A ticket is another gateway's, or another start's: that runs again what is not stored, and counts it. Nothing of
    /// it is shown here.
    pub fn lost_ticket(&self, relquery: &RelQueryState) {
        self.leave_charges(relquery.revoke());
    }

    /// Rows that ran here run again at another gateway, or another start, which counts them.
    pub fn leave_charges(&self, charges: Vec<RowCharge>) {
        for charge in charges {
            // It comes out of the store once the other one has stored the row.
            self.budgets.written(charge.account.tenant, amount(&charge));
            self.accounts.release(charge.account, &charge.spent);
            self.forget_answer(&charge);
        }
    }

    /// Nobody counts a row that ran: should its ticket come back, the row runs again, and is counted.
    pub(crate) fn forget_answer(&self, charge: &RowCharge) {
        if let Some((key, _)) = &charge.answer {
            self.results.forget(charge.account.tenant, key);
        }
    }

    /// A row is counted: a request that finds its answer in the store counts nothing.
    fn write_answer(&self, charge: RowCharge) {
        if let Some((key, answer)) = charge.answer {
            self.results.write_later(charge.account.tenant, key, answer);
        }
    }
}

fn amount(charge: &RowCharge) -> BudgetAmount {
    BudgetAmount::of(charge.spent.usage, charge.spent.cost)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, Money, RelQueryId, TenantId, TokenCount};
    use store::{Computed, TenantLimits};

    use super::*;
    use crate::account::{Account, Spent};
    use crate::error::RequestError;
    use crate::relquery_state::{AnswerSource, Arrival, Status, Usage};
    use crate::results::Answer;
    use crate::shared::tests::without_loop;

    const TENANT: TenantId = TenantId(1);
    const ACCOUNT: Account = Account { tenant: TENANT, route: "cells" };

    #[test]
    fn what_rows_of_a_column_used_is_counted_by_whoever_takes_them() {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let shared = Shared { results: Arc::new(crate::results::Results::new(10)), ..without_loop(1) };
        let column = RelQueryState::new(RelQueryId(1), TENANT, RelQueryKind::Column, 0, arrival);
        assert_eq!(column.withhold(), 0);
        // Three windows of two rows, whose places are used again.
        for (window, count) in [
            Shared::recorded_charges as fn(&Shared, Vec<RowCharge>),
            Shared::count_charges,
            Shared::leave_charges,
        ]
        .into_iter()
        .enumerate()
        {
            for row in column.extend(2).expect("it is open") {
                assert!(end_row(&shared, &column, row));
            }
            assert_eq!(shared.accounts.unwritten_tokens(ACCOUNT), [20, 20, 40][window]);
            let taken = column.take_finished();
            assert_eq!((taken.rows.len(), taken.charges.len()), (2, 2), "window {window}");
            count(&shared, taken.charges);
        }
        assert_eq!(
            counted(&shared),
            (2, 20, 60, 4),
            "of the second window alone; the third's answers are not kept"
        );
        assert_eq!(column.extend(1), Some(vec![1]));
        assert!(end_row(&shared, &column, 1));
        shared.without_ticket(&column);
        assert_eq!(counted(&shared), (3, 30, 70, 1), "whose taker is gone is counted by memory");
        assert!(column.take_finished().charges.is_empty(), "once");
    }

    /// What is shared, and a relQuery of so many rows.
    fn begun(rows: usize) -> (Shared, Arc<RelQueryState>) {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let shared = Shared { results: Arc::new(crate::results::Results::new(10)), ..without_loop(1) };
        (shared, RelQueryState::new(RelQueryId(1), TENANT, RelQueryKind::RelQuery, rows, arrival))
    }

    /// A row ends that took ten tokens. Whether somebody counts it.
    fn end_row(shared: &Shared, relquery: &RelQueryState, row: u32) -> bool {
        end_row_of(ACCOUNT, shared, relquery, row).is_none()
    }

    /// The same of an account. What nobody counts.
    fn end_row_of(
        account: Account,
        shared: &Shared,
        relquery: &RelQueryState,
        row: u32,
    ) -> Option<RowCharge> {
        let usage = Usage { computed: TokenCount(9), output: TokenCount(1), ..Usage::default() };
        let (prompt, output) = (TokenCount(9), TokenCount(1));
        let answer = Answer { text: "yes".into(), end: End::Stop, prompt, output, probability: None };
        let (spent, key) = (Spent { requests: 0, rows: 1, usage, cost: Money(30) }, [row as u8; 32]);
        shared.results.put_in_memory(TENANT, key, answer.clone());
        let charge = RowCharge { account, spent, answer: Some((key, answer)) };
        let done = RowProgress::Done { end: End::Stop, usage, source: AnswerSource::Model };
        shared.settle_run(relquery, (row, done), charge, Time(1))
    }

    /// Rows that memory counts, tokens of the account that are not stored, tokens that the budget has, and answers for
    /// the stored cache.
    fn counted(shared: &Shared) -> (u64, u64, u64, usize) {
        let answers = shared.results.take_unwritten(10).len();
        let budget = shared.budgets.status(TENANT).day;
        assert_eq!(budget.cost, Money(3 * budget.tokens));
        (shared.accounts.of(ACCOUNT).rows, shared.accounts.unwritten_tokens(ACCOUNT), budget.tokens, answers)
    }

    /// The store is read, which has so many tokens.
    fn read_store(shared: &Shared, tokens: u64) {
        shared.budgets.begin_refresh();
        let cost = Money(3 * tokens);
        let found = Computed { day_tokens: tokens, month_tokens: tokens, day_cost: cost, month_cost: cost };
        shared.budgets.refresh(vec![(TENANT, TenantLimits::default(), found)]);
    }

    #[test]
    fn a_row_of_a_ticket_is_counted_by_the_store_alone() {
        let (shared, relquery) = begun(3);
        assert!(end_row(&shared, &relquery, 0));
        assert_eq!(counted(&shared), (1, 10, 10, 1), "nobody has promised anything");
        assert_eq!(relquery.withhold(), 1);
        assert!(end_row(&shared, &relquery, 2) && end_row(&shared, &relquery, 1));
        assert_eq!(counted(&shared), (1, 30, 30, 0), "memory does not count them, budgets do");
        let charges = |row| relquery.read().charge(row).map(|charge| charge.spent.tokens());
        assert_eq!([0, 1, 2].map(charges), [None, Some(10), Some(10)]);
        shared.recorded(&relquery, 1);
        assert_eq!(counted(&shared), (1, 20, 30, 1), "it is stored");
        assert_eq!([0, 1, 2].map(charges), [None, Some(10), None]);
        read_store(&shared, 10);
        assert_eq!(counted(&shared), (1, 20, 30, 0), "what was read has one row, and memory two");
        shared.recorded(&relquery, 1);
        read_store(&shared, 20);
        assert_eq!(counted(&shared), (1, 10, 30, 1));
        assert_eq!(relquery.read().shown(), [0, 2, 1]);
    }

    #[test]
    fn where_no_ticket_stands_for_it_any_more_memory_counts_what_is_not_stored() {
        let (shared, relquery) = begun(3);
        relquery.withhold();
        assert!(end_row(&shared, &relquery, 0) && end_row(&shared, &relquery, 1));
        shared.recorded(&relquery, 1);
        assert_eq!(counted(&shared), (0, 10, 20, 1));
        shared.without_ticket(&relquery);
        assert_eq!(counted(&shared), (1, 10, 20, 1));
        assert!(end_row(&shared, &relquery, 2));
        assert_eq!(counted(&shared), (2, 20, 30, 1), "as of any other relQuery");
        shared.without_ticket(&relquery);
        assert_eq!(counted(&shared), (2, 20, 30, 0), "once");
    }

    #[test]
    fn what_was_called_off_too_late_is_counted_in_memory() {
        let (shared, relquery) = begun(2);
        relquery.withhold();
        assert!(!relquery.read().is_called_off(), "it runs");
        relquery.end(Status::Cancelled, Time(2));
        assert!(relquery.read().is_called_off());
        let left = end_row_of(ACCOUNT, &shared, &relquery, 0).expect("its ticket is over");
        assert_eq!(counted(&shared), (0, 0, 0, 0));
        shared.count_in_memory(left);
        assert_eq!(counted(&shared), (1, 10, 10, 1));
    }

    #[test]
    fn what_a_batch_began_is_counted_with_the_line_or_by_whoever_it_goes_on_for() {
        let batches = Account { route: BATCHES, ..ACCOUNT };
        let sums = |shared: &Shared| {
            let budget = shared.budgets.status(TENANT).day;
            (shared.accounts.of(batches).rows, shared.accounts.unwritten_tokens(batches), budget.tokens)
        };
        // For a line of the batch that asked for it, or of another one: its line is recorded with it.
        let (shared, line) = begun(3);
        line.withhold();
        assert_eq!(end_row_of(batches, &shared, &line, 0), None);
        assert_eq!(sums(&shared), (0, 10, 10), "budgets hold it until the line is recorded");
        let failed = RowProgress::Failed(RequestError::Internal);
        let charge = line.read().take_charges(0..1).0.remove(0);
        assert_eq!(shared.settle_run(&line, (1, failed), charge.clone(), Time(1)), None);
        let taken = line.read().take_charges(0..3);
        assert_eq!(taken, (vec![], vec![charge.clone()]), "each once, and those that failed apart");
        shared.leave_charges(taken.1);
        shared.recorded_charges(vec![charge]);
        read_store(&shared, 10);
        assert_eq!(sums(&shared), (0, 0, 10), "what is recorded, and nothing of what failed");
        assert_eq!(end_row_of(batches, &shared, &line, 2), None, "it was its last");
        shared.without_ticket(&line);
        assert_eq!(sums(&shared), (1, 10, 20), "its line was called off");
        // For another request, after the batch was called off.
        let (shared, other) = begun(1);
        assert_eq!(end_row_of(batches, &shared, &other, 0), None);
        assert_eq!(sums(&shared), (1, 10, 10), "no line has it any more");
    }

    #[test]
    fn what_a_batch_called_off_is_counted_with_it_or_in_memory_where_nobody_records_it() {
        let batches = Account { route: BATCHES, ..ACCOUNT };
        let sums = |shared: &Shared| {
            let budget = shared.budgets.status(TENANT).day;
            (shared.accounts.of(batches).rows, shared.accounts.unwritten_tokens(batches), budget.tokens)
        };
        let (shared, line) = begun(2);
        line.withhold();
        line.end(Status::Cancelled, Time(2));
        let late = end_row_of(batches, &shared, &line, 0).expect("its line was called off");
        shared.count_left(&line, 0, late.clone());
        assert_eq!(sums(&shared), (0, 10, 10), "budgets hold it until the batch is written");
        let taken = line.read().take_charges(0..2);
        assert_eq!(taken, (vec![late.clone()], vec![]), "it was used, though its row has no answer");
        shared.recorded_charges(taken.0);
        read_store(&shared, 10);
        assert_eq!(sums(&shared), (0, 0, 10), "once");
        shared.without_ticket(&line);
        shared.count_left(&line, 1, late);
        assert_eq!(sums(&shared), (1, 10, 20), "the server ends, and nobody waits any more");
        // Of another route nobody records what was called off, whether it has a ticket or not.
        let (shared, ticket) = begun(1);
        ticket.withhold();
        ticket.end(Status::Cancelled, Time(2));
        let left = end_row_of(ACCOUNT, &shared, &ticket, 0).expect("its ticket is over");
        shared.count_left(&ticket, 0, left);
        assert_eq!(counted(&shared), (1, 10, 10, 1));
    }

    #[test]
    fn what_runs_again_was_not_called_off() {
        let (_, moved) = begun(1);
        moved.run_again();
        moved.end(Status::Cancelled, Time(2));
        let (_, interrupted) = begun(1);
        interrupted.end(Status::Failed(RequestError::ShuttingDown), Time(2));
        let (_, given_up) = begun(1);
        given_up.end(Status::Failed(RequestError::Dead), Time(2));
        let called_off = [moved, interrupted, given_up].map(|relquery| relquery.read().is_called_off());
        assert_eq!(called_off, [false, false, true]);
    }

    #[test]
    fn what_another_gateway_runs_again_is_counted_there() {
        let (shared, relquery) = begun(2);
        relquery.withhold();
        assert!(end_row(&shared, &relquery, 0));
        relquery.end(Status::Cancelled, Time(2));
        assert!(shared.results.get(TENANT, &[0; 32]).is_some());
        shared.lost_ticket(&relquery);
        assert_eq!(counted(&shared), (0, 0, 10, 0), "no answer is cached that nobody has counted");
        assert_eq!(shared.results.get(TENANT, &[0; 32]), None, "a ticket that comes back runs it again");
        read_store(&shared, 0);
        assert_eq!(counted(&shared), (0, 0, 0, 0));
        assert!(!end_row(&shared, &relquery, 1), "it was under way when the ticket was lost");
        assert_eq!(counted(&shared), (0, 0, 0, 0));
    }
}
