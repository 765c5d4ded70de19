//! The request of `/v1/responses`, read as the chat that it stands for.

use base::PromptEnd;
use serde::Serialize;
use serde_json::{Map, Value, json};
use serving::error::RequestError;
use utoipa::ToSchema;

use super::Common;
use super::chat::{self, ChatRequest};
use super::logprobs::TOP_MAX;
use super::prompt_reply;
use super::token_ids;
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// A body of `/v1/responses`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseRequest {
    /// What is run.
    pub chat: ChatRequest,
    /// What its reply repeats.
    pub echo: ResponseEcho,
    /// The whole conversation before the answer, where the response is to be kept.
    pub conversation: Option<Vec<Value>>,
}

/// The response that a request goes on from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreviousResponse {
    /// Its conversation: what was sent, and its answer.
    pub items: Vec<Value>,
}

/// What a response repeats of its request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ResponseEcho {
    /// What stood before the conversation.
    pub instructions: Option<String>,
    /// The output limit, where the request names one.
    pub max_output_tokens: Option<u64>,
    /// The caller's notes.
    #[schema(value_type = Object)]
    pub metadata: Value,
    /// In force.
    pub temperature: f32,
    /// In force.
    pub top_p: f32,
    /// The form of the answer, as it was asked for.
    #[schema(value_type = Object)]
    pub text: Value,
    /// For whom the caller asks.
    pub user: Option<String>,
    /// What may be called, as it was sent.
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    /// Whether something must be called, as it was sent.
    pub tool_choice: Value,
    /// Whether one answer may hold several calls.
    pub parallel_tool_calls: bool,
    /// The response that this one goes on from.
    pub previous_response_id: Option<String>,
    /// Whether it is kept, so that another may go on from it.
    pub store: bool,
    /// Whether it runs while nobody waits.
    pub background: bool,
    /// Whether it is told how likely its tokens are; it is not repeated.
    #[serde(skip)]
    pub has_logprobs: bool,
}

/// Fields whose meaning this server has no part in, whatever they hold.
const HINTS: [&str; 1] = ["reasoning"];

/// Names the response that a request goes on from.
pub const PREVIOUS: &str = "previous_response_id";

/// What may be asked for beside the answer: how likely its tokens are. All else that OpenAI lists is of tools and files.
const LOGPROBS: &str = "message.output_text.logprobs";

impl ResponseRequest {
    /// Reads and checks the fields. `previous`: the response that they name; `stores`: whether one is kept whose request
    /// does not say.
    pub fn read(
        mut fields: JsonFields,
        (previous, stores): (Option<PreviousResponse>, bool),
        context: ValidationContext<'_>,
    ) -> Result<Self, RequestError> {
        refuse_stored(&mut fields)?;
        let background = fields.bool("background")?.unwrap_or(false);
        refuse_unknown(&mut fields)?;
        take_include(&mut fields)?;
        let instructions = fields.string("instructions")?;
        let previous_response_id = fields.string(PREVIOUS)?;
        if previous_response_id.is_some() && previous.is_none() {
            return fields.bad(PREVIOUS, "is not looked up here: send the conversation in `input`");
        }
        let store = fields.bool("store")?.unwrap_or(stores || background);
        if background && !store {
            return fields.bad("background", "background can only be used when `store` is true");
        }
        let input = items_of(fields.require("input")?)?;
        let earlier = previous.unwrap_or_default().items;
        let conversation = store.then(|| earlier.iter().chain(&input).cloned().map(as_listed).collect());
        fields.insert("messages", messages(instructions.as_deref(), (earlier, input))?);
        let limit = fields.take("max_output_tokens");
        let max_output_tokens = limit.as_ref().and_then(Value::as_u64);
        fields.insert("max_completion_tokens", limit.unwrap_or_default());
        let text = take_text(&mut fields)?;
        let metadata = fields.copy("metadata").unwrap_or_else(|| json!({}));
        if !metadata.is_object() {
            return fields.bad("metadata", "must be an object");
        }
        let user = fields.text("user").map(str::to_owned);
        let tools = take_tools(&mut fields)?;
        let tool_choice = take_tool_choice(&mut fields);
        let parallel_tool_calls =
            fields.copy("parallel_tool_calls").is_none_or(|value| value != Value::Bool(false));
        let chat = ChatRequest::read(fields, context).map_err(renamed)?;
        if chat.common.n != 1 {
            return Err(RequestError::invalid("n", "must be 1: a response has one answer"));
        }
        if background {
            refuse_waiting(&chat.common)?;
        }
        if store && chat.end == PromptEnd::Text {
            let reason = "needs `store` false: what is kept has an answer as a message of its own";
            return Err(RequestError::invalid(chat::field_of(chat.end), reason));
        }
        let generation = &chat.common.sampling.generation;
        let (temperature, top_p) = (generation.temperature, generation.top_p);
        let echo = ResponseEcho {
            instructions,
            max_output_tokens,
            metadata,
            temperature,
            top_p,
            text,
            user,
            tools,
            tool_choice,
            parallel_tool_calls,
            previous_response_id,
            store,
            background,
            has_logprobs: generation.logprobs.is_some(),
        };
        Ok(Self { chat, echo, conversation })
    }
}

/// Refuses the names of what OpenAI stores and this server does not.
fn refuse_stored(fields: &mut JsonFields) -> Result<(), RequestError> {
    for (field, reason) in [
        ("conversation", "conversations are not stored: send what was said in `input`"),
        ("prompt", "prompt templates are not stored here"),
    ] {
        if fields.take(field).is_some() {
            return fields.bad(field, reason);
        }
    }
    Ok(())
}

/// Refuses what a response has no place for, and passes over what is a hint.
fn refuse_unknown(fields: &mut JsonFields) -> Result<(), RequestError> {
    token_ids::refuse(fields)?;
    prompt_reply::refuse(fields)?;
    chat::refuse_echo(fields)?;
    match fields.string("truncation")?.as_deref() {
        None | Some("disabled") => {}
        Some(_) => return fields.bad("truncation", "must be disabled: what does not fit is refused"),
    }
    for field in HINTS {
        fields.take(field);
    }
    Ok(())
}

/// Refuses what has no meaning where the work goes on whoever waits.
fn refuse_waiting(common: &Common) -> Result<(), RequestError> {
    match common.deadline {
        Some(_) => {
            Err(RequestError::invalid("deadline_ms", "has no meaning with `background`: nobody waits"))
        }
        None => Ok(()),
    }
}

/// Takes `include`, and leaves `logprobs` in its place where it asks for them. `top_logprobs` is without effect where
/// it does not.
fn take_include(fields: &mut JsonFields) -> Result<(), RequestError> {
    let items = fields.array("include")?.unwrap_or_default();
    if items.iter().any(|item| !item.is_string()) {
        return fields.bad("include", "must hold strings");
    }
    let asks = items.iter().any(|item| item == LOGPROBS);
    if !asks && fields.integer("top_logprobs", 0, TOP_MAX)?.is_some() {
        return Ok(());
    }
    if asks {
        fields.insert("logprobs", true.into());
    }
    Ok(())
}

/// The same error with the field's name on this route.
fn renamed(error: RequestError) -> RequestError {
    let RequestError::Invalid { field, reason } = error else { return error };
    let named = [
        ("messages", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
    ];
    // A tool's fields stand in the tool here.
    let field = if field.starts_with("tool") { field.replace(".function.", ".") } else { field };
    let found = named.iter().find_map(|(chat, here)| Some(format!("{here}{}", field.strip_prefix(chat)?)));
    RequestError::invalid(found.unwrap_or(field), reason)
}

/// Takes `text`, leaves a `response_format` in its place, and gives what was asked for.
fn take_text(fields: &mut JsonFields) -> Result<Value, RequestError> {
    let plain = json!({"format": {"type": "text"}});
    let Some(value) = fields.take("text") else { return Ok(plain) };
    let mut text = JsonFields::nested("text", value)?;
    text.take("verbosity");
    let format = text.take("format");
    text.finish()?;
    let Some(format) = format else { return Ok(plain) };
    let asked = json!({"format": format});
    let Value::Object(mut format) = format else {
        return Err(RequestError::invalid("text.format", "must be an object"));
    };
    if fields.take("response_format").is_some() {
        return fields.bad("response_format", "is `text.format` on this route: send one of them");
    }
    let kind = format.remove("type").unwrap_or_default();
    let is_schema = kind == "json_schema";
    let mut response_format = Map::new();
    response_format.insert("type".into(), kind);
    if is_schema {
        response_format.insert("json_schema".into(), Value::Object(format));
    } else {
        response_format.extend(format);
    }
    fields.insert("response_format", Value::Object(response_format));
    Ok(asked)
}

/// Takes `tools`, leaves those of a chat in their place, and gives what was asked for.
fn take_tools(fields: &mut JsonFields) -> Result<Vec<Value>, RequestError> {
    let tools = fields.array("tools")?.unwrap_or_default();
    let of_chat = |tool: &Value| match tool {
        Value::Object(flat) if tool["type"] == "function" => {
            let mut function = flat.clone();
            function.shift_remove("type");
            json!({"type": "function", "function": function})
        }
        other => other.clone(),
    };
    fields.insert("tools", tools.iter().map(of_chat).collect());
    Ok(tools)
}

/// Takes `tool_choice`, leaves that of a chat in its place, and gives what was asked for.
fn take_tool_choice(fields: &mut JsonFields) -> Value {
    let Some(choice) = fields.take("tool_choice") else { return json!("auto") };
    let named = |tool: &Value| match &tool["name"] {
        Value::Null => tool.clone(),
        name => json!({"type": tool["type"], "function": {"name": name}}),
    };
    let mut of_chat = named(&choice);
    if let Some(tools) = of_chat.get_mut("tools").and_then(Value::as_array_mut) {
        tools.iter_mut().for_each(|tool| *tool = named(tool));
    }
    fields.insert("tool_choice", of_chat);
    choice
}

/// The items that an input is.
fn items_of(input: Value) -> Result<Vec<Value>, RequestError> {
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
fn messages(
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
fn as_listed(mut item: Value) -> Value {
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
            let Some(name) = fields.string("name")? else { return fields.bad("name", "is required") };
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

#[cfg(test)]
mod tests {
    use base::Role;

    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;
    use crate::wire::openai::{ToolChoice, ToolPart};

    fn read(body: &str) -> Result<ResponseRequest, RequestError> {
        let fields = json::object(body.as_bytes())?;
        let previous = fields.text(PREVIOUS).filter(|id| *id != "resp-0").map(|_| PreviousResponse {
            items: vec![
                json!({"role": "user", "content": "before"}),
                json!({"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"}),
            ],
        });
        with_context(&LimitsConfig::default(), |context| {
            ResponseRequest::read(fields, (previous, false), context)
        })
    }

    #[test]
    fn instructions_and_input_are_a_conversation() {
        let request = read(
            r#"{"model":"m","instructions":"Be brief.","max_output_tokens":5,"temperature":0.5,"store":true,
                "metadata":{"team":"x"},"input":[{"role":"user","content":"a"},
                {"type":"reasoning","summary":[]},
                {"type":"message","id":"msg-1","status":"completed","role":"assistant",
                 "content":[{"type":"output_text","text":"b","annotations":[]}]},
                {"role":"user","content":[{"type":"input_text","text":"c"},{"type":"input_text","text":"d"}]}]}"#,
        );
        let ResponseRequest { chat, echo, conversation } = request.expect("valid");
        assert_eq!(conversation.map(|items| items.len()), Some(4));
        let said: Vec<_> = chat.messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        let expected =
            [(Role::System, "Be brief."), (Role::User, "a"), (Role::Assistant, "b"), (Role::User, "cd")];
        assert_eq!(said, expected);
        assert_eq!((chat.common.max_tokens, echo.max_output_tokens), (Some(5), Some(5)));
        assert_eq!((echo.temperature, &echo.metadata["team"]), (0.5, &serde_json::json!("x")));
        assert_eq!(echo.text["format"]["type"], "text");
    }

    #[test]
    fn tools_calls_and_results_are_those_of_a_chat() {
        let request = read(
            r#"{"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}],
                "tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,
                "input":[{"role":"user","content":"a"},{"role":"assistant","content":"I look."},
                {"type":"function_call","id":"fc-1","call_id":"c1","name":"f","arguments":"{\"x\":1}"},
                {"type":"function_call","call_id":"c2","name":"f","arguments":"{}"},
                {"type":"function_call_output","call_id":"c1","output":"one"},
                {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]}]}"#,
        );
        let ResponseRequest { chat, echo, .. } = request.expect("valid");
        let tools = chat.tools.expect("tools");
        assert_eq!((tools.choice, tools.is_parallel), (ToolChoice::Named("f".into()), false));
        assert_eq!(
            tools.tools[0].json["function"],
            serde_json::json!({"name": "f", "parameters": {"type": "object"}})
        );
        let said: Vec<_> = chat.messages.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(said, ["a", "I look.", "one", "two"]);
        let ToolPart::Calls(calls) = &chat.messages[1].tool else { panic!("calls") };
        assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(chat.messages[3].tool, ToolPart::Result { call_id: "c2".into(), name: None });
        assert_eq!((&echo.tools[0]["strict"], echo.parallel_tool_calls), (&serde_json::json!(true), false));
        let choose = |choice: &str| {
            let tools = r#""tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]"#;
            let request = read(&format!(r#"{{"input":"a",{tools},"tool_choice":{choice}}}"#)).expect("valid");
            request.chat.tools.map(|tools| (tools.choice, tools.tools.len()))
        };
        assert_eq!(choose("\"required\""), Some((ToolChoice::Required, 2)));
        assert_eq!(choose("\"none\""), None);
        let allowed = r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}"#;
        assert_eq!(choose(allowed), Some((ToolChoice::Auto, 1)));
    }

    #[test]
    fn a_request_goes_on_from_the_response_that_it_names() {
        let body = r#"{"input":[{"type":"function_call_output","call_id":"c0","output":"one"},
            {"role":"user","content":"and now?"}],"instructions":"Be brief.","previous_response_id":"resp-1"}"#;
        let asked = read(body).expect("valid");
        let said: Vec<_> = asked.chat.messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        let expected = [
            (Role::System, "Be brief."),
            (Role::User, "before"),
            (Role::Assistant, ""),
            (Role::User, "one"),
            (Role::User, "and now?"),
        ];
        assert_eq!(said, expected);
        assert_eq!(asked.echo.previous_response_id.as_deref(), Some("resp-1"));
        assert_eq!((asked.conversation, asked.echo.store), (None, false));
        let behind = read(&body.replacen('{', "{\"background\":true,", 1)).expect("valid");
        assert!(behind.echo.store && behind.echo.background && behind.conversation.is_some());
        let kept = read(&body.replacen('{', "{\"store\":true,", 1)).expect("valid");
        let kept = kept.conversation.expect("it is to be kept");
        let part = serde_json::json!([{"type": "input_text", "text": "before"}]);
        assert_eq!((kept.len(), &kept[0]["type"], &kept[0]["content"]), (4, &"message".into(), &part));
        assert_eq!(kept[2]["output"], "one");
    }

    #[test]
    fn a_message_is_continued_where_nothing_is_kept() {
        let asked = read(r#"{"input":"a","store":false,"continue_final_message":true}"#).expect("valid");
        assert_eq!((asked.chat.end, asked.conversation), (PromptEnd::Text, None));
    }

    #[test]
    fn log_probabilities_are_asked_for_by_what_is_included() {
        let logprobs = |more: &str| {
            let request = read(&format!("{{\"input\":\"a\"{more}}}")).expect("valid");
            let logprobs = request.chat.common.sampling.generation.logprobs;
            assert_eq!(request.echo.has_logprobs, logprobs.is_some(), "{more}");
            logprobs
        };
        assert_eq!(logprobs(r#","include":["message.output_text.logprobs"],"top_logprobs":3"#), Some(3));
        assert_eq!(logprobs(r#","include":["message.output_text.logprobs","x"]"#), Some(0));
        assert_eq!(logprobs(r#","include":["reasoning.encrypted_content"],"top_logprobs":3"#), None);
        assert_eq!(logprobs(""), None);
    }

    #[test]
    fn what_is_wrong_has_the_name_that_it_has_here() {
        for (body, blamed) in [
            (r#"{}"#, "input"),
            (r#"{"input":7}"#, "input"),
            (r#"{"input":" "}"#, "input"),
            (r#"{"input":[{"role":"tool","content":"a"}]}"#, "input[0].role"),
            (r#"{"input":[{"type":"file_search_call"}]}"#, "input[0].type"),
            (r#"{"input":[{"type":"function_call_output","output":"a"}]}"#, "input[0].call_id"),
            (r#"{"input":[{"type":"function_call_output","call_id":"c"}]}"#, "input[0].output"),
            (r#"{"input":"a","tools":[{"type":"function"}]}"#, "tools[0].name"),
            (r#"{"input":[{"role":"user","content":[{"type":"input_image"}]}]}"#, "input[0].content[0].type"),
            (r#"{"input":"a","max_output_tokens":0}"#, "max_output_tokens"),
            (r#"{"input":"a","previous_response_id":"resp-0"}"#, "previous_response_id"),
            (r#"{"input":"a","previous_response_id":1}"#, "previous_response_id"),
            (r#"{"input":"a","store":"yes"}"#, "store"),
            (r#"{"input":"a","background":true,"store":false}"#, "background"),
            (r#"{"input":"a","background":"yes"}"#, "background"),
            (r#"{"input":"a","background":true,"deadline_ms":9}"#, "deadline_ms"),
            (r#"{"input":"a","return_token_ids":true}"#, "return_token_ids"),
            (r#"{"input":"a","truncation":"auto"}"#, "truncation"),
            (r#"{"input":"a","tools":[{"type":"web_search"}]}"#, "tools[0].type"),
            (r#"{"input":"a","n":2}"#, "n"),
            (r#"{"input":"a","store":true,"continue_final_message":true}"#, "continue_final_message"),
            (r#"{"input":"a","background":true,"continue_final_message":true}"#, "continue_final_message"),
            (r#"{"input":"a","metadata":0}"#, "metadata"),
            (r#"{"input":"a","include":"all"}"#, "include"),
            (r#"{"input":"a","include":[1]}"#, "include"),
            (r#"{"input":"a","top_logprobs":21}"#, "top_logprobs"),
            (
                r#"{"input":"a","text":{"format":{"type":"text"}},"response_format":{"type":"text"}}"#,
                "response_format",
            ),
            (r#"{"input":"a","include":["message.output_text.logprobs"],"top_logprobs":-1}"#, "top_logprobs"),
            (r#"{"input":"a","text":{"format":{"type":"xml"}}}"#, "text.format.type"),
            (r#"{"input":"a","text":{"format":"xml"}}"#, "text.format"),
        ] {
            match read(body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }
}
