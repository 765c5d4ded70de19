//! What of a relQuery is shown. All of it, unless a ticket stands for it: what a client has seen of a ticket must be the
//! same after a crash, so a row that has finished is shown once it is in the store.

use super::{AnswerRow, RelQueryState, RowProgress, State, Status};

/// Stands for a row that is not shown yet.
static PENDING: AnswerRow = AnswerRow::pending();

impl State {
    /// Rows that finished or failed and may be shown, in that order.
    pub fn shown(&self) -> &[u32] {
        &self.finished[..self.recorded.unwrap_or(self.finished.len())]
    }

    /// The others of those that finished or failed: they are not in the store yet.
    pub fn withheld(&self) -> &[u32] {
        &self.finished[self.shown().len()..]
    }

    /// The rows in input order, as they are shown: pending where they are withheld.
    pub fn shown_rows(&self) -> Vec<&AnswerRow> {
        let mut rows: Vec<&AnswerRow> = self.rows.iter().collect();
        for index in self.withheld() {
            rows[*index as usize] = &PENDING;
        }
        rows
    }

    /// How many of the rows that are shown failed.
    pub fn shown_failures(&self) -> usize {
        let has_failed = |index: &&u32| matches!(self.rows[**index as usize].state, RowProgress::Failed(_));
        self.failed - self.withheld().iter().filter(has_failed).count()
    }

    /// How far it is, as it is shown: it is not completed before its last row is shown.
    pub fn shown_status(&self) -> &Status {
        match &self.status {
            Status::Completed if !self.withheld().is_empty() => &Status::Running,
            status => status,
        }
    }
}

impl RelQueryState {
    /// From now on a row that finishes is withheld until it is recorded, and counted then. What is shown already stays
    /// shown; how many rows those are.
    pub fn withhold(&self) -> usize {
        let mut state = self.read();
        let shown = state.shown().len();
        state.recorded = Some(shown);
        shown
    }
}

#[cfg(test)]
mod tests {
    use base::{End, RelQueryId, TenantId, Time};

    use super::*;
    use crate::error::RequestError;
    use crate::relquery_state::{AnswerSource, Arrival, RelQueryKind, Usage};

    /// Of three rows, of which the first has finished.
    fn begun() -> std::sync::Arc<RelQueryState> {
        let arrival = Arrival { unix_ms: 0, time: Time(10) };
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 3, arrival);
        relquery.answer(1, "b", done(), Time(20));
        relquery
    }

    fn done() -> RowProgress {
        RowProgress::Done { end: End::Stop, usage: Usage::default(), source: AnswerSource::Model }
    }

    fn texts(state: &State) -> Vec<&str> {
        state.shown_rows().iter().map(|row| row.text.as_str()).collect()
    }

    #[test]
    fn a_row_that_is_not_recorded_is_pending_and_its_relquery_runs() {
        let relquery = begun();
        assert_eq!(relquery.withhold(), 1, "what was shown is shown");
        relquery.settle(0, RowProgress::Failed(RequestError::Internal), Time(30));
        relquery.answer(2, "c", done(), Time(40));
        assert_eq!(relquery.read().status, Status::Completed);
        let state = relquery.read();
        assert_eq!((state.shown(), state.withheld()), (&[1][..], &[0, 2][..]));
        assert_eq!((texts(&state), state.shown_failures()), (vec!["", "b", ""], 0));
        assert_eq!(*state.shown_status(), Status::Running);
        drop(state);
        assert!(relquery.record(1).is_empty(), "rows that were known used nothing");
        let state = relquery.read();
        assert_eq!((state.shown_failures(), state.withheld()), (1, &[2][..]));
        drop(state);
        assert!(relquery.record(1).is_empty());
        let state = relquery.read();
        assert_eq!((texts(&state), state.shown_status()), (vec!["", "b", "c"], &Status::Completed));
    }

    #[test]
    fn without_a_ticket_all_is_shown_and_a_ticket_that_is_gone_shows_all() {
        let relquery = begun();
        assert_eq!(relquery.read().withheld(), &[] as &[u32]);
        relquery.withhold();
        relquery.answer(2, "c", done(), Time(40));
        assert_eq!(relquery.read().shown(), [1]);
        assert!(relquery.show_all().is_empty());
        assert_eq!(relquery.read().shown(), [1, 2]);
        assert!(relquery.record(1).is_empty());
        assert_eq!(relquery.read().shown(), [1, 2]);
    }

    #[test]
    fn who_waits_for_rows_that_are_never_shown_is_told() {
        let relquery = begun();
        relquery.withhold();
        for row in [0, 2] {
            relquery.answer(row, "late", done(), Time(40));
        }
        assert!(relquery.revoke().is_empty());
        assert_eq!(*relquery.read().shown_status(), Status::Cancelled);
        let whole = begun();
        assert!(whole.revoke().is_empty());
        assert_eq!(*whole.read().shown_status(), Status::Running, "nothing of it is withheld");
    }
}
