//! The request of `/v1/chat/completions`.

use base::Role;
use serde_json::Value;
use serving::error::RequestError;

use super::Common;
use super::logprobs;
use super::neutral::{self, BodyKind};
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// Messages of one conversation.
const MESSAGES_MAX: usize = 1_024;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said; always data, it cannot forge markup.
    pub content: String,
}

/// A body of `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// What both routes take.
    pub common: Common,
    /// The conversation. Never empty, and some message says something.
    pub messages: Vec<Message>,
}

impl ChatRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        let common = Common::take(&mut fields, context, &["max_tokens", "max_completion_tokens"])?;
        let common = common.with_logprobs(logprobs::of_chat(&mut fields)?);
        let messages = take_messages(&mut fields)?;
        neutral::finish(fields, BodyKind::Chat)?;
        Ok(Self { common, messages })
    }
}

/// Takes `messages`.
fn take_messages(fields: &mut JsonFields) -> Result<Vec<Message>, RequestError> {
    let Some(items) = fields.array("messages")? else { return fields.bad("messages", "is required") };
    if items.len() > MESSAGES_MAX {
        return fields.bad("messages", format!("has more than {MESSAGES_MAX} messages"));
    }
    let messages: Result<Vec<Message>, RequestError> =
        items.into_iter().enumerate().map(|(index, item)| message(index, item)).collect();
    let messages = messages?;
    if messages.iter().all(|message| message.content.trim().is_empty()) {
        return fields.bad("messages", "must hold some text");
    }
    Ok(messages)
}

/// One message.
fn message(index: usize, value: Value) -> Result<Message, RequestError> {
    let mut fields = JsonFields::nested(format!("messages[{index}]"), value)?;
    let role = match fields.string("role")?.as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool" | "function") => return fields.bad("role", "tools are not supported yet"),
        Some(_) => return fields.bad("role", "must be system, developer, user or assistant"),
        None => return fields.bad("role", "is required"),
    };
    let content = match fields.require("content")? {
        Value::String(text) => text,
        Value::Array(parts) => {
            let texts: Result<Vec<String>, RequestError> =
                parts.into_iter().enumerate().map(|(part, value)| text_part(&fields, part, value)).collect();
            texts?.concat()
        }
        _ => return fields.bad("content", "must be a string or an array of text parts"),
    };
    neutral::finish(fields, BodyKind::Message)?;
    Ok(Message { role, content })
}

/// The text of one content part.
fn text_part(message: &JsonFields, part: usize, value: Value) -> Result<String, RequestError> {
    let mut fields = JsonFields::nested(message.name(&format!("content[{part}]")), value)?;
    match fields.string("type")?.as_deref() {
        Some("text") => {}
        Some(_) => return fields.bad("type", "must be text: only text is supported"),
        None => return fields.bad("type", "is required"),
    }
    let Some(text) = fields.string("text")? else { return fields.bad("text", "is required") };
    fields.finish()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    fn read(messages: &str) -> Result<ChatRequest, RequestError> {
        let body = format!("{{\"model\":\"m\",\"max_completion_tokens\":5,\"messages\":{messages}}}");
        let fields = json::object(body.as_bytes())?;
        with_context(&LimitsConfig::default(), |context| ChatRequest::read(fields, context))
    }

    #[test]
    fn a_conversation_is_read_with_its_roles_and_parts() {
        let request = read(
            r#"[{"role":"developer","content":"be brief"},
                {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                {"role":"assistant","content":"ok","refusal":null,"tool_calls":null},
                {"role":"user","content":""}]"#,
        );
        let messages = request.expect("valid").messages;
        let said: Vec<_> = messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        assert_eq!(
            said,
            [(Role::System, "be brief"), (Role::User, "ab"), (Role::Assistant, "ok"), (Role::User, "")]
        );
    }

    #[test]
    fn a_bad_message_is_named_by_its_path() {
        for (messages, blamed) in [
            ("[]", "messages"),
            ("\"hi\"", "messages"),
            (r#"[{"role":"user","content":" \n"}]"#, "messages"),
            (r#"["hi"]"#, "messages[0]"),
            (r#"[{"role":"user","content":"a"},{"role":"root","content":"b"}]"#, "messages[1].role"),
            (r#"[{"role":"tool","content":"a"}]"#, "messages[0].role"),
            (r#"[{"content":"a"}]"#, "messages[0].role"),
            (r#"[{"role":"user"}]"#, "messages[0].content"),
            (r#"[{"role":"user","content":7}]"#, "messages[0].content"),
            (r#"[{"role":"user","content":[{"type":"image_url"}]}]"#, "messages[0].content[0].type"),
            (r#"[{"role":"user","content":[{"type":"text"}]}]"#, "messages[0].content[0].text"),
            (r#"[{"role":"user","content":"a","x":1}]"#, "messages[0].x"),
        ] {
            match read(messages) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{messages}"),
                other => panic!("{messages} gave {other:?}"),
            }
        }
    }
}
