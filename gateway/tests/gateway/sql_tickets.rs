//! `/v1/sql` with a deadline: what is there, and a ticket for the rest, restarts included.

use base::{Bytes, Millis};
use serde_json::{Value, json};

use crate::common::client::{Client, Reply};
use crate::common::{Server, config, model, seen_in_time, serve, serve_on, serve_parties, serve_with};

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
