//! Constrained outputs over the built-in demo model and the real engine: every dialect, early end, refusals.

use std::sync::{Arc, Condvar, Mutex};

use base::{Bytes, Compiled, Constraint, ConstraintCompiler, ConstraintError, Millis, Nanos};
use gateway::app::{Running, start};
use gateway::config::{Config, LimitsConfig};
use scheduler::CostModel;
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::load;
use serving::load::LoadedModel;
use serving::model::Model;
use store::{DEFAULT_TENANT, Store, UnixMillis};

use crate::common::client::{Client, finish};
use crate::common::{config, key_of, model, serve_on};

/// The demo model behind a socket. Its cost is no measurement: these tests look at answers.
pub async fn serve_demo() -> (Running, Client) {
    serve_limited(LimitsConfig::default()).await
}

/// The same within bounds.
async fn serve_limited(limits: LimitsConfig) -> (Running, Client) {
    let mut config = Config { limits, ..config() };
    config.engine.threads = Some(1);
    config.engine.kv_bytes = Some(Bytes(8 << 20));
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let cost =
        CostModel { decode_base: Nanos(1_000_000), prefill_base: Nanos(1_000_000), ..CostModel::default() };
    let store = Store::open("sqlite::memory:").await.unwrap();
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(
        config,
        LoadedModel { executor: Some(Box::new(engine.executor)), fresh: None, model, cost },
        store,
    )
    .await
    .unwrap();
    let client = Client { address: running.address, key: Some(key) };
    (running, client)
}

/// How many steps of this kind have run.
pub fn steps(running: &Running, kind: &str) -> u64 {
    let text = running.app.runtime.shared.metrics.render();
    let name = format!("relserve_steps_total{{kind=\"{kind}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

pub async fn posted(client: &Client, path: &str, body: Value) -> Value {
    let reply = client.post(path, &body).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    reply.json()
}

/// A relQuery of two reviews under a constraint.
fn reviews(constraint: Value) -> Value {
    let rows = [["A wonderful film, I loved it."], ["Dull, boring and far too long."]];
    json!({"template": "Classify the text. Answer with one of these labels: positive, negative.\n\nText: {text}",
        "rows": rows, "max_tokens": 60, "constraint": constraint})
}

#[actix_web::test]
async fn a_column_of_labels_takes_no_decode_step() {
    let (running, client) = serve_demo().await;
    let reply = posted(&client, "/v1/relqueries", reviews(json!({"choice": ["positive", "negative"]}))).await;
    assert_eq!(
        (&reply["rows"][0]["text"], &reply["rows"][1]["text"]),
        (&json!("positive"), &json!("negative"))
    );
    assert_eq!(reply["rows"][0]["finish_reason"], "stop");
    assert_eq!(reply["rows"][0]["usage"]["completion_tokens"], 1);
    let cell = async |call: Value| {
        let reply = posted(&client, "/v1/cells", json!({ "calls": [call] })).await;
        reply["cells"][0]["value"].clone()
    };
    let text = "It broke after a day.";
    let labels = ["Praise for it", "Complaint about it"];
    let label = cell(json!({"function": "classify", "args": [text, labels]})).await;
    assert!(labels.contains(&label.as_str().unwrap()), "{label}");
    assert!(steps(&running, "prefill") > 0);
    assert_eq!((steps(&running, "decode"), steps(&running, "mixed")), (0, 0));
    let rating = cell(json!({"function": "rate", "args": [text]})).await;
    assert!((1..=5).contains(&rating.as_i64().unwrap()), "{rating}");
    // The model may write the space in front of the digit as a token of its own.
    assert!(steps(&running, "decode") <= 1);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_tenant_compiles_for_no_longer_than_it_may_and_keeps_no_other_waiting() {
    let limits = LimitsConfig { tenant_compile_ms_max: Millis(1), ..LimitsConfig::default() };
    let (running, client) = serve_limited(limits).await;
    // The first one of a server sorts the whole vocabulary, which takes more than a millisecond anywhere.
    posted(&client, "/v1/relqueries", reviews(json!({"choice": ["positive", "negative"]}))).await;
    let another = reviews(json!({"choice": ["good", "bad"]}));
    let refused = client.post("/v1/relqueries", &another).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["param"], &error["code"]),
        (&json!("constraint.choice"), &json!("constraint_limit")),
        "{error}"
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 1, "{wait}");
    let cell = json!({"function": "classify", "args": ["Bright.", ["A", "B"]]});
    assert_eq!(client.post("/v1/cells", &json!({ "calls": [cell] })).await.status, 429);
    posted(&client, "/v1/relqueries", reviews(json!({"choice": ["positive", "negative"]}))).await;
    let store = &running.app.runtime.store;
    let tenant = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = client.with_key(&key_of(store, tenant).await);
    posted(&other, "/v1/relqueries", another).await;
    running.drain(std::future::pending()).await;
}

/// Compiles anything at once, and `wild` not before it is let.
#[derive(Default)]
struct Compiler {
    /// Whether it is at it, and whether it may end.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl ConstraintCompiler for Compiler {
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError> {
        if matches!(constraint, Constraint::Regex(pattern) if pattern == "wild") {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            drop(self.changed.wait_while(state, |(_, may_end)| !*may_end).unwrap());
        }
        Ok(Compiled::new(()))
    }
}

// Case 8: one worker, so that whoever held it up would hold up everybody.
#[actix_web::test]
async fn while_a_wild_constraint_is_compiled_other_tenants_are_answered() {
    let compiler = Arc::new(Compiler::default());
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let key = key_of(&store, other).await;
    let model = Model { constraints: Some(Arc::clone(&compiler) as _), ..model() };
    let server = serve_on(config(), model, store).await;
    let other = server.client.with_key(&key);
    let rows = |word: &str, constraint: Value| json!({"template": "Say {w}", "rows": [[word]], "constraint": constraint, "cache": false});
    let wild = server.client.begin("/v1/relqueries", &rows("late", json!({"regex": "wild"}))).await;
    server.until("it is being compiled", |_| compiler.state.lock().unwrap().0).await;
    let tame = posted(&other, "/v1/relqueries", rows("tame", json!({"regex": "tame"}))).await;
    assert_eq!(tame["rows"][0]["text"], "tame");
    let stream = json!({"prompt": "Say more", "stream": true, "temperature": 0});
    assert!(other.post("/v1/completions", &stream).await.body.contains("[DONE]"));
    // Its own tenant waits for no more than its constraints.
    let plain =
        posted(&server.client, "/v1/completions", json!({"prompt": "Say so", "temperature": 0})).await;
    assert_eq!(plain["choices"][0]["text"], "so");
    assert_eq!(server.client.get("/healthz").await.status, 200);
    assert!(server.running.app.runtime.registry.running().is_empty(), "the wild one has not begun");
    compiler.state.lock().unwrap().1 = true;
    compiler.changed.notify_all();
    assert_eq!(finish(wild).await.json()["rows"][0]["text"], "late");
}

#[actix_web::test]
async fn a_cell_that_answers_with_text_may_bring_its_own_constraint() {
    let (running, client) = serve_demo().await;
    let ask = |constraint: Value| json!({"function": "ask", "args": ["Is this good?", "It is."], "constraint": constraint});
    let calls = json!([
        ask(json!({"choice": ["yes", "no"]})),
        ask(json!({"choice": ["ja", "nein"]})),
        ask(json!({"regex": "("})),
        {"function": "classify", "args": ["Fine.", ["good", "bad"]], "constraint": {"choice": ["good", "bad"]}},
    ]);
    let reply = posted(&client, "/v1/cells", json!({"calls": calls})).await;
    let cells = &reply["cells"];
    assert!(["yes", "no"].contains(&cells[0]["value"].as_str().unwrap()), "{reply}");
    assert!(
        ["ja", "nein"].contains(&cells[1]["value"].as_str().unwrap()),
        "the same prompt, another form: {reply}"
    );
    assert_eq!(cells[2]["error"]["param"], "calls[2].constraint.regex");
    assert_eq!(cells[3]["error"]["param"], "calls[3].constraint");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn an_answer_is_cached_under_its_constraint() {
    let (running, client) = serve_demo().await;
    let ask = async |constraint: Value| posted(&client, "/v1/relqueries", reviews(constraint)).await;
    let first = ask(json!({"choice": ["positive", "negative"]})).await;
    let other = ask(json!({"choice": ["yes", "no"]})).await;
    let again = ask(json!({"choice": ["positive", "negative"]})).await;
    assert_eq!(other["usage"]["rows_from_cache"], 0);
    assert!(["yes", "no"].contains(&other["rows"][0]["text"].as_str().unwrap()), "{other}");
    assert_eq!(again["usage"]["rows_from_cache"], 2);
    assert_eq!(first["rows"][0]["text"], again["rows"][0]["text"]);
    running.drain(std::future::pending()).await;
}

const SCHEMA: &str = r#"{"type":"object","properties":{"label":{"enum":["good","bad"]},"score":{"type":"integer",
    "minimum":1,"maximum":5}},"required":["label","score"],"additionalProperties":false}"#;

#[actix_web::test]
async fn every_dialect_of_a_constraint_is_kept_to() {
    let (running, client) = serve_demo().await;
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let is_json = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
        ["good", "bad"].contains(&value["label"].as_str().unwrap()) && value["score"].is_i64()
    };
    let is_choice = |text: &str| ["good", "good enough"].contains(&text);
    let is_match = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    type Check<'a> = &'a dyn Fn(&str) -> bool;
    let cases: [(Value, Check<'_>); 11] = [
        (json!({"guided_choice": ["good", "good enough"]}), &is_choice),
        (json!({"structured_outputs": {"choice": ["good", "good enough"]}}), &is_choice),
        (json!({"constraint": {"choice": ["good", "good enough"]}}), &is_choice),
        (json!({"guided_regex": "[0-9]{3}"}), &is_match),
        (json!({"regex": "[0-9]{3}"}), &is_match),
        (json!({"structured_outputs": {"regex": "[0-9]{3}"}}), &is_match),
        (json!({"guided_json": schema}), &is_json),
        (json!({"guided_json": SCHEMA}), &is_json),
        (json!({"structured_outputs": {"json": schema}}), &is_json),
        (json!({"response_format": {"type": "json_object", "schema": schema}}), &is_json),
        (
            json!({"response_format": {"type": "json_schema", "json_schema":
            {"name": "answer", "strict": true, "schema": schema}}}),
            &is_json,
        ),
    ];
    for (fields, check) in cases {
        let mut body = json!({"model": "relserve-demo", "max_tokens": 64, "temperature": 1.0, "seed": 3});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut chat = body.clone();
        chat["messages"] = json!([{"role": "user", "content": "How was it?"}]);
        let reply = posted(&client, "/v1/chat/completions", chat).await;
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(check(text), "{fields}: {text}");
        body["prompt"] = json!("It was");
        let reply = posted(&client, "/v1/completions", body).await;
        let text = reply["choices"][0]["text"].as_str().unwrap();
        assert!(check(text), "{fields}: {text}");
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn responses_and_messages_keep_to_a_schema_too_streamed_or_not() {
    let (running, client) = serve_demo().await;
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let check = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
        let label = value["label"].as_str().unwrap();
        assert!(["good", "bad"].contains(&label) && value["score"].is_i64(), "{text}");
    };
    let mut response = json!({"model": "relserve-demo", "temperature": 1.0, "seed": 3, "max_output_tokens": 64,
        "input": "How was it?",
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": true, "schema": schema}}});
    let reply = posted(&client, "/v1/responses", response.clone()).await;
    let text = reply["output"][0]["content"][0]["text"].as_str().unwrap();
    check(text);
    response["stream"] = true.into();
    let events = client.post("/v1/responses", &response).await.events();
    let deltas: Vec<&str> = events
        .iter()
        .filter(|(name, _)| name == "response.output_text.delta")
        .filter_map(|(_, event)| event["delta"].as_str())
        .collect();
    assert_eq!(deltas.concat(), text);
    let mut message = json!({"model": "relserve-demo", "temperature": 1.0, "seed": 3, "max_tokens": 64,
        "messages": [{"role": "user", "content": "How was it?"}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}}});
    let reply = posted(&client, "/v1/messages", message.clone()).await;
    let text = reply["content"][0]["text"].as_str().unwrap();
    check(text);
    message["stream"] = true.into();
    let events = client.post("/v1/messages", &message).await.events();
    let deltas: Vec<&str> = events.iter().filter_map(|(_, event)| event["delta"]["text"].as_str()).collect();
    assert_eq!(deltas.concat(), text);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_strict_schema_has_the_properties_that_it_names_and_no_others() {
    let (running, client) = serve_demo().await;
    let ask = |strict: bool| {
        let label = json!({"type": "object", "properties": {"of": {"enum": ["a", "b"]}}, "required": ["of"]});
        let schema = json!({"type": "object", "required": ["label", "all"],
            "properties": {"label": {"$ref": "#/$defs/label"}, "all": {"type": "array", "items": label, "maxItems": 2}},
            "$defs": {"label": label}});
        json!({"model": "relserve-demo", "max_tokens": 200, "temperature": 2.0, "seed": 11,
            "messages": [{"role": "user", "content": "How was it?"}], "response_format": {"type": "json_schema",
            "json_schema": {"name": "answer", "strict": strict, "schema": schema}}})
    };
    let reply = posted(&client, "/v1/chat/completions", ask(true)).await;
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&value), ["label", "all"], "in the order of the schema");
    let labels = value["all"].as_array().unwrap().iter().chain([&value["label"]]);
    labels.for_each(|label| assert_eq!(keys(label), ["of"]));
    let open = posted(&client, "/v1/chat/completions", ask(false)).await;
    let text = open["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.len() > value.to_string().len(), "an open one may go on: {text}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn what_no_row_could_keep_to_is_the_requests_fault() {
    let (running, client) = serve_demo().await;
    for (fields, param, words) in [
        (json!({"regex": "a{1000000}"}), "regex", "more than 8000 states"),
        (json!({"guided_json": {"$ref": "#"}}), "guided_json", "allows no text"),
    ] {
        let mut body = json!({"model": "relserve-demo", "prompt": "It was", "max_tokens": 8});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let reply = client.post("/v1/completions", &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
        assert!(reply.error().contains(words), "{}", reply.body);
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_bad_constraint_is_refused_by_name_with_its_limit() {
    let (running, client) = serve_demo().await;
    let many: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    let deep = (0..3_000).fold(String::from("a"), |inner, _| format!("({inner})*"));
    let cases = [
        (json!({}), "constraint", "one of choice"),
        (json!({"choice": ["a"], "regex": "a"}), "constraint", "one of choice"),
        (json!([]), "constraint", "must be an object"),
        (json!({"choice": []}), "constraint.choice", "1 to 1000"),
        (json!({"choice": many}), "constraint.choice", "1 to 1000"),
        (json!({"choice": ["a", ""]}), "constraint.choice", "not empty"),
        (json!({"choice": ["x".repeat(70_000)]}), "constraint.choice", "at most 65536"),
        (json!({"integer": {"min": 5, "max": 1}}), "constraint.integer.max", "must not be below"),
        (json!({"integer": {"min": 5}}), "constraint.integer.max", "required"),
        (json!({"regex": "("}), "constraint.regex", ""),
        (json!({"regex": deep}), "constraint.regex", ""),
        (json!({"json_schema": "{}"}), "constraint.json_schema", "must be a JSON schema"),
        (json!({"json_schema": {"type": "strange"}}), "constraint.json_schema", ""),
        (json!({"grammar": "start: x"}), "constraint", "one of choice"),
    ];
    for (constraint, field, part) in cases {
        let reply = client.post("/v1/relqueries", &reviews(constraint)).await;
        assert_eq!(reply.status, 400, "{field}: {}", reply.body);
        assert_eq!(reply.json()["error"]["param"], field, "{}", reply.body);
        assert!(reply.error().contains(part), "{}", reply.body);
    }
    let both = json!({"prompt": "a", "guided_regex": "a", "response_format": {"type": "json_object"}});
    let reply = client.post("/v1/completions", &both).await;
    assert_eq!(
        (reply.status, reply.json()["error"]["param"].as_str()),
        (400, Some("guided_regex")),
        "{}",
        reply.body
    );
    let reply = posted(&client, "/v1/relqueries", reviews(json!({"choice": ["positive", "negative"]}))).await;
    assert_eq!(reply["rows"][0]["text"], "positive", "the server is well");
    running.drain(std::future::pending()).await;
}
