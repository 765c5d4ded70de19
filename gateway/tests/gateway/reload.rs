//! Another configuration for a server that runs: what is taken at once, by whom it is seen, and what changes nothing.

use gateway::config::{Config, UnknownFields, changed_keys};
use gateway::services::reload::reload;
use serde_json::{Value, json};
use serving::config::{Dialect, ReplicaSettings, Secret};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;

use crate::common::client::finish;
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{assert_answered, table, until_up};
use crate::common::{
    Server, config, lasting_store, model, seen_in_time, serve_fleet, serve_on, serve_parties, serve_with,
};

/// Has the server take another configuration; whether it did.
async fn take(server: &Server, asked: &mut Config, found: &Config) -> bool {
    let taken = reload(&server.running.current, asked, Ok::<_, String>(found.clone())).await;
    let is_taken = taken.is_some();
    *asked = taken.unwrap_or_else(|| asked.clone());
    is_taken
}

/// How often a configuration was taken, and refused.
fn reloads(server: &Server) -> [f64; 2] {
    let of = |outcome| server.metric(&format!("relserve_config_reloads_total{{outcome=\"{outcome}\"}}"));
    ["taken", "refused"].map(of)
}

/// A configuration with this bound of rows.
fn of_rows(rows_max: usize) -> Config {
    let mut config = config();
    config.limits.rows_max = rows_max;
    config
}

/// A relQuery of so many rows, each of which runs.
fn rows(count: usize) -> Value {
    let rows: Vec<[String; 1]> = (0..count).map(|row| [format!("w{row}")]).collect();
    json!({"template": "Say {w}", "rows": rows, "max_tokens": 2, "cache": false})
}

#[actix_web::test]
async fn a_request_keeps_the_configuration_that_it_began_with() {
    let mut asked = of_rows(3);
    let server = serve_with(asked.clone(), model()).await;
    let body = rows(3).to_string();
    let bytes = server.client.request("POST", "/v1/relqueries", "application/json", body.as_bytes());
    let mut slow = server.client.send(&bytes[..bytes.len() - 1]).await;
    let bodies = &server.running.app.bodies;
    server.until("most of it has arrived", |_| bodies.held() >= body.len() as u64 - 1).await;
    assert!(take(&server, &mut asked, &of_rows(2)).await);
    let refused = server.relquery(rows(3)).await;
    assert_eq!(refused.status, 413, "{}", refused.body);
    assert!(refused.error().contains("2 rows"), "{}", refused.body);
    slow.write_all(&bytes[bytes.len() - 1..]).await.unwrap();
    let begun_before = finish(slow).await;
    assert_eq!(begun_before.status, 200, "{}", begun_before.body);
    assert!(take(&server, &mut asked, &of_rows(3)).await);
    assert_eq!(server.relquery(rows(3)).await.status, 200);
    assert_eq!(reloads(&server), [2.0, 0.0]);
}

#[actix_web::test]
async fn what_waits_stays_as_it_was_and_a_wrong_value_leaves_all_as_it_was() {
    let mut asked = of_rows(3);
    let server = serve_with(asked.clone(), model()).await;
    let mut found = of_rows(4);
    found.server.workers += 1;
    found.limits.output_tokens_max = 1;
    assert!(take(&server, &mut asked, &found).await);
    assert_eq!(changed_keys(&asked, &found), ["limits.output_tokens_max", "server.workers"]);
    assert_eq!(server.relquery(rows(4)).await.status, 200);
    assert_eq!(server.running.current.get().config.server.workers, asked.server.workers);
    let mut wrong = of_rows(1);
    wrong.limits.columns_max = 0;
    assert!(!take(&server, &mut asked, &wrong).await);
    let unread: Result<Config, _> = Err("line 3");
    assert!(reload(&server.running.current, &asked, unread).await.is_none());
    assert_eq!(server.relquery(rows(4)).await.status, 200, "nothing has changed");
    assert!(take(&server, &mut asked, &found).await, "the same again is no change");
    assert_eq!(reloads(&server), [2.0, 2.0]);
}

#[actix_web::test]
async fn bounds_of_what_all_share_hold_from_then_on() {
    let mut asked = config();
    let server = serve_with(asked.clone(), model()).await;
    let first = server.relquery(rows(3)).await.json()["id"].as_str().unwrap().to_owned();
    let path = |id: &str| format!("/v1/relqueries/{id}");
    assert_eq!(server.client.get(&path(&first)).await.status, 200);
    let mut found = asked.clone();
    (found.limits.queue_rows_max, found.limits.finished_max) = (2, 1);
    assert!(take(&server, &mut asked, &found).await);
    let refused = server.relquery(rows(3)).await;
    assert_eq!(refused.status, 413, "{}", refused.body);
    assert!(refused.error().contains("limits.queue_rows_max"), "{}", refused.body);
    assert_eq!(server.relquery(rows(2)).await.status, 200);
    let forgotten = async { while server.client.get(&path(&first)).await.status != 404 {} };
    seen_in_time("one relQuery alone is kept", forgotten).await;
}

#[actix_web::test]
async fn keys_of_operators_and_the_reading_of_fields_change_and_stand_in_the_audit_log() {
    let mut asked = config();
    let parties = serve_parties(asked.clone()).await;
    let (server, old) = (&parties.server, &parties.operators);
    asked.auth.admin_key = Some(Secret(old.key.clone().unwrap()));
    let mut found = asked.clone();
    found.auth.admin_key = Some(Secret("another".into()));
    found.openai.unknown_fields = UnknownFields::Refuse;
    let strange = json!({"model": "double", "prompt": "a", "max_tokens": 1, "strange": 1});
    let before = server.client.post("/v1/completions", &strange).await;
    assert_eq!((before.status, before.header("x-relserve-ignored-fields")), (200, Some("strange")));
    assert!(take(server, &mut asked, &found).await);
    assert_eq!(server.client.post("/v1/completions", &strange).await.status, 400);
    assert_eq!(old.get("/v1/audit").await.status, 401);
    let log = old.with_key("another").get("/v1/audit").await.json();
    let entry = &log["data"][0];
    assert_eq!([&entry["actor"], &entry["action"]], ["SIGHUP", "config.reload"]);
    assert_eq!(entry["details"], json!({"keys": ["auth.admin_key", "openai.unknown_fields"]}));
    assert_eq!(entry["done"], true);
    assert!(!log.to_string().contains("another"), "no secret is in it");
    assert!(take(server, &mut asked, &found).await);
    let again = old.with_key("another").get("/v1/audit").await.json();
    assert_eq!(again["data"].as_array().map(Vec::len), Some(1), "nothing was changed");
}

#[actix_web::test]
async fn a_configuration_is_not_taken_where_the_audit_log_cannot_be_written() {
    let (folder, store) = lasting_store().await;
    let mut asked = of_rows(3);
    let server = serve_on(asked.clone(), model(), store.clone()).await;
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let other = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("ALTER TABLE audit_log RENAME TO gone").execute(&other).await.unwrap();
    assert!(!take(&server, &mut asked, &of_rows(2)).await);
    assert_eq!(server.relquery(rows(3)).await.status, 200);
    sqlx::query("ALTER TABLE gone RENAME TO audit_log").execute(&other).await.unwrap();
    assert!(take(&server, &mut asked, &of_rows(2)).await);
    assert_eq!(server.relquery(rows(3)).await.status, 413);
}

#[actix_web::test]
async fn origins_are_those_of_the_configuration_that_a_request_sees() {
    let mut asked = config();
    let server = serve_with(asked.clone(), model()).await;
    let preflight = "OPTIONS /v1/cells HTTP/1.1\r\nHost: t\r\nConnection: close\r\nOrigin: https://a.example\r\n\
         Access-Control-Request-Method: POST\r\n\r\n";
    let allowed = async || {
        let reply = server.client.raw(preflight.as_bytes()).await;
        (reply.status, reply.header("access-control-allow-origin").map(str::to_owned))
    };
    assert_eq!(allowed().await, (405, None));
    let mut found = asked.clone();
    for (origins, expected) in [
        (vec!["https://a.example"], (200, Some("https://a.example"))),
        (vec!["https://b.example"], (400, None)),
        (vec!["*"], (200, Some("https://a.example"))),
        (vec![], (405, None)),
    ] {
        found.server.cors_origins = origins.into_iter().map(str::to_owned).collect();
        assert!(take(&server, &mut asked, &found).await);
        let (status, origin) = expected;
        assert_eq!(allowed().await, (status, origin.map(str::to_owned)));
    }
}

/// A server as a replica of this name.
fn named(name: &str, replica: &FakeReplica) -> ReplicaSettings {
    ReplicaSettings { name: Some(name.into()), ..replica.executor() }
}

/// Waits until the replicas have these names and states.
async fn until_shown(server: &Server, expected: &[(&str, &str)]) {
    let is_so = |server: &Server| {
        let replicas = server.running.app.runtime.view().replicas;
        replicas.iter().map(|replica| (replica.name.as_str(), replica.state)).eq(expected.iter().copied())
    };
    server.until(&format!("{expected:?}"), is_so).await;
}

/// Six rows, sent to two replicas that answer them later: their reply, which is to come.
async fn send_six(server: &Server, [a, b]: [&FakeReplica; 2]) -> JoinHandle<Value> {
    for replica in [a, b] {
        replica.next(std::iter::repeat_n(Act::AnswerLater, 6));
    }
    let (client, body) = (server.client.clone(), table(6));
    let reply = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server.until("all rows are out", |_| a.state().asked.len() + b.state().asked.len() == 6).await;
    reply
}

#[actix_web::test]
async fn replicas_come_and_go_with_the_configuration_and_no_row_is_lost() {
    let (a, b, c) = (FakeReplica::start().await, FakeReplica::start().await, FakeReplica::start().await);
    let mut asked = fleet(vec![named("a", &a), named("b", &b)]);
    let server = serve_fleet(asked.clone()).await;
    until_up(&server, 2).await;
    let reply = send_six(&server, [&a, &b]).await;
    let held = b.state().asked.len();
    assert!(held > 0, "both have work");

    let mut found = fleet(vec![named("a", &a), named("c", &c)]);
    assert!(take(&server, &mut asked, &found).await);
    assert!(changed_keys(&asked, &found).is_empty());
    until_shown(&server, &[("a", "up"), ("b", "leaving"), ("c", "up")]).await;
    [&a, &b].iter().for_each(|replica| replica.release(6));
    assert_answered(&reply.await.unwrap(), 6);
    until_shown(&server, &[("a", "up"), ("c", "up")]).await;
    assert_eq!(b.state().answered.len(), held, "what it had it answered");

    // What rows under way may ask for hangs on what the servers speak: the list waits, all else does not.
    found.replicas[1].dialect = Dialect::Openai;
    found.limits.rows_max = 1;
    assert!(take(&server, &mut asked, &found).await);
    assert_eq!(changed_keys(&asked, &found), ["replicas"]);
    assert_eq!(server.running.current.get().config.replicas, asked.replicas);
    assert_eq!(server.relquery(table(2)).await.status, 413);
    until_shown(&server, &[("a", "up"), ("c", "up")]).await;
}

#[actix_web::test]
async fn an_entry_without_a_name_that_goes_finishes_what_it_has_though_the_numbers_change() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut asked = fleet(vec![a.executor(), b.executor()]);
    let server = serve_fleet(asked.clone()).await;
    until_up(&server, 2).await;
    let reply = send_six(&server, [&a, &b]).await;
    let held = [&a, &b].map(|replica| replica.state().asked.len());
    assert!(held[0] > 0, "it has work");

    assert!(take(&server, &mut asked, &fleet(vec![b.executor()])).await);
    until_shown(&server, &[(&a.address.to_string(), "leaving"), ("0", "up")]).await;
    [&a, &b].iter().for_each(|replica| replica.release(6));
    assert_answered(&reply.await.unwrap(), 6);
    until_shown(&server, &[("0", "up")]).await;
    assert_eq!([&a, &b].map(|replica| replica.state().answered.len()), held, "no row moved");
}
