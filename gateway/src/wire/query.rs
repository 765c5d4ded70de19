//! `/v1/query` on the wire: span queries and what comes of them.

use base::{End, Millis, ServiceClass};
use ir::Rules;
use ir::span::{CallId, Part, Query, RULES, SpanError};
use serde::Serialize;
use serde_json::Value;
use serving::board::Usage;
use serving::error::RequestError;
use utoipa::ToSchema;

use crate::error::ErrorObject;
use crate::json::Fields;
use crate::services::query::{self, Ended, Planned};
use crate::wire::Terms;
use crate::wire::relquery::{check_model, class, deadline, finish_reason};
use crate::wire::usage::UsageReply;

/// Candidates that one judge can be given.
const JUDGES_MAX: u64 = 1_000;

/// A body of `POST /v1/query`.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// The queries; one, unless the request has `queries`.
    pub queries: Vec<Query>,
    /// Whether it has.
    pub is_bulk: bool,
    /// The rules that may run.
    pub rules: Rules,
    /// Candidates that one judge sees (section 6).
    pub judges: Option<u32>,
    /// Whether the reply says what became of the query.
    pub explain: bool,
    /// Who waits.
    pub class: ServiceClass,
    /// As events.
    pub stream: bool,
    /// When its answer is no longer waited for.
    pub deadline: Option<Millis>,
}

impl QueryRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: Fields, terms: Terms<'_>) -> Result<Self, RequestError> {
        check_model(&mut fields, terms.model)?;
        let limits = query::limits(terms.limits);
        let read =
            |value: &Value, path: &str| Query::read(value, &limits).map_err(|error| span_error(path, error));
        let (queries, is_bulk) = match (fields.take("query"), fields.array("queries")?) {
            (Some(one), None) => (vec![read(&one, "query")?], false),
            (None, Some(many)) => {
                let limit = terms.limits.rows_max;
                if many.is_empty() || many.len() > limit {
                    return fields
                        .bad("queries", format!("must have 1 to {limit} queries (limits.rows_max)"));
                }
                let many =
                    many.iter().enumerate().map(|(index, query)| read(query, &format!("queries[{index}]")));
                (many.collect::<Result<_, _>>()?, true)
            }
            (None, None) => return fields.bad("query", "is required, or `queries`"),
            (Some(_), Some(_)) => return fields.bad("queries", "cannot stand beside `query`"),
        };
        let request = Self {
            queries,
            is_bulk,
            rules: rules(&mut fields)?,
            judges: fields
                .integer("tree_reduce", 2, JUDGES_MAX)?
                .and_then(|judges| u32::try_from(judges).ok()),
            explain: fields.bool("explain")?.unwrap_or(false),
            class: class(&mut fields)?,
            stream: fields.bool("stream")?.unwrap_or(false),
            deadline: deadline(&mut fields)?,
        };
        if request.stream && is_bulk {
            return fields.bad("stream", "is for one `query`");
        }
        fields.finish()?;
        Ok(request)
    }

    /// The field of a query.
    pub fn path(&self, index: usize) -> String {
        if self.is_bulk { format!("queries[{index}]") } else { "query".into() }
    }
}

/// `rules_off`: names of rules that do not run.
fn rules(fields: &mut Fields) -> Result<Rules, RequestError> {
    let mut rules = Rules::all();
    for (index, name) in fields.array("rules_off")?.into_iter().flatten().enumerate() {
        let known = RULES.iter().find(|rule| name.as_str() == Some(rule.name));
        let Some(rule) = known else {
            let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            return fields
                .bad(&format!("rules_off[{index}]"), format!("must be one of {}", names.join(", ")));
        };
        rules = rules.without(rule.name);
    }
    Ok(rules)
}

/// What is wrong with a query, at its place in the request.
pub fn span_error(path: &str, error: SpanError) -> RequestError {
    match error {
        SpanError::At { path: inside, reason } => {
            let inside = inside.strip_prefix('$').unwrap_or(&inside);
            RequestError::invalid(format!("{path}{inside}"), reason)
        }
        other => RequestError::invalid(path, other.to_string()),
    }
}

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
        let message = |part: &Part| match part {
            Part::Message(role, text) => {
                MessageReply { role: role.name().to_owned(), content: text.to_string(), call: None }
            }
            Part::Output(id) | Part::Whole(id) => MessageReply {
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
