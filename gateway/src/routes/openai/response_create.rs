//! What a message that asks for a response says beside it.

use serving::error::RequestError;

use crate::json::{JsonFields, object};
use crate::wire::openai::PREVIOUS;

/// Characters of a `stream_id`.
const STREAM_ID_CHARACTERS_MAX: usize = 256;
/// Bytes of a message that is read once more for the `stream_id` of its refusal.
const NAMED_BYTES_MAX: usize = 64 << 10;

/// What a request says beside the response that it asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ResponseCreate {
    /// Stands in each of its events.
    pub(super) stream_id: Option<String>,
    pub(super) previous: Option<String>,
}

/// Why a message is refused, and the `stream_id` of its error.
pub(super) type Refusal = (Option<String>, Box<RequestError>);

impl ResponseCreate {
    /// Reads a message.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let mut fields = object(body).map_err(|error| (None, error.into()))?;
        let stream_id = fields.text("stream_id").filter(|id| is_stream_id(id)).map(str::to_owned);
        match Self::previous(&mut fields, stream_id.is_some()) {
            Ok(previous) => Ok(Self { stream_id, previous }),
            Err(error) => Err((stream_id, error.into())),
        }
    }

    fn previous(fields: &mut JsonFields, has_id: bool) -> Result<Option<String>, RequestError> {
        if fields.string("type")?.as_deref() != Some("response.create") {
            return fields.bad("type", "must be response.create");
        }
        if fields.take("stream_id").is_some() && !has_id {
            let reason = format!("must be 1 to {STREAM_ID_CHARACTERS_MAX} letters, digits, `_`, `-` and `.`");
            return fields.bad("stream_id", reason);
        }
        if fields.bool("generate")? == Some(false) {
            return fields.bad("generate", "must be true: nothing is prepared without an answer");
        }
        if fields.bool("background")? == Some(true) {
            return fields.bad("background", "must be false over a WebSocket: POST what goes on without one");
        }
        fields.string(PREVIOUS)
    }

    /// Leaves the fields of a response that is streamed.
    pub(super) fn leave_response(fields: &mut JsonFields) {
        for field in ["type", "stream_id", "generate"] {
            fields.take(field);
        }
        fields.insert("stream", true.into());
    }
}

/// The `stream_id` of a message that is refused as it comes; none of a large one.
pub(super) fn stream_id_of(body: &[u8]) -> Option<String> {
    if body.len() > NAMED_BYTES_MAX {
        return None;
    }
    let fields = object(body).ok()?;
    fields.text("stream_id").filter(|id| is_stream_id(id)).map(str::to_owned)
}

fn is_stream_id(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=STREAM_ID_CHARACTERS_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_says_beside_its_response_is_read_and_wrong_is_named() {
        let read = |body: &str| ResponseCreate::read(body.as_bytes());
        let create =
            read(r#"{"type":"response.create","stream_id":"a_B-1.","previous_response_id":"resp-1"}"#);
        let expected = ResponseCreate { stream_id: Some("a_B-1.".into()), previous: Some("resp-1".into()) };
        assert_eq!(create, Ok(expected));
        let plain = read(r#"{"type":"response.create","generate":true,"background":false,"input":"a"}"#);
        assert_eq!(plain, Ok(ResponseCreate::default()));
        for (body, blamed, id) in [
            (r#"{"input":"a"}"#, "type", None),
            (r#"{"type":"response.cancel","stream_id":"a"}"#, "type", Some("a")),
            (r#"{"type":"response.create","stream_id":"a b"}"#, "stream_id", None),
            (r#"{"type":"response.create","stream_id":""}"#, "stream_id", None),
            (r#"{"type":"response.create","stream_id":7}"#, "stream_id", None),
            (r#"{"type":"response.create","generate":false}"#, "generate", None),
            (r#"{"type":"response.create","background":true}"#, "background", None),
            (r#"{"type":"response.create","previous_response_id":1}"#, PREVIOUS, None),
        ] {
            match read(body) {
                Err((stream_id, error)) => {
                    let RequestError::Invalid { field, .. } = *error else { panic!("{body} gave {error}") };
                    assert_eq!((field.as_str(), stream_id.as_deref()), (blamed, id), "{body}");
                }
                Ok(create) => panic!("{body} gave {create:?}"),
            }
        }
        let Err((None, error)) = read("{") else { panic!("it is read") };
        assert!(matches!(*error, RequestError::Malformed(_)));
        assert!(is_stream_id(&"a".repeat(256)) && !is_stream_id(&"a".repeat(257)));
        assert_eq!(stream_id_of(br#"{"type":7,"stream_id":"a"}"#).as_deref(), Some("a"));
        assert_eq!((stream_id_of(b"{"), stream_id_of(br#"{"stream_id":"a b"}"#)), (None, None));
    }
}
