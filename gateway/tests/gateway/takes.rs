//! Work that ends every server that takes it up: it fails after a while, and all other work goes on.
//!
//! A server is killed here by refusing all that it writes at its end. (That SIGKILL leaves no more than that is shown in
//! the program's own tests.)

use std::path::Path;
use std::sync::Arc;

use gateway::wire::relquery::public_id;
use serde_json::{Value, json};
use serving::model::Model;
use serving::relquery_state::RelQueryState;
use store::Store;

use crate::batches::hasty;
use crate::common::batch::{lines, make, read, until_over, upload};
use crate::common::client::Client;
use crate::common::double::Gate;
use crate::common::{Server, key_of, lasting_store, model, seen_in_time, start_behind};
use crate::last_writes::Database;

/// A database that outlives its servers.
pub(crate) async fn database() -> (tempfile::TempDir, Database) {
    let (folder, store) = lasting_store().await;
    store.close().await;
    let database = Database::open(folder.path()).await;
    (folder, database)
}

/// A server whose steps wait at the gate from its start on.
async fn serve_shut(folder: &Path) -> Server {
    serve_shut_with(folder, model()).await
}

/// The same with this model.
pub(crate) async fn serve_shut_with(folder: &Path, model: Model) -> Server {
    let url = format!("sqlite://{}", folder.join("test.db").display());
    let store = Store::open(&url).await.unwrap();
    let key = key_of(&store, store::DEFAULT_TENANT).await;
    let gate = Arc::new(Gate::open());
    gate.shut();
    let mut config = hasty();
    config.bulk.rows_in_flight_max = 8;
    let running = start_behind(&gate, config, model, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    Server { running, client, gate }
}

/// The relQueries that run.
fn running(server: &Server) -> Vec<Arc<RelQueryState>> {
    server.running.app.runtime.registry.running()
}

pub(crate) async fn until_rows_run(server: &Server) {
    server.until("a relQuery runs", |server| !running(server).is_empty()).await;
}

/// Ends a server in order.
pub(crate) async fn end(server: Server) {
    let (app, gate) = (server.running.app.clone(), server.gate.clone());
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.is_draining() || !app.runtime.registry.running().is_empty() {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(server.running.drain(std::future::pending()), release);
    app.runtime.store.close().await;
}

/// Ends a server of which nothing is written any more.
pub(crate) async fn kill(server: Server, database: &Database) {
    database.allow(0).await;
    end(server).await;
    database.release().await;
}

/// A ticket of one row, which waits at the gate. Where it is read.
async fn ticket(server: &Server, word: &str) -> String {
    let body = json!({"template": "Say {w}", "rows": [[word]], "deadline_ms": 30});
    let reply = server.relquery(body).await.json();
    format!("/v1/relqueries/{}", reply["ticket"].as_str().unwrap_or_else(|| panic!("no ticket: {reply}")))
}

pub(crate) fn assert_given_up(error: &Value) {
    assert_eq!(error["code"], "server_ended", "{error}");
    assert_eq!(error["message"], "the server ended 3 times while it worked on this");
}

// Case 45.
#[actix_web::test]
async fn a_ticket_that_ends_every_server_fails_and_another_goes_on() {
    let (folder, database) = database().await;
    let first = serve_shut(folder.path()).await;
    let paths = [ticket(&first, "a").await, ticket(&first, "b").await];
    kill(first, &database).await;
    let second = serve_shut(folder.path()).await;
    assert_eq!(running(&second).len(), 2, "nobody knows yet which of them it was");
    kill(second, &database).await;
    let third = serve_shut(folder.path()).await;
    until_rows_run(&third).await;
    let found = running(&third);
    let [alone] = &found[..] else { panic!("one waits for the other") };
    let alone = format!("/v1/relqueries/{}", public_id(alone));
    kill(third, &database).await;

    let fourth = serve_shut(folder.path()).await;
    fourth.gate.release();
    let (failed, others): (Vec<_>, Vec<_>) = paths.iter().partition(|path| **path == alone);
    let ([failed], [other]) = (&failed[..], &others[..]) else { panic!("{alone} of {paths:?}") };
    let failed = fourth.client.get(failed).await.json();
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_given_up(&failed["error"]);
    let other = fourth.client.until_over(other).await;
    assert_eq!(other["status"], "completed", "{other}");
    assert_eq!(fourth.metric("relserve_work_given_up_total"), 1.0);
}

#[actix_web::test]
async fn servers_that_end_in_order_count_for_nothing() {
    let (folder, _database) = database().await;
    let mut server = serve_shut(folder.path()).await;
    let path = ticket(&server, "a").await;
    for _ in 0..4 {
        end(server).await;
        server = serve_shut(folder.path()).await;
        assert_eq!(running(&server).len(), 1, "taken up at once, beside other work");
    }
    server.gate.release();
    assert_eq!(server.client.until_over(&path).await["status"], "completed");
}

/// Makes a batch of lines `w0` to `w3`, and kills two servers with it. The batch.
async fn batch_of_two_ends(folder: &Path, database: &Database) -> String {
    let first = serve_shut(folder).await;
    let words = (0..4).map(|number| format!("w{number}"));
    let file = upload(&first.client, &lines(words)).await;
    let id = make(&first.client, &file).await["id"].as_str().unwrap().to_owned();
    until_rows_run(&first).await;
    kill(first, database).await;
    let second = serve_shut(folder).await;
    until_rows_run(&second).await;
    kill(second, database).await;
    id
}

/// What a line of a batch is read as.
fn said(number: u32) -> (String, String) {
    (format!("id of w{number}"), format!("w{number}"))
}

// Case 45.
#[actix_web::test]
async fn of_a_batch_that_ends_every_server_the_line_that_ran_alone_fails() {
    let (folder, database) = database().await;
    let id = batch_of_two_ends(folder.path(), &database).await;
    let third = serve_shut(folder.path()).await;
    until_rows_run(&third).await;
    let found = running(&third);
    let [alone] = &found[..] else { panic!("one line after the other") };
    assert_eq!(alone.read().rows.len(), 1);
    kill(third, &database).await;

    let fourth = serve_shut(folder.path()).await;
    fourth.gate.release();
    let batch = until_over(&fourth.client, &id).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 4, "completed": 3, "failed": 1}));
    let errors = read(&fourth.client, &batch["error_file_id"]).await;
    let message = "the server ended 3 times while it worked on this".to_owned();
    assert_eq!(errors, [("id of w0".to_owned(), message)]);
    assert_eq!(read(&fourth.client, &batch["output_file_id"]).await, [said(1), said(2), said(3)]);
    assert_eq!(fourth.metric("relserve_work_given_up_total"), 1.0);
}

#[actix_web::test]
async fn a_batch_with_which_two_servers_ended_runs_line_by_line_to_its_end() {
    let (folder, database) = database().await;
    let id = batch_of_two_ends(folder.path(), &database).await;
    let third = serve_shut(folder.path()).await;
    third.gate.release();
    let batch = until_over(&third.client, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 4, "completed": 4, "failed": 0}), "{batch}");
    let answers = read(&third.client, &batch["output_file_id"]).await;
    assert_eq!(answers, [said(0), said(1), said(2), said(3)]);
    let live = third.running.app.runtime.shared.live.clone();
    let rows =
        || -> Vec<usize> { live.records(base::Time(0)).iter().map(|record| record.rows.len()).collect() };
    third.until("all are remembered", |_| rows().len() == 4).await;
    assert_eq!(rows(), [1; 4]);
}

// Case 45.
#[actix_web::test]
async fn a_statement_that_ends_every_server_fails_though_each_began_its_rows() {
    let (folder, database) = database().await;
    let first = serve_shut(folder.path()).await;
    let query = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 2)";
    let body = json!({"query": query, "format": "jsonl", "deadline_ms": 60});
    let reply = first.client.post("/v1/sql", &body).await;
    let path = format!("/v1/sql/{}", reply.header("relserve-ticket").expect("a ticket"));
    let mut server = first;
    for _ in 0..3 {
        until_rows_run(&server).await;
        let has_rows = async { while database.count("ticket_rows").await == 0 {} };
        seen_in_time("the ticket has a first piece", has_rows).await;
        kill(server, &database).await;
        server = serve_shut(folder.path()).await;
    }
    let failed = server.client.get(&path).await.json();
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_given_up(&failed["error"]);
    assert!(running(&server).is_empty());
}
