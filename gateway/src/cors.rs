//! Cross-origin requests: which origins may read replies, and what their preflights are told.
//!
//! Off unless `server.cors_origins` names an origin. Credentials are never allowed: keys travel in a header
//! that a page must know, so a foreign page gains nothing from its visitor.

use actix_cors::Cors;
use actix_web::http::header;
use actix_web::middleware::Condition;

/// Seconds for which a browser need not ask again.
const AGE_SECONDS: usize = 600;

/// The middleware; `*` stands for every origin.
pub fn policy(origins: &[String]) -> Condition<Cors> {
    let is_on = !origins.is_empty();
    let origins = origins.to_vec();
    let cors = Cors::default()
        .allowed_origin_fn(move |origin, _| {
            origins.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
        })
        // Others are answered as ever; their browsers keep the answer from the page.
        .block_on_origin_mismatch(false)
        .allowed_methods(["GET", "POST", "DELETE"])
        .allowed_headers(["authorization", "content-type", "idempotency-key"])
        // Without its name here a page may not read when to come back.
        .expose_headers([header::RETRY_AFTER])
        .max_age(AGE_SECONDS);
    Condition::new(is_on, cors)
}
