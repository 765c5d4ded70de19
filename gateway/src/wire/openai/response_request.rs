//! The request of `/v1/responses`, read as the chat that it stands for.

use base::PromptEnd;
use serde::Serialize;
use serde_json::{Map, Value, json};
use serving::error::RequestError;
use utoipa::ToSchema;

use super::Common;
use super::chat::{self, ChatRequest};
use super::legacy_functions;
use super::logprobs::TOP_MAX;
use super::neutral::left_out;
use super::prompt_reply;
use super::response_items::{PREVIOUS, PreviousResponse, as_listed, items_of, messages};
use super::token_ids;
use super::tool_namespaces::{flattened, joined_name, own_field};
use crate::config::UnknownFields;
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// A body of `/v1/responses`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseRequest {
    /// What is run.
    pub chat: ChatRequest,
    /// Whether the oldest messages are left out of a conversation that does not fit.
    pub drops_oldest: bool,
    /// What its reply repeats.
    pub echo: ResponseEcho,
    /// The whole conversation before the answer, where the response is to be kept.
    pub conversation: Option<Vec<Value>>,
}

/// What a response repeats of its request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ResponseEcho {
    /// What stood before the conversation.
    pub instructions: Option<String>,
    /// The output limit in force, where the request names one.
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
    /// How likely tokens are is told of so many beside each.
    pub top_logprobs: u32,
    /// In force.
    pub presence_penalty: f32,
    /// In force.
    pub frequency_penalty: f32,
    /// `disabled`: what does not fit is refused; `auto`: its oldest messages are left out.
    pub truncation: &'static str,
    /// How hard the caller would have it tried, as it was sent; without effect.
    #[schema(value_type = Object)]
    pub reasoning: Value,
    /// Always `default`.
    pub service_tier: &'static str,
    /// Calls of a server's own tools, of which there are none here, as it was sent.
    pub max_tool_calls: Option<u64>,
    /// For whom the caller asks.
    pub user: Option<String>,
    /// The same.
    pub safety_identifier: Option<String>,
    /// The loop that the request is of.
    pub prompt_cache_key: Option<String>,
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

/// A conversation that does not fit is refused.
const DISABLED: &str = "disabled";
/// Its oldest messages are left out.
const AUTO: &str = "auto";

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
        let drops_oldest = take_truncation(&mut fields)?;
        let reasoning = take_reasoning(&mut fields)?;
        let max_tool_calls = fields.integer("max_tool_calls", 1, u64::from(u32::MAX))?;
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
        let limit = fields.take("max_output_tokens").unwrap_or_default();
        fields.insert("max_completion_tokens", limit);
        let mut ignored = Vec::new();
        let text = take_text(&mut fields, context.unknown_fields, &mut ignored)?;
        let metadata = fields.copy("metadata").unwrap_or_else(|| json!({}));
        if !metadata.is_object() {
            return fields.bad("metadata", "must be an object");
        }
        let text_of = |name: &str| fields.text(name).map(str::to_owned);
        let (user, safety_identifier) = (text_of("user"), text_of("safety_identifier"));
        let prompt_cache_key = text_of("prompt_cache_key");
        let (tools, places) = take_tools(&mut fields)?;
        let tool_choice = take_tool_choice(&mut fields);
        let parallel_tool_calls =
            fields.copy("parallel_tool_calls").is_none_or(|value| value != Value::Bool(false));
        let mut chat = ChatRequest::read(fields, context).map_err(|error| renamed(error, &places))?;
        ignored.extend(chat.ignored.drain(..).map(name_here));
        chat.ignored = ignored;
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
        let penalties = generation.adjustments.as_ref();
        let (presence_penalty, frequency_penalty) =
            penalties.map_or((0.0, 0.0), |all| (all.presence_penalty, all.frequency_penalty));
        let echo = ResponseEcho {
            instructions,
            max_output_tokens: chat.common.max_tokens,
            metadata,
            temperature,
            top_p,
            text,
            top_logprobs: generation.logprobs.unwrap_or(0),
            presence_penalty,
            frequency_penalty,
            truncation: if drops_oldest { AUTO } else { DISABLED },
            reasoning,
            service_tier: "default",
            max_tool_calls,
            user,
            safety_identifier,
            prompt_cache_key,
            tools,
            tool_choice,
            parallel_tool_calls,
            previous_response_id,
            store,
            background,
            has_logprobs: generation.logprobs.is_some(),
        };
        Ok(Self { chat, drops_oldest, echo, conversation })
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

/// Refuses what a response has no place for.
fn refuse_unknown(fields: &mut JsonFields) -> Result<(), RequestError> {
    token_ids::refuse(fields)?;
    prompt_reply::refuse(fields)?;
    legacy_functions::refuse(fields)?;
    chat::refuse_echo(fields)
}

/// Takes `truncation`: whether the oldest messages are left out of what does not fit.
fn take_truncation(fields: &mut JsonFields) -> Result<bool, RequestError> {
    match fields.string("truncation")?.as_deref() {
        None | Some(DISABLED) => Ok(false),
        Some(AUTO) => Ok(true),
        Some(_) => fields.bad("truncation", "must be auto or disabled"),
    }
}

/// Takes `reasoning`: how hard to try, a wish that changes nothing here.
fn take_reasoning(fields: &mut JsonFields) -> Result<Value, RequestError> {
    match fields.take("reasoning") {
        None => Ok(json!({"effort": null, "summary": null})),
        Some(wish @ Value::Object(_)) => Ok(wish),
        Some(_) => fields.bad("reasoning", "must be an object"),
    }
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

/// The same error with the field's name on this route. `places`: of the chat's tools.
fn renamed(error: RequestError, places: &[String]) -> RequestError {
    let RequestError::Invalid { field, reason } = error else { return error };
    RequestError::invalid(name_here(own_field(field, places)), reason)
}

/// What a field of a chat is called on this route.
fn name_here(field: String) -> String {
    let named = [
        ("messages", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
    ];
    // A tool's fields stand in the tool here.
    let field = if field.starts_with("tool") { field.replace(".function.", ".") } else { field };
    let found = named.iter().find_map(|(chat, here)| {
        let rest = field.strip_prefix(chat)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("{here}{rest}"))
    });
    found.unwrap_or(field)
}

/// Takes `text`, leaves a `response_format` in its place, and gives what was asked for. `ignored` gets the names of what
/// is unknown in it.
fn take_text(
    fields: &mut JsonFields,
    unknown: UnknownFields,
    ignored: &mut Vec<String>,
) -> Result<Value, RequestError> {
    let plain = json!({"format": {"type": "text"}});
    let Some(value) = fields.take("text") else { return Ok(plain) };
    let mut text = JsonFields::nested("text", value)?;
    text.take("verbosity");
    let format = text.take("format");
    ignored.extend(left_out(text, unknown)?);
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

/// Takes `tools`, leaves those of a chat in their place, and gives what was asked for, and the place in it of each of the
/// chat's.
fn take_tools(fields: &mut JsonFields) -> Result<(Vec<Value>, Vec<String>), RequestError> {
    let tools = fields.array("tools")?.unwrap_or_default();
    let of_chat = |tool: Value| match tool {
        Value::Object(mut function) if function.get("type").is_some_and(|kind| kind == "function") => {
            function.shift_remove("type");
            json!({"type": "function", "function": function})
        }
        other => other,
    };
    let (mut told, mut places) = (Vec::with_capacity(tools.len()), Vec::with_capacity(tools.len()));
    for (number, tool) in tools.iter().enumerate() {
        for (place, tool) in flattened(format!("tools[{number}]"), tool)? {
            told.push(of_chat(tool));
            places.push(place);
        }
    }
    fields.insert("tools", Value::Array(told));
    Ok((tools, places))
}

/// Takes `tool_choice`, leaves that of a chat in its place, and gives what was asked for.
fn take_tool_choice(fields: &mut JsonFields) -> Value {
    let Some(choice) = fields.take("tool_choice") else { return json!("auto") };
    let named = |tool: &Value| {
        let name: Value = match (&tool["name"], tool["namespace"].as_str()) {
            (Value::Null, _) => return tool.clone(),
            (Value::String(name), Some(namespace)) => joined_name(namespace, name).into(),
            (name, _) => name.clone(),
        };
        json!({"type": tool["type"], "function": {"name": name}})
    };
    let mut of_chat = named(&choice);
    if let Some(tools) = of_chat.get_mut("tools").and_then(Value::as_array_mut) {
        tools.iter_mut().for_each(|tool| *tool = named(tool));
    }
    fields.insert("tool_choice", of_chat);
    choice
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
        let ResponseRequest { chat, echo, conversation, .. } = request.expect("valid");
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
    fn a_response_says_what_is_in_force_and_repeats_what_it_was_sent() {
        let echo = read(r#"{"input":"a"}"#).expect("valid").echo;
        let none = serde_json::json!({"effort": null, "summary": null});
        assert_eq!((echo.truncation, echo.service_tier, &echo.reasoning), ("disabled", "default", &none));
        assert_eq!((echo.top_logprobs, echo.max_tool_calls, echo.presence_penalty), (0, None, 0.0));
        let echo = read(
            r#"{"input":"a","reasoning":{"effort":"low"},"max_tool_calls":3,"presence_penalty":0.5,"frequency_penalty":-1,
                "include":["message.output_text.logprobs"],"top_logprobs":2,"safety_identifier":"s","user":"u",
                "prompt_cache_key":"k","truncation":"auto","service_tier":"flex"}"#,
        );
        let asked = echo.expect("valid");
        assert!(asked.drops_oldest);
        let echo = asked.echo;
        assert_eq!(echo.truncation, "auto");
        assert_eq!((echo.reasoning["effort"].as_str(), echo.max_tool_calls), (Some("low"), Some(3)));
        assert_eq!((echo.presence_penalty, echo.frequency_penalty, echo.top_logprobs), (0.5, -1.0, 2));
        let names = [&echo.safety_identifier, &echo.user, &echo.prompt_cache_key].map(Option::as_deref);
        assert_eq!(names, [Some("s"), Some("u"), Some("k")]);
    }

    #[test]
    fn what_is_unknown_is_told_by_the_name_that_it_has_here() {
        let body = r#"{"input":"a","messages_of":1,"text":{"y":1,"format":{"type":"text","z":1}}}"#;
        let read = |unknown_fields| {
            let fields = json::object(body.as_bytes()).expect("an object");
            let asked = with_context(&LimitsConfig::default(), |context| {
                let context = ValidationContext { unknown_fields, ..context };
                ResponseRequest::read(fields, (None, false), context)
            });
            asked.map(|asked| asked.chat.ignored)
        };
        let told = ["text.y", "text.format.z", "messages_of"].map(str::to_owned);
        assert_eq!(read(UnknownFields::Warn), Ok(told.to_vec()));
        assert_eq!(read(UnknownFields::Ignore), Ok(Vec::new()));
        assert!(read(UnknownFields::Refuse).is_err_and(|error| error.to_string().contains("`text.y`")));
    }

    #[test]
    fn an_output_limit_that_is_lowered_has_its_name_here_and_is_told_as_it_is_in_force() {
        let fields = json::object(br#"{"input":"a","max_output_tokens":128000}"#).expect("an object");
        let asked = with_context(&LimitsConfig::default(), |context| {
            let context = ValidationContext { unknown_fields: UnknownFields::Warn, ..context };
            ResponseRequest::read(fields, (None, false), context)
        });
        let ResponseRequest { chat, echo, .. } = asked.expect("valid");
        assert_eq!(chat.ignored, ["max_output_tokens"]);
        assert_eq!((chat.common.max_tokens, echo.max_output_tokens), (Some(16_384), Some(16_384)));
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
        let request = read(
            r#"{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
                "tool_choice":{"type":"function","namespace":"n","name":"f"}}"#,
        );
        let tools = request.expect("valid").chat.tools.map(|tools| tools.choice);
        assert_eq!(tools, Some(ToolChoice::Named("n__f".into())));
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
            (r#"{"input":"a","truncation":"middle"}"#, "truncation"),
            (r#"{"input":"a","tools":[{"type":"web_search"}]}"#, "tools[0].type"),
            (
                r#"{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"a b"}]}]}"#,
                "tools[0].tools[0].name",
            ),
            (r#"{"input":"a","n":2}"#, "n"),
            (r#"{"input":"a","store":true,"continue_final_message":true}"#, "continue_final_message"),
            (r#"{"input":"a","background":true,"continue_final_message":true}"#, "continue_final_message"),
            (r#"{"input":"a","metadata":0}"#, "metadata"),
            (r#"{"input":"a","reasoning":"low"}"#, "reasoning"),
            (r#"{"input":"a","max_tool_calls":0}"#, "max_tool_calls"),
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
