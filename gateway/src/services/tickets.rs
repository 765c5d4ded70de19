//! Tickets: work that outlives its client's deadline, and the process.
//!
//! A ticket is written before the partial reply goes out, with the rows that clients have seen, so what a client was
//! promised survives a crash. A task then follows the relQuery and appends finished rows, which are shown once they are
//! stored: whoever saw an answer sees the same one after a crash. After a restart unfinished
//! tickets are claimed, their finished rows put back on a relQuery, and the rest submitted again.
//!
//! Usage is that of the stored rows after any kill: what was counted before there is a ticket is stored before it, and what
//! a row uses from then on is stored with the row, in one transaction.

mod kept;
mod resuming;

use std::sync::Arc;

use actix_web::web::Bytes;
use base::{End, Millis, TokenCount};
pub use resuming::resume;
use serde_json::{Value, json};
use serving::Runtime;
use serving::error::stored;
use serving::error::{RequestError, internal};
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::{
    AnswerSource, Arrival, RelQueryKind, RelQueryState, RowProgress, State, Status, Usage,
};
use serving::usage_writer;
use store::{Lease, NewTicket, Ticket, TicketKey, TicketMade, TicketRow, TicketState, UnixMillis, UsageRow};
use tokio::sync::OwnedSemaphorePermit;

use crate::json as strict;
use crate::models::FoundRelQuery;
use crate::services::constraints::Purpose;
use crate::services::held_claims::HeldClaim;
use crate::services::idempotency::RequestKey;
use crate::services::prepare::cells::WantedCells;
use crate::services::prepare::{PreparedRequest, RequestContext, Wanted};
use crate::state::App;
use crate::wire::relquery::{self, RelQueryReply, RelQueryRequest, ReplyShape, RowReply};

/// Rows appended in one write.
const ROWS_PER_WRITE: usize = 500;
/// Time between two tries, while the database is away.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);
/// How long a gateway may be silent before others take its tickets over.
pub(super) const LEASE: Millis = Millis(60_000);

/// This gateway's lease from now on, by the database's clock, as whoever claims judges it.
pub fn lease(app: &App) -> Lease {
    let until = app.runtime.shared.unix_now().after(LEASE);
    Lease { holder: app.config.store.node.clone(), process: process(app).to_owned(), until }
}

/// What the store calls this process, and no other: as a writer of usage too.
pub fn process(app: &App) -> &str {
    app.runtime.shared.accounts.writer()
}

/// What a ticket keeps of the request of its relQuery.
#[derive(Clone, Debug)]
pub struct TicketRequest {
    pub body: Bytes,
    /// By which the same request finds the ticket, also at another gateway.
    pub key: Option<RequestKey>,
    /// What keeps other gateways from the key until there is a ticket, or nobody waits any more.
    pub claim: Option<Arc<HeldClaim>>,
}

/// Turns a relQuery into a ticket: written down, followed to its end. A task of its own, which goes on where the client
/// leaves: what is withheld for a ticket must be recorded by somebody.
pub async fn make(
    app: &Arc<App>,
    handle: OwnerHandle,
    request: &TicketRequest,
) -> Result<Arc<RelQueryState>, RequestError> {
    let making = tokio::spawn(make_one(Arc::clone(app), handle, request.clone()));
    making.await.map_err(internal)?
}

async fn make_one(
    app: Arc<App>,
    handle: OwnerHandle,
    TicketRequest { body, key, claim: _held }: TicketRequest,
) -> Result<Arc<RelQueryState>, RequestError> {
    // Several clients may wait for one relquery: the first whose deadline passes makes the ticket.
    let _turn = handle.owners().ticketing.lock().await;
    let relquery = handle.relquery();
    if handle.is_released() {
        return Ok(Arc::clone(relquery));
    }
    let kind = kind_word(&relquery.kind);
    // A large table is read for it.
    let needed = tokio::task::spawn_blocking(move || kept::needed(kind, &body));
    let request = needed.await.map_err(internal)?;
    // What anybody has seen comes with the ticket, what ends from now on is seen once it is stored too.
    let shown = relquery.withhold();
    let runtime = Arc::clone(handle.runtime());
    if let Err(error) = create_for((&app, &runtime), relquery, (kind, &request, key.as_ref()), shown).await {
        runtime.shared.without_ticket(relquery);
        return Err(error);
    }
    runtime.shared.metrics.requests.partial.inc();
    let relquery = handle.release();
    tokio::spawn(follow((app, runtime), Arc::clone(&relquery), None));
    Ok(relquery)
}

/// Writes down the ticket of a relQuery, and its first rows with it: those that were counted as any other's.
async fn create_for(
    (app, runtime): (&App, &Runtime),
    relquery: &RelQueryState,
    (kind, request, key): (&str, &str, Option<&RequestKey>),
    shown: usize,
) -> Result<(), RequestError> {
    stored(usage_writer::store_usage(runtime).await)?;
    let now = app.runtime.shared.unix_now();
    let ticket = NewTicket {
        id: &relquery::public_id(relquery),
        tenant: relquery.tenant,
        kind,
        request,
        expires: now.after(app.config.store.ticket_ms_max),
        lease: &lease(app),
        key: key.map(|key| TicketKey { name: &key.name, request: key.digest }),
    };
    let rows = {
        let state = relquery.read();
        rendered(&state, &state.finished[..shown])
    };
    create(app, ticket, &rows, now).await
}

/// Writes a ticket with rows of it down, within what its tenant may keep.
pub async fn create(
    app: &App,
    ticket: NewTicket<'_>,
    rows: &[TicketRow],
    now: UnixMillis,
) -> Result<(), RequestError> {
    let limit = app.config.limits.tenant_ticket_bytes_max;
    match stored(app.runtime.store.create_ticket_within(ticket, rows, limit, now).await)? {
        TicketMade::Yes => Ok(()),
        TicketMade::NoRoom { kept, own } => Err(RequestError::TicketsFull {
            limit: limit.0,
            requests: kept.requests.0,
            answers: kept.answers.0,
            own_request: own.requests.0,
            own_answers: own.answers.0,
            retry_after: Millis(60_000),
        }),
    }
}

fn kind_word(kind: &RelQueryKind) -> &'static str {
    match kind {
        RelQueryKind::RelQuery => "relquery",
        RelQueryKind::Cells(_) => "cells",
        // They have no ticket: who asks for them waits, or calls them off.
        RelQueryKind::Calls => "calls",
        RelQueryKind::Column => "column",
    }
}

/// Appends rows as they finish, and shows them then. While the database is away, what has ended waits in the relQuery:
/// a ticket ends with every row or not at all. What runs `alone` does so until its first rows are stored.
async fn follow(
    (app, runtime): (Arc<App>, Arc<Runtime>),
    relquery: Arc<RelQueryState>,
    mut alone: Option<OwnedSemaphorePermit>,
) {
    let id = relquery::public_id(&relquery);
    let mut version = relquery.follow();
    // Set when the ticket was deleted or has expired: the relQuery goes on for whoever reads it here.
    let mut is_gone = false;
    loop {
        version.mark_unchanged();
        let (rows, status) = unrecorded(&runtime, &relquery);
        if !rows.is_empty() {
            match app.runtime.store.append_rows_with_usage(&id, &app.config.store.node, &rows).await {
                Ok(()) => {
                    runtime.shared.recorded(&relquery, rows.len());
                    drop(alone.take());
                }
                Err(store::Error::Missing("lease")) => {
                    tracing::warn!(ticket = id, "a ticket is another gateway's now: it ends here");
                    // From now on what that one writes is shown here too.
                    return ownership::cede(&runtime, &relquery);
                }
                Err(store::Error::Missing(what)) => {
                    tracing::warn!(ticket = id, "a ticket has no {what} any more: nothing of it is recorded");
                    is_gone = true;
                    runtime.shared.without_ticket(&relquery);
                }
                Err(error) => {
                    let rows = rows.len();
                    match error.is_transient() {
                        true => tracing::warn!(%error, ticket = id, rows, "rows are not recorded yet"),
                        // Tried again all the same, until the ticket expires: what is not stored is not shown.
                        false => tracing::error!(%error, ticket = id, rows, "rows cannot be recorded"),
                    }
                    if !is_retried(&app).await {
                        return;
                    }
                }
            }
            continue;
        }
        let state = match status {
            Status::Running => {
                if version.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Status::Completed => TicketState::Completed,
            Status::Cancelled => TicketState::Cancelled,
            // A server that shuts down has not failed: the ticket is resumed by the next start.
            Status::Failed(RequestError::ShuttingDown) => return,
            Status::Failed(_) => TicketState::Failed,
        };
        if !is_gone {
            write_end(&app, &runtime, &relquery, &id, state).await;
        }
        runtime.registry.ended(&relquery);
        return;
    }
}

/// Writes that a ticket has ended, whose request is not needed any more.
async fn write_end(app: &App, runtime: &Runtime, relquery: &RelQueryState, id: &str, state: TicketState) {
    let now = app.runtime.shared.clock.now();
    let shape = ReplyShape { rows: false, partial: false };
    let summary = json!(RelQueryReply::new(relquery, &runtime.model, now, shape)).to_string();
    let node = Some(&*app.config.store.node);
    while let Err(error) = app.runtime.store.finish_ticket(id, node, state, Some(&summary)).await {
        tracing::warn!(%error, ticket = id, "the end of a ticket is not written yet");
        if !error.is_transient() || !is_retried(app).await {
            break;
        }
    }
    if let Some(shown) = kept::after_end(relquery, &runtime.model)
        && let Err(error) = app.runtime.store.shorten_ticket(id, &shown).await
    {
        tracing::warn!(%error, ticket = id, "a ticket that has ended keeps its request");
    }
}

/// Waits before the database is tried again; false: this server ends, and another start goes on.
pub(crate) async fn is_retried(app: &App) -> bool {
    if !app.runtime.is_draining() {
        tokio::time::sleep(RETRY).await;
    }
    !app.runtime.is_draining()
}

/// A row and what is counted with it, where it ran.
type CountedRow = (TicketRow, Option<UsageRow>);

/// Rows that have finished and are not in the store yet, as many as one write takes, and how far the relQuery is.
fn unrecorded(runtime: &Runtime, relquery: &RelQueryState) -> (Vec<CountedRow>, Status) {
    let state = relquery.read();
    let withheld = state.withheld();
    let withheld = &withheld[..withheld.len().min(ROWS_PER_WRITE)];
    let usage = withheld.iter().map(|row| used(runtime, &state, *row));
    (rendered(&state, withheld).into_iter().zip(usage).collect(), state.status.clone())
}

/// What a row used that is stored with it.
pub(super) fn used(runtime: &Runtime, state: &State, row: u32) -> Option<UsageRow> {
    let charge = state.charge(row)?;
    let day = runtime.shared.unix_now().day();
    Some(usage_writer::row_of((&runtime.model.name, day), charge.account, &charge.spent))
}

/// Rows as a ticket keeps them.
fn rendered(state: &State, rows: &[u32]) -> Vec<TicketRow> {
    let render = |index: &u32| {
        let row = RowReply::new(*index, &state.rows[*index as usize]);
        TicketRow { row: *index, failed: row.error.is_some(), result: json!(row).to_string() }
    };
    rows.iter().map(render).collect()
}

/// A finished row as [`rendered`] wrote it.
fn parse_row(row: &TicketRow) -> Option<(u32, String, RowProgress)> {
    let value: Value = serde_json::from_str(&row.result).ok()?;
    if let Some(message) = value["error"]["message"].as_str() {
        let error = parse_error(message, value["error"]["param"].as_str());
        return Some((row.row, String::new(), RowProgress::Failed(error)));
    }
    let count = |path: &Value| path.as_u64().map(TokenCount);
    let usage = &value["usage"];
    let state = RowProgress::Done {
        end: if value["finish_reason"] == "stop" { End::Stop } else { End::Length },
        usage: Usage {
            prompt: count(&usage["prompt_tokens"])?,
            cached: count(&usage["prompt_tokens_details"]["cached_tokens"])?,
            // Tickets run no prompts in sections.
            shifted: TokenCount(0),
            repaired: TokenCount(0),
            computed: count(&usage["computed_tokens"])?,
            output: count(&usage["completion_tokens"])?,
        },
        source: AnswerSource::Model,
    };
    Some((row.row, value["text"].as_str()?.to_owned(), state))
}

/// How likely a finished row's text was, where that was known.
fn probability(row: &TicketRow) -> Option<f64> {
    serde_json::from_str::<Value>(&row.result).ok()?["probability"].as_f64()
}

/// A row's error as it was shown, so that it is shown the same again.
fn parse_error(message: &str, param: Option<&str>) -> RequestError {
    let invalid = param.and_then(|field| {
        let reason = message.strip_prefix(&format!("invalid `{field}`: "))?;
        Some(RequestError::Invalid { field: field.to_owned(), reason: reason.to_owned() })
    });
    invalid.unwrap_or_else(|| {
        RequestError::Row(message.strip_prefix("the row failed: ").unwrap_or(message).to_owned())
    })
}

/// A ticket that is not in memory, as a reply: its rows put back on a relQuery.
pub fn restore(app: &App, ticket: &Ticket) -> Result<FoundRelQuery, RequestError> {
    let fields = strict::object(ticket.request.as_bytes())?;
    let (arrival, tenant) = (app.runtime.shared.clock.now(), ticket.tenant);
    let model = app.models.of_request(tenant, &fields)?;
    let context = RequestContext { app, model, tenant, purpose: Purpose::Show, arrival };
    let prepared = |prepared: PreparedRequest| (prepared.work.kind, prepared.work.rows);
    let (kind, rows) = match (kept::rows_after_end(&fields), ticket.kind.as_str()) {
        (Some(rows), _) => (RelQueryKind::RelQuery, rows),
        (None, "cells") => prepared(WantedCells::prepare(context, fields)?),
        (None, _) => prepared(RelQueryRequest::prepare(context, fields)?),
    };
    let number = relquery::parse_id("rq-", &ticket.id).or_else(|| relquery::parse_id("cl-", &ticket.id));
    let now = app.runtime.shared.clock.now();
    let arrival = Arrival { unix_ms: ticket.created.0, time: now };
    let relquery =
        RelQueryState::new(number.ok_or(RequestError::Internal)?, ticket.tenant, kind, rows, arrival);
    for row in &ticket.rows {
        let Some((index, text, state)) = parse_row(row) else { continue };
        relquery.keep_probability(index, probability(row));
        relquery.answer(index, &text, state, now);
    }
    match ticket.state {
        TicketState::Running => {}
        TicketState::Completed => {
            relquery.end(Status::Completed, now);
        }
        TicketState::Cancelled => {
            relquery.end(Status::Cancelled, now);
        }
        TicketState::Failed => {
            relquery.end(Status::Failed(cause(ticket)), now);
        }
    }
    Ok((Arc::clone(model), relquery))
}

/// Why a ticket failed, as far as that is told.
fn cause(ticket: &Ticket) -> RequestError {
    let ended = RequestError::ServerEnded { times: ticket.takes };
    let summary: Option<Value> = ticket.summary.as_deref().and_then(|text| serde_json::from_str(text).ok());
    match summary {
        Some(summary) if summary["error"]["code"].as_str() == ended.code() => ended,
        _ => RequestError::Internal,
    }
}

/// Gives back whatever this process has taken up: it works on nothing any more.
pub async fn give_all_back(app: &App) {
    if let Err(error) = app.runtime.store.give_tickets_back(process(app)).await {
        tracing::warn!(%error, "tickets were not given back: this end counts against them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_error_reads_as_it_did_however_often_it_is_stored() {
        let invalid = RequestError::Invalid { field: "calls[2]".into(), reason: "rate: no".into() };
        for error in [invalid, RequestError::Row("NaN logits".into())] {
            let shown = crate::error::body(&error).error;
            let again = crate::error::body(&parse_error(&shown.message, shown.param.as_deref())).error;
            assert_eq!(json!(again), json!(shown));
        }
    }
}
