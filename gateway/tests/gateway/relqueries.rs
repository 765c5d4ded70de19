//! RelQueries over the wire: rows in, rows out.

use serde_json::{Value, json};

use crate::common::client::finish;
use crate::common::serve;

/// The texts of a reply's rows.
fn texts(reply: &Value) -> Vec<&str> {
    reply["rows"].as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap_or("-")).collect()
}

#[actix_web::test]
async fn rows_come_back_in_input_order_with_their_usage() {
    let server = serve().await;
    let body = json!({"template": "Say {word}", "rows": [["one"], ["two"], ["three"]]});
    let reply = server.relquery(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    assert_eq!(json["object"], "relquery");
    assert_eq!(json["status"], "completed");
    assert_eq!(texts(&json), ["one", "two", "three"]);
    assert_eq!(json["rows"][2]["index"], 2);
    assert_eq!(json["rows"][2]["finish_reason"], "stop");
    assert_eq!(json["rows"][2]["usage"]["prompt_tokens"], 9);
    assert_eq!(json["progress"], json!({"total": 3, "done": 3, "failed": 0}));
    assert_eq!(json["usage"]["prompt_tokens"], 7 + 7 + 9);
    assert!(json["timing"]["total_ms"].as_f64().unwrap() > 0.0);
    assert!(json.get("ticket").is_none());
}

#[actix_web::test]
async fn a_stream_sends_every_row_once_and_then_done() {
    let server = serve().await;
    let rows: Vec<Value> = (0..100).map(|i| json!([format!("w{i}")])).collect();
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows, "stream": true})).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events = reply.events();
    let (last, rows) = events.split_last().unwrap();
    assert_eq!(last.0, "done");
    assert_eq!(last.1["status"], "completed");
    assert_eq!(last.1["progress"]["done"], 100);
    assert!(last.1.get("rows").is_none());
    let mut seen: Vec<_> = rows.iter().map(|(_, row)| row["index"].as_u64().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert!(rows.iter().all(|(name, row)| name == "row" && row["text"] == format!("w{}", row["index"])));
}

#[actix_web::test]
async fn fifty_rows_of_a_new_template_compute_it_once() {
    let server = serve().await;
    let lead = "An instruction of some length that all rows share, so that it fills several blocks. ";
    let rows: Vec<Value> = (0..50).map(|i| json!([format!("w{i:02}")])).collect();
    let reply = server.relquery(json!({"template": format!("{lead}{{w}}"), "rows": rows})).await.json();
    let computed = reply["usage"]["computed_tokens"].as_u64().unwrap();
    let ideal = lead.len() as u64 + 50 * 3;
    assert!(computed <= ideal + 50 * 16, "{computed} computed, {ideal} would be ideal");
    assert_eq!(server.gate.computed(), computed, "the reply says what the executor did");
    let usage = &reply["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached + computed, usage["prompt_tokens"].as_u64().unwrap());
}

#[actix_web::test]
async fn equal_rows_run_once_and_a_recalculation_runs_nothing() {
    let server = serve().await;
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"], ["a"], ["a"]]});
    let first = server.relquery(body.clone()).await.json();
    assert_eq!(texts(&first), ["a", "b", "a", "a"]);
    assert_eq!(first["usage"]["rows_deduplicated"], 2);
    let steps = server.gate.passed();
    let second = server.relquery(body.clone()).await.json();
    assert_eq!(texts(&second), texts(&first));
    assert_eq!(second["usage"]["rows_from_cache"], 4);
    assert_eq!(second["usage"]["computed_tokens"], 0);
    assert_eq!(server.gate.passed(), steps, "no step ran");
    let mut uncached = body;
    uncached["cache"] = json!(false);
    let third = server.relquery(uncached).await.json();
    assert_eq!(third["usage"]["rows_from_cache"], 0);
    assert!(server.gate.passed() > steps);
}

#[actix_web::test]
async fn a_cached_answer_survives_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let serve_on = |store| crate::common::serve_on(crate::common::config(), crate::common::model(), store);
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]]});
    let first = serve_on(store.clone()).await;
    first.relquery(body.clone()).await;
    first.running.drain(std::future::pending()).await;
    let second = serve_on(store).await;
    let reply = second.relquery(body).await.json();
    assert_eq!(reply["usage"]["rows_from_cache"], 2);
    assert_eq!((texts(&reply), second.gate.passed()), (vec!["a", "b"], 0));
}

#[actix_web::test]
async fn an_answer_of_another_revision_of_the_model_is_not_given_after_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let serve_revision = |revision, store| {
        let model = serving::model::Model { revision, ..crate::common::model() };
        crate::common::serve_on(crate::common::config(), model, store)
    };
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]]});
    for (revision, from_cache) in [(7, 0), (8, 0), (7, 2), (8, 2)] {
        let server = serve_revision(revision, store.clone()).await;
        let reply = server.relquery(body.clone()).await.json();
        assert_eq!(reply["usage"]["rows_from_cache"], from_cache, "revision {revision}: {reply}");
        assert_eq!(server.gate.passed() > 0, from_cache == 0, "revision {revision}");
        server.running.drain(std::future::pending()).await;
    }
}

#[actix_web::test]
async fn identical_cells_in_flight_run_once() {
    let server = serve().await;
    server.gate.shut();
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]]});
    let first = server.client.begin("/v1/relqueries", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/relqueries", &body).await;
    server
        .until("the second arrives", |server| server.running.app.runtime.registry.running().len() == 2)
        .await;
    server.gate.release();
    let (first, second) = (finish(first).await.json(), finish(second).await.json());
    assert_eq!(texts(&first), texts(&second));
    assert_eq!(server.metric("relserve_rows_shared_total"), 2.0);
    assert_eq!(second["usage"]["rows_deduplicated"], 2);
}

#[actix_web::test]
async fn one_bad_row_leaves_its_neighbours_alone() {
    let server = serve().await;
    let long = "x".repeat(3_000);
    let rows = json!([["a"], ["b", "c"], [{"no": "cell"}], [long], [null], [true], [-0.5]]);
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    assert_eq!(texts(&json), ["a", "-", "-", "-", "Say", "true", "-0.5"]);
    let message = |row: usize| json["rows"][row]["error"]["message"].as_str().unwrap().to_owned();
    assert!(message(1).contains("2 cells"), "{}", message(1));
    assert!(message(2).contains("string"), "{}", message(2));
    assert!(message(3).contains("3004") && message(3).contains("2048"), "{}", message(3));
    assert_eq!(json["progress"], json!({"total": 7, "done": 4, "failed": 3}));
}

#[actix_web::test]
async fn braces_in_cells_are_text_and_doubled_braces_in_templates_are_braces() {
    let server = serve().await;
    let body = json!({"template": "{{a}}:{b}", "columns": ["a", "b"], "rows": [["1", "{a}"], ["2", "}}{{"]]});
    let reply = server.relquery(body).await.json();
    assert_eq!(texts(&reply), ["{a}:{a}", "{a}:}}{{"]);
}

#[actix_web::test]
async fn rows_may_be_objects() {
    let server = serve().await;
    let rows = json!([{"w": "x", "unused": 1}, {"w": 2}, {"v": 3}]);
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows})).await.json();
    assert_eq!(texts(&reply), ["x", "2", "-"]);
    assert!(reply["rows"][2]["error"]["message"].as_str().unwrap().contains("`w`"));
}

#[actix_web::test]
async fn a_relquery_is_found_by_its_id_and_called_off_once() {
    let server = serve().await;
    server.gate.shut();
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]], "stream": true});
    let stream = server.client.begin("/v1/relqueries", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let id = gateway::wire::relquery::public_id(&server.running.app.runtime.registry.running()[0]);
    let path = format!("/v1/relqueries/{id}");
    let running = server.client.get(&path).await.json();
    assert_eq!(
        (running["status"].as_str(), running["rows"][0]["pending"].as_bool()),
        (Some("running"), Some(true))
    );
    let first = server.client.delete(&path).await.json();
    assert_eq!(first, json!({"id": id, "object": "relquery.deleted", "cancelled": true}));
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], false);
    server.gate.release();
    let events = finish(stream).await.events();
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("error"), "never a done: {events:?}");
    server.until("everything is free", |server| server.is_free()).await;
    assert_eq!(server.client.get(&path).await.json()["status"], "cancelled");
    assert_eq!(server.client.delete("/v1/relqueries/rq-1").await.status, 404);
    assert_eq!(server.client.get("/v1/relqueries/nonsense").await.status, 404);
}

#[actix_web::test]
async fn a_step_that_fails_is_repeated_and_a_row_that_keeps_failing_fails() {
    let server = serve().await;
    server.gate.fail(1);
    let body = json!({"template": "Say {w}", "rows": [["a"]], "cache": false});
    let reply = server.relquery(body.clone()).await.json();
    assert_eq!(texts(&reply), ["a"]);
    server.gate.fail(3);
    let reply = server.relquery(body.clone()).await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    assert_eq!(json["progress"]["failed"], 1);
    assert_eq!(json["rows"][0]["error"]["code"], "row_failed");
    assert_eq!(texts(&server.relquery(body).await.json()), ["a"], "and the server goes on");
}

/// Reviews of a few beers: what repeats stands behind what does not.
fn reviews() -> Vec<Value> {
    let beer = |i: usize| {
        ["a pale lager from a brewery by the river", "a stout, black and dry", "an old ale"][i % 3]
    };
    (0..30).map(|i| json!({"id": i, "text": format!("r{i}"), "beer": beer(i), "score": i % 2})).collect()
}

#[actix_web::test]
async fn a_record_holds_the_columns_that_the_template_does_not_name() {
    let server = serve().await;
    let body = json!({"template": "{id}. Repeat: {*}", "max_tokens": 99, "rows": [
        {"id": 7, "text": "a \"b\"", "beer": null, "score": 1.5},
        {"score": 2, "beer": "x", "text": "y", "id": 8},
    ]});
    let reply = server.relquery(body).await.json();
    let shown =
        [r#"{"text": "a \"b\"", "beer": null, "score": 1.5}"#, r#"{"text": "y", "beer": "x", "score": 2}"#];
    assert_eq!(texts(&reply), shown, "in the order of the first row's keys");
    let uneven = json!({"template": "Repeat: {*}", "rows": [{"a": 1}, {"a": 2, "note": "x"}]});
    let rows = server.relquery(uneven).await.json()["rows"].clone();
    assert_eq!(
        (rows[0]["text"].as_str(), &rows[1]["error"]["param"]),
        (Some("{\"a\": 1}"), &json!("rows[1]"))
    );
    let listed =
        json!({"template": "Repeat: {*}", "max_tokens": 99, "columns": ["b", "a"], "rows": [[1, 2]]});
    assert_eq!(texts(&server.relquery(listed).await.json()), [r#"{"b": 1, "a": 2}"#]);
}

#[actix_web::test]
async fn fields_are_ordered_where_they_are_asked_to_and_answers_stay_in_place() {
    let body = |order: &str| json!({"template": "Repeat: {*}", "rows": reviews(), "order": order, "cache": false, "max_tokens": 200});
    let mut computed = Vec::new();
    for order in ["exact", "rows", "fields"] {
        let server = serve().await;
        let reply = server.relquery(body(order)).await.json();
        for (text, review) in texts(&reply).iter().zip(reviews()) {
            let record: Value = serde_json::from_str(text).unwrap();
            assert_eq!(record, review, "{order}: whatever its order, a record is its row's");
        }
        assert_eq!(texts(&reply)[0].starts_with(r#"{"id": 0, "text": "r0""#), order != "fields", "{order}");
        computed.push(server.gate.computed());
    }
    assert!(computed[2] * 4 < computed[1] * 3, "computed {computed:?}");
}

#[actix_web::test]
async fn records_stand_as_each_row_was_sent_where_that_is_asked_for() {
    let server = serve().await;
    let rows = json!([{"a": 1, "b": 2, "c": 3}, {"c": 3, "b": 2, "a": 1}, {"a": 1, "b": 2, "c": 3}]);
    let body = json!({"template": "Repeat: {*}", "rows": rows, "order": "sent", "max_tokens": 99});
    let reply = server.relquery(body).await.json();
    let [one, other] = [r#"{"a": 1, "b": 2, "c": 3}"#, r#"{"c": 3, "b": 2, "a": 1}"#];
    assert_eq!(texts(&reply), [one, other, one]);
    assert_eq!(reply["usage"]["rows_deduplicated"], 1, "entries in another order are another prompt");
    let lists = json!({"template": "{b}. Repeat: {*}", "columns": ["a", "b", "c"], "order": "sent",
        "rows": [[1, 2, 3]], "max_tokens": 99});
    assert_eq!(texts(&server.relquery(lists).await.json()), [r#"{"a": 1, "c": 3}"#]);
}

/// A beer's number says its name, which costs GGR a group where it is not known to.
#[actix_web::test]
async fn declared_dependencies_are_taken_where_rows_bear_them_out() {
    let server = serve().await;
    for dependencies in [json!([["beer", "style"]]), json!([["beer", "note"], ["style", "beer"]])] {
        let beers = ["Pils", "Stout", "Ale"];
        let row = |i: usize| json!({"note": format!("n{i}"), "beer": beers[i % 3], "style": i % 3});
        let rows: Vec<Value> = (0..12).map(row).collect();
        let body = json!({"template": "Repeat: {*}", "rows": rows, "order": "fields", "max_tokens": 99,
            "dependencies": dependencies});
        let reply = server.relquery(body).await.json();
        for (text, row) in texts(&reply).iter().zip(&rows) {
            assert_eq!(&serde_json::from_str::<Value>(text).unwrap(), row);
            assert!(text.find("note") > text.find("beer"), "what differs comes last: {text}");
        }
    }
}

#[actix_web::test]
async fn a_record_that_cannot_be_is_refused_by_name() {
    let server = serve().await;
    let cases = [
        (json!({"template": "Say {w}", "rows": [["x"]], "order": "fields"}), "order"),
        (json!({"template": "Repeat: {*}", "rows": [["x"]]}), "columns"),
        (json!({"template": "Say {w}", "rows": [["x"]], "order": "sent"}), "order"),
        (json!({"template": "{*}", "rows": [{"a": 1}], "dependencies": [["a", "b"]]}), "dependencies"),
        (
            json!({"template": "{*}", "rows": [{"a": 1}], "order": "fields", "dependencies": [["a", "b"]]}),
            "dependencies[0]",
        ),
        (
            json!({"template": "{a} {*}", "rows": [{"a": 1, "b": 2}], "order": "fields",
                "dependencies": [["a", "b"]]}),
            "dependencies[0]",
        ),
        (
            json!({"template": "{*}", "rows": [{"a": 1}], "order": "fields", "dependencies": [["a"]]}),
            "dependencies[0]",
        ),
        (
            json!({"template": "{*}", "rows": [{"a": 1}], "order": "fields", "dependencies": "a,b"}),
            "dependencies",
        ),
        (json!({"template": "Say {w} {*}", "rows": [{"w": 1}]}), "template"),
    ];
    for (body, field) in cases {
        let reply = server.relquery(body.clone()).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{body}");
    }
}
