//! The items of a conversation of `/v1/responses`: what was said, called and answered, as messages of a chat.

use serde_json::{Value, json};
use serving::error::RequestError;

use super::tool_namespaces::joined_name;
use crate::json::JsonFields;

/// Names the response that a request goes on from.
pub const PREVIOUS: &str = "previous_response_id";

/// The response that a request goes on from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreviousResponse {
    /// Its conversation: what was sent, and its answer.
    pub items: Vec<Value>,
}

/// The items that an input is.
pub(super) fn items_of(input: Value) -> Result<Vec<Value>, RequestError> {
    match input {
        Value::String(text) => Ok(vec![message("user", &text)]),
        Value::Array(items) => Ok(items),
        _ => Err(RequestError::invalid("input", "must be a string or an array of items")),
    }
}

/// The items of a conversation before an answer: what came before, and the input.
pub(crate) fn all_said(
    previous: Option<&PreviousResponse>,
    input: Option<Value>,
) -> Result<Vec<Value>, RequestError> {
    let earlier = previous.map(|previous| previous.items.as_slice()).unwrap_or_default();
    let input = input.map_or_else(|| Ok(Vec::new()), items_of)?;
    Ok(earlier.iter().cloned().chain(input).map(as_listed).collect())
}

/// The conversation that instructions, what came before and input are, as a chat has it.
pub(super) fn messages(
    instructions: Option<&str>,
    (earlier, input): (Vec<Value>, Vec<Value>),
) -> Result<Value, RequestError> {
    let mut messages: Vec<Value> = instructions.map(|text| message("system", text)).into_iter().collect();
    for (source, items) in [(PREVIOUS, earlier), ("input", input)] {
        for (place, item) in items.into_iter().enumerate() {
            let Some(next) = item_message(&format!("{source}[{place}]"), item)? else { continue };
            join(&mut messages, next);
        }
    }
    Ok(Value::Array(messages))
}

/// An item as lists of a conversation show it: a message says that it is one, and has its text in parts.
pub(super) fn as_listed(mut item: Value) -> Value {
    let Some(fields) = item.as_object_mut() else { return item };
    let is_message = fields.get("type").is_none_or(|kind| kind == "message");
    if !is_message {
        return item;
    }
    fields.insert("type".into(), "message".into());
    let kind =
        if fields.get("role").is_some_and(|role| role == "assistant") { "output_text" } else { "input_text" };
    if let Some(content) = fields.get_mut("content")
        && content.is_string()
    {
        *content = json!([{"type": kind, "text": content.take()}]);
    }
    item
}

/// Adds a message. Calls stand in the message of the assistant that they follow.
fn join(messages: &mut Vec<Value>, mut next: Value) {
    let calls = next.get_mut("tool_calls").map(Value::take);
    match (messages.last_mut(), calls) {
        (Some(last), Some(Value::Array(calls))) if last["role"] == "assistant" => {
            match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                Some(known) => known.extend(calls),
                None => last["tool_calls"] = Value::Array(calls),
            }
        }
        (_, Some(calls)) => {
            next["tool_calls"] = calls;
            messages.push(next);
        }
        // What is said behind calls is of the same turn.
        (Some(last), None) if last["role"] == "assistant" && next["role"] == "assistant" => {
            let texts = [&last["content"], &next["content"]].map(|text| text.as_str().unwrap_or_default());
            let both = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
            last["content"] = both.into();
        }
        (_, None) => messages.push(next),
    }
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// The message that an item is; none where it has no part in the conversation.
fn item_message(name: &str, item: Value) -> Result<Option<Value>, RequestError> {
    let mut fields = JsonFields::nested(name, item)?;
    match fields.string("type")?.as_deref() {
        None | Some("message") => {}
        Some("reasoning") => return Ok(None),
        Some("function_call") => {
            let Some(id) = fields.string("call_id")? else { return fields.bad("call_id", "is required") };
            let Some(mut name) = fields.string("name")? else { return fields.bad("name", "is required") };
            if let Some(namespace) = fields.string("namespace")? {
                name = joined_name(&namespace, &name);
            }
            let arguments = fields.string("arguments")?.unwrap_or_default();
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"id": id, "type": "function", "function": function});
            return Ok(Some(json!({"role": "assistant", "content": "", "tool_calls": [call]})));
        }
        Some("function_call_output") => {
            let Some(id) = fields.string("call_id")? else { return fields.bad("call_id", "is required") };
            let output = content_text(&mut fields, "output")?;
            return Ok(Some(json!({"role": "tool", "tool_call_id": id, "content": output})));
        }
        Some(_) => {
            let reason = "must be message, reasoning, function_call or function_call_output";
            return fields.bad("type", reason);
        }
    }
    let Some(role) = fields.string("role")? else { return fields.bad("role", "is required") };
    if !["system", "developer", "user", "assistant"].contains(&role.as_str()) {
        return fields.bad("role", "must be system, developer, user or assistant");
    }
    let text = content_text(&mut fields, "content")?;
    Ok(Some(message(&role, &text)))
}

/// Takes a text, or parts of one.
fn content_text(fields: &mut JsonFields, field: &str) -> Result<String, RequestError> {
    match fields.require(field)? {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let mut text = String::new();
            for (place, part) in parts.into_iter().enumerate() {
                text.push_str(&part_text(fields.name(&format!("{field}[{place}]")), part)?);
            }
            Ok(text)
        }
        _ => fields.bad(field, "must be a string or an array of text parts"),
    }
}

/// The text of a part of an item's content.
fn part_text(name: String, part: Value) -> Result<String, RequestError> {
    let mut fields = JsonFields::nested(name, part)?;
    match fields.string("type")?.as_deref() {
        Some("input_text" | "output_text" | "text") => {}
        Some(_) => return fields.bad("type", "must be input_text or output_text: only text is supported"),
        None => return fields.bad("type", "is required"),
    }
    match fields.string("text")? {
        Some(text) => Ok(text),
        None => fields.bad("text", "is required"),
    }
}
