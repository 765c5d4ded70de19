//! Input that must be refused, or must not do harm: one test per case, on real sockets.

use base::{Bytes, TokenCount};
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::client::read_until;
use crate::common::{Server, config, model, serve, serve_with};

const RELQUERIES: &str = "/v1/relqueries";
const CELLS: &str = "/v1/cells";
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const ROUTES: [&str; 4] = [RELQUERIES, CELLS, COMPLETIONS, CHAT];

/// A server whose model can chat.
async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

/// A good body of a route, with some fields changed.
fn body(path: &str, changes: Value) -> Value {
    let mut body = match path {
        RELQUERIES => json!({"template": "Say {word}", "rows": [["yes"]]}),
        CELLS => json!({"calls": [{"function": "ask", "args": ["yes"]}]}),
        COMPLETIONS => json!({"prompt": "Say yes", "temperature": 0}),
        _ => json!({"messages": [{"role": "user", "content": "Say yes"}], "temperature": 0}),
    };
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The change is refused with a 400 that blames `param`. Returns the message.
async fn refused(server: &Server, path: &str, changes: Value, param: &str) -> String {
    let reply = server.client.post(path, &body(path, changes.clone())).await;
    assert_eq!(reply.status, 400, "{path} {changes}: {}", reply.body);
    assert_eq!(reply.json()["error"]["param"], param, "{path} {changes}: {}", reply.body);
    reply.error()
}

/// The change is served. Returns the reply.
async fn served(server: &Server, path: &str, changes: Value) -> Value {
    let reply = server.client.post(path, &body(path, changes.clone())).await;
    assert_eq!(reply.status, 200, "{path} {changes}: {}", reply.body);
    reply.json()
}

/// The answers of a relQuery: its rows' texts, or the fields their errors blame.
fn answers(reply: &Value) -> Vec<String> {
    let answer = |row: &Value| match row["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("! {}", row["error"]["message"].as_str().unwrap()),
    };
    reply["rows"].as_array().unwrap().iter().map(answer).collect()
}

// Case 1.
#[actix_web::test]
async fn a_body_that_is_no_json_object_is_refused_and_leaves_nothing_behind() {
    let server = chatty().await;
    for path in ROUTES {
        for bytes in [&b""[..], b" \n", b"hello", b"[1]", b"\"x\"", b"{\"a\":1} x", b"{\"a\":"] {
            let reply = server.client.post_bytes(path, "application/json", bytes).await;
            assert_eq!(reply.status, 400, "{path}: {}", reply.body);
            reply.error();
        }
        let good = body(path, json!({})).to_string();
        let reply =
            server.client.post_bytes(path, "application/x-www-form-urlencoded", good.as_bytes()).await;
        assert_eq!(reply.status, 415, "{path}: {}", reply.body);
        reply.error();
    }
    assert!(server.running.app.runtime.registry.running().is_empty());
    assert!(server.is_free());
}

// Case 1.
#[actix_web::test]
async fn a_body_over_the_limit_is_refused_before_it_has_arrived() {
    let mut small = config();
    small.limits.body_bytes_max = Bytes(64 << 10);
    let server = serve_with(small, model()).await;
    let key = server.client.key.clone().unwrap();
    let head = |length: &str| {
        format!(
            "POST /v1/relqueries HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\n{length}\r\n\r\n"
        )
    };
    // 100 MB announced, none sent: the answer comes all the same.
    let mut announced = server.client.send(head("Content-Length: 104857600").as_bytes()).await;
    let reply = read_until(&mut announced, "}}").await;
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("65536"), "{reply}");
    // No length announced: chunks until the limit is passed, and no last chunk.
    let chunk = format!("{:x}\r\n{}\r\n", 65_000, "x".repeat(65_000));
    let bytes = [head("Transfer-Encoding: chunked"), chunk.clone(), chunk].concat();
    let mut endless = server.client.send(bytes.as_bytes()).await;
    let reply = read_until(&mut endless, "}}").await;
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("65536"), "{reply}");
    assert!(server.is_free());
}

// Case 2.
#[actix_web::test]
async fn json_that_parsers_disagree_about_is_refused_with_its_position() {
    let server = chatty().await;
    let deep = |open: &str, close: &str| format!("{{\"x\":{}{}}}", open.repeat(10_000), close.repeat(10_000));
    let bodies: [Vec<u8>; 7] = [
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        b"{\"template\":\"a\",\"template\":\"b\",\"rows\":[[]]}".to_vec(),
        b"{\"template\":\"\\ud800\",\"rows\":[[]]}".to_vec(),
        b"{\"template\":\"a\\u0000b\",\"rows\":[[]]}".to_vec(),
        b"{\"template\":\"\xff\xfe\",\"rows\":[[]]}".to_vec(),
        b"{\"template\":\"a\",\"rows\":[[{\"k\":1,\"k\":2}]]}".to_vec(),
    ];
    for path in ROUTES {
        for bytes in &bodies {
            let reply = server.client.post_bytes(path, "application/json", bytes).await;
            assert_eq!(reply.status, 400, "{path}: {}", reply.body);
            let message = reply.error();
            assert!(message.contains("line 1 column"), "no position: {message}");
        }
        served(&server, path, json!({})).await;
    }
}

// Case 3.
#[actix_web::test]
async fn an_empty_or_blank_prompt_is_refused() {
    let server = chatty().await;
    for prompt in [json!(""), json!([]), json!([""]), json!([[]]), json!(" \n\t"), json!(["a", "  "])] {
        refused(&server, COMPLETIONS, json!({"prompt": prompt}), "prompt").await;
    }
    for messages in
        [json!([]), json!([{"role": "user", "content": " "}]), json!([{"role": "user", "content": []}])]
    {
        refused(&server, CHAT, json!({"messages": messages}), "messages").await;
    }
    refused(&server, RELQUERIES, json!({"template": "{word}", "rows": [[" "], [""], [null]]}), "rows[0]")
        .await;
    let reply =
        served(&server, RELQUERIES, json!({"template": "{word}", "rows": [[" "], ["Say yes"]]})).await;
    assert_eq!(reply["progress"], json!({"total": 2, "done": 1, "failed": 1}));
    assert_eq!(reply["rows"][1]["text"], "yes");
}

// Case 3.
#[actix_web::test]
async fn a_prompt_of_special_tokens_only_runs() {
    let server = serve().await;
    let reply = served(&server, COMPLETIONS, json!({"prompt": [256, 256]})).await;
    assert_eq!(reply["usage"]["prompt_tokens"], 2);
    // Written out, they are text like any other.
    let reply = served(&server, COMPLETIONS, json!({"prompt": "<end>"})).await;
    assert_eq!(reply["usage"]["prompt_tokens"], 5);
}

// Case 4.
#[actix_web::test]
async fn a_prompt_that_cannot_fit_is_refused_at_admission_with_both_numbers() {
    let server = chatty().await;
    let long = "x".repeat(2_040);
    let message = refused(&server, COMPLETIONS, json!({"prompt": long, "max_tokens": 9}), "max_tokens").await;
    // The last is what clients of OpenAI's know it by.
    let known = "This model's maximum context length is 2048 tokens";
    for part in ["2040 prompt tokens", "9 output tokens", "context of 2048", known] {
        assert!(message.contains(part), "{message}");
    }
    refused(&server, COMPLETIONS, json!({"prompt": vec![1; 2_048]}), "max_tokens").await;
    let messages = json!([{"role": "user", "content": "x".repeat(2_048)}]);
    refused(&server, CHAT, json!({"messages": messages}), "max_tokens").await;
    let rows = json!({"rows": [["x".repeat(2_040)], ["yes"]]});
    let reply = served(&server, RELQUERIES, rows).await;
    assert_eq!(reply["rows"][0]["error"]["code"], "context_length_exceeded");
    assert_eq!(reply["rows"][1]["text"], "yes");
    // The last token that fits, fits.
    served(&server, COMPLETIONS, json!({"prompt": vec![1; 2_047], "max_tokens": 1})).await;
}

// Case 4.
#[actix_web::test]
async fn text_that_cannot_fit_is_refused_before_it_is_tokenized() {
    let server = chatty().await;
    let long = "x".repeat(2_048 * 256 + 1);
    let message = refused(&server, COMPLETIONS, json!({"prompt": long}), "prompt").await;
    assert!(message.contains("524289 bytes") && message.contains("2048 tokens"), "{message}");
    let halves =
        json!([{"role": "user", "content": long[..300_000]}, {"role": "user", "content": long[300_000..]}]);
    refused(&server, CHAT, json!({"messages": halves}), "messages").await;
    let rows =
        json!({"template": "{word}{word}{word}", "rows": [["x".repeat(200_000)], ["yes"]], "max_tokens": 9});
    let reply = served(&server, RELQUERIES, rows).await;
    assert_eq!(reply["rows"][0]["error"]["code"], "too_large");
    assert_eq!(reply["progress"]["done"], 1);
}

// Case 4. Filled, the template would take two gigabytes.
#[actix_web::test]
async fn a_template_that_repeats_a_large_cell_is_refused_before_it_is_filled() {
    let server = serve().await;
    let body = json!({"template": "{word}".repeat(10_000), "rows": [["x".repeat(200_000)]]});
    let reply = server.client.post(RELQUERIES, &body).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &json!("too_large")), "{}", reply.body);
}

// Case 4.
#[actix_web::test]
async fn a_prompt_beyond_the_whole_kv_pool_is_refused_at_admission() {
    let server = serve_with(config(), Model { kv_blocks: 4, ..model() }).await;
    let message =
        refused(&server, COMPLETIONS, json!({"prompt": vec![1; 64], "max_tokens": 1}), "max_tokens").await;
    assert!(message.contains("KV pool of 64"), "{message}");
    assert!(server.is_free());
    assert_eq!(server.gate.passed(), 0, "nothing was tried");
}

// Case 5.
#[actix_web::test]
async fn token_ids_outside_the_vocabulary_never_reach_the_engine() {
    let server = chatty().await;
    for prompt in
        [json!([-1]), json!([257]), json!([[1], [4_294_967_296_u64]]), json!([1.5]), json!([1, "a"])]
    {
        refused(&server, COMPLETIONS, json!({"prompt": prompt}), "prompt").await;
    }
    for path in [COMPLETIONS, CHAT] {
        for bias in [json!({"-1": 1}), json!({"257": 1}), json!({"5": 1e9})] {
            refused(&server, path, json!({"logit_bias": bias}), "logit_bias").await;
        }
        for stops in [json!([-1]), json!([257]), json!([1.5]), json!(vec![5; 129])] {
            refused(&server, path, json!({"stop_token_ids": stops}), "stop_token_ids").await;
        }
        for (place, ids) in [(0, json!([-1])), (1, json!([5, 257])), (0, json!(["5"]))] {
            let field = format!("allowed_token_ids[{place}]");
            let reason = refused(&server, path, json!({"allowed_token_ids": ids}), &field).await;
            assert!(reason.contains("0 to 256"), "{reason}");
        }
        refused(&server, path, json!({"allowed_token_ids": []}), "allowed_token_ids").await;
    }
    for path in [RELQUERIES, COMPLETIONS, CHAT] {
        refused(&server, path, json!({"stop": vec!["x"; 1_000]}), "stop").await;
        refused(&server, path, json!({"stop": "x".repeat(100_000)}), "stop").await;
        refused(&server, path, json!({"stop": [""]}), "stop").await;
    }
    assert_eq!(server.gate.passed(), 0, "nothing was tried");
}

// Case 6.
#[actix_web::test]
async fn every_sampling_field_out_of_range_is_refused_by_name() {
    let server = chatty().await;
    let big: Value = serde_json::from_str("18446744073709551616").unwrap();
    for path in [RELQUERIES, COMPLETIONS, CHAT] {
        for (field, values) in [
            ("temperature", vec![json!(-0.01), json!(2.01), json!(1e300), json!("hot")]),
            ("top_p", vec![json!(0), json!(-1), json!(1.01)]),
            ("top_k", vec![json!(258), json!(-2), json!(1.5)]),
            ("seed", vec![big.clone(), json!(1.5), json!("7")]),
        ] {
            for value in values {
                refused(&server, path, json!({ field: value }), field).await;
            }
        }
        let nan = body(path, json!({})).to_string().replacen('{', "{\"temperature\":NaN,", 1);
        assert_eq!(server.client.post_bytes(path, "application/json", nan.as_bytes()).await.status, 400);
    }
    for path in [COMPLETIONS, CHAT] {
        for (field, value) in
            [("n", json!(1_000_000_000)), ("best_of", json!(1_000)), ("logprobs", json!(1_000_000))]
        {
            refused(&server, path, json!({ field: value }), field).await;
        }
    }
}

// Case 7.
#[actix_web::test]
async fn an_output_limit_of_zero_is_refused_none_has_a_default_and_a_huge_one_does_no_harm() {
    let server = chatty().await;
    for path in [RELQUERIES, COMPLETIONS, CHAT] {
        for limit in [json!(0), json!(-1), json!(1e30)] {
            refused(&server, path, json!({"max_tokens": limit}), "max_tokens").await;
        }
    }
    for limit in [1_u64 << 63, u64::MAX] {
        refused(&server, RELQUERIES, json!({"max_tokens": limit}), "max_tokens").await;
        // Lowered to what the operator allows, a completion's must still fit the context; a chat's is a ceiling.
        let message = refused(&server, COMPLETIONS, json!({"max_tokens": limit}), "max_tokens").await;
        assert!(message.contains("16384 output tokens"), "{message}");
        served(&server, CHAT, json!({"max_tokens": limit})).await;
    }
    for (path, tokens) in [(RELQUERIES, 16), (COMPLETIONS, 16), (CHAT, 2_048 - "[user]Say yes".len() - 12)] {
        let reply = served(&server, path, json!({"ignore_eos": true, "seed": 1})).await;
        assert_eq!(reply["usage"]["completion_tokens"], tokens, "{path}");
    }
}

// Case 8. What runs this model keeps to no constraint, so however wild, it is refused before anything
// compiles it.
#[actix_web::test]
async fn a_constraint_is_refused_by_name_and_others_are_served() {
    let server = chatty().await;
    let mut schema = json!({"type": "object"});
    for _ in 0..50 {
        schema = json!({"type": "object", "properties": {"a": schema, "b": {"$ref": "#"}}});
    }
    let regex = json!("(a+)+$");
    refused(&server, RELQUERIES, json!({"regex": regex}), "regex").await;
    refused(&server, RELQUERIES, json!({"json_schema": schema}), "json_schema").await;
    for path in [COMPLETIONS, CHAT] {
        refused(&server, path, json!({"guided_regex": regex}), "guided_regex").await;
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let field = "response_format.json_schema.schema";
        let message = refused(&server, path, json!({"response_format": format}), field).await;
        assert!(message.contains("cannot hold outputs to a constraint"), "{message}");
        served(&server, path, json!({})).await;
    }
}

// Case 10.
#[actix_web::test]
async fn a_ragged_row_fails_alone() {
    let server = serve().await;
    let ragged = json!({"columns": ["word", "other"], "rows": [["a", 1], ["b"], ["c", 2, 3], {"word": "d"}, ["e", 5]]});
    let reply = served(&server, RELQUERIES, ragged).await;
    let answers = answers(&reply);
    assert_eq!([&answers[0], &answers[4]], ["a", "e"]);
    for row in 1..=3 {
        assert!(answers[row].contains(&format!("rows[{row}]")), "{answers:?}");
    }
    assert_eq!(reply["progress"], json!({"total": 5, "done": 2, "failed": 3}));
}

// Case 10.
#[actix_web::test]
async fn tables_of_odd_shapes_are_served_or_refused_by_name() {
    let server = serve().await;
    refused(&server, RELQUERIES, json!({"columns": ["word", "word"], "rows": [["a", "b"]]}), "columns").await;
    refused(&server, RELQUERIES, json!({"rows": []}), "rows").await;
    refused(&server, RELQUERIES, json!({"rows": ["a"]}), "rows[0]").await;
    refused(&server, RELQUERIES, json!({"rows": {"word": "a"}}), "rows").await;
    let many: Vec<String> = (0..10_000).map(|column| format!("c{column}")).collect();
    refused(&server, RELQUERIES, json!({"columns": many, "rows": [vec!["a"; 10_000]]}), "columns").await;
    refused(&server, RELQUERIES, json!({"rows": [vec!["a"; 10_000]]}), "rows[0]").await;
    let reply = served(&server, RELQUERIES, json!({"rows": [["one"]]})).await;
    assert_eq!(answers(&reply), ["one"]);
    // No column at all: the template is the prompt of every row.
    let reply = served(&server, RELQUERIES, json!({"template": "Say fixed", "rows": [[], []]})).await;
    assert_eq!(answers(&reply), ["fixed", "fixed"]);
    let reply =
        server.client.post(RELQUERIES, &json!({"template": "{word}", "rows": vec![["a"]; 20_001]})).await;
    assert_eq!(reply.status, 413, "{}", reply.body);
}

// Case 10.
#[actix_web::test]
async fn a_cell_of_five_megabytes_fails_alone() {
    let server = serve().await;
    let reply = served(&server, RELQUERIES, json!({"rows": [["x".repeat(5 << 20)], ["yes"]]})).await;
    assert_eq!(reply["rows"][0]["error"]["code"], "too_large");
    assert_eq!(reply["rows"][1]["text"], "yes");
}

// Case 11. The double answers with the prompt's last word, so an answer is the cell as the model saw it.
#[actix_web::test]
async fn cells_reach_the_model_as_they_were_written() {
    let server = serve().await;
    let cells = json!([
        [null],
        [""],
        ["NaN"],
        ["null"],
        [1],
        ["1"],
        [-0.0],
        [0],
        [1.5],
        [true],
        ["2024-02-30T25:00:00Z"],
        ["1e3"]
    ]);
    let reply =
        served(&server, RELQUERIES, json!({"template": "> {word}", "rows": cells, "max_tokens": 32})).await;
    let expected =
        [">", ">", "NaN", "null", "1", "1", "-0.0", "0", "1.5", "true", "2024-02-30T25:00:00Z", "1e3"];
    assert_eq!(answers(&reply), expected);
    assert_eq!(reply["usage"]["rows_deduplicated"], 2, "null is empty text, and 1 reads as \"1\"");
    // Unicode normal forms are different texts: nobody normalises a user's data.
    let reply = served(&server, RELQUERIES, json!({"rows": [["\u{e9}"], ["e\u{301}"]]})).await;
    assert_eq!(reply["usage"]["rows_deduplicated"], 0);
    assert_eq!(reply["rows"][0]["usage"]["prompt_tokens"], "Say ".len() + 2);
    assert_eq!(reply["rows"][1]["usage"]["prompt_tokens"], "Say ".len() + 3);
    for cell in ["NaN", "Infinity", "-Infinity"] {
        let text = format!("{{\"template\":\"{{a}}\",\"rows\":[[{cell}]]}}");
        assert_eq!(
            server.client.post_bytes(RELQUERIES, "application/json", text.as_bytes()).await.status,
            400
        );
    }
    let nested = server.relquery(json!({"template": "{a}", "rows": [[["x"]]]})).await;
    assert_eq!(nested.status, 400, "{}", nested.body);
}

// Case 13.
#[actix_web::test]
async fn a_template_names_only_its_columns_and_cells_are_never_expanded_again() {
    let server = serve().await;
    refused(&server, RELQUERIES, json!({"template": "Say {missing}", "columns": ["word"]}), "template").await;
    refused(&server, RELQUERIES, json!({"template": "Say {word"}), "template").await;
    refused(&server, RELQUERIES, json!({"template": "Say word}"}), "template").await;
    refused(&server, RELQUERIES, json!({"template": 5}), "template").await;
    let rows =
        json!({"template": "{a} {{b}} {b}", "columns": ["a", "b"], "rows": [["{b}", "{a}"], ["x", "{{a}}"]]});
    let reply = served(&server, RELQUERIES, rows).await;
    assert_eq!(answers(&reply), ["{a}", "{{a}}"]);
    assert_eq!(reply["rows"][0]["usage"]["prompt_tokens"], "{b} {b} {a}".len());
}

// Case 16.
#[actix_web::test]
async fn rows_that_are_the_same_run_once() {
    let server = serve().await;
    let rows = json!({"rows": [["yes"], ["yes"], ["no"], ["yes"]], "cache": false});
    let reply = served(&server, RELQUERIES, rows).await;
    assert_eq!(answers(&reply), ["yes", "yes", "no", "yes"]);
    assert_eq!(reply["usage"]["rows_deduplicated"], 2);
    assert!(server.gate.computed() <= ("Say yes".len() + "Say no".len()) as u64);
}

// What only looks like bad input is served.
#[actix_web::test]
async fn fields_that_change_nothing_are_accepted() {
    let server = chatty().await;
    let neutral = json!({
        "model": "double", "n": 1, "user": "me", "metadata": {"a": "b"}, "presence_penalty": 0,
        "frequency_penalty": 0.0, "logit_bias": {}, "response_format": {"type": "text"}, "stop": null, "seed": -1
    });
    for path in [COMPLETIONS, CHAT] {
        served(&server, path, neutral.clone()).await;
    }
    let long = Model { context_max: TokenCount(u64::MAX), has_chat: true, ..model() };
    let server = serve_with(config(), long).await;
    served(&server, CHAT, json!({})).await;
}
