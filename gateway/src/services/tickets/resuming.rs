//! Tickets that another process left are gone on with: after a restart, or where another gateway is gone.
//!
//! Each is noted in the store before its work begins ([`store::takes`]), so that a ticket that ends every server is not
//! taken up for ever ([`takes`]): the last time alone, and then it fails.

use std::sync::Arc;

use base::{RelQueryId, TenantId};
use serde_json::json;
use serving::caller::{Caller, WeightedTenant};
use serving::error::{RequestError, of_store};
use serving::submit::{self, Resumed};
use store::{ClaimKind, Lease, StoreOutage, Ticket, TicketState};
use tokio::sync::OwnedSemaphorePermit;

use super::{follow, is_retried, lease, parse_row, process};
use crate::json as strict;
use crate::services::constraints::Purpose;
use crate::services::prepare::cells::WantedCells;
use crate::services::prepare::{RequestContext, Wanted};
use crate::services::responses;
use crate::services::sql;
use crate::services::takes::{self, TakeUp};
use crate::state::App;
use crate::wire::relquery::{self, RelQueryRequest};

/// Unfinished tickets taken over at a time.
const CLAIMED_MAX: u32 = 64;

/// Claims unfinished tickets (after a restart, or of a gateway that is gone) and goes on with them.
///
/// One lease for all claims: what it has claimed it does not claim again, so the next claim gets the next
/// tickets. True: some could not start yet and are left as they are, for a later lease.
pub async fn resume(app: &Arc<App>, lease: &Lease) -> bool {
    let mut resumed = 0;
    loop {
        let now = app.runtime.shared.unix_now();
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
        let tickets = sort_out(app, lease, claimed).await;
        let ids: Vec<&str> = tickets.iter().map(|ticket| ticket.id.as_str()).collect();
        if let Err(error) = app.runtime.store.take_tickets(&ids, lease).await {
            tracing::error!(%error, "unfinished tickets cannot be taken up");
            return true;
        }
        let mut tickets = tickets.into_iter();
        while let Some(ticket) = tickets.next() {
            let id = ticket.id.clone();
            match resume_one(app, ticket, None).await {
                Ok(()) => resumed += 1,
                Err(error) if can_wait(&error) => {
                    tracing::info!(ticket = id, resumed, %error, "tickets wait to be resumed");
                    give_back(app, &id).await;
                    for ticket in tickets {
                        give_back(app, &ticket.id).await;
                    }
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

/// Whether it is not the ticket's fault: what its client was promised is kept for a better time. Where not even an empty
/// queue has room for it, no time is better.
fn can_wait(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Overloaded { .. }
            | RequestError::ShuttingDown
            | RequestError::Dead
            | RequestError::NoDatabase(_)
    )
}

/// Those of claimed tickets that are taken up beside each other, without what runs here already. Too many servers have
/// ended with some, which fail; others have one more try, and wait until they are alone.
async fn sort_out(app: &Arc<App>, lease: &Lease, claimed: Vec<Ticket>) -> Vec<Ticket> {
    let mut beside = Vec::with_capacity(claimed.len());
    for ticket in claimed {
        if runs_here(app, &ticket) {
            continue;
        }
        match takes::decide(ticket.ends_before(&lease.process), app.config.store.takes_max) {
            TakeUp::Beside => beside.push(ticket),
            TakeUp::Alone => resume_when_alone(app, &ticket),
            TakeUp::Never { ends } => {
                app.runtime.shared.metrics.requests.given_up.inc();
                fail(app, &ticket.id, &RequestError::ServerEnded { times: ends }).await;
            }
        }
    }
    beside
}

fn runs_here(app: &App, ticket: &Ticket) -> bool {
    if ticket.kind == sql::tickets::KIND {
        return sql::tickets::runs_here(app, &ticket.id);
    }
    id_of(ticket).is_some_and(|id| app.models.relquery(ticket.tenant, id).is_some())
}

/// The relQuery of a ticket.
fn id_of(ticket: &Ticket) -> Option<RelQueryId> {
    ["rq-", "cl-", "resp-"].into_iter().find_map(|prefix| relquery::parse_id(prefix, &ticket.id))
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

/// Notes that a ticket was taken up and nothing of it runs here. If that is not written, an end of this server counts
/// against it.
async fn give_back(app: &App, id: &str) {
    if let Err(error) = app.runtime.store.give_ticket_back(id, process(app)).await {
        tracing::warn!(%error, ticket = id, "a ticket was not given back");
    }
}

/// Goes on with a ticket with which servers have ended, once nothing else of that kind runs here.
fn resume_when_alone(app: &Arc<App>, ticket: &Ticket) {
    if !app.alone.enter(&ticket.id) {
        return;
    }
    tracing::warn!(
        ticket = ticket.id,
        takes = ticket.takes,
        "servers have ended with a ticket: it runs alone"
    );
    let (app, tenant, id) = (Arc::clone(app), ticket.tenant, ticket.id.clone());
    tokio::spawn(async move {
        loop {
            let permit = app.alone.permit().await;
            if app.runtime.is_draining() {
                break;
            }
            match resume_alone(&app, tenant, &id, permit).await {
                Ok(()) => break,
                Err(error) if can_wait(&error) => {
                    tracing::info!(ticket = id, %error, "a ticket waits to be resumed");
                }
                Err(error) => {
                    fail(&app, &id, &error).await;
                    break;
                }
            }
            if !is_retried(&app).await {
                break;
            }
        }
        app.alone.leave(&id);
    });
}

/// Goes on with a ticket, if it still runs and is this gateway's: it has waited.
async fn resume_alone(
    app: &Arc<App>,
    tenant: TenantId,
    id: &str,
    permit: OwnedSemaphorePermit,
) -> Result<(), RequestError> {
    let away = |error: store::Error| {
        tracing::warn!(%error, ticket = id, "a ticket is not taken up yet");
        RequestError::NoDatabase(error.outage().unwrap_or(StoreOutage::Away))
    };
    let (now, lease) = (app.runtime.shared.unix_now(), lease(app));
    let found = app.runtime.store.ticket(tenant, id, now).await.map_err(away)?;
    let is_wanted = |ticket: &Ticket| {
        ticket.state == TicketState::Running && ticket.holder == lease.holder && !runs_here(app, ticket)
    };
    let Some(ticket) = found.filter(is_wanted) else { return Ok(()) };
    app.runtime.store.take_tickets(&[id], &lease).await.map_err(away)?;
    let resumed = resume_one(app, ticket, Some(permit)).await;
    if resumed.as_ref().is_err_and(can_wait) {
        give_back(app, id).await;
    }
    resumed
}

/// Goes on with a ticket that was taken up; `alone` is kept until something of it is stored.
async fn resume_one(
    app: &Arc<App>,
    ticket: Ticket,
    alone: Option<OwnedSemaphorePermit>,
) -> Result<(), RequestError> {
    let caller = caller(app, ticket.tenant).await?;
    if ticket.kind == sql::tickets::KIND {
        return sql::tickets::resume(&app.clone().into(), ticket, caller, alone).await;
    }
    if ticket.kind == responses::background::KIND {
        return responses::background::resume(app, ticket, caller, alone).await;
    }
    let id = id_of(&ticket).ok_or(RequestError::Internal)?;
    let fields = strict::object(ticket.request.as_bytes())?;
    let (arrival, tenant) = (app.runtime.shared.clock.now(), ticket.tenant);
    let model = app.models.of_request(tenant, &fields)?;
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
    let resumed = Resumed { id: Some(id), rows, ..Resumed::default() };
    let handle = submit::submit(&runtime, caller, work, resumed).await?;
    tokio::spawn(follow((app.clone(), runtime), handle.release(), alone));
    Ok(())
}

/// Who a ticket's work runs for.
async fn caller(app: &App, id: TenantId) -> Result<Caller, RequestError> {
    let tenants = app.runtime.store.tenants().await.map_err(of_store)?;
    let tenant = tenants.into_iter().find(|tenant| tenant.id == id);
    let member = tenant.map_or(WeightedTenant::usual(id), |tenant| WeightedTenant::of(&tenant));
    Ok(Caller::of(member))
}
