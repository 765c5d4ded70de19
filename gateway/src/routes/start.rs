//! How a request that makes a relQuery begins: prepared and submitted, or, with an `Idempotency-Key` that
//! this tenant has sent with the same body before, joined to what that began. (Answers that are over are kept by
//! [`crate::kept_replies`].)

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Data, Payload};
use serving::Runtime;
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal};
use serving::label::Label;
use serving::ownership::OwnerHandle;
use serving::submit::{self, Resumed};

use crate::error::ApiError;
use crate::kept_replies::{digest_of, key_of, reused};
use crate::routes::{Arrived, off_thread, read_timely};
use crate::services::constraints::Purpose;
use crate::services::idempotency::{First, IdempotencyGuard};
use crate::services::lookup::look_up;
use crate::services::prepare::{RequestContext, Wanted};
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
    /// The request's body, for a ticket.
    pub(crate) body: Bytes,
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
    let Some(key) = key else { return begin::<W>(app, caller, arrived, client).await };
    let digest = digest_of(request.uri(), &arrived.body);
    let now = app.runtime.shared.clock.now();
    let guard = app.idempotency.claim(caller.tenant, key, digest, now).await;
    let mut guard = guard.map_err(|_| reused())?;
    if let Some(started) = rejoin(app, caller, &guard, prefix, &arrived).await? {
        app.runtime.shared.metrics.requests.repeats.inc();
        return Ok(started);
    }
    guard.set(None);
    let started = begin::<W>(app, caller, arrived, client).await?;
    guard.set(Some(First {
        id: public_id(started.handle.relquery()),
        owners: started.handle.owners().clone(),
        stream: started.stream,
        deadline: started.deadline,
    }));
    Ok(started)
}

/// Prepares and submits. Where the deadline passes while rows are tokenized, the relQuery is opened before
/// they are, and what was being prepared starts on it: there will be a ticket for it.
async fn begin<W: Wanted>(
    app: &Data<App>,
    caller: Caller,
    arrived: Arrived,
    client: Option<Arc<Label>>,
) -> Result<Started, ApiError> {
    W::admit(app, caller.tenant).await?;
    let Arrived { body, peek } = arrived;
    let (clock, arrival) = (app.runtime.shared.clock, peek.arrival());
    let begun = clock.now();
    let measure = move |runtime: &Runtime| {
        runtime.shared.metrics.requests.prepare_seconds.observe(clock.now().since(begun).as_seconds());
    };
    let wanted = off_thread((app, caller), &body, arrival, W::read).await;
    let (model, mut wanted) = wanted.inspect_err(|_| measure(&app.runtime))?;
    let runtime = Arc::clone(&model.runtime);
    let outline = wanted.outline();
    let deadline = outline.deadline.map(|span| Deadline::new(arrival, span));
    let state = app.clone();
    let mut lowering = tokio::spawn(async move {
        wanted.settle(&state, &model, caller).await;
        let lowered = tokio::task::spawn_blocking(move || {
            let (tenant, purpose) = (caller.tenant, Purpose::Run);
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
            let handle = submit::open(&runtime, caller, outline.kind, outline.rows)?;
            let relquery = handle.relquery().clone();
            tokio::spawn(async move {
                let lowered = lowering.await.map_err(internal).flatten();
                submit::submit_late(&runtime, caller, &relquery, lowered).await;
            });
            handle
        }
    };
    Ok(Started { handle, stream: outline.stream, deadline, body })
}

/// Joins what the key began. `None` where there is nothing to join: the key is new, nobody waited for the
/// first request any more and it was cancelled, or its answer is not kept any more.
async fn rejoin(
    app: &Data<App>,
    caller: Caller,
    guard: &IdempotencyGuard,
    prefix: &str,
    arrived: &Arrived,
) -> Result<Option<Started>, ApiError> {
    let Some(first) = guard.first() else { return Ok(None) };
    let (model, relquery) = match look_up(app, caller, prefix, &first.id).await {
        Ok(found) => found,
        Err(RequestError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stream = first.stream;
    let deadline = first.deadline.map(|deadline| deadline.again(arrived.peek.arrival()));
    let handle = first.owners.join(&model.runtime, relquery);
    Ok(handle.map(|handle| Started { handle, stream, deadline, body: arrived.body.clone() }))
}
