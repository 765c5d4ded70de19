//! Batches on the wire, in OpenAI's shape.

use base::Millis;
use serde::Serialize;
use serde_json::{Map, Value};
use serving::error::RequestError;
use store::{RowCounts, TicketState, UnixMillis};
use utoipa::ToSchema;

use crate::config::BulkConfig;
use crate::json::JsonFields;
use crate::services::batches::lines::{LineError, api_of};
use crate::services::batches::{AnswerTokens, Batch, BatchRequest};
use crate::wire::files::expires_after;

/// Pairs of `metadata`.
const METADATA_PAIRS_MAX: usize = 16;
/// Characters of its keys and values.
const METADATA_CHARS_MAX: (usize, usize) = (64, 512);

/// Reads a body of `POST /v1/batches`.
pub fn request(mut fields: JsonFields, bulk: &BulkConfig) -> Result<BatchRequest, RequestError> {
    let Some(input_file_id) = fields.string("input_file_id")? else {
        return fields.bad("input_file_id", "is required");
    };
    let endpoint = match fields.string("endpoint")? {
        Some(endpoint) if api_of(&endpoint).is_some() => endpoint,
        _ => return fields.bad("endpoint", "must be /v1/chat/completions or /v1/completions"),
    };
    let completion_window = fields.string("completion_window")?.unwrap_or_else(|| "24h".into());
    let hours = completion_window.strip_suffix('h').and_then(|hours| hours.parse::<u64>().ok());
    let window = Millis(hours.unwrap_or(0).saturating_mul(3_600_000));
    if window.0 == 0 || window > bulk.keep_ms_max {
        let most = bulk.keep_ms_max.0 / 3_600_000;
        return fields.bad("completion_window", format!("must be `24h`, or from `1h` to `{most}h`"));
    }
    let metadata = match fields.take("metadata") {
        None => None,
        Some(Value::Object(pairs)) if is_metadata(&pairs) => Some(pairs),
        Some(_) => {
            let (key, value) = METADATA_CHARS_MAX;
            let reason = format!(
                "must be an object of at most {METADATA_PAIRS_MAX} strings; keys have at most {key} characters, values {value}"
            );
            return fields.bad("metadata", reason);
        }
    };
    let output_kept = expires_after(&mut fields, "output_expires_after", bulk.keep_ms_max)?;
    fields.finish()?;
    Ok(BatchRequest { input_file_id, endpoint, completion_window, window, metadata, output_kept })
}

fn is_metadata(pairs: &Map<String, Value>) -> bool {
    let (key_max, value_max) = METADATA_CHARS_MAX;
    pairs.len() <= METADATA_PAIRS_MAX
        && pairs.iter().all(|(key, value)| {
            let fits = |value: &str| value.chars().count() <= value_max;
            key.chars().count() <= key_max && value.as_str().is_some_and(fits)
        })
}

/// How many requests of a batch are how far.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct CountsReply {
    /// All; 0 until they are counted.
    pub total: u64,
    /// With an answer.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
}

/// Tokens of a batch's answers.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct BatchUsage {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// What they were.
    pub input_tokens_details: InputDetails,
    /// Output tokens.
    pub output_tokens: u64,
    /// What they were.
    pub output_tokens_details: OutputDetails,
    /// Both.
    pub total_tokens: u64,
}

/// Prompt tokens of a batch that cost nothing.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct InputDetails {
    /// Tokens that were not computed.
    pub cached_tokens: u64,
}

/// OpenAI's clients look for it.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct OutputDetails {
    /// Always 0: nothing is left out of an answer.
    pub reasoning_tokens: u64,
}

impl From<AnswerTokens> for BatchUsage {
    fn from(AnswerTokens { input, cached, output }: AnswerTokens) -> Self {
        Self {
            input_tokens: input,
            input_tokens_details: InputDetails { cached_tokens: cached },
            output_tokens: output,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: input + output,
        }
    }
}

/// What is wrong with an input.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorsReply {
    /// Always `list`.
    pub object: &'static str,
    /// The errors.
    pub data: Vec<LineErrorReply>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LineErrorReply {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The field to blame.
    pub param: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
}

impl From<&LineError> for LineErrorReply {
    fn from(error: &LineError) -> Self {
        let LineError { code, message, param, line } = error.clone();
        Self { code, message, param, line }
    }
}

/// A batch. Instants are unix seconds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BatchReply {
    /// Its id.
    pub id: String,
    /// Always `batch`.
    pub object: &'static str,
    /// Where its requests would go one by one.
    pub endpoint: String,
    /// Why nothing ran, or not all.
    pub errors: Option<ErrorsReply>,
    /// The file with its requests.
    pub input_file_id: String,
    /// The time it may take.
    pub completion_window: String,
    /// `validating`, `failed`, `in_progress`, `finalizing`, `completed`, `expired`, `cancelling` or
    /// `cancelled`.
    pub status: &'static str,
    /// Answers, once it is over.
    pub output_file_id: Option<String>,
    /// Failures, once it is over.
    pub error_file_id: Option<String>,
    /// When it was made.
    pub created_at: u64,
    /// When the first request could run.
    pub in_progress_at: Option<u64>,
    /// When its window ends.
    pub expires_at: u64,
    /// When its files began to be written.
    pub finalizing_at: Option<u64>,
    /// When it was completed.
    pub completed_at: Option<u64>,
    /// When it was found that it cannot run.
    pub failed_at: Option<u64>,
    /// When its window had passed.
    pub expired_at: Option<u64>,
    /// When it was asked to stop.
    pub cancelling_at: Option<u64>,
    /// When it had stopped.
    pub cancelled_at: Option<u64>,
    /// How many requests are how far.
    pub request_counts: CountsReply,
    /// Tokens of its answers, once it is over.
    pub usage: Option<BatchUsage>,
    /// The client's own words.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

/// The status word of a batch.
pub fn status(batch: &Batch) -> &'static str {
    let summary = &batch.summary;
    match batch.state {
        TicketState::Running if batch.cancelling.is_some() => "cancelling",
        TicketState::Running if summary.finalizing_at.is_some() => "finalizing",
        TicketState::Running if summary.in_progress_at.is_some() => "in_progress",
        TicketState::Running => "validating",
        TicketState::Completed if summary.is_expired => "expired",
        TicketState::Completed => "completed",
        TicketState::Cancelled => "cancelled",
        TicketState::Failed => "failed",
    }
}

impl BatchReply {
    /// A batch as it stands.
    pub fn new(batch: &Batch, counts: RowCounts) -> Self {
        let status = status(batch);
        let seconds = |instant: UnixMillis| instant.0 / 1_000;
        let summary = &batch.summary;
        let ended = |word: &str| summary.ended_at.filter(|_| status == word).map(seconds);
        let errors: Vec<LineErrorReply> = summary.errors.iter().map(LineErrorReply::from).collect();
        Self {
            id: batch.id.clone(),
            object: "batch",
            endpoint: batch.request.endpoint.clone(),
            errors: (!errors.is_empty()).then_some(ErrorsReply { object: "list", data: errors }),
            input_file_id: batch.request.input_file_id.clone(),
            completion_window: batch.request.completion_window.clone(),
            status,
            output_file_id: summary.output_file.clone(),
            error_file_id: summary.error_file.clone(),
            created_at: seconds(batch.created),
            in_progress_at: summary.in_progress_at.map(seconds),
            expires_at: seconds(batch.expires()),
            finalizing_at: summary.finalizing_at.map(seconds),
            completed_at: ended("completed"),
            failed_at: ended("failed"),
            expired_at: ended("expired"),
            cancelling_at: batch.cancelling.map(seconds),
            cancelled_at: ended("cancelled"),
            request_counts: CountsReply {
                total: summary.total,
                completed: counts.over - counts.failed,
                failed: counts.failed,
            },
            usage: summary.tokens.map(BatchUsage::from),
            metadata: batch.request.metadata.clone(),
        }
    }
}
