//! Conversations with tools as prompts, and the form that their answers are held to.
//!
//! A model whose chat template has words for tools is asked in these. To any other, and to servers that are sent
//! messages, tools are told in a system's message, calls in an assistant's and results in a user's, in the form that
//! most models were trained on. Who reads the answers is told which it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Constraint, Role, ToolCallForm, ToolFields};
use serde_json::{Map, Value, json};
use serving::error::{RequestError, internal};
use serving::model::{Model, Runs};
use store::ResultKey;

use crate::wire::ValidationContext;
use crate::wire::constraint::{Checked, checked};
use crate::wire::openai::{CallReader, Message, TAGS, ToolCall, ToolChoice, ToolPart, ToolRequest};

/// The field that errors of constraints name.
const FIELD: &str = "tools";
/// Letters and digits of an id, where a template takes no others.
const MISTRAL_ID_CHARS: usize = 9;

/// Whether a conversation has to do with tools.
pub(crate) fn concern(messages: &[Message], tools: Option<&ToolRequest>) -> bool {
    tools.is_some() || messages.iter().any(|message| message.tool != ToolPart::Nothing)
}

/// How calls are read in what the model answers. `asked`: the form that the request wants of an answer without calls.
pub(crate) fn reader(tools: &ToolRequest, model: &Model, asked: Option<&Constraint>) -> Arc<CallReader> {
    // An answer that is held to JSON as a whole has no tags.
    let is_json = matches!(asked, Some(Constraint::JsonSchema(_))) && model.runs != Runs::Engine;
    Arc::new(CallReader {
        names: tools.tools.iter().map(|tool| tool.name.clone()).collect(),
        form: native_form(model).unwrap_or(ToolCallForm::Hermes),
        is_bare: tools.choice != ToolChoice::Auto || is_json,
        is_named: matches!(tools.choice, ToolChoice::Named(_)),
        is_parallel: tools.is_parallel,
        is_legacy: tools.is_legacy,
    })
}

/// In which words the model's template has it call tools.
pub(crate) fn native_form(model: &Model) -> Option<ToolCallForm> {
    model.text.tool_call_form().filter(|_| model.has_chat)
}

/// What an answer is held to. `asked`: the form that the request wants of an answer without calls.
pub(crate) fn constraint(
    tools: &ToolRequest,
    context: ValidationContext<'_>,
    asked: Option<&Constraint>,
) -> Result<Option<Checked>, RequestError> {
    let form = native_form(context.model).unwrap_or(ToolCallForm::Hermes);
    let key = if form == ToolCallForm::Llama { "parameters" } else { "arguments" };
    if tools.choice != ToolChoice::Auto {
        return checked(FIELD, tools.forced(key), context).map(Some);
    }
    // Only the local engine holds free text to a tag, and only a tag that is text.
    let has_tags = context.model.runs == Runs::Engine
        && form == ToolCallForm::Hermes
        && context.constraints.can_compile();
    let otherwise = match asked {
        None => None,
        Some(Constraint::JsonSchema(schema)) if has_tags => Some(schema.clone()),
        // Where calls are not told by a tag the answer is one of two forms of JSON.
        Some(Constraint::JsonSchema(schema)) => {
            let either = tools.or_answer(key, schema);
            let either = either.ok_or_else(|| internal("a schema that was read is no JSON"))?;
            return checked(FIELD, either, context).map(Some);
        }
        Some(_) => {
            let reason =
                "cannot be combined with a form of the answer here, unless `tool_choice` is none or required";
            return Err(RequestError::invalid(FIELD, reason));
        }
    };
    if !has_tags {
        return Ok(None);
    }
    let must_hold = otherwise.is_some();
    match checked(FIELD, tools.tagged(TAGS, key, otherwise), context) {
        // It helps the model to write calls that fit; a schema that cannot be kept to is no reason to refuse.
        Err(RequestError::Invalid { .. } | RequestError::Constraints { .. }) if !must_hold => Ok(None),
        found => found.map(Some),
    }
}

/// What a chat template that has words for tools gets beside roles and contents.
pub(crate) fn fields(messages: &[Message], tools: Option<&ToolRequest>, form: ToolCallForm) -> ToolFields {
    let mut names = BTreeMap::new();
    let mut fields = BTreeMap::new();
    for (number, message) in messages.iter().enumerate() {
        let more = match &message.tool {
            ToolPart::Nothing => continue,
            ToolPart::Calls(calls) => {
                names.extend(calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|ToolCall { id, name, arguments }| {
                        let function = json!({"name": name, "arguments": arguments});
                        json!({"id": id_for(form, id), "type": "function", "function": function})
                    })
                    .collect();
                json!({"tool_calls": calls})
            }
            ToolPart::Result { call_id, name } => {
                let mut more = Map::new();
                more.insert("role".into(), "tool".into());
                more.insert("tool_call_id".into(), id_for(form, call_id).into());
                let known = name.as_deref().or(names.get(call_id.as_str()).copied());
                more.extend(known.map(|name| ("name".to_owned(), name.into())));
                Value::Object(more)
            }
        };
        fields.insert(number, more.to_string());
    }
    let tools = tools.map_or(&[][..], |tools| &tools.tools);
    ToolFields { tools: tools.iter().map(|tool| tool.json.to_string()).collect(), messages: fields }
}

/// A call's id as the model's template takes it; the same id gives the same.
fn id_for(form: ToolCallForm, id: &str) -> String {
    let is_plain = id.len() == MISTRAL_ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if form != ToolCallForm::Mistral || is_plain {
        return id.to_owned();
    }
    let hash = ResultKey::of(&[id.as_bytes()]).0;
    hash.iter().map(|byte| char::from(b'a' + byte % 26)).take(MISTRAL_ID_CHARS).collect()
}

/// The conversation in plain messages.
pub(crate) fn plain(messages: Vec<Message>, tools: Option<&ToolRequest>) -> Vec<(Role, String)> {
    let (begin, end) = TAGS;
    let mut plain: Vec<(Role, String)> = Vec::with_capacity(messages.len() + 1);
    let mut follows_result = false;
    for Message { role, content, tool } in messages {
        let is_result = matches!(tool, ToolPart::Result { .. });
        match tool {
            ToolPart::Nothing => plain.push((role, content)),
            ToolPart::Calls(calls) => {
                let call = |ToolCall { name, arguments, .. }: &ToolCall| {
                    format!("{begin}\n{}\n{end}", spaced(&json!({"name": name, "arguments": arguments})))
                };
                let text = Some(content).filter(|content| !content.trim().is_empty());
                let lines: Vec<String> = text.into_iter().chain(calls.iter().map(call)).collect();
                plain.push((role, lines.join("\n")));
            }
            ToolPart::Result { .. } => {
                let result = format!("<tool_response>\n{content}\n</tool_response>");
                match plain.last_mut() {
                    // Results of calls of one answer are one message: templates want turns to alternate.
                    Some((_, before)) if follows_result => {
                        before.push('\n');
                        before.push_str(&result);
                    }
                    _ => plain.push((role, result)),
                }
            }
        }
        follows_result = is_result;
    }
    if let Some(tools) = tools {
        let listing = listing(tools);
        match plain.first_mut() {
            Some((Role::System, system)) => *system = format!("{system}\n\n{listing}"),
            _ => plain.insert(0, (Role::System, listing)),
        }
    }
    plain
}

/// What a model is told of tools that its template has no words for.
fn listing(tools: &ToolRequest) -> String {
    let (begin, end) = TAGS;
    let listed: Vec<String> = tools.tools.iter().map(|tool| spaced(&tool.json)).collect();
    let listed = listed.join("\n");
    let call = r#"{"name": "the function's name", "arguments": {"an argument's name": "its value"}}"#;
    format!(
        "You can call functions. Here they are, one JSON object each:\n<tools>\n{listed}\n</tools>\nTo call one, answer \
         with its name and its arguments as JSON between tags:\n{begin}\n{call}\n{end}\nIf no function helps, answer \
         without a call."
    )
}

/// JSON on one line with a space behind each comma and colon, which is how models have seen most of it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(entries) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), spaced(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: Role, content: &str, tool: ToolPart) -> Message {
        Message { role, content: content.into(), tool }
    }

    fn call(id: &str) -> ToolCall {
        let Value::Object(arguments) = json!({"text": "a", "n": [1, 2]}) else { panic!("an object") };
        ToolCall { id: id.into(), name: "find".into(), arguments }
    }

    fn talk() -> Vec<Message> {
        let result = |id: &str| ToolPart::Result { call_id: id.into(), name: None };
        vec![
            message(Role::User, "Find a.", ToolPart::Nothing),
            message(Role::Assistant, "", ToolPart::Calls(vec![call("x"), call("y")])),
            message(Role::User, "found", result("x")),
            message(Role::User, "lost", result("y")),
        ]
    }

    #[test]
    fn without_words_for_tools_a_conversation_is_told_in_plain_messages() {
        let written = "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"a\", \"n\": [1, 2]}}\n</tool_call>";
        let results = "<tool_response>\nfound\n</tool_response>\n<tool_response>\nlost\n</tool_response>";
        let expected = [
            (Role::User, "Find a.".to_owned()),
            (Role::Assistant, format!("{written}\n{written}")),
            (Role::User, results.to_owned()),
        ];
        assert_eq!(plain(talk(), None), expected);
        let json =
            json!({"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}});
        let tool = crate::wire::openai::Tool { name: "find".into(), parameters: json!({}), json };
        let tools =
            ToolRequest { tools: vec![tool], choice: ToolChoice::Auto, is_parallel: true, is_legacy: false };
        let messages = plain(talk(), Some(&tools));
        assert_eq!((messages.len(), messages[0].0), (4, Role::System));
        let listed =
            r#"{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}"#;
        assert!(messages[0].1.contains(listed), "{}", messages[0].1);
        let mut led = talk();
        led.insert(0, message(Role::System, "Be brief.", ToolPart::Nothing));
        let messages = plain(led, Some(&tools));
        assert_eq!(messages.len(), 4);
        assert!(messages[0].1.starts_with("Be brief.\n\nYou can call functions."));
    }

    #[test]
    fn a_template_gets_calls_as_objects_and_results_with_the_names_of_their_calls() {
        let found = fields(&talk(), None, ToolCallForm::Hermes);
        let parsed =
            |number: usize| -> Value { serde_json::from_str(&found.messages[&number]).expect("JSON") };
        assert_eq!(found.messages.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(parsed(1)["tool_calls"][1]["function"]["arguments"]["n"], json!([1, 2]));
        assert_eq!(parsed(3), json!({"role": "tool", "tool_call_id": "y", "name": "find"}));
        let found = fields(&talk(), None, ToolCallForm::Mistral);
        let parsed =
            |number: usize| -> Value { serde_json::from_str(&found.messages[&number]).expect("JSON") };
        let id = parsed(1)["tool_calls"][0]["id"].as_str().expect("a text").to_owned();
        assert_eq!((id.len(), &parsed(2)["tool_call_id"]), (MISTRAL_ID_CHARS, &json!(id)));
    }
}
