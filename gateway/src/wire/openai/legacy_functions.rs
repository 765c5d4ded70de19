//! Functions of a conversation as OpenAI had them before tools: `functions`, `function_call`, and messages of role
//! `function`. They are read as tools; replies tell the one call that such an answer may have as `function_call`.

use serde_json::{Value, json};
use serving::error::RequestError;

use super::tools::{self, Tool, ToolCall, ToolChoice, ToolRequest};
use crate::json::JsonFields;

const FUNCTIONS: &str = "functions";
/// Of a request: whether one is called. Of an assistant's message: the call.
const CALL: &str = "function_call";

/// Takes `functions` and `function_call` of a request. None where nothing can be called so.
pub(super) fn take(fields: &mut JsonFields) -> Result<Option<ToolRequest>, RequestError> {
    let items = fields.array(FUNCTIONS)?.unwrap_or_default();
    let choice = fields.take(CALL);
    let has_tools = fields.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty());
    if has_tools && !items.is_empty() {
        return fields.bad(FUNCTIONS, "cannot stand beside `tools`, its successor");
    }
    let tools = tools::read_each(fields, (FUNCTIONS, "name"), items, function)?;
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Value::String(word)) if word == "auto" => ToolChoice::Auto,
        Some(Value::String(word)) if word == "none" => return Ok(None),
        Some(named @ Value::Object(_)) => {
            let mut named = JsonFields::nested(fields.name(CALL), named)?;
            match named.string("name")? {
                Some(name) if tools.iter().any(|tool| tool.name == name) => ToolChoice::Named(name),
                Some(name) => return named.bad("name", format!("`functions` has no `{name}`")),
                None => return named.bad("name", "is required"),
            }
        }
        Some(_) => return fields.bad(CALL, "must be none, auto, or an object that names a function"),
    };
    let asked = ToolRequest { tools, choice, is_parallel: false, is_legacy: true };
    Ok((!asked.tools.is_empty()).then_some(asked))
}

/// Refuses functions on a route whose replies have no place for their calls.
pub(crate) fn refuse(fields: &JsonFields) -> Result<(), RequestError> {
    match fields.get(FUNCTIONS) {
        Some(Value::Array(functions)) if !functions.is_empty() => {
            fields.bad(FUNCTIONS, "is for chats alone: its successor is `tools`")
        }
        _ => Ok(()),
    }
}

fn function(path: String, value: Value) -> Result<Tool, RequestError> {
    let json = json!({"type": "function", "function": value});
    Tool::of_function(JsonFields::nested(path, value)?, json)
}

/// Takes an assistant's `function_call`. `index`: of its message.
pub(super) fn take_call(fields: &mut JsonFields, index: usize) -> Result<Option<ToolCall>, RequestError> {
    // One that is empty stays: it changes nothing.
    let is_made = fields.get(CALL).and_then(Value::as_object).is_some_and(|call| !call.is_empty());
    if !is_made {
        return Ok(None);
    }
    let call = JsonFields::nested(fields.name(CALL), fields.require(CALL)?)?;
    tools::read_call(call, call_id(index)).map(Some)
}

/// An id for the call of a message, which has none.
pub(super) fn call_id(index: usize) -> String {
    format!("call_{index}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;
    use crate::wire::openai::{ChatRequest, ToolPart};

    fn read(more: Value) -> Result<ChatRequest, RequestError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let fields = json::object(body.to_string().as_bytes())?;
        with_context(&LimitsConfig::default(), |context| ChatRequest::read(fields, context))
    }

    #[test]
    fn functions_are_tools_of_which_an_answer_calls_one() {
        let functions = json!([{"name": "f", "parameters": {"type": "object"}}, {"name": "g"}]);
        let asked = |choice: Value| {
            read(json!({"functions": functions, "function_call": choice})).expect("valid").tools
        };
        let tools = asked(Value::Null).expect("tools");
        assert_eq!((tools.choice, tools.is_parallel, tools.is_legacy), (ToolChoice::Auto, false, true));
        let names: Vec<_> = tools.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["f", "g"]);
        assert_eq!(tools.tools[1].json, json!({"type": "function", "function": {"name": "g"}}));
        assert_eq!(asked(json!("auto")).expect("tools").choice, ToolChoice::Auto);
        assert_eq!(asked(json!({"name": "g"})).expect("tools").choice, ToolChoice::Named("g".into()));
        assert_eq!(asked(json!("none")), None);
        assert_eq!(read(json!({"functions": [], "function_call": "auto"})).expect("valid").tools, None);
    }

    #[test]
    fn what_came_of_a_function_is_of_the_call_before_it() {
        let call = |name: &str| json!({"role": "assistant", "content": null, "function_call": {"name": name, "arguments": "{\"x\": 1}"}});
        let result = |name: &str| json!({"role": "function", "name": name, "content": "r"});
        let messages = json!([call("f"), result("f"), call("g"), result("g")]);
        let messages = read(json!({ "messages": messages })).expect("valid").messages;
        let ids: Vec<(&str, &str)> = messages
            .iter()
            .map(|message| match &message.tool {
                ToolPart::Calls(calls) => (calls[0].id.as_str(), calls[0].name.as_str()),
                ToolPart::Result { call_id, name } => (call_id.as_str(), name.as_deref().expect("a name")),
                ToolPart::Nothing => panic!("it has to do with a function"),
            })
            .collect();
        assert_eq!(ids, [("call_0", "f"), ("call_0", "f"), ("call_2", "g"), ("call_2", "g")]);
        let ToolPart::Calls(calls) = &messages[0].tool else { panic!("a call") };
        assert_eq!(Value::from(calls[0].arguments.clone()), json!({"x": 1}));
    }

    #[test]
    fn what_is_wrong_with_functions_is_named_by_its_path() {
        let function = json!({"name": "f"});
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let call = json!({"name": "f", "arguments": "{}"});
        let said = |message: Value| json!({ "messages": [message] });
        for (more, blamed) in [
            (json!({"functions": {}}), "functions"),
            (json!({"functions": [{}]}), "functions[0].name"),
            (json!({"functions": [function, function]}), "functions[1].name"),
            (json!({"functions": [{"name": "f", "parameters": 7}]}), "functions[0].parameters"),
            (json!({"functions": vec![function.clone(); 129]}), "functions"),
            (json!({"functions": [function], "tools": [tool]}), "functions"),
            (json!({"functions": [function], "function_call": {"name": "z"}}), "function_call.name"),
            (json!({"functions": [function], "function_call": {}}), "function_call.name"),
            (json!({"functions": [function], "function_call": "must"}), "function_call"),
            (json!({"function_call": {"name": "f"}}), "function_call.name"),
            (said(json!({"role": "function", "content": "r"})), "messages[0].name"),
            (said(json!({"role": "function", "name": "f"})), "messages[0].content"),
            (
                said(json!({"role": "user", "content": "a", "function_call": call})),
                "messages[0].function_call",
            ),
            (
                said(json!({"role": "assistant", "function_call": {"arguments": "{}"}})),
                "messages[0].function_call.name",
            ),
            (
                said(json!({"role": "assistant", "function_call": call, "tool_calls": [tool]})),
                "messages[0].function_call",
            ),
        ] {
            match read(more.clone()) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{more}"),
                other => panic!("{more} gave {other:?}"),
            }
        }
    }
}
