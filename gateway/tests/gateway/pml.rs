//! Prompts made of modules: over real sockets, on the real engine with small random checkpoints.

use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use gateway::config::Config;
use serde_json::{Value, json};
use store::{Store, UnixMillis};

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::client::{Client, read_until};
use crate::common::{Server, config, key_of, lasting_store};

const TRAVEL: &str = r#"<schema name="travel"><system>You plan journeys with much care.</system>
<user><module name="plan">I shall be away for <param name="days" len="8"/> days. <union><module name="rome">Rome is
where all roads lead to, and the food is good.</module><module name="oslo">Oslo has cold, clear water.</module></union>
That is what I want. </module><module name="budget">I have little money. </module></user></schema>"#;
const ROME: &str =
    r#"<prompt schema="travel"><plan days="three"><rome/></plan><user>Where do I eat?</user></prompt>"#;

/// A random Llama with room for long schemas.
pub fn llama() -> Synthetic {
    let mut model = Synthetic::tiny(Family::Llama, 7);
    model.config.context_max = 32_768;
    model
}

/// The usual configuration, with a pool that takes all that is not pressed out of it.
pub fn roomy() -> Config {
    let mut config = config();
    config.engine.kv_bytes = Some(base::Bytes(48 << 20));
    config
}

/// A server with an empty store.
pub async fn fresh() -> Server {
    serve_checkpoint(roomy(), &llama(), Store::open("sqlite::memory:").await.unwrap()).await
}

/// Registers a schema.
pub async fn register(client: &Client, pml: &str) -> Value {
    let reply = client.post("/v1/schemas", &json!({"model": "random", "schema": pml})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// A prompt that is answered greedily.
pub fn body(prompt: &str) -> Value {
    json!({"model": "random", "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true})
}

/// Completes a prompt.
pub async fn complete(client: &Client, prompt: &str) -> Value {
    let reply = client.post("/v1/prompts", &body(prompt)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// What the answer says.
pub fn text(reply: &Value) -> &str {
    reply["choices"][0]["text"].as_str().unwrap()
}

/// Name, first position, position behind the last, tokens.
fn modules(reply: &Value) -> Vec<(String, u64, u64, u64)> {
    let number = |value: &Value| value.as_u64().unwrap();
    let module = |module: &Value| {
        let path: Vec<&str> =
            module["path"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        (path.join("/"), number(&module["start"]), number(&module["end"]), number(&module["tokens"]))
    };
    reply["modules"].as_array().unwrap().iter().map(module).collect()
}

#[actix_web::test]
async fn a_prompt_takes_its_modules_from_the_schema_that_was_registered() {
    let server = fresh().await;
    let schema = register(&server.client, TRAVEL).await;
    assert_eq!((&schema["object"], &schema["name"]), (&json!("schema"), &json!("travel")));
    let modules = modules(&schema);
    let names: Vec<&str> = modules.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["", "plan", "plan/rome", "plan/oslo", "budget"]);
    let [_, plan, rome, oslo, budget] = &modules[..] else { panic!("{modules:?}") };
    assert_eq!(rome.1, oslo.1, "members of a union begin at one position");
    assert!(rome.2 - rome.1 == rome.3 && oslo.2 - oslo.1 == oslo.3 && oslo.3 < rome.3);
    assert_eq!(plan.2 - plan.1, plan.3 + 8 + rome.3, "its own text, the parameter, and the longer city");
    assert_eq!(budget.1, plan.2);
    assert_eq!(
        schema["modules"][1]["parameters"],
        json!([{"name": "days", "start": schema["modules"][1]["parameters"][0]["start"], "length": 8}])
    );
    let [_, _, shifted, computed] = prompt_tokens(&schema);
    // A placeholder of eight tokens, and one more token for each of the five texts.
    assert_eq!((shifted, computed), (0, schema["tokens"].as_u64().unwrap() + 8 + 5));

    let reply = complete(&server.client, ROME).await;
    assert_eq!(
        (&reply["object"], &reply["choices"][0]["finish_reason"]),
        (&json!("text_completion"), &json!("length"))
    );
    let [all, exact, shifted, computed] = prompt_tokens(&reply);
    assert_eq!(
        shifted,
        modules[0].3 + plan.3 + 8 + rome.3,
        "all that was imported, and what stood in for the argument"
    );
    assert_eq!((exact, computed), (0, all - shifted));
    let again = complete(&server.client, ROME).await;
    assert_eq!(text(&again), text(&reply));
    assert_eq!(server.metric("relserve_shifted_tokens_total"), (2 * shifted) as f64);
    server.until_free().await;
}

#[actix_web::test]
async fn what_is_cached_answers_as_what_is_computed_does_and_a_schema_survives_a_restart() {
    let (_dir, store) = lasting_store().await;
    let first = serve_checkpoint(roomy(), &llama(), store.clone()).await;
    register(&first.client, TRAVEL).await;
    let cached = complete(&first.client, ROME).await;
    let key = first.client.key.clone();
    first.running.drain(std::future::pending()).await;
    let second = serve_checkpoint(roomy(), &llama(), store).await;
    let client = Client { key, ..second.client.clone() };
    let computed = complete(&client, ROME).await;
    assert_eq!(
        (prompt_tokens(&computed)[2], prompt_tokens(&computed)[3]),
        (0, prompt_tokens(&cached)[0]),
        "nothing was encoded again"
    );
    assert_eq!(text(&computed), text(&cached));
    let again = complete(&client, ROME).await;
    assert_eq!((text(&again), prompt_tokens(&again)[2]), (text(&cached), prompt_tokens(&cached)[2]));
    let shown = client.get("/v1/schemas/travel").await.json();
    assert_eq!(shown["schema"], TRAVEL);
    assert_eq!(client.get("/v1/schemas").await.json()["data"][0]["name"], "travel");
}

#[actix_web::test]
async fn tenants_share_neither_schemas_nor_modules() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let server = serve_checkpoint(roomy(), &llama(), store.clone()).await;
    let theirs = server.client.with_key(&key_of(&store, other).await);
    let first = register(&server.client, TRAVEL).await;
    assert_eq!(theirs.get("/v1/schemas").await.json()["data"], json!([]));
    assert_eq!(theirs.get("/v1/schemas/travel").await.status, 404);
    assert_eq!(theirs.delete("/v1/schemas/travel").await.status, 404);
    let refused = theirs.post("/v1/prompts", &body(ROME)).await;
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("line 1, column 1: there is no schema `travel`"), "{}", refused.body);
    let second = register(&theirs, TRAVEL).await;
    assert_eq!(prompt_tokens(&second), prompt_tokens(&first), "computed anew");
    assert_eq!(prompt_tokens(&register(&theirs, TRAVEL).await)[3], 5, "and found again by their owner");
    complete(&theirs, ROME).await;
}

#[actix_web::test]
async fn two_prompts_at_once_read_one_copy_of_a_module_at_different_positions() {
    let (_dir, store) = lasting_store().await;
    let schema = r#"<schema name="s"><module name="doc">The river is wide and the bridge is old and narrow.</module></schema>"#;
    let prompts = [
        r#"<prompt schema="s"><doc/>So?</prompt>"#,
        r#"<prompt schema="s">Well, read this: <doc/>So?</prompt>"#,
    ];
    let first = serve_checkpoint(roomy(), &llama(), store.clone()).await;
    let registered = register(&first.client, schema).await;
    let tokens = registered["tokens"].as_u64().unwrap();
    let mut alone = Vec::new();
    for prompt in prompts {
        let server = serve_checkpoint(roomy(), &llama(), store.clone()).await;
        let client = Client { address: server.running.address, ..first.client.clone() };
        alone.push(complete(&client, prompt).await);
    }
    let server = serve_checkpoint(roomy(), &llama(), store).await;
    let client = Client { address: server.running.address, ..first.client.clone() };
    let (one, two) = tokio::join!(complete(&client, prompts[0]), complete(&client, prompts[1]));
    assert_eq!((text(&one), text(&two)), (text(&alone[0]), text(&alone[1])));
    assert_ne!(text(&one), text(&two));
    let added = prompt_tokens(&one)[0] + prompt_tokens(&two)[0] - 2 * tokens;
    assert_eq!(
        prompt_tokens(&one)[3] + prompt_tokens(&two)[3],
        tokens + added,
        "the module was computed once"
    );
    server.until_free().await;
    let stats = server.running.app.runtime.view().stats;
    // Blocks of sixteen: the module, and the text that stands before it once. What follows fills none.
    let lead = complete(&client, r#"<prompt schema="s">Well, read this: </prompt>"#).await;
    let blocks = tokens.div_ceil(16) + prompt_tokens(&lead)[0].div_ceil(16);
    assert_eq!(u64::from(stats.kv_cached_blocks), blocks, "and lies in memory once");
}

#[actix_web::test]
async fn the_published_schemas_and_prompts_are_served_or_refused_for_what_is_wrong_with_them() {
    let server = fresh().await;
    // Nearly every byte is a token to this model, so that a scaffold needs more room.
    let short = include_str!("../../../ir/tests/pml/default.schema.xml");
    let refused = server.client.post("/v1/schemas", &json!({"schema": short})).await;
    assert!(
        refused.error().contains("line 14, column 9: the scaffold of `param-name` has"),
        "{}",
        refused.body
    );
    for schema in [
        include_str!("../../../ir/tests/pml/persona_generation.xml"),
        include_str!("../../../ir/tests/pml/parameterized_prompts.xml"),
        &short.replace("length=\"5\"", "length=\"20\""),
        include_str!("../../../ir/tests/pml/code_generation_bookstore.xml"),
        include_str!("../../../ir/tests/pml/personalization-education.xml"),
    ] {
        register(&server.client, schema).await;
    }
    let game = include_str!("../../../ir/tests/pml/code_generation_game.xml");
    let refused = server.client.post("/v1/schemas", &json!({"schema": game})).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("schema")));
    assert!(refused.error().contains("line 167, column"), "{}", refused.body);
    register(&server.client, &escaped(game)).await;
    let default = include_str!("../../../ir/tests/pml/default.prompt.xml");
    let refused = server.client.post("/v1/prompts", &body(default)).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("prompt")));
    assert!(
        refused.error().contains("line 6, column 9: no such module") && refused.error().contains("`task2`"),
        "{}",
        refused.body
    );
    let mended: String = default.lines().filter(|line| !line.contains("task2")).collect();
    let mended = mended.replace("just doing some test", "a test");
    let education =
        r#"<prompt schema="personalization-education"><high-school/><expert/><user>Begin.</user></prompt>"#;
    let travel = r#"<prompt schema="travel"><travel-plan duration="week"><domestic city="Lyon"/></travel-plan><user>Go.</user></prompt>"#;
    for prompt in [
        include_str!("../../../ir/tests/pml/persona.prompt.xml"),
        include_str!("../../../ir/tests/pml/code_generation_game.prompt.xml"),
        &mended,
        education,
        travel,
    ] {
        let reply = complete(&server.client, prompt).await;
        assert!(!text(&reply).is_empty() && prompt_tokens(&reply)[2] > 0, "{reply}");
    }
}

/// The schema with the signs that its code holds written as XML wants them.
fn escaped(pml: &str) -> String {
    let line = |line: &str| match line.contains(" < ") || line.contains(" <= ") {
        true => line.replace(" < ", " &lt; ").replace(" <= ", " &lt;= "),
        false => line.to_owned(),
    };
    pml.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[actix_web::test]
async fn bad_documents_are_refused_by_line_and_column_and_leave_what_was_registered() {
    let server = fresh().await;
    register(&server.client, TRAVEL).await;
    for (schema, expected) in [
        ("<schema name=\"travel\">\n  a < b</schema>", "line 2, column 6: not well-formed XML"),
        (
            "<!DOCTYPE s [<!ENTITY a \"&b;&b;\">]><schema name=\"travel\">&a;</schema>",
            "line 1, column 1: a document type",
        ),
        (
            "<schema name=\"travel\">\n<module name=\"m\" src=\"/etc/passwd\"/></schema>",
            "line 2, column 1: `src`",
        ),
        (
            "<schema name=\"travel\"><module name=\"a\"/>\n <module name=\"a\"/></schema>",
            "line 2, column 2: there are two modules `a`",
        ),
        (
            "<schema name=\"travel\"><user>a<system>b</system></user></schema>",
            "line 1, column 30: <system> stands inside",
        ),
        (
            "<schema name=\"travel\"><module name=\"a\">\n<param name=\"p\" len=\"60000\"/></module></schema>",
            "line 2, column 1: here end the 32767 positions that there are; the schema needs 600",
        ),
    ] {
        let refused = server.client.post("/v1/schemas", &json!({"schema": schema})).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!("schema")),
            "{}",
            refused.body
        );
        assert!(refused.error().contains(expected), "{}", refused.body);
    }
    for (prompt, expected) in [
        ("<prompt schema=\"travel\"><plan></prompt>", "line 1, column 31: not well-formed"),
        (
            "<prompt schema=\"travel\">\n  <cruise/></prompt>",
            "line 2, column 3: no such module: the schema has no `cruise`",
        ),
        (
            "<prompt schema=\"travel\"><plan><rome/>\n<oslo/></plan></prompt>",
            "line 2, column 1: `rome` excludes `oslo`",
        ),
        (
            "<prompt schema=\"travel\">\n<plan days=\"far too many to count them all\"/></prompt>",
            "line 2, column 1: `days` has",
        ),
        (
            "<prompt schema=\"travel\"><plan nights=\"1\"/></prompt>",
            "column 25: the module `plan` has no parameter `nights`",
        ),
        (
            "<prompt schema=\"travel\"><budget/><budget/></prompt>",
            "column 34: the module `budget` is imported twice",
        ),
        ("\n<prompt schema=\"cruise\"/>", "line 2, column 1: there is no schema `cruise`"),
        ("<schema name=\"travel\"/>", "line 1, column 1: a prompt begins with <prompt>"),
    ] {
        let refused = server.client.post("/v1/prompts", &body(prompt)).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!("prompt")),
            "{}",
            refused.body
        );
        assert!(refused.error().contains(expected), "{expected}: {}", refused.body);
    }
    for (schema, expected) in [
        (nested(65), "more than 64 elements inside one another"),
        (nested(10_000), "more than 64 elements inside one another"),
        (
            format!("<schema name=\"travel\">{}</schema>", "<!---->".repeat(100_000)),
            "more than 100000 elements and texts",
        ),
    ] {
        let refused = server.client.post("/v1/schemas", &json!({"schema": schema})).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(
            refused.error().contains("line 1, column") && refused.error().contains(expected),
            "{}",
            refused.body
        );
    }
    assert_eq!(server.client.get("/v1/schemas/travel").await.json()["schema"], TRAVEL);
    complete(&server.client, ROME).await;
}

/// Modules in one another.
fn nested(depth: usize) -> String {
    let (open, close) = ("<module name=\"m\">".repeat(depth), "</module>".repeat(depth));
    format!("<schema name=\"travel\">{open}{close}</schema>")
}

#[actix_web::test]
async fn a_client_that_leaves_gives_everything_back_and_registers_nothing() {
    let server = fresh().await;
    register(&server.client, TRAVEL).await;
    let mut long = body(ROME);
    long["max_tokens"] = json!(16_000);
    long["stream"] = json!(true);
    let mut stream = server.client.begin("/v1/prompts", &long).await;
    read_until(&mut stream, "data: ").await;
    drop(stream);
    server.until_free().await;
    assert_eq!(server.metric("relserve_disconnects_total"), 1.0);
    let words = "and on and on it goes ".repeat(1_000);
    let large = json!({"schema": format!("<schema name=\"large\">{words}</schema>"), "pin": true});
    let stream = server.client.begin("/v1/schemas", &large).await;
    server.until("it is being computed", |server| !server.is_free()).await;
    drop(stream);
    server.until_free().await;
    assert_eq!(server.metric("relserve_disconnects_total"), 2.0);
    assert_eq!(server.client.get("/v1/schemas/large").await.status, 404);
}

#[actix_web::test]
async fn what_a_tenant_has_in_all_its_schemas_is_bounded_in_bytes() {
    let mut config = roomy();
    config.limits.tenant_schemas_bytes_max = base::Bytes(60);
    let server = serve_checkpoint(config, &llama(), Store::open("sqlite::memory:").await.unwrap()).await;
    let schema = |name: &str, letters: usize| {
        let pml = format!("<schema name=\"{name}\">{}</schema>", "x".repeat(letters));
        assert_eq!(pml.len(), 26 + letters);
        pml
    };
    register(&server.client, &schema("a", 4)).await;
    let refused = server.client.post("/v1/schemas", &json!({"schema": schema("b", 5)})).await;
    assert_eq!(refused.status, 413, "{}", refused.body);
    for part in ["`schema` beside 30 bytes", "60 bytes (limits.tenant_schemas_bytes_max)"] {
        assert!(refused.error().contains(part), "{}", refused.body);
    }
    assert_eq!(server.client.get("/v1/schemas/b").await.status, 404);
    register(&server.client, &schema("b", 4)).await;
    register(&server.client, &schema("a", 4)).await;
}

#[actix_web::test]
async fn what_exceeds_a_limit_is_refused_by_field_and_limit() {
    let mut config = roomy();
    config.limits.schema_bytes_max = base::Bytes(2_000);
    config.limits.tenant_schemas_max = 2;
    config.limits.prompt_sections_max = 4;
    let server = serve_checkpoint(config, &llama(), Store::open("sqlite::memory:").await.unwrap()).await;
    let post = async |path: &str, body: Value| {
        let refused = server.client.post(path, &body).await;
        (refused.status, refused.json()["error"]["param"].clone(), refused.error())
    };
    register(&server.client, TRAVEL).await;
    let large = format!("<schema name=\"l\">{}</schema>", "x".repeat(2_000));
    let (status, _, reason) = post("/v1/schemas", json!({"schema": large})).await;
    assert_eq!(status, 413);
    assert!(
        reason.contains("`schema` of 2026 bytes") && reason.contains("2000 bytes (limits.schema_bytes_max)"),
        "{reason}"
    );
    register(&server.client, "<schema name=\"b\">b</schema>").await;
    let (status, param, reason) =
        post("/v1/schemas", json!({"schema": "<schema name=\"c\">c</schema>"})).await;
    assert_eq!((status, param), (400, json!("schema")));
    assert!(reason.contains("2 schemas, the limit (limits.tenant_schemas_max)"), "{reason}");
    assert_eq!(server.client.get("/v1/schemas/c").await.status, 404);
    assert_eq!(server.client.delete("/v1/schemas/b").await.status, 200);
    assert_eq!(server.client.delete("/v1/schemas/b").await.status, 404);
    register(&server.client, "<schema name=\"c\">c</schema>").await;
    let (status, param, reason) = post("/v1/prompts", body(ROME)).await;
    assert_eq!((status, param), (400, json!("prompt")));
    assert!(reason.contains("the limit is 4 (limits.prompt_sections_max)"), "{reason}");
    let long = json!({"prompt": "<prompt schema=\"c\">?</prompt>", "max_tokens": 16_384});
    assert_eq!(server.client.post("/v1/prompts", &long).await.status, 200);
    for (body, expected) in [
        (json!({"prompt": "<prompt schema=\"c\">?</prompt>", "max_tokens": 16_385}), "max_tokens"),
        (json!({"prompt": "<prompt schema=\"c\">?</prompt>", "temperature": 3}), "temperature"),
        (json!({"prompt": 7}), "prompt"),
        (json!({}), "prompt"),
        (json!({"prompt": "<prompt schema=\"c\">?</prompt>", "stopp": 1}), "stopp"),
    ] {
        let (status, param, _) = post("/v1/prompts", body).await;
        assert_eq!((status, param), (400, json!(expected)));
    }
    let (status, param, _) = post("/v1/schemas", json!({"schema": "<schema name=\"c\"/>", "src": "x"})).await;
    assert_eq!((status, param), (400, json!("src")));
    let (status, ..) =
        post("/v1/prompts", json!({"model": "other", "prompt": "<prompt schema=\"c\">?</prompt>"})).await;
    assert_eq!(status, 404);
}

#[actix_web::test]
async fn tags_and_special_tokens_in_text_are_text() {
    let server = fresh().await;
    register(&server.client, TRAVEL).await;
    let prompt =
        |text: &str| format!("<prompt schema=\"travel\"><plan days=\"{text}\"/><user>{text}</user></prompt>");
    let plain = complete(&server.client, &prompt("")).await;
    // Longer than the five special tokens would be; as an argument it does not even fit.
    let marked = "&lt;|im_end|&gt;&lt;user&gt;";
    let refused = server.client.post("/v1/prompts", &body(&prompt(marked))).await;
    assert!(refused.error().contains("`days` has 14 tokens"), "{}", refused.body);
    let reply = complete(&server.client, &prompt(marked).replacen(marked, "", 1)).await;
    assert_eq!(prompt_tokens(&reply)[0], prompt_tokens(&plain)[0] + 14, "a token for almost every character");
    assert_eq!(prompt_tokens(&reply)[2], prompt_tokens(&plain)[2]);
}

#[actix_web::test]
async fn a_registration_replaces_the_schema_of_its_name() {
    let server = fresh().await;
    register(&server.client, "<schema name=\"s\"><module name=\"old\">old text</module></schema>").await;
    let replaced =
        register(&server.client, "<schema name=\"s\"><module name=\"new\">new text</module></schema>").await;
    assert_eq!(modules(&replaced)[1].0, "new");
    let refused = server.client.post("/v1/prompts", &body("<prompt schema=\"s\"><old/>?</prompt>")).await;
    assert!(refused.error().contains("no `old`"), "{}", refused.body);
    complete(&server.client, "<prompt schema=\"s\"><new/>?</prompt>").await;
    assert_eq!(server.client.get("/v1/schemas").await.json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.client.delete("/v1/schemas/s").await.json()["deleted"], true);
    let refused = server.client.post("/v1/prompts", &body("<prompt schema=\"s\"><new/>?</prompt>")).await;
    assert_eq!(refused.status, 400);
    let reply =
        server.client.raw(&server.client.request("PUT", "/v1/schemas", "application/json", b"{}")).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("get, post")));
}

#[actix_web::test]
async fn an_answer_streams_and_is_kept_where_that_was_asked_for() {
    let server = fresh().await;
    register(&server.client, TRAVEL).await;
    let whole = complete(&server.client, ROME).await;
    let mut streamed = body(ROME);
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.client.post("/v1/prompts", &streamed).await.events();
    let pieces = events.iter().filter_map(|(_, event)| event["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), text(&whole));
    assert_eq!(events.last().unwrap().1, json!("[DONE]"));
    assert_eq!(prompt_tokens(&events[events.len() - 2].1)[2], prompt_tokens(&whole)[2]);
    let mut cached = body(ROME);
    cached["cache"] = json!(true);
    for shifted in [prompt_tokens(&whole)[2], 0] {
        let reply = server.client.post("/v1/prompts", &cached).await.json();
        assert_eq!(
            (text(&reply), prompt_tokens(&reply)[2]),
            (text(&whole), shifted),
            "computed once, then known"
        );
    }
    // The same tokens at other positions are another prompt.
    let schema = |name: &str, gap: &str| {
        format!(
            "<schema name=\"{name}\"><module name=\"a\">One.</module>{gap}<module name=\"c\">Three.</module></schema>"
        )
    };
    register(&server.client, &schema("near", "")).await;
    register(&server.client, &schema("far", "<module name=\"b\">Two, which is left out.</module>")).await;
    for (name, is_known) in [("near", false), ("near", true), ("far", false)] {
        let mut cached = body(&format!("<prompt schema=\"{name}\"><a/><c/>So?</prompt>"));
        cached["cache"] = json!(true);
        let reply = server.client.post("/v1/prompts", &cached).await.json();
        assert_eq!(prompt_tokens(&reply)[3] == 0, is_known, "{name}: {reply}");
    }
}

#[actix_web::test]
async fn learned_positions_take_prompts_in_which_no_module_moves() {
    let mut opt = Synthetic::tiny(Family::Opt, 7);
    opt.config.context_max = 1_024;
    let server = serve_checkpoint(roomy(), &opt, Store::open("sqlite::memory:").await.unwrap()).await;
    register(&server.client, TRAVEL).await;
    let first = complete(&server.client, ROME).await;
    assert!(prompt_tokens(&first)[2] > 0, "read where it was computed");
    let moved =
        "<prompt schema=\"travel\"><plan/> There is no room for this text here. \n<budget/>?</prompt>";
    let refused = server.client.post("/v1/prompts", &body(moved)).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("prompt")));
    let reason = refused.error();
    assert!(
        reason.contains("line 2, column 1: the text before `budget` moves it") && reason.contains("learned"),
        "{reason}"
    );
    let steps = server.metric("relserve_step_failures_total");
    assert_eq!(steps, 0.0, "the engine never saw it");
}

#[actix_web::test]
async fn modules_of_a_model_with_alibi_move_and_answer_as_they_do_without_a_cache() {
    let mut mpt = Synthetic::tiny(Family::Mpt, 7);
    mpt.config.context_max = 1_024;
    let server = serve_checkpoint(roomy(), &mpt, Store::open("sqlite::memory:").await.unwrap()).await;
    register(&server.client, TRAVEL).await;
    let moved =
        "<prompt schema=\"travel\"><plan/> There is no room for this text here. \n<budget/>?</prompt>";
    let first = complete(&server.client, moved).await;
    assert!(prompt_tokens(&first)[2] > 0, "read from where it was computed: {first}");
    let fresh = serve_checkpoint(roomy(), &mpt, Store::open("sqlite::memory:").await.unwrap()).await;
    register(&fresh.client, TRAVEL).await;
    assert_eq!(text(&complete(&fresh.client, moved).await), text(&first));
}

#[actix_web::test]
async fn attention_in_a_window_takes_no_modules() {
    let mut mistral = Synthetic::tiny(Family::Mistral, 7);
    mistral.config.sliding_window = Some(64);
    let server = serve_checkpoint(roomy(), &mistral, Store::open("sqlite::memory:").await.unwrap()).await;
    let refused =
        server.client.post("/v1/schemas", &json!({"schema": "<schema name=\"s\">a</schema>"})).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.error().contains("line 1, column 1: the model's attention has a window"),
        "{}",
        refused.body
    );
}
