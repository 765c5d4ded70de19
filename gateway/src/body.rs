//! Reads a request body: content type, size and patience are checked before and while bytes arrive.

use std::time::Duration;

use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use actix_web::web::{Bytes, BytesMut, Payload};
use futures_util::StreamExt;
use serving::error::RequestError;

use crate::config::Config;
use crate::error::ApiError;

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

/// Reads the body of at most `limits.body_bytes_max`, in at most `server.body_ms_max`.
pub async fn read(headers: &HeaderMap, payload: Payload, config: &Config) -> Result<Bytes, ApiError> {
    check_type(headers)?;
    let limit = config.limits.body_bytes_max.0;
    let too_large =
        || RequestError::TooLarge { what: "the request body".into(), limit: format!("{limit} bytes") };
    let declared = header(headers, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large().into());
    }
    let patience = Duration::from_millis(config.server.body_ms_max.0);
    match tokio::time::timeout(patience, collect(payload, limit)).await {
        Err(_) => Err(ApiError::BodyTimeout),
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large().into()),
        Ok(Err(cause)) => Err(RequestError::Malformed(format!("the body broke off: {cause}")).into()),
    }
}

/// The whole payload, or `None` where it is larger than `limit`.
async fn collect(mut payload: Payload, limit: u64) -> Result<Option<Bytes>, actix_web::error::PayloadError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk?;
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes.freeze()))
}
