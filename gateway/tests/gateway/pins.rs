//! Modules that are pinned: what keeps them, and what they give way to.

use base::{Generation, Section, Sees, ServiceClass, Span, SpanKind, TokenCount, TokenId, WorkItem};
use serde_json::{Value, json};
use serving::caller::{Caller, WeightedTenant};
use serving::intake::{PendingRow, TemplateRows};
use serving::relquery_state::RelQueryKind;
use serving::submit::{self, Prepared, Resumed};
use store::{DEFAULT_TENANT, Store};

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::client::Client;
use crate::common::{Server, config, lasting_store, seen_in_time};
use crate::pml::{complete, llama, register, text};

const PINNED: &str = r#"<schema name="pinned"><module name="doc">The north gate opens at nine and closes at five.</module></schema>"#;
const LOOSE: &str = r#"<schema name="loose"><module name="doc">The south gate opens at six and closes at ten.</module></schema>"#;

/// A server whose engine has 128 blocks.
async fn tight(store: Store) -> Server {
    let mut config = config();
    config.engine.kv_bytes = Some(base::Bytes(128 * 16 * 384));
    config.limits.tenant_pinned_tokens_max = 300;
    let server = serve_checkpoint(config, &llama(), store).await;
    assert_eq!(server.running.app.runtime.model.kv_blocks, 128);
    server
}

async fn pin(client: &Client, pml: &str) -> Value {
    let reply = client.post("/v1/schemas", &json!({"schema": pml, "pin": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// Fills the engine's memory with other prompts.
async fn press(client: &Client) {
    for prompt in ["abcdefgh", "ijklmnop", "qrstuvwx", "yz012345"] {
        let body =
            json!({"prompt": prompt.repeat(120), "max_tokens": 2, "temperature": 0, "ignore_eos": true});
        assert_eq!(client.post("/v1/completions", &body).await.status, 200);
    }
}

/// Whether a schema's modules are held.
async fn is_held(server: &Server, name: &str) -> Value {
    server.client.get(&format!("/v1/schemas/{name}")).await.json()["held"].clone()
}

/// Waits until a schema is held, or no more.
async fn until_held(server: &Server, name: &str, held: bool) {
    let wait = async { while is_held(server, name).await != json!(held) {} };
    seen_in_time(&format!("{name} is held: {held}"), wait).await;
}

/// Waits until so many blocks are pinned.
async fn until_pinned(server: &Server, blocks: u32) {
    let pinned = |server: &Server| server.running.app.runtime.view().stats.kv_pinned_blocks == blocks;
    server.until(&format!("{blocks} blocks are pinned"), pinned).await;
}

#[actix_web::test]
async fn what_is_pinned_survives_pressure_and_what_is_not_is_evicted() {
    let server = tight(Store::open("sqlite::memory:").await.unwrap()).await;
    let registered = pin(&server.client, PINNED).await;
    assert_eq!(registered["pinned"], true, "{registered}");
    register(&server.client, LOOSE).await;
    let blocks = registered["tokens"].as_u64().unwrap().div_ceil(16) as u32;
    until_pinned(&server, blocks).await;
    assert_eq!(is_held(&server, "pinned").await, json!(true));
    press(&server.client).await;
    let pinned = complete(&server.client, r#"<prompt schema="pinned"><doc/>So?</prompt>"#).await;
    assert_eq!(Some(prompt_tokens(&pinned)[2]), registered["tokens"].as_u64(), "it is there");
    let loose = complete(&server.client, r#"<prompt schema="loose"><doc/>So?</prompt>"#).await;
    assert_eq!(prompt_tokens(&loose)[2], 0, "it is gone, and computed again");
    assert_eq!(server.metric("relserve_pinned_kv_blocks"), f64::from(blocks));
    let listed = server.client.get("/v1/schemas").await.json();
    assert_eq!((&listed["data"][0]["pinned"], &listed["data"][1]["pinned"]), (&json!(false), &json!(true)));

    let replaced = register(&server.client, PINNED).await;
    assert_eq!((&replaced["pinned"], replaced.get("held")), (&json!(false), None));
    until_pinned(&server, 0).await;
    pin(&server.client, PINNED).await;
    until_pinned(&server, blocks).await;
    assert_eq!(server.client.delete("/v1/schemas/pinned").await.status, 200);
    until_pinned(&server, 0).await;
    server.until_free().await;
}

#[actix_web::test]
async fn a_pin_is_filled_again_by_the_first_prompt_after_a_restart() {
    let (_dir, store) = lasting_store().await;
    let first = tight(store.clone()).await;
    pin(&first.client, PINNED).await;
    let key = first.client.key.clone();
    first.running.drain(std::future::pending()).await;
    let mut second = tight(store).await;
    second.client.key = key;
    assert_eq!(is_held(&second, "pinned").await, json!(false));
    let reply = complete(&second.client, r#"<prompt schema="pinned"><doc/>So?</prompt>"#).await;
    until_pinned(&second, (prompt_tokens(&reply)[0] - 3).div_ceil(16) as u32).await;
    press(&second.client).await;
    assert_eq!(is_held(&second, "pinned").await, json!(true));
    let again = complete(&second.client, r#"<prompt schema="pinned"><doc/>So?</prompt>"#).await;
    assert_eq!((text(&again), prompt_tokens(&again)[3]), (text(&reply), 3), "only the question is computed");
}

#[actix_web::test]
async fn a_pin_gives_way_to_a_row_that_could_not_run_otherwise_and_is_filled_again() {
    let server = tight(Store::open("sqlite::memory:").await.unwrap()).await;
    pin(&server.client, PINNED).await;
    // All of the pool but the last block.
    let body =
        json!({"prompt": "abcdefgh".repeat(252), "max_tokens": 16, "temperature": 0, "ignore_eos": true});
    assert_eq!(server.client.post("/v1/completions", &body).await.status, 200);
    until_pinned(&server, 0).await;
    assert_eq!(is_held(&server, "pinned").await, json!(false));
    complete(&server.client, r#"<prompt schema="pinned"><doc/>So?</prompt>"#).await;
    server
        .until("it is held again", |server| server.running.app.runtime.view().stats.kv_pinned_blocks > 0)
        .await;
}

#[actix_web::test]
async fn what_may_be_pinned_is_bounded_by_tenant_and_by_memory() {
    let server = tight(Store::open("sqlite::memory:").await.unwrap()).await;
    let post = async |pml: &str| {
        let refused = server.client.post("/v1/schemas", &json!({"schema": pml, "pin": true})).await;
        (refused.status, refused.json()["error"]["param"].clone(), refused.error())
    };
    let schema =
        |name: &str, length: usize| format!("<schema name=\"{name}\">{}</schema>", "x".repeat(length));
    pin(&server.client, &schema("a", 200)).await;
    let (status, param, reason) = post(&schema("b", 101)).await;
    assert_eq!((status, param), (400, json!("pin")));
    assert!(
        reason.contains("101 tokens")
            && reason.contains("200 tokens")
            && reason.contains("300 tokens (limits.tenant_pinned_tokens_max)"),
        "{reason}"
    );
    assert_eq!(server.client.get("/v1/schemas/b").await.status, 404);
    pin(&server.client, &schema("b", 100)).await;
    let (status, param, reason) = post(&schema("c", 1_100)).await;
    assert_eq!((status, param), (400, json!("pin")));
    assert!(
        reason.contains("69 blocks of KV memory, 64 may be pinned (scheduler.pinned_permille)"),
        "{reason}"
    );
    register(&server.client, &schema("c", 1_100)).await;
    until_pinned(&server, 13 + 7).await;
}

#[actix_web::test]
async fn a_pin_that_finds_no_room_is_not_filled_with_every_prompt() {
    let mut config = config();
    config.engine.kv_bytes = Some(base::Bytes(128 * 16 * 384));
    let server = serve_checkpoint(config, &llama(), Store::open("sqlite::memory:").await.unwrap()).await;
    let schema = |name: &str| format!("<schema name=\"{name}\">{}</schema>", name.repeat(640));
    pin(&server.client, &schema("a")).await;
    until_pinned(&server, 40).await;
    // Forty blocks each, and sixty-four for all: the older gives way, and has no room beside the younger.
    pin(&server.client, &schema("b")).await;
    let relqueries = || server.metric("relserve_relqueries_total{status=\"completed\"}");
    // Not by how many blocks are pinned: that is forty before and after.
    until_held(&server, "a", false).await;
    until_held(&server, "b", true).await;
    server.until_rows_end().await;
    let before = relqueries();
    complete(&server.client, "<prompt schema=\"a\">So?</prompt>").await;
    server.until("it was tried", |_| relqueries() == before + 2.0).await;
    server.until_rows_end().await;
    complete(&server.client, "<prompt schema=\"a\">So?</prompt>").await;
    server.until_rows_end().await;
    assert_eq!(relqueries(), before + 3.0, "and not again so soon");
    assert_eq!((is_held(&server, "a").await, is_held(&server, "b").await), (json!(false), json!(true)));
}

#[actix_web::test]
async fn a_pin_that_was_let_go_before_its_rows_came_holds_nothing() {
    let server = tight(Store::open("sqlite::memory:").await.unwrap()).await;
    let app = &server.running.app;
    let pin = app.runtime.shared.pin();
    let filling = pin.fill().unwrap();
    drop(pin);
    let unit = Sees::Unit { first: 0, origin: 0, is_placeholder: false };
    let section = |tokens, position, sees| Section { tokens: TokenCount(tokens), position, sees };
    let item = WorkItem {
        row: 0,
        prompt: (1..42).map(TokenId).collect(),
        spans: [Span { kind: SpanKind::Template, tokens: TokenCount(41) }].into(),
        sections: [section(40, 0, unit), section(1, 40, Sees::Before)].into(),
        generation: Generation::default().into(),
        seed: 0,
    };
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route: "schemas",
        class: ServiceClass::Interactive,
        rows: 1,
        failed: Vec::new(),
        answered: Vec::new(),
        deadline: None,
        pin: Some(filling),
        parts: vec![TemplateRows {
            open: None,
            label: None,
            rows: vec![PendingRow { targets: vec![0], item, key: None }],
        }],
    };
    let caller = Caller::of(WeightedTenant::usual(DEFAULT_TENANT));
    let handle = submit::submit(&app.runtime, caller, work, Resumed::default()).await.unwrap();
    handle.wait(None).await;
    drop(handle);
    server.until_free().await;
}
