//! Replicas that a DNS server names, whose records change while rows run.

use std::net::SocketAddr;

use base::Millis;
use gateway::config::Config;
use serde_json::json;
use serving::config::{Dialect, ReplicaSettings};

use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{answered, assert_answered, expected, table, until_up};
use crate::common::{Server, serve_fleet};
use crate::dns_server::{FakeDns, a, srv};

const SERVICE: &str = "vllm.default.svc.cluster.local.";

/// A gateway that asks this DNS server, every few milliseconds.
fn asks(dns: &FakeDns) -> Config {
    let mut config = fleet(Vec::new());
    config.discovery.name_servers = vec![dns.address];
    (config.discovery.ttl_ms_min, config.discovery.ttl_ms_max) = (Millis(5), Millis(20));
    config.discovery.replica = ReplicaSettings {
        dialect: Dialect::Vllm,
        health_ms: Millis(20),
        rows_max: 4,
        ..ReplicaSettings::default()
    };
    config
}

fn names(server: &Server) -> Vec<String> {
    let replicas = server.running.app.runtime.view().replicas;
    replicas.into_iter().map(|replica| replica.name).collect()
}

async fn until_named(server: &Server, expected: &[SocketAddr]) {
    let mut expected: Vec<String> = expected.iter().map(SocketAddr::to_string).collect();
    expected.sort();
    let is_so = |server: &Server| {
        let mut names = names(server);
        names.sort();
        names == expected
    };
    server.until(&format!("the replicas are {expected:?}"), is_so).await;
}

/// Servers at one port of several addresses, as pods are.
async fn pods(count: u8) -> Vec<FakeReplica> {
    let first = FakeReplica::start().await;
    let port = first.address.port();
    let mut pods = vec![first];
    for last in 2..=count {
        pods.push(FakeReplica::restart(SocketAddr::from(([127, 0, 0, last], port))).await);
    }
    pods
}

#[actix_web::test]
async fn the_addresses_of_a_service_are_the_replicas_and_a_change_is_followed_while_rows_run() {
    let (dns, pods) = (FakeDns::start().await, pods(3).await);
    let [one, two, three] = &pods[..] else { panic!("three pods") };
    dns.says(SERVICE, [a([127, 0, 0, 1]), a([127, 0, 0, 2])]);
    let mut config = asks(&dns);
    (config.discovery.dns, config.discovery.port) = (Some(SERVICE.into()), one.address.port());
    let server = serve_fleet(config).await;
    until_named(&server, &[one.address, two.address]).await;
    until_up(&server, 2).await;
    one.next(std::iter::repeat_n(Act::AnswerLater, 4));
    let (client, body) = (server.client.clone(), table(40));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server.until("the first has all that it may have", |_| one.state().asked.len() == 4).await;
    // A pod ends, another begins.
    dns.says(SERVICE, [a([127, 0, 0, 2]), a([127, 0, 0, 3])]);
    server
        .until("the third is up", |server| {
            let replicas = server.running.app.runtime.view().replicas;
            replicas.iter().any(|replica| replica.is_up && replica.name == three.address.to_string())
        })
        .await;
    let leaves = |server: &Server| server.running.app.runtime.view().replicas[0].state == "leaving";
    server.until("the first leaves", leaves).await;
    one.release(4);
    assert_answered(&asking.await.unwrap(), 40);
    assert_eq!(answered(&[one, two, three]), expected(40), "each row ran once");
    assert_eq!(one.state().answered.len(), 4, "it finished what it had");
    until_named(&server, &[two.address, three.address]).await;
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert!(!three.state().answered.is_empty());
}

#[actix_web::test]
async fn dns_that_fails_changes_nothing_and_an_empty_answer_counts_when_it_comes_twice() {
    let (dns, a_server) = (FakeDns::start().await, FakeReplica::start().await);
    dns.says(SERVICE, [a([127, 0, 0, 1])]);
    let mut config = asks(&dns);
    (config.discovery.dns, config.discovery.port) = (Some(SERVICE.into()), a_server.address.port());
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    dns.state().fails = true;
    let failures = "relserve_discovery_reads_total{outcome=\"failed\",source=\"dns\"}";
    server.until("it fails several times", |server| server.metric(failures) > 3.0).await;
    let shown = server.replicas().await;
    assert_eq!(shown["data"][0]["source"], "dns");
    assert_eq!(shown["discovery"][0]["status"], "failed");
    let error = shown["discovery"][0]["error"]["message"].clone();
    assert!(error.as_str().is_some_and(|error| error.contains(SERVICE)), "{error}");
    assert_answered(&server.relquery(table(6)).await.json(), 6);
    {
        // The name is there and has no address, and then not even the name is.
        let mut state = dns.state();
        state.fails = false;
        state.records.insert(SERVICE.into(), Vec::new());
    }
    until_named(&server, &[]).await;
    assert_eq!(server.client.get("/readyz").await.status, 503);
    let (client, body) = (server.client.clone(), table(6));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server.until("the table waits", |server| server.running.app.runtime.view().stats.rows_waiting == 6).await;
    dns.says(SERVICE, [a([127, 0, 0, 1])]);
    assert_answered(&asking.await.unwrap(), 6);
    dns.state().records.clear();
    until_named(&server, &[]).await;
}

#[actix_web::test]
async fn services_have_ports_of_their_own_and_one_that_the_configuration_names_too_is_one_replica() {
    let (dns, own, found) = (FakeDns::start().await, FakeReplica::start().await, FakeReplica::start().await);
    let name = "_http._tcp.vllm.default.svc.cluster.local.";
    let ready = |pod: &str, replica: &FakeReplica| srv(&format!("{pod}.{SERVICE}"), replica.address.port());
    dns.says(name, [ready("vllm-0", &own), ready("vllm-1", &found)]);
    for pod in ["vllm-0", "vllm-1"] {
        dns.says(&format!("{pod}.{SERVICE}"), [a([127, 0, 0, 1])]);
    }
    let mut config = asks(&dns);
    config.discovery.srv = Some(name.into());
    config.replicas = vec![ReplicaSettings { name: Some("own".into()), ..own.executor() }];
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    assert_eq!(names(&server), ["own".to_owned(), found.address.to_string()]);
    let shown = server.replicas().await;
    assert_eq!(shown["data"][0]["source"], "config");
    let read = json!({"model": "m", "source": "dns", "status": "ok", "replicas": 2, "error": null});
    assert_eq!(shown["discovery"][0], read);
    assert_answered(&server.relquery(table(30)).await.json(), 30);
    assert_eq!(answered(&[&own, &found]), expected(30));
    dns.says(name, []);
    server.until("the one that only DNS named is gone", |server| names(server) == ["own"]).await;
}
