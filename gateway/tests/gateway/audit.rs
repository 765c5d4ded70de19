//! What operators change stands in the log: every route of theirs that changes something, and links that are exchanged.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use serving::config::Secret;

use crate::common::client::Client;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{seen_in_time, serve_fleet};

/// Methods and paths.
type Routes = BTreeSet<(String, String)>;

/// The routes that change something and that a tenant's key is refused on for being no operator's.
async fn routes_of_operators(tenant: &Client) -> Routes {
    let document = tenant.get("/openapi.json").await.json();
    let mut routes = Routes::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let method = method.to_uppercase();
            let request = tenant.request(&method, &path.replace(['{', '}'], ""), "application/json", b"{}");
            let reply = seen_in_time(&format!("{method} {path} is answered"), tenant.raw(&request)).await;
            if reply.status == 403 && reply.json()["error"]["code"] == "operator_key_required" {
                routes.insert((method, path.clone()));
            }
        }
    }
    routes
}

/// The newest entry.
async fn newest(operator: &Client) -> Value {
    operator.get("/v1/audit").await.json()["data"][0].clone()
}

/// A route of operators, what is sent to it, and what the log says then: the action, and its subject. `{id}`: of the key
/// that was told last.
type Written<'a> = (&'a str, &'a str, &'a str, Value, &'a str, &'a str);

#[actix_web::test]
async fn every_change_by_a_route_of_operators_is_in_the_log_and_no_secret_is() {
    let (one, other) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![one.executor()]);
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_fleet(config).await;
    let operator = server.client.with_key("op");
    let url = format!("http://{}", other.address);
    let entry =
        json!({"name": "b", "url": url, "dialect": "vllm", "health_ms": 20, "api_key": "the replica's"});
    let replica = "/v1/replicas/{name}";
    let all: [Written<'_>; 10] = [
        ("POST", "/v1/tenants", "/v1/tenants", json!({"name": "acme"}), "tenant.create", "acme"),
        ("POST", "/v1/tenants/{name}", "/v1/tenants/acme", json!({"weight": 2}), "tenant.change", "acme"),
        ("POST", "/v1/keys", "/v1/keys", json!({"name": "n", "tenant": "acme"}), "key.create", "n"),
        ("POST", "/v1/keys/{id}/rotate", "/v1/keys/{id}/rotate", json!({}), "key.rotate", "{id}"),
        ("DELETE", "/v1/keys/{id}", "/v1/keys/{id}", json!({}), "key.revoke", "{id}"),
        ("POST", "/v1/sign-in/links", "/v1/sign-in/links", json!({"tenant": "acme"}), "sign_in.link", "acme"),
        ("POST", "/v1/replicas", "/v1/replicas", entry, "replica.add", url.as_str()),
        ("POST", "/v1/replicas/{name}/drain", "/v1/replicas/b/drain", json!({}), "replica.drain", "b"),
        ("POST", "/v1/replicas/{name}/resume", "/v1/replicas/b/resume", json!({}), "replica.resume", "b"),
        ("DELETE", replica, "/v1/replicas/b", json!({}), "replica.remove", "b"),
    ];
    let named: Routes = all.iter().map(|(method, path, ..)| ((*method).into(), (*path).into())).collect();
    assert_eq!(named, routes_of_operators(&server.client).await, "each such route has a line here");

    let (mut key, mut last) = (String::new(), 0);
    let mut secrets = vec!["the replica's".to_owned()];
    for (method, _, path, body, action, subject) in all {
        let (path, subject) = (path.replace("{id}", &key), subject.replace("{id}", &key));
        let request = operator.request(method, &path, "application/json", body.to_string().as_bytes());
        let reply = operator.raw(&request).await;
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.body);
        let entry = newest(&operator).await;
        let told = [&entry["actor"], &entry["action"], &entry["subject"], &entry["done"]];
        assert_eq!(json!(told), json!(["auth.admin_key", action, subject, true]), "{method} {path}");
        assert!(entry["id"].as_u64() > Some(last), "an entry of its own: {entry}");
        last = entry["id"].as_u64().unwrap();
        let reply = reply.json();
        if let Some(id) = reply["id"].as_u64() {
            key = id.to_string();
        }
        secrets.extend(["key", "token"].iter().filter_map(|name| Some(reply[*name].as_str()?.to_owned())));
        if action == "replica.add" {
            until_up(&server, 2).await;
        }
    }

    // The link is exchanged by whoever has it, without a key.
    let mut nobody = server.client.clone();
    nobody.key = None;
    let body = json!({"token": secrets.last()});
    let signed_in = nobody.post("/v1/sign-in", &body).await.json();
    secrets.push(signed_in["key"].as_str().unwrap().to_owned());
    let keys = operator.get("/v1/keys").await.json();
    let made = keys["data"].as_array().unwrap().last().unwrap()["id"].to_string();
    let entry = newest(&operator).await;
    let told = [&entry["actor"], &entry["action"], &entry["subject"], &entry["done"]];
    assert_eq!(json!(told), json!(["sign-in link", "sign_in.exchange", made, true]), "{entry}");
    assert_eq!((&entry["details"]["tenant"], &entry["details"]["operator"]), (&json!("acme"), &json!(false)));
    assert_eq!(nobody.post("/v1/sign-in", &body).await.status, 401);
    assert_eq!(newest(&operator).await, entry, "what comes to nothing is not written: anybody may guess");

    let log = operator.get("/v1/audit").await.body;
    assert_eq!(secrets.len(), 5, "of a replica, of three keys and of a link");
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret} is in {log}");
    }
}
