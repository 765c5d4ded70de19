//! What vLLM tells of prompts and answers comes back as it tells it, whether it is sent tokens or texts.

use serde_json::{Map, Value, json};

use super::Both;
use crate::common::alike::is_alike;
use crate::constraints::posted;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// More than a block of vLLM's cache, with a character of two tokens.
const PROMPT: &str = "Name the colour that stands in the café's row below, in one word. red";
/// Tokens of a block.
const BLOCK_TOKENS: u64 = 32;

/// What a logarithm may differ by: what the cache supplied was computed in other products.
const TOLERANCE: f64 = 1e-3;

/// What vLLM replies when it is asked directly, and what the gateways in front of it reply.
async fn replies(both: &Both, path: &str, body: &Value) -> (Value, Vec<Value>) {
    let its = posted(&both.vllm, path, body.clone()).await;
    let mut ours = Vec::new();
    for gateway in both.gateways() {
        ours.push(posted(gateway, path, body.clone()).await);
    }
    (its, ours)
}

/// A completion of the prompt with these fields.
fn completion(fields: Value) -> Value {
    with(json!({"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "temperature": 0}), fields)
}

/// The same as a chat.
fn chat(fields: Value) -> Value {
    let messages = json!([{"role": "user", "content": PROMPT}]);
    with(json!({"model": "tiny", "messages": messages, "max_tokens": 4, "temperature": 0}), fields)
}

fn with(mut body: Value, fields: Value) -> Value {
    let (Some(body_fields), Value::Object(fields)) = (body.as_object_mut(), fields) else {
        panic!("both are objects")
    };
    body_fields.extend(fields);
    body
}

/// Log probabilities by tokens' texts without the empty text: all parts of characters have that one, and vLLM tells one
/// of them.
fn named(top: &Value) -> Value {
    let Value::Object(top) = top else { return top.clone() };
    let named = top.iter().filter(|(name, _)| !name.is_empty());
    Value::Object(named.map(|(name, logprob)| (name.clone(), logprob.clone())).collect())
}

/// Asserts that a completion's tokens are told alike, with the likeliest beside each.
fn assert_alike(ours: &Value, its: &Value) {
    let (ours, its) = (&ours["choices"][0]["logprobs"], &its["choices"][0]["logprobs"]);
    assert_eq!(ours["tokens"], its["tokens"]);
    assert!(is_alike(&ours["token_logprobs"], &its["token_logprobs"], TOLERANCE), "{ours} beside {its}");
    let top = |logprobs: &Value| {
        let top = logprobs["top_logprobs"].as_array().into_iter().flatten();
        top.map(named).collect::<Value>()
    };
    assert!(is_alike(&top(ours), &top(its), TOLERANCE), "{ours} beside {its}");
}

/// `echo` with `logprobs`: the prompt alone, and in front of an answer.
pub(super) async fn echoed_prompts_are_scored_as_it_scores_them(both: &Both) {
    for max_tokens in [0, 3] {
        let asked = json!({"max_tokens": max_tokens, "ignore_eos": true, "echo": true, "logprobs": 2});
        let (its, ours) = replies(both, COMPLETIONS, &completion(asked)).await;
        let its_logprobs = &its["choices"][0]["logprobs"];
        let told = its_logprobs["token_logprobs"].as_array().expect("vLLM scores it");
        assert!(told.len() > 32 && told[0].is_null() && told[1].is_number(), "{its}");
        for ours in &ours {
            assert_eq!(ours["choices"][0]["text"], its["choices"][0]["text"]);
            assert_alike(ours, &its);
            // Where a token of an answer is a part of a character, vLLM counts no characters for it.
            if max_tokens == 0 {
                assert_eq!(ours["choices"][0]["logprobs"]["text_offset"], its_logprobs["text_offset"]);
            }
        }
    }
}

/// `prompt_logprobs`: ids, ranks, texts and numbers.
pub(super) async fn scores_of_prompts_are_its_own(both: &Both) {
    let scores = |reply: &Value| match &reply["prompt_logprobs"] {
        Value::Null => reply["choices"][0]["prompt_logprobs"].clone(),
        told => told.clone(),
    };
    for top in [0_usize, 20] {
        let asked = json!({ "prompt_logprobs": top });
        for (path, body) in [(COMPLETIONS, completion(asked.clone())), (CHAT, chat(asked))] {
            let (its, ours) = replies(both, path, &body).await;
            let its = scores(&its);
            let told = its.as_array().expect("vLLM scores it");
            assert!(told.len() > 32 && told[0].is_null(), "{its}");
            let beside = told[1].as_object().map_or(0, Map::len);
            assert!((top.max(1)..=top + 1).contains(&beside), "{top}: {}", told[1]);
            for ours in ours.iter().map(scores) {
                assert!(is_alike(&ours, &its, TOLERANCE), "{path}, {top}: {ours} beside {its}");
            }
        }
    }
}

/// `logprobs`, `top_logprobs` and `logprob_token_ids` of answers.
pub(super) async fn answers_tokens_are_told_as_it_tells_them(both: &Both) {
    for top in [0, 2] {
        let asked = completion(json!({"ignore_eos": true, "logprobs": top}));
        let (its, ours) = replies(both, COMPLETIONS, &asked).await;
        let told = its["choices"][0]["logprobs"]["tokens"].as_array().map(Vec::len);
        assert_eq!(told, Some(4), "{its}");
        ours.iter().for_each(|ours| assert_alike(ours, &its));
        let asked = chat(json!({"ignore_eos": true, "logprobs": true, "top_logprobs": top}));
        let (its, ours) = replies(both, CHAT, &asked).await;
        let its = content(&its, top);
        assert_eq!(its.as_array().map(Vec::len), Some(4), "{its}");
        for ours in &ours {
            let ours = content(ours, top);
            assert!(is_alike(&ours, &its, TOLERANCE), "{top}: {ours} beside {its}");
        }
    }
    // A gateway that sends texts knows no ids. Those of a byte are its number: r, g and b.
    let asked = completion(json!({"ignore_eos": true, "logprobs": 0, "logprob_token_ids": [114, 103, 98]}));
    let its = posted(&both.vllm, COMPLETIONS, asked.clone()).await;
    let ours = posted(&both.server.client, COMPLETIONS, asked).await;
    let told = its["choices"][0]["logprobs"]["top_logprobs"][0].as_object();
    assert!(told.is_some_and(|told| ["r", "g", "b"].iter().all(|name| told.contains_key(*name))), "{its}");
    assert_alike(&ours, &its);
}

/// The tokens of a chat's answer, each with the likeliest beside it, of which no more are told than were asked for.
fn content(reply: &Value, top_max: usize) -> Value {
    let token = |token: &Value| {
        let top = token["top_logprobs"].as_array().expect("a list");
        assert!(top.len() <= top_max, "{top_max} were asked for: {token}");
        let one = |one: &Value| (one["token"].as_str().expect("a text").to_owned(), one["logprob"].clone());
        let top: Map<String, Value> = top.iter().map(one).collect();
        json!([token["token"], token["logprob"], named(&Value::Object(top))])
    };
    reply["choices"][0]["logprobs"]["content"].as_array().expect("tokens").iter().map(token).collect()
}

/// Whether an answer has the form that was asked for.
type HasForm<'a> = &'a dyn Fn(&str) -> bool;

/// A closed choice and a JSON schema, each in words of both routes.
pub(super) async fn answers_have_the_form_that_is_asked_for(both: &Both) {
    let choice = json!({"structured_outputs": {"choice": ["good", "bad"]}});
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["mood", "stars"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "review", "schema": schema}});
    let is_mood = |mood: &Value| *mood == "good" || *mood == "bad";
    let is_choice = |text: &str| is_mood(&json!(text));
    let is_review = |text: &str| {
        let review: Value = serde_json::from_str(text).unwrap_or_default();
        is_mood(&review["mood"]) && matches!(review["stars"].as_u64(), Some(1..=5))
    };
    let asked: [(&str, Value, HasForm<'_>); 4] = [
        (COMPLETIONS, completion(choice.clone()), &is_choice),
        (CHAT, chat(choice), &is_choice),
        (COMPLETIONS, completion(json!({"structured_outputs": {"json": schema}})), &is_review),
        (CHAT, chat(json!({ "response_format": format })), &is_review),
    ];
    for (path, body, has_form) in asked {
        let (its, ours) = replies(both, path, &with(body, json!({"max_tokens": 60}))).await;
        for reply in ours.iter().chain([&its]) {
            let choice = &reply["choices"][0];
            let text = choice["text"].as_str().or(choice["message"]["content"].as_str());
            assert!(text.is_some_and(has_form), "{path}: {reply}");
            assert_eq!(choice["finish_reason"], "stop", "{path}: {reply}");
            assert_eq!(choice["text"], its["choices"][0]["text"], "{path}");
            assert_eq!(choice["message"]["content"], its["choices"][0]["message"]["content"], "{path}");
        }
    }
}

/// Tokens of prompts, of answers, and of prompts that its cache has: of whole answers and of streams.
pub(super) async fn usage_is_its_own(both: &Both) {
    let counts = |usage: &Value| {
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        (usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64(), cached)
    };
    let fields = json!({"ignore_eos": true});
    for (path, body) in [(COMPLETIONS, completion(fields.clone())), (CHAT, chat(fields))] {
        // Whoever asks first computes what the others find.
        posted(&both.vllm, path, body.clone()).await;
        let (its, ours) = replies(both, path, &body).await;
        let its = counts(&its["usage"]);
        assert!(
            its.2.is_some_and(|cached| cached >= BLOCK_TOKENS && cached.is_multiple_of(BLOCK_TOKENS)),
            "{its:?}"
        );
        for ours in &ours {
            assert_eq!(counts(&ours["usage"]), its, "{path}");
        }
        let streamed = with(body, json!({"stream": true, "stream_options": {"include_usage": true}}));
        for gateway in both.gateways() {
            let reply = gateway.post(path, &streamed).await;
            let events = reply.events();
            let usage = events.iter().rev().map(|(_, chunk)| &chunk["usage"]).find(|usage| usage.is_object());
            assert_eq!(usage.map(counts), Some(its), "{path}: {}", reply.body);
        }
    }
}
