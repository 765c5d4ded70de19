//! cellm, an add-in for Excel, as it is: the requests that its version 0.5 sends, byte for byte as its public
//! source and that of the libraries under it (Microsoft.Extensions.AI, the OpenAI SDK for .NET) make them, on
//! connections as they keep them.

use gateway::app::Running;
use serde_json::{Value, json};
use serving::model::Model;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::common::client::{Client, Reply, read_reply};
use crate::common::{config, model, serve_with};
use crate::constraints::serve_demo;

/// What it asks for in every request (`MaxOutputTokens`).
const OUTPUT_TOKENS: u64 = 8_192;
/// Requests that it has under way at once (`ConcurrencyLimit`).
const CONCURRENCY: usize = 4;
/// Before and after the instructions: the same tag, it has no closing one.
const INSTRUCTIONS: &str = "<user's instructions>";

/// A model that chats.
fn chatty() -> Model {
    Model { has_chat: true, context_max: base::TokenCount(4_096), ..model() }
}

/// One of its connections, kept between requests.
struct Excel {
    client: Client,
    connection: TcpStream,
}

impl Excel {
    async fn open(client: &Client) -> Self {
        let connection = TcpStream::connect(client.address).await.unwrap();
        Self { client: client.clone(), connection }
    }

    /// Sends a request with the headers of `HttpClient` and of the SDK's pipeline.
    async fn send(&mut self, body: &Value) {
        let (body, address) = (body.to_string(), self.client.address);
        let key = self.client.key.as_deref().unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\n\
             User-Agent: OpenAI/2.12.0 (.NET 9.0.8; Microsoft Windows 10.0.26100) MEAI/10.8.3\r\n\
             Authorization: Bearer {key}\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.connection.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    }

    async fn ask(&mut self, body: &Value) -> Reply {
        self.send(body).await;
        read_reply(&mut self.connection).await
    }

    /// A request that must be served; its text.
    async fn text(&mut self, body: &Value) -> String {
        let reply = self.ask(body).await;
        assert_eq!(reply.status, 200, "{body}: {}", reply.body);
        reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    }
}

/// A range as it stands in a prompt: a Markdown table with the names of columns and rows, cells padded to one
/// width.
fn table(first_row: usize, cells: &[&[&str]]) -> String {
    let escaped = |cell: &str| cell.replace('\n', " ").replace('|', "\\|");
    let columns = cells[0].len();
    let width = |c: usize| cells.iter().map(|row| row[c].chars().count()).max().unwrap_or(1).max(1);
    let line = |first: &str, of: &dyn Fn(usize) -> String| {
        let rest: String = (0..columns).map(|c| format!(" {:<1$} |", of(c), width(c))).collect();
        format!("| {first:<9} |{rest}\r\n")
    };
    let letter = |c: usize| char::from(b'A' + c as u8).to_string();
    let mut text = line("Row \\ Col", &letter) + &line("---------", &|c| "-".repeat(width(c)));
    for (row, number) in cells.iter().zip(first_row..) {
        text += &line(&number.to_string(), &|c| escaped(row[c]));
    }
    text
}

/// The message with the user's instructions and cells.
fn user(instructions: &str, cells: &str) -> String {
    let asked = format!("{INSTRUCTIONS}\r\n{instructions}\r\n{INSTRUCTIONS}\r\n");
    format!("{asked}\r\n<cells>\r\n{cells}\r\n</cells>\r\n\r\n")
}

/// The system message: who it is, the date and no time (a prefix that lasts a day), how to answer.
fn system(model: &str) -> String {
    let about = format!("You are an add-in of a spreadsheet, driven by {model} from OpenAiCompatible.");
    let rules = [
        "The current date is 2026-11-22.",
        "",
        "Do what the instructions say and take the cells as context, in the language in which you are asked.",
        "Data: give the result alone, as plain text for one cell: a word, a number, or a list with commas.",
        "Prose: write whole sentences in the tone that is asked for. Never explain what you do.",
    ];
    format!("{about}\r\n{}", rules.join("\r\n"))
}

/// `=PROMPT(instructions, cells)`: the fields and no others, in the SDK's order.
fn prompt(model: &str, instructions: &str, cells: &str) -> Value {
    let messages = json!([{"role": "system", "content": system(model)}, {"role": "user", "content": user(instructions, cells)}]);
    json!({"temperature": 0, "messages": messages, "model": model, "max_completion_tokens": OUTPUT_TOKENS})
}

/// The schema of a spilled answer: `string[]` or `string[][]` in an object, for servers want one at the top.
fn spill_schema(is_range: bool) -> Value {
    let draft = "https://json-schema.org/draft/2020-12/schema";
    let list = json!({"type": "array", "items": {"type": "string"}});
    let mut data = if is_range { json!({"type": "array", "items": list}) } else { list };
    data["$schema"] = json!(draft);
    json!({"$schema": draft, "type": "object", "properties": {"data": data}, "additionalProperties": false, "required": ["data"]})
}

/// `=PROMPT.TOROW/.TOCOLUMN` or `.TORANGE`, where the provider is said to keep to schemas.
fn spill(mut body: Value, is_range: bool) -> Value {
    let name = if is_range { "String____" } else { "String__" };
    let format = json!({"name": name, "schema": spill_schema(is_range)});
    body["response_format"] = json!({"type": "json_schema", "json_schema": format});
    body
}

/// The same where it is not (the default of a server of one's own): the schema is in one more message of the
/// user.
fn spill_in_words(mut body: Value, is_range: bool) -> Value {
    let schema = serde_json::to_string_pretty(&spill_schema(is_range)).unwrap();
    let text = format!("Respond with a JSON value conforming to the following schema:\n```\n{schema}\n```");
    body["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": text}));
    body["response_format"] = json!({"type": "json_object"});
    body
}

#[actix_web::test]
async fn a_prompt_over_cells_comes_back_with_all_that_its_sdk_reads() {
    let server = serve_with(config(), chatty()).await;
    let mut excel = Excel::open(&server.client).await;
    let cells = table(7, &[&["Grand Hôtel|Annexe", "\"quoted\" \\ 8,5"], &["=A1&B1", "第二行\nzweite"]]);
    let body = prompt("double", "Repeat: these", &cells);
    let reply = excel.ask(&body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    // Everything behind the word, to the byte: nothing in a cell is taken for markup, dropped or escaped
    // anew.
    let sent = body["messages"][1]["content"].as_str().unwrap().split_once("Repeat: ").unwrap().1;
    let choice = &json["choices"][0];
    // The double says each byte as a character.
    let said = choice["message"]["content"].as_str().unwrap().chars().map(|c| u8::try_from(c).unwrap());
    assert_eq!(String::from_utf8(said.collect()).unwrap(), sent);
    assert_eq!(
        (&choice["message"]["role"], &choice["message"]["refusal"]),
        (&json!("assistant"), &Value::Null)
    );
    assert_eq!(
        (&choice["finish_reason"], &choice["index"], &choice["logprobs"]),
        (&json!("stop"), &json!(0), &Value::Null)
    );
    assert_eq!((&json["object"], &json["model"]), (&json!("chat.completion"), &json!("double")));
    assert!(json["id"].is_string() && json["created"].is_i64() && json["system_fingerprint"].is_string());
    for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert!(json["usage"][count].as_i64().unwrap() > 0, "what the ribbon's statistics add up: {json}");
    }
}

#[actix_web::test]
async fn its_limit_of_8192_tokens_is_the_most_and_never_a_reason_to_refuse() {
    let server = serve_with(config(), Model { context_max: base::TokenCount(2_048), ..chatty() }).await;
    let mut excel = Excel::open(&server.client).await;
    let json = excel.ask(&prompt("double", "Repeat: ", &"x".repeat(800))).await.json();
    let (asked, said) = (
        json["usage"]["prompt_tokens"].as_u64().unwrap(),
        json["usage"]["completion_tokens"].as_u64().unwrap(),
    );
    assert_eq!(json["choices"][0]["finish_reason"], "length", "the context ended before the answer: {json}");
    assert_eq!(asked + said, 2_048);
    let short = excel.text(&prompt("double", "Repeat: yes", "")).await;
    assert!(short.starts_with("yes"), "{short}");
    // What leaves no room for a single token is refused, in words for the cell.
    let reply = excel.ask(&prompt("double", "Repeat: ", &"x".repeat(2_048))).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(reply.error().contains("context of 2048 tokens"), "{}", reply.body);
    // Under the older name too, and its own setting may be smaller.
    let mut body = prompt("double", "Repeat: yes, indeed", "");
    body.as_object_mut().unwrap().remove("max_completion_tokens");
    body["max_tokens"] = json!(3);
    assert_eq!(excel.text(&body).await, "yes");
}

#[actix_web::test]
async fn promptmodel_names_a_model_with_or_without_slashes_and_a_wrong_one_is_said_in_the_cell() {
    let name = "Qwen/Qwen2.5-0.5B-Instruct";
    let server = serve_with(config(), Model { name: name.into(), ..chatty() }).await;
    let mut excel = Excel::open(&server.client).await;
    assert!(excel.text(&prompt(name, "Repeat: yes", "")).await.starts_with("yes"));
    // The model of a fresh installation, for which it sends another temperature.
    let mut fresh = prompt("gpt-5.4-mini", "Repeat: yes", "");
    fresh["temperature"] = json!(1);
    let reply = excel.ask(&fresh).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert!(reply.error().contains("gpt-5.4-mini") && reply.error().contains(name), "{}", reply.body);
    assert!(excel.text(&prompt(name, "Repeat: yes", "")).await.starts_with("yes"), "the connection lives on");
}

#[actix_web::test]
async fn what_its_sdk_can_add_changes_nothing_and_its_tools_are_taken() {
    let server = serve_with(config(), chatty()).await;
    let mut excel = Excel::open(&server.client).await;
    let added = json!({
        "frequency_penalty": 0, "presence_penalty": 0, "top_p": 1, "seed": 7, "user": "ann", "store": false, "n": 1,
        "metadata": {"workbook": "a"}, "service_tier": "auto", "logprobs": false, "parallel_tool_calls": true,
        "modalities": ["text"], "stream": false, "tools": [], "tool_choice": "none", "logit_bias": {},
        "safety_identifier": "a", "response_format": {"type": "text"}
    });
    for (field, value) in added.as_object().unwrap() {
        let mut body = prompt("double", "Repeat: yes", "");
        body[field] = value.clone();
        let text = excel.text(&body).await;
        assert!(text.starts_with("yes"), "{field}: {text}");
    }
    let mut body = prompt("double", "Repeat: yes", "");
    let parameters =
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let function =
        json!({"description": "Reads a file.", "name": "FileReaderRequest", "parameters": parameters});
    body["tools"] = json!([{"type": "function", "function": function}]);
    body["tool_choice"] = json!("auto");
    let text = excel.text(&body).await;
    assert!(text.starts_with("yes"), "{text}");
}

#[actix_web::test]
async fn a_column_of_copied_cells_runs_four_at_a_time_and_shares_the_days_system_message() {
    let server = serve_with(config(), chatty()).await;
    let client = &server.client;
    let column = (0..CONCURRENCY).map(|connection| async move {
        let mut excel = Excel::open(client).await;
        let mut cached = 0;
        // Every fourth cell asks the same as another connection's: each has an answer of its own.
        for cell in (0..40).map(|number| if number % 4 == 0 { number } else { connection * 1_000 + number }) {
            let body = prompt("double", &format!("Repeat: cell {cell} of the column."), "");
            let reply = excel.ask(&body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let json = reply.json();
            let text = json["choices"][0]["message"]["content"].as_str().unwrap();
            assert!(text.starts_with(&format!("cell {cell} of the column.")), "{text}");
            cached += json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        }
        cached
    });
    let cached: u64 = futures_util::future::join_all(column).await.into_iter().sum();
    // All but the first four find the system message computed.
    let shared = (system("double").len() / 16 * 16) as u64;
    assert!(cached >= shared * 156, "{cached} of {shared} tokens each");
    server.until_free().await;
}

#[actix_web::test]
async fn a_429_says_when_to_come_back_and_the_same_bytes_on_the_same_connection_then_succeed() {
    let mut config = config();
    config.limits.queue_rows_max = 4;
    let server = serve_with(config, chatty()).await;
    server.gate.shut();
    let mut replicas = Vec::new();
    for replica in 0..=CONCURRENCY {
        replicas
            .push((Excel::open(&server.client).await, prompt("double", &format!("Repeat: {replica}"), "")));
    }
    for (excel, body) in &mut replicas[..CONCURRENCY] {
        excel.send(body).await;
    }
    server.until("all are in", |server| server.running.app.runtime.shared.intake.unfinished() == 4).await;
    let (excel, body) = &mut replicas[CONCURRENCY];
    for _try in 0..2 {
        let refused = excel.ask(body).await;
        assert_eq!(refused.status, 429, "{}", refused.body);
        // Whole seconds: the SDK's retries read no other form, and wait no shorter than this.
        assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
        assert!(refused.error().contains("retry after"), "{}", refused.body);
    }
    server.gate.release();
    for (replica, (excel, _)) in replicas[..CONCURRENCY].iter_mut().enumerate() {
        let reply = read_reply(&mut excel.connection).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let text = reply.json()["choices"][0]["message"]["content"].clone();
        assert!(text.as_str().unwrap().starts_with(&replica.to_string()), "{text}");
    }
    server.until_rows_end().await;
    let (excel, body) = &mut replicas[CONCURRENCY];
    assert!(excel.text(body).await.starts_with('4'));
}

#[actix_web::test]
async fn a_cell_that_is_edited_while_it_waits_frees_its_row() {
    let server = serve_with(config(), chatty()).await;
    server.gate.shut();
    let mut excel = Excel::open(&server.client).await;
    excel.send(&prompt("double", "Repeat: too late", "")).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    drop(excel);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    server.until_free().await;
}

/// The cells of a spilled answer, as cellm reads them: an object with a list `data`.
fn spilled(text: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(value.as_object().unwrap().len(), 1, "{text}");
    value["data"].as_array().unwrap_or_else(|| panic!("{text}")).clone()
}

/// A short request to the demo model, whose context has no room for the usual system message.
fn short(instructions: &str) -> Value {
    let messages = json!([{"role": "system", "content": "Answer with labels."}, {"role": "user", "content": instructions}]);
    json!({"temperature": 0, "messages": messages, "model": "relserve-demo", "max_completion_tokens": OUTPUT_TOKENS})
}

/// Whole, or cut off by the end of the context: then what there is begins as the schema says.
fn is_spill(json: &Value, is_range: bool) -> bool {
    let choice = &json["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap();
    if choice["finish_reason"] == "length" {
        let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let begin = if is_range { "{\"data\":[[" } else { "{\"data\":[\"" };
        assert!(packed.starts_with(begin), "{text}");
        return false;
    }
    let cells = spilled(text);
    let is_text = |cell: &Value| cell.is_string();
    if is_range {
        assert!(cells.iter().all(|row| row.as_array().is_some_and(|row| row.iter().all(is_text))), "{text}");
    } else {
        assert!(cells.iter().all(is_text), "{text}");
    }
    true
}

#[actix_web::test]
async fn its_stop_sequences_end_an_answer() {
    let (running, client) = serve_demo().await;
    let mut excel = Excel::open(&client).await;
    let mut body = short("Is this review positive or negative?\n\nA wonderful film, I loved it.");
    let whole = excel.text(&body).await;
    assert!(whole.len() > 4, "{whole}");
    body["stop"] = json!(["never said", &whole[3..5]]);
    assert_eq!(excel.text(&body).await, whole[..3]);
    end(running).await;
}

#[actix_web::test]
async fn spilled_answers_keep_to_its_schemas_wherever_the_schema_stands() {
    let (running, client) = serve_demo().await;
    let mut excel = Excel::open(&client).await;
    let asked =
        "Classify the text. Answer with one of these labels: positive, negative.\n\nText: A wonderful film.";
    let mut whole = 0;
    for is_range in [false, true] {
        for strict in [None, Some(true)] {
            let mut body = spill(short(asked), is_range);
            if let Some(strict) = strict {
                body["response_format"]["json_schema"]["strict"] = json!(strict);
            }
            let reply = excel.ask(&body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            whole += u32::from(is_spill(&reply.json(), is_range));
        }
        // Its fallback has two messages of the user in a row, and asks for any object.
        let reply = excel.ask(&spill_in_words(short(asked), is_range)).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let choice = &reply.json()["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap();
        assert!(text.trim_start().starts_with('{'), "{text}");
        if choice["finish_reason"] == "stop" {
            assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
        }
    }
    assert!(whole > 0, "some answer ended");
    end(running).await;
}

async fn end(running: Running) {
    running.drain(std::future::pending()).await;
}
