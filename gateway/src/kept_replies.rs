//! `Idempotency-Key` on every POST: what a request was answered with is stored, and answers the same request again,
//! also at another gateway and after a restart. Another request under the same key is refused.
//!
//! A second request that comes while the first is under way waits for it. (`/v1/relqueries` and `/v1/cells` do better:
//! there it joins the run, see [`crate::routes::start`]; `/v1/batches` answers with the batch as it stands.) Kept are answers of success alone: what failed may be tried
//! again. Routes whose answers hold secrets or whose bodies are files take no key, for no secret belongs into the
//! store, and what is only a file may be sent twice.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody, to_bytes_limited};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_TYPE, HeaderMap};
use actix_web::http::{Method, StatusCode, Uri};
use actix_web::middleware::Next;
use actix_web::web::{self, Bytes, Data};
use base::TenantId;
use futures_util::future::LocalBoxFuture;
use serving::error::{RequestError, internal, stored};
use sha2::{Digest as _, Sha256};
use store::{IdempotentReply, UnixMillis};

use crate::auth;
use crate::body;
use crate::error::ApiError;
use crate::services::idempotency::{Digest, IdempotencyGuard};
use crate::state::App;

/// The header.
pub(crate) const HEADER: &str = "Idempotency-Key";
/// Says of a reply that it was kept.
const REPLAYED: &str = "Idempotency-Replayed";
/// The header's longest value.
const KEY_BYTES_MAX: usize = 255;

/// Routes that know their keys themselves: a repeated request joins what runs.
const JOINING: [&str; 2] = ["/v1/relqueries", "/v1/cells"];
/// A route that knows its keys itself, restarts included.
const BATCHES: &str = "/v1/batches";
/// Beginnings of the paths of routes that take no key.
const WITHOUT_KEYS: [&str; 3] = ["/v1/admin/", "/v1/sign-in", "/v1/files"];

/// Put into a response that is not the whole answer: it is not kept.
#[derive(Clone, Copy, Debug)]
struct Unfinished;

/// The response, and whether it is only what there was at a deadline: the same request gets more of it later.
pub(crate) fn unfinished_if(is_unfinished: bool, mut response: HttpResponse) -> HttpResponse {
    if is_unfinished {
        response.extensions_mut().insert(Unfinished);
    }
    response
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

/// Identity of a request: its path with its query, and the bytes of its body.
pub(crate) fn digest_of(uri: &Uri, body: &[u8]) -> Digest {
    let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
    // A path holds no NUL.
    Sha256::new().chain_update(path).chain_update([0]).chain_update(body).finalize().into()
}

/// Another request has the key.
pub(crate) fn reused() -> ApiError {
    RequestError::KeyReused(HEADER).into()
}

/// Answers a repeated request as the first one was, and keeps what a first one is answered with.
pub(crate) async fn answer_once(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let takes_keys = *request.method() == Method::POST
        && request.path() != BATCHES
        && !WITHOUT_KEYS.iter().any(|beginning| request.path().starts_with(beginning));
    let Some(key) = key_of(request.headers())?.filter(|_| takes_keys).map(str::to_owned) else {
        return next.call(request).await;
    };
    let app = request.app_data::<Data<App>>().cloned().ok_or_else(|| internal("no application state"));
    let app = app.map_err(ApiError::from)?;
    // The route itself refuses who may not ask.
    let Ok(tenant) = auth::tenant_of(&app, request.request()).await else { return next.call(request).await };
    let payload = request.extract::<web::Payload>().await?;
    let body = body::read(request.headers(), payload, &app, None).await?;
    let digest = digest_of(request.uri(), &body);
    let place = KeptPlace { app, tenant, key, digest };
    let joins = JOINING.contains(&request.path());
    let guard = if joins { None } else { Some(place.claim().await?) };
    if let Some(reply) = place.find().await? {
        place.app.runtime.shared.metrics.requests.repeats.inc();
        let mut response = HttpResponse::build(reply.status);
        response.insert_header((CONTENT_TYPE, reply.content_type)).insert_header((REPLAYED, "true"));
        return Ok(request.into_response(response.body(reply.body)));
    }
    let payload = futures_util::stream::once(async move { Ok(body) });
    request.set_payload(Payload::Stream { payload: Box::pin(payload) });
    let response = next.call(request).await?;
    let is_whole = response.response().extensions().get::<Unfinished>().is_none();
    if !response.status().is_success() || !is_whole {
        return Ok(response);
    }
    keep(place, guard, response).await
}

/// Keeps a reply: one of known length before it goes out, a stream before its end does.
async fn keep(
    place: KeptPlace,
    guard: Option<IdempotencyGuard>,
    response: ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let limit = usize::try_from(place.app.config.limits.idempotency_reply_bytes_max.0).unwrap_or(usize::MAX);
    let status = response.status();
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("application/json").to_owned();
    let (request, response) = response.into_parts();
    let (response, body) = response.into_parts();
    let body = match body.size() {
        BodySize::Sized(bytes) if bytes <= limit as u64 => {
            let bytes = to_bytes_limited(body, limit).await.map_err(internal).map_err(ApiError::from)?;
            let bytes = bytes.map_err(internal).map_err(ApiError::from)?;
            place.put(status, content_type, &bytes).await;
            BoxBody::new(bytes)
        }
        BodySize::Stream => BoxBody::new(KeptStream {
            body,
            seen: Some(Vec::new()),
            limit,
            end: Some((place, status, content_type)),
            storing: None,
            _guard: guard,
        }),
        // Longer than is kept, or nothing.
        BodySize::Sized(_) | BodySize::None => body,
    };
    Ok(ServiceResponse::new(request, response.set_body(body)))
}

/// Where a reply is kept.
struct KeptPlace {
    app: Data<App>,
    tenant: TenantId,
    key: String,
    digest: Digest,
}

/// A reply that was kept.
struct FoundReply {
    status: StatusCode,
    content_type: String,
    body: String,
}

impl KeptPlace {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.app.runtime.shared.clock.unix_ms())
    }

    /// Waits for a request with this key that is under way.
    async fn claim(&self) -> Result<IdempotencyGuard, ApiError> {
        let now = self.app.runtime.shared.clock.now();
        let claimed = self.app.idempotency.claim(self.tenant, &self.key, self.digest, now).await;
        claimed.map_err(|_| reused())
    }

    async fn find(&self) -> Result<Option<FoundReply>, ApiError> {
        let kept = self.app.runtime.store.kept_reply(self.tenant, &self.key, self.now()).await;
        let Some(kept) = stored(kept)? else { return Ok(None) };
        if kept.request != self.digest {
            return Err(reused());
        }
        let status = StatusCode::from_u16(kept.status).map_err(internal)?;
        Ok(Some(FoundReply { status, content_type: kept.content_type, body: kept.body }))
    }

    /// Writes a reply down. Where that fails the client has it all the same; the same request would run again.
    async fn put(&self, status: StatusCode, content_type: String, body: &[u8]) {
        let Ok(body) = std::str::from_utf8(body) else { return };
        let reply = IdempotentReply {
            request: self.digest,
            status: status.as_u16(),
            content_type,
            body: body.to_owned(),
        };
        let expires = self.now().after(self.app.config.store.ticket_ms_max);
        let most = self.app.config.limits.idempotency_keys_max as u64;
        let place = (self.tenant, self.key.as_str());
        if let Err(error) = self.app.runtime.store.keep_reply(place, &reply, expires, most).await {
            tracing::warn!(%error, "a reply was not kept for its idempotency key");
        }
    }
}

/// A streamed reply that is kept once it is whole. Its client that leaves drops it, and nothing is kept.
struct KeptStream {
    body: BoxBody,
    /// What has gone out; `None` where it is more than is kept.
    seen: Option<Vec<u8>>,
    limit: usize,
    end: Option<(KeptPlace, StatusCode, String)>,
    storing: Option<LocalBoxFuture<'static, ()>>,
    /// Others with the key wait until the reply is kept.
    _guard: Option<IdempotencyGuard>,
}

impl MessageBody for KeptStream {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if let Some(storing) = &mut self.storing {
            ready!(storing.as_mut().poll(context));
            return Poll::Ready(None);
        }
        match ready!(Pin::new(&mut self.body).poll_next(context)) {
            Some(Ok(chunk)) => {
                let limit = self.limit;
                self.seen =
                    self.seen.take().filter(|seen| seen.len() + chunk.len() <= limit).map(|mut seen| {
                        seen.extend_from_slice(&chunk);
                        seen
                    });
                Poll::Ready(Some(Ok(chunk)))
            }
            // What broke off is not kept.
            Some(Err(error)) => {
                self.seen = None;
                Poll::Ready(Some(Err(error)))
            }
            None => match (self.seen.take(), self.end.take()) {
                (Some(seen), Some((place, status, content_type))) => {
                    self.storing =
                        Some(Box::pin(async move { place.put(status, content_type, &seen).await }));
                    self.poll_next(context)
                }
                _ => Poll::Ready(None),
            },
        }
    }
}
