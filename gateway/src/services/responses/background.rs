//! Responses in the background: nobody waits for them, and who asks is told how far they are.
//!
//! Each has a ticket from its first reply on: with that reply, and with the request, whose input is the whole
//! conversation. The ticket's one row is the reply with the answer. Whoever asks is told what stands in the ticket, so that a
//! crash takes nothing back; whoever reads along is told of the answer as it grows, and of the end as the ticket has it.
//! Must not know HTTP.

use std::sync::Arc;
use std::time::Duration;

use base::TenantId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serving::Runtime;
use serving::caller::Caller;
use serving::error::{RequestError, internal, stored};
use serving::ownership;
use serving::relquery_state::{RelQueryState, State};
use serving::submit::{self, Prepared, Resumed};
use serving::traces::Origin;
use serving::usage_writer;
use store::{NewTicket, StoredResponse, Ticket, TicketRow, TicketState, UnixMillis};
use tokio::sync::OwnedSemaphorePermit;

use super::running::RunningResponse;
use super::{listed, not_kept};
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::services::constraints::Purpose;
use crate::services::openai::{self, PreparedRequest, PreparedResponse};
use crate::services::prepare::RequestContext;
use crate::services::tickets;
use crate::state::App;
use crate::wire::openai::{PreviousResponse, ResponseEcho, ResponseEnvelope, ResponseReply};
use crate::wire::relquery;

/// The kind of a ticket that holds a response.
pub(crate) const KIND: &str = store::RESPONSE;

/// Prefix of public ids.
pub(super) const PREFIX: &str = "resp-";

/// Time between two looks whether a response was called off at another gateway, or taken over by it.
const LOOK: Duration = Duration::from_secs(5);

/// A response that is to run in the background.
pub(crate) struct BackgroundRequest {
    pub(crate) asked: PreparedRequest,
    /// What its reply repeats of it.
    pub(crate) echo: ResponseEcho,
    /// Its body, whose input is the whole conversation.
    pub(crate) body: Map<String, Value>,
}

/// What a ticket keeps of a response.
#[derive(Deserialize, Serialize)]
pub(super) struct KeptRequest {
    /// What is run: its input is the whole conversation.
    pub(super) body: Map<String, Value>,
    /// The first reply.
    reply: Value,
    /// What its answer is drawn by, so that one that begins anew says what its readers were told.
    #[serde(default)]
    seed: Option<u64>,
}

impl KeptRequest {
    pub(super) fn of(ticket: &Ticket) -> Result<Self, RequestError> {
        serde_json::from_str(&ticket.request).map_err(internal)
    }
}

/// How a response ended.
enum ResponseEnd {
    /// With this reply.
    Answered(String),
    Cancelled,
    Failed(RequestError),
}

/// Who writes a response's end.
enum WrittenEnd {
    /// This gateway did, or nobody does: its ticket is gone.
    Here,
    /// Another gateway, or this one's next start: it runs again.
    Elsewhere,
}

/// Who has a response's ticket.
enum TicketLease {
    /// This gateway.
    Held,
    /// Nobody: it has ended, or is gone.
    Over,
    /// Another gateway.
    Lost,
}

/// Starts a response and writes its ticket; its first reply. A task of its own, which goes on where the client leaves:
/// of a ticket that is written something must run.
pub(crate) async fn begin(
    app: &Arc<App>,
    model: &Arc<ServedModel>,
    caller: Caller,
    request: BackgroundRequest,
) -> Result<ResponseReply, RequestError> {
    let beginning = begin_one(Arc::clone(app), Arc::clone(model), caller, request);
    let beginning = tokio::spawn(Origin::carried(beginning));
    beginning.await.map_err(internal)?
}

async fn begin_one(
    app: Arc<App>,
    model: Arc<ServedModel>,
    caller: Caller,
    BackgroundRequest { asked, echo, body }: BackgroundRequest,
) -> Result<ResponseReply, RequestError> {
    let runtime = Arc::clone(&model.runtime);
    let seed = seed_of(&asked.work);
    let promised = Resumed { gets_ticket: true, ..Resumed::default() };
    let handle = submit::submit(&runtime, caller, asked.work, promised).await?;
    let envelope = ResponseEnvelope::new(handle.relquery(), model.model(), echo).calling(asked.tools);
    let reply = envelope.queued();
    // By its text: a `Value` has other digits of a number of 32 bits.
    let text = serde_json::to_string(&reply).map_err(internal)?;
    let kept = KeptRequest { body, reply: serde_json::from_str(&text).map_err(internal)?, seed };
    let now = app.runtime.shared.unix_now();
    let ticket = NewTicket {
        id: &reply.id,
        tenant: caller.tenant,
        kind: KIND,
        request: &serde_json::to_string(&kept).map_err(internal)?,
        expires: now.after(app.config.openai.responses_ms_max),
        lease: &tickets::lease(&app),
        key: None,
    };
    if let Err(error) = create(&app, &runtime, ticket, now).await {
        // The handle is dropped, which ends the work.
        runtime.shared.without_ticket(handle.relquery());
        return Err(error);
    }
    let response = RunningResponse { relquery: handle.release(), envelope: Arc::new(envelope) };
    follow((app, runtime), response, None);
    Ok(reply)
}

/// Writes down a response's ticket, and before it that a request came: who goes on with it counts none.
async fn create(
    app: &App,
    runtime: &Runtime,
    ticket: NewTicket<'_>,
    now: UnixMillis,
) -> Result<(), RequestError> {
    stored(usage_writer::store_usage(runtime).await)?;
    tickets::create(app, ticket, &[], now).await
}

/// What the answer is drawn by.
fn seed_of(work: &Prepared) -> Option<u64> {
    let row = work.parts.first()?.rows.first()?;
    Some(row.item.seed)
}

/// Goes on with a response that a restart, or another server's end, interrupted; `alone` is kept until its answer is
/// stored.
pub(crate) async fn resume(
    app: &Arc<App>,
    ticket: Ticket,
    caller: Caller,
    alone: Option<OwnedSemaphorePermit>,
) -> Result<(), RequestError> {
    if !ticket.rows.is_empty() {
        // Its answer is stored, and its end was not.
        finish(app, &ticket.id, TicketState::Completed, None).await;
        return Ok(());
    }
    let id = relquery::parse_id(PREFIX, &ticket.id).ok_or(RequestError::Internal)?;
    let KeptRequest { body, reply, seed } = KeptRequest::of(&ticket)?;
    let fields = JsonFields::of(body);
    let (arrival, tenant) = (app.runtime.shared.clock.now(), ticket.tenant);
    let model = app.models.of_request(tenant, &fields)?;
    let context = RequestContext { app, model, tenant, purpose: Purpose::Resume, arrival };
    // What went before stands in the input.
    let previous = Some(PreviousResponse::default());
    let PreparedResponse { asked, echo, .. } = openai::response(context, fields, previous)?;
    let mut work = Prepared { deadline: None, ..asked.work };
    for row in work.parts.iter_mut().flat_map(|part| &mut part.rows) {
        row.item.seed = seed.unwrap_or(row.item.seed);
    }
    let runtime = Arc::clone(&model.runtime);
    let resumed = Resumed { id: Some(id), ..Resumed::default() };
    let handle = submit::submit(&runtime, caller, work, resumed).await?;
    let mut envelope = ResponseEnvelope::new(handle.relquery(), model.model(), echo).calling(asked.tools);
    if let Some(created) = reply["created_at"].as_u64() {
        envelope = envelope.created_at(created);
    }
    let response = RunningResponse { relquery: handle.release(), envelope: Arc::new(envelope) };
    follow((Arc::clone(app), runtime), response, alone);
    Ok(())
}

/// Writes the end of a response once there is one. Who reads it meanwhile finds it.
fn follow(
    (app, runtime): (Arc<App>, Arc<Runtime>),
    response: RunningResponse,
    alone: Option<OwnedSemaphorePermit>,
) {
    app.responses.enter(response.clone());
    tokio::spawn(async move {
        follow_to_end((&app, &runtime), &response, alone).await;
        app.responses.leave(&response.relquery);
        // Its readers look for its end in its ticket.
        response.relquery.notify();
    });
}

async fn follow_to_end(
    (app, runtime): (&App, &Runtime),
    RunningResponse { relquery, envelope }: &RunningResponse,
    alone: Option<OwnedSemaphorePermit>,
) {
    let id = envelope.id();
    while tokio::time::timeout(LOOK, ownership::finished(relquery)).await.is_err() {
        match lease_of(app, relquery.tenant, &id).await {
            TicketLease::Held => {}
            TicketLease::Over => {
                ownership::cancel(runtime, relquery);
            }
            TicketLease::Lost => {
                tracing::warn!(ticket = id, "a response is another gateway's now: it ends here");
                return ownership::cede(runtime, relquery);
            }
        }
    }
    let end = end_of(&relquery.read(), envelope);
    // A server that shuts down has not failed: the next start goes on.
    let Some(end) = end else { return };
    match write_end((app, runtime), relquery, (&id, end)).await {
        WrittenEnd::Here => runtime.shared.without_ticket(relquery),
        WrittenEnd::Elsewhere => runtime.shared.lost_ticket(relquery),
    }
    drop(alone);
    // What is told of it stands in its ticket. Where that was lost to another gateway, it may come back.
    runtime.registry.remove(relquery.id);
}

/// Who has a ticket. A database that is away stops nothing.
async fn lease_of(app: &App, tenant: TenantId, id: &str) -> TicketLease {
    let now = app.runtime.shared.unix_now();
    match app.runtime.store.ticket_holder(tenant, id, now).await {
        Ok(Some((TicketState::Running, holder))) if holder == app.config.store.node => TicketLease::Held,
        Ok(Some((TicketState::Running, _))) => TicketLease::Lost,
        Ok(_) => TicketLease::Over,
        Err(error) => {
            tracing::warn!(%error, ticket = id, "a response cannot be looked at; it goes on");
            TicketLease::Held
        }
    }
}

/// How a relQuery ended; `None` where the server ends and it does not.
fn end_of(state: &State, envelope: &ResponseEnvelope) -> Option<ResponseEnd> {
    let end = match envelope.reply(state) {
        Ok(reply) => match serde_json::to_string(&reply) {
            Ok(reply) => ResponseEnd::Answered(reply),
            Err(error) => ResponseEnd::Failed(internal(error)),
        },
        Err(RequestError::ShuttingDown) => return None,
        Err(RequestError::Cancelled) => ResponseEnd::Cancelled,
        Err(error) => ResponseEnd::Failed(error),
    };
    Some(end)
}

async fn write_end(
    (app, runtime): (&App, &Runtime),
    relquery: &RelQueryState,
    (id, end): (&str, ResponseEnd),
) -> WrittenEnd {
    match end {
        ResponseEnd::Answered(reply) => {
            let used = tickets::used(runtime, &relquery.read(), 0);
            let rows = [(TicketRow { row: 0, result: reply, failed: false }, used)];
            let (store, node) = (&app.runtime.store, &app.config.store.node);
            while let Err(error) = store.append_rows_with_usage(id, node, &rows).await {
                if let store::Error::Missing(what) = error {
                    tracing::warn!(ticket = id, "a response has no {what} any more: its answer is dropped");
                    return if what == "lease" { WrittenEnd::Elsewhere } else { WrittenEnd::Here };
                }
                tracing::warn!(%error, ticket = id, "an answer is not recorded yet");
                if !tickets::is_retried(app).await {
                    return WrittenEnd::Elsewhere;
                }
            }
            runtime.shared.recorded(relquery, 1);
            finish(app, id, TicketState::Completed, None).await;
        }
        ResponseEnd::Cancelled => finish(app, id, TicketState::Cancelled, None).await,
        ResponseEnd::Failed(error) => {
            let summary = json!({ "error": crate::error::body(&error).error }).to_string();
            finish(app, id, TicketState::Failed, Some(&summary)).await;
        }
    }
    WrittenEnd::Here
}

async fn finish(app: &App, id: &str, state: TicketState, summary: Option<&str>) {
    let node = Some(&*app.config.store.node);
    while let Err(error) = app.runtime.store.finish_ticket(id, node, state, summary).await {
        tracing::warn!(%error, ticket = id, "the end of a response is not written yet");
        if !error.is_transient() || !tickets::is_retried(app).await {
            return;
        }
    }
}

/// A tenant's ticket of a response.
pub(super) async fn find_ticket(
    app: &App,
    tenant: TenantId,
    id: &str,
) -> Result<Option<Ticket>, RequestError> {
    let now = app.runtime.shared.unix_now();
    let found = stored(app.runtime.store.ticket(tenant, id, now).await)?;
    Ok(found.filter(|ticket| ticket.kind == KIND))
}

/// A tenant's response in the background, as it stands.
pub(super) async fn find(
    app: &App,
    tenant: TenantId,
    id: &str,
) -> Result<Option<StoredResponse>, RequestError> {
    find_ticket(app, tenant, id).await?.map(|ticket| shown(app, &ticket)).transpose()
}

/// The first reply of a tenant's response, which its events begin with.
pub(crate) async fn first_reply(app: &App, tenant: TenantId, id: &str) -> Result<Value, RequestError> {
    let Some(found) = find_ticket(app, tenant, id).await? else {
        super::find(app, tenant, id).await?;
        return Err(RequestError::invalid(
            "stream",
            "must be false: this response was not in the background",
        ));
    };
    Ok(KeptRequest::of(&found)?.reply)
}

/// The reply of a tenant's response that is over; none while it is not.
pub(crate) async fn last_reply(app: &App, tenant: TenantId, id: &str) -> Result<Option<Value>, RequestError> {
    let now = app.runtime.shared.unix_now();
    // Asked first: a ticket may be large.
    match stored(app.runtime.store.ticket_holder(tenant, id, now).await)? {
        Some((TicketState::Running, _)) => return Ok(None),
        Some(_) => {}
        None => return Err(not_kept(id)),
    }
    let found = find(app, tenant, id).await?.ok_or_else(|| not_kept(id))?;
    serde_json::from_str(&found.reply).map(Some).map_err(internal)
}

/// A tenant's response, while it runs here.
pub(crate) fn running(app: &App, tenant: TenantId, id: &str) -> Option<RunningResponse> {
    app.responses.get(tenant, relquery::parse_id(PREFIX, id)?)
}

/// Calls a response off, and tells how it stands then: one that is over stays as it is.
pub(crate) async fn cancel(app: &App, tenant: TenantId, id: &str) -> Result<StoredResponse, RequestError> {
    let Some(found) = find_ticket(app, tenant, id).await? else {
        super::find(app, tenant, id).await?;
        return Err(RequestError::invalid("id", "Cannot cancel a synchronous response."));
    };
    let is_unanswered = found.state == TicketState::Running && found.rows.is_empty();
    let store = &app.runtime.store;
    if is_unanswered && stored(store.finish_ticket(id, None, TicketState::Cancelled, None).await)? {
        stop(app, tenant, id);
    }
    find(app, tenant, id).await?.ok_or_else(|| not_kept(id))
}

/// Forgets a response, and stops its work; says whether there was one.
pub(super) async fn forget(app: &App, tenant: TenantId, id: &str) -> Result<bool, RequestError> {
    if find_ticket(app, tenant, id).await?.is_none() {
        return Ok(false);
    }
    let was_kept = stored(app.runtime.store.delete_ticket(tenant, id).await)?;
    stop(app, tenant, id);
    Ok(was_kept)
}

/// What runs here of a response. Another gateway looks itself.
fn running_here<'a>(
    app: &'a App,
    tenant: TenantId,
    id: &str,
) -> Option<(&'a Arc<ServedModel>, Arc<RelQueryState>)> {
    app.models.relquery(tenant, relquery::parse_id(PREFIX, id)?)
}

/// Stops what runs here of a response.
fn stop(app: &App, tenant: TenantId, id: &str) {
    if let Some((model, relquery)) = running_here(app, tenant, id) {
        ownership::cancel(&model.runtime, &relquery);
    }
}

/// Whether the model has begun with an unanswered response.
fn has_begun(app: &App, ticket: &Ticket) -> bool {
    let Some((_, relquery)) = running_here(app, ticket.tenant, &ticket.id) else {
        return ticket.taken_by.as_deref().is_some_and(|process| process != tickets::process(app));
    };
    let state = relquery.read();
    state.is_over() || state.rows.iter().any(|row| row.start.is_some() || row.pieces > 0)
}

/// A response as its ticket has it.
fn shown(app: &App, ticket: &Ticket) -> Result<StoredResponse, RequestError> {
    let KeptRequest { body, mut reply, .. } = KeptRequest::of(ticket)?;
    let said = body.get("input").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let input = serde_json::to_string(&listed(&ticket.id, said)).map_err(internal)?;
    let (status, answer) = match ticket.state {
        TicketState::Cancelled => ("cancelled", None),
        TicketState::Failed => {
            reply["error"] = cause(ticket);
            ("failed", None)
        }
        TicketState::Running | TicketState::Completed => {
            let status = if has_begun(app, ticket) { "in_progress" } else { "queued" };
            (status, ticket.rows.first())
        }
    };
    reply["status"] = status.into();
    let reply = answer.map_or_else(|| reply.to_string(), |row| row.result.clone());
    Ok(StoredResponse { input, reply })
}

/// Why a response failed.
fn cause(ticket: &Ticket) -> Value {
    let summary = ticket.summary.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let error = summary.map_or(Value::Null, |mut summary| summary["error"].take());
    let code = ["code", "type"].into_iter().find_map(|key| error[key].as_str());
    let message = error["message"].as_str().unwrap_or("internal error");
    json!({"code": code.unwrap_or("server_error"), "message": message})
}
