//! Replicas that come and go while rows run: by an operator's route, by a file that is read again.

use std::path::Path;

use base::{Millis, TokenCount};
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{ReplicaSettings, Secret};

use crate::common::client::Client;
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{answered, assert_answered, expected, table, until_up};
use crate::common::{Server, serve, serve_fleet};

/// Starts a server with an operator.
async fn serve_operated(mut config: Config) -> (Server, Client) {
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_fleet(config).await;
    let operator = server.client.with_key("op");
    (server, operator)
}

/// The body that adds a server, looked at often.
fn entry(name: &str, replica: &FakeReplica) -> Value {
    json!({"name": name, "url": format!("http://{}", replica.address), "dialect": "vllm", "health_ms": 20})
}

/// Names and states of what runs rows.
fn shown(server: &Server) -> Vec<(String, &'static str)> {
    let replicas = server.running.app.runtime.view().replicas;
    replicas.into_iter().map(|replica| (replica.name, replica.state)).collect()
}

async fn until_shown(server: &Server, expected: &[(&str, &str)]) {
    let is_so = |server: &Server| {
        shown(server).iter().map(|(name, state)| (name.as_str(), *state)).eq(expected.iter().copied())
    };
    server.until(&format!("{expected:?}"), is_so).await;
}

/// Asks for a table without waiting for it.
fn asking(server: &Server, count: usize) -> tokio::task::JoinHandle<Value> {
    let (client, body) = (server.client.clone(), table(count));
    tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() })
}

#[actix_web::test]
async fn a_server_killed_and_one_added_while_a_table_runs_lose_no_row_and_answer_none_twice() {
    let (a, b, c) = (FakeReplica::start().await, FakeReplica::start().await, FakeReplica::start().await);
    let (server, operator) = serve_operated(fleet(vec![a.executor(), b.executor()])).await;
    until_up(&server, 2).await;
    for replica in [&a, &b] {
        replica.next(std::iter::repeat_n(Act::Hang, 128));
    }
    let reply = asking(&server, 100);
    server.until("both have work", |_| !a.state().asked.is_empty() && !b.state().asked.is_empty()).await;
    a.kill().await;
    let added = operator.post("/v1/replicas", &entry("c", &c)).await;
    assert_eq!(added.json(), json!({"name": "c", "object": "replica", "source": "route"}));
    server.until("the new one has work", |_| !c.state().answered.is_empty()).await;
    assert_eq!(operator.delete("/v1/replicas/1?now=true").await.status, 200);
    assert_answered(&reply.await.unwrap(), 100);
    assert_eq!(answered(&[&b, &c]), expected(100), "each row ran once, on the one that came");
    server
        .until("the requests of the removed one are closed", |_| {
            let state = b.state();
            state.left == state.asked.len()
        })
        .await;
    until_shown(&server, &[("0", "down"), ("c", "up")]).await;
}

#[actix_web::test]
async fn a_removed_server_finishes_what_it_has_and_goes_with_its_metrics_and_its_watcher() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![b.executor()]);
    config.replicas[0].rows_max = 2;
    let (server, operator) = serve_operated(config).await;
    assert_eq!(operator.post("/v1/replicas", &entry("a", &a)).await.status, 200);
    until_up(&server, 2).await;
    for replica in [&a, &b] {
        replica.next(std::iter::repeat_n(Act::AnswerLater, 6));
    }
    let first = asking(&server, 6);
    server.until("all rows are out", |_| a.state().asked.len() + b.state().asked.len() == 6).await;
    let held = a.state().asked.len();
    assert!(held >= 4);
    assert_eq!(operator.delete("/v1/replicas/a").await.json()["deleted"], true);
    until_shown(&server, &[("0", "up"), ("a", "leaving")]).await;
    b.release(6);
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert_eq!(a.state().asked.len(), held, "it gets nothing new");
    assert!(server.running.app.runtime.shared.metrics.render().contains("replica=\"a\""));
    a.release(held);
    assert_answered(&first.await.unwrap(), 6);
    until_shown(&server, &[("0", "up")]).await;
    assert_eq!(a.state().answered.len(), held, "what it had it answered");
    assert!(!server.running.app.runtime.shared.metrics.render().contains("replica=\"a\""));
    let (looks, theirs) = (a.state().looks, b.state().looks);
    server.until("the other one is looked at again", |_| b.state().looks > theirs + 3).await;
    assert!(a.state().looks <= looks + 1, "nobody looks at it any more");
    assert_eq!(operator.delete("/v1/replicas/a").await.status, 404);
    assert_eq!(operator.post("/v1/replicas", &entry("a", &a)).await.status, 200);
    until_up(&server, 2).await;
    // What was held back at first is used up by now, or not: let it all go on.
    a.release(64);
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert!(a.state().asked.len() > held, "it has work again");
}

#[actix_web::test]
async fn a_server_that_leaves_and_is_named_again_stays_with_what_it_has() {
    let a = FakeReplica::start().await;
    let (server, operator) = serve_operated(fleet(vec![a.executor()])).await;
    until_up(&server, 1).await;
    a.next([Act::AnswerLater]);
    let reply = asking(&server, 1);
    server.until("it has the row", |_| a.state().asked.len() == 1).await;
    assert_eq!(operator.delete("/v1/replicas/0").await.status, 200);
    until_shown(&server, &[("0", "leaving")]).await;
    assert_eq!(server.client.get("/readyz").await.status, 503);
    assert_eq!(operator.post("/v1/replicas", &entry("again", &a)).await.status, 200);
    until_shown(&server, &[("again", "up")]).await;
    a.release(1);
    assert_answered(&reply.await.unwrap(), 1);
    assert_eq!(a.state().asked.len(), 1, "the row never moved");
    let data = server.replicas().await["data"].clone();
    assert_eq!((&data[0]["source"], data.as_array().map(Vec::len)), (&json!("route"), Some(1)));
}

#[actix_web::test]
async fn an_entry_that_cannot_work_is_refused_in_the_words_of_the_configuration() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let (server, operator) = serve_operated(fleet(vec![a.executor()])).await;
    let with = |field: &str, value: Value| {
        let mut body = entry("b", &b);
        body[field] = value;
        body
    };
    for (body, part) in [
        (with("rows_max", json!(0)), "invalid `rows_max`: must be positive"),
        (
            with("rows_max", json!("5")),
            "invalid `rows_max`: must be a whole number up to 4294967295, not the string",
        ),
        (with("url", json!("ftp://x")), "invalid `url`: must start with http:// or https://"),
        (with("url", Value::Null), "invalid `url`: is missing"),
        (with("name", json!("0")), "invalid `name`: is another replica's too"),
        (with("name", json!("a b")), "invalid `name`: must be letters"),
        (with("prompt", json!("tokens")), "invalid `prompt`: must be the same for all replicas"),
        (with("kind", json!("local")), "invalid `kind`: the local engine"),
        (with("dialect", json!("openai")), "invalid `dialect`: of replica `b` is \"openai\""),
        (with("colour", json!("red")), "unknown field `colour`"),
        (json!([1]), "invalid `replica`"),
    ] {
        let reply = operator.post("/v1/replicas", &body).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.body);
        assert!(reply.error().contains(part), "{:?} lacks {part:?}", reply.error());
    }
    assert_eq!(
        server.client.post("/v1/replicas", &entry("b", &b)).await.status,
        403,
        "a tenant is no operator"
    );
    assert_eq!(server.client.delete("/v1/replicas/0").await.status, 403);
    assert_eq!(operator.delete("/v1/replicas/none?now=true").await.status, 404);
    let wrong = operator.delete("/v1/replicas/0?now=yes").await;
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("now")), "{}", wrong.body);
    assert_eq!(operator.get("/v1/replicas/0").await.status, 405);
    assert_eq!(shown(&server).len(), 1, "nothing has changed");
    let alone = serve().await;
    assert_eq!(alone.client.post("/v1/replicas", &entry("b", &b)).await.status, 403, "no operator");
}

/// Writes a file of replicas as Kubernetes does: into a folder of its own, to which a link is then pointed.
fn swap(folder: &Path, version: &str, text: &str) {
    let own = folder.join(version);
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("replicas.toml"), text).unwrap();
    let fresh = folder.join("fresh");
    std::os::unix::fs::symlink(version, &fresh).unwrap();
    std::fs::rename(fresh, folder.join("data")).unwrap();
}

fn file_of(replicas: &[(&FakeReplica, u32)]) -> String {
    let one = |(replica, rows_max): &(&FakeReplica, u32)| {
        let address = replica.address;
        format!(
            "[[replicas]]\nurl = \"http://{address}\"\ndialect = \"vllm\"\nhealth_ms = 20\n\
             rows_max = {rows_max}\n"
        )
    };
    replicas.iter().map(one).collect()
}

fn read_from(folder: &Path) -> Config {
    let mut config = fleet(Vec::<ReplicaSettings>::new());
    config.discovery.file = Some(folder.join("data/replicas.toml"));
    config.discovery.file_ms = Millis(5);
    config
}

#[actix_web::test]
async fn a_file_that_is_replaced_changes_the_fleet_and_a_broken_one_does_not() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let folder = tempfile::tempdir().unwrap();
    swap(folder.path(), "1", &file_of(&[(&a, 8)]));
    let server = serve_fleet(read_from(folder.path())).await;
    let (first, second) = (a.address.to_string(), b.address.to_string());
    until_shown(&server, &[(&first, "up")]).await;
    swap(folder.path(), "2", &file_of(&[(&a, 3), (&b, 8)]));
    until_shown(&server, &[(&first, "up"), (&second, "up")]).await;
    let view = server.running.app.runtime.view().replicas;
    assert_eq!(view[0].rows_max, 3, "what is changed is changed while it runs");
    assert_answered(&server.relquery(table(20)).await.json(), 20);
    swap(folder.path(), "3", &file_of(&[(&b, 8)]));
    until_shown(&server, &[(&second, "up")]).await;
    let status = async |server: &Server| server.replicas().await["discovery"][0].clone();
    assert_eq!(
        status(&server).await,
        json!({"model": "m", "source": "file", "status": "ok", "replicas": 1, "error": null})
    );
    let failures = "relserve_discovery_reads_total{outcome=\"failed\",source=\"file\"}";
    for (version, text, part) in [
        ("4", "[[replicas]]\nurl = 3", "line 2"),
        ("5", "[[replicas]]\nurl = \"http://x\"\ndialect = \"vllm\"\nrows_max = 0", "replicas[0].rows_max"),
        ("6", "[[replicas]]\nurl = \"${NO_SUCH_VARIABLE}\"", "NO_SUCH_VARIABLE"),
    ] {
        swap(folder.path(), version, text);
        // A read of the file before may still be under way: the second from now on is of this one.
        let failed = server.metric(failures);
        server.until("it is read and refused", |server| server.metric(failures) > failed + 1.0).await;
        let status = status(&server).await;
        assert_eq!((&status["status"], &status["replicas"]), (&json!("failed"), &json!(1)));
        assert!(status["error"]["message"].as_str().is_some_and(|error| error.contains(part)), "{status}");
        assert_answered(&server.relquery(table(6)).await.json(), 6);
    }
    std::fs::remove_file(folder.path().join("data")).unwrap();
    let failed = server.metric(failures);
    server.until("it is away", |server| server.metric(failures) > failed + 1.0).await;
    assert_eq!(shown(&server).len(), 1);
    swap(folder.path(), "7", &file_of(&[(&a, 8)]));
    until_shown(&server, &[(&first, "up")]).await;
    assert_eq!(status(&server).await["status"], "ok");
}

#[actix_web::test]
async fn a_server_that_an_operator_drained_is_so_when_it_returns_until_it_is_taken_back() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let folder = tempfile::tempdir().unwrap();
    swap(folder.path(), "1", &file_of(&[(&a, 8), (&b, 8)]));
    let (server, operator) = serve_operated(read_from(folder.path())).await;
    let (first, second) = (a.address.to_string(), b.address.to_string());
    until_shown(&server, &[(&first, "up"), (&second, "up")]).await;
    assert_eq!(operator.post(&format!("/v1/replicas/{first}/drain"), &json!({})).await.status, 200);
    until_shown(&server, &[(&first, "draining"), (&second, "up")]).await;
    swap(folder.path(), "2", &file_of(&[(&b, 8)]));
    until_shown(&server, &[(&second, "up")]).await;
    swap(folder.path(), "3", &file_of(&[(&b, 8), (&a, 8)]));
    until_shown(&server, &[(&second, "up"), (&first, "draining")]).await;
    assert_answered(&server.relquery(table(20)).await.json(), 20);
    assert!(a.state().asked.is_empty(), "it is out of service still");
    swap(folder.path(), "4", &file_of(&[(&b, 8)]));
    until_shown(&server, &[(&second, "up")]).await;
    let resume = format!("/v1/replicas/{first}/resume");
    assert_eq!(operator.post(&resume, &json!({})).await.status, 200, "also while it is away");
    assert_eq!(operator.post(&resume, &json!({})).await.status, 404, "nobody knows it any more");
    swap(folder.path(), "5", &file_of(&[(&b, 8), (&a, 8)]));
    until_shown(&server, &[(&second, "up"), (&first, "up")]).await;
}

/// A body that needs more than 100 tokens, and says a word.
fn long_row(word: &str) -> Value {
    let text = format!("{}{word}", "long ".repeat(60));
    json!({"template": "Say {w}", "columns": ["w"], "rows": [[text]], "max_tokens": 8, "cache": false})
}

#[actix_web::test]
async fn a_row_that_only_a_server_held_that_has_left_waits_until_one_like_it_comes_and_no_other_waits() {
    let (small, large) = (FakeReplica::start().await, FakeReplica::start().await);
    let of = |replica: &FakeReplica, tokens: u64| ReplicaSettings {
        tokens_max: Some(TokenCount(tokens)),
        ..replica.executor()
    };
    let (server, operator) = serve_operated(fleet(vec![of(&small, 100), of(&large, 1_000)])).await;
    until_up(&server, 2).await;
    assert_eq!(operator.delete("/v1/replicas/1").await.status, 200);
    until_shown(&server, &[("0", "up")]).await;
    let (client, body) = (server.client.clone(), long_row("w0"));
    let waiting = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    let waits = |server: &Server| server.running.app.runtime.view().stats.rows_waiting == 1;
    server.until("the row waits", waits).await;
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "say hi"}]});
    let reply = server.client.post("/v1/chat/completions", &chat).await;
    assert_eq!(reply.status, 200, "an open end gets the room that there is: {}", reply.body);
    let mut body = entry("c", &large);
    body["tokens_max"] = json!(1_000);
    assert_eq!(operator.post("/v1/replicas", &body).await.status, 200);
    let reply = waiting.await.unwrap();
    assert_eq!(reply["rows"][0]["text"], "w0", "{reply}");
    assert_eq!(large.state().answered, ["w0"]);
}

#[actix_web::test]
async fn a_row_that_waits_for_a_server_that_stays_away_fails_and_says_why() {
    let (small, large) = (FakeReplica::start().await, FakeReplica::start().await);
    let of = |replica: &FakeReplica, tokens: u64| ReplicaSettings {
        tokens_max: Some(TokenCount(tokens)),
        ..replica.executor()
    };
    let mut config = fleet(vec![of(&small, 100), of(&large, 1_000)]);
    config.fleet.trouble_ms_max = Millis(50);
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    large.kill().await;
    until_shown(&server, &[("0", "up"), ("1", "down")]).await;
    let reply = server.relquery(long_row("w0")).await.json();
    let message = reply["rows"][0]["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("no replica in service has room"), "{reply}");
    assert!(small.state().asked.is_empty());
}

#[actix_web::test]
async fn a_server_whose_name_another_takes_finishes_what_it_has_under_its_address() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let folder = tempfile::tempdir().unwrap();
    let named = |replica: &FakeReplica| format!("{}name = \"x\"\n", file_of(&[(replica, 8)]));
    swap(folder.path(), "1", &named(&a));
    let server = serve_fleet(read_from(folder.path())).await;
    until_shown(&server, &[("x", "up")]).await;
    a.next([Act::AnswerLater]);
    let reply = asking(&server, 1);
    server.until("it has the row", |_| a.state().asked.len() == 1).await;
    swap(folder.path(), "2", &named(&b));
    until_shown(&server, &[(&a.address.to_string(), "leaving"), ("x", "up")]).await;
    a.release(1);
    assert_answered(&reply.await.unwrap(), 1);
    assert_eq!((a.state().answered.len(), b.state().asked.len()), (1, 0), "the row never moved");
    until_shown(&server, &[("x", "up")]).await;
    let metrics = server.running.app.runtime.shared.metrics.render();
    assert!(metrics.contains("replica=\"x\"") && !metrics.contains(&a.address.to_string()), "{metrics}");
}

#[actix_web::test]
async fn a_server_begins_with_a_valid_file_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let began = async |config: Config| {
        let store = store::Store::open("sqlite::memory:").await.unwrap();
        let clock = serving::clock::Clock::start();
        let backend = serving::load::prepare(config.backend(), &store, clock).await.unwrap();
        gateway::app::start(config, backend, store).await.map(|_| ()).map_err(|error| error.to_string())
    };
    let error = began(read_from(folder.path())).await.unwrap_err();
    assert!(error.contains("discovery.file: cannot read"), "{error}");
    swap(folder.path(), "1", "[[replicas]]\nkind = \"local\"");
    let error = began(read_from(folder.path())).await.unwrap_err();
    assert!(error.contains("replicas[0].kind"), "{error}");
    swap(folder.path(), "2", "");
    began(read_from(folder.path())).await.unwrap();
}
