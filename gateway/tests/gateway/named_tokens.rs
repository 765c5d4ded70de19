//! Tokens that requests name by their ids: the only ones that are drawn, those whose log probabilities are told, ids in
//! place of texts; and prompts of which some are left out.

use std::sync::Arc;

use base::text::ByteText;
use base::{After, ChatTemplate, MarkupPart, Piece, Role, TextError, TokenId, Tokenizer};
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::client::{Reply, finish};
use crate::common::{Server, config, model, serve_with};
use crate::constraints::{posted, serve_demo};
use crate::sampling::with;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// A greedy completion of a few tokens of the demo model.
fn completion(more: Value) -> Value {
    let body = json!({"prompt": "The film was", "max_tokens": 4, "temperature": 0, "return_token_ids": true});
    with(body, more)
}

fn chat(more: Value) -> Value {
    let messages =
        json!([{"role": "user", "content": "Is this review positive? Answer yes or no. Text: I love it"}]);
    with(json!({"messages": messages, "max_tokens": 8, "temperature": 0, "return_token_ids": true}), more)
}

fn ids(list: &Value) -> Vec<u64> {
    serde_json::from_value(list.clone()).unwrap_or_else(|error| panic!("{error}: {list}"))
}

/// Tokens as they are named by their ids.
fn names(ids: &[u64]) -> Vec<String> {
    ids.iter().map(|id| format!("token_id:{id}")).collect()
}

/// What stands in the chunks of a stream.
fn pieces(reply: &Reply, of: impl Fn(&Value) -> Option<Vec<Value>>) -> Vec<Value> {
    reply.events().iter().filter_map(|(_, chunk)| of(&chunk["choices"][0])).flatten().collect()
}

#[actix_web::test]
async fn nothing_is_said_but_what_is_listed_and_it_is_as_likely_as_it_is() {
    let (running, client) = serve_demo().await;
    let plain = posted(&client, COMPLETIONS, completion(json!({"logprobs": 2, "ignore_eos": true}))).await;
    let said = ids(&plain["choices"][0]["token_ids"]);
    let other = completion(json!({"prompt": "7#Q", "max_tokens": 1}));
    let listed = ids(&posted(&client, COMPLETIONS, other).await["choices"][0]["prompt_token_ids"]);
    let is_listed = |id: &u64| listed.contains(id);
    assert!(!said.iter().any(is_listed), "else this shows nothing: {plain}");

    let only = json!({"allowed_token_ids": listed, "logprobs": 2});
    let held = posted(&client, COMPLETIONS, completion(only.clone())).await;
    let drawn = ids(&held["choices"][0]["token_ids"]);
    assert!(drawn.len() == 4 && drawn.iter().all(is_listed), "{held}");
    let top = |reply: &Value| reply["choices"][0]["logprobs"]["top_logprobs"][0].clone();
    let (among, likeliest) = (top(&held), top(&plain));
    assert!(likeliest.as_object().unwrap().iter().all(|(token, likely)| among[token] == *likely), "{held}");
    // A bias cannot bring in what is not listed.
    let bias = json!({"logit_bias": {said[0].to_string(): 100}, "temperature": 2, "seed": 3});
    let biased = posted(&client, COMPLETIONS, completion(with(only.clone(), bias))).await;
    assert!(ids(&biased["choices"][0]["token_ids"]).iter().all(is_listed), "{biased}");
    // In a conversation, streamed; the model's end is not listed.
    let body = chat(with(only.clone(), json!({"stream": true, "logprobs": true, "min_tokens": 2})));
    let streamed = client.post(CHAT, &body).await;
    let drawn = pieces(&streamed, |choice| choice["token_ids"].as_array().cloned());
    assert!(drawn.len() == 8 && drawn.iter().filter_map(Value::as_u64).all(|id| is_listed(&id)), "{drawn:?}");

    // Beside a constraint both hold; where they leave nothing, that is said.
    let choice = json!({"structured_outputs": {"choice": ["good", "bad"]}});
    let none = client.post(COMPLETIONS, &completion(with(only, choice.clone()))).await;
    assert!(none.status == 400 && none.error().contains("`allowed_token_ids`"), "{}", none.body);
    let free = posted(&client, COMPLETIONS, completion(choice.clone())).await;
    let first = ids(&free["choices"][0]["token_ids"])[0];
    let both = with(json!({"allowed_token_ids": [first, listed[0]]}), choice);
    let both = posted(&client, COMPLETIONS, completion(both)).await;
    assert_eq!(both["choices"][0]["text"], free["choices"][0]["text"]);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn log_probabilities_of_named_tokens_are_told_at_each_position() {
    let (running, client) = serve_demo().await;
    let other = completion(json!({"prompt": "7#Q", "max_tokens": 1}));
    let named = ids(&posted(&client, COMPLETIONS, other).await["choices"][0]["prompt_token_ids"]);
    let more = json!({"logprobs": 3, "logprob_token_ids": named, "return_tokens_as_token_ids": true});
    let reply = posted(&client, COMPLETIONS, completion(more.clone())).await;
    let told = &reply["choices"][0]["logprobs"];
    let drawn = ids(&reply["choices"][0]["token_ids"]);
    assert_eq!(told["tokens"], json!(names(&drawn)), "{reply}");
    let expected = |own: u64| {
        let others = named.iter().copied().filter(|id| *id != own);
        names(&std::iter::once(own).chain(others).collect::<Vec<_>>())
    };
    for (at, id) in drawn.iter().enumerate() {
        let top = told["top_logprobs"][at].as_object().unwrap();
        assert_eq!(top.keys().collect::<Vec<_>>(), expected(*id).iter().collect::<Vec<_>>(), "{told}");
        assert_eq!(top.values().next(), Some(&told["token_logprobs"][at]), "itself first: {told}");
        assert!(top.values().all(|likely| likely.as_f64().is_some_and(|likely| likely <= 0.0)), "{told}");
    }
    // In the words of conversations, whole and streamed.
    let more = with(more, json!({"logprobs": true}));
    let whole = posted(&client, CHAT, chat(more.clone())).await;
    let content = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let drawn = ids(&whole["choices"][0]["token_ids"]);
    assert_eq!(content.len(), drawn.len(), "the end token too: {whole}");
    for (token, id) in content.iter().zip(&drawn) {
        let top = token["top_logprobs"].as_array().unwrap();
        let found: Vec<&Value> = top.iter().map(|one| &one["token"]).collect();
        assert_eq!(json!(found), json!(expected(*id)), "{token}");
        assert_eq!(token["token"], names(&[*id])[0]);
    }
    let streamed = client.post(CHAT, &chat(with(more, json!({"stream": true})))).await;
    assert_eq!(pieces(&streamed, |choice| choice["logprobs"]["content"].as_array().cloned()), *content);

    for (path, body, field) in [
        (COMPLETIONS, completion(json!({"logprob_token_ids": [1]})), "`logprob_token_ids`"),
        (CHAT, chat(json!({"logprob_token_ids": [1]})), "`logprob_token_ids`"),
        (CHAT, chat(json!({"logprobs": true, "logprob_token_ids": [1, 6144]})), "`logprob_token_ids[1]`"),
        (CHAT, chat(json!({"allowed_token_ids": [6144]})), "`allowed_token_ids[0]`"),
        (COMPLETIONS, completion(json!({"allowed_token_ids": []})), "`allowed_token_ids`"),
        (
            COMPLETIONS,
            completion(json!({"logprobs": 1, "logprob_token_ids": [1], "echo": true, "max_tokens": 0})),
            "`logprob_token_ids`",
        ),
    ] {
        let reply = client.post(path, &body).await;
        assert!(reply.status == 400 && reply.error().contains(field), "{field}: {}", reply.body);
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn tokens_are_named_by_their_ids_in_an_echoed_prompt_and_a_stream() {
    let (running, client) = serve_demo().await;
    let more = json!({"echo": true, "logprobs": 1, "return_tokens_as_token_ids": true});
    let reply = posted(&client, COMPLETIONS, completion(more.clone())).await;
    let choice = &reply["choices"][0];
    let all = [ids(&choice["prompt_token_ids"]), ids(&choice["token_ids"])].concat();
    let told = &choice["logprobs"];
    assert_eq!(told["tokens"], json!(names(&all)), "{reply}");
    for (name, top) in names(&all).iter().zip(told["top_logprobs"].as_array().unwrap()).skip(1) {
        assert_eq!(top.as_object().unwrap().keys().next(), Some(name), "itself first: {told}");
    }
    let streamed = client.post(COMPLETIONS, &completion(with(more.clone(), json!({"stream": true})))).await;
    let tokens = pieces(&streamed, |choice| choice["logprobs"]["tokens"].as_array().cloned());
    assert_eq!(json!(tokens), told["tokens"]);
    let offsets = pieces(&streamed, |choice| choice["logprobs"]["text_offset"].as_array().cloned());
    assert_eq!(json!(offsets), told["text_offset"], "whatever tokens are called");
    // Their texts are told where nobody asks for that.
    let texts = with(more, json!({"return_tokens_as_token_ids": false}));
    let texts = posted(&client, COMPLETIONS, completion(texts)).await["choices"][0]["logprobs"].clone();
    assert_eq!(texts["text_offset"], told["text_offset"]);
    assert!(!texts["tokens"].to_string().contains("token_id:"), "{texts}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn of_a_prompt_that_is_too_long_the_first_or_the_last_tokens_are_left_out() {
    let server = serve_with(config(), Model { has_chat: true, ..model() }).await;
    let bytes = |text: &str| text.bytes().map(u64::from).collect::<Vec<_>>();
    for prompt in [json!("long say a"), json!(bytes("long say a"))] {
        let ask = |more: Value| {
            let body = json!({"prompt": prompt, "truncate_prompt_tokens": 5, "return_token_ids": true,
                "temperature": 0, "max_tokens": 9});
            posted(&server.client, COMPLETIONS, with(body, more))
        };
        let left = ask(json!({"echo": true})).await;
        assert_eq!(ids(&left["choices"][0]["prompt_token_ids"]), bytes("say a"));
        assert_eq!(left["choices"][0]["text"], "say aa", "what it goes on from is told in front of it");
        assert_eq!(left["usage"]["prompt_tokens"], 5, "{left}");
        let right = ask(json!({"truncation_side": "right", "max_tokens": 1})).await;
        assert_eq!(ids(&right["choices"][0]["prompt_token_ids"]), bytes("long "));
        let whole = ask(json!({"truncate_prompt_tokens": 10, "truncation_side": "right"})).await;
        assert_eq!(ids(&whole["choices"][0]["prompt_token_ids"]), bytes("long say a"), "it is as long");
    }
    // As much as the context of 2,048 leaves.
    let long = format!("{} say a", "x".repeat(3_000));
    let body = json!({"prompt": long, "max_tokens": 9, "temperature": 0, "truncate_prompt_tokens": -1});
    let reply = posted(&server.client, COMPLETIONS, body.clone()).await;
    assert_eq!(
        (&reply["usage"]["prompt_tokens"], &reply["choices"][0]["text"]),
        (&json!(2_039), &json!("a"))
    );
    let message = json!([{"role": "user", "content": long}]);
    // A chat's limit is a ceiling: a token is left for its answer, whatever it asks for.
    for limit in [json!(8), json!(null)] {
        let body = json!({"messages": message, "max_tokens": limit, "truncate_prompt_tokens": -1});
        let reply = posted(&server.client, CHAT, body).await;
        assert_eq!(reply["usage"]["prompt_tokens"], 2_047, "{reply}");
        assert_eq!(reply["usage"]["completion_tokens"], 1, "{reply}");
    }
    let more = json!({"truncate_prompt_tokens": 4, "max_tokens": 2, "return_token_ids": true});
    let short = with(json!({"messages": message}), more);
    let short = posted(&server.client, CHAT, short).await;
    assert_eq!(ids(&short["prompt_token_ids"]), bytes("ant]"), "of [assistant]");
    assert_eq!(short["usage"]["prompt_tokens"], 4, "{short}");

    for (path, body, word) in [
        (COMPLETIONS, with(body.clone(), json!({"truncate_prompt_tokens": null})), "2048"),
        (COMPLETIONS, with(body.clone(), json!({"truncate_prompt_tokens": 2_048})), "2048"),
        (COMPLETIONS, with(body.clone(), json!({"truncate_prompt_tokens": 0})), "`truncate_prompt_tokens`"),
        (COMPLETIONS, with(body.clone(), json!({"truncate_prompt_tokens": 2_049})), "1 to 2048"),
        (COMPLETIONS, with(body.clone(), json!({"max_tokens": 2_048})), "`truncate_prompt_tokens`"),
        (COMPLETIONS, with(body, json!({"truncation_side": "top"})), "`truncation_side`"),
        ("/v1/responses", json!({"input": "say x", "truncate_prompt_tokens": 4}), "truncate_prompt_tokens"),
        (
            "/v1/messages",
            json!({"messages": message, "max_tokens": 8, "logprob_token_ids": [4]}),
            "logprob_token_ids",
        ),
    ] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.body.contains(word), "{path} {word}: {}", reply.body);
    }
    server.until_free().await;
}

/// Bytes, with a token in front of every prompt.
struct BegunText;

impl Tokenizer for BegunText {
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

    fn decode_written(&self, tokens: &[TokenId]) -> String {
        ByteText.decode_written(tokens)
    }

    fn vocab_size(&self) -> u32 {
        ByteText.vocab_size()
    }

    fn prompt_start(&self) -> Vec<TokenId> {
        vec![ByteText::END]
    }
}

impl ChatTemplate for BegunText {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        ByteText.frame(roles)
    }
}

#[actix_web::test]
async fn what_begins_every_text_stays_in_front_of_one_that_is_cut_where_no_side_is_named() {
    let server = serve_with(config(), Model { text: Arc::new(BegunText), ..model() }).await;
    let begin = u64::from(ByteText::END.0);
    let bytes = |text: &str| text.bytes().map(u64::from).collect::<Vec<_>>();
    let begun = |text: &str| [vec![begin], bytes(text)].concat();
    let sent_as_ids = json!(begun("long say a"));
    for (prompt, side, kept, told) in [
        (json!("long say a"), json!(null), begun("say a"), "say a"),
        (json!("long say a"), json!("left"), bytes(" say a"), " say a"),
        (json!("long say a"), json!("right"), begun("long "), "long "),
        (sent_as_ids.clone(), json!(null), bytes(" say a"), " say a"),
        (sent_as_ids, json!("right"), begun("long "), "<end>long "),
    ] {
        let body = json!({"prompt": prompt, "truncate_prompt_tokens": 6, "truncation_side": side, "echo": true,
            "return_token_ids": true, "temperature": 0, "max_tokens": 9});
        let reply = posted(&server.client, COMPLETIONS, body).await;
        assert_eq!(ids(&reply["choices"][0]["prompt_token_ids"]), kept, "{reply}");
        let text = reply["choices"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(told), "{text:?} begins with {told:?}");
    }
    server.until_free().await;
}

#[actix_web::test]
async fn what_begins_every_text_is_left_out_where_a_completion_asks_for_that() {
    let server = serve_with(config(), Model { text: Arc::new(BegunText), ..model() }).await;
    let begin = u64::from(ByteText::END.0);
    let bytes = |text: &str| text.bytes().map(u64::from).collect::<Vec<_>>();
    for (more, kept) in [
        (json!({}), [vec![begin], bytes("long say a")].concat()),
        (json!({"add_special_tokens": false}), bytes("long say a")),
        (json!({"add_special_tokens": false, "truncate_prompt_tokens": 5}), bytes("say a")),
    ] {
        let body =
            json!({"prompt": "long say a", "return_token_ids": true, "temperature": 0, "max_tokens": 4});
        let reply = posted(&server.client, COMPLETIONS, with(body, more)).await;
        assert_eq!(ids(&reply["choices"][0]["prompt_token_ids"]), kept, "{reply}");
        assert_eq!(reply["choices"][0]["text"], "a", "{reply}");
    }
    server.until_free().await;
}

#[actix_web::test]
async fn log_probabilities_of_named_tokens_are_bounded_for_all_requests_together() {
    let server = serve_with(config(), Model { has_chat: true, ..model() }).await;
    let named: Vec<u32> = (0..128).collect();
    let asked = |max_tokens: u64| {
        json!({"prompt": "say a", "max_tokens": max_tokens, "temperature": 0, "logprobs": 0,
            "logprob_token_ids": named})
    };
    let reply = server.client.post(COMPLETIONS, &asked(1_025)).await;
    assert!(reply.status == 400 && reply.error().contains("131072"), "{}", reply.body);
    server.gate.shut();
    let mut held = Vec::new();
    for number in 1..=4 {
        held.push(server.client.begin(COMPLETIONS, &asked(1_024)).await);
        let is_in = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == number;
        server.until("it is in", is_in).await;
    }
    let reply = server.client.post(COMPLETIONS, &asked(1)).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (429, Some("busy")), "{}", reply.body);
    assert!(reply.error().contains("524288"), "{}", reply.body);
    server.gate.release();
    for held in held {
        assert_eq!(finish(held).await.status, 200);
    }
    server.until_free().await;
    posted(&server.client, COMPLETIONS, asked(1)).await;
    // A chat that names no limit is as long as can be told of; one that does is held to it.
    let message = json!([{"role": "user", "content": "say a"}]);
    let chat = json!({"messages": message, "n": 8, "temperature": 0, "logprobs": true,
        "logprob_token_ids": named});
    posted(&server.client, CHAT, chat.clone()).await;
    let reply = server.client.post(CHAT, &with(chat, json!({"max_tokens": 129}))).await;
    assert!(reply.status == 400 && reply.error().contains("lower `max_tokens`"), "{}", reply.body);
    server.until_free().await;
}
