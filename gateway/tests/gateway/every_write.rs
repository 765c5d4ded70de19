//! A server whose last write is any one of those that a ticket, a schema, a corpus, a key or usage takes; that of a batch
//! is [`crate::last_writes`]'. The next server has all that was acknowledged, and of the rest all or nothing.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::Secret;

use crate::batches::hasty;
use crate::common::client::Client;
use crate::common::{Server, lasting_store, model, seen_in_time, serve_on};
use crate::corpora::{documents, retrieving};
use crate::idempotency::{RELQUERIES, post};
use crate::last_writes::Database;

/// What a server does, and whose last write may be any one of it.
trait Work {
    fn config(&self) -> Config {
        hasty()
    }

    /// Does it; whether it was all done before the server had written so often.
    async fn act(&mut self, server: &Server, database: &Database) -> bool;

    /// What holds at the next server, whatever was written.
    async fn check(&self, server: &Server, database: &Database);
}

/// The work of a server whose last write is of this number; whether it was all done by then.
async fn survives(mut work: impl Work, most: usize) -> bool {
    let (folder, store) = lasting_store().await;
    let database = Database::open(folder.path()).await;
    let first = serve_on(work.config(), model(), store.clone()).await;
    // Whose key it is is known from now on.
    assert_eq!(first.client.get("/v1/usage").await.status, 200);
    database.allow(most).await;
    let is_done = work.act(&first, &database).await;
    first.running.drain(std::future::ready(())).await;
    database.release().await;
    store.close().await;
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let second = serve_on(work.config(), model(), store::Store::open(&url).await.unwrap()).await;
    eprintln!("after {most} writes");
    work.check(&second, &database).await;
    is_done
}

/// Tries every write of it; how many there are.
async fn try_each<W: Work>(make: impl Fn() -> W) -> usize {
    // Most of one's time is waiting.
    const AT_ONCE: usize = 8;
    let mut tried = 0;
    loop {
        let are_done = join_all((tried..tried + AT_ONCE).map(|most| survives(make(), most))).await;
        if let Some(most) = are_done.iter().position(|is_done| *is_done) {
            return tried + most;
        }
        tried += AT_ONCE;
        assert!(tried < 1_000, "it takes no end of writes");
    }
}

/// Looks until something is seen, or the server has written as often as it may: `None`.
async fn seen_before_the_end<T>(database: &Database, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    seen_in_time("it is seen or the last write is done", async {
        loop {
            looks.tick().await;
            if let Some(seen) = look().await {
                return Some(seen);
            }
            if database.is_spent().await {
                return None;
            }
        }
    })
    .await
}

/// A relQuery whose deadline passes, and what of it was seen.
#[derive(Default)]
struct TicketWork {
    id: Option<String>,
    seen: BTreeMap<usize, String>,
}

impl TicketWork {
    const WORDS: [&str; 3] = ["a", "bb", "ccc"];

    async fn ask(client: &Client) -> crate::common::client::Reply {
        let rows: Vec<Value> = Self::WORDS.iter().map(|word| json!([word])).collect();
        let body = json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30});
        post(client, RELQUERIES, "k", &body).await
    }

    /// The rows of a reply that have an answer.
    fn answers(reply: &Value) -> BTreeMap<usize, String> {
        let rows = reply["rows"].as_array().unwrap().iter().enumerate();
        rows.filter_map(|(number, row)| Some((number, row["text"].as_str()?.to_owned()))).collect()
    }
}

impl Work for TicketWork {
    async fn act(&mut self, server: &Server, database: &Database) -> bool {
        server.gate.shut();
        let reply = Self::ask(&server.client).await;
        server.gate.release();
        if reply.status != 200 {
            return false;
        }
        let id = reply.json()["ticket"].as_str().expect("no row can end").to_owned();
        let path = format!("{RELQUERIES}/{id}");
        self.id = Some(id);
        let seen = &mut self.seen;
        let is_over = seen_before_the_end(database, async || {
            let reply = server.client.get(&path).await.json();
            seen.extend(Self::answers(&reply));
            (reply["status"] == "completed").then_some(())
        });
        if is_over.await.is_none() || Self::ask(&server.client).await.status != 200 {
            return false;
        }
        seen_before_the_end(database, async || (counted(&server.client).await >= 3).then_some(()))
            .await
            .is_some()
    }

    async fn check(&self, server: &Server, database: &Database) {
        let mut reply = Self::ask(&server.client).await;
        while reply.json()["status"] == "partial" {
            assert_eq!(reply.status, 200, "{}", reply.body);
            reply = Self::ask(&server.client).await;
        }
        let whole = reply.json();
        assert_eq!(whole["status"], "completed", "{whole}");
        if let Some(id) = &self.id {
            assert_eq!(whole["id"], json!(id), "what was promised is kept");
        }
        let answers = Self::answers(&whole);
        assert!(answers.values().eq(Self::WORDS), "{whole}");
        assert!(self.seen.iter().all(|(row, text)| answers.get(row) == Some(text)), "{:?}", self.seen);
        assert!(database.count("tickets").await <= 1, "one key, one ticket");
        let tickets = database.count("tickets").await;
        assert_eq!(database.count("ticket_rows").await, 3 * tickets, "each row once");
        // Without a ticket memory has it, for a while.
        if tickets == 1 {
            assert_eq!(counted(&server.client).await, 3, "each row is counted with itself");
        }
    }
}

/// A schema that is registered, and replaced.
#[derive(Default)]
struct SchemaWork {
    acknowledged: usize,
}

impl SchemaWork {
    const TEXTS: [&str; 2] = [
        "<schema name=\"s\"><module name=\"m\">one text</module></schema>",
        "<schema name=\"s\"><module name=\"m\">another of them</module></schema>",
    ];
}

impl Work for SchemaWork {
    async fn act(&mut self, server: &Server, _: &Database) -> bool {
        for schema in Self::TEXTS {
            let reply = server.client.post("/v1/schemas", &json!({ "schema": schema })).await;
            if reply.status != 200 {
                return false;
            }
            self.acknowledged += 1;
        }
        true
    }

    async fn check(&self, server: &Server, _: &Database) {
        let found = server.client.get("/v1/schemas/s").await;
        let version = match found.status {
            404 => 0,
            _ => {
                let text = found.json()["schema"].as_str().unwrap().to_owned();
                1 + Self::TEXTS.iter().position(|known| *known == text).expect("one of them, whole")
            }
        };
        assert!((self.acknowledged..=self.acknowledged + 1).contains(&version), "{}", found.body);
        let again = server.client.post("/v1/schemas", &json!({ "schema": Self::TEXTS[1] })).await;
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(server.client.get("/v1/schemas").await.json()["data"].as_array().unwrap().len(), 1);
    }
}

/// A corpus that is made, and a document of it that is replaced.
struct CorpusWork {
    _model: tempfile::TempDir,
    config: Config,
    acknowledged: usize,
}

impl CorpusWork {
    fn new() -> Self {
        let (_model, config) = retrieving();
        Self { _model, config, acknowledged: 0 }
    }

    /// Two documents, of three fragments and two; then one of them with another text, which is one fragment.
    fn bodies() -> [Value; 2] {
        let sea = "the boat of the river. fish water boat. fish of the water";
        let law = "the tax of the bank. money loan tax";
        [documents(&[("sea", sea), ("law", law)]), documents(&[("sea", "tax tax tax")])]
            .map(|documents| json!({"name": "c", "documents": documents, "fragment_tokens": 6}))
    }
}

impl Work for CorpusWork {
    fn config(&self) -> Config {
        Config { cache: hasty().cache, ..self.config.clone() }
    }

    async fn act(&mut self, server: &Server, _: &Database) -> bool {
        for body in Self::bodies() {
            if server.client.post("/v1/corpora", &body).await.status != 200 {
                return false;
            }
            self.acknowledged += 1;
        }
        true
    }

    async fn check(&self, server: &Server, _: &Database) {
        let found = server.client.get("/v1/corpora/c").await;
        let sizes = match found.status {
            404 => (0, 0),
            _ => {
                let found = found.json();
                (found["documents"].as_u64().unwrap(), found["fragments"].as_u64().unwrap())
            }
        };
        // Whole documents, and those that were acknowledged.
        let allowed: &[(u64, u64)] = match self.acknowledged {
            0 => &[(0, 0), (1, 3), (1, 2), (2, 5)],
            1 => &[(2, 5), (2, 3)],
            _ => &[(2, 3)],
        };
        assert!(allowed.contains(&sizes), "{sizes:?} with {} acknowledged", self.acknowledged);
        for body in Self::bodies() {
            let reply = server.client.post("/v1/corpora", &body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        let found = server.client.get("/v1/corpora/c").await.json();
        assert_eq!((&found["documents"], &found["fragments"]), (&json!(2), &json!(3)), "{found}");
    }
}

/// A key that is made, and revoked.
#[derive(Default)]
struct KeyWork {
    made: Option<(u64, String)>,
    is_revoked: bool,
}

const OPERATORS_KEY: &str = "the operator's";

impl Work for KeyWork {
    fn config(&self) -> Config {
        let mut config = hasty();
        config.auth.admin_key = Some(Secret(OPERATORS_KEY.into()));
        config
    }

    async fn act(&mut self, server: &Server, _: &Database) -> bool {
        let operators = server.client.with_key(OPERATORS_KEY);
        let made = operators.post("/v1/keys", &json!({"name": "n", "tenant": "default"})).await;
        if made.status != 200 {
            return false;
        }
        let made = made.json();
        let (id, key) = (made["id"].as_u64().unwrap(), made["key"].as_str().unwrap().to_owned());
        self.made = Some((id, key));
        self.is_revoked = operators.delete(&format!("/v1/keys/{id}")).await.status == 200;
        self.is_revoked
    }

    async fn check(&self, server: &Server, _: &Database) {
        let operators = server.client.with_key(OPERATORS_KEY);
        let listed = operators.get("/v1/keys").await.json();
        let named: Vec<&Value> =
            listed["data"].as_array().unwrap().iter().filter(|key| key["name"] == "n").collect();
        assert!(named.len() <= 1, "{named:?}");
        let is_listed_revoked = named.first().is_some_and(|key| !key["revoked"].is_null());
        if let Some((id, key)) = &self.made {
            assert_eq!(named.first().map(|key| &key["id"]), Some(&json!(id)), "what was shown is there");
            let works = server.client.with_key(key).get("/v1/usage").await.status;
            assert_eq!(works, if is_listed_revoked { 401 } else { 200 });
        }
        assert!(is_listed_revoked || !self.is_revoked, "what was revoked stays so");
        // What is done is written down before.
        let log = operators.get("/v1/audit").await.json();
        let has =
            |action: &str| log["data"].as_array().unwrap().iter().any(|entry| entry["action"] == action);
        assert!(named.is_empty() || has("key.create"), "{log}");
        assert!(!is_listed_revoked || has("key.revoke"), "{log}");
    }
}

/// Rows that usage shows.
async fn counted(client: &Client) -> u64 {
    let usage = client.get("/v1/usage").await.json();
    usage["data"].as_array().unwrap().iter().map(|day| day["rows"].as_u64().unwrap()).sum()
}

/// Answers, and what usage showed of them.
struct UsageWork {
    data: tempfile::TempDir,
    sent: u64,
    shown: u64,
}

impl UsageWork {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap(), sent: 0, shown: 0 }
    }

    async fn ask(client: &Client, round: u64) {
        let rows = json!([[format!("a{round}")], [format!("b{round}")]]);
        let reply = client.post(RELQUERIES, &json!({"template": "Say {w}", "rows": rows})).await;
        assert_eq!(reply.status, 200, "nothing of it has to be written: {}", reply.body);
    }
}

impl Work for UsageWork {
    fn config(&self) -> Config {
        let mut config = hasty();
        config.store.data_dir = self.data.path().to_owned();
        config
    }

    async fn act(&mut self, server: &Server, database: &Database) -> bool {
        for round in 0..3 {
            Self::ask(&server.client, round).await;
            self.sent += 2;
            let (sent, shown) = (self.sent, &mut self.shown);
            let is_counted = seen_before_the_end(database, async || {
                *shown = (*shown).max(counted(&server.client).await);
                (*shown == sent).then_some(())
            });
            if is_counted.await.is_none() {
                return false;
            }
        }
        true
    }

    async fn check(&self, server: &Server, _: &Database) {
        let before = counted(&server.client).await;
        assert_eq!(before, self.sent, "what was answered is counted; {} were shown", self.shown);
        Self::ask(&server.client, 9).await;
        let all = async {
            while counted(&server.client).await < before + 2 {
                tokio::task::yield_now().await;
            }
        };
        seen_in_time("the next rows are counted", all).await;
        assert_eq!(counted(&server.client).await, before + 2);
    }
}

// Case 39.
#[actix_web::test]
async fn whichever_write_is_a_servers_last_a_ticket_that_was_promised_is_kept() {
    assert!(try_each(TicketWork::default).await > 3, "the ticket, its rows, its end");
}

// Case 39.
#[actix_web::test]
async fn whichever_write_is_a_servers_last_schemas_and_corpora_are_whole() {
    assert!(try_each(SchemaWork::default).await >= 2, "two schemas");
    assert!(try_each(CorpusWork::new).await > 5, "a corpus, its documents and fragments");
}

// Case 39.
#[actix_web::test]
async fn whichever_write_is_a_servers_last_keys_and_usage_are_as_they_were_told() {
    assert!(try_each(KeyWork::default).await > 3, "a key, its end, and a line of the log for each");
    assert!(try_each(UsageWork::new).await >= 3, "three writes of usage");
}
