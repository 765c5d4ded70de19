//! Replies of `/v1/query`: what the queries and their calls have become.

use base::End;
use ir::span::{CallId, SpanPart};
use serde::Serialize;
use serving::relquery_state::Usage;
use utoipa::ToSchema;

use crate::error::ErrorObject;
use crate::services::query::{Ended, Planned};
use crate::wire::relquery::finish_reason;
use crate::wire::usage::UsageReply;

/// A span query that has run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct QueryReply {
    /// Always `query`.
    pub object: &'static str,
    /// The model that ran it.
    pub model: String,
    /// What the query has become: messages, and outputs as an assistant's.
    pub result: Vec<MessageReply>,
    /// Every call that it took, inputs first.
    pub calls: Vec<CallReply>,
    /// Tokens of all calls, and of spans that were computed ahead of them.
    pub usage: UsageReply,
    /// What the rules made of the query and the calls that it takes, where `explain` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
}

/// A message of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageReply {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// The call whose output it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<usize>,
}

/// A call of the model.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CallReply {
    /// Its number.
    pub call: usize,
    /// The calls whose outputs it read.
    pub inputs: Vec<usize>,
    /// Its output.
    pub text: String,
    /// `stop` or `length`.
    pub finish_reason: &'static str,
    /// Its tokens.
    pub usage: UsageReply,
}

/// Many queries that have run, in the order in which they were sent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct QueryList {
    /// Always `list`.
    pub object: &'static str,
    /// What came of each.
    pub data: Vec<QueryEntry>,
    /// Tokens of all.
    pub usage: UsageReply,
}

/// One of many.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct QueryEntry {
    /// Its place in the request.
    pub index: usize,
    /// What it has become.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reply: Option<QueryReply>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

impl CallReply {
    /// A call that has ended.
    pub fn new(planned: &Planned, id: CallId, ended: &Ended) -> Self {
        Self {
            call: id.0,
            inputs: planned.plan.call(id).inputs.iter().map(|input| input.0).collect(),
            text: ended.text.to_string(),
            finish_reason: reason(ended.end),
            usage: ended.usage.into(),
        }
    }
}

fn reason(end: End) -> &'static str {
    finish_reason(end)
}

impl QueryReply {
    /// A query whose calls have ended, by their numbers.
    pub fn new(model: &str, planned: &Planned, ended: &[Ended], usage: Usage, explain: bool) -> Self {
        let message = |part: &SpanPart| match part {
            SpanPart::Message(role, text) => {
                MessageReply { role: role.name().to_owned(), content: text.to_string(), call: None }
            }
            SpanPart::Output(id) | SpanPart::Whole(id) => MessageReply {
                role: base::Role::Assistant.name().to_owned(),
                content: ended[id.0].text.to_string(),
                call: Some(id.0),
            },
        };
        let calls = planned.plan.calls.iter().zip(ended);
        Self {
            object: "query",
            model: model.to_owned(),
            result: planned.plan.output.iter().map(message).collect(),
            calls: calls.map(|(call, ended)| CallReply::new(planned, call.id, ended)).collect(),
            usage: usage.into(),
            explain: explain.then(|| explained(planned)),
        }
    }
}

/// What the rules made of a query, and the calls that it takes.
fn explained(planned: &Planned) -> String {
    format!("{}{}", ir::span::explain(&planned.rewritten, &planned.log), planned.plan.explain())
}
