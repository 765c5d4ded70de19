//! What OpenAI's routes take beside a prompt: several answers (`n`), which are rows of one relQuery, and fields that
//! they do not know.

use gateway::config::UnknownFields;
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::{config, model, serve_with};

/// What the choices of a reply say, by their numbers.
fn said(reply: &Value, text: impl Fn(&Value) -> &Value) -> Vec<(u64, String)> {
    let choices = reply["choices"].as_array().unwrap().iter();
    choices
        .map(|choice| (choice["index"].as_u64().unwrap(), text(choice).as_str().unwrap().to_owned()))
        .collect()
}

fn numbered(texts: &[&str]) -> Vec<(u64, String)> {
    (0..).zip(texts.iter().map(|text| (*text).to_owned())).collect()
}

#[actix_web::test]
async fn n_answers_to_a_prompt_are_rows_of_one_relquery() {
    let mut config = config();
    config.limits.rows_max = 5;
    let server = serve_with(config, Model { has_chat: true, ..model() }).await;
    let chat = |n: u64| json!({"model": "double", "max_tokens": 8, "n": n, "messages": [{"role": "user", "content": "say x"}]});
    let reply = server.client.post("/v1/chat/completions", &chat(3)).await.json();
    assert_eq!(said(&reply, |choice| &choice["message"]["content"]), numbered(&["x", "x", "x"]));
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 3.0);
    let prompts = json!({"model": "double", "prompt": ["say a", "say b"], "max_tokens": 8, "n": 2});
    let reply = server.client.post("/v1/completions", &prompts).await.json();
    assert_eq!(said(&reply, |choice| &choice["text"]), numbered(&["a", "a", "b", "b"]));
    let mut many = prompts.clone();
    many["n"] = 3.into();
    let reply = server.client.post("/v1/completions", &many).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("n")));
    assert!(reply.body.contains("6 answers; at most 5"), "{}", reply.body);
    server.until_free().await;
}

#[actix_web::test]
async fn a_stream_of_n_answers_tells_which_each_piece_is_of() {
    let server = serve_with(config(), Model { has_chat: true, ..model() }).await;
    let body = json!({"model": "double", "max_tokens": 8, "n": 2, "stream": true,
        "messages": [{"role": "user", "content": "say long"}]});
    let reply = server.client.post("/v1/chat/completions", &body).await;
    let mut texts = [String::new(), String::new()];
    let mut ends = 0;
    for (_, chunk) in reply.events().into_iter().filter(|(_, chunk)| chunk.is_object()) {
        for choice in chunk["choices"].as_array().unwrap() {
            let text = choice["delta"]["content"].as_str().unwrap_or_default();
            texts[choice["index"].as_u64().unwrap() as usize].push_str(text);
            ends += u32::from(choice["finish_reason"].is_string());
        }
    }
    assert_eq!((texts, ends), (["long".to_owned(), "long".to_owned()], 2));
}

#[actix_web::test]
async fn what_is_unknown_in_an_object_is_named_with_it_and_wishes_are_taken() {
    let chat = json!({"model": "double", "max_tokens": 8, "messages": [{"role": "user", "content": "say x"}],
        "top_k": 0, "reasoning_effort": "low", "verbosity": "low", "guided_decoding_backend": "xgrammar",
        "prediction": {"type": "content", "content": "y"},
        "structured_outputs": {"disable_any_whitespace": true, "disable_fallback": false, "whitespace_pattern": null}});
    let mut strange = chat.clone();
    strange["response_format"] = json!({"type": "text", "strict": true});
    strange["structured_outputs"]["made_by"] = "a program".into();
    strange["stream"] = true.into();
    strange["stream_options"] = json!({"include_usage": true, "chunk_size": 3});
    let named = "response_format.strict, structured_outputs.made_by, stream_options.chunk_size";
    for (unknown_fields, status, header) in [
        (UnknownFields::Warn, 200, Some(named)),
        (UnknownFields::Ignore, 200, None),
        (UnknownFields::Refuse, 400, None),
    ] {
        let mut config = config();
        config.openai.unknown_fields = unknown_fields;
        let server = serve_with(config, Model { has_chat: true, ..model() }).await;
        let reply = server.client.post("/v1/chat/completions", &strange).await;
        let found = (reply.status, reply.header("x-relserve-ignored-fields"));
        assert_eq!(found, (status, header), "{}", reply.body);
        let known = server.client.post("/v1/chat/completions", &chat).await;
        assert_eq!((known.status, known.header("x-relserve-ignored-fields")), (200, None), "{}", known.body);
        assert_eq!(known.json()["choices"][0]["message"]["content"], "x");
    }
}

#[actix_web::test]
async fn fields_that_are_not_known_are_left_out_and_named_unless_they_are_to_be_refused() {
    const IGNORED: &str = "x-relserve-ignored-fields";
    let body = json!({"model": "double", "max_tokens": 8, "top_n_sigma": 1, "a\r\nb: c": 2, "messages": [
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "say x", "cache_control": {}}]}]});
    for unknown_fields in [UnknownFields::Warn, UnknownFields::Ignore, UnknownFields::Refuse] {
        let mut config = config();
        config.openai.unknown_fields = unknown_fields;
        let server = serve_with(config, Model { has_chat: true, ..model() }).await;
        let chat = server.client.post("/v1/chat/completions", &body).await;
        let prompt = json!({"model": "double", "prompt": "say x", "echo_back": true, "stream": true});
        let completion = server.client.post("/v1/completions", &prompt).await;
        let found = (chat.status, chat.header(IGNORED), completion.status, completion.header(IGNORED));
        match unknown_fields {
            UnknownFields::Warn => {
                let named = Some("messages[0].name, a??b:?c, top_n_sigma");
                assert_eq!(found, (200, named, 200, Some("echo_back")), "{}", chat.body);
            }
            UnknownFields::Ignore => assert_eq!(found, (200, None, 200, None)),
            UnknownFields::Refuse => {
                assert_eq!(found, (400, None, 400, None));
                assert_eq!(chat.json()["error"]["param"], "messages[0].name");
            }
        }
        if chat.status == 200 {
            assert_eq!(chat.json()["choices"][0]["message"]["content"], "x");
        }
        // A field that is known is not left out where its value is not supported.
        let known = server
            .client
            .post("/v1/completions", &json!({"model": "double", "prompt": "a", "suffix": "b"}))
            .await;
        assert_eq!((known.status, &known.json()["error"]["param"]), (400, &json!("suffix")));
    }
}
