//! The end of a batch: its recorded rows become files, and all at once it is over.

use std::sync::Arc;
use std::time::Duration;

use base::Bytes;
use serde_json::{Value, json};
use store::{BatchEnd, TicketRow, TicketState};

use super::lines::{LineError, Request};
use super::watch::Stop;
use super::{AnswerTokens, Batch, Summary, note};
use crate::services::files::{Draft, Lines, NewUpload};
use crate::state::App;

/// Rows read or written at a time.
const ROWS: u32 = 500;
/// Bytes of a chunk of a file.
const CHUNK_BYTES: usize = 256 << 10;
/// Time between two tries, while the database is away or full.
const RETRY: Duration = Duration::from_secs(1);

/// Ends a batch. Tries until it can, or until the server ends or the lease is lost.
pub(super) async fn finish(app: &Arc<App>, batch: &mut Batch, stop: Stop) {
    loop {
        match try_finish(app, batch, &stop).await {
            Ok(()) => return,
            Err(store::Error::Missing(what)) => {
                tracing::warn!(batch = batch.id, "a batch has no {what} any more: it is another's to end");
                return;
            }
            Err(error) => tracing::warn!(%error, batch = batch.id, "the end of a batch is not written yet"),
        }
        if app.runtime.is_draining() {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_finish(app: &Arc<App>, batch: &mut Batch, stop: &Stop) -> Result<(), store::Error> {
    if let Stop::GivenUp(error) = stop {
        return give_up(app, batch, error).await;
    }
    if batch.summary.finalizing_at.is_none() {
        batch.summary.finalizing_at = Some(app.runtime.shared.unix_now());
        note(app, &batch.id, &batch.summary, &[]).await?;
    }
    if *stop == Stop::Expired {
        fail_the_rest(app, batch).await?;
    }
    let mut files = Vec::new();
    let mut written = [None, None];
    let mut tokens = AnswerTokens::default();
    for (failed, place) in [false, true].into_iter().zip(&mut written) {
        if let Some(file) = leave(app, batch, failed, &mut tokens).await? {
            *place = Some(file.0.clone());
            files.push(file);
        }
    }
    let counts = app.runtime.store.count_rows(&batch.id).await?;
    let [output_file, error_file] = written;
    let summary = Summary {
        completed: counts.over - counts.failed,
        failed: counts.failed,
        tokens: Some(tokens.plus(batch.summary.called_off)),
        ended_at: Some(app.runtime.shared.unix_now()),
        is_expired: *stop == Stop::Expired,
        errors: match stop {
            Stop::Invalid(errors) => errors.clone(),
            _ => Vec::new(),
        },
        output_file,
        error_file,
        ..batch.summary.clone()
    };
    let state = match stop {
        Stop::Cancelled => TicketState::Cancelled,
        Stop::Invalid(_) | Stop::GivenUp(_) => TicketState::Failed,
        Stop::Done | Stop::Expired | Stop::Left | Stop::Paused(_) => TicketState::Completed,
    };
    let text = serde_json::to_string(&summary).expect("a summary is plain data");
    let end = BatchEnd { state, summary: &text, files: &files };
    app.runtime.store.finish_batch(&batch.id, &app.config.store.node, end).await?;
    Ok(())
}

/// Ends a batch that ends servers: of what is recorded nothing is touched, as that may be what ends them.
async fn give_up(app: &App, batch: &Batch, error: &LineError) -> Result<(), store::Error> {
    let counts = app.runtime.store.count_rows(&batch.id).await?;
    let summary = Summary {
        completed: counts.over - counts.failed,
        failed: counts.failed,
        ended_at: Some(app.runtime.shared.unix_now()),
        errors: vec![error.clone()],
        ..batch.summary.clone()
    };
    let text = serde_json::to_string(&summary).expect("a summary is plain data");
    let node = Some(&*app.config.store.node);
    app.runtime.store.finish_ticket(&batch.id, node, TicketState::Failed, Some(&text)).await?;
    Ok(())
}

/// Records the rows that did not run before the window passed.
async fn fail_the_rest(app: &Arc<App>, batch: &Batch) -> Result<(), store::Error> {
    let done = app.runtime.store.row_numbers(&batch.id).await?;
    let mut lines = Lines::of(&batch.request.input_file_id);
    let error = LineError::whole("batch_expired", "the request did not run within the completion window");
    let error = json!({ "code": error.code, "message": error.message });
    while let Some(chunk) = lines.next(app).await? {
        let mut rows = Vec::new();
        for (line, text) in chunk.lines().filter(|(line, _)| done.binary_search(line).is_err()) {
            // An input that was not checked in time may hold anything.
            let Ok(request) = Request::read(line, text, &batch.request.endpoint) else { continue };
            let result = json!({
                "id": request_id(batch, line), "custom_id": request.custom_id, "response": null, "error": error
            });
            rows.push(TicketRow { row: line, result: result.to_string(), failed: true });
        }
        for rows in rows.chunks(ROWS as usize) {
            app.runtime.store.append_rows(&batch.id, &app.config.store.node, rows).await?;
        }
    }
    Ok(())
}

/// The id of a line's request.
pub(super) fn request_id(batch: &Batch, line: u32) -> String {
    format!("batch_req_{}_{line}", batch.id.trim_start_matches("batch_"))
}

impl AnswerTokens {
    /// Adds a recorded answer; one without usage adds nothing.
    fn add(&mut self, result: &str) {
        let result: Value = serde_json::from_str(result).unwrap_or_default();
        let usage = &result["response"]["body"]["usage"];
        let count = |field: &Value| field.as_u64().unwrap_or(0);
        self.input += count(&usage["prompt_tokens"]);
        self.cached += count(&usage["prompt_tokens_details"]["cached_tokens"]);
        self.output += count(&usage["completion_tokens"]);
    }
}

/// Writes the rows that failed, or that did not, into a file in the order of the input, and adds up what they
/// spent; no file where there are none.
async fn leave(
    app: &Arc<App>,
    batch: &Batch,
    failed: bool,
    tokens: &mut AnswerTokens,
) -> Result<Option<(String, Bytes, u64)>, store::Error> {
    let name = format!("{}_{}.jsonl", batch.id, if failed { "errors" } else { "output" });
    let kept = batch.request.output_kept.unwrap_or(app.config.bulk.keep_ms_max);
    let expires = app.runtime.shared.unix_now().after(kept);
    let mut draft: Option<Draft> = None;
    let (mut from, mut bytes, mut lines) = (0, 0, 0);
    let mut chunk = String::new();
    loop {
        let rows = app.runtime.store.ticket_rows(&batch.id, failed, (from, ROWS)).await?;
        let is_last = rows.len() < ROWS as usize;
        for row in rows {
            from = row.row + 1;
            lines += 1;
            tokens.add(&row.result);
            chunk.push_str(&row.result);
            chunk.push('\n');
        }
        if chunk.len() >= CHUNK_BYTES || (is_last && !chunk.is_empty()) {
            let draft = match &mut draft {
                Some(draft) => draft,
                none => {
                    let new = NewUpload { purpose: "batch_output", name: &name, is_encoded: false };
                    none.insert(Draft::begin(app, batch.tenant, new, expires).await?)
                }
            };
            draft.append(&chunk).await?;
            bytes += chunk.len() as u64;
            chunk.clear();
        }
        if is_last {
            return Ok(draft.map(|draft| (draft.id.clone(), Bytes(bytes), lines)));
        }
    }
}
