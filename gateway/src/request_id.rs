//! The id of a request: what its client calls it by `X-Request-Id`, or a new one. Replies carry it back, and logs,
//! traces and replicas have it.

use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header.
pub(crate) const HEADER: HeaderName = HeaderName::from_static(serving::traces::REQUEST_ID);
/// The header that Anthropic's clients read, of replies on its routes.
pub(crate) const ANTHROPIC_HEADER: HeaderName = HeaderName::from_static("request-id");
/// How the paths of those begin.
pub(crate) const ANTHROPIC_PATHS: &str = "/v1/messages";
/// Bytes of the longest id that is taken from a client.
const BYTES_MAX: usize = 128;

/// The client's id, where it is one that may stand in logs and headers; else a new one.
pub(crate) fn of(headers: &HeaderMap) -> Arc<str> {
    let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=BYTES_MAX).contains(&id.len())
            && id.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.:/+=".contains(&c))
    };
    given.filter(is_plain).map_or_else(|| format!("{:032x}", rand::random::<u128>()).into(), Into::into)
}

/// An id as a header has it.
pub(crate) fn header(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).expect("an id is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(given: &str) -> Arc<str> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(given).expect("a header's value"));
        of(&headers)
    }

    #[test]
    fn a_plain_id_is_kept_and_any_other_is_replaced() {
        assert_eq!(&*id("req-7f.a:1"), "req-7f.a:1");
        for bad in ["", "two words", "quote\"", &"x".repeat(BYTES_MAX + 1)] {
            let made = id(bad);
            assert!(made.len() == 32 && made.bytes().all(|c| c.is_ascii_hexdigit()), "{made}");
        }
        assert_ne!(of(&HeaderMap::new()), of(&HeaderMap::new()));
    }
}
