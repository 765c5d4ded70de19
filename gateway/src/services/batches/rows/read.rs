//! Reads the next portion of a batch's input and makes its lines ready to run, off the worker's thread.

use std::sync::Arc;
use std::time::Duration;

use serving::error::RequestError;
use store::TicketRow;
use tokio::task::JoinError;

use super::{follow, gone};
use crate::services::batches::Batch;
use crate::services::batches::lines::{self, LineError, ReadyLine, Request, api_of};
use crate::services::constraints::Purpose;
use crate::services::files::{FileChunk, Lines};
use crate::services::prepare::RequestContext;
use crate::state::App;

/// Time between two tries to read, while the database is away.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for a tenant's room for constraints.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);

/// Where reading stands.
pub(super) struct LineReader {
    batch: Batch,
    lines: Lines,
    /// Lines that are recorded, in order.
    done: Vec<u32>,
    /// Lines of a chunk that had to wait.
    rest: Option<FileChunk>,
    /// Requests read so far.
    read: u64,
    wait: Option<Duration>,
    /// A portion is one line: to make it ready may be what ends the server.
    is_one_by_one: bool,
}

/// What was read.
pub(super) struct Portion {
    /// Lines to run.
    pub(super) lines: Vec<ReadyLine>,
    /// Lines that cannot.
    pub(super) failed: Vec<TicketRow>,
    /// Where there is more.
    pub(super) reader: Option<LineReader>,
    /// Why there is not, though there should be.
    pub(super) error: Option<LineError>,
}

impl Portion {
    /// After a fault of the program that read it.
    pub(super) fn unreadable(error: JoinError) -> Self {
        let error = LineError::whole("unreadable", format!("the input cannot be read: {error}"));
        Self { lines: Vec::new(), failed: Vec::new(), reader: None, error: Some(error) }
    }
}

impl LineReader {
    pub(super) fn new(batch: &Batch, done: Vec<u32>, is_one_by_one: bool) -> Self {
        let lines = Lines::of(&batch.request.input_file_id);
        Self { batch: batch.clone(), lines, done, rest: None, read: 0, wait: None, is_one_by_one }
    }

    /// The next portion. It waits while the database is away.
    pub(super) async fn read(mut self, app: Arc<App>) -> Portion {
        if let Some(wait) = self.wait.take() {
            tokio::time::sleep(wait).await;
        }
        let chunk = match self.rest.take() {
            Some(rest) => Some(rest),
            None => loop {
                match self.lines.next(&app).await {
                    Ok(chunk) => break chunk,
                    Err(error) => {
                        tracing::warn!(%error, batch = self.batch.id, "the input of a batch is not read yet");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            },
        };
        let Some(chunk) = chunk else {
            let error = (self.read < self.batch.summary.total).then(gone);
            return Portion { lines: Vec::new(), failed: Vec::new(), reader: None, error };
        };
        let block = tokio::task::spawn_blocking(move || self.ready(&app, &chunk));
        block.await.unwrap_or_else(Portion::unreadable)
    }

    /// Makes a chunk's lines ready.
    fn ready(mut self, app: &App, chunk: &FileChunk) -> Portion {
        let (mut ready, mut failed) = (Vec::new(), Vec::new());
        for (line, text) in chunk.lines() {
            if self.done.binary_search(&line).is_ok() {
                self.read += 1;
                continue;
            }
            match self.one(app, line, text) {
                Ok(one) => ready.push(one),
                Err(Refusal::Row(row)) => failed.push(row),
                Err(Refusal::Later(wait)) => {
                    self.wait = Some(wait.min(ROOM_WAIT_MAX));
                    self.rest = Some(from(chunk, line));
                    break;
                }
            }
            self.read += 1;
            if self.is_one_by_one {
                self.rest = Some(from(chunk, line + 1));
                break;
            }
        }
        Portion { lines: ready, failed, reader: Some(self), error: None }
    }

    fn one(&self, app: &App, line: u32, text: &str) -> Result<ReadyLine, Refusal> {
        let refuse = |custom_id: &str, error: &RequestError| {
            Refusal::Row(follow::failure(&self.batch, (line, custom_id), error))
        };
        let endpoint = &self.batch.request.endpoint;
        // Both were checked before anything ran; the file cannot have changed since.
        let request = Request::read(line, text, endpoint)
            .map_err(|error| refuse("", &RequestError::Malformed(error.message)))?;
        let Some(api) = api_of(endpoint) else {
            return Err(refuse(
                &request.custom_id,
                &RequestError::invalid("url", "is not served in batches"),
            ));
        };
        let custom_id = request.custom_id.clone();
        let arrival = app.runtime.shared.clock.now();
        let (tenant, purpose) = (self.batch.tenant, Purpose::Run);
        let named = request.body.get("model").and_then(serde_json::Value::as_str);
        let model = app.models.named_for(tenant, named).map_err(|error| refuse(&custom_id, &error))?;
        let context = RequestContext { app, model, tenant, purpose, arrival };
        lines::ready(context, api, line, text.len(), request).map_err(|error| match error {
            RequestError::Constraints { retry_after, .. } => {
                Refusal::Later(Duration::from_millis(retry_after.0))
            }
            error => refuse(&custom_id, &error),
        })
    }
}

/// The lines of a chunk from a number on.
fn from(chunk: &FileChunk, line: u32) -> FileChunk {
    let before = (line - chunk.first) as usize;
    let rest: Vec<&str> = chunk.text.lines().skip(before).collect();
    FileChunk { first: line, text: rest.join("\n") }
}

/// Why a line is not ready.
enum Refusal {
    /// It cannot run.
    Row(TicketRow),
    /// Its tenant has no room for its constraint now.
    Later(Duration),
}
