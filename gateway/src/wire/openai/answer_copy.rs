//! An answer as the reader of its events has it. The loop waits while a state is read, so only what is new is copied
//! then; the events are made of the copy.

use base::TokenLogprob;
use serving::relquery_state::{AnswerRow, RelQueryState, RowProgress, State};

use super::tool_calls::{CallReader, ReadAnswer};

/// What a reader has of an answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerCopy {
    /// Bytes of it.
    bytes: usize,
    /// All of it, where calls are to be read in it.
    text: String,
    read: ReadAnswer,
}

impl AnswerCopy {
    /// What of a text is new.
    pub(crate) fn added(&self, text: &str) -> String {
        text.get(self.bytes..).unwrap_or_default().to_owned()
    }

    /// Takes in what is new. `tools`: how calls are read, where any can be; `is_whole`: nothing comes behind it.
    pub(crate) fn take(&mut self, tools: Option<&CallReader>, added: &str, is_whole: bool) {
        self.bytes += added.len();
        match tools {
            None => {
                self.read.is_said_first = true;
                self.read.content.push_str(added);
            }
            Some(tools) => {
                self.text.push_str(added);
                if is_whole || !added.is_empty() {
                    self.read = tools.read(&self.text, is_whole);
                }
            }
        }
    }

    /// What is read of it so far.
    pub(crate) fn read(&self) -> &ReadAnswer {
        &self.read
    }
}

/// The rows of a request as the reader of their chunks has them.
#[derive(Debug, Default)]
pub(super) struct RowCopies(Vec<AnswerRow>);

impl RowCopies {
    /// Takes in what is new of each. `has_told`: whether the prompt of the row of this number was told.
    pub(super) fn take(&mut self, rows: &[AnswerRow], has_told: impl Fn(usize) -> bool) {
        for (number, (copy, row)) in self.0.iter_mut().zip(rows).enumerate() {
            copy.text.push_str(row.text.get(copy.text.len()..).unwrap_or_default());
            copy.tokens.extend_from_slice(row.tokens.get(copy.tokens.len()..).unwrap_or_default());
            copy.logprobs.extend_from_slice(row.logprobs.get(copy.logprobs.len()..).unwrap_or_default());
            if !has_told(number) {
                copy.prompt.extend_from_slice(row.prompt.get(copy.prompt.len()..).unwrap_or_default());
            }
            copy.pieces = row.pieces;
            copy.state.clone_from(&row.state);
        }
        self.0.extend_from_slice(rows.get(self.0.len()..).unwrap_or_default());
    }

    /// Gives up the prompts that were told: scores are counted only as long as the relQuery has them.
    pub(super) fn forget_prompts(&mut self, has_told: impl Fn(usize) -> bool) {
        for (_, copy) in self.0.iter_mut().enumerate().filter(|(number, _)| has_told(*number)) {
            copy.prompt = Vec::new();
        }
    }

    /// What there is of them.
    pub(super) fn read(&self) -> &[AnswerRow] {
        &self.0
    }
}

/// Whether the model has not begun with a row.
pub(super) fn is_waiting(row: &AnswerRow) -> bool {
    row.start.is_none() && row.pieces == 0 && row.state == RowProgress::Pending
}

/// All of a state that changes no more, so that nobody waits while it is told.
pub(crate) fn whole(state: &State) -> Option<State> {
    state.is_over().then(|| state.clone())
}

/// How likely the tokens of an answer were so far: asked for once for each item that is closed.
pub(super) fn logprobs_of(relquery: &RelQueryState) -> Vec<TokenLogprob> {
    relquery.read().rows.first().map(|row| row.logprobs.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use base::{RelQueryId, TenantId, Time, TokenId};
    use serving::relquery_state::{Arrival, RelQueryKind};

    use super::*;

    #[test]
    fn only_what_is_new_of_rows_is_copied() {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, arrival);
        relquery.keep_tokens();
        let mut copies = RowCopies::default();
        let nothing_told = |_| false;
        copies.take(&relquery.read().rows, nothing_told);
        for (id, text) in [(7, "é"), (8, "b")] {
            relquery.keep_token(1, TokenId(id));
            relquery.token(1, text, id == 7, Time(1));
            copies.take(&relquery.read().rows, nothing_told);
            assert_eq!(copies.read(), relquery.read().rows, "nothing is missing");
        }
        // What is copied already is not read again.
        relquery.read().rows[1].text = "xxx".into();
        relquery.token(1, "c", false, Time(2));
        copies.take(&relquery.read().rows, nothing_told);
        let [silent, row] = copies.read() else { panic!("two rows") };
        assert_eq!((silent.text.as_str(), row.text.as_str(), row.pieces), ("", "ébc", 3));
    }
}
