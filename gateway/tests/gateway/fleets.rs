//! Fleets as an operator sets them up: other RelServes as replicas, the local engine among them, constraints
//! in each dialect, a server taken out of service.

use base::Millis;
use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{Dialect, ReplicaKind, ReplicaSettings, Secret};
use store::Store;

use crate::common::checkpoint::serve_checkpoint;
use crate::common::replica::{Act, FakeReplica, executor, fleet};
use crate::common::words::until_up;
use crate::common::{Server, config, serve_fleet};

async fn empty() -> Store {
    Store::open("sqlite::memory:").await.unwrap()
}

fn checkpoint() -> Synthetic {
    Synthetic::tiny(Family::Qwen2, 3)
}

/// A RelServe of its own on the tiny checkpoint.
async fn replica() -> Server {
    serve_checkpoint(config(), &checkpoint(), empty().await).await
}

/// RelServes as replicas.
fn replicas_of(replicas: &[&Server]) -> Vec<ReplicaSettings> {
    let one = |server: &&Server| ReplicaSettings {
        api_key: server.client.key.clone().map(Secret),
        ..executor(server.client.address)
    };
    replicas.iter().map(one).collect()
}

fn table(rows: usize) -> Value {
    let rows: Vec<Value> = (0..rows).map(|i| json!([format!("row {i} of a table")])).collect();
    json!({"template": "Tell me of {w}.", "system": "be brief", "rows": rows, "max_tokens": 8, "cache": false})
}

fn texts(reply: &Value) -> Vec<String> {
    let rows = reply["rows"].as_array().unwrap_or_else(|| panic!("{reply}"));
    rows.iter().map(|row| row["text"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned()).collect()
}

#[actix_web::test]
async fn two_relserves_answer_as_one_does_whether_they_are_sent_messages_or_tokens() {
    let (a, b) = (replica().await, replica().await);
    let expected = a.relquery(table(24)).await.json();
    let tokenizer = tempfile::tempdir().unwrap();
    checkpoint().write(tokenizer.path()).unwrap();
    std::fs::remove_file(tokenizer.path().join("model.safetensors")).unwrap();
    for folder in [None, Some(tokenizer.path().to_owned())] {
        let mut config = fleet(replicas_of(&[&a, &b]));
        config.model.name = Some("random".into());
        config.model.tokenizer = folder;
        config.replicas.iter_mut().for_each(|executor| executor.rows_max = 4);
        let front = serve_fleet(config).await;
        until_up(&front, 2).await;
        let reply = front.relquery(table(24)).await.json();
        assert_eq!(texts(&reply), texts(&expected));
        for count in ["prompt_tokens", "completion_tokens"] {
            assert_eq!(reply["usage"][count], expected["usage"][count], "each row counts once");
        }
        let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(cached.is_some_and(|cached| cached > 0), "their caches are read back: {reply}");
        let sent = |name| {
            front.metric(&format!("relserve_replica_rows_total{{outcome=\"sent\",replica=\"{name}\"}}"))
        };
        assert!(sent(0) > 0.0 && sent(1) > 0.0);
    }
}

#[actix_web::test]
async fn a_relserve_that_ends_in_the_middle_of_a_table_loses_no_row_of_it() {
    let (a, b) = (replica().await, replica().await);
    let expected = texts(&b.relquery(table(120)).await.json());
    let mut config = fleet(replicas_of(&[&a, &b]));
    config.model.name = Some("random".into());
    let front = serve_fleet(config).await;
    until_up(&front, 2).await;
    let (client, body) = (front.client.clone(), table(120));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    // Counts, which do not pass by between two looks.
    let has_work = |front: &Server, name| {
        front.metric(&format!("relserve_replica_rows_total{{outcome=\"sent\",replica=\"{name}\"}}")) > 0.0
    };
    let both = |front: &Server| has_work(front, "0") && has_work(front, "1");
    front.until("both have work", both).await;
    a.running.drain(async {}).await;
    assert_eq!(texts(&asking.await.unwrap()), expected);
}

#[actix_web::test]
async fn the_local_engine_is_one_executor_among_others() {
    let other = replica().await;
    let expected = texts(&other.relquery(table(24)).await.json());
    let mut settings = config();
    settings.replicas = replicas_of(&[&other]);
    settings.replicas[0].rows_max = 4;
    settings.replicas[0].model = Some("random".into());
    let local = ReplicaSettings { kind: ReplicaKind::Local, rows_max: 4, ..ReplicaSettings::default() };
    settings.replicas.push(ReplicaSettings { name: Some("here".into()), ..local });
    let front = serve_checkpoint(settings, &checkpoint(), empty().await).await;
    until_up(&front, 2).await;
    assert_eq!(texts(&front.relquery(table(24)).await.json()), expected);
    for name in ["0", "here"] {
        let rows = format!("relserve_replica_rows_total{{outcome=\"answered\",replica=\"{name}\"}}");
        assert!(front.metric(&rows) > 0.0, "{name} has work");
    }
    let streamed = json!({"model": "random", "stream": true, "max_tokens": 6,
        "messages": [{"role": "user", "content": "Tell me of row 3"}]});
    let reply = front.client.post("/v1/chat/completions", &streamed).await;
    assert!(reply.body.contains("[DONE]"), "{}", reply.body);
    let body = json!({"template": "Tell me of {w}.", "rows": [["x"]], "max_tokens": 8, "constraint": {"choice": ["a", "b"]}});
    let chosen = texts(&front.relquery(body).await.json());
    assert!(["a", "b"].contains(&chosen[0].as_str()), "{chosen:?}");
}

#[actix_web::test]
async fn a_constraint_is_sent_in_the_servers_words_or_refused_by_name() {
    let a = FakeReplica::start().await;
    let ask = |dialect: Dialect, word: &'static str, constraint: Value| {
        let mut config = fleet(vec![ReplicaSettings { dialect, ..a.executor() }]);
        config.replicas[0].health_path = Some("/health".into());
        async move {
            let server = serve_fleet(config).await;
            until_up(&server, 1).await;
            let body = json!({"template": "Say {w}", "rows": [[word]], "constraint": constraint});
            server.relquery(body).await
        }
    };
    assert_eq!(ask(Dialect::Vllm, "x", json!({"regex": "x+"})).await.status, 200);
    assert_eq!(a.state().asked[0]["structured_outputs"], json!({"regex": "x+"}));
    assert_eq!(ask(Dialect::Sglang, "x", json!({"choice": ["x", "y"]})).await.status, 200);
    assert_eq!(a.state().asked[1]["regex"], "(x|y)");
    assert_eq!(ask(Dialect::LlamaCpp, "2", json!({"integer": {"min": 1, "max": 3}})).await.status, 200);
    assert_eq!(a.state().asked[2]["grammar"], "root ::= \"1\" | \"2\" | \"3\"");
    let refused = ask(Dialect::Openai, "x", json!({"choice": ["x"]})).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.error().contains("dialect \"openai\" cannot hold outputs to a choice"),
        "{}",
        refused.error()
    );
    assert_eq!(a.state().asked.len(), 3, "it was not asked");
}

#[actix_web::test]
async fn token_ids_are_refused_where_servers_are_sent_none() {
    let a = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![a.executor()])).await;
    until_up(&server, 1).await;
    let client = &server.client;
    let post = |path: &'static str, body: Value| async move { client.post(path, &body).await };
    let ids = post("/v1/completions", json!({"model": "m", "prompt": [72, 105]})).await;
    assert_eq!(ids.status, 400);
    assert!(ids.error().contains("`prompt`"), "{}", ids.error());
    let text =
        post("/v1/completions", json!({"model": "m", "prompt": "go on", "max_tokens": 5})).await.json();
    assert_eq!(text["choices"][0]["text"], "on");
    assert_eq!(a.state().asked[0]["prompt"], "go on");
    let chat = post(
        "/v1/chat/completions",
        json!({"model": "m", "messages": [{"role": "user", "content": "say hi"}]}),
    );
    assert_eq!(chat.await.json()["choices"][0]["message"]["content"], "hi");
    assert_eq!(a.state().asked[1].get("max_tokens"), None, "as long as there is room");
    let model = server.client.get("/v1/models").await.json()["data"][0].clone();
    assert_eq!((model["id"].as_str(), model.get("max_model_len")), (Some("m"), None));
}

#[actix_web::test]
async fn an_operator_takes_a_server_out_of_service_and_back() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let with_key = |key: Option<&str>| Config {
        auth: gateway::config::AuthConfig {
            admin_key: key.map(|key| Secret(key.into())),
            ..Default::default()
        },
        ..fleet(vec![a.executor(), b.executor()])
    };
    let closed = serve_fleet(with_key(None)).await;
    assert_eq!(closed.client.post("/v1/replicas/0/drain", &json!({})).await.status, 403);

    let server = serve_fleet(with_key(Some("op"))).await;
    until_up(&server, 2).await;
    let operator = server.client.with_key("op");
    assert_eq!(
        server.client.post("/v1/replicas/0/drain", &json!({})).await.status,
        403,
        "a tenant is no operator"
    );
    assert_eq!(operator.post("/v1/replicas/7/drain", &json!({})).await.status, 404);
    assert_eq!(operator.get("/v1/replicas/0/drain").await.status, 405);
    assert_eq!(operator.post("/v1/replicas/0/drain", &json!({})).await.status, 200);
    server
        .until("it drains", |server| server.running.app.runtime.view().replicas[0].state == "draining")
        .await;
    assert_eq!(server.relquery(table(12)).await.json()["status"], "completed");
    assert!(a.state().asked.is_empty());
    assert_eq!(operator.post("/v1/replicas/0/resume", &json!({})).await.status, 200);
    until_up(&server, 2).await;
    b.next([Act::Reply(500, "", "boom")]);
    assert_eq!(server.relquery(table(12)).await.json()["status"], "completed");
    assert!(!a.state().asked.is_empty(), "it has work again");
}

#[actix_web::test]
async fn a_server_that_asks_for_a_pause_gets_one_and_its_rows_wait() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    config.fleet.tries_max = 1;
    config.replicas[0].health_ms = Millis(20);
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    a.next([Act::Reply(429, "Retry-After: 1\r\n", "busy")]);
    let (client, body) = (server.client.clone(), table(1));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server
        .until("it is left alone", |server| server.running.app.runtime.view().replicas[0].state == "paused")
        .await;
    assert_eq!(asking.await.unwrap()["status"], "completed", "a pause is no try");
    assert_eq!(a.state().asked.len(), 2);
}

#[actix_web::test]
async fn a_model_is_asked_for_by_its_name_or_an_alias() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    config.model.aliases = vec!["gpt-4o".into(), "org/small".into()];
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    let listed = server.client.get("/v1/models").await.json()["data"].clone();
    let ids: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids, ["m", "gpt-4o", "org/small"]);
    assert_eq!((listed[0].get("root"), &listed[1]["root"]), (None, &json!("m")));
    assert_eq!(server.client.get("/v1/models/org/small").await.json()["id"], "org/small");
    let chat = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "say hi"}]});
    for model in ["m", "gpt-4o", "org/small"] {
        let reply = server.client.post("/v1/chat/completions", &chat(model)).await.json();
        assert_eq!(reply["choices"][0]["message"]["content"], "hi");
        assert_eq!(reply["model"], "m", "what answers says its own name");
    }
    let asked = json!({"template": "Say {w}", "rows": [["x"]], "model": "gpt-4o"});
    assert_eq!(server.relquery(asked).await.status, 200);
    assert!(a.state().asked.iter().all(|asked| asked["model"] == "m"));
    assert_eq!(server.client.post("/v1/chat/completions", &chat("gpt-4")).await.status, 404);
    assert_eq!(server.client.get("/v1/models/gpt-4").await.status, 404);
}
