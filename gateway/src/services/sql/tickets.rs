//! Statements that outlive the deadlines of their clients: what is left of a result goes into a ticket.
//!
//! A ticket's rows are JSON lines, from the first row that the client has not got (`first_row`). After a
//! restart the statement runs again, with the answers that the ticket has kept ([`super::kept_answers`]); as rows may come in
//! another order then, the ticket holds the whole result from there on: `first_row` is 0. A statement that changes tables is
//! not run twice: its ticket fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use serving::caller::Caller;
use serving::error::{RequestError, internal, stored};
use serving::submit;
use sql::format::{ResultFormat, ResultWriter};
use sql::{Running, SessionAccess};
use store::{Lease, NewTicket, Ticket, TicketRow, TicketState};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::kept_answers::KeptAnswers;
use super::runner::ROUTE;
use super::{failed, session, set};
use crate::state::App;

/// The kind of a ticket that holds a statement.
pub const KIND: &str = "sql";
/// Time between two tries, while the database is away.
const RETRY: Duration = Duration::from_secs(1);

/// A statement and the settings that it runs under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlStatement {
    pub query: String,
    pub settings: BTreeMap<String, String>,
    /// The tables that the key may read that asked; `None`: all. Kept with a ticket: it is held to what was asked
    /// with it.
    pub tables: Option<Vec<String>>,
}

impl SqlStatement {
    /// Starts it in a session of its own. `kept`: where its answers are kept, if it may have a ticket.
    pub async fn start(
        &self,
        app: &Data<App>,
        caller: Caller,
        kept: Option<&Arc<KeptAnswers>>,
    ) -> Result<Running, RequestError> {
        let session = session(app, caller, self.access(), kept).await?;
        for (name, value) in &self.settings {
            set(&session, name, value).await?;
        }
        session.query(&self.query).await.map_err(failed)
    }

    fn access(&self) -> SessionAccess {
        SessionAccess { tables: self.tables.clone(), ..SessionAccess::default() }
    }

    /// As a ticket keeps it.
    pub fn request(&self) -> String {
        let Self { query, settings, tables } = self;
        json!({ "query": query, "settings": settings, "tables": tables }).to_string()
    }

    /// One that a ticket kept.
    pub fn of(request: &str) -> Option<Self> {
        let request: Value = serde_json::from_str(request).ok()?;
        let setting = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let settings = request["settings"].as_object()?.iter().map(setting).collect::<Option<_>>()?;
        let tables = match &request["tables"] {
            Value::Null => None,
            tables => Some(serde_json::from_value(tables.clone()).ok()?),
        };
        Some(Self { query: request["query"].as_str()?.to_owned(), settings, tables })
    }
}

/// The name of a new ticket.
pub fn new_id() -> String {
    format!("sq-{:032x}", rand::random::<u128>())
}

/// A statement whose client has left with its deadline.
pub struct Detached {
    pub id: String,
    pub caller: Caller,
    pub statement: SqlStatement,
    pub answers: Arc<KeptAnswers>,
    /// What runs of it; `None`: it is still to be started.
    pub running: Option<Running>,
    /// Rows that the client has got.
    pub first_row: u64,
}

/// Turns a statement into a ticket: written down, followed to its end.
pub async fn make(app: &Data<App>, lease: &Lease, detached: Detached) -> Result<(), RequestError> {
    let permit = app.sql.tickets.permit()?;
    let now = app.runtime.shared.unix_now();
    let ticket = NewTicket {
        id: &detached.id,
        tenant: detached.caller.tenant,
        kind: KIND,
        request: &detached.statement.request(),
        expires: now.after(app.config.store.ticket_ms_max),
        lease,
        key: None,
    };
    if detached.answers.counts() {
        // None of its rows was let in so far. It is stored with the ticket: whoever goes on with that counts nothing.
        submit::count_request(&app.runtime, detached.caller, ROUTE);
    }
    detached.answers.begin(app, ticket, now).await?;
    app.runtime.shared.metrics.requests.partial.inc();
    follow(app, detached, (permit, None));
    Ok(())
}

/// Whether this server works on a ticket.
pub fn runs_here(app: &App, id: &str) -> bool {
    app.sql.tickets.running().contains_key(id)
}

/// Goes on with a ticket that a restart, or another server's end, interrupted; `alone` is kept until it is over.
pub async fn resume(
    app: &Data<App>,
    ticket: Ticket,
    caller: Caller,
    alone: Option<OwnedSemaphorePermit>,
) -> Result<(), RequestError> {
    let permit = app.sql.tickets.permit()?;
    let statement = SqlStatement::of(&ticket.request).ok_or(RequestError::Internal)?;
    if !session(app, caller, statement.access(), None).await?.only_reads(&statement.query).map_err(failed)? {
        let reason =
            "a restart interrupted it, and what changes tables is not run twice: look whether it was done";
        return Err(RequestError::invalid("query", reason));
    }
    let store = &app.runtime.store;
    let answers = KeptAnswers::of_ticket(&ticket.id, &stored(store.work_rows(&ticket.id).await)?);
    stored(store.clear_rows(&ticket.id, &app.config.store.node).await)?;
    let answers = Arc::new(answers);
    let detached = Detached { id: ticket.id, caller, statement, answers, running: None, first_row: 0 };
    follow(app, detached, (permit, alone));
    Ok(())
}

/// Stops what runs here of a ticket.
pub fn cancel(app: &App, id: &str) {
    if let Some(running) = app.sql.tickets.running().get(id) {
        running.send_replace(true);
    }
}

fn follow(
    app: &Data<App>,
    detached: Detached,
    permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
) {
    let (sender, mut cancelled) = watch::channel(false);
    app.sql.tickets.running().insert(detached.id.clone(), sender);
    let (app, id) = (app.clone(), detached.id.clone());
    tokio::spawn(async move {
        let end = tokio::select! {
            end = run(&app, detached) => end,
            // Whoever cancelled it has written its end.
            _ = cancelled.wait_for(|is_cancelled| *is_cancelled) => None,
        };
        if let Some(end) = end {
            finish(&app, &id, end).await;
        }
        app.sql.tickets.running().remove(&id);
        drop(permits);
    });
}

async fn finish(app: &App, id: &str, end: Result<(), RequestError>) {
    let (state, summary) = match end {
        Ok(()) => (TicketState::Completed, json!({})),
        Err(error) => (TicketState::Failed, json!({ "error": crate::error::body(&error).error })),
    };
    let (node, summary) = (Some(&*app.config.store.node), summary.to_string());
    while let Err(error) = app.runtime.store.finish_ticket(id, node, state, Some(&summary)).await {
        tracing::warn!(%error, ticket = id, "the end of a ticket is not written yet");
        if !error.is_transient() || !is_retried(app).await {
            return;
        }
    }
}

/// Waits before the database is tried again; false: this server ends, and another start goes on.
async fn is_retried(app: &App) -> bool {
    tokio::time::sleep(RETRY).await;
    !app.runtime.is_draining()
}

/// Rows of a result that are in a ticket.
struct KeptRows<'a> {
    app: &'a App,
    id: &'a str,
    answers: &'a KeptAnswers,
    first_row: u64,
    piece: u32,
    bytes: u64,
}

impl KeptRows<'_> {
    /// Adds rows. `None`: the ticket is gone, or another's.
    async fn add(&mut self, lines: &str) -> Option<Result<(), RequestError>> {
        let max = self.app.config.sql.ticket_bytes_max;
        self.bytes += lines.len() as u64;
        if self.bytes > max.0 {
            let limit = format!("{} bytes (sql.ticket_bytes_max)", max.0);
            return Some(Err(RequestError::TooLarge { what: "the rest of the result".into(), limit }));
        }
        let result = json!({ "first_row": self.first_row, "lines": lines }).to_string();
        let rows = [TicketRow { row: self.piece, result, failed: false }];
        self.piece += 1;
        let node = &self.app.config.store.node;
        while let Err(error) = self.app.runtime.store.append_rerun_rows(self.id, node, &rows).await {
            tracing::warn!(%error, ticket = self.id, "rows are not recorded yet");
            let is_others = matches!(error, store::Error::Missing("lease"));
            if is_others || error.is_transient() && !is_retried(self.app).await {
                self.answers.run_again();
                return None;
            }
            if !error.is_transient() {
                return None;
            }
        }
        Some(Ok(()))
    }
}

/// Runs a statement into its ticket. `None`: it is not over, and another start goes on with it.
async fn run(app: &Data<App>, detached: Detached) -> Option<Result<(), RequestError>> {
    let Detached { id, caller, statement, answers, running, first_row } = detached;
    let mut kept = KeptRows { app, id: &id, answers: &answers, first_row, piece: 0, bytes: 0 };
    if let Err(error) = kept.add("").await? {
        return Some(Err(error));
    }
    let mut running = match running {
        Some(running) => running,
        None => match statement.start(app, caller, Some(&answers)).await {
            Ok(running) => running,
            Err(_) if app.runtime.is_draining() => return None,
            Err(error) => return Some(Err(error)),
        },
    };
    let mut writer = match ResultWriter::new(ResultFormat::JsonLines, &running.stream.schema()) {
        Ok(writer) => writer,
        Err(error) => return Some(Err(failed(error))),
    };
    loop {
        let next = running.stream.next().await;
        // Calls that a server's end cut off are NULL: such rows are computed again.
        if app.runtime.is_draining() {
            answers.run_again();
            return None;
        }
        let lines = match next {
            None => return Some(Ok(())),
            Some(batch) => batch.and_then(|batch| writer.batch(&batch)).map_err(failed),
        };
        let lines = lines.and_then(|lines| String::from_utf8(lines).map_err(internal));
        let added = match lines {
            Ok(lines) if lines.is_empty() => Ok(()),
            Ok(lines) => kept.add(&lines).await?,
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            return Some(Err(error));
        }
    }
}

/// A ticket as it stands.
pub fn shown(ticket: &Ticket) -> Result<Value, RequestError> {
    let mut first_row = 0;
    let mut rows = Vec::new();
    for piece in &ticket.rows {
        let piece: Value = serde_json::from_str(&piece.result).map_err(internal)?;
        first_row = piece["first_row"].as_u64().unwrap_or_default();
        for line in piece["lines"].as_str().unwrap_or_default().lines() {
            rows.push(serde_json::from_str::<Value>(line).map_err(internal)?);
        }
    }
    let mut reply = json!({
        "id": ticket.id, "object": "sql", "status": ticket.state.name(), "first_row": first_row, "rows": rows,
    });
    let summary: Option<Value> = ticket.summary.as_deref().and_then(|text| serde_json::from_str(text).ok());
    if let Some(error) = summary.as_ref().and_then(|summary| summary.get("error")) {
        reply["error"] = error.clone();
    }
    Ok(reply)
}
