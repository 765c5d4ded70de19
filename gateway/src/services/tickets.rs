//! Tickets: work that outlives its client's deadline, and the process.
//!
//! A ticket is written before the partial reply goes out, so what a client was promised survives a crash.
//! A task then follows the relQuery like any reader and appends finished rows. After a restart unfinished
//! tickets are claimed, their finished rows put back on a relQuery, and the rest submitted again.

mod kept;

use std::sync::Arc;

use base::{End, Millis, TenantId, TokenCount};
use serde_json::{Value, json};
use serving::Runtime;
use serving::caller::{Caller, WeightedTenant};
use serving::error::stored;
use serving::error::{RequestError, internal, of_store};
use serving::ownership::OwnerHandle;
use serving::relquery_state::{
    AnswerSource, Arrival, RelQueryKind, RelQueryState, RowProgress, Status, Usage,
};
use serving::submit::{self, Resumed};
use store::{ClaimKind, Lease, NewTicket, Ticket, TicketRow, TicketState, UnixMillis};

use crate::json as strict;
use crate::models::FoundRelQuery;
use crate::services::constraints::Purpose;
use crate::services::prepare::cells::WantedCells;
use crate::services::prepare::{PreparedRequest, RequestContext, Wanted};
use crate::services::sql;
use crate::state::App;
use crate::wire::relquery::{self, RelQueryReply, RelQueryRequest, ReplyShape, RowReply};

/// Rows appended in one write.
const ROWS_PER_WRITE: usize = 500;
/// Time between two tries, while the database is away.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);
/// Unfinished tickets taken over at a time.
const CLAIMED_MAX: u32 = 64;
/// How long a gateway may be silent before others take its tickets over.
const LEASE: Millis = Millis(60_000);

/// This gateway's lease from now on.
pub fn lease(app: &App) -> Lease {
    let until = UnixMillis(app.runtime.shared.clock.unix_ms()).after(LEASE);
    Lease { holder: app.config.store.node.clone(), until }
}

/// Turns a relQuery into a ticket: written down, followed to its end.
pub async fn make(
    app: &Arc<App>,
    handle: OwnerHandle,
    request: &[u8],
) -> Result<Arc<RelQueryState>, RequestError> {
    // Several clients may wait for one relquery: the first whose deadline passes makes the ticket.
    let _turn = handle.owners().ticketing.lock().await;
    let relquery = handle.relquery();
    if handle.is_released() {
        return Ok(Arc::clone(relquery));
    }
    let id = relquery::public_id(relquery);
    let now = UnixMillis(app.runtime.shared.clock.unix_ms());
    let (kind, request) = (kind_word(&relquery.kind), request.to_vec());
    // A large table is read for it.
    let needed = tokio::task::spawn_blocking(move || kept::needed(kind, &request));
    let request = needed.await.map_err(internal)?;
    let ticket = NewTicket {
        id: &id,
        tenant: relquery.tenant,
        kind,
        request: &request,
        expires: now.after(app.config.store.ticket_ms_max),
        lease: &lease(app),
    };
    create(app, ticket, now).await?;
    let runtime = Arc::clone(handle.runtime());
    runtime.shared.metrics.requests.partial.inc();
    let relquery = handle.release();
    tokio::spawn(follow((app.clone(), runtime), Arc::clone(&relquery), 0));
    Ok(relquery)
}

/// Writes a ticket down, within what its tenant may keep.
pub async fn create(app: &App, ticket: NewTicket<'_>, now: UnixMillis) -> Result<(), RequestError> {
    let limit = app.config.limits.tenant_ticket_bytes_max;
    match stored(app.runtime.store.create_ticket_within(ticket, limit, now).await)? {
        true => Ok(()),
        false => Err(RequestError::Busy {
            what: "bytes of tickets of this tenant, results included",
            limit: format!("{} (limits.tenant_ticket_bytes_max)", limit.0),
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

/// Appends rows as they finish; the first `written` are in the store already. While the database is away,
/// what has ended waits in the relQuery: a ticket ends with every row or not at all.
async fn follow((app, runtime): (Arc<App>, Arc<Runtime>), relquery: Arc<RelQueryState>, mut written: usize) {
    let id = relquery::public_id(&relquery);
    let mut version = relquery.follow();
    // Set when the ticket is gone or another gateway's: the relQuery goes on for whoever reads it here.
    let mut is_lost = false;
    loop {
        version.mark_unchanged();
        let (rows, status) = new_rows(&relquery, written);
        if is_lost {
            written += rows.len();
        } else if !rows.is_empty() {
            match app.runtime.store.append_rows(&id, &app.config.store.node, &rows).await {
                Ok(()) => written += rows.len(),
                Err(store::Error::Missing(what)) => {
                    tracing::warn!(ticket = id, "a ticket has no {what} any more: it is another's to end");
                    is_lost = true;
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, ticket = id, rows = rows.len(), "rows are not recorded yet");
                    if !is_retried(&app).await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, ticket = id, "finished rows cannot be recorded; a restart repeats them");
                    is_lost = true;
                }
            }
        }
        if !rows.is_empty() {
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
        let now = app.runtime.shared.clock.now();
        let shape = ReplyShape { rows: false, partial: false };
        let summary = json!(RelQueryReply::new(&relquery, &runtime.model, now, shape)).to_string();
        let node = Some(&*app.config.store.node);
        while !is_lost
            && let Err(error) = app.runtime.store.finish_ticket(&id, node, state, Some(&summary)).await
        {
            tracing::warn!(%error, ticket = id, "the end of a ticket is not written yet");
            if !error.is_transient() || !is_retried(&app).await {
                break;
            }
        }
        if !is_lost
            && let Some(shown) = kept::after_end(&relquery, &runtime.model)
            && let Err(error) = app.runtime.store.shorten_ticket(&id, &shown).await
        {
            tracing::warn!(%error, ticket = id, "a ticket that has ended keeps its request");
        }
        runtime.registry.ended(&relquery);
        return;
    }
}

/// Waits before the database is tried again; false: this server ends, and another start goes on.
async fn is_retried(app: &App) -> bool {
    if !app.runtime.is_draining() {
        tokio::time::sleep(RETRY).await;
    }
    !app.runtime.is_draining()
}

fn new_rows(relquery: &RelQueryState, written: usize) -> (Vec<TicketRow>, Status) {
    let state = relquery.read();
    let until = state.finished.len().min(written + ROWS_PER_WRITE);
    let render = |index: &u32| {
        let row = RowReply::new(*index, &state.rows[*index as usize]);
        TicketRow { row: *index, failed: row.error.is_some(), result: json!(row).to_string() }
    };
    (state.finished[written..until].iter().map(render).collect(), state.status.clone())
}

/// Claims unfinished tickets (after a restart, or of a gateway that is gone) and goes on with them.
///
/// One lease for all claims: what it has claimed it does not claim again, so the next claim gets the next
/// tickets. True: some could not start yet and are left as they are, for a later lease.
pub async fn resume(app: &Arc<App>, lease: &Lease) -> bool {
    let mut resumed = 0;
    loop {
        let now = UnixMillis(app.runtime.shared.clock.unix_ms());
        let claimed = match app.runtime.store.claim_tickets(ClaimKind::Replies, lease, CLAIMED_MAX, now).await
        {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::error!(%error, "unfinished tickets cannot be claimed");
                return true;
            }
        };
        if claimed.is_empty() {
            break;
        }
        for ticket in claimed {
            let id = ticket.id.clone();
            match resume_one(app, ticket).await {
                Ok(true) => resumed += 1,
                Ok(false) => {}
                // Not the ticket's fault: what its client was promised is kept for a better time. Where not
                // even an empty queue has room for it, no time is better.
                Err(
                    error @ (RequestError::Overloaded { rows: 1.., .. }
                    | RequestError::ShuttingDown
                    | RequestError::Dead
                    | RequestError::NoDatabase),
                ) => {
                    tracing::info!(ticket = id, resumed, %error, "tickets wait to be resumed");
                    return true;
                }
                Err(error) => fail(app, &id, &error).await,
            }
        }
    }
    if resumed > 0 {
        tracing::info!(resumed, "unfinished tickets resumed");
    }
    false
}

/// Ends a ticket that no server can resume, such as one of a model that is not served any more.
async fn fail(app: &App, id: &str, error: &RequestError) {
    tracing::warn!(ticket = id, %error, "a ticket cannot be resumed");
    let summary = json!({ "error": crate::error::body(error).error }).to_string();
    let node = Some(&*app.config.store.node);
    if let Err(error) = app.runtime.store.finish_ticket(id, node, TicketState::Failed, Some(&summary)).await {
        tracing::error!(%error, ticket = id, "the end of a ticket was not written");
    }
}

/// False: it runs here already.
async fn resume_one(app: &Arc<App>, ticket: Ticket) -> Result<bool, RequestError> {
    if ticket.kind == sql::tickets::KIND {
        let caller = caller(app, ticket.tenant).await?;
        return sql::tickets::resume(&app.clone().into(), ticket, caller).await;
    }
    let number = relquery::parse_id("rq-", &ticket.id).or_else(|| relquery::parse_id("cl-", &ticket.id));
    let id = number.ok_or(RequestError::Internal)?;
    if app.models.relquery(ticket.tenant, id).is_some() {
        return Ok(false);
    }
    let caller = caller(app, ticket.tenant).await?;
    let fields = strict::object(ticket.request.as_bytes())?;
    let (arrival, tenant) = (app.runtime.shared.clock.now(), ticket.tenant);
    let model = app.models.of_request(&fields)?;
    let context = RequestContext { app, model, tenant, purpose: Purpose::Resume, arrival };
    let prepared = match ticket.kind.as_str() {
        "cells" => {
            let mut wanted = WantedCells::read(context, fields)?;
            wanted.settle(app, model, caller).await;
            wanted.lower(context)?
        }
        _ => RelQueryRequest::prepare(context, fields)?,
    };
    let rows: Vec<_> = ticket.rows.iter().filter_map(parse_row).collect();
    let written = rows.len();
    // Its client left with the deadline.
    let work = submit::Prepared { deadline: None, ..prepared.work };
    let runtime = Arc::clone(&model.runtime);
    let handle = submit::submit(&runtime, caller, work, Resumed { id: Some(id), rows }).await?;
    tokio::spawn(follow((app.clone(), runtime), handle.release(), written));
    Ok(true)
}

/// Who a ticket's work runs for.
async fn caller(app: &App, id: TenantId) -> Result<Caller, RequestError> {
    let tenants = app.runtime.store.tenants().await.map_err(of_store)?;
    let tenant = tenants.into_iter().find(|tenant| tenant.id == id);
    let member = tenant.map_or(WeightedTenant::usual(id), |tenant| WeightedTenant::of(&tenant));
    Ok(Caller::of(member))
}

/// A finished row as [`new_rows`] wrote it.
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
    let model = app.models.of_request(&fields)?;
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
            relquery.end(Status::Failed(RequestError::Internal), now);
        }
    }
    Ok((Arc::clone(model), relquery))
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
