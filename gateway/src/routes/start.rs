//! How a request that makes a relQuery begins: prepared and submitted, or, with an `Idempotency-Key` that
//! this tenant has sent with the same body before, joined to what that began.

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use actix_web::web::{Bytes, Data, Payload};
use serving::caller::Caller;
use serving::error::RequestError;
use serving::ownership::OwnerHandle;
use serving::submit::{self, Resumed};
use sha2::{Digest as _, Sha256};

use crate::error::ApiError;
use crate::routes::{Prepare, lower, read_body};
use crate::services::idempotency::{Digest, First, IdempotencyGuard};
use crate::services::lookup::look_up;
use crate::services::prepare::PreparedRequest;
use crate::state::App;
use crate::wire::relquery::public_id;

/// The header.
const HEADER: &str = "Idempotency-Key";
/// Its longest value.
const KEY_BYTES_MAX: usize = 255;

/// A relQuery under way, and how its client wants the reply.
pub(crate) struct Started {
    /// Its relquery, owned.
    pub(crate) handle: OwnerHandle,
    /// As events.
    pub(crate) stream: bool,
    /// When a partial reply goes out.
    pub(crate) deadline: Option<base::Millis>,
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
pub(crate) async fn start(
    app: &Data<App>,
    caller: Caller,
    Incoming { request, payload }: Incoming<'_>,
    prefix: &str,
    prepare: Prepare<PreparedRequest>,
) -> Result<Started, ApiError> {
    let key = key_of(request.headers())?;
    let body = read_body(app, request, payload).await?;
    let Some(key) = key else { return begin(app, caller, body, prepare).await };
    let digest = digest_of(request.path(), &body);
    let now = app.runtime.shared.clock.now();
    let guard = app.idempotency.claim(caller.tenant, key, digest, now).await;
    let mut guard = guard.map_err(|_| RequestError::KeyReused(HEADER))?;
    if let Some(started) = rejoin(app, caller, &guard, prefix, &body).await? {
        app.runtime.shared.metrics.requests.repeats.inc();
        return Ok(started);
    }
    guard.set(None);
    let started = begin(app, caller, body, prepare).await?;
    guard.set(Some(First {
        id: public_id(started.handle.relquery()),
        owners: started.handle.owners().clone(),
        stream: started.stream,
        deadline: started.deadline,
    }));
    Ok(started)
}

/// Prepares and submits.
async fn begin(
    app: &Data<App>,
    caller: Caller,
    body: Bytes,
    prepare: Prepare<PreparedRequest>,
) -> Result<Started, ApiError> {
    let PreparedRequest { work, stream } = lower((app, caller), &body, prepare).await?;
    let deadline = work.deadline;
    let handle = submit::submit(&app.runtime, caller, work, Resumed::default()).await?;
    Ok(Started { handle, stream, deadline, body })
}

/// Joins what the key began. `None` where there is nothing to join: the key is new, nobody waited for the first
/// request any more and it was cancelled, or its answer is not kept any more.
async fn rejoin(
    app: &Data<App>,
    caller: Caller,
    guard: &IdempotencyGuard,
    prefix: &str,
    body: &Bytes,
) -> Result<Option<Started>, ApiError> {
    let Some(first) = guard.first() else { return Ok(None) };
    let relquery = match look_up(app, caller, prefix, &first.id).await {
        Ok(relquery) => relquery,
        Err(RequestError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let &First { stream, deadline, .. } = first;
    let handle = first.owners.join(&app.runtime, relquery);
    Ok(handle.map(|handle| Started { handle, stream, deadline, body: body.clone() }))
}

/// The key, where the request has one.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(HEADER);
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    match key {
        Some(key) if values.next().is_none() => Ok(Some(key)),
        _ => {
            let reason = format!("must be one value of 1 to {KEY_BYTES_MAX} visible ASCII characters");
            Err(ApiError::invalid(HEADER, reason))
        }
    }
}

/// Identity of a request: its path and the bytes of its body.
fn digest_of(path: &str, body: &[u8]) -> Digest {
    // A path holds no NUL.
    Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize().into()
}
