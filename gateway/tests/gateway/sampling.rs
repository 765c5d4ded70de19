//! Fields of OpenAI's and vLLM's APIs that change how the local engine draws tokens, and what is told of them.

use std::path::Path;

use base::Bytes;
use gateway::app::{Running, start};
use scheduler::CostModel;
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::load;
use serving::load::LoadedModel;
use store::{DEFAULT_TENANT, Store};

use crate::common::client::Client;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{config, key_of, serve_fleet};
use crate::constraints::{posted, serve_demo};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// A body with further fields.
pub(crate) fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// A greedy completion of a few tokens that the demo model repeats itself in.
fn completion(more: Value) -> Value {
    let body = json!({"model": "relserve-demo", "prompt": "The film was", "max_tokens": 12, "temperature": 0,
        "ignore_eos": true, "logprobs": 0});
    with(body, more)
}

fn chat(more: Value) -> Value {
    let messages =
        json!([{"role": "user", "content": "Is this review positive? Answer yes or no. Text: I love it"}]);
    with(json!({"model": "relserve-demo", "messages": messages, "max_tokens": 8, "temperature": 0}), more)
}

async fn text(client: &Client, more: Value) -> String {
    let reply = posted(client, COMPLETIONS, completion(more)).await;
    reply["choices"][0]["text"].as_str().unwrap().to_owned()
}

async fn tokens(client: &Client, more: Value) -> Vec<String> {
    let reply = posted(client, COMPLETIONS, completion(more)).await;
    serde_json::from_value(reply["choices"][0]["logprobs"]["tokens"].clone()).unwrap()
}

/// How often the commonest of them is there.
fn most(tokens: &[String]) -> usize {
    tokens.iter().map(|token| tokens.iter().filter(|one| one == &token).count()).max().unwrap()
}

/// The number of a token of the demo model.
fn id(piece: &str) -> u64 {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/tokenizer.json");
    let tokenizer: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    tokenizer["model"]["vocab"][piece].as_u64().unwrap()
}

#[actix_web::test]
async fn penalties_keep_an_answer_from_repeating_itself() {
    let (running, client) = serve_demo().await;
    let plain = tokens(&client, json!({})).await;
    assert!(most(&plain) > 2, "else this shows nothing: {plain:?}");
    for penalty in [
        json!({"frequency_penalty": 2}),
        json!({"presence_penalty": 2, "frequency_penalty": 1}),
        json!({"repetition_penalty": 3}),
    ] {
        let found = tokens(&client, penalty.clone()).await;
        assert!(most(&found) < most(&plain), "{penalty}: {found:?}, not {plain:?}");
    }
    let neutral = json!({"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "min_p": 0,
        "logit_bias": {}, "min_tokens": 0});
    assert_eq!(tokens(&client, neutral).await, plain);
    // In a conversation, streamed.
    let bias = json!({"logit_bias": {id("Ġand").to_string(): 100}, "max_tokens": 3, "stream": true});
    let streamed = client.post(CHAT, &chat(bias)).await;
    assert!(streamed.status == 200 && streamed.body.contains("[DONE]"), "{}", streamed.body);
    let events = streamed.events();
    let said = events.iter().filter_map(|(_, chunk)| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(said.collect::<String>().trim_start(), "and and and");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_bias_decides_what_is_said_but_not_how_likely_it_is() {
    let (running, client) = serve_demo().await;
    let and = id("Ġand");
    let bias = json!({"logit_bias": {and.to_string(): 100}, "max_tokens": 3, "logprobs": 2});
    let forced = posted(&client, COMPLETIONS, completion(bias)).await;
    assert_eq!(forced["choices"][0]["text"].as_str().unwrap().trim_start(), "and and and", "{forced}");
    let plain = posted(&client, COMPLETIONS, completion(json!({"max_tokens": 1, "logprobs": 2}))).await;
    let top = |reply: &Value| reply["choices"][0]["logprobs"]["top_logprobs"][0].clone();
    let (among, likeliest) = (top(&forced), top(&plain));
    let is_same = |(token, likely): (&String, &Value)| among[token] == *likely;
    assert!(likeliest.as_object().unwrap().iter().all(is_same), "of the model as it is: {forced}");
    assert_eq!(among.as_object().unwrap().len(), 3, "two, and the chosen one: {forced}");
    let own = forced["choices"][0]["logprobs"]["token_logprobs"][0].as_f64().unwrap();
    assert!(own < likeliest.as_object().unwrap().values().filter_map(Value::as_f64).fold(0.0, f64::min));
    // What is drawn warmly at min-p 1 is the likeliest.
    let greedy = text(&client, json!({})).await;
    let warm = json!({"temperature": 2, "seed": 5});
    assert_ne!(text(&client, warm.clone()).await, greedy, "else this shows nothing");
    assert_eq!(text(&client, with(warm, json!({"min_p": 1}))).await, greedy);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn an_output_ends_where_its_fields_say() {
    let (running, client) = serve_demo().await;
    let and = id("Ġand");
    let stop = json!({"logit_bias": {and.to_string(): 100}, "stop_token_ids": [and]});
    let ended = posted(&client, COMPLETIONS, completion(stop.clone())).await;
    let choice = &ended["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(""), &json!("stop")));
    assert_eq!(choice["stop_reason"], and, "the token's number");
    let shown = text(&client, with(stop.clone(), json!({"include_stop_str_in_output": true}))).await;
    assert_eq!(shown.trim_start(), "and");
    let late = json!({"min_tokens": 2, "include_stop_str_in_output": true});
    let late = text(&client, with(stop, late)).await;
    assert!(
        late.ends_with(" and") && late.trim_start() != "and" && late.matches("and").count() == 1,
        "{late}"
    );
    let stop = json!({"logit_bias": {and.to_string(): 100}, "stop": ["d an"]});
    assert_eq!(text(&client, stop.clone()).await.trim_start(), "an");
    let shown = text(&client, with(stop, json!({"include_stop_str_in_output": true}))).await;
    assert_eq!(shown.trim_start(), "and an");

    let short = posted(&client, CHAT, chat(json!({}))).await;
    let spent = |reply: &Value| reply["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(spent(&short) < 6, "{short}");
    let long = posted(&client, CHAT, chat(json!({"min_tokens": 6}))).await;
    assert!(spent(&long) >= 6, "{long}");
    let said = |reply: &Value| reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let special = json!({"skip_special_tokens": false, "include_stop_str_in_output": true});
    let special = posted(&client, CHAT, chat(special)).await;
    assert_eq!(said(&special), said(&short) + "<|end|>");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn which_stop_string_ended_an_answer_is_told_in_vllms_and_in_anthropics_words() {
    let (running, client) = serve_demo().await;
    let bias = json!({"logit_bias": {id("Ġand").to_string(): 100}});
    let stops = with(bias.clone(), json!({"stop": ["never", "d an"], "n": 2}));
    for (path, body) in [(COMPLETIONS, completion(json!({}))), (CHAT, chat(json!({})))] {
        let whole = posted(&client, path, with(body.clone(), stops.clone())).await;
        let choices = whole["choices"].as_array().unwrap();
        let told: Vec<_> = choices.iter().map(|one| (&one["finish_reason"], &one["stop_reason"])).collect();
        assert_eq!(told, [(&json!("stop"), &json!("d an")); 2], "{path}: {whole}");
        let streamed = with(stops.clone(), json!({"stream": true, "n": 1}));
        let chunks = client.post(path, &with(body.clone(), streamed)).await.events();
        let told: Vec<_> =
            chunks.iter().map(|(_, chunk)| chunk["choices"][0]["stop_reason"].clone()).collect();
        assert_eq!(
            told.iter().filter(|told| !told.is_null()).collect::<Vec<_>>(),
            [&json!("d an")],
            "{path}"
        );
        let cut = posted(&client, path, with(with(body, bias.clone()), json!({"max_tokens": 2}))).await;
        assert_eq!(
            (&cut["choices"][0]["finish_reason"], cut["choices"][0].get("stop_reason")),
            (&json!("length"), None)
        );
    }
    let known = with(stops, json!({"cache": true, "n": 1}));
    let ask = || posted(&client, CHAT, chat(known.clone()));
    let (first, again) = (ask().await, ask().await);
    assert_eq!((&again["choices"], &again["usage"]["computed_tokens"]), (&first["choices"], &json!(0)));

    let message = json!({"model": "relserve-demo", "max_tokens": 8, "stop_sequences": ["never", "d an"],
        "messages": [{"role": "user", "content": "How was it?"}]});
    let message = with(message, bias);
    let whole = posted(&client, "/v1/messages", message.clone()).await;
    let ended = (&whole["stop_reason"], &whole["stop_sequence"]);
    assert_eq!(ended, (&json!("stop_sequence"), &json!("d an")), "{whole}");
    assert_eq!(whole["content"][0]["text"].as_str().unwrap().trim_start(), "an");
    let events = client.post("/v1/messages", &with(message, json!({"stream": true}))).await.events();
    let (_, end) = events.iter().find(|(name, _)| name == "message_delta").unwrap();
    assert_eq!(end["delta"], json!({"stop_reason": "stop_sequence", "stop_sequence": "d an"}));
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn answers_under_other_fields_are_other_answers_of_the_cache() {
    let (running, client) = serve_demo().await;
    let mut said = Vec::new();
    for bias in [json!({}), json!({id("Ġand").to_string(): 100}), json!({id("Ġon").to_string(): 100})] {
        let mut ask = completion(json!({"cache": true, "logit_bias": bias}));
        ask.as_object_mut().unwrap().remove("logprobs");
        let first = posted(&client, COMPLETIONS, ask.clone()).await;
        let again = posted(&client, COMPLETIONS, ask.clone()).await;
        assert_eq!(first["choices"], again["choices"]);
        assert_eq!(again["usage"]["computed_tokens"], 0, "{again}");
        // Known without log probabilities is not known with them.
        let told = posted(&client, COMPLETIONS, with(ask, json!({"logprobs": 1}))).await;
        assert_eq!(told["choices"][0]["text"], first["choices"][0]["text"]);
        assert!(!told["choices"][0]["logprobs"]["tokens"].as_array().unwrap().is_empty(), "{told}");
        said.push(first["choices"][0]["text"].clone());
    }
    assert!(said[0] != said[1] && said[1] != said[2] && said[0] != said[2], "{said:?}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn what_is_out_of_range_is_refused_by_name_on_both_routes() {
    let (running, client) = serve_demo().await;
    for (field, value) in [
        ("presence_penalty", json!(2.1)),
        ("frequency_penalty", json!("1")),
        ("repetition_penalty", json!(0)),
        ("min_p", json!(1.5)),
        ("min_tokens", json!(13)),
        ("logit_bias", json!({"6144": 1})),
        ("logit_bias", json!({"5": 101})),
        ("stop_token_ids", json!([6144])),
        ("skip_special_tokens", json!("no")),
        ("include_stop_str_in_output", json!(1)),
        ("guided_grammar", json!("")),
        ("guided_grammar", json!("root ::= missing")),
        ("guided_grammar", json!("start: undefined_rule")),
        ("structured_outputs", json!({"grammar": 7})),
    ] {
        for (path, body) in [(COMPLETIONS, completion(json!({}))), (CHAT, chat(json!({"max_tokens": 12})))] {
            let reply = client.post(path, &with(body, json!({ field: value }))).await;
            assert_eq!(reply.status, 400, "{path} {field} {value}: {}", reply.body);
            assert!(reply.error().contains(field), "{path} {field} {value}: {}", reply.body);
        }
    }
    let reply = client.post(CHAT, &chat(json!({"chat_template_kwargs": {"messages": []}}))).await;
    assert!(reply.status == 400 && reply.error().contains("chat_template_kwargs.messages"), "{}", reply.body);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn every_chunk_says_what_was_spent_where_that_is_asked_for() {
    let (running, client) = serve_demo().await;
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let more = json!({"stream": true, "stream_options": options});
    for (path, body) in [(COMPLETIONS, completion(more.clone())), (CHAT, chat(more))] {
        let reply = client.post(path, &body).await;
        let lines = reply.body.lines().filter_map(|line| line.strip_prefix("data: {"));
        let chunks: Vec<Value> =
            lines.map(|line| serde_json::from_str(&format!("{{{line}")).unwrap()).collect();
        let spent =
            |chunk: &Value, name: &str| chunk["usage"][name].as_u64().unwrap_or_else(|| panic!("{chunk}"));
        let outputs: Vec<u64> = chunks.iter().map(|chunk| spent(chunk, "completion_tokens")).collect();
        assert!(outputs.is_sorted() && outputs[1] > 0 && chunks.len() > 2, "{outputs:?}");
        let has_role = chunks[0]["choices"][0]["delta"]["role"].is_string();
        assert_eq!(outputs[0] == 0, has_role, "the chunk of the role counts no token: {outputs:?}");
        let last = chunks.last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert!(outputs[outputs.len() - 2] == outputs[outputs.len() - 1], "{outputs:?}");
        for chunk in &chunks {
            assert_eq!(spent(chunk, "prompt_tokens"), spent(last, "prompt_tokens"));
            let sum = spent(chunk, "prompt_tokens") + spent(chunk, "completion_tokens");
            assert_eq!(spent(chunk, "total_tokens"), sum);
        }
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_grammar_says_what_an_answer_may_be() {
    let (running, client) = serve_demo().await;
    let grammar = "start: verdict \" \" degree \".\"\nverdict: \"good\" | \"bad\"\ndegree: /[1-3]{2}/\n";
    let ebnf = "root ::= verdict \" \" [1-3]{2} \".\"\nverdict ::= \"good\" | \"bad\"\n";
    for field in [
        json!({"guided_grammar": grammar}),
        json!({"structured_outputs": {"grammar": grammar}}),
        json!({"structured_outputs": {"grammar": ebnf}}),
    ] {
        for temperature in [0, 2] {
            let more =
                with(json!({"temperature": temperature, "seed": 3, "ignore_eos": false}), field.clone());
            let said = text(&client, with(more, json!({"max_tokens": 20}))).await;
            let (verdict, degree) = said.split_once(' ').unwrap_or_else(|| panic!("{said}"));
            assert!(["good", "bad"].contains(&verdict), "{said}");
            let digits = degree.strip_suffix('.').unwrap_or_else(|| panic!("{said}"));
            assert!(digits.len() == 2 && digits.chars().all(|digit| ('1'..='3').contains(&digit)), "{said}");
        }
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_trigger_begins_json_between_marks_in_a_text_that_is_free_else() {
    let (running, client) = serve_demo().await;
    // The trigger is what the model says at once.
    let bias = json!({id("Ġand").to_string(): 100});
    let tag = json!({"triggers": [" and"],
        "structures": [{"begin": " and so ", "schema": {"enum": ["good", "bad"]}, "end": "!"}]});
    let mut format = tag.clone();
    format["type"] = "structural_tag".into();
    for field in [
        json!({"structured_outputs": {"structural_tag": tag}}),
        json!({"structured_outputs": {"structural_tag": tag.to_string()}}),
        json!({"response_format": format}),
    ] {
        let more = with(field.clone(), json!({"logit_bias": bias, "max_tokens": 40}));
        let said = text(&client, more).await;
        let said = said.trim_start().strip_prefix("and so \"").unwrap_or_else(|| panic!("{field}: {said}"));
        assert!(said.starts_with("good\"!") || said.starts_with("bad\"!"), "{field}: {said}");
    }
    let two = json!({"structured_outputs": {"structural_tag": tag, "choice": ["a"]}});
    let refused = client.post(COMPLETIONS, &completion(two)).await;
    assert!(refused.status == 400 && refused.error().contains("only one constraint"), "{}", refused.body);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_response_tells_log_probabilities_where_they_are_included() {
    let (running, client) = serve_demo().await;
    let ask = json!({"model": "relserve-demo", "input": "How was it?", "max_output_tokens": 4, "temperature": 0,
        "include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let reply = posted(&client, "/v1/responses", ask.clone()).await;
    let part = &reply["output"][0]["content"][0];
    let told = part["logprobs"].as_array().unwrap();
    let said: String = told.iter().filter_map(|token| token["token"].as_str()).collect();
    assert_eq!(said.trim_start(), part["text"].as_str().unwrap().trim_start(), "{reply}");
    assert!(told.iter().all(|token| token["top_logprobs"].as_array().is_some_and(|top| top.len() == 2)));
    let same = json!({"model": "relserve-demo", "messages": [{"role": "user", "content": "How was it?"}],
        "max_tokens": 4, "temperature": 0, "logprobs": true, "top_logprobs": 2});
    let same = posted(&client, CHAT, same).await;
    assert_eq!(part["logprobs"], same["choices"][0]["logprobs"]["content"]);
    let streamed = client.post("/v1/responses", &with(ask.clone(), json!({"stream": true}))).await;
    let of = |kind: &str| -> Vec<Value> {
        let events = streamed.events().into_iter().filter(|(_, data)| data["type"] == kind);
        events.flat_map(|(_, data)| data["logprobs"].as_array().cloned().unwrap_or_default()).collect()
    };
    assert_eq!(of("response.output_text.delta"), *told, "{}", streamed.body);
    assert_eq!(of("response.output_text.done"), *told);
    let silent = posted(&client, "/v1/responses", with(ask, json!({"include": []}))).await;
    assert_eq!(silent["output"][0]["content"][0].get("logprobs"), None, "{silent}");
    running.drain(std::future::pending()).await;
}

/// The demo model under a chat template that knows a switch, behind a socket.
async fn serve_thinking() -> (Running, Client) {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(demo.join(name), folder.path().join(name)).unwrap();
    }
    let file = "tokenizer_config.json";
    let mut settings: Value = serde_json::from_slice(&std::fs::read(demo.join(file)).unwrap()).unwrap();
    let template = settings["chat_template"].as_str().unwrap().to_owned();
    settings["chat_template"] = json!(template + "{% if enable_thinking %} I think that {% endif %}");
    std::fs::write(folder.path().join(file), settings.to_string()).unwrap();
    let mut config = config();
    config.model.dir = Some(folder.path().to_owned());
    config.model.name = Some("thinking".into());
    config.engine.threads = Some(1);
    config.engine.kv_bytes = Some(Bytes(8 << 20));
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let executor: Option<Box<dyn base::Executor>> = Some(Box::new(engine.executor));
    let backend = LoadedModel { executor, fresh: None, model, cost: CostModel::default() };
    let store = Store::open("sqlite::memory:").await.unwrap();
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, backend, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    (running, client)
}

#[actix_web::test]
async fn variables_of_the_chat_template_are_part_of_what_a_conversation_is() {
    let (running, client) = serve_thinking().await;
    let ask = async |variables: Value| {
        let more = json!({"model": "thinking", "cache": true, "chat_template_kwargs": variables});
        client.post(CHAT, &chat(more)).await
    };
    let mut prompts = Vec::new();
    for variables in [json!({}), json!({"enable_thinking": false}), json!({"enable_thinking": true})] {
        let reply = ask(variables.clone()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        prompts.push(reply.json()["usage"]["prompt_tokens"].as_u64().unwrap());
        let again = ask(variables).await.json();
        assert_eq!(again["usage"]["computed_tokens"], 0, "{again}");
    }
    assert!(prompts[0] == prompts[1] && prompts[1] < prompts[2], "{prompts:?}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn replicas_are_asked_for_the_same() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    server.until("it is up", |server| server.running.app.runtime.view().replicas[0].is_up).await;
    let asked = json!({"presence_penalty": 0.5, "frequency_penalty": -1.0, "repetition_penalty": 1.5, "min_p": 0.25,
        "min_tokens": 1, "logit_bias": {"123456": -100.0}, "allowed_token_ids": [7, 123456], "logprobs": true,
        "top_logprobs": 1, "logprob_token_ids": [9, 8], "stop_token_ids": [7], "skip_special_tokens": false,
        "include_stop_str_in_output": true, "chat_template_kwargs": {"enable_thinking": true}});
    let body =
        json!({"model": "m", "messages": [{"role": "user", "content": "say hello"}], "temperature": 0});
    let reply = server.client.post(CHAT, &with(body, asked.clone())).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let sent = replica.state().asked[0].clone();
    for (field, value) in asked.as_object().unwrap().iter().filter(|(field, _)| *field != "top_logprobs") {
        assert_eq!(&sent[field], value, "{sent}");
    }
    assert_eq!(sent["top_logprobs"], 0, "those that are named stand in place of the likeliest");
}
