//! Span queries: over real sockets, on the real engine with a small random checkpoint.

use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use gateway::config::Config;
use scheduler::Speculation;
use serde_json::{Value, json};
use store::Store;

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::client::{Reply, read_until};
use crate::common::{Server, config, model, serve_with};

/// A server on a random checkpoint, with nothing in the engine's memory.
async fn fresh(family: Family) -> Server {
    fresh_with(family, config()).await
}

async fn fresh_with(family: Family, mut config: Config) -> Server {
    let mut synthetic = Synthetic::tiny(family, 7);
    synthetic.config.context_max = 4_096;
    config.engine.kv_bytes = Some(base::Bytes(16 << 20));
    serve_checkpoint(config, &synthetic, Store::open("sqlite::memory:").await.unwrap()).await
}

async fn ask(server: &Server, body: Value) -> Reply {
    server.client.post("/v1/query", &body).await
}

async fn answer(server: &Server, query: Value) -> Value {
    let reply = ask(server, json!({ "query": query })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn content(reply: &Value) -> &str {
    reply["result"][0]["content"].as_str().unwrap_or_else(|| panic!("{reply}"))
}

fn document(number: usize) -> Value {
    let words: Vec<String> =
        (0..40).map(|word| format!("d{}w{}", number * 7, word * word + number)).collect();
    json!({ "user": words.join(" ") })
}

fn rag(documents: &[usize], question: &str) -> Value {
    let documents: Vec<Value> = documents.iter().map(|number| document(*number)).collect();
    json!({"g": {"max_tokens": 8, "temperature": 0, "input": {"seq": [
        {"system": "Answer from the documents."}, {"plus": documents}, {"user": question},
    ]}}})
}

/// Candidates at a temperature, and a judge who is greedy.
fn judge(candidates: u64) -> Value {
    let candidate = json!({"max_tokens": 24, "temperature": 0.9, "seed": 5, "input": {"cross": [
        {"system": "You write short mails."}, {"user": "Write an introductory mail about data science."},
    ]}});
    json!({"g": {"max_tokens": 8, "temperature": 0, "input": {"seq": [
        {"system": "You rank mails."}, {"plus": [{"repeat": {"n": candidates, "g": candidate}}]}, {"user": "Which one?"},
    ]}}})
}

#[actix_web::test]
async fn a_query_without_a_plus_says_what_a_chat_says() {
    let server = fresh(Family::Llama).await;
    let query = json!({"g": {"max_tokens": 12, "temperature": 0, "input": {"cross": [
        {"system": "Be brief."}, {"user": "Where is Rome?"}, {"assistant": "In Italy."}, {"user": "And Oslo?"},
    ]}}});
    let said = answer(&server, query).await;
    let chat = json!({"model": "random", "max_tokens": 12, "temperature": 0, "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is Rome?"},
        {"role": "assistant", "content": "In Italy."}, {"role": "user", "content": "And Oslo?"},
    ]});
    let chat = server.client.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(chat["choices"][0]["message"]["content"], said["result"][0]["content"]);
    assert_eq!(chat["usage"]["prompt_tokens"], said["usage"]["prompt_tokens"]);
    assert_eq!(said["result"][0]["role"], "assistant");
    let [all, exact, shifted, computed] = prompt_tokens(&said);
    assert_eq!((exact, shifted), (0, 0));
    assert_eq!(all, computed);
}

#[actix_web::test]
async fn documents_in_another_order_are_found_and_answers_are_those_of_an_idle_server() {
    let server = fresh(Family::Qwen2).await;
    let first = answer(&server, rag(&[1, 2, 3], "What of this?")).await;
    let [all, exact, shifted, computed] = prompt_tokens(&first);
    assert_eq!((exact, shifted, computed), (0, 0, all));
    let second = answer(&server, rag(&[3, 1], "What of that, then?")).await;
    let [all, exact, shifted, computed] = prompt_tokens(&second);
    assert_eq!(all, exact + shifted + computed);
    assert!(shifted > 200 && computed < 60, "{second}");
    let alone = answer(&fresh(Family::Qwen2).await, rag(&[3, 1], "What of that, then?")).await;
    assert_eq!(content(&alone), content(&second));
    assert_ne!(content(&alone), content(&first));
    let other = answer(&server, rag(&[4, 1], "What of that, then?")).await;
    let [.., missed] = prompt_tokens(&other);
    assert!(missed > computed + 80, "a document that was never seen is computed: {other}");
}

#[actix_web::test]
async fn a_judge_finds_what_the_candidates_left_and_nothing_is_cropped() {
    let server = fresh(Family::Llama).await;
    let judged = answer(&server, judge(4)).await;
    let calls = judged["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 5);
    assert_eq!(calls[4]["inputs"], json!([0, 1, 2, 3]));
    let texts: std::collections::BTreeSet<&str> =
        calls[..4].iter().map(|call| call["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 4, "each candidate draws its own: {judged}");
    let [all, _, shifted, computed] = prompt_tokens(&calls[4]);
    // Per candidate at most the rest of a block and the end of its message; and what is the judge's own.
    assert!(shifted > all / 2 && computed < 4 * 24 + 80, "{judged}");
    // The candidates' own prompt is computed once.
    let prompt = prompt_tokens(&calls[0])[0];
    let of_candidates: u64 = calls[..4].iter().map(|call| prompt_tokens(call)[3]).sum();
    assert!(of_candidates < 2 * prompt, "{judged}");
    // The same text with nothing to find: as it is without the rule that keeps outputs behind their inputs.
    let body = json!({"query": judge(4), "rules_off": ["distribute_plus"], "explain": true});
    let apart = ask(&server, body).await.json();
    assert!(apart["explain"].as_str().unwrap().contains("distribute_plus: skipped, switched off"), "{apart}");
    let [_, _, found, _] = prompt_tokens(&apart["calls"][4]);
    assert!(found < shifted / 4, "{apart}");
    server.until_free().await;
}

#[actix_web::test]
async fn a_judge_reads_outputs_alone_where_their_prompts_would_not_fit() {
    let server = fresh(Family::Llama).await;
    let few = answer(&server, judge(2)).await;
    let (candidate, of_judge) = (prompt_tokens(&few["calls"][0])[0], prompt_tokens(&few["calls"][2])[0]);
    let model = &server.running.app.runtime.model;
    let context = model.context_max.0.min(model.kv_tokens());
    // Too many for their prompts and outputs.
    let many = context / (candidate + 24) + 1;
    let judged = answer(&server, judge(many)).await;
    let calls = judged["calls"].as_array().unwrap();
    let read = prompt_tokens(&calls[calls.len() - 1])[0];
    assert_eq!(calls.len() as u64, many + 1);
    assert!(read <= context && read < many * (of_judge / 2), "{read} of {context} tokens");
    let body = json!({"query": judge(many), "rules_off": ["distribute_plus"]});
    let apart = ask(&server, body).await.json();
    let apart = prompt_tokens(&apart["calls"].as_array().unwrap()[calls.len() - 1])[0];
    assert_eq!(read, apart, "as it is without the rule");
    server.until_free().await;
}

#[actix_web::test]
async fn a_candidates_last_block_is_kept_however_little_is_in_it() {
    // With guesses two of them could end in one step.
    let mut config = config();
    config.scheduler.speculation = Speculation::Off;
    let server = fresh_with(Family::Llama, config).await;
    // They end one after another, inside blocks.
    let candidate = |tokens: &u64| {
        json!({"g": {"max_tokens": tokens, "temperature": 0, "input": {"seq": [
            {"system": "You write short mails."}, {"user": format!("Write a mail about {tokens} mice.")},
        ]}}})
    };
    let judged = |candidates: &[u64], question: &str| {
        let candidates: Vec<Value> = candidates.iter().map(candidate).collect();
        json!({"g": {"max_tokens": 2, "temperature": 0, "input": {"seq": [
            {"system": "You rank mails."}, {"plus": candidates}, {"user": question},
        ]}}})
    };
    let first = answer(&server, judged(&[5, 25, 45, 65, 85], "Which one, a?")).await;
    let again = answer(&server, judged(&[5, 25, 45, 65, 85], "Which one, b?")).await;
    let alone = answer(&server, judged(&[], "Which one, c?")).await;
    let [own, ..] = prompt_tokens(&alone["calls"][0]);
    let [.., computed] = prompt_tokens(&first["calls"][5]);
    let [.., computed_again] = prompt_tokens(&again["calls"][5]);
    // The last to end leaves its last block, and the end of its message, to the judge.
    assert!(computed <= own + 24, "{computed} of its own {own}: {first}");
    assert!(computed_again <= own, "{computed_again} of its own {own}: {again}");
    server.until_free().await;
}

#[actix_web::test]
async fn a_map_asks_its_query_once_for_each_item() {
    let server = fresh(Family::Llama).await;
    let ask_of = |text: &str| json!({"g": {"max_tokens": 4, "temperature": 0, "input": {"user": text}}});
    let over = json!([{"city": "Rome", "days": 2}, {"city": "{city}", "days": 3}]);
    let map = json!({"map": {"over": over, "query": ask_of("{days} days in {city}")}});
    let reply = answer(&server, map.clone()).await;
    let texts = ["2 days in Rome", "3 days in {city}"];
    assert_eq!(reply["result"].as_array().unwrap().len(), 2, "{reply}");
    for (number, text) in texts.iter().enumerate() {
        let alone = answer(&server, ask_of(text)).await;
        assert_eq!(content(&alone), reply["result"][number]["content"], "{text}");
    }
    let judged = json!({"g": {"max_tokens": 4, "temperature": 0, "input": {"plus": [map]}}});
    let judged = answer(&server, judged).await;
    assert_eq!(judged["calls"][2]["inputs"], json!([0, 1]), "{judged}");
    let wrong = json!({"query": {"map": {"over": over, "query": ask_of("{town}")}}});
    let refused = ask(&server, wrong).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("map.query.g.input.user"), "{}", refused.body);
    server.until_free().await;
}

#[actix_web::test]
async fn a_query_that_asks_no_model_can_be_explained() {
    let server = fresh(Family::Llama).await;
    let query = json!({"seq": [{"seq": [{"system": "You rank mails."}]}, {"plus": [{"user": "One."}, {"user": "Two."}]}]});
    let refused = ask(&server, json!({"query": query})).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    let reply = ask(&server, json!({"query": query, "explain": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    assert_eq!((&reply["calls"], &reply["usage"]["total_tokens"]), (&json!([]), &json!(0)));
    assert_eq!(reply["result"].as_array().unwrap().len(), 3, "{reply}");
    assert!(reply["explain"].as_str().unwrap().contains("flatten"), "{reply}");
}

#[actix_web::test]
async fn a_tree_of_judges_is_made_on_request() {
    let server = fresh(Family::Llama).await;
    let reply = ask(&server, json!({"query": judge(8), "tree_reduce": 2, "explain": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let calls = reply["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 8 + 4 + 2 + 1, "{}", reply["explain"]);
    let judges = calls.iter().filter(|call| !call["inputs"].as_array().unwrap().is_empty());
    assert!(judges.clone().all(|call| call["inputs"].as_array().unwrap().len() == 2));
}

#[actix_web::test]
async fn what_a_cross_has_in_common_at_its_end_is_never_reused() {
    let server = fresh(Family::Llama).await;
    let same = document(9);
    let query = |first: usize| json!({"g": {"max_tokens": 4, "temperature": 0, "input": {"cross": [document(first), same.clone()]}}});
    let one = answer(&server, query(1)).await;
    let other = answer(&server, query(2)).await;
    let [all, exact, shifted, computed] = prompt_tokens(&other);
    assert_eq!((exact, shifted, computed), (0, 0, all), "{one} {other}");
}

#[actix_web::test]
async fn a_stream_tells_text_as_it_comes_and_ends_with_the_reply() {
    let server = fresh(Family::Llama).await;
    let reply = ask(&server, json!({"query": judge(2), "stream": true})).await;
    let events = reply.events();
    let of = |name: &str| -> Vec<&Value> {
        events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
    };
    let (deltas, done) = (of("delta"), of("done"));
    assert_eq!((of("call").len(), done.len()), (3, 1), "{}", reply.body);
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("done"));
    assert!(deltas.iter().all(|delta| delta["call"] == 2));
    let text: String = deltas.iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    assert_eq!(text, content(done[0]));
}

#[actix_web::test]
async fn of_many_queries_one_fails_alone_and_the_others_keep_their_places() {
    let server = fresh(Family::Llama).await;
    let long = json!({"g": {"max_tokens": 8, "input": {"user": "word ".repeat(5_000)}}});
    let many = json!([rag(&[1, 2], "A?"), rag(&[5, 6], "B?"), long, rag(&[2, 1], "C?")]);
    let reply = ask(&server, json!({ "queries": many })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let data = reply["data"].as_array().unwrap();
    let indices: Vec<u64> = data.iter().map(|entry| entry["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert!(data[2]["error"]["message"].as_str().unwrap().contains("4096"), "{}", data[2]);
    for (place, query) in [(0, rag(&[1, 2], "A?")), (1, rag(&[5, 6], "B?")), (3, rag(&[2, 1], "C?"))] {
        let alone = answer(&fresh(Family::Llama).await, query).await;
        assert_eq!(content(&alone), content(&data[place]), "{place}");
    }
    // Documents 1 and 2 were computed once, whoever asked first.
    let shifted: u64 =
        data.iter().filter(|entry| entry["error"].is_null()).map(|entry| prompt_tokens(entry)[2]).sum();
    assert!(shifted > 200, "{reply}");
}

#[actix_web::test]
async fn what_cannot_be_run_is_named() {
    let server = fresh(Family::Llama).await;
    let g = |input: Value| json!({"g": {"input": input, "max_tokens": 4}});
    for (body, status, part) in [
        (json!({}), 400, "`query`: is required"),
        (json!({"query": g(json!({"seq": [{"user": "a"}, {"usr": "b"}]}))}), 400, "`query.g.input.seq[1]`"),
        (json!({"queries": [g(json!({"user": 1}))]}), 400, "`queries[0].g.input.user`"),
        (json!({"query": {"user": "no call"}}), 400, "it has no `g`"),
        (json!({"query": g(json!({"user": "a"})), "rules_off": ["x"]}), 400, "`rules_off[0]`"),
        (json!({"query": g(json!({"user": "a"})), "tree_reduce": 1}), 400, "`tree_reduce`"),
        (json!({"query": g(json!({"user": "a"})), "model": "gpt"}), 404, "`gpt`"),
        (json!({"query": {"g": {"model": "gpt", "input": {"user": "a"}}}}), 404, "`gpt`"),
        (
            json!({"query": {"g": {"max_tokens": 99_999, "input": {"user": "a"}}}}),
            400,
            "`query.g.max_tokens`: is 99999, the limit is",
        ),
        (
            json!({"query": g(json!({"plus": [{"g": {"top_k": 1_000_000, "input": {"user": "a"}}}]}))}),
            400,
            "`query.g.input.plus[0].g.top_k`",
        ),
        (
            json!({"query": {"seq": [g(json!({"user": "a"})), {"repeat": {"n": 2, "g": {"input": {"user": "b"},
                "constraint": {"regex": "("}}}}]}}),
            400,
            "`query.seq[1].repeat.g.constraint`",
        ),
        (json!({"query": {"g": {"max_tokens": 5_000, "input": {"user": "a"}}}}), 400, "4096"),
        (json!({"queries": [g(json!({"user": "a"}))], "stream": true}), 400, "`stream`"),
        (json!({"query": g(json!({"user": "a"})), "extra": 1}), 400, "`extra`"),
    ] {
        let reply = ask(&server, body.clone()).await;
        assert_eq!(reply.status, status, "{body} gave {}", reply.body);
        assert!(reply.error().contains(part), "{body} gave {}", reply.body);
    }
    let copies = |n: u64| json!({"g": {"max_tokens": 4, "input": {"plus": [{"repeat": {"n": n, "g": g(json!({"user": "a"}))["g"]}}]}}});
    for (query, part) in [
        (g(json!({"plus": vec![json!({"user": "a"}); 100_000]})), "4096"),
        (g(json!({"plus": []})), "`query.g`: has nothing in its input"),
        (
            json!({"seq": [{"user": "a"}, g(json!({"cross": []}))]}),
            "`query.seq[1].g`: has nothing in its input",
        ),
        (copies(0), "`query.g.input.plus[0].repeat.n`"),
        (copies(256), "255"),
        (g(json!({"plus": vec![copies(255); 20]})), "4096"),
    ] {
        let reply = ask(&server, json!({ "query": query })).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.error().contains(part), "{part}: {}", reply.body);
    }
    let deep =
        format!("{{\"query\":{}{{\"user\":\"a\"}}{}}}", "{\"cross\":[".repeat(10_000), "]}".repeat(10_000));
    let reply = server.client.post_bytes("/v1/query", "application/json", deep.as_bytes()).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    // A generate inside a plus inside a generate inside a plus is no more than a tree.
    let inner = copies(2);
    let nested = answer(&server, g(json!({"seq": [{"plus": [inner, inner]}, {"user": "b"}]}))).await;
    assert_eq!(nested["calls"].as_array().unwrap().len(), 7, "{nested}");
    // A plus needs keys that can be read elsewhere.
    let opt = fresh(Family::Opt).await;
    let refused = ask(&opt, json!({"query": rag(&[1, 2], "Q?")})).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.error().contains("learned its positions"), "{}", refused.body);
    // So do messages a chat template.
    let plain = serve_with(config(), model()).await;
    let refused = ask(&plain, json!({"query": g(json!({"user": "a"}))})).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.error().contains("no chat template"), "{}", refused.body);
}

#[actix_web::test]
async fn a_query_whose_client_leaves_or_whose_deadline_passes_gives_all_back() {
    let mut chatty = model();
    chatty.has_chat = true;
    let server = serve_with(config(), chatty).await;
    server.gate.shut();
    let query = json!({ "query": judge(3), "stream": true });
    let stream = server.client.begin("/v1/query", &query).await;
    server.until("its calls wait", |server| server.running.app.runtime.shared.intake.unfinished() == 3).await;
    drop(stream);
    // The loop stands at the gate; it takes them out with its next step.
    server
        .until("its calls are called off", |server| server.running.app.runtime.registry.running().is_empty())
        .await;
    let late = ask(&server, json!({"query": judge(2), "deadline_ms": 30})).await;
    assert_eq!(late.status, 504, "{}", late.body);
    assert_eq!(late.json()["usage"]["completion_tokens"], 0, "{}", late.body);
    let mut stream = server
        .client
        .begin("/v1/query", &json!({"query": judge(2), "deadline_ms": 30, "stream": true}))
        .await;
    let told = read_until(&mut stream, "event: error").await;
    assert!(!told.contains("event: done") && told.contains("usage"), "{told}");
    server.gate.release();
    server.until_free().await;
}

#[actix_web::test]
async fn a_retrieval_is_a_plus_of_what_the_corpus_has() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["boat", "river", "fish", "tax", "money"];
    retrieval::synthetic::Synthetic::tiny(&words, 3).write(folder.path()).unwrap();
    let mut config = config();
    config.retrieval.model = Some(folder.path().to_owned());
    let server = fresh_with(Family::Llama, config).await;
    let texts = ["fish river", "boat boat fish", "tax money tax", "money river"];
    let documents: Vec<Value> = texts.iter().map(|text| json!({"id": text, "text": text})).collect();
    let made = server.client.post("/v1/corpora", &json!({"name": "c", "documents": documents})).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let found =
        server.client.post("/v1/corpora/c/search", &json!({"query": "boat fish", "k": 2})).await.json();
    let found: Vec<&str> = (0..2).map(|i| found["data"][i]["text"].as_str().unwrap()).collect();
    assert_eq!(found[0], "boat boat fish");

    let query = |fragments: Value| {
        json!({"g": {"max_tokens": 8, "temperature": 0, "input": {"seq": [
            {"system": "Answer from the fragments."}, fragments, {"user": "What swims?"},
        ]}}})
    };
    let retrieval = |corpus: &str| json!({"retrieval": {"corpus": corpus, "query": "boat fish", "k": 2}});
    let asked = json!({"query": query(retrieval("c")), "explain": true});
    let reply = ask(&server, asked).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let explained = reply["explain"].as_str().unwrap();
    for text in texts {
        assert_eq!(explained.contains(text), found.contains(&text), "{text}: {explained}");
    }
    let written: Vec<Value> = found.iter().map(|text| json!({ "user": text })).collect();
    let plus = answer(&server, query(json!({ "plus": written }))).await;
    assert_eq!(content(&reply), content(&plus));
    let nothing = ask(&server, json!({"query": query(retrieval("d"))})).await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.error().contains("`d`"), "{}", nothing.body);
    let both = ask(&server, json!({"queries": [query(retrieval("d")), query(retrieval("c"))]})).await.json();
    assert!(both["data"][0]["error"]["message"].as_str().unwrap().contains("`d`"), "{both}");
    assert_eq!(content(&both["data"][1]), content(&plus));
}

#[actix_web::test]
async fn calls_that_end_before_anybody_listens_are_heard_of() {
    let mut chatty = model();
    chatty.has_chat = true;
    let server = serve_with(config(), chatty).await;
    // A step of this executor takes no time: its answer races with the query that waits for it.
    for number in 0..400 {
        let query = json!({"g": {"max_tokens": 1, "temperature": 0, "input": {"user": number.to_string()}}});
        let body = json!({"query": query, "deadline_ms": 60_000});
        let reply = ask(&server, body).await;
        assert_eq!(reply.status, 200, "query {number}: {}", reply.body);
    }
    server.until_free().await;
}
