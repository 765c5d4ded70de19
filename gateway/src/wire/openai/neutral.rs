//! Fields of the OpenAI API (and of vLLM's dialect of it) that this server does not implement.
//!
//! Each is accepted with the values under which it changes nothing and refused with any other, by name. What is not even
//! in the tables below is unknown: `openai.unknown_fields` says what becomes of that.

use serde_json::{Value, json};
use serving::error::RequestError;

use crate::config::UnknownFields;
use crate::json::JsonFields;

/// When a field changes nothing.
enum Neutral {
    /// Whatever it holds: it is a label or a hint.
    Always,
    /// With false.
    False,
    /// With true.
    True,
    /// With this number.
    Number(f64),
    /// With one of these words.
    Words(&'static [&'static str]),
    /// With `[]`, `{}` or `""`.
    Empty,
    /// With `["text"]`.
    TextOnly,
    /// Never; the reason.
    Never(&'static str),
}

/// Fields of both routes.
const COMMON: &[(&str, Neutral)] = &[
    ("user", Neutral::Always),
    ("metadata", Neutral::Always),
    ("safety_identifier", Neutral::Always),
    ("prompt_cache_key", Neutral::Always),
    ("prompt_cache_retention", Neutral::Always),
    ("prompt_cache_options", Neutral::Always),
    ("store", Neutral::Always),
    ("service_tier", Neutral::Always),
    ("cache_control", Neutral::Always),
    ("length_penalty", Neutral::Number(1.0)),
    ("best_of", Neutral::Number(1.0)),
    ("use_beam_search", Neutral::False),
    ("guided_decoding_backend", Neutral::Always),
    ("include_reasoning", Neutral::Always),
    ("bad_words", Neutral::Empty),
    ("logits_processors", Neutral::Empty),
    ("prompt_logprobs", Neutral::Never("is for chats and completions")),
    ("spaces_between_special_tokens", Neutral::True),
];

/// Fields of `/v1/completions`.
const COMPLETION: &[(&str, Neutral)] = &[
    ("top_logprobs", Neutral::Number(0.0)),
    ("echo", Neutral::False),
    ("suffix", Neutral::Empty),
    ("add_special_tokens", Neutral::True),
];

/// Fields of `/v1/chat/completions`.
const CHAT: &[(&str, Neutral)] = &[
    // Chats have read both by now; other routes have no place for calls that are told so.
    ("functions", Neutral::Empty),
    ("function_call", Neutral::Words(&["none", "auto"])),
    ("modalities", Neutral::TextOnly),
    ("audio", Neutral::Never("only text is supported")),
    // A guess of what will be said, which may be written faster and is said no other way.
    ("prediction", Neutral::Always),
    // How hard to try, and how much to say: wishes, as they are on other routes.
    ("reasoning_effort", Neutral::Words(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])),
    ("verbosity", Neutral::Words(&["low", "medium", "high"])),
    ("web_search_options", Neutral::Never("web search is not supported")),
    ("moderation", Neutral::Never("nothing is moderated here: what would be blocked is answered")),
    ("chat_template", Neutral::Never("is the model's own: another one is not taken")),
    ("documents", Neutral::Never("are not told to the model: write them into a message")),
];

/// Fields of an assistant's message that a client sends back as it got them.
const MESSAGE: &[(&str, Neutral)] = &[
    ("refusal", Neutral::Empty),
    ("annotations", Neutral::Empty),
    ("tool_calls", Neutral::Empty),
    // An assistant's is read by now, unless it is empty.
    ("function_call", Neutral::Empty),
    ("audio", Neutral::Never("only text is supported")),
    ("reasoning_content", Neutral::Empty),
    ("type", Neutral::Words(&["message"])),
    ("cache_control", Neutral::Always),
];

/// Fields of a part of a message's content.
const PART: &[(&str, Neutral)] = &[("cache_control", Neutral::Always), ("annotations", Neutral::Empty)];

/// Where fields stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// A body of `/v1/completions`.
    Completion,
    /// A body of `/v1/chat/completions`.
    Chat,
    /// A message.
    Message,
    /// A part of its content.
    Part,
}

/// The fields of a place that change nothing.
fn fields_of(place: BodyKind) -> impl Iterator<Item = &'static (&'static str, Neutral)> {
    let (common, own) = match place {
        BodyKind::Completion => (COMMON, COMPLETION),
        BodyKind::Chat => (COMMON, CHAT),
        BodyKind::Message => (MESSAGE, &[][..]),
        BodyKind::Part => (PART, &[][..]),
    };
    common.iter().chain(own)
}

/// The same with a JSON Schema of the values under which they change nothing, but for those that are always refused.
pub(crate) fn neutral_fields(place: BodyKind) -> impl Iterator<Item = (&'static str, Value)> {
    fields_of(place).filter_map(|(name, neutral)| Some((*name, neutral.schema()?)))
}

/// Takes the fields of a place that change nothing; refuses them where they would change something. What is left is
/// unknown: it is refused, or told.
pub(super) fn finish(
    mut fields: JsonFields,
    place: BodyKind,
    unknown: UnknownFields,
) -> Result<Vec<String>, RequestError> {
    for (name, neutral) in fields_of(place) {
        if let Some(value) = fields.take(name)
            && let Err(reason) = neutral.check(&value)
        {
            return fields.bad(name, reason);
        }
    }
    left_out(fields, unknown)
}

/// What nobody took of a request is unknown: it is refused, or told.
pub(crate) fn left_out(fields: JsonFields, unknown: UnknownFields) -> Result<Vec<String>, RequestError> {
    match unknown {
        UnknownFields::Refuse => fields.finish().map(|()| Vec::new()),
        UnknownFields::Warn => Ok(fields.left()),
        UnknownFields::Ignore => Ok(Vec::new()),
    }
}

/// Fields of a request's objects that nobody took, as they are found.
pub(crate) struct LeftOut {
    unknown: UnknownFields,
    /// Their names, where they are to be told.
    pub(crate) names: Vec<String>,
}

impl LeftOut {
    /// None yet.
    pub(crate) fn new(unknown: UnknownFields) -> Self {
        Self { unknown, names: Vec::new() }
    }

    /// A field that has no effect as it is: it is refused for this reason, or told.
    pub(crate) fn without_effect(&mut self, field: &str, reason: &str) -> Result<(), RequestError> {
        match self.unknown {
            UnknownFields::Refuse => return Err(RequestError::invalid(field, reason)),
            UnknownFields::Warn => self.names.push(field.to_owned()),
            UnknownFields::Ignore => {}
        }
        Ok(())
    }

    /// Ends the reading of an object: what is left of it is refused, or told.
    pub(crate) fn finish(&mut self, fields: JsonFields) -> Result<(), RequestError> {
        self.names.extend(left_out(fields, self.unknown)?);
        Ok(())
    }
}

impl Neutral {
    /// Whether the value changes nothing; else what it must be.
    fn check(&self, value: &Value) -> Result<(), String> {
        let (holds, wanted) = match self {
            Self::Always => return Ok(()),
            Self::False => (*value == Value::Bool(false), "false".to_owned()),
            Self::True => (*value == Value::Bool(true), "true".to_owned()),
            Self::Number(number) => (value.as_f64() == Some(*number), number.to_string()),
            Self::Words(words) => {
                (value.as_str().is_some_and(|word| words.contains(&word)), words.join(" or "))
            }
            Self::Empty => (is_empty(value), "empty".to_owned()),
            Self::TextOnly => {
                let texts = value.as_array().is_some_and(|items| {
                    !items.is_empty() && items.iter().all(|item| item.as_str() == Some("text"))
                });
                (texts, "[\"text\"]".to_owned())
            }
            Self::Never(reason) => return Err((*reason).to_owned()),
        };
        if holds { Ok(()) } else { Err(format!("must be {wanted}: anything else is not supported")) }
    }
}

impl Neutral {
    /// JSON Schema of the values that change nothing; none where every value does.
    fn schema(&self) -> Option<Value> {
        Some(match self {
            Self::Always => json!({"description": "Without effect."}),
            Self::False => json!({"const": false}),
            Self::True => json!({"const": true}),
            Self::Number(number) => json!({"const": number}),
            Self::Words(words) => json!({"type": "string", "enum": words}),
            Self::Empty => json!({
                "type": ["array", "object", "string", "null"], "maxItems": 0, "maxProperties": 0, "maxLength": 0,
            }),
            Self::TextOnly => json!({"type": "array", "minItems": 1, "items": {"const": "text"}}),
            Self::Never(_) => return None,
        })
    }
}

/// Whether a value holds nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn check(place: BodyKind, body: &str, blamed: Option<&str>) {
        let fields = json::object(body.as_bytes()).expect("an object");
        match (finish(fields, place, UnknownFields::Refuse), blamed) {
            (Ok(_), None) => {}
            (Err(RequestError::Invalid { field, .. }), Some(name)) => assert_eq!(field, name, "{body}"),
            (got, _) => panic!("{body}: expected {blamed:?}, got {got:?}"),
        }
    }

    #[test]
    fn what_is_unknown_is_refused_told_or_left_out() {
        let finish = |unknown| {
            let fields = json::object(br#"{"user":"u","top_n_sigma":1,"x":null}"#).expect("an object");
            finish(fields, BodyKind::Chat, unknown)
        };
        assert!(finish(UnknownFields::Refuse).is_err_and(|error| error.to_string().contains("top_n_sigma")));
        assert_eq!(finish(UnknownFields::Warn), Ok(vec!["top_n_sigma".to_owned()]));
        assert_eq!(finish(UnknownFields::Ignore), Ok(Vec::new()));
    }

    #[test]
    fn a_field_is_accepted_exactly_where_it_changes_nothing() {
        check(BodyKind::Chat, r#"{"user":"u","metadata":{"a":"b"},"length_penalty":1}"#, None);
        check(
            BodyKind::Chat,
            r#"{"functions":[],"function_call":"auto","store":true,"service_tier":"flex"}"#,
            None,
        );
        check(BodyKind::Chat, r#"{"modalities":["text"]}"#, None);
        check(BodyKind::Chat, r#"{"reasoning_effort":"low","verbosity":"high"}"#, None);
        check(BodyKind::Chat, r#"{"reasoning_effort":"max","prompt_cache_options":{"ttl":"30m"}}"#, None);
        check(BodyKind::Chat, r#"{"prediction":{"type":"content","content":"so"}}"#, None);
        check(BodyKind::Completion, r#"{"best_of":1,"echo":false,"suffix":""}"#, None);
        check(BodyKind::Message, r#"{"refusal":null,"tool_calls":[],"audio":null}"#, None);
        for (place, body, blamed) in [
            (BodyKind::Completion, r#"{"best_of":100000}"#, "best_of"),
            (BodyKind::Completion, r#"{"top_logprobs":20}"#, "top_logprobs"),
            (BodyKind::Chat, r#"{"length_penalty":0.5}"#, "length_penalty"),
            (BodyKind::Chat, r#"{"prompt_logprobs":0}"#, "prompt_logprobs"),
            (BodyKind::Chat, r#"{"reasoning_effort":"hard"}"#, "reasoning_effort"),
            (BodyKind::Chat, r#"{"web_search_options":{}}"#, "web_search_options"),
            (BodyKind::Chat, r#"{"moderation":{"model":"m"}}"#, "moderation"),
            (BodyKind::Chat, r#"{"chat_template":"x"}"#, "chat_template"),
            (BodyKind::Chat, r#"{"documents":[{"text":"x"}]}"#, "documents"),
            (BodyKind::Completion, r#"{"bad_words":["x"]}"#, "bad_words"),
            (BodyKind::Chat, r#"{"functions":[{"name":"f"}]}"#, "functions"),
            (BodyKind::Chat, r#"{"top_n_sigma":1}"#, "top_n_sigma"),
            (BodyKind::Message, r#"{"name":"bob"}"#, "name"),
        ] {
            check(place, body, Some(blamed));
        }
    }
}
