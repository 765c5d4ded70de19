//! Responses in the background: nobody waits, none is lost, and each says how far it is.

use base::{Bytes, Millis};
use gateway::wire::relquery::parse_id;
use serde_json::{Value, json};
use serving::model::Model;
use store::{ClaimKind, DEFAULT_TENANT, Lease, TicketState, UnixMillis};

use crate::common::client::Client;
use crate::common::{Server, config, key_of, model, seen_in_time, serve_with};
use crate::takes::{assert_given_up, database, end, kill, serve_shut_with, until_rows_run};

pub(crate) fn chatty() -> Model {
    Model { has_chat: true, ..model() }
}

pub(crate) async fn serve() -> Server {
    serve_with(config(), chatty()).await
}

fn ask(input: &str) -> Value {
    json!({"model": "double", "input": input, "background": true, "max_output_tokens": 8})
}

/// The first reply to a request that is taken.
async fn begin(client: &Client, body: &Value) -> Value {
    let reply = client.post("/v1/responses", body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let response = reply.json();
    assert_eq!(response["status"], "queued", "{response}");
    response
}

pub(crate) fn path_of(response: &Value) -> String {
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

pub(crate) async fn read(client: &Client, response: &Value) -> Value {
    let reply = client.get(&path_of(response)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// A response once its status is this one.
pub(crate) async fn until(client: &Client, response: &Value, status: &str) -> Value {
    let reached = async {
        loop {
            let response = read(client, response).await;
            if response["status"] == status {
                return response;
            }
        }
    };
    seen_in_time(status, reached).await
}

pub(crate) async fn cancel(client: &Client, response: &Value) -> Value {
    let reply = client.post(&format!("{}/cancel", path_of(response)), &json!({})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {response}"))
}

/// What was sent up to a response, the newest first.
async fn said(client: &Client, response: &Value) -> Vec<String> {
    let items = client.get(&format!("{}/input_items", path_of(response))).await.json();
    let text = |item: &Value| item["content"][0]["text"].as_str().unwrap().to_owned();
    items["data"].as_array().unwrap().iter().map(text).collect()
}

#[actix_web::test]
async fn a_response_in_the_background_says_how_far_it_is_and_is_gone_on_from() {
    let server = serve().await;
    let client = &server.client;
    server.gate.shut();
    let mut body = ask("say one");
    body["temperature"] = json!(0.7);
    let first = begin(client, &body).await;
    assert_eq!((&first["background"], &first["store"]), (&json!(true), &json!(true)));
    assert_eq!((&first["output"], &first["usage"]), (&json!([]), &Value::Null));
    assert_eq!(read(client, &first).await, first);
    let mut next = ask("say two");
    next["previous_response_id"] = first["id"].clone();
    let early = client.post("/v1/responses", &next).await;
    assert_eq!((early.status, &early.json()["error"]["param"]), (400, &json!("previous_response_id")));
    server.gate.allow(1);
    let begun = until(client, &first, "in_progress").await;
    assert_eq!(begun["output"], json!([]));
    server.gate.release();
    let done = until(client, &first, "completed").await;
    assert_eq!(text(&done), "one");
    assert_eq!((&done["created_at"], &done["temperature"]), (&first["created_at"], &json!(0.7)));
    assert!(done["usage"]["output_tokens"].as_u64() > Some(0), "{done}");
    assert_eq!(read(client, &first).await, done);
    assert_eq!(cancel(client, &first).await, done, "what is over stays as it is");

    let second = begin(client, &next).await;
    let second = until(client, &second, "completed").await;
    assert_eq!((text(&second), &second["previous_response_id"]), ("two", &first["id"]));
    assert_eq!(said(client, &second).await, ["say two", "one", "say one"]);
    // The same conversation with somebody who waits.
    let waiting = json!({"model": "double", "input": "say three", "previous_response_id": second["id"],
        "max_output_tokens": 8});
    let third = client.post("/v1/responses", &waiting).await.json();
    assert_eq!((text(&third), &third["background"]), ("three", &json!(false)));
    assert_eq!(said(client, &third).await, ["say three", "two", "say two", "one", "say one"]);
    let mut background = waiting;
    background["background"] = true.into();
    let same = begin(client, &background).await;
    let same = until(client, &same, "completed").await;
    assert_eq!(same["usage"]["input_tokens"], third["usage"]["input_tokens"]);

    assert_eq!(client.delete(&path_of(&first)).await.json()["deleted"], true);
    assert_eq!(client.get(&path_of(&first)).await.status, 404);
    assert_eq!(client.delete(&path_of(&first)).await.status, 404);
    server.until_free().await;
}

#[actix_web::test]
async fn a_response_in_the_background_is_counted_with_its_answer() {
    let mut config = config();
    // Memory writes nothing meanwhile.
    config.store.flush_ms = Millis(20_000);
    let server = serve_with(config, chatty()).await;
    let client = &server.client;
    let begun = begin(client, &ask("say one")).await;
    let done = until(client, &begun, "completed").await;
    let usage = client.get("/v1/usage").await.json();
    let sum = |name: &str| {
        usage["data"].as_array().unwrap().iter().map(|sum| sum[name].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("requests"), sum("rows")), (1, 1), "{usage}");
    assert_eq!(Some(sum("completion_tokens")), done["usage"]["output_tokens"].as_u64(), "{usage}");
    server.until_free().await;
}

#[actix_web::test]
async fn a_response_in_the_background_is_called_off_by_its_tenant_alone_and_for_good() {
    let server = serve().await;
    let client = &server.client;
    server.gate.shut();
    let first = begin(client, &ask("say one")).await;
    let cancel_path = format!("{}/cancel", path_of(&first));
    let store = &server.running.app.runtime.store;
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = client.with_key(&key_of(store, zeta).await);
    for reply in [other.get(&path_of(&first)).await, other.delete(&path_of(&first)).await] {
        assert_eq!(reply.status, 404, "{}", reply.body);
    }
    assert_eq!(other.post(&cancel_path, &json!({})).await.status, 404);
    assert_eq!(client.get(&cancel_path).await.status, 405);
    let cancelled = cancel(client, &first).await;
    assert_eq!((&cancelled["status"], &cancelled["output"]), (&json!("cancelled"), &json!([])));
    assert_eq!(cancel(client, &first).await, cancelled);
    // One that another gateway called off, and one that is deleted while it waits.
    let [second, third] = [begin(client, &ask("say two")).await, begin(client, &ask("say three")).await];
    let id = second["id"].as_str().unwrap();
    assert!(store.finish_ticket(id, None, TicketState::Cancelled, None).await.unwrap());
    assert_eq!(client.delete(&path_of(&third)).await.status, 200);
    server.gate.release();
    server.until_free().await;
    assert_eq!(read(client, &first).await, cancelled);
    assert_eq!(read(client, &second).await["status"], "cancelled", "its answer came too late");
    assert_eq!(client.get(&path_of(&third)).await.status, 404);
    let mut next = ask("and now?");
    next["previous_response_id"] = first["id"].clone();
    let reply = client.post("/v1/responses", &next).await;
    assert!(reply.status == 400 && reply.error().contains("`cancelled`"), "{}", reply.body);

    let waiting = json!({"model": "double", "input": "say one", "max_output_tokens": 8});
    let waiting = client.post("/v1/responses", &waiting).await.json();
    let reply = client.post(&format!("{}/cancel", path_of(&waiting)), &json!({})).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.error().contains("Cannot cancel a synchronous response."), "{}", reply.body);
    assert_eq!(client.post("/v1/responses/resp-1/cancel", &json!({})).await.status, 404);
    server.until_free().await;
}

#[actix_web::test]
async fn what_has_no_meaning_in_the_background_is_refused_by_its_name() {
    let mut config = config();
    config.limits.tenant_ticket_bytes_max = Bytes(2_000);
    let server = serve_with(config, chatty()).await;
    let client = &server.client;
    for (field, value, param) in
        [("store", json!(false), "background"), ("deadline_ms", json!(9_000), "deadline_ms")]
    {
        let mut body = ask("say one");
        body[field] = value;
        let reply = client.post("/v1/responses", &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
    let response = begin(client, &ask("say one")).await;
    for (query, status) in [
        ("stream=true&starting_after=x", 400),
        ("stream=true&starting_after=-1", 400),
        ("starting_after=3", 400),
        ("stream=no", 400),
        ("stream=false", 200),
    ] {
        let reply = client.get(&format!("{}?{query}", path_of(&response))).await;
        assert_eq!(reply.status, status, "{query}: {}", reply.body);
    }
    until(client, &response, "completed").await;
    // What does not fit what its tenant may keep is refused at once, and does not run.
    server.until_free().await;
    let ended = server.metric("relserve_rows_total{outcome=\"stop\"}");
    server.gate.shut();
    let reply = client.post("/v1/responses", &ask(&format!("say {}", "x ".repeat(900)))).await;
    assert_eq!(reply.status, 429, "{}", reply.body);
    assert!(reply.error().contains("limits.tenant_ticket_bytes_max"), "{}", reply.body);
    server.gate.release();
    server.until_free().await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), ended);
    assert_eq!(read(client, &response).await["status"], "completed", "nothing went for it");
    // What fits has the room of the oldest that are over.
    for word in ["two", "three", "four"] {
        let body = ask(&format!("say {word}"));
        let taken = async {
            // An end is written a little after its answer.
            loop {
                let reply = client.post("/v1/responses", &body).await;
                if reply.status == 200 {
                    return reply.json();
                }
            }
        };
        let next = seen_in_time("the one before makes room", taken).await;
        assert_eq!(text(&until(client, &next, "completed").await), word);
    }
    assert_eq!(client.get(&path_of(&response)).await.status, 404);
}

#[actix_web::test]
async fn a_response_in_the_background_goes_on_after_a_restart_with_all_that_was_said() {
    let (folder, database) = database().await;
    let first = serve_shut_with(folder.path(), chatty()).await;
    first.gate.release();
    let before = begin(&first.client, &ask("say one")).await;
    until(&first.client, &before, "completed").await;
    first.gate.shut();
    let mut body = ask("say two");
    body["previous_response_id"] = before["id"].clone();
    let response = begin(&first.client, &body).await;
    assert_eq!(first.client.delete(&path_of(&before)).await.status, 200);
    end(first).await;

    let second = serve_shut_with(folder.path(), chatty()).await;
    until_rows_run(&second).await;
    kill(second, &database).await;
    let third = serve_shut_with(folder.path(), chatty()).await;
    assert_eq!(read(&third.client, &response).await["created_at"], response["created_at"]);
    third.gate.release();
    let done = until(&third.client, &response, "completed").await;
    assert_eq!((text(&done), &done["id"]), ("two", &response["id"]));
    assert_eq!(
        (&done["created_at"], &done["previous_response_id"]),
        (&response["created_at"], &before["id"])
    );
    assert_eq!(said(&third.client, &done).await, ["say two", "one", "say one"]);
    third.until_free().await;
}

#[actix_web::test]
async fn a_response_that_another_gateway_had_for_a_while_is_taken_up_again() {
    let server = serve().await;
    let client = &server.client;
    let runtime = &server.running.app.runtime;
    let later = UnixMillis(runtime.shared.clock.unix_ms()).after(Millis(600_000));
    let others = |until| Lease { holder: "b".into(), process: "one of b".into(), until };
    // It is noticed as the answer is written, and while the response runs.
    for is_answered in [true, false] {
        server.gate.shut();
        let response = begin(client, &ask("say one")).await;
        let lease = others(later.after(Millis(1)));
        let claimed = runtime.store.claim_tickets(ClaimKind::Replies, &lease, 9, later).await.unwrap();
        assert_eq!(claimed.len(), 1);
        if is_answered {
            server.gate.release();
        }
        let id = parse_id("resp-", response["id"].as_str().unwrap()).unwrap();
        let has_left = |_: &Server| runtime.registry.get(DEFAULT_TENANT, id).is_none();
        server.until("it has left this gateway", has_left).await;
        server.gate.release();
        server.until_free().await;
        // The other gateway is gone, and its lease runs out.
        assert_eq!(runtime.store.renew_tickets(&others(UnixMillis(1))).await.unwrap(), 1);
        let done = until(client, &response, "completed").await;
        assert_eq!(text(&done), "one");
    }
    server.until_free().await;
}

// Case 45.
#[actix_web::test]
async fn a_response_in_the_background_that_ends_every_server_fails() {
    let (folder, database) = database().await;
    let mut server = serve_shut_with(folder.path(), chatty()).await;
    let response = begin(&server.client, &ask("say one")).await;
    for _ in 0..3 {
        until_rows_run(&server).await;
        kill(server, &database).await;
        server = serve_shut_with(folder.path(), chatty()).await;
    }
    let failed = read(&server.client, &response).await;
    assert_eq!((&failed["status"], &failed["output"]), (&json!("failed"), &json!([])));
    assert_given_up(&failed["error"]);
    assert_eq!(cancel(&server.client, &response).await, failed);
}
