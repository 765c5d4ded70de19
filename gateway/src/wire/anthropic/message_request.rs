//! The request of `/v1/messages`, rewritten as the chat that it stands for.

use base::PromptEnd;
use serde_json::{Map, Value, json};
use serving::error::RequestError;

use super::without_effect::{take_context_management, take_thinking};
use crate::json::JsonFields;
use crate::wire::ValidationContext;
use crate::wire::openai::{ChatRequest, LeftOut, chat, legacy_functions, prompt_reply, token_ids};

/// What is left out of a conversation: it is no part of what a model here was told.
const UNSAID: [&str; 2] = ["thinking", "redacted_thinking"];

/// Reads the fields of a request as a chat. `needs_limit`: whether it must say how much may be said.
pub fn chat_of(
    mut fields: JsonFields,
    needs_limit: bool,
    context: ValidationContext<'_>,
) -> Result<ChatRequest, RequestError> {
    match fields.copy("max_tokens") {
        None if needs_limit => return fields.bad("max_tokens", "is required"),
        _ => {}
    }
    for (field, reason) in [
        ("mcp_servers", "are not called by this server"),
        ("container", "is not supported: this server runs no code"),
    ] {
        if fields.take(field).is_some_and(|value| value != json!([])) {
            return fields.bad(field, reason);
        }
    }
    let mut left = LeftOut::new(context.unknown_fields);
    take_context_management(&mut fields, &mut left)?;
    take_thinking(&mut fields, &mut left)?;
    token_ids::refuse(&mut fields)?;
    prompt_reply::refuse(&mut fields)?;
    legacy_functions::refuse(&fields)?;
    chat::refuse_echo(&mut fields)?;
    // How hard to try, and how fast: wishes that change nothing here.
    fields.take("inference_geo");
    fields.take("speed");
    let (messages, is_begun) = messages(&mut fields, &mut left)?;
    fields.insert("messages", messages);
    // Who says that it is not to be gone on with gets the next answer.
    let continues = chat::field_of(PromptEnd::Text);
    if is_begun && fields.copy(continues).is_none() {
        fields.insert(continues, true.into());
    }
    if let Some(stops) = fields.take("stop_sequences") {
        fields.insert("stop", stops);
    }
    take_tools(&mut fields, &mut left)?;
    take_format(&mut fields, &mut left)?;
    if fields.copy("stream") == Some(Value::Bool(true)) {
        fields.insert("stream_options", json!({"include_usage": true}));
    }
    let mut chat = ChatRequest::read(fields, context).map_err(renamed)?;
    left.names.append(&mut chat.ignored);
    Ok(ChatRequest { ignored: left.names, ..chat })
}

/// The same error with the field's name on this route.
fn renamed(error: RequestError) -> RequestError {
    let RequestError::Invalid { field, reason } = error else { return error };
    // A message may have become several: places of those are no places of the request.
    if field.starts_with("messages[") {
        return RequestError::invalid("messages", reason);
    }
    let field = if field.starts_with("tools[") {
        field.replace(".function.parameters", ".input_schema").replace(".function.", ".")
    } else {
        field
    };
    let named = [("stop", "stop_sequences"), ("response_format.json_schema", "output_config.format")];
    let found = named.iter().find_map(|(chat, here)| {
        let rest = field.strip_prefix(chat)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{here}{rest}"))
    });
    RequestError::invalid(found.unwrap_or(field), reason)
}

/// Takes `system` and `messages`: the messages of a chat, and whether the last of them is an answer that has begun.
fn messages(fields: &mut JsonFields, left: &mut LeftOut) -> Result<(Value, bool), RequestError> {
    let mut messages = Vec::new();
    match fields.take("system") {
        None => {}
        Some(Value::String(text)) => messages.push(json!({"role": "system", "content": text})),
        Some(Value::Array(blocks)) => {
            let texts: Result<Vec<Value>, RequestError> = blocks
                .into_iter()
                .enumerate()
                .map(|(place, block)| text_part(&format!("system[{place}]"), block, left))
                .collect();
            messages.push(json!({"role": "system", "content": texts?}));
        }
        Some(_) => return fields.bad("system", "must be a string or an array of text blocks"),
    }
    let Some(items) = fields.array("messages")? else { return fields.bad("messages", "is required") };
    let is_begun = items.last().is_some_and(|last| last["role"] == "assistant");
    for (place, item) in items.into_iter().enumerate() {
        message(&format!("messages[{place}]"), item, &mut messages, left)?;
    }
    let is_answer = |last: &&Value| is_begun && last["role"] == "assistant";
    // An answer of which nothing is said yet has not begun: one before it may have.
    let is_blank = |last: &Value| last["tool_calls"].is_null() && says_nothing(last);
    while messages.last().filter(is_answer).is_some_and(is_blank) {
        messages.pop();
    }
    let last = messages.last().filter(is_answer);
    if last.is_some_and(|last| !last["tool_calls"].is_null()) {
        return fields.bad("messages", "must not end with a call of a tool: what comes of it is not there");
    }
    let is_begun = last.is_some();
    Ok((Value::Array(messages), is_begun))
}

/// Whether a message has no text.
fn says_nothing(message: &Value) -> bool {
    let is_blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    match message["content"].as_array() {
        Some(parts) => parts.iter().all(|part| is_blank(&part["text"])),
        None => is_blank(&message["content"]),
    }
}

/// Adds what a message says, calls and answers.
fn message(
    name: &str,
    item: Value,
    messages: &mut Vec<Value>,
    left: &mut LeftOut,
) -> Result<(), RequestError> {
    let mut fields = JsonFields::nested(name, item)?;
    let role = match fields.string("role")?.as_deref() {
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("system") => "system",
        Some(_) => return fields.bad("role", "must be user, assistant or system"),
        None => return fields.bad("role", "is required"),
    };
    let blocks = match fields.require("content")? {
        Value::String(text) => {
            left.finish(fields)?;
            messages.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        _ => return fields.bad("content", "must be a string or an array of blocks"),
    };
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for (place, block) in blocks.into_iter().enumerate() {
        let name = fields.name(&format!("content[{place}]"));
        match block["type"].as_str() {
            Some("text") => texts.push(text_part(&name, block, left)?),
            Some("tool_use") if role == "assistant" => calls.push(call(&name, block, left)?),
            Some("tool_result") if role == "user" => {
                // What was said before it stands before it.
                if !texts.is_empty() {
                    messages.push(json!({"role": role, "content": std::mem::take(&mut texts)}));
                }
                messages.push(result(&name, block, left)?);
            }
            Some(kind) if UNSAID.contains(&kind) => {}
            Some(_) => {
                let reason = "must be text, an assistant's tool_use or a user's tool_result";
                return Err(RequestError::invalid(format!("{name}.type"), reason));
            }
            None => return Err(RequestError::invalid(format!("{name}.type"), "is required")),
        }
    }
    left.finish(fields)?;
    if !calls.is_empty() {
        messages.push(json!({"role": role, "content": texts, "tool_calls": calls}));
    } else if !texts.is_empty() {
        messages.push(json!({"role": role, "content": texts}));
    }
    Ok(())
}

/// A block of text as a part of a chat's message.
fn text_part(name: &str, block: Value, left: &mut LeftOut) -> Result<Value, RequestError> {
    let mut fields = JsonFields::nested(name, block)?;
    match fields.string("type")?.as_deref() {
        Some("text") => {}
        _ => return fields.bad("type", "must be text: only text is supported"),
    }
    let Some(text) = fields.string("text")? else { return fields.bad("text", "is required") };
    for hint in ["cache_control", "citations"] {
        fields.take(hint);
    }
    left.finish(fields)?;
    Ok(json!({"type": "text", "text": text}))
}

/// A call that the assistant made, as a chat has it.
fn call(name: &str, block: Value, left: &mut LeftOut) -> Result<Value, RequestError> {
    let mut fields = JsonFields::nested(name, block)?;
    for hint in ["type", "cache_control", "caller"] {
        fields.take(hint);
    }
    let Some(id) = fields.string("id")? else { return fields.bad("id", "is required") };
    let Some(tool) = fields.string("name")? else { return fields.bad("name", "is required") };
    let input = match fields.take("input") {
        None => Value::Object(Map::new()),
        Some(input @ Value::Object(_)) => input,
        Some(_) => return fields.bad("input", "must be an object"),
    };
    left.finish(fields)?;
    Ok(json!({"id": id, "type": "function", "function": {"name": tool, "arguments": input}}))
}

/// What came of a call, as a chat has it.
fn result(name: &str, block: Value, left: &mut LeftOut) -> Result<Value, RequestError> {
    let mut fields = JsonFields::nested(name, block)?;
    for hint in ["type", "cache_control"] {
        fields.take(hint);
    }
    let Some(id) = fields.string("tool_use_id")? else { return fields.bad("tool_use_id", "is required") };
    let is_error = fields.bool("is_error")?.unwrap_or(false);
    let mut parts = match fields.take("content") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) => blocks
            .into_iter()
            .enumerate()
            .map(|(place, block)| text_part(&format!("{name}.content[{place}]"), block, left))
            .collect::<Result<Vec<Value>, RequestError>>()?,
        Some(_) => return fields.bad("content", "must be a string or an array of text blocks"),
    };
    left.finish(fields)?;
    // Models were trained on results that say so themselves.
    if is_error {
        parts.insert(0, json!({"type": "text", "text": "Error: "}));
    }
    Ok(json!({"role": "tool", "tool_call_id": id, "content": parts}))
}

/// Takes `tools` and `tool_choice`, and leaves those of a chat in their places.
fn take_tools(fields: &mut JsonFields, left: &mut LeftOut) -> Result<(), RequestError> {
    let mut tools = Vec::new();
    for (place, tool) in fields.array("tools")?.unwrap_or_default().into_iter().enumerate() {
        let mut tool = JsonFields::nested(fields.name(&format!("tools[{place}]")), tool)?;
        match tool.string("type")?.as_deref() {
            None | Some("custom") => {}
            Some(_) => return tool.bad("type", "must be custom: this server runs no tools of its own"),
        }
        for hint in
            ["cache_control", "eager_input_streaming", "defer_loading", "input_examples", "allowed_callers"]
        {
            tool.take(hint);
        }
        let mut function = Map::new();
        for (here, chat) in [("name", "name"), ("description", "description"), ("strict", "strict")] {
            function.extend(tool.take(here).map(|value| (chat.to_owned(), value)));
        }
        function.insert("parameters".into(), tool.require("input_schema")?);
        left.finish(tool)?;
        tools.push(json!({"type": "function", "function": function}));
    }
    let Some(choice) = fields.take("tool_choice") else {
        fields.insert("tools", Value::Array(tools));
        return Ok(());
    };
    let mut choice = JsonFields::nested("tool_choice", choice)?;
    let of_chat = match choice.string("type")?.as_deref() {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => {
            let Some(name) = choice.string("name")? else { return choice.bad("name", "is required") };
            if tools.iter().all(|tool| tool["function"]["name"] != name.as_str()) {
                return choice.bad("name", format!("`tools` has no `{name}`"));
            }
            json!({"type": "function", "function": {"name": name}})
        }
        _ => return choice.bad("type", "must be auto, any, tool or none"),
    };
    if choice.bool("disable_parallel_tool_use")? == Some(true) {
        fields.insert("parallel_tool_calls", false.into());
    }
    left.finish(choice)?;
    fields.insert("tools", Value::Array(tools));
    fields.insert("tool_choice", of_chat);
    Ok(())
}

/// Takes the form of the answer, under both names that it has had, and leaves that of a chat.
fn take_format(fields: &mut JsonFields, left: &mut LeftOut) -> Result<(), RequestError> {
    let mut format = fields.take("output_format").map(|format| ("output_format".to_owned(), format));
    if let Some(config) = fields.take("output_config") {
        let mut config = JsonFields::nested("output_config", config)?;
        // How hard to try: a wish that changes nothing here.
        config.take("effort");
        let name = config.name("format");
        format = config.take("format").map(|format| (name, format)).or(format);
        left.finish(config)?;
    }
    let Some((name, format)) = format else { return Ok(()) };
    let mut format = JsonFields::nested(name, format)?;
    match format.string("type")?.as_deref() {
        Some("json_schema") => {}
        _ => return format.bad("type", "must be json_schema"),
    }
    let schema = format.require("schema")?;
    left.finish(format)?;
    let json_schema = json!({"name": "output", "schema": schema, "strict": true});
    fields.insert("response_format", json!({"type": "json_schema", "json_schema": json_schema}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::Role;

    use super::*;
    use crate::config::{LimitsConfig, UnknownFields};
    use crate::json;
    use crate::wire::openai::tests::with_context;
    use crate::wire::openai::{ToolChoice, ToolPart};

    fn read(body: &str) -> Result<ChatRequest, RequestError> {
        let fields = json::object(body.as_bytes())?;
        with_context(&LimitsConfig::default(), |context| chat_of(fields, true, context))
    }

    #[test]
    fn blocks_are_the_messages_of_a_chat_in_their_order() {
        let chat = read(
            r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
                "stop_sequences":["x"],"tools":[{"name":"f","description":"finds","input_schema":{"type":"object"}}],
                "tool_choice":{"type":"any","disable_parallel_tool_use":true},
                "messages":[{"role":"user","content":"a"},
                {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I look."},
                    {"type":"tool_use","id":"t1","name":"f","input":{"x":1}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,
                    "content":[{"type":"text","text":"lost"}]},{"type":"text","text":"Go on."}]}]}"#,
        );
        let chat = chat.expect("valid");
        let said: Vec<_> = chat.messages.iter().map(|m| (m.role, m.content.as_str())).collect();
        let expected = [
            (Role::System, "Be brief."),
            (Role::User, "a"),
            (Role::Assistant, "I look."),
            (Role::User, "Error: lost"),
            (Role::User, "Go on."),
        ];
        assert_eq!(said, expected);
        let ToolPart::Calls(calls) = &chat.messages[2].tool else { panic!("a call") };
        assert_eq!((calls[0].id.as_str(), &calls[0].arguments["x"]), ("t1", &serde_json::json!(1)));
        assert_eq!(chat.messages[3].tool, ToolPart::Result { call_id: "t1".into(), name: None });
        let tools = chat.tools.expect("tools");
        assert_eq!((tools.choice, tools.is_parallel), (ToolChoice::Required, false));
        assert_eq!(tools.tools[0].json["function"]["description"], "finds");
        assert_eq!((chat.common.max_tokens, chat.ignored.len()), (Some(5), 0));
    }

    #[test]
    fn an_answer_that_has_begun_is_continued_and_one_of_which_nothing_is_said_is_not() {
        let read_with = |last: &str, more: &str| {
            let chat = read(&format!(
                r#"{{"max_tokens":5{more},"messages":[{{"role":"user","content":"a"}},{{"role":"assistant","content":{last}}}]}}"#
            ));
            let chat = chat.expect("valid");
            (chat.messages.len(), chat.end)
        };
        let read = |last: &str| read_with(last, "");
        assert_eq!(read(r#""{""#), (2, PromptEnd::Text));
        let thought = r#"[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"b"}]"#;
        assert_eq!(read(thought), (2, PromptEnd::Text));
        for nothing in [r#""""#, r#"" \n""#, "[]", r#"[{"type":"text","text":" "}]"#] {
            assert_eq!(read(nothing), (1, PromptEnd::Answer), "{nothing}");
            // What has begun before it is the last message then.
            let behind = format!(r#""x"}},{{"role":"assistant","content":{nothing}"#);
            assert_eq!(read(&behind), (2, PromptEnd::Text), "{nothing}");
        }
        for (more, end) in [
            (r#","continue_final_message":false"#, PromptEnd::Answer),
            (r#","continue_final_message":null"#, PromptEnd::Text),
            (r#","continue_final_message":false,"add_generation_prompt":false"#, PromptEnd::Message),
        ] {
            assert_eq!(read_with(r#""x""#, more), (2, end), "{more}");
        }
    }

    #[test]
    fn what_is_unknown_anywhere_is_told_by_the_name_that_it_has_here() {
        let body = r#"{"max_tokens":5,"strange":1,"system":[{"type":"text","text":"s","a":1}],
            "tools":[{"name":"f","input_schema":{"type":"object"},"b":1}],"tool_choice":{"type":"none","c":1},
            "messages":[{"role":"user","content":[{"type":"text","text":"a","d":1}],"e":1},
                {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{},"g":1}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x","h":1}]}]}"#;
        let fields = json::object(body.as_bytes()).expect("an object");
        let chat = with_context(&LimitsConfig::default(), |context| {
            let context = ValidationContext { unknown_fields: UnknownFields::Warn, ..context };
            chat_of(fields, true, context)
        });
        let told = [
            "system[0].a",
            "messages[0].content[0].d",
            "messages[0].e",
            "messages[1].content[0].g",
            "messages[2].content[0].h",
            "tools[0].b",
            "tool_choice.c",
            "strange",
        ];
        assert_eq!(chat.expect("valid").ignored, told);
    }

    #[test]
    fn what_is_wrong_has_the_name_that_it_has_here() {
        let ask = r#""max_tokens":5,"messages":[{"role":"user","content":"a"}]"#;
        for (body, blamed) in [
            (r#"{"messages":[{"role":"user","content":"a"}]}"#.to_owned(), "max_tokens"),
            (r#"{"max_tokens":5}"#.to_owned(), "messages"),
            (r#"{"max_tokens":5,"messages":[]}"#.to_owned(), "messages"),
            (r#"{"max_tokens":5,"messages":[{"role":"assistant","content":" "}]}"#.to_owned(), "messages"),
            (
                r#"{"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":
                    [{"type":"tool_use","id":"t","name":"f","input":{}}]}]}"#
                    .to_owned(),
                "messages",
            ),
            (format!(r#"{{{ask},"echo":true}}"#), "echo"),
            (r#"{"max_tokens":5,"messages":[{"role":"root","content":"a"}]}"#.to_owned(), "messages[0].role"),
            (r#"{"max_tokens":5,"messages":[{"role":"user"}]}"#.to_owned(), "messages[0].content"),
            (
                r#"{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]}"#.to_owned(),
                "messages[0].content[0].type",
            ),
            (
                r#"{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","content":"a"}]}]}"#
                    .to_owned(),
                "messages[0].content[0].tool_use_id",
            ),
            (format!(r#"{{{ask},"system":7}}"#), "system"),
            (format!(r#"{{{ask},"stop_sequences":[1]}}"#), "stop_sequences"),
            (format!(r#"{{{ask},"thinking":{{"type":"enabled","budget_tokens":9}}}}"#), "thinking"),
            (
                format!(r#"{{{ask},"context_management":{{"edits":[{{"type":"clear_tool_uses_20250919"}}]}}}}"#),
                "context_management",
            ),
            (format!(r#"{{{ask},"context_management":"none"}}"#), "context_management"),
            (
                r#"{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}]}]}"#
                    .to_owned(),
                "messages[0].content[0].x",
            ),
            (format!(r#"{{{ask},"tools":[{{"name":"f"}}]}}"#), "tools[0].input_schema"),
            (format!(r#"{{{ask},"tools":[{{"name":"a b","input_schema":{{}}}}]}}"#), "tools[0].name"),
            (format!(r#"{{{ask},"tools":[{{"type":"bash_20250124","name":"bash"}}]}}"#), "tools[0].type"),
            (format!(r#"{{{ask},"tool_choice":{{"type":"tool","name":"g"}}}}"#), "tool_choice.name"),
            (format!(r#"{{{ask},"output_config":{{"format":{{"type":"xml"}}}}}}"#), "output_config.format.type"),
            (format!(r#"{{{ask},"temperature":3}}"#), "temperature"),
        ] {
            match read(&body) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }
}
