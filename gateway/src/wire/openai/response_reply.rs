//! The replies of `/v1/responses`: the response as an object.

use std::sync::Arc;

use base::TokenLogprob;
use serde::Serialize;
use serving::error::RequestError;
use serving::model::Model;
use serving::relquery_state::{RelQueryState, RowProgress, State};
use utoipa::ToSchema;

use super::logprobs::ChatToken;
use super::reply::verdict;
use super::response_end::{ResponseFailure, ResponseUsage};
use super::response_request::ResponseEcho;
use super::token_places::TokenPlaces;
use super::tool_calls::{CallReader, ReadAnswer, ReadCall};
use super::tool_namespaces::own_names;
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
    pub(super) status: &'static str,
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
pub(super) enum OutputItem {
    Message(OutputMessage),
    Call(OutputCall),
}

/// What an item says: each is over before the next begins, whatever is found behind it.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerPart<'a> {
    /// A text; `number`: of the answer's texts. One stands before its calls, one behind them.
    Text { number: usize, text: &'a str },
    /// A call; `number`: of the answer's calls.
    Call { number: usize, call: &'a ReadCall },
}

impl<'a> AnswerPart<'a> {
    /// The parts of an answer in the order in which they were said. What is said behind a call stands behind all of them,
    /// so it waits for the end.
    pub(super) fn all(answer: &'a ReadAnswer, is_whole: bool) -> Vec<Self> {
        let (before, behind) = answer.said_around();
        let mut parts = Vec::with_capacity(answer.calls.len() + 2);
        if !before.is_empty() || is_whole && answer.calls.is_empty() {
            parts.push(Self::Text { number: 0, text: before });
        }
        let calls = answer.calls.iter().enumerate();
        parts.extend(calls.map(|(number, call)| Self::Call { number, call }));
        if is_whole && !behind.is_empty() {
            parts.push(Self::Text { number: usize::from(!before.is_empty()), text: behind });
        }
        parts
    }

    /// What is told of it piece by piece.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Text { text, .. } => text,
            Self::Call { call, .. } => &call.arguments,
        }
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text { .. })
    }

    /// Whether it is known which of the answer's tokens are its own. Which of them stand behind a call is not.
    pub(super) fn has_tokens(self, answer: &ReadAnswer) -> bool {
        match self {
            Self::Text { number: 0, .. } => answer.calls.is_empty() || !answer.said_around().0.is_empty(),
            Self::Text { .. } | Self::Call { .. } => false,
        }
    }
}

/// A tool that the model calls.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct OutputCall {
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
    /// The namespace that the request has it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// JSON text of an object.
    arguments: String,
}

/// What the model says.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct OutputMessage {
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

/// What all replies to one request have in common.
#[derive(Clone, Debug)]
pub struct ResponseEnvelope {
    number: u64,
    created: u64,
    model: String,
    pub(super) echo: ResponseEcho,
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
        // Asked first: a reply repeats its request.
        if !self.echo.store || !state.is_over() {
            return None;
        }
        let reply = self.reply(state).ok()?;
        Some((reply.id.clone(), serde_json::to_string(&reply).ok()?))
    }

    /// How calls of tools are read, where any can be called.
    pub(super) fn tools(&self) -> Option<&CallReader> {
        self.tools.as_deref()
    }

    /// What is read of a whole answer.
    fn read(&self, text: &str) -> ReadAnswer {
        self.tools().map_or_else(|| ReadAnswer::of_text(text), |tools| tools.read(text, true))
    }

    /// The items of a whole answer. Only the last was cut off.
    fn output(&self, (status, state): (&'static str, &State), answer: &ReadAnswer) -> Vec<OutputItem> {
        let parts = AnswerPart::all(answer, true);
        let last = parts.len().saturating_sub(1);
        let item = |(place, part): (usize, &AnswerPart<'_>)| {
            let status = if place < last { "completed" } else { status };
            let tokens = state.rows.first().map(|row| row.logprobs.as_slice()).unwrap_or_default();
            self.item(status, *part, self.part_logprobs(*part, (answer, tokens)))
        };
        parts.iter().enumerate().map(item).collect()
    }

    /// How likely the tokens of a part of an answer were.
    pub(super) fn part_logprobs(
        &self,
        part: AnswerPart<'_>,
        (answer, tokens): (&ReadAnswer, &[TokenLogprob]),
    ) -> Vec<ChatToken> {
        if !part.has_tokens(answer) {
            return Vec::new();
        }
        let mut all: Vec<ChatToken> = tokens.iter().map(ChatToken::from).collect();
        if !answer.calls.is_empty() {
            let text = part.text();
            all.truncate(TokenPlaces::of(&all).begun_before(text, text.len()));
        }
        all
    }

    /// What an item of the output is called.
    pub(super) fn item_id(&self, part: AnswerPart<'_>) -> String {
        match part {
            AnswerPart::Text { number: 0, .. } => format!("msg-{}", self.number),
            AnswerPart::Text { number, .. } => format!("msg-{}-{number}", self.number),
            AnswerPart::Call { number, .. } => format!("fc-{}-{number}", self.number),
        }
    }

    /// An item of the output.
    pub(super) fn item(
        &self,
        status: &'static str,
        part: AnswerPart<'_>,
        logprobs: Vec<ChatToken>,
    ) -> OutputItem {
        let id = self.item_id(part);
        match part {
            AnswerPart::Text { text, .. } => {
                let text = text.to_owned();
                let content = vec![OutputText { kind: "output_text", text, annotations: [], logprobs }];
                OutputItem::Message(OutputMessage { id, kind: "message", status, role: "assistant", content })
            }
            AnswerPart::Call { number, call } => {
                let tools = self.tools.as_ref();
                let call_id = tools.map_or_else(String::new, |tools| tools.id(&self.id(), 0, number));
                let (namespace, name) = own_names(&self.echo.tools, &call.name);
                OutputItem::Call(OutputCall {
                    id,
                    kind: "function_call",
                    status,
                    call_id,
                    name: name.to_owned(),
                    namespace: namespace.map(str::to_owned),
                    arguments: call.arguments.clone(),
                })
            }
        }
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
        let status = if end.is_stop() { "completed" } else { "incomplete" };
        let reply = self.object(status, self.output((status, state), &self.read(text)));
        let incomplete_details = (!end.is_stop()).then_some(Incomplete { reason: "max_output_tokens" });
        Ok(ResponseReply { incomplete_details, usage: Some(state.usage.into()), ..reply })
    }

    pub(super) fn object(&self, status: &'static str, output: Vec<OutputItem>) -> ResponseReply {
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

    pub(super) fn failed(&self, error: &RequestError) -> ResponseReply {
        let error = Some(ResponseFailure::new(error::body(error).error));
        ResponseReply { error, ..self.object("failed", Vec::new()) }
    }
}
