//! `/v1/relqueries` on the wire.

use std::sync::Arc;

use base::{Millis, ServiceClass};
use serde::Serialize;
use serde_json::{Map, Value};
use serving::error::RequestError;
use serving::label::Label;
use serving::model::Model;
use serving::relquery_state::{AnswerRow, RelQueryState, RowProgress, State, Status};
use utoipa::ToSchema;

use crate::config::LimitsConfig;
use crate::error::ErrorObject;
use crate::json::JsonFields;
use crate::wire::sampling::{Absent, Sampling};
use crate::wire::usage::UsageReply;
use crate::wire::{ValidationContext, label, public_ids};

/// One row of the table as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub enum RowIn {
    /// Cells in the order of the columns.
    List(Vec<Value>),
    /// Cells by column name.
    Named(Map<String, Value>),
}

/// What may be moved so that neighbours share more. Answers return in input order in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nothing before the scheduler, which gets rows as they were sent. It may still take rows that begin
    /// alike one after the other (`grouped_rows`), and equal prompts at temperature 0 still run once.
    Exact,
    /// Rows. No prompt changes.
    #[default]
    Rows,
    /// Rows, and the entries of each row's record (`{*}`): the caller says that their order says nothing.
    Fields,
    /// Nothing, as `exact`; and the entries of each row's record stand in the order of that row's keys: the
    /// caller has ordered rows and fields itself.
    Sent,
}

/// A relQuery as a client asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RelQueryRequest {
    /// The template, with `{column}` where a cell goes.
    pub template: String,
    /// Instructions before it.
    pub system: Option<String>,
    /// Names of the columns, where the rows are lists.
    pub columns: Option<Vec<String>>,
    /// The table.
    pub rows: Vec<RowIn>,
    /// How outputs are produced.
    pub sampling: Sampling,
    /// Whether the chat template frames the prompt; absent: when the model has one.
    pub chat: Option<bool>,
    /// What may be moved.
    pub order: Order,
    /// Groups of columns that determine each other, for `order: fields`.
    pub dependencies: Vec<Vec<String>>,
    /// Whether answers may come from and go to the result cache.
    pub cache: bool,
    /// Who waits.
    pub class: ServiceClass,
    /// Whether rows stream.
    pub stream: bool,
    /// What it is for.
    pub label: Option<Arc<Label>>,
    /// When a partial reply goes out.
    pub deadline: Option<Millis>,
}

impl RelQueryRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        let ValidationContext { limits, model, .. } = context;
        check_model(&mut fields, model)?;
        let template = text(&mut fields, "template", limits)?;
        let Some(template) = template else { return fields.bad("template", "is required") };
        let request = Self {
            template,
            system: text(&mut fields, "system", limits)?,
            columns: columns(&mut fields, limits)?,
            rows: rows(&mut fields, limits)?,
            sampling: Sampling::read(&mut fields, context, Absent::default(), &["max_tokens"])?,
            chat: fields.bool("chat")?,
            order: order(&mut fields)?,
            dependencies: dependencies(&mut fields, limits)?,
            cache: fields.bool("cache")?.unwrap_or(true),
            class: class(&mut fields)?,
            stream: fields.bool("stream")?.unwrap_or(false),
            deadline: deadline(&mut fields)?,
            label: label::label(&mut fields)?,
        };
        fields.finish()?;
        Ok(request)
    }
}

/// Refuses a model that is not the one served.
pub fn check_model(fields: &mut JsonFields, model: &Model) -> Result<(), RequestError> {
    match fields.string("model")? {
        Some(name) if !model.is_called(&name) => {
            Err(RequestError::unknown_model(name, std::iter::once(model.name.as_str())))
        }
        _ => Ok(()),
    }
}

/// `repair_tokens`: how many of the first tokens of each module or span are computed again.
pub fn repair_tokens(
    fields: &mut JsonFields,
    context: ValidationContext<'_>,
) -> Result<Option<u32>, RequestError> {
    let most = context.model.context_max.0.min(u64::from(u32::MAX));
    let tokens = fields.integer("repair_tokens", 0, most)?;
    Ok(tokens.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)))
}

/// `deadline_ms`: at least a millisecond, at most a day.
pub fn deadline(fields: &mut JsonFields) -> Result<Option<Millis>, RequestError> {
    Ok(fields.integer("deadline_ms", 1, 86_400_000)?.map(Millis))
}

fn text(fields: &mut JsonFields, name: &str, limits: &LimitsConfig) -> Result<Option<String>, RequestError> {
    let text = fields.string(name)?;
    if text.as_ref().is_some_and(|text| text.len() as u64 > limits.template_bytes_max.0) {
        let limit = format!("{} bytes", limits.template_bytes_max.0);
        return Err(RequestError::TooLarge { what: format!("`{}`", fields.name(name)), limit });
    }
    Ok(text)
}

fn columns(fields: &mut JsonFields, limits: &LimitsConfig) -> Result<Option<Vec<String>>, RequestError> {
    let Some(items) = fields.array("columns")? else { return Ok(None) };
    if items.len() > limits.columns_max {
        return fields.bad("columns", format!("has more than {} names", limits.columns_max));
    }
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(name) if names.contains(&name) => {
                return fields.bad("columns", format!("names `{name}` twice"));
            }
            Value::String(name) => names.push(name),
            _ => return fields.bad("columns", "must be an array of strings"),
        }
    }
    Ok(Some(names))
}

fn rows(fields: &mut JsonFields, limits: &LimitsConfig) -> Result<Vec<RowIn>, RequestError> {
    let Some(items) = fields.array("rows")? else { return fields.bad("rows", "is required") };
    if items.is_empty() {
        return fields.bad("rows", "must have at least one row");
    }
    if items.len() > limits.rows_max {
        return Err(RequestError::TooLarge {
            what: "`rows`".into(),
            limit: format!("{} rows", limits.rows_max),
        });
    }
    let row = |(index, item): (usize, Value)| match item {
        Value::Array(cells) if cells.len() > limits.columns_max => {
            fields.bad(&format!("rows[{index}]"), format!("has more than {} cells", limits.columns_max))
        }
        Value::Array(cells) => Ok(RowIn::List(cells)),
        Value::Object(cells) if cells.len() > limits.columns_max => {
            fields.bad(&format!("rows[{index}]"), format!("has more than {} cells", limits.columns_max))
        }
        Value::Object(cells) => Ok(RowIn::Named(cells)),
        _ => fields.bad(&format!("rows[{index}]"), "must be an array or an object"),
    };
    items.into_iter().enumerate().map(row).collect()
}

fn order(fields: &mut JsonFields) -> Result<Order, RequestError> {
    match fields.string("order")?.as_deref() {
        None | Some("rows") => Ok(Order::Rows),
        Some("exact") => Ok(Order::Exact),
        Some("fields") => Ok(Order::Fields),
        Some("sent") => Ok(Order::Sent),
        Some(_) => fields.bad("order", "must be `exact`, `rows`, `fields` or `sent`"),
    }
}

/// `dependencies`: lists of at least two column names each.
fn dependencies(fields: &mut JsonFields, limits: &LimitsConfig) -> Result<Vec<Vec<String>>, RequestError> {
    let Some(groups) = fields.array("dependencies")? else { return Ok(Vec::new()) };
    if groups.len() > limits.columns_max {
        return fields.bad("dependencies", format!("has more than {} groups", limits.columns_max));
    }
    let mut read = Vec::with_capacity(groups.len());
    for (index, group) in groups.into_iter().enumerate() {
        let bad = |reason: String| fields.bad(&format!("dependencies[{index}]"), reason);
        let Value::Array(names) = group else { return bad("must be an array of column names".into()) };
        if names.len() < 2 || names.len() > limits.columns_max {
            return bad(format!("must have 2 to {} column names", limits.columns_max));
        }
        let name = |name: Value| match name {
            Value::String(name) => Some(name),
            _ => None,
        };
        match names.into_iter().map(name).collect() {
            Some(names) => read.push(names),
            None => return bad("must be an array of column names".into()),
        }
    }
    Ok(read)
}

/// `class`: who waits; a person by default.
pub fn class(fields: &mut JsonFields) -> Result<ServiceClass, RequestError> {
    match fields.string("class")?.as_deref() {
        None | Some("interactive") => Ok(ServiceClass::Interactive),
        Some("dashboard") => Ok(ServiceClass::Dashboard),
        Some("bulk") => Ok(ServiceClass::Bulk),
        Some(_) => fields.bad("class", "must be `interactive`, `dashboard` or `bulk`"),
    }
}

/// The public spelling of an id.
pub fn public_id(relquery: &RelQueryState) -> String {
    use serving::relquery_state::RelQueryKind;
    let prefix = match relquery.kind {
        RelQueryKind::RelQuery => "rq",
        RelQueryKind::Cells(_) => "cl",
        RelQueryKind::Calls => "sq",
        RelQueryKind::Column => "co",
    };
    format!("{prefix}-{}", public_ids::shown(relquery.id))
}

/// The relQuery that a public id is of.
pub fn parse_id(prefix: &str, id: &str) -> Option<base::RelQueryId> {
    let digits = id.strip_prefix(prefix)?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().ok().map(public_ids::found)).flatten()
}

/// One row on the wire.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RowReply {
    /// Its place in the input.
    pub index: u32,
    /// Its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `stop` or `length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<&'static str>,
    /// How likely its text was among all that its constraint allows, 0 to 1; of constraints that list them, where the
    /// local engine ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReply>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// Set while it is unfinished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
}

impl RowReply {
    /// The row at `index`.
    pub fn new(index: u32, row: &AnswerRow) -> Self {
        let empty = Self {
            index,
            text: None,
            finish_reason: None,
            probability: None,
            usage: None,
            error: None,
            pending: None,
        };
        match &row.state {
            RowProgress::Pending => Self { pending: Some(true), ..empty },
            RowProgress::Failed(error) => Self { error: Some(crate::error::body(error).error), ..empty },
            RowProgress::Done { end, usage, .. } => Self {
                text: Some(row.text.clone()),
                finish_reason: Some(finish_reason(*end)),
                probability: row.probability,
                usage: Some((*usage).into()),
                ..empty
            },
        }
    }
}

/// OpenAI's word for why an output ended.
pub fn finish_reason(end: base::End) -> &'static str {
    if end.is_stop() { "stop" } else { "length" }
}

/// How far a relQuery is.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Progress {
    /// Rows.
    pub total: usize,
    /// Rows with an answer.
    pub done: usize,
    /// Rows that failed.
    pub failed: usize,
}

/// Where the time went (RelServe, Eq. 2).
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Timing {
    /// Arrival to the start of the first prefill.
    pub waiting_ms: f64,
    /// To the end of the last prefill.
    pub core_ms: f64,
    /// To the last token.
    pub tail_ms: f64,
    /// All of it; so far, while it runs.
    pub total_ms: f64,
}

/// A relQuery on the wire.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RelQueryReply {
    /// Its id.
    pub id: String,
    /// Always `relquery`.
    pub object: &'static str,
    /// `running`, `completed`, `partial`, `cancelled` or `failed`.
    pub status: &'static str,
    /// The model.
    pub model: String,
    /// When it came, unix seconds.
    pub created: u64,
    /// The rows in input order; absent at the end of a stream, which sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<RowReply>>,
    /// How far it is.
    pub progress: Progress,
    /// Where the rest will be, when the deadline cut the reply short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Tokens.
    pub usage: UsageReply,
    /// Where the time went.
    pub timing: Timing,
    /// What ended it, when the server gave it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

/// What is cut out of a reply, or put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyShape {
    /// With the rows.
    pub rows: bool,
    /// Its deadline has passed: `partial` instead of `running`, with a ticket.
    pub partial: bool,
}

/// The status word of a relQuery.
pub fn status_word(state: &State, partial: bool) -> &'static str {
    match state.shown_status() {
        Status::Running if partial => "partial",
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Cancelled => "cancelled",
        Status::Failed(_) => "failed",
    }
}

impl RelQueryReply {
    /// A relQuery as it stands.
    pub fn new(relquery: &RelQueryState, model: &Model, now: base::Time, shape: ReplyShape) -> Self {
        let state = relquery.read();
        let is_partial = shape.partial && *state.shown_status() == Status::Running;
        let rows = || (0..).zip(state.shown_rows()).map(|(index, row)| RowReply::new(index, row)).collect();
        Self {
            id: public_id(relquery),
            object: "relquery",
            status: status_word(&state, shape.partial),
            model: model.name.clone(),
            created: relquery.created_ms / 1_000,
            rows: shape.rows.then(rows),
            progress: progress(&state),
            ticket: is_partial.then(|| public_id(relquery)),
            usage: UsageReply::from(&*state),
            timing: timing(relquery, &state, now),
            error: match state.shown_status() {
                Status::Failed(error) => Some(crate::error::body(error).error),
                Status::Running | Status::Completed | Status::Cancelled => None,
            },
        }
    }
}

/// Counts of what is shown of a relQuery.
pub fn progress(state: &State) -> Progress {
    let failed = state.shown_failures();
    Progress { total: state.rows.len(), done: state.shown().len() - failed, failed }
}

fn timing(relquery: &RelQueryState, state: &State, now: base::Time) -> Timing {
    let ms = |span: base::Nanos| span.0 as f64 / 1e6;
    let periods = state.periods.unwrap_or_default();
    Timing {
        waiting_ms: ms(periods.waiting),
        core_ms: ms(periods.core),
        tail_ms: ms(periods.tail),
        total_ms: ms(relquery.age(state, now)),
    }
}
