//! Batches of a tenant whose budget of tokens is spent: they wait for the next day, or for a larger budget.

use serde_json::{Value, json};
use serving::budgets::BudgetAmount;
use serving::config::Secret;
use store::{TenantLimits, UnixMillis};

use crate::common::batch::{line, make, read, until, until_over, upload};
use crate::common::left::{LeftTicket, gone};
use crate::common::{Server, config, key_of, lasting_store, model, serve_on};

/// A line whose answer is this word of two letters: 6 tokens of a prompt and 3 of an answer, at most.
fn one(word: &str) -> String {
    line(word, json!({"prompt": format!("Say {word}"), "max_tokens": 3, "temperature": 0})) + "\n"
}

fn ten() -> String {
    (0..10).map(|number| one(&format!("w{number}"))).collect()
}

fn counts(batch: &Value) -> (u64, u64) {
    let count = |field: &str| batch["request_counts"][field].as_u64().unwrap();
    (count("completed"), count("failed"))
}

#[actix_web::test]
async fn a_batch_waits_for_its_tenants_budget_and_others_run_meanwhile() {
    let (folder, store) = lasting_store().await;
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let key = key_of(&store, other).await;
    let mut config = config();
    config.auth.admin_key = Some(Secret("op".into()));
    config.bulk.running_max = 1;
    let server = serve_on(config, model(), store).await;
    let (theirs, operators) = (server.client.with_key(&key), server.client.with_key("op"));
    let set = async |most: u64| {
        let limits = json!({"limits": {"day_tokens": most}});
        assert_eq!(operators.post("/v1/tenants/default", &limits).await.status, 200);
    };
    // Three lines, and not a fourth.
    set(30).await;
    let file = upload(&server.client, &ten()).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    let batch = until(&server.client, &id, |batch| counts(batch).0 >= 3).await;
    assert_eq!(counts(&batch), (3, 0), "{batch}");
    // There is room for one batch that runs: one that waits for tokens has given it back.
    let file = upload(&theirs, &ten()).await;
    let second = make(&theirs, &file).await["id"].as_str().unwrap().to_owned();
    assert_eq!(counts(&until_over(&theirs, &second).await), (10, 0));
    let batch = server.client.get(&format!("/v1/batches/{id}")).await.json();
    assert_eq!((batch["status"].as_str(), counts(&batch)), (Some("in_progress"), (3, 0)));
    // What was used today becomes the day before's: so it is after midnight.
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let past = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE token_usage SET day = day - 1").execute(&past).await.unwrap();
    let batch = until(&server.client, &id, |batch| counts(batch).0 >= 6).await;
    assert_eq!((batch["status"].as_str(), counts(&batch)), (Some("in_progress"), (6, 0)));
    set(1_000).await;
    let batch = until_over(&server.client, &id).await;
    assert_eq!((batch["status"].as_str(), counts(&batch)), (Some("completed"), (10, 0)), "{batch}");
    let answers = read(&server.client, &batch["output_file_id"]).await;
    assert!(answers.iter().all(|(id, answer)| id == answer) && answers.len() == 10, "{answers:?}");
}

#[actix_web::test]
async fn a_line_that_no_budget_of_its_tenant_holds_fails_alone() {
    let (_folder, store) = lasting_store().await;
    let limits = TenantLimits { day_tokens: Some(40), ..TenantLimits::default() };
    store.set_limits(store::DEFAULT_TENANT, &limits).await.unwrap();
    let server = serve_on(config(), model(), store).await;
    let large = line("large", json!({"prompt": "Say large", "max_tokens": 50})) + "\n";
    let file = upload(&server.client, &(one("aa") + &large + &one("bb"))).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    let batch = until_over(&server.client, &id).await;
    assert_eq!((batch["status"].as_str(), counts(&batch)), (Some("completed"), (2, 1)), "{batch}");
    let errors = read(&server.client, &batch["error_file_id"]).await;
    assert!(errors[0].0 == "large" && errors[0].1.contains("40 tokens"), "{errors:?}");
}

#[actix_web::test]
async fn a_batch_that_waits_for_a_budget_past_its_window_expires() {
    let (_folder, store) = lasting_store().await;
    let limits = TenantLimits { day_tokens: Some(30), ..TenantLimits::default() };
    store.set_limits(store::DEFAULT_TENANT, &limits).await.unwrap();
    let first = serve_on(config(), model(), store.clone()).await;
    let spent = json!({"template": "Say {w}", "rows": [["x".repeat(12)]], "max_tokens": 13});
    assert_eq!(first.relquery(spent).await.status, 200);
    let file = upload(&first.client, &ten()).await;
    let key = first.client.key.clone().unwrap();
    let now = first.running.app.runtime.shared.clock.unix_ms();
    first.running.drain(std::future::pending()).await;
    // A batch of a gateway that is gone; its hour is over in a second.
    let created = UnixMillis(now + 1_000 - 3_600_000);
    LeftTicket { created, ..LeftTicket::batch("batch_1", &file, 1) }.put(&store, &gone()).await;
    let second = serve_on(config(), model(), store.clone()).await;
    let client = second.client.with_key(&key);
    let batch = until_over(&client, "batch_1").await;
    assert_eq!((batch["status"].as_str(), counts(&batch)), (Some("expired"), (0, 10)), "{batch}");
    let errors = read(&client, &batch["error_file_id"]).await;
    assert!(errors.iter().all(|(_, error)| error == "batch_expired"), "{errors:?}");
}

#[actix_web::test]
async fn a_batch_that_another_gateway_goes_on_with_holds_nothing_of_its_tenants_budget() {
    let (folder, store) = lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    let spent = |server: &Server| server.running.app.runtime.shared.budgets.status(store::DEFAULT_TENANT).day;
    server.gate.shut();
    // Of the line's two rows the first ends.
    let long = format!("Repeat: {}", "x".repeat(100));
    let prompts = json!({"prompt": ["Say a", long], "max_tokens": 200, "temperature": 0});
    let file = upload(&server.client, &line("two", prompts)).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    server.gate.allow(8);
    server.until("the first row is charged", |server| spent(server) != BudgetAmount::default()).await;
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let other = sqlx::AnyPool::connect(&url).await.unwrap();
    let taken = sqlx::query(
        "UPDATE tickets SET holder = 'other', leased_until = leased_until + 3600000 WHERE id = $1",
    );
    assert_eq!(taken.bind(&id).execute(&other).await.unwrap().rows_affected(), 1);
    server
        .until("nothing of it runs", |server| server.running.app.runtime.registry.running().is_empty())
        .await;
    server.gate.release();
    server.until_free().await;
    server.until("nothing of it is held", |server| spent(server) == BudgetAmount::default()).await;
}
