//! What a relQuery that is over had the model do and nobody takes the answers of: which calls a column has made. Known once
//! the loop has let it go, for until then rows of it may still begin.

use std::collections::BTreeMap;

use base::TokenCount;

use super::{RelQueryKind, RelQueryState, RowProgress, State, Status};

/// Calls of a column whose answers nobody takes.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftCalls {
    /// What each had put out by its row, where that is known.
    calls: BTreeMap<u32, Option<TokenCount>>,
    /// Whether there will be no more.
    is_all: bool,
}

impl State {
    /// The calls of a column that nobody takes the answers of, by their rows, each with what it put out, where that is
    /// known. `None`: rows of it may still begin.
    pub(crate) fn left_calls(&self) -> Option<&BTreeMap<u32, Option<TokenCount>>> {
        self.is_let_go().then_some(&self.left.calls)
    }

    /// Whether no row of it begins any more, or uses anything. Of one that is completed every row has its answer, whether the
    /// loop has heard of its end or not.
    pub fn is_let_go(&self) -> bool {
        self.left.is_all || self.status == Status::Completed
    }

    /// A row of a column has run to its end, which nobody is told where the column is over.
    pub(crate) fn leave_finished(&mut self, row: u32, output: TokenCount) {
        if self.is_over() {
            self.leave_call(row, true, Some(output));
        }
    }

    fn leave_call(&mut self, row: u32, is_made: bool, output: Option<TokenCount>) {
        let own = &self.rows[row as usize];
        if own.state == RowProgress::Pending && (is_made || own.start.is_some()) {
            self.left.calls.insert(row, output);
        }
    }
}

impl RelQueryState {
    /// A row of a column that is over ends without it, having put out so much. `is_made`: its call is made, though it may
    /// not have begun here: something outside has it.
    pub(crate) fn leave_call(&self, row: u32, is_made: bool, output: Option<TokenCount>) {
        if self.kind == RelQueryKind::Column {
            self.read().leave_call(row, is_made, output);
        }
    }

    /// A row has run to its end, which nobody is told where it is of a column that is over.
    pub(crate) fn leave_finished(&self, row: u32, output: TokenCount) {
        if self.kind == RelQueryKind::Column {
            self.read().leave_finished(row, output);
        }
    }

    /// The loop runs nothing of it any more, and never will.
    pub(crate) fn let_go(&self) {
        self.read().left.is_all = true;
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use base::{RelQueryId, TenantId, Time};

    use super::super::Arrival;
    use super::*;
    use crate::error::RequestError;

    #[test]
    fn calls_that_began_are_left_once_the_loop_has_let_their_column_go() {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let column = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::Column, 4, arrival);
        column.started(0, Time(1), Time(1));
        column.started(1, Time(1), Time(1));
        column.leave_finished(1, TokenCount(7));
        column.end(Status::Cancelled, Time(2));
        column.leave_finished(1, TokenCount(7));
        column.leave_call(0, false, Some(TokenCount(3)));
        column.leave_call(2, false, Some(TokenCount(0)));
        column.leave_call(3, true, None);
        assert_eq!(column.read().left_calls(), None, "others may begin");
        column.let_go();
        let expected = [(0, Some(TokenCount(3))), (1, Some(TokenCount(7))), (3, None)];
        assert_eq!(column.read().left_calls(), Some(&BTreeMap::from(expected)), "the third had not begun");
    }

    #[test]
    fn a_column_that_is_completed_has_left_no_call_whoever_hears_of_it() {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let column = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::Column, 1, arrival);
        assert!(!column.close(Time(1)), "its row has no answer");
        assert_eq!(column.read().left_calls(), None);
        column.settle(0, RowProgress::Failed(RequestError::Internal), Time(2));
        assert_eq!(column.read().left_calls(), Some(&BTreeMap::new()));
    }
}
