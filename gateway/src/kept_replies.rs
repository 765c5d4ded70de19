//! `Idempotency-Key` on every POST: what a request was answered with is stored, and answers the same request again,
//! also at another gateway and after a restart. Another request under the same key is refused.
//!
//! A second request that comes while the first is under way waits for it, at another gateway for a while
//! ([`crate::services::key_claims`]). (`/v1/relqueries` and `/v1/cells` do better:
//! there it joins the run, or at another gateway its ticket, see [`crate::routes::start`]; `/v1/batches` answers with
//! the batch as it stands.) Kept are answers of success alone: what failed may be tried again. Routes whose answers hold
//! secrets or whose bodies are files take no key, for no secret belongs into the store, and what is only a file may be
//! sent twice.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, MessageBody, to_bytes_limited};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_TYPE, HeaderMap};
use actix_web::http::{Method, StatusCode, Uri};
use actix_web::middleware::Next;
use actix_web::web::{self, Bytes, Data};
use actix_web::{HttpMessage as _, HttpResponse};
use base::TenantId;
use futures_util::future::LocalBoxFuture;
use serving::error::{RequestError, internal, stored};
use sha2::{Digest as _, Sha256};
use store::{IdempotentReply, ReplyLimits};

use crate::arrival::arrival_of;
use crate::auth;
use crate::body;
use crate::current_state;
use crate::error::ApiError;
use crate::services::held_claims::HeldClaim;
use crate::services::idempotency::{ClaimedKey, Digest, IdempotencyGuard, KeyBounds, RequestKey};
use crate::services::key_claims;
use crate::state::App;
use crate::wire::anthropic::MessageError;

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
/// Beginnings of routes that take no key; and the route of links to workbooks.
const WITHOUT_KEYS: [&str; 5] =
    ["/v1/keys", "/v1/sign-in", "/v1/files", "/v1/uploads", "/v1/workbooks/{id}/shares"];
/// Beginning of the routes whose errors have Anthropic's shape.
const MESSAGES: &str = "/v1/messages";

/// What a request was, where its route has read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestDigest(pub(crate) Digest);

/// Put into a request that another gateway answered while it waited for its key: the reply is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredElsewhere;

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

/// The ticket that the same request was answered with.
pub(crate) async fn ticket_of_key(
    app: &App,
    tenant: TenantId,
    key: &RequestKey,
) -> Result<Option<String>, ApiError> {
    let now = app.runtime.shared.unix_now();
    match stored(app.runtime.store.ticket_of_key(tenant, &key.name, now).await)? {
        Some((_, digest)) if digest != key.digest => Err(reused()),
        found => Ok(found.map(|(id, _)| id)),
    }
}

/// What is kept under a key.
pub(crate) async fn kept_reply(
    app: &App,
    tenant: TenantId,
    key: &str,
) -> Result<Option<IdempotentReply>, ApiError> {
    let now = app.runtime.shared.unix_now();
    Ok(stored(app.runtime.store.kept_reply(tenant, key, now).await)?)
}

/// Answers a repeated request as the first one was, and keeps what a first one is answered with.
pub(crate) async fn answer_once(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let is_message = request.path().starts_with(MESSAGES);
    answer_keyed(request, next).await.map_err(|error| {
        let refusal = error.as_error::<ApiError>().filter(|_| is_message).cloned();
        refusal.map_or(error, |refusal| MessageError::from(refusal).into())
    })
}

async fn answer_keyed(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    // As the routes will have it, whatever the address was written like: by its decoded path.
    let route = request.resource_map().match_pattern(request.match_info().as_str()).unwrap_or_default();
    let takes_keys = *request.method() == Method::POST
        && route != BATCHES
        && !WITHOUT_KEYS.iter().any(|beginning| route.starts_with(beginning));
    let Some(key) = key_of(request.headers())?.filter(|_| takes_keys).map(str::to_owned) else {
        return next.call(request).await;
    };
    let app = current_state::of_request(request.request())?.clone();
    // The route itself refuses who may not ask.
    let Ok(tenant) = auth::tenant_of(&app, request.request()).await else { return next.call(request).await };
    let place = KeyPlace { app, tenant, key };
    if JOINING.contains(&request.path()) {
        return answer_joining(place, request, next).await;
    }
    let (body, digest) = read(&mut request, &place.app).await?;
    let guard = place.claim(digest).await?;
    let key = RequestKey { name: place.key.clone(), digest };
    let mut kept = place.find_of(&key).await?;
    let mut claim = None;
    if kept.is_none() {
        let times = (arrival_of(request.request(), place.app.runtime.shared.clock), None);
        let claimed = key_claims::claim(&place.app, place.tenant, &key, times).await;
        let claimed = claimed.map_err(ApiError::from)?;
        claim = claimed.claim;
        if claimed.is_answered {
            kept = place.find_of(&key).await?;
        }
    }
    if let Some(kept) = kept {
        let reply = place.replay(kept, digest)?;
        return Ok(request.into_response(reply));
    }
    let payload = futures_util::stream::once(async move { Ok(body) });
    request.set_payload(Payload::Stream { payload: Box::pin(payload) });
    let response = next.call(request).await?;
    keep_whole(place.of(digest), KeyInHand { _here: Some(guard), _elsewhere: claim }, response).await
}

/// What keeps others from a key until its reply is kept: here, and at other gateways.
struct KeyInHand {
    _here: Option<IdempotencyGuard>,
    _elsewhere: Option<Arc<HeldClaim>>,
}

/// The same of a route that joins what runs: it reads its request itself, and says what that was.
async fn answer_joining(
    place: KeyPlace,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    if let Some(kept) = place.find().await? {
        let (_, digest) = read(&mut request, &place.app).await?;
        let reply = place.replay(kept, digest)?;
        return Ok(request.into_response(reply));
    }
    let response = next.call(request).await?;
    let (digest, claim, is_answered) = {
        let mut noted = response.request().extensions_mut();
        let is_answered = noted.remove::<AnsweredElsewhere>().is_some();
        (noted.remove::<RequestDigest>(), noted.remove::<Arc<HeldClaim>>(), is_answered)
    };
    let Some(RequestDigest(digest)) = digest else { return Ok(response) };
    if is_answered && let Some(kept) = place.find().await? {
        let reply = place.replay(kept, digest)?;
        return Ok(response.into_response(reply));
    }
    keep_whole(place.of(digest), KeyInHand { _here: None, _elsewhere: claim }, response).await
}

/// A request's body, and what the request is.
async fn read(request: &mut ServiceRequest, app: &App) -> Result<(Bytes, Digest), actix_web::Error> {
    let payload = request.extract::<web::Payload>().await?;
    let body = body::read(request.headers(), payload, app, None).await?;
    let digest = digest_of(request.uri(), &body);
    Ok((body, digest))
}

/// Keeps a reply, unless it is a failure or not the whole answer.
async fn keep_whole(
    place: KeptPlace,
    key: KeyInHand,
    response: ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let is_whole = response.response().extensions().get::<Unfinished>().is_none();
    if !response.status().is_success() || !is_whole {
        return Ok(response);
    }
    keep(place, key, response).await
}

/// Keeps a reply: one of known length before it goes out, a stream before its end does.
async fn keep(
    place: KeptPlace,
    key: KeyInHand,
    response: ServiceResponse<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let limit =
        usize::try_from(place.key.app.config.limits.idempotency_reply_bytes_max.0).unwrap_or(usize::MAX);
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
            _key: key,
        }),
        // Longer than is kept, or nothing.
        BodySize::Sized(_) | BodySize::None => body,
    };
    Ok(ServiceResponse::new(request, response.set_body(body)))
}

/// A key of a tenant.
struct KeyPlace {
    app: Data<App>,
    tenant: TenantId,
    key: String,
}

impl KeyPlace {
    /// Waits for a request with this key that is under way.
    async fn claim(&self, digest: Digest) -> Result<IdempotencyGuard, ApiError> {
        let now = self.app.runtime.shared.clock.now();
        let key = ClaimedKey { tenant: self.tenant, name: &self.key, digest };
        let claimed = self.app.idempotency.claim(key, KeyBounds::of(&self.app.config), now).await;
        claimed.map_err(|_| reused())
    }

    /// What is kept under it.
    async fn find(&self) -> Result<Option<IdempotentReply>, ApiError> {
        kept_reply(&self.app, self.tenant, &self.key).await
    }

    /// What is kept under it of a request whose route gives no tickets: one that is found is another request's.
    async fn find_of(&self, key: &RequestKey) -> Result<Option<IdempotentReply>, ApiError> {
        let kept = self.find().await?;
        if kept.is_none() {
            ticket_of_key(&self.app, self.tenant, key).await?;
        }
        Ok(kept)
    }

    /// The answer to a request of which this was kept.
    fn replay(&self, kept: IdempotentReply, digest: Digest) -> Result<HttpResponse, ApiError> {
        if kept.request != digest {
            return Err(reused());
        }
        self.app.runtime.shared.metrics.requests.repeats.inc();
        let status = StatusCode::from_u16(kept.status).map_err(internal)?;
        let mut response = HttpResponse::build(status);
        response.insert_header((CONTENT_TYPE, kept.content_type)).insert_header((REPLAYED, "true"));
        Ok(response.body(kept.body))
    }

    /// Where the reply to this request is kept.
    fn of(self, digest: Digest) -> KeptPlace {
        KeptPlace { key: self, digest }
    }
}

/// Where a reply is kept.
struct KeptPlace {
    key: KeyPlace,
    digest: Digest,
}

impl KeptPlace {
    /// Writes a reply down. Where that fails the client has it all the same; the same request would run again.
    async fn put(&self, status: StatusCode, content_type: String, body: &[u8]) {
        let Ok(body) = std::str::from_utf8(body) else { return };
        let reply = IdempotentReply {
            request: self.digest,
            status: status.as_u16(),
            content_type,
            body: body.to_owned(),
        };
        let KeyPlace { app, tenant, key } = &self.key;
        let expires = app.runtime.shared.unix_now().after(app.config.store.ticket_ms_max);
        let limits = &app.config.limits;
        let limits = ReplyLimits {
            replies: limits.idempotency_keys_max as u64,
            bytes: limits.tenant_idempotency_bytes_max,
        };
        let place = (*tenant, key.as_str());
        if let Err(error) = app.runtime.store.keep_reply(place, &reply, expires, limits).await {
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
    _key: KeyInHand,
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
                (Some(seen), Some((place, status, content_type))) if is_whole_answer(&seen) => {
                    self.storing =
                        Some(Box::pin(async move { place.put(status, content_type, &seen).await }));
                    self.poll_next(context)
                }
                _ => Poll::Ready(None),
            },
        }
    }
}

/// Whether a stream that has ended was the whole answer: no error is in it, and no ticket for the rest.
fn is_whole_answer(stream: &[u8]) -> bool {
    // What rows say cannot begin a line: line ends in it are escaped.
    const FAILURES: [&str; 4] =
        ["event: error", "event: response.failed", "data: {\"error\":", "{\"error\":"];
    if ends_with_ticket(stream) {
        return false;
    }
    let mut lines = stream.split(|byte| *byte == b'\n');
    while let Some(line) = lines.next() {
        if FAILURES.iter().any(|failure| line.starts_with(failure.as_bytes())) {
            return false;
        }
        if line == b"event: done" {
            let data = lines.next().and_then(|line| line.strip_prefix(b"data: ")).unwrap_or_default();
            let data: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
            if data["ticket"].is_string() {
                return false;
            }
        }
    }
    true
}

/// Whether the last line of JSON lines leaves the rest to a ticket.
fn ends_with_ticket(stream: &[u8]) -> bool {
    let last = stream.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
    let last: serde_json::Value = last.and_then(|line| serde_json::from_slice(line).ok()).unwrap_or_default();
    last["status"] == "partial" && last["ticket"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_with_an_error_or_a_ticket_is_not_the_whole_answer() {
        let row = "event: row\ndata: {\"index\":0,\"text\":\"event: error\\ndata: {\\\"error\\\":\"}\n\n";
        let done = "event: done\ndata: {\"status\":\"completed\",\"ticket\":null}\n\n";
        let chunk = "data: {\"id\":\"c\",\"choices\":[]}\n\n";
        for whole in [format!("{row}{done}"), format!("{chunk}data: [DONE]\n\n"), "{\"n\":1}\n".into()] {
            assert!(is_whole_answer(whole.as_bytes()), "{whole}");
        }
        for cut in [
            format!("{row}event: error\ndata: {{\"error\":{{}}}}\n\n"),
            format!("{row}event: done\ndata: {{\"status\":\"partial\",\"ticket\":\"rq-1\"}}\n\n"),
            format!("{chunk}data: {{\"error\":{{}}}}\n\n"),
            "event: response.failed\ndata: {}\n\n".into(),
            "{\"n\":1}\n{\"error\":{}}\n".into(),
            "{\"n\":1}\n{\"rows\":1,\"status\":\"partial\",\"ticket\":\"sql-1\"}\n".into(),
            "{\"rows\":0,\"status\":\"partial\",\"ticket\":\"sql-1\"}\n".into(),
        ] {
            assert!(!is_whole_answer(cut.as_bytes()), "{cut}");
        }
    }
}
