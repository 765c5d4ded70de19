//! Cross-origin requests: answers preflights and names the origins that may read replies.
//!
//! Off unless `server.cors_origins` names an origin. Credentials are never allowed: keys travel in a header
//! that a page must know, so a foreign page gains nothing from its visitor.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpResponse};

use crate::state::App;

/// The middleware.
pub async fn answer<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let allowed = allowed_origin(&request);
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&allowed, preflight) {
        (Some(_), true) => request.into_response(HttpResponse::NoContent().finish()),
        _ => next.call(request).await?.map_into_boxed_body(),
    };
    if let Some(origin) = allowed {
        let fixed: [(HeaderName, &'static str); 5] = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type, idempotency-key"),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
            // Without its name here a page may not read when to come back.
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, "retry-after"),
            (header::VARY, "origin"),
        ];
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    Ok(response)
}

/// The request's origin, where the configuration allows it.
fn allowed_origin(request: &ServiceRequest) -> Option<HeaderValue> {
    let origin = request.headers().get(header::ORIGIN)?;
    let app = request.app_data::<Data<App>>()?;
    let origins = &app.config.server.cors_origins;
    let text = origin.to_str().ok()?;
    origins.iter().any(|allowed| allowed == "*" || allowed == text).then(|| origin.clone())
}
