//! `/v1/cells` on the wire: calls in, values or errors out, in the same order.

use std::sync::Arc;

use base::{Constraint, Millis};
use ir::catalogue::AnswerValue;
use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use serving::label::Label;
use serving::model::Model;
use serving::relquery_state::{AnswerRow, RelQueryKind, RelQueryState, RowProgress, Status};
use utoipa::ToSchema;

use crate::config::CellsConfig;
use crate::error::ErrorObject;
use crate::json::JsonFields;
use crate::wire::cell_details::CellDetails;
use crate::wire::relquery::{Progress, ReplyShape, check_model, deadline, progress, public_id, status_word};
use crate::wire::usage::UsageReply;
use crate::wire::{ValidationContext, constraint, label};

/// One call as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function's name.
    pub function: String,
    /// Its arguments, in order.
    pub args: Vec<Value>,
    /// What its answer must look like, for functions that answer with text.
    pub constraint: Option<Constraint>,
    /// What it is for.
    pub label: Option<Arc<Label>>,
}

/// A batch of cell calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CellsRequest {
    /// The calls; one that makes no sense fails alone.
    pub calls: Vec<Result<Call, RequestError>>,
    /// When a partial reply goes out.
    pub deadline: Option<Millis>,
    /// Whether answers may come from and go to the result cache.
    pub cache: bool,
    /// Whether cells stream.
    pub stream: bool,
    /// How functions are put to the model.
    pub guidance: GuidanceRequest,
}

/// How functions are put to the model: as the configuration says, but for what the request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuidanceRequest {
    pub config: CellsConfig,
    /// Whether the request itself asks for calibration: then it must be possible.
    pub asks_calibration: bool,
}

impl CellsRequest {
    /// Reads and checks the fields.
    pub fn read(
        mut fields: JsonFields,
        context: ValidationContext<'_>,
        usual: CellsConfig,
    ) -> Result<Self, RequestError> {
        check_model(&mut fields, context.model)?;
        let Some(items) = fields.array("calls")? else { return fields.bad("calls", "is required") };
        if items.is_empty() {
            return fields.bad("calls", "must have at least one call");
        }
        if items.len() > context.limits.rows_max {
            let limit = format!("{} calls", context.limits.rows_max);
            return Err(RequestError::TooLarge { what: "`calls`".into(), limit });
        }
        let labels = label::labels(&mut fields)?;
        let one = |(index, item)| call(index, item, context, &labels);
        let calls = items.into_iter().enumerate().map(one).collect();
        let request = Self {
            calls,
            deadline: deadline(&mut fields)?,
            cache: fields.bool("cache")?.unwrap_or(true),
            stream: fields.bool("stream")?.unwrap_or(false),
            guidance: guidance(&mut fields, usual)?,
        };
        fields.finish()?;
        Ok(request)
    }
}

/// Takes `guidance`.
fn guidance(fields: &mut JsonFields, usual: CellsConfig) -> Result<GuidanceRequest, RequestError> {
    let Some(value) = fields.take("guidance") else {
        return Ok(GuidanceRequest { config: usual, asks_calibration: false });
    };
    let mut inner = JsonFields::nested("guidance", value)?;
    let calibration = inner.bool("calibration")?;
    let config = CellsConfig {
        examples: inner.bool("examples")?.unwrap_or(usual.examples),
        constraints: inner.bool("constraints")?.unwrap_or(usual.constraints),
        calibration: calibration.unwrap_or(usual.calibration),
    };
    inner.finish()?;
    Ok(GuidanceRequest { config, asks_calibration: calibration == Some(true) })
}

fn call(
    index: usize,
    item: Value,
    context: ValidationContext<'_>,
    labels: &[Option<Arc<Label>>],
) -> Result<Call, RequestError> {
    let mut fields = JsonFields::nested(format!("calls[{index}]"), item)?;
    let Some(function) = fields.string("function")? else {
        return fields.bad("function", "is required");
    };
    let args = fields.array("args")?.unwrap_or_default();
    let label = match fields.integer("label", 0, label::LABELS_MAX as u64)? {
        None => None,
        Some(number) => match labels.get(number as usize) {
            Some(label) => label.clone(),
            None => return fields.bad("label", format!("is {number}, `labels` has {}", labels.len())),
        },
    };
    // Its compiled form is kept, and found again by the relQuery that the call becomes a row of.
    let constraint = constraint::take(&mut fields, context)?.map(|(constraint, _)| constraint);
    fields.finish()?;
    Ok(Call { function, args, constraint, label })
}

/// One cell on the wire: a value, an error, or pending.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct CellReply {
    /// Its place among the calls; only in a stream, where the order is that of finishing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Text, an array of texts (`list`), or an integer (`rate`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// Set while it is unfinished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// How it came to that, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<CellDetails>,
}

impl CellReply {
    /// The cell of a relQuery's row, with how it came to its answer where that is asked for.
    pub fn new(relquery: &RelQueryState, index: u32, row: &AnswerRow, details: bool) -> Self {
        let details = if details { CellDetails::new(relquery, row) } else { None };
        let cell = Self { details, ..Self::default() };
        match &row.state {
            RowProgress::Pending => Self { pending: Some(true), ..cell },
            RowProgress::Failed(error) => Self { error: Some(crate::error::body(error).error), ..cell },
            RowProgress::Done { .. } => match value(&relquery.kind, index, &row.text) {
                Ok(value) => Self { value: Some(value), ..cell },
                Err(error) => Self { error: Some(crate::error::body(&error).error), ..cell },
            },
        }
    }
}

/// The value that a call's text stands for.
fn value(kind: &RelQueryKind, index: u32, text: &str) -> Result<Value, RequestError> {
    let RelQueryKind::Cells(answers) = kind else { return Ok(text.into()) };
    match answers[index as usize].read(text) {
        Ok(AnswerValue::Text(text)) => Ok(text.into()),
        Ok(AnswerValue::List(items)) => Ok(items.into()),
        Ok(AnswerValue::Integer(number)) => Ok(number.into()),
        Err(error) => Err(RequestError::Row(error.to_string())),
    }
}

/// A batch of cells on the wire.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CellsReply {
    /// Its id.
    pub id: String,
    /// Always `cells`.
    pub object: &'static str,
    /// `running`, `completed`, `partial`, `cancelled` or `failed`.
    pub status: &'static str,
    /// The model.
    pub model: String,
    /// The cells in the order of the calls; absent at the end of a stream, which sent them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cells: Option<Vec<CellReply>>,
    /// How far it is.
    pub progress: Progress,
    /// Where the rest will be, when the deadline cut the reply short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Tokens.
    pub usage: UsageReply,
    /// What ended it, when the server gave it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

impl CellsReply {
    /// A relQuery as it stands.
    pub fn new(relquery: &RelQueryState, model: &Model, shape: ReplyShape, details: bool) -> Self {
        let state = relquery.read();
        let is_partial = shape.partial && *state.shown_status() == Status::Running;
        let cell = |(index, row)| CellReply::new(relquery, index, row, details);
        let cells = || (0..).zip(state.shown_rows()).map(cell).collect();
        Self {
            id: public_id(relquery),
            object: "cells",
            status: status_word(&state, shape.partial),
            model: model.name.clone(),
            cells: shape.rows.then(cells),
            progress: progress(&state),
            ticket: is_partial.then(|| public_id(relquery)),
            usage: UsageReply::from(&*state),
            error: match state.shown_status() {
                Status::Failed(error) => Some(crate::error::body(error).error),
                Status::Running | Status::Completed | Status::Cancelled => None,
            },
        }
    }
}
