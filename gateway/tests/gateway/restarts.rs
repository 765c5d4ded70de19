//! The executor is lost: a fresh one goes on, nothing acknowledged is lost, and the server answers
//! throughout.

use std::sync::Arc;

use base::{Bytes, Executor, Millis};
use engine::checkpoint::config::Family;
use engine::checkpoint::{Dtype, Synthetic};
use gateway::app::start;
use gateway::config::Config;
use scheduler::CostModel;
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::config::{ReplicaKind, ReplicaSettings};
use serving::load;
use serving::load::LoadedModel;
use store::{DEFAULT_TENANT, Store};

use crate::common::client::{Client, finish};
use crate::common::double::{Double, Gate};
use crate::common::faulty::{Last, Script, Way};
use crate::common::replica::FakeReplica;
use crate::common::words::until_up;
use crate::common::{Server, config, key_of, model, serve};

/// Restarts without pauses.
fn hasty() -> Config {
    let mut config = config();
    config.restart.pause_ms = Millis(1);
    config.restart.drop_ms_max = Millis(1);
    config
}

/// A server whose executors follow a script.
async fn serve_faulty(config: Config, script: &Arc<Script>) -> Server {
    let gate = Arc::new(Gate::open());
    let (model, behind) = (model(), Arc::clone(&gate));
    let block_tokens = model.block_tokens;
    let inner = move || Box::new(Double::new(Arc::clone(&behind), block_tokens)) as Box<dyn Executor>;
    let executor = Some(script.executor(inner()));
    let fresh = Some(script.executor_factory(move || Ok(inner())));
    let backend = LoadedModel { executor, fresh, model, cost: CostModel::default() };
    serve_backend(config, backend, gate).await
}

async fn serve_backend(config: Config, backend: LoadedModel, gate: Arc<Gate>) -> Server {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, backend, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    Server { running, client, gate }
}

/// Twelve rows with answers of several tokens; the fifth holds `word`.
fn table(word: &str) -> Value {
    let rows: Vec<Value> = (0..12)
        .map(|row| json!([if row == 5 { word.to_owned() } else { format!("w{}", "x".repeat(row)) }]))
        .collect();
    json!({"template": "{w} is said of {w}", "rows": rows, "cache": false, "max_tokens": 16})
}

fn rows(reply: &Value) -> &[Value] {
    reply["rows"].as_array().unwrap_or_else(|| panic!("{reply}"))
}

/// The rows without what was computed of them, which a loss makes more.
fn answers(reply: &Value) -> Vec<Value> {
    let mut rows = rows(reply).to_vec();
    for usage in rows.iter_mut().filter_map(|row| row["usage"].as_object_mut()) {
        usage.retain(|count, _| ["prompt_tokens", "completion_tokens"].contains(&count.as_str()));
    }
    rows
}

async fn health(server: &Server) -> (u16, String) {
    let reply = server.client.get("/healthz").await;
    (reply.status, reply.json()["status"].as_str().unwrap().to_owned())
}

fn is_restarting(server: &Server) -> bool {
    server.running.app.runtime.shared.pulse.is_resting()
}

#[actix_web::test]
async fn whenever_and_however_an_executor_is_lost_no_answer_changes() {
    let expected = serve().await.relquery(table("fine")).await.json();
    for (step, way) in (1..8).flat_map(|step| [(step, Way::Lost), (step, Way::Panic)]) {
        let script = Arc::new(Script::default());
        script.at(step, way);
        let server = serve_faulty(hasty(), &script).await;
        let reply = server.relquery(table("fine")).await.json();
        assert_eq!(answers(&reply), answers(&expected), "lost with step {step}: {way:?}");
        for count in ["prompt_tokens", "completion_tokens"] {
            assert_eq!(reply["usage"][count], expected["usage"][count], "each row counts once");
        }
        assert_eq!(server.metric("relserve_engine_restarts_total"), 1.0);
        assert_eq!(server.metric("relserve_engine_losses_total"), 1.0);
        assert_eq!(server.metric("relserve_rows_quarantined_total"), 0.0);
        server.until_free().await;
        assert_eq!(health(&server).await, (200, "ok".into()));
    }
}

#[actix_web::test]
async fn a_row_that_loses_each_executor_it_is_in_fails_alone() {
    let expected = serve().await.relquery(table("poison")).await.json();
    for only_decodes in [false, true] {
        let script = Arc::new(Script::default());
        script.poison("poison is", only_decodes);
        let server = serve_faulty(hasty(), &script).await;
        let reply = server.relquery(table("poison")).await.json();
        assert_eq!(reply["status"], "completed", "{reply}");
        for (row, (found, expected)) in answers(&reply).iter().zip(&answers(&expected)).enumerate() {
            if row == 5 {
                let error = &found["error"];
                assert_eq!(error["code"], "row_failed", "{found}");
                assert!(error["message"].as_str().unwrap().contains("quarantined: 2 steps"), "{found}");
            } else {
                assert_eq!(found, expected);
            }
        }
        assert_eq!(server.metric("relserve_engine_restarts_total"), 2.0, "retried once");
        assert_eq!(server.metric("relserve_rows_quarantined_total"), 1.0);
        server.until_free().await;
    }
}

#[actix_web::test]
async fn a_stream_goes_on_where_it_was_and_repeats_nothing() {
    let text = "said once, from its start to its end";
    for step in [2, 9, 30] {
        let script = Arc::new(Script::default());
        script.at(step, Way::Lost);
        let server = serve_faulty(hasty(), &script).await;
        let body =
            json!({"prompt": format!("Repeat: {text}"), "stream": true, "temperature": 0, "max_tokens": 64});
        let reply = server.client.post("/v1/completions", &body).await;
        let pieces = reply.events();
        let pieces = pieces.iter().filter_map(|(_, data)| data["choices"][0]["text"].as_str());
        assert_eq!(pieces.collect::<String>(), text);
        assert!(reply.body.contains("[DONE]"));
        assert_eq!(server.metric("relserve_engine_restarts_total"), 1.0);
    }
}

#[actix_web::test]
async fn while_one_is_made_the_server_answers_and_takes_work_within_its_bounds() {
    let mut config = hasty();
    config.limits.queue_rows_max = 20;
    let script = Arc::new(Script::default());
    let server = serve_faulty(config, &script).await;
    let cell = json!({"calls": [{"function": "ask", "args": ["hello there"]}]});
    assert_eq!(server.client.post("/v1/cells", &cell).await.json()["cells"][0]["value"], "there");
    server.until_free().await;
    script.shut();
    script.fail(2);
    // Whatever the first took, the next is among these.
    (1..100).for_each(|step| script.at(step, Way::Lost));
    let first = server.client.begin("/v1/relqueries", &table("fine")).await;
    server.until("it is lost", is_restarting).await;
    server.until("another is being made", |_| script.attempts() == 1).await;
    script.forgive();
    assert_eq!(health(&server).await, (200, "restarting".into()));
    let ready = server.client.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["status"].as_str()), (200, Some("restarting")));
    let cached = server.client.post("/v1/cells", &cell).await.json();
    assert_eq!(cached["cells"][0]["value"], "there", "from the cache");
    assert!(server.client.get("/metrics").await.body.contains("relserve_engine_losses_total 1"));
    assert_eq!(server.client.get("/v1/scheduler").await.status, 200);
    let small = json!({"template": "Say {w}", "rows": [["one"], ["two"]], "cache": false});
    let second = server.client.begin("/v1/relqueries", &small).await;
    server.until("it is queued", |server| server.running.app.runtime.shared.intake.unfinished() == 14).await;
    let third = server.relquery(table("other")).await;
    assert_eq!((third.status, third.json()["error"]["code"].as_str()), (429, Some("queue_full")));
    script.release();
    let expected = serve().await.relquery(table("fine")).await.json();
    assert_eq!(answers(&finish(first).await.json()), answers(&expected));
    assert_eq!(rows(&finish(second).await.json())[1]["text"], "two");
    assert_eq!(server.metric("relserve_engine_restart_failures_total"), 2.0);
    assert_eq!((script.attempts(), server.metric("relserve_engine_restarts_total")), (3, 1.0));
    assert_eq!(health(&server).await, (200, "ok".into()));
    assert_eq!(server.client.get("/readyz").await.json()["status"], "ready");
}

#[actix_web::test]
async fn after_too_many_failures_in_a_row_the_engine_is_dead_and_says_so() {
    for failures_max in [0, 3] {
        let mut config = hasty();
        config.restart.failures_max = failures_max;
        let script = Arc::new(Script::default());
        script.fail(u64::MAX);
        script.at(2, Way::Lost);
        let server = serve_faulty(config, &script).await;
        let reply = server.relquery(table("fine")).await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("executor_dead")));
        assert_eq!(script.attempts(), u64::from(failures_max));
        assert_eq!(health(&server).await, (503, "dead".into()));
        assert_eq!(server.client.get("/readyz").await.json()["status"], "dead");
        assert_eq!(server.relquery(table("fine")).await.status, 503);
        server.until_free().await;
    }
}

#[actix_web::test]
async fn a_lost_executor_that_hangs_or_panics_as_it_is_dropped_keeps_nobody() {
    let expected = serve().await.relquery(table("fine")).await.json();
    for last in [Last::Panics, Last::Hangs] {
        let script = Arc::new(Script::default());
        script.last(last);
        script.at(3, Way::Lost);
        let server = serve_faulty(hasty(), &script).await;
        assert_eq!(answers(&server.relquery(table("fine")).await.json()), answers(&expected), "{last:?}");
        server.until("its drop has begun", |_| last == Last::Panics || script.hanging() == 1).await;
        script.release();
    }
}

#[actix_web::test]
async fn work_is_called_off_and_the_server_ends_while_no_executor_is_there() {
    let mut config = hasty();
    config.server.drain_ms_max = Millis(0);
    let script = Arc::new(Script::default());
    script.shut();
    script.at(2, Way::Panic);
    let server = serve_faulty(config, &script).await;
    let first = server.client.begin("/v1/relqueries", &table("fine")).await;
    server.until("it is lost", is_restarting).await;
    drop(first);
    server.until_free().await;
    let body = json!({"template": "Say {w}", "rows": [["x"]], "cache": false});
    let second = server.client.begin("/v1/relqueries", &body).await;
    server.until("it is queued", |server| server.running.app.runtime.shared.intake.unfinished() == 1).await;
    let (reply, ()) = tokio::join!(finish(second), server.running.drain(std::future::pending()));
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("shutting_down")));
    script.release();
}

/// The demo model in single precision: in bf16 the rounding of another batch shape might tip a tie.
fn small() -> Config {
    let mut config = hasty();
    config.engine.threads = Some(1);
    config.engine.kv_bytes = Some(Bytes(8 << 20));
    config.engine.dtype = Some(Dtype::F32);
    config
}

/// The configured checkpoint, its first executor lost by a script and the next made as the server makes them.
async fn serve_real(config: Config, script: &Arc<Script>) -> Server {
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let executor = Some(script.executor(Box::new(engine.executor)));
    let factory = load::executor_factory(config.backend(), &model, Arc::default());
    let fresh = Some(script.executor_factory(move || factory()));
    let backend = LoadedModel { executor, fresh, model, cost: CostModel::default() };
    serve_backend(config, backend, Arc::new(Gate::open())).await
}

#[actix_web::test]
async fn the_engine_loads_its_model_again_and_rows_keep_their_text_and_their_form() {
    let schema = json!({"type": "object", "properties": {
        "overall_sentiment": {"enum": ["positive", "negative"]}, "score": {"type": "integer", "minimum": 0, "maximum": 9},
        "recommended": {"enum": ["yes", "no"]}}, "required": ["overall_sentiment", "score", "recommended"],
        "additionalProperties": false});
    let films = [["a wonderful film"], ["dull and far too long"], ["not bad"], ["never again"]];
    let bodies = [
        json!({"template": "Judge the film: {w}", "rows": films, "cache": false, "constraint": {"json_schema": schema}}),
        json!({"template": "Judge the film: {w}", "rows": films, "cache": false, "max_tokens": 12, "ignore_eos": true}),
    ];
    let plain = serve_real(small(), &Arc::new(Script::default())).await;
    for body in bodies {
        let expected = plain.relquery(body.clone()).await.json();
        for step in 1.. {
            let script = Arc::new(Script::default());
            script.at(step, if u64::is_multiple_of(step, 2) { Way::Panic } else { Way::Lost });
            let server = serve_real(small(), &script).await;
            let reply = server.relquery(body.clone()).await.json();
            assert_eq!(answers(&reply), answers(&expected), "lost with step {step}");
            if server.metric("relserve_engine_restarts_total") == 0.0 {
                assert!(step > 2, "the rows end with step {step}");
                break;
            }
        }
    }
}

#[test]
fn a_checkpoint_that_is_not_the_one_that_was_served_takes_nothing_over() {
    let mut config = small();
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(Family::Qwen2, 3).write(folder.path()).unwrap();
    config.model.dir = Some(folder.path().to_owned());
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let factory = load::executor_factory(config.backend(), &model, Arc::default());
    assert!(factory().is_ok());
    Synthetic::tiny(Family::Qwen2, 4).write(folder.path()).unwrap();
    let refused = factory().err().unwrap_or_default();
    assert!(refused.contains("are not those the server started with"), "{refused}");
    let larger = serving::model::Model { kv_blocks: model.kv_blocks + 1, revision: 0, ..model };
    let mut other = config.clone();
    other.model.dir = None;
    assert!(load::executor_factory(other.backend(), &larger, Arc::default())().is_err());
}

#[actix_web::test]
async fn rows_of_a_local_engine_that_is_lost_for_good_move_to_the_servers_beside_it() {
    let other = FakeReplica::start().await;
    let mut config = small();
    config.restart.failures_max = 0;
    let local = ReplicaSettings { kind: ReplicaKind::Local, ..ReplicaSettings::default() };
    let local = ReplicaSettings { name: Some("here".into()), ..local };
    config.replicas = vec![local, ReplicaSettings { model: Some("m".into()), ..other.executor() }];
    let script = Arc::new(Script::default());
    script.at(3, Way::Lost);
    let server = serve_real(config, &script).await;
    until_up(&server, 2).await;
    let films: Vec<Value> = (0..6).map(|film| json!([format!("film {film}")])).collect();
    let body = json!({"template": "Tell of {w}", "rows": films, "max_tokens": 40, "ignore_eos": true, "cache": false});
    let reply = server.relquery(body).await.json();
    assert!(rows(&reply).iter().all(|row| row["text"] == "ids"), "said by the other: {reply}");
    assert_eq!(other.state().answered.len(), 6, "each once");
    let lost = server.metric("relserve_replica_rows_total{outcome=\"lost\",replica=\"here\"}");
    assert!(lost > 0.0, "some had begun here");
}

#[actix_web::test]
async fn in_a_fleet_the_local_engine_keeps_its_rows_and_gets_no_others_until_it_is_back() {
    let mut config = small();
    let local = ReplicaSettings { kind: ReplicaKind::Local, ..ReplicaSettings::default() };
    config.replicas = vec![ReplicaSettings { name: Some("here".into()), ..local }];
    let script = Arc::new(Script::default());
    script.shut();
    script.at(2, Way::Lost);
    let server = serve_real(config, &script).await;
    let body = json!({"template": "Tell of {w}", "rows": [["x"], ["y"]], "max_tokens": 8, "ignore_eos": true, "cache": false});
    let asked = server.client.begin("/v1/relqueries", &body).await;
    let state = |server: &Server, state: &str| {
        server.running.app.runtime.view().replicas.iter().any(|executor| executor.state == state)
    };
    server.until("it gets nothing", |server| state(server, "paused")).await;
    let shown = server.replicas().await;
    assert!(
        shown["data"][0]["last_error"]["message"].as_str().unwrap().contains("lost its device"),
        "{shown}"
    );
    assert_eq!(server.client.get("/healthz").await.status, 200);
    script.release();
    let reply = finish(asked).await.json();
    assert!(rows(&reply).iter().all(|row| row["text"].is_string()), "{reply}");
    server.until("it is back", |server| state(server, "up")).await;
}
