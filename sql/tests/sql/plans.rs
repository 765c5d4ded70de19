//! Golden plans: where AI calls stand after everything is optimised.

use insta::assert_snapshot;

use crate::common::{Model, session, shown};

const TABLES: [&str; 2] = [
    "CREATE TABLE reviews AS SELECT * FROM (VALUES (1, 'up', 'fine', 5)) AS t(id, film, text, stars)",
    "CREATE TABLE films AS SELECT * FROM (VALUES ('up', 'family')) AS t(film, kind)",
];

/// The logical plan of a statement, with the tables' names only.
pub(crate) async fn logical(session: &sql::Session, text: &str) -> String {
    let plan = shown(session, &format!("EXPLAIN FORMAT INDENT {text}")).await;
    let rows = plan.lines().skip_while(|line| !line.contains("logical_plan"));
    let rows = rows.take_while(|line| !line.contains("physical_plan"));
    let text = |line: &str| {
        line.trim_matches('|').split_once('|').map_or("", |(_, plan)| plan).trim_end().to_owned()
    };
    rows.map(text).collect::<Vec<_>>().join("\n")
}

async fn plan(text: &str) -> String {
    let model = Model::words(&[]);
    let session = session(&model, &TABLES).await;
    let plan = shown(&session, &format!("EXPLAIN FORMAT INDENT {text}")).await;
    assert!(model.asked().is_empty(), "a plan asks nothing");
    let rows = plan
        .lines()
        .filter(|line| !line.starts_with('+'))
        .map(|line| line.trim_matches('|').trim_end().to_owned());
    rows.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn cheap_conditions_go_below() {
    assert_snapshot!(plan("SELECT id FROM reviews WHERE ai_if(text) AND stars > 3").await);
}

#[tokio::test]
async fn a_condition_over_a_subquery_with_calls_goes_below_them() {
    assert_snapshot!(
        plan("SELECT * FROM (SELECT id, stars, ai_if(text) AS good FROM reviews) WHERE stars > 3 AND good")
            .await
    );
}

#[tokio::test]
async fn calls_stand_above_a_join_whose_conditions_go_below() {
    assert_snapshot!(
        plan(
            "SELECT r.id FROM reviews r JOIN films f ON r.film = f.film
             WHERE f.kind = 'family' AND ai_if(r.text) AND r.stars > 3"
        )
        .await
    );
}

#[tokio::test]
async fn a_limit_reaches_the_filter() {
    assert_snapshot!(plan("SELECT id FROM reviews WHERE ai_if(text) LIMIT 5").await);
}

#[tokio::test]
async fn nested_calls_have_levels_and_branches_have_guards() {
    assert_snapshot!(
        plan(
            "SELECT CASE WHEN stars > 3 THEN 'good' ELSE ai_sentiment(ai_translate(text, 'French')) END AS s
             FROM reviews"
        )
        .await
    );
}

#[tokio::test]
async fn a_plan_says_what_its_calls_would_cost() {
    let model = Model::words(&[]);
    let session =
        session(&model, &["CREATE TABLE many AS SELECT value % 40 AS n FROM generate_series(1, 300)"]).await;
    let text = "EXPLAIN FORMAT INDENT SELECT n FROM many WHERE n < 30 AND ai_if(prompt('is {0} odd?', n))";
    let plan = shown(&session, text).await;
    assert!(plan.contains("230 rows, 30 distinct prompts"), "{plan}");
    assert!(model.asked().is_empty());
}
