//! An answer as the reader of its events has it. The loop waits while a state is read, so only what is new is copied
//! then; the events are made of the copy.

use base::TokenLogprob;
use serving::relquery_state::RelQueryState;

use super::response_reply::ResponseEnvelope;
use super::tool_calls::ReadAnswer;

/// What a reader has of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerCopy {
    /// Bytes of it.
    bytes: usize,
    /// All of it, where calls are to be read in it.
    text: String,
    read: ReadAnswer,
}

impl AnswerCopy {
    /// What of a text is new.
    pub(super) fn added(&self, text: &str) -> String {
        text.get(self.bytes..).unwrap_or_default().to_owned()
    }

    /// Takes in what is new; `is_whole`: nothing comes behind it.
    pub(super) fn take(&mut self, envelope: &ResponseEnvelope, added: &str, is_whole: bool) {
        self.bytes += added.len();
        match envelope.tools() {
            None => self.read.content.push_str(added),
            Some(tools) => {
                self.text.push_str(added);
                if is_whole || !added.is_empty() {
                    self.read = tools.read(&self.text, is_whole);
                }
            }
        }
    }

    /// What is read of it so far.
    pub(super) fn read(&self) -> &ReadAnswer {
        &self.read
    }
}

/// How likely the tokens of an answer were so far: asked for once for each item that is closed.
pub(super) fn logprobs_of(relquery: &RelQueryState) -> Vec<TokenLogprob> {
    relquery.read().rows.first().map(|row| row.logprobs.clone()).unwrap_or_default()
}
