//! Prompts of modules, span queries and corpora where servers run the rows: plain prompts, whose order keeps
//! together what a server's prefix cache can find again.

use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{ReplicaSettings, Secret};
use store::Store;

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::client::{Client, read_until};
use crate::common::replica::{FakeReplica, executor, fleet};
use crate::common::{Server, config, serve_fleet};

fn checkpoint(family: Family) -> Synthetic {
    let mut synthetic = Synthetic::tiny(family, 7);
    synthetic.config.context_max = 4_096;
    synthetic
}

/// A RelServe, and gateways in front of it: one that sends messages, one that sends tokens.
struct LoweredQuery {
    replica: Server,
    fronts: [Server; 2],
}

async fn lowered(family: Family) -> LoweredQuery {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let mut settings = config();
    settings.engine.kv_bytes = Some(base::Bytes(16 << 20));
    let replica = serve_checkpoint(settings, &checkpoint(family), store).await;
    let folder = tempfile::tempdir().unwrap();
    checkpoint(family).write(folder.path()).unwrap();
    let one = ReplicaSettings {
        api_key: replica.client.key.clone().map(Secret),
        ..executor(replica.client.address)
    };
    let front = async |tokenizer: Option<std::path::PathBuf>| {
        let mut config = fleet(vec![one.clone()]);
        (config.model.name, config.model.tokenizer) = (Some("random".into()), tokenizer);
        up(config).await
    };
    let fronts = [front(None).await, front(Some(folder.path().to_owned())).await];
    LoweredQuery { replica, fronts }
}

/// A gateway whose replicas are all up.
async fn up(config: Config) -> Server {
    let server = serve_fleet(config).await;
    let are_up = |server: &Server| server.running.app.runtime.view().replicas.iter().all(|one| one.is_up);
    server.until("the replicas are up", are_up).await;
    server
}

async fn ask(client: &Client, path: &str, body: &Value) -> Value {
    let reply = client.post(path, body).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.json()
}

const CITIES: &str = r#"<schema name="cities"><system>You plan journeys with much care, as always.</system>
<module name="stay"><user>I shall be away for <param name="days" length="2"/> days, and have little money.</user></module>
<union><module name="rome"><user>Rome is where all roads lead to, and the food is good.</user></module><module
name="oslo"><user>Oslo has cold, clear water.</user></module></union></schema>"#;

fn generated(body: Value) -> Value {
    let mut body = body;
    for (name, value) in [("max_tokens", json!(12)), ("temperature", json!(0)), ("ignore_eos", json!(true))] {
        body[name] = value;
    }
    body
}

#[actix_web::test]
async fn a_prompt_of_modules_says_what_the_same_chat_says_and_finds_its_beginning_in_the_servers_cache() {
    for family in [Family::Llama, Family::Qwen2] {
        let LoweredQuery { replica, fronts } = lowered(family).await;
        for front in &fronts {
            let schema = ask(&front.client, "/v1/schemas", &json!({"schema": CITIES})).await;
            assert_eq!(schema["usage"]["prompt_tokens"], 0, "a server's cache is its own: {schema}");
            assert!(schema["modules"].as_array().unwrap().iter().all(|module| module["cached"] == false));
            // Modules stand in the order of the schema, however they are named.
            let prompt = |days: &str, city: &str| {
                generated(json!({"prompt": format!(
                    "<prompt schema=\"cities\"><{city}/><stay days=\"{days}\"/></prompt>"
                )}))
            };
            let long = "thirty and some more, if there is enough money for all";
            for (days, city, text) in [
                ("3", "rome", "Rome is where all roads lead to, and the food is good."),
                ("3", "oslo", "Oslo has cold, clear water."),
            ] {
                let answer = ask(&front.client, "/v1/prompts", &prompt(days, city)).await;
                let stay = format!("I shall be away for {days} days, and have little money.");
                let chat = generated(json!({"model": "random", "messages": [
                    {"role": "system", "content": "You plan journeys with much care, as always."},
                    {"role": "user", "content": stay}, {"role": "user", "content": text},
                ]}));
                let plain = ask(&replica.client, "/v1/chat/completions", &chat).await;
                let said = &answer["choices"][0];
                assert_eq!(said["text"], plain["choices"][0]["message"]["content"], "{family:?}");
                assert_eq!(said["finish_reason"], "length");
                assert_eq!(answer["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
                let [_, exact, shifted, _] = prompt_tokens(&answer);
                assert_eq!(shifted, 0, "nothing is approximated: {answer}");
                assert!(city == "rome" || exact > 0, "the server's cache had the beginning: {answer}");
            }
            // What a parameter has room for is a matter of tokens, which only one of the two counts.
            let too_long = front.client.post("/v1/prompts", &prompt(long, "rome")).await;
            let counts = front.running.app.runtime.model.has_ids();
            assert_eq!(too_long.status, if counts { 400 } else { 200 }, "{}", too_long.body);
        }
        let stored = fronts[0].client.get("/v1/schemas/cities").await.json();
        assert_eq!((&stored["pinned"], &stored["schema"]), (&json!(false), &json!(CITIES)));
    }
}

#[actix_web::test]
async fn a_relserve_behind_streams_what_it_says_and_tells_its_log_probabilities() {
    let LoweredQuery { replica, fronts } = lowered(Family::Llama).await;
    let mut body =
        generated(json!({"model": "random", "messages": [{"role": "user", "content": "Tell me."}]}));
    let plain = ask(&replica.client, "/v1/chat/completions", &body).await;
    for front in &fronts {
        body["stream"] = json!(true);
        let streamed = front.client.post("/v1/chat/completions", &body).await;
        let chunks = streamed.events();
        let text = |(_, chunk): &(String, Value)| {
            chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
        };
        let said: String = chunks.iter().map(text).collect();
        assert_eq!(plain["choices"][0]["message"]["content"], said, "{}", streamed.body);
        assert!(streamed.body.contains("[DONE]"), "{}", streamed.body);
        body.as_object_mut().unwrap().remove("stream");
        let mut told = body.clone();
        told["logprobs"] = json!(true);
        told["top_logprobs"] = json!(2);
        let logprobs = async |client| {
            let reply = ask(client, "/v1/chat/completions", &told).await;
            reply["choices"][0]["logprobs"]["content"].clone()
        };
        let (ours, its) = (logprobs(&front.client).await, logprobs(&replica.client).await);
        assert!(!its.as_array().unwrap().is_empty(), "{its}");
        let of = |told: &Value| -> Vec<(String, String)> {
            let one = |one: &Value| (one["token"].to_string(), one["logprob"].to_string());
            let token = |token: &Value| {
                let top = token["top_logprobs"].as_array().cloned().unwrap_or_default();
                std::iter::once(one(token)).chain(top.iter().map(one).collect::<Vec<_>>())
            };
            told.as_array().into_iter().flatten().flat_map(token).collect()
        };
        assert_eq!(of(&ours), of(&its));
    }
}

#[actix_web::test]
async fn a_prompt_without_messages_is_a_completion_and_what_servers_cannot_be_sent_is_refused() {
    let LoweredQuery { replica, fronts } = lowered(Family::Llama).await;
    let raw = "<schema name=\"raw\">Begin here. <module name=\"more\">More of it. </module></schema>";
    for front in &fronts {
        ask(&front.client, "/v1/schemas", &json!({"schema": raw})).await;
        let prompt = "<prompt schema=\"raw\"><more/>And the end</prompt>";
        let answer = ask(&front.client, "/v1/prompts", &generated(json!({"prompt": prompt}))).await;
        let plain = generated(json!({"model": "random", "prompt": "Begin here. More of it. And the end"}));
        let plain = ask(&replica.client, "/v1/completions", &plain).await;
        assert_eq!(answer["choices"][0]["text"], plain["choices"][0]["text"]);
        assert_eq!(answer["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);

        let pin = front.client.post("/v1/schemas", &json!({"schema": raw, "pin": true})).await;
        assert_eq!(pin.status, 400);
        assert!(pin.error().contains("`pin`") && pin.error().contains("[[replicas]]"), "{}", pin.error());
        let mixed = json!({"prompt": "<prompt schema=\"raw\"><more/><user>Why?</user></prompt>"});
        let mixed = front.client.post("/v1/prompts", &mixed).await;
        match front.running.app.runtime.model.has_ids() {
            true => assert_eq!(mixed.status, 200, "{}", mixed.body),
            false => {
                assert_eq!(mixed.status, 400);
                assert!(mixed.error().contains("text outside of its messages"), "{}", mixed.error());
            }
        }
    }
}

fn rag(documents: &[&str], question: &str) -> Value {
    let documents: Vec<Value> = documents.iter().map(|text| json!({ "user": text })).collect();
    json!({"g": {"max_tokens": 8, "temperature": 0, "input": {"seq": [
        {"system": "Answer from the documents."}, {"plus": documents}, {"user": question},
    ]}}})
}

#[actix_web::test]
async fn a_span_query_says_what_the_same_chats_say_outputs_among_their_inputs() {
    let LoweredQuery { replica, fronts } = lowered(Family::Qwen2).await;
    let inner = json!({"g": {"max_tokens": 6, "temperature": 0, "input": {"user": "Write a short mail."}}});
    let query = json!({"g": {"max_tokens": 8, "temperature": 0, "input": {"seq": [
        {"system": "You rank mails."}, {"plus": [inner, {"user": "Dear all, the end is near."}]}, {"user": "Which one?"},
    ]}}});
    let chat = async |messages: Value, max_tokens: u64| {
        let body =
            json!({"model": "random", "max_tokens": max_tokens, "temperature": 0, "messages": messages});
        ask(&replica.client, "/v1/chat/completions", &body).await["choices"][0]["message"]["content"].clone()
    };
    let mail = chat(json!([{"role": "user", "content": "Write a short mail."}]), 6).await;
    let expected = chat(
        json!([{"role": "system", "content": "You rank mails."},
            {"role": "user", "content": "Dear all, the end is near."},
            {"role": "assistant", "content": mail}, {"role": "user", "content": "Which one?"}]),
        8,
    )
    .await;
    for front in &fronts {
        let answer = ask(&front.client, "/v1/query", &json!({"query": query, "explain": true})).await;
        assert_eq!((&answer["calls"][0]["text"], &answer["result"][0]["content"]), (&mail, &expected));
        assert_eq!(prompt_tokens(&answer)[2], 0, "nothing is approximated: {answer}");
        let explained = answer["explain"].as_str().unwrap();
        assert!(explained.contains("distribute_plus: skipped, switched off"), "{explained}");
        assert!(!explained.contains("spans that see only themselves"), "{explained}");

        let body = json!({"query": query, "stream": true});
        let mut stream = front.client.begin("/v1/query", &body).await;
        let streamed = read_until(&mut stream, "event: done").await;
        assert!(streamed.contains("event: call"), "{streamed}");
    }
}

#[actix_web::test]
async fn documents_stand_in_one_order_and_a_server_finds_them_again() {
    let LoweredQuery { fronts, .. } = lowered(Family::Llama).await;
    let [a, b] = ["first", "second"].map(|name| format!("The {name} document has many words. ").repeat(8));
    for front in &fronts {
        let one = ask(&front.client, "/v1/query", &json!({"query": rag(&[&a, &b], "What of this?")})).await;
        let other = ask(&front.client, "/v1/query", &json!({"query": rag(&[&b, &a], "And of that?")})).await;
        let [all, exact, shifted, _] = prompt_tokens(&other);
        assert_eq!(shifted, 0);
        assert!(exact * 10 > all * 7, "both documents were found: {one} {other}");
    }
}

#[actix_web::test]
async fn of_many_queries_those_that_share_documents_run_together_and_begin_with_them() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    config.replicas[0].rows_max = 1;
    let server = up(config).await;
    let queries = [
        rag(&["common", "about x"], "q0"),
        rag(&["lonely"], "q1"),
        rag(&["about y", "common"], "q2"),
        rag(&["about x", "about y", "common"], "q3"),
    ];
    let reply = ask(&server.client, "/v1/query", &json!({ "queries": queries })).await;
    let said = |entry: &Value| entry["result"][0]["content"].as_str().unwrap().to_owned();
    let answers: Vec<String> = reply["data"].as_array().unwrap().iter().map(said).collect();
    assert_eq!(answers, ["q0", "q1", "q2", "q3"], "in the order of the request");
    assert_eq!(
        reply["usage"]["prompt_tokens_details"]["cached_tokens"],
        4 * 4,
        "as the server says: {reply}"
    );
    let asked: Vec<Vec<String>> = a.state().asked.iter().map(contents).collect();
    let expected = [
        vec!["common", "about x", "about y", "q3"],
        vec!["common", "about x", "q0"],
        vec!["common", "about y", "q2"],
        vec!["lonely", "q1"],
    ];
    fn system<'a>(rest: &[&'a str]) -> Vec<&'a str> {
        [&["Answer from the documents."][..], rest].concat()
    }
    assert_eq!(asked, expected.iter().map(|rest| system(rest)).collect::<Vec<_>>(), "as a trie is walked");
}

fn contents(asked: &Value) -> Vec<String> {
    let messages = asked["messages"].as_array().unwrap_or_else(|| panic!("{asked}"));
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn a_corpus_is_searched_here_and_its_fragments_go_to_the_servers() {
    let a = FakeReplica::start().await;
    let words = ["river", "boat", "water", "fish", "money", "loan", "bank", "tax", "the", "of"];
    let embedder = tempfile::tempdir().unwrap();
    retrieval::synthetic::Synthetic::tiny(&words, 3).write(embedder.path()).unwrap();
    let documents = json!([
        {"id": "sea", "text": "the boat of the river. fish water boat"},
        {"id": "law", "text": "the tax of the bank. money loan tax"},
    ]);
    let query = json!({"g": {"max_tokens": 4, "temperature": 0, "input": {"seq": [
        {"retrieval": {"corpus": "c", "query": "boat of fish", "k": 1}}, {"user": "Where?"},
    ]}}});

    let without = up(fleet(vec![a.executor()])).await;
    let refused = without.client.post("/v1/corpora", &json!({"name": "c", "documents": documents})).await;
    assert_eq!(refused.status, 501);
    assert!(refused.error().contains("retrieval.model"), "{}", refused.error());

    let mut config = fleet(vec![a.executor()]);
    config.retrieval.model = Some(embedder.path().to_owned());
    let server = up(config).await;
    ask(&server.client, "/v1/corpora", &json!({"name": "c", "documents": documents})).await;
    let found = ask(&server.client, "/v1/query", &json!({ "query": query })).await;
    assert_eq!(found["result"][0]["content"], "Where?");
    let asked = contents(&a.state().asked[0]);
    assert_eq!(asked, ["the boat of the river. fish water boat", "Where?"]);
}
