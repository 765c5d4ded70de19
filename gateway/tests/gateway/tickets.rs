//! Deadlines: a partial reply now, the rest under a ticket, restarts included.

use base::Millis;
use serde_json::json;
use serving::account::{Account, Spent};
use sqlx::{Any, Transaction};
use store::{Store, UnixMillis, Used};

use crate::common::client::finish;
use crate::common::left::{LeftTicket, lease_of};
use crate::common::{Server, config, model, seen_in_time, serve, serve_on};

#[actix_web::test]
async fn a_deadline_gives_what_is_there_and_a_ticket_for_the_rest() {
    for stream in [false, true] {
        let server = serve().await;
        server.gate.shut();
        let body =
            json!({"template": "Say {w}", "rows": [["a"], ["b"]], "deadline_ms": 30, "stream": stream});
        let reply = server.relquery(body).await;
        let json = if stream { reply.events().last().unwrap().1.clone() } else { reply.json() };
        assert_eq!(json["status"], "partial");
        assert_eq!(json["ticket"], json["id"]);
        if !stream {
            assert_eq!(json["rows"][1], json!({"index": 1, "pending": true}));
        }
        server.gate.release();
        server.until("the work goes on", |server| server.is_free()).await;
        let path = format!("/v1/relqueries/{}", json["ticket"].as_str().unwrap());
        let whole = server.client.until_over(&path).await;
        assert_eq!(
            (whole["status"].as_str(), whole["rows"][1]["text"].as_str()),
            (Some("completed"), Some("b"))
        );
    }
}

/// What is stored of usage.
async fn stored_usage(store: &Store) -> Used {
    let mut sum = Used::default();
    for row in store.usage(Some(store::DEFAULT_TENANT), 0..=1_000_000).await.unwrap() {
        sum += row.used;
    }
    sum
}

#[actix_web::test]
async fn a_row_of_a_ticket_is_counted_when_it_is_stored_and_not_by_memory() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = config();
    // Memory writes nothing meanwhile.
    config.store.flush_ms = Millis(20_000);
    let server = serve_on(config, model(), store.clone()).await;
    server.gate.shut();
    let rows = json!([["a"], ["bbbbbbbbbb"]]);
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30})).await.json();
    let path = format!("/v1/relqueries/{}", reply["ticket"].as_str().expect("a ticket for the rest"));
    let before = stored_usage(&store).await;
    assert_eq!(
        before,
        Used { requests: 1, ..Used::default() },
        "what came before the ticket is stored before it"
    );
    server.gate.release();
    let whole = server.client.until_over(&path).await;
    let used = stored_usage(&store).await;
    assert_eq!((used.requests, used.rows), (1, 2), "{whole}");
    let told =
        ["prompt_tokens", "computed_tokens", "completion_tokens"].map(|name| whole["usage"][name].as_u64());
    assert_eq!([used.prompt, used.computed, used.output].map(|tokens| Some(tokens.0)), told, "{whole}");
    let account = Account { tenant: store::DEFAULT_TENANT, route: "relqueries" };
    assert_eq!(server.running.app.runtime.shared.accounts.of(account), Spent::default());
}

#[actix_web::test]
async fn a_row_whose_ticket_was_called_off_is_counted_with_who_waits_for_it_too() {
    let server = serve().await;
    server.gate.shut();
    let rows = json!([["a"]]);
    let first = server.relquery(json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30})).await.json();
    let path = format!("/v1/relqueries/{}", first["ticket"].as_str().expect("a ticket for the rest"));
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = json!({"template": "Say {w}", "rows": rows});
    let second = server.client.begin("/v1/relqueries", &second).await;
    let has_room = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 2;
    server.until("the second arrives", has_room).await;
    // It joins the row before the step that ends it, during which the ticket is called off.
    server.gate.allow(1);
    server.until("the last step waits", |server| server.gate.passed() == 2).await;
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    server.gate.release();
    let second = finish(second).await.json();
    let told = &second["usage"];
    assert_eq!(told["rows_deduplicated"], 0, "it is the second's now: {second}");
    assert_eq!(told["computed_tokens"], told["prompt_tokens"], "{second}");
    let is_counted = async {
        loop {
            let usage = server.client.get("/v1/usage").await.json();
            let sums = usage["data"].as_array().unwrap().iter();
            if sums.map(|sum| sum["rows"].as_u64().unwrap()).sum::<u64>() == 1 {
                return;
            }
        }
    };
    seen_in_time("the row is counted", is_counted).await;
}

/// Has a server end one of a ticket's two rows (`a` and `bbbbbbbbbb`), and ends the server. Returns the
/// ticket.
pub async fn leave_half_done(first: Server, store: &Store) -> String {
    first.gate.shut();
    let rows = json!([["a"], ["bbbbbbbbbb"]]);
    let body = json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30});
    let reply = first.relquery(body).await.json();
    assert_eq!(reply["status"], "partial");
    let id = reply["ticket"].as_str().unwrap().to_owned();
    // The short row ends, the long one does not.
    first.gate.allow(4);
    let relquery = first.running.app.runtime.registry.running()[0].clone();
    first.until("a row ends", |_| relquery.read().finished.len() == 1).await;
    let mut written = 0;
    while written == 0 {
        let ticket = store.ticket(store::DEFAULT_TENANT, &id, UnixMillis(1)).await.unwrap().unwrap();
        written = ticket.rows.len();
    }
    let gate = first.gate.clone();
    let app = first.running.app.clone();
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while app.runtime.registry.running().len() == 1 {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(first.running.drain(std::future::pending()), release);
    id
}

#[actix_web::test]
async fn a_ticket_is_finished_after_a_restart_without_repeating_rows() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    config.cache.enabled = false;
    let first = serve_on(config.clone(), model(), store.clone()).await;
    let id = leave_half_done(first, &store).await;
    let second = serve_on(config, model(), store.clone()).await;
    let path = format!("/v1/relqueries/{id}");
    // Its end is shown once it is stored, which may be after its last row.
    let whole = second.client.until_over(&path).await;
    assert_eq!(whole["status"], "completed");
    assert_eq!(
        (whole["rows"][0]["text"].as_str(), whole["rows"][1]["text"].as_str()),
        (Some("a"), Some("bbbbbbbbbb"))
    );
    assert_eq!(second.gate.computed(), "Say bbbbbbbbbb".len() as u64, "only the unfinished row ran");
    let used = stored_usage(&store).await;
    assert_eq!((used.requests, used.rows), (1, 2), "each is counted once");
}

/// Has the rows of a ticket end while what `hold` gives keeps everybody from storing them, and lets them be stored then.
pub async fn rows_are_shown_once_they_are_stored(
    server: &Server,
    hold: impl AsyncFnOnce() -> Transaction<'static, Any>,
) {
    server.gate.shut();
    let rows = json!([["a"], ["bbbbbbbbbb"]]);
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30})).await.json();
    let path = format!("/v1/relqueries/{}", reply["ticket"].as_str().expect("a ticket for the rest"));
    let holding = hold().await;
    server.gate.release();
    server.until_rows_end().await;
    for _ in 0..10 {
        let shown = server.client.get(&path).await.json();
        assert_eq!(shown["status"], "running", "{shown}");
        assert_eq!(shown["progress"], json!({"total": 2, "done": 0, "failed": 0}), "{shown}");
        let pending = json!([{"index": 0, "pending": true}, {"index": 1, "pending": true}]);
        assert_eq!(shown["rows"], pending, "what a crash may change is shown to nobody");
    }
    holding.rollback().await.unwrap();
    let is_stored = async {
        loop {
            let shown = server.client.get(&path).await.json();
            if shown["status"] != "running" {
                return shown;
            }
        }
    };
    let shown = seen_in_time("what is stored is shown", is_stored).await;
    assert_eq!(shown["status"], "completed", "{shown}");
    assert_eq!((&shown["rows"][0]["text"], &shown["rows"][1]["text"]), (&json!("a"), &json!("bbbbbbbbbb")));
}

#[actix_web::test]
async fn a_row_of_a_ticket_is_shown_once_it_is_stored() {
    let (dir, store) = crate::common::lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    let url = format!("sqlite://{}", dir.path().join("test.db").display());
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    let hold = async || pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    rows_are_shown_once_they_are_stored(&server, hold).await;
}

#[actix_web::test]
async fn rows_that_were_seen_before_the_deadline_are_stored_with_the_ticket() {
    for stream in [false, true] {
        let (_dir, store) = crate::common::lasting_store().await;
        let server = serve_on(config(), model(), store.clone()).await;
        server.gate.shut();
        // The short row ends, the long one does not.
        server.gate.allow(4);
        let rows = json!([["a"], ["bbbbbbbbbb"]]);
        let body = json!({"template": "Say {w}", "rows": rows, "deadline_ms": 1_000, "stream": stream});
        let reply = server.relquery(body).await;
        let partial = if stream { reply.events().pop().unwrap().1 } else { reply.json() };
        let id = partial["ticket"].as_str().expect("a ticket for the rest");
        let ticket = store.ticket(store::DEFAULT_TENANT, id, UnixMillis(1)).await.unwrap().unwrap();
        assert_eq!(partial["progress"]["done"], ticket.rows.len(), "{partial}");
        server.gate.release();
        server.until_free().await;
    }
}

/// Tickets that a gateway of this name left unfinished.
async fn leave_tickets(store: &Store, count: u64, holder: &str) {
    for number in 1..=count {
        let (id, text) = (format!("rq-{number}"), format!("word {number}"));
        LeftTicket::relquery(&id, &text).put(store, &lease_of(holder)).await;
    }
}

#[actix_web::test]
async fn a_restart_resumes_all_tickets_however_many() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let config = config();
    leave_tickets(&store, 150, &config.store.node).await;
    let server = serve_on(config, model(), store.clone()).await;
    let known = |number: u64| {
        let id = gateway::wire::relquery::parse_id("rq-", &format!("rq-{number}")).expect("it is an id");
        server.running.app.runtime.registry.get(store::DEFAULT_TENANT, id)
    };
    assert!((1..=150).all(|number| known(number).is_some()), "the start itself resumes them");
    server.until("they end", |server| server.is_free()).await;
}

#[actix_web::test]
async fn a_ticket_that_finds_the_queue_full_is_kept_and_resumed_later() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let mut config = config();
    config.limits.queue_rows_max = 1;
    config.store.flush_ms = Millis(1);
    leave_tickets(&store, 2, &config.store.node).await;
    let server = serve_on(config, model(), store.clone()).await;
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
    for number in 1..=2 {
        let whole = loop {
            looks.tick().await;
            let reply = server.client.get(&format!("/v1/relqueries/rq-{number}")).await.json();
            if reply["status"] != "running" {
                break reply;
            }
        };
        assert_eq!(whole["status"], "completed");
        assert_eq!(whole["rows"][0]["text"], number.to_string());
    }
}

#[actix_web::test]
async fn cells_have_tickets_too() {
    let server = serve().await;
    server.gate.shut();
    let calls = json!([{"function": "rate", "args": ["a 3"]}, {"function": "oops", "args": []}]);
    let reply = server.client.post("/v1/cells", &json!({"calls": calls, "deadline_ms": 30})).await.json();
    assert_eq!(reply["status"], "partial");
    assert_eq!(reply["cells"][0], json!({"pending": true}));
    let path = format!("/v1/cells/{}", reply["ticket"].as_str().unwrap());
    // The deadline may be over before the calls were read.
    let is_told = async {
        while !server.client.get(&path).await.json()["cells"][1]["error"].is_object() {
            tokio::task::yield_now().await;
        }
    };
    seen_in_time("what is wrong with a call is told", is_told).await;
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    server.gate.release();
    server.until("everything is free", |server| server.is_free()).await;
    assert_eq!(server.client.get(&path).await.json()["status"], "cancelled");
}

#[actix_web::test]
async fn a_ticket_keeps_the_columns_that_its_template_reads_and_at_its_end_only_answers() {
    let (_dir, store) = crate::common::lasting_store().await;
    let server = serve_on(config(), model(), store.clone()).await;
    server.gate.shut();
    let note = "note ".repeat(4_000);
    let rows = json!([["a", note], ["b", note]]);
    let body = json!({"template": "Say {w}", "columns": ["w", "note"], "rows": rows, "deadline_ms": 30});
    let id = server.relquery(body).await.json()["ticket"].as_str().unwrap().to_owned();
    let request =
        async || store.ticket(store::DEFAULT_TENANT, &id, UnixMillis(1)).await.unwrap().unwrap().request;
    let kept = request().await;
    assert!(kept.contains("Say {w}") && !kept.contains("note"), "{kept}");
    server.gate.release();
    server.until("the work goes on", |server| server.is_free()).await;
    // Written a little after its rows.
    let mut shown = request().await;
    while shown.contains("Say {w}") {
        shown = request().await;
    }
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
        json!({"ended_rows": 2, "model": "double"})
    );
    server.running.drain(std::future::pending()).await;
    let server = serve_on(config(), model(), store.clone()).await;
    let whole = server.client.get(&format!("/v1/relqueries/{id}")).await.json();
    assert_eq!((&whole["status"], &whole["rows"][1]["text"]), (&json!("completed"), &json!("b")), "{whole}");
    assert_eq!(whole["rows"].as_array().unwrap().len(), 2);
}

#[actix_web::test]
async fn what_a_tenant_keeps_in_tickets_is_bounded_and_ends_make_room() {
    let mut config = config();
    config.limits.tenant_ticket_bytes_max = base::Bytes(2_000);
    let server = serve_on(config, model(), Store::open("sqlite::memory:").await.unwrap()).await;
    server.gate.shut();
    let ask = async |word: &str| {
        let rows = json!([[word.repeat(1_000)]]);
        server
            .relquery(json!({"template": "Say {w}", "rows": rows, "max_tokens": 1, "deadline_ms": 30}))
            .await
    };
    assert_eq!(ask("a").await.json()["status"], "partial");
    let refused = ask("b").await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    for told in [
        "may have 2000 bytes (limits.tenant_ticket_bytes_max) and have 1",
        " of requests and 0 of answers; this one would add 1",
        " of its request and 0 of answers that it has by now",
        "when tickets expire (store.ticket_ms_max)",
    ] {
        assert!(refused.error().contains(told), "{} lacks {told}", refused.error());
    }
    assert_eq!(
        (refused.json()["error"]["code"].as_str(), refused.header("retry-after")),
        (Some("busy"), Some("60"))
    );
    assert_eq!(server.running.app.runtime.registry.running().len(), 1, "what has no ticket ends");
    server.gate.release();
    server.until("the work goes on", |server| server.is_free()).await;
    // Its end is written a little after its rows.
    let mut later = ask("c").await;
    while later.status == 429 {
        later = ask("c").await;
    }
    assert_eq!(later.status, 200, "{}", later.body);
}
