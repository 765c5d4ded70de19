//! `chat_template_kwargs`: variables that a caller hands to the model's chat template (vLLM's and SGLang's field).

use serde_json::Value;
use serving::error::RequestError;

use crate::json::JsonFields;

/// The field.
pub(crate) const FIELD: &str = "chat_template_kwargs";

/// Variables that say what the conversation is. They are the request's own fields, or the server's.
const OWN: [&str; 10] = [
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "chat_template",
    "tokenize",
    "return_dict",
    "conversation",
];

/// Takes the variables, as JSON text with its keys in order: they are part of what a conversation is.
pub(super) fn take(fields: &mut JsonFields) -> Result<Option<String>, RequestError> {
    let Some(value) = fields.take(FIELD) else { return Ok(None) };
    let name = fields.name(FIELD);
    let Value::Object(mut variables) = value else {
        return Err(RequestError::invalid(name, "must be an object"));
    };
    if let Some(own) = OWN.iter().find(|own| variables.contains_key(**own)) {
        return Err(RequestError::invalid(format!("{name}.{own}"), "is not a variable that a caller sets"));
    }
    variables.sort_keys();
    Ok((!variables.is_empty()).then(|| Value::Object(variables).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(value: &str) -> Result<Option<String>, RequestError> {
        take(&mut json::object(format!("{{\"{FIELD}\":{value}}}").as_bytes())?)
    }

    #[test]
    fn variables_are_an_object_in_one_order_and_none_is_the_conversations_own() {
        let expected = Ok(Some(r#"{"a":[1],"enable_thinking":true}"#.to_owned()));
        assert_eq!(read(r#"{"enable_thinking":true,"a":[1]}"#), expected);
        assert_eq!((read("{}"), read("null")), (Ok(None), Ok(None)));
        for (value, blamed) in [
            ("[]", "chat_template_kwargs"),
            ("true", "chat_template_kwargs"),
            (r#"{"messages":[]}"#, "chat_template_kwargs.messages"),
            (r#"{"a":1,"tools":[]}"#, "chat_template_kwargs.tools"),
        ] {
            match read(value) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed),
                other => panic!("{value} gave {other:?}"),
            }
        }
    }
}
