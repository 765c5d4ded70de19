//! The request of `/v1/chat/completions`.

use base::{PromptEnd, Role};
use serde_json::Value;
use serving::error::RequestError;

use super::Common;
use super::legacy_functions;
use super::logprobs;
use super::neutral::{self, BodyKind};
use super::template_variables;
use super::tools::{self, ToolPart, ToolRequest};
use crate::config::UnknownFields;
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// Messages of one conversation.
const MESSAGES_MAX: usize = 1_024;

/// Whether the last message is gone on with.
const CONTINUES: &str = "continue_final_message";
/// Whether an answer begins behind it.
const OPENS: &str = "add_generation_prompt";
/// Whether the last message's text stands in front of the answer.
const ECHO: &str = "echo";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said; always data, it cannot forge markup.
    pub content: String,
    /// Calls of tools beside it, or the call that it is the result of.
    pub tool: ToolPart,
}

/// A body of `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// What both routes take.
    pub common: Common,
    /// The conversation. Never empty, and some message says something.
    pub messages: Vec<Message>,
    /// Where its prompt ends.
    pub end: PromptEnd,
    /// Whether the last message's text is told in front of the answer, where the answer is of the same speaker.
    pub echo: bool,
    /// What may be called, where anything may be.
    pub tools: Option<ToolRequest>,
    /// Fields that are not known.
    pub ignored: Vec<String>,
}

impl ChatRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        let common = Common::take(&mut fields, context, &["max_tokens", "max_completion_tokens"])?;
        let common = common.with_logprobs(logprobs::of_chat(&mut fields)?);
        let common = common.with_token_ids(&mut fields, context.model)?;
        let common = common.with_prompt_logprobs(&mut fields, context.model)?;
        let functions = legacy_functions::take(&mut fields)?;
        let tools = ToolRequest::take(&mut fields)?.or(functions);
        let mut common = common.with_template_variables(template_variables::take(&mut fields)?);
        let (messages, mut ignored) = take_messages(&mut fields, context.unknown_fields)?;
        ignored.append(&mut common.ignored);
        let end = take_end(&mut fields, &messages)?;
        let echo = fields.bool(ECHO)?.unwrap_or(false);
        ignored.extend(neutral::finish(fields, BodyKind::Chat, context.unknown_fields)?);
        Ok(Self { common, messages, end, echo, tools, ignored })
    }
}

/// The field that asks for an end.
pub(crate) fn field_of(end: PromptEnd) -> &'static str {
    match end {
        PromptEnd::Text => CONTINUES,
        PromptEnd::Answer | PromptEnd::Message => OPENS,
    }
}

/// Takes where the prompt ends.
pub(crate) fn take_end(fields: &mut JsonFields, messages: &[Message]) -> Result<PromptEnd, RequestError> {
    let continues = fields.bool(CONTINUES)?.unwrap_or(false);
    let opens = fields.bool(OPENS)?;
    if !continues {
        return Ok(if opens == Some(false) { PromptEnd::Message } else { PromptEnd::Answer });
    }
    if opens == Some(true) {
        return fields
            .bad(OPENS, format!("cannot be true beside `{CONTINUES}`, with which no answer begins"));
    }
    let can_go_on = |last: &Message| last.tool == ToolPart::Nothing && !last.content.trim().is_empty();
    if !messages.last().is_some_and(can_go_on) {
        let reason = "needs a last message with a text, which is neither a call of a tool nor its result";
        return fields.bad(CONTINUES, reason);
    }
    Ok(PromptEnd::Text)
}

/// Takes `echo` where replies have no place for what was sent.
pub(crate) fn refuse_echo(fields: &mut JsonFields) -> Result<(), RequestError> {
    match fields.bool(ECHO)? {
        None | Some(false) => Ok(()),
        Some(true) => {
            fields.bad(ECHO, "is for chats and completions: this route's replies have no place for it")
        }
    }
}

/// Takes `messages`, and the names of what is unknown in them.
pub(crate) fn take_messages(
    fields: &mut JsonFields,
    unknown: UnknownFields,
) -> Result<(Vec<Message>, Vec<String>), RequestError> {
    let Some(items) = fields.array("messages")? else { return fields.bad("messages", "is required") };
    if items.len() > MESSAGES_MAX {
        return fields.bad("messages", format!("has more than {MESSAGES_MAX} messages"));
    }
    let mut ignored = Vec::new();
    let mut last_call = None;
    let mut read = |(index, item)| message(index, item, unknown, &mut ignored, &mut last_call);
    let messages: Result<Vec<Message>, RequestError> = items.into_iter().enumerate().map(&mut read).collect();
    let messages = messages?;
    let says = |message: &Message| !message.content.trim().is_empty() || message.tool != ToolPart::Nothing;
    if !messages.iter().any(says) {
        return fields.bad("messages", "must hold some text");
    }
    Ok((messages, ignored))
}

/// One message. `ignored` gets the names of what is unknown in it; `last_call`: the id of the last call of a function in
/// those before it.
fn message(
    index: usize,
    value: Value,
    unknown: UnknownFields,
    ignored: &mut Vec<String>,
    last_call: &mut Option<String>,
) -> Result<Message, RequestError> {
    let mut fields = JsonFields::nested(format!("messages[{index}]"), value)?;
    let mut tool = ToolPart::Nothing;
    let role = match fields.string("role")?.as_deref() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        // What a tool answers is told to the model as a user's message where its template has no words for it.
        Some("tool") => {
            let Some(call_id) = fields.string("tool_call_id")? else {
                return fields.bad("tool_call_id", "is required of a message of role tool");
            };
            tool = ToolPart::Result { call_id, name: fields.string("name")? };
            Role::User
        }
        // It does not say which call it is the result of.
        Some("function") => {
            let Some(name) = fields.string("name")? else {
                return fields.bad("name", "is required of a message of role function");
            };
            let call_id = last_call.clone().unwrap_or_else(|| legacy_functions::call_id(index));
            tool = ToolPart::Result { call_id, name: Some(name) };
            Role::User
        }
        Some(_) => return fields.bad("role", "must be system, developer, user, assistant, tool or function"),
        None => return fields.bad("role", "is required"),
    };
    if role == Role::Assistant {
        let mut calls = tools::take_calls(&mut fields)?;
        if let Some(call) = legacy_functions::take_call(&mut fields, index)? {
            if !calls.is_empty() {
                return fields.bad("function_call", "cannot stand beside `tool_calls`, its successor");
            }
            *last_call = Some(call.id.clone());
            calls.push(call);
        }
        if !calls.is_empty() {
            tool = ToolPart::Calls(calls);
        }
    }
    let content = match fields.take("content") {
        None if matches!(tool, ToolPart::Calls(_)) => String::new(),
        None => return fields.bad("content", "is required"),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (part, value) in parts.into_iter().enumerate() {
                let name = fields.name(&format!("content[{part}]"));
                text.push_str(&text_part(name, value, unknown, ignored)?);
            }
            text
        }
        _ => return fields.bad("content", "must be a string or an array of text parts"),
    };
    ignored.extend(neutral::finish(fields, BodyKind::Message, unknown)?);
    Ok(Message { role, content, tool })
}

/// The text of one content part.
fn text_part(
    name: String,
    value: Value,
    unknown: UnknownFields,
    ignored: &mut Vec<String>,
) -> Result<String, RequestError> {
    let mut fields = JsonFields::nested(name, value)?;
    match fields.string("type")?.as_deref() {
        Some("text") => {}
        Some(_) => return fields.bad("type", "must be text: only text is supported"),
        None => return fields.bad("type", "is required"),
    }
    let Some(text) = fields.string("text")? else { return fields.bad("text", "is required") };
    ignored.extend(neutral::finish(fields, BodyKind::Part, unknown)?);
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
                {"role":"user","type":"message",
                 "content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}]},
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
            (r#"[{"role":"tool","content":"a"}]"#, "messages[0].tool_call_id"),
            (r#"[{"role":"function","content":"a"}]"#, "messages[0].name"),
            (
                r#"[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}]"#,
                "messages[0].tool_calls[0].function.arguments",
            ),
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

    #[test]
    fn a_prompt_ends_where_an_answer_begins_unless_it_says_otherwise() {
        let read = |fields: &str, last: &str| {
            let messages = format!(r#"[{{"role":"user","content":"a"}},{last}]"#);
            read(&format!("{messages}{fields}"))
        };
        let said = r#"{"role":"assistant","content":"b"}"#;
        for (fields, end) in [
            ("", PromptEnd::Answer),
            (r#","add_generation_prompt":true,"continue_final_message":false"#, PromptEnd::Answer),
            (r#","add_generation_prompt":false"#, PromptEnd::Message),
            (r#","add_generation_prompt":false,"continue_final_message":true"#, PromptEnd::Text),
            (r#","continue_final_message":true"#, PromptEnd::Text),
        ] {
            assert_eq!(read(fields, said).expect("valid").end, end, "{fields}");
        }
        let continued = r#","continue_final_message":true"#;
        let both = r#","continue_final_message":true,"add_generation_prompt":true"#;
        let called = r#"{"role":"assistant","content":"b","tool_calls":[{"id":"1","type":"function",
            "function":{"name":"f","arguments":"{}"}}]}"#;
        for (fields, last, blamed) in [
            (both, said, "add_generation_prompt"),
            (continued, called, "continue_final_message"),
            (continued, r#"{"role":"tool","tool_call_id":"1","content":"b"}"#, "continue_final_message"),
            (continued, r#"{"role":"assistant","content":" "}"#, "continue_final_message"),
            (r#","continue_final_message":1"#, said, "continue_final_message"),
            (r#","echo":"yes""#, said, "echo"),
        ] {
            match read(fields, last) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{last}"),
                other => panic!("{fields} {last} gave {other:?}"),
            }
        }
    }
}
