//! RelQueries by their public id: the one in memory, or what its ticket left. Must not know HTTP.

use std::sync::Arc;

use base::RelQueryId;
use serving::caller::Caller;
use serving::error::{RequestError, internal, stored};
use serving::ownership;
use store::TicketState;

use crate::models::FoundRelQuery;
use crate::services::{responses, sql, tickets};
use crate::state::App;
use crate::wire::relquery::{parse_id, public_id};

/// The caller's relQuery of a public id: the one in memory, or what its ticket left.
pub async fn look_up(
    app: &Arc<App>,
    caller: Caller,
    prefix: &str,
    id: &str,
) -> Result<FoundRelQuery, RequestError> {
    if let Some(found) = find(app, caller, prefix, id) {
        return Ok(found);
    }
    let ticket = find_ticket(app, caller, id).await?;
    let state = app.clone();
    tokio::task::spawn_blocking(move || tickets::restore(&state, &ticket)).await.map_err(internal)?
}

/// The caller's relQuery of a public id, while it is in memory.
fn find(app: &App, caller: Caller, prefix: &str, id: &str) -> Option<FoundRelQuery> {
    let number: RelQueryId = parse_id(prefix, id)?;
    let (model, relquery) = app.models.relquery(caller.tenant, number)?;
    (public_id(&relquery) == id).then(|| (Arc::clone(model), relquery))
}

/// The caller's ticket in the store.
async fn find_ticket(app: &App, caller: Caller, id: &str) -> Result<store::Ticket, RequestError> {
    let others = [store::BATCH, sql::tickets::KIND, responses::background::KIND];
    let is_relquery = |kind: &str| !others.contains(&kind);
    ticket_of_kind(app, caller, id, is_relquery).await
}

/// The caller's ticket of a statement of SQL.
pub async fn find_statement(app: &App, caller: Caller, id: &str) -> Result<store::Ticket, RequestError> {
    ticket_of_kind(app, caller, id, |kind| kind == sql::tickets::KIND).await
}

async fn ticket_of_kind(
    app: &App,
    caller: Caller,
    id: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<store::Ticket, RequestError> {
    let now = app.runtime.shared.unix_now();
    let ticket = stored(app.runtime.store.ticket(caller.tenant, id, now).await)?;
    let ticket = ticket.filter(|ticket| is_wanted(&ticket.kind));
    ticket.ok_or_else(|| RequestError::NotFound(format!("`{id}`")))
}

/// Cancels what runs under a public id; false where it was over.
pub async fn call_off(app: &App, caller: Caller, prefix: &str, id: &str) -> Result<bool, RequestError> {
    if let Some((model, relquery)) = find(app, caller, prefix, id) {
        return Ok(ownership::cancel(&model.runtime, &relquery));
    }
    let ticket = find_ticket(app, caller, id).await?;
    if ticket.state != TicketState::Running {
        return Ok(false);
    }
    stored(app.runtime.store.finish_ticket(id, None, TicketState::Cancelled, None).await)
}
