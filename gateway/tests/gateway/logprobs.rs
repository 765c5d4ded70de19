//! How likely answers are: log probabilities of the local engine's tokens, and a cell's probability.

use serde_json::{Value, json};

use crate::constraints::{posted, serve_demo};

const LABELS: [&str; 2] = ["positive", "negative"];

#[actix_web::test]
async fn tokens_come_with_their_log_probabilities_and_the_likeliest_beside_them() {
    let (running, client) = serve_demo().await;
    let ask = json!({"model": "relserve-demo", "prompt": "The film was", "max_tokens": 4, "temperature": 0,
        "ignore_eos": true, "logprobs": 3});
    let reply = posted(&client, "/v1/completions", ask.clone()).await;
    let choice = &reply["choices"][0];
    let told = &choice["logprobs"];
    let tokens: Vec<&str> = told["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens.len(), 4, "{reply}");
    let text = choice["text"].as_str().unwrap();
    assert_eq!(tokens.concat().trim_start(), text.trim_start());
    let offsets: Vec<usize> = serde_json::from_value(told["text_offset"].clone()).unwrap();
    for (at, token) in tokens.iter().enumerate().skip(1) {
        let rest: String = text.chars().skip(offsets[at]).collect();
        assert!(rest.starts_with(*token), "{token:?} at {} of {text:?}", offsets[at]);
    }
    // In a stream too they are places in the whole text.
    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let streamed = client.post("/v1/completions", &streamed).await;
    let chunks = streamed.events().into_iter().map(|(_, chunk)| chunk["choices"][0]["logprobs"].clone());
    let streamed: Vec<Value> =
        chunks.filter_map(|told| told["text_offset"].as_array().cloned()).flatten().collect();
    assert_eq!(Value::from(streamed), told["text_offset"]);
    for (at, token) in tokens.iter().enumerate() {
        let own = told["token_logprobs"][at].as_f64().unwrap();
        let top = told["top_logprobs"][at].as_object().unwrap();
        assert!(own < 0.0 && (1..=3).contains(&top.len()), "{told}");
        let most = top.values().filter_map(Value::as_f64).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!((top[*token].as_f64(), own), (Some(own), most), "greedy takes the likeliest");
        assert!(top.values().filter_map(Value::as_f64).map(f64::exp).sum::<f64>() <= 1.0 + 1e-5, "{told}");
    }

    // Drawn at a temperature, a token is as likely as the model says, which is not as the draw has it.
    let mut hot = ask.clone();
    hot["temperature"] = json!(2.0);
    hot["seed"] = json!(5);
    hot["max_tokens"] = json!(1);
    let hot = posted(&client, "/v1/completions", hot).await;
    let top = |reply: &Value| reply["choices"][0]["logprobs"]["top_logprobs"][0].clone();
    let (hot, likeliest) = (top(&hot), top(&reply));
    for (token, likely) in likeliest.as_object().unwrap() {
        assert_eq!(hot[token], *likely, "the same distribution, and what was drawn beside");
    }

    // Where none are asked for, the chosen one stands alone.
    let mut alone = ask.clone();
    alone["logprobs"] = json!(0);
    let alone = posted(&client, "/v1/completions", alone).await["choices"][0]["logprobs"].clone();
    assert_eq!((&alone["tokens"], &alone["token_logprobs"]), (&told["tokens"], &told["token_logprobs"]));
    for (at, own) in alone["token_logprobs"].as_array().unwrap().iter().enumerate() {
        let top = alone["top_logprobs"][at].as_object().unwrap();
        assert_eq!(top.values().collect::<Vec<_>>(), [own], "{alone}");
    }
    let wrong = client.post("/v1/completions", &json!({"prompt": "The film was", "logprobs": 21})).await;
    assert!(wrong.status == 400 && wrong.error().contains("`logprobs`"), "{}", wrong.body);

    // And in the words of conversations, in a stream too.
    let chat = json!({"model": "relserve-demo", "messages": [{"role": "user", "content": "How was it?"}],
        "max_tokens": 3, "temperature": 0, "logprobs": true, "top_logprobs": 1});
    let whole = posted(&client, "/v1/chat/completions", chat.clone()).await;
    let content = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert!(!content.is_empty() && content[0]["top_logprobs"][0]["logprob"] == content[0]["logprob"]);
    let mut streamed = chat;
    streamed["stream"] = json!(true);
    let reply = client.post("/v1/chat/completions", &streamed).await;
    let pieces: Vec<Value> = reply
        .body
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(pieces, content);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn what_a_constraint_does_not_allow_has_no_part_in_the_probabilities() {
    let (running, client) = serve_demo().await;
    let ask = json!({"model": "relserve-demo", "prompt": "Text: a wonderful film\nLabel: ", "max_tokens": 20,
        "temperature": 0, "guided_choice": ["a", "b", "c"], "logprobs": 20});
    let reply = posted(&client, "/v1/completions", ask).await;
    let first = reply["choices"][0]["logprobs"]["top_logprobs"][0].as_object().unwrap().clone();
    let all: f64 = first.values().filter_map(Value::as_f64).map(f64::exp).sum();
    assert!((all - 1.0).abs() < 1e-4, "{first:?}");
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn tokens_spell_the_answer_also_where_its_end_is_forced() {
    let (running, client) = serve_demo().await;
    for labels in [json!(["True", "False"]), json!(["wonderful", "abysmal"])] {
        let ask = json!({"model": "relserve-demo", "prompt": "Claim: the soup was good.", "max_tokens": 12,
            "temperature": 0, "guided_choice": labels, "logprobs": 2});
        let reply = posted(&client, "/v1/completions", ask).await;
        let (text, told) = (&reply["choices"][0]["text"], &reply["choices"][0]["logprobs"]);
        let tokens = told["tokens"].as_array().unwrap();
        let said: String = tokens.iter().filter_map(Value::as_str).collect();
        assert_eq!(said.trim_start(), text.as_str().unwrap(), "{reply}");
        assert!(labels.as_array().unwrap().contains(text), "{reply}");
        assert_eq!(told["token_logprobs"].as_array().unwrap().len(), tokens.len());
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_cells_details_say_how_likely_its_answer_was_also_where_it_is_known_already() {
    let (running, client) = serve_demo().await;
    let call = |text: &str| json!({"function": "classify", "args": [text, LABELS]});
    let free = json!({"function": "ask", "args": ["Say something about films."]});
    let calls = json!({"calls": [call("a wonderful film, I loved it"), call("dull and far too long"), free]});
    let first = posted(&client, "/v1/cells?details=true", calls.clone()).await;
    let probability = |reply: &Value, at: usize| reply["cells"][at]["details"]["probability"].as_f64();
    for at in 0..2 {
        let found = probability(&first, at).unwrap_or_else(|| panic!("{first}"));
        assert!((0.5 - 1e-6..=1.0).contains(&found), "the likelier of two labels: {first}");
    }
    assert_eq!(probability(&first, 2), None, "nobody asked for that of free text: {first}");
    let again = posted(&client, "/v1/cells?details=true", calls).await;
    assert_eq!(again["cells"][0]["details"]["source"], "cache");
    assert_eq!(probability(&again, 0), probability(&first, 0));
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn sql_says_the_same_probability_as_cells_also_where_the_answer_is_known_already() {
    let (running, client) = serve_demo().await;
    let text = "a wonderful film, I loved it";
    let calls = json!({"calls": [{"function": "classify", "args": [text, LABELS]}]});
    let cell = posted(&client, "/v1/cells?details=true", calls).await;
    let expected = cell["cells"][0]["details"]["probability"].as_f64().unwrap();
    for query in [
        format!("SELECT ai_classify('{text}', ['positive', 'negative'], probability => true) AS p"),
        format!("SELECT ai_classify_probability('{text}', ['positive', 'negative']) AS p"),
    ] {
        let reply = client.post("/v1/sql", &json!({ "query": query })).await;
        let row: Value = serde_json::from_str(&reply.body).unwrap();
        let found = row["p"].as_f64().unwrap_or_else(|| panic!("{}", reply.body));
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
    let query = json!({ "query": "SELECT ai_if_probability('I love it', 'is it praise?') AS p" });
    let reply = client.post("/v1/sql", &query);
    let row: Value = serde_json::from_str(&reply.await.body).unwrap();
    assert!(row["p"].as_f64().is_some_and(|likely| 0.0 < likely && likely < 1.0), "{row}");
    running.drain(std::future::pending()).await;
}
