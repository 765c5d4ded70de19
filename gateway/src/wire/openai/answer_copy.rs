//! An answer as the reader of its events has it. The loop waits while a state is read, so only what is new is copied
//! then; the events are made of the copy.

use base::TokenLogprob;
use serving::relquery_state::{RelQueryState, State};

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

/// All of a state that changes no more, so that nobody waits while it is told.
pub(crate) fn whole(state: &State) -> Option<State> {
    state.is_over().then(|| state.clone())
}

/// How likely the tokens of an answer were so far: asked for once for each item that is closed.
pub(super) fn logprobs_of(relquery: &RelQueryState) -> Vec<TokenLogprob> {
    relquery.read().rows.first().map(|row| row.logprobs.clone()).unwrap_or_default()
}
