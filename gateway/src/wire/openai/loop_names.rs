//! What says that requests are of one loop of a client: fields that OpenAI's API has for it, and two headers of ours.

use actix_web::http::header::HeaderMap;
use serde_json::Value;
use serving::error::RequestError;

use crate::json::JsonFields;

/// Names the loop.
const RELQUERY_HEADER: &str = "x-relserve-relquery";
/// Says that no further request of it comes.
const LAST_HEADER: &str = "x-relserve-last";
/// Bytes of a loop's name.
const NAME_BYTES_MAX: usize = 256;

/// Names in a request's body. They are hints in this API: one of another type, or too long, is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopNames {
    /// The loop itself: `metadata.relquery`, else `prompt_cache_key`.
    pub relquery: Option<String>,
    /// For whom the client asks: `user`, or `safety_identifier`.
    pub user: Option<String>,
}

impl LoopNames {
    /// Takes the fields.
    pub fn take(fields: &mut JsonFields) -> Self {
        let in_metadata = fields.take("metadata").and_then(|metadata| metadata.get("relquery").cloned());
        let first = |names: [Option<Value>; 2]| names.into_iter().flatten().find_map(name);
        let relquery = first([in_metadata, fields.take("prompt_cache_key")]);
        let user = first([fields.take("user"), fields.take("safety_identifier")]);
        Self { relquery, user }
    }
}

fn name(value: Value) -> Option<String> {
    match value {
        Value::String(name) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => Some(name),
        _ => None,
    }
}

/// What the headers say. Whoever sends those means them: a wrong one is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopHeaders {
    /// The loop's name.
    pub relquery: Option<String>,
    /// Whether this is its last request.
    pub is_last: bool,
}

impl LoopHeaders {
    /// Reads them.
    pub fn read(headers: &HeaderMap) -> Result<Self, RequestError> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let relquery = match text(RELQUERY_HEADER) {
            None => None,
            Some(name) if (1..=NAME_BYTES_MAX).contains(&name.len()) => Some(name.to_owned()),
            Some(_) => {
                let reason = format!("must be 1 to {NAME_BYTES_MAX} visible ASCII characters");
                return Err(RequestError::invalid(RELQUERY_HEADER, reason));
            }
        };
        let is_last = match text(LAST_HEADER) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(RequestError::invalid(LAST_HEADER, "must be true or false")),
        };
        Ok(Self { relquery, is_last })
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::json;

    #[test]
    fn a_body_names_its_loop_in_fields_of_openais() {
        let names = |body: &str| {
            let names = LoopNames::take(&mut json::object(body.as_bytes()).expect("an object"));
            (names.relquery, names.user)
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(names(r#"{"prompt_cache_key":"a"}"#), (some("a"), None));
        assert_eq!(
            names(r#"{"metadata":{"relquery":"b"},"prompt_cache_key":"a","user":"u"}"#),
            (some("b"), some("u"))
        );
        assert_eq!(names(r#"{"metadata":{"team":"x"},"safety_identifier":"s"}"#), (None, some("s")));
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(
            names(&format!(r#"{{"prompt_cache_key":"{long}","user":7,"metadata":[1]}}"#)),
            (None, None)
        );
    }

    #[test]
    fn a_header_that_says_nothing_is_refused_by_its_name() {
        let read = |name: &'static str, value: &str| {
            let header = (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"));
            LoopHeaders::read(&[header].into_iter().collect())
        };
        let named = LoopHeaders { relquery: Some("reviews".into()), is_last: false };
        assert_eq!(read(RELQUERY_HEADER, "reviews"), Ok(named));
        assert_eq!(read(LAST_HEADER, "true"), Ok(LoopHeaders { relquery: None, is_last: true }));
        assert_eq!(read("x-other", "1"), Ok(LoopHeaders::default()));
        for (header, value) in [
            (RELQUERY_HEADER, String::new()),
            (RELQUERY_HEADER, "n".repeat(NAME_BYTES_MAX + 1)),
            (RELQUERY_HEADER, "ä".into()),
            (LAST_HEADER, "1".into()),
        ] {
            match read(header, &value) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, header, "{value}"),
                other => panic!("{header}: {value} gave {other:?}"),
            }
        }
    }
}
