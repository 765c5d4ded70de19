//! A program that is killed while it works: every line of a batch once, what was seen of a ticket stays as it was, and usage
//! is that of the rows that are stored, and of those that were answered.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::common::batch::{line, make, read, until_over, upload};
use crate::common::client::Client;
use crate::common::seen_in_time;
use crate::program::{run, start as start_program, told};
use crate::support::Server;

/// Requests of the batch whose server is killed.
const REQUESTS: u64 = 20_000;

/// The real program on a folder: its process, and how to call it.
fn start(folder: &Path, key: &mut Option<String>) -> (Child, Client) {
    client_of(start_program(folder), key)
}

fn client_of((process, said): (Child, Vec<String>), key: &mut Option<String>) -> (Child, Client) {
    *key = told(&said, "API key: ").map(str::to_owned).or(key.take());
    let address = told(&said, " on http://").expect("it says where it is").parse().unwrap();
    (process, Client { address, key: key.clone() })
}

#[actix_web::test]
async fn a_batch_of_20000_requests_whose_server_is_killed_ten_times_has_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut key = None;
    let (mut process, mut client) = start(dir.path(), &mut key);
    // Two tokens in, one out: as little work as there is.
    let request = |row: u64| {
        let body = json!({"prompt": [row % 150 + 1, row / 150 + 1], "max_tokens": 1, "temperature": 0});
        line(&format!("row {row}"), body) + "\n"
    };
    let file = upload(&client, &(0..REQUESTS).map(request).collect::<String>()).await;
    let id = make(&client, &file).await["id"].as_str().unwrap().to_owned();
    let mut random = StdRng::seed_from_u64(39);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
    let mut done = 0;
    for kill in 1..=10 {
        let least = kill * REQUESTS / 12 + random.random_range(0..REQUESTS / 12);
        while done < least {
            looks.tick().await;
            let batch = client.get(&format!("/v1/batches/{id}")).await.json();
            let now = batch["request_counts"]["completed"].as_u64().unwrap();
            assert!(now >= done, "what is recorded stays recorded: {batch}");
            done = now;
        }
        // SIGKILL.
        process.kill().unwrap();
        process.wait().unwrap();
        (process, client) = start(dir.path(), &mut key);
    }
    let batch = until_over(&client, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": REQUESTS, "completed": REQUESTS, "failed": 0}));
    let answers = read(&client, &batch["output_file_id"]).await;
    assert_eq!(answers.len() as u64, REQUESTS);
    for (row, (name, _)) in answers.iter().enumerate() {
        assert_eq!(*name, format!("row {row}"));
    }
    let ran = ran(&client).await;
    assert!(ran as u64 <= REQUESTS - done, "the last server ran {ran} rows, and {done} were recorded before");
    let usage = client.get("/v1/usage").await.json();
    let of_batches = usage["data"].as_array().unwrap().iter().filter(|day| day["route"] == "batches");
    let counted: u64 = of_batches.map(|day| day["rows"].as_u64().unwrap()).sum();
    assert_eq!(counted, REQUESTS, "each row is counted once, whatever was killed");
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Rows of the ticket whose server is killed.
const ROWS: u64 = 400;

/// The same on a Postgres.
fn start_on(folder: &Path, database: &str, key: &mut Option<String>) -> (Child, Client) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--database", database, "--data-dir"]).arg(folder);
    client_of(run(&mut command), key)
}

/// Answers by their rows, as a client saw them.
#[derive(Default)]
struct Seen(BTreeMap<u64, String>);

impl Seen {
    /// Looks at a reply: what was seen before is the same. Its status.
    fn add(&mut self, reply: &Value) -> String {
        for row in reply["rows"].as_array().unwrap_or_else(|| panic!("no rows: {reply}")) {
            let (Some(text), Some(index)) = (row["text"].as_str(), row["index"].as_u64()) else { continue };
            let seen = self.0.entry(index).or_insert_with(|| text.to_owned());
            assert_eq!(seen, text, "row {index} was seen otherwise");
        }
        reply["status"].as_str().unwrap().to_owned()
    }

    /// Looks at a ticket until it has ended, or so many rows were seen. Whether it has ended.
    async fn watch(&mut self, client: &Client, path: &str, rows: usize) -> bool {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
        let watch = async {
            loop {
                looks.tick().await;
                let status = self.add(&client.get(path).await.json());
                if status != "running" || self.0.len() >= rows {
                    return status != "running";
                }
            }
        };
        seen_in_time("rows", watch).await
    }
}

/// Rows that a server has run since its start.
async fn ran(client: &Client) -> f64 {
    let metrics = client.get("/metrics").await.body;
    let rows = metrics.lines().filter(|line| line.starts_with("relserve_rows_total{"));
    rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Rows, tokens of prompts, those that were cached and computed, and of answers: of the rows that a ticket has, and what
/// usage has of its route. One statement: a write of a server that was killed may still become whole.
const STORED_AND_COUNTED: &str = "SELECT COUNT(*), \
    CAST(COALESCE(SUM(CAST(used->>'prompt_tokens' AS BIGINT)), 0) AS BIGINT), \
    CAST(COALESCE(SUM(CAST(used->'prompt_tokens_details'->>'cached_tokens' AS BIGINT)), 0) AS BIGINT), \
    CAST(COALESCE(SUM(CAST(used->>'computed_tokens' AS BIGINT)), 0) AS BIGINT), \
    CAST(COALESCE(SUM(CAST(used->>'completion_tokens' AS BIGINT)), 0) AS BIGINT) \
    FROM (SELECT CAST(result AS JSON)->'usage' AS used FROM ticket_rows WHERE ticket = $1) AS stored \
    UNION ALL SELECT CAST(COALESCE(SUM(row_count), 0) AS BIGINT), CAST(COALESCE(SUM(prompt), 0) AS BIGINT), \
    CAST(COALESCE(SUM(cached), 0) AS BIGINT), CAST(COALESCE(SUM(computed), 0) AS BIGINT), \
    CAST(COALESCE(SUM(output), 0) AS BIGINT) FROM token_usage WHERE route = 'relqueries'";

/// Usage is that of a ticket's stored rows; how many those are.
async fn counted_as_stored(pool: &sqlx::AnyPool, ticket: &str) -> u64 {
    let sums: Vec<(i64, i64, i64, i64, i64)> =
        sqlx::query_as(STORED_AND_COUNTED).bind(ticket).fetch_all(pool).await.unwrap();
    let [one, other] = &sums[..] else { panic!("{sums:?}") };
    assert_eq!(one, other, "rows, prompts, cached, computed, answers: of what is stored, and of usage");
    one.0 as u64
}

#[actix_web::test]
async fn on_postgres_every_row_of_a_ticket_that_was_seen_is_the_same_after_kills() {
    let Some(postgres) = Server::start() else { return };
    let url = postgres.create_database("seen").await;
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    let (dir, mut key, mut seen) = (tempfile::tempdir().unwrap(), None, Seen::default());
    let (mut process, mut client) = start_on(dir.path(), &url, &mut key);
    let rows: Vec<[String; 1]> = (0..ROWS).map(|row| [format!("word {row}")]).collect();
    // Drawn: a row that runs again says something else.
    let body = json!({"template": "Tell of {w}", "rows": rows, "max_tokens": 12, "temperature": 1, "deadline_ms": 1});
    let partial = client.post("/v1/relqueries", &body).await.json();
    seen.add(&partial);
    let ticket = partial["ticket"].as_str().unwrap_or_else(|| panic!("no ticket: {partial}"));
    let path = format!("/v1/relqueries/{ticket}");

    // Rows end, and nobody can store them: every write of tickets waits for this.
    let mut holding = pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(0x7265_6c04_i64);
    lock.execute(&mut *holding).await.unwrap();
    let end = async {
        while ran(&client).await < 100.0 {
            seen.add(&client.get(&path).await.json());
        }
    };
    seen_in_time("rows end", end).await;
    seen.add(&client.get(&path).await.json());
    process.kill().unwrap();
    process.wait().unwrap();
    holding.rollback().await.unwrap();
    let stored: Vec<(i64, String)> =
        sqlx::query_as("SELECT row_number, result FROM ticket_rows WHERE ticket = $1")
            .bind(ticket)
            .fetch_all(&pool)
            .await
            .unwrap();
    let is_stored = |row: u64| stored.iter().any(|(number, _)| *number as u64 == row);
    let lost: Vec<&u64> = seen.0.keys().filter(|row| !is_stored(**row)).collect();
    assert!(lost.is_empty(), "seen and not stored: {lost:?}");
    // What has run and is not stored is not counted either.
    counted_as_stored(&pool, ticket).await;

    for rows in [1, ROWS as usize / 2] {
        (process, client) = start_on(dir.path(), &url, &mut key);
        let has_ended = seen.watch(&client, &path, rows).await;
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(has_ended || seen.0.len() >= rows);
        counted_as_stored(&pool, ticket).await;
    }
    (process, client) = start_on(dir.path(), &url, &mut key);
    assert!(seen.watch(&client, &path, usize::MAX).await, "it ends");
    let whole = client.get(&path).await.json();
    assert_eq!(seen.add(&whole), "completed", "{whole}");
    assert_eq!(seen.0.len() as u64, ROWS);
    assert_eq!(counted_as_stored(&pool, ticket).await, ROWS);
    let usage = client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap().iter().filter(|sum| sum["route"] == "relqueries");
    let requests: u64 = sums.map(|sum| sum["requests"].as_u64().unwrap()).sum();
    assert_eq!(requests, 1, "however often it was gone on with: {usage}");
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(counted_as_stored(&pool, ticket).await, ROWS);
}

/// What was answered, as usage must have it: requests, rows, and tokens of prompts and of answers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answered([u64; 4]);

impl Answered {
    /// Requests, each of a row that was never asked before.
    const REQUESTS: u64 = 25;

    async fn ask(&mut self, client: &Client) {
        for _ in 0..Self::REQUESTS {
            let Self([requests, rows, prompts, answers]) = self;
            let row = json!([format!("word {requests}")]);
            let body = json!({"template": "Tell of {w}", "rows": [row], "max_tokens": 3});
            let reply = client.post("/v1/relqueries", &body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let usage = reply.json()["usage"].clone();
            *requests += 1;
            *rows += 1;
            *prompts += usage["prompt_tokens"].as_u64().unwrap();
            *answers += usage["completion_tokens"].as_u64().unwrap();
        }
    }

    /// What usage has.
    async fn counted(client: &Client) -> Self {
        let usage = client.get("/v1/usage?days=2").await.json();
        let days = usage["data"].as_array().unwrap();
        let names = ["requests", "rows", "prompt_tokens", "completion_tokens"];
        Self(names.map(|name| days.iter().map(|day| day[name].as_u64().unwrap()).sum()))
    }
}

#[actix_web::test]
async fn what_was_answered_is_counted_once_however_soon_its_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (settings, data) = (dir.path().join("flush.toml"), dir.path().join("data"));
    let (mut key, mut answered) = (None, Answered::default());
    // Nothing is written to the database before the kill; all the time; now and then.
    for flush_ms in [20_000, 1, 20, 20_000] {
        std::fs::write(&settings, format!("[store]\nflush_ms = {flush_ms}\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&settings);
        let (mut process, client) = client_of(run(command.arg("--data-dir").arg(&data)), &mut key);
        assert_eq!(Answered::counted(&client).await, answered, "at the start of the next");
        answered.ask(&client).await;
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let (mut process, client) = start(&data, &mut key);
    assert_eq!(Answered::counted(&client).await, answered);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[actix_web::test]
async fn on_postgres_what_was_answered_while_the_database_was_away_is_counted_after_a_kill() {
    let Some(postgres) = Server::start() else { return };
    let url = postgres.create_database("away").await;
    let (dir, mut key, mut answered) = (tempfile::tempdir().unwrap(), None, Answered::default());
    let (mut process, client) = start_on(dir.path(), &url, &mut key);
    answered.ask(&client).await;
    postgres.crash();
    answered.ask(&client).await;
    process.kill().unwrap();
    process.wait().unwrap();
    postgres.resume();
    let (mut process, client) = start_on(dir.path(), &url, &mut key);
    assert_eq!(Answered::counted(&client).await, answered);
    process.kill().unwrap();
    process.wait().unwrap();
}
