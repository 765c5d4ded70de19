//! Cell functions: values, errors, and calls that find each other.

use base::Millis;
use gateway::services::cell_budget;
use serde_json::json;
use serving::usage_writer;
use store::{DEFAULT_TENANT, UnixMillis, UsageWrite};

use crate::common::client::{Client, finish};
use crate::common::{Server, config, key_of, lasting_store, model, serve, serve_on, serve_with};

#[actix_web::test]
async fn every_call_has_its_own_value_or_error_in_order() {
    let server = serve().await;
    let calls = json!([
        {"function": "classify", "args": ["a film that is good", ["Good", "bad"]]},
        {"function": "rate", "args": ["worth a 4"]},
        {"function": "nonsense", "args": ["x"]},
        {"function": "list", "args": ["colours: red"]},
        {"function": "classify", "args": ["what?", ["good", "bad"]]},
        {"function": "summarize", "args": [["a", "range"]]},
        {"function": "ask", "args": ["hello there"]},
    ]);
    let reply = server.client.post("/v1/cells", &json!({"calls": calls})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    assert_eq!((json["object"].as_str(), json["status"].as_str()), (Some("cells"), Some("completed")));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells[0], json!({"value": "Good"}));
    assert_eq!(cells[1], json!({"value": 4}));
    assert!(cells[2]["error"]["message"].as_str().unwrap().contains("nonsense"));
    assert_eq!(cells[3], json!({"value": ["red"]}));
    assert!(cells[4]["error"]["message"].as_str().unwrap().contains("none of the labels"));
    assert!(cells[5]["error"]["message"].as_str().unwrap().contains("one cell"));
    assert_eq!(cells[6], json!({"value": "there"}));
    assert!(json["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
}

#[actix_web::test]
async fn details_say_what_a_cell_took_and_what_began_before_it() {
    let server = serve().await;
    let call = |text: &str| json!({"function": "ask", "args": [text]});
    let nonsense = json!({"function": "nonsense", "args": ["x"]});
    let calls = json!({"calls": [call("say a"), call("say b"), call("say a"), nonsense]});
    let plain = server.client.post("/v1/cells", &calls).await.json();
    assert_eq!(plain["cells"][0], json!({"value": "a"}), "who does not ask is told the value alone");
    let fresh = json!({"calls": [call("say c"), call("say d"), call("say c")], "stream": true});
    let reply = server.client.post("/v1/cells?details=true", &fresh).await;
    let mut cells: Vec<_> = reply.events().into_iter().filter(|(name, _)| name == "cell").collect();
    cells.sort_by_key(|(_, cell)| cell["index"].as_u64());
    let details: Vec<_> = cells.iter().map(|(_, cell)| cell["details"].clone()).collect();
    let sources: Vec<_> = details.iter().map(|one| one["source"].as_str()).collect();
    assert_eq!(sources, [Some("model"), Some("model"), Some("shared")]);
    let usage = &details[0]["usage"];
    let parts = usage["computed_tokens"].as_u64().unwrap()
        + usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(usage["prompt_tokens"].as_u64(), Some(parts));
    assert_eq!(details[2]["usage"]["computed_tokens"], 0);
    let mut before: Vec<_> =
        details.iter().map(|one| one["timing"]["cells_before"].as_u64().unwrap()).collect();
    before.sort_unstable();
    assert_eq!(before, [0, 1, 2], "each began after those before it");
    assert!(details[0]["timing"]["running_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(details[0]["finish_reason"], "stop");
    let again = server.client.post("/v1/cells?details=true", &calls).await.json();
    assert_eq!(again["cells"][0]["details"]["source"], "cache");
    assert_eq!(again["cells"][0]["details"]["timing"], serde_json::Value::Null, "what is known does not run");
    assert!(again["cells"][3]["error"].is_object());
    assert_eq!(server.client.post("/v1/cells?detail=1", &calls).await.status, 400);
}

/// Where each cell's answer came from.
async fn sources(client: &Client, body: &serde_json::Value) -> Vec<String> {
    let reply = client.post("/v1/cells?details=true", body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let cells = reply.json()["cells"].as_array().cloned().unwrap();
    cells.iter().map(|cell| cell["details"]["source"].as_str().unwrap_or("-").to_owned()).collect()
}

#[actix_web::test]
async fn a_known_cell_is_known_by_all_that_decides_it() {
    let (_files, store) = lasting_store().await;
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let server = serve_on(config(), model(), store.clone()).await;
    let client = &server.client;
    let call = |text: &str| json!({"function": "ask", "args": [text]});
    let one = json!({"calls": [call("say a")]});
    assert_eq!(sources(client, &one).await, ["model"]);
    assert_eq!(sources(client, &one).await, ["cache"]);
    // In other company, known and unknown; then all of it.
    let three = json!({"calls": [call("say b"), call("say a"), call("say 7")]});
    assert_eq!(sources(client, &three).await, ["model", "cache", "model"]);
    let reply = client.post("/v1/cells", &three).await.json();
    assert_eq!(reply["cells"], json!([{"value": "b"}, {"value": "a"}, {"value": "7"}]));
    assert_eq!(reply["usage"]["computed_tokens"], 0);
    // What is asked in another way, by somebody else, or to be computed is not.
    for body in [
        json!({"calls": [{"function": "classify", "args": ["say a", ["a", "b"]]}]}),
        json!({"calls": [{"function": "ask", "args": [7]}]}),
        json!({"calls": [call("say a")], "cache": false}),
    ] {
        assert_eq!(sources(client, &body).await, ["model"], "{body}");
    }
    let theirs = client.with_key(&key_of(&store, other).await);
    assert_eq!(sources(&theirs, &three).await, ["model"; 3]);
    assert_eq!(sources(&theirs, &three).await, ["cache"; 3]);
    let hits = server.metric("relserve_cache_rows_total{result=\"hit\"}");
    assert_eq!(hits, 8.0, "each cell that was known counts once");
    server.until_free().await;
}

#[actix_web::test]
async fn what_was_on_the_server_before_a_request_is_told_with_its_cells() {
    let server = serve().await;
    server.gate.shut();
    let ask = |texts: &[&str]| {
        let calls: Vec<_> = texts.iter().map(|text| json!({"function": "ask", "args": [text]})).collect();
        json!({"calls": calls, "cache": false})
    };
    let first = server.client.begin("/v1/cells", &ask(&["1 one", "2 two"])).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    server.gate.allow(1);
    let running = |server: &Server| server.running.app.runtime.view().stats.rows_running;
    server.until("a step's end is published", |server| running(server) == 2).await;
    let second = server.client.begin("/v1/cells?details=true", &ask(&["3 three"])).await;
    server.until("both are there", |server| server.running.app.runtime.registry.running().len() == 2).await;
    server.gate.release();
    finish(first).await;
    let timing = finish(second).await.json()["cells"][0]["details"]["timing"].clone();
    assert_eq!(
        (timing["rows_running"].as_u64(), timing["rows_waiting"].as_u64()),
        (Some(2), Some(0)),
        "{timing}"
    );
    assert!(timing["waiting_ms"].as_f64().unwrap() > 0.0);
}

#[actix_web::test]
async fn prompts_are_told_as_they_are_sent_and_nothing_runs() {
    let server = serve().await;
    let calls = json!({"calls": [
        {"function": "classify", "args": ["a film that is good", ["Good", "bad"]]},
        {"function": "classify", "args": ["a film that is good", ["Good", "bad"]]},
        {"function": "nonsense", "args": ["x"]},
    ]});
    let reply = server.client.post("/v1/cells/prompts", &calls).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    let prompts = json["prompts"].as_array().unwrap();
    assert_eq!((json["object"].as_str(), prompts.len()), (Some("cells.prompts"), 3));
    let text = prompts[0]["text"].as_str().unwrap();
    assert!(
        text.contains("one of these labels: Good, bad.") && text.contains("a film that is good"),
        "{text}"
    );
    assert_eq!(prompts[0], prompts[1]);
    assert!(prompts[2]["error"]["message"].as_str().unwrap().contains("nonsense"));
    assert_eq!(server.running.app.runtime.view().stats.steps, 0, "nothing ran");
    let run = server.client.post("/v1/cells?details=true", &calls).await.json();
    assert_eq!(run["cells"][0]["details"]["usage"]["prompt_tokens"], prompts[0]["tokens"]);
    assert_eq!(server.client.get("/v1/cells/prompts").await.status, 405);
}

#[actix_web::test]
async fn cells_of_a_tenant_whose_day_is_spent_are_refused_with_what_is_left() {
    let mut config = config();
    config.limits.tenant_day_cell_tokens_max = Some(10);
    let server = serve_with(config, model()).await;
    let ask = |text: &str| json!({"calls": [{"function": "ask", "args": [text]}]});
    let budget = || async { server.client.get("/v1/usage?days=1").await.json()["cells_day_tokens"].clone() };
    let setting = "limits.tenant_day_cell_tokens_max";
    assert_eq!(budget().await, json!({"used": 0, "max": 10, "setting": setting}));
    let first = server.client.post("/v1/cells", &ask("say that the first request runs to its end")).await;
    assert_eq!(first.status, 200, "it begins below the limit: {}", first.body);
    let usage = &first.json()["usage"];
    let computed = usage["computed_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert!(computed >= 10);
    assert_eq!(budget().await["used"].as_u64(), Some(computed));
    let refused = server.client.post("/v1/cells", &ask("say no")).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], "budget_spent");
    assert!(error["message"].as_str().unwrap().contains(setting));
    let other = server.relquery(json!({"template": "Say {w}", "rows": [["x"]]})).await;
    assert_eq!(other.status, 200, "other routes have no part in it");
    assert_eq!(budget().await["used"].as_u64(), Some(computed));
}

#[actix_web::test]
async fn cells_that_began_are_joined_though_the_day_is_spent_meanwhile() {
    let mut config = config();
    config.limits.tenant_day_cell_tokens_max = Some(1);
    let server = serve_with(config, model()).await;
    let body = json!({"calls": [{"function": "ask", "args": ["say it"]}]}).to_string();
    let ask = |body: &str| {
        let request = server.client.request("POST", "/v1/cells", "application/json", body.as_bytes());
        let named = "Host: test\r\nIdempotency-Key: one";
        String::from_utf8(request).unwrap().replacen("Host: test", named, 1)
    };
    let first = server.client.raw(ask(&body).as_bytes()).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let again = server.client.raw(ask(&body).as_bytes()).await;
    assert_eq!((again.status, &again.json()["id"]), (200, &first.json()["id"]), "{}", again.body);
    let other = server.client.post("/v1/cells", &json!({"calls": []})).await;
    assert_eq!(other.status, 429, "the day is spent: {}", other.body);
}

#[actix_web::test]
async fn what_is_on_its_way_to_the_store_counts_as_computed() {
    let mut config = config();
    config.limits.tenant_day_cell_tokens_max = Some(1);
    // Nothing is on its way but what is sent here.
    config.store.flush_ms = Millis(20_000);
    let server = serve_with(config, model()).await;
    let ask = |text: &str| json!({"calls": [{"function": "ask", "args": [text]}]});
    assert_eq!(server.client.post("/v1/cells", &ask("say it")).await.status, 200);
    let app = &server.running.app;
    let whole = cell_budget::used(app, DEFAULT_TENANT).await.unwrap();
    assert!(whole > 0);
    let accounts = &app.runtime.shared.accounts;
    let moving = accounts.moving().await;
    let day = UnixMillis(app.runtime.shared.clock.unix_ms()).day();
    let sent = accounts.send(day).expect("cells were computed");
    let written = async {
        let rows = usage_writer::rows_of(&app.runtime.model.name, &sent);
        let at = UnixMillis(0);
        let write = UsageWrite { writer: accounts.writer(), number: sent.number, rows: &rows, at };
        app.runtime.store.add_usage(write).await.unwrap();
        // As long as a slow store takes.
        for _ in 0..20 {
            app.runtime.store.tenants().await.unwrap();
        }
        accounts.kept();
        drop(moving);
    };
    let (used, ()) = tokio::join!(cell_budget::used(app, DEFAULT_TENANT), written);
    assert_eq!(used.unwrap(), whole);
}

#[actix_web::test]
async fn json_in_a_plain_text_body_is_read_and_cells_stream() {
    let server = serve().await;
    let body = br#"{"calls":[{"function":"ask","args":["say x"]},{"function":"ask","args":["say y"]}],"stream":true}"#;
    let reply = server.client.post_bytes("/v1/cells", "text/plain;charset=utf-8", body).await;
    let events = reply.events();
    assert_eq!(events.len(), 3, "{}", reply.body);
    assert!(events[..2].iter().all(|(name, cell)| name == "cell" && cell["value"].is_string()));
    assert_eq!((events[2].0.as_str(), events[2].1["status"].as_str()), ("done", Some("completed")));
}

#[actix_web::test]
async fn single_calls_join_the_open_relquery_of_their_function() {
    let server = serve().await;
    server.gate.shut();
    let call =
        |text: &str, labels: &[&str]| json!({"calls": [{"function": "classify", "args": [text, labels]}]});
    let same = ["good", "bad"];
    let first = server.client.begin("/v1/cells", &call("1 good", &same)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/cells", &call("2 bad", &same)).await;
    let other = server.client.begin("/v1/cells", &call("3 bad", &["ugly", "bad"])).await;
    server.until("all arrive", |server| server.running.app.runtime.registry.running().len() == 3).await;
    server.gate.release();
    for (stream, value) in [(first, "good"), (second, "bad"), (other, "bad")] {
        assert_eq!(finish(stream).await.json()["cells"], json!([{"value": value}]));
    }
    assert_eq!(server.metric("relserve_rows_coalesced_total"), 1.0);
    server.until("everything is free", |server| server.is_free()).await;
}

#[actix_web::test]
async fn a_call_that_leaves_takes_only_its_own_row_away() {
    let server = serve().await;
    server.gate.shut();
    let call = |text: &str| json!({"calls": [{"function": "ask", "args": [text]}]});
    let first = server.client.begin("/v1/cells", &call("1 one")).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/cells", &call("2 two")).await;
    server.until("both are there", |server| server.running.app.runtime.registry.running().len() == 2).await;
    drop(first);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    assert_eq!(finish(second).await.json()["cells"], json!([{"value": "two"}]));
    server.until("everything is free", |server| server.is_free()).await;
}

#[actix_web::test]
async fn the_catalogue_lists_what_can_be_called() {
    let server = serve().await;
    let reply = server.client.get("/v1/catalogue").await.json();
    let names: Vec<_> =
        reply["data"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    for name in [
        "ask",
        "classify",
        "extract",
        "summarize",
        "translate",
        "tag",
        "format",
        "edit",
        "fill",
        "list",
        "rate",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
}
