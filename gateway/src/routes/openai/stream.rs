//! A relQuery as server-sent events: `data: {chunk}` ... `data: [DONE]`.
//!
//! Like the relQuery stream it reads the relQuery at its client's pace, so nothing queues up for a slow one.
//! An error after the first byte is an event of its own, after which the stream closes without `[DONE]`.
//! Dropping it drops the owner's handle, which cancels the work.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use actix_web::web::{Bytes, Data};
use base::{Nanos, Time};
use futures_util::Stream;
use serde_json::json;
use serving::clock::Deadline;
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::Usage;
use tokio::sync::watch;

use crate::error::too_late;
use crate::state::App;
use crate::wire::openai::{Chunker, Envelope, Look};

struct ChunkReader {
    app: Data<App>,
    handle: Option<OwnerHandle>,
    version: watch::Receiver<u64>,
    chunker: Chunker,
    deadline: Option<Time>,
}

/// The chunks of a relQuery.
pub(super) fn chunks(
    app: Data<App>,
    handle: OwnerHandle,
    envelope: Envelope,
    include_usage: bool,
    deadline: Option<Deadline>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let version = handle.relquery().follow();
    let rows = handle.relquery().read().rows.len();
    let chunker = Chunker::new(envelope, rows, include_usage);
    let deadline = deadline.map(Deadline::at);
    let reader = ChunkReader { app, handle: Some(handle), version, chunker, deadline };
    futures_util::stream::unfold(reader, |mut reader| async move {
        let events = reader.next().await?;
        Some((Ok(Bytes::from(events)), reader))
    })
}

impl ChunkReader {
    async fn next(&mut self) -> Option<String> {
        loop {
            let handle = self.handle.as_ref()?;
            self.version.mark_unchanged();
            let look = self.chunker.look(&handle.relquery().read());
            let events = events(&look);
            if look.end.is_some() {
                self.handle = None;
            }
            if !events.is_empty() {
                return Some(events);
            }
            let silence = Nanos::from(self.app.config.server.keep_alive_ms);
            let left = self.left().map_or(silence, |left| left.min(silence));
            if tokio::time::timeout(Duration::from_nanos(left.0), self.version.changed()).await.is_ok() {
                continue;
            }
            if self.left() != Some(Nanos(0)) {
                return Some(": waiting\n\n".into());
            }
            let handle = self.handle.take()?;
            ownership::cancel(handle.runtime(), handle.relquery());
            return Some(event(&too_late(handle.relquery().read().spent()).to_string()));
        }
    }

    /// Time to the deadline.
    fn left(&self) -> Option<Nanos> {
        let now = self.app.runtime.shared.clock.now();
        self.deadline.map(|deadline| deadline.since(now))
    }
}

/// The stream of a request whose deadline passed before its work began.
pub(super) fn late() -> impl Stream<Item = Result<Bytes, Infallible>> {
    let only = event(&too_late(Usage::default()).to_string());
    futures_util::stream::once(std::future::ready(Ok(Bytes::from(only))))
}

/// One event.
fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// What one look found, as events.
fn events(look: &Look) -> String {
    let mut out = String::new();
    for chunk in &look.chunks {
        write!(out, "data: {chunk}\n\n").expect("a String takes any text");
    }
    match &look.end {
        None => {}
        Some(Ok(())) => out.push_str(&event("[DONE]")),
        Some(Err(error)) => out.push_str(&event(&json!(crate::error::body(error)).to_string())),
    }
    out
}
