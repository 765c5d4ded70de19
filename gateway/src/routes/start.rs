//! How a request that makes a relQuery begins: prepared and submitted, or, with an `Idempotency-Key` that
//! this tenant has sent with the same body before, joined to what that began, here or, once it has a ticket, anywhere.
//! While another gateway runs it nothing begins ([`key_claims`]). (Answers that are over are kept by
//! [`crate::kept_replies`].)

use std::sync::Arc;

use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpMessage as _, HttpRequest};
use base::{Millis, Time};
use serving::Runtime;
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal};
use serving::label::Label;
use serving::ownership::OwnerHandle;
use serving::submit::{self, Resumed};

use crate::error::ApiError;
use crate::kept_replies::{
    AnsweredElsewhere, HEADER, RequestDigest, digest_of, kept_reply, key_of, reused, ticket_of_key,
};
use crate::models::FoundRelQuery;
use crate::routes::{Arrived, ForModel, off_thread, read_timely};
use crate::services::constraints::Purpose;
use crate::services::held_claims::HeldClaim;
use crate::services::idempotency::{ClaimedKey, First, IdempotencyGuard, KeyBounds, RequestKey};
use crate::services::key_claims;
use crate::services::lookup::look_up;
use crate::services::prepare::{RequestContext, Wanted};
use crate::services::tickets::TicketRequest;
use crate::state::App;
use crate::wire::label;
use crate::wire::relquery::public_id;

/// A relQuery under way, and how its client wants the reply.
pub(crate) struct Started {
    /// Its relQuery, owned.
    pub(crate) handle: OwnerHandle,
    /// As events.
    pub(crate) stream: bool,
    /// When a partial reply goes out.
    pub(crate) deadline: Option<Deadline>,
    /// The request, for a ticket.
    pub(crate) for_ticket: TicketRequest,
}

/// A request as it arrives.
pub(crate) struct Incoming<'a> {
    pub(crate) request: &'a HttpRequest,
    /// Its body, not read yet.
    pub(crate) payload: Payload,
}

/// Begins or rejoins the work of a request. `prefix` is that of the route's public ids.
pub(crate) async fn start<W: Wanted>(
    app: &Data<App>,
    caller: Caller,
    Incoming { request, payload }: Incoming<'_>,
    prefix: &str,
) -> Result<Started, ApiError> {
    let key = key_of(request.headers())?;
    let client = label::of_client(request.headers());
    let arrived = read_timely(app, request, payload).await?;
    let Some(name) = key else { return begin::<W>(app, caller, (arrived, None), client).await };
    let digest = digest_of(request.uri(), &arrived.body);
    request.extensions_mut().insert(RequestDigest(digest));
    let now = app.runtime.shared.clock.now();
    let claimed = ClaimedKey { tenant: caller.tenant, name, digest };
    let guard = app.idempotency.claim(claimed, KeyBounds::of(&app.config), now).await;
    let mut guard = guard.map_err(|_| reused())?;
    let key = RequestKey { name: name.to_owned(), digest };
    let again = RepeatableRequest { arrived: &arrived, key: &key, prefix };
    let mut rejoined = rejoin(app, caller, &guard, again).await?;
    if rejoined.is_none() {
        rejoined = rejoin_ticket::<W>(app, caller, again).await?;
    }
    let mut claim = None;
    if rejoined.is_none() {
        let times = (arrived.peek.arrival(), arrived.peek.deadline());
        let claimed = key_claims::claim(app, caller.tenant, &key, times).await?;
        if claimed.is_answered {
            rejoined = rejoin_answered::<W>(app, caller, again, request).await?;
        }
        claim = claimed.claim;
    }
    if let Some(started) = rejoined {
        keep_claim(request, started.for_ticket.claim.as_ref());
        app.runtime.shared.metrics.requests.repeats.inc();
        return Ok(started);
    }
    keep_claim(request, claim.as_ref());
    guard.set(None);
    let to_claim = claim.as_ref().map(Arc::downgrade).unwrap_or_default();
    let started = begin::<W>(app, caller, (arrived, Some((key, claim))), client).await?;
    guard.set(Some(First {
        id: public_id(started.handle.relquery()),
        owners: started.handle.owners().clone(),
        stream: started.stream,
        deadline: started.deadline,
        claim: to_claim,
    }));
    Ok(started)
}

/// Has the key stay this gateway's until the reply is kept.
fn keep_claim(request: &HttpRequest, claim: Option<&Arc<HeldClaim>>) {
    if let Some(claim) = claim {
        request.extensions_mut().insert(Arc::clone(claim));
    }
}

/// Joins what another gateway left while this one waited for it: its ticket. `None`: that is gone already.
///
/// # Errors
/// It left a reply, which [`crate::kept_replies`] gives in the place of this error.
async fn rejoin_answered<W: Wanted>(
    app: &Data<App>,
    caller: Caller,
    again: RepeatableRequest<'_>,
    request: &HttpRequest,
) -> Result<Option<Started>, ApiError> {
    let started = rejoin_ticket::<W>(app, caller, again).await?;
    if started.is_none() && kept_reply(app, caller.tenant, &again.key.name).await?.is_some() {
        request.extensions_mut().insert(AnsweredElsewhere);
        return Err(RequestError::KeyInUse(HEADER).into());
    }
    Ok(started)
}

/// A request's key, and what keeps other gateways from it.
type OwnedKey = (RequestKey, Option<Arc<HeldClaim>>);

/// Prepares and submits. Where the deadline passes while rows are tokenized, the relQuery is opened before
/// they are, and what was being prepared starts on it: there will be a ticket for it.
async fn begin<W: Wanted>(
    app: &Data<App>,
    caller: Caller,
    (arrived, key): (Arrived, Option<OwnedKey>),
    client: Option<Arc<Label>>,
) -> Result<Started, ApiError> {
    W::admit(app, caller.tenant).await?;
    let Arrived { body, peek } = arrived;
    let (clock, arrival) = (app.runtime.shared.clock, peek.arrival());
    let begun = clock.now();
    let measure = move |runtime: &Runtime| {
        runtime.shared.metrics.requests.prepare_seconds.observe(clock.now().since(begun).as_seconds());
    };
    let wanted = read_wanted::<W>((app, caller), &body, arrival).await;
    let (model, mut wanted) = wanted.inspect_err(|_| measure(&app.runtime))?;
    let runtime = Arc::clone(&model.runtime);
    let outline = wanted.outline();
    let deadline = outline.deadline.map(|span| Deadline::new(arrival, span));
    let state = app.clone();
    let mut lowering = tokio::spawn(async move {
        wanted.settle(&state, &model, caller).await;
        let (tenant, purpose) = (caller.tenant, Purpose::Run);
        let known = wanted.known(RequestContext { app: &state, model: &model, tenant, purpose, arrival });
        if let Some(work) = known {
            measure(&model.runtime);
            return Ok(work);
        }
        let lowered = tokio::task::spawn_blocking(move || {
            let context = RequestContext { app: &state, model: &model, tenant, purpose, arrival };
            let asked = wanted.lower(context);
            measure(&model.runtime);
            asked.map(|asked| asked.work.labelled(client.as_ref()))
        });
        lowered.await.map_err(internal).flatten()
    });
    let handle = match clock.within(deadline, &mut lowering).await {
        Ok(lowered) => {
            let work = lowered.map_err(internal)??;
            submit::submit(&runtime, caller, work, Resumed::default()).await?
        }
        Err(Late) => {
            let handle = submit::open(&runtime, caller, (outline.kind, outline.route), outline.rows)?;
            let relquery = handle.relquery().clone();
            tokio::spawn(async move {
                let lowered = lowering.await.map_err(internal).flatten();
                submit::submit_late(&runtime, caller, &relquery, lowered).await;
            });
            handle
        }
    };
    let (key, claim) = key.unzip();
    let for_ticket = TicketRequest { body, key, claim: claim.flatten() };
    Ok(Started { handle, stream: outline.stream, deadline, for_ticket })
}

/// Bytes of a body that is read where it arrived, if that takes no time.
const LIGHT_BYTES_MAX: usize = 4_096;

/// Reads a request's fields, off the connection's thread where that may take a while.
async fn read_wanted<W: Wanted>(
    (app, caller): (&Data<App>, Caller),
    body: &Bytes,
    arrival: Time,
) -> Result<ForModel<W>, ApiError> {
    if body.len() <= LIGHT_BYTES_MAX {
        let fields = crate::json::object(body)?;
        if W::is_light(&fields) {
            let model = app.models.of_request(caller.tenant, &fields)?;
            let (tenant, purpose) = (caller.tenant, Purpose::Run);
            let context = RequestContext { app, model, tenant, purpose, arrival };
            return Ok((Arc::clone(model), W::read(context, fields)?));
        }
    }
    off_thread((app, caller), body, arrival, W::read).await
}

/// A request that may have been sent before.
#[derive(Clone, Copy)]
struct RepeatableRequest<'a> {
    arrived: &'a Arrived,
    key: &'a RequestKey,
    /// That of its route's public ids.
    prefix: &'a str,
}

impl RepeatableRequest<'_> {
    fn for_ticket(&self, claim: Option<Arc<HeldClaim>>) -> TicketRequest {
        TicketRequest { body: self.arrived.body.clone(), key: Some(self.key.clone()), claim }
    }
}

/// Joins what the key began. `None` where there is nothing to join: the key is new, nobody waited for the
/// first request any more and it was cancelled, or its answer is not kept any more.
async fn rejoin(
    app: &Data<App>,
    caller: Caller,
    guard: &IdempotencyGuard,
    again: RepeatableRequest<'_>,
) -> Result<Option<Started>, ApiError> {
    let Some(first) = guard.first() else { return Ok(None) };
    let Some((model, relquery)) = found(app, caller, again.prefix, &first.id).await? else { return Ok(None) };
    let stream = first.stream;
    let deadline = first.deadline.map(|deadline| deadline.again(again.arrived.peek.arrival()));
    let handle = first.owners.join(&model.runtime, relquery);
    let for_ticket = again.for_ticket(first.claim.upgrade());
    Ok(handle.map(|handle| Started { handle, stream, deadline, for_ticket }))
}

/// Joins the ticket that another gateway, or this one before it was started again, gave to the same request.
async fn rejoin_ticket<W: Wanted>(
    app: &Data<App>,
    caller: Caller,
    again: RepeatableRequest<'_>,
) -> Result<Option<Started>, ApiError> {
    let Some(id) = ticket_of_key(app, caller.tenant, again.key).await? else { return Ok(None) };
    let Some((model, relquery)) = found(app, caller, again.prefix, &id).await? else { return Ok(None) };
    let arrival = again.arrived.peek.arrival();
    let (_, wanted) = off_thread((app, caller), &again.arrived.body, arrival, W::read).await?;
    let outline = wanted.outline();
    // Of what another gateway works on nothing new is heard here: there is no waiting for it.
    let runs_here = model.runtime.registry.get(caller.tenant, relquery.id).is_some();
    let span = if runs_here { outline.deadline } else { Some(Millis(0)) };
    let deadline = span.map(|span| Deadline::new(arrival, span));
    let handle = OwnerHandle::released(&model.runtime, relquery);
    Ok(Some(Started { handle, stream: outline.stream, deadline, for_ticket: again.for_ticket(None) }))
}

/// The relQuery of a public id, if there is still one.
async fn found(
    app: &Data<App>,
    caller: Caller,
    prefix: &str,
    id: &str,
) -> Result<Option<FoundRelQuery>, ApiError> {
    match look_up(app, caller, prefix, id).await {
        Ok(found) => Ok(Some(found)),
        Err(RequestError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
