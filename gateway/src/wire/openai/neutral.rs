//! Fields of the OpenAI API (and of vLLM's dialect of it) that this server does not implement.
//!
//! Each is accepted with the values under which it changes nothing and refused with any other, by name.

use serde_json::Value;
use serving::error::RequestError;

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

/// Why constraints in other words are refused.
const CONSTRAINT: &str = "is not supported; use a choice, a regex or a JSON schema";

/// Fields of both routes.
const COMMON: &[(&str, Neutral)] = &[
    ("n", Neutral::Number(1.0)),
    ("user", Neutral::Always),
    ("metadata", Neutral::Always),
    ("safety_identifier", Neutral::Always),
    ("prompt_cache_key", Neutral::Always),
    ("prompt_cache_retention", Neutral::Always),
    ("store", Neutral::False),
    ("service_tier", Neutral::Words(&["auto", "default"])),
    ("presence_penalty", Neutral::Number(0.0)),
    ("frequency_penalty", Neutral::Number(0.0)),
    ("repetition_penalty", Neutral::Number(1.0)),
    ("length_penalty", Neutral::Number(1.0)),
    ("min_p", Neutral::Number(0.0)),
    ("min_tokens", Neutral::Number(0.0)),
    ("best_of", Neutral::Number(1.0)),
    ("use_beam_search", Neutral::False),
    ("logit_bias", Neutral::Empty),
    ("prompt_logprobs", Neutral::Never("log probabilities of prompts are not supported")),
    ("allowed_token_ids", Neutral::Never(CONSTRAINT)),
    ("guided_grammar", Neutral::Never(CONSTRAINT)),
    ("skip_special_tokens", Neutral::True),
    ("spaces_between_special_tokens", Neutral::True),
    ("include_stop_str_in_output", Neutral::False),
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
    ("tools", Neutral::Empty),
    ("tool_choice", Neutral::Words(&["none", "auto"])),
    ("parallel_tool_calls", Neutral::Always),
    ("functions", Neutral::Empty),
    ("function_call", Neutral::Words(&["none", "auto"])),
    ("modalities", Neutral::TextOnly),
    ("audio", Neutral::Never("only text is supported")),
    ("prediction", Neutral::Never("predicted outputs are not supported")),
    ("reasoning_effort", Neutral::Words(&["none"])),
    ("verbosity", Neutral::Words(&["medium"])),
    ("web_search_options", Neutral::Never("web search is not supported")),
    ("add_generation_prompt", Neutral::True),
    ("continue_final_message", Neutral::False),
];

/// Fields of an assistant's message that a client sends back as it got them.
const MESSAGE: &[(&str, Neutral)] = &[
    ("refusal", Neutral::Empty),
    ("annotations", Neutral::Empty),
    ("tool_calls", Neutral::Empty),
    ("function_call", Neutral::Empty),
    ("audio", Neutral::Never("only text is supported")),
    ("reasoning_content", Neutral::Empty),
    ("name", Neutral::Never("names of participants are not supported")),
];

/// Where fields stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// A body of `/v1/completions`.
    Completion,
    /// A body of `/v1/chat/completions`.
    Chat,
    /// A message.
    Message,
}

/// Takes the fields of a place that change nothing; refuses them where they would change something, and
/// refuses every field that is left.
pub(super) fn finish(mut fields: JsonFields, place: BodyKind) -> Result<(), RequestError> {
    let tables: &[&[(&str, Neutral)]] = match place {
        BodyKind::Completion => &[COMMON, COMPLETION],
        BodyKind::Chat => &[COMMON, CHAT],
        BodyKind::Message => &[MESSAGE],
    };
    for (name, neutral) in tables.iter().flat_map(|table| table.iter()) {
        if let Some(value) = fields.take(name)
            && let Err(reason) = neutral.check(&value)
        {
            return fields.bad(name, reason);
        }
    }
    fields.finish()
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
        match (finish(fields, place), blamed) {
            (Ok(()), None) => {}
            (Err(RequestError::Invalid { field, .. }), Some(name)) => assert_eq!(field, name, "{body}"),
            (got, _) => panic!("{body}: expected {blamed:?}, got {got:?}"),
        }
    }

    #[test]
    fn a_field_is_accepted_exactly_where_it_changes_nothing() {
        check(BodyKind::Chat, r#"{"user":"u","metadata":{"a":"b"},"presence_penalty":0,"n":1}"#, None);
        check(BodyKind::Chat, r#"{"tools":[],"tool_choice":"auto","store":false}"#, None);
        check(BodyKind::Chat, r#"{"modalities":["text"]}"#, None);
        check(BodyKind::Completion, r#"{"logit_bias":{},"best_of":1,"echo":false,"suffix":""}"#, None);
        check(BodyKind::Message, r#"{"refusal":null,"tool_calls":[],"audio":null}"#, None);
        for (place, body, blamed) in [
            (BodyKind::Chat, r#"{"n":2}"#, "n"),
            (BodyKind::Completion, r#"{"n":1000000000000}"#, "n"),
            (BodyKind::Completion, r#"{"best_of":100000}"#, "best_of"),
            (BodyKind::Completion, r#"{"top_logprobs":20}"#, "top_logprobs"),
            (BodyKind::Chat, r#"{"presence_penalty":0.5}"#, "presence_penalty"),
            (BodyKind::Chat, r#"{"logit_bias":{"-1":5}}"#, "logit_bias"),
            (BodyKind::Chat, r#"{"guided_grammar":"start: x"}"#, "guided_grammar"),
            (BodyKind::Chat, r#"{"tools":[{"type":"function"}]}"#, "tools"),
            (BodyKind::Chat, r#"{"top_n_sigma":1}"#, "top_n_sigma"),
            (BodyKind::Message, r#"{"name":"bob"}"#, "name"),
        ] {
            check(place, body, Some(blamed));
        }
    }
}
