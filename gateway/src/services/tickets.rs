//! Tickets: work that outlives its client's deadline, and the process.
//!
//! A ticket is written before the partial reply goes out, with the rows that clients have seen, so what a client was
//! promised survives a crash. A task then follows the relQuery and appends finished rows, which are shown once they are
//! stored: whoever saw an answer sees the same one after a crash. After a restart unfinished
//! tickets are claimed, their finished rows put back on a relQuery, and the rest submitted again.

mod kept;

use std::sync::Arc;

use actix_web::web::Bytes;
use base::{End, Millis, TenantId, TokenCount};
use serde_json::{Value, json};
use serving::Runtime;
use serving::caller::{Caller, WeightedTenant};
use serving::error::stored;
use serving::error::{RequestError, internal, of_store};
use serving::ownership::{self, OwnerHandle};
use serving::relquery_state::{
    AnswerSource, Arrival, RelQueryKind, RelQueryState, RowProgress, State, Status, Usage,
};
use serving::submit::{self, Resumed};
use store::{ClaimKind, Lease, NewTicket, Ticket, TicketKey, TicketRow, TicketState, UnixMillis};

use crate::json as strict;
use crate::models::FoundRelQuery;
use crate::services::constraints::Purpose;
use crate::services::held_claims::HeldClaim;
use crate::services::idempotency::RequestKey;
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
    if let Err(error) = create_for(&app, relquery, (kind, &request, key.as_ref()), shown).await {
        relquery.show_all();
        return Err(error);
    }
    let runtime = Arc::clone(handle.runtime());
    runtime.shared.metrics.requests.partial.inc();
    let relquery = handle.release();
    tokio::spawn(follow((app, runtime), Arc::clone(&relquery)));
    Ok(relquery)
}

/// Writes down the ticket of a relQuery, and its first rows with it.
async fn create_for(
    app: &App,
    relquery: &RelQueryState,
    (kind, request, key): (&str, &str, Option<&RequestKey>),
    shown: usize,
) -> Result<(), RequestError> {
    let now = UnixMillis(app.runtime.shared.clock.unix_ms());
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

/// Appends rows as they finish, and shows them then. While the database is away, what has ended waits in the relQuery:
/// a ticket ends with every row or not at all.
async fn follow((app, runtime): (Arc<App>, Arc<Runtime>), relquery: Arc<RelQueryState>) {
    let id = relquery::public_id(&relquery);
    let mut version = relquery.follow();
    // Set when the ticket was deleted or has expired: the relQuery goes on for whoever reads it here.
    let mut is_gone = false;
    loop {
        version.mark_unchanged();
        let (rows, status) = unrecorded(&relquery);
        if !rows.is_empty() {
            match app.runtime.store.append_rows(&id, &app.config.store.node, &rows).await {
                Ok(()) => relquery.record(rows.len()),
                Err(store::Error::Missing("lease")) => {
                    tracing::warn!(ticket = id, "a ticket is another gateway's now: it ends here");
                    return leave(&runtime, &relquery);
                }
                Err(store::Error::Missing(what)) => {
                    tracing::warn!(ticket = id, "a ticket has no {what} any more: nothing of it is recorded");
                    is_gone = true;
                    relquery.show_all();
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
        let now = app.runtime.shared.clock.now();
        let shape = ReplyShape { rows: false, partial: false };
        let summary = json!(RelQueryReply::new(&relquery, &runtime.model, now, shape)).to_string();
        let node = Some(&*app.config.store.node);
        while !is_gone
            && let Err(error) = app.runtime.store.finish_ticket(&id, node, state, Some(&summary)).await
        {
            tracing::warn!(%error, ticket = id, "the end of a ticket is not written yet");
            if !error.is_transient() || !is_retried(&app).await {
                break;
            }
        }
        if !is_gone
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

/// Rows that have finished and are not in the store yet, as many as one write takes, and how far the relQuery is.
fn unrecorded(relquery: &RelQueryState) -> (Vec<TicketRow>, Status) {
    let state = relquery.read();
    let withheld = state.withheld();
    (rendered(&state, &withheld[..withheld.len().min(ROWS_PER_WRITE)]), state.status.clone())
}

/// Rows as a ticket keeps them.
fn rendered(state: &State, rows: &[u32]) -> Vec<TicketRow> {
    let render = |index: &u32| {
        let row = RowReply::new(*index, &state.rows[*index as usize]);
        TicketRow { row: *index, failed: row.error.is_some(), result: json!(row).to_string() }
    };
    rows.iter().map(render).collect()
}

/// Gives a ticket up that another gateway has: from now on what that one writes is shown here too.
fn leave(runtime: &Runtime, relquery: &Arc<RelQueryState>) {
    runtime.registry.remove(relquery.id);
    ownership::cancel(runtime, relquery);
    relquery.revoke();
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
                    error @ (RequestError::Overloaded { .. }
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
    // Its client left with the deadline.
    let work = submit::Prepared { deadline: None, ..prepared.work };
    let runtime = Arc::clone(&model.runtime);
    let handle = submit::submit(&runtime, caller, work, Resumed { id: Some(id), rows }).await?;
    tokio::spawn(follow((app.clone(), runtime), handle.release()));
    Ok(true)
}

/// Who a ticket's work runs for.
async fn caller(app: &App, id: TenantId) -> Result<Caller, RequestError> {
    let tenants = app.runtime.store.tenants().await.map_err(of_store)?;
    let tenant = tenants.into_iter().find(|tenant| tenant.id == id);
    let member = tenant.map_or(WeightedTenant::usual(id), |tenant| WeightedTenant::of(&tenant));
    Ok(Caller::of(member))
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
