//! Policy `auto`: the server replays its own last minutes, says what came out, and goes on by what it chose.

use base::Millis;
use gateway::config::Config;
use scheduler::Policy;
use serde_json::json;

use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{Parties, Server, config, model, serve_fleet, serve_parties, serve_with};

fn auto() -> Config {
    let mut config = config();
    config.scheduler.policy = Policy::Auto;
    config.scheduler.auto.every_ms = Millis(1);
    config.scheduler.auto.relqueries_min = 3;
    config
}

async fn run(server: &Server, rows: usize) {
    let rows: Vec<_> = (0..rows).map(|row| json!([format!("word{row:04}")])).collect();
    let body =
        json!({"template": "Repeat: {w}", "columns": ["w"], "rows": rows, "max_tokens": 8, "cache": false});
    assert_eq!(server.relquery(body).await.status, 200);
}

#[actix_web::test]
async fn the_last_minutes_are_replayed_and_an_operator_is_told_what_came_out() {
    let Parties { server, operators, .. } = serve_parties(auto()).await;
    for rows in [30, 2, 5, 1] {
        run(&server, rows).await;
    }
    let auto = || server.running.app.runtime.shared.auto.last();
    server.until("there was a choice", |_| auto().is_some_and(|one| one.verdict.relqueries == 4)).await;
    let told = operators.get("/v1/scheduler").await.json();
    assert_eq!(told["configured_policy"], "auto");
    let verdict = &told["choice"]["verdict"];
    let outcomes = verdict["outcomes"].as_array().unwrap();
    let names: Vec<_> = outcomes.iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert_eq!(names, Policy::CANDIDATES.map(Policy::name));
    assert!(outcomes.iter().all(|one| one["mean"].as_f64().unwrap() > 0.0), "{verdict}");
    assert!(names.contains(&told["policy"].as_str().unwrap()), "{told}");
    assert_eq!(server.client.get("/v1/scheduler").await.json()["choice"], json!(null), "it tells of others");
    assert!(server.metric("relserve_auto_replay_seconds_count") >= 1.0);
}

#[actix_web::test]
async fn in_front_of_replicas_nothing_is_chosen_before_they_have_answered_enough_to_know_their_costs() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![a.executor(), b.executor()]);
    config.scheduler = auto().scheduler;
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    for _ in 0..4 {
        run(&server, 1).await;
    }
    let chosen = || server.running.app.runtime.shared.auto.last();
    let looks = |server: &Server| server.metric("relserve_auto_replay_seconds_count");
    // A look that ends after the first of these may have begun before there was enough to replay, the next one not.
    for _ in 0..2 {
        let before = looks(&server);
        run(&server, 1).await;
        server.until("it has looked", |server| looks(server) > before).await;
    }
    assert!(chosen().is_none(), "six rows tell nothing of costs");
    run(&server, 60).await;
    server.until("there was a choice", |_| chosen().is_some()).await;
    let outcomes = chosen().map(|one| one.verdict.outcomes).unwrap_or_default();
    assert_eq!(outcomes.len(), Policy::CANDIDATES.len());
    assert!(outcomes.iter().all(|one| one.mean > 0.0), "{outcomes:?}");
}

#[actix_web::test]
async fn what_was_chosen_is_in_force_afterwards_and_counted() {
    let server = serve_with(auto(), model()).await;
    let shared = &server.running.app.runtime.shared;
    let in_force = |server: &Server| server.running.app.runtime.view().policy;
    // It is no candidate: whatever is chosen is another policy, however fast the machine is.
    shared.intake.set_policy(Policy::Fcfs);
    server.until("it is in force", |server| in_force(server) == Policy::Fcfs).await;
    // One look after each, of which the last alone finds enough to replay.
    for (rows, looks) in [(30, 1.0), (2, 2.0), (5, 3.0)] {
        run(&server, rows).await;
        let has_looked = |server: &Server| server.metric("relserve_auto_replay_seconds_count") >= looks;
        server.until("it has looked", has_looked).await;
    }
    let verdict = shared.auto.last().unwrap().verdict;
    assert_eq!((verdict.present, verdict.relqueries), (Policy::Fcfs, 3));
    assert!(Policy::CANDIDATES.contains(&verdict.chosen), "{verdict}");
    assert_eq!(server.metric("relserve_policy_changes_total"), 1.0);
    server.until("the choice is in force", |server| in_force(server) == verdict.chosen).await;
}

#[actix_web::test]
async fn a_named_policy_stays_and_nothing_is_replayed() {
    let mut config = auto();
    config.scheduler.policy = Policy::RelServe;
    let server = serve_with(config, model()).await;
    for _ in 0..5 {
        run(&server, 3).await;
    }
    let told = server.client.get("/v1/scheduler").await.json();
    assert_eq!((&told["policy"], &told["configured_policy"]), (&json!("relserve"), &json!("relserve")));
    assert_eq!(server.metric("relserve_auto_replay_seconds_count"), 0.0);
}

#[actix_web::test]
async fn the_policy_changes_between_steps_while_rows_run() {
    let server = serve_with(config(), model()).await;
    let shared = &server.running.app.runtime.shared;
    for policy in [Policy::RelServe, Policy::Fcfs, Policy::RelServeDecode, Policy::MarginalWork] {
        let body =
            json!({"template": "Say {w}", "rows": [["a"], ["b"], ["c"]], "max_tokens": 20, "cache": false});
        let (reply, ()) = futures_util::join!(server.client.post("/v1/relqueries", &body), async {
            shared.intake.set_policy(policy);
        });
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["usage"]["rows_completed"].as_u64().unwrap_or(3), 3);
        server
            .until("the policy is in force", |server| server.running.app.runtime.view().policy == policy)
            .await;
    }
}
