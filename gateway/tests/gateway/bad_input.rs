//! Bad input: the status, and an error object that names what is wrong.

use serde_json::{Value, json};

use crate::common::client::Reply;
use crate::common::{Server, config, model, serve, serve_with};

/// A valid relQuery with one field changed.
fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"template": "Say {w}", "rows": [["x"]]});
    body[field] = value;
    body
}

/// The reply has this status, and its message holds all parts.
fn check(reply: &Reply, status: u16, parts: &[&str]) {
    let message = reply.error();
    assert_eq!(reply.status, status, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[actix_web::test]
async fn a_field_out_of_range_is_a_400_that_names_it() {
    let server = serve().await;
    let cases = [
        ("temperature", json!(-0.1)),
        ("temperature", json!("hot")),
        ("temperature", json!(1e300)),
        ("top_p", json!(0)),
        ("top_p", json!(1.5)),
        ("top_k", json!(0)),
        ("top_k", json!(258)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(9_223_372_036_854_775_808_u64)),
        ("max_tokens", json!(1.5)),
        ("stop", json!([""])),
        ("stop", json!(vec!["x"; 17])),
        ("stop", json!(3)),
        ("order", json!("random")),
        ("class", json!("first")),
        ("deadline_ms", json!(0)),
        ("stream", json!("yes")),
        ("chat", json!(true)),
        ("columns", json!(["a", "a"])),
        ("columns", json!([1])),
        ("rows", json!([])),
        ("rows", json!("x")),
        ("nonsense", json!(1)),
    ];
    for (field, value) in cases {
        let reply = server.relquery(with(field, value.clone())).await;
        check(&reply, 400, &[field]);
        assert_eq!(reply.json()["error"]["param"], field, "{value}");
    }
    assert!(server.is_free() && server.gate.passed() == 0, "the engine saw nothing");
}

#[actix_web::test]
async fn numbers_that_json_cannot_hold_are_refused() {
    let server = serve().await;
    let cases = [
        ("\"seed\":18446744073709551616", "seed"),
        ("\"temperature\":NaN", "column"),
        ("\"temperature\":1e999", "out of range"),
    ];
    for (field, part) in cases {
        let body = format!("{{\"template\":\"Say {{w}}\",\"rows\":[[\"x\"]],{field}}}");
        let reply = server.client.post_bytes("/v1/relqueries", "application/json", body.as_bytes()).await;
        check(&reply, 400, &[part]);
    }
}

#[actix_web::test]
async fn malformed_json_is_a_400_with_its_position() {
    let server = serve().await;
    let deep = "[".repeat(10_000);
    let cases: [(&[u8], &str); 9] = [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{\"template\"", "line 1 column"),
        (b"[]", "object"),
        (deep.as_bytes(), "recursion"),
        (b"{\"rows\":[],\"rows\":[]}", "twice"),
        (b"{\"template\":\"\\ud800\"}", "column"),
        (b"{\"template\":\"\\u0000\"}", "NUL"),
        (b"{\"template\":\"\xff\"}", "column"),
    ];
    for (body, part) in cases {
        check(&server.client.post_bytes("/v1/relqueries", "application/json", body).await, 400, &[part]);
    }
}

#[actix_web::test]
async fn a_body_of_another_kind_or_size_is_refused_before_it_is_read() {
    let mut config = config();
    config.limits.body_bytes_max = base::Bytes(1_000);
    let server = serve_with(config, model()).await;
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data", "image/png"] {
        check(&server.client.post_bytes("/v1/relqueries", kind, b"a=b").await, 415, &["application/json"]);
    }
    let key = server.client.key.clone().unwrap();
    let head = format!(
        "POST /v1/relqueries HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    );
    let declared = format!("{head}Content-Length: 104857600\r\n\r\n");
    check(&server.client.raw(declared.as_bytes()).await, 413, &["1000 bytes"]);
    let chunk = "x".repeat(600);
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n258\r\n{chunk}\r\n258\r\n{chunk}\r\n");
    check(&server.client.raw(chunked.as_bytes()).await, 413, &["1000 bytes"]);
}

#[actix_web::test]
async fn unknown_paths_and_methods_have_error_objects() {
    let server = serve().await;
    check(&server.client.get("/v1/nonsense").await, 404, &["/v1/nonsense"]);
    let reply = server.client.get("/v1/relqueries").await;
    check(&reply, 405, &["POST"]);
    assert_eq!(reply.header("allow"), Some("post"));
    check(&server.client.delete("/healthz").await, 405, &["GET, HEAD"]);
    check(&server.relquery(with("model", json!("gpt-9"))).await, 404, &["gpt-9"]);
}

#[actix_web::test]
async fn an_integer_whose_digits_would_be_rounded_is_refused() {
    let server = serve().await;
    // One more than a fraction can count.
    let kept = server.relquery(json!({"template": "Say {w}", "rows": [[9_007_199_254_740_993_u64]]})).await;
    assert_eq!(kept.json()["rows"][0]["text"], "9007199254740993");
    let body = br#"{"template": "Say {w}", "rows": [[18446744073709551616]]}"#;
    let reply = server.client.post_bytes("/v1/relqueries", "application/json", body).await;
    check(
        &reply,
        400,
        &["invalid `rows[0][0]`: the integer 18446744073709551616 has", "send it as a string"],
    );
}

#[actix_web::test]
async fn templates_and_tables_that_do_not_fit_are_refused() {
    let server = serve().await;
    let cases = [
        (with("template", json!("Say {v}")), "template"),
        (with("template", json!("Say {w")), "closed"),
        (with("template", json!("Say }")), "closes nothing"),
        (with("template", json!("")), "empty"),
        (with("template", json!(7)), "string"),
        (with("rows", json!([[" "]])), "empty"),
        (with("columns", json!(["v"])), "`w`"),
        (with("columns", json!((0..10_000).map(|i| format!("c{i}")).collect::<Vec<_>>())), "256"),
        (with("rows", json!([7])), "rows[0]"),
    ];
    for (mut body, part) in cases {
        if part == "empty" && body["template"] != "" {
            body["template"] = json!("{w}");
        }
        // Without columns the template's own names count, so a wrong name must be said against columns.
        if part == "template" {
            body["columns"] = json!(["w"]);
        }
        check(&server.relquery(body).await, 400, &[part]);
    }
}

#[actix_web::test]
async fn a_prompt_beyond_the_context_is_a_400_with_both_numbers() {
    let server = serve().await;
    let reply = server.relquery(with("rows", json!([["x".repeat(2_040)]]))).await;
    check(&reply, 400, &["2044", "16", "2048"]);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    let mut small = model();
    small.kv_blocks = 4;
    let server: Server = serve_with(config(), small).await;
    let reply = server.relquery(with("rows", json!([["x".repeat(100)]]))).await;
    check(&reply, 400, &["104", "64", "KV pool"]);
}

#[actix_web::test]
async fn tables_beyond_their_limits_are_refused() {
    let mut config = config();
    config.limits.rows_max = 3;
    config.limits.cell_bytes_max = base::Bytes(10);
    config.limits.template_bytes_max = base::Bytes(20);
    let server = serve_with(config, model()).await;
    check(&server.relquery(with("rows", json!([["a"], ["b"], ["c"], ["d"]]))).await, 413, &["3 rows"]);
    check(&server.relquery(with("rows", json!([["x".repeat(11)]]))).await, 413, &["10 bytes"]);
    check(&server.relquery(with("template", json!("x".repeat(21)))).await, 413, &["20 bytes"]);
    let some = server.relquery(with("rows", json!([["x".repeat(11)], ["fine"]]))).await;
    assert_eq!((some.status, some.json()["rows"][1]["text"].as_str()), (200, Some("fine")));
}

#[actix_web::test]
async fn a_wrong_parameter_of_a_query_is_named_with_what_it_must_be() {
    let server = serve().await;
    for (path, param, wanted) in [
        ("/v1/cells/cl-1?details=maybe", "details", "must be true or false"),
        ("/v1/workbooks/w-1?version=abc", "version", "must be the number of a version"),
        ("/v1/usage?days=abc", "days", "must be an integer from 1 to"),
    ] {
        let reply = server.client.get(path).await;
        check(&reply, 400, &[wanted]);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
    }
}
