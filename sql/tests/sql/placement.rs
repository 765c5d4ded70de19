//! Where AI filters stand beside joins, by the distinct prompts that they ask.

use std::sync::Arc;

use insta::assert_snapshot;

use crate::common::{Model, session, shown};
use crate::plans::logical;

/// 20 rows of ten texts, and 15 of 15.
const TABLES: [&str; 2] = [
    "CREATE TABLE l AS SELECT value AS id, 'l' || (value % 10) AS text, value % 4 AS key FROM generate_series(1, 20)",
    "CREATE TABLE r AS SELECT value AS id, 'r' || value AS text, value AS key FROM generate_series(1, 15)",
];
const PAIR: &str = "ai_if(prompt('same {0}/{1}', l.text, r.text))";
/// Holds for one of the ten texts.
const ONE: &str = "ai_if(prompt('only {0}', l.text))";

fn model() -> Arc<Model> {
    Model::new(|prompt| {
        Ok(if prompt.contains("same") || prompt.contains("l3") { "yes" } else { "no" }.to_owned())
    })
}

/// Prompts about one text, and about pairs.
fn asked(model: &Model) -> (usize, usize) {
    let asked = model.asked();
    let ones = asked.iter().filter(|prompt| prompt.contains("only")).count();
    assert!(model.repeated().is_empty());
    (ones, asked.len() - ones)
}

#[tokio::test]
async fn a_filter_on_one_side_goes_below_a_join_that_pairs_each_with_each() {
    let model = model();
    let session = session(&model, &TABLES).await;
    let text = format!("SELECT count(*) AS n FROM l JOIN r ON {PAIR} WHERE {ONE}");
    assert_snapshot!(logical(&session, &text).await);
    assert!(shown(&session, &text).await.contains("| 30 "));
    assert_eq!(asked(&model), (10, 15), "one of ten texts meets the 15 of the other side");
    shown(&session, "SET relserve.place_filters = false").await;
    let plan = logical(&session, &text).await;
    assert_eq!(plan.matches("AiFilter").count(), 2, "{plan}");
    assert!(plan.find("AiFilter") < plan.find("Cross Join"), "{plan}");
}

#[tokio::test]
async fn beside_a_join_condition_it_is_decided_above_for_rows_with_a_partner() {
    let model = model();
    let session = session(&model, &TABLES).await;
    let text = format!("SELECT count(*) AS n FROM l JOIN r ON l.id = r.id + 10 AND {PAIR} WHERE {ONE}");
    assert_snapshot!(logical(&session, &text).await);
    assert!(shown(&session, &text).await.contains("| 1 "));
    // Ten rows have a partner. While conditions are new each is tried first by eight rows.
    let (ones, pairs) = asked(&model);
    assert!(ones <= 10 && ones + pairs <= 20 && pairs <= 9, "{ones} {pairs}");
}

#[tokio::test]
async fn under_a_limit_nothing_is_asked_ahead() {
    let model = model();
    let session = session(&model, &TABLES).await;
    let text =
        format!("SELECT l.id FROM l JOIN r ON {PAIR} WHERE ai_if(prompt('only l3 {{0}}', l.text)) LIMIT 3");
    let plan = logical(&session, &text).await;
    assert!(plan.find("AiFilter") < plan.find("Cross Join"), "{plan}");
    shown(&session, &text).await;
    let (ones, pairs) = asked(&model);
    assert!(ones + pairs <= 24, "{ones} {pairs}");
}

#[tokio::test]
async fn the_preserved_side_of_an_outer_join_is_filtered_before_pairs_are_asked() {
    let model = model();
    let session = session(&model, &TABLES).await;
    let text = format!("SELECT count(*) AS n FROM l LEFT JOIN r ON {PAIR} WHERE {ONE}");
    assert_snapshot!(logical(&session, &text).await);
    assert!(shown(&session, &text).await.contains("| 30 "));
    assert_eq!(asked(&model), (10, 15));
    let other = format!(
        "SELECT count(*) AS n FROM l LEFT JOIN r ON {PAIR} WHERE ai_if(prompt('only {{0}}', r.text))"
    );
    let plan = logical(&session, &other).await;
    assert!(plan.find("AiFilter") < plan.find("AiOuterJoin"), "{plan}");
}

#[tokio::test]
async fn filters_of_subqueries_and_around_them_are_tried_in_one_order() {
    let model = model();
    let session = session(&model, &TABLES).await;
    let text =
        "SELECT id FROM (SELECT id, text FROM r WHERE ai_if(text, 'first?')) WHERE ai_if(text, 'second?')";
    assert_snapshot!(logical(&session, text).await);
}
