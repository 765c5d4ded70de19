//! A relQuery as a stream of OpenAI chunks: what is new since the last look.
//!
//! Pure: it reads a state and remembers how much of it was sent, so a client at any pace gets every
//! byte once, and one that is slow gets fewer, larger chunks instead of a backlog.

use base::TokenLogprob;
use serde::Serialize;
use serving::error::{RequestError, internal};
use serving::relquery_state::{AnswerRow, RowProgress, State};

use super::logprobs::{ChatLogprobs, CompletionLogprobs};
use super::reply::{Api, ChatChoice, CompletionChoice, Delta, Envelope, verdict};
use crate::wire::relquery::finish_reason;
use crate::wire::usage::UsageReply;

/// How much of a row was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    opened: bool,
    bytes: usize,
    logprobs: usize,
    ended: bool,
}

/// Turns states of one relQuery into chunks.
#[derive(Debug)]
pub struct Chunker {
    envelope: Envelope,
    include_usage: bool,
    sent: Vec<Sent>,
}

/// What one look found.
#[derive(Debug, PartialEq, Eq)]
pub struct Look {
    /// Chunks, as JSON.
    pub chunks: Vec<String>,
    /// Whether that was all: success, or the error that ends the stream.
    pub end: Option<Result<(), RequestError>>,
}

/// What is new of one row.
struct RowChange<'a> {
    index: u32,
    opens: bool,
    text: &'a str,
    /// Of that text.
    logprobs: &'a [TokenLogprob],
    finish_reason: Option<&'static str>,
}

impl Chunker {
    /// For a relQuery of `rows` rows.
    pub fn new(envelope: Envelope, rows: usize, include_usage: bool) -> Self {
        Self { envelope, include_usage, sent: vec![Sent::default(); rows] }
    }

    /// What is new.
    pub fn look(&mut self, state: &State) -> Look {
        let mut chunks = Vec::new();
        let mut sent = std::mem::take(&mut self.sent);
        for ((index, row), sent) in (0..).zip(&state.rows).zip(&mut sent) {
            if let Some(change) = change(index, row, sent) {
                self.chunk(&change, &mut chunks);
            }
        }
        self.sent = sent;
        let end = match verdict(state) {
            Err(error) => Some(Err(error)),
            Ok(()) if state.is_over() => {
                if self.include_usage {
                    chunks.push(self.last(state));
                }
                Some(Ok(()))
            }
            Ok(()) => None,
        };
        Look { chunks, end }
    }

    /// Writes the change of one row: an opening, text, an end, whichever there are.
    fn chunk(&self, change: &RowChange<'_>, chunks: &mut Vec<String>) {
        let usage = self.include_usage.then_some(None);
        match self.envelope.api {
            Api::Completion => {
                let choice = CompletionChoice {
                    index: change.index,
                    text: change.text.to_owned(),
                    logprobs: CompletionLogprobs::of(change.logprobs),
                    finish_reason: change.finish_reason,
                };
                chunks.push(json(&self.envelope.wrap("text_completion", vec![choice], usage)));
            }
            Api::Chat => {
                let mut push = |delta, logprobs: &[TokenLogprob], finish_reason| {
                    let choice = ChatChoice {
                        index: change.index,
                        message: None,
                        delta: Some(delta),
                        logprobs: ChatLogprobs::of(logprobs),
                        finish_reason,
                    };
                    chunks.push(json(&self.envelope.wrap("chat.completion.chunk", vec![choice], usage)));
                };
                if change.opens {
                    push(Delta { role: Some("assistant"), content: Some(String::new()) }, &[], None);
                }
                if !change.text.is_empty() {
                    push(Delta { role: None, content: Some(change.text.to_owned()) }, change.logprobs, None);
                }
                if change.finish_reason.is_some() {
                    push(Delta::default(), &[], change.finish_reason);
                }
            }
        }
    }

    /// The chunk of usage: no choices.
    fn last(&self, state: &State) -> String {
        let usage = Some(Some(UsageReply::from(state.usage)));
        match self.envelope.api {
            Api::Completion => {
                json(&self.envelope.wrap::<CompletionChoice>("text_completion", Vec::new(), usage))
            }
            Api::Chat => json(&self.envelope.wrap::<ChatChoice>("chat.completion.chunk", Vec::new(), usage)),
        }
    }
}

/// What is new of a row, and remembers that it was told.
fn change<'a>(index: u32, row: &'a AnswerRow, sent: &mut Sent) -> Option<RowChange<'a>> {
    if sent.ended {
        return None;
    }
    let finish_reason = match row.state {
        RowProgress::Done { end, .. } => Some(finish_reason(end)),
        // Of a row that failed, the text that there is; then the stream ends with its error.
        RowProgress::Pending | RowProgress::Failed(_) => None,
    };
    // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
    let text = row.text.get(sent.bytes..).unwrap_or_default();
    if text.is_empty() && finish_reason.is_none() {
        return None;
    }
    let opens = !std::mem::replace(&mut sent.opened, true);
    sent.bytes = row.text.len();
    // They come with the text that they are of, which comes whole.
    let logprobs = row.logprobs.get(sent.logprobs..).unwrap_or_default();
    sent.logprobs = row.logprobs.len();
    sent.ended = finish_reason.is_some();
    Some(RowChange { index, opens, text, logprobs, finish_reason })
}

/// An object as one line.
fn json<T: Serialize>(object: &T) -> String {
    // Plain data: serialising it cannot fail; if it did, the client must see an error, not an empty line.
    serde_json::to_string(object)
        .unwrap_or_else(|cause| serde_json::json!(crate::error::body(&internal(cause))).to_string())
}

#[cfg(test)]
mod tests {
    use base::{End, RelQueryId, TenantId, Time, TokenCount};
    use serde_json::Value;
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, RelQueryState, Status, Usage};

    use super::*;
    use crate::wire::openai::tests::model;

    const ARRIVAL: Arrival = Arrival { unix_ms: 0, time: Time(0) };

    fn done() -> RowProgress {
        let usage = Usage { output: TokenCount(3), ..Usage::default() };
        RowProgress::Done { end: End::Length, usage, source: AnswerSource::Model }
    }

    fn values(look: &Look) -> Vec<Value> {
        look.chunks.iter().map(|chunk| serde_json::from_str(chunk).expect("JSON")).collect()
    }

    #[test]
    fn every_byte_is_sent_once_whatever_the_readers_pace() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let envelope = Envelope::new(Api::Chat, &relquery, &model());
        let mut chunker = Chunker::new(envelope, 1, true);
        assert_eq!(chunker.look(&relquery.read()), Look { chunks: Vec::new(), end: None });
        relquery.token(0, "é", true, Time(1));
        let first = values(&chunker.look(&relquery.read()));
        assert_eq!(first[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(first[1]["choices"][0]["delta"]["content"], "é");
        assert_eq!(first[1]["usage"], Value::Null);
        assert!(chunker.look(&relquery.read()).chunks.is_empty(), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.token(0, "c", false, Time(3));
        relquery.settle(0, done(), Time(3));
        let last = chunker.look(&relquery.read());
        assert_eq!(last.end, Some(Ok(())));
        let last = values(&last);
        assert_eq!(last[0]["choices"][0]["delta"]["content"], "bc");
        assert_eq!(last[1]["choices"][0]["finish_reason"], "length");
        assert_eq!(last[2]["choices"], serde_json::json!([]));
        assert_eq!(last[2]["usage"]["completion_tokens"], 3);
        assert_eq!(last.len(), 3);
    }

    #[test]
    fn usage_is_absent_where_nobody_asked() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        let envelope = Envelope::new(Api::Completion, &relquery, &model());
        let mut chunker = Chunker::new(envelope, 2, false);
        relquery.token(1, "x", true, Time(1));
        relquery.settle(1, done(), Time(2));
        relquery.settle(0, done(), Time(2));
        let look = chunker.look(&relquery.read());
        let chunks = values(&look);
        assert_eq!((chunks.len(), look.end), (2, Some(Ok(()))));
        assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
        assert_eq!(chunks[1]["choices"][0]["text"], "x");
    }

    #[test]
    fn trouble_ends_the_stream_with_its_error() {
        for (status, error) in [
            (Status::Failed(RequestError::ShuttingDown), RequestError::ShuttingDown),
            (Status::Cancelled, RequestError::Cancelled),
        ] {
            let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
            let mut chunker = Chunker::new(Envelope::new(Api::Completion, &relquery, &model()), 1, true);
            relquery.token(0, "so far", true, Time(1));
            relquery.end(status, Time(2));
            let look = chunker.look(&relquery.read());
            assert_eq!((look.chunks.len(), look.end), (1, Some(Err(error))));
        }
    }
}
