//! `/v1/sql` with a deadline: what is there, and a ticket for the rest, restarts included.

use base::{Bytes, Millis};
use serde_json::{Value, json};
use serving::account::{Account, Spent};
use store::{DEFAULT_TENANT, Store, Used};

use crate::common::client::{Client, Reply, finish};
use crate::common::{Server, config, model, seen_in_time, serve, serve_on, serve_parties, serve_with};
use crate::takes::{database, kill, serve_shut_with, until_rows_run};

/// A row whose answer has one letter, and one whose answer has ten.
const SHORT_AND_LONG: &str =
    "SELECT ai_complete(prompt('say {0}', word)) AS t FROM (VALUES ('a'), ('bbbbbbbbbb')) AS words (word)";
/// Steps in which the short one ends, and the long one does not.
const SHORT_STEPS: u64 = 6;

/// Words that the model repeats, from a first number on.
fn words(first: u32, last: u32) -> String {
    format!(
        "SELECT value AS id, ai_complete(prompt('say {{0}}', value)) AS t FROM generate_series({first}, {last})"
    )
}

async fn hasty(client: &Client, query: &str, format: &str) -> Reply {
    client.post("/v1/sql", &json!({ "query": query, "format": format, "deadline_ms": 60 })).await
}

/// The last line of a reply that its deadline cut off.
fn partial(reply: &Reply) -> Value {
    let last: Value = serde_json::from_str(reply.body.lines().last().unwrap()).unwrap();
    assert_eq!(last["status"], "partial", "{}", reply.body);
    assert_eq!(reply.header("relserve-ticket"), last["ticket"].as_str());
    last
}

/// Reads a ticket until it is over.
async fn until_over(client: &Client, id: &str) -> Value {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    let wait = async {
        loop {
            looks.tick().await;
            let reply = client.get(&format!("/v1/sql/{id}")).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let ticket = reply.json();
            if ticket["status"] != "running" {
                return ticket;
            }
        }
    };
    seen_in_time("the ticket is over", wait).await
}

#[actix_web::test]
async fn a_deadline_gives_the_rows_that_are_there_and_a_ticket_for_the_rest() {
    let server = serve().await;
    server.client.post("/v1/sql", &json!({ "query": words(1, 2) })).await;
    server.gate.shut();
    let query = format!("({}) UNION ALL ({})", words(1, 2), words(3, 4));
    let reply = hasty(&server.client, &query, "jsonl").await;
    assert_eq!(reply.status, 200);
    let last = partial(&reply);
    let sent = last["rows"].as_u64().unwrap();
    assert_eq!(reply.body.lines().count() as u64, sent + 1);
    let id = last["ticket"].as_str().unwrap();
    let waiting = server.client.get(&format!("/v1/sql/{id}")).await.json();
    assert_eq!((&waiting["status"], &waiting["object"]), (&json!("running"), &json!("sql")));
    server.gate.release();
    let whole = until_over(&server.client, id).await;
    assert_eq!((&whole["status"], &whole["first_row"]), (&json!("completed"), &json!(sent)));
    let early = reply.body.lines().take(sent as usize).map(|line| serde_json::from_str(line).unwrap());
    let mut all: Vec<Value> = early.chain(whole["rows"].as_array().unwrap().clone()).collect();
    all.sort_by_key(|row| row["id"].as_u64());
    let expected: Vec<Value> = (1..=4).map(|id| json!({ "id": id, "t": id.to_string() })).collect();
    assert_eq!(all, expected);
    let done = server.client.post("/v1/sql", &json!({ "query": words(1, 1), "deadline_ms": 60_000 })).await;
    assert_eq!(done.body, "{\"id\":1,\"t\":\"1\"}\n");
}

#[actix_web::test]
async fn a_format_without_words_for_it_breaks_off_and_its_header_names_the_ticket() {
    let server = serve().await;
    for (place, format) in ["csv", "arrow"].into_iter().enumerate() {
        server.gate.shut();
        let first = 10 * (place as u32 + 1);
        let reply = hasty(&server.client, &words(first, first + 1), format).await;
        let id = reply.header("relserve-ticket").unwrap().to_owned();
        server.gate.release();
        let whole = until_over(&server.client, &id).await;
        assert_eq!(whole["rows"].as_array().unwrap().len(), 2, "{format}: {whole}");
    }
}

#[actix_web::test]
async fn a_ticket_is_its_tenants_alone_and_can_be_called_off() {
    let parties = serve_parties(config()).await;
    let server = &parties.server;
    server.gate.shut();
    let id =
        partial(&hasty(&server.client, &words(1, 3), "jsonl").await)["ticket"].as_str().unwrap().to_owned();
    let path = format!("/v1/sql/{id}");
    assert_eq!(parties.theirs.get(&path).await.status, 404);
    assert_eq!(parties.theirs.delete(&path).await.status, 404);
    assert_eq!(server.client.get(&format!("/v1/relqueries/{id}")).await.status, 404);
    assert_eq!(server.client.get("/v1/sql/sq-0").await.status, 404);
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    server.gate.release();
    server.until_free().await;
    assert_eq!(server.client.get(&path).await.json()["status"], "cancelled");
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], false);
}

#[actix_web::test]
async fn tickets_and_their_bytes_are_bounded() {
    let mut config = config();
    config.sql.tickets_max = 1;
    config.sql.ticket_bytes_max = Bytes(30);
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let first = hasty(&server.client, &words(1, 9), "jsonl").await;
    let id = partial(&first)["ticket"].as_str().unwrap().to_owned();
    let second = hasty(&server.client, &words(11, 12), "jsonl").await;
    assert!(second.body.contains("sql.tickets_max is 1"), "{}", second.body);
    server.gate.release();
    let failed = until_over(&server.client, &id).await;
    assert_eq!(failed["status"], "failed");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("30 bytes (sql.ticket_bytes_max)"), "{message}");
}

/// Ends a server while a statement of its runs on under a ticket.
async fn end(server: Server) {
    let (gate, app) = (server.gate.clone(), server.running.app.clone());
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.registry.running().is_empty() {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(server.running.drain(std::future::pending()), release);
}

#[actix_web::test]
async fn a_ticket_is_finished_after_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    let first = serve_on(config.clone(), model(), store.clone()).await;
    first.gate.shut();
    let key = first.client.key.clone().unwrap();
    let id =
        partial(&hasty(&first.client, &words(1, 3), "jsonl").await)["ticket"].as_str().unwrap().to_owned();
    first.until("its rows run", |server| server.running.app.runtime.registry.running().len() == 1).await;
    end(first).await;

    let second = serve_on(config, model(), store).await;
    let whole = until_over(&second.client.with_key(&key), &id).await;
    assert_eq!((&whole["status"], &whole["first_row"]), (&json!("completed"), &json!(0)));
    let expected: Vec<Value> = (1..=3).map(|id| json!({ "id": id, "t": id.to_string() })).collect();
    assert_eq!(whole["rows"], json!(expected));
}

#[actix_web::test]
async fn what_changes_tables_is_not_run_twice() {
    let (dir, store) = crate::common::lasting_store().await;
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    config.sql.folder = Some(dir.path().join("tables"));
    let first = serve_on(config.clone(), model(), store.clone()).await;
    first.gate.shut();
    let key = first.client.key.clone().unwrap();
    let query = format!("CREATE TABLE kept AS {}", words(1, 3));
    let id = partial(&hasty(&first.client, &query, "jsonl").await)["ticket"].as_str().unwrap().to_owned();
    first.until("its rows run", |server| server.running.app.runtime.registry.running().len() == 1).await;
    end(first).await;

    let second = serve_on(config, model(), store).await;
    let failed = until_over(&second.client.with_key(&key), &id).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("what changes tables is not run twice"), "{message}");
    let table = second.client.with_key(&key).post("/v1/sql", &json!({ "query": "SELECT * FROM kept" })).await;
    assert_eq!(table.status, 400, "{}", table.body);
}

/// What is stored of usage.
async fn stored_usage(store: &Store) -> Used {
    let mut sum = Used::default();
    for row in store.usage(Some(DEFAULT_TENANT), 0..=1_000_000).await.unwrap() {
        sum += row.used;
    }
    sum
}

/// What is counted of statements in memory.
fn counted_in_memory(server: &Server) -> Spent {
    server.running.app.runtime.shared.accounts.of(Account { tenant: DEFAULT_TENANT, route: "sql" })
}

/// Waits until an answer is kept with a ticket, and none besides.
async fn until_one_is_kept(server: &Server, id: &str) {
    let store = &server.running.app.runtime.store;
    let is_kept = async { while store.work_rows(id).await.unwrap().is_empty() {} };
    seen_in_time("the short row's answer is kept", is_kept).await;
    assert_eq!(store.work_rows(id).await.unwrap().len(), 1);
}

#[actix_web::test]
async fn a_statement_that_a_kill_interrupts_asks_for_no_answer_again_and_counts_each_once() {
    let mut calm = config();
    calm.store.flush_ms = Millis(20_000);
    let whole = serve_with(calm, model()).await;
    whole.client.post("/v1/sql", &json!({ "query": SHORT_AND_LONG })).await;
    let expected = counted_in_memory(&whole);
    assert_eq!(expected.rows, 2);
    // The short one is answered before there is a ticket, or after.
    for is_early in [true, false] {
        let (folder, database) = database().await;
        let first = serve_shut_with(folder.path(), model()).await;
        if is_early {
            first.gate.allow(SHORT_STEPS);
        }
        let reply = hasty(&first.client, SHORT_AND_LONG, "csv").await;
        let id = reply.header("relserve-ticket").expect("a ticket").to_owned();
        if !is_early {
            first.gate.allow(SHORT_STEPS);
        }
        until_one_is_kept(&first, &id).await;
        kill(first, &database).await;

        let second = serve_shut_with(folder.path(), model()).await;
        second.gate.release();
        let ticket = until_over(&second.client, &id).await;
        assert_eq!(ticket["rows"], json!([{ "t": "a" }, { "t": "bbbbbbbbbb" }]), "{ticket}");
        assert_eq!(second.metric("relserve_rows_total{outcome=\"stop\"}"), 1.0, "the long one alone runs");
        let store = &second.running.app.runtime.store;
        let used = stored_usage(store).await;
        assert_eq!(
            (used.requests, used.rows, used.prompt, used.output),
            (1, 2, expected.usage.prompt, expected.usage.output),
            "early: {is_early}"
        );
        assert!(store.work_rows(&id).await.unwrap().is_empty(), "they go with the ticket's end");
    }
}

#[actix_web::test]
async fn a_statement_is_one_request_whatever_its_columns_and_its_starts() {
    let mut calm = config();
    calm.store.flush_ms = Millis(20_000);
    let whole = serve_with(calm, model()).await;
    let columns = "SELECT ai_complete(prompt('say {0}', w)) AS a, ai_complete(prompt('tell {0}', w)) AS b \
        FROM (VALUES ('x'), ('y')) AS t(w)";
    assert_eq!(whole.client.post("/v1/sql", &json!({ "query": columns })).await.status, 200);
    assert_eq!((counted_in_memory(&whole).requests, counted_in_memory(&whole).rows), (1, 4));

    let (folder, database) = database().await;
    let mut server = serve_shut_with(folder.path(), model()).await;
    let reply = hasty(&server.client, columns, "csv").await;
    let id = reply.header("relserve-ticket").expect("a ticket").to_owned();
    // Its first start, and two after kills.
    for _ in 0..2 {
        until_rows_run(&server).await;
        kill(server, &database).await;
        server = serve_shut_with(folder.path(), model()).await;
    }
    server.gate.release();
    assert_eq!(until_over(&server.client, &id).await["status"], "completed");
    assert_eq!(counted_in_memory(&server).requests, 0);
    let used = stored_usage(&server.running.app.runtime.store).await;
    assert_eq!((used.requests, used.rows), (1, 4));
}

#[actix_web::test]
async fn answers_beyond_the_bytes_of_a_ticket_are_counted_and_not_kept() {
    let mut config = config();
    config.store.flush_ms = Millis(20_000);
    // The result has less, as has one answer with its key, and two have more.
    config.sql.ticket_bytes_max = Bytes(200);
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let reply = hasty(&server.client, SHORT_AND_LONG, "csv").await;
    let id = reply.header("relserve-ticket").expect("a ticket").to_owned();
    server.gate.allow(SHORT_STEPS);
    until_one_is_kept(&server, &id).await;
    server.gate.release();
    assert_eq!(until_over(&server.client, &id).await["status"], "completed");
    let stored = stored_usage(&server.running.app.runtime.store).await;
    assert_eq!((stored.rows, counted_in_memory(&server).rows), (1, 1), "the long one, by memory");
}

#[actix_web::test]
async fn answers_that_wait_keep_no_statement_from_its_ticket_where_the_tenant_has_no_room_for_them() {
    let statement = async |server: &Server, format: &str| {
        server.gate.shut();
        let query = json!({ "query": SHORT_AND_LONG, "format": format, "deadline_ms": 120 });
        let reply = server.client.begin("/v1/sql", &query).await;
        server.gate.allow(SHORT_STEPS);
        finish(reply).await
    };
    let ample = serve_with(config(), model()).await;
    let reply = statement(&ample, "csv").await;
    let id = reply.header("relserve-ticket").expect("a ticket").to_owned();
    let (store, now) = (&ample.running.app.runtime.store, ample.running.app.runtime.shared.unix_now());
    let ticket = store.ticket(DEFAULT_TENANT, &id, now).await.unwrap().expect("it is kept");
    let request = ticket.request.len() as u64;
    ample.gate.release();
    assert_eq!(until_over(&ample.client, &id).await["status"], "completed");

    // There is room for what is asked, and for no answer besides.
    let mut config = config();
    config.limits.tenant_ticket_bytes_max = Bytes(request + 20);
    let near_full = serve_with(config, model()).await;
    let reply = statement(&near_full, "csv").await;
    let id = reply.header("relserve-ticket").unwrap_or_else(|| panic!("a ticket: {}", reply.body)).to_owned();
    near_full.gate.release();
    let whole = until_over(&near_full.client, &id).await;
    // The short one came before the deadline, or after.
    let expected = [json!({ "t": "a" }), json!({ "t": "bbbbbbbbbb" })];
    let came = whole["first_row"].as_u64().expect("a number") as usize;
    assert_eq!(whole["rows"], json!(expected[came..]), "{whole}");
    near_full.until_free().await;
    assert_eq!(near_full.metric("relserve_rows_total{outcome=\"stop\"}"), 2.0, "each ran once");

    let mut config = crate::common::config();
    config.limits.tenant_ticket_bytes_max = Bytes(request - 1);
    let full = serve_with(config, model()).await;
    let refused = statement(&full, "jsonl").await;
    assert!(refused.body.contains("(limits.tenant_ticket_bytes_max)"), "{}", refused.body);
    full.gate.release();
    full.until_free().await;
}
