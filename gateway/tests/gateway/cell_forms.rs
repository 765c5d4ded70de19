//! What holds small models up: answers in the form of their function, examples before calls, labels calibrated.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use store::Store;

use crate::common::checkpoint::serve_checkpoint;
use crate::common::watcher::Watcher;
use crate::common::{Server, serve};
use crate::constraints::{posted, serve_demo};
use crate::pml::{llama, roomy};

/// A model that knows nothing: what has a form has it from elsewhere.
async fn serve_random() -> Server {
    serve_checkpoint(roomy(), &llama(), Store::open("sqlite::memory:").await.unwrap()).await
}

fn call(function: &str, args: Value) -> Value {
    json!({ "function": function, "args": args })
}

#[actix_web::test]
async fn answers_have_the_form_of_their_function_whatever_the_model_would_say() {
    let server = serve_random().await;
    let text = "Order 88213 was shipped to Zurich on 4 May.";
    let pairs = json!([["apple", "fruit"], ["leek", "vegetable"], ["pear", "fruit"], ["kale", "vegetable"]]);
    let calls = json!([
        call("tag", json!([text, ["food", "delay", "price", "service"]])),
        call("extract", json!([text, "the city"])),
        call("format", json!(["4 May 2021", "YYYY-MM-DD"])),
        call("format", json!(["5550142231", "(555) 555-0100"])),
        call("list", json!(["fruits", 3])),
        call("fill", json!([pairs, "plum"])),
        call("classify", json!([text, ["good", "bad"]])),
        call("rate", json!([text])),
        call("tag", json!([text])),
    ]);
    let reply = server.client.post("/v1/cells", &json!({ "calls": calls })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let value = |at: usize| reply["cells"][at]["value"].clone();
    let said = |at: usize| value(at).as_str().unwrap_or_else(|| panic!("{at}: {reply}")).to_owned();

    let (tagged, free) = (said(0), said(8));
    let tags: Vec<&str> = tagged.split(", ").collect();
    let distinct = |items: &[&str]| items.iter().collect::<BTreeSet<_>>().len() == items.len();
    assert!(tags.iter().all(|tag| ["food", "delay", "price", "service"].contains(tag)), "{reply}");
    assert!(distinct(&tags) && distinct(&free.split(", ").collect::<Vec<_>>()), "{reply}");
    assert!(said(1) == "none" || text.contains(&said(1)), "{reply}");
    let shape = |text: &str| -> String {
        text.chars().map(|mark| if mark.is_ascii_digit() { '0' } else { mark }).collect()
    };
    assert_eq!(
        (shape(&said(2)).as_str(), shape(&said(3)).as_str()),
        ("0000-00-00", "(000) 000-0000"),
        "{reply}"
    );
    let items: Vec<String> =
        value(4).as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_lowercase()).collect();
    assert!(items.len() <= 3 && distinct(&items.iter().map(String::as_str).collect::<Vec<_>>()), "{reply}");
    assert!(["fruit", "vegetable"].contains(&said(5).as_str()), "{reply}");
    assert!(["good", "bad"].contains(&said(6).as_str()), "{reply}");
    assert!((1..=5).contains(&value(7).as_i64().unwrap()), "{reply}");

    let bare = json!({ "calls": calls, "guidance": { "constraints": false, "calibration": false } });
    let bare = server.client.post("/v1/cells", &bare).await.json();
    let kept = bare["cells"][0]["value"].as_str().is_some_and(|said| said == tagged);
    assert!(!kept, "without its form the model says what it likes: {bare}");
    let asked = json!({ "calls": [{ "function": "tag", "args": [text, ["food"]], "constraint": { "choice": ["x"] } }] });
    let asked = server.client.post("/v1/cells", &asked).await.json();
    assert_eq!(asked["cells"][0]["value"], "x", "the caller's own form goes before the function's");
}

#[actix_web::test]
async fn examples_most_like_a_call_stand_before_it_the_same_for_all_rows() {
    let server = serve_random().await;
    let calls = json!([
        call("edit", json!(["He walk.", "correct the grammar"])),
        call("edit", json!(["They walks.", "correct the grammar"])),
        call("edit", json!(["They walk.", "put it in the past tense"])),
    ]);
    let prompts = |guidance: Value| {
        let body = json!({ "calls": calls, "guidance": guidance });
        let (client, calls) = (&server.client, body);
        async move { client.post("/v1/cells/prompts", &calls).await.json()["prompts"].clone() }
    };
    let guided = prompts(json!({})).await;
    let text = |of: &Value, at: usize| of[at]["text"].as_str().unwrap_or_else(|| panic!("{of}")).to_owned();
    let (one, other, tense) = (text(&guided, 0), text(&guided, 1), text(&guided, 2));
    let shown = one.split_once("He walk.").unwrap().0;
    assert!(other.starts_with(shown) && shown.contains("We saw him yesterday."), "{one}");
    assert!(tense.contains("They cleaned the house.") && !tense.starts_with(shown), "{tense}");
    let bare = text(&prompts(json!({ "examples": false })).await, 0);
    assert!(!bare.contains("We saw him yesterday."), "{bare}");
}

const LABELS: [&str; 2] = ["positive", "negative"];

#[actix_web::test]
async fn a_calibrated_label_is_as_likely_as_the_formula_says() {
    let (running, client) = serve_demo().await;
    let ask = |texts: &[&str], calibration: bool| {
        let calls: Vec<Value> = texts.iter().map(|text| call("classify", json!([text, LABELS]))).collect();
        json!({ "calls": calls, "guidance": { "calibration": calibration } })
    };
    // How likely `positive` is, whichever label was said.
    let positive = |reply: &Value, at: usize| {
        let cell = &reply["cells"][at];
        let probability = cell["details"]["probability"].as_f64().unwrap_or_else(|| panic!("{reply}"));
        if cell["value"] == LABELS[0] { probability } else { 1.0 - probability }
    };
    let route = "/v1/cells?details=true";
    let empty = posted(&client, route, ask(&["N/A", "[MASK]", "..."], false)).await;
    let prior = (0..3).map(|at| positive(&empty, at)).sum::<f64>() / 3.0;
    let texts = ["a wonderful film, I loved it", "dull and far too long", "it was there", "good", "[MASK]"];
    let plain = posted(&client, route, ask(&texts, false)).await;
    let calibrated = posted(&client, route, ask(&texts, true)).await;
    let mut moved = 0.0f64;
    for at in 0..texts.len() {
        let before = positive(&plain, at);
        let (yes, no) = (before / prior, (1.0 - before) / (1.0 - prior));
        let (expected, found) = (yes / (yes + no), positive(&calibrated, at));
        assert!((expected - found).abs() < 5e-3, "{}: {expected} {found}", texts[at]);
        assert!(
            (found - 0.5).abs() < 1e-2 || (calibrated["cells"][at]["value"] == LABELS[0]) == (found > 0.5)
        );
        moved = moved.max((before - found).abs());
    }
    assert!(moved > 0.02, "there was something to correct: {plain}");
    let again = posted(&client, route, ask(&texts, true)).await;
    assert_eq!(again["cells"][0]["details"]["source"], "cache", "the same correction is the same question");
    let mut late = Watcher::open(&client).await;
    let is_calibration = |one: &Value| one["label"]["client"] == "calibration of labels";
    late.until("what was learned has its name", |watcher| watcher.each("ended").iter().any(is_calibration))
        .await;
    drop(late);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn guidance_that_makes_no_sense_or_cannot_be_had_is_refused() {
    let server = serve().await;
    for (guidance, field) in [
        (json!({ "shots": true }), "guidance.shots"),
        (json!({ "examples": 3 }), "guidance.examples"),
        (json!({ "calibration": true }), "guidance.calibration"),
        (json!("all"), "guidance"),
    ] {
        let body = json!({ "calls": [call("ask", json!(["say x"]))], "guidance": guidance });
        let reply = server.client.post("/v1/cells", &body).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.body.contains(field), "{}", reply.body);
    }
}

#[actix_web::test]
async fn a_row_of_a_table_says_how_likely_its_choice_was() {
    let (running, client) = serve_demo().await;
    let body = json!({ "template": "Classify the text. Answer with one of these labels: positive, negative.\n\nText: {t}",
        "columns": ["t"], "rows": [["a wonderful film"], ["dull"]], "constraint": { "choice": LABELS },
        "temperature": 0 });
    let reply = posted(&client, "/v1/relqueries", body).await;
    for row in reply["rows"].as_array().unwrap() {
        let probability = row["probability"].as_f64().unwrap_or_else(|| panic!("{reply}"));
        assert!((0.5 - 1e-6..=1.0).contains(&probability), "{reply}");
    }
    running.drain(std::future::pending()).await;
}
