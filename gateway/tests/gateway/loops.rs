//! Gateways whose replicas lead back to them: found before a row is sent, told to operators, and no row is blamed.

use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{ReplicaSettings, Secret};
use serving::gateway_ids::{LOOP_DETECTED, VIA};

use crate::common::client::{Client, Reply};
use crate::common::replica::{Act, FakeReplica, executor, fleet};
use crate::common::words::{answered, assert_answered, expected, table, until_up};
use crate::common::{Server, serve_fleet};

/// Starts a gateway with an operator.
async fn serve_operated(mut config: Config) -> (Server, Client) {
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_fleet(config).await;
    let operator = server.client.with_key("op");
    (server, operator)
}

/// A gateway as a replica, with a key of its own.
fn gateway_as(name: &str, server: &Server) -> ReplicaSettings {
    ReplicaSettings {
        name: Some(name.into()),
        api_key: server.client.key.clone().map(Secret),
        ..executor(server.running.address)
    }
}

/// The body that adds a gateway as a replica.
fn entry(name: &str, server: &Server) -> Value {
    let url = format!("http://{}", server.running.address);
    json!({"name": name, "url": url, "dialect": "vllm", "health_ms": 20, "api_key": server.client.key})
}

/// Waits until a replica is down for this reason.
async fn until_down(server: &Server, name: &str, reason: &str) {
    let is_so = |server: &Server| {
        let replicas = server.running.app.runtime.view().replicas;
        let mut named = replicas.iter().filter(|replica| replica.name == name);
        let told =
            |told: &Option<(String, u64)>| told.as_ref().is_some_and(|(told, _)| told.contains(reason));
        named.any(|replica| replica.state == "down" && told(&replica.last_error))
    };
    server.until(&format!("{name} is down: {reason}"), is_so).await;
}

/// Asks for a row with this header.
async fn ask_via(server: &Server, via: &str) -> Reply {
    let kind = format!("application/json\r\n{VIA}: {via}");
    server.client.post_bytes("/v1/relqueries", &kind, table(1).to_string().as_bytes()).await
}

/// The gateways that the last row came through, as a replica was told.
fn via_of(replica: &FakeReplica) -> String {
    let state = replica.state();
    let head = state.heads.last().expect("it was asked");
    let via = head.lines().find_map(|line| line.strip_prefix(VIA)?.strip_prefix(": "));
    via.expect("the gateway names itself").to_owned()
}

#[actix_web::test]
async fn a_gateway_that_is_its_own_replica_is_found_before_a_row_is_sent() {
    let x = FakeReplica::start().await;
    let (server, operator) = serve_operated(fleet(vec![x.executor()])).await;
    until_up(&server, 1).await;
    assert_eq!(operator.post("/v1/replicas", &entry("own", &server)).await.status, 200);
    until_down(&server, "own", "this gateway itself").await;
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert_eq!(answered(&[&x]), expected(12));
    server.until_rows_end().await;
    assert_eq!(server.metric("relserve_replica_rows_total{outcome=\"sent\",replica=\"own\"}"), 0.0);
    let data = server.replicas().await["data"].clone();
    let own = data.as_array().and_then(|all| all.iter().find(|one| one["name"] == "own")).cloned();
    let own = own.unwrap_or_default();
    assert_eq!(own["state"], "down", "{data}");
    let told = own["last_error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains("this gateway itself"), "{data}");
}

#[actix_web::test]
async fn two_gateways_in_a_circle_find_it_both_and_serve_by_their_other_replicas() {
    let (x, y) = (FakeReplica::start().await, FakeReplica::start().await);
    let (a, operator) = serve_operated(fleet(vec![x.executor()])).await;
    until_up(&a, 1).await;
    let b = serve_fleet(fleet(vec![y.executor(), gateway_as("a", &a)])).await;
    until_up(&b, 2).await;
    assert_eq!(operator.post("/v1/replicas", &entry("b", &b)).await.status, 200);
    until_down(&a, "b", "leads back to this gateway").await;
    until_down(&b, "a", "leads back to this gateway").await;
    for (server, own) in [(&a, &x), (&b, &y)] {
        assert_answered(&server.relquery(table(12)).await.json(), 12);
        assert_eq!(answered(&[own]), expected(12), "what it has beside the other gateway");
    }
    a.until_rows_end().await;
    assert_eq!(a.metric("relserve_replica_rows_total{outcome=\"sent\",replica=\"b\"}"), 0.0);
    // Where one of them lets go, the other may send it rows again.
    assert_eq!(operator.delete("/v1/replicas/b").await.status, 200);
    until_up(&b, 2).await;
}

#[actix_web::test]
async fn a_row_names_the_gateways_it_came_through_and_one_that_comes_back_is_refused() {
    let x = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![x.executor()])).await;
    until_up(&server, 1).await;
    assert_answered(&server.relquery(table(1)).await.json(), 1);
    let own = via_of(&x);
    let other = "0123456789abcdef0123456789abcdef";
    assert_answered(&ask_via(&server, other).await.json(), 1);
    assert_eq!(via_of(&x), format!("{other}, {own}"));
    let asked = x.state().asked.len();
    for (via, reason) in [(own.clone(), "its own replica"), (format!("{own}, {other}"), "between: 1")] {
        let refused = ask_via(&server, &via).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["code"]),
            (LOOP_DETECTED, &json!("loop_detected"))
        );
        assert!(refused.error().contains(reason), "{}", refused.body);
    }
    assert_eq!(x.state().asked.len(), asked, "no row went on");
    // What it is called by its replicas is told to nobody else, and to clients nothing at all.
    let models = server.client.get("/v1/models").await;
    assert!(!models.body.contains("gateways"), "{}", models.body);
    let head = format!("{VIA}: {other}");
    let looked = server.client.request("GET", "/v1/models", &format!("application/json\r\n{head}"), b"");
    let looked = server.client.raw(&looked).await;
    let told = looked.json()["data"][0]["gateways"].clone();
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
    assert!(!looked.body.contains(&own), "{told}");
}

#[actix_web::test]
async fn a_row_that_a_replica_refuses_for_a_loop_goes_elsewhere_and_is_not_blamed() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![a.executor(), b.executor()]);
    config.fleet.tries_max = 1;
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    let back = r#"{"error": {"message": "requests go in a loop", "code": "loop_detected"}}"#;
    a.next(vec![Act::Reply(LOOP_DETECTED, "", back); 64]);
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert_eq!(answered(&[&b]), expected(12));
    let error = server.replicas().await["data"][0]["last_error"]["message"].clone();
    assert!(error.as_str().is_some_and(|error| error.contains("requests go in a loop")), "{error}");
}
