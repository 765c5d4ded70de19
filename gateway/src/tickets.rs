//! Tickets: work that outlives its client's deadline, and the process.
//!
//! A ticket is written before the partial reply goes out, so what a client was promised survives a crash.
//! A task then follows the board like any reader and appends finished rows. After a restart unfinished
//! tickets are claimed, their finished rows put back on a board, and the rest submitted again.

use std::sync::Arc;

use actix_web::web::Data;
use base::{End, TokenCount};
use serde_json::{Value, json};
use store::{Lease, NewTicket, Ticket, TicketRow, TicketState, UnixMillis};

use crate::app::App;
use crate::auth::Caller;
use crate::board::{Board, Kind, RowState, Source, Status, Usage};
use crate::error::ApiError;
use crate::json as strict;
use crate::prepare::{self, Asked};
use crate::service::{self, Claim, Resumed, stored};
use crate::wire::relquery::{self, RelQueryReply, RowReply, Shape};

/// Rows appended in one write.
const ROWS_PER_WRITE: usize = 500;
/// Unfinished tickets taken over per claim.
const CLAIMED_MAX: u32 = 64;
/// How long a gateway may be silent before others take its tickets over.
const LEASE: base::Millis = base::Millis(60_000);

/// This gateway's lease from now on.
pub fn lease(app: &App) -> Lease {
    let until = UnixMillis(app.shared.clock.unix_ms()).after(LEASE);
    Lease { holder: app.config.store.node.clone(), until }
}

/// Turns a claim into a ticket: written down, followed to its end.
pub async fn make(app: &Data<App>, claim: Claim, request: &[u8]) -> Result<Arc<Board>, ApiError> {
    let board = claim.board();
    let id = relquery::public_id(board);
    let now = UnixMillis(app.shared.clock.unix_ms());
    let request = String::from_utf8_lossy(request);
    let ticket = NewTicket {
        id: &id,
        tenant: board.tenant,
        kind: kind_word(&board.kind),
        request: &request,
        expires: now.after(app.config.store.ticket_ms_max),
        lease: &lease(app),
    };
    stored(app.store.create_ticket(ticket, now).await)?;
    app.shared.metrics.partial.increment(1);
    let board = claim.release();
    tokio::spawn(follow(app.clone(), Arc::clone(&board), 0));
    Ok(board)
}

fn kind_word(kind: &Kind) -> &'static str {
    match kind {
        Kind::RelQuery => "relquery",
        Kind::Cells(_) => "cells",
    }
}

/// Appends rows as they finish; the first `written` are in the store already.
async fn follow(app: Data<App>, board: Arc<Board>, mut written: usize) {
    let id = relquery::public_id(&board);
    let mut version = board.follow();
    loop {
        version.mark_unchanged();
        let (rows, status) = new_rows(&board, written);
        if !rows.is_empty() {
            written += rows.len();
            if let Err(error) = app.store.append_rows(&id, &rows).await {
                tracing::error!(%error, ticket = id, "finished rows were not written; a restart repeats them");
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
            Status::Failed(ApiError::ShuttingDown) => return,
            Status::Failed(_) => TicketState::Failed,
        };
        let now = app.shared.clock.now();
        let shape = Shape { rows: false, partial: false };
        let summary = json!(RelQueryReply::new(&board, &app.model, now, shape)).to_string();
        if let Err(error) = app.store.finish_ticket(&id, state, Some(&summary)).await {
            tracing::error!(%error, ticket = id, "the end of a ticket was not written");
        }
        app.registry.ended(&board);
        return;
    }
}

fn new_rows(board: &Board, written: usize) -> (Vec<TicketRow>, Status) {
    let state = board.read();
    let until = state.finished.len().min(written + ROWS_PER_WRITE);
    let render = |index: &u32| {
        let row = RowReply::new(*index, &state.rows[*index as usize]);
        TicketRow { row: *index, result: json!(row).to_string() }
    };
    (state.finished[written..until].iter().map(render).collect(), state.status.clone())
}

/// Claims unfinished tickets (after a restart, or of a gateway that is gone) and goes on with them.
pub async fn resume(app: &Data<App>) {
    loop {
        let now = UnixMillis(app.shared.clock.unix_ms());
        let claimed = match app.store.claim_tickets(&lease(app), CLAIMED_MAX, now).await {
            Ok(claimed) => claimed,
            Err(error) => return tracing::error!(%error, "unfinished tickets cannot be claimed"),
        };
        let mut resumed = 0;
        for ticket in claimed {
            let id = ticket.id.clone();
            match resume_one(app, ticket).await {
                Ok(true) => resumed += 1,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(ticket = id, %error, "a ticket cannot be resumed");
                    let summary = json!({ "error": error.body().error }).to_string();
                    let ended = app.store.finish_ticket(&id, TicketState::Failed, Some(&summary)).await;
                    if let Err(error) = ended {
                        tracing::error!(%error, ticket = id, "the end of a ticket was not written");
                    }
                }
            }
        }
        if resumed == 0 {
            return;
        }
        tracing::info!(resumed, "unfinished tickets resumed");
    }
}

/// False: it runs here already.
async fn resume_one(app: &Data<App>, ticket: Ticket) -> Result<bool, ApiError> {
    let number = relquery::parse_id("rq-", &ticket.id).or_else(|| relquery::parse_id("cl-", &ticket.id));
    let id = number.ok_or(ApiError::Internal)?;
    if app.registry.get(ticket.tenant, id).is_some() {
        return Ok(false);
    }
    let caller = Caller::of(ticket.tenant, app.model.revision);
    let fields = strict::object(ticket.request.as_bytes())?;
    let prepared = match ticket.kind.as_str() {
        "cells" => prepare::cells(app, fields)?,
        _ => prepare::relquery(app, fields)?,
    };
    let rows: Vec<_> = ticket.rows.iter().filter_map(parse_row).collect();
    let written = rows.len();
    let claim = service::submit(app, caller, prepared.work, Resumed { id: Some(id), rows }).await?;
    tokio::spawn(follow(app.clone(), claim.release(), written));
    Ok(true)
}

/// A finished row as [`new_rows`] wrote it.
fn parse_row(row: &TicketRow) -> Option<(u32, String, RowState)> {
    let value: Value = serde_json::from_str(&row.result).ok()?;
    if let Some(message) = value["error"]["message"].as_str() {
        return Some((row.row, String::new(), RowState::Failed(ApiError::Row(message.to_owned()))));
    }
    let count = |path: &Value| path.as_u64().map(TokenCount);
    let usage = &value["usage"];
    let state = RowState::Done {
        end: if value["finish_reason"] == "stop" { End::Stop } else { End::Length },
        usage: Usage {
            prompt: count(&usage["prompt_tokens"])?,
            cached: count(&usage["prompt_tokens_details"]["cached_tokens"])?,
            computed: count(&usage["computed_tokens"])?,
            output: count(&usage["completion_tokens"])?,
        },
        source: Source::Model,
    };
    Some((row.row, value["text"].as_str()?.to_owned(), state))
}

/// A ticket that is not in memory, as a reply: its rows put back on a board.
pub fn board_of(app: &App, ticket: &Ticket) -> Result<Arc<Board>, ApiError> {
    let fields = strict::object(ticket.request.as_bytes())?;
    let Asked { work, .. } = match ticket.kind.as_str() {
        "cells" => prepare::cells(app, fields)?,
        _ => prepare::relquery(app, fields)?,
    };
    let number = relquery::parse_id("rq-", &ticket.id).or_else(|| relquery::parse_id("cl-", &ticket.id));
    let now = app.shared.clock.now();
    let times = (ticket.created.0, now);
    let board = Board::new(number.ok_or(ApiError::Internal)?, ticket.tenant, work.kind, work.rows, times);
    for (index, text, state) in ticket.rows.iter().filter_map(parse_row) {
        board.answer(index, &text, state, now);
    }
    match ticket.state {
        TicketState::Running => {}
        TicketState::Completed => {
            board.end(Status::Completed, now);
        }
        TicketState::Cancelled => {
            board.end(Status::Cancelled, now);
        }
        TicketState::Failed => {
            board.end(Status::Failed(ApiError::Internal), now);
        }
    }
    Ok(board)
}
