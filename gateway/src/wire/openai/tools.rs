//! Tools of a conversation as a request has them: what may be called, what must be, and what was.

use base::{Constraint, StructuralTag};
use serde_json::{Map, Value, json};
use serving::error::RequestError;

use super::constrained::close;
use crate::json::JsonFields;

/// Tools of one request, as OpenAI has it.
const TOOLS_MAX: usize = 128;
/// Calls of one answer that must have some.
const FORCED_CALLS_MAX: usize = 16;
/// Bytes of a tool's name.
const NAME_BYTES_MAX: usize = 128;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// JSON Schema of its arguments; objects in it have no properties but those that it names.
    pub parameters: Value,
    /// The tool as it was sent, for chat templates.
    pub json: Value,
}

/// Whether the model calls tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// At least one.
    Required,
    /// This one, once.
    Named(String),
}

/// What a request says of tools.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    /// Never empty.
    pub tools: Vec<Tool>,
    pub choice: ToolChoice,
    /// Whether several calls may stand in one answer.
    pub is_parallel: bool,
    /// Whether these are `functions`, whose calls are told as `function_call`.
    pub is_legacy: bool,
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// What a message has to do with tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolPart {
    #[default]
    Nothing,
    /// Calls that the assistant made beside what it said.
    Calls(Vec<ToolCall>),
    /// What came of a call.
    Result { call_id: String, name: Option<String> },
}

impl ToolRequest {
    /// Takes `tools`, `tool_choice` and `parallel_tool_calls`. None where nothing can be called.
    pub(super) fn take(fields: &mut JsonFields) -> Result<Option<Self>, RequestError> {
        let items = fields.array("tools")?.unwrap_or_default();
        let choice = fields.take("tool_choice");
        let parallel = fields.bool("parallel_tool_calls")?;
        let mut tools = read_each(fields, ("tools", "function.name"), items, Tool::read)?;
        let Some(choice) = read_choice(choice, &mut tools)? else { return Ok(None) };
        // A small model that must call does not know when it has called enough: several calls have to be asked for.
        let is_parallel = parallel.unwrap_or(choice == ToolChoice::Auto);
        match (tools.is_empty(), &choice) {
            (true, ToolChoice::Auto) => Ok(None),
            (true, _) => fields.bad("tool_choice", "asks for a call, and `tools` has none"),
            (false, _) => Ok(Some(Self { tools, choice, is_parallel, is_legacy: false })),
        }
    }

    /// The form of an answer that must be calls: an object, or also an array of objects where several may be. `key`:
    /// what arguments are called.
    pub fn forced(&self, key: &str) -> Constraint {
        let call = self.call_schema(key);
        let schema = match &self.choice {
            ToolChoice::Required if self.is_parallel => one_or_more(call),
            _ => call,
        };
        Constraint::JsonSchema(schema.to_string())
    }

    /// The form of an answer that may have calls between these marks. `otherwise`: the schema of one without.
    pub fn tagged(&self, (begin, end): (&str, &str), key: &str, otherwise: Option<String>) -> Constraint {
        Constraint::StructuralTag(Box::new(StructuralTag {
            begin: begin.to_owned(),
            schema: self.call_schema(key).to_string(),
            end: end.to_owned(),
            is_repeated: self.is_parallel,
            otherwise,
        }))
    }

    /// The form of an answer that is one call, or JSON of this schema. None where that is no JSON.
    pub fn or_answer(&self, key: &str, schema: &str) -> Option<Constraint> {
        let answer: Value = serde_json::from_str(schema).ok()?;
        let mut definitions = Map::new();
        for (name, mut schema) in [("call", self.call_schema(key)), ("answer", answer)] {
            move_references(&mut schema, &format!("#/$defs/{name}"));
            definitions.insert(name.to_owned(), schema);
        }
        let either = json!([{"$ref": "#/$defs/call"}, {"$ref": "#/$defs/answer"}]);
        Some(Constraint::JsonSchema(json!({"anyOf": either, "$defs": definitions}).to_string()))
    }

    /// JSON Schema of a call of one of the tools that may be called.
    fn call_schema(&self, key: &str) -> Value {
        let mut definitions = Map::new();
        let mut calls = Vec::new();
        for (number, tool) in self.tools.iter().enumerate() {
            if matches!(&self.choice, ToolChoice::Named(name) if *name != tool.name) {
                continue;
            }
            let mut parameters = tool.parameters.clone();
            if refers(&parameters) {
                let place = format!("tool{number}");
                move_references(&mut parameters, &format!("#/$defs/{place}"));
                let reference = json!({"$ref": format!("#/$defs/{place}")});
                definitions.insert(place, std::mem::replace(&mut parameters, reference));
            }
            calls.push(json!({
                "type": "object",
                "properties": {"name": {"const": tool.name}, key: parameters},
                "required": ["name", key],
                "additionalProperties": false,
            }));
        }
        let mut schema = if calls.len() == 1 { calls.remove(0) } else { json!({"anyOf": calls}) };
        if !definitions.is_empty() {
            schema["$defs"] = Value::Object(definitions);
        }
        schema
    }
}

/// Reads the tools of a field. `name`: where in a tool its name stands.
pub(super) fn read_each(
    fields: &JsonFields,
    (field, name): (&str, &str),
    items: Vec<Value>,
    read: impl Fn(String, Value) -> Result<Tool, RequestError>,
) -> Result<Vec<Tool>, RequestError> {
    if items.len() > TOOLS_MAX {
        return fields.bad(field, format!("has {} {field}; at most {TOOLS_MAX} are allowed", items.len()));
    }
    let mut tools: Vec<Tool> = Vec::with_capacity(items.len());
    for (place, item) in items.into_iter().enumerate() {
        let path = fields.name(&format!("{field}[{place}]"));
        let tool = read(path.clone(), item)?;
        if tools.iter().any(|other| other.name == tool.name) {
            let reason = format!("`{}` stands twice in `{field}`", tool.name);
            return Err(RequestError::invalid(format!("{path}.{name}"), reason));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// A call, or an array of several: a model that knows of one alone would not end an array.
fn one_or_more(mut call: Value) -> Value {
    let definitions = call.as_object_mut().and_then(|call| call.remove("$defs"));
    let several = json!({"type": "array", "items": call, "minItems": 2, "maxItems": FORCED_CALLS_MAX});
    let mut schema = json!({"anyOf": [call, several]});
    if let Some(definitions) = definitions {
        schema["$defs"] = definitions;
    }
    schema
}

/// Whether a schema refers to parts of itself.
fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => keywords.contains_key("$ref") || keywords.values().any(refers),
        Value::Array(schemas) => schemas.iter().any(refers),
        _ => false,
    }
}

/// Has a schema's references to itself lead to where it stands now.
fn move_references(schema: &mut Value, to: &str) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords.iter_mut() {
                match value {
                    Value::String(target) if keyword == "$ref" => {
                        if let Some(rest) = target.strip_prefix('#') {
                            *target = format!("{to}{rest}");
                        }
                    }
                    value => move_references(value, to),
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| move_references(schema, to)),
        _ => {}
    }
}

impl Tool {
    fn read(path: String, value: Value) -> Result<Self, RequestError> {
        let json = value.clone();
        let mut outer = JsonFields::nested(path, value)?;
        match outer.string("type")?.as_deref() {
            Some("function") => {}
            Some(_) => return outer.bad("type", "must be function: this server runs no tools of its own"),
            None => return outer.bad("type", "is required"),
        }
        let function = outer.require("function")?;
        Self::of_function(JsonFields::nested(outer.name("function"), function)?, json)
    }

    /// A function as a tool. `json`: the tool as chat templates get it.
    pub(super) fn of_function(mut function: JsonFields, mut json: Value) -> Result<Self, RequestError> {
        let Some(name) = function.string("name")? else { return function.bad("name", "is required") };
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_word) {
            let reason = format!(
                "must be 1 to {NAME_BYTES_MAX} letters, digits, underscores, hyphens, dots and colons"
            );
            return function.bad("name", reason);
        }
        function.string("description")?;
        function.bool("strict")?;
        let mut parameters = match function.take("parameters") {
            None => json!({"type": "object", "properties": {}}),
            Some(Value::Object(schema)) if schema.is_empty() => json!({"type": "object", "properties": {}}),
            Some(schema @ Value::Object(_)) => schema,
            Some(_) => return function.bad("parameters", "must be a JSON schema, an object"),
        };
        close(&mut parameters);
        // How it is kept to is nothing that a model is told.
        if let Some(function) = json["function"].as_object_mut() {
            function.shift_remove("strict");
        }
        Ok(Self { name, parameters, json })
    }
}

/// Reads `tool_choice`, which may leave some of the tools out. None: no tool may be called.
fn read_choice(choice: Option<Value>, tools: &mut Vec<Tool>) -> Result<Option<ToolChoice>, RequestError> {
    const FIELD: &str = "tool_choice";
    let bad = |reason: String| Err(RequestError::invalid(FIELD, reason));
    let mut choice = match choice {
        None => return Ok(Some(ToolChoice::Auto)),
        Some(Value::String(word)) => return of_word(&word),
        Some(choice) => JsonFields::nested(FIELD, choice)?,
    };
    let name_of = |fields: &mut JsonFields| -> Result<String, RequestError> {
        let function = fields.require("function")?;
        let mut function = JsonFields::nested(fields.name("function"), function)?;
        match function.string("name")? {
            Some(name) if tools.iter().any(|tool| tool.name == name) => Ok(name),
            Some(name) => function.bad("name", format!("`tools` has no `{name}`")),
            None => function.bad("name", "is required"),
        }
    };
    match choice.string("type")?.as_deref() {
        Some("function") => Ok(Some(ToolChoice::Named(name_of(&mut choice)?))),
        Some("allowed_tools") => {
            // Its fields stand in it, or in an object of that name.
            if let Some(inner) = choice.take("allowed_tools") {
                choice = JsonFields::nested(choice.name("allowed_tools"), inner)?;
            }
            let allowed = choice.array("tools")?.unwrap_or_default().into_iter().enumerate();
            let allowed: Result<Vec<String>, RequestError> = allowed
                .map(|(place, tool)| {
                    let name = choice.name(&format!("tools[{place}]"));
                    name_of(&mut JsonFields::nested(name, tool)?)
                })
                .collect();
            let allowed = allowed?;
            let mode = choice.string("mode")?;
            tools.retain(|tool| allowed.contains(&tool.name));
            of_word(mode.as_deref().unwrap_or("auto"))
        }
        _ => bad("must be none, auto, required, or an object of type function or allowed_tools".into()),
    }
}

fn of_word(word: &str) -> Result<Option<ToolChoice>, RequestError> {
    match word {
        "none" => Ok(None),
        "auto" => Ok(Some(ToolChoice::Auto)),
        "required" => Ok(Some(ToolChoice::Required)),
        _ => Err(RequestError::invalid(
            "tool_choice",
            "must be none, auto, required, or an object that names a function",
        )),
    }
}

/// Takes an assistant's `tool_calls`.
pub(super) fn take_calls(fields: &mut JsonFields) -> Result<Vec<ToolCall>, RequestError> {
    let items = fields.array("tool_calls")?.unwrap_or_default();
    let read = |(place, item)| {
        let mut outer = JsonFields::nested(fields.name(&format!("tool_calls[{place}]")), item)?;
        let id = outer.string("id")?.unwrap_or_default();
        let function = outer.require("function")?;
        read_call(JsonFields::nested(outer.name("function"), function)?, id)
    };
    items.into_iter().enumerate().map(read).collect()
}

/// A call of a function that has a name and arguments.
pub(super) fn read_call(mut function: JsonFields, id: String) -> Result<ToolCall, RequestError> {
    let Some(name) = function.string("name")? else { return function.bad("name", "is required") };
    let arguments = match function.take("arguments") {
        None => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(arguments)) => arguments,
            // A model that is held to nothing writes what it likes, and its calls come back as they were told.
            Ok(Value::Null) => Map::new(),
            _ => Map::from_iter([("raw".to_owned(), Value::String(text))]),
        },
        Some(_) => return function.bad("arguments", "must be the JSON text of an object"),
    };
    Ok(ToolCall { id, name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn take(body: Value) -> Result<Option<ToolRequest>, RequestError> {
        ToolRequest::take(&mut json::object(body.to_string().as_bytes())?)
    }

    fn tool(name: &str, parameters: Value) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    }

    fn schema(constraint: Constraint) -> Value {
        let Constraint::JsonSchema(text) = constraint else { panic!("a schema") };
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn a_choice_says_which_tools_may_and_which_must_be_called() {
        let tools = json!([tool("a", json!({})), tool("b", json!({"type": "object"}))]);
        let choose = |choice: Value| take(json!({"tools": tools, "tool_choice": choice})).expect("valid");
        assert_eq!(choose(json!("none")), None);
        assert_eq!(take(json!({"tools": []})).expect("valid"), None);
        assert_eq!(take(json!({"tools": tools})).expect("valid").expect("tools").choice, ToolChoice::Auto);
        let one = choose(json!("required")).expect("tools");
        assert_eq!(schema(one.forced("arguments"))["anyOf"].as_array().map(Vec::len), Some(2));
        assert_eq!(schema(one.forced("arguments"))["anyOf"][0]["type"], "object");
        let several = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": true});
        let required = take(several).expect("valid").expect("tools");
        assert_eq!((required.choice.clone(), required.tools.len()), (ToolChoice::Required, 2));
        let forced = schema(required.forced("arguments"));
        assert_eq!(forced["anyOf"][0]["anyOf"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&forced["anyOf"][1]["type"], &forced["anyOf"][1]["items"]),
            (&json!("array"), &forced["anyOf"][0])
        );
        let named = choose(json!({"type": "function", "function": {"name": "b"}})).expect("tools");
        let call = schema(named.forced("parameters"));
        assert_eq!(call["properties"]["name"], json!({"const": "b"}));
        assert_eq!(call["required"], json!(["name", "parameters"]));
        let only = json!({"type": "allowed_tools", "mode": "required",
            "tools": [{"type": "function", "function": {"name": "a"}}]});
        let only = choose(only).expect("tools");
        assert_eq!((only.tools.len(), only.choice), (1, ToolChoice::Required));
    }

    #[test]
    fn references_lead_to_where_the_parameters_stand() {
        let parameters = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}},
            "$defs": {"P": {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}}}}});
        let body = json!({"tools": [tool("a", json!({})), tool("b", parameters)], "tool_choice": "required",
            "parallel_tool_calls": true});
        let forced = schema(take(body).expect("valid").expect("tools").forced("arguments"));
        assert_eq!(
            forced["anyOf"][0]["anyOf"][1]["properties"]["arguments"],
            json!({"$ref": "#/$defs/tool1"})
        );
        let moved = &forced["$defs"]["tool1"];
        assert_eq!(moved["properties"]["p"], json!({"$ref": "#/$defs/tool1/$defs/P"}));
        assert_eq!(moved["$defs"]["P"]["additionalProperties"], json!(false), "objects are closed");
    }

    #[test]
    fn an_answer_beside_tools_is_a_call_or_json_of_its_own_schema() {
        let tools =
            take(json!({"tools": [tool("a", json!({"type": "object"}))]})).expect("valid").expect("tools");
        let answer = json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "number"}}});
        let either = schema(tools.or_answer("arguments", &answer.to_string()).expect("JSON"));
        assert_eq!(either["anyOf"], json!([{"$ref": "#/$defs/call"}, {"$ref": "#/$defs/answer"}]));
        assert_eq!(either["$defs"]["call"]["properties"]["name"], json!({"const": "a"}));
        assert_eq!(either["$defs"]["answer"]["$ref"], "#/$defs/answer/$defs/N");
        assert_eq!(tools.or_answer("arguments", "{"), None);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let good = tool("a", json!({}));
        for (body, blamed) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tools": [good, {"type": "function", "function": {}}]}), "tools[1].function.name"),
            (json!({"tools": [tool("a b", json!({}))]}), "tools[0].function.name"),
            (json!({"tools": [good, good]}), "tools[1].function.name"),
            (json!({"tools": [tool("a", json!([]))]}), "tools[0].function.parameters"),
            (json!({"tools": [good], "tool_choice": "any"}), "tool_choice"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (
                json!({"tools": [good], "tool_choice": {"type": "function", "function": {"name": "z"}}}),
                "tool_choice.function.name",
            ),
            (json!({"tools": [good], "parallel_tool_calls": 1}), "parallel_tool_calls"),
        ] {
            match take(body.clone()) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }
}
