//! The replies of `/v1/responses`: the response as an object, and as events of what is new since the last look.

use std::sync::Arc;

use base::End;
use serde::Serialize;
use serde_json::{Value, json};
use serving::error::RequestError;
use serving::model::Model;
use serving::relquery_state::{RelQueryState, RowProgress, State};
use utoipa::ToSchema;

use super::logprobs::ChatToken;
use super::reply::verdict;
use super::response_end::{ResponseFailure, ResponseUsage};
use super::response_request::ResponseEcho;
use super::tool_calls::{CallReader, ReadAnswer, ReadCall};
use crate::error;
use crate::wire::public_ids;

/// A response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResponseReply {
    /// `resp-...`.
    pub id: String,
    /// Always `response`.
    object: &'static str,
    /// When the request came, unix seconds.
    created_at: u64,
    /// `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.
    status: &'static str,
    /// Why it is incomplete.
    incomplete_details: Option<Incomplete>,
    /// Why it failed.
    error: Option<ResponseFailure>,
    /// The model.
    model: String,
    /// The answer, once there is one: a message, calls of tools, or both.
    output: Vec<OutputItem>,
    /// Tokens, at its end.
    usage: Option<ResponseUsage>,
    #[serde(flatten)]
    echo: ResponseEcho,
}

/// Why a response is incomplete.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct Incomplete {
    /// `max_output_tokens`.
    reason: &'static str,
}

/// A part of the answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum OutputItem {
    Message(OutputMessage),
    Call(OutputCall),
}

/// A tool that the model calls.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct OutputCall {
    /// `fc-...`.
    id: String,
    /// Always `function_call`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `in_progress`, `completed` or `incomplete`.
    status: &'static str,
    /// By which its result names it.
    call_id: String,
    /// The tool.
    name: String,
    /// JSON text of an object.
    arguments: String,
}

/// What the model says.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct OutputMessage {
    /// `msg-...`.
    id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `in_progress`, `completed` or `incomplete`.
    status: &'static str,
    /// Always `assistant`.
    role: &'static str,
    /// Its text, in one part.
    content: Vec<OutputText>,
}

/// A part of a message.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct OutputText {
    /// Always `output_text`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What it says.
    text: String,
    /// Never any.
    #[schema(value_type = Vec<Object>)]
    annotations: [(); 0],
    /// How likely its tokens were, where that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<ChatToken>,
}

fn output_text(text: &str) -> OutputText {
    OutputText { kind: "output_text", text: text.to_owned(), annotations: [], logprobs: Vec::new() }
}

/// How likely the tokens of a response's text were, from number `from` on.
fn logprobs(state: &State, from: usize) -> Vec<ChatToken> {
    state
        .rows
        .first()
        .into_iter()
        .flat_map(|row| row.logprobs.iter().skip(from))
        .map(ChatToken::from)
        .collect()
}

/// What all replies to one request have in common.
#[derive(Clone, Debug)]
pub struct ResponseEnvelope {
    number: u64,
    created: u64,
    model: String,
    echo: ResponseEcho,
    /// How calls of tools are read, where any can be called.
    tools: Option<Arc<CallReader>>,
}

impl ResponseEnvelope {
    /// For one request.
    pub fn new(relquery: &RelQueryState, model: &Model, echo: ResponseEcho) -> Self {
        let number = public_ids::shown(relquery.id);
        Self { number, created: relquery.created_ms / 1_000, model: model.name.clone(), echo, tools: None }
    }

    /// The same where the answer may call tools.
    pub fn calling(self, tools: Option<Arc<CallReader>>) -> Self {
        Self { tools, ..self }
    }

    /// The same of a response that came then, in unix seconds: before a restart.
    pub fn created_at(self, created: u64) -> Self {
        Self { created, ..self }
    }

    /// `resp-...`.
    pub fn id(&self) -> String {
        format!("resp-{}", self.number)
    }

    /// The response before anything of it is known.
    pub fn queued(&self) -> ResponseReply {
        self.object("queued", Vec::new())
    }

    /// The same where the response turns out to be kept or not.
    pub fn kept(mut self, is_kept: bool) -> Self {
        self.echo.store = is_kept;
        self
    }

    /// Where it is to be kept, its identity and what is to be kept of its reply: all of one that ended well.
    pub fn to_keep(&self, state: &State) -> Option<(String, String)> {
        let reply = self.reply(state).ok().filter(|_| self.echo.store && state.is_over())?;
        Some((reply.id.clone(), serde_json::to_string(&reply).ok()?))
    }

    /// What is read of the answer so far.
    fn read(&self, text: &str, is_over: bool) -> ReadAnswer {
        match &self.tools {
            Some(tools) => tools.read(text, is_over),
            None => ReadAnswer { content: text.to_owned(), is_said_first: true, calls: Vec::new() },
        }
    }

    /// The parts of an answer.
    fn output(&self, (status, state): (&'static str, &State), answer: &ReadAnswer) -> Vec<OutputItem> {
        let calls = answer.calls.iter().enumerate();
        let mut items: Vec<OutputItem> =
            calls.map(|(number, call)| OutputItem::Call(self.call(status, number, call))).collect();
        if items.is_empty() || !answer.content.is_empty() {
            let place = if answer.is_said_first { 0 } else { items.len() };
            let part = OutputText { logprobs: logprobs(state, 0), ..output_text(&answer.content) };
            items.insert(place, OutputItem::Message(self.message(status, vec![part])));
        }
        // Only the last was cut off.
        let last = items.len().saturating_sub(1);
        for item in &mut items[..last] {
            match item {
                OutputItem::Message(message) => message.status = "completed",
                OutputItem::Call(call) => call.status = "completed",
            }
        }
        items
    }

    fn call(&self, status: &'static str, number: usize, call: &ReadCall) -> OutputCall {
        let of = self.id();
        let call_id = self.tools.as_ref().map_or_else(String::new, |tools| tools.id(&of, 0, number));
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        OutputCall { id: self.call_item_id(number), kind: "function_call", status, call_id, name, arguments }
    }

    fn call_item_id(&self, number: usize) -> String {
        format!("fc-{}-{number}", self.number)
    }

    /// The response as it stands: whole once nothing changes any more.
    pub fn reply(&self, state: &State) -> Result<ResponseReply, RequestError> {
        verdict(state)?;
        let row = state.rows.first();
        let end = row.and_then(|row| match row.state {
            RowProgress::Done { end, .. } => Some(end),
            RowProgress::Pending | RowProgress::Failed(_) => None,
        });
        let text = row.map_or("", |row| &row.text);
        let Some(end) = end else { return Ok(self.object("in_progress", Vec::new())) };
        let status = if end == End::Stop { "completed" } else { "incomplete" };
        let reply = self.object(status, self.output((status, state), &self.read(text, true)));
        let incomplete_details = (end != End::Stop).then_some(Incomplete { reason: "max_output_tokens" });
        Ok(ResponseReply { incomplete_details, usage: Some(state.usage.into()), ..reply })
    }

    fn object(&self, status: &'static str, output: Vec<OutputItem>) -> ResponseReply {
        ResponseReply {
            id: self.id(),
            object: "response",
            created_at: self.created,
            status,
            incomplete_details: None,
            error: None,
            model: self.model.clone(),
            output,
            usage: None,
            echo: self.echo.clone(),
        }
    }

    fn failed(&self, error: &RequestError) -> ResponseReply {
        let error = Some(ResponseFailure::new(error::body(error).error));
        ResponseReply { error, ..self.object("failed", Vec::new()) }
    }

    fn message_id(&self) -> String {
        format!("msg-{}", self.number)
    }

    fn message(&self, status: &'static str, content: Vec<OutputText>) -> OutputMessage {
        OutputMessage { id: self.message_id(), kind: "message", status, role: "assistant", content }
    }
}

/// Turns states of one request into the events of its response.
#[derive(Debug)]
pub struct ResponseEvents {
    envelope: ResponseEnvelope,
    /// Events so far.
    sequence: u64,
    /// The message, once it was opened.
    message: Option<SentItem>,
    /// Calls that were opened.
    calls: Vec<SentItem>,
    /// Tokens whose log probabilities were told.
    logprobs: usize,
}

/// An item of a response that its client knows.
#[derive(Clone, Copy, Debug)]
struct SentItem {
    /// Its place in the output.
    place: usize,
    /// Bytes of its text that were sent.
    bytes: usize,
}

impl ResponseEvents {
    /// For one request.
    pub fn new(envelope: ResponseEnvelope) -> Self {
        Self { envelope, sequence: 0, message: None, calls: Vec::new(), logprobs: 0 }
    }

    /// Where the response is to be kept, its identity and what is to be kept of its reply.
    pub fn to_keep(&self, state: &State) -> Option<(String, String)> {
        self.envelope.to_keep(state)
    }

    /// The response turned out to be kept or not.
    pub fn kept(&mut self, is_kept: bool) {
        self.envelope.echo.store = is_kept;
    }

    /// What is new, as events; whether that was all.
    pub fn look(&mut self, state: &State) -> (String, bool) {
        let mut out = String::new();
        if self.sequence == 0 {
            let begun = self.envelope.object("in_progress", Vec::new());
            self.event(&mut out, "response.created", json!({"response": begun}));
            self.event(&mut out, "response.in_progress", json!({"response": begun}));
        }
        let text = state.rows.first().map_or("", |row| row.text.as_str());
        // A reply repeats its request: it is made once, at the end.
        let reply = match (state.is_over(), verdict(state)) {
            (_, Err(error)) => Err(error),
            (true, Ok(())) => self.envelope.reply(state).map(Some),
            (false, Ok(())) => Ok(None),
        };
        let is_whole = matches!(reply, Ok(Some(_)));
        let answer = self.envelope.read(text, is_whole);
        self.tell(&mut out, &answer, (state, is_whole));
        match reply {
            Err(error) => {
                self.fail(&mut out, &error);
                (out, true)
            }
            Ok(Some(reply)) => {
                if answer.calls.is_empty() {
                    self.open(&mut out);
                }
                self.close(&mut out, reply);
                (out, true)
            }
            Ok(None) => (out, false),
        }
    }

    /// What is new of an answer, in the order in which it was said. What is said behind a call stands behind all of them,
    /// so it waits for the end.
    fn tell(&mut self, out: &mut String, answer: &ReadAnswer, (state, is_whole): (&State, bool)) {
        if answer.is_said_first {
            self.text(out, &answer.content, state);
        }
        for (number, call) in answer.calls.iter().enumerate() {
            self.call(out, number, call);
        }
        if !answer.is_said_first && is_whole {
            self.text(out, &answer.content, state);
        }
    }

    /// The last event of a response that failed.
    pub fn fail(&mut self, out: &mut String, error: &RequestError) {
        let failed = self.envelope.failed(error);
        self.event(out, "response.failed", json!({"response": failed}));
    }

    fn event(&mut self, out: &mut String, name: &str, fields: Value) {
        let mut event = json!({"type": name, "sequence_number": self.sequence});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        out.push_str(&format!("event: {name}\ndata: {event}\n\n"));
    }

    fn next_place(&self) -> usize {
        self.calls.len() + usize::from(self.message.is_some())
    }

    fn event_of_text(&mut self, out: &mut String, name: &str, fields: Value) {
        let place = self.message.map_or(0, |message| message.place);
        let mut event =
            json!({"item_id": self.envelope.message_id(), "output_index": place, "content_index": 0});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.event(out, name, event);
    }

    fn open(&mut self, out: &mut String) {
        if self.message.is_some() {
            return;
        }
        let place = self.next_place();
        self.message = Some(SentItem { place, bytes: 0 });
        let item = self.envelope.message("in_progress", Vec::new());
        self.event(out, "response.output_item.added", json!({"output_index": place, "item": item}));
        self.event_of_text(out, "response.content_part.added", json!({"part": output_text("")}));
    }

    /// What is new of the text.
    fn text(&mut self, out: &mut String, text: &str, state: &State) {
        // Text only grows, by whole characters; were it ever replaced, nothing is better than a panic.
        let sent = self.message.map_or(0, |message| message.bytes);
        let added = text.get(sent..).unwrap_or_default();
        if added.is_empty() {
            return;
        }
        self.open(out);
        if let Some(message) = &mut self.message {
            message.bytes = text.len();
        }
        let logprobs = logprobs(state, self.logprobs);
        self.logprobs += logprobs.len();
        self.event_of_text(out, "response.output_text.delta", json!({"delta": added, "logprobs": logprobs}));
    }

    /// What is new of a call.
    fn call(&mut self, out: &mut String, number: usize, call: &ReadCall) {
        if self.calls.len() == number {
            let place = self.next_place();
            self.calls.push(SentItem { place, bytes: 0 });
            let begun = ReadCall { arguments: String::new(), ..call.clone() };
            let item = self.envelope.call("in_progress", number, &begun);
            self.event(out, "response.output_item.added", json!({"output_index": place, "item": item}));
        }
        let Some(sent) = self.calls.get_mut(number) else { return };
        let added = call.arguments.get(sent.bytes..).unwrap_or_default();
        sent.bytes = call.arguments.len();
        let place = sent.place;
        if !added.is_empty() {
            let id = self.envelope.call_item_id(number);
            let fields = json!({"item_id": id, "output_index": place, "delta": added});
            self.event(out, "response.function_call_arguments.delta", fields);
        }
    }

    fn close(&mut self, out: &mut String, reply: ResponseReply) {
        for (place, item) in reply.output.iter().enumerate() {
            match item {
                OutputItem::Message(message) => {
                    for part in &message.content {
                        let done = json!({"text": part.text, "logprobs": part.logprobs});
                        self.event_of_text(out, "response.output_text.done", done);
                        self.event_of_text(out, "response.content_part.done", json!({"part": part}));
                    }
                }
                OutputItem::Call(call) => {
                    let fields = json!({"item_id": call.id, "output_index": place, "name": call.name, "arguments": call.arguments});
                    self.event(out, "response.function_call_arguments.done", fields);
                }
            }
            self.event(out, "response.output_item.done", json!({"output_index": place, "item": item}));
        }
        let name = format!("response.{}", reply.status);
        self.event(out, &name, json!({"response": reply}));
    }
}

#[cfg(test)]
mod tests {
    use base::{RelQueryId, TenantId, Time, TokenCount};
    use serving::relquery_state::{AnswerSource, Arrival, RelQueryKind, Status, Usage};

    use super::*;
    use crate::wire::openai::tests::model;

    const ARRIVAL: Arrival = Arrival { unix_ms: 5_999, time: Time(0) };

    fn events(relquery: &RelQueryState) -> ResponseEvents {
        let echo = ResponseEcho {
            instructions: None,
            max_output_tokens: None,
            metadata: json!({}),
            temperature: 0.0,
            top_p: 1.0,
            text: json!({}),
            user: None,
            tools: Vec::new(),
            tool_choice: json!("auto"),
            parallel_tool_calls: true,
            previous_response_id: None,
            store: false,
            background: false,
        };
        ResponseEvents::new(ResponseEnvelope::new(relquery, &model(), echo))
    }

    fn read(text: &str) -> Vec<Value> {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    fn done(end: End) -> RowProgress {
        let usage = Usage { prompt: TokenCount(7), output: TokenCount(3), ..Usage::default() };
        RowProgress::Done { end, usage, source: AnswerSource::Model }
    }

    #[test]
    fn a_response_is_told_in_openais_events_whatever_the_readers_pace() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut events = events(&relquery);
        let (first, _) = events.look(&relquery.read());
        relquery.token(0, "é", true, Time(1));
        let (second, _) = events.look(&relquery.read());
        assert_eq!(events.look(&relquery.read()), (String::new(), false), "nothing new");
        relquery.token(0, "b", false, Time(2));
        relquery.settle(0, done(End::Stop), Time(3));
        let (third, is_over) = events.look(&relquery.read());
        assert!(is_over);
        let all = read(&[first, second, third].concat());
        let names: Vec<&str> = all.iter().map(|event| event["type"].as_str().expect("a name")).collect();
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ];
        assert_eq!(names, expected);
        let numbers: Vec<u64> =
            all.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        assert_eq!(
            (&all[4]["delta"], &all[5]["delta"], &all[6]["text"]),
            (&json!("é"), &json!("b"), &json!("éb"))
        );
        let response = &all[9]["response"];
        assert_eq!(response["output"][0]["content"][0]["text"], "éb");
        assert_eq!((&response["usage"]["total_tokens"], &response["created_at"]), (&json!(10), &json!(5)));
        assert_eq!(all[4]["item_id"], response["output"][0]["id"]);
    }

    #[test]
    fn what_is_cut_off_is_incomplete_and_what_fails_says_why() {
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut cut = events(&relquery);
        relquery.settle(0, done(End::Length), Time(3));
        let all = read(&cut.look(&relquery.read()).0);
        let last = all.last().expect("events");
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.incomplete"), &json!("incomplete"))
        );
        assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");

        let relquery = RelQueryState::new(RelQueryId(2), TenantId(1), RelQueryKind::RelQuery, 1, ARRIVAL);
        let mut failing = events(&relquery);
        relquery.token(0, "so far", true, Time(1));
        relquery.end(Status::Failed(RequestError::ShuttingDown), Time(2));
        let (text, is_over) = failing.look(&relquery.read());
        let all = read(&text);
        assert!(is_over && all.iter().any(|event| event["delta"] == "so far"));
        let last = all.last().expect("events");
        assert_eq!(
            (&last["type"], &last["response"]["status"]),
            (&json!("response.failed"), &json!("failed"))
        );
        assert!(last["response"]["error"]["message"].is_string(), "{last}");
    }
}
