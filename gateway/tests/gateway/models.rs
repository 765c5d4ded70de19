//! Several models behind one gateway: each has servers of its own, and a request's `model` picks them.

use base::Millis;
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{ModelPoolConfig, Secret};
use serving::known_models;
use store::{DEFAULT_TENANT, Store, UnixMillis};

use crate::common::batch::{line, make, read, until_over, upload};
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{answered, assert_answered, expected, table};
use crate::common::{Server, config, lasting_store, model, serve_fleet_on, serve_on};

/// The servers of two models: `m`, the default one, and `n`, which may be called `nn`.
struct Pools {
    m: [FakeReplica; 2],
    n: [FakeReplica; 2],
}

impl Pools {
    async fn start() -> Self {
        let two = async |model: &str| {
            let two = [FakeReplica::start().await, FakeReplica::start().await];
            two.iter().for_each(|replica| replica.state().model = model.into());
            two
        };
        Self { m: two("m").await, n: two("n").await }
    }

    fn config(&self) -> Config {
        let mut config = fleet(self.m.iter().map(FakeReplica::executor).collect());
        config.models = vec![ModelPoolConfig {
            name: "n".into(),
            aliases: vec!["nn".into()],
            replicas: self.n.iter().map(FakeReplica::executor).collect(),
            ..ModelPoolConfig::default()
        }];
        config.auth.admin_key = Some(Secret("op".into()));
        config
    }

    async fn serve(&self) -> Server {
        serve(self.config(), Store::open("sqlite::memory:").await.unwrap()).await
    }

    /// How many requests each model's servers were asked.
    fn asked(&self) -> [usize; 2] {
        [&self.m, &self.n].map(|two| two.iter().map(|replica| replica.state().asked.len()).sum())
    }
}

/// Starts a gateway and waits until each model's two servers are up.
async fn serve(config: Config, store: Store) -> Server {
    let server = serve_fleet_on(config, store).await;
    until_up(&server, &[2, 2]).await;
    server
}

/// Waits until each model has so many servers that get rows.
async fn until_up(server: &Server, counts: &[usize]) {
    let up = |server: &Server| {
        let models = server.running.app.models.iter();
        models
            .map(|model| model.runtime.view().replicas.iter().filter(|replica| replica.is_up).count())
            .eq(counts.iter().copied())
    };
    server.until(&format!("{counts:?} replicas are up"), up).await;
}

/// A table of so many words for a model.
fn table_of(model: &str, count: usize) -> Value {
    let mut body = table(count);
    body["model"] = model.into();
    body
}

async fn ask(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.client.post(path, body).await;
    assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
    reply.json()
}

#[actix_web::test]
async fn rows_run_on_the_servers_of_the_model_that_is_named() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let reply = ask(&server, "/v1/relqueries", &table(12)).await;
    assert_answered(&reply, 12);
    assert_eq!(reply["model"], "m", "the default one");
    assert_eq!((answered(&[&pools.m[0], &pools.m[1]]), pools.asked()), (expected(12), [12, 0]));
    for name in ["n", "nn"] {
        let reply = ask(&server, "/v1/relqueries", &table_of(name, 12)).await;
        assert_answered(&reply, 12);
        assert_eq!(reply["model"], "n");
        let again = server.client.get(&format!("/v1/relqueries/{}", reply["id"].as_str().unwrap())).await;
        assert_eq!(again.json()["model"], "n", "as it stands too");
    }
    assert_eq!(pools.asked(), [12, 24]);
    assert!(pools.n.iter().all(|replica| replica.state().asked.iter().all(|asked| asked["model"] == "n")));
    let unknown = server.relquery(table_of("o", 1)).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(unknown.error(), "the model `o` does not exist; served: `m`, `n`");
    let listed = server.client.get("/v1/models").await.json();
    let listed = listed["data"].as_array().unwrap().iter();
    assert_eq!(listed.map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), ["m", "n", "nn"]);
    assert_eq!(server.client.get("/v1/models/nn").await.json()["root"], "n");
    let shown = server.replicas().await;
    let shown = shown["data"].as_array().unwrap().iter();
    let shown: Vec<_> =
        shown.map(|one| [&one["name"], &one["model"]].map(|text| text.as_str().unwrap())).collect();
    assert_eq!(shown, [["0", "m"], ["1", "m"], ["n-0", "n"], ["n-1", "n"]]);
    let metrics = server.all_metrics();
    let count = |prefix: &str| {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(prefix)?.rsplit(' ').next());
        lines.map(|value| value.parse::<f64>().unwrap()).sum::<f64>()
    };
    assert_eq!(count("relserve_replica_rows_total{outcome=\"answered\",replica=\"n-"), 24.0, "{metrics}");
    for (model, words) in [("m", 24.0), ("n", 48.0)] {
        assert_eq!(
            count(&format!("vllm:generation_tokens_total{{engine=\"0\",model_name=\"{model}\"}}")),
            words
        );
    }
    assert!(metrics.contains("relserve_queue_rows{model=\"n\"} 0"), "{metrics}");
    let scheduler = server.client.get("/v1/scheduler?model=nn").await.json();
    assert_eq!((&scheduler["model"], &scheduler["output_tokens"]), (&json!("n"), &json!(48)), "{scheduler}");
    assert_eq!(server.client.get("/v1/scheduler?model=o").await.status, 404);
}

#[actix_web::test]
async fn every_route_that_has_a_model_takes_each() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let schema = json!({"schema": "<schema name=\"s\"><user>Be brief.</user></schema>", "model": "n"});
    assert_eq!(ask(&server, "/v1/schemas", &schema).await["model"], "n");
    for (query, model) in [("", "m"), ("?model=nn", "n")] {
        let laid_out = server.client.get(&format!("/v1/schemas/s{query}")).await.json();
        assert_eq!(laid_out["model"], model, "{laid_out}");
    }
    let message = json!([{"role": "user", "content": "Say it"}]);
    let bodies = [
        ("/v1/completions", json!({"prompt": "Say it"})),
        ("/v1/chat/completions", json!({"messages": message})),
        ("/v1/prompts", json!({"prompt": "<prompt schema=\"s\"><user>Say it</user></prompt>"})),
        ("/v1/query", json!({"query": {"g": {"input": {"user": "Say it"}, "max_tokens": 4}}})),
        ("/v1/cells", json!({"calls": [{"function": "ask", "args": ["Say it"]}], "cache": false})),
    ];
    for (path, body) in &bodies {
        for (name, model, place) in
            [(None, "m", 0), (Some("m"), "m", 0), (Some("n"), "n", 1), (Some("nn"), "n", 1)]
        {
            let (mut body, mut counts) = (body.clone(), pools.asked());
            body["model"] = json!(name);
            let reply = ask(&server, path, &body).await;
            assert_eq!(reply["model"], model, "{path} {name:?}: {reply}");
            counts[place] += 1;
            assert_eq!(pools.asked(), counts, "{path} {name:?}");
        }
        let mut body = body.clone();
        body["model"] = "o".into();
        assert_eq!(server.client.post(path, &body).await.status, 404, "{path}");
    }
    let mut streamed = bodies[1].1.clone();
    (streamed["model"], streamed["stream"]) = ("nn".into(), true.into());
    let chunks = server.client.post("/v1/chat/completions", &streamed).await.body;
    assert!(chunks.contains("\"model\":\"n\"") && chunks.contains("[DONE]"), "{chunks}");
    let call =
        |model: &str| json!({"model": "n", "query": {"g": {"input": {"user": "Say it"}, "model": model}}});
    assert_eq!(server.client.post("/v1/query", &call("n")).await.status, 200);
    let other = server.client.post("/v1/query", &call("m")).await;
    assert!(other.status == 400 && other.body.contains("run on one model"), "{}", other.body);
    assert_eq!(server.client.post("/v1/query", &call("o")).await.status, 404);
}

#[actix_web::test]
async fn usage_is_counted_by_model() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    ask(&server, "/v1/relqueries", &table(3)).await;
    ask(&server, "/v1/relqueries", &table_of("nn", 5)).await;
    let used = async || {
        let usage = server.client.get("/v1/usage").await.json();
        let mut used: Vec<_> = usage["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                (
                    one["model"].as_str().unwrap().to_owned(),
                    one["rows"].as_u64().unwrap(),
                    one["requests"].as_u64().unwrap(),
                )
            })
            .collect();
        used.sort();
        used
    };
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    let expected = vec![("m".to_owned(), 3, 1), ("n".to_owned(), 5, 1)];
    crate::common::seen_in_time("usage is written", async {
        while used().await != expected {
            looks.tick().await;
        }
    })
    .await;
}

#[actix_web::test]
async fn a_model_whose_servers_are_away_holds_up_no_other() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let Pools { m, n: [c, d] } = pools;
    let (c, d) = (c.kill().await, d.kill().await);
    until_up(&server, &[2, 0]).await;
    let (client, body) = (server.client.clone(), table_of("n", 6));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    let waits = |server: &Server| {
        server.running.app.models.iter().map(|model| model.runtime.shared.intake.unfinished()).eq([0, 6])
    };
    server.until("its rows wait", waits).await;
    assert_answered(&ask(&server, "/v1/relqueries", &table(20)).await, 20);
    let ready = server.client.get("/readyz").await;
    let expected = json!({"status": "ready", "not_ready": [{"model": "n", "status": "no replica is up"}]});
    assert_eq!((ready.status, ready.json()), (200, expected));
    assert_eq!(server.client.get("/healthz").await.status, 200);
    let [a, b] = m;
    let (a, b) = (a.kill().await, b.kill().await);
    until_up(&server, &[0, 0]).await;
    let ready = server.client.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["status"]), (503, &json!("no replica is up")));
    let again = [FakeReplica::restart(c).await, FakeReplica::restart(d).await];
    again.iter().for_each(|replica| replica.state().model = "n".into());
    assert_answered(&asking.await.unwrap(), 6);
    let ready = server.client.get("/readyz").await;
    let down = json!([{"model": "m", "status": "no replica is up"}]);
    assert_eq!((ready.status, &ready.json()["not_ready"]), (200, &down));
    let _m = [FakeReplica::restart(a).await, FakeReplica::restart(b).await];
    until_up(&server, &[2, 2]).await;
    assert_eq!(server.client.get("/readyz").await.json(), json!({"status": "ready", "not_ready": []}));
}

#[actix_web::test]
async fn what_one_model_said_is_not_given_as_anothers_answer() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let said = r#"{"choices": [{"message": {"content": "as m says"}, "finish_reason": "stop"}]}"#;
    pools.m.iter().for_each(|replica| replica.next([Act::Reply(200, "", said)]));
    let kept = |model: &str| {
        let mut body = table_of(model, 1);
        (body["cache"], body["temperature"]) = (true.into(), 0.into());
        body
    };
    for (model, text, counts) in
        [("m", "as m says", [1, 0]), ("n", "w0", [1, 1]), ("m", "as m says", [1, 1]), ("nn", "w0", [1, 1])]
    {
        let reply = ask(&server, "/v1/relqueries", &kept(model)).await;
        assert_eq!((&reply["rows"][0]["text"], pools.asked()), (&json!(text), counts), "{model}");
    }
}

#[actix_web::test]
async fn an_idempotency_key_finds_the_relquery_of_any_model() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let body = table_of("n", 2).to_string();
    let bytes = String::from_utf8(server.client.request(
        "POST",
        "/v1/relqueries",
        "application/json",
        body.as_bytes(),
    ));
    let keyed = bytes.unwrap().replacen("\r\n", "\r\nIdempotency-Key: once\r\n", 1);
    let replies =
        [server.client.raw(keyed.as_bytes()).await.json(), server.client.raw(keyed.as_bytes()).await.json()];
    assert_eq!(replies[0]["id"], replies[1]["id"]);
    assert_eq!((&replies[1]["model"], pools.asked()), (&json!("n"), [0, 2]));
}

#[actix_web::test]
async fn a_tenant_sees_and_is_told_of_the_models_that_it_may_use() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let set = async |models: Value| {
        let limits = json!({"limits": {"models": models}});
        let reply = server.client.with_key("op").post("/v1/tenants/default", &limits).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    };
    let listed = async || {
        let listed = server.client.get("/v1/models").await.json();
        let listed = listed["data"].as_array().unwrap().iter();
        listed.map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    set(json!(["nn", "n"])).await;
    let tenants = server.client.with_key("op").get("/v1/tenants").await.json();
    assert_eq!(tenants["data"][0]["models"], json!(["n"]), "an alias is its model");
    assert_eq!(listed().await, ["n", "nn"]);
    assert_eq!(server.client.get("/v1/models/nn").await.status, 200);
    let hidden = server.client.get("/v1/models/m").await;
    assert_eq!((hidden.status, hidden.error().as_str()), (404, "the model `m` does not exist; served: `n`"));
    for name in ["m", "o"] {
        let refused = server.relquery(table_of(name, 1)).await;
        assert_eq!(refused.status, 404, "{}", refused.body);
        assert_eq!(refused.error(), format!("the model `{name}` does not exist; served: `n`"));
    }
    assert_eq!(server.relquery(table_of("nn", 1)).await.status, 200);
    set(json!(null)).await;
    assert_eq!(listed().await, ["m", "n", "nn"]);
}

/// A batch with lines of both models.
#[actix_web::test]
async fn lines_of_a_batch_run_on_the_models_that_they_name() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let one = |index: usize, model: Option<&str>| {
        line(&index.to_string(), json!({"model": model, "prompt": format!("Say w{index}"), "temperature": 0}))
    };
    let models = [None, Some("n"), Some("m"), Some("nn"), Some("o"), Some("n")];
    let lines: Vec<String> = models.iter().enumerate().map(|(index, model)| one(index, *model)).collect();
    let file = upload(&server.client, &lines.join("\n")).await;
    let batch = make(&server.client, &file).await;
    let batch = until_over(&server.client, batch["id"].as_str().unwrap()).await;
    assert_eq!(batch["request_counts"], json!({"total": 6, "completed": 5, "failed": 1}), "{batch}");
    let mut answers = read(&server.client, &batch["output_file_id"]).await;
    answers.sort();
    let texts: Vec<&str> = answers.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["w0", "w1", "w2", "w3", "w5"]);
    assert_eq!(answered(&[&pools.n[0], &pools.n[1]]), ["w1", "w3", "w5"]);
    assert_eq!(answered(&[&pools.m[0], &pools.m[1]]), ["w0", "w2"]);
    let failed = read(&server.client, &batch["error_file_id"]).await;
    assert!(failed[0].1.contains("the model `o` does not exist"), "{failed:?}");
}

#[actix_web::test]
async fn tickets_go_on_after_a_restart_with_the_models_that_they_began_with() {
    let pools = Pools::start().await;
    let (_dir, store) = lasting_store().await;
    let mut config = pools.config();
    config.server.drain_ms_max = Millis(0);
    let first = serve(config, store.clone()).await;
    pools.m.iter().chain(&pools.n).for_each(|replica| replica.next(std::iter::repeat_n(Act::Hang, 8)));
    let mut ids = Vec::new();
    for model in ["m", "nn"] {
        let mut body = table_of(model, 4);
        body["deadline_ms"] = 30.into();
        let reply = ask(&first, "/v1/relqueries", &body).await;
        assert_eq!(reply["status"], "partial", "{reply}");
        ids.push(reply["ticket"].as_str().unwrap().to_owned());
    }
    first.until("all rows are at servers", |_| pools.asked() == [4, 4]).await;
    first.running.drain(std::future::ready(())).await;
    pools.m.iter().chain(&pools.n).for_each(|replica| replica.state().acts.clear());
    let second = serve(pools.config(), store.clone()).await;
    for (id, model) in ids.iter().zip(["m", "n"]) {
        let mut reply = second.client.get(&format!("/v1/relqueries/{id}")).await.json();
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
        while reply["status"] != "completed" {
            assert_ne!(reply["status"], "failed", "{reply}");
            looks.tick().await;
            reply = second.client.get(&format!("/v1/relqueries/{id}")).await.json();
        }
        assert_answered(&reply, 4);
        assert_eq!(reply["model"], model);
        let ticket = store.ticket(DEFAULT_TENANT, id, UnixMillis(1)).await.unwrap();
        assert!(ticket.is_some());
    }
    assert_eq!(pools.asked(), [8, 8], "each at its own");
    assert_eq!(answered(&[&pools.n[0], &pools.n[1]]), expected(4));
    for model in second.running.app.models.iter() {
        let leases: Vec<_> =
            model.runtime.view().replicas.into_iter().map(|one| one.lease.unwrap()).collect();
        assert!(leases.iter().all(|lease| lease.is_held && lease.rows == 64), "each has its own: {leases:?}");
    }
}

#[actix_web::test]
async fn operators_change_the_servers_of_each_model() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let operator = server.client.with_key("op");
    let more = FakeReplica::start().await;
    more.state().model = "n".into();
    let entry = |name: &str| json!({"name": name, "url": format!("http://{}", more.address), "dialect": "vllm", "health_ms": 20});
    let taken = operator.post("/v1/replicas?model=n", &entry("0")).await;
    assert!(taken.status == 400 && taken.body.contains("a replica of the model `m`"), "{}", taken.body);
    assert_eq!(operator.post("/v1/replicas?model=o", &entry("c")).await.status, 404);
    assert_eq!(operator.post("/v1/replicas?model=nn", &entry("c")).await.status, 200);
    until_up(&server, &[2, 3]).await;
    for name in ["n-0", "n-1"] {
        assert_eq!(operator.post(&format!("/v1/replicas/{name}/drain"), &json!({})).await.status, 200);
    }
    until_up(&server, &[2, 1]).await;
    assert_answered(&ask(&server, "/v1/relqueries", &table_of("n", 5)).await, 5);
    assert_eq!((more.state().answered.len(), pools.asked()), (5, [0, 0]));
    assert_eq!(operator.post("/v1/replicas/n-0/resume", &json!({})).await.status, 200);
    assert_eq!(operator.delete("/v1/replicas/c").await.status, 200);
    assert_eq!(operator.delete("/v1/replicas/c").await.status, 404);
    until_up(&server, &[2, 1]).await;
    // Without a name it is called after the model and its address.
    let found = json!({"url": format!("http://{}", more.address), "dialect": "vllm"});
    let named = operator.post("/v1/replicas?model=n", &found).await.json();
    assert_eq!(named["name"], format!("n-{}", more.address));
}

#[actix_web::test]
async fn a_further_model_stands_beside_the_local_engine_and_none_needs_one() {
    let pools = Pools::start().await;
    let mut beside = config();
    beside.model.dir = Some("a-checkpoint".into());
    beside.models = pools.config().models;
    let server = serve_on(beside, model(), Store::open("sqlite::memory:").await.unwrap()).await;
    until_up(&server, &[0, 2]).await;
    server.gate.shut();
    let (client, body) = (server.client.clone(), json!({"template": "Say {w}", "rows": [["a"]]}));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    let waits = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 1;
    server.until("the engine is at work", waits).await;
    assert_answered(&ask(&server, "/v1/relqueries", &table_of("n", 9)).await, 9);
    server.gate.release();
    let reply = asking.await.unwrap();
    assert_eq!((&reply["model"], &reply["rows"][0]["text"]), (&json!("double"), &json!("a")));
    let mut alone = config();
    alone.models = pools.config().models;
    alone.models.push(ModelPoolConfig {
        name: "m".into(),
        replicas: pools.m.iter().map(FakeReplica::executor).collect(),
        ..ModelPoolConfig::default()
    });
    let server = serve(alone, Store::open("sqlite::memory:").await.unwrap()).await;
    assert_eq!(ask(&server, "/v1/relqueries", &table(2)).await["model"], "n", "the first is the default one");
    assert_eq!(ask(&server, "/v1/relqueries", &table_of("m", 2)).await["model"], "m");
}

#[actix_web::test]
async fn a_name_that_the_default_model_turns_out_to_have_is_refused_at_the_start() {
    let pools = Pools::start().await;
    let mut config = config();
    config.models = pools.config().models;
    config.model.dir = Some("a-checkpoint".into());
    let called = serving::model::Model { name: "nn".into(), ..model() };
    let store = Store::open("sqlite::memory:").await.unwrap();
    let error = crate::common::start_on(config, called, store).await.err().unwrap().to_string();
    assert!(error.contains("`nn` is what two models are called"), "{error}");
}

/// What a statement gives, line by line.
async fn sql(server: &Server, body: &Value) -> Vec<Value> {
    let reply = server.client.post("/v1/sql", body).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[actix_web::test]
async fn a_statement_asks_the_models_that_it_names() {
    let pools = Pools::start().await;
    let server = pools.serve().await;
    let of = |options: &str| {
        format!(
            "SELECT ai_complete(prompt('say w{{0}}', value){options}) AS t FROM generate_series(1, 6) ORDER BY 1"
        )
    };
    let words: Vec<Value> = (1..=6).map(|i| json!({ "t": format!("w{i}") })).collect();
    assert_eq!(sql(&server, &json!({"query": of("")})).await, words);
    assert_eq!(pools.asked(), [6, 0], "the default one");
    assert_eq!(sql(&server, &json!({"query": of(", model => 'nn'")})).await, words);
    assert_eq!(pools.asked(), [6, 6]);
    let session = json!({"query": of(""), "settings": {"relserve.model": "n", "relserve.cached_only": true}});
    assert_eq!(sql(&server, &session).await, words, "what a model said is known of that model");
    let both = "SELECT ai_complete(prompt('say x{0}', value), model => 'm') AS m, \
                ai_complete(prompt('say x{0}', value)) AS n FROM generate_series(1, 3)";
    let session = json!({"query": both, "settings": {"relserve.model": "n"}});
    let said: Vec<Value> = (1..=3).map(|i| json!({"m": format!("x{i}"), "n": format!("x{i}")})).collect();
    assert_eq!(sql(&server, &session).await, said);
    assert_eq!(pools.asked(), [9, 9], "each its own three");
    let served = "the model `o` does not exist; served: `m`, `n`";
    for body in [
        json!({"query": of(", model => 'o'")}),
        json!({"query": of(""), "settings": {"relserve.model": "o"}}),
    ] {
        let refused = server.client.post("/v1/sql", &body).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.error().contains(served), "{}", refused.body);
    }
}

#[actix_web::test]
async fn known_models_are_listed_with_what_is_here_and_how_to_serve_them() {
    let [first, second, third, ..] = known_models::all() else { panic!("there are more") };
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    config.store.data_dir = folder.path().to_owned();
    // The second is whole, the third was broken off.
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    for (model, files) in
        [(second, &["config.json", "model.safetensors", "tokenizer.json"][..]), (third, &["config.json"])]
    {
        let into = model.folder(folder.path());
        std::fs::create_dir_all(&into).unwrap();
        for file in files {
            std::fs::copy(demo.join(file), into.join(file)).unwrap();
        }
    }
    let called = serving::model::Model { name: first.name.clone(), picks_only: true, ..model() };
    let server = serve_on(config, called, Store::open("sqlite::memory:").await.unwrap()).await;
    let listed = server.client.get("/v1/known-models").await.json();
    let data = listed["data"].as_array().unwrap();
    assert_eq!((data.len(), &listed["object"]), (known_models::all().len(), &json!("list")));
    let mut shown = data[0].clone();
    assert_eq!(shown.as_object_mut().unwrap().remove("fits"), Some(true.into()), "it runs");
    let expected = json!({
        "name": first.name, "description": first.about, "licence": "Apache-2.0", "parameters": 134_515_008,
        "download_bytes": 269_030_016, "memory_bytes": 269_030_016 + (3_u64 << 29), "availability": "served",
        "command": "relserve serve --model smollm2-135m-instruct",
    });
    assert_eq!(shown, expected);
    let availability = data.iter().map(|one| one["availability"].as_str().unwrap()).take(3);
    assert_eq!(availability.collect::<Vec<_>>(), ["served", "fetched", "not_fetched"]);
    if let Some(memory) = listed["memory_bytes"].as_u64() {
        let fits =
            data.iter().skip(1).all(|one| one["fits"] == (one["memory_bytes"].as_u64() <= Some(memory)));
        assert!(fits, "{listed}");
    }
    assert_eq!(server.client.get("/v1/models").await.json()["data"][0]["picks_only"], true);
    assert_eq!(server.client.with_key("rs-none").get("/v1/known-models").await.status, 401);
}
