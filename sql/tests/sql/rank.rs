//! `ORDER BY ai_rank(..) LIMIT k`: the first rows by few comparisons of distinct texts.

use std::sync::Arc;

use insta::assert_snapshot;

use crate::common::{Model, session, shown};

/// Names the text with the largest number; fails on any with "broken" in it.
fn largest() -> Arc<Model> {
    Model::new(|prompt| {
        if prompt.contains("broken") {
            return Err("the replica is gone".into());
        }
        let worth = |line: &str| {
            let (place, text) = line.split_once(". ")?;
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            Some((digits.parse::<u64>().ok()?, place.to_owned()))
        };
        let best = prompt.lines().filter_map(worth).max();
        Ok(best.map_or_else(String::new, |(_, place)| place))
    })
}

/// 100 rows of 50 texts.
const FILMS: &str = "CREATE TABLE films AS SELECT value AS id, 'worth ' || (value % 50) AS text
    FROM generate_series(1, 100)";

#[tokio::test]
async fn the_first_rows_are_found_by_comparing_distinct_texts() {
    let model = largest();
    let session = session(&model, &[FILMS]).await;
    let text = "SELECT id, text FROM films ORDER BY ai_rank(text, 'worth most'), id LIMIT 5";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+----------+
    | id | text     |
    +----+----------+
    | 49 | worth 49 |
    | 99 | worth 49 |
    | 48 | worth 48 |
    | 98 | worth 48 |
    | 47 | worth 47 |
    +----+----------+
    ");
    // 13 + 4 + 1 comparisons for the best text, at most three for each of the two others.
    let asked = model.asked();
    assert!((18..=24).contains(&asked.len()), "{} comparisons", asked.len());
    assert!(model.repeated().is_empty());
    assert!(asked.iter().all(|prompt| prompt.starts_with("Which of these texts fits best: worth most?")));
}

#[tokio::test]
async fn a_plan_bounds_the_comparisons() {
    let model = largest();
    let session = session(&model, &[FILMS]).await;
    let text = "SELECT id FROM films WHERE id > 20 ORDER BY ai_rank(text, 'worth most') LIMIT 5";
    let plan = shown(&session, &format!("EXPLAIN FORMAT INDENT {text}")).await;
    let rows = plan.lines().filter(|line| !line.starts_with('+'));
    let plan: Vec<String> = rows.map(|line| line.trim_matches('|').trim_end().to_owned()).collect();
    assert_snapshot!(plan.join("\n"));
    assert!(model.asked().is_empty());
    shown(&session, text).await;
    assert!(model.asked().len() <= 18 + 4 * 3, "{}", model.asked().len());
}

#[tokio::test]
async fn rows_without_a_text_come_where_nulls_do() {
    let model = largest();
    let table =
        "CREATE TABLE some AS SELECT * FROM (VALUES (1, 'worth 7'), (2, NULL), (3, 'worth 9'), (4, NULL))
        AS t(id, text)";
    let session = session(&model, &[table]).await;
    let last = "SELECT id FROM some ORDER BY ai_rank(text, 'worth most'), id LIMIT 3";
    assert_snapshot!(shown(&session, last).await, @r"
    +----+
    | id |
    +----+
    | 3  |
    | 1  |
    | 2  |
    +----+
    ");
    let first = "SELECT id FROM some ORDER BY ai_rank(text, 'worth most') NULLS FIRST, id LIMIT 3";
    assert_snapshot!(shown(&session, first).await, @r"
    +----+
    | id |
    +----+
    | 2  |
    | 4  |
    | 3  |
    +----+
    ");
    let none = "SELECT id FROM some WHERE id > 9 ORDER BY ai_rank(text, 'worth most') LIMIT 3";
    shown(&session, none).await;
    assert_eq!(model.asked().len(), 2, "one comparison of the two texts, twice: {:?}", model.asked());
}

#[tokio::test]
async fn where_a_comparison_fails_the_first_of_its_texts_goes_on() {
    let model = largest();
    let table = "CREATE TABLE some AS SELECT * FROM
        (VALUES (1, 'worth 7'), (2, 'broken 9'), (3, 'worth 8'), (4, 'worth 1'), (5, 'worth 5')) AS t(id, text)";
    let session = session(&model, &[table]).await;
    let text = "SELECT id FROM some ORDER BY ai_rank(text, 'worth most') LIMIT 2";
    // By their letters the texts of 2, 4, 5 and 1 meet and fail, and 2 goes on; with 3 it fails again, and is
    // the best. Of the others 1 wins, and meets 3.
    assert_snapshot!(shown(&session, text).await, @r"
    +----+
    | id |
    +----+
    | 2  |
    | 3  |
    +----+
    ");
    let failures = "SELECT count(*) AS n FROM relserve.errors";
    assert_snapshot!(shown(&session, failures).await, @r"
    +---+
    | n |
    +---+
    | 2 |
    +---+
    ");
    let strict = "SELECT id FROM some ORDER BY ai_rank(text, 'worth most', on_error => 'error') LIMIT 2";
    assert!(shown(&session, strict).await.contains("the replica is gone"));
}

#[tokio::test]
async fn a_ranking_that_is_not_known_and_not_computed_keeps_the_rows() {
    let model = largest();
    let session = session(&model, &[FILMS]).await;
    shown(&session, "SET relserve.cached_only = true").await;
    let text = "SELECT id FROM films WHERE id < 4 ORDER BY ai_rank(text, 'worth most'), id LIMIT 2";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+
    | id |
    +----+
    | 1  |
    | 2  |
    +----+
    ");
    assert!(model.asked().is_empty());
}

#[tokio::test]
async fn the_rows_of_a_model_can_be_ranked_and_ranked_rows_filtered() {
    let model = Model::new(|prompt| {
        let say = |line: &str| line.split_once(". ").map(|(place, _)| place.to_owned());
        Ok(match prompt.lines().filter_map(say).next_back() {
            Some(place) => place,
            None => prompt.replace("say ", "said "),
        })
    });
    let session = session(&model, &[]).await;
    let text = "SELECT value FROM (SELECT value, ai_complete(prompt('say {0}', value)) AS t
            FROM generate_series(1, 9)) ORDER BY ai_rank(t, 'the last') LIMIT 2";
    assert_snapshot!(shown(&session, text).await, @r"
    +-------+
    | value |
    +-------+
    | 9     |
    | 8     |
    +-------+
    ");
    let inner = "SELECT count(*) AS n FROM (SELECT value FROM generate_series(1, 9)
            ORDER BY ai_rank(prompt('{0}', value), 'the last') LIMIT 3) WHERE value < 9";
    assert_snapshot!(shown(&session, inner).await, @r"
    +---+
    | n |
    +---+
    | 2 |
    +---+
    ");
}

#[tokio::test]
async fn what_has_no_meaning_is_refused() {
    let session = session(&largest(), &[FILMS]).await;
    for (text, said) in [
        ("SELECT ai_rank(text, 'x') FROM films", "ai_score(text, criterion, low, high)"),
        ("SELECT id FROM films ORDER BY id, ai_rank(text, 'x') LIMIT 2", "first key of ORDER BY"),
        ("SELECT id FROM films ORDER BY ai_rank(text, 'x')", "needs a LIMIT"),
        ("SELECT id FROM films ORDER BY ai_rank(text, 'x') DESC LIMIT 2", "DESC has no meaning"),
        ("SELECT id FROM films ORDER BY ai_rank(text) LIMIT 2", "takes a text and a criterion, got 1"),
        ("SELECT id FROM films ORDER BY ai_rank(text, text) LIMIT 2", "the same for all rows"),
    ] {
        let error = shown(&session, text).await;
        assert!(error.starts_with("error") && error.contains(said), "{text}: {error}");
    }
}
