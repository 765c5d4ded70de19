//! Prompts that replicas score: what a server that speaks as vLLM does tells of them comes back as our own engine
//! tells it, and where a server has no words for it, it is refused by name.

use base::Millis;
use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use serde_json::{Value, json};
use serving::config::{Dialect, ReplicaKind, ReplicaSettings, Secret};
use store::Store;

use crate::common::alike;
use crate::common::checkpoint::serve_checkpoint;
use crate::common::replica::{FakeReplica, executor, fleet, score};
use crate::common::words::until_up;
use crate::common::{Server, config, serve_fleet};
use crate::constraints::posted;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// What one computation of a number differs by from its way through two servers' JSON.
const TOLERANCE: f64 = 1e-6;

/// A gateway in front of a server.
async fn front(replica: &FakeReplica) -> Server {
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    until_up(&server, 1).await;
    server
}

#[actix_web::test]
async fn a_completions_prompt_is_scored_by_the_server_and_told_in_both_shapes() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let mut body = json!({"model": "m", "prompt": "say long words", "max_tokens": 0, "echo": true,
        "logprobs": 2, "prompt_logprobs": 1, "temperature": 0, "cache": true});
    let expected = json!({"tokens": ["say ", "long ", "words"], "token_logprobs": [null, -1.0, -2.0],
        "top_logprobs": [null, {"likely1": -0.125, "likely2": -0.25, "long ": -1.0},
            {"likely1": -0.125, "likely2": -0.25, "words": -2.0}],
        "text_offset": [0, 4, 9]});
    let likeliest = score(-0.125, 1, "likely1");
    let scores = json!([null, {"1": likeliest, "101": score(-1.0, 3, "long ")},
        {"1": likeliest, "102": score(-2.0, 3, "words")}]);
    for number in 0..2 {
        let reply = posted(&server.client, COMPLETIONS, body.clone()).await;
        let choice = &reply["choices"][0];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("say long words"), &json!("length")));
        assert_eq!((&choice["logprobs"], &choice["prompt_logprobs"]), (&expected, &scores));
        assert_eq!(reply["usage"]["completion_tokens"], 1, "one token is computed all the same");
        let asked = a.state().asked[number].clone();
        assert_eq!((&asked["prompt_logprobs"], &asked["logprobs"]), (&json!(2), &json!(2)));
        assert_eq!((&asked["return_token_ids"], &asked["max_tokens"]), (&json!(true), &json!(1)));
        assert_eq!(asked.get("echo"), None, "its text is known here");
    }
    assert_eq!(a.state().asked.len(), 2, "nothing of it is kept");
    // With an answer, its tokens stand behind those of the prompt; in a stream too, which comes whole.
    body["max_tokens"] = 5.into();
    let reply = posted(&server.client, COMPLETIONS, body.clone()).await;
    let told = &reply["choices"][0]["logprobs"];
    assert_eq!(told["tokens"], json!(["say ", "long ", "words", "words"]));
    assert_eq!(told["token_logprobs"], json!([null, -1.0, -2.0, -0.25]));
    assert_eq!(told["text_offset"], json!([0, 4, 9, 14]));
    body.as_object_mut().unwrap().remove("prompt_logprobs");
    body["stream"] = true.into();
    let streamed = server.client.post(COMPLETIONS, &body).await;
    let tokens = streamed.events().into_iter().filter_map(|(_, chunk)| {
        let tokens = chunk["choices"][0]["logprobs"]["tokens"].clone();
        tokens.as_array().cloned()
    });
    assert_eq!(json!(tokens.flatten().collect::<Vec<_>>()), told["tokens"], "{}", streamed.body);
    assert_eq!(a.state().asked[3].get("stream"), None);
}

#[actix_web::test]
async fn a_chats_prompt_is_scored_once_however_many_answers_are_wanted() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "say long words"}], "n": 2,
        "temperature": 0, "prompt_logprobs": 0});
    let reply = posted(&server.client, CHAT, body).await;
    let expected = json!([null, {"101": score(-1.0, 1, "say ")}, {"102": score(-2.0, 1, "long ")},
        {"103": score(-3.0, 1, "words")}]);
    assert_eq!(reply["prompt_logprobs"], expected);
    assert_eq!(reply["choices"].as_array().map(Vec::len), Some(2), "{reply}");
    let asked = a.state().asked.clone();
    let scored = asked.iter().filter(|asked| asked.get("prompt_logprobs").is_some());
    assert_eq!((asked.len(), scored.count()), (2, 1));
}

#[actix_web::test]
async fn who_does_not_score_a_prompt_as_it_was_asked_to_is_no_answer() {
    let a = FakeReplica::start().await;
    a.state().hides_logprobs = true;
    let mut config = fleet(vec![a.executor()]);
    config.fleet.tries_max = 2;
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    let body = json!({"model": "m", "prompt": "say long words", "prompt_logprobs": 0});
    let reply = server.client.post(COMPLETIONS, &body).await;
    assert!(reply.error().contains("does not say how likely the prompt's tokens are"), "{}", reply.body);
    assert_eq!(a.state().asked.len(), 2, "another server might have told them");
    // Its neighbours are answered all the same.
    let body = json!({"model": "m", "prompt": "say long words"});
    assert_eq!(posted(&server.client, COMPLETIONS, body).await["choices"][0]["text"], "words");
}

#[actix_web::test]
async fn a_dialect_without_words_for_it_and_more_than_may_be_told_are_refused_by_name() {
    let a = FakeReplica::start().await;
    let message = json!([{"role": "user", "content": "say x"}]);
    let bodies = [
        (COMPLETIONS, "`prompt_logprobs`", json!({"prompt": "say x", "prompt_logprobs": 1})),
        (COMPLETIONS, "`echo`", json!({"prompt": "say x", "echo": true, "logprobs": 1})),
        (CHAT, "`prompt_logprobs`", json!({"messages": message, "prompt_logprobs": 0})),
    ];
    for dialect in [Dialect::Openai, Dialect::Sglang, Dialect::LlamaCpp] {
        let other = ReplicaSettings { dialect, health_path: Some("/health".into()), ..a.executor() };
        // One that speaks as vLLM does beside it changes nothing: a row can go to either.
        let beside = FakeReplica::start().await;
        for replicas in [vec![other.clone()], vec![other, beside.executor()]] {
            let count = replicas.len();
            let server = serve_fleet(fleet(replicas)).await;
            until_up(&server, count).await;
            for (path, field, body) in &bodies {
                let reply = server.client.post(path, body).await;
                let error = reply.error();
                assert!(reply.status == 400 && error.contains(field), "{dialect:?}: {}", reply.body);
                assert!(error.contains("dialect \"vllm\""), "{dialect:?}: {}", reply.body);
            }
        }
        assert!(beside.state().asked.is_empty());
    }
    assert!(a.state().asked.is_empty(), "it was not asked");
    // A byte of a text may be a token there, and a few more may be; of a conversation a thousand, its template's.
    let server = front(&a).await;
    let text =
        |bytes: usize| (0..bytes).map(|at| if at % 1_000 == 999 { ' ' } else { 'x' }).collect::<String>();
    let completion = |bytes: usize| json!({"model": "m", "prompt": text(bytes), "prompt_logprobs": 20});
    let chat = |bytes: usize| {
        let message = json!([{"role": "user", "content": text(bytes)}]);
        json!({"model": "m", "messages": message, "prompt_logprobs": 20})
    };
    for (path, fits, does_not) in
        [(COMPLETIONS, completion(6_230), completion(6_240)), (CHAT, chat(5_200), chat(5_220))]
    {
        let reply = server.client.post(path, &does_not).await;
        assert!(reply.status == 400 && reply.error().contains("`prompt_logprobs`"), "{}", reply.body);
        assert_eq!(server.client.post(path, &fits).await.status, 200, "{path}");
    }
}

#[actix_web::test]
async fn a_fleet_that_began_without_servers_scores_prompts_once_it_has_one_that_does() {
    let a = FakeReplica::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("replicas.toml");
    std::fs::write(&file, "").unwrap();
    let mut config = fleet(Vec::new());
    (config.discovery.file, config.discovery.file_ms) = (Some(file.clone()), Millis(5));
    let server = serve_fleet(config).await;
    let fresh = folder.path().join("fresh.toml");
    let entry = format!("[[replicas]]\nurl = \"http://{}\"\ndialect = \"vllm\"\nhealth_ms = 20\n", a.address);
    std::fs::write(&fresh, entry).unwrap();
    std::fs::rename(&fresh, &file).unwrap();
    until_up(&server, 1).await;
    let body = json!({"model": "m", "prompt": "say x", "prompt_logprobs": 0});
    let reply = posted(&server.client, COMPLETIONS, body).await;
    assert_eq!(reply["choices"][0]["prompt_logprobs"].as_array().map(Vec::len), Some(2), "{reply}");
}

fn checkpoint() -> Synthetic {
    Synthetic::tiny(Family::Qwen2, 3)
}

/// A RelServe of its own on the tiny checkpoint.
async fn replica() -> Server {
    let store = Store::open("sqlite::memory:").await.unwrap();
    serve_checkpoint(config(), &checkpoint(), store).await
}

/// It as a replica.
fn replica_of(server: &Server) -> ReplicaSettings {
    let key = server.client.key.clone().map(Secret);
    ReplicaSettings { api_key: key, model: Some("random".into()), ..executor(server.client.address) }
}

/// Whether two replies say the same.
fn is_alike(one: &Value, other: &Value) -> bool {
    alike::is_alike(one, other, TOLERANCE)
}

#[actix_web::test]
async fn a_relserve_as_a_replica_scores_as_it_does_itself_whether_it_is_sent_messages_or_tokens() {
    let a = replica().await;
    let text = "Tell me of the last row.";
    let completion = json!({"model": "random", "prompt": text, "max_tokens": 0, "echo": true, "logprobs": 2,
        "prompt_logprobs": 3, "temperature": 0});
    let chat = json!({"model": "random", "messages": [{"role": "user", "content": "Tell me of a row."}],
        "max_tokens": 3, "temperature": 0, "prompt_logprobs": 2});
    let tokenizer = tempfile::tempdir().unwrap();
    checkpoint().write(tokenizer.path()).unwrap();
    std::fs::remove_file(tokenizer.path().join("model.safetensors")).unwrap();
    for folder in [None, Some(tokenizer.path().to_owned())] {
        let mut config = fleet(vec![replica_of(&a)]);
        config.model.name = Some("random".into());
        config.model.tokenizer = folder;
        let front = serve_fleet(config).await;
        until_up(&front, 1).await;
        let both = async |path: &str, body: &Value| {
            [posted(&a.client, path, body.clone()).await, posted(&front.client, path, body.clone()).await]
        };
        let [own, found] = both(COMPLETIONS, &completion).await;
        let [own, found] = [&own, &found].map(|reply| &reply["choices"][0]);
        assert!(own["prompt_logprobs"].as_array().is_some_and(|scores| scores.len() > 5), "{own}");
        assert!(is_alike(&found["prompt_logprobs"], &own["prompt_logprobs"]), "{found}, not {own}");
        assert_eq!(found["text"], text, "{found}");
        for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert!(is_alike(&found["logprobs"][field], &own["logprobs"][field]), "{found}, not {own}");
        }
        let [own, found] = both(CHAT, &chat).await;
        assert!(own["prompt_logprobs"].as_array().is_some_and(|scores| scores.len() > 5), "{own}");
        assert!(is_alike(&found["prompt_logprobs"], &own["prompt_logprobs"]), "{found}, not {own}");
    }
}

#[actix_web::test]
async fn the_local_engine_among_replicas_scores_prompts_too() {
    let other = replica().await;
    let prompts: Vec<String> = (0..8).map(|row| format!("Tell me of row {row} of a table.")).collect();
    let mut body = json!({"model": "random", "max_tokens": 2, "temperature": 0, "prompt_logprobs": 1});
    let mut expected = Vec::new();
    for prompt in &prompts {
        body["prompt"] = json!(prompt);
        expected.push(posted(&other.client, COMPLETIONS, body.clone()).await["choices"][0].clone());
    }
    let mut settings = config();
    let local = ReplicaSettings { kind: ReplicaKind::Local, rows_max: 1, ..ReplicaSettings::default() };
    settings.replicas = vec![
        ReplicaSettings { rows_max: 1, ..replica_of(&other) },
        ReplicaSettings { name: Some("here".into()), ..local },
    ];
    let store = Store::open("sqlite::memory:").await.unwrap();
    let front = serve_checkpoint(settings, &checkpoint(), store).await;
    until_up(&front, 2).await;
    body["prompt"] = json!(prompts);
    let reply = posted(&front.client, COMPLETIONS, body).await;
    let choices = reply["choices"].as_array().unwrap();
    assert_eq!(choices.len(), expected.len(), "{reply}");
    for (found, own) in choices.iter().zip(&expected) {
        assert!(is_alike(&found["prompt_logprobs"], &own["prompt_logprobs"]), "{found}, not {own}");
    }
    for name in ["0", "here"] {
        let rows = format!("relserve_replica_rows_total{{outcome=\"answered\",replica=\"{name}\"}}");
        assert!(front.metric(&rows) > 0.0, "{name} has work");
    }
}
