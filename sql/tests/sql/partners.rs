//! AI conditions in subqueries that read the row around them, and in joins that ask whether there is a partner:
//! the rows that come, and the prompts that they take.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Model, session, shown};

const PRODUCTS: &str = "CREATE TABLE p AS SELECT * FROM (VALUES \
    (1, 'lamp'), (2, 'chair'), (3, 'radio'), (4, 'desk'), (5, NULL)) AS t(id, name)";
/// The product of a row may be unknown, or none that there is; one text is there twice.
const REVIEWS: &str = "CREATE TABLE r AS SELECT * FROM (VALUES \
    (1, 'bad lamp', 9), (1, 'good lamp', 2), (2, 'good chair', 3), (3, 'bad radio', 4), (3, 'bad radio', 5), \
    (9, 'bad ghost', 6), (NULL, 'bad stray', 7), (4, NULL, 8)) AS t(product, text, stars)";

/// Says yes where a text is bad, of a pair where the text names the product.
fn model() -> Arc<Model> {
    Model::new(|prompt| {
        let text = prompt.split_once("Text: ").map_or(prompt, |(_, text)| text);
        let holds = match text.split_once('/') {
            Some((name, text)) => text.contains(name.trim()),
            None => text.contains("bad"),
        };
        Ok(if holds { "yes" } else { "no" }.to_owned())
    })
}

/// The first column's values, in order, and the texts that were asked about.
async fn asked(text: &str) -> (Vec<String>, BTreeSet<String>) {
    let model = model();
    let session = session(&model, &[PRODUCTS, REVIEWS]).await;
    let table = shown(&session, text).await;
    assert!(!table.starts_with("error"), "{text}: {table}");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = |line: &str| line.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = rows.map(cells).collect();
    rows.sort();
    let prompts = model.asked();
    let text_of = |prompt: &String| {
        prompt.split_once("Text: ").map_or(prompt.as_str(), |(_, text)| text).trim().to_owned()
    };
    let texts: BTreeSet<String> = prompts.iter().map(text_of).collect();
    assert_eq!(texts.len(), prompts.len(), "{text}: a prompt ran twice: {prompts:?}");
    (rows, texts)
}

const OF_PRODUCTS: [&str; 4] = ["bad lamp", "bad radio", "good chair", "good lamp"];

async fn check(text: &str, rows: &[&str], texts: &[&str]) {
    let (found, asked) = asked(text).await;
    assert_eq!(found, rows, "{text}");
    assert_eq!(asked.iter().map(String::as_str).collect::<Vec<_>>(), texts, "{text}");
}

#[tokio::test]
async fn exists_asks_about_rows_with_a_partner() {
    let exists = "EXISTS (SELECT 1 FROM r WHERE r.product = p.id AND ai_if(r.text, 'is it bad?'))";
    check(&format!("SELECT id FROM p WHERE {exists}"), &["1", "3"], &OF_PRODUCTS).await;
    check(&format!("SELECT id FROM p WHERE NOT {exists}"), &["2", "4", "5"], &OF_PRODUCTS).await;
    // Beside another condition it is a column of its own.
    check(&format!("SELECT id FROM p WHERE {exists} OR id = 5"), &["1", "3", "5"], &OF_PRODUCTS).await;
    let few = "EXISTS (SELECT 1 FROM r WHERE product = id AND stars > 3 AND ai_if(text, 'is it bad?'))";
    check(&format!("SELECT id FROM p WHERE {few}"), &["1", "3"], &["bad lamp", "bad radio"]).await;
}

#[tokio::test]
async fn a_list_of_a_subquery_asks_about_rows_that_may_be_in_it() {
    let list = "(SELECT product FROM r WHERE ai_if(text, 'is it bad?'))";
    check(&format!("SELECT id FROM p WHERE id IN {list}"), &["1", "3"], &OF_PRODUCTS).await;
    // A row without a product is in no list for certain: nothing is left.
    let all = ["bad ghost", "bad lamp", "bad radio", "bad stray", "good chair", "good lamp"];
    check(&format!("SELECT id FROM p WHERE id NOT IN {list}"), &[], &all).await;
}

#[tokio::test]
async fn pairs_decide_about_partners() {
    let pairs: Vec<String> = ["chair", "desk", "lamp", "radio"]
        .iter()
        .flat_map(|name| {
            let texts = ["bad ghost", "bad lamp", "bad radio", "bad stray", "good chair", "good lamp"];
            texts.map(|text| format!("{name}/{text}"))
        })
        .collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let condition = "ai_if(prompt('{0}/{1}', p.name, r.text), 'is it about it?')";
    let exists = format!("EXISTS (SELECT 1 FROM r WHERE {condition})");
    check(&format!("SELECT id FROM p WHERE {exists}"), &["1", "2", "3"], &pairs).await;
    check(&format!("SELECT id FROM p WHERE NOT {exists}"), &["4", "5"], &pairs).await;
    let text = format!("SELECT p.id FROM p LEFT SEMI JOIN r ON {condition}");
    check(&text, &["1", "2", "3"], &pairs).await;
    let text = format!("SELECT p.id FROM p LEFT ANTI JOIN r ON {condition}");
    check(&text, &["4", "5"], &pairs).await;
    let text = format!("SELECT r.stars FROM p RIGHT SEMI JOIN r ON {condition}");
    check(&text, &["2", "3", "4", "5", "9"], &pairs).await;
    let text = format!("SELECT r.stars FROM p RIGHT ANTI JOIN r ON {condition}");
    check(&text, &["6", "7", "8"], &pairs).await;
    let own = ["lamp/bad lamp", "lamp/good lamp", "radio/bad radio", "chair/good chair"];
    let mut own = own.to_vec();
    own.sort_unstable();
    let text = format!("SELECT p.id FROM p LEFT SEMI JOIN r ON p.id = r.product AND {condition}");
    check(&text, &["1", "2", "3"], &own).await;
}

#[tokio::test]
async fn subqueries_of_one_value_count_and_aggregate_answers() {
    let count = "(SELECT count(*) FROM r WHERE r.product = p.id AND ai_if(r.text, 'is it bad?'))";
    let (rows, _) = asked(&format!("SELECT id, {count} FROM p")).await;
    assert_eq!(rows, ["1 1", "2 0", "3 2", "4 0", "5 0"]);
    let most = "(SELECT max(ai_if(r.text, 'is it bad?')) FROM r WHERE r.product = p.id)";
    let (rows, _) = asked(&format!("SELECT id, {most} FROM p")).await;
    assert_eq!(rows, ["1 true", "2 false", "3 true", "4", "5"]);
}

#[tokio::test]
async fn lateral_subqueries_read_the_row_before_them() {
    let text = "SELECT p.id, x.bad FROM p CROSS JOIN LATERAL \
                (SELECT ai_if(r.text, 'is it bad?') AS bad FROM r WHERE r.product = p.id) x";
    let (rows, _) = asked(text).await;
    assert_eq!(rows, ["1 false", "1 true", "2 false", "3 true", "3 true", "4"]);
}

#[tokio::test]
async fn subqueries_without_a_model_stand_beside_calls() {
    let bad = "ai_if(text, 'is it bad?')";
    let count = |condition: &str| format!("SELECT stars FROM r WHERE {condition}");
    let all = ["2", "3", "4", "5", "6", "7", "9"];
    for (condition, rows) in [
        (format!("{bad} AND stars > (SELECT avg(stars) FROM r)"), vec!["6", "7", "9"]),
        (format!("{bad} OR stars < (SELECT avg(stars) FROM r)"), all.to_vec()),
        (
            format!("{bad} = (stars > (SELECT min(id) + 1 FROM p WHERE p.id = r.product))"),
            vec!["2", "3", "5", "9"],
        ),
        (
            format!("{bad} OR EXISTS (SELECT 1 FROM p WHERE p.id = r.product)"),
            vec!["2", "3", "4", "5", "6", "7", "8", "9"],
        ),
        (format!("ai_if((SELECT max(text) FROM r), 'is it bad?') OR {bad}"), vec!["4", "5", "6", "7", "9"]),
        (
            format!("{bad} = (SELECT ai_if(text, 'is it bad?') FROM r WHERE stars = 9)"),
            vec!["4", "5", "6", "7", "9"],
        ),
        (format!("coalesce({bad}, true)"), vec!["4", "5", "6", "7", "8", "9"]),
    ] {
        let (found, _) = asked(&count(&condition)).await;
        assert_eq!(found, rows, "{condition}");
    }
}

#[tokio::test]
async fn a_call_of_two_conditions_is_asked_wherever_one_of_them_needs_it() {
    let text = "SELECT stars FROM r WHERE (ai_if(text, 'is it about it?') OR ai_if(text, 'is it bad?')) AND \
                (CASE WHEN ai_sentiment(text) = 'positive' THEN ai_if(text, 'is it bad?') ELSE true END)";
    let model = Model::new(|prompt| {
        let text = prompt.split_once("Text: ").map_or(prompt, |(_, text)| text);
        let answer = match (prompt.contains("about it"), prompt.contains("bad?")) {
            (true, _) => {
                if text.contains("radio") {
                    "yes"
                } else {
                    "no"
                }
            }
            (_, true) => {
                if text.contains("bad") {
                    "yes"
                } else {
                    "no"
                }
            }
            _ => {
                if text.contains("radio") {
                    "positive"
                } else {
                    "negative"
                }
            }
        };
        Ok(answer.to_owned())
    });
    let session = session(&model, &[PRODUCTS, REVIEWS]).await;
    let table = shown(&session, text).await;
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let mut rows: Vec<&str> = rows.map(|line| line.trim_matches(['|', ' '])).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["4", "5", "6", "7", "9"], "{table}");
}
