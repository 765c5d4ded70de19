//! Cross-origin requests: which origins may read replies, and what their preflights are told. Each request is held to
//! the configuration that it sees.
//!
//! Off unless `server.cors_origins` names an origin. Credentials are never allowed: keys travel in a header
//! that a page must know, so a foreign page gains nothing from its visitor.

use std::sync::Arc;

use actix_cors::Cors;
use actix_web::body::MessageBody;
use actix_web::dev::{Service as _, ServiceRequest, ServiceResponse, Transform};
use actix_web::http::header;
use actix_web::middleware::{Condition, Next};
use serving::error::internal;

use crate::config::Config;
use crate::current_state;
use crate::error::ApiError;
use crate::request_id;

/// Seconds for which a browser need not ask again.
const AGE_SECONDS: usize = 600;

/// Headers that a page may send. A preflight that asks for another one fails as a whole, and with it the client.
const HEADERS: [&str; 28] = [
    "authorization",
    "content-type",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "x-request-id",
    "x-relserve-relquery",
    "x-relserve-last",
    // Anthropic's client in a page.
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    // OpenAI's.
    "openai-beta",
    "openai-organization",
    "openai-project",
    // What both of these tell of themselves.
    "user-agent",
    "x-stainless-arch",
    "x-stainless-custom-poll-interval",
    "x-stainless-helper",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-poll-helper",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
];

/// Answers preflights, and tells browsers which replies a page may read.
pub(crate) async fn allow_origins(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let policy = policy(&current_state::of_request(request.request())?.config);
    let service = Transform::<_, ServiceRequest>::new_transform(&policy, next).await;
    let service = service.map_err(|()| internal("the policy of origins is none")).map_err(ApiError::from)?;
    service.call(request).await
}

/// The policy of a configuration; `*` stands for every origin.
fn policy(config: &Arc<Config>) -> Condition<Cors> {
    if config.server.cors_origins.is_empty() {
        return Condition::new(false, Cors::default());
    }
    let config = Arc::clone(config);
    let cors = Cors::default()
        .allowed_origin_fn(move |origin, _| {
            let mut origins = config.server.cors_origins.iter();
            origins.any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
        })
        // Others are answered as ever; their browsers keep the answer from the page.
        .block_on_origin_mismatch(false)
        .allowed_methods(["GET", "POST", "DELETE"])
        .allowed_headers(HEADERS)
        // Without their names here a page may not read when to come back, nor what to ask about.
        .expose_headers([header::RETRY_AFTER, request_id::HEADER, request_id::ANTHROPIC_HEADER])
        .max_age(AGE_SECONDS);
    Condition::new(true, cors)
}
