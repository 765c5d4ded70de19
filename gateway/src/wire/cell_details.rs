//! How a cell came to its answer, for who looks at one cell: `?details=true` of `/v1/cells`.

use base::{Nanos, Time};
use serde::Serialize;
use serving::relquery_state::{AnswerRow, AnswerSource, QueueDepth, RelQueryState, RowProgress, RowStart};
use utoipa::ToSchema;

use crate::wire::relquery::finish_reason;
use crate::wire::usage::UsageReply;

/// How a cell came to its answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CellDetails {
    /// `model`: it ran; `shared`: an equal cell ran for it; `cache`: it was known. Absent of one that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    /// `stop`, or `length`: cut at the function's most tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'static str>,
    /// How likely its text was among all that its function allows, 0 to 1; absent where nobody knows: of free text,
    /// and of text from other servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f64>,
    /// Its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageReply>,
    /// Where its time went; absent of one that did not run, or joined one that ran already.
    #[serde(skip_serializing_if = "Option::is_none")]
    timing: Option<CellTiming>,
}

/// Where a cell's time went, and what was before it.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct CellTiming {
    /// From the request's arrival to the cell's start.
    waiting_ms: f64,
    /// From its start to its end.
    running_ms: f64,
    /// Cells of the same request that started before it.
    cells_before: u32,
    /// Rows that waited on the server when the request came, of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_waiting: Option<u32>,
    /// Rows that ran then.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_running: Option<u32>,
}

impl CellDetails {
    /// Of a row of a relQuery; none while the row is unfinished.
    pub fn new(relquery: &RelQueryState, row: &AnswerRow) -> Option<Self> {
        let ended = row.ended?;
        let timing = row.start.map(|start| timing((start, ended), relquery.arrival, relquery.queue()));
        let empty = Self { source: None, finish_reason: None, probability: None, usage: None, timing };
        let RowProgress::Done { end, usage, source } = row.state else { return Some(empty) };
        let source = match source {
            AnswerSource::Model => "model",
            AnswerSource::Shared => "shared",
            AnswerSource::Cache => "cache",
        };
        Some(Self {
            source: Some(source),
            finish_reason: Some(finish_reason(end)),
            probability: row.probability,
            usage: Some(usage.into()),
            ..empty
        })
    }
}

fn timing((start, ended): (RowStart, Time), arrival: Time, queue: Option<QueueDepth>) -> CellTiming {
    let ms = |span: Nanos| span.0 as f64 / 1e6;
    CellTiming {
        waiting_ms: ms(start.at.since(arrival)),
        running_ms: ms(ended.since(start.at)),
        cells_before: start.before,
        rows_waiting: queue.map(|queue| queue.waiting),
        rows_running: queue.map(|queue| queue.running),
    }
}
