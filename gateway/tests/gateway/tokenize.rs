//! vLLM's `/tokenize`, `/detokenize` and `/tokenizer_info`: the tokens that the model gets. The double's tokens are bytes.

use std::path::Path;
use std::sync::Arc;

use base::text::{ByteText, put_in};
use base::{
    After, ChatTemplate, MarkupPart, Piece, RenderedPiece, Role, TextError, TokenId, Tokenizer, ToolCallForm,
    ToolFields,
};
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::client::Client;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, config, model, serve, serve_fleet, serve_with};
use crate::constraints::{posted, serve_demo};

const CHAT: &str = "/v1/chat/completions";

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[actix_web::test]
async fn a_prompt_has_the_tokens_that_a_completion_of_it_has_however_long_it_is() {
    let server = serve().await;
    let said = posted(&server.client, "/tokenize", json!({"model": "double", "prompt": "hé<end>"})).await;
    let expected = json!({"count": 8, "max_model_len": 2_048, "tokens": ids("hé<end>"), "token_strs": null});
    assert_eq!(said, expected, "what a caller writes is data");
    let named = json!({"prompt": "ab", "return_token_strs": true, "add_special_tokens": false});
    assert_eq!(posted(&server.client, "/tokenize", named).await["token_strs"], json!(["a", "b"]));
    let blank = posted(&server.client, "/tokenize", json!({"prompt": ""})).await;
    assert_eq!((&blank["count"], &blank["tokens"]), (&json!(0), &json!([])));
    let long = posted(&server.client, "/tokenize", json!({"prompt": "x".repeat(5_000)})).await;
    assert_eq!(long["count"], 5_000, "more than the model takes");
    let text = posted(&server.client, "/detokenize", json!({"tokens": [104, 105, 256]})).await;
    assert_eq!(text, json!({"prompt": "hi<end>"}));
    assert_eq!(server.gate.passed(), 0, "no step ran");
}

/// The tokens of a conversation, which are those of its chat.
async fn tokens_of_chat(client: &Client, messages: &Value, more: &Value) -> Value {
    let mut body = json!({"messages": messages});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let said = posted(client, "/tokenize", body.clone()).await;
    let run = json!({"return_token_ids": true, "max_tokens": 4, "temperature": 0});
    body.as_object_mut().unwrap().extend(run.as_object().unwrap().clone());
    let chat = posted(client, CHAT, body).await;
    assert_eq!(said["tokens"], chat["prompt_token_ids"], "{more}");
    assert_eq!(said["count"], chat["usage"]["prompt_tokens"], "{more}");
    said["tokens"].clone()
}

/// The ways to end a conversation, and its tokens with each, which are none of the others'.
async fn check_ends(client: &Client, messages: &Value) {
    let mut seen = Vec::new();
    for more in [
        json!({}),
        json!({"add_generation_prompt": false}),
        json!({"continue_final_message": true, "add_generation_prompt": false}),
    ] {
        let tokens = tokens_of_chat(client, messages, &more).await;
        assert!(!seen.contains(&tokens), "{more}: {tokens}");
        seen.push(tokens);
    }
    assert_eq!(tokens_of_chat(client, messages, &json!({"continue_final_message": true})).await, seen[2]);
}

#[actix_web::test]
async fn a_conversation_has_the_tokens_that_its_chat_has() {
    let begun = json!([{"role": "user", "content": "say a"}, {"role": "assistant", "content": "The word"}]);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let server = chatty().await;
    check_ends(&server.client, &begun).await;
    tokens_of_chat(&server.client, &begun, &json!({"tools": [tool]})).await;
    server.until_free().await;

    let worded = serve_with(config(), Model { text: Arc::new(Worded), has_chat: true, ..model() }).await;
    let plain = tokens_of_chat(&worded.client, &begun, &json!({})).await;
    for more in [json!({"chat_template_kwargs": {"style": "terse"}}), json!({"tools": [tool]})] {
        assert_ne!(tokens_of_chat(&worded.client, &begun, &more).await, plain, "the template minds {more}");
    }
    worded.until_free().await;
}

#[actix_web::test]
async fn a_conversation_has_the_tokens_that_its_chat_has_by_a_checkpoints_template() {
    let (running, client) = serve_demo().await;
    let begun = json!([{"role": "user", "content": " Was it <|end|> good?\n"},
        {"role": "assistant", "content": "I think it"}]);
    check_ends(&client, &begun).await;
    let spaced = json!([{"role": "user", "content": "Was it good?"},
        {"role": "assistant", "content": "I think "}]);
    check_ends(&client, &spaced).await;
    let kwargs = json!({"chat_template_kwargs": {"enable_thinking": true}});
    tokens_of_chat(&client, &begun, &kwargs).await;
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn the_tokens_of_a_checkpoint_are_told_by_name_and_come_back_as_their_text() {
    let (running, client) = serve_demo().await;
    let text = "The film was a wonder, and nobody left.";
    let said = posted(&client, "/tokenize", json!({"prompt": text, "return_token_strs": true})).await;
    let body = json!({"prompt": text, "max_tokens": 1, "temperature": 0, "return_token_ids": true});
    let completed = posted(&client, "/v1/completions", body).await;
    assert_eq!(said["tokens"], completed["choices"][0]["prompt_token_ids"]);
    let names = said["token_strs"].as_array().unwrap();
    assert!(names.len() == said["count"] && names.iter().all(|name| name != ""), "{said}");
    let plain = posted(&client, "/tokenize", json!({"prompt": text, "add_special_tokens": false})).await;
    let back = posted(&client, "/detokenize", json!({"tokens": plain["tokens"]})).await;
    assert_eq!(back["prompt"], text);
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let whole = posted(&client, "/tokenize", json!({"messages": messages})).await;
    let back = posted(&client, "/detokenize", json!({"tokens": whole["tokens"]})).await;
    let written = back["prompt"].as_str().unwrap();
    assert!(written.contains("Hello") && written.ends_with("<|assistant|>"), "{written}");
    running.drain(std::future::pending()).await;
}

/// Bytes, with a template that has words for tools and variables: it writes all that it is told of them.
struct Worded;

impl Tokenizer for Worded {
    fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
        ByteText.split_markup(text)
    }

    fn encode_stretch(&self, after: After, text: &str) -> Vec<TokenId> {
        ByteText.encode_stretch(after, text)
    }

    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        ByteText.encode_data(text)
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        ByteText.decode(tokens)
    }

    fn vocab_size(&self) -> u32 {
        ByteText.vocab_size()
    }

    fn prompt_start(&self) -> Vec<TokenId> {
        ByteText.prompt_start()
    }
}

impl ChatTemplate for Worded {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        ByteText.frame(roles)
    }

    fn tool_call_form(&self) -> Option<ToolCallForm> {
        Some(ToolCallForm::Hermes)
    }

    fn render_tools(
        &self,
        messages: &[(Role, &str)],
        fields: &ToolFields,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        let (roles, contents): (Vec<Role>, Vec<&str>) = messages.iter().copied().unzip();
        let texts = fields.tools.iter().chain(fields.messages.values()).cloned();
        let told = texts.map(RenderedPiece::Markup);
        Ok(told.chain(put_in(&self.frame(&roles)?, &contents)).collect())
    }

    fn with_variables(&self, variables: &str) -> Option<Box<dyn ChatTemplate + '_>> {
        Some(Box::new(WithVariables(variables.to_owned())))
    }
}

/// The template with variables.
struct WithVariables(String);

impl ChatTemplate for WithVariables {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = vec![Piece::Markup(self.0.clone())];
        pieces.extend(ByteText.frame(roles)?);
        Ok(pieces)
    }
}

#[actix_web::test]
async fn what_no_prompt_is_as_long_as_is_refused_before_it_is_tokenized() {
    // 256 bytes for each of the context's 2,048 tokens.
    const BYTES_MAX: usize = 524_288;
    let plain = chatty().await;
    let native = Model { text: Arc::new(Worded), has_chat: true, ..model() };
    let native = serve_with(config(), native).await;
    let prompt = |length: usize| json!({"prompt": "x".repeat(length)});
    let message = |length: usize| json!({"messages": [{"role": "user", "content": "x".repeat(length)}]});
    let with_tool = |length: usize| {
        let function =
            json!({"name": "f", "description": "x".repeat(length), "parameters": {"type": "object"}});
        json!({"messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "function", "function": function}]})
    };
    let called = |length: usize| {
        let function = json!({"name": "f", "arguments": {"a": "x".repeat(length)}});
        json!({"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "1", "content": "b"}]})
    };
    let made: [(&dyn Fn(usize) -> Value, &str); 4] =
        [(&prompt, "`prompt`"), (&message, "`messages`"), (&with_tool, "`tools`"), (&called, "`messages`")];
    for server in [&plain, &native] {
        for (body, field) in made {
            let reply = server.client.post("/tokenize", &body(BYTES_MAX + 1)).await;
            let error = reply.error();
            assert_eq!(reply.status, 413, "{field}: {error}");
            assert!(error.contains(field) && error.contains("524288 bytes"), "{field}: {error}");
            // What is told of tools and calls takes less than this.
            let fits = server.client.post("/tokenize", &body(BYTES_MAX - 1_024)).await;
            assert_eq!(fits.status, 200, "{field}");
        }
        let most = posted(&server.client, "/tokenize", prompt(BYTES_MAX)).await;
        assert_eq!(most["count"], BYTES_MAX);
    }
}

#[actix_web::test]
async fn names_and_texts_are_told_of_no_more_tokens_than_the_context_has() {
    const CONTEXT: usize = 2_048;
    let server = serve().await;
    let named = |length: usize| json!({"prompt": "x".repeat(length), "return_token_strs": true});
    let most = server.client.post("/tokenize", &named(CONTEXT)).await;
    assert_eq!(most.header("content-type"), Some("application/json"), "{}", most.body);
    assert_eq!(most.json()["token_strs"].as_array().map(Vec::len), Some(CONTEXT));
    let tokens = |count: usize| json!({"tokens": vec![104; count]});
    let text = server.client.post("/detokenize", &tokens(CONTEXT)).await;
    assert_eq!(text.header("content-type"), Some("application/json"), "{}", text.body);
    assert_eq!(text.json()["prompt"].as_str().map(str::len), Some(CONTEXT));
    for (path, body, field) in [
        ("/tokenize", named(CONTEXT + 1), "`return_token_strs`"),
        ("/detokenize", tokens(CONTEXT + 1), "`tokens`"),
    ] {
        let reply = server.client.post(path, &body).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.body);
        assert!(reply.error().contains(field) && reply.error().contains("at most 2048"), "{}", reply.body);
    }
}

#[actix_web::test]
async fn what_cannot_be_told_is_refused_by_name() {
    let server = serve().await;
    let messages = json!([{"role": "user", "content": "a"}]);
    for (path, body, part) in [
        ("/tokenize", json!({}), "`prompt`"),
        ("/tokenize", json!({"prompt": "a", "messages": messages}), "`prompt`"),
        ("/tokenize", json!({"messages": messages}), "no chat template"),
        ("/tokenize", json!({"messages": messages, "chat_template": "x"}), "`chat_template`"),
        ("/detokenize", json!({"tokens": [257]}), "0 to 256"),
    ] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.error().contains(part), "{path}: {}", reply.body);
    }
    let reply = server.client.post("/tokenize", &json!({"model": "gpt", "prompt": "a"})).await;
    assert_eq!(reply.status, 404, "{}", reply.body);
    for (path, body) in [("/tokenize", json!({"prompt": "a"})), ("/detokenize", json!({"tokens": [1]}))] {
        assert_eq!(server.client.get(path).await.status, 405, "{path}");
        let nobody = server.client.with_key("rs-wrong").post(path, &body).await;
        assert_eq!(nobody.status, 401, "{path}: {}", nobody.body);
        let unknown = server.client.post(path, &with(&body, "top_n_sigma")).await;
        assert_eq!(unknown.header("x-relserve-ignored-fields"), Some("top_n_sigma"), "{}", unknown.body);
    }

    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    for (path, body) in [("/tokenize", json!({"prompt": "a"})), ("/detokenize", json!({"tokens": [1]}))] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 501 && reply.error().contains("model.tokenizer"), "{path}: {}", reply.body);
    }
}

#[actix_web::test]
async fn what_a_checkpoints_tokenizer_is_is_told_and_nothing_else_of_its_files() {
    let (running, client) = serve_demo().await;
    let reply = client.get("/tokenizer_info").await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json")),
        "{}",
        reply.body
    );
    let info = reply.json();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(demo.join(name)).unwrap()).unwrap()
    };
    let settings = read("tokenizer_config.json");
    for field in ["tokenizer_class", "eos_token", "pad_token", "add_bos_token", "chat_template"] {
        assert_eq!(info[field], settings[field], "{field}");
    }
    let tokens = read("tokenizer.json")["added_tokens"].as_array().unwrap().clone();
    assert_eq!(info["added_tokens_decoder"].as_object().unwrap().len(), tokens.len());
    for mut token in tokens {
        let id = token.as_object_mut().unwrap().remove("id").unwrap();
        assert_eq!(info["added_tokens_decoder"][id.to_string()], token, "{id}");
    }
    let tokenized = posted(&client, "/tokenize", json!({"prompt": "a"})).await;
    assert_eq!(info["model_max_length"], tokenized["max_model_len"]);
    assert!(info["bos_token"].is_null(), "it has none: {info}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn what_a_tokenizer_is_is_told_of_the_model_that_is_named_to_who_has_a_key() {
    let server = serve().await;
    let info = server.client.get("/tokenizer_info?model=double").await.json();
    let expected = json!({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2_048, "added_tokens_decoder": {}});
    assert_eq!(info, expected);
    assert_eq!(server.client.get("/tokenizer_info?model=gpt").await.status, 404);
    assert_eq!(server.client.with_key("rs-wrong").get("/tokenizer_info").await.status, 401);
    assert_eq!(server.client.post("/tokenizer_info", &json!({})).await.status, 405);

    let replica = FakeReplica::start().await;
    let fleet = serve_fleet(fleet(vec![replica.executor()])).await;
    let reply = fleet.client.get("/tokenizer_info").await;
    assert!(reply.status == 501 && reply.error().contains("model.tokenizer"), "{}", reply.body);
}

/// The same body with one field more.
fn with(body: &Value, field: &str) -> Value {
    let mut body = body.clone();
    body[field] = 1.into();
    body
}

#[actix_web::test]
async fn the_version_is_told_to_everybody() {
    let server = serve().await;
    let mut nobody = server.client.clone();
    nobody.key = None;
    let reply = nobody.get("/version").await;
    assert_eq!((reply.status, reply.json()), (200, json!({"version": env!("CARGO_PKG_VERSION")})));
    assert_eq!(nobody.post("/version", &json!({})).await.status, 405);
}
