//! A relQuery as a stream of OpenAI chunks: what is new since the last look.
//!
//! It remembers how much was sent, so a client at any pace gets every byte once, and one that is slow gets fewer, larger
//! chunks instead of a backlog. Only what is new is copied while the loop waits: chunks are made of the copy.

use std::borrow::Cow;

use base::{TokenCount, TokenId, TokenLogprob};
use serde::Serialize;
use serving::error::{RequestError, internal};
use serving::relquery_state::{AnswerRow, RelQueryState, RowProgress, Usage};

use super::answer_copy::RowCopies;
use super::logprobs::{ChatLogprobs, CompletionLogprobs};
use super::reply::{Api, ChatChoice, CompletionChoice, Delta, Envelope, Reply, RowEnd, ShownAnswer, verdict};
use super::text_offsets::TextOffsets;
use super::tool_calls::{FunctionReply, ReadAnswer, ToolCallReply};
use crate::wire::usage::UsageReply;

/// What a chunk of a conversation is.
const CHAT_CHUNK: &str = "chat.completion.chunk";

/// How much of a row was sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    opened: bool,
    bytes: usize,
    /// Bytes of each call's arguments that were sent.
    calls: Vec<usize>,
    logprobs: usize,
    offsets: TextOffsets,
    ids: usize,
    ended: bool,
}

/// Which chunks say how many tokens there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UsageChunks {
    #[default]
    None,
    /// A last one of its own.
    Last,
    /// That, and each of a row with what the row has so far. The tokens of the rows' prompts; none where only those
    /// that run them know.
    Each(Vec<u64>),
}

/// Whether the first chunk of a row was sent.
fn has_opened(sent: &[Sent], row: usize) -> bool {
    sent.get(row).is_some_and(|sent| sent.opened)
}

/// Turns states of one relQuery into chunks.
#[derive(Debug)]
pub struct Chunker {
    envelope: Envelope,
    usage: UsageChunks,
    rows: RowCopies,
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

/// Tokens that were not told yet; those of text come with it.
#[derive(Clone, Copy, Default)]
struct NewTokens<'a> {
    logprobs: &'a [TokenLogprob],
    ids: &'a [TokenId],
}

/// What is new of one row.
struct RowChange<'a> {
    index: u32,
    opens: bool,
    text: String,
    calls: Vec<ToolCallReply>,
    /// Of that text.
    tokens: NewTokens<'a>,
    /// Their log probabilities in the shape of completions, where this is one.
    logprobs: Option<CompletionLogprobs>,
    /// How many tokens the row's output has so far.
    output: u64,
    end: Option<RowEnd>,
}

impl Chunker {
    /// For a relQuery of `rows` rows.
    pub fn new(envelope: Envelope, rows: usize, usage: UsageChunks) -> Self {
        let sent = |row| Sent { offsets: envelope.prompt.offsets(row), ..Sent::default() };
        let sent = (0..).take(rows).map(sent).collect();
        Self { envelope, usage, rows: RowCopies::default(), sent }
    }

    /// What is new.
    pub fn look(&mut self, relquery: &RelQueryState) -> Look {
        let (verdict, is_over, usage) = {
            let state = relquery.read();
            self.rows.take(&state.rows, |row| has_opened(&self.sent, row));
            (verdict(&state), state.is_over(), state.usage)
        };
        let mut chunks = Vec::new();
        let (mut rows, mut sent) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.sent));
        for ((index, row), sent) in (0..).zip(rows.read()).zip(&mut sent) {
            if let Some(change) = self.change(index, row, sent) {
                self.chunk(change, &mut chunks);
            }
        }
        // They came with each row's first chunk.
        rows.forget_prompts(|row| has_opened(&sent, row));
        (self.rows, self.sent) = (rows, sent);
        let end = match verdict {
            Err(error) => Some(Err(error)),
            Ok(()) if is_over => {
                if self.usage != UsageChunks::None {
                    chunks.push(self.last(usage));
                }
                Some(Ok(()))
            }
            Ok(()) => None,
        };
        Look { chunks, end }
    }

    /// Writes the change of one row: an opening, text, an end, whichever there are.
    fn chunk(&self, change: RowChange<'_>, chunks: &mut Vec<String>) {
        let RowChange { index, opens, text, calls, tokens, logprobs, output, end } = change;
        let usage = self.usage_so_far(index, output);
        match self.envelope.api {
            Api::Completion => {
                // The prompt comes with an answer's first chunk.
                let before = if opens { self.envelope.prompt.text(index) } else { "" };
                let (finish_reason, stop_reason) = RowEnd::fields(end);
                let choice = CompletionChoice {
                    index,
                    text: format!("{before}{text}"),
                    logprobs,
                    finish_reason,
                    stop_reason,
                    token_ids: self.envelope.token_ids(tokens.ids),
                    prompt_token_ids: opens.then(|| self.envelope.prompt_token_ids(index)).flatten(),
                    prompt_logprobs: None,
                };
                chunks.push(json(&self.envelope.wrap("text_completion", vec![choice], usage)));
            }
            Api::Chat => {
                if opens {
                    let delta =
                        Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
                    let choice = self.piece(index, delta, NewTokens::default(), None);
                    // It tells of no token, though there is one.
                    let usage = self.usage_so_far(index, 0);
                    let chunk = self.envelope.wrap(CHAT_CHUNK, vec![choice], usage);
                    let prompt_token_ids = self.envelope.prompt_token_ids(index);
                    chunks.push(json(&Reply { prompt_token_ids, ..chunk }));
                    let before = self.envelope.prompt.text(index);
                    if !before.is_empty() {
                        let delta = Delta { content: Some(before.to_owned()), ..Delta::default() };
                        let choice = self.piece(index, delta, NewTokens::default(), None);
                        let usage = self.usage_so_far(index, 0);
                        chunks.push(json(&self.envelope.wrap(CHAT_CHUNK, vec![choice], usage)));
                    }
                }
                let mut push = |delta, tokens: NewTokens<'_>, end| {
                    let choice = self.piece(index, delta, tokens, end);
                    chunks.push(json(&self.envelope.wrap(CHAT_CHUNK, vec![choice], usage)));
                };
                let mut rest = tokens;
                if !text.is_empty() {
                    let delta = Delta { content: Some(text), ..Delta::default() };
                    push(delta, std::mem::take(&mut rest), None);
                }
                // Those of a stop string's tokens, or of a call's, are of no text.
                for call in calls {
                    let delta = Delta::of_call(call, self.envelope.tells_functions());
                    push(delta, std::mem::take(&mut rest), None);
                }
                if end.is_some() {
                    push(Delta::default(), rest, end);
                }
            }
        }
    }

    /// A piece of a conversation's answer.
    fn piece(&self, index: u32, delta: Delta, tokens: NewTokens<'_>, end: Option<RowEnd>) -> ChatChoice {
        let (finish_reason, stop_reason) = RowEnd::fields(end);
        ChatChoice {
            index,
            message: None,
            delta: Some(delta),
            logprobs: ChatLogprobs::of(tokens.logprobs, self.envelope.prompt.fields.names_ids),
            finish_reason,
            stop_reason,
            token_ids: self.envelope.token_ids(tokens.ids),
        }
    }

    /// The usage of a chunk of a row that has so many tokens of output: null where only the last chunk has it.
    fn usage_so_far(&self, row: u32, output: u64) -> Option<Option<UsageReply>> {
        let prompts = match &self.usage {
            UsageChunks::None => return None,
            UsageChunks::Last => return Some(None),
            UsageChunks::Each(prompts) => prompts,
        };
        let usage = |prompt: &u64| Usage {
            prompt: TokenCount(*prompt),
            output: TokenCount(output),
            ..Usage::default()
        };
        Some(prompts.get(row as usize).map(|prompt| UsageReply::from(usage(prompt))))
    }

    /// The chunk of usage: no choices.
    fn last(&self, usage: Usage) -> String {
        let usage = Some(Some(UsageReply::from(usage)));
        match self.envelope.api {
            Api::Completion => {
                json(&self.envelope.wrap::<CompletionChoice>("text_completion", Vec::new(), usage))
            }
            Api::Chat => json(&self.envelope.wrap::<ChatChoice>(CHAT_CHUNK, Vec::new(), usage)),
        }
    }
}

impl Chunker {
    /// What is new of a row, and remembers that it was told.
    fn change<'a>(&self, index: u32, row: &'a AnswerRow, sent: &mut Sent) -> Option<RowChange<'a>> {
        if sent.ended {
            return None;
        }
        let end = match row.state {
            RowProgress::Done { end, .. } => Some(end),
            // Of a row that failed, the text that there is; then the stream ends with its error.
            RowProgress::Pending | RowProgress::Failed(_) => None,
        };
        let prompt = &self.envelope.prompt;
        let mut reason = end.map(|end| prompt.finish_reason(end));
        let told = ShownAnswer::of(row, prompt);
        let (mut calls, mut said) = (Vec::new(), Cow::Borrowed(told.text));
        if let Some(tools) = &self.envelope.tools {
            let answer = tools.read(&row.text, end.is_some());
            reason = end.and_then(|end| tools.finish_reason(&answer, end)).or(reason);
            calls = new_calls(&answer, &mut sent.calls, |i| tools.id(self.envelope.id(), index, i));
            said = Cow::Owned(answer.content);
        }
        // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
        let text = said.get(sent.bytes..).unwrap_or_default().to_owned();
        if text.is_empty() && calls.is_empty() && reason.is_none() {
            return None;
        }
        let opens = !std::mem::replace(&mut sent.opened, true);
        sent.bytes = said.len();
        // They come with the text that they are of, which comes whole.
        let tokens = NewTokens {
            logprobs: told.logprobs.get(sent.logprobs..).unwrap_or_default(),
            ids: told.tokens.get(sent.ids..).unwrap_or_default(),
        };
        (sent.logprobs, sent.ids) = (told.logprobs.len(), told.tokens.len());
        let logprobs = match self.envelope.api {
            Api::Completion => {
                let (text, names_ids) = ((told.text, end.is_some()), prompt.fields.names_ids);
                let logprobs = CompletionLogprobs::of(tokens.logprobs, &mut sent.offsets, text, names_ids);
                let echoed = opens.then(|| prompt.echoed(index, row)).flatten();
                CompletionLogprobs::behind(echoed, logprobs)
            }
            Api::Chat => None,
        };
        sent.ended = reason.is_some();
        let output = match row.state {
            RowProgress::Done { usage, .. } => usage.output.0,
            RowProgress::Pending | RowProgress::Failed(_) => row.pieces,
        };
        let end = reason.map(|finish_reason| RowEnd {
            finish_reason,
            stop_reason: end.and_then(|end| self.envelope.stop_reason(end)),
        });
        Some(RowChange { index, opens, text, calls, tokens, logprobs, output, end })
    }
}

/// What is new of an answer's calls: each one's name first, then pieces of its arguments.
fn new_calls(answer: &ReadAnswer, sent: &mut Vec<usize>, id: impl Fn(usize) -> String) -> Vec<ToolCallReply> {
    let mut pieces = Vec::new();
    for (number, call) in answer.calls.iter().enumerate() {
        let index = u32::try_from(number).ok();
        if sent.len() == number {
            sent.push(0);
            let function = FunctionReply { name: Some(call.name.clone()), arguments: String::new() };
            pieces.push(ToolCallReply { index, id: Some(id(number)), kind: Some("function"), function });
        }
        let Some(sent) = sent.get_mut(number) else { continue };
        let arguments = call.arguments.get(*sent..).unwrap_or_default();
        if !arguments.is_empty() {
            let function = FunctionReply { name: None, arguments: arguments.to_owned() };
            pieces.push(ToolCallReply { index, id: None, kind: None, function });
        }
        *sent = call.arguments.len();
    }
    pieces
}

/// An object as one line.
fn json<T: Serialize>(object: &T) -> String {
    // Plain data: serialising it cannot fail; if it did, the client must see an error, not an empty line.
    serde_json::to_string(object)
        .unwrap_or_else(|cause| serde_json::json!(crate::error::body(&internal(cause))).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, PromptToken, RelQueryId, TenantId, Time, ToolCallForm};
    use serde_json::Value;
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, Status};

    use super::*;
    use crate::wire::openai::tests::model;
    use crate::wire::openai::{CallReader, PromptFields, PromptReply, RowPrompts};

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
        let mut chunker = Chunker::new(envelope, 1, UsageChunks::Last);
        assert_eq!(chunker.look(&relquery), Look { chunks: Vec::new(), end: None });
        relquery.token(0, "é", true, Time(1));
        let first = values(&chunker.look(&relquery));
        assert_eq!(first[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(first[1]["choices"][0]["delta"]["content"], "é");
        assert_eq!(first[1]["usage"], Value::Null);
        assert!(chunker.look(&relquery).chunks.is_empty(), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.token(0, "c", false, Time(3));
        relquery.settle(0, done(), Time(3));
        let last = chunker.look(&relquery);
        assert_eq!(last.end, Some(Ok(())));
        let last = values(&last);
        assert_eq!(last[0]["choices"][0]["delta"]["content"], "bc");
        assert_eq!(last[1]["choices"][0]["finish_reason"], "length");
        assert_eq!(last[2]["choices"], serde_json::json!([]));
        assert_eq!(last[2]["usage"]["completion_tokens"], 3);
        assert_eq!(last.len(), 3);
    }

    #[test]
    fn each_chunk_says_what_its_row_has_so_far_where_that_is_asked_for() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        let envelope = Envelope::new(Api::Completion, &relquery, &model());
        let mut chunker = Chunker::new(envelope, 2, UsageChunks::Each(vec![7, 9]));
        relquery.token(1, "a", true, Time(1));
        relquery.token(1, "", false, Time(2));
        let of = |chunk: &Value| {
            let usage = &chunk["usage"];
            [&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]].map(Value::as_u64)
        };
        let found = values(&chunker.look(&relquery));
        assert_eq!(of(&found[0]), [9, 2, 11].map(Some));
        relquery.settle(1, done(), Time(3));
        relquery.settle(0, done(), Time(3));
        let found = values(&chunker.look(&relquery));
        assert_eq!(
            found[..2].iter().map(of).collect::<Vec<_>>(),
            [[7, 3, 10].map(Some), [9, 3, 12].map(Some)]
        );
        assert_eq!(found[2]["usage"]["completion_tokens"], 6, "the last has all of them");
    }

    #[test]
    fn the_chunk_of_a_role_counts_no_token_of_output() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let envelope = Envelope::new(Api::Chat, &relquery, &model());
        let mut chunker = Chunker::new(envelope, 1, UsageChunks::Each(vec![7]));
        relquery.token(0, "a", true, Time(1));
        relquery.settle(0, done(), Time(2));
        let found = values(&chunker.look(&relquery));
        let of = |chunk: &Value| chunk["usage"]["completion_tokens"].as_u64();
        assert_eq!(found[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(found[0]["usage"]["total_tokens"], 7);
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [0, 3, 3, 3].map(Some));
    }

    #[test]
    fn ids_of_tokens_come_once_and_those_of_the_prompt_first() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        relquery.keep_tokens();
        let prompt: Arc<[TokenId]> = [TokenId(7), TokenId(8)].into();
        let prompts: RowPrompts = [prompt].into();
        let chunker = |api| {
            let envelope = Envelope::new(api, &relquery, &model()).telling_tokens(Some(prompts.clone()));
            Chunker::new(envelope, 1, UsageChunks::None)
        };
        let (mut chat, mut completion) = (chunker(Api::Chat), chunker(Api::Completion));
        let (mut of_chat, mut of_completion) = (Vec::new(), Vec::new());
        for (id, text) in [(104, "h"), (195, ""), (169, "é")] {
            relquery.keep_token(0, TokenId(id));
            relquery.token(0, text, id == 104, Time(1));
            of_chat.extend(values(&chat.look(&relquery)));
            of_completion.extend(values(&completion.look(&relquery)));
        }
        relquery.keep_token(0, TokenId(256));
        relquery.settle(0, done(), Time(2));
        of_chat.extend(values(&chat.look(&relquery)));
        of_completion.extend(values(&completion.look(&relquery)));
        let ids = |chunk: &Value| chunk["choices"][0]["token_ids"].clone();
        let told = of_chat.iter().map(ids).collect::<Vec<_>>();
        let expected = [
            serde_json::json!([]),
            serde_json::json!([104]),
            serde_json::json!([195, 169]),
            serde_json::json!([256]),
        ];
        assert_eq!(told, expected, "with the text that they are of");
        let prompts = of_chat.iter().map(|chunk| &chunk["prompt_token_ids"]).collect::<Vec<_>>();
        assert_eq!(prompts, [&serde_json::json!([7, 8]), &Value::Null, &Value::Null, &Value::Null]);
        assert_eq!(of_completion.iter().map(ids).collect::<Vec<_>>(), expected[1..]);
        let first = |chunk: &Value| chunk["choices"][0]["prompt_token_ids"].clone();
        let prompts = of_completion.iter().map(first).collect::<Vec<_>>();
        assert_eq!(prompts, [serde_json::json!([7, 8]), Value::Null, Value::Null]);
    }

    #[test]
    fn a_calls_name_comes_once_and_each_piece_of_its_arguments_once() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let tools = CallReader {
            names: ["find".to_owned()].into(),
            form: ToolCallForm::Hermes,
            is_bare: false,
            is_named: false,
            is_parallel: true,
            is_legacy: false,
        };
        let envelope = Envelope::new(Api::Chat, &relquery, &model()).calling(Some(tools.into()));
        let mut chunker = Chunker::new(envelope, 1, UsageChunks::None);
        let pieces = [
            "So: <tool",
            "_call>\n{\"name\": \"find\", \"argu",
            "ments\": {\"te",
            "xt\": \"a\"}}",
            "\n</tool_call>",
        ];
        let mut deltas = Vec::new();
        for (at, piece) in (1..).zip(pieces) {
            relquery.token(0, piece, at == 1, Time(at));
            deltas.extend(values(&chunker.look(&relquery)));
        }
        relquery.settle(
            0,
            RowProgress::Done { end: End::Stop, usage: Usage::default(), source: AnswerSource::Model },
            Time(9),
        );
        deltas.extend(values(&chunker.look(&relquery)));
        let calls: Vec<&Value> = deltas
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
            .filter(|call| call.is_object())
            .collect();
        let named: Vec<&Value> =
            calls.iter().map(|call| &call["function"]["name"]).filter(|name| name.is_string()).collect();
        assert_eq!(named, ["find"]);
        let arguments: Vec<&str> = calls
            .iter()
            .filter_map(|call| call["function"]["arguments"].as_str())
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(arguments, ["{\"te", "xt\": \"a\"}"]);
        let content: Vec<&str> =
            deltas.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(content.concat(), "So:");
        assert_eq!(deltas.last().expect("chunks")["choices"][0]["finish_reason"], "tool_calls");
    }

    #[test]
    fn what_is_echoed_stands_once_in_front_of_each_answer_beside_calls_too() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        let tools = Arc::new(CallReader {
            names: ["find".to_owned()].into(),
            form: ToolCallForm::Hermes,
            is_bare: false,
            is_named: false,
            is_parallel: true,
            is_legacy: false,
        });
        let envelope = || {
            let prompt = PromptReply { texts: vec!["So: ".into(); 2], ..PromptReply::default() };
            let envelope = Envelope::new(Api::Chat, &relquery, &model());
            envelope.calling(Some(Arc::clone(&tools))).telling_prompts(prompt)
        };
        let mut chunker = Chunker::new(envelope(), 2, UsageChunks::None);
        let call = "<tool_call>{\"name\": \"find\", \"arguments\": {}}</tool_call>";
        relquery.token(0, call, true, Time(1));
        relquery.token(1, "no", true, Time(1));
        let mut chunks = values(&chunker.look(&relquery));
        relquery.token(1, "ne", false, Time(2));
        relquery.settle(0, done(), Time(3));
        relquery.settle(1, done(), Time(3));
        chunks.extend(values(&chunker.look(&relquery)));
        let whole = serde_json::json!(envelope().chat(&relquery.read()).expect("it succeeded"));
        for (index, content, calls) in [(0_usize, "So: ", 1_usize), (1, "So: none", 0)] {
            let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
            let deltas: Vec<&Value> =
                choices.filter(|choice| choice["index"] == index).map(|choice| &choice["delta"]).collect();
            let texts: Vec<&str> = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
            assert_eq!((texts.concat().as_str(), texts[..2].to_vec()), (content, vec!["", "So: "]));
            let names = deltas.iter().map(|delta| &delta["tool_calls"][0]["function"]["name"]);
            assert_eq!(names.filter(|name| name.is_string()).count(), calls, "{index}");
            let message = &whole["choices"][index]["message"];
            assert_eq!(message["content"], content);
            assert_eq!(message["tool_calls"].as_array().map_or(0, Vec::len), calls, "{index}");
        }
    }

    #[test]
    fn the_scores_of_an_echoed_prompt_are_kept_until_they_are_told_and_no_longer() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        let prompts = [1, 2].map(|id| {
            let token = PromptToken { id: TokenId(id), text: "a".into(), bytes: None, likelihood: None };
            Arc::<[PromptToken]>::from([token])
        });
        for (row, prompt) in (0..).zip(&prompts) {
            relquery.keep_prompt(row, Arc::clone(prompt));
        }
        let fields = PromptFields { echo: true, echoed_logprobs: Some(0), ..PromptFields::default() };
        let prompt = PromptReply { fields, texts: vec!["a".into(); 2] };
        let envelope = Envelope::new(Api::Completion, &relquery, &model()).telling_prompts(prompt);
        let mut chunker = Chunker::new(envelope, 2, UsageChunks::None);
        // This test's own, the relQuery's, and what the chunker keeps.
        let kept = || prompts.each_ref().map(|prompt| Arc::strong_count(prompt) - 2);
        chunker.look(&relquery);
        assert_eq!(kept(), [1, 1], "nothing is told yet");
        for at in 1..4 {
            relquery.token(1, "b", at == 1, Time(at));
            let told = values(&chunker.look(&relquery));
            let tokens = &told[0]["choices"][0]["logprobs"]["tokens"];
            assert_eq!(tokens.as_array().map(Vec::len), (at == 1).then_some(1), "{told:?}");
            assert_eq!(kept(), [1, 0]);
        }
        relquery.settle(1, done(), Time(4));
        relquery.settle(0, done(), Time(4));
        assert_eq!(chunker.look(&relquery).end, Some(Ok(())));
        assert_eq!(kept(), [0, 0]);
    }

    #[test]
    fn usage_is_absent_where_nobody_asked() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 2, ARRIVAL);
        let envelope = Envelope::new(Api::Completion, &relquery, &model());
        let mut chunker = Chunker::new(envelope, 2, UsageChunks::None);
        relquery.token(1, "x", true, Time(1));
        relquery.settle(1, done(), Time(2));
        relquery.settle(0, done(), Time(2));
        let look = chunker.look(&relquery);
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
            let mut chunker =
                Chunker::new(Envelope::new(Api::Completion, &relquery, &model()), 1, UsageChunks::Last);
            relquery.token(0, "so far", true, Time(1));
            relquery.end(status, Time(2));
            let look = chunker.look(&relquery);
            assert_eq!((look.chunks.len(), look.end), (1, Some(Err(error))));
        }
    }
}
