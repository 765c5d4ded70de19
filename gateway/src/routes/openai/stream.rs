//! A relQuery as server-sent events: `data: {chunk}` ... `data: [DONE]`, or the named events of a response.
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
use serde_json::{Value, json};
use serving::clock::Deadline;
use serving::error::RequestError;
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::{RelQueryState, Usage};
use tokio::sync::watch;

use crate::error::too_late;
use crate::services::responses;
use crate::state::App;
use crate::wire::anthropic::MessageEvents;
use crate::wire::openai::{Chunker, Look, ResponseEvents};

struct ChunkReader {
    app: Data<App>,
    handle: Option<OwnerHandle>,
    version: watch::Receiver<u64>,
    talk: Talk,
    deadline: Option<Time>,
}

/// In which form a relQuery is told.
pub(crate) enum Talk {
    /// As chunks of completions.
    Chunks(Box<Chunker>),
    /// As events of a response, with the conversation before its answer, which is kept with it where it is to be kept.
    Events(Box<ResponseEvents>, Vec<Value>),
    /// As events of a message.
    Messages(Box<MessageEvents>),
}

impl Talk {
    /// What is new, as events; whether that was all.
    fn look(&mut self, relquery: &RelQueryState) -> (String, bool) {
        match self {
            Self::Chunks(chunker) => {
                let look = chunker.look(relquery);
                (events(&look), look.end.is_some())
            }
            Self::Events(response, _) => response.look(relquery),
            Self::Messages(message) => message.look(relquery),
        }
    }

    /// Keeps what is over and to be kept, before its end is told.
    async fn keep(&mut self, app: &App, relquery: &RelQueryState) {
        let Self::Events(response, said) = self else { return };
        let to_keep = response.to_keep(relquery);
        if let Some((id, reply)) = to_keep {
            response.kept(responses::keep(app, relquery.tenant, (&id, &reply), said).await);
        }
    }

    /// The end of one whose deadline passed.
    fn late(&mut self, spent: Usage) -> String {
        match self {
            Self::Chunks(_) => event(&too_late(spent).to_string()),
            Self::Events(response, _) => {
                let mut out = String::new();
                response.fail(&mut out, &RequestError::Deadline);
                out
            }
            Self::Messages(message) => {
                let mut out = String::new();
                message.fail(&mut out, &RequestError::Deadline);
                out
            }
        }
    }
}

/// The events of a relQuery.
pub(crate) fn events_of(
    app: Data<App>,
    handle: OwnerHandle,
    talk: Talk,
    deadline: Option<Deadline>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let version = handle.relquery().follow();
    let deadline = deadline.map(Deadline::at);
    let reader = ChunkReader { app, handle: Some(handle), version, talk, deadline };
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
            self.talk.keep(&self.app, handle.relquery()).await;
            let (events, is_over) = self.talk.look(handle.relquery());
            if is_over {
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
            let spent = handle.relquery().read().spent();
            return Some(self.talk.late(spent));
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
