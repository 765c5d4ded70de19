//! Reads a request body: content type, size, patience and deadline are checked before and while bytes arrive.

pub mod budget;
pub mod peek;

use std::time::Duration;

use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use actix_web::web::{Bytes, Payload};
use base::Millis;
use budget::HeldBody;
use futures_util::StreamExt;
use peek::Peek;
use serving::clock::{Clock, Late};
use serving::error::RequestError;

use crate::error::ApiError;
use crate::state::App;

/// The header's text, where it is text.
fn header<'a>(headers: &'a HeaderMap, name: &actix_web::http::header::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses what is not JSON. `text/plain` counts as JSON: spreadsheet add-ins without CORS preflight
/// cannot send another type.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = header(headers, &CONTENT_TYPE).unwrap_or("application/json");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = matches!(kind.as_str(), "" | "application/json" | "text/plain");
    let is_plain = header(headers, &CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity");
    if is_json && is_plain { Ok(()) } else { Err(ApiError::MediaType) }
}

/// A body that is given up when the deadline passes that it names.
#[derive(Debug)]
pub struct Timely<'a> {
    /// What measures it.
    pub clock: Clock,
    /// What it has said by now.
    pub peek: &'a mut Peek,
}

/// Bytes of a body by which nobody knows yet who sends it.
const UNKNOWN_SENDER_BYTES_MAX: u64 = 4 << 10;

/// Reads the body of at most `limits.body_bytes_max`, in at most `server.body_ms_max`.
pub async fn read(
    headers: &HeaderMap,
    payload: Payload,
    app: &App,
    timely: Option<Timely<'_>>,
) -> Result<Bytes, ApiError> {
    read_at_most(app.config.limits.body_bytes_max.0, headers, payload, app, timely).await
}

/// Reads the body of a request that anybody may send: a small one.
pub async fn read_of_anybody(headers: &HeaderMap, payload: Payload, app: &App) -> Result<Bytes, ApiError> {
    read_at_most(UNKNOWN_SENDER_BYTES_MAX, headers, payload, app, None).await
}

/// Keeps a request that came as a message, within what all bodies together may have.
pub(crate) fn hold(bytes: &[u8], app: &App) -> Result<Bytes, RequestError> {
    let mut body = begin(app);
    if body.extend(bytes) { Ok(body.into_bytes()) } else { Err(no_room(body.max())) }
}

/// A request that comes in pieces of a message.
pub(crate) fn begin(app: &App) -> HeldBody {
    app.bodies.body(app.config.limits.bodies_bytes_max.0)
}

async fn read_at_most(
    limit: u64,
    headers: &HeaderMap,
    payload: Payload,
    app: &App,
    timely: Option<Timely<'_>>,
) -> Result<Bytes, ApiError> {
    check_type(headers)?;
    let too_large =
        || RequestError::TooLarge { what: "the request body".into(), limit: format!("{limit} bytes") };
    let declared = header(headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large().into());
    }
    let patience = Duration::from_millis(app.config.server.body_ms_max.0);
    let body = begin(app);
    match tokio::time::timeout(patience, collect(payload, limit, body, timely)).await {
        Err(_) => Err(ApiError::BodyTimeout),
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large().into()),
        Ok(Err(error)) => Err(error),
    }
}

pub(crate) fn no_room(max: u64) -> RequestError {
    RequestError::Busy {
        what: "bytes of request bodies at once",
        limit: format!("{max} (limits.bodies_bytes_max)"),
        retry_after: Millis(1_000),
    }
}

/// The whole payload, or `None` where it is larger than `limit`.
async fn collect(
    mut payload: Payload,
    limit: u64,
    mut body: HeldBody,
    mut timely: Option<Timely<'_>>,
) -> Result<Option<Bytes>, ApiError> {
    let broken = |cause| RequestError::Malformed(format!("the body broke off: {cause}"));
    loop {
        let next = match &timely {
            None => payload.next().await,
            Some(Timely { clock, peek }) => {
                let next = clock.within(peek.deadline(), payload.next()).await;
                next.map_err(|Late| ApiError::Late)?
            }
        };
        let Some(chunk) = next else { return Ok(Some(body.into_bytes())) };
        let chunk = chunk.map_err(broken)?;
        if body.len() + chunk.len() as u64 > limit {
            return Ok(None);
        }
        if let Some(Timely { peek, .. }) = &mut timely {
            peek.take(&chunk);
        }
        if !body.extend(&chunk) {
            return Err(no_room(body.max()).into());
        }
    }
}
