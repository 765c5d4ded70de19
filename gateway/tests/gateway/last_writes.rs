//! A server whose last write is any one of those that a batch takes.
//!
//! Triggers of the database let so many writes happen and refuse all that follow, so what a server leaves is what it
//! would leave if it were killed there. (That what is committed outlives SIGKILL itself is shown in the program's own
//! tests.)

use futures_util::future::join_all;
use gateway::config::Config;
use serde_json::{Value, json};
use sqlx::AnyPool;
use store::Store;

use crate::batches::hasty;
use crate::common::batch::{line, read, until_over, upload};
use crate::common::client::{Client, Reply};
use crate::common::{Server, lasting_store, model, seen_in_time, serve_on};

/// Lines of the batch.
const LINES: usize = 3;

/// The database as a test sees it, from outside of the server.
pub(crate) struct Database(AnyPool);

impl Database {
    pub(crate) async fn open(folder: &std::path::Path) -> Self {
        sqlx::any::install_default_drivers();
        let url = format!("sqlite://{}", folder.join("test.db").display());
        Self(AnyPool::connect(&url).await.unwrap())
    }

    /// Runs statements in one transaction: to bring each to the disk by itself takes most of such a test.
    async fn run(&self, statements: &[String]) {
        let all = format!("BEGIN IMMEDIATE;\n{};\nCOMMIT", statements.join(";\n"));
        sqlx::raw_sql(sqlx::AssertSqlSafe(all)).execute(&self.0).await.unwrap();
    }

    async fn tables(&self) -> Vec<String> {
        let named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
                     AND name <> 'writes'";
        sqlx::query_scalar(named).fetch_all(&self.0).await.unwrap()
    }

    /// Refuses every write from here on but the first so many.
    pub(crate) async fn allow(&self, most: usize) {
        let mut statements = vec![
            "CREATE TABLE writes (done INTEGER NOT NULL, most INTEGER NOT NULL)".to_owned(),
            format!("INSERT INTO writes VALUES (0, {most})"),
        ];
        for table in self.tables().await {
            statements.extend(["INSERT", "UPDATE", "DELETE"].map(|kind| {
                format!(
                    "CREATE TRIGGER {kind}_{table} BEFORE {kind} ON {table} BEGIN \
                     SELECT RAISE(ABORT, 'killed') FROM writes WHERE done >= most; \
                     UPDATE writes SET done = done + 1; END"
                )
            }));
        }
        self.run(&statements).await;
    }

    pub(crate) async fn is_spent(&self) -> bool {
        let spent = sqlx::query_scalar::<_, i64>("SELECT done >= most FROM writes");
        spent.fetch_one(&self.0).await.unwrap() == 1
    }

    /// Rows of a table.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let counted = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        sqlx::query_scalar(counted).fetch_one(&self.0).await.unwrap()
    }

    /// Allows everything again.
    pub(crate) async fn release(&self) {
        let mut statements = Vec::new();
        for table in self.tables().await {
            statements
                .extend(["INSERT", "UPDATE", "DELETE"].map(|kind| format!("DROP TRIGGER {kind}_{table}")));
        }
        statements.push("DROP TABLE writes".to_owned());
        self.run(&statements).await;
    }
}

/// The configuration of servers that have their journal of usage beside the database: what one counts in memory, and does not
/// write, the next one has.
fn with_journal(folder: &std::path::Path) -> Config {
    let mut config = hasty();
    config.store.data_dir = folder.to_owned();
    config
}

/// Makes the batch, or finds the one that was made.
async fn make(client: &Client, file: &str) -> Reply {
    let body = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let bytes = client.request("POST", "/v1/batches", "application/json", body.to_string().as_bytes());
    let text = String::from_utf8(bytes).unwrap().replacen("\r\n", "\r\nIdempotency-Key: k\r\n", 1);
    client.raw(text.as_bytes()).await
}

fn is_over(batch: &Value) -> bool {
    batch["status"] == "completed" || batch["status"] == "cancelled"
}

/// Whether the batch was over before the server had done so many writes. It was not: the server stands still.
async fn ends_within(server: &Server, database: &Database, file: &str) -> bool {
    let made = make(&server.client, file).await;
    if made.status != 200 {
        return false;
    }
    let path = format!("/v1/batches/{}", made.json()["id"].as_str().unwrap());
    is_over_within(server, database, &path).await
}

/// The same of one that was made before.
async fn is_over_within(server: &Server, database: &Database, path: &str) -> bool {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    seen_in_time("it ends or its last write is done", async {
        loop {
            looks.tick().await;
            if is_over(&server.client.get(path).await.json()) {
                return true;
            }
            if database.is_spent().await {
                return false;
            }
        }
    })
    .await
}

/// A batch whose server's last write is of this number; whether it was over by then. Whatever was written, the next
/// server ends it, with each line once.
async fn survives(most: usize) -> bool {
    let (folder, store) = lasting_store().await;
    let database = Database::open(folder.path()).await;
    let first = serve_on(with_journal(folder.path()), model(), store.clone()).await;
    let words: Vec<String> = (0..LINES).map(|number| format!("w{number}")).collect();
    let one = |word: &String| line(word, json!({"prompt": format!("Say {word}"), "temperature": 0})) + "\n";
    let file = upload(&first.client, &words.iter().map(one).collect::<String>()).await;
    let key = first.client.key.clone().unwrap();
    database.allow(most).await;
    let is_over = ends_within(&first, &database, &file).await;
    first.running.drain(std::future::ready(())).await;
    database.release().await;
    store.close().await;
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let again = Store::open(&url).await.unwrap();
    let second = serve_on(with_journal(folder.path()), model(), again).await;
    let client = second.client.with_key(&key);
    let made = make(&client, &file).await;
    assert_eq!(made.status, 200, "after {most} writes: {}", made.body);
    let batch = until_over(&client, made.json()["id"].as_str().unwrap()).await;
    assert_eq!(batch["status"], "completed", "after {most} writes: {batch}");
    assert_eq!(batch["request_counts"], json!({"total": LINES, "completed": LINES, "failed": 0}));
    let answers = read(&client, &batch["output_file_id"]).await;
    assert!(answers.iter().map(|(id, _)| id).eq(&words), "after {most} writes: {answers:?}");
    assert!(answers.iter().all(|(id, answer)| id == answer), "{answers:?}");
    let batches = client.get("/v1/batches").await.json();
    assert_eq!(batches["data"].as_array().unwrap().len(), 1, "after {most} writes");
    let files = client.get("/v1/files?purpose=batch_output").await.json();
    assert_eq!(files["data"].as_array().unwrap().len(), 1, "after {most} writes: {files}");
    let usage = client.get("/v1/usage").await.json();
    let of_batches: Vec<&Value> =
        usage["data"].as_array().unwrap().iter().filter(|day| day["route"] == "batches").collect();
    let counted = |name: &str| of_batches.iter().map(|day| day[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(counted("rows"), LINES as u64, "after {most} writes each row is counted once");
    assert_eq!(counted("requests"), 1, "after {most} writes the batch is");
    is_over
}

/// A batch that is called off midway, and whose server's last write from then on is of this number; whether it was over by
/// then. Whatever was written, what the batch tells in the end is what is counted.
async fn counts_what_it_tells(most: usize) -> bool {
    const STEPS: u64 = 5;
    let (folder, store) = lasting_store().await;
    let database = Database::open(folder.path()).await;
    let first = serve_on(with_journal(folder.path()), model(), store.clone()).await;
    let key = first.client.key.clone().unwrap();
    first.gate.shut();
    // Of the second line's two rows the first ends, and the first line does: that may wait to be recorded.
    let prompts = json!(["Say a", format!("Repeat: {}", "x".repeat(100))]);
    let two = line("two", json!({"prompt": prompts, "max_tokens": 200, "temperature": 0}));
    let one = line("one", json!({"prompt": "Say b", "temperature": 0}));
    let file = upload(&first.client, &[one, two].join("\n")).await;
    let made = make(&first.client, &file).await.json();
    let path = format!("/v1/batches/{}", made["id"].as_str().unwrap());
    first.until("its rows wait", |server| server.gate.passed() == 1).await;
    database.allow(most).await;
    first.gate.allow(STEPS);
    first.until("a step more waits", |server| server.gate.passed() == STEPS + 1).await;
    // Where that is not written any more, the batch goes on.
    if first.client.post(&format!("{path}/cancel"), &json!({})).await.status == 200 {
        let is_off = |server: &Server| server.running.app.runtime.registry.running().is_empty();
        first.until("its rows are called off", is_off).await;
    }
    first.gate.release();
    let is_over = is_over_within(&first, &database, &path).await;
    first.running.drain(std::future::ready(())).await;
    database.release().await;
    store.close().await;
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let again = Store::open(&url).await.unwrap();
    let second = serve_on(with_journal(folder.path()), model(), again).await;
    let client = second.client.with_key(&key);
    let batch = until_over(&client, made["id"].as_str().unwrap()).await;
    let usage = client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap();
    let counted = |name: &str| {
        let of_batches = sums.iter().filter(|sum| sum["route"] == "batches");
        of_batches.map(|sum| sum[name].as_u64().unwrap()).sum::<u64>()
    };
    let told = ["input_tokens", "output_tokens"].map(|name| batch["usage"][name].as_u64().unwrap());
    let counted = ["prompt_tokens", "completion_tokens"].map(counted);
    assert_eq!(told, counted, "after {most} writes: {batch}");
    assert!(!is_over || batch["status"] == "cancelled" && told[1] >= STEPS, "after {most} writes: {batch}");
    is_over
}

/// Tries one write after the other as a server's last, until all is done within them; how many that is.
async fn each_as_the_last<F: Future<Output = bool>>(try_one: impl Fn(usize) -> F) -> usize {
    // Most of one's time is waiting.
    const AT_ONCE: usize = 16;
    let mut tried = 0;
    loop {
        let are_over = join_all((tried..tried + AT_ONCE).map(&try_one)).await;
        if let Some(most) = are_over.iter().position(|is_over| *is_over) {
            return tried + most;
        }
        tried += AT_ONCE;
        assert!(tried < 1_000, "a small batch takes no end of writes");
    }
}

// Case 39.
#[actix_web::test]
async fn whichever_write_is_a_servers_last_its_batch_ends_with_each_line_once() {
    let tried = each_as_the_last(survives).await;
    assert!(tried > 2 * LINES, "a line and its usage are two writes at least: {tried}");
}

// Case 39.
#[actix_web::test]
async fn whichever_write_is_a_servers_last_a_batch_that_is_called_off_tells_what_is_counted() {
    let tried = each_as_the_last(counts_what_it_tells).await;
    assert!(tried > 3, "the call, what was used, and the end: {tried}");
}
