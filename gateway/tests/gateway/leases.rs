//! Several gateways on one database and one server: together they never have more in flight than it runs, who has
//! nothing to do leaves its share to who has, and shorter work goes first whoever has it.

use base::Millis;
use scheduler::fleet::LeaseConfig;
use serde_json::{Value, json};
use serving::replicas::LeaseView;
use store::Store;

use crate::common::client::Reply;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, seen_in_time, serve_fleet_on};
use crate::support;

/// Reports often; what is granted stays, whatever the machine is busy with.
const LASTING: LeaseConfig = LeaseConfig { every_ms: Millis(20), expire_ms: Millis(600_000) };

/// A gateway of that name in front of a server that runs `rows_max` rows.
async fn gateway(
    node: &str,
    (url, leases): (&str, LeaseConfig),
    replica: &FakeReplica,
    rows_max: u32,
) -> Server {
    let mut config = fleet(vec![replica.executor()]);
    config.replicas[0].rows_max = rows_max;
    config.store.node = node.into();
    config.fleet.leases = leases;
    let server = serve_fleet_on(config, Store::open(url).await.unwrap()).await;
    let is_up = |server: &Server| {
        let replica = &server.running.app.runtime.view().replicas[0];
        replica.is_up && replica.lease.is_some_and(|lease| lease.gateways > 0)
    };
    server.until("it is up and has a lease", is_up).await;
    server
}

/// Two of them, which know each other.
async fn gateways(store: (&str, LeaseConfig), replica: &FakeReplica, rows_max: u32) -> [Server; 2] {
    let both = [gateway("a", store, replica, rows_max).await, gateway("b", store, replica, rows_max).await];
    for server in &both {
        until_leased(server, rows_max / 2).await;
    }
    both
}

fn lease(server: &Server) -> LeaseView {
    server.running.app.runtime.view().replicas[0].lease.expect("the server is shared")
}

async fn until_leased(server: &Server, rows: u32) {
    server.until(&format!("its lease is of {rows} rows"), |server| lease(server).rows == rows).await;
}

async fn until_running(replica: &FakeReplica, rows: usize) {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
    let wait = async {
        while replica.state().running != rows {
            looks.tick().await;
        }
    };
    seen_in_time(&format!("{rows} rows run"), wait).await;
}

/// Asks for rows that answer `prefix0`, `prefix1`, ..
fn ask(server: &Server, prefix: &str, count: usize) -> tokio::task::JoinHandle<Reply> {
    let rows: Vec<Value> = (0..count).map(|i| json!([format!("{prefix}{i}")])).collect();
    let body =
        json!({"template": "Say {w}", "columns": ["w"], "rows": rows, "max_tokens": 8, "cache": false});
    let client = server.client.clone();
    tokio::spawn(async move { client.post("/v1/relqueries", &body).await })
}

async fn assert_answered(asked: tokio::task::JoinHandle<Reply>, prefix: &str, count: usize) {
    let reply = seen_in_time("its answer", asked).await.unwrap().json();
    let texts: Vec<&str> =
        reply["rows"].as_array().unwrap().iter().filter_map(|row| row["text"].as_str()).collect();
    let expected: Vec<String> = (0..count).map(|i| format!("{prefix}{i}")).collect();
    assert_eq!(texts, expected, "{reply}");
}

/// The last words that the server was asked for, in the order of its requests.
fn asked(replica: &FakeReplica) -> Vec<String> {
    let last = |body: &Value| {
        let text = body["prompt"]
            .as_str()
            .or(body["messages"][0]["content"].as_str())
            .unwrap_or_default()
            .to_owned();
        text.split_whitespace().next_back().unwrap_or_default().to_owned()
    };
    replica.state().asked.iter().map(last).collect()
}

#[actix_web::test]
async fn two_gateways_with_work_never_send_more_than_the_server_runs() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("leases").await;
    let replica = FakeReplica::start().await;
    let gate = replica.shut();
    let [a, b] = gateways((&url, LASTING), &replica, 8).await;
    let long = ask(&a, "a", 60);
    until_running(&replica, 7).await;
    // Shares move while all that may run does: from the long work to the short one, and back as that ends.
    let short = ask(&b, "b", 30);
    until_leased(&a, 1).await;
    until_running(&replica, 8).await;
    let shorter = ask(&a, "c", 10);
    until_leased(&a, 7).await;
    for _ in 0..100 {
        gate.add_permits(1);
        // A busy wait would take the core that the gateways need.
        tokio::task::yield_now().await;
    }
    assert_answered(long, "a", 60).await;
    assert_answered(short, "b", 30).await;
    assert_answered(shorter, "c", 10).await;
    let state = replica.state();
    assert_eq!((state.running_max, state.answered.len()), (8, 100), "never more, and each row once");
}

#[actix_web::test]
async fn a_gateway_that_is_not_heard_of_goes_on_with_a_row_at_a_time_and_the_other_gets_the_rest() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("expiry").await;
    let replica = FakeReplica::start().await;
    let gate = replica.shut();
    let leases = LeaseConfig { every_ms: Millis(20), expire_ms: Millis(1_000) };
    let [a, b] = gateways((&url, leases), &replica, 8).await;
    let theirs = ask(&b, "b", 12);
    until_leased(&b, 7).await;
    until_running(&replica, 7).await;
    b.running.app.runtime.store.close().await;
    b.until("its lease is over", |server| !lease(server).is_held).await;
    assert_eq!((lease(&b).rows, b.metric("relserve_replica_lease_rows{replica=\"0\"}")), (1, 1.0));
    assert!(b.metric("relserve_lease_failures_total") > 0.0);
    until_leased(&a, 8).await;
    assert_eq!(lease(&a).gateways, 1);
    // What it had in flight ends, and the rest goes one by one.
    gate.add_permits(100);
    assert_answered(theirs, "b", 12).await;
    assert_answered(ask(&a, "a", 3), "a", 3).await;
}

/// The address of a database that several gateways of a machine can use.
fn file(dir: &tempfile::TempDir) -> String {
    format!("sqlite:{}", dir.path().join("shared.db").display())
}

#[actix_web::test]
async fn who_has_nothing_to_do_leaves_its_share_to_who_has_and_keeps_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let replica = FakeReplica::start().await;
    let gate = replica.shut();
    let alone = gateway("a", (&file(&dir), LASTING), &replica, 8).await;
    let all = LeaseView { rows: 8, tokens: None, gateways: 1, is_held: true };
    assert_eq!(lease(&alone), all, "one alone has everything, with its first lease");
    let long = ask(&alone, "a", 40);
    until_running(&replica, 8).await;

    let other = gateway("b", (&file(&dir), LASTING), &replica, 8).await;
    assert_eq!(lease(&other).rows, 0, "what runs is not taken away");
    until_leased(&alone, 7).await;
    gate.add_permits(1);
    until_leased(&other, 1).await;
    until_running(&replica, 7).await;
    let short = ask(&other, "b", 1);
    until_running(&replica, 8).await;
    assert_eq!(asked(&replica).last().map(String::as_str), Some("b0"), "it has its row at once");
    let shown = other.replicas().await;
    let expected = json!({"rows": 1, "tokens": null, "gateways": 2, "held": true});
    assert_eq!(shown["data"][0]["lease"], expected, "{shown}");
    gate.add_permits(100);
    assert_answered(short, "b", 1).await;
    assert_answered(long, "a", 40).await;

    other.running.drain(async {}).await;
    let is_alone = |server: &Server| lease(server) == all;
    alone.until("it has everything again, long before anything expires", is_alone).await;
    assert!(replica.state().running_max <= 8);
}

#[actix_web::test]
async fn shorter_work_on_one_gateway_goes_before_long_work_on_another() {
    let dir = tempfile::tempdir().unwrap();
    let replica = FakeReplica::start().await;
    let gate = replica.shut();
    let [a, b] = gateways((&file(&dir), LASTING), &replica, 8).await;
    let long = ask(&a, "a", 40);
    until_running(&replica, 7).await;
    let short = ask(&b, "b", 3);
    until_running(&replica, 8).await;
    until_leased(&a, 5).await;
    for rows in [2, 3] {
        // A row of the long work ends, and one of the short work takes its room.
        gate.add_permits(1);
        until_leased(&b, rows).await;
        until_running(&replica, 8).await;
    }
    let order = asked(&replica);
    assert!(order[..7].iter().all(|word| word.starts_with('a')), "{order:?}");
    assert_eq!(order[7..], ["b0", "b1", "b2"], "the long work has room for five and has sent none");
    gate.add_permits(100);
    assert_answered(short, "b", 3).await;
    assert_answered(long, "a", 40).await;
    assert_eq!(replica.state().running_max, 8);
}
