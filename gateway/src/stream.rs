//! Server-sent events of a relQuery.
//!
//! A stream reads the relQuery at its client's pace (it is polled when the socket takes more), so nothing
//! queues up for a slow client. It ends with `done`, or with `error` and no `done`; never silently. Dropping
//! it drops the handle, which cancels the work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::{Bytes, Data};
use futures_util::Stream;
use serde::Serialize;
use serving::Runtime;
use serving::clock::Deadline;
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::relquery_state::{AnswerRow, RelQueryState, Status};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::services::tickets::{self, TicketRequest};
use crate::state::App;

/// Rows put into one chunk at most: the relQuery is locked meanwhile.
const ROWS_PER_CHUNK: usize = 64;

/// One event.
pub fn event(name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("wire types have string keys and serialize");
    format!("event: {name}\ndata: {data}\n\n")
}

/// The reply that carries a stream of events.
pub fn reply(events: impl Stream<Item = Result<Bytes, Infallible>> + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/event-stream"))
        .insert_header((CACHE_CONTROL, "no-store"))
        .streaming(events)
}

/// How a kind of relQuery is shown in a stream.
pub trait RowFormat: 'static {
    /// The event of a row that finished.
    fn row(&self, relquery: &RelQueryState, index: u32, row: &AnswerRow) -> String;
    /// The last event; `partial` when the deadline cut it short.
    fn done(&self, runtime: &Runtime, relquery: &RelQueryState, partial: bool) -> String;
}

struct RowReader<S> {
    app: Data<App>,
    handle: Option<OwnerHandle>,
    version: watch::Receiver<u64>,
    format: S,
    sent: usize,
    deadline: Option<Instant>,
    request: TicketRequest,
}

/// The events of a relQuery, rows in the order in which they finish.
pub fn rows(
    app: Data<App>,
    handle: OwnerHandle,
    format: impl RowFormat,
    deadline: Option<Deadline>,
    request: TicketRequest,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let version = handle.relquery().follow();
    let deadline = deadline.map(|deadline| app.runtime.shared.clock.timer(deadline.at()));
    let reader = RowReader { app, handle: Some(handle), version, format, sent: 0, deadline, request };
    futures_util::stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok(Bytes::from(chunk)), reader))
    })
}

impl<S: RowFormat> RowReader<S> {
    async fn next(&mut self) -> Option<String> {
        loop {
            let handle = self.handle.as_ref()?;
            self.version.mark_unchanged();
            let (chunk, ended) = changes(handle.runtime(), &self.format, handle.relquery(), &mut self.sent);
            if ended {
                self.handle = None;
            }
            if !chunk.is_empty() {
                return Some(chunk);
            }
            let silence = Duration::from_millis(self.app.config.server.keep_alive_ms.0);
            let until = Instant::now() + silence;
            let wake = self.deadline.map_or(until, |deadline| deadline.min(until));
            let changed = tokio::time::timeout_at(wake, self.version.changed()).await;
            if changed.is_err() {
                match self.deadline {
                    Some(deadline) if deadline <= Instant::now() => return self.cut_short().await,
                    _ => return Some(": waiting\n\n".into()),
                }
            }
        }
    }

    /// The deadline has passed: the work goes on for a ticket, the stream ends.
    async fn cut_short(&mut self) -> Option<String> {
        let handle = self.handle.take()?;
        let runtime = Arc::clone(handle.runtime());
        let mut out = String::new();
        match tickets::make(&self.app, handle, &self.request).await {
            Ok(relquery) => out.push_str(&self.format.done(&runtime, &relquery, true)),
            Err(error) => out.push_str(&event("error", &crate::error::body(&error))),
        }
        Some(out)
    }
}

/// What is on the relQuery after the `sent` first rows that finished, and whether that was the end.
fn changes(
    runtime: &Runtime,
    format: &impl RowFormat,
    relquery: &RelQueryState,
    sent: &mut usize,
) -> (String, bool) {
    let mut out = String::new();
    let state = relquery.read();
    let shown = state.shown();
    let until = shown.len().min(*sent + ROWS_PER_CHUNK);
    for index in &shown[*sent..until] {
        out.push_str(&format.row(relquery, *index, &state.rows[*index as usize]));
    }
    *sent = until;
    let status = if until == shown.len() { state.shown_status().clone() } else { Status::Running };
    drop(state);
    match &status {
        Status::Running => {}
        Status::Completed => out.push_str(&format.done(runtime, relquery, false)),
        Status::Cancelled => out.push_str(&event("error", &crate::error::body(&RequestError::Cancelled))),
        Status::Failed(error) => out.push_str(&event("error", &crate::error::body(error))),
    }
    (out, status != Status::Running)
}
