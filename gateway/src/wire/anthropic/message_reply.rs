//! The reply of `/v1/messages`, whole.

use std::sync::Arc;

use base::End;
use serde::Serialize;
use serde_json::{Map, Value, json};
use serving::error::RequestError;
use serving::model::Model;
use serving::relquery_state::{RelQueryState, RowProgress, State, Usage};
use utoipa::ToSchema;

use crate::wire::openai::{CallReader, ReadAnswer, ReadCall, verdict};
use crate::wire::public_ids;

/// Why an answer ended that one of its request's stop sequences did.
const STOP_SEQUENCE: &str = "stop_sequence";

/// A message.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AnthropicMessage {
    /// `msg_...`.
    id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Always `assistant`.
    role: &'static str,
    /// The model.
    model: String,
    /// The answer: blocks of text and calls of tools.
    content: Vec<ContentBlock>,
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`; null while it goes on.
    stop_reason: Option<&'static str>,
    /// The stop sequence that ended it, where that is the reason.
    stop_sequence: Option<String>,
    /// Tokens.
    usage: MessageUsage,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock {
    Text {
        text: String,
    },
    ToolUse {
        /// By which its result names it.
        id: String,
        /// The tool.
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// Tokens of a message.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(super) struct MessageUsage {
    /// Of the prompt, but for those that were not computed again.
    input_tokens: u64,
    /// Of the prompt, those that were not computed again.
    cache_read_input_tokens: u64,
    /// Always 0: what is kept costs nothing beside.
    cache_creation_input_tokens: u64,
    /// Of the answer.
    output_tokens: u64,
}

impl From<Usage> for MessageUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt.0.saturating_sub(usage.cached.0),
            cache_read_input_tokens: usage.cached.0,
            cache_creation_input_tokens: 0,
            output_tokens: usage.output.0,
        }
    }
}

/// What all replies to one request have in common.
#[derive(Clone, Debug)]
pub struct MessageEnvelope {
    id: String,
    model: String,
    /// How calls of tools are read, where any can be called.
    tools: Option<Arc<CallReader>>,
    /// Tokens of the prompt, where they are known before it ran.
    prompt: u64,
    /// At which texts the answer ends.
    stops: Arc<[String]>,
}

impl MessageEnvelope {
    /// For one request. `prompt`: tokens of its prompt, as far as they are known before it ran.
    pub fn new(relquery: &RelQueryState, model: &Model, prompt: u64) -> Self {
        let id = format!("msg_{}", public_ids::shown(relquery.id));
        Self { id, model: model.name.clone(), tools: None, prompt, stops: Arc::default() }
    }

    /// The same where the answer ends at these texts.
    pub fn stopping_at(self, stops: Arc<[String]>) -> Self {
        Self { stops, ..self }
    }

    /// The same where the answer may call tools.
    pub fn calling(self, tools: Option<Arc<CallReader>>) -> Self {
        Self { tools, ..self }
    }

    /// How calls of tools are read, where any can be called.
    pub(super) fn tools(&self) -> Option<&CallReader> {
        self.tools.as_deref()
    }

    /// What is read of a whole answer.
    fn read(&self, text: &str) -> ReadAnswer {
        self.tools().map_or_else(|| ReadAnswer::of_text(text), |tools| tools.read(text, true))
    }

    /// A message whose answer is still to come.
    pub(super) fn begun(&self) -> AnthropicMessage {
        let usage = MessageUsage { input_tokens: self.prompt, ..MessageUsage::default() };
        self.message(Vec::new(), None, usage)
    }

    /// The message, once nothing changes any more.
    pub fn reply(&self, state: &State) -> Result<AnthropicMessage, RequestError> {
        verdict(state)?;
        let row = state.rows.first();
        let answer = self.read(row.map_or("", |row| &row.text));
        let end = row.and_then(|row| match row.state {
            RowProgress::Done { end, .. } => Some(end),
            RowProgress::Pending | RowProgress::Failed(_) => None,
        });
        let reason = end.map(|end| stop_reason(end, &answer));
        let stop = match end {
            Some(End::StopText(place)) if reason == Some(STOP_SEQUENCE) => {
                self.stops.get(place as usize).cloned()
            }
            Some(End::Stop | End::StopText(_) | End::StopToken(_) | End::Length) | None => None,
        };
        let message = self.message(self.blocks(answer), reason, state.usage.into());
        Ok(AnthropicMessage { stop_sequence: stop, ..message })
    }

    fn message(
        &self,
        content: Vec<ContentBlock>,
        stop_reason: Option<&'static str>,
        usage: MessageUsage,
    ) -> AnthropicMessage {
        let (id, model) = (self.id.clone(), self.model.clone());
        AnthropicMessage {
            id,
            kind: "message",
            role: "assistant",
            model,
            content,
            stop_reason,
            stop_sequence: None,
            usage,
        }
    }

    /// The parts of an answer, in the order in which they were said.
    fn blocks(&self, answer: ReadAnswer) -> Vec<ContentBlock> {
        let calls = answer.calls.iter().enumerate();
        let mut blocks: Vec<ContentBlock> = calls
            .map(|(number, call)| {
                let input = serde_json::from_str(&call.arguments);
                // One that was cut off has no arguments that could be told as an object.
                self.call(number, call, input.unwrap_or_else(|_| Value::Object(Map::new())))
            })
            .collect();
        if !answer.content.is_empty() {
            let place = if answer.is_said_first { 0 } else { blocks.len() };
            blocks.insert(place, ContentBlock::Text { text: answer.content });
        }
        blocks
    }

    pub(super) fn call(&self, number: usize, call: &ReadCall, input: Value) -> ContentBlock {
        let id = self.tools.as_ref().map_or_else(String::new, |tools| tools.id(&self.id, 0, number));
        ContentBlock::ToolUse { id, name: call.name.clone(), input }
    }
}

impl AnthropicMessage {
    /// What ends a stream of it: why it ended, and its tokens.
    pub(super) fn end(&self) -> (Value, MessageUsage) {
        (json!({"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence}), self.usage)
    }
}

/// Why an answer ended.
fn stop_reason(end: End, answer: &ReadAnswer) -> &'static str {
    match end {
        End::Length => "max_tokens",
        // They are to be run, whatever ended the answer.
        End::Stop | End::StopText(_) | End::StopToken(_) if !answer.calls.is_empty() => "tool_use",
        End::StopText(_) => STOP_SEQUENCE,
        End::Stop | End::StopToken(_) => "end_turn",
    }
}
